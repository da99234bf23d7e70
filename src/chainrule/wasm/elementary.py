"""The elementary functions, in nothing but the arithmetic of floats: the same results in every browser.

WebAssembly has no exp, log or sin, and the functions of a browser differ from one to the next. The compiler turns this file
into WebAssembly as it stands, so it keeps to a small part of Python: floats, pairs of floats, `if`, `while`, calls, tables.

A pair is a number and a small rest, together 100 bits or so. Each family of functions has a core whose result is a pair:
`exp_mantissa`, `log_pair`, `sine`, `angle`, `erfc_over_exp`. The last addition is then nearly the only rounding: results are
within 0.6 units of the last place. Cores reduce their argument by a table, and go on with a short polynomial. Without a fused
multiply-add, exact products are made of numbers with few bits (`upper`). Tables and fitted coefficients are printed by
tools/fit_elementary.py; those without digits are Taylor's.
"""

from chainrule.wasm.primitives import (
    absolute,
    copysign,
    exponent,
    floor,
    horner,
    nearest,
    power_of_2,
    sqrt,
    trunc,
)

# fmt: off
INF = 1e308 * 10.0
NAN = INF - INF
TWO_TO_30 = 1073741824.0
TWO_TO_60 = 1.152921504606847e+18
TWO_TO_64 = 1.8446744073709552e+19
TWO_TO_500 = 3.273390607896142e+150
TWO_TO_600 = 4.149515568880993e+180
TWO_TO_1023 = 8.98846567431158e+307
TWO_TO_MINUS_24 = 5.960464477539063e-08
TWO_TO_MINUS_27 = 7.450580596923828e-09
TWO_TO_MINUS_28 = 3.725290298461914e-09
TWO_TO_MINUS_54 = 5.551115123125783e-17
TWO_TO_MINUS_60 = 8.673617379884035e-19
TWO_TO_MINUS_400 = 3.8725919148493183e-121
TWO_TO_MINUS_600 = 2.409919865102884e-181
SMALLEST_NORMAL = 2.2250738585072014e-308

EXP = (1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0)  # (eʳ - 1 - r) / r²
SINH = (1.0 / 6.0, 1.0 / 120.0, 1.0 / 5040.0, 1.0 / 362880.0)  # (sinh r - r) / r³, in r²
TANH = (-1.0 / 3.0, 2.0 / 15.0, -17.0 / 315.0, 62.0 / 2835.0)
LOG = (1.0 / 3.0, -1.0 / 4.0, 1.0 / 5.0, -1.0 / 6.0, 1.0 / 7.0, -1.0 / 8.0, 1.0 / 9.0)  # (log(1 + f) - f + f²/2) / f³
SIN = (-1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362880.0)
COS = (-1.0 / 2.0, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40320.0)  # (cos r - 1) / r², in r²
ATAN = (-1.0 / 3.0, 1.0 / 5.0, -1.0 / 7.0, 1.0 / 9.0, -1.0 / 11.0)
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
LOG_2_SHORT = 0.6931471805598903
LOG_2_SHORT_REST = 5.497923018708371e-14
EXP_STEP = 0.021660849392446835
EXP_STEP_REST = 5.145609244655338e-14
STEP_1 = 0.09817477042088285
STEP_2 = 3.798187816439979e-12
STEP_3 = 1.263916405444479e-22
STEP_4 = 5.299017287730562e-33
STEP = 0.09817477042468103
STEP_REST = 3.827021247335479e-18
HALF_PI = 1.5707963267948966
HALF_PI_REST = 6.123233995736766e-17
LOG_2 = 0.6931471805599453
LOG_2_REST = 2.3190468138462996e-17
ONE_OVER_LOG_2 = 1.4426950408889634
ONE_OVER_LOG_2_REST = 2.0355273740931033e-17
ONE_OVER_LOG_10 = 0.4342944819032518
ONE_OVER_LOG_10_REST = 1.098319650216765e-17
TWO_OVER_SQRT_PI = 1.1283791670955126
TWO_OVER_SQRT_PI_REST = 1.533545961316588e-17
STEPS_PER_RADIAN = (
    10.0, 3119158.0, 15000641.0, 5414850.0, 7699743.0, 5459420.0, 898601.0, 5870532.0, 3736607.0, 15013434.0,
    12446652.0, 5643122.0, 4645796.0, 2415918.0, 25746.0, 15638685.0, 1647055.0, 14802609.0, 13308570.0, 7597704.0,
    2318162.0, 15447112.0, 5151175.0, 158533.0, 16245779.0, 10034531.0, 9975091.0, 10439112.0, 4585659.0, 14652035.0,
    11665289.0, 8388064.0, 5865726.0, 15921432.0, 11903142.0, 13760211.0, 6810866.0, 8171675.0, 7664739.0, 16148965.0,
    16687831.0, 5405612.0, 8306271.0, 1553360.0, 7577464.0, 10823982.0, 10928053.0, 16454136.0, 14012549.0, 6304516.0
)
ERFC_0 = 1.2329951186255526
ERFC_0_REST = -4.6172171834598856e-17
ERFC_1 = -0.1396211168405625
ERFC_1_REST = -9.036502395542753e-18
ERFC_TAIL = (
    0.015379652102620005, 0.06809705425469173, -0.1010390660363223, 0.0937328349983879, -0.06633036581173239,
    0.037167515536808075, -0.016197734064588857, 0.00503196998407447, -0.0007577732328388529, -0.0001992567240862799,
    0.0001506213907985083, -2.4399144160833656e-05, -1.1221100653013901e-05, 5.709705278655503e-06,
    2.9188050831403543e-07, -8.256997004433459e-07, 7.710945659944097e-08, 1.1076260153894658e-07,
    -1.9714991460659327e-08, -1.4845798448117101e-08, 2.4041359205339e-09, 1.5644345208444224e-09
)
STEPS_PER_LOG_2 = 32.0 * ONE_OVER_LOG_2
STEPS_PER_RADIAN_ROUNDED = 16.0 / HALF_PI
LARGE_ANGLE = 1e5
ERF = (
    -TWO_OVER_SQRT_PI / 3.0, TWO_OVER_SQRT_PI / 10.0, -TWO_OVER_SQRT_PI / 42.0, TWO_OVER_SQRT_PI / 216.0,
    -TWO_OVER_SQRT_PI / 1320.0, TWO_OVER_SQRT_PI / 9360.0, -TWO_OVER_SQRT_PI / 75600.0, TWO_OVER_SQRT_PI / 685440.0,
    -TWO_OVER_SQRT_PI / 6894720.0
)
# fmt: on


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
    """The first 26 bits of x: products of two such numbers are exact (Veltkamp)."""
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


