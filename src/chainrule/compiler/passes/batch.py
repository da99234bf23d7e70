"""Batching: from a program for one example to a program for many.

What depends on the inputs gets a row per example, and the statement that fills it an outermost loop over the examples;
what depends on parameters alone is computed once. The layout will place the examples side by side, innermost. The
inputs lie so from the start, because a function may read its arguments in pieces that show no shape; and so does
everything in programs with loops in time, whose arrays have too many kinds of rows for the layout to find the examples.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.layout import padded
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Number, Statement, Term, dependents


def batched(
    program: ArrayProgram,
    examples: int,
    total: bool,
    masked: bool = False,
    side_by_side: bool = False,
    in_blocks: bool = False,
) -> ArrayProgram:
    """`program` for `examples` examples. Its output is the sum of their results if `total`, else one row per example.

    If `masked`, there is a leaf "mask" with one number per example, and the sum leaves out the examples where it is 0.
    If they are `side_by_side`, an array has all examples of its first number, then all of its second, and so on. So
    they do if they are taken `in_blocks` by a GPU; then whatever a Repeat computes has numbers for each example, if
    anything in it has, and results stay as they are computed.
    """
    side_by_side |= in_blocks
    width = examples if in_blocks else padded(examples)
    vary = _that_vary(program, whole_repeats=in_blocks)
    counts = {array: width if side_by_side or array.kind == "input" else examples for array in vary}
    rows = {
        array: Array(array.name, array.size * count, array.kind, examples=examples) for array, count in counts.items()
    }

    result = program.rewritten(lambda statement: for_all(statement, rows, examples, width, side_by_side), rows)
    if total:
        result.output = Array("total", 1, "value")
        if masked:
            result.leaves["mask"] = Array("mask", examples, "captured", examples=examples)
        step = 1 if side_by_side else program.output.size
        term = _sum(program.output, rows, examples, result.leaves.get("mask"), step)
        result.steps.append(Statement(Access(result.output, 0, ()), (), [term]))
    elif side_by_side and not in_blocks and program.output in rows:
        numbers = program.output.size
        found = Access(result.output, 0, (1, width))
        result.output = Array("results", numbers * examples, "value", examples=examples)
        loops = examples, numbers
        result.steps.append(Statement(Access(result.output, 0, (numbers, 1)), loops, [Term(found)]))
    return result


def for_all(
    statement: Statement, rows: Mapping[Array, Array], examples: int, width: int = 0, side_by_side: bool = False
) -> Statement:
    """The statement in one more loop, over examples, if its target is among the arrays that have a row for each.

    In inputs, the examples lie side by side, padded to `width`; if they are `side_by_side`, in all arrays.
    """

    def change(access: Access) -> Access:
        row = rows.get(access.array)
        if row is None:
            return access.with_strides((0, *access.strides))
        inner = side_by_side or row.kind == "input"
        step, scale = (1, width) if inner else (access.array.size, 1)  # to the next; inside one
        if access.table is None:
            strides = (step, *(scale * stride for stride in access.strides))
            return Access(row, scale * access.base, strides, None, scale * access.repeat)
        table = scale * np.asarray(access.table) + step * np.arange(examples)[:, None]
        return Access(row, access.base, (table.shape[1], *access.strides), table.reshape(-1), scale * access.repeat)

    if statement.target.array not in rows:
        return statement
    result = statement.map(change)
    result.loops = (examples, *statement.loops)
    return result


def _sum(output: Array, rows: dict[Array, Array], examples: int, mask: Array | None, step: int) -> Term:
    """The sum of the results, which are `step` elements apart."""
    varies = output in rows  # otherwise every example has the same result
    each = Access(rows.get(output, output), 0, (step if varies else 0,))  # never an input: results are values
    if mask:
        return Term(Apply(ops.where, (Access(mask, 0, (1,)), each, Number(0.0))), (examples,))
    if varies:
        return Term(each, (examples,))
    return Term(Apply(ops.mul, (Number(float(examples)), Access(output, 0, ()))))


def with_class_check(program: ArrayProgram, examples: int, counts: Mapping[int, int]) -> ArrayProgram:
    """A program of examples side by side, with a leaf "wrong": how many inputs should be class indices and are not.

    `counts` has the number of classes for each that should, by its place among the inputs.
    """
    wrong, inputs = Array("wrong", 1, "captured"), program.leaves["input"]
    steps = [*program.steps, Statement(Access(wrong, 0, ()), (), [Term(Number(0.0))])]
    for first, length, count in _spans(counts):
        number = Access(inputs, first * examples, (examples, 1))
        fits = [ops.ge(number, 0.0), ops.lt(number, float(count)), ops.eq(number, ops.floor(number))]
        term = Term(1.0 - fits[0] * fits[1] * fits[2], (length, examples))
        steps.append(Statement(Access(wrong, 0, ()), (), [term], accumulate=True))
    return program.with_steps(steps, {**program.leaves, "wrong": wrong})


def _spans(counts: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """(first, length, count) of neighbouring places that have the same count."""
    found: list[tuple[int, int, int]] = []
    for place, count in sorted(counts.items()):
        if found and (place, count) == (found[-1][0] + found[-1][1], found[-1][2]):
            found[-1] = found[-1][0], found[-1][1] + 1, count
        else:
            found.append((place, 1, count))
    return found


def _that_vary(program: ArrayProgram, whole_repeats: bool = False) -> dict[Array, None]:
    """The arrays that depend on the inputs: the whole array, if any part of it does. Or all that a Repeat computes."""
    found = dict.fromkeys([program.leaves["input"]] if "input" in program.leaves else [])
    before = -1
    while len(found) != before:
        found = dependents(program.statements, found)
        before = len(found)
        for step in program.steps if whole_repeats else ():
            targets = [statement.target.array for statement in step.body]
            found |= dict.fromkeys(targets if any(array in found for array in targets) else ())
    return found


def size_of_an_example(program: ArrayProgram) -> int:
    """How many numbers are kept for each example."""
    return sum(array.size for array in _that_vary(program))
