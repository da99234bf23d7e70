"""Parameters that are used in parts become arrays of their own, and with them their gradient and an optimizer's slots.

i<50: v0[i] = parameter[784+785i]           i<50: v0[i] = parameter1[i] + Σj<784 parameter0[784i+j]·input[j]
              + Σj<784 parameter[785i+j]·input[j]
i<39250: parameter[i] = parameter[i]        i<39200: parameter0[i] = parameter0[i] - scalars[0]·dparameter0[i]
              - scalars[0]·dparameter[i]    i<50: parameter1[i] = parameter1[i] - scalars[0]·dparameter1[i]

A row of parameters holds the weights of a neuron and its bias. A backend that multiplies whole matrices would take the
weights out of their rows before every product, and put the gradients together again. With parts, training steps do this
before the first step and after the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from chainrule.compiler.passes.program import (
    Access,
    Array,
    ArrayProgram,
    Repeat,
    Shape,
    Statement,
    Term,
    row_major,
    span,
)

NOWHERE = Array("nowhere", 1, "value")  # the target of a term by itself
MOST_PARTS = 32  # each is a statement of its own in whatever goes through all parameters


class Part(NamedTuple):
    """Elements of an array on a grid: the first, and for each axis the distance of neighbours and their number."""

    first: int
    axes: tuple[tuple[int, int], ...]

    @classmethod
    def between(cls, start: int, stop: int) -> Part:
        """All elements from one to another."""
        return cls(start, ((1, stop - start),))

    @property
    def shape(self) -> Shape:
        return tuple([extent for _, extent in self.axes])

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple([stride for stride, _ in self.axes])

    @property
    def is_run(self) -> bool:
        """Whether its elements are neighbours."""
        return self.end - self.first == self.size

    @property
    def end(self) -> int:
        """Behind the last element."""
        return self.first + sum(stride * (extent - 1) for stride, extent in self.axes) + 1

    def positions(self) -> np.ndarray:
        """Where its elements lie, in the order in which they will lie in an array of their own."""
        grid = np.full(self.shape, self.first)
        for axis, (stride, extent) in enumerate(self.axes):
            grid = grid + stride * np.arange(extent).reshape([-1 if d == axis else 1 for d in range(len(self.axes))])
        return grid.ravel()


class Partition(NamedTuple):
    """A `program` on parts, with what takes the leaves apart `before` it, and puts arrays together `after` it.

    `parts` are those of each array that was taken apart.
    """

    before: list[Statement]
    program: ArrayProgram
    after: list[Statement]
    parts: dict[Array, list[Array]]

    def whole(self, leaves: dict[str, Array]) -> ArrayProgram:
        """The three as one program on the leaves of the original, which computes what that computes."""
        found = ArrayProgram([*self.before, *self.program.steps, *self.after], leaves, self.program.output)
        found.gradient = self.program.gradient
        return found


def partition(program: ArrayProgram) -> Partition:
    """The program on parts of its parameters, and of what is updated with them, if it uses them in parts."""
    members = _members(program)
    parts = _parts(program, members) if members else []
    if len(parts) < 2:
        return Partition([], program, [], {})
    own = {
        array: [Array(f"{array.name}{k}", part.size, array.kind) for k, part in enumerate(parts)] for array in members
    }
    apart = _Apart(parts, own, members[0].size)
    steps: list[Statement | Repeat] = []
    for step in program.steps:
        body = [new for statement in step.body for new in apart.statements(statement)]
        steps += [step.with_body(body)] if isinstance(step, Repeat) else body
    found = program.with_steps(steps, _leaves(program, own))
    before = apart.copies(array for array in members if array in program.leaves.values())
    written = {statement.target.array for statement in program.statements}
    after = apart.copies((array for array in members if array in written), back=True)
    return Partition(before, found, after, own)


def _leaves(program: ArrayProgram, own: Mapping[Array, Sequence[Array]]) -> dict[str, Array]:
    """The leaves, with parts in place of those that were taken apart."""
    found: dict[str, Array] = {}
    for kind, array in program.leaves.items():
        found |= {each.name: each for each in own[array]} if array in own else {kind: array}
    return found


def _members(program: ArrayProgram) -> list[Array]:
    """The parameters, their gradient, and the leaves that are updated with them."""
    parameters = program.leaves.get("parameter")
    if parameters is None or any(array.examples for array in program.results if array is program.gradient):
        return []
    written = {statement.target.array for statement in program.statements}
    slots = [leaf for leaf in program.leaves.values() if leaf in written and leaf.size == parameters.size]
    gradient = [] if program.gradient is None else [program.gradient]
    return list(dict.fromkeys([parameters, *gradient, *slots]))


# Which parts there are. Elements that are accessed together, along loops, are one; elements of which some are accessed
# in one way and some in another are a part with all that lies between them.


def _parts(program: ArrayProgram, members: Sequence[Array]) -> list[Part]:
    """Disjoint parts of the members such that every access is to one of them, or sweeps over all."""
    size = members[0].size
    uses = list(_uses(program, members))
    wanted = {_footprint(access, loops, count) for access, loops, count in uses}
    while len(wanted) <= MOST_PARTS:
        merged = _first_conflict(wanted, size) or _first_irregular(wanted, uses, size)
        if merged is None:
            found = sorted(_largest(wanted, size) | _gaps(wanted, size))
            return found if len(found) <= MOST_PARTS else []
        wanted = {part for part in wanted if part.first < merged.first or merged.end < part.end} | {merged}
    return []


def _uses(program: ArrayProgram, members: Sequence[Array]) -> Iterator[tuple[Access, Shape, int]]:
    """The accesses to members that do not sweep over all elements, with their loops and times."""
    for step in program.steps:
        for statement in step.body:
            sweeps = _sweeps(statement, members)
            for access, loops in statement.accesses_in_loops():
                if access.array in members and access not in sweeps:
                    yield access, loops, step.count


def _footprint(access: Access, loops: Shape, count: int) -> Part:
    """The elements that are accessed; all that lie between them if they are not a grid."""
    between = Part.between(*span(access, loops, count))
    if access.table is not None or access.repeat:
        return between
    moves = sorted(((abs(s), n) for s, n in zip(access.strides, loops, strict=True) if s and n > 1), reverse=True)
    if any(inner * extent > outer for (outer, _), (inner, extent) in pairwise(moves)):
        return between
    axes: list[tuple[int, int]] = []
    for stride, extent in moves:
        if axes and axes[-1][0] == stride * extent:  # a row after another
            axes[-1] = stride, axes[-1][1] * extent
        else:
            axes.append((stride, extent))
    return Part(between.first, tuple(axes) or ((1, 1),))


def _first_conflict(wanted: set[Part], size: int) -> Part | None:
    """All between two parts of which each has elements of the other and of its own."""
    owner: list[Part] = []
    places = np.full(size, -1)
    for part in sorted(wanted, key=lambda part: (-part.size, part)):
        positions = part.positions()
        others = set(places[positions].tolist())
        if others == {-1}:
            places[positions] = len(owner)
            owner.append(part)
        elif len(others) > 1:
            met = [part, *(owner[k] for k in others if k >= 0)]
            return Part.between(min(each.first for each in met), max(each.end for each in met))
    return None


def _first_irregular(wanted: set[Part], uses: Sequence[tuple[Access, Shape, int]], size: int) -> Part | None:
    """All between the elements of a part in whose order an access does not go along loops."""
    apart = _Places(sorted(_largest(wanted, size)), size)
    for access, loops, _ in uses:
        if apart.moved(access, loops, access.array) is None:
            part = apart.part_of(access, loops)
            return Part.between(part.first, part.end)
    return None


def _largest(wanted: set[Part], size: int) -> set[Part]:
    """The parts that lie in no other."""
    free = np.full(size, True)
    found = set()
    for part in sorted(wanted, key=lambda part: (-part.size, part)):
        positions = part.positions()
        if free[positions].all():
            free[positions] = False
            found.add(part)
    return found


def _gaps(wanted: set[Part], size: int) -> set[Part]:
    """What is left, in runs of neighbours."""
    free = np.full(size + 2, False)
    free[1:-1] = True
    for part in wanted:
        free[1 + part.positions()] = False
    starts, stops = [np.flatnonzero(free[1:] & ~free[:-1]), np.flatnonzero(free[:-1] & ~free[1:])]
    return {Part.between(start, stop) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)}


class _Places:
    """Where each element of an array will be: in which part, and where in it."""

    def __init__(self, parts: Sequence[Part], size: int) -> None:
        self.parts = parts
        self.owner = np.full(size, -1)
        self.place = np.full(size, -1)
        for k, part in enumerate(parts):
            positions = part.positions()
            self.owner[positions] = k
            self.place[positions] = np.arange(part.size)

    def part_of(self, access: Access, loops: Shape) -> Part:
        """The part that an access is to."""
        return self.parts[int(self.owner[span(access, loops)[0]])]

    def moved(self, access: Access, loops: Shape, array: Array) -> Access | None:
        """The same elements of an `array` for their part; None if they do not lie along loops there."""
        part = self.part_of(access, loops)
        if part.is_run:
            table = None if access.table is None else np.asarray(access.table) - part.first
            base = access.base if table is not None else access.base - part.first
            return Access(array, base, access.strides, table, access.repeat)
        if access.table is not None or access.repeat:
            return None
        extents = tuple([n if stride else 1 for stride, n in zip(access.strides, loops, strict=True)])
        places = self.place[access.positions(extents)]
        strides = [int(places.take(1, d).flat[0] - places.flat[0]) if n > 1 else 0 for d, n in enumerate(extents)]
        found = Access(array, int(places.flat[0]), strides)
        return found if (found.positions(extents) == places).all() else None


# Statements on parts. A loop that goes through a whole member becomes a loop for each part.


def _sweeps(statement: Statement, members: Container[Array]) -> dict[Access, int]:
    """The accesses that go through a whole member, and the loop in which each does; none if one is in the way."""
    found: dict[Access, int] = {}
    for access, loops in statement.accesses_in_loops():
        moving = [d for d, stride in enumerate(access.strides) if stride]
        if access.array in members and len(moving) == 1 and _is_sweep(access, loops[moving[0]], moving[0]):
            found[access] = moving[0]
    outer = len(statement.loops)
    whole = [statement.target, *statement.accesses()]
    of_terms = [list(term.expression.accesses()) for term in statement.terms]
    for access, loop in found.items():
        beside = whole if loop < outer else next(own for own in of_terms if access in own)
        if any(_is_in_the_way(other, loop, members) for other in beside if other not in found):
            return {}
    return found


def _is_in_the_way(access: Access, loop: int, members: Container[Array]) -> bool:
    """Whether it moves with a loop that is taken apart, and is an access to a member or has a table."""
    moves = loop < len(access.strides) and bool(access.strides[loop])
    return moves and (access.array in members or access.table is not None)


def _is_sweep(access: Access, extent: int, loop: int) -> bool:
    plain = access.table is None and not access.repeat and not access.base
    return plain and access.strides[loop] == 1 and extent == access.array.size


class _Apart:
    """Takes statements apart."""

    def __init__(self, parts: Sequence[Part], own: Mapping[Array, Sequence[Array]], size: int) -> None:
        self.parts = parts
        self.own = own
        self.places = _Places(parts, size)

    def copies(self, arrays: Iterable[Array], back: bool = False) -> list[Statement]:
        """Statements that copy arrays to their parts, or `back`."""
        found = []
        for array in arrays:
            for part, own in zip(self.parts, self.own[array], strict=True):
                there, here = Access(array, part.first, part.strides), Access(own, 0, row_major(part.shape))
                target, source = (there, here) if back else (here, there)
                found.append(Statement(target, part.shape, [Term(source)]))
        return found

    def statements(self, statement: Statement) -> Iterator[Statement]:
        """The same on parts: one statement, or one for each part if its loops go through all of them."""
        loops, sweeps = statement.loops, _sweeps(statement, self.own)
        loop = next((loop for loop in sweeps.values() if loop < len(loops)), None)
        if loop is not None:
            accesses = [statement.target, *statement.accesses()]
            for shape, change in self._for_each(loop, accesses, sweeps):
                new = statement.map(change)
                around = loops[:loop] + shape + loops[loop + 1 :]
                yield from self.statements(Statement(new.target, around, new.terms, new.accumulate, new.join))
            return
        terms = [each for term in statement.terms for each in self._terms(term, loops, sweeps)]
        target = self._moved(statement.target, loops)
        yield Statement(target, loops, terms, statement.accumulate, statement.join)

    def _terms(self, term: Term, outer: Shape, sweeps: Mapping[Access, int]) -> Iterator[Term]:
        """The same on parts: one term, or one for each part if it is a sum over all of them."""
        accesses = list(term.expression.accesses())
        loops = outer + term.loops
        swept = {access: sweeps[access] for access in accesses if access in sweeps}
        if not swept:
            yield Term(term.expression.map(lambda access: self._moved(access, loops)), term.loops, term.sign)
            return
        loop = next(iter(swept.values()))
        for shape, change in self._for_each(loop, accesses, swept):
            inner = (loops[:loop] + shape + loops[loop + 1 :])[len(outer) :]
            new = Term(term.expression.map(change), inner, term.sign)
            left = _sweeps(Statement(Access(NOWHERE, 0, (0,) * len(outer)), outer, [new]), self.own)
            yield from self._terms(new, outer, left)

    def _for_each(
        self, loop: int, accesses: Sequence[Access], sweeps: Mapping[Access, int]
    ) -> Iterator[tuple[Shape, Callable[[Access], Access]]]:
        """For each part the loops that take the place of one, and what becomes of an access in them."""
        alone = all(access in sweeps for access in accesses if access.strides[loop])
        for k, part in enumerate(self.parts):
            shape = (part.size,) if alone else part.shape

            def change(access: Access, k: int = k, part: Part = part, shape: Shape = shape) -> Access:
                stride = access.strides[loop]
                before, after = access.strides[:loop], access.strides[loop + 1 :]
                if sweeps.get(access) == loop:
                    return Access(self.own[access.array][k], 0, (*before, *row_major(shape), *after))
                inner = [stride * step for step in part.strides] if stride else [0] * len(shape)
                base = access.base + stride * part.first
                return Access(access.array, base, (*before, *inner, *after), access.table, access.repeat)

            yield shape, change

    def _moved(self, access: Access, loops: Shape) -> Access:
        """The same element in its part."""
        if access.array not in self.own:
            return access
        own = self.own[access.array][self.parts.index(self.places.part_of(access, loops))]
        moved = self.places.moved(access, loops, own)
        assert moved is not None, f"{access} does not go through its part along loops"
        return moved
