"""What every contestant of a workload is given: numbers to start from, examples, and how they are laid out.

A network's parameters lie neuron by neuron, weights then bias, as micrograd and chainrule keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Problem:
    """Parameters, and examples that the loss is a mean of, or with `summed` a sum."""

    start: np.ndarray
    x: np.ndarray  # a row an example
    y: np.ndarray
    summed: bool = False
    rate: float = 0.01  # of gradient descent

    def scalars(self, value: Callable[[float], Any]) -> tuple[Any, list[Any]]:
        """The first parameters as scalar code keeps them, and as a flat list."""
        parameters = [value(number) for number in self.start.tolist()]
        return parameters, parameters

    def arrays(self) -> list[np.ndarray]:
        """The first parameters as tensor code keeps them."""
        return [np.array(number) for number in self.start]

    def flat(self, arrays: Iterable[Any]) -> np.ndarray:
        """Arrays like those, in the order of the parameters."""
        return np.array([float(array) for array in arrays])


@dataclass(frozen=True)
class Network(Problem):
    """Of fully connected layers: scalar code sees layers of neurons (weights, bias), tensor code W, b, W, b, …"""

    sizes: tuple[int, ...] = ()

    def scalars(self, value: Callable[[float], Any]) -> tuple[Any, list[Any]]:
        parameters = [value(number) for number in self.start.tolist()]
        rest = iter(parameters)
        layers = [[([next(rest) for _ in range(m)], next(rest)) for _ in range(n)] for m, n in self.shapes()]
        return layers, parameters

    def arrays(self) -> list[np.ndarray]:
        arrays, offset = [], 0
        for m, n in self.shapes():
            rows = self.start[offset : offset + n * (m + 1)].reshape(n, m + 1)
            arrays += [rows[:, :-1].copy(), rows[:, -1].copy()]
            offset += rows.size
        return arrays

    def flat(self, arrays: Iterable[Any]) -> np.ndarray:
        parts = [np.asarray(array) for array in arrays]
        rows = [np.column_stack([w, b]).ravel() for w, b in zip(parts[::2], parts[1::2], strict=True)]
        return np.concatenate(rows)

    def shapes(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each layer."""
        return list(pairwise(self.sizes))


def network(sizes: tuple[int, ...], x: Any, y: Any, seed: int, scale: float = 1.0, summed: bool = False) -> Network:
    """With weights drawn as micrograd draws them, times `scale`."""
    draw = Random(seed).uniform
    neurons = [[*(scale * draw(-1, 1) for _ in range(m)), 0.0] for m, n in pairwise(sizes) for _ in range(n)]
    start = np.array([number for neuron in neurons for number in neuron])
    return Network(start, np.array(x, dtype=np.float64), np.array(y, dtype=np.float64), summed, sizes=sizes)
