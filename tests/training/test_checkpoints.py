"""`fit(checkpoint=…)`: a run that is interrupted goes on to the same numbers; a bad file is refused in a sentence."""

import contextlib
import copy
import errno
import json
import math
import os
import random
import re
import signal
import struct
import subprocess
import sys
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from safetensors.numpy import load_file, save_file

from chainrule import Value, data, fit, load, losses, nn, optim, save
from chainrule.training import EarlyStopping, History, Training, checkpoints
from hostile_files import file_is_read, hostile_bytes, run_goes_on, valid_files
from project import ROOT


class InterruptionError(Exception):
    pass


class InterruptAt:
    """Ends a run abruptly, in the middle of an epoch if the loss is what counts steps."""

    def __init__(self, step, loss):
        self.calls, self.step, self.loss = 0, step, loss

    def __call__(self, predictions, targets):
        self.calls += 1
        if self.calls == self.step:
            raise InterruptionError
        return self.loss(predictions, targets)


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=optim.cosine(0.2, 0.01, 40), momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=0.02),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01),
}


class NoisyModel(nn.Module):
    """Draws from Python's global generator at every call, as dropout would."""

    def __init__(self):
        self.inner = nn.MLP(2, [4, 1], activation="tanh", rng=2)

    def __call__(self, x):
        return self.inner([number + random.gauss(0.0, 0.01) for number in x])


def run(path, interrupt=0, resume=False, optimizer="Adam", epochs=8, model=None, every=1, metrics=False, **options):
    random.seed(5)
    model = model or NoisyModel()
    loss = InterruptAt(interrupt, losses.hinge)
    stop = [EarlyStopping(patience=100)] if metrics else []
    examples = data.moons(n=22, seed=1)
    options |= {"metrics": [losses.accuracy], "validation": data.moons(n=5, seed=2)} if metrics else {}
    history = fit(
        model,
        loss,
        examples,
        optimizer=OPTIMIZERS[optimizer](model.parameters()),
        epochs=epochs,
        callbacks=stop,
        progress=False,
        checkpoint=path,
        every=every,
        resume=resume,
        **options,
    )
    return history.columns, model.state(), random.getstate()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("metrics", [False, True])
def test_an_interrupted_run_goes_on_to_the_same_numbers(tmp_path, optimizer, metrics):
    options = {"optimizer": optimizer, "batch_size": 5, "rng": 7, "metrics": metrics, "compiled": False}
    straight = run(tmp_path / "straight", **options)
    for interrupt in (2, 11, 24):  # the first epoch, its border, the middle of a later one
        path = tmp_path / f"run{interrupt}"
        with pytest.raises(InterruptionError):
            run(path, interrupt, **options)
        assert run(path, resume=True, **options) == straight


@pytest.mark.parametrize("every", [1, 3, 7, timedelta(microseconds=1), None])
def test_however_seldom_it_is_written(tmp_path, every):
    options = {"batch_size": 5, "rng": 7, "compiled": False, "every": every}
    straight = run(tmp_path / "straight", **options)
    with pytest.raises(InterruptionError):
        run(tmp_path / "run", 30, **options)
    assert run(tmp_path / "run", resume=True, **options) == straight


