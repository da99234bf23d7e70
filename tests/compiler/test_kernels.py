"""Kernels of both formats are within 2 ulp of the true value everywhere, and equal the library at special numbers."""

import math
import runpy
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest

from chainrule import ops
from chainrule.compiler.backends.llvm import Native, kernels
from chainrule.compiler.backends.llvm.formats import FORMATS
from chainrule.compiler.backends.llvm.native import host
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Statement, Term
from project import ROOT

TOLERANCE = 2.0  # ulp
COUNT = 8_000  # arguments a function
TYPES = {"float64": FORMATS["double"], "float32": FORMATS["float"]}

SPECIAL = {
    "float64": [
        *(0.0, math.inf, 5e-324, 2.0**-1022, 1e-300, 2.0**-54, 2.0**-53, 0.5, 1.0, 1.0 - 2.0**-53, 1.0 + 2.0**-52, 2.0),
        *(19.0, 22.0, 36.0, 37.5, 40.0, 708.4, 709.782712893384, 709.7827128933841, 710.0),  # eˣ overflows
        *(745.1332191019411, 745.1332191019412, 746.0, 1e5, 2.0**44, 1.5 * 2.0**44, 1e22, 1.7976931348623157e308),
    ],
    "float32": [
        *(
            0.0,
            math.inf,
            2.0**-149,
            2.0**-126,
            1e-40,
            2.0**-25,
            2.0**-24,
            0.5,
            1.0,
            1.0 - 2.0**-24,
            1.0 + 2.0**-23,
            2.0,
        ),
        *(8.5, 9.01, 10.0, 17.0, 19.5, 87.3, 88.7228317, 88.7228394, 89.0),  # eˣ overflows
        *(103.9720764, 103.972084, 104.0, 1e5, 2.0**15, 1.5 * 2.0**15, 1e22, 3.4028234663852886e38),
    ],
}


def special(dtype):
    numbers = np.float64(np.array(SPECIAL[dtype], dtype))
    return np.concatenate([numbers, -numbers])


def evaluate(name, xs, dtype, lanes=None):
    """A function of many numbers, as a compiled program computes it, at most so many lanes at a time."""
    x, y = Array("x", len(xs), "input"), Array("y", len(xs), "value")
    term = Term(Apply(ops.TABLE[name], (Access(x, 0, (1,)),)))
    program = ArrayProgram([Statement(Access(y, 0, (1,)), (len(xs),), [term])], {"input": x}, y)
    bits = 8 * np.dtype(dtype).itemsize
    native = Native(program, dtype, replace(host(), bits=bits * lanes, registers=8) if lanes else None)
    native.views[x][:] = xs
    native.run()
    return native.views[y].astype(np.float64)


def worst_ulp(name, xs, dtype):
    """The largest error, in units of the last place of the true value; infinity for a wrong infinity or NaN."""
    with mp.workprec(120):
        pairs = zip(xs.tolist(), evaluate(name, xs, dtype).tolist(), strict=True)
        return max(_ulp(getattr(mp, name)(mp.mpf(x)), y, np.dtype(dtype).type) for x, y in pairs)


def _ulp(true, ours, dtype):
    with np.errstate(over="ignore"):
        nearest = dtype(float(true))
    if np.isinf(nearest) or not math.isfinite(ours):
        return 0.0 if nearest == ours else math.inf
    return float(abs(mp.mpf(ours) - true) / mp.mpf(float(np.spacing(abs(nearest)))))


def spread(rng, count, low, high):
    """Numbers of both signs and of all sizes from 2^low to 2^high, random to the last bit."""
    return rng.choice([-1.0, 1.0], count) * 2.0 ** rng.uniform(low, high, count)


def arguments(name, dtype, count=COUNT):
    """All sizes, and densely where the function is hard."""
    rng, wide = np.random.default_rng(1), dtype == "float64"
    n, digits, kind = count // 4, TYPES[dtype].digits + 1, TYPES[dtype]
    least, most = 2 - kind.bias - digits, kind.bias + 1 - 1e-9  # exponents
    if name in ("exp", "expm1"):
        ranges = [(least, 10), (-6, 9.5), (6, 9.6), (-3, 2)] if wide else [(least, 7), (-6, 6.4), (3, 6.71), (-3, 2)]
        parts = [spread(rng, n, *bounds) for bounds in ranges]
    elif name == "tanh":
        parts = [spread(rng, n, *bounds) for bounds in [(least, most), (-20, 5), (-4, 2), (-3, 0)]]
    elif name == "log":
        parts = [np.abs(spread(rng, n, *bounds)) for bounds in [(least, most), (least, 1 - kind.bias), (-1, 1)]]
        parts.append(1 + spread(rng, n, -digits, -1))
    elif name == "log1p":
        parts = [spread(rng, n, least, -0.001), -1 + 2.0 ** rng.uniform(-digits, -1, n)]
        parts += [np.abs(spread(rng, n, *bounds)) for bounds in [(least, most), (-3, 2)]]
    else:
        turns = np.floor(2.0 ** rng.uniform(0, math.log2(kind.farthest) - 1, n)).astype(int).tolist()
        near = np.array([float(mp.pi / 2 * k) for k in turns])
        parts = [near, near * (1 + spread(rng, n, 1 - digits, -10)), spread(rng, n, least, most), spread(rng, n, -4, 4)]
        parts.append(nearest_to_quadrants(kind))
    return np.float64(np.concatenate(parts).astype(dtype))


