"""Unrolling: a short loop in time as the statements of all its times, which touch places that are known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from chainrule.compiler.passes.program import Access, ArrayProgram, Repeat, Statement

MOST_STATEMENTS = 64  # that are written in place of a loop


def unrolled(program: ArrayProgram) -> ArrayProgram:
    """The same program without loops that stand for few statements."""
    found = ArrayProgram([], program.leaves, program.output)
    found.gradient = program.gradient
    for step in program.steps:
        short = isinstance(step, Repeat) and step.count * len(step.body) <= MOST_STATEMENTS
        found.steps += _at_all_times(step) if short else [step]
    return found


def _at_all_times(step: Statement | Repeat) -> Iterator[Statement]:
    for time in step.times:

        def then(access: Access, time: int = time) -> Access:
            move = access.repeat * time
            if access.table is not None:
                return Access(access.array, access.base, access.strides, np.asarray(access.table) + move)
            return Access(access.array, access.base + move, access.strides)

        yield from (statement.map(then) for statement in step.body)
