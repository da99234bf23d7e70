"""Arrays that lie on the GPU, from PyTorch, CuPy, JAX, Numba and others, and to them, without a copy.

In: DLPack, or `__cuda_array_interface__`. Out: both. What others lend is given back when the GPU is idle, since they
may use it for something else at once, on a stream of their own.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from chainrule.compiler.backends.cuda import dlpack
from chainrule.compiler.backends.cuda.buffers import Buffer
from chainrule.compiler.backends.cuda.driver import DEVICE_VARIABLE, Device, device, let_go
from chainrule.compiler.backends.cuda.library import CudaError
from chainrule.core.arguments import MOST_OF_A_MESSAGE, shown

LEGACY_STREAM = 1  # in both protocols; it is the one that we use
ORDERED = (None, LEGACY_STREAM)  # streams that need not be waited for


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """An array on the GPU that keeps its memory alive; PyTorch, CuPy and JAX take it as it is."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: np.dtype[Any]
    owner: object = field(repr=False)
    device: Device = field(repr=False)
    read_only: bool = False

    @classmethod
    def over(cls, buffer: Buffer, shape: Sequence[int], dtype: DTypeLike, offset: int = 0) -> DeviceArray:
        """An array in C's order, from the byte `offset` of a buffer on."""
        kind, sizes = np.dtype(dtype), tuple(shape)
        start = buffer.at(offset, math.prod(sizes) * kind.itemsize)
        return cls(start, sizes, dlpack.c_strides(sizes), kind, buffer, buffer.device)

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """How many bytes its numbers have."""
        return self.size * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether its numbers are without gaps, in C's order; strides of axes of length 1 do not matter."""
        wanted = dlpack.c_strides(self.shape)
        if self.strides == wanted or not self.size:
            return True
        return all(n == 1 or stride == step for n, stride, step in zip(self.shape, self.strides, wanted, strict=True))

    def as_rows(self) -> DeviceArray:
        """The same numbers as a matrix, with a row for each entry of the first axis; it must be contiguous."""
        count, width = self.shape[0], math.prod(self.shape[1:])
        return DeviceArray(
            self.address, (count, width), (width, 1), self.dtype, self.owner, self.device, self.read_only
        )

    def numpy(self) -> NDArray[Any]:
        """Its numbers, on the host, when the GPU has done its work."""
        if not self.contiguous:
            raise ValueError(f"an array of strides {self.strides} is not copied to the host: make it contiguous first")
        found = np.empty(self.shape, self.dtype)
        self.device.copy_out(self.address, found)
        return found

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        steps = None if self.contiguous else tuple(stride * self.dtype.itemsize for stride in self.strides)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address if self.size else 0, self.read_only),
            "strides": steps,
            "stream": LEGACY_STREAM,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.device.number

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,  # what we give, all consumers know
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("`__dlpack__` gives the array where it is, without a copy: copy what you get")
        if self.read_only:
            raise BufferError("`__dlpack__` cannot say that an array is read-only: copy it first")
        if stream == 0 or (stream is not None and stream < -1):
            raise BufferError(f"`stream` must be 1, 2, -1 or a stream's address, got {stream}")
        if stream not in (None, -1, LEGACY_STREAM):
            self.device.let_stream_wait(stream)
        address = self.address if self.size else 0
        return dlpack.give(address, self.shape, self.strides, self.dtype, self.device.number, self.owner)


class Lent:
    """Memory of another library: given back when nobody has this, and the GPU no longer works with it."""

    def __init__(self, on: Device, give_back: Any, thing: Any) -> None:
        weakref.finalize(self, on.release, give_back, thing).atexit = False


def device_array(thing: Any, argument: str = "array") -> DeviceArray | None:
    """The thing as an array on our GPU, without a copy; None if it is no array, or one of the host.

    An array elsewhere is refused, by the name of the argument. Number type and strides are as they come.
    """
    if isinstance(thing, DeviceArray):
        return thing
    interface = _interface(thing)
    if interface is not None:
        return _by_interface(thing, interface, argument)
    return _by_dlpack(thing, argument) if _has_dlpack(thing) else None


def _interface(thing: Any) -> dict[str, Any] | None:
    """What the thing says of itself in the quicker way, if it does, and all that is needed."""
    found: dict[str, Any] | None = None
    if _knows_streams(thing) or not _has_dlpack(thing):
        found = getattr(thing, "__cuda_array_interface__", None)
    return found


def _knows_streams(thing: Any) -> bool:
    """Whether its library says in its interface, and not in DLPack alone, which stream an array is being written on."""
    return type(thing).__module__.partition(".")[0] == "cupy"


