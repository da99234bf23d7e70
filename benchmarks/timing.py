"""Timing contestants against each other, and showing the result.

All run in one process and take turns, round after round, so that a busy moment of the machine meets everybody.
Between turns all garbage is collected, untimed. What is imported is frozen (`gc.freeze`), so that a
contestant's collector walks that contestant's objects and nobody else's.
"""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

TIE = 1.5  # shared machines do not tell smaller ratios apart


@dataclass(frozen=True)
class Turn:
    """What a contestant does when it is its turn."""

    run: Callable[[Any], object]  # timed; what it returns is dropped after the clock has stopped
    prepare: Callable[[], Any] = lambda: None  # not timed; makes the argument of `run`
    collector: bool = True  # whether Python's garbage collector runs by itself meanwhile
    count: int = 1  # how often `run` does what is measured
    cores: int | None = None  # to run on; None: wherever the process may


def interleave(turns: Mapping[str, Turn], rounds: int, patience: float, scale: float = 1.0) -> dict[str, list[float]]:
    """The times of every contestant, in seconds times `scale`, divided by its turn's `count`.

    A contestant that has used up `patience` seconds sits out the remaining rounds; all have two turns at least.
    """
    times: dict[str, list[float]] = {name: [] for name in turns}
    spent = dict.fromkeys(turns, 0.0)
    gc.collect()
    gc.freeze()
    try:
        for _ in range(rounds):
            for name, turn in turns.items():
                if len(times[name]) < 2 or spent[name] < patience:
                    gc.collect()  # what others left
                    start = perf_counter()
                    times[name].append(scale * _timed(turn) / turn.count)
                    spent[name] += perf_counter() - start
    finally:
        gc.unfreeze()
    return times


def _timed(turn: Turn) -> float:
    if turn.cores is not None:
        stay_on(turn.cores)
    if not turn.collector:
        gc.disable()
    try:
        argument = turn.prepare()
        start = perf_counter()
        result = turn.run(argument)
        seconds = perf_counter() - start
    finally:
        gc.enable()
    del result, argument
    return seconds


def stay_on(cores: int) -> None:
    """Keep this thread, and those that it starts from here on, on the first so many of the process's cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, _CORES[:cores])


_CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@dataclass
class Report:
    """One table of sections, each a workload with a line a contestant."""

    title: str
    caption: str
    notes: list[str] = field(default_factory=list)
    sections: list[list[tuple[str, ...]]] = field(default_factory=list)
    opening: list[str] = field(default_factory=list)  # lines of markdown before the table

    heading = ("workload", "contestant", "best", "median", "× ours", "turns")

    def add(self, workload: str, measured: Mapping[str, list[float]], ours: str) -> None:
        """A section; ratios are of the best times."""
        lines: list[tuple[str, ...]] = []
        for name, times in measured.items():
            repeated = len(times) > 1
            ratio = _ratio(min(times) / min(measured[ours]), noisy=repeated) if ours in measured else ""
            middle = figure(median(times)) if repeated else ""
            lines.append(("" if lines else workload, name, figure(min(times)), middle, ratio, str(len(times))))
        self.sections.append(lines)

    def markdown(self) -> str:
        lines = [line for section in self.sections for line in section]
        table = markdown_table(self.heading, lines, left=2)
        notes = [f"- {note}" for note in self.notes]
        return "\n".join([f"# {self.title}", "", *self.opening, *table, "", self.caption, "", *notes, ""])

    def show(self) -> None:
        """Print the table, with rich where it is installed."""
        try:
            from rich.console import Console
            from rich.table import Table
        except ImportError:
            print(self.markdown())
            return
        table = Table(title=self.title, caption="\n".join([self.caption, *self.notes]), caption_justify="left")
        for name in self.heading:
            table.add_column(name, justify="left" if name in ("workload", "contestant") else "right")
        for section in self.sections:
            for line in section:
                table.add_row(*line)
            table.add_section()
        Console().print(table)


def markdown_table(heading: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of markdown; all columns but the first `left` are numbers."""
    ruler = ["---" if k < left else "--:" for k in range(len(heading))]
    return [f"| {' | '.join(cells)} |" for cells in (heading, ruler, *lines)]


def figure(number: float) -> str:
    """With three digits or so, and commas."""
    digits = 2 if abs(number) < 10 else 1 if abs(number) < 100 else 0
    return f"{number:,.{digits}f}"


def _ratio(ratio: float, noisy: bool) -> str:
    text = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.1g}"
    return f"{text} tie" if noisy and 1 / TIE < ratio < TIE and ratio != 1.0 else text


def machine() -> str:
    """The processor, the cores and the Python, in a line."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, {python}"


def versions(*packages: str) -> str:
    """What is installed of these, in a line."""
    found = []
    for package in packages:
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    return ", ".join(found)


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"
