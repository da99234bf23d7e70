"""Expressions in CasADi, generated as C: the loop and the update are those of C by hand."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import casadi

from peers import c_by_hand
from peers.casadi_functions import function_of, loss_and_gradient
from workloads.problems import Problem

LOOPS = {"training": [loss_and_gradient, c_by_hand.DESCENT], "gradient": [loss_and_gradient]}
DRIVER = Path(__file__).with_name("casadi_driver.c")


class Training(c_by_hand.Training):
    """All steps in one call."""

    def __init__(self, problem: Problem, solution: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            super().__init__(problem, DRIVER, *_generated(problem, solution, folder))


class Gradient(c_by_hand.Gradient):
    """The same at a rate of 0."""

    def __init__(self, problem: Problem, solution: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            super().__init__(problem, DRIVER, *_generated(problem, solution, folder))


def _generated(problem: Problem, solution: Any, folder: str) -> list[str]:
    """Writes the code; what to tell gcc about it."""
    function = function_of(problem, solution)
    generator = casadi.CodeGenerator("generated.c")
    generator.add(function)
    generator.generate(f"{folder}/")
    sizes = {"ARGUMENTS": function.sz_arg(), "RESULTS": function.sz_res()}
    sizes |= {"INTEGERS": 1 + function.sz_iw(), "DOUBLES": 1 + function.sz_w()}
    return [f"-I{folder}", *(f"-D{name}={size}" for name, size in sizes.items())]
