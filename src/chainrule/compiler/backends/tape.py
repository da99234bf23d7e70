"""Tapes: graphs as arrays of integers, which are run again and again with other numbers.

The native engine has a loop for each op, and one for sums, differences and products in any order. So nodes are put in
an order in which few loops begin anew; this takes about half the time of going through nodes as they were made. But
gradients are sums, and sums depend on their order: every node must get its gradients in the order in which `backward()`
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

LEAF, ARITHMETIC = -1, -2
SUM, DIFFERENCE, PRODUCT = range(3)  # as in native/arithmetic.h
HOW: dict[Any, int] = {TABLE["add"]: SUM, TABLE["sub"]: DIFFERENCE, TABLE["mul"]: PRODUCT, TABLE["neg"]: PRODUCT}
CODES: dict[Any, int] = dict.fromkeys(KINDS, LEAF)
CODES |= {row: row.code for row in TABLE.values() if row.code < BUILTIN_OPS}  # other rules are for Python
SHORT = 16  # nodes: a run of that many has a loop of its own


class Tape:
    """A graph as arrays. `results` are the nodes to compute, `inputs` initial numbers for the inputs.

    Memory for a run is a copy of `numbers`, and zeros for gradients. There is one more of both than nodes: behind the
    numbers -1.0, by which negative numbers are products, and behind the gradients room for those that nobody wants.

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
        is_arithmetic = np.array([rule in HOW for rule in graph.rules], dtype=bool) & (codes < BUILTIN_OPS)
        loops = np.where(is_arithmetic, ARITHMETIC, kinds)
        turns, levels = map(np.array, _turns_and_levels(graph, kinds.tolist(), loops.tolist(), every_taken))
        order = np.lexsort((kinds, levels, loops, turns, part, age >= self.surroundings))
        self.size = len(graph)
        self.graph, self.results = graph.reordered(order.tolist()), np.argsort(order)[list(results)]
        self.taken = [every_taken[place] for place in order.tolist()]
        leaves = np.flatnonzero(codes[order] == LEAF)
        given = [(self.graph.rules[place], self.graph.nodes[place]) for place in leaves.tolist()]
        self.leaves = {kind: leaves[[found == kind for found, _ in given]] for kind in KINDS}
        self.numbers = np.zeros(len(graph) + 1)
        self.numbers[-1] = -1.0
        self.numbers[leaves] = [_number(kind, node, inputs) for kind, node in given]
        self.arrays = _arrays(self.graph, codes[order], taken[order], kinds[order], is_arithmetic[order])
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
        for place in self._python_in(start, stop):
            numbers: Any = data.data  # gives floats
            if start < place and BUILTIN_OPS:
                tape_forward(self.arrays, data, start, place)
            given = [numbers[operand] for operand in self.graph.operands[place]]
            numbers[place] = as_float(self.graph.rules[place].forward(*given), "the op's result")
            start = place + 1
        if start < stop and BUILTIN_OPS:
            tape_forward(self.arrays, data, start, stop)

    def backward(self, data: np.ndarray, grads: np.ndarray, start: int, stop: int) -> None:
        """Pass the gradients of a range on, newest node first. They are 0 afterwards, except for those of leaves."""
        for place in reversed(self._python_in(start, stop)):
            numbers: Any = data.data
            slopes: Any = grads.data
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
        if not self.in_python:
            return []
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


def _turns_and_levels(
    graph: Graph, kinds: Sequence[int], loops: Sequence[int], taken: Sequence[int]
) -> tuple[list[int], list[int]]:
    """For each node the turn of its loop, and its level in that; its kind is its op with the operands that it takes.

    A turn is above those of the operands, or the same if these are in the same loop, on lower levels. And neither is
    below that of an older node that passes a gradient to the same operand. A turn is above it if that is in another
    loop, and a level if that is of another kind: then the newer one comes later, and backward first.
    """
    turns, levels = [0] * len(graph), [0] * len(graph)
    latest = [-1] * len(graph)  # the last node that passes a gradient to each
    for node, operands in enumerate(graph.operands):
        if not operands:
            continue
        level, turn, loop, bits = 0, 0, loops[node], taken[node]
        for k, operand in enumerate(operands):
            level = max(level, levels[operand] + 1)
            turn = max(turn, turns[operand] + (loops[operand] != loop))
            if bits >> k & 1:
                before = latest[operand]
                latest[operand] = node
                if node > before >= 0:
                    level = max(level, levels[before] + (kinds[before] != kinds[node]))
                    turn = max(turn, turns[before] + (loops[before] != loop))
        turns[node], levels[node] = turn, level
    return turns, levels


def _arrays(
    graph: Graph, codes: np.ndarray, taken: np.ndarray, kinds: np.ndarray, is_arithmetic: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A row for each run of nodes of one kind (see `Run` in node.h), each node's run, and all operands."""
    arity = np.fromiter(map(len, graph.operands), np.int64, len(graph))
    operands = np.fromiter(chain.from_iterable(graph.operands), np.int32, int(arity.sum()))
    lengths = np.diff(_starts(kinds), append=len(kinds))
    is_mixed = is_arithmetic & np.repeat(lengths < SHORT, lengths)
    if is_mixed.any():
        rows = _arithmetic(graph, operands, np.cumsum(arity) - arity, taken, np.flatnonzero(is_mixed))
        width = np.where(is_mixed, rows.shape[1], arity)
        found = np.empty(int(width.sum()), np.int32)
        in_row = np.repeat(is_mixed, width)
        found[in_row], found[~in_row] = rows.reshape(-1), operands[np.repeat(~is_mixed, arity)]
        operands, arity = found, width
    starts = _starts(np.where(is_mixed, ARITHMETIC, kinds))
    stops, firsts = np.append(starts, len(codes))[1:], (np.cumsum(arity) - arity)[starts]
    columns = [np.where(is_mixed, ARITHMETIC, codes)[starts], arity[starts], np.maximum.reduceat(taken, starts)]
    runs = np.stack([*columns, starts, stops, firsts], axis=1).astype(np.int32)
    return runs, np.repeat(np.arange(len(starts), dtype=np.int32), stops - starts), operands


def _starts(kinds: np.ndarray) -> np.ndarray:
    """Where runs of equal numbers start."""
    return np.flatnonzero(np.concatenate([[True], np.diff(kinds) != 0])[: len(kinds)])


def _arithmetic(
    graph: Graph, operands: np.ndarray, firsts: np.ndarray, taken: np.ndarray, nodes: np.ndarray
) -> np.ndarray:
    """For sums, differences and products: both operands, where their gradients go, and which of the three it is."""
    nowhere, first, rules = len(graph), firsts[nodes], [graph.rules[node] for node in nodes.tolist()]
    is_negative = np.array([rule.arity == 1 for rule in rules])
    a, b = operands[first], np.where(is_negative, nowhere, operands[first + ~is_negative])
    into = [np.where(taken[nodes] >> k & 1, operand, nowhere) for k, operand in enumerate((a, b))]
    return np.stack([a, b, *into, [HOW[rule] for rule in rules]], axis=1)


def _number(kind: str, node: Any, inputs: Iterator[float]) -> float:
    """The initial number of a leaf."""
    given = next(inputs, None) if kind == "input" else None
    return float(number_of(node)) if given is None else given
