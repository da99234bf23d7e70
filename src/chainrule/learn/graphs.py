"""A learner's own graph as the stepper shows it: its nodes, and the backward pass as the learner's code runs it.

Nodes are of any class in the style of micrograd (`data`, `grad`, `_prev`, `_op`, `_backward`, perhaps `label`). Such a
class does not store the order of its operands, but its closures do: they hold `self` and `other`. The order of the
backward pass is the learner's as well: their `backward()` runs once more, and each `_backward` records what it changed.
If that is what the op's derivatives say, it is told as the chain rule, as for chainrule's Value; else as what it is.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import isclose
from typing import Any

from chainrule import engine, ops
from chainrule.core.value import Value
from chainrule.learn.explaining import FILE, explain
from chainrule.stepping.formula_text import FormulaText, show
from chainrule.stepping.steps import MOST_NODES, chain_rule, handwritten_steps, partial_formula, spell
from chainrule.stepping.steps import describe as describe_values

RULES = {"+": ops.add, "*": ops.mul, "-": ops.sub, "/": ops.div, "%": ops.mod, "**": ops.pow_}


def describe(root: Any, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the stepper shows for `root`, as data for JSON; nodes are named after the variables in `names`.

    >>> from chainrule import closures
    >>> x = closures.Value(3.0, label="x")
    >>> [step["kind"] for step in describe(x * x)["steps"]]
    ['start', 'forward', 'seed', 'backward', 'backward', 'end']
    """
    if isinstance(root, (Value, engine.Value)):
        return describe_values(root, names=names)
    graph = LearnersGraph(root, names or {})
    return {
        "root": graph.root,
        "nodes": graph.described(),
        "steps": [{"kind": "start"}, *_forward_steps(graph.operands), *_backward_steps(graph), {"kind": "end"}],
    }


class LearnersGraph:
    """The nodes below `root`, operands before results, with what the stepper tells about each."""

    def __init__(self, root: Any, names: Mapping[str, Any]) -> None:
        self.nodes, operands = _oldest_first(root)
        index = {id(node): i for i, node in enumerate(self.nodes)}
        self.root = index[id(root)]
        self.operands = [[index[id(operand)] for operand in each] for each in operands]
        self.numbers = [_float(node.data) for node in self.nodes]
        self.names, self.constants = _names(self.nodes, operands, self.numbers, names)
        self.formulas = [_formula(*about) for about in zip(self.numbers, self.names, self.constants, strict=True)]
        pairs = zip(self.nodes, self.operands, strict=True)
        self.rules = [_rule_of(node, [self.formulas[k] for k in each]) for node, each in pairs]

    def grads(self) -> list[float]:
        return [_float(node.grad) for node in self.nodes]

    def true_grads(self) -> list[float] | None:
        """The gradients by the op table's derivatives, whatever the class does; None if they are not known."""
        grads = [0.0] * len(self.nodes)
        grads[self.root] = 1.0
        with suppress(Exception):  # there is no derivative at these numbers, or an op is not in the table
            for i in reversed(range(len(self.nodes))):
                op, below = self.rules[i].op, self.operands[i]
                if not below:
                    continue
                if op and len(below) == 1 and op.arity == 2:  # x + x, of a closure that knows one of the two
                    below = 2 * below
                numbers = [self.numbers[k] for k in below]
                if not op or not isclose(op.forward(*numbers), self.numbers[i], rel_tol=1e-9):
                    return None
                for to, partial in zip(below, op.partials, strict=True):
                    grads[to] += grads[i] * _float(partial(self.numbers[i], *numbers)) if partial else 0.0
            return grads
        return None

    def described(self) -> list[dict[str, Any]]:
        """The nodes as data for JSON, before the backward pass."""
        return [
            {
                "name": self.names[i],
                "kind": "result" if self.operands[i] else "constant" if self.constants[i] else "leaf",
                "op": str(getattr(node, "_op", "")),
                "operands": self.operands[i],
                "data": spell(self.numbers[i]),
                "grad": None if self.constants[i] else spell(0.0),
                "expression": _expression(self.numbers[i], self.rules[i]),
            }
            for i, node in enumerate(self.nodes)
        ]

    def told(self, call: Call) -> list[dict[str, Any]]:
        """The call as the chain rule, edge by edge, if it did what the derivatives say; else as what it changed."""
        rule, result = self.rules[call.i], self.formulas[call.i]
        grads, steps = list(call.before), []
        with suppress(Exception):  # there is no derivative at this number
            for k, to in enumerate(self.operands[call.i]):
                partial = rule.op.partials[k] if rule.op else None
                if partial is None or self.constants[to]:
                    continue
                local = _float(partial(result.value, *(operand.value for operand in rule.operands)))
                before, grad = grads[to], call.before[call.i]
                grads[to] += grad * local
                step = {"kind": "backward", "node": call.i, "to": to, "operand": k}
                step["formula"] = partial_formula(partial, result, rule.operands)
                steps.append(step | chain_rule(grad, local, before, grads[to]))
        pairs = zip(grads, call.after, self.constants, strict=True)
        agree = all(constant or isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b, constant in pairs)
        return steps if agree else list(handwritten_steps(call.i, call.before, call.after, self.constants))


