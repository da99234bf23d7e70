"""The text of a whole program: functions of groups of statements, `run` that calls them, and `drive`.

Groups that differ only in where their arrays lie are one function, which is given pointers to these: LLVM takes time
for each function. So are small loops in time. In the body of another loop it would take time at every turn to hand the
pointers over, and functions know their places; and so do blocks, which have many arrays.

All are given two blocks of memory. What a program writes to its leaves is its *state*, which is there for the next run:
a training step's parameters and the optimizer's slots. It has a block of its own, so that programs whose states are
alike can go on from where another has stopped (see `relay`). Rows of inputs may lie anywhere (see `in_place`): a *slot*
in memory has their address, and functions are given it too.

`drive` calls `run` again and again, before returning to Python. Before each run, one row of each input matrix is copied
into memory; after it, one row of results is copied out, and an array is added, in doubles, to the row of sums of the
present section. A matrix is given by its address, its width, and the place in memory that its rows go to or come from.
Inputs that are still as the caller has them are brought by `bring` (see `columns`), if it is given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from string import Template

import numpy as np

from chainrule.compiler.backends.llvm.carried import Loop, Small
from chainrule.compiler.backends.llvm.fusion import Group, can_replace, groups, stored, without_zeros
from chainrule.compiler.backends.llvm.lanes import in_turn
from chainrule.compiler.backends.llvm.long_sums import with_shorter_sums
from chainrule.compiler.backends.llvm.nests import Nest
from chainrule.compiler.backends.llvm.registers import Movable, Registers
from chainrule.compiler.backends.llvm.target import Target
from chainrule.compiler.backends.llvm.text import DOUBLE, Element, Text
from chainrule.compiler.backends.protocol import ROWS
from chainrule.compiler.passes.divisors import with_divisors_outside
from chainrule.compiler.passes.equal_elements import with_equal_elements_once
from chainrule.compiler.passes.known_numbers import with_known_numbers
from chainrule.compiler.passes.places import Lives, lives_in, places
from chainrule.compiler.passes.program import Array, ArrayProgram, Repeat
from chainrule.compiler.passes.updates import with_updates_along

BLOCKS = ", ptr %memory, ptr %state"
LARGE = 8  # cache lines
PART = 64  # calls in one function of `run`: LLVM takes longer for each call of a long one
LONGEST = 1024  # statements of a Repeat that are compiled as one: LLVM's work on straight-line code is superlinear
ATTRIBUTES = Template("""
attributes #0 = { nounwind noinline "prefer-vector-width"="$bits" }
attributes #1 = { nounwind alwaysinline }
""")
REPEAT = Template("""  br label %before$k
before$k:
  br label %head$k
head$k:
  %r$k = phi i64 [ $first, %before$k ], [ %next$k, %head$k ]
$calls
  %next$k = add nsw i64 %r$k, $to_next
  %done$k = icmp eq i64 %r$k, $last
  br i1 %done$k, label %after$k, label %head$k
after$k:""")
SLOT = Template("""  %slot.$name = getelementptr i8, ptr %memory, i64 $bytes
  %$name = load ptr, ptr %slot.$name""")
MATRICES = ("in1", "in2", "out", "sums")
PLACE = Template("""  %bytes.$name = mul i64 %width.$name, $bytes
  %memory.$name = getelementptr $number, ptr %memory, i64 %place.$name
""")
ROW = Template("""  %offset.$name = mul i64 %time, %bytes.$name
  %row.$name = getelementptr i8, ptr %$name, i64 %offset.$name
  call void @llvm.memcpy.p0.p0.i64(ptr $target, ptr $source, i64 %bytes.$name, i1 false)
""")
DRIVE = Template("""
define void @drive(ptr %memory, ptr %state, i64 %count, $arguments, i64 %section,
                   ptr %bring, ptr %words, i64 %place.columns) {
entry:
$places
  %columns = getelementptr $number, ptr %memory, i64 %place.columns
  %no.columns = icmp eq ptr %bring, null
  br label %test
test:
  %time = phi i64 [ 0, %entry ], [ %next, %turn ]
  %more = icmp slt i64 %time, %count
  br i1 %more, label %inputs, label %end
inputs:
$fill
  br i1 %no.columns, label %turn, label %brought
brought:
  call void %bring(ptr %columns, ptr %words, i64 %time)
  br label %turn
turn:
  call void @run(ptr %memory, ptr %state)
$drain
  %number.section = udiv i64 %time, %section
  %offset.sums = mul i64 %number.section, %width.sums
  %row.sums = getelementptr double, ptr %sums, i64 %offset.sums
  call void @add(ptr %row.sums, ptr %memory.sums, i64 %width.sums)
  %next = add i64 %time, 1
  br label %test
end:
  ret void
}

