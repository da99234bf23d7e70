"""The code in README and docs runs as it stands, and prints what the pages say it prints."""

import doctest
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import webbrowser
from http.server import ThreadingHTTPServer
from unittest import mock

import pytest
import write_command_line

from chainrule import nn
from chainrule.cli import app, main
from project import ROOT

README = (ROOT / "README.md").read_text()


def run_blocks(path):
    """Run the Python blocks of a page, one after the other; what they print."""
    names = {}
    text = (ROOT / path).read_text()
    for block in re.findall(r"^ *```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        exec(compile(textwrap.dedent(block), path, "exec"), names)
    return names


def test_the_readme(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_blocks("README.md")
    out = capsys.readouterr().out
    shown = re.findall(r"^```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert len(shown) == 4
    assert all(line in out for block in shown for line in block.splitlines() if line != "...")
    assert names["product"]({"k": 3.0, "x": 2.0}, {"k": 0.0, "x": 1.0}) == {"k": 2.0, "x": 3.0}
    assert names["history"]["validation_accuracy"][-1] > 0.9
    assert {path.name for path in tmp_path.iterdir()} == {"expression.svg", "steps.html", "moons.safetensors"}


@pytest.mark.once
def test_the_readme_is_read_in_three_minutes_and_leads_on():
    assert len(README.split()) < 1500
    first = README.partition("## Install")[0]
    assert "docs/pictures/expression.svg" in first
    assert len(re.findall(r"```python\n(.*?)```", first, re.DOTALL)[0].replace("\n\n", "\n").splitlines()) <= 10
    for section in README.split("\n## ")[1:]:
        assert len(re.findall(r"<img|!\[", section)) <= 1
    links = re.findall(r"\]\((?!http)([^)#]+)\)|src=\"([^\"]+)\"", README)
    assert len(links) > 25
    assert [link for link in map("".join, links) if not (ROOT / link).exists()] == []


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder to work in, with the tables of the examples, as in a checkout."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").mkdir()
    for table in (ROOT / "examples").glob("*.csv"):
        shutil.copy(table, tmp_path / "examples")
    return tmp_path


@pytest.mark.parametrize(("path", "count"), [("docs/how-to/command-line.md", 3), ("docs/reference/command-line.md", 5)])
def test_the_pages_on_the_command_line(path, count, checkout, capsys):
    blocks = re.findall(r"^```\n(\$ chainrule .*?)^```", (ROOT / path).read_text(), re.DOTALL | re.MULTILINE)
    commands = [part.split("\n", 1) for block in blocks for part in block.split("$ chainrule ")[1:]]
    assert len(commands) == count
    for command, expected in commands:
        code = main(shlex.split(command))
        out, err = capsys.readouterr()
        assert code == (2 if expected.startswith("chainrule: ") else 0)
        printed = err if code else out
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", expected)
        pairs = zip(NUMBER.findall(untimed(printed)), NUMBER.findall(untimed(expected)), strict=True)
        assert all(float(got) == pytest.approx(float(shown), rel=0.02) for got, shown in pairs)


NUMBER = re.compile(r"-?\d+\.?\d*")


def untimed(text):
    return re.sub(r"steps in \S+ s", "", text)


def test_the_reference_of_the_commands_is_what_they_say():
    text = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
    assert write_command_line.page(text) == text, "run `make commands`"
    assert [f"### {name}" in text for name in app.commands] == [True] * len(app.commands)


def test_the_examples_of_the_commands(checkout, monkeypatch, capsys):
    """In their order, so that `predict` finds what `train` saved."""
    page = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for name, block in zip(("model.py", "slope.py"), blocks, strict=True):
        (checkout / name).write_text(block)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", mock.Mock(side_effect=KeyboardInterrupt))
    examples = re.findall(r"^For example:\n\n```\nchainrule (.*)\n```", page, re.MULTILINE)
    assert [example.split()[0] for example in examples] == list(app.commands)
    for example in examples:
        assert main(shlex.split(example)) == 0, example
        assert capsys.readouterr().out or example.startswith("step"), example
    written = {path.name for path in checkout.iterdir() if path.is_file()}
    assert written == {"model.py", "slope.py", "flowers.safetensors", "predictions.csv", "graph.svg"}


def test_the_table_of_the_page_is_the_one_that_is_shipped():
    table, page = (ROOT / "examples/flowers.csv").read_text(), (ROOT / "docs/how-to/train-on-csv.md").read_text()
    (head,) = re.findall(r"^```\n(sepal.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert table.startswith(head)
    assert len(table.splitlines()) == 151


def test_the_page_on_tables_uses_what_the_shell_has_saved(checkout, capsys):
    page = (ROOT / "docs/how-to/train-on-csv.md").read_text()
    (commands,) = re.findall(r"^```\n(chainrule .*?)^```", page, re.DOTALL | re.MULTILINE)
    for command in commands.splitlines():
        assert main(shlex.split(command)[1:]) == 0
    (block,) = re.findall(r"^```{ .python .from-the-shell }\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    capsys.readouterr()
    exec(block, names := {})
    assert capsys.readouterr().out.startswith("versicolor {'setosa': ")
    assert [answer.prediction for answer in names["kind"]([[6, 3, 4.5, 1.4], [5, 3.5, 1.4, 0.2]])] == [
        "versicolor",
        "setosa",
    ]


LONG = ("docs/tutorial.md", "docs/how-to/compile.md", "docs/how-to/draw-large-graphs.md", "docs/how-to/train-on-csv.md")
SHORT = sorted(
    {f"docs/how-to/{path.name}" for path in (ROOT / "docs/how-to").glob("*.md")} - {*LONG, "docs/how-to/index.md"}
)


@pytest.mark.parametrize(
    "path", ["docs/index.md", "docs/library.md", *SHORT, *(pytest.param(path, marks=pytest.mark.slow) for path in LONG)]
)
def test_the_pages(path, checkout, capsys):
    run_blocks(path)
    printed = capsys.readouterr().out
    page = (ROOT / path).read_text()
    for block in re.findall(r"^```{ .text .output }\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            assert line == "..." or ROUNDING.sub("", line) in ROUNDING.sub("", printed)
    for shown in re.findall(r"^print\(.*\)  # ([\d. -]+)$", page, re.MULTILINE):
        assert f"\n{shown}\n" in f"\n{printed}"


ROUNDING = re.compile(r"\d+e-\d+")  # the error of a numerical derivative, which another libm changes


def test_the_page_on_gradient_checks_shows_what_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_blocks("docs/how-to/check-gradients.md")
    out = capsys.readouterr().out
    page = (ROOT / "docs/how-to/check-gradients.md").read_text()
    (shown,) = re.findall(r"^```\n(input .*?)^```", page, re.DOTALL | re.MULTILINE)
    table, named = shown.split("The `cube`")
    assert ROUNDING.sub("", table) in ROUNDING.sub("", out)
    assert named[named.index("is wrong:") :].partition(",")[0] in out


def test_the_page_on_transforms():
    page = (ROOT / "docs/transforms.md").read_text()
    text = "\n".join(re.findall(r"^```pycon\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    examples = doctest.DocTestParser().get_doctest(text, {}, "docs/transforms.md", None, 0)
    results = doctest.DocTestRunner().run(examples)
    assert results.attempted > 40
    assert results.failed == 0


def test_the_page_on_the_doctor(capsys):
    run_blocks("docs/doctor.md")
    out = capsys.readouterr().out
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "docs/doctor.md").read_text(), re.DOTALL | re.MULTILINE)
    blocks = [text for language, text in fenced if not language]
    assert blocks[0] in out
    assert blocks[1] in out
    assert blocks[2].partition(", at demo.py")[0] in out


@pytest.mark.slow
def test_the_page_on_the_compiler(capsys):
    run_blocks("docs/compiler.md")
    out = capsys.readouterr().out
    page = (ROOT / "docs/compiler.md").read_text()
    printed = re.search(r"forward half:\n\n```\n(.*?)```", page, re.DOTALL).group(1)
    assert "<Program: 65,818 scalar nodes in 28 array statements>" in out
    assert printed in out


def test_the_page_on_compiled_functions(capsys):
    names = run_blocks("docs/compiler/functions.md")
    out = capsys.readouterr().out
    page = (ROOT / "docs/compiler/functions.md").read_text()
    path = re.search(r"is false\n(v0\[0\] = a / a\n.*?)```", page, re.DOTALL).group(1)
    assert path in out
    statements = re.search(r"all statements of `gradient`:\n\n```\n(.*?)```", page, re.DOTALL).group(1)
    assert names["gradient"].describe() + "\n" == statements
    roots = re.search(r"(i<2: v1\[i\] = sqrt.*?)```", page, re.DOTALL).group(1)
    assert names["jacobian_of_roots"].describe() + "\n" == roots


PAGES = {
    "greeks": lambda names: names["delta"] == pytest.approx(0.5024, abs=0.01),
    "ode": lambda names: f"{names['decay'].data:.3f}" == "0.500",
    "logistic": lambda names: [w.data for w in names["weights"]] == pytest.approx([0.2278, 0.0898, -0.7377], abs=0.01),
    "digits": lambda names: names["mean"] < 1.0,
    "microgpt": lambda names: names["attention"]([1.0], [[0.0], [0.0]], [[2.0], [4.0]]) == [3.0],
}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_pages_on_uses(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert PAGES[page](run_blocks(f"docs/uses/{page}.md"))


def test_every_use_has_a_page():
    assert {path.stem for path in (ROOT / "docs/uses").glob("*.md")} == {"README", *PAGES}


def test_the_page_on_export(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_blocks("docs/export.md")
    expected = float(capsys.readouterr().out.splitlines()[-1])
    page = (ROOT / "docs/export.md").read_text()
    main, loop, prototypes = re.findall(r"^```c\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "main.c").write_text(main)
    (command,) = re.findall(r"^gcc .*$", page, re.MULTILINE)
    subprocess.run(shlex.split(command), check=True)
    printed = subprocess.run(["./a.out"], capture_output=True, text=True, check=True).stdout
    assert float(printed) == pytest.approx(expected, abs=1e-5)
    assert loop in (tmp_path / "moons.h").read_text()
    comment = " ".join((tmp_path / "loss.h").read_text().replace("\n *", " ").split())
    for prototype in prototypes.splitlines():
        assert prototype in comment


@pytest.mark.slow
def test_the_page_on_jax(capsys):
    pytest.importorskip("jax")
    names = run_blocks("docs/jax.md")
    shown, by_hand = map(float, capsys.readouterr().out.splitlines()[-1].split())
    assert shown == pytest.approx(by_hand, abs=1e-5)
    assert shown == pytest.approx(names["value"], abs=1e-5)
    assert float(names["one"]) == pytest.approx(names["loss"]([0.5, 0.25], 1.0), abs=1e-5)


@pytest.mark.slow
def test_the_page_on_clusters(capsys):
    pytest.importorskip("jax")
    names = run_blocks("docs/cluster.md")
    names["model"].load_state(nn.MLP(2, [16, 16, 1], activation="tanh", rng=1).state())  # as before the training
    value, gradient = names["loss"].batch_value_and_grad(names["x"], names["y"])
    assert names["value"] == pytest.approx(value, abs=1e-12)
    assert names["gradient"] == pytest.approx(gradient, abs=1e-12)
    assert capsys.readouterr().out.startswith("compiled by XLA, on 1 device of 1 process")


@pytest.mark.parametrize(
    ("page", "claim", "file"),
    [
        ("README.md", r"about (\d+) lines of plain Python", "engine.py"),
        ("docs/design.md", r"the whole idea in (\d+) lines", "engine.py"),
        ("docs/engines.md", r"in about (\d+) lines", "engine.py"),
        ("docs/how-to/write-backward-by-hand.md", r"about (\d+) lines, for reading", "closures.py"),
        ("docs/rooms.md", r"`graph_layout.js`, about (\d+) lines", "stepping/web/graph_layout.js"),
    ],
)
def test_a_file_is_about_as_long_as_the_pages_say(page, claim, file):
    (said,) = re.findall(claim, (ROOT / page).read_text())
    assert len((ROOT / "src/chainrule" / file).read_text().splitlines()) == pytest.approx(int(said), rel=0.15)
