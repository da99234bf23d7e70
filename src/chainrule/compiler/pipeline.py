"""From a lifted program to code: the last passes, a backend, and machines to run in."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from chainrule.compiler.backends import compiled_by
from chainrule.compiler.backends.cuda.shape import advice_on
from chainrule.compiler.backends.protocol import ArrayBackend, Pool
from chainrule.compiler.passes.contract import contracted
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.distribute import distribute
from chainrule.compiler.passes.layout import lay_out
from chainrule.compiler.passes.lift import MOST_STATEMENTS, IrregularityError, check_kernels
from chainrule.compiler.passes.neighbours import apart
from chainrule.compiler.passes.program import Array, ArrayProgram
from chainrule.compiler.passes.rematerialize import is_long, rematerialized
from chainrule.compiler.run.machine import Machine
from chainrule.compiler.trace.graph import Graph
from chainrule.core.arguments import counted

DEVICES = ("jax", "cuda")  # backends that choose layouts themselves


class Clock:
    """Seconds per stage. The garbage collector is paused: passes make many objects and no cycles."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str, work: Callable[[], Any]) -> Any:
        started, collecting = perf_counter(), gc.isenabled()
        try:
            gc.disable()
            return work()
        finally:
            if collecting:
                gc.enable()
            self.seconds[stage] = perf_counter() - started


class Code(Pool[Machine]):
    """A lifted program compiled for numbers of type `dtype`, with its gradient if that is wanted.

    It is immutable, and any number of threads may run it. It has the program at three stages. `forward` is as it was
    lifted, and computes the results; exports start from it. `whole` is `forward`, its gradient and what `then` adds,
    such as an optimizer's update; `describe` prints it. `laid_out` is `whole` with its arrays arranged for vectors, and
    is what runs.
    """

    def __init__(
        self,
        forward: ArrayProgram,
        gradient: bool,
        backend: str,
        clock: Clock,
        then: Callable[[ArrayProgram], ArrayProgram] = lambda program: program,
        dtype: str = "float64",
    ) -> None:
        self.forward, self.backend = forward, backend
        start = forward if backend in DEVICES else apart(forward)
        self.whole = whole = then(clock("differentiate", lambda: differentiate(start)) if gradient else start)
        self.laid_out: ArrayProgram = whole
        places: dict[Array, Any] = {}
        if backend not in DEVICES:
            self.laid_out, places = clock("lay out", lambda: _arranged(whole))
        if len(self.laid_out.statements) > MOST_STATEMENTS:
            raise IrregularityError.of_so_many(len(self.laid_out.statements))
        make = partial(compiled_by, backend, self.laid_out, dtype)
        runner: ArrayBackend = clock("llvm", make) if backend == "llvm" else make()
        self.bytes = runner.size * np.dtype(dtype).itemsize
        self.seconds_per_run: float | None = None  # the least so far, in batches
        super().__init__(Machine(self.laid_out, places, runner))

    def of_one_example(self, graph: Callable[[], Graph]) -> Code:
        """This code, if it should run one example, which has this graph; an error if its nodes are faster."""
        if self.backend == "jax":  # which compiles at the first run
            check_kernels(self.whole, graph)
        return self

    def stats(self, scalar_nodes: int, seconds: dict[str, float]) -> dict[str, Any]:
        """What was found, in numbers."""
        statements = self.laid_out.statements
        return {
            "scalar nodes": scalar_nodes,
            "array statements": len(statements),
            "not affine": sum(not statement.affine for statement in statements),
            "bytes": self.bytes,
            "seconds": seconds,
            **self._chosen(),
        }

    def _chosen(self) -> dict[str, Any]:
        """What runs the program, and why, if that was left open; and what would run it better."""
        reason = getattr(self.backend, "reason", "")
        found = {"backend": f"{self.backend}, because {reason}"} if reason else {}
        advice = advice_on(self.whole) if self.backend == "cuda" else ""
        return found | ({"advice": advice} if advice else {})


def _arranged(program: ArrayProgram) -> tuple[ArrayProgram, dict[Array, Any]]:
    """The program with its arrays arranged for vectors, and for each leaf that moved the new places of its elements.

    Where examples go through loops in time, they lie side by side already (see `batch`). What counts there is that
    the numbers of many examples fit the cache. To compute numbers again pays there alone: for one example, what is kept
    fits as it is. What counts for one example is that exponentials and the like, where no time waits for them, are
    computed for many times at once.
    """
    if program.has_time and any(array.examples for array in program.arrays()):
        return contracted(rematerialized(program)), {}
    return lay_out(contracted(distribute(program, is_long)) if program.has_time else program)


def in_words(stats: Mapping[str, Any]) -> str:
    """What was found, for people: "205 scalar nodes in 9 array statements", or why there are none; and the path."""
    scalars, reason = counted(stats["scalar nodes"], "scalar node"), stats.get("node by node")
    how = f"one by one, {reason}" if reason else f"in {counted(stats['array statements'], 'array statement')}"
    conditions = stats.get("conditions", 0)
    path = f", on a path with {counted(conditions, 'condition')}" if conditions else ""
    return f"{scalars} {how}{path}"
