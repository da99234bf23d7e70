"""Batches and training over many devices and processes: the numbers of one process, and an end that explains itself."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from chainrule import Value, compile, data, detect_anomaly, fit, losses, nn, optim
from chainrule.training import checkpoints

jax = pytest.importorskip("jax")

import sharded  # noqa: E402
from chainrule.compiler.run.sharding import Layout  # noqa: E402

SINGLE = 1e-5
LIMIT = 240  # seconds after which processes count as hanging: far more than they need on a busy machine


class Ended:
    """Processes that have run a task of sharded.py: their exit codes and what they wrote."""

    def __init__(self, task, folder, processes=1, devices=1):
        with socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # for process 0, which sets it too
            held.bind(("127.0.0.1", 0))
            started = self.start(task, folder, processes, devices, held.getsockname()[1])
            try:
                written = [process.communicate(timeout=LIMIT) for process in started]
            finally:
                for process in started:
                    process.kill()
        self.codes = [process.returncode for process in started]
        self.out, self.errors = zip(*written, strict=True)

    def start(self, task, folder, processes, devices, port):
        haste = "--xla_backend_optimization_level=0" if processes > 1 else ""  # each of them compiles every program
        flags = f"--xla_force_host_platform_device_count={devices} {haste}"
        command = [sys.executable, "-W", "error", Path(__file__).parents[1] / "support" / "sharded.py", task]
        return [
            subprocess.Popen(
                [*map(str, [*command, k, processes, port, folder])],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
            )
            for k in range(processes)
        ]


def assert_close(found, expected, tolerance=1e-12):
    assert np.abs(found - expected).max() <= tolerance * max(1.0, np.abs(expected).max())


def assert_equals_one_process(folder, processes):
    """What task `equality` found, against eager code in this process."""
    expected = sharded.batches([sharded.UNEVEN], strict=True) | sharded.trainings(compiled=False)
    first, *others = [np.load(folder / f"{k}.npz") for k in range(processes)]
    assert set(first) == {*expected, "fault"}
    for name, numbers in expected.items():
        assert_close(first[name], numbers)
        assert all(other[name].tolist() == first[name].tolist() for other in others)
    with pytest.raises(AssertionError):  # a gradient that is not added up is noticed
        assert_close(first["fault"], expected[f"{sharded.UNEVEN} examples"])


def test_eight_devices(tmp_path):
    ended = Ended("devices", tmp_path, devices=8)
    assert ended.codes == [0], ended.errors
    assert_equals_one_process(tmp_path, 1)
    found = np.load(tmp_path / "devices.npz")
    expected = sharded.batches([16, sharded.UNEVEN, 1], strict=True)
    expected |= {f"{name}, by XLA": numbers for name, numbers in expected.items()}
    expected["sum"] = sharded.train("SGD", sharded.small_sum, 22, compiled=False)
    for name, numbers in expected.items():
        assert_close(found[name], numbers)
    single = sharded.batches([sharded.UNEVEN], strict=True) | {"Adam": sharded.train(compiled=False)}
    for name, numbers in single.items():
        assert_close(found[f"{name}, float32"], numbers, SINGLE)
        assert np.abs(found[f"{name}, float32"] - numbers).max() > 0.0


def test_four_processes(tmp_path):
    ended = Ended("equality", tmp_path, 4)
    assert ended.codes == [0] * 4, ended.errors
    assert_equals_one_process(tmp_path, 4)


class TestTheEnd:
    """Whatever ends one process ends all, soon and with a sentence; and the next start goes on."""

    def test_a_killed_process(self, tmp_path):
        straight, folder = tmp_path / "straight", tmp_path / "killed"
        straight.mkdir()
        folder.mkdir()
        assert Ended("deadly", straight, 2).codes == [0, 0]
        for victim in (1, 0):  # process 0 is the one that JAX itself cannot do without
            (folder / "victim").write_text(str(victim))
            ended = Ended("deadly", folder, 2)
            assert ended.codes[victim] == -9
            assert ended.codes[1 - victim] not in (0, -9)
            assert f"process {victim} of 2 (counted from 0) ended in the middle of `fit`" in ended.errors[victim]
            sentence = "ConnectionError: a process of this run has ended|process 1 of 2 .* ended in the middle of `fit`"
            assert re.search(sentence, ended.errors[1 - victim]), ended.errors[1 - victim]
            assert checkpoints.read(folder / "run").optimizer["steps"] == 6  # of 8 that were taken
        ended = Ended("deadly", folder, 2)
        assert ended.codes == [0, 0]
        assert "loss" in ended.out[0]
        assert "loss" not in ended.out[1]  # progress is shown once
        for k in (0, 1):
            assert np.load(folder / f"{k}.npy").tolist() == np.load(straight / "0.npy").tolist()

    @pytest.mark.slow
    def test_one_of_four(self, tmp_path):
        (tmp_path / "victim").write_text("2")
        ended = Ended("deadly", tmp_path, 4)
        assert ended.codes[2] == -9
        assert all(ended.codes[k] > 0 or ended.codes[k] == -6 for k in (0, 1, 3))
        assert all(re.search("has ended|ended in the middle", text) for text in ended.errors), ended.errors

    def test_processes_that_were_given_different_things(self, tmp_path):
        ended = Ended("disagreement", tmp_path, 2)
        assert ended.codes == [1, 1]
        for text in ended.errors:
            assert "process 1 has other parameters than process 0: every process must be given the same" in text

    def test_an_error_in_one_process(self, tmp_path):
        ended = Ended("failure", tmp_path, 2)
        assert 0 not in ended.codes
        assert "FileNotFoundError: `path` is in a folder that does not exist" in ended.errors[0]
        assert re.search("has ended|ended in the middle", ended.errors[1])


class TestErrors:
    def test_other_backends(self):
        for options in ({}, {"backend": "jax", "strict": True}):
            f = compile(lambda x: x * Value(2.0), **options)
            with pytest.raises(ValueError, match=r"`shard` runs programs through JAX.*backend='jax'"):
                f.shard("all")

    def test_what_is_no_mesh(self):
        f = compile(lambda x: x * Value(2.0), backend="jax")
        for mesh in ("some", 8, None, jax.devices()):
            with pytest.raises(TypeError, match=r"`mesh` must be a jax\.sharding\.Mesh, or 'all'"):
                f.shard(mesh)

    def test_a_mesh_without_devices_of_this_process(self, monkeypatch):
        monkeypatch.setattr("jax.process_index", lambda: 3)
        with pytest.raises(ValueError, match="`mesh` has no device of process 3"):
            compile(lambda x: x * Value(2.0), backend="jax").shard("all")

    def test_batches(self):
        f = compile(lambda x: [x * Value(2.0)], backend="jax").shard("all")
        with pytest.raises(ValueError, match="`reduce` must be 'mean', 'sum' or None, got 'max'"):
            f.batch([1.0], reduce="max")
        with pytest.raises(TypeError, match="a gradient is that of one number"):
            f.batch([1.0])
        with pytest.raises(ValueError, match="the batch is empty"):
            f.batch([])

    def test_fit(self):
        model = nn.MLP(2, [1], rng=1)
        points = data.moons(n=4)
        with pytest.raises(ValueError, match="with a `mesh` the steps are compiled, by XLA: leave `compiled` out"):
            fit(model, losses.hinge, points, mesh="all", compiled=False)
        with pytest.raises(ValueError, match="are not watched by detect_anomaly"), detect_anomaly():
            fit(model, losses.hinge, points, mesh="all")
        with pytest.raises(TypeError, match="`loss` must return a Value"):
            fit(model, lambda p, y: 1.0, points, mesh="all")

    def test_checkpoints(self, tmp_path):
        (tmp_path / "run").touch()
        model, points = nn.MLP(2, [1], rng=1), data.moons(n=4)
        with pytest.raises(FileExistsError, match="`checkpoint` is there already"):
            fit(model, losses.hinge, points, mesh="all", checkpoint=tmp_path / "run")
        with pytest.raises(ValueError, match="is not a safetensors file, or is damaged"):
            fit(model, losses.hinge, points, mesh="all", checkpoint=tmp_path / "run", resume=True)

    def test_an_optimizer_with_a_step_of_its_own(self):
        class Clipped(optim.SGD):
            def step(self):
                optim.clip_grad_value(self.parameters, 1.0)
                super().step()

        model = nn.MLP(2, [1], rng=1)
        with pytest.raises(ValueError, match=r"`optimizer` has a `step` of its own, .* write Clipped as an `update`"):
            fit(model, losses.hinge, data.moons(n=4), optimizer=Clipped(model.parameters(), lr=0.1), mesh="all")

    def test_a_loss_that_is_not_of_single_examples(self):
        def largest(predictions, targets):
            return losses.sum_of_squares(predictions, targets).sqrt()

        for loss, message in (
            (largest, "`loss` must be the mean or the sum of the losses of single examples"),
            (lambda p, y: 0.0 * p[0], "`loss` is 0.0 for five examples"),
        ):
            with pytest.raises(ValueError, match=message):
                fit(nn.MLP(2, [1], rng=1), loss, data.moons(n=4), mesh="all")


def test_a_new_program_for_every_batch_size_draws_a_warning():
    f = compile(lambda x: Value(2.0) * x, backend="jax").shard("all")
    for count in range(1, 9):
        f.batch(np.ones(count))
    with pytest.warns(RuntimeWarning, match="over and over .* the batch was of 8 examples and is of 9") as told:
        f.batch(np.ones(9))
    assert told[0].filename == __file__


def test_layouts():
    assert Layout.of(13, 4, 1000) == Layout(4, 1, 4)
    assert Layout.of(1, 8, 64) == Layout(8, 1, 1)
    assert Layout.of(1000, 2, 64) == Layout(2, 8, 63)


def test_a_batch_in_several_runs(monkeypatch):
    monkeypatch.setattr("chainrule.compiler.backends.xla.CPU_BATCH", 1)
    w = Value(3.0)
    f = compile(lambda x: (w * x).tanh(), backend="jax").shard("all")
    x = np.linspace(-1, 1, 150)
    value, (gradient,) = f.batch_value_and_grad(x, reduce="sum")
    assert value == pytest.approx(np.tanh(3 * x).sum(), abs=1e-12)
    assert gradient == pytest.approx((x * (1 - np.tanh(3 * x) ** 2)).sum(), abs=1e-12)
    assert f.batch(x, reduce=None) == pytest.approx(np.tanh(3 * x), abs=1e-12)
    assert repr(f) == "<ShardedFunction <lambda> on 1 device of 1 process>"
