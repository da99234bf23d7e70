"""Watched runs of a function: its inputs moved, its nodes numbered in order of creation, its lines noted.

Gradient checking is built on them. They work for any class with `data`, `grad`, `_prev`, `_backward` and `backward`.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import isfinite
from types import FrameType
from typing import Any

from chainrule.core.code_lines import is_ours, quoted_line
from chainrule.core.graph import graph_below, is_value, number_of, operands_of, unchanged
from chainrule.core.structure import build, flatten, is_one_number, places
from chainrule.core.value import Value
from chainrule.ops import Op, as_float

CONTEXTLIB = contextmanager.__code__.co_filename


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
        plain = [number_of(item) if is_value(item) else item for item in self.given]
        self.numbers = list(map(as_float, plain, self.names))
        for name, number in zip(self.names, self.numbers, strict=True):
            if not isfinite(number):
                raise ValueError(f"`{name}` is {number}, where there is no derivative to measure; give a finite number")
        self.own = [item for item in self.given if is_value(item)]  # the caller's Values
        self.kind: type = type(self.own[0]) if self.own else Value

    @contextmanager
    def moved(self, index: int = 0, number: float | None = None) -> Iterator[list[Any]]:
        """The inputs as Values, with input `index` set to `number`; the caller's own Values are restored afterwards."""
        with unchanged(self.own):
            leaves = [x if is_value(x) else self.kind(plain) for x, plain in zip(self.given, self.numbers, strict=True)]
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
        """The derivative of each input from one backward pass."""
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
    """The leaves' gradients after `backward()`."""
    for leaf in leaves:
        leaf.grad = 0.0
    out.backward()
    return [float(leaf.grad) for leaf in leaves]


def _parameter_names(f: Callable[..., Any], count: int) -> list[str]:
    import inspect  # slow to load

    names: list[str] = list(f.parameters) if isinstance(f, Op) else []
    with suppress(TypeError, ValueError):  # some callables of C have no signature
        for parameter in inspect.signature(f).parameters.values() if not names else ():
            star = parameter.kind is parameter.VAR_POSITIONAL
            names += [f"{parameter.name}[{k}]" for k in range(count)] if star else [parameter.name]
    return names[:count] + [f"input[{k}]" for k in range(len(names), count)]


# Which node was made when, and by which line.


class Creations:
    """Numbers the Values that are made within its block: 1, 2, 3, ...

    Those of chainrule carry a serial number; of any other class, the constructor is wrapped in the meantime.
    """

    def __init__(self, kind: type) -> None:
        self.serial = hasattr(kind, "_serial")
        mark = "_serial" if self.serial else "__init__"
        self.owner: Any = [kind, *(base for base in kind.__mro__[:-1] if mark in vars(base))][-1]
        self.methods = {getattr(member, "__code__", None) for base in kind.__mro__ for member in vars(base).values()}
        self.hooked = False
        self.made: list[Any] = []
        self.lines: list[tuple[int, str, int]] = []  # Values made before this line of this file ran

    def __enter__(self) -> Creations:
        self.first = self.count()
        init = self.init = self.owner.__init__

        def recording(node: Any, *args: Any, **kwargs: Any) -> None:
            self.made.append(node)
            init(node, *args, **kwargs)

        if not self.serial:
            with suppress(TypeError):  # the constructor of a class written in C cannot be replaced
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
        """The number of `node`; 0 or less if it was made before the block."""
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
        code = frame.f_code
        return code not in self.methods and not is_ours(code) and code.co_filename != CONTEXTLIB

    def place(self, node: Any) -> str:
        """Where the user's code made `node`, as "demo.py:12 (`out = a * b`)"."""
        k = bisect_left(self.lines, self.number(node), key=lambda line: line[0])
        return quoted_line(*self.lines[k - 1][1:]) if k else ""


class Run:
    """The nodes of one run of f: the inputs, then nodes that were there before, then those it made, in order."""

    def __init__(self, experiment: Experiment, leaves: Sequence[Any], out: Any, made: Creations) -> None:
        self.out, self.leaves, self.made = out, leaves, made
        self.names = dict(zip(map(id, leaves), experiment.names, strict=True))
        below = {id(node): node for node in (*leaves, *graph_below(out))}
        others = [node for key, node in below.items() if key not in self.names]
        others.sort(key=lambda node: (max(0, made.number(node)), id(node)))
        self.nodes = [*{id(leaf): leaf for leaf in leaves}.values(), *others]
        self.position = {id(node): k for k, node in enumerate(self.nodes)}

    def operands(self, node: Any) -> list[Any]:
        """Each operand once: in order where the class keeps one, else the oldest first."""
        distinct = list({id(operand): operand for operand in operands_of(node)}.values())
        if hasattr(node, "_operands") or not isinstance(node._prev, set | frozenset):
            return distinct
        return sorted(distinct, key=lambda operand: self.position[id(operand)])

    def interior(self) -> list[tuple[Any, list[Any]]]:
        """The nodes that have operands, each with them; an input counts as a leaf, whatever it was made of."""
        return [(node, self.operands(node)) for node in self.nodes if id(node) not in self.names and operands_of(node)]

    def shape(self) -> list[tuple[str, list[int]]]:
        """Each node's op and its operands' positions: equal for two runs that did the same."""
        place = self.position
        return [(getattr(node, "_op", ""), [place[id(x)] for x in self.operands(node)]) for node in self.nodes]

    def carriers(self) -> set[int]:
        """The nodes through which gradient reaches an input."""
        found = set(self.names)
        for node, operands in self.interior():
            if not found.isdisjoint(map(id, operands)):
                found.add(id(node))
        return found

    def describe(self, node: Any) -> str:
        tag, label, place = getattr(node, "_op", ""), getattr(node, "label", ""), self.made.place(node)
        name = f"`{tag}`" if tag else f"node `{label}`" if label else "node"
        return f"the {name}" + (f" made at {place}" if place else "")

    def describe_operand(self, node: Any, operand: Any) -> str:
        operands = self.operands(node)
        rank = [other is operand for other in operands].index(True) + 1
        count = "its operand" if len(operands) == 1 else f"operand {rank}"
        name = self.names.get(id(operand)) or getattr(operand, "label", "")
        return f"{count} (`{name}`)" if name else count
