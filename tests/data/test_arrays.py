"""Arrays, lists and frames become the same examples, whoever's they are; what is wrong with them is named."""

import datetime as dt
import subprocess
import sys
import tracemalloc
from collections import Counter
from fractions import Fraction
from random import Random

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import LabelEncoder, StandardScaler

from chainrule import Value, data
from chainrule.data import Dataset

ROWS = [[1.0, 0.0], [2.5, 1.0], [-3.0, 1.0]]
COLUMNS = {"size": [1.0, 2.5, -3.0], "on": [False, True, True]}
ONES = np.ones((4, 2))
NUMBERS = [1, 2, 3, 4]


@pytest.mark.parametrize(
    "X",
    [
        ROWS,
        tuple(map(tuple, ROWS)),
        [np.array(row) for row in ROWS],
        [torch.tensor(row) for row in ROWS],
        [[Fraction(1), False], [np.float64(2.5), np.bool_(True)], [-3, True]],
        np.array(ROWS),
        np.array(ROWS, dtype=np.float32),
        np.array(ROWS, order="F"),
        np.array(ROWS, dtype=object),
        np.array(ROWS).astype(np.longdouble),
        np.vstack([ROWS, ROWS])[:3],
        torch.tensor(ROWS),
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS).convert_dtypes(),
        pd.DataFrame(COLUMNS).astype(object),
        pd.DataFrame(COLUMNS).astype(pd.SparseDtype("float", 0.0)),
        pl.DataFrame(COLUMNS),
    ],
)
def test_inputs_of_every_kind_are_the_same_rows_of_floats(X):
    examples = Dataset.from_arrays(X, [1, 2, 3])
    assert examples.inputs == ROWS
    assert {type(number) for row in examples.inputs for number in row} == {float}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_arrays_of_jax_are_read_too(dtype):
    numpy = pytest.importorskip("jax.numpy")
    assert Dataset.from_arrays(numpy.array(ROWS, dtype=dtype), [1, 2, 3]).inputs == ROWS


@pytest.mark.parametrize(
    "X",
    [
        [1, 2, 3],
        range(1, 4),
        np.array([1, 2, 3]),
        np.array([[1], [2], [3]]),
        pd.Series([1, 2, 3]),
        pl.Series([1, 2, 3]),
    ],
)
def test_a_single_sequence_is_one_input_each(X):
    assert Dataset.from_arrays(X, [0, 0, 0]).inputs == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_names_of_columns_are_kept_by_every_part(frame):
    table = frame({**COLUMNS, "kind": ["b", "a", "b"]})
    examples = Dataset.from_arrays(table[["size", "on"]], table["kind"])
    assert repr(examples) == "<Dataset of 3 examples: size, on -> kind (a, b)>"
    parts = [examples[:2], data.shuffle(examples, Random(0)), *data.split(examples, 0.7), *data.batches(examples, 2)]
    for part in [*parts, *data.split(examples, 0.5, stratified=True), data.standardize(examples)[0]]:
        assert (part.columns, part.target, part.classes) == (["size", "on"], "kind", ["a", "b"])


@pytest.mark.parametrize("dtype", [pl.List(pl.Float64), pl.Array(pl.Float64, 2)])
def test_a_column_of_lists_is_rows_whose_columns_have_no_names(dtype):
    frame = pl.DataFrame({"vector": pl.Series(ROWS, dtype=dtype)})
    for X in (frame, frame["vector"]):
        examples = Dataset.from_arrays(X, [1, 2, 3])
        assert (examples.inputs, examples.columns) == (ROWS, [])


def test_a_frame_of_one_column_is_a_target_with_a_name():
    examples = Dataset.from_arrays(np.ones(3), pd.DataFrame({"price": [1, 2, 3]}))
    assert (examples.targets, examples.target, examples.columns) == ([1, 2, 3], "price", [])


def test_the_examples_do_not_change_with_the_list_that_they_were_read_from():
    rows = [[1.0, 2.0]]
    examples = Dataset.from_arrays(rows, [0])
    rows[0][0] = 9.0
    assert examples.inputs == [[1.0, 2.0]]


