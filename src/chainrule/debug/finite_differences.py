"""Numerical derivatives: central differences, extrapolated to a step of zero.

Over a large step the curve bends; over a small one its movement drowns in rounding. Ridders' method takes a falling
series of steps, removes the error's known powers of the step one by one (Neville's tableau) and keeps the entry on
which its neighbours agree best; their disagreement is the error estimate. Here the series is begun at several sizes,
because no one first step suits `x**2` at 1e8, `log` at 1e-8 and `sin(1e6 * x)` at 0. The same samples tell a corner.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import inf, isfinite, nan
from typing import NamedTuple

EPSILON = sys.float_info.epsilon
SHRINK = 1.7  # not a power of two, lest the steps fall into step with a periodic function
LEVELS = 9  # steps in one series
SERIES = 8  # first steps to try, each 64 times smaller
GOAL = 1e-10  # relative error at which no smaller first step is tried


class Derivative(NamedTuple):
    """A slope with its estimated error; `left` and `right` differ where the function has a corner."""

    value: float
    error: float
    left: float
    right: float

    @property
    def corner(self) -> bool:
        """Whether the slope to the left is not the slope to the right.

        >>> derivative(abs, 0.0).corner
        True
        """
        return self.left < self.right or self.left > self.right

    @property
    def settled(self) -> bool:
        """Whether the value is known to one part in a thousand, or to be about zero.

        >>> derivative(lambda x: x**0.5, 0.0).settled
        False
        """
        return self.error <= 1e-3 * max(abs(self.value), abs(self.left), abs(self.right)) + 1e-7

    def agrees(self, slope: float, tolerance: float) -> bool:
        """Whether `slope` is this derivative, to a relative tolerance and what rounding can explain.

        At a corner every slope between left and right will do. The error estimate excuses at most one part in
        a hundred: a slope further off than that is wrong or cannot be confirmed.

        >>> derivative(lambda x: x * x, 3.0).agrees(6.0, tolerance=1e-7)
        True
        """
        if not isfinite(slope):
            return False
        scale = max(abs(slope), abs(self.left), abs(self.right))
        slack = tolerance * scale + min(16.0 * self.error, 0.01 * scale + tolerance) + 64 * EPSILON
        return self.distance(slope) <= slack

    def distance(self, slope: float) -> float:
        """How far `slope` is from this derivative; at a corner, from the slopes between left and right.

        >>> derivative(abs, 0.0).distance(0.5), derivative(abs, 0.0).distance(3.0)
        (0.0, 2.0)
        """
        low, high = min(self.left, self.right), max(self.left, self.right)
        return slope if slope != slope else max(low - slope, slope - high, 0.0)


def derivative(f: Callable[[float], float], x: float) -> Derivative:
    """The derivative of `f` at `x`, from values of `f` alone.

    Where `f` is NaN or infinite on one side, the other side decides. Complex results and exceptions of
    arithmetic (`math domain error`, division by zero) count as NaN.

    >>> round(derivative(lambda x: x**3, 2.0).value, 9)
    12.0
    """
    here = _sample(f, x)
    smooth = corner = Derivative(nan, inf, nan, nan)
    resolved: list[Derivative] = []
    steps = _first_steps(x)
    for step in steps:
        found, is_resolved = _series(f, x, here, step)
        if found.corner:
            corner = min(corner, found, key=_doubt)
        elif not any(abs(found.value - wide.value) > 16.0 * (found.error + wide.error) for wide in resolved):
            smooth = min(smooth, found, key=_doubt)
            resolved += [found] * is_resolved
        if smooth.error <= GOAL * abs(smooth.value) + 8.0 * EPSILON * abs(here) / steps[0]:
            break
    # What looks like a corner from afar may be a bend: a slope between the two that is sure of itself wins.
    gap = abs(corner.right - corner.left)
    bend = smooth.error <= 1e-3 * gap and abs(smooth.value - corner.value) <= 0.6 * gap
    return corner if isfinite(gap) and not bend else smooth


def _first_steps(x: float) -> list[float]:
    """Falling steps on the scale of 1 or of x, whichever is larger, and early on a few on that of a small x.

    A few only: steps far below 1 see the rounding of whatever of size 1 takes part in `f`.
    """
    steps = [0.11 * max(1.0, abs(x)) / 64**k for k in range(SERIES)]
    if 0.0 < abs(x) < 0.1:
        steps[1:1] = [0.11 * abs(x) / 64**k for k in range(3)]
    return steps


def _doubt(slope: Derivative) -> tuple[bool, float]:
    """Sorts the surer first: those with some correct digits by the number of these, then by the error itself."""
    scale = abs(slope.value)
    return (False, slope.error / scale) if slope.error < 1e-3 * scale else (True, slope.error)


def _series(f: Callable[[float], float], x: float, here: float, first_step: float) -> tuple[Derivative, bool]:
    """The derivative as seen by steps that fall from the first, and whether they resolve it.

    They do if the error is rounding's doing: nothing against f's movement, or against numbers of size 1, with some
    digits right. Smaller steps that see another slope then see the rounding inside `f`.
    """
    left: list[float] = []  # difference quotients, one a step
    right: list[float] = []
    central: list[float] = []
    noise: list[float] = []  # what rounding of f can do to them
    best = Derivative(nan, inf, nan, nan)
    step, extent = first_step, inf
    for _ in range(LEVELS):
        step = (x + step) - x  # both neighbours are then floats, equally far away
        above, below = x + step, x - step
        if above == x or below == x:
            break
        f_above, f_below = _sample(f, above), _sample(f, below)
        if not noise:
            extent = min(abs(f_above), abs(f_below), abs(f_above - here), abs(f_below - here))
        noise.append(EPSILON * max(abs(here), *(abs(v) for v in (f_above, f_below) if isfinite(v)), 0.0) / step)
        right.append((f_above - here) / (above - x))
        left.append((here - f_below) / (x - below))
        central.append((f_above - f_below) / (above - below))
        found = _read(left, right, central, noise)
        step /= SHRINK
        if len(noise) > 3 and not found.error < 0.7 * best.error:
            best = min(found, best, key=lambda slope: slope.error)
            break
        best = found
        if len(noise) > 2 and found.error <= GOAL * 1e-2 * abs(found.value):
            break
    wobble = best.error * first_step
    some_digits = best.error < 1e-4 * abs(best.value)
    return best, wobble <= 1e-10 * extent < inf or (some_digits and wobble <= 64.0 * EPSILON)


def _read(left: list[float], right: list[float], central: list[float], noise: list[float]) -> Derivative:
    """What difference quotients say: of both sides where there are both, else of the one."""
    if not all(map(isfinite, central)):
        side = right if all(map(isfinite, right)) else left
        slope, error = _limit(side, noise, SHRINK)
        return Derivative(slope, error, slope, slope)
    slope, error = _limit(central, noise, SHRINK**2)  # odd powers of the step cancel
    gap, doubt = _limit([r - q for q, r in zip(left, right, strict=True)], noise, SHRINK)
    (minus, minus_error), (plus, plus_error) = _limit(left, noise, SHRINK), _limit(right, noise, SHRINK)
    side_error = max(minus_error, plus_error)
    if abs(gap) > 10.0 * max(doubt, side_error) and abs(gap) > 1e-10 * abs(slope):
        return Derivative((minus + plus) / 2.0, side_error, minus, plus)
    return Derivative(slope, error, slope, slope)


def _limit(quotients: Sequence[float], noise: Sequence[float], ratio: float) -> tuple[float, float]:
    """Neville's extrapolation to step 0 of quotients whose error is a series in 1/ratio, and its error."""
    best, error = nan, inf
    above: list[float] = []
    for quotient, rounding in zip(quotients, noise, strict=True):
        row, factor = [quotient], ratio
        for shorter in above:
            entry = row[-1] + (row[-1] - shorter) / (factor - 1.0)
            spread = max(abs(entry - row[-1]), abs(entry - shorter)) + rounding
            if spread < error:
                best, error = entry, spread
            row.append(entry)
            factor *= ratio
        above = row
    return best, error


def _sample(f: Callable[[float], float], x: float) -> float:
    try:
        return float(f(x))
    except (ArithmeticError, ValueError, TypeError):  # TypeError: (-1.0) ** 0.5 is complex
        return nan
