"""`fit`: the training loop, for those who would rather not write its five lines again.

    for epoch in range(100):
        loss = losses.mean_square([model(x) for x in xs], ys)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

`fit` is that loop, with batches, metrics, a progress bar, early stopping and a history around it.
"""

from __future__ import annotations

import math
import os
import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from importlib.util import find_spec
from random import Random
from typing import Any

from chainrule._arguments import whole_number
from chainrule._observation import nodes_are_observed
from chainrule._value import ENGINE, Value
from chainrule.data import Dataset, batches
from chainrule.nn import MLP, Layer, Module, Neuron, Sequential
from chainrule.ops import as_float
from chainrule.optim import Adam, Optimizer

__all__ = ["EarlyStopping", "History", "Training", "fit"]

Loss = Callable[[list[Any], list[Any]], Value]
Metric = Callable[[list[Any], list[Any]], float]
Callback = Callable[["Training"], object]


class History:
    """What a training run recorded, an entry an epoch.

    >>> history = History()
    >>> history.record({"loss": 0.9}); history.record({"loss": 0.1})
    >>> history
    History(2 epochs, loss 0.9 → 0.1)
    >>> history.loss
    [0.9, 0.1]
    """

    def __init__(self) -> None:
        self.columns: dict[str, list[float]] = {}
        self.seconds = 0.0
        self.engine = ""  # what ran the steps, and why
        self.stopped = ""  # why training ended early; empty if it did not

    def record(self, row: Mapping[str, float]) -> None:
        """Append one epoch.

        >>> history = History()
        >>> history.record({"loss": 0.5})
        >>> len(history)
        1
        """
        self.extend({name: [number] for name, number in row.items()})

    def extend(self, rows: Mapping[str, Sequence[float]]) -> None:
        """Append some epochs, column by column.

        >>> history = History()
        >>> history.extend({"loss": [0.5, 0.25]})
        >>> history.loss
        [0.5, 0.25]
        """
        for name, numbers in rows.items():
            self.columns.setdefault(name, []).extend(numbers)

    def __getitem__(self, name: str) -> list[float]:
        if name not in self.columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.columns) or 'none yet'}")
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.loss)

    @property
    def loss(self) -> list[float]:
        """The training loss of each epoch, before its steps changed the parameters."""
        return self.columns.get("loss", [])

    @property
    def last(self) -> dict[str, float]:
        """The newest entry of each column.

        >>> history = History()
        >>> history.record({"loss": 0.5})
        >>> history.last
        {'loss': 0.5}
        """
        return {name: column[-1] for name, column in self.columns.items()}

    def __repr__(self) -> str:
        ends = [f"{name} {column[0]:.4g} → {column[-1]:.4g}" for name, column in self.columns.items()]
        stopped = [f"stopped: {self.stopped}"] if self.stopped else []
        return f"History({', '.join([f'{len(self)} epochs', *ends, *stopped])})"

    def _repr_html_(self) -> str:
        from chainrule.drawing.notebook import html_of_history

        return html_of_history(self)


class Training:
    """A run in progress, as callbacks see it; `stop(reason)` ends it after the current epoch.

    >>> def no_more_than_ten(training):
    ...     if training.epoch == 9:
    ...         training.stop("ten are enough")
    """

    def __init__(self, model: Module, optimizer: Optimizer, history: History) -> None:
        self.model = model
        self.optimizer = optimizer
        self.history = history
        self.epoch = 0

    def stop(self, reason: str) -> None:
        """End the run after this epoch.

        >>> training = Training(Module(), None, History())
        >>> training.stop("enough")
        >>> training.history.stopped
        'enough'
        """
        self.history.stopped = reason


