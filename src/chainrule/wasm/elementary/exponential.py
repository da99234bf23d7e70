"""The exponential and hyperbolic functions."""

from chainrule.wasm.elementary.pairs import INF, divide, multiply, quick_sum, scaled, two_product, two_sum, upper
from chainrule.wasm.primitives import absolute, copysign, floor, horner, nearest, power_of_2


def exp_mantissa(x: float, rest: float, n: float) -> tuple[float, float]:
    """exp(x + rest) / 2^⌊n/32⌋ as a pair, n being the whole number nearest to 32x / log 2.

    With r = x - n·(log 2)/32 and j = n mod 32 this is 2^(j/32)·(1 + (eʳ - 1)), |r| < 0.011. The numbers of the table
    have 26 bits, and a rest, so that the largest product is exact.
    """
    j = n - 32.0 * floor(n * 0.03125)
    r, r_rest = quick_sum(x - n * EXP_STEP, rest - n * EXP_STEP_REST)
    grown, grown_rest = quick_sum(r, r_rest + r * r * horner(r, EXP))
    root, root_rest = EXP2_TABLE[int(j)], EXP2_TABLE_REST[int(j)]
    short = upper(grown)
    total, lost = quick_sum(root, root * short)
    return quick_sum(total, lost + (root * ((grown - short) + grown_rest) + (root_rest + root_rest * grown)))


def exp_pair(x: float, rest: float) -> tuple[float, float]:
    """exp(x + rest) as a pair, for |x| < 700."""
    n = nearest(x * EXP_STEPS)
    total, lost = exp_mantissa(x, rest, n)
    scale = power_of_2(floor(n * 0.03125))
    return total * scale, lost * scale


def exp_times(x: float, rest: float, factor: float, factor_rest: float) -> float:
    """exp(x + rest) times a positive pair of moderate size, rounded once, for any x."""
    if x != x or x > 720.0:
        return x * INF
    if x < -760.0:
        return 0.0
    n = nearest(x * EXP_STEPS)
    total, lost = exp_mantissa(x, rest, n)
    total, lost = multiply(total, lost, factor, factor_rest)
    return scaled(total, lost, floor(n * 0.03125))


def exp(x: float) -> float:
    """eˣ, computed as in `exp_mantissa`, but without its rests."""
    if not absolute(x) < 700.0:
        return exp_times(x, 0.0, 1.0, 0.0)
    n = nearest(x * EXP_STEPS)
    k = floor(n * 0.03125)
    j = n - 32.0 * k
    r = (x - n * EXP_STEP) - n * EXP_STEP_REST
    root, root_rest = EXP2_TABLE[int(j)], EXP2_TABLE_REST[int(j)]
    return (root + (root_rest + (root + root_rest) * (r + r * r * horner(r, EXP)))) * power_of_2(k)


def exp2(x: float) -> float:
    """2ˣ = exp(x·log 2), the product as a pair; beyond ±1100 nothing changes."""
    x = copysign(1100.0, x) if absolute(x) > 1100.0 else x
    product, rest = two_product(x, LOG_2)
    return exp_times(product, rest + x * LOG_2_REST, 1.0, 0.0)


def expm1(x: float) -> float:
    """eˣ - 1: the series near 0, else the pair less 1; far away one of the two does not count."""
    a = absolute(x)
    if a < 0.0108:
        return x + x * x * horner(x, EXP) if a > 1e-16 else x
    if not a < 50.0:
        return -1.0 if x < 0.0 else exp_times(x, 0.0, 1.0, 0.0)
    total, rest = exp_pair(x, 0.0)
    total, lost = two_sum(total, -1.0)
    return total + (lost + rest)


def half_exp_plus(a: float, sign: float) -> float:
    """(eᵃ + sign·e⁻ᵃ) / 2, a ≥ 0; far away e⁻ᵃ does not count."""
    if not a < 25.0:
        return exp_times(a, 0.0, 0.5, 0.0)
    total, rest = exp_pair(a, 0.0)
    inverse, inverse_rest = divide(sign, 0.0, total, rest)
    total, lost = quick_sum(total, inverse)
    return 0.5 * (total + (lost + (rest + inverse_rest)))


