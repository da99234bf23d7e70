"""Recurrences of any length compile to programs of one length, which compute what the eager code computes."""

import math
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_compiler import BACKENDS, assert_equals_eager

from chainrule import Value, nn
from chainrule.compiler import compile
from chainrule.compiler.passes import recurrence
from chainrule.compiler.passes.classes import classify
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Number, Repeat, Statement, Term
from chainrule.compiler.passes.recurrence import Step, find_recurrences
from chainrule.compiler.trace.graph import graph_of


def recurrent_net(steps):
    w, u, b, h = Value(0.5), Value(0.3), Value(0.1), Value(0.0)
    for t in range(steps):
        h = (w * h + u * math.sin(t) + b).tanh()
    return h * h, [w, u, b]


def loss_at_every_step(steps):
    w, u, b, h = Value(0.5), Value(0.3), Value(0.1), Value(0.0)
    loss = 0.0
    for t in range(steps):
        h = (w * h + u * math.sin(t) + b).tanh()
        loss = loss + (h - math.cos(t)) ** 2
    return loss, [w, u, b]


def dot(weights, values):
    return sum(w * v for w, v in zip(weights, values, strict=True))


def hidden_units(steps, units=4):
    rng = random.Random(0)
    W, U, b = ([[Value(rng.uniform(-1, 1)) for _ in range(n)] for _ in range(units)] for n in (units, 2, 1))
    h = [Value(0.0) for _ in range(units)]
    for t in range(steps):
        x = [math.sin(t), math.cos(t)]
        h = [(dot(W[i], h) + dot(U[i], x) + b[i][0]).tanh() for i in range(units)]
    return sum(v * v for v in h), [v for row in W + U + b for v in row]


def euler(steps):
    k, start = Value(0.7), Value(1.0)
    y = start
    for t in range(steps):
        y = y + 0.01 * (math.sin(0.01 * t) - k * y)
    return y, [k, start]


def runge_kutta(steps, dt=0.01):
    """Van der Pol's oscillator, by the classical method of fourth order."""
    mu, y, v = leaves = [Value(0.7), Value(1.0), Value(0.0)]

    def slope(y, v):
        return v, mu * (1 - y * y) * v - y

    for _ in range(steps):
        a = slope(y, v)
        b = slope(y + dt / 2 * a[0], v + dt / 2 * a[1])
        c = slope(y + dt / 2 * b[0], v + dt / 2 * b[1])
        d = slope(y + dt * c[0], v + dt * c[1])
        y, v = (z + dt / 6 * (a[k] + 2 * b[k] + 2 * c[k] + d[k]) for k, z in enumerate((y, v)))
    return y * y + v, leaves


def price_paths(steps, paths=20, dt=1 / 250):
    """The mean payoff of a call on a geometric Brownian motion."""
    rng = random.Random(0)
    start, drift, volatility = leaves = [Value(100.0), Value(0.05), Value(0.2)]
    prices = [start] * paths
    for _ in range(steps):
        for k in range(paths):
            noise = math.sqrt(dt) * rng.gauss(0, 1)
            prices[k] = prices[k] * ((drift - 0.5 * volatility * volatility) * dt + volatility * noise).exp()
    return sum((price - 100).relu() for price in prices) * (1 / paths), leaves


def hidden_states(steps):
    """The likelihood of a hidden Markov model: what is seen picks a column."""
    rng = random.Random(1)
    move, emit = ([Value(rng.uniform(0.2, 0.8)) for _ in range(4)] for _ in range(2))
    alpha, loss = [0.5, 0.5], 0.0
    for _ in range(steps):
        seen = rng.randrange(2)
        alpha = [emit[2 * j + seen] * (alpha[0] * move[j] + alpha[1] * move[2 + j]) for j in range(2)]
        norm = alpha[0] + alpha[1]
        alpha, loss = [a / norm for a in alpha], loss + norm.log()
    return loss, move + emit


def products_across_steps(steps):
    """The product that ends a step is part of the sum that begins the next one."""
    w, u, p, q = leaves = [Value(0.5), Value(0.3), Value(0.9), Value(0.1)]
    for _ in range(steps):
        p = p + 0.1 * q
        gain = p / (p + u)
        p, q = (1.0 - gain) * p, q * w + gain
    return p * q, leaves


