"""`diagnose`: why does this not train? A supervised trial run, and experiments where the answer needs one.

The model, its gradients, the optimizer and the random generators are restored afterwards. What the graph cannot tell
is tried out: whether a hand-written rule is right (finite differences), whether a parameter that gets no gradient moves
the loss all the same, and whether another learning rate would do better from the same start.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from chainrule.core.arguments import counted, whole_number
from chainrule.core.graph import graph_below, unchanged
from chainrule.core.recording import observed
from chainrule.core.value import Value
from chainrule.data import Dataset, Examples
from chainrule.debug import findings
from chainrule.debug.anomalies import AnomalyError, detect_anomaly, names_of
from chainrule.debug.findings import Checkup, Finding, ends, summary
from chainrule.debug.gradient_check import gradcheck
from chainrule.debug.rules import is_users_rule
from chainrule.debug.supervisor import Supervisor
from chainrule.nn import Module
from chainrule.optim import Adam, Optimizer
from chainrule.training.task import Loss, check_problem

CHECKED = 6  # parameters whose derivatives are measured, to judge hand-written rules
FEW = 4  # examples for that
SMALL_RATE, LARGE_RATE = 0.01, 0.1  # learning rates with which most models learn something
GAIN = 0.05  # share of the loss by which another learning rate must do better

T = TypeVar("T")


def diagnose(
    model: Module,
    loss: Loss,
    data: Examples,
    optimizer: Optimizer | None = None,
    *,
    steps: int = 30,
    examples: int = 50,
) -> Checkup:
    """Find out why `model` does not learn `data` by `loss`, or that nothing is wrong; nothing is changed.

    Give the optimizer that you train with (default: that of `fit`). `steps` training steps are tried, on up to
    `examples` examples at once. Print the report; each finding has a name, evidence and advice.

    >>> from chainrule import data, losses, nn, optim
    >>> model = nn.MLP(2, [4, 1], activation="tanh", rng=1)
    >>> wild = optim.SGD(model.parameters(), lr=500.0)
    >>> print(diagnose(model, losses.mean_square, data.xor(), wild).names())
    ['learning rate too high']
    """
    steps = whole_number(steps, "steps", 8)
    given = check_problem(model, loss, data, optimizer)
    optimizer = optimizer or Adam(model.parameters(), lr=0.01)
    sample = _sample(given, whole_number(examples, "examples"))
    return _Trial(model, loss, sample, optimizer, steps).checkup()


class _Trial:
    def __init__(self, model: Any, loss: Loss, data: Dataset, optimizer: Optimizer, steps: int) -> None:
        self.model, self.loss, self.data, self.optimizer, self.steps = model, loss, data, optimizer, steps
        self.start, self.memory, self.generator = model.state(), optimizer.state(), random.getstate()

    def checkup(self) -> Checkup:
        """All that was found; parameters, gradients, the optimizer and Python's random generator are restored."""
        checkup = Checkup()
        with unchanged(dict.fromkeys([*self.model.parameters(), *self.optimizer.parameters])):
            try:
                checkup.add(*self.rules())
                self.run(checkup)
            finally:
                self.optimizer.load_state(self.memory)
                random.setstate(self.generator)
        return checkup

    def total(self, data: Dataset | None = None) -> Value:
        data = data or self.data
        return self.loss([self.model(x) for x in data.inputs], data.targets)

    # Rules that the user wrote.

    def rules(self) -> Iterator[Finding]:
        """Measure derivatives of the loss that depend on rules written by hand, if there are any."""
        few = _sample(self.data, FEW)
        chosen = self.behind_users_rules(self.total(few))
        if not chosen:
            return
        try:
            report = gradcheck(lambda *parameters: self.total(few), *chosen)
        except ValueError:  # not finite, or different from call to call: nothing can be measured
            return
        names = names_of(self.model)
        wrong = [(names[id(p)], row) for p, row in zip(chosen, report.rows, strict=True) if not row.ok]
        if wrong:
            said = "d loss/d {}: backward() says {:.6g}, the numbers say {:.6g}"
            evidence = [said.format(name, row.analytic, row.numerical) for name, row in wrong[:3]]
            yield Finding(
                "_backward overwrites" if "overwrites" in report.diagnosis else "_backward is wrong",
                f"{len(wrong)} of {counted(len(chosen), 'derivative')} that were measured are wrong.",
                (report.diagnosis, *evidence),
                "Write `operand.grad += local derivative * out.grad` in it, for every operand.",
            )

    def behind_users_rules(self, total: Value) -> list[Value]:
        """A few of the parameters whose gradients come through rules written by hand."""
        handmade = [node for node in graph_below(total) if node._operands and is_users_rule(node)]
        below = {id(leaf) for node in handmade for leaf in graph_below(node)}
        affected = [parameter for parameter in self.model.parameters() if id(parameter) in below]
        return _spread(affected, CHECKED)

    # A few steps, under supervision.

    def run(self, checkup: Checkup) -> None:
        """The usual loop, and what the supervisor sees; again with a better learning rate if this one is too high."""
        curve, record = self.supervised(self.optimizer)
        error = self.born() if record.anomaly else None
        checkup.losses, checkup.passes, checkup.nodes = curve, record.passes, record.nodes
        checkup.add(*findings.mistakes(record))
        sound = not findings.MISTAKES & set(checkup.names())
        high, better = self.too_high(curve, error) if sound else (None, self.optimizer)
        if high:
            checkup.add(high)
            _, record = self.supervised(better)
        elif error:
            steps = sum(map(math.isfinite, curve))
            when = f"after {counted(steps, 'step')}" if steps else "in the first step"
            seen = f"A number became infinite or NaN {when}."
            advice = "Fix the op that it began in; everything after that is a consequence."
            checkup.add(Finding("number not finite", seen, (str(error),), advice))
        elif sound:
            checkup.add(*self.too_low(curve))
        checkup.add(*findings.unreached(record), *findings.dead_units(record), *findings.uneven_layers(record))
        checkup.add(*self.cut_off(checkup))

    def born(self) -> AnomalyError | None:
        """The same steps again, for the line that made the number: every node notes its own, which is slow."""
        try:
            with detect_anomaly(self.model):
                self.from_start(self.optimizer)
        except AnomalyError as error:
            return error
        return None

    def supervised(self, optimizer: Optimizer) -> tuple[list[float], findings.Record]:
        supervisor = Supervisor(self.model)
        with observed(supervisor):
            return self.from_start(optimizer), supervisor.record

    def from_start(self, optimizer: Optimizer) -> list[float]:
        """The losses of the usual loop."""
        optimizer.load_state(self.memory)
        self.model.load_state(self.start)
        random.setstate(self.generator)
        curve = []
        for _ in range(self.steps):
            total = self.total()
            self.model.zero_grad()
            total.backward()
            optimizer.step()
            curve.append(total._data)
            if not math.isfinite(total._data) or not all(math.isfinite(p._data) for p in self.model.parameters()):
                break
        return curve

    def cut_off(self, checkup: Checkup) -> Iterator[Finding]:
        """Among parameters without gradient, one that moves the loss all the same: somebody took its number."""
        if "parameters without gradient" not in checkup.names():
            return
        self.model.load_state(self.start)
        below = {id(node) for node in graph_below(self.total())}
        for name, parameter in self.model.named_parameters():
            if id(parameter) in below:
                continue
            before, number = self.total()._data, parameter._data
            parameter.data = number + 0.1 * max(1.0, abs(number))
            after = self.total()._data
            parameter.data = number
            if before == self.total()._data != after:
                old = next(finding for finding in checkup.findings if finding.name == "parameters without gradient")
                checkup.findings.remove(old)
                moves = f"moving `{name}` from {number:.6g} by 10 % takes the loss from {before:.6g} to {after:.6g}"
                advice = "The gradient is cut off: compute with Values, not with their `.data`."
                yield Finding(old.name, old.summary, (*old.evidence, moves), advice)
                return

    # Would another learning rate do better?

    def too_high(self, curve: list[float], error: AnomalyError | None) -> tuple[Finding | None, Optimizer]:
        """Whether smaller steps from the same start go down where these do not; and the optimizer that takes them."""
        start, end = curve[0], ends(curve)[1]
        if len(curve) < 2 or not (error or not math.isfinite(end) or end > start):
            return None, self.optimizer
        rate = self.optimizer.rate()
        best, lower, optimizer = self.best_of(0.1, 0.01, 0.001, *([SMALL_RATE / rate] if rate > 1.0 else []))
        if not lower < start - GAIN * abs(start):
            return None, self.optimizer
        seen = "From the same start, smaller steps go down where these do not."
        more = [str(error)] if error else []
        return self.compared("learning rate too high", seen, curve, best, optimizer, *more), optimizer

    def too_low(self, curve: list[float]) -> Iterator[Finding]:
        """Whether larger steps from the same start get somewhere, where these hardly move."""
        start, end = curve[0], ends(curve)[1]
        if abs(start - end) >= findings.STILL * abs(start):
            return
        rate = self.optimizer.rate()
        bold = [LARGE_RATE / rate] if 0.0 < 1e4 * rate < LARGE_RATE else []
        best, lower, optimizer = self.best_of(10.0, 100.0, 1e3, 1e4, *bold)
        if lower < start - max(GAIN * abs(start), 10.0 * (start - end)):
            seen = f"In {counted(len(curve), 'step')} the loss fell by {(start - end) / abs(start):.1g} of itself."
            yield self.compared("learning rate too low", seen, curve, best, optimizer)

    def best_of(self, *factors: float) -> tuple[list[float], float, Optimizer]:
        return min(map(self.with_rate, factors), key=lambda other: other[1])

    def compared(
        self, name: str, seen: str, curve: list[float], better: list[float], optimizer: Optimizer, *more: str
    ) -> Finding:
        tried = (self.optimizer.rate(), curve), (optimizer.rate(), better)
        evidence = [f"with lr {rate:.3g}: loss {summary(losses)}" for rate, losses in tried]
        return Finding(name, seen, (*evidence, *more), f"Use a learning rate of about {optimizer.rate():.1g}.")

    def with_rate(self, factor: float) -> tuple[list[float], float, Optimizer]:
        """The curve with another learning rate from the same start, its end (infinite if it breaks), the optimizer."""
        other = copy.copy(self.optimizer)
        given = self.optimizer.lr
        other.lr = (lambda step: factor * given(step)) if callable(given) else factor * given
        curve = self.from_start(other)
        end = ends(curve)[1]
        other.load_state(self.memory)
        return curve, end if math.isfinite(end) and len(curve) == self.steps else math.inf, other


def _sample(data: Dataset, count: int) -> Dataset:
    """Up to `count` examples, evenly spread."""
    return Dataset(_spread(data.inputs, count), _spread(data.targets, count))


def _spread(things: Sequence[T], count: int) -> list[T]:
    """Up to `count` of them, evenly spread."""
    count = min(count, len(things))
    return [things[k * len(things) // count] for k in range(count)]
