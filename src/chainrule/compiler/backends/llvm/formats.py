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
    ),
}
