"""Unrolling: a short loop in time as the statements of all its times; several times of a long one in each turn."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Repeat, Statement

FEW_STATEMENTS = 64  # that are written in place of a loop
SOME_STATEMENTS = 512  # that several times of a loop may be written as
MOST_TIMES = 10  # that are written as one


def unrolled(program: ArrayProgram) -> ArrayProgram:
    """The same program without loops that stand for few statements; of other loops, several times are one.

    What each time computes anew for all examples has an array for each time then: such statements may be moved, and
    must not write over what another time still needs.
    """
    found = program.with_steps([])
    for step in program.steps:
        if isinstance(step, Statement):
            found.steps.append(step)
        elif step.count * len(step.body) <= FEW_STATEMENTS:
            found.steps += written_out(step, step.times, anew=_anew(step, program))
        else:
            found.steps.append(_in_larger_turns(step))
    return found


def _in_larger_turns(step: Repeat) -> Repeat:
    """The loop with several times in each turn: what one hands to the next can then stay in registers."""
    several = range(1, min(MOST_TIMES, SOME_STATEMENTS // len(step.body)) + 1)
    turns = max((n for n in several if step.count % n == 0), default=1)
    times = range(turns - 1, -1, -1) if step.backward else range(turns)
    return Repeat(step.count // turns, list(written_out(step, times, turns)), step.backward)


def written_out(step: Repeat, times: range, turns: int = 0, anew: Collection[Array] = ()) -> Iterator[Statement]:
    """The statements of some times in order; they stand for times `turns` later in each turn of a loop."""
    for time in times:
        own = {array: Array(array.name, array.size, array.kind) for array in anew}

        def then(access: Access, time: int = time, own: dict[Array, Array] = own) -> Access:
            array, move, repeat = own.get(access.array, access.array), access.repeat * time, access.repeat * turns
            if access.table is not None:
                return Access(array, access.base, access.strides, np.asarray(access.table) + move, repeat)
            return Access(array, access.base + move, access.strides, None, repeat)

        yield from (statement.map(then) for statement in step.body)


def _anew(step: Repeat, program: ArrayProgram) -> set[Array]:
    """The arrays, the same for all examples, that each time writes before it reads them and nothing else touches."""
    outside = {*program.leaves.values(), *program.results}
    for other in program.steps:
        if other is not step:
            outside |= {access.array for s in other.body for access in (s.target, *s.accesses())}
    written: dict[Array, set[int]] = {}
    kept: set[Array] = set()
    for statement in step.body:
        target, *read = statement.accesses_in_loops()
        for access, loops in [*read, *([target] if statement.accumulate else [])]:
            places = set(access.positions(loops).ravel().tolist())
            kept |= {access.array} if access.repeat or not places <= written.get(access.array, set()) else set()
        places = set(target[0].positions(target[1]).ravel().tolist())
        written.setdefault(target[0].array, set()).update(places)
        kept |= {target[0].array} if target[0].repeat else set()
    return {array for array in written if not array.examples} - kept - outside
