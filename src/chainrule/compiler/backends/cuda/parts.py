"""The parts of a program for many examples: what comes before them, what is done for each, and what follows their sums.

A program is written for as many examples as a block of threads takes at a time, and a block does its middle part again
and again. Arrays that have no numbers of their own for each example, but are computed from such, are *sums* over all
examples: the loss, and the gradients of parameters. Nothing that is done for an example reads a sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.backends.cuda.rows import in_rows
from chainrule.compiler.backends.llvm.fusion import without_zeros
from chainrule.compiler.passes.program import Array, ArrayProgram, Number, Repeat, Statement, changed

Step = Statement | Repeat


@dataclass(frozen=True)
class Parts:
    """A program in three parts. `sums` start at 0, and the statements of `after` may add to them."""

    program: ArrayProgram
    before: list[Step]
    each: list[Step]
    after: list[Step]
    sums: list[Array]


def split(program: ArrayProgram) -> Parts:
    """The parts of a program; all of it comes before if it is for no examples."""
    program = in_rows(without_zeros(program))
    statements = program.statements
    sums = list(dict.fromkeys(s.target.array for s in statements if is_sum(s)))
    parts = Parts(program, [], [], [], sums)
    late = {*sums, program.gradient} if sums else set()
    touched = _Touched()  # by what does not come before
    for step in program.steps:
        written = {statement.target.array for statement in step.body}
        read = {access.array for statement in step.body for access in statement.accesses()}
        if any(statement.target.array.examples or is_sum(statement) for statement in step.body):
            _check(step, sums)
            parts.each.extend(_added([step], sums))
        elif sums and (late & (written | read) or written & {*program.leaves.values()}):  # leaves, if it is an update
            parts.after.extend(_added([step], sums))
            late |= written
        else:
            if touched.are_written_by(step):
                raise AssertionError(f"{step} cannot be done before what comes first, and touches the same elements")
            parts.before.append(step)
            continue
        touched.add(step)
    return parts


class _Touched:
    """Elements that steps read or write, of arrays that are the same for all examples."""

    def __init__(self) -> None:
        self.elements: dict[Array, np.ndarray] = {}  # array -> for each of its elements, whether it is one

    def add(self, step: Step) -> None:
        for array, places in _places(step, True):
            self.elements.setdefault(array, np.zeros(array.size, dtype=bool))[places] = True

    def are_written_by(self, step: Step) -> bool:
        return any(self.elements[array][at].any() for array, at in _places(step, False) if array in self.elements)


def _places(step: Step, reads: bool) -> Iterator[tuple[Array, Any]]:
    """The places that a step writes, or also those that it `reads`, in arrays that are the same for all examples."""
    for statement in step.body:
        for access, loops in islice(statement.accesses_in_loops(), None if reads else 1):
            if not access.array.examples:
                moving = tuple([n if stride else 1 for stride, n in zip(access.strides, loops, strict=True)])
                yield access.array, slice(None) if access.repeat else access.positions(moving).ravel()


def is_sum(statement: Statement) -> bool:
    """Whether a statement adds up numbers of all examples."""
    return not statement.target.array.examples and any(access.array.examples for access in statement.accesses())


def is_kept(statement: Statement) -> bool:
    """Whether a sum over all examples is of the same elements at all times, and so can be kept in registers."""
    return is_sum(statement) and not statement.target.repeat


def _check(step: Step, sums: list[Array]) -> None:
    for statement in step.body:
        if is_sum(statement) and statement.join is not ops.add:
            raise AssertionError(f"{statement} is no sum over examples")
        if any(access.array in sums for access in statement.accesses()):
            raise AssertionError(f"{statement} needs a sum over all examples")


def _added(steps: list[Step], sums: list[Array]) -> list[Step]:
    """The steps, of which those that set sums add to them, since these start at 0; without what sets them to 0."""

    def change(statement: Statement) -> Statement:
        if statement.target.array not in sums:
            return statement
        return Statement(statement.target, statement.loops, statement.terms, True, statement.join)

    return [step for step in changed(steps, change) if not all(_adds_nothing(s, sums) for s in step.body)]


def _adds_nothing(statement: Statement, sums: list[Array]) -> bool:
    zeros = all(isinstance(term.expression, Number) and term.expression.value == 0.0 for term in statement.terms)
    return statement.target.array in sums and zeros
