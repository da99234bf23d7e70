"""The handler that XLA calls for all programs: one function, in LLVM's language.

XLA hands it a *frame*: pointers to operands, to room for results, and to attributes (`XLA_FFI_CallFrame` in
xla/ffi/api/c_api.h, which jaxlib has in its include folder). Its attribute `program` is the address of a description,
an array of words that says what to copy where and what to run (see `called`).

    operands ──copied──► block of memory ──run, or drive──► block ──copied──► results

Blocks that no call is using wait in slots, which threads take them from atomically; if none is there, one is made.

Addresses mean nothing in another process, where XLA may come to load what it has compiled here. So each process draws a
key, which is the other attribute, and the handler refuses what has another one.

XLA runs large programs in its own threads, and may still be running one after Python has dropped everything that refers
to it. So XLA also calls the handler for each executable that it makes, and tells it when it frees that: a description
counts the executables that call it, and is not freed before they are.

XLA's threads take subnormal numbers for zeros. While a program runs, they do not.
"""

from __future__ import annotations

import ctypes
import secrets
from string import Template
from typing import Any

import numpy as np

from chainrule.compiler.backends.llvm.native import compiled, host
from chainrule.compiler.backends.llvm.target import Target
from chainrule.compiler.backends.llvm.text import ELEMENTS
from chainrule.compiler.backends.memory import BEYOND, LINE
from chainrule.compiler.backends.protocol import KEPT

KEY = secrets.randbits(62)  # of this process
VERSION = 0, 3  # of the interface; XLA refuses a handler that was made for one which it does not support
OPERANDS, RESULTS = 72, 112  # where a frame says which buffers there are
INSTANTIATE, EXECUTE = 0, 3  # when XLA calls the handler: as it makes an executable, and as it runs one
WORD = 8  # bytes
ALLOCATE, FREE = "PyMem_RawMalloc", "PyMem_RawFree"  # which need no GIL
REMEDY = "say to_jax(..., native=False) for what is to leave this one, so that XLA compiles it"
OTHER_PROCESS = f"this calls machine code of chainrule that was compiled in another process: {REMEDY}"
MESSAGES = {"other.process": OTHER_PROCESS, "no.memory": "there is no memory for a program of chainrule"}

# How the handler asks the processor for plain arithmetic, with subnormal numbers, and takes that back.
X86 = (
    """  %mode = alloca i32
  %plain = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  store i32 8064, ptr %plain
  call void @llvm.x86.sse.ldmxcsr(ptr %plain)
""",
    "  call void @llvm.x86.sse.ldmxcsr(ptr %mode)\n",
    "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)\n",
)
ARM = (
    "  %mode = call i64 @llvm.aarch64.get.fpcr()\n  call void @llvm.aarch64.set.fpcr(i64 0)\n",
    "  call void @llvm.aarch64.set.fpcr(i64 %mode)\n",
    "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)\n",
)
MODES = {"x86_64": X86, "aarch64": ARM, "arm64": ARM}

