"""Cones of influence: loops in time whose steps need fewer and fewer numbers.

A wave runs for as many steps as it has cells, and one cell is recorded at the end. Its last step needs one cell, the one
before three, then five: whatever nobody needs is no part of the graph. So no two steps are alike, neither by classes
nor node for node. But each step is a part of the one before. If `u` is the cell that is recorded and `v` the same cell a
step earlier, what `u` reads corresponds to what `v` reads; and so on down to the first step. That is found from one
pair of nodes. The nodes that correspond to each other through time are a *thread*, and where a thread ends early, it is
completed: every step then has all nodes, and is like the others. The loop knows how long each is `alive`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from chainrule.compiler.passes.loops import FARTHEST, Loop, _Columns, _Search, find_leaves
from chainrule.compiler.passes.repeats import firsts
from chainrule.compiler.trace.graph import Graph
from chainrule.ops import Op

FEWEST = 8  # times
MOST_ANCHORS = 16  # nodes near the result to start from
MOST_EARLIER = 6  # nodes that may be one of these, a step earlier
MOST_VISITED = 64  # nodes below it, to look at for these
FEW_PAIRS = 300  # to see whether a pair leads anywhere
MOST_PAIRS, MOST_OF_ONE = 6, 2  # that are followed to their ends, and that begin with one node
LEAST_ALIKE = 0.9  # of the first pairs, of one op
LEAST_COVERED = 0.5  # of all nodes
ALMOST = 0.9  # of the most that any pair covers
LEAST_ALIVE = 0.2  # of all nodes of a completed loop
MOST_PASSES = 12
import os
MOST_LOOPS = int(os.environ.get('CL', 4))  # one after another, each for fewer nodes
SHORTEST = 8  # times of each
LESS_WORK = 0.9


def find_cone(graph: Graph, merges: bool = True) -> tuple[Graph, list[Loop]] | None:
    """A graph that computes the same, with a loop in it that covers most nodes; None if none is seen.

    The leaves of the given graph come first, and so they do in the one that is found.
    """
    if len(graph) < 4 * FEWEST:
        return None
    embedding = _Embeddings(graph).best()
    threads = _Threads(graph, embedding, merges) if embedding else None
    return threads.completed() if threads and threads.are_found() else None


class _Embedding(NamedTuple):
    """For each node the one a step earlier, or -1; and the chain of these that was begun with, from the last step."""

    earlier: list[int]
    chain: list[int]
    covered: int
    unlike: int  # pairs of different ops

    @property
    def rank(self) -> tuple[int, int]:
        """More steps are better, and fewer pairs of different ops."""
        return len(self.chain) - self.unlike, -self.unlike


class _Embeddings:
    """The ways in which the last step of a graph may be a part of the one before."""

    def __init__(self, graph: Graph) -> None:
        self.operands = graph.operands
        numbers = {rule: k for k, rule in enumerate(dict.fromkeys(graph.rules))}
        self.codes = [numbers[rule] for rule in graph.rules]
        for node in graph.silent:
            self.codes[node] += len(numbers)
        self.constant = numbers.get("constant", -1)
        self.root = len(graph) - 1

    def best(self) -> _Embedding | None:
        """Of those that cover almost as much as any, the one with the most steps."""
        found = [self.followed(*pair) for pair in self.pairs()]
        found = [each for each in found if len(each.chain) >= FEWEST]
        most = max([each.covered for each in found], default=0)
        if not most or most < LEAST_COVERED * sum(1 for operands in self.operands if operands):
            return None
        return max([each for each in found if each.covered >= ALMOST * most], key=lambda each: each.rank)

    def pairs(self) -> list[tuple[int, int]]:
        """Nodes near the result, each with one that may be the same a step earlier."""
        found: list[tuple[int, int]] = []
        for node in self.below(self.root, MOST_ANCHORS):
            earlier = [each for each in self.below(node, MOST_VISITED) if each < node and self.alike(node, each)]
            leading = [(node, each) for each in earlier[:MOST_EARLIER] if self.leads_on(node, each)]
            found += leading[:MOST_OF_ONE]
            if len(found) >= MOST_PAIRS:
                break
        return found[:MOST_PAIRS]

    def below(self, node: int, most: int) -> list[int]:
        """Computed nodes from this one on, those first that are nearest."""
        found = [node]
        seen = {node}
        for each in found:
            for operand in self.operands[each]:
                if operand not in seen and self.operands[operand] and len(found) < most:
                    seen.add(operand)
                    found.append(operand)
        return found

    def alike(self, node: int, other: int) -> bool:
        return self.codes[node] == self.codes[other]

    def leads_on(self, node: int, earlier: int) -> bool:
        """Whether the first pairs below this one are of equal ops."""
        begun = {node: earlier}
        queue, seen, alike = [node], 0, 0
        for each in queue:
            if seen >= FEW_PAIRS:
                break
            seen += 1
            other = begun[each]
            if each == other or not self.operands[each]:
                alike += 1
            elif self.alike(each, other):
                alike += 1
                for a, b in zip(self.operands[each], self.operands[other], strict=True):
                    if self.codes[a] == self.constant:
                        continue
                    if a not in begun:
                        begun[a] = b
                        queue.append(a)
                    elif begun[a] != b and self.operands[a]:
                        return False
        return alike >= LEAST_ALIKE * seen

    def followed(self, node: int, earlier: int) -> _Embedding:
        """All that follows from a pair, and from others beside it in the last step."""
        found = [-1] * len(self.codes)
        covered = self.follow(node, earlier, found)
        chain = [node]
        while chain[-1] > (before := found[chain[-1]]) >= 0 and self.alike(chain[-1], before):
            chain.append(before)
        for beside in self.below(self.root, FEW_PAIRS)[1:]:
            if found[beside] < 0 and beside > chain[1]:
                covered += self.beside(beside, found)
        return _Embedding(found, chain, covered, self.unlike(found))

    def unlike(self, found: list[int]) -> int:
        """How many computed nodes are to correspond to computed ones of other ops."""
        pairs = [(node, other) for node, other in enumerate(found) if other >= 0 and self.codes[node] != self.codes[other]]
        return sum(1 for node, other in pairs if self.operands[node] and self.operands[other])

    def beside(self, node: int, found: list[int]) -> int:
        """Follow a node of the last step that lies beside one whose pair is known."""
        for near in self.near(node, found):
            earlier = found[near] + node - near
            if 0 <= earlier < node and self.alike(node, earlier) and self.leads_on(node, earlier):
                return self.follow(node, earlier, found)
        return 0

    def near(self, node: int, found: list[int]) -> Iterator[int]:
        for step in (-1, 1):
            near = node + step
            while 0 <= near < self.root and abs(near - node) < MOST_VISITED and not 0 <= found[near] < near:
                near += step
            if 0 <= near < self.root and 0 <= found[near] < near:
                yield near

    def follow(self, node: int, earlier: int, found: list[int]) -> int:
        """Set for a node, and for what it reads, the nodes a step earlier; how many of them are of equal ops."""
        found[node] = earlier
        operands, codes, constant, covered = self.operands, self.codes, self.constant, 0
        stack = [node]
        while stack:
            each = stack.pop()
            other = found[each]
            if other == each or codes[each] != codes[other] or not operands[each]:
                continue
            covered += 1
            for a, b in zip(operands[each], operands[other], strict=True):
                if found[a] < 0 and codes[a] != constant:
                    found[a] = b
                    stack.append(a)
        return covered


OUTSIDE = -1
CONSTANT, STATIC, MOVING, FOLLOWS, ODD = range(5)


class _Slots(NamedTuple):
    """What threads read, a row for each place of a node's operands; sorted by thread, place and time."""

    thread: np.ndarray
    place: np.ndarray
    time: np.ndarray
    operand: np.ndarray


