"""C by hand: a source that defines `loss`, which writes the gradient too. Compiled by gcc, called through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from contest import Runner
from emulation import architecture
from workloads.problems import Problem

DESCENT = Path(__file__).with_name("descent.c")
LOOPS = {"training": [DESCENT], "gradient": []}


class Training(Runner):
    """All steps in one call."""

    def __init__(self, problem: Problem, source: Path, *options: str) -> None:
        self.problem, self.rate = problem, problem.rate
        self.p, self.dp = problem.start.copy(), np.zeros_like(problem.start)
        self.train = _train(source, *options)

    def begin(self) -> None:
        self.p[:] = self.problem.start

    def run(self, steps: int) -> None:
        p, dp, x, y = (ctypes.c_void_p(a.ctypes.data) for a in (self.p, self.dp, self.problem.x, self.problem.y))
        size, count = ctypes.c_long(len(self.p)), ctypes.c_long(len(self.problem.x))
        self.value = self.train(p, dp, size, x, y, count, ctypes.c_double(self.rate), ctypes.c_long(steps))

    def numbers(self) -> tuple[float, np.ndarray]:
        return self.value, self.p.copy()


class Gradient(Training):
    """The same at a rate of 0."""

    def __init__(self, problem: Problem, source: Path, *options: str) -> None:
        super().__init__(problem, source, *options)
        self.rate = 0.0

    def numbers(self) -> tuple[float, np.ndarray]:
        return self.value, self.dp.copy()


def _train(source: Path, *options: str) -> Any:
    """`train` of descent.c, on the source's loss."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/{source.stem}.so"
        flags = ["-O3", f"-march={architecture()}", "-shared", "-fPIC"]
        command = ["gcc", *flags, *options, "-o", library, str(source), str(DESCENT), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        function = ctypes.CDLL(library).train
    function.restype = ctypes.c_double
    return function
