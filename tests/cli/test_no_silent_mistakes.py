"""Tables and habits of people that would give a wrong number, or lose a row, without a word."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

import chainrule
from chainrule.cli.problems import scale

pytestmark = pytest.mark.usefixtures("folder")  # every command runs in an empty one


def write(name, header, rows):
    with open(name, "w") as file:
        file.write("".join(",".join(map(str, row)) + "\n" for row in [header, *rows]))


def line(count=80):
    """A table that is easy to learn from."""
    return [(k, 3 * k + 1) for k in range(count)]


@pytest.mark.parametrize("number", [0.1, 0.7, 1e-5, 1234.56789, -1 / 3])
@pytest.mark.parametrize("count", [61, 97, 150])
def test_a_constant_column_has_no_say_however_its_mean_is_rounded(run, number, count):
    write("f.csv", ["x", "rate", "y"], [(x, number, y) for x, y in line(count)])
    run("train", "f.csv", "--steps", "20", "--save", "m.st")
    model = chainrule.load("m.st")
    assert model([5, number]) == model([5, number + 1.0]) == model([5, -1e9])


def test_columns_are_scaled_as_scikit_learn_scales_them():
    rng = np.random.default_rng(3)
    rows = np.column_stack([rng.normal(1e9, 3.0, 50), rng.normal(0.0, 1e-200, 50), [0.1] * 50, rng.normal(size=50)])
    scaling = scale(chainrule.data.Dataset(rows.tolist(), [0.0, 1.0] * 25), "binary")
    prepared = np.array(scaling.prepared(chainrule.data.Dataset(rows.tolist(), [0.0] * 50)).inputs)
    expected = StandardScaler().fit_transform(rows * [1.0, 1e200, 1.0, 1.0])
    np.testing.assert_allclose(prepared[:, [0, 1, 3]], expected[:, [0, 1, 3]], atol=1e-6)
    assert not prepared[:, 2].any()


def test_a_run_is_resumed_on_its_own_data_only(run, refused):
    """Another seed is another split: it would validate on examples that the run has learned from."""
    write("f.csv", ["x", "y"], line())
    write("g.csv", ["x", "y"], [(x, -y) for x, y in line()])
    resume = ["--steps", "20", "--checkpoint", "c.st", "--resume"]
    assert run("train", "f.csv", *resume)[0] == 0
    for source, *changed in (["f.csv", "--seed", "1"], ["g.csv"], ["f.csv", "--validation", "0.2", "--test", "0.1"]):
        assert "'c.st' is of a run" in refused("train", source, *resume, *changed)
    assert "the model was {" in refused("train", "f.csv", *resume, "--activation", "relu")
    assert run("train", "f.csv", *resume, "--save", "m.st")[0] == 0


def test_a_checkpoint_can_be_had_before_it_is_known_where_to_save(run):
    command = ["train", "moons", "--points", "20", "--checkpoint", "c.st"]
    assert run(*command, "--steps", "5")[0] == 0
    assert run(*command, "--steps", "9", "--resume", "--save", "m.st")[0] == 0


def test_the_network_of_a_checkpoint_is_not_taken_for_the_model(run, refused):
    """It takes scaled columns, and would answer in scaled units."""
    write("f.csv", ["x0", "y"], line())
    run("train", "f.csv", "--steps", "5", "--checkpoint", "c.st")
    assert "whose network takes scaled columns: go on with --resume and --save" in refused("predict", "c.st", "f.csv")
    for model in (), (chainrule.nn.MLP(1, [16, 16, 1], activation="tanh"),):
        with pytest.raises(ValueError, match="is a run of chainrule train, whose network takes scaled columns"):
            chainrule.load("c.st", *model)


def test_a_checkpoint_is_there_already(run, refused):
    write("f.csv", ["x", "y"], line())
    run("train", "f.csv", "--steps", "5", "--checkpoint", "c.st")
    message = "chainrule: --checkpoint is there already: 'c.st'; say --resume to go on from it, or remove it first\n"
    assert refused("train", "f.csv", "--steps", "5", "--checkpoint", "c.st") == message


@pytest.mark.parametrize("spell", [str, lambda y: f"{y}.0"])
@pytest.mark.parametrize("labels", [(0, 1, 2), (3, 5, 10)])
def test_numbers_that_name_classes_are_predicted_as_numbers(run, labels, spell):
    """So that they are equal to those of a frame or an array."""
    rows = [(10 * k + j, spell(labels[k])) for j in range(7) for k in range(3)]
    write("f.csv", ["x", "y"], rows)
    task = "auto" if labels[0] == 0 else "classes"
    assert json.loads(run("train", "f.csv", "--task", task, "--save", "m.st", "--json")[1])["classes"] == list(labels)
    table = pd.read_csv("f.csv")
    answers = chainrule.load("m.st")(table)
    share = np.mean([answer.prediction for answer in answers] == table["y"])
    assert share > 0.9
    assert list(answers[0].probabilities) == list(labels)
    assert json.loads(run("predict", "m.st", "f.csv", "--json")[1])["accuracy"] == pytest.approx(share)
    assert "(" + ", ".join(map(str, labels)) + ")" in repr(chainrule.load("m.st"))


def test_a_class_is_spelled_in_many_ways_or_is_a_code(run):
    write("f.csv", ["x", "y"], [(k, ["1", "1.0", "2", "2e0"][k % 4]) for k in range(20)])
    assert "task: classes (1, 2)\n" in run("train", "f.csv", "--task", "classes", "--steps", "2")[1]
    write("f.csv", ["x", "y"], [(k, ["007", "7", "08"][k % 3]) for k in range(20)])
    assert "task: classes (007, 08, 7)\n" in run("train", "f.csv", "--task", "classes", "--steps", "2")[1]
    long = [12345678901234567890, 12345678901234567891]
    write("f.csv", ["x", "y"], [(k, long[k % 2]) for k in range(20)])
    assert f"task: classes ({long[0]}, {long[1]})\n" in run("train", "f.csv", "--task", "classes", "--steps", "2")[1]


def test_a_first_row_with_a_rare_class_is_no_header(run):
    rows = [(f"{k}.5", k, ["common", "other"][k % 2]) for k in range(30)]
    write("f.csv", ["7.5", 3, "rare"], rows)
    out = run("train", "f.csv", "--steps", "2")[1]
    assert "31 examples of x0, x1; task: classes (common, other, rare)\nnote: no header was found" in out
    write("f.csv", [0, 1, "kind"], rows)
    out = run("train", "f.csv", "--steps", "2")[1]
    assert "30 examples of 0, 1; task: classes (common, other)" in out
    assert "note: the first row was taken for the columns' names, 0, 1, kind; if it is data, say --header no" in out


def test_two_whole_numbers_are_asked_about(run):
    write("f.csv", ["x", "y"], [(k, 1 + k % 2) for k in range(20)])
    out = run("train", "f.csv", "--steps", "2")[1]
    assert "note: column 'y' holds 2 different whole numbers: taken as a regression; --task classes for classes" in out
    for pair in (0, 1), (-1, 1):
        write("f.csv", ["x", "y"], [(k, pair[k % 2]) for k in range(20)])
        assert "whole numbers" not in run("train", "f.csv", "--steps", "2")[1]


def test_ids_are_noticed_by_their_names_too(run):
    columns = ["PassengerId", "user_id", "paid", "x", "y"]
    write("f.csv", columns, [(7919 * k % 1009, 1e6 - k * k, k * k, k, 3 * k) for k in range(20)])
    notes = [text for text in run("train", "f.csv", "--steps", "2")[1].splitlines() if "numbers the rows" in text]
    assert [note.split("'")[1] for note in notes] == ["PassengerId", "user_id", "x"]


def test_missing_cells_become_the_mean_of_huge_numbers_and_the_usual_flag(run):
    """More flags are true, though neither spelling of it is as frequent as "false"."""
    write("f.csv", ["x", "on", "y"], [(1.5e308, ["true", "TRUE", "false"][k % 3], k) for k in range(12)])
    with open("f.csv", "a") as file:
        file.write(",false,3\n1.7e308,,4\n")
    out = run("train", "f.csv", "--missing", "mean", "--steps", "2", "--raw")[1]
    assert "note: column 'x': missing values became 1.515e+308" in out
    assert "note: column 'on': missing values became 1" in out


@pytest.mark.parametrize("option", ["--inputs", "--drop"])
def test_a_column_in_use_is_not_suggested(run, refused, option):
    write("f.csv", ["colour", "size", "y"], [(k, k, k) for k in range(5)])
    assert "has no column 'color': it has colour, size, y" in refused("train", "f.csv", option, "colour,color")
    assert "has no column 'color': did you mean 'colour'?" in refused("train", "f.csv", option, "size,color")


@pytest.mark.parametrize(("options", "rows"), [(["--test", "0.2"], 2), (["--validation", "0.9"], 1)])
def test_too_few_rows_for_a_part(refused, options, rows):
    write("f.csv", ["x", "y"], line(rows))
    name, share = options
    examples = "1 example" if rows == 1 else f"{rows} examples"
    assert f"`{name}` {share} of {examples} leaves a part empty: give more" in refused("train", "f.csv", *options)


def test_options_for_files_are_not_ignored(refused):
    assert "`--missing` is for CSV files; moons has no columns" in refused("train", "moons", "--missing", "mean")


def test_a_pipe_is_read_as_standard_input(refused, folder):
    os.mkfifo(folder / "pipe.csv")
    assert "is not a plain file; give the name of a CSV file, or - for" in refused("train", "pipe.csv")


def test_one_row_that_is_learned_is_not_called_a_failure(run):
    write("f.csv", ["x", "y"], line(1))
    assert "no better than" not in run("train", "f.csv", "--steps", "2")[1]


def test_a_reader_may_stop_reading(run):
    write("f.csv", ["x", "y"], line(30_000))
    run("train", "f.csv", "--steps", "2", "--save", "m.st")
    command = [sys.executable, "-c", "import sys; from chainrule.cli import main; sys.exit(main())"]
    process = subprocess.Popen(
        [*command, "predict", "m.st", "f.csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "x,y,prediction\n"
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 1
