"""Networks of pages and of friends: they are small, so that neighbours are a matrix."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def page_rank(x, n):
    damping, weights = x[0], x[1:].reshape(n, 3)
    rng = random.Random(12)
    others = np.array([[rng.randrange(n) for _ in range(3)] for _ in range(n)])
    shares = weights / jnp.sum(weights, 1, keepdims=True)
    links = jnp.zeros((n, n)).at[others, np.arange(n)[:, None]].add(damping * shares)
    rank, _ = lax.scan(
        lambda rank, _: ((1.0 - damping) / n + links @ rank, None), jnp.full(n, 1.0 / n), length=20 if n > 5 else 3
    )
    return jnp.arange(1.0, n + 1) @ (rank * rank)


def message_passing(x, n):
    rng, means = random.Random(13), np.zeros((n, n))
    for k in range(n):
        around = rng.sample(range(n), rng.randrange(1, min(n, 6)))
        means[k, around] = 1.0 / len(around)
    wanted = np.array([rng.randrange(2) for _ in range(n)])
    state, weights = x[: 4 * n].reshape(n, 4), x[4 * n :]
    own, heard = weights[:32].reshape(2, 4, 4)
    for _ in range(3):
        state = jnp.tanh(state @ own.T + means @ state @ heard.T)
    return jnp.sum((jax.nn.sigmoid(state @ weights[32:]) - wanted) ** 2)
