"""Elementary functions across SIMD lanes: exp, expm1, log, log1p, tanh, sin and cos as short programs of arithmetic.

The mathematical library takes one number at a time. A kernel here is a Python function from `Vector` to `Vector`, which
stand for any number of lanes in LLVM's text; `define` runs it once and returns the text of an LLVM function. It is
written once for both formats of numbers, which have constants of their own (see `formats`).

Of 20,000 random doubles and six million floats of all sizes per function, none has an error over 1.1 ulp; zeros,
infinities and NaN are as in the library. That rests on the order of operations, so nothing here carries the flag
`reassoc`, and on `fma`, which x86 processors have had since 2013 (others compute it slowly).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from chainrule.compiler.backends.llvm.text import DOUBLE, PURE, Element, Functions, Text, libm
from chainrule.compiler.backends.llvm.vectors import Operand, Vector, absolute, bits, copysign, floats, fma, select


def exp(x: Vector) -> Vector:
    """eˣ = 2ⁿ·eʳ with n = round(x / log 2) and |r| ≤ log(2)/2: n is added to the exponent of eʳ, if that is in range.

    Where the result is 0 another x takes part: masks are often -∞, and arithmetic on what underflows is slow.
    """
    vanishes = x < x.format.underflow
    x = select(vanishes, 0.0, x)
    power, shifted = exp_of_remainder(x)
    result = floats(bits(power) + (bits(shifted) << x.format.digits))
    limit = (x.format.bias - 2) * math.log(2.0)
    return select(vanishes, 0.0, unless_beyond(limit, x, result, extreme_exp))


def extreme_exp(x: Vector) -> Vector:
    """eˣ where it or 2ⁿ is hardly in range, or x is NaN."""
    power, shifted = exp_of_remainder(at_most(x.format.overflow, x))
    return ldexp(power, shifted - x.format.rounder)


def expm1(x: Vector) -> Vector:
    """eˣ - 1, as twice its half, which cannot overflow before its time; x itself where x² no longer counts."""
    high, low = half_expm1(at_most(x.format.overflow, select(x < -x.format.flat, -x.format.flat, x)))
    return select(absolute(x) < x.format.negligible, x, (high + low) * 2.0)


def tanh(x: Vector) -> Vector:
    """h / (1 + h) with h = (e^2|x| - 1) / 2, in two numbers each; one step corrects the quotient."""
    high, low = fast_two_sum(*half_expm1(at_most(x.format.flat, absolute(x) * 2.0)))  # beyond: 1
    divisor, rest = two_sum(high, 1.0)
    inverse = 1.0 / divisor
    quotient = high * inverse
    missing = fma(-quotient, divisor, high) + fma(-quotient, rest + low, low)
    return copysign(fma(missing, inverse, quotient), x)


def log(x: Vector) -> Vector:
    """log x = k·log 2 + log(1 + f) with x = 2ᵏ·(1 + f), √½ ≤ 1 + f < √2. Subnormal x is scaled first."""
    subnormal, more = x < x.format.normal, x.format.digits + 2
    f, k = split(select(subnormal, x * 2.0**more, x))
    result = log_of_parts(f, select(subnormal, k - more, k))
    return with_pole(x, 0.0, result)


def log1p(x: Vector) -> Vector:
    """log(1 + x): as `log`, where f also takes what rounding 1 + x lost; x itself where x² no longer counts."""
    total, lost = two_sum(x, 1.0)
    f, k = split(total)
    f, rest = fast_two_sum(f, select(k < x.format.digits + 12.0, lost * power_of_2(-k), 0.0))
    result = select(absolute(x) < x.format.negligible, x, log_of_parts(f, k, rest))
    return with_pole(x, -1.0, result)


def sin(x: Vector) -> Vector:
    """± sin or cos of the remainder by π/2, by quadrant; x itself where x³ no longer counts, which keeps -0."""
    small = 2.0 ** -(x.format.digits // 2 + 1)
    return unless_beyond(x.format.farthest, x, select(absolute(x) < small, x, wave(x, 0)), library_sin)


def cos(x: Vector) -> Vector:
    """The sine, one quadrant on."""
    return unless_beyond(x.format.farthest, x, wave(x, 1), library_cos)


def library_sin(x: Vector) -> Vector:
    """The sine of a large angle, by the mathematical library."""
    return Vector(x.text, x.text.library("sin", [x.name], x.lanes), x.lanes)


def library_cos(x: Vector) -> Vector:
    """The cosine of a large angle, by the mathematical library."""
    return Vector(x.text, x.text.library("cos", [x.name], x.lanes), x.lanes)


KERNELS: dict[str, Callable[[Vector], Vector]] = {f.__name__: f for f in (exp, expm1, tanh, log, log1p, sin, cos)}
SLOWER_ALONE = {"exp", "log"}  # for a single lane the library's tables are faster


# Steps that kernels share.


def remainder_by_log2(x: Vector) -> tuple[Vector, Vector, Vector]:
    """n + rounder, r and tail with x = n·log 2 + r + tail; r is exact, as x and n·log2[0] are close and short."""
    first, second = x.format.log2
    shifted = fma(x, 1.0 / math.log(2.0), x.format.rounder)  # n in the lowest bits
    n = shifted - x.format.rounder
    return shifted, fma(n, -first, x), n * -second


def exp_of_remainder(x: Vector) -> tuple[Vector, Vector]:
    """eʳ = 1 + (r + r²·P(r)), and n + rounder, with x = n·log 2 + r."""
    shifted, r, tail = remainder_by_log2(x)
    r = r + tail
    return fma(r * r, polynomial(r, x.format.exp), r) + 1.0, shifted


def half_expm1(x: Vector) -> tuple[Vector, Vector]:
    """(eˣ - 1) / 2 = 2ⁿ⁻¹·(eʳ - 1) + (2ⁿ⁻¹ - ½), as a number and a small rest; x up to `overflow`."""
    shifted, r, tail = remainder_by_log2(x)
    near = r + tail
    curved = near * near * polynomial(near, x.format.exp)
    scale = floats((bits(shifted) << x.format.digits) + x.format.pattern(0.5))
    high, low = fast_two_sum(scale - 0.5, scale * r)
    return high, fma(scale, curved + tail, low)


def split(x: Vector) -> tuple[Vector, Vector]:
    """f and k with x = 2ᵏ·(1 + f), √½ ≤ 1 + f < √2, both exact; x positive and normal."""
    pattern, digits, whole = x.format.pattern, x.format.digits, 2.0**x.format.digits
    root = pattern(math.sqrt(0.5))
    shifted = bits(x) + (pattern(1.0) - root)
    k = floats((shifted >> digits) | pattern(whole)) - (whole + x.format.bias)
    return floats((shifted & (2**digits - 1)) + root) - 1.0, k


def log_of_parts(f: Vector, k: Vector, rest: Operand = 0.0) -> Vector:
    """k·log 2 + log(1 + f) + rest, where log(1 + f) = 2 artanh s = 2s + s³·P(s²) with s = f / (2 + f).

    As 2s = f - s·f and s·f = f²/2 - s·f²/2, all but f, which is exact, is small: f - (f²/2 - s·(f²/2 + s²·P)).
    """
    first, second = f.format.log2
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    small = fma(s, fma(z, polynomial(z, f.format.log), half_square), fma(k, second, rest))
    return fma(k, first, f - (half_square - small))


def with_pole(x: Vector, pole: float, result: Vector) -> Vector:
    """`result` of a logarithm for x above its pole; -∞ at the pole, NaN below; ∞ and NaN as they are."""
    result = select(x < math.inf, result, x)
    return select(x > pole, result, select(x == pole, -math.inf, math.nan))


def wave(x: Vector, quadrants: int) -> Vector:
    """sin(x + quadrants·π/2), for |x| up to `farthest`.

    The remainder r + tail = x - n·π/2 takes π/2 in three parts (Cody and Waite). The first product leaves an exact
    difference; what rounding loses of the second product and its difference goes to the tail, with the third. The error
    left is below 2^-118, and no double in range is nearer to a multiple of π/2 than 2^-61 (of floats: 2^-58, 2^-29).
    """
    rounder, parts = x.format.rounder, x.format.half_pi
    shifted = fma(x, 2.0 / math.pi, rounder)  # n in the lowest bits
    n = shifted - rounder
    second = n * parts[1]
    r, lost = two_sum(fma(n, -parts[0], x), -second)
    tail = fma(n, -parts[2], lost - fma(n, parts[1], -second))
    z = r * r
    sine = r + fma(r * z, polynomial(z, x.format.sin), tail)
    half = z * 0.5
    nearly = 1.0 - half
    cosine = nearly + (((1.0 - nearly) - half) + fma(z * z, polynomial(z, x.format.cos), -(r * tail)))
    quadrant = bits(shifted) + quadrants
    chosen = select((quadrant & 1) == 1, cosine, sine)
    return floats(bits(chosen) ^ ((quadrant & 2) << (8 * x.format.element.bytes - 2)))


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


def nearest(x: Vector) -> Vector:
    """The nearest whole number, for |x| below a third of the rounder."""
    return (x + x.format.rounder) - x.format.rounder


def power_of_2(n: Vector) -> Vector:
    """2ⁿ for a whole n that is the exponent of a normal number: the exponent's bits."""
    return floats((bits(n + n.format.rounder) << n.format.digits) + n.format.pattern(1.0))


