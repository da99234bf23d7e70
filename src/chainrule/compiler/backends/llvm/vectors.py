"""Vectors of a kernel: values in LLVM's text that Python's operators compute with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from chainrule.compiler.backends.llvm.formats import FORMATS
from chainrule.compiler.backends.llvm.text import Text, constant, vector

Operand: TypeAlias = "Vector | float"  # a number becomes the same number in every lane


def _binary(numbers: str, integers: str, element: str = "") -> Callable[[Vector, Operand], Vector]:
    """An operator: its instruction on numbers and on their bits; the result is of type `element` if that differs."""

    def operator(self: Vector, other: Operand) -> Vector:
        instruction = integers if self.is_whole else numbers
        line = f"{instruction} {self.kind} {self.name}, {self.constant(other).name}"
        return self.emit(line, element or self.element)

    return operator


class Vector:
    """A value in LLVM's text: lanes of numbers, of whole ones, such as bits, or of `i1`. Arithmetic appends to it."""

    def __init__(self, text: Text, name: str, lanes: int, element: str = "") -> None:
        self.text = text
        self.format = FORMATS[text.element.name]
        self.name = name
        self.lanes = lanes
        self.element = element or text.element.name

    @property
    def kind(self) -> str:
        return vector(self.element, self.lanes)

    @property
    def is_whole(self) -> bool:
        return self.element.startswith("i")

    def emit(self, instruction: str, element: str = "") -> Vector:
        """The result of an instruction, in lanes like these."""
        return Vector(self.text, self.text.emit(instruction), self.lanes, element)

    def constant(self, value: Operand) -> Vector:
        """`value` in lanes like these."""
        if isinstance(value, Vector):
            return value
        number = str(value) if self.is_whole else self.format.element.literal(value)
        return Vector(self.text, constant(self.element, number, self.lanes), self.lanes, self.element)

    def coefficient(self, value: float) -> Vector:
        """The same, for one of many numbers: where registers are few, in memory."""
        if self.text.table is None or self.lanes == 1:
            return self.constant(value)
        literal = self.format.element.literal(value)
        return Vector(self.text, self.text.tabled(literal, self.lanes), self.lanes)

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


def sqrt(x: Vector) -> Vector:
    """The square root."""
    return intrinsic("sqrt", x)


def trunc(x: Vector) -> Vector:
    """The next whole number towards 0."""
    return intrinsic("trunc", x)


def copysign(x: Vector, sign: Vector) -> Vector:
    """|x| with the sign of `sign`."""
    return intrinsic("copysign", x, sign)


def select(condition: Vector, yes: Operand, no: Operand) -> Vector:
    """`yes` in the lanes where the condition holds, else `no`."""
    numbers = [Vector(condition.text, "", condition.lanes).constant(value) for value in (yes, no)]
    choices = ", ".join(f"{value.kind} {value.name}" for value in numbers)
    return condition.emit(f"select {condition.kind} {condition.name}, {choices}", numbers[0].element)


def bits(x: Vector) -> Vector:
    """The bits of numbers as whole numbers."""
    integer = x.format.integer
    return x.emit(f"bitcast {x.kind} {x.name} to {vector(integer, x.lanes)}", integer)


def floats(x: Vector) -> Vector:
    """The numbers with these bits."""
    return x.emit(f"bitcast {x.kind} {x.name} to {vector(x.format.element.name, x.lanes)}")


def converted(x: Vector, instruction: str, element: str) -> Vector:
    """The same numbers in another type."""
    return x.emit(f"{instruction} {x.kind} {x.name} to {vector(element, x.lanes)}", element)


def funnel(high: Vector, low: Vector, shift: Vector) -> Vector:
    """The first half of the bits of two whole numbers, one behind the other, after a shift to the left."""
    kind, name = high.kind, f"@llvm.fshl.{'' if high.lanes == 1 else f'v{high.lanes}'}{high.element}"
    high.text.declarations.add(f"declare {kind} {name}({kind}, {kind}, {kind})")
    line = f"call {kind} {name}({kind} {high.name}, {kind} {low.name}, {kind} {shift.name})"
    return high.emit(line, high.element)
