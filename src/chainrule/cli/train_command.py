"""The command `train`."""

from __future__ import annotations

import difflib
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import click
import numpy as np

import chainrule
from chainrule import data, nn
from chainrule.cli.completion import activations, columns, files
from chainrule.cli.console import (
    HEADERS,
    BadInput,
    check_outputs,
    complain,
    file_option,
    header_option,
    input_errors,
    json_option,
    option,
    print_json,
)
from chainrule.cli.problems import LOSSES, are_indices, classes_in, pose, scale
from chainrule.cli.scores import Tally, spelled, verdict
from chainrule.cli.training import OPTIMIZERS, Outcome, Plan, calm, divided, forget_constants, learn
from chainrule.core.arguments import counted, listed, quoted
from chainrule.core.atomic import write_whole
from chainrule.data.tables import STANDARD_INPUT
from chainrule.files import MOST_LAYERS
from chainrule.predictor import Predictor, Problem, in_words
from chainrule.training import History

FIXED: dict[str, Callable[[], data.Dataset]] = {"xor": data.xor, "four-points": data.four_points}
DRAWN: dict[str, tuple[Callable[[int, float, int], data.Dataset], float]] = {  # and their usual noise
    "moons": (data.moons, 0.1),
    "circles": (data.circles, 0.05),
    "spirals": (data.spirals, 0.02),
}
SETS = (*FIXED, *DRAWN)
RECTIFIERS = ("relu", "leaky_relu", "gelu", "silu", "softplus")  # their weights are initialised after He
INDEX = re.compile("-?[0-9]{1,9}")  # of a column; anything longer is a name
MOST_PARAMETERS = MOST_POINTS = 1_000_000
MOST_STEPS = 10_000_000
INTERRUPTED = 130  # the exit status of a program that Ctrl-C has ended
RATES = "Default: 0.03 for sets and 0.01 for files; rmsprop 0.01 and 0.003, sgd 0.1."
TASKS = "auto: texts and 0, 1, 2, … are classes, targets -1 and 1 a margin, 0 and 1 binary, other numbers a regression."
AS_OPTIONS = {  # how the options of the command line are called in Python, whose errors name them
    "say `labels=True`": "say --task classes",
    '`missing="mean"` or `missing="drop"`': "--missing mean or --missing drop",
    "`drop`": "--drop",
    '`encoding="cp1252"`': "--encoding cp1252",
    "`inputs`": "--inputs",
    "`encoding`": "--encoding",
    "`header=True`": "--header yes",
    "`header=False`": "--header no",
    '`missing="drop"`': "--missing drop",
    "`checkpoint`": "--checkpoint",
    "say resume=True": "say --resume",
}


