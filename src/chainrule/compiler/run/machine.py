"""Code and machines: an array program taken through the last passes and compiled, and the memory that it runs in.

Code is immutable, and any number of threads may run it. A machine is memory, and belongs to one call at a time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from chainrule.compiler.backends import compiled_by
from chainrule.compiler.backends.protocol import ArrayBackend, Pool
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.layout import lay_out
from chainrule.compiler.passes.lift import MOST_STATEMENTS, IrregularityError
from chainrule.compiler.passes.program import Array, ArrayProgram
from chainrule.core.bulk import read_data
from chainrule.core.value import Value


class Clock:
    """Seconds per stage. The garbage collector is paused: passes make many objects and no cycles."""

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


class Code(Pool["Machine"]):
    """A lifted program compiled for numbers of type `dtype`, with its gradient if that is wanted.

    It has the program at three stages. `forward` is as it was lifted, and computes the results; exports start from it.
    `whole` is `forward`, its gradient and what `then` adds, such as an optimizer's update; `describe` prints it.
    `laid_out` is `whole` with its arrays arranged for vectors, and is what runs.
    """

    def __init__(
        self,
        forward: ArrayProgram,
        gradient: bool,
        backend: str,
        clock: Clock,
        then: Callable[[ArrayProgram], ArrayProgram] = lambda program: program,
        dtype: str = "float64",
    ) -> None:
        self.forward = forward
        self.whole = whole = then(clock("differentiate", lambda: differentiate(forward)) if gradient else forward)
        self.laid_out: ArrayProgram = whole
        places: dict[Array, Any] = {}
        if backend != "jax":  # XLA chooses layouts itself
            self.laid_out, places = clock("lay out", lambda: lay_out(whole))
        if len(self.laid_out.statements) > MOST_STATEMENTS:
            raise IrregularityError(len(self.laid_out.statements))
        make = partial(compiled_by, backend, self.laid_out, dtype)
        runner: ArrayBackend = clock("llvm", make) if backend == "llvm" else make()
        self.bytes = runner.size * np.dtype(dtype).itemsize
        self.seconds_per_run: float | None = None  # the least so far, in batches
        super().__init__(Machine(self.laid_out, places, runner))

    def stats(self, scalar_nodes: int, seconds: dict[str, float]) -> dict[str, Any]:
        """What was found, in numbers."""
        statements = self.laid_out.statements
        return {
            "scalar nodes": scalar_nodes,
            "array statements": len(statements),
            "not affine": sum(not statement.affine for statement in statements),
            "bytes": self.bytes,
            "seconds": seconds,
        }


class Machine:
    """Memory for one run of a program at a time. `output` and `gradient` are the results of the last one.

    `places` says where the layout has put the elements of a leaf, where it has moved them.
    """

    def __init__(self, program: ArrayProgram, places: Mapping[Array, Any], runner: ArrayBackend) -> None:
        self.program = program
        self.run: Callable[[], None] = runner.run
        self.views = runner.views
        self.output = self.views[program.output]
        self.gradient = np.zeros(0) if program.gradient is None else self.views[program.gradient]
        self._places = places
        self._runner = runner
        self._room = np.zeros(0)
        self._plain = {  # leaves that lie in memory as they are given
            kind: self.views[array]
            for kind, array in program.leaves.items()
            if array not in places and self.output.dtype == np.float64
        }
        for array, view in self.views.items():
            if array.numbers is not None:
                _assign(view, slice(None), array.numbers)

    def twin(self) -> Machine:
        """The same code with new memory."""
        return Machine(self.program, self._places, self._runner.twin())

    def load(self, kind: str, numbers: Sequence[float] | np.ndarray) -> None:
        """Set the leaves of one kind, given in the order of the lifted program."""
        if (plain := self._plain.get(kind)) is not None:
            plain[: len(numbers)] = numbers
        elif (array := self.program.leaves.get(kind)) is not None:
            _assign(self.views[array], self._places.get(array, slice(0, len(numbers))), numbers)

    def load_data(self, kind: str, values: list[Value]) -> None:
        """Set the leaves of one kind to the present data of these Values."""
        if (plain := self._plain.get(kind)) is not None:
            read_data(values, plain)
        elif kind in self.program.leaves:
            numbers = np.empty(len(values))
            read_data(values, numbers)
            self.load(kind, numbers)

    def run_many(self, rows: Mapping[str, np.ndarray], section: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Run once per row of the matrices, to which the leaves of each kind are set before: one result row per run.

        With a `section`, also returns the gradient summed over each `section` consecutive runs (see `ArrayBackend`).
        """
        leaves = self.program.leaves
        count = len(next(iter(rows.values())))
        given = {leaves[kind]: self._laid_out(leaves[kind], part) for kind, part in rows.items() if kind in leaves}
        summed = self.program.gradient if section else None
        return self._runner.run_many(count, given, self.program.output, summed, section or max(count, 1))

    def room(self, count: int, width: int) -> np.ndarray:
        """A matrix to fill with inputs for `run_many`; it holds zeros or old inputs. For one run, the inputs in place.

        Fresh memory is slow to touch, and copying is not much faster.
        """
        leaf = self.program.leaves.get("input")
        if count == 1 and leaf is not None and leaf.size == width and leaf not in self._places:
            return self.views[leaf].reshape(1, width)
        if self._room.size < count * width:
            self._room = np.zeros(count * width, dtype=self.output.dtype)
        return self._room[: count * width].reshape(count, width)

    def _laid_out(self, leaf: Array, rows: np.ndarray) -> np.ndarray:
        """Rows of numbers for a leaf, in the order and the type that it has in memory."""
        if leaf in self._places:
            moved = np.zeros((len(rows), leaf.size))
            moved[:, self._places[leaf]] = rows
            rows = moved
        return narrowed(rows, self.output.dtype)

    def read(self, kind: str) -> np.ndarray:
        """The leaves of one kind as they are in memory, in the order of the lifted program."""
        array = self.program.leaves[kind]
        numbers = self.views[array][self._places[array]] if array in self._places else self.views[array]
        return numbers.astype(np.float64, copy=False)


def _assign(view: np.ndarray, where: Any, numbers: Any) -> None:
    """Set elements; what is too large for a float32 becomes infinite, without a warning."""
    if view.itemsize == 8:
        view[where] = numbers
    else:
        with np.errstate(over="ignore"):
            view[where] = numbers


def narrowed(numbers: np.ndarray, dtype: Any) -> np.ndarray:
    """The numbers in another type; what is too large for it becomes infinite, without a warning."""
    if numbers.dtype == dtype:
        return numbers
    with np.errstate(over="ignore"):
        return numbers.astype(dtype)


def places(wanted: Sequence[Any], parameters: Sequence[Any]) -> np.ndarray:
    """The index of each of `wanted` among the parameters; -1 for those that are not there."""
    position = {node: i for i, node in enumerate(parameters)}
    return np.array([position.get(node, -1) for node in wanted], dtype=np.int64)


class Order:
    """From the gradient of a program's parameters to that of `wanted`: 0.0 for those it does not depend on."""

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
