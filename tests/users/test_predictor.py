"""A model that can be used: rows as a table had them go in, answers in the table's terms come out."""

import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest

import chainrule
from chainrule import Predictor, data, losses, nn
from chainrule.data.columns import Column
from chainrule.predictor import Answer, Problem

FLOWERS = [Column("length"), Column("colour", "choice", ("blue", "red"), "red"), Column("open", "flag")]


@pytest.fixture
def predictor():
    """Of the kind, by three columns of which one has texts."""
    network = nn.MLP(4, [5, 2], activation="tanh", rng=3)
    return Predictor(network, Problem("classes", FLOWERS, "kind", ["rose", "violet"]))


class Frame:
    """What pandas and polars have in common."""

    def __init__(self, **columns):
        self.table, self.columns = columns, list(columns)

    def __getitem__(self, name):
        return self.table[name]

    def __len__(self):
        return len(next(iter(self.table.values())))


def test_rows_of_every_kind_get_the_same_answers(predictor):
    rows = [[1.5, "red", True], [-2.0, "blue", False]]
    dicts = [dict(zip(["length", "colour", "open"], row, strict=True)) | {"kind": "rose"} for row in rows]
    expected = [
        predictor.problem.answer([o.data for o in predictor.network(x)]) for x in ([1.5, 0, 1, 1], [-2, 1, 0, 0])
    ]
    assert predictor(rows) == expected
    assert predictor(tuple(map(tuple, rows))) == expected
    assert predictor(np.array(rows, dtype=object)) == expected
    assert predictor([["1.5", " red", "yes"], ["-2", "blue", "no"]]) == expected
    assert predictor(dicts) == expected
    assert predictor(Frame(open=[1, 0], kind=["?", "?"], colour=["red", "blue"], length=[1.5, -2.0])) == expected
    assert [predictor(row) for row in [*rows, *dicts]] == expected * 2
    assert predictor([]) == []
    assert set(expected[0].probabilities) == {"rose", "violet"}
    assert sum(expected[0].probabilities.values()) == pytest.approx(1.0)
    assert expected[0].probability == max(expected[0].probabilities.values())


def test_names_of_a_row_count_and_not_its_order(predictor):
    """Of pandas, of named tuples and of records: in another order than the model's."""
    frame = pd.DataFrame({"open": [True, False], "colour": ["red", "blue"], "length": [1.5, -2.0]})
    expected = predictor([[1.5, "red", True], [-2.0, "blue", False]])
    assert predictor(frame) == predictor(pl.DataFrame(frame.to_dict("list"))) == expected
    assert [predictor(row) for _, row in frame.iterrows()] == expected
    assert list(frame.apply(predictor, axis=1)) == expected
    assert predictor(list(frame.itertuples(index=False))) == expected
    assert predictor(frame.to_records(index=False)) == expected
    assert predictor(frame.astype({"colour": "category", "open": "boolean"})) == expected
    with pytest.raises(ValueError, match="the frame has two columns called 'open': rename one"):
        predictor(pd.concat([frame, frame[["open"]]], axis=1))
    numbered = Predictor(nn.MLP(2, [1], rng=0), Problem("regression", ["0", "1"], "y", []))
    assert len(numbered(pd.DataFrame(np.ones((2, 2))))) == 2


