"""What a run of `fit` has to do in every epoch, and where it stands between two steps; and checks of what it is given.

Each error names the argument and says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from chainrule import losses
from chainrule.core.arguments import listed, quoted, whole_number
from chainrule.core.structure import build, flatten
from chainrule.core.value import Value
from chainrule.data import Dataset, batches, dataset
from chainrule.nn import Module
from chainrule.optim import Optimizer

Loss = Callable[[list[Any], list[Any]], Value]
Metric = Callable[[list[Any], list[Any]], float | Value]
Columns = Mapping[str, Sequence[float]]
Row = dict[str, float]  # of one batch or epoch: the loss and the metrics

HALF_A_MINUTE = timedelta(seconds=30)
METRICS: dict[str, Metric] = {  # by the names that `fit` knows
    name: getattr(losses, name)
    for name in (
        "accuracy", "binary_cross_entropy", "cross_entropy", "hinge", "huber", "mean_square", "sum_of_squares",
    )
}  # fmt: skip

FITTING = ("llvm", "cuda")  # what compiled steps can run on without a mesh


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
    backend: str  # of compiled steps
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
        found = {name: metric(predictions, targets) for name, metric in self.metrics.items()}
        return {name: number._data if isinstance(number, Value) else float(number) for name, number in found.items()}

    def columns(self, row: Row, predict: Callable[[list[Any]], list[Any]]) -> Columns:
        """An epoch's row, and that of the validation data, as columns."""
        if self.validation is not None:
            predictions, targets = _apart(predict(self.validation.inputs)), self.validation.targets
            row["validation_loss"] = self.loss(predictions, targets)._data
            row |= {f"validation_{name}": number for name, number in self.measured(predictions, targets).items()}
        return {name: [number] for name, number in row.items()}


def _apart(predictions: list[Any]) -> list[Any]:
    """The same numbers, made of nothing: to compare them is no look at the parameters, which may be compiled later."""
    leaves: list[Any] = []
    structure = flatten(predictions, leaves, lambda leaf: Value(leaf._data) if isinstance(leaf, Value) else leaf)
    found: list[Any] = build(structure, iter(leaves))
    return found


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


def check_problem(model: Any, loss: Any, data: Any, optimizer: Any) -> Dataset:
    """Refuse a model, loss, data set or optimizer that cannot be trained; returns the data set."""
    if not isinstance(model, Module) or not callable(model):
        raise TypeError(f"`model` must be an nn.Module that can be called, got {type(model).__name__}")
    if not callable(loss):
        raise TypeError(f"`loss` must be a function of predictions and targets, as losses.hinge is; got {loss!r}")
    examples = dataset(data)
    if not len(examples):
        raise ValueError("`data` is empty; there is nothing to learn from")
    if optimizer is None:
        return examples
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"`optimizer` must be an optimizer, as optim.Adam(model.parameters()) is; got {optimizer!r}")
    if not set(optimizer.parameters) & set(model.parameters()):
        raise ValueError("`optimizer` holds no parameter of this model: make it with model.parameters()")
    return examples


def checked_validation(validation: Any, data: Dataset) -> Dataset | None:
    """The examples to validate on, which must have the columns and classes of `data`."""
    if validation is None:
        return None
    examples = dataset(validation, "validation", data)
    if not len(examples):
        raise ValueError("`validation` is empty; leave it out if there is nothing to validate on")
    return examples


def check_options(
    epochs: Any, batch_size: Any, penalty: Any, compiled: Any, dtype: Any, backend: Any, mesh: Any
) -> None:
    """Refuse options of `fit` that make no sense by themselves, and float32 for eager steps."""
    whole_number(epochs, "epochs")
    if batch_size is not None:
        whole_number(batch_size, "batch_size")
    if penalty is not None and not callable(penalty):
        raise TypeError(f"`penalty` must be a function of the parameters, as losses.l2(1e-4) is; got {penalty!r}")
    if compiled not in (True, False, "auto"):
        raise ValueError(f"`compiled` must be True, False or 'auto', got {compiled!r}")
    if dtype not in ("float64", "float32"):
        raise ValueError(f"`dtype` must be 'float64' or 'float32', got {dtype!r}")
    if backend not in FITTING:
        raise ValueError(f"`backend` must be one of {', '.join(FITTING)}, got {backend!r}")
    if backend == "cuda" and (compiled is False or mesh is not None):
        raise ValueError("steps on a GPU are compiled, and on one GPU: leave `compiled` and `mesh` out")
    if dtype == "float32" and compiled is not True and mesh is None and backend != "cuda":
        raise ValueError("`dtype` 'float32' is for compiled steps, and eager ones are float64: say compiled=True too")


def checked_interval(checkpoint: Any, every: Any, resume: Any) -> int | timedelta:
    """The steps or the time between two checkpoints."""
    if checkpoint is None and (resume or every is not None):
        raise ValueError(
            "`every` and `resume` are about a checkpoint: give its file, as in checkpoint='run.safetensors'"
        )
    if every is None:
        return HALF_A_MINUTE
    if not isinstance(every, timedelta):
        return whole_number(every, "every")
    if every <= timedelta(0):
        raise ValueError(f"`every` must be more than no time, got {every}: choose one such as timedelta(seconds=30)")
    return every


def metrics_by_name(metrics: Mapping[str, Metric] | Iterable[Metric | str]) -> dict[str, Metric]:
    """The metrics, each by a name of its own; a text is the name of one in `METRICS`."""
    if isinstance(metrics, Mapping):
        named = [(name, _metric(metric)) for name, metric in metrics.items()]
    else:
        found = [_metric(metric) for metric in list_of_functions(metrics, "metrics")]
        named = [(getattr(metric, "__name__", type(metric).__name__), metric) for metric in found]
    names = [name for name, _ in named]
    if len(set(names)) < len(names) or "loss" in names:
        raise ValueError(f"`metrics` need names of their own, got {names}: give a dict, as in {{'name': function}}")
    return dict(named)


def _metric(metric: Any) -> Metric:
    if isinstance(metric, str) and metric in METRICS:
        return METRICS[metric]
    if not callable(metric):
        known = f"or the name of one: {listed(list(METRICS))}"
        raise ValueError(f"`metrics` must be functions of predictions and targets, {known}; got {quoted(metric)}")
    return metric  # type: ignore[no-any-return]


def list_of_functions(things: Any, argument: str) -> list[Any]:
    """The functions in `things`; a single function is refused, and so is a text."""
    if callable(things) or isinstance(things, str) or not hasattr(things, "__iter__"):
        one = repr(things) if isinstance(things, str) else "function"
        raise TypeError(f"`{argument}` must be a list of functions, got {things!r}: write [{one}] for one")
    return list(things)
