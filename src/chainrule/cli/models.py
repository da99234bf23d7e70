"""Commands for models: `train` and `predict`."""

from __future__ import annotations

import csv
import difflib
import io
import os
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import click

import chainrule
from chainrule import data, nn
from chainrule.cli.console import (
    BadInput,
    assignments,
    at_option,
    check_outputs,
    complain,
    input_errors,
    json_option,
    option,
    print_json,
)
from chainrule.cli.problems import LOSSES, Problem, pose, scale
from chainrule.cli.scores import Baseline, scores, spelled, verdict
from chainrule.cli.training import OPTIMIZERS, Outcome, Plan, calm, divided, learn
from chainrule.core.arguments import escaped, listed, quoted, shown
from chainrule.core.atomic import write_whole
from chainrule.data.tables import read_table
from chainrule.files import MOST_LAYERS, notes
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
TASKS = "auto: texts are classes, targets -1 and 1 a margin, 0 and 1 binary, other numbers a regression."


@click.command()
@click.argument("source", metavar="xor|four-points|moons|circles|spirals|FILE.csv")
@option("--hidden", "16,16", 'Sizes of the hidden layers; "" for none.')
@option("--activation", "tanh", "Any op of one operand: tanh, relu, gelu, …")
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
@click.option("--target", help="The column to predict, by name or index. Default: the last one.")
@option("--task", "auto", TASKS, click.Choice(["auto", *LOSSES]))
@option("--test", 0.0, "Share of the examples to test on.", click.FloatRange(0.0, 0.9))
@click.option(
    "--validation",
    type=click.FloatRange(0.0, 0.9),
    help="Share of the rest to choose the best step by. Default: 0.15 for files of 60 examples or more.",
)
@click.option("--raw", is_flag=True, help="Do not standardize the columns of a file.")
@click.option("--plot", metavar="FILE", help="Plot the loss, and for two inputs the decision boundary.")
@click.option("--save", metavar="FILE", help="Where to save the model, such as model.safetensors.")
@click.option("--checkpoint", metavar="FILE", help="Where to keep the run, every half a minute, for --resume.")
@click.option("--resume", is_flag=True, help="Go on from the file of --checkpoint, if it is there.")
@json_option
def train(**options: Any) -> int:
    """Train a network on a data set or a CSV file."""
    with input_errors():
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
    check_outputs(plot=options["plot"], save=options["save"], checkpoint=options["checkpoint"])
    _check_picture(options["plot"])
    if is_file:
        calm(model)
    with input_errors():
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
            chainrule.save(model, options["save"], {"problem": problem.to_json()})
    result = _result(model, problem, plan, outcome, found, options)
    print_json(result) if options["as_json"] else _print_training(result, model)
    if outcome.interrupted:
        complain(f"interrupted after {result['epochs']} epochs; the best so far was saved")
        return INTERRUPTED
    return 0


def scored(model: nn.MLP, problem: Problem, parts: dict[str, data.Dataset]) -> dict[str, dict[str, Any]]:
    """The scores of each part of the examples, beside those of the baseline of the training part."""
    baseline, found = Baseline.of(problem, parts["training"].targets), {}
    for name, part in parts.items():
        said = predictions(model, problem, part.inputs)
        found[name] = {"examples": len(part), **scores(problem, said, part.targets, baseline)}
    return found


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
        "inputs": problem.columns,
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
    source, target = options["source"], options["target"]
    if source in SETS:
        if target is not None:
            raise BadInput(f"`--target` is for CSV files; {source} has one target")
        if source in FIXED:
            return FIXED[source]()
        draw, usual = DRAWN[source]
        return draw(options["points"], usual if options["noise"] is None else options["noise"], options["seed"])
    if not os.path.exists(source):
        if source.lower().endswith(".csv") or os.sep in source:
            raise BadInput(f"there is no file {source!r}")
        near = difflib.get_close_matches(source[:100], SETS, 1)
        hint = f"did you mean {near[0]}?" if near else f"choose {', '.join(SETS)}, or give the path of a CSV file"
        raise BadInput(f"there is no data set {quoted(source)}: {hint}")
    if options["noise"] is not None:
        raise BadInput("`--noise` is for generated sets, not for files")
    column = -1 if target is None else int(target) if INDEX.fullmatch(target) else target
    labels = "auto" if options["task"] == "auto" else options["task"] == "classes"
    try:
        return data.read_csv(source, column, labels=labels)
    except ValueError as error:  # it names an argument that is an option here
        raise BadInput(str(error).replace("say `labels=True`", "say --task classes")) from error


