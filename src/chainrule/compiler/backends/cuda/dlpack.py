"""DLPack's capsules, read and made by ctypes: how libraries hand arrays on a device to one another without a copy.

https://dmlc.github.io/dlpack/latest/python_spec.html
"""

from __future__ import annotations

import atexit
import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple, TypeVar

import numpy as np

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # of NumPy's kinds
READ_ONLY = 1  # a flag


T = TypeVar("T")


class _Device(ctypes.Structure):
    _fields_ = (("kind", c_int32), ("number", c_int32))


class _Kind(ctypes.Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device", _Device),
        ("dimensions", c_int32),
        ("dtype", _Kind),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),  # in elements; none for those of C
        ("offset", c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("version", c_uint32 * 2),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    )


class Taken(NamedTuple):
    """What a capsule held; `delete(taken.managed)` gives it back."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    read_only: bool
    managed: tuple[int, int, int]  # its deleter, its address, and the process that took it


def _immortal(thing: T) -> T:
    """For what others call or read up to the very end of the process, after Python has forgotten its modules."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


def _python(name: str, result: Any, *kinds: Any) -> Any:
    return _immortal(ctypes.PYFUNCTYPE(result, *kinds)((name, ctypes.pythonapi)))


_new = _python("PyCapsule_New", ctypes.py_object, c_void_p, c_void_p, c_void_p)
_pointer = _python("PyCapsule_GetPointer", c_void_p, ctypes.py_object, c_char_p)
_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, c_char_p)
_rename = _python("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, c_void_p)
_is_valid_at = _python("PyCapsule_IsValid", ctypes.c_int, c_void_p, c_char_p)  # of a capsule that is being destroyed
_pointer_at = _python("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)

NAME = b"dltensor"
_NAME = _immortal(ctypes.create_string_buffer(NAME))
_LAYOUTS = {
    NAME: (_Managed, _immortal(ctypes.create_string_buffer(b"used_dltensor"))),
    b"dltensor_versioned": (_Versioned, _immortal(ctypes.create_string_buffer(b"used_dltensor_versioned"))),
}


def take(capsule: Any) -> Taken:
    """What the capsule holds, which from now on is ours to give back. A TypeError if NumPy has no such numbers."""
    name = next((name for name in _LAYOUTS if _is_valid(capsule, name)), None)
    if name is None:
        raise TypeError("`__dlpack__` must give a capsule that nobody has used")
    layout, used = _LAYOUTS[name]
    address = _pointer(capsule, name)
    managed = layout.from_address(address)
    if layout is _Versioned and managed.version[0] != 1:
        raise TypeError(f"`__dlpack__` must give a capsule of version 1 or before, got {managed.version[0]}")
    tensor = managed.tensor
    dtype = _dtype(tensor.dtype)
    shape = tuple(tensor.shape[: tensor.dimensions])
    strides = tuple(tensor.strides[: tensor.dimensions]) if tensor.strides else c_strides(shape)
    read_only = layout is _Versioned and bool(managed.flags & READ_ONLY)
    _rename(capsule, ctypes.addressof(used))
    back = managed.deleter or 0, address, os.getpid()
    return Taken((tensor.data or 0) + tensor.offset, shape, strides, dtype, read_only, back)


def delete(managed: tuple[int, int, int]) -> None:
    """Give back what was taken; not in a forked process, which has no part in it."""
    deleter, address, process = managed
    if deleter and process == os.getpid():
        ctypes.PYFUNCTYPE(None, c_void_p)(deleter)(address)


def _dtype(kind: _Kind) -> np.dtype[Any]:
    letter = next((letter for letter, code in CODES.items() if code == kind.code), None)
    if letter and kind.lanes == 1 and not kind.bits % 8:
        try:
            return np.dtype(f"{letter}{kind.bits // 8}")
        except TypeError:
            pass
    kinds = f"kind {kind.code} of DLPack, {kind.bits} bits" + (f", {kind.lanes} lanes" if kind.lanes != 1 else "")
    raise TypeError(f"its numbers are such as NumPy does not have ({kinds}): convert them to float32 or float64")


def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Those of an array without gaps, in C's order, in elements.

    >>> c_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


# The way out: `_given` keeps what a capsule's consumer needs until it calls the deleter. Consumers may do that after
# Python has shut down, where no Python can run; so at exit they are told that there is no deleter.

_given: dict[int, tuple[Any, ...]] = {}


def _done_with(address: int, given: Any = _given) -> None:
    given.pop(address, None)


def _destroyed(
    capsule: int, is_valid: Any = _is_valid_at, pointer: Any = _pointer_at, given: Any = _given, name: bytes = NAME
) -> None:
    """Of a capsule that nobody has used, give back what it holds."""
    if is_valid(capsule, name):
        given.pop(pointer(capsule, name), None)


_deleter = _immortal(ctypes.CFUNCTYPE(None, c_void_p)(_done_with))
_destructor = _immortal(ctypes.CFUNCTYPE(None, c_void_p)(_destroyed))


@atexit.register
def _let_all_go() -> None:
    for managed, *_ in _immortal([*_given.values()]):
        managed.deleter = None


def give(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any], number: int, owner: object
) -> Any:
    """A capsule of an array on a CUDA device, which keeps the owner alive until its consumer is done with it."""
    if dtype.kind not in CODES or not dtype.isnative:
        raise BufferError(f"DLPack has no numbers of type {dtype}")
    count = len(shape)
    places = (c_int64 * count)(*shape), (c_int64 * count)(*strides)
    kind = _Kind(CODES[dtype.kind], 8 * dtype.itemsize, 1)
    pointers = [ctypes.cast(place, POINTER(c_int64)) for place in places]
    tensor = _Tensor(address, _Device(CUDA, number), count, kind, *pointers, 0)
    managed = _Managed(tensor, None, ctypes.cast(_deleter, c_void_p))
    _given[ctypes.addressof(managed)] = managed, places, owner
    return _new(byref(managed), ctypes.addressof(_NAME), ctypes.cast(_destructor, c_void_p))
