"""Batches over threads. What is added in which order never depends on the number of threads.

A batch is a sequence of runs, each given by the number of its first example. Neighbouring runs form a section. Each
section is summed separately, and each thread takes the same number of sections.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

A = TypeVar("A")
T = TypeVar("T")

WORTH_A_THREAD = 4e-4  # seconds of work: several times what it takes to wake one
GUESS = 2e-5  # seconds per run, until one has been timed
AT_ONCE = 512  # approximate runs per call of compiled code: at each call, threads wait for each other
SECTIONS = 64  # at most, each of at least RUNS runs
RUNS = 4


def threads_for(firsts: range, wanted: int | None, seconds: float | None = None) -> int:
    """How many threads to use: as wanted, else one per core where that pays. All but the last have the same share.

    `seconds` is the time per run, if known.
    """
    wanted = threads_worth(len(firsts) * (seconds or GUESS), wanted)
    count = _divided(len(firsts), _runs_of_a_section(len(firsts)))
    return _divided(count, _divided(count, min(wanted, count)))


def threads_worth(seconds: float, wanted: int | None) -> int:
    """How many threads to use for work of so many seconds: as wanted, else one per core where that pays."""
    if wanted is not None:
        return wanted
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(seconds / WORTH_A_THREAD)))


def dealt(costs: Sequence[float], threads: int) -> list[list[int]]:
    """Works of these costs, by their places, in a share for each thread: the longest first, to whoever has least.

    >>> dealt([1.0, 5.0, 3.0, 2.0], 2)
    [[1, 0], [2, 3]]
    """
    shares: list[list[int]] = [[] for _ in range(max(1, min(threads, len(costs))))]
    loads = [0.0] * len(shares)
    for place in sorted(range(len(costs)), key=lambda place: -costs[place]):
        least = loads.index(min(loads))
        shares[least].append(place)
        loads[least] += costs[place]
    return shares


def in_shares(shares: Sequence[list[int]], work: Callable[[int], T]) -> dict[int, T]:
    """What `work(place)` returns for all places; each share has its own thread."""

    def together(share: list[int]) -> list[tuple[int, T]]:
        return [(place, work(place)) for place in share]

    mine, *others = shares
    waiting = [_workers.submit(together, share) for share in others]
    try:
        return dict([*together(mine), *(found for part in waiting for found in part.result())])
    finally:
        wait(waiting)


def spread(firsts: range, team: Sequence[A], read: Callable[[A, range, int], list[T]]) -> list[T]:
    """What `read(member, runs, section)` returns for all runs, in order; each member of the team has its own thread.

    It is given some sections together, by the first examples of their runs, and how many runs a section has.
    """
    section = _runs_of_a_section(len(firsts))
    at_once = section * max(1, AT_ONCE // section)
    share = section * _divided(_divided(len(firsts), section), len(team))

    def work(member: A, runs: range) -> list[T]:
        return [found for part in pieces(runs, at_once) for found in read(member, part, section)]

    mine, *others = zip(team, pieces(firsts, share), strict=True)
    if not others:
        return work(*mine)
    waiting = [_workers.submit(work, *pair) for pair in others]  # compiled code runs without the GIL
    try:
        return [*work(*mine), *(found for part in waiting for found in part.result())]
    finally:
        wait(waiting)


def check_threads(threads: Any) -> None:
    """Refuse an invalid number of threads."""
    try:
        fine = threads is None or operator.index(threads) >= 1
    except TypeError:
        fine = False
    if not fine:
        raise ValueError(f"`threads` must be a whole number of at least 1, or None for as many as pay; got {threads!r}")


def _runs_of_a_section(runs: int) -> int:
    """How many runs form a section. The number of sections is a power of two, which 2, 4 or 8 threads share equally."""
    count = 2 ** max(0, (runs // RUNS).bit_length() - 1)
    return _divided(runs, min(count, SECTIONS))


def pieces(firsts: range, length: int) -> list[range]:
    """Runs in pieces of that many; the last may be shorter."""
    return [firsts[start : start + length] for start in range(0, len(firsts), length)]


def _divided(count: int, parts: int) -> int:
    """The quotient, rounded up."""
    return -(-count // parts)


def _start_afresh() -> None:
    """A new pool of threads, none started yet. They are kept: starting one takes as long as thousands of examples."""
    global _workers
    _workers = ThreadPoolExecutor(SECTIONS, "chainrule")


_workers: ThreadPoolExecutor
_start_afresh()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)  # a child process has none of its parent's threads
