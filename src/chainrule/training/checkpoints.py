"""A training run in a file, so that it survives whatever ends the process: what `fit(checkpoint=…)` writes and reads.

A checkpoint is a safetensors file that is replaced in one move. It holds the model, the optimizer's memory, the
history, the batches done of the epoch under way, the random generators and the callbacks' memory: all that decides the
numbers to come. What is read is checked piece by piece before any of it is used.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from chainrule.core.arguments import MOST_OF_A_MESSAGE, listed, quoted, shown, whole_number
from chainrule.core.atomic import remove_leftovers, write_whole
from chainrule.data import Dataset
from chainrule.files import CHECKPOINT, MODEL, as_bytes, config_text, load_numbers, tensor_file, vectors
from chainrule.nn import MLP
from chainrule.training.history import Training
from chainrule.training.task import Position, Task

if TYPE_CHECKING:
    import numpy as np

OPTIMIZER, HISTORY, BATCHES = "optimizer.", "history.", "batches."  # prefixes of the tensors' names
RANDOM_WORDS = 625  # in the state of a Mersenne Twister

FACTS: dict[str, tuple[type, ...]] = {  # fields of a snapshot that a text holds as they are
    "seconds": (float,),
    "stopped": (str,),
    "compiled": (bool, type(None)),
    "shape": (dict,),
    "randoms": (dict,),
    "callbacks": (list,),
}

RandomState = tuple[Any, ...]


@dataclass
class Snapshot:
    """A run at one moment, as a file has it."""

    model: Mapping[str, np.ndarray]
    optimizer: Mapping[str, Any]  # its `state()`
    optimizer_kind: str
    history: Mapping[str, list[float]]
    batches: list[dict[str, float]]  # one row per batch done in the epoch under way
    seconds: float
    stopped: str
    compiled: bool | None  # how "auto" decided; None before it did
    shape: Mapping[str, Any]  # of the data and the batches, which must be the same when the run goes on
    same: Mapping[str, Any]  # digest of the data and description of the model, where there are any: likewise
    randoms: Mapping[str, RandomState | None]  # by whose it is: "global", "rng", and "epoch", `rng` as the epoch began
    callbacks: list[Any]  # the `state()` of each, None if it has none


def read(path: str | os.PathLike[str]) -> Snapshot:
    """The run in a file that `fit(checkpoint=…)` wrote."""
    name = os.fspath(path)
    with tensor_file(name) as file:
        if file.metadata.get("format") != CHECKPOINT:
            kind = shown(file.metadata.get("kind", "another file"))
            raise ValueError(f"{name!r} is no checkpoint of `fit`: {kind} is what it holds")
        tensors = {part: file.numbers(part) for part in file.shapes()}
        try:
            return _snapshot(json.loads(file.metadata["run"]), tensors)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"{name!r} is a damaged checkpoint: {_in_words(error)}") from None


def _snapshot(run: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Snapshot:
    batches = _columns(tensors, BATCHES, _names(tensors, BATCHES))
    facts = {name: _typed(run[name], *kinds) for name, kinds in FACTS.items()}
    optimizer: dict[str, Any] = {"steps": whole_number(_typed(run["steps"], int), "steps", 0)}
    return Snapshot(
        model={name: tensors[MODEL + name] for name in _names(tensors, MODEL)},
        optimizer=optimizer | {name: _column(tensors, OPTIMIZER + name) for name in _names(tensors, OPTIMIZER)},
        optimizer_kind=_typed(run["optimizer"], str),
        history=_columns(tensors, HISTORY, _typed(run["columns"], list)),
        batches=[dict(zip(batches, row, strict=True)) for row in zip(*batches.values(), strict=True)],
        same=_typed(run.get("same", {}), dict),  # which the first checkpoints lack
        **{**facts, "randoms": _randoms(facts["randoms"])},
    )


def _typed(thing: Any, *kinds: type) -> Any:
    if type(thing) not in kinds:
        raise TypeError(f"{kinds[0].__name__} expected, found {type(thing).__name__}")
    return thing


def _names(tensors: Mapping[str, np.ndarray], prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in tensors if name.startswith(prefix)]


def _columns(tensors: Mapping[str, np.ndarray], prefix: str, names: list[str]) -> dict[str, list[float]]:
    columns = {name: _column(tensors, prefix + name) for name in names}
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("its columns differ in length")
    return columns


def _column(tensors: Mapping[str, np.ndarray], name: str) -> list[float]:
    if name not in tensors or tensors[name].ndim != 1:
        raise ValueError(f"there is no vector {quoted(name)}")
    return tensors[name].tolist()  # type: ignore[no-any-return]


def _randoms(states: Mapping[str, Any]) -> dict[str, RandomState | None]:
    if set(states) != {"global", "rng", "epoch"}:
        raise ValueError(f"its random states are {listed(sorted(states))}")
    return {whose: None if state is None else _random_state(state) for whose, state in states.items()}


def _random_state(state: Any) -> RandomState:
    """A generator's state as `setstate` takes it, which checks little of it."""
    version, words, following = _typed(state, list)
    words = [_typed(word, int) for word in _typed(words, list)]
    if version != random.Random.VERSION or len(words) != RANDOM_WORDS or not 0 <= words[-1] < RANDOM_WORDS:
        raise ValueError("a random state is not one of this Python's")
    if not all(0 <= word < 1 << 32 for word in words):
        raise ValueError("a random state has numbers that are out of range")
    return version, tuple(words), None if following is None else _typed(following, float)


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}, {shown(str(error), MOST_OF_A_MESSAGE)}"


