"""Regular nests: a statement in the loops in which the fewest of its accesses need a table.

Lifting looks for loops that suit all operands of a class. If there are none, because one of them is looked up at
random, all go through tables. Here those that have loops in common get these, and only the others keep their tables.

i<2048: v1[i] = u0[table[i]]·image[table[i]]       i<1024,j<2: v1[2i+j] = u0[i]·image[table[2i+j]]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from chainrule.compiler.passes.loop_nests import have_one_pattern, joint_nest
from chainrule.compiler.passes.program import (
    Access,
    Array,
    ArrayProgram,
    Shape,
    Statement,
    Term,
    row_major,
    without_still_axes,
)

LANES = 8  # turns that one of the loops must have: shorter loops are no work for vectors


def with_regular_nests(program: ArrayProgram) -> ArrayProgram:
    """The same program with each statement in such loops."""
    return program.rewritten(regular, {})


def tables(statement: Statement) -> int:
    """How many accesses go through a table."""
    return sum([access.table is not None for access, _ in statement.accesses_in_loops()])


def regular(statement: Statement) -> Statement:
    """The statement in loops in which fewer accesses need tables, if there are such loops."""
    if statement.affine:
        return statement
    found = _Nested(statement).statement()
    return found if tables(found) < tables(statement) else statement


class _Nested:
    """A statement, with the positions of all its accesses: by turn of its loops, and by turn of the term's."""

    def __init__(self, given: Statement) -> None:
        self.given = given
        self.count = prod(given.loops)
        self.places = [(given.target, self._places(given.target, ()))]
        for term in given.terms:
            self.places += [(access, self._places(access, term.loops)) for access in term.expression.accesses()]
        self.loops, self.strides = joint_nest(
            [(access.table is None, _outer(places)) for access, places in self.places]
        )

    def _places(self, access: Access, inner: Shape) -> np.ndarray:
        places: np.ndarray = access.positions(self.given.loops + inner)
        return places.reshape(self.count, -1)

    def statement(self) -> Statement:
        """The statement in the loops that were found."""
        if self.loops is None or (self.given.loops and max(self.loops, default=1) < LANES):
            return self.given
        target, *rest = [
            (access, places, strides) for (access, places), strides in zip(self.places, self.strides, strict=True)
        ]
        found = iter(rest)
        terms = []
        for term in self.given.terms:
            count = sum(1 for _ in term.expression.accesses())
            terms.append(self._term(term, [next(found) for _ in range(count)]))
        given = self.given
        return Statement(self._access(*target, (), ()), self.loops, terms, given.accumulate, given.join)

    def _term(self, term: Term, given: Sequence[tuple[Access, np.ndarray, Shape | None]]) -> Term:
        """The term in loops that suit those of its accesses that need no table outside of them."""
        streams = [(access.table is None, None if outer is None else places[0]) for access, places, outer in given]
        inner, strides = joint_nest(streams)  # of one turn, if there are no loops: then it is empty
        if inner is None:
            inner = (prod(term.loops),) if term.loops else ()
        changed = iter([self._access(*each, own, inner) for each, own in zip(given, strides, strict=True)])
        return Term(term.expression.map(lambda _: next(changed)), inner, term.sign)

    def _access(
        self, access: Access, places: np.ndarray, outer: Shape | None, own: Shape | None, inner: Shape
    ) -> Access:
        if outer is not None and own is not None:
            return Access(access.array, places[0, 0], outer + own, None, access.repeat)
        strides = row_major((self.loops or ()) + inner)
        return Access(access.array, 0, strides, places.reshape(-1), access.repeat)


def _outer(places: np.ndarray) -> np.ndarray | None:
    """The first position in each turn, if all turns have the same pattern from there on."""
    return places[:, 0] if have_one_pattern(places) else None


def dense(array: Array, numbers: np.ndarray, loops: Shape) -> Access:
    """Known numbers by turn of the loops, as an array like this one without axes along which they do not change."""
    found, strides = without_still_axes(numbers.reshape(loops))
    return Access(Array(array.name, len(found), array.kind, found), 0, strides)
