"""Rematerialization: the way back through time computes cheap numbers again, instead of reading what was kept.

The derivative of a loop in time reads what each time has computed, so that all of it is kept, for all times. But most
of it follows in a few multiplications from the state that one time hands to the next. If the way back computes it again
from that state, only the state is kept; the rest is needed at one time alone (see `contract`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.program import (
    Access,
    Apply,
    Array,
    ArrayProgram,
    Expression,
    Repeat,
    Shape,
    Statement,
    counterparts,
    is_injective,
    span,
)

MOST_WORK = 8  # ops for an element that is computed again
CHEAP = {ops.TABLE[name] for name in ("add", "sub", "mul", "neg", "div", "abs", "relu", "where", "larger", "finite")}
CHEAP |= {ops.TABLE[name] for name in ("lt", "le", "gt", "ge", "eq", "ne")}

Place = tuple[int, Statement]  # a statement, and the step that it is in


def rematerialized(program: ArrayProgram) -> ArrayProgram:
    """The program, whose later loops compute again what an earlier one of as many times has computed cheaply."""
    known = _Known(program)
    steps: list[Statement | Repeat] = []
    loops: dict[int, list[tuple[int, Repeat]]] = defaultdict(list)  # so far, by how many times they have
    for later, step in enumerate(program.steps):
        if isinstance(step, Repeat) and step.count > 1:
            changed = step
            for earlier, other in loops[step.count]:
                changed = known.again(earlier, other, later, changed)
            loops[step.count].append((later, step))
            step = changed
        steps.append(step)
    return program.with_steps(steps)


class _Known:
    """Which statements write and read the arrays of a program."""

    def __init__(self, program: ArrayProgram) -> None:
        self.program = program
        self.writers: dict[Array, list[Place]] = defaultdict(list)
        self.readers: dict[Array, list[tuple[int, Access, Shape]]] = defaultdict(list)
        for k, step in enumerate(program.steps):
            for statement in step.body:
                (target, _), *reads = statement.accesses_in_loops()
                self.writers[target.array].append((k, statement))
                for access, loops in reads:
                    self.readers[access.array].append((k, access, loops))
        self._set_once: dict[Array, bool] = {}

    def again(self, earlier: int, source: Repeat, later: int, step: Repeat) -> Repeat:
        """`step`, which computes again what it reads of `source`, where that is cheap."""
        cheap = {s.target.array: s for s in source.body if self._is_again(s, earlier, later)}
        needed = _read_of(cheap, step.body) if cheap else {}
        if not needed:
            return step
        copies = counterparts(needed, "r", "value", self.program.statements)

        def change(statement: Statement) -> Statement:
            around = {id(access): loops for access, loops in statement.accesses_in_loops()}

            def copied(access: Access) -> Access:
                made = cheap[access.array] if access.array in copies else None
                if made is None or not is_same_row(access, around[id(access)], made):
                    return access
                return Access(copies[access.array], access.base, access.strides, access.table, access.repeat)

            return statement.map(copied)

        first = [change(statement) for statement in source.body if statement.target.array in copies]
        return step.with_body([*first, *map(change, step.body)])

    def _is_again(self, statement: Statement, earlier: int, later: int) -> bool:
        """Whether a statement of the step `earlier` gives the same in the step `later`, which alone needs it."""
        array = statement.target.array
        alone = len(self.writers[array]) == 1 and array.kind == "value" and array not in self.program.results
        if not alone or not _is_cheap(statement) or not _has_rows(statement):
            return False
        outside = [reader for reader in self.readers[array] if reader[0] != earlier]
        if not all(k == later and is_same_row(access, loops, statement) for k, access, loops in outside):
            return False
        return all(self._is_as_it_was(access.array, earlier, later) for access in statement.accesses())

    def _is_as_it_was(self, array: Array, earlier: int, later: int) -> bool:
        """Whether an array has, at the step `later`, whatever the step `earlier` has read of it."""
        steps = {k for k, _ in self.writers[array]}
        if any(earlier < k <= later for k in steps):
            return False
        return earlier not in steps or self._is_set_once(array)

    def _is_set_once(self, array: Array) -> bool:
        """Whether no element is written twice."""
        if array not in self._set_once:
            count = np.zeros(array.size, dtype=np.int64)
            for k, statement in self.writers[array]:
                times = self.program.steps[k].count if statement.target.repeat else 1
                for time in range(times):
                    np.add.at(count, statement.target.positions(statement.loops, time).reshape(-1), 1)
                if statement.accumulate or (not statement.target.repeat and self.program.steps[k].count > 1):
                    count += 1
            self._set_once[array] = bool((count <= 1).all())
        return self._set_once[array]


def _read_of(made: Mapping[Array, Statement], statements: Sequence[Statement]) -> dict[Array, None]:
    """The arrays that statements need of those that others have `made` at the same time, directly or through them."""
    found: dict[Array, None] = {}
    pending = list(statements)
    while pending:
        _, *reads = pending.pop().accesses_in_loops()
        for access, loops in reads:
            source = made.get(access.array)
            if source and access.array not in found and is_same_row(access, loops, source):
                found[access.array] = None
                pending.append(source)
    return found


def is_same_row(access: Access, loops: Shape, made: Statement) -> bool:
    """Whether an access reads, at each time, some of what a statement writes at that time."""
    low, high = span(access, loops)
    first, last = span(made.target, made.loops)
    return access.repeat == made.target.repeat and first <= low and high <= last


def _has_rows(statement: Statement) -> bool:
    """Whether a statement sets other elements at each time, each of them once."""
    first, last = span(statement.target, statement.loops)
    apart = last - first <= abs(statement.target.repeat)
    return apart and not statement.accumulate and statement.target.table is None and is_injective(statement)


def is_long(statement: Statement) -> bool:
    """Whether it computes anything beyond sums, products and comparisons, such as an exponential."""
    return any(not CHEAP.issuperset(_ops(term.expression)) for term in statement.terms)


def _is_cheap(statement: Statement) -> bool:
    """Whether an element takes so little work that to compute it again is better than to keep it."""
    work = 0
    for term in statement.terms:
        ops_of_term = list(_ops(term.expression))
        work += prod(term.loops) * (len(ops_of_term) + 1)
        if not CHEAP.issuperset(ops_of_term):
            return False
    return work <= MOST_WORK


def _ops(expression: Expression) -> list[ops.Op]:
    if not isinstance(expression, Apply):
        return []
    return [expression.op, *(op for operand in expression.operands for op in _ops(operand))]
