"""Forward mode on an array program: how its arrays change as some of them change in a given direction.

The statement `out = f(x, …)` in some loops gives `tout = Σ ∂f/∂x · tx` in the same loops, `+=` gives `+=`, and a
`Repeat` a `Repeat` in the same order of time. After a program and its gradient this is the Hessian times a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chainrule import ops
from chainrule.compiler.passes.differentiate import differentiable, result_of, slopes, times
from chainrule.compiler.passes.program import (
    NOTHING,
    Access,
    Apply,
    Array,
    Number,
    Repeat,
    Statement,
    Term,
    counterparts,
    dependents,
    unmasked,
)
from chainrule.compiler.passes.reach import choosing, chosen

Tangents = dict[Array, Array]


def pushed_forward(
    steps: Sequence[Statement | Repeat], sources: Sequence[Array]
) -> tuple[list[Statement | Repeat], Tangents]:
    """Statements that compute the tangents of what depends on the `sources`, once theirs are set; and all tangents."""
    statements = [statement for step in steps for statement in step.body]
    tangents = counterparts(dependents(statements, sources, differentiable), "t", "tangent", statements)
    forward: list[Statement | Repeat] = []
    for step in steps:
        body = [pushed for statement in step.body for pushed in _pushed(statement, tangents, sources)]
        if body:
            forward += [step.with_body(body)] if isinstance(step, Repeat) else body
    return forward, tangents


def _pushed(statement: Statement, tangents: Tangents, sources: Sequence[Array]) -> Iterator[Statement]:
    """The statement for the tangents of what a statement stores, if they are not known already."""
    target = statement.target
    if target.array not in tangents:
        return
    terms = [change for term in statement.terms for change in _changes(statement, term, tangents)]
    adds = statement.accumulate or target.array in sources  # a source has its tangent, and may depend on others
    if terms or not adds:
        change = Access(tangents[target.array], target.base, target.strides, target.table, target.repeat)
        yield Statement(change, statement.loops, terms or [Term(Number(0.0))], adds)


def _changes(statement: Statement, term: Term, tangents: Tangents) -> Iterator[Term]:
    """The change of a term: a term for each element in it that changes."""
    mask, expression = unmasked(term.expression)
    reached, expression = choosing(expression)
    for access, slope in slopes(expression, result_of(statement, term), tangents) if statement.join is ops.add else ():
        tangent = Access(tangents[access.array], access.base, access.strides, access.table, access.repeat)
        change = chosen(reached, times(tangent, slope))
        if mask is not None:
            change = Apply(ops.where, (mask, change, Number(NOTHING)))
        yield Term(change, term.loops, term.sign)
