"""Checkpoints of a run of `fit`: when one is due, what goes into it, and how a run goes on from it."""

from __future__ import annotations

import copy
import math
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

from chainrule.core.arguments import MOST_OF_A_MESSAGE, shown, whole_number
from chainrule.core.atomic import check_writable, remove_leftovers
from chainrule.files import config_text, load_numbers
from chainrule.nn import MLP
from chainrule.training import checkpoints
from chainrule.training.callbacks import Training
from chainrule.training.checkpoints import Snapshot
from chainrule.training.claims import claimed
from chainrule.training.task import Position, Task

HALF_A_MINUTE = timedelta(seconds=30)


def claim(path: str | os.PathLike[str] | None, leads: bool) -> AbstractContextManager[None]:
    """Reserve the checkpoint's path for this run, in the process that writes it."""
    if path is None or not leads:
        return nullcontext()
    check_writable(os.fspath(path))
    return claimed(path)


class Saver:
    """Writes a run's checkpoint after every `every` steps, or so much time; goes on from one that is there."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        every: int | timedelta | None,
        task: Task,
        position: Position,
        run: Training,
        callbacks: list[Any],
    ) -> None:
        self.path = os.fspath(path)
        every = HALF_A_MINUTE if every is None else every
        self.every = every if isinstance(every, timedelta) else whole_number(every, "every")
        self.task, self.position, self.run, self.callbacks = task, position, run, callbacks
        if task.leads:
            remove_leftovers(self.path)
        self.written()

    # When.

    def written(self) -> None:
        """Note that the file holds the run as it is now."""
        self.steps, self.time = self.run.optimizer.steps, time.monotonic()

    def is_due(self) -> bool:
        if not self.task.leads:
            return False
        if isinstance(self.every, timedelta):
            return time.monotonic() - self.time >= self.every.total_seconds()
        return self.run.optimizer.steps - self.steps >= self.every

    def steps_left(self) -> float:
        """How many steps until a checkpoint is due, at least 1; infinitely many if only the clock decides."""
        if not self.task.leads or isinstance(self.every, timedelta):
            return math.inf
        return max(1, self.every - (self.run.optimizer.steps - self.steps))

    # What.

    @property
    def shape(self) -> dict[str, Any]:
        task = self.task
        columns = ["loss", *task.metrics]
        columns += [f"validation_{name}" for name in columns] if task.validation is not None else []
        return {"examples": len(task.data), "batch_size": task.batch_size, "dtype": task.dtype, "columns": columns}

    def save(self) -> None:
        """Write the run as it is now, if this is the process that writes."""
        if not self.task.leads:
            return
        run, position = self.run, self.position
        config = ""
        if type(run.model) is MLP:
            with suppress(ValueError):  # one that a file cannot describe: whoever resumes the run builds it
                config = config_text(run.model)
        snapshot = Snapshot(
            model=run.model.state(),
            kind=type(run.model).__name__,
            config=config,
            optimizer=run.optimizer.state(),
            optimizer_kind=type(run.optimizer).__name__,
            history=run.history.columns,
            batches=position.rows,
            seconds=run.history.seconds,
            stopped=run.history.stopped,
            compiled=position.compiled,
            shape=self.shape,
            randoms={
                "global": random.getstate(),
                "rng": position.rng.getstate() if position.rng else None,
                "epoch": position.random_at_start if position.rows else None,
            },
            callbacks=[callback.state() if _remembers(callback) else None for callback in self.callbacks],
        )
        checkpoints.write(self.path, snapshot)
        self.written()

    # How to go on.

    def go_on(self, resume: bool) -> None:
        """Continue the run in the file, if there is one; an error if that was not asked for."""
        name, devices = self.path, self.task.devices
        with devices.file(name) if devices else nullcontext(name if os.path.lexists(name) else None) as there:
            if there is None:
                return
            if not resume:
                raise FileExistsError(
                    f"`checkpoint` is there already: {name!r}; say resume=True to go on from it, or remove it first"
                )
            with self._unchanged_by_errors():
                saved = checkpoints.read(there)
                self._check(there, saved)
                self._restore(there, saved)
        self.written()

    def _check(self, name: str, saved: Snapshot) -> None:
        """Refuse a checkpoint of another kind of run, or one that contradicts itself."""
        task, rng = self.task, self.position.rng
        if saved.shape != self.shape:
            theirs, ours = (shown(_words(shape), MOST_OF_A_MESSAGE) for shape in (saved.shape, self.shape))
            raise ValueError(f"{name!r} is of a run with {theirs}, and this one has {ours}")
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
            shapes = {part: tensor.shape for part, tensor in saved.model.items()}  # type: ignore[union-attr]  # as read
            load_numbers(run.model, shapes, lambda part: saved.model[part].tolist(), name)  # type: ignore[union-attr]
            run.optimizer.load_state(saved.optimizer)
            for callback, state in zip(self.callbacks, saved.callbacks, strict=True):
                if state is not None:
                    callback.load_state(state)
        except Exception as error:  # a callback is the user's, and may raise anything over a stranger's file
            reason = shown(str(error), MOST_OF_A_MESSAGE)
            raise ValueError(f"{name!r} does not fit this run: {type(error).__name__}, {reason}") from error
        run.history.extend(saved.history)
        run.history.seconds, run.history.stopped = saved.seconds, saved.stopped
        position.rows, position.compiled = saved.batches, saved.compiled
        random.setstate(saved.randoms["global"] or random.getstate())
        if position.rng:
            position.rng.setstate(saved.randoms["epoch"] or saved.randoms["rng"] or ())
            position.random_now = saved.randoms["rng"] if saved.randoms["epoch"] else None

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


def _remembers(callback: Any) -> bool:
    """Whether a callback has something for a checkpoint to keep."""
    return hasattr(callback, "state") and hasattr(callback, "load_state")


def _words(shape: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in shape.items())
