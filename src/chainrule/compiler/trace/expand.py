"""Derivatives in a graph as nodes like all others: the way that is always open.

A node of op `Derivatives` becomes the nodes of its sweep, those that eager code records for a derivative that is to be
differentiated again. `passes.stages` makes better programs, where it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chainrule import ops
from chainrule.compiler.trace.graph import KINDS, Graph
from chainrule.compiler.trace.symbols import Constant
from chainrule.core.deferred import JACOBIAN, PULL, STAND_IN, Derivatives, Part
from chainrule.core.sweeps import times


def has_derivatives(graph: Graph) -> bool:
    """Whether some nodes stand for derivatives."""
    return any(isinstance(rule, Derivatives) for rule in {*graph.rules})


def expanded(graph: Graph) -> Graph:
    """The graph with a sweep's nodes in place of each node that stands for it, and without stand-ins.

    It has the same leaves.
    """
    if STAND_IN not in graph.rules and not has_derivatives(graph):
        return graph
    expansion = _Expansion()
    found: list[Any] = []  # for each node of the graph: a node of the new one, a number, or a list of them
    for rule, operands, node in zip(graph.rules, graph.operands, graph.nodes, strict=True):
        expansion.node = node
        given = [found[operand] for operand in operands]
        if isinstance(rule, Derivatives):
            found.append(_derivatives(rule, expansion, given))
        elif isinstance(rule, Part):
            found.append(given[0][rule.place])
        elif rule in KINDS:
            found.append(expansion.leaf(rule, node))
        else:
            found.append(expansion.add(rule, given))
    return expansion.graph()


class _Node(ops.Carrier):
    """A node of the new graph, on which the rules of the op table record others."""

    def __init__(self, expansion: _Expansion, place: int) -> None:
        self.expansion, self.place = expansion, place

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> _Node:
        return self.expansion.add(op, operands)


class _Expansion:
    """A graph that grows."""

    def __init__(self) -> None:
        self.rules: list[Any] = []
        self.operands: list[tuple[int, ...]] = []
        self.nodes: list[Any] = []
        self.node: Any = None  # of the old graph, in whose place nodes are added

    def leaf(self, kind: str, node: Any) -> _Node:
        return self._row(kind, (), node)

    def add(self, rule: ops.Op, operands: Sequence[Any]) -> _Node:
        nodes = [o if isinstance(o, _Node) else self.leaf("constant", Constant(o)) for o in operands]
        return self._row(rule, tuple([node.place for node in nodes]), self.node)

    def _row(self, rule: Any, operands: tuple[int, ...], node: Any) -> _Node:
        self.rules.append(rule)
        self.operands.append(operands)
        self.nodes.append(node)
        return _Node(self, len(self.rules) - 1)

    def seen(self, place: int) -> Any:
        """A node as rules see it: a constant as its number."""
        return self.nodes[place].data if self.rules[place] == "constant" else _Node(self, place)

    def dependent(self, inputs: Sequence[_Node], stop: int) -> set[int]:
        """The places before `stop` of what depends on the inputs, and of these themselves."""
        reached = {node.place for node in inputs}
        for place in range(min(reached), stop):
            if not reached.isdisjoint(self.operands[place]):
                reached.add(place)
        return reached

    def slopes(self, place: int, reached: set[int]) -> list[tuple[int, Any]]:
        """The operands that a node depends on an input through, each with the derivative with respect to it."""
        rule, operands = self.rules[place], self.operands[place]
        seen = [self.seen(place), *map(self.seen, operands)] if operands else []
        pairs = zip(operands, rule.partials, strict=True) if operands else ()
        return [(operand, partial(*seen)) for operand, partial in pairs if partial is not None and operand in reached]

    def pull(self, outputs: Sequence[_Node], seeds: Sequence[Any], inputs: Sequence[_Node]) -> list[Any]:
        adjoints: dict[int, Any] = {}
        for output, seed in zip(outputs, seeds, strict=True):
            _add(adjoints, output.place, seed)
        reached = self.dependent(inputs, max(adjoints) + 1)
        for place in sorted(reached, reverse=True):
            if place in adjoints:
                for operand, slope in self.slopes(place, reached):
                    _add(adjoints, operand, times(adjoints[place], slope))
        return [adjoints.get(node.place, 0.0) for node in inputs]

    def push(self, outputs: Sequence[_Node], seeds: Sequence[Any], inputs: Sequence[_Node]) -> list[Any]:
        tangents: dict[int, Any] = {node.place: seed for node, seed in zip(inputs, seeds, strict=True)}
        reached = self.dependent(inputs, max(node.place for node in outputs) + 1)
        for place in sorted(reached):
            for operand, slope in self.slopes(place, reached):
                if operand in tangents:
                    _add(tangents, place, times(tangents[operand], slope))
        return [tangents.get(node.place, 0.0) for node in outputs]

    def graph(self) -> Graph:
        """The graph of the last node; leaves that are no constants stay, whether they are read or not."""
        source = list(range(len(self.rules)))
        for place, rule in enumerate(self.rules):
            if rule is STAND_IN:  # it has served
                source[place] = source[self.operands[place][0]]
        operands = [tuple([source[operand] for operand in each]) for each in self.operands]
        kept = sorted(self._read(operands))
        number = {place: k for k, place in enumerate(kept)}
        return Graph(
            [self.rules[place] for place in kept],
            [tuple([number[operand] for operand in operands[place]]) for place in kept],
            [self.nodes[place] for place in kept],
        )

    def _read(self, operands: Sequence[tuple[int, ...]]) -> set[int]:
        """The last node, what it was made of, and all leaves that are no constants."""
        found = {place for place, rule in enumerate(self.rules) if rule in KINDS and rule != "constant"}
        found.add(len(operands) - 1)
        for place in reversed(range(len(operands))):
            if place in found:
                found.update(operands[place])
        return found


def _derivatives(rule: Derivatives, expansion: _Expansion, given: list[Any]) -> list[Any]:
    """The parts of a sweep, from what its operands have become: nodes, or numbers where a derivative is one."""
    given = [node if isinstance(node, _Node) else expansion.leaf("constant", Constant(node)) for node in given]
    outputs, inputs = given[: rule.outputs], given[rule.outputs : rule.outputs + rule.inputs]
    seeds = [expansion.seen(node.place) for node in given[rule.outputs + rule.inputs :]]
    if rule.name != JACOBIAN:
        return (expansion.pull if rule.name == PULL else expansion.push)(outputs, seeds, inputs)
    if rule.inputs < rule.outputs:
        columns = [expansion.push(outputs, [1.0], [node]) for node in inputs]
        return [column[k] for k in range(rule.outputs) for column in columns]
    return [part for output in outputs for part in expansion.pull([output], [1.0], inputs)]


def _add(totals: dict[int, Any], place: int, term: Any) -> None:
    totals[place] = totals[place] + term if place in totals else term
