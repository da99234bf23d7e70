"""The WebAssembly backend: a flat graph for `chainrule.wasm`, which also runs where there is no compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chainrule.compiler.trace.graph import Graph
from chainrule.compiler.trace.symbols import Symbol
from chainrule.core.arguments import whole_number
from chainrule.core.graph import number_of
from chainrule.core.value import Value
from chainrule.optim import Optimizer
from chainrule.wasm import WasmProgram, replay


def module(
    graph: Graph,
    results: Sequence[int],
    wrt: Sequence[Value],
    inputs: Sequence[Any],
    optimizer: Optimizer | None,
    steps: int,
) -> WasmProgram:
    """A module of the nodes that come before the last result, or the node that packs them."""
    leaves = {"parameter": wrt, "input": inputs, "captured": graph.leaves("captured")}
    if optimizer and [*map(id, wrt)] != [*map(id, optimizer.parameters)]:
        raise ValueError("`optimizer` must have the parameters that the program has, in the order of `wrt`")
    stop = 1 + max(results)
    rules, operands, nodes = graph.rules[:stop], graph.operands[:stop], graph.nodes[:stop]
    numbers = [0.0 if isinstance(node, Symbol) else number_of(node) for node in nodes]
    flat = replay.Graph.of(rules, operands, nodes, results, leaves, numbers)
    return WasmProgram(flat, optimizer, whole_number(steps, "steps"))
