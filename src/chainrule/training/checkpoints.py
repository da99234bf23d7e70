"""A training run in a file, so that it survives whatever ends the process: what `fit(checkpoint=…)` writes and reads.

A checkpoint is a safetensors file that is replaced in one move. It holds the model, the optimizer's memory, the
history, the batches done of the epoch under way, the random generators and the callbacks' memory: all that decides the
numbers to come. What is read is checked piece by piece before any of it is used.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainrule.core.arguments import MOST_OF_A_MESSAGE, listed, quoted, shown, whole_number
from chainrule.core.atomic import write_whole
from chainrule.files import CHECKPOINT, MODEL, as_bytes, tensor_file, vectors

if TYPE_CHECKING:
    import numpy as np

OPTIMIZER, HISTORY, BATCHES = "optimizer.", "history.", "batches."  # prefixes of the tensors' names
RANDOM_WORDS = 625  # in the state of a Mersenne Twister

FACTS: dict[str, tuple[type, ...]] = {  # fields of a snapshot that a text holds as they are, in this order
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
    """A run at one moment."""

    model: Mapping[str, float] | Mapping[str, np.ndarray]  # numbers by name, or the vectors read from a file
    kind: str  # the model's class
    config: str  # what to build it from, if it is an MLP
    optimizer: Mapping[str, Any]  # its `state()`
    optimizer_kind: str
    history: Mapping[str, list[float]]
    batches: list[dict[str, float]]  # one row per batch done in the epoch under way
    seconds: float
    stopped: str
    compiled: bool | None  # how "auto" decided; None before it did
    shape: Mapping[str, Any]  # of the data and the batches, which must be the same when the run goes on
    randoms: Mapping[str, RandomState | None]  # by whose it is: "global", "rng", and "epoch", `rng` as the epoch began
    callbacks: list[Any]  # the `state()` of each, None if it has none


def write(path: str, snapshot: Snapshot) -> None:
    """Replace the file, in one move."""
    tensors: dict[str, Any] = {MODEL + name: numbers for name, numbers in vectors(dict(snapshot.model))}  # type: ignore[arg-type]
    tensors |= {OPTIMIZER + name: numbers for name, numbers in snapshot.optimizer.items() if name != "steps"}
    tensors |= {HISTORY + name: column for name, column in snapshot.history.items()}
    if snapshot.batches:
        tensors |= {BATCHES + name: [row[name] for row in snapshot.batches] for name in snapshot.batches[0]}
    run = {
        "steps": snapshot.optimizer["steps"],
        "optimizer": snapshot.optimizer_kind,
        "columns": list(snapshot.history),
        **{name: getattr(snapshot, name) for name in FACTS},
    }
    metadata = {"format": CHECKPOINT, "kind": snapshot.kind, "run": json.dumps(run)}
    write_whole(path, as_bytes(tensors, metadata | ({"config": snapshot.config} if snapshot.config else {})))


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
    batches = _columns(tensors, BATCHES, _names(tensors, BATCHES))
    facts = {name: _typed(run[name], *kinds) for name, kinds in FACTS.items()}
    optimizer: dict[str, Any] = {"steps": whole_number(_typed(run["steps"], int), "steps", 0)}
    return Snapshot(
        model={name: tensors[MODEL + name] for name in _names(tensors, MODEL)},
        kind=metadata.get("kind", ""),
        config=metadata.get("config", ""),
        optimizer=optimizer | {name: _column(tensors, OPTIMIZER + name) for name in _names(tensors, OPTIMIZER)},
        optimizer_kind=_typed(run["optimizer"], str),
        history=_columns(tensors, HISTORY, _typed(run["columns"], list)),
        batches=[dict(zip(batches, row, strict=True)) for row in zip(*batches.values(), strict=True)],
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
