"""Matrices by loops that shrink or grow: columns of different lengths are rows of one array, and sums go through it."""

import math
import random

import numpy as np
import pytest

from chainrule import Value, ops
from chainrule.compiler import compile
from chainrule.compiler.passes import families as passes
from chainrule.compiler.passes import lift as lifting
from chainrule.compiler.passes.classes import classify, links_of_differences
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.families import Families, Row
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.trace.graph import graph_of

SIZES = [1, 2, 3, 5, 7, 11, 16]


def matrix(n, diagonal):
    rng = random.Random(n)
    leaves = [Value(rng.uniform(-1, 1)) for _ in range(n * n)]
    return leaves, [[leaves[n * i + j] + (diagonal if i == j else 0.0) for j in range(n)] for i in range(n)]


def by_columns(n):
    """Cholesky's factor, left to right, by sums."""
    leaves, a = matrix(n, 3.0 * n)
    factor = [[0.0] * n for _ in range(n)]
    for j in range(n):
        factor[j][j] = (a[j][j] - sum(factor[j][k] * factor[j][k] for k in range(j))).sqrt()
        for i in range(j + 1, n):
            factor[i][j] = (a[i][j] - sum(factor[i][k] * factor[j][k] for k in range(j))) / factor[j][j]
    return sum(2.0 * factor[j][j].log() for j in range(n)), leaves


def by_rows(n):
    """The same from top to bottom, where each element loses one product after another."""
    leaves, a = matrix(n, 3.0 * n)
    for i in range(n):
        for j in range(i + 1):
            for k in range(j):
                a[i][j] = a[i][j] - a[i][k] * a[j][k]
            a[i][j] = a[i][i].sqrt() if i == j else a[i][j] / a[j][j]
    return sum(a[j][j].log() for j in range(n)), leaves


def elimination(n):
    """Gauss, as everybody writes it: what is left of the matrix gets smaller."""
    leaves, a = matrix(n, 2.0 * n)
    for k in range(n):
        for i in range(k + 1, n):
            factor = a[i][k] / a[k][k]
            for j in range(k + 1, n):
                a[i][j] = a[i][j] - factor * a[k][j]
    return sum(a[k][k].abs().log() for k in range(n)), leaves


def solution(n):
    """The same with a right-hand side, and back from the last row."""
    leaves, a = matrix(n, 2.0 * n)
    b = [leaves[k] * 0.5 for k in range(n)]
    for k in range(n):
        for i in range(k + 1, n):
            factor = a[i][k] / a[k][k]
            for j in range(k + 1, n):
                a[i][j] = a[i][j] - factor * a[k][j]
            b[i] = b[i] - factor * b[k]
    x = [0.0] * n
    for k in reversed(range(n)):
        x[k] = (b[k] - sum(a[k][j] * x[j] for j in range(k + 1, n))) / a[k][k]
    return sum(v * v for v in x), leaves


def two_factors(n):
    """Doolittle's: rows of the upper factor and columns of the lower one, in turn."""
    leaves, a = matrix(n, 2.0 * n)
    lower, upper = [[0.0] * n for _ in range(n)], [[0.0] * n for _ in range(n)]
    for k in range(n):
        for j in range(k, n):
            upper[k][j] = a[k][j] - sum(lower[k][m] * upper[m][j] for m in range(k))
        for i in range(k + 1, n):
            lower[i][k] = (a[i][k] - sum(lower[i][m] * upper[m][k] for m in range(k))) / upper[k][k]
    return sum(upper[k][k].log() for k in range(n)) + lower[-1][0], leaves


def orthogonal(n):
    """Each vector loses its parts along all before it."""
    leaves, vectors = matrix(n, 2.0)
    done = []
    for v in vectors:
        for q in done:
            part = sum(x * y for x, y in zip(q, v, strict=True))
            v = [x - part * y for x, y in zip(v, q, strict=True)]
        size = sum(x * x for x in v).sqrt()
        done.append([x / size for x in v])
    return sum((k + 1.0) * x for q in done for k, x in enumerate(q)), leaves


def substitution(n):
    """A linear system by elimination and substitution, all in running differences; `m` is regular."""
    leaves, m = matrix(n, 4.0)
    right = [Value(0.1 * k - 0.3) for k in range(n)]
    wrt = [*leaves, *right]
    for k in range(n):
        for i in range(k + 1, n):
            factor = m[i][k] / m[k][k]
            m[i] = [*m[i][: k + 1], *[m[i][j] - factor * m[k][j] for j in range(k + 1, n)]]
            right[i] = right[i] - factor * right[k]
    x = [0.0] * n
    for i in reversed(range(n)):
        rest = right[i]
        for j in range(i + 1, n):
            rest = rest - m[i][j] * x[j]
        x[i] = rest / m[i][i]
    return sum(v * v for v in x), wrt


PROGRAMS = [by_columns, by_rows, elimination, solution, two_factors, orthogonal, substitution]
OPTIONS = [{"backend": "llvm"}, {"backend": "interpreter"}, {"dtype": "float32"}, {"strict": True}]


def with_all_links(found, graph):
    """All chains of differences as sums."""
    return lifting._Lifter(graph, links=set(links_of_differences(graph)))


@pytest.fixture(params=[False, True], ids=["as chosen", "always"])
def differences(request, monkeypatch):
    """Chains of differences as sums where that is much faster, and wherever there are any."""
    if request.param:
        monkeypatch.setattr(lifting, "_with_differences", with_all_links)


