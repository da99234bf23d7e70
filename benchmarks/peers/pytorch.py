"""Tensors in PyTorch, eager or through torch.compile, on one thread."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from contest import Runner
from workloads.problems import Problem

torch.set_num_threads(1)


def descend(loss, parameters, x, y, rate):
    value = loss(parameters, x, y)
    gradients = torch.autograd.grad(value, parameters)
    with torch.no_grad():
        torch._foreach_add_(parameters, gradients, alpha=-rate)
    return value.detach(), parameters


def whole_step(loss, parameters, x, y, rate):
    """Loss, gradient and update in one graph, which leaves the compiler the most to fuse."""
    gradients, value = torch.func.grad_and_value(loss)(parameters, x, y)
    return value, [p - rate * g for p, g in zip(parameters, gradients, strict=True)]


def differentiate(loss, parameters, x, y):
    value = loss(parameters, x, y)
    return value.detach(), torch.autograd.grad(value, parameters)


LOOPS = {"training": [descend], "gradient": [differentiate]}


class Training(Runner):
    """Eager steps, or whole ones that are compiled."""

    def __init__(self, problem: Problem, solution: Any, compiled: bool = False) -> None:
        self.problem, self.compiled = problem, compiled
        self.points = torch.tensor(problem.x), torch.tensor(problem.y)
        self.start = [torch.tensor(array) for array in problem.arrays()]
        step = partial(whole_step if compiled else descend, solution.loss)
        self.step = torch.compile(step, fullgraph=True) if compiled else step

    def begin(self) -> None:
        self.parameters = [p.clone().requires_grad_(not self.compiled) for p in self.start]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.value, self.parameters = self.step(self.parameters, *self.points, self.problem.rate)

    def numbers(self) -> tuple[float, np.ndarray]:
        return float(self.value), self.problem.flat(p.detach() for p in self.parameters)


class Gradient(Runner):
    """A loss, eager or compiled, and its gradient."""

    def __init__(self, problem: Problem, solution: Any, compiled: bool = False) -> None:
        self.problem = problem
        self.points = torch.tensor(problem.x), torch.tensor(problem.y)
        self.parameters = [torch.tensor(array, requires_grad=True) for array in problem.arrays()]
        self.loss = torch.compile(solution.loss, fullgraph=True) if compiled else solution.loss

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.value, self.gradients = differentiate(self.loss, self.parameters, *self.points)

    def numbers(self) -> tuple[float, np.ndarray]:
        return float(self.value), self.problem.flat(self.gradients)
