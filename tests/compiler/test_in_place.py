"""Inputs that programs read in rows, as the caller has them; sums in parts. Batches against eager code and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import chainrule
from chainrule import Value
from chainrule.compiler.backends.llvm import Native
from chainrule.compiler.backends.llvm.in_place import in_place
from chainrule.compiler.backends.llvm.long_sums import with_shorter_sums
from chainrule.compiler.backends.llvm.target import CACHE, Target
from chainrule.compiler.backends.protocol import Wiring
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Repeat, Statement, Term
from chainrule.compiler.run.arguments import Examples
from matrices import LAYOUTS

AVX2 = Target.of("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma")
MANY, FEW, UNITS = 130, 3, 4  # numbers of an example that are read in rows, and that are turned round


def network(w: list[Value]) -> Any:
    """A layer on many numbers, and products with few others."""
    layer = [w[k * MANY : (k + 1) * MANY] for k in range(UNITS)]

    def loss(x: Any, y: Any) -> Any:
        hidden = [sum((a * b for a, b in zip(row, x, strict=True)), w[-1]).tanh() for row in layer]
        return sum((h * t for h, t in zip(hidden[:FEW], y, strict=True)), hidden[-1]) ** 2

    return loss


def weights() -> list[Value]:
    return [Value(v) for v in np.random.default_rng(5).normal(0.0, 0.1, UNITS * MANY + 1).tolist()]


def by_numpy(w: list[Value], x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """The mean and its gradient."""
    numbers = np.array([value.data for value in w])
    layer = numbers[:-1].reshape(UNITS, MANY)
    hidden = np.tanh(x @ layer.T + numbers[-1])
    total = (hidden[:, :FEW] * y).sum(axis=1) + hidden[:, -1]
    by_total = 2.0 * total[:, None] / len(x)
    by_hidden = np.hstack([by_total * y, by_total]) * (1.0 - hidden**2)
    return float((total**2).mean()), np.append(by_hidden.T @ x, by_hidden.sum())


def rows_of(function: Any) -> list[str]:
    return [kind for kind in function._last_run[1].laid_out.leaves if kind.startswith("rows")]


@pytest.mark.parametrize("count", [1, 7, 64, 100, 333, 2_000])
@pytest.mark.parametrize("dtypes", [("float64", "float64"), ("float32", "float64"), ("float32", "float32")])
def test_batches_of_any_size_and_type(count: int, dtypes: tuple[str, str]) -> None:
    rng, w = np.random.default_rng(count), weights()
    x, y = rng.normal(size=(count, MANY)).astype(dtypes[0]), rng.normal(size=(count, FEW)).astype(dtypes[0])
    f = chainrule.compile(network(w), wrt=w, dtype=dtypes[1])
    value, gradient = f.batch_value_and_grad(x, y, threads=1)
    assert rows_of(f) == (["rows0"] if count > 1 else rows_of(f))
    two, again = f.batch_value_and_grad(x, y, threads=2)
    assert (value, gradient.tolist()) == (two, again.tolist())
    expected = by_numpy(w, x.astype(np.float64), y.astype(np.float64))
    tolerance = 1e-12 if dtypes[1] == "float64" else 1e-5
    assert value == pytest.approx(expected[0], rel=tolerance)
    np.testing.assert_allclose(gradient, expected[1], rtol=0.0, atol=tolerance * np.abs(expected[1]).max())
    total, by_sum = f.batch_value_and_grad(x, y, reduce="sum")
    assert total / count == pytest.approx(value, rel=tolerance)
    np.testing.assert_allclose(by_sum / count, gradient, rtol=0.0, atol=tolerance * np.abs(gradient).max())
    each = f.batch(x, y, reduce=None)
    assert each.shape == (count,)
    assert each.mean() == pytest.approx(value, rel=tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [50, 900])
def test_matrices_that_lie_in_any_way(layout: str, count: int) -> None:
    rng, w = np.random.default_rng(3), weights()
    x, y = rng.integers(-3, 4, size=(count, MANY)).astype(np.float64), rng.normal(size=(count, FEW))
    f = chainrule.compile(network(w), wrt=w)
    expected = f.batch_value_and_grad(x, y)
    given = x.astype(np.int64) if layout == "integers" else LAYOUTS[layout](x)
    value, gradient = f.batch_value_and_grad(given, y)
    assert (value, gradient.tolist()) == (expected[0], expected[1].tolist())
    mixed = f.batch_value_and_grad(given.astype(np.float32), y)  # of two types
    assert (mixed[0], mixed[1].tolist()) == (value, gradient.tolist())
    lists = f.batch_value_and_grad(x.tolist(), y.tolist())
    assert (lists[0], lists[1].tolist()) == (value, gradient.tolist())


def test_against_eager_code() -> None:
    rng, w = np.random.default_rng(4), weights()
    x, y = rng.normal(size=(20, MANY)), rng.normal(size=(20, FEW))
    f = chainrule.compile(network(w), wrt=w)
    value, gradient = f.batch_value_and_grad(x, y)
    assert rows_of(f) == ["rows0"]
    losses = [network(w)(row, target) for row, target in zip(x.tolist(), y.tolist(), strict=True)]
    mean = sum(losses[1:], losses[0]) / len(losses)
    mean.backward()
    assert value == pytest.approx(mean.data, rel=1e-12)
    np.testing.assert_allclose(gradient, [p.grad for p in w], rtol=1e-10, atol=1e-13)


def test_that_a_part_of_an_argument_is_turned_round() -> None:
    """Where the few numbers come in the same rows as the many."""
    rng, w = np.random.default_rng(4), weights()
    both = rng.normal(size=(200, MANY + FEW))
    f = chainrule.compile(lambda row: network(w)(row[:MANY], row[MANY:]), wrt=w)
    value, gradient = f.batch_value_and_grad(both)
    text = str(f._last_run[1].laid_out)
    assert "·rows0[" in text
    assert "·input[" in text
    expected = by_numpy(w, both[:, :MANY], both[:, MANY:])
    assert value == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=0.0, atol=1e-12 * np.abs(expected[1]).max())


def test_that_few_numbers_are_turned_round() -> None:
    w = [Value(v) for v in (0.5, -0.25, 0.125)]
    f = chainrule.compile(lambda x: (w[0] * x[0] + w[1] * x[1] + w[2]).tanh(), wrt=w)
    f.batch(np.ones((300, 2)))
    assert rows_of(f) == []


def test_that_numbers_which_are_not_used_stay_where_they_are() -> None:
    """Some are left out, and the rows are read in two pieces."""
    rng, w = np.random.default_rng(6), weights()[: 2 * MANY]

    def loss(x: Any) -> Any:
        first = sum(a * b for a, b in zip(w[:MANY], x[:MANY], strict=True))
        second = sum(a * b for a, b in zip(w[MANY:], x[MANY + 10 : 2 * MANY + 10], strict=True))
        return first.tanh() * second

    f = chainrule.compile(loss, wrt=w)
    x = rng.normal(size=(90, 2 * MANY + 20))
    numbers = np.array([value.data for value in w])
    a, b = x[:, :MANY] @ numbers[:MANY], x[:, MANY + 10 : 2 * MANY + 10] @ numbers[MANY:]
    value, gradient = f.batch_value_and_grad(x)
    assert value == pytest.approx((np.tanh(a) * b).mean(), rel=1e-12)
    left, right = (1.0 - np.tanh(a) ** 2) * b / 90, np.tanh(a) / 90
    expected = np.append(left @ x[:, :MANY], right @ x[:, MANY + 10 : 2 * MANY + 10])
    np.testing.assert_allclose(gradient, expected, rtol=0.0, atol=1e-12 * np.abs(expected).max())


def test_paths_and_examples_of_two_lengths() -> None:
    rng, w = np.random.default_rng(8), weights()[:MANY]

    def loss(x: Any) -> Any:
        total = sum(a * b for a, b in zip(w[: len(x)], x, strict=True))
        return total * total if total > 0.0 else 0.0 - total

    f = chainrule.compile(loss, wrt=w)
    x = [rng.normal(size=MANY - 30 * (k % 2)).tolist() for k in range(150)]
    value, gradient = f.batch_value_and_grad(x)
    numbers, expected = np.array([value.data for value in w]), np.zeros(MANY)
    totals = [numbers[: len(row)] @ row for row in x]
    for row, total in zip(x, totals, strict=True):
        expected[: len(row)] += (2.0 * total if total > 0.0 else -1.0) * np.array(row) / len(x)
    assert value == pytest.approx(np.mean([t * t if t > 0.0 else -t for t in totals]), rel=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=0.0, atol=1e-12 * np.abs(expected).max())


def test_that_memory_is_not_kept() -> None:
    """A machine that has read rows where they were reads its own afterwards."""
    rng, w = np.random.default_rng(9), weights()
    f = chainrule.compile(network(w), wrt=w)
    f.batch_value_and_grad(rng.normal(size=(40, MANY)), rng.normal(size=(40, FEW)))
    native = f._last_run[1].first.runner
    assert isinstance(native, Native)
    for (array, slot), own in zip(native.slots.items(), native._own, strict=True):
        assert native.memory[slot : slot + 8].view(np.int64)[0] == own == native.views[array].ctypes.data


def products(examples: int, room: int, numbers: int) -> ArrayProgram:
    """The products of two vectors with examples that lie in columns."""
    p, x = Array("parameter", 2 * numbers, "parameter"), Array("input", room * numbers, "input", None, examples)
    v, loops = Array("v", 2 * room, "value", None, examples), (examples, 2)
    product = chainrule.ops.mul(Access(p, 0, (0, numbers, 1)), Access(x, 0, (1, 0, room)))
    program = ArrayProgram([Statement(Access(v, 0, (1, room)), loops, [Term(product, (numbers,))])], {}, v)
    program.leaves.update(parameter=p, input=x)
    return program


def test_what_is_read_in_rows() -> None:
    found = in_place(products(100, 104, 500), Wiring([500], np.arange(500)))
    assert str(found.verify()) == "i<100,j<2: v[i+104j] = Σk<500 parameter[500j+k]·rows0[500i+k]"
    wider = in_place(products(100, 104, 500), Wiring([10, 520], np.arange(20, 520)))
    assert str(wider.verify()) == "i<100,j<2: v[i+104j] = Σk<500 parameter[500j+k]·rows1[10+520i+k]"
    for used in (np.arange(0, 1000, 2), np.arange(500)[::-1]):  # which are not side by side
        assert str(in_place(products(100, 104, 500), Wiring([1000], used))) == str(products(100, 104, 500))
    two = in_place(products(100, 104, 500), Wiring([250, 250], np.arange(500)))
    assert str(two) == str(products(100, 104, 500))  # of two matrices
    timely = products(100, 104, 500)
    timely.steps = [Repeat(3, timely.statements)]
    assert "rows" not in str(in_place(timely, Wiring([500], np.arange(500))))


@pytest.mark.parametrize("numbers", [600, 1000, 1003])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sums_in_parts(numbers: int, dtype: str) -> None:
    examples, size = 12, np.dtype(dtype).itemsize
    x, p = Array("x", examples * numbers, "input"), Array("p", 5 * numbers, "parameter")
    v, loops = Array("v", examples * 5, "value"), (examples, 5)
    product = chainrule.ops.mul(Access(p, 0, (0, numbers, 1)), Access(x, 0, (numbers, 0, 1)))
    one = Statement(Access(v, 0, (5, 1)), loops, [Term(Access(p, 1, (0, 1))), Term(product, (numbers,), -1)])
    program = ArrayProgram([one], {"input": x, "parameter": p}, v)
    parts = with_shorter_sums(program, AVX2, size).verify().statements
    extents = [term.loops[0] for part in parts for term in part.terms if term.loops]
    assert sum(extents) == numbers
    assert (len(parts) > 1) == (7 * numbers * size > CACHE)
    assert all(7 * extent * size <= CACHE + 7 * 32 for extent in extents)
    assert [part.accumulate for part in parts] == [False, *[True] * (len(parts) - 1)]
    native = Native(program, dtype)
    rng = np.random.default_rng(1)
    for array in (x, p):
        native.views[array][:] = rng.normal(size=array.size)
    native.run()
    a, b = (native.views[array].astype(np.float64).reshape(-1, numbers) for array in (x, p))
    expected = native.views[p][1:6] - a @ b.T
    tolerance = 1e-13 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(native.views[v].reshape(examples, 5), expected, rtol=tolerance, atol=50 * tolerance)


def test_that_inputs_are_columns_where_a_machine_reads_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: as transposed rows they would be nowhere."""
    rng, w = np.random.default_rng(9), weights()
    f, x, y = chainrule.compile(network(w), wrt=w), rng.normal(size=(40, MANY)), rng.normal(size=(40, FEW))
    value, _ = f.batch_value_and_grad(x, y)
    monkeypatch.setattr(Examples, "inputs_of_one", lambda self, firsts, machine: self.rows(firsts, machine)[0])
    assert f.batch_value_and_grad(x, y)[0] != value
