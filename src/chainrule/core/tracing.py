"""Whether this thread is tracing: calling a function of the user's to record what it does, rather than to get numbers.

The compiler starts and ends it. Meanwhile numbers (`.data`, comparisons) are not to be read, but ops to be recorded:
the number is that of one moment, and the program that comes of it runs at others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chainrule.core.value import record, watch


class _Thread(threading.local):
    tracing = False


_this_thread = _Thread()
_lock = threading.RLock()  # a signal handler or a finalizer may start a trace in the middle of counting
_traces = 0  # under way, in all threads

if hasattr(os, "register_at_fork"):  # or another thread might hold it in the child for ever
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def is_tracing() -> bool:
    """Whether this thread is."""
    return _this_thread.tracing


@contextmanager
def traced(watcher: Callable[..., Any]) -> Iterator[None]:
    """A trace in this thread, with `watcher` told of every look at a Value's number, by whatever thread."""
    _count(+1, watcher)
    recorded = record(True)  # a trace is a recording, also of a call inside `no_grad()`
    before, _this_thread.tracing = _this_thread.tracing, True
    try:
        yield
    finally:  # what decides comes first: a count that Ctrl-C leaves too high costs a little time, and no more
        _this_thread.tracing = before
        record(recorded)
        _count(-1, watcher)


def _count(change: int, watcher: Callable[..., Any]) -> None:
    global _traces
    with _lock:
        _traces += change
        watch(watcher if _traces else None)
