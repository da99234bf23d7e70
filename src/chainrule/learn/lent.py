"""The network, loss and training loop of lessons 7 and 8, over chainrule's Value.

Courses that do not teach them have no code of a learner's to run, so their figures run this.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from chainrule.core.value import Value


class Neuron:
    """The tanh of a weighted sum."""

    def __init__(self, nin: int) -> None:
        self.w = [Value(random.uniform(-1, 1)) for _ in range(nin)]
        self.b = Value(0.0)

    def __call__(self, x: Sequence[Any]) -> Any:
        total: Any = self.b
        for wi, xi in zip(self.w, x, strict=True):
            total = total + wi * xi
        return total.tanh()

    def parameters(self) -> list[Value]:
        """The weights, then the bias."""
        return [*self.w, self.b]


class Layer:
    """Neurons that see the same inputs."""

    def __init__(self, nin: int, nout: int) -> None:
        self.neurons = [Neuron(nin) for _ in range(nout)]

    def __call__(self, x: Sequence[Any]) -> list[Any]:
        return [neuron(x) for neuron in self.neurons]

    def parameters(self) -> list[Value]:
        """Those of all neurons."""
        return [p for neuron in self.neurons for p in neuron.parameters()]


class MLP:
    """Layers, each fed with what the one before it returned."""

    def __init__(self, nin: int, nouts: list[int]) -> None:
        sizes = [nin, *nouts]
        self.layers = [Layer(sizes[i], sizes[i + 1]) for i in range(len(nouts))]

    def __call__(self, x: Sequence[Any]) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x[0] if len(x) == 1 else x

    def parameters(self) -> list[Value]:
        """Those of all layers."""
        return [p for layer in self.layers for p in layer.parameters()]


def loss_of(model: Any, xs: Sequence[Sequence[float]], ys: Sequence[float]) -> Any:
    """The sum of squared errors."""
    return sum((model(x) - y) ** 2 for x, y in zip(xs, ys, strict=True))


def train(model: Any, xs: Sequence[Sequence[float]], ys: Sequence[float], steps: int, rate: float) -> list[float]:
    """Gradient descent; returns the loss of each step."""
    losses = []
    for _ in range(steps):
        loss = loss_of(model, xs, ys)
        losses.append(loss.data)
        for p in model.parameters():
            p.grad = 0.0
        loss.backward()
        for p in model.parameters():
            p.data -= rate * p.grad
    return losses
