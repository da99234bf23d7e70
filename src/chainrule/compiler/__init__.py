"""The compiler: finds the tensors inside scalar code, and runs them.

    Value or function ──trace──► Graph ──classify──► Classes ──lift──► ArrayProgram ──differentiate──► lay_out ──► LLVM

Each stage takes one thing and returns a new one, which prints readably and can verify itself. `trace` and `passes` are
the stages, `backends` compile, `pipeline` takes a program through them; `run` has memory, threads, batches and training
steps; `function` is what users call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np

from chainrule.compiler.backends import BACKENDS, DTYPES, check_dtype, load_xla, ready, settled
from chainrule.compiler.backends.strict import AS_ASKED, StrictCode
from chainrule.compiler.function import CompiledFunction, P, R
from chainrule.compiler.passes.irregular import IrregularityError
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.passes.naming import names_of_parameters
from chainrule.compiler.passes.program import ArrayProgram
from chainrule.compiler.pipeline import Clock, Code, in_words
from chainrule.compiler.run.interface import exported
from chainrule.compiler.run.machine import NEVER, Order
from chainrule.compiler.run.turns import add_to_grad
from chainrule.compiler.trace.graph import Graph, graph_of, that_may_freeze, with_parameters
from chainrule.compiler.trace.symbols import TracingError, refuse_numbers
from chainrule.core.bulk import refrozen, replaced, takes_gradient
from chainrule.core.display import shown
from chainrule.core.frozen_branches import check_numbers_were_not_read
from chainrule.core.recording import is_tracing
from chainrule.core.value import Value
from chainrule.nn import Module
from chainrule.optim import Optimizer

if TYPE_CHECKING:
    from chainrule.wasm import WasmProgram

__all__ = ["CompiledFunction", "Program", "TracingError", "compile"]


def __dir__() -> list[str]:
    return __all__


MOST_KEPT = 8  # programs of one graph, by the Values that are frozen
FEW = 4  # times as many Values as those that a graph does not use, to have these in it all the same
AS_A_VALUE = (
    "use the Value itself, which then becomes part of the traced function, or do it outside and pass the result"
)


class Program:
    """A compiled graph. Calling it computes what the graph computes, from the leaves' present data.

    >>> a, b = Value(2.0), Value(3.0)
    >>> program = compile(a * b + a)
    >>> a.data = 5.0
    >>> program()
    20.0
    >>> a.grad, b.grad
    (4.0, 5.0)
    """

    def __init__(
        self,
        target: Value,
        wrt: Iterable[Value] | None,
        backend: str,
        strict: bool = False,
        allow_frozen_branches: bool = False,
        dtype: str = "float64",
    ) -> None:
        refuse_numbers("compiles a Value", AS_A_VALUE)
        self.target, self._given = target, (None if wrt is None else list(wrt), backend, strict, dtype)
        self._latest = latest = _Compiled(target, *self._given)
        self._by_flags = {latest.took_gradient: latest}
        if not allow_frozen_branches:
            check_numbers_were_not_read(latest.graph.nodes, [target], self._given[0] or ())

    @property
    def _present(self) -> _Compiled:
        """What was compiled for those Values that are frozen now; compiled first, if need be."""
        latest, now = self._latest, refrozen()
        if latest.as_of != now:
            flags = takes_gradient(latest.may_freeze)
            if flags != latest.took_gradient:
                latest = self._by_flags.get(flags) or _Compiled(self.target, *self._given)
                others = [(key, old) for key, old in self._by_flags.items() if key != flags]
                self._by_flags = dict([*others[1 - MOST_KEPT :], (flags, latest)])
                self._latest = latest
            latest.as_of = now
        return latest

    @property
    def wrt(self) -> list[Value]:
        """The Values that gradients are with respect to."""
        return self._present.wrt

    @property
    def code(self) -> Any:
        """The program at its stages, and the memory that it runs in."""
        return self._present.code

    @property
    def stats(self) -> dict[str, Any]:
        """Figures of the program: scalar nodes, array statements, bytes, seconds per pass."""
        return self._present.stats

    @property
    def leaves(self) -> list[tuple[str, list[Value]]]:
        """The leaves of each kind, parameters first."""
        return self._present.leaves

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a compiled graph belongs to the Values that it was made of, and cannot be copied or pickled; "
            "copy the model, and compile its loss again"
        )

    def __call__(self) -> float:
        """Forward and backward: sets the target's data, adds to the gradients, returns the result."""
        present = self._present
        result, gradient = present.value_and_grad()
        self.target.data = result
        add_to_grad(present.wrt, gradient)
        return result

    def value_and_grad(self) -> tuple[float, np.ndarray]:
        """The result and its gradient with respect to `wrt`, from the leaves' present data; changes no Value.

        >>> x = Value(3.0)
        >>> compile(x * x).value_and_grad()
        (9.0, array([6.]))
        """
        latest = self._latest
        present = latest if latest.as_of == refrozen() else self._present  # a property takes longer than that
        return present.value_and_grad()

    def describe(self, model: Module | None = None) -> str:
        """The program that was found, one statement per line; with the model's names for its parameters, if given.

        >>> from chainrule.nn import Neuron
        >>> neuron = Neuron(3, activation="linear")
        >>> print(compile(neuron([1.0, 2.0, 3.0]), wrt=neuron.w).describe(neuron).splitlines()[0])
        v0[0] = b + Σi<3 w[i]·c1[i]
        """
        present = self._present
        whole = present.code.whole
        if not isinstance(whole, ArrayProgram):
            return str(present.code)
        return str(whole.named(names_of_parameters(whole, present.leaves, model)))

    def to_c(self, name: str, *, dtype: str = "float64", freeze: bool = False) -> str:
        """The program as a C99 header: a function `name`, and `name_gradient` if there is a `wrt`.

        Parameters are in the order of `wrt`; the other leaves are the inputs, in order of creation. With `freeze`, the
        parameters' present data become constants, and there is no gradient.

        >>> x, w = Value(2.0), Value(0.5)
        >>> header = compile((w * x).tanh(), wrt=[w]).to_c("neuron")
        >>> "static inline void neuron(" in header, "neuron_gradient(" in header
        (True, True)
        """
        from chainrule.compiler.backends.c_header import header

        check_dtype(dtype)
        return header(name, self._exported(freeze), dtype, bool(self.wrt) and not freeze)

    def to_jax(self, *, gradient: bool = False, native: bool = True) -> Callable[..., Any]:
        """The program as a pure function of JAX arrays: `function(parameters, inputs)`, for `jax.jit` and the like.

        Parameters are a vector in the order of `wrt`; the other leaves are the inputs, in order of creation, and there
        is no second argument without them. With `gradient` the result is a pair, with the gradient with respect to the
        parameters as chainrule computes it. It computes in the type of its arguments.

        On a CPU, XLA calls chainrule's machine code, unless `native` is False: then XLA compiles the program, as it
        does for other devices, and where JAX differentiates, maps or exports the function.
        """
        how = {"gradient": gradient, "native": native}
        return load_xla().function(self._exported(), len(self.wrt), **how)  # type: ignore[no-any-return]

    def to_wasm(self, *, optimizer: Optimizer | None = None, steps: int = 1) -> WasmProgram:
        """The graph as a WebAssembly module: `forward`, `gradient`, and with an `optimizer` also `step`.

        Parameters are in the order of `wrt`; the other leaves are the inputs, in order of creation. It computes node by
        node, in doubles, and equals eager code to the last bit but for elementary functions, which are within 1 ulp.
        See docs/wasm.md for its exports and its memory.

        >>> x, w = Value(2.0), Value(0.5)
        >>> compile(w * x, wrt=[w]).to_wasm().buffers["rows"][1]  # an input and the result
        2
        """
        from chainrule.compiler.backends.wasm import module

        graph, wrt = self._present.graph, self._present.wrt
        inputs = [leaf for leaf in graph.leaves("input") if leaf not in {*wrt}]
        return module(graph, [len(graph) - 1], wrt, inputs, optimizer, steps)

    def _exported(self, freeze: bool = False) -> ArrayProgram:
        present = self._present
        lifted = present.code.forward if isinstance(present.code, Code) else lift(present.graph, math.inf)
        return exported(lifted, present.wrt, dict(present.leaves), freeze=freeze)

    def __repr__(self) -> str:
        return f"<Program: {in_words(self.stats)}>"

    _repr_svg_ = shown("svg_of_program")


