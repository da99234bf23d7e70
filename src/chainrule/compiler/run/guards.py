"""Guards: the conditions of a path, which say for which numbers its trace is valid.

They are computed as eager code computes them, node by node and to the last bit (`backends.strict`), since near a tie a
rounding decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from chainrule.compiler.backends.strict import Tape
from chainrule.compiler.run.interface import packed
from chainrule.compiler.trace.branches import Branch, Place, line_at
from chainrule.compiler.trace.graph import Graph, graph_of
from chainrule.compiler.trace.symbols import Symbol

SHOWN = 12  # conditions of a path


class Guards:
    """Conditions, in the order in which the function asked for them, with their `answers` and the `lines` that asked.

    `used` are the places of the arguments that they depend on, `captured` the Values.
    """

    @classmethod
    def of(cls, met: Sequence[Branch], since: int) -> Guards | None:
        """The guards of a trace that began at a serial number; None if its path is the same for all numbers."""
        if not met:
            return None
        graph = graph_of(Symbol(packed(len(met)), tuple([branch.condition for branch in met])), ())
        varies: list[bool] = []
        for rule, operands in zip(graph.rules, graph.operands, strict=True):
            varies.append(rule in ("input", "captured") or any(varies[operand] for operand in operands))
        asked = [pair for pair in zip(met, graph.operands[-1], strict=True) if varies[pair[1]]]
        return cls(graph, asked, since) if asked else None

    def __init__(self, graph: Graph, asked: Sequence[tuple[Branch, int]], since: int) -> None:
        self.answers = tuple([branch.answer for branch, _ in asked])
        self.lines: list[Place | None] = [branch.place for branch, _ in asked]
        self.used = np.array([symbol.place for symbol in graph.leaves("input")], dtype=np.int64)
        self.captured = graph.leaves("captured")
        self.places = np.zeros(0, dtype=np.int64)  # of the captured Values among those of all paths
        own = Graph(graph.rules[:-1], graph.operands[:-1], graph.nodes[:-1])
        self._tape = Tape(own, False, [place for _, place in asked], iter([0.0] * len(self.used)), since)
        self._leaves = np.concatenate([self._tape.leaves["input"], self._tape.leaves["captured"]]).astype(np.int32)
        self._expected = np.array(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def __str__(self) -> str:
        """One line per condition; neighbours that were asked for by the same line, with the same answer, are one."""
        runs = [(key, len([*same])) for key, same in groupby(zip(self.lines, self.answers, strict=True))]
        shown = [
            f"{line_at(line)} is {'true' if answer else 'false'}{f', {count} times' if count > 1 else ''}"
            for (line, answer), count in runs[:SHOWN]
        ]
        return "\n".join(shown + [f"and {len(runs) - SHOWN} more"] * (len(runs) > SHOWN))

    def differences(self, rows: np.ndarray, moment: np.ndarray) -> np.ndarray:
        """For each example, a row of all arguments, the first condition with another answer; -1 if there is none."""
        given = np.empty((len(rows), len(self._leaves)))
        given[:, : len(self.used)], given[:, len(self.used) :] = rows[:, self.used], moment[self.places]
        if self._tape.in_python:
            data = self._tape.numbers.copy()
            return np.array([self._difference(row, data) for row in given])
        other = (self._tape.forward_rows(self._leaves, given) != 0.0) != self._expected
        first: np.ndarray = other.argmax(axis=1)
        first[~other[np.arange(len(rows)), first]] = -1
        return first

    def _difference(self, row: np.ndarray, data: np.ndarray) -> int:
        """The same for one example, condition by condition: rules in Python may refuse numbers of another path."""
        data[self._leaves], start = row, 0
        for k, (place, answer) in enumerate(zip(self._tape.results.tolist(), self.answers, strict=True)):
            self._tape.forward(data, start, place + 1)
            start = max(start, place + 1)
            if (data[place] != 0.0) != answer:
                return k
        return -1
