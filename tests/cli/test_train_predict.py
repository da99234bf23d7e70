"""`chainrule train` and `chainrule predict`: what they learn, how honest they are about it, and what they refuse."""

import csv
import io
import itertools
import json
import math
import os
import re
from random import Random
from statistics import fmean

import pytest
import torch
from sklearn import metrics
from sklearn.linear_model import LinearRegression

import chainrule
from chainrule.cli.problems import pose, scale
from chainrule.cli.scores import Tally
from chainrule.data.columns import Column
from chainrule.predictor import Problem

pytestmark = pytest.mark.usefixtures("folder")  # every command runs in an empty one


@pytest.mark.both
@pytest.mark.parametrize("name", ["xor", "four-points", "moons", "circles", "spirals"])
def test_train_learns_every_data_set(run, monkeypatch, name):
    monkeypatch.setattr("chainrule.training.plan.MANY", 20)  # of few examples and of many, each in its way
    steps = "1000" if name == "spirals" else "200"
    code, out, err = run("train", name, "--points", "60", "--steps", steps, "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert answer["accuracy"] == 1.0
    assert answer["loss"]["last"] < 0.2 * answer["loss"]["first"]
    assert answer["task"] == ("binary" if name == "xor" else "margin")
    assert answer["steps"] == int(steps)


def test_train_with_every_option(run, folder):
    network = ["--hidden", "8,4", "--activation", "relu", "--optimizer", "sgd", "--lr", "0.05", "--l2", "0.001"]
    network += ["--steps", "20", "--seed", "3"]
    points = ["--points", "40", "--noise", "0.2", "--test", "0.25"]
    code, out, err = run("train", "moons", *network, *points, "--plot", "p.png", "--save", "m.safetensors")
    assert (code, err) == (0, "")
    assert "moons: 30 examples of x0, x1; task: margin" in out
    assert "MLP(2, [8, 4, 1], activation='relu', output='linear'), 65 parameters" in out
    assert "sgd, lr 0.05, l2 0.001, 20 steps in" in out
    assert "test, 10 examples:  accuracy" in out
    assert out.endswith("wrote p.png\nwrote m.safetensors\n")
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")
    assert chainrule.load("m.safetensors").network.config()["nouts"] == [8, 4, 1]
    assert sorted(path.name for path in folder.iterdir()) == ["m.safetensors", "p.png"]


def test_a_seed_decides_everything(run):
    first, again, other = (
        json.loads(run("train", "moons", "--points", "20", "--steps", "5", "--seed", seed, "--json")[1])["loss"]
        for seed in "778"
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop", "sgd"])
def test_every_optimizer_makes_the_loss_smaller(run, optimizer):
    arguments = ["--points", "20", "--steps", "30", "--optimizer", optimizer]
    loss = json.loads(run("train", "circles", *arguments, "--json")[1])["loss"]
    assert loss["last"] < loss["first"]


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_pictures_of_every_kind(run, folder, kind, iris):
    assert run("train", iris, "--steps", "2", "--plot", f"p.{kind}")[0] == 0  # four inputs: no boundary to draw
    start = (folder / f"p.{kind}").read_bytes()[:200]
    assert {"png": b"PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind] in start


def test_classes_of_a_csv_file_are_learnt_and_predicted(run, iris, monkeypatch):
    monkeypatch.setattr("chainrule.training.plan.MANY", 20)
    code, out, _ = run("train", iris, "--steps", "150", "--save", "iris.st", "--test", "0.3", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["task"] == "classes"
    assert answer["classes"] == ["setosa", "versicolor", "virginica"]
    assert (answer["examples"], answer["test"]["examples"]) == (35, 15)
    assert answer["accuracy"] > 0.95
    assert answer["test"]["accuracy"] > 0.9
    code, out, err = run("predict", "iris.st", iris)
    rows = list(csv.DictReader(out.splitlines()))
    assert code == 0
    assert [row["prediction"] for row in rows[:2]] == ["setosa", "setosa"]
    right = sum(row["prediction"] == name for row, name in zip(rows, read_column(iris, "species"), strict=True))
    assert f"accuracy {right / 50:.1%}" in err
    assert all(1 / 3 < float(row["probability"]) <= 1.0 for row in rows)
    at = "sepal length=5.1,sepal width=3.5,petal length=1.4,petal width=0.2"
    assert run("predict", "iris.st", "--at", at)[1].startswith("prediction setosa  probability 0.9")


def read_column(path, name):
    with open(path) as file:
        return [row[name] for row in csv.DictReader(file)]


def test_a_linear_regression_is_that_of_scikit_learn(run, folder):
    rows = [(x, z, 3.0 * x - 100.0 * z + 7.0 + 0.3 * ((7 * x) % 3 - 1)) for x in range(10) for z in (0.01, 0.02, 0.05)]
    with open(folder / "line.csv", "w") as file:
        csv.writer(file).writerows([("x", "z", "y"), *rows])
    options = ["--hidden", "", "--steps", "2000", "--l2", "0"]
    code, out, _ = run("train", "line.csv", *options, "--save", "line.st", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["task"] == "regression"
    theirs = LinearRegression().fit([row[:2] for row in rows], [row[2] for row in rows])
    expected = theirs.predict([[4.5, 0.03], [0.0, 0.0]])
    assert run("predict", "line.st", "--at", "x=4.5,z=0.03")[1] == f"prediction {expected[0]:.6g}\n"
    (folder / "new.csv").write_text("z,extra,x\n0.03,text,4.5\n0,,0\n")  # columns go by name, and others do not matter
    code, out, err = run("predict", "line.st", "new.csv", "-o", "out.csv")
    assert (code, out, err) == (0, "wrote out.csv, 2 rows\n", "")
    assert [float(n) for n in read_column("out.csv", "prediction")] == pytest.approx(expected, rel=1e-5)
    (folder / "bare.csv").write_text("4.5,0.03\n")  # without a header they go by place
    answer = json.loads(run("predict", "line.st", "bare.csv", "--json")[1])
    assert answer["predictions"][0]["prediction"] == pytest.approx(expected[0], rel=1e-6)
    assert "rms error" in json.loads(run("predict", "line.st", "line.csv", "--json")[1])


def test_targets_decide_the_task_unless_the_user_does(run, folder):
    for targets, task in (
        ("-1 1 1", "margin"),
        ("0 1 1", "binary"),
        ("0.5 2 1", "regression"),
        ("1 2 3", "regression"),
    ):
        lines = [f"{k},{target}" for k, target in enumerate(targets.split())]
        (folder / "f.csv").write_text("\n".join(["x,y", *lines]))
        assert json.loads(run("train", "f.csv", "--steps", "1", "--json")[1])["task"] == task
    answer = json.loads(run("train", "f.csv", "--steps", "1", "--task", "classes", "--json")[1])
    assert answer["classes"] == [1, 2, 3]
    answer = json.loads(run("train", "f.csv", "--steps", "1", "--target", "x", "--json")[1])
    assert answer["inputs"] == ["y"]
    assert json.loads(run("train", "f.csv", "--steps", "1", "--target", "0", "--json")[1])["inputs"] == ["y"]


def test_many_examples_give_the_same_losses_as_few_would(run, monkeypatch):
    arguments = ["train", "spirals", "--points", "60", "--steps", "20", "--json"]
    few = json.loads(run(*arguments)[1])
    monkeypatch.setattr("chainrule.training.plan.MANY", 50)
    many = json.loads(run(*arguments)[1])
    assert many["engine"].endswith("scalar nodes per example")
    assert many["loss"]["first"] == pytest.approx(few["loss"]["first"], rel=1e-12)
    assert many["loss"]["last"] == pytest.approx(few["loss"]["last"], rel=1e-6)


# Honest results.


@pytest.fixture
def noise(folder):
    """A file with nothing to learn: targets that have nothing to do with the inputs."""
    rng = Random(1)
    with open(folder / "noise.csv", "w") as file:
        rows = [[*[rng.gauss(0, 1) for _ in range(6)], rng.gauss(50, 10)] for _ in range(80)]
        csv.writer(file).writerows([[*"abcdef", "y"], *rows])
    return "noise.csv"


def table_of(folder, rows):
    with open(folder / "f.csv", "w") as file:
        csv.writer(file).writerows([["x", "z", "y"], *rows])
    return "f.csv"


def test_a_result_that_is_no_better_than_its_baseline_is_said_in_words(run, noise):
    code, out, _ = run("train", noise, "--l2", "0", "--validation", "0", "--test", "0.4", "--steps", "300")
    assert code == 0
    assert re.search(r"training, 48 examples:  rms error [\d.]+  R² 0\.\d+  \(always [\d.]+: [\d.]+\)", out)
    assert re.search(r"On the test examples this is no better than an answer that ignores the inputs, always 4\d", out)


def test_scores_are_those_of_scikit_learn(run, folder):
    rng = Random(2)
    rows = [
        [x := rng.gauss(0, 1), z := rng.gauss(0, 1), "ham" if x + z + rng.gauss(0, 1) > -2 else "spam"]
        for _ in range(150)
    ]
    table_of(folder, rows)
    answer = json.loads(run("train", "f.csv", "--steps", "60", "--save", "m.st", "--validation", "0", "--json")[1])
    _, out, err = run("predict", "m.st", "f.csv")
    found, wanted = [row["prediction"] for row in csv.DictReader(out.splitlines())], [row[2] for row in rows]
    assert answer["accuracy"] == pytest.approx(metrics.accuracy_score(wanted, found))
    assert answer["balanced accuracy"] == pytest.approx(metrics.balanced_accuracy_score(wanted, found))
    assert answer["baseline"] == "always 'ham'"
    assert answer["baseline accuracy"] == pytest.approx(wanted.count("ham") / 150)
    assert f"balanced accuracy {answer['balanced accuracy']:.1%}  (always 'ham': " in err
    rows = [[x, z, 3 * x - z + rng.gauss(0, 0.3)] for x, z, _ in rows]
    table_of(folder, rows)
    answer = json.loads(run("train", "f.csv", "--steps", "60", "--save", "m.st", "--validation", "0", "--json")[1])
    found = [float(row["prediction"]) for row in csv.DictReader(run("predict", "m.st", "f.csv")[1].splitlines())]
    assert answer["R2"] == pytest.approx(metrics.r2_score([row[2] for row in rows], found), abs=1e-4)


def test_held_out_examples_decide_when_to_stop(run, noise):
    answer = json.loads(run("train", noise, "--l2", "0", "--json")[1])
    assert (answer["examples"], answer["validation"]["examples"]) == (68, 12)
    assert answer["steps"] < 500
    assert answer["ended"].startswith("validation_loss has not improved on")
    assert answer["validation"]["rms error"] < 1.1 * answer["validation"]["baseline rms error"]
    everything = json.loads(run("train", noise, "--validation", "0", "--steps", "30", "--json")[1])
    assert (everything["examples"], everything["validation"], everything["steps"]) == (80, None, 30)


def test_parts_have_the_classes_in_equal_shares(run, folder):
    table_of(folder, [[k % 7, k % 5, "rare" if k < 20 else "usual"] for k in range(100)])
    answer = json.loads(run("train", "f.csv", "--steps", "2", "--test", "0.3", "--json")[1])
    assert answer["test"]["baseline accuracy"] == 0.8
    assert answer["validation"]["baseline accuracy"] == pytest.approx(0.8, abs=0.03)


def test_many_examples_are_learned_in_batches(run, folder):
    rng = Random(3)
    rows = [[x := rng.uniform(-1, 1), z := rng.uniform(-1, 1), x * z] for _ in range(700)]
    table_of(folder, rows)
    answer = json.loads(run("train", "f.csv", "--json")[1])
    assert answer["batch size"] == 64
    assert answer["steps"] <= 3000
    assert answer["validation"]["R2"] > 0.95
    answer = json.loads(run("train", "f.csv", "--batch-size", "1000", "--steps", "3", "--json")[1])
    assert (answer["batch size"], answer["steps"]) == (595, 3)


def test_a_loss_that_ends_far_above_its_start_is_a_finding(run, folder, iris):
    code, out, err = run("train", iris, "--lr", "100", "--optimizer", "sgd", "--steps", "50", "--save", "m.st")
    assert (code, out) == (1, "")
    assert re.match(r"chainrule: the loss rose from \S+ to \S+; try a smaller learning rate than 100; nothing was", err)
    assert not (folder / "m.st").exists()


def test_what_was_learned_before_ctrl_c_is_saved(run, folder, iris, monkeypatch):
    fit = chainrule.fit

    def interrupted(*arguments, callbacks, **settings):
        def interrupt(training):
            if training.epoch == 40:
                raise KeyboardInterrupt

        return fit(*arguments, callbacks=[*callbacks, interrupt], **settings)

    monkeypatch.setattr(chainrule, "fit", interrupted)
    code, out, err = run("train", iris, "--validation", "0.2", "--save", "m.st")
    assert code == 130
    assert err == "chainrule: interrupted after 41 epochs; the best so far was saved\n"
    assert "41 steps in" in out
    assert json.loads(run("predict", "m.st", iris, "--json")[1])["accuracy"] > 0.7


def test_a_run_can_be_resumed(run, folder, iris, refused):
    assert "`--resume` goes on from the file of --checkpoint: name it" in refused("train", iris, "--resume")
    options = ["train", iris, "--validation", "0.2", "--save", "m.st"]
    whole = json.loads(run(*options, "--steps", "30", "--json")[1])
    assert run(*options, "--steps", "30", "--checkpoint", "c.st")[0] == 0
    again = json.loads(run(*options, "--steps", "30", "--checkpoint", "c.st", "--resume", "--json")[1])
    assert again["loss"] == whole["loss"]
    assert again["validation"] == whole["validation"]


@pytest.mark.parametrize("most", [500, 10])
def test_a_training_that_diverges_is_a_finding(run, folder, monkeypatch, most):
    monkeypatch.setattr("chainrule.training.plan.MANY", most)
    arguments = ["--activation", "linear", "--optimizer", "sgd", "--lr", "1e200", "--task", "regression"]
    code, out, err = run("train", "moons", *arguments, "--save", "m.st", "--plot", "p.png")
    assert (code, out) == (1, "")
    assert re.match(r"chainrule: the loss became (inf|nan) by \w+ \d+; try a smaller .*; nothing was written\n", err)
    assert list(folder.iterdir()) == []


def test_predict_with_a_model_saved_by_hand(run, folder):
    model = chainrule.nn.MLP(2, [3, 1], rng=1)
    chainrule.save(model, "hand.safetensors")
    expected = model([1.0, 2.0]).data
    assert run("predict", "hand.safetensors", "--at", "x0=1,x1=2")[1] == f"prediction {expected:.12g}\n"


CSV_MISTAKES = {
    "a,b,y\n1,2,3\n1,,3\n": "'f.csv', row 3, column 'b': found nothing, a missing value, where a number was expected",
    "a,b,y\n1,two,3\n1,2,3\n": "'f.csv', row 2, column 'b': found 'two', where a number was expected",
    "a,b,y\n"
    + "1,2020-01-01,3\n": "it looks like a date or a time: write it as numbers, such as days since a first one, "
    "or leave the column out (--drop)",
    "a,b,y\n1,2,3\n1,2,x\n": "found 'x', where a number was expected; 1 of the 2 entries are numbers; if they name "
    "classes, say --task classes",
    "a,b,y\n1,2\n": "'f.csv', row 2: found 2 cells, where row 1 has 3",
    "": "'f.csv' is empty",
    "a,y\n1,p\n2,p\n": "column 'y' holds 1 class, and two or more are needed",
    "a,name\n" + "".join(f"{k},n{k}\n" for k in range(9)): "column 'name' holds another text in every row",
}


@pytest.mark.parametrize("content", CSV_MISTAKES, ids=lambda content: repr(content[:20]))
def test_train_with_a_file_that_is_not_right(refused, folder, content):
    (folder / "f.csv").write_text(content)
    assert CSV_MISTAKES[content] in refused("train", "f.csv", "--save", "model", "--plot", "p.png", lines=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "there is no data set 'nonsense': choose xor, four-points, moons, circles, spirals, or give"),
        (["missing.csv"], "there is no file 'missing.csv'"),
        (["."], "'.' is not a plain file; give the name of a CSV file"),
        (["moons", "--hidden", "16,x"], "`--hidden` must be sizes of layers, as in 16,16; got '16,x'"),
        (["moons", "--hidden", "0"], "`--hidden` must be sizes of layers"),
        (["moons", "--activation", "step"], "`activation` must be a function, 'linear' or one of"),
        (["moons", "--lr", "-1"], "`lr` must be at least 0 and finite, got -1.0"),
        (["moons", "--lr", "nan"], "`lr` must be at least 0 and finite, got nan"),
        (["moons", "--target", "x"], "`--target` is for CSV files; moons has no columns to choose from"),
        (["moons", "--task", "classes"], "column 'target' holds 0 class"),
        (["moons", "--task", "binary"], "column 'target' holds -1, and the task 'binary' has targets [0, 1] only"),
        (["moons", "--test", "0.001"], "leaves a part empty"),
        (["moons", "--save", "no/such/folder/m.st"], "`--save` no/such/folder/m.st: `path` is in a folder that does"),
        (["moons", "--plot", "no/such/folder/p.png"], "`--plot` no/such/folder/p.png: `path` is in a folder that does"),
        (["moons", "--save", "."], "give the name of a file"),
        (["moons", "--plot", "picture"], "`--plot` picture: the name must end in a kind of picture, such as .png"),
        (["moons", "--plot", "p.txt"], "the name must end in a kind of picture"),
        (["moons", "--plot", "p.png", "--save", "./p.png"], "`--plot` and `--save` are the same file"),
        (["moons", "--hidden", "99999999999"], "`--hidden` '99999999999' on 2 columns is too large: 1,000,000 param"),
        (["moons", "--hidden", "9" * 5000], "is too large: 1,000,000 parameters and 10,000 layers are the most"),
        (["moons", "--hidden", "1000,1000"], "is too large"),
        (["moons", "--hidden", "1," * 10_000], "is too large"),
        (["moons", "--hidden", "²"], "`--hidden` must be sizes of layers, as in 16,16; got '²'"),
        (["moons", "--hidden", "٣"], "`--hidden` must be sizes of layers"),
        (["moons", "--hidden", "\x1b[2J" * 9999], "`--hidden` must be sizes of layers"),
        (["moons", "--points", "99999999999"], "99999999999 is not in the range 2<=x<=1000000"),
        (["moons", "--steps", "99999999999"], "99999999999 is not in the range 1<=x<=10000000"),
        (["moons", "--l2", "nan"], "`--l2` must be at least 0 and finite, got nan"),
        (["moons", "--l2", "inf"], "`--l2` must be at least 0 and finite, got inf"),
        (["moons", "--noise", "nan"], "`noise` must be at least 0 and finite, got nan"),
        (["\x1b]0;owned\x07" * 9999], "there is no data set '\\x1b]0;owned"),
    ],
)
def test_train_with_arguments_that_are_not_right(refused, monkeypatch, arguments, message):
    monkeypatch.setattr(chainrule, "fit", None)  # it is all found out before training begins
    assert message in refused("train", *arguments)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that nobody can write to")
def test_a_folder_that_cannot_be_written_to(refused):
    assert "a folder that takes no files: '/proc" in refused("train", "xor", "--save", "/proc/self/model.st")


def test_target_columns_that_do_not_fit(refused, iris):
    assert "has no column '99999999999999" in refused("train", iris, "--target", "9" * 5000)
    assert "has no column 'specis': did you mean 'species'?" in refused("train", iris, "--target", "specis")
    assert "and none of the index 9: count from 0" in refused("train", iris, "--target", "9")
    assert "found 'setosa', where a number was expected" in refused("train", iris, "--task", "regression")
    assert "`--noise` is for generated sets" in refused("train", iris, "--noise", "1")


def test_without_matplotlib_plot_says_what_to_install(refused, monkeypatch):
    monkeypatch.setattr("chainrule.cli.train_command.find_spec", lambda name: None)
    assert "install it with pip install 'chainrule[plot]'" in refused("train", "xor", "--plot", "p.png")


def test_explaining_more_nodes_than_anybody_reads(run, refused):
    assert run("grad", " + ".join(["a"] * 150), "--at", "a=1", "--explain")[0] == 0
    for more in ([], ["--json"]):
        message = refused("grad", " + ".join(["a"] * 500), "--at", "a=1", "--explain", *more)
        assert "`--explain` works out 300 nodes, and here are 500: explain a part of it" in message


def test_predict_with_what_is_not_right(run, refused, folder):
    assert "there is no file 'm.st'" in refused("predict", "m.st", "--at", "x0=1")
    (folder / "junk.st").write_text("junk")
    assert "is not a safetensors file" in refused("predict", "junk.st", "--at", "x0=1")
    assert run("train", "xor", "--steps", "1", "--save", "m.st")[0] == 0
    assert "give a CSV file, or numbers with --at" in refused("predict", "m.st")
    assert "one of the two" in refused("predict", "m.st", "f.csv", "--at", "x0=1")
    assert "`--at` has no number for x1: the model takes x0, x1" in refused("predict", "m.st", "--at", "x0=1")
    assert "`--at` has q, which is not an input" in refused("predict", "m.st", "--at", "x0=1,x1=1,q=1")
    assert "there is no file 'f.csv'" in refused("predict", "m.st", "f.csv")
    (folder / "f.csv").write_text("x0,x1\n1,x\n")
    assert "row 2, column 'x1': found 'x'" in refused("predict", "m.st", "f.csv", "-o", "out.csv")
    (folder / "f.csv").write_text("x0,b\n1,2\n")
    assert "'f.csv' has no column 'x1'" in refused("predict", "m.st", "f.csv")
    (folder / "f.csv").write_text("1,2,3\n")
    assert "has no header and 3 columns; the model takes 2: x0, x1" in refused("predict", "m.st", "f.csv")
    (folder / "f.csv").write_text("1,2\n")
    assert "does not exist" in refused("predict", "m.st", "f.csv", "-o", "no/out.csv")
    chainrule.save(chainrule.nn.MLP(2, [3]), "hand.st")
    assert "does not say what its 3 outputs mean" in refused("predict", "hand.st", "f.csv")
    chainrule.save(chainrule.nn.MLP(2, [1]), "odd.st", {"problem": "{}"})
    assert "description of its data cannot be used" in refused("predict", "odd.st", "f.csv")
    problem = Problem("margin", [Column("a")], "y", [])
    chainrule.save(chainrule.nn.MLP(2, [1]), "odd.st", {"problem": problem.to_json()})
    assert "describes other data than the network takes" in refused("predict", "odd.st", "f.csv")


def test_scaling_is_learnt_from_the_training_part_only():
    whole = chainrule.data.Dataset([[0.0], [2.0], [100.0]], [1.0, 3.0, 50.0])
    scaling = scale(whole[:2], pose(whole, "auto").task)
    assert (scaling.means, scaling.deviations) == ([1.0], [1.0])
    assert (scaling.target_mean, scaling.target_deviation) == (2.0, 1.0)
    assert scaling.prepared(whole).targets == [-1.0, 1.0, 48.0]
    for numbers in ([5.0, 5.0], [0.0, 5e-324]):
        column = chainrule.data.Dataset([[x] for x in numbers], [1.0, 2.0])
        assert scale(column, "regression").prepared(column).inputs == [[x - fmean(numbers)] for x in numbers]


def test_answers_say_how_sure_they_are():
    def problem(task, classes=()):
        return Problem(task, [Column("x")], "y", list(classes))

    sure = problem("binary").answer([-math.log(3)])
    assert sure.columns() == {"prediction": 0, "probability": pytest.approx(0.75)}
    assert sure.probabilities == pytest.approx({0: 0.75, 1: 0.25})
    assert problem("margin").answer([0.2]).columns() == {"prediction": 1, "score": 0.2}
    softmax = torch.softmax(torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64), 0)
    answer = problem("classes", "pqr").answer([1.0, 3.0, 2.0])
    assert answer.columns() == {"prediction": "q", "probability": pytest.approx(softmax[1].item())}
    assert list(answer.probabilities.values()) == pytest.approx(softmax.tolist())
    assert problem("classes", "pq").answer([-1e4, 1e4]).columns() == {"prediction": "q", "probability": 1.0}


@pytest.mark.parametrize("table", ["iris", "line", "binary", "margin"])
def test_a_trained_model_that_is_loaded_answers_as_predict_does(run, folder, iris, table):
    """Columns of very different sizes: without their scaling a network gets hardly any of them right."""
    task = {"iris": "classes", "line": "regression"}.get(table, table)
    low = {"binary": 0, "margin": -1}.get(table)
    rows = [
        (1e6 + 1e3 * x, 1e-5 * z, 3e4 * x - z if low is None else 1 if x > z else low)
        for x in range(8)
        for z in range(5)
    ]
    with open(folder / "made.csv", "w") as file:
        csv.writer(file).writerows([("big", "small", "y"), *rows])
    source = iris if table == "iris" else "made.csv"
    assert run("train", source, "--steps", "200", "--save", "m.st", "--task", task, "--plot", "p.svg")[0] == 0
    answer = json.loads(run("predict", "m.st", source, "--json")[1])
    if "accuracy" in answer:
        assert answer["accuracy"] > 0.9
    model = chainrule.load("m.st")
    chainrule.save(model, "again.st")
    inputs = list(zip(*([float(n) for n in read_column(source, name)] for name in answer["inputs"]), strict=True))
    for loaded in (model, chainrule.load("again.st")):
        answers = loaded(inputs)
        assert [one.prediction for one in answers] == pytest.approx([p["prediction"] for p in answer["predictions"]])
        assert loaded(inputs[0]).prediction == pytest.approx(answers[0].prediction)
        outputs = [loaded.network(x) for x in inputs]
        if table == "iris":
            found = [loaded.problem.classes[chainrule.losses.argmax(output)] for output in outputs]
        elif table == "line":
            found = [pytest.approx(output.data, rel=1e-9) for output in outputs]
        else:
            found = [1 if output.data > 0 else low for output in outputs]
        assert [prediction["prediction"] for prediction in answer["predictions"]] == found
    with pytest.raises(ValueError, match="holds a predictor, whose network is nothing without it"):
        chainrule.load("m.st", chainrule.nn.MLP(**model.network.config(), rng=1))


def test_columns_that_cannot_be_scaled(run, refused, folder):
    (folder / "f.csv").write_text("x,y\n1,1e308\n2,-1e308\n3,1e300\n")
    assert json.loads(run("train", "f.csv", "--steps", "2", "--json")[1])["rms error"] > 1e307
    scaling = scale(chainrule.data.Dataset([[0.0], [1e-289]], [1.0, 2.0]), "regression")
    model = chainrule.nn.MLP(1, [1], rng=0)
    model.layers[0].neurons[0].w[0].data = 1e30
    with pytest.raises(ValueError, match="too large or too small to be scaled: use other units, or --raw"):
        scaling.move_into(model)


GOOD_NOTE = {"task": "classes", "columns": ["x0", "x1"], "target": "y", "classes": ["p", "q", "r"]}


@pytest.mark.parametrize(
    "note",
    [
        "", "7", "[]", "null", "{", "[" * 100_000, "9" * 5000, '{"task": {}}', '"' + "x" * 1_000_000,
        *(
            json.dumps({**GOOD_NOTE, field: thing})
            for field in GOOD_NOTE
            for thing in (None, 7, [], {}, [[]], [7, 8], {"x0": 1, "x1": 2, "x2": 3}, ["x0", None], ["x0", "x0"], "x0",
                          ["\ud800", "x1"], ["\ud800", "x1", "x2"], "\udfff", "\x1b[2J", ["x"] * 100_000)
            if (field, thing) not in [("target", "x0"), ("target", "\x1b[2J")]
        ),
        *(json.dumps({key: thing for key, thing in GOOD_NOTE.items() if key != field}) for field in GOOD_NOTE),
        json.dumps({**GOOD_NOTE, "\x1b[2J": 1}),
        json.dumps({**GOOD_NOTE, "means": [0.0, 0.0]}),
        json.dumps({**GOOD_NOTE, "task": "regression"}),
    ],
    ids=lambda note: repr(note[:60]),
)  # fmt: skip
def test_a_model_whose_notes_are_hostile_is_refused_in_a_sentence(refused, folder, note):
    chainrule.save(chainrule.nn.MLP(2, [3], rng=0), "m.st", {"problem": note})
    (folder / "f.csv").write_text("x0,x1,y\n1,2,p\n")
    for way in (["--at", "x0=1,x1=2"], ["f.csv"], ["f.csv", "--json"], ["f.csv", "-o", "out.csv"]):
        message = refused("predict", "m.st", *way, lines=1)
        assert "m.st" in message
        assert message.removesuffix("\n").isprintable()
        assert len(message) < 600


def test_names_of_strangers_are_shown_and_written_and_do_nothing(run, folder, monkeypatch):
    names = {
        "columns": ["\x1b[2J", "x" * 100_000],
        "target": "\x9b",
        "classes": ["\x1b]0;owned\x07", "\u202eq", "r\x9b"],
    }
    chainrule.save(chainrule.nn.MLP(2, [3], rng=0), "m.st", {"problem": json.dumps({"task": "classes", **names})})
    code, _, err = run("predict", "m.st", "--at", "x0=1")
    assert (code, len(err) < 600, err.rstrip().isprintable()) == (2, True, True)
    (folder / "f.csv").write_text("1,2\n")
    answer = run("predict", "m.st", "f.csv", "--json")[1]
    assert answer.replace("\n", "").isprintable()
    assert json.loads(answer)["predictions"][0]["prediction"] in names["classes"]
    (row,) = csv.DictReader(io.StringIO(run("predict", "m.st", "f.csv")[1], newline=""))
    assert [*row][:2] == names["columns"]
    assert row["prediction"] in names["classes"]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert run("predict", "m.st", "f.csv")[1].replace("\n", "").isprintable()


@pytest.mark.parametrize("outputs", list(itertools.permutations([math.nan, 1000.0, -math.inf, math.inf])))
def test_answers_of_numbers_that_are_not_finite(outputs):
    for classes in ("pqrs", "pq"):
        answer = Problem("classes", [Column("x")], "y", list(classes)).answer(outputs[: len(classes)])
        assert answer.prediction in classes
    for task in ("binary", "margin", "regression"):
        assert Problem(task, [Column("x")], "y", []).answer(outputs[:1])


# Tables as people have them.

FRUIT = "Id,weight,colour,organic,ripe\n" + "".join(
    f"{k},{100 + 7 * (k % 9)},{('green', 'red', 'yellow')[k % 3]},{('yes', 'no')[k % 2]},{('no', 'yes')[k % 3 > 0]}\n"
    for k in range(1, 67)
)


@pytest.fixture
def fruit(folder):
    (folder / "fruit.csv").write_text(FRUIT)
    return "fruit.csv"


def test_texts_flags_and_ids_of_a_table(run, fruit):
    code, out, _ = run("train", fruit, "--steps", "50", "--save", "fruit.st")
    assert code == 0
    assert "note: column 'Id' numbers the rows; if it is an id, leave it out (--drop)\n" in out
    assert "note: column 'colour': 3 texts, an input for each\n" in out
    code, out, _ = run("train", fruit, "--drop", "Id", "--steps", "100", "--save", "fruit.st")
    assert (code, "Id" in out) == (0, False)
    assert "examples of weight, colour = green, colour = red, colour = yellow, organic; task: classes (no, yes)" in out
    code, out, _ = run("predict", "fruit.st", "--at", "weight=120,colour=red,organic=yes")
    assert out.startswith("prediction yes  probability 0.9")
    assert run("train", fruit, "--inputs", "weight,colour", "--steps", "5", "--save", "two.st")[0] == 0
    assert chainrule.load("two.st").problem.names == ["weight", "colour"]


def test_what_a_column_cannot_hold_is_refused(run, refused, fruit):
    run("train", fruit, "--drop", "Id", "--steps", "5", "--save", "fruit.st")
    at = "weight=120,colour=blue,organic=yes"
    assert "found 'blue', where one of green, red, yellow was expected" in refused("predict", "fruit.st", "--at", at)
    at = at.replace("blue", "red").replace("yes", "perhaps")
    assert "found 'perhaps', where true or false was expected" in refused("predict", "fruit.st", "--at", at)
    assert "has no column 'wieght': did you mean 'weight'?" in refused("train", fruit, "--drop", "wieght")
    assert "--inputs has 'ripe', which is the target" in refused("train", fruit, "--inputs", "weight,ripe")
    assert "--inputs and --drop were both given" in refused("train", fruit, "--inputs", "weight", "--drop", "Id")


def test_missing_cells(run, refused, folder):
    (folder / "f.csv").write_text(
        FRUIT.replace("100,red", ",red").replace("121,green", "NA,green") + "67,114,,no,yes\n"
    )
    message = refused("train", "f.csv")
    assert (
        "a missing value, where a number was expected; fill it in, or say --missing mean or --missing drop" in message
    )
    code, out, _ = run("train", "f.csv", "--missing", "drop", "--steps", "5")
    assert (code, " left out, for missing values" in out) == (0, True)
    code, out, _ = run("train", "f.csv", "--missing", "mean", "--steps", "5", "--save", "mean.st")
    assert code == 0
    assert "note: column 'weight': missing values became 12" in out
    assert "note: column 'colour': missing values became 'red'" in out
    assert run("predict", "mean.st", "--at", "Id=3,weight=,colour=,organic=no")[0] == 0
    run("train", "f.csv", "--missing", "drop", "--steps", "5", "--save", "drop.st")
    message = refused("predict", "drop.st", "--at", "Id=3,weight=,colour=red,organic=no")
    assert "found nothing, a missing value" in message


def test_whole_numbers_are_classes_or_asked_about(run, folder):
    def said(numbers):
        (folder / "f.csv").write_text("x,y\n" + "".join(f"{k},{y}\n" for k, y in enumerate(numbers)))
        return run("train", "f.csv", "--steps", "3")[1]

    digits = said([k % 10 for k in range(80)])
    assert "task: classes (0, 1, 2, 3, 4, 5, 6, 7 and 2 more)" in digits
    assert "note: column 'y' holds 0 to 9: taken as classes; --task regression for numbers" in digits
    quality = said([3 + k % 6 for k in range(80)])
    assert "task: regression" in quality
    assert "note: column 'y' holds 6 different whole numbers: taken as a regression; --task classes for" in quality
    assert "different whole numbers" not in said([k * k for k in range(80)])
    assert "note: column 'y'" not in said([k % 2 for k in range(80)])


def test_encodings(run, refused, folder):
    (folder / "f.csv").write_bytes("größe,art\n1,süß\n2,sauer\n3,süß\n4,sauer\n".encode("cp1252"))
    assert "which is not UTF-8; save the file as UTF-8, or name its encoding, such as --encoding cp1252" in refused(
        "train", "f.csv"
    )
    code, out, _ = run("train", "f.csv", "--encoding", "cp1252", "--steps", "5", "--save", "m.st")
    assert (code, "of größe; task: classes (sauer, süß)" in out) == (0, True)
    assert run("predict", "m.st", "f.csv", "--encoding", "cp1252")[0] == 0
    assert "--encoding 'nope' is not known: use one such as utf-8 or cp1252" in refused(
        "train", "f.csv", "--encoding", "nope"
    )
    (folder / "f.csv").write_text("a,b\n1,2\n2,3\n3,5\n", encoding="utf-16")
    assert run("train", "f.csv", "--steps", "5")[0] == 0


# Every row and column, however many.


def test_predict_gives_back_every_column_as_it_was(run, fruit, folder):
    run("train", fruit, "--drop", "Id", "--steps", "50", "--save", "fruit.st")
    table = 'note,colour,prediction,organic,weight\n a ,red,7,no,1.50e2\n"x, y",green,,yes,120\n'
    (folder / "new.csv").write_text(table)
    out = run("predict", "fruit.st", "new.csv")[1]
    rows = list(csv.reader(io.StringIO(out)))
    assert rows[0] == ["note", "colour", "prediction", "organic", "weight", "prediction 2", "probability"]
    assert [row[:5] for row in rows] == list(csv.reader(io.StringIO(table)))
    assert run("predict", "fruit.st", "new.csv", "-o", "-")[1] == out
    assert run("predict", "fruit.st", "new.csv", "-o", "out.csv")[1] == "wrote out.csv, 2 rows\n"
    assert (folder / "out.csv").read_text() == out


def test_standard_input_is_a_table(run, fruit, monkeypatch):
    def given(text):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    given(FRUIT)
    code, out, _ = run("train", "-", "--drop", "Id", "--steps", "5", "--save", "fruit.st")
    assert (code, out.startswith("-: 56 examples of weight")) == (0, True)
    given(FRUIT)
    assert run("predict", "fruit.st", "-")[1] == run("predict", "fruit.st", fruit)[1]


def test_few_rows_are_in_memory_at_a_time(run, refused, fruit, folder, monkeypatch):
    run("train", fruit, "--drop", "Id", "--steps", "5", "--save", "fruit.st")
    whole = run("predict", "fruit.st", fruit)
    monkeypatch.setattr("chainrule.cli.predict_command.PIECE", 7)
    assert run("predict", "fruit.st", fruit)[:2] == whole[:2]
    assert json.loads(run("predict", "fruit.st", fruit, "--json")[1])["accuracy"] == pytest.approx(
        float(re.search(r"accuracy ([\d.]+)%", whole[2])[1]) / 100, abs=1e-3
    )
    (folder / "bad.csv").write_text(FRUIT + "67,heavy,red,no,yes\n")
    assert "row 68, column 'weight': found 'heavy'" in refused("predict", "fruit.st", "bad.csv", "-o", "out.csv")


def test_a_tally_of_pieces_is_that_of_the_whole():
    rng = Random(1)
    targets, errors = [rng.gauss(3, 2) for _ in range(100)], [rng.gauss(0, 1) for _ in range(100)]
    found = [y + e for y, e in zip(targets, errors, strict=True)]
    whole, pieces = Tally("regression"), Tally("regression")
    whole.add(found, targets)
    for k in range(0, 100, 9):
        pieces.add(found[k : k + 9], targets[k : k + 9])
    assert pieces.scores(1.5) == pytest.approx(whole.scores(1.5))
    assert whole.scores(1.5)["R2"] == pytest.approx(metrics.r2_score(targets, found))
    assert whole.scores(1.5)["baseline rms error"] == pytest.approx(math.dist(targets, [1.5] * 100) / 10)
    assert pieces.best_constant() == pytest.approx(fmean(targets))


# What strangers lost numbers by.


def test_an_output_replaces_nothing_that_is_read(run, refused, fruit):
    assert "`--save` fruit.csv would replace what is read" in refused("train", fruit, "--save", fruit)
    assert run("train", fruit, "--steps", "5", "--save", "m.st")[0] == 0
    for output in ("m.st", fruit):
        assert "would replace what is read: give another name" in refused("predict", "m.st", fruit, "-o", output)


def test_headers_with_numbers_in_them(run, folder):
    def told(text, *options):
        (folder / "f.csv").write_text(text)
        return run("train", "f.csv", "--steps", "3", *options)[1]

    rows = "".join(f"{k},{k * k % 7},{'pos' if k % 3 else 'neg'}\n" for k in range(40))
    assert "task: classes (neg, pos)" in told("0,1,kind\n" + rows)
    assert "task: classes (neg, pos)\nnote: no header was found, so the columns are x0, x1, …; if the" in told(rows)
    numbers = "".join(f"{k},{k * k % 7},{k % 5 + 0.5}\n" for k in range(40))
    assert "of w, 2019; task: regression" in told("w,2019,y\n" + numbers)
    assert "note: no header was found" in told("2019,2020,2021\n" + numbers)
    assert "examples of 2019, 2020; task: regression" in told("2019,2020,2021\n" + numbers, "--header", "yes")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["100,000", "105,500", "99,000"], "write 100000 without the comma for thousands"),
        (["$100", "$105", "$99"], "write the bare number, without signs, blanks and units"),
        (["100 kg", "105 kg", "9 kg"], "write the bare number, without signs, blanks and units"),
        (["2020-01-01", "2020-01-02", "2020-01-03"], "it looks like a date or a time: write it as numbers"),
        (["3 Jan 2020", "4 Feb 2020", "5 Mar 2020"], "it looks like a date or a time: write it as numbers"),
        (["cat", "NA", "dog"], "found 'NA', a missing value, where a class was expected; say --missing drop, or if it"),
        (["cat", "nan", "dog"], "found 'nan', a missing value, where a class was expected"),
        (["1", "1", "1"], "column 'y' holds 1 in every row: there is nothing to learn"),
    ],
)
def test_targets_that_are_neither_numbers_nor_classes(refused, folder, cells, message):
    with open(folder / "f.csv", "w") as file:
        csv.writer(file).writerows([("x", "y"), *((k, cell) for k, cell in enumerate(cells * 4))])
    assert message in refused("train", "f.csv")


