"""The epochs of a run of `fit`: eager, as compiled steps, or on the devices of a mesh."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from random import Random
from typing import TYPE_CHECKING, Any

from chainrule.core.observation import nodes_are_observed
from chainrule.core.recording import no_grad
from chainrule.core.structure import ARRAY, build, flatten, made
from chainrule.core.value import ENGINE, Value
from chainrule.data import Dataset, batches
from chainrule.nn import MLP, Layer, Module, Neuron, Sequential
from chainrule.optim import Optimizer

if TYPE_CHECKING:
    from chainrule.training import History

Loss = Callable[[list[Any], list[Any]], Value]
Metric = Callable[[list[Any], list[Any]], float]
Columns = Mapping[str, Sequence[float]]


MANY = 500  # examples in a batch, whose nodes all at once take more time and memory than they save
AT_ONCE = 0.05  # seconds of compiled steps without a look around: for a checkpoint, a progress bar, Ctrl-C
AS_ASKED = "as asked"


def run_epochs(job: Job, history: History, epochs: int, compiled: bool | str, watched: bool) -> Iterator[Columns]:
    """The columns of the history, epoch by epoch; many epochs at a time where nobody watches."""
    if epochs <= 0 or history.stopped:
        return
    if job.devices is not None:
        job.shard(history)
        for _ in range(epochs):
            yield job.epoch()
        return
    if compiled is True:
        if nodes_are_observed():
            raise ValueError("`compiled` steps are not watched by detect_anomaly(): leave `compiled` out in the block")
        yield from job.compiled(history, AS_ASKED, epochs, watched)
        return
    left = epochs
    if compiled is False or job.why_eager:
        history.engine = job.why_eager if compiled else "eager, as asked"
    elif job.decided:
        yield from job.compiled(history, "as the run was before it was interrupted", left, watched)
        return
    elif job.decided is False:
        history.engine = "eager, as the run was before it was interrupted"
    elif job.batch_size > MANY:
        yield from job.compiled(history, f"for the nodes of {job.batch_size:,} examples would be many", left, watched)
        return
    else:
        history.engine = "eager, until it is known how long an epoch takes"
        if len(job.data) > MANY:
            seconds = job.try_out()
        else:
            started = time.perf_counter()
            columns = job.epoch()
            seconds = time.perf_counter() - started
            left -= 1
            yield columns
        saved, cost = left * seconds, seconds_to_compile(seconds / len(job.data))
        coming = f"{left} epoch{'s' * (left > 1)} of {seconds:.2g} s"
        if saved > 2 * cost:
            reason = f"for {coming} would take longer than the {cost:.2g} s of compiling"
            yield from job.compiled(history, reason, left, watched)
            return
        job.decided = False
        ends = f"{coming} would be over before compiling pays" if left else "no epoch is left to compile for"
        history.engine = f"eager, for {ends}"
    for _ in range(left):
        yield job.epoch()


def seconds_to_compile(eager: float) -> float:
    """A guess from the time that the nodes of an example take: LLVM, and some work for each of them."""
    return 0.5 + (100 if ENGINE == "native" else 3) * eager


class Job:
    """What is to be done in every epoch, and the ways of doing it: eager, compiled, on a mesh."""

    def __init__(
        self,
        model: Module,
        loss: Loss,
        penalty: Callable[[list[Value]], Value] | None,
        optimizer: Optimizer,
        data: Dataset,
        batch_size: int | None,
        rng: Random | None,
        metrics: Mapping[str, Metric],
        validation: Dataset | None,
        dtype: str,
        devices: Any = None,
    ) -> None:
        self.model: Any = model
        self.loss = loss
        self.penalty = penalty
        self.optimizer = optimizer
        self.data = data
        self.batch_size = min(batch_size or len(data), len(data))
        self.rng = rng
        self.metrics = metrics
        self.validation = validation
        self.dtype = dtype
        self.devices = devices  # of a mesh
        self.steps: Any = None  # on those devices, or compiled for a batch
        self.summands = Value(1.0)  # how many examples are in their batch
        self.examples = data  # that batches are made of; their numbers where steps are by number
        self.at_once = 1  # steps in native code
        self.predict: Callable[[list[Any]], list[Any]] = self.eager_predictions
        self.rows: list[dict[str, float]] = []  # of the batches done in the epoch under way
        self.random_at_start: Any = None  # the state of `rng` before it shuffled them
        self.random_now: Any = None  # after a resumption in the middle of an epoch, until the batches are drawn again
        self.decided: bool | None = None  # whether "auto" compiles
        self.after_step: Callable[[], object] = _no_save
        self.steps_left: Callable[[], float] = lambda: math.inf

    def epoch(self) -> Columns:
        """An epoch, or what is left of it."""
        parts = self.parts()
        while len(self.rows) < len(parts):
            self.rows += self.steps_on(parts)
            if len(self.rows) < len(parts):
                self.after_step()
        row, self.rows = _average(self.rows, parts), []
        self.store()
        return self.columns(row)

    def parts(self) -> list[Dataset]:
        """The batches of the epoch that begins, or again those of the one under way."""
        self.random_at_start = self.rng.getstate() if self.rng else None
        parts = batches(self.examples, self.batch_size, self.rng)
        if self.rng and self.random_now:
            self.rng.setstate(self.random_now)
            self.random_now = None
        return parts

    def try_out(self) -> float:
        """Take the first steps of an epoch, which is then under way as after an interruption; its seconds, at a guess.

        They are on so many examples, whatever the clock says, such that runs can be repeated.
        """
        parts, started = self.parts(), time.perf_counter()
        before = len(self.rows)
        while len(self.rows) == before or len(self.rows) * self.batch_size < MANY:
            self.rows += self.steps_on(parts)
        seconds = (time.perf_counter() - started) / (len(self.rows) - before) * len(parts)
        if self.rng:
            self.random_now = self.rng.getstate()
            self.rng.setstate(self.random_at_start)
        return seconds

    def steps_on(self, parts: list[Dataset]) -> list[dict[str, float]]:
        """A step on the next of these batches; where nobody looks in between, on some of those that follow too."""
        done = len(self.rows)
        part = parts[done]
        if self.steps is None:
            return [self.step(part)]
        alone = self.devices is not None or self.metrics or len(part) < self.batch_size  # the last may be smaller
        same = len(parts) - done - (len(parts[-1]) < self.batch_size)
        count = 1 if alone else int(min(same, self.steps_left(), self.at_once))
        numbers = [number for part in parts[done : done + count] for number in part.inputs]
        measured: dict[str, float] = {}
        if self.metrics:
            self.store()
            predictions = self.predict([self.data.inputs[k] for k in numbers])
            measured = self.measured(predictions, [self.data.targets[k] for k in numbers])
        self.summands.data = float(len(part))
        started = time.perf_counter()
        losses = self.steps.run(numbers, len(part))
        share = AT_ONCE / (time.perf_counter() - started)
        self.at_once = max(1, int(count * min(share, 2.0)))
        return [{"loss": loss, **measured} for loss in losses]

    def step(self, part: Dataset) -> dict[str, float]:
        """An eager step."""
        predictions = self.predict(part.inputs)
        total = self.total(predictions, part.targets)
        row = {"loss": total._data, **self.measured(predictions, part.targets)}
        self.optimizer.zero_grad()
        total.backward()
        self.optimizer.step()
        return row

    def loss_of_one(self) -> Callable[[Any, Any], Any]:
        """The loss of one example, such that its mean over a batch is the loss of the batch."""
        prediction, targets = self.model(self.data.inputs[0]), self.data.targets
        with no_grad():  # for targets that the loss refuses: in the program they are numbers that it does not know
            self.checked_loss([prediction] * len(targets), targets)
        is_sum = _adds_up(self.checked_loss, prediction, targets)

        def loss_of_one(x: Any, y: Any) -> Any:
            own = self.checked_loss([self.model(x)], [y])
            return self.penalized(own * self.summands if is_sum else own)

        return loss_of_one

    def shard(self, history: History) -> None:
        """Have the coming epochs run on the devices of the mesh."""
        from chainrule.compiler.function import CompiledFunction
        from chainrule.compiler.run.sharding import ShardedSteps

        arrays = self.data.inputs, self.data.targets
        self.steps = ShardedSteps(self.loss_of_one(), arrays, self.optimizer, self.devices, self.dtype)
        self.devices.agree(
            {
                "data": lambda: self.steps.matrix.tobytes(),
                "validation data": lambda: repr(self.validation and list(self.validation)).encode(),
                "parameters": lambda: repr((self.model.state(), self.optimizer.state())).encode(),
                "random numbers": lambda: repr(self.rng and self.rng.getstate()).encode(),
            }
        )
        program = CompiledFunction(self.model, backend="jax", dtype=self.dtype)
        self.step_by_number(program.shard(self.devices.mesh))
        history.engine = (
            f"compiled by XLA, on {self.devices}: {self.steps.traced.scalar_nodes:,} scalar nodes for an example"
        )

    def step_by_number(self, program: Any) -> None:
        """Let batches be numbers of examples, and predictions come from this program of the model."""
        self.examples = Dataset(range(len(self.data)), range(len(self.data)))
        self.predict = lambda inputs: _examples(program.batch(inputs, reduce=None))

    def store(self) -> None:
        """Have the model and the optimizer hold what the steps so far came to."""
        if self.devices is not None and self.steps is not None:
            self.steps.store()

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.devices is None or bool(self.devices.leads)

    @property
    def is_one_batch(self) -> bool:
        return self.batch_size >= len(self.data)

    def compiled(self, history: History, reason: str, epochs: int, watched: bool) -> Iterator[Columns]:
        """Epochs of compiled steps, made again when a callback changes what they were made for."""
        self.decided = True
        while epochs:
            made_for = self.made_for
            try:
                by_example = None if reason == AS_ASKED and self.is_small else self.by_example(epochs, watched)
                found, rows = by_example or self.as_a_whole(epochs, watched)
                suffix = f", in {self.dtype}" if self.dtype != "float64" else ""
                history.engine = f"compiled, {reason}{suffix}: {found}"
            except (TypeError, ValueError) as error:
                if reason == AS_ASKED:
                    raise
                self.steps, self.examples, self.predict = None, self.data, self.eager_predictions
                self.decided, history.engine = False, f"eager, for this cannot be compiled: {error}"
                rows = (self.epoch() for _ in range(epochs))
            for columns in rows:
                yield columns
                epochs -= len(columns["loss"])
                if watched and self.made_for != made_for:
                    break

    @property
    def is_small(self) -> bool:
        """Whether the nodes of all examples can be one program, which takes whole steps."""
        return self.is_one_batch and len(self.data) <= MANY and type(self.optimizer).step is Optimizer.step

    @property
    def made_for(self) -> Any:
        """What is part of compiled steps, and may change between epochs."""
        return repr(self.optimizer.settings), [parameter.requires_grad for parameter in self.optimizer.parameters]

    def by_example(self, epochs: int, watched: bool) -> tuple[str, Iterator[Columns]] | None:
        """What was found, and epochs of steps from the nodes of one example; None where these must be taken whole."""
        try:
            loss = self.loss_of_one()
        except IndivisibleError:
            if self.is_one_batch:
                return None
            raise
        from chainrule.compiler.function import CompiledFunction
        from chainrule.compiler.run.steps import BatchSteps

        self.steps = BatchSteps(loss, (self.data.inputs, self.data.targets), self.optimizer, self.dtype)
        self.step_by_number(CompiledFunction(self.model, dtype=self.dtype))
        found = f"{self.steps.traced.scalar_nodes:,} scalar nodes for an example"
        if not self.is_one_batch:
            return found, (self.epoch() for _ in range(epochs))
        self.summands.data = float(len(self.data))
        numbers = list(range(len(self.data)))
        return found, self.whole_steps(lambda count: self.steps.run(numbers * count, len(numbers)), epochs, watched)

    def as_a_whole(self, epochs: int, watched: bool) -> tuple[str, Iterator[Columns]]:
        """What was found, and epochs of one step each, from the nodes of all examples."""
        from chainrule.compiler.run.steps import CompiledSteps

        def loss_of(inputs: Any) -> Any:
            return self.total([self.model(x) for x in inputs], self.data.targets)

        steps = CompiledSteps(loss_of, self.data.inputs, self.optimizer, dtype=self.dtype)
        nodes, statements = steps.stats["scalar nodes"], steps.stats["array statements"]
        return f"{nodes:,} scalar nodes in {statements} array statements", self.whole_steps(steps.run, epochs, watched)

    def whole_steps(self, run: Callable[[int], list[float]], epochs: int, watched: bool) -> Iterator[Columns]:
        """Epochs of one step each, on all examples; `run` takes so many."""
        from chainrule.compiler.function import CompiledFunction

        predict = CompiledFunction(self.model, dtype=self.dtype) if self.metrics else None
        at_once = 1
        while epochs:
            count = int(min(epochs, at_once, self.steps_left()))
            started = time.perf_counter()
            if watched:
                predictions = _examples(predict.batch(self.data.inputs, reduce=None)) if predict else []
                row = self.measured(predictions, self.data.targets)
                yield self.columns({"loss": run(1)[0], **row})
            else:
                yield {"loss": run(count)}
                if time.perf_counter() - started < AT_ONCE:
                    at_once *= 2
            epochs -= count

    def eager_predictions(self, inputs: list[Any]) -> list[Any]:
        return [self.model(x) for x in inputs]

    def total(self, predictions: list[Any], targets: list[Any]) -> Any:
        return self.penalized(self.checked_loss(predictions, targets))

    def checked_loss(self, predictions: list[Any], targets: list[Any]) -> Any:
        total = self.loss(predictions, targets)
        if not hasattr(total, "_apply"):
            raise TypeError(f"`loss` must return a Value, got {type(total).__name__}: build it from the predictions")
        return total

    def penalized(self, total: Any) -> Any:
        if not self.penalty:
            return total
        added = self.penalty(self.model.parameters())
        if added is None:
            raise TypeError("`penalty` must return a number to add to the loss, got None: does it lack a return?")
        return total + added

    def measured(self, predictions: list[Any], targets: list[Any]) -> dict[str, float]:
        return {name: float(metric(predictions, targets)) for name, metric in self.metrics.items()}

    def columns(self, row: dict[str, float]) -> Columns:
        """An epoch's row, with that of the validation data, as columns."""
        if self.validation is not None:
            predictions = self.predict(self.validation.inputs)
            row["validation_loss"] = self.loss(predictions, self.validation.targets)._data
            measured = self.measured(predictions, self.validation.targets)
            row |= {f"validation_{name}": number for name, number in measured.items()}
        return {name: [number] for name, number in row.items()}

    @property
    def why_eager(self) -> str:
        """Why the steps must not be compiled unasked; empty if they may."""
        if nodes_are_observed():
            return "eager, for compiled steps are not watched by detect_anomaly()"
        if not _is_known(self.model):
            return "eager, for what this model does may differ from step to step (`compiled=True`: it does not)"
        ours = [f for f in (self.loss, self.penalty) if getattr(f, "__module__", "") == "chainrule.losses" or f is None]
        if len(ours) < 2:
            return "eager, for what this loss does may differ from step to step (`compiled=True`: it does not)"
        if type(self.optimizer).__module__ != "chainrule.optim":
            return "eager, for what this optimizer does may differ from step to step (`compiled=True`: it does not)"
        if not find_spec("llvmlite"):
            return "eager, for llvmlite is not installed"
        return ""


