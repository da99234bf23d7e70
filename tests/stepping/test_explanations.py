"""A graph worked out in words gives the numbers of the engine."""

import re

import pytest
from hypothesis import assume, given, settings

import expressions
from chainrule import Value
from chainrule.cli.formula_parser import parse
from chainrule.stepping.steps import explain


def test_the_worked_example_of_the_lecture():
    result, _ = parse("e = a*b; d = e + c; L = d*f").build({"a": 2.0, "b": -3.0, "c": 10.0, "f": -2.0})
    forward, backward = explain(result)
    assert forward == ["e = a · b = 2 · (-3) = -6", "d = e + c = -6 + 10 = 4", "L = d · f = 4 · (-2) = -8"]
    assert backward == [
        "L.grad = 1",
        "d.grad += L.grad · f = 1 · (-2) = -2",
        "f.grad += L.grad · d = 1 · 4 = 4",
        "e.grad += d.grad · 1 = -2 · 1 = -2",
        "c.grad += d.grad · 1 = -2 · 1 = -2",
        "a.grad += e.grad · b = -2 · (-3) = 6",
        "b.grad += e.grad · a = -2 · 2 = -4",
    ]


def test_contributions_add_up():
    x = Value(3.0, label="x")
    assert explain(x * x)[1][1:] == [
        "x.grad += L.grad · x = 1 · 3 = 3",
        "x.grad += L.grad · x = 1 · 3 = 3, so 3 + 3 = 6",
    ]


def test_derivatives_are_written_by_the_op_table():
    a, b = Value(2.0, label="a"), Value(3.0, label="b")
    assert "L.grad · (1 - L²) =" in explain(a.tanh())[1][1]
    assert "L.grad · (2 · a) =" in explain(a**2)[1][1]
    assert "L.grad · (-L / b) =" in explain(a / b)[1][2]
    assert explain((a - b) ** 2 - -a)[0] == [
        "v1 = a - b = 2 - 3 = -1",
        "v2 = v1² = (-1)² = 1",
        "v3 = -a = -2",
        "L = v2 - v3 = 1 - (-2) = 3",
    ]


@settings(max_examples=50, deadline=None)
@given(expressions.programs(rows=expressions.CONTINUOUS, numbers=expressions.tame_numbers, most_nodes=12))
def test_the_last_word_on_each_leaf_is_its_gradient(program):
    leaves, results = expressions.run(program, Value, lambda row, operands: row(*operands))
    for k, leaf in enumerate(leaves):
        leaf.label = f"x{k}"
    root = results[-1]
    assume(isinstance(root, Value))  # rather than a number made of constants
    root.backward()
    words = {}
    for line in explain(root)[1][1:]:
        words[re.match(r"(\w+)\.grad \+=", line).group(1)] = re.search(r"\S+$", line).group()
    for leaf in leaves:
        if leaf.label in words:
            assert float(words[leaf.label]) == pytest.approx(leaf.grad, rel=1e-4, nan_ok=True)
        else:
            assert leaf.grad == 0.0


def test_names_that_are_taken_are_not_given_again():
    v1, other = Value(1.0, label="v1"), Value(2.0, label="b")
    forward, _ = explain(v1 * other + 1.0)
    assert forward == ["v2 = v1 · b = 1 · 2 = 2", "L = v2 + 1 = 2 + 1 = 3"]


def test_a_leaf_and_a_backward_written_by_hand():
    assert explain(Value(3.0)) == ([], ["L.grad = 1"])
    x = Value(2.0, label="x")
    cube = Value(8.0, (x,), "cube", "y")

    def backward():
        x.grad += 3 * x.data**2 * cube.grad

    cube._backward = backward
    assert explain(cube) == (
        ["y = cube(x) = cube(2) = 8"],
        ["y.grad = 1", "x.grad: 0 → 12, by the `_backward` of y, written by hand"],
    )
