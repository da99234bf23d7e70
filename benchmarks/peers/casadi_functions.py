"""Expressions in CasADi, which differentiates them, interpreted by CasADi's machine.

The expression is that of one example; CasADi maps it over all of them, for gcc needs minutes for straight lines of a
hundred thousand operations.
"""

from __future__ import annotations

from typing import Any

import casadi
import numpy as np

from contest import Runner
from workloads.problems import Problem


def loss_and_gradient(solution, parameters, inputs, outputs, count, weight):
    """A function of the parameters and all examples, which are columns."""
    kind = solution.kind
    p, x, y = kind.sym("p", parameters), kind.sym("x", inputs), kind.sym("y", outputs)
    one = weight * solution.example(p, x, y)
    example = casadi.Function("example", [p, x, y], [one, casadi.densify(casadi.gradient(one, p))])
    p, x, y = casadi.MX.sym("p", parameters), casadi.MX.sym("x", inputs, count), casadi.MX.sym("y", outputs, count)
    value, gradient = example.map(count, [True, False, False], [True, True])(p, x, y)
    if hasattr(solution, "rest"):
        value, gradient = value + solution.rest(p), gradient + casadi.gradient(solution.rest(p), p)
    return casadi.Function("whole", [p, x, y], [value, gradient])


def descend(function, p, x, y, rate):
    value, gradient = function(p, x, y)
    return value, p - rate * gradient


LOOPS = {"training": [loss_and_gradient, descend], "gradient": [loss_and_gradient]}


class Training(Runner):
    """A call a step, and the update in CasADi's matrices."""

    def __init__(self, problem: Problem, solution: Any) -> None:
        self.function, self.rate = function_of(problem, solution), problem.rate
        self.start = casadi.DM(problem.start)
        self.points = casadi.DM(problem.x.T), casadi.DM(problem.y.reshape(len(problem.x), -1).T)

    def begin(self) -> None:
        self.result = self.start

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.value, self.result = descend(self.function, self.result, *self.points, self.rate)

    def numbers(self) -> tuple[float, np.ndarray]:
        return float(self.value), np.array(self.result).ravel()


class Gradient(Training):
    """A call."""

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.value, self.result = self.function(self.start, *self.points)


def function_of(problem: Problem, solution: Any) -> Any:
    """The loss and its gradient by all parameters."""
    count, inputs = problem.x.shape
    weight = 1.0 if problem.summed else 1.0 / count
    return loss_and_gradient(solution, len(problem.start), inputs, problem.y.size // count, count, weight)
