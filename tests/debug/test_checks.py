"""gradcheck: healthy functions pass, planted faults are caught and named, and nothing of the caller's changes."""

import doctest
import math
import random
import sys
from pathlib import Path

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule
import mpmath_ops
from chainrule import closures, engine, functions, ops
from chainrule.debug import finite_differences
from chainrule.debug import gradient_check as checks
from chainrule.debug.finite_differences import Derivative, derivative
from chainrule.debug.gradient_check import Report, gradcheck
from project import ROOT

KINDS = list(dict.fromkeys([chainrule.Value, engine.Value, closures.Value]))
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__module__)
TABLE = [row for row in ops.TABLE.values() if row.forward.__code__.co_filename == ops.__file__]  # less users' ops
every_op = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
every_smooth_op = pytest.mark.parametrize(
    "row", [row for row in TABLE if row not in (ops.larger, ops.finite)], ids=lambda row: row.name
)

mp = mpmath.mp


def exact_derivative(f, x):
    with mpmath.workdps(60):
        return float(mpmath.diff(f, mp.mpf(x), h=mp.mpf(abs(x) or 1.0) * mp.mpf(10) ** -25))


def sample(row, generator):
    return [generator.uniform(low, high) for low, high in row.domain]


def close(a, b, tolerance=1e-9, floor=1e-13):
    return abs(a - b) <= tolerance * max(abs(a), abs(b)) + floor


# The numerical derivative.


@every_smooth_op
def test_the_numerical_derivative_is_that_of_mpmath_over_the_whole_op_table(row):
    generator, oracle = random.Random(row.name), mpmath_ops.FUNCTIONS[row.name]
    for _ in range(5):
        point = sample(row, generator)
        for k, x in enumerate(point):
            got = derivative(lambda v, k=k, p=point: row.forward(*p[:k], v, *p[k + 1 :]), x)
            exact = exact_derivative(
                lambda v, k=k, p=point: oracle(*map(mp.mpf, p[:k]), v, *map(mp.mpf, p[k + 1 :])), x
            )
            assert close(got.value, exact), (point, k)
            assert abs(got.value - exact) <= 4.0 * got.error + 1e-15 * abs(exact), "the error estimate is too small"
            assert not got.corner


HARD_POINTS = {
    "sin far from 0": (math.sin, mp.sin, 1e8),
    "a square far from 0": (lambda x: x * x, lambda x: x * x, 1e8),
    "a square near 0": (lambda x: x * x, lambda x: x * x, 1e-8),
    "log near its pole": (math.log, mp.log, 1e-8),
    "log at the smallest": (math.log, mp.log, 1e-300),
    "log at the largest": (math.log, mp.log, 1e300),
    "both sides of a pole": (lambda x: 1 / x, lambda x: 1 / x, 1e-8),
    "fast oscillation": (lambda x: math.sin(1e6 * x), lambda x: mp.sin(mp.mpf(10**6) * x), 0.0),
    "oscillation in step": (lambda x: math.sin(200 * x), lambda x: mp.sin(200 * x), 0.3),
    "close to overflow": (math.exp, mp.exp, 709.0),
    "close to underflow": (math.exp, mp.exp, -700.0),
    "close to a vertical edge": (math.asin, mp.asin, 0.9999),
    "close to a domain edge": (math.sqrt, mp.sqrt, 1e-6),
    "steep": (math.tan, mp.tan, 1.57),
    "almost a corner": (
        lambda x: math.log1p(math.exp(-abs(x * 1e6))) + max(x * 1e6, 0.0),
        lambda x: mp.log1p(mp.exp(x * 10**6)),
        1e-7,
    ),
}


@pytest.mark.parametrize("case", HARD_POINTS)
def test_the_numerical_derivative_finds_a_step_for(case):
    f, exact, x = HARD_POINTS[case]
    got = derivative(f, x)
    assert close(got.value, exact_derivative(exact, x), 1e-8, floor=0.0)
    assert not got.corner


def test_rounding_inside_the_function_is_not_taken_for_a_slope():
    got = derivative(lambda x: (1.0 - math.cos(x)) / (x * x), 1e-5)  # its floats fall by 1e5 over the smallest steps
    assert got.value == pytest.approx(exact_derivative(lambda x: (1 - mp.cos(x)) / (x * x), 1e-5), rel=1e-6)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=6), st.floats(-1e3, 1e3))
