"""Compiled functions: traced on symbols once for each structure of arguments, then run on numbers.

function ──call on Symbols──► Graph ──lift──► ArrayProgram of one example ──(batched)──► Code
                                └──(strict, or nothing repeats)──► StrictCode

Any number of threads may call one. What is traced and compiled stays as it is; each call takes a machine to run in.
"""

from __future__ import annotations

import copy
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from chainrule.compiler.backends.strict import StrictCode
from chainrule.compiler.passes.batch import batched
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.lift import IrregularityError
from chainrule.compiler.passes.naming import ArgumentNames, argument_spans, names_of_parameters
from chainrule.compiler.passes.program import ArrayProgram
from chainrule.compiler.run.examples import Examples, rows_of
from chainrule.compiler.run.export import frozen
from chainrule.compiler.run.machine import Code, Machine, check_dtype, load_xla
from chainrule.compiler.run.threads import check_threads, joined, spread, threads_for
from chainrule.compiler.run.traced import Run, Traced
from chainrule.compiler.run.turns import add_to_grad, borrowing_gradients, compiling, training
from chainrule.compiler.trace.symbols import Symbol, refuse_numbers
from chainrule.core.arguments import whole_number
from chainrule.core.bulk import read_grad, write_grad
from chainrule.core.display import shown
from chainrule.core.recording import constant
from chainrule.core.structure import Structure, batch_of, build, difference, flatten, is_one_number
from chainrule.core.tracing import is_tracing
from chainrule.core.value import Value
from chainrule.nn import Module
from chainrule.ops import as_float
from chainrule.optim import Optimizer

if TYPE_CHECKING:
    from chainrule.compiler.run.sharding import ShardedFunction
    from chainrule.compiler.run.steps import Steps

STORM = 8  # programs of one function; more of them draw a warning

T = TypeVar("T")


class _Thread(threading.local):
    latest: Run | None = None


