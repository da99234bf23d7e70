"""Cones of influence: loops in time of which each step needs fewer numbers than the one before.

A wave runs for as many steps as it has cells, and one cell is recorded at the end. Its last step needs that cell, the
one before three, and the one before five: what nobody needs is no part of the graph. So no two steps are alike, neither
by classes nor node for node. But each step is a part of the one before. If `u` is the cell that is recorded, and `v`
the same cell a step earlier, then what `u` reads corresponds to what `v` reads, and so on down to the first step. All
of that follows from one pair of nodes.

The nodes that correspond to each other through time are a *thread* (`threads`). Where threads end early they are
completed, so that all steps are alike and are a loop (`completion`). In its statements, what nobody needs is masked
where it could do harm (`lifetimes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.completion import completed
from chainrule.compiler.passes.loops import Loop
from chainrule.compiler.passes.repeats import firsts
from chainrule.compiler.passes.threads import Threads, find_threads
from chainrule.compiler.trace.graph import Graph

FEWEST = 8  # times
MOST_ANCHORS = 8  # nodes near the result to start from
MOST_EARLIER = 6  # nodes that may be one of these, a step earlier
MOST_VISITED = 64  # nodes below it, to look at for these
FEW_PAIRS = 1000  # to see whether a pair leads anywhere
MOST_READERS = 32  # of a node, to look for one that reads the same a step earlier
MOST_OF_ONE = 2  # pairs that begin with one node
MOST_FOLLOWED = 3  # pairs that are followed to their ends
MOST_UNLIKE = 8, 0.1  # of the first pairs, so many and a share: of different ops, or with a node that is in two
LEAST_COVERED = 0.5  # of all nodes
ALMOST = 0.98  # of all nodes: hardly any pair will do better


def find_cone(graph: Graph, merges: bool = True) -> tuple[Graph, list[Loop]] | None:
    """A graph that computes the same, with a loop in it that covers most nodes; None if none is seen.

    The leaves of the given graph come first, and so they do in the one that is found.
    """
    if len(graph) < 4 * FEWEST:
        return None
    computed = sum(1 for operands in graph.operands if operands)
    best: Threads | None = None
    same: np.ndarray | None = None
    for tried, earlier in enumerate(_Embeddings(graph).found()):
        if same is None:
            same = np.array(firsts(graph)) if merges else np.arange(len(graph))
        threads = find_threads(graph, earlier, same)
        if threads and threads.size > (best.size if best else LEAST_COVERED * computed):
            best = threads
        if tried and best and best.size > ALMOST * computed:
            break
    return completed(best) if best else None


class _Embeddings:
    """The ways in which the last step of a graph may be a part of the one before."""

    def __init__(self, graph: Graph) -> None:
        self.operands = graph.operands
        self.rules = graph.rules
        if graph.silent:
            self.rules = [(rule, "silent") if k in graph.silent else rule for k, rule in enumerate(graph.rules)]
        self.root = len(graph) - 1
        self.uses = np.bincount(graph.flat_operands, minlength=len(graph))

    def found(self) -> Iterator[dict[int, int]]:
        """In several ways: for each node the one a step earlier."""
        found: list[dict[int, int]] = []
        for node, earlier in self.pairs():
            if len(found) < MOST_FOLLOWED and all(each.get(node) != earlier for each in found):
                found.append(self.followed(node, earlier))
                if len(self.thread(node, found[-1])) >= FEWEST:
                    yield found[-1]

    def thread(self, node: int, earlier: Mapping[int, int]) -> list[int]:
        """A node and those that it corresponds to, the last first."""
        found = [node]
        while (before := earlier.get(found[-1], -1)) >= 0 and before < found[-1] and self.alike(node, before):
            found.append(before)
        return found

    def pairs(self) -> list[tuple[int, int]]:
        """Nodes near the result, each with some that may be the same a step earlier, and not two steps."""
        found: list[tuple[int, int]] = []
        for node in self.anchors():
            earlier = [each for each in self.below(node, MOST_VISITED) if each < node and self.alike(node, each)]
            leading = [(node, each) for each in earlier[:MOST_EARLIER] if self.narrows(node, each)]
            further = {below for _, each in leading for below in self.below(each, MOST_VISITED)[1:]}
            found += [pair for pair in leading if pair[1] not in further][:MOST_OF_ONE]
        return found

    def anchors(self) -> list[int]:
        """Nodes near the result. Of a sum over all that is recorded, the first two terms and the last."""
        found = [self.root]
        for node in found:  # which grows
            first, *others = self.operands[node]
            while self.is_link(first) and self.is_link(self.operands[first][0]):
                first = self.operands[first][0]
            found += [each for each in dict.fromkeys((first, *others)) if self.operands[each] and each not in found]
            if len(found) >= MOST_ANCHORS:
                break
        return found[:MOST_ANCHORS]

    def is_link(self, node: int) -> bool:
        """Whether a node is a sum that only one other reads."""
        return self.rules[node] is ops.add and bool(self.uses[node] == 1)

    def narrows(self, node: int, earlier: int) -> bool:
        """Whether a pair leads on, to the last of steps of which none has more nodes than the one before."""
        begun = self.begun(node, earlier)
        thread = self.thread(node, begun) if begun else []
        steps = [later - earlier for later, earlier in pairwise(thread)]
        narrower = len(steps) > 1 and steps[0] < steps[1]  # until the cone is as wide as it can be
        return narrower and all(later <= earlier for later, earlier in pairwise(steps))

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
        return bool(self.rules[node] == self.rules[other])

    def begun(self, node: int, earlier: int) -> dict[int, int] | None:
        """The first pairs below this one; None if they are not of equal ops."""
        begun = {node: earlier}
        queue, unlike, (few, share) = [node], 0, MOST_UNLIKE
        for seen, each in enumerate(queue):  # which grows
            if unlike > few + share * seen:
                return None
            if seen >= FEW_PAIRS:
                break
            other = begun[each]
            if each == other or not self.operands[each]:
                continue
            if not self.alike(each, other):
                unlike += 1
                continue
            for a, b in zip(self.operands[each], self.operands[other], strict=True):
                if self.rules[a] != "constant" and a not in begun:
                    begun[a] = b
                    queue.append(a)
                elif self.operands[a] and begun[a] != b:
                    unlike += 1
        return begun if unlike <= few + share * len(queue) else None

    def followed(self, node: int, earlier: int) -> dict[int, int]:
        """All that follows from a pair, and from others beside it in the last step."""
        found: dict[int, int] = {}
        self.follow(node, earlier, found)
        self.follow_readers([*found], found)
        for beside in self.below(self.root, FEW_PAIRS)[1:]:
            if beside not in found and beside > earlier:
                self.follow_readers(self.beside(beside, found), found)
        return found

    def beside(self, node: int, found: dict[int, int]) -> list[int]:
        """Follow a node of the last step that lies beside one whose pair is known; the nodes that this leads to."""
        for near in self.near(node, found):
            earlier = found[near] + node - near
            if 0 <= earlier < node and self.alike(node, earlier) and self.begun(node, earlier):
                return self.follow(node, earlier, found)
        return []

    def near(self, node: int, found: dict[int, int]) -> list[int]:
        """The next nodes before and after this one whose pairs are known, the nearer one first."""
        sides = [range(node - 1, node - MOST_VISITED, -1), range(node + 1, min(node + MOST_VISITED, self.root))]
        ends = [next((near for near in side if found.get(near, near) < near), None) for side in sides]
        return sorted([near for near in ends if near is not None], key=lambda near: abs(near - node))

    def follow(self, node: int, earlier: int, found: dict[int, int]) -> list[int]:
        """Set for a node, and for all that it leads to, the nodes a step earlier; returns for which."""
        found[node] = earlier
        operands, rules, stack, new = self.operands, self.rules, [node], []
        while stack:
            each = stack.pop()
            new.append(each)
            other = found[each]
            if other == each:
                continue
            for a, b in zip(operands[each], operands[other], strict=True):
                if a not in found and rules[a] == rules[b] and rules[a] != "constant":
                    found[a] = b
                    stack.append(a)
        return new

    def follow_readers(self, known: list[int], found: dict[int, int]) -> None:
        """Follow what reads these nodes, if one node reads the same a step earlier, and no other does."""
        while known:
            node = known.pop()
            if (before := found[node]) == node or len(self.readers[before]) > MOST_READERS:
                continue
            for reader in self.readers[node]:
                if reader not in found and reader != self.root:
                    same = {each for each in self.readers[before] if self.reads_the_same(reader, each, found)}
                    if len(same) == 1:
                        known += self.follow(reader, same.pop(), found)

    @cached_property
    def readers(self) -> list[list[int]]:
        """Who reads each node."""
        found: list[list[int]] = [[] for _ in self.operands]
        for node, operands in enumerate(self.operands):
            for operand in operands:
                found[operand].append(node)
        return found

    def reads_the_same(self, node: int, earlier: int, found: dict[int, int]) -> bool:
        """Whether a node may be this one a step earlier, by what is known of its operands."""
        if earlier >= node or not self.alike(node, earlier):
            return False
        pairs = zip(self.operands[node], self.operands[earlier], strict=True)
        return all(found[a] == b if a in found else self.alike(a, b) for a, b in pairs)