def build(problem: Problem, options: dict[str, Any]) -> nn.MLP:
    """A network with the layers that `--hidden` asks for."""
    sizes = [size.strip() for size in options["hidden"].split(",") if size.strip()]
    if not all(size.isascii() and size.isdecimal() and size.strip("0") for size in sizes):
        raise BadInput(f"`--hidden` must be sizes of layers, as in 16,16; got {quoted(options['hidden'])}")
    shape = [*(int(size.lstrip("0")[:10]) for size in sizes), problem.outputs]  # ten digits are too many already
    parameters = sum((before + 1) * after for before, after in pairwise([len(problem.columns), *shape]))
    if parameters > MOST_PARAMETERS or len(shape) > MOST_LAYERS:
        size = f"`--hidden` {quoted(options['hidden'])} on {len(problem.columns):,} columns"
        most = f"{MOST_PARAMETERS:,} parameters and {MOST_LAYERS:,} layers are the most"
        raise BadInput(f"{size} is too large: {most}")
    init = "he" if options["activation"] in RECTIFIERS else "xavier"
    return nn.MLP(len(problem.columns), shape, activation=options["activation"], init=init, rng=options["seed"])


def predictions(model: nn.MLP, problem: Problem, rows: list[list[float]]) -> list[dict[str, Any]]:
    """The model's predictions for rows of unscaled inputs."""
    from chainrule.training.inference import answers

    return [problem.answer(row) for row in answers(model, rows).reshape(len(rows), -1).tolist()]


def picture(model: nn.MLP, problem: Problem, examples: data.Dataset, history: History, path: str) -> bytes:
    """A plot of the loss; beside it the decision boundary if there are two inputs, else each layer's activations."""
    from matplotlib.figure import Figure

    from chainrule import plot

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot.loss(history, ax=left).set_xlabel("step")
    if len(problem.columns) == 2 and problem.task != "regression":
        plot.boundary(model, examples, classes=problem.classes, ax=right)
        right.set(xlabel=problem.columns[0], ylabel=problem.columns[1])
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
    classes = f" ({listed(result['classes'])})" if result["classes"] else ""
    click.echo(f"{result['data']}: {result['examples']} examples of {names}; task: {result['task']}{classes}")
    click.echo(f"{model!r}, {result['parameters']} parameters")
    size = "" if result["batch size"] == result["examples"] else f" on {result['batch size']} examples each"
    steps = f"{result['steps']} step{'' if result['steps'] == 1 else 's'}{size}"
    click.echo(
        f"{result['optimizer']}, lr {result['lr']:g}, l2 {result['l2']:.2g}, {steps} in {result['seconds']:.2g} s"
    )
    click.echo("loss {first:.4g} → {last:.4g}".format(**result["loss"]))
    if result["ended"]:
        click.echo(f"{result['ended']}; the best was kept")
    for name in ("training", "validation", "test"):
        part = result if name == "training" else result[name]
        if part:
            click.echo(f"{name}, {part['examples']} examples:  {spelled(part)}")
    if result["warning"]:
        click.echo(result["warning"])
    for path in result["files"]:
        click.echo(f"wrote {path}")


