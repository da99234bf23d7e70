"""Training on a stream of examples: whether a step is one program, and what it is where there is none.

Where there is no such program, a step is a batch's gradient and `optimizer.step()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.passes.irregular import IrregularityError
from chainrule.compiler.run.arguments import Group, Traces
from chainrule.compiler.run.machine import Order
from chainrule.compiler.run.ragged import sum_and_grad
from chainrule.compiler.run.relay import in_parts, in_turn
from chainrule.compiler.run.steps import Steps, Update, for_all, trains_what_is_used
from chainrule.compiler.run.traced import Source, Traced
from chainrule.compiler.run.turns import borrowing_gradients, compiling, training
from chainrule.core.bulk import read_grad, takes_gradient, write_grad
from chainrule.core.value import Value
from chainrule.optim import Optimizer

FEW = 32  # examples of a structure in a batch, on average: more of them are faster side by side
PARTS, UPDATE = "parts", "update"
MOST_STEPS = 16  # programs of training steps per trace: optimizers come and go, and each has its own


def train(
    groups: Sequence[Group], optimizer: Optimizer, size: int, threads: int | None, same_every_step: bool = False
) -> list[float]:
    """Take a step on the mean of each `size` examples, and one on the rest; the losses before the updates.

    A rule that a user wrote becomes part of a program only if they say that it does the same at every step.
    """
    _check(groups)
    count, losses = sum([group.examples.count for group in groups]), []
    whole, known = count // size * size, optimizer.rule_is_known or same_every_step
    with training(optimizer.parameters):
        for firsts in filter(None, (range(0, whole, size), range(whole, count, count - whole or 1))):
            some = groups
            if len(groups) > 1:
                some = [part for group in groups if (part := group.between(firsts.start, firsts.stop))]
                firsts = range(0, firsts.stop - firsts.start, firsts.step)
            steps = _compiled(some, optimizer, firsts.step) if known else []
            if len(steps) == 1:
                losses += steps[0].run_through(some[0].examples, firsts)
            elif steps:
                losses += in_turn(steps, some)
            elif known and (found := _in_parts(some, optimizer, firsts.step)):
                losses += found
            else:  # also if there are branches: each step may change the path
                losses += _taken_one_by_one(some, optimizer, firsts, threads)
    return losses


def _check(groups: Sequence[Group]) -> None:
    """Refuse losses of several numbers; and on a GPU, where a program would notice too late, wrong class indices."""
    for paths, examples, _ in groups:
        if paths.only is not None:
            paths.only.check_scalar()
            if examples.are_on_device:
                examples.check_classes(paths.only)


def _in_parts(groups: Sequence[Group], optimizer: Optimizer, size: int) -> list[float] | None:
    """Steps on batches whose examples have several structures, as runs of single examples; the losses.

    None where that is impossible, or does not pay because a batch has many examples of a structure.
    """
    if len(groups) == 1 or size > FEW * len(groups) or groups[0].paths.source.backend != "llvm":
        return None
    parts = _compiled(groups, optimizer, 1, parts=True)
    if not parts:
        return None
    key = UPDATE, *_key(optimizer)
    own = parts[0].traced.steps
    with compiling(parts[0].traced.source):
        update = own.get(key) or Update(parts[0])
        _keep(own, key, update)
    return in_parts(parts, update, groups, size)


def _keep(steps: dict[Any, Any], key: Any, made: Any) -> None:
    """Keep a program, and forget the oldest ones where there are many."""
    steps[key] = made
    while len(steps) > MOST_STEPS:
        del steps[next(iter(steps))]


def _key(optimizer: Optimizer) -> tuple[Any, ...]:
    """All of an optimizer that is part of a program."""
    return optimizer, repr(optimizer.settings), takes_gradient(optimizer.parameters)


def _compiled(groups: Sequence[Group], optimizer: Optimizer, size: int, parts: bool = False) -> list[Steps]:
    """Steps as one program for each structure, or parts of steps; none where that is impossible, or does not pay."""
    if len(groups) > 1 and size > 1:  # a batch has examples of several structures
        return []
    key = *_key(optimizer), PARTS if parts else size  # all that is part of a program, but for the structure
    found: list[Steps] = []
    for paths, *_ in groups:
        steps = None if paths.only is None else _compiled_one(paths.only, optimizer, size, key)
        if steps is None:
            return []
        found.append(steps)
    return found


def _compiled_one(traced: Traced, optimizer: Optimizer, size: int, key: Any) -> Steps | None:
    """Steps as one program; None where that is impossible, or does not pay because a batch is beyond the cache."""
    source = traced.source
    found: Steps | None = traced.steps.get(key)
    if found is not None or key in traced.steps or source.strict or not trains_what_is_used(optimizer, traced):
        return found
    if size > 1 and source.backend != "cuda" and size > for_all(traced, optimizer).most_examples:
        return None
    with compiling(source):
        try:
            examples = size if size > 1 or source.backend == "cuda" else None
            found = Steps(traced, optimizer, examples, parts=key[-1] == PARTS)
        except IrregularityError:
            if source.dtype != "float64":
                raise
        _keep(traced.steps, key, found)
    return found


def _taken_one_by_one(groups: Sequence[Group], optimizer: Optimizer, firsts: range, threads: int | None) -> list[float]:
    """Steps of the optimizer's own `step`, each on the gradient of a batch, in one run of the program or many."""
    source = groups[0].paths.source
    parameters, wrt = optimizer.parameters, source.wrt
    if wrt is not None and not set(parameters) <= set(wrt):
        raise ValueError(f"`optimizer` has parameters that are not in the `wrt` of `{source.name}`: give it those")
    before, losses = np.empty(len(parameters)), []
    order: tuple[list[Value], Order] | None = None
    with borrowing_gradients(parameters):
        read_grad(parameters, before)
        try:
            for first in firsts:
                batch = [part for group in groups if (part := group.between(first, first + firsts.step))]
                value, gradient, by = sum_and_grad(batch, firsts.step, threads)
                order = order if order and order[0] is by else (by, Order(parameters, by))
                write_grad(parameters, order[1](gradient))
                optimizer.step()
                losses.append(value)
        finally:
            write_grad(parameters, before)
    return losses


class BatchSteps:
    """Steps on the mean over a batch of `loss`, a function of one example; batches are given by their numbers."""

    def __init__(
        self,
        loss: Callable[..., Any],
        arrays: Sequence[Any],
        optimizer: Optimizer,
        dtype: str,
        backend: str = "llvm",
    ) -> None:
        traces = Traces(Source(loss, optimizer.parameters, backend, dtype))
        self.optimizer = optimizer
        self.paths, self.examples = traces.on_examples(arrays, ("data.inputs", "data.targets"))
        self.traced = self.paths.known.paths[0]

    def run(self, numbers: Sequence[int], size: int) -> list[float]:
        """Take a step on each `size` of the examples with these numbers; the loss of each, before its update."""
        group = Group(self.paths, self.examples.chosen(numbers))
        return train([group], self.optimizer, size, None, same_every_step=True)
