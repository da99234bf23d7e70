"""Numbers and gradients of Values, put back after something has used them; for any class with `data` and `grad`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from chainrule.core.graph import number_of


@contextmanager
def same_gradients(values: Iterable[Any]) -> Iterator[None]:
    """Restore the gradients of these Values when the block ends.

    >>> from chainrule import Value
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
