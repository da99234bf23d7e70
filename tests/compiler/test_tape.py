"""Tapes have their nodes in runs of one op, or of sums and products, and still give eager code's bits."""

import operator
import random

import numpy as np
import pytest

import chainrule
from chainrule import Value
from chainrule.compiler.backends import tape as tapes
from chainrule.compiler.backends.strict import StrictCode
from chainrule.compiler.backends.tape import Tape
from chainrule.compiler.trace.graph import graph_of

OPS = operator.mul, operator.sub, operator.add, lambda a, b: -a, lambda a, b: (a / (b * b + 1.0)).tanh()


def tangle(seed, size=300):
    """A loss in which everybody reads anybody, so that gradients are sums of many terms of all magnitudes."""
    draw = random.Random(seed)
    leaves = [Value(draw.uniform(0.5, 2.0)) for _ in range(5)]
    values = list(leaves)
    for _ in range(size):
        a, b = draw.choice(values), draw.choice(values[-40:])
        values.append(draw.choice(OPS)(a, b) * draw.choice([1.0, 1e-3]))
    return sum(values[-60:], Value(0.0)), leaves


def gradients(loss, leaves):
    """Those of a strict program and of `backward()`."""
    for leaf in leaves:
        leaf.grad = 0.0
    loss.backward()
    graph = graph_of(loss, leaves)
    machine = StrictCode(graph, True, "as asked").take()
    machine.run()
    assert machine.output[0] == loss.data
    return machine.gradient.tolist(), [leaf.grad for leaf in graph.leaves("parameter")]


@pytest.mark.parametrize("seed", range(20))
def test_every_node_gets_its_gradients_in_order(seed):
    ours, eager = gradients(*tangle(seed))
    assert ours == eager


def test_operands_alone_would_round_differently(monkeypatch):
    ordered = tapes._turns_and_levels
    monkeypatch.setattr(tapes, "_turns_and_levels", lambda graph, *given: ordered(graph, *given[:2], [0] * len(graph)))
    found = [gradients(*tangle(seed)) for seed in range(20)]
    assert any(ours != eager for ours, eager in found)
    for ours, eager in found:
        np.testing.assert_allclose(ours, eager, rtol=1e-9)


def test_an_elimination_is_few_runs():
    size = 8
    rows = [[Value(float(i == j) + 0.01 * (i + 2 * j)) for j in range(size)] for i in range(size)]
    leaves = [x for row in rows for x in row]
    for k in range(size):
        for i in range(k + 1, size):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [b - factor * a for a, b in zip(rows[k], rows[i], strict=True)]
    loss = sum(rows[-1], Value(0.0))
    graph = graph_of(loss, leaves)
    assert len(Tape(graph, True, [len(graph) - 1], iter(()), 0).arrays[0]) < 12 * size
    ours, eager = gradients(loss, leaves)
    assert ours == eager


def test_what_only_a_later_result_needs_comes_after_an_earlier_one():
    x = Value(2.0)
    first = x * 3.0 + 1.0
    second = (x * 5.0).tanh() * first
    graph = graph_of(second, [x])
    wanted = [graph.nodes.index(first), graph.nodes.index(second)]
    tape = Tape(graph, False, wanted, iter(()), 0, in_turn=True)
    early = tape.graph.nodes[: tape.results[0] + 1]
    assert first in early
    assert not any(node in early for node in second._operands if node is not first)
    assert [tape.graph.nodes[place] for place in tape.results] == [first, second]
    assert tape.graph.verify()


def test_paths_that_share_nothing():
    """No Value is captured, so the tape of what two paths share has no nodes."""
    program = chainrule.compile(lambda x: x * 2.0 if x > 0 else x * 3.0, strict=True, wrt=[])
    assert program.batch([1.0, -1.0]) == -0.5
    result, gradient = program.batch_value_and_grad([1.0, -1.0, 2.0], reduce="sum")
    assert (result, gradient.tolist()) == (3.0, [])


def test_an_op_of_many_operands():
    names = [f"x{k}" for k in range(70)]  # more than a machine word has bits
    made = {}
    exec(f"def many({', '.join(names)}): return {' + '.join(names)}", made)
    many = chainrule.op(*[lambda out, *operands: 1.0] * 70)(made["many"])
    leaves = [Value(float(k)) for k in range(70)]
    assert chainrule.compile(many(*leaves), strict=True, wrt=leaves[66:])() == 2415.0
    assert [leaf.grad for leaf in leaves[64:]] == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
