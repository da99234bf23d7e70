"""Tidying a program that was put together from parts: no copies of whole arrays, no results that nobody reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod

import numpy as np

from chainrule.compiler.passes.program import (
    Access,
    Apply,
    Array,
    ArrayProgram,
    Repeat,
    Statement,
    row_major,
    unused_name,
)
from chainrule.core.deferred import STAND_IN


def tidied(program: ArrayProgram) -> ArrayProgram:
    """The same program without such statements, and with a name of its own for each array."""
    return _with_own_names(_without_unread(_without_copies(program)))


def _without_copies(program: ArrayProgram) -> ArrayProgram:
    """What is read from a copy is read from where it came from."""
    writers = Counter(statement.target.array for statement in program.statements)
    sources: dict[Array, tuple[Access, int]] = {}  # a copy -> its first element's source, and the step to the next

    def change(access: Access) -> Access:
        if access.array not in sources:
            return access
        first, step = sources[access.array]
        if access.table is not None:
            table = first.base + step * np.asarray(access.table)
            return Access(first.array, access.base, access.strides, table, step * access.repeat)
        strides = [step * stride for stride in access.strides]
        return Access(first.array, first.base + step * access.base, strides, None, step * access.repeat)

    def note(statement: Statement) -> Statement:
        statement = statement.map(change)
        array = statement.target.array
        if array is not program.output and writers[array] == 1 and (source := _copied(statement)):
            sources[array] = source
        return statement

    steps = [
        step.with_body([s.map(change) for s in step.body]) if isinstance(step, Repeat) else note(step)
        for step in program.steps
    ]
    return ArrayProgram(steps, program.leaves, program.output)


def _copied(statement: Statement) -> tuple[Access, int] | None:
    """Where a statement that fills its target with a copy has it from."""
    target, term = statement.target, statement.terms[0]
    source = term.expression
    if isinstance(source, Apply) and source.op is STAND_IN:
        source = source.operands[0]
    alone = len(statement.terms) == 1 and not term.loops and term.sign > 0 and not statement.accumulate
    if not (alone and isinstance(source, Access) and source.table is None and target.table is None):
        return None
    if prod(statement.loops) != target.array.size or target.strides != row_major(statement.loops):
        return None
    step = source.strides[-1] if source.strides else 1
    return (source, step) if source.strides == tuple([step * stride for stride in target.strides]) else None


def _without_unread(program: ArrayProgram) -> ArrayProgram:
    """Statements for arrays that the output does not depend on are left out."""
    read, before = {program.output}, -1
    while len(read) != before:  # again, because a Repeat reads what it writes later
        before = len(read)
        for statement in reversed(program.statements):
            if statement.target.array in read:
                read.update(access.array for access in statement.accesses())
    return ArrayProgram(list(_kept(program, read)), program.leaves, program.output)


def _kept(program: ArrayProgram, read: set[Array]) -> Iterator[Statement | Repeat]:
    for step in program.steps:
        body = [statement for statement in step.body if statement.target.array in read]
        if body:
            yield step.with_body(body) if isinstance(step, Repeat) else step


def _with_own_names(program: ArrayProgram) -> ArrayProgram:
    """Parts may have used the same names."""
    taken: set[str] = set()
    arrays: dict[Array, Array] = {}
    for array in program.arrays():
        if (name := unused_name(array.name, taken)) != array.name:
            arrays[array] = Array(name, array.size, array.kind, array.numbers)
    return program.with_arrays(arrays)
