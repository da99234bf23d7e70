"""Programs as people in many fields write them: plain loops over numbers, with no thought of a compiler.

A program is a function of a namespace `m` (`chainrule`, or the same functions of PyTorch's), of a list of numbers, and
of a size. It returns one number. It knows neither Values nor arrays, so that anything with arithmetic can run it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

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


def _tensor(number):
    return number if isinstance(number, torch.Tensor) else torch.tensor(float(number), dtype=torch.float64)


class Torch:
    """The functions that programs use, by PyTorch."""

    def __getattr__(self, name):
        return lambda *numbers: getattr(torch, name)(*map(_tensor, numbers))

    def where(self, condition, a, b):
        return torch.where(condition, _tensor(a), _tensor(b))

    def logsumexp(self, numbers):
        return torch.logsumexp(torch.stack([_tensor(x) for x in numbers]), 0)


def by_torch(found, size):
    """Value and gradient of a program, by PyTorch."""
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in found.numbers(size)]
    loss = found.loss(Torch(), leaves, size)
    slopes = torch.autograd.grad(loss, leaves, allow_unused=True)
    return loss.item(), [0.0 if slope is None else slope.item() for slope in slopes]
