"""`fit`: the training loop."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from random import Random
from typing import Any

from chainrule.core.arguments import generator
from chainrule.core.recording import nodes_are_observed
from chainrule.core.structure import flatten
from chainrule.core.value import Value
from chainrule.data import Dataset, Examples
from chainrule.nn import Module
from chainrule.optim import Adam, Optimizer
from chainrule.training import task as given
from chainrule.training.checkpoints import Saver
from chainrule.training.history import Callback, History, Training
from chainrule.training.plan import Epochs
from chainrule.training.processes import claimed, witnessed
from chainrule.training.progress import progress_bar
from chainrule.training.task import Columns, Loss, Metric, Position, Task


def fit(
    model: Module,
    loss: Loss,
    data: Examples,
    *,
    optimizer: Optimizer | None = None,
    epochs: int = 100,
    batch_size: int | None = None,
    penalty: Callable[[list[Value]], Value] | None = None,
    metrics: Mapping[str, Metric] | Iterable[Metric | str] = (),
    validation: Examples | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
    rng: Random | int | None = None,
    compiled: bool | str = "auto",
    dtype: str = "float64",
    backend: str = "llvm",
    checkpoint: str | os.PathLike[str] | None = None,
    every: int | timedelta | None = None,
    resume: bool = False,
    mesh: Any = None,
) -> History:
    """Train `model` to make `loss(predictions, targets)` small over `data`; returns the history of the run.

    The data, and those for `validation`, are a Dataset or a pair `(X, y)` of arrays, lists or frames, which
    `Dataset.from_arrays` reads: targets that are texts, bools or categories become class indices.

    One epoch goes once over the data, in batches of `batch_size` (default: all at once), shuffled if `rng` is
    given. `penalty` is added to the loss of every step, as in `penalty=losses.l2(1e-4)`. Metrics are functions
    of predictions and targets, or their names in `chainrule.losses`, as in `metrics=["accuracy"]`; a dict gives them
    other names. With `validation` data, its loss and metrics are recorded too. Callbacks are called with a `Training`
    after each epoch; their `start` and `finish`, if they have them, are called before the first and after the last.

    `compiled=True` runs the steps as one native program: what the model and the loss do must not depend on chance or
    on the numbers, and if there are several batches, the loss must be the mean or the sum of the losses of single
    examples. "auto" does so for chainrule's own networks, losses and optimizers, if there are more than 500 examples
    in a batch or if the first steps, on 500 examples or one epoch, show that it pays off; `history.engine` says what
    ran, and why. Such a program can compute with `dtype="float32"`: about seven digits, and twice the numbers in a
    vector. With `backend="cuda"` the steps are compiled for an NVIDIA GPU, where parameters and data stay from step to
    step.

    `checkpoint` is a file that the run is written to, whole or not at all, after every `every` steps or `timedelta`
    (default: half a minute) and at the end. `resume=True` goes on from that file, if it exists, and reaches the same
    numbers as a run that was never interrupted: it holds the optimizer, the history, `rng`, Python's global generator
    and the callbacks that have `state` and `load_state`, as EarlyStopping has. `epochs` counts from the beginning of
    the run.

    With a `mesh`, a jax.sharding.Mesh or "all" for all devices that JAX knows, every step is compiled by XLA and its
    batch is spread over those devices; the loss must be such a mean or sum. If `jax.distributed` has brought many
    processes together, each calls `fit` with the same arguments, data and seeds, and process 0 alone writes the
    checkpoint and shows the progress.

    >>> from chainrule import data, losses, nn
    >>> history = fit(nn.MLP(2, [4, 1], activation="tanh", rng=3), losses.mean_square, data.xor(), progress=False)
    >>> history.loss[-1] < history.loss[0]
    True
    """
    examples = given.check_problem(model, loss, data, optimizer)
    held_out = given.checked_validation(validation, examples)
    given.check_options(epochs, batch_size, penalty, compiled, dtype, backend, mesh)
    interval = given.checked_interval(checkpoint, every, resume)
    calls, measures = given.list_of_functions(callbacks, "callbacks"), given.metrics_by_name(metrics)
    optimizer = optimizer or Adam(model.parameters(), lr=0.01)
    position, size = Position(generator(rng)), min(batch_size or len(examples), len(examples))
    run, path = Training(model, optimizer, History()), None if checkpoint is None else os.fspath(checkpoint)
    with (
        _devices(mesh, compiled, path or "") as devices,
        nullcontext() if path is None or (devices and not devices.leads) else claimed(path),
    ):
        watched = bool(calls or measures or held_out)
        task = Task(
            model, loss, penalty, optimizer, examples, size, measures, held_out, dtype, backend, devices, watched
        )
        _tell(calls, "start", run)
        saver = None if path is None else Saver(path, interval, task, position, run, calls)
        if saver:
            saver.go_on(resume)
        columns = Epochs(task, position, saver, run.history).run(epochs - len(run.history), compiled)
        with progress_bar(epochs, progress and task.leads) as show:
            _follow(columns, examples, run, calls, saver, show)
        if saver:
            saver.save()
        _tell(calls, "finish", run)
    return run.history


def _tell(callbacks: list[Any], moment: str, run: Training) -> None:
    for callback in callbacks:
        getattr(callback, moment, lambda training: None)(run)


def _follow(
    epochs: Iterator[Columns],
    data: Dataset,
    run: Training,
    callbacks: list[Any],
    saver: Saver | None,
    show: Callable[[Columns], None],
) -> None:
    """Record epochs as they come, show them, and tell the callbacks; ends the run when one of them says so."""
    history = run.history
    started = time.perf_counter() - history.seconds
    if len(history):
        show(history.columns)
    for columns in epochs:
        history.extend(columns)
        history.seconds = time.perf_counter() - started
        run.epoch = len(history) - 1
        show(columns)
        if not math.isfinite(last := history.loss[-1]):
            remedy = _unusable_number(data) or "try a smaller learning rate"
            run.stop(f"the loss became {last} by epoch {run.epoch}; {remedy}")
            warnings.warn(history.stopped, RuntimeWarning, stacklevel=3)
        for callback in callbacks:
            callback(run)
        if saver and saver.is_due():
            saver.save()
        if history.stopped:
            return


def _unusable_number(data: Dataset) -> str:
    """Where in the data a number is not finite, and what to do about it; empty if all are."""
    for example, pair in enumerate(data):
        for kind, part in zip(("input", "target"), pair, strict=True):
            numbers: list[Any] = []
            flatten(part, numbers, lambda leaf: leaf)
            for place, number in enumerate(numbers):
                if isinstance(number, float) and not math.isfinite(number):
                    which = f"{kind} {place}" if len(numbers) > 1 else kind
                    return f"{which} of example {example} is {number}: fill it in, or leave the example out"
    return ""


@contextmanager
def _devices(mesh: Any, compiled: Any, checkpoint: str) -> Iterator[Any]:
    """The devices of the mesh, None without one; if they belong to several processes, a witness watches this one."""
    if mesh is None:
        yield None
        return
    if compiled is False:
        raise ValueError("with a `mesh` the steps are compiled, by XLA: leave `compiled` out")
    if nodes_are_observed():
        raise ValueError("steps on a `mesh` are not watched by detect_anomaly(): leave `mesh` out in the block")
    from chainrule.compiler.backends import load_xla

    load_xla()
    from chainrule.compiler.run.sharding import Devices

    devices = Devices(mesh)
    if devices.processes == 1:
        yield devices
        return
    with witnessed(devices.process, devices.processes, checkpoint):
        yield devices
