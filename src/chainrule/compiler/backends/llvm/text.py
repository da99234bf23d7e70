"""LLVM's language: number types, and the text of one function.

Values are named by their registers or written as constants; `lanes` says how many numbers a value has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from chainrule.compiler.backends.memory import LINE

PURE = "nounwind willreturn memory(none)"  # what can be said of any mathematical function


def vector(element: str, lanes: int) -> str:
    """The type of `lanes` elements side by side."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def constant(element: str, literal: str, lanes: int) -> str:
    """The same number in every lane."""
    return literal if lanes == 1 else "<" + ", ".join([f"{element} {literal}"] * lanes) + ">"


class Element:
    """The type of every number in a program, in LLVM's terms and in NumPy's."""

    def __init__(self, dtype: str, name: str, code: str) -> None:
        self.dtype = np.dtype(dtype)
        self.bytes = self.dtype.itemsize
        self.name = name
        self.code = code  # in the names of intrinsics
        self.line = LINE // self.bytes  # numbers in a cache line

    def padded(self, size: int) -> int:
        """The room for `size` numbers: whole cache lines."""
        return -(-size // self.line) * self.line

    def lanes(self, count: int) -> str:
        """The type of `count` of them side by side."""
        return vector(self.name, count)

    def suffix(self, lanes: int) -> str:
        """The end of an intrinsic's name."""
        return self.code if lanes == 1 else f"v{lanes}{self.code}"

    def literal(self, number: float) -> str:
        """A constant. LLVM writes one of any type as the bits of a double, which must be exact in that type."""
        with np.errstate(over="ignore"):
            rounded = np.float64(self.dtype.type(number))
        return f"0x{rounded.view(np.uint64):016X}"


DOUBLE = Element("float64", "double", "f64")
ELEMENTS = {"float64": DOUBLE, "float32": Element("float32", "float", "f32")}


class Table:
    """Numbers that a function reads from memory, each as a vector that has it in all lanes.

    A function with more constants than registers loads them again and again, by instructions of their own. But an
    instruction can take one operand from memory, if that is a whole vector. LLVM would make a single number of a vector
    that it knows; that these are `externally_initialized` keeps it from looking.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: dict[str, int] = {}  # vectors in LLVM's language -> their places

    def place(self, row: str) -> int:
        return self.rows.setdefault(row, len(self.rows))

    def definition(self) -> str:
        kind = f"[{len(self.rows)} x {next(iter(self.rows)).partition('> ')[0]}>]"
        return f"{self.name} = externally_initialized constant {kind} [{', '.join(self.rows)}], align {LINE}"


Functions: TypeAlias = "Callable[[str, int], tuple[str, frozenset[str]]]"


def libm(name: str, count: int) -> tuple[str, frozenset[str]]:
    """A function of `count` doubles in C's mathematical library: what it is called, and its declaration."""
    return f"@{name}", frozenset({f"declare double @{name}({', '.join(['double'] * count)}) {PURE}"})


class Text:
    """The body of a function on numbers of type `element`, and the declarations that it needs.

    `functions` says where elementary functions are found: C's library, or `library.functions` where there is none. If
    there is a `table`, the coefficients of polynomials are in it.
    """

    def __init__(
        self,
        element: Element = DOUBLE,
        declarations: set[str] | None = None,
        functions: Functions = libm,
        table: Table | None = None,
    ) -> None:
        self.element = element
        self.declarations: set[str] = set() if declarations is None else declarations
        self.functions = functions
        self.table = table
        self.lines: list[str] = []
        self.label = "entry"  # of the block under way
        self.count = 0  # of the names so far

    def fresh(self) -> str:
        """A new register."""
        self.count += 1
        return f"%r{self.count}"

    def emit(self, instruction: str) -> str:
        """The register of a new instruction's result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def function(self, head: str, result: str = "void") -> str:
        """The whole function; `head` is what comes before its body."""
        return "\n".join([f"{head} {{", "entry:", *self.lines, f"  ret {result}", "}\n"])

    def tabled(self, literal: str, lanes: int) -> str:
        """The same number in every lane, from the table."""
        assert self.table is not None
        kind = self.element.lanes(lanes)
        place = self.table.place(f"{kind} {constant(self.element.name, literal, lanes)}")
        pointer = self.emit(f"getelementptr inbounds {kind}, ptr {self.table.name}, i64 {place}")
        self.declarations.add("!0 = !{}")
        align = min(LINE, lanes * self.element.bytes)  # rows of shorter vectors share a line
        return self.emit(f"load {kind}, ptr {pointer}, align {align}, !invariant.load !0")

    def intrinsic(self, name: str, operands: Sequence[str], lanes: int) -> str:
        """A function of LLVM's own, on all lanes."""
        kind = self.element.lanes(lanes)
        function = f"@llvm.{name}.{self.element.suffix(lanes)}"
        self.declarations.add(f"declare {kind} {function}({', '.join([kind] * len(operands))})")
        return self.emit(f"call {kind} {function}({', '.join(f'{kind} {operand}' for operand in operands)})")

    def library(self, name: str, operands: Sequence[str], lanes: int) -> str:
        """A function of the mathematical library, which takes doubles, lane by lane."""
        function, needed = self.functions(name, len(operands))
        self.declarations |= needed
        kind, wide, doubles = self.element.lanes(lanes), DOUBLE.lanes(lanes), operands
        if self.element is not DOUBLE:
            doubles = [self.emit(f"fpext {kind} {operand} to {wide}") for operand in operands]
        result = self._lane_by_lane(function, doubles, lanes)
        return result if self.element is DOUBLE else self.emit(f"fptrunc {wide} {result} to {kind}")

    def _lane_by_lane(self, function: str, doubles: Sequence[str], lanes: int) -> str:
        """Calls of a function on doubles."""
        if lanes == 1:
            return self.emit(f"call double {function}({', '.join('double ' + operand for operand in doubles)})")
        result, kind = "poison", DOUBLE.lanes(lanes)
        for lane in range(lanes):
            parts = [self.emit(f"extractelement {kind} {operand}, i32 {lane}") for operand in doubles]
            value = self.emit(f"call double {function}({', '.join('double ' + part for part in parts)})")
            result = self.emit(f"insertelement {kind} {result}, double {value}, i32 {lane}")
        return result
