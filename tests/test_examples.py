"""The examples run and show what they promise."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def output(name, cwd, *arguments):
    command = [sys.executable, EXAMPLES / name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd).stdout


def test_xor(tmp_path):
    _, tanh, relu = output("xor.py", tmp_path).splitlines()
    assert "answers 0.00, 1.00, 1.00, 0.00" in tanh
    assert tanh.startswith("tanh ▇")
    assert "answers 0.00, 1.00, 1.00, 0.00" not in relu
    assert "from seed 3:" in output("xor.py", tmp_path, "3")


def test_moons(tmp_path):
    shown = output("moons.py", tmp_path)
    assert "0.8958441028683222   │ 0.8958441028683222" in shown
    assert "●" in shown
    assert "same answers: True" in shown
    assert (tmp_path / "moons.safetensors").exists()
