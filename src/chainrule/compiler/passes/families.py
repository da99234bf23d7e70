"""Families: classes that sums go through one after another become rows of one array.

Cholesky's factor is found column by column. Each column is a class of its own, an element shorter than the last, and
the sum over all earlier columns has a term for each: with its gradient, statements by the square of the size. If the
columns are rows of one array, laid so that the sum finds its terms at equal distances, it is one reduction.

The products that such sums add up are of one class for each column, of which every later sum takes its share. So a
product may be part of several sums, where each of them finds its factors at regular places. In an elimination these are
regular in a row, and in another way in a column: such a sum is stored in two parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.classes import SUM, Classes

FEWEST = 3  # rows that make an array worthwhile
MOST_PADDING = 4  # times the elements of its classes
MOST_PARTS = 2  # of a sum, each with a statement


class Row(NamedTuple):
    """Where the elements of a class are: in the array of the class `first`, which has this `size`, from `offset` on."""

    first: int
    offset: int
    size: int


class _Read(NamedTuple):
    """What the members of a sum read in one slot of one term: a class, and positions in it."""

    operand: int
    positions: np.ndarray


class Families:
    """`products` are parts of several sums; `rows` has the classes that share an array with others.

    `parts` has where the parts of a sum begin and end, of those that have several. `free` says which classes may be any
    of these: those of a recurrence have their places.
    """

    def __init__(self, classes: Classes, free: np.ndarray) -> None:
        self.classes, self.free = classes, free
        self.sums = {k for k in np.flatnonzero(free).tolist() if classes.kinds[k] == SUM and k not in classes.lengths}
        self.products: set[int] = set()
        self.parts: dict[int, list[tuple[int, int]]] = {}
        self._find_products()
        self.rows: dict[int, Row] = {}
        found = [family for index in sorted(self.sums) for family in self._families(index)]
        for family in sorted(found, key=len, reverse=True):
            if not any(operand in self.rows for operand, _ in family):
                self._add(family)
        self.products = {k for k in self.products if self._is_one_of_many(k)}
        self.parts = {index: found for index, found in self.parts.items() if self._has_product(index)}

    def _is_one_of_many(self, product: int) -> bool:
        """Whether a product is one of many that are one term in a sum.

        By itself it is better stored: its gradient passes to two factors, in as many statements as there are sums.
        """
        return any(factor in self.rows for factor, _, _ in self.classes.slots[product])

    def verify(self) -> Families:
        """These, if they are well formed: rows of one array lie apart in it, and each product is used once, in sums."""
        arrays: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for index, (first, offset, size) in self.rows.items():
            arrays.setdefault((first, size), []).append((offset, offset + int(self.classes.sizes[index])))
        for (first, size), rows in arrays.items():
            ends = [0, *[end for row in sorted(rows) for end in row], size]
            if ends != sorted(ends):
                raise AssertionError(f"rows overlap, or leave the array of class {first}: {sorted(rows)} of {size}")
        uses = {index: np.zeros(self.classes.sizes[index], dtype=np.int64) for index in self.products}
        for index, slots in enumerate(self.classes.slots):
            for (operand, _, _), columns in zip(slots, self.classes.columns(index), strict=True):
                if operand in uses:
                    np.add.at(uses[operand], self.classes.rows(index)[:, columns], 1 if index in self.sums else 2)
        if wrong := [index for index, counts in uses.items() if (counts != 1).any()]:
            raise AssertionError(f"products of class {wrong[0]} are not used once, in sums")
        return self

    def _find_products(self, most_parts: int = MOST_PARTS) -> None:
        """Find products of which each member is used once, in one of several sums that find its factors regularly."""
        classes, candidates = self.classes, self._candidates()
        uses = np.zeros(len(classes), dtype=np.int64)
        parts: dict[int, list[tuple[int, int]]] = {}
        rejected: set[int] = set()
        for index in sorted(self.sums):
            slots = [k for k, (operand, _, _) in enumerate(classes.slots[index]) if operand in candidates]
            operands = [classes.slots[index][slot][0] for slot in slots]
            if operands:
                np.add.at(uses, operands, classes.sizes[index])
                pairs = zip(operands, self._columns(index)[slots], strict=True)
                streams = [classes.rows(operand)[members] for operand, members in pairs]
                found = regular_parts(np.concatenate(streams, axis=1))
                if len(found) > most_parts:
                    rejected.update(operands)
                elif len(found) > 1:
                    parts[index] = found
        self.products = {k for k in candidates - rejected if uses[k] == classes.sizes[k]}
        self.parts = {index: found for index, found in parts.items() if self._has_product(index)}
        if len(self.parts) > len(self.products):  # more statements than without
            self._find_products(1)

    def _has_product(self, index: int) -> bool:
        return any(operand in self.products for operand, _, _ in self.classes.slots[index])

    def _candidates(self) -> set[int]:
        """The products that are read by several slots, of one term each and of sums only."""
        classes = self.classes
        readers = np.repeat(np.arange(len(classes)), np.diff(classes.slot_starts))
        sums = np.zeros(len(classes), dtype=bool)
        sums[list(self.sums)] = True
        single = np.array([length == 1 for slots in classes.slots for _, _, length in slots], dtype=bool)
        found = np.bincount(classes.slot_operands, minlength=len(classes)) > 1
        found &= self.free & np.array([kind is ops.mul for kind in classes.kinds])
        found[classes.slot_operands[~(sums[readers] & single)]] = False
        return {*np.flatnonzero(found).tolist()}

    def _families(self, index: int) -> Iterator[list[tuple[int, int]]]:
        """Classes that the terms of a sum read in their order, and where the first member reads each."""
        slots = self.classes.slots[index]
        if len(slots) < FEWEST:
            return
        columns = self._columns(index)
        terms: dict[object, list[list[_Read]]] = {}  # by sign, and by kinds of what is read
        for (operand, sign, length), members in zip(slots, columns, strict=True):
            if length == 1:
                reads = self._reads(operand, members)
                terms.setdefault((sign, *[self.classes.kinds[read.operand] for read in reads]), []).append(reads)
        for same in terms.values():
            for side in zip(*same, strict=True):
                if self._is_family(side, [start for start, _ in self.parts.get(index, [(0, 0)])]):
                    yield [(read.operand, int(read.positions[0])) for read in side]

    def _reads(self, operand: int, members: np.ndarray) -> list[_Read]:
        """What a term reads: members of one class, or what the members of a product read."""
        if operand not in self.products and not self.classes.inlined[operand]:
            return [_Read(operand, members)]
        rows = self.classes.rows(operand)[members]
        return [_Read(factor, rows[:, k]) for k, (factor, _, _) in enumerate(self.classes.slots[operand])]

    def _columns(self, index: int) -> np.ndarray:
        """What the members of a sum read in the first term of each slot."""
        lengths = [length for _, _, length in self.classes.slots[index]]
        return self.classes.rows(index)[:, np.cumsum(lengths) - lengths].T

    def _is_family(self, side: Sequence[_Read], starts: Sequence[int]) -> bool:
        """Whether these are different classes, of which the members of the sum's parts read the same pattern."""
        operands = [read.operand for read in side]
        if len(operands) < FEWEST or len({*operands}) < len(operands) or not self.free[operands].all():
            return False
        positions = np.array([read.positions for read in side])
        lengths = np.diff([*starts, positions.shape[1]])
        patterns = positions - np.repeat(positions[:, starts], lengths, axis=1)
        return bool((patterns == patterns[0]).all())

    def _add(self, family: Sequence[tuple[int, int]]) -> None:
        """Rows for a family, in which what one member reads lies at equal distances; without classes that are large."""
        family = list(family)
        while len(family) >= FEWEST:
            sizes = self.classes.sizes[[operand for operand, _ in family]]
            offsets, total = placed(sizes, np.array([position for _, position in family]))
            if total <= MOST_PADDING * sizes.sum():
                for (operand, _), offset in zip(family, offsets.tolist(), strict=True):
                    self.rows[operand] = Row(family[0][0], offset, total)
                return
            del family[int(sizes.argmax())]


