"""Margins: room around an array, for what reads beyond its ends and does not need what it finds there.

An array that the program computes gets longer. A leaf has the length that it is given with, and is copied.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from chainrule.compiler.passes.layout import padded
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Number, Statement, Term


class Margins:
    """The room that arrays of a program need, as it becomes known."""

    def __init__(self, program: ArrayProgram) -> None:
        accesses = [access for s in program.statements for access in (s.target, *s.accesses())]
        in_time = {access.array for access in accesses if access.repeat}
        self.given = {*program.leaves.values()}
        self.fixed = in_time.union(program.results) - self.given
        self.copies: dict[Array, Array] = {}  # leaves -> what is read in their place
        self.reach: dict[Array, tuple[int, int]] = {}  # the lowest and the highest position

    def reached(self, array: Array, low: int, high: int) -> Array | None:
        """What may be read from `low` to `high` in the place of the array; None if there is nothing."""
        if low >= 0 and high < array.size:
            return array
        if array in self.fixed or high - low >= 2 * array.size:
            return None
        known = (low, high) if array in self.given else (0, array.size - 1)
        before, after = self.reach.get(array, known)
        self.reach[array] = min(low, before), max(high, after)
        if array in self.given:
            return self.copies.setdefault(array, Array(f"{array.name}_wide", 0, "value", examples=array.examples))
        return array

    def added(self, program: ArrayProgram) -> ArrayProgram:
        """The program with the room that was asked for."""
        if not self.reach:
            return program
        wide = {
            self.copies.get(array, array): _Wide(array, self.copies.get(array, array), *self.reach[array])
            for array in self.reach
        }

        def change(access: Access) -> Access:
            return wide[access.array].access(access) if access.array in wide else access

        found = program.rewritten(lambda statement: statement.map(change), {})
        found.steps[:0] = [statement for each in wide.values() for statement in each.begun()]
        return found


class _Wide:
    """An array with room at its ends; or a copy of the part that is read, and room there."""

    def __init__(self, array: Array, copy: Array, low: int, high: int) -> None:
        self.array, self.is_copy = array, copy is not array
        self.first, self.last = max(low, 0), min(high, array.size - 1)  # of its own elements
        self.shift = padded(-low) if low < 0 else -low
        self.wide = Array(copy.name, self.shift + high + 1, copy.kind, examples=copy.examples)

    def access(self, access: Access) -> Access:
        """The same element, in this array."""
        if access.table is None:
            return Access(self.wide, access.base + self.shift, access.strides)
        return Access(self.wide, access.base, access.strides, np.asarray(access.table) + self.shift)

    def begun(self) -> Iterator[Statement]:
        """Zeros at the ends, and for a leaf the copy."""
        start, stop = self.first + self.shift, self.last + self.shift + 1
        for begin, end in ((0, start), (stop, self.wide.size)):
            if end > begin:
                yield Statement(Access(self.wide, begin, (1,)), (end - begin,), [Term(Number(0.0))])
        if self.is_copy:
            source = Access(self.array, self.first, (1,))
            yield Statement(Access(self.wide, start, (1,)), (stop - start,), [Term(source)])
