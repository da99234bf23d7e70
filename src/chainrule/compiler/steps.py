"""Training steps without leaving native code: loss, gradient and the optimizer's update as one array program.

The update is the optimizer's own rule, run on array elements in place of numbers. Parameters and the optimizer's
memory stay in flat buffers from step to step; `run` reads them from the Values before and writes them back after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule._bulk import read_data, write_data
from chainrule._value import Value
from chainrule.compiler.function import CompiledFunction
from chainrule.compiler.machine import Clock, Machine
from chainrule.compiler.program import Access, Array, ArrayProgram, Expression, Number, Statement, Term
from chainrule.optim import Optimizer


class CompiledSteps:
    """Steps of `optimizer` on `loss(inputs)`, a function that is traced on symbols in place of `inputs`."""

    def __init__(
        self,
        loss: Callable[[Any], Any],
        inputs: Any,
        optimizer: Optimizer,
        backend: str = "llvm",
        dtype: str = "float64",
    ) -> None:
        function = CompiledFunction(loss, optimizer.parameters, backend, dtype)
        traced, numbers = function._trace([inputs])
        function._check_scalar(traced)
        self.optimizer = optimizer
        self.parameters: list[Value] = traced.captured["parameter"]
        if set(self.parameters) != {parameter for parameter in optimizer.parameters if parameter.requires_grad}:
            raise ValueError("the loss does not depend on every parameter of the optimizer, and their update needs it")
        place = {parameter: k for k, parameter in enumerate(optimizer.parameters)}
        self.order = np.array([place[parameter] for parameter in self.parameters])
        self.names = list(optimizer.scalars())
        clock = Clock()
        self.machine = Machine(traced.lifted, True, backend, clock, then=self._with_update, dtype=dtype)
        self.stats = self.machine.stats(traced.scalar_nodes, {**traced.clock.seconds, **clock.seconds})
        traced.load(self.machine)
        self.machine.load("input", np.array(numbers)[traced.used])

    def run(self, count: int) -> list[float]:
        """Take so many steps; the loss of each, before its update."""
        optimizer, buffer = self.optimizer, np.empty(len(self.parameters))
        read_data(self.parameters, buffer)
        self.machine.load("parameter", buffer)
        for slot in optimizer.slots:
            self.machine.load(slot, np.array(optimizer.buffers[slot])[self.order])
        losses, _ = self.machine.run_many("scalars", self._scalars(count))
        write_data(self.parameters, np.ascontiguousarray(self.machine.read("parameter")))
        for slot in optimizer.slots:
            column = np.array(optimizer.buffers[slot])
            column[self.order] = self.machine.read(slot)
            optimizer.buffers[slot] = column.tolist()
        return list(map(float, losses[:, 0]))

    def _scalars(self, count: int) -> np.ndarray:
        """The optimizer's numbers for each of the coming steps; counts those steps."""
        optimizer = self.optimizer
        if type(optimizer).scalars is Optimizer.scalars and not callable(optimizer.lr):
            optimizer.steps += count
            return np.full((count, 1), optimizer.rate())
        rows = []
        for _ in range(count):
            rows.append([optimizer.scalars()[name] for name in self.names])
            optimizer.steps += 1
        return np.array(rows)

    def _with_update(self, program: ArrayProgram) -> ArrayProgram:
        """The program, followed by the optimizer's rule on every parameter."""
        parameters, gradient = program.leaves["parameter"], program.gradient
        assert gradient is not None
        size = parameters.size
        slots = {slot: Array(slot, size, "captured") for slot in self.optimizer.slots}
        scalars = Array("scalars", len(self.names), "captured")
        numbers = {name: Access(scalars, k, (0,)) for k, name in enumerate(self.names)}
        before = [Access(array, 0, (1,)) for array in (parameters, gradient, *slots.values())]
        after = self.optimizer.update(*before, **numbers)
        changed = [parameters, *slots.values()]
        results = [Array(f"next_{array.name}", size, "value") for array in changed]
        steps: list[Statement] = []
        for result, expression in zip(results, after, strict=True):
            value = expression if isinstance(expression, Expression) else Number(float(expression))
            steps.append(Statement(Access(result, 0, (1,)), (size,), [Term(value)]))
        for array, result in zip(changed, results, strict=True):
            steps.append(Statement(Access(array, 0, (1,)), (size,), [Term(Access(result, 0, (1,)))]))
        whole = ArrayProgram([*program.steps, *steps], {**program.leaves, **slots, "scalars": scalars}, program.output)
        whole.gradient = gradient
        return whole
