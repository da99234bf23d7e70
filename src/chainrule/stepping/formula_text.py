"""Formulas as text: run a rule of the op table on names, and it writes itself.

A `FormulaText` behaves like a number. Applying an op to it returns a larger formula, which can be written with the
names of its operands or with their numbers:

>>> t = FormulaText(0.5, "t")
>>> derivative = ops.tanh.partials[0](t, FormulaText(0.55, "x"))
>>> derivative.text(), derivative.text(numbers=True)
('1 - t²', '1 - 0.5²')
"""

from __future__ import annotations

from typing import Any

from chainrule import ops
from chainrule.ops import Op

INFIX = {ops.add: "+", ops.sub: "-", ops.mul: "·", ops.div: "/"}
COMPARISONS = {ops.lt: "<", ops.le: "≤", ops.gt: ">", ops.ge: "≥", ops.eq: "=", ops.ne: "≠"}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

# How tightly a piece of text binds. A piece that binds more loosely than its place requires is put in brackets.
SUM, SIGNED, PRODUCT, POWER, ATOM = range(5)


class FormulaText(ops.Carrier):
    """An expression that knows its value. Without a name and an op it is a plain number.

    >>> a, b = FormulaText(2.0, "a"), FormulaText(-3.0, "b")
    >>> (a * b + 1.0).text(), (a * b + 1.0).text(numbers=True)
    ('a · b + 1', '2 · (-3) + 1')
    """

    def __init__(
        self, value: float, name: str = "", op: Op | None = None, operands: tuple[FormulaText, ...] = ()
    ) -> None:
        self.value, self.name, self.op, self.operands = value, name, op, operands

    @staticmethod
    def of(op: Op, value: float, operands: tuple[FormulaText, ...]) -> FormulaText:
        """`op(*operands)`, not simplified."""
        return FormulaText(value, "", op, operands)

    def _apply(self, op: Op, operands: tuple[Any, ...]) -> FormulaText:
        """`op(*operands)` as one would write it: arithmetic on numbers is done, and `where` is the chosen branch."""
        formulas = tuple([formula(operand) for operand in operands])
        value = ops.as_float(op.forward(*[operand.value for operand in formulas]))
        if all(operand.is_number for operand in formulas):
            return FormulaText(value)
        if op is ops.where:
            condition, chosen, otherwise = formulas
            return chosen if condition.value != 0.0 else otherwise
        if op is ops.mul and formulas[0] is formulas[1]:  # x·x -> x²
            return FormulaText.of(ops.pow_, value, (formulas[0], FormulaText(2.0)))
        if op is ops.pow_ and formulas[1].is_number and formulas[1].value == 1.0:  # x¹ -> x
            return formulas[0]
        return FormulaText.of(op, value, formulas)

    @property
    def is_number(self) -> bool:
        return not self.name and self.op is None

    def text(self, numbers: bool = False) -> str:
        """The formula with names, or with the numbers that they stand for."""
        return self._write(numbers)[0]

    def texts(self) -> dict[str, str]:
        """The formula with names and with numbers."""
        return {"names": self.text(), "numbers": self.text(numbers=True)}

    def _write(self, numbers: bool) -> tuple[str, int]:
        """The text, and how tightly it binds."""
        if self.op is None:
            text = self.name if self.name and not numbers else show(self.value)
            return text, SIGNED if text.startswith("-") else ATOM
        if self.op is ops.neg:
            return f"-{self._operand(0, numbers, PRODUCT)}", SIGNED
        if self.op in (ops.add, ops.sub):
            right = self._operand(1, numbers, PRODUCT)
            return f"{self._operand(0, numbers, SUM)} {INFIX[self.op]} {right}", SUM
        if self.op in INFIX:
            right = self._operand(1, numbers, PRODUCT if self.op is ops.mul else POWER)
            return f"{self._operand(0, numbers, SIGNED)} {INFIX[self.op]} {right}", PRODUCT
        if self.op is ops.pow_:
            exponent = self.operands[1].text(numbers)
            digits = exponent.removeprefix("-")
            raised = exponent.translate(SUPERSCRIPTS) if digits.isdecimal() else f"^({exponent})"
            return f"{self._operand(0, numbers, ATOM)}{raised}", POWER
        if self.op in COMPARISONS:  # Iverson's bracket: 1 where true, else 0
            return f"[{self.operands[0].text(numbers)} {COMPARISONS[self.op]} {self.operands[1].text(numbers)}]", ATOM
        return f"{self.op.name}({', '.join(operand.text(numbers) for operand in self.operands)})", ATOM

    def _operand(self, k: int, numbers: bool, least: int) -> str:
        text, tightness = self.operands[k]._write(numbers)
        return text if tightness >= least else f"({text})"


def formula(number: Any) -> FormulaText:
    """`number` as a formula."""
    return number if isinstance(number, FormulaText) else FormulaText(ops.as_float(number))


def show(number: float) -> str:
    """A number in readable length: exact if that takes at most seven characters, else five digits.

    >>> [show(number) for number in (6.0, -0.25, 0.7071067811865476, 1e-20, float("inf"))]
    ['6', '-0.25', '0.70711', '1e-20', 'inf']
    """
    exact = repr(number).removesuffix(".0")
    return exact if len(exact) <= 7 else f"{number:.5g}"
