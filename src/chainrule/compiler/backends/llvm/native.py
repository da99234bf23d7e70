"""Compiled programs: machine code, and the memory that it runs in. The only module that imports llvmlite."""

from __future__ import annotations

import ctypes
from copy import copy
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite.binding.newpassmanagers import NewPassManager

from chainrule.compiler.backends.llvm.columns import Lent, Place, Wires, Words, bring_text
from chainrule.compiler.backends.llvm.in_place import spans_of
from chainrule.compiler.backends.llvm.module import MATRICES, Module
from chainrule.compiler.backends.llvm.target import Target
from chainrule.compiler.backends.llvm.text import ELEMENTS
from chainrule.compiler.backends.memory import BEYOND, zeros
from chainrule.compiler.backends.protocol import ROWS, Columns, Results, Rows, Wiring
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
        self.slots, self.reach = module.slots, 0 if target.has_masks else BEYOND
        self.columns = spans_of(program, program.leaves["input"]) if self.slots else []
        self._wires: dict[Wiring, Wires] = {}
        self._latest: tuple[Any, _Bring, Words] | None = None
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
        self._latest = None
        self._own = [self.views[array].ctypes.data for array in self.slots]
        self._lent = [self.memory[slot : slot + self.element.line].view(np.int64) for slot in self.slots.values()]
        self._take_back()

    def _take_back(self) -> None:
        """Let rows of inputs be those in the program's own memory, and no longer the caller's."""
        for slot, own in zip(self._lent, self._own, strict=True):
            slot[0] = own

    def run(self) -> None:
        self.entry(*self.addresses)

    def run_on(self, leaf: Array, columns: Columns) -> None:
        bring, words = self._brought(leaf, columns)
        bring.entry(self.address + self.offsets[leaf] * self.element.bytes, words.address, 0)
        self.run()
        self._take_back()

    def run_many(self, count: int, rows: Rows, output: Array, summed: Array | None, section: int) -> Results:
        columns = [(leaf, given) for leaf, given in rows.items() if isinstance(given, Columns)]  # one at most
        others = {leaf: matrix for leaf, matrix in rows.items() if not isinstance(matrix, Columns)}
        given = {leaf: np.ascontiguousarray(matrix, dtype=self.element.dtype) for leaf, matrix in others.items()}
        copied = {leaf: m for leaf, m in given.items() if not np.may_share_memory(m, self.views[leaf])}
        results = np.empty((count, output.size), dtype=self.element.dtype)
        size = summed.size if summed and count > 1 else 0  # those of one run are in the memory
        sums = np.zeros((-(-count // section), self.element.padded(size)))
        places = [*self._matrices(copied), *self._matrices({output: results})[:3]]
        places += [sums.ctypes.data, sums.shape[1], self.offsets[summed] if summed else 0]
        brought: list[int | None] = [None, None, 0]
        for leaf, given_there in columns:
            bring, words = self._brought(leaf, given_there)
            brought = [bring.address, words.address, self.offsets[leaf]]
        self.drive(*self.addresses, count, *places, section, *brought)
        self._take_back()
        if summed and count == 1:
            return results, self.views[summed].reshape(1, -1).astype(np.float64)
        return results, sums[:, :size]

    def _brought(self, leaf: Array, columns: Columns) -> tuple[_Bring, Words]:
        """The code that brings inputs before each run, and its words."""
        wiring, element = columns.wiring, self.element
        assert leaf not in self.state_arrays
        assert len(wiring.which) * columns.room <= leaf.size
        if wiring not in self._wires:
            is_turned = np.full(len(wiring.which), not self.slots)
            for start, stop in self.columns:
                is_turned[start // columns.room : (stop - 1) // columns.room + 1] = True
            self._wires[wiring] = Wires(wiring, np.flatnonzero(is_turned))
        given = [Lent.of(matrix) for matrix in columns.matrices]
        key = wiring, columns.firsts, columns.room, given
        if self._latest is None or self._latest[0] != key:
            words = self._wires[wiring].words(columns, given, self._places(), element.dtype)
            self._latest = key, _bring(element.dtype.name, given[0].dtype.name), words
        return self._latest[1:]

    def _places(self) -> list[Place]:
        """Where rows of inputs may be."""
        found = []
        for (array, slot), own in zip(self.slots.items(), self._own, strict=True):
            matrix = int(array.name.removeprefix(ROWS))
            found.append(Place(self.address + slot * self.element.bytes, own, matrix, self.reach))
        return found

    def _matrices(self, matrices: Rows) -> list[int | None]:
        """For each of two matrices: its address, its width, and where in memory the array is."""
        assert not any(array in self.state_arrays for array in matrices)  # which is nothing that `drive` copies
        found = [n for array, rows in matrices.items() for n in (rows.ctypes.data, rows.shape[1], self.offsets[array])]
        return [*found, *[None, 0, 0] * 2][:6]


@cache
def host() -> Target:
    """This processor."""
    return Target.of(llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


class _Bring:
    """The code that brings inputs of the type `given` to programs on the type `own`."""

    def __init__(self, own: str, given: str) -> None:
        self.engine = compiled(bring_text(own, given), host())
        self.address = self.engine.get_function_address("bring")
        self.entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(self.address)


_bring = cache(_Bring)


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
