"""Lanes: which loop of a statement goes through vectors, and which loops are jammed."""

from __future__ import annotations

from chainrule.compiler.passes.differentiate import is_injective
from chainrule.compiler.passes.program import Access, Statement, Term

JAM = 4  # turns of a loop that share what they load


def choose_jams(statement: Statement, axis: int | None) -> list[int]:
    """The loops of which several turns share what they load: those that leave an operand of a reduction unmoved.

    Two of them, if the lanes are along the reduction: a square of turns loads twice its side, and adds its area.
    """
    candidates = [d for d, extent in enumerate(statement.loops) if d != axis and extent >= JAM]
    accesses = [access for term in statement.terms if term.loops for access in term.expression.accesses()]
    sharing = [d for d in reversed(candidates) if any(access.strides[d] == 0 for access in accesses)]
    return sharing[: 2 if axis is None else 1]


def choose_lanes(statement: Statement) -> tuple[int | None, Statement]:
    """The loop whose turns become lanes: the one with the fewest scattered loads. None: that of a reduction, if any.

    A reduction has its lanes along its last loop; in the statement that comes with it, that is the best one.
    """
    turned = statement.with_terms([_turned(term, statement) for term in statement.terms])
    if statement.accumulate and not is_injective(statement):
        return None, turned
    best, best_cost = None, _cost(turned, None)
    for axis, extent in enumerate(statement.loops):
        cost = _cost(statement, axis) if extent > 1 else best_cost
        if cost < best_cost:
            best, best_cost = axis, cost
    return best, turned if best is None else statement


def _turned(term: Term, statement: Statement) -> Term:
    """The term with the one of its loops last that moves the most operands by one element a turn, or by none."""
    first, count = len(statement.loops), len(term.loops)
    accesses = [access for access in term.expression.accesses() if access.table is None]
    smooth = [sum(access.strides[first + d] in (0, 1) for access in accesses) for d in range(count)]
    if count < 2 or smooth[-1] == max(smooth):
        return term
    last = smooth.index(max(smooth))
    order = [*(d for d in range(count) if d != last), last]

    def change(access: Access) -> Access:
        strides = (*access.strides[:first], *(access.strides[first + d] for d in order))
        return Access(access.array, access.base, strides, access.table, access.repeat)

    return Term(term.expression.map(change), tuple(term.loops[d] for d in order), term.sign)


def _cost(statement: Statement, axis: int | None) -> float:
    """Rough instructions for one result in eight lanes."""
    total = 0.0
    for term in statement.terms:
        inner = 1
        for extent in term.loops:
            inner *= extent
        lane = axis if axis is not None else (len(statement.loops) + len(term.loops) - 1 if term.loops else None)
        for access in term.expression.accesses():
            stride = access.strides[lane] if lane is not None else None
            if stride is None or access.table is not None or stride not in (0, 1):
                total += inner
            else:
                total += inner / 8
        if axis is None and term.loops:
            total += 2.0
    if axis is None or statement.target.strides[axis] != 1 or statement.target.table is not None:
        total += 1.0
    return total
