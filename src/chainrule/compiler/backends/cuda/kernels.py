"""The kernels of a program as LLVM text, for a GPU, or for a processor that plays its threads one after another.

    main    blocks of threads take run after run of examples; each block leaves its sums in a row of `partials`
    gather  adds up the rows, always in the same order
    finish  what follows the sums, in one block: gradients that pass through what is the same for all examples, updates

A program for no examples is all in `finish`. A GPU's threads wait at barriers; a processor ends a loop over threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from typing import Any

from chainrule.compiler.backends.cuda.blocks import (
    ARGUMENTS,
    Call,
    Functions,
    Schedule,
    Times,
    Writer,
    in_groups,
    place_for_exchange,
    stored,
    with_barriers,
)
from chainrule.compiler.backends.cuda.dealing import Block, Deal, Touch
from chainrule.compiler.backends.cuda.packing import packed
from chainrule.compiler.backends.cuda.parts import Step, split
from chainrule.compiler.backends.cuda.storage import Storage, lives, pitch
from chainrule.compiler.backends.cuda.threads import ThreadRegisters
from chainrule.compiler.backends.llvm.lanes import with_turned_terms
from chainrule.compiler.backends.llvm.text import DOUBLE, Element
from chainrule.compiler.passes.differentiate import zero
from chainrule.compiler.passes.masks import by_results
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Repeat, Statement, Term, changed

WORDS = 3  # of an input's description: address, distance of examples, bytes of a number
STAGED = 2**16  # bytes of parameters and constants that are copied to shared memory
FEW_SUMS = 24  # that every thread keeps for its own examples
NAMES = [argument.split()[1] for argument in ARGUMENTS]


class Kernels:
    """The kernels of a laid-out program, for blocks with `room` bytes of shared memory."""

    def __init__(self, program: ArrayProgram, element: Element, block: Block, room: int) -> None:
        parts = split(by_results(program))
        self.program = program = parts.program
        self.element, self.block, self.functions = element, block, Functions(element)
        self.parts, self.has_examples = parts, bool(parts.each)
        known = [a for a in program.arrays() if not a.examples]
        given = [a for a in known if a in program.leaves.values() or a.numbers is not None]
        self.memory = Storage()
        self.memory.add("memory", given)
        self.sums_at = self.memory.sizes.get("memory", 0)
        self.memory.add("memory", parts.sums)
        self.sums_size = self.memory.sizes.get("memory", 0) - self.sums_at
        self.memory.add("memory", [a for a in known if a not in self.memory.places])
        self.finish = self._finish()
        self.storage = Storage({array: self.memory.places[array] for array in given})
        self.before: Schedule = []
        self.runs: Schedule = []
        self.after: Schedule = []
        self.accumulators = 0
        if self.has_examples:
            self._main(room // element.bytes, given)

    def _finish(self) -> Schedule:
        steps = [*self.parts.before, *self.parts.after]
        needed = [a for step in self.parts.after for s in step.body for a in s.accesses()]
        if self.has_examples and not any(a.array in _written(self.parts.before) for a in needed):
            steps = self.parts.after
        writer = Writer(self.functions, self.memory, Block(self.block.threads, 0))
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
            registers.where(is_step, lambda: registers.dealt(array.size, self.block.threads, one))

        name = self.functions.add(self.memory, write)
        touch = [Touch(Access(array, 0, (1,)), (array.size,), None, None)]
        return Call(name, touch, []) if into else Call(name, [], touch)

    def _main(self, room: int, given: Sequence[Array]) -> None:
        parts, storage, block = self.parts, self.storage, self.block
        smooth = changed(parts.each, with_turned_terms)
        each, copies = packed(smooth, 16 // self.element.bytes)
        if sum(copy.target.array.size for copy in copies) * self.element.bytes > STAGED:
            each, copies = smooth, []
        read = {a.array for step in each for s in step.body for a in s.accesses()}
        staged = {array: Array(f"{array.name}.here", array.size, "value") for array in given if array in read}
        if sum(array.size for array in staged) * self.element.bytes > STAGED:
            staged = {}
        storage.add("shared", staged.values())
        storage.add("partials", parts.sums)
        first, each = [*parts.before, *copies], with_arrays(each, staged)
        storage.add("shared", _written(first))
        inputs = [leaf for leaf in self.program.leaves.values() if leaf.examples]
        output = self.program.output
        rows = {a for a in (stored(each) | {output}) if a.examples} | set(inputs)
        together = [group.body if isinstance(group, Repeat) else group for group in in_groups(each)]
        storage.fit(lives(together, rows, set(inputs), {output}), room)
        writer = Writer(self.functions, storage, block)
        here = [_copy(array, here) for array, here in staged.items()]
        zeros = [zero(array) for array in parts.sums]
        self.before = with_barriers(writer.schedule([*here, *zeros, *first]), storage)
        whole = block.owns and sum(array.size for array in parts.sums) <= FEW_SUMS
        middle = writer.schedule(each, whole)
        ends = [self._store(output)] if output.examples else []
        self.runs = with_barriers([*map(self._load, inputs), *middle, *ends], storage)
        place_for_exchange(storage, writer.sums, room)
        self.after = writer.flush()
        self.accumulators = writer.accumulators

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
            def tile(place: str) -> None:
                k, part = registers.split(place, given.parts)
                start = registers.text.emit(f"mul nuw nsw i64 {part}, {abreast}")
                for turn in range(abreast):
                    n = registers.text.emit(f"add nuw nsw i64 {start}, {turn}")
                    number = registers.emit(_read(registers, k, n) if is_input else _is_there(registers, n), 1)
                    registers.store_to(registers.address(target, [k, n]), number)

            registers.dealt(given.count, block.threads, tile)

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


def _read(registers: ThreadRegisters, k: str, n: str) -> str:
    """Input k of the run's example n, as an instruction; it may be of either type."""
    text, kind = registers.text, registers.element.name
    emit = text.emit
    last = emit("sub nsw i64 %count, 1")
    example = emit(f"add nsw i64 %first, {n}")
    inside = emit(f"icmp slt i64 {example}, %count")
    example = emit(f"select i1 {inside}, i64 {example}, i64 {last}")
    entry = emit(f"getelementptr i64, ptr %inputs, i64 {emit(f'mul nuw nsw i64 {k}, {WORDS}')}")
    address, distance, size = (
        emit(f"load i64, ptr {emit(f'getelementptr i64, ptr {entry}, i64 {word}')}") for word in range(WORDS)
    )
    offset = emit(f"mul nsw i64 {emit(f'mul nsw i64 {example}, {distance}')}, {size}")
    place = emit(f"inttoptr i64 {emit(f'add nsw i64 {address}, {offset}')} to ptr")
    is_wide = emit(f"icmp eq i64 {size}, 8")
    label = text.count
    text.count += 1
    text.lines += [f"  br i1 {is_wide}, label %wide{label}, label %narrow{label}", f"wide{label}:"]
    wide = emit(f"load double, ptr {place}")
    wide = wide if kind == "double" else emit(f"fptrunc double {wide} to float")
    text.lines += [f"  br label %read{label}", f"narrow{label}:"]
    narrow = emit(f"load float, ptr {place}")
    narrow = narrow if kind == "float" else emit(f"fpext float {narrow} to double")
    text.lines += [f"  br label %read{label}", f"read{label}:"]
    text.label = f"read{label}"
    return f"phi {kind} [ {wide}, %wide{label} ], [ {narrow}, %narrow{label} ]"


