"""A recorded graph: its nodes in the order in which they were made, how they pass gradients on, and their numbers.

The nodes may be of any class that works like micrograd's, with `data`, `grad`, `_prev`, `_backward` and `backward`;
`lay_flat` and what asks for rules want chainrule's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from chainrule.core.value import ENGINE, Value
from chainrule.core.walk import below, oldest_first

if ENGINE == "native":
    from chainrule import _native


def lay_flat(*roots: Any, since: int = 0) -> tuple[list[Any], list[Any], list[tuple[int, ...]]]:
    """The nodes, oldest first; the rules that pass their gradients on, None where there is none; operands' places.

    With `since`, a serial number, nodes that are not younger count as leaves.

    >>> a = Value(2.0)
    >>> nodes, rules, operands = lay_flat(a * a + a)
    >>> [rule and rule.name for rule in rules], operands
    ([None, 'mul', 'add'], [(), (0, 0), (1, 0)])
    """
    if ENGINE == "native":
        return _native.trace([*roots], since)

    def younger(node: Any) -> tuple[Any, ...]:
        return node._operands if node._serial > since else ()

    operands_of = younger if since else attrgetter("_operands")
    nodes = oldest_first(*roots, operands_of=operands_of)
    place = dict(zip(map(id, nodes), range(len(nodes)), strict=True))
    rules = [None if node._serial <= since or is_hand_written(node) else node._rule for node in nodes]
    return nodes, rules, [tuple([place[id(operand)] for operand in operands_of(node)]) for node in nodes]


def is_hand_written(node: Any) -> bool:
    """Whether the user gave the node a `_backward` of its own, or its class one.

    >>> is_hand_written(Value(1.0) * 2.0)
    False
    """
    return getattr(node._backward, "__self__", None) is not node


def receivers(node: Any) -> tuple[Any, ...]:
    """The operands that a node passes gradients to.

    >>> from chainrule import gt
    >>> receivers(gt(Value(1.0), 2.0))
    ()
    """
    if node._rule is None or is_hand_written(node):
        return tuple(node._operands)
    return tuple([operand for operand, partial in zip(node._operands, node._rule.partials, strict=True) if partial])


def number_of(node: Any) -> Any:
    """The number of a node of any class, for code on which no graph depends; of a Value, reading it leaves no mark.

    >>> x = Value(2.0)
    >>> number_of(x), x._read
    (2.0, False)
    """
    return node._data if isinstance(node, Value) else node.data


def is_node(number: Any) -> bool:
    """Whether it is a node of some graph, rather than a plain number."""
    return hasattr(number, "_apply")


def is_value(thing: Any) -> bool:
    """Whether it is a Value: chainrule's, or of a class like it."""
    if isinstance(thing, Value):  # to ask it whether it has data would be to read it
        return True
    return all(hasattr(thing, name) for name in ("data", "grad", "_prev", "_backward", "backward"))


def operands_of(node: Any) -> tuple[Any, ...]:
    """The node's operands, in order if its class keeps one."""
    return tuple(node._operands if hasattr(node, "_operands") else node._prev)


def graph_below(out: Any) -> list[Any]:
    """The node and all nodes it was made of, in no particular order."""
    return below(out, operands_of=operands_of)


@contextmanager
def same_gradients(values: Iterable[Any]) -> Iterator[None]:
    """Restore the gradients of these Values when the block ends.

    >>> x = Value(3.0)
    >>> with same_gradients([x]):
    ...     (x * x).backward()
    >>> x.grad
    0.0
    """
    before = [(value, value.grad) for value in values]
    try:
        yield
    finally:
        for value, grad in before:
            value.grad = grad


@contextmanager
def unchanged(values: Iterable[Any]) -> Iterator[None]:
    """Restore the data and the gradients of these Values when the block ends."""
    before = [(value, number_of(value), value.grad) for value in values]
    try:
        yield
    finally:
        for value, data, grad in before:
            value.data, value.grad = data, grad