@pytest.mark.usefixtures("differences")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_they_are_what_eager_code_computes(program, options):
    for size in SIZES:
        loss, leaves = program(size)
        loss.backward()
        value, gradient = compile(loss, leaves, **options).value_and_grad()
        close = 1e-4 if options.get("dtype") else 1e-11
        assert value == pytest.approx(loss.data, rel=close, abs=close)
        expected = np.array([leaf.grad for leaf in leaves])
        np.testing.assert_allclose(gradient, expected, rtol=close, atol=close * max(1.0, np.abs(expected).max()))


@pytest.mark.usefixtures("differences")
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_stage_is_well_formed(program):
    for size in SIZES:
        graph = graph_of(*program(size))
        lifting._Lifter(graph).families.verify()
        differentiate(lift(graph).verify()).verify()


def test_batches_of_systems_are_solved():
    def logarithm(rows):
        a = [list(row) for row in rows]
        n = len(a)
        for k in range(n):
            for i in range(k + 1, n):
                factor = a[i][k] / a[k][k]
                for j in range(k + 1, n):
                    a[i][j] = a[i][j] - factor * a[k][j]
        return sum(ops.log(ops.abs_(a[k][k])) for k in range(n))

    matrices = np.random.default_rng(0).uniform(-1, 1, (6, 9, 9)) + 6 * np.eye(9)
    found = compile(logarithm).batch(matrices.tolist(), reduce=None)
    np.testing.assert_allclose(found, np.linalg.slogdet(matrices)[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("program", "per_step"), [(by_columns, 14), (by_rows, 12), (elimination, 15), (solution, 26), (two_factors, 14)]
)
def test_their_length_grows_by_as_much_for_each_column(program, per_step, monkeypatch):
    """It grew by the square of the size where sums have a term for each column."""
    monkeypatch.setattr(lifting, "MUCH_FASTER", math.inf)

    def statements(size):
        return len(differentiate(lift(graph_of(*program(size)))).statements)

    few, more, most = map(statements, (20, 30, 40))
    assert most - more == more - few == 10 * per_step


def test_differences_that_wait_for_each_other_are_sums_and_those_that_are_alike_are_not():
    few, more, most = (lift(graph_of(*substitution(size))) for size in (20, 30, 40))
    lengths = [len(differentiate(found).statements) for found in (few, more, most)]
    assert lengths[2] - lengths[1] == lengths[1] - lengths[0] == 10 * 20
    assert max(len(statement.terms) for statement in few.statements) <= 3


def test_columns_are_rows_of_one_array():
    shown = str(lift(graph_of(*by_columns(5)))).splitlines()
    assert [line for line in shown if "Σ" in line] == [
        "i<3: v7[i] = 0 + Σj<2 v3[1+i+3j]·v3[1+3j]",
        "i<2: v10[i] = 0 + Σj<3 v3[2+i+3j]·v3[2+3j]",
        "v13[0] = 0 + Σi<4 v3[3+3i]·v3[3+3i]",
        "v17[0] = 0 + Σi<5 2·v16[i]",
    ]


def test_a_row_and_a_column_are_two_parts_of_one_sum(monkeypatch):
    monkeypatch.setattr(lifting, "_with_differences", with_all_links)
    shown = str(lift(graph_of(*elimination(7)))).splitlines()
    assert [line for line in shown if "j<2" in line] == [
        "i<5: v0[33+i] = v0[71+i] - Σj<2 v1[1+5j]·v0[57+i-12j]",
        "i<4: v0[38+i] = v0[78+7i] - Σj<2 v1[2+i+5j]·v0[57-12j]",
    ]


def families_of(program, size):
    graph = graph_of(*program(size))
    classes = classify(graph, set(links_of_differences(graph)))
    return Families(classes, np.array([isinstance(kind, ops.Op) or kind == "sum" for kind in classes.kinds]))


@pytest.mark.parametrize("move", [-1, 1])
def test_rows_that_overlap_are_noticed(move):
    found = families_of(by_columns, 6).verify()
    index = next(index for index, row in found.rows.items() if row.offset)
    first, offset, size = found.rows[index]
    found.rows[index] = Row(first, offset - size if move < 0 else 0, size)
    with pytest.raises(AssertionError, match="rows overlap, or leave the array"):
        found.verify()


def test_a_product_that_is_used_twice_is_noticed():
    found = families_of(by_columns, 6)
    found.products.add(next(k for k, kind in enumerate(found.classes.kinds) if kind is ops.div))
    with pytest.raises(AssertionError, match="are not used once, in sums"):
        found.verify()


def test_a_row_in_the_wrong_place_is_noticed(monkeypatch):
    right = passes.placed

    def one_off(sizes, positions):
        offsets, total = right(sizes, positions)
        return np.where(np.arange(len(offsets)) == 1, offsets - 1, offsets), total

    monkeypatch.setattr(passes, "placed", one_off)
    with pytest.raises(AssertionError, match="rows overlap"):
        families_of(two_factors, 6).verify()


def test_parts_that_are_not_regular_cost_tables_and_are_right(monkeypatch):
    right = passes.regular_parts

    def later(positions):
        parts = right(positions)
        middle, end = parts[0][1] + 1, len(positions)
        return [(0, middle), (middle, end)] if len(parts) == 2 and middle < end else parts

    monkeypatch.setattr(lifting, "_with_differences", with_all_links)
    loss, leaves = elimination(6)
    loss.backward()
    right_numbers = np.array([leaf.grad for leaf in leaves])
    regular = compile(loss, leaves)
    np.testing.assert_allclose(regular.value_and_grad()[1], right_numbers)
    monkeypatch.setattr(passes, "regular_parts", later)
    program = compile(loss, leaves)
    np.testing.assert_allclose(program.value_and_grad()[1], right_numbers)
    assert program.stats["not affine"] > regular.stats["not affine"] == 0
