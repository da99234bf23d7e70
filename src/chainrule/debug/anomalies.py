"""Where a NaN or an infinity comes from: `detect_anomaly`, and the search in a finished graph.

An anomaly begins where an op turns finite numbers into one that is not, or where a finite gradient times a partial
derivative is not finite. Everything after that is a consequence, and the error names the beginning.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import inf, isfinite

from chainrule.core.code_lines import is_ours, quoted_line
from chainrule.core.graph import graph_below, is_hand_written, receivers, unchanged
from chainrule.core.recording import Observer, observed
from chainrule.core.value import Value
from chainrule.core.walk import oldest_first
from chainrule.debug.rules import backward_of, push
from chainrule.nn import Module

REMEDIES = {  # by the name of the op that an anomaly began in
    "log": "keep what goes in above 0, as in log(x + 1e-12), or compute the loss from logits (losses.cross_entropy)",
    "div": "keep the divisor away from 0, as in x / (y + 1e-12)",
    "sqrt": "keep what goes in above 0, as in sqrt(x + 1e-12): at 0 its slope is infinite",
    "exp": "exp overflows above 709: subtract the largest first, as softmax and logsumexp do",
    "pow": "a power of a negative number, or a negative power of 0, is no finite number: keep the base above 0",
}
REMEDY = "look at the numbers that went in: a smaller learning rate, or inputs scaled to about 1, keep them small"
LONGEST_PATH = 9  # steps that are shown; longer paths lose their middle
MOST_LINES = 1 << 20  # that are remembered


class AnomalyError(FloatingPointError):
    """The first number that is not finite, and how it came about.

    >>> with detect_anomaly():
    ...     try:
    ...         Value(0.0, label="p").log()
    ...     except AnomalyError as error:
    ...         print(error.phase, error.op, error.operands, error.path)
    forward log (0.0,) ('p', '`log`')
    """

    __module__ = "chainrule"  # the name that users know, also in a traceback

    def __init__(
        self, message: str, phase: str, op: str, operands: Sequence[float], place: str, path: Sequence[str]
    ) -> None:
        super().__init__(message)
        self.phase, self.op = phase, op  # the phase is "forward" or "backward"
        self.operands = tuple(operands)  # their data
        self.place = place  # where the user's code made the node; empty if unknown
        self.path = tuple(path)  # of labels, or ops where there are none


@contextmanager
def detect_anomaly(model: Module | None = None) -> Iterator[None]:
    """Raise an `AnomalyError` at the first NaN or infinity that is computed, forward or backward, in this thread.

    It names the op, its operands' numbers, the line of your code and the path of labels that led there; with a `model`,
    parameters without a label are called by their names in it. Inside the block every node notes its line, which costs
    about a microsecond per node. Compiled programs are not watched: `fit` takes eager steps in the block.

    >>> x = Value(0.0, label="x")
    >>> with detect_anomaly():
    ...     x.sqrt().backward()
    Traceback (most recent call last):
    ...
    chainrule.AnomalyError: backward: `sqrt` of 0.0 (`x`), which is 0.0, passes on a gradient of inf: ...
    """
    if model is not None and not isinstance(model, Module):
        raise TypeError(f"`model` must be an nn.Module, got {type(model).__name__}: it gives parameters their names")
    with observed(_Detector({} if model is None else names_of(model))):
        yield


def names_of(model: Module) -> dict[int, str]:
    """The parameters' names by the id of the Value."""
    return {id(parameter): name for name, parameter in model.named_parameters()}


class _Detector(Observer):
    sees_nodes = True

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = names
        self.places = _Places()
        self.graph: list[Value] = []

    def made(self, node: Value) -> None:
        self.places.note(node._serial)
        if not isfinite(node._data):
            raise forward_anomaly(node, self.names, self.places.of(node))

    def before_backward(self, root: Value) -> None:
        self.graph = graph_below(root)
        for leaf in self.graph:
            if not leaf._operands and leaf.requires_grad and not isfinite(leaf.grad):
                name = _name(leaf, self.names)
                message = f"backward: {name} holds a gradient of {leaf.grad} from before; set it to 0, with zero_grad()"
                raise AnomalyError(message, "backward", leaf._op, [], "", [name])

    def after_backward(self, root: Value) -> None:
        graph, self.graph = self.graph, []
        if all(isfinite(node.grad) for node in graph if node.requires_grad):
            return
        if (node := first_bad_push(root)) is not None:
            raise backward_anomaly(root, node, self.names, self.places.of(node))


