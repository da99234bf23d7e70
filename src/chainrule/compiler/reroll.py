"""Re-rolling time: from statements that repeat to loops over them.

Lifting cannot merge the steps of a recurrence, each of which reads the one before: h₁, h₂, … are arrays of their own.
But their statements follow one another in a pattern, and here the pattern is found:

1. statements of the same form (ops, loops, strides, kinds of arrays) get the same number, and a stretch of numbers that
   repeats with some period is a candidate;
2. the arrays in one place of the pattern become rows of one array, time by time, if all places agree on the rows;
3. if then every position is affine in the time, the first period becomes the body of a `Repeat`.

The body runs in the order that the statements had, on rows of their own, so the result is the same. Where a place does
not fit, as in a first step that reads a leaf, the stretch is cut there and the odd step stays outside.

A sum over what the steps gave, such as a loss at every step, becomes a Σ over rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from chainrule.compiler.differentiate import is_injective
from chainrule.compiler.program import (
    Access,
    Apply,
    Array,
    ArrayProgram,
    Expression,
    Number,
    Repeat,
    Statement,
    Term,
)

FEWEST = 3  # times, for a loop to be worth it
FEWEST_TERMS = 16  # of one form, for a Σ over rows to be worth it
MOST_PERIODS = 256  # that are tried
MOST_STARTS = 64  # that are compared
OCCURRENCES = 16  # of one form in a period, up to which every period is found

Leaf = Access | Number


def reroll(program: ArrayProgram) -> ArrayProgram:
    """The program with statements that repeat in `Repeat`s; its leaves, output and gradient stay as they are."""
    if any(isinstance(step, Repeat) for step in program.steps):
        return program
    fixed = {*program.leaves.values(), program.output, program.gradient}
    forms = [_Form(statement, fixed) for statement in program.statements]
    rows = _Rows()
    runs = {run.start: run for run in _find_runs(forms, rows)}
    rows.merge([form.statement.target.array for form in forms])
    steps: list[Statement | Repeat] = []
    place = 0
    constants = _Constants()
    while place < len(forms):
        run = runs.get(place)
        if run:
            steps.append(_as_loop(_repeat(run, forms, rows, constants)))
            place += run.period * run.count
        else:
            steps.append(_sum_over_rows(forms[place].statement.map(rows.moved), constants))
            place += 1
    result = ArrayProgram(steps, program.leaves, program.output)
    result.gradient = program.gradient
    return result


class _Form:
    """A statement taken apart: what must be equal for two to be merged, and the leaves, which may differ."""

    def __init__(self, statement: Statement, fixed: set[Any]) -> None:
        self.statement = statement
        self.leaves: list[Leaf] = []
        terms = [(_form(term.expression, self.leaves, fixed), term.loops, term.sign) for term in statement.terms]
        target = _form(statement.target, self.leaves, fixed)
        self.key = (target, statement.loops, statement.accumulate, *terms)


def _form(expression: Expression, leaves: list[Leaf], fixed: set[Any] | None) -> Any:
    """What must be equal; arrays by kind and size, except those that are fixed (None: all are)."""
    if isinstance(expression, Apply):
        return (id(expression.op), *[_form(operand, leaves, fixed) for operand in expression.operands])
    assert isinstance(expression, Leaf)
    leaves.append(expression)
    if isinstance(expression, Number):
        return Number
    array, table = expression.array, expression.table
    which = array if fixed is None or array in fixed else (array.kind, array.size)
    return which, expression.strides, None if table is None else table.tobytes()


class _Run:
    """Statements from `start` on that repeat every `period`, `count` times."""

    def __init__(self, start: int, period: int, count: int) -> None:
        self.start = start
        self.period = period
        self.count = count

    def places(self, forms: Sequence[_Form]) -> list[list[list[Leaf]]]:
        """For every statement of the body and every leaf of it, that leaf at all times."""
        end = self.start + self.period * self.count
        return [
            [list(times) for times in zip(*(form.leaves for form in forms[k : end : self.period]), strict=True)]
            for k in range(self.start, self.start + self.period)
        ]


def _find_runs(forms: Sequence[_Form], rows: _Rows) -> list[_Run]:
    """Runs that fit in rows; of those that overlap, the one that saves most."""
    numbers: dict[Any, int] = {}
    sequence = np.array([numbers.setdefault(form.key, len(numbers)) for form in forms], dtype=np.int64)
    pending: list[tuple[int, int, int, int]] = []

    def consider(start: int, stop: int, period: int) -> None:
        count = (stop - start) // period
        if count >= FEWEST:
            heappush(pending, (-(count - 1) * period, period, start, stop))

    for period in _periods(sequence):
        for start, stop in _stretches(sequence[:-period] == sequence[period:], (FEWEST - 1) * period):
            consider(start, stop + period, period)
    found = []
    free = np.ones(len(forms), dtype=bool)
    while pending:
        _, period, start, stop = heappop(pending)
        if not free[start:stop].all():
            for first, last in _stretches(free[start:stop]):
                consider(start + first, start + last, period)
            continue
        start = _natural_start(forms, start, stop, period)
        run = _Run(start, period, (stop - start) // period)
        cuts = rows.fit(run.places(forms), [not form.statement.accumulate for form in forms[start : start + period]])
        if not cuts:
            found.append(run)
            free[start : start + period * run.count] = False
            continue
        for first, last in pairwise([0, *sorted(cuts), run.count]):
            consider(start + first * period, start + last * period, period)
    return found


def _periods(sequence: np.ndarray) -> list[int]:
    """The distances at which most numbers of the sequence recur."""
    order = np.argsort(sequence, kind="stable")
    tally: Counter[int] = Counter()
    for k in range(1, OCCURRENCES + 1):
        same = sequence[order[k:]] == sequence[order[:-k]]
        distances, counts = np.unique((order[k:] - order[:-k])[same], return_counts=True)
        tally.update(dict(zip(distances.tolist(), counts.tolist(), strict=True)))
    return [period for period, matches in tally.most_common(MOST_PERIODS) if matches >= (FEWEST - 1) * period]


def _stretches(mask: np.ndarray, shortest: int = 1) -> list[tuple[int, int]]:
    """The (start, stop) of each stretch of True that is long enough.

    >>> _stretches(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))).reshape(-1, 2)
    return [(start, stop) for start, stop in edges[edges[:, 1] - edges[:, 0] >= shortest].tolist()]


