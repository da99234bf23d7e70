"""What two threads must not do at once: compile one function, train the same parameters, borrow the same gradients.

Calls that only read Values need no turns: each runs in its own memory (`backends.protocol`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Collection
from typing import Any

from chainrule.core import bulk as _bulk
from chainrule.core.value import ENGINE, Value

_lock = threading.RLock()  # a signal handler or a finalizer may come back to it in the thread that has it
_ended = threading.Condition(_lock)
_under_way: list[weakref.ref[Turn]] = []
_waiting: list[Turn] = []
NATIVE = ENGINE == "native"
PATIENCE = 1.0  # seconds between checks whether a turn is over; one cut short by Ctrl-C notifies nobody


class Turn:
    """For a `with` block: other threads that want a turn of the same kind, with a thing in common, wait until its end.

    The same thread may take another such turn, unless there is a `refusal`: then that is raised.
    """

    __slots__ = ("__weakref__", "kind", "refusal", "things", "thread")

    def __init__(self, kind: str, things: Collection[Any], refusal: str = "") -> None:
        self.kind, self.things, self.refusal = kind, things, refusal
        self.thread = threading.get_ident()

    def __enter__(self) -> None:
        with _lock:
            self.wait()
            try:
                _under_way.append(weakref.ref(self))
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *_: object) -> None:
        with _lock:
            _under_way[:] = [turn for turn in _under_way if turn() not in (None, self)]
            if _waiting:
                _ended.notify_all()

    def wait(self) -> None:
        """Wait until no other thread has such a turn."""
        while _under_way and self._is_taken():
            _waiting.append(self)
            try:
                _ended.wait(PATIENCE)
            finally:
                _waiting.remove(self)

    def _is_taken(self) -> bool:
        for other in [turn() for turn in _under_way]:
            if other is None or other.kind != self.kind or set(self.things).isdisjoint(other.things):
                continue
            if other.thread != self.thread:
                return True
            if self.refusal:
                raise RuntimeError(self.refusal)
        return False


def compiling(function: Any) -> Turn:
    """A function is traced once per structure and compiled once per batch size: a second thread waits."""
    return Turn("compile", [function])


def training(parameters: list[Value]) -> Turn:
    """Steps that read these parameters' data and write it at the end, with no other steps in between."""
    refusal = (
        "a call of `train` was interrupted by another one, of this thread and on the same parameters, as by a signal "
        "handler or a finalizer: the steps of one would be lost, so let it begin when the other has returned"
    )
    return Turn("train", parameters, refusal)


def borrowing_gradients(values: list[Value]) -> Turn:
    """These Values' gradients hold what an optimizer's `step` needs, in place of what was accumulated."""
    return Turn("gradients", values)


def add_to_grad(values: list[Value], gradient: Any) -> None:
    """Add an array to the gradients of Values, atomically, and not while they are borrowed.

    If nothing is under way, this is one call of the native engine. Python switches threads only after calls and at the
    end of loops, so never between the test and that call.
    """
    if NATIVE and not _under_way:
        _bulk.add_to_grad(values, gradient)
        return
    with _lock:
        borrowing_gradients(values).wait()
        _bulk.add_to_grad(values, gradient)


def _leave_the_others_behind() -> None:
    """A forked process has none of its parent's other threads."""
    _under_way[:] = [turn for turn in _under_way if (one := turn()) and one.thread == threading.get_ident()]
    _waiting.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_leave_the_others_behind)