@settings(max_examples=100, deadline=None)
def test_the_numerical_derivative_of_a_polynomial_is_within_its_error_estimate(coefficients, x):
    def polynomial(v):
        total = 0.0
        for c in coefficients:
            total = total * v + c
        return total

    got = derivative(polynomial, x)
    with mpmath.workdps(60):
        exact = float(mpmath.polyval(list(map(mp.mpf, coefficients)), mp.mpf(x), derivative=True)[1])
    assert abs(got.value - exact) <= 16.0 * got.error + 1e-15 * abs(exact) + 1e-300


@pytest.mark.parametrize(
    ("f", "x", "left", "right"),
    [
        (abs, 0.0, -1.0, 1.0),
        (lambda x: max(x, 0.0), 0.0, 0.0, 1.0),
        (lambda x: abs(x - 1.0) + 5.0, 1.0, -1.0, 1.0),
        (lambda x: min(2.0 * x, 3.0 * x) + x * x, 0.0, 3.0, 2.0),
    ],
)
def test_a_corner_shows_both_slopes(f, x, left, right):
    got = derivative(f, x)
    assert got.corner
    assert close(got.left, left)
    assert close(got.right, right)
    assert got.agrees((left + right) / 2.0, 1e-7)
    assert not got.agrees(max(left, right) + 0.01, 1e-7)
    assert not got.agrees(min(left, right) - 0.01, 1e-7)


@pytest.mark.parametrize("x", [1e-9, -1e-9, 1e-14, 0.03, -0.03])
def test_beside_a_corner_there_is_none(x):
    got = derivative(lambda v: max(v, 0.0), x)
    assert not got.corner
    assert got.value == pytest.approx(float(x > 0), abs=1e-9)


def test_where_one_side_is_undefined_the_other_decides():
    assert derivative(lambda x: x * x + 3.0 * x if x >= 0.0 else math.nan, 0.0).value == pytest.approx(3.0)
    assert derivative(lambda x: 2.0 * x if x <= 1.0 else math.inf, 1.0).value == pytest.approx(2.0)
    assert derivative(lambda x: math.sqrt(x) ** 4, 0.0).agrees(0.0, 1e-7)  # math.sqrt raises on the left


@pytest.mark.parametrize("f", [lambda x: float(x > 0), math.sqrt, lambda x: math.copysign(abs(x) ** (1 / 3), x)])
def test_a_jump_or_a_vertical_slope_does_not_settle(f):
    got = derivative(f, 0.0)
    assert not got.settled
    assert not any(got.agrees(slope, 1e-7) for slope in (0.0, 1.0, math.inf, math.nan))


def test_an_error_estimate_excuses_nothing_that_is_clearly_wrong():
    vague = Derivative(1.0, 100.0, 1.0, 1.0)
    assert vague.agrees(1.001, 1e-7)
    assert not vague.agrees(1.1, 1e-7)
    drowned = derivative(lambda x: 1e16 + x, 1.0)
    assert not drowned.agrees(-5.0, 1e-7)


# Healthy functions pass.


@every_smooth_op
def test_every_op_passes_within_its_domain(row):
    generator = random.Random(row.name)
    for _ in range(5):
        report = gradcheck(row, *sample(row, generator))
        assert report.ok, report


def readme_expression(a, b):
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    return g + 10.0 / f


def perceptron(weights, xs):
    hidden = [sum((w * x for w, x in zip(row, xs, strict=True)), 0.1).tanh() for row in weights]
    out = sum(hidden, 0.0)
    return (out - 1.0) ** 2


@every_kind
def test_functions_of_many_shapes_pass(kind):
    figures = gradcheck(readme_expression, kind(-4.0), kind(2.0)).check()
    assert [row.name for row in figures] == ["a", "b"]
    assert [round(row.analytic, 4) for row in figures] == [138.8338, 645.5773]  # micrograd's README
    assert gradcheck(perceptron, [[kind(0.3), -0.5], [0.7, 0.2]], [1.5, -2.0])
    assert gradcheck(lambda x: x, kind(3.0))
    assert gradcheck(lambda x, unused: x * x, kind(3.0), 1.0)
    assert gradcheck(lambda x: x * x * 0.0, kind(3.0))
    assert gradcheck(lambda x: 2**x / (1 - x), kind(0.5))


