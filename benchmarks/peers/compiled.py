"""The same scalar code through chainrule's compiler."""

from __future__ import annotations

from typing import Any

import numpy as np

import chainrule
from chainrule import Value, optim
from chainrule.compiler.run.steps import CompiledSteps
from contest import Runner
from workloads.problems import Problem


def compiled_steps(loss, layers, parameters, xs, ys, rate, **options):
    """What `fit(..., compiled=True)` makes, for any loss."""
    optimizer = optim.SGD(parameters, lr=rate)
    return CompiledSteps(lambda inputs: loss(layers, inputs, ys), xs, optimizer, **options)


def compiled_loss(loss, layers, parameters, **options):
    return chainrule.compile(lambda x, y: loss(layers, [x], [y]), wrt=parameters, **options)


LOOPS = {"training": [compiled_steps], "gradient": [compiled_loss]}


class Training(Runner):
    """Steps that stay in native code."""

    def __init__(self, problem: Problem, solution: Any, **options: Any) -> None:
        layers, self.parameters = problem.scalars(Value)
        self.start, points = problem.start, (problem.x.tolist(), problem.y.tolist())
        self.steps = compiled_steps(solution.loss, layers, self.parameters, *points, problem.rate, **options)

    def begin(self) -> None:
        for parameter, number in zip(self.parameters, self.start.tolist(), strict=True):
            parameter.data = number

    def run(self, steps: int) -> None:
        self.value = self.steps.run(steps)[-1]

    def numbers(self) -> tuple[float, np.ndarray]:
        return self.value, np.array([p.data for p in self.parameters])


class Gradient(Runner):
    """The program of one example, on a batch of all."""

    def __init__(self, problem: Problem, solution: Any, threads: int = 1, **options: Any) -> None:
        layers, parameters = problem.scalars(Value)
        self.data = [array.astype(options.get("dtype", array.dtype)) for array in (problem.x, problem.y)]
        self.threads = threads
        self.program = compiled_loss(solution.loss, layers, parameters, **options)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.result = self.program.batch_value_and_grad(*self.data, threads=self.threads)

    def numbers(self) -> tuple[float, np.ndarray]:
        return self.result