@click.command()
@click.argument("source", metavar="|".join([*SETS, "FILE.csv"]), shell_complete=files(".csv", names=SETS))
@option("--hidden", "16,16", 'Sizes of the hidden layers; "" for none.')
@option("--activation", "tanh", "Any op of one operand: tanh, relu, gelu, …", shell_complete=activations)
@option("--optimizer", "adam", "How weights are updated.", click.Choice(list(OPTIMIZERS)))
@click.option("--lr", type=float, help=f"Initial learning rate; falls to 1 %. {RATES}")
@click.option(
    "--l2", type=click.FloatRange(0.0), help="Penalty on large weights. Default: 2.5 / examples; 1e-4 for sets."
)
@click.option(
    "--steps", type=click.IntRange(1, MOST_STEPS), help="Steps at most. Default: 500, or 3000 if they are on batches."
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    help="Examples in a step. Default: all up to 256, of more 64, from 20,000 on 256.",
)
@option("--seed", 0, "Seed of weights, data and split.", click.IntRange(0))
@option("--points", 100, "Size of a generated set.", click.IntRange(2, MOST_POINTS))
@click.option("--noise", type=click.FloatRange(0.0), help="Noise of a generated set.")
@click.option(
    "--target", help="The column to predict, by name or index. Default: the last one.", shell_complete=columns
)
@click.option("--inputs", multiple=True, help="The columns to learn from, as in a,b. Default: all others.")
@click.option("--drop", multiple=True, help="Columns to leave out, such as an id.", shell_complete=columns)
@option(
    "--missing",
    "error",
    "Missing cells: an error; the mean (of texts, the most frequent); or drop their rows.",
    click.Choice(["error", "mean", "drop"]),
)
@header_option
@option("--encoding", "utf-8", "How the file spells letters, such as cp1252.")
@option("--task", "auto", TASKS, click.Choice(["auto", *LOSSES]))
@option("--test", 0.0, "Share of the examples to test on.", click.FloatRange(0.0, 0.9))
@click.option(
    "--validation",
    type=click.FloatRange(0.0, 0.9),
    help="Share of the rest to choose the best step by. Default: 0.15 for files of 60 examples or more.",
)
@click.option("--raw", is_flag=True, help="Do not standardize the columns of a file.")
@file_option("--plot", help="Plot the loss, and for two inputs the decision boundary.")
@file_option("--save", help="Where to save the model, such as model.safetensors.")
@file_option("--checkpoint", help="Where to keep the run, every half a minute, for --resume.")
@click.option("--resume", is_flag=True, help="Go on from the file of --checkpoint, if it is there.")
@json_option
def train(**options: Any) -> int:
    """Train a network on a data set or a CSV file.

    Example: chainrule train examples/flowers.csv --test 0.3 --save flowers.safetensors
    """
    with _option_errors():
        examples = load(options)
        problem = pose(examples, options["task"])
        parts = divided(examples, problem, options)
        training = parts["training"]
        is_file = isinstance(examples, data.CsvDataset)
        scaling = scale(training, problem.task) if is_file and not options["raw"] else None
        model = build(problem, options)
        plan = Plan.of(len(training), options, is_file)
        if options["resume"] and not options["checkpoint"]:
            raise BadInput("`--resume` goes on from the file of --checkpoint: name it")
    check_outputs([options["source"]], plot=options["plot"], save=options["save"], checkpoint=options["checkpoint"])
    _check_picture(options["plot"])
    if is_file:
        calm(model)
    if scaling:
        forget_constants(model, training)
    with _option_errors():
        outcome = learn(model, problem, parts, scaling, plan, options)
    if outcome.finding:
        complain(f"{outcome.finding}; nothing was written")
        return 1
    if scaling:
        with input_errors():
            scaling.move_into(model)
    found = scored(model, problem, parts)
    with input_errors():
        if options["plot"]:
            write_whole(options["plot"], picture(model, problem, training, outcome.history, options["plot"]))
        if options["save"]:
            chainrule.save(Predictor(model, problem), options["save"])
    result = _result(model, problem, plan, outcome, found, options)
    result["notes"] = [as_options(note) for note in getattr(examples, "notes", [])]
    print_json(result) if options["as_json"] else _print_training(result, model)
    if outcome.interrupted:
        kept = "the best so far" if "validation" in parts else "the model as it was"
        complain(f"interrupted after {counted(result['epochs'], 'epoch')}; {kept} was saved")
        return INTERRUPTED
    return 0


def scored(model: nn.MLP, problem: Problem, parts: dict[str, data.Dataset]) -> dict[str, dict[str, Any]]:
    """The scores of each part of the examples, beside those of the best constant answer to the training part."""
    predictor, tallies = Predictor(model, problem), dict[str, Tally]()
    for name, part in parts.items():
        tallies[name] = Tally(problem.task)
        answers = predictor.answers(np.array(part.inputs))
        tallies[name].add([answer.prediction for answer in answers], problem.named(part.targets))
    constant = tallies["training"].best_constant()
    return {name: {"examples": tally.count, **tally.scores(constant)} for name, tally in tallies.items()}


