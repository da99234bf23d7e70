"""Fusion: neighbouring statements that go through the same loops become one pass over memory.

A later one takes an element from the register in which an earlier one left it, and an array that nothing else reads is
never stored. An array that is set to zero only to be added to starts with its first summand instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from chainrule.compiler.backends.llvm.lanes import choose_lanes, side_by_side
from chainrule.compiler.passes.differentiate import is_zero
from chainrule.compiler.passes.layout import split_loop
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Repeat, Shape, Statement, is_injective

Group = tuple[Statement, ...]

MOST = 32  # statements per group: finding one takes time quadratic in its length


@overload
def groups(steps: Sequence[Statement], columns: bool = ...) -> list[Group]: ...
@overload
def groups(steps: Sequence[Statement | Repeat], columns: bool = ...) -> list[Group | Repeat]: ...
def groups(steps: Sequence[Statement | Repeat], columns: bool = True) -> Any:
    """The statements in groups, in order. A Repeat stays as it is.

    Unless there are no `columns`, statements also go along with a sum whose lanes are along its reduction.
    """
    found: list[Group | Repeat] = []
    for step in steps:
        if isinstance(step, Repeat):
            found.append(step)
        elif found and (more := _joined(found[-1], step, columns)):
            found[-1] = more
        else:
            found.append((step,))
    return found


def stored(program: ArrayProgram, parts: Mapping[Repeat, Sequence[Statement | Repeat]] | None = None) -> set[Array]:
    """The arrays that must be in memory: leaves, results, and whatever is read from anywhere but a register.

    The `parts` of a loop are its statements, of which some are put together already.
    """
    found = {array for array in (*program.leaves.values(), program.output, program.gradient) if array}
    pending = groups(program.steps)
    while pending:
        group = pending.pop()
        if isinstance(group, Repeat):
            pending += groups((parts or {}).get(group, group.body))
            continue
        written: set[Array] = set()
        for statement in group:
            found |= {access.array for access in statement.accesses()} - written
            found |= {statement.target.array} if statement.accumulate else set()
            written.add(statement.target.array)
    return found


def _joined(group: Group | Repeat, statement: Statement, columns: bool) -> Group | None:
    """The group with a statement in its pass over memory, if that can join it and shares an array with it."""
    if isinstance(group, Repeat) or len(group) == MOST or not group[0].loops or _is_sum(statement):
        return None
    if not (together := _in_the_same_loops(group, statement)):
        return None
    *others, last = together
    lanes, own = choose_lanes(others[0])[0], choose_lanes(last)[0]
    axis = side_by_side(others[0]) if columns else lanes
    if axis is None or axis != own or not _lanes(group[0]) == _lanes(statement) == last.loops[axis]:
        return None
    fits = _stays_in_turn(tuple(others), last) and is_injective(others[0]) and is_injective(last)
    return together if fits else None


def _is_sum(statement: Statement) -> bool:
    return any(term.loops for term in statement.terms)


def _lanes(statement: Statement) -> int | None:
    """How many turns the loop has that is vectorized: splitting it would leave few to a vector."""
    axis = side_by_side(statement)
    return None if axis is None else statement.loops[axis]


def _in_the_same_loops(group: Group, statement: Statement) -> Group | None:
    """The group and the statement, with the loops of one of them split as those of the other are.

    Layout merges loops wherever it can, in each statement for itself. A sum keeps its loops, which its tiles are of.
    """
    loops = group[0].loops
    if split := _split(statement, loops):
        return (*group, split)
    finer = [] if _is_sum(group[0]) else [found for each in group if (found := _split(each, statement.loops))]
    return (*finer, statement) if len(finer) == len(group) else None


def _split(statement: Statement, loops: Shape) -> Statement | None:
    """The statement in these loops, some of which may be parts of its own; None if they are not."""
    for d, extent in enumerate(loops):
        if d < len(statement.loops) and extent < statement.loops[d] and statement.loops[d] % extent == 0:
            statement = split_loop(statement, statement.loops, d, statement.loops[d] // extent)
    return statement if statement.loops == loops else None


def _stays_in_turn(group: Group, statement: Statement) -> bool:
    """Whether each turn of the statement needs no more of the group than the same turn of it, and shares something."""
    target, reads = statement.target, list(statement.accesses())
    written = {other.target.array: other.target for other in group}
    before = [access for other in group for access in other.accesses()]
    known = {access.array for access in before} | set(written)
    again = target.array in written
    if not again and not any(access.array in known for access in reads):
        return False
    pairs = [(access, target) for access in before if access.array is target.array]
    pairs += [(written[target.array], target)] if again else []
    pairs += [(access, written[access.array]) for access in reads if access.array in written]
    return all(is_same(*pair) for pair in pairs)


def can_replace(group: Group, old: Array, new: Array) -> bool:
    """Whether `new`, which the group is the first to write, may lie where `old` does, which no later group needs.

    Each turn must read no more of the old array than the one element that it then writes of the new one.
    """
    writers = [k for k, statement in enumerate(group) if statement.target.array is new]
    if len(writers) != 1 or old in (statement.target.array for statement in group):
        return False
    target, before, after = group[writers[0]].target, group[: writers[0] + 1], group[writers[0] + 1 :]
    reads = [access for statement in before for access in statement.accesses() if access.array is old]
    late = any(access.array is old for statement in after for access in statement.accesses())
    in_turn = all(is_same(Access(new, a.base, a.strides, a.table, a.repeat), target) for a in reads)
    return in_turn and not late and not group[writers[0]].accumulate and is_injective(group[writers[0]])


def without_zeros(program: ArrayProgram) -> ArrayProgram:
    """The program without `array = 0` wherever the first `+=` of each element can be `=`; in loops in time too."""
    inside = [
        step.with_body([s for s in _without_zeros(step.body) if isinstance(s, Statement)])
        if isinstance(step, Repeat)
        else step
        for step in program.steps
    ]
    return program.with_steps(_without_zeros(inside))


def _without_zeros(steps: Sequence[Statement | Repeat]) -> list[Statement | Repeat]:
    found, needless = list(steps), set()
    touching: dict[Array, list[int]] = defaultdict(list)  # the steps that read or write an array
    for k, step in enumerate(steps):
        for array in {a.array for statement in step.body for a in (statement.target, *statement.accesses())}:
            touching[array].append(k)
    for k, zero in enumerate(steps):
        if isinstance(zero, Statement) and is_zero(zero):
            later = [j for j in touching[zero.target.array] if j > k]
            if changed := _set_at_first(zero.target.array, [found[j] for j in later]):
                needless.add(k)
                for j, step in zip(later, changed, strict=True):
                    found[j] = step
    return [step for k, step in enumerate(found) if k not in needless]


def _set_at_first(array: Array, steps: Sequence[Statement | Repeat]) -> list[Statement | Repeat] | None:
    """The steps with `=` in place of the first `+=` of each element; None if that is impossible."""
    is_set = np.zeros(array.size, dtype=bool)
    found: list[Statement | Repeat] = []
    for step in steps:
        reads = (access.array for statement in step.body for access in statement.accesses())
        if array in reads and not is_set.all():
            return None
        if any(statement.target.array is array for statement in step.body):
            if isinstance(step, Repeat) or step.target.repeat:
                return None
            places = step.target.positions(step.loops)
            if not is_set[places].any() and is_injective(step):
                step = Statement(step.target, step.loops, step.terms)
            elif not is_set[places].all():
                return None
            is_set[places] = True
        found.append(step)
    return found if is_set.all() else None


def is_same(a: Access, b: Access) -> bool:
    """Whether two accesses of an array touch the same element at every turn."""
    return (a.base, a.strides, a.repeat) == (b.base, b.strides, b.repeat) and a.table is b.table is None
