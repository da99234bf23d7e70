"""Models in files: what is saved comes back to the bit; a damaged or foreign file is a clear error."""

import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from chainrule import Value, files, load, nn, op, save


class Line(nn.Module):
    def __init__(self, slope=1.0):
        self.slope = Value(slope)
        self.terms = [Value(2.0), Value(3.0)]

    def __call__(self, x):
        return self.slope * x + sum(self.terms)


def test_an_mlp_comes_back_whole(tmp_path):
    model = nn.MLP(3, [4, 4, 1], activation="tanh", output="sigmoid", rng=1)
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert repr(again) == repr(model)
    assert again.state() == model.state()
    assert again([1.0, 2.0, 3.0]).data == model([1.0, 2.0, 3.0]).data


def test_any_module_comes_back_into_one_of_its_shape(tmp_path):
    path = str(tmp_path / "line.safetensors")
    save(Line(slope=0.1), path)
    line = load(path, Line())
    assert line.slope.data == 0.1
    with pytest.raises(
        ValueError, match=r"holds a Line, whose shape only you know: build it, then load\(path, model\)"
    ):
        load(path)


def test_lists_are_vectors_that_other_tools_can_read(tmp_path):
    path = tmp_path / "model.safetensors"
    model = nn.MLP(2, [1], rng=1)
    save(model, path)
    tensors = load_file(path)
    assert sorted(tensors) == ["layers.0.neurons.0.b", "layers.0.neurons.0.w"]
    assert tensors["layers.0.neurons.0.w"].tolist() == [w.data for w in model.layers[0].neurons[0].w]
    assert tensors["layers.0.neurons.0.b"].shape == ()


def test_special_numbers_survive(tmp_path):
    line = Line(float("nan"))
    line.terms[0].data, line.terms[1].data = float("-inf"), -0.0
    save(line, tmp_path / "f")
    again = load(tmp_path / "f", Line())
    assert str(again.state()) == str(line.state())


def test_a_model_of_another_shape_is_refused_and_unchanged(tmp_path):
    save(nn.MLP(2, [3, 1], rng=1), tmp_path / "f")
    other = nn.MLP(2, [4, 1], rng=2)
    before = other.state()
    with pytest.raises(ValueError, match="holds another model: `state` does not fit this MLP"):
        load(tmp_path / "f", other)
    assert other.state() == before


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing'; save a model there"):
        load(tmp_path / "nothing")


@pytest.mark.parametrize("content", [b"", b"\x00", b"not safetensors at all", b"\xff" * 64])
def test_a_file_that_is_not_safetensors(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ValueError, match="is not a safetensors file, or is damaged"):
        load(tmp_path / "f")


def test_a_truncated_file(tmp_path):
    save(nn.MLP(2, [3, 1]), tmp_path / "f")
    content = (tmp_path / "f").read_bytes()
    for length in range(0, len(content), 7):
        (tmp_path / "f").write_bytes(content[:length])
        with pytest.raises(ValueError, match="is not a safetensors file, or is damaged"):
            load(tmp_path / "f")


def test_a_safetensors_file_of_something_else(tmp_path):
    save_file({"w": np.zeros((2, 2))}, tmp_path / "f")
    with pytest.raises(ValueError, match=r"holds 'w' as F64 of shape \[2, 2\]"):
        load(tmp_path / "f")
    save_file({"w": np.zeros(2, dtype=np.float32)}, tmp_path / "f")
    with pytest.raises(ValueError, match="holds 'w' as F32"):
        load(tmp_path / "f", Line())
    save_file({"b": np.zeros(2)}, tmp_path / "f", metadata={"config": '{"nin": -1, "nouts": [1]}'})
    with pytest.raises(ValueError, match="describes an MLP that cannot be built: it takes `nin`, `nouts`"):
        load(tmp_path / "f")


def test_a_save_that_fails_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "f"
    save(Line(1.0), path)
    before = path.read_bytes()

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save(Line(2.0), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["f"]


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(TypeError, match=r"`model` must be an nn\.Module, got int"):
        save(3, tmp_path / "f")
    with pytest.raises(FileNotFoundError, match="in a folder that does not exist"):
        save(Line(), tmp_path / "missing" / "f")
    with pytest.raises(ValueError, match="`activation` of this MLP is a function, which a file cannot hold"):
        save(nn.MLP(2, [2, 1], activation=lambda v: v), tmp_path / "f")
    assert os.listdir(tmp_path) == []


def test_notes_go_along(tmp_path):
    save(nn.MLP(2, [1], rng=1), tmp_path / "f", {"format": "their own", "author": "Ada"})
    assert files.notes(tmp_path / "f") == {"format": "their own", "author": "Ada"}
    assert repr(load(tmp_path / "f")) == "MLP(2, [1], activation='relu', output='linear')"
    save(Line(), tmp_path / "f")
    assert files.notes(tmp_path / "f") == {}


def test_where_a_file_can_be_put_is_known_beforehand(tmp_path):
    files.check_writable(str(tmp_path / "f"))
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileNotFoundError, match="in a folder that does not exist"):
        files.check_writable(str(tmp_path / "missing" / "f"))
    with pytest.raises(IsADirectoryError, match=r"`path` is a folder: .*; give the name of a file"):
        files.check_writable(str(tmp_path))


def test_a_users_op_as_activation_is_saved_by_name(tmp_path):
    @op(lambda out, x: 2.0 * x)
    def squared(x):
        return x * x

    model = nn.MLP(1, [2, 1], activation="squared", rng=0)
    save(model, tmp_path / "f")
    assert load(tmp_path / "f")([2.0]).data == model([2.0]).data
