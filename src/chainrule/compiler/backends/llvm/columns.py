"""The inputs of many runs, read where the caller has them: `bring`, which a native loop calls before each run.

A batch lies in memory example by example, and a program wants each number of its examples side by side. To turn a whole
batch round first would write all of it to memory and read it again. `fill` does so for the examples of one run, just
before they are needed, and rounds doubles where the program computes in floats.

It is given where the numbers go, its *wires*, and the number of the run. Before the wires stands how many examples a
run has, how many there is room for, and how many wires there are for four neighbouring numbers each, for two and for
one. A wire says which number it begins with, where that is in the first example, and how many bytes there are from one
example to the next.

What a program reads in rows (see `in_place`) is left where it is: `bring` tells the program where the rows of the run
begin. It copies them, to where the program has room for them, if they are of another type or not one after another; and
those of the last run if what follows is on another page of memory, for without masks a vector may reach beyond them.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from typing import Any, NamedTuple

import numpy as np

from chainrule.compiler.backends.llvm.text import ELEMENTS, Element
from chainrule.compiler.backends.protocol import TOGETHER, Columns, Wiring

AT_ONCE = 8  # examples, whose numbers are then stored as one vector
HEAD = 2 + len(TOGETHER)  # words before the wires
LENT = 8  # words about a matrix that is read in rows
PAGE = 4096  # bytes, at least
BRING = Template("""
define void @bring(ptr %target, ptr %words, i64 %run) {
entry:
  %count = load i64, ptr %words
  %leaves = getelementptr i64, ptr %words, i64 1
  %wires = getelementptr [$lent x i64], ptr %leaves, i64 %count
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %known ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %turn, label %end
turn:
  %slot.at = getelementptr [$lent x i64], ptr %leaves, i64 %k
  %slot = load ptr, ptr %slot.at
  %own.at = getelementptr i64, ptr %slot.at, i64 1
  %own = load ptr, ptr %own.at
  %base.at = getelementptr i64, ptr %slot.at, i64 2
  %base = load ptr, ptr %base.at
  %step.at = getelementptr i64, ptr %slot.at, i64 3
  %step = load i64, ptr %step.at
  %lent.at = getelementptr i64, ptr %slot.at, i64 4
  %lent = load i64, ptr %lent.at
  %offset = mul i64 %step, %run
  %there = getelementptr i8, ptr %base, i64 %offset
  %is.lent = icmp slt i64 %run, %lent
  br i1 %is.lent, label %known, label %copy
copy:
  %stride.at = getelementptr i64, ptr %slot.at, i64 5
  %stride = load i64, ptr %stride.at
  %width.at = getelementptr i64, ptr %slot.at, i64 6
  %width = load i64, ptr %width.at
  %rows.at = getelementptr i64, ptr %slot.at, i64 7
  %count.rows = load i64, ptr %rows.at
  call void @copy(ptr %own, ptr %there, i64 %stride, i64 %width, i64 %count.rows)
  br label %known
known:
  %rows = phi ptr [ %there, %turn ], [ %own, %copy ]
  store ptr %rows, ptr %slot
  %k.next = add i64 %k, 1
  br label %test
end:
  call void @fill(ptr %target, ptr %wires, i64 %run)
  ret void
}

