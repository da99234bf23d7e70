"""Fewer tables: filters, and lookups of what is computed again and again, become loops that need none."""

import random
from itertools import pairwise

import numpy as np
import pytest
import torch

import chainrule
from chainrule import Value, ops
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.passes import distinct, regular
from chainrule.compiler.passes.align import aligned
from chainrule.compiler.passes.distinct import with_distinct_elements
from chainrule.compiler.passes.few_tables import with_few_tables
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Repeat, Statement, Term
from chainrule.compiler.passes.regular import with_regular_nests
from chainrule.compiler.trace.graph import graph_of

N = 12
FILTERS = {  # filters, channels, taps, stride, dilation, padding
    "one filter": (1, 1, 3, 1, 1, 1),
    "several": (2, 1, 3, 1, 1, 1),
    "channels": (2, 3, 3, 1, 1, 1),
    "strided": (2, 2, 3, 2, 1, 1),
    "dilated": (2, 1, 3, 1, 2, 2),
    "large": (1, 1, 5, 1, 1, 2),
    "inside": (2, 2, 3, 1, 1, 0),
}
BACKENDS = ["llvm", "interpreter"]


def numbers(shape, seed=0):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, shape)


def values(array):
    return Value(float(array)) if array.ndim == 0 else [values(part) for part in array]


def flat(nested):
    return [leaf for part in nested for leaf in flat(part)] if isinstance(nested, list) else [nested]


def gradients(leaves):
    return np.array([leaf.grad for leaf in leaves])


def filtered(weights, picture, stride=1, dilation=1, padding=1, shift=0.0):
    """What a filter finds, as people write it: the terms outside of the picture are left out."""
    n, taps = len(picture[0]), len(weights[0][0])
    reach = range(0, n + 2 * padding - dilation * (taps - 1), stride)
    found = []
    for channels in weights:
        for i in reach:
            for j in reach:
                total = 0.0
                for weight, plane in zip(channels, picture, strict=True):
                    for a in range(taps):
                        for b in range(taps):
                            y, x = i + dilation * a - padding, j + dilation * b - padding
                            if 0 <= y < n and 0 <= x < n:
                                total = total + (weight[a][b] - shift) * plane[y][x]
                found.append(total)
    return found


def example(name, shift=0.0):
    filters, channels, taps, *how = FILTERS[name]
    weights, picture = values(numbers((filters, channels, taps, taps))), values(numbers((channels, N, N), 1))
    loss = sum(x.tanh() ** 2 for x in filtered(weights, picture, *how, shift))
    return loss, flat(weights), flat(picture)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FILTERS)
