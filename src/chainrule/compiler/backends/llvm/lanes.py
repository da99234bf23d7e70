"""Lanes: which loop of a statement is vectorized, and which loops are unrolled and jammed."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from chainrule.compiler.backends.llvm.target import CACHE, Target
from chainrule.compiler.passes.differentiate import is_injective
from chainrule.compiler.passes.layout import split_loop
from chainrule.compiler.passes.program import Access, Statement, Term
from chainrule.compiler.passes.rematerialize import is_long

COLUMNS = 4  # sums across lanes that are finished at once, and stored side by side


def choose_tile(statement: Statement, axis: int | None, target: Target) -> dict[int, int]:
    """The loops of which several turns are computed side by side, as they share what they load; and how many turns.

    Those loops share that leave an operand of a reduction unmoved. There are two if the lanes are along the reduction:
    a block of rows by columns loads rows + columns operands for rows·columns sums. The first is that of the columns,
    whose results lie side by side in memory if those of any loop do.
    """
    sums = [list(term.expression.accesses()) for term in statement.terms if term.loops]
    loops = [d for d, extent in enumerate(statement.loops) if d != axis and extent > 1]
    sharing = [d for d in reversed(loops) if any(access.strides[d] == 0 for accesses in sums for access in accesses)]
    if not sharing:
        return {}
    if axis is None:
        sharing.sort(key=lambda d: statement.target.strides[d] != 1)
        return dict(zip(sharing, (COLUMNS, target.turns(0, COLUMNS + 1)), strict=False))  # a row has an operand too

    def width(access: Access) -> int:
        """Registers that an operand takes which all turns share."""
        return 0 if access.strides[sharing[0]] else target.vectors if access.strides[axis] else 1

    return {sharing[0]: target.turns(max(sum(map(width, accesses)) for accesses in sums), target.vectors)}


def choose_lanes(statement: Statement) -> tuple[int | None, Statement]:
    """The loop whose turns become lanes: the one with the fewest scattered loads. None: the reduction's, if any.

    A reduction has its lanes along its last loop. In the statement returned with it, that is the best of its loops.
    """
    smooth = with_turned_terms(statement)
    if statement.accumulate and not is_injective(statement):
        return None, smooth
    costs: dict[int | None, float] = {None: _cost(smooth, None)}  # of equals, the first is the best
    costs |= {axis: _cost(statement, axis) for axis, extent in enumerate(statement.loops) if extent > 1}
    best = min(costs, key=costs.__getitem__)
    return best, smooth if best is None else statement


def is_scattered(group: Sequence[Statement], axis: int | None) -> bool:
    """Whether lanes are loaded or stored one by one, by statements that do little else.

    A value of several registers is then no faster than one after another, and takes several times the code.
    """
    if axis is None or any(map(is_long, group)):
        return False
    accesses = [access for statement in group for access in (statement.target, *statement.accesses())]
    return any(access.table is not None or access.strides[axis] not in (0, 1) for access in accesses)


def in_blocks(statement: Statement, target: Target, size: int) -> Statement:
    """A statement whose sums are across lanes, with the outer loop of its tiles in blocks, where memory asks for it.

    For each turn of the outer loop all operands of the inner one are read. If these are more than the first cache
    holds, they come once for each block of turns instead, whose own operands stay there. Numbers are of `size` bytes.
    """
    tile = choose_tile(statement, None, target)
    each = max((prod(term.loops) for term in statement.terms), default=0) * size  # bytes of an operand of one turn
    if len(tile) < 2 or statement.loops[max(tile)] * each <= CACHE:
        return statement
    outer, inner = sorted(tile)
    extent, most = statement.loops[outer], 3 * CACHE // 4 // each
    block = max((n for n in range(2 * tile[outer], min(most, extent - 1) + 1) if extent % n == 0), default=None)
    if block is None:
        return statement
    split = split_loop(statement, statement.loops, outer, block)
    order = [*range(outer + 1), *range(outer + 2, inner + 2), outer + 1, *range(inner + 2, len(split.loops))]

    def change(access: Access) -> Access:
        return access.with_strides((*[access.strides[d] for d in order], *access.strides[len(order) :]))

    result = split.map(change)
    result.loops = tuple(split.loops[d] for d in order)
    return result


def with_turned_terms(statement: Statement) -> Statement:
    """The statement whose reductions have that loop last along which most operands lie side by side."""
    return statement.with_terms([_turned(term, statement) for term in statement.terms])


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
