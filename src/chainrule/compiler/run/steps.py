"""Training steps in native code: loss, gradient and the optimizer's update as one array program.

The update is the optimizer's own rule, run on array elements in place of numbers. Parameters and the optimizer's
slots stay in flat buffers from step to step; they are read from the Values before and written back after.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Expression, Number, Statement, Term
from chainrule.compiler.pipeline import Code
from chainrule.compiler.run.arguments import Examples, Traces
from chainrule.compiler.run.machine import Machine, places
from chainrule.compiler.run.on_device import Scalars, take_steps
from chainrule.compiler.run.threads import AT_ONCE, pieces
from chainrule.compiler.run.traced import Source, Traced
from chainrule.compiler.run.turns import training
from chainrule.core.bulk import write_data
from chainrule.core.value import Value
from chainrule.optim import Optimizer

SUM = "sum"  # the state in which parts of a step add up their gradients


def trains_what_is_used(optimizer: Optimizer, traced: Traced) -> bool:
    """Whether the optimizer changes all parameters that the loss depends on, by its rule alone."""
    used, trained = set(traced.captured["parameter"]), {p for p in optimizer.parameters if p.requires_grad}
    known = traced.source.wrt is None or trained <= set(traced.source.wrt)  # a gradient that is unknown is not zero
    return bool(used) and used <= trained and known and type(optimizer).step is Optimizer.step


def for_all(traced: Traced, optimizer: Optimizer) -> Traced:
    """The traced loss with all parameters that the optimizer changes, whether it uses them or not."""
    return traced.training([parameter for parameter in optimizer.parameters if parameter.requires_grad])


class Steps:
    """Steps of `optimizer` on a traced loss of one example, or on its mean over `examples`.

    As `parts` of a step, they only add the gradient to a sum (see `Update`).
    """

    def __init__(self, traced: Traced, optimizer: Optimizer, examples: int | None = None, parts: bool = False) -> None:
        if not trains_what_is_used(optimizer, traced):
            raise ValueError(
                "compiled steps apply the optimizer's rule to its parameters; the loss uses none of them, or others "
                "too, or all are frozen, or it has its own `step`: give it those that are used, or leave `compiled` out"
            )
        self.traced = traced = for_all(traced, optimizer)
        self.optimizer, self.summands = optimizer, examples or 1
        self.parameters: list[Value] = traced.captured["parameter"]
        self.order = places(self.parameters, optimizer.parameters)
        self.names = list(optimizer.scalars())
        source, clock = traced.source, traced.clock
        if examples is None:
            program = traced.lifted
        else:  # on a GPU, those that a block takes at a time
            program = traced.batched(
                traced.examples_of_a_block(examples) if source.backend == "cuda" else examples, total=True
            )
        then = self._with_sum if parts else self._with_update
        self.code = Code(program, True, source.backend, clock, then=then, dtype=source.dtype)
        self.stats = self.code.stats(traced.scalar_nodes, clock.seconds)
        self._run = traced.structure, traced.number, self.code

    def run_through(self, examples: Examples, firsts: range) -> list[float]:
        """Take a step on each batch, which begins at one of `firsts`; the losses before the updates."""
        if self.traced.source.backend == "cuda":
            return self.take(take_steps(examples, firsts))
        if firsts.step == 1:
            rows = examples.matrix()[firsts.start :]
            return self.take(lambda machine, scalars: _run(machine, scalars(len(rows)), {"input": rows}))

        def rows_of(part: range) -> Callable[[Machine, Scalars], np.ndarray]:
            return lambda machine, scalars: _run(machine, scalars(len(part)), {"input": examples.inputs(part, machine)})

        parts = pieces(firsts, AT_ONCE)  # the inputs may be a copy
        return [loss for part in parts for loss in self.take(rows_of(part))]

    def take(self, run: Callable[[Machine, Scalars], np.ndarray]) -> list[float]:
        """Take steps; the losses before the updates.

        `run` is given a machine, and a function that returns a row of the optimizer's scalars for each of so many next
        steps, all of which it takes. It returns a row with the loss of each. The caller must see to it that no other
        thread trains these parameters.
        """
        optimizer, steps = self.optimizer, self.optimizer.steps
        self.traced.source.ran(self._run)
        machine = self.code.take()
        self.traced.load(machine)
        for slot in optimizer.slots:
            machine.load(slot, np.array(optimizer.buffers[slot])[self.order])
        try:
            losses = run(machine, self._scalars)
        except BaseException:
            optimizer.steps = steps  # none was taken
            raise
        write_data(self.parameters, np.ascontiguousarray(machine.read("parameter")))
        for slot in optimizer.slots:
            np.asarray(optimizer.buffers[slot])[self.order] = machine.read(slot)
        self.code.give_back(machine)
        found: list[float] = (losses[:, 0].astype(np.float64) / self.summands).tolist()
        return found

    def _scalars(self, count: int) -> np.ndarray:
        """The optimizer's scalars for each of the next `count` steps, which are counted as taken."""
        optimizer = self.optimizer
        if type(optimizer).scalars is Optimizer.scalars and not callable(optimizer.lr):
            optimizer.steps += count
            return np.full((count, 1), optimizer.rate())
        read: Callable[[dict[str, float]], Any] = itemgetter(*self.names) if self.names else tuple
        rows = []
        for _ in range(count):  # a step may take no more than a microsecond, so this is written for speed
            rows.append(read(optimizer.scalars()))
            optimizer.steps += 1
        return np.array(rows).reshape(count, len(self.names))

    def _with_update(self, program: ArrayProgram) -> ArrayProgram:
        """The program, followed by the optimizer's rule on every parameter."""
        parameters, gradient = program.leaves["parameter"], program.gradient
        assert gradient is not None
        slots = _slots(self.optimizer, parameters.size)
        scalars = Array("scalars", len(self.names), "captured")
        total = _element(gradient)
        mean = ops.div(total, self.summands) if self.summands > 1 else total
        after = _after(self.optimizer, self.names, parameters, mean, slots, scalars)
        return _followed(program, _assignments(after), {**slots, "scalars": scalars})

    def _with_sum(self, program: ArrayProgram) -> ArrayProgram:
        """The program, followed by the addition of its gradient to a sum.

        What an update changes is part of the state here too, in the same places: it is set to what it is.
        """
        parameters, gradient = program.leaves["parameter"], program.gradient
        assert gradient is not None
        slots, total = _slots(self.optimizer, parameters.size), Array(SUM, parameters.size, "captured")
        same = [_elementwise(array, _element(array)) for array in (parameters, *slots.values())]
        more: Any = ops.add(_element(total), _element(gradient))
        return _followed(program, [*same, _elementwise(total, more)], {**slots, SUM: total})


