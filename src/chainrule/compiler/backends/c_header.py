"""The C backend: an array program as one C99 header that needs `math.h` and nothing else.

A statement becomes a nest of `for` loops. Rules of the op table run on pieces of C (`Piece`), and the table says how C
spells the primitives that they end in. The caller provides all memory, which arrays share where they can.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from textwrap import fill, indent
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.places import Lives, lives_in, places
from chainrule.compiler.passes.program import LETTERS, NOTHING, Access, Array, ArrayProgram, Repeat, Statement, Term
from chainrule.core.powers import power

LONGEST = 80  # characters of an expression; a longer one is computed in parts
PRECEDENCE = {"add": 1, "sub": 1, "mul": 2, "div": 2, "neg": 3}  # of what C spells with operators
ATOM = 4
NEXT = "\n        "  # line of a prototype
BUFFERS = {"parameter": "parameters", "captured": "captured", "input": "inputs"}  # leaves, in the order of arguments
RESERVED = re.compile(
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|inline|int|long|main|"
    "register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|union|unsigned|void|volatile|while"
)


def header(
    name: str, program: ArrayProgram, dtype: str = "float64", gradient: bool = True, notes: dict[str, str] | None = None
) -> str:
    """The header: `name` computes the output, `name_gradient` its gradient too, if wanted; `notes` describe buffers."""
    check_name(name)
    constants = _Constants(name, Element(dtype))
    functions = [_Function(name, "", program, constants)]
    if gradient and "parameter" in program.leaves:
        functions.append(_Function(name, "_gradient", differentiate(program), constants))
    guard = f"{name.upper()}_H"
    sizes = {f.size_macro(buffer): size for f in functions for buffer, size in f.sizes.items()}
    parts = [
        _introduction(name, functions, constants, notes or {}),
        f"#ifndef {guard}\n#define {guard}\n\n#include <math.h>\n",
        *[f"#define {macro} {size}" for macro, size in sizes.items()],
        "",
        *([*constants.lines, ""] if constants.lines else []),
        *[f"{function.text()}\n" for function in functions],
        f"#endif /* {guard} */\n",
    ]
    return "\n".join(parts)


def check_name(name: str) -> None:
    """Refuse a name that a C function cannot have."""
    if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII)):
        raise ValueError(
            f"`name` must be a C identifier, got {name!r}: begin with a letter, go on with letters, digits and _"
        )
    if RESERVED.fullmatch(name) or name in ops.TABLE or name.removesuffix("f") in ops.TABLE:
        raise ValueError(f"`name` must not be {name!r}, which is a word or a function of C: choose another")


class Element:
    """The type of every number, and how C writes its numbers and functions."""

    def __init__(self, dtype: str) -> None:
        self.single = dtype == "float32"
        self.name, self.bytes = ("float", 4) if self.single else ("double", 8)

    def literal(self, number: float) -> str:
        """The shortest decimal that reads back as the number; in parentheses if it is negative."""
        with np.errstate(over="ignore"):
            rounded = np.float32(number) if self.single else np.float64(number)
        text = str(abs(rounded))
        text = {"nan": "NAN", "inf": "INFINITY"}.get(text) or text + ("f" if self.single else "")
        return f"(-{text})" if math.copysign(1.0, number) < 0 and number == number else text

    def spelling(self, op: ops.Op) -> str:
        """How C writes a primitive, in this type: `exp` of floats is `expf`."""
        if not self.single:
            return op.c
        return re.sub(r"\b([a-z]\w*)\(", r"\1f(", op.c).replace("(double)", "(float)").replace("0.0", "0.0f")


class _Constants:
    """Constant arrays and tables of positions, each written once."""

    def __init__(self, name: str, element: Element) -> None:
        self.name = name
        self.element = element
        self.names: dict[tuple[str, bytes], str] = {}
        self.lines: list[str] = []
        self.bytes = 0

    def numbers(self, array: Array) -> str:
        """The name of a constant or a mask."""
        if array.kind == "mask":
            return self._add("mask", "unsigned char", 1, np.asarray(array.numbers, dtype=np.int64), str)
        return self._add("constant", self.element.name, self.element.bytes, array.numbers, self.element.literal)

    def table(self, positions: Any) -> str:
        """The name of a table, in the smallest type that holds it whatever the machine."""
        largest = int(max(positions))
        kinds = [("unsigned char", 1, 2**8), ("unsigned short", 2, 2**16), ("unsigned long", 4, 2**32)]
        kind, size = next((kind, size) for kind, size, limit in kinds if largest < limit)
        return self._add("table", kind, size, np.asarray(positions, dtype=np.int64), str)

    def _add(self, what: str, kind: str, size: int, numbers: Any, spell: Callable[[Any], str]) -> str:
        key = what, np.ascontiguousarray(numbers).tobytes()
        if key not in self.names:
            self.names[key] = f"{self.name}_{what}{sum(known == what for known, _ in self.names)}"
            entries = fill(", ".join(map(spell, numbers)) + ",", 111, break_on_hyphens=False)
            entries = indent(entries.removesuffix(","), "    ")
            self.lines += [f"static const {kind} {self.names[key]}[{len(numbers)}] = {{", entries, "};"]
            self.bytes += size * len(numbers)
        return self.names[key]


class Piece(ops.Carrier):
    """An op applied to pieces and numbers; or, without an op, an element of an array or a name."""

    def __init__(self, block: _Block, op: ops.Op | None, operands: tuple[Any, ...], text: str = "") -> None:
        self.block = block
        self.op = op
        self.operands = operands
        self.text = text

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        return self.block.apply(op, operands)


class _Block:
    """What one turn of a loop computes. Equal pieces are one piece, and a piece that is used twice gets a name."""

    def __init__(self, function: _Function) -> None:
        self.function = function
        self.element = function.constants.element
        self.pieces: dict[Any, Piece] = {}
        self.declarations: list[str] = []
        self.uses: dict[Piece, int] = {}
        self.known: dict[Piece, tuple[str, int]] = {}

    def apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        if not op.c or not any(isinstance(operand, Piece) for operand in operands):
            return op.forward(*operands)
        if op is ops.where and not isinstance(operands[0], Piece):
            return operands[1] if operands[0] != 0.0 else operands[2]
        if op is ops.pow_ and not isinstance(operands[1], Piece) and (result := power(*operands)) is not None:
            return result
        key = (op.name, *[o if isinstance(o, Piece) else float(o).hex() for o in operands])
        return self.pieces.setdefault(key, Piece(self, op, operands))

    def name(self, text: str) -> Piece:
        """An element of an array, or a variable."""
        return self.pieces.setdefault(text, Piece(self, None, (), text))

    def evaluate(self, term: Term) -> Any:
        return term.expression.evaluate(lambda access: self.name(self.function.element_of(access)), self.apply)

    def spell(self, result: Any) -> str:
        """The C expression of a piece; `declarations` are what it needs before it."""
        self._count(result)
        return self._text(result)[0]

    def _count(self, piece: Any) -> None:
        if isinstance(piece, Piece):
            self.uses[piece] = self.uses.get(piece, 0) + 1
            if self.uses[piece] == 1:
                for operand in piece.operands:
                    self._count(operand)

    def _text(self, piece: Any) -> tuple[str, int]:
        """The text, and how tightly it binds."""
        if not isinstance(piece, Piece):
            return self.element.literal(piece), ATOM
        if piece.op is None:
            return piece.text, ATOM
        if piece not in self.known:
            text, binding = self._applied(piece.op, piece.operands)
            if self.uses[piece] > 1 or len(text) > LONGEST:
                variable = f"t{len(self.declarations)}"
                self.declarations.append(f"const {self.element.name} {variable} = {text};")
                text, binding = variable, ATOM
            self.known[piece] = text, binding
        return self.known[piece]

    def _applied(self, op: ops.Op, operands: tuple[Any, ...]) -> tuple[str, int]:
        spelling = self.element.spelling(op)
        texts = [self._text(operand) for operand in operands]
        if spelling[0].isalpha():  # a call
            return spelling.format(*[text for text, _ in texts]), ATOM
        own = PRECEDENCE.get(op.name, 0)
        least = [own if op.name != "neg" else ATOM, own + 1] if own else [ATOM] * 3
        bracketed = [t if binding >= least[k] else f"({t})" for k, (t, binding) in enumerate(texts)]
        if op is ops.where and (condition := self._condition(operands[0])):
            return f"{condition} ? {bracketed[1]} : {bracketed[2]}", 0
        return spelling.format(*bracketed), own

    def _condition(self, piece: Any) -> str | None:
        """A comparison as C's own truth value, if it is one and has no name."""
        cast = f"({self.element.name})("
        if not isinstance(piece, Piece) or piece.op is None or not self.element.spelling(piece.op).startswith(cast):
            return None
        text = self._text(piece)[0]
        return text.removeprefix(cast).removesuffix(")") if text.startswith(cast) else None


