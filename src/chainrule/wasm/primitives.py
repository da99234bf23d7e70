"""What `elementary.py` is made of besides arithmetic: operations that WebAssembly has, or that are a few of its bits.

Here they are Python functions of floats, so that the elementary functions can be run and tested as they stand.
"""

import math

from chainrule import ops


def sqrt(x: float) -> float:
    """The square root: `f64.sqrt`."""
    return float(ops.sqrt.forward(x))


def floor(x: float) -> float:
    """The next whole number below: `f64.floor`."""
    return float(ops.floor.forward(x))


def trunc(x: float) -> float:
    """The next whole number towards 0: `f64.trunc`."""
    return float(ops.trunc.forward(x))


def nearest(x: float) -> float:
    """The nearest whole number; of two, the even one: `f64.nearest`."""
    return float(ops.rint.forward(x))


def absolute(x: float) -> float:
    """x without its sign: `f64.abs`."""
    return math.fabs(x)


def copysign(x: float, y: float) -> float:
    """x with the sign of y: `f64.copysign`."""
    return math.copysign(x, y)


def exponent(x: float) -> float:
    """The e of 2ᵉ ≤ x < 2ᵉ⁺¹, for a positive normal x: bits 52 to 62, less 1023."""
    return math.frexp(x)[1] - 1.0


def power_of_2(n: float) -> float:
    """2ⁿ for a whole n from -1022 to 1023: n + 1023 in bits 52 to 62."""
    if not (-1022.0 <= n <= 1023.0 and n == math.floor(n)):
        raise ValueError(f"`n` must be a whole number from -1022 to 1023, got {n}")
    return math.ldexp(1.0, int(n))


def horner(x: float, coefficients: tuple[float, ...]) -> float:
    """Σ coefficients[i]·xⁱ by Horner's scheme, unrolled in WebAssembly."""
    total = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total
