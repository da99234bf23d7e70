"""Layout: where the elements of each array lie in memory.

Lifting numbers the elements in order of creation, often one example after another, but vector instructions want the
same element of neighbouring examples side by side. So every array gets a shape from the loops that fill it, and an axis
along which no parameter moves, which is like a batch, becomes the innermost, padded to whole cache lines. Parameters
keep their order, and so do arrays that could only be reshaped with tables. Time is not such an axis: the rows that a
recurrence goes through one after another stay rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Shape, Statement, Term, row_major

LINE = 8  # doubles per cache line
FIGHTING = 8  # lines: where rows are multiples of that apart, what lies side by side in them shares few cache sets
MOST_ROWS = 64  # for which those are enough


def padded(extent: int) -> int:
    """`extent` rounded up to whole cache lines."""
    return -(-extent // LINE) * LINE


def lay_out(program: ArrayProgram) -> tuple[ArrayProgram, dict[Array, np.ndarray]]:
    """The program in its new layout, and for each leaf that moved the new places of its elements."""
    statements, shapes = _refine(program)
    layouts = _layouts(statements, shapes, program)
    moved = {array: layout.moved(array) for array, layout in layouts.items()}
    refined = dict(zip(program.statements, statements, strict=True))

    def change(access: Access) -> Access:
        layout = layouts.get(access.array)
        return layout.access(access, moved[access.array]) if layout else access

    result = program.rewritten(lambda statement: joined(refined[statement].map(change)), moved)
    result = result.with_arrays(_equal(result))
    leaves = program.leaves.values()
    return result, {moved[array]: layout.places() for array, layout in layouts.items() if array in leaves}


def _equal(program: ArrayProgram) -> dict[Array, Array]:
    """For each array of known numbers the first that has the same, such as the mask of several statements."""
    found: dict[tuple[str, bytes], Array] = {}
    known = [array for array in program.arrays() if array.numbers is not None]
    return {array: found.setdefault((array.kind, np.asarray(array.numbers).tobytes()), array) for array in known}


def _refine(program: ArrayProgram) -> tuple[list[Statement], dict[Array, Shape]]:
    """The statements, with loops split until none runs over two axes of an array at once; and the arrays' shapes."""
    statements = program.statements
    shapes: dict[Array, Shape] = {}
    looped = [k for k, s in enumerate(statements) if s.loops or any(term.loops for term in s.terms)]
    changed = True
    while changed:
        changed = False
        for k in looped:
            for access, loops in statements[k].accesses_in_loops():
                shape = _shape(access, loops)
                if shape and len(shape) > len(shapes.get(access.array, ())):
                    shapes[access.array] = shape
                    changed = True
            if split := _split(statements[k], shapes):
                statements[k] = split
                changed = True
    return statements, shapes