def bodies_in_pairs(steps, bodies=8):
    rng = random.Random(2)
    x, v = ([Value(rng.uniform(-1, 1)) for _ in range(bodies)] for _ in range(2))
    leaves = x + v
    for _ in range(steps):
        force = [0.0] * bodies
        for i in range(bodies):
            for j in range(i + 1, bodies):
                pull = (x[j] - x[i]).tanh()
                force[i], force[j] = force[i] + pull, force[j] - pull
        v = [a + 0.01 * f for a, f in zip(v, force, strict=True)]
        x = [a + 0.01 * b for a, b in zip(x, v, strict=True)]
    return sum(a * a for a in x), leaves


def sweeps_over_a_ring(steps, sites=30):
    """Each site by its neighbours as they are at that moment, of this sweep and of the one before."""
    rng = random.Random(3)
    fields, coupling = [Value(rng.uniform(-1, 1)) for _ in range(sites)], Value(0.3)
    spins = [field.tanh() for field in fields]
    for _ in range(steps):
        for i in range(sites):
            spins[i] = (fields[i] + coupling * (spins[i - 1] + spins[(i + 1) % sites])).tanh()
    return sum(s * s for s in spins), [*fields, coupling]


RECURRENCES = [
    *(recurrent_net, loss_at_every_step, hidden_units, euler, runge_kutta, price_paths, hidden_states),
    *(products_across_steps, bodies_in_pairs, sweeps_over_a_ring),
]


def rerolled(loss, wrt):
    return differentiate(lift(graph_of(loss, wrt))).verify()


def found_in(loss, wrt):
    classes = classify(graph_of(loss, wrt)).verify()
    return [run.verify(classes) for run in find_recurrences(classes)]


def repeats(program):
    return [step for step in program.steps if isinstance(step, Repeat)]


def test_the_search_ends_after_many_runs_in_vain(monkeypatch):
    """Chains of different ops repeat in pieces, of which no two have the same operands."""
    rng, tried = random.Random(3), []
    x = parameter = Value(0.5)
    for _ in range(3000):
        x = x * 1.01 if rng.random() < 0.5 else (x.tanh() if rng.random() < 0.5 else x + parameter)
    cuts = recurrence._Search.cuts
    monkeypatch.setattr(recurrence._Search, "cuts", lambda self, run: tried.append(run) or cuts(self, run))
    classes = classify(graph_of(x, [parameter]))
    for most in (8, 3):
        tried.clear()
        monkeypatch.setattr(recurrence, "MOST_IN_VAIN", most)
        found = find_recurrences(classes)
        assert most <= len(tried) <= most * (len(found) + 1)


class TestClasses:
    def test_of_a_recurrent_net(self):
        assert str(classify(graph_of(*recurrent_net(2)))) == (
            "0   parameter  3\n"
            "1   input      1\n"
            "2   *          1  0 1\n"
            "3   constant   2\n"
            "4   *          2  0 3\n"
            "5   sum        1  2 4 0\n"
            "6   tanh       1  5\n"
            "7   *          1  0 6\n"
            "8   sum        1  7 4 0\n"
            "9   tanh       1  8\n"
            "10  *          1  9 9"
        )

    def test_planted_faults(self):
        classes = classify(graph_of(*recurrent_net(2)))
        classes.operands[classes.row_starts[4]] = 3
        with pytest.raises(AssertionError, match="class 4 reads members 1 to 3 of class 0"):
            classes.verify()
        classes = classify(graph_of(*recurrent_net(2)))
        classes.slots[5] = ((7, 1, 1), *classes.slots[5][1:])
        with pytest.raises(AssertionError, match="class 5 reads class 7, which must be an older one"):
            classes.verify()


