"""Derivatives that no path leads to are 0, also beside an infinite slope."""

import math
import random
from itertools import pairwise

import pytest

import chainrule
from chainrule import (
    Value,
    atan2,
    clip,
    exp,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    leaky_relu,
    log,
    maximum,
    optim,
    sqrt,
    tanh,
    vjp,
    where,
)
from chainrule.compiler.passes import reach
from steep_loops import STRANGE, after_turns, random_turn


def roots(v):
    return [sqrt(x) for x in v]


def of_neighbours(v):
    return [log(a) * b for a, b in zip(v, [*v[1:], v[0]], strict=True)]


def steps_of_two(v):
    """A loop of which every other turn has a result."""
    state, found = v[0], []
    for k in range(12):
        state = state * 0.5 + sqrt(v[k % len(v)])
        if k % 2:
            found.append(state * 1.0)
    return found


def powers(v):
    return sum(x**1.5 for x in v)


def with_another(v):
    """A gradient, and beside it what has infinite slopes and nothing to do with it."""
    return [grad(lambda u: sum(exp(x) for x in u[1:]))(v), roots(v), grad(lambda u: sqrt(u[0]) + u[1])(v)]


def numbers(found):
    if isinstance(found, (list, tuple)):
        return [number for each in found for number in numbers(each)]
    return [float(found.data if isinstance(found, Value) else found)]


DERIVATIVES = [
    lambda v: jacobian(roots)(v),
    lambda v: jacobian(of_neighbours)(v),
    lambda v: jacobian(steps_of_two)(v),
    lambda v: hessian(powers)(v),
    lambda v: jacobian(lambda u: [sum(roots(u)), u[0] + u[1]])(v),
    with_another,
]


@pytest.mark.parametrize("backend", ["llvm", "interpreter"])
@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("point", [[0.0, 1.0, 2.0], [1.0, 0.0, 0.5, 0.0]])
def test_they_are_those_of_eager_code(derivative, point, backend):
    expected = numbers(derivative([Value(x) for x in point]))
    found = numbers(chainrule.compile(derivative, backend=backend)(point))
    assert found == pytest.approx(expected, rel=1e-12, nan_ok=True)


def inverses(v):
    return sum(1.0 / x for x in v)


def rows_of_a_triangle(v):
    return sum(sqrt(sum(v[j] * v[k] for k in range(j + 1))) for j in range(len(v)))


AGAIN = [
    lambda v: jacobian(hessian(inverses))(v),
    lambda v: jacobian(hessian(rows_of_a_triangle))(v),
    lambda v: grad(lambda u: sum(jacobian(roots)(u)[-1]))(v),
    lambda v: hvp(lambda u: jacobian(of_neighbours)(u)[1][1], (v,), ([1.0] * len(v),)),
]


@pytest.mark.parametrize("backend", ["llvm", "interpreter"])
@pytest.mark.parametrize("derivative", AGAIN)
def test_what_is_reached_is_still_so_when_derivatives_are_differentiated(derivative, backend):
    """The derivative of a choice was a product with 0, and 0 times an infinite slope is NaN."""
    for point in [1.0, 4.0, 0.25], [0.0, 1.0, 2.0], [1.0, 0.0, 0.5, 0.0]:
        expected = numbers(derivative([Value(x) for x in point]))
        found = numbers(chainrule.compile(derivative, backend=backend)(point))
        assert found == pytest.approx(expected, rel=1e-12, nan_ok=True)


CHOICES = [
    lambda v: sum(log(4.0 + atan2(a, b)) for a, b in pairwise(v)),
    lambda v: sum(exp(leaky_relu(a - 1.5, b)) / b for a, b in pairwise(v)),
    lambda v: sum(log(5.0 + where(a > b, 3.0, a * b)) for a, b in pairwise(v)),
    lambda v: sum(sqrt(9.0 + clip(a * b, 0.0, 1.0)) * a for a, b in pairwise(v)),
    lambda v: sum(log(9.0 + maximum(a, b) * a) for a, b in pairwise(v)),
]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_slope_may_be_a_choice_whatever_its_sides_are(choice):
    """A side that is 0 was taken for the end of a path, and second derivatives were 0 that are not."""
    for point in [0.3, 2.0, 1.1, 0.7], [-1.0, 0.5, -2.0, 3.0], [1.0, 1.0, 2.0, 0.5]:
        expected = numbers(hessian(choice)([Value(x) for x in point]))
        for backend in "llvm", "interpreter":
            found = numbers(chainrule.compile(hessian(choice), backend=backend)(point))
            assert found == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)


def test_a_program_whose_slopes_are_finite_has_no_masks():
    compiled = chainrule.compile(lambda v: jacobian(lambda u: [a * 2.0 - b for a, b in pairwise(u)])(v))
    compiled([1.0, 2.0, 3.0])
    assert "where" not in compiled.describe()