def _is_there(registers: ThreadRegisters, n: str) -> str:
    """1 if the run has an example n, else 0, as an instruction."""
    emit, kind, literal = registers.text.emit, registers.element.name, registers.element.literal
    example = emit(f"add nsw i64 %first, {n}")
    return f"select i1 {emit(f'icmp slt i64 {example}, %count')}, {kind} {literal(1.0)}, {kind} {literal(0.0)}"


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


# Printing.

HEAD = 'target triple = "nvptx64-nvidia-cuda"'
GPU = Template("""
@room = external addrspace(3) global [0 x $number], align 16
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)

define ptx_kernel void @main(ptr noalias align 16 %memory, ptr noalias align 16 %scratches, ptr noalias align 16 %rows,
    ptr noalias align 16 %inputs, ptr noalias align 16 %results, i64 %begin, i64 %count) "nvvm.maxntid"="$threads" {
entry:
  %own = alloca [$accumulators x $number], align 16
$zeros
  %shared = addrspacecast ptr addrspace(3) @room to ptr
  %ctaid = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %block = zext nneg i32 %ctaid to i64
  %nctaid = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %blocks = zext nneg i32 %nctaid to i64
$body
  ret void
}

define ptx_kernel void @finish(ptr noalias align 16 %memory, ptr noalias align 16 %inputs,
    ptr noalias align 16 %results, i64 %first) "nvvm.maxntid"="$threads" {
entry:
  %shared = addrspacecast ptr addrspace(3) @room to ptr
$end
  ret void
}
@parts = internal addrspace(3) global [$teams x [32 x double]] undef, align 16
define ptx_kernel void @gather(ptr noalias align 16 %memory, ptr noalias align 16 %rows, i64 %blocks)
    "nvvm.maxntid"="$gathering" {
entry:
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %lane = and i32 %tid, 31
  %team = lshr i32 %tid, 5
  %ctaid = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %offset = mul i32 %ctaid, 32
  %sum = add i32 %offset, %lane
  %column = zext nneg i32 %sum to i64
  %inside = icmp slt i64 %column, $sums
  %first = zext nneg i32 %team to i64
  br label %test
test:
  %row = phi i64 [ %first, %entry ], [ %next, %turn ]
  %total = phi double [ 0.0, %entry ], [ %more, %turn ]
  %is.row = icmp slt i64 %row, %blocks
  %go = and i1 %inside, %is.row
  br i1 %go, label %turn, label %past
turn:
  %at = mul i64 %row, $sums
  %place = add i64 %at, %column
  %from = getelementptr $number, ptr %rows, i64 %place
  %given = load $number, ptr %from
  $wide
  %more = fadd double %total, %number
  %next = add i64 %row, $teams
  br label %test, !llvm.loop !10
past:
  %mine = getelementptr [$teams x [32 x double]], ptr addrspace(3) @parts, i32 0, i32 %team, i32 %lane
  store double %total, ptr addrspace(3) %mine
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %is.first = icmp eq i32 %team, 0
  %last = and i1 %inside, %is.first
  br i1 %last, label %add, label %end
add:
$adding
  %to.at = add i64 %column, $sums_at
  %to = getelementptr $number, ptr %memory, i64 %to.at
  store $number %rounded, ptr %to
  br label %end
end:
  ret void
}
; Within 2 ulp for all numbers. The exact quotient has a slow way for zeros, of which masks make many.
define internal float @quotient(float %a, float %b) #1 {
  %q = call float asm "div.full.f32 $$0, $$1, $$2;", "=f,f,f"(float %a, float %b)
  ret float %q
}
!10 = !{!10, !11}
!11 = !{!"llvm.loop.unroll.count", i32 8}
attributes #0 = { nounwind alwaysinline }
attributes #1 = { nounwind alwaysinline }
""")
TEAMS = 8  # of threads, which add up every eighth row
CPU = Template("""
define void @main(ptr %shared, ptr %owns, ptr %memory, ptr %scratches, ptr %rows, ptr %inputs, ptr %results,
    i64 %begin, i64 %count, i64 %block, i64 %blocks) {
entry:
$body
  ret void
}

define void @finish(ptr %shared, ptr %owns, ptr %memory, ptr %inputs, ptr %results, i64 %first) {
entry:
$end
  ret void
}
define internal float @quotient(float %a, float %b) #1 {
  %q = fdiv float %a, %b
  ret float %q
}
attributes #0 = { nounwind }
attributes #1 = { nounwind }
""")
BODY = Template("""  %scratch.at = mul i64 %block, $scratch
  %scratch = getelementptr $number, ptr %scratches, i64 %scratch.at
  %row.at = mul i64 %block, $sums
  %partials = getelementptr $number, ptr %rows, i64 %row.at
  %offset = mul i64 %block, $examples
  %start = add i64 %begin, %offset
  %step = mul i64 %blocks, $examples
$before
  br label %runs.begin
runs.begin:
  br label %runs
runs:
  %first = phi i64 [ %start, %runs.begin ], [ %next, %run.end ]
  %more = icmp slt i64 %first, %count
  br i1 %more, label %run, label %done
run:
$runs
  br label %run.end
run.end:
  %next = add i64 %first, %step
  br label %runs
done:
$after
""")
TIMES = Template("""  br label %times$k.begin
times$k.begin:
  br label %times$k
times$k:
  %time$k = phi i64 [ $first, %times$k.begin ], [ %next$k, %times$k.end ]
$calls
  br label %times$k.end
times$k.end:
  %next$k = add nsw i64 %time$k, $step
  %over$k = icmp eq i64 %time$k, $last
  br i1 %over$k, label %past$k, label %times$k
past$k:""")
EVERYONE = Template("""  br label %all$k.begin
all$k.begin:
  br label %all$k
all$k:
  %thread$k = phi i64 [ $first, %all$k.begin ], [ %other$k, %all$k.end ]
  %own.at$k = mul i64 %thread$k, $accumulators
  %own$k = getelementptr $number, ptr %owns, i64 %own.at$k
$calls
  br label %all$k.end
all$k.end:
  %other$k = add nsw i64 %thread$k, $step
  %over$k = icmp eq i64 %thread$k, $last
  br i1 %over$k, label %past$k, label %all$k
past$k:""")
# The thread's number, asked for in every function anew: else what follows from it, for all functions, would be
# computed before the runs begin, and kept in registers.
THREAD = Template("""  %tid$k = call i32 asm sideeffect "mov.u32 $$0, %tid.x;", "=r"()
  %thread$k = zext nneg i32 %tid$k to i64""")