class TestRecurrences:
    @pytest.mark.parametrize(
        ("recurrence", "found"),
        [
            (recurrent_net, "[classes 7-9, 29 times]"),
            (loss_at_every_step, "[classes 9-13, 29 times]"),
            (hidden_units, "[classes 7-9, 29 times]"),
            (euler, "[classes 6-9, 29 times]"),
            (runge_kutta, "[classes 76-113, 28 times]"),
            (price_paths, "[classes 10-10, 28 times]"),
        ],
    )
    def test_are_found(self, recurrence, found):
        assert repr(found_in(*recurrence(30))) == found

    def test_planted_faults(self):
        classes = classify(graph_of(*hidden_units(20)))
        (run,) = find_recurrences(classes)
        follows, distance = run.steps[run.start][1]
        run.steps[run.start][1] = Step(not follows, distance)
        with pytest.raises(AssertionError, match="classes 7-9, 19 times: class 10 reads class 9 in slot 1"):
            run.verify(classes)
        run.steps[run.start][1] = Step(follows, distance + 1)
        with pytest.raises(AssertionError, match="class 10 reads other members in slot 1"):
            run.verify(classes)

    def test_paths_one_after_another_are_side_by_side(self):
        """Each path goes through all its steps before the next one begins."""
        start, rate = leaves = [Value(100.0), Value(0.01)]
        prices = []
        for path in range(8):
            price = start
            for _ in range(30):
                price = price * (rate + 0.1 * path).exp()
            prices.append(price)
        (repeat,) = [step for step in lift(graph_of(sum(prices), leaves)).verify().steps if isinstance(step, Repeat)]
        assert all(statement.loops == (8,) for statement in repeat.body)


class TestPrograms:
    def test_a_recurrent_net(self):
        assert str(rerolled(*recurrent_net(1000))) == (
            "i<1000: v0[i] = parameter[1]·c1[i]\n"
            "v1[0] = parameter[0]·input[0] + v0[0] + parameter[2]\n"
            "v2[0] = tanh(v1[0])\n"
            "repeat r<999:\n"
            "  v3[r] = parameter[0]·v2[r] + v0[1+r] + parameter[2]\n"
            "  v2[1+r] = tanh(v3[r])\n"
            "v4[0] = v2[999]·v2[999]\n"
            "dv4[0] = 1\n"
            "i<1000: dv2[i] = 0\n"
            "dv2[999] += dv4[0]·v2[999]\n"
            "dv2[999] += dv4[0]·v2[999]\n"
            "i<3: dparameter[i] = 0\n"
            "i<1000: dv0[i] = 0\n"
            "repeat r<999, backward:\n"
            "  dv3[r] = dv2[1+r]·(1 - (v2[1+r]·v2[1+r]))\n"
            "  dparameter[0] += dv3[r]·v2[r]\n"
            "  dv2[r] += dv3[r]·parameter[0]\n"
            "  dv0[1+r] += dv3[r]\n"
            "  dparameter[2] += dv3[r]\n"
            "dv1[0] = dv2[0]·(1 - (v2[0]·v2[0]))\n"
            "dparameter[0] += dv1[0]·input[0]\n"
            "dv0[0] += dv1[0]\n"
            "dparameter[2] += dv1[0]\n"
            "dparameter[1] += Σi<1000 dv0[i]·c1[i]"
        )

    @pytest.mark.parametrize(
        ("recurrence", "few", "steps", "statements"),
        [
            (recurrent_net, 20, 1000, 22),
            (loss_at_every_step, 20, 1000, 30),
            (hidden_units, 20, 250, 22),
            (euler, 20, 1000, 17),
            (price_paths, 20, 250, 32),
            (runge_kutta, 20, 100, 102),
            (hidden_states, 20, 300, 28),
            (products_across_steps, 20, 300, 33),
            (bodies_in_pairs, 20, 60, 139),
            (sweeps_over_a_ring, 60, 200, 189),
        ],
    )
    def test_their_length_is_that_of_a_few_steps(self, recurrence, few, steps, statements):
        assert len(rerolled(*recurrence(few)).statements) == statements
        assert len(rerolled(*recurrence(steps)).statements) == statements

    def test_inner_loops_may_be_long(self):
        """190 pairs in each of twelve steps; 1,200 sites, of which 30 go by before there is a pattern."""
        assert [run.count for run in found_in(*bodies_in_pairs(12, bodies=20))][-1] == 10
        assert [run.count for run in found_in(*sweeps_over_a_ring(12, sites=100))] == [1101]

    def test_what_is_looked_up_is_copied_before_the_loop(self):
        text = str(rerolled(*hidden_states(50)))
        assert "i<98: w1[i] = parameter[table[i]]\nrepeat r<49:\n  i<2: v1[2r+i] = w1[2r+i]·v0[2r+i]\n" in text
        assert text.count("i<98: dparameter[table[i]] += dw1[i]") == 1

    def test_the_search_is_bounded(self, monkeypatch):
        monkeypatch.setattr(recurrence, "MOST_VISITS", 0)
        assert found_in(*hidden_states(50)) == []

    def test_a_vector_state_moves_by_rows(self):
        assert "  i<4: v2[4+4r+i] = tanh(v3[4r+i])\n" in str(rerolled(*hidden_units(20)))

    def test_a_loss_at_every_step_is_one_sum(self):
        text = str(rerolled(*loss_at_every_step(100)))
        assert "v8[0] = 0 + v4[0] + Σi<99 v7[i]\n" in text
        assert "i<99: dv7[i] = dv8[0]\n" in text

    def test_numbers_that_differ_become_an_array_and_others_stay(self):
        program = rerolled(*loss_at_every_step(100))
        assert "  v6[r] = v2[1+r] - c2[r]\n  v7[r] = v6[r] ** 2\n" in str(program)
        (numbers,) = (array.numbers for array in program.arrays() if array.name == "c2")
        assert numbers.tolist() == [math.cos(t) for t in range(1, 100)]

    def test_layers_of_one_width_are_a_recurrence_in_depth(self):
        model = nn.MLP(3, [5] * 6, activation="tanh", rng=1)
        loss = sum(v * v for x in ([0.1, 0.2, 0.3], [0.4, -0.5, 0.6]) for v in model(x))
        program = rerolled(loss, model.parameters())
        layer = "i<2,j<5: v0[10+10r+5i+j] = parameter[25+30r+6j] + Σk<5 parameter[20+30r+6j+k]·v1[10r+5i+k]"
        assert f"repeat r<5:\n  i<10: v1[10r+i] = tanh(v0[10r+i])\n  {layer}\n" in str(program)

    def test_what_does_not_repeat_stays(self):
        a, b = Value(2.0), Value(3.0)
        assert not repeats(rerolled((a * b).exp() + a / b, [a, b]))

    def test_an_odd_step_cuts_the_run(self):
        w, h = Value(0.9), Value(0.5)
        for t in range(60):
            h = (w * h).sin() if t != 20 else (w * h).cos() + w
        program = rerolled(h, [w])
        assert [step.count for step in repeats(program)] == [20, 39, 39, 20]

    def test_few_steps_are_left_alone(self):
        assert not repeats(rerolled(*recurrent_net(3)))