# Targets.


@pytest.mark.parametrize(
    "y",
    [
        [3, 1, 2],
        np.array([3, 1, 2]),
        np.array([[3], [1], [2]], dtype=np.uint8),
        [[3], [1], [2]],
        pd.Series([3, 1, 2], dtype="Int64"),
        pl.Series([3, 1, 2]),
        torch.tensor([3, 1, 2]),
        [torch.tensor(3), np.int8(1), 2],
    ],
)
def test_integers_stay_integers_which_losses_take_for_classes(y):
    examples = Dataset.from_arrays([1, 2, 3], y)
    assert examples.targets == [3, 1, 2]
    assert {type(target) for target in examples.targets} == {int}
    assert examples.classes == []


def test_floats_stay_floats_and_rows_of_numbers_stay_rows():
    assert Dataset.from_arrays([1, 2], np.array([0.5, 1.0])).targets == [0.5, 1.0]
    assert Dataset.from_arrays([1, 2], np.array([[1, 2], [3, 4]])).targets == [[1.0, 2.0], [3.0, 4.0]]
    frame = pd.DataFrame({"a": [1, 2], "b": [True, False]})
    examples = Dataset.from_arrays([1, 2], frame)
    assert (examples.targets, examples.target) == ([[1.0, 1.0], [2.0, 0.0]], "a, b")


LABELS = ["rose", "iris", "rose", "aster"]


@pytest.mark.parametrize(
    "y",
    [
        LABELS,
        np.array(LABELS),
        np.array(LABELS, dtype=object).reshape(4, 1),
        pd.Series(LABELS),
        pd.Series(LABELS, dtype="category"),
        pd.Categorical(LABELS, categories=["rose", "iris", "aster", "tulip"]),
        pd.DataFrame({"kind": LABELS}),
        pl.Series(LABELS),
        pl.Series(LABELS, dtype=pl.Categorical),
        pl.Series(LABELS, dtype=pl.Enum(["rose", "iris", "aster"])),
    ],
)
def test_texts_and_categories_are_indices_into_the_sorted_classes(y):
    encoder = LabelEncoder().fit(LABELS)
    examples = Dataset.from_arrays(ONES, y)
    assert examples.targets == encoder.transform(LABELS).tolist()
    assert examples.classes == encoder.classes_.tolist()
    assert {type(target) for target in examples.targets} == {int}


@pytest.mark.parametrize("y", [[True, True], np.array([True, True]), pd.Series([True, True], dtype="boolean")])
def test_true_is_class_1_even_where_nothing_is_false(y):
    examples = Dataset.from_arrays([1, 2], y)
    assert (examples.targets, examples.classes) == ([1, 1], [False, True])


def test_categories_that_are_numbers_are_classes_too():
    examples = Dataset.from_arrays([1, 2, 3], pd.Series([10, 9, 10], dtype="category"))
    assert (examples.targets, examples.classes) == ([1, 0, 1], [9, 10])


@pytest.mark.parametrize(("y", "classes"), [([10, 9, 10], [9, 10]), ([1.0, -1.0, 1.0], [-1.0, 1.0])])
def test_numbers_are_labels_if_one_says_so(y, classes):
    examples = Dataset.from_arrays([1, 2, 3], y, labels=True)
    assert (examples.targets, examples.classes) == ([1, 0, 1], classes)


def test_texts_and_bools_are_no_labels_if_one_says_so():
    assert Dataset.from_arrays([1, 2], [True, False], labels=False).targets == [1, 0]
    assert Dataset.from_arrays([1, 2], [True, False], labels=False).classes == []


def test_a_one_hot_matrix_is_indices_if_it_has_labels():
    hot = np.eye(3, dtype=int)[[2, 0, 1, 1]]
    examples = Dataset.from_arrays(ONES, hot, labels=True)
    assert (examples.targets, examples.classes) == ([2, 0, 1, 1], [0, 1, 2])
    assert Dataset.from_arrays(ONES, hot).targets == hot.tolist()
    assert Dataset.from_arrays(ONES, hot, classes=["a", "b", "c"]).classes == ["a", "b", "c"]
    named = Dataset.from_arrays(ONES, pd.get_dummies(pd.Series(LABELS)), labels=True)
    assert (named.targets, named.classes) == ([2, 1, 2, 0], ["aster", "iris", "rose"])


