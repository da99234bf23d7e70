"""Compiled programs: machine code, and the memory that it runs in. The only module that imports llvmlite."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from copy import copy
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite.binding.newpassmanagers import NewPassManager

from chainrule.compiler.backends.llvm.columns import fill_text, wires
from chainrule.compiler.backends.llvm.module import MATRICES, Module
from chainrule.compiler.backends.llvm.target import Target
from chainrule.compiler.backends.llvm.text import ELEMENTS
from chainrule.compiler.backends.memory import zeros
from chainrule.compiler.backends.protocol import Columns, Results, Rows
from chainrule.compiler.passes.program import Array, ArrayProgram


class Native:
    """A compiled array program, with the memory that it works in: an `ArrayBackend`."""

    reads_columns = True

    def __init__(self, program: ArrayProgram, dtype: str = "float64", target: Target | None = None) -> None:
        self.element = ELEMENTS[dtype]
        target = target or host()
        module = Module(program, self.element, target)
        self.offsets, self.tables = module.offsets, module.tables
        self.state_arrays, self.sizes = module.state, (module.size, module.state_size)
        self.engine = compiled(str(module), target)
        address, number = ctypes.c_void_p, ctypes.c_int64
        self.run_address = self.engine.get_function_address("run")
        self.entry = ctypes.CFUNCTYPE(None, address, address)(self.run_address)
        matrices = (address, number, number) * len(MATRICES)
        drive = ctypes.CFUNCTYPE(None, address, address, number, *matrices, number, address, address, number)
        self.drive = drive(self.engine.get_function_address("drive"))
        self._allocate()

    def twin(self) -> Native:
        other = copy(self)
        other._allocate()
        return other

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def _allocate(self) -> None:
        self.memory, self.state = [zeros(size, self.element.dtype) for size in self.sizes]
        blocks = dict.fromkeys(self.offsets, self.memory) | dict.fromkeys(self.state_arrays, self.state)
        self.views = {array: blocks[array][o : o + array.size] for array, o in self.offsets.items()}
        self.address = self.memory.ctypes.data
        self.addresses = self.address, self.state.ctypes.data

    def run(self) -> None:
        self.entry(*self.addresses)

    def run_many(self, count: int, rows: Rows, output: Array, summed: Array | None, section: int) -> Results:
        columns = {leaf: given for leaf, given in rows.items() if isinstance(given, Columns)}
        others = {leaf: matrix for leaf, matrix in rows.items() if leaf not in columns}
        given = {leaf: np.ascontiguousarray(matrix, dtype=self.element.dtype) for leaf, matrix in others.items()}
        copied = {leaf: m for leaf, m in given.items() if not np.may_share_memory(m, self.views[leaf])}
        results = np.empty((count, output.size), dtype=self.element.dtype)
        size = summed.size if summed and count > 1 else 0  # those of one run are in the memory
        sums = np.zeros((-(-count // section), self.element.padded(size)))
        places = [*self._matrices(copied), *self._matrices({output: results})[:3]]
        places += [sums.ctypes.data, sums.shape[1], self.offsets[summed] if summed else 0]
        fill, words, place = self._brought(columns)
        self.drive(*self.addresses, count, *places, section, fill and fill.address, words.ctypes.data, place)
        if summed and count == 1:
            return results, self.views[summed].reshape(1, -1).astype(np.float64)
        return results, sums[:, :size]

    def _brought(self, columns: Mapping[Array, Columns]) -> tuple[_Fill | None, np.ndarray, int]:
        """The code that brings inputs before each run, its wires, and where they go; None if there are no columns."""
        for leaf, given in columns.items():  # one at most
            assert leaf not in self.state_arrays
            assert len(given.wiring.which) * given.room <= leaf.size
            return _fill(self.element.dtype.name, given.matrices[0].dtype.name), wires(given), self.offsets[leaf]
        return None, np.zeros(0), 0

    def _matrices(self, matrices: Rows) -> list[int | None]:
        """For each of two matrices: its address, its width, and where in memory the array is."""
        assert not any(array in self.state_arrays for array in matrices)  # which is nothing that `drive` copies
        found = [n for array, rows in matrices.items() for n in (rows.ctypes.data, rows.shape[1], self.offsets[array])]
        return [*found, *[None, 0, 0] * 2][:6]


@cache
def host() -> Target:
    """This processor."""
    return Target.of(llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


class _Fill:
    """The code that brings inputs of the type `given` to programs on the type `own`."""

    def __init__(self, own: str, given: str) -> None:
        self.engine = compiled(fill_text(own, given), host())
        self.address = self.engine.get_function_address("fill")


_fill = cache(_Fill)


def assembly(program: ArrayProgram, dtype: str, target: Target) -> str:
    """The machine code of a program for any processor, as text."""
    module, machine = optimized(str(Module(program, ELEMENTS[dtype], target)), target)
    return str(machine.emit_assembly(module))


def compiled(text: str, target: Target) -> Any:
    """Machine code for this processor."""
    engine = llvm.create_mcjit_compiler(*optimized(text, target))
    engine.finalize_object()
    return engine


def optimized(text: str, target: Target) -> tuple[Any, Any]:
    """The module, and the machine that writes its code."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3
    )
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False  # done here, on the axis that we chose
    options.slp_vectorization = False
    options.loop_unrolling = False  # likewise: by tiles, and sums of few terms are written out
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    NewPassManager._dispose(passes)  # llvmlite's own object inherits a disposal that does nothing
    return module, machine
