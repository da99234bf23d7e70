"""A GPU played by a processor: the same functions, thread after thread, from one barrier to the next.

Threads run in ascending order or in descending order. Memory that nobody has written is NaN. Every load and store is
watched: between two barriers, no thread may touch what another one writes; addresses must lie in memory of the kernel,
at multiples of what is loaded at once.
"""

import ctypes
import re
from contextlib import ExitStack, contextmanager
from string import Template
from threading import Lock
from unittest.mock import patch

import llvmlite.binding as llvm
import numpy as np

from chainrule.compiler.backends.cuda import runner, shape
from chainrule.compiler.backends.cuda.dealing import Block
from chainrule.compiler.backends.cuda.printing import Printer
from chainrule.compiler.backends.llvm.native import host

FRAME = Template("""
@epoch = global i64 0
@faults = global [3 x i64] zeroinitializer
@regions = global [8 x [3 x i64]] zeroinitializer
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
EVERYONE = Template("""  br label %all$k.begin
all$k.begin:
  %epoch$k = load i64, ptr @epoch
  %later$k = add i64 %epoch$k, 1
  store i64 %later$k, ptr @epoch
  br label %all$k
all$k:
  %thread$k = phi i64 [ $first, %all$k.begin ], [ %other$k, %all$k.end ]
  %own.at$k = mul i64 %thread$k, $size
  %own$k = getelementptr $number, ptr %owns, i64 %own.at$k
$calls
  br label %all$k.end
all$k.end:
  %other$k = add nsw i64 %thread$k, $step
  %over$k = icmp eq i64 %thread$k, $last
  br i1 %over$k, label %past$k, label %all$k
past$k:""")

# Regions are an address, a size and the address of a shadow. A shadow has two numbers for every four bytes: who wrote
# there last, and who read there, each as 65536 times the epoch plus the thread; 65535 stands for several threads.
WATCH = """
define internal void @watch(ptr %p, i64 %thread, i64 %bytes, i1 %writes) noinline nounwind {
entry:
  %a = ptrtoint ptr %p to i64
  %over = urem i64 %a, %bytes
  %straight = icmp eq i64 %over, 0
  br i1 %straight, label %seek, label %crooked
crooked:
  call void @fault(i64 0)
  br label %seek
seek:
  %k = phi i64 [ 0, %entry ], [ 0, %crooked ], [ %k1, %other ]
  %known = icmp slt i64 %k, 8
  br i1 %known, label %look, label %outside
outside:
  call void @fault(i64 1)
  ret void
look:
  %region = getelementptr [8 x [3 x i64]], ptr @regions, i64 0, i64 %k
  %base = load i64, ptr %region
  %size.at = getelementptr i64, ptr %region, i64 1
  %size = load i64, ptr %size.at
  %offset = sub i64 %a, %base
  %end = add i64 %offset, %bytes
  %above = icmp sge i64 %offset, 0
  %below = icmp sle i64 %end, %size
  %in = and i1 %above, %below
  br i1 %in, label %found, label %other
other:
  %k1 = add i64 %k, 1
  br label %seek
found:
  %shadow.at = getelementptr i64, ptr %region, i64 2
  %shadow = load ptr, ptr %shadow.at
  %none = icmp eq ptr %shadow, null
  br i1 %none, label %done, label %words
words:
  %epoch = load i64, ptr @epoch
  %begin = mul i64 %epoch, 65536
  %me = add i64 %begin, %thread
  br label %word
word:
  %w = phi i64 [ %offset, %words ], [ %w1, %next ]
  %quarter = udiv i64 %w, 4
  %twice = mul i64 %quarter, 2
  %wrote.at = getelementptr i64, ptr %shadow, i64 %twice
  %read.at = getelementptr i64, ptr %wrote.at, i64 1
  %wrote = load i64, ptr %wrote.at
  %read = load i64, ptr %read.at
  %wrote.now = icmp sge i64 %wrote, %begin
  %read.now = icmp sge i64 %read, %begin
  %wrote.else = icmp ne i64 %wrote, %me
  %read.else = icmp ne i64 %read, %me
  %w.clash = and i1 %wrote.now, %wrote.else
  %r.clash = and i1 %read.now, %read.else
  %r.bad = and i1 %r.clash, %writes
  %bad = or i1 %w.clash, %r.bad
  br i1 %bad, label %race, label %note
race:
  call void @fault(i64 2)
  br label %note
note:
  %several = add i64 %begin, 65535
  %readers = select i1 %r.clash, i64 %several, i64 %me
  %to.write = select i1 %writes, i64 %me, i64 %wrote
  %to.read = select i1 %writes, i64 %read, i64 %readers
  store i64 %to.write, ptr %wrote.at
  store i64 %to.read, ptr %read.at
  br label %next
next:
  %w1 = add i64 %w, 4
  %more = icmp slt i64 %w1, %end
  br i1 %more, label %word, label %done
done:
  ret void
}
define internal void @fault(i64 %kind) noinline nounwind {
  %at = getelementptr i64, ptr @faults, i64 %kind
  %before = load i64, ptr %at
  %after = add i64 %before, 1
  store i64 %after, ptr %at
  ret void
}
"""
FAULTS = ("crooked addresses", "addresses outside", "races")
LOAD = re.compile(r"  \S+ = load (\S+|<.*?>), ptr (\S+), align (\d+)")
STORE = re.compile(r"  store .*, ptr (\S+), align (\d+)")


def watched(text):
    """The text of functions, with a look at every load and store of numbers."""
    lines = []
    for line in text.splitlines():
        if match := LOAD.fullmatch(line) or STORE.fullmatch(line):
            pointer, size = match.groups()[-2:]
            writes = "true" if line.startswith("  store") else "false"
            lines.append(f"  call void @watch(ptr {pointer}, i64 %thread, i64 {size}, i1 {writes})")
        lines.append(line)
    return "\n".join(lines)


GPU = Lock()  # which does one thing at a time; and LLVM writes no code while other code of it runs


def compiled(text):
    """Machine code as the text has it: to optimize what runs for a moment would take most of the time."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = host()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(target.cpu, target.features, opt=0)
    module = llvm.parse_assembly(text)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


class ThreadByThread(Printer):
    """Prints kernels for a processor: a loop over threads wherever a GPU's threads run up to a barrier."""

    head, frame, barrier = "", FRAME, ""

    def __init__(self, kernels, order):
        super().__init__(kernels)
        self.order = order

    def segment(self, items, values, time):
        if not items:
            return []
        k = self.label()
        first, last = (0, self.threads - 1)[:: self.order]
        calls = self.calls(items, {**values, "thread": f"%thread{k}", "own": f"%own{k}"}, time)
        known = {"k": k, "first": first, "last": last, "step": self.order, "number": self.module.element.name}
        size = max(1, self.module.accumulators.stop)
        return [EVERYONE.substitute(known, size=size, calls="\n".join(calls))]

    call = Printer.plain_call

    def end(self, finish):
        return finish


class Memory:
    """Host memory, as a buffer of the device."""

    def __init__(self, size):
        self.data = np.full(size + 16, 0xFF, np.uint8)  # NaN, as floats and as doubles
        self.bytes, self.address = size, self.data.ctypes.data

    def write(self, array, offset=0):
        assert offset + array.nbytes <= self.bytes
        self.data[offset : offset + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def read(self, array, offset=0):
        assert offset + array.nbytes <= self.bytes
        array.reshape(-1).view(np.uint8)[:] = self.data[offset : offset + array.nbytes]

    def reader(self, array):
        return lambda: self.read(array)

    def numbers(self, dtype):
        return self.data[: self.bytes // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)


class Launches:
    """Kernels that run at once when they are launched."""

    blocks = 3

    def __init__(self, kernels, order):
        self.kernels, dtype = kernels, kernels.element.dtype
        text = ThreadByThread(kernels, order).text()
        with GPU:
            self.engine = compiled(watched(text) + WATCH)
        self.shadows = {}
        self.shared = np.full(kernels.storage.sizes.get("shared", 0) + 4, np.nan, dtype)
        self.owns = np.zeros((kernels.block.threads, max(1, kernels.accumulators.stop)), dtype)
        address, number = ctypes.c_void_p, ctypes.c_int64
        self._main = ctypes.CFUNCTYPE(None, *[address] * 7, *[number] * 4)(self.engine.get_function_address("main"))
        self._finish = ctypes.CFUNCTYPE(None, *[address] * 5, number)(self.engine.get_function_address("finish"))

    def bind(self, memory, scratch, rows, table):
        return Bound(self, memory, scratch, rows, table)

    def main(self, *given):
        with GPU:
            self._run(*given)

    def _run(self, blocks, memory, scratch, rows, inputs, results, begin, count):
        buffers = [buffer.address for buffer in (memory, scratch, rows, inputs, results)]
        before, size, numbers = memory.data.copy(), self.kernels.element.bytes, self.kernels.storage.sizes
        own, row = numbers.get("scratch", 0) * size, self.kernels.sums_size * size
        for block in range(blocks):
            self.shared[:] = np.nan
            self.owns[:] = 0.0
            self.owns[:, : self.kernels.accumulators.start] = np.nan
            parts = {"scratch": (scratch, block * own, own), "rows": (rows, block * row, row)}
            self._watch(memory=(memory, 0, memory.bytes), results=(results, 0, results.bytes), **parts)
            self._main(self.shared.ctypes.data, self.owns.ctypes.data, *buffers, begin, count, block, blocks)
        self._look()
        assert (memory.data == before).all(), "a block wrote what others read"

    def gather(self, blocks, memory, rows):
        dtype, size, at = self.kernels.element.dtype, self.kernels.sums_size, self.kernels.sums_at
        sums = rows.numbers(dtype)[: blocks * size].reshape(blocks, size).astype(np.float64).sum(axis=0)
        memory.numbers(dtype)[at : at + size] = sums

    def finish(self, memory, given, taken, step):
        buffers = [buffer.address for buffer in (memory, given, taken)]
        named = {"memory": memory, "given": given, "taken": taken}
        with GPU:
            self._watch(**{name: (each, 0, each.bytes) for name, each in named.items()})
            self._finish(self.shared.ctypes.data, self.owns.ctypes.data, *buffers, step)
            self._look()

    def _watch(self, **parts):
        """Let kernels touch these parts of memory, and what belongs to a block."""
        regions = [(self.owns.ctypes.data, self.owns.nbytes, 0)]
        shared = (self.shared.ctypes.data, (len(self.shared) - 4) * self.shared.itemsize)
        places = {name: (buffer.address + at, size) for name, (buffer, at, size) in parts.items()}
        for name, (address, size) in {"shared": shared, **places}.items():
            if len(self.shadows.setdefault(name, np.zeros(0, np.int64))) < size // 2 + 4:
                self.shadows[name] = np.zeros(size // 2 + 4, np.int64)
            regions.append((address, size, 0 if name in ("given", "taken") else self.shadows[name].ctypes.data))
        table = np.zeros((8, 3), np.int64)
        table[: len(regions)] = regions
        ctypes.memmove(self.engine.get_global_value_address("regions"), table.ctypes.data, table.nbytes)

    def _look(self):
        """Complain if something was touched in a wrong way."""
        faults = (ctypes.c_int64 * 3).from_address(self.engine.get_global_value_address("faults"))
        found = {name: count for name, count in zip(FAULTS, faults, strict=True) if count}
        assert not found, found


class Bound:
    """Kernels, and the memory that they work in."""

    def __init__(self, launches, memory, scratch, rows, table):
        self.launches, self.memory, self.scratch, self.rows, self.table = launches, memory, scratch, rows, table

    def run(self, results, given, taken, runs):
        for blocks, begin, count, step in runs:
            self.launches.main(blocks, self.memory, self.scratch, self.rows, self.table, results, begin, count)
            if self.launches.kernels.sums_size:
                self.launches.gather(blocks, self.memory, self.rows)
            self.launches.finish(self.memory, given, taken, step)

    def finish(self):
        self.launches.finish(self.memory, self.rows, self.rows, -1)


class Machinery:
    """Memory and kernels of the host."""

    name = "an emulated GPU"
    shared_per_block, shared_per_processor = 227 << 10, 228 << 10  # as an H100 has

    def __init__(self, order=1):
        self.order = order

    def allocate(self, size):
        return Memory(size)

    def launches(self, kernels):
        return Launches(kernels, self.order)


@contextmanager
def playing(order=1, block=None, room=None, blocks=3):
    """Have `backend="cuda"` run on the host, in blocks of a given shape, with `room` bytes of shared memory."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(runner, "machinery", lambda: Machinery(order)))
        stack.enter_context(patch.object(Launches, "blocks", blocks))
        if block is not None:
            stack.enter_context(patch.object(shape, "examples_at_once", lambda *given: block.examples))
            stack.enter_context(patch.object(runner, "block_for", lambda program, element: fitted(block, program)))
        if room is not None:
            stack.enter_context(patch.object(runner, "room_for", lambda limits, block: room))
        yield


def fitted(block, program):
    """The block for a program, which may be one of no examples."""
    examples = max((array.examples for array in program.arrays()), default=0)
    return block if examples == block.examples else Block(block.threads, examples)


def random_shape(rng):
    """How threads share examples, or own them; how much memory they have; how many blocks there are."""
    threads = rng.choice((1, 2, 3, 4, 8, 16, 32, 64))
    abreast = rng.choice((1, 2, 4))
    examples = rng.choice((threads * abreast, threads * abreast, 1, 2, 3, 4, 6, 8, 32))
    room = rng.choice((None, None, 0, 64, 512, 2048))
    order, blocks = rng.choice((1, -1)), rng.choice((1, 2, 3, 5))
    block = rng.choice((Block(threads, examples, abreast), Block(threads, examples, abreast), None))  # None: as usual
    return {"order": order, "block": block, "room": room, "blocks": blocks}
