"""The examples run and show what they promise."""

import pytest

from scripts import output


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


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eager", "compiled", "batched"])
def test_microgpt(tmp_path, mode):
    shown = output("microgpt.py", tmp_path, "--mode", mode, "--steps", "30")
    assert f"609 names, 4,192 parameters, 30 steps, {mode}" in shown
    assert shown.splitlines()[-1].count(", ") == 19