def fit(
    model: Module,
    loss: Loss,
    data: Dataset,
    *,
    optimizer: Optimizer | None = None,
    epochs: int = 100,
    batch_size: int | None = None,
    penalty: Callable[[list[Value]], Value] | None = None,
    metrics: Mapping[str, Metric] | Iterable[Metric] = (),
    validation: Dataset | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
    rng: Random | int | None = None,
    compiled: bool | str = "auto",
    dtype: str = "float64",
    checkpoint: str | os.PathLike[str] | None = None,
    every: int | timedelta | None = None,
    resume: bool = False,
    mesh: Any = None,
) -> History:
    """Train `model` to make `loss(predictions, targets)` small over `data`; returns the history of the run.

    An epoch goes once over the data, in batches of `batch_size` (default: all at once), shuffled if `rng` is
    given. `penalty` is added to the loss of every step, as in `penalty=losses.l2(1e-4)`. Metrics are functions
    of predictions and targets, in a list or by name; with `validation` data the loss and the metrics of that are
    recorded too. Callbacks are called with a `Training` after each epoch, and their `start` and `finish`, where they
    have such, before the first and after the last.

    `compiled=True` runs the steps as one native program, which is the same at every step: there must be one batch,
    and what the model and the loss do must not depend on chance or on the numbers. "auto" does so for chainrule's own
    networks and losses, when enough epochs are left to pay for compiling; `history.engine` says what ran, and why.
    Such a program can compute with `dtype="float32"`: about seven digits, and twice the numbers in a vector.

    `checkpoint` is a file that the run is written to, whole or not at all, `every` so many steps or `timedelta`
    (default: half a minute) and at the end. `resume=True` goes on from it, if it is there, and comes to the same
    numbers as a run that was never interrupted: optimizer, history, `rng`, Python's global generator and callbacks that
    have `state` and `load_state`, as EarlyStopping has, go along. `epochs` counts from the beginning of the run.

    With a `mesh`, a jax.sharding.Mesh or "all" for all devices that JAX knows, every step is compiled by XLA and its
    batch spread over those devices; the loss must be the mean or the sum of the losses of single examples. If
    `jax.distributed` has brought many processes together, each calls `fit` with the same arguments, data and seeds, and
    process 0 alone writes the checkpoint and shows the progress.

    >>> from chainrule import data, losses, nn
    >>> history = fit(nn.MLP(2, [4, 1], activation="tanh", rng=3), losses.mean_square, data.xor(), progress=False)
    >>> history.loss[-1] < history.loss[0]
    True
    """
    check_run(model, loss, data, validation, optimizer, epochs, batch_size, compiled)
    _check_dtype(dtype, compiled is True or mesh is not None)
    _check_checkpoint(checkpoint, every, resume)
    optimizer = optimizer or Adam(model.parameters(), lr=0.01)
    run = Training(model, optimizer, History())
    callbacks, measures = list(_iterable(callbacks, "callbacks")), _by_name(metrics)
    rng = Random(rng) if isinstance(rng, int) else rng
    with _together(mesh, compiled, checkpoint) as devices:
        job = _Job(model, loss, penalty, optimizer, data, batch_size, rng, measures, validation, dtype, devices)
        watched = bool(callbacks or measures or validation)
        for callback in callbacks:
            getattr(callback, "start", _nothing)(run)
        saver = _Saver(job, run, callbacks, checkpoint, every, resume) if checkpoint is not None else None
        started = time.perf_counter() - run.history.seconds
        with _progress_bar(epochs, progress and job.leads) as show:
            if len(run.history):
                show(run.history.columns)
            for columns in _epochs(job, run.history, epochs - len(run.history), compiled, watched):
                run.history.extend(columns)
                run.history.seconds = time.perf_counter() - started
                run.epoch = len(run.history) - 1
                show(columns)
                if not math.isfinite(last := run.history.loss[-1]):
                    run.stop(f"the loss became {last} by epoch {run.epoch}; try a smaller learning rate")
                    warnings.warn(run.history.stopped, RuntimeWarning, stacklevel=2)
                for callback in callbacks:
                    callback(run)
                if saver:
                    saver.save_if_due()
                if run.history.stopped:
                    break
        if saver:
            saver.save()
        for callback in callbacks:
            getattr(callback, "finish", _nothing)(run)
    return run.history


