"""Cones of influence: loops in time whose steps need fewer and fewer numbers.

A wave runs for as many steps as it has cells, and one cell is recorded at the end. Its last step needs one cell, the one
before three, then five: whatever nobody needs is no part of the graph. So no two steps are alike, neither by classes
nor node for node. But each step is a part of the one before. If `u` is the cell that is recorded and `v` the same cell a
step earlier, what `u` reads corresponds to what `v` reads; and so on down to the first step. That is found from one
pair of nodes. The nodes that correspond to each other through time are a *thread*, and where a thread ends early, it is
completed: every step then has all nodes, and is like the others. The loop knows how long each is `alive`.
"""

from __future__ import annotations

from collections.abc import Iterator

from chainrule.compiler.passes.completion import completed
from chainrule.compiler.passes.loops import Loop
from chainrule.compiler.passes.threads import find_threads
from chainrule.compiler.trace.graph import Graph

FEWEST = 8  # times
MOST_ANCHORS = 16  # nodes near the result to start from
MOST_EARLIER = 6  # nodes that may be one of these, a step earlier
MOST_VISITED = 64  # nodes below it, to look at for these
FEW_PAIRS = 300  # to see whether a pair leads anywhere
MOST_OF_ONE = 2  # pairs that begin with one node
MOST_FOLLOWED = 4  # pairs that are followed to their ends
LEAST_ALIKE = 0.9  # of the first pairs, of one op
LEAST_COVERED = 0.5  # of all nodes
ALMOST = 0.9  # of the most that any pair covers


def find_cone(graph: Graph, merges: bool = True) -> tuple[Graph, list[Loop]] | None:
    """A graph that computes the same, with a loop in it that covers most nodes; None if none is seen.

    The leaves of the given graph come first, and so they do in the one that is found.
    """
    if len(graph) < 4 * FEWEST:
        return None
    found = []
    for earlier, clock in _Embeddings(graph).found():
        if threads := find_threads(graph, earlier, clock, merges):
            found.append(threads)
    most = max([threads.size for threads in found], default=0)
    if not most or most < LEAST_COVERED * sum(1 for operands in graph.operands if operands):
        return None
    return completed(max([each for each in found if each.size >= ALMOST * most], key=lambda each: each.stop - each.start))


class _Embeddings:
    """The ways in which the last step of a graph may be a part of the one before."""

    def __init__(self, graph: Graph) -> None:
        self.operands = graph.operands
        numbers = {rule: k for k, rule in enumerate(dict.fromkeys(graph.rules))}
        self.codes = [numbers[rule] for rule in graph.rules]
        for node in graph.silent:
            self.codes[node] += len(numbers)
        self.constant = numbers.get("constant", -1)
        self.root = len(graph) - 1

    def found(self) -> Iterator[tuple[list[int], list[int]]]:
        """In several ways: for each node the one a step earlier, or -1; and the node that was begun with, at all times."""
        found: list[list[int]] = []
        for node, earlier in self.pairs():
            if len(found) < MOST_FOLLOWED and all(each[node] != earlier for each in found):
                found.append(self.followed(node, earlier))
                if len(clock := self.thread(node, found[-1])) >= FEWEST:
                    yield found[-1], clock

    def thread(self, node: int, earlier: list[int]) -> list[int]:
        """A node and those that it corresponds to, the last first."""
        found = [node]
        while found[-1] > (before := earlier[found[-1]]) >= 0 and self.alike(node, before):
            found.append(before)
        return found

    def pairs(self) -> list[tuple[int, int]]:
        """Nodes near the result, each with one that may be the same a step earlier."""
        found: list[tuple[int, int]] = []
        for node in self.below(self.root, MOST_ANCHORS):
            earlier = [each for each in self.below(node, MOST_VISITED) if each < node and self.alike(node, each)]
            leading = [(node, each) for each in earlier[:MOST_EARLIER] if self.leads_on(node, each)]
            found += leading[:MOST_OF_ONE]
        return found

    def below(self, node: int, most: int) -> list[int]:
        """Computed nodes from this one on, those first that are nearest."""
        found = [node]
        seen = {node}
        for each in found:
            for operand in self.operands[each]:
                if operand not in seen and self.operands[operand] and len(found) < most:
                    seen.add(operand)
                    found.append(operand)
        return found

    def alike(self, node: int, other: int) -> bool:
        return self.codes[node] == self.codes[other]

    def leads_on(self, node: int, earlier: int) -> bool:
        """Whether the first pairs below this one are of equal ops."""
        begun = {node: earlier}
        queue, seen, alike = [node], 0, 0
        for each in queue:
            if seen >= FEW_PAIRS:
                break
            seen += 1
            other = begun[each]
            if each == other or not self.operands[each]:
                alike += 1
            elif self.alike(each, other):
                alike += 1
                for a, b in zip(self.operands[each], self.operands[other], strict=True):
                    if self.codes[a] == self.constant:
                        continue
                    if a not in begun:
                        begun[a] = b
                        queue.append(a)
                    elif begun[a] != b and self.operands[a]:
                        return False
        return alike >= LEAST_ALIKE * seen

    def followed(self, node: int, earlier: int) -> list[int]:
        """All that follows from a pair, and from others beside it in the last step."""
        found = [-1] * len(self.codes)
        self.follow(node, earlier, found)
        for beside in self.below(self.root, FEW_PAIRS)[1:]:
            if found[beside] < 0 and beside > earlier:
                self.beside(beside, found)
        return found

    def beside(self, node: int, found: list[int]) -> None:
        """Follow a node of the last step that lies beside one whose pair is known."""
        for near in self.near(node, found):
            earlier = found[near] + node - near
            if 0 <= earlier < node and self.alike(node, earlier) and self.leads_on(node, earlier):
                self.follow(node, earlier, found)
                return

    def near(self, node: int, found: list[int]) -> Iterator[int]:
        for step in (-1, 1):
            near = node + step
            while 0 <= near < self.root and abs(near - node) < MOST_VISITED and not 0 <= found[near] < near:
                near += step
            if 0 <= near < self.root and 0 <= found[near] < near:
                yield near

    def follow(self, node: int, earlier: int, found: list[int]) -> None:
        """Set for a node, and for all that it leads to, the nodes a step earlier."""
        found[node] = earlier
        operands, codes, constant = self.operands, self.codes, self.constant
        stack = [node]
        while stack:
            each = stack.pop()
            other = found[each]
            if other == each or codes[each] != codes[other] or not operands[each]:
                continue
            for a, b in zip(operands[each], operands[other], strict=True):
                if found[a] < 0 and codes[a] != constant:
                    found[a] = b
                    stack.append(a)