class _Threads:
    """Nodes that correspond to each other through time."""

    def __init__(self, graph: Graph, embedding: _Embedding, merges: bool = True) -> None:
        self.graph = graph
        self.same = np.array(firsts(graph)) if merges else np.arange(len(graph))
        self.operands = graph.flat_operands
        arity = np.fromiter(map(len, graph.operands), np.int64, len(graph))
        self.starts = np.concatenate([[0], np.cumsum(arity)])
        self.users = np.repeat(np.arange(len(graph)), arity)
        self.places = np.arange(len(self.operands)) - self.starts[self.users]
        self.is_constant = np.array([rule == "constant" for rule in graph.rules])
        ticks = graph.depths[embedding.chain[::-1]]
        self.time = np.searchsorted(ticks, graph.depths, side="left")
        self.window = ticks[1] - ticks[0]
        self.first = ticks[0]
        self.thread = self.numbered(np.array(embedding.earlier))

    def numbered(self, earlier: np.ndarray) -> np.ndarray:
        """The thread of each node."""
        codes = _codes(self.graph)
        nodes = np.flatnonzero((earlier >= 0) & (earlier < np.arange(len(earlier))))
        before = earlier[nodes]
        computed = np.diff(self.starts) > 0
        holds = computed[nodes] & (codes[nodes] == codes[before]) & (self.time[nodes] == self.time[before] + 1)
        nodes, before = nodes[holds], before[holds]
        _, first = np.unique(before[::-1], return_index=True)  # of several, the last
        chosen = len(before) - 1 - first
        thread, count = [OUTSIDE] * len(earlier), 0
        link = dict(zip(nodes[chosen].tolist(), before[chosen].tolist(), strict=True))
        for node in sorted(link, reverse=True):
            if thread[node] < 0:
                thread[node] = count
                count += 1
            thread[link[node]] = thread[node]
        thread[len(earlier) - 1] = OUTSIDE  # the root is nobody's part
        return np.array(thread)

    def add_singles(self) -> None:
        """Nodes of the first time that no other corresponds to, as threads: the widest part of a cone."""
        depths, codes, inside = self.graph.depths, _codes(self.graph), self.thread >= 0
        begin = self.time[inside].min()
        window = (self.time == begin) & (depths > self.first + (begin - 1) * self.window)
        key = codes * (depths.max() + 1) + depths
        alike = np.isin(key, np.unique(key[inside & window]))
        found = np.flatnonzero(window & ~inside & alike & (np.diff(self.starts) > 0))
        found = found[found < len(self.thread) - 1]
        count = int(self.thread.max()) + 1
        self.thread[found] = np.arange(count, count + len(found))
        self.singles = np.zeros(count + len(found), dtype=bool)
        self.singles[count:] = True

    def are_found(self) -> bool:
        """Leave only threads that are part of a loop; whether any are left."""
        if not (self.thread >= 0).any():
            return False
        self.add_singles()
        for _ in range(MOST_PASSES):
            inside = self.thread >= 0
            if not inside.any():
                return False
            count = int(self.thread.max()) + 1
            begin, end = np.full(count, len(self.thread)), np.full(count, -1)
            np.minimum.at(begin, self.thread[inside], self.time[inside])
            np.maximum.at(end, self.thread[inside], self.time[inside])
            living = end >= 0
            self.begin = int(np.bincount(begin[living]).argmax())
            self.thread[inside & (self.time < self.begin)] = OUTSIDE
            odd = living & ((begin > self.begin) | (end < self.begin))
            self.slots(count)
            odd[self.slot_threads[self.kinds == ODD]] = True
            odd |= living & ~self.needs_state(count)
            odd |= self.reads_later(count)
            if not (odd & living).any():
                self.alive = end - self.begin + 1
                return self.is_worth(living)
            self.thread[inside & odd[self.thread]] = OUTSIDE
        return False

    def is_worth(self, living: np.ndarray) -> bool:
        alive = self.alive[living]
        self.count = int(alive.max())
        return self.count >= FEWEST and alive.sum() >= LEAST_ALIVE * self.count * len(alive)

    def slots(self, count: int) -> None:
        """What each place of a thread's nodes reads: of which kind, and for those that follow a thread how far back."""
        rows = np.flatnonzero(self.thread[self.users] >= 0)
        users = self.users[rows]
        order = np.lexsort((-self.time[users], self.places[rows], self.thread[users]))
        rows, users = rows[order], users[order]
        thread, place, time, read = self.thread[users], self.places[rows], self.time[users], self.operands[rows]
        first_equal = self.same[read]
        read = np.where((self.thread[read] < 0) & (self.thread[first_equal] < 0), first_equal, read)
        first = np.concatenate([[True], (np.diff(thread) != 0) | (np.diff(place) != 0)])
        slot = np.cumsum(first) - 1
        last = np.flatnonzero(first)[slot]  # the same at the last time
        source, lag = self.thread[read], time - self.time[read]
        outside, constant = source < 0, self.is_constant[read]
        follows = (source == source[last]) & (lag == lag[last]) & ~outside
        follows |= outside & ~constant & (time - self.begin < lag[last])
        follows &= ~outside[last] & (lag[last] >= 0) & (lag[last] <= FARTHEST)

        def always(holds: np.ndarray) -> np.ndarray:
            return np.logical_and.reduceat(holds, np.flatnonzero(first))

        kinds = np.full(int(slot[-1]) + 1, ODD)
        kinds[always(outside & ~constant)] = MOVING
        kinds[always(outside & (read == read[last]))] = STATIC
        kinds[always(constant)] = CONSTANT
        kinds[always(follows)] = FOLLOWS
        self.kinds, self.slot_of_row, self.rows = kinds, slot, (thread, place, time, read)
        heads = np.flatnonzero(first)
        self.slot_threads, self.slot_places = thread[heads], place[heads]
        self.slot_sources, self.slot_lags = source[heads], lag[heads]
        self.let_singles_follow(slot)

    def let_singles_follow(self, slot: np.ndarray) -> None:
        """What a single reads of the first state, others of its kind read of a thread: so may it."""
        thread, place, time, read = self.rows
        begins = time == self.begin
        first_rows = np.flatnonzero(begins)
        begin_of = np.full(len(self.singles), -1)
        nodes = np.flatnonzero((self.thread >= 0) & (self.time == self.begin))
        begin_of[self.thread[nodes]] = nodes
        depths, codes = self.graph.depths, _codes(self.graph)

        def role(row: int) -> tuple[int, int, int]:
            node = begin_of[thread[row]]
            return int(codes[node]), int(depths[node]), int(place[row])

        firsts: dict[tuple[int, int], int] = {}  # a node that is read first, and how far back -> the thread
        lags: dict[tuple[int, int, int], int] = {}
        for row in first_rows.tolist():
            k = int(slot[row])
            if self.kinds[k] == FOLLOWS and (lag := int(self.slot_lags[k])):
                firsts[int(read[row]), lag] = int(self.slot_sources[k])
                lags[role(row)] = lag
        for row in first_rows[self.singles[thread[first_rows]]].tolist():
            k = int(slot[row])
            lag = lags.get(role(row), 0)
            if self.kinds[k] == STATIC and lag and (int(read[row]), lag) in firsts:
                self.kinds[k], self.slot_lags[k] = FOLLOWS, lag
                self.slot_sources[k] = firsts[int(read[row]), lag]

    def needs_state(self, count: int) -> np.ndarray:
        """Which threads need something of an earlier time."""
        follows = self.kinds == FOLLOWS
        found = np.zeros(count, dtype=bool)
        found[self.slot_threads[follows & (self.slot_lags > 0)]] = True
        here = follows & (self.slot_lags == 0)
        users, sources = self.slot_threads[here], self.slot_sources[here]
        handed = self.slot_sources[follows & (self.slot_lags > 0)]
        is_handed = np.zeros(count, dtype=bool)
        is_handed[handed] = True
        is_handed &= self.singles[:count]
        before = -1
        while before != (before := int(is_handed.sum())):
            is_handed[sources[is_handed[users] & self.singles[sources]]] = True
        found |= is_handed
        before = -1
        while before != (before := int(found.sum())):
            found[users[found[sources]]] = True
        return found

    def reads_later(self, count: int) -> np.ndarray:
        """Which threads read something from outside that needs them."""
        inside = self.thread >= 0
        needs = inside.tolist()
        for node, operands in enumerate(self.graph.operands):
            if not needs[node]:
                for operand in operands:
                    if needs[operand]:
                        needs[node] = True
                        break
        self.is_later = np.array(needs) & ~inside
        thread, _, _, read = self.rows
        found = np.zeros(count, dtype=bool)
        found[thread[self.is_later[read]]] = True
        return found

    def completed(self) -> tuple[Graph, list[Loop]] | None:
        """The graph with all nodes of all threads at all times, one time after another, and the loop."""
        completion = _Completion(self)
        search = _Search(completion.graph, is_inside=False)
        loops = []
        for given in completion.loops:
            loop = _Columns(search, given).loop()
            if loop is None or not loop.kept.all():
                return None
            loops.append(loop)
        return completion.graph, loops


