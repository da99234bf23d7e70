"""The graph of a Value or a Symbol, laid out flat: one row per node, oldest first, operands by index.

Leaves come in four kinds. *Parameters* are those that the gradient is wanted for. *Inputs* are the arguments of a
traced function. *Captured* leaves are the other Values that it reads, including those with `requires_grad=False`.
*Constants* are plain numbers. The graph of a Value has no arguments, and there the leaves that are not parameters are
the inputs. A part of a graph may have leaves of other kinds, for what was computed before (see `passes.stages`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from chainrule.compiler.trace.symbols import Symbol
from chainrule.core.graph import is_hand_written, lay_flat
from chainrule.core.value import Value
from chainrule.ops import Op

KINDS = ("constant", "parameter", "input", "captured")
REMEDY = "register the op with chainrule.op to compile it"


class Graph:
    """Nodes 0, 1, 2, …; `rules[i]` is the row of the op table that made node i, or the kind of a leaf.

    >>> a, b = Value(2.0), Value(3.0)
    >>> print(graph_of(a * b + 1.0, wrt=[a]))
    0  parameter           2.0
    1  input               3.0
    2  *          0 1      6.0
    3  constant            1.0
    4  +          2 3      7.0
    """

    def __init__(self, rules: list[Any], operands: list[tuple[int, ...]], nodes: list[Any]) -> None:
        self.rules, self.operands = rules, operands
        self.nodes = nodes  # the Values, whose data is read at each run; Symbols have none

    def __len__(self) -> int:
        return len(self.rules)

    @cached_property
    def leaf_places(self) -> list[int]:
        """Where the leaves of all kinds are."""
        return self.places_of(str)

    @cached_property
    def flat_operands(self) -> np.ndarray:
        """The operands of all nodes, one after another."""
        return np.fromiter(chain.from_iterable(self.operands), np.int64)

    def places_of(self, kind: type) -> list[int]:
        """Where the nodes are whose rules are of a class."""
        if all(rule.__class__ is not kind for rule in {*self.rules}):  # as mostly: the set takes a tenth of the time
            return []
        return [place for place, rule in enumerate(self.rules) if rule.__class__ is kind]

    @cached_property
    def depths(self) -> np.ndarray:
        """The longest way to each node from a leaf. Leaves have 0, and constants the depth of their first reader."""
        found = [0] * len(self)
        for node, operands in enumerate(self.operands):
            if operands:
                found[node] = depth = 1 + max([found[operand] for operand in operands])
                for operand in operands:
                    if self.rules[operand] == "constant":
                        found[operand] = min(found[operand] or depth, depth)
        return np.array(found)

    @cached_property
    def silent(self) -> set[int]:
        """The computed nodes that no gradient flows to from the last one, because only conditions depend on them.

        Whatever is no op, such as a loop that became one node, may pass gradients on, unless it says that it is silent.
        """
        deaf = {rule for rule in {*self.rules} if isinstance(rule, Op) and None in rule.partials}
        if not deaf:
            return set()
        reached = [not isinstance(rule, Op) and not getattr(rule, "is_silent", False) for rule in self.rules]
        reached[-1] = True
        for node in range(len(self) - 1, -1, -1):
            if reached[node]:
                rule = self.rules[node]
                for k, operand in enumerate(self.operands[node]):
                    if rule not in deaf or rule.partials[k] is not None:
                        reached[operand] = True
        return {node for node, operands in enumerate(self.operands) if operands and not reached[node]}

    def leaves(self, kind: str) -> list[Any]:
        """The nodes that are leaves of one kind."""
        return [self.nodes[place] for place in self.leaf_places if self.rules[place] == kind]

    def reordered(self, order: Sequence[int]) -> Graph:
        """The same nodes in another order, which must have operands before their users."""
        place = [0] * len(order)
        for k, node in enumerate(order):
            place[node] = k
        operands = [tuple([place[operand] for operand in self.operands[node]]) for node in order]
        return Graph([self.rules[node] for node in order], operands, [self.nodes[node] for node in order])

    def verify(self) -> Graph:
        """This graph, if it is well formed: every operand is older than its user, and their number suits the rule."""
        for i, (rule, operands) in enumerate(zip(self.rules, self.operands, strict=True)):
            arity = 0 if isinstance(rule, str) else rule.arity
            if len(operands) != arity:
                raise AssertionError(f"node {i} is {_name(rule)} and must have {arity} operands, has {len(operands)}")
            if any(not 0 <= operand < i for operand in operands):
                raise AssertionError(f"node {i} has the operands {operands}, which must be older nodes")
        return self

    def __str__(self) -> str:
        rows = [
            [str(i), _name(rule), " ".join(map(str, operands)), "" if isinstance(node, Symbol) else f"{node.data:.10}"]
            for i, (rule, operands, node) in enumerate(zip(self.rules, self.operands, self.nodes, strict=True))
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, [*widths[:2], max(widths[2], 7), 0])) for row in rows)


def graph_of(root: Value | Symbol, wrt: Iterable[Value] | None = None) -> Graph:
    """The graph that ends in `root`. Every leaf that is a Value is a parameter, unless `wrt` names the parameters."""
    nodes, rules, operands = lay_flat(root)
    parameters = None if wrt is None else set(wrt)
    others = "input" if isinstance(root, Value) else "captured"
    kinds = [_kind(node, parameters, others) if rule is None else rule for node, rule in zip(nodes, rules, strict=True)]
    return Graph(kinds, operands, nodes)


def with_parameters(graph: Graph, others: Iterable[Value]) -> Graph:
    """The graph with more parameters, which nothing in it uses. All of them come first, in order of creation.

    >>> a, b = Value(2.0), Value(3.0)
    >>> print(with_parameters(graph_of(b * b), [a]))
    0  parameter           2.0
    1  parameter           3.0
    2  *          1 1      9.0
    """
    added = list(others)
    rules, nodes = [*graph.rules, *["parameter"] * len(added)], [*graph.nodes, *added]
    whole = Graph(rules, [*graph.operands, *[()] * len(added)], nodes)
    first = sorted([k for k in whole.leaf_places if rules[k] == "parameter"], key=lambda k: nodes[k]._serial)
    moved = set(first)
    return whole.reordered([*first, *[k for k in range(len(graph)) if k not in moved]])


def _kind(node: Any, parameters: set[Value] | None, others: str) -> str:
    if is_hand_written(node):
        raise TypeError(f"{node!r} has a `_backward` written by hand, which only Python can run: {REMEDY}")
    if isinstance(node, Symbol):
        return "input"
    if node._operands:
        raise TypeError(f"{node!r} (`_op` {node._op!r}) was made by hand, and only Python can compute it: {REMEDY}")
    if node._constant:
        return "constant"
    return "parameter" if node.requires_grad and (parameters is None or node in parameters) else others


def that_may_freeze(graph: Graph, wrt: Iterable[Value] | None) -> list[Value]:
    """The leaves that are parameters, or not, because of their `requires_grad`."""
    chosen = None if wrt is None else set(wrt)
    leaves = [graph.nodes[place] for place in graph.leaf_places if graph.rules[place] != "constant"]
    values = [node for node in leaves if isinstance(node, Value)]
    return values if chosen is None else [value for value in values if value in chosen]


def _name(rule: Any) -> str:
    return str(rule if isinstance(rule, str) else rule.symbol)