def test_filters_need_no_tables(name, backend):
    filters, channels, taps, stride, dilation, padding = FILTERS[name]
    loss, weights, picture = example(name)
    program = chainrule.compile(loss, wrt=weights + picture, backend=backend)
    assert program.stats["not affine"] == 0
    result, gradient = program.value_and_grad()

    given = [
        torch.tensor(numbers(shape, k), requires_grad=True)
        for k, shape in enumerate([(filters, channels, taps, taps), (channels, N, N)])
    ]
    expected = torch.conv2d(given[1][None], given[0], None, stride, padding, dilation).tanh().square().sum()
    expected.backward()
    np.testing.assert_allclose(result, expected.item(), rtol=1e-12)
    by_torch = np.concatenate([tensor.grad.numpy().ravel() for tensor in given])
    np.testing.assert_allclose(gradient, by_torch, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_weights_that_are_computed_for_each_pixel_are_computed_once(dtype):
    loss, weights, _ = example("several", shift=0.5)
    program = chainrule.compile(loss, wrt=weights, dtype=dtype)
    assert program.stats["not affine"] == 0
    assert "i<18: v0[i] = parameter[i] - 0.5" in program.describe()
    result, gradient = program.value_and_grad()
    loss.backward()
    np.testing.assert_allclose(result, loss.data, rtol=1e-5 if dtype == "float32" else 1e-12)
    scale = np.abs(gradients(weights)).max()
    np.testing.assert_allclose(gradient, gradients(weights), atol=scale * (1e-5 if dtype == "float32" else 1e-12))


@pytest.mark.parametrize("name", FILTERS)
def test_what_is_read_in_gaps_does_not_count(name):
    """An infinite pixel is seen by its neighbours, and by no other."""
    filters, channels, taps, *how = FILTERS[name]
    weights, picture = values(numbers((filters, channels, taps, taps))), values(numbers((channels, N, N), 1))
    picture[-1][N - 1][N - 1].data = picture[0][0][0].data = np.inf
    found = filtered(weights, picture, *how)
    every = flat(weights) + flat(picture)
    loss = sum(chainrule.where(chainrule.lt(x * x, 100.0), x * x, 0.0) for x in found)
    program = chainrule.compile(loss, wrt=every)
    result, gradient = program.value_and_grad()
    loss.backward()
    np.testing.assert_allclose(result, loss.data, rtol=1e-12)
    np.testing.assert_allclose(gradient, gradients(every), rtol=1e-11, atol=1e-12)


def test_a_filter_in_one_dimension_that_looks_back():
    weights, series = values(numbers(5)), values(numbers(60, 1))
    found = [sum(weights[k] * series[t - k] for k in range(5) if t >= k) for t in range(60)]
    loss, every = sum(x.tanh() for x in found), weights + series
    program = chainrule.compile(loss, wrt=every)
    assert program.stats["not affine"] == 0
    result, gradient = program.value_and_grad()
    loss.backward()
    np.testing.assert_allclose(result, loss.data, rtol=1e-12)
    np.testing.assert_allclose(gradient, gradients(every), rtol=1e-11, atol=1e-12)


def test_a_known_filter():
    """Its numbers are the same for all pixels, and so there are as many of them as it has taps."""
    kernel, picture = [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]], values(numbers((1, N, N)))
    loss = sum(x * x for x in filtered([[kernel]], picture))
    program = chainrule.compile(loss, wrt=flat(picture))
    assert program.stats["not affine"] == 0
    constants = [a.size for a in program.code.whole.arrays() if a.kind == "constant"]
    assert constants == [9]
    result, gradient = program.value_and_grad()
    loss.backward()
    np.testing.assert_allclose(result, loss.data, rtol=1e-12)
    np.testing.assert_allclose(gradient, gradients(flat(picture)), rtol=1e-12)


def test_two_layers_of_filters_and_the_largest_of_each_four():
    weights, last, picture = values(numbers((2, 1, 3, 3))), values(numbers((1, 2, 3, 3), 1)), numbers((1, 16, 16), 2)
    rows = np.array(filtered(weights, picture.tolist()), dtype=object).reshape(2, 16, 16)
    pooled = [
        [
            [
                chainrule.maximum(
                    chainrule.maximum(p[i, j], p[i, j + 1]), chainrule.maximum(p[i + 1, j], p[i + 1, j + 1])
                )
                for j in range(0, 16, 2)
            ]
            for i in range(0, 16, 2)
        ]
        for p in rows
    ]
    loss, every = sum(x.tanh() for x in filtered(last, pooled)), flat(weights) + flat(last)
    program = chainrule.compile(loss, wrt=every)
    assert program.stats["not affine"] == 0
    result, gradient = program.value_and_grad()
    loss.backward()
    np.testing.assert_allclose(result, loss.data, rtol=1e-11)
    np.testing.assert_allclose(gradient, gradients(every), rtol=1e-10, atol=1e-12)


def test_a_batch_of_pictures():
    weights, pictures, wanted = values(numbers((2, 1, 3, 3))), numbers((20, 8, 8), 1), numbers(20, 2)

    @chainrule.compile
    def loss(picture, y):
        return (sum(x.tanh() for x in filtered(weights, [picture])) - y) ** 2

    result = loss.batch(pictures, wanted)
    by_batch = gradients(flat(weights))
    for weight in flat(weights):
        weight.grad = 0.0
    eager = (
        sum(
            (sum(x.tanh() for x in filtered(weights, [p.tolist()])) - float(y)) ** 2
            for p, y in zip(pictures, wanted, strict=True)
        )
        / 20
    )
    eager.backward()
    np.testing.assert_allclose(result, eager.data, rtol=1e-12)
    np.testing.assert_allclose(by_batch, gradients(flat(weights)), rtol=1e-11)


def lifted(loss, wrt):
    return lift(graph_of(loss, wrt))


def results(program, seed=0):
    machine = Interpreted(program, "float64")
    for k, array in enumerate(program.leaves.values()):
        machine.views[array][:] = np.random.default_rng(seed + k).normal(size=array.size)
    for array in program.arrays():
        if array.numbers is not None:
            machine.views[array][:] = array.numbers
    machine.run()
    return machine.views[program.output].copy()


