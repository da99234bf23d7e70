"""Predictions for many inputs at once: compiled if the function can be, otherwise one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.core.graph import number_of
from chainrule.core.value import Value


class Answers:
    """A function of a row, for many rows at a time: compiled when it is first called, if it can be."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self._traces: Any = None

    def __call__(self, inputs: Any) -> np.ndarray:
        """An array of numbers, or with one row for each list that the function returns."""
        compiled = self.compiled(inputs)
        if compiled is not None:
            return compiled
        return np.array([_numbers(self.function([float(n) for n in x])) for x in inputs], dtype=np.float64)

    def compiled(self, inputs: Any) -> np.ndarray | None:
        """The same from native code; None if the function cannot be compiled to one program."""
        try:
            from chainrule.compiler.run.arguments import Traces
            from chainrule.compiler.run.calls import results_of_each
            from chainrule.compiler.run.traced import Source

            self._traces = self._traces or Traces(Source(lambda x: self.function(list(x))))
            paths, examples = self._traces.on_examples([np.asarray(inputs, dtype=np.float64)])
            if paths.only is None:  # to compile each path would take longer
                return None
            results = results_of_each(paths, examples, None)
        except Exception:  # tracing may fail in many ways; a mistake in the function shows when it is called
            return None
        return np.stack(results, axis=1) if isinstance(results, (list, tuple)) else np.asarray(results)


def compiled_answers(function: Callable[[Any], Any], inputs: Any) -> np.ndarray | None:
    """`function(x)` for each row x of `inputs`, from native code; None if it cannot be compiled to one program.

    >>> compiled_answers(lambda x: x[0] * x[1], [[1.0, 2.0], [3.0, 4.0]])
    array([ 2., 12.])
    """
    return Answers(function).compiled(inputs)


def answers(function: Callable[[Any], Any], inputs: Any) -> np.ndarray:
    """`function(x)` for each row x of `inputs`: an array of numbers, or with one row for each list that it returns.

    >>> answers(lambda x: [x[0], x[0] if x[0] > 0 else 0.0], [[-1.0], [3.0]])
    array([[-1.,  0.],
           [ 3.,  3.]])
    """
    return Answers(function)(inputs)


def _numbers(result: Any) -> Any:
    """The bare numbers of a result; as a list if it is one."""
    if isinstance(result, (list, tuple)):
        return [_numbers(entry) for entry in result]
    return number_of(result) if isinstance(result, Value) or hasattr(result, "_apply") else result
