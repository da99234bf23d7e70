"""Gradient checking: what `backward()` says against what the numbers say, and whose fault a difference is.

`gradcheck(f, *inputs)` takes a function of Values and gives a `Report`: one `Row` for each input number, with
its analytic and its numerical derivative, and, when they differ, a sentence that names the guilty op and line.

The diagnosis treats an op as a black box, so it serves the engines, a learner's own class and hand-written
`_backward`s alike. The chain rule holds at every node by itself: a node must move as its operands move,

    d node = Σ partial · d operand,

where the partials are what one call of its `_backward` pushes and the movements are measured by running `f` at
neighbouring inputs. The oldest node that breaks this is the culprit. If none does, the walk over the nodes is.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from math import isfinite, nan
from types import FrameType
from typing import Any, NamedTuple

from chainrule._value import Value
from chainrule.finite_differences import Derivative, derivative
from chainrule.ops import Op, as_float

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
LOCAL_TOLERANCE = 1e-6  # for the chain rule at one node, which is measured and not only computed


class Row(NamedTuple):
    """One input number: its two derivatives, and whether they agree.

    >>> gradcheck(lambda x: x * x, 3.0).rows[0].analytic
    6.0
    """

    name: str
    value: float
    analytic: float
    numerical: float
    error: float  # estimated, of `numerical`
    ok: bool
    note: str = ""


class Report:
    """The outcome of `gradcheck`: rows to go through, true if all agree, a table when printed.

    >>> [row.name for row in gradcheck(lambda x, y: x / y, 3.0, 2.0)]
    ['x', 'y']
    """

    def __init__(self, rows: Sequence[Row], tolerance: float, diagnosis: str = "") -> None:
        self.rows = tuple(rows)
        self.tolerance = tolerance
        self.diagnosis = diagnosis

    @property
    def ok(self) -> bool:
        """Whether every derivative agrees.

        >>> gradcheck(lambda x: x.tanh(), 0.5).ok
        True
        """
        return all(row.ok for row in self.rows)

    def check(self) -> Report:
        """This report if all is well; otherwise an AssertionError that shows it.

        >>> gradcheck(lambda x: x.exp(), 1.0).check().ok
        True
        """
        if not self.ok:
            raise AssertionError(f"the gradient is wrong\n{self}")
        return self

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        table = [("input", "value", "analytic", "numerical", "error", "")]
        for row in self.rows:
            numbers = [f"{number:.10g}" for number in (row.value, row.analytic, row.numerical)]
            table.append((row.name, *numbers, f"{row.error:.0e}", "ok" if row.ok else "WRONG"))  # type: ignore[arg-type]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:5], widths[1:5]), line[5]]).rstrip()
            for line in table
        ]
        agreeing = sum(row.ok for row in self.rows)
        lines += [f"{agreeing} of {len(self)} derivatives agree to {self.tolerance:g}."]
        lines += [f"{row.name}: {row.note}." for row in self.rows if row.note]
        return "\n".join([*lines, self.diagnosis] if self.diagnosis else lines)

    __repr__ = __str__


def gradcheck(f: Callable[..., Any], *inputs: Any, tolerance: float = 1e-7) -> Report:
    """Compare the derivatives that `backward()` gives for `f(*inputs)` with numerical ones.

    `f` returns one Value. Inputs are numbers, Values (of chainrule's or of your own micrograd-like class) and
    lists of them; numbers reach `f` as Values. A Value given is moved in place and put back, so `f` may also use
    it behind its arguments' back: `gradcheck(lambda *p: loss(model), *model.parameters())`.

    Print the report for a table. Write `assert gradcheck(...)` or `gradcheck(...).check()` in a test. At a
    corner, as of relu at 0, any slope between those of the two sides agrees, and the row says so.

    >>> print(gradcheck(lambda a, b: a * b + a, 2.0, 3.0))
    input  value  analytic  numerical  error
    a          2         4          4  2e-14  ok
    b          3         2          2  1e-14  ok
    2 of 2 derivatives agree to 1e-07.
    """
    if not 0.0 < tolerance < 1.0:
        raise ValueError(f"`tolerance` must lie between 0 and 1, got {tolerance!r}: 1e-7 asks for seven digits")
    experiment = _Experiment(f, inputs)
    analytic = experiment.analytic()
    rows = [_row(experiment, index, slope, tolerance) for index, slope in enumerate(analytic)]
    wrong = [index for index, row in enumerate(rows) if not row.ok]
    if not wrong:
        return Report(rows, tolerance)
    worst = max(wrong, key=lambda index: _distance(rows[index]))
    return Report(rows, tolerance, _Diagnosis(experiment, worst).sentence())


def _row(experiment: _Experiment, index: int, analytic: float, tolerance: float) -> Row:
    x = experiment.numbers[index]
    numerical = derivative(lambda number: experiment.result(index, number), x)
    ok = numerical.agrees(analytic, tolerance)
    note = ""
    if numerical.corner:
        sides = f"left {numerical.left:.6g}, right {numerical.right:.6g}"
        note = f"not differentiable here? The one-sided derivatives differ: {sides}"
    elif not ok and not numerical.settled:
        note = f"the numerical derivative does not settle (error {numerical.error:.1g}); f may jump or be vertical here"
    return Row(experiment.names[index], x, analytic, numerical.value, numerical.error, ok, note)


def _distance(row: Row) -> float:
    difference = abs(row.analytic - row.numerical)
    return difference if isfinite(difference) else sys.float_info.max


# Running f.


def _is_value(thing: Any) -> bool:
    return all(hasattr(thing, name) for name in ("data", "grad", "_prev", "_backward", "backward"))


class _Experiment:
    """`f` and its inputs laid out flat, ready to be run again with one of them moved."""

    def __init__(self, f: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
        self.f = f
        self.inputs = inputs
        names = _parameter_names(f, len(inputs))
        flat = [leaf for name, item in zip(names, inputs, strict=True) for leaf in _flatten(name, item)]
        if not flat:
            raise ValueError("`inputs` holds no number; give at least one after `f`")
        self.names = [name for name, _ in flat]
        self.given = [item for _, item in flat]
        self.numbers = [
            as_float(item.data if _is_value(item) else item, name)
            for name, item in zip(self.names, self.given, strict=True)
        ]
        for name, number in zip(self.names, self.numbers, strict=True):
            if not isfinite(number):
                raise ValueError(
                    f"`{name}` is {number}, and there is no derivative to measure there; give a finite number"
                )
        self.own = [item for item in self.given if _is_value(item)]  # the caller's Values
        self.kind: type = type(self.own[0]) if self.own else Value

    @contextmanager
    def moved(self, index: int = 0, number: float | None = None) -> Iterator[list[Any]]:
        """The inputs as Values, input `index` being `number`; the caller's own are put back afterwards."""
        with _unchanged(self.own):
            pairs = zip(self.given, self.numbers, strict=True)
            leaves = [item if _is_value(item) else self.kind(x) for item, x in pairs]
            if number is not None:
                leaves[index].data = number
            yield leaves

    def apply(self, leaves: Sequence[Any]) -> Any:
        supply = iter(leaves)
        out = self.f(*[_rebuild(item, supply) for item in self.inputs])
        if not _is_value(out):
            raise TypeError(f"`f` must return one Value, got {type(out).__name__}")
        return out

    def result(self, index: int, number: float) -> float:
        with self.moved(index, number) as leaves:
            return float(self.apply(leaves).data)

    def analytic(self) -> list[float]:
        """What one backward pass gives for each input."""
        with self.moved() as leaves:
            out = self.apply(leaves)
            first, again = float(out.data), self.result(0, self.numbers[0])
            if not isfinite(first):
                raise ValueError(f"`f` gives {first} at these inputs; check it where its result is finite")
            if first != again:
                raise ValueError(f"`f` gives {first}, then {again} for the same inputs; seed its random numbers inside")
            with _unchanged([*_graph_below(out), *leaves]):
                return _backward_pass(out, leaves)


def _backward_pass(out: Any, leaves: Sequence[Any]) -> list[float]:
    for leaf in leaves:
        leaf.grad = 0.0
    out.backward()
    return [float(leaf.grad) for leaf in leaves]


@contextmanager
def _unchanged(values: Iterable[Any]) -> Iterator[None]:
    before = [(value, value.data, value.grad) for value in values]
    try:
        yield
    finally:
        for value, data, grad in before:
            value.data, value.grad = data, grad


def _flatten(name: str, item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, list | tuple):
        for k, part in enumerate(item):
            yield from _flatten(f"{name}[{k}]", part)
    else:
        yield getattr(item, "label", "") or name, item


def _rebuild(item: Any, supply: Iterator[Any]) -> Any:
    if isinstance(item, list | tuple):
        return type(item)([_rebuild(part, supply) for part in item])
    return next(supply)


def _parameter_names(f: Callable[..., Any], count: int) -> list[str]:
    import inspect  # slow to load

    names: list[str] = list(f.parameters) if isinstance(f, Op) else []
    with suppress(TypeError, ValueError):  # some callables of C have no signature
        for parameter in inspect.signature(f).parameters.values() if not names else ():
            star = parameter.kind is parameter.VAR_POSITIONAL
            names += [f"{parameter.name}[{k}]" for k in range(count)] if star else [parameter.name]
    return names[:count] + [f"input[{k}]" for k in range(len(names), count)]


def _operands(node: Any) -> tuple[Any, ...]:
    return tuple(node._operands if hasattr(node, "_operands") else node._prev)


def _graph_below(out: Any) -> list[Any]:
    found, pending = {id(out): out}, [out]
    while pending:
        for operand in _operands(pending.pop()):
            if id(operand) not in found:
                found[id(operand)] = operand
                pending.append(operand)
    return list(found.values())


# Which node was made when, and by which line.


class _Creations:
    """Numbers the Values made while it is entered: 1, 2, 3, ...

    Chainrule's carry a serial number. Of any other class, the constructor is wrapped meanwhile.
    """

    def __init__(self, kind: type) -> None:
        self.serial = hasattr(kind, "_serial")
        mark = "_serial" if self.serial else "__init__"
        self.owner: Any = [kind, *(base for base in kind.__mro__[:-1] if mark in vars(base))][-1]
        self.methods = {getattr(member, "__code__", None) for base in kind.__mro__ for member in vars(base).values()}
        self.made: list[Any] = []
        self.lines: list[tuple[int, str, int]] = []  # creations so far when this file's line had its turn

    def __enter__(self) -> _Creations:
        self.first = self.count()
        self.init = self.owner.__init__

        def recording(node: Any, *args: Any, **kwargs: Any) -> None:
            self.made.append(node)
            self.init(node, *args, **kwargs)

        if not self.serial:
            self.owner.__init__ = recording
        return self

    def __exit__(self, *_: object) -> None:
        if not self.serial:
            self.owner.__init__ = self.init
        self.numbers = {id(node): k for k, node in enumerate(self.made, 1)}

    def count(self) -> int:
        return int(self.owner(0.0)._serial) if self.serial else len(self.made)

    def number(self, node: Any) -> int:
        """Which creation `node` was; 0 or less if it was there before."""
        return int(node._serial) - self.first if self.serial else self.numbers.get(id(node), 0)

    @contextmanager
    def watching_lines(self) -> Iterator[None]:
        previous = sys.gettrace()  # a debugger's or a coverage tool's
        sys.settrace(self._enter_frame)
        try:
            yield
        finally:
            sys.settrace(previous)

    def _enter_frame(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._step if self._is_users(frame) else None

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        place: FrameType | None = frame
        if event == "return":  # the caller's line goes on
            place = frame.f_back
            while place and not self._is_users(place):
                place = place.f_back
        if place:
            self.lines.append((self.count() - self.first, place.f_code.co_filename, place.f_lineno))
        return self._step

    def _is_users(self, frame: FrameType) -> bool:
        """Neither chainrule's nor a method of the Value class: `a * b` is of interest, not `__mul__`."""
        return frame.f_code not in self.methods and not frame.f_code.co_filename.startswith(PACKAGE)

    def place(self, node: Any) -> str:
        """Where the user's code made `node`, as "demo.py:12 (`out = a * b`)"."""
        import linecache  # slow to load

        k = bisect_left(self.lines, self.number(node), key=lambda line: line[0])
        if k == 0:
            return ""
        _, file, line = self.lines[k - 1]
        text = linecache.getline(file, line).strip()
        return f"{_short(file)}:{line}" + (f" (`{text}`)" if text else "")


def _short(file: str) -> str:
    return file.removeprefix(os.getcwd() + os.sep)


class _Graph:
    """The nodes of one run of f: the inputs, then nodes that were there before, then those it made, in order."""

    def __init__(self, experiment: _Experiment, leaves: Sequence[Any], out: Any, made: _Creations) -> None:
        self.out, self.leaves, self.made = out, leaves, made
        self.names = dict(zip(map(id, leaves), experiment.names, strict=True))
        below = {id(node): node for node in (*leaves, *_graph_below(out))}
        others = [node for key, node in below.items() if key not in self.names]
        before = sorted((node for node in others if made.number(node) <= 0), key=id)
        since = sorted((node for node in others if made.number(node) > 0), key=made.number)
        self.nodes = [*{id(leaf): leaf for leaf in leaves}.values(), *before, *since]
        self.position = {id(node): k for k, node in enumerate(self.nodes)}

    def operands(self, node: Any) -> list[Any]:
        """Each operand once: in order where the class keeps one, else the oldest first."""
        distinct = list({id(operand): operand for operand in _operands(node)}.values())
        if hasattr(node, "_operands") or not isinstance(node._prev, set | frozenset):
            return distinct
        return sorted(distinct, key=lambda operand: self.position[id(operand)])

    def interior(self) -> list[tuple[Any, list[Any]]]:
        """The nodes with operands, and these; an input counts as a leaf, whatever it was made of."""
        return [(node, self.operands(node)) for node in self.nodes if id(node) not in self.names and _operands(node)]

    def shape(self) -> list[tuple[str, list[int]]]:
        """What each node is and where its operands stand: equal for two runs that did the same."""
        return [
            (getattr(node, "_op", ""), [self.position[id(operand)] for operand in self.operands(node)])
            for node in self.nodes
        ]

    def carriers(self) -> set[int]:
        """The nodes through which gradient reaches an input."""
        found = set(self.names)
        for node, operands in self.interior():
            if any(id(operand) in found for operand in operands):
                found.add(id(node))
        return found

    def describe(self, node: Any) -> str:
        tag, label = getattr(node, "_op", ""), getattr(node, "label", "")
        place = self.made.place(node)
        name = f"`{tag}`" if tag else f"node `{label}`" if label else "node"
        return f"the {name}" + (f" made at {place}" if place else "")

    def describe_operand(self, node: Any, operand: Any) -> str:
        operands = self.operands(node)
        count = "its operand" if len(operands) == 1 else f"operand {operands.index(operand) + 1}"
        name = self.names.get(id(operand)) or getattr(operand, "label", "")
        return f"{count} (`{name}`)" if name else count


# Whose fault it is.


class _Diagnosis:
    """Finds the node, or else the walk, to which the derivative by input `index` owes its error."""

    def __init__(self, experiment: _Experiment, index: int) -> None:
        self.experiment = experiment
        self.index = index
        self.input = experiment.names[index]
        self.other_path = False  # whether f took one beside these inputs, so that nodes could not be compared
        self.samples: dict[tuple[int, float], list[float]] = {}

    def sentence(self) -> str:
        with self.run(lines=True) as self.graph, _unchanged(self.graph.nodes):
            self.carriers = self.graph.carriers()
            found = self.outdated() or self.wrong_rule() or self.cut() or self.wrong_walk() or self.nothing()
        return found[0].upper() + found[1:]

    @contextmanager
    def run(self, index: int = 0, number: float | None = None, lines: bool = False) -> Iterator[_Graph]:
        made = _Creations(self.experiment.kind)
        with self.experiment.moved(index, number) as leaves:
            with made, made.watching_lines() if lines else nullcontext():
                out = self.experiment.apply(leaves)
            yield _Graph(self.experiment, leaves, out, made)

    def nothing(self) -> str:
        if self.other_path:
            return f"`f` builds a graph of another shape when `{self.input}` moves, so no op can be singled out."
        return "every op's rule and the walk over them hold at these inputs, so doubt the numerical derivative first."

    # Nodes that cannot carry the gradient.

    def outdated(self) -> str:
        """A node from before f: it does not follow when the inputs move."""
        for node, operands in self.graph.interior():
            if self.graph.made.number(node) <= 0 and any(id(operand) in self.graph.names for operand in operands):
                return f"{self.graph.describe(node)} was made from an input before `f` ran: build it inside `f`."
        return ""

    def cut(self) -> str:
        """A leaf that moves with the input: somebody took `.data` on the way."""
        for node in self.graph.nodes:
            if id(node) not in self.graph.names and not _operands(node):
                movement = self.movement(node, self.index)
                if movement.settled and abs(movement.value) > 10.0 * movement.error:
                    return (
                        f"{self.graph.describe(node)} moves with `{self.input}` but has no operands, so no gradient gets "
                        f"through: compute with Values rather than their `.data`, and name the operands in `_children`."
                    )
        return ""

    # The rule of one node.

    def wrong_rule(self) -> str:
        for node, operands in self.graph.interior():
            if id(node) in self.carriers:
                partials = _push(node, operands)
                fault = (
                    self.not_accumulating(node, operands, partials)
                    or self.not_proportional(node, operands, partials)
                    or self.wrong_partial(node, operands, partials)
                )
                if fault:
                    return f"{self.graph.describe(node)} is wrong: {fault}."
        return ""

    def not_accumulating(self, node: Any, operands: list[Any], partials: list[float]) -> str:
        held = 1.0 + max(abs(partial) for partial in partials if isfinite(partial))
        for operand, partial, total in zip(operands, partials, _push(node, operands, held=held), strict=True):
            if isfinite(partial) and not _close(total, held + partial):
                rule, name = _backward_of(node), self.graph.describe_operand(node, operand)
                return f"{rule} overwrites the gradient of {name}; add to it, with `+=` in place of `=`"
        return ""

    def not_proportional(self, node: Any, operands: list[Any], partials: list[float]) -> str:
        doubled = _push(node, operands, grad=2.0)
        if all(_close(twice, 2.0 * once) for once, twice in zip(partials, doubled, strict=True)):
            return ""
        same = all(map(_close, partials, doubled))
        habit = (
            "passes on the same whatever gradient reaches it" if same else "is not proportional to the gradient it gets"
        )
        return f"{_backward_of(node)} {habit}; multiply by `out.grad`, once"

    def wrong_partial(self, node: Any, operands: list[Any], partials: list[float]) -> str:
        broken, slopes = "", []
        if getattr(node, "_rule", None) is not None:
            slopes = [_local_slope(node, operand) for operand in operands]
        elif broken := self.broken_chain_rule(node, operands, partials):
            slopes = self.slopes(node, operands, partials)
        wrong = [
            (operand, slope, partial)
            for operand, slope, partial in zip(operands, slopes, partials, strict=bool(slopes))
            if id(operand) in self.carriers and slope.settled and not slope.agrees(partial, LOCAL_TOLERANCE)
        ]
        if not wrong:
            return broken
        faults = [
            f"d out/d {self.graph.describe_operand(node, operand)} should be {_slope_text(slope)}, "
            f"but {_rule_of(node, operand)} gives {partial:.6g}"
            for operand, slope, partial in wrong
        ]
        return "; ".join(faults) + _hint([slope.value for _, slope, _ in wrong], [partial for _, _, partial in wrong])

    def broken_chain_rule(self, node: Any, operands: list[Any], partials: list[float]) -> str:
        """How the node fails to move as its operands and their partials demand, when the input moves."""
        movement = self.movement(node, self.index)
        parts = [self.movement(operand, self.index) for operand in operands]
        demanded = sum(partial * part.value for partial, part in zip(partials, parts, strict=True))
        terms = [abs(partial * part.value) for partial, part in zip(partials, parts, strict=True)]
        doubt = movement.error + sum(abs(partial) * part.error for partial, part in zip(partials, parts, strict=True))
        size = abs(movement.value) + sum(terms)
        corner = movement.corner or any(part.corner for part in parts)
        if corner or not doubt <= 0.01 * size or abs(movement.value - demanded) <= LOCAL_TOLERANCE * size + 4.0 * doubt:
            return ""
        rates = f"it moves {movement.value:.6g} times as fast as `{self.input}`"
        if not any(part.value for part in parts):
            return f"{rates}, yet none of its operands moves: one is missing from its `_children`"
        return f"{rates}, yet by its operands and {_backward_of(node)} it should move {demanded:.6g} times as fast"

    def slopes(self, node: Any, operands: list[Any], partials: list[float]) -> list[Derivative]:
        """The partials that explain the node's movements under every input; empty if several sets do."""
        unknown = [k for k, operand in enumerate(operands) if id(operand) in self.carriers]
        equations: list[list[float]] = []
        for index in sorted(range(len(self.experiment.numbers)), key=lambda index: index != self.index):
            parts = [self.movement(operand, index).value for operand in operands]
            known = sum(partials[k] * parts[k] for k in range(len(operands)) if k not in unknown)
            equation = [*(parts[k] for k in unknown), self.movement(node, index).value - known]
            if all(map(isfinite, equation)):
                equations.append(equation)
            if solution := _solve(equations, len(unknown)):
                values = dict(zip(unknown, solution, strict=True))
                return [_exactly(values.get(k, partial)) for k, partial in enumerate(partials)]
        return []

    def movement(self, node: Any, index: int) -> Derivative:
        """The derivative of the node's data by one input, measured."""
        k = self.graph.position[id(node)]
        return derivative(lambda number: self.sample(index, number)[k], self.experiment.numbers[index])

    def sample(self, index: int, number: float) -> list[float]:
        """Every node's data with input `index` at `number`."""
        if self.sampled != index:
            self.sampled, self.samples = index, {}
        if number not in self.samples:
            with self.run(index, number) as graph:
                same = graph.shape() == self.graph.shape()
                self.samples[number] = [float(node.data) if same else nan for node in self.graph.nodes]
                self.other_path |= not same
        return self.samples[number]

    # The walk over the nodes.

    def wrong_walk(self) -> str:
        complete, size = self.complete_gradients()
        heard: dict[int, list[float]] = {}
        with self.run() as graph, _unchanged(graph.nodes):
            for node, _ in graph.interior():
                if graph.made.number(node) > 0:
                    _listen(node, heard.setdefault(graph.position[id(node)], []))
            _backward_pass(graph.out, graph.leaves)
        for k in sorted(heard, reverse=True):
            slack = LOCAL_TOLERANCE * size[k]
            if heard[k] != [complete[k]] and not (len(heard[k]) == 1 and abs(heard[k][0] - complete[k]) <= slack):
                fault = self.walk_fault(self.graph.nodes[k], heard[k], complete[k])
                if fault:
                    return f"every op's own rule is right, but the walk of `backward()` is wrong: {fault}."
        return ""
