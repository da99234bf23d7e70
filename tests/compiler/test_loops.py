"""Loops found by their nodes, where classes show no pattern: boundaries, several steps back, lookups. And levels."""

import math
import random
from itertools import pairwise

import numpy as np
import pytest

import chainrule
from chainrule import Value
from chainrule.compiler import compile
from chainrule.compiler.passes import lift as lifting
from chainrule.compiler.passes import order
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.passes.loops import _Search, find_loops
from chainrule.compiler.passes.outline import Outlined, leaves_first
from chainrule.compiler.passes.program import Repeat
from chainrule.compiler.passes.repeats import without_repeats
from chainrule.compiler.passes.waists import by_depth, find_levels
from chainrule.compiler.trace.graph import graph_of


def leaves(count):
    return [Value(0.1 + (7 * k % 5) / 5) for k in range(count)]


def assert_equals_eager(loss, parameters):
    loss.backward()
    value, gradient = compile(loss, parameters).value_and_grad()
    assert value == pytest.approx(loss.data, rel=1e-12)
    np.testing.assert_allclose(gradient, [p.grad for p in parameters], rtol=1e-10, atol=1e-12)


def rod(steps, n=9):
    """The heat equation between two fixed ends."""
    rate, *u = parameters = leaves(n + 1)
    for _ in range(steps):
        u = [u[0], *(u[i] + 0.2 * rate * (u[i - 1] - 2 * u[i] + u[i + 1]) for i in range(1, n - 1)), u[-1]]
    return sum(x * x for x in u), parameters


def plate(steps, n=7):
    """The same on a square, with rates that differ from cell to cell."""
    parameters = leaves(2 * n * n)
    u, rates = ([part[n * i : n * i + n] for i in range(n)] for part in (parameters[: n * n], parameters[n * n :]))
    for _ in range(steps):
        new = [row[:] for row in u]
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                around = u[i - 1][j] + u[i + 1][j] + u[i][j - 1] + u[i][j + 1]
                new[i][j] = u[i][j] + 0.1 * rates[i][j] * (around - 4 * u[i][j])
        u = new
    return sum(x * x for row in u for x in row), parameters


def implicit(steps, n=9):
    """Implicit steps, each of which goes forth through the rod and back."""
    rate, *u = parameters = leaves(n + 1)
    for _ in range(steps):
        c, d = [rate / (1 + 2 * rate)], [u[0] / (1 + 2 * rate)]
        for i in range(1, n):
            pivot = 1 + 2 * rate - rate * c[-1]
            d.append((u[i] + rate * d[-1]) / pivot)
            c.append(rate / pivot)
        u = [d[-1]]
        for i in reversed(range(n - 1)):
            u.insert(0, d[i] + c[i] * u[0])
    return sum(x * x for x in u), parameters


def rotations(n):
    """Givens: columns are cleared one after another, by rotations of ever shorter rows."""
    parameters = leaves(n * n)
    a = [[x + 3.0 * (j == i) for j, x in enumerate(parameters[n * i : n * i + n])] for i in range(n)]
    for j in range(n):
        for i in range(j + 1, n):
            radius = (a[j][j] * a[j][j] + a[i][j] * a[i][j]).sqrt()
            c, s = a[j][j] / radius, a[i][j] / radius
            for k in range(j, n):
                a[j][k], a[i][k] = c * a[j][k] + s * a[i][k], c * a[i][k] - s * a[j][k]
    return sum((k + 1.0) * a[k][k].abs() for k in range(n)), parameters


def string(steps, n=8):
    """The wave equation: each step reads two steps back."""
    speed, *u = parameters = leaves(2 * n + 1)
    old, u = u[:n], u[n:]
    for _ in range(steps):
        inner = [2 * u[i] - old[i] + speed * (u[i - 1] - 2 * u[i] + u[i + 1]) for i in range(1, n - 1)]
        old, u = u, [u[0], *inner, u[-1]]
    return sum(x * x for x in u), parameters


def heated_rod(steps, n=9):
    """Ends that are plain numbers, and a source that is another number at each step."""
    rate, *u = parameters = leaves(n + 1)
    u[0] = u[-1] = 0.25
    for step in range(steps):
        inner = [u[i] + rate * (u[i - 1] - 2 * u[i] + u[i + 1]) + 0.01 * step for i in range(1, n - 1)]
        u = [0.25, *inner, 0.25]
    return sum(x * x for x in u), parameters


