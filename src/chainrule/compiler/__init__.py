"""The compiler: finds the tensors inside scalar code, and runs them.

    Value ──trace──► Graph ──lift──► ArrayProgram ──differentiate──► ──lay_out──► ──LLVM──► numbers

Each stage takes one thing and returns a new one, prints readably and can verify itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

import numpy as np

from chainrule._value import Value
from chainrule.compiler.differentiate import differentiate
from chainrule.compiler.graph import trace
from chainrule.compiler.interpret import Interpreted
from chainrule.compiler.layout import lay_out
from chainrule.compiler.lift import lift

__all__ = ["Program", "compile"]

BACKENDS = ("llvm", "interpreter")


class Program:
    """A compiled graph. Calling it computes what the graph computes, from the leaves' present data.

    >>> a, b = Value(2.0), Value(3.0)
    >>> program = compile(a * b + a)
    >>> a.data = 5.0
    >>> program()
    20.0
    >>> a.grad, b.grad
    (4.0, 5.0)
    """

    def __init__(self, target: Value, wrt: Iterable[Value] | None, backend: str) -> None:
        clock = _Clock()
        graph = clock("trace", lambda: trace(target, wrt))
        lifted = clock("lift", lambda: lift(graph))
        self.wrt = [graph.nodes[i] for i in graph.parameters] if wrt is None else list(wrt)
        whole = clock("differentiate", lambda: differentiate(lifted)) if self.wrt else lifted
        self.arrays, places = clock("lay out", lambda: lay_out(whole))
        self.found = whole
        self.target = target
        if backend == "llvm":
            from chainrule.compiler.llvm import Native

            self.machine: Any = clock("llvm", lambda: Native(self.arrays))
        else:
            self.machine = Interpreted(self.arrays)
        for array, view in self.machine.views.items():
            if array.numbers is not None:
                view[:] = array.numbers
        self._leaves = []
        for kind, array in self.arrays.leaves.items():
            nodes = [graph.nodes[i] for i in graph.leaves(kind)]
            self._leaves.append((nodes, self.machine.views[array], places.get(array, slice(0, len(nodes)))))
        parameters = [graph.nodes[i] for i in graph.parameters]
        position = {node: i for i, node in enumerate(parameters)}
        self._order = [position.get(node, -1) for node in self.wrt]
        self.stats = {
            "scalar nodes": len(graph),
            "array statements": len(whole.statements),
            "not affine": sum(not statement.affine for statement in whole.statements),
            "bytes": self.machine.size * 8,
            "seconds": clock.seconds,
        }

    def __call__(self) -> float:
        """Forward and backward: sets the target's data, adds to the gradients, returns the result."""
        result, gradient = self.value_and_grad()
        self.target.data = result
        for value, grad in zip(self.wrt, gradient.tolist(), strict=True):
            value.grad += grad
        return result

    def value_and_grad(self) -> tuple[float, np.ndarray]:
        """The result and its gradient by `wrt`, from the leaves' present data; no Value is changed.

        >>> x = Value(3.0)
        >>> compile(x * x).value_and_grad()
        (9.0, array([6.]))
        """
        for nodes, view, where in self._leaves:
            view[where] = [node.data for node in nodes]
        self.machine.run()
        result = float(self.machine.views[self.arrays.output][0])
        if self.arrays.gradient is None:
            return result, np.zeros(len(self.wrt))
        gradient = self.machine.views[self.arrays.gradient]
        return result, np.array([gradient[i] if i >= 0 else 0.0 for i in self._order])

    def describe(self) -> str:
        """The program that was found, a statement a line.

        >>> x = [Value(float(k)) for k in range(100)]
        >>> print(compile(sum(v * v for v in x), wrt=()).describe())
        v0[0] = 0 + Σi<100 input[i]·input[i]
        """
        return str(self.found)

    def __repr__(self) -> str:
        scalars, arrays = self.stats["scalar nodes"], self.stats["array statements"]
        return f"<Program: {scalars:,} scalar nodes in {arrays} array statements>"


def compile(target: Value, wrt: Iterable[Value] | None = None, *, backend: str = "llvm") -> Program:
    """A program that computes the graph below `target`, and its gradient by `wrt` (default: all leaves).

    The scalar graph that ordinary code recorded is searched for loops over arrays, and those are
    compiled. Leaves are read anew at every call; plain numbers and branches are as they were recorded.

    >>> x, w = Value(2.0), Value(0.5)
    >>> program = compile((w * x).tanh(), wrt=[w])
    >>> f"{program():.4f}"
    '0.7616'
    """
    if not isinstance(target, Value):
        raise TypeError(f"`target` must be a Value, got {type(target).__name__}: compile the result of your code")
    if backend not in BACKENDS:
        raise ValueError(f"`backend` must be one of {', '.join(BACKENDS)}; got {backend!r}")
    return Program(target, None if wrt is None else list(wrt), backend)


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str, work: Callable[[], Any]) -> Any:
        started = perf_counter()
        result = work()
        self.seconds[stage] = perf_counter() - started
        return result
