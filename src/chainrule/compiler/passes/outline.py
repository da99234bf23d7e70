"""Outlining: each loop becomes one node of the graph, and its body a program of its own.

The loop's node reads what the body reads from outside. What others read of the loop are leaves after it: elements of
the arrays that the body fills, which have a row for each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from chainrule.compiler.passes.loops import LEAVES, Loop, find_loops
from chainrule.compiler.passes.program import Access, Array, Repeat, Shape, Statement, Term, row_major
from chainrule.compiler.trace.graph import Graph
from chainrule.ops import Op

Places = tuple[Array, np.ndarray]  # positions in an array


class Constants(NamedTuple):
    """A constant of a loop's body: its number at the first time, and at all."""

    data: float
    numbers: np.ndarray


class Exports:
    """The op of the node that reads all nodes of a body which are read from outside: so they are stored."""

    symbol = "exports"


class Outlined:
    """A loop's body as a graph, and the arrays through which it is connected with what surrounds it."""

    def __init__(self, loop: Loop, graph: Graph, read: Iterable[int], number: int) -> None:
        self.loop = loop
        self.exports = sorted({held.node for held in loop.state if held.node is not None} | set(read))
        self.state = Array(f"x{number}", len(loop.state) * (loop.count + 1), "value")
        self.statics = Array(f"s{number}", len(loop.statics), "value")
        self.moving = Array(f"y{number}", len(loop.moving) * loop.count, "value")
        self.entries = {self.state: len(loop.state), self.statics: self.statics.size, self.moving: self.moving.size}
        self.repeats = {self.state: len(loop.state), self.statics: 0, self.moving: len(loop.moving)}
        self.results: dict[int, tuple[Array, int]] = {}  # offset in the body -> where its numbers are
        self.steps: list[Statement | Repeat] = []

    @property
    def outer(self) -> list[int]:
        """What the loop reads from outside, in the order of the elements of state, statics and moving."""
        loop = self.loop
        by_time = [nodes[time] for time in range(loop.count) for nodes in loop.moving]
        return [*(held.first for held in loop.state), *loop.statics, *by_time]

    def body(self, graph: Graph) -> Graph:
        """The body as a graph. A leaf's rule is the array that it is in, and its node its position in it."""
        loop = self.loop
        arrays = {"state": self.state, "static": self.statics, "moving": self.moving}
        counts = {"state": len(loop.state), "static": len(loop.statics), "moving": len(loop.moving)}
        rules: list[Any] = [arrays[kind] for kind, count in counts.items() for _ in range(count)]
        nodes: list[Any] = [k for count in counts.values() for k in range(count)]
        operands: list[tuple[int, ...]] = [()] * len(rules)
        place: dict[Any, int] = {(kind, k): 0 for kind in counts for k in range(counts[kind])}
        place = {key: index for index, key in enumerate(place)}
        for offset in np.flatnonzero(loop.kept).tolist():
            first = loop.start + offset
            place[offset] = len(rules)
            rules.append(graph.rules[first])
            operands.append(tuple([place[operand] for operand in loop.operands[offset]]))
            if graph.rules[first] == "constant":
                numbers = np.array([graph.nodes[k].data for k in range(first, loop.stop, loop.period)])
                nodes.append(Constants(float(numbers[0]), numbers))
            else:
                nodes.append(None)
        self.places = place
        return Graph([*rules, Exports], [*operands, tuple([place[k] for k in self.exports])], [*nodes, None])

    def repeat(self, statements: Sequence[Statement], places: Sequence[tuple[Array, int]]) -> None:
        """Set the loop's steps from the statements of one time, and from where they leave the exported nodes."""
        results = dict(zip(self.exports, places, strict=True))
        rows: dict[Array, Array] = {}

        def timed(access: Access) -> Access:
            array = access.array
            if array in self.repeats:
                return Access(array, access.base, access.strides, access.table, self.repeats[array])
            if array.kind != "value":
                return access
            if array not in rows:
                rows[array] = Array(array.name, array.size * self.loop.count, "value")
            return Access(rows[array], access.base, access.strides, access.table, array.size)

        body = [statement.map(timed) for statement in statements]
        width = len(self.loop.state)
        sources = [(self.state, held.element) if held.node is None else results[held.node] for held in self.loop.state]
        for statement in copies(self.state, width, sources):
            target = Access(self.state, statement.target.base, statement.target.strides, repeat=width)
            body.append(Statement(target, statement.loops, [Term(statement.terms[0].expression.map(timed))]))
        self.sizes = {rows[array]: array.size for array in rows}
        self.results = {offset: (rows[array], position) for offset, (array, position) in results.items()}
        self.steps = [Repeat(self.loop.count, body)]

    def position(self, node: int) -> tuple[Array, int]:
        """Where a node of the loop is, at its time."""
        time, offset = divmod(node - self.loop.start, self.loop.period)
        array, position = self.results[offset]
        return array, position + time * self.sizes[array]


