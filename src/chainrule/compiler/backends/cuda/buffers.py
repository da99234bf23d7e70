"""Memory of the GPU, and how long it works."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from ctypes import byref, c_uint64, c_void_p
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.backends.cuda import library
from chainrule.compiler.backends.cuda.library import CudaError, amount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chainrule.compiler.backends.cuda.driver import Device

MOST_PINNED = 1 << 20  # bytes of the host's memory that are locked for one buffer


class Buffer:
    """Memory of the device, freed when nobody has this any more."""

    def __init__(self, device: Device, size: int) -> None:
        self.device, self.bytes, address = device, size, c_uint64()
        device.bury()
        with device.current:
            allocate = device.driver.functions["cuMemAlloc_v2"]
            code = allocate(byref(address), size or 1)
            if code == library.OUT_OF_MEMORY and device.dead:
                device.wait()
                device.bury()
                code = allocate(byref(address), size or 1)
        if code:
            raise self._error(code)
        self.address = address.value
        weakref.finalize(self, device.release, device.driver.functions["cuMemFree_v2"], self.address).atexit = False

    def __repr__(self) -> str:
        return f"<Buffer of {amount(self.bytes)} at {self.address:#x}>"

    def write(self, array: NDArray[Any], offset: int = 0) -> None:
        """Copy an array of the host to here, from the byte `offset` on."""
        self.device.copy_in(array, self.at(offset, array.nbytes))

    def read(self, array: NDArray[Any], offset: int = 0) -> None:
        """Fill an array of the host from here, from the byte `offset` on, when the device has done its work."""
        self.device.copy_out(self.at(offset, array.nbytes), array)

    def reader(self, array: NDArray[Any]) -> Callable[[], None]:
        """A function that fills the array from here, when the device has done its work; for many calls."""
        address = self.at(0, array.nbytes)
        if 0 < array.nbytes <= MOST_PINNED:
            return Reader(self, array)
        return partial(self.device.copy_out, address, array)

    def clear(self) -> None:
        """Set all bytes to 0, after what the device was given before."""
        if not self.bytes:
            return
        with self.device.current:
            self.device.driver("cuMemsetD8_v2", self.address, 0, self.bytes, doing=f"clear {amount(self.bytes)}")

    def copy_from(self, address: int, size: int, offset: int = 0) -> None:
        """Copy so many bytes of the device's memory to here, after what the device was given before."""
        to = self.at(offset, size)
        if not size:
            return
        with self.device.current:
            self.device.driver("cuMemcpyDtoD_v2", to, address, size, doing=f"copy {amount(size)} within its memory")

    def at(self, offset: int, size: int) -> int:
        """The address of the byte `offset`, if so many bytes are there."""
        if offset < 0 or size < 0 or offset + size > self.bytes:
            raise ValueError(f"`offset` {offset:,} and {size:,} bytes from there do not fit in {self.bytes:,} bytes")
        return self.address + offset

    def _error(self, code: int) -> CudaError:
        advice = ""
        if code == library.OUT_OF_MEMORY:
            try:
                free = amount(self.device.free_memory())
            except CudaError:
                free = "an unknown amount"
            advice = f"{free} of {amount(self.device.memory)} is free: use smaller batches, or give the arrays in parts"
        return self.device.driver.error(code, f"allocate {amount(self.bytes)}", advice)


class Reader:
    """Fills an array from a buffer. The copy is part of the device's work, so that it ends soon after what is before.

    It goes through memory of the host that stays in its place, which the device writes without the driver's help.
    """

    def __init__(self, buffer: Buffer, array: NDArray[Any]) -> None:
        device, size, place = buffer.device, array.nbytes, c_void_p()
        functions = device.driver.functions
        self.device, self.buffer, self._to = device, buffer, array.reshape(-1).view(np.uint8)
        with device.current:
            doing = f"lock {amount(size)} of the host's memory"
            device.driver("cuMemHostAlloc", byref(place), size, 0, doing=doing)
            weakref.finalize(self, device.release, functions["cuMemFreeHost"], place).atexit = False
            self._event = device.new_event()
            weakref.finalize(self, device.release, functions["cuEventDestroy_v2"], self._event).atexit = False
        self._from = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(place.value or 0))
        self._copy = partial(functions["cuMemcpyDtoHAsync_v2"], place, buffer.address, size, None)
        self._record = partial(functions["cuEventRecord"], self._event, None)

    def __call__(self) -> None:
        device, to, copied = self.device, self._to, self._from
        with device.current:
            if code := self._copy() or self._record():
                raise device.driver.error(code, f"copy {amount(to.nbytes)} to the host")
            to[:] = copied  # old numbers, while the device works: the code for it is then in the processor's caches
            device.wait_for(self._event)
        to[:] = copied
        if device.dead:
            device.bury()


class Timing:
    """How long the device worked: `milliseconds`, once the block of `Device.timed` is left."""

    def __init__(self, device: Device) -> None:
        self.device, self.begin, self.end = device, c_void_p(), c_void_p()
        self._stopped = False
        with device.current:
            for event in (self.begin, self.end):
                device.driver("cuEventCreate", byref(event), 0, doing="make an event")
                weakref.finalize(
                    self, device.release, device.driver.functions["cuEventDestroy_v2"], event
                ).atexit = False
            device.driver("cuEventRecord", self.begin, None, doing="start a clock")

    def stop(self) -> None:
        with self.device.current:
            self.device.driver("cuEventRecord", self.end, None, doing="stop a clock")
        self._stopped = True

    @property
    def milliseconds(self) -> float:
        """Of the device, from the block's first call to its last; waits until it is there."""
        if not self._stopped:
            raise RuntimeError("`milliseconds` are known once the block of `timed()` is left")
        found = ctypes.c_float()
        with self.device.current:
            self.device.wait_for(self.end)
            self.device.driver("cuEventElapsedTime", byref(found), self.begin, self.end, doing="read a clock")
        return found.value
