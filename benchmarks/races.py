"""A race: contestants are prepared one by one, must agree with the first on the numbers, and are then timed in turns.

One that is not installed, fails or disagrees is left out, with the reason; the race goes on.
"""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from timing import Turn, interleave, stay_on

EXACT = 1e-12  # how far numbers may be from those of the first, relative to the greatest of them


@dataclass(frozen=True)
class Entry:
    """A contestant: a module of `peers`, and what to make of it. The result is called for checks and for timing."""

    module: str
    prepare: Callable[[Any], Any]  # builds and compiles
    count: int = 1  # steps or calls a turn
    timed: Callable[[Any, int], object] = lambda run, count: run(count)
    tolerance: float = EXACT
    cores: int = 1
    managed: bool = False  # Python's collector is off during a turn
    warm: bool = False  # an untimed step before a turn, so that a collector that lags behind pays what it owes


@dataclass
class Race:
    """One row of the table."""

    name: str
    unit: str
    entries: Mapping[str, Entry]  # the first is the one that others are compared to
    check: Callable[[Any], Any]  # what contestants must agree on, computed by what `prepare` gave
    ready: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # of preparing and the check, imports aside
    left_out: dict[str, str] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)

    def run(self, rounds: int, patience: float) -> None:
        """Prepare, check and time all; `patience` in seconds, for each."""
        expected = None
        for name, entry in self.entries.items():
            try:
                found = self._prepare(name, entry)
            except Exception as error:  # whatever goes wrong in a peer, the others go on
                if expected is None:
                    raise
                self.left_out[name] = _reason(error)
                continue
            expected = found if expected is None else expected
            off = _distance(found, expected)
            if not off <= entry.tolerance:  # it may be NaN
                self.left_out[name] = f"its numbers differ from ours by {off:.1e}"
                del self.ready[name]
        turns = {name: _turn(self.entries[name], run) for name, run in self.ready.items()}
        self.times = interleave(turns, rounds, patience, 1e3 if self.unit.startswith("ms") else 1e6)
        stay_on(1)

    def _prepare(self, name: str, entry: Entry) -> Any:
        stay_on(entry.cores)
        module = importlib.import_module(f"peers.{entry.module}")
        started = perf_counter()
        run = entry.prepare(module)
        found = self.check(run)
        self.seconds[name] = perf_counter() - started
        self.ready[name] = run
        return found

    def best(self, name: str) -> float:
        return min(self.times[name])

    def median(self, name: str) -> float:
        return median(self.times[name])

    def ratio(self, name: str, other: str) -> float:
        """How many times the best time of `other` the best time of `name` is; not a number if one was left out."""
        if name not in self.times or other not in self.times:
            return float("nan")
        return self.best(name) / self.best(other)


def _turn(entry: Entry, run: Any) -> Turn:
    def step() -> None:
        if entry.warm:
            entry.timed(run, 1)

    return Turn(lambda _: entry.timed(run, entry.count), step, not entry.managed, entry.count, entry.cores)


def _distance(found: Any, expected: Any) -> float:
    """The greatest of some numbers or arrays, each relative to the greatest element of the one expected."""
    pairs = zip(found, expected, strict=True)
    return float(np.max([np.abs(np.subtract(a, b)).max() / np.abs(b).max() for a, b in pairs]))


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = [f"{error.cmd[0]} failed", *(error.stderr or "").splitlines()]
        return ": ".join(lines[:2])
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
