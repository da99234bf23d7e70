"""Models in files: what is saved comes back to the bit; a damaged or foreign file is a clear error."""

import json
import os
import stat

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from chainrule import Value, files, load, nn, op, save
from chainrule.core.atomic import check_writable


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
    check_writable(str(tmp_path / "f"))
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileNotFoundError, match="in a folder that does not exist"):
        check_writable(str(tmp_path / "missing" / "f"))
    with pytest.raises(IsADirectoryError, match=r"`path` is a folder: .*; give the name of a file"):
        check_writable(str(tmp_path))


def test_a_users_op_as_activation_is_saved_by_name(tmp_path):
    @op(lambda out, x: 2.0 * x)
    def squared(x):
        return x * x

    model = nn.MLP(1, [2, 1], activation="squared", rng=0)
    save(model, tmp_path / "f")
    assert load(tmp_path / "f")([2.0]).data == model([2.0]).data


def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced_whole(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    target = tmp_path / "disk" / "model.safetensors"
    save(Line(1.0), target)
    (tmp_path / "hop").symlink_to(target)
    (tmp_path / "link").symlink_to("hop")
    save(Line(2.0), tmp_path / "link")
    assert os.readlink(tmp_path / "link") == "hop"
    assert load(target, Line()).slope.data == 2.0

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save(Line(3.0), tmp_path / "link")
    assert load(tmp_path / "link", Line()).slope.data == 2.0
    assert os.listdir(tmp_path / "disk") == ["model.safetensors"]


def test_links_that_lead_to_no_file(tmp_path):
    (tmp_path / "new").symlink_to("later")
    save(Line(1.0), tmp_path / "new")
    assert load(tmp_path / "later", Line()).slope.data == 1.0
    (tmp_path / "lost").symlink_to(tmp_path / "no" / "folder")
    with pytest.raises(FileNotFoundError, match=r"in a folder that does not exist: .*/no'; create it first"):
        save(Line(), tmp_path / "lost")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match=r"`path` is there, and not a plain file: .*loop'; give another name"):
        save(Line(), tmp_path / "loop")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_what_is_no_plain_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is there, and not a plain file"):
        save(Line(), tmp_path / "pipe")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
def test_a_file_stays_as_private_as_it_was(tmp_path):
    before = os.umask(0o027)
    try:
        save(Line(), tmp_path / "f")
        assert stat.S_IMODE(os.stat(tmp_path / "f").st_mode) == 0o640
        for mode in (0o600, 0o664):
            os.chmod(tmp_path / "f", mode)
            save(Line(), tmp_path / "f")
            assert stat.S_IMODE(os.stat(tmp_path / "f").st_mode) == mode
    finally:
        os.umask(before)


@pytest.mark.parametrize("name", ["n" * 255, "ü" * 127, "a b'\n"])
def test_whatever_name_a_file_may_have(tmp_path, name):
    save(Line(7.0), tmp_path / name)
    assert load(tmp_path / name, Line()).slope.data == 7.0
    assert os.listdir(tmp_path) == [name]


def described(path, tensors, **shape):
    config = {"nin": 1, "nouts": [1], "activation": "tanh", "output": "linear", **shape}
    save_file(tensors, path, metadata={"format": "chainrule/2", "kind": "MLP", "config": json.dumps(config)})


def test_what_a_file_describes_is_compared_with_its_numbers_before_it_is_built(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MLP", None)
    described(tmp_path / "f", {"w": np.zeros(1_000_000)}, nouts=[1] * 500_000)
    with pytest.raises(ValueError, match="it would have 500,000 layers, and 10,000 are the most"):
        load(tmp_path / "f")
    described(tmp_path / "f", {"w": np.zeros(20_000)}, nouts=[1] * 10_000)
    with pytest.raises(ValueError, match=r"the file has no 1 weights and a bias called layers\.0\.neurons\.0\.w and"):
        load(tmp_path / "f")
    w, b = np.zeros(1), np.array(0.0)
    described(tmp_path / "f", {"layers.0.neurons.0.w": b, "layers.0.neurons.0.b": w})
    with pytest.raises(ValueError, match="the file has no 1 weights and a bias"):
        load(tmp_path / "f")
    described(tmp_path / "f", {"layers.0.neurons.0.w": w, "layers.0.neurons.0.b": b}, nin=10**4000)
    with pytest.raises(ValueError, match="a layer has more neurons than the file has numbers, 2"):
        load(tmp_path / "f")


def test_a_network_too_deep_for_a_file_is_refused_when_it_is_saved(tmp_path):
    with pytest.raises(ValueError, match="this MLP has 10,001 layers, and a file takes 10,000 at most"):
        save(nn.MLP(1, [1] * 10_001, rng=0), tmp_path / "f")


HOSTILE = ["\x1b[2J\x1b]0;owned\x07", "\x9b31m", "\u202eevil", "\r\n\r\n", "x" * 1_000_000, "\x1b" * 100_000]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:9]))
def test_texts_from_files_are_escaped_and_short_in_messages(tmp_path, text):
    path = tmp_path / "f"

    def refusals():
        save_file({"w": np.zeros(2)}, path, metadata={"kind": text})
        yield lambda: load(path)
        save_file({text: np.zeros((1, 1))}, path)
        yield lambda: load(path)
        save_file({text: np.zeros(1)}, path)
        yield lambda: load(path, nn.MLP(2, [1], rng=0))
        for part in ({"activation": text}, {text: 1}, {"nouts": [text]}, {"nin": text}):
            described(path, {"w": np.zeros(2)}, **part)
            yield lambda: load(path)
        header = json.dumps({"w": {"dtype": text, "shape": [1], "data_offsets": [0, 8]}}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
        yield lambda: load(path)

    for refusal in refusals():
        with pytest.raises(ValueError, match="f'") as caught:
            refusal()
        assert str(caught.value).isprintable()
        assert len(str(caught.value).replace(str(path), "")) < 600


def test_a_file_of_a_later_version_is_refused(tmp_path):
    weights = {"layers.0.neurons.0.w": np.ones(1), "layers.0.neurons.0.b": np.array(0.0)}
    for name in ("chainrule/3", "chainrule-checkpoint/2"):
        save_file(weights, tmp_path / "f", metadata={"format": name, "config": json.dumps(nn.MLP(1, [1]).config())})
        with pytest.raises(ValueError, match=f"is of a later version of chainrule, in the format '{name}': update"):
            load(tmp_path / "f")


def test_a_file_whose_network_took_scaled_columns_is_refused(tmp_path):
    weights = {"layers.0.neurons.0.w": np.ones(1), "layers.0.neurons.0.b": np.array(0.0)}
    config = json.dumps(nn.MLP(1, [1]).config())
    for notes, refused in (({}, False), ({"note:problem": "{}"}, True)):
        save_file(weights, tmp_path / "f", metadata={"format": "chainrule/1", "config": config, **notes})
        if not refused:
            assert load(tmp_path / "f")([3.0]).data == 3.0
            continue
        for model in (None, nn.MLP(1, [1])):
            with pytest.raises(ValueError, match="whose networks took scaled columns: train the model again"):
                load(tmp_path / "f", model)
