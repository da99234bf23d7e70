"""The command line, end to end: what it prints, what it writes, and what it says when it cannot."""

import csv
import io
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from random import Random
from statistics import fmean
from unittest import mock
from xml.etree import ElementTree as ET

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from sklearn import metrics
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression

import chainrule
from chainrule import ops
from chainrule.cli import app, main
from chainrule.cli.problems import Problem, pose, scale
from hostile_commands import calculations, command_is_done, hostile_commands, trainings
from hostile_files import hostile_bytes, valid_files
from project import ROOT

FUNCTIONS = """
from chainrule import Value, tanh, where
print("imported")
w = Value(0.5)
def good(x, y):
    print("called")
    return (tanh(w * x) - y) ** 2
def cube(x):
    out = Value(x.data**3, (x,), "cube")
    def _backward():
        x.grad += 2 * x.data**2 * out.grad
    out._backward = _backward
    return out
def total(xs, scale=2.0):
    return scale * sum(x * x for x in xs)
def branch(x):
    return x if x > 0 else -x
def crash(x):
    return 1 / 0
def leave(x):
    raise SystemExit(0)
def keyword(*, x):
    return x
def nothing():
    return w
number = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, with `sys.path` restored afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run a command: its exit code, what it printed, and what it said on standard error."""

    def command(*arguments):
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def refused(run, folder):
    """Run a command that cannot be done: exit code 2, a line or two, no traceback, and no file touched."""

    def command(*arguments, lines=2):
        before = snapshot(folder)
        code, out, err = run(*arguments)
        assert code == 2, err
        assert out == ""
        assert err.startswith("chainrule: ")
        assert len(err.splitlines()) <= lines
        assert "Traceback" not in err
        assert snapshot(folder) == before
        return err

    return command


def snapshot(folder):
    files = [path for path in folder.rglob("*") if "__pycache__" not in str(path)]
    return {str(path): path.read_bytes() if path.is_file() else None for path in files}


def shell(*arguments, **variables):
    environment = {**os.environ, "PYTHONPATH": str(Path(chainrule.__file__).parent.parent), **variables}
    command = [sys.executable, "-m", "chainrule", *arguments]
    return subprocess.run(
        command, capture_output=True, check=False, env=environment, encoding=variables.get("PYTHONIOENCODING", "utf-8")
    )


@pytest.fixture
def functions(folder):
    (folder / "functions.py").write_text(FUNCTIONS)
    return "functions.py::"


@pytest.fixture
def iris(folder):
    flowers = load_iris()
    with open(folder / "iris.csv", "w") as file:
        writer = csv.writer(file)
        writer.writerow(["sepal length", "sepal width", "petal length", "petal width", "species"])
        for row, target in list(zip(flowers.data, flowers.target, strict=True))[::3]:
            writer.writerow([*row, flowers.target_names[target]])
    return "iris.csv"


# The program as a whole.


def test_errors_are_escaped_and_short_whatever_they_hold(run, monkeypatch):
    for error in (ValueError("\x1b[2J" * 1_000_000), RuntimeError("\x9b\r")):
        monkeypatch.setattr("chainrule.cli.derivatives.parse", mock.Mock(side_effect=error))
        _, _, err = run("grad", "a", "--at", "a=1")
        assert err.replace("\n", "").isprintable()
        assert len(err) < 5000


def test_hostile_commands_are_done_or_refused_in_a_sentence(folder):
    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(hostile_commands())
    def attempt(arguments):
        command_is_done(arguments)

    attempt()


def test_hostile_models_are_used_or_refused_in_a_sentence(folder):
    (folder / "table.csv").write_text("a,b,y\n1,2,p\n3,4,r\n")

    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(hostile_bytes(valid_files(folder)))
    def attempt(content):
        (folder / "file").write_bytes(content)
        command_is_done(["predict", "file", "table.csv"])

    attempt()


