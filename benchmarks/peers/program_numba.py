"""A program and its derivatives as loops by hand, compiled by numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from contest import Runner
from workloads.programs import Inputs

LOOPS: dict[str, list[Any]] = {"gradient": []}


class Gradient(Runner):
    """Calls of the compiled sweep, on memory that is there already."""

    def __init__(self, inputs: Inputs, program: Callable[..., Any]) -> None:
        self.inputs = np.array(inputs.numbers)
        self.slopes = np.empty_like(self.inputs)
        self.sweep, self.room = program(inputs.size)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.value = self.sweep(self.inputs, self.slopes, *self.room)

    def numbers(self) -> tuple[float, np.ndarray]:
        return self.value, self.slopes.copy()
