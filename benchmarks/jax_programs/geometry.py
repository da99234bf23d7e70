"""Shapes, pictures, arms."""

from __future__ import annotations

import random

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.lax.linalg import tridiagonal_solve


def ray_marching(x, n):
    centre, radius, melting, light = x[:3], x[3], x[4], x[5]
    grid = (np.arange(n) + 0.5) / n - 0.5
    rays = np.stack([*np.meshgrid(grid, grid, indexing="ij"), np.ones((n, n))])
    rays /= np.sqrt(np.sum(rays * rays, 0))
    far = jnp.zeros((n, n))
    for _ in range(12):
        place = far * rays
        ball = jnp.sqrt(jnp.sum((place - centre[:, None, None]) ** 2, 0)) - radius
        floor = place[1] + 0.5
        near = jnp.maximum(melting - jnp.abs(ball - floor), 0.0) / melting
        far = far + jnp.minimum(ball, floor) - near * near * melting * 0.25
    return light * jnp.mean(jnp.exp(-0.3 * far))


def robot_arm(x, n):
    lengths, goal = x[:n], x[2 * n :]

    def step(state, _):
        angles, _ = state
        heading = jnp.cumsum(angles)
        steps = lengths * jnp.stack([jnp.cos(heading), jnp.sin(heading)])
        ends = jnp.cumsum(steps, 1)
        error, reach = goal - ends[:, -1], ends[:, -1:] - (ends - steps)
        return (angles + 0.01 * (reach[0] * error[1] - reach[1] * error[0]), error), None

    (angles, error), _ = lax.scan(step, (x[n : 2 * n], jnp.zeros(2)), length=20 if n > 3 else 3)
    return error @ error + 0.01 * (angles @ angles)


def warped_picture(x, n):
    picture, right, down = x.reshape(3, n, n)
    rng = random.Random(10)
    drawn = np.array([[rng.randrange(-2, 2), rng.randrange(-2, 2), rng.random()] for _ in range(n * n)])
    rows, columns, seen = drawn.T.reshape(3, n, n)
    rows, columns = rows.astype(int) + np.arange(n)[:, None], columns.astype(int) + np.arange(n)

    def at(i, j):
        return picture[np.clip(rows + i, 0, n - 1), np.clip(columns + j, 0, n - 1)]

    above = (1.0 - right) * at(0, 0) + right * at(0, 1)
    below = (1.0 - right) * at(1, 0) + right * at(1, 1)
    return jnp.sum(((1.0 - down) * above + down * below - seen) ** 2)


def spline(x, n):
    rng, y = random.Random(11), x
    knots = np.array([k + 0.6 * rng.random() for k in range(n)])
    drawn = np.array([[rng.uniform(knots[0], knots[-1]), rng.random()] for _ in range(3 * n)])
    places, seen = drawn.T
    h = np.diff(knots)
    slopes = jnp.diff(y) / h
    below, above = np.append(0.0, h[1:-1]), np.append(h[1:-1], 0.0)
    inner = tridiagonal_solve(below, 2.0 * (h[:-1] + h[1:]), above, 6.0 * jnp.diff(slopes)[:, None])
    second = jnp.pad(inner[:, 0], 1)
    k = np.clip(np.searchsorted(knots, places, side="right") - 1, 0, n - 2)
    a, b = (knots[k + 1] - places) / h[k], (places - knots[k]) / h[k]
    cubic = ((a**3 - a) * second[k] + (b**3 - b) * second[k + 1]) * h[k] ** 2 / 6.0
    return jnp.sum((a * y[k] + b * y[k + 1] + cubic - seen) ** 2)
