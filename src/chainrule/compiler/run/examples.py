"""The examples of a batch: from the user's lists and arrays to the rows that a machine runs on, and back."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from chainrule.compiler.passes.layout import padded
from chainrule.compiler.run.machine import Machine
from chainrule.compiler.run.traced import Traced
from chainrule.core.structure import ARRAY, NUMBER, Structure, difference, flatten
from chainrule.ops import as_float


def rows_of(array: Any, name: str) -> tuple[Structure, np.ndarray]:
    """The structure of one example of a batched argument, and a matrix with one row per example."""
    if isinstance(array, np.ndarray) and array.ndim:
        matrix = array.reshape(len(array), -1) if array.size else np.zeros((len(array), 0))
        if matrix.dtype.kind not in "fiub":
            raise TypeError(f"{name} must be an array of real numbers, got one of {matrix.dtype}")
        return NUMBER if array.ndim == 1 else (ARRAY, array.shape[1:]), matrix.astype(np.float64, copy=False)
    if not isinstance(array, (list, tuple)):
        raise TypeError(f"{name} of a batch must be a list or an array with an example in each entry")
    rows: list[list[float]] = []
    structures = set()
    for example in array:
        rows.append([])
        structures.add(flatten(example, rows[-1], lambda n: as_float(n, name), floats=True))
    if len(structures) > 1:
        first, second = list(structures)[:2]
        raise ValueError(f"the examples of a batch must have the same structure: {difference(first, second, name)}")
    if not rows:
        return NUMBER, np.zeros((0, 1))
    return structures.pop(), np.array(rows, dtype=np.float64)


def check_reduce(reduce: str) -> None:
    """Refuse what is no way to reduce the results of a batch to one number."""
    if reduce not in ("mean", "sum"):
        raise ValueError(f"`reduce` must be 'mean', 'sum' or None, got {reduce!r}")


class Examples:
    """The arguments of a batch: matrices with one row per example."""

    def __init__(self, matrices: list[np.ndarray], traced: Traced) -> None:
        self.count = len(matrices[0])
        self.used = traced.used
        self.width = len(traced.used)
        if traced.spans is None:
            traced.spans = _spans([matrix.shape[1] for matrix in matrices], traced.used)
        self.pieces = [(matrix, *span) for matrix, span in zip(matrices, traced.spans, strict=True)]

    def chosen(self, numbers: Sequence[int]) -> Examples:
        """The examples with these numbers; a view of the same memory if they are consecutive."""
        other, which = copy(self), _span(np.array(numbers))
        other.pieces = [(matrix[which], *span) for matrix, *span in self.pieces]
        other.count = len(other.pieces[0][0])
        return other

    def column(self, place: int) -> np.ndarray:
        """The number at one place of the arguments, for all examples."""
        for matrix, *_ in self.pieces:
            if place < matrix.shape[1]:
                return matrix[:, place]
            place -= matrix.shape[1]
        raise IndexError(f"the arguments have fewer numbers than {place + 1}")

    def matrix(self) -> np.ndarray:
        """One row per example, of the numbers that the program uses."""
        return np.concatenate([matrix for matrix, *_ in self.pieces], axis=1)[:, self.used]

    def rows(self, firsts: range, machine: Machine) -> np.ndarray:
        """One row per run, which begins at one of `firsts`: each used number for all its examples, padded."""
        runs, step = len(firsts), firsts.step
        rows = machine.room(runs, self.width * padded(step))
        by_number = rows.reshape(runs, self.width, padded(step))
        with np.errstate(over="ignore"):
            for matrix, columns, targets in self.pieces:
                by_run = matrix[firsts.start : firsts.stop].reshape(runs, step, matrix.shape[1])
                by_number[:, targets, :step] = by_run[:, :, columns].transpose(0, 2, 1)
        return rows


def _spans(widths: list[int], used: np.ndarray) -> list[tuple[Any, Any]]:
    """For each matrix, of these widths: which of its columns are used, and where they go."""
    spans, start = [], 0
    for width in widths:
        targets = np.flatnonzero((start <= used) & (used < start + width))
        spans.append((_span(used[targets] - start), _span(targets)))
        start += width
    return spans


def _span(indices: np.ndarray) -> Any:
    """The indices as a slice if they are consecutive, which NumPy copies faster."""
    if len(indices) and (np.diff(indices) == 1).all():
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices
