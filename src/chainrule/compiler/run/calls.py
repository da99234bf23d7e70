"""One call: the program of one example, on numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.compiler.run.traced import Traced


def value_and_grad(traced: Traced, numbers: list[float]) -> tuple[float, np.ndarray]:
    """The result, which is one number, and its gradient with respect to `wrt`."""
    code, machine = _run(traced, numbers, True)
    value, gradient = float(machine.output[0]), traced.order(machine.gradient)
    code.give_back(machine)
    return value, gradient


def results(traced: Traced, numbers: list[float]) -> list[float]:
    """All results."""
    code, machine = _run(traced, numbers, False)
    found: list[float] = machine.output.tolist()
    code.give_back(machine)
    return found


def _run(traced: Traced, numbers: list[float], total: bool) -> tuple[Any, Any]:
    """Code for one example and one of its machines, after a run on these numbers; the caller gives it back."""
    used = np.array(numbers, dtype=np.float64)[traced.used]
    code: Any = traced.code(None, total, lambda: used)
    machine = code.take()
    traced.load(machine)
    machine.load("input", used)
    machine.run()
    return code, machine
