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


class Strict:
    """A graph, with nodes of its own to run in. The last node is the result."""

    def __init__(self, graph: Graph) -> None:
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

    def load(self, kind: str, numbers: Any) -> None:
        """Set the leaves of one kind, oldest first."""
        write_data(self.leaves[kind], np.ascontiguousarray(numbers, dtype=np.float64))

    def run(self, gradient: bool) -> tuple[float, np.ndarray]:
        """The result, and its derivatives by the parameters."""
        replay(self.nodes)
        result = np.empty(1)
        read_data(self.nodes[-1:], result)
        parameters = self.leaves["parameter"]
        if not gradient:
            return float(result[0]), np.zeros(0)
        for parameter in parameters:
            parameter.grad = 0.0
        self.nodes[-1].backward()
        return float(result[0]), np.array([parameter.grad for parameter in parameters])
