"""The leaves of a program as its callers have them.

A lifted program has its leaves in order of creation, and only those it needs; callers elsewhere have all numbers of
`wrt` and of the arguments, in their own order. So an exported program has such leaves, and a statement for each kind
that picks what it needs from them. Leaves may also be frozen: they become constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Statement, Term
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
    if program.output.kind != "value":  # a leaf: the result must be an array of its own
        output = Array("output", 1, "value")
        copy = Statement(Access(output, 0, ()), (), [Term(Access(program.output, 0, ()))])
        program = ArrayProgram([*program.steps, copy], program.leaves, output)
    if freeze:
        for kind in ("parameter", "captured"):
            program = frozen(program, kind, [leaf._data for leaf in leaves.get(kind, [])])
    elif wrt:
        chosen = places(leaves.get("parameter", []), wrt).tolist()
        program = _leaves_as_given(program, "parameter", chosen, len(wrt))
    return _leaves_as_given(program, "input", *arguments) if arguments else program


def _leaves_as_given(program: ArrayProgram, kind: str, places: Sequence[int], size: int) -> ArrayProgram:
    """The program with `size` leaves of a kind; the k-th one it needs is at `places[k]`."""
    if size == 0 or list(places) == list(range(size)):
        return program
    given, steps, output = Array(kind, size, kind), program.steps, program.output
    if kind in program.leaves:
        picked = Array(f"{kind}s_used", len(places), "value")
        table = np.array(places, dtype=np.int64)
        pick = Statement(Access(picked, 0, (1,)), (len(places),), [Term(Access(given, 0, (1,), table))])
        changed = program.with_arrays({program.leaves[kind]: picked})
        steps, output = [pick, *changed.steps], changed.output
    return ArrayProgram(steps, {**program.leaves, kind: given}, output)


def frozen(program: ArrayProgram, kind: str, numbers: Any) -> ArrayProgram:
    """The program with the leaves of a kind as constants."""
    if kind not in program.leaves:
        return program
    constant = Array(kind, len(numbers), "constant", np.array(numbers, dtype=np.float64))
    result = program.with_arrays({program.leaves[kind]: constant})
    del result.leaves[kind]
    return result