@pytest.mark.parametrize("cells", [["$3", "$4"], ["5%", "6%"], ["3 EUR", "4 EUR"], ["3 000", "4 000"]])
def test_inputs_with_units_are_no_texts(refused, folder, cells):
    (folder / "f.csv").write_text("x,y\n" + "".join(f"{cells[k % 2]},{k * k}\n" for k in range(12)))
    assert "write the bare number, without signs, blanks and units" in refused("train", "f.csv")


def test_a_constant_column_has_no_say(run, folder):
    (folder / "f.csv").write_text("x,year,y\n" + "".join(f"{k},2023,{3 * k}\n" for k in range(80)))
    out = run("train", "f.csv", "--steps", "30", "--save", "m.st")[1]
    assert "note: column 'year' is the same in every row: nothing can be learned from it" in out
    model = chainrule.load("m.st")
    assert model([5, 0]) == model([5, 2023]) == model([5, 1e9])


def test_every_digit_of_a_prediction_is_written(run, folder):
    (folder / "f.csv").write_text("x,y\n" + "".join(f"{k},{1e6 + 1234.5678 * k}\n" for k in range(80)))
    run("train", "f.csv", "--steps", "30", "--save", "m.st")
    run("predict", "m.st", "f.csv", "-o", "out.csv")
    expected = [answer.prediction for answer in chainrule.load("m.st")([[k] for k in range(80)])]
    assert [float(text) for text in read_column("out.csv", "prediction")] == pytest.approx(expected, rel=1e-11)
