"""Elementary functions across SIMD lanes: exp, expm1, log, log1p, tanh, sin and cos as short programs of arithmetic.

The mathematical library takes one number at a time. A kernel here is a Python function from `Vector` to `Vector`, which
stand for any number of lanes in LLVM's text; `define` runs it once and returns the text of an LLVM function.

Of 200,000 random arguments of all sizes per function, none has an error over 1.1 ulp; zeros, infinities and NaN are as
in the library. That rests on the order of operations, so nothing here carries the flag `reassoc`, and on `fma`, which
x86 processors have had since 2013 (others compute it slowly). Polynomials are minimax, from `tools/fit_kernels.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

from chainrule.compiler.backends.llvm.text import DOUBLE, PURE, Text, constant, vector

Operand: TypeAlias = "Vector | float"  # a number becomes the same number in every lane


def exp(x: Vector) -> Vector:
    """eˣ = 2ⁿ·eʳ with n = round(x / log 2), |r| ≤ log(2)/2, and eʳ = 1 + (r + r²·EXP(r))."""
    x = clamp(x, -746.0, 710.0)  # beyond: 0 and ∞
    n, r, tail = remainder_by_log2(x)
    r = r + tail
    return ldexp(fma(r * r, polynomial(r, EXP), r) + 1.0, n)


def expm1(x: Vector) -> Vector:
    """eˣ - 1, as twice its half, which cannot overflow before its time; x itself where x² no longer counts."""
    high, low = half_expm1(clamp(x, -40.0, 710.0))
    return select(absolute(x) < 2.0**-54, x, (high + low) * 2.0)


def tanh(x: Vector) -> Vector:
    """h / (1 + h) with h = (e^2|x| - 1) / 2, in two doubles each; one step corrects the quotient."""
    double = absolute(x) * 2.0
    high, low = fast_two_sum(*half_expm1(select(double > 44.0, 44.0, double)))  # beyond: 1
    divisor, rest = two_sum(high, 1.0)
    inverse = 1.0 / divisor
    quotient = high * inverse
    missing = fma(-quotient, divisor, high) + fma(-quotient, rest + low, low)
    return copysign(fma(missing, inverse, quotient), x)


def log(x: Vector) -> Vector:
    """log x = k·log 2 + log(1 + f) with x = 2ᵏ·(1 + f), √½ ≤ 1 + f < √2. Subnormal x is scaled first."""
    subnormal = x < 2.0**-1022
    f, k = split(select(subnormal, x * 2.0**54, x))
    result = log_of_parts(f, select(subnormal, k - 54.0, k))
    return with_pole(x, 0.0, result)


def log1p(x: Vector) -> Vector:
    """log(1 + x): as `log`, where f also takes what rounding 1 + x lost; x itself where x² no longer counts."""
    total, lost = two_sum(x, 1.0)
    f, k = split(total)
    f, rest = fast_two_sum(f, select(k < 64.0, lost * power_of_2(-k), 0.0))
    result = select(absolute(x) < 2.0**-54, x, log_of_parts(f, k, rest))
    return with_pole(x, -1.0, result)


def sin(x: Vector) -> Vector:
    """± sin or cos of the remainder by π/2, by quadrant; x itself where x³ no longer counts, which keeps -0."""
    return library_beyond(FARTHEST, "sin", x, select(absolute(x) < 2.0**-27, x, wave(x, 0)))


def cos(x: Vector) -> Vector:
    """The sine, one quadrant on."""
    return library_beyond(FARTHEST, "cos", x, wave(x, 1))


KERNELS: dict[str, Callable[[Vector], Vector]] = {f.__name__: f for f in (exp, expm1, tanh, log, log1p, sin, cos)}
SLOWER_ALONE = {"exp", "log"}  # for a single lane the library's tables are faster
FARTHEST = 2.0**44  # beyond this angle the quadrant, computed in one double, is too uncertain


# Minimax coefficients, constant first, and constants in parts; printed by tools/fit_kernels.py.

EXP = (  # (eʳ - 1 - r) / r² for |r| ≤ log(2)/2; error of eʳ - 1: 2^-59.9
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
)
LOG = (  # (2 artanh s - 2s) / s³ in s² for |s| ≤ 3 - 2√2; error of 2 artanh s: 2^-59.2
    0.6666666666666734,
    0.3999999999941602,
    0.2857142874210188,
    0.22222198601179502,
    0.18183562940681497,
    0.1531408424647975,
    0.14795629635760835,
)
SIN = (  # (sin r - r) / r³ in r² for |r| ≤ π/4; error of sin r: 2^-57.5
    -0.1666666666666663,
    0.008333333333321891,
    -0.00019841269829400785,
    2.7557313553683887e-06,
    -2.50507368367625e-08,
    1.5895579016048382e-10,
)
COS = (  # (cos r - 1 + r²/2) / r⁴ in r² for |r| ≤ π/4; error of cos r: 2^-59.0
    0.04166666666666659,
    -0.0013888888888872733,
    2.4801587288643944e-05,
    -2.755731411779517e-07,
    2.0875692290014753e-09,
    -1.1358084208547048e-11,
)
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
LOG2 = (0.6931471805598903, 5.497923018708371e-14)  # the first has 42 bits: its product with an exponent is exact


# Steps that kernels share.


def remainder_by_log2(x: Vector) -> tuple[Vector, Vector, Vector]:
    """n, r and tail with x = n·log 2 + r + tail; r is exact, as x and n·LOG2[0] are close and short."""
    n = nearest(x * (1.0 / math.log(2.0)))
    return n, fma(n, -LOG2[0], x), n * -LOG2[1]


def half_expm1(x: Vector) -> tuple[Vector, Vector]:
    """(eˣ - 1) / 2 = 2ⁿ⁻¹·(eʳ - 1) + (2ⁿ⁻¹ - ½), as a double and a small rest; x below 710."""
    n, r, tail = remainder_by_log2(x)
    near = r + tail
    curved = near * near * polynomial(near, EXP)
    scale = power_of_2(n - 1.0)
    high, low = fast_two_sum(scale - 0.5, scale * r)
    return high, fma(scale, curved + tail, low)


def split(x: Vector) -> tuple[Vector, Vector]:
    """f and k with x = 2ᵏ·(1 + f), √½ ≤ 1 + f < √2, both exact; x positive and normal."""
    root = pattern(math.sqrt(0.5))
    shifted = bits(x) + (pattern(1.0) - root)
    k = floats((shifted >> 52) | pattern(2.0**52)) - (2.0**52 + 1023.0)
    return floats((shifted & (2**52 - 1)) + root) - 1.0, k


def log_of_parts(f: Vector, k: Vector, rest: Operand = 0.0) -> Vector:
    """k·log 2 + log(1 + f) + rest, where log(1 + f) = 2 artanh s = 2s + s³·LOG(s²) with s = f / (2 + f).

    As 2s = f - s·f and s·f = f²/2 - s·f²/2, all but f, which is exact, is small: f - (f²/2 - s·(f²/2 + s²·LOG)).
    """
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    small = fma(s, fma(z, polynomial(z, LOG), half_square), fma(k, LOG2[1], rest))
    return fma(k, LOG2[0], f - (half_square - small))


def with_pole(x: Vector, pole: float, result: Vector) -> Vector:
    """`result` of a logarithm for x above its pole; -∞ at the pole, NaN below; ∞ and NaN as they are."""
    result = select(x < math.inf, result, x)
    return select(x > pole, result, select(x == pole, -math.inf, math.nan))


def wave(x: Vector, quadrants: int) -> Vector:
    """sin(x + quadrants·π/2), for |x| up to FARTHEST.

    The remainder r + tail = x - n·π/2 takes π/2 in three parts (Cody and Waite). The first product leaves an exact
    difference; what rounding loses of the second product and its difference goes to the tail, with the third. The error
    left is below 2^-118, and no double in range is nearer to a multiple of π/2 than 2^-61.
    """
    shifted = fma(x, 2.0 / math.pi, ROUNDER)  # n in the lowest bits
    n = shifted - ROUNDER
    second = n * HALF_PI[1]
    r, lost = two_sum(fma(n, -HALF_PI[0], x), -second)
    tail = fma(n, -HALF_PI[2], lost - fma(n, HALF_PI[1], -second))
    z = r * r
    sine = r + fma(r * z, polynomial(z, SIN), tail)
    half = z * 0.5
    nearly = 1.0 - half
    cosine = nearly + (((1.0 - nearly) - half) + fma(z * z, polynomial(z, COS), -(r * tail)))
    quadrant = bits(shifted) + quadrants
    chosen = select((quadrant & 1) == 1, cosine, sine)
    return floats(bits(chosen) ^ ((quadrant & 2) << 62))


def polynomial(x: Vector, coefficients: Sequence[float]) -> Vector:
    """Σ coefficients[i]·xⁱ, in pairs for a short chain: (a + b·x) + (c + d·x)·x² + … (Estrin)."""
    terms: list[Vector] = [x.constant(c) for c in coefficients]
    while len(terms) > 1:
        pairs = [fma(x, b, a) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
        x = x * x
    return terms[0]


def two_sum(a: Vector, b: Operand) -> tuple[Vector, Vector]:
    """a + b rounded, and exactly what rounding lost (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def fast_two_sum(a: Vector, b: Vector) -> tuple[Vector, Vector]:
    """The same where |a| ≥ |b| or a = 0 (Dekker)."""
    total = a + b
    return total, b - (total - a)


ROUNDER = 1.5 * 2.0**52  # a number near this is a whole one, and its lowest bits count up


def nearest(x: Vector) -> Vector:
    """The nearest whole number, for |x| below 2^51."""
    return (x + ROUNDER) - ROUNDER


def power_of_2(n: Vector) -> Vector:
    """2ⁿ for a whole n from -1022 to 1023: the exponent's bits."""
    return floats((bits(n + ROUNDER) << 52) + pattern(1.0))


def ldexp(x: Vector, n: Vector) -> Vector:
    """x·2ⁿ in two steps, so that each factor is a normal number and only the last one rounds."""
    half = nearest(n * 0.5)
    return x * power_of_2(half) * power_of_2(n - half)


def clamp(x: Vector, low: float, high: float) -> Vector:
    """x within bounds; NaN stays."""
    x = select(x < low, low, x)
    return select(x > high, high, x)


# Text.


def pattern(number: float) -> int:
    """The bits of a double, as a whole number."""
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def _binary(doubles: str, integers: str, element: str = "") -> Callable[[Vector, Operand], Vector]:
    """An operator: its instruction on doubles and on whole numbers; the result is of type `element` if that differs."""

    def operator(self: Vector, other: Operand) -> Vector:
        instruction = doubles if self.element == "double" else integers
        line = f"{instruction} {self.kind} {self.name}, {self.constant(other).name}"
        return self.emit(line, element or self.element)

    return operator


class Vector:
    """A value in LLVM's text: lanes of `double`, `i64` or `i1`. Arithmetic on it appends to the text."""

    def __init__(self, text: Text, name: str, lanes: int, element: str = "double") -> None:
        self.text = text
        self.name = name
        self.lanes = lanes
        self.element = element

    @property
    def kind(self) -> str:
        return vector(self.element, self.lanes)

    def emit(self, instruction: str, element: str = "double") -> Vector:
        """The result of an instruction, in lanes like these."""
        return Vector(self.text, self.text.emit(instruction), self.lanes, element)

    def constant(self, value: Operand) -> Vector:
        """`value` in lanes like these."""
        if isinstance(value, Vector):
            return value
        number = str(value) if self.element == "i64" else DOUBLE.literal(value)
        return Vector(self.text, constant(self.element, number, self.lanes), self.lanes, self.element)

    def __rsub__(self, other: Operand) -> Vector:  # other - self
        return self.constant(other) - self

    def __rtruediv__(self, other: Operand) -> Vector:  # other / self
        return self.constant(other) / self

    def __neg__(self) -> Vector:
        return self.emit(f"fneg {self.kind} {self.name}")

    __add__, __sub__, __mul__, __truediv__ = (_binary(f"f{name}", name) for name in ("add", "sub", "mul", "div"))
    __and__, __or__, __xor__, __lshift__, __rshift__ = (_binary("", n) for n in ("and", "or", "xor", "shl", "lshr"))
    __lt__, __gt__ = (_binary(f"fcmp {predicate}", "", "i1") for predicate in ("olt", "ogt"))
    __eq__ = _binary("fcmp oeq", "icmp eq", "i1")  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


def intrinsic(name: str, x: Vector, *others: Operand) -> Vector:
    """A function of LLVM's own."""
    operands = [x.name, *[x.constant(other).name for other in others]]
    return Vector(x.text, x.text.intrinsic(name, operands, x.lanes), x.lanes)


def fma(a: Vector, b: Operand, c: Operand) -> Vector:
    """a·b + c, rounded once."""
    return intrinsic("fma", a, b, c)


def absolute(x: Vector) -> Vector:
    """|x|."""
    return intrinsic("fabs", x)


def copysign(x: Vector, sign: Vector) -> Vector:
    """|x| with the sign of `sign`."""
    return intrinsic("copysign", x, sign)


def select(condition: Vector, yes: Operand, no: Operand) -> Vector:
    """`yes` in the lanes where the condition holds, else `no`."""
    doubles = [Vector(condition.text, "", condition.lanes).constant(value) for value in (yes, no)]
    choices = ", ".join(f"{value.kind} {value.name}" for value in doubles)
    return condition.emit(f"select {condition.kind} {condition.name}, {choices}")


def bits(x: Vector) -> Vector:
    """The bits of doubles as whole numbers."""
    return x.emit(f"bitcast {x.kind} {x.name} to {vector('i64', x.lanes)}", "i64")


def floats(x: Vector) -> Vector:
    """The doubles with these bits."""
    return x.emit(f"bitcast {x.kind} {x.name} to {vector('double', x.lanes)}")


def symbol(name: str, lanes: int) -> str:
    """The LLVM function of a kernel."""
    return f"@kernel.{name}.{lanes}"


def pays(name: str, lanes: int) -> bool:
    """Whether there is a kernel that is faster than the library."""
    return name in KERNELS and (lanes > 1 or name not in SLOWER_ALONE)


@cache
def define(name: str, lanes: int) -> frozenset[str]:
    """The kernel as an LLVM function called `symbol(name, lanes)`, and the declarations it needs.

    It is called, not inlined: at 32 lanes that costs nothing, and the time to compile does not grow with its uses.
    """
    text = Text()
    result = KERNELS[name](Vector(text, "%x", lanes))
    function = _function(symbol(name, lanes), "#0", result)
    return frozenset(text.declarations | {function})


def library_beyond(limit: float, name: str, x: Vector, result: Vector) -> Vector:
    """`result`, but the mathematical library's in lanes where |x| > limit; if there are none, only a test."""
    text, library = x.text, f"@library.{name}.{x.lanes}"
    text.declarations |= _library(name, library, x.lanes)
    beyond = any_beyond = absolute(x) > limit
    if x.lanes > 1:
        reduction = f"i1 @llvm.vector.reduce.or.v{x.lanes}i1"
        text.declarations.add(f"declare {reduction}({beyond.kind})")
        any_beyond = x.emit(f"call {reduction}({beyond.kind} {beyond.name})")
    text.lines += [f"  br i1 {any_beyond.name}, label %far, label %done", "far:"]
    far = select(beyond, x.emit(f"call {x.kind} {library}({x.kind} {x.name})"), result)
    text.lines += ["  br label %done", "done:"]
    return x.emit(f"phi {x.kind} [ {result.name}, %entry ], [ {far.name}, %far ]")


def _library(name: str, symbol: str, lanes: int) -> set[str]:
    """A function of the mathematical library, lane by lane."""
    text = Text()
    result = Vector(text, text.library(name, ["%x"], lanes), lanes)
    return {_function(symbol, "cold noinline", result), *text.declarations}


def _function(symbol: str, attributes: str, result: Vector) -> str:
    """The text of `result` as a function of %x."""
    head = f"define internal {result.kind} {symbol}({result.kind} %x) {PURE} {attributes}"
    return result.text.function(head, f"{result.kind} {result.name}")