def ldexp(x: Vector, n: Vector) -> Vector:
    """x·2ⁿ in two steps, so that each factor is a normal number and only the last one rounds."""
    half = nearest(n * 0.5)
    return x * power_of_2(half) * power_of_2(n - half)


def at_most(high: float, x: Vector) -> Vector:
    """x, or `high` where that is less; NaN stays."""
    return select(x > high, high, x)


# Text.


def symbol(name: str, lanes: int, element: Element = DOUBLE) -> str:
    """The LLVM function of a kernel."""
    return f"@kernel.{name}.{element.suffix(lanes)}"


def pays(name: str, lanes: int) -> bool:
    """Whether there is a kernel that is faster than the library."""
    return name in KERNELS and (lanes > 1 or name not in SLOWER_ALONE)


@cache
def define(name: str, lanes: int, element: Element = DOUBLE, functions: Functions = libm) -> frozenset[str]:
    """The kernel as an LLVM function called `symbol(name, lanes, element)`, and the declarations it needs.

    It is called, not inlined: that costs next to nothing, and the time to compile does not grow with its uses.
    `functions` are those that the kernel itself may call, as in `Text`.
    """
    text = Text(element, functions=functions)
    result = KERNELS[name](Vector(text, "%x", lanes))
    return frozenset(text.declarations | {_function(symbol(name, lanes, element), "#0", result)})