def _natural_start(forms: Sequence[_Form], start: int, stop: int, period: int) -> int:
    """The start, of those that leave as many times, where each time hands the fewest arrays to the next."""

    def handed_over(first: int) -> int:
        written = {form.statement.target.array for form in forms[first : first + period]}
        following = forms[first + period : first + 2 * period]
        read = {access.array for form in following for access in form.statement.accesses()}
        added_to = {form.statement.target.array for form in following if form.statement.accumulate}
        return len(written & (read | added_to))

    slack = min((stop - start) % period, MOST_STARTS)
    stores = [k for k in range(start, start + slack + 1) if not forms[k].statement.accumulate]
    return min(reversed(stores), key=handed_over) if stores else start


class _Family:
    """Arrays of one size that become the rows of one array."""

    def __init__(self) -> None:
        self.rows: dict[int, Array] = {}

    def merged(self, age: dict[Array, int]) -> dict[Array, tuple[Array, int]]:
        """Where in one array each of them lies, the oldest first."""
        low, high = min(self.rows), max(self.rows)
        first, step = (low, 1) if age[self.rows[low]] <= age[self.rows[high]] else (high, -1)
        oldest = self.rows[first]
        whole = Array(oldest.name, oldest.size * (high - low + 1), oldest.kind)
        return {array: (whole, (row - first) * step * array.size) for row, array in self.rows.items()}


