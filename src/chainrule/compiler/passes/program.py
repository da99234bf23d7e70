"""The array program: what the compiler finds. Arrays of numbers, and statements that fill them in loops.

h[100,16] = b[16] + Σk w[16,k]·x[100,k]

repeat r<1000:  # a recurrence: statements in order, once per time r, on rows of arrays that move with r
  h[1+r] = tanh(v[r])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from math import prod
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.naming import name_of

Shape = tuple[int, ...]
ApplyOp = Callable[[ops.Op, tuple[Any, ...]], Any]  # on any kind of number
LETTERS = "ijklmnuvw"  # of the loops, outermost first; r is the time in a Repeat
NOTHING = -0.0  # what a sum starts with: unlike 0.0 it leaves every number unchanged, -0.0 too


class Array:
    """A run of numbers. `kind` is a kind of leaf, "value", "adjoint", "mask" or "reached".

    Constants and masks have `numbers`; a "mask" is that of a ragged sum, and what is "reached" is that of derivatives.
    In a program for many `examples`, an array has numbers for each of them; if there are none, the same for all. No
    gradient flows to a `silent` one.
    """

    silent = False

    def __init__(self, name: str, size: int, kind: str, numbers: Any = None, examples: int = 0) -> None:
        self.name = name
        self.size = size
        self.kind = kind
        self.numbers = numbers
        self.examples = examples
        self.names: Sequence[str] = ()  # of its elements, if they have names

    def named(self, names: Sequence[str]) -> Array:
        """A copy of this array with names for its elements."""
        array = Array(self.name, self.size, self.kind, self.numbers, self.examples)
        array.names = names
        return array

    def __repr__(self) -> str:
        return f"{self.name}[{self.size}]"


class Expression(ops.Carrier):
    """Arithmetic on array elements. The rules of the op table run on it as they do on numbers."""

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Expression:
        given = tuple(o if isinstance(o, Expression) else Number(float(o)) for o in operands)
        numbers = [operand.value for operand in given if isinstance(operand, Number)]
        return Apply(op, given) if len(numbers) < len(given) else Number(float(op(*numbers)))

    def accesses(self) -> Iterator[Access]:
        """The array elements that are read, from left to right."""
        return iter(())

    def map(self, change: Callable[[Access], Access]) -> Expression:
        """The same expression with every access changed."""
        return self

    def evaluate(self, read: Callable[[Access], Any], apply: ApplyOp, number: Callable[[float], Any] = float) -> Any:
        """The value in a backend's kind of numbers, which reads elements and applies ops."""
        raise NotImplementedError

    def show(self, loops: Shape) -> str:
        """Readable text, inside loops of these extents."""
        return repr(self)


class Number(Expression):
    """A number that the compiler knows."""

    def __init__(self, value: float) -> None:
        self.value = value

    def evaluate(self, read: Callable[[Access], Any], apply: ApplyOp, number: Callable[[float], Any] = float) -> Any:
        return number(self.value)

    def __repr__(self) -> str:
        return f"{self.value:g}"


