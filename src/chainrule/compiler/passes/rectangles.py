"""Rectangles: an array whose rows have different lengths, such as the scores of a growing past, as one with equal rows.

The scores of attention are rows of 1, 2, 3, … elements, one row after another. No stride says where a row begins, so
whatever is computed from query and key, or added up by row, goes through tables. With equal rows it needs none:

i<4656: v1[i] = Σj<4 v0[table[4i+j]]·v0[table[4i+j]]
i<96,j<96: v1[96i+j] = Σk<4 where(m1[96i+j], v0[4i+k]·v0[384+4j+k], -0)

The ends of short rows are masked, as those of ragged sums are. So nothing that is not finite comes from there, and no
gradient flows there. That is more arithmetic, but on many elements at once: `few_tables` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf, prod
from typing import NamedTuple

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.layout import split_loop
from chainrule.compiler.passes.loop_nests import have_one_pattern
from chainrule.compiler.passes.program import (
    NOTHING,
    Access,
    Apply,
    Array,
    ArrayProgram,
    Expression,
    Number,
    Repeat,
    Shape,
    Statement,
    Term,
    access_to,
    row_major,
    unmasked,
)
from chainrule.compiler.passes.regular import dense, regular, tables

LEAST_REAL = 0.4  # of a rectangle's elements
SHORTEST = 8  # elements of the longest row: fewer are no work for vectors
LARGEST_BLOCK = 4  # numbers of an element, such as coordinates, that may be side by side


def rectangular(program: ArrayProgram) -> ArrayProgram:
    """The same program with such arrays as rectangles."""
    if all(statement.affine for statement in program.statements) or any(a.examples for a in program.arrays()):
        return program
    rectangles = _Rectangles(program)
    steps = [step if isinstance(step, Repeat) else rectangles.changed(step) for step in program.steps]
    return program.with_steps(steps) if rectangles.layouts else program


class _Rows(NamedTuple):
    """Rows of several lengths, one after another, as rows of the longest one's, and the columns where they begin."""

    lengths: np.ndarray
    begin: np.ndarray

    @property
    def width(self) -> int:
        return int(self.lengths.max())

    @property
    def size(self) -> int:
        """How many elements the rectangle has."""
        return len(self.lengths) * self.width

    @property
    def first(self) -> np.ndarray:
        """The first element of each row."""
        found: np.ndarray = np.cumsum(self.lengths) - self.lengths
        return found

    @property
    def of(self) -> np.ndarray:
        """The row of each element."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def places(self) -> np.ndarray:
        """Where each element is in the rectangle."""
        starts = np.arange(len(self.lengths)) * self.width + self.begin - self.first
        found: np.ndarray = np.arange(len(self.of)) + starts[self.of]
        return found


class _Layout(NamedTuple):
    """A rectangle in the place of an array: where each element of that is in it, and in which row."""

    array: Array
    places: np.ndarray
    rows: np.ndarray
    width: int  # elements of a row


class _Rectangles:
    """The rectangles that have been found, with which later statements are changed."""

    def __init__(self, program: ArrayProgram) -> None:
        self.layouts: dict[Array, _Layout] = {}
        self.fixed = {*program.leaves.values(), *program.results}
        written = set[Array]()
        for step in program.steps:
            for statement in step.body:
                target = statement.target.array
                if target in written:
                    self.fixed.add(target)
                written.add(target)
                if isinstance(step, Repeat):
                    self.fixed |= {target, *(access.array for access in statement.accesses())}

    def changed(self, statement: Statement) -> Statement:
        """A statement that fills a rectangle if its elements are in rows, and reads those that there are."""
        for in_blocks in self._in_blocks(statement):
            if rows := self._rows(in_blocks.terms, in_blocks.loops):
                filled = [self._filling(in_blocks, each) for each in rows]
                found, self.layouts[statement.target.array] = min(filled, key=lambda pair: tables(pair[0]))
                return found
        if any(access.array in self.layouts for access in statement.accesses()):
            return self._reading(statement)
        return statement

    def _in_blocks(self, statement: Statement) -> Iterator[Statement]:
        """The statement, if it may fill a rectangle, and with several numbers as the block of one element."""
        if self._may_fill(statement):
            yield statement
            (extent, *inner) = loops = statement.loops
            for block in range(2, LARGEST_BLOCK + 1):
                if extent % block == 0 and not inner:
                    yield split_loop(statement, loops, 0, block)

    def _places(self, access: Access, count: int, loops: Shape) -> np.ndarray:
        """Where an access reads, by turn of the outer loop and of all others."""
        places: np.ndarray = access.positions(loops).reshape(count, -1)
        return self.layouts[access.array].places[places] if access.array in self.layouts else places

    def _array(self, access: Access) -> Array:
        return self.layouts[access.array].array if access.array in self.layouts else access.array

    def _looks_up(self, accesses: Iterable[Access]) -> bool:
        """Whether any of them reads other than known numbers through a table, or in a rectangle."""
        return any(a.table is not None or a.array in self.layouts for a in accesses if not _is_known(a))

    def _may_fill(self, statement: Statement) -> bool:
        """Whether the statement fills an array that may become a rectangle, from the first element to the last."""
        target, loops = statement.target, statement.loops
        if not self._looks_up(statement.accesses()):
            return False
        if target.array in self.fixed or statement.accumulate or statement.join is not ops.add or not loops:
            return False
        filled = target.positions(loops).reshape(-1)
        return len(filled) == target.array.size and bool((filled == np.arange(len(filled))).all())

    def _rows(self, terms: Sequence[Term], loops: Shape) -> list[_Rows]:
        """The rows that the turns of the first loop are in, in several alignments; none if they are in no rows."""
        reads = [(a, loops + t.loops) for t in terms for a in t.expression.accesses() if not _is_known(a)]
        if not self._looks_up([access for access, _ in reads]):
            return []
        ends, streams = np.zeros(loops[0] - 1, dtype=bool), []
        for access, around in reads:
            places = self._places(access, loops[0], around)
            if have_one_pattern(places):
                streams.append(places[:, 0])
                ends |= _irregular(np.diff(places[:, 0]))
            if (layout := self.layouts.get(access.array)) is not None:
                ends |= np.diff(layout.rows[access.positions(around).reshape(loops[0], -1)[:, 0]]) != 0
        lengths = np.diff(np.flatnonzero(np.concatenate([[True], ends, [True]])))
        width = lengths.max()
        is_worth = width >= SHORTEST and LEAST_REAL * width * len(lengths) <= loops[0] and (lengths != width).any()
        return [_Rows(lengths, begin) for begin in _begins(lengths, streams)] if is_worth else []

    def _filling(self, statement: Statement, rows: _Rows) -> tuple[Statement, _Layout]:
        """The statement in loops over all elements of the rectangle, which it fills."""
        block, target = prod(statement.loops[1:]), statement.target.array
        array = Array(target.name, rows.size * block, target.kind)
        loops = (rows.size, *statement.loops[1:])
        terms = [self._filled(term, statement.loops, rows) for term in statement.terms]
        filling = regular(Statement(Access(array, 0, row_major(loops)), loops, terms))
        places = (rows.places[:, None] * block + np.arange(block)).reshape(-1)
        return _with_dense_numbers(filling), _Layout(array, places, np.repeat(rows.of, block), rows.width * block)

    def _filled(self, term: Term, loops: Shape, rows: _Rows) -> Term:
        """A term in a loop over all elements of a rectangle in the place of the first loop."""
        mask, expression = unmasked(term.expression)
        around, inside = loops + term.loops, (rows.size, *loops[1:], *term.loops)
        real = np.zeros((rows.size, prod(inside[1:])))
        real[rows.places] = 1.0 if mask is None else _numbers(mask, around).reshape(loops[0], -1)

        def change(access: Access) -> Access:
            if _is_known(access):
                return _constant(access.array, _spread(_numbers(access, around).reshape(loops[0], -1), rows), inside)
            array = self._array(access)
            return access_to(array, _continued(self._places(access, loops[0], around), rows, array.size), inside)

        if isinstance(expression, Number) and mask is None:
            return term
        chosen = _constant(mask.array if mask else Array("m", 0, "mask"), real, inside)
        return Term(_where(chosen, expression.map(change), NOTHING), term.loops, term.sign)

    def _reading(self, statement: Statement) -> Statement:
        """The statement with positions in rectangles, where it reads them."""
        terms = [self._read(statement, term) for term in statement.terms]
        return _with_dense_numbers(regular(statement.with_terms(terms)))

    def _read(self, statement: Statement, term: Term) -> Term:
        """A term in whichever way needs the fewest tables."""
        is_as_before = all(access.array not in self.layouts for access in term.expression.accesses())
        ways = [*self._added_up(statement, term), *([term] if is_as_before else self._masked(statement, term))]
        best: Term = min(ways, key=lambda way: tables(regular(statement.with_terms([way]))))
        return best

    def _added_up(self, statement: Statement, term: Term) -> Iterator[Term]:
        """The sum of a term over a whole rectangle, if it is one over elements in rows."""
        if not statement.loops and len(term.loops) == 1 and statement.join is ops.add:
            alone = Term(term.expression, (), term.sign)
            for rows in self._rows([alone], term.loops):
                yield Term(self._filled(alone, term.loops, rows).expression, (rows.size,), term.sign)

    def _masked(self, statement: Statement, term: Term) -> Iterator[Term]:
        """A term; where its rows are filled up, what is read there is masked, and has the pattern of the others."""
        mask, expression = unmasked(term.expression)
        around, count, largest = statement.loops + term.loops, prod(statement.loops), statement.join is not ops.add
        real = np.ones((count, prod(term.loops)), dtype=bool)
        if mask is not None:
            real = _numbers(mask, around).reshape(count, -1) != 0.0
        elif largest and isinstance(expression, Access):  # short rows are filled up with their first term
            places = self._places(expression, count, around)
            real[:, 1:] = places[:, 1:] != places[:, :1]
        if real.all():
            yield Term(self._in_order(expression, real, around, None), term.loops, term.sign)
            return
        for order in self._orders(expression, real, around):
            numbers = np.take_along_axis(real, order, axis=1).astype(np.float64)
            chosen = _constant(mask.array if mask else Array("m", 0, "mask"), numbers, around)
            changed = self._in_order(expression, real, around, order)
            yield Term(_where(chosen, changed, -inf if largest else NOTHING), term.loops, term.sign)

    def _orders(self, expression: Expression, real: np.ndarray, loops: Shape) -> Iterator[np.ndarray]:
        """Orders of terms, by row: those that count first, those that do not first, or as a rectangle has them."""
        yield np.argsort(~real, axis=1, kind="stable")
        yield np.argsort(real, axis=1, kind="stable")
        for access in expression.accesses():
            layout = self.layouts.get(access.array)
            if layout is not None and layout.width == real.shape[1]:
                column = self._places(access, len(real), loops) % layout.width
                row, term = np.nonzero(real)
                taken = np.zeros(real.shape, dtype=bool)
                taken[row, column[real]] = True
                if taken.sum() == len(row):
                    order = np.empty(real.shape, dtype=np.int64)
                    order[row, column[real]] = term
                    order[~taken] = np.nonzero(~real)[1]
                    yield order

    def _in_order(self, expression: Expression, real: np.ndarray, loops: Shape, order: np.ndarray | None) -> Expression:
        """The expression with its terms in this order, by row."""

        def ordered(numbers: np.ndarray) -> np.ndarray:
            return numbers if order is None else np.take_along_axis(numbers, order, axis=1)

        def change(access: Access) -> Access:
            if _is_known(access):
                return _constant(access.array, ordered(_numbers(access, loops).reshape(real.shape)), loops)
            array, places = self._array(access), self._places(access, len(real), loops)
            return access_to(array, _aligned(ordered(places), ordered(real), array.size), loops)

        return expression.map(change)


def _where(mask: Access, expression: Expression, otherwise: float) -> Expression:
    return Apply(ops.where, (mask, expression, Number(otherwise)))


def _is_known(access: Access) -> bool:
    return access.array.numbers is not None


def _numbers(access: Access, loops: Shape) -> np.ndarray:
    """The known numbers that an access reads."""
    found: np.ndarray = np.asarray(access.array.numbers, dtype=np.float64)[access.positions(loops)]
    return found


def _constant(like: Array, numbers: np.ndarray, loops: Shape) -> Access:
    array = Array(like.name, numbers.size, like.kind, np.ascontiguousarray(numbers).reshape(-1))
    return Access(array, 0, row_major(loops))


def _irregular(steps: np.ndarray) -> np.ndarray:
    """Which of the steps are not the usual one."""
    sizes, counts = np.unique(steps, return_counts=True)
    return np.asarray(steps != sizes[counts.argmax()]) if len(steps) else np.zeros(0, dtype=bool)


def _begins(lengths: np.ndarray, streams: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Columns where rows may begin: the first; so that all end in the last; or so that all read as full rows do."""
    yield np.zeros_like(lengths)
    width, first = lengths.max(), np.cumsum(lengths) - lengths
    yield width - lengths
    full = np.flatnonzero(lengths == width)
    for stream in streams:
        step = int(stream[first[full[0]] + 1] - stream[first[full[0]]])
        if step and len(full) > 1:
            from_row_to_row = (stream[first[full[1]]] - stream[first[full[0]]]) // (full[1] - full[0])
            away = stream[first] - stream[first[full[0]]] - from_row_to_row * (np.arange(len(lengths)) - full[0])
            begin = away // step
            if (begin * step == away).all() and (begin >= 0).all() and (begin + lengths <= width).all():
                yield begin


