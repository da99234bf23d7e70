"""The graph of a Value or a Symbol, laid flat: one row a node, oldest first, operands by index.

Leaves come in four kinds. *Parameters* are those that the gradient is wanted for, *inputs* are the arguments of a
traced function, *captured* are the other Values that it reads (frozen ones among them, whose `requires_grad` is False),
and *constants* are plain numbers that met a Value. In the graph of a Value, which has no arguments, the leaves that are
not parameters are the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chainrule.compiler.trace.symbols import Constant, Symbol
from chainrule.core.graph import is_hand_written, lay_flat
from chainrule.core.value import Value

Node = Value | Symbol | Constant

KINDS = ("constant", "parameter", "input", "captured")


REMEDY = "register the op with chainrule.op to compile it"


class Graph:
    """Nodes 0, 1, 2, …; `rules[i]` is the row of the op table that made node i, or the kind of leaf it is.

    >>> a, b = Value(2.0), Value(3.0)
    >>> print(graph_of(a * b + 1.0, wrt=[a]))
    0  parameter           2.0
    1  input               3.0
    2  *          0 1      6.0
    3  constant            1.0
    4  +          2 3      7.0
    """

    def __init__(self, rules: list[Any], operands: list[tuple[int, ...]], nodes: list[Any]) -> None:
        self.rules = rules
        self.operands = operands
        self.nodes = nodes  # the Values themselves, whose data is read at each run; Symbols have none

    def __len__(self) -> int:
        return len(self.rules)

    def leaves(self, kind: str) -> list[int]:
        """The indices of the leaves of one kind."""
        return [i for i, rule in enumerate(self.rules) if rule == kind]

    @property
    def parameters(self) -> list[int]:
        """The indices of the parameters."""
        return self.leaves("parameter")

    def verify(self) -> Graph:
        """This graph, if it is well formed: every operand older than its user, as many as its rule takes."""
        for i, (rule, operands) in enumerate(zip(self.rules, self.operands, strict=True)):
            arity = 0 if rule in KINDS else rule.arity
            if len(operands) != arity:
                raise AssertionError(f"node {i} is {_name(rule)} and must have {arity} operands, has {len(operands)}")
            if any(not 0 <= operand < i for operand in operands):
                raise AssertionError(f"node {i} has the operands {operands}, which must be older nodes")
        return self

    def __str__(self) -> str:
        rows = [
            [str(i), _name(rule), " ".join(map(str, operands)), _data(node)]
            for i, (rule, operands, node) in enumerate(zip(self.rules, self.operands, self.nodes, strict=True))
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, [*widths[:2], max(widths[2], 7), 0])) for row in rows)


def graph_of(root: Value | Symbol, wrt: Iterable[Value] | None = None) -> Graph:
    """The graph below `root`; all Values that are leaves are parameters unless `wrt` says which."""
    nodes, rules, operands = lay_flat(root)
    parameters = None if wrt is None else set(wrt)
    for i, rule in enumerate(rules):
        if rule is None:
            rules[i] = _kind(nodes[i], parameters, "input" if isinstance(root, Value) else "captured")
    return Graph(rules, operands, nodes)


def _kind(node: Any, parameters: set[Value] | None, others: str) -> str:
    if is_hand_written(node):
        raise TypeError(f"{node!r} has a `_backward` written by hand, and only Python knows it: {REMEDY}")
    if isinstance(node, Symbol):
        return "input"
    if node._operands:
        raise TypeError(f"{node!r} (`_op` {node._op!r}) was made by hand, and only Python knows how: {REMEDY}")
    if node._constant:
        return "constant"
    wanted = node.requires_grad and (parameters is None or node in parameters)
    return "parameter" if wanted else others


def _name(rule: Any) -> str:
    return str(rule if rule in KINDS else rule.symbol)


def _data(node: Any) -> str:
    return "" if isinstance(node, Symbol) else f"{node.data:.10}"
