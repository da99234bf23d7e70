"""Lifting: from a scalar graph to an array program.

Every class becomes a statement, in the loop nest that reproduces its operands' positions (base + Σ stride·index);
positions that are not affine stay in a table. A product that is used in one sum only becomes part of that sum: a dot
product. The classes of a recurrence become the body of a `Repeat`, and its times the rows of one array.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Sequence
from functools import cached_property
from math import inf, prod
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.passes.classes import CHAINS, SUM, classify, links_of_differences
from chainrule.compiler.passes.cones import find_cone
from chainrule.compiler.passes.families import Families
from chainrule.compiler.passes.gather import Gathered, gathered, with_inputs
from chainrule.compiler.passes.irregular import IrregularityError
from chainrule.compiler.passes.loop_nests import Factor, inner_loops, outer_loops, rows_together
from chainrule.compiler.passes.order import Order
from chainrule.compiler.passes.outline import Body, Constants, Outlined, leaves_first, outline
from chainrule.compiler.passes.program import (
    NOTHING,
    Access,
    Apply,
    Array,
    ArrayProgram,
    Expression,
    Number,
    Repeat,
    Shape,
    Statement,
    Term,
    row_major,
    without_still_axes,
)
from chainrule.compiler.passes.recurrence import Recurrence, find_recurrences
from chainrule.compiler.passes.repeats import with_running_sums, without_repeats
from chainrule.compiler.passes.waists import by_depth, find_levels
from chainrule.compiler.trace.graph import Graph

MOST_STATEMENTS = 4000  # LLVM takes about a millisecond for each
NODES_OF_MANY = 80  # that each statement stands for, if there are more: they take as long to trace and to lift
MANY_NODES = 300_000  # of a graph, to seek loops before classes, since either takes long where it finds nothing
SEVERAL_NODES = 100_000  # of a graph, to merge its equal nodes without a look at what is found in all of them
VERY_FEW_STATEMENTS = 10  # if classes leave more of them, loops are sought by nodes that are surely sequential
FEW_STATEMENTS = 50  # if they leave more, all loops are
SOME_STATEMENTS = 200  # if loops leave more of them, waists are
GRADIENT = 3  # times the statements are left with the gradient, or almost
PER_STATEMENT, PER_TURN, PER_LOOKUP = 3.0, 0.045, 0.4  # nanoseconds, fitted to elimination, Cholesky's factor, a truss
LEAST_ALONE = 0.25  # differences that are statements, as a share of these, to make sums of them
MANY_LESS = 1.5  # times fewer statements by such sums
LEAST_LINKS = 0.1  # of all nodes, in chains of differences, to make sums of all
LEAST_INSIDE = 0.4  # of all nodes, in loops inside of others, to have much fewer statements by them
MUCH_LESS = 2  # times fewer statements by loops inside of others: a batch keeps less where the outer ones are found
FAR_LESS = 8  # times fewer statements by a loop of which each step needs less, than classes have, to seek no others
FEW_TERMS = 2  # per statement, on average
SOME_MORE = 1.5  # times the statements, for a program that is much faster
MUCH_FASTER = 0.667  # times as long: what is fitted so roughly must not decide on less
MOST_MORE = 1.25  # times the statements, to compute things once: sums of growing lengths are better left alone
MOST_LEVELS = 16, 64  # to cut a graph into: few need fewer copies, many start afresh more often
LEAST_IN_LEVELS = 0.5  # of all nodes: what is outside of the levels has as many statements as before
MANY_LEVELS = 256  # if that leaves so many statements that with their gradient there would be too many
MANY_STATEMENTS = 1000  # for LLVM to take seconds, if it saves microseconds only
LEAST_NODES = 5  # that each of so many statements replaces
LEAST_OF_A_KERNEL = 40  # the same where each statement is a kernel that is started: so many nodes take about as long


def lift(graph: Graph, most_statements: float = MOST_STATEMENTS, merges: bool = True) -> ArrayProgram:
    """The array program that computes the last node of `graph`; an error if it has more than `most_statements`.

    Unless it `merges`, equal nodes stay apart, as they must where a derivative is with respect to one of them.
    """
    _check_rules(graph)
    nodes, order = len(graph), Order(leaves_first(graph))
    if nodes >= MANY_NODES and (few := _at_once(order, merges)):
        return few.program
    merged = without_repeats(graph) if merges else graph
    if merged is not graph and nodes >= SEVERAL_NODES:
        graph, order = merged, Order(leaves_first(merged))
    found = _Lifter(graph)
    if merged is not graph and (once := _Lifter(merged)).statements <= MOST_MORE * found.statements:
        graph, order, found = merged, Order(leaves_first(merged)), once
    order.most = most = max(most_statements, most_of(nodes))
    cone = _cone(order, merges) if GRADIENT * found.statements > MANY_STATEMENTS else None
    if not cone or FAR_LESS * cone.statements > found.statements:
        sums = _with_differences(found, graph)
        found = sums if sums is not found else _with_structure(found, graph, order, merges)
    if cone and MUCH_LESS * cone.statements <= found.statements:
        found = cone
    _check_worth(found.statements, nodes, most)
    found.program.nodes = nodes
    return found.program


def _at_once(order: Order, merges: bool) -> _Lifter | None:
    """What is found in a very large graph without a look at all of its classes, if that is few statements."""
    found = _of_a_large_graph(order) or _cone(order, merges)
    return found if found and found.statements <= FEW_STATEMENTS else None


def _cone(order: Order, merges: bool) -> _Lifter | None:
    """What is found with a loop of which each step needs less than the one before, in a few parts.

    It computes things that nobody needs. A statement for each step is faster, if LLVM does not take seconds for them.
    """
    completed = find_cone(order.graph, merges)
    outlined = outline(*completed, lift_body) if completed else None
    return _Lifter(outlined) if outlined else None


def _with_structure(found: _Lifter, graph: Graph, order: Order, merges: bool) -> _Lifter:
    """What is found with ends gathered, loops by nodes, running sums and levels, wherever that has fewer statements."""
    classes = found.classes
    found = _with_loops(_with_gathered(found, graph), order)
    if found.statements > SOME_STATEMENTS:
        found = _fewer(found, with_inputs(graph, classes))
    running = with_running_sums(graph) if merges and found.statements > FEW_STATEMENTS else graph
    if running is not graph:
        later = Order(leaves_first(running), order.most)
        once = _with_loops(_with_gathered(_Lifter(running), running), later)
        if once.statements <= MOST_MORE * found.statements:
            order, found = later, once
    if found.statements > SOME_STATEMENTS:
        ordered = by_depth(order.graph)
        for most in (*MOST_LEVELS, MANY_LEVELS):
            if most == MANY_LEVELS and GRADIENT * found.statements < MOST_STATEMENTS:
                break
            levels = find_levels(ordered, most)
            if sum([level.size for level in levels]) >= LEAST_IN_LEVELS * len(ordered):
                found = _fewer(found, outline(ordered, levels, lift_body, order.fewer_than(found.statements)))
    return found


def most_of(nodes: int) -> int:
    """How many statements a program of so many nodes may have: more than most, if to trace it took longer yet."""
    return nodes // NODES_OF_MANY


def _of_a_large_graph(order: Order) -> _Lifter | None:
    """With loops of which each time needs much of the one before: classes of so many nodes take seconds to find."""
    outlined = outline(order.graph, [loop for loop in order.loops if loop.is_sequential], lift_body)
    found = _Lifter(outlined) if outlined else None
    if found and found.statements <= FEW_STATEMENTS:
        return found
    return _of_a_large_graph(order.later) if order.later else None


def _with_loops(found: _Lifter, order: Order) -> _Lifter:
    """What is found with loops by nodes, if that has fewer statements."""
    if found.statements > VERY_FEW_STATEMENTS:
        loops = order.loops
        if found.statements <= FEW_STATEMENTS:  # classes found something good; only such loops are better
            loops = [loop for loop in loops if loop.is_sequential]
        found = _fewer(found, outline(order.graph, loops, lift_body, order.fewer_than(found.statements)))
    if found.statements > FEW_STATEMENTS and (later := order.later):
        found = _fewer(found, outline(later.graph, later.loops, lift_body, order.fewer_than(found.statements)))
    if found.statements > SOME_STATEMENTS:
        found = _with_loops_inside(found, order)
    return found


def _with_loops_inside(found: _Lifter, order: Order) -> _Lifter:
    """What is found with loops inside of loops, if that has much fewer statements; loops of few nodes have not."""
    most, loops = min(found.statements / MUCH_LESS, order.most), order.loops_inside
    if sum([loop.count * int(loop.kept.sum()) for loop in loops]) < LEAST_INSIDE * len(order.graph):
        return found
    inside = _fewer(found, outline(order.graph, loops, lift_body, most))
    return inside if inside.statements <= most else found


def _with_gathered(found: _Lifter, graph: Graph) -> _Lifter:
    """What is found in a graph with the ends of chains gathered, if that has fewer statements."""
    return _fewer(found, gathered(graph, found.classes)) if found.statements > FEW_STATEMENTS else found


def _with_differences(found: _Lifter, graph: Graph) -> _Lifter:
    """What is found if chains of differences are sums, if these have few terms.

    As the rows of a back substitution: in `s = s - a[i][j] * x[j]` every difference waits for another number, and is a
    statement. Where others are alike, as in an elimination, sums must be much faster.
    """
    if found.statements <= FEW_STATEMENTS:
        return found
    links = links_of_differences(graph)
    sizes, of = found.classes.sizes, found.classes.of
    alone = {link for link in links if of[link] >= 0 and sizes[of[link]] == 1}
    if len(alone) >= LEAST_ALONE * found.statements:
        sums = _Lifter(graph, links=alone)
        if MANY_LESS * sums.statements <= found.statements and _has_few_terms(sums):
            found = sums
    if len(links) >= LEAST_LINKS * len(graph):
        sums = _Lifter(graph, links=set(links))
        if sums.statements <= SOME_MORE * found.statements and _has_few_terms(sums):
            found = sums if duration(sums.program) < MUCH_FASTER * duration(found.program) else found
    return found


def _has_few_terms(found: _Lifter) -> bool:
    """Whether sums are short on average: a gradient has a statement for each term."""
    return sum([len(statement.terms) for statement in found.program.statements]) <= FEW_TERMS * found.statements


def duration(program: ArrayProgram) -> float:
    """About how many nanoseconds a run takes."""
    total = 0.0
    for step in program.steps:
        for statement in step.body:
            turns = prod(statement.loops) * sum([prod(term.loops) for term in statement.terms])
            total += step.count * (PER_STATEMENT + (PER_TURN if statement.affine else PER_LOOKUP) * turns)
    return total


def _check_worth(statements: int, nodes: int, most_statements: float) -> None:
    """Refuse more statements than `most_statements`, and many of few nodes each."""
    is_little = statements > MANY_STATEMENTS and statements * LEAST_NODES > nodes
    if statements > most_statements or (is_little and most_statements < inf):
        raise IrregularityError.of_so_many(statements)


def check_kernels(program: ArrayProgram, graph: Callable[[], Graph]) -> None:
    """Refuse a program of many statements for the nodes of this graph, if a kernel for each takes longer to start."""
    statements = len(program.statements)
    if statements > SOME_STATEMENTS and statements * LEAST_OF_A_KERNEL > len(graph()):
        trouble = "to start a kernel for each would take longer than the nodes do"
        raise IrregularityError.of_so_many(statements, trouble)


def _fewer(found: _Lifter, outlined: Graph | None) -> _Lifter:
    """Whichever has fewer statements."""
    return min(found, _Lifter(outlined), key=lambda lifter: lifter.statements) if outlined else found


def _check_rules(graph: Graph) -> None:
    """Refuse ops of users that cannot be computed for many numbers at once."""
    for rule in {*graph.rules}:
        if isinstance(rule, ops.Op) and rule.code >= len(ops.BUILT_IN) and not rule.is_general:
            raise IrregularityError(f"the rule of `{rule.name}` is for floats alone, or branches on its operands")


def lift_body(body: Graph, exports: Sequence[int], names: str) -> Body:
    """One time of a loop, which leaves the nodes in `exports` somewhere."""
    lifter = _Lifter(body, in_time=False, names=names)
    classes = lifter.classes
    stored = [k for k in range(len(classes) - 1) if classes.slots[k] and not lifter.is_inlined(k)]
    for k in stored:
        lifter.place(k)  # which numbers the arrays in the order of their statements
    rows = [(*lifter.place(int(classes.of[node])), int(classes.position[node])) for node in exports]
    places = [(array, offset + position) for array, offset, position in rows]
    count = sum([len(lifter.families.parts.get(k, [0])) for k in stored])

    def place(node: int) -> tuple[Array, int] | None:
        k = int(classes.of[node])
        if k < 0 or not classes.slots[k] or lifter.is_inlined(k):
            return None
        array, offset = lifter.place(k)
        return array, offset + int(classes.position[node])

    return Body(count, places, lambda: [statement for k in stored for statement in lifter.stores(k)], place)


class _Lifter:
    """Turns classes into statements."""

    def __init__(self, graph: Graph, in_time: bool = True, names: str = "v", links: Container[int] = ()) -> None:
        self.names = names  # of arrays start like this
        self.classes = classes = classify(graph, links)
        recurrences = find_recurrences(classes) if in_time else []
        self.recurrences = {run.start: run for run in recurrences}
        self.arrays: dict[int, Array] = {}
        self.starts = [run.start for run in recurrences]
        before = [(run, place, rows) for run in recurrences for place, rows in run.before.items()]
        self.ahead = {place - k * run.period: run for run, place, rows in before for k in range(1, rows + 1)}
        self.families = Families(classes, self._without_time())
        self.leaves: dict[str, Array] = {}
        self.root = int(classes.of[-1])
        self.numbers = np.zeros((1, 0))  # the constants, by time
        for index, kind in enumerate(classes.kinds):
            if kind == "constant":
                members = classes.members[classes.starts[index] : classes.starts[index + 1]].tolist()
                self.numbers = np.array([_by_time(graph.nodes[member]) for member in members]).T
            elif isinstance(kind, Array):  # what a loop has computed, or reads from outside
                self.arrays[index] = kind
            elif isinstance(kind, str) and kind not in CHAINS:
                self.leaves[kind] = self.arrays[index] = Array(kind, int(classes.sizes[index]), kind)
        self.given = len(self.arrays)
        self.tables = 0  # how many arrays of constants there are
        self.lookups: list[Statement] = []  # for the next recurrence
        self.copies = 0  # how many arrays of looked up numbers there are

    def _without_time(self) -> np.ndarray:
        """Which classes are computed, and are no part of a recurrence's arrays."""
        free = np.array([isinstance(kind, ops.Op) or kind == SUM for kind in self.classes.kinds])
        for run in self.recurrences.values():
            free[run.start : run.stop] = False
        free[[*self.ahead, *self.classes.silent]] = False
        return free

    @cached_property
    def statements(self) -> int:
        """How many statements the program will have."""
        stored = ~self.classes.inlined & (np.diff(self.classes.slot_starts) > 0)  # leaves have no slots
        stored[list(self.families.products)] = False
        for run in self.recurrences.values():
            stored[run.start + run.period : run.stop] = False  # the first time stands for all
        count = int(stored.sum()) + sum([len(parts) - 1 for parts in self.families.parts.values()])
        for index, kind in enumerate(self.classes.kinds):
            if isinstance(kind, Outlined | Gathered):
                rows = [(self.row(operand), position) for operand, position in self.reads(index)]
                sources = [(first, position + offset) for (first, offset, _), position in rows]
                count += kind.count_entries(sources) - 1 + kind.count
        return count

    @cached_property
    def program(self) -> ArrayProgram:
        """What the classes compute."""
        steps: list[Statement | Repeat] = []
        index = 0
        while index < len(self.classes):
            run = self.recurrences.get(index)
            if run:
                body = [each for k in run.body if not self.is_inlined(k) for each in self.stores(k, run)]
                steps += [*self.lookups, Repeat(run.count, body)]
                self.lookups = []
            elif isinstance(kind := self.classes.kinds[index], Outlined | Gathered):
                steps += [*self.entry(index, kind), *kind.steps]
            elif self.classes.slots[index] and not self.is_inlined(index):
                steps += self.stores(index)
            index = run.stop if run else index + 1
        output, offset = self.place(self.root)
        if output.size > 1:  # a row of a recurrence
            last, output = Access(output, offset, ()), Array("output", 1, "value")
            steps.append(Statement(Access(output, 0, ()), (), [Term(last)]))
        return ArrayProgram(steps, self.leaves, output)

    def entry(self, index: int, loop: Outlined | Gathered) -> Iterator[Statement]:
        """Statements that hand to a loop, or gather, what it reads."""
        numbers = Array(f"k{index}", self.numbers.shape[1], "constant", self.numbers[0])
        sources = []
        for operand, position in self.reads(index):
            array, offset = (numbers, 0) if self.classes.kinds[operand] == "constant" else self.place(operand)
            sources.append((array, position + offset))
        yield from loop.entries(sources)

    def reads(self, index: int) -> list[tuple[int, int]]:
        """What a loop reads from outside: classes, and positions in them."""
        classes = [operand for operand, _, _ in self.classes.slots[index]]
        return [*zip(classes, self.classes.rows(index)[0].tolist(), strict=True)]

    def is_inlined(self, index: int) -> bool:
        """Whether a class is a product that is part of a sum, and in a recurrence of one at the same time."""
        if index in self.families.products:
            return True
        if not self.classes.inlined[index]:
            return False
        reader = int(self.classes.users[index])
        here = self.recurrence(index)
        return here is self.recurrence(reader) and (here is None or here.place(index)[1] == here.place(reader)[1])

    def recurrence(self, index: int) -> Recurrence | None:
        """The recurrence that a class is part of."""
        k = bisect_right(self.starts, index)
        run = self.recurrences[self.starts[k - 1]] if k else None
        return run if run and index < run.stop else None

    def place(self, index: int) -> tuple[Array, int]:
        """The array that a class is stored in, and where in it."""
        first, offset, size = self.row(index)
        return self.array(first, size), offset

    def row(self, index: int) -> tuple[int, int, int]:
        """The class whose array a class is stored in, where in it, and the array's size."""
        if index in self.families.rows:
            return self.families.rows[index]
        run = self.recurrence(index) or self.ahead.get(index)
        size = int(self.classes.sizes[index])
        if run is None:
            return index, 0, size
        first, time = run.place(index)
        return first, (time + run.before.get(first, 0)) * size, run.rows(first) * size

    def array(self, index: int, size: int) -> Array:
        if index not in self.arrays:
            self.arrays[index] = Array(f"{self.names}{len(self.arrays) - self.given}", size, "value")
            self.arrays[index].silent = index in self.classes.silent
        return self.arrays[index]

    def stores(self, index: int, run: Recurrence | None = None) -> Iterator[Statement]:
        """One statement for all members of a class, or one for each of its parts."""
        slots = [self.factors(index, k, columns, run) for k, columns in enumerate(self.classes.columns(index))]
        for part in self.families.parts.get(index, [(0, int(self.classes.sizes[index]))]):
            yield self.statement(index, [[factor.of(*part) for factor in factors] for factors in slots], part, run)

    def statement(
        self, index: int, slots: list[list[Factor]], part: tuple[int, int], run: Recurrence | None
    ) -> Statement:
        """A statement for the members of a part, in the loop nest that reproduces their operands' positions."""
        kind, count = self.classes.kinds[index], part[1] - part[0]
        signs = [sign for _, sign, _ in self.classes.slots[index]]
        if kind in CHAINS and index not in self.classes.lengths:
            slots, signs = rows_together(slots, signs)
        loops, outer = outer_loops(slots, count)
        terms = [self.term(factors, loops, strides) for factors, strides in zip(slots, outer, strict=True)]
        if index in self.classes.lengths and kind == SUM:  # repeating a term does not change the largest
            self.mask(terms, self.classes.lengths[index], loops)
        array, offset = self.place(index)
        target = Access(array, offset + part[0], row_major(loops), repeat=count if run else 0)
        if kind not in CHAINS:
            return Statement(target, loops, [Term(Apply(kind, tuple([term.expression for term in terms])))])
        for term, sign in zip(terms, signs, strict=True):
            term.sign = sign
        return Statement(target, loops, terms, join=ops.add if kind == SUM else ops.larger)

    def factors(self, index: int, slot: int, columns: np.ndarray, run: Recurrence | None) -> list[Factor]:
        """What a slot reads, in its columns: two factors for a product that is part of the sum, otherwise one."""
        operand = self.classes.slots[index][slot][0]
        if not self.is_inlined(operand):
            return [self.factor(index, slot, columns, run)]
        members = self.classes.rows(index)[:, columns]
        return [self.factor(operand, side, np.array([side]), run, members) for side in (0, 1)]

    def factor(
        self, index: int, slot: int, columns: np.ndarray, run: Recurrence | None, members: np.ndarray | None = None
    ) -> Factor:
        """What a slot reads in all members of its class, or in the given `members`."""
        starts = self.classes.row_starts[index : run.stop : run.period] if run else self.classes.row_starts[index][None]
        size, width = int(self.classes.sizes[index]), int(self.classes.widths[index])
        places = np.arange(size)[:, None] * width + columns
        if members is not None:
            places = places[members, 0]
        operand = self.classes.slots[index][slot][0]
        if self.classes.kinds[operand] == "constant":
            return Factor(None, self.constants(self.classes.operands[starts[:, None, None] + places]))
        array, offset = self.place(operand)
        positions = self.classes.operands[starts[0] + places] + offset
        if run is None:
            return Factor(array, positions)
        step = run.steps[index][slot]
        if step.distance is None:
            return self.looked_up(array, self.classes.operands[starts[:, None, None] + places] + offset)
        return Factor(array, positions, step.distance + step.follows * int(self.classes.sizes[operand]))

    def constants(self, positions: np.ndarray) -> np.ndarray:
        """The constants at these positions, by time, member and term."""
        return self.numbers[0, positions] if len(self.numbers) == 1 else self.numbers[:, positions[0]]

    def looked_up(self, array: Array, positions: np.ndarray) -> Factor:
        """What a recurrence looks up, by time, member and term, copied before it starts: a row for each time."""
        self.copies += 1
        rows = Array(f"w{self.copies}", positions.size, "value")
        read = Access(array, 0, (1,), positions.reshape(-1))
        self.lookups.append(Statement(Access(rows, 0, (1,)), (positions.size,), [Term(read)]))
        width = positions[0].size
        return Factor(rows, np.arange(width).reshape(positions.shape[1:]), width)

    def term(self, factors: list[Factor], loops: Shape, outer: list[Shape] | None) -> Term:
        """A run of terms; `outer` holds the variable factors' strides in the statement's loops, or None for a table."""
        inner, strides = inner_loops(factors, outer)
        operands: list[Expression] = []
        for array, positions, repeat in factors:
            if array is None:
                operands.append(self.constant(positions.reshape(-1, *loops, *inner)))
            elif strides is None:
                operands.append(Access(array, 0, row_major(loops + inner), positions.reshape(-1), repeat))
            else:
                operands.append(Access(array, positions[0, 0], next(strides), repeat=repeat))
        if len(operands) > 1:
            return Term(Apply(ops.mul, tuple(operands)), inner)
        zero = isinstance(operands[0], Number) and operands[0].value == 0.0  # what `sum` starts with
        return Term(operands[0], () if zero else inner)

    def mask(self, terms: list[Term], lengths: np.ndarray, loops: Shape) -> None:
        """Mask the terms that only pad the rows of a ragged sum."""
        for term, real in zip(terms, lengths.T, strict=True):
            width = prod(term.loops)
            if (real < width).any():
                mask = (np.arange(width) < real[:, None]).astype(np.float64)
                chosen = self.constant(mask.reshape(1, *loops, *term.loops), "mask")
                term.expression = Apply(ops.where, (chosen, term.expression, Number(NOTHING)))

    def constant(self, numbers: np.ndarray, kind: str = "constant") -> Expression:
        """Numbers by time and loop index: one number if all are equal, else an array without redundant axes."""
        dense, (time, *strides) = without_still_axes(numbers)
        if len(dense) == 1:
            return Number(float(dense[0]))
        self.tables += 1
        name = f"{self.names.rstrip('v')}{kind[0]}{self.tables}"
        return Access(Array(name, len(dense), kind, dense), 0, strides, repeat=time)


def _by_time(constant: Any) -> np.ndarray:
    return constant.numbers if isinstance(constant, Constants) else np.array([constant.data])
