"""A program in arrays of JAX, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import jax.numpy as jnp
import numpy as np

from contest import Runner
from peers.jax_settings import jax
from workloads.programs import Inputs


def compiled(program, size):
    return jax.jit(jax.value_and_grad(partial(program, n=size)))


LOOPS = {"gradient": [compiled]}


class Gradient(Runner):
    """Calls of the jitted gradient. `compiling` is how many seconds the processor took for the first."""

    def __init__(self, inputs: Inputs, program: Callable[..., Any]) -> None:
        self.inputs, self.gradient = jnp.array(inputs.numbers), compiled(program, inputs.size)
        started = process_time()
        self.run(1)
        self.compiling = process_time() - started

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.result = self.gradient(self.inputs)
            self.result[1].block_until_ready()

    def numbers(self) -> tuple[float, np.ndarray]:
        value, gradient = self.result
        return float(value), np.asarray(gradient)
