"""Loops by hand in Python, compiled by numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from contest import Runner
from workloads.problems import Problem


@njit(fastmath=True, error_model="numpy")
def descend(loss, p, dp, x, y, rate, steps):
    value = 0.0
    for _ in range(steps):
        value = loss(p, dp, x, y)
        for i in range(len(p)):
            p[i] -= rate * dp[i]
    return value


LOOPS = {"training": [descend], "gradient": []}


class Training(Runner):
    """All steps in one call."""

    def __init__(self, problem: Problem, solution: Any) -> None:
        self.problem, self.loss = problem, solution.loss
        self.p, self.dp = problem.start.copy(), np.zeros_like(problem.start)

    def begin(self) -> None:
        self.p[:] = self.problem.start

    def run(self, steps: int) -> None:
        problem = self.problem
        self.value = descend(self.loss, self.p, self.dp, problem.x, problem.y, problem.rate, steps)

    def numbers(self) -> tuple[float, np.ndarray]:
        return self.value, self.p.copy()


class Gradient(Training):
    """The function itself."""

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.value = self.loss(self.p, self.dp, self.problem.x, self.problem.y)

    def numbers(self) -> tuple[float, np.ndarray]:
        return self.value, self.dp.copy()
