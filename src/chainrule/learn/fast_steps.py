"""Training steps of a learner's network as WebAssembly: the same graph, the same numbers, a thousand times as fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isclose
from typing import Any

from chainrule import optim
from chainrule.core.value import Value
from chainrule.learn.own_module import gradient_of, graph_of
from chainrule.wasm import WasmProgram
from chainrule.wasm.browser import Instance

Loss = Callable[[Any, Sequence[Any], Sequence[Any]], Any]


class FastSteps:
    """Gradient descent on `loss_of(model, xs, ys)`, a node of the learner's class that is a sum or a mean of examples.

    The module is made from the graph of one example. Raises a ValueError if the class cannot be compiled, or if the
    gradients that its closures compute are not those of the graph.
    """

    def __init__(
        self, loss_of: Loss, model: Any, xs: Sequence[Sequence[float]], ys: Sequence[float], run: Any = Instance
    ) -> None:
        self.parameters = model.parameters()
        make = type(self.parameters[0])
        before = [(parameter, parameter.grad) for parameter in self.parameters]
        x, y = [make(number) for number in xs[0]], make(ys[0])
        loss = loss_of(model, [x], [y])
        graph = graph_of([loss], [*x, y], self.parameters)
        for parameter in self.parameters:
            parameter.grad = 0.0
        loss.backward()
        own = [parameter.grad for parameter in self.parameters]
        for parameter, grad in before:
            parameter.grad = grad
        if not all(isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for a, b in zip(own, gradient_of(graph), strict=True)):
            raise ValueError("the gradients of the class are not those of its graph")
        stand_ins = [Value(float(parameter.data)) for parameter in self.parameters]
        self.nodes = len(graph.rules)
        self.program = WasmProgram(graph, optim.SGD(stand_ins, lr=1.0))
        self.instance = run(self.program)
        self.load(xs, ys)
        self.sums = self._is_sum(float(loss_of(model, xs, ys).data))

    def load(self, xs: Sequence[Sequence[float]], ys: Sequence[float]) -> None:
        """Go on with these examples."""
        self.instance.load([[*x, y] for x, y in zip(xs, ys, strict=True)])
        self.count = len(ys)

    def _is_sum(self, whole: float) -> bool:
        """Whether the loss of all examples is the sum of theirs, and not their mean."""
        mean = self._mean(0, 0.0)
        for factor in (self.count, 1):
            if whole != 0.0 and isclose(whole, mean * factor, rel_tol=1e-9):
                return factor > 1 or self.count == 1
        raise ValueError("the loss of all examples is neither the sum nor the mean of theirs")

    @property
    def factor(self) -> float:
        """What the mean over examples must be multiplied by."""
        return float(self.count) if self.sums else 1.0

    def take(self, times: int, rate: float) -> float:
        """So many steps; the mean of the losses before each. The learner's parameters change as by their own loop."""
        loss = self._mean(times, rate * self.factor) * self.factor
        for parameter, number in zip(self.parameters, self.instance.read("parameters"), strict=True):
            parameter.data = number
        return loss

    def gradient(self) -> list[float]:
        """The gradient of the loss of all examples in the last step that was taken, for each parameter."""
        return [number * self.factor for number in self.instance.read("gradient")]

    def _mean(self, times: int, rate: float) -> float:
        """The mean loss of all examples, over steps; over none, the present one."""
        self.instance.write("parameters", [float(parameter.data) for parameter in self.parameters])
        if not times:
            return float(self.instance.gradient())
        self.instance.write("scalars", [rate])
        return float(self.instance.train(times))
