"""What every backend can do. `Native`, `Xla` and `Interpreted` run array programs, `StrictMachine` single nodes.

A backend object is compiled code plus memory. The code is immutable and shared by all twins; the memory belongs to one
call at a time, so calls in different threads need different twins. Those that no call is using wait in a `Pool`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from chainrule.compiler.passes.program import Array

B = TypeVar("B", bound="Backend")
Rows = Mapping[Array, Any]  # for each leaf a matrix, with a row for each run; or `Columns`, if the backend reads them
Results = tuple[np.ndarray, np.ndarray]  # a matrix of outputs, with a row for each run; and one of sums

KEPT = max(8, os.cpu_count() or 1)  # idle machines of one program; more of them are freed
ROWS = "rows"  # with a matrix's number, the kind of the leaf that has its rows as they are
TOGETHER = (4, 2, 1)  # neighbouring numbers of an example that are read at once


class Wiring:
    """Where the numbers of an example are: for each its matrix (`which`), and its column there."""

    def __init__(self, widths: Sequence[int], used: np.ndarray) -> None:
        """For matrices of these widths; `used` are columns, counted through all of them."""
        ends = np.cumsum(widths)
        self.widths = widths
        self.which = np.searchsorted(ends, used, side="right")
        self.column = used - (ends - widths)[self.which]

    def neighbours(self, numbers: np.ndarray) -> dict[int, np.ndarray]:
        """Which of some numbers lie side by side: the first of each four, of two where there are not four, and others.

        >>> wiring = Wiring([9], np.array([0, 2, 3, 4, 5, 6, 7]))
        >>> {width: first.tolist() for width, first in wiring.neighbours(np.arange(7)).items()}
        {4: [1], 2: [5], 1: [0]}
        """
        which, column = self.which[numbers], self.column[numbers]
        follows = (np.diff(which) == 0) & (np.diff(column) == 1) & (np.diff(numbers) == 1)
        begins = np.flatnonzero(np.concatenate([[True], ~follows]))[: len(numbers)]
        lengths, found = np.diff(begins, append=len(numbers)), {}
        for width in TOGETHER:
            turns = lengths // width
            earlier = np.repeat(np.cumsum(turns) - turns, turns)
            found[width] = numbers[np.repeat(begins, turns) + width * (np.arange(len(earlier)) - earlier)]
            begins, lengths = begins + turns * width, lengths % width
        return found


class Columns(NamedTuple):
    """The inputs of many runs as the caller has them: in matrices with a row for each example."""

    matrices: Sequence[np.ndarray]  # of one type, in whose rows neighbours lie side by side
    wiring: Wiring
    firsts: range  # the number of the first example of each run
    room: int  # examples that each number has room for in memory, side by side


class Backend(Protocol):
    """Compiled code with its own memory."""

    def twin(self: B) -> B:
        """The same code with new memory. It may be made while another thread runs this one."""

    def run(self) -> None:
        """Compute all results from the leaves in memory."""


class ArrayBackend(Backend, Protocol):
    """A compiled array program."""

    reads_columns: bool  # whether it takes Columns, of matrices of float64 or float32

    @property
    def views(self) -> Mapping[Array, np.ndarray]:
        """The memory of each array; leaves are set here before a run, results are read here after it."""

    @property
    def size(self) -> int:
        """The number of elements in memory."""

    def run_many(self, count: int, rows: Rows, output: Array, summed: Array | None, section: int) -> Results:
        """Run `count` times before returning to Python.

        Before run k, each leaf in `rows` (at most two) is set to row k of its matrix, which may be shorter than the
        leaf. What a program writes to its leaves, as a training step does, is there for the next run.

        Returns a matrix with the `output` of each run, and one with the float64 sums of the array `summed` over each
        `section` consecutive runs; it has no columns if `summed` is None. Both are copies.
        """


class ColumnsBackend(ArrayBackend, Protocol):
    """One that reads columns."""

    def run_on(self, leaf: Array, columns: Columns) -> None:
        """Run once, on the inputs of one run."""


class Pool(Generic[B]):
    """Machines that no call is using: a call takes one, and gives it back when it has read its results.

    Whatever interrupts a call, be it another thread, a signal handler or a finalizer, takes another machine. A call
    that fails gives nothing back, because its machine may still be running in some thread.
    """

    def __init__(self, first: B) -> None:
        self.first = first  # the pattern for others
        self._free = [first]

    def take(self) -> B:
        """A machine that is the caller's until it is given back."""
        try:
            return self._free.pop()
        except IndexError:
            return self.first.twin()

    def give_back(self, machine: B) -> None:
        """Let others use it. The caller must have copied what it needs from the machine's memory."""
        if len(self._free) < KEPT:
            self._free.append(machine)
