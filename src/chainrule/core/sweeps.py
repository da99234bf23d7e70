"""Forward and reverse sweeps over the nodes between inputs and outputs, as numbers or as one more graph.

    pull (reverse):   adjoint(operand) += adjoint(node) * partial      newest node first
    push (forward):   tangent(node)     = Σ partial * tangent(operand)  oldest node first

The partials of the op table run on any kind of number: a sweep over floats returns numbers, and a sweep over the nodes
themselves records the derivative as a graph, which can be differentiated again, drawn or compiled.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from chainrule.core.graph import is_node, lay_flat, number_of, same_gradients
from chainrule.core.value import ENGINE

if ENGINE == "native":
    from chainrule import _native

BY_HAND = (
    "has a `_backward` written by hand, which gives numbers and no graph to differentiate again: register the op with "
    "chainrule.op, or ask for numbers alone, inside chainrule.no_grad()"
)


class Path:
    """What lies between outputs, which are nodes or numbers, and inputs, which are nodes.

    The nodes have places, oldest first; a sweep is a list with an entry for each.
    """

    def __init__(self, outputs: list[Any], inputs: list[Any]) -> None:
        self.outputs = outputs
        self.inputs = inputs

    @cached_property
    def _flat(self) -> tuple[list[Any], list[Any], list[tuple[int, ...]]]:
        oldest = min((node._serial for node in self.inputs), default=0)  # what is older cannot depend on an input
        return lay_flat(*filter(is_node, self.outputs), since=oldest)

    @cached_property
    def _place(self) -> dict[Any, int]:
        return {node: k for k, node in enumerate(self._flat[0])}

    @cached_property
    def _dependent(self) -> tuple[list[bool], list[int]]:
        """Which places hold inputs or what depends on them; and the places of the latter, oldest first."""
        reached, places = [False] * len(self._place), []
        for node in self.inputs:
            if node in self._place:
                reached[self._place[node]] = True
        for k, operands in enumerate(self._flat[2]):
            for operand in operands:
                if reached[operand]:
                    reached[k] = True
                    places.append(k)
                    break
        return reached, places

    def meets_others(self) -> bool:
        """Whether the outputs depend on leaves that take gradients besides the inputs."""
        outputs = [output for output in self.outputs if is_node(output)]
        if ENGINE == "native" and (answer := _native.meets_others(outputs, self.inputs)) is not None:
            return answer
        nodes, _, operands = self._flat
        return any(
            not (few or reached or node._constant) and node.requires_grad
            for node, few, reached in zip(nodes, operands, self._dependent[0], strict=True)
        )

    def pull(self, seeds: Iterable[tuple[Any, Any]], as_graph: bool) -> list[Any]:
        """The derivatives of Σ seed · output with respect to the inputs."""
        given = [(output, seed) for output, seed in seeds if is_node(output)]
        if not as_graph and (numbers := self._pulled_natively(given)) is not None:
            return numbers
        adjoints: list[Any] = [None] * len(self._place)
        for output, seed in given:
            _add(adjoints, self._place[output], seed)
        numbers = self._numbers(as_graph)
        nodes, rules, operands_of = self._flat
        reached, places = self._dependent
        for k in reversed(places):
            adjoint, node, rule, operands = adjoints[k], nodes[k], rules[k], operands_of[k]
            if adjoint is None:
                continue
            if rule is None:
                for operand, contribution in _called(node, operands, adjoint, as_graph):
                    _add(adjoints, operand, contribution)
                continue
            arguments = [node if as_graph else numbers[k], *[numbers[operand] for operand in operands]]
            for operand, derivative in zip(operands, rule.partials, strict=True):
                if derivative is not None and reached[operand]:
                    _add(adjoints, operand, times(adjoint, derivative(*arguments)))
        return self._at(self.inputs, adjoints)

    def push(self, seeds: Iterable[tuple[Any, Any]], as_graph: bool) -> list[Any]:
        """The changes of the outputs as the inputs change by `seeds`."""
        tangents: list[Any] = [None] * len(self._place)
        for node, seed in seeds:
            if node in self._place:
                tangents[self._place[node]] = seed
        numbers = self._numbers(as_graph)
        nodes, rules, operands_of = self._flat
        for k in self._dependent[1]:
            node, rule, operands = nodes[k], rules[k], operands_of[k]
            if rule is None:
                for operand, slope in _called(node, operands, 1.0, as_graph):
                    if tangents[operand] is not None:
                        _add(tangents, k, times(tangents[operand], slope))
                continue
            arguments = [node if as_graph else numbers[k], *[numbers[operand] for operand in operands]]
            for operand, derivative in zip(operands, rule.partials, strict=True):
                if derivative is not None and tangents[operand] is not None:
                    _add(tangents, k, times(tangents[operand], derivative(*arguments)))
        return self._at(self.outputs, tangents)

    def jacobian(self, count: int, as_graph: bool) -> list[Any]:
        """The derivatives of the first `count` outputs with respect to all inputs, output by output."""
        if len(self.inputs) < count:  # the fewer sweeps
            columns = [self.push([(x, 1.0)], as_graph) for x in self.inputs]
            return [column[k] for k in range(count) for column in columns]
        return [number for output in self.outputs[:count] for number in self.pull([(output, 1.0)], as_graph)]

    def _pulled_natively(self, seeds: list[tuple[Any, Any]]) -> list[Any] | None:
        """The same from the native engine; None if the Python engine is running, or a node needs Python."""
        if ENGINE != "native":
            return None
        results = array("d", bytes(8 * len(self.inputs)))
        outputs, numbers = [output for output, _ in seeds], array("d", [seed for _, seed in seeds])
        return results.tolist() if _native.pull(outputs, numbers, self.inputs, results) else None

    def _numbers(self, as_graph: bool) -> list[Any]:
        """What rules are given for each node: the node itself if they should record one, otherwise its number."""
        return [node if as_graph and not node._constant else number_of(node) for node in self._flat[0]]

    def _at(self, nodes: list[Any], sweep: list[Any]) -> list[Any]:
        places = [self._place.get(node) if is_node(node) else None for node in nodes]
        found = [None if place is None else sweep[place] for place in places]
        return [0.0 if number is None else number for number in found]


def _add(totals: list[Any], place: int, term: Any) -> None:
    total = totals[place]
    totals[place] = term if total is None else total + term


def times(a: Any, b: Any) -> Any:
    """The product, without nodes for factors 1 and -1."""
    if type(b) is float:
        a, b = b, a
    if type(a) is float:
        if a == 1.0:
            return b
        if a == -1.0:
            return -b
    return a * b


def _called(node: Any, places: Sequence[int], adjoint: float, as_graph: bool) -> list[tuple[int, float]]:
    """What a hand-written `_backward` adds to each operand, by place; all gradients are put back as they were."""
    if as_graph:
        raise TypeError(f"{node!r} (`_op` {node._op!r}) {BY_HAND}")
    operands = list(dict.fromkeys(node._operands))
    with same_gradients([node, *operands]):
        for operand in operands:
            operand.grad = 0.0
        node.grad = adjoint
        node._backward()
        return [(place, operand.grad) for place, operand in zip(dict.fromkeys(places), operands, strict=True)]
