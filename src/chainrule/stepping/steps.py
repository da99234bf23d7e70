"""A graph and its backward pass, step by step: `stepper` as a page, `explain` in words.

`describe(root)` returns what the page shows as plain data. The page's script (`web/stepper.js`) only displays it: every
number and formula comes from here, by the op table's own rules. The data:

    nodes   oldest first: name, kind (leaf, constant, result), op, operands by index, data, initial grad, and the
            expression that made it, with names and with numbers
    steps   what happens, in order: start; forward, once per result; seed; backward, once per edge; end
    root    the index of the node that `backward()` is called on

A number appears twice: `exact`, as Python writes it, and `text`, for reading. In a backward step, a node passes its
gradient to an operand: the step holds the local derivative, the product, and the operand's gradient before and after.
A hand-written `_backward` is called to see what it does, so its steps hold only the gradients before and after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import count
from typing import Any

from chainrule import engine
from chainrule.core.graph import is_hand_written, number_of, receivers, unchanged
from chainrule.core.value import Value
from chainrule.core.walk import below, oldest_first
from chainrule.ops import Rule, as_float
from chainrule.stepping.formula_text import FormulaText, formula, show
from chainrule.stepping.page import Page, page

MOST_NODES = 300  # more would not help anybody to understand


def stepper(
    root: Value, *, seed: float = 1.0, keep_grads: bool = False, names: Mapping[str, Any] | None = None
) -> Page:
    """A page that shows, step by step, how `root` is computed and how `root.backward()` finds every gradient.

    A notebook displays it; elsewhere call `.open()` or `.save("page.html")`. The page is one file and needs no network.
    The Values are not changed.

    Nodes are named by their labels, and with `names=locals()` also by your variables. Gradients start at zero, or with
    `keep_grads` at what the leaves hold, as in a `backward()` without `zero_grad()` before it.

    >>> a, b = Value(2.0, label="a"), Value(-3.0, label="b")
    >>> stepper(a * b + 10.0)
    <Page 'How v2 is computed and differentiated', ...>
    """
    description = describe(root, seed=seed, keep_grads=keep_grads, names=names)
    name = description["nodes"][description["root"]]["name"]
    title = f"How {name} is computed and differentiated"
    return page(title, "stepper", description, static=_lists(title, *in_words(description)))


def _lists(title: str, forward: list[str], backward: list[str]) -> str:
    """The steps as two lists, for viewers that run no scripts."""
    parts = [f"<p><b>{escape(title)}</b></p>"]
    for heading, lines in (("forward", forward), ("backward", backward)):
        items = "".join(f"<li><code>{escape(line)}</code></li>" for line in lines)
        parts.append(f"<p>{heading}</p><ol>{items}</ol>")
    return "".join(parts)


def describe(
    root: Value, *, seed: float = 1.0, keep_grads: bool = False, names: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What the page shows, as data for JSON."""
    if not isinstance(root, (Value, engine.Value)):
        other = " of another class, which does not keep the order of operands" if hasattr(root, "_prev") else ""
        got = f"{type(root).__name__}{other}"
        raise TypeError(f"`root` must be a chainrule Value, the result to differentiate; got {got}")
    if not isinstance(names, Mapping | None):
        raise TypeError(f"`names` must be a mapping from names to Values, such as locals(), got {type(names).__name__}")
    nodes = oldest_first(root)
    if len(nodes) > MOST_NODES:
        raise ValueError(
            f"`root` depends on {len(nodes):,} nodes, and a page of more than {MOST_NODES} explains nothing: "
            "step through a part of it, such as one neuron, or the loss of a small model on one example"
        )
    names_of = _names(nodes, names or {})
    pairs = zip(nodes, names_of, strict=True)
    formulas = [FormulaText(number_of(node), "" if node._constant else name) for node, name in pairs]
    replay = _Backward(root, nodes, formulas, as_float(seed, "seed"), keep_grads)
    start = replay.grads.copy()
    return {
        "root": replay.index[root],
        "nodes": [
            {
                "name": name,
                "kind": "result" if node._operands else "constant" if node._constant else "leaf",
                "op": node._op,
                "operands": [replay.index[operand] for operand in node._operands],
                "data": spell(number_of(node)),
                "grad": None if node._constant else spell(grad),
                "expression": _expression(node, replay.operands(node)),
            }
            for node, name, grad in zip(nodes, names_of, start, strict=True)
        ],
        "steps": [
            {"kind": "start"},
            *({"kind": "forward", "node": i} for i, node in enumerate(nodes) if node._operands),
            *replay.steps(),
            {"kind": "end"},
        ],
    }


