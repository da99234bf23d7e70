"""Kernels as LLVM text for a GPU, whose threads wait for each other at barriers."""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from typing import Any

from chainrule.compiler.backends.cuda.blocks import ARGUMENTS, Call, Schedule, Times
from chainrule.compiler.backends.cuda.kernels import TEAMS, Kernels
from chainrule.compiler.backends.llvm.text import DOUBLE

RESIDENT = 512  # threads of a processor, where each has an example: it waits for memory, and others go on meanwhile
ROWS_AT_ONCE = 16  # that a thread loads before it adds them up
# A pointer is `noalias` only if no thread reads there what another one wrote: LLVM may take it that a barrier does not
# touch what is behind such a pointer, and move loads across.
HEAD = 'target triple = "nvptx64-nvidia-cuda"'
FRAME = Template("""
@room = external addrspace(3) global [0 x $number], align 16
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare void @llvm.nvvm.membar.gl()

define ptx_kernel void @main(ptr noalias align 16 %memory, ptr align 16 %scratches, ptr align 16 %rows,
    ptr noalias align 16 %inputs, ptr noalias align 16 %results, i64 %begin, i64 %count)
    "nvvm.maxntid"="$threads" $resident {
entry:
  %own = alloca [$own x $number], align 16
$zeros
  %shared = addrspacecast ptr addrspace(3) @room to ptr
  %ctaid = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %block = zext nneg i32 %ctaid to i64
  %nctaid = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %blocks = zext nneg i32 %nctaid to i64
$body
  ret void
}

$end
; Within 2 ulp for all numbers. The exact quotient has a slow way for zeros, of which masks make many.
define internal float @quotient(float %a, float %b) #1 {
  %q = call float asm "div.full.f32 $$0, $$1, $$2;", "=f,f,f"(float %a, float %b)
  ret float %q
}
attributes #0 = { nounwind alwaysinline }
attributes #1 = { nounwind alwaysinline }
""")
FINISH = Template("""
define ptx_kernel void @finish(ptr align 16 %memory, ptr noalias align 16 %inputs,
    ptr noalias align 16 %results, i64 %first) "nvvm.maxntid"="$threads" {
entry:
  %shared = addrspacecast ptr addrspace(3) @room to ptr
$finish
  ret void
}
""")
# Which block is last is found by counting those that are done. Launches are in one stream, one after the other, so one
# counter will do; it wraps around to 0 at the last block. What other blocks have stored is seen by it: they were at a
# fence before they were counted, and it was at another after.
GATHER = Template("""
@parts = internal addrspace(3) global [$teams x [32 x double]] undef, align 16
@is.last = internal addrspace(3) global i32 undef, align 4
@done = internal addrspace(1) global i32 0, align 4
define ptx_kernel void @gather(ptr align 16 %memory, ptr noalias align 16 %rows, i64 %blocks,
    ptr noalias align 16 %inputs, ptr noalias align 16 %results, i64 %first) "nvvm.maxntid"="$threads" {
entry:
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %lane = and i32 %tid, 31
  %team = lshr i32 %tid, 5
  %ctaid = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %offset = mul i32 %ctaid, 32
  %sum = add i32 %offset, %lane
  %column = zext nneg i32 %sum to i64
  %inside = icmp slt i64 %column, $sums
  %own.row = zext nneg i32 %team to i64
  br label %test
test:
  %row = phi i64 [ %own.row, %entry ], [ %next, %turn ]
  %total = phi double [ 0.0, %entry ], [ $total, %turn ]
  %is.row = icmp slt i64 %row, %blocks
  %go = and i1 %inside, %is.row
  br i1 %go, label %turn, label %past
turn:
$turn
  %next = add i64 %row, $stride
  br label %test
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
  call void @llvm.nvvm.membar.gl()
  br label %end
end:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %is.counting = icmp eq i32 %tid, 0
  br i1 %is.counting, label %count, label %counted
count:
  %nctaid = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %most = sub i32 %nctaid, 1
  %before = call i32 asm sideeffect "atom.global.inc.u32 $$0, [$$1], $$2;",
    "=r,l,r,~{memory}"(ptr addrspace(1) @done, i32 %most)
  %all.done = icmp eq i32 %before, %most
  %flag = zext i1 %all.done to i32
  store i32 %flag, ptr addrspace(3) @is.last
  call void @llvm.nvvm.membar.gl()
  br label %counted
counted:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %flag.here = load i32, ptr addrspace(3) @is.last
  %goes.on = icmp ne i32 %flag.here, 0
  br i1 %goes.on, label %finish, label %out
finish:
  %shared = addrspacecast ptr addrspace(3) @room to ptr
$finish
  br label %out
out:
  ret void
}
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
# The thread's number, asked for in every function anew: else what follows from it, for all functions, would be
# computed before the runs begin, and kept in registers.
THREAD = Template("""  %tid$k = call i32 asm sideeffect "mov.u32 $$0, %tid.x;", "=r"()
  %thread$k = zext nneg i32 %tid$k to i64
""")
BARRIER = "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"


class Printer:
    """Prints the schedules of kernels as calls of their functions, with barriers in between."""

    head, frame, barrier = HEAD, FRAME, BARRIER

    def __init__(self, module: Kernels) -> None:
        self.module = module
        self.threads = module.block.threads  # of the kernel that is being printed
        self.labels = 0

    def text(self) -> str:
        """The whole module."""
        module, kind = self.module, self.module.element.name
        sizes, examples = module.storage.sizes, module.block.examples
        alone = module.block.owns and module.block.abreast == 1
        resident = f'"nvvm.minctasm"="{max(1, RESIDENT // module.block.threads)}"' if alone else ""
        known = {
            "resident": resident,
            "number": kind,
            "threads": module.block.threads,
            "own": max(1, module.accumulators.stop),
        }
        zeros = [
            f"  %zero{k} = getelementptr {kind}, ptr %own, i64 {k}\n  store {kind} 0.0, ptr %zero{k}"
            for k in module.accumulators
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
        self.threads = module.last_threads
        finish = self.print(module.finish, {"count": "0", "scratch": "null", "partials": "null", "own": "null"})
        frame = self.frame.substitute(known, zeros="\n".join(zeros), body=body, end=self.end(finish))
        return "\n".join([self.head, *module.functions.texts, frame, *sorted(module.functions.declarations)])

    def end(self, finish: str) -> str:
        """The last kernel, of which `finish` is all or a part."""
        known = {"number": self.module.element.name, "threads": self.threads, "finish": finish}
        return GATHER.substitute(known | self._gathering()) if self.module.sums_size else FINISH.substitute(known)

    def _gathering(self) -> dict[str, Any]:
        """What `gather` is made with: a turn loads several rows at once, since each takes long to come."""
        kind, wide, sums = self.module.element.name, self.module.element is DOUBLE, self.module.sums_size
        widened = "fadd double -0.0, %given{k}" if wide else f"fpext {kind} %given{{k}} to double"
        loads, adds = [], []
        for k in range(ROWS_AT_ONCE):
            loads += [
                f"  %row{k} = add i64 %row, {k * TEAMS}",
                f"  %is{k} = icmp slt i64 %row{k}, %blocks",
                f"  %or{k} = select i1 %is{k}, i64 %row{k}, i64 %row",  # whose number is then left out
                f"  %at{k} = mul i64 %or{k}, {sums}",
                f"  %place{k} = add i64 %at{k}, %column",
                f"  %from{k} = getelementptr {kind}, ptr %rows, i64 %place{k}",
                f"  %given{k} = load {kind}, ptr %from{k}",
            ]
            adds += [
                f"  %wide{k} = {widened.format(k=k)}",
                f"  %number{k} = select i1 %is{k}, double %wide{k}, double 0.0",
                f"  %total{k} = fadd double {f'%total{k - 1}' if k else '%total'}, %number{k}",
            ]
        lines = ["  %s0 = fadd double 0.0, %total"]
        for k in range(1, TEAMS):
            place = f"getelementptr [{TEAMS} x [32 x double]], ptr addrspace(3) @parts, i32 0, i32 {k}, i32 %lane"
            lines += [f"  %p{k} = {place}", f"  %v{k} = load double, ptr addrspace(3) %p{k}"]
            lines += [f"  %s{k} = fadd double %s{k - 1}, %v{k}"]
        rounded = f"fadd double 0.0, %s{TEAMS - 1}" if wide else f"fptrunc double %s{TEAMS - 1} to {kind}"
        return {
            "teams": TEAMS,
            "sums": sums,
            "sums_at": self.module.sums_at,
            "turn": "\n".join([*loads, *adds]),
            "total": f"%total{ROWS_AT_ONCE - 1}",
            "stride": TEAMS * ROWS_AT_ONCE,
            "adding": "\n".join([*lines, f"  %rounded = {rounded}"]),
        }

    def print(self, schedule: Schedule, values: dict[str, str], waits: bool = False) -> str:
        """The calls of a schedule, before which all threads wait if so."""
        lines, segment = [self.barrier] if waits else [], list[Call | Times]()
        for item in schedule:
            if not any(call.waits for call in ([item] if isinstance(item, Call) else item.body)):
                segment.append(item)
            else:
                lines += self.segment(segment, values, "0")
                segment = []
                if isinstance(item, Call):
                    lines.append(self.barrier)
                    segment = [item]
                else:
                    lines += [self.times(item, values), self.barrier]
        lines += self.segment(segment, values, "0")
        return "\n".join(lines)

    def times(self, item: Times, values: dict[str, str]) -> str:
        """A loop over time with barriers in it."""
        k = self.label()
        lines, segment = list[str](), list[Call | Times]()
        for call in item.body:
            if call.waits:
                lines += [*self.segment(segment, values, f"%time{k}"), self.barrier]
                segment = []
            segment.append(call)
        lines += self.segment(segment, values, f"%time{k}")
        return self.loop(item, k, lines)

    def loop(self, item: Times, k: int, lines: Sequence[str]) -> str:
        first, last, step = item.times[0], item.times[-1], item.times.step
        return TIMES.substitute(k=k, first=first, last=last, step=step, calls="\n".join(lines))

    def segment(self, items: Sequence[Call | Times], values: dict[str, str], time: str) -> list[str]:
        """What every thread does without waiting."""
        block = self.module.block
        if not items or not block.owns or block.abreast > 1:
            return self.calls(items, values, time)
        k = self.label()  # one number for all, so that what a thread has written need not be loaded again
        return [THREAD.substitute(k=k), *self.calls(items, {**values, "thread": f"%thread{k}"}, time)]

    def calls(self, items: Sequence[Call | Times], values: dict[str, str], time: str) -> list[str]:
        found = []
        for item in items:
            if isinstance(item, Call):
                found.append(self.call(item.name, {**values, "time": time}))
            else:
                k = self.label()
                found.append(self.loop(item, k, self.calls(item.body, values, f"%time{k}")))
        return found

    def call(self, name: str, values: dict[str, str]) -> str:
        """A call by this thread."""
        if "thread" in values:
            return self.plain_call(name, values)
        k = self.label()
        return THREAD.substitute(k=k) + self.plain_call(name, {**values, "thread": f"%thread{k}"})

    def plain_call(self, name: str, values: dict[str, str]) -> str:
        """A call with these arguments; others are called as they are called in the function."""
        pairs = (argument.split() for argument in ARGUMENTS)
        given = ", ".join(f"{kind} {values.get(own[1:], own)}" for kind, own in pairs)
        return f"  call void {name}({given})"

    def label(self) -> int:
        self.labels += 1
        return self.labels
