"""Inputs that are read example by example, as they lie in the caller's array, and are not turned round.

i<100,j<50: v0[i+104j] = parameter[784+785j] + Σk<784 parameter[785j+k]·input[i+104k]
i<50,j<784: dparameter[785i+j] += Σk<100 dv0[104i+k]·input[104j+k]

i<100,j<50: v0[i+104j] = parameter[784+785j] + Σk<784 parameter[785j+k]·rows0[784i+k]
i<50,j<784: dparameter[785i+j] += Σk<100 dv0[104i+k]·rows0[j+784k]

A program wants the same number of neighbouring examples side by side (see `columns`). But where it goes through many
numbers of an example, as in the products of a layer, these are side by side as well. `rows0` are the numbers of the
first argument, a row for each example. Numbers that are read together go one way; they are left in their rows unless
that takes more than to turn them round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from chainrule.compiler.backends.llvm.lanes import cost
from chainrule.compiler.backends.protocol import ROWS, Wiring
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Repeat, Shape, Statement, span

LEAST = 8  # numbers of a row: fewer are turned round faster than they are copied, where they must be
TURN = 0.5  # what it costs to turn a number round, in instructions on eight lanes


class _Read(NamedTuple):
    """An access to inputs: the first number and the last that it reads, and the same in a row if that can be."""

    access: Access
    first: int
    last: int
    in_row: Access | None


class _Inputs:
    """The inputs of a batch, which lie in columns: `room` examples side by side, of which `examples` are there."""

    def __init__(self, leaf: Array, wiring: Wiring) -> None:
        self.leaf, self.wiring = leaf, wiring
        self.room, self.examples = leaf.size // len(wiring.which), leaf.examples
        self.rows: dict[int, Array] = {}  # by the matrix that they are of

    def read(self, access: Access, loops: Shape, step: Statement | Repeat) -> _Read:
        """What an access in a step reads."""
        start, stop = span(access, loops, step.count)
        first, last = start // self.room, (stop - 1) // self.room
        fits = access.table is None and not access.repeat and isinstance(step, Statement)
        return _Read(access, first, last, self._in_row(access, loops, first, last) if fits else None)

    def _in_row(self, access: Access, loops: Shape, first: int, last: int) -> Access | None:
        """The same elements in rows; None if they are of several matrices, or no stride says where they are."""
        number, example = divmod(access.base, self.room)
        low, high, moves = example, example, []
        for stride, extent in zip(access.strides, loops, strict=True):
            step = (stride + self.room // 2) % self.room - self.room // 2  # from one example to another
            low, high = low + min(0, step * (extent - 1)), high + max(0, step * (extent - 1))
            moves.append((step, (stride - step) // self.room))
        which, column = (part[first : last + 1] for part in (self.wiring.which, self.wiring.column))
        if low < 0 or high >= self.examples or (which != which[0]).any() or (np.diff(column) != 1).any():
            return None
        width, matrix = self.wiring.widths[which[0]], int(which[0])
        array = self.rows.get(matrix) or Array(f"{ROWS}{matrix}", width * self.examples, "input", None, self.examples)
        self.rows[matrix] = array
        base = example * width + int(self.wiring.column[number])
        return Access(array, base, [step * width + numbers for step, numbers in moves])


Readers = dict[Statement, list[_Read]]  # what statements read


def in_place(program: ArrayProgram, wiring: Wiring) -> ArrayProgram:
    """The program with inputs in their rows where that pays: leaves of the kinds `rows0`, …, by the argument."""
    leaf = program.leaves.get("input")
    if leaf is None or not leaf.examples:
        return program
    inputs = _Inputs(leaf, wiring)
    chosen: dict[Statement, Statement] = {}
    for numbers, readers in _together(_readers(program, inputs)).items():
        before = {statement: chosen.get(statement, statement) for statement in readers}
        after = {statement: _changed(before[statement], reads) for statement, reads in readers.items()}
        turning = TURN * len(numbers) * inputs.examples
        can = len(numbers) >= LEAST and all(read.in_row for reads in readers.values() for read in reads)
        if can and sum(map(cost, after.values())) <= sum(map(cost, before.values())) + turning:
            chosen |= after
    found = program.rewritten(lambda statement: chosen.get(statement, statement), {})
    read = {access.array for statement in chosen.values() for access in statement.accesses()}
    found.leaves |= {array.name: array for array in inputs.rows.values() if array in read}
    return found


def _readers(program: ArrayProgram, inputs: _Inputs) -> Readers:
    """The statements that read inputs."""
    found: Readers = {}
    for step in program.steps:
        for statement in step.body:
            pairs = [pair for pair in statement.accesses_in_loops() if pair[0].array is inputs.leaf]
            if pairs:
                found[statement] = [inputs.read(*pair, step) for pair in pairs]
    return found


def _together(readers: Readers) -> dict[range, Readers]:
    """What is read of the numbers that are read together, which are spans that have none in common."""
    spans: list[range] = []
    for first, last in sorted((read.first, read.last) for reads in readers.values() for read in reads):
        if spans and first < spans[-1].stop:
            spans[-1] = range(spans[-1].start, max(last + 1, spans[-1].stop))
        else:
            spans.append(range(first, last + 1))
    found: dict[range, Readers] = {numbers: {} for numbers in spans}
    for numbers, own in found.items():
        for statement, reads in readers.items():
            if part := [read for read in reads if read.first in numbers]:
                own[statement] = part
    return found


def _changed(statement: Statement, reads: Sequence[_Read]) -> Statement:
    """The statement that reads these elements from rows, where that can be."""
    rows = {id(read.access): read.in_row for read in reads if read.in_row}
    return statement.map(lambda access: rows.get(id(access), access))


def spans_of(program: ArrayProgram, leaf: Array) -> list[tuple[int, int]]:
    """Where the parts of an array begin and end that the program's accesses touch."""
    pairs = [(pair, step.count) for step in program.steps for s in step.body for pair in s.accesses_in_loops()]
    return [span(*pair, count) for pair, count in pairs if pair[0].array is leaf]
