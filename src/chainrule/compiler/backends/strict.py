"""Strict programs: the recorded nodes themselves, computed again in the order they were made.

These are the operations of eager code, in the same order and by the same library, so the numbers agree to the last bit.
There is no Python between the nodes, which is where eager code spends its time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from chainrule.compiler.backends.protocol import Pool
from chainrule.compiler.trace.graph import KINDS, Graph
from chainrule.core.bulk import read_data, read_grad, replay, write_data, write_grad
from chainrule.core.graph import number_of, receivers
from chainrule.core.recording import recording
from chainrule.core.value import Value
from chainrule.core.walk import below


class StrictCode(Pool["StrictMachine"]):
    """A graph to be computed again node by node; what `Code` is for arrays.

    `results` are the nodes to compute (default: the last), `inputs` initial numbers for the inputs. Nodes made before
    serial number `since` are the *surroundings* of a function: eager code computes them once per batch, and the
    function's own nodes once per example.
    """

    def __init__(
        self,
        graph: Graph,
        gradient: bool,
        results: Sequence[int] | None = None,
        inputs: Sequence[float] = (),
        since: int = 0,
    ) -> None:
        super().__init__(StrictMachine(graph, gradient, results, inputs, since))
        self.whole = graph  # what `describe` prints

    def stats(self, scalar_nodes: int, seconds: dict[str, float]) -> dict[str, Any]:
        """The figures that `Code.stats` has; there are no arrays here."""
        return {"scalar nodes": scalar_nodes, "array statements": 0, "not affine": 0, "bytes": 0, "seconds": seconds}


class StrictMachine:
    """The nodes of a graph made once more, to run in; what a `Machine` does, node by node."""

    def __init__(
        self, graph: Graph, gradient: bool, results: Sequence[int] | None, inputs: Sequence[float], since: int
    ) -> None:
        self._recipe = graph, gradient, results, inputs, since
        self.graph = graph
        self.wants_gradient = gradient
        self.leaves: dict[str, list[Value]] = {kind: [] for kind in KINDS}
        self.surroundings: list[Value] = []
        self.nodes: list[Value] = []
        self._stand_ins: dict[int, Value] = {}  # by place: leaves that the function sees in place of its surroundings
        self._made: list[Any] = []
        with recording():
            self._make_nodes(iter(inputs), since)
        wanted = [len(graph) - 1] if results is None else results
        self.results = [Value(node) if type(node) is float else node for node in (self._seen(k, since) for k in wanted)]
        self._passing = self._reached_surroundings() if gradient and self.surroundings else []
        self.output = np.empty(len(self.results))
        self.gradient = np.zeros(len(self.leaves["parameter"]))
        self._zeros = np.zeros_like(self.gradient)

    def twin(self) -> StrictMachine:
        return StrictMachine(*self._recipe)

    def load(self, kind: str, numbers: Any) -> None:
        """Set the leaves of one kind, oldest first."""
        write_data(self.leaves[kind], np.ascontiguousarray(numbers, dtype=np.float64))

    def load_data(self, kind: str, values: list[Value]) -> None:
        """Set the leaves of one kind to the present data of these Values."""
        numbers = np.empty(len(values))
        read_data(values, numbers)
        self.load(kind, numbers)

    def run(self) -> None:
        """Compute every node, and then the gradients."""
        self._start()
        self._forward()
        if self.wants_gradient:
            self._backward(1.0)
            self._finish()

    def run_many(self, rows: np.ndarray) -> np.ndarray:
        """The results, with the inputs set to each of `rows` in turn: one row per run."""
        outputs = np.empty((len(rows), len(self.results)))
        self._start()
        for row, output in zip(rows, outputs, strict=True):
            self.load("input", row)
            self._forward()
            output[:] = self.output
        return outputs

    def total(self, rows: np.ndarray, seed: float) -> float:
        """The sum of the results over all rows, first to last; `gradient` becomes the gradient of `seed` times the sum.

        Gradients are added as `backward()` on one graph of all rows would: newest first, so from the last row on.
        """
        values = []
        self._start()
        for row in rows[::-1]:
            self.load("input", row)
            self._forward()
            values.append(float(self.output[0]))
            if self.wants_gradient:
                self._backward(seed)
        self._finish()
        return reduce(add, reversed(values), 0.0)  # unlike `sum`, which rounds in a way of its own since Python 3.12

    # Details.

    def _make_nodes(self, inputs: Iterator[float], since: int) -> None:
        graph = self.graph
        for rule, operands, node in zip(graph.rules, graph.operands, graph.nodes, strict=True):
            if rule == "constant":
                made: Any = number_of(node)  # becomes a constant where it meets a Value
            elif rule in KINDS:
                number = next(inputs, None) if rule == "input" else None
                made = Value(number_of(node) if number is None else number)
                self.leaves[rule].append(made)
            else:
                is_older = node._serial < since
                seen = [self._made[k] if is_older else self._seen(k, since) for k in operands]
                made = Value._apply(rule, tuple(seen))
                (self.surroundings if is_older else self.nodes).append(made)
            self._made.append(made)

    def _seen(self, place: int, since: int) -> Any:
        """The node at `place` as the function sees it: computed surroundings are leaves to it."""
        node = self.graph.nodes[place]
        if not self.graph.operands[place] or node._serial >= since:
            return self._made[place]
        return self._stand_ins.setdefault(place, Value(number_of(self._made[place])))

    def _reached_surroundings(self) -> list[Value]:
        """The surroundings that a gradient reaches, newest first."""
        reached = set(below(*self.results, operands_of=receivers))
        starts = [self._made[place] for place, stand_in in self._stand_ins.items() if stand_in in reached]
        passing = set(below(*starts, operands_of=receivers))
        return [node for node in reversed(self.surroundings) if node in passing]

    def _start(self) -> None:
        replay(self.surroundings)
        for place, stand_in in self._stand_ins.items():
            stand_in.data, stand_in.grad = number_of(self._made[place]), 0.0
        write_grad(self.leaves["parameter"], self._zeros)

    def _forward(self) -> None:
        replay(self.nodes)
        read_data(self.results, self.output)

    def _backward(self, seed: float) -> None:
        (result,) = self.results
        if result._operands:
            result.backward(seed)
        else:
            result.grad += seed

    def _finish(self) -> None:
        """The surroundings' part of the backward pass: the last, because they are older than the function's nodes."""
        for node in self.surroundings:
            node.grad = 0.0
        for place, stand_in in self._stand_ins.items():
            self._made[place].grad = stand_in.grad
        for node in self._passing:
            node._push()
        read_grad(self.leaves["parameter"], self.gradient)