class StopAfter:
    def __init__(self, epochs):
        self.epochs = epochs

    def __call__(self, training):
        if training.epoch + 1 >= self.epochs:
            raise InterruptionError


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("watched", [False, True])
def test_compiled_runs_too(tmp_path, dtype, watched):
    def compiled(path, epochs=60, stop=1000, resume=False):
        model = nn.MLP(2, [4, 1], activation="tanh", rng=3)
        adam = optim.Adam(model.parameters(), lr=optim.cosine(0.05, 0.001, 60))
        options = {"callbacks": [StopAfter(stop)]} if watched else {}
        history = fit(
            model,
            losses.mean_square,
            data.xor(),
            optimizer=adam,
            epochs=epochs,
            compiled=True,
            dtype=dtype,
            progress=False,
            checkpoint=path,
            every=7,
            resume=resume,
            **options,
        )
        return history.loss, model.state(), adam.state()

    straight = compiled(tmp_path / "straight")
    if watched:
        with pytest.raises(InterruptionError):
            compiled(tmp_path / "run", stop=33)
        assert len(checkpoints.read(tmp_path / "run").history["loss"]) == 28
    else:
        compiled(tmp_path / "run", epochs=33)
    assert compiled(tmp_path / "run", resume=True) == straight


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("metrics", [(), [losses.accuracy]])
def test_compiled_batches_are_interrupted_in_the_middle_of_an_epoch(tmp_path, monkeypatch, dtype, metrics):
    def compiled(path, resume=False):
        model = nn.MLP(2, [4, 1], activation="tanh", rng=3)
        adam = optim.Adam(model.parameters(), lr=optim.cosine(0.05, 0.001, 60))
        history = fit(
            model,
            losses.hinge,
            data.moons(n=22, seed=1),
            optimizer=adam,
            epochs=8,
            batch_size=5,
            rng=7,
            metrics=metrics,
            compiled=True,
            dtype=dtype,
            progress=False,
            checkpoint=path,
            every=3,
            resume=resume,
        )
        return history.columns, model.state(), adam.state()

    straight = compiled(tmp_path / "straight")
    write_whole = checkpoints.write_whole

    def write_and_interrupt(path, content):
        write_whole(path, content)
        if checkpoints.read(path).optimizer["steps"] >= 18:
            raise InterruptionError

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_whole", write_and_interrupt)
        with pytest.raises(InterruptionError):
            compiled(tmp_path / "run")
    saved = checkpoints.read(tmp_path / "run")
    assert (len(saved.history["loss"]), len(saved.batches)) == (3, 3)
    assert compiled(tmp_path / "run", resume=True) == straight


def test_a_run_that_was_compiled_of_itself_goes_on_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr("chainrule.training.plan.seconds_to_compile", lambda epoch: 0.0)

    def automatic(path, epochs, resume=False):
        model = nn.MLP(2, [4, 1], activation="tanh", rng=3)
        history = fit(
            model, losses.mean_square, data.xor(), epochs=epochs, progress=False, checkpoint=path, resume=resume
        )
        return history, model.state()

    straight, state = automatic(tmp_path / "straight", 40)
    assert straight.engine.startswith("compiled, because")
    automatic(tmp_path / "run", 20)
    monkeypatch.setattr("chainrule.training.plan.seconds_to_compile", lambda epoch: 1e9)
    resumed, resumed_state = automatic(tmp_path / "run", 40, resume=True)
    assert resumed.engine.startswith("compiled, as the run was before it was interrupted")
    assert (resumed.loss, resumed_state) == (straight.loss, state)


def test_a_finished_run_is_not_run_again_and_can_be_prolonged(tmp_path):
    ten = run(tmp_path / "run", epochs=10)
    assert run(tmp_path / "run", epochs=10, resume=True) == ten
    longer = run(tmp_path / "run", epochs=15, resume=True)
    assert longer == run(tmp_path / "straight", epochs=15)
    assert len(longer[0]["loss"]) == 15


def test_early_stopping_stays_stopped_and_remembers_its_best(tmp_path):
    def stopped(path, interrupt=0, resume=False):
        model = nn.MLP(2, [4, 1], activation="tanh", rng=3)
        wild = optim.SGD(model.parameters(), lr=0.9)
        loss = InterruptAt(interrupt, losses.mean_square)
        stop = [EarlyStopping(patience=3)]
        options = {"epochs": 200, "compiled": False, "progress": False, "checkpoint": path, "every": 1}
        history = fit(model, loss, data.xor(), optimizer=wild, callbacks=stop, resume=resume, **options)
        return history.loss, history.stopped, model.state()

    straight = stopped(tmp_path / "straight")
    assert straight[1].startswith("loss has not improved")
    with pytest.raises(InterruptionError):
        stopped(tmp_path / "run", len(straight[0]) - 1)
    assert stopped(tmp_path / "run", resume=True) == straight
    assert stopped(tmp_path / "run", resume=True) == straight


