"""How good predictions are, beside what somebody would score who does not look at the inputs.

Such a baseline always gives the same answer: the mean of the targets in training, or their most frequent class. A model
that does no better has learned nothing that is of use on these examples, and is said to in words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from chainrule.core.arguments import quoted

RARE = 0.5  # of an equal share: below, a class counts as rare
REMEDIES = {
    "regression": 'a linear model (--hidden ""), another penalty (--l2), or other columns',
    "other": 'a linear model (--hidden ""), another penalty (--l2), more examples, or other columns',
}


class Tally:
    """Predictions beside their targets, counted: enough for every score, however many there are.

    >>> tally = Tally("regression")
    >>> tally.add([1.0, 5.0], [1.0, 4.0])
    >>> tally.scores(2.5)["R2"]
    0.7777777777777777
    """

    def __init__(self, task: str) -> None:
        self.is_regression = task == "regression"
        self.count = 0
        self.pairs = Counter[tuple[Any, Any]]()  # classes: prediction and target
        self.error = self.mean = self.spread = (
            0.0  # numbers: √Σ (prediction - target)²; of targets, with √Σ (y - mean)²
        )

    def add(self, predictions: Sequence[Any], targets: Sequence[Any]) -> None:
        """Count some more; targets are spelled like predictions."""
        if not self.is_regression:
            self.pairs.update(zip(predictions, targets, strict=True))
        elif targets:
            here, new = fmean(targets), len(targets)
            moved = abs(here - self.mean) * math.sqrt(self.count * new / (self.count + new))
            self.error = math.hypot(self.error, math.dist(predictions, targets))
            self.spread = math.hypot(self.spread, math.dist([here] * new, targets), moved)
            self.mean += (here - self.mean) * new / (self.count + new)
        self.count += len(targets)

    def best_constant(self) -> Any:
        """What to answer if one does not look at the inputs: the mean of the targets, or their most frequent class."""
        return self.mean if self.is_regression else self._targets().most_common(1)[0][0]

    def scores(self, constant: Any) -> dict[str, Any]:
        """The scores of the predictions, and of a constant answer, by name."""
        named = f"always {constant:.4g}" if isinstance(constant, float) else f"always {quoted(constant)}"
        if self.is_regression:
            error, spread = self.error / math.sqrt(self.count), self.spread / math.sqrt(self.count)
            usual = math.hypot(spread, self.mean - constant)
            explained = {"R2": 1.0 - (error / spread) ** 2} if 0.0 < spread < math.inf else {}
            return {"rms error": error, **explained, "baseline": named, "baseline rms error": usual}
        right = sum(count for (prediction, target), count in self.pairs.items() if prediction == target)
        usual = self._targets()[constant] / self.count
        accuracy = right / self.count
        return {"accuracy": accuracy, **self._balanced(), "baseline": named, "baseline accuracy": usual}

    def _targets(self) -> Counter[Any]:
        counts = Counter[Any]()
        for (_, target), count in self.pairs.items():
            counts[target] += count
        return counts

    def _balanced(self) -> dict[str, float]:
        """The mean of the classes' own accuracies, if one of them is rare."""
        counts = self._targets()
        if len(counts) < 2 or min(counts.values()) >= RARE * self.count / len(counts):
            return {}
        return {"balanced accuracy": fmean([self.pairs[name, name] / count for name, count in counts.items()])}


def verdict(task: str, part: str, found: dict[str, Any]) -> str:
    """A sentence if the scores of a part are no better than the baseline's; otherwise empty."""
    name = "rms error" if task == "regression" else "accuracy"
    mine, usual = found[name], found[f"baseline {name}"]
    better = mine < usual or mine == 0.0 if task == "regression" else mine > usual or mine == 1.0
    if better:
        return ""
    form = ".4g" if task == "regression" else ".1%"
    remedy = REMEDIES.get(task, REMEDIES["other"])
    return (
        f"On the {part} examples this is no better than an answer that ignores the inputs, {found['baseline']} "
        f"({name} {usual:{form}}): try {remedy}."
    )


def spelled(found: dict[str, Any]) -> str:
    """The scores in one line."""
    forms = {"accuracy": ".1%", "balanced accuracy": ".1%", "rms error": ".4g", "R2": ".3f"}
    names = {"R2": "R²"}
    own = [f"{names.get(name, name)} {found[name]:{form}}" for name, form in forms.items() if name in found]
    usual = next(f"{found[f'baseline {name}']:{forms[name]}}" for name in ("accuracy", "rms error") if name in found)
    return f"{'  '.join(own)}  ({found['baseline']}: {usual})"
