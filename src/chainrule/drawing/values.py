"""A graph of Values as a Picture: a card for each node, an edge for each operand.

Serves chainrule's Values and any class like micrograd's, with `data`, `grad`, `_prev` and `_op`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

from chainrule.core.graph import is_hand_written, number_of, operands_of, unchanged
from chainrule.debug.rules import push
from chainrule.drawing.picture import Edge, Node, Number, Picture, TooLargeError, largest, strength
from chainrule.nn import Module

LIMIT = 150  # nodes that are drawn by default
MOST = 1000  # nodes that can be asked for
SHORT = 12  # letters of two names that fit on an edge
SYMBOLS = {"*": "×", "-": "−", "/": "÷"}


def nodes_below(root: Any, limit: int, depth: int | None = None) -> list[Any] | None:
    """`root` and the nodes that it depends on, at most `depth` steps away, operands before their results.

    Returns None if there are more than `limit`, without walking the rest of the graph.
    """
    found, frontier, steps = {id(root): root}, [root], 0
    while frontier and (depth is None or steps < depth):
        nearer, frontier, steps = frontier, [], steps + 1
        for node in nearer:
            for operand in operands_of(node):
                if id(operand) not in found:
                    found[id(operand)] = operand
                    frontier.append(operand)
                    if len(found) > limit:
                        return None
    if all(hasattr(node, "_serial") for node in found.values()):
        return sorted(found.values(), key=lambda node: node._serial)
    operands = {key: [id(x) for x in operands_of(node) if id(x) in found] for key, node in found.items()}
    return [found[key] for key in TopologicalSorter(operands).static_order()]


class Link(NamedTuple):
    """An operand of a node, and the derivative with respect to it: None if no gradient passes, or it is unknown."""

    node: Any
    operand: Any
    partial: float | None

    @property
    def flow(self) -> float:
        """The gradient that this link carried back."""
        return 0.0 if self.partial is None else float(self.node.grad * self.partial)


def links(node: Any, ask: bool = True) -> list[Link]:
    """The node's operands, each with the local derivative.

    Unless `ask` is false, a hand-written `_backward` is called to see what it adds when the node's gradient is 1. That
    yields one number for each distinct operand.
    """
    rule = getattr(node, "_rule", None)
    if rule is not None and not is_hand_written(node):
        numbers = [number_of(x) for x in (node, *node._operands)]
        return [
            Link(node, operand, float(partial(*numbers)) if partial and operand.requires_grad else None)
            for operand, partial in zip(node._operands, rule.partials, strict=True)
        ]
    distinct = list({id(operand): operand for operand in operands_of(node)}.values())
    if not ask:
        return [Link(node, operand, None) for operand in distinct]
    with unchanged([node, *distinct]):
        return [Link(node, operand, partial) for operand, partial in zip(distinct, push(node, distinct), strict=True)]


def picture_of_values(
    root: Any,
    number: Number,
    limit: int,
    *,
    model: Module | None = None,
    depth: int | None = None,
    local: bool = False,
    flow: bool = False,
    gradient: str = "both",
    ask: bool = True,
) -> Picture:
    """A card for each of the nodes below `root`, at most `depth` steps away and at most `limit` of them."""
    nodes = nodes_below(root, limit, depth)
    if nodes is None:
        raise TooLargeError(_too_large(limit, depth))
    found = [link for node in nodes for link in links(node, ask)]
    names = _parameter_names(model) if model is not None else {}
    most = largest([node.grad for node in nodes]) if gradient in ("colour", "both") else 0.0
    widest = largest([link.flow for link in found]) if gradient in ("width", "both") else 0.0
    keys = {id(node): f"n{k}" for k, node in enumerate(nodes)}
    uses = Counter(id(link.operand) for link in found)
    cards = [_card(node, keys[id(node)], names, uses[id(node)] > 1, number, most) for node in nodes]
    edges = []
    cut: Counter[str] = Counter()  # operands beyond `depth`, by the key of the node that has them
    for link in found:
        source, target = keys.get(id(link.operand)), keys[id(link.node)]
        if source is None:
            cut[target] += 1
        else:
            texts = list(_texts(link, names, number, local, flow))
            edges.append(Edge(source, target, texts, strength(link.flow, widest), passes=link.partial is not None))
    for key, count in cut.items():
        cards.append(Node(f"{key}_more", "more", "⋯", hint=f"{count} operands and what they depend on are not drawn"))
        edges.append(Edge(f"{key}_more", key, passes=False))
    return Picture(cards, edges)


def _parameter_names(model: Module) -> dict[int, str]:
    """What a model calls its parameters, by id, as code would: `layers[0].neurons[3].w[1]`."""
    return {id(parameter): as_code(path) for path, parameter in model.named_parameters()}


def as_code(path: str) -> str:
    """`layers.0.b` as `layers[0].b`."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split(".")).removeprefix(".")


def _card(node: Any, key: str, names: dict[int, str], shared: bool, number: Number, most: float) -> Node:
    tint = strength(node.grad, most) * (-1.0 if node.grad < 0.0 else 1.0)
    title, data, grad = _title(node, names), number(number_of(node)), number(node.grad)
    if getattr(node, "_constant", False):
        return Node(key, "constant", title, rows=[("", data)], shared=shared, hint=f"the number {data}")
    kind = "computed" if operands_of(node) else "parameter" if id(node) in names else "leaf"
    op = getattr(node, "_op", "")
    return Node(key, kind, title, SYMBOLS.get(op, op), [("data", data), ("grad", grad)], shared, tint)


def _title(node: Any, names: dict[int, str]) -> str:
    return getattr(node, "label", "") or names.get(id(node), "")


def _texts(link: Link, names: dict[int, str], number: Number, local: bool, flow: bool) -> Iterator[str]:
    """What is written on an edge: the local derivative, and the gradient that came back along it."""
    if link.partial is None:
        return
    if local:
        result, operand = _title(link.node, names), _title(link.operand, names)
        short = result and operand and len(result) + len(operand) <= SHORT
        yield f"∂{result}/∂{operand} = {number(link.partial)}" if short else f"∂ = {number(link.partial)}"
    if flow:
        yield f"← {number(link.flow)}"


def _too_large(limit: int, depth: int | None) -> str:
    nearer = f"depth={depth - 1} or less" if depth else "depth=3, the nodes near the result"
    return (
        f"the graph has more than {limit} nodes, too many to read: draw {nearer}; or one card for each part of a "
        'network, with model=model and collapse="neuron", "layer" or "module"; or the array program, '
        f"draw(chainrule.compile(value)); or raise `limit`, to {MOST:,} at most"
    )
