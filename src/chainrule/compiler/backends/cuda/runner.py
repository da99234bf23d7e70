"""Array programs on a GPU: memory there, and launches of the kernels. Numbers stay there from call to call.

`Cuda` is an `ArrayBackend` for programs of one example, or of all. Programs that were written for a block's share of a
batch run on batches of any size (`run_batch`), whose examples lie in arrays on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from chainrule.compiler.backends.cuda.kernels import WORDS, Kernels
from chainrule.compiler.backends.cuda.shape import block_for, room_for
from chainrule.compiler.backends.llvm.text import ELEMENTS
from chainrule.compiler.backends.protocol import Results, Rows
from chainrule.compiler.passes.program import Array, ArrayProgram

NO_STEP = -1  # a run that takes and gives no rows
SCRATCH = 2**31  # bytes of scratch memory, at most, unless one block needs more
Batch = tuple[int, int, int]  # the first example, the one after the last, and the number of the step
Column = tuple[int, int, int]  # of an input: the address of its first number, how far apart they are, and their bytes


class Memory(Protocol):
    """Bytes on a device."""

    address: int
    bytes: int

    def write(self, array: np.ndarray, offset: int = 0) -> None:
        """Copy an array to the device."""

    def read(self, array: np.ndarray, offset: int = 0) -> None:
        """Fill an array from the device, once it has done its work."""

    def reader(self, array: np.ndarray) -> Callable[[], None]:
        """As `read` of the whole array, to be called again and again."""


Run = tuple[int, int, int, int]  # how many blocks; the first example, the one after the last; the number of the step


class Bound(Protocol):
    """Kernels with the memory that they work in."""

    def run(self, results: Memory, given: Memory, taken: Memory, runs: Iterable[Run]) -> None:
        """Start all kernels, in order, once for each run; nothing is waited for. Rows of steps are in the last two."""

    def finish(self) -> None:
        """Start the last kernel alone, for a program that has no examples."""


class Launches(Protocol):
    """The kernels of a program, to be launched in as many `blocks` as the device runs at once."""

    blocks: int

    def bind(self, memory: Memory, scratch: Memory, rows: Memory, table: Memory) -> Bound:
        """The kernels with this memory."""


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
        self._main = module.function("main")
        self._last = module.function("gather" if kernels.sums_size else "finish")
        self.kernels, self.device = kernels, device
        self.shared = kernels.storage.sizes.get("shared", 0) * kernels.element.bytes
        occupancy = self._main.blocks_per_processor(kernels.block.threads, self.shared) if kernels.has_examples else 1
        self.blocks = device.processors * max(1, occupancy)

    def bind(self, memory: Memory, scratch: Memory, rows: Memory, table: Memory) -> Bound:
        kernels = self.kernels
        columns = -(-kernels.sums_size // 32)
        gathered = (rows, 0) if columns else ()
        return _Bound(
            self.device.current,
            self._main.prepared(kernels.block.threads, self.shared, memory, scratch, rows, table, 0, 0, 0),
            self._last.prepared(kernels.last_threads, 0, memory, *gathered, 0, 0, NO_STEP),
            columns,
        )


@dataclass
class _Bound:
    current: Any
    main: Any
    last: Any
    columns: int  # of sums, 32 in each

    def run(self, results: Memory, given: Memory, taken: Memory, runs: Iterable[Run]) -> None:
        main, last, columns = self.main, self.last, self.columns
        rows = results.address, given.address, taken.address
        with self.current:
            for blocks, begin, count, step in runs:
                main(blocks, rows[0], begin, count)
                if columns:
                    last(columns, blocks, rows[1], rows[2], step)
                else:
                    last(1, rows[1], rows[2], step)

    def finish(self) -> None:
        with self.current:
            self.last(1, 0, 0, NO_STEP)


machinery: type[Machinery] = OnDevice


class Cuda:
    """A program on the GPU, with the memory that it works in: an `ArrayBackend`."""

    reads_columns = False

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
        scratch = kernels.storage.sizes.get("scratch", 0) * self.itemsize
        self.blocks = max(1, min(self.launches.blocks, SCRATCH // max(1, scratch)))
        blocks = self.blocks if kernels.has_examples else 0
        self.scratch = self.machinery.allocate(max(4 * self.itemsize, scratch * blocks))
        self.rows = self.machinery.allocate(max(4, kernels.sums_size * blocks) * self.itemsize)
        self.table = self.machinery.allocate(8 * max(1, WORDS * self._inputs()))
        self.bound = self.launches.bind(self.memory, self.scratch, self.rows, self.table)
        self.fetch = self.memory.reader(self.mirror)  # brings all to the host that the program may have written
        self._columns: Sequence[Column] = ()
        self._step_rows: list[Memory] = []

    def _inputs(self) -> int:
        leaf = self.program.leaves.get("input")
        return leaf.size // leaf.examples if leaf is not None and leaf.examples else 0

    def run(self) -> None:
        self.memory.write(self.mirror)
        self.bound.finish()
        self.fetch()

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

    def launch(self, columns: Sequence[Column], count: int, results: Memory | None = None) -> None:
        """Start a run over the first `count` examples; nothing is waited for. `results` are for those of each."""
        if columns is not self._columns:
            self._describe(columns)
        rows = self.rows
        self.bound.run(results or rows, rows, rows, ((self._blocks_for(count), 0, count, NO_STEP),))

    def launch_steps(self, columns: Sequence[Column], batches: Iterable[Batch], given: Memory, taken: Memory) -> None:
        """Start a run for each of these batches, one after the other; nothing is waited for.

        A step takes a row of scalars out of those `given`, and puts its output in a row of those `taken`.
        """
        if columns is not self._columns:
            self._describe(columns)
        runs = [(self._blocks_for(stop - first), first, stop, step) for first, stop, step in batches]
        self.bound.run(self.rows, given, taken, runs)

    def _blocks_for(self, count: int) -> int:
        return max(1, min(self.blocks, -(-count // self.kernels.block.examples)))

    def _describe(self, columns: Sequence[Column]) -> None:
        """Tell the device where the numbers of the inputs are; `columns` must not be changed afterwards."""
        if columns != self._columns:
            self._columns = ()
            self.table.write(np.array(columns, dtype=np.int64))
        self._columns = columns

    def step_rows(self, *sizes: int) -> list[Memory]:
        """Memory for the rows of steps, at least as large as asked for; the same as before if that is large enough."""
        if any(have.bytes < size for have, size in zip(self._step_rows, sizes, strict=False)) or not self._step_rows:
            self._step_rows = [self.machinery.allocate(max(1, size)) for size in sizes]
        return self._step_rows

    def wait(self) -> None:
        """Wait until the device has done its work."""
        self.memory.read(self.mirror[:0])
