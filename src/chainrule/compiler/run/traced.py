"""A function traced once: the graph of one example, the program that it is lifted to, and code that runs it."""

from __future__ import annotations

import copy
import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from chainrule.compiler.backends import load_xla, settled
from chainrule.compiler.backends.strict import AS_ASKED, StrictCode, StrictMachine
from chainrule.compiler.passes.batch import batched, size_of_an_example, with_class_check
from chainrule.compiler.passes.irregular import IrregularityError
from chainrule.compiler.passes.lift import MOST_STATEMENTS
from chainrule.compiler.passes.program import ArrayProgram
from chainrule.compiler.passes.results import lift_results, packed
from chainrule.compiler.passes.stages import lift_in_stages
from chainrule.compiler.pipeline import Clock, Code
from chainrule.compiler.run.guards import Guards
from chainrule.compiler.run.interface import exported
from chainrule.compiler.run.machine import NEVER, Machine, Order
from chainrule.compiler.run.turns import compiling
from chainrule.compiler.trace.branches import Branches, line_at
from chainrule.compiler.trace.expand import expanded, has_derivatives
from chainrule.compiler.trace.graph import Graph, graph_of, that_may_freeze, with_parameters
from chainrule.compiler.trace.symbols import (
    BRANCH,
    EARLIER,
    KEPT,
    STORE,
    Constant,
    Symbol,
    TracingError,
    next_serial,
    tracing,
)
from chainrule.core.arguments import counted
from chainrule.core.bulk import read_data, replaced, takes_gradient
from chainrule.core.code_lines import is_ours
from chainrule.core.structure import Named, Structure, arrangement, build, difference, flatten, is_one_number, places
from chainrule.core.value import Value

CACHE = 2**18  # bytes of a batch at a time, at most, where L1 has 48 KiB and L2 2 MiB
LARGE_CACHE = 2**21  # the same where there are many parameters: each run reads them all and writes their gradients
SMALL_CACHE = 2**16  # where there are next to none; the fastest grows with them, up to three quarters of CACHE
FEW = 64  # examples: of fewer, registers hold too few vectors to be busy
MANY_STRUCTURES = 16  # of the examples of one call; more of them draw a warning
STORM = 8  # programs of one function; more of them draw a warning

Run = tuple[Structure, int, Code | StrictCode]  # the arguments' structure, the path's number, and what ran


class _Thread(threading.local):
    latest: Run | None = None
    wrt: list[Value] | None = None


@dataclass(eq=False)
class Source:
    """A function to compile, how, and what it was compiled to. It must not refer to its traces, which refer to it."""

    function: Callable[..., Any]
    wrt: Any = None  # a list of Values, or None for all captured leaves
    asked: str = "llvm"  # the backend, as it was asked for
    dtype: str = "float64"
    strict: bool = False
    programs: list[tuple[Structure, int | None, bytes]] = field(default_factory=list)  # structure, examples, frozen
    values: dict[Value, int] = field(default_factory=dict)  # captured by traces of ragged examples -> a place for each
    _expected: set[Structure] = field(default_factory=set)  # structures that came together
    _latest: Run | None = None  # of any thread
    _this_thread: _Thread = field(default_factory=_Thread)

    def __post_init__(self) -> None:
        self.wrt = None if self.wrt is None else list(self.wrt)

    @cached_property
    def backend(self) -> str:
        """The backend that compiles it here."""
        return settled(self.asked)

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def ran(self, run: Run) -> None:
        """Note what the present call runs."""
        if self._this_thread.latest is not run:
            self._this_thread.latest = self._latest = run
        self._this_thread.wrt = None

    def took_gradient_by(self, wrt: list[Value]) -> None:
        """Note what the gradient of the present call is with respect to, if several programs ran."""
        self._this_thread.wrt = wrt

    @property
    def latest_wrt(self) -> list[Value] | None:
        """The same of this thread's last call; None if one program ran."""
        return self._this_thread.wrt

    def expect(self, structures: Sequence[Structure]) -> None:
        """Note that examples of these structures come in one call; warns if they are very many."""
        if len(structures) > MANY_STRUCTURES and not self._expected.issuperset(structures):
            k = [a == b for a, b in zip(*structures[:2], strict=True)].index(False)
            what = difference(structures[0][k], structures[1][k], f"argument {k}")
            warn_the_user(
                f"`{self.name}` is given examples of {len(structures)} structures ({what}, and so on). Each is traced "
                "and compiled by itself; fill lists up to a few lengths where you can"
            )
        self._expected.update(structures)

    def forget_latest(self) -> None:
        """Forget which program ran last, since it is out of date."""
        self._latest, self._this_thread = None, _Thread()

    @property
    def latest(self) -> Run | None:
        """What the last call of this thread ran, or of any thread if this one has made none."""
        return self._this_thread.latest or self._latest

    def count_program(self, structure: Structure, examples: int | None, took_gradient: bytes) -> None:
        """Note that a program is being compiled; warns when there are too many."""
        if structure in self._expected:
            return
        latest = structure, examples, took_gradient
        self.programs.append(latest)
        if len(self.programs) != STORM + 1:
            return
        # A batch has a program for its results and one for its gradient: the last that was for something else.
        old, before, had_taken = next((other for other in reversed(self.programs) if other != latest), latest)
        if len(old) != len(structure):
            what = f"it had {len(old)} arguments and has {len(structure)}"
        elif old != structure:
            k = [a == b for a, b in zip(old, structure, strict=True)].index(False)
            what = difference(old[k], structure[k], f"argument {k}")
        elif took_gradient != had_taken:
            what = "other Values are frozen than before"
        else:
            sizes = ["one example" if count in (None, 1) else f"{count} examples" for count in (before, examples)]
            what = f"the batch was of {sizes[0]} and is of {sizes[1]}"
        warn_the_user(
            f"`{self.name}` is being compiled over and over ({len(self.programs)} programs so far): {what}. Each "
            "structure of arguments is compiled anew; give lists of equal lengths, or one batch size, where you can"
        )


