"""Paths: the ways through a function for one structure of arguments, each with a trace of its own.

A function that does not branch has one. One that does is traced along the path that a call takes, and the conditions
on the way become guards. A call checks the guards of the path that was taken last; at the first other answer it goes
on with a path that begins with the answers so far, and if there is none, the function is traced again. So the paths
are a tree: conditions are its inner nodes, answers its edges, traces its leaves. It is kept as the list of the leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

import numpy as np

from chainrule.compiler.run.guards import Guards
from chainrule.compiler.run.traced import STORM, Source, Traced, warn_the_user
from chainrule.compiler.run.turns import compiling
from chainrule.compiler.trace.branches import Place, line_at
from chainrule.core.bulk import read_data
from chainrule.core.structure import Structure
from chainrule.core.value import Value

MOST_PATHS = 64  # that are kept; a call that takes another is traced anew and runs node by node
MOST_GUARDS = 10_000  # of a path that is kept, unless it is the first
TRIES = 10  # to find a moment in which no other thread changes captured Values
ONE_OF_MANY = "because its path is one of too many"
ADVICE = "chainrule.where(condition, a, b) computes both sides in one program, which is faster where paths are many"


class Known(NamedTuple):
    """What is kept. It is replaced as a whole, so that a call sees one state of it."""

    paths: tuple[Traced, ...] = ()
    values: list[Value] = []  # noqa: RUF012  # that any of the paths captures; the list is never changed

    def moment(self) -> np.ndarray:
        """The Values' present data."""
        return _data(self.values)


class Sorted(NamedTuple):
    """Examples by the path that they take: each path with the numbers of its examples, in the order of the first."""

    parts: list[tuple[Traced, np.ndarray]]
    moment: np.ndarray  # the captured Values' data that decided


class _MovedError(Exception):
    """The conditions of a trace were answered by other numbers than they have in the call that it was made for."""