def sinh(x: float) -> float:
    """(eˣ - e⁻ˣ) / 2: the series near 0."""
    if absolute(x) < 0.03:
        return x + x * x * x * horner(x * x, SINH)
    return copysign(half_exp_plus(absolute(x), -1.0), x)


def cosh(x: float) -> float:
    """(eˣ + e⁻ˣ) / 2."""
    return half_exp_plus(absolute(x), 1.0)


def tanh(x: float) -> float:
    """1 - 2 / (e²ˣ + 1), the quotient in two parts, of which the first has few bits; the series near 0."""
    a = absolute(x)
    if a < 0.016:
        return copysign(a + a * a * a * horner(a * a, TANH), x)
    if not a < 20.0:
        return copysign(1.0, x) if x == x else x
    total, rest = exp_pair(2.0 * a, 0.0)
    below, lost = quick_sum(total, 1.0)
    below_high = upper(below)
    quotient = 2.0 / below
    short = upper(quotient)
    left = ((2.0 - short * below_high) - short * (below - below_high)) - short * (lost + rest)
    total, lost = quick_sum(1.0, -short)
    return copysign(total + (lost - 0.5 * quotient * left), x)


# fmt: off
EXP = (1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0)  # (eʳ - 1 - r) / r²
SINH = (1.0 / 6.0, 1.0 / 120.0, 1.0 / 5040.0, 1.0 / 362880.0)  # (sinh x - x) / x³, in x²
TANH = (-1.0 / 3.0, 2.0 / 15.0, -17.0 / 315.0, 62.0 / 2835.0)  # (tanh x - x) / x³, in x²
EXP_STEPS = 46.16624130844683
LOG_2 = 0.6931471805599453
LOG_2_REST = 2.3190468138462996e-17
EXP_STEP = 0.021660849392446835
EXP_STEP_REST = 5.145609244655338e-14
EXP2_TABLE = (
    1.0, 1.0218971371650696, 1.0442737936973572, 1.0671404004096985, 1.0905077457427979, 1.1143867373466492,
    1.138788640499115, 1.1637248694896698, 1.1892071068286896, 1.2152473628520966, 1.2418578267097473, 1.2690509557724,
    1.296839565038681, 1.3252366483211517, 1.3542555570602417, 1.3839098811149597, 1.4142135679721832,
    1.4451808035373688, 1.4768261313438416, 1.509164422750473, 1.5422108173370361, 1.5759808421134949,
    1.610490322113037, 1.6457554697990417, 1.681792825460434, 1.7186192870140076, 1.7562521696090698,
    1.7947090864181519, 1.8340080976486206, 1.8741676211357117, 1.9152065515518188, 1.9571441113948822
)
EXP2_TABLE_REST = (
    0.0, 1.1489047098156355e-08, -1.1269943337412409e-08, 2.671251318413961e-10, -1.307754019235549e-08,
    5.249243366386938e-09, -5.7424233365305445e-09, -1.0712092285991114e-08, 8.174031491522187e-09,
    -2.8716276795006674e-09, -1.4636263265859448e-08, 1.419333320210669e-09, -1.0387671364339684e-08,
    -5.161410438768901e-09, -1.0123348970920735e-08, 8.488722380757845e-10, -5.599088178737374e-09,
    3.4396778456229436e-09, 1.4595657758652532e-08, 4.842949717305082e-09, 8.070904690799792e-09, 2.994391613408395e-09,
    9.836217198804521e-09, 8.354923096471882e-09, 5.046995126101313e-09, 1.110847034726997e-08, -9.235770341106589e-09,
    -1.1415044669041046e-08, -1.1239278141981668e-08, 1.2974588231408124e-08, 9.845328446216361e-09,
    1.2780518066869885e-08
)
