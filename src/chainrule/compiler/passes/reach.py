"""Reach: which derivatives there are at all, so that no infinite slope makes a number of those that there are not.

Arrays are differentiated whole. But a seed may be 0 but for one element, as in each direction of a Jacobian, and some
numbers of an array may have nothing to do with the output. There the derivative is 0, because no path leads there; and
0 times an infinite slope would be NaN. So where paths lead is found beforehand, and a product with a slope that may be
infinite is chosen by it: `where(reached, derivative · slope, 0)`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from math import isfinite, prod
from operator import and_
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.differentiate import is_injective, unmasked
from chainrule.compiler.passes.program import (
    Access,
    Apply,
    Array,
    Expression,
    Number,
    Repeat,
    Shape,
    Statement,
    Term,
    changed,
)

MOST_WORK = 2**24  # elements, to follow paths through
MOST_TURNS = 2**14  # statements, at all times
CONDITIONS = (ops.lt, ops.le, ops.gt, ops.ge, ops.eq, ops.ne)
FINITE = (ops.add, ops.sub, ops.mul, ops.neg, ops.where, *CONDITIONS)  # for operands that are finite

Reached = dict[Array, np.ndarray]


def only_where_reached(
    begun: Sequence[Statement], steps: Sequence[Statement | Repeat], derivatives: Collection[Array]
) -> list[Statement | Repeat]:
    """The steps that compute derivatives, which begin with some statements, with the products that need it chosen."""
    every = [(step, statement) for step in steps for statement in step.body]
    work = sum([prod(each.loops + term.loops) * step.count for step, each in every for term in each.terms])
    if work > MOST_WORK or sum([step.count for step, _ in every]) > MOST_TURNS:
        return list(steps)
    reached = {array: np.zeros(array.size, dtype=bool) for array in derivatives}
    for step in (*begun, *steps):
        for time in step.times:
            for statement in step.body:
                _follow(statement, reached, time)
    masks = {
        array: Array(f"{array.name}_is", array.size, "constant", found.astype(np.float64))
        for array, found in reached.items()
        if not found.all()
    }
    return changed(steps, lambda statement: _chosen(statement, masks))


def _follow(statement: Statement, reached: Reached, time: int) -> None:
    """Note what a statement reaches."""
    target, loops = statement.target, statement.loops
    found = np.zeros(loops, dtype=bool)
    for term in statement.terms:
        leads = np.broadcast_to(_leads(term.expression, reached, loops + term.loops, time), loops + term.loops)
        found |= leads.any(axis=tuple(range(len(loops), leads.ndim)))
    where = target.positions(loops, time)
    if not statement.accumulate:
        reached[target.array][where] = found
    elif is_injective(statement):
        reached[target.array][where] |= found
    else:
        np.logical_or.at(reached[target.array], where, found)


def _leads(expression: Expression, reached: Reached, loops: Shape, time: int) -> Any:
    """Whether a path leads through an expression: a derivative times a slope, masked if it is part of a ragged sum."""
    if isinstance(expression, Number):
        return expression.value != 0.0
    mask, product = unmasked(expression)
    sources = [each for each in product.accesses() if each.array in reached]
    found = [reached[each.array][each.positions(loops, time)] for each in sources]
    real = [] if mask is None else [mask.array.numbers[mask.positions(loops, time)] != 0.0]
    return reduce(and_, [*found, *real], True)


def _chosen(statement: Statement, masks: Mapping[Array, Array]) -> Statement:
    """The statement whose terms are 0 where no path leads."""
    return statement.with_terms([_of_reached(term, masks) for term in statement.terms])


def _of_reached(term: Term, masks: Mapping[Array, Array]) -> Term:
    partly = [access for access in term.expression.accesses() if access.array in masks]
    if not partly or _is_finite(term.expression, masks):
        return term
    where = partly[0]
    mask = Access(masks[where.array], where.base, where.strides, where.table, where.repeat)
    return Term(Apply(ops.where, (mask, term.expression, Number(0.0))), term.loops, term.sign)


def _is_finite(expression: Expression, masks: Mapping[Array, Array]) -> bool:
    """Whether a slope, which stands beside a derivative, is finite whatever the program is given."""
    if isinstance(expression, Number):
        return isfinite(expression.value)
    if isinstance(expression, Access):
        numbers = expression.array.numbers
        return expression.array in masks or (numbers is not None and bool(np.isfinite(numbers).all()))
    if not isinstance(expression, Apply) or expression.op not in FINITE:
        return False
    return all(_is_finite(operand, masks) for operand in expression.operands)
