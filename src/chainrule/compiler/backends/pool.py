"""Machines waiting for a call. Code is immutable and shared; a machine is its memory, and belongs to one call."""

from __future__ import annotations

import os
from typing import Generic, TypeVar

from chainrule.compiler.backends.protocol import Backend

M = TypeVar("M", bound=Backend)

KEPT = max(8, os.cpu_count() or 1)  # idle machines of one program; more of them are freed


class Pool(Generic[M]):
    """Machines that no call is using: a call takes one, and gives it back when it has read its results.

    Whatever interrupts a call, be it another thread, a signal handler or a finalizer, takes another machine. A call
    that fails gives nothing back, because its machine may still be running in some thread.
    """

    def __init__(self, first: M) -> None:
        self._first = first  # the pattern for others
        self._free = [first]

    def take(self) -> M:
        """A machine that is the caller's until it is given back."""
        try:
            return self._free.pop()
        except IndexError:
            return self._first.twin()

    def give_back(self, machine: M) -> None:
        """Let others use it. The caller must have copied what it needs from the machine's memory."""
        if len(self._free) < KEPT:
            self._free.append(machine)
