"""Writes docs/reference/ops.md: every op with its derivative, by the op table's own rules. Run by `make stubs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from chainrule import ops
from chainrule.stepping.formula_text import FormulaText, formula

PATH = Path(__file__).parent.parent / "docs/reference/ops.md"

OPS = """\
# The ops

These {count} functions are `chainrule`'s (`chainrule.tanh(x)`) and methods of `Value` (`x.tanh()`). They take Values
and plain numbers.

This page is written by the [table that defines them](../design.md#an-operation-is-defined-once): each derivative is the
rule that `backward()` runs, applied to names. `out` is the op's own result; `[a < b]` is 1 where that holds, else 0.

| op | what it is | derivative | example |
|---|---|---|---|
{rows}
"""


def op_table() -> str:
    """The page of all ops."""
    return OPS.format(count=len(ops.TABLE), rows="\n".join(map(_op_row, ops.TABLE.values())))


def _op_row(row: ops.Op) -> str:
    summary, example, result, *_ = re.split(r"\n\n>>> |\n", (row.__doc__ or "").split(": ", 1)[1])
    names = [_Written((low + high) / 2.0, name) for name, (low, high) in zip(row.parameters, row.domain, strict=True)]
    out = _Written(row.forward(*[name.value for name in names]), "out")
    derivatives = []
    for name, partial in zip(row.parameters, row.partials, strict=True):
        by = f"by {name}: " if row.arity > 1 else ""
        derivatives.append(f"{by}`{formula(partial(out, *names)).text()}`" if partial else f"{by}none")
    if not any(row.partials):
        derivatives = ["none"]
    infix = f" {row.symbol} ".join(row.parameters)
    symbol = f"<br>`{infix}`" if any(row.partials) and row.symbol != row.name else ""  # `a == b` is not the op
    cells = (
        f"`{row.signature}`{symbol}",
        summary.removesuffix("."),
        "<br>".join(derivatives),
        f"`{example}` = `{result}`",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


class _Written(FormulaText):
    """A formula that keeps both sides of a `where`, for no numbers are given that would choose."""

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> FormulaText:
        if op is ops.where:
            formulas = tuple(map(formula, operands))
            made = FormulaText.of(op, op.forward(*[operand.value for operand in formulas]), formulas)
        else:
            made = super()._apply(op, operands)
        return _Written(made.value, made.name, made.op, made.operands)


if __name__ == "__main__":
    PATH.write_text(op_table(), encoding="utf-8")
