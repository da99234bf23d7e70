"""The work of one thread: its share of a group of statements, or of a sum over examples, as LLVM text.

Loops, terms and arithmetic are written as for a processor (`llvm.nests`, `llvm.registers`), one number at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha1
from math import prod
from typing import Any

import numpy as np

from chainrule.compiler.backends.cuda.dealing import Deal, SumDeal
from chainrule.compiler.backends.cuda.storage import OWN, Place
from chainrule.compiler.backends.llvm.fusion import Group
from chainrule.compiler.backends.llvm.nests import Nest, Reduction, Tile
from chainrule.compiler.backends.llvm.registers import Register, Registers
from chainrule.compiler.backends.llvm.target import Target
from chainrule.compiler.backends.llvm.text import Text
from chainrule.compiler.passes.program import Access, Array, Statement, Term

UNROLLED = (16, 8, 4)  # turns of a reduction that are written out
ONE_LANE = Target("nvptx64-nvidia-cuda", "", "", 64, 8, True)


class ThreadRegisters(Registers):
    """Registers of a thread. Arrays lie in several memories; tables are constants of the module.

    Inside of `in_chunk`, numbers that lie side by side are loaded at once.
    """

    def __init__(self, text: Text, places: Mapping[Array, Place]) -> None:
        super().__init__(text, {array: place.offset for array, place in places.items()}, [], ONE_LANE)
        self.places = places
        self.wide = 16 // text.element.bytes  # numbers that a thread loads at once
        self.chunk: tuple[int, str, dict[str, int]] = (-1, "", {})  # loop, its first turn, and its turns by name
        self.loaded: dict[Any, Register] = {}
        self.named: dict[int, str] = {}  # tables

    def address(self, access: Access, indices: Sequence[str], extra: int = 0) -> str:
        """As in `Registers`; of what a thread has for itself, only its own example is there."""
        if (apart := self.places[access.array].pitch) > 1:
            access = Access(access.array, access.base // apart, [stride // apart for stride in access.strides])
        return super().address(access, indices, extra)

    def memory(self, array: Array) -> str:
        return f"%{self.places[array].space}"

    def load(self, access: Access, indices: Sequence[str], lanes: int, axis: int | None) -> Register:
        """As in `Registers`; a number that has neighbours in the chunk is loaded with them."""
        d, first, turns = self.chunk
        moves = lanes > 1 and axis is not None and access.strides[axis]
        alone = len(turns) != self.wide or d >= len(indices) or indices[d] not in turns
        if moves or alone or access.strides[d] != 1 or not self.is_aligned(access, d):
            return super().load(access, indices, lanes, axis)
        others = [first if k == d else index for k, index in enumerate(indices)]
        key = access.array, access.base, access.strides, access.repeat, tuple(others)
        if key not in self.loaded:
            self.loaded[key] = self.load_from(self.address(access, others), self.wide)
        kind, vector = self.element.lanes(self.wide), self.loaded[key].name
        return self.emit(f"extractelement {kind} {vector}, i32 {turns[indices[d]]}", 1)

    def is_aligned(self, access: Access, d: int) -> bool:
        """Whether an access is at a multiple of what is loaded at once, wherever it moves, but for loop d."""
        steps = [access.base, access.repeat, *(stride for k, stride in enumerate(access.strides) if k != d)]
        return access.table is None and not any(step % self.wide for step in steps)

    def _primitive(self, name: str, operands: list[str], lanes: int) -> str | None:
        """As in `Registers`; a quotient of floats by a function of the module, which GPUs have a quick one for."""
        if name != "div" or self.element.name != "float":
            return super()._primitive(name, operands, lanes)
        pairs = zip(*[self.apart(Register(self, operand, lanes)) for operand in operands], strict=True)
        quotients = [self.emit(f"call float @quotient(float {a.name}, float {b.name})", 1) for a, b in pairs]
        return self.side_by_side(quotients, lanes).name

    def _kernel(self, name: str, operands: Sequence[Register]) -> Register:
        """A function of each lane: a thread has no vectors to compute with."""
        lanes = zip(*map(self.apart, operands), strict=True)
        one = super()._kernel
        return self.side_by_side([one(name, lane) for lane in lanes], operands[0].lanes)

    def load_from(self, pointer: str, lanes: int) -> Register:
        return self.emit(f"load {self.element.lanes(lanes)}, ptr {pointer}, align {self.element.bytes * lanes}", lanes)

    def store_to(self, pointer: str, value: Register) -> None:
        kind, size = self.element.lanes(value.lanes), self.element.bytes * value.lanes
        self.text.lines.append(f"  store {kind} {value.name}, ptr {pointer}, align {size}")

    def in_chunk(self, loop: int, first: str, turns: Sequence[str], body: Callable[[str], None]) -> None:
        """`body` for the turns of a chunk of a loop, which begins at a multiple of what is loaded at once."""
        before, loaded = self.chunk, self.loaded
        self.chunk, self.loaded = (loop, first, {turn: k for k, turn in enumerate(turns)}), {}
        for turn in turns:
            body(turn)
        self.chunk, self.loaded = before, loaded

    def table(self, access: Access) -> str:
        if id(access.table) not in self.named:  # tables are long, and asked for at every load
            numbers = np.asarray(access.table)
            name = self.named[id(access.table)] = f"@table.{sha1(numbers.tobytes()).hexdigest()[:16]}"
            entries = ", ".join(f"i64 {number}" for number in numbers.tolist())
            self.text.declarations.add(f"{name} = internal constant [{len(numbers)} x i64] [{entries}], align 16")
        return self.named[id(access.table)]

    def where(self, condition: str, body: Callable[[], None]) -> None:
        """`body` for the threads for which the condition holds."""
        text = self.text
        inside, past = f"inside{text.count}", f"past{text.count}"
        text.count += 1
        text.lines += [f"  br i1 {condition}, label %{inside}, label %{past}", f"{inside}:"]
        text.label = inside
        body()
        text.lines += [f"  br label %{past}", f"{past}:"]
        text.label = past

    def dealt(self, count: int, threads: int, body: Callable[[str], None]) -> None:
        """`body` for this thread's numbers below `count`."""
        emit = self.text.emit

        def once(turn: str, carried: list[Register]) -> list[Register]:
            offset = turn if turn == "0" else emit(f"mul nuw nsw i64 {turn}, {threads}")
            number = "%thread" if offset == "0" else emit(f"add nuw nsw i64 %thread, {offset}")
            if count % threads:
                self.where(emit(f"icmp ult i64 {number}, {count}"), lambda: body(number))
            else:
                body(number)
            return []

        passes = -(-count // threads)
        if passes == 1:
            once("0", [])
        elif passes:
            self.loop(passes, 1, [], once)

    def split(self, number: str, extents: Sequence[int]) -> list[str]:
        """The digits of a number in these extents, the last of which is the fastest."""
        emit, digits = self.text.emit, []
        rest = emit(f"trunc i64 {number} to i32")
        for extent in reversed(extents[1:]):
            digits.append(emit(f"zext i32 {emit(f'urem i32 {rest}, {extent}')} to i64"))
            rest = emit(f"udiv i32 {rest}, {extent}")
        digits.append(emit(f"zext i32 {rest} to i64"))
        return digits[::-1] if extents else []


class Share(Nest):
    """Writes a thread's share of a group of statements."""

    def __init__(self, registers: ThreadRegisters, group: Group, given: Deal, threads: int) -> None:
        self._prepare(registers, group[0], group[1:])
        self._choose_lanes(given)
        registers.dealt(given.count, threads, lambda number: self._tiles(given, number))

    def _prepare(self, registers: ThreadRegisters, statement: Statement, followers: Sequence[Statement]) -> None:
        self.registers: ThreadRegisters = registers
        self.statement, self.followers = statement, tuple(followers)
        self.reduction = Reduction(registers, statement.join)
        self.known = []
        self.axis, self.lanes, self.columns, self.width = 0, 1, 1, 1

    def _choose_lanes(self, given: Deal) -> None:
        """Take the neighbouring turns of a tile as lanes, if whatever they touch lies side by side or stays."""
        fast = given.fast
        if fast is None or given.tile[fast] == 1:
            return
        touched = [a for s in (self.statement, *self.followers) for a in (s.target, *s.accesses())]
        if given.tile[fast] in (2, self.registers.wide) and all(
            self._is_side_by_side(access, fast, given.tile[fast]) for access in touched
        ):
            self.axis, self.lanes = fast, given.tile[fast]

    def _is_side_by_side(self, access: Access, d: int, count: int) -> bool:
        steps = [access.base, access.repeat, *(stride for k, stride in enumerate(access.strides) if k != d)]
        aligned = not any(step % count for step in steps)
        return access.table is None and (access.strides[d] == 0 or (access.strides[d] == 1 and aligned))

    def _tiles(self, given: Deal, number: str) -> None:
        self._through(given, self.parts(given, number), 0, [[]])

    def parts(self, given: Deal, number: str) -> dict[int, str]:
        """Which part of each dealt loop a tile is."""
        emit, found = self.registers.text.emit, dict[int, str]()
        values = self.registers.split(number, [extent for _, extent, _ in given.digits])
        for (d, _, step), value in zip(given.digits, values, strict=True):
            scaled = value if step == 1 else emit(f"mul nuw nsw i64 {value}, {step}")
            found[d] = emit(f"add nuw nsw i64 {found[d]}, {scaled}") if d in found else scaled
        return found

    def _through(self, given: Deal, parts: Mapping[int, str], depth: int, tile: Tile) -> None:
        """The loops from `depth` on."""
        if depth == len(given.loops):
            self.body(tile)
            return
        if depth in parts:
            turns = self.turns(given, depth, parts[depth])
            self._through(given, parts, depth + 1, [[*indices, turn] for indices in tile for turn in turns])
            return

        def inside(turn: str) -> None:
            self._through(given, parts, depth + 1, [[*indices, turn] for indices in tile])

        if self._has_own_numbers():  # registers have no addresses: their turns are written out
            for turn in range(given.loops[depth]):
                inside(str(turn))
        else:
            self.walk(0, given.loops[depth], 1, inside)

    def _has_own_numbers(self) -> bool:
        touched = [a for s in (self.statement, *self.followers) for a in (s.target, *s.accesses())]
        places = self.registers.places
        return any(places[access.array].space == OWN for access in touched if access.array in places)

    def turns(self, given: Deal, d: int, part: str) -> list[str]:
        """The turns of loop d in a tile."""
        near, emit = given.neighbours(d), self.registers.text.emit
        first = part if near == 1 else emit(f"mul nuw nsw i64 {part}, {near}")
        step = self.lanes if d == given.fast else 1
        return [self.shifted(first, given.turn(d, k)) for k in range(0, given.tile[d], step)]

    def reduce(
        self, term: Term, tile: Tile, totals: list[Register], axis: int, last: range, depth: int = 0
    ) -> list[Register]:
        """As in `Nest`, with several turns of the last loop written out, whose loads become one."""
        if depth < len(term.loops) - 1 or depth == len(term.loops):
            return super().reduce(term, tile, totals, axis, last, depth)
        extent = term.loops[depth]
        several = next(n for n in (*UNROLLED, 6, 3, 2, 1) if extent % n == 0)
        if self._has_own_numbers():
            several = extent
        together = self.registers.wide if several % self.registers.wide == 0 else 1  # else chunks begin anywhere

        def once(index: str, carried: list[Register]) -> list[Register]:
            def one(turn: str) -> None:
                nonlocal carried
                inner = [[*indices, turn] for indices in tile]
                carried = super(Share, self).reduce(term, inner, carried, axis, last, depth + 1)

            turns = [self.shifted(index, k) for k in range(several)]
            for chunk in pieces(turns, together):
                self.registers.in_chunk(len(self.statement.loops) + depth, chunk[0], chunk, one)
            return carried

        return self.registers.loop(extent, several, totals, once)


class SumShare(Share):
    """Writes a thread's share of a sum over examples: added to accumulators of its own, from number `first` on."""

    def __init__(
        self, registers: ThreadRegisters, statement: Statement, given: SumDeal, threads: int, first: int
    ) -> None:
        self._prepare(registers, statement, ())
        self.given, self.threads, self.first = given, threads, first
        self.for_each_tile(self._add)

    def for_each_tile(self, body: Callable[[Tile, str, int], None]) -> None:
        """`body(tile, group, number of its first accumulator)` for the thread's tiles."""
        registers, given, outputs = self.registers, self.given, self.given.outputs
        emit, count = registers.text.emit, outputs.count
        for turn in range(given.passes):
            number, group = "%thread", "0"
            if given.groups > 1:
                across, along = ("udiv", "urem")[:: -1 if given.turned else 1]
                within = given.groups if given.turned else count
                group = emit(f"{across} i64 %thread, {within}") if count > 1 else "%thread"
                number = emit(f"{along} i64 %thread, {within}") if count > 1 else "0"
            elif turn:
                number = emit(f"add nuw nsw i64 %thread, {turn * self.threads}")
            first = self.first + turn * prod(outputs.tile)
            limit = count * given.groups
            checked = "%thread" if given.groups > 1 else number

            def inside(number: str = number, group: str = group, first: int = first) -> None:
                body(self._outputs(number), group, first)

            if given.passes * self.threads == limit:
                inside()
            else:
                registers.where(emit(f"icmp ult i64 {checked}, {limit}"), inside)

    def _outputs(self, number: str) -> Tile:
        given = self.given.outputs
        parts = self.parts(given, number)
        tile: Tile = [[]]
        for d, extent in enumerate(given.loops):
            turns = self.turns(given, d, parts[d]) if d in parts else [str(k) for k in range(extent)]
            tile = [[*indices, turn] for indices in tile for turn in turns]
        return tile

    def _add(self, tile: Tile, group: str, first: int) -> None:
        registers = self.registers
        columns = [self._part(term, tile, group) for term in self.statement.terms]
        for k, values in enumerate(zip(*columns, strict=True)):
            total = registers.register(self.statement.joined(iter(values), registers.apply), 1)
            pointer = self.accumulator(self._element(tile[k]) if self.given.whole else first + k)
            before = registers.load_from(pointer, 1)
            registers.store_to(pointer, self.reduction.join(before, total))

    def _element(self, indices: Sequence[str]) -> int:
        """The accumulator of an element of the target, of which a thread has them all."""
        target = self.statement.target
        return self.first + target.base + sum(s * int(i) for s, i in zip(target.strides, indices, strict=True))

    def accumulator(self, number: int) -> str:
        return self.registers.text.emit(f"getelementptr inbounds {self.registers.element.name}, ptr %own, i64 {number}")

    def _part(self, term: Term, tile: Tile, group: str) -> Sequence[Any]:
        if not (self.given.chunk and term.loops):
            return self.term(term, tile)
        return self._shared(term, tile, [self.reduction.start(1)] * len(tile), group, 0)

    def _shared(self, term: Term, tile: Tile, totals: list[Register], group: str, depth: int) -> list[Register]:
        """`totals` joined by this thread's part of the term's reduction."""
        given, registers, emit = self.given, self.registers, self.registers.text.emit
        if depth == len(term.loops):
            values = [self.evaluate(term.expression, indices, 1, 0) for indices in tile]
            joined = [self.reduction.join(*pair) for pair in zip(totals, values, strict=True)]
            return [self.registers.register(total, 1) for total in joined]

        def inside(turn: str, carried: list[Register]) -> list[Register]:
            return self._shared(term, [[*indices, turn] for indices in tile], carried, group, depth + 1)

        if depth != given.along:
            return self._through_chunks(depth, term.loops[depth], totals, inside)

        def chunk(index: str, carried: list[Register]) -> list[Register]:
            step = index if index == "0" else emit(f"mul nuw nsw i64 {index}, {given.groups}")
            part = group if step == "0" else emit(f"add nuw nsw i64 {group}, {step}")
            start = part if given.chunk == 1 else emit(f"mul nuw nsw i64 {part}, {given.chunk}")

            def one(turn: str) -> None:
                nonlocal carried
                carried = inside(turn, carried)

            turns = [self.shifted(start, k) for k in range(given.chunk)]
            registers.in_chunk(len(self.statement.loops) + depth, start, turns, one)
            return carried

        parts = term.loops[depth] // given.chunk // given.groups
        return chunk("0", totals) if parts == 1 else self.registers.loop(parts, 1, totals, chunk)

    def _through_chunks(
        self,
        depth: int,
        extent: int,
        totals: list[Register],
        body: Callable[[str, list[Register]], list[Register]],
    ) -> list[Register]:
        """A loop of a reduction, of which the turns that are loaded at once are written out."""
        several = self.registers.wide if extent % self.registers.wide == 0 else 1

        def once(index: str, carried: list[Register]) -> list[Register]:
            def one(turn: str) -> None:
                nonlocal carried
                carried = body(turn, carried)

            turns = [self.shifted(index, k) for k in range(several)]
            self.registers.in_chunk(len(self.statement.loops) + depth, index, turns, one)
            return carried

        return once("0", totals) if extent == several else self.registers.loop(extent, several, totals, once)


class Flush(SumShare):
    """Writes a thread's accumulators to an array with a row for each group, in the order of the statement's turns."""

    def __init__(
        self, registers: ThreadRegisters, statement: Statement, given: SumDeal, threads: int, first: int, target: Access
    ) -> None:
        self._prepare(registers, statement, ())
        self.given, self.threads, self.first, self.target = given, threads, first, target
        self.for_each_tile(self._store)

    def _store(self, tile: Tile, group: str, first: int) -> None:
        for k, indices in enumerate(tile):
            number = self.registers.load_from(self.accumulator(first + k), 1)
            self.registers.store(self.target, [group, *indices], number, None)


def pieces(turns: Sequence[str], length: int) -> list[Sequence[str]]:
    """The turns in pieces of that length."""
    return [turns[k : k + length] for k in range(0, len(turns), length)]
