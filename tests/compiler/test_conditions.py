"""What only a condition depends on has no gradient, be it infinite: it is in no array with numbers that have one."""

import math
import random

import pytest

import chainrule
from chainrule import Value, exp, floor, gt, log, logsumexp, relu, rint, sign, sqrt, where
from chainrule.compiler.passes.classes import classify
from chainrule.compiler.trace.graph import graph_of
from steep_loops import STRANGE, after_turns, random_turn


def chosen(a, b, c):
    """The first `a * x` is a condition's, and of the same form as what is chosen."""
    return sum(where(gt(a * x, x), x * c, b * 3.0) for x in (a, b, c))


def over_time(start, large, small, other):
    x = start
    for _ in range(40):
        x = where(gt(x * large, 1.0), x * small, x * other)
    return x


def by_root(a, b, c):
    """The root of 0 has an infinite slope; here only conditions ask for it."""
    return sum(where(gt(sqrt(x), 0.5), sqrt(x + 1.0), log(x + 2.0) * b) for x in (a, b, c))


def of_sums(a, b, c):
    """Sums of one to five terms, of which the condition's are infinite."""
    rows = [[a] * n + [b] for n in range(1, 6)]
    return sum(where(gt(sum([exp(x * a) for x in row]), c), sum([exp(x * c) for x in row[1:]]), b) for row in rows)


def rod(large, small, *start):
    """A loop that is found by nodes, because of its ends."""
    u = [*start]
    for _ in range(20):
        inner = range(1, len(u) - 1)
        mixed = [u[i] * small + u[i + 1] * small for i in inner]
        u = [u[0], *(where(gt(u[i] * large, 0.0), mixed[i - 1], u[i] * 0.3) for i in inner), u[-1]]
    return sum(x * x for x in u)


def in_turn(a, b, c, d):
    """What a loop hands over of `x` is for the conditions of the next turn alone."""
    for _ in range(5):
        x = where(gt(a, c), sqrt(a), a * c)
        y = where(gt(c / b, b), a, c)
        z = where(gt(a / d, d), d, a)
        a, b, c, d = d, x, y, z
    return a + b + c + d


def fed(large, small, *start):
    """What the loop begins with is computed, and has a gradient; there are conditions outside of it too."""
    return where(gt(small, 0.0), 2.0, 3.0) * rod(large, small, *[small * x + 0.1 for x in start])


def in_small_steps(x, y):
    """The differences in `logsumexp` are a loop of three turns over `relu(x)`, which has a gradient, and others."""
    whole, flat, steep = rint(y), relu(x), sqrt(x)
    return floor(logsumexp([whole, flat, steep])) + x * 0.3 + y * flat


def at_the_end(a, b):
    """The root goes into conditions, but the last one into the result."""
    x, y = a, b
    for _ in range(5):
        other = where(gt(x, 0.5), x, y)
        steep, y = sqrt(x), x - y
        x = where(gt(y * steep, other), y, other) * 0.5
    return x + y * steep


def cut_off(a, b):
    """Every turn takes the root of a sign, which passes no gradient on to the root before."""
    root, whole = a, b
    for _ in range(6):
        root, whole = sqrt(whole), sign(root)
    return root * root + whole + a


PROGRAMS = [
    (at_the_end, (-0.8, -1.0)),
    (cut_off, (1.0, -0.2)),
    (in_small_steps, (-math.inf, 0.0)),
    (in_small_steps, (0.0, 0.5)),
    (chosen, (math.inf, 2.0, 3.0)),
    (chosen, (2.0, math.inf, 3.0)),
    (over_time, (1.0, math.inf, 0.9, 0.8)),
    (by_root, (0.0, 1.0, 2.0)),
    (of_sums, (400.0, 0.5, 0.25)),
    (in_turn, (2.0, 0.5, -1.0, -1.0)),
    (fed, (2.0, 0.4, *[1.0 + 0.1 * k for k in range(30)])),
    (rod, (math.inf, 0.4, *[1.0 + 0.1 * k for k in range(30)])),
]


@pytest.mark.parametrize("backend", ["llvm", "interpreter"])
@pytest.mark.parametrize(("function", "numbers"), PROGRAMS)
def test_gradients_are_those_of_eager_code(function, numbers, backend):
    leaves = [Value(number) for number in numbers]
    loss = function(*leaves)
    loss.backward()
    expected = pytest.approx([leaf.grad for leaf in leaves], rel=1e-12, nan_ok=True)
    number = pytest.approx(loss.data, nan_ok=True)
    assert chainrule.compile(loss, wrt=leaves, backend=backend).value_and_grad() == (number, expected)
    compiled = chainrule.compile(function, backend=backend)
    value, slopes = compiled.value_and_grad(*numbers, argnums=tuple(range(len(numbers))))
    assert (value, [*slopes]) == (number, expected)


def test_what_only_conditions_read_is_of_a_class_of_its_own():
    a, b, c = (Value(x) for x in (1.0, 2.0, 3.0))
    classes = classify(graph_of(chosen(a, b, c)))
    products = [size for kind, size in zip(classes.kinds, classes.sizes, strict=True) if kind is chainrule.ops.mul]
    assert products == [3, 3, 3]


@pytest.mark.parametrize("seed", range(60))
def test_no_gradient_becomes_nan_in_random_loops(seed):
    """What is infinite or no number goes into conditions and whole numbers too, at some turns or at all of them."""
    rng = random.Random(seed)
    lines = random_turn(rng)
    compiled = chainrule.compile(lambda *numbers: after_turns(lines, numbers), backend="interpreter")
    for _ in range(6):
        numbers = [rng.choice(STRANGE) if rng.random() < 0.3 else rng.uniform(-2.0, 2.0) for _ in range(4)]
        leaves = [Value(number) for number in numbers]
        after_turns(lines, leaves).backward()
        _, slopes = compiled.value_and_grad(*numbers, argnums=(0, 1, 2, 3))
        for leaf, slope in zip(leaves, slopes, strict=True):
            assert not math.isfinite(leaf.grad) or math.isfinite(slope), numbers
