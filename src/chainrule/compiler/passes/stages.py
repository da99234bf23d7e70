"""Lifting a graph with derivatives in it: the arrays are differentiated, not the nodes.

A node of op `Derivatives` wants a sweep over what was computed before. So the graph is lifted in stages. The first has
all nodes that need no derivatives. Their program, differentiated by `pulled_back` or `pushed_forward`, has the
derivatives that only need the first stage; what is computed from those is the second stage, and so on. The gradient of
a function is one stage and its adjoints; a Hessian times a vector pushes the tangents through both.

Sweeps of the same stage that do not meet, such as those of a derivative at each of many points, are one sweep. So are
those with respect to the same inputs, and those of a Jacobian, which has one for each row or column; but they are in
different directions, and every array of derivatives has a row for each direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from chainrule.compiler.passes.batch import for_all
from chainrule.compiler.passes.differentiate import pulled_back, zero
from chainrule.compiler.passes.irregular import IrregularityError
from chainrule.compiler.passes.lift import MOST_STATEMENTS
from chainrule.compiler.passes.program import (
    Access,
    Array,
    ArrayProgram,
    Expression,
    Number,
    Repeat,
    Statement,
    changed,
)
from chainrule.compiler.passes.push_forward import pushed_forward
from chainrule.compiler.passes.reach import only_where_reached
from chainrule.compiler.passes.results import copies, lift_places, packed, with_output
from chainrule.compiler.passes.tidy import tidied
from chainrule.compiler.trace.graph import KINDS, Graph
from chainrule.compiler.trace.symbols import Constant
from chainrule.core.deferred import JACOBIAN, PUSH, Derivatives, Part

Place = Access | Number  # where a number lies, or the number itself if it is known
Seed = tuple[Access, Expression]  # where a derivative lies that a sweep begins with, and which it is
MOST_SWEEPS = 16  # each goes through all statements; a loop with a derivative in each of its steps has many


class NotStagedError(IrregularityError):
    """The derivatives are better off as nodes."""

    def __init__(self, reason: str) -> None:
        ValueError.__init__(self, reason)
        self.reason = reason


def lift_in_stages(graph: Graph, most_statements: float = MOST_STATEMENTS) -> ArrayProgram:
    """The array program of a graph whose root packs its results; an error where derivatives are better off as nodes."""
    return _Stages(graph, most_statements).program()


class _Sweep(NamedTuple):
    """Derivatives to be found: where the inputs, the outputs and the seeds lie.

    If `forward`, the seeds are the inputs' tangents, otherwise the outputs' adjoints. Several sweeps can be one, in
    many directions; this one takes the `directions` of a range. A Jacobian has no seeds: it takes as many directions as
    it would have, and in each of them one is 1 and all others are 0.
    """

    node: int
    forward: bool
    outputs: Sequence[Place]
    inputs: Sequence[Access]
    seeds: Sequence[Place]
    directions: range

    @property
    def way(self) -> tuple[bool, int]:
        """What sweeps that go together have in common."""
        return self.forward, len(self.directions)

    @property
    def ends(self) -> tuple[Sequence[Place], Sequence[Place]]:
        """Where the sweep begins, at seeds, and where it ends."""
        return (self.inputs, self.outputs) if self.forward else (self.outputs, self.inputs)


class _Found:
    """Arrays of derivatives: for each array its own, with a row for each direction."""

    def __init__(self, arrays: dict[Array, Array]) -> None:
        self.arrays = arrays

    def at(self, place: Place, direction: int = 0) -> Place:
        """Where the derivative that belongs to a place lies; 0 if there is none."""
        if isinstance(place, Number) or place.array not in self.arrays:
            return Number(0.0)
        return Access(self.arrays[place.array], direction * place.array.size + place.base, ())

    def begun(self, seeds_of_all: Sequence[Seed], arrays: Sequence[Array]) -> Iterator[Statement]:
        """The derivatives of these arrays, where sweeps begin: seeds, and zeros in all other elements."""
        seeds: dict[Array, list[Seed]] = {}
        for target, seed in seeds_of_all:
            seeds.setdefault(target.array, []).append((target, seed))
        for array in [self.arrays[array] for array in arrays if array in self.arrays]:
            pairs = seeds.get(array, [])
            covers = sorted([target.base for target, _ in pairs]) == list(range(array.size))
            if not covers:
                yield zero(array)
            yield from copies(pairs, accumulate=not covers)

    def seeds(self, sweep: _Sweep) -> Iterator[Seed]:
        """Where a sweep begins, and with which derivatives."""
        first, _ = sweep.ends
        for k, place in enumerate(first):
            target = self.at(place, sweep.directions[0 if sweep.seeds else k])
            if isinstance(target, Access):
                yield target, sweep.seeds[k] if sweep.seeds else Number(1.0)

    def parts(self, sweep: _Sweep) -> list[Place]:
        """What the derivatives are where it ends; in several directions, output by output."""
        _, last = sweep.ends
        by_place = [[self.at(place, direction) for direction in sweep.directions] for place in last]
        by_output = by_place if sweep.forward else zip(*by_place, strict=True)
        return [part for each in by_output for part in each]


class _Stages:
    """A program that grows by a stage, and by the derivatives of what there is, in turn."""

    def __init__(self, graph: Graph, most_statements: float) -> None:
        self.graph, self.most_statements = graph, most_statements
        self.level = _levels(graph)
        self.steps: list[Statement | Repeat] = []
        self.leaves: dict[str, Array] = {}
        self.where: dict[int, Place] = {}  # a node that is wanted -> where its number lies
        self.parts: dict[int, list[Place]] = {}  # node of op Derivatives -> where its parts lie
        self.sweeps = 0

    def program(self) -> ArrayProgram:
        stages: list[list[int]] = [[] for _ in range(max(self.level) + 1)]
        for node, level in enumerate(self.level[:-1]):
            stages[level].append(node)
        leaves, wanted = [node for node in stages[0] if self.graph.rules[node] in KINDS], self._wanted()
        for stage in stages:
            self._differentiate([node for node in stage if isinstance(self.graph.rules[node], Derivatives)])
            own = [node for node in stage if not isinstance(self.graph.rules[node], (Derivatives, Part))]
            if own:
                self._lift(own, leaves, [node for node in own if node in wanted])
        results = [self._place(node) for node in self.graph.operands[-1]]
        return tidied(with_output(self.steps, self.leaves, results))

    def _place(self, node: int) -> Place:
        """Where the number of a node lies."""
        rule = self.graph.rules[node]
        return self.parts[self.graph.operands[node][0]][rule.place] if isinstance(rule, Part) else self.where[node]

    def _wanted(self) -> set[int]:
        """The nodes whose places are asked for: by sweeps, by later stages and by the root."""
        wanted = set(self.graph.operands[-1])
        for node, (rule, operands) in enumerate(zip(self.graph.rules, self.graph.operands, strict=True)):
            of_a_sweep = isinstance(rule, Derivatives)
            wanted.update([o for o in operands if of_a_sweep or self.level[o] != self.level[node]])
        return wanted

    def _lift(self, own: list[int], leaves: list[int], wanted: list[int]) -> None:
        """Lift the nodes of a stage. What they read of earlier stages are leaves, of a kind for each array."""
        read = {operand for node in own for operand in self.graph.operands[node]}.difference(own, leaves)
        earlier = {node: self._place(node) for node in sorted(read)}
        kinds: dict[Array, str] = {}
        for place in earlier.values():
            if isinstance(place, Access):
                kinds.setdefault(place.array, f"earlier{len(kinds)}")
        part = self._part(sorted({*own, *leaves, *earlier}), earlier, kinds, wanted)
        program, places = lift_places(part, self.most_statements, merges=False)  # a sweep may be by one of two equals
        self.where.update(zip(wanted, places, strict=True))
        if not earlier:  # the first stage
            self.leaves = program.leaves
        program = program.with_arrays({program.leaves[kind]: array for kind, array in self.leaves.items()})
        counts = dict.fromkeys(kinds, 0)
        pairs: list[tuple[Access, Expression]] = []
        for place in sorted([p for p in earlier.values() if isinstance(p, Access)], key=lambda p: kinds[p.array]):
            pairs.append((Access(program.leaves[kinds[place.array]], counts[place.array], ()), place))
            counts[place.array] += 1
        self.steps += [*copies(pairs), *program.steps]

    def _part(self, nodes: list[int], earlier: dict[int, Place], kinds: dict[Array, str], wanted: list[int]) -> Graph:
        """The graph of some nodes, with a root that packs the `wanted` ones; those of earlier stages are leaves."""
        number = {node: k for k, node in enumerate(nodes)}
        rules, things = [self.graph.rules[node] for node in nodes], [self.graph.nodes[node] for node in nodes]
        operands = [() if node in earlier else self.graph.operands[node] for node in nodes]
        for node, place in earlier.items():
            if isinstance(place, Access):
                rules[number[node]] = kinds[place.array]
            else:
                rules[number[node]], things[number[node]] = "constant", Constant(place.value)
        edges = [tuple([number[operand] for operand in each]) for each in (*operands, wanted)]
        return Graph([*rules, packed(len(wanted))], edges, [*things, self.graph.nodes[-1]])

    def _differentiate(self, nodes: list[int]) -> None:
        """Append the sweeps that these nodes stand for; those of one kind together, if they do not meet."""
        sweeps = sorted(map(self._sweep, nodes), key=attrgetter("way"))
        for _, group in groupby(sweeps, key=attrgetter("way")):
            together = list(group)
            if _are_independent(self.graph, [sweep.node for sweep in together]):
                self._append(together)
            else:
                for some in self._by_inputs(together):
                    self._append(some)

    def _by_inputs(self, sweeps: list[_Sweep]) -> Iterator[list[_Sweep]]:
        """Sweeps that meet: those with respect to the same inputs together, each in a direction of its own."""
        groups: dict[tuple[int, ...], list[_Sweep]] = {}
        for sweep in sweeps:
            rule, operands = self.graph.rules[sweep.node], self.graph.operands[sweep.node]
            inputs = operands[rule.outputs : rule.outputs + rule.inputs]
            groups.setdefault(inputs if sweep.seeds else (sweep.node,), []).append(sweep)
        for group in groups.values():
            if len(group) == 1:
                yield group
            else:
                yield [sweep._replace(directions=range(k, k + 1)) for k, sweep in enumerate(group)]

    def _sweep(self, node: int) -> _Sweep:
        rule = self.graph.rules[node]
        places = list(map(self._place, self.graph.operands[node]))
        outputs, inputs = places[: rule.outputs], places[rule.outputs : rule.outputs + rule.inputs]
        elements = [place for place in inputs if isinstance(place, Access)]
        if len(elements) < len(inputs):
            raise NotStagedError("it has a derivative with respect to a constant")
        forward = rule.name == PUSH or (rule.name == JACOBIAN and rule.inputs <= rule.outputs)
        directions = range(min(rule.inputs, rule.outputs) if rule.name == JACOBIAN else 1)
        return _Sweep(node, forward, outputs, elements, places[rule.outputs + rule.inputs :], directions)

    def _append(self, sweeps: list[_Sweep]) -> None:
        """Append statements for all derivatives of some sweeps, which are one sweep in all of their directions."""
        self.sweeps += 1
        if self.sweeps > MOST_SWEEPS:
            raise NotStagedError(f"it has more than {MOST_SWEEPS} derivatives that depend on one another")
        forward, directions = sweeps[0].forward, max(sweep.directions.stop for sweep in sweeps)
        sources, outputs = _arrays(s.inputs for s in sweeps), _arrays(s.outputs for s in sweeps)
        if forward:
            steps, arrays = pushed_forward(self.steps, sources)
        else:
            steps, arrays = pulled_back(self.steps, sources, outputs)
        if directions > 1:
            rows = {array: Array(array.name, directions * array.size, array.kind) for array in arrays.values()}
            steps = changed(steps, lambda statement: for_all(statement, rows, directions))
            arrays = {array: rows[derivative] for array, derivative in arrays.items()}
        found = _Found(arrays)
        seeds = [seed for sweep in sweeps for seed in found.seeds(sweep)]
        self.steps += found.begun(seeds, sources if forward else outputs)
        self.steps += only_where_reached([target for target, _ in seeds], steps, arrays.values())
        self.parts |= {sweep.node: found.parts(sweep) for sweep in sweeps}


def _arrays(places: Iterable[Iterable[Place]]) -> list[Array]:
    """The arrays that these places are in."""
    return list(dict.fromkeys(place.array for each in places for place in each if isinstance(place, Access)))


def _levels(graph: Graph) -> list[int]:
    """The stage that each node belongs to: how many derivatives of derivatives it needs."""
    levels: list[int] = []
    for rule, operands in zip(graph.rules, graph.operands, strict=True):
        levels.append(max([levels[operand] for operand in operands], default=0) + isinstance(rule, Derivatives))
    return levels


def _are_independent(graph: Graph, sweeps: list[int]) -> bool:
    """Whether no output of one of these sweeps depends on an input of another."""
    if len(sweeps) == 1:
        return True
    owners: dict[int, set[int]] = {}  # input -> the sweeps that it is one of
    for sweep in sweeps:
        rule = graph.rules[sweep]
        for node in graph.operands[sweep][rule.outputs : rule.outputs + rule.inputs]:
            owners.setdefault(node, set()).add(sweep)
    reached: list[set[int]] = []  # at most two are kept for each node
    for node in range(max(sweeps)):
        found = set(owners.get(node, ()))
        for operand in graph.operands[node]:
            if reached[operand]:
                found = found | reached[operand]
        reached.append(set(list(found)[:2]))
    return all(
        reached[output] <= {sweep} for sweep in sweeps for output in graph.operands[sweep][: graph.rules[sweep].outputs]
    )