class _Function:
    """One C function: its arguments and its loops."""

    def __init__(self, prefix: str, suffix: str, program: ArrayProgram, constants: _Constants) -> None:
        self.prefix = prefix
        self.name = prefix + suffix
        self.program = program
        self.constants = constants
        self.element = constants.element
        self.buffers = {program.leaves[kind]: name for kind, name in BUFFERS.items() if kind in program.leaves}
        self.buffers[program.output] = "outputs"
        if program.gradient:
            self.buffers[program.gradient] = "gradient"
        self.offsets, self.workspace = places(self.own_lives(), lambda array: array.size)
        self.sizes = {name: array.size for array, name in self.buffers.items()}  # of the arguments, in order
        self.sizes["workspace"] = max(1, self.workspace)
        tables = [a.table for s in program.statements for a, _ in s.accesses_in_loops() if a.table is not None]
        largest = max([array.size for array in program.arrays()] + [len(table) for table in tables])
        self.index = "int" if largest < 2**15 else "long"  # an int has 16 bits on the smallest machines
        self.body = [line for step in program.steps for line in self.step(step)]

    def own_lives(self) -> Lives:
        """How long the arrays live that are neither arguments nor constants."""
        lives = lives_in(step.body for step in self.program.steps)
        return {array: life for array, life in lives.items() if array.numbers is None and array not in self.buffers}

    def prototype(self, size: Callable[[str], object]) -> str:
        kinds = dict.fromkeys(BUFFERS.values(), f"const {self.element.name}")
        arguments = [f"{kinds.get(name, self.element.name)} {name}[{size(name)}]" for name in self.sizes]
        return f"void {self.name}({f',{NEXT}'.join(arguments)})"

    def size_macro(self, buffer: str) -> str:
        """The name of a buffer's size; the gradient is as long as the parameters."""
        base = self.name if buffer == "workspace" else self.prefix
        return f"{base}_{'parameters' if buffer == 'gradient' else buffer}".upper()

    def text(self) -> str:
        code = "\n".join(line for line in self.body if not line.lstrip().startswith("/*"))
        named = set(re.findall(r"\b(\w+)\[", code))
        pointers = [
            f"    {self.element.name} *const {array.name} = workspace + {offset};"
            for array, offset in self.offsets.items()
            if array.name in named
        ]
        named |= {"workspace"} if pointers else set()
        unused = [f"    (void){name};" for name in self.sizes if name not in named]
        head = f"static inline {self.prototype(self.size_macro)}"
        return "\n".join([head, "{", *pointers, *unused, *([""] if pointers or unused else []), *self.body, "}"])

    # Statements.

    def step(self, step: Statement | Repeat) -> list[str]:
        if not isinstance(step, Repeat):
            return self.statement(step, "    ")
        way = f"r = {step.count - 1}; r >= 0; r--" if step.backward else f"r = 0; r < {step.count}; r++"
        lines = [line for statement in step.body for line in self.statement(statement, "        ")]
        return [f"    for ({self.index} {way}) {{", *lines, "    }"]

    def statement(self, statement: Statement, indent: str) -> list[str]:
        """The statement as a comment, and its loops."""
        block, before = _Block(self), list[str]()
        values: list[Any] = []
        reductions = sum(bool(term.loops) for term in statement.terms)
        called = "sum" if statement.join is ops.add else "largest"
        for k, term in enumerate(statement.terms):
            name = called if reductions == 1 else f"{called}{k}"
            if term.loops:
                before += self.reduction(name, term, len(statement.loops), statement.join)
            values.append(block.name(name) if term.loops else block.evaluate(term))
        equals = "+=" if statement.accumulate else "="
        result = block.spell(statement.joined(iter(values), block.apply))
        lines = [*before, *block.declarations, f"{self.element_of(statement.target)} {equals} {result};"]
        if not statement.loops and len(lines) > 1:
            lines = ["{", *[f"    {line}" for line in lines], "}"]  # a scope for its names
        return [f"{indent}{line}" for line in [self.comment(statement), *self.nest(statement.loops, 0, lines)]]

    def comment(self, statement: Statement) -> str:
        """The statement in one line, with the names that arrays have here."""
        names = {access.array.name: self.name_of(access.array) for access in (statement.target, *statement.accesses())}
        words = str(statement).translate({ord("Σ"): "sum ", ord("·"): " * "})
        words = re.sub(r"\b(\w+)(?=\[)", lambda found: names.get(found[1], found[1]), words)
        return f"/* {words} */"

    def name_of(self, array: Array) -> str:
        return self.buffers.get(array, array.name) if array.numbers is None else self.constants.numbers(array)

    def reduction(self, name: str, term: Term, outer: int, join: ops.Op) -> list[str]:
        block = _Block(self)
        value = block.evaluate(term)
        if join is ops.add:
            start, step = NOTHING, f"{name} += {block.spell(value)};"
        else:
            start, step = -ops.INF, f"{name} = {block.spell(block.apply(join, (block.name(name), value)))};"
        first = self.element.literal(start).strip("()")
        return [f"{self.element.name} {name} = {first};", *self.nest(term.loops, outer, [*block.declarations, step])]

    def nest(self, loops: tuple[int, ...], outer: int, body: list[str]) -> list[str]:
        """The lines inside these loops, which are inside `outer` others."""
        for d in reversed(range(len(loops))):
            i = _letter(outer + d)
            head = f"for ({self.index} {i} = 0; {i} < {loops[d]}; {i}++) {{"
            body = [head, *[f"    {line}" for line in body], "}"]
        return body

    def element_of(self, access: Access) -> str:
        moves = [(stride, _letter(d)) for d, stride in enumerate(access.strides)]
        if access.table is None:
            index = _affine(access.base, [(access.repeat, "r"), *moves])
        else:
            index = f"{self.constants.table(access.table)}[{_affine(access.base, moves)}]"
            index += f" + {access.repeat} * r" if access.repeat else ""
        return f"{self.name_of(access.array)}[{index}]"


