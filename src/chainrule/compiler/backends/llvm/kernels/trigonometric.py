"""The trigonometric functions and their inverses."""

from __future__ import annotations

import math
from itertools import pairwise

from chainrule.compiler.backends.llvm.kernels.steps import fast_two_sum, polynomial, two_product, two_sum, unless_beyond
from chainrule.compiler.backends.llvm.text import DOUBLE
from chainrule.compiler.backends.llvm.vectors import (
    Vector,
    absolute,
    bits,
    converted,
    copysign,
    floats,
    fma,
    funnel,
    select,
    sqrt,
)

TWO_OVER_PI = (
    0,
    0xA2F9836E,
    0x4E441529,
    0xFC2757D1,
    0xF534DDC0,
    0xDB629599,
    0x3C439041,
    0xFE5163AB,
)  # behind the point


def sin(x: Vector) -> Vector:
    """± sin or cos of the remainder by π/2, by quadrant; x itself where x³ no longer counts, which keeps -0."""
    result = select(absolute(x) < x.format.cubes_vanish, x, wave(*near_quadrant(x), 0))
    return unless_beyond(x.format.farthest, x, result, library_sin if x.text.element is DOUBLE else far_sin)


def cos(x: Vector) -> Vector:
    """The sine, one quadrant on."""
    result = wave(*near_quadrant(x), 1)
    return unless_beyond(x.format.farthest, x, result, library_cos if x.text.element is DOUBLE else far_cos)


def tan(x: Vector) -> Vector:
    """The tangent of the remainder by π/2, or -1 over it, by quadrant; x itself where x³ no longer counts."""
    result = select(absolute(x) < x.format.cubes_vanish, x, slope(*near_quadrant(x)))
    return unless_beyond(x.format.farthest, x, result, far_tan)


def library_sin(x: Vector) -> Vector:
    """The sine of a large angle, by the mathematical library."""
    return Vector(x.text, x.text.library("sin", [x.name], x.lanes), x.lanes)


def library_cos(x: Vector) -> Vector:
    """The cosine of a large angle, by the mathematical library."""
    return Vector(x.text, x.text.library("cos", [x.name], x.lanes), x.lanes)


def far_sin(x: Vector) -> Vector:
    """The sine of a large angle."""
    return wave(*far_quadrant(x), 0)


def far_cos(x: Vector) -> Vector:
    """The cosine of a large angle."""
    return wave(*far_quadrant(x), 1)


def far_tan(x: Vector) -> Vector:
    """The tangent of a large angle."""
    return slope(*far_quadrant(x))


def atan(x: Vector) -> Vector:
    """The angle of the point (1, x)."""
    return atan2(x, x.constant(1.0))


def atan2(y: Vector, x: Vector) -> Vector:
    """The angle of the point (x, y): that of one in the first eighth of the turn, mirrored."""
    across, up = absolute(x), absolute(y)
    steep = up > across
    least, most = select(steep, across, up), select(steep, up, across)
    t = select(least == most, select(most == 0.0, 0.0, 1.0), least / most)  # also of two infinite ones
    z = t * t
    rest = t * z * polynomial(z, x.format.atan)
    is_left = copysign(x.constant(1.0), x) < 0.0
    high, low = (select(steep, part, select(is_left, 2.0 * part, 0.0)) for part in x.format.half_pi[:2])
    back = select(steep, select(is_left, 1.0, -1.0), select(is_left, -1.0, 1.0))
    total, lost = fast_two_sum(high, back * t)
    return copysign(total + (lost + fma(back, rest, low)), y)


def asin(x: Vector) -> Vector:
    """The angle of x up to ½; beyond, π/2 less twice that of √((1 - x) / 2)."""
    is_far, root, rest = half_angle(absolute(x))
    total, lost = fast_two_sum(x.constant(x.format.half_pi[0]), root * -2.0)
    beyond = total + (lost + fma(rest, -2.0, x.format.half_pi[1]))
    return copysign(select(is_far, beyond, root + rest), x)


def acos(x: Vector) -> Vector:
    """π/2 less the angle of x up to ½; beyond, twice that of √((1 - x) / 2), or π less it."""
    is_far, root, rest = half_angle(absolute(x))
    factor = select(is_far, 2.0, -1.0) * copysign(x.constant(1.0), x)
    high, low = (select(is_far, select(x < 0.0, 2.0 * part, 0.0), part) for part in x.format.half_pi[:2])
    total, lost = fast_two_sum(high, factor * root)
    return total + (lost + fma(factor, rest, low))


# Steps that kernels share.


