"""Tables: `python benchmarks/tables.py` compares `chainrule train`, with its defaults, with scikit-learn.

Seven sets, five random splits each, 30 % of the rows to test on. Ours is the command line on a CSV file of the other
rows, and the predictor that it saves; theirs are a network of the same size and a linear model behind a StandardScaler,
with their defaults. The table goes to docs/how-to/train-on-csv.md; with `--sets` only some of them, and it only prints.
"""

from __future__ import annotations

import argparse
import csv
import io
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import chainrule
from chainrule.cli import main
from pages import table, write_between

PAGE = Path(__file__).parent.parent / "docs/how-to/train-on-csv.md"
BEGIN = "<!-- benchmarks/tables.py writes from here -->"
SEEDS = range(5)
TEST = 0.3
POINT, SHARE = 0.01, 1.03  # by how much ours may be worse than the best of theirs: accuracy, or times the rms error
SIZES = (16, 16)
SHIPPED = ("iris", "wine", "breast_cancer", "digits")  # sets of classes that come with scikit-learn
HEADING = ["set", "rows", "`chainrule train`", "its network", "linear", "reached", "s, ours", "s, its network"]


@dataclass(frozen=True)
class Set:
    """A table: its name, how it is drawn, and whether its target names classes."""

    name: str
    draw: Callable[[], Any]
    has_classes: bool


SETS = [
    *(Set(name, partial(getattr(datasets, f"load_{name}"), return_X_y=True), True) for name in SHIPPED),
    Set("diabetes", partial(datasets.load_diabetes, return_X_y=True), False),
    Set(
        "make_classification",
        partial(datasets.make_classification, 5000, 20, n_informative=10, n_classes=3, random_state=0),
        True,
    ),
    Set("make_friedman1", partial(datasets.make_friedman1, 5000, noise=1.0, random_state=0), False),
]


@dataclass
class Result:
    """The scores of one set, a mean over the splits, and the seconds that ours and the network of theirs took."""

    of: Set
    rows: int
    ours: float
    network: float
    linear: float
    seconds: tuple[float, float]

    @property
    def reached(self) -> bool:
        """Whether ours is at most a little worse than the better of theirs."""
        if self.of.has_classes:
            return self.ours >= max(self.network, self.linear) - POINT
        return self.ours <= min(self.network, self.linear) * SHARE

    def cells(self) -> list[str]:
        scores = [self.ours, self.network, self.linear]
        spelled = [f"{score:.1%}" if self.of.has_classes else f"{score:.4g}" for score in scores]
        times = [f"{seconds:.1f}" for seconds in self.seconds]
        return [self.of.name.replace("_", " "), f"{self.rows:,}", *spelled, "yes" if self.reached else "no", *times]


def compare(one: Set) -> Result:
    """Ours and theirs on the same splits."""
    inputs, targets = one.draw()
    network = MLPClassifier if one.has_classes else MLPRegressor
    linear = LogisticRegression(max_iter=1000) if one.has_classes else LinearRegression()
    scores: list[tuple[float, float, float]] = []
    times: list[tuple[float, float]] = []
    for seed in SEEDS:
        options = {"test_size": TEST, "random_state": seed, "stratify": targets if one.has_classes else None}
        train, test, known, wanted = train_test_split(inputs, targets, **options)
        rows = (train, known, test)
        found, ours = timed(predicted_by_ours, *rows, one.has_classes, seed)
        guessed, theirs = timed(predicted, network(hidden_layer_sizes=SIZES, random_state=seed), *rows)
        lines, _ = timed(predicted, linear, *rows)
        scores.append(tuple(score(some, wanted, one.has_classes) for some in (found, guessed, lines)))
        times.append((ours, theirs))
    means = [fmean(column) for column in zip(*scores, strict=True)]
    seconds = tuple(fmean(column) for column in zip(*times, strict=True))
    return Result(one, len(inputs), *means, seconds)


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    start = perf_counter()
    return work(*arguments), perf_counter() - start


def predicted(model: Any, train: np.ndarray, known: np.ndarray, test: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged after its 200 epochs
        return make_pipeline(StandardScaler(), model).fit(train, known).predict(test)


def predicted_by_ours(
    train: np.ndarray, known: np.ndarray, test: np.ndarray, has_classes: bool, seed: int
) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        source, model = Path(folder) / "train.csv", Path(folder) / "model.safetensors"
        with open(source, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*(f"x{k}" for k in range(train.shape[1])), "y"])
            writer.writerows([*map(repr, map(float, row)), y.item()] for row, y in zip(train, known, strict=True))
        with redirect_stdout(io.StringIO()):
            if main(["train", str(source), "--save", str(model), "--seed", str(seed)]):
                raise RuntimeError(f"chainrule train has failed on {source}")
        answers = [answer.prediction for answer in chainrule.load(model)(test)]
    return np.array([int(answer) for answer in answers] if has_classes else answers)


def score(found: np.ndarray, wanted: np.ndarray, has_classes: bool) -> float:
    return float(np.mean(found == wanted) if has_classes else np.sqrt(np.mean((found - wanted) ** 2)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[one.name for one in SETS], help="only these")
    chosen = parser.parse_args().sets
    results = []
    for one in SETS:
        if not chosen or one.name in chosen:
            results.append(compare(one))
            print("  ".join(results[-1].cells()), flush=True)
    if not chosen:
        write_between(PAGE, table(HEADING, [result.cells() for result in results]), BEGIN)
