"""Long sums, taken in parts whose operands stay in the first cache.

i<100,j<50: v0[i+104j] = parameter[784+785j] + Σk<784 parameter[785j+k]·rows0[784i+k]

i<100,j<50: v0[i+104j] = parameter[784+785j] + Σk<392 parameter[785j+k]·rows0[784i+k]
i<100,j<50: v0[i+104j] += Σk<392 parameter[392+785j+k]·rows0[392+784i+k]

Four rows by six of such operands are a tile, whose sums are formed side by side, with lanes along k. The next tile
needs the four or the six again. If they do not fit the first cache together, all operands come from the second.
"""

from __future__ import annotations

from chainrule import ops
from chainrule.compiler.backends.llvm.lanes import choose_lanes, choose_tile
from chainrule.compiler.backends.llvm.target import CACHE, Target
from chainrule.compiler.passes.program import Access, ArrayProgram, Repeat, Statement, Term


def with_shorter_sums(program: ArrayProgram, target: Target, size: int) -> ArrayProgram:
    """The program with such sums in parts, for numbers of `size` bytes."""
    steps: list[Statement | Repeat] = []
    for step in program.steps:
        steps += [step] if isinstance(step, Repeat) else _in_parts(step, target, size)
    return program.with_steps(steps)


def _in_parts(statement: Statement, target: Target, size: int) -> list[Statement]:
    """The statement, or several that add up to it."""
    sums = [term for term in statement.terms if term.loops]
    if len(sums) != 1 or len(sums[0].loops) != 1 or statement.join is not ops.add:
        return [statement]
    axis, _ = choose_lanes(statement)
    tile, (extent,) = choose_tile(statement, axis, target), sums[0].loops
    count = -(-sum(tile.values()) * extent * size // CACHE)
    reads_itself = any(access.array is statement.target.array for access in statement.accesses())
    if axis is not None or len(tile) < 2 or count < 2 or reads_itself:
        return [statement]
    lanes = target.lanes(size)
    length = -(-extent // (count * lanes)) * lanes
    first, *others = [_part(sums[0], start, min(length, extent - start)) for start in range(0, extent, length)]
    begin = statement.with_terms([first if term is sums[0] else term for term in statement.terms])
    return [begin, *(Statement(statement.target, statement.loops, [part], accumulate=True) for part in others)]


def _part(term: Term, start: int, extent: int) -> Term:
    """So many turns of a sum, from this one on."""

    def change(access: Access) -> Access:
        base = access.base + start * access.strides[-1]
        return Access(access.array, base, access.strides, access.table, access.repeat)

    return Term(term.expression.map(change), (extent,), term.sign)
