"""`supervise`: a training loop of the user's own, watched from backward pass to backward pass for the classic mistakes.

Before a pass, the parameters' gradients and the graph are as the user's code left them; after it, as the engine did.
There it sees gradients that were not zeroed, outdated graphs, rules written by hand, dead units and layers without
gradient; how loss and parameters move tells of the learning rate. Of its `Record`, `findings` are made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

import numpy as np

from chainrule.core.arguments import whole_number
from chainrule.core.bulk import read_data, replay, write_data
from chainrule.core.code_lines import is_ours
from chainrule.core.graph import is_hand_written, lay_flat, unchanged
from chainrule.core.recording import Observer, observed
from chainrule.core.value import Value
from chainrule.debug.anomalies import backward_anomaly, first_bad_node, first_bad_push, forward_anomaly, names_of
from chainrule.debug.findings import Checkup, Record, findings
from chainrule.debug.layers import gradients_by_layer
from chainrule.debug.rules import backward_of, close, local_slope, tried_rule
from chainrule.nn import Module
from chainrule.ops import relu

FIRST = 4  # passes that are examined, whatever `every` says
ALIKE = 3  # hand-written nodes of one definition that are tried per examination


@contextmanager
def supervise(model: Module, every: int = 10) -> Iterator[Checkup]:
    """Watch a training loop; when the block ends, the report says what is wrong with it.

    Every backward pass is looked at; the first four graphs, and then every `every`-th, are examined node by node, which
    takes a few times as long as building them (native engine).

    >>> from chainrule.nn import MLP
    >>> from chainrule.optim import SGD
    >>> model = MLP(2, [4, 1], activation="tanh", rng=1)
    >>> optimizer = SGD(model.parameters(), lr=0.01)
    >>> with supervise(model) as checkup:
    ...     for _ in range(3):
    ...         loss = (model([1.0, 2.0]) - 1.0) ** 2
    ...         loss.backward()
    ...         optimizer.step()
    >>> checkup.names()
    ['gradients not zeroed']
    """
    if not isinstance(model, Module) or not model.parameters():
        raise TypeError(f"`model` must be an nn.Module that has parameters, got {type(model).__name__}")
    checkup, supervisor = Checkup(), Supervisor(model, whole_number(every, "every"))
    try:
        with observed(supervisor):
            yield checkup
    finally:
        record = supervisor.record
        checkup.passes, checkup.nodes, checkup.losses = record.passes, record.nodes, list(record.losses)
        checkup.add(*findings(record))


class Supervisor(Observer):
    """Sees backward passes, and keeps the record."""

    def __init__(self, model: Module, every: int = 10) -> None:
        self.model, self.every = model, every
        self.parameters, self.names = model.parameters(), names_of(model)
        self.record = Record(list(self.names.values()))
        self.data: list[float] = []  # of the parameters, at the previous pass
        self.graph: list[Value] = []  # of the current pass, oldest first, if it is examined

    def before_backward(self, root: Value) -> None:
        record, self.graph = self.record, []
        record.passes += 1
        record.losses.append(root._data)
        self.note_movement()
        is_due = record.passes <= FIRST or record.passes % self.every == 0 or not math.isfinite(root._data)
        if is_due and not record.anomaly:
            self.graph, rules, _ = lay_flat(root)
            record.nodes = max(record.nodes, len(self.graph))
            self.examine(root, rules)

    def note_movement(self) -> None:
        """How far the parameters moved since the previous pass, and whether they kept their gradients."""
        before, self.data = self.data, [parameter._data for parameter in self.parameters]
        if not before or self.data == before:
            return
        size = math.hypot(*self.data)
        self.record.moves.append(math.dist(self.data, before) / size if size else 0.0)
        if any(parameter.grad for parameter in self.parameters):
            largest = max(self.parameters, key=lambda parameter: abs(parameter.grad))
            self.record.held.append((self.record.passes, self.names[id(largest)], largest.grad))

    def after_backward(self, root: Value) -> None:
        record, examined, self.graph = self.record, bool(self.graph), []
        grads = [parameter.grad for parameter in self.parameters]
        if not all(map(math.isfinite, grads)):
            if not record.anomaly and (node := first_bad_push(root)) is not None:
                record.anomaly = f"pass {record.passes}, {backward_anomaly(root, node, self.names)}"
        elif examined and root._data:
            record.slopes.append(math.hypot(*grads) * math.hypot(*self.data) / abs(root._data))
            by_layer = gradients_by_layer(self.model)
            record.layers.append({name: math.hypot(*g) / math.sqrt(len(g)) for name, g in by_layer.items()})

    def examine(self, root: Value, rules: list[Any]) -> None:
        """Go through a graph; `rules` are those of its nodes, None for leaves and what is written by hand."""
        record = self.record
        record.reached |= {self.names[id(node)] for node in self.graph if id(node) in self.names}
        if not math.isfinite(root._data) and (bad := first_bad_node(root)) is not None:
            record.anomaly = f"pass {record.passes}, {forward_anomaly(bad, self.names)}"
            return
        if (outdated := first_outdated(self.graph)) is not None:
            record.outdated_passes += 1
            record.outdated = record.outdated or self.say_outdated(outdated)
        record.units.append(self.firing_units(rules))
        for node in users_rules(self.graph, rules):
            for name, fault in rule_faults(node):
                record.faults.setdefault(name, fault)

    def say_outdated(self, node: Value) -> str:
        assert node._rule is not None
        names = [self.names.get(id(operand)) or operand.label for operand in node._operands]
        named = [f"`{name}`" for name in names if name]
        of = f" of {' and '.join(named)}" if named else ""
        now = float(node._rule.forward(*[operand._data for operand in node._operands]))
        seen = f"in pass {self.record.passes} the `{node._op}`{of} is {node._data:.6g}"
        return f"{seen}, and its operands now give {now:.6g}"

    def firing_units(self, rules: list[Any]) -> dict[str, bool]:
        """For each unit that ends in a relu, whether it was anything but 0 for any input."""
        firing: dict[str, bool] = {}
        for node, rule in zip(self.graph, rules, strict=True):
            leaves = _summed(node._operands[0]) if rule is relu else ()
            if met := [self.names[id(leaf)] for leaf in leaves if id(leaf) in self.names]:
                unit = _common(met)
                firing[unit] = firing.get(unit, False) or node._data > 0.0
        return firing


def users_rules(graph: list[Value], rules: list[Any]) -> Iterator[Value]:
    """The nodes whose rules the user wrote, a few of each definition."""
    tried: Counter[Any] = Counter()
    ours = {None, *(rule for rule in set(rules) if rule and is_ours(rule.forward.__code__))}
    for node, rule in zip(graph, rules, strict=True):
        if rule not in ours or (rule is None and node._operands and is_hand_written(node)):
            key = rule or getattr(node._backward, "__code__", node._rule)
            tried[key] += 1
            if tried[key] <= ALIKE:
                yield node


def rule_faults(node: Value) -> Iterator[tuple[str, str]]:
    """Call a rule written by hand to see what it does wrong: findings by name, and what was seen."""
    operands = list(dict.fromkeys(node._operands))
    with unchanged([node, *operands]):
        rule = tried_rule(node, operands)
    partials, held, name = rule.partials, rule.held, f"{backward_of(node)} of `{node._op}`"
    if not rule.accumulates:
        total = f"should come to {held + partials[0]:.6g}, and has {rule.totals[0]:.6g}"
        yield "_backward overwrites", f"{name}: an operand that held {held:.6g} {total}"
    elif not rule.is_proportional:
        passed = f"{partials[0]:.6g} for a gradient of 1 and {rule.doubled[0]:.6g} for one of 2"
        yield "_backward is wrong", f"{name} passes on {passed}: it should be multiplied by `out.grad`, once"
    elif node._rule is not None and not is_hand_written(node):
        for operand, partial in zip(operands, partials, strict=True):
            slope = local_slope(node, operand)
            if slope.settled and not operand._constant and not slope.agrees(partial, 1e-6):
                found = f"the rule of `{node._op}` gives {partial:.6g} at {operand._data:.6g}"
                yield "_backward is wrong", f"{found}, where its slope is {slope.value:.6g}"


def first_outdated(graph: list[Value]) -> Value | None:
    """The first node, oldest first, whose operands would now make another number than it has.

    >>> x = Value(3.0)
    >>> graph = [x, x * x]
    >>> x.data = 4.0
    >>> first_outdated(graph).data
    9.0
    """
    then, now = np.empty(len(graph)), np.empty(len(graph))
    read_data(graph, then)
    try:
        replay(graph)
        read_data(graph, now)
    finally:
        write_data(graph, then)
    return next((graph[k] for k in np.flatnonzero(then != now) if not close(then[k], now[k])), None)


def _summed(node: Value) -> Iterator[Value]:
    """The leaves among the terms of a sum, and among the factors of its products."""
    pending = [node]
    while pending:
        term = pending.pop()
        name = term._rule.name if term._rule else ""
        if name in ("add", "sub", "neg"):
            pending += term._operands
        elif name == "mul":
            yield from (factor for factor in term._operands if not factor._operands)
        elif not term._operands:
            yield term


def _common(names: Sequence[str]) -> str:
    """What the names of a unit's parameters begin with: `layers.0.neurons.3` for its weights and bias."""
    columns = zip(*[name.split(".") for name in names], strict=False)
    parts = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
    return ".".join(parts) or names[0]
