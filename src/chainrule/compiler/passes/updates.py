"""Updates: an optimizer's rule goes along with the gradient that it needs, not through all parameters at the end.

i<64,j<16: dparameter[16i+j] = Σk<16 dv3[16i+k]·v2[16j+k]
i<64,j<16: parameter[16i+j] = parameter[16i+j] - 0.1·(dparameter[16i+j] / (sqrt(v[16i+j])))

Adam waits for the processor's divider, and products wait for its multipliers. In one pass over memory it does both at
once. A parameter is changed when nothing reads it any more, so its gradient may have to come later than it did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.program import (
    Access,
    Apply,
    Array,
    ArrayProgram,
    Expression,
    Repeat,
    Shape,
    Statement,
    is_injective,
    span,
)

SLOW = (ops.div, ops.sqrt)
LARGE = 4096  # parameters that are better not read from memory again
MOST = 8  # runs of parameters that are left for the end

Step = Statement | Repeat


def with_updates_along(program: ArrayProgram) -> ArrayProgram:
    """The program with the rule on parameters right after the last statement of their gradient, where that pays."""
    rule, gradient = _rule(program), program.gradient
    if not rule or gradient is None:
        return program
    body = program.steps[: -len(rule)]
    chosen = _chosen(body, rule, gradient)
    rest = _runs(_last_writers(body, gradient), chosen)
    if not chosen or len(rest) > MOST:
        return program
    after: dict[int, list[Statement]] = defaultdict(list)  # what follows a step
    for k, place in chosen.items():
        for statement in body[k].body:
            after[place] += [statement, *_on_elements(rule, statement.target, statement.loops)]
    steps = [each for k, step in enumerate(body) for each in ([] if k in chosen else [step]) + after[k]]
    for start, stop in rest:
        steps += _on_elements(rule, Access(gradient, start, (1,)), (stop - start,))
    found = ArrayProgram(steps, program.leaves, program.output)
    found.gradient = gradient
    return found


def _rule(program: ArrayProgram) -> list[Statement]:
    """The statements at the end that change leaves, element by element, and alone read the gradient."""
    found: list[Statement] = []
    for step in reversed(program.steps):
        if not isinstance(step, Statement) or not _is_elementwise(step, program):
            break
        found.insert(0, step)
    others = program.statements[: len(program.statements) - len(found)]
    needed = any(access.array is program.gradient for statement in others for access in statement.accesses())
    return [] if needed else found


def _is_elementwise(statement: Statement, program: ArrayProgram) -> bool:
    """Whether each turn changes its element of a leaf, by elements of its number and by what is the same for all."""
    target, gradient = statement.target, program.gradient
    if gradient is None or target.array is gradient or target.array not in program.leaves.values():
        return False
    moving = [access for access in (target, *statement.accesses()) if access.strides != (0,)]
    own = all((a.base, a.strides, a.repeat) == (0, (1,), 0) and a.table is None for a in moving)
    simple = not statement.accumulate and not any(term.loops for term in statement.terms)
    return own and simple and statement.loops == (gradient.size,)


def _chosen(body: Sequence[Step], rule: Sequence[Statement], gradient: Array) -> dict[int, int]:
    """The statements that the rule goes along with, and the steps after which they come then; none if none pays."""
    last, changed = _last_writers(body, gradient), {statement.target.array for statement in rule}
    slow = any(_is_slow(term.expression) for statement in rule for term in statement.terms)
    found: dict[int, int] = {}
    for k, step in enumerate(body):
        if isinstance(step, Statement) and step.target.array is gradient:
            alone = step.target.table is None and is_injective(step)
            if alone and (last[step.target.positions(step.loops)] == k).all():
                place = _after_readers(body, k, changed)
                found |= {k: place} if _may_move(body, k, place, changed) else {}
    return found if any(_pays(statement, slow) for k in found for statement in body[k].body) else {}


def _last_writers(body: Sequence[Step], gradient: Array) -> np.ndarray:
    """The last step that writes each element of the gradient."""
    last = np.full(gradient.size, -1)
    for k, step in enumerate(body):
        for statement in step.body:
            if statement.target.array is gradient:
                for time in step.times if statement.target.repeat else (0,):
                    last[statement.target.positions(statement.loops, time)] = k
    return last


def _after_readers(body: Sequence[Step], k: int, changed: set[Array]) -> int:
    """The step after which none reads what the rule changes, if it goes along with statement k."""
    (own,) = body[k].body
    low, high = span(own.target, own.loops)
    place = k
    for later in range(k + 1, len(body)):
        for statement in body[later].body:
            pairs = [pair for pair in statement.accesses_in_loops() if pair[0].array in changed]
            touched = [span(*pair, body[later].count) for pair in pairs]
            if any(start < high and low < stop for start, stop in touched):
                place = later
    while k < place < len(body) - 1 and not any(term.loops for s in body[place + 1].body for term in s.terms):
        place += 1  # what is element by element goes along with the statement before it
    return place


def _may_move(body: Sequence[Step], k: int, place: int, changed: set[Array]) -> bool:
    """Whether statement k may come after a later step: nothing that it reads is another then."""
    read = {access.array for statement in body[k].body for access in statement.accesses()}
    written = {statement.target.array for step in body[k + 1 : place + 1] for statement in step.body}
    return k == place or read.isdisjoint(written | changed)


def _pays(statement: Statement, slow: bool) -> bool:
    """Whether the rule is better computed along with a statement than by itself."""
    return (slow and any(term.loops for term in statement.terms)) or prod(statement.loops) >= LARGE


def _is_slow(expression: Expression) -> bool:
    """Whether it divides, or takes a root."""
    return isinstance(expression, Apply) and (expression.op in SLOW or any(map(_is_slow, expression.operands)))


def _on_elements(rule: Sequence[Statement], target: Access, loops: Shape) -> list[Statement]:
    """The rule on those elements that a target in these loops has."""

    def change(access: Access) -> Access:
        if access.strides == (0,):
            return access.with_strides((0,) * len(loops))
        return Access(access.array, target.base, target.strides)

    found = [update.map(change) for update in rule]
    for update in found:
        update.loops = loops
    return found


def _runs(last: np.ndarray, chosen: Mapping[int, int]) -> list[tuple[int, int]]:
    """Where neighbouring elements begin and end whose last writers are not among the chosen ones.

    >>> _runs(np.array([3, 3, 1, 1, 2]), {1: 1})
    [(0, 2), (4, 5)]
    """
    left = ~np.isin(last, list(chosen))
    edges = np.flatnonzero(np.diff(left, prepend=False, append=False))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
