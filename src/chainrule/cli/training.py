"""How `chainrule train` learns: which examples are held out, how many go into a step, and when it ends."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from random import Random
from typing import Any

import chainrule
from chainrule import data, losses, nn, optim
from chainrule.cli.problems import LOSSES, Scaling
from chainrule.core.arguments import counted, setting
from chainrule.predictor import NOTE, Problem
from chainrule.training import EarlyStopping, History, Training

HELD_OUT = 0.15  # of the examples of a file, to choose the best step by
FEWEST = 60  # examples of which some are held out
FULL_BATCH = 256  # up to so many examples are one batch
BATCH, LARGE_BATCH, LARGE = 64, 256, 20_000  # examples in a batch; in one of a set with so many or more
STEPS, STEPS_ON_BATCHES = 500, 3000
PENALTY, MOST_PENALTY = 2.5, 0.02  # divided by the number of examples, which outweigh it as they become more; at most
CALM = 0.3  # of the usual first weights: near 0 a tanh is a line, so a network begins as a line and bends where it pays
FAR, LEAST = 2.0, 0.5  # times the first loss, or that if it was smaller: whoever ends above has diverged
OPTIMIZERS = {  # and their usual learning rates, for sets and for files
    "adam": (optim.Adam, 0.03, 0.01),
    "adamw": (optim.AdamW, 0.03, 0.01),
    "rmsprop": (optim.RMSprop, 0.01, 0.003),
    "sgd": (optim.SGD, 0.1, 0.1),
}


def divided(examples: data.Dataset, problem: Problem, options: Mapping[str, Any]) -> dict[str, data.Dataset]:
    """The parts of the examples: "training", and if they are wanted "validation" and "test".

    Classes are in all of them in the same shares, as nearly as possible.
    """
    rng, parts, rest = Random(options["seed"]), dict[str, data.Dataset](), examples
    stratified = problem.task != "regression"
    if options["test"]:
        rest, parts["test"] = _split(rest, options["test"], "test", rng, stratified)
    held_out = options["validation"]
    if held_out is None:
        held_out = HELD_OUT if isinstance(examples, data.CsvDataset) and len(rest) >= FEWEST else 0.0
    if held_out:
        rest, parts["validation"] = _split(rest, held_out, "validation", rng, stratified)
    return {"training": rest, **parts}


def _split(
    examples: data.Dataset, share: float, part: str, rng: Random, stratified: bool
) -> tuple[data.Dataset, data.Dataset]:
    if round((1.0 - share) * len(examples)) in (0, len(examples)):
        remedy = "give more, or leave the option out"
        raise ValueError(f"`--{part}` {share:g} of {counted(len(examples), 'example')} leaves a part empty: {remedy}")
    return data.split(examples, 1.0 - share, rng, stratified)


@dataclass(frozen=True)
class Plan:
    """What is not left to the model: how fast it learns, from how many examples at a time, and how long at most."""

    rate: float
    l2: float
    batch_size: int
    epochs: int
    steps: int  # in so many epochs

    @classmethod
    def of(cls, examples: int, options: Mapping[str, Any], is_file: bool) -> Plan:
        """For that many examples, and what the user has asked for."""
        whole = FULL_BATCH if is_file else examples
        usual = examples if examples <= whole else BATCH if examples < LARGE else LARGE_BATCH
        size = min(examples, options["batch_size"] or usual)
        steps = options["steps"] or (STEPS if size == examples else STEPS_ON_BATCHES)
        each = -(-examples // size)
        epochs = max(1, steps // each)
        rate = OPTIMIZERS[options["optimizer"]][2 if is_file else 1] if options["lr"] is None else options["lr"]
        l2 = (min(PENALTY / examples, MOST_PENALTY) if is_file else 1e-4) if options["l2"] is None else options["l2"]
        return cls(setting(rate, "lr", "0.01"), setting(l2, "--l2", "1e-4"), size, epochs, epochs * each)


@dataclass
class Outcome:
    """A run of training: its history, and what there is to say of how it ended."""

    history: History
    finding: str = ""  # why its result is of no use
    ended: str = ""  # why it ended before its time
    interrupted: bool = False


class _Run:
    """A callback that remembers the run, so that an interrupted one is not lost; `notes` go into its checkpoints."""

    def __init__(self, notes: Mapping[str, str]) -> None:
        self.history, self.notes = History(), notes

    def start(self, training: Training) -> None:
        self.history = training.history

    def __call__(self, training: Training) -> None:
        pass


def calm(model: nn.MLP) -> None:
    """Make the first weights of the hidden layers small."""
    for layer in model.layers[:-1]:
        for parameter in layer.parameters():
            parameter.data *= CALM


def forget_constants(model: nn.MLP, training: data.Dataset) -> None:
    """Set the weights of inputs that never change to 0: training would leave them as they were drawn."""
    for place, numbers in enumerate(zip(*training.inputs, strict=True)):
        if min(numbers) == max(numbers):
            for neuron in model.layers[0].neurons:
                neuron.w[place].data = 0.0


def learn(
    model: nn.MLP,
    problem: Problem,
    parts: Mapping[str, data.Dataset],
    scaling: Scaling | None,
    plan: Plan,
    options: Mapping[str, Any],
) -> Outcome:
    """Train the model. It ends with its best parameters by the validation part, if there is one."""
    prepared = {name: scaling.prepared(part) if scaling else part for name, part in parts.items()}
    kind = OPTIMIZERS[options["optimizer"]][0]
    optimizer = kind(model.parameters(), lr=optim.cosine(plan.rate, 0.01 * plan.rate, plan.steps))
    run = _Run({NOTE: problem.to_json()} if scaling else {})
    stopper = EarlyStopping(patience=max(10, plan.epochs // 5))
    validation = prepared.get("validation")
    settings: dict[str, Any] = {"penalty": losses.l2(plan.l2), "optimizer": optimizer, "epochs": plan.epochs}
    settings |= {"batch_size": plan.batch_size, "validation": validation, "rng": options["seed"]}
    settings |= {"checkpoint": options["checkpoint"], "resume": options["resume"]}
    kept = options["save"] or options["checkpoint"]
    settings["callbacks"] = [run, stopper] if validation else [run] if kept else []
    interrupted = False
    with redirect_stdout(sys.stderr), warnings.catch_warnings():  # the progress bar is no result
        warnings.simplefilter("ignore", RuntimeWarning)  # a loss that diverged is reported below
        try:
            history = chainrule.fit(
                model, LOSSES[problem.task], prepared["training"], **settings, progress=sys.stderr.isatty()
            )
        except KeyboardInterrupt:
            history, interrupted = run.history, True
            if not options["save"] or not len(history):
                raise
            if validation:
                model.load_state(stopper.best_state)
    first, last = history.loss[0], history.loss[-1]
    if not math.isfinite(last):
        return Outcome(history, history.stopped)
    if last > FAR * max(first, LEAST):
        return Outcome(
            history, f"the loss rose from {first:.4g} to {last:.4g}; try a smaller learning rate than {plan.rate:g}"
        )
    return Outcome(history, "", history.stopped, interrupted)
