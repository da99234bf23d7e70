"""Distinct elements: what is computed again and again from the same elements, through a table, is computed once.

A filter's weight may be written `w[k] - 0.5` inside of the loops over all pixels: then each pixel has its own.

i<9800: v0[i] = parameter[table[i]] - 0.5          i<18: v0[i] = parameter[i] - 0.5
Where all weights of a pixel are read as one sum, v0 is then read by a table or, once that is aligned, by none.

Equal elements that need no table are left alone: a loop over them costs little, and to look them up might need one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from chainrule.compiler.passes.program import (
    Access,
    Array,
    ArrayProgram,
    Repeat,
    Shape,
    Statement,
    Term,
    is_injective,
    row_major,
)
from chainrule.compiler.passes.regular import regular, tables

MOST = 0.75  # of the elements, that may be distinct

Step = Statement | Repeat


def with_distinct_elements(program: ArrayProgram) -> ArrayProgram:
    """The same program, with one element in the place of equal ones, where no more accesses need tables then."""
    kept = {*program.leaves.values(), *program.results}
    writers = Counter(statement.target.array for statement in program.statements)
    steps: list[Step] = list(program.steps)
    readers: dict[Array, dict[int, None]] = defaultdict(dict)
    for k, step in enumerate(steps):
        for statement in step.body:
            for access in statement.accesses():
                readers[access.array][k] = None
    for k in range(len(steps)):
        step = steps[k]
        if isinstance(step, Statement) and writers[step.target.array] == 1 and step.target.array not in kept:
            users = readers[step.target.array]
            if changed := _changed(step, [steps[j] for j in users]):
                for j, other in zip([k, *users], changed, strict=True):
                    steps[j] = other
    return program.with_steps(steps)


def _changed(statement: Statement, users: Sequence[Step]) -> list[Step] | None:
    """The statement for distinct elements, and the steps that read its target; None if that is no better."""
    array = statement.target.array
    found = _distinct(statement) if _may_have_equal(statement) and not _moves(array, users) else None
    if found is None:
        return None
    first, inverse = found
    once = Array(array.name, len(first), array.kind)
    where = np.zeros(array.size, dtype=np.int64)
    where[statement.target.positions(statement.loops).reshape(-1)] = inverse
    changed: list[Step] = [regular(_chosen(statement, first, once))]
    for step in users:
        body = [regular(_reading(user, array, once, where)) for user in step.body]
        changed.append(step.with_body(body) if isinstance(step, Repeat) else body[0])
    return changed if _tables(changed) <= _tables([statement, *users]) else None


def _may_have_equal(statement: Statement) -> bool:
    """Whether a statement goes through a table, and computes each element by itself, at once."""
    still = not any(access.repeat for access, _ in statement.accesses_in_loops())
    by_itself = not statement.accumulate and is_injective(statement) and not statement.target.array.examples
    return still and by_itself and not statement.affine


def _moves(array: Array, steps: Sequence[Step]) -> bool:
    """Whether a loop in time reads the array at other places at each time."""
    return any(a.array is array and a.repeat for step in steps for user in step.body for a in user.accesses())


def _tables(steps: Sequence[Step]) -> int:
    return sum([tables(statement) for step in steps for statement in step.body])


def _distinct(statement: Statement) -> tuple[np.ndarray, np.ndarray] | None:
    """The turns that are the first with what they read, in the order of that, and for each turn its place in these.

    None if there are too many of them.
    """
    count = prod(statement.loops)
    inverse, first = np.zeros(count, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for access, loops in list(statement.accesses_in_loops())[1:]:
        places = access.positions(loops)
        numbers = access.array.numbers
        keys = places if numbers is None else np.asarray(numbers, dtype=np.float64).view(np.int64)[places]
        for column in keys.reshape(count, -1).T:
            _, of = np.unique(column, return_inverse=True)
            _, first, inverse = np.unique(inverse * count + of, return_index=True, return_inverse=True)
            if len(first) > MOST * count:
                return None
    return first, inverse


def _chosen(statement: Statement, turns: np.ndarray, once: Array) -> Statement:
    """The statement for some of its turns, which fills an array with their elements."""
    count = len(turns)

    def change(access: Access, inner: Shape) -> Access:
        places = access.positions(statement.loops + inner).reshape(-1, prod(inner))[turns]
        return Access(access.array, 0, row_major((count, *inner)), places.reshape(-1))

    terms = [
        Term(term.expression.map(partial(change, inner=term.loops)), term.loops, term.sign) for term in statement.terms
    ]
    return Statement(Access(once, 0, (1,)), (count,), terms, join=statement.join)


def _reading(user: Statement, array: Array, once: Array, where: np.ndarray) -> Statement:
    """A statement that reads the array of distinct elements."""
    if not any(access.array is array for access in user.accesses()):
        return user

    def change(access: Access, loops: Shape) -> Access:
        if access.array is not array:
            return access
        return Access(once, 0, row_major(loops), where[access.positions(loops)].reshape(-1))

    return user.with_terms(
        [Term(t.expression.map(partial(change, loops=user.loops + t.loops)), t.loops, t.sign) for t in user.terms]
    )
