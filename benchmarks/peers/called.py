"""The same scalar code through chainrule's compiler, in a loop of one's own: Values are read and changed every step."""

from __future__ import annotations

from typing import Any

import numpy as np

import chainrule
from chainrule import Value, optim
from contest import Runner
from workloads.problems import Problem


def compiled(loss, layers, parameters, xs, ys, rate):
    program = chainrule.compile(loss(layers, xs, ys), wrt=parameters)
    return program, optim.SGD(parameters, lr=rate)


def descend(program, optimizer):
    optimizer.zero_grad()
    value = program()
    optimizer.step()
    return value


LOOPS = {"training": [compiled, descend]}


class Training(Runner):
    """A program that is called, and an optimizer in Python."""

    def __init__(self, problem: Problem, solution: Any) -> None:
        layers, self.parameters = problem.scalars(Value)
        self.start, points = problem.start, (problem.x.tolist(), problem.y.tolist())
        self.program, self.optimizer = compiled(solution.loss, layers, self.parameters, *points, problem.rate)

    def begin(self) -> None:
        for parameter, number in zip(self.parameters, self.start.tolist(), strict=True):
            parameter.data = number

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.value = descend(self.program, self.optimizer)

    def numbers(self) -> tuple[float, np.ndarray]:
        return self.value, np.array([p.data for p in self.parameters])
