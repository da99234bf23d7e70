"""A program in plain loops, recorded on Values and compiled."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

import chainrule
from chainrule import Value
from contest import Runner
from workloads.programs import Inputs


def compiled(loss, leaves, backend):
    return chainrule.compile(loss, wrt=leaves, allow_frozen_branches=True, backend=backend)


LOOPS = {"gradient": [compiled]}


class Gradient(Runner):
    """Calls of the compiled loss. `compiling` is how many seconds the processor took for that."""

    def __init__(self, inputs: Inputs, program: Callable[..., Any], backend: str = "llvm") -> None:
        leaves = [Value(x) for x in inputs.numbers]
        loss = program(chainrule, leaves, inputs.size)
        started = process_time()
        self.program = compiled(loss, leaves, backend)
        self.run(1)  # XLA compiles at the first call
        self.compiling = process_time() - started

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.result = self.program.value_and_grad()

    def numbers(self) -> tuple[float, np.ndarray]:
        value, gradient = self.result
        return value, np.array(gradient)
