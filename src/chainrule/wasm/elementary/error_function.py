"""The error function and its complement."""

from chainrule.wasm.elementary.exponential import exp_pair, exp_times
from chainrule.wasm.elementary.pairs import TWO_TO_600, divide, multiply, quick_sum, scaled, two_product, two_sum
from chainrule.wasm.primitives import absolute, copysign, horner


def erf_near_0(x: float) -> tuple[float, float]:
    """erf(x) as a pair, |x| < 0.75: the series near 0, then a polynomial in x - 0.5."""
    a = absolute(x)
    if a < 0.25:
        total, rest = multiply(x, 0.0, TWO_OVER_SQRT_PI, TWO_OVER_SQRT_PI_REST)
        return quick_sum(total, rest + x * x * x * horner(x * x, ERF))
    t = a - 0.5
    total, lost = quick_sum(ERF_1, t * horner(t, ERF_HIGHER))
    total, rest = multiply(total, lost + ERF_1_REST, t, 0.0)
    total, lost = quick_sum(ERF_0, total)
    return copysign(1.0, x) * total, copysign(1.0, x) * (lost + (rest + ERF_0_REST))


def erfc_over_exp(x: float) -> tuple[float, float]:
    """erfc(x)·exp(x²) as a pair, 0.75 ≤ x ≤ 27.3: a polynomial in (x - 3) / (x + 3), over 1 + 2x."""
    above, above_rest = two_sum(x, -3.0)
    below, below_rest = two_sum(x, 3.0)
    t, t_rest = divide(above, above_rest, below, below_rest)
    total, lost = quick_sum(ERFC_1, t * horner(t, ERFC_HIGHER))
    total, rest = multiply(total, lost + ERFC_1_REST, t, t_rest)
    total, lost = quick_sum(ERFC_0, total)
    below, below_rest = two_sum(1.0, 2.0 * x)
    return divide(total, lost + (rest + ERFC_0_REST), below, below_rest)


def erfc_pair(x: float) -> tuple[float, float]:
    """erfc(x) as a pair, 0.75 ≤ x ≤ 6."""
    square, rest = two_product(x, x)
    total, lost = exp_pair(-square, -rest)
    factor, factor_rest = erfc_over_exp(x)
    return multiply(total, lost, factor, factor_rest)


def erf(x: float) -> float:
    """The error function: `erf_near_0`, or 1 - erfc(x). Tiny arguments are enlarged, else the product has no rest."""
    a = absolute(x)
    if a < 1e-120:
        total, rest = multiply(a * TWO_TO_600, 0.0, TWO_OVER_SQRT_PI, TWO_OVER_SQRT_PI_REST)
        return copysign(scaled(total, rest, -600.0), x)
    if a < 0.75:
        total, rest = erf_near_0(x)
        return total + rest
    if not a < 6.0:
        return copysign(1.0, x) if x == x else x
    part, part_rest = erfc_pair(a)
    total, lost = quick_sum(1.0, -part)
    return copysign(total + (lost - part_rest), x)


def erfc(x: float) -> float:
    """1 - erf(x); in the tail exp(-x²) times `erfc_over_exp`, rounded once; on the other side 2 - erfc(-x)."""
    if absolute(x) < 0.75:
        part, part_rest = erf_near_0(x)
        total, lost = quick_sum(1.0, -part)
        return total + (lost - part_rest)
    if not (x > -6.0 and x < 27.3):
        return 0.0 if x > 0.0 else 2.0 if x < 0.0 else x
    if x < 0.0:
        part, part_rest = erfc_pair(-x)
        total, lost = quick_sum(2.0, -part)
        return total + (lost - part_rest)
    square, rest = two_product(x, x)
    factor, factor_rest = erfc_over_exp(x)
    return exp_times(-square, -rest, factor, factor_rest)


# fmt: off
TWO_OVER_SQRT_PI = 1.1283791670955126
TWO_OVER_SQRT_PI_REST = 1.533545961316588e-17
ERF = (  # Taylor's for (erf(x) - 2x/√π) / x³, in x²
    -TWO_OVER_SQRT_PI / 3.0, TWO_OVER_SQRT_PI / 10.0, -TWO_OVER_SQRT_PI / 42.0, TWO_OVER_SQRT_PI / 216.0,
    -TWO_OVER_SQRT_PI / 1320.0, TWO_OVER_SQRT_PI / 9360.0, -TWO_OVER_SQRT_PI / 75600.0, TWO_OVER_SQRT_PI / 685440.0,
    -TWO_OVER_SQRT_PI / 6894720.0
)
ERF_0 = 0.5204998778130465
ERF_0_REST = 1.928100783921865e-17
ERF_1 = 0.8787825789354449
ERF_1_REST = -3.632961442093622e-17
ERF_HIGHER = (
    -0.4393912894677228, -0.14646376315593068, 0.18307970394499282, 0.007323188161823997, -0.0500417857550792,
    0.005405209998874639, 0.01004758896022154, -0.0021673997446699012, -0.001569506572362715, 0.0004970944439060109,
    0.00019645544612189336, -8.25097229540211e-05, -2.0045813649965673e-05
)
ERFC_0 = 1.2530080582697296
ERFC_0_REST = 4.5427965729158065e-17
ERFC_1 = -0.1356211061245812
ERFC_1_REST = -5.023889439260578e-18
ERFC_HIGHER = (
    -0.04756229435345127, 0.12964515870276444, -0.11927366341526703, 0.06830802734382281, -0.023770514919879984,
    0.002529391819269067, 0.0018886903768415642, -0.0007798323118908531, -0.00010515993776549342,
    0.00012509967125528748, 4.950098258351666e-06, -2.010224419466685e-05, -7.329378870721538e-07,
    3.4781132106618657e-06, 3.575546720863235e-07, -6.286094688651873e-07, -1.3700815974920924e-07,
    1.1570007188959237e-07, 3.07871391223556e-08, -1.9481575157151434e-08
)