def test_resuming_where_there_is_nothing_starts(tmp_path):
    assert run(tmp_path / "run", resume=True) == run(tmp_path / "straight")


def test_a_checkpoint_is_never_overwritten_by_another_run(tmp_path):
    run(tmp_path / "run", epochs=1)
    with pytest.raises(FileExistsError, match=r"`checkpoint` is there already: .*; say resume=True to go on from it"):
        run(tmp_path / "run", epochs=1)


def test_the_model_can_be_loaded_from_a_checkpoint(tmp_path):
    model = nn.MLP(2, [4, 1], activation="tanh", rng=3)
    fit(model, losses.mean_square, data.xor(), epochs=3, progress=False, checkpoint=tmp_path / "run")
    assert load(tmp_path / "run").state() == model.state()
    assert load(tmp_path / "run", nn.MLP(2, [4, 1], rng=1)).state() == model.state()
    assert sorted(load_file(tmp_path / "run"))[:2] == ["history.loss", "model.layers.0.neurons.0.b"]


def test_an_mlp_of_functions_has_checkpoints_too(tmp_path):
    model = nn.MLP(2, [2, 1], activation=lambda v: v.tanh(), rng=3)
    fit(model, losses.mean_square, data.xor(), epochs=2, progress=False, checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match="whose shape only you know"):
        load(tmp_path / "run")


def test_special_numbers_in_the_history_survive(tmp_path):
    model = nn.MLP(1, [1], rng=0)
    with pytest.warns(RuntimeWarning, match="the loss became"):
        fit(
            model,
            losses.mean_square,
            data.Dataset([[1.0], [2.0]], [1.0, 5.0]),
            optimizer=optim.SGD(model.parameters(), lr=1e200),
            progress=False,
            checkpoint=tmp_path / "run",
        )
    saved = checkpoints.read(tmp_path / "run")
    assert not math.isfinite(saved.history["loss"][-1])
    assert saved.stopped.startswith("the loss became")


def test_what_a_killed_process_left_beside_the_file_is_removed(tmp_path):
    token, long = "0123456789abcdef", "n" * 250
    theirs = [f".{name}-{token}.part" for name in ("run-2", f"run-{token}", "other", "run2", long[:30])]
    theirs += [f".run-{token}.part.bak", f"run-{token}.part", ".run.part", f".run-{token}-2.part"]
    for name in (*theirs, f".run-{token}.part"):
        (tmp_path / name).write_bytes(b"half")
    run(tmp_path / "run", epochs=1)
    assert sorted(os.listdir(tmp_path)) == sorted([*theirs, "run"])
    run(tmp_path / long, epochs=1)
    assert sorted(os.listdir(tmp_path)) == sorted([*theirs, "run", long])


def test_a_run_leaves_alone_what_its_neighbours_are_writing(tmp_path, monkeypatch):
    """A run on `exp` starts in the middle of a write of one on `exp-2`, and of names that begin alike."""
    for ours, neighbour in (("exp", "exp-2"), ("n" * 240 + "a", "n" * 240 + "b")):
        replace = os.replace

        def start_another(temporary, path, ours=ours, replace=replace):
            monkeypatch.setattr(os, "replace", replace)
            run(tmp_path / ours, epochs=1)
            replace(temporary, path)

        monkeypatch.setattr(os, "replace", start_another)
        run(tmp_path / neighbour, epochs=1)
        assert {ours, neighbour} <= set(os.listdir(tmp_path))


# One run at a time on a path.


