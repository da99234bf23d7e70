"""A contest: contestants compute one workload, must agree with ours on the numbers, and are then timed in turns.

A workload is a folder of `workloads` with a file for each way to write it, or a function in each of these files; and a
contestant is one of the ways, with the module of `peers` that runs it: whoever finds the file that it wants takes part.
One that is not installed, fails or disagrees is left out, with the reason; the contest goes on.
"""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

FOLDER = Path(__file__).with_name("workloads")
EXACT = 1e-12  # how far numbers may be from ours, relative to the greatest of them
TURN = 0.02  # seconds: a turn has as many steps as fit, at least one
SHORT_TURN = 0.0005  # for steps of microseconds: of many turns so short, some meet no other process


class Runner:
    """What a module of `peers` makes of a problem and a file (its `Training`, `Gradient` or `Forward`)."""

    def get_ready(self) -> bool:
        """Compile what later steps need and the first did not; whether there is any such thing. Not timed."""
        return False

    def begin(self) -> None:
        """Go back to the first parameters. Not timed."""

    def run(self, steps: int) -> None:
        """Take so many steps, or compute the gradient so many times."""
        raise NotImplementedError

    def numbers(self) -> tuple[float, np.ndarray]:
        """The last loss; the parameters after the last step, or the gradient. Not timed."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Contestant:
    """Its name and group in tables; a module of `peers`, the file of a workload that it runs, and how."""

    name: str
    group: str
    peer: str
    file: str
    options: Mapping[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = ("training", "gradient", "forward")  # of workloads
    folders: tuple[str, ...] = ()  # of workloads; none: any
    few: bool = False  # it is given as many examples as the workload has for slow ones
    tolerance: float = EXACT
    cores: int = 1
    managed: bool = False  # Python's collector is off while it runs; it collects once a step
    warm: bool = False  # an untimed step before a turn, so that a collector that lags behind pays what it owes

    @property
    def at_once(self) -> int:
        """Steps that it takes side by side: a turn has a multiple of them."""
        return self.options.get("at_once", 1)

    def load(self, workload: Workload) -> tuple[Any, Any]:
        """Import the peer, and its solution: a module, one of its functions, or the path of a source in C."""
        peer = importlib.import_module(f"peers.{self.peer}")
        if self.file.endswith(".c"):
            return peer, FOLDER / workload.folder / self.file
        module = importlib.import_module(f"workloads.{workload.folder}.{self.file.removesuffix('.py')}")
        return peer, getattr(module, workload.function) if workload.function else module

    def prepare(self, workload: Workload, problem: Any) -> Runner:
        """Build, and compile what is compiled before the first call."""
        peer, solution = self.load(workload)
        return getattr(peer, workload.kind.title())(problem, solution, **self.options)


@dataclass(frozen=True, eq=False)
class Workload:
    """What is computed: steps of `training`, or again and again the `gradient` of a loss or its `forward` pass."""

    name: str
    title: str
    folder: str
    kind: str
    problem: Callable[[int], Any]  # of so many examples
    size: int
    few: int  # examples for contestants that are too slow for all of them
    tiny: int  # for a test
    function: str = ""  # of the folder's files, where they have one for each of several workloads
    turn: float = TURN
    turns: int = 51

    def contestants(self, among: Iterable[Contestant]) -> list[Contestant]:
        """Those who do this kind of thing, and for whom there is a file."""
        return [
            contestant
            for contestant in among
            if self.kind in contestant.kinds
            and self.folder in (contestant.folders or [self.folder])
            and (FOLDER / self.folder / contestant.file).exists()
        ]

    def examples(self, contestant: Contestant) -> int:
        return min(self.size, self.few) if contestant.few else self.size


class Contest:
    """One workload, and what came out of it. The first contestant is the one that others are compared to."""

    def __init__(self, workload: Workload, contestants: list[Contestant]) -> None:
        self.workload = workload
        self.contestants = contestants
        self.times: dict[str, list[float]] = {}  # seconds a step, by name; as for all examples where there were few
        self.left_out: dict[str, str] = {}
        self._problem = cache(workload.problem)
        self._expected = cache(lambda size: _numbers(contestants[0].prepare(workload, self._problem(size))))

    def run(self, turns: int, patience: float) -> None:
        """Prepare, check and time all; `patience` in seconds, for each."""
        ready = {contestant: runner for contestant in self.contestants if (runner := self.admit(contestant))}
        for contestant, times in interleave(ready, turns, patience, self.workload.turn).items():
            scale = self.workload.size / self.workload.examples(contestant)
            self.times[contestant.name] = [scale * seconds for seconds in times]

    def admit(self, contestant: Contestant) -> Runner | None:
        """What it runs, if its numbers are ours."""
        size = self.workload.examples(contestant)
        expected = self._expected(size)
        try:
            stay_on(contestant.cores)
            runner = contestant.prepare(self.workload, self._problem(size))
            with collector(contestant):
                off = max(map(_distance, _numbers(runner), expected))
                runner.get_ready()
        except Exception as error:  # whatever goes wrong in a peer, the others go on
            self.left_out[contestant.name] = _reason(error)
            return None
        if not off <= contestant.tolerance:  # it may be NaN
            self.left_out[contestant.name] = f"its numbers differ from ours by {off:.1e}"
            return None
        return runner

    def best(self, name: str) -> float:
        """Seconds a step; not a number if it was left out."""
        return min(self.times.get(name, [float("nan")]))

    def median(self, name: str) -> float:
        return median(self.times[name])

    def ratio(self, name: str) -> float:
        """How many times our best time its best time is; not a number if it was left out."""
        return self.best(name) / self.best(self.contestants[0].name)


def _numbers(runner: Runner) -> list[Any]:
    """What contestants must agree on: loss, and parameters or gradient, after one step and after three."""
    numbers: list[Any] = []
    for steps in (1, 3):
        runner.begin()
        runner.run(steps)
        numbers += runner.numbers()
    return numbers


def _distance(found: Any, expected: Any) -> float:
    """Of two numbers or arrays, relative to the greatest element of the one expected."""
    return float(np.abs(np.subtract(found, expected)).max() / np.abs(expected).max())


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = [f"{error.cmd[0]} failed", *(error.stderr or "").splitlines()]
        return ": ".join(lines[:2])
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def interleave(
    ready: Mapping[Contestant, Runner], turns: int, patience: float, turn: float
) -> dict[Contestant, list[float]]:
    """Seconds a step. All take turns, round after round, so that a busy moment of the machine meets everybody.

    Between turns all garbage is collected, untimed. What is imported is frozen (`gc.freeze`), so that a contestant's
    collector walks that contestant's objects and nobody else's. One that has used up its `patience` sits out the
    remaining rounds; all have two turns at least.
    """
    counts = {contestant: _steps_a_turn(contestant, runner, turn) for contestant, runner in ready.items()}
    times: dict[Contestant, list[float]] = {contestant: [] for contestant in ready}
    spent = dict.fromkeys(ready, 0.0)
    gc.collect()
    gc.freeze()
    try:
        for _ in range(turns):
            for contestant, runner in ready.items():
                if len(times[contestant]) < 2 or spent[contestant] < patience:
                    gc.collect()  # what others left
                    started = perf_counter()
                    times[contestant].append(_turn(contestant, runner, counts[contestant]))
                    spent[contestant] += perf_counter() - started
    finally:
        gc.unfreeze()
        stay_on(1)
    return times


def _steps_a_turn(contestant: Contestant, runner: Runner, turn: float) -> int:
    """By trial: a first call with another count can be one that compiles, so the better of two is what counts."""
    least = count = contestant.at_once
    while True:
        seconds = _turn(contestant, runner, count)
        if count * seconds > 100 * turn:  # so slow that it is no accident
            return count
        seconds = min(seconds, _turn(contestant, runner, count))
        if count * seconds > turn / 2:
            return count
        wanted = min(round(turn / max(seconds, 1e-9)), 1000 * count)
        count = max(2 * count, wanted // least * least)


def _turn(contestant: Contestant, runner: Runner, count: int) -> float:
    """Seconds a step."""
    stay_on(contestant.cores)
    with collector(contestant):
        runner.begin()
        if contestant.warm:
            runner.run(1)
        started = perf_counter()
        runner.run(count)
        return (perf_counter() - started) / count


@contextmanager
def collector(contestant: Contestant) -> Iterator[None]:
    """Python's collector as the contestant wants it."""
    if contestant.managed:
        gc.disable()
    try:
        yield
    finally:
        gc.enable()


def stay_on(cores: int) -> None:
    """Keep this thread, and those that it starts from here on, on the first so many of the process's cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, _CORES[:cores])


_CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
