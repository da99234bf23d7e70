"""A machine: an array program taken through the last passes, compiled, and with memory to run in."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from importlib import import_module
from time import perf_counter
from typing import Any

import numpy as np

from chainrule._bulk import read_data
from chainrule._value import Value
from chainrule.compiler.differentiate import differentiate
from chainrule.compiler.interpret import Interpreted
from chainrule.compiler.layout import lay_out
from chainrule.compiler.lift import MOST_STATEMENTS, IrregularityError
from chainrule.compiler.program import Array, ArrayProgram

BACKENDS = ("llvm", "jax", "interpreter")
DTYPES = ("float64", "float32")


def check_dtype(dtype: str) -> None:
    """Refuse a type of numbers that programs do not compute in."""
    if dtype not in DTYPES:
        raise ValueError(f"`dtype` must be one of {', '.join(DTYPES)}; got {dtype!r}")


def load_xla() -> Any:
    """The module that imports jax, if there is a jax."""
    try:
        return import_module("chainrule.compiler.xla")
    except ImportError as error:
        remedy = "install it with pip install 'chainrule[jax]'"
        raise ImportError(f"programs for JAX need the package jax, which does not load ({error}): {remedy}") from error


class Clock:
    """Seconds by stage. The garbage collector rests: passes make many objects, and no cycles."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str, work: Callable[[], Any]) -> Any:
        started, collecting = perf_counter(), gc.isenabled()
        gc.disable()
        try:
            return work()
        finally:
            if collecting:
                gc.enable()
            self.seconds[stage] = perf_counter() - started


class Machine:
    """Runs `lifted`, and its derivative by the parameters if `gradient` is wanted, in numbers of type `dtype`."""

    def __init__(
        self,
        lifted: ArrayProgram,
        gradient: bool,
        backend: str,
        clock: Clock,
        then: Callable[[ArrayProgram], ArrayProgram] = lambda program: program,
        dtype: str = "float64",
    ) -> None:
        self.lifted = lifted
        whole = clock("differentiate", lambda: differentiate(lifted)) if gradient else lifted
        self.found: ArrayProgram = then(whole)  # for people to read: that which runs, but for the layout
        self.arrays: ArrayProgram
        self.arrays, self._places = (
            (self.found, {}) if backend == "jax" else clock("lay out", lambda: lay_out(self.found))  # XLA has its own
        )
        if len(self.arrays.statements) > MOST_STATEMENTS:
            raise IrregularityError(len(self.arrays.statements))
        if backend == "llvm":
            from chainrule.compiler.llvm import Native

            self._use(clock("llvm", lambda: Native(self.arrays, dtype)))
        elif backend == "jax":
            self._use(load_xla().Xla(self.arrays, dtype))
        else:
            self._use(Interpreted(self.arrays, dtype))
        self._twins: list[Machine] = []
        self.seconds_a_run: float | None = None  # the least so far, in batches

    def _use(self, runner: Any) -> None:
        self._runner = runner
        self._room = np.zeros(0)
        self.views: dict[Any, np.ndarray] = runner.views
        self.run: Callable[[], None] = runner.run
        for array, view in self.views.items():
            if array.numbers is not None:
                _assign(view, slice(None), array.numbers)

    def team(self, count: int) -> list[Machine]:
        """This machine and others with the same code and memory of their own: so many, for as many threads."""
        while len(self._twins) < count - 1:
            twin = copy(self)
            twin._use(self._runner.twin())
            self._twins.append(twin)
        return [self, *self._twins[: count - 1]]

    def load(self, kind: str, numbers: Sequence[float] | np.ndarray) -> None:
        """Set the leaves of one kind, given in the order of the lifted program."""
        array = self.arrays.leaves.get(kind)
        if array is not None:
            _assign(self.views[array], self._places.get(array, slice(0, len(numbers))), numbers)

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
        with np.errstate(over="ignore"):
            return rows.astype(self.output.dtype, copy=False)

    def read(self, kind: str) -> np.ndarray:
        """The leaves of one kind as they are in memory, in the order of the lifted program."""
        array = self.arrays.leaves[kind]
        numbers = self.views[array][self._places[array]] if array in self._places else self.views[array]
        return numbers.astype(np.float64, copy=False)

    def load_data(self, kind: str, values: list[Value]) -> None:
        """Set the leaves of one kind to the present data of these Values."""
        array = self.arrays.leaves.get(kind)
        if array is None:
            return
        direct = array not in self._places and self.views[array].itemsize == 8
        numbers = self.views[array] if direct else np.empty(len(values))
        read_data(values, numbers)
        if not direct:
            self.load(kind, numbers)

    @property
    def output(self) -> np.ndarray:
        """The results of the last run."""
        return self.views[self.arrays.output]

    @property
    def gradient(self) -> np.ndarray:
        """The derivatives of the last run by the parameters."""
        return np.zeros(0) if self.arrays.gradient is None else self.views[self.arrays.gradient]

    def stats(self, scalar_nodes: int, seconds: dict[str, float]) -> dict[str, Any]:
        """What was found, in numbers."""
        statements = self.arrays.statements
        return {
            "scalar nodes": scalar_nodes,
            "array statements": len(statements),
            "not affine": sum(not statement.affine for statement in statements),
            "bytes": self._runner.size * self.output.itemsize,
            "seconds": seconds,
        }


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
