"""What `diagnose` and `supervise` report: findings, each with evidence and advice.

A `Record` holds what a training loop did, as the supervisor saw it; most findings follow from the record alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from chainrule.core.arguments import counted
from chainrule.core.display import shown
from chainrule.debug.layers import FAR

LAST = 4  # examinations in which a unit must be dead, or a layer without gradient
DEAD = 0.25  # share of a layer's units above which dead ones are reported: a few do no harm
ENOUGH = 8  # passes before the loss is judged
OVERFLOW = 10.0  # growth of the loss before it overflowed that shows it was on its way
RISE = 0.2  # share of the loss by which it must rise to be called rising
TURNS, JUMP = 0.8, 0.5  # a loss bounces if it turns at more than this share of the steps, and jumps by this share of it
STILL = 0.01  # share of the loss that it must fall by to be called moving
SMALL_STEP = 1e-4  # share of the parameters' size by which a step moves them; a thousandth is usual
STEEP = 1.0  # relative change of the loss by that of the parameters, from which on it could fall

# These alone can spoil a loss, whatever the learning rate.
MISTAKES = {"gradients not zeroed", "graph older than its leaves", "_backward overwrites", "_backward is wrong"}

# Findings in the order in which they are reported, causes before their possible consequences, with the usual advice.
LOOKED_FOR = {
    "gradients not zeroed": "Call optimizer.zero_grad() in every step, before loss.backward().",
    "graph older than its leaves": (
        "Compute the loss again in every step, after the parameters were changed and before loss.backward()."
    ),
    "_backward overwrites": "Write `operand.grad += ...`, not `=`.",
    "_backward is wrong": "Check it with chainrule.gradcheck, which says what it should give.",
    "learning rate too high": "Divide the learning rate by 10, and look again.",
    "number not finite": "Wrap the loop in `with chainrule.detect_anomaly(model):` for the line of your code.",
    "parameters without gradient": (
        "Use them in the model, or take them out; where `.data` is read on the way, the gradient ends."
    ),
    "dead units": "Use a smaller learning rate, or leaky_relu, or another initialisation (init='he').",
    "vanishing gradients": "Use relu or fewer layers, smaller weights (init='xavier'), or inputs scaled to about 1.",
    "exploding gradients": "Use smaller weights (init='xavier' or 'he'), or optim.clip_grad_norm before each step.",
    "learning rate too low": "Multiply the learning rate by 10, and look again.",
}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its name (one of `LOOKED_FOR`), what was seen, and what to do.

    >>> print(Finding("dead units", "2 of 4 units never fire.", ("layers.0: neurons 1 and 3",), "Use leaky_relu."))
    dead units: 2 of 4 units never fire.
      - layers.0: neurons 1 and 3
      → Use leaky_relu.
    """

    name: str
    summary: str
    evidence: tuple[str, ...]
    advice: str

    def __post_init__(self) -> None:
        if self.name not in LOOKED_FOR:
            raise ValueError(f"`name` must be one of {', '.join(LOOKED_FOR)}; got {self.name!r}")

    def __str__(self) -> str:
        evidence = [f"  - {line}" for line in self.evidence]
        return "\n".join([f"{self.name}: {self.summary}", *evidence, f"  → {self.advice}"])


@dataclass
class Checkup:
    """The report of `diagnose` and `supervise`: iterable over its findings, true if there are none; print it to read.

    >>> print(Checkup(passes=30, nodes=500))
    nothing wrong in 30 backward passes over up to 500 nodes
    """

    findings: list[Finding] = field(default_factory=list)
    passes: int = 0  # backward passes that were seen
    nodes: int = 0  # in the largest graph that was examined
    losses: list[float] = field(default_factory=list)  # of those passes

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def names(self) -> list[str]:
        """The names of the findings."""
        return [finding.name for finding in self.findings]

    def add(self, *findings: Finding) -> None:
        """Add findings, one per name, and sort them by cause.

        >>> checkup = Checkup()
        >>> checkup.add(Finding("dead units", "", (), ""), Finding("gradients not zeroed", "", (), ""))
        >>> checkup.names()
        ['gradients not zeroed', 'dead units']
        """
        known = {finding.name: finding for finding in reversed([*self.findings, *findings])}
        self.findings = [known[name] for name in LOOKED_FOR if name in known]

    def check(self) -> Checkup:
        """Return this report if all is well; otherwise raise an AssertionError that shows it."""
        if not self.ok:
            raise AssertionError(f"something is wrong\n{self}")
        return self

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        seen = f"in {counted(self.passes, 'backward pass')} over up to {counted(self.nodes, 'node')}"
        if self.ok:
            return f"nothing wrong {seen}"
        count = "one finding" if len(self) == 1 else f"{len(self)} findings, causes first,"
        return "\n\n".join([f"{count} {seen}", *map(str, self.findings)])

    __repr__ = __str__
    _repr_html_ = shown("html_of_checkup")