class _Compiled:
    """A graph compiled for as long as the same Values are frozen."""

    def __init__(self, target: Value, wrt: list[Value] | None, backend: str, strict: bool, dtype: str) -> None:
        self.as_of, clock = refrozen(), Clock()
        used: Graph = clock("trace", lambda: graph_of(target, wrt))
        self.may_freeze = that_may_freeze(used, wrt)
        self.took_gradient = takes_gradient(self.may_freeze)
        self.graph = _with_unused(used, wrt or [])
        parameters = self.graph.leaves("parameter")
        self.wrt = parameters if wrt is None else wrt
        self.code = _code(self.graph, bool(self.wrt), settled(backend), strict, dtype, clock)
        self.stats: dict[str, Any] = self.code.stats(len(used), clock.seconds)
        self.leaves = [(kind, nodes) for kind in ("parameter", "input") if (nodes := self.graph.leaves(kind))]
        self._inputs = dict(self.leaves).get("input")  # which are always read
        order = Order(self.wrt, parameters)
        self._taken = np.ndarray.copy if order.is_same and dtype == "float64" else order

    def value_and_grad(self) -> tuple[float, np.ndarray]:
        if is_tracing():
            refuse_numbers("runs a compiled Value", AS_A_VALUE)
        machine = self.code.take()
        now = replaced()  # before they are read: what another thread writes then is later
        if machine.as_of != now:
            machine.as_of = now if machine.keeps_data else NEVER
            for kind, nodes in self.leaves:
                machine.load_data(kind, nodes)
        elif self._inputs:
            machine.load_data("input", self._inputs)
        machine.run()
        result, gradient = machine.output.item(0), self._taken(machine.gradient)
        self.code.give_back(machine)
        return result, gradient


