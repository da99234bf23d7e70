"""The arguments of a batch as matrices, with one row per example; for each structure that examples have.

Examples are *ragged* if their lists have different lengths, or if their structures differ in any other way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from chainrule.core.arguments import shown
from chainrule.core.bulk import fill
from chainrule.core.structure import ARRAY, NUMBER, Keys, Named, Static, Structure, check_plain, difference, flatten
from chainrule.core.value import Value
from chainrule.ops import as_float


class Rows(NamedTuple):
    """Examples of one structure: a matrix for each argument, and the examples' numbers if there are others."""

    structure: tuple[Structure, ...]
    matrices: tuple[Any, ...]
    numbers: np.ndarray | None = None


class Even(NamedTuple):
    """An argument whose examples all have one structure: a matrix with one row per example."""

    structure: Structure
    matrix: Any

    def part(self, numbers: np.ndarray) -> Even:
        """The examples with these numbers."""
        return Even(self.structure, on_host(self.matrix)[numbers])


class Ragged(NamedTuple):
    """An argument whose examples have several structures: the numbers of one example after another."""

    structures: list[Structure]  # all that there are
    places: np.ndarray  # that of each example's structure among these
    flat: np.ndarray
    lengths: np.ndarray  # how many numbers each example has
    starts: np.ndarray  # where they begin

    def part(self, numbers: np.ndarray) -> Even:
        """The examples with these numbers, which all have one structure."""
        first = numbers[0]
        matrix = self.flat[self.starts[numbers][:, None] + np.arange(self.lengths[first])]
        return Even(self.structures[self.places[first]], matrix)


Column = Even | Ragged
DOUBLES = np.dtype(np.float64)


def alike(arrays: Sequence[Any], names: Sequence[str] = ()) -> Rows:
    """The arguments of a batch; an error if its examples do not all have the same structure."""
    columns, _ = _columns(arrays, names)
    for k, column in enumerate(columns):
        if isinstance(column, Ragged):
            first, second = column.structures[:2]
            what = difference(first, second, names[k] if names else f"argument {k}")
            raise ValueError(f"the examples of a batch must have the same structure: {what}")
    return _rows(columns)


def by_structure(arrays: Sequence[Any]) -> list[Rows]:
    """The arguments of a batch for each structure of an example, in the order of the first that has it.

    The last argument may be those that were given by name.

    >>> [part.numbers.tolist() for part in by_structure([[[1.0], [2.0, 3.0], [4.0]]])]
    [[0, 2], [1]]
    """
    columns, named = _columns(arrays)
    ragged = [column for column in columns if isinstance(column, Ragged)]
    if not ragged:
        return [_rows(columns, named)]
    kinds = ragged[0].places
    for column in ragged[1:]:  # numbered anew each time, so that numbers stay small
        kinds = np.unique(kinds * len(column.structures) + column.places, return_inverse=True)[1]
    order, firsts = np.argsort(kinds, kind="stable"), np.unique(kinds, return_index=True)[1]
    groups = np.split(order, np.cumsum(np.bincount(kinds))[:-1])
    parts = [groups[k] for k in np.argsort(firsts).tolist()]
    return [_rows([column.part(numbers) for column in columns], named, numbers) for numbers in parts]


def _rows(columns: Sequence[Any], named: Sequence[str] = (), numbers: np.ndarray | None = None) -> Rows:
    structures = [even.structure for even in columns]
    if named:
        count = len(structures) - len(named)
        structures[count:] = [(Keys(tuple(named), Named), tuple(structures[count:]))]
    return Rows(tuple(structures), tuple([even.matrix for even in columns]), numbers)


def _columns(arrays: Sequence[Any], names: Sequence[str] = ()) -> tuple[list[Column], Sequence[str]]:
    """The arguments, those that were given by name at the end, and these names."""
    *others, last = arrays or [Named()]
    named = last if type(last) is Named else Named()
    arrays = [*(others if type(last) is Named else arrays), *named.values()]
    if not arrays:
        raise ValueError("`arrays` is empty: a batch needs at least one argument with a leading axis of examples")
    names = names or [f"argument {which}" for which in (*range(len(arrays) - len(named)), *named)]
    columns = list(map(_column, arrays, names))
    counts = [int(column.matrix.shape[0]) if isinstance(column, Even) else len(column.lengths) for column in columns]
    if len(set(counts)) != 1:
        raise ValueError(f"the arguments of a batch must have as many examples each, got {counts}")
    if not counts[0]:
        raise ValueError("the batch is empty; give at least one example")
    return columns, tuple(named)


def _column(array: Any, name: str) -> Column:
    if (there := _on_device(array, name)) is not None:
        return _column_there(there, name)
    if isinstance(array, np.ndarray) and array.ndim:
        check_plain(array)
        if array.ndim == 2 and array.dtype is DOUBLES and array.size:
            return Even((ARRAY, array.shape[1:]), array)
        matrix = array.reshape(len(array), -1) if array.size else np.zeros((len(array), 0))
        if matrix.dtype.kind not in "fiub":
            raise TypeError(f"{name} must be an array of real numbers, got one of {matrix.dtype}")
        matrix = matrix if matrix.dtype == np.float32 else matrix.astype(np.float64, copy=False)
        return Even(NUMBER if array.ndim == 1 else (ARRAY, array.shape[1:]), matrix)
    if not isinstance(array, (list, tuple)):
        raise TypeError(f"{name} of a batch must be a list or an array with an example in each entry")
    if (quick := _of_floats(array)) is not None:
        return quick
    numbers: list[float] = []
    place_of: dict[Structure, int] = {}
    places, ends, accept = [], [], partial(number, name)
    for k, example in enumerate(array):
        try:
            structure = _structure(example, numbers, accept)
        except (TypeError, OverflowError) as error:
            raise type(error)(f"example {k}, counted from 0: {error}") from None
        places.append(place_of.setdefault(structure, len(place_of)))
        ends.append(len(numbers))
    return _even_or_ragged(
        list(place_of), np.array(places), np.array(numbers, dtype=np.float64), np.diff(ends, prepend=0)
    )


