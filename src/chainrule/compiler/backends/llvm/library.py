"""The elementary functions of doubles in LLVM's language, for processors without a mathematical library.

They are those of `chainrule.wasm.elementary`, which are written in a small part of Python. Here, as in
`wasm.functions`, their syntax trees are translated; no instruction has a flag that would let LLVM compute anything
else. So the results are those of the Python functions, bit for bit.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import Any

from chainrule.compiler.backends.llvm.text import DOUBLE, PURE, Text
from chainrule.wasm.functions import BIAS, DIGITS, WHOLE, constants, count_results, definitions

PREFIX = "@chainrule."  # before the names of functions and tables
SIGNS: dict[type, str] = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
COMPARISONS: dict[type, str] = {
    ast.Eq: "oeq", ast.NotEq: "une", ast.Lt: "olt", ast.Gt: "ogt", ast.LtE: "ole", ast.GtE: "oge",
}  # fmt: skip
INTRINSICS = {"absolute": "fabs", "nearest": "rint", **{n: n for n in ("floor", "trunc", "sqrt", "copysign")}}
SHORT = 6  # statements of a function that is always inlined, if it has no branches


def symbol(name: str) -> str:
    """The LLVM function of this name."""
    return PREFIX + name


def functions(name: str, count: int) -> tuple[str, frozenset[str]]:
    """A function of `count` numbers for `Text.library`: what it is called, and what the module must hold for that."""
    return symbol(name), define(name)


@cache
def define(name: str) -> frozenset[str]:
    """The function `symbol(name)` of doubles, with all that it calls, the tables and the declarations."""
    tree = definitions()[name]
    translation = _Translation(tree)
    translation.block(tree.body)
    text = translation.text
    text.lines.append("  unreachable")
    arguments = ", ".join(f"double %given.{argument.arg}" for argument in tree.args.args)
    branches = any(isinstance(node, ast.If | ast.While) for node in ast.walk(tree))
    inlined = "" if branches or len(tree.body) > SHORT else " alwaysinline"
    head = f"define internal {_result(tree)} {symbol(name)}({arguments}) {PURE}{inlined}"
    return frozenset(text.declarations | {"\n".join([f"{head} {{", "entry:", *text.lines, "}\n"])})


def _result(tree: ast.FunctionDef) -> str:
    """The type of what a function returns."""
    count = count_results(tree)
    return "double" if count == 1 else f"{{ {', '.join(['double'] * count)} }}"


class _Translation:
    """One function. Every local variable is in memory; LLVM makes registers of them."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self.text, self.name, self.result = Text(), tree.name, _result(tree)
        assigned = [
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        given = [argument.arg for argument in tree.args.args]
        self.locals = dict.fromkeys([*given, *assigned])
        self.text.lines += [f"  {self.local(name)} = alloca double" for name in self.locals]
        for name in given:
            self.put(name, f"%given.{name}")

    def block(self, statements: list[ast.stmt]) -> None:
        for node in statements:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(ast.Constant()):
                pass
            case ast.Assign([ast.Name(name)], number):
                self.put(name, self.number(number))
            case ast.Assign([ast.Tuple(names)], ast.Tuple(numbers)):
                self.unpack(names, [self.number(number) for number in numbers])
            case ast.Assign([ast.Tuple(names)], ast.Call(ast.Name(function)) as call):
                pair, kind = self.number(call), _result(definitions()[function])
                self.unpack(names, [self.text.emit(f"extractvalue {kind} {pair}, {k}") for k in range(len(names))])
            case ast.Return(ast.IfExp(test, this, that)):  # of two numbers too, and only one is computed
                self.branch(test, [ast.Return(this)], [ast.Return(that)])
            case ast.Return(ast.expr() as value):
                self.give(value)
            case ast.If(test, then, otherwise):
                self.branch(test, then, otherwise)
            case ast.While(test, body, []):
                self.loop(test, body)
            case _:
                raise self.refusal(node)

    def give(self, value: ast.expr) -> None:
        """Return; the instructions that follow, if there are any, cannot be reached."""
        if isinstance(value, ast.Tuple):
            result = "poison"
            for k, number in enumerate(value.elts):
                result = self.text.emit(f"insertvalue {self.result} {result}, double {self.number(number)}, {k}")
        else:
            result = self.number(value)
        self.text.lines += [f"  ret {self.result} {result}", f"{self.label()}:"]

    def branch(self, test: ast.expr, then: list[ast.stmt], otherwise: list[ast.stmt]) -> None:
        yes, no, after = (self.label() for _ in range(3))
        self.text.lines += [f"  br i1 {self.condition(test)}, label %{yes}, label %{no}", f"{yes}:"]
        self.block(then)
        self.text.lines += [f"  br label %{after}", f"{no}:"]
        self.block(otherwise)
        self.text.lines += [f"  br label %{after}", f"{after}:"]

    def loop(self, test: ast.expr, body: list[ast.stmt]) -> None:
        head, turn, after = (self.label() for _ in range(3))
        self.text.lines += [f"  br label %{head}", f"{head}:"]
        self.text.lines += [f"  br i1 {self.condition(test)}, label %{turn}, label %{after}", f"{turn}:"]
        self.block(body)
        self.text.lines += [f"  br label %{head}", f"{after}:"]

    def label(self) -> str:
        return f"l{self.text.fresh()[1:]}"

    def unpack(self, names: list[ast.expr], registers: list[str]) -> None:
        for name, register in zip(names, registers, strict=True):
            self.put(ast.unparse(name), register)

    def put(self, name: str, register: str) -> None:
        self.text.lines.append(f"  store double {register}, ptr {self.local(name)}")

    def local(self, name: str) -> str:
        return f"%local.{name}"

    def number(self, node: ast.expr) -> str:
        """The register of a number, or of the pair that a call returns; both sides of `if` are computed."""
        match node:
            case ast.Constant(float() | int() as number):
                return DOUBLE.literal(number)
            case ast.Name(name) if name in self.locals:
                return self.text.emit(f"load double, ptr {self.local(name)}")
            case ast.Name(name):
                return DOUBLE.literal(constants()[name])
            case ast.BinOp(left, sign, right) if type(sign) in SIGNS:
                return self.text.emit(f"{SIGNS[type(sign)]} double {self.number(left)}, {self.number(right)}")
            case ast.UnaryOp(ast.USub(), operand):
                return self.text.emit(f"fneg double {self.number(operand)}")
            case ast.IfExp(test, then, otherwise):
                condition, yes, no = self.condition(test), self.number(then), self.number(otherwise)
                return self.text.emit(f"select i1 {condition}, double {yes}, double {no}")
            case ast.Subscript(ast.Name(table), ast.Call(ast.Name("int"), [index])):
                return self.entry(table, self.number(index))
            case ast.Call(ast.Name("horner"), [x, ast.Name(table)]):
                return self.horner(self.number(x), constants()[table])
            case ast.Call(ast.Name(name), arguments):
                return self.call(name, [self.number(argument) for argument in arguments])
        raise self.refusal(node)

    def call(self, name: str, operands: list[str]) -> str:
        """An operation of LLVM's own, one on the bits of a number, or another of the functions."""
        emit = self.text.emit
        if name in INTRINSICS:
            return self.text.intrinsic(INTRINSICS[name], operands, 1)
        if name == "exponent":  # as the last digits of a number that is near 2⁵²
            digits = emit(f"lshr i64 {emit(f'bitcast double {operands[0]} to i64')}, {DIGITS}")
            whole = emit(f"or i64 {digits}, {int(DOUBLE.literal(WHOLE), 16)}")
            return emit(f"fsub double {emit(f'bitcast i64 {whole} to double')}, {DOUBLE.literal(WHOLE + BIAS)}")
        if name == "power_of_2":
            shifted = emit(f"fadd double {operands[0]}, {DOUBLE.literal(1.5 * WHOLE + BIAS)}")
            digits = emit(f"shl i64 {emit(f'bitcast double {shifted} to i64')}, {DIGITS}")
            return emit(f"bitcast i64 {digits} to double")
        self.text.declarations |= define(name)
        given = ", ".join(f"double {operand}" for operand in operands)
        return emit(f"call {_result(definitions()[name])} {symbol(name)}({given})")

    def entry(self, table: str, index: str) -> str:
        """A number of a table, which becomes a constant of the module."""
        numbers, emit = constants()[table], self.text.emit
        kind, literals = f"[{len(numbers)} x double]", ", ".join(f"double {DOUBLE.literal(n)}" for n in numbers)
        self.text.declarations.add(f"{PREFIX}{table} = internal unnamed_addr constant {kind} [{literals}]")
        whole = emit(f"fptosi double {index} to i32")
        return emit(f"load double, ptr {emit(f'getelementptr {kind}, ptr {PREFIX}{table}, i32 0, i32 {whole}')}")

    def horner(self, x: str, coefficients: tuple[float, ...]) -> str:
        """A polynomial, unrolled."""
        highest, *others = map(DOUBLE.literal, reversed(coefficients))
        total = highest
        for coefficient in others:
            total = self.text.emit(f"fadd double {self.text.emit(f'fmul double {total}, {x}')}, {coefficient}")
        return total

    def condition(self, node: ast.expr) -> str:
        """The register of a truth value; both sides of `and` and `or` are computed."""
        match node:
            case ast.Compare(left, [sign], [right]):
                predicate = COMPARISONS[type(sign)]
                return self.text.emit(f"fcmp {predicate} double {self.number(left)}, {self.number(right)}")
            case ast.BoolOp(sign, [first, *others]):
                joined, result = "and" if isinstance(sign, ast.And) else "or", self.condition(first)
                for other in others:
                    result = self.text.emit(f"{joined} i1 {result}, {self.condition(other)}")
                return result
            case ast.UnaryOp(ast.Not(), operand):
                return self.text.emit(f"xor i1 {self.condition(operand)}, true")
        raise self.refusal(node)

    def refusal(self, node: Any) -> NotImplementedError:
        return NotImplementedError(f"`{self.name}` has `{ast.unparse(node)}`, which does not become LLVM's language")
