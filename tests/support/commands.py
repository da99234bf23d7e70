"""What the tests of the command line share: a folder, commands that run in it, and tables."""

import csv
import sys

import pytest
from sklearn.datasets import load_iris

from chainrule.cli import main


@pytest.fixture
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


@pytest.fixture
def iris(folder):
    flowers = load_iris()
    with open(folder / "iris.csv", "w") as file:
        writer = csv.writer(file)
        writer.writerow(["sepal length", "sepal width", "petal length", "petal width", "species"])
        for row, target in list(zip(flowers.data, flowers.target, strict=True))[::3]:
            writer.writerow([*row, flowers.target_names[target]])
    return "iris.csv"