def placed(sizes: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, int]:
    """Where rows of these sizes lie, if these positions in them are at equal distances; and the size of them all.

    Rows come one after another, or one before another where that takes half of the room: a first row that is much
    longer than others is then the last in memory.

    >>> placed(np.array([3, 2, 1]), np.array([2, 1, 0]))
    (array([0, 3, 6]), 7)
    >>> placed(np.array([19, 2, 1, 1]), np.array([0, 0, 0, 0]))
    (array([6, 4, 2, 0]), 25)
    """
    ends = sizes - positions
    number = np.arange(len(sizes))
    forth = number * (ends[:-1] + positions[1:]).max() - positions
    back = -number * (ends[1:] + positions[:-1]).max() - positions
    totals = [int((offsets + sizes).max() - offsets.min()) for offsets in (forth, back)]
    chosen = int(2 * totals[1] <= totals[0])
    offsets = (forth, back)[chosen]
    return offsets - offsets.min(), totals[chosen]


def regular_parts(positions: np.ndarray) -> list[tuple[int, int]]:
    """Where parts begin and end in which each column moves by equal distances.

    >>> regular_parts(np.array([[0, 5], [0, 6], [0, 7], [1, 5], [2, 5]]))
    [(0, 3), (3, 5)]
    """
    steps = np.diff(positions, axis=0)
    changes = np.flatnonzero((steps[1:] != steps[:-1]).any(axis=1)) + 1
    starts = [0]
    for change in changes.tolist():
        if change > starts[-1]:  # otherwise the step there leads from one part to the next
            starts.append(change + 1)
    ends = [*starts[1:], len(positions)]
    return list(zip(starts, ends, strict=True))
