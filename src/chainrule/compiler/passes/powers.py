"""Powers with a known exponent: by multiplication where it is a small whole number, by roots where it is a half.

`pow` and `sqrt` disagree at two places: (-0.0)**0.5 is 0.0 and (-inf)**0.5 is inf, where roots are -0.0 and NaN. So the
base of a half power is taken without its sign there, as if `pow` had been asked.
"""

from __future__ import annotations

from typing import Any

from chainrule import ops

MOST = 16


def power(base: Any, exponent: float) -> Any:
    """`base ** exponent` without a general power, for anything that rules run on; None if it needs one.

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
