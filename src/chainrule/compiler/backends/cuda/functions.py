"""Programs on the GPU: loaded, asked what they need, and launched."""

from __future__ import annotations

import ctypes
import re
import weakref
from ctypes import byref, c_int, c_int64, c_size_t, c_uint64, c_void_p
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.backends.cuda import library
from chainrule.compiler.backends.cuda.library import CudaError, amount, cut_short
from chainrule.core.arguments import quoted

if TYPE_CHECKING:
    from chainrule.compiler.backends.cuda.driver import Device

WITHOUT_ASKING = 48 << 10  # bytes of shared memory that a block may have unless the function asks for more
LOG_BYTES = 8192
ERROR_LOG, ERROR_LOG_BYTES = 5, 6  # options of the driver's compiler
MOST_THREADS, STATIC_SHARED, LOCAL, REGISTERS, MOST_DYNAMIC_SHARED = 0, 1, 3, 4, 8  # attributes of a function


class Module:
    """A program on the device: functions, and what they share."""

    def __init__(self, device: Device, ptx: str) -> None:
        self.device, handle = device, c_void_p()
        self._version, self._target = _directive("version", ptx), _directive("target", ptx)
        log = ctypes.create_string_buffer(LOG_BYTES)
        names = (c_int * 2)(ERROR_LOG, ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        with device.current:
            load = device.driver.functions["cuModuleLoadDataEx"]
            code = load(byref(handle), ptx.encode() + b"\0", len(names), names, values)
        if code:
            raise self._error(code, "compile the program", log.value.decode(errors="replace"))
        self.handle = handle
        weakref.finalize(self, device.release, device.driver.functions["cuModuleUnload"], handle).atexit = False

    def function(self, name: str) -> Function:
        """The function of this name, to be launched."""
        handle = c_void_p()
        with self.device.current:
            code = self.device.driver.functions["cuModuleGetFunction"](byref(handle), self.handle, name.encode())
        if code:  # a driver may compile as late as here
            raise self._error(code, f"find the function {quoted(name)} in the program")
        return Function(self, name, handle)

    def constant(self, name: str) -> tuple[int, int]:
        """The address and the bytes of what the program calls by this name, outside its functions."""
        address, size = c_uint64(), c_size_t()
        with self.device.current:
            doing = f"find {quoted(name)} in the program"
            find = "cuModuleGetGlobal_v2"
            self.device.driver(find, byref(address), byref(size), self.handle, name.encode(), doing=doing)
        return address.value, size.value

    def _error(self, code: int, doing: str, log: str = "") -> CudaError:
        driver, advice = self.device.driver, ""
        have = "the driver is of CUDA {}.{}".format(*driver.version)
        if code == library.UNSUPPORTED_PTX:
            advice = f"{have}, too old for PTX {self._version}: update the NVIDIA driver"
        elif code == library.NO_BINARY:
            advice = (
                f"the program is for {self._target}, the GPU is {self.device.target}, {have}: update the NVIDIA driver"
            )
        elif log.strip():
            advice = f"{cut_short(log)}: please report this"
        return driver.error(code, doing, advice)


def _directive(name: str, ptx: str) -> str:
    """What follows `.name` at the head of a program."""
    match = re.search(rf"^\s*\.{name}\s+([\w.]+)", ptx, re.MULTILINE)
    return match[1] if match else "unknown"


class Function:
    """A function of a program, with what a thread or a block of it needs; `launch` runs it."""

    def __init__(self, module: Module, name: str, handle: c_void_p) -> None:
        self.module, self.name, self.handle = module, name, handle  # a function lives as long as its module
        self.device = module.device
        with self.device.current:
            self.registers = self._attribute(REGISTERS)
            self.local_bytes = self._attribute(LOCAL)  # of each thread, for registers that it did not get
            self.shared_bytes = self._attribute(STATIC_SHARED)
            self.most_threads = self._attribute(MOST_THREADS)
            self.parameters = self._parameters()
        self._asked = False  # for more shared memory than functions have without

    def __repr__(self) -> str:
        return f"<Function {self.name}: {self.registers} registers, {amount(self.shared_bytes)} shared>"

    def blocks_per_processor(self, threads: int, shared: int) -> int:
        """How many blocks of so many threads, with so many bytes of shared memory each, a processor runs at once."""
        found = c_int()
        with self.device.current:
            self._ask_for(shared)
            doing = f"tell how many blocks of {quoted(self.name)} run at once"
            call = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
            self.device.driver(call, byref(found), self.handle, threads, shared, doing=doing)
        return found.value

    def launch(self, blocks: int, threads: int, shared: int, *arguments: Any) -> None:
        """Start the function; it runs after what the device was given before.

        Arguments are buffers and arrays of the device, ints (of 64 bits), floats (of 64 bits) and ctypes scalars.
        """
        prepared = self.prepared(threads, shared, *arguments)
        with self.device.current:
            prepared(blocks)

    def prepared(self, threads: int, shared: int, *arguments: Any) -> Prepared:
        """The function with arguments, to be launched again and again, by one thread at a time."""
        values = [_as_c(argument) for argument in arguments]
        if self.parameters is not None and (sizes := tuple(map(ctypes.sizeof, values))) != self.parameters:
            raise TypeError(f"{quoted(self.name)} takes arguments of {self.parameters} bytes, got {sizes}")
        with self.device.current:
            self._ask_for(shared)
        return Prepared(self, threads, shared, values)

    def _attribute(self, attribute: int) -> int:
        found = c_int()
        doing = f"describe {quoted(self.name)}"
        self.device.driver("cuFuncGetAttribute", byref(found), attribute, self.handle, doing=doing)
        return found.value

    def _parameters(self) -> tuple[int, ...] | None:
        """The bytes of each parameter, if the driver is new enough to know: with too few, it would read anything."""
        ask = self.device.driver.functions.get("cuFuncGetParamInfo")
        if ask is None:
            return None
        sizes, offset, size = [], c_size_t(), c_size_t()
        for index in count():
            if ask(self.handle, index, byref(offset), byref(size)):
                break
            sizes.append(size.value)
        return tuple(sizes)

    def _ask_for(self, shared: int) -> None:
        """Let blocks have this much shared memory: all that there is, once, so that no thread takes it from another."""
        if self._asked or shared + self.shared_bytes <= WITHOUT_ASKING:
            return
        most = self.device.shared_per_block - self.shared_bytes
        if shared > most:
            raise CudaError(
                f"{quoted(self.name)} cannot have {amount(shared)} of shared memory per block:"
                f" this GPU has {amount(most)}: use smaller tiles"
            )
        doing = f"give {quoted(self.name)} {amount(most)} of shared memory"
        self.device.driver("cuFuncSetAttribute", self.handle, MOST_DYNAMIC_SHARED, most, doing=doing)
        self._asked = True


class Prepared:
    """A function with arguments. A call launches it, with other numbers for the last of them; in `device.current`."""

    def __init__(self, function: Function, threads: int, shared: int, values: list[Any]) -> None:
        self.function, self.threads, self.shared, self.values = function, threads, shared, values
        self._places = (c_void_p * len(values))(*map(ctypes.addressof, values))
        self._launch = function.device.driver.launch
        self._numbers: tuple[int, ...] = ()

    def __call__(self, blocks: int, *numbers: int) -> None:
        if numbers != self._numbers:
            for value, number in zip(self.values[-len(numbers) :], numbers, strict=False):
                value.value = number
            self._numbers = numbers
        handle, threads, shared = self.function.handle, self.threads, self.shared
        if code := self._launch(handle, blocks, 1, 1, threads, 1, 1, shared, None, self._places, None):
            doing = f"launch {quoted(self.function.name)} in {blocks} blocks of {threads} threads"
            if shared:
                doing += f" with {amount(shared)} of shared memory each"
            most = f"a launch has at least 1 block, and blocks of 1 to {self.function.most_threads} threads"
            advice = most if code == library.INVALID_VALUE else ""
            raise self.function.device.driver.error(code, doing, advice)


def _as_c(argument: Any) -> Any:
    if isinstance(argument, (ctypes._SimpleCData, ctypes.Structure)):
        return argument
    if isinstance(argument, float):
        return ctypes.c_double(argument)
    if isinstance(argument, (int, np.integer)):
        return c_int64(int(argument))
    address = getattr(argument, "address", None)
    if address is None:
        kinds = "buffers and arrays of the device, ints, floats and ctypes scalars"
        raise TypeError(f"`arguments` of a launch must be {kinds}, got {type(argument).__name__}")
    return c_uint64(address)
