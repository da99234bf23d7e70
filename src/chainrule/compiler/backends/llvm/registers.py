"""Arithmetic on registers: the rules of the op table run on them, as they run on any other kind of number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from chainrule import ops
from chainrule.compiler.backends.llvm import kernels
from chainrule.compiler.backends.llvm.text import DOUBLE, Text, constant, vector
from chainrule.compiler.passes import powers

# Flags never assume away NaN or infinity. Products and sums are fused, and sums across lanes are in any order, but no
# instruction has both flags: with `reassoc` and `contract` LLVM 22 rewrites (a*b + c*d) + e in place, and another sum
# that shares a*b + c*d then has c*d in it twice.
FUSED, ANY_ORDER = "contract", "reassoc"

Write = Callable[[Text, Sequence[str], int], str]  # text, operands, lanes: the register of the result


def _binary(instruction: str, text: Text, operands: Sequence[str], lanes: int) -> str:
    return text.emit(f"{instruction} {FUSED} {text.element.lanes(lanes)} {operands[0]}, {operands[1]}")


def _negated(text: Text, operands: Sequence[str], lanes: int) -> str:
    return text.emit(f"fneg {text.element.lanes(lanes)} {operands[0]}")


def _intrinsic(name: str, text: Text, operands: Sequence[str], lanes: int) -> str:
    return text.intrinsic(name, operands, lanes)


def _compared(predicate: str, text: Text, operands: Sequence[str], lanes: int) -> str:
    """1.0 where the comparison holds, else 0.0."""
    return _selected(predicate, text, operands, (_number(1.0, text, lanes), _number(0.0, text, lanes)), lanes)


def _chosen(text: Text, operands: Sequence[str], lanes: int) -> str:
    """The second operand where the first is not zero, else the third."""
    return _selected("une", text, (operands[0], _number(0.0, text, lanes)), operands[1:], lanes)


def _selected(predicate: str, text: Text, operands: Sequence[str], choices: Sequence[str], lanes: int) -> str:
    kind = text.element.lanes(lanes)
    condition = text.emit(f"fcmp {predicate} {kind} {operands[0]}, {operands[1]}")
    return text.emit(f"select {vector('i1', lanes)} {condition}, {kind} {choices[0]}, {kind} {choices[1]}")


def _number(value: float, text: Text, lanes: int) -> str:
    return constant(text.element.name, text.element.literal(value), lanes)


ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
COMPARISONS = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
INTRINSICS = {"abs": "fabs", "sqrt": "sqrt", **{name: name for name in ("floor", "ceil", "trunc", "rint")}}
INSTRUCTIONS: dict[str, Write] = {  # primitives of the op table that LLVM has; others are functions
    **{name: partial(_binary, instruction) for name, instruction in ARITHMETIC.items()},
    **{name: partial(_compared, predicate) for name, predicate in COMPARISONS.items()},
    **{name: partial(_intrinsic, function) for name, function in INTRINSICS.items()},
    "neg": _negated,
    "where": _chosen,
}


class Register(ops.Carrier):
    """A value in LLVM's text, with its number of lanes."""

    def __init__(self, arithmetic: Arithmetic, name: str, lanes: int) -> None:
        self.arithmetic = arithmetic
        self.name = name
        self.lanes = lanes

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        return self.arithmetic.apply(op, operands)


class Arithmetic:
    """Operations on registers, written to a text. Operands may be plain numbers; so may results that need no code."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.element = text.element

    def apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        """A primitive by its instruction, a kernel or the library; any other op by its rule."""
        widths = [operand.lanes for operand in operands if isinstance(operand, Register)]
        if not op.c or not widths:
            return op.forward(*operands)
        lanes = max(widths)
        if op is ops.pow_ and not isinstance(operands[1], Register):
            result = powers.power(operands[0], operands[1])
            if result is not None:
                return result
        registers = [self.register(operand, lanes) for operand in operands]
        if write := INSTRUCTIONS.get(op.name):
            return Register(self, write(self.text, [register.name for register in registers], lanes), lanes)
        if kernels.pays(op.name, lanes):
            return self._kernel(op.name, registers[0])
        return self._narrowed(self.text.library(op.name, [self._widened(x) for x in registers], lanes), lanes)

    def register(self, value: Any, lanes: int) -> Register:
        """`value` in `lanes` lanes."""
        if not isinstance(value, Register):
            return Register(self, _number(value, self.text, lanes), lanes)
        if value.lanes == lanes:
            return value
        kind, first = self.element.lanes(lanes), self.text.insert("poison", value.name, 0, lanes)
        mask = f"<{lanes} x i32> zeroinitializer"
        return Register(self, self.text.emit(f"shufflevector {kind} {first}, {kind} poison, {mask}"), lanes)

    # Elementary functions are computed in doubles, and floats widened and rounded around them: the error is then hardly
    # over half an ulp of a float, and one set of kernels serves both types.

    def _kernel(self, name: str, x: Register) -> Register:
        """A function of `kernels`, on all lanes at once; on half of them if their doubles would not fit registers."""
        if x.lanes > DOUBLE.widest:
            half = x.lanes // 2
            return self.joined([self._kernel(name, self.lanes_of(x, start, half)) for start in (0, half)])
        self.text.declarations |= kernels.define(name, x.lanes)
        kind = DOUBLE.lanes(x.lanes)
        result = self.text.emit(f"call {kind} {kernels.symbol(name, x.lanes)}({kind} {self._widened(x)})")
        return self._narrowed(result, x.lanes)

    def _widened(self, x: Register) -> str:
        """The same numbers as doubles."""
        if self.element is DOUBLE:
            return x.name
        return self.text.emit(f"fpext {self.element.lanes(x.lanes)} {x.name} to {DOUBLE.lanes(x.lanes)}")

    def _narrowed(self, doubles: str, lanes: int) -> Register:
        """Doubles as numbers of the program's type."""
        if self.element is not DOUBLE:
            doubles = self.text.emit(f"fptrunc {DOUBLE.lanes(lanes)} {doubles} to {self.element.lanes(lanes)}")
        return Register(self, doubles, lanes)

    # Lanes.

    def lanes_of(self, x: Register, start: int, count: int) -> Register:
        """`count` lanes from `start` on."""
        chosen = range(start, start + count)
        return Register(self, self.text.shuffle(x.name, "poison", x.lanes, chosen), count)

    def joined(self, halves: list[Register]) -> Register:
        """The lanes of two vectors in one."""
        a, b = halves
        return Register(self, self.text.shuffle(a.name, b.name, a.lanes, range(2 * a.lanes)), 2 * a.lanes)

    def side_by_side(self, numbers: list[Register]) -> Register:
        """A vector of these lanes."""
        if len(numbers) == 1:
            return numbers[0]
        result = "poison"
        for lane, number in enumerate(numbers):
            result = self.text.insert(result, number.name, lane, len(numbers))
        return Register(self, result, len(numbers))

    def apart(self, vector: Register) -> list[Register]:
        """Its lanes one by one."""
        if vector.lanes == 1:
            return [vector]
        lanes = range(vector.lanes)
        return [Register(self, self.text.extract(vector.name, lane, vector.lanes), 1) for lane in lanes]