class Access(Expression):
    """An element of an array: `base + Σ stride·index`, or `table[that]` if there is a table; plus `repeat·r`."""

    def __init__(self, array: Array, base: int, strides: Sequence[int], table: Any = None, repeat: int = 0) -> None:
        self.array = array
        self.base = int(base)
        self.strides = tuple(map(int, strides))
        self.table = table
        self.repeat = int(repeat)  # how far the element moves from one time of a Repeat to the next

    def accesses(self) -> Iterator[Access]:
        yield self

    def map(self, change: Callable[[Access], Access]) -> Expression:
        return change(self)

    def evaluate(self, read: Callable[[Access], Any], apply: ApplyOp, number: Callable[[float], Any] = float) -> Any:
        return read(self)

    def widened(self, loops: int) -> Access:
        """The same element inside `loops` more loops, which do not move it."""
        return self.with_strides(self.strides + (0,) * loops)

    def with_strides(self, strides: Sequence[int]) -> Access:
        return Access(self.array, self.base, strides, self.table, self.repeat)

    def positions(self, loops: Shape, time: int = 0) -> Any:
        """The positions in the array that the turns of the loops access."""
        index = np.full(loops, self.base, dtype=np.int64)
        for d, (stride, extent) in enumerate(zip(self.strides, loops, strict=True)):
            index = index + stride * np.arange(extent).reshape([-1 if k == d else 1 for k in range(len(loops))])
        return (index if self.table is None else np.asarray(self.table)[index]) + self.repeat * time

    def show(self, loops: Shape) -> str:
        if self.array.names and self.table is None and not self.repeat:
            name = name_of(self.array.names, self.base, list(zip(self.strides, loops, LETTERS, strict=False)))
            if name:
                return name
        return repr(self)

    def __repr__(self) -> str:
        moves = list(zip(self.strides, LETTERS, strict=False))
        if self.table is not None:
            moves, inner = [(self.repeat, "r")], f"table[{_affine(self.base, moves)}]"
            return f"{self.array.name}[{inner}{_affine(0, moves, signed=True)}]"
        return f"{self.array.name}[{_affine(self.base, [(self.repeat, 'r'), *moves])}]"


def _affine(base: int, moves: Sequence[tuple[int, str]], signed: bool = False) -> str:
    """`base + Σ stride·letter` without zeros; `signed` text continues a sum, and may be empty."""
    parts = [(f"{stride:+}" if abs(stride) != 1 else f"{stride:+}"[0]) + letter for stride, letter in moves if stride]
    if base or not (parts or signed):
        parts.insert(0, f"{base:+}")
    text = "".join(parts)
    return text if signed else text.removeprefix("+")


class Apply(Expression):
    """An op applied to expressions."""

    def __init__(self, op: ops.Op, operands: tuple[Expression, ...]) -> None:
        self.op = op
        self.operands = operands

    def accesses(self) -> Iterator[Access]:
        for operand in self.operands:
            yield from operand.accesses()

    def map(self, change: Callable[[Access], Access]) -> Expression:
        return Apply(self.op, tuple(operand.map(change) for operand in self.operands))

    def evaluate(self, read: Callable[[Access], Any], apply: ApplyOp, number: Callable[[float], Any] = float) -> Any:
        return apply(self.op, tuple([operand.evaluate(read, apply, number) for operand in self.operands]))

    def show(self, loops: Shape) -> str:
        shown = [operand.show(loops) for operand in self.operands]
        if self.op.symbol.isidentifier() or len(shown) != 2:
            return f"{self.op.symbol}({', '.join(shown)})"
        pairs = zip(shown, self.operands, strict=True)
        left, right = [f"({text})" if isinstance(operand, Apply) else text for text, operand in pairs]
        return f"{left}{'·' if self.op is ops.mul else f' {self.op.symbol} '}{right}"

    def __repr__(self) -> str:
        return self.show(())


class Term:
    """`sign · Σ expression` over reduction loops of the given extents, or without loops `sign · expression`."""

    def __init__(self, expression: Expression, loops: Shape = (), sign: int = 1) -> None:
        self.expression = expression
        self.loops = loops
        self.sign = sign