SUMS = {  # of x, w and the number of terms left out
    "the last ones": lambda x, w, i: sum(x[i:]),
    "products of the last ones": lambda x, w, i: sum(a * b for a, b in zip(x[i:], w[i:], strict=True)),
    "a past that grows": lambda x, w, i: sum(x[k] * w[29 - i - k] for k in range(30 - i)),
}


@pytest.mark.parametrize("name", SUMS)
def test_parts_of_the_longest_sum_need_no_tables(name):
    x, w = values(numbers(30)), values(numbers(30, 1))
    loss = sum(SUMS[name](x, w, i).tanh() for i in (0, 1, 2, 4, 5, 7, 9, 10, 11, 13, 16, 17, 21))
    every = x + w if name != "the last ones" else x
    found = aligned(lifted(loss, every)).verify()
    ragged = next(statement for statement in found.statements if statement.terms[-1].loops)
    assert any(access.table is None for access in list(ragged.accesses())[1:])
    program = chainrule.compile(loss, wrt=every)
    if name != "a past that grows":  # by how much one access moves from row to row is in a table
        assert program.stats["not affine"] == 0
    result, gradient = program.value_and_grad()
    loss.backward()
    np.testing.assert_allclose(result, loss.data, rtol=1e-12)
    np.testing.assert_allclose(gradient, gradients(every), rtol=1e-11, atol=1e-12)


