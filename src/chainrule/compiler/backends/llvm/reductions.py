"""Reductions: parts of a sum, or of a maximum, joined in registers and across lanes."""

from __future__ import annotations

from chainrule import ops
from chainrule.compiler.backends.llvm.registers import ANY_ORDER, Arithmetic, Register
from chainrule.compiler.passes.program import NOTHING


class Reduction:
    """A reduction by `op`, which is `add` or `larger`."""

    def __init__(self, arithmetic: Arithmetic, op: ops.Op) -> None:
        self.arithmetic = arithmetic
        self.op = op

    def start(self, lanes: int) -> Register:
        """What the reduction begins with: it changes nothing."""
        return self.arithmetic.register(NOTHING if self.op is ops.add else -ops.INF, lanes)

    def join(self, a: Register, b: Register) -> Register:
        """Two parts in one."""
        total: Register = self.arithmetic.apply(self.op, (a, b))
        return total

    def join_narrower(self, wide: Register, narrow: Register) -> Register:
        """Two parts, joined in the lanes that both have."""
        if narrow.lanes == 1:
            narrow = self.arithmetic.side_by_side([narrow, self.start(1)])
        lanes = [min(lane, narrow.lanes) for lane in range(wide.lanes)]  # beyond its own, one that changes nothing
        return self.join(wide, self._shuffled(narrow, self.start(narrow.lanes).name, lanes))

    def across(self, vectors: list[Register]) -> Register:
        """A vector with one lane for each of these, which has all lanes of that one joined."""
        arithmetic, count, lanes = self.arithmetic, len(vectors), vectors[0].lanes
        if count == 1 or lanes == 1:
            return arithmetic.side_by_side([self._total(vector) for vector in vectors])
        if count > lanes:
            return arithmetic.joined([self.across(vectors[: count // 2]), self.across(vectors[count // 2 :])])
        while len(vectors) > 1:
            vectors = [self._folded(a, b) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
        while vectors[0].lanes > count:
            vectors = [self._folded(vectors[0])]
        return vectors[0]

    def _folded(self, a: Register, b: Register | None = None) -> Register:
        """Neighbouring lanes joined: those of `a`, then those of `b`."""
        lanes, other = (2 * a.lanes, b.name) if b else (a.lanes, "poison")
        even, odd = (self._shuffled(a, other, list(range(start, lanes, 2))) for start in (0, 1))
        return self.join(even, odd)

    def _shuffled(self, a: Register, other: str, lanes: list[int]) -> Register:
        return Register(self.arithmetic, self.arithmetic.text.shuffle(a.name, other, a.lanes, lanes), len(lanes))

    def _total(self, vector: Register) -> Register:
        """All lanes joined."""
        if vector.lanes == 1:
            return vector
        if self.op is not ops.add:
            while vector.lanes > 2:
                vector = self._folded(vector)
            return self.join(*self.arithmetic.apart(vector))
        text, element = self.arithmetic.text, self.arithmetic.element
        one, many = element.name, element.lanes(vector.lanes)
        function = f"{one} @llvm.vector.reduce.fadd.{element.suffix(vector.lanes)}"
        text.declarations.add(f"declare {function}({one}, {many})")
        result = text.emit(f"call {ANY_ORDER} {function}({one} -0.0, {many} {vector.name})")
        return Register(self.arithmetic, result, 1)
