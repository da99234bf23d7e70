"""Calls: the program of one example on numbers; or a batch, as a plan of runs that each fit the cache, over threads.

What is added in which order never depends on the number of threads (see `threads`).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from chainrule.compiler.backends.strict import StrictCode
from chainrule.compiler.backends.strict_paths import total_along_paths
from chainrule.compiler.pipeline import Code
from chainrule.compiler.run import on_device
from chainrule.compiler.run.arguments import Examples, Traces
from chainrule.compiler.run.machine import Machine
from chainrule.compiler.run.paths import Paths
from chainrule.compiler.run.threads import spread, threads_for
from chainrule.compiler.run.traced import Traced
from chainrule.core.bulk import replaced
from chainrule.core.structure import batch_of, difference
from chainrule.core.value import Value

T = TypeVar("T")
SMALL = 16  # examples of a run, at most, for which it is better filled up than done with another program
Moment = np.ndarray | None  # the captured data that a path was chosen by; None where there is one path
Part = tuple[Traced, Examples, np.ndarray, Moment]  # a path, the examples that take it, and their numbers
Plan = list[tuple[range, Code]]  # runs, given by the first example of each, and the code for runs of that size


def again(traces: Traces, inputs: tuple[Any, ...]) -> tuple[float, np.ndarray, list[Value]] | None:
    """The result, its gradient and what that is with respect to, if a recent call had such arguments; else None."""
    if (found := traces.ready(inputs)) is None:
        return None
    ready, machine = found
    traced = ready.traced
    traced.source.ran(ready.run)
    if machine.as_of != replaced():
        traced.load(machine)
    machine.run()
    value, gradient = machine.output.item(0), traced.order(machine.gradient)
    ready.code.give_back(machine)
    return value, gradient, traced.wrt


def value_and_grad(traced: Traced, numbers: np.ndarray, moment: Moment) -> tuple[float, np.ndarray]:
    """The result, which is one number, and its gradient with respect to `wrt`."""
    code, machine = _run_one(traced, numbers, moment, True)
    value, gradient = float(machine.output[0]), traced.order(machine.gradient)
    code.give_back(machine)
    return value, gradient


def results(traced: Traced, numbers: np.ndarray, moment: Moment) -> np.ndarray:
    """All results."""
    code, machine = _run_one(traced, numbers, moment, False)
    found = np.array(machine.output, dtype=np.float64)
    code.give_back(machine)
    return found


def _run_one(traced: Traced, numbers: np.ndarray, moment: Moment, total: bool) -> tuple[Any, Any]:
    """Code for one example and one of its machines, after a run on these numbers; the caller gives it back."""
    used = numbers if traced.uses_all else numbers[traced.used]
    code: Any = traced.code(None, total, lambda: used)
    machine = code.take()
    traced.load(machine, moment=moment)
    machine.load("input", used)
    machine.run()
    return code, machine


def sum_and_grad(
    paths: Paths, examples: Examples, divisor: int, threads: int | None
) -> tuple[float, np.ndarray, list[Value]]:
    """The sum of the results over the examples, divided by `divisor`; its gradient, and the Values that this is by."""
    if paths.only is not None:
        paths.only.check_scalar()
        return (*_sum_and_grad(paths.only, examples, divisor, threads), paths.only.wrt)
    parts = by_path(paths, examples)
    for traced, *_ in parts:
        traced.check_scalar()
    wrt = parts[0][0].wrt
    if paths.source.strict and len(parts) == 1:  # other programs of a path serve batches of any division
        traced, own, _, moment = parts[0]
        return (*_sum_and_grad(traced, own, divisor, threads, moment), wrt)
    if paths.source.strict:
        value, gradient = strict_sum_and_grad(parts, 1.0 / divisor)
        return value / divisor, gradient, wrt
    totals = [_sum_and_grad(traced, own, 1, threads, moment) for traced, own, _, moment in parts]
    gradient = np.sum([gradient for _, gradient in totals], axis=0)
    return sum(value for value, _ in totals) / divisor, gradient / divisor, wrt


def strict_sum_and_grad(parts: list[Part], seed: float) -> tuple[float, np.ndarray]:
    """The sum of the results over the examples of several paths, and the gradient of `seed` times it."""
    codes: list[Any] = [plan_for(traced, own, True) for traced, own, *_ in parts]
    machines = [code.take() for code in codes]
    for (traced, _, _, moment), machine in zip(parts, machines, strict=True):
        traced.load(machine, moment=moment)
    turns = sorted((n, k, row) for k, (_, _, which, _) in enumerate(parts) for row, n in enumerate(which.tolist()))
    rows, order = [own.matrix() for _, own, *_ in parts], [(k, row) for _, k, row in turns]
    value, gradient = total_along_paths(machines, rows, order, seed)
    for code, machine in zip(codes, machines, strict=True):
        code.give_back(machine)
    return value, np.array([gradient.get(parameter, 0.0) for parameter in parts[0][0].wrt])


def by_path(paths: Paths, examples: Examples) -> list[Part]:
    """The examples of each path, their numbers, and the captured data that decided."""
    parts, moment = paths.sort(examples.arguments())
    return [(traced, examples.on(traced, which), which, moment) for traced, which in parts]


def _sum_and_grad(
    traced: Traced, examples: Examples, divisor: int, threads: int | None, moment: Moment = None
) -> tuple[float, np.ndarray]:
    """The same for examples that take one path."""
    if code := on_device.code_for(traced, examples, True):
        return on_device.sum_and_grad(code, traced, examples, divisor, moment)
    return run_plan(traced, plan_for(traced, examples, True, divisor=divisor), examples, divisor, threads, moment)


def run_plan(
    traced: Traced, plan: StrictCode | Plan, given: Examples, divisor: int, threads: int | None, moment: Moment
) -> tuple[float, np.ndarray]:
    """The sum of the results over examples that take one path, divided, and its gradient."""
    if isinstance(plan, StrictCode):
        strict = plan.take()
        traced.load(strict, moment=moment)
        value, gradient = strict.total(given.matrix(), seed=1.0 / divisor), traced.order(strict.gradient)
        plan.give_back(strict)
        return value / divisor, gradient
    examples, masked = given.filled(plan[-1][0].stop), "mask" in plan[-1][1].forward.leaves
    if not masked and sum(len(firsts) for firsts, _ in plan) == 1:
        return _run_once(traced, *plan[0], examples, divisor, moment)

    def add_up(machine: Machine, firsts: range, section: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """The sums over the runs of each section."""
        rows: dict[str, Any] = {"input": examples.inputs(firsts, machine)}
        if masked:
            rows["mask"] = np.arange(firsts.start, firsts.stop).reshape(len(firsts), -1) < given.count
        values, gradients = machine.run_many(rows, section)
        totals = np.add.reduceat(values[:, 0], range(0, len(values), section), dtype=np.float64)
        return [(totals, gradients)]

    parts = zip(*_run(traced, plan, threads, moment, add_up), strict=True)
    value, gradient = [np.add.reduce(np.concatenate(part), axis=0) for part in parts]
    return float(value) / divisor, traced.order(gradient, divisor, own=True)


def _run_once(
    traced: Traced, firsts: range, code: Code, examples: Examples, divisor: int, moment: Moment
) -> tuple[float, np.ndarray]:
    """The same for one run, whose gradient is in the machine's memory, and divided already (see `plan_for`)."""
    machine = code.take()
    traced.load(machine, moment=moment)
    started = perf_counter()
    machine.run_on(examples.inputs_of_one(firsts, machine))
    found = float(machine.output[0]) / divisor, traced.order(machine.gradient)
    code.took(perf_counter() - started)
    code.give_back(machine)
    return found


