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
from math import inf, isfinite, nan
from types import CodeType, FrameType
from typing import Any, NamedTuple

from chainrule._value import Value
from chainrule.finite_differences import Derivative, derivative
from chainrule.ops import Op, as_float

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
MEASURED = 1e-6  # relative error that a number put together from measurements may have


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
        table = [["input", "value", "analytic", "numerical", "error", ""]]
        for row in self.rows:
            numbers = [f"{number:.10g}" for number in (row.value, row.analytic, row.numerical)]
            table.append([row.name, *numbers, f"{row.error:.0e}", "ok" if row.ok else "WRONG"])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:5]), verdict]).rstrip()
            for name, *numbers, verdict in table
        ]
        agreeing = sum(row.ok for row in self.rows)
        lines.append(f"{agreeing} of {len(self)} derivatives agree to {self.tolerance:g}.")
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
    a          2         4          4  1e-14  ok
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
    worst = max(wrong, key=lambda index: (not rows[index].note, _distance(rows[index])))  # the clearest case
    return Report(rows, tolerance, _Diagnosis(experiment, worst, rows[worst], tolerance).sentence())


def _row(experiment: _Experiment, index: int, analytic: float, tolerance: float) -> Row:
    x = experiment.numbers[index]
    numerical = derivative(lambda number: experiment.result(index, number), x)
    ok = numerical.agrees(analytic, tolerance)
    note = ""
    if numerical.corner and not _about(numerical.left, numerical.right):
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
        self.numbers = [as_float(item.data if _is_value(item) else item, name) for name, item in flat]
        for name, number in zip(self.names, self.numbers, strict=True):
            if not isfinite(number):
                raise ValueError(f"`{name}` is {number}, where there is no derivative to measure; give a finite number")
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
        parts = [_rebuild(part, supply) for part in item]
        return tuple(parts) if isinstance(item, tuple) else parts
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
        self.hooked = False
        self.made: list[Any] = []
        self.lines: list[tuple[int, str, int]] = []  # creations so far when this file's line had its turn

    def __enter__(self) -> _Creations:
        self.first = self.count()
        init = self.init = self.owner.__init__

        def recording(node: Any, *args: Any, **kwargs: Any) -> None:
            self.made.append(node)
            init(node, *args, **kwargs)

        if not self.serial:
            with suppress(TypeError):  # a class written in C keeps its constructor
                self.owner.__init__ = recording
                self.hooked = True
        return self

    def __exit__(self, *_: object) -> None:
        if self.hooked:
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
        return frame.f_code not in self.methods and not _is_ours(frame.f_code)

    def place(self, node: Any) -> str:
        """Where the user's code made `node`, as "demo.py:12 (`out = a * b`)"."""
        import linecache  # slow to load

        k = bisect_left(self.lines, self.number(node), key=lambda line: line[0])
        if k == 0:
            return ""
        _, file, line = self.lines[k - 1]
        text = linecache.getline(file, line).strip()
        text = text if len(text) <= 60 else text[:57] + "..."
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
        rank = [other is operand for other in operands].index(True) + 1
        count = "its operand" if len(operands) == 1 else f"operand {rank}"
        name = self.names.get(id(operand)) or getattr(operand, "label", "")
        return f"{count} (`{name}`)" if name else count


# Whose fault it is.