class _Completion:
    """The completed graph."""

    def __init__(self, threads: _Threads) -> None:
        given = threads.graph
        self.given, self.threads = given, threads
        self.rules: list[Any] = []
        self.operands: list[tuple[int, ...]] = []
        self.nodes: list[Any] = []
        self.places: dict[int, int] = {}
        inside = threads.thread >= 0
        free = ~inside & ~threads.is_later
        self.same = np.where(free & free[threads.same], threads.same, np.arange(len(inside)))
        before = np.flatnonzero(free & (self.same == np.arange(len(inside)))).tolist()
        after = np.flatnonzero(threads.is_later).tolist()
        self.add_all(before)
        self.loops: list[Loop] = []
        self.add_loops()
        self.add_all(after)
        self.graph = Graph(self.rules, self.operands, self.nodes)

    def add_all(self, nodes: Sequence[int]) -> None:
        given = self.given
        for node in nodes:
            self.add(given.rules[node], tuple([self.places[self.same[k]] for k in given.operands[node]]), given.nodes[node], node)

    def add(self, rule: Any, operands: tuple[int, ...], node: Any, place: int | None = None) -> int:
        if place is not None:
            self.places[place] = len(self.rules)
        self.rules.append(rule)
        self.operands.append(operands)
        self.nodes.append(node)
        return len(self.rules) - 1

    def add_loops(self) -> None:
        threads, given = self.threads, self.given
        begin, count = threads.begin, threads.count
        nodes: dict[int, dict[int, int]] = {}  # thread -> time -> node
        for node in np.flatnonzero(threads.thread >= 0).tolist():
            nodes.setdefault(int(threads.thread[node]), {})[int(threads.time[node]) - begin] = node
        slots: dict[int, list[int]] = {thread: [] for thread in nodes}
        for slot, thread in enumerate(threads.slot_threads.tolist()):
            slots[thread].append(slot)
        reads: list[dict[int, int]] = [{} for _ in threads.kinds]  # slot -> time -> node
        _, _, time, read = threads.rows
        for slot, when, node in zip(
            threads.slot_of_row.tolist(), (time - begin).tolist(), read.tolist(), strict=True
        ):
            reads[slot][when] = node
        order = sorted(nodes, key=lambda thread: nodes[thread][0])
        kinds, lags, sources = threads.kinds.tolist(), threads.slot_lags.tolist(), threads.slot_sources.tolist()
        made: dict[int, list[int]] = {thread: [] for thread in order}
        alive = np.array([len(nodes[thread]) for thread in order])
        for first, last in pairwise(cuts(alive, count)):
            own = {thread for thread in order if len(nodes[thread]) > first}
            far = {sources[slot] for thread in own for slot in slots[thread] if kinds[slot] == FOLLOWS and lags[slot] > 1}
            start, length = len(self.rules), []
            for when in range(first, last):
                for thread in order:
                    if thread not in own and thread not in far:
                        continue
                    members = nodes[thread]
                    operands = []
                    for slot in slots[thread]:
                        latest = reads[slot].get(when, reads[slot][len(members) - 1])
                        if kinds[slot] == CONSTANT:
                            operands.append(self.add("constant", (), given.nodes[latest]))
                            length.append(last)
                        elif kinds[slot] == FOLLOWS and when >= lags[slot]:
                            source = made[sources[slot]]
                            operands.append(source[min(when - lags[slot], len(source) - 1)])
                        else:
                            operands.append(self.places[self.same[latest]])
                    rule, node = given.rules[members[0]], members.get(when)
                    made[thread].append(self.add(rule, tuple(operands), given.nodes[members[0]], node))
                    length.append(len(members))
            period = len(length) // (last - first)
            loop = Loop(start, period, last - first)
            loop.alive = (np.array(length[:period]) - first).clip(0)
            self.loops.append(loop)


