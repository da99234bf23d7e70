"""The processor that code is for, as far as widths depend on it: its vector registers.

A value takes an eighth of the registers, so that an expression stays in them. Sums are formed side by side, as many as
there is room for beside the operand that they share and one that they do not share.
"""

from __future__ import annotations

from dataclasses import dataclass

CACHE = 2**15  # bytes of the first cache; newer processors have more


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
    bits: int  # of a vector register
    registers: int
    fma: bool  # multiplies and adds at once; otherwise a product needs a register

    @classmethod
    def of(cls, triple: str, cpu: str = "", features: str = "") -> Target:
        """The target of this name; its registers follow from the features that are listed with a `+`."""
        family, has = triple.partition("-")[0], {name[1:] for name in features.split(",") if name.startswith("+")}
        if family in ("aarch64", "arm64"):  # NEON; SVE is not used
            return cls(triple, cpu, features, 128, 32, True)
        if "avx512f" in has:
            return cls(triple, cpu, features, 512, 32, True)
        return cls(triple, cpu, features, 256 if "avx" in has or "avx2" in has else 128, 16, "fma" in has)

    def lanes(self, size: int) -> int:
        """How many numbers of `size` bytes are in a register."""
        return self.bits // 8 // size

    @property
    def has_masks(self) -> bool:
        """Whether loads, stores and sums of some lanes cost no more than those of all."""
        return self.bits == 512

    @property
    def reads_constants(self) -> bool:
        """Whether kernels read their coefficients from memory, because there are more of them than registers."""
        return self.bits == 256

    @property
    def vectors(self) -> int:
        """Registers that a value takes."""
        return self.registers // 8

    def turns(self, shared: int, each: int) -> int:
        """How many turns of `each` registers fit beside those that they share, and one operand that they do not."""
        return max(1, (self.registers - shared - 1 - (not self.fma)) // each)