def alignment(steps, n=6):
    """Two sequences, cell by cell: a row reads the row before, and its own left neighbour."""
    parameters = leaves(steps + n)
    above = [0.0] + [3.0] * n
    for a in parameters[:steps]:
        row = [3.0]
        for j, b in enumerate(parameters[steps:]):
            row.append((a - b) ** 2 - chainrule.logsumexp([-above[j], -above[j + 1], -row[-1]]))
        above = row
    return above[-1], parameters


def next_letters(steps, n=3):
    """A recurrent net; the letter that comes next picks one of its outputs."""
    parameters = leaves(3 * n * n)
    inner, outer, letters = (
        [parameters[n * n * part + n * i : n * n * part + n * i + n] for i in range(n)] for part in range(3)
    )
    text = [(5 * k + k // 3) % n for k in range(steps + 1)]
    state, total = letters[0], Value(0.0)
    for now, after in pairwise(text):
        state = [(letters[now][i] + sum(w * s for w, s in zip(inner[i], state, strict=True))).tanh() for i in range(n)]
        outputs = [sum(w * s for w, s in zip(row, state, strict=True)) for row in outer]
        total = total + chainrule.logsumexp(outputs) - outputs[after]
    return total, parameters


def ranks(steps, n=20):
    """Pages to which many others link, or few: sums of different lengths in each step."""
    damping, *weights = parameters = leaves(3 * n + 1)
    rng = random.Random(12)
    links = [(k // 3, rng.randrange(n), weight) for k, weight in enumerate(weights)]
    rank = [1.0 / n] * n
    for _ in range(steps):
        new = [(1.0 - damping) / n] * n
        for page, other, share in links:
            new[other] = new[other] + damping * share * rank[page]
        rank = new
    return sum((k + 1.0) * r * r for k, r in enumerate(rank)), parameters


PROGRAMS = [ranks, rod, plate, string, heated_rod, alignment, next_letters]


@pytest.mark.parametrize("backend", ["llvm", "interpreter"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_they_compute_what_eager_code_does(program, backend):
    loss, parameters = program(20)
    loss.backward()
    value, gradient = compile(loss, parameters, backend=backend).value_and_grad()
    assert value == pytest.approx(loss.data, rel=1e-12)
    np.testing.assert_allclose(gradient, [p.grad for p in parameters], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("program", "times", "state"),
    [(rod, 20, 9), (plate, 20, 47), (string, 20, 14), (heated_rod, 20, 7), (alignment, 18, 6), (next_letters, 19, 3)],
)
def test_loops_hold_and_hand_over_what_a_person_would(program, times, state):
    graph = leaves_first(graph_of(*program(20)))
    (loop,) = [loop.verify(graph) for loop in find_loops(graph)]
    assert (loop.count, len(loop.state)) == (times, state)


@pytest.mark.parametrize("program", PROGRAMS)
def test_statements_are_counted_before_they_are_written(program):
    graph = leaves_first(graph_of(*program(20)))
    rules = lifting.outline(graph, find_loops(graph), lifting.lift_body).rules
    (loop,) = [rule for rule in rules if isinstance(rule, Outlined)]
    assert loop.count == sum(len(step.body) for step in loop.steps)


def cells(steps, n=12):
    """A ring whose cells do much with the little that they hand over."""
    rate, *state = parameters = leaves(n + 1)
    for _ in range(steps):
        before, state = state, []
        for i in range(n):
            flow = rate * (before[i - 1] - before[i])
            for op in (chainrule.tanh, chainrule.sin, chainrule.exp, chainrule.cos, chainrule.sigmoid):
                flow = op(0.1 * flow) + rate * flow
            state.append(before[i] + flow)
    return sum(u * u for u in state), parameters


def test_a_step_is_part_of_a_loop_even_if_little_is_handed_over():
    loss, parameters = cells(20)
    program = lift(graph_of(loss, parameters)).verify()
    (loop,) = [step for step in program.steps if isinstance(step, Repeat)]
    assert loop.count == 20
    assert_equals_eager(loss, parameters)


@pytest.mark.parametrize("program", [rod, plate, string, heated_rod, next_letters])
def test_more_steps_are_no_more_statements(program):
    short, long = (lift(graph_of(*program(steps))).verify() for steps in (40, 80))
    assert len(short.statements) == len(long.statements) < 60


def test_the_program_is_as_a_person_would_write_it():
    assert str(lift(graph_of(*rod(30)))) == "\n".join(
        [
            "i<9: x1[i] = parameter[1+i]",
            "s1[0] = parameter[0]",
            "repeat r<30:",
            "  i<7: u1_0[7r+i] = 0.2·s1[0]",
            "  i<7: u1_1[7r+i] = x1[9r+i] - 2·x1[1+9r+i]",
            "  i<7: u1_2[7r+i] = u1_1[7r+i] + x1[2+9r+i]",
            "  i<7: u1_3[7r+i] = x1[1+9r+i] + u1_0[7r+i]·u1_2[7r+i]",
            "  i<2: x1[9+9r+8i] = x1[9r+8i]",
            "  i<7: x1[10+9r+i] = u1_3[7r+i]",
            "v0[0] = 0 + Σi<2 parameter[1+8i]·parameter[1+8i] + Σi<7 x1[271+i]·x1[271+i]",
        ]
    )


@pytest.mark.parametrize("phase", range(3))
def test_loops_of_one_period_that_follow_each_other_have_no_node_in_common(phase, monkeypatch):
    """The products at the end of the first are like those of the second, so the stretches of equal ops overlap."""
    monkeypatch.setattr(_Search, "phase", lambda self, start, stop, period: phase if start < 10 else 0)
    a, b = Value(0.9), Value(0.8)
    x = Value(0.5)
    for _ in range(6):
        x = chainrule.tanh(x * a) - b
    for _ in range(6):
        x = chainrule.sin(x * a) / b
    graph = leaves_first(graph_of(x + a, (a, b)))
    loops = find_loops(graph)
    assert len(loops) == 2
    assert all(one.stop <= other.start for one, other in pairwise(loops))


def test_a_loop_that_does_not_hold_is_noticed():
    graph = leaves_first(graph_of(*rod(20)))
    (loop,) = find_loops(graph)
    loop.statics = [node + 1 for node in loop.statics]
    with pytest.raises(AssertionError, match="does not read"):
        loop.verify(graph)


def test_functions_and_batches_of_them():
    rate = Value(0.1)

    @compile
    def heat(u):
        for _ in range(40):
            u = [u[0], *(u[i] + rate * (u[i - 1] - 2 * u[i] + u[i + 1]) for i in range(1, len(u) - 1)), u[-1]]
        return sum(x * x for x in u)

    rods = np.random.default_rng(1).normal(size=(5, 12))
    value, gradient = heat.batch_value_and_grad(rods, reduce="sum")
    rate.grad = 0.0
    total = sum(heat.function([Value(x) for x in row]) for row in rods.tolist())
    total.backward()
    assert heat.stats["array statements"] < 100
    assert value == pytest.approx(total.data, rel=1e-12)
    assert gradient[0] == pytest.approx(rate.grad, rel=1e-10)


def spectrum(n):
    """A fast Fourier transform, and half of its energy."""

    def transform(xs):
        if len(xs) == 1:
            return xs
        even, odd = transform(xs[::2]), transform(xs[1::2])
        turned = []
        for k, (re, im) in enumerate(odd):
            c, s = math.cos(2 * math.pi * k / len(xs)), -math.sin(2 * math.pi * k / len(xs))
            turned.append((re * c - im * s, re * s + im * c))
        pairs = list(zip(even, turned, strict=True))
        lower = [(a + b, c + d) for (a, c), (b, d) in pairs]
        return lower + [(a - b, c - d) for (a, c), (b, d) in pairs]

    parameters = leaves(n)
    return sum(re * re + im * im for re, im in transform([(x, x * 0.0) for x in parameters])[: n // 2]), parameters


def test_levels_start_afresh_where_few_numbers_are_alive():
    shorter, longer = (len(lift(graph_of(*spectrum(n))).verify().statements) for n in (128, 256))
    assert shorter < longer < shorter + 20 < 200  # a few more for one more level, not twice as many
    loss, parameters = spectrum(64)
    assert_equals_eager(loss, parameters)


def repeated(strikes):
    """A function that does not depend on the strike, computed again for each."""
    a, b, *ks = parameters = leaves(strikes + 2)

    def slow(u):
        return (a * u).sin() * (b * u + 1.0).exp() / (1.0 + (a * u) * (a * u))

    total = 0.0
    for k in ks:
        total = total + sum(slow(0.1 * j) * chainrule.cos(k * (0.1 * j)) for j in range(1, 30))
    return total, parameters


def test_what_is_computed_again_and_again_is_computed_once():
    (loss, parameters), graph = repeated(16), graph_of(*repeated(16))
    numbered = without_repeats(graph).verify()
    assert len(numbered) < len(graph) / 2
    assert len(numbered.leaves("parameter")) == len(parameters)
    assert without_repeats(graph_of(*rod(20))).rules == graph_of(*rod(20)).rules  # 0.2 * rate in each cell is little
    assert_equals_eager(loss, parameters)


def test_constants_are_equal_only_if_their_bits_are():
    x = Value(3.0)
    loss = sum((x * zero).atan2(-1.0) + (x * zero).atan2(-1.0) for zero in (0.0, -0.0, 0.0))
    assert compile(loss)() == loss.data == pytest.approx(2 * math.pi)


def bridge(size):
    """Loads and a matrix with many zeros, solved by elimination."""
    xs = [Value(0.5 + 0.1 * k) for k in range(size)]
    rows = [[0.0] * size for _ in xs]
    for k, x in enumerate(xs):
        for i, j in ((k, k), (k, (k + 1) % size), ((k + 1) % size, k), ((k + 3) % size, (k + 3) % size)):
            rows[i][j] += x * x if i == j else -0.3 * x
    loads = [0.1] * size
    for k in range(size):
        for i in range(k + 1, size):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [b - factor * a if j > k else b for j, (a, b) in enumerate(zip(rows[k], rows[i], strict=True))]
            loads[i] = loads[i] - factor * loads[k]
    return sum(load * load for load in loads), xs


def test_an_elimination_is_cut_into_few_levels(monkeypatch):
    """Whatever its elements are made of; there is a waist after each step."""
    loss, xs = bridge(24)
    graph = graph_of(loss, xs)
    monkeypatch.setattr(lifting, "find_cone", lambda graph, merges: None)  # a loop of shrinking steps, elsewhere
    cut = len(lift(graph).verify().statements)
    monkeypatch.setattr(lifting, "MOST_LEVELS", ())
    assert cut < len(lift(graph, math.inf).statements) / 2
    monkeypatch.undo()
    ordered = by_depth(leaves_first(graph))
    assert 1 < len(find_levels(ordered, 16)) < len(find_levels(ordered, 1000))
    assert_equals_eager(loss, xs)


def test_many_levels_are_tried_only_where_few_leave_too_much(monkeypatch):
    tried = []
    monkeypatch.setattr(lifting, "find_levels", lambda graph, most: tried.append(most) or find_levels(graph, most))
    graph = graph_of(*bridge(24))
    few = len(lift(graph).statements)
    assert tried == [16, 64]
    monkeypatch.setattr(lifting, "MOST_STATEMENTS", 3 * few)
    assert len(lift(graph, math.inf).verify().statements) <= few
    assert tried[2:] == [16, 64, 256]


def test_what_is_handed_to_loops_counts_when_they_are_given_up():
    graph = leaves_first(graph_of(*bridge(24)))
    ordered = by_depth(graph)
    levels = find_levels(ordered, 16)
    count = lifting._Lifter(lifting.outline(ordered, levels, lifting.lift_body)).statements
    bodies = sum(
        [rule.count for rule in lifting.outline(ordered, levels, lifting.lift_body).rules if isinstance(rule, Outlined)]
    )
    assert bodies < count
    assert lifting.outline(ordered, levels, lifting.lift_body, count) is not None
    assert lifting.outline(ordered, levels, lifting.lift_body, bodies) is None


def test_what_can_wait_is_not_lifted_again_where_the_same_loops_come_of_it(monkeypatch):
    graph = leaves_first(graph_of(*bridge(6)))
    found = order.Order(graph)
    monkeypatch.setattr(order, "postponed", lambda graph: graph.reordered(range(len(graph))))
    assert found.later is None


class TestLoopsInside:
    """Loops inside of loops, of which one reads what another has computed."""

    @pytest.fixture
    def always(self, monkeypatch):
        def outlined(found, order):
            graph = lifting.outline(order.graph, order.loops_inside, lifting.lift_body)
            return lifting._Lifter(graph) if graph else found

        monkeypatch.setattr(lifting, "_with_loops", outlined)

    @pytest.mark.usefixtures("always")
    @pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 11, 13])
    def test_they_compute_what_eager_code_computes(self, n):
        assert_equals_eager(*implicit(5, n))
        if n <= 7:
            loss, parameters = rotations(n)
            loss.backward()
            value, gradient = compile(loss, parameters).value_and_grad()
            expected = np.array([p.grad for p in parameters])
            assert value == pytest.approx(loss.data, rel=1e-11)
            np.testing.assert_allclose(gradient, expected, atol=1e-9 * np.abs(expected).max())

    def test_they_hold(self):
        for loss, parameters in (implicit(5, 11), rotations(9)):
            graph = leaves_first(graph_of(loss, parameters))
            loops = find_loops(graph, inside=True)
            assert len(loops) >= 4
            for loop in loops:
                loop.verify(graph)

    def test_each_sweep_is_one(self):
        loops = find_loops(leaves_first(graph_of(*implicit(5, 30))), inside=True)
        assert [loop.count for loop in loops] == [28, 29] * 5

    def test_each_column_is_cleared_in_one(self):
        loops = find_loops(leaves_first(graph_of(*rotations(12))), inside=True)
        assert [loop.count for loop in loops] == [10, 9, 8, 7, 6, 5, 4]

    def test_very_many_are_not_worth_it(self, monkeypatch):
        graph = leaves_first(graph_of(*rotations(12)))
        monkeypatch.setattr("chainrule.compiler.passes.loops.MOST_LOOPS", 7)
        assert len(find_loops(graph, inside=True)) == 7
        monkeypatch.setattr("chainrule.compiler.passes.loops.MOST_LOOPS", 6)
        assert find_loops(graph, inside=True) == []

    def test_the_number_of_statements_does_not_grow_with_the_rod(self):
        few, many = (len(lift(graph_of(*implicit(20, n))).verify().statements) for n in (160, 240))
        assert few == many < 400

    def test_it_grows_with_the_columns_and_not_with_pairs_of_rows(self):
        counts = [len(lift(graph_of(*rotations(n))).statements) for n in (16, 20, 24)]
        assert counts[2] - counts[1] == counts[1] - counts[0] <= 4 * 17

    def test_what_takes_long_to_trace_may_have_more_statements(self, monkeypatch):
        """LLVM's time on them is then no more than that of the rest."""
        loss, parameters = rotations(12)
        monkeypatch.setattr("chainrule.compiler.pipeline.MOST_STATEMENTS", 100)
        assert "node by node" in compile(loss, parameters).stats
        monkeypatch.setattr(lifting, "NODES_OF_MANY", 1)
        assert "node by node" not in compile(loss, parameters).stats

    def test_what_lies_beside_the_sweeps_may_be_almost_half_of_a_step(self):
        """A right-hand side, computed for all cells at once, kept the sweeps from being found: 8,849 statements."""
        n = 200
        cells, rates = [Value(0.5 + 0.001 * k) for k in range(n)], [Value(0.1 + 0.002 * k) for k in range(n)]
        u = cells
        for _ in range(3):
            ends = [0.0, *u, 0.0]
            right = [b + r * (a - 2.0 * b + c) for a, b, c, r in zip(ends, u, ends[2:], rates, strict=False)]
            below, above = [rates[0] / (1.0 + 2.0 * rates[0])], [right[0] / (1.0 + 2.0 * rates[0])]
            for rate, known in zip(rates[1:], right[1:], strict=True):
                pivot = 1.0 + rate * (2.0 - below[-1])
                above.append((known + rate * above[-1]) / pivot)
                below.append(rate / pivot)
            u = [above[-1]]
            for factor, known in zip(below[-2::-1], above[-2::-1], strict=True):
                u.append(known + factor * u[-1])
            u = u[::-1]
        loss = sum(x * x for x in u)
        assert len(lift(graph_of(loss, [*cells, *rates])).verify().statements) < 200
        assert_equals_eager(loss, [*cells, *rates])