def _result(
    model: nn.MLP,
    problem: Problem,
    plan: Plan,
    outcome: Outcome,
    found: dict[str, dict[str, Any]],
    options: dict[str, Any],
) -> dict[str, Any]:
    history = outcome.history
    unseen = next((part for part in ("test", "validation") if part in found), "training")
    return {
        "data": options["source"],
        "task": problem.task,
        "inputs": problem.inputs,
        "classes": problem.classes,
        "model": model.config(),
        "parameters": len(model.parameters()),
        "optimizer": options["optimizer"],
        "lr": plan.rate,
        "l2": plan.l2,
        "batch size": plan.batch_size,
        "epochs": len(history),
        "steps": len(history) * plan.steps // plan.epochs,
        "seconds": history.seconds,
        "engine": history.engine,
        "loss": {"first": history.loss[0], "last": history.loss[-1]},
        "ended": outcome.ended,
        **found["training"],
        "validation": found.get("validation"),
        "test": found.get("test"),
        "warning": verdict(problem.task, unseen, found[unseen]),
        "files": [path for path in (options["plot"], options["save"]) if path],
    }


def load(options: dict[str, Any]) -> data.Dataset:
    """The data set of that name, or the file at that path."""
    source = options["source"]
    if source in SETS:
        filled = ["missing"] if options["missing"] != "error" else []
        if given := [name for name in ("target", "inputs", "drop") if options[name]] + filled:
            raise BadInput(f"`--{given[0]}` is for CSV files; {source} has no columns to choose from")
        if source in FIXED:
            return FIXED[source]()
        draw, usual = DRAWN[source]
        return draw(options["points"], usual if options["noise"] is None else options["noise"], options["seed"])
    if source != STANDARD_INPUT and not os.path.exists(source):
        if source.lower().endswith(".csv") or os.sep in source:
            raise BadInput(f"there is no file {source!r}")
        near = difflib.get_close_matches(source[:100], SETS, 1)
        hint = f"did you mean {near[0]}?" if near else f"choose {', '.join(SETS)}, or give the path of a CSV file"
        raise BadInput(f"there is no data set {quoted(source)}: {hint}")
    if options["noise"] is not None:
        raise BadInput("`--noise` is for generated sets, not for files")
    return _read(source, options)


def _read(source: str, options: dict[str, Any]) -> data.CsvDataset:
    """The examples in a CSV file."""
    target = options["target"]
    column = -1 if target is None else _column(target)
    labels = "auto" if options["task"] == "auto" else options["task"] == "classes"
    inputs = _columns(options["inputs"]) if options["inputs"] else None
    settings = {"missing": options["missing"], "encoding": options["encoding"]}
    header, drop = HEADERS[options["header"]], _columns(options["drop"])
    examples = data.read_csv(source, column, header, labels, inputs=inputs, drop=drop, **settings)
    return _with_classes(examples) if options["task"] == "auto" else examples


def _column(name: str) -> str | int:
    return int(name) if INDEX.fullmatch(name) else name


def _columns(given: Sequence[str]) -> list[str | int]:
    return [_column(name.strip()) for text in given for name in text.split(",")]


def _with_classes(examples: data.CsvDataset) -> data.CsvDataset:
    """The same examples, with targets that number classes taken for such; what was decided is noted."""
    targets, column = examples.targets, f"column {quoted(examples.target)} holds"
    if examples.classes or not (count := classes_in(targets)):
        return examples
    if not are_indices(targets):
        note = f"{column} {count} different whole numbers: taken as a regression; --task classes for classes"
        examples.notes.append(note)
        return examples
    classes, indices = range(count), [int(y) for y in targets]
    note = f"{column} 0 to {count - 1}: taken as classes; --task regression for numbers"
    return data.CsvDataset(examples.inputs, indices, examples.table, examples.target, classes, [*examples.notes, note])


@contextmanager
def _option_errors() -> Iterator[None]:
    """Errors in what the user gave, with arguments called as the options that they are."""
    try:
        with input_errors():
            yield
    except BadInput as error:
        raise BadInput(as_options(str(error))) from error


