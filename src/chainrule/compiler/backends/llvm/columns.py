"""The inputs of many runs, read where the caller has them: `fill`, which a native loop calls before each run.

A batch lies in memory example by example, and a program wants each number of its examples side by side. To turn a whole
batch round first would write all of it to memory and read it again. `fill` does so for the examples of one run, just
before they are needed, and rounds doubles where the program computes in floats.

It is given where the numbers go, its *wires*, and the number of the run. Before the wires stands how many examples a
run has, how many there is room for, and how many wires there are for four neighbouring numbers each, for two and for
one. A wire says which number it begins with, where that is in the first example, and how many bytes there are from one
example to the next.
"""

from __future__ import annotations

from string import Template

import numpy as np

from chainrule.compiler.backends.llvm.text import ELEMENTS, Element
from chainrule.compiler.backends.protocol import TOGETHER, Columns

AT_ONCE = 8  # examples, whose numbers are then stored as one vector
HEAD = 2 + len(TOGETHER)  # words before the wires
FILL = Template("""
define void @fill(ptr noalias %target, ptr noalias %wires, i64 %run) {
entry:
  %examples = load i64, ptr %wires
  %room.at = getelementptr i64, ptr %wires, i64 1
  %room = load i64, ptr %room.at
  %before = mul i64 %run, %examples
  %wires0 = getelementptr i64, ptr %wires, i64 $head
  br label %examples.test
examples.test:
  %e = phi i64 [ 0, %entry ], [ %e.next, %done$last ]
  %e.more = icmp slt i64 %e, %room
  br i1 %e.more, label %examples.turn, label %end
examples.turn:
  %example = add i64 %before, %e
  %e.next = add i64 %e, $many
  %is.whole = icmp sle i64 %e.next, %examples
  br label %begin$first
$wires
end:
  ret void
}
""")
WIRES = Template("""begin$w:
  %count.at$w = getelementptr i64, ptr %wires, i64 $place
  %count$w = load i64, ptr %count.at$w
  br label %test$w
test$w:
  %n$w = phi i64 [ 0, %begin$w ], [ %next$w, %stored$w ]
  %wire$w = getelementptr [3 x i64], ptr %$before, i64 %n$w
  %more$w = icmp slt i64 %n$w, %count$w
  br i1 %more$w, label %turn$w, label %done$w
turn$w:
  %number$w = load i64, ptr %wire$w
  %base.at$w = getelementptr i64, ptr %wire$w, i64 1
  %base$w = load ptr, ptr %base.at$w
  %stride.at$w = getelementptr i64, ptr %wire$w, i64 2
  %stride$w = load i64, ptr %stride.at$w
  %offset$w = mul i64 %example, %stride$w
  %from$w = getelementptr i8, ptr %base$w, i64 %offset$w
  %row$w = mul i64 %number$w, %room
  %place$w = add i64 %row$w, %e
  br i1 %is.whole, label %whole$w, label %rest$w
whole$w:
$whole
  br label %stored$w
rest$w:
$zeros
  br label %lane.test$w
lane.test$w:
  %l$w = phi i64 [ 0, %rest$w ], [ %l.next$w, %lane$w ]
  %l.example$w = add i64 %e, %l$w
  %l.more$w = icmp slt i64 %l.example$w, %examples
  br i1 %l.more$w, label %lane$w, label %stored$w
lane$w:
  %l.away$w = mul i64 %l$w, %stride$w
  %l.from$w = getelementptr i8, ptr %from$w, i64 %l.away$w
$lane
  %l.next$w = add i64 %l$w, 1
  br label %lane.test$w
stored$w:
  %next$w = add i64 %n$w, 1
  br label %test$w
done$w:
  br label %$after
""")