class TestEquality:
    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("recurrence", RECURRENCES)
    @pytest.mark.parametrize("steps", [5, 100])
    def test_recurrences(self, recurrence, steps, backend):
        program = assert_equals_eager(*recurrence(steps), backend)
        assert "repeat r<" in program.describe() or steps < 10  # a few lookups are cuts

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("recurrence", [recurrent_net, euler])
    def test_a_thousand_steps(self, recurrence, backend):
        program = assert_equals_eager(*recurrence(1000), backend)
        assert program.stats["array statements"] < 40

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_states_two_steps_back(self, backend):
        a, b, x, y = leaves = [Value(v) for v in (0.3, -0.4, 0.5, 0.6)]
        for t in range(50):
            x, y = y, a * x + b * y.sin() + 0.1 * t
        assert_equals_eager(y, leaves, backend)

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_a_state_that_is_shuffled_needs_a_table_at_every_step(self, backend):
        w = [Value(0.1 * k) for k in range(7)]
        state = w
        for _ in range(30):
            state = [(state[k] * w[j]).sin() for j, k in enumerate((3, 0, 6, 1, 5, 2, 4))]
        program = assert_equals_eager(sum(state), w, backend)
        assert "table" in program.describe()
        assert "repeat" in program.describe()

    @pytest.mark.parametrize("backend", [*BACKENDS, "jax", "xla"])
    @pytest.mark.parametrize("states", [2, 3, 5, 8])
    def test_coupled_states_read_one_another_through_tables(self, states, backend):
        """State i reads state j with weight (i + j) % states, so no nest of loops fits, and the first adjoints that
        each time backward adds to lie where a table says."""
        w = [Value(0.1 + 0.07 * k) for k in range(states)]
        state = w
        for _ in range(7):
            state = [dot([w[(i + j) % states] for j in range(states)], state).tanh() for i in range(states)]
        program = assert_equals_eager(sum(state), w, backend)
        assert "table" in program.describe()
        assert "repeat" in program.describe()

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_leaves_read_backwards_and_with_gaps(self, backend):
        xs = [Value(math.sin(k)) for k in range(60)]
        h = xs[0]
        for t in range(25):
            h = (h * xs[59 - t] + xs[2 * t]).tanh()
        assert_equals_eager(h, xs, backend)

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_deep_networks(self, backend):
        model = nn.MLP(3, [5] * 8 + [1], activation="tanh", rng=1)
        loss = sum(model([math.sin(k), math.cos(k), 0.1 * k]) ** 2 for k in range(20))
        assert "repeat" in assert_equals_eager(loss, model.parameters(), backend).describe()

    @given(
        body=st.lists(st.tuples(st.sampled_from("+*-st"), *[st.integers(0, 7)] * 3), min_size=1, max_size=6),
        states=st.integers(1, 3),
        steps=st.integers(1, 14),
        odd=st.integers(0, 20),
        width=st.integers(1, 3),
        total=st.booleans(),
    )
    @pytest.mark.slow
    @settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)
    def test_random_recurrences(self, body, states, steps, odd, width, total):
        """Random bodies on a few states, several side by side, with a step that differs."""
        leaves = [Value(0.1 + 0.07 * k) for k in range(5)]
        outs = []
        for lane in range(width):
            state = [leaves[k % 5] * (1.0 + lane) for k in range(states)]
            for t in range(steps):
                values = [*state, *leaves, leaves[t % 5]]
                for op, i, j, k in body if t != odd else reversed(body):
                    a, b = values[-1 - i % len(values)], values[j % len(values)]
                    values.append(
                        {
                            "+": lambda a=a, b=b: 0.5 * a + b * 0.25,
                            "*": lambda a=a, b=b: a * b,
                            "-": lambda a=a, k=k: a - 0.1 * k,
                            "s": lambda a=a, b=b: (a + b).sin(),
                            "t": lambda a=a, t=t: (a * math.sin(t)).tanh(),
                        }[op]()
                    )
                state = [values[-1], *state[:-1]]
                outs.append(values[-1])
        loss = sum(outs if total else outs[steps - 1 :: steps]) * 0.1
        rerolled(loss, leaves)
        for backend in BACKENDS:
            assert_equals_eager(loss, leaves, backend, 1e-12)


