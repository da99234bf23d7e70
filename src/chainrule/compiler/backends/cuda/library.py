"""NVIDIA's driver as a library: found, loaded once, its functions typed, and its errors as sentences.

Nothing else of CUDA is needed: no toolkit, no runtime library. `driver` makes objects of these calls.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from threading import Lock
from typing import Any

from chainrule.core.arguments import MOST_OF_A_MESSAGE, quoted, shown

LIBRARY_VARIABLE = "CHAINRULE_CUDA_LIBRARY"
ON_LINUX = ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")  # the second is Windows' own, seen from its Linux

INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE, NO_BINARY, UNSUPPORTED_PTX = 1, 2, 3, 100, 209, 222
NOT_READY = 600

SIGNATURES: dict[str, tuple[type, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (c_void_p,),
    "cuGetErrorName": (c_int, c_void_p),
    "cuGetErrorString": (c_int, c_void_p),
    "cuDeviceGetCount": (c_void_p,),
    "cuDeviceGet": (c_void_p, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (c_void_p, c_int, c_int),
    "cuDeviceTotalMem_v2": (c_void_p, c_int),
    "cuDevicePrimaryCtxRetain": (c_void_p, c_int),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (c_void_p,),
    "cuModuleLoadDataEx": (c_void_p, c_char_p, c_uint, c_void_p, c_void_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (c_void_p, c_void_p, c_char_p),
    "cuModuleGetGlobal_v2": (c_void_p, c_void_p, c_void_p, c_char_p),
    "cuFuncGetAttribute": (c_void_p, c_int, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (c_void_p, c_void_p, c_int, c_size_t),
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p, c_void_p),
    "cuMemGetInfo_v2": (c_void_p, c_void_p),
    "cuMemAlloc_v2": (c_void_p, c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemHostAlloc": (c_void_p, c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyDtoD_v2": (c_uint64, c_uint64, c_size_t),
    "cuMemsetD8_v2": (c_uint64, ctypes.c_ubyte, c_size_t),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
    "cuStreamQuery": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuEventCreate": (c_void_p, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventElapsedTime": (c_void_p, c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
}
OF_NEWER_DRIVERS: dict[str, tuple[type, ...]] = {
    "cuFuncGetParamInfo": (c_void_p, c_size_t, c_void_p, c_void_p),  # since CUDA 12.4
}

RESTART = "the GPU cannot be used any more in this process: restart it"
LOOK = "see what nvidia-smi says of the GPU"
STICKY = {
    214: "the GPU's memory has a fault that cannot be corrected",
    220: "the link between GPUs failed",
    226: "a kernel launched earlier was stopped by a fault of the GPU",
    700: "a kernel launched earlier read or wrote outside its arrays",
    702: "a kernel launched earlier ran longer than this GPU allows, which also drives a display: use smaller batches",
    709: "its context was destroyed by other code of this process",
    710: "a kernel launched earlier failed an assertion",
    714: "a kernel launched earlier ran out of stack, or damaged it",
    715: "a kernel launched earlier has an instruction that this GPU does not know",
    716: "a kernel launched earlier read or wrote at an address that is not a multiple of the number's size",
    717: "a kernel launched earlier used an address of another kind of memory",
    718: "a kernel launched earlier jumped out of its code",
    719: "a kernel launched earlier failed",
    721: "a kernel launched earlier did not give back the memory of its tensor cores",
}
ADVICE = {
    1: "this is a mistake in chainrule, or an array is gone that was given to it: please report it",
    2: "use smaller batches, or give the arrays in parts",
    3: "the driver cannot be used in a process forked from one that used it: start processes by spawn instead",
    4: "the driver has shut down with the process: use the GPU before the interpreter exits",
    34: "this is the toolkit's stub, not the driver: install the driver, or remove the stub from the library path",
    36: "update the NVIDIA driver",
    46: "another process has the GPU to itself, or it is in a mode that forbids computing: " + LOOK,
    100: "see what nvidia-smi lists, and whether CUDA_VISIBLE_DEVICES hides the GPU",
    101: "see what nvidia-smi lists, and choose a GPU by CHAINRULE_CUDA_DEVICE",
    209: "update the NVIDIA driver",
    221: "install all of the driver: its libnvidia-ptxjitcompiler is missing"
    " (containers need NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
    222: "update the NVIDIA driver",
    223: "unset CUDA_DISABLE_PTX_JIT",
    500: "it has no such name, which is a mistake in chainrule: please report it",
    701: "use fewer threads per block, or less shared memory",
    802: "wait until the machine has started all its services, the fabric manager among them",
    803: "the driver was updated while its old part was running: restart the machine",
    804: "remove the compatibility package of CUDA, or update the NVIDIA driver",
}
OTHERWISE = f"{LOOK}, and restart this process"


class CudaError(RuntimeError):
    """What the GPU, or its driver, could not do. `code` is the driver's number for it; 0 if it was not asked."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Driver:
    """The loaded library, initialized: `driver(name, *arguments, doing=…)` calls a function of it or raises."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.forked = False  # whether this process is a child of the one that loaded it, where no call works
        self.functions: dict[str, Any] = {}
        for name, kinds in (SIGNATURES | OF_NEWER_DRIVERS).items():
            function = getattr(library, name, None)
            if function is not None:
                function.argtypes, function.restype = kinds, c_int
                self.functions[name] = function
            elif name in SIGNATURES:
                raise CudaError(f"the NVIDIA driver {library._name!r} has no {name}: update it to CUDA 11 or later")
        self.launch = library["cuLaunchKernel"]  # untyped: its numbers are ints of C, as they come, in half the time
        number = c_int()
        self("cuDriverGetVersion", ctypes.byref(number), doing="tell its version")
        self.version = number.value // 1000, number.value % 1000 // 10  # of CUDA: (12, 8)
        self("cuInit", 0, doing="start")

    def __call__(self, name: str, *arguments: Any, doing: str) -> None:
        code = self.functions[name](*arguments)
        if code:
            raise self.error(code, doing)

    def error(self, code: int, doing: str, advice: str = "") -> CudaError:
        """The error to raise: what could not be done, what the driver said, and what to do."""
        if not advice:
            advice = f"{STICKY[code]}; {RESTART}" if code in STICKY else ADVICE.get(code, OTHERWISE)
        return CudaError(f"the GPU could not {doing}: the driver says {self.meaning(code)}: {advice}", code)

    def meaning(self, code: int) -> str:
        """The driver's name for an error, and its description."""
        texts = c_char_p(), c_char_p()
        for function, text in zip(("cuGetErrorName", "cuGetErrorString"), texts, strict=True):
            self.functions[function](code, ctypes.byref(text))
        name, description = ((text.value or b"").decode(errors="replace") for text in texts)
        return f"{name} ({description})" if name else f"error {code}"

    def must_be_of_this_process(self) -> None:
        if self.forked:
            raise CudaError(
                "the GPU cannot be used here: this process was forked from one that used it, and NVIDIA's driver does"
                " not survive that: start processes by multiprocessing's 'spawn' instead",
                NOT_INITIALIZED,
            )


