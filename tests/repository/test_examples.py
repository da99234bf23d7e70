"""The examples run and show what they promise."""

import os
import subprocess
import sys

import pytest

from scripts import EXAMPLES, output


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
@pytest.mark.parametrize(("mode", "steps"), [("eager", 10), ("compiled", 30), ("batched", 3)])
def test_microgpt(tmp_path, mode, steps):
    shown = output("microgpt.py", tmp_path, "--mode", mode, "--steps", str(steps))
    assert f"609 names, 4,192 parameters, {steps} steps, {mode}" in shown
    assert shown.splitlines()[-1].count(", ") == 19


def test_greeks(tmp_path):
    shown = output("greeks.py", tmp_path)
    assert shown.startswith("100,000 paths of 12 dates")
    assert [line.split()[0] for line in shown.splitlines()[2:]] == ["price", "delta", "vega", "rho", "theta"]


def test_predators(tmp_path):
    shown = output("predators.py", tmp_path)
    assert "2,000 fits of 400 Runge-Kutta steps" in shown
    assert "found 1.10" in shown


def test_logistic(tmp_path):
    shown = output("logistic.py", tmp_path)
    assert "300 rows; the odds that sprouted is 'yes' rather than 'no'" in shown
    file = tmp_path / "own.csv"
    file.write_text("ill,dose\n1,0.5\n0,2.5\n1,1.5\n0,1.0\n")
    assert "4 rows; the odds that ill is 1 rather than 0" in output("logistic.py", tmp_path, str(file), "ill")


@pytest.mark.slow
def test_digits(tmp_path):
    assert "of the 360 images of the test set" in output("digits.py", tmp_path)


class TestManyMachines:
    def test_a_rehearsal(self, tmp_path):
        pytest.importorskip("jax")
        shown = output("many_machines.py", tmp_path, "--processes", "2", "--epochs", "5")
        assert "on 2 devices of 2 processes" in shown
        assert shown.count("accuracy") == 2  # on the progress bar and below it: one process shows them
        again = output("many_machines.py", tmp_path, "--epochs", "5")  # from the checkpoint: there is nothing to do
        assert shown.splitlines()[-1] == again.splitlines()[-1]

    def test_in_a_cluster(self, tmp_path):
        """With the variables that Slurm sets; JAX makes a port of the number of the job."""
        pytest.importorskip("jax")
        slurm = {"JOB_ID": str(os.getpid()), "STEP_NODELIST": "localhost", "STEP_NUM_NODES": "1", "NTASKS": "2"}
        started = [
            subprocess.Popen(
                [sys.executable, EXAMPLES / "many_machines.py", "--cluster", "--epochs", "2"],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ
                | {f"SLURM_{name}": value for name, value in slurm.items()}
                | {"SLURM_PROCID": str(k), "SLURM_LOCALID": str(k)},
            )
            for k in range(2)
        ]
        shown = [process.communicate()[0] for process in started]
        assert [process.returncode for process in started] == [0, 0]
        assert "on 2 devices of 2 processes" in shown[0]
        assert "loss" not in shown[1]
