"""Symbols, in C where there is a native engine: what operators make of them, and how their graphs are laid out."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

from chainrule import Value, dot, exp
from chainrule.compiler.trace.graph import graph_of
from chainrule.compiler.trace.symbols import Constant, Symbol
from chainrule.core import graph
from chainrule.core.value import ENGINE

x, w = Symbol.argument(0), Value(2.0)


@pytest.mark.parametrize(
    ("made", "symbol", "operands"),
    [
        (x + 1, "+", [x, 1.0]),
        (1 - x, "-", [1.0, x]),
        (x * w, "*", [x, w]),
        (w / x, "/", [w, x]),
        (x % True, "%", [x, 1.0]),
        (np.float32(0.5) ** x, "**", [0.5, x]),
        (-x, "neg", [x]),
        (abs(x), "abs", [x]),
        (exp(x), "exp", [x]),
    ],
)
def test_operators_make_symbols_of_nodes_and_plain_numbers(made, symbol, operands):
    assert type(made) is Symbol
    assert (made._rule.symbol, made.place) == (symbol, -1)
    for found, expected in zip(made._operands, operands, strict=True):
        if isinstance(expected, float):
            assert type(found) is Constant
            assert found.data == expected
            assert found._serial < made._serial
        else:
            assert found is expected


def test_arrays_go_element_by_element():
    for made in (x * np.ones(2), np.ones(2) * x):
        assert [type(element) for element in made] == [Symbol, Symbol]


@pytest.mark.parametrize("bad", [lambda: x + "a", lambda: "a" + x, lambda: None * x, lambda: pow(x, 2, 3)])
def test_what_is_no_number_is_refused(bad):
    with pytest.raises(TypeError):
        bad()
    assert +x is x


@pytest.mark.skipif(ENGINE != "native", reason="there is one way only")
def test_without_the_compiler_symbols_have_no_class():
    code = "from chainrule import _native as n\ntry: n.Symbol(None, ()) + 1\nexcept RuntimeError as error: print(error)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "import chainrule.compiler" in run.stdout


@pytest.mark.skipif(ENGINE != "native", reason="there is one way only")
@pytest.mark.parametrize("since", [False, True])
def test_both_ways_lay_a_graph_of_symbols_and_values_flat_alike(monkeypatch, since):
    a, b = Symbol.argument(0), Value(3.0)
    early = dot([a, b, 2.0], [b, b, a])
    root = exp(early * b.tanh() + early) - 1.0
    serial = early._serial if since else 0
    found = graph.lay_flat(root, since=serial)
    monkeypatch.setattr(graph, "ENGINE", "python")
    nodes, rules, operands = graph.lay_flat(root, since=serial)
    assert list(map(id, found[0])) == list(map(id, nodes))
    assert found[1:] == (rules, operands)


def test_a_backward_of_ones_own_is_seen_below_symbols():
    def twice(value):
        made = Value(2.0 * value.data, (value,), "twice")
        made._backward = lambda: None
        return made

    with pytest.raises(TypeError, match="written by hand"):
        graph_of(x + twice(Value(1.0)))


def test_long_chains_and_circles_are_freed():
    class Holder:
        pass

    holder = Holder()
    chain = Symbol.argument(0)
    for _ in range(200_000):
        chain = chain * w
    holder.chain, holder.circle = chain, holder
    seen = weakref.ref(holder)
    del holder, chain
    gc.collect()
    assert seen() is None