_MISSING: Any = object()
Wrt = Iterable[Value] | None


@overload
def compile(
    target: Value,
    wrt: Iterable[Value] | None = None,
    *,
    backend: str = "llvm",
    strict: bool = False,
    allow_frozen_branches: bool = False,
    dtype: str = "float64",
) -> Program: ...
@overload
def compile(
    target: Callable[P, R], wrt: Wrt = None, *, backend: str = "llvm", strict: bool = False, dtype: str = "float64"
) -> CompiledFunction[P, R]: ...
@overload
def compile(
    *, wrt: Wrt = None, backend: str = "llvm", strict: bool = False, dtype: str = "float64"
) -> Callable[[Callable[P, R]], CompiledFunction[P, R]]: ...
def compile(
    target: Any = _MISSING,
    wrt: Iterable[Value] | None = None,
    *,
    backend: str = "llvm",
    strict: bool = False,
    allow_frozen_branches: bool = False,
    dtype: str = "float64",
) -> Any:
    """A program that computes `target`, and its gradient with respect to `wrt` (default: all leaves).

    A Value: the scalar graph that ordinary code recorded is searched for loops over arrays, and those are compiled.
    Leaves are read at every call. Plain numbers stay as they were recorded, and so do branches: if a comparison has
    read a node's data, the graph is refused unless you say `allow_frozen_branches=True`.

    >>> x, w = Value(2.0), Value(0.5)
    >>> program = compile((w * x).tanh(), wrt=[w])
    >>> f"{program():.4f}"
    '0.7616'

    A function of numbers, lists, dicts and arrays: it is called on symbols once for each structure of its arguments,
    and the graph that this records is compiled. Values that it captures, `wrt` among them, are read at every call.
    Anything else it does, such as printing or drawing random numbers, happens in that one call only. Plain numbers that
    it captures become part of the program. Reading the `.data` of an argument or a captured Value is an error. If it
    branches on one, each path is traced and compiled when it is first taken; `chainrule.where` makes one program.

    >>> @compile
    ... def loss(xs, y):
    ...     return (sum(w * x for x in xs) - y) ** 2
    >>> loss([1.0, 3.0], 1.0)
    1.0
    >>> loss.value_and_grad([1.0, 3.0], 4.0)
    (4.0, array([-16.]))
    >>> loss.batch([[1.0, 3.0], [2.0, 2.0]], [1.0, 4.0], reduce="mean")
    2.5

    Sums are reordered and products fused. A `strict` program repeats the recorded nodes in order instead, and equals
    the eager result to the last bit; a batch is then the eager sum or mean over its examples. Code in which nothing
    repeats runs like that too.

    With `dtype="float32"`, memory and arithmetic are in single precision: about seven digits, and twice as many numbers
    per vector. Results and gradients are Python floats and float64 arrays all the same.

    Programs run through LLVM. `backend="cuda"` runs them on an NVIDIA GPU, which needs its driver and nothing else: a
    batch is one kernel. "jax" runs them through XLA, on JAX's devices: XLA compiles them, or on a CPU calls what LLVM
    has compiled; "xla" has XLA compile them there too. "interpreter" runs them with NumPy, statement by statement.
    "auto" takes a GPU if there is one; `stats` says why.
    """
    for argument, given, choices in (("backend", backend, BACKENDS), ("dtype", dtype, DTYPES)):
        if given not in choices:
            raise ValueError(f"`{argument}` must be one of {', '.join(choices)}; got {given!r}")
    backend = ready(backend)
    if strict and dtype != "float64":
        raise ValueError(f"a `strict` program repeats eager code, which is float64; got `dtype` {dtype!r}: give one up")
    chosen = None if wrt is None else _leaves(wrt)
    if target is _MISSING:
        return lambda function: compile(function, chosen, backend=backend, strict=strict, dtype=dtype)
    if isinstance(target, Value):
        return Program(target, chosen, backend, strict, allow_frozen_branches, dtype)
    if not callable(target):
        found = type(target).__name__
        raise TypeError(f"`target` must be a Value, got {found}: compile the result of your code, or the function")
    return CompiledFunction(target, chosen, backend, dtype, strict)


