"""Type checkers find mistakes in users' code, and nothing else: mypy and pyright read `typed_code.py`."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from project import ROOT

CODE = Path(__file__).with_name("typed_code.py")
BESIDE_PYTHON = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def lines_with_errors():
    return {number for number, line in enumerate(CODE.read_text().splitlines(), 1) if line.endswith("# error")}


def by_mypy(path):
    """What mypy says, by line; its settings are those of a user who wants it strict."""
    options = [
        "--strict",
        "--config-file=",
        "--no-incremental",
        f"--cache-dir={os.devnull}",
        "--hide-error-context",
        "--no-error-summary",
    ]
    command = [sys.executable, "-m", "mypy", *options, str(path)]
    out = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "src").stdout
    found = re.findall(rf"{path.name}:(\d+): error: (.*)", out)
    return {int(line): message for line, message in found}


def by_pyright(path):
    """What pyright says, by line."""
    program = shutil.which("pyright", path=BESIDE_PYTHON)
    if program is None:
        pytest.skip("pyright is not installed")
    command = [program, "--outputjson", "--pythonpath", sys.executable, str(path)]
    out = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    try:
        told = json.loads(out)["generalDiagnostics"]
    except ValueError:
        pytest.skip("pyright is a program of Node.js, which it cannot fetch here")
    return {one["range"]["start"]["line"] + 1: one["message"] for one in told if one["severity"] == "error"}


@pytest.mark.once
@pytest.mark.parametrize("checker", [by_mypy, by_pyright])
def test_a_checker_finds_the_wrong_lines_and_no_others(checker):
    found = checker(CODE)
    assert {line: message for line, message in found.items() if line not in lines_with_errors()} == {}
    assert found.keys() == lines_with_errors()
