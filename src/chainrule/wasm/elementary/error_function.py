"""The error function and its complement."""

from chainrule.wasm.elementary.exponential import exp_pair, exp_times
from chainrule.wasm.elementary.pairs import TWO_TO_600, divide, multiply, quick_sum, scaled, two_product, two_sum
from chainrule.wasm.primitives import absolute, copysign, horner


def horner_step(total: float, rest: float, x: float, x_rest: float, c: float, c_rest: float) -> tuple[float, float]:
    """Horner's scheme on pairs, for the last step, whose roundings count: (total + rest)·(x + x_rest) + c + c_rest."""
    total, rest = multiply(total, rest, x, x_rest)
    total, lost = two_sum(total, c)
    return total, lost + (rest + c_rest)


def erf_near_0(x: float) -> tuple[float, float]:
    """erf(x) as a pair, |x| < 0.75: the series near 0, then a polynomial in x - 0.5."""
    a = absolute(x)
    if a < 0.25:
        total, rest = multiply(x, 0.0, TWO_OVER_SQRT_PI, TWO_OVER_SQRT_PI_REST)
        return quick_sum(total, rest + x * x * x * horner(x * x, ERF))
    t = a - 0.5
    total, rest = quick_sum(ERF_1, t * horner(t, ERF_HIGHER))
    total, rest = horner_step(total, rest + ERF_1_REST, t, 0.0, ERF_0, ERF_0_REST)
    return copysign(1.0, x) * total, copysign(1.0, x) * rest


def erfc_over_exp(x: float) -> tuple[float, float]:
    """erfc(x)·exp(x²) as a pair, 0.75 ≤ x ≤ 27.3: a polynomial in t = (x - 2) / (x + 2), over 1 + 2x.

    Two polynomials are more exact than one, since their arguments are small: far away it is in t - 0.625.
    """
    above, above_rest = two_sum(x, -2.0)
    below, below_rest = two_sum(x, 2.0)
    t, t_rest = divide(above, above_rest, below, below_rest)
    if x < 4.0:
        total, rest = horner_step(horner(t, ERFC_NEAR_HIGHER), 0.0, t, t_rest, ERFC_NEAR_0, ERFC_NEAR_0_REST)
    else:
        t = t - 0.625
        total, rest = horner_step(horner(t, ERFC_FAR_HIGHER), 0.0, t, t_rest, ERFC_FAR_0, ERFC_FAR_0_REST)
    below, below_rest = two_sum(1.0, 2.0 * x)
    return divide(total, rest, below, below_rest)


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
ERFC_NEAR_0 = 1.2769783815525286
ERFC_NEAR_0_REST = 8.966850875751339e-17
ERFC_NEAR_HIGHER = (
    -0.09276382658574601, -0.16603039761528943, 0.16405128003344285, -0.05422000099202781, -0.00803401508239556,
    0.008722653875250327, 0.0012713389614748423, -0.001456813939766243, -0.000454340670393588, 0.00020636728346428926,
    0.00015103645863055441, -1.5138002484745761e-06, -3.6400047255900125e-05, -1.3439099657815562e-05,
    3.6269556815056285e-06, 4.902289110487126e-06, 1.4522078671268357e-06
)
ERFC_FAR_0 = 1.1856868268576946
ERFC_FAR_0_REST = -5.058873946734665e-17
ERFC_FAR_HIGHER = (
    -0.16209760840072301, 0.014660881376165311, 0.03783239630642435, -0.034388184403522884, 0.014278805600174667,
    -0.0003952014263758011, -0.0028993124435890217, 0.0010616021504057048, 0.0004921362298296798,
    -0.0004318975733206957, -8.167689517769484e-05, 0.000165029955567718, 1.4374518763511838e-05,
    -6.716778555079453e-05, -4.094040016577565e-06, 2.4261938216165406e-05
)