class Update:
    """The optimizer's rule on every parameter, with the mean of the gradients in a sum, which is then zero again."""

    def __init__(self, steps: Steps) -> None:
        """For these steps, which are parts."""
        source, clock, size = steps.traced.source, steps.traced.clock, len(steps.parameters)
        parameters, total = Array("parameter", size, "parameter"), Array(SUM, size, "captured")
        slots = _slots(steps.optimizer, size)
        scalars = Array("scalars", len(steps.names) + 1, "captured")  # the last is the number of examples
        mean = ops.div(_element(total), Access(scalars, len(steps.names), (0,)))
        after = _after(steps.optimizer, steps.names, parameters, mean, slots, scalars)
        leaves = {"parameter": parameters, **slots, SUM: total, "scalars": scalars}
        program = ArrayProgram(_assignments({**after, total: Number(0.0)}), leaves, parameters)
        self.code = Code(program, False, source.backend, clock, dtype=source.dtype)


def _slots(optimizer: Optimizer, size: int) -> dict[str, Array]:
    return {slot: Array(slot, size, "captured") for slot in optimizer.slots}


def _after(
    optimizer: Optimizer, names: list[str], parameters: Array, mean: Any, slots: dict[str, Array], scalars: Array
) -> dict[Array, Any]:
    """What the optimizer's rule makes of the elements of the parameters and the slots."""
    numbers = {name: Access(scalars, k, (0,)) for k, name in enumerate(names)}
    after = optimizer.update(_element(parameters), mean, *map(_element, slots.values()), **numbers)
    return dict(zip((parameters, *slots.values()), after, strict=True))


def _followed(program: ArrayProgram, steps: list[Statement], leaves: dict[str, Array]) -> ArrayProgram:
    """The program with more steps and leaves."""
    return program.with_steps([*program.steps, *steps], {**program.leaves, **leaves})


def _element(array: Array) -> Access:
    return Access(array, 0, (1,))


def _run(machine: Machine, scalars: np.ndarray, inputs: dict[str, Any]) -> np.ndarray:
    """The losses of steps with these scalars, and with a row of inputs each, if there are any."""
    return machine.run_many({"scalars": scalars, **inputs})[0]


def _assignments(after: dict[Array, Any]) -> list[Statement]:
    """Statements that set every array to its expression, in which arrays stand for their old elements.

    They are in an order in which none reads what is already new; where there is no such order, through a copy.
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
            copies.append(_elementwise(array, _element(target)))
    return [*steps, *copies]


def _elementwise(target: Array, expression: Expression) -> Statement:
    return Statement(_element(target), (target.size,), [Term(expression)])


class CompiledSteps(Steps):
    """Steps on `loss(inputs)`, a function traced on symbols in place of `inputs`, which stay the same."""

    def __init__(
        self, loss: Callable[..., Any], inputs: Any, optimizer: Optimizer, backend: str = "llvm", dtype: str = "float64"
    ) -> None:
        traced, numbers, _ = Traces(Source(loss, optimizer.parameters, backend, dtype)).on_numbers([inputs])
        traced.refuse_branches("a program of many steps on all examples (without `batch_size`)")
        traced.check_scalar()
        super().__init__(traced, optimizer)
        self.inputs = np.array(numbers)[traced.used]

    def run(self, count: int) -> list[float]:
        """Take `count` steps; the loss of each, before its update."""
        if not all(parameter.requires_grad for parameter in self.parameters):
            raise ValueError("a parameter was frozen after its steps were compiled: compile the function again")
        with training(self.optimizer.parameters):
            return self.take(lambda machine, scalars: self._on_inputs(machine, scalars(count)))

    def _on_inputs(self, machine: Machine, scalars: np.ndarray) -> np.ndarray:
        machine.load("input", self.inputs)
        return _run(machine, scalars, {})