@dataclass
class Record:
    """What happened from backward pass to backward pass; some graphs were examined node by node."""

    parameters: list[str]  # their names
    passes: int = 0
    nodes: int = 0  # in the largest graph that was examined
    losses: list[float] = field(default_factory=list)
    moves: list[float] = field(default_factory=list)  # how far steps moved the parameters, relative to their size
    slopes: list[float] = field(default_factory=list)  # how fast the loss changes with them, relative to its size
    held: list[tuple[int, str, float]] = field(default_factory=list)  # passes that began with a gradient, whose, which
    outdated: str = ""  # the first node that its operands would now make another number
    outdated_passes: int = 0
    anomaly: str = ""  # the first number that was not finite
    faults: dict[str, str] = field(default_factory=dict)  # what a rule written by hand does wrong, by finding
    reached: set[str] = field(default_factory=set)  # parameters that some loss depended on
    units: list[dict[str, bool]] = field(default_factory=list)  # per examination, whether a unit was ever above 0
    layers: list[dict[str, float]] = field(default_factory=list)  # likewise, root mean square of each layer's gradient

    @property
    def unreached(self) -> list[str]:
        """The parameters that no loss depended on."""
        return [name for name in self.parameters if name not in self.reached]


def findings(record: Record) -> Iterator[Finding]:
    """All that the record shows; consequences of a finding are left out."""
    if not record.passes:
        return
    found = list(mistakes(record))
    if not MISTAKES & {finding.name for finding in found}:
        found += learning_rate(record)
    yield from (*found, *not_finite(record), *unreached(record), *dead_units(record))
    if "learning rate too high" not in {finding.name for finding in found}:  # otherwise they were thrown about
        yield from uneven_layers(record)


# What the program does wrong.


def mistakes(record: Record) -> Iterator[Finding]:
    """Gradients that were not zeroed, outdated graphs and wrong rules."""
    if record.held:
        ends = [record.held[0], record.held[-1]][: len(record.held)]
        used = f"{len(record.held)} of {record.passes} backward passes added to gradients that a step had used already."
        evidence = [f"pass {number} began with `{name}`.grad at {grad:.6g}" for number, name, grad in ends]
        yield _usual("gradients not zeroed", used, *evidence)
    if record.outdated:
        older = f"{record.outdated_passes} of the graphs that were examined were built before their leaves changed."
        yield _usual("graph older than its leaves", older, record.outdated)
    for name, fault in record.faults.items():
        yield _usual(name, "A rule written by hand breaks the chain rule.", fault)


# What state the network is in.


def not_finite(record: Record) -> Iterator[Finding]:
    """A NaN or an infinity."""
    if record.anomaly:
        yield _usual("number not finite", "A number became infinite or NaN.", record.anomaly)


def unreached(record: Record) -> Iterator[Finding]:
    """Parameters that the loss does not depend on."""
    if record.nodes and (names := record.unreached):
        share = f"The loss does not depend on {len(names)} of {counted(len(record.parameters), 'parameter')}."
        yield _usual("parameters without gradient", share, _some(names))


def dead_units(record: Record) -> Iterator[Finding]:
    """Layers with too many units whose relu is always 0."""
    if dead := _dead_units(record):
        lost = "The relu of some units is 0 for every input: no gradient reaches their weights, so they stay dead."
        evidence = [f"{len(units)} of {count} in {layer}: {_some(units)}" for layer, (units, count) in dead.items()]
        yield _usual("dead units", lost, *evidence)