def as_options(message: str) -> str:
    """A message of the library's with the names that its arguments have as options."""
    for python, option_ in AS_OPTIONS.items():
        message = message.replace(python, option_)
    return message


def build(problem: Problem, options: dict[str, Any]) -> nn.MLP:
    """A network with the layers that `--hidden` asks for."""
    sizes = [size.strip() for size in options["hidden"].split(",") if size.strip()]
    if not all(size.isascii() and size.isdecimal() and size.strip("0") for size in sizes):
        raise BadInput(f"`--hidden` must be sizes of layers, as in 16,16; got {quoted(options['hidden'])}")
    shape = [*(int(size.lstrip("0")[:10]) for size in sizes), problem.outputs]  # ten digits are too many already
    parameters = sum((before + 1) * after for before, after in pairwise([len(problem.inputs), *shape]))
    if parameters > MOST_PARAMETERS or len(shape) > MOST_LAYERS:
        size = f"`--hidden` {quoted(options['hidden'])} on {counted(len(problem.inputs), 'column')}"
        most = f"{MOST_PARAMETERS:,} parameters and {MOST_LAYERS:,} layers are the most"
        raise BadInput(f"{size} is too large: {most}")
    init = "he" if options["activation"] in RECTIFIERS else "xavier"
    return nn.MLP(len(problem.inputs), shape, activation=options["activation"], init=init, rng=options["seed"])


def picture(model: nn.MLP, problem: Problem, examples: data.Dataset, history: History, path: str) -> bytes:
    """A plot of the loss; beside it the decision boundary if there are two inputs, else each layer's activations."""
    from matplotlib.figure import Figure

    from chainrule import plot

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot.loss(history, ax=left).set_xlabel("step")
    if len(problem.inputs) == 2 and problem.task != "regression":
        plot.boundary(model, examples, classes=problem.classes, ax=right)
        right.set(xlabel=problem.inputs[0], ylabel=problem.inputs[1])
    else:
        plot.activations(model, examples.inputs, ax=right)
    file = io.BytesIO()
    figure.savefig(file, format=os.path.splitext(path)[1][1:], dpi=150)
    return file.getvalue()


def _check_picture(path: str | None) -> None:
    if path is None:
        return
    if not find_spec("matplotlib"):
        raise BadInput("`--plot` needs matplotlib: install it with pip install 'chainrule[plot]'")
    from matplotlib.figure import Figure

    if os.path.splitext(path)[1][1:].lower() not in Figure().canvas.get_supported_filetypes():
        raise BadInput(f"`--plot` {path}: the name must end in a kind of picture, such as .png, .svg or .pdf")


def _print_training(result: dict[str, Any], model: nn.MLP) -> None:
    names = listed(result["inputs"])
    classes = f" ({in_words(result['classes'])})" if result["classes"] else ""
    examples = counted(result["examples"], "example")
    click.echo(f"{result['data']}: {examples} of {names}; task: {result['task']}{classes}")
    for note in result["notes"]:
        click.echo(f"note: {note}")
    click.echo(f"{model!r}, {counted(result['parameters'], 'parameter')}")
    size = "" if result["batch size"] == result["examples"] else f" on {counted(result['batch size'], 'example')} each"
    steps = f"{counted(result['steps'], 'step')}{size}"
    click.echo(
        f"{result['optimizer']}, lr {result['lr']:g}, l2 {result['l2']:.2g}, {steps} in {result['seconds']:.2g} s"
    )
    click.echo("loss {first:.4g} → {last:.4g}".format(**result["loss"]))
    if result["ended"]:
        click.echo(f"{result['ended']}; the best was kept")
    for name in ("training", "validation", "test"):
        part = result if name == "training" else result[name]
        if part:
            click.echo(f"{name}, {counted(part['examples'], 'example')}:  {spelled(part)}")
    if result["warning"]:
        click.echo(result["warning"])
    for path in result["files"]:
        click.echo(f"wrote {path}")
