"""Value numbering: what a program computes again and again from the same numbers is computed once.

People write `characteristic(u)` for each of sixteen strikes, although it does not depend on the strike. But often a
repetition is better left as it is: a product that every cell of a grid forms anew costs nothing inside of a loop, and
taking it out of one cell and not of another would hide a pattern. So it is done only where it saves much.

Sums are another matter. `sum(discounts)` in each year begins with all of the sum of the year before: with that in its
place, it is one addition, and the years are a loop. And `[part / sum(parts) for part in parts]` forms one sum again and
again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.loops import find_leaves
from chainrule.compiler.trace.graph import Graph

LEAST_SAVED = 0.4  # of all nodes but leaves and constants
LEAST_BEGUN = 0.05  # of all nodes: additions that another sum has done before


def without_repeats(graph: Graph) -> Graph:
    """The graph with equal nodes merged, or the graph itself if that saves little."""
    same = firsts(graph)
    computed = [node for node, operands in enumerate(graph.operands) if operands]
    left = [node for node in computed if same[node] == node]
    if len(computed) - len(left) < LEAST_SAVED * len(computed):
        return graph
    return _merged(graph, same, left)


def with_running_sums(graph: Graph) -> Graph:
    """The graph in which a sum goes on from an older one that it begins with; the graph itself if that saves little.

    A sum that is formed again is the older one. The additions that are left are done in the same order, on the same
    numbers. One addition alone is no sum.
    """
    same, names = list(range(len(graph))), _names(graph)
    older: dict[tuple[int, int], int] = {}  # operands -> the first addition of them
    inner = _inner_links(graph)
    for node, (rule, operands) in enumerate(zip(graph.rules, graph.operands, strict=True)):
        if rule is ops.add:
            first = older.setdefault((names[operands[0]], names[operands[1]]), node)
            if inner[node] or (graph.rules[operands[0]] is ops.add and inner[operands[0]]):
                same[node] = names[node] = first
    left = [node for node, operands in enumerate(graph.operands) if operands and same[node] == node]
    begun = sum([first != node for node, first in enumerate(same)])
    return graph if begun < LEAST_BEGUN * len(graph) else _merged(graph, same, left)


def _inner_links(graph: Graph) -> list[bool]:
    """Which nodes are only read as the first operand of one addition."""
    uses, begins = [0] * len(graph), [False] * len(graph)
    for rule, operands in zip(graph.rules, graph.operands, strict=True):
        for place, operand in enumerate(operands):
            uses[operand] += 1
            begins[operand] = place == 0 and rule is ops.add
    return [is_first and count == 1 for is_first, count in zip(begins, uses, strict=True)]


def _merged(graph: Graph, same: list[int], left: list[int]) -> Graph:
    """The graph without the nodes that are the `same` as others; those that compute something are `left`."""
    read = {same[operand] for node in left for operand in graph.operands[node]}
    kept = sorted({*left, *read, *find_leaves(graph), len(graph) - 1})
    place = {node: k for k, node in enumerate(kept)}
    operands = [tuple([place[same[operand]] for operand in graph.operands[node]]) for node in kept]
    return Graph([graph.rules[node] for node in kept], operands, [graph.nodes[node] for node in kept])


def firsts(graph: Graph) -> list[int]:
    """For each node the first that is equal to it."""
    same, first = list(range(len(graph))), dict[Any, int]()
    names, key = _names(graph), tuple[Any, ...]()
    for node, (rule, operands) in enumerate(zip(graph.rules, graph.operands, strict=True)):
        if operands:
            if len(operands) == 2:  # as most have: a list would take longer than all else
                key = rule, names[operands[0]], names[operands[1]]
            else:
                key = (rule, *[names[operand] for operand in operands])
            same[node] = names[node] = first.setdefault(key, node)
    return same


def _names(graph: Graph) -> list[int]:
    """A number for each node: its place, or for a constant that of the first with the same bits."""
    names = list(range(len(graph)))
    constants = [place for place in graph.leaf_places if graph.rules[place] == "constant"]
    bits = np.array([graph.nodes[place].data for place in constants], dtype=np.float64).view(np.int64).tolist()
    first: dict[int, int] = {}
    for place, own in zip(constants, bits, strict=True):
        names[place] = first.setdefault(own, place)
    return names