@every_kind
def test_functions_pass_next_to_where_they_are_undefined(kind):
    assert gradcheck(lambda x: (x**0.5).tanh(), kind(0.01))  # a complex number below 0, in plain Python
    assert gradcheck(lambda x: x.log() + 1 / x, kind(0.001))  # a ValueError


def test_composed_functions_pass():
    assert gradcheck(lambda v: chainrule.softmax(v)[1], [1.0, 2.0, 1000.0])
    assert gradcheck(lambda v: chainrule.logsumexp(v), [1.0, -2.0, 3.0])
    assert gradcheck(lambda v: sum(chainrule.softmax(v), 0.0), [0.3, 0.1, 0.2])  # constant: the gradient is rounding
    assert gradcheck(lambda a, b: chainrule.dot(a, b) / chainrule.mean(a), [1.0, 2.0], (3.0, 4.0))
    assert gradcheck(lambda x: chainrule.sigmoid(x), -30.0)


SMOOTH = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: (a * b).tanh(),
    lambda a, b: a / (b * b + 1.0),
    lambda a, b: a.tanh() ** 3,
    lambda a, b: a.tanh().exp(),
    lambda a, b: 2.0 - a,
]
CORNERED = [*SMOOTH, lambda a, b: a.relu(), lambda a, b: (a - b).relu()]
numbers = st.floats(-3, 3).map(lambda x: round(x, 3))
steps = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=15)


def expression(choices, recipe):
    """A function that applies the chosen ops to its inputs and to its own earlier results."""

    def f(*inputs):
        values = list(inputs)
        for choice, i, j in recipe:
            values.append(choices[choice % len(choices)](values[i % len(values)], values[j % len(values)]))
        return sum(values, 0.0)

    return f