class Paths:
    """The traces for one structure of arguments; the first is that of the path which `numbers` take."""

    def __init__(self, source: Source, structure: Structure, numbers: Sequence[float]) -> None:
        self.source, self.structure, self.count = source, structure, len(numbers)
        self.known = Known()
        self.places: np.ndarray | None = None  # of its Values among those of all structures, once a batch is ragged
        self._latest = 0  # the number of the path that was taken last
        self._not_kept: Traced | None = None  # the last such trace
        self._splits = Counter[Place | None]()  # how many paths have left another one at a line
        first = self._adopted(Traced(source, structure, numbers))
        self.only = first if first.guards is None else None  # the trace of a function that does not branch

    def is_current(self) -> bool:
        """Whether the same Values are frozen as when the traces were made."""
        return all(traced.is_current() for traced in self.known.paths)

    def numbered(self, number: int) -> Traced:
        """A path that was taken, by its number."""
        return self.known.paths[number] if number >= 0 or self._not_kept is None else self._not_kept

    def unbranched(self, deed: str) -> Traced:
        """The trace of a function that does not branch; `deed` is what is impossible if it does."""
        self.known.paths[0].refuse_branches(deed)
        return self.known.paths[0]

    def of(self, numbers: np.ndarray) -> tuple[Traced, np.ndarray | None]:
        """The trace for these arguments, and the captured Values' data that decided on it."""
        if self.only is not None:
            return self.only, None
        latest, known = self._latest, self.known
        traced: Traced | None = known.paths[latest]
        moment, row, agreed = known.moment(), numbers[None], 0
        while traced is not None:
            guards = _guards(traced)
            k = -1 if len(guards) == agreed else int(guards.differences(row, moment)[0])
            if k < 0:
                self._latest = traced.number
                return traced, moment
            traced, agreed = _beginning_with(guards.otherwise(k), known.paths) if k >= agreed else None, k + 1
        found = self.sort(row)
        return found.parts[0][0], found.moment

    def sort(self, rows: np.ndarray) -> Sorted:
        """The examples, each a row of all numbers in the arguments, by the path that they take."""
        for _ in range(TRIES):
            with suppress(_MovedError):
                return self._sorted(rows)
        raise RuntimeError(
            f"`{self.source.name}` branches, and its conditions are not the same when they are computed again: no "
            "other thread may change captured Values all the time, and plain numbers that it captures must not change"
        )

    def _sorted(self, rows: np.ndarray) -> Sorted:
        known = self.known
        moment, others = known.moment(), list[Traced]()
        found: dict[Guards | None, list[np.ndarray]] = {}  # by the guards of a path
        pending = [(max(known.paths, key=_length), np.arange(len(rows)), 0)]
        while pending:
            traced, which, agreed = pending.pop()  # examples that may take a path, and how many answers agree
            guards = _guards(traced)
            if len(guards) == agreed:
                found.setdefault(guards, []).append(which)
                continue
            first = guards.differences(rows if len(which) == len(rows) else rows[which], traced.data_at(moment))
            if (follow := which[first < 0]).size:
                found.setdefault(guards, []).append(follow)
            for k in np.flatnonzero(np.bincount(first[first >= 0])).tolist():
                part, answers = which[first == k], guards.otherwise(k)
                path = _beginning_with(answers, [*known.paths, *others]) if k >= agreed else None
                if path is None:
                    path = self._trace(rows[part[0]], answers, known, guards.lines[k])
                    others += [path] * (path.number < 0)
                    known, moment = self.known, self._same_moment(path, moment, rows[part[:1]])
                pending.append((path, part, k + 1))
        traces = {traced.guards: traced for traced in (*others, *known.paths)}
        parts = [(traces[guards], _joined(which)) for guards, which in found.items()]
        parts.sort(key=lambda part: int(part[1][0]))
        self._latest = max(0, parts[-1][0].number)
        wrt = self._wrt(known.paths[0], *others)
        return Sorted([(traced.with_respect_to(wrt), which) for traced, which in parts], moment)

    def _trace(self, row: np.ndarray, answers: tuple[bool, ...], known: Known, line: Place | None) -> Traced:
        """The trace of a path that begins with these answers, the last of which is new at this line."""
        with compiling(self.source):
            new = self.known.paths[len(known.paths) :]  # by another thread
            if (path := _beginning_with(answers, new)) is not None:
                return path
            traced = Traced(self.source, self.structure, row.tolist())
            known_answers = [_guards(path).answers for path in self.known.paths]
            if traced.guards is None or traced.guards.answers in known_answers:
                raise _MovedError  # this path is known: just now, its conditions had other numbers
            self._splits[line] += 1
            return self._adopted(traced)

    def _same_moment(self, path: Traced, moment: np.ndarray, row: np.ndarray) -> np.ndarray:
        """The data of all Values, now that there is another path; for the old ones it must be what it was before.

        This row must take the path.
        """
        values = self.known.values
        data = _data([*values, *path.others])
        now, path.others_data = data[: len(values)], data[len(values) :]
        moved = moment.tobytes() != now[: len(moment)].tobytes()
        if moved or _guards(path).differences(row, path.data_at(now))[0] >= 0:
            raise _MovedError
        return now

    def _adopted(self, traced: Traced) -> Traced:
        """A new trace, and where its captured Values lie among all; kept unless there are too many or it is long."""
        (paths, values), guards = self.known, traced.guards
        place_of = {value: k for k, value in enumerate(values)}
        own = [*(guards.captured if guards else ()), *chain(*traced.captured.values())]
        fresh = [value for value in dict.fromkeys(own) if value not in place_of]
        keeps = not paths or (len(paths) < MOST_PATHS and len(_guards(traced)) <= MOST_GUARDS)
        place_of |= {value: k + (len(values) if keeps else -len(fresh)) for k, value in enumerate(fresh)}
        traced.places = {kind: _places(nodes, place_of) for kind, nodes in traced.captured.items() if nodes}
        if guards:
            guards.places = _places(guards.captured, place_of)
        wrt = self._wrt(*paths[:1], traced)
        traced = traced.with_respect_to(wrt)
        if keeps:
            traced.number = len(paths)
            self.known = Known((*[path.with_respect_to(wrt) for path in paths], traced), [*values, *fresh])
        else:
            traced.number, traced.others, self._not_kept = -1, fresh, traced
            traced.why_not_kept = _why_not_kept(len(_guards(traced)))
        self._count()
        return traced

    def _wrt(self, *paths: Traced) -> list[Value]:
        """What gradients are with respect to, for any of these paths."""
        if self.source.wrt is not None or len(paths) == 1:
            return paths[0].wrt
        return sorted({value for path in paths for value in path.wrt}, key=lambda value: value._serial)

    def _count(self) -> None:
        """Warn when there are many paths, and when there are too many."""
        paths = sum(self._splits.values()) + 1
        if paths not in (STORM + 1, MOST_PATHS + 1):
            return
        line, splits = self._splits.most_common(1)[0]
        what = "is traced and compiled" if paths <= MOST_PATHS else "is from now on traced anew, and runs node by node"
        warn_the_user(
            f"`{self.source.name}` has taken {paths} paths so far, and left another {splits} times at "
            f"{line_at(line).rstrip(':')}. Each new one {what}; {ADVICE}"
        )


def _beginning_with(answers: tuple[bool, ...], paths: Sequence[Traced]) -> Traced | None:
    """The longest such path. In a loop, whatever ends sooner leaves it where its own path ends."""
    found = [traced for traced in paths if _guards(traced).answers[: len(answers)] == answers]
    return max(found, key=_length, default=None)


def _length(traced: Traced) -> int:
    return len(_guards(traced))


def _why_not_kept(conditions: int) -> str:
    """Why a path with so many conditions runs node by node: its length does not depend on how many others there are."""
    if conditions > MOST_GUARDS:
        return f"because its path has {conditions:,} conditions, which is more than {MOST_GUARDS:,}"
    return ONE_OF_MANY


def _data(values: list[Value]) -> np.ndarray:
    numbers = np.empty(len(values))
    read_data(values, numbers)
    return numbers


def _places(values: list[Value], place_of: dict[Value, int]) -> np.ndarray:
    return np.array([place_of[value] for value in values], dtype=np.int64)


def _joined(numbers: list[np.ndarray]) -> np.ndarray:
    return np.sort(np.concatenate(numbers)) if len(numbers) > 1 else numbers[0]


def _guards(traced: Traced) -> Guards:
    """Those of a path, which has some if the function branches."""
    assert traced.guards is not None
    return traced.guards
