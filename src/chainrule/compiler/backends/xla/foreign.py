"""Programs that XLA calls on a CPU: LLVM has compiled them, and XLA hands them its arrays (`llvm.called`).

`Foreign` runs them for `compile(backend="jax")`, as `Xla` runs what XLA has compiled. XLA passes numbers on without a
look at them, so they go through it as integers of 32 bits, which JAX has whether or not it was told to have doubles.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from chainrule.compiler.backends.memory import zeros
from chainrule.compiler.backends.protocol import Results, Rows
from chainrule.compiler.backends.xla.runs import with_room
from chainrule.compiler.passes.program import Array, ArrayProgram

if TYPE_CHECKING:
    from chainrule.compiler.backends.llvm.called import Copy, Description
    from chainrule.compiler.backends.llvm.handler import Handler

BITS = np.dtype(np.int32)  # as which numbers go through XLA
NUMBERS = ("float64", "float32")  # that programs compute with
_lock = threading.Lock()


def why_not() -> str:
    """Why XLA cannot call our machine code on a CPU; nothing if it can."""
    with _lock:  # a name can be registered once
        return _registered()


@cache
def _registered() -> str:
    """Tell XLA of our handlers; why it does not take them, if so."""
    try:
        from chainrule.compiler.backends.llvm.handler import Handler

        for dtype in NUMBERS:
            _register(target(dtype), Handler(dtype))
    except Exception as error:  # such as another version of the interface
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return ""


def _register(name: str, handler: Handler) -> None:
    """Have XLA call a handler for each executable that it makes, and whenever it runs one."""
    addresses = handler.address, handler.kind.ctypes.data, handler.type_info.ctypes.data
    call, type_id, type_info = map(jax.ffi.pycapsule, addresses)
    jax.ffi.register_ffi_type(name, {"type_id": type_id, "type_info": type_info}, platform="cpu")
    jax.ffi.register_ffi_target(name, {"instantiate": call, "execute": call}, platform="cpu")


def target(dtype: str) -> str:
    """The name by which XLA knows the handler for programs with numbers of this type."""
    return f"chainrule_{dtype}"


class Foreign:
    """An array program in machine code that XLA calls, an `ArrayBackend`.

    All leaves go in as one array, and all results come out as one: each array costs microseconds.
    """

    reads_columns = False

    def __init__(self, program: ArrayProgram, dtype: str = "float64") -> None:
        from chainrule.compiler.backends.llvm.called import Called

        self.called = Called(program, dtype, {})
        self.dtype, self.size = np.dtype(dtype), self.called.size
        self.leaves = list(program.leaves.values())
        self.kept = [leaf for leaf in self.leaves if leaf in self.called.native.state_arrays]
        self.returned = [*self.kept, *(array for array in dict.fromkeys(program.results) if array not in self.leaves)]
        ins, outs = _one_after_another(self.leaves), _one_after_another(self.returned)
        self.words = self.dtype.itemsize // BITS.itemsize  # of a number
        self.once = self._jitted(self.called.once(ins, outs), [(_length(self.returned) * self.words,)])
        self._many: dict[Any, Callable[..., Any]] = {}  # by all that XLA is told of the arrays
        self._allocate()

    def _allocate(self) -> None:
        self.given, self.found = [zeros(_length(arrays), self.dtype) for arrays in (self.leaves, self.returned)]
        self.given_bits, self.found_bits = self.given.view(BITS), self.found.view(BITS)
        self.views = _parts(self.found, self.returned) | _parts(self.given, self.leaves)

    def twin(self) -> Foreign:
        other = copy(self)
        other._allocate()
        return other

    def run(self) -> None:
        self.found_bits[:] = self.once(self.given_bits)[0]
        if self.kept:
            self._keep(self.found)

    def run_many(self, count: int, rows: Rows, output: Array, summed: Array | None, section: int) -> Results:
        room, given = with_room(count, [*rows.values()], output.size)
        widths, sections = tuple([(leaf, matrix.shape[1]) for leaf, matrix in rows.items()]), -(-count // section)
        key = room, widths, output, summed, sections
        many = self._many.get(key) or self._many.setdefault(key, self._runs(*key))
        matrices = [np.ascontiguousarray(matrix, self.dtype).view(BITS) for matrix in given]
        kept, outputs, sums = many(self.given_bits, np.array([count, section], np.int32), *matrices)
        self._keep(np.asarray(kept).view(self.dtype))
        totals = np.array(sums).view(np.float64)[:, : summed.size if summed else 0]
        return np.array(outputs).view(self.dtype)[:count], totals

    def _runs(
        self,
        room: int,
        widths: tuple[tuple[Array, int], ...],
        output: Array,
        summed: Array | None,
        sections: int,
    ) -> Callable[..., Any]:
        """Many runs as one call; there is `room` for so many outputs."""
        ins, outs = _one_after_another(self.leaves), _one_after_another(self.kept)
        description = self.called.often(ins, outs, widths, output, summed, sections)
        sums = sections, self.called.padded(summed) * 2 if summed else 0  # which are doubles
        shapes = [(_length(self.kept) * self.words,), (room, output.size * self.words), sums]
        return self._jitted(description, shapes)

    def _keep(self, found: np.ndarray) -> None:
        """Let the next run begin with the leaves that this one has changed."""
        for array, numbers in _parts(found, self.kept).items():
            self.views[array][:] = numbers

    def _jitted(self, description: Description, shapes: list[tuple[int, ...]]) -> Callable[..., Any]:
        results = [jax.ShapeDtypeStruct(shape, BITS) for shape in shapes]

        def call(*operands: Any) -> Any:
            return jax.ffi.ffi_call(target(self.dtype.name), results)(*operands, **description.attributes)

        here = SingleDeviceSharding(jax.local_devices(backend="cpu")[0])
        return jax.jit(call, in_shardings=here)  # type: ignore[no-any-return]


def _one_after_another(arrays: list[Array]) -> list[Copy]:
    """The arrays as parts of the first buffer."""
    from chainrule.compiler.backends.llvm.called import Copy

    starts = np.cumsum([0, *(array.size for array in arrays)])
    return [Copy(0, int(start), array) for start, array in zip(starts, arrays, strict=False)]


def _parts(numbers: np.ndarray, arrays: list[Array]) -> dict[Array, np.ndarray]:
    """The numbers of each array, if they lie one after another."""
    ends = np.cumsum([array.size for array in arrays], dtype=int)
    return {array: numbers[end - array.size : end] for array, end in zip(arrays, ends, strict=True)}


def _length(arrays: list[Array]) -> int:
    return sum(array.size for array in arrays)
