"""A learner's own graph as the stepper shows it: its nodes, and the backward pass as the learner's code runs it.

Nodes are of any class in the style of micrograd (`data`, `grad`, `_prev`, `_op`, `_backward`, perhaps `label`). Such a
class does not store the order of its operands, but its closures do: they hold `self` and `other`. The order of the
backward pass is the learner's as well: their `backward()` runs once more, and each `_backward` records what it changed.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from chainrule import engine, ops
from chainrule.core.value import Value
from chainrule.learn.explaining import FILE, explain
from chainrule.stepping.formula_text import FormulaText, show
from chainrule.stepping.steps import MOST_NODES, handwritten_steps, spell
from chainrule.stepping.steps import describe as describe_values

RULES = {"+": ops.add, "*": ops.mul, "-": ops.sub, "/": ops.div, "%": ops.mod, "**": ops.pow_}


def describe(root: Any, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the stepper shows for `root`, as data for JSON; nodes are named after the variables in `names`.

    >>> from chainrule import closures
    >>> x = closures.Value(3.0, label="x")
    >>> [step["kind"] for step in describe(x * x)["steps"]]
    ['start', 'forward', 'seed', 'handwritten', 'end']
    """
    if isinstance(root, (Value, engine.Value)):
        return describe_values(root, names=names)
    nodes, operands = _oldest_first(root)
    index = {id(node): i for i, node in enumerate(nodes)}
    numbers = [_float(node.data) for node in nodes]
    names_of, constants = _names(nodes, operands, numbers, names or {})
    steps: list[dict[str, Any]] = []
    triples = zip(numbers, names_of, constants, strict=True)
    formulas = [FormulaText(number, "" if fixed else name) for number, name, fixed in triples]
    with suppress(Exception):  # show a failing backward() as far as it got
        steps += _backward_steps(nodes, constants)
    return {
        "root": index[id(root)],
        "nodes": [
            {
                "name": name,
                "kind": "result" if operands[i] else "constant" if constants[i] else "leaf",
                "op": str(getattr(node, "_op", "")),
                "operands": [index[id(operand)] for operand in operands[i]],
                "data": spell(numbers[i]),
                "grad": None if constants[i] else spell(0.0),
                "expression": _expression(node, numbers[i], [formulas[index[id(o)]] for o in operands[i]]),
            }
            for i, (node, name) in enumerate(zip(nodes, names_of, strict=True))
        ],
        "steps": [
            {"kind": "start"},
            *({"kind": "forward", "node": i} for i in range(len(nodes)) if operands[i]),
            *steps,
            {"kind": "end"},
        ],
    }


def steps_json(code: str, own: str = "") -> str:
    """The graph that `code` builds, for the page: {"graph": …, "error": …}, one of them null.

    `own` is the source of the learner's class; without it, `Value` is chainrule's.

    >>> json.loads(steps_json("a = Value(2.0)\\na * 3"))["graph"]["nodes"][0]["name"]
    'a'
    """
    names: dict[str, Any] = {"__name__": "__main__", "Value": Value}
    try:
        exec(compile(own, FILE, "exec"), names)
        graph = describe(_last_value(code, names), names)
    except BaseException as error:
        return json.dumps({"graph": None, "error": asdict(explain(error))})
    return json.dumps({"graph": graph, "error": None})


