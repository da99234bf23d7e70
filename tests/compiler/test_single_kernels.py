"""Kernels for floats alone are within 2 ulp everywhere, and equal the mathematical library at special numbers.

Functions of doubles, NumPy's and SciPy's, are the oracle: they are right to 29 more bits.
"""

import itertools
import math
import runpy
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
import scipy.special

from chainrule import ops
from chainrule.compiler.backends.llvm import Native, kernels
from chainrule.compiler.backends.llvm.formats import FORMATS
from chainrule.compiler.backends.llvm.kernels.trigonometric import TWO_OVER_PI
from chainrule.compiler.backends.llvm.native import host
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Statement, Term
from project import ROOT

TOLERANCE = 2.0  # ulp
STEP = 9973  # between the bits of one argument and those of the next: 430,000 arguments a function
COUNT = 30_000  # pairs of each kind
FLOAT = FORMATS["float"]
NAMES = [name for name in kernels.SINGLE if name not in kernels.KERNELS]
OF_ONE = [name for name in NAMES if name not in kernels.OF_TWO]
RENAMED = {
    "pow": "power",
    **{f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh")},
}
LARGEST = float(np.finfo(np.float32).max)
SPECIAL = [
    0.0,
    math.inf,
    2.0**-149,
    2.0**-126,
    1e-40,
    2.0**-25,
    2.0**-12,
    0.25,
    0.5,
    1.0 - 2.0**-24,
    1.0,
    1.0 + 2.0**-23,
]
SPECIAL += [
    1.5,
    2.0,
    2.5,
    3.0,
    10.0,
    88.72284,
    89.41599,
    103.97208,
    127.0,
    128.0,
    149.0,
    150.0,
    151.0,
    2.0**15,
    2.0**23,
]
SPECIAL += [2.0**24 - 1, 2.0**24, 2.0**25, 2.0**32, 2.0**64, 1e22, 2.0**127, LARGEST]
SPECIAL = np.float32([*SPECIAL, *[-x for x in SPECIAL], math.nan])


def oracle(name, *numbers):
    """The function in doubles."""
    function = getattr(scipy.special, name) if name in ("erf", "erfc") else getattr(np, RENAMED.get(name, name))
    with np.errstate(all="ignore"):
        return function(*[np.float64(x) for x in numbers])


def evaluate(name, *columns, lanes=None):
    """A function of many floats, as a compiled program computes it, at most so many lanes at a time."""
    size = len(columns[0])
    inputs, y = [Array(f"x{k}", size, "input") for k in range(len(columns))], Array("y", size, "value")
    term = Term(Apply(ops.TABLE[name], tuple(Access(x, 0, (1,)) for x in inputs)))
    program = ArrayProgram([Statement(Access(y, 0, (1,)), (size,), [term])], {"input": inputs[0]}, y)
    native = Native(program, "float32", replace(host(), bits=32 * lanes, registers=8) if lanes else None)
    for x, column in zip(inputs, columns, strict=True):
        native.views[x][:] = column
    native.run()
    return native.views[y].copy()


def ulps(ours, true):
    """Errors in units of the last place of the true value; infinity for a wrong infinity, NaN or sign of zero."""
    with np.errstate(all="ignore"):
        nearest = true.astype(np.float32)
        errors = np.abs(np.float64(ours) - true) / np.float64(np.spacing(np.abs(nearest)))
    same = (nearest == ours) | (np.isnan(nearest) & np.isnan(ours))
    errors[~np.isfinite(nearest) | ~np.isfinite(ours)] = math.inf
    errors[same] = np.minimum(errors[same], 0.5)
    errors[(nearest == 0) & (ours == 0) & (np.signbit(nearest) != np.signbit(ours))] = math.inf
    return errors


def worst(name, *numbers):
    """The largest error, and where."""
    errors = ulps(evaluate(name, *numbers), oracle(name, *numbers))
    place = int(np.argmax(errors))
    return errors[place], *[float(x[place]) for x in numbers]


def floats(step=STEP):
    """Every float whose bits are so far apart."""
    return np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def pairs(name):
    """Of any size, of like size, of usual size, tiny; and powers up to the largest, and down to the smallest."""
    rng = np.random.default_rng(1)

    def some(low, high):
        return np.float32(rng.uniform(low, high, COUNT))

    def any_floats(below=2**32):
        return rng.integers(0, below, COUNT, dtype=np.uint64).astype(np.uint32).view(np.float32)

    x, grid = any_floats(), itertools.product(SPECIAL, SPECIAL)
    with np.errstate(all="ignore"):
        found = [np.float32(list(grid)).T, (x, any_floats()), (x, x * some(-3, 3)), (x, x * 2.0 ** some(-70, 0))]
        found += [(x * 2.0 ** some(-30, 0), x), (some(-5, 5), some(-5, 5)), (any_floats(2**24), any_floats(2**24))]
        if name == "pow":
            near_1 = np.float32(1 + rng.choice([-1, 1], COUNT) * 2.0 ** rng.uniform(-23, -1, COUNT))
            bases = (np.abs(x), near_1, near_1, near_1)
            logs = rng.uniform([[-104], [-104], [-104], [80]], [[89], [89], [-87], [89]], (4, COUNT))
            found += [(base, np.float32(log / np.log(np.float64(base)))) for base, log in zip(bases, logs, strict=True)]
            found += [(np.abs(x), some(-20, 20)), (some(0, 10), some(-20, 20)), (x, np.rint(some(-9, 9)))]
    return [np.concatenate([np.float32(pair[k]) for pair in found]) for k in (0, 1)]


def arguments(name):
    return (
        pairs(name)
        if name in kernels.OF_TWO
        else [np.concatenate([floats(), np.float32(np.linspace(-10, 10, 50_000))])]
    )


def nearest_to_quadrants():
    """For each exponent, the floats nearest to a multiple of π/2: denominators of a continued fraction."""
    found = []
    with mp.workprec(400):
        for exponent in range(-8, 105):
            rest, before, numerator = mp.ldexp(1, exponent) / (mp.pi / 2), 0, 1
            while numerator < 2**24:
                found.append(math.ldexp(numerator, exponent))
                rest = 1 / (rest - mp.floor(rest))
                before, numerator = numerator, before + int(mp.floor(rest)) * numerator
    return np.float32(found)


@pytest.fixture
def kernels_always(monkeypatch):
    monkeypatch.setattr(kernels, "SLOWER_ALONE", {"float32": ()})


def same(ours, theirs):
    """Equal to the sign of zero, or both NaN."""
    return np.array_equal(ours, theirs, equal_nan=True) and np.array_equal(
        np.signbit(ours) & (ours == 0), np.signbit(theirs) & (theirs == 0)
    )


@pytest.mark.parametrize("name", NAMES)
class TestKernels:
    def test_within_two_ulp(self, name):
        error, *where = worst(name, *arguments(name))
        assert error <= TOLERANCE, where

    @pytest.mark.usefixtures("kernels_always")
    @pytest.mark.parametrize("lanes", [1, 16])
    def test_special_numbers(self, name, lanes):
        count = 2 if name in kernels.OF_TWO else 1
        points = np.float32([*itertools.product(SPECIAL, repeat=count)])
        with np.errstate(all="ignore"):
            theirs = np.float32([ops.TABLE[name].forward(*point) for point in points.tolist()])
        ours = evaluate(name, *points.T, lanes=lanes)
        exact = ~np.isfinite(theirs) | (theirs == 0) | (name == "fmod")
        if count == 1:
            exact |= (theirs == points[:, 0]) | (np.abs(theirs) == 1)
        assert same(ours[exact], theirs[exact])
        assert (ulps(ours[~exact], np.float64(theirs[~exact])) <= TOLERANCE).all()

    @pytest.mark.usefixtures("kernels_always")
    def test_any_number_of_lanes_gives_the_same(self, name):
        rng, count = np.random.default_rng(2), 2 if name in kernels.OF_TWO else 1
        columns = [
            rng.permutation(np.concatenate([SPECIAL, floats(2**23)[: 960 - len(SPECIAL)]])) for _ in range(count)
        ]
        together = evaluate(name, *columns)
        for lanes in (1, 3, 8):
            assert same(evaluate(name, *columns, lanes=lanes), together)

    def test_arithmetic_is_not_reordered(self, name):
        assert "reassoc" not in "".join(kernels.define(name, 8, FLOAT.element))


@pytest.mark.parametrize("name", kernels.SINGLE)
def test_no_kernel_computes_in_doubles(name):
    assert "double" not in "".join(kernels.define(name, 1, FLOAT.element))


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_closest_to_quarters_of_the_turn(name):
    """NumPy's reduction of large angles is right too."""
    error, *where = worst(name, np.concatenate([nearest_to_quadrants(), floats(2**18 - 5)]))
    assert error <= TOLERANCE, where


def test_powers_are_exact_where_they_can_be():
    x, y = np.float32([*itertools.product(range(1, 30), range(11))]).T
    fits = np.float64(x) ** y < 2**24
    x, y = x[fits], y[fits]
    assert np.array_equal(evaluate("pow", x, y), np.float64(x) ** y)
    n = np.arange(-149.0, 128.0)
    assert np.array_equal(evaluate("exp2", n), 2.0**n)
    assert np.array_equal(evaluate("log2", 2.0**n), n)


@pytest.mark.parametrize(
    ("table", "place", "name"),
    [
        *(("exp2", 1, name) for name in ("exp2", "pow")),
        ("sinh", 1, "sinh"),
        ("artanh", 0, "pow"),
        ("asinh", 1, "asinh"),
        ("tan", 1, "tan"),
        *(("atan", 3, name) for name in ("atan", "atan2")),
        *(("asin", 1, name) for name in ("asin", "acos")),
        *(("erf", 1, name) for name in ("erf", "erfc")),
        ("log_erfc", 3, "erf"),
        ("erfc", 2, "erfc"),
        ("third", 0, "pow"),
        *(("per_log2", 0, name) for name in ("log2", "pow")),
        ("per_log10", 0, "log10"),
        ("log10_of_2", 1, "log10"),
    ],
)
def test_a_wrong_coefficient_is_noticed(table, place, name, monkeypatch):
    numbers = list(getattr(FLOAT, table))
    numbers[place] *= 1.01 if place or table == "artanh" else 1.0001
    monkeypatch.setitem(FORMATS, "float", replace(FLOAT, **{table: tuple(numbers)}))
    kernels.define.cache_clear()
    try:
        assert worst(name, *arguments(name))[0] > TOLERANCE
    finally:
        kernels.define.cache_clear()


def test_constants_are_the_fitted_ones():
    tool = runpy.run_path(str(ROOT / "tools" / "fit_kernels.py"))
    for name, (coefficients, _) in tool["single_fits"]().items():
        assert getattr(FLOAT, name) == pytest.approx(coefficients, rel=1e-12, abs=0.0), name
    for name, numbers in tool["single_parts"]().items():
        assert getattr(FLOAT, name) == tuple(numbers), name
    with mp.workprec(300):
        bits = int(mp.floor(2 / mp.pi * 2**224))
    assert sum(word << 32 * k for k, word in enumerate(reversed(TWO_OVER_PI))) == bits
