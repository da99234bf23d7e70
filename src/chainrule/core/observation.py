"""Observers: told of new nodes and of backward passes in one thread, and only while they ask for it.

The engines test two pointers, which are empty unless some thread is observed: one when a node is complete, one before a
backward pass.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chainrule.core.tracing import is_tracing
from chainrule.core.value import Value, observe


class Observer:
    """Told of what this thread does, while it is `observed`; a subclass says what it wants to hear."""

    sees_nodes = False  # a call per node

    def made(self, node: Value) -> None:
        """A node is complete."""

    def before_backward(self, root: Value) -> None:
        """A backward pass begins."""

    def after_backward(self, root: Value) -> None:
        """A backward pass has gone through."""


class _Thread(threading.local):
    observers: tuple[Observer, ...] = ()
    in_pass = False  # an observed backward pass is under way; one that a `_backward` starts meanwhile is part of it


_this_thread = _Thread()
_lock = threading.RLock()  # a signal handler or a finalizer may come back to it
_observations = {"nodes": 0, "passes": 0}  # under way, in all threads


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Have `observer` told of what this thread does."""
    _count(+1, observer.sees_nodes)
    before = _this_thread.observers
    _this_thread.observers = (*before, observer)
    try:
        yield
    finally:  # what decides comes first: a count that Ctrl-C leaves too high costs time, and no more
        _this_thread.observers = before
        _count(-1, observer.sees_nodes)


def nodes_are_observed() -> bool:
    """Whether this thread's are, one by one: a compiled program makes none, and so would escape."""
    return any(observer.sees_nodes for observer in _this_thread.observers)


def _count(change: int, sees_nodes: bool) -> None:
    with _lock:
        _observations["nodes"] += change * sees_nodes
        _observations["passes"] += change
        observe(_made if _observations["nodes"] else None, _passes if _observations["passes"] else None)


def _made(node: Any) -> None:
    if _this_thread.observers and not is_tracing():  # in a trace, numbers are not to be read
        for observer in _this_thread.observers:
            if observer.sees_nodes:
                observer.made(node)


def _passes(root: Any, seed: float) -> bool:
    observers = _this_thread.observers
    if not observers or _this_thread.in_pass:
        return False
    _this_thread.in_pass = True
    try:
        for observer in observers:
            observer.before_backward(root)
        root.backward(seed)
    finally:
        _this_thread.in_pass = False
    for observer in observers:
        observer.after_backward(root)
    return True
