"""How good predictions are, beside what somebody would score who does not look at the inputs.

Such a baseline always gives the same answer: the mean of the targets in training, or their most frequent class. A model
that does no better has learned nothing that is of use on these examples, and is said to in words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from chainrule.cli.problems import Problem
from chainrule.core.arguments import quoted

RARE = 0.5  # of an equal share: below, a class counts as rare
REMEDIES = {
    "regression": 'a linear model (--hidden ""), a larger penalty (--l2 0.01), or other columns',
    "other": 'a linear model (--hidden ""), a larger penalty (--l2 0.01), more examples, or other columns',
}


@dataclass(frozen=True)
class Baseline:
    """The best constant answer to some targets.

    >>> Baseline.of(Problem("regression", ["x"], "y", []), [1.0, 2.0, 6.0])
    Baseline(answer=3.0)
    """

    answer: Any

    @classmethod
    def of(cls, problem: Problem, targets: Sequence[Any]) -> Baseline:
        """For targets as a data set has them."""
        if problem.task == "regression":
            return cls(fmean(targets))
        return cls(Counter(problem.named(targets)).most_common(1)[0][0])

    def __str__(self) -> str:
        return f"always {self.answer:.4g}" if isinstance(self.answer, float) else f"always {quoted(self.answer)}"


def scores(
    problem: Problem, answers: Sequence[dict[str, Any]], targets: Sequence[Any], baseline: Baseline
) -> dict[str, Any]:
    """The scores of answers, and of the baseline, by name.

    >>> problem = Problem("regression", ["x"], "y", [])
    >>> scores(problem, [{"prediction": 1.0}, {"prediction": 5.0}], [1.0, 4.0], Baseline(2.5))["R2"]
    0.7777777777777777
    """
    found, wanted = [answer["prediction"] for answer in answers], problem.named(targets)
    constant = [baseline.answer] * len(wanted)
    if problem.task == "regression":
        error, usual = (math.dist(some, wanted) / math.sqrt(len(wanted)) for some in (found, constant))
        middle = fmean(wanted)
        spread = math.dist([middle] * len(wanted), wanted) / math.sqrt(len(wanted))
        explained = {"R2": 1.0 - (error / spread) ** 2} if 0.0 < spread < math.inf else {}
        return {"rms error": error, **explained, "baseline": str(baseline), "baseline rms error": usual}
    accuracy, usual = (fmean([float(p == y) for p, y in zip(some, wanted, strict=True)]) for some in (found, constant))
    return {"accuracy": accuracy, **_balanced(found, wanted), "baseline": str(baseline), "baseline accuracy": usual}


def _balanced(found: Sequence[Any], wanted: Sequence[Any]) -> dict[str, float]:
    """The mean of the classes' own accuracies, if one of them is rare."""
    counts = Counter(wanted)
    if len(counts) < 2 or min(counts.values()) >= RARE * len(wanted) / len(counts):
        return {}
    right = Counter(y for p, y in zip(found, wanted, strict=True) if p == y)
    return {"balanced accuracy": fmean([right[name] / count for name, count in counts.items()])}


def verdict(task: str, part: str, found: dict[str, Any]) -> str:
    """A sentence if the scores of a part are no better than the baseline's; otherwise empty."""
    name = "rms error" if task == "regression" else "accuracy"
    mine, usual = found[name], found[f"baseline {name}"]
    better = mine < usual if task == "regression" else mine > usual or mine == 1.0
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
