"""Postponing: what is needed much later comes right before it is needed.

An integrator takes ten steps from one observation to the next, where it compares. Node for node only the ten steps
together repeat, with the comparison, and they are a long body. But nobody needs the comparison until the errors are
added up. If it comes then, what remains is the step, two hundred times. A running sum, `loss += error`, is the sum of
all: its links come with the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.loops import Loop, find_leaves, find_loops
from chainrule.compiler.trace.graph import Graph

USUAL = 0.9  # of all nodes, at least, are used within the usual distance
JUMP = 4  # times the usual distance is much later
TAIL = 32  # times the usual distance, if distances reach so far without a jump, more than
BEYOND = 2  # times the usual distance is much later
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
    ends, begins = _chains(graph, np.bincount(operands, minlength=count))
    place = np.arange(count)  # each node's own, or that of the first to use it
    is_link = ends > place
    rank = np.cumsum([0, *~is_link])  # by which distances are measured
    far = _limit((rank[np.append(ends, count)[first_use]] - rank[:-1])[inner & ~is_link])
    if far is None:
        return None
    in_long_chains = is_link & (rank[ends] - rank[begins[ends]] > far)
    use = np.full(count, count)
    for node in range(count - 1, -1, -1):
        if in_long_chains[node]:
            place[node] = place[ends[node]]
        elif inner[node] and use[node] < count and rank[use[node]] - rank[node] > far:
            place[node] = use[node]
        for operand in graph.operands[node]:
            use[operand] = min(use[operand], place[node])
    found: list[int] = np.lexsort((np.arange(count), place)).tolist()
    return found


def _chains(graph: Graph, uses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each node the last link of the sum that it is a link of, or itself; and for these ends the first links."""
    ends, begins = np.arange(len(graph)), np.arange(len(graph))
    for node in range(len(graph) - 1, -1, -1):
        if graph.rules[node] is ops.add:
            for operand in graph.operands[node]:
                if graph.rules[operand] is ops.add and uses[operand] == 1:
                    ends[operand] = ends[node]
            begins[ends[node]] = node
    return ends, begins


def _limit(distances: np.ndarray) -> int | None:
    """Up to which distance the first to use a node is near: the middle of the jump, if distances jump.

    None if they do not, and reach not much beyond the usual.
    """
    several = np.unique(distances)
    several = several[np.searchsorted(several, np.quantile(distances, USUAL)) :] if len(distances) else several
    jumps = several[1:] / several[:-1]
    if not len(jumps):
        return None
    if jumps.max() < JUMP:
        return BEYOND * int(several[0]) if several[-1] > TAIL * several[0] else None
    last = int(jumps.argmax())
    return int(np.sqrt(several[last] * several[last + 1]))  # well above what is usual, since that grows if others leave
