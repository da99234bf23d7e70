"""Reach: which derivatives there are at all, so that no infinite slope makes a number of those that there are not.

Arrays are differentiated whole. But a seed may be 0 but for one element, as in each direction of a Jacobian, and some
numbers of an array may have nothing to do with the output. There the derivative is 0, because no path leads there; and
0 times an infinite slope would be NaN. So where paths lead is found beforehand, and a product with a slope that may be
infinite is chosen by it: `where(reached, derivative · slope, 0)`. When that is differentiated once more, its
derivatives are chosen by the same mask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from math import isfinite, prod
from operator import and_
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.program import (
    NOTHING,
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
    is_injective,
    unmasked,
)

MOST_WORK = 2**26  # elements, to follow paths through
MOST_TURNS = 2**17  # statements, at all times
CONDITIONS = (ops.lt, ops.le, ops.gt, ops.ge, ops.eq, ops.ne)
FINITE = (ops.add, ops.sub, ops.mul, ops.neg, ops.where, *CONDITIONS)  # for operands that are finite

KIND = "reached"  # of masks

Reached = dict[Array, np.ndarray]
Step = Statement | Repeat


def only_where_reached(seeds: Iterable[Access], steps: Sequence[Step], derivatives: Collection[Array]) -> list[Step]:
    """The steps that compute derivatives from these seeds, with the products that need it chosen.

    A seed counts as one whatever its number is: 0 times an infinite slope is NaN if somebody asked for 0.
    """
    if _takes_long(steps):
        return list(steps)
    reached = {array: np.zeros(array.size, dtype=bool) for array in derivatives}
    for seed in seeds:
        reached[seed.array][seed.base] = True
    for step in steps:
        body = [_Path(statement, reached) for statement in step.body]
        for time in step.times:
            for path in body:
                path.follow(time)
    masks = {
        array: Array(f"{array.name}_is", array.size, KIND, found.astype(np.float64))
        for array, found in reached.items()
        if not found.all()
    }
    return changed(steps, lambda statement: _in_terms(statement, masks))


def choosing(expression: Expression) -> tuple[list[Access], Expression]:
    """The masks that choose a product, and the product."""
    masks: list[Access] = []
    while isinstance(expression, Apply) and expression.op is ops.where:
        mask, product, _ = expression.operands
        if not isinstance(mask, Access) or mask.array.kind != KIND:
            break
        masks.append(mask)
        expression = product
    return masks, expression


def chosen(masks: Iterable[Access], product: Expression) -> Expression:
    """The product where all masks say that it is reached, and 0 elsewhere."""
    for mask in masks:
        product = Apply(ops.where, (mask, product, Number(0.0)))
    return product


def _takes_long(steps: Sequence[Step]) -> bool:
    """Whether there are too many elements or statements to follow paths through."""
    every = [(step.count, statement) for step in steps for statement in step.body]
    work = sum([prod(each.loops + term.loops) * count for count, each in every for term in each.terms])
    return work > MOST_WORK or sum([count for count, _ in every]) > MOST_TURNS


class _Path:
    """What a statement reaches. Where it reads and writes at later times is seen from the first."""

    def __init__(self, statement: Statement, reached: Reached) -> None:
        self.statement, self.reached = statement, reached
        self.target = statement.target.positions(statement.loops)
        self.is_injective = is_injective(statement)
        self.terms = [_Leads(term, statement.loops, reached) for term in statement.terms]

    def follow(self, time: int) -> None:
        """Note what it reaches at a time."""
        statement, loops = self.statement, self.statement.loops
        found = np.zeros(loops, dtype=bool)
        for term in self.terms:
            leads = np.broadcast_to(term.at(time), loops + term.loops)
            found |= leads.any(axis=tuple(range(len(loops), leads.ndim)))
        array, where = self.reached[statement.target.array], self.target + statement.target.repeat * time
        if not statement.accumulate:
            array[where] = found
        elif self.is_injective:
            array[where] |= found
        else:
            np.logical_or.at(array, where, found)


class _Leads:
    """Whether a path leads through a term: a derivative times a slope, masked if it is part of a ragged sum."""

    def __init__(self, term: Term, outer: Shape, reached: Reached) -> None:
        self.loops, around = term.loops, outer + term.loops
        mask, expression = unmasked(term.expression)
        masks, product = choosing(expression)
        self.always = not isinstance(product, Number) or product.value != 0.0
        sources = [access for access in product.accesses() if access.array in reached]
        self.sources = [(reached[each.array], each.positions(around), each.repeat) for each in sources]
        for each in masks if mask is None else (*masks, mask):
            self.sources.append((each.array.numbers != 0.0, each.positions(around), each.repeat))

    def at(self, time: int) -> Any:
        return reduce(and_, [array[places + repeat * time] for array, places, repeat in self.sources], self.always)


def _in_terms(statement: Statement, masks: Mapping[Array, Array]) -> Statement:
    """The statement whose terms are 0 where no path leads."""
    return statement.with_terms([_of_reached(term, masks) for term in statement.terms])


def _of_reached(term: Term, masks: Mapping[Array, Array]) -> Term:
    ragged, product = unmasked(term.expression)
    partly = [access for access in product.accesses() if access.array in masks]
    if not partly or _is_finite(product, masks):
        return term
    where = partly[0]
    expression = chosen([Access(masks[where.array], where.base, where.strides, where.table, where.repeat)], product)
    if ragged is not None:
        expression = Apply(ops.where, (ragged, expression, Number(NOTHING)))
    return Term(expression, term.loops, term.sign)


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