def normalized(x: float) -> tuple[float, float]:
    """m and e of x = m·2ᵉ, 1 ≤ m < 2, for x > 0."""
    enlarged = 0.0
    if x < TWO_TO_MINUS_400:
        x, enlarged = x * TWO_TO_600, 600.0
    e = exponent(x)
    return 0.5 * x * power_of_2(1.0 - e), e - enlarged


def scaled(x: float, rest: float, n: float) -> float:
    """(x + rest)·2ⁿ for x > 0, rounded once, also to a subnormal number: those are as far apart as the numbers from
    `normal` to 2·`normal`, so adding it to x rounds x as the result must be."""
    if n > 1022.0:
        return (x + rest) * TWO_TO_1023 * power_of_2(n - 1023.0)
    if n < 0.0:
        normal = power_of_2(-1022.0 - n)
        if x < normal:
            total, lost = quick_sum(normal, x)
            return ((total + (lost + rest)) - normal) * power_of_2(n + 1022.0) * SMALLEST_NORMAL
    return (x + rest) * power_of_2(n)


def common_scale(x: float) -> float:
    """A power of 2 by which to multiply x, and numbers not much smaller, so that their squares are well inside."""
    return TWO_TO_MINUS_600 if x > TWO_TO_500 else TWO_TO_600 if x < TWO_TO_MINUS_400 else 1.0


