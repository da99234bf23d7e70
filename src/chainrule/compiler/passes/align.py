"""Alignment: the terms of a sum that has fewer at the borders, each at the place that it has elsewhere.

A filter that reaches beyond a picture has fewer terms there. Lifting fills such rows up at their ends, and masks what
is filled in. So the first term of a pixel in the corner is that of the filter's middle, and where each term finds its
weight and its pixel is in tables. With gaps where the missing terms would be there is a pattern, which needs none:

Σk<9 where(m1[9j+k], w[table[9j+k]]·x[table[9j+k]], -0)      Σk<3,l<3 where(m1[9j+3k+l], w[3k+l]·x[j+24k+l], -0)

So it is where each row has the last terms of the first one, as `sum(x[k:])`. What is read in the gaps does not count,
but must be somewhere (see `margins`).
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.layout import joined, split_loop
from chainrule.compiler.passes.loop_nests import have_one_pattern, joint_nest
from chainrule.compiler.passes.margins import Margins
from chainrule.compiler.passes.program import (
    NOTHING,
    Access,
    Apply,
    ArrayProgram,
    Number,
    Shape,
    Statement,
    Term,
    row_major,
    unmasked,
)
from chainrule.compiler.passes.regular import dense

LEAST_FULL = 0.25  # of the rows, that have all terms: otherwise all rows must be parts of one of these


def aligned(program: ArrayProgram) -> ArrayProgram:
    """The same program, with such sums aligned."""
    margins = Margins(program)
    steps = [_aligned(step, margins) if isinstance(step, Statement) else step for step in program.steps]
    return margins.added(program.with_steps(steps))


def _aligned(statement: Statement, margins: Margins) -> Statement:
    for k in range(len(statement.terms) if statement.join is ops.add else 0):
        term = statement.terms[k]  # the loops may be other ones than before
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


class _Key(NamedTuple):
    """An access that says where terms belong: the first position of each row, and from there those of all terms."""

    starts: np.ndarray
    moves: np.ndarray
    places: np.ndarray  # as they are, by row and term


class _Ragged:
    """A sum whose rows have some of their terms, with the `nest` of all rows and the accesses that may be keys."""

    def __init__(self, statement: Statement, term: Term, mask: Access) -> None:
        self.term, self.mask = term, mask
        self.count, self.run = prod(statement.loops), prod(term.loops)
        self.accesses = list(term.expression.accesses())
        self.places = [self._places(access, statement.loops) for access in self.accesses]
        self.real = mask.array.numbers[self._places(mask, statement.loops)] != 0.0
        self.full = np.flatnonzero(self.real.all(axis=1))
        self.nest, self.keys = statement.loops, list[_Key]()
        if LEAST_FULL * self.count <= len(self.full) < self.count:
            self._keys_of_full_rows()
        elif len(self.full):
            self.keys = [
                _Key(np.full(self.count, row[0]), row - row[0], places)
                for places in self._variable()
                for row in [places[self.full[0]]]
            ]

    def _places(self, access: Access, loops: Shape) -> np.ndarray:
        places: np.ndarray = access.positions(loops + self.term.loops)
        return places.reshape(self.count, self.run)

    def _variable(self) -> list[np.ndarray]:
        """Where the accesses of other than known numbers read."""
        pairs = zip(self.accesses, self.places, strict=True)
        return [places for access, places in pairs if access.array.numbers is None]

    def _keys_of_full_rows(self) -> None:
        """Where many rows have all terms: the nest that they are part of, in which the others begin in between."""
        regular = [places for places in self._variable() if have_one_pattern(places[self.full])]
        own, (steps, *strides) = joint_nest([(True, self.full), *[(False, places[self.full, 0]) for places in regular]])
        nest = _whole_nest(steps, self.count) if own and steps else ()
        if not nest:
            return
        self.nest, first = nest, int(self.full[0])
        away = np.indices(nest).reshape(len(nest), -1)
        away = away - away[:, first : first + 1]
        for places, stride in zip(regular, strides, strict=True):
            if stride is not None:
                row = places[first]
                self.keys.append(_Key(row[0] + np.array(stride) @ away, row - row[0], places))

    def aligned(self, margins: Margins) -> Term | None:
        """The term with gaps in its rows; None if no access says where these must be."""
        for key in self.keys:
            if (source := self._sources(key)) is not None:
                return self._with_gaps(source, margins)
        return None

    def _sources(self, key: _Key) -> np.ndarray | None:
        """Which term of a row comes at each place, -1 in a gap; None if that is not seen from these positions."""
        order = np.argsort(key.moves)
        moves = key.moves[order]
        if (np.diff(moves) == 0).any():
            return None
        away = key.places - key.starts[:, None]
        at = np.searchsorted(moves, away).clip(max=self.run - 1)
        row, term = np.nonzero(self.real)
        source = np.full((self.count, self.run), -1)
        source[row, order[at[row, term]]] = term
        is_right = (moves[at] == away)[self.real].all() and ((source >= 0).sum(axis=1) == self.real.sum(axis=1)).all()
        return source if is_right else None

    def _with_gaps(self, source: np.ndarray, margins: Margins) -> Term:
        gaps, row = source < 0, np.arange(self.count)[:, None]
        moved = [places[row, source] for places in self.places]
        variable = [access.array.numbers is None for access in self.accesses]
        starts = [self._starts(places, gaps) if v else None for places, v in zip(moved, variable, strict=True)]
        moves = [None if s is None else places[self.full[0]] for places, s in zip(moved, starts, strict=True)]
        nest, inside = joint_nest([(False, each) for each in moves])
        inner = nest or (self.run,)
        found = []
        for access, places, begin, own in zip(self.accesses, moved, starts, inside, strict=True):
            if access.array.numbers is not None:
                numbers = np.asarray(access.array.numbers, dtype=np.float64)[places]
                numbers = np.where(gaps, numbers[self.full[0]], numbers)
                found.append(dense(access.array, numbers, self.nest + inner))
            else:
                regular = begin and own and self._regular(access, begin, own, inner, margins)
                found.append(regular or self._by_table(access, places, gaps, inner))
        changed = iter(found)
        expression = self.term.expression.map(lambda _: next(changed))
        mask = dense(self.mask.array, (~gaps).astype(np.float64), self.nest + inner)
        return Term(Apply(ops.where, (mask, expression, Number(NOTHING))), inner, self.term.sign)

    def _starts(self, places: np.ndarray, gaps: np.ndarray) -> tuple[int, Shape] | None:
        """The first position of the first row, and by how much the loops move it; None if rows differ in more."""
        away = places - (places[self.full[0]] - places[self.full[0], 0])
        begin = away[np.arange(self.count), np.argmin(gaps, axis=1)]
        if (away != begin[:, None])[~gaps].any():
            return None
        steps = [step if n > 1 else 0 for step, n in zip(row_major(self.nest), self.nest, strict=True)]
        strides = tuple([int(begin[step] - begin[0]) for step in steps])
        expected = begin[0] + np.tensordot(strides, np.indices(self.nest), axes=1).reshape(-1)
        return (int(begin[0]), strides) if (begin == expected).all() else None

    def _regular(
        self, access: Access, begin: tuple[int, Shape], inside: Shape, inner: Shape, margins: Margins
    ) -> Access | None:
        """What is read from there on, gaps included; None if there is no room for it."""
        first, strides = begin
        found = Access(access.array, first, strides + inside)
        places = found.positions(self.nest + inner)
        array = margins.reached(access.array, int(places.min()), int(places.max()))
        return Access(array, first, found.strides) if array else None

    def _by_table(self, access: Access, moved: np.ndarray, gaps: np.ndarray, inner: Shape) -> Access:
        """The same through a table; a gap reads what the row's first term does."""
        first = moved[np.arange(self.count), np.argmin(gaps, axis=1)][:, None]
        return Access(access.array, 0, row_major(self.nest + inner), np.where(gaps, first, moved).reshape(-1))