BARRIER = "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"


class Printer:
    """Prints schedules as calls: between barriers on a GPU, else in loops over threads, which run in `order`."""

    def __init__(self, module: Kernels, on_gpu: bool, order: int = 1) -> None:
        self.module, self.on_gpu, self.order = module, on_gpu, order
        self.labels = 0

    def text(self) -> str:
        """The whole module."""
        module, kind = self.module, self.module.element.name
        sizes, examples = module.storage.sizes, module.block.examples
        known = {"number": kind, "threads": module.block.threads, "accumulators": max(1, module.accumulators)}
        zeros = [
            f"  %zero{k} = getelementptr {kind}, ptr %own, i64 {k}\n  store {kind} 0.0, ptr %zero{k}"
            for k in range(module.accumulators)
        ]
        body = BODY.substitute(
            number=kind,
            scratch=sizes.get("scratch", 0),
            sums=module.sums_size,
            examples=examples,
            before=self.print(module.before, {"first": "0"}),
            runs=self.print(module.runs, {}, waits=True),
            after=self.print(module.after, {"first": "0"}, waits=True),
        )
        end = self.print(module.finish, {"count": "0", "scratch": "null", "partials": "null", "own": "null"})
        frame = (GPU if self.on_gpu else CPU).substitute(
            known | self._gathering(), zeros="\n".join(zeros), body=body, end=end
        )
        head = [HEAD] if self.on_gpu else []
        return "\n".join([*head, *module.functions.texts, frame, *sorted(module.functions.declarations)])

    def _gathering(self) -> dict[str, Any]:
        """What `gather` is made with."""
        kind, wide = self.module.element.name, self.module.element is DOUBLE
        lines = ["  %s0 = fadd double 0.0, %total"]
        for k in range(1, TEAMS):
            place = f"getelementptr [{TEAMS} x [32 x double]], ptr addrspace(3) @parts, i32 0, i32 {k}, i32 %lane"
            lines += [f"  %p{k} = {place}", f"  %v{k} = load double, ptr addrspace(3) %p{k}"]
            lines += [f"  %s{k} = fadd double %s{k - 1}, %v{k}"]
        rounded = f"fadd double 0.0, %s{TEAMS - 1}" if wide else f"fptrunc double %s{TEAMS - 1} to {kind}"
        return {
            "teams": TEAMS,
            "gathering": 32 * TEAMS,
            "sums": self.module.sums_size,
            "sums_at": self.module.sums_at,
            "wide": "%number = fadd double -0.0, %given" if wide else f"%number = fpext {kind} %given to double",
            "adding": "\n".join([*lines, f"  %rounded = {rounded}"]),
        }

    def print(self, schedule: Schedule, values: dict[str, str], waits: bool = False) -> str:
        """The calls of a schedule, before which all threads wait if so."""
        lines, segment = [BARRIER] if waits and self.on_gpu else [], list[Call | Times]()
        for item in schedule:
            calls = [item] if isinstance(item, Call) else item.body
            if isinstance(item, Call) and not item.waits:
                segment.append(item)
            elif isinstance(item, Times) and not any(call.waits for call in calls):
                segment.append(item)
            else:
                lines += self.segment(segment, values, "0")
                segment = []
                if isinstance(item, Call):
                    lines += self.barrier()
                    segment = [item]
                else:
                    lines += [self.times(item, values), *self.barrier()]
        lines += self.segment(segment, values, "0")
        return "\n".join(lines)

    def barrier(self) -> list[str]:
        return [BARRIER] if self.on_gpu else []

    def times(self, item: Times, values: dict[str, str]) -> str:
        """A loop over time with barriers in it."""
        k = self.label()
        lines, segment = list[str](), list[Call | Times]()
        for call in item.body:
            if call.waits:
                lines += self.segment(segment, values, f"%time{k}")
                lines += self.barrier()
                segment = []
            segment.append(call)
        lines += self.segment(segment, values, f"%time{k}")
        return self.loop(item, k, lines)

    def loop(self, item: Times, k: int, lines: Sequence[str]) -> str:
        first, last, step = item.times[0], item.times[-1], item.times.step
        return TIMES.substitute(k=k, first=first, last=last, step=step, calls="\n".join(lines))

    def segment(self, items: Sequence[Call | Times], values: dict[str, str], time: str) -> list[str]:
        """What every thread does without waiting."""
        if not items:
            return []
        if self.on_gpu:
            return self.calls(items, values, time)
        k, threads = self.label(), self.module.block.threads
        ends = (0, threads - 1)[:: self.order]
        calls = self.calls(items, {**values, "thread": f"%thread{k}", "own": f"%own{k}"}, time)
        known = {"k": k, "first": ends[0], "last": ends[1], "step": self.order, "number": self.module.element.name}
        accumulators = max(1, self.module.accumulators)
        return [EVERYONE.substitute(known, accumulators=accumulators, calls="\n".join(calls))]

    def calls(self, items: Sequence[Call | Times], values: dict[str, str], time: str) -> list[str]:
        found = []
        for item in items:
            if isinstance(item, Call):
                named = {**values, "time": time}
                if self.on_gpu:
                    k = self.label()
                    found.append(THREAD.substitute(k=k))
                    named["thread"] = f"%thread{k}"
                arguments = [f"{argument.split()[0]} {named.get(name[1:], name)}" for argument, name in zip(ARGUMENTS, NAMES, strict=True)]
                found.append(f"  call void {item.name}({', '.join(arguments)})")
            else:
                k = self.label()
                found.append(self.loop(item, k, self.calls(item.body, values, f"%time{k}")))
        return found

    def label(self) -> int:
        self.labels += 1
        return self.labels
