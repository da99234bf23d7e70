"""Gradient checking: what `backward()` says against what the numbers say, and whose fault a difference is.

An op is a black box, so it works for the engines, a learner's own class and hand-written `_backward`s alike. The chain
rule holds at every node by itself: d node = Σ partial · d operand, where the partials are what one call of `_backward`
pushes and the movements are measured by running `f` at neighbouring inputs. The oldest node that breaks this is the
culprit. If none does, the walk over the nodes is.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from math import inf, isclose, isfinite, nan
from typing import Any, NamedTuple

from chainrule.core.arguments import counted
from chainrule.core.code_lines import definition
from chainrule.core.display import shown
from chainrule.core.graph import number_of, operands_of, unchanged
from chainrule.debug.finite_differences import Derivative, derivative
from chainrule.debug.rules import TriedRule, backward_of, close, local_slope, push, tried_rule
from chainrule.debug.watched_run import Creations, Experiment, Run, backward_pass

MEASURED = 1e-6  # relative error that a number put together from measurements may have
about = functools.partial(isclose, rel_tol=MEASURED)  # equal as far as a measured number can tell


class Row(NamedTuple):
    """One input number: its two derivatives, and whether they agree."""

    name: str
    value: float
    analytic: float
    numerical: float
    error: float  # how far the two are apart; at a corner, how far `analytic` is from the slopes of the two sides
    ok: bool
    note: str = ""

    @property
    def distance(self) -> float:
        """The error as a number that can be compared, whatever the derivatives are."""
        return self.error if isfinite(self.error) else sys.float_info.max


class Report:
    """The outcome of `gradcheck`: iterable over its rows, true if all agree, a table when printed.

    >>> [(row.name, row.analytic) for row in gradcheck(lambda x, y: x * y, 3.0, 2.0)]
    [('x', 2.0), ('y', 3.0)]
    """

    def __init__(self, rows: Sequence[Row], tolerance: float, diagnosis: str = "") -> None:
        self.rows, self.tolerance, self.diagnosis = tuple(rows), tolerance, diagnosis

    @property
    def ok(self) -> bool:
        """Whether every derivative agrees."""
        return all(row.ok for row in self.rows)

    def check(self) -> Report:
        """Return this report if all is well; otherwise raise an AssertionError that shows it."""
        if not self.ok:
            raise AssertionError(f"the gradient is wrong\n{self}")
        return self

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        table = [["input", "value", "analytic", "numerical", "error", ""]]
        for row in self.rows:
            numbers = [f"{number:.10g}" for number in (row.value, row.analytic, row.numerical)]
            table.append([row.name, *numbers, f"{row.error:.0e}", "ok" if row.ok else "WRONG"])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:5]), verdict]).rstrip()
            for name, *numbers, verdict in table
        ]
        return "\n".join([*lines, *self._sentences(self.rows)])

    __repr__ = __str__
    _repr_html_ = shown("html_of_report")

    def _sentences(self, rows: Sequence[Row]) -> list[str]:
        """What is said below a table of these rows."""
        right, agree = sum(row.ok for row in self.rows), "agrees" if len(self) == 1 else "agree"
        agreeing = f"{right} of {counted(len(self), 'derivative')} {agree} to {self.tolerance:g}."
        return [agreeing, *(f"{row.name}: {row.note}." for row in rows if row.note), *filter(None, [self.diagnosis])]


def gradcheck(f: Callable[..., Any], *inputs: Any, tolerance: float = 1e-7) -> Report:
    """Compare the derivatives of `f(*inputs)` that `backward()` computes with numerical ones.

    `f` returns one Value. Inputs are numbers, Values (chainrule's or of your own micrograd-like class) and lists,
    tuples, named tuples, dicts or arrays of them; `f` gets numbers as Values. Values are moved in place and restored,
    so `f` may also use them without taking them as arguments: `gradcheck(lambda *p: loss(model), *model.parameters())`.

    Print the report for a table. Write `assert gradcheck(...)` or `gradcheck(...).check()` in a test. At a
    corner, as of relu at 0, any slope between those of the two sides agrees, and the row says so.

    >>> print(gradcheck(lambda a, b: a * b + a, 2.0, 3.0))
    input  value  analytic  numerical  error
    a          2         4          4  0e+00  ok
    b          3         2          2  0e+00  ok
    2 of 2 derivatives agree to 1e-07.
    """
    if not 0.0 < tolerance < 1.0:
        raise ValueError(f"`tolerance` must lie between 0 and 1, got {tolerance!r}: 1e-7 asks for seven digits")
    experiment = Experiment(f, inputs)
    rows = [_row(experiment, index, slope, tolerance) for index, slope in enumerate(experiment.analytic())]
    wrong = [index for index, row in enumerate(rows) if not row.ok]
    if not wrong:
        return Report(rows, tolerance)
    worst = max(wrong, key=lambda index: (not rows[index].note, rows[index].distance))  # the clearest case
    return Report(rows, tolerance, _Diagnosis(experiment, worst, rows[worst], tolerance).sentence())


def _row(experiment: Experiment, index: int, analytic: float, tolerance: float) -> Row:
    name, x = experiment.names[index], experiment.numbers[index]
    numerical = derivative(lambda number: experiment.result(index, number), x)
    ok, note = numerical.agrees(analytic, tolerance), ""
    if numerical.corner and not about(numerical.left, numerical.right):
        sides = f"left {numerical.left:.6g}, right {numerical.right:.6g}"
        note = f"not differentiable here? The one-sided derivatives differ: {sides}"
    elif not ok and not numerical.settled:
        note = f"the numerical derivative does not settle (error {numerical.error:.1g}); f may jump or be vertical here"
    return Row(name, x, analytic, numerical.value, numerical.distance(analytic), ok, note)


# Whose fault a wrong gradient is.


class _Diagnosis:
    """Finds the node, or else the walk, that makes the derivative with respect to input `index` wrong."""

    def __init__(self, experiment: Experiment, index: int, row: Row, tolerance: float) -> None:
        self.experiment, self.index, self.row, self.input = experiment, index, row, row.name
        self.tolerance = 0.1 * tolerance  # an error at one node may be diluted in the total
        self.other_path = False  # whether f took another path near these inputs, so that nodes could not be compared
        self.sampled = -1
        self.samples: dict[float, list[float]] = {}  # every node's data, by the number of input `sampled`

    def sentence(self) -> str:
        with self.run(lines=True) as self.graph, unchanged(self.graph.nodes):
            self.carriers = self.graph.carriers()
            self.complete, self.size = self.complete_gradients()
            if not (self.graph.made.serial or self.graph.made.hooked):
                return f"No op can be singled out, because `{self.experiment.kind.__name__}` is not written in Python."
            found = self.outdated() or self.not_finite() or self.wrong_rule() or self.wrong_walk()
            found = found or self.corner() or self.cut() or self.nothing()
        return found[0].upper() + found[1:]

    @contextmanager
    def run(self, index: int = 0, number: float | None = None, lines: bool = False) -> Iterator[Run]:
        made = Creations(self.experiment.kind)
        with self.experiment.moved(index, number) as leaves:
            with made, made.watching_lines() if lines else nullcontext():
                out = self.experiment.apply(leaves)
            yield Run(self.experiment, leaves, out, made)

    def nothing(self) -> str:
        if self.other_path:
            return f"`f` builds a graph of another shape when `{self.input}` moves, so no op can be singled out."
        return "every op's rule and the walk over them hold at these inputs, so doubt the numerical derivative first."

    # Nodes that cannot carry the gradient.

    def outdated(self) -> str:
        """A node from before f: it does not follow when the inputs move."""
        for node, operands in self.graph.interior():
            if self.graph.made.number(node) <= 0 and any(id(operand) in self.graph.names for operand in operands):
                return f"{self.graph.describe(node)} was made from an input before `f` ran; build it inside `f`."
        return ""

    def not_finite(self) -> str:
        """The first node whose rule gives NaN or infinity, if the gradient came to that."""
        for node, operands in self.graph.interior() if not isfinite(self.row.analytic) else ():
            for operand, partial in zip(operands, push(node, operands), strict=True):
                if not isfinite(partial):
                    slope = f"d out/d {self.graph.describe_operand(node, operand)} is {partial:.6g}"
                    return f"{self.graph.describe(node)} is {number_of(node):.6g} here, and {slope}."
        return ""

    def cut(self) -> str:
        """A leaf that moves with the input: somebody took `.data` on the way."""
        for node in self.graph.nodes:
            if id(node) not in self.graph.names and not operands_of(node):
                movement = self.movement(node, self.index)
                if movement.settled and abs(movement.value) > 10.0 * movement.error:
                    fault = f"moves with `{self.input}` but has no operands, so the gradient stops there"
                    remedy = "compute with Values, not their `.data`, and name the operands in `_children`"
                    return f"{self.graph.describe(node)} {fault}: {remedy}."
        return ""

    def corner(self) -> str:
        for node, operands in self.graph.interior():
            if id(node) in self.carriers and self.on_corner(node, operands):
                where = "on a corner, where its slope is a choice and the chain rule need not hold"
                return f"{self.graph.describe(node)} stands {where}; check with `{self.input}` a little beside."
        return ""

    def on_corner(self, node: Any, operands: list[Any]) -> bool:
        if getattr(node, "_rule", None) is not None:
            return any(local_slope(node, operand).corner for operand in operands)
        parts = [self.movement(operand, self.index) for operand in operands]
        return self.movement(node, self.index).corner and not any(part.corner for part in parts)

    # The rule of one node.

    def wrong_rule(self) -> str:
        for node, operands in self.graph.interior():
            if id(node) in self.carriers and not _stops_gradients(node):
                rule = tried_rule(node, operands)
                fault = self.not_accumulating(node, operands, rule) or _not_proportional(node, rule)
                if fault := fault or self.wrong_partial(node, operands, rule.partials):
                    return f"{self.graph.describe(node)} is wrong: {fault}."
        return ""

    def not_accumulating(self, node: Any, operands: list[Any], rule: TriedRule) -> str:
        for operand, partial, total in zip(operands, rule.partials, rule.totals, strict=True):
            if not close(total, rule.held + partial):
                verb = "overwrites" if close(total, partial) else "spoils"
                name = self.graph.describe_operand(node, operand)
                return f"its {backward_of(node)} {verb} the gradient that {name} holds; add to it, with `+=`"
        return ""

    def wrong_partial(self, node: Any, operands: list[Any], partials: list[float]) -> str:
        broken, slopes = "", []
        if getattr(node, "_rule", None) is not None:
            slopes = [local_slope(node, operand) for operand in operands]
        elif broken := self.broken_chain_rule(node, operands, partials):
            slopes = self.slopes(node, operands, partials)
        faults, wrong = [], []
        for operand, slope, partial in zip(operands, slopes, partials, strict=False):
            if id(operand) in self.carriers and slope.settled and not slope.agrees(partial, self.tolerance):
                right = f"between {slope.left:.6g} and {slope.right:.6g}" if slope.corner else f"{slope.value:.6g}"
                name = self.graph.describe_operand(node, operand)
                faults.append(f"d out/d {name} should be {right}, but {_rule_of(node, operand)} gives {partial:.6g}")
                wrong.append((slope.value, partial))
        return "; ".join(faults) + _hint(wrong) if wrong else broken

    def broken_chain_rule(self, node: Any, operands: list[Any], partials: list[float]) -> str:
        """How the node's movement under the input differs from what its operands and partials make of it."""
        movement = self.movement(node, self.index)
        parts = [self.movement(operand, self.index) for operand in operands]
        gap = _gap(movement, parts, partials)
        # The nodes' gaps, each times the node's gradient, add up to the total error.
        if not gap or gap * self.size[self.graph.position[id(node)]] < 0.1 * self.row.distance / len(self.graph.nodes):
            return ""
        rate = f"it moves {movement.value:.6g} times as fast as `{self.input}`"
        if not any(part.value for part in parts):
            return f"{rate}, yet none of its operands moves: one is missing from its `_children`"
        swapped = _dot(partials, (part.value for part in reversed(parts)))
        looks_swapped = len(parts) == 2 and not about(*partials) and about(movement.value, swapped)
        hint = " (the partials look swapped)" if looks_swapped else ""
        found = _dot(partials, (part.left for part in parts))
        return f"{rate}, but its operands' movements and its {backward_of(node)} make that {found:.6g}{hint}"

    def slopes(self, node: Any, operands: list[Any], partials: list[float]) -> list[Derivative]:
        """The partials that explain how the node moves under every input; none if several sets do."""
        unknown = [k for k, operand in enumerate(operands) if id(operand) in self.carriers]
        equations: list[list[float]] = []
        for index in sorted(range(len(self.experiment.numbers)), key=lambda index: index != self.index):
            parts = [self.movement(operand, index).value for operand in operands]
            known = sum(partials[k] * parts[k] for k in range(len(operands)) if k not in unknown)
            equation = [*(parts[k] for k in unknown), self.movement(node, index).value - known]
            if all(map(isfinite, equation)):
                equations.append(equation)
            if solution := _solve(equations, len(unknown)):
                found = dict(enumerate(partials)) | dict(zip(unknown, solution, strict=True))
                return [Derivative(slope, MEASURED * abs(slope), slope, slope) for slope in found.values()]
        return []

    def movement(self, node: Any, index: int) -> Derivative:
        """The measured derivative of the node's data with respect to one input."""
        k = self.graph.position[id(node)]
        return derivative(lambda number: self.sample(index, number)[k], self.experiment.numbers[index])

    def sample(self, index: int, number: float) -> list[float]:
        """Every node's data with input `index` at `number`; NaN where f takes another path."""
        if self.sampled != index:
            self.sampled, self.samples = index, {}
        if number not in self.samples:
            with self.run(index, number) as graph:
                same = graph.shape() == self.graph.shape()
                here = graph if same else self.graph
                self.samples[number] = [float(number_of(node)) if same else nan for node in here.nodes]
                self.other_path |= not same
        return self.samples[number]

    # The walk over the nodes.

    def wrong_walk(self) -> str:
        heard: dict[int, list[float]] = {}
        with self.run() as graph, unchanged(graph.nodes), suppress(AttributeError):  # no assigning to `_backward`
            for node, _ in graph.interior():
                if graph.made.number(node) > 0:
                    _listen(node, heard.setdefault(graph.position[id(node)], []))
            backward_pass(graph.out, graph.leaves)
        for k in sorted(heard, reverse=True):
            right = len(heard[k]) == 1 and abs(heard[k][0] - self.complete[k]) <= self.tolerance * self.size[k]
            if not right and 0.0 < self.size[k] < inf:
                fault = self.walk_fault(self.graph.nodes[k], heard[k], self.complete[k])
                return f"every op's own rule is right, but {fault}."
        return ""

    def complete_gradients(self) -> tuple[list[float], list[float]]:
        """What every node's gradient should be, and the sum of the sizes of its contributions."""
        complete = [float(node is self.graph.out) for node in self.graph.nodes]
        size = complete[:]
        for node, operands in reversed(self.graph.interior()):
            k = self.graph.position[id(node)]
            for operand, partial in zip(operands, push(node, operands), strict=True):
                complete[self.graph.position[id(operand)]] += complete[k] * partial
                size[self.graph.position[id(operand)]] += size[k] * abs(partial)
        return complete, size

    def walk_fault(self, node: Any, heard: list[float], complete: float) -> str:
        name = self.graph.describe(node)
        walk = "the backward pass is wrong"
        if not heard:
            return f"{walk}: it never reaches {name}"
        if node is self.graph.out and not close(heard[0], 1.0):
            return f"{walk}: it starts with a gradient of {heard[0]:.6g} at the result, where it should be 1"
        if len(heard) > 1:
            return f"{walk}: it calls the _backward of {name} {len(heard)} times, where once is right"
        early = f"{name} passed on a gradient of {heard[0]:.6g} before it was complete, which is {complete:.6g}"
        return f"the order of {walk}: {early}; a node's turn comes after that of every node that uses it"


def _listen(node: Any, heard: list[float]) -> None:
    """Make `node` note in `heard` which gradient it has each time it passes it on."""
    backward = node._backward

    def listening() -> None:
        heard.append(float(node.grad))
        backward()

    node._backward = listening


def _stops_gradients(node: Any) -> bool:
    """Whether the node's op is meant to, as comparisons are, and the shift of a softmax."""
    rule = getattr(node, "_rule", None)
    return rule is not None and not any(rule.partials)


def _dot(partials: Iterable[float], numbers: Iterable[float]) -> float:
    return sum(partial * number for partial, number in zip(partials, numbers, strict=True))


def _gap(movement: Derivative, parts: list[Derivative], partials: list[float]) -> float:
    """How far a node's movement is from what the chain rule makes of its operands'; 0 if that cannot be told."""
    left, right = _dot(partials, (part.left for part in parts)), _dot(partials, (part.right for part in parts))
    gap = min(abs(movement.left - left), abs(movement.right - right))
    sizes = [abs(partial) for partial in partials]
    size = abs(movement.value) + _dot(sizes, (abs(part.value) for part in parts))
    doubt = movement.error + _dot(sizes, (part.error for part in parts))
    unclear = movement.corner != any(part.corner for part in parts)
    return 0.0 if unclear or not doubt <= 0.01 * size or gap <= MEASURED * size + 16.0 * doubt else gap


def _solve(equations: list[list[float]], unknowns: int) -> list[float]:
    """The solution of equations [*coefficients, right-hand side], or nothing if they leave a choice."""
    rows = [row[:] for row in equations]
    for k in range(unknowns):
        rows[k:] = sorted(rows[k:], key=lambda row: -abs(row[k]))
        if len(rows) <= k or abs(rows[k][k]) <= 1e-3 * max(map(abs, equations[0]), default=0.0):
            return []
        for j, row in enumerate(rows):
            if j != k:
                rows[j] = [entry - row[k] / rows[k][k] * pivot for entry, pivot in zip(row, rows[k], strict=True)]
    return [rows[k][-1] / rows[k][k] for k in range(unknowns)]


# Words.


def _not_proportional(node: Any, rule: TriedRule) -> str:
    if rule.is_proportional:
        return ""
    same = all(map(close, rule.partials, rule.doubled))
    habit = "is the same whatever gradient it gets" if same else "is not proportional to the gradient it gets"
    return f"what its {backward_of(node)} passes on {habit}; multiply by `out.grad`, once"


def _hint(wrong: list[tuple[float, float]]) -> str:
    """A guess at the slip, from the right partials and those that are given in their place."""
    right, given = zip(*wrong, strict=True)
    if len(wrong) == 2 and all(map(about, right, reversed(given))):
        return " (the partials look swapped)"
    if not all(given) or not all(right):
        return ""
    ratio = right[0] / given[0]
    if not all(about(a, ratio * b) for a, b in wrong):
        return ""
    if about(ratio, -1.0):
        return " (the sign looks wrong)"
    for factor, habit in ((ratio, "is missing"), (1.0 / ratio, "is too many")):
        if abs(factor) > 1.5 and about(factor, round(factor)):
            return f" (it looks as if a factor {round(factor)} {habit})"
    return ""


def _rule_of(node: Any, operand: Any) -> str:
    rule = getattr(node, "_rule", None)
    if rule is None or definition(node._backward):
        return f"its {backward_of(node)}"
    rank = [other is operand for other in node._operands].index(True)
    return f"its rule{definition(rule.partials[rank])}"
