"""Guards: the conditions of a path, which say for which numbers its trace is valid.

They are computed as eager code computes them, node by node and to the last bit (`backends.strict`), since near a tie a
rounding decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from chainrule.compiler.backends.tape import Tape
from chainrule.compiler.passes.results import packed
from chainrule.compiler.trace.branches import Branch, Place, line_at
from chainrule.compiler.trace.expand import expanded
from chainrule.compiler.trace.graph import Graph, graph_of
from chainrule.compiler.trace.symbols import Symbol
from chainrule.core.value import ENGINE

if ENGINE == "native":
    from chainrule._native import tape_follow

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
        graph = expanded(graph_of(Symbol(packed(len(met)), tuple([branch.condition for branch in met])), ()))
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
        results, numbers = [place for _, place in asked], iter([0.0] * len(self.used))
        self._tape = Tape(own, False, results, numbers, since, in_turn=True)
        places = self._tape.leaves["input"], self.used, self._tape.results
        self._inputs, self._columns, self._results = [array.astype(np.int32) for array in places]
        self._expected = np.array(self.answers, dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.answers)

    def otherwise(self, k: int) -> tuple[bool, ...]:
        """The answers up to condition `k`, with the opposite one there."""
        return *self.answers[:k], not self.answers[k]

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
        data, found = self._tape.numbers.copy(), np.empty(len(rows), dtype=np.int32)
        if self.captured:
            data[self._tape.leaves["captured"]] = moment[self.places]
        if self._tape.in_python or ENGINE != "native":
            found[:] = [self._difference(row, data) for row in rows]
        else:
            width, wanted = rows.shape[1], (self._results, self._expected, found)
            doubles = np.ascontiguousarray(rows, dtype=np.float64)
            tape_follow(self._tape.arrays, data, self._inputs, self._columns, doubles, width, *wanted)
        return found

    def _difference(self, row: np.ndarray, data: np.ndarray) -> int:
        """The same for one example, in Python; no condition after the first, since rules may refuse its numbers."""
        data[self._inputs], start = row[self.used], 0
        for k, (place, answer) in enumerate(zip(self._results.tolist(), self.answers, strict=True)):
            try:
                self._tape.forward(data, start, place + 1)
            except Exception:  # a user's op refuses these numbers: a trace with them says so, or takes another path
                return k
            start = max(start, place + 1)
            if (data[place] != 0.0) != answer:
                return k
        return -1
