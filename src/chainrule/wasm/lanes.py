"""Instructions for numbers, one at a time or two side by side.

A loop over examples can take two of them at once: WebAssembly has vectors of two doubles. What is written for an op is
the same in both cases, so `rules` and `replay` write it with one of these two sets of instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

from chainrule.wasm import encoding as e

ARITHMETIC = {"add": b"\xa0", "sub": b"\xa1", "mul": b"\xa2", "div": b"\xa3", "neg": b"\x9a", "abs": b"\x99"}
ROUNDING = {"ceil": b"\x9b", "floor": b"\x9c", "trunc": b"\x9d", "rint": b"\x9e", "sqrt": b"\x9f"}
COMPARISONS = {"eq": b"\x61", "ne": b"\x62", "lt": b"\x63", "gt": b"\x64", "le": b"\x65", "ge": b"\x66"}
OF_PAIRS = {
    "add": 240, "sub": 241, "mul": 242, "div": 243, "neg": 237, "abs": 236,
    "ceil": 116, "floor": 117, "trunc": 122, "rint": 148, "sqrt": 239,
    "eq": 71, "ne": 72, "lt": 73, "gt": 74, "le": 75, "ge": 76,
}  # fmt: skip


@dataclass(frozen=True)
class Lanes:
    """A set of instructions for `count` numbers side by side; a truth value of pairs is a mask."""

    count: int
    kind: bytes  # of a local
    instructions: dict[str, bytes]  # of ops, by name
    comparisons: dict[str, bytes]
    select: bytes  # of two numbers, by a truth value
    to_number: bytes  # of a truth value, 1 or 0

    @property
    def size(self) -> int:
        """Bytes that they take in memory."""
        return 8 * self.count

    def constant(self, number: float) -> bytes:
        """The same number in all lanes."""
        return e.f64(number) if self.count == 1 else e.pair(number)

    def load(self, offset: int) -> bytes:
        """What lies at an address."""
        return e.load(offset) if self.count == 1 else e.load_pair(offset)

    def load_same(self, offset: int) -> bytes:
        """One double, in all lanes."""
        return e.load(offset) if self.count == 1 else e.load_twice(offset)

    def store(self, offset: int) -> bytes:
        """Store all lanes at an address."""
        return e.store(offset) if self.count == 1 else e.store_pair(offset)


ONE = Lanes(1, e.F64, ARITHMETIC | ROUNDING, COMPARISONS, e.SELECT, e.F64_OF_I32)
TWO = Lanes(
    2,
    e.V128,
    {name: e.simd(OF_PAIRS[name]) for name in ARITHMETIC | ROUNDING},
    {name: e.simd(OF_PAIRS[name]) for name in COMPARISONS},
    e.BIT_SELECT,
    e.pair(1.0) + e.BIT_AND,
)
