"""From a lifted program to code: the last passes, a backend, and machines to run in."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from chainrule.compiler.backends import compiled_by, with_rows
from chainrule.compiler.backends.cuda.shape import advice_on
from chainrule.compiler.backends.protocol import ArrayBackend, Pool, Wiring
from chainrule.compiler.passes.arrange import arranged
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.few_tables import with_few_tables
from chainrule.compiler.passes.irregular import IrregularityError
from chainrule.compiler.passes.lift import MOST_STATEMENTS, check_kernels, most_of
from chainrule.compiler.passes.program import Array, ArrayProgram
from chainrule.compiler.run.machine import Machine
from chainrule.compiler.trace.graph import Graph
from chainrule.core.arguments import counted

DEVICES = ("xla", "cuda")  # backends that choose layouts themselves
VERY_MANY = 100_000  # new objects


class Clock:
    """Seconds per stage. The garbage collector is paused, because passes make many objects and no cycles.

    If they made very many, these are moved to its oldest generation: otherwise it would walk through all of them next.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str, work: Callable[[], Any]) -> Any:
        started, collecting = perf_counter(), gc.isenabled()
        try:
            gc.disable()
            return work()
        finally:
            if collecting:
                _make_old()
                gc.enable()
            self.seconds[stage] = perf_counter() - started


def _make_old() -> None:
    """Move very many new objects to the oldest generation, unless some are frozen, which `unfreeze` would undo."""
    if gc.get_count()[0] > VERY_MANY and not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


class Code(Pool[Machine]):
    """A lifted program compiled for numbers of type `dtype`, with the gradient of `seed` times it if that is wanted.

    It is immutable, and any number of threads may run it. It has the program at three stages. `forward` is as it was
    lifted, and computes the results; exports start from it. `whole` is `forward`, its gradient and what `then` adds,
    such as an optimizer's update; `describe` prints it. `laid_out` is `whole` with its arrays arranged for vectors, and
    is what runs. With the `wiring` of its inputs, some may be read as they lie in the caller's arrays.
    """

    def __init__(
        self,
        forward: ArrayProgram,
        gradient: bool,
        backend: str,
        clock: Clock,
        then: Callable[[ArrayProgram], ArrayProgram] = lambda program: program,
        dtype: str = "float64",
        seed: float = 1.0,
        wiring: Wiring | None = None,
    ) -> None:
        self.forward, self.backend = forward, backend
        start = forward if backend in DEVICES else with_few_tables(forward)
        self.whole = whole = then(clock("differentiate", lambda: differentiate(start, seed)) if gradient else start)
        self._check_count(whole)  # before it is laid out, which takes time and seldom changes it
        self.laid_out: ArrayProgram = whole
        places: dict[Array, Any] = {}
        if backend not in DEVICES:
            self.laid_out, places = clock("lay out", lambda: arranged(whole))
        if backend == "llvm" and wiring and self.laid_out.leaves.get("input") not in places:
            self.laid_out = clock("rows", lambda: with_rows(self.laid_out, wiring))
        self._check_count(self.laid_out)
        make = partial(compiled_by, backend, self.laid_out, dtype)
        runner: ArrayBackend = clock("llvm", make) if backend in ("llvm", "jax") else make()
        self.bytes = runner.size * np.dtype(dtype).itemsize
        self.seconds_per_run: float | None = None  # the least so far, in batches
        super().__init__(Machine(self.laid_out, places, runner))

    def _check_count(self, program: ArrayProgram) -> None:
        """Refuse more statements than LLVM compiles in a reasonable time."""
        if (count := len(program.statements)) > max(MOST_STATEMENTS, most_of(self.forward.nodes)):
            raise IrregularityError.of_so_many(count)

    def took(self, seconds: float) -> None:
        """Note how long a run of a batch took."""
        self.seconds_per_run = min(seconds, self.seconds_per_run or seconds)

    def of_one_example(self, graph: Callable[[], Graph]) -> Code:
        """This code, if it should run one example, which has this graph; an error if its nodes are faster."""
        if self.backend == "xla":  # which compiles at the first run
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


def in_words(stats: Mapping[str, Any]) -> str:
    """What was found, for people: "205 scalar nodes in 9 array statements", or why there are none; and the path."""
    scalars, reason = counted(stats["scalar nodes"], "scalar node"), stats.get("node by node")
    how = f"one by one, {reason}" if reason else f"in {counted(stats['array statements'], 'array statement')}"
    conditions = stats.get("conditions", 0)
    path = f", on a path with {counted(conditions, 'condition')}" if conditions else ""
    return f"{scalars} {how}{path}"
