"""Staggered loops: the next turn begins before the last one has ended, where it can.

A cell of an alignment needs the cell beside it and two of the row before. So a row is a chain of cells, in each of
which a logarithm waits for an exponential. But three rows take little longer than one, if each follows the last at a
distance of one cell. A processor sees a few hundred instructions ahead, and a row is more. So three turns become one,
and its instructions are put into the order in which they can begin.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from chainrule.compiler.passes.program import Repeat
from chainrule.compiler.passes.unroll import written_out

LATENCY = {"call": 8, "fdiv": 4}  # of instructions, in additions
NAME = re.compile(r"%r\d+")


def together(step: Repeat, turns: int) -> list[Repeat]:
    """The loop with so many of its turns in one; before it, the turns that are left over."""
    over = step.count % turns
    first, rest = (0, step.count - over) if step.backward else (over, 0)
    times = range(first, first + turns)
    body = written_out(step, times[::-1] if step.backward else times, turns)
    before = [Repeat(over, list(written_out(step, range(rest, rest + 1), 1)), step.backward)] if over else []
    return [*before, Repeat(step.count // turns, list(body), step.backward)]


def scheduled(lines: Sequence[str]) -> list[str]:
    """Instructions that have no effects but their results, in the order in which they can begin.

    >>> scheduled(["%r1 = fdiv double %x, %y", "%r2 = fadd double %r1, %x", "%r3 = fadd double %x, %x"])
    ['%r1 = fdiv double %x, %y', '%r3 = fadd double %x, %x', '%r2 = fadd double %r1, %x']
    """
    ready: dict[str, int] = {}  # when results are there
    begin: list[int] = []
    for line in lines:
        result, *operands = NAME.findall(line)
        begin.append(max([ready.get(operand, 0) for operand in operands], default=0))
        ready[result] = begin[-1] + LATENCY.get(line.split()[2], 1)
    return [lines[k] for k in sorted(range(len(lines)), key=begin.__getitem__)]
