"""The problems in JAX: the whole training is one jitted loop, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from problems import PENALTY, RATE, Problem

jax.config.update("jax_enable_x64", True)

BLOCK = 1000  # examples


def training(problem: Problem) -> Callable[[int], float]:
    """So many steps from the start; the last loss."""
    start = _start(problem)
    of = jax.value_and_grad(_loss(problem))

    @jax.jit
    def whole(parameters: Any, steps: Any, x: Any, y: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            value, gradients = of(state[1], x, y)
            return value, jax.tree.map(lambda p, g: p - RATE * g, state[1], gradients)

        return jax.lax.fori_loop(0, steps, step, (0.0, parameters))[0]

    x, y = jnp.array(problem.x), jnp.array(problem.y)
    return lambda steps: float(whole(start, steps, x, y))


def gradient(problem: Problem) -> Callable[[], tuple[float, np.ndarray]]:
    """The loss and its gradient at the start; the mean over blocks that fit into the cache, which is several times
    faster than all examples at once.
    """
    blocks, start = len(problem.x) // BLOCK, _start(problem)
    of = jax.value_and_grad(_loss(problem))

    @jax.jit
    def whole(parameters: Any, x: Any, y: Any) -> Any:
        def block(total: Any, part: Any) -> Any:
            return jax.tree.map(jnp.add, total, of(parameters, *part)), None

        zero = 0.0, jax.tree.map(jnp.zeros_like, parameters)
        total, _ = jax.lax.scan(block, zero, (x, y))
        return jax.tree.map(lambda number: number / blocks, total)

    x, y = jnp.array(problem.x.reshape(blocks, BLOCK, -1)), jnp.array(problem.y.reshape(blocks, BLOCK))

    def run() -> tuple[float, np.ndarray]:
        value, gradients = whole(start, x, y)
        return float(value), problem.flat(gradients)

    return run


def _start(problem: Problem) -> Any:
    return [(jnp.array(w), jnp.array(b)) for w, b in problem.layers()]


def _loss(problem: Problem) -> Callable[..., Any]:
    def loss(parameters: Any, x: Any, y: Any) -> Any:
        h = x
        for k, (w, b) in enumerate(parameters):
            h = h @ w.T + b
            if problem.tanh or k < len(parameters) - 1:
                h = jnp.tanh(h) if problem.tanh else jnp.maximum(h, 0)
        if problem.tanh:
            return ((h[:, 0] - y) ** 2).sum()
        squares = sum((part * part).sum() for layer in parameters for part in layer)
        return jnp.maximum(1 - y * h[:, 0], 0).mean() + PENALTY * squares

    return loss