class CompiledFunction:
    """A function of numbers that runs compiled; `chainrule.compile(function)` makes one.

    >>> w = Value(3.0)
    >>> program = CompiledFunction(lambda x: w * x * x, wrt=[w])
    >>> program(2.0), w.grad
    (12.0, 4.0)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        wrt: Sequence[Value] | None = None,
        backend: str = "llvm",
        dtype: str = "float64",
        strict: bool = False,
    ) -> None:
        update_wrapper(self, function, updated=())
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self._wrt = wrt
        self._backend = backend
        self._dtype = dtype
        self._strict = strict
        self._traced: dict[Structure, Traced] = {}
        self._this_thread = _Thread()
        self._latest: Run | None = None  # of any thread
        self._programs: list[tuple[Structure, int | None]] = []  # what was compiled

    def __reduce__(self) -> str:
        """As of any function: a copy is the function itself, a pickle is its name."""
        return str(getattr(self, "__qualname__", self.name))

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledFunction:
        """Itself, as of any function; but a method that is compiled belongs to its object, and goes with the copy."""
        function = copy.deepcopy(self.function, memo)
        if function is self.function:
            return self
        wrt = copy.deepcopy(self._wrt, memo)
        return CompiledFunction(function, wrt, self._backend, self._dtype, self._strict)

    def __call__(self, *inputs: Any) -> Any:
        """The result for these inputs; adds the gradient to `wrt` as `backward()` would, if the result is one number.

        Called by a function that is being traced, it becomes part of that one.

        >>> program = CompiledFunction(lambda x, y: [x + y, (x * y,)])
        >>> program(2.0, 3.0)
        [5.0, (6.0,)]
        """
        if is_tracing():
            return self.function(*_nodes(inputs))
        traced, numbers = self._trace(inputs)
        if not is_one_number(traced.result):
            code, machine = self._run(traced, numbers, total=False)
            output = machine.output.tolist()
            code.give_back(machine)
            return build(traced.result, iter(output), dtype=np.float64)
        value, gradient = self._value_and_grad(traced, numbers)
        add_to_grad(traced.wrt, gradient)
        return build(traced.result, iter([value]), dtype=np.float64)

    def value_and_grad(self, *inputs: Any) -> tuple[float, np.ndarray]:
        """The result and its gradient by `wrt`, from the captured Values' present data; no Value is changed.

        >>> w = Value(3.0)
        >>> CompiledFunction(lambda x: w * w * x).value_and_grad(2.0)
        (18.0, array([12.]))
        """
        refuse_numbers("calls `value_and_grad` of a compiled function")
        traced, numbers = self._trace(inputs)
        self._check_scalar(traced)
        return self._value_and_grad(traced, numbers)

    def batch(self, *arrays: Any, reduce: str | None = "mean", threads: int | None = None) -> Any:
        """The mean or sum of the results for many examples; adds its gradient to `wrt` as `backward()` would.

        Each argument has a leading axis of examples, and the function is traced on one of them. With `reduce=None`:
        the result for each example, and no gradient. A large batch runs on as many `threads` as there are cores,
        unless you say otherwise; the result is the same to the last bit for any number of them.

        >>> w = Value(3.0)
        >>> program = CompiledFunction(lambda x: w * x)
        >>> program.batch([1.0, 2.0, 6.0]), w.grad
        (9.0, 3.0)
        >>> program.batch([1.0, 2.0, 6.0], reduce=None)
        array([ 3.,  6., 18.])
        """
        check_threads(threads)
        if reduce is None:
            return self._batch_results(arrays, threads)
        traced, value, gradient = self._batch_value_and_grad(arrays, reduce, threads)
        add_to_grad(traced.wrt, gradient)
        return value

    def batch_value_and_grad(
        self, *arrays: Any, reduce: str = "mean", threads: int | None = None
    ) -> tuple[float, np.ndarray]:
        """As `batch`: the mean or sum of the results, and its gradient by `wrt`; no Value is changed.

        >>> w = Value(3.0)
        >>> CompiledFunction(lambda x: w * x).batch_value_and_grad([1.0, 2.0, 6.0], reduce="sum")
        (27.0, array([9.]))
        """
        check_threads(threads)
        return self._batch_value_and_grad(arrays, reduce, threads)[1:]

    def train(self, optimizer: Optimizer, *arrays: Any, batch_size: int = 1, threads: int | None = None) -> list[float]:
        """Take steps of `optimizer`, each on the mean of the next `batch_size` examples; the loss before each step.

        Each argument has a leading axis of examples, as in `batch`, in the order of the steps; the last batch may be
        smaller. Loss, gradient and update are one program, which goes through many batches without coming back to
        Python, unless a batch is more than the cache holds. No `grad` is changed.

        >>> from chainrule.optim import SGD
        >>> w = Value(0.0)
        >>> program = CompiledFunction(lambda x, y: (w * x - y) ** 2)
        >>> program.train(SGD([w], lr=0.5), [1.0, 1.0], [3.0, 4.0])
        [9.0, 1.0]
        >>> w.data
        4.0
        """
        check_threads(threads)
        return self._train(optimizer, *self._examples(arrays), whole_number(batch_size, "batch_size"), threads)

    def describe(self, model: Module | None = None) -> str:
        """The program that the last call ran, a statement a line; with a model's names for its parameters, if given.

        The last call is this thread's, or any thread's if this one has made none.

        >>> program = CompiledFunction(lambda xs: sum(x * x for x in xs))
        >>> _ = program([1.0, 2.0, 3.0])
        >>> print(program.describe())
        v0[0] = 0 + Σi<3 xs[i]·xs[i]
        """
        traced, code = self._last_run
        found = code.found
        return str(self._named(found, traced, model) if isinstance(found, ArrayProgram) else found)

    def to_c(self, name: str, *like: Any, dtype: str = "float64", freeze: bool = False) -> str:
        """The program of one example as a C99 header: a function `name`, and `name_gradient` if the result is a number.

        It is that of the last call, or for arguments `like` those given. Inputs are all their numbers, from left to
        right, parameters are in the order of `wrt`, other captured Values in order of creation. With `freeze` the
        present data of captured Values become constants, and there is no gradient.

        >>> w = Value(3.0)
        >>> header = CompiledFunction(lambda x: w * x * x).to_c("parabola", 2.0, freeze=True)
        >>> "static inline void parabola(" in header, "parabola_gradient(" in header
        (True, False)
        """
        from chainrule.compiler.backends.c_header import header

        check_dtype(dtype)
        traced = self._trace(like)[0] if like else self._last_run[0]
        gradient = bool(traced.wrt) and is_one_number(traced.result) and not freeze
        notes = {"input": argument_spans(self.function, traced.structure)}
        return header(name, traced.exported(freeze), dtype, gradient, notes)

    def to_jax(self, *like: Any, gradient: bool = False, examples: int | None = None) -> Callable[..., Any]:
        """The program of one example as a pure function of JAX arrays: `function(parameters, *arguments)`.

        It is that of the last call, or for arguments `like` those given. Parameters are a vector in the order of `wrt`;
        arguments may be nested as they were or any other way, for their numbers count, from left to right. Other
        captured Values are constants with their present data. With `gradient` the result is a pair, with the gradient
        by the parameters that chainrule computes. Numbers are of the type of those that come in.

        With `examples` it is a function of so many: each argument has a leading axis, and the result is the mean.
        """
        traced = self._trace(like)[0] if like else self._last_run[0]
        if gradient or examples is not None:
            self._check_scalar(traced)
        if examples is not None and (type(examples) is not int or examples < 1):
            raise ValueError(f"`examples` must be a whole number of at least 1, or None for one; got {examples!r}")
        program = traced.exported(whole=examples is None)
        program = frozen(program, "captured", [value._data for value in traced.captured["captured"]])
        program = program if examples is None else batched(program, examples, total=True)
        program = differentiate(program) if gradient else program
        xla = load_xla()
        if examples is None:
            return xla.function(program, len(traced.wrt), traced.structure, traced.result)  # type: ignore[no-any-return]
        return xla.batch_function(program, len(traced.wrt), traced.structure, examples, traced.used, traced.count)  # type: ignore[no-any-return]

    def shard(self, mesh: Any) -> ShardedFunction:
        """The same function with its batches spread over devices, of one machine or of many, through JAX.

        `mesh` is a jax.sharding.Mesh, whose devices each take a share of the examples, or "all" for all devices that
        JAX knows. The function must have been compiled with `backend="jax"`.
        """
        if self._backend != "jax" or self._strict:
            raise ValueError(
                f"`shard` runs programs through JAX, and `{self.name}` was compiled for another way: "
                "say chainrule.compile(..., backend='jax'), without `strict`"
            )
        load_xla()
        from chainrule.compiler.run.sharding import ShardedFunction

        return ShardedFunction(self, mesh)

    @property
    def stats(self) -> dict[str, Any]:
        """Figures of the program that the last call ran: scalar nodes, array statements, bytes, seconds of a pass."""
        traced, code = self._last_run
        return code.stats(traced.scalar_nodes, traced.clock.seconds)

    @property
    def wrt(self) -> list[Value]:
        """What the gradient is by, in order: as given, else all captured leaves in order of creation."""
        return list(self._wrt) if self._wrt is not None else self._last_run[0].wrt

    def __get__(self, instance: Any, owner: type | None = None) -> CompiledFunction:
        """A method: compiled for each object on its own, because each has Values of its own."""
        if instance is None:
            return self
        bound = self.function.__get__(instance, owner)
        method = CompiledFunction(bound, self._wrt, self._backend, self._dtype, self._strict)
        return instance.__dict__.setdefault(self.name, method)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<CompiledFunction {self.name}: {len(self._traced)} structures traced>"

    _repr_svg_ = shown("svg_of_function")

    # Details.

    @property
    def _last_run(self) -> Run:
        latest = self._this_thread.latest or self._latest
        if latest is None:
            raise RuntimeError(f"`{self.name}` has not been traced yet, so there is no program: call it once first")
        return latest

    def _named(self, found: ArrayProgram, traced: Traced, model: Module | None) -> ArrayProgram:
        names = names_of_parameters(found, list(traced.captured.items()), model)
        if (leaf := found.leaves.get("input")) is not None:
            width = leaf.size // len(traced.used)  # of a batch, padded
            names[leaf] = ArgumentNames(self.function, traced.structure, traced.used, width if width > 1 else 0)
        return found.named(names)

    def _trace(self, inputs: Sequence[Any]) -> tuple[Traced, list[float]]:
        numbers: list[float] = []
        structure = tuple([flatten(given, numbers, partial(_number, k), True) for k, given in enumerate(inputs)])
        traced = self._traced_for(structure, len(numbers))
        if traced.classes:
            traced.check_classes(lambda place: np.array(numbers[place : place + 1]))
        return traced, numbers

    def _traced_for(self, structure: Structure, count: int) -> Traced:
        return self._traced.get(structure) or self._newly_traced(structure, count)

    def _newly_traced(self, structure: Structure, count: int) -> Traced:
        with compiling(self):
            if structure not in self._traced:
                self._traced[structure] = Traced(
                    self.function, self.name, structure, count, self._wrt, self._dtype, self._strict, self._backend
                )
            return self._traced[structure]

    def _code(
        self, traced: Traced, examples: int | None, total: bool, first: Callable[[], np.ndarray]
    ) -> Code | StrictCode:
        """For one example or so many; for any number of them if it goes node by node, as asked or for want of loops.

        `first` gives the numbers of one example.
        """
        run = traced.runs.get((examples, total)) or self._compiled(traced, examples, total, first)
        if self._this_thread.latest is not run:
            self._this_thread.latest = self._latest = run
        return run[1]

    def _compiled(self, traced: Traced, examples: int | None, total: bool, first: Callable[[], np.ndarray]) -> Run:
        with compiling(self):
            run = traced.runs.get((examples, total))
            if run is None:
                code = self._array_code(traced, examples, total) or self._strict_code(traced, total, first)
                run = traced.runs[examples, total] = traced, code
            return run

    def _array_code(self, traced: Traced, examples: int | None, total: bool) -> Code | None:
        kind = examples is None, total
        if traced.strict or kind in traced.irregular:
            return None
        self._count_program(traced, examples)
        try:
            return traced.code(examples, total, self._backend)
        except IrregularityError:
            if self._dtype != "float64":
                raise
            traced.irregular.add(kind)
            return None

    def _strict_code(self, traced: Traced, total: bool, first: Callable[[], np.ndarray]) -> StrictCode:
        if total not in traced.strict_codes:
            self._count_program(traced, None)
            traced.strict_codes[total] = traced.strict_code(total, first())
        return traced.strict_codes[total]

    def _count_program(self, traced: Traced, examples: int | None) -> None:
        self._programs.append((traced.structure, examples))
        if len(self._programs) == STORM + 1:
            self._warn()

    def _warn(self) -> None:
        (old, before), (new, after) = self._programs[-2:]
        if len(old) != len(new):
            what = f"it had {len(old)} arguments and has {len(new)}"
        elif old != new:
            k = [a == b for a, b in zip(old, new, strict=True)].index(False)
            what = difference(old[k], new[k], f"argument {k}")
        else:
            what = f"the batch was of {_size(before)} and is of {_size(after)}"
        warnings.warn(
            f"`{self.name}` is being compiled over and over ({len(self._programs)} programs so far): {what}. Each "
            "structure of arguments is compiled anew; give lists of equal lengths, or one batch size, where you can",
            RuntimeWarning,
            stacklevel=_depth_of_the_user(),
        )

    def _run(self, traced: Traced, numbers: Any, total: bool) -> tuple[Any, Any]:
        """Code for one example and one of its machines, after a run on these numbers; it is to be given back."""
        used = np.array(numbers, dtype=np.float64)[traced.used]
        code = self._code(traced, None, total, lambda: used)
        machine = code.take()
        traced.load(machine)
        machine.load("input", used)
        machine.run()
        return code, machine

    def _runs(
        self,
        traced: Traced,
        plan: list[tuple[range, Code]],
        threads: int | None,
        read: Callable[[Machine, list[range]], list[T]],
    ) -> list[T]:
        """What `read` returns for the sections of the batch, in order; it is given some of them and a machine to run.

        A section is given as the numbers of the first example of each run. What `read` returns must not lie in the
        machine's memory.
        """
        results = []
        teams = [[code.take() for _ in range(threads_for(part, threads, code.seconds_a_run))] for part, code in plan]
        traced.load(*[member for team in teams for member in team])
        for (firsts, code), team in zip(plan, teams, strict=True):
            started = perf_counter()
            results += spread(firsts, team, read)
            seconds = (perf_counter() - started) * len(team) / len(firsts)
            code.seconds_a_run = min(seconds, code.seconds_a_run or seconds)
            for member in team:
                code.give_back(member)
        return results

    def _plan(self, traced: Traced, examples: Examples, total: bool) -> StrictCode | list[tuple[range, Code]]:
        """Code that runs the batch node by node, or else runs of code for arrays, by the first example of each.

        Those are on as many examples as the cache holds; what is left of the batch is one more run, on fewer.
        """
        plan = []
        for firsts in [range(1)] if traced.strict else traced.parts(examples.count):
            code = self._code(traced, firsts.step, total, lambda: examples.matrix()[0])
            if isinstance(code, StrictCode):
                return code
            plan.append((firsts, code))
        return plan

    def _train(
        self, optimizer: Optimizer, traced: Traced, examples: Examples, size: int, threads: int | None
    ) -> list[float]:
        self._check_scalar(traced)
        whole, losses = examples.count // size * size, []
        with training(optimizer.parameters):
            for firsts in (range(0, whole, size), range(whole, examples.count, examples.count - whole or 1)):
                if not firsts:
                    continue
                steps = self._steps(traced, optimizer, firsts.step)
                if steps is None:
                    losses += self._large_steps(optimizer, traced, examples, firsts, threads)
                else:
                    losses += steps.run_through(examples, firsts)
        return losses

    def _large_steps(
        self, optimizer: Optimizer, traced: Traced, examples: Examples, firsts: range, threads: int | None
    ) -> list[float]:
        """Steps of a run of the program each, or many, and the optimizer's own update."""
        if not set(optimizer.parameters) <= set(traced.wrt):
            raise ValueError(f"`optimizer` has parameters that are not in the `wrt` of `{self.name}`: give it those")
        before, losses = np.empty(len(traced.wrt)), []
        with borrowing_gradients(traced.wrt):
            read_grad(traced.wrt, before)
            try:
                for first in firsts:
                    batch = examples.chosen(range(first, first + firsts.step))
                    value, gradient = self._mean_and_grad(traced, batch, batch.count, threads)
                    write_grad(traced.wrt, gradient)
                    optimizer.step()
                    losses.append(value)
            finally:
                write_grad(traced.wrt, before)
        return losses

    def _steps(self, traced: Traced, optimizer: Optimizer, size: int) -> Steps | None:
        """Training steps as one program; None where that cannot be, or does not pay: a batch beyond the cache."""
        from chainrule.compiler.run.steps import Steps, trains_what_is_used

        trained = tuple([parameter.requires_grad for parameter in optimizer.parameters])
        key = optimizer, repr(optimizer.settings), trained, size  # all that is part of the program
        if key not in traced.steps:
            if traced.strict or size > traced.most_examples or not trains_what_is_used(optimizer, traced):
                return None
            with compiling(self):
                try:
                    traced.steps[key] = Steps(traced, optimizer, self._backend, self._dtype, size if size > 1 else None)
                except IrregularityError:
                    if self._dtype != "float64":
                        raise
                    traced.steps[key] = None
        return traced.steps[key]

    def _check_scalar(self, traced: Traced) -> None:
        if not is_one_number(traced.result):
            raise TypeError(
                f"`{self.name}` returns {traced.outputs} numbers in a structure, and a gradient is that of one number: "
                "return one, or call the program for the results alone (a batch with `reduce=None`)"
            )

    def _value_and_grad(self, traced: Traced, numbers: Any) -> tuple[float, np.ndarray]:
        code, machine = self._run(traced, numbers, total=True)
        value, gradient = float(machine.output[0]), traced.order(machine.gradient)
        code.give_back(machine)
        return value, gradient

    def _batch_value_and_grad(
        self, arrays: Sequence[Any], reduce: str, threads: int | None
    ) -> tuple[Traced, float, np.ndarray]:
        if reduce not in ("mean", "sum"):
            raise ValueError(f"`reduce` must be 'mean', 'sum' or None, got {reduce!r}")
        traced, examples = self._examples(arrays)
        self._check_scalar(traced)
        return traced, *self._mean_and_grad(traced, examples, examples.count if reduce == "mean" else 1, threads)

    def _mean_and_grad(
        self, traced: Traced, examples: Examples, count: int, threads: int | None
    ) -> tuple[float, np.ndarray]:
        """The sum of the results over the examples, divided by `count`; and its gradient."""
        plan = self._plan(traced, examples, True)
        if isinstance(plan, StrictCode):
            strict = plan.take()
            traced.load(strict)
            value, gradient = strict.total(examples.matrix(), seed=1.0 / count), traced.order(strict.gradient)
            plan.give_back(strict)
            return value / count, gradient

        def add_up(machine: Machine, sections: list[range]) -> list[tuple[float, np.ndarray]]:
            rows, section = {"input": examples.rows(joined(sections), machine)}, len(sections[0])
            values, gradients = machine.run_many(rows, section)
            totals = np.add.reduceat(values[:, 0], range(0, len(values), section), dtype=np.float64)
            return list(zip(totals.tolist(), gradients, strict=True))

        (value, gradient), *others = self._runs(traced, plan, threads, add_up)
        for more in others:
            value, gradient = value + more[0], gradient + more[1]
        return value / count, traced.order(gradient, count)

    def _batch_results(self, arrays: Sequence[Any], threads: int | None) -> Any:
        traced, examples = self._examples(arrays)
        plan = self._plan(traced, examples, False)
        if isinstance(plan, StrictCode):
            strict = plan.take()
            traced.load(strict)
            rows = strict.run_many(examples.matrix())
            plan.give_back(strict)
            return batch_of(traced.result, iter(rows.T))
        results = np.empty((examples.count, traced.outputs))

        def keep(machine: Machine, sections: list[range]) -> list[None]:
            firsts = joined(sections)
            values, _ = machine.run_many({"input": examples.rows(firsts, machine)})
            by_run = results[firsts.start : firsts.stop].reshape(len(firsts), firsts.step, -1)
            by_run[:] = values.reshape(len(firsts), -1, traced.outputs)  # one row, if all examples have the same
            return []

        self._runs(traced, plan, threads, keep)
        return batch_of(traced.result, iter(results.T))

    def _examples(self, arrays: Sequence[Any], names: Sequence[str] = ()) -> tuple[Traced, Examples]:
        refuse_numbers("calls a batch of a compiled function")
        if not arrays:
            raise ValueError("`arrays` is empty: a batch needs at least one argument with a leading axis of examples")
        called = names or [f"argument {k}" for k in range(len(arrays))]
        parts = [rows_of(array, name) for array, name in zip(arrays, called, strict=True)]
        lengths = [len(rows) for _, rows in parts]
        if len(set(lengths)) != 1:
            raise ValueError(f"the arguments of a batch must have as many examples each, got {lengths}")
        if not lengths[0]:
            raise ValueError("the batch is empty; give at least one example")
        matrices = [rows for _, rows in parts]
        width = sum(rows.shape[1] for rows in matrices)
        traced = self._traced_for(tuple(structure for structure, _ in parts), width)
        examples = Examples(matrices, traced)
        traced.check_classes(examples.column)
        return traced, examples


def _nodes(inputs: Sequence[Any]) -> list[Any]:
    """The inputs of a function that becomes part of another: its plain numbers are constants of the graph."""
    leaves: list[Any] = []
    structures = [flatten(given, leaves, partial(_node_or_constant, k)) for k, given in enumerate(inputs)]
    supply = iter(leaves)
    return [build(structure, supply) for structure in structures]


def _node_or_constant(k: int, given: Any) -> Any:
    if isinstance(given, (Symbol, Value)):
        return given
    return constant(_number(k, given))


def _number(k: int, given: Any) -> float:
    if isinstance(given, Value):
        raise TypeError(
            f"`argument {k}` must be a real number, got a Value, to which a compiled function passes no gradient: "
            "give its .data, or compile what differentiates, as in compile(grad(f))"
        )
    return as_float(given, f"argument {k}")


def _size(count: int | None) -> str:
    return "one example" if count in (None, 1) else f"{count} examples"


def _depth_of_the_user() -> int:
    """The stack level of the first frame outside the compiler, for warnings."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(os.path.dirname(__file__) + os.sep):
        depth, frame = depth + 1, frame.f_back
    return depth