define internal void @add(ptr noalias %sums, ptr noalias %numbers, i64 %count) #0 {
entry:
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %next, %turn ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %turn, label %end
turn:
  %from = getelementptr $number, ptr %numbers, i64 %k
  %to = getelementptr double, ptr %sums, i64 %k
  %given = load <$line x $number>, ptr %from, align $bytes
$widen
  %before = load <$line x double>, ptr %to, align 8
  %after = fadd <$line x double> %before, $wide
  store <$line x double> %after, ptr %to, align 8
  %next = add i64 %k, $line
  br label %test
end:
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
""")


class Module:
    """An array program in LLVM's language.

    `offsets` says where its arrays are in memory, those in `state` in that block; others are in registers. `slots` says
    for rows of inputs where their address is; their offset is that of room for a copy.
    """

    def __init__(self, program: ArrayProgram, element: Element, target: Target) -> None:
        self.element = element
        self.target = target
        program = without_zeros(with_equal_elements_once(with_known_numbers(program)))
        program = with_updates_along(with_divisors_outside(program)).rewritten(in_turn, {})
        program = with_shorter_sums(program, target, element.bytes)
        self.small = Small(program)
        program = self.small.without_needless()
        every = groups(program.steps)
        written = {statement.target.array for statement in program.statements}
        self.state = [array for array in program.leaves.values() if array in written]
        self.offsets, self.state_size, self.size = self._placed(program, every)
        rows = [array for kind, array in program.leaves.items() if kind.startswith(ROWS)]
        self.slots = {array: self.size + k * element.line for k, array in enumerate(rows)}
        self.size += element.line * len(rows)
        self.blocks = dict.fromkeys(self.state, "%state") | {array: f"%{array.name}" for array in rows}
        self.given = BLOCKS + "".join(f", ptr {self.blocks[array]}" for array in rows)
        self.starts = self.offsets | dict.fromkeys(rows, 0)
        self.tables: list[np.ndarray] = []  # of positions, which the code refers to by address
        self.declarations: set[str] = set()
        self.functions: dict[str, str] = {}  # all but the name of each -> its name, that of the first group
        self.groups, self.pointers, self.repeats = count(), count(), count()
        self.calls = [self._repeat(step) if isinstance(step, Repeat) else self._call(step) for step in every]

    def _placed(self, program: ArrayProgram, every: Sequence[Group | Repeat]) -> tuple[dict[Array, int], int, int]:
        """Where each array lies in its block of memory; the sizes of the state's block, and of that of all others."""
        kept, known = stored(program, self.small.parts) - self.small.alone, {*program.leaves.values(), *program.results}
        lives = lives_in(group.body if isinstance(group, Repeat) else group for group in every)
        found = {a: (0, len(every)) for a in program.arrays() if a in kept and (a in known or a.numbers is not None)}
        found |= {array: life for array, life in lives.items() if array in kept and array not in found}
        state, state_size = places({array: found.pop(array) for array in self.state}, self._room)
        offsets, size = places(found, self._room, self._replaced(every, found))
        return state | offsets, state_size, size

    def _replaced(self, every: Sequence[Group | Repeat], lives: Lives) -> dict[Array, Array]:
        """The arrays that take the place of another at the step that needs that one last."""
        begin, end = defaultdict[int, list[Array]](list), defaultdict[int, list[Array]](list)
        for array, (first, last) in lives.items():
            begin[first].append(array)
            end[last].append(array)
        found: dict[Array, Array] = {}
        for time, group in enumerate(every):
            if isinstance(group, Repeat):
                continue
            for new in begin[time]:
                fit = (a for a in end[time] if self._room(a) == self._room(new) and can_replace(group, a, new))
                if (old := next(fit, None)) is not None:
                    found[new] = old
                    end[time].remove(old)
        return found

    def _room(self, array: Array) -> int:
        """The numbers that an array has room for: whole cache lines.

        A large one takes an odd number of them. A loop in time goes through many arrays of one length at the same pace,
        and if that were a multiple of a high power of two, all would want the same few places of the cache.
        """
        lines = -(-array.size // self.element.line)
        return (lines | 1 if lines >= LARGE else lines) * self.element.line

    def __str__(self) -> str:
        attributes = ATTRIBUTES.substitute(bits=self.target.bits)
        functions = [f"define internal void {name}{rest}" for rest, name in self.functions.items()]
        return "\n".join([*functions, *self._main(), drive(self.element), *sorted(self.declarations), attributes])

    def _main(self) -> list[str]:
        """`run`, which makes all calls; in parts, if there are many."""
        slots = [SLOT.substitute(name=array.name, bytes=n * self.element.bytes) for array, n in self.slots.items()]
        parts = [self.calls[k : k + PART] for k in range(0, len(self.calls), PART)]
        if len(parts) <= 1:
            return [_function("void @run", BLOCKS, [*slots, *self.calls])]
        names = [f"void @part{k}({self.given[2:]})" for k in range(len(parts))]
        texts = [_function(f"internal void @part{k}", self.given, calls, " #0") for k, calls in enumerate(parts)]
        return [*texts, _function("void @run", BLOCKS, [*slots, *(f"  call {name}" for name in names)])]

    def _call(self, group: Group | Repeat) -> str:
        """A call of the function of some statements, or a small loop, with pointers to its arrays and tables."""
        text = Text(self.element, self.declarations)
        registers = Movable(text, self.starts, self.tables, self.target, self.blocks)
        self._write(registers, group)
        name, lines, given = self._function(text, registers.parameters, "#0"), [], ["i64 0"]
        for place in registers.places():
            pointer = place if isinstance(place, str) else f"%p{next(self.pointers)}"
            if not isinstance(place, str):
                block, offset = place
                lines.append(f"  {pointer} = getelementptr inbounds {self.element.name}, ptr {block}, i64 {offset}")
            given.append(f"ptr {pointer}")
        return "\n".join([*lines, f"  call void {name}({', '.join(given)})"])

    def _function(self, text: Text, parameters: str, attributes: str) -> str:
        """The name of the function with this text; one that another group has as well is used again."""
        name = f"@s{next(self.groups)}"
        return self.functions.setdefault(text.function(f"(i64 %time{parameters}) {attributes}"), name)

    def _repeat(self, step: Repeat) -> str:
        """A loop that calls the functions of the body in order, once for each time."""
        if step in self.small.flows:
            is_block = step.count == 1  # with so many arrays that the pointers would be in memory
            return self._call_at(step, "0", False) if is_block else self._call(step)
        k = next(self.repeats)
        inline = len(step.body) <= LONGEST
        calls = [self._call_at(group, f"%r{k}", inline) for group in groups(self.small.parts[step])]
        first, last, to_next = step.times[0], step.times[-1], step.times.step
        return REPEAT.substitute(k=k, first=first, calls="\n".join(calls), to_next=to_next, last=last)

    def _write(self, registers: Registers, group: Group | Repeat) -> None:
        """The code of some statements, or of a small loop."""
        if isinstance(group, Repeat):
            Loop(registers, self.small, group, "%time")
        else:
            Nest(registers, group)

    def _call_at(self, group: Group | Repeat, time: str, inline: bool) -> str:
        """A call at one time of a loop, of a function that is inlined if it has no loops and `inline` says so."""
        text = Text(self.element, self.declarations)
        registers = Registers(text, self.starts, self.tables, self.target, self.blocks)
        self._write(registers, group)
        inlined = inline and text.label == "entry"  # no loop was written
        name = self._function(text, self.given, "#1" if inlined else "#0")
        return f"  call void {name}(i64 {time}{self.given})"


def _function(name: str, given: str, calls: Sequence[str], attributes: str = "") -> str:
    return "\n".join([f"define {name}({given[2:]}){attributes} {{", *calls, "  ret void\n}\n"])


def drive(element: Element) -> str:
    """The text of `drive`, in a module that has `run`."""

    def row(name: str) -> str:
        ends = [f"%memory.{name}", f"%row.{name}"]
        target, source = ends if name.startswith("in") else reversed(ends)
        return ROW.substitute(name=name, target=target, source=source)

    number, line = element.name, element.line
    known = {"number": number, "bytes": element.bytes, "line": line}
    return DRIVE.substitute(
        known,
        arguments=", ".join(f"ptr %{name}, i64 %width.{name}, i64 %place.{name}" for name in MATRICES),
        places="".join(PLACE.substitute(known, name=name) for name in MATRICES),
        fill=row("in1") + row("in2"),
        drain=row("out"),
        widen="" if element is DOUBLE else f"  %wide = fpext <{line} x {number}> %given to <{line} x double>",
        wide="%given" if element is DOUBLE else "%wide",
    )
