"""Lanes: sums of any length across lanes, for whole tiles of results, are those of NumPy."""

import numpy as np
import pytest

from chainrule import ops
from chainrule.compiler.backends.llvm import Native, nests
from chainrule.compiler.backends.llvm.fusion import groups
from chainrule.compiler.backends.llvm.lanes import (
    choose_lanes,
    choose_tile,
    in_blocks,
    in_turn,
    is_scattered,
    overlapping,
)
from chainrule.compiler.backends.llvm.module import Module
from chainrule.compiler.backends.llvm.native import host
from chainrule.compiler.backends.llvm.target import CACHE, Target
from chainrule.compiler.backends.llvm.text import DOUBLE
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Number, Statement, Term

AVX2 = Target.of("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma")
SSE2 = Target.of("x86_64-unknown-linux-gnu", "x86-64", "+sse2")
RUNNING = {"host": host(), **({"AVX2": AVX2, "SSE2": SSE2} if "+avx2," in host().features else {})}
on_processors = pytest.mark.parametrize("target", RUNNING.values(), ids=RUNNING)
ROWS, COLUMNS = 6, 9  # a tile of four by four, and what is left beside and below it
LENGTHS = (1, 2, 3, 4, 5, 7, 9, 17, 31, 33, 100)
TARGETS = {  # strides of the target, and whether the products are added to it
    "rows side by side": ((COLUMNS, 1), False),
    "columns side by side": ((1, ROWS), False),
    "apart": ((2 * COLUMNS, 2), False),
    "added to": ((COLUMNS, 1), True),
    "several turns add to one element": ((0, 1), True),
}


def products(length, strides, accumulate):
    """`c ±= Σk a[i,k]·b[j,k] - Σk a[i,k]`, as a statement, with its arrays."""
    a, b, c = Array("a", ROWS * length, "captured"), Array("b", COLUMNS * length, "captured"), Array("c", 200, "value")
    left, right = Access(a, 0, (length, 0, 1)), Access(b, 0, (0, length, 1))
    terms = [Term(left * right, (length,)), Term(left, (length,), -1)]
    return Statement(Access(c, 3, strides), (ROWS, COLUMNS), terms, accumulate), a, b, c


@on_processors
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", TARGETS)
def test_sums_across_lanes(name, dtype, target):
    rng, rounding = np.random.default_rng(0), 1e-12 if dtype == "float64" else 1e-3
    statements = [products(length, *TARGETS[name]) for length in LENGTHS]
    leaves = {f"{array.name}{k}": array for k, (_, *arrays) in enumerate(statements) for array in arrays}
    native = Native(ArrayProgram([statement for statement, *_ in statements], leaves, statements[0][-1]), dtype, target)
    native.memory[:] = np.nan  # beside the arrays too, where nobody must read
    start = {array: rng.normal(size=array.size).astype(dtype) for array in leaves.values()}
    for array, numbers in start.items():
        native.views[array][:] = numbers
    native.run()
    for statement, a, b, c in statements:
        left, right = start[a].reshape(ROWS, -1), start[b].reshape(COLUMNS, -1)
        expected, places = start[c].astype(np.float64), statement.target.positions(statement.loops)
        if not statement.accumulate:
            expected[places] = 0.0
        np.add.at(expected, places, left @ right.T - left.sum(axis=1, keepdims=True))
        np.testing.assert_allclose(native.views[c], expected, rtol=rounding, atol=rounding)


@on_processors
@pytest.mark.parametrize("operands", [1, 3, 40])  # what turns share may be more than there are registers
def test_turns_that_share_operands(operands, target):
    """`c[i,j] = Σk b[j,k]·(a0[k,i] + a1[k,i] + …)`, with lanes along i."""
    rng, length, width = np.random.default_rng(0), 5, 40
    many = [Array(f"a{n}", length * width, "captured") for n in range(operands)]
    b, c = Array("b", COLUMNS * length, "captured"), Array("c", COLUMNS * width, "value")
    total = sum((Access(a, 0, (1, 0, width)) for a in many[1:]), Access(many[0], 0, (1, 0, width)))
    term = Term(Access(b, 0, (0, length, 1)) * total, (length,))
    statement = Statement(Access(c, 0, (1, width)), (width, COLUMNS), [term])
    native = Native(ArrayProgram([statement], {array.name: array for array in (*many, b)}, c), target=target)
    numbers = {array: rng.normal(size=array.size) for array in (*many, b)}
    for array, given in numbers.items():
        native.views[array][:] = given
    native.run()
    expected = numbers[b].reshape(COLUMNS, length) @ sum(numbers[a] for a in many).reshape(length, width)
    np.testing.assert_allclose(native.views[c].reshape(COLUMNS, width), expected, rtol=1e-12, atol=1e-12)


