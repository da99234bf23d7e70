"""Values of any class that works like micrograd's: with `data`, `grad`, `_prev`, `_backward` and `backward`."""

from __future__ import annotations

from typing import Any

from chainrule.core.value import Value
from chainrule.core.walk import below


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
