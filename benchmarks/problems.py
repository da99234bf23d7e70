"""What the compiler's benchmark trains: a network, its points and its loss, as every contestant reads them.

Parameters lie neuron by neuron, weights then bias, as micrograd and chainrule keep them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import numpy as np

from chainrule import data

RATE = 0.01  # of every step
PENALTY = 1e-4  # times the sum of squared parameters, in the hinge loss


@dataclass(frozen=True)
class Problem:
    """A network of `sizes` on `points`.

    With `tanh` it has tanh everywhere and the sum of squared errors; else relu between layers, and the mean hinge loss
    with a penalty, as micrograd's demo.
    """

    name: str
    sizes: tuple[int, ...]
    points: data.Dataset
    tanh: bool = False
    seed: int = 1337

    @cached_property
    def x(self) -> np.ndarray:
        return np.array(self.points.inputs, dtype=np.float64)

    @cached_property
    def y(self) -> np.ndarray:
        return np.array(self.points.targets, dtype=np.float64)

    @cached_property
    def start(self) -> np.ndarray:
        """The parameters before the first step, drawn as micrograd draws them."""
        draw = Random(self.seed).uniform
        neurons = [[*(draw(-1, 1) for _ in range(m)), 0.0] for m, n in self.shapes for _ in range(n)]
        return np.array([number for neuron in neurons for number in neuron])

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each layer."""
        return list(zip(self.sizes, self.sizes[1:], strict=False))

    def layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The first parameters as tensor programs keep them: a matrix and a vector a layer."""
        layers, offset = [], 0
        for m, n in self.shapes:
            rows = self.start[offset : offset + n * (m + 1)].reshape(n, m + 1)
            layers.append((rows[:, :-1].copy(), rows[:, -1].copy()))
            offset += rows.size
        return layers

    def flat(self, layers: Iterable[tuple[Any, Any]]) -> np.ndarray:
        """Matrices and vectors, one of each a layer, in the order of the parameters."""
        rows = [np.column_stack([np.asarray(w), np.asarray(b)]).ravel() for w, b in layers]
        return np.concatenate(rows)


FOUR_POINTS = Problem("four points", (3, 4, 4, 1), data.four_points(), tanh=True, seed=1)
MOONS = Problem("moons", (2, 16, 16, 1), data.micrograd_moons())


def many_moons(count: int) -> Problem:
    return Problem(f"{count:,} examples", MOONS.sizes, data.moons(n=count, seed=1))
