"""Rectangles: rows of different lengths become rows of one length, and what lies beyond their ends does not count."""

import math
import random
from itertools import pairwise

import numpy as np
import pytest
import torch

import chainrule
from chainrule import Value
from chainrule.compiler.passes import few_tables, rectangles

BACKENDS = ["llvm", "interpreter"]
N = 24


def numbers(count, seed=0, low=-1.0, high=1.0):
    return np.random.default_rng(seed).uniform(low, high, count).tolist()


def attention(m, x, n, heads=1, softmax=None):
    """Each of n positions attends to itself and to those before it."""
    keys, total = [], 0.0
    for t in range(n):
        keys.append(x[3 * t : 3 * t + 3])
        for head in range(heads):
            scores = [(0.5 + head) * sum(a * b for a, b in zip(x[3 * t : 3 * t + 3], key, strict=True)) for key in keys]
            parts = (softmax or (lambda m, scores: m.softmax(scores)))(m, scores)
            mixed = [sum(p * key[i] for p, key in zip(parts, keys, strict=True)) for i in range(3)]
            total = total + sum(v * v for v in mixed)
    return total


def by_hand(m, scores):
    """With a tournament of maxima."""
    largest = scores[0]
    for score in scores[1:]:
        largest = m.maximum(largest, score)
    parts = [m.exp(score - largest) for score in scores]
    return [part / sum(parts) for part in parts]


def by_logsumexp(m, scores):
    norm = m.logsumexp(scores)
    return [m.exp(score - norm) for score in scores]


def pairs_after(m, x, n):
    """Every pair once, from the first on: rows get shorter."""
    return sum([m.sqrt((x[i] - x[j]) ** 2 + 0.1) * x[j] for i in range(n) for j in range(i + 1, n)])


def pairs_before(m, x, n):
    """Every pair once, up to the last, with a sum for each row."""
    return sum([m.log(1.5 + sum([m.exp(x[i] - x[j]) for j in range(i + 1)])) for i in range(n)])


def banded(m, x, n):
    """Up to nine neighbours on each side."""
    return sum(
        [m.tanh(sum([m.exp(x[i] * x[j]) for j in range(max(0, i - 9), min(n, i + 10))])) for i in range(n)],
        0.0,
    )


def of_columns(m, x, n):
    """A triangle that is filled by row and added up by column."""
    cells = [[m.exp(x[i] * x[j + n]) for j in range(i + 1)] for i in range(n)]
    return sum([m.tanh(sum([cells[i][j] for i in range(j, n)])) for j in range(n)])


def points(m, x, n):
    """Three numbers for each pair."""
    force = 0.0
    for i in range(n):
        for j in range(i):
            d = [x[3 * i + k] - x[3 * j + k] for k in range(3)]
            force = force + sum([m.sin(each) * d[0] for each in d]) / (0.3 + sum([each * each for each in d]))
    return force


PROGRAMS = {
    "attention": lambda m, x: attention(m, x, N),
    "heads": lambda m, x: attention(m, x, N, heads=2),
    "maxima by hand": lambda m, x: attention(m, x, N, 2, by_hand),
    "logsumexp": lambda m, x: attention(m, x, N, 1, by_logsumexp),
    "pairs after": lambda m, x: pairs_after(m, x, 2 * N),
    "pairs before": lambda m, x: pairs_before(m, x, 2 * N),
    "banded": lambda m, x: banded(m, x, 3 * N),
    "columns": lambda m, x: of_columns(m, x, N),
    "points": lambda m, x: points(m, x, N),
}


def eager(program, x):
    leaves = [Value(number) for number in x]
    loss = program(chainrule, leaves)
    loss.backward()
    return loss.data, [leaf.grad for leaf in leaves]


def compiled(program, x, backend="llvm"):
    leaves = [Value(number) for number in x]
    code = chainrule.compile(program(chainrule, leaves), wrt=leaves, backend=backend, allow_frozen_branches=True)
    return code, *code.value_and_grad()


@pytest.fixture
def wherever_possible(monkeypatch):
    """Rectangles wherever they can be made, whatever time that takes."""
    monkeypatch.setattr(few_tables, "MUCH_FASTER", math.inf)


def assert_equal(found, expected, scale=1e-12):
    found, expected = np.array(found), np.array(expected)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.array_equal(found[np.isinf(expected)], expected[np.isinf(expected)])
    finite = np.isfinite(expected)
    largest = np.abs(expected[finite]).max(initial=1.0)
    assert np.isfinite(found[finite]).all()
    assert np.abs(found[finite] - expected[finite]).max(initial=0.0) <= scale * largest


