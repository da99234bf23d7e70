"""Steps that read this or that, by cases which are known when they are recorded: one loop, or one sum, all the same."""

import random

import pytest
from test_compiler import BACKENDS, assert_equals_eager

import chainrule
from chainrule import Value
from chainrule.compiler.passes import classes, gather
from chainrule.compiler.passes.classes import classify
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.trace.graph import graph_of


def days(count):
    """For each a measured number, and whether it is of the first kind."""
    rng = random.Random(7)
    return [(rng.uniform(-1.0, 1.0), rng.random() < 0.3) for _ in range(count)]


def censored(count):
    """A log-likelihood that what was seen is subtracted from, and what was not seen is added to."""
    parameters = mean, spread = [Value(0.2), Value(0.7)]
    total = 0.0
    for x, is_seen in days(count):
        z = (x - mean) / spread
        total = total - 0.5 * z * z - chainrule.log(spread) if is_seen else total + chainrule.log(1.0 + z.exp())
    return total, parameters


def level(count):
    """What fades, and is raised by one of two amounts."""
    parameters = a, b, start = [Value(0.3), Value(-0.2), Value(1.5)]
    now = start
    for x, is_first in days(count):
        value = a + b * x
        now = 0.95 * now + (chainrule.log(1.0 + value.exp()) if is_first else 0.5 * value * value)
    return now.sin() + start, parameters


def record(count):
    """The most so far, of numbers of two kinds; and a product with a third kind."""
    parameters = a, b, most = [Value(0.3), Value(-0.2), Value(0.1)]
    total = a * 1.0
    for x, is_first in days(count):
        value = a + b * x
        most = chainrule.maximum(most - 0.01, value.tanh() if is_first else value * value)
        total = (0.5 * total * (value.cos() if is_first else 1.0 + value) + 0.1 * a).tanh()
    return most * total, parameters


def watched(count):
    """A level, and beside it one that is only asked whether it is high; its inputs have infinite slopes."""
    parameters = a, b, zero, now, watch = [Value(0.3), Value(-0.2), Value(0.0), Value(0.5), Value(0.1)]
    for x, is_first in days(count):
        value, hidden = a + b * x, zero * x
        now = 0.9 * now + (value.tanh() if is_first else value * value)
        watch = 0.9 * watch + ((hidden * hidden).sqrt() if is_first else hidden.sin())
    return chainrule.where(chainrule.gt(watch, 0.5), now, 2.0 * now) + a, parameters


def watched_alone(count):
    """The same where what counts has inputs of one kind."""
    parameters = a, b, zero, now, watch = [Value(0.3), Value(-0.2), Value(0.0), Value(0.5), Value(0.1)]
    for x, is_first in days(count):
        value, hidden = b * x, zero * x
        now = 0.9 * now + 0.5 * (value * value + 1.0).sqrt()
        watch = chainrule.maximum(watch - 0.01, (hidden * hidden).sqrt() if is_first else (hidden * hidden).sin())
    return chainrule.where(chainrule.gt(watch, 0.5), now, 2.0 * now) + a, parameters


PROGRAMS = [censored, level, record, watched, watched_alone]


def statements(program, count, **options):
    lifted = lift(graph_of(*program(count)), **options)
    return len(lifted.statements), len(differentiate(lifted).statements)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_they_compute_what_eager_code_does(program, backend):
    assert_equals_eager(*program(400), backend=backend)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_number_of_statements_does_not_depend_on_how_many_steps_there_are(program):
    few, many = statements(program, 400), statements(program, 800)
    assert few == many
    assert many[1] < 200


def test_signs_that_repeat_are_left_to_loops():
    x = [Value(0.1 * k) for k in range(200)]
    total = 0.0
    for k, v in enumerate(x):
        total = total + v.tanh() if k % 3 else total - v.tanh()
    found = classify(graph_of(total, x))
    assert found.sizes.max() == 200
    assert not any(kind is classes.SUM and found.widths[k].max() > 3 for k, kind in enumerate(found.kinds))


def test_what_steps_read_of_each_other_is_not_gathered():
    """Each step reads what the one before has left in either of two ways, so nothing is ready for the first."""
    a, now, other = Value(0.3), Value(0.5), Value(0.1)
    for x, is_first in days(300):
        now, other = 0.9 * now + (other.tanh() if is_first else other * a), 0.5 * other + x * now
    graph = graph_of(now, [a])
    found = gather.with_inputs(graph, classify(graph))
    assert found is None or len(found) <= 2 * len(graph)
    assert_equals_eager(now, [a])


def test_inputs_in_the_wrong_places_are_noticed(monkeypatch):
    """A planted fault: the copies go to the other end of the array."""
    entries = gather.Gathered.entries
    monkeypatch.setattr(gather.Gathered, "entries", lambda self, sources: entries(self, sources[::-1]))
    with pytest.raises(AssertionError):
        assert_equals_eager(*level(400))
