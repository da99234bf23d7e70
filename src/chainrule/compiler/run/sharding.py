"""Batches over many devices: each runs the program on its share of the examples, and XLA adds the sums.

    examples ──rows over the mesh──► the program of some examples, run after run, on each device ──psum──► sums

Parameters are on every device. The devices may belong to many processes, on many machines, that `jax.distributed` has
connected: each process is given all examples and sends its own devices their rows. A batch that does not divide evenly
is filled up with copies of its last example, which a mask keeps out of the sums.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from chainrule.compiler.backends.array_ops import Numbers
from chainrule.compiler.backends.xla.loops import computation
from chainrule.compiler.backends.xla.precision import precision
from chainrule.compiler.backends.xla.primitive import Computation
from chainrule.compiler.backends.xla.statements import apply
from chainrule.compiler.passes.batch import batched
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.layout import padded
from chainrule.compiler.passes.program import ArrayProgram
from chainrule.compiler.run.arguments import Examples, Traces
from chainrule.compiler.run.machine import narrowed, places
from chainrule.compiler.run.paths import Paths
from chainrule.compiler.run.traced import Source, Traced
from chainrule.compiler.run.turns import Turn, add_to_grad, compiling
from chainrule.core.bulk import read_data, write_data
from chainrule.core.structure import batch_of
from chainrule.core.value import Value
from chainrule.optim import Optimizer

MESH = "a mesh of devices"
LOST = (
    "a process of this run has ended, or cannot be reached any more ({}): this one cannot go on without it. "
    "Start all processes again; a run with `checkpoint` goes on from there with `resume=True`"
)


class ShardedFunction:
    """A compiled function whose batches are spread over the devices of a mesh; `program.shard(mesh)` makes one.

    Every process of a run makes the same calls with the same arguments, and gets the same results.

    >>> from chainrule import compile
    >>> w = Value(3.0)
    >>> program = compile(lambda x: w * x, backend="jax").shard("all")
    >>> program.batch([1.0, 2.0, 6.0]), w.grad, program.batch_value_and_grad([1.0, 5.0])
    (9.0, 3.0, (9.0, array([3.])))
    """

    def __init__(self, traces: Traces, mesh: Any) -> None:
        self.devices, self._traces, self._dtype = Devices(mesh), traces, np.dtype(traces.source.dtype)
        self._programs: dict[Any, Executable] = {}

    def batch(self, *arrays: Any, reduce: str | None = "mean") -> Any:
        """The mean or sum of the results for many examples; adds its gradient to `wrt` as `backward()` would.

        With `reduce=None`: the result for each example, and no gradient.
        """
        if reduce is None:
            paths, examples = self._traces.on_examples(arrays)
            traced = paths.unbranched(MESH)
            (rows,) = self._run(results, traced, examples)
            return batch_of(traced.result, rows[: examples.count])
        paths, examples, divisor = self._traces.to_reduce(arrays, reduce)
        value, gradient = self._sum_and_grad(paths, examples, divisor)
        add_to_grad(paths.unbranched(MESH).wrt, gradient)
        return value

    def batch_value_and_grad(self, *arrays: Any, reduce: str = "mean") -> tuple[float, np.ndarray]:
        """As `batch`: the mean or sum of the results, and its gradient with respect to `wrt`; changes no Value."""
        return self._sum_and_grad(*self._traces.to_reduce(arrays, reduce))

    def __repr__(self) -> str:
        return f"<ShardedFunction {self._traces.source.name} on {self.devices}>"

    def _sum_and_grad(self, paths: Paths, examples: Examples, divisor: int) -> tuple[float, np.ndarray]:
        traced = paths.unbranched(MESH)
        traced.check_scalar()
        value, gradient = self._run(sums, traced, examples)
        return float(value) / divisor, traced.order(np.asarray(gradient), divisor)

    def _run(self, make: Callable[..., Any], traced: Traced, examples: Examples) -> list[np.ndarray]:
        """The results of the program that `make` builds, for these examples."""
        devices, layout = self.devices, Layout.of(examples.count, self.devices.count, traced.most_examples)
        key = make, traced, layout
        if key not in self._programs:
            with compiling(traced.source):
                if key not in self._programs:
                    traced.source.count_program(traced.structure, examples.count, traced.took_gradient)
                    self._programs[key] = Executable(make(traced, layout, devices))
        with precision(self._dtype):
            leaves = {k: devices.everywhere(_data(v), self._dtype) for k, v in traced.captured.items()}
            rows, mask = layout.placed(examples.matrix(), np.arange(examples.count), devices, self._dtype)
            found = devices.run(self._programs[key], leaves, rows, mask)
            return [here(array).astype(np.float64) for array in found]


class ShardedSteps:
    """Steps of `optimizer` on the mean over a batch of `loss`, a function of one example, on every device alike.

    Parameters and the optimizer's slots are on the devices from the first step until `store`, which writes them to the
    Values and the optimizer. Other Values that the loss captures are read at every step.
    """

    def __init__(
        self, loss: Callable[..., Any], arrays: Sequence[Any], optimizer: Optimizer, devices: Devices, dtype: str
    ) -> None:
        if type(optimizer).step is not Optimizer.step:
            raise ValueError(
                f"`optimizer` has a `step` of its own, and steps on a `mesh` apply its rule alone: write "
                f"{type(optimizer).__name__} as an `update`, or leave `mesh` out"
            )
        self.optimizer, self.devices, self.dtype = optimizer, devices, np.dtype(dtype)
        self.places = [k for k, parameter in enumerate(optimizer.parameters) if parameter.requires_grad]
        self.parameters = [optimizer.parameters[k] for k in self.places]
        self.names = list(optimizer.scalars())
        traces = Traces(Source(loss, self.parameters, "jax", dtype))
        paths, examples = traces.on_examples(arrays, ("data.inputs", "data.targets"))
        self.traced = paths.unbranched(MESH)
        self.traced.check_scalar()
        self.matrix: np.ndarray = examples.matrix()
        self._programs: dict[int, tuple[Layout, Executable]] = {}  # by the size of the batch
        self._numbers = np.zeros(0)  # of the examples that were last
        self._batch: tuple[Any, Any] = ()  # type: ignore[assignment]  # these, on the devices
        self._state: list[Any] = []  # on the devices: the parameters, and the optimizer's slots

    def run(self, numbers: Sequence[int], size: int) -> list[float]:
        """Take a step on each `size` of the examples with these numbers; the loss of each, before its update."""
        return [self.step(numbers[start : start + size]) for start in range(0, len(numbers), size)]

    def step(self, numbers: Sequence[int]) -> float:
        """Take a step on the examples of these numbers; the loss before it."""
        if len(numbers) not in self._programs:
            self._programs[len(numbers)] = self._program(len(numbers))
        layout, program = self._programs[len(numbers)]
        scalars, placed = self.optimizer.scalars(), partial(self.devices.everywhere, dtype=self.dtype)
        with precision(self.dtype):
            if not self._state:
                columns = [np.array(self.optimizer.buffers[slot])[self.places] for slot in self.optimizer.slots]
                self._state = [placed(column) for column in (_data(self.parameters), *columns)]
            if not np.array_equal(numbers, self._numbers):
                self._numbers = np.array(numbers)
                self._batch = layout.placed(self.matrix, self._numbers, self.devices, self.dtype)
            captured = placed(_data(self.traced.captured["captured"]))
            row = placed(np.array([scalars[name] for name in self.names]))
            loss, *self._state = self.devices.run(program, self._state, captured, row, *self._batch)
        self.optimizer.steps += 1
        return float(here(loss))

    def store(self) -> None:
        """Write what the steps have changed to the Values and the optimizer."""
        if not self._state:
            return
        parameters, *columns = [here(array).astype(np.float64) for array in self._state]
        write_data(self.parameters, parameters)
        for slot, numbers in zip(self.optimizer.slots, columns, strict=True):
            np.asarray(self.optimizer.buffers[slot])[self.places] = numbers
        self._state = []

    def _program(self, count: int) -> tuple[Layout, Executable]:
        traced = self.traced
        layout = Layout.of(count, self.devices.count, traced.most_examples)
        sum_up = sums(traced, layout, self.devices)
        used = places(traced.captured["parameter"], self.parameters)

        def step(state: list[Any], captured: Any, row: Any, rows: Any, mask: Any) -> list[Any]:
            parameters, *slots = state
            value, gradient = sum_up({"parameter": parameters[used], "captured": captured}, rows, mask)
            gradient = jnp.append(gradient, jnp.zeros(1, gradient.dtype))[traced.order.places] / count
            before = [Numbers(array, apply) for array in (parameters, gradient, *slots)]
            scalars = {name: Numbers(row[k], apply) for k, name in enumerate(self.names)}
            after = self.optimizer.update(*before, **scalars)
            changed = [a.array if isinstance(a, Numbers) else jnp.full_like(parameters, a) for a in after]
            return [value / count, *changed]

        return layout, Executable(step)


@dataclass(frozen=True)
class Layout:
    """How a batch lies on the devices: on each the same number of examples, as `runs` of the same `size`."""

    devices: int
    runs: int
    size: int

    @classmethod
    def of(cls, count: int, devices: int, most: int) -> Layout:
        """For a batch of `count`, on devices that compute at most `most` examples at a time."""
        share = -(-count // devices)
        runs = -(-share // most)
        return cls(devices, runs, -(-share // runs))

    def placed(self, matrix: np.ndarray, numbers: np.ndarray, devices: Devices, dtype: Any) -> tuple[Any, Any]:
        """On the devices: the rows with these `numbers`, the last repeated as filling, and a mask of the real ones."""
        total = self.devices * self.runs * self.size

        def rows(index: tuple[slice, ...]) -> np.ndarray:
            chosen = numbers[np.arange(total)[index[0]].clip(max=len(numbers) - 1)]
            return narrowed(matrix[chosen], dtype)

        mask = (np.arange(total) < len(numbers)).astype(dtype)
        placed = jax.make_array_from_callback((total, matrix.shape[1]), devices.by_rows, rows)
        return placed, jax.make_array_from_callback((total,), devices.by_rows, lambda index: mask[index])

    def by_run(self, rows: Any, mask: Any) -> tuple[Any, Any]:
        """One device's share, run by run."""
        return rows.reshape(self.runs, self.size, -1), mask.reshape(self.runs, self.size)


