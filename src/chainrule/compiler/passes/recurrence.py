"""Finding time: the steps of a recurrence have classes of their own, but these follow one another in a pattern.

Classes of the same form (op, size, lengths of the slots, silent or not) get the same number, and a stretch of numbers
that repeats with some period is a candidate. From each time to the next, every slot must read either the same class or
the one a period later, and positions in it that move by the same distance; or it looks something up: it reads an older
class at places without a pattern. Where that does not hold, as in a first step that reads a leaf, the stretch is cut.
All of this is arithmetic on whole columns of integers, so a thousand steps take hardly longer than a hundred.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from chainrule.compiler.passes.classes import CHAINS, Classes
from chainrule.ops import Op

FEWEST = 3  # times that make a loop worthwhile
MOST_CUTS = 2  # where positions jump; at more of them, they are looked up
MOST_CANDIDATES = 1024  # of periods
MANY = 4  # times as many, where there may be many loops
MOST_PERIODS = 256  # to try
MOST_STARTS = 64  # to compare
MOST_VISITS = 32  # of each class, on average, before the search is given up
MOST_IN_VAIN = 256  # runs in a row that do not hold: what holds is long, and long ones come first
OCCURRENCES = 16  # of one word per period: up to these, every period is found
WORDS = 1, 8, 64  # numbers per word


class Step(NamedTuple):
    """How a slot moves from one time to the next: whether to the class a period later, and how far in the class.

    The distance is None for a lookup: the slot reads a class from before the recurrence, at places with no pattern.
    """

    follows: bool
    distance: int | None


class Recurrence:
    """Classes from `start` on that repeat every `period`, `count` times.

    A class before the start that the first times read in place of one of these is a row of the same array.
    """

    def __init__(self, start: int, period: int, count: int) -> None:
        self.start = start
        self.period = period
        self.count = count
        self.steps: dict[int, list[Step]] = {}  # class of the first time -> one step per slot
        self.before: dict[int, int] = {}  # class of the first time -> rows before its own

    @property
    def stop(self) -> int:
        """The class after the last one."""
        return self.start + self.period * self.count

    @property
    def body(self) -> range:
        """The classes of the first time."""
        return range(self.start, self.start + self.period)

    def place(self, index: int) -> tuple[int, int]:
        """The class of the first time whose place a class has, and its time, which is negative before the start."""
        time, offset = divmod(index - self.start, self.period)
        return self.start + offset, time

    def rows(self, index: int) -> int:
        """The number of rows in the array of a class of the first time."""
        return self.count + self.before.get(index, 0)

    def verify(self, classes: Classes) -> Recurrence:
        """This recurrence, if it holds in `classes`: at every time, the slots read what the steps say."""
        for index in self.body:
            column = 0
            pairs = zip(classes.slots[index], self.steps[index], strict=True)
            for slot, ((operand, _, length), step) in enumerate(pairs):
                expected = classes.rows(index)[:, column : column + length]
                for time in range(1, self.count):
                    later = index + time * self.period
                    found = classes.slots[later][slot][0]
                    if found != operand + step.follows * time * self.period:
                        raise AssertionError(f"{self}: class {later} reads class {found} in slot {slot}")
                    positions = classes.rows(later)[:, column : column + length]
                    free = classes.kinds[operand] == "constant" or step.distance is None
                    if not free and (positions != expected + (step.distance or 0) * time).any():
                        raise AssertionError(f"{self}: class {later} reads other members in slot {slot}")
                column += length
        return self

    def __repr__(self) -> str:
        return f"classes {self.start}-{self.start + self.period - 1}, {self.count} times"


def find_recurrences(classes: Classes) -> list[Recurrence]:
    """The recurrences that hold; of overlapping ones, the one that saves most.

    >>> from chainrule import Value
    >>> from chainrule.compiler.passes.classes import classify
    >>> from chainrule.compiler.trace.graph import graph_of
    >>> w, h = Value(0.5), Value(1.0)
    >>> for _ in range(10):
    ...     h = (w * h).tanh()
    >>> find_recurrences(classify(graph_of(h, wrt=[w])))
    [classes 4-5, 9 times]
    """
    return _Search(classes).found()


class _Search:
    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        numbers: dict[object, int] = {}
        forms = zip(classes.kinds, classes.sizes.tolist(), classes.inlined.tolist(), classes.slots, strict=True)
        keys = [
            (kind, size, inlined, index in classes.silent, *[slot[1:] for slot in slots])
            for index, (kind, size, inlined, slots) in enumerate(forms)
        ]
        self.forms = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
        self.slot_starts = classes.slot_starts
        self.operands = classes.slot_operands
        self.pending: list[tuple[int, int, int, int]] = []
        self.free = np.array([isinstance(kind, Op) or kind in CHAINS for kind in classes.kinds])
        self.free[list(classes.lengths)] = False

    def found(self) -> list[Recurrence]:
        for period in candidates(self.forms):
            same = self.forms[:-period] == self.forms[period:]
            for start, stop in stretches(same, (FEWEST - 1) * period):
                self.consider(start, stop + period, period)
        found: list[Recurrence] = []
        visits, tries = MOST_VISITS * len(self.forms), MOST_IN_VAIN
        while self.pending and visits > 0 and tries > 0:
            _, period, start, stop = heappop(self.pending)
            visits -= stop - start
            if not self.free[start:stop].all():
                for first, last in stretches(self.free[start:stop]):
                    self.consider(start + first, start + last, period)
                continue
            start = self.natural_start(start, stop, period)
            run = Recurrence(start, period, (stop - start) // period)
            cuts, tries = self.cuts(run), tries - 1
            if cuts == []:
                found.append(run)
                self.free[start : run.stop] = False
                tries = MOST_IN_VAIN
            elif cuts:
                self.consider_parts([start, *(start + cut * period for cut in cuts), stop], period)
        return sorted(found, key=lambda run: run.start)

    def consider_parts(self, ends: list[int], period: int) -> None:
        """Consider what is between these ends; and all of it, if it is cut at regular intervals: a loop in a loop."""
        for first, last in pairwise(ends):
            self.consider(first, last, period)
        for length, times in Counter(np.diff(ends).tolist()).most_common(1):
            if times >= FEWEST and length > period:
                self.consider(ends[0] if ends[1] - ends[0] == length else ends[1], ends[-1], length)

    def consider(self, start: int, stop: int, period: int) -> None:
        count = (stop - start) // period
        if count >= FEWEST:
            heappush(self.pending, (-(count - 1) * period, period, start, stop))

    def natural_start(self, start: int, stop: int, period: int) -> int:
        """The start, of those that keep the number of times, where a time reads the fewest classes of the one before.

        Above all it should not read products that are part of a sum.
        """

        def handed_over(first: int) -> tuple[int, int]:
            second = first + period
            read = self.operands[self.slot_starts[second] : self.slot_starts[second + period]]
            read = np.unique(read[(read >= first) & (read < second)])
            return int(self.classes.inlined[read].sum()), len(read)

        slack = min((stop - start) % period, MOST_STARTS)
        return min(reversed(range(start, start + slack + 1)), key=handed_over)

    def cuts(self, run: Recurrence) -> list[int] | None:
        """The times to cut the run at: none if it holds (its steps are then set), None if it cannot hold anywhere."""
        operands = self.operands[self.slot_starts[run.start] : self.slot_starts[run.stop]].reshape(run.count, -1)
        starts = self.classes.row_starts
        positions = self.classes.operands[starts[run.start] : starts[run.stop]].reshape(run.count, -1)
        breaks, moving = set(_breaks(operands)), set(_breaks(positions))
        looks_up = np.zeros(operands.shape[1], dtype=bool)
        if len(moving) > MOST_CUTS:
            looks_up = self.lookups(run, operands, positions)
            moving = set(_breaks(positions[:, ~looks_up[self.slots_of(run)]]))
        if breaks | moving:
            return sorted(breaks | moving)
        follow, distance = operands[1] - operands[0], positions[1] - positions[0]
        if not np.isin(follow, (0, run.period)).all():
            return None
        return self.set_steps(run, follow.tolist(), distance, looks_up.tolist())

    def slots_of(self, run: Recurrence) -> np.ndarray:
        """The slot that each position read at one time belongs to, counted from the first of the body."""
        columns, slot = [], 0
        for index in run.body:
            slots = self.classes.slots[index]
            one = np.repeat(np.arange(slot, slot + len(slots)), [length for _, _, length in slots])
            columns.append(np.tile(one, self.classes.sizes[index]))
            slot += len(slots)
        return np.concatenate(columns)

    def lookups(self, run: Recurrence, operands: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Which slots read one class from before the run at all times, but not at places that move by a step."""
        steps, slots = np.diff(positions, axis=0), self.slots_of(run)
        odd = np.zeros(operands.shape[1], dtype=bool)
        odd[slots[(steps != steps[0]).any(axis=0)]] = True
        return np.asarray(odd & (operands == operands[0]).all(axis=0) & (operands[0] < run.start))

    def set_steps(
        self, run: Recurrence, follow: list[int], distance: np.ndarray, looks_up: list[bool]
    ) -> list[int] | None:
        """Set how the slots move, if the run holds; returns as `cuts` does."""
        slot = term = 0
        before: dict[int, int] = {}
        for index in run.body:
            size, width = int(self.classes.sizes[index]), int(self.classes.widths[index])
            columns = distance[term : term + size * width].reshape(size, width)
            steps, column = [], 0
            for operand, _, length in self.classes.slots[index]:
                part = columns[:, column : column + length]
                if looks_up[slot]:
                    steps.append(Step(False, None))
                elif self.classes.kinds[operand] != "constant" and (part != part[0, 0]).any():
                    return None
                else:
                    steps.append(Step(follow[slot] != 0, int(part[0, 0])))
                if steps[-1].follows and operand < run.start:
                    place, time = run.place(operand)
                    if not self.is_row(operand, run):
                        return [1]
                    before[place] = max(before.get(place, 0), -time)
                column += length
                slot += 1
            term += size * width
            run.steps[index] = steps
        ahead = {place - run.period * k for place, rows in before.items() for k in range(1, rows + 1)}
        if not all(self.is_row(index, run) for index in ahead):
            return [1]
        run.before = before
        self.free[list(ahead)] = False
        return []

    def is_row(self, index: int, run: Recurrence) -> bool:
        """Whether a class before a recurrence can be a row of the array of its place: of the same size, and stored.

        A product that is part of a sum is stored if that sum is one of the recurrence's. And no array has numbers with
        a gradient beside silent ones, whose slopes may be infinite.
        """
        classes = self.classes
        if index < 0 or not self.free[index]:
            return False
        place = run.place(index)[0]
        if classes.sizes[index] != classes.sizes[place] or (index in classes.silent) != (place in classes.silent):
            return False
        return not self.classes.inlined[index] or run.start <= int(self.classes.users[index]) < run.stop