class _Backward:
    """A replay of `engine.Value.backward` on a list of gradients, which leaves the Values' own alone."""

    def __init__(
        self, root: Value, nodes: list[Value], formulas: list[FormulaText], seed: float, keep_grads: bool
    ) -> None:
        self.root, self.nodes, self.formulas, self.seed = root, nodes, formulas, seed
        self.index = {node: i for i, node in enumerate(nodes)}
        kept = {node for node in nodes if keep_grads and not (node._operands or is_hand_written(node))}
        self.grads = [node.grad if node in kept else 0.0 for node in nodes]

    def operands(self, node: Value) -> list[FormulaText]:
        return [self.formulas[self.index[operand]] for operand in node._operands]

    def steps(self) -> Iterator[dict[str, Any]]:
        root = self.index[self.root]
        self.grads[root] = self.seed
        yield {"kind": "seed", "node": root, "after": spell(self.seed)}
        reached = set(below(self.root, operands_of=receivers))
        for i in reversed(range(len(self.nodes))):  # newest first, as the engine does
            if self.nodes[i] in reached:
                yield from self._handwritten(i) if is_hand_written(self.nodes[i]) else self._by_rule(i)

    def _by_rule(self, i: int) -> Iterator[dict[str, Any]]:
        node, rule = self.nodes[i], self.nodes[i]._rule
        if rule is None:
            return
        numbers = [number_of(operand) for operand in node._operands]
        for k, (operand, partial) in enumerate(zip(node._operands, rule.partials, strict=True)):
            if not partial or not operand.requires_grad:
                continue
            to = self.index[operand]
            local = as_float(partial(number_of(node), *numbers), "the partial")
            before = self.grads[to]
            self.grads[to] += self.grads[i] * local
            texts = partial_formula(partial, self.formulas[i], self.operands(node))
            step = {"kind": "backward", "node": i, "to": to, "operand": k, "formula": texts}
            yield step | chain_rule(self.grads[i], local, before, self.grads[to])

    def _handwritten(self, i: int) -> Iterator[dict[str, Any]]:
        before = self.grads
        with unchanged(self.nodes):  # it runs on the Values
            for node, grad in zip(self.nodes, before, strict=True):
                node.grad = grad
            self.nodes[i]._backward()
            self.grads = [node.grad for node in self.nodes]
        yield from handwritten_steps(i, before, self.grads, [node._constant for node in self.nodes])


def _names(nodes: list[Value], variables: Mapping[str, Any]) -> list[str]:
    """A name for each node: its label, the variable that holds it, or v1 v2 …; for a constant, its number.

    Names are unique: a label that several nodes share is numbered.
    """
    found: dict[Value, str] = {}
    for name, value in variables.items():
        if isinstance(value, (Value, engine.Value)) and not name.startswith("_"):  # notebooks store results as _1 _2 …
            found.setdefault(value, name)
    wanted = ["" if node._constant else node.label or found.get(node, "") for node in nodes]
    times = Counter(wanted)
    taken, numbers = set(wanted), {name: count(1) for name in times}
    result = []
    for node, name in zip(nodes, wanted, strict=True):
        if node._constant:
            name = show(number_of(node))
        elif not name or times[name] > 1:
            stem, numbering = f"{name}_" if name else "v", numbers[name]
            while (name := f"{stem}{next(numbering)}") in taken:
                pass
            taken.add(name)
        result.append(name)
    return result


def _expression(node: Value, operands: list[FormulaText]) -> dict[str, str] | None:
    """How the node was computed."""
    if not operands:
        return None
    if node._rule is not None:
        return FormulaText.of(node._rule, number_of(node), tuple(operands)).texts()
    tag = node._op or "f"  # made by hand, so only its tag is known
    names, numbers = [", ".join(operand.text(numbers=n) for operand in operands) for n in (False, True)]
    return {"names": f"{tag}({names})", "numbers": f"{tag}({numbers})"}


