"""`no_grad()` and `detach`: computing without remembering where results came from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chainrule.core.tracing import current_tracer
from chainrule.core.value import Value, record
from chainrule.ops import Op, as_float, neg

# For symbols only, and so not in the table.
_detached = Op("detach", lambda x: x, (None,))


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
    with _set(False):
        yield


@contextmanager
def recording() -> Iterator[None]:
    """The opposite, for code that needs a graph also when it is called inside `no_grad()`."""
    with _set(True):
        yield


@contextmanager
def _set(wanted: bool) -> Iterator[None]:
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
    if not hasattr(x, "_apply"):
        return as_float(x, "x")
    if tracer := current_tracer():
        return tracer.apply(_detached, (x,))
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