def test_another_set_is_read_with_the_same_indices():
    train = Dataset.from_arrays(ONES, LABELS)
    test = Dataset.from_arrays([[1, 2]], ["rose"], classes=train.classes)
    assert (test.targets, test.classes) == ([2], train.classes)


# Wherever a data set is taken.


def test_a_pair_is_taken_wherever_a_data_set_is():
    pair = np.arange(20.0).reshape(10, 2), list("ababababab")
    assert [len(part) for part in data.split(pair, 0.8, Random(1))] == [8, 2]
    assert [len(batch) for batch in data.batches(pair, 4)] == [4, 4, 2]
    assert sorted(data.shuffle(pair, Random(0)).targets) == [0] * 5 + [1] * 5


def test_what_scikit_learn_gives_is_taken_as_it_is():
    flowers = load_iris(as_frame=True)
    X, X_test, y, y_test = train_test_split(flowers.data, flowers.target, random_state=0)
    examples = Dataset.from_arrays(X, y)
    assert examples.inputs == X.to_numpy().tolist()
    assert examples.targets == y.tolist()
    assert examples.columns == flowers.feature_names
    assert len(Dataset.from_arrays(X_test, y_test)) == 38


def test_a_split_is_stratified_by_the_classes_of_any_array():
    for y in (["no"] * 30 + ["yes"] * 10, np.repeat([0, 1], [30, 10]), np.repeat([False, True], [30, 10])):
        train, test = data.split(Dataset.from_arrays(np.arange(40), y), 0.8, Random(0), stratified=True)
        assert Counter(train.targets) == {0: 24, 1: 8}
        assert Counter(test.targets) == {0: 6, 1: 2}


# Standardization.


def test_standardized_columns_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)) * [1.0, 1e-9, 1e12, 0.0] + [5.0, 0.0, -1e13, 7.0]
    train, test, scaling = data.standardize((X[:150], np.zeros(150)), (X[150:], np.zeros(50)))
    theirs = StandardScaler().fit(X[:150])
    assert np.allclose(train.inputs, theirs.transform(X[:150]), rtol=1e-9, atol=1e-9)
    assert np.allclose(test.inputs, theirs.transform(X[150:]), rtol=1e-9, atol=1e-9)
    assert np.allclose(scaling(X[3]), train.inputs[3], rtol=0, atol=0)
    assert np.allclose(scaling.undo(test.inputs), X[150:], rtol=1e-12)


def test_a_constant_column_becomes_exactly_0():
    for number in (0.1, 1e308, -7.0, 0.0):
        train, scaling = data.standardize((np.full((3, 1), number), range(3)))
        assert train.inputs == [[0.0]] * 3
        assert scaling.undo([0.0]) == [number]


def test_rounding_errors_are_no_deviation():
    column = [0.1 + 0.2, 0.3] * 5
    assert np.abs(data.standardize((column, range(10)))[0].inputs).max() < 1e-15


def test_a_scaling_takes_rows_of_every_kind():
    frame = pd.DataFrame({"a": [1.0, 3.0], "b": [5.0, 9.0]})
    _, scaling = data.standardize((frame, [0, 1]))
    assert (scaling.means, scaling.deviations, scaling.columns) == ([2.0, 7.0], [1.0, 2.0], ["a", "b"])
    for rows in (frame, frame.to_numpy(), frame.to_numpy().tolist(), pl.DataFrame({"a": [1, 3], "b": [5, 9]})):
        assert scaling(rows) == [[-1.0, -1.0], [1.0, 1.0]]
    for row in ([3, 9], (3.0, 9.0), np.array([3, 9]), frame.iloc[1], pl.Series([3, 9])):
        assert scaling(row) == [1.0, 1.0]
        assert scaling.undo(scaling(row)) == [3.0, 9.0]


