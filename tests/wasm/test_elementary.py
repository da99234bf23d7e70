"""The elementary functions are within 0.6 ulp of the true value, equal the op table at special numbers, and compile."""

import ast
import inspect
import itertools
import math
import random
import runpy
import struct
from fractions import Fraction

import mpmath as mp
import pytest

import mpmath_ops
from chainrule import ops
from chainrule.wasm import elementary, primitives
from chainrule.wasm.elementary import error_function, exponential, logarithm, pairs, trigonometric
from project import ROOT
from wasm_subset import violations

TOLERANCE = 0.6  # ulp
COUNT = 1_200  # arguments of each kind
LARGEST, SMALLEST_NORMAL, SMALLEST = 1.7976931348623157e308, 2.0**-1022, 5e-324

USUAL = {  # where a function is used, or hard
    "exp": [(-746.0, 710.0), (-1.0, 1.0), (-746.0, -708.0)],
    "exp2": [(-1076.0, 1025.0), (-1.0, 1.0), (-1076.0, -1022.0)],
    "expm1": [(-40.0, 60.0), (-1.0, 1.0), (-0.02, 0.02)],
    "sinh": [(-30.0, 30.0), (-1.0, 1.0), (700.0, 711.0)],
    "cosh": [(-30.0, 30.0), (-1.0, 1.0), (700.0, 711.0)],
    "tanh": [(-21.0, 21.0), (-1.0, 1.0), (-0.02, 0.02)],
    "log": [(0.0, 20.0), (0.7, 1.6), (0.99, 1.01)],
    "log2": [(0.0, 20.0), (0.7, 1.6), (0.99, 1.01)],
    "log10": [(0.0, 2000.0), (0.7, 1.6), (0.99, 1.01)],
    "log1p": [(-1.0, 20.0), (-0.3, 0.6), (-0.01, 0.01), (1e-16, 3e-16)],
    "sin": [(-20.0, 20.0), (-0.1, 0.1), (9e4, 1.1e5)],
    "cos": [(-20.0, 20.0), (-0.1, 0.1), (9e4, 1.1e5)],
    "tan": [(-20.0, 20.0), (-0.1, 0.1), (9e4, 1.1e5)],
    "asin": [(-1.0, 1.0), (-0.1, 0.1), (0.999, 1.0)],
    "acos": [(-1.0, 1.0), (-0.1, 0.1), (0.999, 1.0)],
    "atan": [(-1.1, 1.1), (-30.0, 30.0), (-0.1, 0.1)],
    "asinh": [(-20.0, 20.0), (-0.1, 0.1), (1e8, 2e9)],
    "acosh": [(1.0, 20.0), (1.0, 1.001), (1e8, 2e9)],
    "atanh": [(-1.0, 1.0), (-0.1, 0.1), (0.999, 1.0)],
    "erf": [(-6.1, 6.1), (-1.0, 1.0), (0.2, 0.9)],
    "erfc": [(-6.1, 27.4), (-1.0, 1.0), (0.2, 0.9)],
}
DOMAIN = {"log": (0.0, math.inf), "log2": (0.0, math.inf), "log10": (0.0, math.inf), "log1p": (-1.0, math.inf)}
DOMAIN |= {"asin": (-1.0, 1.0), "acos": (-1.0, 1.0), "acosh": (1.0, math.inf), "atanh": (-1.0, 1.0)}
FAR = {"exp": 1200.0, "exp2": 1200.0, "expm1": 1200.0, "sinh": 1200.0, "cosh": 1200.0, "tanh": 100.0}
FAR |= {"erf": 40.0, "erfc": 40.0}  # beyond these a result changes no more, and mpmath would take long
OF_ONE, OF_TWO = tuple(USUAL), ("atan2", "pow", "hypot", "fmod")


