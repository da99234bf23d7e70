"""`fit` takes a pair of arrays, lists or frames wherever it takes a data set, on every way of training."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_iris, make_friedman1
from sklearn.model_selection import train_test_split

from chainrule import data, diagnose, fit, losses, nn, optim
from chainrule.data import Dataset

IRIS = load_iris(as_frame=True)
NAMES = pd.Series(IRIS.target_names[IRIS.target], name="species")
X, X_TEST, Y, Y_TEST = train_test_split(IRIS.data, NAMES, train_size=60, test_size=30, random_state=1)

WAYS = {
    "eager": {"compiled": False},
    "eager batches": {"compiled": False, "batch_size": 16, "rng": 1},
    "compiled": {"compiled": True},
    "compiled batches": {"compiled": True, "batch_size": 16, "rng": 1},
    "float32": {"compiled": True, "dtype": "float32"},
    "auto": {"batch_size": 16, "rng": 1},
    "mesh": {"mesh": "all", "batch_size": 16, "rng": 1},
}


def trained(examples, **options):
    model = nn.MLP(4, [5, 3], activation="tanh", rng=2)
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    history = fit(
        model,
        losses.cross_entropy,
        examples,
        optimizer=optimizer,
        epochs=4,
        metrics=["accuracy"],
        progress=False,
        **options,
    )
    return history.columns, model.state()


@pytest.mark.parametrize("way", WAYS)
def test_a_pair_trains_as_its_data_set_does(way):
    if way == "mesh":
        pytest.importorskip("jax")
    sets = [Dataset.from_arrays(X, Y), Dataset.from_arrays(X_TEST, Y_TEST)]
    expected = trained(sets[0], validation=sets[1], **WAYS[way])
    assert trained((X, Y), validation=(X_TEST, Y_TEST), **WAYS[way]) == expected


@pytest.mark.parametrize("kind", ["lists", "arrays", "polars"])
def test_it_does_not_matter_whose_arrays_they_are(kind):
    make = {
        "lists": lambda: (X.to_numpy().tolist(), Y.tolist()),
        "arrays": lambda: (X.to_numpy(), Y.to_numpy()),
        "polars": lambda: (pl.DataFrame(X.to_dict("list")), pl.Series(Y.tolist())),
    }
    assert trained(make[kind](), compiled=False) == trained((X, Y), compiled=False)


def test_validation_has_the_class_indices_of_the_data():
    """It lacks the first class, so indices of its own would be lower by one."""
    few = Y_TEST != "setosa"
    _, state = trained((X, Y), compiled=False)
    columns, _ = trained((X, Y), validation=(X_TEST[few], Y_TEST[few]), compiled=False)
    model = nn.MLP(4, [5, 3], activation="tanh", rng=2)
    model.load_state(state)
    predicted = [losses.argmax(model(row)) for row in X_TEST[few].to_numpy().tolist()]
    right = np.array(["setosa", "versicolor", "virginica"])[predicted] == Y_TEST[few]
    assert columns["validation_accuracy"][-1] == pytest.approx(right.mean())


def test_indices_of_classes_may_be_given_without_their_names():
    examples, held_out = Dataset.from_arrays(X, Y), Dataset.from_arrays(X_TEST, Y_TEST)
    bare = Dataset(examples.inputs, examples.targets)
    assert trained(bare, validation=held_out, compiled=False) == trained(examples, validation=held_out, compiled=False)


@pytest.mark.parametrize("compiled", [False, True])
def test_regression_on_one_output_and_on_two(compiled):
    inputs, y = make_friedman1(60, random_state=0)
    for targets, outputs in ((y, 1), (y.reshape(-1, 1), 1), (np.column_stack([y, -y]), 2)):
        model = nn.MLP(10, [outputs], rng=1)
        history = fit(model, losses.mean_square, (inputs, targets), epochs=30, compiled=compiled, progress=False)
        assert history.loss[-1] < history.loss[0]


def test_bools_suit_binary_cross_entropy():
    model = nn.MLP(4, [1], rng=1)
    history = fit(model, losses.binary_cross_entropy, (X, Y == "setosa"), metrics=["accuracy"], progress=False)
    assert history.last["accuracy"] > 0.95


def test_the_doctor_takes_a_pair():
    model = nn.MLP(4, [3], rng=1)
    wild = optim.SGD(model.parameters(), lr=5000.0)
    assert "learning rate too high" in diagnose(model, losses.cross_entropy, (X, Y), wild).names()


SWAPPED = X_TEST[X_TEST.columns[::-1]]


@pytest.mark.parametrize(
    ("examples", "validation", "message"),
    [
        ((X.assign(kind="a"), Y), None, r"`X` of `data` must hold numbers, got 'a' in row 0, column 'kind'"),
        ((X, Y), (X_TEST, Y_TEST[:-1]), "`X` of `validation` has 30 rows and `y` 29: give one target for each"),
        ((X, Y[::-1]), None, "`X` and `y` of `data` must have the same index, got .*: rows go together in their order"),
        (
            (X, Y),
            (X_TEST, ["rose"] * 30),
            "`y` of `validation` must hold labels of the classes .*, got 'rose' in row 0",
        ),
        (
            (X, Y),
            (SWAPPED, Y_TEST),
            r"`validation` has the columns petal width \(cm\), .*: choose the same, in the same",
        ),
        ((X, Y), (X_TEST.to_numpy()[:, 1:], Y_TEST), "`X` of `validation` has 3 columns and the training data 4"),
        ((X, [0] * 60), (X_TEST, Y_TEST), "`y` of `validation` has labels, and the training data has numbers"),
        (
            (X, Y),
            Dataset.from_arrays(X_TEST, ["setosa", "virginica"] * 15),
            "`validation` has the classes setosa, virginica, and .*: read it with those `classes`",
        ),
        ((X, Y, X_TEST, Y_TEST), None, r"`data` must be a Dataset or a pair \(X, y\), got a tuple of 4"),
        (X, None, r"`data` must be a Dataset or a pair \(X, y\), got DataFrame"),
        (
            (X, (Y == "setosa").astype(float)),
            None,
            "must be a class index, got .*: give an int, as data.Dataset.from_ar",
        ),
    ],
)
def test_a_pair_that_is_wrong_is_refused_before_any_step(examples, validation, message):
    model = nn.MLP(4, [3], rng=1)
    before = model.state()
    with pytest.raises((TypeError, ValueError), match=message):
        fit(model, losses.cross_entropy, examples, validation=validation, epochs=2, progress=False)
    assert model.state() == before


def test_a_standardized_set_trains_better_than_prices_and_years():
    years = np.column_stack([np.linspace(1900, 2000, 50), np.linspace(1e6, 9e6, 50)])
    y = (years[:, 0] > 1950).tolist()
    train, scaling = data.standardize((years, y))
    model = nn.MLP(2, [1], rng=1)
    history = fit(model, losses.binary_cross_entropy, train, epochs=200, metrics=["accuracy"], progress=False)
    assert history.last["accuracy"] > 0.95
    assert model(scaling([1990, 8.2e6])).data > 0 > model(scaling([1910, 1.8e6])).data
