"""Steps that kernels share: polynomials, sums in two numbers, powers of 2, and code for rare cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chainrule.compiler.backends.llvm.text import PURE, Text
from chainrule.compiler.backends.llvm.vectors import Operand, Vector, absolute, bits, floats, fma, select

Kernel = Callable[..., Vector]  # of one vector or two
ARGUMENTS = ("%x", "%y")


def polynomial(x: Vector, coefficients: Sequence[float]) -> Vector:
    """Σ coefficients[i]·xⁱ, in pairs for a short chain: (a + b·x) + (c + d·x)·x² + … (Estrin)."""
    terms = [x.coefficient(c) for c in coefficients]
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


def two_product(a: Vector, b: Operand) -> tuple[Vector, Vector]:
    """a·b rounded, and exactly what rounding lost."""
    product = a * b
    return product, fma(a, b, -product)


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


def within(limit: float, x: Vector) -> Vector:
    """x, or ±limit where it is beyond; NaN stays."""
    return at_most(limit, select(x < -limit, -limit, x))


# Text.


def unless_beyond(limit: float, x: Vector, result: Vector, rare: Kernel) -> Vector:
    """`result`, but rare(x) in lanes where |x| > limit or x is NaN; if there are none, only a test."""
    condition = x.emit(f"fcmp ugt {x.kind} {absolute(x).name}, {x.constant(limit).name}", "i1")
    return unless(condition, [x], result, rare)


def unless(condition: Vector, operands: Sequence[Vector], result: Vector, rare: Kernel) -> Vector:
    """`result`, but rare(*operands) in lanes where the condition holds; if there are none, only a test."""
    x, text, kind = result, result.text, result.kind
    name = f"@{rare.__name__}.{text.element.suffix(x.lanes)}"
    body = Text(text.element, functions=text.functions)
    text.declarations |= function(name, "cold noinline", rare, len(operands), body, x.lanes)
    found = condition
    if x.lanes > 1:
        reduction = f"i1 @llvm.vector.reduce.or.v{x.lanes}i1"
        text.declarations.add(f"declare {reduction}({condition.kind})")
        found = x.emit(f"call {reduction}({condition.kind} {condition.name})")
    text.lines += [f"  br i1 {found.name}, label %rare, label %done", "rare:"]
    given = ", ".join(f"{kind} {operand.name}" for operand in operands)
    other = select(condition, x.emit(f"call {kind} {name}({given})"), result)
    text.lines += ["  br label %done", "done:"]
    return x.emit(f"phi {kind} [ {result.name}, %entry ], [ {other.name}, %rare ]")


def function(symbol: str, attributes: str, kernel: Kernel, count: int, text: Text, lanes: int) -> frozenset[str]:
    """A kernel of `count` vectors as an LLVM function, and its declarations."""
    result = kernel(*[Vector(text, name, lanes) for name in ARGUMENTS[:count]])
    arguments = ", ".join(f"{result.kind} {name}" for name in ARGUMENTS[:count])
    head = f"define internal {result.kind} {symbol}({arguments}) {PURE} {attributes}"
    table = {text.table.definition()} if text.table and text.table.rows else set()
    return frozenset({text.function(head, f"{result.kind} {result.name}"), *text.declarations, *table})
