"""In C by hand: gpt.c, called with as many names as there are."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from emulation import architecture
from workloads.microgpt import POSITIONS, flat, tokens_of, weights

SOURCES = [Path(__file__).with_name("gpt.c")]
FLAGS = ["-O3", f"-march={architecture()}", "-fopenmp-simd", "-fno-math-errno", "-shared", "-fPIC"]


class Model:
    def __init__(self) -> None:
        self.p = np.array(flat(weights()))
        self.dp, self.m, self.v = np.zeros((3, self.p.size))
        self.steps = 0
        self.functions = _library()

    def loss_and_gradient(self, letters: str) -> tuple[float, np.ndarray]:
        """Of one name."""
        tokens, lengths = _rows([letters])
        loss = self.functions.loss(*map(_address, (self.p, self.dp, tokens)), int(lengths[0]))
        return loss, self.dp.copy()

    def train(self, names: Iterable[str]) -> list[float]:
        """A step a name; the loss of each, before its update."""
        tokens, lengths = _rows(names)
        losses, count, done = np.empty(len(lengths)), ctypes.c_long(len(lengths)), ctypes.c_long(self.steps)
        arrays = map(_address, (self.p, self.dp, self.m, self.v, tokens, lengths))
        self.functions.train(*arrays, count, done, _address(losses))
        self.steps += len(lengths)
        return losses.tolist()


def _library() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpt.so"
        command = ["gcc", *FLAGS, "-o", str(path), str(*SOURCES), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        functions = ctypes.CDLL(str(path))
    functions.loss.restype = ctypes.c_double
    return functions


def _rows(names: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    tokens = [tokens_of(letters) for letters in names]
    rows = np.zeros((len(tokens), POSITIONS + 1), dtype=np.int32)
    for i, name in enumerate(tokens):
        rows[i, : len(name)] = name
    return rows, np.array([len(name) - 1 for name in tokens], dtype=np.int32)


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
