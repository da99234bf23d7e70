"""Programs in turn: a native loop that runs one of several programs at each step, all on the same state.

So steps on examples of different structures follow each other without a return to Python, and parameters stay where
they are. Before a step, its program's input and scalars are copied to where that program has them; after it, its result
is copied out. A program is given by six words: the function, its memory, and places in this memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from string import Template
from typing import Any, NamedTuple

import numpy as np

from chainrule.compiler.backends.llvm.native import Native, compiled, host
from chainrule.compiler.backends.llvm.text import ELEMENTS
from chainrule.compiler.passes.program import Array

RELAY = Template("""
define void @relay(i64 %count, ptr %programs, ptr %turns, ptr %scalars, i64 %bytes, ptr %results, ptr %state) {
entry:
  br label %test
test:
  %time = phi i64 [ 0, %entry ], [ %next, %turn ]
  %more = icmp slt i64 %time, %count
  br i1 %more, label %turn, label %end
turn:
  %at = getelementptr [2 x i64], ptr %turns, i64 %time
  %k = load i64, ptr %at
  %row.at = getelementptr i64, ptr %at, i64 1
  %row = load ptr, ptr %row.at
  %program = getelementptr [6 x i64], ptr %programs, i64 %k
  %run = load ptr, ptr %program
  %memory.at = getelementptr i64, ptr %program, i64 1
  %memory = load ptr, ptr %memory.at
  %input.at = getelementptr i64, ptr %program, i64 2
  %input = load ptr, ptr %input.at
  %width.at = getelementptr i64, ptr %program, i64 3
  %width = load i64, ptr %width.at
  %own.at = getelementptr i64, ptr %program, i64 4
  %own = load ptr, ptr %own.at
  %output.at = getelementptr i64, ptr %program, i64 5
  %output = load ptr, ptr %output.at
  %offset = mul i64 %time, %bytes
  %given = getelementptr i8, ptr %scalars, i64 %offset
  call void @llvm.memcpy.p0.p0.i64(ptr %input, ptr %row, i64 %width, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %given, i64 %bytes, i1 false)
  call void %run(ptr %memory, ptr %state)
  %result = load $number, ptr %output
  %to = getelementptr $number, ptr %results, i64 %time
  store $number %result, ptr %to
  %next = add i64 %time, 1
  br label %test
end:
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
""")


class Runner(NamedTuple):
    """A program with its memory, where it has a step's numbers, and those of all its steps."""

    native: Native
    scalars: Array | None  # None if the program has none
    output: Array
    input: Array | None  # likewise
    rows: np.ndarray  # with one row of inputs per step
    numbers: np.ndarray  # of these steps among all

    def words(self, spare: np.ndarray) -> list[int]:
        """The program, as the loop is given it; scalars that it does not want go to the `spare` memory."""
        views = self.native.views
        input_at = views[self.input].ctypes.data if self.input else 0
        width = self.rows.shape[1] * self.rows.itemsize if self.input else 0
        scalars = spare if self.scalars is None else views[self.scalars]
        places = [scalars.ctypes.data, views[self.output].ctypes.data]
        return [self.native.run_address, self.native.addresses[0], input_at, width, *places]


def same_state(natives: Sequence[Native]) -> bool:
    """Whether the programs have the same state, array by array."""
    kinds = {tuple([(a.name, a.size, native.offsets[a]) for a in native.state_arrays]) for native in natives}
    return len(kinds) == 1


def relay(runners: Sequence[Runner], scalars: np.ndarray) -> np.ndarray:
    """Take a step for each row of `scalars`, on the state of the first program; one result per step."""
    first = runners[0].native
    dtype = first.element.dtype
    count, turns = len(scalars), np.zeros((len(scalars), 2), dtype=np.int64)
    for k, runner in enumerate(runners):
        assert runner.rows.dtype == dtype
        assert runner.rows.flags.c_contiguous
        turns[runner.numbers, 0] = k
        turns[runner.numbers, 1] = runner.rows.ctypes.data + runner.rows.strides[0] * np.arange(len(runner.rows))
    given, results = np.ascontiguousarray(scalars, dtype=dtype), np.empty(count, dtype=dtype)
    spare = np.empty(given.shape[1], dtype=dtype)
    programs = np.array([runner.words(spare) for runner in runners], dtype=np.int64)
    addresses = [array.ctypes.data for array in (programs, turns, given)]
    _loop(dtype.name)(count, *addresses, given.shape[1] * given.itemsize, results.ctypes.data, first.addresses[1])
    return results


class _Loop:
    """The native loop for one type of numbers."""

    def __init__(self, dtype: str) -> None:
        self.engine = compiled(RELAY.substitute(number=ELEMENTS[dtype].name), host())
        address, number = ctypes.c_void_p, ctypes.c_int64
        kinds = (number, address, address, address, number, address, address)
        self.entry = ctypes.CFUNCTYPE(None, *kinds)(self.engine.get_function_address("relay"))

    def __call__(self, *given: Any) -> None:
        self.entry(*given)


_loop = cache(_Loop)
