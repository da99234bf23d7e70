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
from typing import Any, NamedTuple

import numpy as np

from chainrule.compiler.run.machine import places
from chainrule.compiler.run.traced import STORM, Source, Traced, warn_the_user
from chainrule.compiler.run.turns import compiling
from chainrule.compiler.trace.branches import Place, line_at
from chainrule.core.bulk import read_data
from chainrule.core.structure import Structure
from chainrule.core.value import Value

MOST_PATHS = 64  # that are kept; a call that takes another is traced anew and runs node by node
MOST_GUARDS = 10_000  # of a path that is kept
TRIES = 10  # to find a moment in which no other thread changes captured Values
ADVICE = "chainrule.where(condition, a, b) computes both sides in one program, which is faster where paths are many"


class Known(NamedTuple):
    """What has been traced so far. It is replaced as a whole, so that a call sees one state of it."""

    kept: tuple[Traced, ...] = ()
    values: tuple[Value, ...] = ()  # that any path captures

    def moment(self) -> np.ndarray:
        """The Values' present data."""
        numbers = np.empty(len(self.values))
        read_data([*self.values], numbers)
        return numbers


class Sorted(NamedTuple):
    """Examples by the path that they take: each path with the numbers of its examples, in the order of the first."""

    parts: list[tuple[Traced, np.ndarray]]
    moment: np.ndarray | None  # the captured Values' data that decided; None if there are no branches

    @property
    def wrt(self) -> list[Value]:
        """The Values that gradients are with respect to, on every path."""
        return self.parts[0][0].wrt


class _MovedError(Exception):
    """Captured Values have changed since they were read, or a trace does not take the path that it was made for."""


