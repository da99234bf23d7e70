"""What the shell offers after `chainrule train <TAB>` and the like."""

import os
import re
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from chainrule import nn
from chainrule.cli import app
from chainrule.cli.train_command import SETS
from chainrule.learn.lesson_files import load_course
from project import ROOT


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more").mkdir()
    for name in ("moths", "more/deep", "two words"):
        (tmp_path / f"{name}.csv").write_text("length,wing span,species\n1,2,a\n3,4,b\n")
    for name in ("model.safetensors", "loss.py", "progress.json", "notes.txt"):
        (tmp_path / name).touch()
    return tmp_path


def offered(*words):
    """The completions of the last word, and of what kind they are where the shell is to find them."""
    found = ShellComplete(app, {}, "chainrule", "_CHAINRULE_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return [item.value if item.type == "plain" else item.type for item in found]


def test_commands_and_options():
    assert offered("") == list(app.commands)
    assert offered("gra") == ["grad", "grade"]
    assert offered("draw", "a*b", "--l") == ["--local", "--limit"]
    assert offered("draw", "-a*b", "--gradient", "c") == ["colour"]
    assert offered("train", "xor", "--optimizer", "ada") == ["adam", "adamw"]


def test_train_completes_data_sets_and_csv_files():
    assert offered("train", "") == [*SETS, "moths.csv"]
    assert offered("train", "mo") == ["moons", "moths.csv"]
    assert offered("train", f"more{os.sep}") == [os.path.join("more", "deep.csv")]


@pytest.mark.parametrize("typed", ["mor", "no/such/folder/", "two"])
def test_the_shell_completes_folders_and_whatever_else_it_takes_to_get_there(typed):
    assert offered("train", typed) == ["file"]


def test_train_completes_activations_that_exist():
    names = offered("train", "xor", "--activation", "")
    assert {"linear", "tanh", "relu", "leaky_relu"} <= set(names)
    assert "maximum" not in names
    for name in names:
        assert nn.Neuron(1, activation=name).activation == name
    assert offered("train", "xor", "--activation", "rel") == ["relu"]


def test_train_completes_the_columns_of_the_file(folder, monkeypatch):
    assert offered("train", "moths.csv", "--target", "") == ["length", "species"]  # "wing span" is two words
    assert offered("train", "moths.csv", "--target", "s") == ["species"]
    (folder / "bare.csv").write_text("1,2\n3,4\n")
    (folder / "broken.csv").write_bytes(b"\xff\x00")
    for source in ("bare.csv", "broken.csv", "gone.csv", "more", "moons"):
        assert offered("train", source, "--target", "") == []
    assert offered("train", "--target", "") == []
    monkeypatch.setattr("chainrule.cli.completion.MOST_BYTES", 10)
    assert offered("train", "moths.csv", "--target", "") == []


def test_files_of_other_commands():
    assert offered("predict", "") == ["model.safetensors"]
    assert offered("predict", "model.safetensors", "") == ["moths.csv"]
    assert offered("check", "") == offered("compile", "l") == ["loss.py"]
    assert offered("grade", "") == ["loss.py", "progress.json"]
    assert offered("lessons", "") == offered("learn", "--lessons", "") == ["dir"]
    outputs = [("train", "xor", "--save"), ("train", "xor", "--plot"), ("draw", "a", "-o"), ("step", "a", "--output")]
    assert [offered(*words, "") for words in outputs] == [["file"]] * 4


def test_grade_completes_lessons_and_exercises():
    course = load_course(None)
    assert offered("grade", "loss.py", "--lesson", "0") == [lesson.id for lesson in course.lessons if lesson.id < "1"]
    assert offered("grade", "loss.py", "--exercise", "") == list(course.exercises)
    chosen = course.lessons[3]
    names = [exercise.name for exercise in chosen.exercises]
    assert offered("grade", "loss.py", "--lesson", chosen.id, "--exercise", "") == names
    assert offered("grade", "loss.py", "--lessons", "more", "--lesson", "") == []


PAGE = (ROOT / "docs/how-to/command-line.md").read_text(encoding="utf-8")


@pytest.fixture
def program(folder):
    """The folder of a `chainrule` that a shell finds."""
    (folder / "bin").mkdir()
    path = folder / "bin" / "chainrule"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT / "src"}" exec "{sys.executable}" -m chainrule "$@"\n')
    path.chmod(0o755)
    return path.parent


@pytest.mark.once
def test_bash_completes_after_the_line_that_the_page_shows(program):
    (line,) = re.findall(r"^\| bash .*?`(.*?)`", PAGE, re.MULTILINE)
    asked = "COMP_WORDS=(chainrule train mo); COMP_CWORD=2; _chainrule_completion chainrule; echo ${COMPREPLY[@]}"
    script = f'PATH="{program}:$PATH"\n{line}\n{asked}'
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("moons moths.csv\n", "")


@pytest.mark.once
@pytest.mark.parametrize(("shell", "sign"), [("zsh", "#compdef chainrule"), ("fish", "complete --no-files --command")])
def test_other_shells_are_told_how(program, shell, sign):
    setting = f"_CHAINRULE_COMPLETE={shell}_source"
    assert f"{setting} chainrule" in PAGE
    command = ["env", setting, program / "chainrule"]
    assert sign in subprocess.run(command, capture_output=True, text=True, check=True).stdout
