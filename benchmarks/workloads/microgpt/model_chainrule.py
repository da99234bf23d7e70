"""The trainers of examples/microgpt.py, from the parameters that all start with."""

from __future__ import annotations

import importlib.util
import random
import sys
from typing import Any

import numpy as np

from workloads import microgpt


def load_example() -> Any:
    """The example as a module; its name is that of the benchmark too."""
    path = microgpt.HERE / "examples" / "microgpt.py"
    spec = importlib.util.spec_from_file_location("example_microgpt", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where `inspect` looks for the source of a class
    spec.loader.exec_module(module)
    return module


example = load_example()
MODEL = ("GPT", "attention", "row", "product", "plus", "normalised", "Trainer")
DATA = {"eager": ("whole", "example"), "ragged": ("whole",)}  # others fill names up


def sources(mode: str, **_: Any) -> list[Any]:
    """What its user wrote."""
    return [getattr(example, name) for name in (*MODEL, *DATA.get(mode, ("padded",)), mode.title())]


class Model:
    """One of the example's ways to train."""

    def __init__(self, mode: str, **options: Any) -> None:
        self.gpt = example.GPT(random.Random(0))
        start = microgpt.flat(microgpt.weights())
        for parameter, number in zip(self.gpt.parameters(), start, strict=True):
            parameter.data = number
        self.trainer = example.TRAINERS[mode](self.gpt, microgpt.STEPS, **options)

    def loss_and_gradient(self, letters: str) -> tuple[float, np.ndarray]:
        """Of one name."""
        self.trainer.optimizer.zero_grad()
        loss = self.trainer.backward([letters])
        return loss, np.array([parameter.grad for parameter in self.gpt.parameters()])

    def get_ready(self, names: list[str]) -> bool:
        """Compile steps for these names, if each length has its own; none of the steps that this takes is left."""
        if not isinstance(self.trainer, example.Ragged):
            return False
        optimizer, before = self.trainer.optimizer, self.trainer.optimizer.state()
        start = [parameter.data for parameter in optimizer.parameters]
        self.train(names)
        optimizer.load_state(before)
        for parameter, number in zip(optimizer.parameters, start, strict=True):
            parameter.data = number
        return True

    def train(self, names: list[str], at_once: int = 1) -> list[float]:
        return self.trainer.train([names[i : i + at_once] for i in range(0, len(names), at_once)])