class Meanwhile:
    """A callback that does something in the middle of the run."""

    def __init__(self, action):
        self.action = action

    def __call__(self, training):
        if training.epoch == 1:
            self.action()


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("alias", ["run", "./run", "link"])
def test_two_runs_on_one_new_path_do_not_overwrite_each_other(tmp_path, monkeypatch, resume, alias):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("run")
    seen = []

    def second():
        model = nn.MLP(2, [3, 1], rng=4)
        before = model.state()
        with pytest.raises(FileExistsError, match=r"another run is writing to '.*': wait until it has ended, or give"):
            fit(model, losses.mean_square, data.xor(), epochs=3, progress=False, checkpoint=alias, resume=resume)
        seen.append(model.state() == before)

    options = {"epochs": 3, "progress": False, "every": timedelta(days=1), "callbacks": [Meanwhile(second)]}
    fit(nn.MLP(2, [3, 1], rng=1), losses.mean_square, data.xor(), checkpoint="run", **options)
    assert seen == [True]
    assert sorted(os.listdir(tmp_path)) == ["link", "run"]
    fit(nn.MLP(2, [3, 1], rng=1), losses.mean_square, data.xor(), checkpoint=alias, resume=True, **options)


@pytest.mark.parametrize("ending", [InterruptionError, KeyboardInterrupt, SystemExit])
def test_a_run_that_failed_gives_its_path_back_at_once(tmp_path, ending):
    def fail():
        raise ending

    model = nn.MLP(2, [3, 1], rng=1)
    options = {"progress": False, "checkpoint": tmp_path / "run", "epochs": 3}
    with pytest.raises(ending) as kept:  # whoever keeps the error does not keep the path
        fit(model, losses.mean_square, data.xor(), callbacks=[Meanwhile(fail)], every=timedelta(days=1), **options)
    assert os.listdir(tmp_path) == []
    fit(model, losses.mean_square, data.xor(), **options)
    assert kept