class IndivisibleError(ValueError):
    """The loss of a batch does not follow from the losses of its examples."""


def _adds_up(loss: Loss, prediction: Any, targets: Sequence[Any]) -> bool:
    """Whether the loss of a batch is the sum of the losses of its examples, rather than their mean.

    It is tried on predictions like the one given, of numbers that may be logits, probabilities or lengths.
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
        "`loss` must be the mean or the sum of the losses of single examples, for steps on a mesh or on compiled "
        f"batches take it apart: of five it is {whole!r}, and their own have the mean {total / len(alone)!r} and the "
        f"sum {total!r}; eager steps, compiled=False, take any"
    )


def _is_known(model: Any) -> bool:
    """Whether it is made of chainrule's own networks, which do the same at every step."""
    if type(model) is Sequential:
        return all(map(_is_known, model.steps))
    if type(model) is Neuron:
        return isinstance(model.activation, str)
    parts = getattr(model, "layers", None) or getattr(model, "neurons", [])
    return type(model) in (MLP, Layer) and all(map(_is_known, parts))


def _examples(predictions: Any) -> list[Any]:
    """Predictions of a batch, example by example, as Values: what metrics are used to."""
    if isinstance(predictions, dict):
        rows = zip(*map(_examples, predictions.values()), strict=True)
        return [type(predictions)(zip(predictions, row, strict=True)) for row in rows]
    if isinstance(predictions, (list, tuple)):
        return [made(type(predictions), row) for row in zip(*map(_examples, predictions), strict=True)]
    if predictions.ndim > 1:
        return [build((ARRAY, row.shape), map(Value, row.ravel().tolist())) for row in predictions]
    return [Value(number) for number in predictions.tolist()]


def _no_save() -> None:
    """What a run without a checkpoint does after a step."""


def _average(rows: list[dict[str, float]], parts: list[Dataset]) -> dict[str, float]:
    """The mean over batches, weighted by their sizes; exact where there is one batch."""
    if len(rows) == 1:
        return rows[0]
    sizes = [len(part) for part in parts]
    return {n: sum(r[n] * k for r, k in zip(rows, sizes, strict=True)) / sum(sizes) for n in rows[0]}