class Statement:
    """`target = Σ terms`, or `target += Σ terms`, for every turn of the loops.

    Or `target = max terms`: `join`, the op `add` or `larger`, combines the terms, and the turns of a term's reduction.
    Like a `Repeat`, it has a body, which is itself, and times, of which there is one.
    """

    count, times = 1, range(1)

    def __init__(
        self, target: Access, loops: Shape, terms: Sequence[Term], accumulate: bool = False, join: ops.Op = ops.add
    ) -> None:
        self.target = target
        self.loops = loops
        self.terms = tuple(terms)
        self.accumulate = accumulate
        self.join = join

    def with_terms(self, terms: Sequence[Term]) -> Statement:
        return Statement(self.target, self.loops, terms, self.accumulate, self.join)

    def accesses(self) -> Iterator[Access]:
        """The array elements that the terms read."""
        for term in self.terms:
            yield from term.expression.accesses()

    def accesses_in_loops(self) -> Iterator[tuple[Access, Shape]]:
        """The target and what the terms read, each with the loops around it."""
        yield self.target, self.loops
        for term in self.terms:
            yield from ((access, self.loops + term.loops) for access in term.expression.accesses())

    def map(self, change: Callable[[Access], Access]) -> Statement:
        """The same statement with every access changed, including the target."""
        terms = [Term(term.expression.map(change), term.loops, term.sign) for term in self.terms]
        return Statement(change(self.target), self.loops, terms, self.accumulate, self.join)

    def joined(self, values: Iterator[Any], apply: ApplyOp) -> Any:
        """The sum of the terms, or the largest of them, from their values."""
        first, *others = self.terms
        total = next(values) if first.sign > 0 else apply(ops.neg, (next(values),))
        for term, value in zip(others, values, strict=True):
            total = apply(self.join if term.sign > 0 else ops.sub, (total, value))
        return total

    @property
    def body(self) -> tuple[Statement]:
        return (self,)

    @property
    def affine(self) -> bool:
        """Whether no access needs a table."""
        return self.target.table is None and all(access.table is None for access in self.accesses())

    def shown_terms(self) -> list[str]:
        """The terms as readable text, with their signs."""
        parts: list[str] = []
        sums = self.join is ops.add
        for term in self.terms:
            inner = range(len(self.loops), len(self.loops) + len(term.loops))
            op = "Σ" if sums else "max "
            sigma = "".join(f"{op}{LETTERS[d]}<{n} " for d, n in zip(inner, term.loops, strict=True))
            sign = "- " if term.sign < 0 else "" if not parts else "+ " if sums else "max "
            parts.append(sign + sigma + term.expression.show(self.loops + term.loops))
        return parts

    def __repr__(self) -> str:
        nest = ",".join(f"{LETTERS[d]}<{n}" for d, n in enumerate(self.loops))
        target, equals = self.target.show(self.loops), "+=" if self.accumulate else "="
        return f"{nest + ': ' if nest else ''}{target} {equals} {' '.join(self.shown_terms())}"


class Repeat:
    """Statements in order, for times r = 0, 1, …, count - 1; if `backward`, for r = count - 1, …, 1, 0."""

    def __init__(self, count: int, body: Sequence[Statement], backward: bool = False) -> None:
        self.count = count
        self.body = tuple(body)
        self.backward = backward

    @property
    def times(self) -> range:
        """The values of r, in order."""
        return range(self.count - 1, -1, -1) if self.backward else range(self.count)

    def with_body(self, body: Sequence[Statement]) -> Repeat:
        return Repeat(self.count, body, self.backward)

    def __repr__(self) -> str:
        head = f"repeat r<{self.count}{', backward' if self.backward else ''}:"
        return "\n".join([head, *(f"  {statement}" for statement in self.body)])


