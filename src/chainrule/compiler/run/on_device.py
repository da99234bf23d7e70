"""Batches and training steps on a GPU: all examples of a batch in one launch, from arrays that stay on the device.

Arrays of PyTorch, CuPy or JAX that lie there are read where they are; those of NumPy are copied there once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.backends.cuda.device_arrays import DeviceArray
from chainrule.compiler.backends.cuda.runner import Column, Cuda
from chainrule.compiler.pipeline import Code
from chainrule.compiler.run.arguments import REDUCED, Examples, Traces
from chainrule.compiler.run.machine import NEVER, Machine, narrowed
from chainrule.compiler.run.traced import Traced
from chainrule.core.bulk import replaced
from chainrule.core.structure import ARRAY, is_one_number
from chainrule.core.value import Value

TOTAL = "total"  # of a call that added up all results, `Examples.resident` has what ran, and where its inputs are
STEPS_AT_ONCE = 16  # whose scalars are computed before they are launched
Scalars = Callable[[int], np.ndarray]  # a row for each of so many next steps


def code_for(traced: Traced, examples: Examples, total: bool) -> Code | None:
    """Code for batches on the GPU; None if this function runs node by node, or gives the same for all examples."""
    if traced.source.backend != "cuda" or traced.is_node_by_node:
        return None
    found = traced.code(traced.examples_of_a_block(examples.count), total, lambda: examples.matrix()[0])
    return found if isinstance(found, Code) and (total or found.laid_out.output.examples) else None


def sum_and_grad(
    code: Code, traced: Traced, examples: Examples, divisor: int, moment: np.ndarray | None
) -> tuple[float, np.ndarray]:
    """The sum of the results over all examples, divided by `divisor`, and its gradient."""
    machine, runner = _ready(code, traced, moment)
    columns = _columns(examples, runner)
    if moment is None:
        examples.resident[TOTAL] = (traced.structure, traced.number, code), traced, columns
    return _total(code, machine, traced, examples, columns, divisor)


def total_again(traces: Traces, arrays: Sequence[Any], reduce: str) -> tuple[float, np.ndarray, list[Value]] | None:
    """The sum or the mean for arrays that it was computed for before, all on one path, and what the gradient is by.

    A short cut to the launch, which the GPU waits for; None where there is none.
    """
    if reduce not in REDUCED or (recent := traces.recent(arrays, TOTAL)) is None:
        return None
    examples = recent.examples
    run, traced, columns = examples.resident[TOTAL]
    machine, _ = _ready(run[2], traced, None)
    divisor = examples.count if reduce == "mean" else 1
    try:
        value, gradient = _total(run[2], machine, traced, examples, columns, divisor)
    except BaseException:
        examples.lent_by(arrays).keep_while_busy()
        raise
    traced.source.ran(run)
    return value, gradient, traced.wrt


def _total(
    code: Code, machine: Machine, traced: Traced, examples: Examples, columns: list[Column], divisor: int
) -> tuple[float, np.ndarray]:
    """The sum over all examples, divided by `divisor`, and its gradient, by a machine that is then given back."""

    def found() -> tuple[float, np.ndarray]:
        return float(machine.output[0]) / divisor, traced.order(machine.gradient, divisor)

    _run(machine, traced, examples, columns, meanwhile=found)
    total = found()
    code.give_back(machine)
    return total


def results_here(code: Code, traced: Traced, examples: Examples, moment: np.ndarray | None) -> np.ndarray:
    """A row of results for each example."""
    found, runner = _results(code, traced, examples, moment)
    rows = np.empty((examples.count, traced.outputs), runner.dtype)
    found.read(rows)
    return rows.astype(np.float64, copy=False)


def results_there(code: Code, traced: Traced, examples: Examples) -> DeviceArray:
    """The results of all examples, which are an array (see `is_array`), on the device."""
    found, runner = _results(code, traced, examples, None)
    shape = () if is_one_number(traced.result) else traced.result[1]
    return DeviceArray.over(found, (examples.count, *shape), runner.dtype)


def is_array(traced: Traced) -> bool:
    """Whether the results of many examples are one array."""
    return is_one_number(traced.result) or traced.result[0] is ARRAY


def _results(code: Code, traced: Traced, examples: Examples, moment: np.ndarray | None) -> tuple[Any, Cuda]:
    """Memory on the device with a row for each example, and what has computed it."""
    machine, runner = _ready(code, traced, moment)
    results = runner.machinery.allocate(max(1, examples.count * traced.outputs) * runner.itemsize)
    _run(machine, traced, examples, _columns(examples, runner), results)
    code.give_back(machine)
    return results, runner


def _run(
    machine: Machine,
    traced: Traced,
    examples: Examples,
    columns: list[Column],
    results: Any = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Run once over all examples, and bring to the host what is computed; `results` are memory for those of each.

    What is done with the numbers afterwards is done `meanwhile` with old ones: while the GPU works, that is for free,
    and code that other libraries have driven out of the processor's caches is back when the numbers are there.
    """
    runner = _of(machine)
    try:
        runner.launch(columns, examples.count, results)
        meanwhile()
        runner.fetch()
    except BaseException:
        examples.keep_while_busy()
        raise
    _check_classes(machine, traced, examples)


