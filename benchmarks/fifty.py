"""Fifty programs from many fields: `python benchmarks/fifty.py` compares ours, from plain loops, with JAX by hand.

Each program of tests/compiler/programs is compiled at its size and at twice its size, checked against eager code, and
its gradient timed in turns with that of `jax_programs`. The tables go to docs/programs.md. With `--programs` only some
of them, with `--quick` fewer turns, and with `--through-jax` ours through JAX: machine code of ours that XLA calls, or
with `--through-jax xla` what XLA compiles. Then it only prints.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from contest import SHORT_TURN, Contestant, interleave, stay_on
from jax_programs import JAX_PROGRAMS
from machine import machine
from pages import QUIET, TIE, figure, item, table, times, write_between
from peers import program_compiled, program_eager, program_jax
from scoreboard import ONE_THREAD
from workloads.programs import PROGRAMS, inputs

ROOT = Path(__file__).parent.parent
PAGE, BEGIN = ROOT / "docs" / "programs.md", "<!-- benchmarks/fifty.py writes from here -->"
AGREE = 1e-9  # of the greatest: how far a value or a derivative may be from eager code
PATIENCE = 5.0  # seconds: whatever compiles for longer is named


@dataclass(frozen=True)
class Row:
    """What came out for one program at one size; times in seconds."""

    name: str
    size: int
    nodes: int
    statements: int | None  # none if it runs node by node
    compiling: float
    compiling_by_jax: float
    ours: float
    by_jax: float

    @property
    def ratio(self) -> float:
        """How many times as long JAX takes."""
        return self.by_jax / self.ours

    def cells(self) -> list[str]:
        statements = "–" if self.statements is None else f"{self.statements:,}"
        compiling = [f"{self.compiling:.1f}", f"{self.compiling_by_jax:.1f}"]
        ratio = f"{self.ratio:.2g}" if self.ratio < 10 else f"{self.ratio:.0f}"
        speed = [figure(1e6 * self.ours), figure(1e6 * self.by_jax), ratio]
        return [self.name.replace("_", " "), str(self.size), f"{self.nodes:,}", statements, *compiling, *speed]


HEADING = ["", "size", "nodes", "statements", "compiling, s", "JAX's, s", "ours, µs", "JAX, µs", "JAX / ours"]


def race(found, size: int, turns: int, patience: float, backend: str = "llvm") -> Row:
    """Compile, check and time one program."""
    given = inputs(found.name, size)
    runners = {
        "chainrule": program_compiled.Gradient(given, found.function, backend),
        "JAX": program_jax.Gradient(given, JAX_PROGRAMS[found.name]),
    }
    expected = program_eager.differentiate(found.function, *given)
    for name, runner in runners.items():
        runner.run(1)
        pairs = zip(runner.numbers(), expected, strict=True)
        off = max(np.abs(np.subtract(number, right)).max() / np.abs(right).max() for number, right in pairs)
        if not off <= AGREE:
            raise ValueError(f"{found.name} of size {size}: {name} differs from eager code by {off:.1e}")
    ready = {Contestant(name, "", "", ""): runner for name, runner in runners.items()}
    best = [min(seconds) for seconds in interleave(ready, turns, patience, SHORT_TURN).values()]
    stats = runners["chainrule"].program.stats
    statements = None if stats.get("node by node") else stats["array statements"]
    compiling = [runner.compiling for runner in runners.values()]
    return Row(found.name, size, stats["scalar nodes"], statements, *compiling, *best)


def summary(rows: Iterable[Row]) -> list[str]:
    """Who wins, and what falls out of the frame, as items of a list."""
    rows = sorted(rows, key=lambda row: row.ratio)
    ahead, slow = [row for row in rows if row.ratio > TIE], [row for row in rows if row.ratio < 1 / TIE]
    by_nodes, long = [row for row in rows if row.statements is None], [row for row in rows if row.compiling > PATIENCE]

    def named(chosen, what=lambda row: ""):
        return ", ".join(row.name.replace("_", " ") + what(row) for row in chosen) or "none"

    equal = len(rows) - len(ahead) - len(slow)
    ratios = named(slow, lambda row: f" {times(1 / row.ratio)}")
    return [
        *item(f"Ours is faster on {len(ahead)} of {len(rows)}, as fast to within {TIE} × on {equal}."),
        *item(f"JAX is faster on {len(slow) or 'none'}{': ' if slow else ''}{ratios if slow else ''}."),
        *item(f"Node by node: {named(by_nodes)}."),
        *item(f"Compiling for more than {PATIENCE:.0f} s: {named(long, lambda row: f' {row.compiling:.0f} s')}."),
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer turns")
    options.add_argument("--programs", nargs="+", metavar="NAME", choices=PROGRAMS)
    options.add_argument("--times", nargs="+", type=int, default=[1, 2], metavar="K", help="sizes, in multiples")
    through = {"nargs": "?", "const": "jax", "default": "llvm", "choices": ["jax", "xla"]}
    options.add_argument("--through-jax", **through, dest="backend", help="by machine code of ours, or XLA's")
    given = options.parse_args()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    stay_on(1)
    lines = []
    for factor in given.times:
        rows = []
        for name in given.programs or PROGRAMS:
            found = PROGRAMS[name]
            rows.append(race(found, factor * found.size, *((20, 0.1) if given.quick else (200, 2.0)), given.backend))
            print(*rows[-1].cells(), sep="  ", file=sys.stderr, flush=True)
            gc.collect()
        heading = {1: "At their size", 2: "At twice their size"}.get(factor, f"At {factor} × their size")
        lines += ["", f"## {heading}", "", *summary(rows), "", *table(HEADING, [row.cells() for row in rows])]
    busy = " **Measured on a busy machine.**" if load > QUIET else ""
    measured = f"{datetime.now(UTC).date().isoformat()}, on {machine()}. The load was {load:.1f} before the run.{busy}"
    lines += ["", *textwrap.wrap(measured, 140)]
    print("\n".join(lines))
    if not (given.quick or given.programs or given.backend != "llvm" or given.times != [1, 2]):
        write_between(PAGE, [*lines, ""], BEGIN)


if __name__ == "__main__":
    if not os.environ.items() >= ONE_THREAD.items():  # libraries read it when they are loaded: begin again
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})
    main()
