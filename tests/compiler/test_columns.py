"""Inputs that compiled code reads where the caller has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import chainrule
from chainrule import Value
from chainrule.compiler import pipeline
from chainrule.compiler.backends.llvm.columns import Lent, Place, Wires
from chainrule.compiler.backends.llvm.native import _bring
from chainrule.compiler.backends.protocol import Columns, Wiring
from chainrule.compiler.run.arguments import Examples
from chainrule.compiler.run.traced import FEW
from chainrule.optim import SGD
from matrices import LAYOUTS


@pytest.mark.parametrize("own", ["float64", "float32"])
@pytest.mark.parametrize("given", ["float64", "float32"])
@pytest.mark.parametrize("widths", [[1], [2], [3], [4], [7], [12], [5, 1, 9]])
def test_that_fill_turns_examples_round(own: str, given: str, widths: list[int]) -> None:
    rng = np.random.default_rng(sum(widths))
    for examples, runs in ((1, 3), (7, 2), (8, 2), (13, 4), (64, 1)):
        first, room = 2, -(-examples // 8) * 8
        matrices = [(1e3 * rng.normal(size=(first + examples * runs, w))).astype(given) for w in widths]
        used = np.flatnonzero(rng.random(sum(widths)) < 0.8) if sum(widths) > 4 else np.arange(sum(widths))
        firsts = range(first, first + examples * runs, examples)
        columns, every = Columns(matrices, Wiring(widths, used), firsts, room), np.arange(len(used))
        lent = [Lent.of(matrix) for matrix in matrices]
        words = Wires(columns.wiring, every).words(columns, lent, [], np.dtype(own))
        whole = np.hstack(matrices)[:, used].astype(own)
        for run in range(runs):
            found = np.full((len(used) + 1) * room, np.nan, dtype=own)  # the last ones must not be touched
            _bring(own, given).entry(found.ctypes.data, words.address, run)
            numbers = found.reshape(-1, room)
            start = first + run * examples
            np.testing.assert_array_equal(numbers[:-1, :examples], whole[start : start + examples].T)
            assert (numbers[:-1, examples:] == 0.0).all()
            assert np.isnan(numbers[-1]).all()


def test_that_a_number_too_large_for_a_float_becomes_infinite() -> None:
    w = Value(1.0)
    f = chainrule.compile(lambda x: w * x, wrt=[w], dtype="float32")
    x = np.full(20_000, 1e300)
    assert f.batch(x, reduce=None).tolist() == [np.inf] * len(x)


def network(w: list[Value]) -> Any:
    def loss(x: Any, y: Any) -> Any:
        total = w[0]
        for k, number in enumerate(x):
            total = total + w[k + 1] * number if k != 1 else total  # one of them is not used
        return (total.tanh() - y) ** 2

    return loss


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtypes", [("float64", "float64"), ("float32", "float32"), ("float32", "float64")])
def test_batches_against_rows(monkeypatch: pytest.MonkeyPatch, layout: str, dtypes: tuple[str, str]) -> None:
    rng = np.random.default_rng(7)
    x, y = rng.integers(-3, 4, size=(9_001, 6)).astype(dtypes[0]), rng.normal(size=9_001).astype(dtypes[0])
    x = x.astype(np.int64) if layout == "integers" else LAYOUTS[layout](x)
    w = [Value(v) for v in rng.normal(size=7).tolist()]
    read = []
    inputs = Examples.inputs

    def noted(self: Examples, *given: Any) -> Any:
        found = inputs(self, *given)
        read.append(type(found))
        return found

    def results() -> tuple[Any, ...]:
        f = chainrule.compile(network(w), wrt=w, dtype=dtypes[1])
        value, gradient = f.batch_value_and_grad(x, y, threads=1)
        two, again = f.batch_value_and_grad(x, y, threads=2)
        assert (value, gradient.tolist()) == (two, again.tolist())
        for parameter, number in zip(w, np.linspace(-1.0, 1.0, 7), strict=True):
            parameter.data = number
        losses = f.train(SGD(w, lr=0.01), x[:1_000], y[:1_000], batch_size=64)
        after = [p.data for p in w]
        return value, gradient, f.batch(x, y, reduce=None), losses, after

    monkeypatch.setattr(pipeline, "with_rows", lambda program, wiring: program)  # which test_in_place.py is about
    monkeypatch.setattr(Examples, "inputs", noted)
    start = [p.data for p in w]
    found = results()
    is_one_type = dtypes[0] == "float64" or layout not in ("bytes swapped", "integers")  # which become doubles
    assert (Columns in read) == (is_one_type and layout not in ("columns", "every second column"))
    for parameter, number in zip(w, start, strict=True):
        parameter.data = number
    monkeypatch.setattr(Examples, "inputs", Examples.rows)
    expected = results()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_runs_are_longer_where_there_are_more_parameters_to_read() -> None:
    """With as many numbers for each example; but a run of few examples would not fill the registers."""

    def examples_of_a_run(parameters: int, numbers: int) -> int:
        w = [Value(0.1) for _ in range(parameters)]
        program = chainrule.compile(lambda x: sum(w) + sum(chainrule.tanh(w[0] * x + k) for k in range(numbers)), wrt=w)
        program.batch([0.1] * 200)
        ((paths,),) = [program._traces.by_structure.values()]
        return int(paths.only.most_examples)

    assert FEW < examples_of_a_run(2, 10) < 0.7 * examples_of_a_run(300, 10)
    assert examples_of_a_run(2, 60) == FEW
    assert 16 <= examples_of_a_run(2, 900) < FEW, "the cache is full"


def test_a_batch_of_floats_against_eager_code() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(5_000, 3)).astype(np.float32), rng.normal(size=5_000).astype(np.float32)
    w = [Value(v) for v in rng.normal(size=4).tolist()]
    f = chainrule.compile(network(w), wrt=w)
    value, gradient = f.batch_value_and_grad(x, y)
    losses = [network(w)(row, target) for row, target in zip(x.tolist(), y.tolist(), strict=True)]
    total = sum(losses[1:], losses[0]) / len(losses)
    total.backward()
    assert value == pytest.approx(total.data, rel=1e-12)
    np.testing.assert_allclose(gradient, [p.grad for p in w], rtol=1e-11)


def test_a_branching_function_on_floats() -> None:
    w = Value(0.1)
    f = chainrule.compile(lambda x: w * x if x > w else x * x, wrt=[w])
    x = np.random.default_rng(1).normal(size=3_000).astype(np.float32)
    expected = [0.1 * v if v > 0.1 else v * v for v in x.astype(np.float64).tolist()]
    np.testing.assert_allclose(f.batch(x, reduce=None), expected, rtol=1e-15)


def test_neighbours() -> None:
    wiring = Wiring([4, 3], np.array([0, 1, 2, 3, 4, 6]))

    def found(numbers: list[int]) -> dict[int, list[int]]:
        return {width: first.tolist() for width, first in wiring.neighbours(np.array(numbers, dtype=int)).items()}

    assert found([0, 1, 2, 3, 4, 5]) == {4: [0], 2: [], 1: [4, 5]}
    assert found([1, 2, 4]) == {4: [], 2: [1], 1: [4]}
    assert found([]) == {4: [], 2: [], 1: []}


@pytest.mark.parametrize("own", ["float64", "float32"])
@pytest.mark.parametrize("given", ["float64", "float32"])
@pytest.mark.parametrize("width", [1, 7, 8, 21])
@pytest.mark.parametrize("layout", ["rows", "backward", "some columns of a wider matrix", "not aligned"])
def test_that_rows_are_lent_or_copied(own: str, given: str, width: int, layout: str) -> None:
    examples, runs = 5, 4
    matrix = LAYOUTS[layout](np.arange(examples * runs * width).reshape(-1, width).astype(given))
    columns = Columns([matrix], Wiring([width], np.arange(width)), range(0, examples * runs, examples), 8)
    lent, wires = Lent.of(matrix), Wires(Wiring([width], np.arange(width)), np.arange(0))
    for reach in (0, 2**20):  # if vectors reached so far, no run could be lent
        slot, room = np.zeros(1, dtype=np.int64), np.full(examples * width + 1, np.nan, dtype=own)
        place = Place(slot.ctypes.data, room.ctypes.data, 0, reach)
        words = wires.words(columns, [lent], [place], np.dtype(own))
        for run in range(runs):
            _bring(own, given).entry(0, words.address, run)
            start = slot.item() - (matrix.ctypes.data + run * examples * matrix.strides[0])
            is_lent = slot.item() != room.ctypes.data
            assert not is_lent or (start == 0 and own == given and layout == "rows" and not reach)
            assert is_lent or reach or own != given or layout != "rows"
            if not is_lent:
                np.testing.assert_array_equal(
                    room[:-1].reshape(-1, width), matrix[run * examples : (run + 1) * examples].astype(own)
                )
                assert np.isnan(room[-1])


def test_how_many_runs_are_lent_before_the_end_of_a_page() -> None:
    raw = np.zeros(2 * 4096, dtype=np.uint8)
    start = -raw.ctypes.data % 4096
    matrix = raw[start : start + 4096].view(np.float64).reshape(64, 8)  # which ends where the page does
    wires = Wires(Wiring([8], np.arange(8)), np.arange(0))
    for firsts, reach, lent in ((range(0, 64, 4), 0, 16), (range(0, 64, 4), 256, 15), (range(0, 64, 2), 256, 30)):
        columns = Columns([matrix], Wiring([8], np.arange(8)), firsts, 8)
        words = wires.words(columns, [Lent.of(matrix)], [Place(0, 0, 0, reach)], np.dtype("float64"))
        assert words.words[5] == lent
