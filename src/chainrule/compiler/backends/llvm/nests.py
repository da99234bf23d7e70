"""Loop nests: a group of statements as one LLVM function.

One loop goes through vectors, in chunks as wide as fit. Of others, several turns may be computed side by side, and
share what they load. A *tile* is a list of index lists, one for each of these turns. Where it has rows and columns, it
goes column by column, so that one operand of the columns is in a register at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from chainrule import ops
from chainrule.compiler.backends.llvm.fusion import Group, is_same
from chainrule.compiler.backends.llvm.lanes import (
    COLUMNS,
    choose_columns,
    choose_lanes,
    choose_tile,
    in_blocks,
    is_scattered,
)
from chainrule.compiler.backends.llvm.registers import ANY_ORDER, SHORT, Register, Registers
from chainrule.compiler.passes.program import NOTHING, Access, Expression, Statement, Term

Tile = list[list[str]]
MOST_TERMS = 64  # of an element, for all of them to be written out
BUSY = 12  # sums side by side: a processor adds to two of them in each cycle, and has a result after four or five


class Nest:
    """Writes a statement, and those that go along with it, to the text of `registers`."""

    def __init__(self, registers: Registers, group: Group) -> None:
        target, size = registers.target, registers.element.bytes
        self.registers = registers
        self.width = target.lanes(size)  # lanes of a register
        self.axis, first = choose_lanes(group[0])
        columns = choose_columns(len(group) == 1, target, size)
        statements: Sequence[Statement] = (first, *group[1:])
        if self.axis is None:
            statements = in_blocks(statements, choose_tile(first, None, target, columns), size)
        self.statement, self.followers = statements[0], statements[1:]
        self.reduction = Reduction(registers, self.statement.join)
        self.known: list[tuple[Access, Register]] = []  # what this turn has in registers
        self.tile = choose_tile(self.statement, self.axis, target, columns)
        self.widest = self.width * (1 if is_scattered(group, self.axis) else target.vectors)
        self.lanes = 1
        self.columns = 1  # turns of the tile's first loop, where lanes are along a reduction
        self.nest(0, [[]])

    # Loops.

    def nest(self, depth: int, tile: Tile) -> None:
        """The statement's loops from `depth` on."""
        if depth == len(self.statement.loops):
            self.body(tile)
            return
        in_lanes = depth == self.axis
        in_columns = self.axis is None and depth == next(iter(self.tile), None)
        for start, stop, step in self.split(depth, in_lanes, in_columns):
            if in_lanes:
                self.lanes, self.registers.active = step, (stop - start) % step
                vectors = -(-step // self.width)  # if these are fewer than usual, there is room for more turns
                self.tile = choose_tile(self.statement, self.axis, self.registers.target, vectors=vectors)
            self.columns = step if in_columns else self.columns

            def several(index: str, count: int = 1 if in_lanes else step) -> None:
                turns = [self.shifted(index, k) for k in range(count)]
                self.nest(depth + 1, _widened(tile, turns, in_columns))

            self.walk(start, stop, step, several)

    def split(self, depth: int, in_lanes: bool, in_columns: bool) -> list[tuple[int, int, int]]:
        """(start, stop, turns at once) of a loop."""
        extent, most = self.statement.loops[depth], self.tile.get(depth, 1)
        if in_lanes:
            return self.vectors(extent, self.widest)
        return chunks(extent, most) if in_columns else _parts(extent, most, -(-BUSY // self.sums(depth)))

    def vectors(self, extent: int, widest: int) -> list[tuple[int, int, int]]:
        """(start, stop, lanes): as many of the widest vectors as fit, then others, which may have lanes too many."""
        return _masked_chunks(extent, widest, self.width)

    def sums(self, depth: int) -> int:
        """The registers that hold the sums of one turn of a loop."""
        loops = self.statement.loops
        if self.axis is None:
            column = next(iter(self.tile), depth)
            return min(loops[column], self.tile[column]) if column != depth else 1
        lanes = self.lanes if self.axis < depth else min(loops[self.axis], self.widest)
        return -(-lanes // self.width)

    def walk(self, start: int, stop: int, step: int, body: Callable[[str], None]) -> None:
        """`body` for start, start + step, …, below `stop`."""
        if stop - start <= step * (2 if self.registers.knows_tables else 1):
            for turn in range(start, stop, step):
                body(str(turn))
            return

        def once(index: str, carried: list[Register]) -> list[Register]:
            body(self.shifted(index, start))
            return []

        self.registers.loop(stop - start, step, [], once)

    def shifted(self, index: str, offset: int) -> str:
        """The index, `offset` further on."""
        if offset == 0:
            return index
        if index.isdigit():
            return str(int(index) + offset)
        return self.registers.text.emit(f"add nuw nsw i64 {index}, {offset}")

    # The body: a sum of terms into the target.

    def body(self, tile: Tile) -> None:
        """The statement and its followers, for one tile."""
        if self.is_row(tile):
            self.rows(tile)
            return
        columns = [self.term(term, tile) for term in self.statement.terms]
        for indices, values in zip(tile, zip(*columns, strict=True), strict=True):
            self.finish(self.statement, indices, values, self.lanes, self.axis)
            self.follow(indices, self.lanes, self.axis)

    def follow(self, indices: list[str], lanes: int, axis: int | None) -> None:
        """The statements that go along, for one turn of which the first one is done."""
        for follower in self.followers:
            values = [self.evaluate(term.expression, indices, lanes, axis) for term in follower.terms]
            self.finish(follower, indices, values, lanes, axis)
        self.known = []

    def is_row(self, tile: Tile) -> bool:
        """Whether all terms are sums across lanes, and the tile's columns lie side by side in memory."""
        if self.columns == 1 or self.axis is not None or not all(term.loops for term in self.statement.terms):
            return False
        target, (first, second) = self.statement.target, tile[:: len(tile) // self.columns][:2]
        moves = [stride for stride, a, b in zip(target.strides, first, second, strict=True) if a != b]
        return moves == [1] and target.table is None

    def rows(self, tile: Tile) -> None:
        """Results that lie side by side, stored as vectors."""
        sums = [self.reduce_across_lanes(term, tile) for term in self.statement.terms]
        axis = next(iter(self.tile))
        for indices, values in zip(tile, zip(*sums, strict=True), strict=False):
            self.finish(self.statement, indices, values, self.columns, axis)
            self.follow(indices, self.columns, axis)

    def finish(
        self, statement: Statement, indices: list[str], values: Sequence[Any], lanes: int, axis: int | None
    ) -> None:
        """The statement for as many turns along `axis` as there are lanes, from the values of its terms."""
        registers, target = self.registers, statement.target
        total = statement.joined(iter(values), registers.apply)
        if statement.accumulate:
            total = registers.apply(ops.add, (self.load(target, indices, lanes, axis), total))
        result = registers.register(total, lanes)
        if target.array in registers.offsets:
            registers.store(target, indices, result, axis)
        if self.followers:
            self.known.append((target, result))

    # Terms.

    def term(self, term: Term, tile: Tile) -> Sequence[Any]:
        """The value of a term for each entry of the tile."""
        if not term.loops:
            return [self.evaluate(term.expression, indices, self.lanes, self.axis) for indices in tile]
        if self.axis is not None:
            starts = [self.reduction.start(self.lanes)] * len(tile)
            return self.reduce(term, tile, starts, self.axis, range(term.loops[-1]))
        rows = [self.registers.apart(row) for row in self.reduce_across_lanes(term, tile)]
        return [lane for column in zip(*rows, strict=True) for lane in column]

    def reduce(
        self, term: Term, tile: Tile, totals: list[Register], axis: int, last: range, depth: int = 0
    ) -> list[Register]:
        """`totals` joined by what the term's loops from `depth` on give, of the last one for the turns in `last`."""
        lanes = totals[0].lanes
        if depth == len(term.loops):
            values = [self.evaluate(term.expression, indices, lanes, axis) for indices in tile]
            joined = [
                self.registers.register(self.reduction.join(*pair), lanes) for pair in zip(totals, values, strict=True)
            ]
            if self.axis is not None:  # lanes are not added up
                return joined
            return [self.registers.where_active(*pair) for pair in zip(joined, totals, strict=True)]
        turns = last if depth == len(term.loops) - 1 else range(term.loops[depth])

        def once(index: str, carried: list[Register]) -> list[Register]:
            index = self.shifted(index, turns.start)
            return self.reduce(term, [[*indices, index] for indices in tile], carried, axis, last, depth + 1)

        if len(turns) == 1:
            return once("0", totals)
        is_outer = depth < len(term.loops) - 1
        is_loop = (self.axis is None and self.is_full(totals)) or (is_outer and self.has_many_terms())
        short = 1 if is_loop else SHORT
        return self.registers.loop(turns.stop - turns.start, turns.step, totals, once, short)

    def has_many_terms(self) -> bool:
        """Whether so many terms are added up that, of a sum over several loops, only the innermost is written out."""
        return sum([prod(term.loops) for term in self.statement.terms]) > MOST_TERMS

    def is_full(self, totals: list[Register]) -> bool:
        """Whether sums across lanes leave few registers.

        LLVM takes turns that are written out one after another in another order, and then loads more often.
        """
        taken = len(totals) * -(-totals[0].lanes // self.width)
        return 3 * taken > 2 * self.registers.target.registers

    def reduce_across_lanes(self, term: Term, tile: Tile) -> list[Register]:
        """Reductions with the lanes along their last loop, joined across lanes at the end: a vector for each row."""
        axis = len(self.statement.loops) + len(term.loops) - 1
        each = 4 if len(tile) == 1 else 2 if len(tile) <= COLUMNS else 1  # registers of a sum
        totals: list[Register] = []
        for start, stop, lanes in self.vectors(term.loops[-1], self.width * each):
            goes_on = bool(totals) and totals[0].lanes == self.width  # in the same registers, some lanes of which count
            lanes = self.width if goes_on else lanes
            self.registers.active = (stop - start) % lanes
            starts = totals if goes_on else [self.reduction.start(lanes)] * len(tile)
            parts = self.reduce(term, tile, starts, axis, range(start, stop, lanes))
            pairs = zip(totals, parts, strict=True) if totals and not goes_on else ()
            totals = [self.reduction.join_narrower(*pair) for pair in pairs] or parts
        self.registers.active = 0
        rows = len(tile) // self.columns
        return [self.reduction.across(totals[row::rows]) for row in range(rows)]

    def evaluate(self, expression: Expression, indices: list[str], lanes: int, axis: int | None) -> Any:
        """The value of an expression, for `lanes` turns along `axis`."""
        return expression.evaluate(lambda access: self.load(access, indices, lanes, axis), self.registers.apply)

    def load(self, access: Access, indices: list[str], lanes: int, axis: int | None) -> Register:
        """Array elements, from registers if this turn has them there."""
        for target, register in reversed(self.known):
            if access.array is target.array and is_same(access, target):
                return register
        return self.registers.load(access, indices, lanes, axis)


def _widened(tile: Tile, turns: list[str], in_columns: bool) -> Tile:
    """The tile in one more loop, of which it has these turns: column by column."""
    if in_columns:
        return [[*indices, turn] for turn in turns for indices in tile]
    return [[*indices, turn] for indices in tile for turn in turns]


def chunks(extent: int, widest: int) -> list[tuple[int, int, int]]:
    """(start, stop, lanes): as many of the widest vectors as fit, then narrower ones for the rest."""
    found, start, lanes = [], 0, widest
    while start < extent:
        while lanes > extent - start:
            lanes //= 2
        stop = start + (extent - start) // lanes * lanes
        found.append((start, stop, lanes))
        start = stop
    return found


def _masked_chunks(extent: int, widest: int, width: int) -> list[tuple[int, int, int]]:
    """The same where lanes can be masked, of registers that have `width`: the last vector may reach beyond the extent.

    >>> _masked_chunks(7, 32, 8), _masked_chunks(27, 32, 8), _masked_chunks(50, 32, 8)
    ([(0, 7, 8)], [(0, 27, 32)], [(0, 32, 32), (32, 48, 16), (48, 50, 2)])
    """
    whole = extent // widest * widest
    found, start = [(0, whole, widest)] * bool(whole), whole
    while start < extent:
        rest = extent - start
        lanes = 2 ** (rest - 1).bit_length() if rest <= width else width * 2 ** ((-(-rest // width)).bit_length() - 1)
        found.append((start, min(extent, start + lanes), lanes))
        start += lanes
    return found


def _parts(extent: int, most: int, least: int = 1) -> list[tuple[int, int, int]]:
    """(start, stop, turns): tiles of `most` turns at most.

    All are equal if that takes no more than a third off the largest, and leaves `least` turns, because each size is
    code of its own; otherwise there are as few as can be, and some have one turn less.

    >>> _parts(16, 6), _parts(16, 6, least=6)
    ([(0, 16, 4)], [(0, 6, 6), (6, 16, 5)])
    """
    for turns in range(most, max(2 * most // 3, least) - 1, -1):
        if turns and extent % turns == 0:
            return [(0, extent, turns)]
    count = -(-extent // most)
    turns = -(-extent // count)
    middle = (extent - count * (turns - 1)) * turns
    return [(0, middle, turns), *([(middle, extent, turns - 1)] if middle < extent else [])]


def _pairs(vectors: list[Register]) -> list[list[Register]]:
    """Two by two; a single one by itself."""
    return [vectors[k : k + 2] for k in range(0, len(vectors), 2)]


class Reduction:
    """A reduction by `op`, which is `add` or `larger`."""

    def __init__(self, registers: Registers, op: ops.Op) -> None:
        self.registers = registers
        self.op = op

    def start(self, lanes: int) -> Register:
        """What the reduction begins with: it changes nothing."""
        return self.registers.register(NOTHING if self.op is ops.add else -ops.INF, lanes)

    def join(self, a: Register, b: Register) -> Register:
        total: Register = self.registers.apply(self.op, (a, b))
        return total

    def join_narrower(self, wide: Register, narrow: Register) -> Register:
        """Two parts, joined in the lanes that both have."""
        if narrow.lanes == 1:
            narrow = self.registers.side_by_side([narrow, self.start(1)], 2)
        lanes = [min(lane, narrow.lanes) for lane in range(wide.lanes)]  # beyond its own, one that changes nothing
        return self.join(wide, self.registers.shuffled(narrow, self.start(narrow.lanes).name, lanes))

    def across(self, vectors: list[Register]) -> Register:
        """A vector with one lane for each of these, which has all lanes of that one joined.

        Whole registers come first, then neighbours inside of 16 bytes, and these parts last: moving numbers from one of
        them to another is the slowest.
        """
        count, lanes = len(vectors), vectors[0].lanes
        if count == 1 or lanes == 1:
            return self.registers.side_by_side([self._total(vector) for vector in vectors], count)
        if count > lanes:
            return self.registers.joined(self.across(vectors[: count // 2]), self.across(vectors[count // 2 :]))
        size = self.registers.element.bytes
        while vectors[0].lanes > max(count, self.registers.target.lanes(size)):
            vectors = [self._halved(vector) for vector in vectors]
        part = min(vectors[0].lanes, 16 // size)
        for _ in range(part.bit_length() - 1):
            vectors = [self._folded(pair, 1, part) for pair in _pairs(vectors)]
        while len(vectors) > 1:
            vectors = [self._folded(pair, part, 2 * part) for pair in _pairs(vectors)]
            part *= 2
        while vectors[0].lanes > count:
            vectors = [self._halved(vectors[0])]
        return vectors[0]

    def _folded(self, vectors: Sequence[Register], unit: int, part: int) -> Register:
        """In each `part` of one vector or two, every `unit` of lanes joined with the next; those of the first, then."""
        first, other = vectors[0], vectors[-1].name if len(vectors) > 1 else "poison"
        starts = [k * first.lanes + s for s in range(0, first.lanes, part) for k in range(len(vectors))]

        def chosen(skipped: int) -> list[int]:
            return [s + u + lane for s in starts for u in range(skipped, part, 2 * unit) for lane in range(unit)]

        return self.join(*[self.registers.shuffled(first, other, chosen(skipped)) for skipped in (0, unit)])

    def _halved(self, vector: Register) -> Register:
        """The first half of the lanes joined with the second."""
        half = vector.lanes // 2
        return self.join(*[self.registers.lanes_of(vector, start, half) for start in (0, half)])

    def _total(self, vector: Register) -> Register:
        """All lanes joined."""
        if vector.lanes == 1:
            return vector
        if self.op is not ops.add:
            while vector.lanes > 2:
                vector = self._halved(vector)
            return self.join(*self.registers.apart(vector))
        element = self.registers.element
        one, many = element.name, element.lanes(vector.lanes)
        function = f"{one} @llvm.vector.reduce.fadd.{element.suffix(vector.lanes)}"
        self.registers.text.declarations.add(f"declare {function}({one}, {many})")
        return self.registers.emit(f"call {ANY_ORDER} {function}({one} -0.0, {many} {vector.name})", 1)
