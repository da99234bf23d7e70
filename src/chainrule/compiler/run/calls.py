"""Calls: the program of one example on numbers; or a batch, as a plan of runs that each fit the cache, over threads.

What is added in which order never depends on the number of threads (see `threads`).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from chainrule.compiler.backends.strict import StrictCode
from chainrule.compiler.pipeline import Code
from chainrule.compiler.run.arguments import Examples
from chainrule.compiler.run.machine import Machine
from chainrule.compiler.run.threads import joined, spread, threads_for
from chainrule.compiler.run.traced import Traced
from chainrule.core.structure import batch_of

T = TypeVar("T")
Plan = list[tuple[range, Code]]  # runs, given by the first example of each, and the code for runs of that size


def value_and_grad(traced: Traced, numbers: list[float]) -> tuple[float, np.ndarray]:
    """The result, which is one number, and its gradient with respect to `wrt`."""
    code, machine = _run_one(traced, numbers, True)
    value, gradient = float(machine.output[0]), traced.order(machine.gradient)
    code.give_back(machine)
    return value, gradient


def results(traced: Traced, numbers: list[float]) -> list[float]:
    """All results."""
    code, machine = _run_one(traced, numbers, False)
    found: list[float] = machine.output.tolist()
    code.give_back(machine)
    return found


def _run_one(traced: Traced, numbers: list[float], total: bool) -> tuple[Any, Any]:
    """Code for one example and one of its machines, after a run on these numbers; the caller gives it back."""
    used = np.array(numbers, dtype=np.float64)[traced.used]
    code: Any = traced.code(None, total, lambda: used)
    machine = code.take()
    traced.load(machine)
    machine.load("input", used)
    machine.run()
    return code, machine


def sum_and_grad(traced: Traced, examples: Examples, divisor: int, threads: int | None) -> tuple[float, np.ndarray]:
    """The sum of the results over the examples, divided by `divisor`; and its gradient."""
    plan = _plan(traced, examples, True)
    if isinstance(plan, StrictCode):
        strict = plan.take()
        traced.load(strict)
        value, gradient = strict.total(examples.matrix(), seed=1.0 / divisor), traced.order(strict.gradient)
        plan.give_back(strict)
        return value / divisor, gradient

    def add_up(machine: Machine, sections: list[range]) -> list[tuple[float, np.ndarray]]:
        rows, section = {"input": examples.rows(joined(sections), machine)}, len(sections[0])
        values, gradients = machine.run_many(rows, section)
        totals = np.add.reduceat(values[:, 0], range(0, len(values), section), dtype=np.float64)
        return list(zip(totals.tolist(), gradients, strict=True))

    (value, gradient), *others = _run(traced, plan, threads, add_up)
    for more in others:
        value, gradient = value + more[0], gradient + more[1]
    return value / divisor, traced.order(gradient, divisor)


def results_of_each(traced: Traced, examples: Examples, threads: int | None) -> Any:
    """The result of each example, as arrays with a leading axis in the structure that the function returns."""
    plan = _plan(traced, examples, False)
    if isinstance(plan, StrictCode):
        strict = plan.take()
        traced.load(strict)
        rows = strict.run_many(examples.matrix())
        plan.give_back(strict)
        return batch_of(traced.result, iter(rows.T))
    found = np.empty((examples.count, traced.outputs))

    def keep(machine: Machine, sections: list[range]) -> list[None]:
        firsts = joined(sections)
        values, _ = machine.run_many({"input": examples.rows(firsts, machine)})
        by_run = found[firsts.start : firsts.stop].reshape(len(firsts), firsts.step, -1)
        by_run[:] = values.reshape(len(firsts), -1, traced.outputs)  # one row, if all examples have the same
        return []

    _run(traced, plan, threads, keep)
    return batch_of(traced.result, iter(found.T))


def _plan(traced: Traced, examples: Examples, total: bool) -> StrictCode | Plan:
    """Runs of as many examples as the cache holds, and one of the rest; or code that takes examples node by node."""
    plan = []
    for firsts in [range(1)] if traced.source.strict else _parts(examples.count, traced.most_examples):
        code = traced.code(firsts.step, total, lambda: examples.matrix()[0])
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


def _run(traced: Traced, plan: Plan, threads: int | None, read: Callable[[Machine, list[range]], list[T]]) -> list[T]:
    """What `read` returns for the sections of the batch, in order; it is given some of them and a machine to run.

    A section is given as the first examples of its runs. What `read` returns must not lie in the machine's memory.
    """
    results = []
    teams = [[code.take() for _ in range(threads_for(part, threads, code.seconds_per_run))] for part, code in plan]
    traced.load(*[member for team in teams for member in team])
    for (firsts, code), team in zip(plan, teams, strict=True):
        started = perf_counter()
        results += spread(firsts, team, read)
        seconds = (perf_counter() - started) * len(team) / len(firsts)
        code.seconds_per_run = min(seconds, code.seconds_per_run or seconds)
        for member in team:
            code.give_back(member)
    return results
