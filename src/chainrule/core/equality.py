"""`==` between Values while a function is transformed: it must answer as it would for the plain numbers given.

The transform calls the function on nodes that stand in for numbers. Two Values are otherwise equal if they are the same
node, and a function that compares its arguments would take another branch than the plain call does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from chainrule.core.graph import is_node
from chainrule.core.value import decide_equality


class _Thread(threading.local):
    given: Mapping[Any, Any] = MappingProxyType({})  # a node -> what it stands in for


_this_thread = _Thread()
_lock = threading.RLock()  # a signal handler or a finalizer may call a transform in the middle of counting
_calls = 0  # under way, in all threads
if hasattr(os, "register_at_fork"):  # or another thread might hold it in the child for ever
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@contextmanager
def standing_in(inputs: Sequence[Any], given: Sequence[Any]) -> Iterator[None]:
    """While a function runs on `inputs` in place of what was `given`, `==` answers as it would for that."""
    before = _this_thread.given
    _this_thread.given = {**before, **dict(zip(inputs, given, strict=True))}
    _count(+1)
    try:
        yield
    finally:
        _count(-1)
        _this_thread.given = before


def _count(change: int) -> None:
    global _calls
    with _lock:
        _calls += change
        decide_equality(_equal if _calls else None)


def _equal(left: Any, right: Any) -> bool | None:
    """Whether two Values are equal; None if both would be Values when the function is called on plain numbers too."""
    if _this_thread.given and (_is_number(left) or _is_number(right)):
        return bool(left.data == right.data)
    return None


def _is_number(node: Any) -> bool:
    """Whether it would be a plain number if the function had been called on the plain numbers that were given."""
    seen, pending = {node}, [node]
    while pending:
        node = pending.pop()
        operands = (_this_thread.given[node],) if node in _this_thread.given else node._operands
        if not (operands or node._constant):
            return False
        fresh = [operand for operand in operands if is_node(operand) and operand not in seen]
        seen.update(fresh)
        pending += fresh
    return True
