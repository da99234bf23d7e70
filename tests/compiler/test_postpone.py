"""What is needed much later comes right before it is needed, so that loops are seen in what remains."""

import random

import pytest

from chainrule import Value
from chainrule.compiler import compile
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.passes.outline import leaves_first
from chainrule.compiler.passes.postpone import postponed
from chainrule.compiler.trace.graph import graph_of


def fit(moments, between, at_the_end=True):
    """The errors of a state that takes some steps `between` one observation and the next, and the rates."""
    rates = [Value(rate) for rate in (1.1, 0.4, 0.1, 0.4)]
    x, y, errors, total = 1.0, 0.5, [], 0.0
    for moment in range(moments):
        for _ in range(between):
            x, y = x + 0.1 * (rates[0] * x - rates[1] * x * y), y + 0.1 * (rates[2] * x * y - rates[3] * y)
        errors.append((x - 0.1 * moment) * (x - 0.1 * moment))
        total = total + errors[-1]
    return (sum(errors) if at_the_end else total), rates


@pytest.mark.parametrize("at_the_end", [True, False])
@pytest.mark.parametrize("between", [8, 16])
def test_a_loop_of_steps_is_found_between_observations(between, at_the_end):
    """However many steps there are in between, the body is one of them."""
    program = lift(graph_of(*fit(12, between, at_the_end))).verify()
    assert f"repeat r<{12 * between - 2}:" in str(program)
    assert len(program.statements) <= 30


def seen_now_and_then(style, steps=400):
    """Errors at irregular times, added up on the way or at the end, or of states that were kept."""
    rng, rates = random.Random(1), [Value(rate) for rate in (1.1, 0.4, 0.1, 0.4)]
    x, y, kept, total = Value(1.0), Value(0.5), [], 0.0
    for _ in range(steps):
        x, y = x + 0.05 * (rates[0] * x - rates[1] * x * y), y + 0.05 * (rates[2] * x * y - rates[3] * y)
        if rng.random() < 0.4:
            kept.append(x if style == "states" else (x - 0.5) ** 2)
            total = total + kept[-1] if style == "on the way" else total
    if style == "on the way":
        return total, rates
    return sum((x - 0.5) ** 2 for x in kept) if style == "states" else sum(kept), rates


@pytest.mark.parametrize("style", ["on the way", "at the end", "states"])
def test_irregular_times_cost_nothing(style):
    loss, rates = seen_now_and_then(style)
    program = compile(loss, wrt=rates)
    value, gradient = program.value_and_grad()
    loss.backward()
    assert value == pytest.approx(loss.data, rel=1e-12)
    assert gradient == pytest.approx([rate.grad for rate in rates], rel=1e-11)
    assert program.stats["array statements"] <= 60


def test_an_order_keeps_operands_before_their_users():
    graph = leaves_first(graph_of(*fit(12, 8)))
    found = postponed(graph).verify()
    assert found is not graph
    assert sorted(map(str, found.rules)) == sorted(map(str, graph.rules))


def test_what_is_used_soon_stays_where_it_is():
    loss, rates = fit(1, 40)
    graph = leaves_first(graph_of(loss, rates))
    assert postponed(graph) is graph
    x = Value(2.0)
    assert postponed(graph := leaves_first(graph_of(x * 1.0, [x]))) is graph


@pytest.mark.parametrize("at_the_end", [True, False])
def test_it_computes_the_same(at_the_end):
    loss, rates = fit(12, 8, at_the_end)
    value, gradient = compile(loss, wrt=rates).value_and_grad()
    loss.backward()
    assert value == pytest.approx(loss.data, rel=1e-12)
    assert gradient == pytest.approx([rate.grad for rate in rates], rel=1e-12)
