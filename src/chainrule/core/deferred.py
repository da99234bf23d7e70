"""Derivatives put off: in a trace that will differentiate arrays, a sweep is one node, and its results are parts of it.

The compiler lifts what comes before such a node to an array program, and differentiates that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chainrule.core.graph import is_node
from chainrule.core.recording import Tracer, current_tracer
from chainrule.core.sweeps import Path
from chainrule.ops import Op

PULL, PUSH, JACOBIAN = "pull", "push", "jacobian"
STAND_IN = Op("given", lambda x: x, (lambda out, x: 1.0,))  # an input of a transformed function


def _none_yet(first: Any) -> Any:
    raise NotImplementedError("derivatives that were put off have no numbers of their own: expand the graph first")


class Derivatives(Op):
    """The op of a node that stands for a sweep; its operands are the outputs, the inputs and the seeds.

    A pull has a seed for each output, and a part for each input: its derivative. A push has a seed for each input, and
    a part for each output. A Jacobian has no seeds, and parts for all pairs, output by output.
    """

    def __init__(self, mode: str, outputs: int, inputs: int) -> None:
        seeds, parts = {PULL: (outputs, inputs), PUSH: (inputs, outputs), JACOBIAN: (0, outputs * inputs)}[mode]
        super().__init__(mode, _none_yet, (None,) * (outputs + inputs + seeds))
        self.arity, self.outputs, self.inputs, self.parts = len(self.partials), outputs, inputs, parts


class Part(Op):
    """The op of one of the derivatives that a node of op `Derivatives` stands for."""

    def __init__(self, place: int) -> None:
        super().__init__("part", _none_yet, (None,), symbol=f"part {place} of")
        self.place = place


def path_between(outputs: list[Any], inputs: list[Any]) -> Path:
    """What sweeps over the nodes between inputs and outputs, or puts it off."""
    tracer = current_tracer()
    return _Deferred(outputs, inputs, tracer) if tracer and tracer.defers else Path(outputs, inputs)


def input_like(node: Any) -> Any:
    """A fresh node with the same number, to differentiate with respect to it and not to other uses of the number."""
    tracer = current_tracer()
    return tracer.apply(STAND_IN, (node,)) if tracer and tracer.defers else node * 1.0


class _Deferred(Path):
    """A path in a trace, where derivatives are always nodes."""

    def __init__(self, outputs: list[Any], inputs: list[Any], tracer: Tracer) -> None:
        super().__init__(outputs, inputs)
        self.tracer = tracer

    def pull(self, seeds: Iterable[tuple[Any, Any]], as_graph: bool) -> list[Any]:
        given = [(output, seed) for output, seed in seeds if is_node(output)]
        return self._parts(PULL, [output for output, _ in given], self.inputs, [seed for _, seed in given])

    def push(self, seeds: Iterable[tuple[Any, Any]], as_graph: bool) -> list[Any]:
        given = list(seeds)
        nodes = list(filter(is_node, self.outputs))
        parts = iter(self._parts(PUSH, nodes, [node for node, _ in given], [seed for _, seed in given]))
        return [next(parts) if is_node(output) else 0.0 for output in self.outputs]

    def jacobian(self, count: int, as_graph: bool) -> list[Any]:
        outputs = self.outputs[:count]
        parts = iter(self._parts(JACOBIAN, list(filter(is_node, outputs)), self.inputs, []))
        return [next(parts) if is_node(output) else 0.0 for output in outputs for _ in self.inputs]

    def _parts(self, mode: str, outputs: list[Any], inputs: list[Any], seeds: list[Any]) -> list[Any]:
        op = Derivatives(mode, len(outputs), len(inputs))
        if not (outputs and inputs):
            return [0.0] * op.parts
        sweep = self.tracer.apply(op, (*outputs, *inputs, *seeds))
        return [self.tracer.apply(Part(place), (sweep,)) for place in range(op.parts)]
