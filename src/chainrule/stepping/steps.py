"""`stepper`: a graph and its backward pass as a page to step through.

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
from collections.abc import Iterator, Mapping
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
    return page(f"How {name} is computed and differentiated", "stepper", description)


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
                "data": _number(number_of(node)),
                "grad": None if node._constant else _number(grad),
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
        self.root = root
        self.nodes = nodes
        self.formulas = formulas
        self.seed = seed
        self.index = {node: i for i, node in enumerate(nodes)}
        self.grads = [node.grad if keep_grads and not _passes_on(node) else 0.0 for node in nodes]

    def operands(self, node: Value) -> list[FormulaText]:
        return [self.formulas[self.index[operand]] for operand in node._operands]

    def steps(self) -> Iterator[dict[str, Any]]:
        root = self.index[self.root]
        self.grads[root] = self.seed
        yield {"kind": "seed", "node": root, "after": _number(self.seed)}
        reached = set(below(self.root, operands_of=receivers))
        for i in reversed(range(len(self.nodes))):  # newest first, as the engine does
            if self.nodes[i] not in reached:
                continue
            if is_hand_written(self.nodes[i]):
                yield from self._handwritten(i)
            elif self.nodes[i]._rule is not None:
                yield from self._by_rule(i)

    def _by_rule(self, i: int) -> Iterator[dict[str, Any]]:
        node, rule = self.nodes[i], self.nodes[i]._rule
        assert rule is not None
        numbers = [number_of(operand) for operand in node._operands]
        for k, (operand, partial) in enumerate(zip(node._operands, rule.partials, strict=True)):
            if not partial or not operand.requires_grad:
                continue
            to = self.index[operand]
            local = as_float(partial(number_of(node), *numbers), "the partial")
            before, product = self.grads[to], self.grads[i] * local
            self.grads[to] += product
            yield {
                "kind": "backward",
                "node": i,
                "to": to,
                "operand": k,
                "grad": _number(self.grads[i]),
                "partial": _number(local),
                "formula": self._partial_formula(partial, i),
                "product": _number(product),
                "before": _number(before),
                "after": _number(self.grads[to]),
                "sum": f"{_bracketed(before, first=True)} + {_bracketed(product)}",
                "multiplication": f"{_bracketed(self.grads[i], first=True)} · {_bracketed(local)}",
            }

    def _partial_formula(self, partial: Rule, i: int) -> dict[str, str] | None:
        try:
            return formula(partial(self.formulas[i], *self.operands(self.nodes[i]))).texts()
        except Exception:  # a user's rule, written for floats only, has a number and no formula
            return None

    def _handwritten(self, i: int) -> Iterator[dict[str, Any]]:
        before = self.grads
        self.grads = self._after_calling(i)
        for to, (old, grad) in enumerate(zip(before, self.grads, strict=True)):
            if repr(old) != repr(grad) and not self.nodes[to]._constant:
                yield {
                    "kind": "handwritten",
                    "node": i,
                    "to": to,
                    "grad": _number(before[i]),
                    "before": _number(old),
                    "after": _number(grad),
                    "change": _number(grad - old),
                }

    def _after_calling(self, i: int) -> list[float]:
        """All gradients after a hand-written `_backward`, which runs on the Values; these are then restored."""
        with unchanged(self.nodes):
            for node, grad in zip(self.nodes, self.grads, strict=True):
                node.grad = grad
            self.nodes[i]._backward()
            return [node.grad for node in self.nodes]


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


def _passes_on(node: Value) -> bool:
    return bool(node._operands) or is_hand_written(node)


def _number(number: float) -> dict[str, str]:
    return {"exact": repr(number), "text": show(number)}


def _bracketed(number: float, first: bool = False) -> str:
    text = show(number)
    return text if first or not text.startswith("-") else f"({text})"