CALL = Template("""
define ptr @call(ptr %frame) {
entry:
  %extension = call ptr @field(ptr %frame, i64 8)
  %is.asked = icmp ne ptr %extension, null
  br i1 %is.asked, label %asked, label %staged
asked:
  %kind.at = getelementptr i8, ptr %extension, i64 8
  %kind = load i32, ptr %kind.at
  %is.metadata = icmp eq i32 %kind, 1
  br i1 %is.metadata, label %metadata, label %staged
metadata:
  %data = call ptr @field(ptr %extension, i64 24)
  %major = getelementptr i8, ptr %data, i64 24
  store i32 $major, ptr %major
  %minor = getelementptr i8, ptr %data, i64 28
  store i32 $minor, ptr %minor
  %traits = getelementptr i8, ptr %data, i64 32
  store i32 0, ptr %traits
  ret ptr null
staged:
  %stage.at = getelementptr i8, ptr %frame, i64 32
  %stage = load i32, ptr %stage.at
  switch i32 %stage, label %done [ i32 $instantiate, label %check
                                   i32 $execute, label %check ]
check:
  %key = call i64 @attribute(ptr %frame, i64 0)
  %is.ours = icmp eq i64 %key, $key
  br i1 %is.ours, label %begin, label %fail
begin:
  %number = call i64 @attribute(ptr %frame, i64 1)
  %program = inttoptr i64 %number to ptr
  %is.execution = icmp eq i32 %stage, $execute
  br i1 %is.execution, label %obtain, label %hold
hold:
  %failed = call ptr @hold(ptr %frame, ptr %program)
  ret ptr %failed
obtain:
  %block = call ptr @take(ptr %program)
  %is.there = icmp ne ptr %block, null
  br i1 %is.there, label %run, label %fail
run:
  call void @execute(ptr %frame, ptr %program, ptr %block)
  call void @give_back(ptr %program, ptr %block)
  br label %done
done:
  ret ptr null
fail:
  %code = phi i32 [ 9, %check ], [ 8, %obtain ]
  %message = phi ptr [ @other.process, %check ], [ @no.memory, %obtain ]
  %error = alloca [4 x i64]
  store i64 28, ptr %error
  %error.extension = getelementptr i8, ptr %error, i64 8
  store ptr null, ptr %error.extension
  %error.message = getelementptr i8, ptr %error, i64 16
  store ptr %message, ptr %error.message
  %error.code = getelementptr i8, ptr %error, i64 24
  store i32 %code, ptr %error.code
  %api = call ptr @field(ptr %frame, i64 16)
  %create = call ptr @field(ptr %api, i64 48)
  %found = call ptr %create(ptr %error)
  ret ptr %found
}

define internal ptr @hold(ptr %frame, ptr %program) {
entry:
  %users = getelementptr i8, ptr %program, i64 $executables
  %before = atomicrmw add ptr %users, i64 1 monotonic
  %state = alloca [6 x i64]
  store i64 48, ptr %state
  %extension = getelementptr i8, ptr %state, i64 8
  store ptr null, ptr %extension
  %context = call ptr @field(ptr %frame, i64 24)
  %context.at = getelementptr i8, ptr %state, i64 16
  store ptr %context, ptr %context.at
  %stage.at = getelementptr i8, ptr %state, i64 24
  store i32 $instantiate, ptr %stage.at
  %kind.at = getelementptr i8, ptr %state, i64 32
  store i64 $kind, ptr %kind.at
  %program.at = getelementptr i8, ptr %state, i64 40
  store ptr %program, ptr %program.at
  %api = call ptr @field(ptr %frame, i64 16)
  %set = call ptr @field(ptr %api, i64 104)
  %failed = call ptr %set(ptr %state)
  ret ptr %failed
}

define void @let_go(ptr %program) {
  %users = getelementptr i8, ptr %program, i64 $executables
  %before = atomicrmw sub ptr %users, i64 1 release
  ret void
}

define internal void @execute(ptr %frame, ptr %program, ptr %block) {
entry:
$plain
  %inputs = call ptr @field(ptr %program, i64 $inputs)
  %input.count = call i64 @word(ptr %program, i64 $input_count)
  call void @copy(ptr %frame, i64 $operands, ptr %inputs, i64 %input.count, ptr %block)
  %state.offset = call i64 @word(ptr %program, i64 $state)
  %state = getelementptr i8, ptr %block, i64 %state.offset
  %entry.point = call ptr @field(ptr %program, i64 $entry)
  %many = call i64 @word(ptr %program, i64 $many)
  %is.many = icmp ne i64 %many, 0
  br i1 %is.many, label %often, label %once
once:
  call void %entry.point(ptr %block, ptr %state)
  br label %end
often:
  call void @often(ptr %frame, ptr %program, ptr %block, ptr %state, ptr %entry.point)
  br label %end
end:
  %outputs = call ptr @field(ptr %program, i64 $outputs)
  %output.count = call i64 @word(ptr %program, i64 $output_count)
  call void @copy(ptr %frame, i64 $results, ptr %outputs, i64 %output.count, ptr %block)
$restore
  ret void
}

define internal void @copy(ptr %frame, i64 %list, ptr %copies, i64 %count, ptr %block) {
entry:
  %is.input = icmp eq i64 %list, $operands
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %copied ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %turn, label %end
turn:
  %row = getelementptr [5 x i64], ptr %copies, i64 %k
  %number = call i64 @word(ptr %row, i64 0)
  %data = call ptr @buffer(ptr %frame, i64 %list, i64 %number)
  %data.offset = call i64 @word(ptr %row, i64 8)
  %outside = getelementptr i8, ptr %data, i64 %data.offset
  %block.offset = call i64 @word(ptr %row, i64 16)
  %inside = getelementptr i8, ptr %block, i64 %block.offset
  %to = select i1 %is.input, ptr %inside, ptr %outside
  %from = select i1 %is.input, ptr %outside, ptr %inside
  %length = call i64 @word(ptr %row, i64 24)
  %table = call ptr @field(ptr %row, i64 32)
  %in.order = icmp eq ptr %table, null
  br i1 %in.order, label %as.it.is, label %by.table
as.it.is:
  %bytes = mul i64 %length, $bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  br label %copied
by.table:
  call void @scatter(ptr %to, ptr %from, ptr %table, i64 %length)
  br label %copied
copied:
  %k.next = add i64 %k, 1
  br label %test
end:
  ret void
}

define internal void @often(ptr %frame, ptr %program, ptr %block, ptr %state, ptr %drive) {
entry:
  %numbers = call ptr @buffer(ptr %frame, i64 $operands, i64 1)
  %count.short = load i32, ptr %numbers
  %count = sext i32 %count.short to i64
  %section.at = getelementptr i32, ptr %numbers, i64 1
  %section.short = load i32, ptr %section.at
  %section = sext i32 %section.short to i64
  %first.number = call i64 @word(ptr %program, i64 $first)
  %first = call ptr @buffer(ptr %frame, i64 $operands, i64 %first.number)
  %first.width = call i64 @word(ptr %program, i64 $first_width)
  %first.place = call i64 @word(ptr %program, i64 $first_place)
  %second.number = call i64 @word(ptr %program, i64 $second)
  %second = call ptr @buffer(ptr %frame, i64 $operands, i64 %second.number)
  %second.width = call i64 @word(ptr %program, i64 $second_width)
  %second.place = call i64 @word(ptr %program, i64 $second_place)
  %out = call ptr @buffer(ptr %frame, i64 $results, i64 1)
  %out.width = call i64 @word(ptr %program, i64 $out_width)
  %out.place = call i64 @word(ptr %program, i64 $out_place)
  %sums = call ptr @buffer(ptr %frame, i64 $results, i64 2)
  %sums.width = call i64 @word(ptr %program, i64 $sums_width)
  %sums.place = call i64 @word(ptr %program, i64 $sums_place)
  %sums.bytes = call i64 @word(ptr %program, i64 $sums_bytes)
  call void @llvm.memset.p0.i64(ptr %sums, i8 0, i64 %sums.bytes, i1 false)
  call void %drive(ptr %block, ptr %state, i64 %count, ptr %first, i64 %first.width, i64 %first.place, ptr %second,
    i64 %second.width, i64 %second.place, ptr %out, i64 %out.width, i64 %out.place, ptr %sums, i64 %sums.width,
    i64 %sums.place, i64 %section, ptr null, ptr null, i64 0)
  ret void
}

define internal ptr @take(ptr %program) {
entry:
  %slots = call ptr @field(ptr %program, i64 $slots)
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %turn ]
  %more = icmp slt i64 %k, $kept
  br i1 %more, label %turn, label %make
turn:
  %slot = getelementptr i64, ptr %slots, i64 %k
  %found = atomicrmw xchg ptr %slot, i64 0 acquire
  %k.next = add i64 %k, 1
  %is.free = icmp ne i64 %found, 0
  br i1 %is.free, label %taken, label %test
taken:
  %block = inttoptr i64 %found to ptr
  ret ptr %block
make:
  %size = call i64 @word(ptr %program, i64 $size)
  %room = add i64 %size, $extra
  %raw = call ptr inttoptr (i64 $allocate to ptr)(i64 %room)
  %none = icmp eq ptr %raw, null
  br i1 %none, label %failed, label %fill
failed:
  ret ptr null
fill:
  %raw.number = ptrtoint ptr %raw to i64
  %high = add i64 %raw.number, $above
  %aligned = and i64 %high, -$line
  %made = inttoptr i64 %aligned to ptr
  %raw.at = getelementptr i64, ptr %made, i64 -1
  store i64 %raw.number, ptr %raw.at
  %pattern = call ptr @field(ptr %program, i64 $pattern)
  call void @llvm.memcpy.p0.p0.i64(ptr %made, ptr %pattern, i64 %size, i1 false)
  ret ptr %made
}

define internal void @give_back(ptr %program, ptr %block) {
entry:
  %slots = call ptr @field(ptr %program, i64 $slots)
  %number = ptrtoint ptr %block to i64
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %turn ]
  %more = icmp slt i64 %k, $kept
  br i1 %more, label %turn, label %free
turn:
  %slot = getelementptr i64, ptr %slots, i64 %k
  %pair = cmpxchg ptr %slot, i64 0, i64 %number release monotonic
  %is.kept = extractvalue { i64, i1 } %pair, 1
  %k.next = add i64 %k, 1
  br i1 %is.kept, label %end, label %test
free:
  %raw.at = getelementptr i64, ptr %block, i64 -1
  %raw = load ptr, ptr %raw.at
  call void inttoptr (i64 $free to ptr)(ptr %raw)
  ret void
end:
  ret void
}

define internal void @scatter(ptr %to, ptr %from, ptr %table, i64 %count) {
entry:
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %turn ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %turn, label %end
turn:
  %place.at = getelementptr i64, ptr %table, i64 %k
  %place = load i64, ptr %place.at
  %source = getelementptr $integer, ptr %from, i64 %k
  %number = load $integer, ptr %source
  %target = getelementptr $integer, ptr %to, i64 %place
  store $integer %number, ptr %target
  %k.next = add i64 %k, 1
  br label %test
end:
  ret void
}

define internal ptr @buffer(ptr %frame, i64 %list, i64 %k) {
entry:
  %is.none = icmp slt i64 %k, 0
  br i1 %is.none, label %none, label %some
none:
  ret ptr null
some:
  %buffers = call ptr @field(ptr %frame, i64 %list)
  %offset = mul i64 %k, 8
  %buffer = call ptr @field(ptr %buffers, i64 %offset)
  %data = call ptr @field(ptr %buffer, i64 24)
  ret ptr %data
}

define internal i64 @attribute(ptr %frame, i64 %k) {
  %attributes = call ptr @field(ptr %frame, i64 160)
  %offset = mul i64 %k, 8
  %scalar = call ptr @field(ptr %attributes, i64 %offset)
  %value = call ptr @field(ptr %scalar, i64 8)
  %number = load i64, ptr %value
  ret i64 %number
}

define internal ptr @field(ptr %struct, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %struct, i64 %offset
  %found = load ptr, ptr %at
  ret ptr %found
}

define internal i64 @word(ptr %struct, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %struct, i64 %offset
  %found = load i64, ptr %at
  ret i64 %found
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
""")
FIELDS = (  # the words of a description
    "executables",
    *("entry", "many", "size", "state", "pattern", "slots", "inputs", "input_count", "outputs", "output_count"),
    *("first", "first_width", "first_place", "second", "second_width", "second_place"),
    *("out_width", "out_place", "sums_width", "sums_place", "sums_bytes"),
)


