"""Several results: where a lifted program has them, and statements that bring them together.

A graph has one root, so an op `results(a, b, …)` packs the results of a function. Its statement says where they lie,
and is replaced by statements that copy them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from chainrule.compiler.passes.lift import MOST_STATEMENTS, lift
from chainrule.compiler.passes.loop_nests import loop_nest
from chainrule.compiler.passes.program import (
    Access,
    Apply,
    Array,
    ArrayProgram,
    Expression,
    Number,
    Repeat,
    Statement,
    Term,
)
from chainrule.compiler.trace.graph import Graph
from chainrule.ops import Op

Pair = tuple[Access, Expression]


def packed(count: int) -> Op:
    """An op of `count` operands that makes all results one node of the graph."""
    op = Op("results", lambda first: first, ())
    op.arity = count
    return op


def lift_results(graph: Graph, most_statements: float = MOST_STATEMENTS) -> ArrayProgram:
    """The array program of a graph whose root packs its results: its output is an array of them."""
    program, results = lift_places(graph, most_statements)
    first = results[0]
    if len(results) == 1 and isinstance(first, Access) and first.array.kind == "value" and first.array.size == 1:
        program.output = first.array
        return program
    return with_output(program.steps, program.leaves, results)


def lift_places(
    graph: Graph, most_statements: float = MOST_STATEMENTS, merges: bool = True
) -> tuple[ArrayProgram, Sequence[Access | Number]]:
    """The array program of a graph whose root packs its results, and where these lie; it has no output yet."""
    program = lift(graph, most_statements, merges)
    last = program.steps.pop()
    assert isinstance(last, Statement)
    results = last.terms[0].expression
    assert isinstance(results, Apply)
    return program, [place for place in results.operands if isinstance(place, (Access, Number))]


def with_output(
    steps: Sequence[Statement | Repeat], leaves: dict[str, Array], results: Sequence[Expression]
) -> ArrayProgram:
    """A program of these steps, and of statements that make an array of the results."""
    output = Array("output", len(results), "value")
    pairs = [(Access(output, k, ()), result) for k, result in enumerate(results)]
    return ArrayProgram([*steps, *copies(pairs)], leaves, output)


def copies(pairs: Sequence[Pair], accumulate: bool = False) -> Iterator[Statement]:
    """`target = source` for each pair, in loops where neighbours go from one array to another."""
    for _, run in groupby(pairs, key=_arrays):
        group = list(run)
        target, source = group[0]
        if len(group) == 1:
            yield Statement(target, (), [Term(source)], accumulate)
            continue
        ends = [target, source] if isinstance(source, Access) else [target]
        streams = np.array([[end.base for end in pair[: len(ends)]] for pair in group]).T  # type: ignore[attr-defined]
        nest = loop_nest(streams)
        loops = nest[0] if nest else (len(group),)
        strides = nest[1] if nest else [None] * len(ends)
        moved = [_access(*each) for each in zip(ends, streams, strides, strict=True)]
        yield Statement(moved[0], loops, [Term(moved[1] if isinstance(source, Access) else source)], accumulate)


def _arrays(pair: Pair) -> tuple[Array, object]:
    target, source = pair
    return target.array, source.array if isinstance(source, Access) else repr(getattr(source, "value", source))


def _access(first: Access, positions: np.ndarray, strides: tuple[int, ...] | None) -> Access:
    """The elements at these positions, in loops; those that no nest fits by a table."""
    if strides is not None:
        return Access(first.array, first.base, strides)
    steps = np.diff(positions)
    if (steps == steps[0]).all():
        return Access(first.array, first.base, (int(steps[0]),))
    return Access(first.array, 0, (1,), positions)
