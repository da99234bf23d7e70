"""Lifetimes: in a loop whose times need fewer and fewer numbers, what nobody needs any more is masked where it matters.

All times of the loop compute whole rows. A number that nobody needs has an adjoint of 0, and where slopes are constant
that is all: 0 times 2 is 0. Other slopes may be infinite or NaN there, and 0 times these is NaN, which would flow to
numbers that are needed. So such terms are masked, with a row of the mask for each time:

repeat r<60:
  i<58: u1_0[58r+i] = x1[60r+i] - 2·x1[1+60r+i]
  i<58: u1_1[58r+i] = x1[1+60r+i] + where(u1_m1[58r+i], s1[0]·u1_0[58r+i], -0)
"""

from __future__ import annotations

from math import isfinite

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.program import (
    NOTHING,
    Access,
    Apply,
    Array,
    Expression,
    Number,
    Shape,
    Statement,
    Term,
    unmasked,
    without_still_axes,
)


class Lifetimes:
    """Masks for the statements of a loop that runs `count` times; equal ones are one array."""

    def __init__(self, name: str, count: int) -> None:
        self.name, self.count = name, count
        self.arrays: dict[bytes, Array] = {}

    def masked(self, statement: Statement, alive: np.ndarray) -> Statement:
        """The statement, masked once the elements of its target have been needed for as many times as `alive` says."""
        if statement.join is not ops.add or all(map(_has_constant_slopes, statement.terms)):
            return statement
        times = alive[statement.target.positions(statement.loops)]
        if times.min() >= self.count:
            return statement
        return statement.with_terms([self._masked(term, statement.loops, times) for term in statement.terms])

    def _masked(self, term: Term, loops: Shape, times: np.ndarray) -> Term:
        if _has_constant_slopes(term):
            return term
        around = loops + term.loops
        known, expression = unmasked(term.expression)
        needed = np.arange(self.count).reshape(-1, *[1] * len(around)) < times.reshape((*loops, *[1] * len(term.loops)))
        if known is not None:
            needed = needed & (known.array.numbers[known.positions(around)] != 0.0)
        mask = self._mask(needed)
        return Term(Apply(ops.where, (mask, expression, Number(NOTHING))), term.loops, term.sign)

    def _mask(self, needed: np.ndarray) -> Access:
        """The access to a mask, by time and loops, without loops that do not move it."""
        numbers, (time, *strides) = without_still_axes(needed, first=1)
        name = f"{self.name}{len(self.arrays) + 1}"
        array = self.arrays.setdefault(numbers.tobytes(), Array(name, len(numbers), "mask", numbers))
        return Access(array, 0, strides, repeat=time)


def _has_constant_slopes(term: Term) -> bool:
    """The same for a term, which may be part of a ragged sum."""
    return has_constant_slopes(unmasked(term.expression)[1])


def has_constant_slopes(expression: Expression) -> bool:
    """Whether derivatives of an expression are finite numbers, whatever it reads."""
    if not isinstance(expression, Apply):
        return True
    last = expression.operands[-1]
    numbers = [each.value for each in expression.operands if isinstance(each, Number)]
    is_linear = expression.op in (ops.add, ops.sub, ops.neg)
    is_linear |= expression.op is ops.mul and any(map(isfinite, numbers))
    is_linear |= expression.op is ops.div and isinstance(last, Number) and last.value != 0.0
    return is_linear and all(map(has_constant_slopes, expression.operands))


def without_lifetimes(statement: Statement) -> Statement:
    """The statement without such masks, if it computes no derivative: nobody needs the numbers that they leave out.

    What a ragged sum leaves out is left out at all times, so it is seen at the first one.
    """
    if statement.target.array.kind != "value":
        return statement
    return statement.with_terms([_without(term, statement.loops) for term in statement.terms])


def _without(term: Term, loops: Shape) -> Term:
    mask, expression = unmasked(term.expression)
    if mask is None or not mask.repeat:
        return term
    first = Access(mask.array, mask.base, mask.strides, mask.table)
    if not mask.array.numbers[first.positions(loops + term.loops)].all():
        expression = Apply(ops.where, (first, expression, Number(NOTHING)))
    return Term(expression, term.loops, term.sign)