class Handler:
    """The handler that XLA calls for programs with numbers of this type. It stays: XLA never forgets its address.

    An executable has the description that it calls as its state, of a type that XLA numbers in `kind` and frees as
    `type_info` says (`XLA_FFI_TypeInfo`).
    """

    def __init__(self, dtype: str) -> None:
        self.kind = np.zeros(1, np.int64)
        self.engine = compiled(text(dtype, host(), self.kind.ctypes.data), host())
        self.address = self.engine.get_function_address("call")
        self.type_info = np.array([3 * WORD, 0, self.engine.get_function_address("let_go")])
        pin(self)


def text(dtype: str, target: Target, kind: int = 0) -> str:
    """That handler in LLVM's language; `kind` is where the number of its state's type is."""
    element = ELEMENTS[dtype]
    plain, restore, declared = MODES.get(target.triple.partition("-")[0], ("", "", ""))
    given = dict(zip(("major", "minor"), VERSION, strict=True)) | {name: WORD * k for k, name in enumerate(FIELDS)}
    given |= {"key": KEY, "kept": KEPT, "line": LINE, "extra": 2 * LINE + BEYOND, "above": 2 * LINE - 1}
    given |= {"operands": OPERANDS, "results": RESULTS, "instantiate": INSTANTIATE, "execute": EXECUTE, "kind": kind}
    given |= {"bytes": element.bytes, "allocate": address_of(ALLOCATE), "free": address_of(FREE)}
    function = CALL.substitute(given, integer=f"i{8 * element.bytes}", plain=plain, restore=restore)
    return "\n".join([*map(_constant, MESSAGES, MESSAGES.values()), function, declared])


def pin(thing: Any) -> None:
    """Keep a thing until it is unpinned, even at the end of Python, which XLA's threads may outlive."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def unpin(thing: Any) -> None:
    """Leave a thing to those who refer to it."""
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(thing))


def address_of(symbol: str) -> int:
    """Where a function of Python's own C interface is."""
    return ctypes.cast(getattr(ctypes.pythonapi, symbol), ctypes.c_void_p).value or 0


def _constant(name: str, message: str) -> str:
    content = message.encode() + b"\0"
    escaped = "".join(f"\\{byte:02X}" for byte in content)
    return f'@{name} = private constant [{len(content)} x i8] c"{escaped}"'
