"""A GPU by its driver alone: its memory, its programs and their launches, and what it says when something fails.

All work is on the legacy default stream of the device's primary context, so it is in order with that of PyTorch's and
CuPy's default streams, and memory is shared with them. Calls may come from any thread. Waiting is by asking again and
again, so that Ctrl-C is heard.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import byref, c_int, c_size_t, c_void_p
from threading import Lock
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.backends.cuda import library
from chainrule.compiler.backends.cuda.buffers import Buffer, Timing
from chainrule.compiler.backends.cuda.functions import Function, Module
from chainrule.compiler.backends.cuda.library import CudaError, Driver, amount
from chainrule.core.arguments import quoted, whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Buffer", "CudaError", "Device", "Function", "Module", "Timing", "device", "is_available"]

DEVICE_VARIABLE = "CHAINRULE_CUDA_DEVICE"
LEAST_CAPABILITY = (7, 0)
TAKEN_AT_ONCE = 64 << 10  # bytes of the host that the driver takes over until the device comes to copy them
SPIN = 1e-2  # seconds of asking without a pause, after which what a pause adds is little
LONGEST_SLEEP = 1e-3

PROCESSORS, SHARED_PER_BLOCK, SHARED_PER_PROCESSOR, THREADS_PER_PROCESSOR = 16, 97, 81, 39
REGISTERS_PER_PROCESSOR, MAJOR, MINOR = 82, 75, 76
NO_TIMING = 2  # of events
ORDINAL = 9  # of a pointer: its device's number

_lock = Lock()
_device: Device | None = None


def device() -> Device:
    """The GPU of this process, opened once: number `CHAINRULE_CUDA_DEVICE`, or the first."""
    global _device
    if _device is None:
        driver = library.driver()  # which a forked process does not get, before it waits for a lock
        with _lock:
            if _device is None:
                _device = Device(driver, *_found(driver))
    _device.driver.must_be_of_this_process()
    return _device


def is_available() -> bool:
    """Whether there is a GPU to use. None of its memory is taken; but forked processes cannot use it afterwards."""
    try:
        _found(library.driver())
    except CudaError:
        return False
    return True


def _found(driver: Driver) -> tuple[int, int, tuple[int, int]]:
    """The chosen device's number, its handle and its capability, if it is one that we can use."""
    text = os.environ.get(DEVICE_VARIABLE) or "0"
    if not text.isdecimal() or len(text) > 6:
        raise CudaError(f"`{DEVICE_VARIABLE}` must be the number of a GPU, counted from 0, got {quoted(text)}")
    number, found, handle = int(text), c_int(), c_int()
    driver("cuDeviceGetCount", byref(found), doing="be counted")
    if not found.value:
        raise driver.error(library.NO_DEVICE, "be found")
    if number >= found.value:
        there = f"the driver has {found.value} of them, counted from 0"
        raise CudaError(f"`{DEVICE_VARIABLE}` is {number}, and there is no such GPU: {there}", library.NO_DEVICE)
    driver("cuDeviceGet", byref(handle), number, doing=f"be found by its number {number}")
    capability = _attribute(driver, MAJOR, handle.value), _attribute(driver, MINOR, handle.value)
    if capability < LEAST_CAPABILITY:
        have, need = (".".join(map(str, pair)) for pair in (capability, LEAST_CAPABILITY))
        name = _name(driver, handle.value)
        raise CudaError(f"{name} has compute capability {have}, and {need} is needed (Volta, 2017): use a newer GPU")
    return number, handle.value, capability


def _attribute(driver: Driver, attribute: int, handle: int) -> int:
    found = c_int()
    driver("cuDeviceGetAttribute", byref(found), attribute, handle, doing="describe itself")
    return found.value


def _name(driver: Driver, handle: int) -> str:
    text = ctypes.create_string_buffer(256)
    driver("cuDeviceGetName", text, len(text), handle, doing="tell its name")
    return text.value.decode(errors="replace")


