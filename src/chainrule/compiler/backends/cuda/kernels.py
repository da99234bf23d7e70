"""The kernels of a program: what each of them does, in which order, and where its numbers are.

    main    blocks of threads take run after run of examples; each block leaves its sums in a row of its own
    gather  adds up the rows, always in the same order; the block that is done last goes on with `finish`
    finish  what follows the sums, in one block: gradients that pass through what is the same for all examples, updates

A program for no examples is all in `finish`, which is then a kernel of its own, as it is where there are no sums.
`printing` writes them down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chainrule.compiler.backends.cuda.blocks import (
    Call,
    Functions,
    Schedule,
    Writer,
    in_groups,
    numbers_of_a_thread,
    place_for_exchange,
    stored,
    with_barriers,
)
from chainrule.compiler.backends.cuda.dealing import Block, Deal, Touch
from chainrule.compiler.backends.cuda.packing import packed
from chainrule.compiler.backends.cuda.parts import Step, split
from chainrule.compiler.backends.cuda.storage import OWN, Storage, lives, pitch
from chainrule.compiler.backends.cuda.threads import ThreadRegisters
from chainrule.compiler.backends.llvm.lanes import with_turned_terms
from chainrule.compiler.backends.llvm.registers import Register
from chainrule.compiler.backends.llvm.text import Element
from chainrule.compiler.passes.contract import contracted
from chainrule.compiler.passes.differentiate import zero
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Repeat, Statement, Term, changed
from chainrule.compiler.passes.rematerialize import rematerialized
from chainrule.compiler.passes.unroll import unrolled

WORDS = 3  # of an input's description: address, distance of examples, bytes of a number
STAGED = 2**16  # bytes of parameters and constants that are copied to shared memory, at most; likewise of packed ones
IN_FLIGHT = 16  # numbers that a thread asks memory for before it takes the first
FEW_SUMS = 24  # that every thread keeps for its own examples
TEAMS = 8  # of 32 threads each, which add up every eighth row


class Kernels:
    """The kernels of a laid-out program, for blocks with `room` bytes of shared memory."""

    def __init__(self, program: ArrayProgram, element: Element, block: Block, room: int) -> None:
        parts = split(_in_few_numbers(program, block))
        self.program = program = parts.program
        self.element, self.block, self.functions = element, block, Functions(element)
        self.small = min(STAGED, room // 3)  # bytes
        self.parts, self.has_examples = parts, bool(parts.each)
        known = [a for a in program.arrays() if not a.examples]
        given = [a for a in known if a in program.leaves.values() or a.numbers is not None]
        self.memory = Storage()
        self.memory.add("memory", given)
        self.sums_at = self.memory.sizes.get("memory", 0)
        self.memory.add("memory", parts.sums)
        self.sums_size = self.memory.sizes.get("memory", 0) - self.sums_at
        self.memory.add("memory", [a for a in known if a not in self.memory.places])
        self.last_threads = 32 * TEAMS if self.sums_size else block.threads  # of the block that does `finish`
        self.finish = self._finish()
        self.storage = Storage({array: self.memory.places[array] for array in given})
        self.before: Schedule = []
        self.runs: Schedule = []
        self.after: Schedule = []
        self.accumulators = range(0)  # of the numbers that a thread has for itself
        if self.has_examples:
            self._main(room // element.bytes, given)

    def _finish(self) -> Schedule:
        steps = [*self.parts.before, *self.parts.after]
        needed = [a for step in self.parts.after for s in step.body for a in s.accesses()]
        if self.has_examples and not any(a.array in _written(self.parts.before) for a in needed):
            steps = self.parts.after
        writer = Writer(self.functions, self.memory, Block(self.last_threads, 0))
        scalars, output = self.program.leaves.get("scalars"), self.program.output
        begin = [self._row(scalars, into=True)] if scalars else []
        end = [] if output.examples else [self._row(output, into=False)]
        return with_barriers([*begin, *writer.schedule(steps), *end], self.memory)

    def _row(self, array: Array, into: bool) -> Call:
        """A row of a matrix, which has one for each step, into an array, or out of it; nothing if there is no step."""

        def write(registers: ThreadRegisters) -> None:
            emit, kind = registers.text.emit, self.element.name

            def one(number: str) -> None:
                place = emit(f"add nsw i64 {emit(f'mul nsw i64 %first, {array.size}')}, {number}")
                here = registers.address(Access(array, 0, (1,)), [number])
                there = emit(f"getelementptr {kind}, ptr {'%inputs' if into else '%results'}, i64 {place}")
                source, target = (there, here) if into else (here, there)
                registers.store_to(target, registers.load_from(source, 1))

            is_step = emit("icmp sge i64 %first, 0")
            registers.where(is_step, lambda: registers.dealt(array.size, self.last_threads, one))

        name = self.functions.add(self.memory, write)
        touch = [Touch(Access(array, 0, (1,)), (array.size,), None, None)]
        return Call(name, touch, []) if into else Call(name, [], touch)

    def _main(self, room: int, given: Sequence[Array]) -> None:
        """Find places for what the main kernel computes with, and write its functions."""
        parts, storage = self.parts, self.storage
        each, copies = self._packed()
        read = {a.array for step in each for s in step.body for a in s.accesses()}
        staged = {array: Array(f"{array.name}.here", array.size, "value") for array in given if array in read}
        if not self._is_small(staged):
            staged = {}
        storage.add("shared", staged.values())
        storage.add("partials", parts.sums)
        first, each = [*parts.before, *copies], with_arrays(each, staged)
        storage.add("shared" if self._is_small(_written(first)) else "scratch", _written(first))
        inputs = [leaf for leaf in self.program.leaves.values() if leaf.examples]
        output = self.program.output
        rows = {a for a in (stored(each) | {output}) if a.examples} | set(inputs)
        together = [group.body if isinstance(group, Repeat) else group for group in in_groups(each)]
        own = numbers_of_a_thread(each, self.block, self.element.bytes, self._has_few_sums) & rows
        own -= {*inputs, output}
        storage.keep(own)
        rows -= own
        storage.fit(lives(together, rows, set(inputs), {output}), room)
        here = [_copy(array, here) for array, here in staged.items()]
        self._write([*here, *map(zero, parts.sums), *first], each, inputs, room)

    def _packed(self) -> tuple[list[Step], list[Statement]]:
        """What is done for each example, and copies of what it reads, if they are small."""
        smooth = changed(self.parts.each, with_turned_terms)
        each, copies = packed(smooth, 16 // self.element.bytes)
        return (each, copies) if self._is_small(copy.target.array for copy in copies) else (smooth, [])

    @property
    def _has_few_sums(self) -> bool:
        return self.block.owns and sum(array.size for array in self.parts.sums) <= FEW_SUMS

    def _is_small(self, arrays: Iterable[Array]) -> bool:
        return sum(array.size for array in arrays) * self.element.bytes <= self.small

    def _write(self, first: list[Step], each: list[Step], inputs: list[Array], room: int) -> None:
        """The functions of the main kernel, for numbers that have their places."""
        storage, block, output = self.storage, self.block, self.program.output
        writer = Writer(self.functions, storage, block)
        self.before = with_barriers(writer.schedule(first), storage)
        middle = writer.schedule(each, self._has_few_sums)
        ends = [self._store(output)] if output.examples else []
        self.runs = with_barriers([*map(self._load, inputs), *middle, *ends], storage)
        place_for_exchange(storage, writer.sums, room)
        self.after = writer.flush()
        self.accumulators = range(storage.sizes.get(OWN, 0), writer.accumulators)

    # Inputs and results.

    def _load(self, leaf: Array) -> Call:
        """Numbers of this run's examples, into the leaf; beyond the last example, its own again."""
        block, storage = self.block, self.storage
        is_input = leaf is self.program.leaves.get("input")
        width = pitch(block.examples) if is_input else leaf.size
        count = leaf.size // width
        abreast = block.abreast if block.owns else 1
        given = Deal((count, block.examples), (1, abreast), (0, 1))
        target = Access(leaf, 0, (width, 1))

        def write(registers: ThreadRegisters) -> None:
            emit = registers.text.emit

            def read(k: str, turns: list[str]) -> list[Register]:
                return _read(registers, k, turns) if is_input else [_is_there(registers, n) for n in turns]

            def load(rows: Sequence[str], start: str) -> None:
                """Examples side by side, of several inputs, all of which are on their way at the same time."""
                together = min(abreast, registers.wide)
                turns = [emit(f"add nuw nsw i64 {start}, {turn}") for turn in range(abreast)]
                for k, numbers in [(k, read(k, turns)) for k in rows]:
                    for at in range(0, abreast, together):
                        several = registers.side_by_side(numbers[at : at + together], together)
                        registers.store_to(registers.address(target, [k, turns[at]]), several)

            def own(first: str, carried: list[Register]) -> list[Register]:
                rows = [emit(f"add nuw nsw i64 {first}, {k}") for k in range(at_once)]
                load(rows, emit(f"mul nuw nsw i64 %thread, {abreast}"))
                return []

            def shared(place: str) -> None:
                k, n = registers.split(place, given.parts)
                load([k], n)

            at_once = next(n for n in range(max(1, IN_FLIGHT // abreast), 0, -1) if count % n == 0)
            if not block.owns:
                registers.dealt(given.count, block.threads, shared)
            elif count > at_once:
                registers.loop(count, at_once, [], own)
            elif count:
                own("0", [])

        name = self.functions.add(storage, write)
        return Call(name, [Touch(target, given.loops, 1, given.owner(block.threads))])

    def _store(self, output: Array) -> Call:
        """The results of this run's examples, out of the block."""
        block, storage = self.block, self.storage
        width = output.size // pitch(block.examples)
        source = Access(output, 0, (1, pitch(block.examples)))

        def write(registers: ThreadRegisters) -> None:
            emit, kind = registers.text.emit, self.element.name

            def one(number: str) -> None:
                n, k = registers.split(number, (block.examples, width))
                example = emit(f"add nsw i64 %first, {n}")

                def inside() -> None:
                    place = emit(f"add nsw i64 {emit(f'mul nsw i64 {example}, {width}')}, {k}")
                    value = registers.load_from(registers.address(source, [n, k]), 1)
                    registers.store_to(emit(f"getelementptr {kind}, ptr %results, i64 {place}"), value)

                registers.where(emit(f"icmp slt i64 {example}, %count"), inside)

            registers.dealt(block.examples * width, block.threads, one)

        name = self.functions.add(storage, write)
        loops = (block.examples, width)
        return Call(name, [], [Touch(source, loops, None, None)], waits=True)


def _in_few_numbers(program: ArrayProgram, block: Block) -> ArrayProgram:
    """The program with less to keep from time to time; where a thread has an example, in places that are known."""
    program = contracted(rematerialized(program))
    return unrolled(program) if block.owns and block.abreast == 1 else program


def _read(registers: ThreadRegisters, k: str, turns: Sequence[str]) -> list[Register]:
    """Input k of some of the run's examples; it may be of either type."""
    text, kind = registers.text, registers.element.name
    emit = text.emit
    entry = emit(f"getelementptr i64, ptr %inputs, i64 {emit(f'mul nuw nsw i64 {k}, {WORDS}')}")
    address, distance, size = (
        emit(f"load i64, ptr {emit(f'getelementptr i64, ptr {entry}, i64 {word}')}") for word in range(WORDS)
    )
    step, last = emit(f"mul nsw i64 {distance}, {size}"), emit("sub nsw i64 %count, 1")
    places = []
    for n in turns:
        example = emit(f"call i64 @llvm.smin.i64(i64 {emit(f'add nsw i64 %first, {n}')}, i64 {last})")
        offset = emit(f"mul nsw i64 {example}, {step}")
        places.append(emit(f"inttoptr i64 {emit(f'add nsw i64 {address}, {offset}')} to ptr"))
    text.declarations.add("declare i64 @llvm.smin.i64(i64, i64)")
    label = text.count
    text.count += 1
    is_wide = emit(f"icmp eq i64 {size}, 8")
    text.lines += [f"  br i1 {is_wide}, label %wide{label}, label %narrow{label}", f"wide{label}:"]
    wide = [emit(f"load double, ptr {place}") for place in places]
    wide = wide if kind == "double" else [emit(f"fptrunc double {number} to float") for number in wide]
    text.lines += [f"  br label %read{label}", f"narrow{label}:"]
    narrow = [emit(f"load float, ptr {place}") for place in places]
    narrow = narrow if kind == "float" else [emit(f"fpext float {number} to double") for number in narrow]
    text.lines += [f"  br label %read{label}", f"read{label}:"]
    text.label = f"read{label}"
    pairs = zip(wide, narrow, strict=True)
    return [registers.emit(f"phi {kind} [ {a}, %wide{label} ], [ {b}, %narrow{label} ]", 1) for a, b in pairs]


def _is_there(registers: ThreadRegisters, n: str) -> Register:
    """1 if the run has an example n, else 0."""
    emit, kind, literal = registers.text.emit, registers.element.name, registers.element.literal
    inside = emit(f"icmp slt i64 {emit(f'add nsw i64 %first, {n}')}, %count")
    return registers.emit(f"select i1 {inside}, {kind} {literal(1.0)}, {kind} {literal(0.0)}", 1)


def _written(steps: Sequence[Step]) -> list[Array]:
    return list(dict.fromkeys(statement.target.array for step in steps for statement in step.body))


def _copy(array: Array, here: Array) -> Statement:
    return Statement(Access(here, 0, (1,)), (array.size,), [Term(Access(array, 0, (1,)))])


def with_arrays(steps: Sequence[Step], arrays: dict[Array, Array]) -> list[Step]:
    """The steps, which read other arrays in place of these."""

    def change(access: Access) -> Access:
        array = arrays.get(access.array, access.array)
        return Access(array, access.base, access.strides, access.table, access.repeat)

    return changed(steps, lambda statement: statement.map(change))
