"""Chains of `maximum` and `minimum` of different lengths: their ends are gathered, and what follows is one class."""

from functools import reduce

import numpy as np
import pytest

import chainrule
from chainrule import Value
from chainrule.compiler import compile
from chainrule.compiler.passes import gather
from chainrule.compiler.passes import lift as lifting
from chainrule.compiler.passes.classes import classify
from chainrule.compiler.passes.gather import gathered
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.trace.graph import graph_of


def softmax(scores):
    largest = reduce(chainrule.maximum, scores)
    parts = [(score - largest).exp() for score in scores]
    return [part / sum(parts) for part in parts], largest


def attention(tokens, width=3):
    """A softmax by hand, over one score more at each position; and the largest score, which is read itself."""
    parameters = [Value(0.3 + 0.1 * ((7 * k) % 11)) for k in range(tokens * width)]
    rows, total = [parameters[width * t : width * t + width] for t in range(tokens)], 0.0
    for t, query in enumerate(rows):
        shares, largest = softmax([sum(q * k for q, k in zip(query, key, strict=True)) for key in rows[: t + 1]])
        mixed = [sum(share * row[i] for share, row in zip(shares, rows, strict=False)) for i in range(width)]
        mean = sum(mixed) / width
        spread = (sum((x - mean) ** 2 for x in mixed) + 1.0).sqrt()
        total = total + sum(((x - mean) / spread).tanh() ** 2 for x in mixed) + (t + 1.0) * largest.sin()
    return total, parameters


def ranges(tokens):
    """The largest less the smallest of all so far, where many are equal; then the largest of such results."""
    parameters = xs = [Value(0.25 * (k % 4)) for k in range(2 * tokens)]
    for _ in range(2):
        xs = [
            (reduce(chainrule.maximum, xs[: t + 3]) - reduce(chainrule.minimum, [x * x for x in xs[: t + 2]])).sin()
            * (xs[t].exp() + xs[t + 1].tanh() * xs[t].cos())
            for t in range(len(xs) - 3)
        ]
    return sum((k + 1.0) * x for k, x in enumerate(xs)), parameters


PROGRAMS = [attention, ranges]


def numbers(program, size, move=0.0, **options):
    loss, parameters = program(size)
    compiled = compile(loss, parameters, **options)
    for k, parameter in enumerate(parameters):
        parameter.data += move * (k % 3)
    value, gradient = compiled.value_and_grad()
    loss, parameters = program(size)
    for k, parameter in enumerate(parameters):
        parameter.data += move * (k % 3)
    expected = compile(loss, parameters, strict=True).value_and_grad()
    return value, gradient, *expected


def assert_equals_eager(program, size, **options):
    close = 1e-4 if options.get("dtype") else 1e-11
    for move in (0.0, 0.1):
        value, gradient, expected, slopes = numbers(program, size, move, **options)
        assert value == pytest.approx(expected, rel=close)
        np.testing.assert_allclose(gradient, slopes, rtol=close, atol=close * np.abs(slopes).max())


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Small programs too."""
    monkeypatch.setattr(lifting, "FEW_STATEMENTS", 0)


@pytest.mark.parametrize("options", [{"backend": "llvm"}, {"backend": "interpreter"}, {"dtype": "float32"}], ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_they_compute_what_eager_code_does_where_numbers_are_equal_too(program, options):
    for size in (4, 5, 9, 14):
        assert_equals_eager(program, size, **options)
    assert "g1[" in str(lift(graph_of(*program(5))))


def test_what_follows_is_no_more_for_more_positions():
    """Two statements for each: a link of the chain, and a copy of its end."""
    short, long = (len(lift(graph_of(*attention(size))).verify().statements) for size in (20, 40))
    assert long - short == 2 * 20
    assert short < 80


def test_the_largest_of_results_that_were_gathered_are_gathered_in_turn():
    graph = graph_of(*ranges(9))
    found = gathered(graph, classify(graph))
    rules = [rule for rule in found.rules if isinstance(rule, gather.Gathered)]
    assert len(rules) >= 2
    for node, operands in enumerate(found.operands):
        assert all(operand < node for operand in operands)
    kinds = [rule for rule in graph.rules if isinstance(rule, str)]
    assert [rule for rule in found.rules if isinstance(rule, str)] == kinds


def test_chains_of_few_lengths_and_of_mixed_terms_are_left_alone():
    xs = [Value(0.1 * k) for k in range(12)]
    for pieces in ([xs[:3], xs[3:6], xs[6:8]], [[x, x * x, x.exp(), *xs[:k]] for k, x in enumerate(xs)]):
        graph = graph_of(sum(reduce(chainrule.maximum, piece).exp() for piece in pieces), xs)
        assert gathered(graph, classify(graph)) is None


def test_ends_in_the_wrong_places_are_noticed(monkeypatch):
    """A planted fault: the copies go to the other end of the array."""
    entries = gather.Gathered.entries
    monkeypatch.setattr(gather.Gathered, "entries", lambda self, sources: entries(self, sources[::-1]))
    with pytest.raises(AssertionError):
        assert_equals_eager(attention, 9)


def test_ends_that_only_conditions_depend_on_pass_no_gradient():
    """Their slopes are infinite, and 0 times that would be NaN."""
    a, b, zero = parameters = [Value(0.3), Value(0.2), Value(0.0)]
    total = a * 1.0
    for count in range(3, 30):
        surprises = [
            sum((term - reduce(chainrule.maximum, terms)).exp() for term in terms)
            for leaf in (zero, b)
            for terms in [[((leaf * 0.1 * k) * (leaf * 0.2 * k)).sqrt() for k in range(1, count)]]
        ]
        total = total + chainrule.where(chainrule.gt(surprises[0], 2.0), surprises[1].log(), surprises[1])
    loss = total
    loss.backward()
    expected = [parameter.grad for parameter in parameters]
    assert np.isfinite(expected).all()
    for backend in ("llvm", "interpreter"):
        _, gradient = compile(loss, parameters, backend=backend).value_and_grad()
        np.testing.assert_allclose(gradient, expected, rtol=1e-11)


def test_derivatives_and_batches():
    @compile
    def loss(xs):
        tops = [reduce(chainrule.maximum, [x * xs[0] for x in xs[: k + 2]]) for k in range(len(xs) - 2)]
        return sum(((top * top).tanh() + top.exp()) * (k + 1.0) for k, top in enumerate(tops))

    rows = np.random.default_rng(5).normal(size=(7, 9))
    values = loss.batch(rows, reduce=None)
    eager = [loss.function([Value(x) for x in row]).data for row in rows.tolist()]
    np.testing.assert_allclose(values, eager, rtol=1e-12)

    plain = compile(chainrule.grad(loss.function), strict=True)
    np.testing.assert_allclose(
        compile(chainrule.grad(loss.function))(rows[0].tolist()), plain(rows[0].tolist()), rtol=1e-11
    )
