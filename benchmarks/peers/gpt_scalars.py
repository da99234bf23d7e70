"""microgpt in scalars, on any class of Values: the model of `large_losses`, and Adam by hand over plain floats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import chainrule
from chainrule import engine, optim
from large_losses import GPT, name, parameters
from peers import microgpt_style

MICROGPT, NATIVE, PYTHON = microgpt_style.Value, chainrule.Value, engine.Value
RATE, BETA1, BETA2, EPSILON, STEPS = 0.01, 0.85, 0.99, 1e-8, 1000


class Script:
    """A step: build the graph, run backward, go through the parameters."""

    def __init__(self, value: Callable[[float], Any]) -> None:
        self.weights = GPT.weights(value)
        self.parameters = parameters(self.weights)
        self.m, self.v = [0.0] * len(self.parameters), [0.0] * len(self.parameters)
        self.steps = 0

    def loss_and_gradient(self, letters: str) -> tuple[float, np.ndarray]:
        """Of one name."""
        for p in self.parameters:
            p.grad = 0.0
        loss = name(self.weights, letters)
        loss.backward()
        return float(loss.data), np.array([p.grad for p in self.parameters])

    def train(self, names: Iterable[str]) -> list[float]:
        """A step a name; the loss of each, before its update."""
        return [self.step(letters) for letters in names]

    def step(self, letters: str) -> float:
        loss = name(self.weights, letters)
        for p in self.parameters:
            p.grad = 0.0
        loss.backward()
        self.update()
        return float(loss.data)

    def update(self) -> None:
        rate = RATE * max(0.0, 1 - self.steps / STEPS)
        self.steps += 1
        for i, p in enumerate(self.parameters):
            self.m[i] = BETA1 * self.m[i] + (1 - BETA1) * p.grad
            self.v[i] = BETA2 * self.v[i] + (1 - BETA2) * p.grad**2
            m, v = self.m[i] / (1 - BETA1**self.steps), self.v[i] / (1 - BETA2**self.steps)
            p.data -= rate * m / (v**0.5 + EPSILON)


class WithOptimizer(Script):
    """The same model, and chainrule's Adam."""

    def __init__(self) -> None:
        super().__init__(NATIVE)
        rate = optim.linear(RATE, 0.0, STEPS)
        self.optimizer = optim.Adam(self.parameters, lr=rate, betas=(BETA1, BETA2), eps=EPSILON)

    def update(self) -> None:
        self.optimizer.step()
