"""Training steps in native code: loss, gradient and the optimizer's update as one array program.

The update is the optimizer's own rule, run on array elements in place of numbers. Parameters and the optimizer's
slots stay in flat buffers from step to step; they are read from the Values before and written back after. Where there
is no such program, a step is a batch's gradient and `optimizer.step()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.lift import IrregularityError
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Expression, Number, Statement, Term
from chainrule.compiler.pipeline import Code
from chainrule.compiler.run.arguments import Examples, Traces
from chainrule.compiler.run.calls import sum_and_grad
from chainrule.compiler.run.machine import Machine, Order, places
from chainrule.compiler.run.on_device import Scalars, take_steps
from chainrule.compiler.run.paths import Paths
from chainrule.compiler.run.threads import AT_ONCE, pieces
from chainrule.compiler.run.traced import Source, Traced
from chainrule.compiler.run.turns import borrowing_gradients, compiling, training
from chainrule.core.bulk import read_grad, write_data, write_grad
from chainrule.core.value import Value
from chainrule.optim import Optimizer


def train(
    paths: Paths,
    optimizer: Optimizer,
    examples: Examples,
    size: int,
    threads: int | None,
    same_every_step: bool = False,
) -> list[float]:
    """Take a step on the mean of each `size` examples, and one on the rest; the losses before the updates.

    A rule that a user wrote becomes part of a program only if they say that it does the same at every step.
    """
    if paths.only is not None:
        paths.only.check_scalar()
        if examples.are_on_device:  # where a program notices too late, after its steps
            examples.check_classes(paths.only)
    whole, losses = examples.count // size * size, []
    with training(optimizer.parameters):
        for firsts in filter(None, (range(0, whole, size), range(whole, examples.count, examples.count - whole or 1))):
            known = optimizer.rule_is_known or same_every_step
            if paths.only and known and (steps := _compiled(paths.only, optimizer, firsts.step)):
                losses += steps.run_through(examples, firsts)
            else:  # also if there are branches: each step may change the path
                losses += _taken_one_by_one(paths, optimizer, examples, firsts, threads)
    return losses


def _compiled(traced: Traced, optimizer: Optimizer, size: int) -> Steps | None:
    """Steps as one program; None where that is impossible, or does not pay because a batch is beyond the cache."""
    source = traced.source
    trained = tuple([parameter.requires_grad for parameter in optimizer.parameters])
    key = optimizer, repr(optimizer.settings), trained, size  # all that is part of the program
    if key not in traced.steps:
        fits = source.backend == "cuda" or size <= traced.most_examples
        if source.strict or not fits or not _trains_what_is_used(optimizer, traced):
            return None
        with compiling(source):
            try:
                traced.steps[key] = Steps(traced, optimizer, size if size > 1 or source.backend == "cuda" else None)
            except IrregularityError:
                if source.dtype != "float64":
                    raise
                traced.steps[key] = None
    found: Steps | None = traced.steps[key]
    return found


def _taken_one_by_one(
    paths: Paths, optimizer: Optimizer, examples: Examples, firsts: range, threads: int | None
) -> list[float]:
    """Steps of the optimizer's own `step`, each on the gradient of a batch, in one run of the program or many."""
    parameters, wrt = optimizer.parameters, paths.only.wrt if paths.only else paths.source.wrt
    if wrt is not None and not set(parameters) <= set(wrt):
        name = paths.source.name
        raise ValueError(f"`optimizer` has parameters that are not in the `wrt` of `{name}`: give it those")
    before, losses = np.empty(len(parameters)), []
    with borrowing_gradients(parameters):
        read_grad(parameters, before)
        try:
            for first in firsts:
                batch = examples.chosen(range(first, first + firsts.step))
                value, gradient, by = sum_and_grad(paths, batch, batch.count, threads)
                write_grad(parameters, Order(parameters, by)(gradient))
                optimizer.step()
                losses.append(value)
        finally:
            write_grad(parameters, before)
    return losses


def _trains_what_is_used(optimizer: Optimizer, traced: Traced) -> bool:
    """Whether the optimizer changes exactly the parameters that the loss depends on, by its rule alone."""
    used, trained = set(traced.captured["parameter"]), {p for p in optimizer.parameters if p.requires_grad}
    return bool(used) and used == trained and type(optimizer).step is Optimizer.step


class Steps:
    """Steps of `optimizer` on a traced loss of one example, or on its mean over `examples`."""

    def __init__(self, traced: Traced, optimizer: Optimizer, examples: int | None = None) -> None:
        self.traced, self.optimizer, self.summands = traced, optimizer, examples or 1
        self.parameters: list[Value] = traced.captured["parameter"]
        if not _trains_what_is_used(optimizer, traced):
            raise ValueError(
                "compiled steps apply the optimizer's rule to each of its parameters; the loss does not use every "
                "one, or all are frozen, or it has its own `step`: give it those that are used, or leave `compiled` out"
            )
        self.order = places(self.parameters, optimizer.parameters)
        self.names = list(optimizer.scalars())
        source, clock = traced.source, traced.clock
        if examples is None:
            program = traced.lifted
        else:  # on a GPU, those that a block takes at a time
            program = traced.batched(
                traced.examples_of_a_block(examples) if source.backend == "cuda" else examples, total=True
            )
        self.code = Code(program, True, source.backend, clock, then=self._with_update, dtype=source.dtype)
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
            return lambda machine, scalars: _run(machine, scalars(len(part)), {"input": examples.rows(part, machine)})

        parts = pieces(firsts, AT_ONCE)  # the rows are a copy
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
        return [float(loss) / self.summands for loss in losses[:, 0]]

    def _scalars(self, count: int) -> np.ndarray:
        """The optimizer's scalars for each of the next `count` steps, which are counted as taken."""
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


def _run(machine: Machine, scalars: np.ndarray, inputs: dict[str, np.ndarray]) -> np.ndarray:
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
            copies.append(_elementwise(array, Access(target, 0, (1,))))
    return [*steps, *copies]


def _elementwise(target: Array, expression: Expression) -> Statement:
    return Statement(Access(target, 0, (1,)), (target.size,), [Term(expression)])


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


class BatchSteps:
    """Steps on the mean over a batch of `loss`, a function of one example; batches are given by their numbers."""

    def __init__(
        self,
        loss: Callable[..., Any],
        arrays: Sequence[Any],
        optimizer: Optimizer,
        dtype: str,
        backend: str = "llvm",
    ) -> None:
        traces = Traces(Source(loss, optimizer.parameters, backend, dtype))
        self.optimizer = optimizer
        self.paths, self.examples = traces.on_examples(arrays, ("data.inputs", "data.targets"))
        self.traced = self.paths.known.paths[0]

    def run(self, numbers: Sequence[int], size: int) -> list[float]:
        """Take a step on each `size` of the examples with these numbers; the loss of each, before its update."""
        return train(self.paths, self.optimizer, self.examples.chosen(numbers), size, None, same_every_step=True)
