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
import operator
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from random import Random
from typing import Any

from chainrule.core import display
from chainrule.core.arguments import whole_number
from chainrule.core.observation import nodes_are_observed
from chainrule.core.quoting import MOST_OF_A_MESSAGE, shown
from chainrule.core.value import Value
from chainrule.data import Dataset
from chainrule.nn import Module
from chainrule.ops import as_float
from chainrule.optim import Adam, Optimizer
from chainrule.training.epochs import Columns, Job, Loss, Metric, run_epochs
from chainrule.training.resuming import Saver, claim

__all__ = ["EarlyStopping", "History", "Training", "fit"]

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
        stopped = [f"stopped: {shown(self.stopped, MOST_OF_A_MESSAGE)}"] if self.stopped else []
        return f"History({', '.join([f'{len(self)} epochs', *ends, *stopped])})"

    _repr_html_ = display.shown("html_of_history")


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

    `compiled=True` runs the steps as one native program: what the model and the loss do must not depend on chance or
    on the numbers, and if there are several batches, the loss must be the mean or the sum of the losses of single
    examples. "auto" does so for chainrule's own networks, losses and optimizers, when the first steps, on 500 examples
    or an epoch, show that it pays, or there are more at once; `history.engine` says what ran, and why. Such a program
    can compute with `dtype="float32"`: about seven digits, and twice the numbers in a vector.

    `checkpoint` is a file that the run is written to, whole or not at all, `every` so many steps or `timedelta`
    (default: half a minute) and at the end. `resume=True` goes on from it, if it is there, and comes to the same
    numbers as a run that was never interrupted: optimizer, history, `rng`, Python's global generator and callbacks that
    have `state` and `load_state`, as EarlyStopping has, go along. `epochs` counts from the beginning of the run.

    With a `mesh`, a jax.sharding.Mesh or "all" for all devices that JAX knows, every step is compiled by XLA and its
    batch spread over those devices; the loss must be such a mean or sum. If `jax.distributed` has brought many
    processes together, each calls `fit` with the same arguments, data and seeds, and process 0 alone writes the
    checkpoint and shows the progress.

    >>> from chainrule import data, losses, nn
    >>> history = fit(nn.MLP(2, [4, 1], activation="tanh", rng=3), losses.mean_square, data.xor(), progress=False)
    >>> history.loss[-1] < history.loss[0]
    True
    """
    check_run(model, loss, data, validation, optimizer, epochs, batch_size, compiled)
    _check_penalty(penalty)
    _check_dtype(dtype, compiled is True or mesh is not None)
    _check_checkpoint(checkpoint, every, resume)
    optimizer = optimizer or Adam(model.parameters(), lr=0.01)
    run = Training(model, optimizer, History())
    callbacks, measures = list(_iterable(callbacks, "callbacks")), _by_name(metrics)
    rng = _generator(rng)
    with _together(mesh, compiled, checkpoint) as devices, claim(checkpoint, devices is None or devices.leads):
        job = Job(model, loss, penalty, optimizer, data, batch_size, rng, measures, validation, dtype, devices)
        watched = bool(callbacks or measures or validation)
        for callback in callbacks:
            getattr(callback, "start", _nothing)(run)
        saver = Saver(job, run, callbacks, checkpoint, every, resume) if checkpoint is not None else None
        started = time.perf_counter() - run.history.seconds
        with _progress_bar(epochs, progress and job.leads) as show:
            if len(run.history):
                show(run.history.columns)
            for columns in run_epochs(job, run.history, epochs - len(run.history), compiled, watched):
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
    from chainrule.compiler.backends import load_xla
    from chainrule.training.watchdog import witnessed

    load_xla()
    from chainrule.compiler.run.sharding import Devices

    devices = Devices(mesh)
    if devices.processes == 1:
        yield devices
        return
    with witnessed(devices.process, devices.processes, "" if checkpoint is None else os.fspath(checkpoint)):
        yield devices


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
        best, best_epoch = as_float(state["best"], "best"), whole_number(state["best_epoch"], "best_epoch", 0)
        best_state, before = (
            {name: as_float(number, name) for name, number in state[which].items()}
            for which in ("best_state", "before")
        )
        self.best, self.best_epoch, self.best_state, self.before = best, best_epoch, best_state, before


def _nothing(training: Training) -> None:
    """What a callback without a `start` or a `finish` does there."""


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
    if validation is not None and not len(validation):
        raise ValueError("`validation` is empty; leave it out where there is nothing to validate on")
    if optimizer is not None:
        _check_optimizer(optimizer, model)
    whole_number(epochs, "epochs")
    if batch_size is not None:
        whole_number(batch_size, "batch_size")
    if compiled not in (True, False, "auto"):
        raise ValueError(f"`compiled` must be True, False or 'auto', got {compiled!r}")


def _check_penalty(penalty: Any) -> None:
    if penalty is not None and not callable(penalty):
        raise TypeError(f"`penalty` must be a function of the parameters, as losses.l2(1e-4) is; got {penalty!r}")


def _generator(rng: Any) -> Random | None:
    if rng is None or isinstance(rng, Random):
        return rng
    if not hasattr(rng, "__index__"):
        raise TypeError(
            f"`rng` must be a random.Random, or an int to make one of; got {type(rng).__name__} {rng!r:.60}"
        )
    return Random(operator.index(rng))


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
