"""A strict batch whose examples take different paths: one tape for each, and gradients added as eager code adds them.

`backward()` on the sum of all results goes through the examples from the last to the first, and then through their
*surroundings*: parameters, and what was computed from them outside of the function. Their gradients are those of all
paths together, so they go from one tape to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.compiler.backends.strict import StrictMachine
from chainrule.compiler.backends.tape import Tape
from chainrule.compiler.trace.graph import Graph


def total_along_paths(
    machines: Sequence[StrictMachine], rows: Sequence[np.ndarray], order: Sequence[tuple[int, int]], seed: float
) -> tuple[float, dict[Any, float]]:
    """The sum of the results over all examples, and the gradient of `seed` times it, by parameter.

    `rows` has a matrix of inputs for each machine; `order` says for each example which machine it takes, and which row.
    """
    shared = _Surroundings([machine.tape for machine in machines])
    for machine in machines:
        machine.start()
    outside = [machine.tape.results[0] < machine.tape.surroundings for machine in machines]
    for k, _ in order:
        if outside[k]:  # the sum itself passes the gradient on to it, before the examples do
            shared.grads[shared.places[k][machines[k].tape.results[0]]] += seed
    values = []
    for k, row in reversed(order):
        machine, places = machines[k], shared.places[k]
        machine.grads[: len(places)] = shared.grads[places]
        machine.load("input", rows[k][row])
        values.append(machine.forward())
        if machine.wants_gradient and not outside[k]:
            machine.backward(seed)
            shared.grads[places] = machine.grads[: len(places)]
    total = 0.0
    for value in reversed(values):
        total += value
    gradient: dict[Any, float] = {}
    for machine, places in zip(machines, shared.places, strict=True):
        shared.data[places] = machine.data[: len(places)]
        late = [place for place in machine.tape.leaves["parameter"].tolist() if place >= len(places)]
        gradient |= {machine.tape.graph.nodes[place]: float(machine.grads[place]) for place in late}
    return total, gradient | shared.gradient()


class _Surroundings:
    """The surroundings of several tapes as one: their numbers, their gradients, and where each tape's lie in it."""

    def __init__(self, tapes: Sequence[Tape]) -> None:
        rules, operands, reached = dict[Any, Any](), dict[Any, Any](), set[Any]()
        for tape in tapes:
            nodes = tape.graph.nodes
            for place in range(tape.surroundings):
                rules[nodes[place]] = tape.graph.rules[place]
                operands[nodes[place]] = [nodes[operand] for operand in tape.graph.operands[place]]
            reached |= {nodes[place] for place in tape.reached_surroundings()}
        every = sorted(rules, key=lambda node: node._serial)
        place_of = {node: k for k, node in enumerate(every)}
        links = [tuple([place_of[operand] for operand in operands[node]]) for node in every]
        graph = Graph([rules[node] for node in every], links, every)
        self.tape = Tape(graph, True, sorted(place_of[node] for node in reached), iter(()), 0)
        place_of = {node: k for k, node in enumerate(self.tape.graph.nodes)}
        self.places = [np.array([place_of[n] for n in t.graph.nodes[: t.surroundings]], np.int64) for t in tapes]
        self.data, self.grads = self.tape.numbers.copy(), np.zeros_like(self.tape.numbers)

    def gradient(self) -> dict[Any, float]:
        """The gradient by parameter, after the backward pass through all that is shared."""
        self.tape.backward(self.data, self.grads, 0, self.tape.size)
        return {self.tape.graph.nodes[place]: float(self.grads[place]) for place in self.tape.leaves["parameter"]}
