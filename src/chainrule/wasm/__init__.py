"""WebAssembly: a recorded graph as a module that computes, differentiates and trains in any browser.

`Program.to_wasm` and `CompiledFunction.to_wasm` make such modules too. This package needs nothing but the standard
library, so it also runs in the browser itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from chainrule.core.arguments import whole_number
from chainrule.core.frozen_branches import check_numbers_were_not_read
from chainrule.core.graph import is_hand_written, lay_flat
from chainrule.core.value import Value
from chainrule.optim import Optimizer
from chainrule.wasm.program import WasmProgram
from chainrule.wasm.replay import Graph

__all__ = ["WasmProgram", "to_wasm"]


def __dir__() -> list[str]:
    return __all__


def to_wasm(
    *results: Value,
    inputs: Sequence[Value] = (),
    wrt: Iterable[Value] | None = None,
    optimizer: Optimizer | None = None,
    steps: int = 1,
    allow_frozen_branches: bool = False,
) -> WasmProgram:
    """The graph of one example as a module. `inputs` are the leaves that differ from example to example.

    Gradients are with respect to `wrt`, or else to the optimizer's parameters, or else to all other leaves. With an
    `optimizer` the module takes steps too, and has the learning rates of the next `steps` ones. The graph is refused if
    code that made it read numbers, unless you say `allow_frozen_branches=True`.

    >>> w, x = Value(3.0), Value(2.0)
    >>> to_wasm(w * x + 1.0, inputs=[x])
    <WasmProgram: 5 nodes in 766 bytes; forward, gradient>
    """
    chosen = [*wrt] if wrt is not None else [*optimizer.parameters] if optimizer else None
    inputs = [*inputs]
    _check(results, [*inputs, *(chosen or ())])
    if not allow_frozen_branches:
        check_numbers_were_not_read(lay_flat(*results)[0], results, [*inputs, *(chosen or ())])
    graph = _graph_of(results, inputs, chosen)
    if optimizer and wrt is not None and [*map(id, chosen or ())] != [*map(id, optimizer.parameters)]:
        raise ValueError("`wrt` must be the optimizer's parameters, in their order: leave it out")
    return WasmProgram(graph, optimizer, whole_number(steps, "steps"))


def _check(results: Sequence[Any], leaves: Sequence[Value]) -> None:
    if not results:
        raise TypeError("`results` is empty: give the Values to compute")
    for result in results:
        if not isinstance(result, Value):
            raise TypeError(f"`results` must be Values, got {type(result).__name__}")
    for leaf in leaves:
        if leaf._operands or leaf._constant:
            raise ValueError(f"`inputs` and `wrt` must be leaves, which were not computed from others; {leaf!r} was")


def _graph_of(results: Sequence[Value], inputs: list[Value], wrt: list[Value] | None) -> Graph:
    nodes, rules, operands = lay_flat(*results)
    given, wanted = {*inputs}, None if wrt is None else {*wrt}
    kinds = [rule or _kind(node, given, wanted) for node, rule in zip(nodes, rules, strict=True)]
    met = {kind: [n for n, k in zip(nodes, kinds, strict=True) if k == kind] for kind in ("parameter", "captured")}
    leaves = {**met, "input": inputs} | ({} if wrt is None else {"parameter": wrt})
    position = {id(node): place for place, node in enumerate(nodes)}
    places, numbers = [position[id(result)] for result in results], [node._data for node in nodes]
    initial = {kind: [node._data for node in some] for kind, some in leaves.items()}
    return Graph.of(kinds, operands, nodes, places, leaves, numbers, initial)


def _kind(node: Value, inputs: set[Value], wanted: set[Value] | None) -> str:
    """The kind of a leaf."""
    if is_hand_written(node) or node._operands:
        raise TypeError(f"{node!r} was made by hand, and only Python can compute it: register the op with chainrule.op")
    if node in inputs:
        return "input"
    if node._constant:
        return "constant"
    if wanted is not None and node not in wanted:
        return "captured"
    return "parameter" if node.requires_grad else "captured" if wanted is None else "frozen"
