"""The trigonometric functions and their inverses."""

from chainrule.wasm.elementary.pairs import (
    INF,
    NAN,
    TINY,
    common_scale,
    divide,
    multiply,
    quick_sum,
    root_of_square,
    two_sum,
    upper,
)
from chainrule.wasm.primitives import absolute, copysign, exponent, floor, horner, nearest, power_of_2


def turns(x: float, n: float) -> tuple[float, float]:
    """x·32/π - n, less a multiple of 64, as a pair, for x up to the largest (Payne and Hanek).

    32/π is the sum of cᵢ·2⁻²⁴ⁱ. A term whose product with x is a multiple of 64 is left out; nine others suffice.
    """
    i = floor((exponent(absolute(x)) - 58.0) / 24.0) + 1.0
    i = i if i > 0.0 else 0.0
    x = x * power_of_2(-24.0 * i)
    high = upper(x)
    low = x - high
    total, rest = -n, 0.0
    scale, end = 1.0, i + 9.0
    while i < end:
        total, rest = add_turns(total, rest, high * STEPS_PER_RADIAN[int(i)] * scale)
        total, rest = add_turns(total, rest, low * STEPS_PER_RADIAN[int(i)] * scale)
        scale, i = scale * power_of_2(-24.0), i + 1.0
    return total, rest


def add_turns(total: float, rest: float, more: float) -> tuple[float, float]:
    """total + rest + more as a pair, less a multiple of 64."""
    total, lost = two_sum(total, more - 64.0 * nearest(more * 0.015625))
    return quick_sum(total - 64.0 * nearest(total * 0.015625), lost + rest)


def steps(x: float) -> float:
    """The n whose n·π/32 is closest to x, less a multiple of 64 if x is large."""
    if absolute(x) < LARGE:
        return nearest(x * (16.0 / HALF_PI))
    total, rest = turns(x, 0.0)
    return nearest(total + rest)


def beyond_steps(x: float, n: float) -> tuple[float, float]:
    """x - n·π/32 as a pair: π/32 is in parts so short that n times them is exact, up to n = 2²⁰.

    For a larger x, `turns` is asked again: only with n taken off before the small terms are added none of their bits is
    lost.
    """
    if not absolute(x) < LARGE:
        total, rest = turns(x, n)
        return multiply(total, rest, STEP, STEP_REST)
    total, rest = two_sum(x - n * STEP_1, -n * STEP_2)
    total, lost = two_sum(total, -n * STEP_3)
    return quick_sum(total, rest + (lost - n * STEP_4))


def sine_of_steps(n: float) -> tuple[float, float]:
    """sin(n·π/32) from the table of the first quarter of the turn; the first number has 26 bits."""
    n = n - 64.0 * floor(n * 0.015625)
    sign = 1.0
    if n >= 32.0:
        n, sign = n - 32.0, -1.0
    n = 32.0 - n if n > 16.0 else n
    return sign * SIN_TABLE[int(n)], sign * SIN_TABLE_REST[int(n)]


def sine(n: float, r: float, rest: float) -> tuple[float, float]:
    """sin(n·π/32 + r + rest) = S·cos r + C·sin r as a pair, |r| < 0.05: S + C·r exactly, and what is small."""
    s, s_rest = sine_of_steps(n)
    c, c_rest = sine_of_steps(n + 16.0)
    square = r * r
    curve = (s + s_rest) * (square * horner(square, COS)) + (c + c_rest) * (r * square * horner(square, SIN))
    short = upper(r)
    total, lost = quick_sum(s, c * short)
    return quick_sum(total, lost + (c * ((r - short) + rest) + (s_rest + c_rest * r + curve)))


def sin(x: float) -> float:
    """The sine; very close to 0 x itself."""
    if not (absolute(x) > TINY and absolute(x) < INF):
        return x if absolute(x) < INF else NAN
    n = steps(x)
    r, rest = beyond_steps(x, n)
    total, lost = sine(n, r, rest)
    return total + lost


