"""Code and machines: an array program taken through the last passes and compiled, and the memory that it runs in.

Code does not change once it is there, and any number of threads may run it. A machine is memory, and belongs to one
call at a time.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np

from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.layout import lay_out
from chainrule.compiler.passes.lift import MOST_STATEMENTS, IrregularityError
from chainrule.compiler.passes.program import Array, ArrayProgram
from chainrule.core.bulk import read_data
from chainrule.core.value import Value

M = TypeVar("M")

KEPT = max(8, os.cpu_count() or 1)  # machines of one program that wait for a call; more of them are freed
BACKENDS = ("llvm", "jax", "interpreter")
DTYPES = ("float64", "float32")


def check_dtype(dtype: str) -> None:
    """Refuse a type of numbers that programs do not compute in."""
    if dtype not in DTYPES:
        raise ValueError(f"`dtype` must be one of {', '.join(DTYPES)}; got {dtype!r}")


def load_xla() -> Any:
    """The module that imports jax, if there is a jax."""
    try:
        return import_module("chainrule.compiler.backends.xla")
    except ImportError as error:
        remedy = "install it with pip install 'chainrule[jax]'"
        raise ImportError(f"programs for JAX need the package jax, which does not load ({error}): {remedy}") from error


class Clock:
    """Seconds by stage. The garbage collector rests: passes make many objects, and no cycles."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str, work: Callable[[], Any]) -> Any:
        started, collecting = perf_counter(), gc.isenabled()
        try:
            gc.disable()
            return work()
        finally:
            if collecting:
                gc.enable()
            self.seconds[stage] = perf_counter() - started


class Pool(Generic[M]):
    """Machines that no call is using: a call takes one, and gives it back when it has read its results.

    Whoever comes in between, be it another thread, a signal handler or a finalizer, takes another. A call that fails
    gives nothing back, for its machine may still be running in some thread; the next one is made new.
    """

    def __init__(self) -> None:
        self._free: list[M] = []

    def make(self) -> M:
        """A machine of its own for this program."""
        raise NotImplementedError

    def take(self) -> M:
        """A machine that is the caller's until it is given back."""
        try:
            return self._free.pop()
        except IndexError:
            return self.make()

    def give_back(self, machine: M) -> None:
        """For others to use: of what lies in its memory, the caller must have made copies."""
        if len(self._free) < KEPT:
            self._free.append(machine)


class Code(Pool["Machine"]):
    """`lifted`, and its derivative by the parameters if `gradient` is wanted, compiled for numbers of type `dtype`."""

    def __init__(
        self,
        lifted: ArrayProgram,
        gradient: bool,
        backend: str,
        clock: Clock,
        then: Callable[[ArrayProgram], ArrayProgram] = lambda program: program,
        dtype: str = "float64",
    ) -> None:
        super().__init__()
        self.lifted = lifted
        whole = clock("differentiate", lambda: differentiate(lifted)) if gradient else lifted
        self.found: ArrayProgram = then(whole)  # for people to read: that which runs, but for the layout
        self.arrays: ArrayProgram
        self.arrays, self.places = (
            (self.found, {}) if backend == "jax" else clock("lay out", lambda: lay_out(self.found))  # XLA has its own
        )
        if len(self.arrays.statements) > MOST_STATEMENTS:
            raise IrregularityError(len(self.arrays.statements))
        self.dtype = np.dtype(dtype)
        self._runner: Any
        if backend == "llvm":
            from chainrule.compiler.backends.llvm import Native

            self._runner = clock("llvm", lambda: Native(self.arrays, dtype))
        elif backend == "jax":
            self._runner = load_xla().Xla(self.arrays, dtype)
        else:
            self._runner = Interpreted(self.arrays, dtype)
        self.seconds_a_run: float | None = None  # the least so far, in batches
        self.give_back(Machine(self, self._runner))

    def make(self) -> Machine:
        """The same code with memory of its own."""
        return Machine(self, self._runner.twin())

    def stats(self, scalar_nodes: int, seconds: dict[str, float]) -> dict[str, Any]:
        """What was found, in numbers."""
        statements = self.arrays.statements
        return {
            "scalar nodes": scalar_nodes,
            "array statements": len(statements),
            "not affine": sum(not statement.affine for statement in statements),
            "bytes": self._runner.size * self.dtype.itemsize,
            "seconds": seconds,
        }