class _Diagnosis:
    """Finds the node, or else the walk, to which the derivative by input `index` owes its error."""

    def __init__(self, experiment: _Experiment, index: int, row: Row, tolerance: float) -> None:
        self.experiment = experiment
        self.index = index
        self.row = row
        self.input = row.name
        self.tolerance = 0.1 * tolerance  # what is wrong at one node may be diluted in the total
        self.other_path = False  # whether f took one beside these inputs, so that nodes could not be compared
        self.sampled = -1
        self.samples: dict[float, list[float]] = {}  # every node's data, by the number that input `sampled` is

    def sentence(self) -> str:
        with self.run(lines=True) as self.graph, _unchanged(self.graph.nodes):
            self.carriers = self.graph.carriers()
            self.complete, self.size = self.complete_gradients()
            if not (self.graph.made.serial or self.graph.made.hooked):
                return f"No op can be singled out, because `{self.experiment.kind.__name__}` is not written in Python."
            found = (
                self.outdated()
                or self.not_finite()
                or self.wrong_rule()
                or self.wrong_walk()
                or self.corner()
                or self.cut()
                or self.nothing()
            )
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
                return f"{self.graph.describe(node)} was made from an input before `f` ran; build it inside `f`."
        return ""

    def not_finite(self) -> str:
        """The first node whose rule gives NaN or infinity, if the gradient came to that."""
        for node, operands in self.graph.interior() if not isfinite(self.row.analytic) else ():
            for operand, partial in zip(operands, _push(node, operands), strict=True):
                if not isfinite(partial):
                    name = self.graph.describe_operand(node, operand)
                    return f"{self.graph.describe(node)} is {node.data:.6g} here, and d out/d {name} is {partial:.6g}."
        return ""

    def cut(self) -> str:
        """A leaf that moves with the input: somebody took `.data` on the way."""
        for node in self.graph.nodes:
            if id(node) not in self.graph.names and not _operands(node):
                movement = self.movement(node, self.index)
                if movement.settled and abs(movement.value) > 10.0 * movement.error:
                    return (
                        f"{self.graph.describe(node)} moves with `{self.input}` but has no operands, so the gradient "
                        "stops there: compute with Values, not their `.data`, and name the operands in `_children`."
                    )
        return ""

    def corner(self) -> str:
        for node, operands in self.graph.interior():
            if id(node) in self.carriers and self.on_corner(node, operands):
                return (
                    f"{self.graph.describe(node)} stands on a corner, where its slope is a choice and the chain rule "
                    f"need not hold; check with `{self.input}` a little beside."
                )
        return ""

    def on_corner(self, node: Any, operands: list[Any]) -> bool:
        if getattr(node, "_rule", None) is not None:
            return any(_local_slope(node, operand).corner for operand in operands)
        parts = [self.movement(operand, self.index) for operand in operands]
        return self.movement(node, self.index).corner and not any(part.corner for part in parts)

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
        held = 1.0 + max((abs(partial) for partial in partials if isfinite(partial)), default=0.0)
        for operand, partial, total in zip(operands, partials, _push(node, operands, held=held), strict=True):
            if not _close(total, held + partial):
                verb = "overwrites" if _close(total, partial) else "spoils"
                name = self.graph.describe_operand(node, operand)
                return f"{_backward_of(node)} {verb} the gradient that {name} holds; add to it, with `+=`"
        return ""

    def not_proportional(self, node: Any, operands: list[Any], partials: list[float]) -> str:
        doubled = _push(node, operands, grad=2.0)
        if all(_close(twice, 2.0 * once) for once, twice in zip(partials, doubled, strict=True)):
            return ""
        same = all(map(_close, partials, doubled))
        habit = "is the same whatever gradient it gets" if same else "is not proportional to the gradient it gets"
        return f"what {_backward_of(node)} passes on {habit}; multiply by `out.grad`, once"

    def wrong_partial(self, node: Any, operands: list[Any], partials: list[float]) -> str:
        broken, slopes = "", []
        if getattr(node, "_rule", None) is not None:
            slopes = [_local_slope(node, operand) for operand in operands]
        elif broken := self.broken_chain_rule(node, operands, partials):
            slopes = self.slopes(node, operands, partials)
        wrong = [
            (operand, slope, partial)
            for operand, slope, partial in zip(operands, slopes, partials, strict=False)
            if id(operand) in self.carriers and slope.settled and not slope.agrees(partial, self.tolerance)
        ]
        faults = [
            f"d out/d {self.graph.describe_operand(node, operand)} should be {_slope_text(slope)}, "
            f"but {_rule_of(node, operand)} gives {partial:.6g}"
            for operand, slope, partial in wrong
        ]
        hint = _hint([slope.value for _, slope, _ in wrong], [partial for _, _, partial in wrong])
        return "; ".join(faults) + hint if wrong else broken

    def broken_chain_rule(self, node: Any, operands: list[Any], partials: list[float]) -> str:
        """How the node's movement under the input differs from what its operands and partials make of it."""
        movement = self.movement(node, self.index)
        parts = [self.movement(operand, self.index) for operand in operands]

        def combine(numbers: Iterable[float]) -> float:
            return sum(partial * number for partial, number in zip(partials, numbers, strict=True))

        left, right = combine(part.left for part in parts), combine(part.right for part in parts)
        gap = min(abs(movement.left - left), abs(movement.right - right))
        size, doubt = abs(movement.value), movement.error
        for partial, part in zip(partials, parts, strict=True):
            size += abs(partial * part.value)
            doubt += abs(partial) * part.error
        unclear = movement.corner != any(part.corner for part in parts)
        if unclear or not doubt <= 0.01 * size or gap <= MEASURED * size + 16.0 * doubt:
            return ""
        # The nodes' gaps, each times the node's gradient, add up to the total error.
        if gap * self.size[self.graph.position[id(node)]] < 0.1 * _distance(self.row) / len(self.graph.nodes):
            return ""
        rate = f"it moves {movement.value:.6g} times as fast as `{self.input}`"
        if not any(part.value for part in parts):
            return f"{rate}, yet none of its operands moves: one is missing from its `_children`"
        distinct = len(parts) == 2 and not _about(*partials)
        swapped = distinct and _about(movement.value, combine(part.value for part in reversed(parts)))
        hint = " (the partials look swapped)" if swapped else ""
        return f"{rate}, but its operands' movements and {_backward_of(node)} make that {left:.6g}{hint}"

    def slopes(self, node: Any, operands: list[Any], partials: list[float]) -> list[Derivative]:
        """The partials that explain how the node moves under every input; none if several sets do."""
        unknown = [k for k, operand in enumerate(operands) if id(operand) in self.carriers]
        equations: list[list[float]] = []
        for index in sorted(range(len(self.experiment.numbers)), key=lambda index: index != self.index):
            parts = [self.movement(operand, index).value for operand in operands]
            known = sum(partials[k] * parts[k] for k in range(len(operands)) if k not in unknown)
            equation = [*(parts[k] for k in unknown), self.movement(node, index).value - known]
            if all(map(isfinite, equation)):
                equations.append(equation)
            if solution := _solve(equations, len(unknown)):
                found = [*partials]
                for k, slope in zip(unknown, solution, strict=True):
                    found[k] = slope
                return [Derivative(slope, MEASURED * abs(slope), slope, slope) for slope in found]
        return []

    def movement(self, node: Any, index: int) -> Derivative:
        """The derivative of the node's data by one input, measured."""
        k = self.graph.position[id(node)]
        return derivative(lambda number: self.sample(index, number)[k], self.experiment.numbers[index])

    def sample(self, index: int, number: float) -> list[float]:
        """Every node's data with input `index` at `number`; NaN where f takes another path."""
        if self.sampled != index:
            self.sampled, self.samples = index, {}
        if number not in self.samples:
            with self.run(index, number) as graph:
                same = graph.shape() == self.graph.shape()
                here = graph if same else self.graph
                self.samples[number] = [float(node.data) if same else nan for node in here.nodes]
                self.other_path |= not same
        return self.samples[number]

    # The walk over the nodes.

    def wrong_walk(self) -> str:
        heard: dict[int, list[float]] = {}
        with self.run() as graph, _unchanged(graph.nodes), suppress(AttributeError):  # no assigning to `_backward`
            for node, _ in graph.interior():
                if graph.made.number(node) > 0:
                    _listen(node, heard.setdefault(graph.position[id(node)], []))
            _backward_pass(graph.out, graph.leaves)
        for k in sorted(heard, reverse=True):
            right = len(heard[k]) == 1 and abs(heard[k][0] - self.complete[k]) <= self.tolerance * self.size[k]
            if not right and 0.0 < self.size[k] < inf:
                fault = self.walk_fault(self.graph.nodes[k], heard[k], self.complete[k])
                return f"every op's own rule is right, but the order of the backward pass is wrong: {fault}."
        return ""

    def complete_gradients(self) -> tuple[list[float], list[float]]:
        """What every node's gradient should come to, and the sum of the sizes of its contributions."""
        complete = [float(node is self.graph.out) for node in self.graph.nodes]
        size = complete[:]
        for node, operands in reversed(self.graph.interior()):
            k = self.graph.position[id(node)]
            for operand, partial in zip(operands, _push(node, operands), strict=True):
                complete[self.graph.position[id(operand)]] += complete[k] * partial
                size[self.graph.position[id(operand)]] += size[k] * abs(partial)
        return complete, size

    def walk_fault(self, node: Any, heard: list[float], complete: float) -> str:
        name = self.graph.describe(node)
        if not heard:
            return f"it never reaches {name}"
        if node is self.graph.out and not _close(heard[0], 1.0):
            return f"it starts with a gradient of {heard[0]:.6g} at the result, where it should be 1"
        if len(heard) > 1:
            return f"it calls the _backward of {name} {len(heard)} times, where once is right"
        return (
            f"{name} passed on a gradient of {heard[0]:.6g} before it was complete, which is {complete:.6g}; "
            "a node's turn comes after that of every node that uses it"
        )


