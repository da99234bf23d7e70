"""Differentiation of an array program: the same chain rule, one whole statement at a time.

The statement `out = f(x, …)` in some loops gives `dx += dout · ∂f/∂x` in the same loops. Contributions are summed over
a loop that does not move x, so it becomes a reduction, and the transposed products of a layer's backward pass come out
by themselves. A `Repeat` gives a `Repeat` in which time runs backward.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from math import prod

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.lifetimes import without_lifetimes
from chainrule.compiler.passes.program import (
    NOTHING,
    Access,
    Apply,
    Array,
    ArrayProgram,
    Expression,
    Number,
    Repeat,
    Shape,
    Statement,
    Term,
    changed,
    counterparts,
    dependents,
    is_injective,
    unmasked,
)
from chainrule.compiler.passes.reach import choosing, chosen, only_where_reached

DERIVATIVES = ("adjoint", "tangent")  # kinds of arrays
LEAST_REAL = 0.25  # of the terms of ragged sums: fewer are gathered, which takes tables


def differentiate(program: ArrayProgram, seed: float = 1.0) -> ArrayProgram:
    """`program`, followed by statements for the derivative of `seed` times its output by every parameter.

    Of derivatives that the program itself computes, some elements may lead nowhere, because nobody asked for them. All
    other arrays have only what leads on.
    """
    parameters = program.leaves.get("parameter")
    backward, adjoints = pulled_back(program.steps, [parameters] if parameters else [], [program.output])
    begun: list[Statement | Repeat] = []
    if program.output in adjoints:
        first = Access(adjoints[program.output], 0, ())
        begun.append(Statement(first, (), [Term(Number(seed))]))
        if any(statement.target.array.kind in DERIVATIVES for statement in program.statements):
            backward = only_where_reached([first], backward, adjoints.values())
    forward = changed(program.steps, without_lifetimes)
    result = ArrayProgram([*forward, *begun, *backward], program.leaves, program.output)
    result.gradient = adjoints.get(parameters) if parameters else None
    return result


def pulled_back(
    steps: Sequence[Statement | Repeat], sources: Sequence[Array], outputs: Sequence[Array]
) -> tuple[list[Statement | Repeat], dict[Array, Array]]:
    """Statements that compute the adjoints of the `sources`, once those of the `outputs` are set; and all adjoints.

    An adjoint has the derivatives with respect to the elements of an array. Every array that depends on a source has
    one; where no output depends on it, it is set only if the array is a source.
    """
    statements = [statement for step in steps for statement in step.body]
    adjoints = counterparts(dependents(statements, sources, differentiable), "d", "adjoint", statements)
    backward: list[Statement | Repeat] = []
    started = {adjoints[array] for array in outputs if array in adjoints}
    for step in reversed(steps):
        if isinstance(step, Repeat):
            backward += _backward_in_time(step, adjoints, started)
        elif adjoints.get(step.target.array) in started:
            for contribution in _contributions(step, adjoints):
                backward += _begin(contribution, started)
                backward.append(contribution)
    backward += [zero(adjoints[array]) for array in sources if adjoints[array] not in started]
    return backward, adjoints


def differentiable(statement: Statement) -> Iterator[Access]:
    """The elements that a statement passes a gradient to."""
    for term in statement.terms if statement.join is ops.add else ():
        _, expression = unmasked(term.expression)
        yield from _led_to(expression)


def _led_to(expression: Expression) -> Iterator[Access]:
    """The elements that an expression passes a gradient to."""
    if isinstance(expression, Access):
        yield expression
    elif isinstance(expression, Apply):
        for operand, partial in zip(expression.operands, expression.op.partials, strict=False):
            if partial is not None:
                yield from _led_to(operand)


def _backward_in_time(step: Repeat, adjoints: dict[Array, Array], started: set[Array]) -> list[Statement | Repeat]:
    """The Repeat of the contributions, after zeros for the adjoints that it is the first to add to."""
    body: list[Statement] = []
    reached = set(started)
    before = -1
    while len(reached) != before:  # again, because each time passes on what later times reached
        before = len(reached)
        body = []
        for statement in reversed(step.body):
            if adjoints.get(statement.target.array) in reached:
                body += _contributions(statement, adjoints)
                reached |= {contribution.target.array for contribution in body}
    if not body:
        return []
    zeros: list[Statement | Repeat] = []
    for array in dict.fromkeys(contribution.target.array for contribution in body):
        if array not in started:
            started.add(array)
            own = [contribution for contribution in body if contribution.target.array is array]
            if _fills_rows(own, step.count):
                own[0].accumulate = False
            else:
                zeros.append(zero(array))
    return [*zeros, Repeat(step.count, body, backward=not step.backward)]


def _fills_rows(contributions: Sequence[Statement], count: int) -> bool:
    """Whether at each time the first contribution writes a whole row of the array, and the others add to that row."""
    first = contributions[0]
    target, size = first.target, first.target.repeat
    same_row = all(c.target.table is None and (c.target.base, c.target.repeat) == (0, size) for c in contributions)
    whole = is_injective(first) and prod(first.loops) == size and size * count == target.array.size
    return same_row and whole and all(_reach(contribution) < size for contribution in contributions)


def _reach(statement: Statement) -> int:
    """How far from its base a target reaches at one time."""
    return sum(abs(stride) * (n - 1) for stride, n in zip(statement.target.strides, statement.loops, strict=True))


def _contributions(statement: Statement, adjoints: dict[Array, Array]) -> list[Statement]:
    """What the adjoint of a statement's target adds to the adjoints of the arrays that it reads."""
    found: list[Statement] = []
    if statement.join is not ops.add:  # no gradient passes through the largest of many
        return found
    target = statement.target
    grad = Access(adjoints[target.array], target.base, target.strides, target.table, target.repeat)
    for term in statement.terms:
        upstream = grad.widened(len(term.loops))
        mask, expression = unmasked(term.expression)
        reached, expression = choosing(expression)
        for operand, slope in slopes(expression, result_of(statement, term), adjoints):
            value, loops = chosen(reached, times(upstream, slope)), statement.loops + term.loops
            if mask is not None:
                value, operand, loops = _masked(value, operand, mask, loops)
            found.append(_accumulate(operand, adjoints, value, loops, term.sign))
    return found


