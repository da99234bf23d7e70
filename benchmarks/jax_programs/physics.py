"""Light, qubits, bridges."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve


def thin_films(x, n):
    wavelengths = 0.4 + 0.015 * np.arange(20)

    def layer(matrix, film):
        a, b, c, d = matrix
        index, thickness = film
        phase = 2.0 * math.pi * index * thickness / wavelengths
        cos, sin = jnp.cos(phase), jnp.sin(phase)
        a, b = a * cos - b * index * sin, a * sin / index + b * cos
        return (a, b, c * cos + d * index * sin, d * cos - c * sin / index), None

    one, zero = jnp.ones(20), jnp.zeros(20)
    (a, b, c, d), _ = lax.scan(layer, (one, zero, zero, one), (1.0 + x[:n], x[n:]))
    top, bottom = (a - 1.5 * d) ** 2 + (1.5 * b - c) ** 2, (a + 1.5 * d) ** 2 + (1.5 * b + c) ** 2
    return jnp.mean(top / bottom)


def quantum_circuit(x, n):
    k = np.arange(16)
    flips = k
    for qubit in range(4):
        flips = flips[k ^ (k >> qubit & 1) << (qubit + 1) % 4]

    def layer(state, angles):
        for qubit in range(4):
            turn, tilt = angles[qubit]
            c, s, turned = jnp.cos(turn), jnp.sin(turn), jnp.exp(1j * tilt)
            low, high = jnp.moveaxis(state.reshape(-1, 2, 2**qubit), 1, 0)
            state = jnp.stack([(c * low - s * high) / turned, (s * low + c * high) * turned], 1).ravel()
        return state[flips], None

    state, _ = lax.scan(layer, jnp.zeros(16, complex).at[0].set(1.0), x.reshape(n, 4, 2) / 2)
    return (-1.0) ** (k ^ k >> 1) @ (state.real**2 + state.imag**2)


def truss(x, n):
    joints = np.array([(k, level) for k in range(n + 1) for level in range(2)], float)
    bars = [(2 * k, 2 * k + 1) for k in range(n + 1)]
    bars += [(2 * k + a, 2 * k + b) for k in range(n) for a, b in ((0, 2), (1, 3), (0, 3), (1, 2))]
    stretches = np.zeros((len(bars), 2 * len(joints)))
    for bar, (i, j) in enumerate(bars):
        way = joints[j] - joints[i]
        along = way / np.linalg.norm(way) ** 1.5
        stretches[bar, 2 * i : 2 * i + 2], stretches[bar, 2 * j : 2 * j + 2] = -along, along
    free = stretches[:, 3:]
    load = jnp.full(free.shape[1], 0.1)
    return load @ solve((free.T * x) @ free, load, assume_a="pos")