def cuts(alive: np.ndarray, count: int) -> list[int]:
    """When to go on with a loop for what is still needed: the first time, some in between, and the end."""
    most = max(1, min(MOST_LOOPS, count // SHORTEST))
    grid = np.unique(np.linspace(0, count, min(count, 32) + 1).astype(int)).tolist()
    width = [int((alive > time).sum()) for time in grid]
    best: dict[tuple[int, int], tuple[float, list[int]]] = {(0, 0): (0.0, [0])}
    for loops in range(1, most + 1):
        for k in range(1, len(grid)):
            ways = [
                (best[loops - 1, j][0] + (grid[k] - grid[j]) * width[j], [*best[loops - 1, j][1], grid[k]])
                for j in range(k)
                if (loops - 1, j) in best and grid[k] - grid[j] >= SHORTEST
            ]
            if ways:
                best[loops, k] = min(ways)
    ends = [best[loops, len(grid) - 1] for loops in range(1, most + 1) if (loops, len(grid) - 1) in best]
    found = ends[0] if ends else (0.0, [0, count])
    for other in ends[1:]:
        if other[0] < LESS_WORK * found[0]:
            found = other
    return found[1]


def _codes(graph: Graph) -> np.ndarray:
    numbers = {rule: k for k, rule in enumerate(dict.fromkeys(graph.rules))}
    found = np.fromiter(map(numbers.__getitem__, graph.rules), np.int64, len(graph))
    found[list(graph.silent)] += len(numbers)
    return found