def test_rows_that_share_nothing_stay_as_they_are():
    """Triangles that are stored row by row: nothing says where in a longer row the terms of a shorter one belong."""
    x, w = values(numbers(210)), values(numbers(210, 1))
    starts = [i * (i + 1) // 2 for i in range(20)]
    loss = sum(
        sum(a * b for a, b in zip(x[s:][: i + 1], w[s:][: i + 1], strict=True)).tanh() for i, s in enumerate(starts)
    )
    program = lifted(loss, x + w)
    assert str(aligned(program)) == str(program)


@pytest.mark.parametrize("where", ["weights", "picture"])
def test_a_pixel_that_looks_elsewhere(where):
    """It keeps a table, of what it looks up."""
    weights, picture = values(numbers((3, 3))), values(numbers((N, N), 1))

    def at(i, j, a, b):
        odd = (i, j, a, b) == (5, 6, 1, 2)
        weight = weights[2][2] if odd and where == "weights" else weights[a][b]
        return weight * (picture[0][0] if odd and where == "picture" else picture[i + a - 1][j + b - 1])

    inside = [(i, j, a, b) for i in range(N) for j in range(N) for a in range(3) for b in range(3)]
    pixels = {}
    for i, j, a, b in inside:
        if 0 <= i + a - 1 < N and 0 <= j + b - 1 < N:
            pixels[i, j] = pixels.get((i, j), 0.0) + at(i, j, a, b)
    loss, every = sum(x.tanh() for x in pixels.values()), flat(weights) + flat(picture)
    program = chainrule.compile(loss, wrt=every)
    assert program.stats["not affine"]
    result, gradient = program.value_and_grad()
    loss.backward()
    np.testing.assert_allclose(result, loss.data, rtol=1e-12)
    np.testing.assert_allclose(gradient, gradients(every), rtol=1e-11, atol=1e-12)


def looked_up(table, seed=3):
    """Σ (1 - w[table[i]])·x[random], with x at random places."""
    w, x, rng = values(numbers(16)), values(numbers(50, 1)), random.Random(seed)
    return sum(((1.0 - w[k]) * x[rng.randrange(50)]).tanh() for k in table), w, x


def test_only_what_is_looked_up_at_random_keeps_its_table():
    """Each pixel is between four others, somewhere."""
    x, right, down = values(numbers(50)), values(numbers(64, 1)), values(numbers(64, 2))
    rng, loss = random.Random(1), 0.0
    for u, v in zip(down, right, strict=True):
        a, b, c, d = (x[rng.randrange(50)] for _ in range(4))
        above, below = (1.0 - v) * a + v * b, (1.0 - v) * c + v * d
        loss = loss + ((1.0 - u) * above + u * below).tanh()
    every = x + right + down
    program = lifted(loss, every)
    found = with_few_tables(program).verify()
    tables = [sum(map(regular.tables, each.statements)) for each in (program, found)]
    assert tables[0] > tables[1] == 2
    assert "i<128: v0[i] = 1 - parameter[50+i]" in str(found)
    np.testing.assert_allclose(results(found), results(program), rtol=1e-12)
    result, gradient = chainrule.compile(loss, wrt=every).value_and_grad()
    loss.backward()
    np.testing.assert_allclose(result, loss.data, rtol=1e-12)
    np.testing.assert_allclose(gradient, gradients(every), rtol=1e-11, atol=1e-12)


def test_distinct_elements_are_looked_up_if_that_takes_no_more_tables():
    rng = random.Random(1)
    loss, w, x = looked_up([rng.randrange(16) for _ in range(320)])
    program = lifted(loss, w + x)
    found = with_distinct_elements(program).verify()
    assert "i<16: v0[i] = 1 - parameter[i]" in str(found)
    np.testing.assert_allclose(results(found), results(program), rtol=1e-12)


def test_elements_that_are_read_in_order_and_often_are_left_alone():
    """Two products of 1 - w[k], each in its own order, would look up what they read as it is."""
    rng, w, x = random.Random(1), values(numbers(16)), values(numbers(320, 1))
    first = [1.0 - w[rng.randrange(16)] for _ in range(320)]
    loss = sum((a * b).tanh() for a, b in zip(first, x, strict=True)) + sum(
        (a + b).exp() for a, b in zip(first, x, strict=True)
    )
    program = lifted(loss, w + x)
    assert str(with_distinct_elements(program)) == str(program)


def test_a_careless_look_for_equal_elements_is_noticed(monkeypatch):
    rng = random.Random(1)
    loss, w, x = looked_up([rng.randrange(16) for _ in range(320)])
    program = lifted(loss, w + x)
    original = distinct._distinct
    monkeypatch.setattr(distinct, "_distinct", lambda statement: (lambda f, i: (f, i // 2 * 2))(*original(statement)))
    assert not np.allclose(results(with_distinct_elements(program)), results(program))


def test_elements_of_known_numbers_are_equal_if_the_numbers_are():
    numbers_, x, out, twice = (
        np.tile([0.5, 1.5, -0.0, 0.0], 20),
        *[Array(n, s, k) for n, s, k in (("x", 2, "captured"), ("out", 80, "value"), ("twice", 80, "value"))],
    )
    c = Array("c", 80, "constant", numbers_)
    table = np.tile([0, 1, 0, 0], 20)
    first = Statement(
        Access(out, 0, (1,)), (80,), [Term(Apply(ops.mul, (Access(c, 0, (1,)), Access(x, 0, (1,), table))))]
    )
    second = Statement(
        Access(twice, 0, (1,)), (80,), [Term(Apply(ops.mul, (Access(out, 79, (-1,)), Access(out, 0, (1,)))))]
    )
    program = ArrayProgram([first, second], {"captured": x}, twice)
    found = with_distinct_elements(program).verify()
    assert found.statements[0].loops in ((4,), (80,))
    np.testing.assert_array_equal(results(found), results(program))


def test_statements_in_time_keep_their_pace():
    grid, out = Array("grid", 400, "captured"), Array("out", 400, "value")
    table = np.array([[i, i] for i in range(0, 20, 2)]).ravel()
    body = Statement(Access(out, 0, (1,), repeat=20), (20,), [Term(Access(grid, 0, (1,), table, 20))])
    program = ArrayProgram([Repeat(20, [body])], {"captured": grid}, out)
    found = with_regular_nests(program).verify()
    assert all(statement.affine for statement in found.statements)
    np.testing.assert_array_equal(results(found), results(program))


@pytest.mark.parametrize("backend", ["llvm", "jax"])
@pytest.mark.parametrize("backwards", [False, True])
def test_parameters_that_are_not_used(backend, backwards):
    """A program has the few that its graph does not use, and so the rows of this matrix are equally far apart."""
    if backend == "jax":
        pytest.importorskip("jax")
    rows = values(numbers((5, 8)))
    loss = sum((a * b).tanh() for r, s in pairwise(rows) for a, b in zip(r[:-1], s[1:], strict=True))
    every = flat(rows)[::-1] if backwards else flat(rows)
    program = chainrule.compile(loss, wrt=every, backend=backend)
    assert "parameter[8i+j]·parameter[9+8i+j]" in program.describe()
    assert program.stats["scalar nodes"] == 38 + 1 + 3 * 28
    loss.backward()
    result, gradient = program.value_and_grad()
    np.testing.assert_allclose(result, loss.data, rtol=1e-12)
    np.testing.assert_allclose(gradient, gradients(every), rtol=1e-11)
    assert (gradient == 0.0).sum() == 2
