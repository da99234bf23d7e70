"""The command line, end to end: what it prints, what it writes, and what it says when it cannot."""

import inspect
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
from unittest import mock
from xml.etree import ElementTree as ET

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

import chainrule
from chainrule import ops
from chainrule.cli import app, main
from hostile_commands import calculations, command_is_done, hostile_commands, trainings
from hostile_files import hostile_bytes, valid_files
from project import ROOT

pytestmark = pytest.mark.usefixtures("folder")  # every command runs in an empty one

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
        monkeypatch.setattr("chainrule.cli.train_command.quoted", quote)
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


@pytest.mark.both
def test_constants_are_shown_and_have_no_derivative(run):
    out = run("grad", "pi*r", "--at", "r=2")[1]
    assert [line.split() for line in out.splitlines()[2:]] == [
        ["pi", "3.14159265359", "constant"],
        ["r", "2", "3.14159265359"],
    ]
    answer = json.loads(run("grad", "pi*r", "--at", "r=2", "--json")[1])
    assert (answer["at"], answer["gradient"]) == ({"pi": math.pi, "r": 2.0}, {"r": math.pi})
    assert json.loads(run("grad", "e*r", "--at", "r=2,e=5", "--json")[1])["gradient"] == {"e": 2.0, "r": 5.0}
    assert "pi · r" in run("grad", "pi*r", "--at", "r=2", "--explain")[1]
    assert run("grad", "cos(pi)")[1].startswith("cos(pi) = -1\n")


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


def test_draw_has_the_options_of_the_drawing_function(run, refused, folder):
    def text(*options):
        assert run("draw", *A_DRAWING, "graph.dot", *options)[0] == 0
        return (folder / "graph.dot").read_text()

    plain = text()
    assert "∂" not in plain
    assert "∂ = −3" in text("--local")
    assert "← −3" in text("--flow")
    assert "−3.00" in text("--number", ".2f")
    assert "not drawn" in text("--depth", "1")
    assert len({plain, *(text("--gradient", kind) for kind in ("colour", "width", "none"))}) == 4
    shown = set(inspect.signature(chainrule.draw).parameters) & {option.name for option in app.commands["draw"].params}
    assert shown == {"local", "flow", "gradient", "depth", "number", "limit"}  # others are for networks and programs
    help_of_limit = next(option.help for option in app.commands["draw"].params if option.name == "limit")
    assert f"{inspect.signature(chainrule.draw).parameters['limit'].default} if left out" in help_of_limit
    few = "the graph has more than 3 nodes, too many to read: draw those near the result, as with --depth 3"
    assert few in refused("draw", *A_DRAWING, "other.svg", "--limit", "3")
    assert "`limit` must be 1,000 at most" in refused("draw", *A_DRAWING, "other.svg", "--limit", "2000")
    assert "`number` must be a format" in refused("draw", *A_DRAWING, "other.svg", "--number", "zz")
    assert "'bold' is not one of" in refused("draw", *A_DRAWING, "other.svg", "--gradient", "bold")


def test_step_writes_a_page(run, folder):
    code, out, _ = run("step", *A_DRAWING, "page.html")
    assert (code, out) == (0, "wrote page.html\n")
    assert "<html" in (folder / "page.html").read_text().lower()


class Pen:
    """Stands for a drawing or a stepper, and fails if it was told to."""

    def __init__(self, failure=None):
        self.failure = failure
        self.opened = False

    def __call__(self, root, **_):
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
