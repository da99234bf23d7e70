"""Steps on examples of different structures, one after another: each by its own program, and all on one state.

A step on several examples is a run for each of them, which adds its gradient to a sum, and one that takes the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from chainrule.compiler.pipeline import Code
from chainrule.compiler.run.arguments import Group
from chainrule.compiler.run.machine import Machine
from chainrule.compiler.run.on_device import Scalars
from chainrule.compiler.run.steps import SUM, Steps, Update
from chainrule.core.bulk import read_data


def in_turn(steps: Sequence[Steps], groups: Sequence[Group]) -> list[float]:
    """Take a step on each example, by the program of its structure; the losses before the updates, in order.

    In native code, all programs work on the parameters and slots of the first. Elsewhere, neighbours of one structure
    are taken together, and the next program begins with the numbers that the last has left in the Values.
    """
    count, numbers = sum([group.examples.count for group in groups]), [group.places for group in groups]
    kinds = ("parameter", *steps[0].optimizer.slots)
    if steps[0].traced.source.backend == "llvm" and _have_same_state([each.code for each in steps], kinds):
        rows = [group.examples.matrix() for group in groups]
        return steps[0].take(lambda machine, scalars: _relayed(steps, machine, scalars(count), rows, numbers))
    which = np.empty(count, dtype=np.int64)
    for k, own in enumerate(numbers):
        which[own] = k
    losses: list[float] = []
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), count]):
        k = which[start]
        part = groups[k].between(start, stop)
        assert part is not None
        losses += steps[k].run_through(part.examples, range(stop - start))
    return losses


def in_parts(parts: Sequence[Steps], update: Update, groups: Sequence[Group], size: int) -> list[float] | None:
    """Take a step on the mean of each `size` examples; the losses before the updates. None if that cannot be."""
    if not _have_same_state(
        [update.code, *[each.code for each in parts]], ("parameter", *parts[0].optimizer.slots, SUM)
    ):
        return None
    count = sum([group.examples.count for group in groups]) // size
    rows, numbers = [group.examples.matrix() for group in groups], [group.places for group in groups]
    turns = [own + own // size for own in numbers]  # after each `size` runs, there is one that takes the step

    def run(first: Machine, scalars: Scalars) -> np.ndarray:
        every = np.zeros((count, size + 1, len(parts[0].names) + 1))
        every[:, -1, :-1], every[:, -1, -1] = scalars(count), size
        first.load(SUM, np.zeros(len(parts[0].parameters)))
        results = _relayed(parts, first, every.reshape(-1, every.shape[2]), rows, turns, update)
        means: np.ndarray = results.reshape(count, size + 1)[:, :-1].mean(axis=1, keepdims=True, dtype=np.float64)
        return means

    return parts[0].take(run)


def _have_same_state(codes: Sequence[Code], kinds: Sequence[str]) -> bool:
    """Whether all programs have these leaves, and no others, as their state, and in the same places."""
    from chainrule.compiler.backends.llvm.relay import same_state

    machines = [code.take() for code in codes]
    natives: list[Any] = [machine.runner for machine in machines]
    expected = [machines[0].program.leaves[kind] for kind in kinds]
    found = natives[0].state_arrays == expected and same_state(natives)
    found = found and not any(machine.has_moved(kind) for machine in machines for kind in kinds)
    for code, machine in zip(codes, machines, strict=True):
        code.give_back(machine)
    return found


def _relayed(
    steps: Sequence[Steps],
    first: Machine,
    scalars: np.ndarray,
    rows: Sequence[np.ndarray],
    numbers: Sequence[np.ndarray],
    update: Update | None = None,
) -> np.ndarray:
    """The losses of steps with these scalars, and with inputs from the rows of each program's steps.

    If they are parts of steps, the other turns are those of the `update`.
    """
    from chainrule.compiler.backends.llvm.relay import Runner, relay

    machines = [first, *[each.code.take() for each in steps[1:]]]
    captured = [value for each in steps for value in each.traced.captured["captured"]]
    data, start = np.empty(len(captured)), 0
    read_data(captured, data)  # those of all programs at one moment
    runners = []
    for each, machine, matrix, own in zip(steps, machines, rows, numbers, strict=True):
        count, leaves = len(each.traced.captured["captured"]), machine.program.leaves
        machine.load("captured", data[start : start + count])
        start += count
        given = machine.laid_out("input", matrix) if "input" in leaves else np.zeros((len(matrix), 0), data.dtype)
        native: Any = machine.runner
        given = given.astype(native.element.dtype, copy=False)
        runners.append(Runner(native, leaves.get("scalars"), machine.program.output, leaves.get("input"), given, own))
    codes = [each.code for each in steps]
    if update:
        last = update.code.take()
        native, codes, machines = last.runner, [*codes, update.code], [*machines, last]
        own = np.setdiff1d(np.arange(len(scalars)), np.concatenate(numbers))
        none = np.zeros((len(own), 0), native.element.dtype)
        runners.append(Runner(native, last.program.leaves["scalars"], last.program.output, None, none, own))
    losses = relay(runners, scalars)
    for code, machine in zip(codes[1:], machines[1:], strict=True):
        code.give_back(machine)
    return losses[:, None]
