"""What a run of `fit` records, `History`; what callbacks see of it, `Training`; and one of them, `EarlyStopping`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chainrule.core import display
from chainrule.core.arguments import MOST_OF_A_MESSAGE, counted, shown, whole_number
from chainrule.nn import Module
from chainrule.ops import as_float
from chainrule.optim import Optimizer


class History:
    """What a training run recorded: columns with one entry per epoch.

    >>> history = History()
    >>> history.record({"loss": 0.9})
    >>> history.extend({"loss": [0.5, 0.1]})
    >>> history
    History(3 epochs, loss 0.9 → 0.1)
    >>> history.loss, history.last
    ([0.9, 0.5, 0.1], {'loss': 0.1})
    """

    def __init__(self) -> None:
        self.columns: dict[str, list[float]] = {}
        self.seconds = 0.0
        self.engine = ""  # what ran the steps, and why
        self.stopped = ""  # why training ended early; empty if it did not

    def record(self, row: Mapping[str, float]) -> None:
        """Append one epoch."""
        self.extend({name: [number] for name, number in row.items()})

    def extend(self, rows: Mapping[str, Sequence[float]]) -> None:
        """Append several epochs, column by column."""
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
        """The newest entry of each column."""
        return {name: column[-1] for name, column in self.columns.items()}

    def __repr__(self) -> str:
        ends = [f"{name} {column[0]:.4g} → {column[-1]:.4g}" for name, column in self.columns.items()]
        stopped = [f"stopped: {shown(self.stopped, MOST_OF_A_MESSAGE)}"] if self.stopped else []
        return f"History({', '.join([counted(len(self), 'epoch'), *ends, *stopped])})"

    _repr_html_ = display.shown("html_of_history")


class Training:
    """A run in progress, as callbacks see it; `stop(reason)` ends it after the current epoch.

    >>> def no_more_than_ten(training):
    ...     if training.epoch == 9:
    ...         training.stop("ten are enough")
    """

    def __init__(self, model: Module, optimizer: Optimizer, history: History) -> None:
        self.model, self.optimizer, self.history = model, optimizer, history
        self.epoch = 0

    def stop(self, reason: str) -> None:
        """End the run after this epoch; `history.stopped` is the reason."""
        self.history.stopped = reason


Callback = Callable[[Training], object]


class EarlyStopping:
    """A callback that ends training when a column of the history has not improved for `patience` epochs.

    It watches the validation loss if there is one, otherwise the loss, unless `monitor` names another column; lower is
    better, except for accuracies. At the end of the run the model gets back its best parameters.

    >>> from chainrule import data, fit, losses, nn
    >>> stop = EarlyStopping(patience=5)
    >>> history = fit(nn.MLP(2, [1]), losses.mean_square, data.xor(), callbacks=[stop], epochs=5, progress=False)
    """

    def __init__(self, patience: int = 10, monitor: str = "", least_gain: float = 0.0) -> None:
        self.patience, self.monitor, self.least_gain = whole_number(patience, "patience"), monitor, least_gain

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
        return {name: getattr(self, name) for name in ("best", "best_epoch", "best_state", "before")}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state()` returned."""
        if not state["best_state"].keys() == state["before"].keys() == self.before.keys():
            raise ValueError("the states that EarlyStopping remembers are of another model")
        best, best_epoch = as_float(state["best"], "best"), whole_number(state["best_epoch"], "best_epoch", 0)
        best_state, before = (
            {name: as_float(number, name) for name, number in state[which].items()}
            for which in ("best_state", "before")
        )
        self.best, self.best_epoch, self.best_state, self.before = best, best_epoch, best_state, before