def test_standardizing_keeps_the_targets_and_leaves_the_data_alone():
    moons = data.moons(20)
    before = [*map(list, moons.inputs)]
    train, _ = data.standardize(moons)
    assert train.targets == moons.targets
    assert moons.inputs == before


# Mistakes.

TODAY = dt.date(2026, 1, 31)
TEXT = "encode texts as numbers, such as one column of 0 and 1 for each of them, or leave the column out"
FILL = "fill it in, or leave the row out"
TIME = "give numbers, such as days since a day that you choose"
FLAT = "give each example as one flat list of numbers"
REAL = "only real numbers have a place here; take .real or .imag"
PERSONS = {"age": [30, 40], "sex": ["f", "m"]}
HOLES = {"age": [30.0, None], "size": [1.0, 2.0]}

WRONG_INPUTS = [
    (pd.DataFrame(PERSONS), TypeError,
     f"`X` must hold numbers, got 'f' in row 0, column 'sex' (counted from 0): {TEXT}"),
    (pl.DataFrame(PERSONS), TypeError,
     f"`X` must hold numbers, got 'f' in row 0, column 'sex' (counted from 0): {TEXT}"),
    (pd.DataFrame(PERSONS).astype({"sex": "category"}), TypeError,
     f"`X` must hold numbers, got categories in column 'sex': {TEXT}"),
    (pd.Series([1, 2], dtype="category"), TypeError, f"`X` must hold numbers, got categories in column 0: {TEXT}"),
    (pd.DataFrame(HOLES), ValueError,
     f"`X` must hold finite numbers, got nan in row 1, column 'age' (counted from 0): {FILL}"),
    (pl.DataFrame(HOLES), ValueError,
     f"`X` must hold finite numbers, got nan in row 1, column 'age' (counted from 0): {FILL}"),
    (pd.DataFrame({"a": pd.array([True, None], dtype="boolean"), "b": [1, 2]}), ValueError,
     f"`X` must hold finite numbers, got <NA> in row 1, column 'a' (counted from 0): {FILL}"),
    (pd.DataFrame(HOLES).astype(object).where(lambda frame: frame.notna(), None), ValueError,
     f"`X` must hold finite numbers, got None in row 1, column 'age' (counted from 0): {FILL}"),
    (np.array([[1.0, 2.0], [3.0, np.inf]]), ValueError,
     "`X` must hold finite numbers, got inf in row 1, column 1 (counted from 0): replace it, or leave the row out"),
    ([[1.0], [float("nan")]], ValueError,
     f"`X` must hold finite numbers, got nan in row 1, column 0 (counted from 0): {FILL}"),
    ([[10**400], [1]], ValueError,
     "`X` must hold finite numbers, got 100000000000000000000000000000000000000… in row 0, "
     "column 0 (counted from 0): replace it, or leave the row out"),
    (np.array([["1", "x"], ["2", "y"]]), TypeError,
     "`X` must hold numbers, got '1' in row 0, column 0 (counted from 0): "
     "convert texts with float(...) first"),
    (np.array([[1, "x"], [2, 3]], dtype=object), TypeError,
     f"`X` must hold numbers, got 'x' in row 0, column 1 (counted from 0): {TEXT}"),
    ([[b"x"], [1]], TypeError,
     "`X` must hold numbers, got b'x' in row 0, column 0 (counted from 0): make texts of bytes with .decode()"),
    (np.ones((2, 8, 8)), ValueError, "`X` must have rows and columns, got an array of shape (2, 8, 8): flatten each "
     "example, as in x.reshape(len(x), -1)"),
    (np.array(3.0), ValueError,
     "`X` must have rows and columns, got an array of shape (): give one row per example"),
    ([[[1.0]], [[2.0]]], TypeError, f"`X` must hold numbers, got a list in row 0, column 0 (counted from 0): {FLAT}"),
    (pl.DataFrame({"a": [[1, 2], [3, 4]], "b": [1, 2]}), TypeError,
     f"`X` must hold numbers, got a list in row 0, column 'a' (counted from 0): {FLAT}"),
    (pl.DataFrame({"a": pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2)), "b": [1, 2]}), TypeError,
     f"`X` must hold numbers, got a list in row 0, column 'a' (counted from 0): {FLAT}"),
    ([[1.0, 2.0], [3.0]], ValueError,
     "`X` must have rows of equal length, got 1 entry in row 1 (counted from 0) and 2 in row 0"),
    ([], ValueError, "`X` is empty: give at least one row"),
    (np.ones((0, 3)), ValueError, "`X` is empty: give at least one row"),
    (np.ones((2, 0)), ValueError, "`X` has 2 rows and no columns: give at least one"),
    ([[], []], ValueError, "`X` has 2 rows and no columns: give at least one"),
    (pd.DataFrame(index=[0, 1]), ValueError, "`X` has 2 rows and no columns: give at least one"),
    (pd.DataFrame({"day": pd.to_datetime([TODAY] * 2), "b": [1, 2]}), TypeError,
     f"`X` must hold numbers, got the time 2026-01-31T00:00:00 in row 0, column 'day' (counted from 0): {TIME}"),
    (pl.DataFrame({"day": [TODAY] * 2}), TypeError,
     f"`X` must hold numbers, got the time 2026-01-31 in row 0, column 'day' (counted from 0): {TIME}"),
    (np.array([[TODAY], [TODAY]], dtype="datetime64[ns]"), TypeError,
     f"`X` must hold numbers, got the time 2026-01-31T00:00:00.000000000 in row 0 (counted from 0): {TIME}"),
    ([[TODAY], [TODAY]], TypeError,
     f"`X` must hold numbers, got the time 2026-01-31 in row 0, column 0 (counted from 0): {TIME}"),
    (np.array([[1j], [2j]]), TypeError, f"`X` must hold numbers, got 1j in row 0, column 0 (counted from 0): {REAL}"),
    ([[Value(1.0)], [1.0]], TypeError,
     "`X` must hold numbers, got a Value in row 0, column 0 (counted from 0): give a number in its place"),
    (np.ma.masked_array([1.0, 2.0], [True, False]), TypeError,
     "`X` must not be masked, got MaskedArray: give what .filled(...) returns"),
    (sparse.csr_array(np.eye(2)), TypeError, "`X` must not be sparse, got csr_array: give what .toarray() returns"),
    (pd.DataFrame(np.eye(2), columns=["a", "a"]), ValueError,
     "`X` has more than one column 'a': rename or drop the others"),
    (torch.ones(2, requires_grad=True), TypeError, "`X` must be something that NumPy can read, got Tensor: Can't call "
     "numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."),
    (pl.DataFrame({"a": [1, 2]}).lazy(), TypeError,
     "`X` must be an array, a list or a frame, got LazyFrame: call .collect() first"),
    ({"a": [1, 2]}, TypeError, "`X` must be an array, a list or a frame, got dict: give one row or number per example"),
    ("ab", TypeError, "`X` must be an array, a list or a frame, got str: give one row or number per example"),
    ([{"a": 1}, {"a": 2}], TypeError,
     f"`X` must hold numbers, got a dict in row 0, column 0 (counted from 0): {FLAT}"),
    (np.ones((3, 2)), ValueError, "`X` has 3 rows and `y` 2: give one target for each"),
    (pd.DataFrame({"a": [1, 2]}, index=["p", "q"]), ValueError,
     "`X` and `y` must have the same index, got p and q in row "
     "0 (counted from 0): rows go together in their order; call .reset_index(drop=True) on both if that is right"),
]  # fmt: skip


