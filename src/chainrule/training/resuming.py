"""Checkpoints of a run of `fit`: when one is due, what goes into it, and how a run goes on from it."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from chainrule.core.quoting import MOST_OF_A_MESSAGE, shown
from chainrule.training.epochs import Job

if TYPE_CHECKING:
    from chainrule.training import Training


class Saver:
    """Keeps a run's checkpoint: what to put into it, and how to go on from it."""

    def __init__(
        self,
        job: Job,
        run: Training,
        callbacks: list[Any],
        path: str | os.PathLike[str],
        every: int | timedelta | None,
        resume: bool,
    ) -> None:
        from chainrule.training import checkpoints  # needs safetensors

        self.job, self.run, self.callbacks, self.format = job, run, callbacks, checkpoints
        name = os.fspath(path)
        if job.leads:
            self.file = checkpoints.Checkpoints(name, checkpoints.HALF_A_MINUTE if every is None else every)
        with job.devices.file(name) if job.devices else nullcontext(name if os.path.lexists(name) else None) as there:
            if there is not None:
                if not resume:
                    raise FileExistsError(
                        f"`checkpoint` is there already: {name!r}; say resume=True to go on from it, or remove it first"
                    )
                with self.unchanged_by_errors():
                    self.load(there)
        if not job.leads:
            return
        self.file.written(self.steps)
        job.after_step, job.steps_left = self.save_if_due, lambda: self.file.steps_left(self.steps)

    @property
    def steps(self) -> int:
        return self.run.optimizer.steps

    @property
    def shape(self) -> dict[str, Any]:
        job = self.job
        columns = ["loss", *job.metrics]
        columns += [f"validation_{name}" for name in columns] if job.validation is not None else []
        return {"examples": len(job.data), "batch_size": job.batch_size, "dtype": job.dtype, "columns": columns}

    def save_if_due(self) -> None:
        if self.job.leads and self.file.due(self.steps):
            self.save()

    def save(self) -> None:
        job, history = self.job, self.run.history
        if not job.leads:
            return
        job.store()
        snapshot = self.format.Snapshot(
            **self.format.describe(self.run.model, self.run.optimizer, self.callbacks),
            history=history.columns,
            batches=job.rows,
            seconds=history.seconds,
            stopped=history.stopped,
            compiled=job.decided,
            shape=self.shape,
            randoms={
                "global": random.getstate(),
                "rng": job.rng.getstate() if job.rng else None,
                "epoch": job.random_at_start if job.rows else None,
            },
        )
        self.file.write(snapshot)

    def load(self, name: str) -> None:
        job, run = self.job, self.run
        saved = self.format.read(name)
        if saved.shape != self.shape:
            theirs, ours = (shown(_words(shape), MOST_OF_A_MESSAGE) for shape in (saved.shape, self.shape))
            raise ValueError(f"{name!r} is of a run with {theirs}, and this one has {ours}")
        if (saved.randoms["rng"] is None) != (job.rng is None):
            raise ValueError(f"{name!r} is of a run {'without' if job.rng else 'with'} `rng`: go on as it began")
        fits = all(set(row) == {"loss", *job.metrics} for row in saved.batches)
        if not fits or set(saved.history) not in (set(), set(self.shape["columns"])):
            raise ValueError(f"{name!r} is a damaged checkpoint: its columns are not those of such a run")
        if len(saved.batches) * job.batch_size >= len(job.data):
            raise ValueError(f"{name!r} is a damaged checkpoint: more batches are done than an epoch has")
        self.format.restore(name, saved, run.model, run.optimizer, self.callbacks)
        run.history.extend(saved.history)
        run.history.seconds, run.history.stopped = saved.seconds, saved.stopped
        job.rows, job.decided = saved.batches, saved.compiled
        random.setstate(saved.randoms["global"] or random.getstate())
        if job.rng:
            job.rng.setstate(saved.randoms["epoch"] or saved.randoms["rng"] or ())
            job.random_now = saved.randoms["rng"] if saved.randoms["epoch"] else None

    @contextmanager
    def unchanged_by_errors(self) -> Iterator[None]:
        """All that `load` changes is as it was before if an error, whatever it is, ends the block."""
        job, run, history = self.job, self.run, self.run.history
        model, optimizer, decided = run.model.state(), run.optimizer.state(), job.decided
        remembered = [(c, copy.deepcopy(c.state())) for c in self.callbacks if self.format.remembers(c)]
        columns = {name: list(column) for name, column in history.columns.items()}
        seconds, stopped, rows, random_now = history.seconds, history.stopped, job.rows, job.random_now
        generators = [(generator, generator.getstate()) for generator in (random, job.rng) if generator]
        try:
            yield
        except BaseException:
            run.model.load_state(model)
            run.optimizer.load_state(optimizer)
            history.columns, history.seconds, history.stopped = columns, seconds, stopped
            job.rows, job.random_now, job.decided = rows, random_now, decided
            for generator, state in generators:
                generator.setstate(state)
            for callback, memory in remembered:
                callback.load_state(memory)
            raise


def claim(path: str | os.PathLike[str] | None, leads: bool) -> AbstractContextManager[None]:
    """The checkpoint's path, for this run alone: asked for by the process that writes it, before the run begins."""
    if path is None or not leads:
        return nullcontext()
    from chainrule.core.atomic import check_writable
    from chainrule.training.claims import claimed

    check_writable(os.fspath(path))
    return claimed(path)


def _words(shape: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in shape.items())
