"""Kernels are within 2 ulp of the true value everywhere, and equal the mathematical library at special numbers."""

import math
import runpy
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest

from chainrule import ops
from chainrule.compiler.backends.llvm import Native, kernels
from chainrule.compiler.backends.llvm.native import host
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Statement, Term
from project import ROOT

TOLERANCE = 2.0  # ulp
COUNT = 8_000  # arguments a function

SPECIAL = [
    *(0.0, math.inf, 5e-324, 2.0**-1022, 1e-300, 2.0**-54, 2.0**-53, 0.5, 1.0, 1.0 - 2.0**-53, 1.0 + 2.0**-52, 2.0),
    *(19.0, 22.0, 36.0, 37.5, 40.0, 708.4, 709.782712893384, 709.7827128933841, 710.0),  # eˣ overflows
    *(745.1332191019411, 745.1332191019412, 746.0, 1e5, 2.0**44, 1.5 * 2.0**44, 1e22, 1.7976931348623157e308),
]


def evaluate(name, xs, lanes=None):
    """A function of many numbers, as a compiled program computes it, at most so many lanes at a time."""
    x, y = Array("x", len(xs), "input"), Array("y", len(xs), "value")
    term = Term(Apply(ops.TABLE[name], (Access(x, 0, (1,)),)))
    target = replace(host(), bits=64 * lanes, registers=8) if lanes else None
    native = Native(ArrayProgram([Statement(Access(y, 0, (1,)), (len(xs),), [term])], {"input": x}, y), target=target)
    native.views[x][:] = xs
    native.run()
    return native.views[y].copy()


def worst_ulp(name, xs):
    """The largest error, in units of the last place of the true value; infinity for a wrong infinity or NaN."""
    with mp.workprec(120):
        return max(_ulp(getattr(mp, name)(mp.mpf(x)), y) for x, y in zip(xs.tolist(), evaluate(name, xs), strict=True))


def _ulp(true, ours):
    nearest = float(true)
    if math.isinf(nearest) or not math.isfinite(ours):
        return 0.0 if nearest == ours else math.inf
    return float(abs(mp.mpf(float(ours)) - true) / mp.mpf(math.ulp(nearest)))


def spread(rng, count, low, high):
    """Numbers of both signs and of all sizes from 2^low to 2^high, random to the last bit."""
    return rng.choice([-1.0, 1.0], count) * 2.0 ** rng.uniform(low, high, count)


def arguments(name, count=COUNT):
    """All sizes, and densely where the function is hard."""
    rng = np.random.default_rng(1)
    n = count // 4
    if name in ("exp", "expm1"):
        parts = [spread(rng, n, *bounds) for bounds in [(-1074, 10), (-6, 9.5), (6, 9.6), (-3, 2)]]
    elif name == "tanh":
        parts = [spread(rng, n, *bounds) for bounds in [(-1074, 1024), (-20, 5), (-4, 2), (-3, 0)]]
    elif name == "log":
        parts = [np.abs(spread(rng, n, *bounds)) for bounds in [(-1074, 1024), (-1074, -1022), (-1, 1)]]
        parts.append(1 + spread(rng, n, -53, -1))
    elif name == "log1p":
        parts = [spread(rng, n, -1074, -0.001), -1 + 2.0 ** rng.uniform(-53, -1, n)]
        parts += [np.abs(spread(rng, n, *bounds)) for bounds in [(-1074, 1024), (-3, 2)]]
    else:
        turns = np.floor(2.0 ** rng.uniform(0, 43, n)).astype(int).tolist()
        near = np.array([float(mp.pi / 2 * k) for k in turns])
        parts = [near, near * (1 + spread(rng, n, -52, -10)), spread(rng, n, -1074, 1024), spread(rng, n, -4, 4)]
        parts.append(nearest_to_quadrants())
    return np.concatenate(parts)


def nearest_to_quadrants():
    """For each exponent, the doubles nearest to a multiple of π/2: denominators of a continued fraction."""
    found = []
    with mp.workprec(400):
        for exponent in range(-52, -8):  # up to 2^44, where the library takes over
            rest, before, numerator = mp.ldexp(1, exponent) / (mp.pi / 2), 0, 1
            while numerator < 2**53:
                found.append(math.ldexp(numerator, exponent))
                rest = 1 / (rest - mp.floor(rest))
                before, numerator = numerator, before + int(mp.floor(rest)) * numerator
    return np.array(found)


@pytest.fixture
def kernels_always(monkeypatch):
    monkeypatch.setattr(kernels, "SLOWER_ALONE", set())


def same(ours, theirs):
    """Equal to the sign of zero, or both NaN."""
    return np.array_equal(ours, theirs, equal_nan=True) and np.array_equal(
        np.signbit(ours) & (ours == 0), np.signbit(theirs) & (theirs == 0)
    )


@pytest.mark.parametrize("name", kernels.KERNELS)
class TestKernels:
    def test_within_two_ulp(self, name):
        assert worst_ulp(name, arguments(name)) <= TOLERANCE

    @pytest.mark.usefixtures("kernels_always")
    def test_special_numbers(self, name):
        xs = np.array([*SPECIAL, *(-x for x in SPECIAL), math.nan])
        theirs = np.array([ops.TABLE[name].forward(x) for x in xs.tolist()])
        exact = ~np.isfinite(theirs) | (theirs == 0) | (theirs == xs) | (np.abs(theirs) == 1)
        for lanes in (1, 32):
            ours = evaluate(name, xs, lanes)
            assert same(ours[exact], theirs[exact])
            assert (np.abs(ours[~exact] - theirs[~exact]) <= TOLERANCE * np.spacing(np.abs(theirs[~exact]))).all()

    @pytest.mark.usefixtures("kernels_always")
    def test_any_number_of_lanes_gives_the_same(self, name):
        rng = np.random.default_rng(2)
        xs = np.concatenate([SPECIAL, -np.array(SPECIAL), spread(rng, 960 - 2 * len(SPECIAL), -40, 40)])
        rng.shuffle(xs)
        together = evaluate(name, xs)
        for lanes in (1, 2, 3, 4, 8, 16):
            assert same(evaluate(name, xs, lanes), together)

    def test_arithmetic_is_not_reordered(self, name):
        assert "reassoc" not in "".join(kernels.define(name, 8))


@pytest.mark.parametrize(
    ("table", "place", "name"),
    [
        *(("EXP", 5, name) for name in ("exp", "expm1", "tanh")),
        *(("LOG", 3, name) for name in ("log", "log1p")),
        ("LOG2", 1, "exp"),
        *(("HALF_PI", 2, name) for name in ("sin", "cos")),
        ("SIN", 3, "sin"),
        ("COS", 3, "cos"),
    ],
)
def test_a_wrong_coefficient_is_noticed(table, place, name, monkeypatch):
    numbers = list(getattr(kernels, table))
    numbers[place] *= 1 + 1e-4
    monkeypatch.setattr(kernels, table, tuple(numbers))
    kernels.define.cache_clear()
    try:
        assert worst_ulp(name, arguments(name, COUNT // 10)) > TOLERANCE
    finally:
        kernels.define.cache_clear()


def test_coefficients_are_the_fitted_ones():
    tool = runpy.run_path(str(ROOT / "tools" / "fit_kernels.py"))
    for name, (coefficients, _) in tool["fits"]().items():
        assert getattr(kernels, name) == pytest.approx(coefficients, rel=1e-12, abs=0.0)
    assert tool["parts"](mp.pi / 2, 3) == list(kernels.HALF_PI)
    assert tool["log2_parts"]() == list(kernels.LOG2)
