"""Whether this thread is tracing: calling a function of the user's to record what it does rather than to get numbers.

The compiler starts and ends a trace, and hands in the `Tracer`. Meanwhile ops are recorded and numbers (`.data`,
comparisons) must not be read: a number belongs to one moment, and the compiled program runs at others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

from chainrule.core.value import record, watch
from chainrule.ops import Op


class Tracer(Protocol):
    """What a trace does with what cannot be done as usual."""

    def look(self, deed: str | Op, left: Any = None, right: Any = None) -> Any:
        """Told of every look at a Value's number, by any thread; what the native engine's `watch` describes."""

    def refuse(self, deed: str, remedy: str) -> NoReturn:
        """Raise an error that names the user's line."""

    def apply(self, rule: Op, operands: tuple[Any, ...]) -> Any:
        """A node of the trace."""


class _Thread(threading.local):
    tracer: Tracer | None = None


_this_thread = _Thread()
_lock = threading.RLock()  # a signal handler or a finalizer may start a trace in the middle of counting
_traces = 0  # under way, in all threads

if hasattr(os, "register_at_fork"):  # or another thread might hold it in the child for ever
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def is_tracing() -> bool:
    """Whether this thread is."""
    return _this_thread.tracer is not None


def current_tracer() -> Tracer | None:
    """The tracer of the trace that this thread is in, if it is in one."""
    return _this_thread.tracer


@contextmanager
def traced(tracer: Tracer) -> Iterator[None]:
    """A trace in this thread."""
    _count(+1, tracer)
    recorded = record(True)  # a trace is a recording, also of a call inside `no_grad()`
    before, _this_thread.tracer = _this_thread.tracer, tracer
    try:
        yield
    finally:  # what decides comes first: a count that Ctrl-C leaves too high costs a little time, and no more
        _this_thread.tracer = before
        record(recorded)
        _count(-1, tracer)


def _count(change: int, tracer: Tracer) -> None:
    global _traces
    with _lock:
        _traces += change
        watch(tracer.look if _traces else None)
