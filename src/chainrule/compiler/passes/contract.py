"""Contraction: an array whose numbers are needed at one time of a loop alone has no rows for the other times.

On a GPU, such numbers can stay in a thread's registers.
"""

from __future__ import annotations

from collections import defaultdict

from chainrule.compiler.passes.differentiate import is_zero
from chainrule.compiler.passes.program import (
    NOTHING,
    Access,
    Array,
    ArrayProgram,
    Number,
    Repeat,
    Shape,
    Statement,
    Term,
    span,
)


def contracted(program: ArrayProgram) -> ArrayProgram:
    """The same program, where such arrays have one row. What was set to zero before a loop is so at each time."""
    known = {*program.leaves.values(), *program.results}
    touched: dict[Array, list[tuple[int, Access, Shape]]] = defaultdict(list)
    zeros: dict[Array, int] = {}  # the step that sets an array to zero
    for k, step in enumerate(program.steps):
        for statement in step.body:
            if isinstance(step, Statement) and is_zero(statement) and statement.target.array not in touched:
                zeros[statement.target.array] = k
            else:
                for access, loops in statement.accesses_in_loops():
                    touched[access.array].append((k, access, loops))
    rows: dict[Array, tuple[int, Array]] = {}  # where the row of an array begins at the first time, and the row
    cleared: dict[int, list[Array]] = defaultdict(list)  # by loop, what is zero when a time begins
    for array, touches in touched.items():
        loop, *others = {k for k, _, _ in touches}
        if others or array in known or array.numbers is not None or (row := _row(array, touches)) is None:
            continue
        rows[array] = row
        if array in zeros:
            cleared[loop].append(row[1])

    def change(access: Access) -> Access:
        if access.array not in rows:
            return access
        first, row = rows[access.array]
        return Access(row, access.base - first, access.strides)

    steps: list[Statement | Repeat] = []
    for k, step in enumerate(program.steps):
        if isinstance(step, Repeat):
            nothing = [_nothing(array) for array in cleared[k]]
            steps.append(step.with_body([*nothing, *(statement.map(change) for statement in step.body)]))
        elif zeros.get(step.target.array) != k or step.target.array not in rows:
            steps.append(step)
    found = ArrayProgram(steps, program.leaves, program.output)
    found.gradient = program.gradient
    return found


def _row(array: Array, touches: list[tuple[int, Access, Shape]]) -> tuple[int, Array] | None:
    """Where the row of an array begins at the first time, and the row; None if a time touches other rows."""
    moves = {access.repeat for _, access, _ in touches}
    if len(moves) > 1 or 0 in moves or any(access.table is not None for _, access, _ in touches):
        return None
    spans = [span(access, loops) for _, access, loops in touches]
    first, last = min(low for low, _ in spans), max(high for _, high in spans)
    if last - first > abs(moves.pop()):
        return None
    return first, Array(array.name, last - first, array.kind, examples=array.examples)


def _nothing(array: Array) -> Statement:
    return Statement(Access(array, 0, (1,)), (array.size,), [Term(Number(NOTHING))])
