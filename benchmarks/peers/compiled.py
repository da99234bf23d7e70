"""The problems through chainrule's compiler, from the scalar code that its users write."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import chainrule
from chainrule import Value, fit, losses, nn, optim
from chainrule.compiler.steps import CompiledSteps
from large_losses import LargeLoss
from peers import scalars
from problems import PENALTY, RATE, Problem


class Fit:
    """The steps that `fit(..., compiled=True)` takes, without its compiling them anew at each call."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.model, self.loss, self.penalty = _library_model(problem)

        def total(inputs: Any) -> Any:
            value = self.loss([self.model(x) for x in inputs], problem.points.targets)
            return value + self.penalty(self.parameters) if self.penalty else value

        self.parameters = self.model.parameters()
        self.optimizer = optim.SGD(self.parameters, lr=RATE)
        self.steps = CompiledSteps(total, problem.points.inputs, self.optimizer)

    def __call__(self, steps: int) -> float:
        """So many steps from the start; the last loss."""
        _set(self.parameters, self.problem.start)
        return self.steps.run(steps)[-1]

    def whole(self, epochs: int) -> float:
        """The seconds that `fit` itself takes from the start, compiling included."""
        _set(self.parameters, self.problem.start)
        options = {"penalty": self.penalty, "progress": False, "compiled": True}
        fitted = fit(self.model, self.loss, self.problem.points, optimizer=self.optimizer, epochs=epochs, **options)
        return fitted.seconds


class Call:
    """`program()` on the graph that `peers.scalars` records: reads every parameter's Value, adds to every gradient."""

    def __init__(self, problem: Problem) -> None:
        network = scalars.Network(problem, Value)
        self.parameters = network.parameters
        self.problem = problem
        self.program, self.seconds = _compiled(network.loss(), self.parameters)

    def __call__(self, steps: int) -> float:
        """So many steps from the start; the last loss. For checks: the update is in Python."""
        _set(self.parameters, self.problem.start)
        for _ in range(steps):
            for p in self.parameters:
                p.grad = 0.0
            loss = self.program()
            for p in self.parameters:
                p.data -= RATE * p.grad
        return loss

    def repeat(self, count: int) -> None:
        """Call it so many times; gradients add up, for nobody reads them."""
        program = self.program
        for _ in range(count):
            program()


class Gradient(scalars.Gradient):
    """The gradient of a large loss, recorded once and compiled."""

    def __init__(self, large: LargeLoss) -> None:
        super().__init__(large, Value)
        self.program, self.seconds = _compiled(large.of(self.weights), self.parameters)
        self.once = self.program


def gradient(problem: Problem, threads: int = 1, dtype: str = "float64") -> Callable[[], tuple[float, np.ndarray]]:
    """The loss and its gradient at the start, through `program.batch`."""
    network = scalars.Network(problem, Value)

    @chainrule.compile(wrt=network.parameters, dtype=dtype)
    def loss(x: Any, y: Any) -> Any:
        return (1 - y * network(x)).relu() + PENALTY * sum(p * p for p in network.parameters)

    def run() -> tuple[float, np.ndarray]:
        for p in network.parameters:
            p.grad = 0.0
        value = loss.batch(problem.x, problem.y, threads=threads)
        return value, np.array([p.grad for p in network.parameters])

    return run


def _compiled(loss: Value, parameters: list[Value]) -> tuple[Any, float]:
    """The program, and the seconds that compiling took."""
    started = perf_counter()
    return chainrule.compile(loss, wrt=parameters), perf_counter() - started


def _library_model(problem: Problem) -> tuple[nn.MLP, Any, Any]:
    inputs, *outputs = problem.sizes
    if problem.tanh:
        model = nn.MLP(inputs, outputs, activation="tanh", output="tanh")
        loss, penalty = losses.sum_of_squares, None
    else:
        model, loss, penalty = nn.MLP(inputs, outputs), losses.hinge, losses.l2(PENALTY)
    _set(model.parameters(), problem.start)
    return model, loss, penalty


def _set(parameters: list[Value], numbers: np.ndarray) -> None:
    for parameter, number in zip(parameters, numbers.tolist(), strict=True):
        parameter.data = number
