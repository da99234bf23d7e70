"""Known numbers: what is one number everywhere is put where it is read; and nothing else is."""

import numpy as np
import pytest

from chainrule import ops
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.backends.llvm import Native
from chainrule.compiler.passes.known_numbers import with_known_numbers
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Number, Repeat, Statement, Term

SIZE = 6


def array(name, kind="value"):
    return Array(name, SIZE, kind)


def at(source):
    return Access(source, 0, (1,))


def statement(target, *expressions, accumulate=False, join=ops.add):
    return Statement(at(target), (SIZE,), [Term(expression) for expression in expressions], accumulate, join)


def checked(steps, leaves, output):
    """The steps that are left, as text; both programs give the same numbers."""
    program = ArrayProgram(steps, {leaf.name: leaf for leaf in leaves}, output).verify()
    changed = with_known_numbers(program).verify()
    numbers = np.random.default_rng(0).normal(size=SIZE)
    machines = [Interpreted(program), Interpreted(changed), Native(program)]
    for machine in machines:
        for leaf in leaves:
            machine.views[leaf][:] = numbers
        machine.run()
    for machine in machines[1:]:
        np.testing.assert_allclose(machine.views[output], machines[0].views[output], rtol=1e-14)
    return [repr(step) for step in changed.steps]


def test_a_number_goes_through_copies_products_and_sums():
    a, seed, copy, total, result = array("a", "captured"), array("s"), array("c"), Array("t", 1, "value"), array("r")
    steps = [
        statement(seed, Number(1.0)),
        statement(copy, at(seed)),
        Statement(Access(total, 0, ()), (), [Term(at(copy) * 0.25, (SIZE,))]),
        statement(result, at(a) * Access(total, 0, (0,)) + at(copy)),
    ]
    assert checked(steps, [a], result) == ["i<6: r[i] = (a[i]·1.5) + 1"]


def test_signs_and_the_largest():
    a, less, most, result = array("a", "captured"), array("l"), array("m"), array("r")
    difference = Statement(at(less), (SIZE,), [Term(Number(2.0)), Term(Number(5.0), (), -1)])
    largest = Statement(at(most), (SIZE,), [Term(Number(-2.0), (3,)), Term(at(less))], join=ops.larger)
    steps = [difference, largest, statement(result, at(a) * at(less), at(most))]
    assert checked(steps, [a], result) == ["i<6: r[i] = a[i]·-3 + -2"]


def test_what_is_written_twice_is_not_known():
    a, b, result = array("a", "captured"), array("b"), array("r")
    steps = [statement(b, Number(0.0)), statement(b, at(a), accumulate=True), statement(result, at(b))]
    assert len(checked(steps, [a], result)) == 3


def test_leaves_and_results_are_written():
    a, result = array("a", "captured"), array("r")
    assert checked([statement(a, Number(2.0)), statement(result, Number(3.0))], [a], result) == [
        "i<6: a[i] = 2",
        "i<6: r[i] = 3",
    ]


def test_loops_in_time_read_numbers_and_make_none():
    a, b, c, result = array("a", "captured"), array("b"), array("c"), array("r")
    body = [statement(c, at(b)), statement(result, at(a) * at(c), accumulate=True)]
    steps = [statement(b, Number(2.0)), statement(result, at(a)), Repeat(3, body)]
    found = checked(steps, [a], result)
    assert found == ["i<6: r[i] = a[i]", "repeat r<3:\n  i<6: c[i] = 2\n  i<6: r[i] += a[i]·c[i]"]


@pytest.mark.parametrize("number", [0.0, -0.0, np.inf, np.nan])
def test_no_product_is_assumed_away(number):
    """0·inf is NaN, and -0.0 has a sign."""
    a, b, result = array("a", "captured"), array("b"), array("r")
    program = ArrayProgram([statement(b, Number(number)), statement(result, at(a) * at(b))], {"a": a}, result)
    native = Native(program)
    native.views[a][:] = [0.0, -1.0, np.inf, -np.inf, np.nan, 2.0]
    native.run()
    with np.errstate(invalid="ignore"):
        expected = native.views[a] * number
    np.testing.assert_array_equal(native.views[result], expected)
    assert np.signbit(native.views[result]).tolist()[1] == np.signbit(expected).tolist()[1] or np.isnan(number)


def test_an_op_of_numbers_is_a_number():
    b, result, a = array("b"), array("r"), array("a", "captured")
    steps = [statement(b, Number(4.0)), statement(result, Apply(ops.sqrt, (at(b),)) * at(a))]
    assert checked(steps, [a], result) == ["i<6: r[i] = 2·a[i]"]
