"""Batching: from a program for one example to a program for many.

Every array that depends on the inputs gets a row for each example, and every statement that fills one an outermost loop
over the examples. What depends on parameters alone is computed once. Differentiation then sums the parameters' adjoints
over the examples by itself, and the layout puts the examples innermost, side by side in vectors. The inputs are laid
out so from the start, for a function may read its arguments in pieces that show no shape.
"""

from __future__ import annotations

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.layout import LINE
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Number, Repeat, Statement, Term


def batched(program: ArrayProgram, examples: int, total: bool, masked: bool = False) -> ArrayProgram:
    """`program` for so many examples. Its output is the sum of their results if `total`, else one row an example.

    If `masked`, there are leaves "mask", a number for each example: the sum leaves out those where it is 0.
    """
    width = padded(examples)
    rows = {
        array: Array(array.name, array.size * (width if array.kind == "input" else examples), array.kind)
        for array in _that_vary(program)
    }

    def change(access: Access) -> Access:
        row = rows.get(access.array)
        if row is None:
            return Access(access.array, access.base, (0, *access.strides), access.table, access.repeat)
        step, scale = (1, width) if row.kind == "input" else (access.array.size, 1)  # to the next example; inside one
        if access.table is None:
            strides = (step, *(scale * stride for stride in access.strides))
            return Access(row, scale * access.base, strides, None, scale * access.repeat)
        table = scale * np.asarray(access.table) + step * np.arange(examples)[:, None]
        return Access(row, access.base, (table.shape[1], *access.strides), table.reshape(-1), scale * access.repeat)

    def for_all(statement: Statement) -> Statement:
        if statement.target.array not in rows:
            return statement
        result = statement.map(change)
        result.loops = (examples, *statement.loops)
        return result

    steps: list[Statement | Repeat] = []
    for step in program.steps:
        if isinstance(step, Repeat):
            steps.append(step.with_body([for_all(statement) for statement in step.body]))
        else:
            steps.append(for_all(step))
    leaves = {kind: rows.get(array, array) for kind, array in program.leaves.items()}
    output = rows.get(program.output, program.output)
    if total:
        term = _sum(program.output, rows, examples)
        if masked:
            leaves["mask"] = Array("mask", examples, "captured")
            term = _masked_sum(program.output, rows, leaves["mask"])
        output = Array("total", 1, "value")
        steps.append(Statement(Access(output, 0, ()), (), [term]))
    return ArrayProgram(steps, leaves, output)


def padded(examples: int) -> int:
    """The room for one input of all examples: whole cache lines."""
    return -(-examples // LINE) * LINE


def _sum(output: Array, rows: dict[Array, Array], examples: int) -> Term:
    if output not in rows:  # every example has the same result
        return Term(Apply(ops.mul, (Number(float(examples)), Access(output, 0, ()))))
    return Term(Access(rows[output], 0, (output.size,)), (examples,))  # never an input: results are values


def _masked_sum(output: Array, rows: dict[Array, Array], mask: Array) -> Term:
    result = Access(rows[output], 0, (output.size,)) if output in rows else Access(output, 0, (0,))
    return Term(Apply(ops.where, (Access(mask, 0, (1,)), result, Number(0.0))), (mask.size,))


def _that_vary(program: ArrayProgram) -> dict[Array, None]:
    """The arrays that depend on the inputs; all of an array does if part of it does."""
    found: dict[Array, None] = {}
    if "input" in program.leaves:
        found[program.leaves["input"]] = None
    before = -1
    while len(found) != before:  # again, because a Repeat reads what it writes later
        before = len(found)
        for statement in program.statements:
            if any(access.array in found for access in statement.accesses()):
                found[statement.target.array] = None
    return found


def size_of_an_example(program: ArrayProgram) -> int:
    """How many numbers are kept for each example."""
    return sum(array.size for array in _that_vary(program))
