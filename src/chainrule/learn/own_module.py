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
    initial = {kind: [float(node.data) for node in some] for kind, some in leaves.items()}
    return Graph.of(rules, operands, nodes, [place[id(result)] for result in results], leaves, numbers, initial)


def gradient_of(graph: Graph) -> list[float]:
    """The gradient with respect to the parameters, by the op table's rules at the graph's numbers."""
    grads = [0.0] * len(graph.rules)
    grads[graph.results[0]] = 1.0
    gradient = [0.0] * graph.sizes["parameter"]
    for place in reversed(range(len(grads))):
        rule, below = graph.rules[place], graph.operands[place]
        numbers = graph.numbers[place], *[graph.numbers[operand] for operand in below]
        partials = rule.partials if isinstance(rule, ops.Op) else ()
        for k in graph.taken[place]:
            if partial := partials[k]:
                grads[below[k]] += grads[place] * partial(*numbers)
        if rule == "parameter":
            gradient[graph.places[place]] = grads[place]
    return gradient


def value_at(graph: Graph, inputs: Sequence[float]) -> float:
    """The result for other inputs, by the op table's rules."""
    numbers = list(graph.numbers)
    for place, (rule, below) in enumerate(zip(graph.rules, graph.operands, strict=True)):
        if rule == "input":
            numbers[place] = inputs[graph.places[place]]
        elif isinstance(rule, ops.Op):
            numbers[place] = rule.forward(*[numbers[operand] for operand in below])
    return numbers[graph.results[0]]


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
    """The op of a node and its operands, some of which may be plain numbers: those that give its number.

    Where several do, as `1 ** -1` and `1 ** 1` or `x * x` and `x` times a number in its closure, it is those whose
    derivatives are what the closure passes on.
    """
    tag = str(getattr(node, "_op", ""))
    rule = RULES.get(tag[:2] if tag.startswith("**") else tag) or ops.TABLE.get(tag.lower())
    found = [] if rule is None else [
        operands
        for operands in _candidates(node, tag, below, rule.arity)
        if _close(rule.forward(*_numbers(operands)), float(node.data))
    ]  # fmt: skip
    if rule is not None and len(found) > 1:
        passed = _passed_on(node, below)
        found = [
            operands for operands in found if all(map(_close, _derivatives(rule, node, operands, below), passed))
        ] or found[:1]
    if rule is None or not found:
        made_of = ", ".join(f"{float(operand.data):.4g}" for operand in below)
        raise ValueError(
            f"a node of your class has `_op` {tag!r} and data {float(node.data):.4g}, made of {made_of}: that is no op "
            "that can be compiled"
        )
    return rule, found[0]


def _numbers(operands: Sequence[Any]) -> list[float]:
    return [float(getattr(operand, "data", operand)) for operand in operands]


def _derivatives(rule: ops.Op, node: Any, operands: Sequence[Any], below: list[Any]) -> list[float]:
    """What the op passes on to each child, for a gradient of 1."""
    numbers, slopes = _numbers(operands), {id(child): 0.0 for child in below}
    for operand, partial in zip(operands, rule.partials, strict=True):
        if partial and id(operand) in slopes:
            slopes[id(operand)] += partial(float(node.data), *numbers)
    return [slopes[id(child)] for child in below]


def _passed_on(node: Any, below: list[Any]) -> list[float]:
    """What the learner's closure passes on to each child, for a gradient of 1; nothing else is changed."""
    kept = [(each, each.grad) for each in (node, *below)]
    try:
        for child in below:
            child.grad = 0.0
        node.grad = 1.0
        node._backward()
        return [float(child.grad) for child in below]
    finally:
        for each, grad in kept:
            each.grad = grad


def _candidates(node: Any, tag: str, below: list[Any], arity: int) -> Iterator[tuple[Any, ...]]:
    """Operands that a node may have: its children in either order, one of them twice, or with a plain number."""
    if len(below) == arity:
        yield tuple(below)
        if arity > 1:
            yield tuple(reversed(below))
    elif len(below) == 1 and arity == 2:
        (child,) = below
        yield child, child
        written = [float(tag[2:])] if tag.startswith("**") and _is_number(tag[2:]) else []
        held = [x for x in held_by(node).values() if isinstance(x, (int, float)) and not isinstance(x, bool)]
        solved = _exponent(node, child) if tag.startswith("**") else []
        for number in dict.fromkeys((*written, *held, *solved)):
            yield child, number
            yield number, child


def _exponent(node: Any, child: Any) -> list[float]:
    """The exponent of a power whose closure does not hold it: x times the derivative, divided by the power."""
    if not node.data:
        return []
    (slope,) = _passed_on(node, [child])
    exponent = float(child.data) * slope / float(node.data)
    nearest = round(2.0 * exponent) / 2.0
    return [nearest if _close(nearest, exponent) else exponent]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _close(a: float, b: float) -> bool:
    return a == b or (a != a and b != b) or math.isclose(a, b, rel_tol=CLOSE, abs_tol=1e-300)
