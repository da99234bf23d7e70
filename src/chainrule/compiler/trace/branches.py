"""Branches: which way a function goes while it is traced.

A trace is made for the numbers of one call. When Python asks whether a condition is true, it is computed from these
numbers, by the ops' own rules, as eager code would. What was asked and what the answer was is noted: the trace is that
of this path, and valid for whatever numbers give the same answers.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from chainrule.core.code_lines import full_place
from chainrule.core.deferred import Part
from chainrule.core.graph import number_of
from chainrule.ops import as_float

Place = tuple[str, int]  # a file, and a line in it
Flat = Callable[[Any], Iterable[tuple[Any, tuple[int, ...], Any]]]


class Branch(NamedTuple):
    """A condition that was asked for, by the user's line at `place`, and the answer."""

    condition: Any
    answer: bool
    place: Place | None


class UnknownNumberError(LookupError):
    """A condition depends on a number that is not among those at hand."""


class Branches:
    """The conditions that a trace was asked for, in order. `numbers` has those of the arguments, by their identity.

    `flat` returns the rules, operands and nodes below a derivative that was put off, with the nodes of its sweep.
    """

    def __init__(self, numbers: Mapping[int, float], flat: Flat) -> None:
        self._flat = flat
        self.met: list[Branch] = []
        self._numbers = dict(numbers)  # by identity; whatever is below a condition lives as long as that
        self._answers: dict[int, bool] = {}

    def is_true(self, condition: Any, place: Place | None) -> bool:
        """Whether the condition, a node of the trace, is true for the numbers at hand."""
        answer = self._answers.get(id(condition))
        if answer is None:
            answer = self._answers[id(condition)] = self._number(condition) != 0.0
            self.met.append(Branch(condition, answer, place))
        return answer

    def _number(self, wanted: Any) -> float:
        """The number of a node, computed from those of the leaves below it."""
        known, pending = self._numbers, [wanted]
        while pending:
            node = pending[-1]
            if isinstance(node._rule, Part):
                known[id(node)] = self._derivative(node)
            unknown = [k for k in node._operands if id(k) not in known] if id(node) not in known else []
            if unknown:
                pending += unknown
                continue
            pending.pop()
            if id(node) not in known:
                known[id(node)] = self._computed(node)
        return known[id(wanted)]

    def _derivative(self, part: Any) -> float:
        """The number of a derivative that was put off."""
        found: list[float] = []
        for rule, operands, node in self._flat(part):
            if isinstance(rule, str):
                found.append(self._numbers[id(node)] if id(node) in self._numbers else self._computed(node))
            else:
                found.append(as_float(rule.forward(*[found[operand] for operand in operands]), "the op's result"))
        return found[-1]

    def _computed(self, node: Any) -> float:
        if node._rule is not None and node._operands:
            found = node._rule.forward(*[self._numbers[id(operand)] for operand in node._operands])
            return as_float(found, "the op's result")
        if hasattr(node, "place"):
            raise UnknownNumberError
        return float(number_of(node))


def line_at(place: Place | None) -> str:
    """The user's line, for messages.

    >>> line_at(("no such file", 3))
    'no such file:3:'
    """
    if place is None:
        return "the traced function"
    code = linecache.getline(*place).strip()
    return f"{full_place(*place)}: `{code}`" if code else f"{full_place(*place)}:"
