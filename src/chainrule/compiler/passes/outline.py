"""Outlining: each loop becomes one node of the graph, and its body a program of its own.

The loop's node reads what the body reads from outside. What others read of the loop are leaves that follow it: elements
of the arrays that the body fills, with a row for each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from chainrule.compiler.passes.lifetimes import Lifetimes
from chainrule.compiler.passes.loops import Loop, find_leaves
from chainrule.compiler.passes.program import Access, Apply, Array, Repeat, Shape, Statement, Term, access_to
from chainrule.compiler.trace.graph import Graph
from chainrule.core.recording import DETACH

Place = tuple[Array, int]  # an array, and a position in it
Piece = tuple[
    int, Shape, Shape
]  # the first of many places, and the extents and strides of the loops that go through them


class Body(NamedTuple):
    """One time of a loop: how many statements it is, where they leave what it exports, and a way to write them.

    And where they leave any of its nodes, which is None for what is computed on the way to another.
    """

    length: int
    places: list[Place]
    statements: Callable[[], list[Statement]]
    place: Callable[[int], Place | None]


LiftBody = Callable[[Graph, Sequence[int], str], Body]  # see `lift_body`


class Constants(NamedTuple):
    """A constant in the body of a loop: its number at the first time, and at all times."""

    data: float
    numbers: np.ndarray


class Exports:
    """The op of a body's root, which reads what is read from outside, or at later times: so these nodes are stored."""

    symbol = "exports"