def cos(x: float) -> float:
    """The cosine, a quarter of the turn ahead of the sine."""
    if not absolute(x) < INF:
        return NAN
    n = steps(x)
    r, rest = beyond_steps(x, n)
    total, lost = sine(n + 16.0, r, rest)
    return total + lost


def tan(x: float) -> float:
    """Sine over cosine; very close to 0 x itself."""
    if not (absolute(x) > TINY and absolute(x) < INF):
        return x if absolute(x) < INF else NAN
    n = steps(x)
    r, rest = beyond_steps(x, n)
    above, above_rest = sine(n, r, rest)
    below, below_rest = sine(n + 16.0, r, rest)
    total, lost = divide(above, above_rest, below, below_rest)
    return total + lost


def angle(y: float, y_rest: float, x: float, x_rest: float) -> tuple[float, float]:
    """The angle of the point (x, y), y ≥ 0, as a pair; neither number is extreme.

    In the first eighth of the turn atan(y/x) = atan(j/16) + atan((y - x·j/16) / (x + y·j/16)): the first from a table,
    the second the series of a number below 1/31. The other eighths are mirrored into it.
    """
    quarters, sign = 0.0, 1.0
    if x < 0.0:
        x, x_rest = -x, -x_rest
        quarters, sign = 2.0, -1.0
    if y > x:
        x, y = y, x
        x_rest, y_rest = y_rest, x_rest
        quarters, sign = 1.0, -sign
    j = nearest(16.0 * y / x)
    slope = 0.0625 * j
    x_high, y_high = upper(x), upper(y)
    above, above_rest = two_sum(y, -slope * x_high)
    above, above_rest = two_sum(above, above_rest + (y_rest - slope * ((x - x_high) + x_rest)))
    below, below_rest = quick_sum(x, slope * y_high)
    below_rest = below_rest + (x_rest + slope * ((y - y_high) + y_rest))
    t, t_rest = divide(above, above_rest, below, below_rest)
    total, rest = quick_sum(ATAN_TABLE[int(j)], t)
    rest = rest + (ATAN_TABLE_REST[int(j)] + (t_rest + t * t * t * horner(t * t, ATAN)))
    total, lost = quick_sum(quarters * HALF_PI, sign * total)
    return quick_sum(total, lost + (quarters * HALF_PI_REST + sign * rest))


def atan(x: float) -> float:
    """The angle of (1, x); very close to 0 x itself."""
    a = absolute(x)
    if not (a > TINY and a < 1e18):
        return copysign(HALF_PI, x) if a > 1.0 else x
    total, rest = angle(a, 0.0, 1.0, 0.0)
    return copysign(total + rest, x)


def atan2(y: float, x: float) -> float:
    """The angle of (x, y); where one is far larger, y/x or a multiple of π/2. Beside infinity, numbers count as 0."""
    if x != x or y != y:
        return NAN
    if absolute(x) == INF or absolute(y) == INF:
        x = copysign(1.0 if absolute(x) == INF else 0.0, x)
        y = copysign(1.0 if absolute(y) == INF else 0.0, y)
    a, b = absolute(x), absolute(y)
    if b <= 1e-18 * a:
        if copysign(1.0, x) < 0.0:
            return copysign(2.0 * HALF_PI, y)
        return y / x if a > 0.0 else y
    if a <= 1e-18 * b:
        return copysign(HALF_PI, y)
    scale = common_scale(a if a > b else b)
    total, rest = angle(b * scale, 0.0, x * scale, 0.0)
    return copysign(total + rest, y)


def asin(x: float) -> float:
    """The angle of (√(1 - x²), x); very close to 0 x itself."""
    a = absolute(x)
    if not (a > TINY and a <= 1.0):
        return x if a < 1.0 else NAN
    leg, leg_rest = root_of_square(-1.0, a, 1.0)
    total, rest = angle(a, 0.0, leg, leg_rest)
    return copysign(total + rest, x)


