"""`supervise`: a training loop of the user's own, watched from backward pass to backward pass for the classic mistakes.

Before a pass the parameters' gradients and the graph are as the user's code left them, and after it they are as the
engine left them: that is where gradients that were not zeroed, a graph that is out of date, rules written by hand, dead
units and layers without gradient can be seen. How the loss and the parameters move tells of the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, takewhile
from statistics import median
from typing import Any

import numpy as np

from chainrule.core.arguments import whole_number
from chainrule.core.bulk import read_data, replay, write_data
from chainrule.core.graph import is_hand_written, lay_flat
from chainrule.core.observation import Observer, observed
from chainrule.core.value import Value
from chainrule.debug.anomalies import (
    backward_anomaly,
    first_bad_node,
    first_bad_push,
    forward_anomaly,
    names_of,
)
from chainrule.debug.culprit import backward_of, local_slope, push
from chainrule.debug.findings import Checkup, Finding
from chainrule.debug.layers import FAR, gradients_by_layer
from chainrule.debug.watched_run import is_ours, unchanged
from chainrule.nn import Module
from chainrule.ops import relu

FIRST = 4  # passes that are examined, whatever `every` says
LAST = 4  # examinations in which a unit must be dead, or a layer without gradient
DEAD = 0.25  # share of a layer's units above which it is worth a word: a few do no harm
ENOUGH = 8  # passes before the loss is judged
ALIKE = 3  # hand-written nodes of one definition that are tried in an examination
SMALL_STEP = 1e-4  # share of the parameters' size by which a step moves them; a thousandth is usual


@contextmanager
def supervise(model: Module, every: int = 10) -> Iterator[Checkup]:
    """Watch a training loop; what is wrong with it stands in the report when the block ends.

    Every backward pass is looked at; the first four and then each `every`-th graph are gone through node by node, which
    takes a few times as long as building it (native engine).

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
    checkup = Checkup()
    supervisor = Supervisor(model, whole_number(every, "every"))
    try:
        with observed(supervisor):
            yield checkup
    finally:
        supervisor.report(checkup)