def warn_the_user(message: str) -> None:
    """A RuntimeWarning at the first line outside chainrule."""
    depth, frame = 1, sys._getframe()
    while frame.f_back and is_ours(frame.f_code):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=depth)


class Traced:
    """A function traced for one structure of arguments, and for the path that it takes on the `numbers` in them.

    It has the graph of one example, and code for it. `guards` are the conditions of the path, None if there are none.
    """

    def __init__(self, source: Source, structure: Structure, numbers: Sequence[float]) -> None:
        self.source, self.structure, self.count = source, structure, len(numbers)  # of numbers in the arguments
        self.clock, self.started = Clock(), next_serial()
        self.number = 0  # among the paths of this structure; negative if it is not kept
        self.why_not_kept = ""
        self.places: dict[str, np.ndarray] = {}  # of captured Values among those of all paths, if there are several
        self.others: list[Value] = []  # captured Values of a path that is not kept alone; their places are negative
        self.others_data = np.zeros(0)
        self.result: Structure
        self.classes: dict[int, int]  # place of an argument that is a class index -> how many classes there are
        self.guards: Guards | None
        graph = self._call(numbers)
        self._may_freeze = that_may_freeze(graph, source.wrt)
        self.took_gradient = takes_gradient(self._may_freeze)
        self.scalar_nodes = len(graph) - 1  # without the one that packs the results
        self.spans: list[tuple[Any, Any]] | None = None  # of a batch's arguments
        self.wiring: Any = None  # a `Wiring` of the used numbers, once there are batches
        self.class_spans: list[tuple[Any, Any]] = []  # those of class indices among them
        self._training: dict[tuple[Value, ...], Traced] = {}  # the same with more parameters
        self._take(graph)

    def _take(self, graph: Graph) -> None:
        """Begin with this graph; nothing has been compiled yet."""
        self.traced_graph = graph
        self.used = np.array([symbol.place for symbol in graph.leaves("input")], dtype=np.int64)
        self.uses_all = np.array_equal(self.used, np.arange(self.count))
        self.captured: dict[str, list[Value]] = {kind: graph.leaves(kind) for kind in ("parameter", "captured")}
        parameters = self.captured["parameter"]
        self.wrt = parameters if self.source.wrt is None else self.source.wrt
        self.order = Order(self.wrt, parameters)
        self.steps: dict[Any, Any] = {}  # training steps, by all that is part of their program
        self._read = [(kind, nodes) for kind, nodes in self.captured.items() if nodes]
        self._every = [node for _, nodes in self._read for node in nodes]
        self._lifted: ArrayProgram | IrregularityError | None = None
        self._most_examples = 0
        self._of_a_block: dict[int, int] = {}  # examples, by the size of the batch
        self._runs: dict[tuple[int | None, bool, bool, int], Run] = {}  # by what `code` is given
        self._irregular: dict[tuple[bool, bool], str] = {}  # one example?, summed?: why these have no loops
        self._strict_codes: dict[bool, StrictCode] = {}

    def _call(self, numbers: Sequence[float]) -> Graph:
        """Call the function on symbols; the graph of what it returned."""
        name, arguments = self.source.name, [Symbol.argument(k) for k in range(self.count)]
        given = {id(symbol): number for symbol, number in zip(arguments, numbers, strict=True)}
        branches = Branches(given, _below)
        leaves: list[Any] = []

        def call() -> Structure:
            supply = iter(arguments)
            with tracing(branches, defers=not self.source.strict) as self.classes:
                result = called(self.source.function, [build(part, supply) for part in self.structure])
            return flatten(result, leaves, lambda leaf: _node(leaf, name))

        self.result = self.clock("call", call)
        self.outputs = len(leaves)
        if not leaves:
            raise TypeError(f"`{name}` returned no numbers: return a number, or lists of numbers")
        root = Symbol(packed(len(leaves)), tuple(leaves))
        graph: Graph = self.clock("trace", lambda: graph_of(root, self.source.wrt))
        if not {*map(id, graph.leaves("input"))} <= {*map(id, arguments)}:
            raise TracingError(f"`{name}` {EARLIER}, {KEPT}: {STORE}")
        self.guards = Guards.of(branches.met, self.started)
        return graph

    def is_current(self) -> bool:
        """Whether the same Values are frozen as when the function was called."""
        return takes_gradient(self._may_freeze) == self.took_gradient

    def refuse_branches(self, deed: str) -> None:
        """Refuse what needs one program for all numbers, if this is only the program of a path."""
        if self.guards is not None:
            raise TracingError(
                f"{line_at(self.guards.lines[0])} branches on a number, and {deed} needs one program for all numbers, "
                f"not one for each path: {BRANCH}"
            )

    def with_respect_to(self, wrt: list[Value]) -> Traced:
        """The same trace and code, with gradients with respect to other Values."""
        if wrt == self.wrt:
            return self
        other = copy.copy(self)
        other.wrt, other.order = wrt, Order(wrt, self.captured["parameter"])
        return other

    def training(self, parameters: Sequence[Value]) -> Traced:
        """The same function with all of these as its parameters, whether it uses them or not.

        An optimizer changes each of its parameters at every step, those without a gradient too.
        """
        used = set(self.captured["parameter"])
        unused = tuple([value for value in parameters if value not in used])
        if not unused:
            return self
        if unused not in self._training:
            other = copy.copy(self)
            other.__dict__.pop("graph", None)
            other._take(with_parameters(self.traced_graph, unused))
            self._training[unused] = other
        return self._training[unused]

    def check_classes(self, indices: np.ndarray) -> None:
        """Refuse arguments that should be class indices and are not: one row per example, in the order of the places.

        All at once, for a look at each place takes longer than many examples do.
        """
        where = sorted(self.classes)
        counts = np.array([self.classes[place] for place in where])
        wrong = ~((indices >= 0) & (indices < counts) & (indices == np.floor(indices)))
        if wrong.any():
            first = int(wrong.any(axis=0).argmax())
            name = places((tuple, self.structure), "arguments")[where[first]]
            raise ValueError(
                f"`{name}` must be a class index below {counts[first]}, got {indices[wrong[:, first], first][0]:g}: "
                "count classes from 0, and give the model one output for each"
            )

    def check_scalar(self) -> None:
        """Refuse a gradient of several results."""
        if not is_one_number(self.result):
            raise TypeError(
                f"`{self.source.name}` returns {counted(self.outputs, 'number')} in a structure, and a gradient is "
                "that of one number: return one, or call the program for the results alone (a batch with `reduce=None`)"
            )

    # Programs.

    @property
    def lifted(self) -> ArrayProgram:
        """The program of one example."""
        if self._lifted is None:
            try:
                self._lifted = self.clock("lift", self._lift)
            except IrregularityError as error:
                self._lifted = error
        if isinstance(self._lifted, IrregularityError):
            raise self._lifted.with_traceback(None)  # a traceback would keep every frame alive that it was raised in
        return self._lifted

    def _lift(self, most_statements: float = MOST_STATEMENTS) -> ArrayProgram:
        """The program, with derivatives of arrays if it wants any; with those of nodes where that cannot be."""
        if has_derivatives(self.traced_graph):
            try:
                return lift_in_stages(self.traced_graph, most_statements)
            except IrregularityError:
                pass
        return lift_results(self.graph, most_statements)

    @cached_property
    def arrange(self) -> Callable[[np.ndarray], Any]:
        """Makes what the function returns of the numbers in it."""
        return arrangement(self.result)

    @cached_property
    def graph(self) -> Graph:
        """The traced graph, with its derivatives as nodes like all others."""
        return expanded(self.traced_graph)

    def exported(self, freeze: bool = False, whole: bool = True) -> ArrayProgram:
        """The program of one example for callers elsewhere; it takes the `whole` arguments, or what is used of them."""
        try:
            lifted = self.lifted
        except IrregularityError:
            lifted = self._lift(math.inf)
        arguments = (self.used.tolist(), self.count) if whole else None
        return exported(lifted, self.wrt, self.captured, arguments, freeze)

    @property
    def most_examples(self) -> int:
        """How many examples fit the cache at a time, or the device that JAX runs on."""
        if not self._most_examples:
            try:
                numbers = size_of_an_example(self.lifted)
            except IrregularityError:  # examples then run node by node, one at a time
                numbers = len(self.graph)
            itemsize = np.dtype(self.source.dtype).itemsize
            bytes_each = itemsize * (2 * numbers + 1)
            if self.source.backend == "xla":
                self._most_examples = max(64, int(load_xla().largest_batch()) // bytes_each // 64 * 64)
            else:
                own = itemsize * len(self.captured["parameter"])
                room = max(min(SMALL_CACHE + 48 * own, 3 * CACHE // 4), min(LARGE_CACHE, 4 * own))
                fitting, least = room // bytes_each // 16 * 16, CACHE // bytes_each // 16 * 16
                self._most_examples = max(16, min(FEW, least), min(4096, fitting))
        return self._most_examples

    def examples_of_a_block(self, count: int) -> int:
        """How many of a batch's examples a block of a GPU's threads takes at a time."""
        if count not in self._of_a_block:
            from chainrule.compiler.backends.cuda import runner
            from chainrule.compiler.backends.cuda.shape import examples_at_once

            try:
                self._of_a_block[count] = examples_at_once(self.lifted, self.source.dtype, count, runner.machinery())
            except IrregularityError:
                self._of_a_block[count] = 1
        return self._of_a_block[count]

    # Code, and the data it runs on.

    @property
    def is_node_by_node(self) -> bool:
        """Whether no array program is wanted."""
        return self.source.strict or self.number < 0

    def code(
        self,
        examples: int | None,
        total: bool,
        first: Callable[[], np.ndarray],
        masked: bool = False,
        divisor: int = 1,
    ) -> Code | StrictCode:
        """Code for one example (None) or a batch of `examples`; for their sum with its gradient if `total`.

        It runs node by node, for any number of examples, if that was asked for or if there are no loops. `first`
        returns the numbers of one example. If `masked`, a leaf says which examples are part of the sum. An array
        program's gradient, but not its sum, is divided by `divisor`.
        """
        key = examples, total, masked, divisor
        run = self._runs.get(key)
        if run is None:
            with compiling(self.source):
                run = self._runs.get(key)
                if run is None:  # still, after another thread's turn
                    code = self._array_code(*key) or self._strict_code(total, first)
                    run = self._runs[key] = self.structure, self.number, code
        self.source.ran(run)
        return run[2]

    def run_of_one(self) -> Run:
        """What ran for one example and its gradient."""
        return self._runs[None, True, False, 1]

    def _array_code(self, examples: int | None, total: bool, masked: bool, divisor: int) -> Code | None:
        kind = examples is None, total
        if self.is_node_by_node or kind in self._irregular:
            return None
        self._count(examples)
        try:
            one, gradient = self.lifted, total and bool(self.wrt)
            program = one if examples is None else self.clock("batch", lambda: self.batched(examples, total, masked))
            source, seed = self.source, 1.0 / divisor
            code = Code(
                program, gradient, source.backend, self.clock, dtype=source.dtype, seed=seed, wiring=self.wiring
            )
            return code.of_one_example(lambda: self.graph) if examples is None else code
        except IrregularityError as error:
            self._irregular[kind] = error.why(self.source.dtype)
            return None

    def batched(self, examples: int, total: bool, masked: bool = False) -> ArrayProgram:
        """The program for so many examples: on a GPU, of a block, whose last ones may be missing."""
        if self.source.backend != "cuda":
            side_by_side = self.source.backend != "xla" and self.lifted.has_time
            return batched(self.lifted, examples, total, masked, side_by_side)
        program = batched(self.lifted, examples, total, masked=total, in_blocks=True)
        counts = {place: self.classes[int(used)] for place, used in enumerate(self.used) if int(used) in self.classes}
        return with_class_check(program, examples, counts) if counts else program

    def _count(self, examples: int | None) -> None:
        """Note that a program is being compiled; of a function that branches, the first for each structure."""
        if self.guards is None or not (self.number or self._runs):
            self.source.count_program(self.structure, examples, self.took_gradient)

    def _strict_code(self, total: bool, first: Callable[[], np.ndarray]) -> StrictCode:
        if total not in self._strict_codes:
            self._count(None)
            graph, results, numbers = self.graph, self.graph.operands[-1], first().tolist()
            own = Graph(graph.rules[:-1], graph.operands[:-1], graph.nodes[:-1])
            why = AS_ASKED if self.number >= 0 else self.why_not_kept
            gradient, reason = total and bool(self.wrt), next(iter(self._irregular.values()), why)
            self._strict_codes[total] = self.clock(
                "nodes", lambda: StrictCode(own, gradient, reason, results, numbers, self.started)
            )
        return self._strict_codes[total]

    def data_at(self, moment: np.ndarray) -> np.ndarray:
        """What `places` are the places in."""
        return np.concatenate([moment, self.others_data]) if self.others else moment

    def load(self, *machines: Machine | StrictMachine, moment: np.ndarray | None = None) -> None:
        """Give machines the captured Values' data, all of it as of one moment, even while another thread trains.

        A `moment` has the data with which the guards were checked. Machines that all have the present data keep it: to
        read 40,000 Values takes a tenth of the time that a network with as many takes for a hundred examples.
        """
        now = replaced() if moment is None else NEVER  # before they are read: what another thread writes then is later
        if moment is not None:
            data = self.data_at(moment)
            for kind, places in self.places.items():
                for machine in machines:
                    machine.load(kind, data[places])
        elif all(machine.as_of == now for machine in machines):
            return
        elif len(machines) == len(self._read) == 1:
            machines[0].load_data(*self._read[0])
        else:
            self._load_all(machines)
        for machine in machines:
            machine.as_of = now if machine.keeps_data else NEVER

    def _load_all(self, machines: Sequence[Machine | StrictMachine]) -> None:
        """Read all captured Values at once, for several kinds of leaves or several machines."""
        numbers, start = np.empty(len(self._every)), 0
        read_data(self._every, numbers)
        for kind, nodes in self._read:
            for machine in machines:
                machine.load(kind, numbers[start : start + len(nodes)])
            start += len(nodes)


def called(function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """What a function returns for inputs, of which the last may be those that were given by name."""
    *others, last = inputs or [None]
    return function(*others, **last) if type(last) is Named else function(*inputs)


def _below(derivative: Any) -> Iterable[tuple[Any, tuple[int, ...], Any]]:
    """The rules, operands and nodes of a derivative that was put off, and of what it was made of."""
    graph = expanded(graph_of(Symbol(packed(1), (derivative,)), ()))
    return zip(graph.rules, graph.operands, graph.nodes, strict=True)


def _node(leaf: Any, name: str) -> Any:
    if isinstance(leaf, (Symbol, Value)):
        return leaf
    try:
        return Constant(leaf)
    except TypeError:
        found = f"`{name}` returned {type(leaf).__name__} {leaf!r:.40}"
        raise TypeError(f"{found}: return a number, or lists, tuples, dicts or arrays of them") from None
