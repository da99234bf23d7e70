"""results.md, read back: its best times, to the digits that are printed. What the README shows comes from there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from contest import Contest
from contestants import CONTESTANTS
from machine import KINDS
from pages import END, Board, Score, mark
from workloads import EVERYTHING

UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
MEASURED = re.compile(r"^- (\S+), on ([^.].*?)\. The load was (\S+) before", re.MULTILINE)
BEST = re.compile(r"^\| (\w.*?) \| (~?[\d.,]+ \S+) \|", re.MULTILINE)


def published(page: str) -> list[Board]:
    """A Board for each kind of processor that the page has results of."""
    return [
        Board(list(_scores(part)), said[2], kind, said[1], float(said[3]), 0.0)
        for kind in KINDS
        for part in [page.partition(mark(kind))[2].partition(END)[0]]
        if (said := MEASURED.search(part.replace("\n  ", " ")))
    ]


def _scores(part: str) -> Iterator[Score]:
    for workload in EVERYTHING:
        section = re.search(rf"^### {re.escape(workload.name)}: (.*?)(?=^### |\Z)", part, re.DOTALL | re.MULTILINE)
        if section:
            contest = Contest(workload, workload.contestants(CONTESTANTS))
            contest.times |= {name: [_seconds(best)] for name, best in BEST.findall(section[1])}
            yield Score(contest, {}, {})


def _seconds(text: str) -> float:
    number, unit = text.lstrip("~").replace(",", "").split()
    return float(number) * UNITS[unit]