@click.command()
@click.argument("model", metavar="MODEL.safetensors")
@click.argument("file", required=False, metavar="[FILE.csv]")
@at_option
@click.option("-o", "--output", metavar="FILE", help="Write the predictions to a CSV file.")
@json_option
def predict(model: str, file: str | None, at: tuple[str, ...], output: str | None, as_json: bool) -> None:
    """Apply a model that `train --save` wrote to the rows of a CSV file, or to the numbers in --at.

    Prints the rows as CSV, with the predictions beside them.
    """
    if (file is None) == (not at):
        raise BadInput("give a CSV file, or numbers with --at, as in --at x0=1,x1=2; one of the two")
    with input_errors():
        network = chainrule.load(model)
        problem = _problem(model, network)
        rows, targets = _table(problem, file) if file is not None else ([_row(problem, assignments(at))], None)
    check_outputs(output=output)
    found = predictions(network, problem, rows)
    quality = scores(problem, found, targets, Baseline.of(problem, targets)) if targets else {}
    if output:
        with input_errors():
            write_whole(output, _csv(problem, rows, found).encode())
    if as_json:
        print_json({"task": problem.task, "inputs": problem.columns, "predictions": found, **quality})
    elif output:
        click.echo("  ".join([f"wrote {output}, {len(rows)} rows", *([spelled(quality)] if quality else [])]))
    elif at:
        click.echo("  ".join(f"{name} {shown(_spelled(answer), 200)}" for name, answer in found[0].items()))
    else:
        text = _csv(problem, rows, found)
        click.echo(escaped(text, keep="\n") if sys.stdout.isatty() else text, nl=False, color=True)  # no codes stripped
        if quality:
            click.echo(spelled(quality), err=True)


def _problem(path: str, network: nn.MLP) -> Problem:
    """The problem that the file describes; for a model saved by other means, a regression."""
    described = notes(path).get("problem")
    shape = network.config()
    if described is None:
        if (count := shape["nouts"][-1]) > 1:
            raise BadInput(f"{path!r} does not say what its {count} outputs mean: save it with chainrule train")
        return Problem("regression", [f"x{k}" for k in range(shape["nin"])], "target", [])
    with input_errors(f"{path!r}: "):
        problem = Problem.from_json(described)
    if len(problem.columns) != shape["nin"] or problem.outputs != shape["nouts"][-1]:
        raise BadInput(f"{path!r} describes other data than its network takes; train it again")
    return problem


def _row(problem: Problem, at: dict[str, float]) -> list[float]:
    """The inputs in `--at`, in the order of the columns."""
    missing = [name for name in problem.columns if name not in at]
    unused = [name for name in at if name not in problem.columns]
    if missing or unused:
        what = f"no number for {listed(missing)}" if missing else f"{listed(unused)}, which is not an input"
        raise BadInput(f"`--at` has {what}: the model takes {listed(problem.columns)}")
    return [at[name] for name in problem.columns]


def _table(problem: Problem, file: str) -> tuple[list[list[float]], list[Any] | None]:
    """The inputs in a CSV file, and the targets if it has usable ones."""
    table, count = read_table(file), len(problem.columns)
    if not table.header:
        if len(table.names) != count:
            what = f"{file!r} has no header and {len(table.names)} columns"
            raise BadInput(f"{what}; the model takes {count}: {listed(problem.columns)}")
        return table.numbers(range(count)), None
    rows = table.numbers(problem.columns)
    if problem.target not in table.names:
        return rows, None
    try:
        if problem.task == "classes":
            return rows, [problem.classes.index(text) for text in table.texts(problem.target)]
        return rows, [y for (y,) in table.numbers([problem.target])]
    except ValueError:  # targets are not needed, so the column may hold anything
        return rows, None


def _csv(problem: Problem, rows: list[list[float]], found: list[dict[str, Any]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*problem.columns, *found[0]])
    for row, answer in zip(rows, found, strict=True):
        writer.writerow([*map(repr, row), *map(_spelled, answer.values())])
    return text.getvalue()


def _spelled(answer: Any) -> str:
    return f"{answer:.6g}" if isinstance(answer, float) else str(answer)
