"""What a run of `fit` has to do in every epoch, and where it stands between two steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from chainrule.core.value import Value
from chainrule.data import Dataset, batches
from chainrule.optim import Optimizer

Loss = Callable[[list[Any], list[Any]], Value]
Metric = Callable[[list[Any], list[Any]], float]
Columns = Mapping[str, Sequence[float]]
Row = dict[str, float]  # of one batch or epoch: the loss and the metrics


@dataclass(frozen=True)
class Task:
    """Model, data and all that decides what a step and an epoch are; it stays the same throughout the run."""

    model: Any
    loss: Loss
    penalty: Callable[[list[Value]], Value] | None
    optimizer: Optimizer
    data: Dataset
    batch_size: int  # at most the number of examples
    metrics: Mapping[str, Metric]
    validation: Dataset | None
    dtype: str
    devices: Any  # of the mesh; None without one
    watched: bool  # whether something looks at the model or its predictions after every epoch

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.devices is None or bool(self.devices.leads)

    @property
    def is_one_batch(self) -> bool:
        return self.batch_size >= len(self.data)

    @property
    def fixed_settings(self) -> Any:
        """What compiled steps have built in, and callbacks may change between epochs."""
        return repr(self.optimizer.settings), [parameter.requires_grad for parameter in self.optimizer.parameters]

    def total(self, predictions: list[Any], targets: list[Any]) -> Any:
        """The loss of a batch, with the penalty."""
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

    def measured(self, predictions: list[Any], targets: list[Any]) -> Row:
        return {name: float(metric(predictions, targets)) for name, metric in self.metrics.items()}

    def columns(self, row: Row, predict: Callable[[list[Any]], list[Any]]) -> Columns:
        """An epoch's row, and that of the validation data, as columns."""
        if self.validation is not None:
            predictions, targets = predict(self.validation.inputs), self.validation.targets
            row["validation_loss"] = self.loss(predictions, targets)._data
            row |= {f"validation_{name}": number for name, number in self.measured(predictions, targets).items()}
        return {name: [number] for name, number in row.items()}


class Position:
    """Where a run stands between two steps: all that decides its next batches, for a checkpoint to keep."""

    def __init__(self, rng: Random | None) -> None:
        self.rng = rng
        self.rows: list[Row] = []  # one per batch done in the epoch under way
        self.compiled: bool | None = None  # what "auto" decided; None before it did
        self.random_at_start: Any = None  # the state of `rng` before it shuffled that epoch
        self.random_now: Any = None  # in the middle of a rewound epoch, until its batches are drawn again

    def batches(self, examples: Dataset, size: int) -> list[Dataset]:
        """The batches of the epoch that begins, or again those of the one under way."""
        self.random_at_start = self.rng.getstate() if self.rng else None
        parts = batches(examples, size, self.rng)
        if self.rng and self.random_now:
            self.rng.setstate(self.random_now)
            self.random_now = None
        return parts

    def rewind(self) -> None:
        """Have `batches` draw those of the epoch under way once more."""
        if self.rng:
            self.random_now = self.rng.getstate()
            self.rng.setstate(self.random_at_start)
