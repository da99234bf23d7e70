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

Touched = list[tuple[int, Access, Shape]]  # accesses, with the steps that they are in and the loops around them


def contracted(program: ArrayProgram) -> ArrayProgram:
    """The same program, where such arrays have one row. What was set to zero before a loop is so at each time."""
    zeros, touched = _touched(program)
    known = {*program.leaves.values(), *program.results}
    rows = {array: row for array, each in touched.items() if array not in known and (row := _row(array, each))}

    def change(access: Access) -> Access:
        if access.array not in rows:
            return access
        first, row = rows[access.array]
        return Access(row, access.base - first, access.strides)

    cleared: dict[int, list[Statement]] = defaultdict(list)  # by loop, what makes its rows zero when a time begins
    for array in filter(rows.__contains__, zeros):
        cleared[touched[array][0][0]].append(_nothing(rows[array][1]))
    steps: list[Statement | Repeat] = []
    for k, step in enumerate(program.steps):
        if isinstance(step, Repeat):
            steps.append(step.with_body([*cleared[k], *(statement.map(change) for statement in step.body)]))
        elif step.target.array not in rows:  # what was zero before the loop
            steps.append(step)
    return program.with_steps(steps)


def _touched(program: ArrayProgram) -> tuple[dict[Array, Statement], dict[Array, Touched]]:
    """What sets arrays to zero before anything else touches them; and all else that touches arrays."""
    zeros: dict[Array, Statement] = {}
    touched: dict[Array, Touched] = defaultdict(list)
    for k, step in enumerate(program.steps):
        for statement in step.body:
            if step is statement and is_zero(statement) and statement.target.array not in {*touched, *zeros}:
                zeros[statement.target.array] = statement
                continue
            for access, loops in statement.accesses_in_loops():
                touched[access.array].append((k, access, loops))
    return zeros, touched


def _row(array: Array, touches: Touched) -> tuple[int, Array] | None:
    """Where the row of an array begins at the first time, and the row; None if a time touches other rows."""
    steps, moves = {k for k, _, _ in touches}, {access.repeat for _, access, _ in touches}
    plain = array.numbers is None and all(access.table is None for _, access, _ in touches)
    if len(steps) > 1 or len(moves) > 1 or 0 in moves or not plain:
        return None
    spans = [span(access, loops) for _, access, loops in touches]
    first, last = min(low for low, _ in spans), max(high for _, high in spans)
    if last - first > abs(moves.pop()):
        return None
    return first, Array(array.name, last - first, array.kind, examples=array.examples)


def _nothing(array: Array) -> Statement:
    return Statement(Access(array, 0, (1,)), (array.size,), [Term(Number(NOTHING))])
