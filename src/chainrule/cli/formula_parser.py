"""Formulas as text: `e = a*b; tanh(e + c)` in, a graph of labelled Values out. Nothing is evaluated as code.

Python's own parser reads the text, so it means what it means in Python; a whitelist turns the syntax tree into
instructions in postfix order. It has numbers, names, the operators `+ - * / % **`, comparisons of two operands, the ops
of the table, and assignments that name intermediate results. `pi` and `e` are constants unless the formula or the
caller gives them another meaning. An error quotes the line, with a caret below the place.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from chainrule import ops
from chainrule.cli.formula_slips import ELSEWHERE, first_slip
from chainrule.core.arguments import listed, quoted, shown
from chainrule.core.value import Value
from chainrule.ops import Op

__all__ = ["Formula", "FormulaError", "parse"]

MOST_CHARACTERS = 4000
MOST_QUOTED = 40  # characters of the formula in a message
LINE_END = re.compile("\r\n|\r|\n")  # as Python counts lines; `splitlines` knows more
NO_TEXT = re.compile("[\0\ud800-\udfff]")  # not allowed in Python source

CONSTANTS = {"pi": math.pi, "π": math.pi, "e": math.e}

Operators = dict[type[ast.AST], Op]
BINARY: Operators = {ast.Add: ops.add, ast.Sub: ops.sub, ast.Mult: ops.mul, ast.Div: ops.div, ast.Pow: ops.pow_}
ORDER: Operators = {ast.Lt: ops.lt, ast.LtE: ops.le, ast.Gt: ops.gt, ast.GtE: ops.ge, ast.Eq: ops.eq, ast.NotEq: ops.ne}
OPERATORS: Operators = {**BINARY, ast.Mod: ops.mod, ast.USub: ops.neg, **ORDER}


class FormulaError(ValueError):
    """What is wrong with a formula, and where.

    >>> parse("a + bar(b)")
    Traceback (most recent call last):
    ...
    chainrule.cli.formula_parser.FormulaError: a + bar(b)
        ^^^ there is no function `bar`: the ops of chainrule's table are known, as in tanh(a), maximum(a, b)
    """


class Instruction(NamedTuple):
    """One step on a stack: push a number or a name, replace operands by an op's result, or name the top."""

    kind: str  # "number", "name", "op" or "assign"
    thing: Any  # the number, the name, or the op
    operands: int = 0
    keywords: tuple[str, ...] = ()  # for the last operands of a call


class Formula:
    """A parsed formula; `inputs` are the names that it needs numbers for, in order of appearance.

    `constants` are those of `pi` and `e` that it uses. The caller may give them other values, since `e` is a common
    name for an input.

    >>> formula = parse("e = a*b; tanh(e + c)")
    >>> formula.inputs
    ('a', 'b', 'c')
    >>> formula.evaluate({"a": 2.0, "b": -3.0, "c": 6.0})
    0.0
    """

    def __init__(self, text: str, names: Sequence[str], instructions: Sequence[Instruction]) -> None:
        self.text = text
        self.names = tuple(names)
        self.inputs = tuple(name for name in names if name not in CONSTANTS)
        self.constants = tuple(name for name in names if name in CONSTANTS)
        self.instructions = tuple(instructions)

    def evaluate(self, at: Mapping[str, Any]) -> Any:
        """The result for these inputs: floats, Values, or anything else that ops accept."""
        return self._run({**CONSTANTS, **at}, lambda name, thing: thing)

    def build(self, at: Mapping[str, float]) -> tuple[Value, dict[str, Value]]:
        """The graph of this formula: its result, and every named Value, labelled with its name.

        Constants have no gradient.

        >>> result, named = parse("e = a*b; e + 10").build({"a": 2.0, "b": -3.0})
        >>> result.data, named["e"]
        (4.0, Value(data=-6.0, grad=0.0, label='e'))
        """
        self.check(at)
        named = {name: Value({**CONSTANTS, **at}[name], label=name) for name in self.names}
        for name in self.constants:
            named[name].requires_grad = name in at

        def assign(name: str, thing: Any) -> Value:
            value: Value = thing if isinstance(thing, Value) else Value(thing)
            if not value.label:  # after `b = a`, the node keeps its first name
                value.label = name
            named[name] = value
            return value

        result = self._run(named, assign)
        return (result if isinstance(result, Value) else Value(result)), named

    def check(self, at: Mapping[str, Any], argument: str = "at") -> None:
        """Check that `at` has a number for each input and no others; `argument` is its name in errors.

        >>> parse("a*b").check({"a": 1.0})
        Traceback (most recent call last):
        ...
        ValueError: `at` has no number for b: give one for each of a, b
        """
        missing = [name for name in self.inputs if name not in at]
        unused = [name for name in at if name not in self.names]
        known = listed(self.inputs) if self.inputs else "no numbers"
        if missing:
            raise ValueError(f"`{argument}` has no number for {listed(missing)}: give one for each of {known}")
        if unused:
            raise ValueError(f"`{argument}` has {listed(unused)}, which the formula does not use: it needs {known}")

    def _run(self, at: Mapping[str, Any], assign: Callable[[str, Any], Any]) -> Any:
        names, stack = dict(at), []
        for kind, thing, operands, keywords in self.instructions:
            if kind == "number":
                stack.append(thing)
            elif kind == "name":
                stack.append(names[thing])
            elif kind == "assign":
                names[thing] = result = assign(thing, stack.pop())
            else:
                first, named = len(stack) - operands, len(stack) - len(keywords)
                stack[first:] = [thing(*stack[first:named], **dict(zip(keywords, stack[named:], strict=True)))]
        return stack.pop() if stack else result

    def __repr__(self) -> str:
        return f"<Formula {self.text!r}>"


