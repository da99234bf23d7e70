"""Neighbours: a short sum over elements that lie apart, such as the four around a cell, written out term by term.

The four neighbours of a cell lie at distances that no stride describes, so their positions are in a table. But each of
the four lies at the same distance from every cell. As a term of its own it needs no table: many cells are loaded at
once, and on the way back, which adds to the neighbours' derivatives, many are added to at once.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from chainrule.compiler.passes.program import Access, ArrayProgram, Shape, Statement, Term, unmasked

MOST = 9  # terms: a cell and the eight around it
FEW = 8  # cells that such a sum is formed for: fewer are no work for vectors


def apart(program: ArrayProgram) -> ArrayProgram:
    """The same program, with such sums written out."""
    return program.rewritten(_apart, {})


def _apart(statement: Statement) -> Statement:
    if statement.affine or prod(statement.loops) < FEW:
        return statement
    return statement.with_terms([each for term in statement.terms for each in _written_out(term, statement)])


def _written_out(term: Term, statement: Statement) -> list[Term]:
    """The turns of a short reduction as terms, if this leaves no table; otherwise the term itself."""
    accesses = list(term.expression.accesses())
    tables = any(access.table is not None for access in accesses)
    if not tables or not 1 < prod(term.loops) <= MOST or unmasked(term.expression)[0] is not None:
        return [term]
    found = []
    for turn in np.ndindex(*term.loops):
        change = partial(_at, loops=statement.loops, inner=term.loops, turn=turn)
        found.append(Term(term.expression.map(change), (), term.sign))
    affine = all(access.table is None for each in found for access in each.expression.accesses())
    return found if affine else [term]


def _at(access: Access, loops: Shape, inner: Shape, turn: Shape) -> Access:
    """The element at one turn of the inner loops, without a table; the access itself if that is impossible."""
    places = access.positions(loops + inner)[(..., *turn)]
    base = int(places[(0,) * len(loops)])
    ends = [int(places[tuple(int(k == d) for k in range(len(loops)))]) if n > 1 else base for d, n in enumerate(loops)]
    found = Access(access.array, base, [end - base for end in ends], None, access.repeat)
    return found if np.array_equal(found.positions(loops), places) else access
