"""Lifting: from a scalar graph to an array program.

1. Chains of `+` whose links are used once become n-ary sums; `a - b` is a sum with a negative term.
2. Nodes are classed from the leaves up: a class is an op and the classes of its operands. The members of a class, in
   order of creation, are one array. In micrograd's moons demo all 16·100 first-layer sums are one class.
3. For each class, the operands' positions in their own arrays are sequences of integers. The nest of loops that
   reproduces them (base + Σ stride·index) is the statement. A product that is used in one sum only becomes part of that
   sum: a dot.

What is not affine keeps a table of positions.
"""

from __future__ import annotations

from collections import defaultdict
from math import gcd
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.graph import KINDS, Graph
from chainrule.compiler.program import Access, Apply, Array, ArrayProgram, Expression, Number, Shape, Statement, Term

SUM = "sum"


def lift(graph: Graph) -> ArrayProgram:
    """The array program that computes the last node of `graph`."""
    sums = _sums(graph)
    classes = _classify(graph, sums)
    return _Lifter(graph, classes).program()


class _Class:
    """Nodes with the same op and operands of the same classes, oldest first."""

    def __init__(self, key: tuple[Any, ...]) -> None:
        self.key = key
        self.members: list[int] = []
        self.uses = 0
        self.users: set[tuple[int, int]] = set()  # (class, slot)


class _Classes:
    def __init__(self) -> None:
        self.classes: list[_Class] = []
        self.of: dict[int, int] = {}  # node -> class
        self.position: dict[int, int] = {}  # node -> place among the members of its class
        self.operands: dict[int, list[list[int]]] = {}  # node -> its operands, slot by slot; a slot of a sum is a run


def _sums(graph: Graph) -> dict[int, list[tuple[int, int]]]:
    """The n-ary sums: node -> its terms as (operand, sign). Links inside a chain are not among them."""
    uses = [0] * len(graph)
    for operands in graph.operands:
        for operand in operands:
            uses[operand] += 1
    terms: dict[int, list[tuple[int, int]]] = {}
    for node, rule in enumerate(graph.rules):
        if rule is ops.add or rule is ops.sub:
            a, b = graph.operands[node]
            if rule is ops.sub:  # never part of a chain: whether `a` has other uses must not change its class
                terms[node] = [(a, 1), (b, -1)]
                continue
            flat: list[tuple[int, int]] = []
            for operand in (a, b):
                if graph.rules[operand] is ops.add and uses[operand] == 1:
                    flat += terms.pop(operand)
                else:
                    flat.append((operand, 1))
            terms[node] = flat
    return terms


def _classify(graph: Graph, sums: dict[int, list[tuple[int, int]]]) -> _Classes:
    found = _Classes()
    by_key: dict[tuple[Any, ...], int] = {}
    for node, (rule, operands) in enumerate(zip(graph.rules, graph.operands, strict=True)):
        if rule is ops.add or rule is ops.sub:
            if node not in sums:
                continue  # a link of a longer chain
            groups: dict[tuple[int, int], list[int]] = defaultdict(list)
            for operand, sign in sums[node]:
                groups[found.of[operand], sign].append(operand)
            slots = list(groups.values())
            key: tuple[Any, ...] = (SUM, *((c, sign, len(run)) for (c, sign), run in groups.items()))
        else:
            slots = [[operand] for operand in operands]
            key = (rule, *(found.of[operand] for operand in operands))
            if rule is ops.pow_ and graph.rules[operands[1]] == "constant":
                key = (*key, graph.nodes[operands[1]].data)  # x² and x³ are different arrays
        index = by_key.setdefault(key, len(found.classes))
        if index == len(found.classes):
            found.classes.append(_Class(key))
        this = found.classes[index]
        found.of[node], found.position[node] = index, len(this.members)
        found.operands[node] = slots
        this.members.append(node)
        for slot, run in enumerate(slots):
            used = found.classes[found.of[run[0]]]
            used.uses += len(run)
            used.users.add((index, slot))
    return found