class TestVerify:
    x, y = Array("x", 10, "input"), Array("y", 12, "value")

    def program(self, *body):
        start = Statement(Access(self.y, 0, (1,)), (3,), [Term(Number(1.0))])
        return ArrayProgram([start, Repeat(4, body)], {"input": self.x}, self.y)

    def step(self, source, target):
        return Statement(target, (2,), [Term(source)])

    def test_planted_faults(self):
        into = Access(self.y, 3, (1,), repeat=2)
        fine = self.program(self.step(Access(self.y, 1, (1,), repeat=2), into))
        assert fine.verify() is fine
        assert str(fine) == "i<3: y[i] = 1\nrepeat r<4:\n  i<2: y[3+2r+i] = y[1+2r+i]"
        table = np.array([1, 0], dtype=np.int64)
        faults = {
            r"x\[2\+3r\+i\] reaches 2 to 12 of x": self.step(Access(self.x, 2, (1,), repeat=3), into),
            r"x\[5-2r\+i\] reaches -1 to 6 of x": self.step(Access(self.x, 5, (1,), repeat=-2), into),
            r"x\[table\[i\]\+4r\] reaches 0 to 13": self.step(Access(self.x, 0, (1,), table, repeat=4), into),
            "reaches 5 to 12 of y": self.step(Number(1.0), Access(self.y, 5, (1,), repeat=2)),
            "is read before it is written": self.step(Access(self.y, 2, (1,), repeat=2), into),
        }
        for message, statement in faults.items():
            with pytest.raises(AssertionError, match=message):
                self.program(statement).verify()

    def test_a_wrong_row_is_caught(self):
        program = rerolled(*recurrent_net(20))
        forward = repeats(program)[0]
        forward.body[0].terms[0].expression.operands[1].base += 1  # the state of this step, not of the one before
        with pytest.raises(AssertionError, match="is read before it is written"):
            program.verify()


def test_describe_shows_time_without_the_layout():
    program = compile(*hidden_units(20), backend="interpreter")
    assert "  i<4: v2[4+4r+i] = tanh(v3[4r+i])\n" in program.describe()
