"""A recorded graph: its nodes in the order in which they were made, and which of them pass gradients on by hand."""

from __future__ import annotations

from typing import Any

from chainrule._value import ENGINE, Value

if ENGINE == "native":
    from chainrule import _native


def oldest_first(root: Any) -> list[Any]:
    """`root` and every node that it was made of, in order of creation.

    >>> a = Value(2.0)
    >>> [node.data for node in oldest_first(a * a + a)]
    [2.0, 4.0, 6.0]
    """
    found, pending = {root}, [root]
    while pending:
        for operand in pending.pop()._operands:
            if operand not in found:
                found.add(operand)
                pending.append(operand)
    return sorted(found, key=lambda node: node._serial)


def lay_flat(root: Any) -> tuple[list[Any], list[Any], list[tuple[int, ...]]]:
    """The nodes, oldest first; the rules that pass their gradients on, None where there is none; operands' places.

    >>> a = Value(2.0)
    >>> nodes, rules, operands = lay_flat(a * a + a)
    >>> [rule and rule.name for rule in rules], operands
    ([None, 'mul', 'add'], [(), (0, 0), (1, 0)])
    """
    if ENGINE == "native" and isinstance(root, Value):
        return _native.trace(root)
    nodes = oldest_first(root)
    place = {node: i for i, node in enumerate(nodes)}
    rules = [None if is_hand_written(node) else node._rule for node in nodes]
    return nodes, rules, [tuple([place[operand] for operand in node._operands]) for node in nodes]


def is_hand_written(node: Any) -> bool:
    """Whether the user gave the node a `_backward` of its own, or its class one.

    >>> is_hand_written(Value(1.0) * 2.0)
    False
    """
    return getattr(node._backward, "__self__", None) is not node