@contextmanager
def _together(mesh: Any, compiled: Any, checkpoint: Any) -> Iterator[Any]:
    """The devices of the mesh, None without one; and for as long, an eye on the processes that they belong to."""
    if mesh is None:
        yield None
        return
    if compiled is False:
        raise ValueError("with a `mesh` the steps are compiled, by XLA: leave `compiled` out")
    if nodes_are_observed():
        raise ValueError("steps on a `mesh` are not watched by detect_anomaly(): leave `mesh` out in the block")
    from chainrule.compiler.machine import load_xla
    from chainrule.witness import witnessed

    load_xla()
    from chainrule.compiler.sharding import Devices

    devices = Devices(mesh)
    if devices.processes == 1:
        yield devices
        return
    with witnessed(devices.process, devices.processes, "" if checkpoint is None else os.fspath(checkpoint)):
        yield devices


Columns = Mapping[str, Sequence[float]]


def _epochs(job: _Job, history: History, epochs: int, compiled: bool | str, watched: bool) -> Iterator[Columns]:
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
        yield from job.compiled(history, "as asked", epochs, watched)
        return
    left = epochs
    history.engine = "eager, as asked" if compiled is False else job.why_eager
    if compiled == "auto" and not job.why_eager and job.decided is not None:
        if job.decided:
            yield from job.compiled(history, "as the run was before it was interrupted", left, watched)
            return
        history.engine = "eager, as the run was before it was interrupted"
    elif compiled == "auto" and not job.why_eager:
        started = time.perf_counter()
        yield job.epoch()
        left -= 1
        seconds = time.perf_counter() - started
        saved, cost = left * seconds, _seconds_to_compile(seconds)
        if saved > 2 * cost:
            reason = f"for {left} epochs of {seconds:.2g} s are longer than the {cost:.2g} s that compiling takes"
            yield from job.compiled(history, reason, left, watched)
            return
        job.decided = False
        history.engine = f"eager, for {left} epochs of {seconds:.2g} s are over before compiling would pay"
    for _ in range(left):
        yield job.epoch()


def _seconds_to_compile(epoch: float) -> float:
    """A guess from the time of an eager epoch: LLVM, and some work for each scalar node."""
    return 0.5 + (100 if ENGINE == "native" else 3) * epoch


