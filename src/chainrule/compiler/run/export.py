"""Export: the inputs of a program that another language or engine calls.

A lifted program has its leaves in order of creation, and only those it needs. Callers have all numbers of `wrt` and of
the arguments, in their own order. So the exported program has such leaves, and a statement for each kind that picks
what it needs from them. Leaves may also be frozen: they become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Repeat, Statement, Term
from chainrule.compiler.run.machine import places
from chainrule.core.value import Value


def exported(
    program: ArrayProgram,
    wrt: Sequence[Value],
    leaves: Mapping[str, Sequence[Value]],
    arguments: tuple[Sequence[int], int] | None = None,
    freeze: bool = False,
) -> ArrayProgram:
    """The program with its parameters in the order of `wrt`; or, with `freeze`, with the `leaves`' data as constants.

    `arguments` are the places of the inputs among a function's arguments, and how many numbers those have. It is None
    for a recorded graph, whose inputs are leaves; they are not frozen.
    """
    program = with_own_output(program)
    parameters = leaves.get("parameter", [])
    if freeze:
        for kind in ("parameter", "captured"):
            program = frozen(program, kind, [leaf._data for leaf in leaves.get(kind, [])])
    elif wrt:
        program = leaves_as_given(program, "parameter", places(parameters, wrt).tolist(), len(wrt))
    return leaves_as_given(program, "input", *arguments) if arguments else program


def leaves_as_given(program: ArrayProgram, kind: str, places: Sequence[int], size: int) -> ArrayProgram:
    """The program with `size` leaves of a kind; the k-th one it needs is at `places[k]`."""
    if size == 0 or (len(places) == size and list(places) == list(range(size))):
        return program
    given = Array(kind, size, kind)
    leaves = {**program.leaves, kind: given}
    if kind not in program.leaves:
        return ArrayProgram(program.steps, leaves, program.output)
    table = np.array(places, dtype=np.int64)
    picked = Array(f"{kind}s_used", len(places), "value")
    pick = Statement(Access(picked, 0, (1,)), (len(places),), [Term(Access(given, 0, (1,), table))])
    steps, output = _replaced(program, program.leaves[kind], picked)
    return ArrayProgram([pick, *steps], leaves, output)


def frozen(program: ArrayProgram, kind: str, numbers: Any) -> ArrayProgram:
    """The program with the leaves of a kind as constants."""
    if kind not in program.leaves:
        return program
    constant = Array(kind, len(numbers), "constant", np.array(numbers, dtype=np.float64))
    steps, output = _replaced(program, program.leaves[kind], constant)
    leaves = {name: array for name, array in program.leaves.items() if name != kind}
    return ArrayProgram(steps, leaves, output)


def with_own_output(program: ArrayProgram) -> ArrayProgram:
    """The program with a computed output, even if its output was a leaf."""
    if program.output.kind == "value":
        return program
    output = Array("output", 1, "value")
    copy = Statement(Access(output, 0, ()), (), [Term(Access(program.output, 0, ()))])
    return ArrayProgram([*program.steps, copy], program.leaves, output)


def _replaced(program: ArrayProgram, old: Array, new: Array) -> tuple[list[Statement | Repeat], Array]:
    """The program's steps and output, with `new` in place of `old`."""

    def change(access: Access) -> Access:
        if access.array is not old:
            return access
        return Access(new, access.base, access.strides, access.table, access.repeat)

    return mapped(program.steps, change), new if program.output is old else program.output


def mapped(steps: Sequence[Statement | Repeat], change: Callable[[Access], Access]) -> list[Statement | Repeat]:
    """The same steps with every access changed."""
    return [
        step.with_body([statement.map(change) for statement in step.body])
        if isinstance(step, Repeat)
        else step.map(change)
        for step in steps
    ]