class ArrayProgram:
    """Steps in order. `output` is the array of the result; `gradient`, if any, has one element per parameter."""

    def __init__(self, steps: Sequence[Statement | Repeat], leaves: dict[str, Array], output: Array) -> None:
        self.steps = list(steps)
        self.leaves = leaves  # kind -> array
        self.output = output
        self.gradient: Array | None = None
        self.nodes = 0  # of the graph that it was lifted from, where that counts

    @property
    def statements(self) -> list[Statement]:
        """Every statement in order; those in a Repeat once."""
        return [statement for step in self.steps for statement in step.body]

    @property
    def has_time(self) -> bool:
        """Whether there are loops in time."""
        return any(isinstance(step, Repeat) for step in self.steps)

    @property
    def results(self) -> list[Array]:
        """The array of the result, and that of the gradient if there is one."""
        return [self.output] if self.gradient is None else [self.output, self.gradient]

    def arrays(self) -> list[Array]:
        """Every array that is read or written, in order of appearance."""
        seen: dict[Array, None] = dict.fromkeys(self.leaves.values())
        for statement in self.statements:
            seen.update(dict.fromkeys(access.array for access in statement.accesses()))
            seen[statement.target.array] = None
        return list(seen)

    def with_steps(self, steps: Sequence[Statement | Repeat], leaves: dict[str, Array] | None = None) -> ArrayProgram:
        """Other steps with the same results, and the same leaves unless others are given."""
        found = ArrayProgram(steps, self.leaves if leaves is None else leaves, self.output)
        found.gradient = self.gradient
        return found

    def rewritten(self, change: Callable[[Statement], Statement], arrays: Mapping[Array, Array]) -> ArrayProgram:
        """The same steps with every statement changed, and with other arrays for some of the leaves and results."""
        steps = changed(self.steps, change)
        leaves = {kind: arrays.get(array, array) for kind, array in self.leaves.items()}
        found = ArrayProgram(steps, leaves, arrays.get(self.output, self.output))
        found.gradient = arrays.get(self.gradient, self.gradient) if self.gradient else None
        return found

    def with_arrays(self, arrays: Mapping[Array, Array]) -> ArrayProgram:
        """The same program, with other arrays in place of these."""

        def change(access: Access) -> Access:
            array = arrays.get(access.array, access.array)
            return Access(array, access.base, access.strides, access.table, access.repeat)

        return self.rewritten(lambda statement: statement.map(change), arrays)

    def named(self, names: Mapping[Array, Sequence[str]]) -> ArrayProgram:
        """The same program, with names for the elements of these arrays."""
        return self.with_arrays({array: array.named(names[array]) for array in names})

    def verify(self) -> ArrayProgram:
        """This program, if it is well formed: accesses stay inside their arrays, and reads follow writes."""
        known = ("parameter", "input", "captured", "constant", "mask", "reached")
        written = {array: np.full(array.size, array.kind in known) for array in self.arrays()}
        for step in self.steps:
            for statement in step.body:
                for access, loops in statement.accesses_in_loops():
                    _check_access(access, loops, step.count, statement)
            for time in step.times:
                for statement in step.body:
                    _check_order(statement, time, written)
        return self

    def __str__(self) -> str:
        return "\n".join(map(repr, self.steps))


def _check_access(access: Access, loops: Shape, count: int, statement: Statement) -> None:
    if len(access.strides) != len(loops):
        raise AssertionError(f"{access} has {len(access.strides)} strides in {len(loops)} loops: {statement}")
    low, high = _reach(access.base, access.base, zip(access.strides, loops, strict=True))
    if access.table is not None:
        if low < 0 or high >= len(access.table):
            raise AssertionError(f"{access} leaves its table: {statement}")
        low, high = int(min(access.table)), int(max(access.table))
    low, high = _reach(low, high, [(access.repeat, count)])
    if low < 0 or high >= access.array.size:
        raise AssertionError(f"{access} reaches {low} to {high} of {access.array}: {statement}")


