"""The two formats of numbers, and the constants of the kernels in each.

Coefficients are minimax, constant first, and constants are in parts; all of them printed by tools/fit_kernels.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from chainrule.compiler.backends.llvm.text import ELEMENTS, Element

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Format:
    """A number is ± 1.fraction · 2^exponent, with so many binary digits of fraction."""

    element: Element
    digits: int
    bias: int  # added to an exponent in the bits of a number
    exp: Numbers  # (eʳ - 1 - r) / r² for |r| ≤ log(2)/2
    log: Numbers  # (2 artanh s - 2s) / s³ in s² for |s| ≤ 3 - 2√2
    sin: Numbers  # (sin r - r) / r³ in r² for |r| ≤ π/4
    cos: Numbers  # (cos r - 1 + r²/2) / r⁴ in r² for |r| ≤ π/4
    half_pi: Numbers  # the sum of these
    log2: Numbers  # likewise; the first is so short that its product with an exponent is exact

    # The rest is for functions that have kernels in one of the formats only.
    exp2: Numbers = ()  # (2ʳ - 1) / r for |r| ≤ ½
    sinh: Numbers = ()  # (sinh x - x) / x³ in x² for |x| ≤ 1
    artanh: Numbers = ()  # (artanh s - s - s³/3) / s⁵ in s² for |s| ≤ 3 - 2√2
    asinh: Numbers = ()  # (asinh x - x) / x³ in x² for |x| ≤ ½
    tan: Numbers = ()  # (tan r - r) / r³ in r² for |r| ≤ π/4
    atan: Numbers = ()  # (atan t - t) / t³ in t² for |t| ≤ 1
    asin: Numbers = ()  # (asin t - t) / t³ in t² for |t| ≤ ½
    erf: Numbers = ()  # erf(x) / x - 1 in x² for |x| ≤ 0.9
    log_erfc: Numbers = ()  # log(erfc(x)) for 0.9 ≤ x ≤ 4
    erfc: Numbers = ()  # (1 + 2x)·exp(x²)·erfc(x) in (x - 4) / (x + 4) for 0.47 ≤ x ≤ 10.5; the constant in two parts
    third: Numbers = ()  # the sum of these
    per_log2: Numbers = ()  # 1 / log 2, likewise
    per_log10: Numbers = ()  # 1 / log 10, likewise
    log10_of_2: Numbers = ()  # likewise; the first is as short as that of log 2

    @property
    def integer(self) -> str:
        """The type of its bits."""
        return f"i{8 * self.element.bytes}"

    def pattern(self, number: float) -> int:
        """The bits of a number, as a whole one."""
        return int(np.array(number, self.element.dtype).view(f"i{self.element.bytes}"))

    @property
    def rounder(self) -> float:
        """A number near this is a whole one, and its lowest bits count up."""
        return 1.5 * 2.0**self.digits

    @property
    def normal(self) -> float:
        """The smallest number with all digits."""
        return 2.0 ** (1 - self.bias)

    @property
    def overflow(self) -> float:
        """From here on eˣ is infinite."""
        return math.ceil((self.bias + 1) * math.log(2.0))

    @property
    def underflow(self) -> float:
        """Below this eˣ is 0."""
        return -math.ceil((self.bias + self.digits) * math.log(2.0))

    @property
    def flat(self) -> float:
        """From here on e⁻ˣ does not count beside 1, even twice."""
        return 0.75 * (self.digits + 3)

    @property
    def negligible(self) -> float:
        """A number below this does not count beside 1."""
        return 2.0 ** -(self.digits + 2)

    @property
    def cubes_vanish(self) -> float:
        """The cube of a number below this does not count beside it."""
        return 2.0 ** -(self.digits // 2 + 1)

    @property
    def farthest(self) -> float:
        """Beyond this angle the quadrant, computed in one number, is too uncertain."""
        return 2.0 ** (self.digits - 8)


FORMATS = {
    "double": Format(
        ELEMENTS["float64"],
        digits=52,
        bias=1023,
        exp=(  # error of eʳ - 1: 2^-59.9
            0.5,
            0.16666666666666677,
            0.04166666666666651,
            0.008333333333321691,
            0.0013888888888962364,
            0.00019841269885966412,
            2.4801587172552942e-05,
            2.755724437372417e-06,
            2.7557402631109145e-07,
            2.5108979040490868e-08,
            2.0875333479523747e-09,
        ),
        log=(  # error of 2 artanh s: 2^-59.2
            0.6666666666666734,
            0.3999999999941602,
            0.2857142874210188,
            0.22222198601179502,
            0.18183562940681497,
            0.1531408424647975,
            0.14795629635760835,
        ),
        sin=(  # error of sin r: 2^-57.5
            -0.1666666666666663,
            0.008333333333321891,
            -0.00019841269829400785,
            2.7557313553683887e-06,
            -2.50507368367625e-08,
            1.5895579016048382e-10,
        ),
        cos=(  # error of cos r: 2^-59.0
            0.04166666666666659,
            -0.0013888888888872733,
            2.4801587288643944e-05,
            -2.755731411779517e-07,
            2.0875692290014753e-09,
            -1.1358084208547048e-11,
        ),
        half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
        log2=(0.6931471805598903, 5.497923018708371e-14),
    ),
    "float": Format(
        ELEMENTS["float32"],
        digits=23,
        bias=127,
        exp=(  # error of eʳ - 1: 2^-28.8
            0.5,
            0.1666666567325592,
            0.041666362434625626,
            0.008333389647305012,
            0.0013940627686679363,
            0.00019845878705382347,
        ),
        log=(0.6666677594184875, 0.3997756838798523, 0.2987107038497925),  # error of 2 artanh s: 2^-30.2
        sin=(-0.16666653752326965, 0.008332150988280773, -0.0001951398007804528),  # error of sin r: 2^-26.9
        cos=(0.04166664555668831, -0.0013887303648516536, 2.44316688622348e-05),  # error of cos r: 2^-32.3
        half_pi=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
        log2=(0.693145751953125, 1.428606765330187e-06),
        exp2=(  # error of 2ʳ: 2^-28.7
            0.6931471824645996,
            0.24022650718688965,
            0.055504102259874344,
            0.009618038311600685,
            0.0013333935057744384,
            0.00015466769400518388,
            1.5196101230685599e-05,
        ),
        sinh=(  # error of sinh x: 2^-27.5
            0.1666666716337204,
            0.008333349600434303,
            0.0001983615948120132,
            2.8169515644549392e-06,
        ),
        artanh=(  # error of artanh s: 2^-36.5
            0.20000076293945312,
            0.14273576438426971,
            0.11709088087081909,
        ),
        asinh=(  # error of asinh x: 2^-29.9
            -0.1666666567325592,
            0.0749988928437233,
            -0.044613249599933624,
            0.030012959614396095,
            -0.01998000591993332,
            0.009167740121483803,
        ),
        tan=(  # error of tan r: 2^-27.5
            0.33333349227905273,
            0.1333264410495758,
            0.05406222492456436,
            0.02126988396048546,
            0.01086864061653614,
            4.677832839661278e-05,
            0.004397908691316843,
        ),
        atan=(  # error of atan t: 2^-25.5
            -0.33333298563957214,
            0.19998548924922943,
            -0.14264240860939026,
            0.10952184349298477,
            -0.08403447270393372,
            0.057957544922828674,
            -0.03117779642343521,
            0.010914577171206474,
            -0.0017936150543391705,
        ),
        asin=(  # error of asin t: 2^-27.3
            0.16666752099990845,
            0.07495297491550446,
            0.045470353215932846,
            0.0241796113550663,
            0.04216616600751877,
        ),
        erf=(  # error of erf x: 2^-30.0
            0.12837916612625122,
            -0.37612634897232056,
            0.11283715069293976,
            -0.02686050720512867,
            0.005203857086598873,
            -0.0008175616967491806,
            8.513018110534176e-05,
        ),
        log_erfc=(  # error of erf x: 2^-29.4
            0.0001506108237663284,
            -1.129381775856018,
            -0.6336633563041687,
            -0.10785818099975586,
            0.024774489924311638,
            -0.003994092810899019,
            0.0003788481990341097,
            -1.1311319212836679e-05,
            -7.374404162874271e-07,
        ),
        erfc=(  # error of erfc x: 2^-28.8
            1.2329951524734497,
            -3.372662860101627e-08,
            -0.1396210640668869,
            0.01537963654845953,
            0.06809438019990921,
            -0.10104005038738251,
            0.09377421438694,
            -0.0662936344742775,
            0.036928314715623856,
            -0.016522133722901344,
            0.005460148211568594,
            0.00010719075362430885,
        ),
        third=(0.3333333432674408, -9.934107758624577e-09),
        per_log2=(1.4426950216293335, 1.925963033500011e-08),
        per_log10=(0.4342944920063019, -1.0103049952192578e-08),
        log10_of_2=(0.301025390625, 4.605039066518657e-06),
    ),
}
