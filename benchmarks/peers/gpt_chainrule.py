"""microgpt through chainrule: the trainers of examples/microgpt.py, from the parameters that all start with."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np

from large_losses import GPT, parameters

EXAMPLE = Path(__file__).parents[2] / "examples" / "microgpt.py"
STEPS = 1000


def load_example() -> Any:
    """The example as a module; its name is that of the benchmark too."""
    spec = importlib.util.spec_from_file_location("example_microgpt", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load_example()


class Trainer:
    """One of the example's ways to train, so many names a step."""

    def __init__(self, mode: str, size: int = 1, **options: Any) -> None:
        self.gpt = example.GPT(random.Random(0))
        start = parameters(GPT.weights(float))
        for parameter, number in zip(self.gpt.parameters(), start, strict=True):
            parameter.data = number
        self.trainer = example.TRAINERS[mode](self.gpt, STEPS, **options)
        self.size = size

    def loss_and_gradient(self, letters: str) -> tuple[float, np.ndarray]:
        """Of one name."""
        self.trainer.optimizer.zero_grad()
        loss = self.trainer.backward([letters])
        return loss, np.array([parameter.grad for parameter in self.gpt.parameters()])

    def train(self, names: list[str]) -> list[float]:
        """Steps of `size` names; the loss of each, before its update."""
        return self.trainer.train([names[i : i + self.size] for i in range(0, len(names), self.size)])
