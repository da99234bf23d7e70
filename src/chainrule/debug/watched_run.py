"""Runs of a function, watched: its inputs moved, its nodes numbered in order of creation, its lines noted.

What gradient checking is built on. Works for any class with `data`, `grad`, `_prev`, `_backward` and `backward`.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import isfinite
from types import CodeType, FrameType
from typing import Any

from chainrule import ops
from chainrule.core.graph import number_of
from chainrule.core.structure import build, flatten, is_one_number, places
from chainrule.core.value import Value
from chainrule.ops import Op, as_float

CONTEXTLIB = contextmanager.__code__.co_filename
PACKAGE = os.path.dirname(os.path.abspath(ops.__file__)) + os.sep


def is_value(thing: Any) -> bool:
    """Whether it is a Value: chainrule's, or of a class like it."""
    if isinstance(thing, Value):  # to ask it whether it has data would be to read it
        return True
    return all(hasattr(thing, name) for name in ("data", "grad", "_prev", "_backward", "backward"))


class Experiment:
    """`f` and its inputs laid out flat, ready to be run again with one of them moved."""

    def __init__(self, f: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
        self.f = f
        names = _parameter_names(f, len(inputs))
        self.given: list[Any] = []
        self.structures = [flatten(item, self.given, lambda leaf: leaf) for item in inputs]
        if not self.given:
            raise ValueError("`inputs` holds no number; give at least one after `f`")
        written = [place for name, part in zip(names, self.structures, strict=True) for place in places(part, name)]
        self.names = [getattr(item, "label", "") or name for name, item in zip(written, self.given, strict=True)]
        self.numbers = [
            as_float(number_of(item) if is_value(item) else item, name)
            for name, item in zip(self.names, self.given, strict=True)
        ]
        for name, number in zip(self.names, self.numbers, strict=True):
            if not isfinite(number):
                raise ValueError(f"`{name}` is {number}, where there is no derivative to measure; give a finite number")
        self.own = [item for item in self.given if is_value(item)]  # the caller's Values
        self.kind: type = type(self.own[0]) if self.own else Value

    @contextmanager
    def moved(self, index: int = 0, number: float | None = None) -> Iterator[list[Any]]:
        """The inputs as Values, input `index` being `number`; the caller's own are put back afterwards."""
        with unchanged(self.own):
            pairs = zip(self.given, self.numbers, strict=True)
            leaves = [item if is_value(item) else self.kind(x) for item, x in pairs]
            if number is not None:
                leaves[index].data = number
            yield leaves

    def apply(self, leaves: Sequence[Any]) -> Any:
        supply = iter(leaves)
        out = self.f(*[build(structure, supply) for structure in self.structures])
        outputs: list[Any] = []
        if not is_one_number(flatten(out, outputs, lambda leaf: leaf)) or not is_value(outputs[0]):
            raise TypeError(f"`f` must return one Value, got {type(out).__name__}")
        return outputs[0]

    def result(self, index: int, number: float) -> float:
        with self.moved(index, number) as leaves:
            return float(number_of(self.apply(leaves)))

    def analytic(self) -> list[float]:
        """What one backward pass gives for each input."""
        with self.moved() as leaves:
            out = self.apply(leaves)
            first, again = float(number_of(out)), self.result(0, self.numbers[0])
            if not isfinite(first):
                raise ValueError(f"`f` gives {first} at these inputs; check it where its result is finite")
            if first != again:
                raise ValueError(f"`f` gives {first}, then {again} for the same inputs; seed its random numbers inside")
            with unchanged([*graph_below(out), *leaves]):
                return backward_pass(out, leaves)


def backward_pass(out: Any, leaves: Sequence[Any]) -> list[float]:
    """The gradients that `backward()` gives the leaves."""
    for leaf in leaves:
        leaf.grad = 0.0
    out.backward()
    return [float(leaf.grad) for leaf in leaves]


@contextmanager
def unchanged(values: Iterable[Any]) -> Iterator[None]:
    """Puts data and gradients back at the end."""
    before = [(value, number_of(value), value.grad) for value in values]
    try:
        yield
    finally:
        for value, data, grad in before:
            value.data, value.grad = data, grad


def _parameter_names(f: Callable[..., Any], count: int) -> list[str]:
    import inspect  # slow to load

    names: list[str] = list(f.parameters) if isinstance(f, Op) else []
    with suppress(TypeError, ValueError):  # some callables of C have no signature
        for parameter in inspect.signature(f).parameters.values() if not names else ():
            star = parameter.kind is parameter.VAR_POSITIONAL
            names += [f"{parameter.name}[{k}]" for k in range(count)] if star else [parameter.name]
    return names[:count] + [f"input[{k}]" for k in range(len(names), count)]


def operands_of(node: Any) -> tuple[Any, ...]:
    """In order where the class keeps one."""
    return tuple(node._operands if hasattr(node, "_operands") else node._prev)


def graph_below(out: Any) -> list[Any]:
    """The node and every one that it was made of, in no particular order."""
    found, pending = {id(out): out}, [out]
    while pending:
        for operand in operands_of(pending.pop()):
            if id(operand) not in found:
                found[id(operand)] = operand
                pending.append(operand)
    return list(found.values())


# Which node was made when, and by which line.


class Creations:
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

    def __enter__(self) -> Creations:
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
                if place.f_code.co_filename == __file__:  # f itself returned
                    return self._step
                place = place.f_back
        if place:
            self.lines.append((self.count() - self.first, place.f_code.co_filename, place.f_lineno))
        return self._step

    def _is_users(self, frame: FrameType) -> bool:
        """Neither chainrule's nor a method of the Value class: `a * b` is of interest, not `__mul__`."""
        helper = frame.f_code.co_filename == CONTEXTLIB  # on our way in and out
        return frame.f_code not in self.methods and not is_ours(frame.f_code) and not helper

    def place(self, node: Any) -> str:
        """Where the user's code made `node`, as "demo.py:12 (`out = a * b`)"."""
        k = bisect_left(self.lines, self.number(node), key=lambda line: line[0])
        if k == 0:
            return ""
        _, file, line = self.lines[k - 1]
        return quoted_line(file, line)


def quoted_line(file: str, line: int) -> str:
    """A line of code for people, as "demo.py:12 (`out = a * b`)"."""
    import linecache  # slow to load

    text = linecache.getline(file, line).strip()
    text = text if len(text) <= 60 else text[:57] + "..."
    return f"{short_path(file)}:{line}" + (f" (`{text}`)" if text else "")


def short_path(file: str) -> str:
    """Relative to the current folder where it lies below that."""
    return file.removeprefix(os.getcwd() + os.sep)


class Run:
    """The nodes of one run of f: the inputs, then nodes that were there before, then those it made, in order."""

    def __init__(self, experiment: Experiment, leaves: Sequence[Any], out: Any, made: Creations) -> None:
        self.out, self.leaves, self.made = out, leaves, made
        self.names = dict(zip(map(id, leaves), experiment.names, strict=True))
        below = {id(node): node for node in (*leaves, *graph_below(out))}
        others = [node for key, node in below.items() if key not in self.names]
        before = sorted((node for node in others if made.number(node) <= 0), key=id)
        since = sorted((node for node in others if made.number(node) > 0), key=made.number)
        self.nodes = [*{id(leaf): leaf for leaf in leaves}.values(), *before, *since]
        self.position = {id(node): k for k, node in enumerate(self.nodes)}

    def operands(self, node: Any) -> list[Any]:
        """Each operand once: in order where the class keeps one, else the oldest first."""
        distinct = list({id(operand): operand for operand in operands_of(node)}.values())
        if hasattr(node, "_operands") or not isinstance(node._prev, set | frozenset):
            return distinct
        return sorted(distinct, key=lambda operand: self.position[id(operand)])

    def interior(self) -> list[tuple[Any, list[Any]]]:
        """The nodes with operands, and these; an input counts as a leaf, whatever it was made of."""
        return [(node, self.operands(node)) for node in self.nodes if id(node) not in self.names and operands_of(node)]

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


def is_ours(code: CodeType) -> bool:
    """Whether the code is chainrule's own."""
    return code.co_filename.startswith(PACKAGE)
