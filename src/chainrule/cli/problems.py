"""What a model is to learn from a table, and what its outputs mean; stored with the model, so that it can be used.

There are four tasks. `regression`: the output is the target. `margin`: the target is -1 or 1, and the output's sign
decides. `binary`: the target is 0 or 1, and the output its logit. `classes`: there is an output for each, its logit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, pstdev
from typing import Any

from chainrule import losses
from chainrule.data import CsvDataset, Dataset

LOSSES: dict[str, Callable[..., Any]] = {
    "regression": losses.mean_square,
    "margin": losses.hinge,
    "binary": losses.binary_cross_entropy,
    "classes": losses.cross_entropy,
}


@dataclass(frozen=True)
class Problem:
    """A task, the names of its columns, and how numbers are scaled on their way in and out.

    >>> problem = Problem("regression", ["x"], "y", [], [3.0], [2.0], 10.0, 5.0)
    >>> problem.scaled([[5.0]]), problem.answer([2.0])
    ([[1.0]], {'prediction': 20.0})
    """

    task: str
    columns: list[str]
    target: str
    classes: list[str]
    means: list[float]
    deviations: list[float]
    target_mean: float = 0.0
    target_deviation: float = 1.0

    @property
    def outputs(self) -> int:
        """How many numbers the model returns."""
        return len(self.classes) if self.task == "classes" else 1

    @property
    def loss(self) -> Callable[..., Any]:
        """What training makes small."""
        return LOSSES[self.task]

    def scaled(self, rows: Sequence[Sequence[float]]) -> list[list[float]]:
        """Inputs as the model gets them."""
        scales = list(zip(self.means, self.deviations, strict=True))
        return [[(x - mean) / deviation for x, (mean, deviation) in zip(row, scales, strict=True)] for row in rows]

    def prepared(self, data: Dataset) -> Dataset:
        """Examples as the model gets them."""
        targets = data.targets
        if self.task == "regression":
            targets = [(y - self.target_mean) / self.target_deviation for y in targets]
        return Dataset(self.scaled(data.inputs), targets)

    def answer(self, outputs: Sequence[float]) -> dict[str, Any]:
        """What the model's outputs say, in the words of the data: a prediction, and how sure it is."""
        score = outputs[0]
        if self.task == "regression":
            return {"prediction": self.target_mean + self.target_deviation * score}
        if self.task == "margin":
            return {"prediction": 1 if score > 0.0 else -1, "score": score}
        if self.task == "binary":
            return {"prediction": int(score > 0.0), "probability": _sigmoid(abs(score))}
        best = losses.argmax(outputs)
        return {
            "prediction": self.classes[best],
            "probability": 1.0 / sum(math.exp(z - outputs[best]) for z in outputs),
        }

    def quality(self, answers: Sequence[dict[str, Any]], targets: Sequence[Any]) -> dict[str, float]:
        """How good predictions are: the share that is right, or the root mean square of the errors."""
        predictions = [answer["prediction"] for answer in answers]
        if self.task == "regression":
            squares = [(p - y) ** 2 for p, y in zip(predictions, targets, strict=True)]
            return {"rms error": math.sqrt(fmean(squares))}
        wanted = [self.classes[y] for y in targets] if self.task == "classes" else targets
        return {"accuracy": fmean([float(p == y) for p, y in zip(predictions, wanted, strict=True)])}

    def to_json(self) -> str:
        """All of it, as text for the notes of a model file."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Problem:
        """What `to_json` gave."""
        try:
            problem = cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise ValueError(f"the file's description of its data cannot be read: {error}") from None
        if problem.task not in LOSSES or not len(problem.columns) == len(problem.means) == len(problem.deviations):
            raise ValueError("the file's description of its data does not fit together; train the model again")
        return problem


def pose(data: Dataset, task: str, scaled_by: Dataset | None) -> Problem:
    """The problem in some data; the task `auto` is recognised by the targets.

    Columns are scaled to mean 0 and deviation 1 over `scaled_by`, the part that the model learns from, if it is given.
    """
    classes = data.classes if isinstance(data, CsvDataset) else []
    columns = data.columns if isinstance(data, CsvDataset) else [f"x{k}" for k in range(len(data.inputs[0]))]
    target = data.target if isinstance(data, CsvDataset) else "target"
    if task == "auto":
        task = "classes" if classes else recognised(data.targets)
    _check(task, classes, data.targets, target)
    means, deviations = [0.0] * len(columns), [1.0] * len(columns)
    target_mean, target_deviation = 0.0, 1.0
    if scaled_by is not None:
        inputs = list(zip(*scaled_by.inputs, strict=True))
        means, deviations = [fmean(column) for column in inputs], [_deviation(column) for column in inputs]
        if task == "regression":
            target_mean, target_deviation = fmean(scaled_by.targets), _deviation(scaled_by.targets)
    return Problem(task, columns, target, list(classes), means, deviations, target_mean, target_deviation)


def recognised(targets: Sequence[float]) -> str:
    """The task that such targets suggest.

    >>> recognised([0.0, 1.0, 1.0]), recognised([-1, 1]), recognised([0.5, 2.0])
    ('binary', 'margin', 'regression')
    """
    kinds = set(targets)
    return "margin" if kinds == {-1, 1} else "binary" if kinds == {0, 1} else "regression"


def _check(task: str, classes: Sequence[str], targets: Sequence[Any], target: str) -> None:
    if classes and task != "classes":
        shown = ", ".join(classes[:3])
        raise ValueError(f"column {target!r} holds texts ({shown}), and the task {task!r} needs numbers: use classes")
    if task == "classes":
        if len(classes) < 2:
            raise ValueError(f"column {target!r} holds {len(classes)} class, and two or more are needed")
        if len(classes) == len(targets) > 4:
            raise ValueError(
                f"column {target!r} holds another text in every row, so it names no classes: choose another"
            )
    needed = {"margin": {-1, 1}, "binary": {0, 1}}.get(task)
    if needed and not set(targets) <= needed:
        other = next(y for y in targets if y not in needed)
        raise ValueError(f"column {target!r} holds {other!r}, and the task {task!r} has targets {sorted(needed)} only")


def _deviation(column: Sequence[float]) -> float:
    """The standard deviation; 1 for a column that is constant, which scaling cannot help."""
    deviation = pstdev(column)
    return deviation if deviation > 0.0 and math.isfinite(deviation) else 1.0


def _sigmoid(score: float) -> float:
    return 1.0 / (1.0 + math.exp(-score))
