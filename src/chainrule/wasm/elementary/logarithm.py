"""Logarithms, and the inverses of the hyperbolic functions."""

from chainrule.wasm.elementary.exponential import LOG_2, LOG_2_REST
from chainrule.wasm.elementary.pairs import (
    INF,
    NAN,
    TINY,
    multiply,
    normalized,
    quick_sum,
    root_of_square,
    two_sum,
    upper,
)
from chainrule.wasm.primitives import absolute, copysign, horner, nearest


def log_pair(x: float) -> tuple[float, float]:
    """log x as a pair, for 0 < x < ∞.

    x = m·2ᵏ with 0.75 ≤ m < 1.5, and j/64 is close to 1/m: log x = k·log 2 - log(j/64) + log(1 + f), where the pair
    f = m·j/64 - 1 is exact and |f| < 0.012. Log 2 and the table have 42 bits after the point, so that the sum of the
    first two is exact; of f - f²/2 + f³·(…) the square is made of exact products.
    """
    m, k = normalized(x)
    if m >= 1.5:
        m, k = 0.5 * m, k + 1.0
    j = nearest(64.0 / m)
    inverse = j * 0.015625
    m_high = upper(m)
    f, f_rest = quick_sum(m_high * inverse - 1.0, (m - m_high) * inverse)
    short = upper(f)
    total, lost = quick_sum(k * LOG_2_SHORT + LOG_TABLE[int(j - 43.0)], f)
    total, lost_too = quick_sum(total, -0.5 * short * short)
    small = k * LOG_2_SHORT_REST + LOG_TABLE_REST[int(j - 43.0)] + (f_rest - f * f_rest)
    small = small - 0.5 * (f - short) * (f + short) + f * f * f * horner(f, LOG)
    return quick_sum(total, lost_too + (lost + small))


def log_of_pair(x: float, rest: float) -> tuple[float, float]:
    """log(x + rest) as a pair, x not 1."""
    total, lost = log_pair(x)
    return quick_sum(total, lost + rest / x)


def log_times(x: float, factor: float, factor_rest: float) -> float:
    """log x times a pair, for any x."""
    if not (x > 0.0 and x < INF):
        return -INF if x == 0.0 else INF if x > 0.0 else NAN
    total, rest = log_pair(x)
    total, rest = multiply(total, rest, factor, factor_rest)
    return total + rest


def log(x: float) -> float:
    """The natural logarithm."""
    if not (x > 0.0 and x < INF):
        return log_times(x, 1.0, 0.0)
    total, rest = log_pair(x)
    return total + rest


def log2(x: float) -> float:
    """The logarithm to base 2."""
    return log_times(x, ONE_OVER_LOG_2, ONE_OVER_LOG_2_REST)


def log10(x: float) -> float:
    """The logarithm to base 10."""
    return log_times(x, ONE_OVER_LOG_10, ONE_OVER_LOG_10_REST)


def log1p(x: float) -> float:
    """log(1 + x), the sum as a pair; near 0 the series."""
    if absolute(x) < 1e-9:
        return x - 0.5 * x * x
    total, rest = two_sum(1.0, x)
    if not (total > 0.0 and total < INF):
        return log(total)
    total, rest = log_of_pair(total, rest)
    return total + rest


def log_of_sum(x: float, one: float) -> float:
    """log(x + √(x² + one)), x ≥ 0: the inverse of sinh and, with one = -1, of cosh. Far away √(x² + one) is x."""
    if x > 1e9:
        total, rest = log_pair(x)
        total, lost = quick_sum(total, LOG_2)
        return total + (lost + (rest + LOG_2_REST))
    root, rest = root_of_square(1.0, x, one)
    total, lost = two_sum(x, root)
    if total == 1.0:
        return 0.0
    total, rest = log_of_pair(total, lost + rest)
    return total + rest


def asinh(x: float) -> float:
    """log(x + √(x² + 1)); very close to 0 x itself."""
    a = absolute(x)
    if not (a > TINY and a < INF):
        return x
    return copysign(log_of_sum(a, 1.0), x)


