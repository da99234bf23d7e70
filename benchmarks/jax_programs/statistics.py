"""Likelihoods and other sums over observations."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp


def logistic_regression(x, n):
    rng = random.Random(8)
    drawn = np.array([[*(rng.gauss(0, 1) for _ in range(4)), rng.choice([-1.0, 1.0])] for _ in range(n)])
    margins = drawn[:, 4] * (x[4] + drawn[:, :4] @ x[:4])
    return jnp.mean(jax.nn.softplus(-margins)) + 0.01 * (x @ x)


def mixture_of_normals(x, n):
    rng = random.Random(9)
    seen = np.array([rng.gauss(0, 1) for _ in range(n)])
    weights, means, widths = x.reshape(3, 3)
    parts = weights - jnp.log(widths) - 0.5 * ((seen[:, None] - means) / widths) ** 2
    return jnp.sum(logsumexp(parts, axis=1)) - n * logsumexp(weights)


def mean_field(x, n):
    """A sweep is a scan along the ring; the last site's other neighbour is the first, which is new already."""
    coupling, fields = x[0], x[1:]

    def site(before, row):
        field, after = row
        spin = jnp.tanh(field + coupling * (before + after))
        return spin, spin

    def sweep(spins, _):
        last, new = lax.scan(site, spins[-1], (fields[:-1], spins[1:]))
        return jnp.append(new, jnp.tanh(fields[-1] + coupling * (last + new[0]))), None

    spins, _ = lax.scan(sweep, jnp.tanh(fields), length=25 if n > 6 else 3)
    return spins @ spins


def survival(x, n):
    rng = random.Random(18)
    traits = np.array([[rng.gauss(0, 1) for _ in range(3)] for _ in range(n)])
    died = np.array([rng.random() < 0.7 for _ in range(n)])
    scores = traits @ x
    alive = jnp.cumsum(jnp.exp(scores)[::-1])[::-1]
    return -jnp.sum((scores - jnp.log(alive))[died]) / n


def gaussian_process(x, n):
    height, width, noise = x
    rng = random.Random(19)
    places = np.array(sorted(rng.uniform(0, 5) for _ in range(n)))
    seen = np.array([rng.gauss(0, 1) for _ in range(n)])
    covariance = height * jnp.exp(-0.5 * ((places[:, None] - places) / width) ** 2) + noise * jnp.eye(n)
    factor = jnp.linalg.cholesky(covariance)
    solved = solve_triangular(factor, seen, lower=True)
    return 0.5 * (solved @ solved) + jnp.sum(jnp.log(jnp.diag(factor)))


def particle_filter(x, n):
    memory, wobble, noise = x
    rng, rounds = random.Random(20), 20 if n > 4 else 3
    drawn = np.array([[rng.gauss(0, 1) for _ in range(n + 1)] for _ in range(rounds)])

    def step(state, row):
        particles, weights = state
        particles = memory * jnp.sin(particles) + wobble * row[1:]
        return (particles, weights - 0.5 * ((row[0] - particles) / noise) ** 2 - jnp.log(noise)), None

    (_, weights), _ = lax.scan(step, (jnp.zeros(n), jnp.zeros(n)), drawn)
    return -logsumexp(weights)
