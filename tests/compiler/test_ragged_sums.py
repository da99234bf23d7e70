"""Sums that differ only in length are one statement, as in attention over a growing past."""

import math
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_compiler import BACKENDS, assert_equals_eager

import chainrule
from chainrule import Value
from chainrule.compiler.passes.classes import _Classing, classify
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.trace.graph import graph_of


def values(count, seed=0):
    rng = random.Random(seed)
    return [Value(rng.uniform(-1, 1)) for _ in range(count)]


def matrix(rows, columns, seed):
    flat = values(rows * columns, seed)
    return [flat[k * columns : (k + 1) * columns] for k in range(rows)]


def running_sums(steps):
    w = values(steps, 1)
    x = values(steps, 2)
    return sum(sum(w[j] * x[j] for j in range(i + 1)).tanh() for i in range(steps)), [*w, *x]


def causal_attention(steps, width, layers=1):
    """Each position attends to those before it and to itself."""
    weights = [[matrix(width, width, 4 * layer + k) for k in range(3)] for layer in range(layers)]
    xs = matrix(steps, width, 99)
    leaves = [v for part in [*(m for layer in weights for m in layer), xs] for row in part for v in row]

    def times(m, x):
        return [sum(a * b for a, b in zip(row, x, strict=True)) for row in m]

    for queries, keys, contents in weights:
        q, k, v = ([times(m, x) for x in xs] for m in (queries, keys, contents))
        mixed = []
        for i in range(steps):
            scores = [sum(a * b for a, b in zip(q[i], k[j], strict=True)) / math.sqrt(width) for j in range(i + 1)]
            shares = chainrule.softmax(scores)
            mixed.append([sum(shares[j] * v[j][d] for j in range(i + 1)) for d in range(width)])
        xs = [[(a + b).tanh() for a, b in zip(x, y, strict=True)] for x, y in zip(xs, mixed, strict=True)]
    return sum(x * x for row in xs for x in row), leaves


def program(loss, wrt):
    return differentiate(lift(graph_of(loss, wrt))).verify()


def test_running_sums_are_one_statement():
    assert str(program(*running_sums(8))) == (
        "i<8: v0[i] = 0 + Σj<8 where(m1[8i+j], parameter[table[8i+j]]·parameter[table[8i+j]], -0)\n"
        "i<8: v1[i] = tanh(v0[i])\n"
        "v2[0] = 0 + Σi<8 v1[i]\n"
        "dv2[0] = 1\n"
        "i<8: dv1[i] = dv2[0]\n"
        "i<8: dv0[i] = dv1[i]·(1 - (v1[i]·v1[i]))\n"
        "i<16: dparameter[i] = 0\n"
        "i<36: dparameter[table[i]] += dv0[table[i]]·parameter[table[i]]\n"
        "i<36: dparameter[table[i]] += dv0[table[i]]·parameter[table[i]]"
    )


def test_the_lengths_are_kept():
    classes = classify(graph_of(*running_sums(5))).verify()
    (lengths,) = classes.lengths.values()
    assert lengths.tolist() == [[1, 1], [1, 2], [1, 3], [1, 4], [1, 5]]  # a zero to start with, and products


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_attention_has_a_length_that_does_not_depend_on_the_positions(layers):
    short, long = (len(program(*causal_attention(steps, 2, layers)).statements) for steps in (5, 12))
    assert short == long


def test_each_chain_is_looked_at_once(monkeypatch):
    """However many sums of sums of several lengths stand on each other: it used to be once for each of them."""
    seen, add_chain = Counter(), _Classing.add_chain

    def counted(classing, node, sums):
        seen[node] += 1
        add_chain(classing, node, sums)

    monkeypatch.setattr(_Classing, "add_chain", counted)
    row, layers = values(12), 9
    for _ in range(layers):
        row = [sum(row[: k + 1]).tanh() for k in range(len(row))]
    classes = classify(graph_of(sum(row), row)).verify()
    assert len(classes.lengths) == layers
    assert set(seen.values()) == {1}


def test_two_lengths_stay_two_statements():
    x = values(9)
    classes = classify(graph_of(sum([sum(x[:3]).tanh(), sum(x[3:6]).tanh(), sum(x[4:]).tanh()]), x))
    assert not classes.lengths


def test_sums_of_very_different_lengths_stay_apart():
    x = values(300)
    sums = [sum(x[k : k + 2 + k % 2]) for k in range(60)] + [sum(x)]
    assert not classify(graph_of(sum(s.tanh() for s in sums), x)).lengths


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("make", "arguments"), [(running_sums, (9,)), (causal_attention, (6, 3)), (causal_attention, (5, 2, 2))]
)
def test_equal_eager(make, arguments, backend):
    assert_equals_eager(*make(*arguments), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_fills_a_row_up_is_never_used(backend):
    """The first of each row, which fills it up, is infinite in one row; the others must not see it."""
    x = [Value(v) for v in (1e308, 0.5, 0.25, 2.0, 0.125, 1.0)]
    rows = [x[:1], x[1:3], x[3:6]]
    loss = sum((1.0 / (1.0 + sum(v * 10.0 for v in row))) for row in rows)
    assert_equals_eager(loss, x, backend)


@given(
    lengths=st.lists(st.integers(1, 7), min_size=3, max_size=9),
    offset=st.integers(0, 3),
    function=st.sampled_from(["tanh", "exp", "sin"]),
    product=st.booleans(),
)
@pytest.mark.slow
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)
def test_random_lengths(lengths, offset, function, product):
    x, w = values(20, 3), values(20, 4)
    rows = [range(k + offset, k + offset + length) for k, length in enumerate(lengths)]
    sums = [sum(w[j % 20] * x[(2 * j) % 20] if product else x[j % 20] for j in row) for row in rows]
    loss = sum(getattr(s * 0.3, function)() for s in sums)
    for backend in BACKENDS:
        assert_equals_eager(loss, [*x, *w], backend, 1e-12)


def test_a_batch_of_them():
    w = values(6)

    def loss(xs):
        return sum(sum(w[j] * xs[j] for j in range(i + 1)).tanh() for i in range(6))

    compiled = chainrule.compile(loss, w)
    rng = random.Random(5)
    rows = [[rng.uniform(-1, 1) for _ in range(6)] for _ in range(50)]
    total, gradient = compiled.batch_value_and_grad(rows, reduce="sum")
    for v in w:
        v.grad = 0.0
    eager = sum((loss(row) for row in rows), Value(0.0))
    eager.backward()
    assert total == pytest.approx(eager.data, rel=1e-12)
    assert gradient.tolist() == pytest.approx([v.grad for v in w], rel=1e-11)