def exp_mantissa(x: float, rest: float, n: float) -> tuple[float, float]:
    """exp(x + rest) / 2^⌊n/32⌋ as a pair, n being the whole number nearest to 32x / log 2.

    With r = x - n·(log 2)/32 this is 2^(j/32)·(1 + (eʳ - 1)), |r| < 0.011: a table of 32 numbers and a short
    polynomial. The table's numbers have 26 bits, and a rest, so that the largest product is exact.
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
    n = nearest(x * STEPS_PER_LOG_2)
    total, lost = exp_mantissa(x, rest, n)
    scale = power_of_2(floor(n * 0.03125))
    return total * scale, lost * scale


def exp_times(x: float, rest: float, factor: float, factor_rest: float) -> float:
    """exp(x + rest) times a positive pair of moderate size, rounded once, for any x."""
    if x != x or x > 720.0:
        return x * INF
    if x < -760.0:
        return 0.0
    n = nearest(x * STEPS_PER_LOG_2)
    total, lost = exp_mantissa(x, rest, n)
    total, lost = multiply(total, lost, factor, factor_rest)
    return scaled(total, lost, floor(n * 0.03125))


def exp(x: float) -> float:
    """eˣ, as `exp_mantissa` computes it, with fewer digits than a pair."""
    if not absolute(x) < 700.0:
        return exp_times(x, 0.0, 1.0, 0.0)
    n = nearest(x * STEPS_PER_LOG_2)
    k = floor(n * 0.03125)
    j = n - 32.0 * k
    r = (x - n * EXP_STEP) - n * EXP_STEP_REST
    root, root_rest = EXP2_TABLE[int(j)], EXP2_TABLE_REST[int(j)]
    return (root + (root_rest + (root + root_rest) * (r + r * r * horner(r, EXP)))) * power_of_2(k)


def exp2(x: float) -> float:
    """2ˣ = exp(x·log 2), the product as a pair; 1,100 is beyond all."""
    x = copysign(1100.0, x) if absolute(x) > 1100.0 else x
    product, rest = two_product(x, LOG_2)
    return exp_times(product, rest + x * LOG_2_REST, 1.0, 0.0)


def expm1(x: float) -> float:
    """eˣ - 1: the series near 0, else the pair less 1."""
    if absolute(x) < 0.0108:
        return x + x * x * horner(x, EXP)
    if not x < 50.0:
        return exp_times(x, 0.0, 1.0, 0.0)
    if x < -50.0:
        return -1.0
    total, rest = exp_pair(x, 0.0)
    total, lost = two_sum(total, -1.0)
    return total + (lost + rest)


def sinh(x: float) -> float:
    """(eˣ - e⁻ˣ) / 2: the series near 0; far away e⁻ˣ does not count."""
    a = absolute(x)
    if a < 0.03:
        return x + x * x * x * horner(x * x, SINH)
    if not a < 25.0:
        return copysign(exp_times(a, 0.0, 0.5, 0.0), x)
    total, rest = exp_pair(a, 0.0)
    inverse, inverse_rest = divide(0.5, 0.0, total, rest)
    total, lost = two_sum(0.5 * total, -inverse)
    return copysign(total + (lost + (0.5 * rest - inverse_rest)), x)


def cosh(x: float) -> float:
    """(eˣ + e⁻ˣ) / 2; far away e⁻ˣ does not count."""
    a = absolute(x)
    if not a < 25.0:
        return exp_times(a, 0.0, 0.5, 0.0)
    total, rest = exp_pair(a, 0.0)
    inverse, inverse_rest = divide(0.5, 0.0, total, rest)
    total, lost = quick_sum(0.5 * total, inverse)
    return total + (lost + (0.5 * rest + inverse_rest))


def tanh(x: float) -> float:
    """1 - 2 / (e²ˣ + 1), the quotient in two parts, of which the first has few bits; the series near 0."""
    a = absolute(x)
    if a < 0.016:
        return x + x * x * x * horner(x * x, TANH)
    if not a < 20.0:
        return copysign(1.0, x) if x == x else x
    total, rest = exp_pair(2.0 * a, 0.0)
    below, lost = quick_sum(total, 1.0)
    below_high = upper(below)
    quotient = upper(2.0 / below)
    left = ((2.0 - quotient * below_high) - quotient * (below - below_high)) - quotient * (lost + rest)
    return copysign((1.0 - quotient) - left / below, x)


def log_pair(x: float) -> tuple[float, float]:
    """log x as a pair, for 0 < x < ∞.

    x = m·2ᵏ with 0.75 ≤ m < 1.5, and j/64 is close to 1/m: log x = k·log 2 - log(j/64) + log(1 + f), where
    f = m·j/64 - 1 is exact as a pair and |f| < 0.012. The first two have 42 bits after the point, so their sum is exact;
    of f - f²/2 + f³·(…) the square is made of exact products.
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
    """log(x + rest) as a pair."""
    total, lost = log_pair(x)
    return quick_sum(total, lost + rest / x) if total != 0.0 else quick_sum(rest, -0.5 * rest * rest)


def log_edge(x: float) -> float:
    """A logarithm where x is not positive and finite."""
    return -INF if x == 0.0 else INF if x > 0.0 else NAN


