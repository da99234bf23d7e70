"""What is said of code in which too little repeats."""

from __future__ import annotations

REMEDY = "where an `if` makes steps differ, let them be alike, and a weight of 0 or 1 say which of them counts"


class IrregularityError(ValueError):
    """So little of the code repeats that it has no arrays worth compiling; or an op is for single floats alone."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        self.reason, self.remedy = reason, remedy
        super().__init__(f"{self.reason}: compile a part of it, or run it eagerly")

    @classmethod
    def of_so_many(cls, statements: int, trouble: str = "LLVM would take too long over them") -> IrregularityError:
        """That of code with so many statements, and the trouble with them."""
        reason = f"the code repeats so little that {statements:,} array statements are left of it, and {trouble}"
        return cls(reason, REMEDY)

    def why(self, dtype: str) -> str:
        """Why a program runs node by node, which is in double precision."""
        remedy = f" ({self.remedy})" if self.remedy else ""
        precision = "" if dtype == "float64" else "; in double precision, as all such code does"
        return f"because {self.reason}{remedy}{precision}"