def _last_value(code: str, names: dict[str, Any]) -> Any:
    """Run `code` and return the value of its last line, an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body else None
    if not isinstance(last, ast.Expr):
        raise ValueError("the last line must be the result to differentiate, such as `loss`")
    exec(compile(tree, "<graph>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<graph>", "eval"), names)


def _oldest_first(root: Any) -> tuple[list[Any], list[list[Any]]]:
    """The nodes of the graph, operands before results, and the operands of each."""
    if isinstance(root, type) or not all(hasattr(root, name) for name in ("data", "grad", "_prev")):
        raise TypeError(f"`root` must be a node with `data`, `grad` and `_prev`; got {type(root).__name__}")
    order: dict[int, Any] = {}
    operands: dict[int, list[Any]] = {}

    def visit(node: Any) -> None:
        operands[id(node)] = operands_of(node)
        if len(operands) > MOST_NODES:
            raise ValueError(f"`root` stands on more than {MOST_NODES} nodes: show a part of it")
        for operand in operands[id(node)]:
            if id(operand) not in operands:
                visit(operand)
            elif id(operand) not in order:  # its operands are being visited
                raise ValueError("a node is among its own operands, so the graph has a circle")
        order[id(node)] = node

    visit(root)
    return list(order.values()), [operands[key] for key in order]


def operands_of(node: Any) -> list[Any]:
    """The operands in their original order, as far as the closure tells; `x * x` has x twice."""
    if hasattr(node, "_operands"):
        return list(node._operands)
    previous = {id(operand): operand for operand in node._prev}
    held = held_by(node)
    found = [held[name] for name in ("self", "other") if id(held.get(name)) in previous]
    return found + [operand for key, operand in previous.items() if all(key != id(other) for other in found)]


def held_by(node: Any) -> dict[str, Any]:
    """The variables in the node's closure, by name."""
    backward = getattr(node, "_backward", None)
    names = getattr(getattr(backward, "__code__", None), "co_freevars", ())
    held = {}
    for name, cell in zip(names, getattr(backward, "__closure__", None) or (), strict=False):
        with suppress(ValueError):  # never assigned
            held[name] = cell.cell_contents
    return held


def _names(
    nodes: list[Any], operands: list[list[Any]], numbers: list[float], variables: Mapping[str, Any]
) -> tuple[list[str], list[bool]]:
    """A name for each node, and which nodes are constants: unnamed leaves, named after their number."""
    held = {id(value): name for name, value in reversed(list(variables.items())) if not name.startswith("_")}
    wanted = [str(getattr(node, "label", "") or held.get(id(node), "")) for node in nodes]
    constants = [not name and not below for name, below in zip(wanted, operands, strict=True)]
    result: list[str] = []
    taken = set(wanted)
    for name, number, constant in zip(wanted, numbers, constants, strict=True):
        if constant:
            result.append(show(number))
            continue
        stem, k = (f"{name}_", 2) if name else ("v", 1)
        while not name or name in result:
            name, k = f"{stem}{k}", k + 1
            name = "" if name in taken else name
        taken.add(name)
        result.append(name)
    return result, constants


def _expression(node: Any, number: float, operands: list[FormulaText]) -> dict[str, str] | None:
    if not operands:
        return None
    tag = str(getattr(node, "_op", "")) or "f"
    rule = RULES.get(tag) or ops.TABLE.get(tag)
    if tag == "**" and len(operands) == 1:
        exponent = held_by(node).get("exponent")
        if isinstance(exponent, (int, float)):
            operands = [*operands, FormulaText(float(exponent))]
    if rule is not None and len(rule.partials) == len(operands):
        return FormulaText.of(rule, number, tuple(operands)).texts()
    names, values = (", ".join(operand.text(numbers=n) for operand in operands) for n in (False, True))
    return {"names": f"{tag}({names})", "numbers": f"{tag}({values})"}


def _backward_steps(nodes: list[Any], constants: list[bool]) -> Iterator[dict[str, Any]]:
    """The steps of the learner's `backward()` on the last node, call by call. Restores the nodes afterwards."""
    calls: list[tuple[int, list[float], list[float]]] = []
    kept = [(node, node.data, node.grad, node._backward) for node in nodes]

    def grads() -> list[float]:
        return [_float(node.grad) for node in nodes]

    def listening(i: int, backward: Any) -> Any:
        def listen() -> None:
            before = grads()
            backward()
            calls.append((i, before, grads()))

        return listen

    try:
        for i, node in enumerate(nodes):
            node.grad = 0.0
            node._backward = listening(i, node._backward)
        nodes[-1].backward()
    except Exception:
        if not calls:
            raise
    finally:
        seed = calls[0][1][-1] if calls else nodes[-1].grad
        for node, data, grad, backward in kept:
            node.data, node.grad, node._backward = data, grad, backward
    yield {"kind": "seed", "node": len(nodes) - 1, "after": spell(_float(seed))}
    for i, before, after in calls:
        yield from handwritten_steps(i, before, after, constants)


def _float(number: Any) -> float:
    return ops.as_float(number, "data or grad")
