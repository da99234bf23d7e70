"""Classing: nodes of one op whose operands belong to the same classes become one array, in order of creation.

Chains of `+` whose links are used once are n-ary sums, and so are long ones of `+` and `-` in no order; chains of
`larger` are the largest of many. Sums that differ only in their number of terms, like those of attention over a growing
past, are one *ragged* class if there are many lengths: short rows are padded, and the padding is masked. A class has
*slots*: what its members read there belongs to one class too. A slot of a sum is a run of terms.

Nodes that only conditions depend on are in classes of their own. No gradient flows to them, and if they shared an array
with others they would be given an adjoint of 0, which times an infinite slope is NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from itertools import accumulate, chain, islice, pairwise
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.program import Array
from chainrule.compiler.trace.graph import Graph

SUM, LARGEST = CHAINS = "sum", "largest"
LINKS = (ops.add, ops.sub, ops.larger)
FEWEST_EXPONENTS = 17  # of powers, to make one class of them: few are better off as products
FEWEST_LENGTHS = 3  # of otherwise equal sums, to merge them into one class
MOST_PADDING = 4  # times the real number of terms
LONG = 64  # terms of a chain of + and -, to make one sum of it
LEAST_CHANGES = 0.05  # how often the sign changes in such a chain, as a share
LONGEST_PERIOD = 8  # terms after which the signs may not repeat

SILENT = "silent"  # in the key of a class: no gradient flows to its members

Slot = tuple[int, int, int]  # the class that the members read, a sign, and the number of terms that each reads


class Classes:
    """The classes of a graph's nodes, numbered in order of their first members.

    >>> from chainrule import Value
    >>> from chainrule.compiler.trace.graph import graph_of
    >>> w, x = [Value(0.5), Value(2.0)], [Value(1.0), Value(3.0)]
    >>> print(classify(graph_of((w[0] * x[0] + w[1] * x[1]).tanh(), wrt=w)))
    0  parameter  2
    1  input      2
    2  *          2  0 1
    3  sum        1  2·2
    4  tanh       1  3
    """

    def __init__(
        self,
        kinds: list[Any],
        slots: list[tuple[Slot, ...]],
        of: list[int],
        rows: list[Any],
        lengths: dict[int, np.ndarray],
        given: dict[int, int],
        silent: set[int],
    ) -> None:
        self.kinds = kinds  # a kind of leaf, a row of the op table, or one of CHAINS; or the array that leaves are in
        self.slots = slots
        self.silent = silent  # classes that no gradient flows to
        self.lengths = lengths  # ragged class -> numbers of real terms: one row per member, one column per slot
        self.of = np.array(of, dtype=np.int64)  # node -> class; -1 inside a sum
        order = np.argsort(self.of, kind="stable")
        order = order[np.searchsorted(self.of[order], 0) :]
        self.sizes = np.bincount(self.of[order], minlength=len(kinds))
        self.starts = _starts(self.sizes)
        self.members = order  # class by class, oldest first
        self.position = np.zeros(len(of), dtype=np.int64)  # node -> its index among the members of its class
        self.position[order] = np.arange(len(order)) - np.repeat(self.starts[:-1], self.sizes)
        for node, position in given.items():
            self.position[node] = position
        self.slot_starts = _starts(np.fromiter(map(len, slots), np.int64, len(slots)))
        flat_slots = np.array([slot for each in slots for slot in each], dtype=np.int64).reshape(-1, 3)
        self.slot_operands, _, slot_lengths = flat_slots.T  # for all slots, class by class
        self.widths = np.diff(_starts(slot_lengths)[self.slot_starts])
        self.row_starts = _starts(self.sizes * self.widths)
        flat = np.fromiter(chain.from_iterable(map(rows.__getitem__, order.tolist())), np.int64)
        self.operands = self.position[flat]  # positions in the operands' classes, members one after another
        self.sizes[[k for k, kind in enumerate(kinds) if isinstance(kind, Array)]] = [
            kind.size for kind in kinds if isinstance(kind, Array)
        ]
        self.users = np.full(len(kinds), -1)  # the last class that reads each
        self.inlined = self._inlined(slot_lengths)

    def __len__(self) -> int:
        return len(self.kinds)

    def rows(self, index: int) -> np.ndarray:
        """What the members of a class read, as positions in the slots' classes: one row per member."""
        part = self.operands[self.row_starts[index] : self.row_starts[index + 1]]
        return part.reshape(self.sizes[index], self.widths[index])

    def columns(self, index: int) -> list[np.ndarray]:
        """Which columns of `rows` belong to each slot."""
        lengths = [length for _, _, length in self.slots[index]]
        return [np.arange(stop - length, stop) for length, stop in zip(lengths, accumulate(lengths), strict=True)]

    def _inlined(self, lengths: np.ndarray) -> np.ndarray:
        """Which classes are products used once, in one slot of one sum: these are part of that sum and never stored."""
        readers = np.repeat(np.arange(len(self)), np.diff(self.slot_starts))
        self.users[self.slot_operands] = readers
        reads = self.sizes[readers] * lengths
        for index, real in self.lengths.items():
            reads[self.slot_starts[index] : self.slot_starts[index + 1]] = real.sum(axis=0)
        uses = np.bincount(self.slot_operands, weights=reads, minlength=len(self))
        slots = np.bincount(self.slot_operands, minlength=len(self))
        products = np.array([kind is ops.mul for kind in self.kinds])
        sums = np.array([*[kind is SUM for kind in self.kinds], False])  # the last for users[…] = -1
        return np.asarray(products & (slots == 1) & (uses == self.sizes) & sums[self.users])

    def verify(self) -> Classes:
        """These classes, if they are well formed: operands are members of older classes."""
        for index, slots in enumerate(self.slots):
            for (operand, _, _), columns in zip(slots, self.columns(index), strict=True):
                if not 0 <= operand < index:
                    raise AssertionError(f"class {index} reads class {operand}, which must be an older one")
                part = self.rows(index)[:, columns]
                if part.size and not 0 <= part.min() <= part.max() < self.sizes[operand]:
                    raise AssertionError(f"class {index} reads members {part.min()} to {part.max()} of class {operand}")
        return self

    def __str__(self) -> str:
        rows = [
            [str(index), getattr(kind, "symbol", kind), str(size), " ".join(_show(*slot) for slot in slots)]
            for index, (kind, size, slots) in enumerate(zip(self.kinds, self.sizes, self.slots, strict=True))
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def classify(graph: Graph, links: Container[int] = ()) -> Classes:
    """The classes of a graph's nodes. Differences that are `links` are parts of the ones that go on with them."""
    return _Classing(graph, _chains(graph, links)).classes()


def links_of_differences(graph: Graph) -> list[int]:
    """Differences that only one other goes on with, such as `a - b` in `a - b - c`."""
    uses, rules, found = _uses(graph), graph.rules, list[int]()
    for rule, operands in zip(rules, graph.operands, strict=True):
        if rule is ops.sub and rules[operands[0]] is ops.sub and uses[operands[0]] == 1:
            found.append(operands[0])
    return found


class _Classing:
    """From the leaves up, depth by depth. A class is named by its first node.

    Sums of several lengths may become one class, and powers with several exponents too. That depends on all that are
    alike otherwise; these read members of the same classes, and so they have the same depth.
    """

    def __init__(self, graph: Graph, chains: dict[int, list[tuple[int, int]]]) -> None:
        self.graph, self.chains = graph, chains
        self.first: dict[Any, int] = {}  # a key -> the name of its class
        self.slots: dict[int, tuple[Slot, ...]] = {}  # by name; the operands by name too
        self.of = [-1] * len(graph)
        self.rows: list[Any] = list(graph.operands)
        self.ragged: dict[int, dict[int, tuple[int, ...]]] = {}  # name of a ragged class -> node -> lengths
        self.classify()

    def classify(self) -> None:
        rules, every, silent, pow_ = self.graph.rules, self.graph.operands, self.graph.silent, ops.pow_
        of, first, slots, chains = self.of, self.first, self.slots, self.chains
        sums: dict[Any, dict[int, tuple[int, ...]]] = {}  # of one depth: key without lengths -> node -> lengths
        powers: dict[Any, dict[int, float]] = {}  # the same: key without exponent -> node -> exponent
        latest = 0
        for node, depth in self.by_depth():
            if depth > latest:
                if sums or powers:
                    self.settle(sums, powers)
                    sums, powers = {}, {}
                latest = depth
            if node in chains:
                self.add_chain(node, sums)
                continue
            rule, operands = rules[node], every[node]
            key: Any
            if len(operands) == 2:  # as most have: a list would take longer than all else
                key = rule, of[operands[0]], of[operands[1]]
            else:
                key = (rule, *[of[operand] for operand in operands])
            if node in silent:
                key = (*key, SILENT)
            if rule is pow_ and rules[operands[1]] == "constant":
                powers.setdefault(key, {})[node] = self.graph.nodes[operands[1]].data
                continue
            of[node] = name = first.setdefault(key, node)
            if name == node:
                slots[node] = tuple([(of[operand], 1, 1) for operand in operands])
        self.settle(sums, powers)

    def by_depth(self) -> Iterator[tuple[int, int]]:
        """All nodes but the links inside of chains, and their depths; in order of these, then of creation."""
        depths, chains = [0] * len(self.graph), self.chains
        for node, operands in enumerate(self.graph.operands):
            if node in chains:
                depths[node] = 1 + max([depths[operand] for operand, _ in chains[node]])
            elif operands:
                depths[node] = 1 + max([depths[operand] for operand in operands])
        outside = np.array([rule not in LINKS for rule in self.graph.rules], dtype=bool)
        outside[list(chains)] = True
        found = np.flatnonzero(outside)
        by_node = np.array(depths, dtype=np.int64)[found]
        order = np.argsort(by_node, kind="stable")
        return zip(found[order].tolist(), by_node[order].tolist(), strict=True)

    def groups(self, node: int) -> dict[tuple[int, int], list[int]]:
        """The terms of a chain by their classes and signs."""
        found: dict[tuple[int, int], list[int]] = {}
        for operand, sign in self.chains[node]:
            found.setdefault((self.of[operand], sign), []).append(operand)
        return found

    def add_chain(self, node: int, sums: dict[Any, dict[int, tuple[int, ...]]]) -> None:
        """Add a chain to those whose terms are of its classes and signs.

        Chains of differences alone are of different lengths because each waits for the one before: they are not ragged.
        """
        groups = self.groups(node)
        self.rows[node] = list(chain.from_iterable(groups.values()))
        key: Any = (ops.larger, *groups) if self.graph.rules[node] is ops.larger else tuple(groups)
        if node in self.graph.silent:
            key = (*key, SILENT)
        lengths = tuple(map(len, groups.values()))
        if self.graph.rules[node] is ops.sub and all(sign < 0 for _, sign in self.chains[node][1:]):
            self.enter(node, (key, lengths))
        else:
            sums.setdefault(key, {})[node] = lengths

    def settle(self, sums: dict[Any, dict[int, tuple[int, ...]]], powers: dict[Any, dict[int, float]]) -> None:
        """Put all chains and powers of one depth into their classes."""
        for key, found in sums.items():
            if _is_worth_merging(Counter(found.values())):
                self.ragged[min(found)] = found
                for node in found:
                    self.enter(node, key)
            else:
                for node, lengths in found.items():
                    self.enter(node, (key, lengths))
        for key, exponents in powers.items():
            merges = len(set(exponents.values())) >= FEWEST_EXPONENTS  # x² and x³ are different arrays
            for node, exponent in exponents.items():
                self.enter(node, key if merges else (*key, exponent))

    def enter(self, node: int, key: Any) -> None:
        """Put a chain or a power into the class of this key."""
        self.of[node] = name = self.first.setdefault(key, node)
        if name == node and node in self.chains:
            self.slots[node] = tuple([(*group, len(members)) for group, members in self.groups(node).items()])
        elif name == node:
            self.slots[node] = tuple([(self.of[operand], 1, 1) for operand in self.graph.operands[node]])

    def classes(self) -> Classes:
        names = sorted(self.slots)
        number = {name: index for index, name in enumerate(names)}
        real: dict[int, np.ndarray] = {}
        for name, found in self.ragged.items():
            widths = [max(column) for column in zip(*found.values(), strict=True)]
            self.slots[name] = tuple([(*slot[:2], w) for slot, w in zip(self.slots[name], widths, strict=True)])
            real[number[name]] = np.array(list(found.values()), dtype=np.int64)
            for node, lengths in found.items():
                self.rows[node] = _padded(self.rows[node], lengths, widths)
        rules = self.graph.rules
        return Classes(
            [_kind(rules[name]) for name in names],
            [tuple([(number[operand], sign, n) for operand, sign, n in self.slots[name]]) for name in names],
            [number[name] if name >= 0 else -1 for name in self.of],
            self.rows,
            real,
            {node: self.graph.nodes[node] for node in self.graph.places_of(Array)},
            {number[name] for name in names if name in self.graph.silent},
        )


def _is_worth_merging(lengths: Counter[tuple[int, ...]]) -> bool:
    """Whether sums of these lengths, counted, are better as one class than as several."""
    if len(lengths) < FEWEST_LENGTHS:
        return False
    padded = sum([max(column) for column in zip(*lengths, strict=True)]) * lengths.total()
    real = sum([sum(each) * count for each, count in lengths.items()])
    return bool(padded <= MOST_PADDING * real)


def _padded(row: list[int], lengths: Sequence[int], widths: Sequence[int]) -> list[int]:
    """A row with each run of terms padded to its width by repeating the first term."""
    terms, padded = iter(row), []
    for length, width in zip(lengths, widths, strict=True):
        run = list(islice(terms, length))
        padded += run + run[:1] * (width - length)
    return padded


def _kind(rule: Any) -> Any:
    if rule is ops.add or rule is ops.sub:
        return SUM
    return LARGEST if rule is ops.larger else rule


def _chains(graph: Graph, links: Container[int]) -> dict[int, list[tuple[int, int]]]:
    """The n-ary nodes: node -> its terms as (operand, sign), without the links inside a chain."""
    uses = _uses(graph)
    terms: dict[int, list[tuple[int, int]]] = {}
    add, larger, sub, rules = ops.add, ops.larger, ops.sub, graph.rules
    for node, (rule, operands) in enumerate(zip(rules, graph.operands, strict=True)):
        if rule is add or rule is larger:
            first, second = operands
            a = terms.pop(first) if uses[first] == 1 and rules[first] is rule else [(first, 1)]
            if uses[second] == 1 and rules[second] is rule:
                a += terms.pop(second)  # in place, because long sums chain on the left
            else:
                a.append((second, 1))
            terms[node] = a
        elif rule is sub:  # mostly no part of a chain: whether the first has other uses would change its class
            first, second = operands
            a = terms.pop(first) if first in links else [(first, 1)]
            a.append((second, -1))
            terms[node] = a
    _join_mixed(terms, rules, uses)
    return terms


def _join_mixed(terms: dict[int, list[tuple[int, int]]], rules: Sequence[Any], uses: Sequence[int]) -> None:
    """Make one sum of each long chain of `+` and `-`, such as a log-likelihood that cases add to or subtract from."""
    before: dict[int, int] = {}  # a chain -> the one that it goes on with
    size: dict[int, int] = {}
    for node, own in terms.items():
        first = own[0][0]
        if uses[first] == 1 and first in terms and ops.larger not in (rules[first], rules[node]):
            before[node] = first
        size[node] = len(own) + (size[first] - 1 if node in before else 0)
    for end in before.keys() - before.values():
        if size[end] < LONG:
            continue
        parts = [end]
        while parts[-1] in before:
            parts.append(before[parts[-1]])
        joined = [*terms[parts[-1]], *[term for part in reversed(parts[:-1]) for term in terms[part][1:]]]
        if _is_mixed([sign for _, sign in joined[1:]]):  # the first is always added
            for part in parts[1:]:
                del terms[part]
            terms[end] = joined


def _is_mixed(signs: list[int]) -> bool:
    """Whether they change often, and do not repeat, as where each time of a loop adds and subtracts the same."""
    if sum(a != b for a, b in pairwise(signs)) < LEAST_CHANGES * len(signs):
        return False
    return all(signs[period:] != signs[:-period] for period in range(1, LONGEST_PERIOD + 1))


def _uses(graph: Graph) -> list[int]:
    """How often each node is read."""
    found: list[int] = np.bincount(graph.flat_operands, minlength=len(graph)).tolist()
    return found


def _starts(sizes: np.ndarray) -> np.ndarray:
    """Where consecutive runs of these sizes start, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)])


def _show(operand: int, sign: int, length: int) -> str:
    return f"{'-' if sign < 0 else ''}{operand}" + (f"·{length}" if length > 1 else "")