_lock = Lock()
_driver: Driver | None = None


def driver() -> Driver:
    """The driver, loaded and initialized once."""
    global _driver
    if _driver is None:
        with _lock:
            if _driver is None:
                _driver = Driver(_load())
    _driver.must_be_of_this_process()
    return _driver


def _load() -> ctypes.CDLL:
    chosen = os.environ.get(LIBRARY_VARIABLE)
    if chosen:
        try:
            return ctypes.CDLL(chosen)
        except OSError as error:
            problem = f"`{LIBRARY_VARIABLE}` names {quoted(chosen, 200)}, which does not load"
            raise CudaError(f"{problem} ({shown(str(error), 200)}): name NVIDIA's driver, or unset it") from None
    if sys.platform == "darwin":
        raise CudaError("macOS has no NVIDIA driver, so there is no GPU to use: choose another `backend`")
    problems = []
    for name in ("nvcuda.dll",) if sys.platform == "win32" else ON_LINUX:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            problems.append(shown(str(error), MOST_OF_A_MESSAGE))
    raise CudaError(f"no NVIDIA driver was found ({problems[0]}): install it for your GPU, or choose another `backend`")


def _in_child() -> None:
    """A forked process cannot use the driver that its parent initialized; a lock may be held by no thread of it."""
    global _lock
    _lock = Lock()
    if _driver is not None:
        _driver.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def cut_short(log: str) -> str:
    """The first lines of what a compiler says, on one line, at most as long as we quote others."""
    lines = [re.sub(r"\s+", " ", line).strip() for line in log.splitlines()]
    return shown("; ".join(line for line in lines if line), MOST_OF_A_MESSAGE)


def amount(size: int) -> str:
    """A number of bytes, to be read by people.

    >>> amount(1000), amount(5 << 20)
    ('1000 bytes', '5.0 MiB')
    """
    number, units = float(size), ["KiB", "MiB", "GiB", "TiB"]
    if size < 1 << 13:
        return f"{size} bytes"
    for unit in units:
        number /= 1024
        if number < 1024 or unit == units[-1]:
            break
    return f"{number:.1f} {unit}"