def test_what_would_take_too_long_to_follow_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(reach, "MOST_WORK", 3)
    compiled = chainrule.compile(lambda v: jacobian(roots)(v))
    assert numbers(compiled([4.0, 0.25])) == [0.25, 0.0, 0.0, 1.0]
    assert "where" not in compiled.describe()


def energy(w):
    return lambda u: sqrt(u[0]) * w + u[1] * w * w


PARTS = {
    "gradient": lambda w: lambda v: grad(energy(w))(v)[1],
    "of a number that is NaN": lambda w: lambda v: grad(lambda u: log(u[0] - 9.0) * w + u[1] ** 2 * w * w)(v)[1],
    "second derivative": lambda w: lambda v: hessian(lambda u: u[0] ** 1.5 * w + u[1] ** 2 * w * w)(v)[1][1],
    "backward": lambda w: lambda v: vjp(lambda u: [sqrt(u[0]) * w, u[1] * w * w], v)[1]([1.0, 1.0])[0][1],
    "forward": lambda w: lambda v: jvp(lambda u: [sqrt(u[0]) * w, u[1] * w * w], (v,), ([1.0, 1.0],))[1][1],
    "many": lambda w: lambda v: sum(grad(lambda u: sum(sqrt(x) * w for x in u))(v)[1:]),
}


@pytest.mark.parametrize("backend", ["llvm", "interpreter"])
@pytest.mark.parametrize("name", PARTS)
def test_derivatives_that_are_not_asked_for_do_not_matter_on_the_way_back(name, backend):
    """Nobody reads the first, whose slope is infinite or NaN: the parameter's gradient is that of the others."""
    for point in [0.0, 2.0], [math.nan, 4.0]:
        w = Value(3.0)
        part = PARTS[name](w)
        part([Value(x) for x in point]).backward()
        assert math.isfinite(w.grad)
        compiled = chainrule.compile(part, wrt=[w], backend=backend)
        assert compiled.value_and_grad(point)[1] == pytest.approx([w.grad], rel=1e-12)
        assert compiled.batch_value_and_grad([point, point])[1] == pytest.approx([w.grad], rel=1e-12)


def test_training_by_a_part_of_a_derivative_leaves_parameters_finite():
    w = Value(3.0)
    compiled = chainrule.compile(PARTS["gradient"](w), wrt=[w])
    compiled.train(optim.SGD([w], lr=0.01), [[0.0, 2.0]])
    assert w.data == pytest.approx(3.0 - 0.01 * 6.0)


SEEDED = [
    lambda v: jvp(lambda u: [t * t for t in u], (v,), ([0.0, 1.0],))[1],
    lambda v: vjp(roots, v)[1]([0.0, 1.0])[0],
    lambda v: hvp(lambda u: u[0] / u[1], (v,), ([0.0, 1.0],)),
    lambda v: jvp(lambda u: [tanh(t) for t in u], (v,), ([0.0, 0.0],))[1],
]


@pytest.mark.parametrize("backend", ["llvm", "interpreter"])
@pytest.mark.parametrize("derivative", SEEDED)
def test_a_direction_of_0_that_somebody_asks_for_is_a_direction(derivative, backend):
    for point in [math.nan, 2.0], [0.0, 4.0], [1.0, 0.0], [math.inf, 0.5]:
        expected = numbers(derivative([Value(x) for x in point]))
        found = numbers(chainrule.compile(derivative, backend=backend)(point))
        assert found == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_long_loops_are_followed_to_their_ends():
    def ends(v):
        found = []
        for x in roots(v)[:2]:
            state = x
            for _ in range(3000):
                state = state * 0.999 + 0.001 * tanh(state)
            found.append(state)
        return found

    point = [0.0, 4.0, 1.0]
    found = numbers(chainrule.compile(lambda v: jacobian(ends)(v))(point))
    assert found == pytest.approx(numbers(jacobian(ends)([Value(x) for x in point])), rel=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_no_derivative_becomes_nan_in_random_loops(seed):
    rng = random.Random(seed)
    lines, turns = random_turn(rng), rng.choice((1, 2, 5))

    def last(v):
        return after_turns(lines, v, turns)

    derivative = rng.choice(
        (lambda v: hessian(last)(v), lambda v: jacobian(lambda u: [last(u), u[0] * last(u[::-1])])(v))
    )
    compiled = chainrule.compile(derivative, backend="interpreter")
    for _ in range(3):
        point = [rng.choice(STRANGE) if rng.random() < 0.2 else rng.uniform(-2.0, 2.0) for _ in range(4)]
        for wanted, found in zip(numbers(derivative([Value(x) for x in point])), numbers(compiled(point)), strict=True):
            assert not math.isfinite(wanted) or math.isfinite(found), point
