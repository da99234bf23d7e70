"""Functions of two numbers: power, distance, remainder."""

from chainrule.wasm.elementary.exponential import exp_times
from chainrule.wasm.elementary.logarithm import log_pair
from chainrule.wasm.elementary.pairs import (
    INF,
    NAN,
    common_scale,
    normalized,
    quick_sum,
    scaled,
    square_root,
    two_product,
)
from chainrule.wasm.primitives import absolute, copysign, exponent, power_of_2, trunc


def pow_edge(x: float, y: float) -> float:
    """xʸ for x ≥ 0 where one of them is 0, infinite or NaN, and for x = 1."""
    if y == 0.0 or x == 1.0:
        return 1.0
    if x != x or y != y:
        return NAN
    return INF if (x > 1.0 and y > 0.0) or (x < 1.0 and y < 0.0) else 0.0


def pow(x: float, y: float) -> float:
    """xʸ = exp(y·log x), logarithm and product as pairs; odd y keep the sign of x. Beyond ±1e19 nothing changes."""
    a = absolute(x)
    sign = copysign(1.0, x) if absolute(y - 2.0 * trunc(0.5 * y)) == 1.0 else 1.0
    if x < 0.0 and x > -INF and y != trunc(y):
        return NAN
    if not (a > 0.0 and a < INF and absolute(y) < INF and a != 1.0):
        return sign * pow_edge(a, y)
    y = copysign(1e19, y) if absolute(y) > 1e19 else y
    total, rest = log_pair(a)
    product, lost = two_product(y, total)
    return sign * exp_times(product, lost + y * rest, 1.0, 0.0)


def hypot(x: float, y: float) -> float:
    """√(x² + y²), scaled so that the squares are normal; a far smaller number does not count."""
    a, b = absolute(x), absolute(y)
    if a == INF or b == INF:
        return INF
    if a != a or b != b:
        return NAN
    if b > a:
        a, b = b, a
    if b <= 1e-9 * a:
        return a
    scale = common_scale(a)
    a, b = a * scale, b * scale
    square, rest = two_product(a, a)
    other, other_rest = two_product(b, b)
    square, lost = quick_sum(square, other)
    root, root_rest = square_root(square, lost + (rest + other_rest))
    return scaled(root, root_rest, -exponent(scale))


def fmod(x: float, y: float) -> float:
    """What is left of x / y rounded towards 0: long division of the mantissas, 50 bits at a time, all of it exact."""
    a, b = absolute(x), absolute(y)
    if not (a < INF and b > 0.0):
        return NAN
    if a < b:
        return x
    a, n = normalized(a)
    b, k = normalized(b)
    n = n - k
    a = a - b if a >= b else a
    while n > 0.0:
        shift = 50.0 if n > 50.0 else n
        a = a * power_of_2(shift)
        product, rest = two_product(trunc(a / b), b)
        a = (a - product) - rest
        a = a + b if a < 0.0 else a  # where the quotient was rounded up to a whole number
        n = n - shift
    return copysign(scaled(a, 0.0, k), x)