def _push(node: Any, operands: Sequence[Any], grad: float = 1.0, held: float = 0.0) -> list[float]:
    """What the operands' gradients are after `node` passes on `grad`, if they held `held` before."""
    for operand in operands:
        operand.grad = held
    node.grad = grad
    node._backward()
    return [float(operand.grad) for operand in operands]


def _listen(node: Any, heard: list[float]) -> None:
    """Make `node` note in `heard` which gradient it has each time it passes it on."""
    backward = node._backward

    def listening() -> None:
        heard.append(float(node.grad))
        backward()

    node._backward = listening


def _local_slope(node: Any, operand: Any) -> Derivative:
    """The derivative of a table op by one operand, wherever that stands, measured."""

    def moved(x: float) -> float:
        return float(node._rule.forward(*[x if other is operand else other.data for other in node._operands]))

    return derivative(moved, operand.data)


def _solve(equations: list[list[float]], unknowns: int) -> list[float]:
    """The solution of equations [*coefficients, right-hand side], or nothing if they leave a choice."""
    rows = [row[:] for row in equations]
    for k in range(unknowns):
        rows[k:] = sorted(rows[k:], key=lambda row: -abs(row[k]))
        if len(rows) <= k or abs(rows[k][k]) <= 1e-3 * max(map(abs, equations[0]), default=0.0):
            return []
        for j, row in enumerate(rows):
            if j != k:
                rows[j] = [entry - row[k] / rows[k][k] * pivot for entry, pivot in zip(row, rows[k], strict=True)]
    return [rows[k][-1] / rows[k][k] for k in range(unknowns)]


