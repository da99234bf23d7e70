"""Loops in time become shorter: a statement that no time passes on to another leaves its Repeat.

repeat r<99:                              i<4,r<99: a[4r+i] = Σj<4 w[4i+j]·x[4r+j]
  i<4: a[4r+i] = Σj<4 w[4i+j]·x[4r+j]     repeat r<99:
  i<4: h[4+4r+i] = tanh(a[4r+i] + h[4r+i])  i<4: h[4+4r+i] = tanh(a[4r+i] + h[4r+i])
  s[0] += Σi<4 h[4+4r+i]                  s[0] += Σr<99 Σi<4 h[4+4r+i]

What reads nothing that the Repeat writes goes before it, and what nothing in the Repeat reads goes after it, for all
times at once. So the gradient of a recurrent layer's weights is one matrix product instead of a small one per time.
Sums over time are formed in another order than in the Repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.program import (
    Access,
    Array,
    ArrayProgram,
    Repeat,
    Shape,
    Statement,
    Term,
    is_injective,
    span,
)

MOST_POSITIONS = 2**20  # in a table for all times
STORE = 8  # numbers to compute that cost as much as storing a row of one more array at each time


Wanted = Callable[[Statement], bool]


def distribute(program: ArrayProgram, wanted: Wanted = lambda statement: True) -> ArrayProgram:
    """The same program, with little in its Repeats: what may leave them and is `wanted` outside does."""
    steps: list[Statement | Repeat] = []
    written: set[Array] = set(program.leaves.values())
    for place, step in enumerate(program.steps):
        if isinstance(step, Repeat):
            before, body = _movable_before(step, written, wanted)
            read_later = {a.array for later in program.steps[place + 1 :] for s in later.body for a in s.accesses()}
            body, after = _movable_after(step, body, {*read_later, *program.results}, wanted)
            steps += [*before, *([step.with_body(body)] if body else []), *after]
        else:
            steps.append(step)
        written |= {statement.target.array for statement in step.body}
    return program.with_steps(steps)


def _movable_before(step: Repeat, written: set[Array], wanted: Wanted) -> tuple[list[Statement], list[Statement]]:
    """Statements for all times at once, and the others. An array that they write has no numbers from elsewhere."""
    writers: dict[Array, int] = {}
    for statement in step.body:
        writers[statement.target.array] = writers.get(statement.target.array, 0) + 1
    before: list[Statement] = []
    body: list[Statement] = []
    for statement in step.body:
        array = statement.target.array
        ready = not any(access.array in writers for access in statement.accesses())
        fresh = writers[array] == 1 and array not in written and not statement.accumulate
        at_once = _at_all_times(statement, step.count) if ready and fresh and wanted(statement) else None
        if at_once is None:
            body.append(statement)
        else:
            before.append(at_once)
            del writers[array]
    return before, body


def _movable_after(
    step: Repeat, body: Sequence[Statement], stored: set[Array], wanted: Wanted
) -> tuple[list[Statement], list[Statement]]:
    """What stays, and statements for all times at once, if they do more than it costs to store what they read.

    The rows of all times of the arrays `stored` are read after the Repeat anyway.
    """
    going, stored = _worth_going(step, body, stored, wanted)
    stay = [statement for statement in body if statement not in going]
    at_once = [_at_all_times(statement, step.count) for statement in body if statement in going]
    after = [statement for statement in at_once if statement is not None]
    assert len(after) == len(at_once), "a statement that can go after the Repeat has a form for all times"
    before = -1
    while len(after) != before:  # again, because what one statement reads is stored for all
        before = len(after)
        for statement in reversed(stay):
            others = [other for other in stay if other is not statement]
            to_store = _computed_for([statement], others) - stored
            pays = wanted(statement) and _work(statement) >= STORE * len(to_store)
            found = _afterwards(statement, stay, step) if pays else None
            if found is not None:
                stay = others
                after.insert(0, found)  # those that went before may read it, and it reads none of them
                stored = stored | to_store
    return stay, after


def _worth_going(
    step: Repeat, body: Sequence[Statement], stored: set[Array], wanted: Wanted
) -> tuple[list[Statement], set[Array]]:
    """The groups that do more than it costs to store what they read; and what is then stored."""
    going: list[Statement] = []
    for group in _groups(step, body, wanted):
        to_store = _computed_for(group, [other for other in body if other not in group]) - stored
        if sum(map(_work, group)) >= STORE * len(to_store):
            going += group
            stored = stored | to_store
    return going, stored


def _groups(step: Repeat, body: Sequence[Statement], wanted: Wanted) -> list[list[Statement]]:
    """What is `wanted` after the Repeat and can be computed there, in groups that do not need each other."""
    stay, movable = list(body), list[Statement]()
    before = -1
    while len(movable) != before:  # again, because what one statement needed may be free to go without it
        before = len(movable)
        for statement in reversed(stay):
            if wanted(statement) and _afterwards(statement, stay, step) is not None:
                stay = [other for other in stay if other is not statement]
                movable.append(statement)
    groups: list[list[Statement]] = []
    for statement in movable:
        linked = [group for group in groups if any(_are_linked(statement, other) for other in group)]
        groups = [group for group in groups if group not in linked]
        groups.append([statement, *(other for group in linked for other in group)])
    return groups


def _are_linked(one: Statement, other: Statement) -> bool:
    """Whether they write the same array, or one reads what the other writes."""
    pairs = (one, other), (other, one)
    return any(b.target.array is a.target.array or _reads(b, a.target.array) for a, b in pairs)


def _reads(statement: Statement, array: Array) -> bool:
    return any(access.array is array for access in statement.accesses())


def _computed_for(readers: Iterable[Statement], writers: Iterable[Statement]) -> set[Array]:
    """The arrays that some statements write and others read."""
    written = {statement.target.array for statement in writers}
    return {access.array for statement in readers for access in statement.accesses() if access.array in written}


def _work(statement: Statement) -> int:
    """How many numbers it computes at each time."""
    return prod(statement.loops) * sum(prod(term.loops) for term in statement.terms)


def _afterwards(statement: Statement, body: Sequence[Statement], step: Repeat) -> Statement | None:
    """The statement for all times at once, if it can be computed after the Repeat."""
    if _is_used(statement, body) or not _finds_the_same_later(statement, body, step):
        return None
    return _at_all_times(statement, step.count)


def _is_used(statement: Statement, others: Iterable[Statement]) -> bool:
    """Whether what it writes is read at this time or another, or written by others that do not just add to it."""
    array = statement.target.array
    readers = [other for other in others if _reads(other, array)]
    writers = [other for other in others if other.target.array is array]
    return bool(readers) or (len(writers) > 1 and not all(writer.accumulate for writer in writers))


def _finds_the_same_later(statement: Statement, body: Sequence[Statement], step: Repeat) -> bool:
    """Whether nothing that it reads is written after it, at the same time or a later one."""
    place = body.index(statement)
    reads = list(statement.accesses_in_loops())[1:]
    return all(
        _is_over(access, loops, other, step, later=k > place)
        for access, loops in reads
        for k, other in enumerate(body)
        if other.target.array is access.array and other is not statement
    )


def _is_over(access: Access, loops: Shape, writer: Statement, step: Repeat, later: bool) -> bool:
    """Whether what is read is not written in the turns that follow; nor in this one, if the writer comes `later`."""
    way = access.repeat
    if not way or writer.target.repeat != way:
        return False
    low, high = span(access, loops)
    first, end = span(writer.target, writer.loops)
    ahead = 0 if later else abs(way)
    return high <= first + ahead if (way > 0) != step.backward else low >= end - ahead


def _at_all_times(statement: Statement, count: int) -> Statement | None:
    """The statement with time as its first loop, or as one to sum over; None if times overwrite each other."""
    target = statement.target
    tables = [access.table for access in (target, *statement.accesses()) if access.table is not None and access.repeat]
    if any(count * len(table) > MOST_POSITIONS for table in tables):
        return None
    if target.repeat:
        found = statement.map(lambda access: _with_time(access, 0, count))
        found = Statement(found.target, (count, *found.loops), found.terms, found.accumulate, found.join)
        return found if is_injective(found) else None
    if not statement.accumulate or statement.join is not ops.add:
        return None
    place = len(statement.loops)
    terms = [
        Term(term.expression.map(lambda access: _with_time(access, place, count)), (count, *term.loops), term.sign)
        for term in statement.terms
    ]
    return statement.with_terms(terms)


def _with_time(access: Access, place: int, count: int) -> Access:
    """The same element, with time as a loop at this place."""
    stride, table = access.repeat, access.table
    if stride and table is not None:
        stride, table = len(table), np.add.outer(stride * np.arange(count), table).ravel()
    return Access(access.array, access.base, (*access.strides[:place], stride, *access.strides[place:]), table)
