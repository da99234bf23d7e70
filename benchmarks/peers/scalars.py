"""Scalar code on any class of Values, eagerly."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import chainrule
from chainrule import engine
from contest import Runner
from peers import microgpt_style
from workloads.problems import Problem

# The peers sort by recursion, a Python frame a node of depth; the workloads are at most a few thousand deep.
sys.setrecursionlimit(100_000)


def descend(loss, layers, parameters, xs, ys, rate):
    value = loss(layers, xs, ys)
    for p in parameters:
        p.grad = 0.0
    value.backward()
    for p in parameters:
        p.data -= rate * p.grad
    return value


def differentiate(loss, layers, parameters, xs, ys):
    value = loss(layers, xs, ys)
    for p in parameters:
        p.grad = 0.0
    value.backward()
    return value


LOOPS = {"training": [descend], "gradient": [differentiate], "forward": []}


class Training(Runner):
    """Steps of `descend`; if `managed`, one collection of garbage after each."""

    def __init__(self, problem: Problem, solution: Any, value: str, managed: bool = False) -> None:
        self.problem, self.loss, self.managed = problem, solution.loss, managed
        self.kind = VALUES[value]()
        self.points = problem.x.tolist(), problem.y.tolist()

    def begin(self) -> None:
        self.layers, self.parameters = self.problem.scalars(self.kind)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            result = self.step()
            self.value = float(getattr(result, "data", result))
            del result
            if self.managed:
                gc.collect()

    def step(self) -> Any:
        return descend(self.loss, self.layers, self.parameters, *self.points, self.problem.rate)

    def numbers(self) -> tuple[float, np.ndarray]:
        return self.value, np.array([p.data for p in self.parameters])


class Gradient(Training):
    """The same without an update."""

    def step(self) -> Any:
        return differentiate(self.loss, self.layers, self.parameters, *self.points)

    def numbers(self) -> tuple[float, np.ndarray]:
        return self.value, np.array([p.grad for p in self.parameters], dtype=np.float64)


class Forward(Training):
    """The graph is built, and freed when the next one is."""

    def step(self) -> Any:
        return self.loss(self.layers, *self.points)

    def numbers(self) -> tuple[float, np.ndarray]:
        return self.value, np.array([self.value])


def _native() -> type:
    if chainrule.ENGINE != "native":
        raise ImportError("the native engine is not built")
    return chainrule.Value


def micrograd() -> type:
    """micrograd's own class, with what it lacks written as its ops are."""
    from micrograd.engine import Value

    def op(name: str, forward: Callable[[float], float], slope: Callable[[float, float], float]) -> None:
        def method(self):
            out = Value(forward(self.data), (self,), name)

            def _backward():
                self.grad += slope(self.data, out.data) * out.grad

            out._backward = _backward
            return out

        setattr(Value, name, method)

    op("tanh", math.tanh, lambda x, t: 1 - t * t)
    op("exp", math.exp, lambda x, e: e)
    op("log", math.log, lambda x, _: 1 / x)
    return Value


def minigrad() -> type:
    from minigrad import Value

    return Value


VALUES: dict[str, Callable[[], type]] = {
    "native": _native,
    "Python": lambda: engine.Value,
    "microgpt": lambda: microgpt_style.Value,
    "micrograd": micrograd,
    "minigrad": minigrad,
    "float": lambda: float,
}
