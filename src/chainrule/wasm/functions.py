"""Functions of numbers, written in plain Python, as WebAssembly.

`elementary` has the elementary functions in a small part of Python: floats, tuples of them, arithmetic, `if`, `while`
and calls. So they can be read and tested in Python; here their syntax trees become instructions.
"""

from __future__ import annotations

import ast
import inspect
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from chainrule.wasm import encoding as e
from chainrule.wasm.elementary import MODULES

SIGNS: dict[type, bytes] = {ast.Add: b"\xa0", ast.Sub: b"\xa1", ast.Mult: b"\xa2", ast.Div: b"\xa3"}
COMPARISONS: dict[type, bytes] = {
    ast.Eq: b"\x61", ast.NotEq: b"\x62", ast.Lt: b"\x63", ast.Gt: b"\x64", ast.LtE: b"\x65", ast.GtE: b"\x66",
}  # fmt: skip
DIGITS, BIAS = 52, 1023  # of a double
WHOLE = 2.0**DIGITS  # beyond it all doubles are whole numbers
PRIMITIVES = {
    "absolute": b"\x99", "floor": b"\x9c", "trunc": b"\x9d", "nearest": b"\x9e", "sqrt": b"\x9f", "copysign": b"\xa6",
    "exponent": e.BITS + e.i64(DIGITS) + e.I64_SHIFT_RIGHT + e.i64(struct.unpack("<q", struct.pack("<d", WHOLE))[0])
    + e.I64_OR + e.FLOAT + e.f64(-WHOLE - BIAS) + e.F64_ADD,
    "power_of_2": e.f64(1.5 * WHOLE + BIAS) + e.F64_ADD + e.BITS + e.i64(DIGITS) + e.I64_SHIFT_LEFT + e.FLOAT,
}  # fmt: skip


