"""Small loops in time as scalar code: what a turn hands to itself, or to the next turn, stays in registers.

Statements on two or three numbers are no work for vectors. Written to memory and read again, each costs more time than
its arithmetic; a sum that grows by a number per turn costs a round trip through memory per turn. So the statements of a
small body are written out, element by element. An element is known by its array, its position and how far that moves
per turn; who reads it gets the register of who wrote it, in the same turn or in the one before. Elements that do not
move are loaded before the loop, and stored after it. An array that nothing else needs has no place in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.backends.llvm.kernels import KERNELS
from chainrule.compiler.backends.llvm.nests import chunks
from chainrule.compiler.backends.llvm.registers import Register, Registers
from chainrule.compiler.passes.differentiate import is_zero
from chainrule.compiler.passes.program import (
    Access,
    Apply,
    Array,
    ArrayProgram,
    Expression,
    Repeat,
    Statement,
    Term,
)

MOST = 640  # elements that a body may compute, with the terms of its sums
FEW = 8  # of them per statement, on average: more are work for vectors
ALONE = 2  # elements of which the library computes an elementary function faster, one by one, than a kernel in lanes

Key = tuple[Array, int, int]  # an element: its array, its position at time 0, and how far it moves per time
Turn = tuple[int, ...]


def key_of(access: Access, turn: Turn) -> Key:
    """The element that an access touches at a turn of the loops around it."""
    place = access.base + sum(stride * index for stride, index in zip(access.strides, turn, strict=True))
    return access.array, place if access.table is None else int(access.table[place]), access.repeat


def turns(loops: Sequence[int]) -> Iterator[Turn]:
    """The turns of loops of these extents, in order."""
    return product(*map(range, loops))


class Flow:
    """Which elements a turn of a loop needs from before, and which it leaves.

    `needed` are read before the turn writes them. Of these, `carried` are those that the turn before has written, with
    the elements as which it did; the others are in memory.
    """

    def __init__(self, step: Repeat) -> None:
        self.step = step
        self.needed: dict[Key, None] = {}
        self.written: dict[Key, None] = {}
        for statement in step.body:
            for turn in turns(statement.loops):
                self._element(statement, turn)
        ahead = step.times.step
        before = {key: (key[0], key[1] + ahead * key[2], key[2]) for key in self.needed}
        self.carried = {key: source for key, source in before.items() if source in self.written}

    def _element(self, statement: Statement, turn: Turn) -> None:
        read = [
            key_of(access, turn + inner)
            for term in statement.terms
            for access in term.expression.accesses()
            for inner in turns(term.loops)
        ]
        target = key_of(statement.target, turn)
        read += [target] if statement.accumulate else []
        self.needed |= dict.fromkeys(key for key in read if key not in self.written)
        self.written[target] = None

    @property
    def constant(self) -> list[Key]:
        """Elements that are the same at every turn: loaded before the loop."""
        return [key for key in self.needed if key[2] == 0 and key not in self.written]

    @property
    def replaced(self) -> set[Key]:
        """Elements that the next turn writes again, so that only the last turn needs to store them."""
        return {source for key, source in self.carried.items() if key in self.written}

    def is_written_before(self, key: Key) -> bool:
        """Whether some earlier turn writes an element that a turn needs."""
        array, place, move = key
        move *= self.step.times.step
        return any(
            other is array and (p == place if move == 0 else (p - place) % move == 0 < (p - place) // move)
            for other, p, _ in self.written
        )


class Small:
    """The small loops in time of a program, and the arrays that these alone need, which take no memory."""

    def __init__(self, program: ArrayProgram) -> None:
        self.flows = {step: Flow(step) for step in program.steps if isinstance(step, Repeat) and is_small(step)}
        self.zeros: dict[Repeat, set[Key]] = {}  # what is needed, and zero whenever it is
        self.zero_at_first: dict[Repeat, set[Key]] = {}  # what is carried, and zero at the first turn
        self.alone: set[Array] = set()
        if self.flows:
            self._find_zeros(program)
            self._find_alone(program)

    def _find_zeros(self, program: ArrayProgram) -> None:
        """What the loops need of arrays that were set to zero, and are so still."""
        wanted = {key[0] for flow in self.flows.values() for key in flow.needed}
        zero: dict[Array, np.ndarray] = {}  # the elements that are still zero
        for step in program.steps:
            if isinstance(step, Repeat) and (flow := self.flows.get(step)):
                self._note_zeros(flow, zero)
            for statement in step.body:
                array = statement.target.array
                if array in wanted and step is statement and is_zero(statement):
                    zero[array] = np.ones(array.size, dtype=bool)
                elif array in zero:
                    for time in step.times if statement.target.repeat else (0,):
                        zero[array][statement.target.positions(statement.loops, time)] = False

    def _note_zeros(self, flow: Flow, zero: Mapping[Array, np.ndarray]) -> None:
        times, among = np.array(flow.step.times), [key for key in flow.needed if key[0] in zero]
        self.zeros[flow.step] = {
            (array, place, move)
            for array, place, move in among
            if zero[array][place + move * times].all() and not flow.is_written_before((array, place, move))
        }
        self.zero_at_first[flow.step] = {
            (array, place, move) for array, place, move in among if zero[array][place + move * flow.step.times[0]]
        }

    def _find_alone(self, program: ArrayProgram) -> None:
        """The arrays that only one loop touches, but for zeros before it, and that it never loads."""
        known, where = {*program.leaves.values(), *program.results}, _touching(program)
        for step, flow in self.flows.items():
            zeros, first = self.zeros[step], self.zero_at_first[step]
            loaded = {k[0] for k in flow.needed if k not in (first if k in flow.carried else zeros)}
            written = {key[0] for key in flow.written}
            self.alone |= {a for a in written - loaded - known if where[a] == {step} and a.numbers is None}

    def without_needless(self, program: ArrayProgram) -> ArrayProgram:
        """The program without statements that zero arrays which take no memory."""
        steps = [step for step in program.steps if isinstance(step, Repeat) or step.target.array not in self.alone]
        found = ArrayProgram(steps, program.leaves, program.output)
        found.gradient = program.gradient
        return found


def _touching(program: ArrayProgram) -> dict[Array, set[Statement | Repeat]]:
    """The steps that touch an array, except those that set all of it to zero."""
    found: dict[Array, set[Statement | Repeat]] = defaultdict(set)
    for step in program.steps:
        for statement in step.body:
            if not (step is statement and is_zero(statement)):
                for access in (statement.target, *statement.accesses()):
                    found[access.array].add(step)
    return found


def is_small(step: Repeat) -> bool:
    """Whether a loop's body is mostly scalars, and moves each array that it writes by one distance per turn."""
    work = [prod(s.loops) * sum(prod(term.loops) for term in s.terms) for s in step.body]
    if sum(work) > min(MOST, FEW * len(step.body)):
        return False
    moves: dict[Array, set[int]] = defaultdict(set)
    for statement in step.body:
        for access in (statement.target, *statement.accesses()):
            moves[access.array].add(access.repeat)
    return all(len(moves[statement.target.array]) == 1 for statement in step.body)