class Executable:
    """A function that XLA compiles at its first call, for arguments like those."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.jitted = jax.jit(function, **options)
        self.compiled: Callable[..., Any] | None = None

    def for_arguments(self, *given: Any) -> Callable[..., Any]:
        """The compiled code; calling it raises only what goes wrong while it runs."""
        if self.compiled is None:
            self.compiled = self.jitted.lower(*given).compile()
        return self.compiled


class Devices:
    """The devices of a mesh, and the processes that they belong to. `mesh` is a jax.sharding.Mesh, or "all"."""

    def __init__(self, mesh: Any) -> None:
        if isinstance(mesh, str) and mesh == "all":
            mesh = Mesh(np.array(jax.devices()), ("examples",))
        if not isinstance(mesh, Mesh):
            raise TypeError(f"`mesh` must be a jax.sharding.Mesh, or 'all' for all devices; got {mesh!r}")
        self.mesh, self.count = mesh, int(mesh.size)
        self.processes, self.process = int(jax.process_count()), int(jax.process_index())
        self.leads = self.process == 0  # the one that writes and prints
        if self.process not in {device.process_index for device in mesh.devices.flat}:
            remedy = "make it of jax.devices(), those of all processes, or say mesh='all'"
            raise ValueError(f"`mesh` has no device of process {self.process}: {remedy}")
        self.by_rows = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        self.whole = NamedSharding(mesh, PartitionSpec())

    def everywhere(self, numbers: np.ndarray, dtype: Any) -> Any:
        """An array on every device."""
        array = narrowed(numbers, dtype)
        return jax.make_array_from_callback(array.shape, self.whole, lambda index: array[index])

    def on_each(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function(leaves, rows, mask)` on every device, with all leaves and its own rows; results must be equal."""
        whole, rows = self.whole.spec, self.by_rows.spec
        return jax.shard_map(function, mesh=self.mesh, in_specs=(whole, rows, rows), out_specs=whole, check_vma=False)  # type: ignore[no-any-return]

    def run(self, program: Executable, *given: Any) -> Any:
        """Run a program, and wait for its results."""
        with Turn("run", list(self.mesh.devices.flat)):  # two programs at once would wait for each other forever
            execute = program.for_arguments(*given)
            try:
                return jax.block_until_ready(execute(*given))
            except Exception as error:
                if self.processes == 1 or "RESOURCE_EXHAUSTED" in str(error):  # this device's memory
                    raise
                raise ConnectionError(LOST.format(str(error).partition("\n")[0])) from error

    def __repr__(self) -> str:
        return f"{_some(self.count, 'device')} of {_some(self.processes, 'process')}"

    # Between processes.

    def total(self, numbers: np.ndarray) -> np.ndarray:
        """The sum of what each process passes."""
        shape = (self.count, numbers.size)
        parts = self.by_rows.addressable_devices_indices_map(shape)
        first = min(index[0].start or 0 for index in parts.values())

        def rows(index: tuple[slice, ...]) -> np.ndarray:
            own = (index[0].start or 0) == first
            return numbers.reshape(1, -1).astype(np.int32) if own else np.zeros((1, numbers.size), np.int32)

        given = jax.make_array_from_callback(shape, self.by_rows, rows)
        add_up = Executable(lambda rows: rows.sum(0, dtype=jnp.int32), out_shardings=self.whole)
        return here(self.run(add_up, given)).reshape(numbers.shape)

    def agree(self, contents: Mapping[str, Callable[[], bytes]]) -> None:
        """Refuse to go on unless all processes have the same `contents`, by name."""
        if self.processes == 1:
            return
        digests = np.zeros((len(contents), self.processes), np.int32)
        for k, content in enumerate(contents.values()):
            digests[k, self.process] = int.from_bytes(hashlib.sha256(content()).digest()[:4], "big") >> 1
        for name, row in zip(contents, self.total(digests), strict=True):
            for other in np.flatnonzero(row != row[0]):
                other_than = f"process {other} has other {name} than process 0"
                raise ValueError(f"{other_than}: every process must be given the same data and the same seeds")

    @contextmanager
    def file(self, path: str) -> Iterator[str | None]:
        """The file at `path` on the machine of process 0, None if there is none; other processes get a copy to read."""
        content, found = np.zeros(0, np.uint8), self.leads and os.path.lexists(path)
        if found and self.processes > 1 and os.path.isfile(path):
            content = np.fromfile(path, np.uint8)
        found, size = self.total(np.array([found, content.size])).tolist()
        if not found:
            yield None
            return
        content = self.total(content if self.leads else np.zeros(size)).astype(np.uint8)
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, os.path.basename(path))
            if not self.leads:
                content.tofile(copy)
            yield path if self.leads else copy


