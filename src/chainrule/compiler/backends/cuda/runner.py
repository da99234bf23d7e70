"""Array programs on a GPU: memory there, and launches of the kernels. Numbers stay there from call to call.

`Cuda` is an `ArrayBackend` for programs of one example, or of all. Programs that were written for a block's share of a
batch run on batches of any size (`run_batch`), whose examples lie in arrays on the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Protocol

import numpy as np

from chainrule.compiler.backends.cuda.kernels import WORDS, Kernels
from chainrule.compiler.backends.cuda.printing import TEAMS
from chainrule.compiler.backends.cuda.shape import block_for, room_for
from chainrule.compiler.backends.llvm.text import ELEMENTS
from chainrule.compiler.backends.protocol import Results, Rows
from chainrule.compiler.passes.program import Array, ArrayProgram

NO_STEP = -1
Column = tuple[int, int, int]  # of an input: the address of its first number, how far apart they are, and their bytes


class Memory(Protocol):
    """Bytes on a device."""

    address: int
    bytes: int

    def write(self, array: np.ndarray, offset: int = 0) -> None:
        """Copy an array to the device."""

    def read(self, array: np.ndarray, offset: int = 0) -> None:
        """Fill an array from the device, once it has done its work."""


class Launches(Protocol):
    """The kernels of a program, ready to be launched, in as many `blocks` as the device runs at once."""

    blocks: int

    def main(self, blocks: int, *arguments: Any) -> None: ...
    def gather(self, blocks: int, *arguments: Any) -> None: ...
    def finish(self, *arguments: Any) -> None: ...


class Machinery(Protocol):
    """What kernels run on: a GPU, or a processor that plays one."""

    name: str
    shared_per_block: int
    shared_per_processor: int

    def allocate(self, size: int) -> Memory: ...
    def launches(self, kernels: Kernels) -> Launches: ...


class OnDevice:
    """The GPU of this process."""

    def __init__(self) -> None:
        from chainrule.compiler.backends.cuda.driver import device

        self.device = device()
        self.name: str = self.device.name
        self.shared_per_block, self.shared_per_processor = (
            self.device.shared_per_block,
            self.device.shared_per_processor,
        )

    def allocate(self, size: int) -> Memory:
        return self.device.allocate(size)

    def launches(self, kernels: Kernels) -> Launches:
        return _Loaded(self.device, kernels)


class _Loaded:
    def __init__(self, device: Any, kernels: Kernels) -> None:
        from chainrule.compiler.backends.cuda.ptx import ptx

        module = device.load(ptx(kernels, device.target))
        self._main, self._gather, self._finish = (module.function(name) for name in ("main", "gather", "finish"))
        self.threads = kernels.block.threads
        self.shared = kernels.storage.sizes.get("shared", 0) * kernels.element.bytes
        self.columns = -(-kernels.sums_size // 32)
        self.blocks = device.processors * max(1, self._main.blocks_per_processor(self.threads, self.shared))

    def main(self, blocks: int, *arguments: Any) -> None:
        self._main.launch(blocks, self.threads, self.shared, *arguments)

    def gather(self, blocks: int, *arguments: Any) -> None:
        self._gather.launch(self.columns, 32 * TEAMS, 0, *arguments, blocks)

    def finish(self, *arguments: Any) -> None:
        self._finish.launch(1, self.threads, 0, *arguments)


machinery: type[Machinery] = OnDevice


class Cuda:
    """A program on the GPU, with the memory that it works in: an `ArrayBackend`."""

    def __init__(self, program: ArrayProgram, dtype: str = "float64") -> None:
        self.machinery: Machinery = machinery()
        element = ELEMENTS[dtype]
        block = block_for(program, element)
        self.kernels = Kernels(program, element, block, room_for(self.machinery, block))
        self.launches = self.machinery.launches(self.kernels)
        self.dtype, self.itemsize = element.dtype, element.bytes
        self.program = program
        self.size = sum(self.kernels.memory.sizes.values())
        self.places = {array: place.offset for array, place in self.kernels.memory.places.items()}
        self._allocate()

    def twin(self) -> Cuda:
        other = copy(self)
        other._allocate()
        return other

    def _allocate(self) -> None:
        kernels = self.kernels
        self.mirror = np.zeros(self.size, self.dtype)
        away = {array: np.zeros(0, self.dtype) for array in (self.program.output, *self.program.leaves.values())}
        here = {a: self.mirror[o : o + a.size] for a, o in self.places.items()}
        self.views: Mapping[Array, np.ndarray] = {**away, **here}  # examples are elsewhere
        self.memory = self.machinery.allocate(max(1, self.size) * self.itemsize)
        sizes, blocks = kernels.storage.sizes, self.launches.blocks if kernels.has_examples else 0
        self.scratch = self.machinery.allocate(max(4, sizes.get("scratch", 0) * blocks) * self.itemsize)
        self.rows = self.machinery.allocate(max(4, kernels.sums_size * blocks) * self.itemsize)
        self.table = self.machinery.allocate(8 * max(1, WORDS * self._inputs()))
        self._columns: Sequence[Column] = ()

    def _inputs(self) -> int:
        leaf = self.program.leaves.get("input")
        return leaf.size // leaf.examples if leaf is not None and leaf.examples else 0

    def run(self) -> None:
        self.memory.write(self.mirror)
        self.launches.finish(self.memory, self.rows, self.rows, NO_STEP)
        self.memory.read(self.mirror)

    def run_many(self, count: int, rows: Rows, output: Array, summed: Array | None, section: int) -> Results:
        results = np.empty((count, output.size), self.dtype)
        sums = np.zeros((-(-count // section), summed.size if summed else 0))
        for time in range(count):
            for leaf, matrix in rows.items():
                self.views[leaf][: matrix.shape[1]] = matrix[time]
            self.run()
            results[time] = self.views[output]
            if summed:
                sums[time // section] += self.views[summed]
        return results, sums

    # Batches.

    def load(self) -> None:
        """Bring the leaves to the device."""
        self.memory.write(self.mirror[: self.kernels.sums_at])

    def launch(
        self,
        columns: Sequence[Column],
        begin: int,
        count: int,
        step: tuple[Memory, Memory, int] | None = None,
        results: Memory | None = None,
    ) -> None:
        """Start a run over the examples from `begin` to `count`; nothing is waited for.

        A `step` has rows of scalars, rows for the outputs, and the number of the row that this run takes and gives.
        """
        if columns != self._columns:
            self.table.write(np.array(columns, dtype=np.int64))
            self._columns = list(columns)
        kernels, launches = self.kernels, self.launches
        runs = -(-(count - begin) // kernels.block.examples)
        blocks = max(1, min(launches.blocks, runs))
        launches.main(blocks, self.memory, self.scratch, self.rows, self.table, results or self.rows, begin, count)
        if kernels.sums_size:
            launches.gather(blocks, self.memory, self.rows)
        launches.finish(self.memory, *(step or (self.rows, self.rows, NO_STEP)))

    def wait(self) -> None:
        """Wait until the device has done its work."""
        self.memory.read(self.mirror[:0])

    def fetch(self) -> None:
        """Bring the results to the host, and all else that the program may have written."""
        self.memory.read(self.mirror)
