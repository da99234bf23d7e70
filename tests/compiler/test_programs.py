"""Programs from many fields, against PyTorch where they are small and against eager code at the size people use."""

import math

import pytest
from programs import PROGRAMS
from programs.oracle import by_torch

import chainrule
from chainrule import Value


def eager(found, size):
    leaves = [Value(x) for x in found.numbers(size)]
    return leaves, found.loss(chainrule, leaves, size)


def assert_close(found, expected):
    (value, gradient), (right, slopes) = found, expected
    assert math.isclose(value, right, rel_tol=1e-10)
    scale = max(map(abs, slopes))
    assert [k for k, (a, b) in enumerate(zip(gradient, slopes, strict=True)) if not abs(a - b) <= 1e-10 * scale] == []


@pytest.mark.parametrize("found", PROGRAMS.values(), ids=lambda found: found.name)
def test_small_ones_are_what_pytorch_computes(found):
    leaves, loss = eager(found, found.small)
    expected = by_torch(found, found.small)
    assert_close(chainrule.compile(loss, wrt=leaves, allow_frozen_branches=True).value_and_grad(), expected)
    loss.backward()
    assert_close((loss.data, [leaf.grad for leaf in leaves]), expected)


@pytest.mark.slow
@pytest.mark.parametrize("found", PROGRAMS.values(), ids=lambda found: found.name)
def test_at_their_size_they_are_what_eager_code_computes(found):
    leaves, loss = eager(found, found.size)
    compiled = chainrule.compile(loss, wrt=leaves, allow_frozen_branches=True).value_and_grad()
    loss.backward()
    assert_close(compiled, (loss.data, [leaf.grad for leaf in leaves]))
