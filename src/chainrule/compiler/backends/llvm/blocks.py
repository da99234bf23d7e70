"""Blocks: runs of statements on a few numbers, which are written out in registers as small loops in time are.

A block is a loop of one turn (see `carried`). It may be anywhere in a program, or in the body of a loop in time whose
other statements are work for vectors. Each of its statements alone would be a function that reads from memory what the
last one has just written there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.backends.llvm.kernels import KERNELS
from chainrule.compiler.passes.differentiate import is_zero
from chainrule.compiler.passes.program import Array, Repeat, Statement

MOST = 640  # elements that a block may compute, with the terms of its sums
LONGEST = 1400  # operations of a block: LLVM's work on straight-line code is superlinear
EACH = 12  # of them in any statement, unless it scatters: more are work for vectors
OPERATIONS = 40  # of any statement, likewise
EVERY = MOST * LONGEST  # operations, more than any statement of a block has
SCATTERED = 256  # of them in one that does
SLOW = {"div", "sqrt", *KERNELS}  # primitives that vectors compute much faster
ALONE = 4  # elements of which a block computes those


def in_blocks(steps: Sequence[Statement | Repeat], operated: int = OPERATIONS) -> list[Statement | Repeat]:
    """The steps with runs of statements on few elements as blocks. Zeros that come between them come before.

    Statements of more than `operated` operations are in none. In the body of a loop in time, where numbers wait for
    each other, they may have any number.
    """
    found: list[Statement | Repeat] = []
    run = _Run()
    for step in steps:
        if isinstance(step, Statement) and run.can_wait_for(step):
            found.append(step)
        elif isinstance(step, Statement) and _is_for_block(step, operated):
            if not run.has_room_for(step):
                found += run.as_steps()
                run = _Run()
            run.add(step)
        else:
            found += [*run.as_steps(), step]
            run = _Run()
    return [*found, *run.as_steps()]


class _Run:
    """Statements that follow one another and are for a block, with how much they compute and the arrays they touch."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.work, self.operations, self.touched = 0, 0, set[Array]()

    def can_wait_for(self, step: Statement) -> bool:
        """Whether a statement writes many zeros that the run neither reads nor writes."""
        return is_zero(step) and work(step) > EACH and step.target.array not in self.touched

    def has_room_for(self, step: Statement) -> bool:
        return self.work + work(step) <= MOST and self.operations + operations(step) <= LONGEST

    def add(self, step: Statement) -> None:
        self.statements.append(step)
        self.work += work(step)
        self.operations += operations(step)
        self.touched |= {access.array for access in (step.target, *step.accesses())}

    def as_steps(self) -> list[Statement | Repeat]:
        """A block; or the statements, if they are none."""
        return [Repeat(1, self.statements)] if _is_block(self.statements) else [*self.statements]


def _is_for_block(statement: Statement, operated: int) -> bool:
    """Whether a statement is on few elements, or scatters."""
    elements = prod(statement.loops)
    if work(statement) > EACH:
        return _scatters(statement)
    if operations(statement) > operated:
        return False
    return elements <= ALONE or primitives(statement).isdisjoint(SLOW)


def _scatters(statement: Statement) -> bool:
    """Whether it adds to each of some elements twice or more often, on average.

    That is no work for vectors, and in memory each addition waits for the last one to have been stored.
    """
    elements = prod(statement.loops)
    if not statement.accumulate or work(statement) > min(elements, SCATTERED):
        return False
    return 2 * len(np.unique(statement.target.positions(statement.loops))) <= elements


def _is_block(run: Sequence[Statement]) -> bool:
    """Whether statements that are each for a block are one: there are two or more, or one that scatters."""
    return (len(run) > 1 or any(work(statement) > EACH for statement in run)) and moves_alike(run)


def work(statement: Statement) -> int:
    """How many elements a statement computes, counting the terms of its sums."""
    return prod(statement.loops) * sum(prod(term.loops) for term in statement.terms)


def operations(statement: Statement) -> int:
    """How many operations a statement comes to: the primitives of each element, and its terms."""
    total, anything = 0, _Anything()
    for term in statement.terms:
        before = anything.applied
        term.expression.evaluate(lambda access: anything, anything._apply)
        total += prod(term.loops) * (1 + anything.applied - before)
    return prod(statement.loops) * total


def moves_alike(body: Sequence[Statement]) -> bool:
    """Whether each array that is written moves by one distance per time."""
    moves: dict[Array, set[int]] = defaultdict(set)
    for statement in body:
        for access in (statement.target, *statement.accesses()):
            moves[access.array].add(access.repeat)
    return all(len(moves[statement.target.array]) == 1 for statement in body)


class _Anything(ops.Carrier):
    """Stands for any number, and notes which primitives the rules of ops apply to it, and how often."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.applied = 0

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        if not op.c:
            return op.forward(*operands)
        self.names.add(op.name)
        self.applied += 1
        return self


def primitives(statement: Statement) -> set[str]:
    """The primitives of the op table that a statement comes to."""
    anything = _Anything()
    for term in statement.terms:
        term.expression.evaluate(lambda access: anything, anything._apply)
    return anything.names