def _structure(example: Any, numbers: list[float], accept: Callable[[Any], float]) -> Structure:
    """The structure of an example; appends its numbers. None and a string are part of the structure, as in a call."""
    if example is None or type(example) is str:
        return Static(example), ()
    return flatten(example, numbers, accept, True)


def number(name: str, given: Any) -> float:
    """A number in the argument of this name."""
    try:
        return as_float(given, name)
    except TypeError as error:
        raise TypeError(_refusal(name, given) or str(error)) from None


def _refusal(name: str, given: Any) -> str:
    """Advice on what was given in place of a number; empty if there is none in particular."""
    if isinstance(given, Value):
        return (
            f"`{name}` must be a real number, got a Value, to which a compiled function passes no gradient: "
            "give its .data, or compile what differentiates, as in compile(grad(f))"
        )
    if given is None or isinstance(given, str):
        got = "None" if given is None else f"str {shown(repr(given), 40)}"
        return (
            f"`{name}` must be a real number, got {got} inside it: give a string or None as an argument by "
            "itself, which is then part of the program, or let the function capture it"
        )
    if hasattr(given, "__iter__"):
        return (
            f"`{name}` must be a real number, got a {type(given).__name__}: numbers may be in lists, tuples, dicts and "
            "arrays, so convert it, as with list(...)"
        )
    return ""


def _even_or_ragged(structures: list[Structure], places: np.ndarray, flat: np.ndarray, lengths: np.ndarray) -> Column:
    if len(structures) > 1:
        return Ragged(structures, places, flat, lengths, np.cumsum(lengths) - lengths)
    if not structures:
        return Even(NUMBER, np.zeros((0, 1)))
    return Even(structures[0], flat.reshape(len(lengths), -1) if flat.size else np.zeros((len(lengths), 0)))


def _of_floats(array: Sequence[Any]) -> Column | None:
    """As `_column`, for floats, or for lists of numbers, as large data sets are; None for anything else."""
    kinds = set(map(type, array))
    if kinds == {float}:
        return Even(NUMBER, np.array(array).reshape(-1, 1))
    if kinds != {list}:
        return None
    counts = list(map(len, array))
    lengths = np.array(counts)
    different, places = np.unique(lengths, return_inverse=True)
    structures = {n: (list, (NUMBER,) * n) for n in different.tolist()}
    flat = _flattened((type(array), tuple(map(structures.__getitem__, counts))), array, int(lengths.sum()))
    return None if flat is None else _even_or_ragged([*structures.values()], places, flat, lengths)


def _flattened(structure: Structure, lists: Sequence[list[Any]], count: int) -> np.ndarray | None:
    """The numbers in lists, of this structure, one after another; None if they are not all of the usual types."""
    flat = np.empty(count)
    if fill(structure, lists, flat, np.ndarray, Static):
        return flat
    if not set(map(type, chain.from_iterable(lists))) <= {float, int}:
        return None
    try:
        return np.fromiter(chain.from_iterable(lists), np.float64, count)
    except OverflowError:  # an int that no float can hold, which is reported one by one
        return None


def _on_device(array: Any, name: str) -> Any:
    """The array as one that lies on the GPU; None if it does not."""
    if isinstance(array, (np.ndarray, list, tuple)):
        return None
    if not (hasattr(array, "__dlpack_device__") or hasattr(array, "__cuda_array_interface__")):
        return None
    from chainrule.compiler.backends.cuda.device_arrays import device_array

    found = device_array(array, name)
    return found if found is not None and found.shape else None


def _column_there(array: Any, name: str) -> Even:
    """As `_column`, for an array on the GPU; it stays there if kernels can read it."""
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be an array of real numbers, got one of {array.dtype}")
    structure = NUMBER if len(array.shape) == 1 else (ARRAY, array.shape[1:])
    if array.contiguous and array.dtype.kind == "f" and array.dtype.itemsize in (4, 8):
        return Even(structure, array.as_rows())
    width = math.prod(array.shape[1:])
    matrix = array.numpy().reshape(array.shape[0], width).astype(np.float64, copy=False)
    return Even(structure, matrix)


def first_row(matrix: Any) -> np.ndarray:
    """The first row of a matrix, wherever it lies."""
    if isinstance(matrix, np.ndarray):
        return np.asarray(matrix[0])
    return np.asarray(replace(matrix, shape=(1, matrix.shape[1])).numpy()[0])


def on_host(matrix: Any) -> np.ndarray:
    """A matrix in the host's memory."""
    return matrix if isinstance(matrix, np.ndarray) else np.asarray(matrix.numpy())
