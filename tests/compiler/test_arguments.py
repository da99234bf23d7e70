"""Arguments of compiled functions: numbers in any structure, by name or not, and what is not a number."""

import random
from collections import Counter, OrderedDict, deque, namedtuple

import numpy as np
import pytest

import chainrule
from chainrule import Value, losses, ops
from chainrule.compiler import compile
from chainrule.compiler.run import calls
from chainrule.compiler.run.arguments import Traces
from chainrule.core.bulk import fill
from chainrule.core.structure import Static, flatten
from chainrule.core.value import ENGINE

Point = namedtuple("Point", "x y")


def thing(rng, depth):
    """Numbers in a random structure."""
    kind = rng.randrange(8) if depth else rng.randrange(2)
    if kind < 2:
        return rng.choice([rng.random(), rng.randrange(9)])
    entries = [thing(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 2:
        return Point(thing(rng, depth - 1), entries)
    if kind == 3:
        return dict(zip("abc", entries, strict=False))
    if kind == 4:
        return OrderedDict(zip("abc", entries, strict=False))
    if kind == 5:
        return np.random.default_rng(rng.randrange(99)).random([rng.randrange(3) for _ in range(rng.randrange(1, 4))])
    return entries if kind == 6 else tuple(entries)


def test_numbers_are_filled_in_as_they_are_flattened():
    rng, before, filled = random.Random(5), None, 0
    for _ in range(3000):
        given, numbers = thing(rng, 4), []
        structure = flatten(given, numbers, float)
        room = np.full(len(numbers), np.nan)
        if fill(structure, given, room, np.ndarray, Static):
            filled += 1
            assert room.tolist() == numbers
        if before is not None and fill(structure, before, np.empty(len(numbers)), np.ndarray, Static):
            assert flatten(before, [], float) == structure
        before = given
    assert filled > 2000 or ENGINE != "native"


@pytest.mark.parametrize(
    "other",
    [
        [[1.0, 2.0], {"a": 3.0}, np.array([4.0]), None],
        [(1.0, 2.0), {"a": 3.0}, np.array([4.0]), "tanh"],
        [[1.0, 2.0], {"b": 3.0}, np.array([4.0]), "tanh"],
        [[1.0, 2.0], OrderedDict(a=3.0), np.array([4.0]), "tanh"],
        [[1.0, 2.0], {"a": 3.0}, np.array([[4.0]]), "tanh"],
        [[1.0, 2.0], {"a": 3.0}, np.array([4.0], dtype=np.float16), "tanh"],
        [[1.0, 2.0], {"a": 3.0}, [4.0], "tanh"],
        [[1.0, 2.0], {"a": 3.0}, memoryview(b"12345678"), "tanh"],
        [[1.0, 10**400], {"a": 3.0}, np.array([4.0]), "tanh"],
        [[1.0, 2.0 + 0j], {"a": 3.0}, np.array([4.0]), "tanh"],
        [[1.0, np.complex128(2.0)], {"a": 3.0}, np.array([4.0]), "tanh"],
        [[1.0, np.array(2.0)], {"a": 3.0}, np.array([4.0]), "tanh"],
        [[1.0], {"a": 3.0}, np.array([4.0]), "tanh"],
        [[1.0, 2.0, 3.0], {"a": 3.0}, np.array([4.0]), "tanh"],
    ],
)
def test_what_is_arranged_otherwise_is_not_filled_in(other):
    parts = [flatten(part, [], float) for part in ([1.0, 2.0], {"a": 3.0}, np.array([4.0]))]
    structure = (list, (*parts, (Static("tanh"), ())))
    assert fill(structure, [[1.0, 2], {"a": 3.0}, np.array([4.0]), "tanh"], np.empty(4), np.ndarray, Static) == (
        ENGINE == "native"
    )
    assert not fill(structure, other, np.empty(4), np.ndarray, Static)


@pytest.mark.skipif(ENGINE != "native", reason="it is the native engine that fills them in")
@pytest.mark.parametrize(
    "kind", [int, bool, np.float64, np.float32, np.float16, np.int64, np.int8, np.uint16, np.bool_]
)
def test_numbers_of_all_kinds_are_filled_in(kind):
    """So that a call with a list of NumPy's numbers is as quick as one with Python's."""
    structure, found = flatten([1.0, 1.0], [], float), np.zeros(2)
    assert fill(structure, [0.5, kind(1)], found, np.ndarray, Static)
    assert found.tolist() == [0.5, 1.0]


ROWS = np.arange(24.0).reshape(4, 6)


@pytest.mark.skipif(ENGINE != "native", reason="it is the native engine that fills them in")
@pytest.mark.parametrize(
    "array",
    [
        ROWS.T, ROWS[::-1], ROWS[:, ::-2], ROWS[1:3, 2:5], np.asfortranarray(ROWS), ROWS[:, 3], ROWS.reshape(2, 3, 4).T,
        np.broadcast_to(ROWS[0], (3, 6)), ROWS[:0], np.frombuffer(bytes(24)), ROWS > 7.0,
        *[ROWS.astype(kind) for kind in (np.float32, np.int32, np.int64, np.uint8)], ROWS.astype(np.float32)[::2, ::3],
        (ROWS - 12.0).astype(np.int64).T,
    ],
)  # fmt: skip
def test_arrays_are_filled_in_however_they_lie_in_memory(array):
    """So that a call with a slice, or with float32, is about as quick as one with the whole, in doubles."""
    numbers = []
    structure = flatten([array, 0.5], numbers, float)
    found = np.full(len(numbers), np.nan)
    assert fill(structure, [array, 0.5], found, np.ndarray, Static)
    assert found.tolist() == numbers


def test_a_bool_by_itself_is_not_taken_for_a_number():
    f = compile(lambda x, flag: x if flag is True else -x)
    assert [f(1.0, 1.0), f(1.0, True), f(1.0, 2.0), f(1.0, False), f(1.0, True)] == [-1.0, 1.0, -1.0, -1.0, 1.0]


def test_every_call_gets_its_own_numbers():
    f = compile(lambda xs, w: sum(x * x for x in xs["a"]) * w[0] - w[1])
    rng = np.random.default_rng(1)
    for n in (3, 3, 5, 3, 5, 3):
        xs, w = rng.normal(size=n).tolist(), rng.normal(size=2)
        assert f({"a": xs}, w) == pytest.approx(sum(x * x for x in xs) * w[0] - w[1], rel=1e-12)
    with pytest.raises(TypeError, match="`argument 0` must be a real number, got a Value"):
        f({"a": [Value(1.0)] * 3}, [1.0, 2.0])
    with pytest.raises(TypeError, match="got str 'call' inside it: give a string or None as an argument by itself"):
        f({"a": [1.0] * 3}, [1.0, "call"])
    with pytest.raises(OverflowError):
        f({"a": [10**400] * 3}, [1.0, 2.0])


@pytest.mark.parametrize("given", [{1.0}, range(3), deque([1.0]), Counter("a"), b"a"])
def test_containers_of_other_kinds_are_refused_with_what_to_do(given):
    with pytest.raises(TypeError, match=f"got a {type(given).__name__}: numbers may be .* so convert it, as with list"):
        compile(lambda xs: xs)(given)


def test_strings_none_and_a_bool_choose_the_program():
    w = Value(2.0)

    @compile
    def layer(xs, activation="tanh", bias=None, *, twice=False):
        assert bias is None or isinstance(bias, ops.Carrier)
        total = sum(w * x for x in xs)
        total = total if bias is None else total + bias
        total = total if activation is None else getattr(chainrule, activation)(total)
        return 2.0 * total if twice else total

    assert layer([1.0, 2.0], None) == 6.0
    assert layer([1.0, 2.0], None, 0.5) == 6.5
    assert layer([1.0, 2.0], None, bias=1.5) == 7.5
    assert layer([1.0, 2.0], twice=True, activation="relu") == 12.0
    assert layer([1.0, -2.0], activation="relu", twice=False) == 0.0
    value, gradient = layer.value_and_grad([1.0, 2.0], None, twice=True)
    assert (value, gradient.tolist()) == (12.0, [6.0])
    assert layer.value_and_grad([1.0, 2.0], None, twice=True, argnums=0) == (12.0, [4.0, 4.0])
    assert compile(lambda x: layer([x, x], "relu", twice=True))(1.5) == 12.0  # in another trace
    assert "twice" in str(layer._traces.by_structure)


def test_bools_among_numbers_are_numbers():
    f = compile(lambda flags, x: sum(x * flag for flag in flags))
    assert (f([True, False, True], 3.0), f([False, False, True], 3.0)) == (6.0, 3.0)
    assert len(f._traces.by_structure) == 1


@pytest.mark.parametrize("rows", [[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2], [3, 4.0]], [[True, 2.0], [3.0, 4.0]]])
def test_a_batch_of_lists_is_the_same_however_its_numbers_are_written(rows):
    f = compile(lambda row, y: row[0] * row[1] + y)
    assert f.batch(rows, [0.5, 1.5], reduce=None).tolist() == [2.5, 13.5]
    assert f.batch(rows, [0, 1.5], reduce=None).tolist() == [2.0, 13.5]
    assert len(f._traces.by_structure) == 1


class TestCallsAgain:
    """Calls whose arguments are like those of an earlier call take a short way."""

    @pytest.mark.skipif(ENGINE != "native", reason="the engine in Python has no count of changes")
    def test_that_they_do(self, monkeypatch):
        w = Value(3.0)
        program = chainrule.compile(lambda x, k=2.0: w * x[0] * k + x[1], wrt=[w])
        expected = program.value_and_grad([1.0, 2.0])
        monkeypatch.setattr(program._traces, "on_numbers", None)
        assert program.value_and_grad([1.0, 2.0])[0] == expected[0] == 8.0
        assert program.value_and_grad([4.0, np.float64(2.0)])[0] == 26.0
        assert program([1.0, 1.0]) == 7.0
        assert w.grad == 2.0

    def test_that_they_see_new_numbers_and_other_structures(self):
        w = Value(3.0)
        program = chainrule.compile(lambda x: w * sum(x), wrt=[w])
        for turn in range(3):
            w.data = float(turn)
            for x in ([1.0], [1.0, 2.0], (1.0, 2.0), np.array([1.0, 2.0, 3.0]), [True, 2]):
                value, gradient = program.value_and_grad(x)
                assert (value, gradient.tolist()) == (turn * float(sum(x)), [float(sum(x))])

    def test_that_results_are_copies(self):
        w = [Value(1.0), Value(2.0)]
        program = chainrule.compile(lambda x: w[0] * x + w[1] * x * x, wrt=w)
        found = [program.value_and_grad(float(k)) for k in range(4)]
        assert [gradient.tolist() for _, gradient in found] == [[float(k), float(k * k)] for k in range(4)]

    def test_that_frozen_values_are_noticed(self):
        w = [Value(1.0), Value(2.0)]
        program = chainrule.compile(lambda x: w[0] * x + w[1] * x * x, wrt=w)
        assert [program.value_and_grad(3.0)[1].tolist() for _ in range(2)] == [[3.0, 9.0]] * 2
        w[0].requires_grad = False
        assert [program.value_and_grad(3.0)[1].tolist() for _ in range(2)] == [[0.0, 9.0]] * 2
        w[0].requires_grad = True
        assert [program.value_and_grad(3.0)[1].tolist() for _ in range(2)] == [[3.0, 9.0]] * 2

    @pytest.mark.parametrize(("where", "name"), [(Traces, "_begin"), (calls, "value_and_grad")])
    def test_that_a_call_does_not_bring_back_what_another_has_put_aside(self, monkeypatch, where, name):
        w = [Value(1.0), Value(2.0)]
        w[0].requires_grad = False
        program, right = chainrule.compile(lambda x: w[0] * x + w[1] * x * x), getattr(where, name)

        def interrupted(*given):
            monkeypatch.undo()
            found = right(*given)
            w[0].requires_grad = True
            program.value_and_grad(3.0)  # as another thread might call it at this moment
            return found

        monkeypatch.setattr(where, name, interrupted)
        assert program.value_and_grad(3.0)[1].tolist() == [9.0]
        assert program.value_and_grad(3.0)[1].tolist() == [3.0, 9.0]

    def test_that_what_is_traced_or_refused_still_is(self):
        inner = chainrule.compile(lambda x: x * x)
        assert [inner(3.0), inner(3.0)] == [9.0, 9.0]
        outer = chainrule.compile(lambda x: inner(x) + 1.0)
        assert [outer(3.0), outer(4.0)] == [10.0, 17.0]
        with pytest.raises(TypeError, match="argument 0"):
            inner(["3"])
        with pytest.raises(TypeError, match="a Value"):
            inner(Value(3.0))
        assert inner(5.0) == 25.0

    def test_that_describe_is_of_the_last_call(self):
        program = chainrule.compile(lambda x: sum(v * v for v in x))
        for x in ([1.0], [1.0, 2.0, 3.0], [1.0], [1.0, 2.0, 3.0]):
            program(x)
            assert f"Σi<{len(x)}" in program.describe() or len(x) == 1

    def test_that_class_indices_are_checked_at_each_call(self):
        program = chainrule.compile(lambda x, k: losses.cross_entropy([[x, 2.0 * x, 0.0 * x]], [k]))
        assert program(1.0, 1) == program(1.0, 1)
        with pytest.raises(ValueError, match="class index"):
            program(1.0, 7)
