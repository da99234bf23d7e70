"""The scoreboard: `python benchmarks/scoreboard.py` runs all, and writes results.md, its picture and the README's part.

Of results.md it replaces what was taken on the same kind of processor. With `--workloads` or `--contestants` it runs
only some, with `--quick` fewer turns, and with `--target` without newer instructions; then it only prints.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from alone import Cost, cost
from contest import Contest, Contestant, Workload
from contestants import CONTESTANTS
from emulation import TARGETS, XLA_FLAGS, pretend, settings
from lines import lines_of
from machine import import_time, kind, machine
from pages import METHOD, Board, Score, mark, method, summary, write_between
from picture import picture
from published import published
from workloads import EVERYTHING

HERE = Path(__file__).parent
RESULTS, README = HERE / "results.md", HERE.parent / "README.md"
PICTURES = HERE.parent / "docs" / "pictures"

ONE_THREAD = {
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"), "1"
    ),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer turns, and neither memory nor compile times")
    options.add_argument("--workloads", nargs="+", metavar="NAME", choices=[w.name for w in EVERYTHING])
    options.add_argument("--contestants", nargs="+", metavar="NAME", choices=[c.name for c in CONTESTANTS])
    options.add_argument("--target", choices=TARGETS, help="leave out what newer processors add to this level")
    given = options.parse_args()
    begin_again({**ONE_THREAD, **(limits(given.target) if given.target else {})})
    pretend()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    scores = [
        score(workload, given.contestants, given.quick)
        for workload in EVERYTHING
        if workload.name in (given.workloads or [workload.name])
    ]
    today, importing = datetime.now(UTC).date().isoformat(), import_time(5 if given.quick else 25)
    board = Board(scores, machine(), kind(), today, load, importing)
    print(*board.results(), *method(), sep="\n")
    if not (given.quick or given.workloads or given.contestants or given.target):
        publish(board)


def limits(target: str) -> dict[str, str]:
    """Settings by which all contestants keep to a target."""
    return {**settings(target), "XLA_FLAGS": f"{ONE_THREAD['XLA_FLAGS']} {XLA_FLAGS}"}


def begin_again(environment: dict[str, str]) -> None:
    """In this environment, if it is another: libraries read it when they are loaded."""
    if not os.environ.items() >= environment.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **environment})


def publish(board: Board) -> None:
    """Other kinds of processors keep their part of results.md. The README shows what stands there."""
    write_between(RESULTS, board.results(), mark(board.kind))
    write_between(RESULTS, method(), mark(METHOD))
    if board.tasks:
        (PICTURES / board.picture).write_text(picture(board))
    write_between(README, summary(published(RESULTS.read_text())))


def score(workload: Workload, names: Iterable[str] | None, quick: bool) -> Score:
    """Run a contest, and measure what its contestants cost besides time."""
    contestants = workload.contestants(CONTESTANTS)
    chosen = [c for k, c in enumerate(contestants) if k == 0 or names is None or c.name in names]
    contest = Contest(workload, chosen)
    print(f"{workload.name}: {len(chosen)} contestants", file=sys.stderr)
    contest.run(*((5, 0.5) if quick else (workload.turns, 3.0)))
    for name, reason in contest.left_out.items():
        print(f"{workload.name}: left out {name}: {reason}", file=sys.stderr)
    took_part = [contestant for contestant in chosen if contestant.name in contest.times]
    lines = {contestant.name: lines_of(contestant, workload) for contestant in took_part}
    return Score(contest, lines, {} if quick else costs(workload, took_part))


def costs(workload: Workload, contestants: Iterable[Contestant]) -> dict[str, Cost]:
    """Of those who can be measured; a long run does not end because one cannot."""
    found = {}
    for contestant in contestants:
        try:
            found[contestant.name] = cost(workload, contestant)
        except subprocess.CalledProcessError as error:
            print(f"{workload.name}: no costs of {contestant.name}: {error.stderr}", file=sys.stderr)
    return found


if __name__ == "__main__":
    main()
