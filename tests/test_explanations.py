"""A graph worked out in words gives the numbers of the engine."""

import re

import pytest
from hypothesis import assume, given, settings

import expressions
from chainrule import Value, ops
from chainrule.explanations import Text, explain
from chainrule.expressions import parse


def test_the_worked_example_of_the_lecture():
    result, _ = parse("e = a*b; d = e + c; L = d*f").build({"a": 2.0, "b": -3.0, "c": 10.0, "f": -2.0})
    forward, backward = explain(result)
    assert forward == ["e = a * b = 2 * -3 = -6", "d = e + c = -6 + 10 = 4", "L = d * f = 4 * -2 = -8"]
    assert backward == [
        "dL/dL = 1",
        "dL/dd += dL/dL * f = 1 * -2 = -2",
        "dL/df += dL/dL * d = 1 * 4 = 4",
        "dL/de += dL/dd * 1 = -2 * 1 = -2",
        "dL/dc += dL/dd * 1 = -2 * 1 = -2",
        "dL/da += dL/de * b = -2 * -3 = 6",
        "dL/db += dL/de * a = -2 * 2 = -4",
    ]


def test_contributions_add_up():
    x = Value(3.0, label="x")
    assert explain(x * x)[1][1:] == [
        "dL/dx += dL/dL * x = 1 * 3 = 3",
        "dL/dx += dL/dL * x = 1 * 3 = 3, with the 3 before: 6",
    ]


def test_derivatives_are_written_by_the_op_table():
    a, b = Value(2.0, label="a"), Value(3.0, label="b")
    assert "dL/dL * (1 - L * L) =" in explain(a.tanh())[1][1]
    assert "dL/dL * 2 * a =" in explain(a**2)[1][1]
    assert "dL/dL * 3 * a**2 =" in explain(a**3)[1][1]
    assert "dL/dL * 1 / b =" in explain(a / b)[1][1]
    assert "dL/dL * -(L / b) =" in explain(a / b)[1][2]
    assert explain((a - b) ** 2 - -a)[0] == [
        "v1 = a - b = 2 - 3 = -1",
        "v2 = v1**2 = (-1)**2 = 1",
        "v3 = -a = -2 = -2",
        "L = v2 - v3 = 1 - -2 = 3",
    ]


def test_brackets_stand_where_they_must():
    a, b, c = Text("a"), Text("b"), Text("c")
    assert repr((a + b) * c - (a - (b - c))) == "(a + b) * c - (a - (b - c))"
    assert repr(ops.pow_(-a, b) * ops.div(a, b * c)) == "(-a)**b * a / (b * c)"
    assert repr(ops.pow_(a * b, -c)) == "(a * b)**-c"
    assert repr(-(a * b) + ops.maximum(a, 2.5)) == "-(a * b) + maximum(a, 2.5)"


@settings(max_examples=50, deadline=None)
@given(expressions.programs(rows=expressions.CONTINUOUS, numbers=expressions.tame_numbers, most_nodes=12))
def test_the_last_word_on_each_leaf_is_its_gradient(program):
    leaves, results = expressions.run(program, Value, lambda row, operands: row(*operands))
    for k, leaf in enumerate(leaves):
        leaf.label = f"x{k}"
    root = results[-1]
    assume(isinstance(root, Value))  # rather than a number made of constants
    root.backward()
    _, backward = explain(root)
    words = {}
    for line in backward[1:]:
        name = re.match(r"d\w+/d(\w+) \+=", line).group(1)
        words[name] = re.search(r"\S+$", line).group()
    for leaf in leaves:
        if leaf.label in words:
            assert float(words[leaf.label]) == pytest.approx(leaf.grad, rel=1e-5, nan_ok=True)
        else:
            assert leaf.grad == 0.0


def test_names_that_are_taken_are_not_given_again():
    v1, other = Value(1.0, label="v1"), Value(2.0, label="L")
    forward, _ = explain(v1 * other + 1.0)
    assert forward[0].startswith("v2 = v1 * L")
    assert forward[1].startswith("v3 = v2 + 1 =")


def test_a_leaf_and_a_node_made_by_hand():
    assert explain(Value(3.0)) == ([], ["dL/dL = 1"])
    x = Value(2.0)
    with pytest.raises(ValueError, match="made by hand: only ops of the table know their derivatives"):
        explain(Value(8.0, (x,), "cube") + 1.0)
