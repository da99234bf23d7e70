"""In JAX: names filled up to 16 positions, and all steps of a call in one `scan`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workloads.microgpt import BETA1, BETA2, EPSILON, POSITIONS, RATE, SHAPES, STEPS, tokens_of, weights

jax.config.update("jax_enable_x64", True)


class Model:
    def __init__(self, dtype: str = "float64") -> None:
        start = {k: jnp.array(rows, dtype=dtype) for k, rows in weights().items()}
        zeros = jax.tree.map(jnp.zeros_like, start)
        self.dtype = dtype
        self.state = start, zeros, zeros, jnp.array(0.0, dtype=dtype)
        self.steps = jax.jit(lambda state, rows: jax.lax.scan(step, state, rows))

    def loss_and_gradient(self, letters: str) -> tuple[float, np.ndarray]:
        """Of one name."""
        (row,) = zip(*self.padded([letters]), strict=True)
        value, gradients = jax.jit(jax.value_and_grad(loss))(self.state[0], row)
        return float(value), np.concatenate([np.ravel(gradients[key]) for key in SHAPES])

    def train(self, names: Iterable[str]) -> list[float]:
        """A step a name; the loss of each, before its update."""
        self.state, losses = self.steps(self.state, self.padded(names))
        return losses.tolist()

    def padded(self, names: Iterable[str]) -> tuple[Any, Any, Any]:
        """Tokens, those that follow, and the weight of each position."""
        tokens = [tokens_of(letters) for letters in names]
        rows = np.zeros((2, len(tokens), POSITIONS), dtype=np.int32)
        shares = np.zeros((len(tokens), POSITIONS), dtype=self.dtype)
        for i, name in enumerate(tokens):
            n = len(name) - 1
            rows[0, i, :n], rows[1, i, :n], shares[i, :n] = name[:-1], name[1:], 1 / n
        return rows[0], rows[1], shares


def step(state: Any, row: Any) -> Any:
    w, m, v, t = state
    value, gradient = jax.value_and_grad(loss)(w, row)
    rate = RATE * jnp.maximum(0.0, 1 - t / STEPS)
    t = t + 1
    m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, m, gradient)
    v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g**2, v, gradient)
    scale1, scale2 = 1 / (1 - BETA1**t), 1 / (1 - BETA2**t)
    w = jax.tree.map(lambda w, m, v: w - rate * m * scale1 / (jnp.sqrt(v * scale2) + EPSILON), w, m, v)
    return (w, m, v, t), value


def loss(w: Any, row: Any) -> Any:
    tokens, following, share = row
    x = norm(w["token"][tokens] + w["position"])
    normal = norm(x)
    query, key, value = ((normal @ w[k].T).reshape(POSITIONS, 4, 4) for k in ("query", "key", "value"))
    scores = jnp.einsum("ihd,jhd->hij", query, key) / 2.0
    shares = jax.nn.softmax(jnp.where(jnp.tri(POSITIONS, dtype=bool), scores, -jnp.inf))
    x = x + jnp.einsum("hij,jhd->ihd", shares, value).reshape(POSITIONS, 16) @ w["mix"].T
    x = x + jax.nn.relu(norm(x) @ w["widen"].T) @ w["narrow"].T
    surprises = -jax.nn.log_softmax(x @ w["predict"].T)[jnp.arange(POSITIONS), following]
    return share @ surprises


def norm(x: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + 1e-5)