class Device:
    """A GPU, and what it has. `device` gives the one of this process."""

    def __init__(self, driver: Driver, number: int, handle: int, capability: tuple[int, int]) -> None:
        self.driver, self.number, self.capability = driver, number, capability
        self.name = _name(driver, handle)
        self.target = "sm_{}{}".format(*capability)
        self.processors = _attribute(driver, PROCESSORS, handle)
        self.shared_per_block = _attribute(driver, SHARED_PER_BLOCK, handle)  # the most that a function can ask for
        self.shared_per_processor = _attribute(driver, SHARED_PER_PROCESSOR, handle)
        self.threads_per_processor = _attribute(driver, THREADS_PER_PROCESSOR, handle)
        self.registers_per_processor = _attribute(driver, REGISTERS_PER_PROCESSOR, handle)
        memory, context = c_size_t(), c_void_p()
        driver("cuDeviceTotalMem_v2", byref(memory), handle, doing="tell how much memory it has")
        self.memory = memory.value
        driver("cuDevicePrimaryCtxRetain", byref(context), handle, doing="be opened")
        self.current = Current(driver, context)
        self._events: list[c_void_p] = []  # to wait by; taken and given back
        self.dead: list[tuple[Callable[[Any], object], Any]] = []  # what to free when the device is idle, and how

    def __repr__(self) -> str:
        return f"<Device {self.number}: {self.name}, {self.target}, {amount(self.memory)}>"

    def load(self, ptx: str) -> Module:
        """The program, compiled by the driver for this device; what its compiler says if it does not compile."""
        return Module(self, ptx)

    def allocate(self, size: int) -> Buffer:
        """So many bytes of the device's memory, freed when nobody has the buffer any more."""
        return Buffer(self, whole_number(size, "size", least=0))

    def free_memory(self) -> int:
        """How many bytes are free, for this process and all others."""
        free, whole = c_size_t(), c_size_t()
        with self.current:
            self.driver("cuMemGetInfo_v2", byref(free), byref(whole), doing="tell how much memory is free")
        return free.value

    def synchronize(self) -> None:
        """Wait until the device has done what it was given. Ctrl-C ends the wait, though not the work."""
        with self.current:
            self.wait()
        self.bury()

    @contextmanager
    def timed(self) -> Iterator[Timing]:
        """Time what the device does for the calls in the block: `milliseconds` of what this gives, after the block."""
        timing = Timing(self)
        yield timing
        timing.stop()

    def copy_in(self, array: NDArray[Any], address: int) -> None:
        """Copy the bytes of an array of the host to an address of the device."""
        array = np.ascontiguousarray(array)
        if not array.nbytes:
            return  # here and below: whether a driver takes 0 bytes is not written anywhere
        with self.current:
            doing = f"copy {amount(array.nbytes)} from the host"
            if array.nbytes <= TAKEN_AT_ONCE:
                self.driver("cuMemcpyHtoDAsync_v2", address, array.ctypes.data, array.nbytes, None, doing=doing)
            else:
                self.wait()  # the copy would wait too, but deaf to Ctrl-C
                self.driver("cuMemcpyHtoD_v2", address, array.ctypes.data, array.nbytes, doing=doing)

    def copy_out(self, address: int, array: NDArray[Any]) -> None:
        """Fill an array of the host from an address of the device, after all that the device was given."""
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise ValueError("`array` must be contiguous and writeable: give a new one, such as np.empty makes")
        with self.current:
            self.wait()
            if array.nbytes:
                doing = f"copy {amount(array.nbytes)} to the host"
                self.driver("cuMemcpyDtoH_v2", array.ctypes.data, address, array.nbytes, doing=doing)
        self.bury()

    def wait_for_stream(self, stream: int) -> None:
        """Let all that this device is given from now on wait for what another stream of it was given."""
        self._in_order(stream, 0)

    def let_stream_wait(self, stream: int) -> None:
        """Let all that another stream is given from now on wait for what this device was given."""
        self._in_order(0, stream)

    def _in_order(self, first: int, then: int) -> None:
        with self.current, self._event() as event:
            doing = "wait for another stream" if first else "let another stream wait"
            self.driver("cuEventRecord", event, first, doing=doing)
            self.driver("cuStreamWaitEvent", then, event, 0, doing=doing)

    def number_at(self, address: int) -> int | None:
        """The number of the device whose memory the address is in; None if the driver knows no such address."""
        found = c_int()
        with self.current:
            code = self.driver.functions["cuPointerGetAttribute"](byref(found), ORDINAL, address)
        return None if code else found.value

    @contextmanager
    def _event(self) -> Iterator[c_void_p]:
        try:
            event = self._events.pop()
        except IndexError:
            event = self.new_event()
        try:
            yield event
        finally:
            self._events.append(event)  # to be recorded anew, whatever it waits for

    def new_event(self) -> c_void_p:
        """An event to wait by, which the caller destroys."""
        event = c_void_p()
        self.driver("cuEventCreate", byref(event), NO_TIMING, doing="be waited for")
        return event

    def wait(self) -> None:
        """Wait for what the device has been given so far; of an event, since other threads may give it more."""
        with self._event() as event:
            self.driver("cuEventRecord", event, None, doing="finish its work")
            self.wait_for(event)

    def wait_for(self, event: c_void_p) -> None:
        query, begin = self.driver.functions["cuEventQuery"], perf_counter()
        while (code := query(event)) == library.NOT_READY:
            waited = perf_counter() - begin
            if waited > SPIN:
                sleep(min(LONGEST_SLEEP, waited / 20))
        if code:
            raise self.driver.error(code, "finish its work")

    def release(self, free: Callable[[Any], object], handle: Any) -> None:
        """Free a thing by a function, now or when the device is idle. Never fails; for finalizers, in any thread."""
        self.dead.append((free, handle))
        self.bury()

    def keep(self, things: Any) -> None:
        """Keep things of others, whose memory is being read, until the device is idle."""
        self.release(let_go, things)

    def bury(self) -> None:
        """Free what is dead, unless the device is at work: the driver would wait for it, and not hear Ctrl-C."""
        if not self.dead or self.driver.forked:
            return
        with suppress(CudaError, IndexError), self.current:  # the driver is gone; or another thread was first
            if self.driver.functions["cuStreamQuery"](None) != library.NOT_READY:
                while True:
                    free, handle = self.dead.pop()
                    with suppress(Exception):  # which leaves nothing to do
                        free(handle)


def let_go(_: object) -> None:
    """Nothing: what was kept is forgotten."""


class Current:
    """With it, a device's context is the thread's; what the thread had before comes back, as others rely on it."""

    def __init__(self, driver: Driver, context: c_void_p) -> None:
        self.driver, self.context = driver, context
        self.push, self.pop = driver.functions["cuCtxPushCurrent_v2"], driver.functions["cuCtxPopCurrent_v2"]

    def __enter__(self) -> None:
        if self.driver.forked:
            self.driver.must_be_of_this_process()
        if code := self.push(self.context):
            raise self.driver.error(code, "be used in this thread")

    def __exit__(self, *_: object) -> None:
        self.pop(byref(c_void_p()))