def _letter(depth: int) -> str:
    return LETTERS[depth] if depth < len(LETTERS) else f"i{depth}"


def _affine(base: int, moves: Iterable[tuple[int, str]]) -> str:
    """`base + stride * letter + …`, without what is zero."""
    parts = [str(base)] if base else []
    parts += [letter if stride == 1 else f"{stride} * {letter}" for stride, letter in moves if stride]
    return " + ".join(parts) or "0"


def _introduction(name: str, functions: list[_Function], constants: _Constants, notes: dict[str, str]) -> str:
    """The comment for callers."""
    deeds = ["computes the outputs", "computes the outputs and their derivatives by the parameters"]
    lines = [f"{name}: C99, written by chainrule. It needs math.h, allocates nothing, and keeps nothing between calls."]
    for function, deed in zip(functions, deeds, strict=False):
        lines += ["", f"{function.prototype(function.sizes.__getitem__)};", f"    {deed}."]
    about = {
        "parameters": notes.get("parameter", "in the order of `wrt`"),
        "captured": notes.get("captured", "other Values, in order of creation"),
        "inputs": notes.get("input", "in order of creation"),
        "outputs": notes.get("output", "the results, from left to right"),
        "gradient": "derivatives by the parameters, in their order",
        "workspace": "memory to work in; its contents do not matter before or after",
    }
    width = max(map(len, about))
    lines += ["", *[f"{buffer.ljust(width)}  {about[buffer]}" for buffer in functions[-1].sizes]]
    memory = ", ".join(f"{f.workspace * constants.element.bytes} bytes in {f.name}" for f in functions)
    lines += ["", f"Workspace: {memory}. Constants: {constants.bytes} bytes.", "Buffers must not overlap."]
    lines = "\n".join(lines).splitlines()
    return "\n".join(["/*", *[f" * {line}".rstrip() for line in lines], " */"])
