"""The graph of a learner's own class as a WebAssembly module.

A class in the style of micrograd says of each node what it was made of (`_prev`) and how (`_op`); `graphs` finds the
order of the operands. Whether an op really is the one that its sign names is seen from the numbers: it must give the
node's `data`. And whether the learner's closures do what the module will do is seen from the gradients of one pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from chainrule import ops
from chainrule.learn.graphs import RULES, held_by, operands_of
from chainrule.optim import Optimizer
from chainrule.wasm import WasmProgram
from chainrule.wasm.replay import Graph

CLOSE = 1e-9  # relative: a learner may write tanh with exp


def module_of(
    *results: Any, inputs: Sequence[Any], parameters: Sequence[Any], optimizer: Optimizer | None = None, steps: int = 1
) -> WasmProgram:
    """The module of a graph; other leaves than `inputs` and `parameters` are constants.

    >>> from chainrule.closures import Value
    >>> w, x = Value(2.0), Value(3.0)
    >>> module_of((w * x).tanh(), inputs=[x], parameters=[w]).has_gradient
    True
    """
    return WasmProgram(graph_of(results, inputs, parameters), optimizer, steps)


def graph_of(results: Sequence[Any], inputs: Sequence[Any], parameters: Sequence[Any]) -> Graph:
    """The graph, if every node holds what its op gives."""
    kinds = {id(node): kind for kind, some in (("input", inputs), ("parameter", parameters)) for node in some}
    rules: list[Any] = []
    operands: list[tuple[int, ...]] = []
    nodes: list[Any] = []
    place: dict[int, int] = {}

    def add(rule: Any, below: tuple[int, ...], node: Any) -> int:
        rules.append(rule)
        operands.append(below)
        nodes.append(node)
        return len(nodes) - 1

    for node, below in _oldest_first(results):
        if id(node) in kinds or not below:
            place[id(node)] = add(kinds.get(id(node), "constant"), (), node)
        else:
            rule, given = _rule(node, below)
            places = [place[id(o)] if id(o) in place else add("constant", (), _Number(o)) for o in given]
            place[id(node)] = add(rule, tuple(places), node)
    leaves = {"input": inputs, "parameter": parameters, "captured": ()}
    numbers = [float(node.data) for node in nodes]
    return Graph.of(rules, operands, nodes, [place[id(result)] for result in results], leaves, numbers)


def gradient_of(graph: Graph) -> list[float]:
    """The gradient with respect to the parameters, by the op table's rules at the graph's numbers."""
    grads = [0.0] * len(graph.rules)
    grads[graph.results[0]] = 1.0
    gradient = [0.0] * graph.sizes["parameter"]
    for place in reversed(range(len(grads))):
        rule, below = graph.rules[place], graph.operands[place]
        numbers = graph.numbers[place], *[graph.numbers[operand] for operand in below]
        for k in graph.taken[place]:
            grads[below[k]] += grads[place] * rule.partials[k](*numbers)  # type: ignore[union-attr,misc]
        if rule == "parameter":
            gradient[graph.places[place]] = grads[place]
    return gradient


class _Number:
    """A plain number among the operands."""

    def __init__(self, number: float) -> None:
        self.data = float(number)


def _oldest_first(roots: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Each node of the graph with its operands, those before it; without recursion."""
    done: set[int] = set()
    pending: list[tuple[Any, list[Any] | None]] = [(root, None) for root in reversed(roots)]
    while pending:
        node, below = pending.pop()
        if id(node) in done:
            continue
        if below is None:
            commutes = getattr(node, "_op", "") in ("+", "*")  # most nodes: a look into their closures would take long
            below = [*node._prev] if commutes else operands_of(node)
            pending.append((node, below))
            pending += [(operand, None) for operand in reversed(below) if id(operand) not in done]
        else:
            done.add(id(node))
            yield node, below


def _rule(node: Any, below: list[Any]) -> tuple[ops.Op, tuple[Any, ...]]:
    """The op of a node and its operands, some of which may be plain numbers: those that give its number."""
    tag = str(getattr(node, "_op", ""))
    rule = RULES.get(tag[:2] if tag.startswith("**") else tag) or ops.TABLE.get(tag.lower())
    if rule is not None:
        for operands in _candidates(node, tag, below, rule.arity):
            numbers = [float(getattr(operand, "data", operand)) for operand in operands]
            if _close(rule.forward(*numbers), float(node.data)):
                return rule, operands
    made_of = ", ".join(f"{float(operand.data):.4g}" for operand in below)
    raise ValueError(
        f"a node of your class has `_op` {tag!r} and data {float(node.data):.4g}, made of {made_of}: that is no op "
        "that can be compiled"
    )


def _candidates(node: Any, tag: str, below: list[Any], arity: int) -> Iterator[tuple[Any, ...]]:
    """Operands that a node may have: its children in either order, one of them twice, or with a plain number."""
    if len(below) == arity:
        yield tuple(below)
        yield tuple(reversed(below))
    elif len(below) == 1 and arity == 2:
        (child,) = below  # 1 ** -1 is 1 ** 1: a number that is there was meant
        written = [float(tag[2:])] if tag.startswith("**") and _is_number(tag[2:]) else []
        held = [x for x in held_by(node).values() if isinstance(x, (int, float)) and not isinstance(x, bool)]
        for number in (*written, *held):
            yield child, number
            yield number, child
        yield child, child


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _close(a: float, b: float) -> bool:
    return a == b or (a != a and b != b) or math.isclose(a, b, rel_tol=CLOSE, abs_tol=1e-300)
