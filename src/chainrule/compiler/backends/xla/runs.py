"""Many runs of an array program as one loop, such as training steps: each finds what the last wrote to its leaves.

From run to run these leaves are passed on in the parts in which the program uses them. They are taken apart before the
first run, and put together after the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from chainrule.compiler.backends.xla.loops import computation
from chainrule.compiler.passes.partition import partition
from chainrule.compiler.passes.program import Array, ArrayProgram, Statement

Arrays = Mapping[Array, Any]  # on the device
NARROW = 16  # numbers: runs that take and give no more share code for any count up to a power of 2


def with_room(count: int, matrices: Sequence[np.ndarray], given: int) -> tuple[int, list[np.ndarray]]:
    """How many runs there is room for in the code for `count` runs, and matrices with so many rows, which runs take.

    `given` is how many numbers each run gives.
    """
    if given + sum(matrix.shape[1] for matrix in matrices) > NARROW:
        return count, list(matrices)
    room = 2 ** max(10, (count - 1).bit_length())
    return room, [np.pad(matrix, ((0, room - count), (0, 0))) for matrix in matrices]


def runs(
    program: ArrayProgram,
    leaves: Arrays,
    kept: Sequence[Array],
    rows: Arrays,
    wanted: Sequence[Array],
    count: Any,
    room: int,
    dtype: Any,
) -> tuple[list[Any], list[Any]]:
    """The leaves that are `kept` after `count` runs; and for each `wanted` array its numbers, a row for each run.

    Before a run, each leaf in `rows` is set to a row of its matrix. There is `room` for so many rows of results.
    """
    before, inside, after, parts = partition(program)
    given = {**leaves, **_copied(before, leaves)}
    passed = [part for array in kept for part in parts.get(array, [array])]
    together = [copy for copy in after if copy.target.array in wanted]
    whole = ArrayProgram([*inside.steps, *together], inside.leaves, inside.output)
    compute = computation(whole, [*passed, *wanted])

    def run(turn: Any, state: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
        present = {**given, **dict(zip(passed, state[0], strict=True))}
        for array, matrix in rows.items():
            present[array] = lax.dynamic_update_slice(present[array], matrix[turn], (0,))
        found = compute({array: present[array] for array in whole.leaves.values()})
        results = [
            lax.dynamic_update_index_in_dim(matrix, numbers, turn, 0)
            for matrix, numbers in zip(state[1], found[len(passed) :], strict=True)
        ]
        return found[: len(passed)], results

    empty = [jnp.zeros((room, array.size), dtype) for array in wanted]
    last, results = lax.fori_loop(0, count, run, ([given[array] for array in passed], empty))
    known = dict(zip(passed, last, strict=True))
    known |= _copied([copy for copy in after if copy.target.array in kept], known)
    return [known[array] for array in kept], results


def _copied(copies: Sequence[Statement], known: Arrays) -> dict[Array, Any]:
    """What these statements write, if they read what is known."""
    targets = list(dict.fromkeys(copy.target.array for copy in copies))
    sources = dict.fromkeys(access.array for copy in copies for access in copy.accesses())
    if not copies:
        return {}
    program = ArrayProgram(copies, {array.name: array for array in sources}, targets[0])
    found = computation(program, targets)({array: known[array] for array in sources})
    return dict(zip(targets, found, strict=True))