@pytest.mark.parametrize(("X", "kind", "message"), WRONG_INPUTS)
def test_what_is_wrong_with_inputs_is_named(X, kind, message):
    with pytest.raises(kind) as caught:
        Dataset.from_arrays(X, pd.Series([1, 2], index=["q", "p"]))
    assert str(caught.value) == message


WRONG_TARGETS = [
    ([1.0, None, 2.0, 3.0], {}, f"`y` must hold finite numbers or labels, got None in row 1 (counted from 0): {FILL}"),
    (pd.Series(["a", None, "b", "c"]), {},
     f"`y` must hold finite numbers or labels, got nan in row 1 (counted from 0): {FILL}"),
    (pd.Series(["a", "b", "c", None], dtype="category"), {},
     f"`y` must hold finite numbers or labels, got nan in row 3 (counted from 0): {FILL}"),
    (pd.Series([1, 2, 3, None], dtype="Int64"), {},
     f"`y` must hold finite numbers or labels, got nan in row 3 (counted from 0): {FILL}"),
    ([1.0, np.nan, 2.0, 3.0], {"labels": True},
     f"`y` must hold finite numbers or labels, got nan in row 1 (counted from 0): {FILL}"),
    (np.array([1.0, 2.0, np.inf, 3.0]), {},
     "`y` must hold finite numbers or labels, got inf in row 2 (counted from 0): "
     "replace it, or leave the row out"),
    ([1, 2, "c", 4], {},
     "`y` must hold numbers or labels, got 'c' in row 2 (counted from 0): if texts and numbers name "
     "classes, make all of them texts"),
    (["1.5", "2", "7", "3"], {},
     "`y` holds numbers as texts, such as '1.5': convert them with float(...), or say labels=True "
     "if they name classes"),
    ([1, 2, "c", 4], {"labels": True}, "`y` must hold labels of one kind, got int, str: make all of them texts"),
    (LABELS, {"labels": False},
     "`y` must hold numbers or labels, got 'rose' in row 0 (counted from 0): `labels=False` asks "
     "for numbers; leave it out if the texts name classes"),
    (LABELS, {"classes": ["rose", "iris"]},
     "`y` must hold labels of the classes rose, iris, got 'aster' in row 3 (counted "
     "from 0): leave the row out, or give all `classes` to Dataset.from_arrays"),
    (LABELS, {"classes": "rose"},
     "`classes` must be a list of different labels, got 'rose': give those of another data set, "
     "as in classes=train.classes"),
    (LABELS, {"labels": False, "classes": LABELS},
     "`classes` are for labels, and `labels` is False: leave one of them out"),
    (LABELS, {"labels": "yes"}, "`labels` must be True, False or 'auto', got 'yes'"),
    (pd.DataFrame({"a": NUMBERS, "b": LABELS}), {}, "`y` must hold numbers or labels, got 'rose' in row 0, column 'b' "
     "(counted from 0): give the one column that holds the labels"),
    (np.eye(4) + np.eye(4)[::-1], {"labels": True},
     "`y` must have one 1 and else 0 in each row, got [1.0, 0.0, 0.0, 1.0] in "
     "row 0 (counted from 0): give one label per example, or leave `labels` out"),
    (np.eye(4), {"classes": ["a", "b"]},
     "`y` must have one column for each of the classes a, b, got 0, 1, 2, 3"),
    (pd.get_dummies(pd.Series(list("abab"))), {"classes": ["b", "a"]},
     "`y` must have one column for each of the classes b, a, got a, b"),
    (pd.to_datetime(pd.Series([TODAY] * 4)), {},
     f"`y` must hold numbers or labels, got the time 2026-01-31T00:00:00 in row 0 (counted from 0): {TIME}"),
    (np.ma.masked_array(NUMBERS), {}, "`y` must not be masked, got MaskedArray: give what .filled(...) returns"),
    (np.array([1j] * 4), {}, f"`y` must hold numbers or labels, got 1j in row 0 (counted from 0): {REAL}"),
    (None, {}, "`y` must be an array, a list or a frame, got NoneType: give one row or number per example"),
    (5, {}, "`y` must be an array, a list or a frame, got int: give one row or number per example"),
    ([], {}, "`y` is empty: give at least one row"),
    (NUMBERS[:3], {}, "`X` has 4 rows and `y` 3: give one target for each"),
]  # fmt: skip