class _Places:
    """Which line of the user's code made which node: noted by the serial number of the first node of a line."""

    def __init__(self) -> None:
        self.serials: list[int] = []
        self.lines: list[tuple[str, int]] = []

    def note(self, serial: int) -> None:
        frame = sys._getframe(1)
        while frame and is_ours(frame.f_code):
            frame = frame.f_back  # type: ignore[assignment]
        line = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
        if not self.lines or self.lines[-1] != line:
            self.serials.append(serial)
            self.lines.append(line)
        if len(self.lines) > MOST_LINES:
            del self.serials[: MOST_LINES // 2], self.lines[: MOST_LINES // 2]

    def of(self, node: Value) -> str:
        k = bisect_right(self.serials, node._serial)
        file, line = self.lines[k - 1] if k else ("", 0)
        return quoted_line(file, line) if file else ""


# The search in a finished graph.


def first_bad_node(root: Value) -> Value | None:
    """The oldest node below `root` that is not finite.

    >>> first_bad_node(Value(0.0).log() + 1.0)._op
    'log'
    """
    bad = [node for node in graph_below(root) if not isfinite(node._data) and (node._operands or not node._constant)]
    return min(bad, key=lambda node: node._serial, default=None)


def first_bad_push(root: Value) -> Value | None:
    """After a backward pass from `root`, the first node that turned a finite gradient into one that is not.

    >>> out = Value(0.0).sqrt() * 2.0
    >>> out.backward()
    >>> first_bad_push(out)._op
    'sqrt'
    """
    nodes: list[Value] = oldest_first(root, operands_of=receivers)[::-1]
    if all(isfinite(node.grad) for node in nodes if node.requires_grad):
        return None
    broken = (node for node in nodes if not all(map(isfinite, contributions(node))))
    summed = filter(_overflowed, nodes)  # each contribution is finite, but not their sum
    return next(chain(broken, summed), root)  # the root, if the seed was not finite


def contributions(node: Value) -> list[float]:
    """What the node adds to each operand's gradient, given its own; 0.0 for operands that take none."""
    if node._rule is None or is_hand_written(node):
        with unchanged([node, *node._operands]):
            return push(node, node._operands, grad=node.grad)
    numbers = [operand._data for operand in node._operands]
    return [
        node.grad * partial(node._data, *numbers) if partial and operand.requires_grad else 0.0
        for operand, partial in zip(node._operands, node._rule.partials, strict=True)
    ]


def _overflowed(node: Value) -> list[Value]:
    """The operands whose gradients are not finite."""
    return [operand for operand in node._operands if operand.requires_grad and not isfinite(operand.grad)]


# Words.


def forward_anomaly(node: Value, names: Mapping[int, str], place: str = "") -> AnomalyError:
    """The error for a node that is not finite."""
    path = _path_to(node, names)
    if not node._operands:
        message = f"forward: {_name(node, names)} is {node._data} before any op touched it; look where it is set"
    else:
        given = [k for k, operand in enumerate(node._operands, 1) if not isfinite(operand._data)]
        advice = f"Operand {given[0]} was not finite before: look where it is set or read" if given else _remedy(node)
        found = f"{_call(node, names)} gave {node._data}{f', at {place}' if place else ''}"
        message = f"forward: {found}. The way there: {_arrows(path)}. {advice}."
    return AnomalyError(message, "forward", node._op, [o._data for o in node._operands], place, path)


def backward_anomaly(root: Value, node: Value, names: Mapping[int, str], place: str = "") -> AnomalyError:
    """The error for a node that passed on a gradient which is not finite."""
    passed, path = contributions(node), _path_back(root, node, names)
    if not isfinite(node.grad):
        message = f"backward: it starts with a gradient of {node.grad} at {_name(node, names)}: give a finite `seed`."
        return AnomalyError(message, "backward", node._op, [], place, path)
    if all(map(isfinite, passed)):
        operand = _overflowed(node)[0]
        fault = f"the contributions to the gradient of {_name(operand, names)} add up to {operand.grad}"
    else:
        k = [isfinite(number) for number in passed].index(False)
        operand = node._operands[k]
        slope = f"times the slope {passed[k] / node.grad}" if node.grad else "times a slope that is not finite"
        made_of = f"{_call(node, names)}, which is {node._data}"
        fault = f"{made_of}, passes on a gradient of {passed[k]}: its own, {node.grad}, {slope}"
    path.append(_name(operand, names))
    made = f" It was made at {place}." if place else ""
    message = f"backward: {fault}.{made} The way there: {_arrows(path)}. {_remedy(node)}."
    return AnomalyError(message, "backward", node._op, [o._data for o in node._operands], place, path)


def _path_to(node: Value, names: Mapping[int, str]) -> list[str]:
    """From a leaf up to the node, through the operands that mattered most."""
    path = [node]
    while operands := path[-1]._operands:
        path.append(operands[max(range(len(operands)), key=lambda k: _weight(path[-1], k))])
    return [_name(step, names) for step in reversed(path)]


def _weight(node: Value, k: int) -> float:
    """How much the node owes to operand k: its number times the partial derivative."""
    operand, rule = node._operands[k], node._rule
    if operand._constant:
        return -1.0
    partial = rule.partials[k] if rule else None
    weight = operand._data * (partial(node._data, *[o._data for o in node._operands]) if partial else 1.0)
    return abs(weight) if isfinite(weight) else inf


def _path_back(root: Value, node: Value, names: Mapping[int, str]) -> list[str]:
    """From the root down to the node, through the users with the largest gradients."""
    users: dict[int, Value] = {}
    for user in graph_below(root):
        for operand in user._operands:
            best = users.get(id(operand))
            if best is None or abs(user.grad) > abs(best.grad):
                users[id(operand)] = user
    path = [node]
    while path[-1] is not root and id(path[-1]) in users:
        path.append(users[id(path[-1])])
    return [_name(step, names) for step in reversed(path)]


def _name(node: Value, names: Mapping[int, str]) -> str:
    return names.get(id(node)) or node.label or (f"`{node._op}`" if node._op else repr(node._data))


def _call(node: Value, names: Mapping[int, str]) -> str:
    """A node by its op and operands, as "`*` of 2.0 (`a`) and 3.0"."""
    named = [(operand._data, names.get(id(operand)) or operand.label) for operand in node._operands]
    operands = [f"{number!r} (`{name}`)" if name else repr(number) for number, name in named]
    return f"`{node._op or 'node'}` of {' and '.join(operands)}"


def _arrows(path: list[str]) -> str:
    if len(path) > LONGEST_PATH:
        half = LONGEST_PATH // 2
        path = [*path[:half], f"… ({len(path) - 2 * half} more) …", *path[-half:]]
    return " → ".join(path)


def _remedy(node: Value) -> str:
    if is_hand_written(node):
        return f"Look at the {backward_of(node)}"
    advice = REMEDIES.get(node._rule.name if node._rule else "", REMEDY)
    return advice[0].upper() + advice[1:]