def product_of_matrices(rows, columns, length, strides):
    """`c = a·bᵀ`, with lanes along the terms of the sums."""
    a, b = Array("a", rows * length, "captured"), Array("b", columns * length, "captured")
    c = Array("c", rows * columns, "value")
    term = Term(Access(a, 0, (length, 0, 1)) * Access(b, 0, (0, length, 1)), (length,))
    return Statement(Access(c, 0, strides), (rows, columns), [term]), a, b, c


def blocked(statement, size=8):
    """The statement in blocks, if they pay for numbers of so many bytes."""
    return in_blocks([statement], choose_tile(statement, None, AVX2), size)[0]


def test_columns_are_results_that_lie_side_by_side():
    for strides, columns in (((9, 1), 1), ((1, 6), 0), ((18, 2), 1)):
        statement, *_ = product_of_matrices(6, 9, 40, strides)
        axis, statement = choose_lanes(statement)
        assert axis is None
        assert list(choose_tile(statement, axis, AVX2)) == [columns, 1 - columns]


def test_operands_beyond_the_cache_are_read_once_for_a_block_of_turns():
    inner, outer = 784, 50
    statement, *_ = product_of_matrices(outer, inner, 100, (inner, 1))
    assert inner * 100 * 8 > CACHE
    found = blocked(statement)
    assert found.loops == (2, inner, 25)
    assert CACHE >= 25 * 100 * 8
    assert sorted(found.target.positions(found.loops).flat) == list(range(inner * outer))
    assert list(choose_tile(found, None, AVX2)) == [1, 2]


@pytest.mark.parametrize(("shape", "why"), [((50, 30, 100), "they fit"), ((53, 784, 100), "no block divides a prime")])
def test_other_sums_are_in_no_blocks(shape, why):
    statement, *_ = product_of_matrices(*shape, (shape[1], 1))
    assert blocked(statement) is statement, why


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(50, 90, 100), (48, 101, 83), (28, 784, 300), (90, 50, 100)])
@pytest.mark.parametrize("along", [0, 1])
def test_products_in_blocks(shape, along, dtype):
    rows, columns, length = shape
    statement, a, b, c = product_of_matrices(*shape, (1, rows) if along == 0 else (columns, 1))
    native = Native(ArrayProgram([statement], {"a": a, "b": b}, c), dtype)
    assert blocked(statement, 4) is not statement or shape[1] * length * 4 <= CACHE
    native.memory[:] = np.nan
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(rows, length)), rng.normal(size=(columns, length))
    native.views[a][:], native.views[b][:] = left.reshape(-1), right.reshape(-1)
    native.run()
    expected = left @ right.T if along else (left @ right.T).T
    np.testing.assert_allclose(
        native.views[c].reshape(expected.shape), expected, rtol=0, atol=1e-10 if dtype == "float64" else 1e-3
    )


