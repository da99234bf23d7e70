"""Sums that grow with time, each formed anew: they go on from one another, and what is only a sum is no loop."""

import numpy as np
import pytest

from chainrule import Value, ops
from chainrule.compiler import compile
from chainrule.compiler.passes import lift as lifting
from chainrule.compiler.passes import loops, repeats
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.passes.loops import find_loops
from chainrule.compiler.passes.outline import leaves_first
from chainrule.compiler.passes.repeats import with_running_sums
from chainrule.compiler.trace.graph import graph_of


def bonds(years):
    """Each year's discount needs the sum of all before it; then bonds of all lives are priced."""
    rates = [Value(0.02 + 0.001 * (3 * k % 7)) for k in range(years)]
    discounts = []
    for rate in rates:
        discounts.append((1.0 - rate * sum(discounts)) / (1.0 + rate))
    prices = [sum((0.01 + 0.002 * k) * d for d in discounts[: k + 1]) + discounts[k] for k in range(years)]
    return sum((price - 1.0) ** 2 for price in prices), rates


def two_totals(steps):
    """The sum and the sum of squares of all that was, in each step."""
    a, b, *xs = parameters = [Value(0.1 + 0.05 * (k % 9)) for k in range(steps + 2)]
    past = [a]
    for x in xs:
        past.append((a * sum(past) + b * sum(p * p for p in past)).tanh() * 0.1 + x)
    return past[-1] * past[-1], parameters


def from_one_and_two(steps):
    """Sums of the same numbers that begin with different ones, on the way."""
    x, *xs = parameters = [Value(0.1 + 0.03 * (k % 5)) for k in range(steps + 1)]
    past = [x]
    for y in xs:
        past.append(y / sum(past, 1.0) - sum(past, 2.0) * 0.01)
    return past[-1], parameters


PROGRAMS = [bonds, two_totals, from_one_and_two]


def assert_equals_eager(program, size, **options):
    loss, parameters = program(size)
    loss.backward()
    value, gradient = compile(loss, parameters, **options).value_and_grad()
    close = 1e-5 if options.get("dtype") else 1e-11
    assert value == pytest.approx(loss.data, rel=close)
    expected = np.array([p.grad for p in parameters])
    np.testing.assert_allclose(gradient, expected, rtol=close, atol=close * np.abs(expected).max())


@pytest.mark.parametrize(
    "options", [{"backend": "llvm"}, {"backend": "interpreter"}, {"dtype": "float32"}, {"strict": True}], ids=str
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_they_compute_what_eager_code_does(program, options):
    for size in (1, 2, 7, 30):
        assert_equals_eager(program, size, **options)


@pytest.mark.parametrize("program", PROGRAMS)
def test_more_steps_are_no_more_statements(program):
    short, long = (lift(graph_of(*program(steps))).verify() for steps in (30, 60))
    assert len(short.statements) == len(long.statements) < 50


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_sum_goes_on_from_the_one_it_begins_with(program):
    graph = graph_of(*program(40))
    running = with_running_sums(graph).verify()
    assert len(running) < 0.8 * len(graph)
    assert len(running.leaves("parameter")) == len(graph.leaves("parameter"))
    assert len(with_running_sums(running)) == len(running)


def test_sums_that_begin_alike_only_by_mistake_are_noticed(monkeypatch):
    """A planted fault: all constants are taken for the same."""
    monkeypatch.setattr(repeats, "_names", lambda graph: [min(k, 50) for k in range(len(graph))])
    with pytest.raises(AssertionError):
        assert_equals_eager(from_one_and_two, 30)


def test_few_repeated_additions_are_left_as_they_are():
    x, *xs = [Value(0.1 * k) for k in range(20)]
    graph = graph_of(sum(((x + 1.0) * y).exp() for y in xs))
    assert with_running_sums(graph) is graph  # it is not what a sum begins with
    graph = graph_of(sum(((x + 1.0 + y) * y).exp().tanh().exp().tanh() for y in xs[:3]))
    assert with_running_sums(graph).rules.count(ops.add) < graph.rules.count(ops.add)
    graph = graph_of(sum(((x + 1.0 + y) * y).exp().tanh().exp().tanh().exp().tanh() * y * y for y in xs[:2]))
    assert with_running_sums(graph) is graph  # one node of many


def test_derivatives_by_one_of_two_equal_sums_keep_them_apart(monkeypatch):
    monkeypatch.setattr(lifting, "with_running_sums", lambda graph: pytest.fail("merged"))
    lift(graph_of(*bonds(30)), merges=False)


def dots(rows, columns):
    xs = [Value(0.1 * k) for k in range(columns)]
    return sum(sum((k + 2.0) * x for x in xs[: columns - k]) ** 2 for k in range(rows)), xs


def test_what_is_only_added_up_is_no_loop():
    assert find_loops(leaves_first(graph_of(*dots(5, 30)))) == []


def test_a_sum_of_which_every_step_reads_what_there_is_is_one():
    xs = [Value(0.1 * k) for k in range(30)]
    total, seen = xs[0], 1.0
    for x in xs[1:]:
        total = total + x
        seen = seen * total.tanh()
    graph = leaves_first(graph_of(seen, xs))
    assert [(loop.count, len(loop.state)) for loop in find_loops(graph)] == [(27, 2)]


def test_a_loop_is_taken_in_its_shortest_steps(monkeypatch):
    """Though nine years together repeat as well, and first."""
    graph = leaves_first(with_running_sums(graph_of(*bonds(48))))
    (loop,) = find_loops(graph)
    assert loop.verify(graph).period == 7
    periods = loops._Search.periods
    monkeypatch.setattr(loops._Search, "periods", lambda self: [3, 63, *periods(self)])
    assert [(loop.period, loop.count) for loop in find_loops(graph)] == [(7, loop.count)]
    monkeypatch.setattr(loops._Search, "is_made_of", lambda *given: False)
    assert find_loops(graph)[0].period == 63