def results_of_each(paths: Paths, examples: Examples, threads: int | None) -> Any:
    """The result of each example, as arrays with a leading axis in the structure that the function returns."""
    if (only := paths.only) is not None:
        if examples.are_on_device and (code := on_device.code_for(only, examples, False)) and on_device.is_array(only):
            return on_device.results_there(code, only, examples)
        return batch_of(only.result, _rows(only, examples, threads))
    return results_of_parts(by_path(paths, examples), examples.count, threads)


def results_of_parts(parts: list[Part], count: int, threads: int | None, ragged: bool = False) -> Any:
    """The same for examples that take several paths, or have several structures."""
    first = parts[0][0]
    found = np.empty((count, first.outputs))
    for traced, own, which, moment in parts:
        if traced.result != first.result:
            what = difference(first.result, traced.result, "the result")
            every = "for every structure of arguments" if ragged else "on every path"
            raise TypeError(f"the examples of a batch must have results of one structure, {every}: {what}")
        found[which] = _rows(traced, own, threads, moment, ragged)
    return batch_of(first.result, found)


def _rows(
    traced: Traced, given: Examples, threads: int | None, moment: Moment = None, ragged: bool = False
) -> np.ndarray:
    """A row of results for each of the examples, which take one path."""
    if code := on_device.code_for(traced, given, False):
        return on_device.results_here(code, traced, given, moment)
    plan = plan_for(traced, given, False, ragged)
    if isinstance(plan, StrictCode):
        strict = plan.take()
        traced.load(strict, moment=moment)
        rows = strict.run_many(given.matrix())
        plan.give_back(strict)
        return rows
    examples = given.filled(plan[-1][0].stop)
    found = np.empty((examples.count, traced.outputs))

    def keep(machine: Machine, firsts: range, _section: int) -> list[None]:
        values, _ = machine.run_many({"input": examples.inputs(firsts, machine)})
        by_run = found[firsts.start : firsts.stop].reshape(len(firsts), firsts.step, -1)
        by_run[:] = values.reshape(len(firsts), -1, traced.outputs)  # one row, if all examples have the same
        return []

    _run(traced, plan, threads, moment, keep)
    return found[: given.count]