class _Rows:
    """Which arrays are rows of which family."""

    def __init__(self) -> None:
        self.of: dict[Array, tuple[_Family, int]] = {}
        self.offsets: dict[Array, tuple[Array, int]] = {}

    def fit(self, places: list[list[list[Leaf]]], stores: list[bool]) -> list[int]:
        """Puts the arrays of a run into rows; or changes nothing, and returns the times to cut the run at."""
        added: list[Array] = []
        targets = [leaves[-1] for leaves, store in zip(places, stores, strict=True) if store]
        for times in [*targets, *(times for leaves in places for times in leaves)]:
            cuts = self.fit_place(times, added)
            if cuts:
                for array in added:
                    family, row = self.of.pop(array)
                    del family.rows[row]
                return cuts
        return []

    def fit_place(self, times: list[Leaf], added: list[Array]) -> list[int]:
        accesses = [leaf for leaf in times if isinstance(leaf, Access)]
        if not accesses:
            return []
        bases = np.array([access.base for access in accesses])
        if accesses[0].table is not None and (bases != bases[0]).any():
            return (np.flatnonzero(np.diff(bases)) + 1).tolist()
        first = accesses[0].array
        if first.kind == "constant" or all(access.array is first for access in accesses):
            return _breaks(bases)
        arrays = [access.array for access in accesses]
        misfits = self.line_up(arrays, added)
        if misfits:
            return sorted({cut for time in misfits for cut in (time, time + 1)} - {0, len(times)}) or [1]
        return _breaks(np.array([self.of[array][1] for array in arrays]) * first.size + bases)

    def line_up(self, arrays: list[Array], added: list[Array]) -> list[int]:
        """Gives the arrays equidistant rows of one family, and returns the times at which that cannot be."""
        family, start, step = self.direction(arrays)
        misfits = []
        for time, array in enumerate(arrays):
            row = start + step * time
            if array in self.of:
                if self.of[array] != (family, row):
                    misfits.append(time)
            elif row in family.rows:
                misfits.append(time)
            else:
                self.of[array] = (family, row)
                family.rows[row] = array
                added.append(array)
        return misfits

    def direction(self, arrays: list[Array]) -> tuple[_Family, int, int]:
        """The family of the arrays, its row at time 0 and the rows from time to time, as most of them have it."""
        known = [self.of.get(array) for array in arrays]
        lines: Counter[tuple[_Family, int, int]] = Counter()
        for time, (this, following) in enumerate(pairwise(known)):
            if this and following and this[0] is following[0]:
                step = following[1] - this[1]
                lines[this[0], this[1] - step * time, step] += 1
        if lines:
            return lines.most_common(1)[0][0]
        for time, this in enumerate(known):
            if this:
                return this[0], this[1] - time, 1
        return _Family(), 0, 1

    def merge(self, arrays: list[Array]) -> None:
        """Makes the arrays that the families become; `arrays` are those that are written, in order."""
        age = {array: k for k, array in enumerate(dict.fromkeys(arrays))}
        for family in {family: None for family, _ in self.of.values()}:
            self.offsets.update(family.merged(age))

    def moved(self, access: Access) -> Access:
        """The same element, in the array that its own became a row of."""
        if access.array not in self.offsets:
            return access
        array, offset = self.offsets[access.array]
        if access.table is not None:
            return Access(array, access.base, access.strides, access.table + offset)
        return Access(array, access.base + offset, access.strides)


def _breaks(positions: np.ndarray) -> list[int]:
    """The times before which the positions do not take their usual step.

    >>> _breaks(np.array([7, 10, 20, 30]))
    [1]
    """
    steps = np.diff(positions)
    if (steps == steps[0]).all():
        return []
    values, counts = np.unique(steps, return_counts=True)
    return (np.flatnonzero(steps != values[np.argmax(counts)]) + 1).tolist()


class _Constants:
    """Numbers that differ from time to time, as arrays."""

    def __init__(self) -> None:
        self.arrays: dict[bytes, Array] = {}

    def array(self, numbers: np.ndarray) -> Array:
        key = numbers.tobytes()
        if key not in self.arrays:
            self.arrays[key] = Array(f"k{len(self.arrays) + 1}", len(numbers), "constant", numbers)
        return self.arrays[key]


def _repeat(run: _Run, forms: Sequence[_Form], rows: _Rows, constants: _Constants) -> Repeat:
    body = []
    for form, places in zip(forms[run.start :], run.places(forms), strict=False):
        statement = form.statement
        leaves = iter([_over_time(times, rows, constants) for times in places])
        terms = []
        for term in statement.terms:
            depth = len(statement.loops) + len(term.loops)
            terms.append(Term(_rebuilt(term.expression, leaves, depth), term.loops, term.sign))
        target = next(leaves)
        assert isinstance(target, Access)
        body.append(Statement(target, statement.loops, terms, statement.accumulate))
    return Repeat(run.count, body)


def _rebuilt(expression: Expression, leaves: Iterator[Leaf], depth: int) -> Expression:
    """The expression with other leaves, inside so many loops."""
    if isinstance(expression, Apply):
        return Apply(expression.op, tuple([_rebuilt(operand, leaves, depth) for operand in expression.operands]))
    leaf = next(leaves)
    return leaf.widened(depth - len(leaf.strides)) if isinstance(leaf, Access) else leaf


