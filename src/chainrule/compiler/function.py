"""Compiled functions: traced on symbols once for each structure of arguments, then run on numbers.

function ──call on Symbols──► Graph ──lift──► ArrayProgram of one example ──(batched)──► Code
                                └──(strict, or nothing repeats)──► StrictCode

`run` does the work: `arguments`, `traced`, `calls`, `ragged`, `train` and `sharding`. Any number of threads may call
one function. What is traced and compiled is immutable; each call takes a machine to run in.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Never, ParamSpec, TypeVar, overload

import numpy as np

from chainrule import transforms
from chainrule.compiler.backends import check_dtype, load_xla
from chainrule.compiler.backends.strict import StrictCode
from chainrule.compiler.passes.batch import batched
from chainrule.compiler.passes.naming import ArgumentNames, argument_spans, names_of_parameters, takes
from chainrule.compiler.passes.program import ArrayProgram
from chainrule.compiler.run import calls, ragged
from chainrule.compiler.run.arguments import Traces, structure_of
from chainrule.compiler.run.interface import frozen
from chainrule.compiler.run.rows import number
from chainrule.compiler.run.threads import check_threads
from chainrule.compiler.run.traced import Source, Traced, called
from chainrule.compiler.run.train import train
from chainrule.compiler.run.turns import add_to_grad
from chainrule.compiler.trace.symbols import Symbol, refuse_numbers
from chainrule.core.arguments import counted, whole_number
from chainrule.core.display import shown
from chainrule.core.recording import constant, is_tracing
from chainrule.core.structure import Named, build, is_one_number
from chainrule.core.value import Value
from chainrule.nn import Module
from chainrule.optim import Optimizer
from chainrule.transforms import Argnums

if TYPE_CHECKING:
    from chainrule.compiler.run.sharding import ShardedFunction
    from chainrule.wasm import WasmProgram


P = ParamSpec("P")  # the arguments of the function
Q = ParamSpec("Q")  # of a method, without `self`
R = TypeVar("R")  # what the function returns; Values in it come back as floats


class CompiledFunction(Generic[P, R]):
    """A function of numbers that runs compiled; `chainrule.compile(function)` makes one.

    >>> w = Value(3.0)
    >>> program = CompiledFunction(lambda x: w * x * x, wrt=[w])
    >>> program(2.0), w.grad
    (12.0, 4.0)
    """

    def __init__(
        self,
        function: Callable[P, R],
        wrt: Sequence[Value] | None = None,
        backend: str = "llvm",
        dtype: str = "float64",
        strict: bool = False,
    ) -> None:
        update_wrapper(self, function, updated=())
        self.function, self._source = function, Source(function, wrt, backend, dtype, strict)
        self.name, self._traces = self._source.name, Traces(self._source)
        self._gradients: dict[str, CompiledFunction[..., Any]] = {}  # by the arguments they are with respect to

    def _like_this(self, function: Callable[..., Any], wrt: Sequence[Value] | None) -> Any:
        return CompiledFunction(function, wrt, self._source.asked, self._source.dtype, self._source.strict)

    def __reduce__(self) -> str:
        """As for any function: a copy is the function itself, a pickle is its name."""
        return str(getattr(self, "__qualname__", self.name))

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledFunction[P, R]:
        """Itself, as for any function; but a compiled method belongs to its object, and is copied along with it."""
        function = copy.deepcopy(self.function, memo)
        return self if function is self.function else self._like_this(function, copy.deepcopy(self._source.wrt, memo))

    @overload  # of a function without annotations, whose result may be anything: only Any is taken for Never
    def __call__(self: CompiledFunction[P, Never], *inputs: P.args, **named: P.kwargs) -> Any: ...
    @overload
    def __call__(self: CompiledFunction[P, Value], *inputs: P.args, **named: P.kwargs) -> float: ...
    @overload
    def __call__(self: CompiledFunction[P, list[Value]], *inputs: P.args, **named: P.kwargs) -> list[float]: ...
    @overload
    def __call__(self, *inputs: P.args, **named: P.kwargs) -> R: ...
    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The result for these inputs; adds the gradient to `wrt` as `backward()` would, if the result is one number.

        Numbers may be nested in lists, tuples, dicts and arrays. None, strings and a bool are not numbers: there is a
        program for each. Called by a function that is being traced, it becomes part of that function.

        >>> program = CompiledFunction(lambda x, y, swap=False: [y, x] if swap else [x + y, (x * y,)])
        >>> program(2.0, 3.0), program(2.0, 3.0, swap=True)
        ([5.0, (6.0,)], [3.0, 2.0])
        """
        inputs = _with_named(inputs, named)
        if (again := calls.again(self._traces, inputs)) is not None:
            value, gradient, wrt = again
            add_to_grad(wrt, gradient)
            return value
        if is_tracing():
            return called(self.function, _nodes(inputs))
        traced, numbers, moment = self._traces.on_numbers(inputs)
        if not is_one_number(traced.result):
            return traced.arrange(calls.results(traced, numbers, moment))
        value, gradient = calls.value_and_grad(traced, numbers, moment)
        self._traces.get_ready(traced)
        add_to_grad(traced.wrt, gradient)
        return build(traced.result, iter([value]), dtype=np.float64)

    @overload
    def value_and_grad(self, *inputs: Any, argnums: None = None, **named: Any) -> tuple[float, np.ndarray]: ...
    @overload
    def value_and_grad(self, *inputs: Any, argnums: Argnums, **named: Any) -> tuple[Any, Any]: ...
    def value_and_grad(self, *inputs: Any, argnums: Argnums | None = None, **named: Any) -> tuple[Any, Any]:
        """The result and its gradient with respect to `wrt`, from the captured Values' present data; changes no Value.

        With `argnums` the gradient is with respect to these arguments instead, and structured like them. It is what
        `chainrule.value_and_grad(function, argnums)` returns, compiled.

        >>> w = Value(3.0)
        >>> program = CompiledFunction(lambda x: w * w * x)
        >>> program.value_and_grad(2.0)
        (18.0, array([12.]))
        >>> program.value_and_grad(2.0, argnums=0)
        (18.0, 9.0)
        """
        if argnums is not None:
            return self._by_arguments(argnums)(*inputs, **named)  # type: ignore[no-any-return]
        inputs = _with_named(inputs, named)
        if (again := calls.again(self._traces, inputs)) is not None:
            value, gradient, wrt = again
            self._check_wrt(wrt)
            return value, gradient
        refuse_numbers("calls `value_and_grad` of a compiled function")
        traced, numbers, moment = self._traces.on_numbers(inputs)
        traced.check_scalar()
        self._check_wrt(traced.wrt)
        found = calls.value_and_grad(traced, numbers, moment)
        self._traces.get_ready(traced)
        return found

    def _check_wrt(self, wrt: Sequence[Value]) -> None:
        """Refuse a gradient with respect to nothing, unless it was asked for."""
        if not wrt and self._source.wrt is None:
            raise ValueError(
                f"`{self.name}` reads no Value from outside that a gradient could be with respect to; for gradients "
                "with respect to arguments say which, as in `value_and_grad(..., argnums=0)`"
            )

    def _by_arguments(self, argnums: Argnums) -> CompiledFunction[..., Any]:
        """The function that returns the result, and its gradient with respect to these arguments."""
        places = tuple(argnums) if isinstance(argnums, Iterable) else argnums
        key = repr(places)  # 1.0 is equal to 1, and is no place
        if key not in self._gradients:
            function = transforms.value_and_grad(self.function, places)
            self._gradients.setdefault(key, self._like_this(function, self._source.wrt))
        return self._gradients[key]

    def batch(self, *arrays: Any, reduce: str | None = "mean", threads: int | None = None, **named: Any) -> Any:
        """The mean or sum of the results for many examples; adds its gradient to `wrt` as `backward()` would.

        Each argument, by place or by name, has a leading axis of examples. The function is traced on one of them, or on
        one for each path that they take and each structure that they have: their lists may have different lengths.
        With `reduce=None`: the result for each example, and no gradient. A large batch runs on as many `threads` as
        there are cores, unless you say otherwise; the result is the same to the last bit for any number of them.

        >>> w = Value(3.0)
        >>> program = CompiledFunction(lambda x: w * x)
        >>> program.batch([1.0, 2.0, 6.0]), w.grad
        (9.0, 3.0)
        >>> program.batch([1.0, 2.0, 6.0], reduce=None)
        array([ 3.,  6., 18.])
        """
        if reduce is None:
            check_threads(threads)
            return ragged.results_of_each(self._traces.by_structures(self._examples(arrays, named)), threads)
        value, gradient, wrt = ragged.total(self._traces, self._examples(arrays, named), reduce, threads)
        add_to_grad(wrt, gradient)
        return value

    def batch_value_and_grad(
        self, *arrays: Any, reduce: str = "mean", threads: int | None = None, **named: Any
    ) -> tuple[float, np.ndarray]:
        """As `batch`: the mean or sum of the results, and its gradient with respect to `wrt`; changes no Value.

        >>> w = Value(3.0)
        >>> CompiledFunction(lambda x: w * x).batch_value_and_grad([1.0, 2.0, 6.0], reduce="sum")
        (27.0, array([9.]))
        """
        value, gradient, wrt = ragged.total(self._traces, self._examples(arrays, named), reduce, threads)
        self._check_wrt(wrt)
        return value, gradient

    def train(
        self, optimizer: Optimizer, *arrays: Any, batch_size: int = 1, threads: int | None = None, **named: Any
    ) -> list[float]:
        """Take steps of `optimizer`, each on the mean of the next `batch_size` examples; the loss before each step.

        Each argument has a leading axis of examples, as in `batch`, in the order of the steps; the last batch may be
        smaller. Loss, gradient and update are one program, which takes many steps before returning to Python, unless a
        batch is larger than the cache or the function branches. Where lists have different lengths, there is a program
        for each, and steps on single examples go from one to the next. No `grad` is changed.

        >>> from chainrule.optim import SGD
        >>> w = Value(0.0)
        >>> program = CompiledFunction(lambda x, y: (w * x - y) ** 2)
        >>> program.train(SGD([w], lr=0.5), [1.0, 1.0], [3.0, 4.0])
        [9.0, 1.0]
        >>> w.data
        4.0
        """
        check_threads(threads)
        groups = self._traces.by_structures(self._examples(arrays, named))
        return train(groups, optimizer, whole_number(batch_size, "batch_size"), threads)

    def _examples(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments of a batch; a name that the function does not know may be a misspelled option."""
        if unknown := [name for name in named if not takes(self.function, name)]:
            raise TypeError(
                f"`{unknown[0]}` is no option of a batch, and `{self.name}` has no argument of that name: the options "
                "are `reduce`, `threads`, and in training `batch_size`"
            )
        return _with_named(arrays, named)

    def describe(self, model: Module | None = None) -> str:
        """The program that the last call ran, one statement per line; with the model's names for its parameters.

        The last call is this thread's, or any thread's if this one has made none.

        >>> program = CompiledFunction(lambda xs: sum(x * x for x in xs))
        >>> _ = program([1.0, 2.0, 3.0])
        >>> print(program.describe())
        v0[0] = 0 + Σi<3 xs[i]·xs[i]

        Of a function that branches, it is the program of the path that the call took, below the path's conditions. If
        only gradients by arguments were asked for, it is theirs.
        """
        if (other := self._only_differentiated) is not None:
            return other.describe(model)
        traced, code = self._last_run
        path = ""
        if traced.guards is not None:
            place = f"{traced.number + 1} of" if traced.number >= 0 else "beyond"
            path = f"# path {place} {self._paths_of(traced)}\n"
            path += "".join(f"# {line}\n" for line in str(traced.guards).splitlines())
        whole = code.whole
        if not isinstance(whole, ArrayProgram):
            return path + str(code)
        names = names_of_parameters(whole, list(traced.captured.items()), model)
        if (leaf := whole.leaves.get("input")) is not None:
            width = leaf.size // len(traced.used)  # of a batch, padded
            names[leaf] = ArgumentNames(self.function, traced.structure, traced.used, width if width > 1 else 0)
        return path + str(whole.named(names))

    def to_c(self, name: str, *like: Any, dtype: str = "float64", freeze: bool = False) -> str:
        """The program of one example as a C99 header: a function `name`, and `name_gradient` if the result is a number.

        It is the program of the last call, or the one for arguments `like` those given. Inputs are all numbers of the
        arguments, from left to right; parameters are in the order of `wrt`, other captured Values in order of creation.
        With `freeze`, the captured Values' present data become constants, and there is no gradient.

        >>> w = Value(3.0)
        >>> header = CompiledFunction(lambda x: w * x * x).to_c("parabola", 2.0, freeze=True)
        >>> "static inline void parabola(" in header, "parabola_gradient(" in header
        (True, False)
        """
        from chainrule.compiler.backends.c_header import header

        check_dtype(dtype)
        traced = self._traces.on_numbers(like)[0] if like else self._last_run[0]
        traced.refuse_branches("a C header")
        gradient = bool(traced.wrt) and is_one_number(traced.result) and not freeze
        notes = {"input": argument_spans(self.function, traced.structure)}
        return header(name, traced.exported(freeze), dtype, gradient, notes)

    def to_jax(
        self, *like: Any, gradient: bool = False, examples: int | None = None, native: bool = True
    ) -> Callable[..., Any]:
        """The program of one example as a pure function of JAX arrays: `function(parameters, *arguments)`.

        It is the program of the last call, or the one for arguments `like` those given. Parameters are a vector in the
        order of `wrt`. Arguments may be nested in any way, since only their numbers count, from left to right. Other
        captured Values are constants with their present data. With `gradient` the result is a pair, with the gradient
        with respect to the parameters as chainrule computes it. It computes in the type of its arguments.

        With `examples`, each argument has a leading axis of that length, and the result is the mean.

        On a CPU, XLA calls chainrule's machine code, unless `native` is False: then XLA compiles the program, as it
        does for other devices, and where JAX differentiates, maps or exports the function.
        """
        traced = self._traces.on_numbers(like)[0] if like else self._last_run[0]
        traced.refuse_branches("a function of JAX arrays")
        if gradient or examples is not None:
            traced.check_scalar()
        if examples is not None and (type(examples) is not int or examples < 1):
            raise ValueError(f"`examples` must be a whole number of at least 1, or None for one; got {examples!r}")
        program = traced.exported(whole=examples is None)
        program = frozen(program, "captured", [value._data for value in traced.captured["captured"]])
        program = program if examples is None else batched(program, examples, total=True)
        xla, size, how = load_xla(), len(traced.wrt), {"gradient": gradient, "native": native}
        if examples is None:
            return xla.function(program, size, traced.structure, traced.result, **how)  # type: ignore[no-any-return]
        return xla.batch_function(program, size, traced.structure, examples, traced.used, traced.count, **how)  # type: ignore[no-any-return]

    def to_wasm(self, *like: Any, optimizer: Optimizer | None = None, steps: int = 1) -> WasmProgram:
        """The program of one example as a WebAssembly module, which goes through examples by itself.

        It is the program of the last call, or the one for arguments `like` those given. Inputs are all numbers of the
        arguments, from left to right; parameters are in the order of `wrt`. With an `optimizer` the module takes its
        steps, and has the learning rates of the next `steps` of them. It computes node by node, in doubles, and equals
        eager code to the last bit but for elementary functions, which are within 1 ulp. See docs/wasm.md.

        >>> w = Value(3.0)
        >>> CompiledFunction(lambda x: w * x * x).to_wasm(2.0)
        <WasmProgram: 4 nodes in 803 bytes; forward, gradient>
        """
        from chainrule.compiler.backends.wasm import module

        traced, given, _ = self._traces.on_numbers(like) if like else (self._last_run[0], None, None)
        traced.refuse_branches("a WebAssembly module")
        arguments: list[Any] = [None] * traced.count
        for symbol in traced.graph.leaves("input"):
            arguments[symbol.place] = symbol
        return module(
            traced.graph,
            traced.graph.operands[-1],
            traced.wrt,
            arguments,
            optimizer,
            steps,
            given if given is None else given.tolist(),
        )

    def shard(self, mesh: Any) -> ShardedFunction:
        """The same function with its batches spread over devices, of one machine or of many, through JAX.

        `mesh` is a jax.sharding.Mesh, whose devices each take a share of the examples, or "all" for all devices that
        JAX knows. The function must have been compiled with `backend="jax"`.
        """
        if self._source.asked not in ("jax", "xla") or self._source.strict:
            raise ValueError(
                f"`shard` runs programs through JAX, and `{self.name}` was compiled for another way: "
                "say chainrule.compile(..., backend='jax'), without `strict`"
            )
        load_xla()
        from chainrule.compiler.run.sharding import ShardedFunction

        return ShardedFunction(self._traces, mesh)

    @property
    def stats(self) -> dict[str, Any]:
        """Figures of the program that the last call ran: scalar nodes, array statements, bytes, seconds per pass.

        Of a function that branches also: how many paths are kept, and how many conditions the path of the call has.
        """
        if (other := self._only_differentiated) is not None:
            return other.stats
        traced, code = self._last_run
        stats: dict[str, Any] = code.stats(traced.scalar_nodes, traced.clock.seconds)
        if traced.guards is not None:
            stats |= {"paths": self._paths_of(traced), "conditions": len(traced.guards)}
        return stats

    @property
    def wrt(self) -> list[Value]:
        """The Values that gradients are with respect to: as given, else all captured leaves in order of creation."""
        return (
            list(self._source.wrt) if self._source.wrt is not None else self._source.latest_wrt or self._last_run[0].wrt
        )

    @overload
    def __get__(self, instance: None, owner: type) -> CompiledFunction[P, R]: ...
    @overload
    def __get__(
        self: CompiledFunction[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> CompiledFunction[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method: compiled separately for each object, because each has its own Values."""
        if instance is None:
            return self
        method = self._like_this(self.function.__get__(instance, owner), self._source.wrt)
        return instance.__dict__.setdefault(self.name, method)

    def __repr__(self) -> str:
        functions: list[CompiledFunction[..., Any]] = [self, *self._gradients.values()]
        every = [paths for function in functions for paths in function._traces.by_structure.values()]
        paths = sum(len(paths.known.paths) for paths in every)
        branches = f", {counted(paths, 'path')}" if any(paths.only is None for paths in every) else ""
        latest = next((run for function in functions if (run := function._source.latest) is not None), None)
        how = (
            f"; the last call ran node by node, {latest[2].reason}"
            if latest and isinstance(latest[2], StrictCode)
            else ""
        )
        return f"<CompiledFunction {self.name}: {counted(len(every), 'structure')} traced{branches}{how}>"

    _repr_svg_ = shown("svg_of_function")

    def _paths_of(self, traced: Traced) -> int:
        """How many paths are kept for the same structure of arguments."""
        return len(self._traces.by_structure[traced.structure].known.paths)

    @property
    def _only_differentiated(self) -> CompiledFunction[..., Any] | None:
        """The latest gradient by arguments, if nothing else was called."""
        found = [*self._gradients.values()] if self._source.latest is None else []
        return found[-1] if found and found[-1]._source.latest is not None else None

    @property
    def _last_run(self) -> tuple[Traced, Any]:
        """The trace and the code of the last call."""
        self._traces.bring_up_to_date()
        structure, number, code = self._source.latest or ((), 0, None)
        paths = self._traces.by_structure.get(structure) if code else None
        if paths is None:  # not called yet, or in vain since a Value was frozen
            raise RuntimeError(f"`{self.name}` has not been traced yet, so there is no program: call it once first")
        return paths.numbered(number), code


def _with_named(inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments, with those that were given by name as one more."""
    return (*inputs, Named(named)) if named else inputs


def _nodes(inputs: Sequence[Any]) -> list[Any]:
    """The inputs of a function that becomes part of another: its plain numbers are constants of the graph."""
    leaves: list[Any] = []
    structures = [structure_of(given, leaves, partial(_node, k)) for k, given in enumerate(inputs)]
    supply = iter(leaves)
    return [build(structure, supply) for structure in structures]


def _node(k: int, given: Any) -> Any:
    return given if isinstance(given, (Symbol, Value)) else constant(number(f"argument {k}", given))
