"""What the contestants do: a mixed graph, and a step of micrograd's moons demo. Each is written once for all.

Only what every contestant can do is used: `+`, `*` and relu between Values.
"""

from __future__ import annotations

import gc
import math
import random
from typing import Any

from chainrule.data import micrograd_moons
from peers import Peer

MOONS_LOSS = 0.8958441028683222  # of the first step, as micrograd's demo publishes it
MOONS = list(micrograd_moons())  # (point, label)


def mixed_leaves(peer: Peer, nodes: int) -> list[Any]:
    """Leaves for a mixed graph of about `nodes` nodes; small, so that no number in it grows."""
    draw = random.Random(1337).uniform
    return [peer.parameter(draw(-0.45, 0.45)) for _ in range(math.isqrt(nodes // 5))]


def mixed_size(leaves: list[Any]) -> int:
    return 5 * len(leaves) ** 2 + len(leaves)


def mixed_graph(peer: Peer, leaves: list[Any]) -> Any:
    """Products, sums and relus: five nodes an inner turn, no deeper than five times the leaves."""
    relu = peer.relu
    total = leaves[0]
    for a in leaves:
        x = a
        for b in leaves:
            x = relu(x * a + b) + x * b
        total = total + x
    return total


def mixed_gradient(peer: Peer, leaves: list[Any]) -> float:
    """Build, run backward and free."""
    total = mixed_graph(peer, leaves)
    total.backward()
    result = float(total.data)
    del total
    if peer.managed:
        gc.collect()
    return result


class MLP:
    """micrograd's network 2-16-16-1: relu between layers, the same random draws."""

    def __init__(self, peer: Peer) -> None:
        draw = random.Random(1337).uniform
        self.relu = peer.relu
        self.layers = [
            [([peer.parameter(draw(-1, 1)) for _ in range(inputs)], peer.parameter(0.0)) for _ in range(outputs)]
            for inputs, outputs in ((2, 16), (16, 16), (16, 1))
        ]

    def parameters(self) -> list[Any]:
        return [p for layer in self.layers for weights, bias in layer for p in (*weights, bias)]

    def __call__(self, x: list[Any]) -> Any:
        relu = self.relu
        for layer in self.layers:
            x = [sum((w * xi for w, xi in zip(weights, x, strict=True)), bias) for weights, bias in layer]
            if layer is not self.layers[-1]:
                x = [relu(neuron) for neuron in x]
        return x[0]


class Moons:
    """The demo's model, its loss on all points, and a full-batch step."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.model = peer.network() if peer.network else MLP(peer)
        self.parameters = self.model.parameters()

    def loss(self) -> Any:
        """The hinge loss of all points, and 1e-4 of the sum of squared parameters."""
        relu, constant = self.peer.relu, self.peer.constant
        inputs = [[self.peer.leaf(x) for x in point] for point, _ in MOONS]
        scores = [self.model(point) for point in inputs]
        one, zero = constant(1.0), constant(0.0)
        losses = [relu(one + constant(-y) * score) for (_, y), score in zip(MOONS, scores, strict=True)]
        hinge = sum(losses, zero) * constant(1.0 / len(losses))
        return hinge + constant(1e-4) * sum((p * p for p in self.parameters), zero)

    def step(self, rate: float = 1.0) -> float:
        """Forward, zero the gradients, backward, update; the graph is freed. Returns the loss."""
        loss = self.loss()
        for p in self.parameters:
            p.grad = self.peer.cleared
        loss.backward()
        for p in self.parameters:
            p.data -= rate * p.grad
        result = float(loss.data)
        del loss
        if self.peer.managed:
            gc.collect()
        return result