class _Job:
    """What is to be done in every epoch, and two ways of doing it."""

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
        self.batch_size = batch_size or len(data)
        self.rng = rng
        self.metrics = metrics
        self.validation = validation
        self.dtype = dtype
        self.devices = devices  # of a mesh
        self.steps: Any = None  # on those devices
        self.summands = Value(1.0)  # how many examples are in their batch
        self.examples = data  # that batches are made of; their numbers if there is a mesh
        self.predict: Callable[[list[Any]], list[Any]] = lambda inputs: [self.model(x) for x in inputs]
        self.rows: list[dict[str, float]] = []  # of the batches done in the epoch under way
        self.random_at_start: Any = None  # the state of `rng` before it shuffled them
        self.random_now: Any = None  # after a resumption in the middle of an epoch, until the batches are drawn again
        self.decided: bool | None = None  # whether "auto" compiles
        self.after_step: Callable[[], object] = _no_save
        self.steps_left: Callable[[], float] = lambda: math.inf

    def epoch(self) -> Columns:
        """An eager epoch, or what is left of it."""
        self.random_at_start = self.rng.getstate() if self.rng else None
        parts = batches(self.examples, self.batch_size, self.rng)
        if self.rng and self.random_now:
            self.rng.setstate(self.random_now)
            self.random_now = None
        for part in parts[len(self.rows) :]:
            self.rows.append(self.step(part))
            if len(self.rows) < len(parts):
                self.after_step()
        row, self.rows = _average(self.rows, parts), []
        self.store()
        return self.columns(row)

    def step(self, part: Dataset) -> dict[str, float]:
        if self.steps is not None:
            return self.sharded_step(part.inputs)
        predictions = self.predict(part.inputs)
        total = self.total(predictions, part.targets)
        row = {"loss": total.data, **self.measured(predictions, part.targets)}
        self.optimizer.zero_grad()
        total.backward()
        self.optimizer.step()
        return row

    def sharded_step(self, numbers: list[int]) -> dict[str, float]:
        """A step on the examples of these numbers, on the devices of the mesh."""
        row: dict[str, float] = {}
        if self.metrics:
            self.store()
            predictions = self.predict([self.data.inputs[k] for k in numbers])
            row = self.measured(predictions, [self.data.targets[k] for k in numbers])
        self.summands.data = float(len(numbers))
        return {"loss": self.steps.step(numbers), **row}

    def shard(self, history: History) -> None:
        """Have the coming epochs run on the devices of the mesh."""
        from chainrule.compiler.function import CompiledFunction
        from chainrule.compiler.sharding import ShardedFunction, ShardedSteps

        is_sum = _adds_up(self.checked_loss, self.model(self.data.inputs[0]), self.data.targets)

        def loss_of_one(x: Any, y: Any) -> Any:
            """Its mean over a batch is the loss of the batch."""
            own = self.checked_loss([self.model(x)], [y])
            return self.penalized(own * self.summands if is_sum else own)

        arrays = self.data.inputs, self.data.targets
        self.steps = ShardedSteps(loss_of_one, arrays, self.optimizer, self.devices, self.dtype)
        self.devices.agree(
            {
                "data": lambda: self.steps.matrix.tobytes(),
                "validation data": lambda: repr(self.validation and list(self.validation)).encode(),
                "parameters": lambda: repr((self.model.state(), self.optimizer.state())).encode(),
                "random numbers": lambda: repr(self.rng and self.rng.getstate()).encode(),
            }
        )
        self.examples = Dataset(range(len(self.data)), range(len(self.data)))
        program = ShardedFunction(CompiledFunction(self.model, backend="jax", dtype=self.dtype), self.devices.mesh)
        self.predict = lambda inputs: _examples(program.batch(inputs, reduce=None))
        history.engine = (
            f"compiled by XLA, on {self.devices}: {self.steps.traced.scalar_nodes:,} scalar nodes for an example"
        )

    def store(self) -> None:
        """Have the model and the optimizer hold what the steps so far came to."""
        if self.steps is not None:
            self.steps.store()

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.devices is None or bool(self.devices.leads)

    def compiled(self, history: History, reason: str, epochs: int, watched: bool) -> Iterator[Columns]:
        """Epochs of one compiled step each."""
        from chainrule.compiler.function import CompiledFunction
        from chainrule.compiler.steps import CompiledSteps

        def loss_of(inputs: Any) -> Any:
            return self.total([self.model(x) for x in inputs], self.data.targets)

        if self.batch_size < len(self.data):
            raise ValueError("`compiled` needs one batch, the same at every step: leave `batch_size` out")
        self.decided = True
        steps = CompiledSteps(loss_of, self.data.inputs, self.optimizer, dtype=self.dtype)
        nodes, statements = steps.stats["scalar nodes"], steps.stats["array statements"]
        reason += f", in {self.dtype}" if self.dtype != "float64" else ""
        history.engine = f"compiled, {reason}: {nodes:,} scalar nodes in {statements} array statements"
        predict = CompiledFunction(self.model, dtype=self.dtype) if self.metrics else None
        at_once = 1
        while epochs:
            count = int(min(epochs, at_once, self.steps_left()))
            started = time.perf_counter()
            if watched:
                predictions = _examples(predict.batch(self.data.inputs, reduce=None)) if predict else []
                row = self.measured(predictions, self.data.targets)
                yield self.columns({"loss": steps.run(1)[0], **row})
            else:
                yield {"loss": steps.run(count)}
                if time.perf_counter() - started < 0.05:  # often enough for the progress bar
                    at_once *= 2
            epochs -= count

    def total(self, predictions: list[Any], targets: list[Any]) -> Any:
        return self.penalized(self.checked_loss(predictions, targets))

    def checked_loss(self, predictions: list[Any], targets: list[Any]) -> Any:
        total = self.loss(predictions, targets)
        if not hasattr(total, "_apply"):
            raise TypeError(f"`loss` must return a Value, got {type(total).__name__}: build it from the predictions")
        return total

    def penalized(self, total: Any) -> Any:
        return total + self.penalty(self.model.parameters()) if self.penalty else total

    def measured(self, predictions: list[Any], targets: list[Any]) -> dict[str, float]:
        return {name: float(metric(predictions, targets)) for name, metric in self.metrics.items()}

    def columns(self, row: dict[str, float]) -> Columns:
        """An epoch's row, with that of the validation data, as columns."""
        if self.validation is not None:
            predictions = self.predict(self.validation.inputs)
            row["validation_loss"] = self.loss(predictions, self.validation.targets).data
            measured = self.measured(predictions, self.validation.targets)
            row |= {f"validation_{name}": number for name, number in measured.items()}
        return {name: [number] for name, number in row.items()}

    @property
    def why_eager(self) -> str:
        """Why the steps must not be compiled unasked; empty if they may."""
        if nodes_are_observed():
            return "eager, for compiled steps are not watched by detect_anomaly()"
        if self.batch_size < len(self.data):
            return "eager, for the batches differ from step to step"
        if not _is_known(self.model):
            return "eager, for what this model does may differ from step to step (`compiled=True`: it does not)"
        ours = [f for f in (self.loss, self.penalty) if getattr(f, "__module__", "") == "chainrule.losses" or f is None]
        if len(ours) < 2:
            return "eager, for what this loss does may differ from step to step (`compiled=True`: it does not)"
        if not find_spec("llvmlite"):
            return "eager, for llvmlite is not installed"
        return ""


