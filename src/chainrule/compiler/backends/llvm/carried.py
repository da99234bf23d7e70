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
from itertools import chain, product
from math import prod
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.backends.llvm.blocks import EVERY, SLOW, in_blocks, moves_alike, primitives, work
from chainrule.compiler.backends.llvm.kernels import KERNELS
from chainrule.compiler.backends.llvm.nests import chunks
from chainrule.compiler.backends.llvm.registers import SHORT, Register, Registers
from chainrule.compiler.backends.llvm.stagger import scheduled, together
from chainrule.compiler.passes.differentiate import is_zero
from chainrule.compiler.passes.program import (
    Access,
    Array,
    ArrayProgram,
    Expression,
    Number,
    Repeat,
    Statement,
    Term,
)

MOST = 640  # elements that a body may compute, with the terms of its sums
FEW = 8  # of them per statement, on average: more are work for vectors
ALONE = 2  # elements of which the library computes an elementary function faster, one by one, than a kernel in lanes

WINDOW = 256  # elements, roughly, that a processor can have under way
TOGETHER = 3  # turns of a staggered loop that are one
LONG = 8  # additions, roughly, that take as long as a quotient, a root or an elementary function
Key = tuple[Array, int, int]  # an element: its array, its position at time 0, and how far it moves per time
Turn = tuple[int, ...]
Steps = Sequence[Statement | Repeat]


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
        self.written: dict[Key, int] = {}  # with the time that the processor takes until it is there, roughly
        for statement in step.body:
            latency = 1 if primitives(statement).isdisjoint(SLOW) else LONG
            for turn in turns(statement.loops):
                self._element(statement, turn, latency)
        ahead = step.times.step
        before = {key: (key[0], key[1] + ahead * key[2], key[2]) for key in self.needed if step.count > 1}
        self.carried = {key: source for key, source in before.items() if source in self.written}

    def _element(self, statement: Statement, turn: Turn, latency: int) -> None:
        read = [
            key_of(access, turn + inner)
            for term in statement.terms
            for access in term.expression.accesses()
            for inner in turns(term.loops)
        ]
        target = key_of(statement.target, turn)
        read += [target] if statement.accumulate else []
        self.needed |= dict.fromkeys(key for key in read if key not in self.written)
        self.written[target] = latency + max([self.written.get(key, 0) for key in read], default=0)

    @property
    def latency(self) -> int:
        """How long a turn takes from its beginning to its end, whatever is computed side by side."""
        return max(self.written.values())

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
    """The small loops in time of a program, and the arrays that these alone need, which take no memory.

    Blocks are among them, those in the bodies of large loops too: `parts` has the statements and blocks of such a loop.
    """

    def __init__(self, program: ArrayProgram) -> None:
        self.staggered: set[Repeat] = set()
        self.parts: dict[Repeat, Steps] = {}
        given, steps = set(program.steps), list[Statement | Repeat]()
        for step in in_blocks(program.steps):
            if isinstance(step, Repeat) and step in given:
                steps += self._staggered(step) if is_small(step) else self._in_parts(step)
            else:  # a statement or a block
                steps.append(step)
        self.program = program = program.with_steps(steps)
        loops = [step for step in steps if isinstance(step, Repeat)]
        inside = [part for parts in self.parts.values() for part in parts if isinstance(part, Repeat)]
        self.flows = {step: Flow(step) for step in (*loops, *inside) if step not in self.parts}
        self.zeros: dict[Repeat, set[Key]] = {step: set() for step in inside}  # what is needed, and zero whenever it is
        self.zero_at_first: dict[Repeat, set[Key]] = {step: set() for step in inside}  # what is carried, and zero then
        self.alone: set[Array] = set()
        if self.flows:
            self._find_zeros(program)
            self._find_alone(program)

    def _in_parts(self, step: Repeat) -> list[Repeat]:
        self.parts[step] = in_blocks(step.body, EVERY)
        return [step]

    def _staggered(self, step: Repeat) -> list[Repeat]:
        """The loop with several turns in one, if these are long and need not wait for each other's ends."""
        if step.count < 2 * TOGETHER or sum(map(work, step.body)) < WINDOW:
            return [step]
        *others, last = together(step, TOGETHER)
        if Flow(last).latency > TOGETHER * Flow(step).latency // 2:
            return [step]
        self.staggered.add(last)
        return [*others, last]

    def _find_zeros(self, program: ArrayProgram) -> None:
        """What the loops need of arrays that were set to zero, and are so still."""
        wanted = {key[0] for flow in self.flows.values() for key in flow.needed}
        zero: dict[Array, np.ndarray] = {}  # the elements that are still zero
        for step in program.steps:
            if isinstance(step, Repeat) and (flow := self.flows.get(step)):
                self._note_zeros(flow, zero)
            for statement in step.body:
                array = statement.target.array
                if array in wanted and step.count == 1 and is_zero(statement):
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
        known, where = {*program.leaves.values(), *program.results}, _touching(program, self.parts)
        for step, flow in self.flows.items():
            zeros, first = self.zeros[step], self.zero_at_first[step]
            loaded = {k[0] for k in flow.needed if k not in (first if k in flow.carried else zeros)}
            written = {key[0] for key in flow.written}
            self.alone |= {a for a in written - loaded - known if where[a] == {step} and a.numbers is None}

    def without_needless(self) -> ArrayProgram:
        """The program without statements that zero arrays which take no memory."""
        steps = self.program.steps
        kept = [step for step in steps if isinstance(step, Repeat) or step.target.array not in self.alone]
        return self.program.with_steps(kept)


