"""What a thread does with nodes as they are made: forgets where they came from, traces, transforms, or is observed.

The engines test a pointer for each kind of listener (`watch`, `observe`, `decide_equality`), which is empty unless some
thread has such a listener; whether it is this thread is asked here.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Any, NoReturn, Protocol

from chainrule.core.graph import is_node
from chainrule.core.value import Value, decide_equality, observe, record, watch
from chainrule.core.walk import below, oldest_first, stand_for_numbers
from chainrule.ops import Op, as_float, neg

# For symbols only, and so not in the table.
DETACH = Op("detach", lambda x: x, (None,))


# Graphs or none.


@contextmanager
def no_grad() -> Iterator[None]:
    """Ops in this block return Values without a history, which take no gradient. Per thread; can be nested.

    >>> w = Value(3.0)
    >>> with no_grad():
    ...     y = w * w
    >>> y.data, y._operands, y.requires_grad
    (9.0, (), False)

    It decorates functions too, as `@no_grad()`.
    """
    if tracer := current_tracer():
        tracer.refuse("enters `no_grad()`", "compute as usual, and pass the result through chainrule.detach")
    with recording(False):
        yield


@contextmanager
def recording(wanted: bool = True) -> Iterator[None]:
    """The opposite, for code that needs a graph also when it is called inside `no_grad()`."""
    before = record(wanted)
    try:
        yield
    finally:
        record(before)


def is_recording() -> bool:
    """Whether ops in this thread remember their operands."""
    before = record(True)
    record(before)
    return before


def detach(x: Any) -> Any:
    """The same number, cut off from what it came from: no gradient passes. Also a method, `x.detach()`.

    For a Value the result is a leaf, so the graph behind `x` can be freed. In a compiled function it is an ordinary
    node, computed again at every call.

    >>> x = Value(3.0)
    >>> (x * detach(x)).backward()
    >>> x.grad
    3.0
    """
    if not is_node(x):
        return as_float(x, "x")
    if tracer := current_tracer():
        return tracer.apply(DETACH, (x,))
    return frozen(x.data)


setattr(Value, "detach", detach)  # noqa: B010  # of whichever engine it is


def constant(number: float) -> Value:
    """What a plain number becomes in an op."""
    with recording():
        return Value._apply(neg, (number,))._operands[0]


def frozen(number: float) -> Value:
    """A leaf that takes no gradient."""
    leaf = Value(number)
    leaf.requires_grad = False
    return leaf


# Listeners: blocks of code in one thread that are traced, transformed or observed.


class Tracer(Protocol):
    """What a trace does with what cannot be done as usual."""

    @property
    def defers(self) -> bool:
        """Whether derivatives become single nodes, to be found when the trace is complete."""

    def look(self, deed: str | Op, left: Any = None, right: Any = None) -> Any:
        """Told of every look at a Value's number, by any thread; what the native engine's `watch` describes."""

    def refuse(self, deed: str, remedy: str) -> NoReturn:
        """Raise an error that names the user's line."""

    def apply(self, rule: Op, operands: tuple[Any, ...]) -> Any:
        """A node of the trace."""


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
    tracer: Tracer | None = None
    given: Mapping[Any, Any] = MappingProxyType({})  # in a transformed function: a node -> what it stands in for
    observers: tuple[Observer, ...] = ()
    in_pass = False  # an observed backward pass is under way; one that a `_backward` starts meanwhile is part of it


_this_thread = _Thread()
_lock = threading.RLock()  # a signal handler or a finalizer may start such a block in the middle of counting
_under_way = Counter[str]()  # blocks of each kind, in all threads
if hasattr(os, "register_at_fork"):  # or another thread might hold the lock in the child for ever
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@contextmanager
def _block(name: str, value: Any, kinds: Sequence[str], set_hooks: Callable[[], None]) -> Iterator[None]:
    """While an attribute of this thread has a value, count a block of these kinds, and have the engines know."""

    def count(change: int) -> None:
        with _lock:
            for kind in kinds:
                _under_way[kind] += change
            set_hooks()

    count(+1)
    before = getattr(_this_thread, name)
    setattr(_this_thread, name, value)
    try:
        yield
    finally:  # what decides comes first: a count that Ctrl-C leaves too high costs a little time, and no more
        setattr(_this_thread, name, before)
        count(-1)


@contextmanager
def traced(tracer: Tracer) -> Iterator[None]:
    """A trace in this thread: a function of the user's is called to record what it does rather than to get numbers.

    Numbers (`.data`, comparisons) must not be read meanwhile: a number belongs to one moment, and the compiled program
    runs at others. A trace is a recording, also of a call inside `no_grad()`.
    """

    def set_hooks() -> None:
        watch(tracer.look if _under_way["traces"] else None)

    with recording(), _block("tracer", tracer, ["traces"], set_hooks):
        yield


def current_tracer() -> Tracer | None:
    """The tracer of the trace that this thread is in, if it is in one."""
    return _this_thread.tracer


def is_tracing() -> bool:
    """Whether this thread is."""
    return _this_thread.tracer is not None


def observed(observer: Observer) -> AbstractContextManager[None]:
    """Have `observer` told of what this thread does in a block."""

    def set_hooks() -> None:
        observe(_made if _under_way["nodes"] else None, _passes if _under_way["passes"] else None)

    kinds = ["passes", "nodes"] if observer.sees_nodes else ["passes"]
    return _block("observers", (*_this_thread.observers, observer), kinds, set_hooks)


def nodes_are_observed() -> bool:
    """Whether this thread's are, one by one: a compiled program makes none, and so would escape."""
    return any(observer.sees_nodes for observer in _this_thread.observers)


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


def standing_in(inputs: Sequence[Any], given: Sequence[Any]) -> AbstractContextManager[None]:
    """While a function runs on `inputs` in place of what was `given`, they compare and copy as plain numbers do.

    Two Values are otherwise equal if they are the same node, and a function that compares its arguments would take
    another branch than the plain call does. And a deep copy is otherwise another graph, to which no gradient goes.
    """

    def set_hooks() -> None:
        decide_equality(_equal if _under_way["transforms"] else None)
        stand_for_numbers(_numbers_behind if _under_way["transforms"] else None)

    stand_ins = {**_this_thread.given, **dict(zip(inputs, given, strict=True))}
    return _block("given", stand_ins, ["transforms"], set_hooks)


def _equal(left: Any, right: Any) -> bool | None:
    """Whether two Values are equal; None if both would be Values when the function is called on plain numbers too."""
    if _this_thread.given and (_is_number(left) or _is_number(right)):
        return bool(left.data == right.data)
    return None


def _is_number(node: Any) -> bool:
    """Whether it would be a plain number if the function had been called on the plain numbers that were given."""
    return all(_sources(other) or _is_plain(other) for other in below(node, operands_of=_sources))


def _numbers_behind(value: Any) -> Iterable[Any]:
    """The nodes behind a Value, and it itself, that would be plain numbers then."""
    found: dict[Any, None] = {}
    for node in oldest_first(value, operands_of=_sources) if _this_thread.given else ():
        sources = _sources(node)
        if all(source in found for source in sources) if sources else _is_plain(node):
            found[node] = None
    return found


def _sources(node: Any) -> tuple[Any, ...]:
    """The nodes that a node was computed from, or that it stands for."""
    if node in _this_thread.given:
        return tuple(filter(is_node, [_this_thread.given[node]]))
    return node._operands  # type: ignore[no-any-return]


def _is_plain(leaf: Any) -> bool:
    """Whether what was computed from no other node is a plain number, or stands for one."""
    return leaf._constant or leaf in _this_thread.given