class _Saver:
    """Keeps a run's checkpoint: what to put into it, and how to go on from it."""

    def __init__(
        self,
        job: _Job,
        run: Training,
        callbacks: list[Any],
        path: str | os.PathLike[str],
        every: int | timedelta | None,
        resume: bool,
    ) -> None:
        from chainrule import checkpoints  # needs safetensors

        self.job, self.run, self.callbacks, self.format = job, run, callbacks, checkpoints
        name = os.fspath(path)
        with job.devices.file(name) if job.devices else nullcontext(name if os.path.lexists(name) else None) as there:
            if there is not None:
                if not resume:
                    raise FileExistsError(
                        f"`checkpoint` is there already: {name!r}; say resume=True to go on from it, or remove it first"
                    )
                self.load(there)
        if not job.leads:
            return
        self.file = checkpoints.Checkpoints(name, checkpoints.HALF_A_MINUTE if every is None else every, self.steps)
        job.after_step, job.steps_left = self.save_if_due, lambda: self.file.steps_left(self.steps)

    @property
    def steps(self) -> int:
        return self.run.optimizer.steps

    @property
    def shape(self) -> dict[str, Any]:
        job = self.job
        columns = ["loss", *job.metrics]
        columns += [f"validation_{name}" for name in columns] if job.validation is not None else []
        return {"examples": len(job.data), "batch_size": job.batch_size, "dtype": job.dtype, "columns": columns}

    def save_if_due(self) -> None:
        if self.job.leads and self.file.due(self.steps):
            self.save()

    def save(self) -> None:
        job, history = self.job, self.run.history
        if not job.leads:
            return
        job.store()
        snapshot = self.format.Snapshot(
            **self.format.describe(self.run.model, self.run.optimizer, self.callbacks),
            history=history.columns,
            batches=job.rows,
            seconds=history.seconds,
            stopped=history.stopped,
            compiled=job.decided,
            shape=self.shape,
            randoms={
                "global": random.getstate(),
                "rng": job.rng.getstate() if job.rng else None,
                "epoch": job.random_at_start if job.rows else None,
            },
        )
        self.file.write(snapshot)

    def load(self, name: str) -> None:
        job, run = self.job, self.run
        saved = self.format.read(name)
        if saved.shape != self.shape:
            raise ValueError(f"{name!r} is of a run with {_words(saved.shape)}, and this one has {_words(self.shape)}")
        if (saved.randoms["rng"] is None) != (job.rng is None):
            raise ValueError(f"{name!r} is of a run {'without' if job.rng else 'with'} `rng`: go on as it began")
        fits = all(set(row) == {"loss", *job.metrics} for row in saved.batches)
        if not fits or set(saved.history) not in (set(), set(self.shape["columns"])):
            raise ValueError(f"{name!r} is a damaged checkpoint: its columns are not those of such a run")
        if len(saved.batches) * job.batch_size >= len(job.data):
            raise ValueError(f"{name!r} is a damaged checkpoint: more batches are done than an epoch has")
        self.format.restore(name, saved, run.model, run.optimizer, self.callbacks)
        run.history.extend(saved.history)
        run.history.seconds, run.history.stopped = saved.seconds, saved.stopped
        job.rows, job.decided = saved.batches, saved.compiled
        random.setstate(saved.randoms["global"] or random.getstate())
        if job.rng:
            job.rng.setstate(saved.randoms["epoch"] or saved.randoms["rng"] or ())
            job.random_now = saved.randoms["rng"] if saved.randoms["epoch"] else None


