"""Checks of arguments: the number that was meant, or an error that names the argument and says what to do."""

from __future__ import annotations

import math
import operator
from random import Random
from typing import Any

from chainrule.core.quoting import quoted
from chainrule.ops import as_float

MOST = 1 << 53  # a float counts no further


def whole_number(number: Any, argument: str, least: int = 1) -> int:
    """`number` as an int of at least `least`, and not beyond what a float can count."""
    if not hasattr(number, "__index__") or number < least:
        raise ValueError(f"`{argument}` must be an int of at least {least}, got {quoted(number)}")
    if number > MOST:
        raise ValueError(f"`{argument}` must be at most {MOST:,}, got {quoted(number)}")
    return operator.index(number)


def setting(number: Any, argument: str, typical: str, below: float = math.inf) -> float:
    """`number` as a float in [0, below)."""
    value = as_float(number, argument)
    if not 0.0 <= value < below:
        expected = "finite" if below == math.inf else f"below {below:g}"
        raise ValueError(f"`{argument}` must be at least 0 and {expected}, got {value!r}: choose one such as {typical}")
    return value


def generator(rng: Any) -> Random | None:
    """`rng` as a generator: itself, or one made from an integer seed; None stays None."""
    if rng is None or isinstance(rng, Random):
        return rng
    if not hasattr(rng, "__index__"):
        raise TypeError(f"`rng` must be a random.Random or an integer seed, got {type(rng).__name__} {rng!r:.60}")
    return Random(operator.index(rng))
