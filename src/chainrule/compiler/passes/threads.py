"""Threads: the nodes of a graph that correspond to each other from time to time, and what they read.

`cones` finds for each node the one that it corresponds to a step earlier. Here these become threads through time, and
what a thread reads is one thing at all times: a constant, the same node, nodes from before the loop, or another thread,
at the same time or up to two times back. A thread for which that does not hold is given up, and its nodes stay outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from chainrule.compiler.passes.loops import FARTHEST
from chainrule.compiler.trace.graph import Graph

FEWEST = 8  # times
LEAST_ALIVE, MOST_ALIVE = 0.2, 0.95  # of all nodes of all threads at all times
MOST_PASSES = 12  # until all threads that are left hold
S = TypeVar("S")
T = TypeVar("T")
OUTSIDE = -1  # in place of a thread
CONSTANT, STATIC, MOVING, FOLLOWS, ODD = range(5)  # what a slot reads; odd is whatever is none of the others


class Threads:
    """The threads of a graph, by number. A *slot* is one operand of a thread, at all times; they are numbered too."""

    def __init__(self, graph: Graph, same: np.ndarray) -> None:
        self.graph = graph
        self.same = same  # for each node the first that is equal to it
        self.operands = graph.flat_operands
        arity = np.fromiter(map(len, graph.operands), np.int64, len(graph))
        self.computed = arity > 0
        self.users = np.repeat(np.arange(len(graph)), arity)
        self.places = np.arange(len(self.operands)) - np.repeat(np.cumsum(arity) - arity, arity)
        self.is_constant = np.array([rule == "constant" for rule in graph.rules])
        numbers = {rule: k for k, rule in enumerate(dict.fromkeys(graph.rules))}
        self.codes = np.fromiter(map(numbers.__getitem__, graph.rules), np.int64, len(graph))
        self.codes[list(graph.silent)] += len(numbers)
        self.of = np.full(len(graph), OUTSIDE)  # node -> thread
        self.count = 0

    def link(self, earlier: Mapping[int, int]) -> None:
        """Number the threads of nodes that correspond to each other."""
        nodes, before = np.array([*earlier.keys()]), np.array([*earlier.values()])
        holds = (before < nodes) & self.computed[nodes] & (self.codes[nodes] == self.codes[before])
        nodes, before = nodes[holds], before[holds]
        self.tell_time(dict(zip(nodes.tolist(), before.tolist(), strict=True)))
        holds = self.time[nodes] == self.time[before] + 1
        nodes, before = nodes[holds], before[holds]
        link = dict(zip(before.tolist(), nodes.tolist(), strict=True))  # of several nodes, the last counts
        thread = self.of.tolist()
        for node, later in sorted(link.items(), key=lambda pair: pair[1], reverse=True):
            if thread[later] < 0:
                thread[later] = self.count
                self.count += 1
            thread[node] = thread[later]
        self.shorten({later: node for node, later in link.items()}, thread)
        self.of = np.array(thread)
        if self.of[-1] >= 0:  # the root is nobody's part, and what only it reads would be stored for it at all times
            self.of[self.time == self.time[-1]] = OUTSIDE
        if self.count:
            self.link_singles()

    def shorten(self, earlier: Mapping[int, int], thread: list[int]) -> None:
        """Let threads end before a last node that does not read the threads that the one before it does.

        Such a node is no part of the last step, but of what is made of it: sums of its numbers may look like a step.
        """
        operands, ends = self.graph.operands, sorted(earlier.keys() - earlier.values())
        for _ in range(MOST_PASSES):
            before = [earlier.get(end, OUTSIDE) for end in ends]
            pairs = [(end, node) for end, node in zip(ends, before, strict=True) if node >= 0]
            ends = []
            for end, node in pairs:
                if any(0 <= thread[b] != thread[a] for a, b in zip(operands[end], operands[node], strict=True)):
                    thread[end] = OUTSIDE
                    end = node
                ends.append(end)

    def tell_time(self, earlier: Mapping[int, int]) -> None:
        """When each node is computed: as early as can be, but a time after the one that it corresponds to.

        And in how many steps from what was computed before that time. (Steps from the leaves do not tell the time:
        beside an end that is held, they are fewer.)
        """
        time: list[int] = []
        depth: list[int] = []
        for node, operands in enumerate(self.graph.operands):
            now, below = 0, -1
            for operand in operands:
                if time[operand] > now:
                    now, below = time[operand], depth[operand]
                elif time[operand] == now and depth[operand] > below:
                    below = depth[operand]
            before = earlier.get(node, -1)
            if before >= 0 and time[before] >= now:
                now, below = time[before] + 1, -1
            time.append(now)
            depth.append(below + 1)
        self.time, self.depth = np.array(time), np.array(depth)

    def link_singles(self) -> None:
        """Nodes of the first time that no other corresponds to, as threads: the widest part of a cone."""
        inside = self.of >= 0
        window = (self.time == self.time[inside].min()) & self.computed
        kind = self.codes * (int(self.depth.max()) + 1) + self.depth
        found = np.flatnonzero(window & ~inside & np.isin(kind, np.unique(kind[inside & window])))
        read = np.zeros(len(self.of), dtype=np.int64)  # at which time a node, or an equal one, is read at last
        np.maximum.at(read, self.same[self.operands], self.time[self.users])
        is_static = read[self.same] > self.time + FARTHEST
        is_static[-1] = True
        found = found[~is_static[found]]
        self.singles = np.arange(self.count + len(found)) >= self.count
        self.of[found] = np.arange(self.count, self.count + len(found))
        self.count += len(found)

    def hold(self) -> bool:
        """Whether some threads are left once those are given up that do not hold."""
        for _ in range(MOST_PASSES):
            inside = self.of >= 0
            if not inside.any():
                return False
            begin, self.end = np.full(self.count, len(self.of)), np.full(self.count, -1)
            np.minimum.at(begin, self.of[inside], self.time[inside])
            np.maximum.at(self.end, self.of[inside], self.time[inside])
            living = self.end >= 0
            self.start = int(np.bincount(begin[living]).argmax())
            self.of[inside & (self.time < self.start)] = OUTSIDE
            odd = (begin > self.start) | (self.end < self.start)
            self.find_slots()
            odd[self.slot_thread[self.kinds == ODD]] = True
            odd |= ~self._need_state()
            if not (odd & living).any():  # once these are given up, others may need nothing later any more
                odd = self._need_later()
            if not (odd & living).any():
                return self._are_worth(living)
            self.of[inside & odd[self.of]] = OUTSIDE
        return False

    def _are_worth(self, living: np.ndarray) -> bool:
        self.stop = int(self.end[living].max()) + 1
        self.size = int((self.of >= 0).sum())
        count, alive = self.stop - self.start, (self.end - self.start + 1)[living]
        return count >= FEWEST and bool(LEAST_ALIVE <= alive.mean() / count <= MOST_ALIVE)

    def by_number(self, thread: Callable[..., T], slot: Callable[..., S]) -> dict[int, T]:
        """Each `thread` of its nodes and slots; each `slot` of its kind, source and lag, and of what it reads."""
        inside = np.flatnonzero(self.of >= 0)
        inside = inside[np.argsort(self.time[inside], kind="stable")]
        nodes: dict[int, list[int]] = {}
        for number, node in zip(self.of[inside].tolist(), inside.tolist(), strict=True):
            nodes.setdefault(number, []).append(node)
        reads: list[list[int]] = [[] for _ in self.kinds]
        for k, read in zip(self.slot[::-1].tolist(), self.slot_read[::-1].tolist(), strict=True):
            reads[k].append(read)  # the first time first
        slots: dict[int, list[S]] = {number: [] for number in nodes}
        columns = self.slot_thread.tolist(), self.kinds.tolist(), self.sources.tolist(), self.lags.tolist(), reads
        for number, *own in zip(*columns, strict=True):
            slots[number].append(slot(*own))
        return {number: thread(nodes[number], slots[number]) for number in nodes}

    def find_slots(self) -> None:
        """What each slot reads, row by row, the last time first; of which kind that is, and whom it follows."""
        rows = np.flatnonzero(self.of[self.users] >= 0)
        order = np.lexsort((-self.time[self.users[rows]], self.places[rows], self.of[self.users[rows]]))
        rows = rows[order]
        users, place, read = self.users[rows], self.places[rows], self.operands[rows]
        read = np.where((self.of[read] < 0) & (self.of[self.same[read]] < 0), self.same[read], read)
        thread, time = self.of[users], self.time[users]
        begins = np.concatenate([[True], (np.diff(thread) != 0) | (np.diff(place) != 0)])
        heads, slot = np.flatnonzero(begins), np.cumsum(begins) - 1
        source, lag = self.of[read], time - self.time[read]
        its_source, its_lag = source[heads][slot], lag[heads][slot]
        outside, constant = source < 0, self.is_constant[read]
        follows = ~outside & (source == its_source) & (lag == its_lag)
        follows |= outside & (time - its_lag < self.start)  # before that thread begins
        follows &= (its_source >= 0) & (its_lag >= 0) & (its_lag <= FARTHEST)
        self.kinds = np.full(len(heads), ODD)
        for kind, holds in (
            (MOVING, outside & ~constant),
            (STATIC, outside & (read == read[heads][slot])),
            (CONSTANT, constant),
            (FOLLOWS, follows),
        ):
            self.kinds[np.logical_and.reduceat(holds, heads)] = kind
        self.slot, self.slot_time, self.slot_read = slot, time, read
        self.slot_thread, self.slot_place = thread[heads], place[heads]
        self.sources, self.lags = source[heads], lag[heads]
        self._let_singles_follow()

    def _let_singles_follow(self) -> None:
        """What others of their kind read of a thread, singles read of it too: before it begins."""
        rows = np.flatnonzero(self.slot_time == self.start)
        node = np.full(self.count, -1)
        inside = np.flatnonzero((self.of >= 0) & (self.time == self.start))
        node[self.of[inside]] = inside
        slots = self.slot[rows]
        users = node[self.slot_thread[slots]]
        roles = zip(
            self.codes[users].tolist(),
            self.depth[users].tolist(),
            self.slot_place[slots].tolist(),
            strict=True,
        )
        lags: dict[tuple[int, int, int], int] = {}
        first: dict[tuple[int, int], int] = {}  # a node, and how far back it is read -> the thread in whose place
        waiting = []
        for slot, read, role in zip(slots.tolist(), self.slot_read[rows].tolist(), roles, strict=True):
            if self.kinds[slot] == FOLLOWS and (lag := int(self.lags[slot])):
                lags[role] = lag
                first[read, lag] = int(self.sources[slot])
            elif self.kinds[slot] == STATIC and self.singles[self.slot_thread[slot]]:
                waiting.append((slot, read, role))
        for slot, read, role in waiting:
            lag = lags.get(role, 0)
            if (read, lag) in first:
                self.kinds[slot], self.lags[slot], self.sources[slot] = FOLLOWS, lag, first[read, lag]

    def _need_state(self) -> np.ndarray:
        """Which threads need something of an earlier time, or hand over what others need then."""
        follows = self.kinds == FOLLOWS
        back, here = follows & (self.lags > 0), follows & (self.lags == 0)
        users, sources = self.slot_thread[here], self.sources[here]
        found = np.zeros(self.count, dtype=bool)
        found[self.sources[back]] = True
        found &= self.singles
        _spread(found, sources, users, self.singles)
        found[self.slot_thread[back]] = True
        return _spread(found, users, sources, np.ones(self.count, dtype=bool))

    def _need_later(self) -> np.ndarray:
        """Which threads read something from outside that needs threads itself."""
        inside = self.of >= 0
        needs = inside.tolist()
        for node, operands in enumerate(self.graph.operands):
            if not needs[node]:
                for operand in operands:
                    if needs[operand]:
                        needs[node] = True
                        break
        self.is_later = np.array(needs) & ~inside
        found = np.zeros(self.count, dtype=bool)
        found[self.slot_thread[self.slot[self.is_later[self.slot_read]]]] = True
        return found


def _spread(found: np.ndarray, targets: np.ndarray, sources: np.ndarray, among: np.ndarray) -> np.ndarray:
    """What is found, with all targets of what is found, if they are among these."""
    before = -1
    while before != (before := int(found.sum())):
        found[targets[found[sources] & among[targets]]] = True
    return found


def find_threads(graph: Graph, earlier: Mapping[int, int], same: np.ndarray) -> Threads | None:
    """The threads of nodes that correspond to `earlier` ones, if some hold; equal nodes are the `same`."""
    threads = Threads(graph, same)
    threads.link(earlier)
    return threads if threads.count and threads.hold() else None
