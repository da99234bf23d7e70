"""Cones of influence: loops of which each step needs fewer numbers than the one before are loops all the same."""

import math
from itertools import pairwise

import numpy as np
import pytest

import chainrule
from chainrule import Value
from chainrule.compiler.passes import completion, cones, lifetimes, lift, outline, threads
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.outline import leaves_first
from chainrule.compiler.trace.graph import graph_of

BACKENDS = ["llvm", "interpreter"]


def numbers(count, seed=0, low=0.3, high=1.0):
    return np.random.default_rng(seed).uniform(low, high, count).tolist()


def wave(m, x, n, last=1):
    """A string whose ends are held; a few cells are recorded after n steps."""
    now, speed = list(x[1:]), 0.1 * x[0]
    before = now
    for _ in range(n):
        inner = [
            2.0 * now[i] - before[i] + speed * (now[i - 1] - 2.0 * now[i] + now[i + 1]) for i in range(1, len(now) - 1)
        ]
        before, now = now, [now[0], *inner, now[-1]]
    return sum(now[n // 2 : n // 2 + last]) * 0.5


def beam(m, x, n):
    """A beam whose ends are clamped. Its steps are deeper inside than beside the ends, and the first reach both."""
    now, stiffness = list(x[1 : n + 1]), 0.05 * x[0]
    before = now
    for _ in range(n // 2 - 2):
        bent = [now[i - 2] - 4.0 * now[i - 1] + 6.0 * now[i] - 4.0 * now[i + 1] + now[i + 2] for i in range(2, n - 2)]
        inner = [2.0 * a - b - stiffness * c for a, b, c in zip(now[2:], before[2:], bent, strict=False)]
        before, now = now, [*now[:2], *inner, *now[-2:]]
    return now[n // 2]


def ring(m, x, n):
    now, rate = list(x[1 : n + 1]), 0.2 * x[0]
    for _ in range(n):
        now = [m.tanh(now[i] + rate * (now[i - 1] - 2.0 * now[i] + now[(i + 1) % n])) for i in range(n)]
    return now[n // 3]


def plate(m, x, n):
    side = math.isqrt(n)
    now = [x[side * i : side * (i + 1)] for i in range(side)]
    for _ in range(side // 2 + 2):
        now = [
            [
                now[i][j] + 0.1 * x[0] * (now[i - 1][j] + now[i][j - 1] - 4.0 * now[i][j]) / (1.0 + now[i][j] ** 2)
                for j in range(side)
            ]
            for i in range(side)
        ]
    return now[side // 2][side // 2]


def option(m, x, n):
    """With early exercise, on a tree of n steps."""
    price, strike, up = 100.0 * x[0], 80.0, m.exp(0.3 * x[1] / math.sqrt(n))
    chance, discount = (1.0 - 1.0 / up) / (up - 1.0 / up), 1.0 - 0.01 * x[2]
    values = [m.relu(strike - price * up ** (2 * j - n)) for j in range(n + 1)]
    for k in reversed(range(n)):
        held = [discount * (chance * values[j + 1] + (1.0 - chance) * values[j]) for j in range(k + 1)]
        values = [m.maximum(v, strike - price * up ** (2 * j - k)) for j, v in enumerate(held)]
    return values[0]


def averages(m, x, n):
    row = x[:n]
    while len(row) > 1:
        row = [(a + b) / 2.0 for a, b in pairwise(row)]
    return row[0]


def curve(m, x, n):
    """A point of a Bézier curve in the plane, by de Casteljau's algorithm."""
    t, points = x[0], [(x[i], x[-1 - i]) for i in range(n)]
    while len(points) > 1:
        points = [((1.0 - t) * a + t * c, (1.0 - t) * b + t * d) for (a, b), (c, d) in pairwise(points)]
    return points[0][0] ** 2 + points[0][1]


def interpolated(m, x, n):
    """Neville's scheme."""
    at, t, row = [i + 0.2 * v for i, v in enumerate(x[:n])], 0.5 * n * x[-1], x[n : 2 * n]
    for k in range(1, n):
        row = [((t - at[i + k]) * row[i] + (at[i] - t) * row[i + 1]) / (at[i] - at[i + k]) for i in range(n - k)]
    return m.tanh(row[0])


def of_several_lengths(m, x, n):
    """A ring whose cells have sums of four, five or six terms."""
    now, middle = list(x[5 : n + 5]), n // 2
    for _ in range(3 * n // 10):
        new = []
        for i in range(n):
            p = [x[k] * now[(i + k - 2) % n] for k in range(5)]
            rest = [(p[0] + p[4]) + now[i] * now[i], p[0], p[0] + p[4]][(i - middle) % 3]
            total = p[2] + p[1] + p[3] + rest
            new.append(m.tanh(total) * 1.1 + 0.1 * total)
        now = new
    return now[middle] * 1.0


PROGRAMS = [wave, beam, ring, plate, option, averages, curve, interpolated, of_several_lengths]
SIZES = {beam: 24, plate: 144, interpolated: 40, of_several_lengths: 40}


def compiled_and_eager(program, n, backend="llvm", dtype="float64"):
    x = [Value(v) for v in numbers(2 * n + 2)]
    loss = program(chainrule, x, n)
    compiled = chainrule.compile(loss, wrt=x, backend=backend, dtype=dtype)
    loss.backward()
    return compiled, (loss.data, [v.grad for v in x])


def assert_equal(found, expected, within=1e-11):
    (value, gradient), (right, slopes) = found, expected
    assert math.isclose(value, right, rel_tol=within)
    scale = max(map(abs, slopes))
    assert [k for k, (a, b) in enumerate(zip(gradient, slopes, strict=True)) if not abs(a - b) <= within * scale] == []


@pytest.fixture
def always(monkeypatch):
    """Take a cone wherever one is seen, in parts of two times and more."""
    monkeypatch.setattr(lift, "GRADIENT", math.inf)
    monkeypatch.setattr(lift, "MUCH_LESS", 0.01)
    monkeypatch.setattr(cones, "FEWEST", 4)
    monkeypatch.setattr(threads, "FEWEST", 4)
    monkeypatch.setattr(completion, "SHORTEST", 3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_they_compute_what_eager_code_does(always, program, backend):
    compiled, expected = compiled_and_eager(program, SIZES.get(program, 17), backend)
    assert compiled.code.forward.has_time
    compiled.code.whole.verify()
    assert_equal(compiled.value_and_grad(), expected)


@pytest.mark.parametrize("program", [wave, option, curve])
def test_in_single_precision_and_through_jax(always, program):
    single, expected = compiled_and_eager(program, 15, dtype="float32")
    assert_equal(single.value_and_grad(), expected, 1e-4)
    pytest.importorskip("jax")
    for backend in ("jax", "xla"):
        compiled, _ = compiled_and_eager(program, 15, backend)
        assert_equal(compiled.value_and_grad(), expected)


@pytest.mark.parametrize("program", [wave, interpolated])
def test_in_batches(always, program):
    weights, rows = [Value(v) for v in numbers(28)], [numbers(28, seed, -0.1, 0.1) for seed in range(11)]

    def of(row):
        return program(chainrule, [w + 0.5 * v for w, v in zip(weights, row, strict=True)], 13)

    function = chainrule.compile(of, wrt=weights)
    found = function.batch_value_and_grad(rows, reduce="sum")
    loss = sum([of(row) for row in rows])
    loss.backward()
    assert_equal(found, (loss.data, [w.grad for w in weights]))


@pytest.mark.parametrize(("program", "size"), [(wave, 48), (beam, 60), (averages, 180)])
def test_the_number_of_statements_does_not_depend_on_the_size(program, size):
    found = []
    for n in (size, size + 7):
        x = [Value(v) for v in numbers(2 * n + 2)]
        lifted = lift.lift(graph_of(program(chainrule, x, n), x))
        found.append((len(lifted.statements), len(differentiate(lifted).statements)))
    assert found[0] == found[1]
    assert max(found[0]) < 140


def squares(m, x, n):
    """How far a part of the string is from where it was seen."""
    seen = 0.1 * x[-1]
    now, speed, before = [0.0, *x[2:n], 0.0], 0.1 * x[0], [0.0] * n
    for _ in range(n):
        inner = [
            2.0 * b - o + speed * (a - 2.0 * b + c)
            for a, b, c, o in zip(now, now[1:], now[2:], before[1:], strict=False)
        ]
        before, now = now, [0.0, *inner, 0.0]
    return sum((v - seen) ** 2 for v in now[n // 4 : n // 2])


@pytest.mark.parametrize(
    "program", [squares, lambda m, x, n: wave(m, x, n, last=3), lambda m, x, n: wave(m, x, n, last=12)]
)
def test_several_cells_may_be_recorded(program):
    x = [Value(v) for v in numbers(82)]
    loss = program(chainrule, x, 40)
    assert len(lift.lift(graph_of(loss, x)).statements) < 100
    compiled, expected = chainrule.compile(loss, wrt=x), loss.backward() or (loss.data, [v.grad for v in x])
    assert_equal(compiled.value_and_grad(), expected)


def growing_at_the_end(x):
    """The last number is large. Who would go on with it, after the steps that need it, would get to infinity."""
    while len(x) > 1:
        x = [a * a + 0.1 * b for a, b in pairwise(x)]
    return x[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_nobody_needs_may_be_infinite(always, backend, monkeypatch):
    monkeypatch.setattr(completion, "SHORTEST", 99)
    x = [*[Value(v) for v in numbers(14, low=0.2, high=0.5)], Value(20.0)]
    loss = growing_at_the_end(x)
    loss.backward()
    expected = loss.data, [v.grad for v in x]
    compiled = chainrule.compile(loss, wrt=x, backend=backend)
    assert compiled.code.forward.has_time
    assert_equal(compiled.value_and_grad(), expected)
    monkeypatch.setattr(lifetimes.Lifetimes, "masked", lambda self, statement, alive: statement)
    unmasked = chainrule.compile(loss, wrt=x, backend=backend)
    assert not np.isfinite(unmasked.value_and_grad()[1]).all()  # so this test can fail


def test_sums_with_constant_slopes_are_not_masked(always):
    compiled, _ = compiled_and_eager(averages, 20)
    assert "where" not in str(differentiate(compiled.code.forward))
    compiled, _ = compiled_and_eager(interpolated, 20)
    assert "where" in str(differentiate(compiled.code.forward))


def test_completed_loops_hold():
    x = [Value(v) for v in numbers(82)]
    graph = leaves_first(graph_of(wave(chainrule, x, 40), x))
    completed, loops = cones.find_cone(graph)
    completed.verify()
    for loop in loops:
        loop.verify(completed)
    assert len(completed) < 1.5 * len(graph)
    assert outline.outline(completed, loops, lift.lift_body) is not None
    assert sum([loop.count for loop in loops]) == 40


def test_where_steps_are_alike_there_is_no_cone():
    x = [Value(v) for v in numbers(82)]
    now = x[:40]
    for _ in range(40):
        now = [now[0], *[0.5 * a + 0.2 * b + 0.3 * c for a, b, c in zip(now, now[1:], now[2:], strict=False)], now[-1]]
    assert cones.find_cone(leaves_first(graph_of(sum(now), x))) is None


def test_loops_are_cut_where_that_saves_most():
    assert completion.cuts(np.full(9, 64)) == [0, 64]  # all are needed to the end
    assert completion.cuts(np.array([32] * 100 + [64])) == [0, 32, 64]
    ends = completion.cuts(np.arange(1, 65))
    assert len(ends) > 2
    assert (ends[0], ends[-1]) == (0, 64)