def _over_time(times: Sequence[Leaf], rows: _Rows, constants: _Constants) -> Leaf:
    """One leaf for those at all times."""
    accesses = [leaf for leaf in times if isinstance(leaf, Access)]
    if not accesses:
        return _numbers(times, constants)
    first, second = accesses[:2]
    if first.array.kind == "constant" and any(access.array is not first.array for access in accesses):
        numbers = np.concatenate([access.array.numbers for access in accesses])
        step = second.base - first.base + first.array.size
        if second.base == first.base and _all_equal(numbers.reshape(len(accesses), -1)):
            return first
        return Access(constants.array(numbers), first.base, first.strides, first.table, step)
    start, following = rows.moved(first), rows.moved(second)
    if start.table is None:
        return Access(start.array, start.base, start.strides, None, following.base - start.base)
    return Access(start.array, start.base, start.strides, start.table, following.table[0] - start.table[0])


def _numbers(times: Iterable[Leaf], constants: _Constants) -> Leaf:
    """Numbers at all times: one, if it is always the same."""
    numbers = np.array([leaf.value for leaf in times if isinstance(leaf, Number)])
    return Number(float(numbers[0])) if _all_equal(numbers) else Access(constants.array(numbers), 0, (), repeat=1)


def _all_equal(numbers: np.ndarray) -> bool:
    """Whether all rows are the same to the last bit."""
    bits = numbers.view(np.int64)
    return bool((bits == bits[0]).all())


def _as_loop(step: Repeat) -> Statement | Repeat:
    """A statement alone that reads nothing it writes, and writes nothing twice, needs no order: its time is a loop."""
    statement = step.body[0]
    arrays = {access.array for access in statement.accesses()}
    alone = len(step.body) == 1 and not statement.accumulate and statement.affine
    if not alone or statement.target.array in arrays:
        return step

    def change(access: Access) -> Access:
        return Access(access.array, access.base, (access.repeat, *access.strides))

    loop = statement.map(change)
    loop.loops = (step.count, *statement.loops)
    return loop if is_injective(loop) else step


def _sum_over_rows(statement: Statement, constants: _Constants) -> Statement:
    """The statement with terms of one form, on rows at equal distances, as one Σ. (Terms may change places.)"""
    if len(statement.terms) < FEWEST_TERMS:
        return statement
    groups: dict[Any, list[tuple[Term, list[Leaf]]]] = {}
    for term in statement.terms:
        leaves: list[Leaf] = []
        key = (_form(term.expression, leaves, None), term.loops, term.sign)
        groups.setdefault(key, []).append((term, leaves))
    outer = len(statement.loops)
    terms = [term for group in groups.values() for term in _sigmas(group, outer, constants)]
    return Statement(statement.target, statement.loops, terms, statement.accumulate)


def _sigmas(group: list[tuple[Term, list[Leaf]]], outer: int, constants: _Constants) -> list[Term]:
    """Terms of one form, those whose positions are affine in their number as one."""
    positions = np.array([[leaf.base for leaf in leaves if isinstance(leaf, Access)] for _, leaves in group])
    turns = np.flatnonzero(np.diff(positions, 2, axis=0).any(axis=1)) + 1  # where the step changes
    found, first = [], 0
    while first < len(group):
        later = turns[np.searchsorted(turns, first, side="right") :]
        last = int(later[0]) + 1 if len(later) else len(group)
        if last - first < FEWEST_TERMS or any(isinstance(a, Access) and a.table is not None for a in group[first][1]):
            found += [term for term, _ in group[first:last]]
        else:
            found.append(_sigma(group[first:last], outer, constants))
        first = last
    return found


def _sigma(group: list[tuple[Term, list[Leaf]]], outer: int, constants: _Constants) -> Term:
    """Terms that are affine in their number as one, with a loop over them inside the statement's."""
    term, rows = group[0][0], _Rows()
    merged = []
    for times in zip(*(leaves for _, leaves in group), strict=True):
        leaf = _over_time(times, rows, constants)
        if isinstance(leaf, Access):
            strides = leaf.strides or (0,) * (outer + len(term.loops))
            leaf = Access(leaf.array, leaf.base, (*strides[:outer], leaf.repeat, *strides[outer:]))
        merged.append(leaf)
    depth = outer + 1 + len(term.loops)
    return Term(_rebuilt(term.expression, iter(merged), depth), (len(group), *term.loops), term.sign)
