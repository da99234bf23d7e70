"""Logistic regression on a CSV file: how likely is it that a seed comes up?

    python examples/logistic.py                        # seeds.csv, which we made up
    python examples/logistic.py FILE.csv [COLUMN]      # your table: numbers, and a column of two classes (the last)

The loss of one row is written in scalars, compiled, and run over all rows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import chainrule
from chainrule import Value, data, dot, losses, optim

SEEDS = Path(__file__).with_name("seeds.csv")


class Regression:
    """A weight for each column and a bias, in units of the columns' standard deviations."""

    def __init__(self, table: data.CsvDataset) -> None:
        if len(table.classes) != 2:
            raise ValueError(f"{table.target!r} must have two classes, got {table.classes}: name a column that has")
        rows = np.array(table.inputs)
        self.table = table
        self.centre, self.scale = rows.mean(axis=0), rows.std(axis=0)
        if not self.scale.all():
            constant = table.columns[int(np.argmin(self.scale))]
            raise ValueError(f"column {constant!r} is the same in every row and tells nothing: leave it out")
        self.rows = (rows - self.centre) / self.scale
        self.weights = [Value(0.0) for _ in table.columns]
        self.bias = Value(0.0)

    def loss(self, row: list[Any], target: Any) -> Any:
        logit = dot(self.weights, row) + self.bias
        return losses.binary_cross_entropy([logit], [target])

    def fit(self, steps: int = 1000) -> list[float]:
        """Gradient descent with momentum on all rows; the mean loss before each step."""
        parameters = [*self.weights, self.bias]
        loss = chainrule.compile(self.loss, wrt=parameters)
        optimizer = optim.SGD(parameters, lr=1.0, momentum=0.9)
        targets = np.array(self.table.targets, dtype=float)
        history = []
        for _ in range(steps):
            optimizer.zero_grad()
            history.append(loss.batch(self.rows, targets))
            optimizer.step()
        return history

    def coefficients(self) -> dict[str, float]:
        """In the units of the file."""
        weights = np.array([weight.data for weight in self.weights]) / self.scale
        bias = self.bias.data - float(weights @ self.centre)
        return {**dict(zip(self.table.columns, weights.tolist(), strict=True)), "bias": bias}

    def accuracy(self) -> float:
        logits = self.rows @ np.array([weight.data for weight in self.weights]) + self.bias.data
        return float(np.mean((logits > 0) == np.array(self.table.targets)))


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else SEEDS
    table = data.read_csv(path, *sys.argv[2:], labels=True)
    regression = Regression(table)
    history = regression.fit()
    no, yes = table.classes
    print(f"{len(table)} rows; the odds that {table.target} is {yes!r} rather than {no!r}")
    print(f"loss {history[0]:.4f} → {history[-1]:.4f}, right in {regression.accuracy():.1%} of the rows")
    for name, number in regression.coefficients().items():
        change = f"odds × {np.exp(number):.3g} for each unit" if name != "bias" else ""
        print(f"{name:>14} {number:10.4f}  {change}")


if __name__ == "__main__":
    main()
