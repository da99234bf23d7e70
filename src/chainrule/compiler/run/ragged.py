"""Ragged batches: examples of several structures, such as sentences of different lengths, each by its own program.

The examples of one structure are a group, which runs as a batch does, in few sizes of runs: a structure's share differs
from batch to batch. What is added in which order depends on the examples alone, never on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.compiler.backends.strict import StrictCode
from chainrule.compiler.run import calls, on_device
from chainrule.compiler.run.arguments import Group, Traces, check_reduction
from chainrule.compiler.run.calls import Moment, Part, Plan
from chainrule.compiler.run.machine import Order
from chainrule.compiler.run.threads import GUESS, check_threads, dealt, in_shares, threads_worth
from chainrule.compiler.run.turns import compiling
from chainrule.core.bulk import read_data
from chainrule.core.value import Value


def total(
    traces: Traces, arrays: Sequence[Any], reduce: str, threads: int | None
) -> tuple[float, np.ndarray, list[Value]]:
    """The sum or the mean of the results over all examples; its gradient, and the Values that this is by."""
    if threads is None and (again := on_device.total_again(traces, arrays, reduce)) is not None:
        return again
    check_threads(threads)
    check_reduction(reduce)
    groups = traces.by_structures(arrays)
    divisor = sum([group.examples.count for group in groups]) if reduce == "mean" else 1
    return sum_and_grad(groups, divisor, threads)


def sum_and_grad(groups: Sequence[Group], divisor: int, threads: int | None) -> tuple[float, np.ndarray, list[Value]]:
    """The sum of the results over all examples, divided by `divisor`; its gradient, and the Values that this is by."""
    source = groups[0].paths.source
    if len(groups) == 1:
        return calls.sum_and_grad(groups[0].paths, groups[0].examples, divisor, threads)
    parts = _parts(groups)
    for traced, *_ in parts:
        traced.check_scalar()
    wrt = _common(parts)
    if source.strict:
        parts = [(traced.with_respect_to(wrt), *rest) for traced, *rest in parts]  # type: ignore[misc]
        value, gradient = calls.strict_sum_and_grad(parts, 1.0 / divisor)
        source.took_gradient_by(wrt)
        return value / divisor, gradient, wrt
    value, gradient = 0.0, np.zeros(len(wrt))
    for (traced, *_), (more, by_own) in zip(parts, _totals(parts, threads), strict=True):
        value += more
        gradient += by_own if traced.wrt is wrt or source.wrt is not None else Order(wrt, traced.wrt)(by_own)
    source.took_gradient_by(wrt)
    return value / divisor, gradient / divisor, wrt


def results_of_each(groups: Sequence[Group], threads: int | None) -> Any:
    """The result of each example, as arrays with a leading axis in the structure that the function returns."""
    if len(groups) == 1:
        return calls.results_of_each(groups[0].paths, groups[0].examples, threads)
    count = sum([group.examples.count for group in groups])
    return calls.results_of_parts(_parts(groups), count, threads, ragged=True)


def _parts(groups: Sequence[Group]) -> list[Part]:
    """The examples of each structure, or of each path if the function branches, in the order of the groups."""
    parts: list[Part] = []
    for group, moment in zip(groups, _moments(groups), strict=True):
        if group.paths.only is not None:
            parts.append((group.paths.only, group.examples, group.places, moment))
        else:
            found = calls.by_path(group.paths, group.examples)
            parts += [(traced, own, group.places[which], its) for traced, own, which, its in found]
    return parts


def _moments(groups: Sequence[Group]) -> list[Moment]:
    """The captured Values' data for each group, read at one moment; None where the function branches, and reads."""
    values = groups[0].paths.source.values
    for paths in [group.paths for group in groups]:
        if paths.only is not None and paths.places is None:
            with compiling(paths.source):
                own = [values.setdefault(value, len(values)) for value in paths.known.values]
                paths.places = np.array(own, dtype=np.int64)
    every = list(values)
    data = np.empty(len(every))
    read_data(every, data)
    return [None if group.paths.places is None else data[group.paths.places] for group in groups]


def _common(parts: Sequence[Part]) -> list[Value]:
    """What the gradient of the sum is with respect to: all Values that any of the parts has a gradient for."""
    first = parts[0][0]
    if first.source.wrt is not None or all(traced.wrt == first.wrt for traced, *_ in parts):
        return first.wrt
    return sorted({value for traced, *_ in parts for value in traced.wrt}, key=lambda value: value._serial)


def _totals(parts: Sequence[Part], threads: int | None) -> list[tuple[float, np.ndarray]]:
    """The sum of the results of each part, and its gradient. A part that is no more than a share has one thread."""
    plans = [_plan(part) for part in parts]
    costs = [_seconds(plan) for plan in plans]
    count = threads_worth(sum(costs), threads)
    small = [k for k, cost in enumerate(costs) if plans[k] is not None and cost * count <= sum(costs)]

    def total(k: int, wanted: int | None) -> tuple[float, np.ndarray]:
        traced, own, _, moment = parts[k]
        if (plan := plans[k]) is None:
            code = on_device.code_for(traced, own, True)
            assert code is not None
            return on_device.sum_and_grad(code, traced, own, 1, moment)
        return calls.run_plan(traced, plan, own, 1, wanted, moment)

    alone = in_shares(dealt([costs[k] for k in small], count), lambda place: total(small[place], 1))
    found = {small[place]: each for place, each in alone.items()}
    totals = [found[k] if k in found else total(k, threads) for k in range(len(parts))]
    return [_exact(part, each, plan, threads) for part, each, plan in zip(parts, totals, plans, strict=True)]


def _exact(
    part: Part, total: tuple[float, np.ndarray], plan: StrictCode | Plan | None, threads: int | None
) -> tuple[float, np.ndarray]:
    """The total, computed again if it is not finite: copies that fill a run up have no part in it, but 0·∞ is NaN."""
    traced, own, _, moment = part
    fills = isinstance(plan, list) and plan[-1][0].stop > own.count
    if not fills or (np.isfinite(total[0]) and np.isfinite(total[1]).all()):
        return total
    again = calls.plan_for(traced, own, True, ragged=True, fills=False)
    return calls.run_plan(traced, again, own, 1, threads, moment)


def _plan(part: Part) -> StrictCode | Plan | None:
    """Runs of a part's examples; None if they run on a GPU, all at once."""
    traced, own, *_ = part
    return None if on_device.code_for(traced, own, True) else calls.plan_for(traced, own, True, ragged=True)


def _seconds(plan: StrictCode | Plan | None) -> float:
    """About how long the runs take."""
    return (
        sum([len(firsts) * (code.seconds_per_run or GUESS) for firsts, code in plan]) if isinstance(plan, list) else 0
    )