def _touching(program: ArrayProgram, parts: Mapping[Repeat, Steps]) -> dict[Array, set[Statement | Repeat]]:
    """The steps, or parts of steps, that touch an array, except where all of it is set to zero."""
    found: dict[Array, set[Statement | Repeat]] = defaultdict(set)
    for step in program.steps:
        for part in parts.get(step, [step]) if isinstance(step, Repeat) else [step]:
            for statement in part.body:
                if not (step.count == 1 and is_zero(statement)):
                    for access in (statement.target, *statement.accesses()):
                        found[access.array].add(part)
    return found


def is_small(step: Repeat) -> bool:
    """Whether a loop's body is mostly scalars, and moves each array that it writes by one distance per turn."""
    return sum(map(work, step.body)) <= min(MOST, FEW * len(step.body)) and moves_alike(step.body)


def _is_for_lanes(statement: Statement) -> bool:
    """Whether a statement computes elementary functions, of so many elements that lanes are faster than the library."""
    if statement.accumulate or prod(statement.loops) <= ALONE or any(term.loops for term in statement.terms):
        return False
    return not primitives(statement).isdisjoint(KERNELS)


class Loop:
    """Writes a small loop in time to the text of `registers`; or a block, for the time `now` of the loop around it."""

    def __init__(self, registers: Registers, small: Small, step: Repeat, now: str = "0") -> None:
        self.registers, self.step, self.flow = registers, step, small.flows[step]
        self.zeros, self.replaced = small.zeros[step], self.flow.replaced
        self.is_staggered = step in small.staggered
        self.known: dict[Key, Register] = {}  # elements that are in registers at this turn
        self.time = now if step.count == 1 else str(step.times[0])
        zero, at_first = registers.register(0.0, 1), small.zero_at_first[step]
        start = [zero if key in at_first else self._load(key) for key in self.flow.carried]
        self.constant = {key: self._load(key) for key in self.flow.constant if key not in self.zeros}
        if step.count == 1:
            self._turn([])
        else:
            short = 1 if self.is_staggered else SHORT
            self._store_last(registers.loop(step.count, 1, start, self._turn_at, short))

    def _store_last(self, carried: list[Register]) -> None:
        """What each turn would have stored, and the next one over it."""
        self.time = str(self.step.times[-1])
        last = dict(zip(self.flow.carried.values(), carried, strict=True))
        for key in self.replaced:
            self._store(key, last[key])

    def _turn_at(self, index: str, carried: list[Register]) -> list[Register]:
        self.time = self._time(index)
        return self._turn(carried)

    def _turn(self, carried: list[Register]) -> list[Register]:
        """All statements at one time, given what the turn before hands over; what it hands over itself."""
        self.known = self.constant | dict(zip(self.flow.carried, carried, strict=True))
        lines, begin = self.registers.text.lines, len(self.registers.text.lines)
        for statement in self.step.body:
            self._statement(statement)
        if self.is_staggered:
            lines[begin:] = scheduled(lines[begin:])
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
        """All elements; side by side if there are elementary functions to compute."""
        every, registers = list(turns(statement.loops)), self.registers
        if not _is_for_lanes(statement):
            for turn in every:
                self._element(statement, turn)
            return
        for start, stop, lanes in chunks(len(every), registers.target.lanes(registers.element.bytes)):
            for k in range(start, stop, lanes):
                self._side_by_side(statement, every[k : k + lanes])

    def _side_by_side(self, statement: Statement, together: Sequence[Turn]) -> None:
        """Several elements as lanes."""
        registers, lanes = self.registers, len(together)

        def read(access: Access) -> Register:
            return registers.side_by_side([self._read(key_of(access, turn)) for turn in together], lanes)

        values = (term.expression.evaluate(read, registers.apply) for term in statement.terms)
        total = registers.register(statement.joined(values, registers.apply), lanes)
        self.known |= {key_of(statement.target, t): x for t, x in zip(together, registers.apart(total), strict=True)}

    def _element(self, statement: Statement, turn: Turn) -> None:
        """One element, which starts with its first summand if it is known to be zero."""
        apply, target = self.registers.apply, key_of(statement.target, turn)
        statement, start = self._with_start(statement, target)
        values = (self._term(term, statement, turn, start if k == 0 else ()) for k, term in enumerate(statement.terms))
        total = statement.joined(values, apply)
        if statement.accumulate and (target in self.known or target not in self.zeros):
            total = apply(ops.add, (self._read(target), total))
        self.known[target] = self.registers.register(total, 1)

    def _with_start(self, statement: Statement, target: Key) -> tuple[Statement, tuple[Any, ...]]:
        """The statement without what its first sum can start with, and that; to add it in the end would take longer.

        It is a number, or what this turn has set the target to. What other turns have is better added in the end: the
        next turn waits for it.
        """
        first, *others = statement.terms
        number, before = first.expression, not first.loops and first.sign > 0
        if isinstance(number, Number) and before and others and others[0].loops and others[0].sign > 0:
            return statement.with_terms(others), (number.value,)
        own = statement.accumulate and target in self.known and target not in self.flow.needed
        if own and statement.join is ops.add and first.loops and first.sign > 0:
            return Statement(statement.target, statement.loops, statement.terms), (self.known[target],)
        return statement, ()

    def _term(self, term: Term, statement: Statement, turn: Turn, start: tuple[Any, ...]) -> Any:
        """The value of a term: its terms joined, if it is a reduction, with what it starts with."""
        values = (self._value(term.expression, turn + inner) for inner in turns(term.loops))
        return reduce(lambda a, b: self.registers.apply(statement.join, (a, b)), chain(start, values))

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
