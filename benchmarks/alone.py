"""What a contestant costs besides time: `python benchmarks/alone.py WORKLOAD CONTESTANT` prints it as JSON.

It runs in a process of its own, so that nothing else moves its memory and nothing is compiled already. What it imports
is there before the clock starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from contest import Contestant, Runner, Workload, collector, stay_on
from contestants import CONTESTANTS
from workloads import EVERYTHING

STATUS = Path("/proc/self/status")  # Linux


@dataclass(frozen=True)
class Cost:
    """Seconds that the first step takes longer than the next one; and the growth of the process, at its peak."""

    compiling: float
    megabytes: float | None  # None where the system does not say


def cost(workload: Workload, contestant: Contestant) -> Cost:
    """Measured in a process of its own, with no cache of compiled code."""
    command = [sys.executable, __file__, workload.name, contestant.name]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def measure(workload: Workload, contestant: Contestant) -> Cost:
    """In this process."""
    contestant.load(workload)
    problem = workload.problem(workload.examples(contestant))
    stay_on(contestant.cores)
    with collector(contestant):
        before = _forget_peak()
        started = perf_counter()
        runner = contestant.prepare(workload, problem)
        runner.begin()
        runner.run(contestant.at_once)
        first = perf_counter() - started
        again = min(_step(runner, contestant.at_once) for _ in range(2))
        peak = _memory("VmHWM")
    megabytes = None if before is None or peak is None else (peak - before) / 1e6
    return Cost(max(0.0, first - again), megabytes)


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
    print(json.dumps(asdict(measure(chosen, one))))