def sums(traced: Traced, layout: Layout, devices: Devices) -> Callable[..., tuple[Any, Any]]:
    """The sum of the results over all examples, and its gradient, on all devices."""
    program = batched(traced.lifted, layout.size, total=True, masked=True)
    program = differentiate(program) if traced.captured["parameter"] else program
    compute = _computation(traced, program)

    def on_device(leaves: Mapping[str, Any], rows: Any, mask: Any) -> Any:
        def run(total: Any, part: tuple[Any, Any]) -> tuple[Any, None]:
            return total + jnp.concatenate(compute(_leaves(program, leaves, layout, *part))), None

        size = 1 + (program.gradient.size if program.gradient else 0)
        total, _ = lax.scan(run, jnp.zeros(size, rows.dtype), layout.by_run(rows, mask))
        return lax.psum(total, devices.mesh.axis_names)

    def call(leaves: Mapping[str, Any], rows: Any, mask: Any) -> tuple[Any, Any]:
        total = devices.on_each(on_device)(leaves, rows, mask)
        return total[0], total[1:]

    return call


def results(traced: Traced, layout: Layout, devices: Devices) -> Callable[..., Any]:
    """One row of results per example, on all devices."""
    program = batched(traced.lifted, layout.size, total=False)
    compute = _computation(traced, program)

    def on_device(leaves: Mapping[str, Any], rows: Any, mask: Any) -> Any:
        def run(_: None, part: tuple[Any, Any]) -> tuple[None, Any]:
            (flat,) = compute(_leaves(program, leaves, layout, *part))
            output = flat.reshape(-1, traced.outputs)
            return None, jnp.broadcast_to(output, (layout.size, traced.outputs))  # all examples may have the same

        _, found = lax.scan(run, None, layout.by_run(rows, mask))
        return [lax.all_gather(found.reshape(-1, traced.outputs), devices.mesh.axis_names, tiled=True)]

    return devices.on_each(on_device)


def _computation(traced: Traced, program: ArrayProgram) -> Callable[[Mapping[Any, Any]], list[Any]]:
    """From the leaves of a program to its results: by our machine code on a CPU, unless XLA was asked for."""
    return computation(program, program.results) if traced.source.asked == "xla" else Computation(program)


def _leaves(program: ArrayProgram, leaves: Mapping[str, Any], layout: Layout, rows: Any, mask: Any) -> dict[Any, Any]:
    """The leaves of one run: each input has one padded row, of all the run's examples."""
    inputs = jnp.ravel(jnp.pad(rows.T, ((0, 0), (0, padded(layout.size) - layout.size))))
    given = {**leaves, "input": inputs, "mask": mask}
    return {array: given[kind] for kind, array in program.leaves.items()}


def here(array: Any) -> np.ndarray:
    """An array that is the same on all devices, read from one of this process."""
    return np.asarray(array.addressable_data(0))


def _data(values: list[Value]) -> np.ndarray:
    numbers = np.empty(len(values))
    read_data(values, numbers)
    return numbers


def _some(count: int, thing: str) -> str:
    return f"1 {thing}" if count == 1 else f"{count} {thing}{'es' if thing.endswith('s') else 's'}"
