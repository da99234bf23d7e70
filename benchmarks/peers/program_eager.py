"""A program in plain loops on Values, without the compiler: what the others must agree with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import chainrule
from chainrule import Value
from contest import Runner
from workloads.programs import Inputs


def differentiate(program, numbers, size):
    leaves = [Value(x) for x in numbers]
    loss = program(chainrule, leaves, size)
    loss.backward()
    return loss.data, [leaf.grad for leaf in leaves]


LOOPS = {"gradient": [differentiate]}


class Gradient(Runner):
    """The graph is built anew each time."""

    def __init__(self, inputs: Inputs, program: Callable[..., Any]) -> None:
        self.inputs, self.program = inputs, program

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.result = differentiate(self.program, *self.inputs)

    def numbers(self) -> tuple[float, np.ndarray]:
        value, gradient = self.result
        return value, np.array(gradient)