def result_of(statement: Statement, term: Term) -> Access | None:
    """Where the number of a term's expression lies, if it is all that the statement stores."""
    alone = len(statement.terms) == 1 and not term.loops and term.sign > 0 and not statement.accumulate
    return statement.target if alone else None


def slopes(expression: Expression, out: Access | None, arrays: Container[Array]) -> Iterator[tuple[Access, Expression]]:
    """The elements of these arrays that an expression reads, each with the derivative with respect to it.

    `out` is where the expression's number lies, if it does; what a rule wants to know of the result is then read there.
    """
    if isinstance(expression, Access) and expression.array in arrays:
        yield expression, Number(1.0)
    elif isinstance(expression, Apply):
        for k, operand in enumerate(expression.operands):
            inside = list(slopes(operand, None, arrays))
            partial = _partial(expression, k, out) if inside else None
            if partial is not None:
                yield from ((access, times(partial, slope)) for access, slope in inside)


def _masked(value: Expression, operand: Access, mask: Access, loops: Shape) -> tuple[Expression, Access, Shape]:
    """The same for a ragged sum: over its real terms, or masked if enough are real and none is found by a table."""
    real = np.count_nonzero(mask.array.numbers[mask.positions(loops)])
    affine = all(access.table is None for access in (operand, *value.accesses()))
    if mask.repeat or (affine and real >= LEAST_REAL * prod(loops)):
        return Apply(ops.where, (mask, value, Number(NOTHING))), operand, loops
    return _unfilled(value, operand, mask, loops)


def _unfilled(value: Expression, operand: Access, mask: Access, loops: Shape) -> tuple[Expression, Access, Shape]:
    """The same in one loop over the real terms of a ragged sum."""
    real = mask.array.numbers[mask.positions(loops)] != 0.0

    def change(access: Access) -> Access:
        return Access(access.array, 0, (1,), access.positions(loops)[real], access.repeat)

    return value.map(change), change(operand), (int(real.sum()),)


def _partial(expression: Apply, k: int, out: Access | None) -> Expression | None:
    rule = expression.op.partials[k]
    if rule is None:
        return None
    partial = rule(out or expression, *expression.operands)
    return partial if isinstance(partial, Expression) else Number(float(partial))


def times(upstream: Expression, partial: Expression) -> Expression:
    """The product, without an op for factors 1 and -1."""
    for one, other in ((partial, upstream), (upstream, partial)):
        if isinstance(one, Number) and abs(one.value) == 1.0:
            return other if one.value > 0 else -other
    return Apply(ops.mul, (upstream, partial))


def _accumulate(operand: Access, adjoints: dict[Array, Array], value: Expression, loops: Shape, sign: int) -> Statement:
    """`d operand += value` in `loops`, where those that do not move the operand become reductions."""
    moving = [d for d, stride in enumerate(operand.strides) if stride or operand.table is not None]
    still = [d for d in range(len(loops)) if d not in moving]
    order = moving + still

    def permuted(access: Access) -> Access:
        return access.with_strides([access.strides[d] for d in order])

    strides = [operand.strides[d] for d in moving]
    target = Access(adjoints[operand.array], operand.base, strides, operand.table, operand.repeat)
    term = Term(value.map(permuted), tuple(loops[d] for d in still), sign)
    return Statement(target, tuple(loops[d] for d in moving), [term], accumulate=True)


def _begin(contribution: Statement, started: set[Array]) -> list[Statement]:
    """Zeros for an array's first contribution, unless that covers the array and so can store instead of add."""
    array = contribution.target.array
    if array in started:
        return []
    started.add(array)
    if is_injective(contribution) and prod(contribution.loops) == array.size:
        contribution.accumulate = False
        return []
    return [zero(array)]


def zero(array: Array) -> Statement:
    """Zeros in all elements."""
    return Statement(Access(array, 0, (1,)), (array.size,), [Term(Number(0.0))])


def is_zero(statement: Statement) -> bool:
    """Whether a statement is that of `zero`."""
    target, loops = statement.target, (statement.target.array.size,)
    whole = statement.loops == loops and (target.base, target.strides, target.repeat) == (0, (1,), 0)
    numbers = [term.expression for term in statement.terms if isinstance(term.expression, Number)]
    alone = len(statement.terms) == len(numbers) == 1 and numbers[0].value == 0.0
    return whole and alone and target.table is None and not statement.accumulate
