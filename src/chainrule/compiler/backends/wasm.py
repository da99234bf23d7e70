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
    given: Sequence[float] | None = None,
) -> WasmProgram:
    """A module of the nodes up to the last result; `given` are the inputs' numbers, if they are no Values."""
    if optimizer and [*map(id, wrt)] != [*map(id, optimizer.parameters)]:
        raise ValueError("`optimizer` must have the parameters that the program has, in the order of `wrt`")
    stop, parameters = 1 + max(results), {*map(id, wrt)}
    operands, nodes = graph.operands[:stop], graph.nodes[:stop]
    rules = [_kind(rule, node, parameters) for rule, node in zip(graph.rules[:stop], nodes, strict=True)]
    captured = [node for node, rule in zip(nodes, rules, strict=True) if rule == "captured"]
    leaves = {"parameter": wrt, "input": inputs, "captured": captured}
    initial = {kind: [*map(_number, some)] for kind, some in leaves.items()}
    if given is not None:
        initial["input"] = [*given]
    flat = replay.Graph.of(rules, operands, nodes, results, leaves, [*map(_number, nodes)], initial)
    return WasmProgram(flat, optimizer, whole_number(steps, "steps"))


def _kind(rule: Any, node: Any, parameters: set[int]) -> Any:
    """The rule, or the kind of a leaf: those that are frozen are parameters for the caller all the same."""
    return "frozen" if rule in ("captured", "input") and id(node) in parameters else rule


def _number(node: Any) -> float:
    return 0.0 if node is None or isinstance(node, Symbol) else float(number_of(node))