def plan_for(
    traced: Traced, examples: Examples, total: bool, ragged: bool = False, fills: bool = True, divisor: int = 1
) -> StrictCode | Plan:
    """Runs of as many examples as the cache holds, and one of the rest; or code that takes examples node by node.

    If they are `ragged`, there are examples of other structures too. The last run may then go beyond these, and is
    filled up, unless it must not. The gradient of a plan of one run is divided by `divisor` there.
    """
    if traced.is_node_by_node:
        runs = [range(1)]
    elif ragged and fills:
        runs = _filled_parts(examples.count, traced.most_examples)
    else:
        standard = ragged or traced.guards is not None
        runs = (_standard_parts if standard else _parts)(examples.count, traced.most_examples)
    plan = []
    for firsts in runs:
        masked = total and ragged and fills and firsts.step <= SMALL
        own = divisor if len(runs) == len(firsts) == 1 and not masked else 1
        code = traced.code(firsts.step, total, lambda: examples.matrix()[0], masked, own)
        if isinstance(code, StrictCode):
            return code
        plan.append((firsts, code))
    return plan


def _parts(count: int, most: int) -> list[range]:
    """The runs of a batch of `count`, given by their first examples: some of the largest size, and one of the rest.

    In a large batch, that one is at least half as large as the others and less than half as large again.
    """
    runs, rest = divmod(count, most)
    whole = most * (runs - 1 if runs and 0 < rest < most // 2 else runs)
    return [part for part in (range(0, whole, most), range(whole, count, count - whole or 1)) if part]


def _standard_parts(count: int, most: int) -> list[range]:
    """The same in sizes that are powers of 8: how many examples take a path differs from batch to batch.

    >>> _standard_parts(150, 4096)
    [range(0, 128, 64), range(128, 144, 8), range(144, 150)]
    """
    parts, start, size = [], 0, 8 ** ((min(count, most).bit_length() - 1) // 3)
    while start < count:
        stop = start + (count - start) // size * size
        if start < stop:
            parts.append(range(start, stop, size))
        start, size = stop, size // 8
    return parts


def _filled_parts(count: int, most: int) -> list[range]:
    """The same in few sizes, the smallest of which is filled up: a structure then needs one or two programs.

    >>> _filled_parts(150, 4096), _filled_parts(20, 16)
    ([range(0, 128, 64), range(128, 152, 8)], [range(0, 32, 16)])
    """
    parts, start, size = [], 0, most
    while start < count:
        runs = -(-(count - start) // size) if size <= SMALL else (count - start) // size
        stop = start + runs * size
        if start < stop:
            parts.append(range(start, stop, size))
        start, size = stop, max(SMALL // 2, size // 8)
    return parts


def _run(
    traced: Traced,
    plan: Plan,
    threads: int | None,
    moment: Moment,
    read: Callable[[Machine, range, int], list[T]],
) -> list[T]:
    """What `read` returns for the runs of the batch, in order; it is given a machine, and some of them (see `spread`).

    What `read` returns must not lie in the machine's memory.
    """
    results = []
    teams = [[code.take() for _ in range(threads_for(part, threads, code.seconds_per_run))] for part, code in plan]
    traced.load(*[member for team in teams for member in team], moment=moment)
    for (firsts, code), team in zip(plan, teams, strict=True):
        started = perf_counter()
        results += spread(firsts, team, read)
        code.took((perf_counter() - started) * len(team) / len(firsts))
        for member in team:
            code.give_back(member)
    return results
