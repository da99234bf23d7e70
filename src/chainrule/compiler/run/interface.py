"""The leaves and results of a program as its callers have them.

A graph has one root, so an op `results(a, b, …)` packs the results of a function; its statement is later replaced by
stores. A lifted program has its leaves in order of creation, and only those it needs; callers elsewhere have all
numbers of `wrt` and of the arguments, in their own order. So an exported program has such leaves, and a statement for
each kind that picks what it needs from them. Leaves may also be frozen: they become constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Expression, Statement, Term
from chainrule.compiler.run.machine import places
from chainrule.core.value import Value
from chainrule.ops import Op


def packed(count: int) -> Op:
    """An op of `count` operands that makes all results one node of the graph."""
    op = Op("results", lambda first: first, (None,))
    op.arity = count
    return op


def unpacked(program: ArrayProgram, count: int) -> ArrayProgram:
    """The program with its last statement, `results(a, b, …)`, replaced by statements that fill an array of them."""
    last = program.steps[-1]
    assert isinstance(last, Statement)
    results = last.terms[0].expression
    assert isinstance(results, Apply)
    first = results.operands[0]
    if count == 1 and isinstance(first, Access) and first.array.kind == "value" and first.array.size == 1:
        return ArrayProgram(program.steps[:-1], program.leaves, first.array)
    output = Array("output", count, "value")
    return ArrayProgram([*program.steps[:-1], *_stores(output, results.operands)], program.leaves, output)


def _stores(output: Array, results: Sequence[Expression]) -> Iterator[Statement]:
    """`output[k] = results[k]`, in a loop where neighbours lie at equal distances in one array."""
    start = 0
    while start < len(results):
        stop, step = start + 1, 0
        while stop < len(results) and (distance := _distance(results[stop - 1], results[stop])) is not None:
            if stop - start > 1 and distance != step:
                break
            stop, step = stop + 1, distance
        first = results[start]
        if stop - start == 1:
            yield Statement(Access(output, start, ()), (), [Term(first)])
        else:
            assert isinstance(first, Access)
            source = Access(first.array, first.base, (step,))
            yield Statement(Access(output, start, (1,)), (stop - start,), [Term(source)])
        start = stop


def _distance(a: Expression, b: Expression) -> int | None:
    if isinstance(a, Access) and isinstance(b, Access) and a.array is b.array and a.table is b.table is None:
        return b.base - a.base
    return None


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
        changed = _replaced(program, kind, picked)
        steps, output = [pick, *changed.steps], changed.output
    return ArrayProgram(steps, {**program.leaves, kind: given}, output)


def frozen(program: ArrayProgram, kind: str, numbers: Any) -> ArrayProgram:
    """The program with the leaves of a kind as constants."""
    if kind not in program.leaves:
        return program
    constant = Array(kind, len(numbers), "constant", np.array(numbers, dtype=np.float64))
    result = _replaced(program, kind, constant)
    del result.leaves[kind]
    return result


def _replaced(program: ArrayProgram, kind: str, new: Array) -> ArrayProgram:
    """The program with another array in place of its leaves of a kind."""
    old = program.leaves[kind]

    def change(access: Access) -> Access:
        if access.array is not old:
            return access
        return Access(new, access.base, access.strides, access.table, access.repeat)

    return program.rewritten(lambda statement: statement.map(change), {old: new})
