"""The problems through CasADi: scalar expressions, differentiated by CasADi, generated as C, compiled by gcc.

A loss over few points is one expression. Over many, that of one point is called in a loop, because gcc needs minutes
for straight lines of a hundred thousand operations; the loop and the update are casadi_driver.c, by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import casadi
import numpy as np

from peers.c_by_hand import Library, function_name
from problems import PENALTY, Problem

FEW = 10  # points


class Casadi:
    """What `peers.c_by_hand` offers, with generated code."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def training(self, problem: Problem) -> Callable[[int], float]:
        return self._library(problem).training(problem)

    def gradient(self, problem: Problem) -> Callable[[], tuple[float, np.ndarray]]:
        return self._library(problem).gradient(problem)

    def _library(self, problem: Problem) -> Library:
        folder = self.folder / f"casadi-{len(problem.x)}"
        folder.mkdir(exist_ok=True)
        functions = _functions(problem)
        generator = casadi.CodeGenerator("generated.c")
        for function in functions:
            generator.add(function)
        generator.generate(f"{folder}/")
        given = {
            "NAME": function_name(problem),
            "PARAMETERS": len(problem.start),
            "INPUTS": problem.sizes[0],
            "AT_ONCE": _at_once(problem),
            "ROOM": 1 + max(function.sz_w() for function in functions),
        }
        options = [f"-I{folder}", *(f"-D{name}={value}" for name, value in given.items())]
        return Library(Path(__file__).with_name("casadi_driver.c"), folder, *options)


def _at_once(problem: Problem) -> int:
    return len(problem.x) if len(problem.x) <= FEW else 1


def _functions(problem: Problem) -> list[Any]:
    """`some(p, x, y)`: the loss of some points and its gradient; `rest(p)`: what is added once."""
    p = casadi.SX.sym("p", len(problem.start))
    at_once = _at_once(problem)
    x, y = casadi.SX.sym("x", problem.sizes[0], at_once), casadi.SX.sym("y", at_once)
    total = sum(_loss(problem, p, x[:, i], y[i]) for i in range(at_once))
    penalty = casadi.SX(0) if problem.tanh else PENALTY * casadi.dot(p, p)
    some = casadi.Function("some", [p, x, y], [total, casadi.densify(casadi.gradient(total, p))])
    rest = casadi.Function("rest", [p], [penalty, casadi.densify(casadi.gradient(penalty, p))])
    return [some, rest]


def _loss(problem: Problem, p: Any, h: Any, y: Any) -> Any:
    offset = 0
    for inputs, outputs in problem.shapes:
        rows = casadi.reshape(p[offset : offset + outputs * (inputs + 1)], inputs + 1, outputs).T
        h = rows[:, :-1] @ h + rows[:, -1]
        h = casadi.tanh(h) if problem.tanh else _relu(h) if outputs > 1 else h
        offset += outputs * (inputs + 1)
    if problem.tanh:
        return (h - y) ** 2
    return _relu(1 - y * h) / len(problem.x)


def _relu(x: Any) -> Any:
    return (x > 0) * x