@every_kind
@given(steps, st.lists(numbers, min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_random_smooth_expressions_pass(kind, recipe, inputs):
    assert gradcheck(expression(SMOOTH, recipe), *map(kind, inputs)).check()


@every_kind
@given(steps, st.lists(numbers, min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_no_op_is_blamed_in_random_expressions_with_corners(kind, recipe, inputs):
    diagnosis = gradcheck(expression(CORNERED, recipe), *map(kind, inputs)).diagnosis
    assert " is wrong" not in diagnosis  # though on a corner, relu(x) - relu(-x) at 0, the slopes may well differ


@every_kind
@given(steps, st.floats(0.5, 3), st.floats(-3, -0.5))
@settings(max_examples=25, deadline=None)
def test_a_fault_in_a_random_expression_is_named(kind, recipe, x, y):
    def f(*inputs):
        return expression(SMOOTH, recipe)(*inputs) + swapped_mul(*inputs)

    assert "`mul!`" in gradcheck(f, kind(x), kind(y)).diagnosis


def test_values_used_behind_the_arguments_are_moved_too():
    w, b = chainrule.Value(0.5), chainrule.Value(-0.3)
    assert [row.analytic for row in gradcheck(lambda *p: w * w * b, w, b)] == [-0.3, 0.25]


def test_a_corner_passes_with_a_note():
    report = gradcheck(chainrule.relu, 0.0)
    assert report.ok
    assert "not differentiable here? The one-sided derivatives differ: left 0, right 1." in str(report)
    assert gradcheck(lambda a, b: chainrule.maximum(a, b), 2.0, 2.0).ok


# Planted faults are caught and named.


def by_hand(tag, data, operands, push):
    """An op in micrograd's manner, on whichever class the operands have."""
    out = type(operands[0])(data, operands, tag)
    out._backward = lambda: push(out)
    return out


def overwriting_add(a, b):
    def push(out):
        a.grad = out.grad
        b.grad = out.grad

    return by_hand("add!", a.data + b.data, (a, b), push)


def swapped_mul(a, b):
    def push(out):
        a.grad += a.data * out.grad
        b.grad += b.data * out.grad

    return by_hand("mul!", a.data * b.data, (a, b), push)


def tanh_without_gradient(x):
    def push(out):
        x.grad += 1 - out.data**2

    return by_hand("tanh!", math.tanh(x.data), (x,), push)


def squared_gradient(x):
    def push(out):
        x.grad += out.data * out.grad**2

    return by_hand("exp!", math.exp(x.data), (x,), push)


def cube_without_factor(x):
    def push(out):
        x.grad += x.data**2 * out.grad

    return by_hand("cube!", x.data**3, (x,), push)


def factor_too_many(x):
    def push(out):
        x.grad += 4.0 * out.grad

    return by_hand("double!", 2.0 * x.data, (x,), push)


def subtract_with_plus(a, b):
    def push(out):
        a.grad += out.grad
        b.grad += out.grad

    return by_hand("sub!", a.data - b.data, (a, b), push)


def forgotten_operand(a, b):
    def push(out):
        a.grad += b.data * out.grad

    return by_hand("half!", a.data * b.data, (a,), push)


def no_gradient(x):
    return by_hand("deaf!", 3.0 * x.data, (x,), lambda out: None)


FAULTS = {
    "overwriting": (
        lambda x, y: overwriting_add(x, y) * x,
        "the `add!` made at * is wrong: its _backward (*) overwrites the gradient that operand 1 (`x`) holds; "
        "add to it, with `+=`.",
    ),
    "overwriting with one operand": (
        lambda x, y: overwriting_add(x, x) * y,
        "the `add!` made at * is wrong: its _backward (*) overwrites the gradient that its operand (`x`) holds; "
        "add to it, with `+=`.",
    ),
    "swapped": (
        lambda x, y: swapped_mul(x, y).tanh(),
        "the `mul!` made at * is wrong: d out/d operand 1 (`x`) should be 1.5, but its _backward (*) gives 0.7; "
        "d out/d operand 2 (`y`) should be 0.7, but its _backward (*) gives 1.5 (the partials look swapped).",
    ),
    "swapped, where one input moves both operands": (
        lambda x, y: swapped_mul(x * 2.0, x.exp()) + y,
        "the `mul!` made at * is wrong: it moves 6.84676 times as fast as `x`, but its operands' movements and "
        "its _backward (*) make that 6.8552 (the partials look swapped).",
    ),
    "no factor out.grad": (
        lambda x, y: tanh_without_gradient(x * y) * 3.0,
        "the `tanh!` made at * is wrong: what its _backward (*) passes on is the same whatever gradient it gets; "
        "multiply by `out.grad`, once.",
    ),
    "out.grad squared": (
        lambda x, y: squared_gradient(x * y) * 3.0,
        "the `exp!` made at * is wrong: what its _backward (*) passes on is not proportional to the gradient it gets; "
        "multiply by `out.grad`, once.",
    ),
    "missing factor": (
        lambda x, y: cube_without_factor(x + y),
        "the `cube!` made at * is wrong: d out/d its operand should be 14.52, but its _backward (*) gives 4.84 "
        "(it looks as if a factor 3 is missing).",
    ),
    "factor too many": (
        lambda x, y: factor_too_many(x) * y,
        "the `double!` made at * is wrong: d out/d its operand (`x`) should be 2, but its _backward (*) gives 4 "
        "(it looks as if a factor 2 is too many).",
    ),
    "sign": (
        lambda x, y: subtract_with_plus(x, y * y),
        "the `sub!` made at * is wrong: d out/d operand 2 should be -1, but its _backward (*) gives 1 "
        "(the sign looks wrong).",
    ),
    "an operand not listed": (
        lambda x, y: forgotten_operand(x, y),
        "the `half!` made at * is wrong: it moves 0.7 times as fast as `y`, yet none of its operands moves: "
        "one is missing from its `_children`.",
    ),
    "no gradient": (
        lambda x, y: no_gradient(x) + y,
        "the `deaf!` made at * is wrong: d out/d its operand (`x`) should be 3, but its _backward (*) gives 0.",
    ),
    "data taken on the way": (
        lambda x, y: x * (y.data * 2.0),
        "the node made at * moves with `y` but has no operands, so the gradient stops there: "
        "compute with Values, not their `.data`, and name the operands in `_children`.",
    ),
}


def matches(text, pattern):
    """Whether `text` is `pattern`, in which `*` stands for a place in this file."""
    place = text.find(pattern.split("*")[0])
    for piece in pattern.split("*"):
        place = text.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return place == len(text)


@every_kind
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(kind, fault):
    f, message = FAULTS[fault]
    report = gradcheck(f, kind(0.7), kind(1.5))
    assert not report.ok
    assert matches(report.diagnosis, message[0].upper() + message[1:]), report.diagnosis
    with pytest.raises(AssertionError, match="the gradient is wrong"):
        report.check()


def test_a_fault_in_a_learners_class_is_found_in_its_operator(monkeypatch):
    def wrong_mul(self, other):
        other = other if isinstance(other, closures.Value) else closures.Value(other)
        out = closures.Value(self.data * other.data, (self, other), "*")

        def _backward():  # <- the wrong rule
            self.grad += self.data * out.grad
            other.grad += other.data * out.grad

        out._backward = _backward
        return out

    def area(width, height):
        inner = width - 1.0
        product = inner * height  # <- the product
        return product.exp()

    monkeypatch.setattr(closures.Value, "__mul__", wrong_mul)
    diagnosis = gradcheck(area, closures.Value(3.0), closures.Value(0.5)).diagnosis
    assert f"test_checks.py:{line_of('the product')} (`product = inner * height" in diagnosis
    assert f"test_checks.py:{line_of('the wrong rule')}) gives 2" in diagnosis
    assert "swapped" in diagnosis


def line_of(marker):
    lines = Path(__file__).read_text().splitlines()
    return next(k for k, line in enumerate(lines, 1) if line.endswith(f"# <- {marker}"))


def power_without_factor(self, exponent):
    out = closures.Value(self.data**exponent, (self,), "**")

    def _backward():
        self.grad += self.data ** (exponent - 1) * out.grad

    out._backward = _backward
    return out


def test_a_power_without_its_factor_is_found(monkeypatch):
    monkeypatch.setattr(closures.Value, "__pow__", power_without_factor)
    assert "a factor 5 is missing" in gradcheck(lambda x: x**5, closures.Value(2.0)).diagnosis


@pytest.fixture
def keep_table():
    """Ops registered in a test are gone after it."""
    before = dict(ops.TABLE)
    yield
    for name in set(ops.TABLE) - set(before):
        del ops.TABLE[name]
        delattr(chainrule.Value, name)


@pytest.mark.usefixtures("keep_table")
def test_a_wrong_derivative_in_a_registered_op_is_named_with_its_line():
    @functions.op(lambda out, x, y: y * y, lambda out, x, y: x * y)  # <- the registered rule
    def checks_product_square(x, y):
        return x * y * y

    def f(a):
        return a + checks_product_square(a, a * 2.0)  # <- the registered op

    diagnosis = gradcheck(f, 3.0).diagnosis
    assert (
        f"The `checks_product_square` made at tests/debug/test_checks.py:{line_of('the registered op')}"
        in diagnosis.replace(str(ROOT) + "/", "")
    )
    assert "d out/d operand 2 should be 36, but its rule" in diagnosis
    assert (
        f"test_checks.py:{line_of('the registered rule')}) gives 18 (it looks as if a factor 2 is missing)" in diagnosis
    )


def test_a_backward_assigned_to_a_table_op_is_judged_too():
    def f(a, b):
        out = a * b
        out._backward = lambda: setattr(a, "grad", a.grad + 7.0 * out.grad)
        return out

    diagnosis = gradcheck(f, 2.0, 3.0).diagnosis
    assert "d out/d operand 1 (`a`) should be 3, but its _backward" in diagnosis
    assert "d out/d operand 2 (`b`) should be 2" in diagnosis


def test_the_oldest_of_several_faults_is_named():
    diagnosis = gradcheck(lambda x: factor_too_many(cube_without_factor(factor_too_many(x) + 1.0)), 0.4).diagnosis
    assert "`double!`" in diagnosis


def test_a_slope_beyond_a_corner_is_wrong():
    def steep_relu(x):
        return by_hand("steep!", max(x.data, 0.0), (x,), lambda out: setattr(x, "grad", x.grad + 5.0 * out.grad))

    report = gradcheck(steep_relu, 0.0)
    assert not report.ok
    assert "left 0, right 1" in str(report)


# The walk.


def children_first(self):
    order, pending = [], [self]
    while pending:
        node = pending.pop()
        if not any(node is other for other in order):
            order.append(node)
            pending.extend(node._prev)
    self.grad = 1.0
    for node in reversed(order):
        node._backward()


def once_per_path(self):
    self.grad = 1.0

    def visit(node):
        node._backward()
        for operand in node._prev:
            visit(operand)

    visit(self)


def one_step(self):
    self.grad = 1.0
    self._backward()


def without_seed(self):
    self._backward()
    for operand in self._prev:
        operand._backward()


def twice_the_seed(self):
    self.grad = 2.0
    self._backward()
    for operand in self._prev:
        operand._backward()


def doubled_twice(a):
    b = a + a
    return b + b


def diamond(a):
    b = a * 2.0
    return b * b.tanh()


WALKS = {
    "children first": (children_first, doubled_twice, "passed on a gradient of 0 before it was complete, which is 2"),
    "once per path": (once_per_path, diamond, "it calls the _backward of the `*` made at"),
    "one step": (one_step, doubled_twice, "it never reaches the `+` made at"),
    "no seed": (without_seed, doubled_twice, "it starts with a gradient of 0 at the result, where it should be 1"),
    "twice the seed": (twice_the_seed, doubled_twice, "it starts with a gradient of 2 at the result"),
}


@every_kind
@pytest.mark.parametrize("walk", WALKS)
def test_a_wrong_walk_is_told_from_a_wrong_rule(kind, walk, monkeypatch):
    backward, f, message = WALKS[walk]
    monkeypatch.setattr(kind, "backward", backward)
    report = gradcheck(f, kind(0.5))
    assert not report.ok
    fault = "the order of the backward pass" if walk == "children first" else "the backward pass"
    assert report.diagnosis.startswith(f"Every op's own rule is right, but {fault} is wrong: ")
    assert message in report.diagnosis


def test_the_shift_of_softmax_is_not_taken_for_a_cut(monkeypatch):
    monkeypatch.setattr(chainrule.Value, "backward", children_first)
    diagnosis = gradcheck(lambda v: chainrule.softmax(v)[0], [1.0, 2.0]).diagnosis
    assert "the order of the backward pass is wrong" in diagnosis


# When no node can be blamed.


def test_a_corner_within_is_told():
    report = gradcheck(lambda x: x.relu() - (-x).relu(), 0.0)  # x, but relu' is 0 at 0
    assert not report.ok
    assert "The `relu` made at" in report.diagnosis
    assert "stands on a corner, where its slope is a choice" in report.diagnosis


def test_an_overflow_within_is_told():
    diagnosis = gradcheck(lambda x: 1.0 / (x * x).exp(), 30.0).diagnosis
    assert "The `exp` made at" in diagnosis
    assert "is inf here, and d out/d its operand is inf" in diagnosis


def test_a_node_made_before_f_is_named():
    a = chainrule.Value(2.0)
    early = a * 3.0
    assert "was made from an input before `f` ran; build it inside `f`" in gradcheck(lambda x: early * x, a).diagnosis


def test_a_function_that_takes_another_path_is_said_to():
    def f(x):
        return swapped_mul(x, x * x) if x.data == 1.5 else x * x * x

    assert "builds a graph of another shape when `x` moves" in gradcheck(f, 1.5).diagnosis


def test_a_jump_is_no_fault_of_the_ops():
    report = gradcheck(lambda x: chainrule.where(x.data > 0, x + 1.0, x), 0.0)
    assert "the numerical derivative does not settle" in str(report)
    assert "doubt the numerical derivative first" in report.diagnosis


# Nothing of the caller's changes.


@every_kind
@pytest.mark.parametrize("f", [lambda x, k: x * k, lambda x, k: swapped_mul(x, k).tanh()], ids=["right", "wrong"])
def test_values_are_left_as_they_were(kind, f):
    x, captured = kind(2, label="x"), kind(0.25)
    x.grad, captured.grad = 7.0, 5.0
    gradcheck(lambda v: f(v, captured), x)
    assert (x.data, x.grad, captured.data, captured.grad) == (2, 7.0, 0.25, 5.0)
    assert not x._prev


@every_kind
def test_values_are_left_as_they_were_when_f_raises(kind):
    x = kind(2.0)
    x.grad = 7.0

    def f(v):
        if v.data != 2.0:
            raise KeyError("moved")
        return v * v

    with pytest.raises(KeyError):
        gradcheck(f, x)
    assert (x.data, x.grad) == (2.0, 7.0)


def test_the_class_and_the_trace_function_are_left_as_they_were():
    before = closures.Value.__init__

    def tracer(frame, event, argument):
        return None

    outer = sys.gettrace()
    sys.settrace(tracer)
    try:
        assert not gradcheck(lambda x, y: swapped_mul(x, y), closures.Value(2.0), 3.0)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(outer)
    assert closures.Value.__init__ is before


# The report and the arguments.


def test_the_error_is_how_far_the_two_derivatives_are_apart():
    (wrong, _) = gradcheck(lambda a, b: swapped_mul(a, b), 40.0, 60.0)
    assert wrong.error == pytest.approx(20.0)
    assert [row.error for row in gradcheck(lambda x: x.relu(), 0.0)] == [0.0], "any slope between the sides agrees"
    (smooth,) = gradcheck(lambda x: x.exp(), 1.1)
    assert smooth.error == abs(smooth.analytic - smooth.numerical) < 1e-9
    (vertical,) = gradcheck(lambda x: x.sqrt(), 0.0)
    assert vertical.error == math.inf


def test_a_report_of_one_derivative_is_in_the_singular():
    assert "1 of 1 derivative agrees to 1e-07." in str(gradcheck(lambda x: x * x, 2.0))


def test_the_report_prints_as_a_table():
    report = gradcheck(lambda width, h: swapped_mul(width, h), 2.0, 0.25)
    lines = str(report).splitlines()
    assert lines[0] == "input  value  analytic  numerical  error"
    assert [line.split()[:4] for line in lines[1:3]] == [["width", "2", "2", "0.25"], ["h", "0.25", "0.25", "2"]]
    assert [line.split()[4:] for line in lines[1:3]] == [["2e+00", "WRONG"], ["2e+00", "WRONG"]]
    assert lines[3] == "0 of 2 derivatives agree to 1e-07."
    assert lines[4] == report.diagnosis
    assert isinstance(report, Report)
    assert len(report) == 2
    assert not report
    assert repr(report) == str(report)


def test_inputs_have_the_names_people_gave_them():
    def names(f, *inputs):
        return [row.name for row in gradcheck(f, *inputs)]

    assert names(lambda x, ys: x * ys[0] * ys[1][0], 1.0, [2.0, [3.0]]) == ["x", "ys[0]", "ys[1][0]"]
    assert names(lambda *p: p[0] * p[1], 1.0, 2.0) == ["p[0]", "p[1]"]
    assert names(lambda x: x, chainrule.Value(1.0, label="w")) == ["w"]
    assert names(chainrule.atan2, 1.0, 2.0) == ["y", "x"]


def test_a_tighter_tolerance_asks_for_more():
    def slightly_off(x):
        return by_hand("off", 2.0 * x.data, (x,), lambda out: setattr(x, "grad", x.grad + 2.000001 * out.grad))

    assert not gradcheck(slightly_off, 1.0)
    assert gradcheck(slightly_off, 1.0, tolerance=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: gradcheck(lambda: 1.0), ValueError, "`inputs` holds no number"),
        (lambda: gradcheck(lambda x: [x], 1.0), TypeError, "`f` must return one Value, got list"),
        (lambda: gradcheck(lambda x: x, "1"), TypeError, "`x` must be a real number, got str"),
        (lambda: gradcheck(lambda x: x, math.inf), ValueError, "`x` is inf, where there is no derivative"),
        (lambda: gradcheck(lambda x: x.log(), 0.0), ValueError, "`f` gives -inf at these inputs"),
        (
            lambda: gradcheck(lambda x: x * random.random(), 1.0),
            ValueError,
            "for the same inputs; seed its random numbers",
        ),
        (
            lambda: gradcheck(lambda x: x, 1.0, tolerance=2.0),
            ValueError,
            "`tolerance` must lie between 0 and 1, got 2.0",
        ),
    ],
)
def test_mistakes_get_a_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("module", [checks, finite_differences], ids=lambda module: module.__name__)
def test_the_examples_in_the_docstrings_run(module):
    assert doctest.testmod(module).failed == 0
