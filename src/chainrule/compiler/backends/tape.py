"""Tapes: graphs as arrays of integers, which are run again and again with other numbers.

The native engine has a loop for each op. So nodes are put in the order of their *levels*, where those of one op follow
each other in runs; this takes about half the time of going through nodes as they were made. Gradients are sums, and
sums depend on their order: the levels see to it that every node gets its gradients in the order in which `backward()`
adds them. What the native engine does not know, rules that the user wrote, is computed in between, in Python. The
Python engine has no other way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from chainrule.compiler.trace.graph import KINDS, Graph
from chainrule.core.graph import number_of
from chainrule.core.value import ENGINE
from chainrule.ops import TABLE, as_float

if ENGINE == "native":
    from chainrule._native import BUILTIN_OPS, tape_backward, tape_forward
else:
    BUILTIN_OPS = 0

LEAF = -1
CODES: dict[Any, int] = dict.fromkeys(KINDS, LEAF)
CODES |= {row: row.code for row in TABLE.values() if row.code < BUILTIN_OPS}  # other rules are for Python


class Tape:
    """A graph as arrays. `results` are the nodes to compute, `inputs` initial numbers for the inputs.

    Nodes made before serial number `since` are the *surroundings* of a function: eager code computes them once per
    batch, and the function's own nodes, which come after them, once per example. If the results are wanted `in_turn`,
    nothing that only later ones need comes before one.
    """

    def __init__(
        self,
        graph: Graph,
        gradient: bool,
        results: Sequence[int],
        inputs: Iterator[float],
        since: int,
        in_turn: bool = False,
    ) -> None:
        self.surroundings = bisect_left(graph.nodes, since, key=lambda node: node._serial)
        codes = np.array([CODES.get(rule, BUILTIN_OPS) for rule in graph.rules], np.int32)
        every_taken = _taken(graph, results) if gradient else [0] * len(graph)
        taken = np.array([bits & 0xFF for bits in every_taken], np.int64)  # a user's op may have any number of operands
        age = np.arange(len(graph))
        part = np.searchsorted(np.maximum.accumulate(results), age) if in_turn else 0 * age
        kinds = codes + (BUILTIN_OPS + 1) * taken  # LEAF is -1, and takes none
        level = np.array(_levels(graph, kinds.tolist(), every_taken))
        order = np.lexsort((kinds, level, part, age >= self.surroundings))
        self.graph, self.results = graph.reordered(order.tolist()), np.argsort(order)[list(results)]
        self.taken = [every_taken[place] for place in order.tolist()]
        leaves = np.flatnonzero(codes[order] == LEAF)
        given = [(self.graph.rules[place], self.graph.nodes[place]) for place in leaves.tolist()]
        self.leaves = {kind: leaves[[found == kind for found, _ in given]] for kind in KINDS}
        self.numbers = np.zeros(len(graph))
        self.numbers[leaves] = [_number(kind, node, inputs) for kind, node in given]
        self.arrays = _arrays(self.graph, codes[order], taken[order])
        self.in_python = np.flatnonzero(codes[order] >= BUILTIN_OPS).tolist()

    def reached_surroundings(self) -> list[int]:
        """The surroundings that the function's own nodes pass gradients to, and results that are among them."""
        passed = [
            operand
            for place in range(self.surroundings, len(self.taken))
            for k, operand in enumerate(self.graph.operands[place])
            if self.taken[place] >> k & 1
        ]
        return [place for place in {*passed, *self.results.tolist()} if place < self.surroundings]

    def forward(self, data: np.ndarray, start: int, stop: int) -> None:
        """Compute the nodes of a range from the numbers of older ones."""
        numbers: Any = data.data  # gives floats
        for place in self._python_in(start, stop):
            if start < place and BUILTIN_OPS:
                tape_forward(self.arrays, data, start, place)
            given = [numbers[operand] for operand in self.graph.operands[place]]
            numbers[place] = as_float(self.graph.rules[place].forward(*given), "the op's result")
            start = place + 1
        if start < stop and BUILTIN_OPS:
            tape_forward(self.arrays, data, start, stop)

    def backward(self, data: np.ndarray, grads: np.ndarray, start: int, stop: int) -> None:
        """Pass the gradients of a range on, newest node first. They are 0 afterwards, except for those of leaves."""
        numbers: Any = data.data
        slopes: Any = grads.data
        for place in reversed(self._python_in(start, stop)):
            if place + 1 < stop and BUILTIN_OPS:
                tape_backward(self.arrays, data, grads, place + 1, stop)
            operands, partials = self.graph.operands[place], self.graph.rules[place].partials
            given = [numbers[operand] for operand in operands]
            grad, slopes[place], stop = slopes[place], 0.0, place
            for k, operand in enumerate(operands):
                if self.taken[place] >> k & 1:
                    slopes[operand] += grad * as_float(partials[k](numbers[place], *given), "the op's partial")
        if start < stop and BUILTIN_OPS:
            tape_backward(self.arrays, data, grads, start, stop)

    def _python_in(self, start: int, stop: int) -> list[int]:
        return self.in_python[bisect_left(self.in_python, start) : bisect_left(self.in_python, stop)]


