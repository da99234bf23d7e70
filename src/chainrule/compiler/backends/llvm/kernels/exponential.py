"""The exponential and hyperbolic functions."""

from __future__ import annotations

import math

from chainrule.compiler.backends.llvm.kernels.steps import (
    at_most,
    fast_two_sum,
    ldexp,
    nearest,
    polynomial,
    power_of_2,
    two_sum,
    unless_beyond,
    within,
)
from chainrule.compiler.backends.llvm.vectors import Vector, absolute, bits, copysign, floats, fma, select


def exp(x: Vector) -> Vector:
    """eˣ = 2ⁿ·eʳ with n = round(x / log 2) and |r| ≤ log(2)/2: n is added to the exponent of eʳ, if that is in range.

    Where the result is 0 another x takes part: masks are often -∞, and arithmetic on what underflows is slow.
    """
    vanishes = x < x.format.underflow
    x = select(vanishes, 0.0, x)
    power, shifted = exp_of_remainder(x)
    result = floats(bits(power) + (bits(shifted) << x.format.digits))
    limit = (x.format.bias - 2) * math.log(2.0)
    return select(vanishes, 0.0, unless_beyond(limit, x, result, extreme_exp))


def extreme_exp(x: Vector) -> Vector:
    """eˣ where it or 2ⁿ is hardly in range, or x is NaN."""
    power, shifted = exp_of_remainder(at_most(x.format.overflow, x))
    return ldexp(power, shifted - x.format.rounder)


def expm1(x: Vector) -> Vector:
    """eˣ - 1, as twice its half, which cannot overflow before its time; x itself where x² no longer counts."""
    high, low = half_expm1(at_most(x.format.overflow, select(x < -x.format.flat, -x.format.flat, x)))
    return select(absolute(x) < x.format.negligible, x, (high + low) * 2.0)


def tanh(x: Vector) -> Vector:
    """h / (1 + h) with h = (e^2|x| - 1) / 2, in two numbers each; one step corrects the quotient."""
    high, low = fast_two_sum(*half_expm1(at_most(x.format.flat, absolute(x) * 2.0)))  # beyond: 1
    divisor, rest = two_sum(high, 1.0)
    inverse = 1.0 / divisor
    quotient = high * inverse
    missing = fma(-quotient, divisor, high) + fma(-quotient, rest + low, low)
    return copysign(fma(missing, inverse, quotient), x)


def exp2(x: Vector) -> Vector:
    """2ˣ = 2ⁿ·2ʳ with n = round(x) and |r| ≤ ½; beyond ±(bias + digits + 2) nothing changes."""
    x = within(x.format.bias + x.format.digits + 2, x)
    n = nearest(x)
    return ldexp(exp2_of_remainder(x - n), n)


def sinh(x: Vector) -> Vector:
    """(eˣ - e⁻ˣ) / 2 = 2v + 2v / (1 + 4v) with v = (e^|x| - 1) / 4; near 0 a polynomial."""
    a = absolute(x)
    high, low = half_expm1(at_most(x.format.overflow + 0.5, a), 0.25)
    v = high + low
    far = (high + (low + v / fma(v, 4.0, 1.0))) * 2.0
    z = a * a
    return copysign(select(a < 1.0, fma(a * z, polynomial(z, x.format.sinh), a), far), x)


def cosh(x: Vector) -> Vector:
    """(eˣ + e⁻ˣ) / 2 = 2q + 1 / (8q) with q = e^|x| / 4."""
    power, shifted = exp_of_remainder(at_most(x.format.overflow + 0.5, absolute(x)))
    q = power * power_of_2(shifted - (x.format.rounder + 2.0))
    return (q + 0.0625 / q) * 2.0


# Steps that kernels share.


def remainder_by_log2(x: Vector) -> tuple[Vector, Vector, Vector]:
    """n + rounder, r and tail with x = n·log 2 + r + tail; r is exact, as x and n·log2[0] are close and short."""
    first, second = x.format.log2
    shifted = fma(x, 1.0 / math.log(2.0), x.format.rounder)  # n in the lowest bits
    n = shifted - x.format.rounder
    return shifted, fma(n, -first, x), n * -second


def exp_of_remainder(x: Vector) -> tuple[Vector, Vector]:
    """eʳ = 1 + (r + r²·P(r)), and n + rounder, with x = n·log 2 + r."""
    shifted, r, tail = remainder_by_log2(x)
    r = r + tail
    return fma(r * r, polynomial(r, x.format.exp), r) + 1.0, shifted


def half_expm1(x: Vector, half: float = 0.5) -> tuple[Vector, Vector]:
    """(eˣ - 1) / 2 = 2ⁿ⁻¹·(eʳ - 1) + (2ⁿ⁻¹ - ½), as a number and a small rest; x up to `overflow`.

    `half` may be a smaller power of 2, for a larger x.
    """
    shifted, r, tail = remainder_by_log2(x)
    near = r + tail
    curved = near * near * polynomial(near, x.format.exp)
    scale = floats((bits(shifted) << x.format.digits) + x.format.pattern(half))
    high, low = fast_two_sum(scale - half, scale * r)
    return high, fma(scale, curved + tail, low)


def exp2_of_remainder(r: Vector) -> Vector:
    """2ʳ = 1 + r·P(r) for |r| ≤ ½, and a little more."""
    return fma(r, polynomial(r, r.format.exp2), 1.0)