class Saver:
    """Writes a run's checkpoint after every `every` steps, or so much time; goes on from one that is there."""

    def __init__(
        self, path: str, every: int | timedelta, task: Task, position: Position, run: Training, callbacks: list[Any]
    ) -> None:
        self.path, self.every = path, every
        self.task, self.position, self.run, self.callbacks = task, position, run, callbacks
        columns = ["loss", *task.metrics]
        columns += [f"validation_{name}" for name in columns] if task.validation is not None else []
        facts = {"examples": len(task.data), "batch_size": task.batch_size, "dtype": task.dtype}
        self.shape: dict[str, Any] = {**facts, "columns": columns}
        self.same = {"data": _digest(task.data, task.validation), "model": _config(run.model)}
        if task.leads:
            remove_leftovers(self.path)
        self.written()

    # When.

    def written(self) -> None:
        """Note that the file holds the run as it is now."""
        self.steps, self.time = self.run.optimizer.steps, time.monotonic()

    def is_due(self) -> bool:
        if isinstance(self.every, timedelta):
            return self.task.leads and time.monotonic() - self.time >= self.every.total_seconds()
        return self.task.leads and self.run.optimizer.steps - self.steps >= self.every

    def steps_left(self) -> float:
        """How many steps until a checkpoint is due, at least 1; infinitely many if only the clock decides."""
        if not self.task.leads or isinstance(self.every, timedelta):
            return math.inf
        return max(1, self.every - (self.run.optimizer.steps - self.steps))

    # What.

    def save(self) -> None:
        """Write the run as its model and optimizer hold it now, if this is the process that writes."""
        if not self.task.leads:
            return
        run, position, optimizer = self.run, self.position, self.run.optimizer.state()
        facts = {
            "steps": optimizer.pop("steps"),
            "optimizer": type(run.optimizer).__name__,
            "columns": list(run.history.columns),
            "seconds": run.history.seconds,
            "stopped": run.history.stopped,
            "compiled": position.compiled,
            "shape": self.shape,
            "same": self.same,
            "randoms": {
                "global": random.getstate(),
                "rng": position.rng.getstate() if position.rng else None,
                "epoch": position.random_at_start if position.rows else None,
            },
            "callbacks": [callback.state() if _remembers(callback) else None for callback in self.callbacks],
        }
        metadata = {"format": CHECKPOINT, "kind": type(run.model).__name__, "run": json.dumps(facts)}
        for callback in self.callbacks:
            metadata |= {f"note:{name}": text for name, text in getattr(callback, "notes", {}).items()}
        if config := self.same["model"]:  # otherwise whoever resumes the run builds it
            metadata["config"] = config
        rows = position.rows
        parts: dict[str, Mapping[str, Any]] = {
            MODEL: dict(vectors(run.model.state())),
            OPTIMIZER: optimizer,
            HISTORY: run.history.columns,
            BATCHES: {name: [row[name] for row in rows] for name in rows[0]} if rows else {},
        }
        tensors = {prefix + name: numbers for prefix, part in parts.items() for name, numbers in part.items()}
        write_whole(self.path, as_bytes(tensors, metadata))
        self.written()

    # How to go on.

    def go_on(self, resume: bool) -> None:
        """Continue the run in the file, if there is one; an error if that was not asked for."""
        name, devices = self.path, self.task.devices
        with devices.file(name) if devices else nullcontext(name if os.path.lexists(name) else None) as there:
            if there is None:
                return
            if not resume:
                remedy = "say resume=True to go on from it, or remove it first"
                raise FileExistsError(f"`checkpoint` is there already: {name!r}; {remedy}")
            with self._unchanged_by_errors():
                saved = read(there)
                self._check(there, saved)
                self._restore(there, saved)
        self.written()

    def _check(self, name: str, saved: Snapshot) -> None:
        """Refuse a checkpoint of another kind of run, or one that contradicts itself."""
        task, rng = self.task, self.position.rng
        if saved.shape != self.shape:
            theirs, ours = (
                shown(", ".join(f"{name} {value}" for name, value in shape.items()), MOST_OF_A_MESSAGE)
                for shape in (saved.shape, self.shape)
            )
            raise ValueError(f"{name!r} is of a run with {theirs}, and this one has {ours}")
        if self._differs(saved, "data"):
            raise ValueError(f"{name!r} is of a run on other data: go on with the same examples, in the same order")
        if (saved.randoms["rng"] is None) != (rng is None):
            raise ValueError(f"{name!r} is of a run {'without' if rng else 'with'} `rng`: go on as it began")
        fits = all(set(row) == {"loss", *task.metrics} for row in saved.batches)
        if not fits or set(saved.history) not in (set(), set(self.shape["columns"])):
            raise ValueError(f"{name!r} is a damaged checkpoint: its columns are not those of such a run")
        if len(saved.batches) * task.batch_size >= len(task.data):
            raise ValueError(f"{name!r} is a damaged checkpoint: more batches are done than an epoch has")
        if saved.optimizer_kind != (kind := type(self.run.optimizer).__name__):
            raise ValueError(
                f"{name!r} is of a run with {shown(saved.optimizer_kind)}, and `optimizer` is {kind}: "
                "go on with the kind of optimizer that the run began with"
            )
        if [state is not None for state in saved.callbacks] != [_remembers(callback) for callback in self.callbacks]:
            raise ValueError(f"{name!r} is of a run with other `callbacks`: go on with the same, in the same order")

    def _restore(self, name: str, saved: Snapshot) -> None:
        run, position = self.run, self.position
        try:
            shapes = {part: tensor.shape for part, tensor in saved.model.items()}
            load_numbers(run.model, shapes, lambda part: saved.model[part].tolist(), name)
            if self._differs(saved, "model"):  # although it has as many numbers
                raise ValueError(f"the model was {shown(saved.same['model'], MOST_OF_A_MESSAGE)}")
            run.optimizer.load_state(saved.optimizer)
            for callback, state in zip(self.callbacks, saved.callbacks, strict=True):
                if state is not None:
                    callback.load_state(state)
        except Exception as error:  # a callback is the user's, and may raise anything over a stranger's file
            raise ValueError(f"{name!r} does not fit this run: {_in_words(error)}") from error
        run.history.extend(saved.history)
        run.history.seconds, run.history.stopped = saved.seconds, saved.stopped
        position.rows, position.compiled = saved.batches, saved.compiled
        random.setstate(saved.randoms["global"] or random.getstate())
        if position.rng:
            position.rng.setstate(saved.randoms["epoch"] or saved.randoms["rng"] or ())
            position.random_now = saved.randoms["rng"] if saved.randoms["epoch"] else None

    def _differs(self, saved: Snapshot, what: str) -> bool:
        """Whether both say what the data or the model is, and not the same."""
        theirs, ours = saved.same.get(what), self.same[what]
        return bool(theirs and ours and theirs != ours)

    @contextmanager
    def _unchanged_by_errors(self) -> Iterator[None]:
        """If the block raises, all that `_restore` changes is as it was before."""
        run, history, position = self.run, self.run.history, self.position
        model, optimizer = run.model.state(), run.optimizer.state()
        remembered = [(c, copy.deepcopy(c.state())) for c in self.callbacks if _remembers(c)]
        columns = {name: list(column) for name, column in history.columns.items()}
        facts = [(vars(thing), dict(vars(thing))) for thing in (history, position)]
        generators = [(generator, generator.getstate()) for generator in (random, position.rng) if generator]
        try:
            yield
        except BaseException:
            run.model.load_state(model)
            run.optimizer.load_state(optimizer)
            for now, before in facts:
                now.update(before)
            history.columns = columns
            for generator, state in generators:
                generator.setstate(state)
            for callback, memory in remembered:
                callback.load_state(memory)
            raise


def _digest(*sets: Dataset | None) -> str:
    """A text that tells these examples from others; empty if they hold anything but numbers and texts."""
    import numpy as np

    digest = hashlib.sha256()
    for part in (part for one in sets if one is not None for part in (one.inputs, one.targets)):
        try:
            digest.update(np.asarray(part, dtype=np.float64).tobytes())
        except (TypeError, ValueError):
            try:
                digest.update(json.dumps(part).encode())
            except (TypeError, ValueError):
                return ""
    return digest.hexdigest()


def _config(model: Any) -> str:
    """The description of an MLP; empty if a file cannot hold it."""
    if type(model) is MLP:
        with suppress(ValueError):
            return config_text(model)
    return ""


def _remembers(callback: Any) -> bool:
    """Whether a callback has something for a checkpoint to keep."""
    return hasattr(callback, "state") and hasattr(callback, "load_state")
