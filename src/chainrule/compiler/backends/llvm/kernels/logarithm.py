"""Logarithms, and the inverses of the hyperbolic functions."""

from __future__ import annotations

import math

from chainrule.compiler.backends.llvm.kernels.steps import fast_two_sum, polynomial, power_of_2, two_product, two_sum
from chainrule.compiler.backends.llvm.vectors import (
    Operand,
    Vector,
    absolute,
    bits,
    copysign,
    floats,
    fma,
    select,
    sqrt,
)


def log(x: Vector) -> Vector:
    """log x = k·log 2 + log(1 + f) with x = 2ᵏ·(1 + f), √½ ≤ 1 + f < √2. Subnormal x is scaled first."""
    return with_pole(x, 0.0, log_of_parts(*normal_split(x)))


def log1p(x: Vector) -> Vector:
    """log(1 + x): as `log`, where f also takes what rounding 1 + x lost; x itself where x² no longer counts."""
    f, k, rest = split_in_two(*two_sum(x, 1.0))
    result = select(absolute(x) < x.format.negligible, x, log_of_parts(f, k, rest))
    return with_pole(x, -1.0, result)


def log2(x: Vector) -> Vector:
    """The logarithm to base 2."""
    return log_in_base(x, x.format.per_log2, (1.0, 0.0))


def log10(x: Vector) -> Vector:
    """The logarithm to base 10."""
    return log_in_base(x, x.format.per_log10, x.format.log10_of_2)


def asinh(x: Vector) -> Vector:
    """log(x + √(x² + 1)); near 0 a polynomial."""
    a = absolute(x)
    z = a * a
    near = fma(a * z, polynomial(z, x.format.asinh), a)
    return copysign(select(a < 0.5, near, select(a < math.inf, log_with_root(a, 1.0), a)), x)


def acosh(x: Vector) -> Vector:
    """log(x + √(x² - 1))."""
    result = select(x < math.inf, log_with_root(x, -1.0), x)
    return select(x < 1.0, math.nan, result)


def atanh(x: Vector) -> Vector:
    """log(1 + 2a / (1 - a)) / 2 with a = |x|, the quotient as a number and a small rest; near 0 x itself."""
    a = absolute(x)
    below, below_lost = fast_two_sum(x.constant(1.0), -a)
    inverse = 1.0 / below
    quotient = a * 2.0 * inverse
    rest = fma(-quotient, below_lost, fma(-quotient, below, a * 2.0)) * inverse
    total, lost = two_sum(quotient, 1.0)
    result = log_of_parts(*split_in_two(total, lost + rest)) * 0.5
    result = select(a < x.format.cubes_vanish, a, select(a == 1.0, math.inf, select(a < 1.0, result, math.nan)))
    return copysign(result, x)


# Steps that kernels share.


def split(x: Vector) -> tuple[Vector, Vector]:
    """f and k with x = 2ᵏ·(1 + f), √½ ≤ 1 + f < √2, both exact; x positive and normal."""
    pattern, digits, whole = x.format.pattern, x.format.digits, 2.0**x.format.digits
    root = pattern(math.sqrt(0.5))
    shifted = bits(x) + (pattern(1.0) - root)
    k = floats((shifted >> digits) | pattern(whole)) - (whole + x.format.bias)
    return floats((shifted & (2**digits - 1)) + root) - 1.0, k


def split_in_two(x: Vector, rest: Vector) -> tuple[Vector, Vector, Vector]:
    """f, k and a small rest with x + rest = 2ᵏ·(1 + f + rest); the rest given counts only where x is not too large."""
    f, k = split(x)
    f, rest = fast_two_sum(f, select(k < x.format.digits + 12.0, rest * power_of_2(-k), 0.0))
    return f, k, rest


def log_of_parts(f: Vector, k: Vector, rest: Operand = 0.0) -> Vector:
    """k·log 2 + log(1 + f) + rest, where log(1 + f) = 2 artanh s = 2s + s³·P(s²) with s = f / (2 + f).

    As 2s = f - s·f and s·f = f²/2 - s·f²/2, all but f, which is exact, is small: f - (f²/2 - s·(f²/2 + s²·P)).
    """
    first, second = f.format.log2
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    small = fma(s, fma(z, polynomial(z, f.format.log), half_square), fma(k, second, rest))
    return fma(k, first, f - (half_square - small))


def with_pole(x: Vector, pole: float, result: Vector) -> Vector:
    """`result` of a logarithm for x above its pole; -∞ at the pole, NaN below; ∞ and NaN as they are."""
    result = select(x < math.inf, result, x)
    return select(x > pole, result, select(x == pole, -math.inf, math.nan))


def normal_split(x: Vector) -> tuple[Vector, Vector]:
    """f and k as in `split`, for x that may be subnormal."""
    subnormal, more = x < x.format.normal, x.format.digits + 2
    f, k = split(select(subnormal, x * 2.0**more, x))
    return f, select(subnormal, k - more, k)


def log_in_base(x: Vector, factor: tuple[float, ...], log_of_2: tuple[float, ...]) -> Vector:
    """k·log_of_2 + factor·log(1 + f), the constants in two parts; so is log(1 + f), which is as in `log_of_parts`."""
    f, k = normal_split(x)
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    small = s * fma(z, polynomial(z, f.format.log), half_square)
    high, lost = fast_two_sum(f, -half_square)
    product, rest = two_product(high, factor[0])
    rest = fma(lost + small, factor[0], fma(high, factor[1], rest))
    total, lost = fast_two_sum(k * log_of_2[0], product)
    return with_pole(x, 0.0, total + (lost + fma(k, log_of_2[1], rest)))


def log_with_root(x: Vector, one: float) -> Vector:
    """log(x + √(x² + one)) for a finite x ≥ 1, or ½ where `one` is not negative; far away the root is x."""
    far = x > 2.0**x.format.digits
    square, lost = two_product(x, x)
    total, rest = two_sum(square, one)
    root = sqrt(total)
    correction = select(total > 0.0, (fma(-root, root, total) + (rest + lost)) * (0.5 / root), 0.0)
    total, lost = fast_two_sum(x, root) if one < 0.0 else fast_two_sum(root, x)
    f, k, rest = split_in_two(select(far, x, total), select(far, 0.0, lost + correction))
    return log_of_parts(f, k + select(far, 1.0, 0.0), rest)
