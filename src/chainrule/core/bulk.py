"""Copies numbers between many Values and an array: the native engine in one call, the Python engine in a loop.

A call is atomic: other threads see all of its reads or writes, or none.
"""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

from chainrule.core.value import ENGINE, Value

if ENGINE == "native":
    from chainrule._native import (
        add_to_grad,
        fill,
        read_data,
        read_grad,
        refrozen,
        replaced,
        replay,
        takes_gradient,
        write_data,
        write_grad,
    )
else:
    _lock = threading.RLock()
    _calls = itertools.count()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

    def read_data(values: list[Value], numbers: Any) -> None:
        """Copy the data of Values into an array."""
        with _lock:
            numbers[: len(values)] = [value._data for value in values]

    def replaced() -> int:
        """A number that is another one whenever any Value may have got new data since; here, at every call."""
        return next(_calls)

    def refrozen() -> int:
        """A number that is another one whenever any Value may have been frozen or unfrozen since; as `replaced`."""
        return next(_calls)

    def takes_gradient(values: list[Value]) -> bytes:
        """One byte per Value: 0 if it is frozen."""
        return bytes([value.requires_grad for value in values])

    def write_data(values: list[Value], numbers: Any) -> None:
        """Set the data of Values from an array."""
        with _lock:
            for value, number in zip(values, numbers.tolist(), strict=False):
                value.data = number

    def read_grad(values: list[Value], numbers: Any) -> None:
        """Copy the gradients of Values into an array."""
        with _lock:
            numbers[: len(values)] = [value.grad for value in values]

    def write_grad(values: list[Value], numbers: Any) -> None:
        """Set the gradients of Values from an array."""
        with _lock:
            for value, number in zip(values, numbers.tolist(), strict=False):
                value.grad = number

    def add_to_grad(values: list[Value], numbers: Any) -> None:
        """Add an array to the gradients of Values, except those that are frozen."""
        with _lock:
            for value, number in zip(values, numbers.tolist(), strict=False):
                if value.requires_grad:
                    value.grad += number

    def fill(structure: Any, thing: Any, numbers: Any, array_type: type, static_type: type) -> bool:
        """Copy the numbers in `thing` into an array, if it has this structure and that is quick; whether it did."""
        return False

    def replay(values: list[Value]) -> None:
        """Compute nodes, oldest first, again from the leaves' present data."""
        for value in values:
            if value._rule is not None:
                value.data = value._rule.forward(*[operand._data for operand in value._operands])


__all__ = [
    "add_to_grad", "fill", "read_data", "read_grad", "refrozen", "replaced", "replay", "takes_gradient", "write_data",
    "write_grad",
]  # fmt: skip
