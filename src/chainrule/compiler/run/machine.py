"""Machines: the memory that a compiled program runs in. One belongs to one call at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from chainrule.compiler.backends.memory import zeros
from chainrule.compiler.backends.protocol import ROWS, ArrayBackend, Columns, ColumnsBackend
from chainrule.compiler.passes.program import Array, ArrayProgram
from chainrule.core.bulk import read_data
from chainrule.core.value import Value

NEVER = -1  # no count of `replaced()`
CAPTURED = ("parameter", "captured")  # kinds of leaves that have the data of Values


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
        self._places, self.runner, self._room = places, runner, np.zeros(0)
        wide = self.output.dtype == np.float64
        self._plain = {  # leaves that lie in memory as they are given
            kind: self.views[array] for kind, array in program.leaves.items() if wide and array not in places
        }
        self.inputs = self._plain.get("input", np.zeros(0))  # where they may be written as they are given
        self.reads_rows = any(kind.startswith(ROWS) for kind in program.leaves)  # inputs must then be given as Columns
        self.as_of = NEVER  # what `replaced()` was before the captured data was loaded, if that is still in memory
        written = {statement.target.array for statement in program.statements}
        self.keeps_data = written.isdisjoint(array for kind, array in program.leaves.items() if kind in CAPTURED)
        for array, view in self.views.items():
            if array.numbers is not None:
                _assign(view, slice(None), array.numbers)

    def twin(self) -> Machine:
        """The same code with new memory."""
        return Machine(self.program, self._places, self.runner.twin())

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

    def run_many(self, rows: Mapping[str, Any], section: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Run once per row of the matrices, to which the leaves of each kind are set before: one result row per run.

        The inputs may be Columns, if the machine reads them. With a `section`, also returns the gradient summed over
        each `section` consecutive runs (see `ArrayBackend`).
        """
        leaves = self.program.leaves
        first = next(iter(rows.values()))
        count = len(first.firsts if isinstance(first, Columns) else first)
        given = {leaves[kind]: self._laid_out(leaves[kind], part) for kind, part in rows.items() if kind in leaves}
        summed = self.program.gradient if section else None
        return self.runner.run_many(count, given, self.program.output, summed, section or max(count, 1))

    def run_on(self, inputs: np.ndarray | Columns) -> None:
        """Run on these inputs, which may be in place already (see `room`)."""
        leaf = self.program.leaves.get("input")
        if leaf is not None and isinstance(inputs, Columns):
            cast(ColumnsBackend, self.runner).run_on(leaf, inputs)
            return
        assert isinstance(inputs, np.ndarray)
        if leaf is not None and not np.may_share_memory(inputs, self.views[leaf]):
            self.load("input", inputs)
        self.run()

    def room(self, count: int, width: int) -> np.ndarray:
        """A matrix to fill with inputs for `run_many`; it holds zeros or old inputs. For one run, the inputs in place.

        Fresh memory is slow to touch, and copying is not much faster.
        """
        leaf = self.program.leaves.get("input")
        if count == 1 and leaf is not None and leaf.size == width and leaf not in self._places:
            return self.views[leaf].reshape(1, width)
        if self._room.size < count * width:
            self._room = zeros(count * width, self.output.dtype)
        return self._room[: count * width].reshape(count, width)

    def laid_out(self, kind: str, rows: np.ndarray) -> np.ndarray:
        """Rows of numbers for the leaves of one kind, as they lie in memory."""
        return np.ascontiguousarray(self._laid_out(self.program.leaves[kind], rows))

    def has_moved(self, kind: str) -> bool:
        """Whether the layout has put the leaves of one kind elsewhere."""
        return self.program.leaves[kind] in self._places

    @property
    def reads_columns(self) -> bool:
        """Whether inputs may be given as the caller has them: the layout has put them nowhere else."""
        return self.runner.reads_columns and self.program.leaves.get("input") not in self._places

    def _laid_out(self, leaf: Array, rows: Any) -> Any:
        """Rows of numbers for a leaf, in the order and the type that it has in memory."""
        if isinstance(rows, Columns):
            return rows
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
        self.places[self.places < 0] = len(parameters)

    def __call__(self, gradient: np.ndarray, divisor: float = 1.0, own: bool = False) -> np.ndarray:
        """Divided by `divisor`, in a new array; in place if the order is the same and the array is the caller's own."""
        if self.is_same and divisor == 1.0:  # to divide takes longer than many a program
            return gradient.astype(np.float64, copy=not own)
        numbers = gradient.astype(np.float64, copy=False)
        if self.is_same:
            return np.divide(numbers, divisor, out=numbers if own else None)
        found = (numbers if self.is_whole else np.append(numbers, 0.0)).take(self.places)  # faster than an index
        found /= divisor
        return found