class Outlined:
    """A loop with the arrays that connect it to what surrounds it, and its `steps`. It is the rule of its node.

    What is `held` from time to time has a row for each time and one for the end, `statics` one row, `moving` a row for
    each time. Nodes of the body in `wanted`, named by their offsets, are read from outside.
    """

    symbol = "loop"

    def __init__(self, loop: Loop, graph: Graph, wanted: set[int], number: int, lift_body: LiftBody) -> None:
        self.loop = loop
        widths = {"x": len(loop.state), "s": len(loop.statics), "y": len(loop.moving)}
        rows = {"x": loop.count + (loop.count > 1), "s": 1, "y": loop.count}
        self.arrays = {name: Array(f"{name}{number}", widths[name] * rows[name], "value") for name in widths}
        self.moves = {self.arrays[name]: widths[name] * (rows[name] > 1) for name in widths}  # from time to time
        self.widths = widths
        exports = sorted({held.node for held in loop.state if held.node is not None} | wanted)
        body, self.offsets = self.body(graph, exports)
        self.lifted = lift_body(body, [self.offsets[offset] for offset in exports], f"u{number}_")
        self.masks = Lifetimes(f"u{number}_m", loop.count)
        self.rows: dict[Array, Array] = {}  # an array of the body -> the same with a row for each time
        self.held = {held.node: k for k, held in enumerate(loop.state)} if loop.count > 1 else {}  # in the next row
        self.results = dict(zip(exports, self.lifted.places, strict=True))

    @property
    def count(self) -> int:
        """How many statements its steps have."""
        handed_over = regular_parts(self.next_row) if self.loop.count > 1 else ()
        return self.lifted.length + len([*handed_over])

    @cached_property
    def steps(self) -> list[Statement | Repeat]:
        """What it does: written only if the loop becomes part of a program."""
        at_each_time = [statement.map(self.timed) for statement in self.while_alive()]
        if self.loop.count == 1:
            return [*at_each_time]
        handed_over = copies(self.arrays["x"], self.widths["x"], self.next_row)
        return [Repeat(self.loop.count, [*at_each_time, *[statement.map(self.timed) for statement in handed_over]])]

    def while_alive(self) -> list[Statement]:
        """The statements of one time, which compute what nobody needs only where that does no harm."""
        statements, alive = self.lifted.statements(), self.loop.alive
        if alive is None:
            return statements
        times: dict[Array, np.ndarray] = {}
        for offset in np.flatnonzero(self.loop.kept).tolist():
            if place := self.lifted.place(self.offsets[offset]):
                array, position = place
                times.setdefault(array, np.full(array.size, self.loop.count))[position] = alive[offset]
        return [self.masks.masked(statement, times[statement.target.array]) for statement in statements]

    @property
    def next_row(self) -> list[Place]:
        """Where the state of the next time comes from."""
        state = self.arrays["x"]
        return [(state, held.element) if held.node is None else self.results[held.node] for held in self.loop.state]

    def entries(self, sources: Sequence[Place]) -> Iterator[Statement]:
        """Statements that fill its arrays with what it reads from outside, in the order of `reads`."""
        for array, part in self._filled(sources):
            yield from copies(array, 0, part)

    def count_entries(self, sources: Sequence[tuple[Any, int]]) -> int:
        """How many these are; arrays may be named by anything."""
        return sum([len(list(regular_parts(part))) for _, part in self._filled(sources)])

    def _filled(self, sources: Sequence[Any]) -> Iterator[tuple[Array, Sequence[Any]]]:
        first = 0
        for name, size in (("x", self.widths["x"]), ("s", self.widths["s"]), ("y", self.arrays["y"].size)):
            yield self.arrays[name], sources[first : first + size]
            first += size

    def body(self, graph: Graph, exports: Sequence[int]) -> tuple[Graph, dict[Any, int]]:
        """The body as a graph, and where its nodes are in it. A leaf's rule is an array, and its node a position."""
        loop = self.loop
        leaves = [(name, k) for name, width in self.widths.items() for k in range(width)]
        rules: list[Any] = [self.arrays[name] for name, _ in leaves]
        nodes: list[Any] = [k for _, k in leaves]
        operands: list[tuple[int, ...]] = [()] * len(leaves)
        offsets: dict[Any, int] = {leaf: k for k, leaf in enumerate(leaves)}
        for offset in np.flatnonzero(loop.kept).tolist():
            first = loop.start + offset
            offsets[offset] = len(rules)
            rules.append(graph.rules[first])
            operands.append(tuple([offsets[operand] for operand in loop.operands[offset]]))
            nodes.append(_by_time(graph, range(first, loop.stop, loop.period)) if rules[-1] == "constant" else None)
        read = tuple([offsets[offset] for offset in exports])
        body = Graph([*rules, Exports], [*operands, read], [*nodes, None])
        body.silent = {offsets[k] for k in np.flatnonzero(loop.kept).tolist() if loop.start + k in graph.silent}
        return body, offsets

    def timed(self, access: Access) -> Access:
        """An access at the first time, as it is at each."""
        array = access.array
        if array in self.moves:
            return Access(array, access.base, access.strides, access.table, self.moves[array])
        if array.kind != "value":
            return access
        repeat = array.size if self.loop.count > 1 else 0
        return Access(self.with_rows(array), access.base, access.strides, access.table, repeat)

    def with_rows(self, array: Array) -> Array:
        """An array of the body, with a row for each time."""
        rows = self.rows.setdefault(array, Array(array.name, array.size * self.loop.count, "value"))
        rows.silent = array.silent
        return rows

    def place(self, node: int) -> Place:
        """Where a node of the loop is, at its time."""
        time, offset = divmod(node - self.loop.start, self.loop.period)
        if offset in self.held:
            return self.arrays["x"], (time + 1) * self.widths["x"] + self.held[offset]
        array, position = self.results[offset]
        return self.with_rows(array), position + time * array.size


def _by_time(graph: Graph, times: range) -> Constants:
    numbers = np.array([graph.nodes[node].data for node in times])
    return Constants(float(numbers[0]), numbers)


def outline(graph: Graph, loops: Sequence[Loop], lift_body: LiftBody, most: float = math.inf) -> Graph | None:
    """The graph, whose leaves come first, with its loops outlined.

    None if there are none, or if what they repeat has more than `most` statements, which is not worth going on for.
    """
    outlining = _Outlining(graph, loops, lift_body, most) if loops else None
    if outlining is None or outlining.statements > most:
        return None
    places, found = outlining.places, outlining.found
    found.silent = {places[node] for node in graph.silent if node in places}
    return found


def leaves_first(graph: Graph) -> Graph:
    """The same graph with its leaves, except constants, before everything else."""
    leaves = find_leaves(graph)
    if leaves == list(range(len(leaves))):
        return graph
    inner = np.ones(len(graph), dtype=bool)
    inner[leaves] = False
    return graph.reordered([*leaves, *np.flatnonzero(inner).tolist()])