def log(x: float) -> float:
    """The natural logarithm."""
    if not (x > 0.0 and x < INF):
        return log_edge(x)
    total, rest = log_pair(x)
    return total + rest


def log_to_base(x: float, factor: float, factor_rest: float) -> float:
    """log x times one over the logarithm of the base."""
    if not (x > 0.0 and x < INF):
        return log_edge(x)
    total, rest = log_pair(x)
    total, rest = multiply(total, rest, factor, factor_rest)
    return total + rest


def log2(x: float) -> float:
    """The logarithm to base 2."""
    return log_to_base(x, ONE_OVER_LOG_2, ONE_OVER_LOG_2_REST)


def log10(x: float) -> float:
    """The logarithm to base 10."""
    return log_to_base(x, ONE_OVER_LOG_10, ONE_OVER_LOG_10_REST)


def log1p(x: float) -> float:
    """log(1 + x), the sum as a pair; close to 0 x itself."""
    if absolute(x) < TWO_TO_MINUS_54:
        return x
    if not (x > -1.0 and x < INF):
        return log_edge(x + 1.0)
    total, rest = two_sum(1.0, x)
    total, rest = log_of_pair(total, rest)
    return total + rest


def log_of_sum(x: float, one: float) -> float:
    """log(x + √(x² + one)): the inverse of sinh and, with one = -1, of cosh; x ≥ 0."""
    if x > TWO_TO_30:
        total, rest = log_pair(x)
        total, lost = quick_sum(total, LOG_2)
        return total + (lost + (rest + LOG_2_REST))
    square, rest = two_product(x, x)
    square, lost = two_sum(square, one)
    root, root_rest = square_root(square, lost + rest)
    total, lost = two_sum(x, root)
    total, rest = log_of_pair(total, lost + root_rest)
    return total + rest


def asinh(x: float) -> float:
    """log(x + √(x² + 1)); close to 0 x itself."""
    a = absolute(x)
    if a < TWO_TO_MINUS_27 or not a < INF:
        return x
    return copysign(log_of_sum(a, 1.0), x)


def acosh(x: float) -> float:
    """log(x + √(x² - 1))."""
    if not (x >= 1.0 and x < INF):
        return INF if x > 1.0 else NAN
    return log_of_sum(x, -1.0)


def atanh(x: float) -> float:
    """(log(1 + x) - log(1 - x)) / 2: the two have opposite signs, so no digits are lost; close to 0 x itself."""
    a = absolute(x)
    if a < TWO_TO_MINUS_27:
        return x
    if not a < 1.0:
        return copysign(INF, x) if a == 1.0 else NAN
    above, above_rest = two_sum(1.0, a)
    below, below_rest = two_sum(1.0, -a)
    above, above_rest = log_of_pair(above, above_rest)
    below, below_rest = log_of_pair(below, below_rest)
    total, lost = quick_sum(-below, above)
    return copysign(0.5 * (total + (lost + (above_rest - below_rest))), x)


def pow_edge(x: float, y: float) -> float:
    """xʸ for x ≥ 0 where one of them is 0, infinite or NaN, and for x = 1."""
    if y == 0.0 or x == 1.0:
        return 1.0
    if x != x or y != y:
        return NAN
    return INF if (x > 1.0 and y > 0.0) or (x < 1.0 and y < 0.0) else 0.0


def pow(x: float, y: float) -> float:
    """xʸ = exp(y·log x), the logarithm and the product as pairs; with odd y a negative x gives a negative result."""
    a = absolute(x)
    sign = copysign(1.0, x) if absolute(y - 2.0 * trunc(0.5 * y)) == 1.0 else 1.0
    if x < 0.0 and x > -INF and y != trunc(y):
        return NAN
    if not (a > 0.0 and a < INF and absolute(y) < INF and a != 1.0):
        return sign * pow_edge(a, y)
    y = copysign(TWO_TO_64, y) if absolute(y) > TWO_TO_64 else y
    total, rest = log_pair(a)
    product, lost = two_product(y, total)
    return sign * exp_times(product, lost + y * rest, 1.0, 0.0)


