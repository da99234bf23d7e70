"""The error function and its complement."""

from __future__ import annotations

from chainrule.compiler.backends.llvm.kernels.exponential import exp_of_remainder, remainder_by_log2
from chainrule.compiler.backends.llvm.kernels.steps import at_most, fast_two_sum, ldexp, polynomial, two_product
from chainrule.compiler.backends.llvm.vectors import Vector, absolute, bits, copysign, floats, fma, select


def erf(x: Vector) -> Vector:
    """x + x·P(x²) up to 0.9; beyond, 1 - exp(Q(x)); from 4 on, 1."""
    power, shifted = exp_of_remainder(polynomial(at_most(4.0, absolute(x)), x.format.log_erfc))
    rest = floats(bits(power) + (bits(shifted) << x.format.digits))
    return select(absolute(x) > 0.9, copysign(1.0 - rest, x), erf_near_0(x))


def erfc(x: Vector) -> Vector:
    """1 - erf(x) up to 0.47; beyond, exp(-x²)·g(x), both in two numbers, and on the other side 2 - erfc(-x)."""
    a = at_most(10.5, absolute(x))  # from there on 0
    power, power_rest, n = exp_of_minus_square(a)
    g, g_rest = erfc_over_exp(a)
    tail = ldexp(fma(power, g, fma(power, g_rest, power_rest * g)), n)
    far = select(x < 0.0, 2.0 - tail, tail)
    return select(absolute(x) > 0.47, far, 1.0 - erf_near_0(x))


# Steps that kernels share.


def erf_near_0(x: Vector) -> Vector:
    """erf(x) for |x| ≤ 0.9."""
    return fma(x, polynomial(x * x, x.format.erf), x)


def exp_of_minus_square(x: Vector) -> tuple[Vector, Vector, Vector]:
    """exp(-x²) = (power + rest)·2ⁿ, as `exp_of_remainder` finds it."""
    square, lost = two_product(x, x)
    shifted, r, tail = remainder_by_log2(-square)
    r, tail = fast_two_sum(r, tail - lost)
    power, rest = fast_two_sum(x.constant(1.0), r)
    return power, rest + fma(r * r, polynomial(r, x.format.exp), tail), shifted - x.format.rounder


def erfc_over_exp(x: Vector) -> tuple[Vector, Vector]:
    """exp(x²)·erfc(x) for 0.47 ≤ x ≤ 10.5, in two numbers: a polynomial in t = (x - 4) / (x + 4), over 1 + 2x."""
    t = (x - 4.0) / (x + 4.0)
    first, first_rest, *others = x.format.erfc
    total, rest = fast_two_sum(x.constant(first), fma(t, polynomial(t, others), first_rest))
    below, lost = fast_two_sum(x * 2.0, x.constant(1.0))
    inverse = 1.0 / below
    quotient = total * inverse
    return quotient, fma(-quotient, lost, fma(-quotient, below, total) + rest) * inverse
