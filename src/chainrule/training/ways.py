"""The ways of taking a run's steps: eager, compiled for all examples or for one, and on the devices of a mesh."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from chainrule.core.arguments import counted
from chainrule.core.recording import no_grad
from chainrule.core.structure import ARRAY, build, flatten, made
from chainrule.core.value import Value
from chainrule.data import Dataset
from chainrule.training.checkpoints import Saver
from chainrule.training.task import Columns, Loss, Position, Row, Task

AT_ONCE = 0.05  # seconds of compiled steps before returning to Python: for a checkpoint, a progress bar, Ctrl-C


class Way:
    """Takes epochs; a subclass says how `step` takes the next steps of one."""

    found = ""  # what the compiler made of the model, in words
    examples: Dataset  # that batches are drawn from

    def __init__(self, task: Task, position: Position, saver: Saver | None) -> None:
        self.task, self.position, self.saver = task, position, saver
        self.examples = task.data
        self.prepare()

    def prepare(self) -> None:
        """Compile what needs to be compiled."""

    def step(self, parts: list[Dataset]) -> list[Row]:
        """Take a step on the first of these batches, or on several of them; returns one row per step."""
        raise NotImplementedError

    def predict(self, inputs: list[Any]) -> list[Any]:
        return [self.task.model(x) for x in inputs]

    def store(self) -> None:
        """Have the model and the optimizer hold the outcome of the steps so far."""

    def epochs(self, count: int) -> Iterator[Columns]:
        for _ in range(count):
            yield self.epoch()

    def epoch(self) -> Columns:
        """One epoch, or what is left of the one under way."""
        position = self.position
        parts = position.batches(self.examples, self.task.batch_size)
        while len(position.rows) < len(parts):
            position.rows += self.step(parts[len(position.rows) :])
            if len(position.rows) < len(parts) and self.saver and self.saver.is_due():
                self.store()
                self.saver.save()
        row, position.rows = _average(position.rows, parts), []
        self.store()
        return self.task.columns(row, self.predict)

    def steps_left(self) -> float:
        """How many steps may be taken before a checkpoint is due."""
        return self.saver.steps_left() if self.saver else math.inf


class Eager(Way):
    """Steps on Values."""

    def step(self, parts: list[Dataset]) -> list[Row]:
        task, part = self.task, parts[0]
        predictions = self.predict(part.inputs)
        total = task.total(predictions, part.targets)
        row = {"loss": total._data, **task.measured(predictions, part.targets)}
        task.optimizer.zero_grad()
        total.backward()
        task.optimizer.step()
        return [row]

    def try_out(self, least: int) -> float:
        """Take the first steps of an epoch, which is under way afterwards; returns the estimated seconds per epoch.

        They are on at least `least` examples, whatever the clock says, so that runs can be repeated.
        """
        position = self.position
        parts, started = position.batches(self.examples, self.task.batch_size), time.perf_counter()
        before = len(position.rows)
        while len(position.rows) == before or len(position.rows) * self.task.batch_size < least:
            position.rows += self.step(parts[len(position.rows) :])
        seconds = (time.perf_counter() - started) / (len(position.rows) - before) * len(parts)
        position.rewind()
        return seconds


class Whole(Way):
    """Every epoch is one step, compiled from the nodes of all examples."""

    def prepare(self) -> None:
        task, self.program = self.task, _compiled_model(self.task)
        from chainrule.compiler.run.steps import CompiledSteps

        def loss_of(inputs: Any) -> Any:
            return task.total([task.model(x) for x in inputs], task.data.targets)

        self.steps = CompiledSteps(loss_of, task.data.inputs, task.optimizer, dtype=task.dtype)
        nodes, statements = self.steps.stats["scalar nodes"], self.steps.stats["array statements"]
        self.found = f"{counted(nodes, 'scalar node')} in {counted(statements, 'array statement')}"

    def epochs(self, count: int) -> Iterator[Columns]:
        return _epochs_of_one_step(self, self.steps.run, count)


class ByNumber(Way):
    """Steps compiled from the nodes of one example; a batch is given by the numbers of its examples."""

    one_at_a_time = False

    def prepare(self) -> None:
        numbers = range(len(self.task.data))
        self.examples = Dataset(numbers, numbers)
        self.summands = Value(1.0)  # how many examples the batch has
        self.at_once = 1  # steps before returning to Python
        self.steps, self.program = self.made(loss_of_one(self.task, self.summands))
        self.found = f"{counted(self.steps.traced.scalar_nodes, 'scalar node')} per example"

    def made(self, loss: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
        """The compiled steps, and a program of the model for its predictions."""
        raise NotImplementedError

    def predict(self, inputs: list[Any]) -> list[Any]:
        return _examples(self.program.batch(inputs, reduce=None))

    def step(self, parts: list[Dataset]) -> list[Row]:
        task, size, count = self.task, len(parts[0]), 1
        if not self.one_at_a_time and not task.metrics and size == task.batch_size:  # the last batch may be smaller
            equal = len(parts) - (len(parts[-1]) < task.batch_size)
            count = int(min(equal, self.steps_left(), self.at_once))
        numbers = [number for part in parts[:count] for number in part.inputs]
        measured: Row = {}
        if task.metrics:
            self.store()
            predictions = self.predict([task.data.inputs[k] for k in numbers])
            measured = task.measured(predictions, [task.data.targets[k] for k in numbers])
        self.summands.data = float(size)
        started = time.perf_counter()
        losses = self.steps.run(numbers, size)
        share = AT_ONCE / (time.perf_counter() - started)
        self.at_once = max(1, int(count * min(share, 2.0)))
        return [{"loss": loss, **measured} for loss in losses]


class ByExample(ByNumber):
    """Steps in native code."""

    def made(self, loss: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
        task, program = self.task, _compiled_model(self.task, self.task.backend)
        from chainrule.compiler.backends import ready
        from chainrule.compiler.run.train import BatchSteps

        data, backend = (task.data.inputs, task.data.targets), ready(task.backend)
        return BatchSteps(loss, data, task.optimizer, task.dtype, backend), program

    def epochs(self, count: int) -> Iterator[Columns]:
        if not self.task.is_one_batch:
            return super().epochs(count)
        numbers = self.examples.inputs
        self.summands.data = float(len(numbers))
        return _epochs_of_one_step(self, lambda n: self.steps.run(numbers * n, len(numbers)), count)


class Sharded(ByNumber):
    """Steps on the devices of a mesh, whose processes must have been given the same."""

    one_at_a_time = True

    def made(self, loss: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
        from chainrule.compiler.run.sharding import ShardedSteps

        task, rng = self.task, self.position.rng
        program = _compiled_model(task, "jax").shard(task.devices.mesh)
        steps = ShardedSteps(loss, (task.data.inputs, task.data.targets), task.optimizer, task.devices, task.dtype)
        task.devices.agree(
            {
                "data": lambda: steps.matrix.tobytes(),
                "validation data": lambda: repr(task.validation and list(task.validation)).encode(),
                "parameters": lambda: repr((task.model.state(), task.optimizer.state())).encode(),
                "random numbers": lambda: repr(rng and rng.getstate()).encode(),
            }
        )
        return steps, program

    def store(self) -> None:
        self.steps.store()


def _compiled_model(task: Task, backend: str = "llvm") -> Any:
    from chainrule.compiler.function import CompiledFunction

    return CompiledFunction(task.model, backend=backend, dtype=task.dtype)


def _epochs_of_one_step(way: Whole | ByExample, run: Callable[[int], list[float]], epochs: int) -> Iterator[Columns]:
    """Epochs that are one step each, on all examples; `run(count)` takes `count` of them and returns their losses."""
    task, at_once = way.task, 1
    while epochs:
        count = int(min(epochs, at_once, way.steps_left()))
        started = time.perf_counter()
        if task.watched:
            predictions = _examples(way.program.batch(task.data.inputs, reduce=None)) if task.metrics else []
            row = task.measured(predictions, task.data.targets)
            yield task.columns({"loss": run(1)[0], **row}, way.predict)
        else:
            yield {"loss": run(count)}
            if time.perf_counter() - started < AT_ONCE:
                at_once *= 2
        epochs -= count


def _examples(predictions: Any) -> list[Any]:
    """Predictions of a batch, example by example, as the Values that metrics expect."""
    if isinstance(predictions, dict):
        rows = zip(*map(_examples, predictions.values()), strict=True)
        return [type(predictions)(zip(predictions, row, strict=True)) for row in rows]
    if isinstance(predictions, (list, tuple)):
        return [made(type(predictions), row) for row in zip(*map(_examples, predictions), strict=True)]
    if predictions.ndim > 1:
        return [build((ARRAY, row.shape), map(Value, row.ravel().tolist())) for row in predictions]
    return [Value(number) for number in predictions.tolist()]


def _average(rows: list[Row], parts: list[Dataset]) -> Row:
    """The mean over batches, weighted by their sizes; exact if there is one batch."""
    if len(rows) == 1:
        return rows[0]
    sizes = [len(part) for part in parts]
    return {n: sum(r[n] * k for r, k in zip(rows, sizes, strict=True)) / sum(sizes) for n in rows[0]}


class IndivisibleError(ValueError):
    """The loss of a batch does not follow from the losses of its examples."""


def loss_of_one(task: Task, summands: Value) -> Callable[[Any, Any], Any]:
    """The loss of one example, such that its mean over a batch of `summands` examples is the loss of the batch."""
    prediction, targets = task.model(task.data.inputs[0]), task.data.targets
    with no_grad():  # for targets that the loss refuses: to a compiled program they are just numbers
        task.checked_loss([prediction] * len(targets), targets)
    is_sum = _adds_up(task.checked_loss, prediction, targets)

    def loss_of_one(x: Any, y: Any) -> Any:
        own = task.checked_loss([task.model(x)], [y])
        return task.penalized(own * summands if is_sum else own)

    return loss_of_one


def _adds_up(loss: Loss, prediction: Any, targets: Sequence[Any]) -> bool:
    """Whether the loss of a batch is the sum of the losses of its examples, rather than their mean.

    It is tried on predictions like the one given, with numbers that may be logits, probabilities or lengths.
    """
    rng, leaves = Random(0), list[Any]()
    structure = flatten(prediction, leaves, lambda leaf: leaf)
    wanted = [targets[k * (len(targets) - 1) // 4] for k in range(5)]
    predictions = [build(structure, (Value(rng.uniform(0.1, 0.9)) for _ in leaves)) for _ in wanted]
    alone = [loss([p], [y])._data for p, y in zip(predictions, wanted, strict=True)]
    whole, total = loss(predictions, wanted)._data, sum(alone)
    for is_sum, expected in ((False, total / len(alone)), (True, total)):
        if whole and math.isclose(whole, expected, rel_tol=1e-9):
            return is_sum
    if not math.isfinite(whole) or not (whole or any(alone)):
        raise IndivisibleError(
            f"`loss` is {whole!r} for five examples with predictions between 0.1 and 0.9, which does not show whether "
            "it is their mean or sum, as compiled batches and a mesh need: look at the targets, or try compiled=False"
        )
    raise IndivisibleError(
        "`loss` must be the mean or the sum of the losses of single examples, because steps on a mesh or on compiled "
        f"batches take it apart: of five it is {whole!r}, and their own have the mean {total / len(alone)!r} and the "
        f"sum {total!r}; eager steps, compiled=False, take any"
    )