define internal void @copy(ptr noalias %to, ptr noalias %from, i64 %stride, i64 %width, i64 %rows) {
entry:
  %whole = and i64 %width, -$many
  br label %examples.test
examples.test:
  %e = phi i64 [ 0, %entry ], [ %e.next, %example.end ]
  %e.more = icmp slt i64 %e, %rows
  br i1 %e.more, label %example, label %end
example:
  %e.next = add i64 %e, 1
  %offset = mul i64 %e, %stride
  %row = getelementptr i8, ptr %from, i64 %offset
  %before = mul i64 %e, %width
  %target = getelementptr $own, ptr %to, i64 %before
  br label %vectors.test
vectors.test:
  %v = phi i64 [ 0, %example ], [ %v.next, %vector ]
  %v.more = icmp slt i64 %v, %whole
  br i1 %v.more, label %vector, label %numbers.test
vector:
$vector
  %v.next = add i64 %v, $many
  br label %vectors.test
numbers.test:
  %n = phi i64 [ %v, %vectors.test ], [ %n.next, %number ]
  %n.more = icmp slt i64 %n, %width
  br i1 %n.more, label %number, label %example.end
number:
$number
  %n.next = add i64 %n, 1
  br label %numbers.test
example.end:
  br label %examples.test
end:
  ret void
}
""")
FILL = Template("""
define internal void @fill(ptr noalias %target, ptr noalias %wires, i64 %run) {
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


def bring_text(own: str, given: str) -> str:
    """`bring` for programs on numbers of the type `own`, from matrices of the type `given`."""
    copied = {}
    for block, lanes in (("vector", AT_ONCE), ("number", 1)):
        copied[block] = _Lines(ELEMENTS[own], ELEMENTS[given], lanes, block)
        _copied(copied[block], f"%{block[0]}")
    known = {"lent": LENT, "many": AT_ONCE, "own": ELEMENTS[own].name}
    return BRING.substitute(copied, **known) + _fill_text(own, given)


def _copied(text: _Lines, index: str) -> None:
    """So many numbers of a row, from this one on."""
    at = text.emit(f"getelementptr {text.given.name}, ptr %row, i64 {index}")
    numbers = text.emit(f"load {text.given.lanes(text.width)}, ptr {at}, align 1")
    text.store(numbers, text.width, text.emit(f"getelementptr {text.own.name}, ptr %target, i64 {index}"))


def _fill_text(own: str, given: str) -> str:
    """`fill` for the same."""
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


class Place(NamedTuple):
    """Where a program has rows: what says where they are, room of its own, and whether vectors reach beyond them."""

    slot: int
    own: int
    matrix: int
    reach: int  # bytes, at most


class Lent(NamedTuple):
    """A matrix of the caller's."""

    address: int
    stride: int  # bytes from one row to the next
    width: int
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, matrix: np.ndarray) -> Lent:
        address: int = matrix.__array_interface__["data"][0]  # faster than `ctypes`
        return cls(address, matrix.strides[0], matrix.shape[1], matrix.dtype)


class Words(NamedTuple):
    """What `bring` is given, and where that is."""

    words: np.ndarray
    address: int


class Wires:
    """What `bring` is given for programs that turn these numbers round."""

    def __init__(self, wiring: Wiring, turned: np.ndarray) -> None:
        neighbours = wiring.neighbours(turned)
        numbers = np.concatenate(list(neighbours.values()))
        self.counts = [len(first) for first in neighbours.values()]
        self.which, self.column = wiring.which[numbers], wiring.column[numbers]
        self.table = np.zeros((len(numbers), 3), dtype=np.int64)
        self.table[:, 0] = numbers

    def words(self, columns: Columns, given: Sequence[Lent], places: Sequence[Place], dtype: np.dtype[Any]) -> Words:
        """The words for these inputs, of a program on numbers of this type."""
        firsts, own = columns.firsts, LENT * len(places)
        starts = [lent.address + firsts.start * lent.stride for lent in given]
        words = np.empty(1 + own + HEAD + self.table.size, dtype=np.int64)
        words[0] = len(places)
        for k, place in enumerate(places):
            lent, start = given[place.matrix], starts[place.matrix]
            runs = _runs_in_place(lent, start, firsts, place, dtype)
            width, rows = lent.width, firsts.step
            if lent.stride == width * lent.dtype.itemsize:  # one row after another is one long row
                width, rows = width * rows, 1
            row = [place.slot, place.own, start, firsts.step * lent.stride, runs, lent.stride, width, rows]
            words[1 + LENT * k : 1 + LENT * (k + 1)] = row
        words[1 + own : 1 + own + HEAD] = [firsts.step, columns.room, *self.counts]
        table = words[1 + own + HEAD :].reshape(-1, 3)
        table[:] = self.table
        table[:, 1] = np.array(starts)[self.which] + self.column * given[0].dtype.itemsize
        table[:, 2] = np.array([lent.stride for lent in given])[self.which]
        return Words(words, words.ctypes.data)


def _runs_in_place(lent: Lent, start: int, firsts: range, place: Place, dtype: np.dtype[Any]) -> int:
    """How many runs read a matrix where it is."""
    size, step = lent.dtype.itemsize, firsts.step * lent.stride
    if lent.dtype != dtype or lent.stride != lent.width * size or start % size:
        return 0
    readable = -(-(start + len(firsts) * step) // PAGE) * PAGE  # the end of the last page
    return min(len(firsts), (readable - place.reach - start) // step)