def steps_json(code: str, own: str = "") -> str:
    """The graph that `code` builds, for the page: {"graph": …, "error": …}, one of them null.

    `own` is the source of the learner's class; without it, `Value` is chainrule's.

    >>> json.loads(steps_json("a = Value(2.0)\\na * 3"))["graph"]["nodes"][0]["name"]
    'a'
    """
    try:
        graph = describe(*built(code, own))
    except BaseException as error:
        return json.dumps({"graph": None, "error": asdict(explain(error))})
    return json.dumps({"graph": graph, "error": None})


def built(code: str, own: str = "") -> tuple[Any, dict[str, Any]]:
    """The value of the last line of `code`, and all variables; `own` as for `steps_json`."""
    names: dict[str, Any] = {"__name__": "__main__", "Value": Value}
    exec(compile(own, FILE, "exec"), names)
    return _last_value(code, names), names


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
    """The operands in their original order, as far as the closure tells; `x * x` has x twice.

    A set has no order that a second run would repeat, so operands that the closure holds under other names come first.
    """
    if hasattr(node, "_operands"):
        return list(node._operands)
    previous = {id(operand): operand for operand in node._prev}
    held = held_by(node)
    found = [held[name] for name in ("self", "other") if id(held.get(name)) in previous]
    if not found and isinstance(node._prev, (list, tuple)):
        return list(node._prev)
    ordered = {id(value): value for value in held.values() if id(value) in previous} | previous
    return found + [operand for key, operand in ordered.items() if all(key != id(other) for other in found)]


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


def _formula(number: float, name: str, constant: bool) -> FormulaText:
    return FormulaText(number, "" if constant else name)


@dataclass(frozen=True)
class _Rule:
    """How a node was computed: the row of the op table, if the tag has one, and the operands as formulas."""

    tag: str
    op: ops.Op | None
    operands: list[FormulaText]


def _rule_of(node: Any, operands: list[FormulaText]) -> _Rule:
    tag = str(getattr(node, "_op", "")) or "f"
    if tag == "**" and len(operands) == 1:
        exponent = held_by(node).get("exponent")
        if isinstance(exponent, (int, float)):
            operands = [*operands, FormulaText(float(exponent))]
    op = RULES.get(tag) or ops.TABLE.get(tag)
    return _Rule(tag, op if op is not None and len(op.partials) == len(operands) else None, operands)


def _expression(number: float, rule: _Rule) -> dict[str, str] | None:
    if not rule.operands:
        return None
    if rule.op is not None:
        return FormulaText.of(rule.op, number, tuple(rule.operands)).texts()
    names, values = (", ".join(operand.text(numbers=n) for operand in rule.operands) for n in (False, True))
    return {"names": f"{rule.tag}({names})", "numbers": f"{rule.tag}({values})"}


@dataclass(frozen=True)
class Call:
    """A call of the `_backward` of node `i`, and everybody's gradients before and after it."""

    i: int
    before: list[float]
    after: list[float]


def _forward_steps(below: list[list[int]]) -> list[dict[str, Any]]:
    return [{"kind": "forward", "node": i} for i, operands in enumerate(below) if operands]


def _backward_steps(graph: LearnersGraph) -> list[dict[str, Any]]:
    """The steps of the learner's `backward()` on the result, as far as it gets."""
    steps: list[dict[str, Any]] = []
    with suppress(Exception):
        seed, calls = _backward_calls(graph)
        steps.append({"kind": "seed", "node": graph.root, "after": spell(seed)})
        for call in calls:
            steps += graph.told(call)
    return steps


def _backward_calls(graph: LearnersGraph) -> tuple[float, list[Call]]:
    """The seed, and what each call changed. Restores the nodes afterwards."""
    calls: list[Call] = []
    root = graph.nodes[graph.root]
    kept = [(node, node.data, node.grad, node._backward) for node in graph.nodes]

    def listening(i: int, backward: Any) -> Any:
        def listen() -> None:
            before = graph.grads()
            backward()
            calls.append(Call(i, before, graph.grads()))

        return listen

    try:
        for i, node in enumerate(graph.nodes):
            node.grad = 0.0
            node._backward = listening(i, node._backward)
        root.backward()
    except Exception:
        if not calls:
            raise
    finally:
        seed = calls[0].before[graph.root] if calls else root.grad
        for node, data, grad, backward in kept:
            node.data, node.grad, node._backward = data, grad, backward
    return _float(seed), calls


def _float(number: Any) -> float:
    return ops.as_float(number, "data or grad")
