"""Pairs: a number and a small rest, which together have about 100 bits.

Without a fused multiply-add, what rounding loses of a product is found by cutting the factors into numbers of 26 bits,
whose products are exact.
"""

from chainrule.wasm.primitives import exponent, power_of_2, sqrt

INF = 1e308 * 10.0
NAN = INF - INF
TINY = 1e-8  # for an odd function with slope 1: x itself is as close to it as a number can be
TWO_TO_600 = 4.149515568880993e180
TWO_TO_MINUS_600 = 2.409919865102884e-181


def quick_sum(a: float, b: float) -> tuple[float, float]:
    """a + b and what rounding lost of it, for |a| ≥ |b| or a = 0 (Dekker)."""
    total = a + b
    return total, b - (total - a)


def two_sum(a: float, b: float) -> tuple[float, float]:
    """a + b and what rounding lost of it (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def upper(x: float) -> float:
    """The first 26 bits of x (Veltkamp)."""
    large = 134217729.0 * x
    return large - (large - x)


def two_product(a: float, b: float) -> tuple[float, float]:
    """a·b and what rounding lost of it (Dekker)."""
    product = a * b
    a_high, b_high = upper(a), upper(b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def multiply(a: float, a_rest: float, b: float, b_rest: float) -> tuple[float, float]:
    """The product of two pairs."""
    product, rest = two_product(a, b)
    return quick_sum(product, rest + (a * b_rest + a_rest * b))


def divide(a: float, a_rest: float, b: float, b_rest: float) -> tuple[float, float]:
    """The quotient of two pairs: a rounded one, and what it leaves, divided again."""
    quotient = a / b
    product, rest = two_product(quotient, b)
    return quick_sum(quotient, (((a - product) - rest) + a_rest - quotient * b_rest) / b)


def square_root(a: float, a_rest: float) -> tuple[float, float]:
    """The root of a pair: a rounded one, and a step of Newton's method."""
    if a <= 0.0:
        return 0.0, 0.0
    root = sqrt(a)
    square, rest = two_product(root, root)
    return quick_sum(root, (((a - square) - rest) + a_rest) / (2.0 * root))


def root_of_square(sign: float, x: float, one: float) -> tuple[float, float]:
    """√(sign·x² + one), sign and one being 1 or -1."""
    square, rest = two_product(x, x)
    total, lost = two_sum(sign * square, one)
    return square_root(total, lost + sign * rest)


def normalized(x: float) -> tuple[float, float]:
    """m and e of x = m·2ᵉ, 1 ≤ m < 2, for x > 0."""
    enlarged = 0.0
    if x < 1e-120:
        x, enlarged = x * TWO_TO_600, 600.0
    e = exponent(x)
    return 0.5 * x * power_of_2(1.0 - e), e - enlarged


def scaled(x: float, rest: float, n: float) -> float:
    """(x + rest)·2ⁿ for x ≥ 0, rounded once, also to a subnormal number.

    Subnormal results are as far apart as, before the scaling, the numbers from `normal` to 2·`normal`: adding `normal`
    rounds x as the result must be.
    """
    if n > 1022.0:
        return (x + rest) * power_of_2(1023.0) * power_of_2(n - 1023.0)
    if n < 0.0:
        normal = power_of_2(-1022.0 - n)
        if x < normal:
            total, lost = quick_sum(normal, x)
            return ((total + (lost + rest)) - normal) * power_of_2(n + 1022.0) * power_of_2(-1022.0)
    return (x + rest) * power_of_2(n)


def common_scale(x: float) -> float:
    """A power of 2 to multiply x by, and numbers not much smaller, so that squares and their rests are normal."""
    return TWO_TO_MINUS_600 if x > 1e150 else TWO_TO_600 if x < 1e-120 else 1.0