def take_steps(examples: Examples, firsts: range) -> Callable[[Machine, Scalars], np.ndarray]:
    """Takes a step on each batch, which begins at one of `firsts`, given a machine and the optimizer's scalars.

    These are computed for some steps at a time, while the GPU works on those before.
    """
    stops = [min(first + firsts.step, examples.count) for first in firsts]
    batches = list(zip(firsts, stops, range(len(firsts)), strict=True))

    def run(machine: Machine, scalars: Scalars) -> np.ndarray:
        runner = _of(machine)
        columns, losses = _columns(examples, runner), np.empty((len(firsts), 1), runner.dtype)
        width = machine.program.leaves["scalars"].size * runner.itemsize
        rows_in, rows_out = runner.step_rows(len(firsts) * width, losses.nbytes)
        runner.load()
        try:
            for step in range(0, len(firsts), STEPS_AT_ONCE):
                some = batches[step : step + STEPS_AT_ONCE]
                rows_in.write(narrowed(scalars(len(some)), runner.dtype), step * width)
                runner.launch_steps(columns, some, rows_in, rows_out)
            runner.fetch()
        except BaseException:
            examples.keep_while_busy()
            raise
        rows_out.read(losses)
        return losses

    return run


def _check_classes(machine: Machine, traced: Traced, examples: Examples) -> None:
    """Refuse examples that have no class index where they need one, as the program has found."""
    wrong = machine.program.leaves.get("wrong")
    if wrong is not None and machine.views[wrong][0]:
        examples.check_classes(traced)


def _ready(code: Code, traced: Traced, moment: np.ndarray | None) -> tuple[Machine, Cuda]:
    machine = code.take()
    runner, before = _of(machine), machine.as_of
    if moment is None and before == replaced():
        return machine, runner
    traced.load(machine, moment=moment)
    if machine.as_of == NEVER or machine.as_of != before:  # otherwise the device has the present data
        runner.load()
    return machine, runner


def _of(machine: Machine) -> Cuda:
    runner = machine.runner
    assert isinstance(runner, Cuda)
    return runner


def _columns(examples: Examples, runner: Cuda) -> list[Column]:
    """Where the numbers of the examples are on the device; they are brought there when first asked for."""
    key = type(runner.machinery), runner.dtype
    if key not in examples.resident:
        matrices = [(_resident(matrix, runner), matrix.shape[1]) for matrix, *_ in examples.pieces]
        sizes = [place.dtype.itemsize if isinstance(place, DeviceArray) else runner.itemsize for place, _ in matrices]
        known = [(place.address, width, size) for (place, width), size in zip(matrices, sizes, strict=True)]
        wires = zip(examples.wiring.which.tolist(), examples.wiring.column.tolist(), strict=True)
        columns = [(known[k][0] + column * known[k][2], *known[k][1:]) for k, column in wires]
        examples.resident[key] = matrices, columns
    found: list[Column] = examples.resident[key][1]
    return found


def _resident(matrix: Any, runner: Cuda) -> Any:
    """A matrix on the device: itself if it is there, else a copy."""
    if isinstance(matrix, DeviceArray):
        return matrix
    numbers = np.ascontiguousarray(narrowed(matrix, runner.dtype))
    buffer = runner.machinery.allocate(max(1, numbers.nbytes))
    buffer.write(numbers)
    return buffer
