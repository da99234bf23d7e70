"""What callbacks of `fit` see, `Training`, and the one that comes with chainrule, `EarlyStopping`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from chainrule.core.arguments import whole_number
from chainrule.nn import Module
from chainrule.ops import as_float
from chainrule.optim import Optimizer
from chainrule.training.history import History


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
        """Go on from what `state()` returned."""
        for states in (state["best_state"], state["before"]):
            if states.keys() != self.before.keys():
                raise ValueError("the states that EarlyStopping remembers are of another model")
        best, best_epoch = as_float(state["best"], "best"), whole_number(state["best_epoch"], "best_epoch", 0)
        best_state, before = (
            {name: as_float(number, name) for name, number in state[which].items()}
            for which in ("best_state", "before")
        )
        self.best, self.best_epoch, self.best_state, self.before = best, best_epoch, best_state, before