def _with_unused(graph: Graph, wrt: list[Value]) -> Graph:
    """The graph with those of `wrt` that it does not use, if they are few.

    Then the gradient comes out in the order of `wrt`, and rows of a matrix of which some elements are not used are as
    far apart as they were written.
    """
    leaves = {graph.nodes[place] for place in graph.leaf_places}
    unused = [value for value in wrt if value not in leaves]
    return with_parameters(graph, unused) if unused and FEW * len(unused) <= len(wrt) else graph


def _code(graph: Graph, gradient: bool, backend: str, strict: bool, dtype: str, clock: Clock) -> Any:
    """Code for arrays; node by node if asked for, or if nothing repeats and there are no arrays to be found."""
    reason = AS_ASKED
    if not strict:
        try:
            lifted = clock("lift", lambda: lift(graph))
            return Code(lifted, gradient, backend, clock, dtype=dtype).of_one_example(lambda: graph)
        except IrregularityError as error:
            reason = error.why(dtype)
    return StrictCode(graph, gradient, reason)


def _leaves(wrt: Iterable[Any]) -> list[Value]:
    if not hasattr(wrt, "__iter__"):
        remedy = "give a list of Values, such as model.parameters()"
        raise TypeError(f"`wrt` must be Values, got one {type(wrt).__name__}: {remedy}")
    values = list(wrt)
    for value in values:
        if not isinstance(value, Value):
            raise TypeError(f"`wrt` must be Values, got {type(value).__name__}: give those that the code captures")
        if value._operands:
            raise ValueError(f"`wrt` must be leaves, and {value!r} was computed: give the Values that it came from")
    if len(set(values)) < len(values):
        twice = next(value for place, value in enumerate(values) if value in set(values[:place]))
        raise ValueError(f"`wrt` has {twice!r} twice, and a gradient has one place for it: give every Value once")
    return values
