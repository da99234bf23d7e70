"""A training run in a file, so that it survives whatever ends the process: what `fit(checkpoint=…)` writes and reads.

A checkpoint is a safetensors file that is replaced in one move. It holds the model, the optimizer's memory, the
history, the batches done of the epoch under way, the random generators and the callbacks' memory: all that decides the
numbers to come. What is read is checked piece by piece before any of it is used.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from chainrule.core.arguments import whole_number
from chainrule.core.atomic import check_writable, remove_leftovers, write_whole
from chainrule.core.quoting import MOST_OF_A_MESSAGE, listed, quoted, shown
from chainrule.files import CHECKPOINT, MODEL, as_bytes, config_text, load_numbers, tensor_file, vectors
from chainrule.nn import MLP, Module
from chainrule.optim import Optimizer

if TYPE_CHECKING:
    import numpy as np

HALF_A_MINUTE = timedelta(seconds=30)
OPTIMIZER, HISTORY, BATCHES = "optimizer.", "history.", "batches."  # what the tensors' names begin with
RANDOM_WORDS = 625  # in the state of a Mersenne Twister

RandomState = tuple[Any, ...]


@dataclass
class Snapshot:
    """A run at one moment."""

    model: Mapping[str, float] | Mapping[str, np.ndarray]  # numbers by name, or what a file has of them
    kind: str  # the model's class
    config: str  # what to build it from, if it is an MLP
    optimizer: Mapping[str, Any]  # its `state()`
    optimizer_kind: str
    history: Mapping[str, list[float]]
    batches: list[dict[str, float]]  # the rows of those that are done, of the epoch under way
    seconds: float
    stopped: str
    compiled: bool | None  # how "auto" decided; None before it did
    shape: Mapping[str, Any]  # of the data and the batches, which must be the same when the run goes on
    randoms: Mapping[str, RandomState | None]  # by whose it is: "global", "rng", and "epoch", `rng` as the epoch began
    callbacks: list[Any]  # the `state()` of each, None where it has none


class Checkpoints:
    """Writes a run's snapshots to one file, not more often than asked: every so many steps, or so much time."""

    def __init__(self, path: str | os.PathLike[str], every: int | timedelta) -> None:
        self.path = os.fspath(path)
        self.every = every if isinstance(every, timedelta) else whole_number(every, "every")
        if isinstance(every, timedelta) and every <= timedelta(0):
            raise ValueError(
                f"`every` must be more than no time, got {every}: choose one such as timedelta(seconds=30)"
            )
        check_writable(self.path)
        remove_leftovers(self.path)
        self.written(0)

    def written(self, steps: int) -> None:
        """Note that what is in the file has taken so many steps."""
        self.steps, self.time = steps, time.monotonic()

    def due(self, steps: int) -> bool:
        """Whether a run that has taken so many steps should write."""
        if isinstance(self.every, timedelta):
            return time.monotonic() - self.time >= self.every.total_seconds()
        return steps - self.steps >= self.every

    def steps_left(self, steps: int) -> float:
        """How many may be taken before a checkpoint is due, at least 1; infinitely many if only the clock decides."""
        return math.inf if isinstance(self.every, timedelta) else max(1, self.every - (steps - self.steps))

    def write(self, snapshot: Snapshot) -> None:
        """Replace the file, in one move."""
        write_whole(self.path, _bytes_of(snapshot))
        self.written(snapshot.optimizer["steps"])


def describe(model: Module, optimizer: Optimizer, callbacks: Iterable[Any]) -> dict[str, Any]:
    """The fields of a snapshot that model, optimizer and callbacks have to give."""
    config = ""
    if type(model) is MLP:
        with suppress(ValueError):  # one that a file cannot describe: whoever resumes the run builds it
            config = config_text(model)
    return {
        "model": model.state(),
        "kind": type(model).__name__,
        "config": config,
        "optimizer": optimizer.state(),
        "optimizer_kind": type(optimizer).__name__,
        "callbacks": [callback.state() if remembers(callback) else None for callback in callbacks],
    }


def restore(path: str, saved: Snapshot, model: Module, optimizer: Optimizer, callbacks: list[Any]) -> None:
    """Put model, optimizer and callbacks into the state that was saved; an error may leave some of them changed."""
    if saved.optimizer_kind != type(optimizer).__name__:
        raise ValueError(
            f"{path!r} is of a run with {shown(saved.optimizer_kind)}, and `optimizer` is {type(optimizer).__name__}: "
            "go on with the kind of optimizer that the run began with"
        )
    if [state is not None for state in saved.callbacks] != [remembers(callback) for callback in callbacks]:
        raise ValueError(f"{path!r} is of a run with other `callbacks`: go on with the same, in the same order")
    try:
        shapes = {name: tensor.shape for name, tensor in saved.model.items()}  # type: ignore[union-attr]  # as read
        load_numbers(model, shapes, lambda name: saved.model[name].tolist(), path)  # type: ignore[union-attr]
        optimizer.load_state(saved.optimizer)
        for callback, state in zip(callbacks, saved.callbacks, strict=True):
            if state is not None:
                callback.load_state(state)
    except Exception as error:  # a callback is the user's, and what it makes of a stranger's file is its own
        reason = shown(str(error), MOST_OF_A_MESSAGE)
        raise ValueError(f"{path!r} does not fit this run: {type(error).__name__}, {reason}") from error


