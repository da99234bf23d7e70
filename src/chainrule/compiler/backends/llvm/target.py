"""The processor that code is for, as far as the choice of widths depends on it: its vector registers.

A value takes an eighth of the registers, so that an expression's operands and results stay in them. The sums that are
formed side by side take all that is left by what they share, one operand at a time, and by one operand that they do not
share.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A processor in LLVM's terms, and its vector registers.

    >>> avx2 = Target.of("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma")
    >>> avx2.registers, avx2.lanes(8), avx2.lanes(4), avx2.vectors
    (16, 4, 8, 2)
    """

    triple: str
    cpu: str
    features: str
    bits: int = 128  # of a vector register
    registers: int = 16

    @classmethod
    def of(cls, triple: str, cpu: str = "", features: str = "") -> Target:
        """The target of this name; its registers follow from the features that are listed with a `+`."""
        family, has = triple.partition("-")[0], {name[1:] for name in features.split(",") if name.startswith("+")}
        if family in ("aarch64", "arm64"):  # NEON; of SVE, which has no width of its own, nothing is used
            return cls(triple, cpu, features, 128, 32)
        if "avx512f" in has:
            return cls(triple, cpu, features, 512, 32)
        return cls(triple, cpu, features, 256 if "avx" in has or "avx2" in has else 128)

    def lanes(self, size: int) -> int:
        """How many numbers of `size` bytes are in a register."""
        return self.bits // 8 // size

    @property
    def vectors(self) -> int:
        """Registers that a value takes."""
        return max(1, self.registers // 8)

    def turns(self, shared: int, vectors: int) -> int:
        """How many sums of `vectors` registers each fit beside the registers that they share, and one more operand."""
        return max(1, (self.registers - shared - 1) // vectors)
