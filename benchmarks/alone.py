"""What a contestant costs besides time: `python benchmarks/alone.py WORKLOAD CONTESTANT < /dev/null` prints it.

It runs in a process of its own, so that nothing else moves its memory and nothing is compiled already. Whatever it has
imported by the end of its first step is there before the clock starts: one process finds out what that is, and prints
what it takes with the imports; the next one is told, and measures. Some packages import everything when they are
imported, and others, such as ours, what they need when they need it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

from contest import Contestant, Runner, Workload, collector, stay_on
from contestants import CONTESTANTS
from workloads import EVERYTHING

STATUS = Path("/proc/self/status")  # Linux
TRIES, LONG = 3, 5.0  # processes that measure it, of which the best counts; seconds, from which one is enough


@dataclass(frozen=True)
class Cost:
    """Seconds that the first step takes longer than the next one; and the growth of the process, at its peak."""

    compiling: float
    megabytes: float | None  # None where the system does not say
    with_imports: float | None = None  # seconds, if what is imported late is part of them
    everything: float | None = None  # seconds, with what only later steps need; None if that is nothing


def cost(workload: Workload, contestant: Contestant) -> Cost:
    """Measured in processes of its own, with no cache of compiled code; what is short, several times."""
    late, imported = _in_a_process(workload, contestant, [])
    tries = TRIES if late.compiling < LONG else 1
    costs = [_in_a_process(workload, contestant, imported)[0] for _ in range(tries)]
    return replace(min(costs, key=lambda one: one.compiling), with_imports=late.compiling)


def _in_a_process(workload: Workload, contestant: Contestant, imported: Iterable[str]) -> tuple[Cost, list[str]]:
    """What it costs if so much is imported, and what is imported in the end."""
    command = [sys.executable, __file__, workload.name, contestant.name]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
        given = json.dumps([*imported])
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, input=given)
    found, modules = json.loads(done.stdout.splitlines()[-1])
    return Cost(**found), modules


def import_all(names: Iterable[str]) -> None:
    """Import modules, but those that are no files, and those that cannot be imported by themselves."""
    for name in names:
        with suppress(Exception):  # a package may hide some of its modules, or want to be asked for them first
            importlib.import_module(name)


def measure(workload: Workload, contestant: Contestant, imported: Iterable[str] = ()) -> Cost:
    """In this process, once so much is imported."""
    contestant.load(workload)
    import_all(imported)
    problem = workload.problem(workload.examples(contestant))
    stay_on(contestant.cores)
    with collector(contestant):
        before = _forget_peak()
        started = perf_counter()
        runner = contestant.prepare(workload, problem)
        runner.begin()
        runner.run(contestant.at_once)
        first = perf_counter() - started
        needs_more = runner.get_ready()
        everything = perf_counter() - started
        again = min(_step(runner, contestant.at_once) for _ in range(2))
        peak = _memory("VmHWM")
    megabytes = None if before is None or peak is None else (peak - before) / 1e6
    return Cost(max(0.0, first - again), megabytes, everything=everything - again if needs_more else None)


def _step(runner: Runner, count: int) -> float:
    runner.begin()
    started = perf_counter()
    runner.run(count)
    return perf_counter() - started


def _forget_peak() -> int | None:
    """Let the highest mark start here; the memory that is resident."""
    if STATUS.exists():
        Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(field: str) -> int | None:
    """A line of the process's status, in bytes."""
    if not STATUS.exists():
        return None
    (kilobytes,) = [line.split()[1] for line in STATUS.read_text().splitlines() if line.startswith(field)]
    return 1024 * int(kilobytes)


if __name__ == "__main__":
    (chosen,) = [workload for workload in EVERYTHING if workload.name == sys.argv[1]]
    (one,) = [contestant for contestant in chosen.contestants(CONTESTANTS) if contestant.name == sys.argv[2]]
    measured = asdict(measure(chosen, one, json.loads(sys.stdin.read() or "[]")))
    print(json.dumps([measured, [*sys.modules]]))