def leaves_first(graph: Graph) -> Graph:
    """The same graph with its leaves, except constants, before everything else."""
    order = sorted(range(len(graph)), key=lambda node: graph.rules[node] not in LEAVES)
    place = {node: k for k, node in enumerate(order)}
    operands = [tuple([place[operand] for operand in graph.operands[node]]) for node in order]
    return Graph([graph.rules[node] for node in order], operands, [graph.nodes[node] for node in order])


def outline(graph: Graph, lift_body: Callable[[Graph, Sequence[int]], Any]) -> Graph | None:
    """The graph with its loops outlined, or None if it has none."""
    graph = leaves_first(graph)
    loops = find_loops(graph)
    if not loops:
        return None
    inside = np.full(len(graph), -1)
    for k, loop in enumerate(loops):
        inside[loop.start : loop.stop].reshape(loop.count, -1)[:, loop.kept] = k
    outer = [Outlined(loop, graph, (), 0).outer for loop in loops]
    read: list[set[int]] = [set() for _ in loops]  # nodes of each that something outside of it reads
    reads = [(operands, inside[node]) for node, operands in enumerate(graph.operands)]
    for operands, here in [*reads, *zip(outer, range(len(loops)), strict=True)]:
        for operand in operands:
            if inside[operand] >= 0 and inside[operand] != here and graph.rules[operand] != "constant":
                read[inside[operand]].add(operand)
    place: dict[int, int] = {}
    found = Graph([], [], [])

    def add(node: int | None, rule: Any, operands: Iterable[int], payload: Any) -> None:
        if node is not None:
            place[node] = len(found)
        found.operands.append(tuple([place[operand] for operand in operands]))
        found.rules.append(rule)
        found.nodes.append(payload)

    starts = {loop.start: k for k, loop in enumerate(loops)}
    for node, (rule, operands) in enumerate(zip(graph.rules, graph.operands, strict=True)):
        if node in starts:
            k = starts[node]
            loop = loops[k]
            outlined = Outlined(loop, graph, {(n - loop.start) % loop.period for n in read[k]}, k + 1)
            body = outlined.body(graph)
            exports = [outlined.places[offset] for offset in outlined.exports]
            outlined.repeat(*lift_body(body, exports, f"u{k + 1}_"))
            add(None, outlined, outer[k], None)
            for result in sorted(read[k]):
                array, position = outlined.position(result)
                add(result, array, (), position)
        if inside[node] < 0 or rule == "constant":
            add(node, rule, operands, graph.nodes[node])
    return found


def copies(target: Array, offset: int, sources: Sequence[tuple[Array | None, float]]) -> Iterator[Statement]:
    """Statements that fill `target` from `offset` on, in as few regular pieces as there are."""
    groups: dict[Array | None, list[int]] = {}
    for k, (array, _) in enumerate(sources):
        groups.setdefault(array, []).append(k)
    for array, members in groups.items():
        assert array is not None
        for places, loops, strides in pieces(np.array(members)):
            positions = np.array([int(sources[k][1]) for k in places])
            steps = affine(positions, loops)
            if steps is None:
                read = Access(array, 0, row_major(loops), positions)
            else:
                read = Access(array, positions[0], steps)
            yield Statement(Access(target, offset + places[0], strides), loops, [Term(read)])


def pieces(places: np.ndarray) -> Iterator[tuple[np.ndarray, Shape, Shape]]:
    """Increasing places in pieces that one nest of loops goes through: the places, the extents and the strides.

    >>> [(part.tolist(), *nest) for part, *nest in pieces(np.array([0, 1, 2, 5, 6, 9, 10]))]
    [([0, 1, 2], (3,), (1,)), ([5, 6, 9, 10], (2, 2), (4, 1))]
    """
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    starts, stops = np.concatenate([[0], breaks]), np.concatenate([breaks, [len(places)]])
    k = 0
    while k < len(starts):
        length, last = stops[k] - starts[k], k + 1
        step = places[starts[last]] - places[starts[k]] if last < len(starts) else 0
        while (
            last < len(starts)
            and stops[last] - starts[last] == length
            and places[starts[last]] - places[starts[last - 1]] == step
        ):
            last += 1
        nest = [(last - k, int(step)), (int(length), 1)]
        loops, strides = (
            zip(*[pair for pair in nest if pair[0] > 1] or [()], strict=True)
            if last - k > 1 or length > 1
            else ((), ())
        )
        yield places[starts[k] : stops[last - 1]], tuple(loops), tuple(strides)
        k = last


def affine(positions: np.ndarray, loops: Shape) -> Shape | None:
    """The strides with which `positions` move in `loops`, if they are constant."""
    grid = positions.reshape(loops)
    strides = tuple([int(grid.take(1, axis=d).flat[0] - grid.flat[0]) for d in range(len(loops))])
    moved = Access(Array("", 0, ""), int(grid.flat[0]), strides).positions(loops)
    return strides if (moved == grid).all() else None