CLAIMING = """
import os, sys, time
from chainrule.training.processes import claimed
with claimed(sys.argv[1]):
    if sys.argv[2] == "fork" and os.fork() == 0:
        time.sleep(600)
    print("claimed", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def claiming(path, how=""):
    """Another process that has claimed the path; killed at the end."""
    command = [sys.executable, "-c", CLAIMING, path, how]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout.readline() == b"claimed\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs signals")
def test_a_run_of_another_process_is_not_overwritten_and_one_that_was_killed_stands_in_nobodys_way(tmp_path):
    for how in ("", "fork"):
        path = tmp_path / f"run{how}"
        with claiming(path, how) as process:
            for resume in (False, True):
                with pytest.raises(FileExistsError, match="another run is writing to"):
                    run(path, epochs=1, resume=resume)
            process.kill()  # its child, if it has one, lives on
            process.wait()
            run(path, epochs=1, resume=True)
            run(path, epochs=2, resume=True)
    assert sorted(os.listdir(tmp_path)) == ["run", "runfork"]


def test_of_many_processes_that_start_at_once_one_gets_the_path(tmp_path):
    for _ in range(3):
        children = [
            subprocess.Popen(
                [sys.executable, "-c", CLAIMING, tmp_path / "run", ""],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for _ in range(4)
        ]
        losers = [child for child in children if child.stdout.readline() == b""]
        assert len(losers) == 3
        assert all(b"another run is writing to" in child.communicate()[1] for child in losers)
        (winner,) = set(children) - set(losers)
        winner.communicate()
        assert os.listdir(tmp_path) == []


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
    def no_locks(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.lockf", no_locks)
    with pytest.warns(
        RuntimeWarning, match=r"has no locks \(No locks available\): make sure yourself that no other run"
    ):
        run(tmp_path / "run", epochs=1)


def test_a_folder_where_nothing_can_be_claimed(tmp_path):
    (tmp_path / ".run.lock").mkdir()
    with pytest.raises(OSError, match=r"`checkpoint` .* cannot be claimed, by '.*\.run\.lock': Is a directory"):
        run(tmp_path / "run", epochs=1)


def test_a_write_that_fails_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    run(tmp_path / "run", epochs=3)
    before = (tmp_path / "run").read_bytes()

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        run(tmp_path / "run", epochs=6, resume=True)
    assert (tmp_path / "run").read_bytes() == before
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"every": 0}, ValueError, "`every` must be an int of at least 1, got 0"),
        ({"every": timedelta(0)}, ValueError, "`every` must be more than no time"),
        ({"checkpoint": None, "every": None}, ValueError, "`every` and `resume` are about a checkpoint"),
    ],
)
def test_wrong_options(tmp_path, options, error, message):
    options = {"checkpoint": tmp_path / "run", "resume": True, **options}
    with pytest.raises(error, match=message):
        fit(nn.MLP(2, [1]), losses.mean_square, data.xor(), progress=False, **options)


def test_a_folder_that_does_not_exist_is_told_before_training(tmp_path):
    with pytest.raises(FileNotFoundError, match="in a folder that does not exist"):
        run(tmp_path / "missing" / "run")


def resume_with(path, model=None, examples=None, loss=losses.mean_square, **options):
    model = model or nn.MLP(2, [3, 1], rng=1)
    return fit(model, loss, examples or data.xor(), epochs=9, progress=False, checkpoint=path, resume=True, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": nn.MLP(2, [2, 1], rng=0)}, "holds another model: of 13 numbers, where this one has 9"),
        ({"model": nn.MLP(2, [4, 1], rng=0)}, "holds another model: `state` does not fit this MLP"),
        ({"examples": data.moons(n=7)}, "is of a run with examples 4, .*, and this one has examples 7"),
        ({"examples": data.Dataset(data.xor().inputs, [1.0, 0.0, 0.0, 1.0])}, "is of a run on other data: go on with"),
        ({"examples": data.xor()[::-1]}, "is of a run on other data: go on with the same examples, in the same order"),
        ({"model": nn.MLP(2, [3, 1], activation="tanh", rng=0)}, 'the model was {"nin": 2, .*"activation": "relu"'),
        ({"batch_size": 2}, "and this one has examples 4, batch_size 2"),
        ({"metrics": [losses.accuracy]}, "and this one has .*'accuracy'"),
        ({"rng": 3}, "is of a run without `rng`: go on as it began"),
        ({"callbacks": [EarlyStopping()]}, "is of a run with other `callbacks`"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_nothing_changed(tmp_path, options, message):
    resume_with(tmp_path / "run")
    model = options.get("model") or nn.MLP(2, [3, 1], rng=4)
    before = model.state()
    with pytest.raises(ValueError, match=message):
        resume_with(tmp_path / "run", **{**options, "model": model})
    assert model.state() == before


def test_data_that_is_neither_numbers_nor_texts_is_not_compared(tmp_path):
    """Of objects that nobody knows how to tell apart, only the count must be the same."""

    class Point:
        def __init__(self, x):
            self.x = x

    class Network(nn.Module):
        def __init__(self):
            self.inner = nn.MLP(2, [3, 1], rng=1)

        def __call__(self, point):
            return self.inner(point.x)

    for inputs in (data.xor().inputs, data.xor().inputs[::-1]):
        examples = data.Dataset([Point(x) for x in inputs], data.xor().targets)
        resume_with(tmp_path / "objects", Network(), examples)
    texts = [data.Dataset([["a", [1]], ["b", []]], [1.0, 0.0]), data.Dataset([["a", [1]], ["c", []]], [1.0, 0.0])]

    class Lengths(nn.Module):
        def __init__(self):
            self.weight = Value(1.0)

        def __call__(self, x):
            return self.weight * len(x[1])

    resume_with(tmp_path / "texts", Lengths(), texts[0])
    resume_with(tmp_path / "texts", Lengths(), texts[0])
    with pytest.raises(ValueError, match="is of a run on other data"):
        resume_with(tmp_path / "texts", Lengths(), texts[1])


def test_another_optimizer_is_refused(tmp_path):
    resume_with(tmp_path / "run")
    model = nn.MLP(2, [3, 1], rng=4)
    with pytest.raises(ValueError, match="is of a run with Adam, and `optimizer` is SGD"):
        resume_with(tmp_path / "run", model, optimizer=optim.SGD(model.parameters(), lr=0.1))


def test_a_model_file_is_no_checkpoint(tmp_path):
    save(nn.MLP(2, [3, 1], rng=1), tmp_path / "run")
    with pytest.raises(ValueError, match="is no checkpoint of `fit`: MLP is what it holds"):
        resume_with(tmp_path / "run")


def damaged(path, change):
    """The checkpoint with its description of the run changed."""
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    run_facts = json.loads(header["__metadata__"]["run"])
    change(run_facts)
    tensors = load_file(path)
    save_file(tensors, path, {**header["__metadata__"], "run": json.dumps(run_facts)})


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.pop("steps"),
        lambda facts: facts.update(steps=-1),
        lambda facts: facts.update(steps="7"),
        lambda facts: facts.update(seconds="long"),
        lambda facts: facts.update(columns=["loss", "missing"]),
        lambda facts: facts.update(columns=[["loss"]]),
        lambda facts: facts.update(randoms={}),
        lambda facts: facts["randoms"].update({"global": [3, [0] * 10, None]}),
        lambda facts: facts["randoms"].update({"global": [3, [1 << 40] * 624 + [1], None]}),
        lambda facts: facts["randoms"].update({"global": [3, [0] * 624 + [625], None]}),
        lambda facts: facts["randoms"].update({"global": [3, [0] * 624 + [1], "x"]}),
        lambda facts: facts["randoms"].update({"global": 7}),
        lambda facts: facts.update(callbacks=7),
        lambda facts: facts.update(compiled="yes"),
        lambda facts: facts.update(stopped=None),
    ],
)
def test_a_checkpoint_that_contradicts_itself(tmp_path, change):
    resume_with(tmp_path / "run")
    damaged(tmp_path / "run", change)
    state = random.getstate()
    with pytest.raises(ValueError, match="is a damaged checkpoint"):
        resume_with(tmp_path / "run")
    assert random.getstate() == state


class Counting:
    """A callback that remembers, and may object to what it is to remember."""

    def __init__(self, error=None):
        self.error, self.seen = error, [7]

    def __call__(self, training):
        self.seen.append(training.epoch)

    def state(self):
        return {"seen": self.seen}

    def load_state(self, state):
        self.seen.clear()  # in place, and before anything is looked at
        self.seen.extend(state["seen"])
        if self.error and state["seen"] != [7]:
            raise self.error


def set_stop(facts, **changes):
    facts["callbacks"][0].update(changes)


REFUSED = [
    lambda facts: set_stop(facts, best_state=[]),
    lambda facts: set_stop(facts, best_state=None),
    lambda facts: set_stop(facts, before=dict.fromkeys(facts["callbacks"][0]["before"], 10**400)),
    lambda facts: set_stop(facts, before={name: [1.0] for name in facts["callbacks"][0]["before"]}),
    lambda facts: set_stop(facts, best="\x1b[2J" * 10_000),
    lambda facts: set_stop(facts, best_epoch=-1),
    lambda facts: set_stop(facts, best_epoch=10**400),
    lambda facts: facts["callbacks"].__setitem__(0, []),
    lambda facts: facts["callbacks"].__setitem__(0, 7),
    lambda facts: facts["callbacks"].__setitem__(1, {}),
    lambda facts: facts["callbacks"].__setitem__(1, {"seen": None}),
    lambda facts: facts.update(steps=10**400),
    lambda facts: facts.update(steps=1 << 60),
    lambda facts: facts["randoms"].update(rng=[3, [0] * 10, None]),
    lambda facts: facts["shape"].update({"\x1b[2J": "x" * 100_000}),
    lambda facts: facts.update(optimizer="\x1b[2J" * 10_000),
    lambda facts: facts.update(columns=["\x1b[2J" * 10_000]),
]


@pytest.mark.parametrize("change", REFUSED)
def test_a_resumption_that_is_refused_has_changed_nothing(tmp_path, change):
    def everything(model, adam, rng, stop, counting):
        return model.state(), adam.state(), rng.getstate(), random.getstate(), stop.state(), counting.state()

    def attempt(error=None):
        """Whether all is as it was before, and the error, if there was one."""
        model, rng, stop, counting = nn.MLP(2, [3, 1], rng=4), random.Random(3), EarlyStopping(), Counting(error)
        adam = optim.Adam(model.parameters(), lr=0.01)
        stop.start(Training(model, adam, History()))
        options = {"model": model, "optimizer": adam, "rng": rng, "callbacks": [stop, counting], "batch_size": 2}
        before = copy.deepcopy(everything(model, adam, rng, stop, counting))
        try:
            resume_with(tmp_path / "run", **options)
        except BaseException as error:
            return before == everything(model, adam, rng, stop, counting), error
        return before == everything(model, adam, rng, stop, counting), None

    assert attempt() == (False, None)
    for mine in (RuntimeError("mine"), AttributeError("mine"), KeyboardInterrupt("mine"), SystemExit("mine")):
        same, error = attempt(mine)
        assert same
        assert "mine" in str(error)
        assert isinstance(error, ValueError if isinstance(mine, Exception) else type(mine))
    damaged(tmp_path / "run", change)
    same, error = attempt()
    assert same
    assert isinstance(error, ValueError)
    assert re.search(r"run' (is a damaged checkpoint|does not fit this run|is of a run)", str(error))
    assert str(error).isprintable()
    assert len(str(error)) < 1200


def test_wrong_options_of_a_resumption_change_nothing(tmp_path):
    resume_with(tmp_path / "run")
    model = nn.MLP(2, [3, 1], rng=4)
    before = model.state()
    with pytest.raises(ValueError, match="`every` must be an int of at least 1"):
        resume_with(tmp_path / "run", model, every=0)
    assert model.state() == before


def test_a_checkpoint_with_too_many_batches_done(tmp_path):
    resume_with(tmp_path / "run")
    tensors, path = load_file(tmp_path / "run"), tmp_path / "run"
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    save_file({**tensors, "batches.loss": np.zeros(9)}, path, header["__metadata__"])
    with pytest.raises(ValueError, match="more batches are done than an epoch has"):
        resume_with(path)


# Hostile files. `tools/fuzz.py` runs the same many times over.


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    return valid_files(tmp_path_factory.mktemp("valid"))


@pytest.mark.once
def test_hostile_files_are_refused_in_a_sentence(tmp_path, contents):  # `make fuzz` tries as many as you like
    @settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(hostile_bytes(contents))
    def attempt(content):
        for read in (load, checkpoints.read, lambda path: load(path, nn.MLP(2, [3, 1], rng=0)), run_goes_on):
            file_is_read(read, tmp_path / "file", content)

    attempt()


def test_the_hostile_files_are_hostile_enough_for_a_careless_reader(contents):
    def careless(content):
        size = struct.unpack("<Q", content[:8].ljust(8, b"\0"))[0]
        header = json.loads(content[8 : 8 + size])
        return [part["shape"] for name, part in header.items() if name != "__metadata__"]

    @settings(max_examples=300, deadline=None, database=None, phases=[Phase.generate])
    @given(hostile_bytes(contents))
    def attempt(content):
        with contextlib.suppress(ValueError):
            careless(content)

    with pytest.raises((KeyError, TypeError, AttributeError, OverflowError, ExceptionGroup)):
        attempt()


@pytest.mark.parametrize(
    "config",
    [
        '{"nin": 1000000000, "nouts": [1000000000], "activation": "relu", "output": "linear"}',
        '{"nin": true, "nouts": [1], "activation": "relu", "output": "linear"}',
        '{"nin": 1, "nouts": "11", "activation": "relu", "output": "linear"}',
        '{"nin": 1, "nouts": [1], "activation": "../../relu", "output": "linear"}',
        '{"nin": 1, "nouts": [1], "activation": ["relu"], "output": "linear"}',
        '{"nin": 1, "nouts": [1], "activation": "relu", "output": "linear", "rng": 3}',
        '{"nin": ' + "9" * 5000 + ', "nouts": [1], "activation": "relu", "output": "linear"}',
        "[" * 100_000,
        "[]",
        "7",
        "",
    ],
)
def test_an_absurd_description_is_refused_before_anything_is_built(tmp_path, config):
    save_file({"w": np.zeros(2)}, tmp_path / "f", metadata={"config": config})
    with pytest.raises(ValueError, match="describes an MLP that cannot be built"):
        load(tmp_path / "f")


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 10**12, 2**31, 101_000_000])
def test_an_absurd_header_size(tmp_path, size):
    save(nn.MLP(2, [1]), tmp_path / "f")
    (tmp_path / "f").write_bytes(struct.pack("<Q", size) + (tmp_path / "f").read_bytes()[8:])
    for reading in (load, checkpoints.read):
        with pytest.raises(ValueError, match="is not a safetensors file, or is damaged"):
            reading(tmp_path / "f")


@pytest.mark.parametrize("shape", [[2**62], [2**62, 2**62], [0, 2**62], [-1], [1.5], "2", None])
def test_absurd_shapes(tmp_path, shape):
    header = json.dumps({"w": {"dtype": "F64", "shape": shape, "data_offsets": [0, 16]}}).encode()
    (tmp_path / "f").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    with pytest.raises(ValueError, match=r"is not a safetensors file|holds 'w' as F64"):
        load(tmp_path / "f")


def test_tensors_that_overlap_or_leave_the_file(tmp_path):
    for offsets in ([0, 8], [0, 10**15], [8, 24], [24, 8]):
        parts = {name: {"dtype": "F64", "shape": [2], "data_offsets": offsets} for name in ("a", "b")}
        header = json.dumps(parts).encode()
        (tmp_path / "f").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
        with pytest.raises(ValueError, match="is not a safetensors file, or is damaged"):
            load(tmp_path / "f")


def test_names_are_never_paths_or_attributes(tmp_path):
    for name in ("../../etc/passwd", "/etc/passwd", "__class__", "layers.0.__dict__", "w\0"):
        save_file({name: np.zeros(3)}, tmp_path / "f", metadata={"kind": "MLP"})
        with pytest.raises(ValueError, match="holds another model"):
            load(tmp_path / "f", nn.MLP(2, [1], rng=0))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_pipes_devices_and_folders_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        for reading in (load, checkpoints.read):
            with pytest.raises(ValueError, match="is not a plain file"):
                reading(path)


def test_a_large_file_is_compared_with_the_model_before_it_is_taken_apart(tmp_path):
    save_file({"w": np.zeros(1_000_000)}, tmp_path / "f")
    with pytest.raises(ValueError, match="of 1,000,000 numbers, where this one has 3"):
        load(tmp_path / "f", nn.MLP(2, [1], rng=0))


@pytest.mark.slow
def test_kill_dash_nine(tmp_path):
    """`tools/kill_checkpoints.py` has the details; it exits with 1 if a file was lost or a number differs."""
    command = [sys.executable, ROOT / "tools" / "kill_checkpoints.py", "--kills", "12", "--folder", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("12 kills (")


def test_a_callback_that_remembers_nothing_is_called_as_ever(tmp_path):
    seen = []
    options = {"epochs": 3, "progress": False, "callbacks": [lambda training: seen.append(type(training))]}
    fit(nn.MLP(2, [1], rng=0), losses.mean_square, data.xor(), checkpoint=tmp_path / "run", **options)
    assert seen == [Training] * 3


def test_the_values_themselves_stay_the_users(tmp_path):
    """A resumed run changes the model that was given, and makes no other."""
    resume_with(tmp_path / "run")
    model = nn.MLP(2, [3, 1], rng=9)
    parameters = model.parameters()
    resume_with(tmp_path / "run", model)
    assert model.parameters() == parameters
    assert all(isinstance(parameter, Value) for parameter in parameters)