class Machine:
    """Memory for one run of `code` at a time. `output` and `gradient` are the results of the last one."""

    def __init__(self, code: Code, runner: Any) -> None:
        self.arrays = code.arrays
        self.run: Callable[[], None] = runner.run
        self.views: dict[Any, np.ndarray] = runner.views
        self.output = self.views[self.arrays.output]
        self.gradient = np.zeros(0) if self.arrays.gradient is None else self.views[self.arrays.gradient]
        self._places = code.places
        self._runner = runner
        self._room = np.zeros(0)
        self._plain = {  # leaves that lie in memory as they are given
            kind: self.views[array]
            for kind, array in self.arrays.leaves.items()
            if array not in code.places and code.dtype == np.float64
        }
        for array, view in self.views.items():
            if array.numbers is not None:
                _assign(view, slice(None), array.numbers)

    def load(self, kind: str, numbers: Sequence[float] | np.ndarray) -> None:
        """Set the leaves of one kind, given in the order of the lifted program."""
        if (plain := self._plain.get(kind)) is not None:
            plain[: len(numbers)] = numbers
        elif (array := self.arrays.leaves.get(kind)) is not None:
            _assign(self.views[array], self._places.get(array, slice(0, len(numbers))), numbers)

    def load_data(self, kind: str, values: list[Value]) -> None:
        """Set the leaves of one kind to the present data of these Values."""
        if (plain := self._plain.get(kind)) is not None:
            read_data(values, plain)
        elif kind in self.arrays.leaves:
            numbers = np.empty(len(values))
            read_data(values, numbers)
            self.load(kind, numbers)

    def run_many(self, rows: Mapping[str, np.ndarray], section: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Run once for each row of matrices, which leaves by kind are set to before; a row a run of the results.

        And for each `section` of runs a row of the sums of their derivatives by the parameters, if it is not 0.
        """
        leaves = self.arrays.leaves
        count = len(next(iter(rows.values())))
        given = {leaves[kind]: self._laid_out(leaves[kind], part) for kind, part in rows.items() if kind in leaves}
        summed = self.arrays.gradient if section else None
        found: tuple[np.ndarray, np.ndarray] = self._runner.run_many(
            count, given, self.arrays.output, summed, section or max(count, 1)
        )
        return found

    def room(self, count: int, width: int) -> np.ndarray:
        """A matrix to fill with inputs and give to `run_many`: zeros, or what it was last. For one run, their place.

        Fresh memory is slow to touch, and to copy is not much faster.
        """
        leaf = self.arrays.leaves.get("input")
        if count == 1 and leaf is not None and leaf.size == width and leaf not in self._places:
            return self.views[leaf].reshape(1, width)
        if self._room.size < count * width:
            self._room = np.zeros(count * width, dtype=self.output.dtype)
        return self._room[: count * width].reshape(count, width)

    def _laid_out(self, leaf: Array, rows: np.ndarray) -> np.ndarray:
        """Rows for a leaf as it lies in memory, in the memory's type."""
        if leaf in self._places:
            moved = np.zeros((len(rows), leaf.size))
            moved[:, self._places[leaf]] = rows
            rows = moved
        if rows.dtype == self.output.dtype:
            return rows
        with np.errstate(over="ignore"):
            return rows.astype(self.output.dtype)

    def read(self, kind: str) -> np.ndarray:
        """The leaves of one kind as they are in memory, in the order of the lifted program."""
        array = self.arrays.leaves[kind]
        numbers = self.views[array][self._places[array]] if array in self._places else self.views[array]
        return numbers.astype(np.float64, copy=False)


def _assign(view: np.ndarray, where: Any, numbers: Any) -> None:
    """Set elements; what is too large for a float32 becomes infinite, without a warning."""
    if view.itemsize == 8:
        view[where] = numbers
    else:
        with np.errstate(over="ignore"):
            view[where] = numbers


def places(wanted: Sequence[Any], parameters: Sequence[Any]) -> np.ndarray:
    """Where `wanted` are among the parameters; -1 for those that are not."""
    position = {node: i for i, node in enumerate(parameters)}
    return np.array([position.get(node, -1) for node in wanted], dtype=np.int64)


class Order:
    """From derivatives by a program's parameters to those by what is wanted: 0.0 by what it does not depend on."""

    def __init__(self, wanted: Sequence[Any], parameters: Sequence[Any]) -> None:
        self.places = places(wanted, parameters)
        self.is_same = np.array_equal(self.places, np.arange(len(parameters)))
        self.is_whole = (self.places >= 0).all()

    def __call__(self, gradient: np.ndarray, divisor: float = 1.0) -> np.ndarray:
        """A new array, divided by `divisor`."""
        numbers = gradient.astype(np.float64, copy=False)
        if self.is_same:
            return numbers / divisor
        found: np.ndarray = (numbers if self.is_whole else np.append(numbers, 0.0))[self.places]
        found /= divisor
        return found
