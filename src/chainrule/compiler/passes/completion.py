"""Completion: a loop of whose threads some end early, with all nodes at all times.

What nobody needs any more is computed all the same, from what the threads say; then every time is like the others. So
that not too much is computed for nobody, the loop becomes several, one after another, each with the threads that are
still needed when it begins.
"""

from __future__ import annotations

from itertools import pairwise
from math import copysign
from typing import Any, NamedTuple

import numpy as np

from chainrule.compiler.passes.loops import Loop, with_bodies
from chainrule.compiler.passes.threads import CONSTANT, FOLLOWS, Threads
from chainrule.compiler.trace.graph import Graph

MOST_LOOPS = 4  # one after another
SHORTEST = 8  # times of each
LESS_WORK = 0.9  # of what fewer loops do, for one more
GRID = 32  # places where a loop may end


def completed(threads: Threads) -> tuple[Graph, list[Loop]] | None:
    """The graph with all nodes of all threads, one time after another, and its loops; None if they do not hold."""
    completion = _Completion(threads)
    loops = with_bodies(completion.graph, completion.loops)
    return (completion.graph, loops) if len(loops) == len(completion.loops) else None


class _Slot(NamedTuple):
    """What an operand of a thread is: of which kind, in which thread and how far back, and the nodes by time."""

    kind: int
    source: int
    lag: int
    reads: list[int]


class _Thread(NamedTuple):
    """The nodes by time, and the operands."""

    nodes: list[int]
    slots: list[_Slot]


class _Completion:
    def __init__(self, threads: Threads) -> None:
        self.given, self.threads = threads.graph, threads.by_number(_Thread, _Slot)
        self.graph = Graph([], [], [])
        self.loops: list[Loop] = []
        self.places: dict[int, int] = {}  # of the given nodes
        self.constants: dict[tuple[int, int, float, float], int] = {}  # what a thread is before it begins: one node
        outside = threads.of < 0
        free, every = outside & ~threads.is_later, np.arange(len(outside))
        same = np.where(free & free[threads.same], threads.same, every)
        self.same: list[int] = same.tolist()
        self.add_all(np.flatnonzero(free & (same == every)).tolist())
        self.add_loops()
        self.add_all(np.flatnonzero(threads.is_later).tolist())

    def add_all(self, nodes: list[int]) -> None:
        given = self.given
        for node in nodes:
            operands = tuple([self.places[self.same[operand]] for operand in given.operands[node]])
            self.places[node] = self.add(given.rules[node], operands, given.nodes[node])

    def add(self, rule: Any, operands: tuple[int, ...], node: Any) -> int:
        graph = self.graph
        graph.rules.append(rule)
        graph.operands.append(operands)
        graph.nodes.append(node)
        return len(graph.rules) - 1

    def add_loops(self) -> None:
        """Add the threads, those first of which a node was made first."""
        order = sorted(self.threads, key=lambda number: self.threads[number].nodes[0])
        self.made: dict[int, list[int]] = {number: [] for number in order}  # places by time
        alive = {number: len(self.threads[number].nodes) for number in order}
        for first, last in pairwise(cuts(np.array([*alive.values()]))):
            body = {number for number in order if alive[number] > first}
            slots = [slot for number in body for slot in self.threads[number].slots]
            body |= {slot.source for slot in slots if slot.kind == FOLLOWS and slot.lag > 1}
            start, needed = len(self.graph), list[int]()
            for time in range(first, last):
                for number in order:
                    if number in body:
                        constants = self.add_thread(number, time)
                        needed += [*[last] * constants, alive[number]]
            loop = Loop(start, len(needed) // (last - first), last - first)
            loop.alive = (np.array(needed[: loop.period]) - first).clip(0)
            self.loops.append(loop)

    def add_thread(self, number: int, time: int) -> int:
        """Add what a thread is at this time, after the constants that it reads, and how many these are."""
        nodes, slots = self.threads[number]
        before = len(self.graph.rules)
        operands = tuple([self.read(slot, time) for slot in slots])
        place = self.add(self.given.rules[nodes[0]], operands, self.given.nodes[nodes[0]])
        self.made[number].append(place)
        if time < len(nodes):
            self.places[nodes[time]] = place
        return place - before

    def read(self, slot: _Slot, time: int) -> int:
        """The place of what an operand is at this time, or of what it was at the last time."""
        latest = slot.reads[min(time, len(slot.reads) - 1)]
        if slot.kind == CONSTANT:
            return self.add("constant", (), self.given.nodes[latest])
        if slot.kind == FOLLOWS and time >= slot.lag:
            made = self.made[slot.source]
            return made[min(time - slot.lag, len(made) - 1)]
        if slot.kind == FOLLOWS and self.given.rules[latest] == "constant":
            number = self.given.nodes[latest].data
            key = slot.source, time - slot.lag, number, copysign(1.0, number)
            return self.places[self.constants.setdefault(key, latest)]
        return self.places[self.same[latest]]


def cuts(alive: np.ndarray) -> list[int]:
    """When to go on with a loop for what is still needed: time 0, some in between, and the end."""
    stop = int(alive.max())
    grid = np.unique(np.linspace(0, stop, min(stop, GRID) + 1).astype(int)).tolist()
    width = {first: int((alive > first).sum()) for first in grid}
    most = max(1, min(MOST_LOOPS, stop // SHORTEST))
    best: dict[int, tuple[int, list[int]]] = {0: (0, [0])}  # where loops end -> how much they do, and their ends
    found: tuple[float, list[int]] = (np.inf, [])
    for _ in range(most):
        ways = [
            (work + (last - first) * width[first], [*ends, last])
            for first, (work, ends) in best.items()
            for last in grid
            if last - first >= SHORTEST or (first, last) == (0, stop)
        ]
        best = {way[1][-1]: way for way in sorted(ways, reverse=True)}
        if stop in best and best[stop][0] < LESS_WORK * found[0]:
            found = best[stop]
    return found[1]
