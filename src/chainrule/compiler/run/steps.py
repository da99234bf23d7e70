"""Training steps without leaving native code: loss, gradient and the optimizer's update as one array program.

The update is the optimizer's own rule, run on array elements in place of numbers. Parameters and the optimizer's
memory stay in flat buffers from step to step; they are read from the Values before and written back after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.function import CompiledFunction
from chainrule.compiler.passes.batch import batched
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Expression, Number, Statement, Term
from chainrule.compiler.run.examples import Examples
from chainrule.compiler.run.machine import Clock, Code, Machine
from chainrule.compiler.run.threads import AT_ONCE, pieces
from chainrule.compiler.run.traced import Traced
from chainrule.compiler.run.turns import training
from chainrule.core.bulk import write_data
from chainrule.core.value import Value
from chainrule.optim import Optimizer


def trains_what_is_used(optimizer: Optimizer, traced: Traced) -> bool:
    """Whether the optimizer changes the parameters that the loss depends on, all and no others, by its rule alone."""
    used = traced.captured["parameter"]
    return (
        bool(used)
        and type(optimizer).step is Optimizer.step
        and set(used) == {p for p in optimizer.parameters if p.requires_grad}
    )


class Steps:
    """Steps of `optimizer` on a traced loss, or on its mean over so many `examples`, each on numbers of its own."""

    def __init__(
        self, traced: Traced, optimizer: Optimizer, backend: str, dtype: str, examples: int | None = None
    ) -> None:
        self.traced = traced
        self.optimizer = optimizer
        self.summands = examples or 1
        self.parameters: list[Value] = traced.captured["parameter"]
        if not trains_what_is_used(optimizer, traced):
            raise ValueError(
                "compiled steps apply the optimizer's rule to each of its parameters; the loss does not use every "
                "one, or all are frozen, or it has its own `step`: give it those that are used, or leave `compiled` out"
            )
        place = {parameter: k for k, parameter in enumerate(optimizer.parameters)}
        self.order = np.array([place[parameter] for parameter in self.parameters])
        self.names = list(optimizer.scalars())
        clock = Clock()
        program = traced.lifted if examples is None else batched(traced.lifted, examples, total=True)
        self.code = Code(program, True, backend, clock, then=self._with_update, dtype=dtype)
        self.stats = self.code.stats(traced.scalar_nodes, {**traced.clock.seconds, **clock.seconds})

    def run_through(self, examples: Examples, firsts: range) -> list[float]:
        """Take a step on each batch, which begins at one of `firsts`; the losses before the updates."""
        if firsts.step == 1:
            rows = examples.matrix()[firsts.start :]
            return self.take(len(firsts), lambda machine: {"input": rows})

        def rows_of(part: range) -> Callable[[Machine], dict[str, np.ndarray]]:
            return lambda machine: {"input": examples.rows(part, machine)}

        parts = pieces(firsts, AT_ONCE)  # the rows are a copy
        return [loss for part in parts for loss in self.take(len(part), rows_of(part))]

    def take(self, count: int, load: Callable[[Machine], dict[str, np.ndarray]]) -> list[float]:
        """Take so many steps; the losses before the updates.

        `load` gives the machine its inputs, or returns a row of them for each step. It is the caller who sees to it
        that no other thread trains these parameters.
        """
        optimizer, steps = self.optimizer, self.optimizer.steps
        machine = self.code.take()
        self.traced.load(machine)
        for slot in optimizer.slots:
            machine.load(slot, np.array(optimizer.buffers[slot])[self.order])
        try:
            losses, _ = machine.run_many({"scalars": self._scalars(count), **load(machine)})
        except BaseException:
            optimizer.steps = steps  # none was taken
            raise
        write_data(self.parameters, np.ascontiguousarray(machine.read("parameter")))
        for slot in optimizer.slots:
            np.asarray(optimizer.buffers[slot])[self.order] = machine.read(slot)
        self.code.give_back(machine)
        return [float(loss) / self.summands for loss in losses[:, 0]]

    def _scalars(self, count: int) -> np.ndarray:
        """The optimizer's numbers for each of the coming steps; counts those steps."""
        optimizer = self.optimizer
        if type(optimizer).scalars is Optimizer.scalars and not callable(optimizer.lr):
            optimizer.steps += count
            return np.full((count, 1), optimizer.rate())
        rows = []
        for _ in range(count):
            scalars = optimizer.scalars()
            rows.append([scalars[name] for name in self.names])
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
        parameter, total, *others = [Access(array, 0, (1,)) for array in (parameters, gradient, *slots.values())]
        mean = ops.div(total, self.summands) if self.summands > 1 else total
        after = self.optimizer.update(parameter, mean, *others, **numbers)
        steps = _assignments(dict(zip((parameters, *slots.values()), after, strict=True)))
        whole = ArrayProgram([*program.steps, *steps], {**program.leaves, **slots, "scalars": scalars}, program.output)
        whole.gradient = gradient
        return whole


def _assignments(after: dict[Array, Any]) -> list[Statement]:
    """Statements that give arrays new elements, each from old ones at the same place.

    In place, in an order in which nobody reads what is new already; where there is no such order, by way of a copy.
    """
    waiting = {a: e if isinstance(e, Expression) else Number(float(e)) for a, e in after.items()}
    reads = {array: {access.array for access in expression.accesses()} for array, expression in waiting.items()}
    steps, copies = [], []
    while waiting:
        free = [a for a in waiting if not any(a in reads[other] for other in waiting if other is not a)]
        array = free[0] if free else next(iter(waiting))
        target = array if free else Array(f"next_{array.name}", array.size, "value")
        steps.append(_elementwise(target, waiting.pop(array)))
        if not free:
            copies.append(_elementwise(array, Access(target, 0, (1,))))
    return [*steps, *copies]


def _elementwise(target: Array, expression: Expression) -> Statement:
    return Statement(Access(target, 0, (1,)), (target.size,), [Term(expression)])


class CompiledSteps(Steps):
    """Steps on `loss(inputs)`, a function that is traced on symbols in place of `inputs`; these are the same always."""

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
        super().__init__(traced, optimizer, backend, dtype)
        self.inputs = np.array(numbers)[traced.used]

    def run(self, count: int) -> list[float]:
        """Take so many steps; the loss of each, before its update."""
        if not all(parameter.requires_grad for parameter in self.parameters):
            raise ValueError("a parameter was frozen after its steps were compiled: compile the function again")
        with training(self.optimizer.parameters):
            return self.take(count, self._load)

    def _load(self, machine: Machine) -> dict[str, np.ndarray]:
        machine.load("input", self.inputs)
        return {}


class BatchSteps:
    """Steps on the mean over a batch of `loss`, a function of one example; batches are given by their numbers."""

    def __init__(self, loss: Callable[..., Any], arrays: Sequence[Any], optimizer: Optimizer, dtype: str) -> None:
        self.function = CompiledFunction(loss, optimizer.parameters, dtype=dtype)
        self.optimizer = optimizer
        self.traced, self.examples = self.function._examples(arrays, ("data.inputs", "data.targets"))

    def run(self, numbers: Sequence[int], size: int) -> list[float]:
        """Take a step on each `size` of these examples; the loss of each, before its update."""
        return self.function._train(self.optimizer, self.traced, self.examples.chosen(numbers), size, None)
