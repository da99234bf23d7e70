"""Masks: the slope of relu from its result, in place of what it was applied to.

relu(x) passes a gradient on where x > 0, which is where relu(x) > 0, and for NaN in both cases. The result is read by
what comes after anyway, so x need not be kept for the way back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from chainrule import ops
from chainrule.compiler.passes.program import (
    Access,
    Apply,
    Array,
    ArrayProgram,
    Expression,
    Number,
    Repeat,
    Statement,
    Term,
    changed,
)


def by_results(program: ArrayProgram) -> ArrayProgram:
    """The program, in which `x <= 0` is asked of relu(x), in steps after the one that computes it.

    It is, wherever relu(x) has an array of its own like that of x.
    """
    results: dict[Array, Array] = {}
    steps: list[Statement | Repeat] = []
    written = Counter(statement.target.array for statement in program.statements)
    for step in program.steps:
        steps += changed([step], partial(_changed, results=results)) if results else [step]
        pairs = filter(None, map(_relu, step.body))
        results |= {x: y for x, y in pairs if written[x] == written[y] == 1}
    found = ArrayProgram(steps, program.leaves, program.output)
    found.gradient = program.gradient
    return found


def _relu(statement: Statement) -> tuple[Array, Array] | None:
    """x and y, if the statement is y = relu(x) for arrays that have their numbers in the same places."""
    target, expression = statement.target, statement.terms[0].expression
    if len(statement.terms) > 1 or statement.accumulate or not isinstance(expression, Apply):
        return None
    operand = expression.operands[0]
    if expression.op is not ops.relu or statement.terms[0].sign < 0 or not isinstance(operand, Access):
        return None
    same = (operand.base, operand.strides, operand.repeat) == (target.base, target.strides, target.repeat)
    plain = operand.table is target.table is None and operand.array.size == target.array.size
    return (operand.array, target.array) if same and plain else None


def _changed(statement: Statement, results: Mapping[Array, Array]) -> Statement:
    terms = [Term(_asked(term.expression, results), term.loops, term.sign) for term in statement.terms]
    return statement.with_terms(terms)


def _asked(expression: Expression, results: Mapping[Array, Array]) -> Expression:
    if not isinstance(expression, Apply):
        return expression
    left = expression.operands[0]
    if expression.op is ops.le and isinstance(left, Access) and left.array in results:
        right = expression.operands[1]
        if isinstance(right, Number) and right.value == 0.0:
            result = Access(results[left.array], left.base, left.strides, left.table, left.repeat)
            return Apply(ops.le, (result, right))
    return Apply(expression.op, tuple(_asked(operand, results) for operand in expression.operands))
