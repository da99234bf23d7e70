"""Value numbering: what a program computes again and again from the same numbers is computed once.

People write `characteristic(u)` for each of sixteen strikes, although it does not depend on the strike. But often a
repetition is better left as it is: a product that every cell of a grid forms anew costs nothing inside of a loop, and
taking it out of one cell and not of another would hide a pattern. So it is done only where it saves much.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.compiler.passes.loops import find_leaves
from chainrule.compiler.trace.graph import Graph

LEAST_SAVED = 0.4  # of all nodes but leaves and constants


def without_repeats(graph: Graph) -> Graph:
    """The graph with equal nodes merged, or the graph itself if that saves little."""
    same = _firsts(graph)
    computed = [node for node, operands in enumerate(graph.operands) if operands]
    left = [node for node in computed if same[node] == node]
    if len(computed) - len(left) < LEAST_SAVED * len(computed):
        return graph
    read = {same[operand] for node in left for operand in graph.operands[node]}
    kept = sorted({*left, *read, *find_leaves(graph), len(graph) - 1})
    place = {node: k for k, node in enumerate(kept)}
    operands = [tuple([place[same[operand]] for operand in graph.operands[node]]) for node in kept]
    return Graph([graph.rules[node] for node in kept], operands, [graph.nodes[node] for node in kept])


def _firsts(graph: Graph) -> list[int]:
    """For each node the first that is equal to it."""
    same, first = list(range(len(graph))), dict[Any, int]()
    names = _names(graph)
    for node, (rule, operands) in enumerate(zip(graph.rules, graph.operands, strict=True)):
        if operands:
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