class _Outlining:
    def __init__(self, graph: Graph, loops: Sequence[Loop], lift_body: LiftBody, most: float) -> None:
        self.graph, self.loops, self.lift_body = graph, loops, lift_body
        self.found = Graph([], [], [])
        self.statements = 0  # in the loops so far, and to hand them what they read
        self.places: dict[int, int] = {}  # of the graph's nodes in what is found
        inside = np.full(len(graph), -1)
        for k, loop in enumerate(loops):
            inside[loop.start : loop.stop].reshape(loop.count, -1)[:, loop.kept] = k
        loose = np.flatnonzero(inside < 0).tolist()
        read = {operand for node in loose for operand in graph.operands[node]}.union(*[loop.reads for loop in loops])
        constants = {node for node in read if graph.rules[node] == "constant"}
        results: list[list[int]] = [[] for _ in loops]  # what is read of each
        for node in sorted(read - constants):
            if inside[node] >= 0:
                results[inside[node]].append(node)
        self.kept, self.numbers = constants.union(loose), {loop.start: number for number, loop in enumerate(loops)}
        self.add_all(results, most)

    def add_all(self, results: Sequence[Sequence[int]], most: float) -> None:
        """Loops, and nodes outside of them, in order, until the loops have more than `most` statements."""
        for node in sorted(self.kept.union(self.numbers)):
            if self.statements > most:
                return
            if (number := self.numbers.get(node)) is not None:
                self.add_loop(number, results[number])
            if node in self.kept:
                self.add(self.graph.rules[node], self.graph.operands[node], self.graph.nodes[node], node)

    def add(self, rule: Any, operands: Iterable[int], node: Any, place: int | None = None) -> None:
        if place is not None:
            self.places[place] = len(self.found)
        self.found.operands.append(tuple([self.places[operand] for operand in operands]))
        self.found.rules.append(rule)
        self.found.nodes.append(node)

    def add_loop(self, number: int, results: Sequence[int]) -> None:
        loop = self.loops[number]
        wanted = {(node - loop.start) % loop.period for node in results}
        outlined = Outlined(loop, self.graph, wanted, number + 1, self.lift_body)
        rules = [self.found.rules[self.places[node]] for node in loop.reads]
        self.statements += outlined.count + outlined.count_entries([(rule, 0) for rule in rules])
        self.add(outlined, loop.reads, None)
        for node in results:
            array, position = outlined.place(node)
            self.add(array, (), position, node)


def copies(target: Array, offset: int, sources: Sequence[Place]) -> Iterator[Statement]:
    """Statements that fill `target` from `offset` on, in regular pieces; they pass no gradient to silent arrays."""
    for array, places, loops, strides in regular_parts(sources):
        source = access_to(array, np.array([sources[k][1] for k in places]), loops)
        copied = Apply(DETACH, (source,)) if array.silent else source
        yield Statement(Access(target, offset + places[0], strides), loops, [Term(copied)])


def regular_parts(sources: Sequence[tuple[Any, int]]) -> Iterator[tuple[Any, np.ndarray, Shape, Shape]]:
    """Which of the sources are from one array and in regular places, with the extents and strides of these."""
    groups: dict[Any, list[int]] = {}
    for k, (array, _) in enumerate(sources):
        groups.setdefault(array, []).append(k)
    for array, members in groups.items():
        for part in pieces(np.array(members)):
            yield array, *part


def pieces(places: np.ndarray) -> Iterator[tuple[np.ndarray, Shape, Shape]]:
    """Increasing places in pieces that one nest of loops goes through: the places, the extents and the strides.

    >>> [(part.tolist(), *nest) for part, *nest in pieces(np.array([0, 1, 2, 5, 6, 9, 10]))]
    [([0, 1, 2], (3,), (1,)), ([5, 6, 9, 10], (2, 2), (4, 1))]
    """
    found: list[Piece] = [(place, (), ()) for place in places.tolist()]
    before = 0
    while len(found) != before:  # again: a piece of pieces is one too
        before, found = len(found), list(_joined(found))
    start = 0
    for _, loops, strides in found:
        yield places[start : start + prod(loops)], loops, strides
        start += prod(loops)


def _joined(found: Sequence[Piece]) -> Iterator[Piece]:
    """Pieces of the same form, at equal distances from each other, as one with one more loop around."""
    run = 0
    while run < len(found):
        (place, loops, strides), last = found[run], run + 1
        step = found[last][0] - place if last < len(found) else 0
        while last < len(found) and found[last] == (place + (last - run) * step, loops, strides):
            last += 1
        yield (place, (last - run, *loops), (step, *strides)) if last - run > 1 else found[run]
        run = last
