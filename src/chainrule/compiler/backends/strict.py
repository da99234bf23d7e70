"""Strict programs: a graph computed again node by node.

These are the operations of eager code, by the same library, with sums in the same order, so the numbers agree to the
last bit. But there are no nodes: a `Tape` has the graph as arrays of integers, and a machine has two arrays of numbers,
the nodes' data and their gradients. The native engine runs a tape at a few nanoseconds per node, outside of Python's
lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.compiler.backends.protocol import Pool
from chainrule.compiler.backends.tape import Tape
from chainrule.compiler.trace.graph import Graph
from chainrule.core.bulk import read_data
from chainrule.core.value import Value

AS_ASKED = "as asked"


class StrictCode(Pool["StrictMachine"]):
    """A graph to be computed again node by node, for a reason; what `Code` is for arrays.

    By default, its last node is the result.
    """

    def __init__(
        self,
        graph: Graph,
        gradient: bool,
        reason: str,
        results: Sequence[int] | None = None,
        inputs: Sequence[float] = (),
        since: int = 0,
    ) -> None:
        wanted = [len(graph) - 1] if results is None else results
        super().__init__(StrictMachine(Tape(graph, gradient, wanted, iter(inputs), since), gradient))
        self.whole, self.reason = graph, reason

    def __str__(self) -> str:
        """Why it runs like this, and the nodes."""
        return f"# node by node, {self.reason}\n{self.whole}"

    def stats(self, scalar_nodes: int, seconds: dict[str, float]) -> dict[str, Any]:
        """The figures that `Code.stats` has, and why there are no arrays."""
        size = 2 * self.first.data.nbytes
        stats = {"scalar nodes": scalar_nodes, "array statements": 0, "not affine": 0, "bytes": size}
        return stats | {"seconds": seconds, "node by node": self.reason}


class StrictMachine:
    """Memory for one run of a tape at a time; what a `Machine` does, node by node."""

    keeps_data, as_of = False, -1  # it is given the captured data before every run

    def __init__(self, tape: Tape, gradient: bool) -> None:
        self.tape, self.wants_gradient = tape, gradient
        self.data, self.grads = tape.numbers.copy(), np.zeros_like(tape.numbers)
        self.output = np.empty(len(tape.results))
        self.gradient = np.zeros(len(tape.leaves["parameter"]))

    def twin(self) -> StrictMachine:
        """The same tape with new memory."""
        return StrictMachine(self.tape, self.wants_gradient)

    def load(self, kind: str, numbers: Any) -> None:
        """Set the leaves of one kind, oldest first."""
        self.data[self.tape.leaves[kind]] = numbers

    def load_data(self, kind: str, values: list[Value]) -> None:
        """Set the leaves of one kind to the present data of these Values."""
        numbers = np.empty(len(values))
        read_data(values, numbers)
        self.load(kind, numbers)

    def run(self) -> None:
        """Compute every node, and then the gradients."""
        self.start()
        self.forward()
        if self.wants_gradient:
            self.backward(1.0)
            self._finish()

    def run_many(self, rows: np.ndarray) -> np.ndarray:
        """The results, with the inputs set to each of `rows` in turn: one row per run."""
        outputs = np.empty((len(rows), len(self.output)))
        self.start()
        for row, output in zip(rows, outputs, strict=True):
            self.load("input", row)
            self.forward()
            output[:] = self.output
        return outputs

    def total(self, rows: np.ndarray, seed: float) -> float:
        """The sum of the results over all rows, first to last; `gradient` becomes the gradient of `seed` times the sum.

        Gradients are added as `backward()` on one graph of all rows would: newest first, so from the last row on.
        """
        values = []
        self.start()
        for row in rows[::-1]:
            self.load("input", row)
            values.append(self.forward())
            if self.wants_gradient:
                self.backward(seed)
        self._finish()
        total = 0.0
        for value in reversed(values):
            total += value
        return total

    def start(self) -> None:
        """Compute what is the same for all examples."""
        self.tape.forward(self.data, 0, self.tape.surroundings)
        self.grads[:] = 0.0

    def forward(self) -> float:
        """Compute an example; its first result."""
        self.tape.forward(self.data, self.tape.surroundings, self.tape.size)
        self.data.take(self.tape.results, out=self.output, mode="clip")  # which is faster than to check them
        return float(self.output[0])

    def backward(self, seed: float) -> None:
        """Add the gradient of `seed` times the result to the surroundings."""
        self.grads[self.tape.results[0]] += seed
        self.tape.backward(self.data, self.grads, self.tape.surroundings, self.tape.size)

    def _finish(self) -> None:
        """The surroundings' part of the backward pass: the last, because they are older than the function's nodes."""
        self.tape.backward(self.data, self.grads, 0, self.tape.surroundings)
        self.grads.take(self.tape.leaves["parameter"], out=self.gradient, mode="clip")