def loop_nest(streams: np.ndarray) -> tuple[Shape, list[tuple[int, ...]]] | None:
    """The nest in which every row of `streams` is affine: its extents, and the strides of each row; or None.

    >>> loop_nest(np.array([[0, 1, 2, 0, 1, 2], [5, 5, 5, 7, 7, 7]]))
    ((2, 3), [(0, 1), (2, 0)])
    """
    extents: list[int] = []
    strides: list[np.ndarray] = []
    while (length := streams.shape[1]) > 1:
        steps = np.diff(streams, axis=1)
        breaks = np.flatnonzero((steps != steps[:, :1]).any(axis=0))
        run = gcd(int(breaks[0]) + 1, length) if len(breaks) else length
        if run == 1:
            return None
        blocks = streams.reshape(len(streams), length // run, run)
        offsets = blocks - blocks[:, :, :1]
        if (offsets != offsets[:, :1]).any():
            return None
        extents.insert(0, run)
        strides.insert(0, steps[:, 0])
        streams = blocks[:, :, 0]
    return tuple(extents), [tuple(int(s[row]) for s in strides) for row in range(len(streams))]


Factor = tuple[int, np.ndarray]  # a class, and positions in its array: one row a member, one column a term


class _Lifter:
    """Turns classes into statements."""

    def __init__(self, graph: Graph, classes: _Classes) -> None:
        self.graph = graph
        self.found = classes
        self.arrays: dict[int, Array] = {}
        self.leaves: dict[str, Array] = {}
        self.constants: dict[int, np.ndarray] = {}
        self.tables = 0  # of constants

    def program(self) -> ArrayProgram:
        statements: list[Statement] = []
        for index, this in enumerate(self.found.classes):
            if this.key[0] == "constant":
                self.constants[index] = np.array([self.graph.nodes[m].data for m in this.members])
            elif this.key[0] in KINDS:
                kind = this.key[0]
                self.arrays[index] = self.leaves[kind] = Array(kind, len(this.members), kind)
            elif not self.is_inlined(this):
                self.arrays[index] = Array(f"v{len(statements)}", len(this.members), "value")
                statements.append(self.statement(index, this))
        root = self.found.of[len(self.graph) - 1]
        return ArrayProgram(statements, self.leaves, self.arrays[root])

    def is_inlined(self, this: _Class) -> bool:
        """A product that is used once, in one run of one sum."""
        if this.key[0] is not ops.mul or len(this.users) != 1 or this.uses != len(this.members):
            return False
        ((user, _),) = this.users
        return bool(self.found.classes[user].key[0] == SUM)

    def statement(self, index: int, this: _Class) -> Statement:
        """One statement for all members: their operands' positions as streams, and the nest that reproduces these."""
        runs = self.found.operands[this.members[0]]
        loops: Shape = ()
        if len(this.members) == 1 and all(len(run) == 1 for run in runs):
            terms = [Term(self.scalar(this, run[0])) for run in runs]
        else:
            slots = [self.factors(this, slot) for slot in range(len(runs))]
            loops, outer = self.outer_loops(slots, len(this.members))
            terms = [self.term(factors, loops, strides) for factors, strides in zip(slots, outer, strict=True)]
        target = Access(self.arrays[index], 0, row_major(loops))
        if this.key[0] == SUM:
            for term, (_, sign, _) in zip(terms, this.key[1:], strict=True):
                term.sign = sign
            return Statement(target, loops, terms)
        return Statement(target, loops, [Term(Apply(this.key[0], tuple(term.expression for term in terms)))])

    def scalar(self, this: _Class, operand: int) -> Expression:
        """What a class of one member reads where it has one operand: no streams, no loops."""
        index = self.found.of[operand]
        if this.key[0] == SUM and self.is_inlined(self.found.classes[index]):
            factors = [self.scalar(self.found.classes[index], run[0]) for run in self.found.operands[operand]]
            return Apply(ops.mul, tuple(factors))
        position = self.found.position[operand]
        if index in self.constants:
            return Number(float(self.constants[index][position]))
        return Access(self.arrays[index], position, ())

    def factors(self, this: _Class, slot: int) -> list[Factor]:
        """What a slot reads: two arrays for an inlined product, else one."""
        rows = [self.found.operands[member][slot] for member in this.members]
        if this.key[0] == SUM and self.is_inlined(self.found.classes[self.found.of[rows[0][0]]]):
            operands = self.found.operands
            return [self.factor([[operands[node][k][0] for node in row] for row in rows]) for k in (0, 1)]
        return [self.factor(rows)]

    def factor(self, rows: list[list[int]]) -> Factor:
        position = self.found.position
        return self.found.of[rows[0][0]], np.array([[position[node] for node in row] for row in rows], dtype=np.int64)

    def outer_loops(self, slots: list[list[Factor]], count: int) -> tuple[Shape, list[list[tuple[int, ...]] | None]]:
        """The loops over the members of a class, and the strides of each slot's factors; None: they need a table."""
        variable = [[positions for index, positions in factors if index not in self.constants] for factors in slots]
        regular = [all(map(_separable, row)) for row in variable]
        streams = [positions[:, 0] for fits, row in zip(regular, variable, strict=True) if fits for positions in row]
        nest = loop_nest(np.array(streams)) if streams else None
        if nest:
            rest = iter(nest[1])
            return nest[0], [
                [next(rest) for _ in row] if fits else None for fits, row in zip(regular, variable, strict=True)
            ]
        outer: list[list[tuple[int, ...]] | None] = []
        for fits, row in zip(regular, variable, strict=True):
            nests = [loop_nest(positions[:, :1].T) for positions in row] if fits else [None]
            simple = all(nest is not None and len(nest[0]) == 1 for nest in nests)
            outer.append([nest[1][0] for nest in nests if nest] if simple else None)
        return (count,), outer

    def term(self, factors: list[Factor], loops: Shape, outer: list[tuple[int, ...]] | None) -> Term:
        """A run of terms; `outer` holds the strides, in the statement's loops, of the factors that are no constants."""
        run = factors[0][1].shape[1]
        variable = [positions for index, positions in factors if index not in self.constants]
        nest = loop_nest(np.array([positions[0] for positions in variable])) if variable and outer is not None else None
        inner = nest[0] if nest else (run,) if run > 1 else ()
        strides = iter(zip(outer or (), nest[1], strict=True) if nest else ())
        accesses: list[Expression] = []
        for index, positions in factors:
            if index in self.constants:
                accesses.append(self.constant(self.constants[index][positions].reshape(loops + inner)))
            elif nest:
                accesses.append(Access(self.arrays[index], positions[0, 0], sum(next(strides), ())))
            else:
                accesses.append(Access(self.arrays[index], 0, row_major(loops + inner), positions.reshape(-1)))
        return Term(accesses[0] if len(accesses) == 1 else Apply(ops.mul, tuple(accesses)), inner)

    def constant(self, numbers: np.ndarray) -> Expression:
        """Numbers by loop index: an immediate if all are equal, else an array without the axes where they repeat."""
        bits = numbers.view(np.int64)  # so that -0.0 differs from 0.0, and NaN equals NaN
        moving = []
        for axis in range(numbers.ndim):
            first = np.take(bits, [0], axis=axis)
            if (bits == first).all():
                bits = first
            else:
                moving.append(axis)
        if not moving:
            return Number(float(numbers.flat[0]))
        dense = bits.view(np.float64).reshape(-1)
        extents = row_major(tuple(numbers.shape[axis] for axis in moving))
        strides = [extents[moving.index(axis)] if axis in moving else 0 for axis in range(numbers.ndim)]
        self.tables += 1
        return Access(Array(f"c{self.tables}", len(dense), "constant", dense), 0, strides)


def _separable(positions: np.ndarray) -> bool:
    """Whether the terms of a run lie in the same pattern for every member."""
    return bool((positions - positions[:, :1] == positions[:1] - positions[:1, :1]).all())


def row_major(loops: Shape) -> tuple[int, ...]:
    """The strides of an array that these loops fill from end to end."""
    strides: list[int] = []
    step = 1
    for extent in reversed(loops):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)