@on_processors
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(1, 9, 4), (5, 3, 7), (6, 16, 16), (9, 37, 30), (27, 16, 16), (50, 90, 100)])
@pytest.mark.parametrize("along", [0, 1])
def test_statements_that_go_along_with_sums_across_lanes(shape, along, dtype, target):
    """`c = a·bᵀ`, then `e -= d / (1 + c²)` and `d = c - d`, in the tiles of the sums."""
    rows, columns, length = shape
    statement, a, b, c = product_of_matrices(*shape, (1, rows) if along == 0 else (columns, 1))
    d, e = Array("d", c.size, "captured"), Array("e", c.size, "captured")
    sums, old, total = (Access(array, 0, statement.target.strides) for array in (c, d, e))
    steps = [
        statement,
        Statement(total, statement.loops, [Term(ops.sub(total, ops.div(old, 1.0 + sums * sums)))]),
        Statement(old, statement.loops, [Term(ops.sub(sums, old))]),
    ]
    if min(rows, columns) > 1:
        assert len(groups(steps)) == 1
    native = Native(ArrayProgram(steps, {array.name: array for array in (a, b, d, e)}, c), dtype, target)
    native.memory[:] = np.nan
    rng = np.random.default_rng(0)
    start = {array: rng.normal(size=array.size).astype(dtype) for array in (a, b, d, e)}
    for array, numbers in start.items():
        native.views[array][:] = numbers
    native.run()
    products = start[a].reshape(rows, length).astype(np.float64) @ start[b].reshape(columns, length).T
    expected = products.T.reshape(-1) if along == 0 else products.reshape(-1)
    rounding = 1e-10 if dtype == "float64" else 1e-3
    for array, numbers in [
        (c, expected),
        (d, expected - start[d]),
        (e, start[e] - start[d] / (1.0 + expected * expected)),
    ]:
        np.testing.assert_allclose(native.views[array], numbers, rtol=rounding, atol=rounding)


def logarithms(extent):
    """`c[i,j] += log(a[i,j]) · b[j]` in rows that lie side by side, without room between them; every other b."""
    a, b, c = (
        Array("a", 5 * extent, "captured"),
        Array("b", 2 * extent, "captured"),
        Array("c", 5 * extent + 8, "value"),
    )
    term = Term(Apply(ops.log, (Access(a, 0, (extent, 1)),)) * Access(b, 0, (0, 2)))
    return Statement(Access(c, 4, (extent, 1)), (5, extent), [term], accumulate=True), a, b, c


@on_processors
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("extent", [1, 2, 3, 5, 6, 7, 9, 12, 15, 17, 25, 27, 33, 50, 63, 100])
def test_lanes_too_many_touch_nothing(extent, dtype, target):
    statement, a, b, c = logarithms(extent)
    native = Native(ArrayProgram([statement], {"a": a, "b": b}, c), dtype, target)
    native.memory[:] = np.nan  # beside the arrays, where nobody must read or write
    rng = np.random.default_rng(0)
    for array in (a, b, c):
        native.views[array][:] = rng.uniform(0.5, 2.0, array.size)
    before = native.memory.copy()
    numbers = {array: native.views[array].astype(np.float64) for array in (a, b, c)}
    expected = numbers[c].copy()
    expected[4:-4] += (np.log(numbers[a]).reshape(5, extent) * numbers[b][::2]).ravel()
    native.run()
    np.testing.assert_allclose(native.views[c], expected, rtol=0, atol=1e-14 if dtype == "float64" else 1e-6)
    native.views[c][:] = before[native.offsets[c] : native.offsets[c] + c.size]
    np.testing.assert_array_equal(native.memory, before)


@on_processors
@pytest.mark.parametrize("extent", range(1, 20))
@pytest.mark.parametrize("op", [ops.add, ops.larger])
def test_lanes_too_many_have_no_part_in_a_reduction(extent, op, target):
    """Not even in the sign of zero, and not where all numbers are below those that fill lanes."""
    a, c = Array("a", 3 * extent, "captured"), Array("c", 3, "value")
    term = Term(Apply(ops.mul, (Access(a, 0, (extent, 1)), Number(1.0))), (extent,))
    native = Native(ArrayProgram([Statement(Access(c, 0, (1,)), (3,), [term], join=op)], {"a": a}, c), target=target)
    native.memory[:] = 9.0  # beside the arrays
    native.views[a][:] = -0.0
    native.run()
    assert [str(number) for number in native.views[c].tolist()] == ["-0.0"] * 3
    native.views[a][:] = -5.0
    native.run()
    assert native.views[c].tolist() == [-5.0 * (extent if op is ops.add else 1)] * 3