def acosh(x: float) -> float:
    """log(x + √(x² - 1))."""
    if not (x >= 1.0 and x < INF):
        return INF if x > 1.0 else NAN
    return log_of_sum(x, -1.0)


def atanh(x: float) -> float:
    """(log(1 + x) - log(1 - x)) / 2: the two have opposite signs, so no digits are lost; very close to 0 x itself."""
    a = absolute(x)
    if a < TINY:
        return x
    if not a < 1.0:
        return copysign(INF, x) if a == 1.0 else NAN
    above, above_rest = two_sum(1.0, a)
    below, below_rest = two_sum(1.0, -a)
    above, above_rest = log_of_pair(above, above_rest)
    below, below_rest = log_of_pair(below, below_rest)
    total, lost = quick_sum(-below, above)
    return copysign(0.5 * (total + (lost + (above_rest - below_rest))), x)


# fmt: off
LOG = (
    1.0 / 3.0, -1.0 / 4.0, 1.0 / 5.0, -1.0 / 6.0, 1.0 / 7.0, -1.0 / 8.0, 1.0 / 9.0, -1.0 / 10.0
)  # (log(1 + f) - f + f²/2) / f³
LOG_2_SHORT = 0.6931471805598903
LOG_2_SHORT_REST = 5.497923018708371e-14
ONE_OVER_LOG_2 = 1.4426950408889634
ONE_OVER_LOG_2_REST = 2.0355273740931033e-17
ONE_OVER_LOG_10 = 0.4342944819032518
ONE_OVER_LOG_10_REST = 1.098319650216765e-17
LOG_TABLE = (
    0.3976829676660145, 0.3746934494413381, 0.35222059358943625, 0.33024168687052224, 0.30873548164959175,
    0.28768207245184385, 0.2670627852489815, 0.2468600779316148, 0.22705745063535687, 0.20763936477828793,
    0.18859116980752333, 0.16989903679541385, 0.151549898127314, 0.13353139262449076, 0.11583181552509814,
    0.09844007281321865, 0.08134563945395712, 0.0645385211375924, 0.04800921918626955, 0.03174869831468641,
    0.01574835696806076, 0.0, -0.015504186535963527, -0.03077165866670839, -0.0458095360313564, -0.06062462181648698,
    -0.07522342123752424, -0.08961215868976069, -0.10379679368156758, -0.11778303565643, -0.13157635778861732,
    -0.14518200984457508, -0.15860503017665906, -0.17185025692674571, -0.18492233849406148, -0.19782574332998593,
    -0.21056476910735, -0.22314355131425145, -0.23556607131286, -0.2478361639045943, -0.25995752443691345,
    -0.2719337154835557, -0.28376817313073843
)
LOG_TABLE_REST = (
    9.491339403096215e-14, 7.260466149925637e-14, -8.414918193489195e-14, 5.4612144489920215e-14,
    2.1522127491642888e-14, -6.292357389008195e-14, 6.371947269815667e-14, -8.899851356560444e-14,
    -1.078736749871691e-14, -4.3425422595242564e-14, 2.6693431578015818e-14, -1.6376276414097503e-14,
    -1.1307104809870373e-13, 3.1859736349078334e-14, 2.3568822182038756e-14, 3.3871241029241416e-14,
    -4.713370778300984e-15, -2.1225608044809997e-14, 9.106054379130929e-14, -1.0610652735224087e-13,
    7.840703382506278e-14, 0.0, -1.7274567499706107e-15, -4.529814257790929e-14, 6.219834199475792e-14,
    5.213620639136504e-14, -6.329065958724544e-14, 7.355770219435029e-14, -7.598636597194141e-14, 4.654729747598445e-14,
    -1.0195735223708473e-13, 7.718001336828099e-14, 2.0472357800461955e-14, 8.649239607212071e-14,
    4.9485167661250996e-14, 6.604544877082384e-14, 3.6507188831790577e-16, 4.169796584527195e-14, 9.30945949519689e-14,
    1.3029797173308663e-14, -1.2621729398885316e-14, -8.604306772808733e-14, 9.3834172236637e-14
)
