"""At zeros, infinities, NaN and the largest and smallest numbers, compiled programs give what eager code gives.

The whole op table, values and derivatives, on every backend. XLA keeps some liberties, which docs/jax.md tells of: it
takes subnormal numbers for 0 and rearranges quotients. So the numbers are not as extreme there.
"""

import itertools
import math

import numpy as np
import pytest
from test_ops import EDGES, FEWER_EDGES, TABLE

from c_compiler import Compiled
from chainrule import compile, value_and_grad

EXPONENTS = [
    0.0,
    0.5,
    -0.5,
    1.0,
    -1.0,
    1.5,
    -1.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    2.5,
    16.0,
    -16.0,
    0.3,
    17.0,
    math.inf,
    math.nan,
]
ROWS = {arity: [row for row in TABLE.values() if row.arity == arity] for arity in (1, 2, 3)}


def flat(nest):
    return [number for part in nest for number in flat(part)] if isinstance(nest, tuple | list) else [nest]


def batched(**options):
    def run(function, points, folder):
        columns = [list(column) for column in zip(*points, strict=True)]
        return np.array(compile(function, **options).batch(*columns, reduce=None)).T

    return run


def one_by_one(**options):
    def run(function, points, folder):
        program = compile(function, **options)
        return [program(*point) for point in points]

    return run


def in_c(function, points, folder):
    exported = Compiled(compile(function).to_c("f", *[0.5] * len(points[0])), folder)
    return [exported("f", inputs=point)["outputs"].tolist() for point in points]


BACKENDS = {
    "llvm": batched(),
    "llvm, one at a time": one_by_one(),
    "interpreter": batched(backend="interpreter"),
    "interpreter, one at a time": one_by_one(backend="interpreter"),
    "strict": one_by_one(strict=True),
    "C": in_c,
    "jax": batched(backend="jax"),
    "xla": batched(backend="xla"),
}
SLOW = ("llvm", "jax", "xla")  # to compile
every_backend = pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in BACKENDS]
)


def same(ours, eager, is_value, tolerance):
    """Equal to a relative tolerance, or both NaN; zeros of values in their signs too, for a quotient shows it."""
    if math.isnan(ours) or math.isnan(eager):
        return math.isnan(ours) and math.isnan(eager)
    if ours == eager:
        return ours != 0.0 or not is_value or math.copysign(1.0, ours) == math.copysign(1.0, eager)
    return abs(ours - eager) <= tolerance * max(abs(ours), abs(eager)) + 2e-323 < math.inf


def assert_equals_eager(functions, points, backend, folder):
    """`functions` by name, each of all numbers of a point: values and derivatives."""
    if backend in ("jax", "xla"):
        pytest.importorskip("jax")
    if backend == "xla":
        points = list(dict.fromkeys(tuple(map(milder, point)) for point in points))
    both = [value_and_grad(function, range(len(points[0]))) for function in functions.values()]
    found = BACKENDS[backend](lambda *xs: flat([f(*xs) for f in both]), points, folder)
    names = [(name, k) for name in functions for k in range(1 + len(points[0]))]
    wrong = []
    for point, numbers in zip(points, found, strict=True):
        expected = flat([f(*point) for f in both])
        for (name, k), ours, eager in zip(names, numbers, expected, strict=True):
            starts_at_0 = backend == "xla" and ours == eager == 0.0  # sums do there
            if not starts_at_0 and not same(ours, eager, k == 0, 1e-12 if backend == "xla" else 1e-14):
                wrong.append((name, point, f"derivative {k - 1}" if k else "value", ours, eager))
    assert not wrong, f"{len(wrong)} differ: {wrong[:10]}"


def milder(x):
    """A number that XLA takes for itself, and so it does its square."""
    if 1e100 < abs(x) < math.inf:
        return math.copysign(1e100, x)
    return math.copysign(1e-100, x) if 0.0 < abs(x) < 1e-100 else x


@every_backend
@pytest.mark.parametrize("arity", ROWS)
def test_every_op_at_all_combinations_of_edges(arity, backend, tmp_path):
    points = list(itertools.product(FEWER_EDGES if arity > 2 else EDGES, repeat=arity))
    assert_equals_eager({row.name: row for row in ROWS[arity]}, points, backend, tmp_path)


@every_backend
def test_powers_with_a_fixed_exponent(backend, tmp_path):
    powers = {f"x ** {e}": lambda x, e=e: x**e for e in EXPONENTS}
    assert_equals_eager(powers, [(x,) for x in EDGES], backend, tmp_path)


@pytest.mark.parametrize("backend", [pytest.param("llvm", marks=pytest.mark.slow), "interpreter", "C"])
@pytest.mark.parametrize("place", [0, 1])
def test_ops_on_a_number_that_is_fixed(place, backend, tmp_path):
    def fixed(row, number):
        return (lambda x: row(x, number)) if place else (lambda x: row(number, x))

    numbers = [0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan, 1e308]
    functions = {f"{row.name} of {number}": fixed(row, number) for row in ROWS[2] for number in numbers}
    assert_equals_eager(functions, [(x,) for x in EDGES], backend, tmp_path)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "xla"])
def test_sums_of_negative_zeros(backend, tmp_path):
    """-0.0 + -0.0 is -0.0, and a sum that starts with 0 is 0.0, however many lanes it takes."""
    points = [(-0.0,) * 41, (-0.0,) * 40 + (0.0,)]
    found = BACKENDS[backend](
        lambda *xs: [xs[0] + xs[1], sum(xs), sum(xs[1:], xs[0]), *[sum(xs[1:n], xs[0]) for n in (3, 8, 20)]],
        points,
        tmp_path,
    )
    signs = [[math.copysign(1.0, number) for number in numbers] for numbers in found]
    assert signs == [[-1.0, 1.0, -1.0, -1.0, -1.0, -1.0], [-1.0, 1.0, 1.0, -1.0, -1.0, -1.0]]
