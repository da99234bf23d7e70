"""Strict programs: the recorded nodes themselves, computed again in the order they were made.

The same operations in the same order by the same library as eager code, and so the same numbers to the last bit;
without Python between the nodes, which is where eager code spends its time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule._value import Value
from chainrule.compiler.bulk import read_data, replay, write_data
from chainrule.compiler.graph import KINDS, Graph


class StrictMachine:
    """A graph with nodes of its own to run in; what a `Machine` does, node by node. The last node is the result."""

    def __init__(self, graph: Graph, gradient: bool) -> None:
        self.graph = graph
        self.wants_gradient = gradient
        self.leaves: dict[str, list[Value]] = {kind: [] for kind in KINDS}
        made: list[Any] = []
        for rule, operands, node in zip(graph.rules, graph.operands, graph.nodes, strict=True):
            if rule == "constant":
                made.append(node.data)  # becomes a constant where it meets a Value
            elif rule in KINDS:
                made.append(Value(getattr(node, "data", 0.0)))
                self.leaves[rule].append(made[-1])
            else:
                made.append(Value._apply(rule, tuple(made[k] for k in operands)))
        self.nodes = [node for node in made if isinstance(node, Value)]
        self.output = np.empty(1)
        self.gradient = np.zeros(len(self.leaves["parameter"]) + 1)

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
        replay(self.nodes)
        read_data(self.nodes[-1:], self.output)
        if self.wants_gradient:
            parameters = self.leaves["parameter"]
            for parameter in parameters:
                parameter.grad = 0.0
            self.nodes[-1].backward()
            self.gradient[:-1] = [parameter.grad for parameter in parameters]

    @property
    def found(self) -> Graph:
        """The graph, for people to read."""
        return self.graph

    def stats(self, scalar_nodes: int, seconds: dict[str, float]) -> dict[str, Any]:
        """There are no arrays here."""
        return {"scalar nodes": scalar_nodes, "array statements": 0, "not affine": 0, "bytes": 0, "seconds": seconds}