def remembers(callback: Any) -> bool:
    """Whether a callback has something for a checkpoint to keep."""
    return hasattr(callback, "state") and hasattr(callback, "load_state")


def _bytes_of(snapshot: Snapshot) -> bytes:
    tensors: dict[str, Any] = {MODEL + name: numbers for name, numbers in vectors(dict(snapshot.model))}  # type: ignore[arg-type]
    tensors |= {OPTIMIZER + name: numbers for name, numbers in snapshot.optimizer.items() if name != "steps"}
    tensors |= {HISTORY + name: column for name, column in snapshot.history.items()}
    if snapshot.batches:
        tensors |= {BATCHES + name: [row[name] for row in snapshot.batches] for name in snapshot.batches[0]}
    run = {
        "steps": snapshot.optimizer["steps"],
        "optimizer": snapshot.optimizer_kind,
        "columns": list(snapshot.history),
        "seconds": snapshot.seconds,
        "stopped": snapshot.stopped,
        "compiled": snapshot.compiled,
        "shape": dict(snapshot.shape),
        "randoms": dict(snapshot.randoms),
        "callbacks": snapshot.callbacks,
    }
    metadata = {"format": CHECKPOINT, "kind": snapshot.kind, "run": json.dumps(run)}
    return as_bytes(tensors, metadata | ({"config": snapshot.config} if snapshot.config else {}))


def read(path: str | os.PathLike[str]) -> Snapshot:
    """The run in a file that `fit(checkpoint=…)` wrote."""
    name = os.fspath(path)
    with tensor_file(name) as file:
        if file.metadata.get("format") != CHECKPOINT:
            kind = shown(file.metadata.get("kind", "another file"))
            raise ValueError(f"{name!r} is no checkpoint of `fit`: {kind} is what it holds")
        tensors = {part: file.numbers(part) for part in file.shapes()}
        try:
            return _snapshot(file.metadata, tensors)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            reason = shown(str(error), MOST_OF_A_MESSAGE)
            raise ValueError(f"{name!r} is a damaged checkpoint: {type(error).__name__}, {reason}") from None


def _snapshot(metadata: Mapping[str, str], tensors: Mapping[str, np.ndarray]) -> Snapshot:
    run = json.loads(metadata["run"])
    history = {name: _column(tensors, HISTORY + name) for name in _typed(run["columns"], list)}
    batches = {name.removeprefix(BATCHES): _column(tensors, name) for name in tensors if name.startswith(BATCHES)}
    for columns in (history, batches):
        if len({len(column) for column in columns.values()}) > 1:
            raise ValueError("its columns differ in length")
    randoms = _typed(run["randoms"], dict)
    if set(randoms) != {"global", "rng", "epoch"}:
        raise ValueError(f"its random states are {listed(sorted(randoms))}")
    slots = [name for name in tensors if name.startswith(OPTIMIZER)]
    return Snapshot(
        model={name.removeprefix(MODEL): tensor for name, tensor in tensors.items() if name.startswith(MODEL)},
        kind=metadata.get("kind", ""),
        config=metadata.get("config", ""),
        optimizer={
            "steps": whole_number(_typed(run["steps"], int), "steps", 0),
            **{name.removeprefix(OPTIMIZER): _column(tensors, name) for name in slots},
        },
        optimizer_kind=_typed(run["optimizer"], str),
        history=history,
        batches=[dict(zip(batches, row, strict=True)) for row in zip(*batches.values(), strict=True)],
        seconds=_typed(run["seconds"], float),
        stopped=_typed(run["stopped"], str),
        compiled=None if run["compiled"] is None else _typed(run["compiled"], bool),
        shape=_typed(run["shape"], dict),
        randoms={whose: None if state is None else _random_state(state) for whose, state in randoms.items()},
        callbacks=_typed(run["callbacks"], list),
    )


def _typed(thing: Any, kind: type) -> Any:
    if type(thing) is not kind:
        raise TypeError(f"{kind.__name__} expected, found {type(thing).__name__}")
    return thing


def _column(tensors: Mapping[str, np.ndarray], name: str) -> list[float]:
    if name not in tensors or tensors[name].ndim != 1:
        raise ValueError(f"there is no vector {quoted(name)}")
    return tensors[name].tolist()  # type: ignore[no-any-return]


def _random_state(state: Any) -> RandomState:
    """A generator's state as `setstate` takes it, which checks little of it."""
    version, words, following = _typed(state, list)
    words = [_typed(word, int) for word in _typed(words, list)]
    if version != random.Random.VERSION or len(words) != RANDOM_WORDS or not 0 <= words[-1] < RANDOM_WORDS:
        raise ValueError("a random state is not one of this Python's")
    if not all(0 <= word < 1 << 32 for word in words):
        raise ValueError("a random state has numbers that are out of range")
    return version, tuple(words), None if following is None else _typed(following, float)