def unless_beyond(limit: float, x: Vector, result: Vector, rare: Callable[[Vector], Vector]) -> Vector:
    """`result`, but rare(x) in lanes where |x| > limit or x is NaN; if there are none, only a test."""
    text, kind = x.text, x.kind
    name = f"@{rare.__name__}.{x.format.element.suffix(x.lanes)}"
    text.declarations |= _cold(name, rare, x.lanes, text.element, text.functions)
    condition = x.emit(f"fcmp ugt {kind} {absolute(x).name}, {x.constant(limit).name}", "i1")
    found = condition
    if x.lanes > 1:
        reduction = f"i1 @llvm.vector.reduce.or.v{x.lanes}i1"
        text.declarations.add(f"declare {reduction}({condition.kind})")
        found = x.emit(f"call {reduction}({condition.kind} {condition.name})")
    text.lines += [f"  br i1 {found.name}, label %rare, label %done", "rare:"]
    other = select(condition, x.emit(f"call {kind} {name}({kind} {x.name})"), result)
    text.lines += ["  br label %done", "done:"]
    return x.emit(f"phi {kind} [ {result.name}, %entry ], [ {other.name}, %rare ]")


@cache
def _cold(
    symbol: str, rare: Callable[[Vector], Vector], lanes: int, element: Element, functions: Functions
) -> frozenset[str]:
    """A function that is hardly ever called, and its declarations."""
    text = Text(element, functions=functions)
    return frozenset({_function(symbol, "cold noinline", rare(Vector(text, "%x", lanes))), *text.declarations})


def _function(symbol: str, attributes: str, result: Vector) -> str:
    """The text of `result` as a function of %x."""
    head = f"define internal {result.kind} {symbol}({result.kind} %x) {PURE} {attributes}"
    return result.text.function(head, f"{result.kind} {result.name}")
