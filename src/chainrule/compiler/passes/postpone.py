"""Postponing: what is needed much later comes right before it is needed.

An integrator takes ten steps from one observation to the next, where it compares. Node for node only the ten steps
together repeat, with the comparison, and they are a long body. But nobody needs the comparison until the errors are
added up. If it comes then, what remains is the step, two hundred times.
"""

from __future__ import annotations

import numpy as np

from chainrule.compiler.passes.loops import is_leaf
from chainrule.compiler.trace.graph import Graph

USUAL = 0.9  # of all nodes, at least, are used within the usual distance
JUMP = 4  # times the usual distance is much later


def postponed(graph: Graph) -> Graph:
    """The graph, whose leaves come first, in an order in which no node comes much earlier than the first that uses it.

    It is the same graph if none does, or if it is not clear what is much.
    """
    count = len(graph)
    first_use = np.full(count, count)
    for node in range(count - 1, -1, -1):
        for operand in graph.operands[node]:
            first_use[operand] = node
    inner = np.array([not is_leaf(rule) for rule in graph.rules], dtype=bool)
    far = _limit((first_use - np.arange(count))[inner])
    if far is None:
        return graph
    place = np.arange(count)  # each node's own, or that of the first to use it
    use = np.full(count, count)
    for node in range(count - 1, -1, -1):
        if inner[node] and use[node] < count and use[node] - node > far:
            place[node] = use[node]
        for operand in graph.operands[node]:
            use[operand] = min(use[operand], place[node])
    return graph.reordered(np.lexsort((np.arange(count), place)).tolist())


def _limit(distances: np.ndarray) -> int | None:
    """Up to which distance the first to use a node is near: the middle of the jump. None if distances do not jump."""
    several = np.unique(distances)
    several = several[np.searchsorted(several, np.quantile(distances, USUAL)) :] if len(distances) else several
    jumps = several[1:] / several[:-1]
    if not len(jumps) or jumps.max() < JUMP:
        return None
    last = int(jumps.argmax())
    return int(np.sqrt(several[last] * several[last + 1]))  # well above what is usual, since that grows if others leave
