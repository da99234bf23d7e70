"""Lanes: which loop of a statement is vectorized, and which loops are unrolled and jammed."""

from __future__ import annotations

from math import prod

from chainrule.compiler.passes.differentiate import is_injective
from chainrule.compiler.passes.program import Access, Statement, Term

JAM = 4  # turns of a loop that share what they load


def choose_jams(statement: Statement, axis: int | None) -> list[int]:
    """The loops of which several turns share what they load: those that leave an operand of a reduction unmoved.

    There are two if the lanes are along the reduction: a square block of turns loads 2·side operands for side² sums.
    """
    candidates = [d for d, extent in enumerate(statement.loops) if d != axis and extent >= JAM]
    accesses = [access for term in statement.terms if term.loops for access in term.expression.accesses()]
    sharing = [d for d in reversed(candidates) if any(access.strides[d] == 0 for access in accesses)]
    return sharing[: 2 if axis is None else 1]


def choose_lanes(statement: Statement) -> tuple[int | None, Statement]:
    """The loop whose turns become lanes: the one with the fewest scattered loads. None: the reduction's, if any.

    A reduction has its lanes along its last loop. In the statement returned with it, that is the best of its loops.
    """
    turned = statement.with_terms([_turned(term, statement) for term in statement.terms])
    if statement.accumulate and not is_injective(statement):
        return None, turned
    costs: dict[int | None, float] = {None: _cost(turned, None)}  # of equals, the first is the best
    costs |= {axis: _cost(statement, axis) for axis, extent in enumerate(statement.loops) if extent > 1}
    best = min(costs, key=costs.__getitem__)
    return best, turned if best is None else statement


def _turned(term: Term, statement: Statement) -> Term:
    """The term with that loop last which moves the most operands by one element per turn, or not at all."""
    first, count = len(statement.loops), len(term.loops)
    accesses = [access for access in term.expression.accesses() if access.table is None]
    smooth = [sum(access.strides[first + d] in (0, 1) for access in accesses) for d in range(count)]
    if count < 2 or smooth[-1] == max(smooth):
        return term
    last = smooth.index(max(smooth))
    order = [*(d for d in range(count) if d != last), last]

    def change(access: Access) -> Access:
        return access.with_strides((*access.strides[:first], *(access.strides[first + d] for d in order)))

    return Term(term.expression.map(change), tuple(term.loops[d] for d in order), term.sign)


def _cost(statement: Statement, axis: int | None) -> float:
    """Rough number of instructions per result in eight lanes."""
    target = statement.target
    total = 0.0 if axis is not None and target.strides[axis] == 1 and target.table is None else 1.0
    for term in statement.terms:
        lane = axis
        if lane is None and term.loops:
            lane = len(statement.loops) + len(term.loops) - 1
            total += 2.0
        for access in term.expression.accesses():
            smooth = lane is not None and access.table is None and access.strides[lane] in (0, 1)
            total += prod(term.loops) / (8 if smooth else 1)
    return total