class Library:
    """The elementary functions that a module calls; each is compiled when its number is first asked for."""

    def __init__(self, module: e.Module, room: Callable[[int], int]) -> None:
        self.module, self.room = module, room  # `room` gives the address of so many new doubles
        self.numbers: dict[str, int] = {}
        self._tables: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of a function."""
        if name not in self.numbers:
            tree = definitions()[name]
            results = e.F64 * count_results(tree)
            translation = _Translation(self, tree)
            body = translation.block(tree.body) + e.UNREACHABLE
            arguments, others = e.F64 * len(tree.args.args), e.F64 * (len(translation.locals) - len(tree.args.args))
            self.numbers[name] = self.module.add(e.Function(arguments, results, body, others))
        return self.numbers[name]

    def number_for_pairs(self, name: str) -> int:
        """The number of a function of pairs that calls a function for each of the two."""
        key = f"{name} of pairs"
        if key not in self.numbers:
            count, called = len(definitions()[name].args.args), e.call(self.number(name))
            first, second = (b"".join(e.get(k) + e.lane(lane) for k in range(count)) + called for lane in (0, 1))
            body = first + e.TWICE + second + e.SECOND_LANE
            self.numbers[key] = self.module.add(e.Function(e.V128 * count, e.V128, body))
        return self.numbers[key]

    def table(self, name: str) -> int:
        """The address of a table."""
        if name not in self._tables:
            numbers: tuple[float, ...] = constants()[name]
            self._tables[name] = self.room(len(numbers))
            self.module.data[self._tables[name]] = struct.pack(f"<{len(numbers)}d", *numbers)
        return self._tables[name]


@cache
def definitions() -> dict[str, ast.FunctionDef]:
    """The elementary functions, and those that they call, by name."""
    statements = [node for module in MODULES for node in ast.parse(inspect.getsource(module)).body]
    return {node.name: node for node in statements if isinstance(node, ast.FunctionDef)}


@cache
def constants() -> dict[str, Any]:
    """The numbers and tables that they use, by name."""
    return {name: found for module in MODULES for name, found in vars(module).items() if name.isupper()}


def count_results(tree: ast.FunctionDef) -> int:
    """How many numbers a function returns."""
    match tree.returns:
        case ast.Subscript(_, ast.Tuple(numbers)):
            return len(numbers)
    return 1


class _Translation:
    """One function."""

    def __init__(self, library: Library, tree: ast.FunctionDef) -> None:
        self.library, self.name = library, tree.name
        self.locals = {argument.arg: k for k, argument in enumerate(tree.args.args)}

    def block(self, statements: list[ast.stmt]) -> bytes:
        return b"".join(map(self.statement, statements))

    def statement(self, node: ast.stmt) -> bytes:
        match node:
            case ast.Expr(ast.Constant()):
                return b""
            case ast.Assign([ast.Name(name)], number):
                return self.number(number) + e.put(self.local(name))
            case ast.Assign([ast.Tuple(names)], ast.Tuple(numbers)):
                return b"".join(map(self.number, numbers)) + self.unpacked(names)
            case ast.Assign([ast.Tuple(names)], ast.Call() as call):
                return self.number(call) + self.unpacked(names)
            case ast.Return(ast.Tuple(numbers)):
                return b"".join(map(self.number, numbers)) + e.RETURN
            case ast.Return(ast.IfExp(test, this, that)):  # of two numbers too
                both = self.statement(ast.Return(this)) + e.ELSE + self.statement(ast.Return(that))
                return self.condition(test) + e.when(both)
            case ast.Return(ast.expr() as number):
                return self.number(number) + e.RETURN
            case ast.If(test, then, otherwise):
                rest = e.ELSE + self.block(otherwise) if otherwise else b""
                return self.condition(test) + e.when(self.block(then) + rest)
            case ast.While(test, body, []):
                return e.loop_while(self.condition(test), self.block(body))
        raise self.refusal(node)

    def unpacked(self, names: list[ast.expr]) -> bytes:
        """Set locals to what is on the stack, the last one first."""
        return b"".join(e.put(self.local(ast.unparse(name))) for name in reversed(names))

    def local(self, name: str) -> int:
        return self.locals.setdefault(name, len(self.locals))

    def number(self, node: ast.expr) -> bytes:
        match node:
            case ast.Constant(float() | int() as number):
                return e.f64(float(number))
            case ast.Name(name) if name in self.locals:
                return e.get(self.locals[name])
            case ast.Name(name):
                return e.f64(constants()[name])
            case ast.BinOp(left, sign, right) if type(sign) in SIGNS:
                return self.number(left) + self.number(right) + SIGNS[type(sign)]
            case ast.UnaryOp(ast.USub(), operand):
                return self.number(operand) + e.F64_NEG
            case ast.IfExp(test, then, otherwise):
                return self.condition(test) + e.when(self.number(then) + e.ELSE + self.number(otherwise), e.F64)
            case ast.Subscript(ast.Name(table), ast.Call(ast.Name("int"), [index])):
                place = self.number(index) + e.I32_OF_F64 + e.i32(8) + e.I32_MUL
                return place + e.load(self.library.table(table))
            case ast.Call(ast.Name("horner"), [x, ast.Name(table)]):
                return self.horner(x, constants()[table])
            case ast.Call(ast.Name(name), arguments):
                code = PRIMITIVES.get(name) or e.call(self.library.number(name))
                return b"".join(map(self.number, arguments)) + code
        raise self.refusal(node)

    def horner(self, x: ast.expr, coefficients: tuple[float, ...]) -> bytes:
        """A polynomial, unrolled."""
        local = self.local(f"horner {len(self.locals)}")
        highest, *others = reversed(coefficients)
        turns = [e.get(local) + e.F64_MUL + e.f64(number) + e.F64_ADD for number in others]
        return self.number(x) + e.put(local) + e.f64(highest) + b"".join(turns)

    def condition(self, node: ast.expr) -> bytes:
        """Code that leaves a truth value on the stack; both sides of `and` and `or` are computed."""
        match node:
            case ast.Compare(left, [sign], [right]):
                return self.number(left) + self.number(right) + COMPARISONS[type(sign)]
            case ast.BoolOp(sign, [first, *others]):
                joined = e.I32_AND if isinstance(sign, ast.And) else e.I32_OR
                return self.condition(first) + b"".join(self.condition(other) + joined for other in others)
            case ast.UnaryOp(ast.Not(), operand):
                return self.condition(operand) + e.I32_EQZ
        raise self.refusal(node)

    def refusal(self, node: Any) -> NotImplementedError:
        return NotImplementedError(f"`{self.name}` has `{ast.unparse(node)}`, which does not become WebAssembly")
