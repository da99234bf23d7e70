"""A recorded graph: its nodes in the order in which they were made, and which of them pass gradients on by hand."""

from __future__ import annotations

from typing import Any


def oldest_first(root: Any) -> list[Any]:
    """`root` and every node that it was made of, in order of creation.

    >>> from chainrule import Value
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


def is_hand_written(node: Any) -> bool:
    """Whether the user gave the node a `_backward` of its own, or its class one.

    >>> from chainrule import Value
    >>> is_hand_written(Value(1.0) * 2.0)
    False
    """
    return getattr(node._backward, "__self__", None) is not node