def _shape(access: Access, loops: Shape) -> Shape | None:
    """The shape of an array that these loops run through once, contiguously; or through one row of it at each time."""
    row = access.repeat or access.array.size
    if access.table is not None or access.base % row or row < 0 or access.array.size % row:
        return None
    axes = sorted(((s, n) for s, n in zip(access.strides, loops, strict=True) if s and n > 1), reverse=True)
    step = 1
    for stride, extent in reversed(axes):
        if stride != step:
            return None
        step *= extent
    rows = (access.array.size // row,) if access.repeat else ()
    return (*rows, *[n for _, n in axes]) if step == row else None


def _split(statement: Statement, shapes: dict[Array, Shape]) -> Statement | None:
    """The statement with one loop split in two, where an array needs it."""
    for access, loops in statement.accesses_in_loops():
        shape = shapes.get(access.array)
        if shape is None or access.table is not None:
            continue
        for d, (stride, extent) in enumerate(zip(access.strides, loops, strict=True)):
            step = 1
            for axis in reversed(shape):
                if stride == step and extent > axis and extent % axis == 0 and axis > 1:
                    return split_loop(statement, loops, d, axis)
                step *= axis
    return None


def split_loop(statement: Statement, loops: Shape, d: int, inner: int) -> Statement:
    """Loop d becomes two, the inner one of extent `inner`; in all terms, if the loop is the statement's."""
    outer_count = len(statement.loops)

    def extents(values: Shape, at: int) -> Shape:
        return (*values[:at], values[at] // inner, inner, *values[at + 1 :])

    def change(access: Access) -> Access:
        return access.with_strides((*access.strides[:d], access.strides[d] * inner, *access.strides[d:]))

    if d < outer_count:
        whole = statement.map(change)
        whole.loops = extents(statement.loops, d)
        return whole
    terms = list(statement.terms)
    for k, term in enumerate(terms):
        if statement.loops + term.loops == loops:
            terms[k] = Term(term.expression.map(change), extents(term.loops, d - outer_count), term.sign)
    return statement.with_terms(terms)


def _pitch(extent: int, rows: int) -> int:
    """How far so many rows of this extent are apart: whole cache lines, and one more where many rows would fight."""
    lines = -(-extent // LINE)
    return LINE * (lines + (rows > MOST_ROWS and lines % FIGHTING == 0))


class _Layout:
    """The layout of an array of this shape whose axis `inner` is innermost, and padded."""

    def __init__(self, shape: Shape, inner: int) -> None:
        self.shape = shape
        self.row_major = row_major(shape)
        order = [*(k for k in range(len(shape)) if k != inner), inner]
        extents = [*(shape[k] for k in order[:-1]), _pitch(shape[inner], prod(shape) // shape[inner])]
        steps = dict(zip(order, row_major(tuple(extents)), strict=True))
        self.steps = [steps[k] for k in range(len(shape))]
        self.size = prod(extents)

    def fits(self, access: Access, loops: Shape, count: int) -> bool:
        """Whether the access, `count` times over, moves along axes without a carry from one into the next."""
        if access.table is not None:
            return not any(self.axes(access.repeat)[1:])
        if access.repeat < 0 or any(stride < 0 for stride in access.strides):
            return False
        reach = self.axes(access.base)
        for stride, extent in [(access.repeat, count), *zip(access.strides, loops, strict=True)]:
            reach = [r + c * (extent - 1) for r, c in zip(reach, self.axes(stride), strict=True)]
        return all(r < n for r, n in zip(reach, self.shape, strict=True))

    def axes(self, position: int) -> list[int]:
        """A position, or a stride, as steps along the axes."""
        found = []
        for step in self.row_major:
            found.append(position // step)
            position %= step
        return found

    def place(self, position: int) -> int:
        return sum(index * step for index, step in zip(self.axes(position), self.steps, strict=True))

    def places(self) -> np.ndarray:
        return np.tensordot(self.steps, np.indices(self.shape), axes=1).reshape(-1)

    def moved(self, array: Array) -> Array:
        """The array in this layout, with its numbers if it is a constant."""
        result = Array(array.name, self.size, array.kind, examples=array.examples)
        if array.numbers is not None:
            result.numbers = np.zeros(self.size)
            result.numbers[self.places()] = array.numbers
        return result

    def access(self, access: Access, array: Array) -> Access:
        repeat = self.place(access.repeat)
        if access.table is not None:
            return Access(array, access.base, access.strides, self.places()[access.table], repeat)
        return Access(array, self.place(access.base), [self.place(s) for s in access.strides], None, repeat)


def _layouts(statements: list[Statement], shapes: dict[Array, Shape], program: ArrayProgram) -> dict[Array, _Layout]:
    """A layout for each array that has a batch-like axis and can be reshaped."""
    counts = [step.count for step in program.steps for _ in step.body]
    in_time = {
        access.array
        for statement, count in zip(statements, counts, strict=True)
        for access in ((statement.target, *statement.accesses()) if count > 1 else ())
    }
    votes = _Votes(shapes, {program.leaves.get("parameter"), program.gradient, program.output}, in_time)
    for statement, count in zip(statements, counts, strict=True):
        votes.take(statement, count)
    inner_axes = votes.inner_axes().items()
    layouts = {array: _Layout(shapes[array], inner) for array, inner in inner_axes if inner < len(shapes[array]) - 1}
    for statement, count in zip(statements, counts, strict=True):
        for access, loops in statement.accesses_in_loops():
            if access.array in layouts and not layouts[access.array].fits(access, loops, count):
                del layouts[access.array]
    return layouts


class _Votes:
    """Which axis should be innermost. Every turn of a loop that moves no fixed array votes for the axes it moves."""

    def __init__(self, shapes: dict[Array, Shape], fixed: set[Array | None], in_time: set[Array]) -> None:
        self.shapes = shapes
        self.fixed = fixed
        self.in_time = in_time
        self.votes: dict[Array, Counter[int]] = defaultdict(Counter)
        self.side_by_side: dict[tuple[Array, int], Counter[tuple[Array, int]]] = defaultdict(Counter)

    def take(self, statement: Statement, count: int) -> None:
        """The votes of a statement that runs `count` times."""
        for term in statement.terms:
            loops = statement.loops + term.loops
            accesses = [statement.target.widened(len(term.loops)), *term.expression.accesses()]
            for d, extent in enumerate(loops):
                if extent == 1 or any(access.strides[d] for access in accesses if access.array in self.fixed):
                    continue
                moved = [axis for access in accesses if (axis := self.axis(access, d))]
                turns = count * prod(loops)
                for this in moved:
                    self.votes[this[0]][this[1]] += self.counted(turns, this)
                    self.side_by_side[this].update({other: turns for other in moved if other != this})

    def counted(self, turns: int, axis: tuple[Array, int]) -> int:
        """How many of so many votes count: if most of a line along the axis would be padding, the other part only.

        What loops in time use has its rows in order, whatever they hold.
        """
        array, extent = axis[0], self.shapes[axis[0]][axis[1]]
        is_short = padded(extent) > 2 * extent and array not in self.in_time
        return turns * extent // padded(extent) if is_short else turns

    def axis(self, access: Access, d: int) -> tuple[Array, int] | None:
        """The array, and its axis, that loop d runs along; None if there is none or it must not be moved."""
        shape = self.shapes.get(access.array)
        if shape is None or access.array in self.fixed or access.table is not None:
            return None
        steps = row_major(shape)
        return (access.array, steps.index(access.strides[d])) if access.strides[d] in steps else None

    def inner_axes(self) -> dict[Array, int]:
        """The axis with most votes; in a tie, the one beside the inner axes of other arrays, or else the longest."""
        found = {array: axis for array, axes in self.votes.items() if (axis := _winner(axes)) is not None}
        before = -1
        while len(found) != before:
            before = len(found)
            for array, axes in self.votes.items():
                if array not in found:
                    tied = [axis for axis in axes if axes[axis] == max(axes.values())]
                    axis = _winner({axis: self.beside(array, axis, found) for axis in tied})
                    if axis is not None:
                        found[array] = axis
        for array, axes in self.votes.items():
            found.setdefault(array, max(axes, key=lambda axis: (axes[axis], self.shapes[array][axis])))
        return found

    def beside(self, array: Array, axis: int, found: dict[Array, int]) -> int:
        """How many turns move this axis together with inner axes that were found.

        Constants do not count: one that is the same in all examples would speak against the examples.
        """
        neighbours = self.side_by_side[array, axis].items()
        return sum(count for (other, at), count in neighbours if found.get(other) == at and other.numbers is None)


def _winner(votes: Mapping[int, int]) -> int | None:
    """The axis with the most votes, unless there is a tie."""
    most = max(votes.values())
    first, *others = [axis for axis, count in votes.items() if count == most]
    return None if others else first


def joined(statement: Statement) -> Statement:
    """The statement with neighbouring loops merged where a single loop visits every array in the same order."""
    change, loops = _join(statement.loops, 0, [statement.target, *statement.accesses()])
    statement = statement.map(change)
    statement.loops = loops
    terms = []
    for term in statement.terms:
        change, inner = _join(term.loops, len(loops), list(term.expression.accesses()))
        terms.append(Term(term.expression.map(change), inner, term.sign))
    return statement.with_terms(terms)


def _join(loops: Shape, outer: int, accesses: list[Access]) -> tuple[Callable[[Access], Access], Shape]:
    """How accesses change when loops, which are inside `outer` others, are merged where possible; and their extents."""
    kept, extents = list(range(len(loops))), list(loops)
    for d in reversed(range(len(loops) - 1)):
        if all(a.strides[outer + d] == a.strides[outer + kept[d + 1]] * extents[d + 1] for a in accesses):
            extents[d : d + 2] = [extents[d] * extents[d + 1]]
            del kept[d]

    def change(access: Access) -> Access:
        before, after = access.strides[:outer], access.strides[outer + len(loops) :]
        return access.with_strides((*before, *[access.strides[outer + d] for d in kept], *after))

    return change, tuple(extents)
