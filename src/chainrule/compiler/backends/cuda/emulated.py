"""A GPU played by a processor: the same functions, thread after thread. For tests, where there is no GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from chainrule.compiler.backends.cuda.kernels import Kernels, Printer
from chainrule.compiler.backends.llvm.native import compiled, host


class Emulated:
    """Kernels of a module. Buffers are NumPy arrays; threads run in ascending `order`, or descending (-1)."""

    def __init__(self, module: Kernels, order: int = 1) -> None:
        self.module = module
        self.engine: Any = compiled(Printer(module, False, order).text(), host())
        sizes, dtype = module.storage.sizes, module.element.dtype
        self.shared = np.full(sizes.get("shared", 0) + 4, np.nan, dtype)
        self.owns = np.zeros((module.block.threads, max(1, module.accumulators)), dtype)
        address, number = ctypes.c_void_p, ctypes.c_int64
        self.main = ctypes.CFUNCTYPE(None, *[address] * 7, *[number] * 4)(self.engine.get_function_address("main"))
        self.end = ctypes.CFUNCTYPE(None, *[address] * 5, number)(self.engine.get_function_address("finish"))

    def run(self, memory: np.ndarray, inputs: np.ndarray, results: np.ndarray, begin: int, count: int, blocks: int) -> None:
        module, dtype = self.module, self.module.element.dtype
        if module.has_examples:
            scratch = np.full(module.storage.sizes.get("scratch", 0) * blocks + 4, np.nan, dtype)
            rows = np.full((blocks, module.sums_size), np.nan, dtype)
            for block in range(blocks):
                self.shared[:] = np.nan
                self.owns[:] = 0.0
                given = [self.shared, self.owns, memory, scratch, rows, inputs, results]
                self.main(*[array.ctypes.data for array in given], begin, count, block, blocks)
            at = module.sums_at
            memory[at : at + module.sums_size] = rows.astype(np.float64).sum(axis=0)
        self.end(self.shared.ctypes.data, self.owns.ctypes.data, memory.ctypes.data)
