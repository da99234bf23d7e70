"""Models that learn from a list of names: `train(names)` takes a step a name, `loss_and_gradient(name)` takes none.

One that compiles something for each length of a name has a `get_ready(names)`, and is given names of all lengths before
its steps are timed. It says whether there was anything to compile, and that counts as compiling.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

import numpy as np

from contest import Runner

LOOPS = {"training": []}
SOME = "emma"


class Training(Runner):
    """Steps from name to name; with `at_once`, from so many names to so many, wherever there are as many left."""

    def __init__(self, names: list[str], solution: Any, at_once: int = 1, **options: Any) -> None:
        self.names, self.at_once = cycle(names), at_once
        self.of_each_length = [*{len(name): name for name in names}.values()]
        self.model = solution.Model(**options)

    def get_ready(self) -> bool:
        return hasattr(self.model, "get_ready") and self.model.get_ready(self.of_each_length)

    def run(self, steps: int) -> None:
        names = list(islice(self.names, steps))
        at_once = {"at_once": self.at_once} if self.at_once > 1 and steps % self.at_once == 0 else {}
        self.losses = self.model.train(names, **at_once)

    def numbers(self) -> tuple[float, np.ndarray]:
        """The last loss, and the gradient for some name."""
        return self.losses[-1], self.model.loss_and_gradient(SOME)[1]
