"""Fewer tables: a lifted program in which as few accesses as can be look up where they read."""

from __future__ import annotations

from math import prod

from chainrule import ops
from chainrule.compiler.passes.align import aligned
from chainrule.compiler.passes.distinct import with_distinct_elements
from chainrule.compiler.passes.lift import MUCH_FASTER, duration
from chainrule.compiler.passes.neighbours import apart
from chainrule.compiler.passes.program import Apply, ArrayProgram, Expression
from chainrule.compiler.passes.reach import CONDITIONS
from chainrule.compiler.passes.rectangles import rectangular
from chainrule.compiler.passes.regular import with_regular_nests

PER_FUNCTION = 0.5  # nanoseconds for an exponential and the like
LIGHT = (ops.add, ops.sub, ops.mul, ops.neg, ops.where, ops.relu, ops.maximum, ops.minimum, *CONDITIONS)


def with_few_tables(program: ArrayProgram) -> ArrayProgram:
    """The same program, with distinct elements once, ragged sums aligned, and neighbours apart.

    And with rows of one length, if it takes much less time then.
    """
    program = with_distinct_elements(with_regular_nests(program))
    found, other = _aligned(program), rectangular(program)
    if other is not program and _cost(other := _aligned(other)) < MUCH_FASTER * _cost(found):
        return other
    return found


def _aligned(program: ArrayProgram) -> ArrayProgram:
    return apart(with_regular_nests(aligned(program)))


def _cost(program: ArrayProgram) -> float:
    """About how many nanoseconds a run takes, functions included."""
    total = duration(program)
    for step in program.steps:
        for statement in step.body:
            functions = sum([prod(term.loops) * _functions(term.expression) for term in statement.terms])
            total += PER_FUNCTION * step.count * prod(statement.loops) * functions
    return total


def _functions(expression: Expression) -> int:
    """How many functions an expression has that take many instructions."""
    if not isinstance(expression, Apply):
        return 0
    return (expression.op not in LIGHT) + sum(map(_functions, expression.operands))
