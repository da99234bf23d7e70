"""A function traced once: the graph of one example, the program that it is lifted to, and code that runs it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.compiler.backends import load_xla
from chainrule.compiler.backends.strict import StrictCode, StrictMachine
from chainrule.compiler.passes.batch import batched, size_of_an_example
from chainrule.compiler.passes.lift import IrregularityError, lift
from chainrule.compiler.passes.program import ArrayProgram
from chainrule.compiler.run.export import exported
from chainrule.compiler.run.machine import Clock, Code, Machine, Order
from chainrule.compiler.run.results import packed, unpacked
from chainrule.compiler.run.source import Run, Source
from chainrule.compiler.run.turns import compiling
from chainrule.compiler.trace.graph import Graph, graph_of
from chainrule.compiler.trace.symbols import Constant, Symbol, TracingError, next_serial, tracing
from chainrule.core.bulk import read_data
from chainrule.core.structure import Structure, build, flatten, is_one_number, places
from chainrule.core.value import Value

CACHE = 2**18  # bytes of a batch at a time: the fastest of 2**17 to 2**20 where L1 has 48 KiB and L2 2 MiB
LARGE_CACHE = 2**21  # the same where there are many parameters: each run reads them all and writes their gradients


class Traced:
    """A function traced for one structure of arguments: the graph of one example, and code for it."""

    def __init__(self, source: Source, structure: Structure, count: int) -> None:
        self.source = source
        self.structure = structure
        self.count = count  # numbers in the arguments
        self.clock = Clock()
        self.started = next_serial()
        self.result: Structure
        self.classes: dict[int, int]  # place of an argument that is a class index -> how many classes there are
        self.graph = self._call()
        inputs = self._nodes("input")
        self.used = np.array([symbol.place for symbol in inputs], dtype=np.int64)
        self.captured: dict[str, list[Value]] = {kind: self._nodes(kind) for kind in ("parameter", "captured")}
        parameters = self.captured["parameter"]
        self.wrt = parameters if source.wrt is None else list(source.wrt)
        self.order = Order(self.wrt, parameters)
        self.scalar_nodes = len(self.graph) - 1  # without the one that packs the results
        self.spans: list[tuple[Any, Any]] | None = None  # of a batch's arguments
        self.steps: dict[Any, Any] = {}  # training steps, by all that is part of their program
        self._read = [(kind, nodes) for kind, nodes in self.captured.items() if nodes]
        self._every = [node for _, nodes in self._read for node in nodes]
        self._lifted: ArrayProgram | IrregularityError | None = None
        self._most_examples = 0
        self._runs: dict[tuple[int | None, bool], Run] = {}  # by the number of examples, and whether they are summed
        self._irregular: set[tuple[bool, bool]] = set()  # one example?, summed?: those without loops
        self._strict_codes: dict[bool, StrictCode] = {}

    def _call(self) -> Graph:
        """Call the function on symbols; the graph of what it returned."""
        name, arguments = self.source.name, [Symbol.argument(k) for k in range(self.count)]
        leaves: list[Any] = []

        def call() -> Structure:
            supply = iter(arguments)
            with tracing() as self.classes:
                result = self.source.function(*[build(part, supply) for part in self.structure])
            return flatten(result, leaves, lambda leaf: _node(leaf, name))

        self.result = self.clock("call", call)
        self.outputs = len(leaves)
        if not leaves:
            raise TypeError(f"`{name}` returned no numbers: return a number, or lists of numbers")
        root = Symbol(packed(len(leaves)), tuple(leaves))
        graph: Graph = self.clock("trace", lambda: graph_of(root, self.source.wrt))
        inputs = [graph.nodes[i] for i in graph.leaves("input")]
        if any(symbol.place >= self.count or symbol is not arguments[symbol.place] for symbol in inputs):
            raise TracingError(
                f"`{name}` uses a traced number of an earlier trace, which some variable outside of it kept: "
                "return such a number, or give it as an argument, rather than storing it"
            )
        return graph

    def _nodes(self, kind: str) -> list[Any]:
        return [self.graph.nodes[i] for i in self.graph.leaves(kind)]

    def check_classes(self, column: Callable[[int], np.ndarray]) -> None:
        """Refuse arguments that should be class indices and are not; `column` returns the numbers at a place."""
        for place, count in self.classes.items():
            indices = column(place)
            wrong = ~((indices >= 0) & (indices < count) & (indices == np.floor(indices)))
            if wrong.any():
                name = places((tuple, self.structure), "arguments")[place]
                raise ValueError(
                    f"`{name}` must be a class index below {count}, got {float(indices[wrong][0]):g}: "
                    "count classes from 0, and give the model one output for each"
                )

    def check_scalar(self) -> None:
        """Refuse a gradient of several results."""
        if not is_one_number(self.result):
            raise TypeError(
                f"`{self.source.name}` returns {self.outputs} numbers in a structure, and a gradient is that of one "
                "number: return one, or call the program for the results alone (a batch with `reduce=None`)"
            )

    # Programs.

    @property
    def lifted(self) -> ArrayProgram:
        """The program of one example."""
        if self._lifted is None:
            try:
                self._lifted = self.clock("lift", lambda: unpacked(lift(self.graph), self.outputs))
            except IrregularityError as error:
                self._lifted = error
        if isinstance(self._lifted, IrregularityError):
            raise self._lifted.with_traceback(None)  # a traceback would keep every frame alive that it was raised in
        return self._lifted

    def exported(self, freeze: bool = False, whole: bool = True) -> ArrayProgram:
        """The program of one example for callers elsewhere; it takes the `whole` arguments, or what is used of them."""
        try:
            lifted = self.lifted
        except IrregularityError:
            lifted = unpacked(lift(self.graph, math.inf), self.outputs)
        arguments = (self.used.tolist(), self.count) if whole else None
        return exported(lifted, self.wrt, self.captured, arguments, freeze)

    @property
    def most_examples(self) -> int:
        """How many examples fit the cache at a time, or the device that JAX runs on."""
        self._most_examples = self._most_examples or self._count_what_fits()
        return self._most_examples

    def _count_what_fits(self) -> int:
        try:
            numbers = size_of_an_example(self.lifted)
        except IrregularityError:  # examples then run node by node, one at a time
            numbers = len(self.graph)
        itemsize = np.dtype(self.source.dtype).itemsize
        bytes_each = itemsize * (2 * numbers + 1)
        if self.source.backend == "jax":
            return max(64, int(load_xla().largest_batch()) // bytes_each // 64 * 64)
        room = max(CACHE, min(LARGE_CACHE, 4 * itemsize * len(self.captured["parameter"])))
        return max(16, min(4096, room // bytes_each // 16 * 16))

    # Code, and the data it runs on.

    def code(self, examples: int | None, total: bool, first: Callable[[], np.ndarray]) -> Code | StrictCode:
        """Code for one example (None) or a batch of `examples`; for their sum with its gradient if `total`.

        It runs node by node, for any number of examples, if that was asked for or if there are no loops. `first`
        returns the numbers of one example.
        """
        run = self._runs.get((examples, total)) or self._compiled(examples, total, first)
        self.source.ran(run)
        return run[1]

    def _compiled(self, examples: int | None, total: bool, first: Callable[[], np.ndarray]) -> Run:
        with compiling(self.source):
            run = self._runs.get((examples, total))
            if run is None:
                code = self._array_code(examples, total) or self._strict_code(total, first)
                run = self._runs[examples, total] = self.structure, code
            return run

    def _array_code(self, examples: int | None, total: bool) -> Code | None:
        kind = examples is None, total
        if self.source.strict or kind in self._irregular:
            return None
        self.source.count_program(self.structure, examples)
        try:
            program = self.lifted
            if examples is not None:
                program = self.clock("batch", lambda: batched(self.lifted, examples, total))
            gradient = total and bool(self.wrt)
            return Code(program, gradient, self.source.backend, self.clock, dtype=self.source.dtype)
        except IrregularityError:
            if self.source.dtype != "float64":
                raise
            self._irregular.add(kind)
            return None

    def _strict_code(self, total: bool, first: Callable[[], np.ndarray]) -> StrictCode:
        if total not in self._strict_codes:
            self.source.count_program(self.structure, None)
            graph, results, numbers = self.graph, self.graph.operands[-1], first().tolist()
            own = Graph(graph.rules[:-1], graph.operands[:-1], graph.nodes[:-1])
            self._strict_codes[total] = self.clock(
                "nodes", lambda: StrictCode(own, total and bool(self.wrt), results, numbers, self.started)
            )
        return self._strict_codes[total]

    def load(self, *machines: Machine | StrictMachine) -> None:
        """Give machines the captured Values' data, all of it as of one moment, even while another thread trains."""
        if len(machines) == len(self._read) == 1:
            machines[0].load_data(*self._read[0])
            return
        numbers, start = np.empty(len(self._every)), 0
        read_data(self._every, numbers)
        for kind, nodes in self._read:
            for machine in machines:
                machine.load(kind, numbers[start : start + len(nodes)])
            start += len(nodes)


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