# Words.


def _slope_text(slope: Derivative) -> str:
    return f"between {slope.left:.6g} and {slope.right:.6g}" if slope.corner else f"{slope.value:.6g}"


def _hint(right: list[float], given: list[float]) -> str:
    """A guess at the slip that gives `given` in place of `right`."""
    if len(right) == 2 and all(map(_about, right, reversed(given))):
        return " (the partials look swapped)"
    if not right or not all(given) or not all(right):
        return ""
    ratio = right[0] / given[0]
    if not all(_about(a, ratio * b) for a, b in zip(right, given, strict=True)):
        return ""
    if _about(ratio, -1.0):
        return " (the sign looks wrong)"
    for factor, habit in ((ratio, "is missing"), (1.0 / ratio, "is too many")):
        if abs(factor) > 1.5 and _about(factor, round(factor)):
            return f" (it looks as if a factor {round(factor)} {habit})"
    return ""


def _backward_of(node: Any) -> str:
    return f"its _backward{_definition(node._backward)}"


def _rule_of(node: Any, operand: Any) -> str:
    rule = getattr(node, "_rule", None)
    if rule is None or _definition(node._backward):
        return _backward_of(node)
    rank = [other is operand for other in node._operands].index(True)
    return f"its rule{_definition(rule.partials[rank])}"


def _definition(function: Any) -> str:
    """Where the user wrote `function`, if he did."""
    code = getattr(function, "__code__", None)
    return f" ({_short(code.co_filename)}:{code.co_firstlineno})" if code and not _is_ours(code) else ""


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(PACKAGE)


def _close(a: float, b: float) -> bool:
    """Equal but for rounding; what is not finite gets the benefit of the doubt."""
    return not isfinite(a - b) or abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def _about(a: float, b: float) -> bool:
    """Equal as far as a measured number can tell."""
    return abs(a - b) <= MEASURED * max(abs(a), abs(b))
