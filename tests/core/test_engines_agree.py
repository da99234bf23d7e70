"""Random programs: the engines agree to the last bit, and with PyTorch and mpmath as far as the program allows."""

import copy
import math
import struct

import mpmath
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings

import chainrule
import mpmath_ops
import torch_ops
from chainrule.core import node
from engines import ENGINES
from expressions import CONTINUOUS, programs, run, tame_numbers

relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck))


def bits(number):
    return "nan" if math.isnan(number) else struct.pack("<d", number)


def results(Value, program, seed=1.0):
    leaves, nodes = run(program, Value, lambda row, operands: Value._apply(row, tuple(operands)))
    nodes[-1].backward(seed)
    return [v.data for v in nodes], [v.grad for v in nodes], [v.grad for v in leaves]


@pytest.mark.parametrize("name", ENGINES)
def test_a_watcher_is_told_of_every_look_at_a_number(name):
    module = node if name == "python" else chainrule._native
    Value = ENGINES[name]
    told = []

    def watcher(deed, *operands):
        told.append((deed, operands))
        return "the answer" if len(operands) == 2 and operands[1] is five else None

    v, w, five = Value(2.0), Value(3.0), 5.0
    module.watch(watcher)
    try:
        looks = [v.data, v.grad, bool(v), v < w, v <= 2, v > five, v >= 1.5, v == 2, v != 2.5, copy.copy(v).__class__]
        with pytest.raises(TypeError, match="does not turn into a float"):
            float(v)
        v.data, v.grad = 7.0, 1.0
        assert (v == w, f"{v:.1f}", repr(v)) == (False, "7.0", "Value(data=7.0, grad=1.0)")
        (v * w + 1.0).backward()
    finally:
        module.watch(None)
    assert looks == [2.0, 0.0, True, True, True, "the answer", True, True, True, Value]
    assert told == [
        ("reads `.data` of a Value", ()),
        ("reads `.grad` of a Value", ()),
        (chainrule.ne, (v, 0.0)),
        (chainrule.lt, (v, w)),
        (chainrule.le, (v, 2)),
        (chainrule.gt, (v, 5.0)),
        (chainrule.ge, (v, 1.5)),
        (chainrule.eq, (v, 2)),
        (chainrule.ne, (v, 2.5)),
        ("copies a Value", ()),
        ("turns a Value into a float", ()),
        ("sets `.data` of a Value", ()),
        ("sets `.grad` of a Value", ()),
    ]
    assert (v.data, v.grad) == (7.0, 4.0)
    assert len(told) == 13


@pytest.mark.parametrize("name", ENGINES)
def test_a_watcher_may_refuse(name):
    module = node if name == "python" else chainrule._native
    Value = ENGINES[name]
    v = Value(2.0)

    def watcher(deed, *operands):
        raise RuntimeError("not now")

    looks = [lambda: v.data, lambda: v.grad, lambda: bool(v), lambda: v < 1.0, lambda: float(v), lambda: copy.copy(v)]
    module.watch(watcher)
    try:
        for look in looks:
            with pytest.raises(RuntimeError, match="not now"):
                look()
    finally:
        module.watch(None)
    assert v.data == 2.0


@pytest.mark.skipif("native" not in ENGINES, reason="needs the native engine")
@given(program=programs())
@settings(relaxed, max_examples=150)  # `make torture` compares thousands
def test_python_and_native_agree_to_the_last_bit(program):
    for python, native in zip(results(ENGINES["python"], program), results(ENGINES["native"], program), strict=True):
        assert list(map(bits, python)) == list(map(bits, native))


@given(program=programs(rows=CONTINUOUS, numbers=tame_numbers, most_nodes=100))
@settings(relaxed, max_examples=60)
def test_values_and_gradients_against_pytorch(program):
    data, grads, leaf_grads = results(chainrule.Value, program)
    assume(all(math.isfinite(x) and abs(x) < 1e6 for x in data + grads))

    def tensor(number):
        return number if torch.is_tensor(number) else torch.tensor(float(number), dtype=torch.float64)

    leaves, nodes = run(
        program, torch_ops.leaf, lambda row, operands: torch_ops.FUNCTIONS[row.name](*map(tensor, operands))
    )
    if nodes[-1].requires_grad:
        nodes[-1].backward()
    # An error of one ulp in any node reaches the result magnified by that node's gradient.
    reach = sum(abs(x * g) for x, g in zip(data, grads, strict=True))
    assert abs(data[-1] - nodes[-1].item()) <= 1e-12 * max(1.0, reach)
    for ours, theirs in zip(leaf_grads, leaves, strict=True):
        expected = 0.0 if theirs.grad is None else theirs.grad.item()
        assert abs(ours - expected) <= 1e-12 * max(1.0, reach, *map(abs, grads))


def clip(x, low, high):
    assume(low != high)  # a corner, where bounds that move together get no gradient, as in PyTorch
    return min(max(x, low), high)


def exactly(program):
    """The result of a program in many digits; no result where rounding could have left a domain."""

    def apply(row, operands):
        function = clip if row.name == "clip" else mpmath_ops.FUNCTIONS[row.name]
        return function(*map(mpmath.mpf, operands))

    try:
        result = run(program, mpmath.mpf, apply)[1][-1]
    except (TypeError, ValueError, ZeroDivisionError):
        assume(False)
    assume(not isinstance(result, mpmath.mpc))
    return result


@given(program=programs(rows=CONTINUOUS, numbers=tame_numbers, most_nodes=60))
@settings(relaxed, max_examples=60)
def test_values_and_gradients_against_mpmath(program):
    data, grads, leaf_grads = results(chainrule.Value, program)
    assume(all(math.isfinite(x) and abs(x) < 1e6 for x in data + grads))
    reach = max(1.0, sum(abs(x * g) for x, g in zip(data, grads, strict=True)))
    with mpmath.workdps(80):
        exact, step = exactly(program), mpmath.mpf(10) ** -25
        assert abs(mpmath.mpf(data[-1]) - exact) <= 1e-14 * reach
        leaves, steps = program
        for k, grad in enumerate(leaf_grads):
            moved = [[mpmath.mpf(x) + side * step * (j == k) for j, x in enumerate(leaves)] for side in (-1, 1)]
            left, right = (exactly((numbers, steps)) for numbers in moved)
            slopes = (exact - left) / step, (right - exact) / step
            assume(abs(slopes[1] - slopes[0]) < 1e-9)  # not at a corner
            assert abs(grad - (slopes[0] + slopes[1]) / 2) <= 1e-12 * max(reach, *map(abs, grads))