def nearest_to_quadrants(kind):
    """For each exponent, the numbers nearest to a multiple of π/2: denominators of a continued fraction."""
    found = []
    with mp.workprec(400):
        for exponent in range(-kind.digits, -8):  # up to where the library takes over
            rest, before, numerator = mp.ldexp(1, exponent) / (mp.pi / 2), 0, 1
            while numerator < 2 ** (kind.digits + 1):
                found.append(math.ldexp(numerator, exponent))
                rest = 1 / (rest - mp.floor(rest))
                before, numerator = numerator, before + int(mp.floor(rest)) * numerator
    return np.array(found)


@pytest.fixture
def kernels_always(monkeypatch):
    monkeypatch.setattr(kernels, "SLOWER_ALONE", dict.fromkeys(TYPES, ()))


def same(ours, theirs):
    """Equal to the sign of zero, or both NaN."""
    return np.array_equal(ours, theirs, equal_nan=True) and np.array_equal(
        np.signbit(ours) & (ours == 0), np.signbit(theirs) & (theirs == 0)
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", kernels.KERNELS)
class TestKernels:
    def test_within_two_ulp(self, name, dtype):
        assert worst_ulp(name, arguments(name, dtype), dtype) <= TOLERANCE

    @pytest.mark.usefixtures("kernels_always")
    def test_special_numbers(self, name, dtype):
        xs = np.append(special(dtype), math.nan)
        with np.errstate(over="ignore"):
            theirs = np.array([ops.TABLE[name].forward(x) for x in xs.tolist()]).astype(dtype)
        exact = ~np.isfinite(theirs) | (theirs == 0) | (theirs == xs) | (np.abs(theirs) == 1)
        for lanes in (1, 32):
            ours = evaluate(name, xs, dtype, lanes)
            assert same(ours[exact], theirs[exact])
            assert (np.abs(ours[~exact] - theirs[~exact]) <= TOLERANCE * np.spacing(np.abs(theirs[~exact]))).all()

    @pytest.mark.usefixtures("kernels_always")
    def test_any_number_of_lanes_gives_the_same(self, name, dtype):
        rng = np.random.default_rng(2)
        xs = np.concatenate([special(dtype), spread(rng, 960 - 2 * len(SPECIAL[dtype]), -40, 40)])
        rng.shuffle(xs)
        together = evaluate(name, xs, dtype)
        for lanes in (1, 2, 3, 4, 8, 16):
            assert same(evaluate(name, xs, dtype, lanes), together)

    def test_arithmetic_is_not_reordered(self, name, dtype):
        assert "reassoc" not in "".join(kernels.define(name, 8, TYPES[dtype].element))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("table", "place", "name"),
    [
        *(("exp", 3, name) for name in ("exp", "expm1", "tanh")),
        *(("log", 1, name) for name in ("log", "log1p")),
        ("log2", 1, "exp"),
        *(("half_pi", 2, name) for name in ("sin", "cos")),
        ("sin", 1, "sin"),
        ("cos", 1, "cos"),
    ],
)
def test_a_wrong_coefficient_is_noticed(table, place, name, dtype, monkeypatch):
    kind = TYPES[dtype]
    numbers = list(getattr(kind, table))
    numbers[place] *= 1.01
    monkeypatch.setitem(FORMATS, kind.element.name, replace(kind, **{table: tuple(numbers)}))
    kernels.define.cache_clear()
    try:
        assert worst_ulp(name, arguments(name, dtype, COUNT // 10), dtype) > TOLERANCE
    finally:
        kernels.define.cache_clear()


@pytest.mark.parametrize("dtype", TYPES)
def test_coefficients_are_the_fitted_ones(dtype):
    tool, kind = runpy.run_path(str(ROOT / "tools" / "fit_kernels.py")), TYPES[dtype]
    for name, (coefficients, _) in tool["fits"](dtype).items():
        assert getattr(kind, name) == pytest.approx(coefficients, rel=1e-12, abs=0.0)
    assert tool["parts"](mp.pi / 2, 3, dtype) == list(kind.half_pi)
    assert tool["log2_parts"](dtype) == list(kind.log2)
