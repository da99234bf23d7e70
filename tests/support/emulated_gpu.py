"""A GPU played by a processor: the same functions, thread after thread, from one barrier to the next.

Threads run in ascending order or in descending order; if a barrier is missing, one of the two reads what is not there
yet. Memory that nobody has written is NaN.
"""

import ctypes
from string import Template

import numpy as np

from chainrule.compiler.backends.cuda import runner
from chainrule.compiler.backends.cuda.printing import Printer
from chainrule.compiler.backends.llvm.native import compiled, host

FRAME = Template("""
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


class ThreadByThread(Printer):
    """Prints kernels for a processor: a loop over threads wherever a GPU's threads run up to a barrier."""

    head, frame, barrier = "", FRAME, ""

    def __init__(self, kernels, order):
        super().__init__(kernels)
        self.order = order

    def segment(self, items, values, time):
        if not items:
            return []
        k, threads = self.label(), self.module.block.threads
        first, last = (0, threads - 1)[:: self.order]
        calls = self.calls(items, {**values, "thread": f"%thread{k}", "own": f"%own{k}"}, time)
        known = {"k": k, "first": first, "last": last, "step": self.order, "number": self.module.element.name}
        accumulators = max(1, self.module.accumulators)
        return [EVERYONE.substitute(known, accumulators=accumulators, calls="\n".join(calls))]

    call = Printer.plain_call


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

    def numbers(self, dtype):
        return self.data[: self.bytes // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)


class Launches:
    """Kernels that run at once when they are launched."""

    blocks = 3

    def __init__(self, kernels, order):
        self.kernels, dtype = kernels, kernels.element.dtype
        self.engine = compiled(ThreadByThread(kernels, order).text(), host())
        self.shared = np.full(kernels.storage.sizes.get("shared", 0) + 4, np.nan, dtype)
        self.owns = np.zeros((kernels.block.threads, max(1, kernels.accumulators)), dtype)
        address, number = ctypes.c_void_p, ctypes.c_int64
        self._main = ctypes.CFUNCTYPE(None, *[address] * 7, *[number] * 4)(self.engine.get_function_address("main"))
        self._finish = ctypes.CFUNCTYPE(None, *[address] * 5, number)(self.engine.get_function_address("finish"))

    def main(self, blocks, memory, scratch, rows, inputs, results, begin, count):
        buffers = [buffer.address for buffer in (memory, scratch, rows, inputs, results)]
        for block in range(blocks):
            self.shared[:] = np.nan
            self.owns[:] = 0.0
            self._main(self.shared.ctypes.data, self.owns.ctypes.data, *buffers, begin, count, block, blocks)

    def gather(self, blocks, memory, rows):
        dtype, size, at = self.kernels.element.dtype, self.kernels.sums_size, self.kernels.sums_at
        sums = rows.numbers(dtype)[: blocks * size].reshape(blocks, size).astype(np.float64).sum(axis=0)
        memory.numbers(dtype)[at : at + size] = sums

    def finish(self, memory, given, taken, step):
        buffers = [buffer.address for buffer in (memory, given, taken)]
        self._finish(self.shared.ctypes.data, self.owns.ctypes.data, *buffers, step)


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


def install(monkeypatch, order=1, **limits):
    """Have `backend="cuda"` run on the host."""
    monkeypatch.setattr(runner, "machinery", lambda: Machinery(order))
    for name, value in limits.items():
        monkeypatch.setattr(Machinery, name, value)