def _taken(graph: Graph, results: Sequence[int]) -> list[int]:
    """For each node, bits of the operands that it passes a gradient to, from the result on to the parameters."""
    leads = [rule == "parameter" for rule in graph.rules]
    taken = []
    for place, (rule, operands) in enumerate(zip(graph.rules, graph.operands, strict=True)):
        bits = 0
        for k, operand in enumerate(operands):
            if leads[operand] and rule.partials[k]:
                bits |= 1 << k
                leads[place] = True
        taken.append(bits)
    reached = [False] * len(taken)
    for place in results:
        reached[place] = True
    for place in reversed(range(len(taken))):
        if reached[place]:
            for k, operand in enumerate(graph.operands[place]):
                reached[operand] |= bool(taken[place] >> k & 1)
        else:
            taken[place] = 0
    return taken


def _levels(graph: Graph, kinds: Sequence[int], taken: Sequence[int]) -> list[int]:
    """The level of each node; its kind is its op, and the operands that it passes gradients to.

    It is above those of its operands. And it is not below that of an older node that passes a gradient to the same
    operand, but above it if the two are of different kinds: then the newer one comes later, and backward first.
    """
    levels: list[int] = []
    latest = [-1] * len(graph)  # the last node that passes a gradient to each
    for node, operands in enumerate(graph.operands):
        level = 1 + max([levels[operand] for operand in operands]) if operands else 0
        bits, kind = taken[node], kinds[node]
        for k, operand in enumerate(operands) if bits else ():
            if bits >> k & 1:
                before = latest[operand]
                latest[operand] = node
                if node > before >= 0:
                    level = max(level, levels[before] + (kinds[before] != kind))
        levels.append(level)
    return levels


def _arrays(graph: Graph, codes: np.ndarray, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A row for each run of nodes of one kind (see `Run` in node.h), each node's run, and all operands."""
    arity = np.fromiter(map(len, graph.operands), np.int64, len(graph))
    is_first = np.ones(len(codes), dtype=bool)
    is_first[1:] = (np.diff(codes) != 0) | (np.diff(taken) != 0)
    starts = np.flatnonzero(is_first)
    stops, firsts = np.append(starts, len(codes))[1:], (np.cumsum(arity) - arity)[starts]
    runs = np.stack([codes[starts], arity[starts], taken[starts], starts, stops, firsts], axis=1)
    operands = np.fromiter(chain.from_iterable(graph.operands), np.int32, int(arity.sum()))
    return runs.astype(np.int32), (np.cumsum(is_first) - 1).astype(np.int32), operands


def _number(kind: str, node: Any, inputs: Iterator[float]) -> float:
    """The initial number of a leaf."""
    given = next(inputs, None) if kind == "input" else None
    return float(number_of(node)) if given is None else given
