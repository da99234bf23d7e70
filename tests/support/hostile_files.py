"""Safetensors files as an enemy would make them, and what must hold of whoever reads them.

They are valid ones cut, flipped and edited, and plain noise: models, models that `chainrule train` saved, checkpoints.
"""

import json
import random
import struct

from hypothesis import strategies as st

from chainrule import data, fit, losses, nn, optim, save
from chainrule.cli.problems import Problem
from chainrule.training import EarlyStopping, History, Training

SIZES = [0, 1, 7, 2**16, 2**31, 2**40, 2**63, 2**64 - 1]
NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.sampled_from(SIZES), st.booleans(), st.none())
NASTY_TEXTS = [
    "\x1b[2J",
    "\x1b]0;owned\x07",
    "\x9b31m",
    "\u202e",
    "\ud800",
    "\r\n",
    "x" * 10_000,
    "\x1b" * 10_000,
    "9" * 5000,
]
JSON = st.recursive(
    NUMBERS | st.text(max_size=8) | st.sampled_from(NASTY_TEXTS) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def valid_files(folder):
    """A model, a model of some table, and a checkpoint."""
    model = nn.MLP(2, [3, 1], rng=1)
    save(model, folder / "model")
    save(
        nn.MLP(2, [3], rng=1), folder / "trained", {"problem": Problem("classes", ["a", "b"], "y", [*"pqr"]).to_json()}
    )
    train(*new_run(), folder / "run")
    return [(folder / name).read_bytes() for name in ("model", "trained", "run")]


def new_run():
    """What takes part in a run: a model, its optimizer, a generator and a callback that remembers."""
    model = nn.MLP(2, [3, 1], rng=2)
    adam, stop = optim.Adam(model.parameters(), lr=0.1), EarlyStopping(patience=100)
    stop.start(Training(model, adam, History()))
    return model, adam, random.Random(1), stop


def train(model, adam, rng, stop, path):
    options = {"optimizer": adam, "rng": rng, "callbacks": [stop], "batch_size": 3, "metrics": [losses.accuracy]}
    options |= {"epochs": 3, "compiled": False, "progress": False, "checkpoint": path, "resume": True}
    fit(model, losses.mean_square, data.xor(), **options)


def parts(content):
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def joined(header, body, size=None):
    text = (header if isinstance(header, str) else json.dumps(header)).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text) if size is None else size) + text + body


@st.composite
def cut(draw, contents):
    content = draw(st.sampled_from(contents))
    return content[: draw(st.integers(0, len(content)))] + draw(st.binary(max_size=9))


@st.composite
def flipped(draw, contents):
    content = bytearray(draw(st.sampled_from(contents)))
    for _ in range(draw(st.integers(1, 6))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content)


@st.composite
def resized(draw, contents):
    header, body = parts(draw(st.sampled_from(contents)))
    return joined(header, body, draw(st.sampled_from(SIZES) | st.integers(0, 2**64 - 1)))


@st.composite
def edited(draw, contents):
    """Something in the header, however deep, replaced, removed or added; texts that hold JSON are gone into."""
    header, body = parts(draw(st.sampled_from(contents)))
    header = edit(draw, header)
    return joined(header, body + draw(st.binary(max_size=16)))


def edit(draw, thing):
    if isinstance(thing, str) and thing[:1] in "{[" and draw(st.booleans()):
        try:
            return json.dumps(edit(draw, json.loads(thing)))
        except ValueError:
            return thing
    if isinstance(thing, dict) and thing and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(thing)))
        change = draw(st.sampled_from(["deeper", "deeper", "deeper", "remove", "rename", "add"]))
        rest = {name: part for name, part in thing.items() if name != key}
        if change == "remove":
            return rest
        if change == "rename":
            return {**rest, draw(st.text(max_size=12)): thing[key]}
        if change == "add":
            return {**thing, draw(st.text(max_size=12) | st.just("__metadata__")): draw(JSON)}
        return {**rest, key: edit(draw, thing[key])}
    if isinstance(thing, (list, str)) and thing and draw(st.integers(0, 9)) == 7:
        return thing * draw(st.sampled_from([2, 100, 20_000]))
    if isinstance(thing, list) and thing and draw(st.integers(0, 3)):
        k = draw(st.integers(0, len(thing) - 1))
        return [*thing[:k], edit(draw, thing[k]), *thing[k + 1 :]]
    return draw(JSON)


def hostile_bytes(contents):
    """Files that may or may not be readable; reading one must give an object or a ValueError."""
    return st.one_of(
        edited(contents),
        edited(contents),
        flipped(contents),
        cut(contents),
        resized(contents),
        st.binary(max_size=200),
        st.builds(joined, JSON, st.binary(max_size=64)),
    )


def file_is_read(read, path, content):
    """Whether `read` finds something in the content; if not, its error must name the file, and can be printed."""
    path.write_bytes(content)
    try:
        read(path)
    except ValueError as error:
        message = str(error)
    else:
        return True
    assert str(path) in message, f"the error does not name the file: {message}"
    assert message.isprintable(), message
    assert len(message.replace(str(path), "")) < 1000, message
    return False


def run_goes_on(path):
    """Go on with the run that a file holds; if it is refused, all that takes part in it must be as it was."""
    model, adam, rng, stop = taking_part = new_run()

    def everything():
        return repr([model.state(), adam.state(), rng.getstate(), random.getstate(), stop.state()])  # NaN is NaN there

    before = everything()
    try:
        train(*taking_part, path)
    except ValueError:
        assert everything() == before, "a resumption was refused and has changed something"
        raise