def candidates(sequence: np.ndarray, many: bool = False) -> list[int]:
    """The distances at which most of the sequence recurs, for at least `FEWEST` times.

    Candidates are the distances between equal numbers, and between equal words of `WORDS` numbers: a loop in a loop has
    each number many times per period, but the words at its ends once. If there may be `many` loops, each with a period
    of its own, the shortest distances count, and multiples of one at which as much recurs do not.
    """
    tally: Counter[int] = Counter()
    words, length, short = sequence.astype(np.uint64), 1, _short(sequence)
    for wanted in WORDS:
        while length < min(wanted, len(sequence) // 2):
            words, length = mixed(words[:-length], words[length:]), 2 * length  # twice as long
        order = np.argsort(words, kind="stable")
        ordered = words[order]
        for k in range(1, OCCURRENCES + 1):
            same = ordered[k:] == ordered[:-k]
            counts = np.bincount((order[k:] - order[:-k])[same])  # by distance
            found = np.flatnonzero(counts)
            tally.update(dict(zip(found.tolist(), counts[found].tolist(), strict=True)))
    recurs = {}
    for period, _ in tally.most_common(MANY * MOST_CANDIDATES if many else MOST_CANDIDATES):
        matches = int(np.count_nonzero(short[:-period] == short[period:]))
        if matches >= (FEWEST - 1) * period:
            recurs[period] = matches
    if many:
        own = sorted([period for period in recurs if not _is_multiple(period, recurs)])
        recurs = {period: recurs[period] for period in own[:MOST_PERIODS]}
    return sorted(recurs, key=recurs.__getitem__, reverse=True)[:MOST_PERIODS]


def _short(sequence: np.ndarray) -> np.ndarray:
    """Small numbers that are equal where those of the sequence are: to compare them takes a quarter of the time."""
    distinct, numbers = np.unique(sequence, return_inverse=True)
    return np.asarray(numbers.astype(np.uint16 if len(distinct) <= 2**16 else np.uint32))


def _is_multiple(period: int, recurs: dict[int, int]) -> bool:
    """Whether as much recurs at a part of the period."""
    parts = [period // k for k in range(2, OCCURRENCES + 1) if period % k == 0]
    return any(recurs.get(part, 0) >= recurs[period] for part in parts)


def mixed(numbers: np.ndarray, others: np.ndarray) -> np.ndarray:
    """A number for each pair: the same for equal pairs, and almost surely another for others."""
    spread: np.ndarray = (numbers ^ (numbers >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    return spread + others.astype(np.uint64)


def stretches(mask: np.ndarray, shortest: int = 1) -> list[tuple[int, int]]:
    """The (start, stop) of each stretch of True that is long enough.

    >>> stretches(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))).reshape(-1, 2)
    return [(start, stop) for start, stop in edges[edges[:, 1] - edges[:, 0] >= shortest].tolist()]


def _breaks(times: np.ndarray) -> list[int]:
    """The times (rows) before which a column does not take the step that it takes most often.

    >>> _breaks(np.array([[7], [10], [20], [30]]))
    [1]
    """
    steps = np.diff(times, axis=0)
    odd = steps[:, (steps != steps[0]).any(axis=0)]
    found: list[int] = (np.flatnonzero((odd != _most_frequent(odd)).any(axis=1)) + 1).tolist()
    return found


def _most_frequent(rows: np.ndarray) -> np.ndarray:
    """The number that is most frequent in each column, and of several the smallest.

    >>> _most_frequent(np.array([[5, 3], [4, 2], [5, 1], [6, 0]]))
    array([5, 0])
    """
    count, width = rows.shape
    ordered = np.sort(rows, axis=0).T.reshape(-1)  # column after column
    new = np.diff(ordered, prepend=0) != 0
    new[::count] = True
    first = np.flatnonzero(new)
    lengths = np.diff(first, append=len(ordered))
    order = np.lexsort((-lengths, first // count))
    chosen: np.ndarray = ordered[first[order[np.searchsorted(first // count, np.arange(width))]]]
    return chosen