def test_vectors_with_lanes_too_many_cover_every_extent_once():
    for extent in range(1, 200):
        chunks = nests._masked_chunks(extent, 32, 8)
        assert [turn for start, stop, _ in chunks for turn in range(start, stop)] == list(range(extent))
        assert all((stop - start) % lanes == 0 for start, stop, lanes in chunks[:-1])
        assert sum(-(-(stop - start) // lanes) * max(1, lanes // 8) for start, stop, lanes in chunks) == -(-extent // 8)


@on_processors
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("extent", [1, 3, 6, 7, 11, 13, 29, 61])
def test_functions_of_lanes_too_many(extent, dtype, target):
    """Of one number for all lanes, of a vector, and in a sum across lanes that takes more registers than a value."""
    a, b, c = Array("a", 1, "captured"), Array("b", extent, "captured"), Array("c", extent + 1, "value")
    along, one = Access(b, 0, (1,)), Access(a, 0, (0,))
    product = Statement(Access(c, 0, (1,)), (extent,), [Term(Apply(ops.exp, (one,)) * Apply(ops.log, (along,)))])
    total = Statement(Access(c, extent, ()), (), [Term(Apply(ops.log, (along,)), (extent,))])
    native = Native(ArrayProgram([product, total], {"a": a, "b": b}, c), dtype, target)
    native.memory[:] = -1.0  # beside the arrays
    native.views[a][:], numbers = 0.5, np.random.default_rng(0).uniform(0.5, 2.0, extent)
    native.views[b][:] = numbers
    native.run()
    expected = [*(np.exp(0.5) * np.log(numbers)), np.log(numbers).sum()]
    np.testing.assert_allclose(native.views[c], expected, rtol=0, atol=1e-12 if dtype == "float64" else 1e-4)


def copied(access, op=None, target=None):
    """`c[i] = access`, or a function of it."""
    target = target or Access(Array("c", 100, "value"), 0, (1,))
    return Statement(target, (50,), [Term(Apply(op, (access,)) if op else access)])


def test_scattered_lanes_take_one_register():
    a = Array("a", 100, "captured")
    smooth, apart = Access(a, 0, (1,)), Access(a, 0, (2,))
    looked_up = Access(a, 0, (1,), np.arange(50)[::-1].copy())
    assert not is_scattered([copied(smooth)], 0)
    assert is_scattered([copied(apart)], 0)
    assert is_scattered([copied(looked_up)], 0)
    assert is_scattered([copied(smooth, target=apart)], 0)
    assert is_scattered([copied(smooth), copied(looked_up)], 0)
    assert not is_scattered([copied(looked_up, ops.exp)], 0)  # of which several at once are faster
    assert not is_scattered([copied(looked_up)], None)


@on_processors
@pytest.mark.parametrize("extent", [3, 8, 31, 50])
def test_scattered_lanes_are_loaded_and_stored(extent, target):
    rng = np.random.default_rng(0)
    a, b = (Array(name, 3 * extent, "captured") for name in "ab")
    c = Array("c", 3 * extent, "value")
    table = rng.permutation(3 * extent)[:extent]
    total = Access(a, 0, (1,), table) + Access(b, 1, (2,))
    statement = Statement(Access(c, 2, (3,)), (extent,), [Term(total)])
    native = Native(ArrayProgram([statement], {"a": a, "b": b}, c), target=target)
    numbers = {array: rng.normal(size=array.size) for array in (a, b)}
    for array, given in numbers.items():
        native.views[array][:] = given
    native.run()
    expected = np.zeros(3 * extent)
    expected[2::3] = numbers[a][table] + numbers[b][1 : 2 * extent + 1 : 2]
    np.testing.assert_array_equal(native.views[c], expected)


@on_processors
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_largest_of_many_is_nan_if_one_is(dtype, target):
    """`c[i] = max k a[k,i]`, with lanes along i, and `d[i] = max k a[i,k]` with lanes along k."""
    a, c, d = Array("a", 11 * 11, "captured"), Array("c", 11, "value"), Array("d", 11, "value")
    steps = [
        Statement(Access(array, 0, (1,)), (11,), [Term(Access(a, 0, strides), (11,))], join=ops.larger)
        for array, strides in ((c, (1, 11)), (d, (11, 1)))
    ]
    native = Native(ArrayProgram(steps, {"a": a, "d": d}, c), dtype, target)
    numbers = np.random.default_rng(0).normal(size=(11, 11)).astype(dtype)
    numbers[[0, 5, 10, 3], [1, 6, 9, 6]], numbers[7, 2], numbers[:, 4] = np.nan, np.inf, -np.inf
    native.views[a][:] = numbers.reshape(-1)
    native.run()
    np.testing.assert_array_equal(native.views[c], numbers.max(axis=0))
    np.testing.assert_array_equal(native.views[d], numbers.max(axis=1))


OVERLAPS = {  # extents, strides of the target, and loops of which several turns add to the same elements
    "a filter in one dimension": ((50, 5), (1, 1), {1}),
    "one that looks back": ((50, 5), (1, -1), {1}),
    "a filter of a picture": ((7, 22, 3, 3), (24, 1, 24, 1), {2, 3}),
    "every other pixel": ((7, 11, 3, 3), (48, 2, 24, 1), {2, 3}),
    "rows apart": ((3, 20), (24, 1), set()),
    "one element": ((30,), (0,), {0}),
}


@on_processors
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", OVERLAPS)
def test_sums_that_overlap(name, dtype, target):
    """Lanes are along a loop whose turns never meet, and elements that many turns add to get all that they add."""
    loops, strides, meeting = OVERLAPS[name]
    count = int(np.prod(loops))
    size = sum(abs(stride) * (extent - 1) for stride, extent in zip(strides, loops, strict=True)) + 1
    a, b, c = Array("a", 2 * count, "captured"), Array("b", 2, "captured"), Array("c", size + 8, "value")
    base = sum(-stride * (extent - 1) for stride, extent in zip(strides, loops, strict=True) if stride < 0)
    rows = [2 * int(np.prod(loops[k + 1 :])) for k in range(len(loops))]
    inside = (0,) * len(loops)
    product = Term(Access(a, 0, (*rows, 1)) * Access(b, 0, (*inside, 1)), (2,))
    zero = Statement(Access(c, 0, (1,)), (size + 8,), [Term(Number(0.25))])
    added = Statement(Access(c, base, strides), loops, [product], accumulate=True)
    assert overlapping(added) == meeting
    if meeting and name != "one element":
        assert choose_lanes(in_turn(added))[0] is not None
    machine = Native(ArrayProgram([zero, added], {"captured": a, "b": b}, c), dtype, target)
    given = [np.random.default_rng(k).integers(-9, 9, array.size).astype(dtype) for k, array in enumerate((a, b))]
    for array, numbers in zip((a, b), given, strict=True):
        machine.views[array][:] = numbers
    machine.run()
    expected = np.full(size + 8, 0.25, dtype)
    np.add.at(expected, added.target.positions(loops).ravel(), given[0].reshape(-1, 2) @ given[1])
    np.testing.assert_array_equal(machine.views[c], expected)


def test_turns_that_meet_come_after_all_others():
    """Otherwise each would wait until what the last one has stored can be read again."""
    loops, strides, _ = OVERLAPS["a filter of a picture"]
    x, c = Array("x", 7 * 22, "captured"), Array("c", 24 * 9, "value")
    added = Statement(Access(c, 0, strides), loops, [Term(Access(x, 0, (22, 1, 0, 0)))], accumulate=True)
    assert in_turn(added).loops == (3, 3, 7, 22)
    assert in_turn(added).target.strides == (24, 1, 24, 1)


def test_sums_of_very_many_terms_are_not_written_out(monkeypatch):
    a, b = Array("a", 4096, "captured"), Array("b", 4096, "captured")
    c = Array("c", 16, "value")
    terms = [Term(Access(a, 16 * k, (1, 64, 16)) * Access(b, 16 * k, (0, 4, 1)), (4, 4)) for k in range(20)]
    program = ArrayProgram([Statement(Access(c, 0, (1,)), (16,), terms)], {"a": a, "b": b}, c)
    lines = str(Module(program, DOUBLE, host())).count("\n")
    rng = np.random.default_rng(0)
    numbers = {array: rng.normal(size=array.size) for array in (a, b)}
    native = Native(program)
    for array, given in numbers.items():
        native.views[array][:] = given
    native.run()
    places = [(16 * k, i, j) for k in range(20) for i in range(4) for j in range(4)]
    expected = sum(
        numbers[a][start + 64 * i + 16 * j : start + 64 * i + 16 * j + 16] * numbers[b][start + 4 * i + j]
        for start, i, j in places
    )
    np.testing.assert_allclose(native.views[c], expected, rtol=1e-12)
    monkeypatch.setattr(nests, "MOST_TERMS", 1000)
    assert 2 * lines < str(Module(program, DOUBLE, host())).count("\n")