class Paths:
    """The traces for one structure of arguments; the first is that of the path which `numbers` take."""

    def __init__(self, source: Source, structure: Structure, numbers: Sequence[float]) -> None:
        self.source, self.structure = source, structure
        self.known = Known()
        self._latest = 0  # the number of the path that was taken last
        self._not_kept: Traced | None = None  # the last such trace
        self._splits = Counter[Place | None]()  # how many paths have left another one at a line
        first = self._adopted(Traced(source, structure, numbers))
        self.only = first if first.guards is None else None  # the trace of a function that does not branch

    def numbered(self, number: int) -> Traced:
        """A path that was taken, by its number."""
        return self.known.kept[number] if number >= 0 or self._not_kept is None else self._not_kept

    def unbranched(self, deed: str) -> Traced:
        """The trace of a function that does not branch; `deed` is what is impossible if it does."""
        self.known.kept[0].refuse_branches(deed)
        return self.known.kept[0]

    def of(self, numbers: list[float]) -> tuple[Traced, np.ndarray | None]:
        """The trace for these arguments, and the captured Values' data that decided on it."""
        if self.only is not None:
            return self.only, None
        latest, known = self._latest, self.known
        traced, moment, row = known.kept[latest], known.moment(), np.array([numbers], dtype=np.float64)
        if _differences(traced, row, moment)[0] < 0:
            return traced, moment
        found = self.sort(row)
        return found.parts[0][0], found.moment

    def sort(self, rows: np.ndarray) -> Sorted:
        """The examples, each a row of all numbers in the arguments, by the path that they take."""
        if self.only is not None:
            return Sorted([(self.only, np.arange(len(rows)))], None)
        for _ in range(TRIES):
            with suppress(_MovedError):
                return self._sorted(rows)
        raise RuntimeError(
            f"`{self.source.name}` branches, and captured Values change while its path is being found: let no other "
            "thread change them meanwhile, and let the function assign to none that it branches on"
        )

    def _sorted(self, rows: np.ndarray) -> Sorted:
        latest, known = self._latest, self.known
        moment, others = known.moment(), list[Traced]()
        found: dict[Any, list[np.ndarray]] = {}  # by the guards of a path
        pending = [(known.kept[latest], np.arange(len(rows)), 0)]
        while pending:
            traced, which, agreed = pending.pop()
            guards, first = traced.guards, _differences(traced, rows[which], moment)
            assert guards is not None
            if (follow := which[first < 0]).size:
                found.setdefault(guards, []).append(follow)
            for k in np.unique(first[first >= 0]).tolist():
                part, answers = which[first == k], (*guards.answers[:k], not guards.answers[k])
                path = _beginning_with(answers, [*known.kept, *others]) if k >= agreed else None
                if path is None:
                    path = self._trace(rows[part[0]], answers, known, guards.lines[k])
                    known, before = self.known, moment
                    moment = known.moment()
                    if before.tobytes() != moment[: len(before)].tobytes():
                        raise _MovedError
                    if path.number < 0:
                        others.append(path)
                    if _differences(path, rows[part[:1]], moment)[0] >= 0:
                        raise _MovedError
                pending.append((path, part, k + 1))
        traces = {traced.guards: traced for traced in (*others, *known.kept)}
        parts = [(traces[guards], np.sort(np.concatenate(which))) for guards, which in found.items()]
        parts.sort(key=lambda part: int(part[1][0]))
        self._latest = max(0, parts[-1][0].number)
        return Sorted([(traced.with_respect_to(known.kept[0].wrt), which) for traced, which in parts], moment)

    def _trace(self, row: np.ndarray, answers: tuple[bool, ...], known: Known, line: Place | None) -> Traced:
        """The trace of a path that begins with these answers, the last of which is new at this line."""
        with compiling(self.source):
            new = self.known.kept[len(known.kept) :]  # by another thread
            if (path := _beginning_with(answers, new)) is not None:
                return path
            self._splits[line] += 1
            return self._adopted(Traced(self.source, self.structure, row.tolist()))

    def _adopted(self, traced: Traced) -> Traced:
        """A new trace, made known: which of all captured Values are its own, and what gradients are by."""
        kept, values = self.known
        guards, own = traced.guards, [*traced.captured.values()]
        values = tuple(dict.fromkeys([*values, *(guards.captured if guards else ()), *chain(*own)]))
        for kind, nodes in traced.captured.items():
            traced.places[kind] = places(nodes, values)
        if guards:
            guards.places = places(guards.captured, values)
        if self.source.wrt is None and kept:
            wrt = sorted({*kept[0].wrt, *traced.wrt}, key=lambda value: value._serial)
            kept = tuple([path.with_respect_to(wrt) for path in kept])
            traced = traced.with_respect_to(wrt)
        if kept and (guards is None or len(guards) > MOST_GUARDS or len(kept) >= MOST_PATHS):
            traced.number, self._not_kept = -1, traced
        else:
            traced.number, kept = len(kept), (*kept, traced)
        self.known = Known(kept, values)
        self._count()
        return traced

    def _count(self) -> None:
        """Warn when there are many paths, and when there are too many."""
        paths = sum(self._splits.values()) + 1
        if paths not in (STORM + 1, MOST_PATHS + 1):
            return
        line, splits = self._splits.most_common(1)[0]
        what = "is traced and compiled" if paths <= MOST_PATHS else "is from now on traced anew, and runs node by node"
        warn_the_user(
            f"`{self.source.name}` has taken {paths} paths so far, and left another {splits} times at {line_at(line)} "
            f"Each new one {what}; {ADVICE}"
        )


def _beginning_with(answers: tuple[bool, ...], paths: Sequence[Traced]) -> Traced | None:
    for traced in paths:
        if traced.guards is not None and traced.guards.answers[: len(answers)] == answers:
            return traced
    return None


def _differences(traced: Traced, rows: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """For each row the first condition that has another answer than on this path; -1 if the row takes it."""
    if traced.guards is None:  # a function that branched before, and does not always do the same
        raise _MovedError
    return traced.guards.differences(rows, moment)
