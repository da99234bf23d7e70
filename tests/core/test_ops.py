"""The op table against PyTorch and mpmath: values and gradients, on every engine."""

import itertools
import math

import mpmath
import pytest

import chainrule
import mpmath_ops
import torch_ops
from chainrule import ops
from chainrule.native import header as c_text
from op_samples import MPMATH, TABLE, samples

EDGES = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e308, -1e308, 1e-308, -5e-324, 0.5, -2.0, 3.0, 700.0]
FEWER_EDGES = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, -1e308, 5e-324, 0.5, -2.0]


def same(ours, theirs, tolerance=1e-12):
    """Equal to 1e-12, or 2 ulp, or both NaN."""
    if math.isnan(ours) or math.isnan(theirs):
        return math.isnan(ours) and math.isnan(theirs)
    if math.isinf(ours) or math.isinf(theirs):
        return ours == theirs
    return abs(ours - theirs) <= max(tolerance, tolerance * abs(theirs), 2 * math.ulp(theirs))


def value_and_grads(Value, row, numbers):
    operands = [Value(number) for number in numbers]
    out = row(*operands)
    out.backward()
    return out.data, [operand.grad for operand in operands]


def test_every_op_has_an_oracle():
    assert TABLE.keys() == torch_ops.FUNCTIONS.keys() == mpmath_ops.FUNCTIONS.keys()


@pytest.mark.parametrize("name", TABLE)
def test_random_inputs_against_pytorch(Value, name):
    row = TABLE[name]
    for numbers in samples(row, 200):
        data, grads = value_and_grads(Value, row, numbers)
        expected, expected_grads = torch_ops.value_and_grads(name, numbers)
        assert same(data, expected), numbers
        assert all(map(same, grads, expected_grads)), (numbers, grads, expected_grads)


@pytest.mark.parametrize("name", TABLE)
def test_edge_inputs_against_pytorch(Value, name):
    row = TABLE[name]
    for numbers in itertools.product(FEWER_EDGES if row.arity > 2 else EDGES, repeat=row.arity):
        data, grads = value_and_grads(Value, row, numbers)
        expected, expected_grads = torch_ops.value_and_grads(name, numbers)
        assert same(data, expected), (numbers, data, expected)
        assert all(map(same, grads, expected_grads)), (numbers, grads, expected_grads)


@pytest.mark.parametrize("name", MPMATH)
def test_values_and_partials_against_mpmath(Value, name):
    row, oracle = TABLE[name], MPMATH[name]
    with mpmath.workdps(50):
        for numbers in samples(row, 20, seed=1):
            data, grads = value_and_grads(Value, row, numbers)
            exact = [mpmath.mpf(number) for number in numbers]
            assert same(data, float(oracle(*exact)), 4e-16 * max(1.0, abs(data)) * 4)
            for k, grad in enumerate(grads):
                order = tuple(int(j == k) for j in range(row.arity))
                derivative = mpmath.diff(oracle, exact, order) if row.arity > 1 else mpmath.diff(oracle, exact[0])
                assert same(grad, float(derivative), 1e-13 * max(1.0, abs(grad))), (numbers, k)


@pytest.mark.parametrize(
    ("name", "x"),
    [("gelu", -20.0), ("gelu", -37.0), ("erfc", 20.0), ("asin", 1 - 1e-12), ("acos", -1 + 1e-12), ("softplus", 30.0)],
)
def test_tails_are_accurate_to_a_relative_error(Value, name, x):
    data, (grad,) = value_and_grads(Value, TABLE[name], [x])
    with mpmath.workdps(60):
        assert data == pytest.approx(float(MPMATH[name](mpmath.mpf(x))), rel=1e-13)
        assert grad == pytest.approx(float(mpmath.diff(MPMATH[name], mpmath.mpf(x))), rel=1e-11)


def test_nan_stays_nan_after_a_call_that_failed(Value):
    Value(1.0).atanh()  # C's `errno` is set now, which Python's own functions may stumble over
    assert math.isnan(Value(math.nan).hypot(1.0).data)
    assert Value(math.nan).hypot(-math.inf).data == math.inf


def test_ops_are_functions_of_plain_numbers_too():
    assert chainrule.exp(0) == 1.0
    assert chainrule.maximum(1, 2.0) == 2.0
    assert chainrule.where(True, 1, 2) == 1.0
    assert chainrule.clip(5, low=0, high=1) == 1.0
    assert type(chainrule.add(1, 2)) is float
    with pytest.raises(TypeError, match="`x` must be a real number, got str 'one'"):
        chainrule.exp("one")
    with pytest.raises(TypeError, match=r"the call should look like clip\(x, low, high\); got clip\(1\)"):
        chainrule.clip(1)


def test_a_name_can_be_taken_only_once():
    with pytest.raises(ValueError, match="an op called 'exp' exists already"):
        ops.register(ops.Op("exp", lambda x: x, (None,)))
    with pytest.raises(ValueError, match="'backward'"):
        chainrule.op(None, name="backward")(lambda x: x)
    with pytest.raises(TypeError, match="takes 2 operands and so needs 2 partials, got 1"):
        chainrule.op(None, name="two")(lambda a, b: a)


def test_an_op_of_ones_own_can_be_corrected():
    for factor in (2.0, 3.0):

        @chainrule.op(lambda out, x, factor=factor: factor * x * x, name="my_cube")
        def my_cube(x):
            return x * x * x

    x = chainrule.Value(2.0)
    x.my_cube().backward()
    assert x.grad == 12.0


def test_mistakes_in_the_use_of_the_decorator_are_named():
    with pytest.raises(TypeError, match=r"write @op.* above a Python function"):
        chainrule.op(None)(math.cbrt)
    with pytest.raises(TypeError, match=r"partial 0 of `wrong` must be a function of \(out, x\), got"):

        @chainrule.op(lambda x: 1.0)
        def wrong(x):
            return x


def test_a_row_added_at_run_time_works_everywhere():
    @chainrule.op(lambda out, x: out * (1.0 + chainrule.log(x)), symbol="x^x")
    def self_power(x):
        return chainrule.exp(x * chainrule.log(x))

    x = chainrule.Value(2.0)
    y = self_power(x) + x.self_power()
    y.backward()
    assert y.data == pytest.approx(8.0)
    assert x.grad == pytest.approx(8.0 * (1 + math.log(2)))
    assert y._operands[0]._op == "x^x"
    assert self_power(3.0) == pytest.approx(27.0)
    assert c_text.forward(self_power) == "(exp((x * (log(x)))))"
    second = chainrule.Value(2.0)  # the rule runs on Values as well: a derivative that can be differentiated
    self_power.partials[0](self_power(second), second).backward()
    assert second.grad == pytest.approx(4 * (1 + math.log(2)) ** 2 + 2)


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if any(row.partials)])
def test_rules_run_on_values_so_derivatives_can_be_differentiated(Value, name):
    row = TABLE[name]
    for numbers in samples(row, 5, seed=2):
        operands = [Value(number) for number in numbers]
        for rule, partial in zip(row.partials, value_and_grads(Value, row, numbers)[1], strict=True):
            if rule:
                symbolic = rule(row(*operands), *operands)
                assert same(symbolic.data if isinstance(symbolic, Value) else symbolic, partial)


def test_no_algebra_changes_results(Value):
    inf = Value(math.inf)
    assert math.isnan((inf * 0).data)
    assert math.isnan((inf / inf).data)
    assert math.isnan((inf - inf).data)