def partial_formula(partial: Rule, result: FormulaText, operands: Sequence[FormulaText]) -> dict[str, str] | None:
    """A local derivative in names and in numbers."""
    try:
        return formula(partial(result, *operands)).texts()
    except Exception:  # a user's rule, written for floats only, has a number and no formula
        return None


def chain_rule(grad: float, local: float, before: float, after: float) -> dict[str, Any]:
    """The numbers of a backward step: `before + grad * local`, which is `after`."""
    product = grad * local
    numbers = {"grad": grad, "partial": local, "product": product, "before": before, "after": after}
    return {
        **{name: spell(number) for name, number in numbers.items()},
        "sum": f"{_bracketed(before, first=True)} + {_bracketed(product)}",
        "multiplication": f"{_bracketed(grad, first=True)} · {_bracketed(local)}",
    }


def handwritten_steps(
    i: int, before: Sequence[float], after: Sequence[float], constants: Sequence[bool]
) -> Iterator[dict[str, Any]]:
    """What a call of the hand-written `_backward` of node `i` did to the gradients."""
    for to, (old, grad) in enumerate(zip(before, after, strict=True)):
        if repr(old) != repr(grad) and not constants[to]:
            numbers = {"grad": before[i], "before": old, "after": grad, "change": grad - old}
            yield {"kind": "handwritten", "node": i, "to": to, **{key: spell(n) for key, n in numbers.items()}}


def spell(number: float) -> dict[str, str]:
    """A number as Python writes it, and for reading."""
    return {"exact": repr(number), "text": show(number)}


def _bracketed(number: float, first: bool = False) -> str:
    text = show(number)
    return text if first or not text.startswith("-") else f"({text})"


# In words.


def explain(root: Value) -> tuple[list[str], list[str]]:
    r"""The forward steps and the backward steps of a graph, one line each. A root without a label is called L.

    >>> a, b = Value(2.0, label="a"), Value(-3.0, label="b")
    >>> forward, backward = explain(a * b)
    >>> forward
    ['L = a · b = 2 · (-3) = -6']
    >>> print(*backward, sep="\n")
    L.grad = 1
    a.grad += L.grad · b = 1 · (-3) = -3
    b.grad += L.grad · a = 1 · 2 = 2
    """
    return in_words(describe(root, names={} if root.label else {"L": root}))


def in_words(description: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The forward steps and the backward steps of what `describe` returned, one line each."""
    nodes, steps = description["nodes"], description["steps"]
    names = [node["name"] for node in nodes]
    forward = [_forward(nodes[step["node"]]) for step in steps if step["kind"] == "forward"]
    wording = {"seed": _seed, "backward": _backward, "handwritten": _handwritten}
    return forward, [wording[step["kind"]](step, names) for step in steps if step["kind"] in wording]


def _forward(node: dict[str, Any]) -> str:
    expression = node["expression"]
    return " = ".join(dict.fromkeys([node["name"], expression["names"], expression["numbers"], node["data"]["text"]]))


def _seed(step: dict[str, Any], names: list[str]) -> str:
    return f"{names[step['node']]}.grad = {step['after']['text']}"


def _backward(step: dict[str, Any], names: list[str]) -> str:
    slope = step["formula"]["names"] if step["formula"] else step["partial"]["text"]
    factor = f"({slope})" if " " in slope or slope.startswith("-") else slope
    words = f"{names[step['to']]}.grad += {names[step['node']]}.grad · {factor}"
    words += f" = {step['multiplication']} = {step['product']['text']}"
    return words if float(step["before"]["exact"]) == 0.0 else f"{words}, so {step['sum']} = {step['after']['text']}"


def _handwritten(step: dict[str, Any], names: list[str]) -> str:
    change = f"{step['before']['text']} → {step['after']['text']}"
    return f"{names[step['to']]}.grad: {change}, by the `_backward` of {names[step['node']]}, written by hand"
