"""Cutting at waists: a program that doubles its classes at every level starts afresh at each.

In a fast Fourier transform `e + t` and `e - t` are two classes. The next level reads both, in every combination, and
has four; and so on. Where few numbers are alive, between two levels, all of them become one array: the next level then
reads one class, whatever made its numbers. A level is a loop of one time.
"""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np

from chainrule.compiler.passes.loops import Held, Loop, is_leaf
from chainrule.compiler.trace.graph import Graph


def by_depth(graph: Graph) -> Graph:
    """The same graph with its nodes in the order of their depth: of the longest way from a leaf."""
    return graph.reordered(np.argsort(graph.depths, kind="stable").tolist())


def find_levels(graph: Graph, most: int) -> list[Loop]:
    """At `most` so many levels of a graph in the order of depth, between places where fewer numbers are alive."""
    depth = graph.depths
    last = depth.copy()
    arity = np.fromiter(map(len, graph.operands), np.int64, len(graph))
    operands = np.fromiter(chain.from_iterable(graph.operands), np.int64)
    np.maximum.at(last, operands, np.repeat(depth, arity))  # at which each node is read
    computed = arity > 0
    changes = np.zeros(int(depth.max()) + 2, dtype=np.int64)
    np.add.at(changes, depth[computed], 1)
    np.add.at(changes, last[computed], -1)
    alive = np.cumsum(changes)  # after each depth
    waists = 1 + np.flatnonzero((alive[1:-1] <= alive[:-2]) & (alive[1:-1] < alive[2:]))
    ends = [int(np.searchsorted(depth, 0, side="right"))]  # of the leaves
    for stop in np.searchsorted(depth, waists, side="right").tolist():
        if stop - ends[-1] >= (len(graph) - ends[0]) / most:
            ends.append(stop)
    return [_level(graph, start, stop) for start, stop in pairwise([*ends[1:], len(graph) - 1])]


def _level(graph: Graph, start: int, stop: int) -> Loop:
    level = Loop(start, stop - start, 1)
    read = sorted({operand for node in range(start, stop) for operand in graph.operands[node] if operand < start})
    level.statics = [node for node in read if is_leaf(graph.rules[node])]
    held = [node for node in read if not is_leaf(graph.rules[node])]
    level.state = [Held(node, None, k) for k, node in enumerate(held)]
    leaves = {node: ("s", k) for k, node in enumerate(level.statics)} | {node: ("x", k) for k, node in enumerate(held)}
    level.operands = [[leaves.get(node, node - start) for node in operands] for operands in graph.operands[start:stop]]
    return level