def exact(name, *numbers):
    """The true value, from mpmath, with digits to spare: log(1 + 1e-300) and sin(1e300) need them."""
    numbers = [math.copysign(min(abs(x), FAR.get(name, math.inf)), x) for x in numbers]
    sizes = [abs(math.frexp(x)[1]) for x in numbers]
    extra = max(sizes) if name in ("sin", "cos", "tan", "expm1", "log1p", "asinh", "atanh", "hypot") else 0
    with mp.workprec(160 + 2 * extra):
        return mpmath_ops.FUNCTIONS[name](*map(mp.mpf, numbers))


def error(true, ours):
    """In units of the last place of the true value; infinite for a wrong infinity or NaN."""
    nearest = float(true)
    if math.isinf(nearest) or not math.isfinite(ours):
        return 0.0 if nearest == ours else math.inf
    with mp.workprec(160):
        return float(abs(mp.mpf(ours) - true) / mp.mpf(math.ulp(nearest)))


def worst(name, points):
    """The largest error, and where."""
    function = getattr(elementary, name)
    return max((error(exact(name, *point), function(*point)), point) for point in points)


def any_float(rng):
    """A finite number of random bits."""
    x = struct.unpack("<d", rng.randbytes(8))[0]
    return x if math.isfinite(x) else any_float(rng)


def neighbours(x, count=3):
    """x and the floats next to it."""
    low = high = x
    yield x
    for _ in range(count):
        low, high = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
        yield from (low, high)


def thresholds():
    """The numbers that the modules compare with: there one formula ends and the next begins."""
    trees = [ast.parse(inspect.getsource(module)) for module in elementary.MODULES]
    compared = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    found = {node.value for compare in compared for node in ast.walk(compare) if isinstance(node, ast.Constant)}
    return sorted({*found, pairs.TINY, trigonometric.LARGE, 1.0, 2.0**-1022, 2.0**-53, 2.0**-52} - {0.0})


def inside(name, x):
    low, high = DOMAIN.get(name, (-math.inf, math.inf))
    return low <= x <= high and not (name in ("log", "log2", "log10", "log1p", "atanh") and x in (low, high))


