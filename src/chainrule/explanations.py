"""A graph worked out in words: every forward step, then every step of the chain rule, in the engine's order.

The local derivatives are written by the op table itself: a partial applied to pieces of text gives its formula.
"""

from __future__ import annotations

import math
from itertools import count
from typing import Any

from chainrule._value import Value
from chainrule.ops import TABLE, Carrier, Op

SUM, PRODUCT, SIGN, POWER, ATOM = range(5)  # how tightly an expression binds
INFIX = {
    "add": (" + ", SUM),
    "sub": (" - ", SUM),
    "mul": (" * ", PRODUCT),
    "div": (" / ", PRODUCT),
    "pow": ("**", POWER),
}
INFIX |= {name: (f" {TABLE[name].symbol} ", -1) for name in ("lt", "le", "gt", "ge", "eq", "ne")}


class Text(Carrier):
    """An expression as people write it; an op applied to it gives the expression of the result.

    >>> 1.0 - Text("t") * Text("t")
    1 - t * t
    """

    def __init__(self, text: str, binding: int = ATOM) -> None:
        self.text = text
        self.binding = binding

    def __repr__(self) -> str:
        return self.text

    def _apply(self, op: Op, operands: tuple[Any, ...]) -> Any:
        if op.name == "where" and not isinstance(operands[0], Text):
            return operands[1] if operands[0] else operands[2]
        if op.name == "pow" and operands[1] == 1.0:
            return operands[0]  # x**1 is x
        texts = [operand if isinstance(operand, Text) else number(operand) for operand in operands]
        if op.name == "neg":
            return Text(f"-{bracketed(texts[0], SIGN)}", SIGN)
        if op.name not in INFIX:
            return Text(f"{op.name}({', '.join(map(repr, texts))})")
        sign, binding = INFIX[op.name]
        left, right = texts
        if op.name == "pow":
            return Text(bracketed(left, ATOM) + sign + bracketed(right, SIGN), binding)
        tighter = binding + (op.name in ("sub", "div"))
        return Text(bracketed(left, binding) + sign + bracketed(right, tighter), binding)


def number(value: Any) -> Text:
    """A plain number, in as few digits as six allow.

    >>> number(-0.5)
    -0.5
    """
    return Text(f"{value:.6g}", ATOM if math.copysign(1.0, value) > 0 else SIGN)


def bracketed(text: Text, least: int) -> str:
    """The text, in brackets unless it binds at least so tightly."""
    return text.text if text.binding >= least else f"({text})"


def explain(root: Value) -> tuple[list[str], list[str]]:
    """The forward steps and the backward steps of a graph, a line each.

    >>> a, b = Value(2.0, label="a"), Value(-3.0, label="b")
    >>> forward, backward = explain(a * b)
    >>> forward
    ['L = a * b = 2 * -3 = -6']
    >>> for line in backward:
    ...     print(line)
    dL/dL = 1
    dL/da += dL/dL * b = 1 * -3 = -3
    dL/db += dL/dL * a = 1 * 2 = 2
    """
    nodes = _interior(root)
    for node in nodes:
        if node._rule is None:
            raise ValueError(f"`root` depends on {node!r}, made by hand: only ops of the table know their derivatives")
    names = _names(root, nodes)
    top = names[root].text
    forward = [_forward(node, names) for node in nodes]
    backward = [f"d{top}/d{top} = 1"]
    gradients = dict.fromkeys([root], 1.0)
    for node in reversed(nodes):  # newest first: a node's gradient is complete when it is passed on
        rule: Any = node._rule
        operands = [operand.data for operand in node._operands]
        symbols = [names.get(operand, operand.data) for operand in node._operands]
        for operand, partial in zip(node._operands, rule.partials, strict=True):
            if partial is None or operand._constant:
                continue
            slope = float(partial(node.data, *operands))
            given = gradients.get(node, 0.0)
            total = gradients.get(operand, 0.0) + given * slope
            target = names[operand].text
            words = f"d{top}/d{target} += d{top}/d{names[node]} * "
            formula = partial(names[node], *symbols)
            words += bracketed(formula if isinstance(formula, Text) else number(formula), PRODUCT)
            words += f" = {number(given)} * {bracketed(number(slope), SIGN)} = {number(given * slope)}"
            if operand in gradients:
                words += f", with the {number(gradients[operand])} before: {number(total)}"
            gradients[operand] = total
            backward.append(words)
    return forward, backward


def _interior(root: Value) -> list[Value]:
    """The computed nodes that the root depends on, oldest first."""
    found, pending = {root}, [root]
    while pending:
        for operand in pending.pop()._operands:
            if operand not in found and operand._operands:
                found.add(operand)
                pending.append(operand)
    return sorted((node for node in found if node._operands), key=lambda node: node._serial)


def _names(root: Value, nodes: list[Value]) -> dict[Value, Text]:
    """A name for each node that has a gradient: its label, or v1, v2, …; the root is L unless it has another."""
    operands = [operand for node in nodes for operand in node._operands]
    leaves = dict.fromkeys(operand for operand in operands if not operand._operands and not operand._constant)
    every = [*leaves, *nodes] if nodes else [root]
    taken = {node.label for node in every}
    fresh = (name for name in (f"v{k}" for k in count(1)) if name not in taken)
    names = {node: Text(node.label or next(fresh)) for node in every if node is not root}
    names[root] = Text(root.label or ("L" if "L" not in taken else next(fresh)))
    return names


def _forward(node: Value, names: dict[Value, Text]) -> str:
    rule: Any = node._rule
    symbols = tuple(names.get(operand) or number(operand.data) for operand in node._operands)
    numbers = tuple(number(operand.data) for operand in node._operands)
    apply = Text("")._apply
    return f"{names[node]} = {apply(rule, symbols)} = {apply(rule, numbers)} = {number(node.data)}"