def _function(statement: Statement) -> Apply | None:
    """The elementary function that a statement consists of, if it does and there is a kernel for lanes."""
    (term, *others), expression = statement.terms, statement.terms[0].expression
    plain = not (others or term.loops or term.sign < 0 or statement.accumulate)
    return expression if plain and isinstance(expression, Apply) and expression.op.name in KERNELS else None


class Loop:
    """Writes a small loop in time to the text of `registers`."""

    def __init__(self, registers: Registers, small: Small, step: Repeat) -> None:
        self.registers, self.step, self.flow = registers, step, small.flows[step]
        self.zeros, self.replaced = small.zeros[step], self.flow.replaced
        self.known: dict[Key, Register] = {}  # elements that are in registers at this turn
        self.time = str(step.times[0])
        zero, at_first = registers.register(0.0, 1), small.zero_at_first[step]
        start = [zero if key in at_first else self._load(key) for key in self.flow.carried]
        self.constant = {key: self._load(key) for key in self.flow.constant if key not in self.zeros}
        self._store_last(registers.loop(step.count, 1, start, self._turn))

    def _store_last(self, carried: list[Register]) -> None:
        """What each turn would have stored, and the next one over it."""
        self.time = str(self.step.times[-1])
        last = dict(zip(self.flow.carried.values(), carried, strict=True))
        for key in self.replaced:
            self._store(key, last[key])

    def _turn(self, index: str, carried: list[Register]) -> list[Register]:
        """All statements at one time, given what the turn before hands over; what it hands over itself."""
        self.time = self._time(index)
        self.known = self.constant | dict(zip(self.flow.carried, carried, strict=True))
        for statement in self.step.body:
            self._statement(statement)
        for key in self.flow.written:
            if key not in self.replaced:
                self._store(key, self.known[key])
        return [self.known[source] for source in self.flow.carried.values()]

    def _time(self, index: str) -> str:
        """The time of a turn, whose number is `index`."""
        last = self.step.count - 1
        if not self.step.backward:
            return index
        return str(last - int(index)) if index.isdigit() else self.registers.text.emit(f"sub nsw i64 {last}, {index}")

    def _statement(self, statement: Statement) -> None:
        """All elements; side by side if all there is to do is an elementary function."""
        every, function = list(turns(statement.loops)), _function(statement)
        if function is None or len(every) <= ALONE:
            for turn in every:
                self._element(statement, turn)
            return
        registers = self.registers
        given = [[registers.register(self._value(x, turn), 1) for turn in every] for x in function.operands]
        for start, stop, lanes in chunks(len(every), registers.target.lanes(registers.element.bytes)):
            for k in range(start, stop, lanes):
                vectors = tuple(registers.side_by_side(numbers[k : k + lanes], lanes) for numbers in given)
                results = registers.apart(registers.apply(function.op, vectors))
                self.known |= {key_of(statement.target, every[k + n]): result for n, result in enumerate(results)}

    def _element(self, statement: Statement, turn: Turn) -> None:
        """One element, which starts with its first summand if it is known to be zero."""
        apply, target = self.registers.apply, key_of(statement.target, turn)
        total = statement.joined((self._term(term, statement, turn) for term in statement.terms), apply)
        if statement.accumulate and (target in self.known or target not in self.zeros):
            total = apply(ops.add, (self._read(target), total))
        self.known[target] = self.registers.register(total, 1)

    def _term(self, term: Term, statement: Statement, turn: Turn) -> Any:
        """The value of a term: its terms joined, if it is a reduction."""
        values = (self._value(term.expression, turn + inner) for inner in turns(term.loops))
        return reduce(lambda a, b: self.registers.apply(statement.join, (a, b)), values)

    def _value(self, expression: Expression, turn: Turn) -> Any:
        return expression.evaluate(lambda access: self._read(key_of(access, turn)), self.registers.apply)

    def _read(self, key: Key) -> Register:
        """An element, from its register if it has one."""
        if key not in self.known:
            self.known[key] = self.registers.register(0.0, 1) if key in self.zeros else self._load(key)
        return self.known[key]

    def _load(self, key: Key) -> Register:
        return self.registers.load_from(self._place(key), 1)

    def _store(self, key: Key, value: Register) -> None:
        """Set an element in memory, if its array is there."""
        if key[0] in self.registers.offsets:
            self.registers.store_to(self._place(key), value)

    def _place(self, key: Key) -> str:
        """A pointer to an element at the present time."""
        array, place, move = key
        return self.registers.address(Access(array, place, (move,)), [self.time])
