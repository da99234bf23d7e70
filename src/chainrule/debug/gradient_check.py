"""Gradient checking: what `backward()` says against what the numbers say, and whose fault a difference is.

`gradcheck(f, *inputs)` takes a function of Values and returns a `Report`: one `Row` per input number, with
its analytic and its numerical derivative, and, if they differ, a sentence that names the guilty op and line.

The diagnosis treats an op as a black box, so it works for the engines, a learner's own class and hand-written
`_backward`s alike. The chain rule holds at every node by itself: a node must move as its operands move,

    d node = Σ partial · d operand,

where the partials are what one call of its `_backward` pushes and the movements are measured by running `f` at
neighbouring inputs. The oldest node that breaks this is the culprit. If none does, the walk over the nodes is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from typing import Any, NamedTuple

from chainrule.core.display import shown
from chainrule.debug.culprit import Diagnosis, about
from chainrule.debug.finite_differences import derivative
from chainrule.debug.watched_run import Experiment


class Row(NamedTuple):
    """One input number: its two derivatives, and whether they agree.

    >>> gradcheck(lambda x: x * x, 3.0).rows[0].analytic
    6.0
    """

    name: str
    value: float
    analytic: float
    numerical: float
    error: float  # estimated, of `numerical`
    ok: bool
    note: str = ""

    @property
    def distance(self) -> float:
        """How far the two derivatives are apart."""
        difference = abs(self.analytic - self.numerical)
        return difference if isfinite(difference) else sys.float_info.max


class Report:
    """The outcome of `gradcheck`: iterable over its rows, true if all agree, a table when printed.

    >>> [row.name for row in gradcheck(lambda x, y: x / y, 3.0, 2.0)]
    ['x', 'y']
    """

    def __init__(self, rows: Sequence[Row], tolerance: float, diagnosis: str = "") -> None:
        self.rows, self.tolerance, self.diagnosis = tuple(rows), tolerance, diagnosis

    @property
    def ok(self) -> bool:
        """Whether every derivative agrees."""
        return all(row.ok for row in self.rows)

    def check(self) -> Report:
        """Return this report if all is well; otherwise raise an AssertionError that shows it."""
        if not self.ok:
            raise AssertionError(f"the gradient is wrong\n{self}")
        return self

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        table = [["input", "value", "analytic", "numerical", "error", ""]]
        for row in self.rows:
            numbers = [f"{number:.10g}" for number in (row.value, row.analytic, row.numerical)]
            table.append([row.name, *numbers, f"{row.error:.0e}", "ok" if row.ok else "WRONG"])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:5]), verdict]).rstrip()
            for name, *numbers, verdict in table
        ]
        return "\n".join([*lines, *self._sentences(self.rows)])

    __repr__ = __str__
    _repr_html_ = shown("html_of_report")

    def _sentences(self, rows: Sequence[Row]) -> list[str]:
        """What is said below a table of these rows."""
        agreeing = f"{sum(row.ok for row in self.rows)} of {len(self)} derivatives agree to {self.tolerance:g}."
        return [agreeing, *(f"{row.name}: {row.note}." for row in rows if row.note), *filter(None, [self.diagnosis])]


def gradcheck(f: Callable[..., Any], *inputs: Any, tolerance: float = 1e-7) -> Report:
    """Compare the derivatives of `f(*inputs)` that `backward()` computes with numerical ones.

    `f` returns one Value. Inputs are numbers, Values (chainrule's or of your own micrograd-like class) and lists,
    tuples, named tuples, dicts or arrays of them; `f` gets numbers as Values. Values are moved in place and restored,
    so `f` may also use them without taking them as arguments: `gradcheck(lambda *p: loss(model), *model.parameters())`.

    Print the report for a table. Write `assert gradcheck(...)` or `gradcheck(...).check()` in a test. At a
    corner, as of relu at 0, any slope between those of the two sides agrees, and the row says so.

    >>> print(gradcheck(lambda a, b: a * b + a, 2.0, 3.0))
    input  value  analytic  numerical  error
    a          2         4          4  1e-14  ok
    b          3         2          2  1e-14  ok
    2 of 2 derivatives agree to 1e-07.
    """
    if not 0.0 < tolerance < 1.0:
        raise ValueError(f"`tolerance` must lie between 0 and 1, got {tolerance!r}: 1e-7 asks for seven digits")
    experiment = Experiment(f, inputs)
    rows = [_row(experiment, index, slope, tolerance) for index, slope in enumerate(experiment.analytic())]
    wrong = [index for index, row in enumerate(rows) if not row.ok]
    if not wrong:
        return Report(rows, tolerance)
    worst = max(wrong, key=lambda index: (not rows[index].note, rows[index].distance))  # the clearest case
    return Report(rows, tolerance, Diagnosis(experiment, worst, rows[worst], tolerance).sentence())


def _row(experiment: Experiment, index: int, analytic: float, tolerance: float) -> Row:
    x = experiment.numbers[index]
    numerical = derivative(lambda number: experiment.result(index, number), x)
    ok = numerical.agrees(analytic, tolerance)
    note = ""
    if numerical.corner and not about(numerical.left, numerical.right):
        sides = f"left {numerical.left:.6g}, right {numerical.right:.6g}"
        note = f"not differentiable here? The one-sided derivatives differ: {sides}"
    elif not ok and not numerical.settled:
        note = f"the numerical derivative does not settle (error {numerical.error:.1g}); f may jump or be vertical here"
    return Row(experiment.names[index], x, analytic, numerical.value, numerical.error, ok, note)
