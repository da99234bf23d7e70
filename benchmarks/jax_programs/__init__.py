"""The programs of tests/compiler/programs, as someone who knows JAX would write them: arrays, `scan` for time.

Each is a function of all its numbers in one array, and of its size, which is static. What a library does well (a
factorization, a Fourier transform, a sort) is left to it.
"""

from __future__ import annotations

import jax

jax.config.update("jax_enable_x64", True)

from . import (  # noqa: E402  once numbers are in double precision
    dynamics,
    finance,
    geometry,
    graphs,
    linear_algebra,
    networks,
    physics,
    sequences,
    statistics,
)

_PLACES = (dynamics, finance, geometry, graphs, linear_algebra, networks, physics, sequences, statistics)
JAX_PROGRAMS = {
    name: function
    for place in _PLACES
    for name, function in vars(place).items()
    if getattr(function, "__module__", None) == place.__name__ and not name.startswith("_")
}