@pytest.mark.parametrize(("y", "options", "message"), WRONG_TARGETS)
def test_what_is_wrong_with_targets_is_named(y, options, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        Dataset.from_arrays(ONES, y, **options)
    assert str(caught.value) == message


FRAME = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0]})
SCALING = data.standardize((FRAME, [0, 1]))[1]

MISTAKES = [
    (lambda: Dataset(FRAME, [0, 1]),
     "`inputs` must be a list of inputs, got a frame: use Dataset.from_arrays(X, y)"),
    (lambda: data.split((1, 2, 3, 4)),
     "`data` must be a Dataset or a pair (X, y), got a tuple of 4: give a tuple of inputs "
     "and targets, or make one with Dataset(inputs, targets)"),
    (lambda: data.split((ONES, np.eye(4)), stratified=True),
     "a stratified split needs one class per example, got lists as targets: leave `stratified` out"),
    (lambda: data.standardize(FRAME),
     "`training` must be a Dataset or a pair (X, y), got DataFrame: give a tuple of inputs "
     "and targets, or make one with Dataset(inputs, targets)"),
    (lambda: data.standardize((FRAME, [0, 1]), (FRAME[["b", "a"]], [0, 1])),
     "`others[0]` has the columns b, a, and the training data has a, b: choose the same, in the same order"),
    (lambda: data.standardize((ONES, NUMBERS), (np.ones((4, 3)), NUMBERS)),
     "`X` of `others[0]` has 3 columns and the training data 2: give the same columns"),
    (lambda: data.standardize(([[1e308], [1.7e308]], [0, 1])),
     "column 0 is too large to be standardized: use other units"),
    (lambda: data.standardize(Dataset([{"a": 1.0}], [0])),
     f"`rows` must hold numbers, got a dict in row 0, column 0 (counted from 0): {FLAT}"),
    (lambda: data.standardize(Dataset([], []), (FRAME, [0, 1])), "`rows` is empty: give at least one row"),
    (lambda: SCALING(FRAME[["b", "a"]]), "`rows` must have the columns a, b in this order, got b, a"),
    (lambda: SCALING([1.0]), "`rows` must have 2 columns, as the data that was standardized, got 1"),
    (lambda: SCALING([1.0, None]),
     f"`rows` must hold finite numbers, got None in row 0, column 1 (counted from 0): {FILL}"),
    (lambda: SCALING.undo("ab"),
     "`rows` must be an array, a list or a frame, got str: give one row or number per example"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_other_mistakes_are_named(mistake, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        mistake()
    assert str(caught.value) == message


# Without NumPy, and with much data.


def test_lists_need_no_numpy():
    code = """
import sys
sys.modules.update(numpy=None, pandas=None, polars=None)
from chainrule import data, fit, losses, nn
rows, labels = [[1, 2.5], [3, True], [0.5, 1]], ["b", "a", "b"]
train, scaling = data.standardize((rows, labels))
fit(nn.MLP(2, [2], rng=1), losses.cross_entropy, train, epochs=2, progress=False, compiled=False)
print(train.targets, scaling.undo(scaling(rows)) == [[1.0, 2.5], [3.0, 1.0], [0.5, 1.0]])
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "[1, 0, 1] True\n"


def test_reading_an_array_takes_no_more_memory_than_its_rows():
    X, y = np.random.default_rng(0).normal(size=(20_000, 20)), np.zeros(20_000)

    def peak(make):
        tracemalloc.start()
        kept = make()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, kept

    rows, _ = peak(lambda: (X.tolist(), y.tolist()))
    ours, _ = peak(lambda: Dataset.from_arrays(X, y))
    assert ours < 1.2 * rows


def test_a_row_of_a_frame_is_scaled_by_its_names():
    frame = pd.DataFrame({"a": [1.0, 3.0, 5.0], "b": [100.0, 300.0, 200.0]})
    _, scaling = data.standardize((frame, [0, 1, 0]))
    assert scaling(frame.iloc[0]) == scaling(frame)[0]
    with pytest.raises(ValueError, match="must have the columns a, b in this order, got b, a"):
        scaling(frame[["b", "a"]].iloc[0])
