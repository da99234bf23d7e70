"""Rows: where the numbers of examples lie, so that threads that load at the same time use different banks of memory.

Shared memory has 32 banks of four bytes. Threads that load numbers from the same bank, but not the same number, wait
for each other. So a row of all examples is a little longer than the examples are many, if these fill the banks; and
after each *run* of rows a few are left out, where loops step over runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np

from chainrule.compiler.backends.cuda.storage import pitch
from chainrule.compiler.passes.layout import split_loop
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Shape, Statement

LOADED = 16  # bytes that a thread loads at once, at most
BANKS = 8  # of that width
RUNS = (4, 8, 16, 32, 64)  # rows of a run

Touched = list[tuple[Access, Shape, int, int]]  # accesses, their loops, those of the statement, how often they happen


@dataclass(frozen=True)
class Layout:
    """The layout of an array with rows of examples: `run` rows, then some that are left out, and so on."""

    examples: int
    run: int = 0
    gap: int = 0

    def place(self, position: Any) -> Any:
        """Where the number at a position is; or a stride that leads from one number to another."""
        if self.examples == 1 and not self.run:
            return position
        row, example = position // self.examples, position % self.examples
        if self.run:
            row = row // self.run * (self.run + self.gap) + row % self.run
        return row * pitch(self.examples) + example

    def fits(self, touched: Touched) -> bool:
        """Whether no access moves from one run to the next by steps that are no runs, once loops are split."""
        return all(self._stays(*each) for each in touched)

    def inner(self, stride: int, extent: int) -> int:
        """How many turns of a loop stay in a run, if it goes through several, run after run; else 0."""
        rows = stride // self.examples
        if not self.run or stride % self.examples or rows <= 0 or rows >= self.run or self.run % rows:
            return 0
        turns = self.run // rows
        return turns if extent > turns and extent % turns == 0 else 0

    def _stays(self, access: Access, loops: Shape, own: int, count: int) -> bool:
        moves = [(access.repeat, count)]
        if access.table is None:
            for d, (stride, extent) in enumerate(zip(access.strides, loops, strict=True)):
                turns = self.inner(stride, extent) if d < own else 0
                moves += [(stride, turns or extent)] if extent > 1 else []
        if any(step < 0 for step, _ in moves):
            return False
        reach = 0 if access.table is not None else access.base // self.examples % self.run
        return reach + sum(step // self.examples % self.run * (extent - 1) for step, extent in moves) < self.run

    def conflicts(self, touched: Touched) -> float:
        """How long threads wait for each other, about, if neighbouring ones take neighbouring turns of any loop."""
        wide = min(LOADED, self.examples * 4)
        total = 0.0
        for access, loops, _, count in touched:
            steps = [self.place(s) * 4 // wide for s, n in zip(access.strides, loops, strict=True) if s and n > 1]
            total += count * prod(loops) * sum(gcd(step, BANKS * LOADED // wide) for step in steps)
        return total


def in_rows(program: ArrayProgram) -> ArrayProgram:
    """The program with its examples, which lie side by side, in rows."""
    program = program.rewritten(_by_row, {})
    layouts = {array: _chosen(array, touched) for array, touched in _touched(program).items()}
    if program.output in layouts:  # which leaves the block as it is
        layouts[program.output] = Layout(program.output.examples)
    program = program.rewritten(lambda statement: _split(statement, layouts), {})
    rows = {array: _moved(array, layout) for array, layout in layouts.items()}

    def change(access: Access) -> Access:
        layout = layouts.get(access.array)
        if layout is None:
            return access
        repeat = layout.place(access.repeat)
        if access.table is not None:
            return Access(
                rows[access.array], access.base, access.strides, layout.place(np.asarray(access.table)), repeat
            )
        strides = [layout.place(stride) for stride in access.strides]
        return Access(rows[access.array], layout.place(access.base), strides, None, repeat)

    return program.rewritten(lambda statement: statement.map(change), rows)


def _touched(program: ArrayProgram) -> dict[Array, Touched]:
    found: dict[Array, Touched] = {array: [] for array in program.leaves.values() if array.examples}
    for step in program.steps:
        for statement in step.body:
            for access, loops in statement.accesses_in_loops():
                if access.array.examples:
                    found.setdefault(access.array, []).append((access, loops, len(statement.loops), step.count))
    return found


def _split(statement: Statement, layouts: Mapping[Array, Layout]) -> Statement:
    """The statement with a loop of its own for the runs of an array, where one loop goes through several."""
    for access in (statement.target, *statement.accesses()):
        if access.array in layouts and access.table is None:
            for d, (stride, extent) in enumerate(zip(access.strides, statement.loops, strict=False)):
                if turns := layouts[access.array].inner(stride, extent):
                    return _split(split_loop(statement, statement.loops, d, turns), layouts)
    return statement


def _chosen(array: Array, touched: Touched) -> Layout:
    """The layout with the fewest conflicts. Inputs are as the kernel loads them; long rows need no runs."""
    plain = Layout(array.examples)
    gap = max(1, LOADED // (4 * array.examples))
    if array.kind == "input" or pitch(array.examples) != array.examples or gap > 4:
        return plain
    rows = array.size // array.examples
    others = [Layout(array.examples, run, gap) for run in RUNS if run < rows and run % gap == 0]
    return min([plain, *(each for each in others if each.fits(touched))], key=lambda each: each.conflicts(touched))


def _moved(array: Array, layout: Layout) -> Array:
    last = layout.place(array.size - layout.examples)  # the beginning of the last row
    size = int(last) + pitch(layout.examples)
    return Array(array.name, size, array.kind, examples=array.examples)


def _by_row(statement: Statement) -> Statement:
    """The statement; if it sets a whole array to a number, in a loop through each row of examples."""
    target, examples = statement.target, statement.target.array.examples
    if not examples or statement.loops != (target.array.size,) or any(True for _ in statement.accesses()):
        return statement
    loops = target.array.size // examples, examples
    return Statement(Access(target.array, 0, (examples, 1)), loops, statement.terms, statement.accumulate)
