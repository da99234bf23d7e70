"""The learner's own program: what they wrote in the exercises, put together, so that the course's figures run it.

A program comes from the page as data: {"template": text, "own": code by exercise, "lent": solutions by exercise}. What
the learner has not written yet is lent: the solution stands in its place. `assemble` also tries the program out. If it
does not train, the learner's part that is to blame is lent too, although it passed its own check.
"""

from __future__ import annotations

import ast
import inspect
import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isclose, isfinite
from typing import Any

from chainrule.core.value import Value
from chainrule.learn import lent as standard
from chainrule.learn.course import SLOT, fill
from chainrule.learn.explaining import FILE

Names = dict[str, Any]

# What stands where a neuron says tanh; of ops that every class in the course has.
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: x.relu(),
    "sigmoid": lambda x: ((x * 0.5).tanh() + 1.0) * 0.5,
    "tanh": lambda x: x.tanh(),
}


@dataclass(frozen=True)
class Program:
    """A program that has run: its names, and which exercises' code is lent, in the order of the template."""

    source: str
    names: Names
    lent: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()  # those that the learner wrote, and that are lent because the program fails with them
    bent: dict[str, Names] = field(default_factory=dict)

    def network(self, sizes: Sequence[int], activation: str = "tanh", seed: int = 1) -> Any:
        """The program's MLP. With another activation, its hidden neurons have that where they say tanh."""
        random.seed(seed)
        hidden = self.names if activation == "tanh" else self._bent(activation)
        model = hidden["MLP"](sizes[0], list(sizes[1:]))
        if activation != "tanh":
            for neuron in model.layers[-1].neurons:
                neuron.__class__ = self.names["Neuron"]
        return model

    def loss_of(self, model: Any, xs: Sequence[Any], ys: Sequence[float]) -> Any:
        """The program's loss, a node of its graph."""
        return self.names["loss_of"](model, xs, ys)

    def train_once(self, model: Any, xs: Sequence[Any], ys: Sequence[float], rate: float) -> float:
        """One step of the program's training loop; returns the loss before it."""
        return float(self.names["train"](model, xs, ys, 1, rate)[0])

    def _bent(self, activation: str) -> Names:
        """The names of the program with `_activate(x)` where it says `x.tanh()`; its Value is the same class."""
        if activation not in self.bent:
            tree = ast.parse(self.source)
            tree.body = [node for node in tree.body if getattr(node, "name", "") != "Value"]
            names = {**self.names, "_activate": ACTIVATIONS[activation]}
            code = compile(ast.fix_missing_locations(_OtherActivation().visit(tree)), FILE, "exec")
            exec(code, names)
            names["Value"] = self.names["Value"]
            self.bent[activation] = names
        return self.bent[activation]


class _OtherActivation(ast.NodeTransformer):
    """`x.tanh()` and `Value.tanh(x)` become `_activate(x)`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        if not isinstance(called, ast.Attribute) or called.attr != "tanh" or ast.unparse(called.value) == "math":
            return node
        return ast.Call(ast.Name("_activate", ast.Load()), node.args or [called.value], [])


def assemble(
    given: Mapping[str, Any] | None,
    activations: Sequence[str] = ("tanh",),
    attempt: Callable[[Program], object] = lambda program: None,
) -> Program:
    """The program that `given` describes, tried out with these activations; without one, chainrule's own.

    An `attempt` raises an exception if the program does not work for another reason.

    >>> assemble(None).names["MLP"](2, [3, 1])([0.5, -1.0]).data > -1.0
    True
    """
    if not given:
        return _run(inspect.getsource(standard), {})
    slots = list(dict.fromkeys(name for _, _, name, _ in SLOT.findall(given["template"]) if name))
    written = [name for name in slots if name in given["own"]]
    for failing in ([], *([name] for name in reversed(written))):  # lent as well
        with suppress(Exception):
            return _tried(given, slots, failing, activations, attempt)
    return _tried(given, slots, written, activations, attempt)


def _tried(
    given: Mapping[str, Any],
    slots: list[str],
    failing: list[str],
    activations: Sequence[str],
    attempt: Callable[[Program], object],
) -> Program:
    """The program in which `failing` is lent, if it works; or the exception that it raises."""
    own = {name: code for name, code in given["own"].items() if name not in failing}
    lent = tuple(name for name in slots if name not in own)
    program = _run(fill(given["template"], "", {**given["lent"], **own}).text, given, lent, tuple(failing))
    for activation in activations:
        _try(program, activation)
    attempt(program)
    return program


def report(given: str, activations: str = "tanh") -> str:
    """What of a program is lent, for the page: {"lent": names, "failing": names of those that the learner wrote}."""
    program = assemble(json.loads(given), activations.split(","))
    return json.dumps({"lent": program.lent, "failing": program.failing})


def _run(source: str, given: Mapping[str, Any], lent: tuple[str, ...] = (), failing: tuple[str, ...] = ()) -> Program:
    names: Names = {"__name__": "lesson"}  # so that nothing behind `if __name__ == "__main__"` runs
    exec(compile(source, FILE, "exec"), names)
    if given.get("engine") == "chainrule":
        names["Value"] = Value
    return Program(source, names, lent, failing)


def _try(program: Program, activation: str) -> None:
    """Raises an exception unless a small network trains, and its hidden neurons have the activation."""
    model = program.network([1, 2, 1], activation)
    neuron = model.layers[0].neurons[1]
    (neuron.w[0].data, neuron.b.data), made = (0.5, 0.25), type(neuron.b)
    expected = ACTIVATIONS[activation](made(0.75)).data
    if not isclose(model.layers[0]([1.0])[1].data, expected, rel_tol=1e-9):
        raise ValueError(f"its neurons do not become {activation} where they say tanh")
    losses = [program.train_once(model, [[0.5], [-1.0]], [0.5, -0.5], 0.01) for _ in range(2)]
    if not (all(map(isfinite, losses)) and losses[1] < losses[0]):
        raise ValueError("its loss does not fall")