def acos(x: float) -> float:
    """The angle of (x, √(1 - x²))."""
    if not absolute(x) <= 1.0:
        return NAN
    leg, leg_rest = root_of_square(-1.0, x, 1.0)
    total, rest = angle(leg, leg_rest, x, 0.0)
    return total + rest


# fmt: off
SIN = (-1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362880.0)  # (sin r - r) / r³, in r²
COS = (-1.0 / 2.0, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40320.0)  # (cos r - 1) / r², in r²
ATAN = (-1.0 / 3.0, 1.0 / 5.0, -1.0 / 7.0, 1.0 / 9.0, -1.0 / 11.0)  # (atan t - t) / t³, in t²
LARGE = 1e5
STEP = 0.09817477042468103
STEP_REST = 3.827021247335479e-18
STEP_1 = 0.09817477042088285
STEP_2 = 3.798187816439979e-12
STEP_3 = 1.263916405444479e-22
STEP_4 = 5.299017287730562e-33
HALF_PI = 1.5707963267948966
HALF_PI_REST = 6.123233995736766e-17
SIN_TABLE = (
    0.0, 0.0980171412229538, 0.19509032368659973, 0.2902846783399582, 0.3826834335923195, 0.4713967368006706,
    0.5555702298879623, 0.6343932896852493, 0.7071067839860916, 0.7730104476213455, 0.8314696103334427,
    0.881921261548996, 0.9238795340061188, 0.9569403380155563, 0.9807852804660797, 0.9951847195625305, 1.0
)
SIN_TABLE_REST = (
    0.0, -8.933931943925232e-10, -1.6704714635970276e-09, -1.0854958232817764e-09, -1.2272297167969305e-09,
    2.532702477709075e-11, 3.1316398834342372e-09, -5.52160383039811e-09, -2.799544089368687e-09, 5.741391440791375e-09,
    1.969102549090507e-09, 2.7993590580330692e-09, -1.4948320182858793e-09, -2.2833474705134207e-09,
    -6.284926278788026e-11, 7.109666368666712e-09, 0.0
)
ATAN_TABLE = (
    0.0, 0.06241880999595735, 0.12435499454676144, 0.18534794999569476, 0.24497866312686414, 0.3028848683749714,
    0.35877067027057225, 0.4124104415973873, 0.4636476090008061, 0.5123894603107377, 0.5585993153435624,
    0.6022873461349642, 0.6435011087932844, 0.6823165548747481, 0.7188299996216245, 0.7531512809621944,
    0.7853981633974483
)
ATAN_TABLE_REST = (
    0.0, -1.5490756308295046e-18, -3.1253241424539383e-18, 4.180692268843079e-18, 1.0698755618734451e-17,
    -1.1010827903001369e-17, -2.4623815582638635e-17, -1.587652227770689e-17, 2.2698777452961687e-17,
    -2.5462781472855804e-17, -5.4556305485916264e-18, 2.950430737228402e-17, 1.5834785051444286e-17,
    6.943223671560008e-18, -2.1478388444456983e-17, -2.4256934659182068e-17, 3.061616997868383e-17
)
STEPS_PER_RADIAN = (
    10.0, 3119158.0, 15000641.0, 5414850.0, 7699743.0, 5459420.0, 898601.0, 5870532.0, 3736607.0, 15013434.0,
    12446652.0, 5643122.0, 4645796.0, 2415918.0, 25746.0, 15638685.0, 1647055.0, 14802609.0, 13308570.0, 7597704.0,
    2318162.0, 15447112.0, 5151175.0, 158533.0, 16245779.0, 10034531.0, 9975091.0, 10439112.0, 4585659.0, 14652035.0,
    11665289.0, 8388064.0, 5865726.0, 15921432.0, 11903142.0, 13760211.0, 6810866.0, 8171675.0, 7664739.0, 16148965.0,
    16687831.0, 5405612.0, 8306271.0, 1553360.0, 7577464.0, 10823982.0, 10928053.0, 16454136.0, 14012549.0, 6304516.0
)
