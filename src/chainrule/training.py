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
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from random import Random
from typing import Any

from chainrule._arguments import whole_number
from chainrule._value import Value
from chainrule.data import Dataset, batches
from chainrule.nn import Module
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
        self.stopped = ""  # why training ended early; empty if it did not

    def record(self, row: Mapping[str, float]) -> None:
        """Append one epoch.

        >>> history = History()
        >>> history.record({"loss": 0.5})
        >>> len(history)
        1
        """
        for name, number in row.items():
            self.columns.setdefault(name, []).append(number)

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
) -> History:
    """Train `model` to make `loss(predictions, targets)` small over `data`; returns the history of the run.

    An epoch goes once over the data, in batches of `batch_size` (default: all at once), shuffled if `rng` is
    given. `penalty` is added to the loss of every step, as in `penalty=losses.l2(1e-4)`. Metrics are functions
    of predictions and targets, in a list or by name; with `validation` data the loss and the metrics of that are
    recorded too. Callbacks are called with a `Training` after each epoch, and their `start` and `finish`, where they
    have such, before the first and after the last.

    >>> from chainrule import data, losses, nn
    >>> history = fit(nn.MLP(2, [4, 1], activation="tanh", rng=3), losses.mean_square, data.xor(), progress=False)
    >>> history.loss[-1] < history.loss[0]
    True
    """
    _check(model, loss, data, validation, optimizer, epochs, batch_size)
    optimizer = optimizer or Adam(model.parameters(), lr=0.01)
    run = Training(model, optimizer, History())
    callbacks, measures = list(_iterable(callbacks, "callbacks")), _by_name(metrics)
    rng = Random(rng) if isinstance(rng, int) else rng
    started = time.perf_counter()
    for callback in callbacks:
        getattr(callback, "start", _nothing)(run)
    with _progress_bar(epochs, progress) as show:
        for run.epoch in range(epochs):
            parts = batches(data, batch_size or len(data), rng)
            row = _average([_step(model, loss, penalty, optimizer, measures, part) for part in parts], parts)
            if validation is not None:
                _, measured = _evaluate(model, loss, measures, validation)
                row |= {f"validation_{name}": number for name, number in measured.items()}
            run.history.record(row)
            run.history.seconds = time.perf_counter() - started
            show(row)
            if not math.isfinite(row["loss"]):
                run.stop(f"the loss became {row['loss']} in epoch {run.epoch}; try a smaller learning rate")
                warnings.warn(run.history.stopped, RuntimeWarning, stacklevel=2)
            for callback in callbacks:
                callback(run)
            if run.history.stopped:
                break
    for callback in callbacks:
        getattr(callback, "finish", _nothing)(run)
    return run.history


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


def _nothing(training: Training) -> None:
    """What a callback without a `start` or a `finish` does there."""


def _step(
    model: Module,
    loss: Loss,
    penalty: Callable[[list[Value]], Value] | None,
    optimizer: Optimizer,
    metrics: Mapping[str, Metric],
    part: Dataset,
) -> dict[str, float]:
    total, row = _evaluate(model, loss, metrics, part)
    if penalty:
        total = total + penalty(model.parameters())
    row["loss"] = total.data
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    return row


def _evaluate(
    model: Module, loss: Loss, metrics: Mapping[str, Metric], part: Dataset
) -> tuple[Value, dict[str, float]]:
    predictions = [model(x) for x in part.inputs]  # type: ignore[operator]
    total = loss(predictions, part.targets)
    if not isinstance(total, Value):
        raise TypeError(f"`loss` must return a Value, got {type(total).__name__}: build it from the predictions")
    measured = {name: float(metric(predictions, part.targets)) for name, metric in metrics.items()}
    return total, {"loss": total.data, **measured}


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


def _check(model: Any, loss: Any, data: Any, validation: Any, optimizer: Any, epochs: Any, batch_size: Any) -> None:
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


def _check_optimizer(optimizer: Any, model: Module) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"`optimizer` must be an optimizer, as optim.Adam(model.parameters()) is; got {optimizer!r}")
    if not set(optimizer.parameters) & set(model.parameters()):
        raise ValueError("`optimizer` holds no parameter of this model: make it with model.parameters()")


@contextmanager
def _progress_bar(epochs: int, wanted: bool) -> Iterator[Callable[[dict[str, float]], None]]:
    if not wanted or not find_spec("rich"):  # in a browser there is none
        yield lambda row: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = BarColumn(bar_width=12), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns) as bar:
        task = bar.add_task("", total=epochs)
        yield lambda row: bar.update(
            task, advance=1, description="  ".join(f"{name} {number:.4g}" for name, number in row.items())
        )
