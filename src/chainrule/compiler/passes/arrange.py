"""The last passes before LLVM: which arrays are kept, and where their elements lie."""

from __future__ import annotations

from typing import Any

from chainrule.compiler.passes.contract import contracted
from chainrule.compiler.passes.distribute import distribute
from chainrule.compiler.passes.layout import lay_out
from chainrule.compiler.passes.program import Array, ArrayProgram
from chainrule.compiler.passes.rematerialize import is_long, rematerialized


def arranged(program: ArrayProgram) -> tuple[ArrayProgram, dict[Array, Any]]:
    """The program with its arrays arranged for vectors, and for each leaf that moved the new places of its elements.

    Where examples go through loops in time, they lie side by side already (see `batch`). What counts there is that
    the numbers of many examples fit the cache. To compute numbers again pays there alone: for one example, what is kept
    fits as it is. What counts for one example is that exponentials and the like, where no time waits for them, are
    computed for many times at once.
    """
    if program.has_time and any(array.examples for array in program.arrays()):
        return contracted(rematerialized(program)), {}
    return lay_out(contracted(distribute(program, is_long)) if program.has_time else program)
