"""Postponing: what is needed much later comes right before it is needed.

An integrator takes ten steps from one observation to the next, where it compares. Node for node only the ten steps
together repeat, with the comparison, and they are a long body. But nobody needs the comparison until the errors are
added up. If it comes then, what remains is the step, two hundred times.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from chainrule.compiler.passes.loops import Loop, find_leaves, find_loops
from chainrule.compiler.trace.graph import Graph

USUAL = 0.9  # of all nodes, at least, are used within the usual distance
JUMP = 4  # times the usual distance is much later
LEAST_LOOP = 0.1  # of the nodes of the largest loop, for another one


def postponed(graph: Graph) -> Graph:
    """The graph, whose leaves come first, in an order in which hardly any node comes much earlier than it is used.

    It is the same graph if none does, or if it is not clear what is much. Around the loops that are then seen, nodes
    are in the order of their creation, as people lay out arrays.
    """
    order = _late(graph)
    if order is None:
        return graph
    done: list[int] = []
    for loop in large(find_loops(graph.reordered(order))):
        done += [*sorted(order[len(done) : loop.start]), *order[loop.start : loop.stop]]
    return graph.reordered([*done, *sorted(order[len(done) :])])


def large(loops: Sequence[Loop]) -> list[Loop]:
    """Loops that are not small beside others: what was postponed, such as a sum of errors, is mostly an array."""
    largest = max([loop.size for loop in loops], default=0)
    return [loop for loop in loops if loop.size >= LEAST_LOOP * largest]


def _late(graph: Graph) -> list[int] | None:
    """The nodes in an order in which each comes before the first that uses it, if that is far; None if none is."""
    count = len(graph)
    arity = np.fromiter(map(len, graph.operands), np.int64, count)
    operands = np.fromiter(chain.from_iterable(graph.operands), np.int64, int(arity.sum()))
    first_use = np.full(count, count)
    first_use[operands[::-1]] = np.repeat(np.arange(count), arity)[::-1]  # of several, the last counts
    inner = np.ones(count, dtype=bool)
    inner[find_leaves(graph)] = False
    far = _limit((first_use - np.arange(count))[inner])
    if far is None:
        return None
    place = np.arange(count)  # each node's own, or that of the first to use it
    use = np.full(count, count)
    for node in range(count - 1, -1, -1):
        if inner[node] and use[node] < count and use[node] - node > far:
            place[node] = use[node]
        for operand in graph.operands[node]:
            use[operand] = min(use[operand], place[node])
    found: list[int] = np.lexsort((np.arange(count), place)).tolist()
    return found


def _limit(distances: np.ndarray) -> int | None:
    """Up to which distance the first to use a node is near: the middle of the jump. None if distances do not jump."""
    several = np.unique(distances)
    several = several[np.searchsorted(several, np.quantile(distances, USUAL)) :] if len(distances) else several
    jumps = several[1:] / several[:-1]
    if not len(jumps) or jumps.max() < JUMP:
        return None
    last = int(jumps.argmax())
    return int(np.sqrt(several[last] * several[last + 1]))  # well above what is usual, since that grows if others leave
