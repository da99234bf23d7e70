"""Gathering: numbers that are computed differently become elements of one array, so that what reads them is alike.

The largest of few and of many: in a softmax that somebody writes by hand, `largest = maximum(largest, score)` goes
through all scores. Where there is one score more at each position, the chains are of different lengths: their ends are
of different classes, and so is everything that follows. The links stay as they are, with the gradient that they pass on
where numbers are equal. But the ends are copied into one array, and what reads them reads one class.

The inputs of steps in time are gathered too, where some steps read this and others that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.classes import FEWEST_LENGTHS, Classes
from chainrule.compiler.passes.outline import Place, copies, regular_parts
from chainrule.compiler.passes.program import Array, Statement
from chainrule.compiler.trace.graph import Graph

LINKS = (ops.maximum, ops.minimum)
FAR = 16  # depths from what a step reads outside to the step before
MANY, MANY_CHANGES = 32, 0.1  # steps, and in which share of them what they read is of another class than before
LEAST_STEPS = 0.1  # of all classes, of which such steps are


class Gathered:
    """The rule of a node that copies what it reads into an array, whose elements are leaves that follow it.

    It is used as an `Outlined` that has no loop. If only conditions depend on what it reads, it is silent, as that is.
    """

    symbol = "gather"
    steps, count = (), 0

    def __init__(self, number: int, size: int, is_silent: bool) -> None:
        self.array = Array(f"g{number}", size, "value")
        self.array.silent = self.is_silent = is_silent

    def entries(self, sources: Sequence[Place]) -> Iterator[Statement]:
        """Statements that fill the array."""
        return copies(self.array, 0, sources)

    def count_entries(self, sources: Sequence[tuple[Any, int]]) -> int:
        """How many these are; arrays may be named by anything."""
        return len(list(regular_parts(sources)))


def gathered(graph: Graph, classes: Classes) -> Graph | None:
    """The graph with the ends of chains in arrays, of chains of one op and one class of terms; None if there are none.

    What depends on an array comes after it, and otherwise nodes are in the same order as before.
    """
    groups = _groups(graph, classes)
    return _gathered(graph, groups) if groups else None


def with_inputs(graph: Graph, classes: Classes) -> Graph | None:
    """The graph with what steps in time read from outside in arrays, where it is of several classes; None if it is not.

    Some days add this to a level, and some days that: but for what they read, such steps are alike. Each class is
    copied at once, and the steps look up where their own is.
    """
    groups = _inputs(graph, classes)
    return _gathered(graph, groups) if groups else None


def _gathered(graph: Graph, groups: list[list[int]]) -> Graph:
    group_of = {end: k for k, ends in enumerate(groups) for end in ends}
    stages, ready = _stages(graph, groups, group_of)
    found = Graph([], [], [])
    place: dict[int, int] = {}

    def add(rule: Any, operands: Sequence[int], node: Any) -> int:
        found.rules.append(rule)
        found.operands.append(tuple(operands))
        found.nodes.append(node)
        return len(found) - 1

    order = np.argsort(stages, kind="stable")
    for stage, nodes in enumerate(np.split(order, np.searchsorted(stages[order], range(1, max(ready) + 2)))):
        for node in nodes.tolist():
            operands = [place[operand] for operand in graph.operands[node]]
            place[node] = add(graph.rules[node], operands, graph.nodes[node])
        for number, ends in enumerate(groups):
            if ready[number] == stage:
                rule = Gathered(number + 1, len(ends), ends[0] in graph.silent)
                add(rule, [place[end] for end in ends], None)
                place |= {end: add(rule.array, (), k) for k, end in enumerate(ends)}
    return found


def _groups(graph: Graph, classes: Classes) -> list[list[int]]:
    """The ends of chains of one op, whose terms are all of one class, where these are of many lengths."""
    groups: dict[tuple[Any, int, bool], list[tuple[int, int]]] = {}
    for end, length, terms in _chains(graph, classes):
        groups.setdefault((graph.rules[end], terms, end in graph.silent), []).append((end, length))
    many = [found for found in groups.values() if len({length for _, length in found}) >= FEWEST_LENGTHS]
    return [[end for end, _ in found] for found in many]


def _chains(graph: Graph, classes: Classes) -> Iterator[tuple[int, int, int]]:
    """The end of each chain whose terms are of one class and whose end is read; its length, and that class."""
    uses = np.bincount(np.fromiter(chain.from_iterable(graph.operands), np.int64), minlength=len(graph))
    of, rules = classes.of, graph.rules
    chains: dict[int, tuple[int, int]] = {}  # end -> length, and the class of the terms, or -1 if there are several
    for node, operands in enumerate(graph.operands):
        if rules[node] in LINKS:
            first, last = operands
            longer = rules[first] is rules[node] and uses[first] == 1
            length, terms = chains.pop(first) if longer else (1, int(of[first]))
            chains[node] = length + 1, terms if terms == of[last] else -1
    yield from ((end, *found) for end, found in chains.items() if found[1] >= 0 and uses[end])


def _inputs(graph: Graph, classes: Classes) -> list[list[int]]:
    """What steps read from outside, if it is of several classes, in an order of its own.

    A step reads something that is far above it, and a step before; many others are of the same ops. If they are few of
    all classes, hardly anything would be gained.
    """
    depths, rules = graph.depths.tolist(), graph.rules
    groups: dict[tuple[Any, int, Any, bool], list[tuple[int, int]]] = {}  # by ops: steps, and what they read
    for node, operands in enumerate(graph.operands):
        if len(operands) == 2:
            side = int(depths[operands[0]] > depths[operands[1]])  # of the operand that is ready first
            outside, before = operands[side], operands[1 - side]
            if graph.operands[outside] and depths[before] >= depths[outside] + FAR:
                key = rules[node], side, rules[before], outside in graph.silent
                groups.setdefault(key, []).append((node, outside))
    mixed = [pairs for pairs in groups.values() if len(pairs) >= MANY and _changes(pairs, classes) >= MANY_CHANGES]
    free = _free(graph, mixed) if mixed else set()
    found, steps = [], set[int]()
    for pairs in mixed:
        inputs = {node for _, node in pairs} & free
        if len(inputs) >= MANY:
            free -= inputs
            steps.update(classes.of[[node for node, _ in pairs]].tolist())
            found.append(sorted(inputs, key=lambda node: (classes.of[node], node)))  # class by class, copied at once
    return found if len(steps) >= LEAST_STEPS * len(classes) else []


def _changes(pairs: list[tuple[int, int]], classes: Classes) -> float:
    """How often a step reads another class than the one before, as a share."""
    return np.count_nonzero(np.diff(classes.of[[outside for _, outside in pairs]])) / len(pairs)


def _free(graph: Graph, groups: list[list[tuple[int, int]]]) -> set[int]:
    """What steps read that depends neither on a step nor on another such node, so that all is ready for the first.

    `after` are these, the steps, and all that depends on either.
    """
    steps = {node for pairs in groups for node, _ in pairs}
    read = {node for pairs in groups for _, node in pairs}
    found: set[int] = set()
    after = [False] * len(graph)
    for node, operands in enumerate(graph.operands):
        after[node] = node in steps or any(after[operand] for operand in operands)
        if node in read and not after[node]:
            after[node] = True
            found.add(node)
    return found


def _stages(graph: Graph, groups: Sequence[list[int]], group_of: dict[int, int]) -> tuple[np.ndarray, list[int]]:
    """After how many rounds of gathering each node is computed, and in which round each group is gathered."""
    stages, ready = [0] * len(graph), [0] * len(groups)
    before: list[int] = []
    while before != ready:  # again: what reads a group that is gathered later comes later too
        before = list(ready)
        for node, operands in enumerate(graph.operands):
            after = [ready[group_of[operand]] + 1 if operand in group_of else stages[operand] for operand in operands]
            stages[node] = max(after, default=0)
        for k, ends in enumerate(groups):
            ready[k] = max([stages[end] for end in ends])
    return np.array(stages), ready
