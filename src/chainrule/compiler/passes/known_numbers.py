"""Known numbers: an array that holds one number everywhere, which the compiler knows, needs no memory and no loop.

dtotal[0] = 1
i<99: dv9[i] = dtotal[0]
dv7[0] = Σi<99 dv9[i]·0.5             dv7[0] = 49.5
i<99: dv6[i] = dv9[i]·(v5[i] > 0)     i<99: dv6[i] = 1·(v5[i] > 0)

Backward passes begin so: the gradient of a mean is the same number for all examples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import reduce
from math import prod

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
)


def with_known_numbers(program: ArrayProgram) -> ArrayProgram:
    """The same program without such arrays: whatever reads one has its number instead."""
    kept = {*program.leaves.values(), *program.results}
    writers = Counter(statement.target.array for statement in program.statements)
    known: dict[Array, Number] = {}
    steps: list[Statement | Repeat] = []
    for step in program.steps:
        if isinstance(step, Repeat):
            steps.append(step.with_body([_changed(statement, known) for statement in step.body]))
            continue
        statement, array = _changed(step, known), step.target.array
        number = _number_of(statement) if writers[array] == 1 and array not in kept else None
        if number is None:
            steps.append(statement)
        else:
            known[array] = number
    return program.with_steps(steps)


def _changed(statement: Statement, known: Mapping[Array, Number]) -> Statement:
    """The statement with numbers in place of what is known."""
    if not any(access.array in known for access in statement.accesses()):
        return statement
    terms = [Term(_with_numbers(term.expression, known), term.loops, term.sign) for term in statement.terms]
    return statement.with_terms([_without_loops(term, statement.join) for term in terms])


def _with_numbers(expression: Expression, known: Mapping[Array, Number]) -> Expression:
    if isinstance(expression, Access):
        return known.get(expression.array, expression)
    if isinstance(expression, Apply):
        operands = tuple([_with_numbers(operand, known) for operand in expression.operands])
        numbers = [operand.value for operand in operands if isinstance(operand, Number)]
        if len(numbers) == len(operands):
            return Number(float(expression.op(*numbers)))
        return Apply(expression.op, operands)
    return expression


def _without_loops(term: Term, join: ops.Op) -> Term:
    """The sum of so many equal numbers is a product, and the largest of them is any."""
    if not isinstance(term.expression, Number):
        return term
    count = prod(term.loops) if join is ops.add else 1
    return Term(Number(count * term.expression.value), (), term.sign)


def _number_of(statement: Statement) -> Number | None:
    """The number that a statement sets all of its target to, if it does."""
    values = [term.sign * term.expression.value for term in statement.terms if isinstance(term.expression, Number)]
    if statement.accumulate or len(values) < len(statement.terms) or any(term.loops for term in statement.terms):
        return None
    return Number(reduce(statement.join.forward, values))
