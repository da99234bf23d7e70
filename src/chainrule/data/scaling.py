"""Standardization: columns with mean 0 and deviation 1, which networks learn from most easily; and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import add, mul, sub, truediv
from typing import Any

from chainrule.core.arguments import counted, listed, quoted
from chainrule.data.arrays import read_inputs

ROUNDING = 1e-15  # a deviation below this share of a column's numbers is how they were rounded


@dataclass(frozen=True)
class Scaling:
    """Maps each column x to (x - mean) / deviation; `undo` maps it back. Takes a row of numbers, or many rows.

    >>> scaling = Scaling.of([[1.0, 5.0], [3.0, 5.0]])
    >>> scaling
    Scaling(means=[2.0, 5.0], deviations=[1.0, 1.0])
    >>> scaling([4.0, 5.0]), scaling([[4.0, 5.0], [1.0, 6.0]])
    ([2.0, 0.0], [[2.0, 0.0], [-1.0, 1.0]])
    >>> scaling.undo([2.0, 0.0])
    [4.0, 5.0]
    """

    means: list[float]
    deviations: list[float]
    columns: list[str] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, rows: Any, columns: Sequence[str] = ()) -> Scaling:
        """The scaling that gives each column of these rows mean 0 and deviation 1; 0 to a column that is constant."""
        names, numbers = read_inputs(rows, "`rows`")
        names = list(columns) or names
        pairs = []
        for place, column in enumerate(zip(*numbers, strict=True)):
            mean, deviation = _mean_and_deviation(column)
            if not math.isfinite(mean + deviation):
                name = quoted(names[place]) if names else place
                raise ValueError(f"column {name} is too large to be standardized: use other units")
            pairs.append((mean, deviation))
        means, deviations = zip(*pairs, strict=True)
        return cls(list(means), list(deviations), names)

    def __call__(self, rows: Any) -> Any:
        """The scaled row, or rows."""
        return self._each(rows, lambda row: map(truediv, map(sub, row, self.means), self.deviations))

    def undo(self, rows: Any) -> Any:
        """The row, or rows, before they were scaled."""
        return self._each(rows, lambda row: map(add, map(mul, row, self.deviations), self.means))

    def _each(self, rows: Any, change: Callable[[list[float]], Iterable[float]]) -> Any:
        """What `change` makes of the row, or of each of the rows."""
        is_one = _is_one_row(rows)
        names, numbers = read_inputs([rows] if is_one else rows, "`rows`")
        if is_one and hasattr(rows, "to_dict"):  # a row of a pandas frame, whose index has the names
            names = [str(name) for name in rows.index]
        if names and self.columns and names != self.columns:
            raise ValueError(f"`rows` must have the columns {listed(self.columns)} in this order, got {listed(names)}")
        if len(numbers[0]) != len(self.means):
            expected, found = counted(len(self.means), "column"), len(numbers[0])
            raise ValueError(f"`rows` must have {expected}, as the data that was standardized, got {found}")
        changed = [list(change(row)) for row in numbers]
        return changed[0] if is_one else changed


def _is_one_row(rows: Any) -> bool:
    if hasattr(rows, "shape"):
        return len(rows.shape) == 1
    return isinstance(rows, (list, tuple)) and bool(rows) and not hasattr(rows[0], "__len__")


def _mean_and_deviation(column: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation, or 1 in place of that of a column that is constant."""
    low, high = min(column), max(column)
    if low == high:
        return low, 1.0
    try:
        mean = math.fsum(column) / len(column)
    except OverflowError:
        return math.inf, math.inf
    deviation = math.dist(column, [mean] * len(column)) / math.sqrt(len(column))
    return mean, deviation if deviation > ROUNDING * max(-low, high) else 1.0