class Supervisor(Observer):
    """Sees backward passes, and says what was wrong with them."""

    def __init__(self, model: Module, every: int = 10) -> None:
        self.model, self.every = model, every
        self.parameters = model.parameters()
        self.names = names_of(model)
        self.passes = self.largest = 0
        self.losses: list[float] = []
        self.data: list[float] = []  # of the parameters, at the pass before
        self.moves: list[float] = []  # how far they moved since, by their size
        self.slopes: list[float] = []  # how fast the loss could change with them, by its size
        self.held: list[tuple[int, str, float]] = []  # passes that began with a gradient, in which parameter, how much
        self.outdated = self.anomaly = ""
        self.outdated_passes = 0
        self.faults: dict[str, str] = {}  # what a rule written by hand does wrong, by the finding's name
        self.unreached: set[int] = set(self.names)  # parameters that no loss depended on
        self.graph: list[Value] = []  # that of the pass under way, oldest first, if it is examined
        self.rules: list[Any] = []  # of its nodes, None for leaves and what is written by hand
        self.units: list[dict[str, bool]] = []  # whether a unit gave anything but 0, in each examination
        self.layers: list[dict[str, float]] = []  # root mean square of each layer's gradient, likewise

    def before_backward(self, root: Value) -> None:
        data = [parameter._data for parameter in self.parameters]
        moved = bool(self.data) and data != self.data
        if moved:
            size = math.hypot(*data)
            self.moves.append(math.dist(data, self.data) / size if size else 0.0)
            grads = [parameter.grad for parameter in self.parameters]
            if any(grads):
                k = max(range(len(grads)), key=lambda k: abs(grads[k]))
                self.held.append((self.passes + 1, self.names[id(self.parameters[k])], grads[k]))
        self.data = data
        self.losses.append(root._data)
        self.passes += 1
        self.graph = []
        is_due = self.passes <= FIRST or self.passes % self.every == 0 or not math.isfinite(root._data)
        if is_due and not self.anomaly:
            self.graph, self.rules, _ = lay_flat(root)
            self.largest = max(self.largest, len(self.graph))
            self.examine(root)

    def after_backward(self, root: Value) -> None:
        examined = bool(self.graph)
        self.graph, self.rules = [], []
        grads = [parameter.grad for parameter in self.parameters]
        if not all(map(math.isfinite, grads)):
            if not self.anomaly and (node := first_bad_push(root)) is not None:
                self.anomaly = f"pass {self.passes}, {backward_anomaly(root, node, self.names)}"
        elif examined and root._data:
            self.slopes.append(math.hypot(*grads) * math.hypot(*self.data) / abs(root._data))
            by_layer = gradients_by_layer(self.model)
            self.layers.append({name: math.hypot(*g) / math.sqrt(len(g)) for name, g in by_layer.items()})

    # What a graph shows.

    def examine(self, root: Value) -> None:
        self.unreached -= {id(node) for node in self.graph}
        if not math.isfinite(root._data) and (bad := first_bad_node(root)) is not None:
            self.anomaly = f"pass {self.passes}, {forward_anomaly(bad, self.names)}"
            return
        outdated = first_outdated(self.graph)
        if outdated is not None:
            self.outdated_passes += 1
            self.outdated = self.outdated or self.say_outdated(outdated)
        self.units.append(self.firing_units())
        tried: dict[Any, int] = {}
        ours = {None, *(row for row in set(self.rules) if row and is_ours(row.forward.__code__))}
        for node, rule in zip(self.graph, self.rules, strict=True):
            if rule not in ours or (rule is None and node._operands and is_hand_written(node)):
                key = rule or getattr(node._backward, "__code__", node._rule)
                tried[key] = tried.get(key, 0) + 1
                if tried[key] <= ALIKE:
                    self.try_rule(node)

    def say_outdated(self, node: Value) -> str:
        names = [self.names.get(id(operand)) or operand.label for operand in node._operands]
        named = [f"`{name}`" for name in names if name]
        of = f" of {' and '.join(named)}" if named else ""
        now = f"its operands now give {_again(node):.6g}"
        return f"in pass {self.passes} the `{node._op}`{of} is {node._data:.6g}, and {now}"

    def firing_units(self) -> dict[str, bool]:
        """For each unit that ends in a relu, whether it gave anything but 0 for any input."""
        firing: dict[str, bool] = {}
        for node, rule in zip(self.graph, self.rules, strict=True):
            if rule is relu:
                met = [self.names[id(leaf)] for leaf in _summed(node._operands[0]) if id(leaf) in self.names]
                if met:
                    unit = _common(met)
                    firing[unit] = firing.get(unit, False) or node._data > 0.0
        return firing

    def try_rule(self, node: Value) -> None:
        """Call a rule written by hand to see what it does; a mistake is noted."""
        operands = list(dict.fromkeys(node._operands))
        with unchanged([node, *operands]):
            partials = push(node, operands)
            held = 1.0 + max((abs(partial) for partial in partials if math.isfinite(partial)), default=0.0)
            totals = push(node, operands, held=held)
            twice = push(node, operands, grad=2.0)
        where = backward_of(node).removeprefix("its ")
        if not all(_close(total, held + partial) for total, partial in zip(totals, partials, strict=True)):
            self.faults.setdefault(
                "_backward overwrites",
                f"{where} of `{node._op}`: an operand that held {held:.6g} should come to "
                f"{held + partials[0]:.6g}, and has {totals[0]:.6g}",
            )
        elif not all(_close(double, 2.0 * partial) for double, partial in zip(twice, partials, strict=True)):
            self.faults.setdefault(
                "_backward is wrong",
                f"{where} of `{node._op}` passes on {partials[0]:.6g} for a gradient of 1 and {twice[0]:.6g} for one "
                "of 2: it should be multiplied by `out.grad`, once",
            )
        elif node._rule is not None and not is_hand_written(node):
            for operand, partial in zip(operands, partials, strict=True):
                slope = local_slope(node, operand)
                if slope.settled and not operand._constant and not slope.agrees(partial, 1e-6):
                    rule = f"the rule of `{node._op}` gives {partial:.6g} at {operand._data:.6g}"
                    self.faults.setdefault("_backward is wrong", f"{rule}, where its slope is {slope.value:.6g}")

    # What it comes to.

    def report(self, checkup: Checkup) -> None:
        """Add the findings to a report."""
        checkup.passes, checkup.nodes = self.passes, max(checkup.nodes, self.largest)
        checkup.losses = list(self.losses)
        if self.passes:
            checkup.add(*self.mistakes())
            if not MISTAKES & set(checkup.names()):
                checkup.add(*self.learning_rate())
            checkup.add(*self.states())
            if "learning rate too high" not in checkup.names():  # else they were thrown about
                checkup.add(*self.uneven_layers())

    def mistakes(self) -> Iterator[Finding]:
        """What the program does wrong."""
        if self.held:
            first, name, number = self.held[0]
            last = self.held[-1]
            yield Finding(
                "gradients not zeroed",
                f"{len(self.held)} of {self.passes} backward passes added to gradients that a step had used already.",
                (
                    f"pass {first} began with `{name}`.grad at {number:.6g}",
                    f"pass {last[0]} began with `{last[1]}`.grad at {last[2]:.6g}",
                )[: len(self.held)],
                "Call optimizer.zero_grad() in every step, before loss.backward().",
            )
        if self.outdated:
            yield Finding(
                "graph older than its leaves",
                f"{self.outdated_passes} of the graphs that were examined were built before their leaves changed.",
                (self.outdated,),
                "Compute the loss again in every step, after the parameters were changed and before loss.backward().",
            )
        for name, fault in self.faults.items():
            remedy = "Write `operand.grad += ...`, not `=`." if name == "_backward overwrites" else GRADCHECK
            yield Finding(name, "A rule written by hand breaks the chain rule.", (fault,), remedy)

    def states(self) -> Iterator[Finding]:
        """What state the network is in."""
        if self.anomaly:
            where = "Wrap the loop in `with chainrule.detect_anomaly(model):` for the line of your code."
            yield Finding("number not finite", "A number became infinite or NaN.", (self.anomaly,), where)
        if self.largest and self.unreached:
            names = [self.names[key] for key in self.names if key in self.unreached]
            yield Finding(
                "parameters without gradient",
                f"The loss does not depend on {len(names)} of {len(self.names)} parameters.",
                (_some(names),),
                "Use them in the model, or take them out; where `.data` is read on the way, the gradient ends.",
            )
        dead = self.dead_units()
        if dead:
            yield Finding(
                "dead units",
                "The relu of some units is 0 for every input: no gradient reaches their weights, so they stay dead.",
                tuple(f"{len(units)} of {count} in {part}: {_some(units)}" for part, (units, count) in dead.items()),
                "Use a smaller learning rate, or leaky_relu, or another initialisation (init='he').",
            )

    def dead_units(self) -> dict[str, tuple[list[str], int]]:
        """The dead units of each layer that has too many, and how many units it has."""
        recent = self.units[-LAST:]
        layers: dict[str, tuple[list[str], int]] = {}
        for unit in recent[-1] if recent else ():
            layer = unit.rpartition(".")[0] or unit
            units, count = layers.get(layer, ([], 0))
            if not any(firing.get(unit, True) for firing in recent):
                units = [*units, unit]
            layers[layer] = units, count + 1
        return {layer: (units, count) for layer, (units, count) in layers.items() if len(units) > DEAD * count}

    def uneven_layers(self) -> Iterator[Finding]:
        """Layers whose gradients are far from the others'."""
        recent = self.layers[-LAST:]
        if not recent:
            return
        sizes = {name: median(row[name] for row in recent) for name in recent[-1]}
        largest = max(sizes.values())
        table = "gradients, root mean square: " + ", ".join(f"{name} {size:.2g}" for name, size in sizes.items())
        silent = [name for name, size in sizes.items() if size == 0.0]
        if silent and not self.dead_units() and not self.unreached:
            yield Finding(
                "parameters without gradient",
                f"All gradients are exactly 0 in {', '.join(silent)}.",
                (table,),
                "Look for a factor 0, a relu or a clip that cuts them off, or weights that began equal at 0.",
            )
        order = list(sizes)
        faint = [name for name in order if 0.0 < sizes[name] * FAR < largest]
        peak = order.index(max(order, key=lambda name: sizes[name]))
        if vanishing := [name for name in faint if order.index(name) < peak]:
            yield Finding(
                "vanishing gradients",
                f"Those of {', '.join(vanishing)} are more than {FAR:,.0f} times smaller than the largest.",
                (table,),
                "Use relu or fewer layers, smaller weights (init='xavier'), or inputs scaled to about 1.",
            )
        if exploding := [name for name in faint if order.index(name) > peak]:
            yield Finding(
                "exploding gradients",
                f"Going back to {order[peak]}, they grow {FAR:,.0f}-fold and more over {', '.join(exploding)}.",
                (table,),
                "Use smaller weights (init='xavier' or 'he'), or optim.clip_grad_norm before each step.",
            )

    def learning_rate(self) -> Iterator[Finding]:
        """What the curve of the loss says; only where it is clear."""
        curve = [number for number in self.losses if math.isfinite(number)]
        overflowed = len(curve) < len(self.losses)
        if len(curve) < (2 if overflowed else ENOUGH) or not self.moves:
            return
        start, end = ends(curve)
        step = median(self.moves)
        moved = f"a step moves the parameters by {step:.2g} of their size (a thousandth is usual)"
        seen = f"loss {summary(self.losses)}"
        jumps = sum(abs(b - a) for a, b in pairwise(curve)) / (len(curve) - 1)
        turns = sum((b - a) * (c - b) < 0.0 for a, b, c in zip(curve, curve[1:], curve[2:], strict=False))
        bouncing = turns > 0.8 * (len(curve) - 2) and jumps > 0.5 * abs(end) and end > 0.5 * start
        if (overflowed and max(map(abs, curve)) > 10.0 * abs(curve[0])) or end > start + 0.2 * abs(start) or bouncing:
            yield Finding(
                "learning rate too high",
                "The loss jumps up and down." if bouncing and not overflowed else "The loss rises.",
                (seen, moved),
                "Divide the learning rate by 10, and look again.",
            )
        elif end > start - 0.01 * abs(start) and step < SMALL_STEP and self.slopes and min(self.slopes) > 1.0:
            yield Finding(
                "learning rate too low",
                "The loss hardly moves, and its slope says that it could.",
                (seen, moved, f"moving them by 1 % could change the loss by {min(self.slopes):.2g} % or more"),
                "Multiply the learning rate by 10, and look again.",
            )


