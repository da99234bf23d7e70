"""Arrays in JAX, in double precision. A whole training is one jitted loop."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from contest import Runner
from peers.jax_settings import jax
from workloads.problems import Problem

BLOCK = 1000  # examples


@partial(jax.jit, static_argnums=0)
def descend(loss, parameters, x, y, rate, steps):
    def step(_, state):
        value, gradients = jax.value_and_grad(loss)(state[1], x, y)
        return value, jax.tree.map(lambda p, g: p - rate * g, state[1], gradients)

    return jax.lax.fori_loop(0, steps, step, (0.0, parameters))


@partial(jax.jit, static_argnums=0)
def differentiate(loss, parameters, x, y):
    """The mean over blocks that fit into the cache: several times faster than all examples at once."""

    def add(total, block):
        return jax.tree.map(jnp.add, total, jax.value_and_grad(loss)(parameters, *block)), None

    total, _ = jax.lax.scan(add, (0.0, jax.tree.map(jnp.zeros_like, parameters)), (x, y))
    return jax.tree.map(lambda number: number / len(x), total)


LOOPS = {"training": [descend], "gradient": [differentiate]}


class Training(Runner):
    """All steps in one call."""

    def __init__(self, problem: Problem, solution: Any) -> None:
        self.problem, self.loss = problem, solution.loss
        self.points = jnp.array(problem.x), jnp.array(problem.y)
        self.start = [jnp.array(array) for array in problem.arrays()]

    def run(self, steps: int) -> None:
        result = descend(self.loss, self.start, *self.points, self.problem.rate, steps)
        self.value, self.arrays = jax.block_until_ready(result)

    def numbers(self) -> tuple[float, np.ndarray]:
        return float(self.value), self.problem.flat(self.arrays)


class Gradient(Training):
    """A call a gradient, on blocks of examples."""

    def __init__(self, problem: Problem, solution: Any) -> None:
        super().__init__(problem, solution)
        blocks = max(1, len(problem.x) // BLOCK)
        self.points = tuple(array.reshape(blocks, -1, *array.shape[1:]) for array in self.points)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            result = differentiate(self.loss, self.start, *self.points)
            self.value, self.arrays = jax.block_until_ready(result)
