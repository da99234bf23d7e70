"""Classing: nodes of one op whose operands are of the same classes will be one array.

1. Chains of `+` whose links are used once become n-ary sums; `a - b` is a sum with a negative term.
2. Nodes are classed from the leaves up: a class is an op and the classes of its operands. The members of a class, in
   order of creation, are one array. In micrograd's moons demo all 16·100 first-layer sums are one class.

A class has *slots*: what each of its members reads there is of one class too. A slot of a sum is a run of terms.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.graph import Graph

SUM = "sum"


Slot = tuple[int, int, int]  # the class of what the members read there, a sign, and how many terms each reads


class Classes:
    """The classes of a graph's nodes, numbered in order of their first members.

    >>> from chainrule import Value
    >>> from chainrule.compiler.graph import trace
    >>> w, x = [Value(0.5), Value(2.0)], [Value(1.0), Value(3.0)]
    >>> print(classify(trace((w[0] * x[0] + w[1] * x[1]).tanh(), wrt=w)))
    0  parameter  2
    1  input      2
    2  *          2  0 1
    3  sum        1  2·2
    4  tanh       1  3
    """

    def __init__(self, kinds: list[Any], slots: list[tuple[Slot, ...]], of: list[int], rows: list[Any]) -> None:
        self.kinds = kinds  # of leaf, or the row of the op table, or SUM
        self.slots = slots
        self.of = np.array(of, dtype=np.int64)  # node -> class; -1 inside a sum
        order = np.argsort(self.of, kind="stable")
        order = order[np.searchsorted(self.of[order], 0) :]
        self.sizes = np.bincount(self.of[order], minlength=len(kinds))
        self.starts = _starts(self.sizes)
        self.members = order  # class by class, oldest first
        self.position = np.zeros(len(of), dtype=np.int64)  # of a node among the members of its class
        self.position[order] = np.arange(len(order)) - np.repeat(self.starts[:-1], self.sizes)
        self.slot_starts = _starts(np.fromiter(map(len, slots), np.int64, len(slots)))
        flat_slots = np.array([slot for each in slots for slot in each], dtype=np.int64).reshape(-1, 3)
        self.slot_operands, _, lengths = flat_slots.T  # of all slots, class by class
        self.widths = np.diff(np.append(0, np.cumsum(lengths))[self.slot_starts])
        self.row_starts = _starts(self.sizes * self.widths)
        flat = np.fromiter(chain.from_iterable(map(rows.__getitem__, order.tolist())), np.int64)
        self.operands = self.position[flat]  # positions in the operands' classes, members one after another
        self.users = np.full(len(kinds), -1)  # the last class that reads each
        self.inlined = self._inlined(lengths)

    def __len__(self) -> int:
        return len(self.kinds)

    def rows(self, index: int) -> np.ndarray:
        """What the members of a class read, as positions in the slots' classes: a row a member."""
        part = self.operands[self.row_starts[index] : self.row_starts[index + 1]]
        return part.reshape(self.sizes[index], self.widths[index])

    def _inlined(self, lengths: np.ndarray) -> np.ndarray:
        """The products that are used once, in one slot of one sum: parts of that sum, never stored."""
        readers = np.repeat(np.arange(len(self)), np.diff(self.slot_starts))
        self.users[self.slot_operands] = readers
        uses = np.bincount(self.slot_operands, weights=self.sizes[readers] * lengths, minlength=len(self))
        slots = np.bincount(self.slot_operands, minlength=len(self))
        products = np.array([kind is ops.mul for kind in self.kinds])
        sums = np.array([*[kind is SUM for kind in self.kinds], False])  # the last for users[…] = -1
        return np.asarray(products & (slots == 1) & (uses == self.sizes) & sums[self.users])

    def verify(self) -> Classes:
        """These classes, if they are well formed: operands of older classes, and inside them."""
        for index, slots in enumerate(self.slots):
            column = 0
            for operand, _, length in slots:
                if not 0 <= operand < index:
                    raise AssertionError(f"class {index} reads class {operand}, which must be an older one")
                part = self.rows(index)[:, column : column + length]
                if part.size and not 0 <= part.min() <= part.max() < self.sizes[operand]:
                    raise AssertionError(f"class {index} reads members {part.min()} to {part.max()} of class {operand}")
                column += length
        return self

    def __str__(self) -> str:
        rows = [
            [
                str(index),
                kind if isinstance(kind, str) else kind.symbol,
                str(self.sizes[index]),
                " ".join(_show(*slot) for slot in slots),
            ]
            for index, (kind, slots) in enumerate(zip(self.kinds, self.slots, strict=True))
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def classify(graph: Graph) -> Classes:
    """The nodes of a graph by class."""
    sums = _sums(graph)
    add, sub, power, rules = ops.add, ops.sub, ops.pow_, graph.rules
    by_key: dict[tuple[Any, ...], int] = {}
    kinds: list[Any] = []
    slots: list[tuple[Slot, ...]] = []
    of: list[int] = [-1] * len(graph)
    rows: list[Any] = list(graph.operands)
    for node, (rule, operands) in enumerate(zip(rules, rows, strict=True)):
        if rule is add or rule is sub:
            terms = sums.get(node)
            if terms is None:
                continue  # a link of a longer chain
            groups: dict[tuple[int, int], list[int]] = {}
            for operand, sign in terms:
                groups.setdefault((of[operand], sign), []).append(operand)
            rows[node] = list(chain.from_iterable(groups.values()))
            key: tuple[Any, ...] = (SUM, *[(operand, sign, len(run)) for (operand, sign), run in groups.items()])
        else:
            key = (rule, *[of[operand] for operand in operands])
            if rule is power and rules[operands[1]] == "constant":
                key = (*key, graph.nodes[operands[1]].data)  # x² and x³ are different arrays
        index = by_key.get(key)
        if index is None:
            index = by_key[key] = len(kinds)
            kinds.append(key[0])
            slots.append(key[1:] if key[0] is SUM else tuple([(of[operand], 1, 1) for operand in operands]))
        of[node] = index
    return Classes(kinds, slots, of, rows)


def _sums(graph: Graph) -> dict[int, list[tuple[int, int]]]:
    """The n-ary sums: node -> its terms as (operand, sign). Links inside a chain are not among them."""
    flat = np.fromiter(chain.from_iterable(graph.operands), np.int64)
    uses = np.bincount(flat, minlength=len(graph)).tolist()
    terms: dict[int, list[tuple[int, int]]] = {}
    for node, rule in enumerate(graph.rules):
        if rule is ops.add:
            a, b = graph.operands[node]
            linked = graph.rules[a] is ops.add and uses[a] == 1
            these = terms.pop(a) if linked else [(a, 1)]  # extended in place: long sums are chains on the left
            if graph.rules[b] is ops.add and uses[b] == 1:
                these += terms.pop(b)
            else:
                these.append((b, 1))
            terms[node] = these
        elif rule is ops.sub:  # never part of a chain: whether `a` has other uses must not change its class
            a, b = graph.operands[node]
            terms[node] = [(a, 1), (b, -1)]
    return terms


def _starts(sizes: np.ndarray) -> np.ndarray:
    """Where runs of these sizes start when they follow one another, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)])


def _show(operand: int, sign: int, length: int) -> str:
    return f"{'-' if sign < 0 else ''}{operand}" + (f"·{length}" if length > 1 else "")