def turns(x: float, n: float) -> tuple[float, float]:
    """x·32/π - n, less a multiple of 64, as a pair, for x up to the largest (Payne and Hanek).

    32/π is a sum of cᵢ·2⁻²⁴ⁱ. Where cᵢ·2⁻²⁴ⁱ·x is a multiple of 64, it is left out; of the others nine are enough.
    """
    i = floor((exponent(absolute(x)) - 58.0) / 24.0) + 1.0
    i = i if i > 0.0 else 0.0
    x = x * power_of_2(-24.0 * i)
    high = upper(x)
    low = x - high
    total, rest = -n, 0.0
    scale, last = 1.0, i + 9.0
    while i < last:
        total, rest = add_turns(total, rest, high * STEPS_PER_RADIAN[int(i)] * scale)
        total, rest = add_turns(total, rest, low * STEPS_PER_RADIAN[int(i)] * scale)
        scale, i = scale * TWO_TO_MINUS_24, i + 1.0
    return total, rest


def add_turns(total: float, rest: float, more: float) -> tuple[float, float]:
    """total + rest + more as a pair, each less a multiple of 64."""
    total, lost = two_sum(total, more - 64.0 * nearest(more * 0.015625))
    return quick_sum(total - 64.0 * nearest(total * 0.015625), lost + rest)


def steps(x: float) -> float:
    """The n of which n·π/32 is closest to x, less a multiple of 64 if x is large."""
    if absolute(x) < LARGE_ANGLE:
        return nearest(x * STEPS_PER_RADIAN_ROUNDED)
    total, rest = turns(x, 0.0)
    return nearest(total + rest)


def beyond_step(x: float, n: float) -> tuple[float, float]:
    """x - n·π/32 as a pair: with π/32 in parts so short that n times them is exact, or by another walk with `turns`."""
    if not absolute(x) < LARGE_ANGLE:
        total, rest = turns(x, n)
        return multiply(total, rest, STEP, STEP_REST)
    total, rest = two_sum(x - n * STEP_1, -n * STEP_2)
    total, lost = two_sum(total, -n * STEP_3)
    return quick_sum(total, rest + (lost - n * STEP_4))


def sine_of_steps(n: float) -> tuple[float, float]:
    """sin(n·π/32), the first number with 26 bits, from the table of the first quarter."""
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
    """The sine; close to 0 x itself."""
    if absolute(x) < TWO_TO_MINUS_27 or x - x != 0.0:
        return x if x - x == 0.0 else NAN
    n = steps(x)
    r, rest = beyond_step(x, n)
    total, lost = sine(n, r, rest)
    return total + lost


def cos(x: float) -> float:
    """The cosine, a quarter of a turn ahead of the sine."""
    if x - x != 0.0:
        return NAN
    n = steps(x)
    r, rest = beyond_step(x, n)
    total, lost = sine(n + 16.0, r, rest)
    return total + lost


def tan(x: float) -> float:
    """Sine over cosine; close to 0 x itself."""
    if absolute(x) < TWO_TO_MINUS_27 or x - x != 0.0:
        return x if x - x == 0.0 else NAN
    n = steps(x)
    r, rest = beyond_step(x, n)
    above, above_rest = sine(n, r, rest)
    below, below_rest = sine(n + 16.0, r, rest)
    total, lost = divide(above, above_rest, below, below_rest)
    return total + lost


