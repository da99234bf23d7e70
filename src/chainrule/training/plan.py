"""Which way the steps of a run are taken, and why: decided before the first one, and once more if "auto" must measure.

`history.engine` is the plan in words.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from chainrule import losses, optim
from chainrule.core.recording import nodes_are_observed
from chainrule.core.value import ENGINE
from chainrule.nn import MLP, Layer, Neuron, Sequential
from chainrule.optim import Optimizer
from chainrule.training.checkpoints import Saver
from chainrule.training.history import History
from chainrule.training.task import Columns, Position, Task
from chainrule.training.ways import ByExample, Eager, IndivisibleError, Sharded, Way, Whole

MANY = 500  # examples in a batch from which on recording all their nodes takes more time and memory than it saves


@dataclass(frozen=True)
class Plan:
    """A way, and the reason why it was chosen."""

    way: type[Way]
    reason: str
    asked: bool = False  # the user chose it, so an error is the user's to see
    measures: bool = False  # eager at first, until the time per epoch is known

    @property
    def compiles(self) -> bool:
        return self.way in (Whole, ByExample)

    def in_words(self, task: Task, found: str = "") -> str:
        """For `history.engine`; `found` is what the compiler made of the model."""
        if self.way is Sharded:
            return f"compiled by XLA, {self.reason}: {found}"
        if not self.compiles:
            return f"eager, {self.reason}"
        return f"compiled, {self.reason}{f', in {task.dtype}' if task.dtype != 'float64' else ''}: {found}"


def first_plan(task: Task, compiled: bool | str, before: bool | None) -> Plan:
    """The plan by what was asked; `before` is whether an interrupted run had decided to compile."""
    if task.devices is not None:
        return Plan(Sharded, f"on {task.devices}", asked=True)
    if compiled is True or task.backend == "cuda":
        if nodes_are_observed():
            raise ValueError("`compiled` steps are not watched by detect_anomaly(): leave `compiled` out in the block")
        whole = task.is_one_batch and len(task.data) <= MANY and type(task.optimizer).step is Optimizer.step
        if task.backend == "cuda":
            return Plan(ByExample, "for a GPU, as asked", asked=True)
        return Plan(Whole if whole else ByExample, "as asked", asked=True)
    if compiled is False:
        return Plan(Eager, "as asked", asked=True)
    if obstacle := _obstacle(task):
        return Plan(Eager, f"because {obstacle}")
    if before is not None:
        return Plan(ByExample if before else Eager, "as the run was before it was interrupted")
    if task.batch_size > MANY:
        return Plan(ByExample, f"because {task.batch_size:,} examples at once would be many nodes")
    return Plan(Eager, "until the time per epoch is known", measures=True)


def second_plan(task: Task, epochs: int, seconds: float) -> Plan:
    """The plan for the `epochs` that are left, given the seconds that an eager one takes."""
    if not epochs:
        return Plan(Eager, "because no epoch is left to compile for")
    cost = seconds_to_compile(seconds / len(task.data))
    coming = f"{epochs} epoch{'s' * (epochs > 1)} of {seconds:.2g} s"
    if epochs * seconds > 2 * cost:
        return Plan(ByExample, f"because {coming} would take longer than the {cost:.2g} s of compiling")
    return Plan(Eager, f"because {coming} would be over before compiling pays off")


def seconds_to_compile(eager: float) -> float:
    """An estimate from the eager seconds per example: LLVM, and some work for each node."""
    return 0.5 + (100 if ENGINE == "native" else 3) * eager


def _obstacle(task: Task) -> str:
    """Why the steps must not be compiled unless the user asks for it; empty if they may."""
    if nodes_are_observed():
        return "compiled steps are not watched by detect_anomaly()"
    ours = {
        "model": _is_known(task.model),
        "loss": all(f is None or _module(f) == losses.__name__ for f in (task.loss, task.penalty)),
        "optimizer": _module(type(task.optimizer)) == optim.__name__,
    }
    for part, known in ours.items():
        if not known:
            return f"what this {part} does may differ from step to step (`compiled=True` says that it does not)"
    return "" if find_spec("llvmlite") else "llvmlite is not installed"


def _is_known(model: Any) -> bool:
    """Whether it is made of chainrule's own networks, which do the same at every step."""
    if type(model) is Sequential:
        return all(map(_is_known, model.steps))
    if type(model) is Neuron:
        return isinstance(model.activation, str)
    parts = getattr(model, "layers", None) or getattr(model, "neurons", [])
    return type(model) in (MLP, Layer) and all(map(_is_known, parts))


def _module(thing: Any) -> str:
    return getattr(thing, "__module__", "")


class Epochs:
    """Runs a task's epochs; `history.engine` says which way."""

    def __init__(self, task: Task, position: Position, saver: Saver | None, history: History) -> None:
        self.task, self.position, self.saver, self.history = task, position, saver, history

    def run(self, count: int, compiled: bool | str) -> Iterator[Columns]:
        """The columns of the history, epoch by epoch; several epochs at a time where nothing looks in between."""
        if count <= 0 or self.history.stopped:
            return
        plan = first_plan(self.task, compiled, self.position.compiled)
        if plan.measures:
            self.history.engine = plan.in_words(self.task)
            eager = Eager(self.task, self.position, self.saver)
            if len(self.task.data) > MANY:
                seconds = eager.try_out(MANY)
            else:
                started = time.perf_counter()
                columns = eager.epoch()
                seconds = time.perf_counter() - started
                count -= 1
                yield columns
            plan = second_plan(self.task, count, seconds)
            self.position.compiled = False
        while True:  # compiled steps are made again when a callback changes what they have built in
            settings = self.task.fixed_settings
            for columns in self._way(plan).epochs(count):
                yield columns
                count -= len(columns["loss"])
                if plan.compiles and self.task.watched and self.task.fixed_settings != settings:
                    break
            if not count:
                return

    def _way(self, plan: Plan) -> Way:
        """The plan's way; the eager one if that is impossible and was not asked for."""
        try:
            way = self._made(plan.way)
        except (TypeError, ValueError) as error:
            if plan.asked:
                raise
            plan = Plan(Eager, f"because this cannot be compiled: {error}")
            way = self._made(Eager)
            self.position.compiled = False
        if plan.compiles:
            self.position.compiled = True
        self.history.engine = plan.in_words(self.task, way.found)
        return way

    def _made(self, kind: type[Way]) -> Way:
        try:
            return kind(self.task, self.position, self.saver)
        except IndivisibleError:
            if kind is ByExample and self.task.is_one_batch:
                return self._made(Whole)
            raise
