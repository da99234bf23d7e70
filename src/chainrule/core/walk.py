"""Walks over a recorded graph, for nodes of any class, and copies of Values with their graphs, for both engines.

An engine knows how to copy one node (`_copy_to`), and uses `deepcopy` as its Value's `__deepcopy__`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

OperandsOf = Callable[[Any], Iterable[Any]]
WAYS = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__setstate__")  # in which a class says how it is copied


def oldest_first(*roots: Any, operands_of: OperandsOf = attrgetter("_operands")) -> list[Any]:
    """The roots and all nodes that they were made of, in order of creation.

    >>> from chainrule import Value
    >>> a = Value(2.0)
    >>> [node.data for node in oldest_first(a * a + a)]
    [2.0, 4.0, 6.0]
    """
    return sorted(below(*roots, operands_of=operands_of), key=attrgetter("_serial"))


def below(*roots: Any, operands_of: OperandsOf = attrgetter("_operands")) -> list[Any]:
    """The roots and all nodes that they were made of, in no particular order; found without recursion."""
    found, pending = {id(root): root for root in roots}, list(roots)
    while pending:
        for operand in operands_of(pending.pop()):
            if id(operand) not in found:
                found[id(operand)] = operand
                pending.append(operand)
    return list(found.values())


def attributes_of(value: Any) -> Any:
    """What hangs on a Value: None, its `__dict__`, or that and a dict of what the slots of a subclass hold.

    >>> from chainrule import Value
    >>> v = Value(1.0)
    >>> v.color = "red"
    >>> attributes_of(v)
    {'color': 'red'}
    """
    state = object.__getstate__(value)
    if not isinstance(state, tuple):
        return state
    engines = {name for base in _engine_of(type(value)).__mro__ for name in getattr(base, "__slots__", ())}
    slots = {name: held for name, held in state[1].items() if name not in engines}
    return (state[0], slots) if slots else state[0]


def hang(value: Any, attributes: Any) -> None:
    """Give a Value what `attributes_of` found on another."""
    attributes, slots = attributes if isinstance(attributes, tuple) else (attributes, {})
    if attributes:
        vars(value).update(attributes)
    for name, held in slots.items():
        setattr(value, name, held)


def deepcopy(value: Any, memo: dict[int, Any]) -> Any:
    """The Value and the graph that it was computed by, without recursion; `memo` is that of `copy.deepcopy`.

    >>> from chainrule import Value
    >>> x = Value(3.0)
    >>> twin, result = copy.deepcopy((x, x * x))
    >>> result.backward()
    >>> twin.grad, x.grad
    (6.0, 0.0)

    What stands for a plain number while a function is differentiated is not copied, as no float is.
    """
    memo.update({id(node): node for node in _numbers_behind(value)})
    if id(value) in memo:
        return memo[id(value)]
    if _has_own_way(type(value)):
        return _rebuilt(value, memo)
    copied = []
    for node in oldest_first(value, operands_of=lambda node: [o for o in node._operands if id(o) not in memo]):
        if _has_own_way(type(node)):
            copy.deepcopy(node, memo)
        elif id(node) not in memo:  # else it was reached from one with its own way
            kind: Any = type(node)
            twin = memo[id(node)] = kind.__new__(kind)
            node._copy_to(twin, tuple([memo[id(operand)] for operand in node._operands]))
            copied.append((node, twin))
    for node, twin in copied:  # last, because attributes may refer to any of the nodes
        if (attributes := attributes_of(node)) is not None:
            hang(twin, copy.deepcopy(attributes, memo))
    return memo[id(value)]


def stand_for_numbers(behind: Callable[[Any], Iterable[Any]] | None) -> None:
    """From here on `behind` says which of the nodes behind a Value, and it itself, stand for plain numbers."""
    global _numbers_behind
    _numbers_behind = behind or _none_behind


def _none_behind(value: Any) -> Iterable[Any]:
    return ()


_numbers_behind: Callable[[Any], Iterable[Any]] = _none_behind


def _engine_of(kind: type) -> type:
    """The engine's Value: `kind` itself, or what it was derived from."""
    return next(base for base in reversed(kind.__mro__) if "backward" in vars(base))


def _has_own_way(kind: type) -> bool:
    """Whether a subclass says itself how its instances are copied."""
    engine = _engine_of(kind)
    return kind is not engine and any(getattr(kind, way) is not getattr(engine, way) for way in WAYS)


def _rebuilt(value: Any, memo: dict[int, Any]) -> Any:
    make, arguments, *rest = value.__reduce_ex__(4)
    twin = memo[id(value)] = make(*copy.deepcopy(arguments, memo))
    if rest and rest[0] is not None:
        twin.__setstate__(copy.deepcopy(rest[0], memo))
    return twin