def near_quadrant(x: Vector) -> tuple[Vector, Vector, Vector]:
    """n, in the lowest bits of a number, r and tail with x = n·π/2 + r + tail, |r| ≤ π/4, for |x| up to `farthest`.

    The remainder takes π/2 in three parts (Cody and Waite). The first product leaves an exact difference; what rounding
    loses of the second product and its difference goes to the tail, with the third. The error left is below 2^-118, and
    no double in range is nearer to a multiple of π/2 than 2^-61 (of floats: 2^-58, 2^-29).
    """
    rounder, parts = x.format.rounder, x.format.half_pi
    shifted = fma(x, 2.0 / math.pi, rounder)
    n = shifted - rounder
    second = n * parts[1]
    r, lost = two_sum(fma(n, -parts[0], x), -second)
    return shifted, r, fma(n, -parts[2], lost - fma(n, parts[1], -second))


def far_quadrant(x: Vector) -> tuple[Vector, Vector, Vector]:
    """The same for floats from 2¹⁵ on (Payne and Hanek): x·2/π modulo 4 in whole numbers; NaN where x is not finite.

    With x = m·2ᵏ⁻²³, those bits of 2/π do not count whose product with x is a multiple of 4: all before number k - 24.
    The next 96 suffice; of their product with m, the upper 64 of the lower 96 bits are x·2/π modulo 4 in units of 2⁻⁶².
    """
    digits = x.format.digits
    pattern = bits(absolute(x))
    place = (pattern >> digits) - (x.format.bias - 7)  # in the table, which begins with 32 zeros
    first, words = place >> 5, []
    for k in range(4):
        word = first.constant(TWO_OVER_PI[k])
        for later in range(1, len(TWO_OVER_PI) - 3):
            word = select(first == later, first.constant(TWO_OVER_PI[k + later]), word)
        words.append(word)
    shift = place & 31
    high, middle, low = (converted(funnel(a, b, shift), "zext", "i64") for a, b in pairwise(words))
    m = converted((pattern & (2**digits - 1)) | 2**digits, "zext", "i64")
    product = ((high * m) << 32) + (middle * m) + ((low * m) >> 32)
    quadrant = (product + 2**61) >> 62
    rest = product - (quadrant << 62)
    number = converted(rest, "sitofp", x.element)
    lost = converted(rest - converted(number, "fptosi", "i64"), "sitofp", x.element)
    first_part, second_part = (part * 2.0**-62 for part in x.format.half_pi[:2])
    sign = copysign(x.constant(1.0), x)
    r, tail = two_product(number * sign, first_part)
    tail = fma(number * sign, second_part, fma(lost * sign, first_part, tail))
    quadrants = converted(quadrant, "trunc", x.format.integer)
    turned = select(x < 0.0, quadrants.constant(0) - quadrants, quadrants)
    return floats(turned), select(absolute(x) < math.inf, r, math.nan), tail


def wave(shifted: Vector, r: Vector, tail: Vector, quadrants: int) -> Vector:
    """sin(r + tail + (n + quadrants)·π/2), n being the lowest bits of a number."""
    z = r * r
    sine = r + fma(r * z, polynomial(z, r.format.sin), tail)
    half = z * 0.5
    nearly = 1.0 - half
    cosine = nearly + (((1.0 - nearly) - half) + fma(z * z, polynomial(z, r.format.cos), -(r * tail)))
    quadrant = bits(shifted) + quadrants
    chosen = select((quadrant & 1) == 1, cosine, sine)
    return floats(bits(chosen) ^ ((quadrant & 2) << (8 * r.format.element.bytes - 2)))


def slope(shifted: Vector, r: Vector, tail: Vector) -> Vector:
    """tan(r + tail + n·π/2), n being the lowest bits of a number; 1 over a tangent of two parts needs a correction."""
    z = r * r
    curve = r * z * polynomial(z, r.format.tan)
    near = r + curve
    total, lost = fast_two_sum(r, curve + fma(near * near, tail, tail))
    inverse = -1.0 / total
    wrong = fma(inverse, lost, fma(inverse, total, 1.0))
    return select((bits(shifted) & 1) == 1, fma(wrong, inverse, inverse), total)


def half_angle(a: Vector) -> tuple[Vector, Vector, Vector]:
    """Whether a > ½; and asin(a), but beyond ½ asin(√((1 - a) / 2)), as a number and a small rest."""
    is_far = a > 0.5
    z = select(is_far, fma(a, -0.5, 0.5), a * a)
    root = select(is_far, sqrt(z), a)
    return is_far, root, root * z * polynomial(z, a.format.asin)
