"""LLVM's language: number types, and the text of one function.

Values are named by their registers or written as constants; `lanes` says how many numbers a value has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

WIDEST = 32  # lanes of doubles: four 512-bit registers, enough to hide the latency of a fused multiply-add
LINE = 64  # bytes: a cache line
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

    @property
    def widest(self) -> int:
        """The most lanes: those that fill the registers which WIDEST doubles fill."""
        return WIDEST * 8 // self.bytes

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


class Text:
    """The body of a function on numbers of type `element`, and the declarations that it needs."""

    def __init__(self, element: Element = DOUBLE, declarations: set[str] | None = None) -> None:
        self.element = element
        self.declarations: set[str] = set() if declarations is None else declarations
        self.lines: list[str] = []
        self._label = "entry"  # of the block under way
        self._count = 0

    def fresh(self) -> str:
        """A new register."""
        self._count += 1
        return f"%r{self._count}"

    def emit(self, instruction: str) -> str:
        """The register of a new instruction's result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def function(self, head: str, result: str = "void") -> str:
        """The whole function; `head` is what comes before its body."""
        return "\n".join([f"{head} {{", "entry:", *self.lines, f"  ret {result}", "}\n"])

    def loop(
        self, stop: int, step: int, carried: Sequence[tuple[str, str]], body: Callable[[str, list[str]], list[str]]
    ) -> None:
        """A loop over 0, step, …, below `stop`. `carried` are the types and first values of what each turn passes on.

        `body` takes the index and these values, and returns their next ones; those of the last turn are the results.
        """
        before, head, after = self._label, f"head{self._count}", f"after{self._count}"
        self._count += 1
        self.lines += [f"  br label %{head}", f"{head}:"]
        index, place = self.fresh(), len(self.lines)
        inside = [self.fresh() for _ in carried]
        self._label = head
        results = body(index, inside)
        following = self.emit(f"add nuw nsw i64 {index}, {step}")
        again = self.emit(f"icmp slt i64 {following}, {stop}")
        values = [("i64", "0"), *carried]
        ends = zip(values, [index, *inside], [following, *results], strict=True)
        self.lines[place:place] = [
            f"  {inner} = phi {kind} [ {first}, %{before} ], [ {result}, %{self._label} ]"
            for (kind, first), inner, result in ends
        ]
        self.lines += [f"  br i1 {again}, label %{head}, label %{after}", f"{after}:"]
        self._label = after

    # Lanes.

    def insert(self, vector: str, value: str, lane: int, lanes: int) -> str:
        """The vector with one lane replaced."""
        kind, one = self.element.lanes(lanes), self.element.name
        return self.emit(f"insertelement {kind} {vector}, {one} {value}, i32 {lane}")

    def extract(self, vector: str, lane: int, lanes: int) -> str:
        """One lane of the vector."""
        return self.emit(f"extractelement {self.element.lanes(lanes)} {vector}, i32 {lane}")

    def shuffle(self, a: str, b: str, lanes: int, chosen: Sequence[int]) -> str:
        """The chosen lanes of two vectors, which are counted through."""
        kind, mask = self.element.lanes(lanes), ", ".join(f"i32 {lane}" for lane in chosen)
        return self.emit(f"shufflevector {kind} {a}, {kind} {b}, <{len(chosen)} x i32> <{mask}>")

    # Calls.

    def intrinsic(self, name: str, operands: Sequence[str], lanes: int) -> str:
        """A function of LLVM's own, on all lanes."""
        kind = self.element.lanes(lanes)
        function = f"@llvm.{name}.{self.element.suffix(lanes)}"
        self.declarations.add(f"declare {kind} {function}({', '.join([kind] * len(operands))})")
        return self.emit(f"call {kind} {function}({', '.join(f'{kind} {operand}' for operand in operands)})")

    def library(self, name: str, doubles: Sequence[str], lanes: int) -> str:
        """A function of the mathematical library on doubles, lane by lane."""
        self.declarations.add(f"declare double @{name}({', '.join(['double'] * len(doubles))}) {PURE}")
        if lanes == 1:
            return self.emit(f"call double @{name}({', '.join('double ' + operand for operand in doubles)})")
        result, kind = "poison", DOUBLE.lanes(lanes)
        for lane in range(lanes):
            parts = [self.emit(f"extractelement {kind} {operand}, i32 {lane}") for operand in doubles]
            value = self.emit(f"call double @{name}({', '.join('double ' + part for part in parts)})")
            result = self.emit(f"insertelement {kind} {result}, double {value}, i32 {lane}")
        return result
