"""The results of a traced function: one node of the graph while it is lifted, one array of the program after.

A graph has one root, so an op `results(a, b, …)` packs them. Its statement is later replaced by stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Expression, Statement, Term
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
    steps = [*program.steps[:-1], *_stores(output, results.operands)]
    return ArrayProgram(steps, program.leaves, output)


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
