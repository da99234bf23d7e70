"""What a model is to learn from a table: the task that its targets pose, and the scaling of its columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule import losses, nn
from chainrule.core.arguments import listed, quoted
from chainrule.data import CsvDataset, Dataset
from chainrule.data.columns import Column
from chainrule.data.scaling import ROUNDING
from chainrule.predictor import Problem

LOSSES: dict[str, Callable[..., Any]] = {
    "regression": losses.mean_square,
    "margin": losses.hinge,
    "binary": losses.binary_cross_entropy,
    "classes": losses.cross_entropy,
}
MOST_WHOLE = 20  # different whole numbers that may be classes
MOST_INDICES = 10  # classes that are recognised by their numbers, as the digits
LEAST_DEVIATION = 1e-290  # of a column; weights divided by it are still finite


@dataclass(frozen=True)
class Scaling:
    """Maps the columns of a table to numbers that are easy to learn from, with mean 0 and deviation 1 where it helps.

    >>> scaling = Scaling([3.0], [2.0], 10.0, 5.0)
    >>> prepared = scaling.prepared(Dataset([[5.0]], [20.0]))
    >>> prepared.inputs, prepared.targets
    ([[1.0]], [2.0])
    """

    means: list[float]
    deviations: list[float]
    target_mean: float = 0.0
    target_deviation: float = 1.0

    def prepared(self, data: Dataset) -> Dataset:
        """The scaled examples."""
        inputs = ((np.array(data.inputs) - self.means) / self.deviations).tolist()
        if (self.target_mean, self.target_deviation) == (0.0, 1.0):
            return Dataset(inputs, data.targets)
        return Dataset(inputs, [(y - self.target_mean) / self.target_deviation for y in data.targets])

    def move_into(self, model: nn.MLP) -> None:
        """Change a model trained on scaled examples into one for the columns and the target themselves.

        Scaling is linear, as is the sum in a neuron of the first layer: w·(x - mean)/deviation + b is
        (w/deviation)·x + b'. Rounding changes it by no more than a change of x in its last digit would.
        """
        for neuron in model.layers[0].neurons:
            for w, deviation in zip(neuron.w, self.deviations, strict=True):
                w.data /= deviation
            neuron.b.data -= math.fsum(w.data * mean for w, mean in zip(neuron.w, self.means, strict=True))
        if (self.target_mean, self.target_deviation) != (0.0, 1.0):
            (neuron,) = model.layers[-1].neurons  # the one linear output of a regression
            for parameter in neuron.parameters():
                parameter.data *= self.target_deviation
            neuron.b.data += self.target_mean
        if not all(math.isfinite(parameter.data) for parameter in model.parameters()):
            raise ValueError("the columns are too large or too small to be scaled: use other units, or --raw")


def pose(data: Dataset, task: str) -> Problem:
    """The problem that `data` poses; the task `auto` is inferred from the targets."""
    columns, target, classes = [Column(f"x{k}") for k in range(len(data.inputs[0]))], "target", list[Any]()
    if isinstance(data, CsvDataset):
        columns, target, classes = data.table, data.target, data.classes
    if task == "auto":
        kinds = set(data.targets)
        task = "classes" if classes else "margin" if kinds == {-1, 1} else "binary" if kinds == {0, 1} else "regression"
    _check(task, classes, data.targets, target)
    return Problem(task, columns, target, list(classes))


def classes_in(targets: Sequence[Any]) -> int:
    """How many different whole numbers these are, if they are few; otherwise 0. Tasks with two have names of their own.

    >>> classes_in([0.0, 2.0, 1.0, 1.0] * 3), classes_in([1.5, 2.0]), classes_in([3.0, 4.0]), classes_in([0.0, 1.0] * 4)
    (3, 0, 0, 0)
    """
    kinds = set(targets)
    few = 2 <= len(kinds) <= MOST_WHOLE and 4 * len(kinds) <= len(targets) and kinds not in ({-1, 1}, {0, 1})
    return len(kinds) if few and all(float(y).is_integer() for y in kinds) else 0


def are_indices(targets: Sequence[Any]) -> bool:
    """Whether targets are 0, 1, 2, … as people number up to ten classes.

    >>> are_indices([0.0, 2.0, 1.0, 1.0] * 3), are_indices([3.0, 4.0, 5.0] * 4)
    (True, False)
    """
    count = classes_in(targets)
    return 0 < count <= MOST_INDICES and set(targets) == set(range(count))


def scale(data: Dataset, task: str) -> Scaling:
    """The scaling of `data` to mean 0 and deviation 1; in a regression, of the target too."""
    means, deviations = _means_and_deviations(np.array(data.inputs))
    if task != "regression":
        return Scaling(means, deviations)
    (mean,), (deviation,) = _means_and_deviations(np.array(data.targets)[:, None])
    return Scaling(means, deviations, mean, deviation)


def _check(task: str, classes: Sequence[Any], targets: Sequence[Any], target: str) -> None:
    column = f"column {quoted(target)} holds"
    if len(targets) > 1 and not classes and len(set(targets)) == 1:
        raise ValueError(f"{column} {targets[0]:g} in every row: there is nothing to learn")
    if classes and task != "classes":
        texts = f"texts ({listed([str(name) for name in classes], 3)})"
        raise ValueError(f"{column} {texts}, and the task {task!r} needs numbers: use classes")
    if task == "classes":
        if len(classes) < 2:
            raise ValueError(f"{column} {len(classes)} class, and two or more are needed")
        if len(classes) == len(targets) > 4:
            raise ValueError(f"{column} another text in every row, so it names no classes: choose another")
    needed = {"margin": {-1, 1}, "binary": {0, 1}}.get(task)
    if needed and not set(targets) <= needed:
        other = next(y for y in targets if y not in needed)
        raise ValueError(f"{column} {other!r}, and the task {task!r} has targets {sorted(needed)} only")


def _means_and_deviations(rows: np.ndarray) -> tuple[list[float], list[float]]:
    """Of the columns. The deviation is 1 where a column is constant or nearly so, which scaling would not help.

    The mean of a constant column is the number itself: one that is rounded would leave a deviation, of rounding alone,
    to be divided by.
    """
    exponents = np.frexp(np.abs(rows).max(axis=0))[1]
    near_1 = np.ldexp(rows, -exponents)  # exact, and nothing overflows
    spread = near_1.std(axis=0)
    varies = (spread > ROUNDING) & (np.ldexp(spread, exponents) > LEAST_DEVIATION)
    means = np.where(np.ptp(near_1, axis=0) > 0.0, near_1.mean(axis=0), near_1[0])
    return np.ldexp(means, exponents).tolist(), np.where(varies, np.ldexp(spread, exponents), 1.0).tolist()