def _has_dlpack(thing: Any) -> bool:
    return hasattr(thing, "__dlpack_device__") and hasattr(thing, "__dlpack__")


class Seen:
    """Arrays on the GPU that a call was given: a later one recognizes them without describing them anew.

    They are the same if they are the same objects and say the same of themselves: address, shape, strides, number type
    and stream. They are not kept alive.
    """

    def __init__(self, things: Sequence[Any], said: list[Any]) -> None:
        self._count, self._said, self._device = len(things), said, device()
        self._things: list[Callable[[], Any]] = [weakref.ref(thing) for thing in things]
        self._streams = {what.get("stream") for what in said if what is not None} - {*ORDERED}

    @classmethod
    def of(cls, things: Sequence[Any]) -> Seen | None:
        """These; None if one of them can be taken by DLPack alone, whose order of streams is asked for every time."""
        said = [_said(thing) for thing in things]
        if NOTHING in said:
            return None
        try:
            return cls(things, said)
        except TypeError:  # no weak references
            return None

    def are(self, things: Sequence[Any]) -> bool:
        """Whether these are the same; then what they are being written by is waited for."""
        if len(things) != self._count:
            return False
        for known, said, thing in zip(self._things, self._said, things, strict=True):
            if known() is not thing or (said is not None and said != thing.__cuda_array_interface__):
                return False
        for stream in self._streams:
            self._device.wait_for_stream(int(stream))
        return True

    @property
    def are_alive(self) -> bool:
        """Whether all of them still exist."""
        return all(known() is not None for known in self._things)


NOTHING: dict[str, Any] = {}


def _said(thing: Any) -> dict[str, Any] | None:
    """What the thing says of itself; None if it is ours, which never changes."""
    if isinstance(thing, DeviceArray):
        return None
    interface = _interface(thing)
    return NOTHING if interface is None else dict(interface)


def _by_dlpack(thing: Any, argument: str) -> DeviceArray | None:
    where, what = None, f"`{argument}` ({type(thing).__name__})"
    try:
        where, number = thing.__dlpack_device__()
        if where in (dlpack.CPU, dlpack.CUDA_HOST):
            return None
        if where not in (dlpack.CUDA, dlpack.CUDA_MANAGED):
            kind = f"a device of kind {int(where)} of DLPack"
            raise CudaError(f"{what} is on {kind}, which is no NVIDIA GPU: give it on the host")
        ours = device()
        _must_be_ours(number, ours, what)
        taken = dlpack.take(thing.__dlpack__(stream=LEGACY_STREAM))
    except CudaError:
        raise
    except Exception as error:  # of another library, or about its numbers
        reason = shown(str(error), MOST_OF_A_MESSAGE)
        raise TypeError(f"{what} cannot be taken as it is: {reason}") from error
    owner = Lent(ours, dlpack.delete, taken.managed)
    return DeviceArray(taken.address, taken.shape, taken.strides, taken.dtype, owner, ours, taken.read_only)


def _by_interface(thing: Any, interface: dict[str, Any], argument: str) -> DeviceArray:
    what, ours = f"`{argument}` ({type(thing).__name__})", device()
    if interface.get("mask") is not None:
        raise TypeError(f"{what} has a mask: fill in what is missing")
    shape, dtype = tuple(map(int, interface["shape"])), np.dtype(interface["typestr"])
    address, read_only = interface["data"]
    steps = interface.get("strides")
    strides = dlpack.c_strides(shape)
    if steps is not None:
        strides = tuple(int(step) // dtype.itemsize for step in steps)
        if any(int(step) % dtype.itemsize for step in steps):
            raise TypeError(f"{what} has strides {tuple(steps)} of bytes, between its numbers: make it contiguous")
    address = int(address or 0)
    if math.prod(shape):
        _must_be_ours(ours.number_at(address), ours, what)
    stream = interface.get("stream")
    if stream == 0:
        raise TypeError(f"{what} has the `stream` 0, which its protocol forbids: it must be 1, 2 or a stream's address")
    if stream not in ORDERED:
        ours.wait_for_stream(int(stream))
    return DeviceArray(address, shape, strides, dtype, Lent(ours, let_go, thing), ours, bool(read_only))


def _must_be_ours(number: int | None, ours: Device, what: str) -> None:
    if number is None:
        raise CudaError(
            f"{what} is at an address that the driver does not know: give an array of the GPU or of the host"
        )
    if number != ours.number:
        choice = f"move it there, or set {DEVICE_VARIABLE}={number} before the first use"
        raise CudaError(f"{what} is on GPU {number}, and this process uses GPU {ours.number}: {choice}")
