"""Alignment: the terms of a sum that has fewer at the borders, each at the place that it has elsewhere.

A filter that reaches beyond a picture has fewer terms there. Lifting fills such rows up at their ends, and masks what
is filled in. So the first term of a pixel in the corner is that of the filter's middle, and where each term finds its
weight and its pixel is in tables. With gaps where the missing terms would be there is a pattern, which needs none:

Σk<9 where(m1[9j+k], w[table[9j+k]]·x[table[9j+k]], -0)      Σk<3,l<3 where(m1[9j+3k+l], w[3k+l]·x[j+24k+l], -0)

What is read in the gaps does not count, but must be somewhere (see `margins`).
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.differentiate import unmasked
from chainrule.compiler.passes.layout import joined, split_loop
from chainrule.compiler.passes.loop_nests import joint_nest
from chainrule.compiler.passes.margins import Margins
from chainrule.compiler.passes.program import (
    NOTHING,
    Access,
    Apply,
    Array,
    ArrayProgram,
    Number,
    Shape,
    Statement,
    Term,
    row_major,
)

LEAST_FULL = 0.25  # of the rows, that have all terms


def aligned(program: ArrayProgram) -> ArrayProgram:
    """The same program, with such sums aligned."""
    margins = Margins(program)
    steps = [_aligned(step, margins) if isinstance(step, Statement) else step for step in program.steps]
    result = ArrayProgram(steps, program.leaves, program.output)
    result.gradient = program.gradient
    return margins.added(result)


def _aligned(statement: Statement, margins: Margins) -> Statement:
    for k, term in enumerate(statement.terms):
        mask, expression = unmasked(term.expression)
        if mask is None or statement.affine or any(access.repeat for access in statement.accesses()):
            continue
        found = _Ragged(statement, Term(expression, term.loops, term.sign), mask)
        if (split := _in_loops(statement, found.nest)) and (changed := found.aligned(margins)):
            terms = [*split.terms[:k], changed, *split.terms[k + 1 :]]
            statement = joined(split.with_terms(terms))
    return statement


def _in_loops(statement: Statement, nest: Shape) -> Statement | None:
    """The statement with its loops split so that they are those of the nest; None if they cannot be."""
    for d, extent in enumerate(nest):
        if d < len(statement.loops) and extent < statement.loops[d] and statement.loops[d] % extent == 0:
            statement = split_loop(statement, statement.loops, d, statement.loops[d] // extent)
    return statement if statement.loops == nest else None


def _whole_nest(steps: Shape, count: int) -> Shape:
    """The nest of `count` rows in which some of them are these steps apart; empty if there is none."""
    outer = (count, *steps)
    whole = steps[-1] == 1 and all(a % b == 0 for a, b in zip(outer, steps, strict=False))
    return tuple([a // b for a, b in zip(outer, steps, strict=False)]) if whole else ()


class _Pattern(NamedTuple):
    """Where the rows that have all terms read: the first one, from which all loops of the nest and the row move it."""

    first: int
    strides: Shape
    moves: np.ndarray  # from a row's first position to each

    def places(self, nest: Shape) -> np.ndarray:
        """The positions by row and term, those in gaps included."""
        starts = self.first + np.tensordot(self.strides, np.indices(nest), axes=1)
        places: np.ndarray = starts.reshape(-1, 1) + self.moves
        return places


class _Ragged:
    """A sum whose rows have some of their terms, with the `nest` of all rows, empty if there is none."""

    def __init__(self, statement: Statement, term: Term, mask: Access) -> None:
        self.term, self.mask = term, mask
        self.count, self.run = prod(statement.loops), prod(term.loops)
        self.accesses = list(term.expression.accesses())
        self.places = [self._places(access, statement.loops) for access in self.accesses]
        self.real = mask.array.numbers[self._places(mask, statement.loops)] != 0.0
        self.full = np.flatnonzero(self.real.all(axis=1))
        self.nest, self.patterns = self._patterns()

    def _places(self, access: Access, loops: Shape) -> np.ndarray:
        places: np.ndarray = access.positions(loops + self.term.loops)
        return places.reshape(self.count, self.run)

    def _patterns(self) -> tuple[Shape, list[_Pattern | None]]:
        """The nest of all rows, and in it the pattern of each access that has one, as the full rows show it."""
        patterns: list[_Pattern | None] = [None] * len(self.accesses)
        if not LEAST_FULL * self.count <= len(self.full) < self.count:
            return (), patterns
        rows = [places[self.full] for places in self.places]
        streams = [(False, self._starts(access, row)) for access, row in zip(self.accesses, rows, strict=True)]
        found, (steps, *strides) = joint_nest([(True, self.full), *streams])
        nest = _whole_nest(steps, self.count) if found and steps else ()
        if not nest:
            return (), patterns
        corner = np.array(np.unravel_index(int(self.full[0]), nest))
        for k, (row, stride) in enumerate(zip(rows, strides, strict=True)):
            if stride is not None:
                patterns[k] = _Pattern(int(row[0, 0] - corner @ stride), stride, row[0] - row[0, 0])
        return nest, patterns

    @staticmethod
    def _starts(access: Access, rows: np.ndarray) -> np.ndarray | None:
        """Where each row begins, if all have the same pattern from there on and it is not of known numbers."""
        same = (rows - rows[:, :1] == rows[0] - rows[0, 0]).all()
        return rows[:, 0] if same and access.array.numbers is None else None

    def aligned(self, margins: Margins) -> Term | None:
        """The term with gaps in its rows; None if no access says where these must be."""
        for pattern, places in zip(self.patterns, self.places, strict=True):
            source = None if pattern is None else self._sources(pattern.places(self.nest), pattern.moves, places)
            if source is not None:
                return self._with_gaps(source, margins)
        return None

    def _sources(self, expected: np.ndarray, moves: np.ndarray, places: np.ndarray) -> np.ndarray | None:
        """Which term of a row comes at each place, -1 in a gap; None if that is not seen from these positions."""
        order = np.argsort(moves)
        if (np.diff(moves[order]) == 0).any():
            return None
        away = places - expected[:, :1] + moves[0]
        at = order[np.searchsorted(moves[order], away).clip(max=self.run - 1)]
        row, term = np.nonzero(self.real)
        source = np.full((self.count, self.run), -1)
        source[row, at[row, term]] = term
        is_right = (moves[at] == away)[self.real].all() and ((source >= 0).sum(axis=1) == self.real.sum(axis=1)).all()
        return source if is_right else None

    def _with_gaps(self, source: np.ndarray, margins: Margins) -> Term:
        gaps, row = source < 0, np.arange(self.count)[:, None]
        moves = [(False, pattern and pattern.moves) for pattern in self.patterns]
        nest, inside = joint_nest(moves)
        inner = nest or (self.run,)
        found = []
        for access, places, pattern, own in zip(self.accesses, self.places, self.patterns, inside, strict=True):
            moved = places[row, source]
            if access.array.numbers is not None:
                numbers = np.asarray(access.array.numbers, dtype=np.float64)[moved]
                numbers = np.where(gaps, numbers[self.full[0]], numbers)
                found.append(self._dense(access.array, numbers, inner))
            else:
                regular = self._regular(access, moved, gaps, pattern, own, margins)
                found.append(regular or self._by_table(access, moved, gaps, inner))
        changed = iter(found)
        expression = self.term.expression.map(lambda _: next(changed))
        mask = self._dense(self.mask.array, (~gaps).astype(np.float64), inner)
        return Term(Apply(ops.where, (mask, expression, Number(NOTHING))), inner, self.term.sign)

    def _regular(
        self,
        access: Access,
        moved: np.ndarray,
        gaps: np.ndarray,
        pattern: _Pattern | None,
        inside: Shape | None,
        margins: Margins,
    ) -> Access | None:
        """What is read at these positions if they are those of the pattern, but for the gaps; otherwise None."""
        if pattern is None or inside is None:
            return None
        expected = pattern.places(self.nest)
        if (expected != moved)[~gaps].any():
            return None
        array = margins.reached(access.array, int(expected.min()), int(expected.max()))
        return Access(array, pattern.first, pattern.strides + inside) if array else None

    def _by_table(self, access: Access, moved: np.ndarray, gaps: np.ndarray, inner: Shape) -> Access:
        """The same through a table; a gap reads what the row's first term does."""
        first = moved[np.arange(self.count), np.argmin(gaps, axis=1)][:, None]
        return Access(access.array, 0, row_major(self.nest + inner), np.where(gaps, first, moved).reshape(-1))

    def _dense(self, array: Array, numbers: np.ndarray, inner: Shape) -> Access:
        """Numbers by row and term, without axes along which they do not change."""
        loops = self.nest + inner
        bits = np.ascontiguousarray(numbers, dtype=np.float64).view(np.int64).reshape(loops)
        for axis in range(bits.ndim):
            first = bits.take([0], axis=axis)
            if (bits == first).all():
                bits = first
        dense = np.ascontiguousarray(bits).reshape(-1).view(np.float64)
        strides = [stride if n > 1 else 0 for stride, n in zip(row_major(bits.shape), bits.shape, strict=True)]
        return Access(Array(array.name, len(dense), array.kind, dense), 0, strides)
