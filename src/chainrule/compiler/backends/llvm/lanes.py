"""Lanes: which loop of a statement is vectorized, and which loops are unrolled and jammed."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from chainrule.compiler.backends.llvm.target import CACHE, Target
from chainrule.compiler.passes.layout import split_loop
from chainrule.compiler.passes.program import Access, Statement, Term, is_injective
from chainrule.compiler.passes.rematerialize import is_long

COLUMNS = 4  # sums across lanes that are finished at once, and stored side by side


def choose_tile(
    statement: Statement, axis: int | None, target: Target, columns: int = COLUMNS, vectors: int = 0
) -> dict[int, int]:
    """The loops of which several turns are computed side by side, as they share what they load; and how many turns.

    Those loops share that leave an operand of a reduction unmoved. There are two if the lanes are along the reduction:
    a block of rows by columns loads rows + columns operands for rows·columns sums. The first is that of the columns,
    whose results lie side by side in memory if those of any loop do. A value takes as many registers as usual with the
    target, or `vectors`.
    """
    sharing, sums, vectors = _sharing(statement, axis), _sums(statement), vectors or target.vectors
    if not sharing:
        return {}
    if axis is None:
        return dict(zip(sharing, (columns, target.turns(0, columns + 1)), strict=False))  # a row has an operand too

    def width(access: Access) -> int:
        """Registers that an operand takes which all turns share."""
        return 0 if access.strides[sharing[0]] else vectors if access.strides[axis] else 1

    return {sharing[0]: target.turns(max(sum(map(width, accesses)) for accesses in sums), vectors)}


def _sums(statement: Statement) -> list[list[Access]]:
    """What each of the statement's sums reads."""
    return [list(term.expression.accesses()) for term in statement.terms if term.loops]


def _sharing(statement: Statement, axis: int | None) -> list[int]:
    """The loops that leave an operand of a reduction unmoved; if lanes are along it, that of the columns first."""
    meeting = set() if axis is None else overlapping(statement)
    loops = [d for d, extent in enumerate(statement.loops) if d != axis and extent > 1 and d not in meeting]
    sums = _sums(statement)
    sharing = [d for d in reversed(loops) if any(access.strides[d] == 0 for accesses in sums for access in accesses)]
    return sharing if axis is not None else sorted(sharing, key=lambda d: statement.target.strides[d] != 1)


def side_by_side(statement: Statement) -> int | None:
    """The loop along which results are computed and stored as vectors: that of the lanes, or of a tile's columns."""
    axis, turned = choose_lanes(statement)
    if axis is not None or not all(term.loops for term in statement.terms):
        return axis
    columns = _sharing(turned, None)[:1]
    return next((d for d in columns if statement.target.strides[d] == 1 and statement.target.table is None), None)


def choose_lanes(statement: Statement) -> tuple[int | None, Statement]:
    """The loop whose turns become lanes: the one with the fewest scattered loads. None: the reduction's, if any.

    A reduction has its lanes along its last loop. In the statement returned with it, that is the best of its loops.
    """
    smooth, meeting = with_turned_terms(statement), overlapping(statement)
    if meeting and statement.target.table is not None:
        return None, smooth
    costs: dict[int | None, float] = {None: _cost(smooth, None)}  # of equals, the first is the best
    axes = [axis for axis, extent in enumerate(statement.loops) if extent > 1 and axis not in meeting]
    costs |= {axis: _cost(statement, axis) for axis in axes}
    best = min(costs, key=costs.__getitem__)
    return best, smooth if best is None else statement


def overlapping(statement: Statement) -> set[int]:
    """Loops of which several turns add to the same elements, whatever the turns of the other loops.

    Those others are as many as can be, the longest first.
    """
    if not statement.accumulate or is_injective(statement):
        return set()
    alone: list[int] = []
    for d in sorted(range(len(statement.loops)), key=lambda d: (-statement.loops[d], abs(statement.target.strides[d]))):
        own = [*alone, d]
        target = statement.target.with_strides([statement.target.strides[k] for k in own])
        if target.table is None and is_injective(Statement(target, tuple([statement.loops[k] for k in own]), ())):
            alone = own
    return set(range(len(statement.loops))).difference(alone)


def in_turn(statement: Statement) -> Statement:
    """The statement with such loops outside of all others.

    Then one turn of them adds to many elements at once, and the next waits for none that has just been stored.
    """
    outside = overlapping(statement)
    if not outside or statement.target.table is not None:
        return statement
    order = sorted(range(len(statement.loops)), key=lambda d: d not in outside)

    def change(access: Access) -> Access:
        return access.with_strides((*[access.strides[d] for d in order], *access.strides[len(order) :]))

    found = statement.map(change)
    found.loops = tuple([statement.loops[d] for d in order])
    return found


def is_scattered(group: Sequence[Statement], axis: int | None) -> bool:
    """Whether lanes are loaded or stored one by one, by statements that do little else.

    A value of several registers is then no faster than one after another, and takes several times the code.
    """
    if axis is None or any(map(is_long, group)):
        return False
    accesses = [access for statement in group for access in (statement.target, *statement.accesses())]
    return any(access.table is not None or access.strides[axis] not in (0, 1) for access in accesses)


def choose_columns(alone: bool, target: Target, size: int) -> int:
    """How many sums across lanes are finished at once: a register full, if other statements go along with them."""
    return COLUMNS if alone else max(COLUMNS, min(target.lanes(size), target.registers // 4))


def in_blocks(statements: Sequence[Statement], tile: dict[int, int], size: int) -> Sequence[Statement]:
    """Statements whose sums are across lanes, with the outer loop of their tiles in blocks, where memory asks for it.

    For each turn of the outer loop all operands of the inner one are read. If these are more than the first cache
    holds, they come once for each block of turns instead, whose own operands stay there. Numbers are of `size` bytes.
    """
    statement = statements[0]
    each = max((prod(term.loops) for term in statement.terms), default=0) * size  # bytes of an operand of one turn
    if len(tile) < 2 or statement.loops[max(tile)] * each <= CACHE:
        return statements
    outer, inner = sorted(tile)
    extent, most = statement.loops[outer], 3 * CACHE // 4 // each
    block = max((n for n in range(2 * tile[outer], min(most, extent - 1) + 1) if extent % n == 0), default=None)
    if block is None:
        return statements
    order = [*range(outer + 1), *range(outer + 2, inner + 2), outer + 1, *range(inner + 2, len(statement.loops) + 1)]

    def change(access: Access) -> Access:
        return access.with_strides((*[access.strides[d] for d in order], *access.strides[len(order) :]))

    def blocked(whole: Statement) -> Statement:
        split = split_loop(whole, whole.loops, outer, block)
        result = split.map(change)
        result.loops = tuple(split.loops[d] for d in order)
        return result

    return [blocked(whole) for whole in statements]


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


def cost(statement: Statement) -> float:
    """Rough number of instructions on eight lanes, of which the last ones of a loop may be wasted."""
    axis, turned = choose_lanes(statement)
    loops = turned.loops[axis : axis + 1] if axis is not None else [t.loops[-1] for t in turned.terms if t.loops]
    wasted = max([-(-extent // 8) * 8 / extent for extent in loops], default=1.0)
    return wasted * prod(statement.loops) * _cost(turned, axis)


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
