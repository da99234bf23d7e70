"""Fewer tables: a lifted program in which as few accesses as can be look up where they read."""

from __future__ import annotations

from chainrule.compiler.passes.align import aligned
from chainrule.compiler.passes.distinct import with_distinct_elements
from chainrule.compiler.passes.neighbours import apart
from chainrule.compiler.passes.program import ArrayProgram
from chainrule.compiler.passes.rectangles import rectangular
from chainrule.compiler.passes.regular import with_regular_nests


def with_few_tables(program: ArrayProgram) -> ArrayProgram:
    """The same program, with distinct elements once, equal rows, ragged sums aligned, and neighbours apart."""
    program = rectangular(with_distinct_elements(with_regular_nests(program)))
    return apart(with_regular_nests(aligned(program)))
