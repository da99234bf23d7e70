"""What is compiled: a function, the options to compile it with, and a record of the programs that were made of it."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from chainrule.compiler.backends.strict import StrictCode
from chainrule.compiler.run.machine import Code
from chainrule.core.code_lines import is_ours
from chainrule.core.structure import Structure, difference
from chainrule.core.value import Value

STORM = 8  # programs of one function; more of them draw a warning

Run = tuple[Structure, Code | StrictCode]  # the arguments' structure, and what ran


class _Thread(threading.local):
    latest: Run | None = None


class Source:
    """A function to compile, and how. It must not refer to its traces, which refer to it."""

    def __init__(
        self,
        function: Callable[..., Any],
        wrt: Sequence[Value] | None = None,
        backend: str = "llvm",
        dtype: str = "float64",
        strict: bool = False,
    ) -> None:
        self.function = function
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self.wrt = wrt
        self.backend = backend
        self.dtype = dtype
        self.strict = strict
        self.programs: list[tuple[Structure, int | None]] = []  # compiled so far: structure, and size of the batch
        self._latest: Run | None = None  # of any thread
        self._this_thread = _Thread()

    def ran(self, run: Run) -> None:
        """Note what the present call runs."""
        if self._this_thread.latest is not run:
            self._this_thread.latest = self._latest = run

    @property
    def latest(self) -> Run | None:
        """What the last call of this thread ran, or of any thread if this one has made none."""
        return self._this_thread.latest or self._latest

    def count_program(self, structure: Structure, examples: int | None) -> None:
        """Note that a program is being compiled; warns when there are too many."""
        self.programs.append((structure, examples))
        if len(self.programs) == STORM + 1:
            self._warn()

    def _warn(self) -> None:
        (old, before), (new, after) = self.programs[-2:]
        if len(old) != len(new):
            what = f"it had {len(old)} arguments and has {len(new)}"
        elif old != new:
            k = [a == b for a, b in zip(old, new, strict=True)].index(False)
            what = difference(old[k], new[k], f"argument {k}")
        else:
            what = f"the batch was of {_size(before)} and is of {_size(after)}"
        warnings.warn(
            f"`{self.name}` is being compiled over and over ({len(self.programs)} programs so far): {what}. Each "
            "structure of arguments is compiled anew; give lists of equal lengths, or one batch size, where you can",
            RuntimeWarning,
            stacklevel=_depth_of_the_user(),
        )


def _size(count: int | None) -> str:
    return "one example" if count in (None, 1) else f"{count} examples"


def _depth_of_the_user() -> int:
    """The stack level of the first frame outside chainrule, for warnings."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back and is_ours(frame.f_code):
        depth, frame = depth + 1, frame.f_back
    return depth
