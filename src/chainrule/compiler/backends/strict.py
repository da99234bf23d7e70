"""Strict programs: a graph computed again node by node, in the order in which its nodes were made.

These are the operations of eager code, in the same order and by the same library, so the numbers agree to the last bit.
But there are no nodes: a `Tape` has the graph as arrays of integers, and a machine has two arrays of numbers, the
nodes' data and their gradients. The native engine runs a tape at a few nanoseconds per node, outside of Python's lock.
What it does not know, rules that the user wrote, is computed in between, in Python. The Python engine has no other way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np

from chainrule.compiler.backends.protocol import Pool
from chainrule.compiler.trace.graph import KINDS, Graph
from chainrule.core.bulk import read_data
from chainrule.core.graph import number_of
from chainrule.core.value import ENGINE, Value
from chainrule.ops import TABLE, as_float

if ENGINE == "native":
    from chainrule._native import BUILTIN_OPS, tape_backward, tape_forward
else:
    BUILTIN_OPS = 0


CODES = {row: row.code for row in TABLE.values() if row.code < BUILTIN_OPS}  # other rules are for Python
AS_ASKED = "as asked"


class Tape:
    """A graph as arrays. `results` are the nodes to compute, `inputs` initial numbers for the inputs.

    Nodes made before serial number `since` are the *surroundings* of a function: eager code computes them once per
    batch, and the function's own nodes, which come after them, once per example.
    """

    def __init__(
        self, graph: Graph, gradient: bool, results: Sequence[int], inputs: Iterator[float], since: int
    ) -> None:
        self.graph, self.results = graph, np.array(results)
        self.surroundings = bisect_left(graph.nodes, since, key=lambda node: node._serial)
        kinds = [rule if rule in KINDS else None for rule in graph.rules]
        self.leaves = {kind: np.flatnonzero([found == kind for found in kinds]) for kind in KINDS}
        self.numbers = np.array([_number(rule, node, inputs) for rule, node in zip(kinds, graph.nodes, strict=True)])
        rules = zip(kinds, graph.rules, strict=True)
        taken = self._taken() if gradient else [0] * len(graph)
        self.arrays = (
            np.array([-1 if kind else CODES.get(rule, BUILTIN_OPS) for kind, rule in rules], np.int32),
            np.array([0, *accumulate(map(len, graph.operands))], np.int32),  # where the operands of each node start
            np.fromiter(chain.from_iterable(graph.operands), np.int32),
            np.array([bits & 0xFF for bits in taken], np.uint8),
        )
        self.in_python = np.flatnonzero(self.arrays[0] >= BUILTIN_OPS).tolist()
        self.taken_in_python = {place: taken[place] for place in self.in_python}

    def _taken(self) -> list[int]:
        """For each node, bits of the operands that it passes a gradient to, from the result on to the parameters."""
        leads = [rule == "parameter" for rule in self.graph.rules]
        taken = []
        for place, (rule, operands) in enumerate(zip(self.graph.rules, self.graph.operands, strict=True)):
            bits = 0
            for k, operand in enumerate(operands):
                if leads[operand] and rule.partials[k]:
                    bits |= 1 << k
                    leads[place] = True
            taken.append(bits)
        reached = [False] * len(taken)
        for place in self.results.tolist():
            reached[place] = True
        for place in reversed(range(len(taken))):
            if reached[place]:
                for k, operand in enumerate(self.graph.operands[place]):
                    reached[operand] |= bool(taken[place] >> k & 1)
            else:
                taken[place] = 0
        return taken

    def reached_surroundings(self) -> list[int]:
        """The surroundings that the function's own nodes pass gradients to, and results that are among them."""
        bits = [self.taken_in_python.get(place, int(taken)) for place, taken in enumerate(self.arrays[3])]
        passed = [
            operand
            for place in range(self.surroundings, len(bits))
            for k, operand in enumerate(self.graph.operands[place])
            if bits[place] >> k & 1
        ]
        return [place for place in {*passed, *self.results.tolist()} if place < self.surroundings]

    def forward(self, data: np.ndarray, start: int, stop: int) -> None:
        """Compute the nodes of a range from the numbers of older ones."""
        numbers: Any = data.data  # gives floats
        for place in self._python_in(start, stop):
            if start < place and BUILTIN_OPS:
                tape_forward(self.arrays, data, start, place)
            given = [numbers[operand] for operand in self.graph.operands[place]]
            numbers[place] = as_float(self.graph.rules[place].forward(*given), "the op's result")
            start = place + 1
        if start < stop and BUILTIN_OPS:
            tape_forward(self.arrays, data, start, stop)

    def backward(self, data: np.ndarray, grads: np.ndarray, start: int, stop: int) -> None:
        """Pass the gradients of a range on, newest node first. They are 0 afterwards, except for those of leaves."""
        numbers: Any = data.data
        slopes: Any = grads.data
        for place in reversed(self._python_in(start, stop)):
            if place + 1 < stop and BUILTIN_OPS:
                tape_backward(self.arrays, data, grads, place + 1, stop)
            operands, partials = self.graph.operands[place], self.graph.rules[place].partials
            given = [numbers[operand] for operand in operands]
            grad, slopes[place], stop = slopes[place], 0.0, place
            for k, operand in enumerate(operands):
                if self.taken_in_python[place] >> k & 1:
                    slopes[operand] += grad * as_float(partials[k](numbers[place], *given), "the op's partial")
        if start < stop and BUILTIN_OPS:
            tape_backward(self.arrays, data, grads, start, stop)

    def _python_in(self, start: int, stop: int) -> list[int]:
        return self.in_python[bisect_left(self.in_python, start) : bisect_left(self.in_python, stop)]


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
        self.whole, self.reason = graph, reason  # the graph is what `describe` prints

    def stats(self, scalar_nodes: int, seconds: dict[str, float]) -> dict[str, Any]:
        """The figures that `Code.stats` has, and why there are no arrays."""
        size = 2 * self._first.data.nbytes
        stats = {"scalar nodes": scalar_nodes, "array statements": 0, "not affine": 0, "bytes": size}
        return stats | {"seconds": seconds, "node by node": self.reason}


class StrictMachine:
    """Memory for one run of a tape at a time; what a `Machine` does, node by node."""

    keeps_data, as_of = False, -1  # it is given the captured data before every run

    def __init__(self, tape: Tape, gradient: bool) -> None:
        self.tape, self.wants_gradient = tape, gradient
        self.data, self.grads = tape.numbers.copy(), np.zeros(len(tape.numbers))
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
        self.tape.forward(self.data, self.tape.surroundings, len(self.data))
        self.output[:] = self.data[self.tape.results]
        return float(self.output[0])

    def backward(self, seed: float) -> None:
        """Add the gradient of `seed` times the result to the surroundings."""
        self.grads[self.tape.results[0]] += seed
        self.tape.backward(self.data, self.grads, self.tape.surroundings, len(self.data))

    def _finish(self) -> None:
        """The surroundings' part of the backward pass: the last, because they are older than the function's nodes."""
        self.tape.backward(self.data, self.grads, 0, self.tape.surroundings)
        self.gradient[:] = self.grads[self.tape.leaves["parameter"]]


def _number(kind: str | None, node: Any, inputs: Iterator[float]) -> float:
    """The initial number of a leaf; 0 for what is computed."""
    if kind == "input" and (number := next(inputs, None)) is not None:
        return number
    return number_of(node) if kind else 0.0
