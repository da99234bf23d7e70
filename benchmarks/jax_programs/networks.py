"""Networks, layer by layer."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp


def small_network(x, n):
    rng = random.Random(3)
    points = np.array([[rng.uniform(-1, 1) for _ in range(3)] for _ in range(n)])
    hidden = jnp.tanh(points[:, :2] @ x[:8].reshape(4, 2).T + x[8:12])
    return jnp.mean((hidden @ x[12:16] + x[16] - points[:, 2]) ** 2)


def characters(x, n):
    rng = random.Random(4)
    text = np.array([rng.randrange(5) for _ in range(n + 1)])
    embedding, inner, outer = x[:20].reshape(5, 4), x[20:36].reshape(4, 4), x[36:].reshape(5, 4)

    def step(state, token):
        state = jnp.tanh(token + inner @ state)
        return state, state

    _, states = lax.scan(step, jnp.zeros(4), embedding[text[:-1]])
    logits = states @ outer.T
    return jnp.mean(logsumexp(logits, axis=1) - logits[np.arange(n), text[1:]])


def masked_attention(x, n):
    tokens, weights = x[: 4 * n].reshape(n, 4), x[4 * n :].reshape(3, 4, 4)
    q, k, v = (tokens @ matrix.T for matrix in weights)
    scores = jnp.where(np.tri(n, dtype=bool), 0.5 * (q @ k.T), -jnp.inf)
    return jnp.sum((jax.nn.softmax(scores) @ v) ** 2)


def convolution(x, n):
    rng = random.Random(22)
    picture = np.pad(np.array([[rng.random() for _ in range(n)] for _ in range(n)]), 1)
    patches = np.stack([picture[i : i + n, j : j + n] for i in range(3) for j in range(3)], -1)
    filters = x[:20].reshape(2, 10)
    rows = jax.nn.relu(jnp.einsum("ijk,fk->fij", patches, filters[:, :9] - 0.5) + filters[:, 9, None, None])
    features = jnp.max(rows.reshape(2, n // 2, 2, n // 2, 2), (2, 4)).ravel()
    logits = x[20:].reshape(3, -1) @ features / len(features)
    return logsumexp(logits) - logits[1]


def long_short_term_memory(x, n):
    rng = random.Random(23)
    drawn = np.array([[rng.gauss(0, 1), rng.gauss(0, 1), rng.random()] for _ in range(n)])
    weights, out = x[:112].reshape(16, 7) - 0.5, x[112:]

    def step(state, token):
        hidden, cell = state
        gates = weights[:, :4] @ hidden + token
        keep, add, show = jax.nn.sigmoid(gates[:12]).reshape(3, 4)
        cell = keep * cell + add * jnp.tanh(gates[12:])
        hidden = show * jnp.tanh(cell)
        return (hidden, cell), hidden

    tokens = drawn[:, :2] @ weights[:, 4:6].T + weights[:, 6]
    _, hidden = lax.scan(step, (jnp.zeros(4), jnp.zeros(4)), tokens)
    return jnp.mean((hidden @ out[:4] + out[4] - drawn[:, 2]) ** 2)


def transformer_block(x, n):
    tokens, rest = x[: 8 * n].reshape(n, 8), x[8 * n :] - 0.5
    (q, k, v, out), widen, narrow = rest[:256].reshape(4, 8, 8), rest[256:384].reshape(16, 8), rest[384:].reshape(8, 16)

    def norm(x):
        off = x - jnp.mean(x, 1, keepdims=True)
        return off / jnp.sqrt(jnp.mean(off * off, 1, keepdims=True) + 1e-5)

    normed = norm(tokens)
    q, k, v = ((normed @ matrix.T).reshape(n, 2, 4) for matrix in (q, k, v))
    scores = jnp.where(np.tri(n, dtype=bool), 0.5 * jnp.einsum("thi,shi->hts", q, k), -jnp.inf)
    mixed = jnp.einsum("hts,shi->thi", jax.nn.softmax(scores), v).reshape(n, 8)
    x = tokens + mixed @ out.T
    x = x + jax.nn.relu(norm(x) @ widen.T) @ narrow.T
    return jnp.sum(x * x) / n
