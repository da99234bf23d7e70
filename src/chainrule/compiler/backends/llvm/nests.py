"""Loop nests: a group of statements as one LLVM function.

One loop goes through vectors, in chunks as wide as fit. Other loops may be *jammed*: several of their turns are
computed side by side, and share what they load. A *tile* is a list of index lists, one for each of these turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chainrule import ops
from chainrule.compiler.backends.llvm.memory import Memory
from chainrule.compiler.backends.llvm.reductions import Reduction
from chainrule.compiler.backends.llvm.registers import Register
from chainrule.compiler.passes.fusion import Group, is_same
from chainrule.compiler.passes.lanes import JAM, choose_jams, choose_lanes
from chainrule.compiler.passes.program import Access, Apply, Expression, Number, Statement, Term

Tile = list[list[str]]


class Nest:
    """Writes a statement, and those that go along with it, to the text of `memory`."""

    def __init__(self, memory: Memory, group: Group) -> None:
        self.memory = memory
        self.text, self.arithmetic, self.element = memory.text, memory.arithmetic, memory.element
        self.axis, self.statement = choose_lanes(group[0])
        self.followers = group[1:]
        self.reduction = Reduction(self.arithmetic, self.statement.join)
        self.known: list[tuple[Access, Register]] = []  # what this turn has in registers
        self.jammed = choose_jams(self.statement, self.axis)
        self.lanes = 1
        self.nest(0, [[]])

    # Loops.

    def nest(self, depth: int, tile: Tile) -> None:
        """The statement's loops from `depth` on."""
        if depth == len(self.statement.loops):
            self.body(tile)
            return
        extent = self.statement.loops[depth]

        def one(index: str) -> None:
            self.nest(depth + 1, [[*indices, index] for indices in tile])

        def several(index: str) -> None:
            turns = [self.shifted(index, k) for k in range(JAM)]
            self.nest(depth + 1, [[*indices, turn] for indices in tile for turn in turns])

        if depth == self.axis:
            for start, stop, lanes in _chunks(extent, self.element.widest):
                self.lanes = lanes
                self.walk(start, stop, lanes, one)
            self.lanes = 1
        elif depth in self.jammed:
            whole = extent // JAM * JAM
            self.walk(0, whole, JAM, several)
            self.walk(whole, extent, 1, one)
        else:
            self.walk(0, extent, 1, one)

    def walk(self, start: int, stop: int, step: int, body: Callable[[str], None]) -> None:
        """`body` for start, start + step, …, below `stop`."""
        if stop - start <= step:
            if start < stop:
                body(str(start))
            return

        def once(index: str, carried: list[Register]) -> list[Register]:
            body(self.shifted(index, start))
            return []

        self.loop(stop - start, step, [], once)

    def loop(
        self, stop: int, step: int, carried: list[Register], body: Callable[[str, list[Register]], list[Register]]
    ) -> list[Register]:
        """A loop over 0, step, …, below `stop`; `body` takes and returns the registers carried from turn to turn."""
        results: list[Register] = []

        def once(index: str, names: list[str]) -> list[str]:
            pairs = zip(names, carried, strict=True)
            results[:] = body(index, [Register(self.arithmetic, name, value.lanes) for name, value in pairs])
            return [result.name for result in results]

        self.text.loop(stop, step, [(self.element.lanes(value.lanes), value.name) for value in carried], once)
        return results

    def shifted(self, index: str, offset: int) -> str:
        """The index, `offset` further on."""
        if offset == 0:
            return index
        return str(int(index) + offset) if index.isdigit() else self.text.emit(f"add nuw nsw i64 {index}, {offset}")

    # The body: a sum of terms into the target.

    def body(self, tile: Tile) -> None:
        """The statement and its followers, for one tile."""
        if self.is_row(tile):
            self.row(tile)
            return
        columns = [self.term(term, tile) for term in self.statement.terms]
        for indices, values in zip(tile, zip(*columns, strict=True), strict=True):
            self.finish(self.statement, indices, values)
            for follower in self.followers:
                self.finish(follower, indices, [self.term(term, [indices])[0] for term in follower.terms])
            self.known = []

    def is_row(self, tile: Tile) -> bool:
        """Whether all terms are sums across lanes, and each JAM results of the tile lie side by side in memory."""
        if len(tile) < JAM or self.axis is not None or not all(term.loops for term in self.statement.terms):
            return False
        target, (first, second) = self.statement.target, tile[:2]
        moves = [stride for stride, a, b in zip(target.strides, first, second, strict=True) if a != b]
        return moves == [1] and target.table is None and target.array in self.memory.offsets

    def row(self, tile: Tile) -> None:
        """Results that lie side by side, stored as vectors."""
        arithmetic, memory = self.arithmetic, self.memory
        total = self.joined_terms(
            self.statement, [self.reduce_across_lanes(term, tile) for term in self.statement.terms]
        )
        for start in range(0, len(tile), JAM):
            pointer, part = memory.address(self.statement.target, tile[start]), arithmetic.lanes_of(total, start, JAM)
            if self.statement.accumulate:
                part = arithmetic.apply(ops.add, (memory.load_from(pointer, JAM), part))
            memory.store_to(pointer, part)

    def finish(self, statement: Statement, indices: list[str], values: Sequence[Any]) -> None:
        """The statement for one turn, from the values of its terms."""
        total = self.joined_terms(statement, values)
        if statement.accumulate:
            total = self.arithmetic.apply(ops.add, (self.load(statement.target, indices, self.lanes, self.axis), total))
        result = self.arithmetic.register(total, self.lanes)
        if statement.target.array in self.memory.offsets:
            self.memory.store(statement.target, indices, result, self.axis)
        if self.followers:
            self.known.append((statement.target, result))

    def joined_terms(self, statement: Statement, values: Sequence[Any]) -> Any:
        """The sum of the terms, or the largest of them, from their values."""
        apply, signs = self.arithmetic.apply, [term.sign for term in statement.terms]
        total = values[0] if signs[0] > 0 else apply(ops.neg, (values[0],))
        for sign, value in zip(signs[1:], values[1:], strict=True):
            total = apply(statement.join if sign > 0 else ops.sub, (total, value))
        return total

    # Terms.

    def term(self, term: Term, tile: Tile) -> list[Any]:
        """The value of a term for each entry of the tile."""
        if not term.loops:
            return [self.evaluate(term.expression, indices, self.lanes, self.axis) for indices in tile]
        if self.axis is not None:
            starts = [self.reduction.start(self.lanes)] * len(tile)
            return list(self.reduce(term, tile, starts, 0, self.lanes, self.axis))
        return self.arithmetic.apart(self.reduce_across_lanes(term, tile))

    def reduce(
        self, term: Term, tile: Tile, totals: list[Register], depth: int, lanes: int, axis: int, last: str = ""
    ) -> list[Register]:
        """`totals` joined by what the term's loops from `depth` on give; `last` is the index of the vector loop."""
        if depth == len(term.loops) - (1 if last else 0):
            ends = [last] if last else []
            values = [self.evaluate(term.expression, indices + ends, lanes, axis) for indices in tile]
            joined = [self.reduction.join(*pair) for pair in zip(totals, values, strict=True)]
            return [self.arithmetic.register(total, lanes) for total in joined]

        def once(index: str, carried: list[Register]) -> list[Register]:
            inner = [[*indices, index] for indices in tile]
            return self.reduce(term, inner, carried, depth + 1, lanes, axis, last)

        return self.loop(term.loops[depth], 1, totals, once)

    def reduce_across_lanes(self, term: Term, tile: Tile) -> Register:
        """Reductions with the lanes along their last loop, joined across lanes at the end: one lane per result."""
        axis = len(self.statement.loops) + len(term.loops) - 1
        registers = 4 if len(tile) == 1 else 2 if len(tile) <= JAM else 1  # for each sum
        totals: list[Register] = []
        for start, stop, lanes in _chunks(term.loops[-1], self.element.widest // 4 * registers):
            starts = [self.reduction.start(lanes)] * len(tile)

            def chunk(index: str, carried: list[Register], start: int = start, lanes: int = lanes) -> list[Register]:
                return self.reduce(term, tile, carried, 0, lanes, axis, self.shifted(index, start))

            parts = chunk("0", starts) if stop - start == lanes else self.loop(stop - start, lanes, starts, chunk)
            pairs = zip(totals, parts, strict=True) if totals else ()
            totals = [self.reduction.join_narrower(*pair) for pair in pairs] or parts
        return self.reduction.across(totals)

    def evaluate(self, expression: Expression, indices: list[str], lanes: int, axis: int | None) -> Any:
        """The value of an expression, for `lanes` turns along `axis`."""
        if isinstance(expression, Number):
            return expression.value
        if isinstance(expression, Access):
            return self.load(expression, indices, lanes, axis)
        assert isinstance(expression, Apply)
        operands = tuple(self.evaluate(operand, indices, lanes, axis) for operand in expression.operands)
        return self.arithmetic.apply(expression.op, operands)

    def load(self, access: Access, indices: list[str], lanes: int, axis: int | None) -> Register:
        """Array elements, from registers if this turn has them there."""
        for target, register in self.known:
            if access.array is target.array and is_same(access, target):
                return register
        return self.memory.load(access, indices, lanes, axis)


def _chunks(extent: int, widest: int) -> list[tuple[int, int, int]]:
    """(start, stop, lanes): as many of the widest vectors as fit, then narrower ones for the rest."""
    found, start, lanes = [], 0, widest
    while start < extent:
        while lanes > extent - start:
            lanes //= 2
        stop = start + (extent - start) // lanes * lanes
        found.append((start, stop, lanes))
        start = stop
    return found
