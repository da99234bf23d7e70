"""Powers with a known exponent: by multiplication for small integers, by a square root for halves.

`pow` and `sqrt` disagree in two places: (-0.0)**0.5 is 0.0 and (-inf)**0.5 is inf, where the roots are -0.0 and NaN.
There, the base of a half power loses its sign, so that the result is that of `pow`.
"""

from __future__ import annotations

from typing import Any

from chainrule import ops

MOST = 16


def power(base: Any, exponent: float) -> Any:
    """`base ** exponent` without `pow`, for anything that rules run on; None if that is impossible.

    >>> power(3.0, 4.0), power(4.0, -1.5), power(2.0, 0.3)
    (81.0, 0.125, None)
    """
    whole = abs(exponent)
    if whole > MOST or not (2 * whole).is_integer():
        return None
    result = None
    if not whole.is_integer():
        base = ops.where(ops.eq(base, 0.0) + ops.eq(base, -ops.INF), ops.abs_(base), base)
        result = ops.sqrt(base)
    square, bits = base, int(whole)
    while bits:
        if bits & 1:
            result = square if result is None else result * square
        bits >>= 1
        if bits:
            square = square * square
    if result is None:
        return 1.0
    return result if exponent > 0 else ops.div(1.0, result)
