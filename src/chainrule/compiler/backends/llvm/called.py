"""Compiled programs that XLA calls on a CPU, in the place of code of its own: what its `handler` is told of them.

A program runs in a block of memory that is its own, with its constants in it. A description says what is copied into
that from XLA's arrays, whether the program runs once or many times, and what is copied back.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from chainrule.compiler.backends.llvm.handler import FIELDS, FREE, KEY, REMEDY, WORD, address_of, pin, unpin
from chainrule.compiler.backends.llvm.native import Native
from chainrule.compiler.backends.protocol import KEPT
from chainrule.compiler.passes.program import Array, ArrayProgram

EXECUTABLES = FIELDS.index("executables")  # how many XLA has
NO_MATRIX = {"first": -1, "second": -1}


class Copy(NamedTuple):
    """An array of a program that is copied from an operand, or to a result, from element `start` of that on."""

    buffer: int
    start: int
    array: Array


class Called:
    """A compiled array program that XLA can call, in as many threads at once as it likes.

    `places` says for each leaf that the layout has moved where its elements are.
    """

    def __init__(self, program: ArrayProgram, dtype: str, places: Mapping[Array, np.ndarray]) -> None:
        self.native = Native(program, dtype)
        self.dtype, self.size = np.dtype(dtype), self.native.size
        self._tables = {array: np.ascontiguousarray(table, dtype=np.int64) for array, table in places.items()}
        memory, state = self.native.sizes
        memory = self.native.element.padded(memory)
        self.pattern = np.zeros(memory + state, dtype)
        starts = dict.fromkeys(self.native.offsets, 0) | dict.fromkeys(self.native.state_arrays, memory)
        self.offsets = {array: starts[array] + offset for array, offset in self.native.offsets.items()}
        for array, offset in self.offsets.items():
            if array.numbers is not None:
                with np.errstate(over="ignore"):
                    self.pattern[offset : offset + array.size] = array.numbers
        self.slots = np.zeros(KEPT, np.int64)
        weakref.finalize(self, _free, self.slots).atexit = False
        self.common = {
            "size": self.pattern.nbytes,
            "state": memory * self.dtype.itemsize,
            "pattern": self.pattern.ctypes.data,
            "slots": self.slots.ctypes.data,
        }

    def once(self, inputs: Sequence[Copy], outputs: Sequence[Copy]) -> Description:
        """What XLA calls for one run."""
        return Description(self, inputs, outputs, {"entry": self.native.engine.get_function_address("run")})

    def often(
        self,
        inputs: Sequence[Copy],
        outputs: Sequence[Copy],
        rows: Sequence[tuple[Array, int]],
        output: Array,
        summed: Array | None,
        sections: int,
    ) -> Description:
        """What XLA calls for many runs; operand 1 says how many, and how many are a section (see `run_many`).

        `rows` are the leaves with a matrix of numbers, and how wide that is: operands 2 and 3. Results 1 and 2 are the
        outputs of all runs, and sums of the array `summed` for so many sections, of which each has whole cache lines.
        """
        words = {"entry": self.native.engine.get_function_address("drive"), "many": 1}
        for k, (name, (leaf, width)) in enumerate(zip(("first", "second"), rows, strict=False)):
            assert leaf not in self.native.state_arrays  # which is nothing that `drive` copies
            words |= {name: 2 + k, f"{name}_width": width, f"{name}_place": self.offsets[leaf]}
        words |= {"out_width": output.size, "out_place": self.offsets[output]}
        if summed:
            width = self.padded(summed)
            words |= {"sums_width": width, "sums_place": self.offsets[summed], "sums_bytes": 8 * width * sections}
        return Description(self, inputs, outputs, words)

    def padded(self, array: Array) -> int:
        """The numbers of an array, filled up to whole cache lines."""
        return self.native.element.padded(array.size)

    def copies(self, copies: Sequence[Copy]) -> np.ndarray:
        """What the handler copies, a row each: the buffer, where in it, where in the block, how many; and a table."""
        bytes_, rows = self.dtype.itemsize, []
        for buffer, start, array in copies:
            table = self._tables.get(array)
            count, address = (array.size, 0) if table is None else (len(table), table.ctypes.data)
            rows.append([buffer, start * bytes_, self.offsets[array] * bytes_, count, address])
        return np.array(rows, dtype=np.int64).reshape(-1, 5)


class Description:
    """A way to call a program. Its `address` is good while it exists, and after that while XLA has executables of it.

    Whoever has XLA make one must keep the description until that is done.
    """

    def __init__(
        self, called: Called, inputs: Sequence[Copy], outputs: Sequence[Copy], words: Mapping[str, int]
    ) -> None:
        self.called = called
        self.inputs, self.outputs = called.copies(inputs), called.copies(outputs)
        copied = {"inputs": self.inputs.ctypes.data, "input_count": len(inputs)}
        copied |= {"outputs": self.outputs.ctypes.data, "output_count": len(outputs)}
        known = dict.fromkeys(FIELDS, 0) | NO_MATRIX | called.common | copied | dict(words)
        self.words = np.array([known[name] for name in FIELDS], dtype=np.int64)
        self.address = self.words.ctypes.data
        parts = self.words, called, self.inputs, self.outputs
        pin(parts)
        weakref.finalize(self, _outlive, self.address, parts).atexit = False

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"machine code of chainrule belongs to the process that it was compiled in: {REMEDY}")

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the call; XLA hands them over in alphabetical order."""
        return {"key": np.int64(KEY), "program": np.int64(self.address)}


_outlived: dict[int, tuple[Any, ...]] = {}  # address of a description that is no more -> its words, and all it needs


def _outlive(address: int, parts: tuple[Any, ...]) -> None:
    """Keep what a description needs while XLA has executables of it; those that it has none of are freed."""
    _outlived[address] = parts
    for other in list(_outlived):  # some of which another thread, or a finalizer in this one, may free meanwhile
        needed = _outlived.get(other)
        if needed and not needed[0][EXECUTABLES] and _outlived.pop(other, None):
            unpin(needed)


def _free(slots: np.ndarray) -> None:
    """Free the blocks of a program that nobody can call any more."""
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address_of(FREE))
    for block in slots[slots != 0].tolist():
        free(ctypes.c_int64.from_address(block - WORD).value)