def parse(text: str) -> Formula:
    """Read a formula: statements separated by `;`, the last of which is the result."""
    if not isinstance(text, str):
        raise TypeError(f"`text` must be a string, got {type(text).__name__}")
    text = text.strip()
    if len(text) > MOST_CHARACTERS:
        raise FormulaError(f"the formula has {len(text):,} characters; at most {MOST_CHARACTERS:,} are read")
    return _Parser(text).formula()


class _Parser:
    """From the syntax tree to instructions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = LINE_END.split(text)
        self.inputs: dict[str, ast.AST] = {}
        self.assigned: dict[str, ast.AST] = {}
        self.used: set[str] = set()

    def formula(self) -> Formula:
        instructions: list[Instruction] = []
        statements = self.statements()
        for statement in statements:
            if isinstance(statement, ast.Assign):
                name = self.target(statement)
                instructions += [*self.postfix(statement.value), Instruction("assign", name)]
                self.define(name, statement.targets[0])
            elif isinstance(statement, ast.Expr):
                if statement is not statements[-1]:
                    self.fail(statement, "only the last statement is the result: name this one, as in `e = a*b; …`")
                instructions += self.postfix(statement.value)
            else:
                self.fail(statement, "a formula is made of expressions and assignments, as in `e = a*b; e + c`")
        for name, node in self.assigned.items():
            if name not in self.used and name != instructions[-1].thing:
                self.fail(node, f"`{shown(name)}` is never used: use it in a later statement, or leave it out")
        return Formula(self.text, list(self.inputs), instructions)

    def statements(self) -> list[ast.stmt]:
        if found := NO_TEXT.search(self.text):
            before = LINE_END.split(self.text[: found.start()])
            self.fail_at(len(before), len(before[-1]), 1, f"the character {found[0]!r} has no place in a formula")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's, about text that is refused below
                body = ast.parse(self.text, filename="").body  # with a name, Python would read that file for the line
        except SyntaxError as error:
            self.fail_at_slip()
            message = error.msg.partition(" (")[0].removesuffix(". Perhaps you forgot a comma?")
            message = {"invalid syntax": "something is missing or misplaced here"}.get(message, message)
            self.fail_at(error.lineno or 1, (error.offset or 1) - 1, 1, message)
        except (RecursionError, MemoryError):
            raise FormulaError("the formula is nested too deeply: name intermediate results, `e = …; …`") from None
        except ValueError as error:
            raise FormulaError(f"the formula cannot be read: {error}") from None
        if not body:
            raise FormulaError("the formula is empty: write one such as a*b + c")
        return body

    def fail_at_slip(self) -> None:
        """Say what to write instead of `2x`, `x²` and the like, if that is what is wrong."""
        if slip := first_slip(self.text):
            before = LINE_END.split(self.text[: slip.start])
            self.fail_at(len(before), len(before[-1]), slip.end - slip.start, slip.advice)

    def target(self, statement: ast.Assign) -> str:
        target = statement.targets[0]
        if len(statement.targets) > 1 or not isinstance(target, ast.Name):
            self.fail(target, "give one result one name, as in `e = a*b`")
        if target.id in ops.TABLE:
            self.fail(target, f"`{target.id}` is an op: choose another name")
        return target.id

    def define(self, name: str, node: ast.AST) -> None:
        if name in self.assigned:
            self.fail(node, f"`{shown(name)}` has a meaning already: choose another name")
        if name in self.inputs:
            self.fail(self.inputs[name], f"`{shown(name)}` is used before it is defined: put its definition first")
        self.assigned[name] = node

    def postfix(self, root: ast.expr) -> list[Instruction]:
        """Operands before results. Nodes are checked in reading order, so that the first mistake is reported."""
        made = {node: self.instruction(node) for node in self.walk(root)}
        backwards = [made[node] for node in self.walk(root, last_first=True)]
        return [instruction for instruction in reversed(backwards) if instruction is not None]

    def walk(self, root: ast.expr, last_first: bool = False) -> Iterator[ast.expr]:
        """Each node before its operands, without recursion, so that no text is too deep."""
        pending = [root]
        while pending:
            node = pending.pop()
            yield node
            operands = self.operands(node)
            pending += operands if last_first else reversed(operands)

    def operands(self, node: ast.expr) -> list[ast.expr]:
        if isinstance(node, ast.Call):
            return [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)):
            return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return []

    def instruction(self, node: ast.expr) -> Instruction | None:
        if isinstance(node, ast.Constant):
            return Instruction("number", self.number(node))
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd):
            return None
        if isinstance(node, (ast.BinOp, ast.UnaryOp)) and type(node.op) in OPERATORS:
            return Instruction("op", OPERATORS[type(node.op)], len(self.operands(node)))
        if isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
            if len(node.ops) > 1:
                self.fail(node, "compare two at a time: write a < b < c as (a < b) * (b < c)")
            return Instruction("op", OPERATORS[type(node.ops[0])], 2)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
            power = shown(self.source(node).replace("^", "**"), MOST_QUOTED)
            return self.fail(node, f"`^` has no meaning here: write {power}")
        if isinstance(node, ast.Tuple):
            return self.fail(node, "a comma has no meaning here: write decimals with a point, as in 1.5")
        return self.fail(node, "a formula is made of numbers, names, + - * / % **, comparisons and the table's ops")

    def number(self, node: ast.Constant) -> float:
        if type(node.value) not in (int, float):
            product = re.sub(r"(.)([jJ])$", r"\1*\2", shown(self.source(node), MOST_QUOTED))
            hint = f"; for a product write {product}" if isinstance(node.value, complex) else ""
            self.fail(node, f"only real numbers have a place in a formula, got {quoted(node.value)}{hint}")
        try:
            return float(node.value)  # type: ignore[arg-type]
        except OverflowError:
            self.fail(node, "this number is too large for a float")

    def name(self, node: ast.Name) -> Instruction:
        if node.id in ops.TABLE and node.id not in self.assigned:
            self.fail(node, f"`{node.id}` is a function: write {ops.TABLE[node.id].signature}")
        if "·" in node.id:  # a letter in the middle of a word, for Python
            self.fail_at_slip()
        self.used.add(node.id)
        if node.id not in self.assigned:
            self.inputs.setdefault(node.id, node)
        return Instruction("name", node.id)

    def call(self, node: ast.Call) -> Instruction:
        if isinstance(node.func, (ast.Constant, ast.BinOp, ast.UnaryOp)):
            self.fail(node, f"write {self.product(node)}")
        if not isinstance(node.func, ast.Name):
            self.fail(node.func, "only the ops of the table can be called, by their names, as in tanh(a)")
        op = ops.TABLE.get(node.func.id)
        if op is None:
            self.fail(node.func, f"there is no function `{shown(node.func.id)}`: {self.remedy(node, node.func.id)}")
        keywords = tuple(keyword.arg or "" for keyword in node.keywords)
        positional = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        try:
            if "" in keywords or len(positional) < len(node.args):
                raise TypeError
            op.bind(tuple(positional), dict.fromkeys(keywords))
        except TypeError:
            self.fail(node, f"the call should look like {op.signature}")
        return Instruction("op", op, len(node.args) + len(keywords), keywords)

    def remedy(self, node: ast.Call, name: str) -> str:
        """What to write for a call of a function that does not exist."""
        if len(name) == 1 or name in {*self.inputs, *self.assigned, *CONSTANTS}:
            return f"for a product write {self.product(node)}"
        near = [ELSEWHERE[name]] if name in ELSEWHERE else difflib.get_close_matches(name, ops.TABLE, 1)
        if near:
            return f"did you mean {near[0]}?"
        return "the ops of chainrule's table are known, as in tanh(a), maximum(a, b)"

    def product(self, node: ast.Call) -> str:
        """`3*(x + 1)` for the call `3(x + 1)`."""
        whole, function = self.source(node), self.source(node.func)
        end = whole.index(function) + len(function)
        end += len(whole[end:]) - len(whole[end:].lstrip(") \t\r\n"))  # of brackets around the function
        return shown(f"{whole[:end].rstrip()}*{whole[end:]}", MOST_QUOTED)

    def source(self, node: ast.expr) -> str:
        """The text of a node, without brackets around it."""
        return ast.get_source_segment(self.text, node) or ""

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        line, start, end = node.lineno, node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
        source = self.lines[line - 1].encode()
        column = len(source[:start].decode())  # the tree counts bytes
        width = len(source[start:end].decode()) if node.end_lineno == line else 1  # type: ignore[attr-defined]
        self.fail_at(line, column, width, message)

    def fail_at(self, line: int, column: int, width: int, message: str) -> NoReturn:
        source = self.lines[min(line, len(self.lines)) - 1]
        column = max(0, min(column, len(source)))
        first = max(0, column - 60)
        shown, dots = "".join(c if c.isprintable() else " " for c in source[first : first + 100]), "…" if first else ""
        caret = " " * (column - first + len(dots)) + "^" * max(1, min(width, len(shown) - (column - first)))
        raise FormulaError(f"{dots}{shown}\n{caret} {message}") from None
