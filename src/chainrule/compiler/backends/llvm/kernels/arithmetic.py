"""Functions of two numbers: power, distance, remainder."""

from __future__ import annotations

import math

from chainrule.compiler.backends.llvm.kernels.exponential import exp2_of_remainder
from chainrule.compiler.backends.llvm.kernels.logarithm import normal_split
from chainrule.compiler.backends.llvm.kernels.steps import (
    fast_two_sum,
    ldexp,
    nearest,
    polynomial,
    power_of_2,
    two_product,
    unless,
    within,
)
from chainrule.compiler.backends.llvm.vectors import Vector, absolute, bits, copysign, floats, fma, select, sqrt, trunc


def pow(x: Vector, y: Vector) -> Vector:
    """xʸ = 2^(y·log₂|x|), logarithm and product in two numbers; odd y keep the sign of x, others need x ≥ 0."""
    a = absolute(x)
    high, low = log2_in_two(a)
    most = within(2.0 ** (x.format.digits + 9), y)  # beyond, every power but those of 1 is 0 or infinite
    product, rest = two_product(most, high)
    result = exp2_in_two(product, fma(most, low, rest))
    result = select((a == 0.0) | (a == math.inf), select(y < 0.0, 1.0 / a, a), result)
    half = y * 0.5
    is_whole, is_even = trunc(y) == y, trunc(half) == half
    result = select(x < 0.0, select(is_whole | (a == math.inf), result, math.nan), result)
    result = select(is_whole, select(is_even, result, copysign(result, x)), result)
    result = select((x == x) & (y == y), result, math.nan)
    return select((y == 0.0) | (x == 1.0), 1.0, result)


def hypot(x: Vector, y: Vector) -> Vector:
    """√(x² + y²), scaled so that the larger square is in range."""
    a, b = absolute(x), absolute(y)
    most = select(a > b, a, b)
    scale = select(most > 2.0**60, 2.0**-64, select(most < 2.0**-40, 2.0**80, 1.0))
    back = select(most > 2.0**60, 2.0**64, select(most < 2.0**-40, 2.0**-80, 1.0))
    a, b = a * scale, b * scale
    result = sqrt(fma(a, a, b * b)) * back
    return select((absolute(x) == math.inf) | (absolute(y) == math.inf), math.inf, result)


def fmod(x: Vector, y: Vector) -> Vector:
    """What is left of x / y rounded towards 0, exactly; by long division where the quotient is large."""
    a, b = absolute(x), absolute(y)
    quotient = a / b
    result = copysign(select(a < b, a, remainder(a, b, quotient)), x)
    beyond = quotient.emit(f"fcmp uge {x.kind} {quotient.name}, {x.constant(2.0**x.format.digits).name}", "i1")
    return unless(beyond, [x, y], result, long_fmod)


def long_fmod(x: Vector, y: Vector) -> Vector:
    """The remainder where the quotient is large, 0 / 0 or ∞ / ∞, or a number is NaN: some digits a turn."""
    a, b = absolute(x), absolute(y)
    m, exponent = mantissa(a)
    divisor, last = mantissa(b)
    n, step = exponent - last, x.format.digits - 1.0
    m = select(m < divisor, m, m - divisor)
    turns = math.ceil((2 * x.format.bias + x.format.digits) / step)
    for _ in range(turns):
        shift = select(n > step, step, n)
        m = m * power_of_2(shift)
        m = remainder(m, divisor, m / divisor)
        n = n - shift
    result = select(a < b, a, ldexp(m, last))
    return copysign(select((a < math.inf) & (b > 0.0), result, math.nan), x)


# Steps that kernels share.


def remainder(a: Vector, b: Vector, quotient: Vector) -> Vector:
    """a less b times the whole part of a / b, which is rounded, perhaps up to a whole number."""
    rest = fma(trunc(quotient), -b, a)
    return select(rest < 0.0, rest + b, rest)


def mantissa(x: Vector) -> tuple[Vector, Vector]:
    """m and k of x = m·2ᵏ, 1 ≤ m < 2, for x > 0."""
    subnormal, more = x < x.format.normal, x.format.digits + 2
    pattern, digits, whole = bits(select(subnormal, x * 2.0**more, x)), x.format.digits, 2.0**x.format.digits
    k = floats((pattern >> digits) | x.format.pattern(whole)) - (whole + x.format.bias)
    m = floats((pattern & (2**digits - 1)) | x.format.pattern(1.0))
    return m, select(subnormal, k - more, k)


def log2_in_two(x: Vector) -> tuple[Vector, Vector]:
    """log₂ x as a number and a small rest, for a positive x.

    As in `log_of_parts`, with s = f / (2 + f), log(1 + f) = 2·(s + s³·(1/3 + s²·P(s²))); all but P is in two numbers.
    """
    f, k = normal_split(x)
    below, below_lost = fast_two_sum(f.constant(2.0), f)
    inverse = 1.0 / below
    s = f * inverse
    s_rest = fma(-s, below_lost, fma(-s, below, f)) * inverse
    z, z_rest = two_product(s, s)
    z_rest = fma(s * 2.0, s_rest, z_rest)
    third = f.format.third
    q, q_rest = fast_two_sum(f.constant(third[0]), z * polynomial(z, f.format.artanh))
    t, t_rest = two_product(z, q)
    t_rest = fma(z, q_rest + third[1], fma(z_rest, q, t_rest))
    curve, curve_rest = two_product(s, t)
    total, lost = fast_two_sum(s, curve)
    lost = lost + (s_rest + fma(s, t_rest, fma(s_rest, t, curve_rest)))
    first, second = (2.0 * part for part in f.format.per_log2)
    product, rest = two_product(total, first)
    rest = fma(lost, first, fma(total, second, rest))
    total, lost = fast_two_sum(k, product)
    return total, lost + rest


def exp2_in_two(x: Vector, rest: Vector) -> Vector:
    """2^(x + rest); beyond ±(bias + digits + 2) nothing changes."""
    most = x.format.bias + x.format.digits + 2.0
    rest = select(absolute(x) > most, 0.0, rest)
    x = within(most, x)
    n = nearest(x)
    return ldexp(exp2_of_remainder((x - n) + rest), n)