class _Lines:
    """The instructions of a block, on `width` neighbouring numbers; registers are named after the block."""

    def __init__(self, own: Element, given: Element, width: int, block: str) -> None:
        self.own, self.given, self.width, self.block = own, given, width, block
        self.lines: list[str] = []

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def emit(self, instruction: str) -> str:
        name = f"%v{self.width}.{self.block}.{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def row(self, column: int, lane: str = "") -> str:
        """Where a number of the present examples goes."""
        away = self.emit(f"mul i64 {column}, %room")
        start = self.emit(f"add i64 {away}, %place{self.width}")
        index = self.emit(f"add i64 {start}, {lane}") if lane else start
        return self.emit(f"getelementptr {self.own.name}, ptr %target, i64 {index}")

    def store(self, value: str, lanes: int, to: str) -> None:
        """Store numbers of the given type, in the program's own."""
        if self.own is not self.given:
            change = "fptrunc" if self.given.bytes > self.own.bytes else "fpext"
            value = self.emit(f"{change} {self.given.lanes(lanes)} {value} to {self.own.lanes(lanes)}")
        self.lines.append(f"  store {self.own.lanes(lanes)} {value}, ptr {to}, align {self.own.bytes}")

    def shuffled(self, left: str, right: str, lanes: int, chosen: list[int]) -> str:
        kind, mask = self.given.lanes(lanes), ", ".join(f"i32 {k}" for k in chosen)
        return self.emit(f"shufflevector {kind} {left}, {kind} {right}, <{len(chosen)} x i32> <{mask}>")


def fill_text(own: str, given: str) -> str:
    """`fill` for programs on numbers of the type `own`, from matrices of the type `given`."""
    parts = []
    for k, width in enumerate(TOGETHER):
        blocks = {}
        for block, write in (("whole", _whole), ("zeros", _zeros), ("lane", _lane)):
            blocks[block] = _Lines(ELEMENTS[own], ELEMENTS[given], width, block)
            write(blocks[block])
        before = f"wire{TOGETHER[k - 1]}" if k else "wires0"  # where the last ones ended
        after = f"begin{TOGETHER[k + 1]}" if k + 1 < len(TOGETHER) else "examples.test"
        parts.append(WIRES.substitute(blocks, w=width, place=2 + k, before=before, after=after))
    return FILL.substitute(many=AT_ONCE, head=HEAD, first=TOGETHER[0], last=TOGETHER[-1], wires="".join(parts))


def _whole(text: _Lines) -> None:
    """Some numbers of as many examples as a vector has: read an example at a time, stored a number at a time."""
    width, kind = text.width, text.given.lanes(text.width)
    rows = []
    for k in range(AT_ONCE):
        away = text.emit(f"mul i64 {k}, %stride{width}")
        at = text.emit(f"getelementptr i8, ptr %from{width}, i64 {away}")
        rows.append(text.emit(f"load {kind}, ptr {at}, align 1"))
    if width == 1:
        vector = "poison"
        for k, row in enumerate(rows):
            vector = text.emit(f"insertelement {text.given.lanes(AT_ONCE)} {vector}, {text.given.name} {row}, i32 {k}")
        text.store(vector, AT_ONCE, text.row(0))
        return
    lanes = width
    while len(rows) > 1:  # one after the other, until all are one vector
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [text.shuffled(left, right, lanes, list(range(2 * lanes))) for left, right in pairs]
        lanes *= 2
    for column in range(width):
        chosen = text.shuffled(rows[0], "poison", lanes, list(range(column, lanes, width)))
        text.store(chosen, AT_ONCE, text.row(column))


def _zeros(text: _Lines) -> None:
    """Zeros for all examples that there is room for."""
    for column in range(text.width):
        to = text.row(column)
        text.lines.append(f"  store {text.own.lanes(AT_ONCE)} zeroinitializer, ptr {to}, align {text.own.bytes}")


def _lane(text: _Lines) -> None:
    """The numbers of one example."""
    for column in range(text.width):
        at = text.emit(f"getelementptr {text.given.name}, ptr %l.from{text.width}, i64 {column}")
        number = text.emit(f"load {text.given.name}, ptr {at}, align 1")
        text.store(number, 1, text.row(column, f"%l{text.width}"))


def wires(columns: Columns) -> np.ndarray:
    """What `fill` is given."""
    matrices, wiring, firsts = columns.matrices, columns.wiring, columns.firsts
    counts = [len(first) for first in wiring.neighbours.values()]
    words = np.empty(HEAD + 3 * sum(counts), dtype=np.int64)
    words[:HEAD] = [firsts.step, columns.room, *counts]
    table, numbers = words[HEAD:].reshape(-1, 3), np.concatenate(list(wiring.neighbours.values()))
    which = wiring.which[numbers]
    starts = np.array([matrix.ctypes.data + firsts.start * matrix.strides[0] for matrix in matrices])
    table[:, 0] = numbers
    table[:, 1] = starts[which] + wiring.column[numbers] * matrices[0].itemsize
    table[:, 2] = np.array([matrix.strides[0] for matrix in matrices])[which]
    return words
