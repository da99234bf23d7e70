"""The walk over a recorded graph, for nodes of any class."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

OperandsOf = Callable[[Any], Iterable[Any]]


def oldest_first(*roots: Any, operands_of: OperandsOf = lambda node: node._operands) -> list[Any]:
    """The roots and all nodes that they were made of, in order of creation.

    >>> from chainrule import Value
    >>> a = Value(2.0)
    >>> [node.data for node in oldest_first(a * a + a)]
    [2.0, 4.0, 6.0]
    """
    return sorted(below(*roots, operands_of=operands_of), key=lambda node: node._serial)


def below(*roots: Any, operands_of: OperandsOf = lambda node: node._operands) -> list[Any]:
    """The roots and all nodes that they were made of, in no particular order; found without recursion."""
    found, pending = {id(root): root for root in roots}, list(roots)
    while pending:
        for operand in operands_of(pending.pop()):
            if id(operand) not in found:
                found[id(operand)] = operand
                pending.append(operand)
    return list(found.values())
