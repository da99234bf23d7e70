"""Costs: about how long a statement takes if it is dealt to threads in some way.

What counts most is the path to shared memory, so the addresses of a warp's loads are computed, and their wavefronts
counted; then the instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from chainrule.compiler.backends.cuda.banks import WARP, WORD, wavefronts
from chainrule.compiler.passes.program import Access, Shape, Statement, Term

if TYPE_CHECKING:
    from chainrule.compiler.backends.cuda.dealing import Deal, SumDeal

SCHEDULERS = 4  # of a processor, each of which starts an instruction per cycle

Lanes = Sequence[Mapping[int, int]]  # the turns of loops that each thread of a warp begins with; others at 0


def cost(statement: Statement, given: Deal, size: int) -> float:
    """Of a statement, in cycles of a processor: wavefronts, and half of the instructions, which overlap with them."""
    waves = instructions = 0
    lanes = [given.first(number) for number in range(min(WARP, given.count))]
    for term in statement.terms:
        loops = statement.loops + term.loops
        for access in _operands(term):
            turns = prod(n for n, stride in zip((*given.tile, *term.loops), access.strides, strict=True) if stride)
            together = _in_tile(access, given) or _in_last_loop(access, loops, term, size)
            waves += turns // together * _wavefronts(access, lanes, together, size)
            instructions += turns // together
        instructions += prod(given.tile) * prod(term.loops)
    warps = -(-given.count // WARP)
    return warps * waves + -(-warps // SCHEDULERS) * instructions / 2


def cost_of_sum(statement: Statement, given: SumDeal, size: int) -> int:
    """Of what the first warp loads for one turn of a sum over examples, in wavefronts."""
    outputs, waves = given.outputs, 0
    along = len(statement.loops) + given.along
    teams = [given.team(thread) for thread in range(WARP)]
    lanes = [{**outputs.first(tile), along: group * given.chunk} for tile, group in teams if group < given.groups]
    for term in statement.terms:
        for access in _operands(term):
            loads = prod(n for n, stride in zip(outputs.tile, access.strides, strict=False) if stride)
            together = _in_last_loop(access, statement.loops + term.loops, term, size)
            waves += loads * _wavefronts(access, lanes, together, size)
    return waves


def _operands(term: Term) -> Iterable[Access]:
    """What a term loads, each once; where tables lead is not known."""
    found = {(a.array, a.base, a.strides, a.repeat): a for a in term.expression.accesses() if a.table is None}
    return found.values()


def _in_tile(access: Access, given: Deal) -> int:
    """How many numbers of a tile's neighbouring turns are loaded at once; 0 if they are not."""
    fast = given.fast
    return given.tile[fast] if fast is not None and access.strides[fast] == 1 and given.tile[fast] > 1 else 0


def _in_last_loop(access: Access, loops: Shape, term: Term, size: int) -> int:
    """How many numbers of neighbouring turns of a reduction are loaded at once."""
    wide = 16 // size
    if not term.loops or access.strides[-1] != 1 or loops[-1] % wide:
        return 1
    return 1 if any(step % wide for step in (access.base, *access.strides[:-1])) else wide


def _wavefronts(access: Access, lanes: Lanes, together: int, size: int) -> int:
    strides = dict(enumerate(access.strides))
    places = [sum(strides.get(d, 0) * turn for d, turn in lane.items()) * size // WORD for lane in lanes]
    return wavefronts(places, together * size // WORD)