def test_what_does_not_fit_is_refused_when_it_is_made():
    for arguments, message in [
        (("classification", ["a"], "y", []), "`task` must be one of regression, margin, binary, classes, got 'class"),
        (("classes", ["a"], "y", ["p", "p"]), "`classes` must be different"),
        (("classes", ["a"], "y", ["p"]), "`classes` must be two or more for the task 'classes'"),
        (("regression", ["a", "a"], "y", []), "`columns` has a name twice"),
        (("regression", [3], "y", []), "`columns` must be names, or columns"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            Problem(*arguments)
    squashed = nn.MLP(2, [1], output="sigmoid")
    with pytest.raises(
        ValueError, match="output is 'sigmoid', and the task 'binary' takes plain numbers: train one with"
    ):
        Predictor(squashed, Problem("binary", ["a", "b"], "y", []))
    assert Predictor(squashed, Problem("regression", ["a", "b"], "y", []))([1.0, 2.0]).prediction > 0


@pytest.mark.parametrize("classes", [[3, 5], [False, True], [0.5, 1.5]])
def test_classes_may_be_numbers(classes, tmp_path):
    kind = Predictor(nn.MLP(1, [2], rng=0), Problem("classes", ["x"], "y", classes))
    kind.save(tmp_path / "kind.st")
    again = chainrule.load(tmp_path / "kind.st")
    assert again([2.0]) == kind([2.0])
    assert again([2.0]).prediction in classes


def test_numbers_alone_may_be_an_array():
    network = nn.MLP(2, [3, 1], rng=0)
    price = Predictor(network, Problem("regression", [Column("area"), Column("rooms")], "price", []))
    rows = np.random.default_rng(0).normal(size=(200, 2))
    answers = price(rows)
    assert [answer.prediction for answer in answers] == pytest.approx([network(list(row)).data for row in rows])
    assert price(rows[0]) == Answer(pytest.approx(network(list(rows[0])).data))
    assert answers[0].probability is None


def test_what_is_missing_is_filled_as_in_training(predictor):
    assert predictor([1.5, None, True]) == predictor([1.5, "red", True])
    assert predictor([1.5, float("nan"), True]) == predictor([1.5, "", True]) == predictor([1.5, "red", True])
    with pytest.raises(ValueError, match=r"`rows` has nan in row 0, column 'length', where a number was expected"):
        predictor([float("nan"), "red", True])


MISTAKES = [
    ([1.5, "green", True], "`rows` has 'green' in row 0, column 'colour', where one of blue, red was expected"),
    ([[1.5, "red", True], ["x", "red", True]], "`rows` has 'x' in row 1, column 'length', where a number was expected"),
    ([1.5, "red"], "`rows` has 2 numbers or texts in row 0; the model takes 3: length, colour, open"),
    ([[1.5, "red", True], 3], "`rows` has 1 numbers or texts in row 1"),
    ({"length": 1.5, "open": True}, "`rows` has no colour: the model takes length, colour, open"),
    (Frame(length=[1.5]), "the frame has no colour, open: the model takes length, colour, open"),
    ([1.5, "red", 2], "`rows` has 2 in row 0, column 'open', where true or false was expected"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "message"), MISTAKES)
def test_a_mistake_is_named(predictor, rows, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        predictor(rows)


@pytest.mark.parametrize("rows", ["1,2,3", 3.0, None, np.array(["2020-01-01"] * 3, dtype="datetime64[ns]")])
def test_what_is_no_row_is_refused(predictor, rows):
    with pytest.raises(TypeError, match="`rows` must be a row, rows, an array or a frame of numbers and texts"):
        predictor(rows)


def test_a_file_holds_all_of_it(predictor, tmp_path):
    path = tmp_path / "kind.safetensors"
    chainrule.save(predictor, path, {"author": "Ada"})
    again = chainrule.load(path)
    assert again.problem == predictor.problem
    assert again([1.5, None, True]) == predictor([1.5, None, True])
    assert chainrule.files.notes(path)["author"] == "Ada"
    network = "MLP(4, [5, 2], activation='tanh', output='linear')"
    assert repr(again) == f"<Predictor of kind (rose, violet) from length, colour, open: {network}>"
    with pytest.raises(ValueError, match="holds a predictor, whose network is nothing without it: load it with load"):
        chainrule.load(path, nn.MLP(4, [5, 2], activation="tanh"))


def test_a_problem_that_does_not_fit_the_network():
    with pytest.raises(
        ValueError, match="describes other data than the network takes: 4 inputs and 2 outputs, where it"
    ):
        Predictor(nn.MLP(3, [2]), Problem("classes", FLOWERS, "kind", ["rose", "violet"]))


@pytest.mark.parametrize(
    "change",
    [
        {"columns": [{"name": "a", "kind": "choice", "choices": [], "fill": None}]},
        {"columns": [{"name": "a", "kind": "choice", "choices": ["x", "x"], "fill": None}]},
        {"columns": [{"name": "a", "kind": "choice", "choices": ["x"], "fill": "y"}]},
        {"columns": [{"name": "a", "kind": "number", "choices": ["x"], "fill": None}]},
        {"columns": [{"name": "a", "kind": "number", "choices": [], "fill": "y"}]},
        {"columns": [{"name": "a", "kind": "number", "choices": [], "fill": float("inf")}]},
        {"columns": [{"name": "a", "kind": "dates", "choices": [], "fill": None}]},
        {"columns": [{"name": "a", "kind": "choice", "choices": ["\ud800"], "fill": None}]},
        {"columns": [{"name": "a", "kind": "choice", "choices": 7, "fill": None}]},
        {"columns": [{"name": ["a"], "kind": "number", "choices": [], "fill": None}]},
        {"columns": [{"name": "a"}]},
        {"columns": "a"},
        {"task": "sorting"},
        {"target": None},
    ],
)
def test_hostile_descriptions_are_refused_in_a_sentence(change, tmp_path):
    good = {"task": "regression", "columns": ["a"], "target": "y", "classes": []}
    path = tmp_path / "m.safetensors"
    chainrule.save(nn.MLP(1, [1]), path, {"problem": json.dumps(good)})
    assert chainrule.load(path).problem.names == ["a"]
    chainrule.save(nn.MLP(1, [1]), path, {"problem": json.dumps(good | change)})
    with pytest.raises(ValueError, match="the file's description of its data"):
        chainrule.load(path)


def test_a_predictor_of_ones_own(tmp_path):
    """In Python, without the command line: encode, train, wrap, save."""
    rows = [(x, "ab"[x % 2], x + 10 * (x % 2)) for x in range(20)]
    columns = [Column("x"), Column("kind", "choice", ("a", "b"))]
    inputs = list(
        zip(*columns[0].encoded([r[0] for r in rows]), *columns[1].encoded([r[1] for r in rows]), strict=True)
    )
    model = nn.MLP(3, [1], rng=0)
    examples = data.Dataset(map(list, inputs), [y for *_, y in rows])
    chainrule.fit(model, losses.mean_square, examples, optimizer=chainrule.optim.Adam(model.parameters(), lr=0.3),
                  epochs=400, progress=False, compiled=True)  # fmt: skip
    chainrule.save(Predictor(model, Problem("regression", columns, "y", [])), tmp_path / "m.st")
    assert chainrule.load(tmp_path / "m.st")({"x": 7, "kind": "b"}).prediction == pytest.approx(17.0, abs=0.5)


def test_rows_without_an_order_or_without_rows_are_refused(predictor):
    """The entries of a set may come in any order, so they are no row."""
    import scipy.sparse

    numbers = Predictor(nn.MLP(2, [1], rng=0), Problem("regression", ["a", "b"], "y", []))
    for rows in ({1.0, 2.0}, frozenset([1.0, 2.0]), [{1.0, 2.0}]):
        with pytest.raises((TypeError, ValueError), match="`rows` "):
            numbers(rows)
    with pytest.raises(TypeError, match=re.escape("got csr_matrix: give what .toarray() returns")):
        numbers(scipy.sparse.csr_matrix([[1.0, 2.0]]))
    with pytest.raises(TypeError, match=re.escape("got LazyFrame: call .collect() first")):
        numbers(pl.DataFrame({"a": [1.0], "b": [2.0]}).lazy())


def test_probabilities_are_in_the_order_of_the_classes():
    problem = Problem("binary", ["x"], "y", [])
    for logit in (-2.0, 2.0):
        assert list(problem.answer([logit]).probabilities) == [0, 1]
        assert problem.answer([logit]).probabilities[1] == pytest.approx(1 / (1 + np.exp(-logit)))
    assert "(1, 2.5)" in repr(Predictor(nn.MLP(1, [2], rng=0), Problem("classes", ["x"], "y", [1, 2.5])))