def _adds_up(loss: Loss, prediction: Any, targets: Sequence[Any]) -> bool:
    """Whether the loss of a batch is the sum of the losses of its examples, rather than their mean.

    It is tried on predictions like the one given, of numbers that may be logits, probabilities or lengths.
    """
    rng = Random(0)

    def like(prediction: Any) -> Any:
        if isinstance(prediction, (list, tuple)):
            return [like(entry) for entry in prediction]
        return Value(rng.uniform(0.1, 0.9))

    wanted = [targets[k * (len(targets) - 1) // 4] for k in range(5)]
    predictions = [like(prediction) for _ in wanted]
    alone = [loss([p], [y]).data for p, y in zip(predictions, wanted, strict=True)]
    whole, total = loss(predictions, wanted).data, sum(alone)
    for is_sum, expected in ((False, total / len(alone)), (True, total)):
        if whole and math.isclose(whole, expected, rel_tol=1e-9):
            return is_sum
    raise ValueError(
        f"`loss` must be the mean or the sum of the losses of single examples for a `mesh`, which divides the batch: "
        f"of five it is {whole!r}, and their own have the mean {total / len(alone)!r} and the sum {total!r}"
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
    if isinstance(predictions, (list, tuple)):
        return [list(row) for row in zip(*map(_examples, predictions), strict=True)]
    return [Value(number) for number in predictions.tolist()]


class EarlyStopping:
    """A callback that ends training when a column of the history has not improved for `patience` epochs.

    It watches the validation loss if there is one, else the loss, unless `monitor` names another column; lower is
    better, except for accuracies. At the end of the run the model gets back the parameters that were best.

    >>> from chainrule import data, losses, nn
    >>> stop = EarlyStopping(patience=5)
    >>> history = fit(nn.MLP(2, [1]), losses.mean_square, data.xor(), callbacks=[stop], epochs=5, progress=False)
    """

    def __init__(self, patience: int = 10, monitor: str = "", least_gain: float = 0.0) -> None:
        self.patience = whole_number(patience, "patience")
        self.monitor = monitor
        self.least_gain = least_gain

    def start(self, training: Training) -> None:
        """Called before the first epoch."""
        self.best, self.best_epoch = math.inf, 0
        self.best_state = self.before = training.model.state()

    def __call__(self, training: Training) -> None:
        last = training.history.last
        column = self.monitor or ("validation_loss" if "validation_loss" in last else "loss")
        if column not in last:
            raise KeyError(f"`monitor` must be one of {', '.join(last)}; got {column!r}")
        number = -last[column] if column.endswith("accuracy") else last[column]
        after = training.model.state()
        if number < self.best - self.least_gain:
            self.best, self.best_epoch = number, training.epoch
            # Validation is measured after an epoch's steps; everything else before them.
            self.best_state = after if column.startswith("validation_") else self.before
        elif training.epoch - self.best_epoch >= self.patience:
            training.stop(f"{column} has not improved on {abs(self.best):.4g} since epoch {self.best_epoch}")
        self.before = after

    def finish(self, training: Training) -> None:
        """Called after the last epoch."""
        training.model.load_state(self.best_state)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        names = ("best", "best_epoch", "best_state", "before")
        return {name: getattr(self, name) for name in names}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state()` gave."""
        for states in (state["best_state"], state["before"]):
            if states.keys() != self.before.keys():
                raise ValueError("the states that EarlyStopping remembers are of another model")
        self.best = as_float(state["best"], "best")
        self.best_epoch = whole_number(state["best_epoch"], "best_epoch", 0)
        self.best_state, self.before = (
            {name: as_float(number, name) for name, number in state[which].items()}
            for which in ("best_state", "before")
        )


def _no_save() -> None:
    """What a run without a checkpoint does after a step."""


def _words(shape: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in shape.items())


def _nothing(training: Training) -> None:
    """What a callback without a `start` or a `finish` does there."""


def _average(rows: list[dict[str, float]], parts: list[Dataset]) -> dict[str, float]:
    """The mean over batches, weighted by their sizes; exact where there is one batch."""
    if len(rows) == 1:
        return rows[0]
    sizes = [len(part) for part in parts]
    return {n: sum(r[n] * k for r, k in zip(rows, sizes, strict=True)) / sum(sizes) for n in rows[0]}


def _by_name(metrics: Mapping[str, Metric] | Iterable[Metric]) -> dict[str, Metric]:
    if isinstance(metrics, Mapping):
        named = list(metrics.items())
    else:
        named = [(getattr(m, "__name__", type(m).__name__), m) for m in _iterable(metrics, "metrics")]
    names = [name for name, _ in named]
    if len(set(names)) < len(names) or "loss" in names:
        raise ValueError(f"`metrics` need names of their own, got {names}: give a dict, as in {{'name': function}}")
    return dict(named)


def _iterable(things: Any, argument: str) -> Iterable[Any]:
    if callable(things) or not hasattr(things, "__iter__"):
        raise TypeError(f"`{argument}` must be a list of functions, got {things!r}: write [function] for one")
    return things  # type: ignore[no-any-return]


def check_run(
    model: Any, loss: Any, data: Any, validation: Any, optimizer: Any, epochs: Any, batch_size: Any, compiled: Any
) -> None:
    """Refuse what cannot be trained, or not like that."""
    if not isinstance(model, Module) or not callable(model):
        raise TypeError(f"`model` must be an nn.Module that can be called, got {type(model).__name__}")
    if not callable(loss):
        raise TypeError(f"`loss` must be a function of predictions and targets, as losses.hinge is; got {loss!r}")
    for argument, given in (("data", data), ("validation", validation)):
        if not isinstance(given, Dataset) and not (argument == "validation" and given is None):
            raise TypeError(
                f"`{argument}` must be a Dataset, got {type(given).__name__}: make one with Dataset(inputs, targets)"
            )
    if not len(data):
        raise ValueError("`data` is empty; there is nothing to learn from")
    if optimizer is not None:
        _check_optimizer(optimizer, model)
    whole_number(epochs, "epochs")
    if batch_size is not None:
        whole_number(batch_size, "batch_size")
    if compiled not in (True, False, "auto"):
        raise ValueError(f"`compiled` must be True, False or 'auto', got {compiled!r}")


def _check_dtype(dtype: Any, compiled: bool) -> None:
    if dtype not in ("float64", "float32"):
        raise ValueError(f"`dtype` must be 'float64' or 'float32', got {dtype!r}")
    if dtype == "float32" and not compiled:
        raise ValueError("`dtype` 'float32' is for compiled steps, and eager ones are float64: say compiled=True too")


def _check_checkpoint(checkpoint: Any, every: Any, resume: Any) -> None:
    if checkpoint is None and (resume or every is not None):
        raise ValueError(
            "`every` and `resume` are about a checkpoint: give its file, as in checkpoint='run.safetensors'"
        )


def _check_optimizer(optimizer: Any, model: Module) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"`optimizer` must be an optimizer, as optim.Adam(model.parameters()) is; got {optimizer!r}")
    if not set(optimizer.parameters) & set(model.parameters()):
        raise ValueError("`optimizer` holds no parameter of this model: make it with model.parameters()")


@contextmanager
def _progress_bar(epochs: int, wanted: bool) -> Iterator[Callable[[Columns], None]]:
    if not wanted or not find_spec("rich"):  # in a browser there is none
        yield lambda columns: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = BarColumn(bar_width=12), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns) as bar:
        task = bar.add_task("", total=epochs)

        def show(columns: Columns) -> None:
            text = "  ".join(f"{name} {numbers[-1]:.4g}" for name, numbers in columns.items())
            bar.update(task, advance=len(columns["loss"]), description=text)

        yield show
