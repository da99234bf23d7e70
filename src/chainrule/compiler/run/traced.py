"""A function traced once: the graph of one example, the program that it is lifted to, and code that runs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.backends.strict import StrictCode, StrictMachine
from chainrule.compiler.passes.batch import batched, size_of_an_example
from chainrule.compiler.passes.lift import IrregularityError, lift
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Expression, Statement, Term
from chainrule.compiler.run.export import exported
from chainrule.compiler.run.machine import Clock, Code, Machine, Order, load_xla
from chainrule.compiler.trace.graph import Graph, graph_of
from chainrule.compiler.trace.symbols import Constant, Symbol, TracingError, next_serial, tracing
from chainrule.core.bulk import read_data
from chainrule.core.structure import Structure, build, flatten, places
from chainrule.core.value import Value
from chainrule.ops import Op
from chainrule.optim import Optimizer

if TYPE_CHECKING:
    from chainrule.compiler.run.steps import Steps

CACHE = 2**18  # bytes that a batch may keep at a time: of 2**17 to 2**20, the fastest where L1 has 48 KiB and L2 2 MiB
LARGE_CACHE = 2**21  # the same where parameters are many: each run reads all of them, and their derivatives

Run = tuple["Traced", Code | StrictCode]


class Traced:
    """A function traced for one structure of arguments: the graph of one example, and code for it."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        structure: Structure,
        count: int,
        wrt: Sequence[Value] | None,
        dtype: str,
        strict: bool,
        backend: str,
    ) -> None:
        self.structure = structure
        self.backend = backend
        self.count = count
        self.dtype = dtype
        self.strict = strict
        self.clock = Clock()
        self.classes: dict[int, int]  # arguments that are indices of so many classes, by place
        self.started = next_serial()
        arguments = [Symbol.argument(k) for k in range(count)]
        leaves: list[Any] = []

        def call() -> Structure:
            supply = iter(arguments)
            with tracing() as self.classes:
                result = function(*[build(part, supply) for part in structure])
            return flatten(result, leaves, lambda leaf: _node(leaf, name))

        self.result = self.clock("call", call)
        self.outputs = len(leaves)
        if not leaves:
            raise TypeError(f"`{name}` returned no numbers: return a number, or lists of numbers")
        graph = self.clock("trace", lambda: graph_of(Symbol(_packed(len(leaves)), tuple(leaves)), wrt))
        inputs = [graph.nodes[i] for i in graph.leaves("input")]
        if any(symbol.place >= count or symbol is not arguments[symbol.place] for symbol in inputs):
            raise TracingError(
                f"`{name}` uses a traced number of an earlier trace, which some variable outside of it kept: "
                "return such a number, or give it as an argument, rather than storing it"
            )
        self.used = np.array([symbol.place for symbol in inputs], dtype=np.int64)
        self.spans: list[tuple[Any, Any]] | None = None  # of a batch's arguments
        self.captured: dict[str, list[Value]] = {
            kind: [graph.nodes[i] for i in graph.leaves(kind)] for kind in ("parameter", "captured")
        }
        parameters = self.captured["parameter"]
        self.wrt = parameters if wrt is None else list(wrt)
        self.order = Order(self.wrt, parameters)
        self.graph = graph
        self.scalar_nodes = len(graph) - 1  # without the one that packs the results
        self._read = [(kind, nodes) for kind, nodes in self.captured.items() if nodes]
        self._every = [node for _, nodes in self._read for node in nodes]
        self._lifted: ArrayProgram | IrregularityError | None = None
        self._most_examples = 0
        self.runs: dict[tuple[int | None, bool], Run] = {}  # by how many examples, and whether they are summed up
        self.irregular: set[tuple[bool, bool]] = set()  # whether it is one example, and as above: no loops were found
        self.strict_codes: dict[bool, StrictCode] = {}
        self.steps: dict[tuple[Optimizer, str, tuple[bool, ...], int], Steps | None] = {}  # by all that is part of them

    @property
    def lifted(self) -> ArrayProgram:
        """The program of one example."""
        if self._lifted is None:
            try:
                self._lifted = self.clock("lift", lambda: _unpacked(lift(self.graph), self.outputs))
            except IrregularityError as error:
                self._lifted = error
        if isinstance(self._lifted, IrregularityError):
            raise self._lifted.with_traceback(None)  # which would keep the frames of all that it was raised in
        return self._lifted

    def exported(self, freeze: bool = False, whole: bool = True) -> ArrayProgram:
        """The program of one example, as others call it; with the `whole` arguments, or with what is used of them."""
        try:
            lifted = self.lifted
        except IrregularityError:
            lifted = _unpacked(lift(self.graph, math.inf), self.outputs)
        arguments = (self.used.tolist(), self.count) if whole else None
        return exported(lifted, self.wrt, self.captured, arguments, freeze)

    def check_classes(self, column: Callable[[int], np.ndarray]) -> None:
        """Refuse arguments that should be the index of a class and are not; `column` gives those at a place."""
        for place, count in self.classes.items():
            indices = column(place)
            wrong = ~((indices >= 0) & (indices < count) & (indices == np.floor(indices)))
            if wrong.any():
                name = places((tuple, self.structure), "arguments")[place]
                raise ValueError(
                    f"`{name}` must be a class index below {count}, got {float(indices[wrong][0]):g}: "
                    "count classes from 0, and give the model one output for each"
                )

    @property
    def most_examples(self) -> int:
        """How many examples the cache holds at a time, or the device that JAX runs on."""
        self._most_examples = self._most_examples or self._count_what_fits()
        return self._most_examples

    def _count_what_fits(self) -> int:
        try:
            numbers = size_of_an_example(self.lifted)
        except IrregularityError:  # examples then run node by node, one at a time
            numbers = len(self.graph)
        bytes_of_one = np.dtype(self.dtype).itemsize
        bytes_each = bytes_of_one * (2 * numbers + 1)
        if self.backend == "jax":
            return max(64, int(load_xla().largest_batch()) // bytes_each // 64 * 64)
        room = max(CACHE, min(LARGE_CACHE, 4 * bytes_of_one * len(self.captured["parameter"])))
        return max(16, min(4096, room // bytes_each // 16 * 16))

    def parts(self, count: int) -> list[range]:
        """The runs for a batch of so many, given by the first example of each: some of equal size, one of the rest.

        That one is half as large as the others at least, and less than half as large again; but for a small batch.
        """
        most = self.most_examples
        runs, rest = divmod(count, most)
        whole = most * (runs - 1 if runs and 0 < rest < most // 2 else runs)
        return [part for part in (range(0, whole, most), range(whole, count, count - whole or 1)) if part]

    def load(self, *machines: Machine | StrictMachine) -> None:
        """Give machines the captured Values' present data: all of it that of one moment, whoever trains meanwhile."""
        if len(machines) == len(self._read) == 1:
            machines[0].load_data(*self._read[0])
            return
        numbers, start = np.empty(len(self._every)), 0
        read_data(self._every, numbers)
        for kind, nodes in self._read:
            for machine in machines:
                machine.load(kind, numbers[start : start + len(nodes)])
            start += len(nodes)

    def code(self, examples: int | None, total: bool, backend: str) -> Code:
        """For one example, or so many; their sum with its gradient if `total`."""
        program = self.lifted
        if examples is not None:
            program = self.clock("batch", lambda: batched(self.lifted, examples, total))
        return Code(program, total and bool(self.wrt), backend, self.clock, dtype=self.dtype)

    def strict_code(self, total: bool, numbers: np.ndarray) -> StrictCode:
        """For any number of examples, node by node; `numbers` are those of one, to begin with."""
        graph, results = self.graph, self.graph.operands[-1]
        own = Graph(graph.rules[:-1], graph.operands[:-1], graph.nodes[:-1])
        return self.clock(  # type: ignore[no-any-return]
            "nodes",
            lambda: StrictCode(own, total and bool(self.wrt), results, numbers.tolist(), self.started),
        )


def _node(leaf: Any, name: str) -> Any:
    if isinstance(leaf, (Symbol, Value)):
        return leaf
    try:
        return Constant(leaf)
    except TypeError:
        raise TypeError(
            f"`{name}` returned {type(leaf).__name__} {leaf!r:.40}: "
            "return a number, or lists, tuples, dicts or arrays of them"
        ) from None


def _packed(count: int) -> Op:
    """An op that stands for all results, so that they are one node of the graph."""
    op = Op("results", lambda first: first, (None,))
    op.arity = count
    return op


def _unpacked(program: ArrayProgram, count: int) -> ArrayProgram:
    """The program with its last statement, `results(a, b, …)`, replaced by statements that fill an array of them."""
    last = program.steps[-1]
    assert isinstance(last, Statement)
    packed = last.terms[0].expression
    assert isinstance(packed, Apply)
    first = packed.operands[0]
    if count == 1 and isinstance(first, Access) and first.array.kind == "value" and first.array.size == 1:
        return ArrayProgram(program.steps[:-1], program.leaves, first.array)
    output = Array("output", count, "value")
    steps = [*program.steps[:-1], *_stores(output, packed.operands)]
    return ArrayProgram(steps, program.leaves, output)


def _stores(output: Array, results: Sequence[Expression]) -> Iterator[Statement]:
    """`output[k] = results[k]`, in a loop where neighbours lie at equal distances in one array."""
    start = 0
    while start < len(results):
        stop, step = start + 1, 0
        while stop < len(results) and (distance := _distance(results[stop - 1], results[stop])) is not None:
            if stop - start > 1 and distance != step:
                break
            stop, step = stop + 1, distance
        first = results[start]
        if stop - start == 1:
            yield Statement(Access(output, start, ()), (), [Term(first)])
        else:
            assert isinstance(first, Access)
            source = Access(first.array, first.base, (step,))
            yield Statement(Access(output, start, (1,)), (stop - start,), [Term(source)])
        start = stop


def _distance(a: Expression, b: Expression) -> int | None:
    if isinstance(a, Access) and isinstance(b, Access) and a.array is b.array and a.table is b.table is None:
        return b.base - a.base
    return None
