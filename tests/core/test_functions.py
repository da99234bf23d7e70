"""Functions of vectors, on numbers, Values and whatever else can be added and multiplied."""

import inspect
import math
from fractions import Fraction

import pytest

import chainrule
from chainrule import Value, dot, mean, ops


def test_dot_is_the_loop_that_people_write():
    a, b = [Value(float(k)) for k in range(1, 5)], [Value(0.5 * k) for k in range(4)]
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total = total + x * y
    ours = dot(a, b)
    ours.backward()
    found = [v.grad for v in (*a, *b)]
    for v in (*a, *b):
        v.grad = 0.0
    total.backward()
    assert ours.data == total.data
    assert found == [v.grad for v in (*a, *b)]
    assert chainrule.compile(ours).describe() == chainrule.compile(total).describe()


def test_dot_takes_any_iterables_of_any_numbers():
    assert dot((x for x in (1, 2.0)), range(3, 5)) == 11.0
    assert dot([Fraction(1, 2)], [2]) == 1.0
    assert dot([], []) == 0.0
    assert dot([Value(2.0), 3.0], [4.0, Value(5.0)]).data == 23.0


def test_dot_adds_from_left_to_right_without_tricks():
    numbers = [1e16, 1.0, -1e16, 1.0]
    assert dot(numbers, [1.0] * 4) == 1.0
    assert mean(numbers) == 0.25


def test_dot_of_unequal_lengths():
    for a, b in (([1.0, 2.0], [1.0]), ([Value(1.0)], [])):
        with pytest.raises(
            ValueError, match=f"`a` has the length {len(a)} and `b` {len(b)}: give two vectors of equal"
        ):
            dot(a, b)


def test_what_cannot_be_multiplied():
    with pytest.raises(TypeError):
        dot(["a"], ["b"])
    with pytest.raises(TypeError):
        dot(1.0, [2.0])
    with pytest.raises(TypeError):
        mean([1.0, "a"])


def test_an_error_in_the_middle_of_an_iterable():
    def broken():
        yield 1.0
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        mean(broken())
    with pytest.raises(RuntimeError, match="planted"):
        dot(broken(), [1.0, 2.0])


@pytest.mark.parametrize("name", ops.TABLE)
def test_an_op_called_on_floats_ints_and_values_gives_the_same(name):
    op = ops.TABLE[name]
    numbers = [(low + high) / 2 + 0.25 for low, high in op.domain]
    expected = op.forward(*numbers)
    assert repr(op(*numbers)) == repr(expected)
    assert repr(op(*map(Value, numbers)).data) == repr(expected)
    assert repr(op(Value(numbers[0]), *numbers[1:]).data) == repr(expected)
    assert repr(op(*map(Fraction, numbers))) == repr(expected)


def test_an_op_with_names_defaults_and_too_many_operands():
    assert chainrule.leaky_relu(-2.0) == -0.02
    assert chainrule.leaky_relu(x=Value(-2.0), slope=0.5).data == -1.0
    with pytest.raises(TypeError, match=r"the call should look like exp\(x\)"):
        chainrule.exp(1.0, 2.0)
    with pytest.raises(TypeError, match="must be a real number"):
        chainrule.exp("1")
    assert math.isnan(chainrule.sqrt(-1.0))
    assert list(inspect.signature(chainrule.exp).parameters) == ["x"]