# These alone can spoil a loss, whatever the learning rate.
MISTAKES = {"gradients not zeroed", "graph older than its leaves", "_backward overwrites", "_backward is wrong"}
GRADCHECK = "Check it with chainrule.gradcheck, which says what it should give."


def is_users_rule(node: Value) -> bool:
    """Whether the user wrote what the node does backward: a `_backward`, or the partials of an op.

    >>> is_users_rule(Value(1.0) * 2.0)
    False
    """
    return is_hand_written(node) or (node._rule is not None and not is_ours(node._rule.forward.__code__))


def ends(curve: Sequence[float]) -> tuple[float, float]:
    """The mean of the first and of the last quarter: noise of single steps aside.

    >>> ends([4.0, 3.0, 2.0, 1.0])
    (4.0, 1.0)
    """
    quarter = max(1, len(curve) // 4)
    return sum(curve[:quarter]) / quarter, sum(curve[-quarter:]) / quarter


def summary(curve: Sequence[float]) -> str:
    """A curve in a few numbers.

    >>> summary([4.0, 3.0, 2.0, 1.0])
    '4 → 3 → 2 → 1 in 4 steps'
    """
    places = sorted({round(k * (len(curve) - 1) / 4) for k in range(5)})
    return f"{' → '.join(f'{curve[k]:.4g}' for k in places)} in {len(curve)} steps"


def first_outdated(graph: list[Value]) -> Value | None:
    """The first node, oldest first, of which its operands would now make another number than it has.

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
    return next((graph[k] for k in np.flatnonzero(then != now) if not _close(then[k], now[k])), None)


def _again(node: Value) -> float:
    assert node._rule is not None
    return float(node._rule.forward(*[operand._data for operand in node._operands]))


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


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + rest


def _close(a: float, b: float) -> bool:
    """Equal but for rounding; what is not finite gets the benefit of the doubt."""
    return not math.isfinite(a - b) or abs(a - b) <= 1e-9 * max(abs(a), abs(b))