def lookups(code):
    """How many elements are found by tables in a run."""
    statements = code._present.code.whole.statements
    pairs = [pair for statement in statements for pair in statement.accesses_in_loops()]
    return sum([math.prod(loops) for access, loops in pairs if access.table is not None])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_those_of_eager_code(name, backend, wherever_possible):
    x = numbers(3 * N, seed=len(name))
    value, gradient = eager(PROGRAMS[name], x)
    _, found, by = compiled(PROGRAMS[name], x, backend)
    assert_equal([found], [value])
    assert_equal(by, gradient)


@pytest.mark.parametrize("name", ["attention", "heads", "maxima by hand", "logsumexp", "pairs before"])
def test_rows_need_no_tables(name):
    code, *_ = compiled(PROGRAMS[name], numbers(3 * N))
    assert lookups(code) == 0


def test_torch_agrees_on_masked_attention():
    x = numbers(3 * N, seed=4)
    _, value, gradient = compiled(PROGRAMS["logsumexp"], x)
    given = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    keys = given.reshape(N, 3)
    scores = (0.5 * keys @ keys.T).masked_fill(~torch.ones(N, N, dtype=torch.bool).tril(), -math.inf)
    loss = ((torch.softmax(scores, dim=1) @ keys) ** 2).sum()
    loss.backward()
    assert_equal([value], [loss.item()])
    assert_equal(gradient, given.grad.tolist())


def sums_with_numbers(m, x):
    """Each element of a row is itself a sum of several lengths, of products and of equal numbers."""
    total = 0.0
    for i in range(20):
        row = []
        for j in range(i + 1):
            s = x[i] * x[20 + j]
            for k in range(j % 5):
                s = s + x[i + k] * x[20 + j + k] + 1.5
            row.append(m.tanh(0.1 * s))
        total = total + m.exp(sum(row))
    return total


def largest_of_columns(m, x):
    """A band by columns, whose largest numbers are far below 0, which is what stands for what is missing in a sum."""
    band = {(i, j): x[i] * x[68 + j] for i in range(60) for j in range(max(0, i - 8), min(60, i + 4))}
    total = sum(m.logsumexp([band[i, j] for i in range(60) if (i, j) in band]) for j in range(60))
    for op in (m.sin, m.tanh):
        wave = {(i, j): m.tanh(op(number) * x[68 + j] * x[i]) for (i, j), number in band.items()}
        total = total + 1e-4 * sum(m.tanh(sum(wave[i, j] for j in range(60) if (i, j) in band)) for i in range(60))
    return total + 0.001 * sum(m.tanh(x[60 + j] / x[128 + j]) for j in range(8))