def _spread(numbers: np.ndarray, rows: _Rows) -> np.ndarray:
    """Rows of numbers as rows of a rectangle, whose ends are those of the longest."""
    longest = int(rows.lengths.argmax())
    found = np.tile(numbers[rows.first[longest] :][: rows.width], (len(rows.lengths), 1))
    found[rows.places] = numbers
    return found


def _continued(places: np.ndarray, rows: _Rows, size: int) -> np.ndarray:
    """Positions by row, with short rows going on as they began; as their first element where that is impossible."""
    longest = rows.first[rows.lengths.argmax()]
    row = places[longest : longest + rows.width]
    begin = places[rows.first] - row[rows.begin]
    found: np.ndarray = (begin[:, None] + row).reshape(rows.size, -1)
    if found.min() < 0 or found.max() >= size or (found[rows.places] != places).any():
        found = np.repeat(places[rows.first], rows.width, axis=0)
        found[rows.places] = places
    return found


def _aligned(places: np.ndarray, real: np.ndarray, size: int) -> np.ndarray:
    """Positions by row and term, with the pattern of a full row where they do not count."""
    full = int(real.sum(axis=1).argmax())
    if real.all() or not real[full].all():
        return places
    moves = places[full] - places[full, 0]
    first = real.argmax(axis=1)
    begin = places[np.arange(len(places)), first] - moves[first]
    found = begin[:, None] + moves
    is_right = found.min() >= 0 and found.max() < size and (found == places)[real].all()
    return np.asarray(found if is_right else places)


def _with_dense_numbers(statement: Statement) -> Statement:
    """The statement with known numbers without axes along which they do not change."""

    def changed(term: Term, loops: Shape) -> Term:
        def change(access: Access) -> Access:
            return dense(access.array, _numbers(access, loops), loops) if _is_known(access) else access

        return Term(term.expression.map(change), term.loops, term.sign)

    return statement.with_terms([changed(term, statement.loops + term.loops) for term in statement.terms])
