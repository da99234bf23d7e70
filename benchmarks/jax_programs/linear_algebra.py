"""Matrices, by the library where it has what is wanted."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax


def cholesky(x, n):
    a = jnp.exp(-((x[:, None] - x) ** 2)) + 0.5 * jnp.eye(n)
    return 2.0 * jnp.sum(jnp.log(jnp.diag(jnp.linalg.cholesky(a))))


def fourier_transform(x, n):
    spectrum = jnp.fft.fft(x)[: n // 2]
    return jnp.sum(spectrum.real**2 + spectrum.imag**2)


def sorting_network(x, n):
    return jnp.arange(1.0, n + 1) @ jnp.sort(x)


def power_iteration(x, n):
    a, v = x[: n * n].reshape(n, n), x[n * n :]

    def step(v, _):
        v = a @ v
        return v / jnp.sqrt(v @ v), None

    v, _ = lax.scan(step, v, length=15 if n > 4 else 3)
    return v @ a @ v


def gauss_elimination(x, n):
    return jnp.linalg.slogdet(x.reshape(n, n) + n * jnp.eye(n))[1]


def givens_rotations(x, n):
    return jnp.arange(1.0, n + 1) @ jnp.abs(jnp.diag(jnp.linalg.qr(x.reshape(n, n), mode="r")))


def conjugate_gradients(x, n):
    ties, b = x[:n], x[n:]

    def times(v):
        return ((2.0 + ties) * v).at[1:].add(-v[:-1]).at[:-1].add(-v[1:])

    def step(state, _):
        x, r, p, size = state
        q = times(p)
        length = size / (p @ q)
        x, r = x + length * p, r - length * q
        return (x, r, r + r @ r / size * p, r @ r), None

    (x, *_), _ = lax.scan(step, (jnp.zeros(n), b, b, b @ b), length=12 if n > 6 else 3)
    return x @ x