def arguments(name, count=COUNT):
    """Random in bits, in size, and in the usual ranges; near 1; and around the thresholds."""
    rng = random.Random(name)
    found = [any_float(rng) for _ in range(count)]
    found += [rng.choice((-1.0, 1.0)) * 2.0 ** rng.uniform(-60, 11) for _ in range(count)]
    found += [1.0 + rng.choice((-1.0, 1.0)) * 2.0 ** rng.uniform(-53, -1) for _ in range(count // 2)]
    found += [rng.uniform(*bounds) for bounds in USUAL[name] for _ in range(count)]
    found += [math.ldexp(rng.random(), -1022) for _ in range(100)]
    for x in [*thresholds(), LARGEST, SMALLEST]:
        found += [*neighbours(x), *neighbours(-x)]
    return [(x,) for x in found if inside(name, x) and math.isfinite(x)]


@pytest.mark.parametrize("name", OF_ONE)
def test_within_tolerance(name):
    assert worst(name, arguments(name)) <= (TOLERANCE,)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_large_angles_closest_to_quarters_of_the_turn(name):
    """Numbers m·2ᵉ nearest to multiples of π/2, for exponents up to the largest: where most digits cancel."""
    found = []
    with mp.workprec(1300):
        for e in range(-50, 972, 7):
            rest, closest = mp.ldexp(1, e) / (mp.pi / 2), [0, 1]  # denominators of the continued fraction
            while closest[-1] < 2**53:
                rest = 1 / (rest - mp.floor(rest))
                closest.append(closest[-2] + int(mp.floor(rest)) * closest[-1])
            found += [(math.ldexp(m, e),) for m in closest[-3:-1]]
    assert worst(name, found) <= (TOLERANCE,)


def points_of(name):
    """Two numbers: of any size, of like size, and where the result is hard."""
    rng = random.Random(name)
    for _ in range(3 * COUNT):
        x, y = any_float(rng), any_float(rng)
        yield x, y
        yield x, x * rng.uniform(-3.0, 3.0) if abs(x) < 1e307 else y
        yield rng.uniform(-5.0, 5.0), rng.uniform(-5.0, 5.0)
        yield x, x * 2.0 ** rng.uniform(-70, 0)
    edges = [SMALLEST, 3 * SMALLEST, 1e-320, SMALLEST_NORMAL, 3 * SMALLEST_NORMAL, LARGEST, 1e308, 1.0, 1e-18, 1e-9]
    yield from itertools.product(edges, edges)
    yield from ((x * rng.random(), x * rng.random()) for x in 200 * [4 * SMALLEST_NORMAL])


def powers():
    rng = random.Random("pow")
    for _ in range(2 * COUNT):
        near_1 = 1.0 + rng.choice((-1.0, 1.0)) * 2.0 ** rng.uniform(-52, -1)
        x, y = abs(any_float(rng)), rng.uniform(-20.0, 20.0)
        yield x, y
        yield rng.uniform(0.0, 10.0), y
        for base in (near_1, x):  # so that results are up to the largest, and down to the smallest
            yield base, rng.uniform(-745.5, 709.9) / math.log(base)
        yield near_1, rng.uniform(-745.2, -708.0) / math.log(near_1)
        yield x, any_float(rng)
        yield -x, float(rng.randint(-9, 9))
    whole = (-1075.0, -1074.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 17.0, 1023.0, 1024.0)
    yield from itertools.product((0.5, 2.0, 3.0, 10.0, 1.5, SMALLEST, LARGEST, 1.0 + 2.0**-52), (*whole, 0.5, -0.5))


def exact_power(x, y):
    """mpmath, which would compute an enormous or tiny one for long."""
    bits = y * mp.log(abs(mp.mpf(x)), 2)
    return mp.mpf(0) if bits < -1100 else mp.mpf("inf") if bits > 1100 else abs(mp.mpf(x)) ** mp.mpf(y)


def test_pow_within_tolerance():
    with mp.workprec(200):
        for x, y in powers():
            sign = -1.0 if x < 0.0 and y % 2.0 == 1.0 else 1.0
            assert error(exact_power(x, y), sign * elementary.pow(x, y)) <= TOLERANCE, (x, y)


@pytest.mark.parametrize("name", ["atan2", "hypot"])
def test_of_two_numbers_within_tolerance(name):
    assert worst(name, points_of(name)) <= (TOLERANCE,)


def test_fmod_is_exact():
    for x, y in points_of("fmod"):
        if y:
            quotient = Fraction(x) / Fraction(y)
            assert elementary.fmod(x, y) == Fraction(x) - Fraction(y) * int(quotient), (x, y)


SPECIAL = [0.0, math.inf, SMALLEST, SMALLEST_NORMAL, 1e-300, 2.0**-54, 0.5, 1.0 - 2.0**-53, 1.0, 1.0 + 2.0**-52, 1.5]
SPECIAL += [3.0, 5.0, 1e5, 2.0**53 - 1, 2.0**53, 1e22, LARGEST, 709.782712893384, 709.7827128933841, 745.1332191019412]
SPECIAL += [745.1332191019411, 1023.0, 1024.0, 1074.0, 1075.0, 710.4758600739439, 710.475860073944, 27.226017111108366]
SPECIAL += [2.0, 26.6, 27.3, 5.9, 6.0, 19.1, 20.0, 36.0, 37.5, 8.0, 1000.0]
SPECIAL += [-x for x in SPECIAL] + [math.nan]


def same_bits(ours, theirs):
    return (ours != ours and theirs != theirs) or struct.pack("<d", ours) == struct.pack("<d", theirs)


def agree(name, point):
    """Equal bits where the result is special; elsewhere the C library may have rounded to the other side."""
    ours, theirs = getattr(elementary, name)(*point), ops.TABLE[name].forward(*point)
    special = not math.isfinite(theirs) or theirs in (0.0, 1.0, -1.0) or (theirs,) == point
    return same_bits(ours, theirs) if special or name == "fmod" else abs(ours - theirs) <= math.ulp(theirs)


@pytest.mark.parametrize("name", OF_ONE)
def test_special_numbers(name):
    assert [x for x in SPECIAL if not agree(name, (x,))] == []


@pytest.mark.parametrize("name", OF_TWO)
def test_special_pairs(name):
    assert [point for point in itertools.product(SPECIAL, SPECIAL) if not agree(name, point)] == []


def test_multiples_of_an_eighth_of_the_turn_are_rounded_to_nearest():
    for y, x in itertools.product((0.0, -0.0, 1.0, -1.0, math.inf, -math.inf), repeat=2):
        assert same_bits(elementary.atan2(y, x), math.atan2(y, x))


def test_whole_results_are_exact():
    assert [elementary.exp2(float(n)) for n in range(-1074, 1024)] == [2.0**n for n in range(-1074, 1024)]
    assert [elementary.log2(2.0**n) for n in range(-1074, 1024)] == list(range(-1074, 1024))
    assert [elementary.log10(10.0**n) for n in range(23)] == list(range(23))
    assert all(elementary.pow(float(x), float(n)) == x**n for x in range(2, 30) for n in range(11) if x**n < 2**53)
    assert all(elementary.pow(x, 1.0) == elementary.hypot(x, 0.0) == x for x in SPECIAL if x > 0.0)
    assert elementary.hypot(3.0 * 2.0**900, -4.0 * 2.0**900) == 5.0 * 2.0**900
    assert elementary.hypot(5 * SMALLEST, 12 * SMALLEST) == 13 * SMALLEST


TURNING = {"cosh", "sin", "cos", "tan", "acos", "erfc"}


@pytest.mark.parametrize("name", [name for name in OF_ONE if name not in TURNING])
def test_rises_where_one_formula_follows_another(name):
    function = getattr(elementary, name)
    for threshold in thresholds():
        points = [x for x in sorted(neighbours(threshold, 50)) if inside(name, x)]
        results = [function(x) for x in points]
        assert results == sorted(results), threshold


@pytest.mark.parametrize("module", elementary.MODULES)
def test_the_modules_keep_to_what_can_be_compiled(module):
    assert violations(module) == []


def test_no_name_has_two_meanings():
    meanings = {}
    for module in elementary.MODULES:
        for name, thing in vars(module).items():
            if not name.startswith("__"):
                assert meanings.setdefault(name, thing) is thing, name


def test_every_function_has_a_row_in_the_op_table():
    assert {function.__name__ for function in elementary.FUNCTIONS} == {*OF_ONE, *OF_TWO}
    assert {*OF_ONE, *OF_TWO} <= ops.TABLE.keys()


PLANTED = [
    "import math\ndef f(x: float) -> float:\n    return math.sin(x)",
    "def f(x: float) -> float:\n    return x**2.0",
    "def f(x: float) -> float:\n    return x % 2.0",
    "def f(x: float) -> float:\n    return x + 1",
    "def f(x: float, y: float = 1.0) -> float:\n    return x",
    "def f(x):\n    return x",
    "def f(x: float) -> float:\n    return f(x)",
    "def g(x: float) -> float:\n    return f(x)\ndef f(x: float) -> float:\n    return g(x)",
    "def f(x: float) -> float:\n    positive = x > 0.0\n    return x if positive else 0.0",
    "def f(x: float) -> float:\n    return 1.0 if 0.0 < x < 1.0 else 0.0",
    "def f(x: float) -> float:\n    for i in (1.0, 2.0):\n        x = x + i\n    return x",
    "def f(x: float) -> float:\n    x += 1.0\n    return x",
    "def f(x: float) -> float:\n    try:\n        return 1.0 / x\n    except ZeroDivisionError:\n        return 0.0",
    "def f(x: float) -> float:\n    return max(x, 0.0)",
    "def f(x: float) -> float:\n    return unknown",
    "def f(x: float) -> float:\n    return (1.0, 2.0)[int(x)]",
    "def f(x: float) -> tuple[float, float]:\n    return x",
    "def f(x: float) -> float:\n    return x, x",
    "def f(x: float) -> float:\n    return [x][0]",
    "A = {}\n",
    "A = 1\n",
    "A = ('text', 1.0)\n",
]


@pytest.mark.parametrize("source", PLANTED)
def test_what_cannot_be_compiled_is_refused(source):
    assert violations(source) != []


@pytest.mark.parametrize(
    ("module", "table", "place", "name"),
    [
        (exponential, "EXP", 2, "exp"),
        (exponential, "EXP2_TABLE_REST", 21, "tanh"),
        (exponential, "TANH", 1, "tanh"),
        (logarithm, "LOG", 3, "log"),
        (logarithm, "LOG_TABLE_REST", 5, "log2"),
        (trigonometric, "SIN", 1, "sin"),
        (trigonometric, "COS", 2, "tan"),
        (trigonometric, "SIN_TABLE_REST", 3, "cos"),
        (trigonometric, "STEPS_PER_RADIAN", 20, "sin"),
        (trigonometric, "ATAN", 2, "acos"),
        (trigonometric, "ATAN_TABLE_REST", 5, "asin"),
        (error_function, "ERF", 2, "erf"),
        (error_function, "ERF_HIGHER", 5, "erf"),
        (error_function, "ERFC_NEAR_HIGHER", 9, "erfc"),
        (error_function, "ERFC_FAR_HIGHER", 5, "erfc"),
    ],
)
def test_a_wrong_number_in_a_table_is_noticed(module, table, place, name, monkeypatch):
    numbers = list(getattr(module, table))
    numbers[place] *= 1.01 if "ATAN_TABLE" not in table else -1.0
    monkeypatch.setattr(module, table, tuple(numbers))
    assert worst(name, arguments(name, COUNT // 4)) > (TOLERANCE,)


def test_the_tables_are_the_fitted_ones():
    found = runpy.run_path(str(ROOT / "tools" / "fit_elementary.py"))["constants"]()
    ours = {name: thing for module in elementary.MODULES for name, thing in vars(module).items() if name in found}
    assert ours.keys() == found.keys()
    for name, numbers in found.items():
        if name.startswith("ERF"):
            assert ours[name] == pytest.approx(numbers, rel=1e-9, abs=1e-25), name
        else:
            assert ours[name] == numbers, name


class TestPrimitives:
    def test_rounding_follows_the_op_table(self):
        for x in SPECIAL:
            for ours, row in (("floor", "floor"), ("trunc", "trunc"), ("nearest", "rint"), ("sqrt", "sqrt")):
                assert same_bits(getattr(primitives, ours)(x), ops.TABLE[row].forward(x))
        assert [primitives.nearest(x) for x in (0.5, 1.5, 2.5, -0.5)] == [0.0, 2.0, 2.0, 0.0]

    def test_signs(self):
        assert same_bits(primitives.absolute(-0.0), 0.0)
        assert same_bits(primitives.copysign(0.0, -1.0), -0.0)

    def test_exponents(self):
        assert [primitives.exponent(x) for x in (1.0, 1.99, 2.0, SMALLEST_NORMAL, LARGEST)] == [0, 0, 1, -1022, 1023]
        assert all(primitives.exponent(primitives.power_of_2(float(n))) == n for n in range(-1022, 1024))

    @pytest.mark.parametrize("n", [0.5, -1023.0, 1024.0, math.nan])
    def test_a_power_that_is_no_normal_number_is_refused(self, n):
        with pytest.raises(ValueError, match="`n` must be a whole number from -1022 to 1023"):
            primitives.power_of_2(n)

    def test_a_polynomial_is_evaluated_from_its_highest_coefficient(self):
        assert primitives.horner(2.0, (1.0, 10.0, 100.0)) == 421.0
        assert primitives.horner(2.0, (7.0,)) == 7.0