def _dead_units(record: Record) -> dict[str, tuple[list[str], int]]:
    """The dead units of each layer that has too many, and how many units it has."""
    recent = record.units[-LAST:]
    layers: dict[str, list[str]] = {}
    for unit in recent[-1] if recent else ():
        layers.setdefault(unit.rpartition(".")[0] or unit, []).append(unit)

    def is_dead(unit: str) -> bool:
        return not any(firing.get(unit, True) for firing in recent)

    counted = {layer: (list(filter(is_dead, units)), len(units)) for layer, units in layers.items()}
    return {layer: (dead, count) for layer, (dead, count) in counted.items() if len(dead) > DEAD * count}


# Layers whose gradients are far from the others'.


def uneven_layers(record: Record) -> Iterator[Finding]:
    """Layers without gradient, with vanishing and with exploding ones."""
    recent = record.layers[-LAST:]
    if not recent:
        return
    sizes = {name: median(row[name] for row in recent) for name in recent[-1]}
    table = "gradients, root mean square: " + ", ".join(f"{name} {size:.2g}" for name, size in sizes.items())
    silent = [name for name, size in sizes.items() if size == 0.0]
    if silent and not record.unreached and not _dead_units(record):
        yield Finding(
            "parameters without gradient",
            f"All gradients are exactly 0 in {', '.join(silent)}.",
            (table,),
            "Look for a factor 0, a relu or a clip that cuts them off, or weights that began equal at 0.",
        )
    peak, vanishing, exploding = _far_from_the_largest(sizes)
    if vanishing:
        smaller = f"Those of {', '.join(vanishing)} are more than {FAR:,.0f} times smaller than the largest."
        yield _usual("vanishing gradients", smaller, table)
    if exploding:
        growing = f"Going back to {peak}, they grow {FAR:,.0f}-fold and more over {', '.join(exploding)}."
        yield _usual("exploding gradients", growing, table)


def _far_from_the_largest(sizes: dict[str, float]) -> tuple[str, list[str], list[str]]:
    """The layer with the largest gradient, and those before and after it whose gradients are far smaller."""
    order = list(sizes)
    peak = max(order, key=lambda name: sizes[name])
    faint = {name for name in order if 0.0 < sizes[name] * FAR < sizes[peak]}
    place = order.index(peak)
    return peak, [name for name in order[:place] if name in faint], [name for name in order[place:] if name in faint]


# What the curve of the loss says; only where it is clear.


def learning_rate(record: Record) -> Iterator[Finding]:
    """A learning rate that is too high or too low."""
    curve = [loss for loss in record.losses if math.isfinite(loss)]
    overflowed = len(curve) < len(record.losses)
    if len(curve) < (2 if overflowed else ENOUGH) or not record.moves:
        return
    (start, end), step, bouncing = ends(curve), median(record.moves), _bounces(curve)
    moved = f"a step moves the parameters by {step:.2g} of their size (a thousandth is usual)"
    seen = f"loss {summary(record.losses)}", moved
    exploded = overflowed and max(map(abs, curve)) > OVERFLOW * abs(curve[0])
    if exploded or bouncing or end > start + RISE * abs(start):
        shape = "The loss jumps up and down." if bouncing and not overflowed else "The loss rises."
        yield _usual("learning rate too high", shape, *seen)
    elif end > start - STILL * abs(start) and step < SMALL_STEP and min(record.slopes, default=0.0) > STEEP:
        slope = f"moving them by 1 % could change the loss by {min(record.slopes):.2g} % or more"
        yield _usual("learning rate too low", "The loss hardly moves, and its slope says that it could.", *seen, slope)


def _bounces(curve: Sequence[float]) -> bool:
    """Whether the loss jumps up and down without falling."""
    start, end = ends(curve)
    jumps = sum(abs(b - a) for a, b in pairwise(curve)) / (len(curve) - 1)
    turns = sum((b - a) * (c - b) < 0.0 for a, b, c in zip(curve, curve[1:], curve[2:], strict=False))
    return turns > TURNS * (len(curve) - 2) and jumps > JUMP * abs(end) and end > 0.5 * start


def ends(curve: Sequence[float]) -> tuple[float, float]:
    """The mean of the first and of the last quarter, in which the noise of single steps cancels.

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
    return f"{' → '.join(f'{curve[k]:.4g}' for k in places)} in {counted(len(curve), 'step')}"


def _usual(name: str, summary: str, *evidence: str) -> Finding:
    return Finding(name, summary, evidence, LOOKED_FOR[name])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
