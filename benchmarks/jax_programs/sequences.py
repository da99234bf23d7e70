"""Sequences: filters, alignments, hidden states."""

from __future__ import annotations

import random

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp


def hidden_markov_model(x, n):
    start, move, emit = x[:3], x[3:12].reshape(3, 3), x[12:].reshape(3, 2)
    rng = random.Random(5)
    seen = np.array([rng.randrange(2) for _ in range(n)])

    def step(alpha, column):
        alpha = column * (alpha @ move)
        norm = jnp.sum(alpha)
        return alpha / norm, norm

    _, norms = lax.scan(step, start, emit.T[seen])
    return jnp.sum(jnp.log(norms))


def kalman_filter(x, n):
    damping, drift, jitter, noise = x
    rng = random.Random(6)
    seen = np.array([rng.gauss(0, 1) for _ in range(n)])

    def step(state, seen):
        x, v, pxx, pxv, pvv = state
        x, v = x + 0.1 * v, damping * v + drift
        pxx = pxx + 0.2 * pxv + 0.01 * pvv
        pxv, pvv = damping * (pxv + 0.1 * pvv), damping * damping * pvv + jitter
        innovation, spread = seen - x, pxx + noise
        gain_x, gain_v = pxx / spread, pxv / spread
        state = x + gain_x * innovation, v + gain_v * innovation
        covariance = (1.0 - gain_x) * pxx, (1.0 - gain_x) * pxv, pvv - gain_v * pxv
        return (*state, *covariance), (innovation, spread)

    _, (innovations, spreads) = lax.scan(step, (0.0, 0.0, 1.0, 0.0, 1.0), seen)
    return jnp.sum(jnp.log(spreads) + innovations**2 / spreads)


def soft_alignment(x, n):
    """One diagonal after another: its elements do not depend on each other."""
    diagonal, i = np.arange(2, 2 * n + 1)[:, None], np.arange(n + 1)
    j = diagonal - i
    inside = (i >= 1) & (j >= 1) & (j <= n)
    costs = (x[np.clip(i - 1, 0, n - 1)] - x[n + np.clip(j - 1, 0, n - 1)]) ** 2

    def step(state, row):
        before, last = state
        costs, inside = row
        least = -logsumexp(-jnp.stack([jnp.roll(before, 1), jnp.roll(last, 1), last]), axis=0)
        return (last, jnp.where(inside, costs + least, 10.0)), None

    first = jnp.full(n + 1, 10.0)
    (_, last), _ = lax.scan(step, (first.at[0].set(0.0), first), (costs, inside))
    return last[n]


def smoothing(x, n):
    level_rate, trend_rate, start = x
    rng = random.Random(7)
    seen = np.array([0.1 * t + rng.gauss(0, 0.1) for t in range(n)])

    def step(state, seen):
        level, trend = state
        error = seen - (level + trend)
        return (level + trend + level_rate * error, trend + trend_rate * error), error

    _, errors = lax.scan(step, (start, 0.0), seen)
    return jnp.mean(errors**2)


def tagging(x, n):
    emit, move = x[:24].reshape(6, 4), x[24:].reshape(4, 4)
    rng = random.Random(21)
    words = np.array([rng.randrange(6) for _ in range(n)])
    tags = np.array([rng.randrange(4) for _ in range(n)])

    def step(alpha, scores):
        return logsumexp(alpha[:, None] + move, axis=0) + scores, None

    scores = emit[words]
    alpha, _ = lax.scan(step, scores[0], scores[1:])
    right = jnp.sum(scores[np.arange(n), tags]) + jnp.sum(move[tags[:-1], tags[1:]])
    return logsumexp(alpha) - right