def angle(y: float, y_rest: float, x: float, x_rest: float) -> tuple[float, float]:
    """The angle of the point (x, y), y ≥ 0, as a pair; neither is extreme.

    In the first eighth of the turn: atan(y/x) = atan(j/16) + atan((y - x·j/16) / (x + y·j/16)), the first from a table, the
    second the series of a number below 1/31. The other eighths are mirrored into it.
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
    """The angle of (1, x); close to 0 x itself."""
    a = absolute(x)
    if a < TWO_TO_MINUS_27 or x != x:
        return x
    if a > TWO_TO_60:
        return copysign(HALF_PI, x)
    total, rest = angle(a, 0.0, 1.0, 0.0)
    return copysign(total + rest, x)


def atan2(y: float, x: float) -> float:
    """The angle of (x, y); where one is far larger, y/x or a multiple of π/2. Infinities count as ones."""
    if x != x or y != y:
        return NAN
    if absolute(x) == INF or absolute(y) == INF:
        x = copysign(1.0 if absolute(x) == INF else 0.0, x)
        y = copysign(1.0 if absolute(y) == INF else 0.0, y)
    a, b = absolute(x), absolute(y)
    if b <= a * TWO_TO_MINUS_60:
        if copysign(1.0, x) < 0.0:
            return copysign(2.0 * HALF_PI, y)
        return y / x if a > 0.0 else y
    if a <= b * TWO_TO_MINUS_60:
        return copysign(HALF_PI, y)
    scale = common_scale(a if a > b else b)
    total, rest = angle(b * scale, 0.0, x * scale, 0.0)
    return copysign(total + rest, y)


def other_leg(x: float) -> tuple[float, float]:
    """√(1 - x²) as a pair."""
    square, rest = two_product(x, x)
    total, lost = two_sum(1.0, -square)
    return square_root(total, lost - rest)


def asin(x: float) -> float:
    """The angle of (√(1 - x²), x); close to 0 x itself."""
    a = absolute(x)
    if a < TWO_TO_MINUS_27 or not a <= 1.0:
        return x if a < 1.0 else NAN
    leg, leg_rest = other_leg(a)
    total, rest = angle(a, 0.0, leg, leg_rest)
    return copysign(total + rest, x)


def acos(x: float) -> float:
    """The angle of (x, √(1 - x²))."""
    if not absolute(x) <= 1.0:
        return NAN
    leg, leg_rest = other_leg(x)
    total, rest = angle(leg, leg_rest, x, 0.0)
    return total + rest


def hypot(x: float, y: float) -> float:
    """√(x² + y²), scaled so that the squares are well inside."""
    a, b = absolute(x), absolute(y)
    if a == INF or b == INF:
        return INF
    if b > a:
        a, b = b, a
    if a != a or b != b or b <= a * TWO_TO_MINUS_28:
        return a + b
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
    if x - x != 0.0 or y != y or b == 0.0:
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
        a = a + b if a < 0.0 else a
        n = n - shift
    return copysign(scaled(a, 0.0, k), x)


def erfc_over_exp(x: float) -> tuple[float, float]:
    """erfc(x)·exp(x²) as a pair, 0.25 ≤ x ≤ 27.3: a polynomial in (x - 4) / (x + 4), over 1 + 2x."""
    above, above_rest = two_sum(x, -4.0)
    below, below_rest = two_sum(x, 4.0)
    t, t_rest = divide(above, above_rest, below, below_rest)
    total, lost = quick_sum(ERFC_1, t * horner(t, ERFC_TAIL))
    total, rest = multiply(total, lost + ERFC_1_REST, t, t_rest)
    total, lost = quick_sum(ERFC_0, total)
    below, below_rest = two_sum(1.0, 2.0 * x)
    return divide(total, lost + (rest + ERFC_0_REST), below, below_rest)


def erf_near_0(x: float) -> tuple[float, float]:
    """erf(x) as a pair, |x| ≤ 0.25: the series."""
    total, rest = multiply(x, 0.0, TWO_OVER_SQRT_PI, TWO_OVER_SQRT_PI_REST)
    return quick_sum(total, rest + x * x * x * horner(x * x, ERF))


def erfc_pair(x: float) -> tuple[float, float]:
    """erfc(x) as a pair, 0.25 ≤ x ≤ 6."""
    square, rest = two_product(x, x)
    total, lost = exp_pair(-square, -rest)
    factor, factor_rest = erfc_over_exp(x)
    return multiply(total, lost, factor, factor_rest)


def erf(x: float) -> float:
    """The error function: 1 - erfc(x), near 0 the series; tiny arguments are enlarged for it."""
    a = absolute(x)
    if a < TWO_TO_MINUS_400:
        total, rest = erf_near_0(a * TWO_TO_600)
        return copysign(scaled(total, rest, -600.0), x)
    if a < 0.25:
        total, rest = erf_near_0(x)
        return total + rest
    if not a < 6.0:
        return copysign(1.0, x) if x == x else x
    part, part_rest = erfc_pair(a)
    total, lost = quick_sum(1.0, -part)
    return copysign(total + (lost - part_rest), x)


def erfc(x: float) -> float:
    """1 - erf(x): in the tail exp(-x²) times `erfc_over_exp`, rounded once; the other side mirrored."""
    if absolute(x) < 0.25:
        total, rest = erf_near_0(x)
        total, lost = quick_sum(1.0, -total)
        return total + (lost - rest)
    if not (x < 27.3 and x > -6.0):
        return 0.0 if x > 0.0 else 2.0 if x < 0.0 else x
    if x < 0.0:
        total, rest = erfc_pair(-x)
        total, lost = quick_sum(2.0, -total)
        return total + (lost - rest)
    square, rest = two_product(x, x)
    factor, factor_rest = erfc_over_exp(x)
    return exp_times(-square, -rest, factor, factor_rest)