def differences_of_neighbours(m, x):
    """Two sums of several lengths in one statement."""
    total = 0.0
    for k in range(2):
        for i in range(12):
            row = [m.sin(x[2 * i + k] * x[24 + 2 * (11 - j) + k] * x[48 + i]) for j in range(i // 2 + 4)]
            row = [row[0] * 1.0] + [m.maximum(b, 0.9 * b) - a for a, b in pairwise(row)]
            total = total + m.tanh(sum(v if j % 2 else -v for j, v in enumerate(row)))
    return total


HARD = {
    sums_with_numbers: numbers(60, low=-0.3, high=0.3),
    largest_of_columns: [60 + 0.01 * i for i in range(60)]
    + [-60.0] * 8
    + [-60 - 0.02 * i for i in range(60)]
    + [-60.0] * 8,
    differences_of_neighbours: numbers(60),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", HARD)
def test_ragged_sums_of_and_in_rows(program, backend, wherever_possible):
    value, gradient = eager(program, HARD[program])
    _, found, by = compiled(program, HARD[program], backend)
    assert_equal([found], [value])
    assert_equal(by, gradient, 1e-11)


STEEP = [*numbers(N, low=0.5, high=1.0), *[80.0 * s for s in range(N)]]


def steep(m, x):
    """What lies beyond the end of a row would be exp(900) and more: infinite, and so would be its slope."""
    total = 0.0
    for t in range(N):
        scores = [x[t] * x[N + s] for s in range(t + 1)]
        norm = m.logsumexp(scores)
        total = total + sum([m.exp(score - norm) * x[s] for s, score in enumerate(scores)])
    return total


def beyond_the_domain(m, x):
    """Beyond the end of a row are roots of negative numbers, and divisions by zero."""
    return sum([m.sqrt(x[t] - x[s]) + 1.0 / (1.0 + t - s) * x[s] for t in range(N) for s in range(t)])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [steep, beyond_the_domain])
def test_what_lies_beyond_the_ends_of_rows_does_not_count(program, backend, wherever_possible):
    x = sorted(numbers(N, low=0.5, high=2.0)) if program is beyond_the_domain else STEEP
    value, gradient = eager(program, x)
    assert np.isfinite(gradient).all()
    _, found, by = compiled(program, x, backend)
    assert_equal([found], [value])
    assert_equal(by, gradient, 1e-10)


def test_without_masks_it_would_count(monkeypatch, wherever_possible):
    monkeypatch.setattr(rectangles, "_where", lambda mask, expression, otherwise: expression)
    _, found, by = compiled(steep, STEEP)
    value, gradient = eager(steep, STEEP)
    assert found != pytest.approx(value)
    assert by != pytest.approx(gradient)


@pytest.mark.parametrize("special", [math.inf, -math.inf, math.nan, -0.0, 1e308])
@pytest.mark.parametrize("name", ["pairs before", "logsumexp", "banded"])
def test_special_numbers_go_where_they_go_in_eager_code(name, special, wherever_possible):
    x = numbers(3 * N, seed=7)
    x[-2] = special
    value, gradient = eager(PROGRAMS[name], x)
    _, found, by = compiled(PROGRAMS[name], x)
    assert_equal([found], [value], 1e-9)
    assert_equal(by, gradient, 1e-9)


UNARY = ["exp", "tanh", "sin", "sqrt_of_square", "reciprocal", "relu"]


def apply(m, name, v):
    if name == "sqrt_of_square":
        return m.sqrt(v * v + 0.5)
    if name == "reciprocal":
        return 1.0 / (v * v + 0.25)
    return getattr(m, name)(v)


def random_program(rng):
    """Rows of random lengths, with a chain of ops on all elements, and one of several ways to add them up."""
    count = rng.randint(6, 20)
    kind = rng.choice(["grow", "shrink", "any", "step"])
    lengths = {
        "grow": [i + 1 for i in range(count)],
        "shrink": [count - i for i in range(count)],
        "any": [rng.randint(1, 16) for _ in range(count)],
        "step": [3 * (i // 3) + 2 for i in range(count)],
    }[kind]
    offset, a, b = rng.randint(0, 3), rng.choice([0, 1, 2]), rng.choice([1, 2])
    ops, way, twice = rng.sample(UNARY, rng.randint(1, 3)), rng.choice(WAYS), rng.random() < 0.5
    weights = [rng.uniform(-1.0, 1.0) for _ in range(max(lengths))]
    size = offset + a * count + b * max(lengths) + count + 1

    def program(m, x):
        rows = []
        for i, length in enumerate(lengths):
            row = [x[i] * x[offset + a * i + b * j] + weights[j] for j in range(length)]
            for name in ops:
                row = [apply(m, name, v) for v in row]
            if twice:
                norm = m.logsumexp(row)
                row = [m.exp(v - norm) * x[j] for j, v in enumerate(row)]
            rows.append(row)
        return WAYS_TO_ADD[way](m, rows)

    return program, size


def by_row(m, rows):
    return sum([m.tanh(sum(row)) for row in rows])


def by_largest(m, rows):
    return sum([m.logsumexp(row) for row in rows])


def by_column(m, rows):
    longest = max(map(len, rows))
    return sum([m.tanh(sum([row[j] for row in rows if j < len(row)])) for j in range(longest)])


def by_neighbours(m, rows):
    return sum([a[j] * b[j] for a, b in pairwise(rows) for j in range(min(len(a), len(b)))])


WAYS_TO_ADD = {"row": by_row, "largest": by_largest, "column": by_column, "neighbours": by_neighbours}
WAYS = list(WAYS_TO_ADD)


@pytest.mark.parametrize("seed", range(60))
def test_random_rows(seed, wherever_possible):
    rng = random.Random(seed)
    program, size = random_program(rng)
    x = [rng.uniform(-1.0, 1.0) for _ in range(size)]
    value, gradient = eager(program, x)
    for backend in BACKENDS:
        _, found, by = compiled(program, x, backend)
        assert_equal([found], [value], 1e-11)
        assert_equal(by, gradient, 1e-11)


def test_random_rows_become_rectangles(wherever_possible):
    made = 0
    for seed in range(60):
        rng = random.Random(seed)
        program, size = random_program(rng)
        leaves = [Value(rng.uniform(-1.0, 1.0)) for _ in range(size)]
        whole = chainrule.compile(program(chainrule, leaves), wrt=leaves)._present.code.whole
        names = {access.array.name for statement in whole.statements for access in statement.accesses()}
        made += "m" in names
    assert made >= 40
