"""The problems in C by hand: plain.c as one would write it, tuned.c for the vectors of the processor."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np

from problems import RATE, Problem

FLAGS = ["-O3", "-march=native", "-shared", "-fPIC"]


class Library:
    """A source, compiled into `folder`. It exports losses with their gradients, and `train` for any of them."""

    def __init__(self, source: Path, folder: Path, *options: str) -> None:
        path = folder / f"{source.stem}.so"
        command = ["gcc", *FLAGS, *options, "-o", str(path), str(source), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        self.functions = ctypes.CDLL(str(path))
        self.functions.train.restype = ctypes.c_double

    def training(self, problem: Problem) -> Callable[[int], float]:
        """So many steps from the start; the last loss."""
        p, dp = problem.start.copy(), np.zeros_like(problem.start)

        def train(steps: int) -> float:
            p[:] = problem.start
            return self._train(problem, p, dp, RATE, steps)

        return train

    def gradient(self, problem: Problem) -> Callable[[], tuple[float, np.ndarray]]:
        """The loss and its gradient at the start."""
        p, dp = problem.start.copy(), np.zeros_like(problem.start)
        return lambda: (self._train(problem, p, dp, 0.0, 1), dp)

    def _train(self, problem: Problem, p: np.ndarray, dp: np.ndarray, rate: float, steps: int) -> float:
        function = ctypes.cast(getattr(self.functions, function_name(problem)), ctypes.c_void_p)
        p, dp, x, y = (ctypes.c_void_p(array.ctypes.data) for array in (p, dp, problem.x, problem.y))
        size, count = ctypes.c_long(len(problem.start)), ctypes.c_long(len(problem.x))
        return self.functions.train(function, p, dp, size, x, y, count, ctypes.c_double(rate), ctypes.c_long(steps))


def function_name(problem: Problem) -> str:
    """What the loss of a problem is called in C."""
    return "four_points" if problem.tanh else "moons"


def plain(folder: Path) -> Library:
    return Library(Path(__file__).with_name("plain.c"), folder)


def tuned(folder: Path) -> Library:
    return Library(Path(__file__).with_name("tuned.c"), folder)
