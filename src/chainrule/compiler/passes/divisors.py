"""Divisors outside of sums: a sum of quotients that share a divisor is divided once.

i<64: ds[i] = Σk<16 dy[16i+k]·(neg(y[16i+k] / s[i]))          i<64: ds.sum[i] = Σk<16 dy[16i+k]·(neg(y[16i+k]))
                                                              i<64: ds[i] = ds.sum[i] / s[i]

Whatever is normalised has such a sum on the way back, as every softmax; and a division takes as long as ten products.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from chainrule import ops
from chainrule.compiler.passes.program import (
    Access,
    Apply,
    Array,
    ArrayProgram,
    Expression,
    Repeat,
    Statement,
    Term,
    is_injective,
    unused_name,
)

Found = tuple[Expression, Expression]  # the expression without its divisor, and the divisor


def with_divisors_outside(program: ArrayProgram) -> ArrayProgram:
    """The same program, in which a sum is divided by what it does not move. In a loop in time the sums stay as they
    are: an array for each would have a row for every time.
    """
    steps: list[Statement | Repeat] = []
    taken = {array.name for array in program.arrays()}
    for step in program.steps:
        steps += [step] if isinstance(step, Repeat) else _divided(step, taken)
    return program.with_steps(steps)


def _divided(statement: Statement, taken: set[str]) -> Iterator[Statement]:
    """The statement, or the sum and then its quotient."""
    term, target, outer = statement.terms[0], statement.target, len(statement.loops)
    is_sum = len(statement.terms) == 1 and statement.join is ops.add and prod(term.loops) > 1
    parts = _without_divisor(term.expression, outer) if is_sum else None
    reads_itself = target.array in {access.array for access in statement.accesses()}
    if parts is None or reads_itself or not is_injective(statement):  # each sum needs a place of its own
        yield statement
        return
    name = unused_name(f"{target.array.name}.sum", taken)
    array = Array(name, target.array.size, "value", examples=target.array.examples)
    total = Access(array, target.base, target.strides, target.table)
    divisor = parts[1].map(lambda access: access.with_strides(access.strides[:outer]))
    yield Statement(total, statement.loops, [Term(parts[0], term.loops)])
    quotient = Term(Apply(ops.div, (total, divisor)), (), term.sign)
    yield Statement(target, statement.loops, [quotient], statement.accumulate)


def _without_divisor(expression: Expression, outer: int) -> Found | None:
    """A product without a divisor that only the `outer` loops move, and this divisor; None if there is none."""
    if not isinstance(expression, Apply):
        return None
    op, operands = expression.op, expression.operands
    if op is ops.div and not any(any(access.strides[outer:]) for access in operands[1].accesses()):
        return operands[0], operands[1]
    for k, operand in enumerate(operands if op in (ops.mul, ops.neg) else ()):
        if (parts := _without_divisor(operand, outer)) is not None:
            return Apply(op, (*operands[:k], parts[0], *operands[k + 1 :])), parts[1]
    return None
