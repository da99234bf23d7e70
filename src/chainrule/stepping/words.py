"""A graph in words: every forward step, then every step of the chain rule, as the stepper shows them."""

from __future__ import annotations

from typing import Any

from chainrule.core.value import Value
from chainrule.stepping.steps import describe


def explain(root: Value) -> tuple[list[str], list[str]]:
    """The forward steps and the backward steps of a graph, one line each. A root without a label is called L.

    >>> a, b = Value(2.0, label="a"), Value(-3.0, label="b")
    >>> forward, backward = explain(a * b)
    >>> forward
    ['L = a · b = 2 · (-3) = -6']
    >>> for line in backward:
    ...     print(line)
    L.grad = 1
    a.grad += L.grad · b = 1 · (-3) = -3
    b.grad += L.grad · a = 1 · 2 = 2
    """
    description = describe(root, names={} if root.label else {"L": root})
    nodes, steps = description["nodes"], description["steps"]
    names = [node["name"] for node in nodes]
    forward = [_forward(nodes[step["node"]]) for step in steps if step["kind"] == "forward"]
    wording = {"seed": _seed, "backward": _backward, "handwritten": _handwritten}
    return forward, [wording[step["kind"]](step, names) for step in steps if step["kind"] in wording]


def _forward(node: dict[str, Any]) -> str:
    expression = node["expression"]
    return " = ".join(dict.fromkeys([node["name"], expression["names"], expression["numbers"], node["data"]["text"]]))


def _seed(step: dict[str, Any], names: list[str]) -> str:
    return f"{names[step['node']]}.grad = {step['after']['text']}"


def _backward(step: dict[str, Any], names: list[str]) -> str:
    slope = step["formula"]["names"] if step["formula"] else step["partial"]["text"]
    factor = f"({slope})" if " " in slope or slope.startswith("-") else slope
    words = f"{names[step['to']]}.grad += {names[step['node']]}.grad · {factor}"
    words += f" = {step['multiplication']} = {step['product']['text']}"
    if float(step["before"]["exact"]) == 0.0:
        return words
    return f"{words}, so {step['sum']} = {step['after']['text']}"


def _handwritten(step: dict[str, Any], names: list[str]) -> str:
    change = f"{step['before']['text']} → {step['after']['text']}"
    return f"{names[step['to']]}.grad: {change}, by the `_backward` of {names[step['node']]}, written by hand"