@pytest.mark.parametrize("fault", ["exit 3", "terminal", "length"])
def test_the_hostile_commands_are_hostile_enough_for_a_careless_command(folder, monkeypatch, fault):
    """Faults that were there: sizes that nobody checked, texts that nobody escaped or cut short."""
    if fault == "exit 3":
        monkeypatch.setattr("chainrule.cli.derivatives.MOST_NODES", 10**9)
    else:
        quote = str if fault == "length" else lambda thing, most=0: str(thing)[:100]
        monkeypatch.setattr("chainrule.cli.models.quoted", quote)
        monkeypatch.setattr("chainrule.cli.console.shown", lambda text, most=0: text)
        monkeypatch.setattr("chainrule.cli.console.MOST_CHARACTERS", 10**9)

    @settings(
        max_examples=2000,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(calculations() if fault == "exit 3" else trainings())
    def attempt(arguments):
        command_is_done(arguments)

    with pytest.raises((AssertionError, ExceptionGroup)):
        attempt()


def test_help_lists_every_command_and_every_command_has_help(run):
    code, out, _ = run()
    assert code == 0
    names = [
        "train",
        "predict",
        "grad",
        "draw",
        "step",
        "check",
        "compile",
        "learn",
        "grade",
        "lessons",
        "bench",
        "info",
    ]
    assert list(app.commands) == names
    assert re.findall(r"^  (\w+)  ", out, flags=re.MULTILINE) == names
    for name in names:
        code, out, _ = run(name, "--help")
        assert code == 0
        assert out.startswith(f"Usage: chainrule {name} ")
        assert "--debug" in out


def test_the_version(run):
    assert run("--version") == (0, f"chainrule, version {chainrule.__version__}\n", "")


def test_the_console_script_is_this_one():
    with open(ROOT / "pyproject.toml", "rb") as file:
        module, _, name = tomllib.load(file)["project"]["scripts"]["chainrule"].partition(":")
    assert getattr(import_module(module), name) is main


def test_it_runs_as_a_module():
    done = shell("grad", "a*b", "--at", "a=2,b=-3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "a*b = -6\nname  value  derivative\na         2          -3\nb        -3           2\n"


def test_a_terminal_that_cannot_show_every_letter(functions):
    done = shell("compile", f"{functions}total", "--at", "xs=[1,2,3]", "--describe", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0
    assert "?i<3" in done.stdout


def test_bad_input_leaves_a_shell_with_exit_code_2():
    done = shell("train", "moon")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "chainrule: there is no data set 'moon': did you mean moons?\n"


def test_options_that_do_not_exist(refused):
    assert "No such option '--hiden'" in refused("train", "moons", "--hiden", "3").replace(":", "")
    assert "See `chainrule train --help`." in refused("train")
    assert "No such command 'trian'" in refused("trian")
    assert "--steps" in refused("train", "moons", "--steps", "many")
    assert "--steps" in refused("train", "moons", "--steps", "0")
    assert "--optimizer" in refused("train", "moons", "--optimizer", "newton")


def test_debug_shows_the_traceback(run):
    code, _, err = run("train", "moon", "--debug")
    assert code == 2
    assert "Traceback" in err
    assert err.endswith("chainrule: there is no data set 'moon': did you mean moons?\n")


def test_a_mistake_of_our_own_has_an_exit_code_of_its_own(run, monkeypatch):
    monkeypatch.setattr("chainrule.cli.machine.cpu", lambda: 1 / 0)
    code, _, err = run("info")
    assert code == 3
    assert err.startswith("chainrule: ZeroDivisionError: division by zero\nThis is a bug in chainrule")
    assert "Traceback" not in err
    assert "Traceback" in run("info", "--debug")[2]


def test_interruption(run, monkeypatch, folder):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(chainrule, "fit", interrupt)
    code, out, err = run("train", "xor", "--save", "model.safetensors")
    assert (code, out) == (130, "")
    assert "interrupted" in err
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe, to know that the command has begun")
def test_ctrl_c_ends_a_command_with_130(folder):
    os.mkfifo("pipe")
    (folder / "f.py").write_text("open('pipe').read()\n\n\ndef f(x):\n    return x\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(chainrule.__file__).parent.parent)}
    command = [sys.executable, "-B", "-m", "chainrule", "check", "f.py::f"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with open("pipe", "w"):  # returns when the command has opened it too, and waits for data
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (out, err.strip()) == ("", "chainrule: interrupted")
    assert sorted(path.name for path in folder.iterdir()) == ["f.py", "pipe"]


# grad


@pytest.mark.both
def test_grad_prints_the_value_and_every_derivative(run):
    a = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    b = torch.tensor(-3.0, dtype=torch.float64, requires_grad=True)
    expected = torch.tanh(a * b) + a**2
    expected.backward()
    code, out, _ = run("grad", "tanh(a*b) + a**2", "--at", "a=2,b=-3")
    lines = out.splitlines()
    assert code == 0
    assert float(lines[0].rpartition("=")[2]) == pytest.approx(expected.item(), rel=1e-11)
    assert lines[2].split()[:2] == ["a", "2"]
    assert float(lines[2].split()[2]) == pytest.approx(a.grad.item(), rel=1e-11)
    assert float(lines[3].split()[2]) == pytest.approx(b.grad.item(), rel=1e-11)


@pytest.mark.both
def test_grad_in_json_is_exact_and_names_the_steps(run):
    code, out, err = run("grad", "e = a*b; d = e + c; L = d*f", "--at", "a=2,b=-3", "--at", "c=10, f=-2", "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert answer["value"] == -8.0
    assert answer["gradient"] == {"a": 6, "b": -4, "c": -2, "f": 4, "e": -2, "d": -2, "L": 1}
    assert answer["at"]["e"] == -6.0


def test_grad_explains_itself(run):
    _, out, _ = run("grad", "e = a*b; e + c", "--at", "a=2,b=-3,c=10", "--explain")
    assert "  e = a · b = 2 · (-3) = -6\n" in out
    assert "  a.grad += e.grad · b = 1 · (-3) = -3\n" in out
    answer = json.loads(run("grad", "e = a*b; e + c", "--at", "a=2,b=-3,c=10", "--explain", "--json")[1])
    assert answer["backward"][0] == "L.grad = 1"
    assert len(answer["forward"]) == 2


def test_grad_of_numbers_alone_and_beyond_the_finite(run):
    assert run("grad", "2*3")[1] == "2*3 = 6\n"
    answer = json.loads(run("grad", "log(a) + b", "--at", "a=0,b=nan", "--json")[1])
    assert answer["gradient"] == {"a": "Infinity", "b": 1.0}
    assert answer["value"] == "NaN"
    assert json.loads(run("grad", "log(a)", "--at", "a=0", "--json")[1])["value"] == "-Infinity"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a*b +"], "something is missing"),
        (["foo(a)", "--at", "a=1"], "there is no function `foo`"),
        (["__import__('os')"], "there is no function `__import__`"),
        (["a*b", "--at", "a=1"], "`--at` has no number for b: give one for each of a, b"),
        (["a*b"], "`--at` has no number for a, b: give one for each of a, b"),
        (["a", "--at", "a=1,b=2"], "`--at` has b, which the formula does not use: it needs a"),
        (["3", "--at", "b=2"], "`--at` has b, which the formula does not use: it needs no numbers"),
        (["a", "--at", "a=1,a=2"], "`--at` has 'a' twice"),
        (["a", "--at", "a=two"], "`--at` has a='two', which is not a number"),
        (["a", "--at", "a=[1,2]"], "is not a number"),
        (["a", "--at", "a"], "`--at` has 'a', where NAME=NUMBER was expected"),
        (["a", "--at", ""], "`--at` has '', where NAME=NUMBER was expected"),
        (["a", "--at", "=2"], "where NAME=NUMBER was expected"),
        ([""], "the formula is empty"),
        (["-" * 3900 + "a"], "No such option"),
        (["(" + "-" * 3900 + "a)"], "nested too deeply"),
    ],
)
def test_grad_of_what_is_no_formula(refused, arguments, message):
    assert message in refused("grad", *arguments)


def test_a_formula_may_begin_with_a_minus_sign(run):
    assert run("grad", "-a*b", "--at", "a=2,b=-3")[1].startswith("-a*b = 6\n")
    assert run("grad", "--at", "o=-2", "-o**2")[1].startswith("-o**2 = -4\n")
    assert run("grad", "--json", "--at", "a=2", "--", "--a")[0] == 0
    assert run("grad", "-h")[1].startswith("Usage: chainrule grad")
    assert run("grad", "-1")[1] == "-1 = -1\n"


def test_the_caret_stands_below_the_mistake(refused):
    source, pointer = refused("grad", "a + foo(b)", "--at", "a=1").splitlines()
    assert source[pointer.index("^") :] == "foo(b)"


# draw, step

A_DRAWING = ["a*b + c", "--at", "a=2,b=-3,c=10", "-o"]


def test_draw_writes_a_picture_with_the_numbers_in_it(run, refused, folder):
    code, out, _ = run("draw", *A_DRAWING, "graph.svg")
    assert (code, out) == (0, "drew graph.svg\n")
    text = "".join(ET.parse(folder / "graph.svg").getroot().itertext())
    assert "10" in text
    assert [path.name for path in folder.iterdir()] == ["graph.svg"]
    assert "must end in .svg" in refused("draw", *A_DRAWING, "graph.xyz")


def test_step_writes_a_page(run, folder):
    code, out, _ = run("step", *A_DRAWING, "page.html")
    assert (code, out) == (0, "wrote page.html\n")
    assert "<html" in (folder / "page.html").read_text().lower()


class Pen:
    """Stands for a drawing or a stepper, and fails if it was told to."""

    def __init__(self, failure=None):
        self.failure = failure
        self.opened = False

    def __call__(self, root):
        self.root = root
        return self

    def save(self, path):
        if self.failure:
            raise self.failure
        Path(path).write_text(f"{Path(path).suffix} of {self.root.data}, {self.root._operands[1].grad}")

    def open(self):
        if self.failure:
            raise self.failure
        self.opened = True


@pytest.mark.parametrize(("command", "function"), [("draw", "draw"), ("step", "stepper")])
def test_a_formula_is_drawn_after_its_backward_pass_or_not_at_all(run, refused, monkeypatch, folder, command, function):
    monkeypatch.setattr(chainrule, function, Pen(), raising=False)
    assert run(command, *A_DRAWING, "a.svg")[0] == 0
    assert (folder / "a.svg").read_text() == ".svg of 4.0, 1.0"
    monkeypatch.setattr(chainrule, function, Pen(ValueError("no such kind of picture")), raising=False)
    assert refused(command, *A_DRAWING, "a.svg") == "chainrule: no such kind of picture\n"
    assert "does not exist" in refused(command, *A_DRAWING, "no/such/folder.svg")
    assert "give the name of a file" in refused(command, *A_DRAWING, ".")
    assert "there is no function" in refused(command, "foo(a)", "--at", "a=1", "-o", "c.svg")


def test_step_opens_the_page_if_no_file_is_named(run, refused, monkeypatch):
    pen = Pen()
    monkeypatch.setattr(chainrule, "stepper", pen, raising=False)
    assert run("step", *A_DRAWING[:-1])[0] == 0
    assert pen.opened
    monkeypatch.setattr(chainrule, "stepper", Pen(RuntimeError("no browser could be started")), raising=False)
    assert refused("step", *A_DRAWING[:-1]) == "chainrule: no browser could be started\n"


# train, predict


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
    assert chainrule.load("m.safetensors").config()["nouts"] == [8, 4, 1]
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
    assert answer["classes"] == ["1", "2", "3"]
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
    assert run("predict", "hand.safetensors", "--at", "x0=1,x1=2")[1] == f"prediction {expected:.6g}\n"


CSV_MISTAKES = {
    "a,b,y\n1,2,3\n1,,3\n": "'f.csv', row 3, column 'b': found nothing, a missing value, where a number was expected",
    "a,b,y\n1,two,3\n": "'f.csv', row 2, column 'b': found 'two', where a number was expected",
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
        (["moons", "--target", "x"], "`--target` is for CSV files; moons has one target"),
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
    assert "column 'species': found 'setosa', where a number was expected" in refused("train", iris, "--target", "0")
    assert "found 'setosa', where a number was expected" in refused("train", iris, "--task", "regression")
    assert "`--noise` is for generated sets" in refused("train", iris, "--noise", "1")


def test_without_matplotlib_plot_says_what_to_install(refused, monkeypatch):
    monkeypatch.setattr("chainrule.cli.models.find_spec", lambda name: None)
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
    assert "description of its data cannot be read" in refused("predict", "odd.st", "f.csv")
    problem = Problem("margin", ["a"], "y", [])
    chainrule.save(chainrule.nn.MLP(2, [1]), "odd.st", {"problem": problem.to_json()})
    assert "describes other data than its network takes" in refused("predict", "odd.st", "f.csv")


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
        return Problem(task, ["x"], "y", list(classes))

    assert problem("binary").answer([-math.log(3)]) == {"prediction": 0, "probability": pytest.approx(0.75)}
    assert problem("margin").answer([0.2]) == {"prediction": 1, "score": 0.2}
    softmax = torch.softmax(torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64), 0)
    answer = problem("classes", "pqr").answer([1.0, 3.0, 2.0])
    assert answer == {"prediction": "q", "probability": pytest.approx(softmax[1].item())}
    assert problem("classes", "pq").answer([-1e4, 1e4]) == {"prediction": "q", "probability": 1.0}


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
    for loaded in (
        model,
        chainrule.load("again.st"),
        chainrule.load("m.st", chainrule.nn.MLP(**model.config(), rng=1)),
    ):
        outputs = [loaded(x) for x in inputs]
        if table == "iris":
            classes = json.loads(chainrule.files.notes("m.st")["problem"])["classes"]
            found = [classes[chainrule.losses.argmax(output)] for output in outputs]
        elif table == "line":
            found = [pytest.approx(output.data, rel=1e-9) for output in outputs]
        else:
            found = [1 if output.data > 0 else low for output in outputs]
        assert [prediction["prediction"] for prediction in answer["predictions"]] == found


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
        answer = Problem("classes", ["x"], "y", list(classes)).answer(outputs[: len(classes)])
        assert answer["prediction"] in classes
    for task in ("binary", "margin", "regression"):
        assert Problem(task, ["x"], "y", []).answer(outputs[:1])


# check, compile


def test_check_of_a_right_gradient(run, functions):
    code, out, err = run("check", functions + "good", "--at", "x=1,y=0.5")
    assert code == 0
    assert "2 of 2 derivatives agree" in out
    assert "imported" in err  # what the file prints does not mix with the result
    answer = json.loads(run("check", functions + "good", "--json")[1])
    assert answer["ok"] is True
    assert [row["name"] for row in answer["rows"]] == ["x", "y"]
    assert all(0.5 <= row["value"] <= 1.5 for row in answer["rows"])
    assert json.loads(run("check", functions + "good", "--seed", "1", "--json")[1])["rows"] != answer["rows"]


def test_check_of_a_wrong_gradient(run, functions):
    code, out, _ = run("check", functions + "cube", "--at", "x=2")
    assert code == 1
    assert "WRONG" in out
    assert "should be 12" in out
    code, out, _ = run("check", functions + "cube", "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_check_of_a_function_of_lists(run, functions):
    code, out, _ = run("check", functions + "total", "--at", "xs=[1, 2, 3]")
    assert code == 0
    assert "3 of 3 derivatives agree" in out
    assert "4 of 4" in run("check", functions + "total", "--at", "xs=[1,2,3],scale=0.5")[1]


def test_compile_describes_what_it_found(run, functions):
    code, out, _ = run("compile", functions + "total", "--at", "xs=[1,2,3]", "--describe")
    assert code == 0
    first, second, *program = out.splitlines()
    assert first == "total(xs=[1, 2, 3]) = 28"
    assert re.fullmatch(r"[\d,]+ scalar nodes in \d+ array statements; compiled in [\d.]+ s", second)
    assert any("Σ" in line for line in program)
    answer = json.loads(run("compile", functions + "total", "--at", "xs=[1,2,3]", "--describe", "--json")[1])
    assert answer["result"] == 28.0
    assert answer["program"] == program
    assert answer["stats"]["scalar nodes"] > 0


@pytest.mark.parametrize("command", ["check", "compile"])
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("functions.py", "'functions.py' does not name a function: write FILE.py::FUNCTION"),
        ("missing.py::f", "there is no file 'missing.py'"),
        ("functions.py::god", "'functions.py' has no 'god'; it has good, cube, total"),
        ("functions.py::number", "'number' in 'functions.py' is not a function; it has good, cube"),
        ("functions.py::crash", "crash failed: ZeroDivisionError: division by zero (functions.py, line 19)"),
        ("functions.py::total", "total failed: T"),  # TypeError, and TracingError when compiled
        ("functions.py::leave", "leave failed: SystemExit"),
        ("functions.py::keyword", "`keyword` needs `x` by keyword"),
        ("functions.py::nothing", "`nothing` has no arguments"),
        ("broken.py::f", "importing broken.py failed: SyntaxError: "),
        (
            "raises.py::f",
            "importing raises.py failed: ModuleNotFoundError: No module named 'no_such_module' (raises.py",
        ),
        ("text.txt::f", "'text.txt' is not a Python file"),
    ],
)
def test_functions_that_cannot_be_used(run, folder, functions, command, target, message):
    (folder / "broken.py").write_text("def f(x:\n")
    (folder / "raises.py").write_text("import no_such_module\n")
    (folder / "text.txt").write_text("def f(x): return x")
    code, out, err = run(command, target)
    said = [line for line in err.splitlines() if line not in ("imported", "called")]
    assert (code, out) == (2, "")
    assert said[0].startswith(f"chainrule: {message}")
    assert len(said) <= 2


def test_arguments_that_a_function_does_not_take(run, functions):
    assert (
        "`--at` has z, which `good` does not take: its arguments are x, y"
        in run("check", functions + "good", "--at", "z=1")[2]
    )
    assert "which is not a list of numbers" in run("check", functions + "total", "--at", "xs=[1,two]")[2]
    assert "which is not a list of numbers" in run("check", functions + "total", "--at", "xs=[true]")[2]
    code, _, err = run("check", functions + "good", "--tolerance", "2")
    assert code == 2
    assert "--tolerance" in err


def test_a_branch_is_told_with_its_line(run, functions):
    code, out, _ = run("compile", functions + "branch", "--describe")
    assert code == 0
    assert "on a path with 1 condition; compiled" in out
    assert "# path 1 of 1\n" in out
    assert re.search(r"# .*functions\.py:\d+: `.*` is (true|false)\n", out)


# bench, info


@pytest.mark.slow
def test_bench_measures_both_ways(run):
    code, out, _ = run("bench", "--seconds", "0.05")
    assert code == 0
    assert "training step, compiled" in out
    answer = json.loads(run("bench", "--seconds", "0.05", "--json")[1])
    assert answer["nodes"] > 65_000
    assert set(answer["seconds"]) == {
        "build the graph",
        "backward",
        "training step, eager",
        "training step, compiled",
    }
    assert all(seconds > 0.0 for seconds in answer["seconds"].values())
    assert run("bench", "--seconds", "0")[0] == 2


def test_info_tells_versions_and_the_engine(run):
    code, out, _ = run("info")
    assert code == 0
    assert re.search(rf"^engine +{chainrule.ENGINE}$", out, flags=re.MULTILINE)
    answer = json.loads(run("info", "--json")[1])
    assert answer["chainrule"] == chainrule.__version__
    assert answer["packages"]["torch"] == torch.__version__
    assert answer["python"].endswith(sys.version.split()[0])


def test_info_names_what_is_missing(run, monkeypatch):
    monkeypatch.setattr("chainrule.cli.machine.OPTIONAL", ("no_such_package",))
    assert "no_such_package  not installed" in run("info")[1]


def test_every_op_can_be_an_activation(run):
    for row in ops.TABLE.values():
        if row.arity == 1 and row.name in ("sin", "gelu", "softplus"):
            assert run("train", "xor", "--steps", "1", "--activation", row.name)[0] == 0
