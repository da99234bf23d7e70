"""Things that move."""

from __future__ import annotations

import random

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.lax.linalg import tridiagonal_solve


def _steps(step, state, count):
    return lax.scan(lambda state, _: (step(state), None), state, length=count)[0]


def _runge_kutta(slope, state, h):
    k1 = slope(state)
    k2 = slope(state + h / 2 * k1)
    k3 = slope(state + h / 2 * k2)
    k4 = slope(state + h * k3)
    return state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def heat_in_a_plate(x, n):
    def step(u):
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return u.at[1:-1, 1:-1].add(0.2 * x[0] * (around - 4 * u[1:-1, 1:-1]))

    u = _steps(step, x[1:].reshape(n, n), 50 if n > 8 else 4)
    return jnp.sum(u * u)


def heat_in_a_rod(x, n):
    u = _steps(lambda u: u.at[1:-1].add(0.2 * x[0] * (u[:-2] - 2 * u[1:-1] + u[2:])), x[1:], 40 if n > 20 else 5)
    return u @ u


def heat_on_a_ring(x, n):
    u = _steps(lambda u: u + 0.2 * x[0] * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)), x[1:], 40 if n > 12 else 5)
    return u @ u


def implicit_heat(x, n):
    r = 0.5 * x[0]
    side, middle = jnp.full(n, -r), jnp.full(n, 1 + 2 * r)
    below, above = side.at[0].set(0.0), side.at[-1].set(0.0)
    u = _steps(lambda u: tridiagonal_solve(below, middle, above, u[:, None])[:, 0], x[1:], 20 if n > 8 else 3)
    return u @ u


def pendulum(x, n):
    _, _, gravity, friction = x

    def step(state, _):
        state = _runge_kutta(lambda s: jnp.stack([s[1], -gravity * jnp.sin(s[0]) - friction * s[1]]), state, 0.01)
        return state, state[0]

    _, angles = lax.scan(step, x[:2], length=n)
    return angles @ angles


def bodies_by_pairs(x, n):
    def step(state):
        place, speed = state
        apart = place[:, None, :] - place[:, :, None]
        strength = 1.0 / (jnp.sum(apart * apart, 0) + 0.1) ** 1.5
        speed = speed + 0.01 * jnp.sum(strength * apart, 2)
        return place + 0.01 * speed, speed

    place, _ = _steps(step, (x[: 2 * n].reshape(2, n), x[2 * n :].reshape(2, n)), 20 if n > 3 else 3)
    return jnp.sum(place * place)


def coupled_oscillators(x, n):
    phase, speed, pull = x.reshape(3, n)
    phase = _steps(
        lambda p: p + 0.05 * (speed + pull * jnp.sum(jnp.sin(p - p[:, None]), 1) / n), phase, 10 if n > 5 else 2
    )
    return jnp.sum(jnp.cos(phase))


def multigrid(x, n):
    stiffness, source = x[0], jnp.append(x[1:], 0.0)

    def smooth(u, f, h):
        return jnp.pad((u[1:-1] + u[:-2] + u[2:] + h * h * f[1:-1] / stiffness) / 3, 1)

    def cycle(u, f, h):
        u = smooth(u, f, h)
        if len(u) > 3:
            r = jnp.pad(f[1:-1] - stiffness * (2 * u[1:-1] - u[:-2] - u[2:]) / (h * h), 1)
            coarse = 0.25 * (r[1:-2:2] + 2 * r[2:-1:2] + r[3::2])
            fix = cycle(jnp.zeros(len(u) // 2 + 1), jnp.pad(coarse, 1), 2 * h)
            u = u.at[::2].add(fix).at[1::2].add(0.5 * (fix[:-1] + fix[1:]))
        return smooth(u, f, h)

    u = jnp.zeros(n + 1)
    for _ in range(3):
        u = cycle(u, source, 1.0 / n)
    return u @ u


def lorenz_fit(x, n):
    sigma, rho, beta = x[:3]
    rng = random.Random(14)
    seen = np.array([[rng.gauss(0, 5), rng.gauss(25, 5)] for _ in range(n // 5)])

    def slope(s):
        return jnp.stack([sigma * (s[1] - s[0]), s[0] * (rho - s[2]) - s[1], s[0] * s[1] - beta * s[2]])

    def step(state, _):
        state = _runge_kutta(slope, state, 0.005)
        return state, state

    _, states = lax.scan(step, x[3:], length=n)
    return jnp.sum((states[4::5, ::2] - seen) ** 2) / n


def cloth(x, n):
    stiffness, friction, weight = x[0], x[1], x[2:].reshape(n, n)
    grid = jnp.arange(1.0 * n)
    place = jnp.stack([jnp.tile(grid, (n, 1)), jnp.tile(-grid[:, None], (1, n))])

    def pull(apart):
        return stiffness * (1.0 - 0.9 / jnp.sqrt(jnp.sum(apart * apart, 0))) * apart

    def step(state):
        place, speed = state
        right, down = pull(place[:, :, 1:] - place[:, :, :-1]), pull(place[:, 1:] - place[:, :-1])
        force = jnp.stack([jnp.zeros((n, n)), -weight])
        force = force.at[:, :, :-1].add(right).at[:, :, 1:].add(-right).at[:, :-1].add(down).at[:, 1:].add(-down)
        speed = speed.at[:, 1:].add(0.05 * (force - friction * speed)[:, 1:])
        return place + 0.05 * speed, speed

    (across, high), _ = _steps(step, (place, jnp.zeros_like(place)), 10 if n > 3 else 3)
    return jnp.sum(high[-1] ** 2) + jnp.sum((across[-1] - grid) ** 2)


def epidemic(x, n):
    contacts, distance, onset, recovery, start = x
    rng = random.Random(15)
    seen = np.array([rng.random() for _ in range(n)])
    rates = jnp.where(np.arange(n) < n // 3, contacts, contacts * distance)

    def day(state, rate):
        healthy, exposed, infectious = state
        new = rate * healthy * jnp.sum(infectious)
        out, well = onset * exposed, recovery * infectious
        exposed = exposed + jnp.append(new, out[:-1]) - out
        infectious = infectious + jnp.append(out[-1], well[:-1]) - well
        return (healthy - new, exposed, infectious), out[-1] + 1e-4

    _, cases = lax.scan(day, (1.0 - start, jnp.array([start, 0.0, 0.0]), jnp.zeros(4)), rates)
    return jnp.sum(cases - 0.01 * seen * jnp.log(cases))
