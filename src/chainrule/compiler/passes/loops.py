"""Finding loops by their nodes: a program that repeats node for node, whatever classes the nodes are of.

On a grid with a fixed boundary, cells near the boundary read a leaf where others read the step before. So they are
classes of their own, more of them in each step, and classes show no pattern. The nodes do: from each time to the next,
an operand is the node one period later, or stays the same, or is something from before the loop. What one time hands to
the next, with what lies beside it and never changes, is one array: the *state*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.recurrence import candidates, mixed, stretches
from chainrule.compiler.trace.graph import Graph

FEWEST = 4  # times that make a loop worthwhile
FARTHEST = 2  # times back that a loop may read
LEAST_HANDED_OVER = 0.03  # of a time's nodes, in a loop that is surely sequential
MOST_LOOPS, NODES_OF_MANY = 1000, 600  # if there are more, of fewer nodes each, their statements are too many for LLVM
MOST_OPERANDS = 3  # of a node in a loop, to look at when periods are sought
MOST_FAR = 0.05  # of what is read, from further back
STATE, MOVING = -1, -2  # in place of classes
BESIDE = -1, 0  # in place of an offset in the body, and of how many times back
SKIPPED = [(first, last) for first in range(3) for last in range(3)]  # times that may differ, at the ends


class Held(NamedTuple):
    """An element of the state: a node from before the loop that it is at first, and where later times have it from.

    That is a `node` of the time before (its offset in the body), or if there is none an `element` of the state.
    """

    first: int
    node: int | None
    element: int


class Loop:
    """Nodes from `start` on that repeat every `period`, `count` times; some of them may be left outside.

    `operands` has what each node of the body reads: a node of the body, by its offset, or a leaf of the body. A leaf is
    an element of the state ("x", k), something that does not change ("s", k), or another thing each time ("y", k).
    """

    def __init__(self, start: int, period: int, count: int) -> None:
        self.start, self.period, self.count = start, period, count
        self.kept = np.ones(period, dtype=bool)  # which nodes of a time are part of the body
        self.operands: list[list[Any]] = []
        self.state: list[Held] = []
        self.statics: list[int] = []  # nodes from before the loop
        self.moving: list[tuple[int, ...]] = []  # the same, one for each time
        self.is_sum = False  # whether times only add up: then they can be done at once, and are left to classes
        self.alive: np.ndarray | None = None  # for how many times each node of the body is needed, if not for all

    @property
    def stop(self) -> int:
        """The node after the last one."""
        return self.start + self.period * self.count

    @property
    def reads(self) -> list[int]:
        """The nodes from before the loop: what the state is at first, what does not change, and what does by time."""
        by_time = [nodes[time] for time in range(self.count) for nodes in self.moving]
        return [*(held.first for held in self.state), *self.statics, *by_time]

    @property
    def is_sequential(self) -> bool:
        """Whether a time needs much of the one before, so that times are hardly to be done side by side."""
        return len(self.state) >= LEAST_HANDED_OVER * int(self.kept.sum())

    @property
    def size(self) -> int:
        """How many nodes it replaces."""
        return int(self.kept.sum()) * self.count

    def verify(self, graph: Graph) -> Loop:
        """This loop, if it holds in `graph`: at every time, the nodes of the body read what `operands` says."""
        for time in range(self.count):
            begin = self.start + time * self.period
            for offset in np.flatnonzero(self.kept).tolist():
                expected = tuple([self.at(time, operand) for operand in self.operands[offset]])
                if graph.operands[begin + offset] != expected:
                    raise AssertionError(f"{self}: node {begin + offset} does not read {expected}")
        return self

    def at(self, time: int, operand: Any) -> int:
        """The node that an operand is at some time."""
        if isinstance(operand, int):
            return self.start + time * self.period + operand
        array, k = operand[0], int(operand[1])
        if array != "x":
            return self.statics[k] if array == "s" else self.moving[k][time]
        first, node, element = self.state[k]
        if time == 0:
            return first
        return self.at(time - 1, ("x", element)) if node is None else self.at(time - 1, node)

    def __repr__(self) -> str:
        return f"nodes {self.start}-{self.start + self.period - 1}, {self.kept.sum()} of them, {self.count} times"


def is_leaf(rule: Any) -> bool:
    """Whether it is the kind of a leaf, and not of a constant."""
    return isinstance(rule, str) and rule != "constant"


def find_leaves(graph: Graph) -> list[int]:
    """The leaves of a graph, except constants."""
    return [place for place in graph.leaf_places if graph.rules[place] != "constant"]


def find_loops(graph: Graph, inside: bool = False) -> list[Loop]:
    """The loops in a graph whose leaves come first; they do not overlap.

    Of loops in loops, those that are found are the outer ones, and hardly anything is read from further back than two
    times. Or they are those `inside`: one of them may read what another has computed, as sweeps forth and back do in
    the steps of an implicit scheme. Very many small ones count as none.
    """
    return _Search(graph, inside).found() if any(graph.operands) else []


def with_bodies(graph: Graph, loops: Sequence[Loop]) -> list[Loop]:
    """Loops of which only it is known where they are, with their bodies; those that hold in all of their nodes."""
    search = _Search(graph, is_inside=False)
    found = [_Columns(search, loop).loop() for loop in loops]
    return [loop for loop in found if loop is not None and loop.kept.all()]


class _Search:
    def __init__(self, graph: Graph, is_inside: bool) -> None:
        self.graph, self.is_inside = graph, is_inside
        self.first = len(find_leaves(graph))  # node that is no leaf
        self.numbers = {rule: k for k, rule in enumerate(dict.fromkeys(graph.rules))}
        self.codes = np.fromiter(map(self.numbers.__getitem__, graph.rules), np.int64, len(graph))
        self.codes[list(graph.silent)] += len(self.numbers)
        arity = np.fromiter(map(len, graph.operands), np.int64, len(graph))
        self.starts = np.concatenate([[0], np.cumsum(arity)])
        self.operands = graph.flat_operands
        self.users = np.repeat(np.arange(len(graph)), arity)
        self.uses = np.bincount(self.operands, minlength=len(graph))
        self.last_user = np.full(len(graph), len(graph))
        self.last_user[self.operands] = self.users

    def found(self) -> list[Loop]:
        loops: list[Loop] = []
        most = max(MOST_LOOPS, len(self.codes) // NODES_OF_MANY)
        free = np.arange(len(self.codes)) >= self.first
        free[-1] = False  # the root is nobody's part
        for period in self.periods():
            same = (self.codes[:-period] == self.codes[period:]) & free[:-period] & free[period:]
            taken = 0  # where the last loop of this period ends: the next stretch may begin before that
            for start, stop in stretches(same, (FEWEST - 1) * period):
                start, stop = max(start, taken), stop + period
                loop = self.shortest(start, stop, period) if stop - start >= FEWEST * period else None
                if loop is not None:
                    loops += [] if loop.is_sum else [loop]
                    free[loop.start : loop.stop] = False
                    taken = loop.stop
                if len(loops) > most:
                    return []
        return sorted(loops, key=lambda loop: loop.start)

    def periods(self) -> list[int]:
        """Periods to try: of loops inside others the shortest first, or those from which hardly anything is too far."""
        distance = np.where(self.operands < self.first, 0, self.users - self.operands)
        distance[np.bincount(distance)[distance] < FEWEST] = 0  # something from before a loop, as every leaf is
        form, arity = self.codes.astype(np.uint64), np.diff(self.starts)
        for place in range(MOST_OPERANDS):
            has = arity > place
            part = np.full(len(form), -1)
            part[has] = distance[self.starts[:-1][has] + place]
            form = mixed(form, part)
        found = candidates(form[self.first :], many=self.is_inside)
        if self.is_inside:
            return sorted(found)
        near = np.sort(distance[distance > 0])
        far = len(near) - np.searchsorted(near, (FARTHEST + 1) * np.array(found, dtype=np.int64), side="right")
        return [period for period, k in zip(found, far.tolist(), strict=True) if k <= MOST_FAR * len(near)]

    def shortest(self, start: int, stop: int, period: int) -> Loop | None:
        """The loop in a stretch of equal ops; where a part of the period is one that covers as much, that loop."""
        best = self.loop(start, stop, period)
        if best is None or best.is_sum:
            return best
        for parts in range(2, period // 2 + 1):
            while best.period % parts == 0 and self.is_made_of(parts, best, start):
                loop = self.loop(start, stop, best.period // parts)
                if loop is None or loop.size < best.size:
                    break
                best = loop
        return best

    def is_made_of(self, parts: int, loop: Loop, start: int) -> bool:
        """Whether each time of a loop is, by its last one, equal parts: they read from equally far, or from before."""
        last = slice(loop.stop - loop.period, loop.stop)
        codes = self.codes[last].reshape(parts, -1)
        if (codes != codes[0]).any():
            return False
        entries = slice(self.starts[last.start], self.starts[last.stop])
        read = self.operands[entries].reshape(parts, -1)
        distance = self.users[entries].reshape(parts, -1) - read
        return bool(((distance == distance[0]) | (read < start)).all())

    def loop(self, start: int, stop: int, period: int) -> Loop | None:
        """The loop that covers most in a stretch of equal ops, if there is one."""
        start += self.phase(start, stop, period)
        count = (stop - start) // period
        best: Loop | None = None
        for first, last in SKIPPED:
            if count - first - last >= FEWEST and (best is None or not best.kept.all()):
                loop = _Columns(self, Loop(start + first * period, period, count - first - last)).loop()
                if loop is not None and (best is None or loop.size > best.size):
                    best = loop
        return best

    def phase(self, start: int, stop: int, period: int) -> int:
        """How far into a stretch the first time should start, so that times hand over least to later ones."""
        last = stop - period
        entries = slice(self.starts[last], self.starts[stop])
        before = self.operands[self.starts[last - period] : self.starts[last]]
        follows = self.operands[entries] - before == period
        sources = self.operands[entries][follows]
        places = (sources - start) % period
        reach = np.zeros(period, dtype=np.int64)  # how long each node of a time is needed
        np.maximum.at(reach, places, self.users[entries][follows] - sources)
        times = np.maximum(reach - 1, 0) // period  # for so many times, wherever one starts
        rest = reach - times * period  # and for one more, if it starts among these places after the node
        cost = np.zeros(2 * period + 1)
        np.add.at(cost, np.arange(period) + 1, 1)
        np.add.at(cost, np.arange(period) + 1 + rest, -1)
        cost = np.cumsum(cost[:-1])
        return int(np.argmin(cost[:period] + cost[period:]))


class _Columns:
    """What one time reads, column by column, and how that changes from time to time."""

    def __init__(self, search: _Search, loop: Loop) -> None:
        self.search, self.given = search, loop
        start, period, count = loop.start, loop.period, loop.count
        entries = search.operands[search.starts[start] : search.starts[loop.stop]]
        self.nodes = nodes = entries.reshape(count, -1)  # what is read, by time and column
        self.users = search.users[search.starts[start] : search.starts[start + period]] - start
        offsets = nodes - start - period * np.arange(count)[:, None]
        steady = offsets[-1]
        outside = nodes < start
        self.static = outside[0] & (nodes == nodes[0]).all(axis=0)
        self.moving = outside.all(axis=0) & ~self.static
        self.back = np.where(nodes[-1] >= start, -(steady // period), 0)  # how many times back
        self.source = steady + self.back * period  # the offset in the body, if it is not outside
        self.regular = self.static | self.moving
        for back in range(FARTHEST + 1):
            holds = (offsets[back:] == steady).all(axis=0) & outside[:back].all(axis=0)
            self.regular |= holds & (self.back == back) & ~outside[-1]
        constants = search.codes[start : start + period] == search.numbers.get("constant")
        self.regular &= (self.back == 0) | ~constants[self.source % period]

    def loop(self) -> Loop | None:
        """The loop with its body, if times hand something on to the next."""
        loop, inside = self.given, ~(self.static | self.moving)
        kept = loop.kept
        kept[self.users[~self.regular]] = False
        before = -1
        while before != (before := int(kept.sum())):  # what reads something from outside the body is outside too
            kept[self.users[inside & self.regular & ~kept[self.source % loop.period]]] = False
        used = kept[self.users]
        carried = np.flatnonzero(used & inside & (self.back > 0))
        firsts = self.firsts(carried)
        if not firsts:
            return None
        loop.is_sum = self.only_adds_up(carried)
        beside = self.beside(used, set(carried.tolist()))
        elements = sorted([(first, *key) for key, first in firsts.items()] + [(node, *BESIDE) for node in beside])
        elements = self.without_holes(elements) if loop.alive is None else sorted(elements)
        places = {element[1:] if element[1:] != BESIDE else element[0]: k for k, element in enumerate(elements)}
        for k, (first, source, back) in enumerate(elements):
            loop.state.append(Held(first, source if back == 1 else None, places[source, back - 1] if back > 1 else k))
        loop.statics = sorted({*self.nodes[0, used & self.static].tolist()} - beside)
        loop.moving = sorted({*map(tuple, self.nodes[:, used & self.moving].T.tolist())})
        leaves: dict[Any, Any] = {key: ("x", k) for key, k in places.items()}
        leaves |= {node: ("s", k) for k, node in enumerate(loop.statics)}
        leaves |= {("y", nodes): ("y", k) for k, nodes in enumerate(loop.moving)}
        loop.operands = self.operands(used, leaves)
        return loop

    def operands(self, used: np.ndarray, leaves: dict[Any, Any]) -> list[list[Any]]:
        """What each node of the body reads: one of its leaves, or a node of the body."""
        found: list[list[Any]] = [[] for _ in range(self.given.period)]
        for column in np.flatnonzero(used).tolist():
            key = self.key(column)
            found[self.users[column]].append(leaves[key] if key is not None else int(self.source[column]))
        return found

    def only_adds_up(self, carried: np.ndarray) -> bool:
        """Whether all that is handed over are the links of sums: these are sums, and all times can be done at once."""
        search, loop = self.search, self.given
        links = set(self.source[carried].tolist())
        for offset in self.users[carried].tolist():
            while offset not in links:  # from a time's first link to the one that it hands over
                links.add(offset)
                offset = int(search.last_user[loop.start + offset]) - loop.start
                if offset >= loop.period:
                    return False
        nodes = loop.start + np.array(sorted(links))
        adds = search.codes[nodes] == search.numbers.get(ops.add)
        uses = search.uses[nodes[:, None] + loop.period * np.arange(loop.count - 1)]
        return bool(adds.all() and (uses == 1).all())

    def key(self, column: int) -> Any:
        """What a column reads from outside its time: a node, nodes by time, or an offset and how many times back."""
        if self.static[column]:
            return int(self.nodes[0, column])
        if self.moving[column]:
            return "y", tuple(self.nodes[:, column].tolist())
        return (int(self.source[column]), int(self.back[column])) if self.back[column] else None

    def without_holes(self, elements: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """The elements in order of creation, with the corners that nobody reads: what is beside each other stays so."""
        codes = self.search.codes
        firsts = np.array([first for first, _, _ in elements])
        low, high = firsts.min(), firsts.max() + 1
        alike = low + np.flatnonzero(np.isin(codes[low:high], np.unique(codes[firsts])))
        if len(alike) <= 2 * len(firsts):
            elements += [(node, *BESIDE) for node in np.setdiff1d(alike, firsts).tolist()]
        return sorted(elements)

    def firsts(self, carried: np.ndarray) -> dict[tuple[int, int], int] | None:
        """(offset, times back) -> the node that is read in its place at the first time; None if there are two."""
        firsts: dict[tuple[int, int], int] = {}
        for column in carried:
            source, back = int(self.source[column]), int(self.back[column])
            for time in range(back):
                node = int(self.nodes[time, column])
                if firsts.setdefault((source, back - time), node) != node:
                    return None
        return firsts

    def beside(self, used: np.ndarray, carried: set[int]) -> set[int]:
        """The nodes from before the loop that lie beside the state: some nodes read them where others read the state.

        Others are nodes of the same ops, and in the same role. And a boundary is smaller than what it surrounds.
        """
        classes: dict[Any, int] = {}  # where the state and what never changes are one
        of = dict.fromkeys(np.flatnonzero(self.given.kept).tolist(), -1)  # constants, which read nothing, stay that
        roles: dict[int, set[tuple[int, int]]] = {}  # by whom a node is read, and in which place
        reads: list[tuple[int, int, int]] = []  # offset, place and column
        columns = np.split(np.flatnonzero(used), np.flatnonzero(np.diff(self.users[used])) + 1)
        for own in columns:
            offset, outer = int(self.users[own[0]]), [k in carried or bool(self.static[k]) for k in own.tolist()]
            kinds = [
                STATE if is_outer else MOVING if self.moving[k] else of[int(self.source[k])]
                for k, is_outer in zip(own.tolist(), outer, strict=True)
            ]
            rule = int(self.search.codes[self.given.start + offset])
            of[offset] = classes.setdefault((rule, *kinds), len(classes))
            for place, (k, is_outer) in enumerate(zip(own.tolist(), outer, strict=True)):
                if is_outer:
                    reads.append((offset, place, k))
                elif not self.moving[k]:
                    roles.setdefault(int(self.source[k]), set()).add((of[offset], place))
        slots: dict[Any, tuple[list[int], list[int]]] = {}
        for offset, place, k in reads:
            role = frozenset(roles.get(offset, ()))
            slots.setdefault((of[offset], place, role), ([], []))[k in carried].append(k)
        return {int(self.nodes[0, k]) for still, moved in slots.values() if len(still) <= len(moved) for k in still}
