"""Arrays in NumPy, with a gradient that was derived and written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from contest import Runner
from workloads.problems import Problem


def descend(loss_and_gradient, parameters, x, y, rate):
    value, gradients = loss_and_gradient(parameters, x, y)
    for p, g in zip(parameters, gradients, strict=True):
        p -= rate * g
    return value


LOOPS = {"training": [descend], "gradient": []}


class Training(Runner):
    """Steps of `descend`."""

    def __init__(self, problem: Problem, solution: Any) -> None:
        self.problem, self.loss_and_gradient = problem, solution.loss_and_gradient

    def begin(self) -> None:
        self.arrays = self.problem.arrays()

    def run(self, steps: int) -> None:
        problem = self.problem
        for _ in range(steps):
            self.value = descend(self.loss_and_gradient, self.arrays, problem.x, problem.y, problem.rate)

    def numbers(self) -> tuple[float, np.ndarray]:
        return float(self.value), self.problem.flat(self.arrays)


class Gradient(Training):
    """The function itself."""

    def run(self, steps: int) -> None:
        parameters = self.problem.arrays()
        for _ in range(steps):
            self.value, self.arrays = self.loss_and_gradient(parameters, self.problem.x, self.problem.y)
