"""Programs as people in many fields write them: plain loops over numbers, with no thought of a compiler.

A program is a function of a namespace `m` (`chainrule`, or the same functions of PyTorch's), of a list of numbers, and
of a size. It returns one number. It knows neither Values nor arrays, so that anything with arithmetic can run it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PROGRAMS = {}


@dataclass(frozen=True)
class Program:
    """`size` is what its users would call usual, `small` what an oracle that runs one number at a time can do."""

    name: str
    function: Callable[..., Any]
    size: int
    small: int
    numbers: Callable[[int], list[float]]

    def loss(self, m, numbers, size):
        return self.function(m, numbers, size)


def program(size, small, numbers):
    """Register a program; `numbers` says for a size how many parameters it has, or what they are."""

    def register(function):
        def start(n):
            given = numbers(n)
            if not isinstance(given, int):
                return given
            rng = random.Random(function.__name__)
            return [rng.uniform(0.2, 0.8) for _ in range(given)]

        PROGRAMS[function.__name__] = Program(function.__name__, function, size, small, start)
        return function

    return register