def _reach(low: int, high: int, moves: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The lowest and highest position that loops of (stride, extent) reach."""
    ends = [stride * (extent - 1) for stride, extent in moves]
    return low + sum(end for end in ends if end < 0), high + sum(end for end in ends if end > 0)


def span(access: Access, loops: Shape, count: int = 1) -> tuple[int, int]:
    """Where the part of the array begins and ends that an access touches, at the times 0 to `count` - 1."""
    if access.table is None:
        low, high = _reach(access.base, access.base, zip(access.strides, loops, strict=True))
    else:
        places = access.positions(loops)
        low, high = int(places.min()), int(places.max())
    low, high = _reach(low, high, [(access.repeat, count)])
    return low, high + 1


def _check_order(statement: Statement, time: int, written: dict[Array, Any]) -> None:
    (target, loops), *reads = statement.accesses_in_loops()
    for access, around in reads:
        if not written[access.array][access.positions(around, time)].all():
            raise AssertionError(f"{access.array} is read before it is written: {statement}")
    places = target.positions(loops, time)
    if statement.accumulate and not written[target.array][places].all():
        raise AssertionError(f"{target.array} is added to before it is written: {statement}")
    written[target.array][places] = True


def changed(steps: Sequence[Statement | Repeat], change: Callable[[Statement], Statement]) -> list[Statement | Repeat]:
    """The same steps with every statement changed."""
    return [
        step.with_body([change(statement) for statement in step.body]) if isinstance(step, Repeat) else change(step)
        for step in steps
    ]


def counterparts(
    arrays: Iterable[Array], letter: str, kind: str, statements: Sequence[Statement]
) -> dict[Array, Array]:
    """For each array one of its size, named after it with a `letter` in front; no statement writes one of that name."""
    taken = {statement.target.array.name for statement in statements}
    return {
        array: Array(unused_name(letter + array.name, taken), array.size, kind, examples=array.examples)
        for array in arrays
    }


def unused_name(name: str, taken: set[str]) -> str:
    """The name, or the name with a number if it is `taken`; it is taken afterwards."""
    numbered = (f"{name}_{k}" for k in count(2))
    found = next(each for each in chain([name], numbered) if each not in taken)
    taken.add(found)
    return found


def row_major(shape: Shape) -> tuple[int, ...]:
    """The strides of an array of this shape whose last axis is contiguous.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[k + 1 :]) for k in range(len(shape)))


def without_still_axes(numbers: Any, first: int = 0) -> tuple[np.ndarray, list[int]]:
    """Numbers without the axes along which they do not change, from the `first` on, and the strides of all axes.

    >>> without_still_axes([[1.0, 2.0], [1.0, 2.0]])
    (array([1., 2.]), [0, 1])
    """
    bits = np.asarray(numbers, dtype=np.float64).view(np.int64)  # so that -0.0 differs from 0.0, and NaN equals NaN
    for axis in range(first, bits.ndim):
        start = bits.take([0], axis=axis)
        if (bits == start).all():
            bits = start
    strides = [stride if n > 1 else 0 for stride, n in zip(row_major(bits.shape), bits.shape, strict=True)]
    return bits.reshape(-1).view(np.float64), strides


def access_to(array: Array, places: np.ndarray, loops: Shape) -> Access:
    """The access to these positions, by a table if no strides in the loops say where they are.

    >>> access_to(Array("v", 9, "value"), np.array([1, 2, 4, 5]), (2, 2))
    v[1+3i+j]
    """
    steps = [step if n > 1 else 0 for step, n in zip(row_major(loops), loops, strict=True)]
    found = places.reshape(-1)
    affine = Access(array, found[0], [found[step] - found[0] for step in steps])
    if (affine.positions(loops).reshape(-1) == found).all():
        return affine
    return Access(array, 0, row_major(loops), found)


def dependents(
    statements: Sequence[Statement],
    sources: Iterable[Array],
    reads: Callable[[Statement], Iterable[Access]] = Statement.accesses,
) -> dict[Array, None]:
    """The sources and every array that depends on one, if only in part, through the accesses that `reads` names."""
    found = dict.fromkeys(sources)
    before = -1
    while len(found) != before:  # again, because a Repeat reads what it writes later
        before = len(found)
        for statement in statements:
            if any(access.array in found for access in reads(statement)):
                found[statement.target.array] = None
    return found


def is_injective(statement: Statement) -> bool:
    """Whether every turn of the loops writes a different element."""
    table = statement.target.table
    if table is not None and len(set(table.tolist())) < len(table):
        return False
    reach = 0
    for stride, extent in sorted(zip(map(abs, statement.target.strides), statement.loops, strict=True)):
        if extent > 1 and stride <= reach:
            return False
        reach += stride * (extent - 1)
    return True


def unmasked(expression: Expression) -> tuple[Access | None, Expression]:
    """The mask of a term in a ragged sum, and the expression that it masks."""
    if isinstance(expression, Apply) and expression.op is ops.where:
        mask, term, _ = expression.operands
        if isinstance(mask, Access) and mask.array.kind == "mask":
            return mask, term
    return None, expression
