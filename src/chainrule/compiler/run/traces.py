"""From arguments to traces: a function is traced once for each structure of arguments, on one example of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from chainrule.compiler.run.examples import Examples, rows_of
from chainrule.compiler.run.source import Source
from chainrule.compiler.run.traced import Traced
from chainrule.compiler.run.turns import compiling
from chainrule.compiler.trace.symbols import refuse_numbers
from chainrule.core.structure import Structure, flatten
from chainrule.core.value import Value
from chainrule.ops import as_float


class Traces:
    """The traces of a function, by the structure of the arguments."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.by_structure: dict[Structure, Traced] = {}

    def on_numbers(self, inputs: Sequence[Any]) -> tuple[Traced, list[float]]:
        """The trace for these arguments, and the numbers in them."""
        numbers: list[float] = []
        structure = tuple([flatten(given, numbers, partial(number, k), True) for k, given in enumerate(inputs)])
        traced = self.by_structure.get(structure) or self._trace(structure, len(numbers))
        if traced.classes:
            traced.check_classes(lambda place: np.array(numbers[place : place + 1]))
        return traced, numbers

    def on_examples(self, arrays: Sequence[Any], names: Sequence[str] = ()) -> tuple[Traced, Examples]:
        """The trace for one example of these arguments, which have a leading axis, and all of their examples."""
        refuse_numbers("calls a batch of a compiled function")
        if not arrays:
            raise ValueError("`arrays` is empty: a batch needs at least one argument with a leading axis of examples")
        called = names or [f"argument {k}" for k in range(len(arrays))]
        parts = [rows_of(array, name) for array, name in zip(arrays, called, strict=True)]
        matrices = [rows for _, rows in parts]
        lengths = [len(rows) for rows in matrices]
        if len(set(lengths)) != 1:
            raise ValueError(f"the arguments of a batch must have as many examples each, got {lengths}")
        if not lengths[0]:
            raise ValueError("the batch is empty; give at least one example")
        structure = tuple(structure for structure, _ in parts)
        traced = self.by_structure.get(structure) or self._trace(structure, sum(rows.shape[1] for rows in matrices))
        examples = Examples(matrices, traced)
        traced.check_classes(examples.column)
        return traced, examples

    def _trace(self, structure: Structure, count: int) -> Traced:
        with compiling(self.source):
            if structure not in self.by_structure:
                self.by_structure[structure] = Traced(self.source, structure, count)
            return self.by_structure[structure]


def number(k: int, given: Any) -> float:
    """A number in argument `k`."""
    if isinstance(given, Value):
        raise TypeError(
            f"`argument {k}` must be a real number, got a Value, to which a compiled function passes no gradient: "
            "give its .data, or compile what differentiates, as in compile(grad(f))"
        )
    return as_float(given, f"argument {k}")
