"""The problems in scalars, on any class of Values: the code that micrograd's readers write."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np

import chainrule
from large_losses import LargeLoss, parameters
from peers import microgpt_style, micrograd_style
from problems import PENALTY, RATE, Problem

CHAINRULE, MICROGRAD, MICROGPT = chainrule.Value, micrograd_style.Value, microgpt_style.Value


class Network:
    """Lists of Values, and a loss over all points."""

    def __init__(self, problem: Problem, value: Callable[[float], Any]) -> None:
        self.problem = problem
        self.parameters = [value(number) for number in problem.start.tolist()]

    def __call__(self, x: list[Any]) -> Any:
        rest = iter(self.parameters)
        for inputs, outputs in self.problem.shapes:
            neurons = [([next(rest) for _ in range(inputs)], next(rest)) for _ in range(outputs)]
            x = [sum((w * xi for w, xi in zip(weights, x, strict=True)), bias) for weights, bias in neurons]
            if self.problem.tanh:
                x = [h.tanh() for h in x]
            elif outputs > 1:
                x = [h.relu() for h in x]
        return x[0]

    def loss(self) -> Any:
        points = self.problem.points
        scores = [self(point) for point in points.inputs]
        if self.problem.tanh:
            return sum((score - y) ** 2 for score, y in zip(scores, points.targets, strict=True))
        hinges = [(1 + -y * score).relu() for score, y in zip(scores, points.targets, strict=True)]
        return sum(hinges) * (1.0 / len(hinges)) + PENALTY * sum(p * p for p in self.parameters)

    def step(self) -> float:
        loss = self.loss()
        for p in self.parameters:
            p.grad = 0
        loss.backward()
        for p in self.parameters:
            p.data -= RATE * p.grad
        return float(loss.data)


def training(problem: Problem, value: Callable[[float], Any], managed: bool = False) -> Callable[[int], float]:
    """So many steps from the start; the last loss. If `managed`, one collection of garbage a step, at its end."""

    def train(steps: int) -> float:
        network = Network(problem, value)
        for _ in range(steps):
            loss = network.step()
            if managed:
                gc.collect()
        return loss

    return train


class Gradient:
    """The gradient of a large loss, eagerly."""

    def __init__(self, large: LargeLoss, value: Callable[[float], Any]) -> None:
        self.large = large
        self.weights = large.weights(value)
        self.parameters = parameters(self.weights)

    def __call__(self) -> tuple[float, np.ndarray]:
        """The loss and its gradient."""
        for p in self.parameters:
            p.grad = 0
        return self.once(), np.array([p.grad for p in self.parameters], dtype=np.float64)

    def repeat(self, count: int) -> None:
        """Forward and backward, so many times; gradients add up, for nobody reads them."""
        for _ in range(count):
            self.once()

    def once(self) -> float:
        loss = self.large.of(self.weights)
        loss.backward()
        return float(loss.data)
