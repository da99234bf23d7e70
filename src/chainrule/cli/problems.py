"""What a model learns from a table, and what its outputs mean. Model files store it, so that `predict` can use them.

There are four tasks. `regression`: the output is the target. `margin`: the target is -1 or 1, the output's sign.
`binary`: the target is 0 or 1, and the output is its logit. `classes`: there is one output per class, its logit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from statistics import fmean, pstdev
from typing import Any

from chainrule import losses, nn
from chainrule.core.arguments import HALF_A_CHARACTER, MOST_OF_A_MESSAGE, listed, quoted, shown
from chainrule.data import CsvDataset, Dataset

LOSSES: dict[str, Callable[..., Any]] = {
    "regression": losses.mean_square,
    "margin": losses.hinge,
    "binary": losses.binary_cross_entropy,
    "classes": losses.cross_entropy,
}
LEAST_DEVIATION = 1e-290  # of a column; weights divided by it are still finite


@dataclass(frozen=True)
class Problem:
    """A task, and the names of the columns and classes behind the model's inputs and outputs.

    >>> Problem("classes", ["x"], "y", ["no", "yes"]).answer([0.0, 2.0])
    {'prediction': 'yes', 'probability': 0.8807970779778823}
    """

    task: str
    columns: list[str]
    target: str
    classes: list[str]

    @property
    def outputs(self) -> int:
        """The number of the model's outputs."""
        return len(self.classes) if self.task == "classes" else 1

    def answer(self, outputs: Sequence[float]) -> dict[str, Any]:
        """What the outputs mean in terms of the data: a prediction, and how certain it is."""
        score = outputs[0]
        if self.task == "regression":
            return {"prediction": score}
        if self.task == "margin":
            return {"prediction": 1 if score > 0.0 else -1, "score": score}
        if self.task == "binary":
            return {"prediction": int(score > 0.0), "probability": 1.0 / (1.0 + math.exp(-abs(score)))}
        best = losses.argmax(outputs)
        certainty = 1.0 / sum(math.exp(z - outputs[best]) for z in outputs)
        return {"prediction": self.classes[best], "probability": certainty}

    def named(self, targets: Sequence[Any]) -> Sequence[Any]:
        """Targets as `answer` spells its predictions: classes by their names."""
        return [self.classes[y] for y in targets] if self.task == "classes" else targets

    def to_json(self) -> str:
        """As text for the notes of a model file."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Problem:
        """The problem that `to_json` wrote; a file may hold any text there."""
        try:
            problem = cls(**json.loads(text))
        except (TypeError, ValueError, RecursionError) as error:
            reason = shown(str(error), MOST_OF_A_MESSAGE)
            raise ValueError(f"the file's description of its data cannot be read: {reason}") from None
        if not problem._is_sound():
            raise ValueError("the file's description of its data does not fit together; train the model again")
        return problem

    def _is_sound(self) -> bool:
        """Whether types are right, texts can be encoded, and names are unique."""
        names = [self.columns, self.classes, [self.task], [self.target]]
        if not all(isinstance(part, list) and all(isinstance(name, str) for name in part) for part in names):
            return False
        if HALF_A_CHARACTER.search("".join(chain(*names))) or any(len(set(part)) < len(part) for part in names):
            return False
        return self.task in LOSSES and (len(self.classes) > 1 if self.task == "classes" else not self.classes)


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
        rows = [zip(row, self.means, self.deviations, strict=True) for row in data.inputs]
        inputs = [[(x - mean) / deviation for x, mean, deviation in row] for row in rows]
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
    columns, target, classes = [f"x{k}" for k in range(len(data.inputs[0]))], "target", list[str]()
    if isinstance(data, CsvDataset):
        columns, target, classes = data.columns, data.target, data.classes
    if task == "auto":
        kinds = set(data.targets)
        task = "classes" if classes else "margin" if kinds == {-1, 1} else "binary" if kinds == {0, 1} else "regression"
    _check(task, classes, data.targets, target)
    return Problem(task, columns, target, list(classes))


def scale(data: Dataset, task: str) -> Scaling:
    """The scaling of `data` to mean 0 and deviation 1; in a regression, of the target too."""
    inputs = list(zip(*data.inputs, strict=True))
    of_target = (fmean(data.targets), _deviation(data.targets)) if task == "regression" else ()
    return Scaling([fmean(column) for column in inputs], [_deviation(column) for column in inputs], *of_target)


def _check(task: str, classes: Sequence[str], targets: Sequence[Any], target: str) -> None:
    column = f"column {quoted(target)} holds"
    if classes and task != "classes":
        raise ValueError(f"{column} texts ({listed(classes, 3)}), and the task {task!r} needs numbers: use classes")
    if task == "classes":
        if len(classes) < 2:
            raise ValueError(f"{column} {len(classes)} class, and two or more are needed")
        if len(classes) == len(targets) > 4:
            raise ValueError(f"{column} another text in every row, so it names no classes: choose another")
    needed = {"margin": {-1, 1}, "binary": {0, 1}}.get(task)
    if needed and not set(targets) <= needed:
        other = next(y for y in targets if y not in needed)
        raise ValueError(f"{column} {other!r}, and the task {task!r} has targets {sorted(needed)} only")


def _deviation(column: Sequence[float]) -> float:
    """The standard deviation; 1 for a column that is constant or nearly so, which scaling would not help."""
    deviation = pstdev(column)
    return deviation if LEAST_DEVIATION < deviation < math.inf else 1.0
