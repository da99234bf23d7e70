"""The command `predict`: a model that `train` saved, applied to a table, of which few rows are in memory at a time."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import numpy as np

import chainrule
from chainrule.cli.completion import files
from chainrule.cli.console import (
    HEADERS,
    BadInput,
    assignments,
    at_option,
    check_outputs,
    file_option,
    header_option,
    input_errors,
    json_option,
    option,
    print_json,
)
from chainrule.cli.scores import Tally, spelled
from chainrule.core.arguments import counted, escaped, listed, shown
from chainrule.core.atomic import whole_file
from chainrule.data.columns import Column
from chainrule.data.labels import as_labels
from chainrule.data.tables import OpenTable, Table, open_table
from chainrule.predictor import Answer, Predictor, Problem

PIECE = 10_000  # rows that are in memory at a time
STANDARD_OUTPUT = "-"
LATE = ('or say `missing="mean"` or `missing="drop"`', "or train with --missing mean")
Write = Callable[[str], Any]


@click.command()
@click.argument("model", metavar="MODEL.safetensors", shell_complete=files(".safetensors"))
@click.argument("file", required=False, metavar="[FILE.csv]", shell_complete=files(".csv"))
@at_option
@file_option("-o", "--output", help="Write to a CSV file; - is standard output.")
@header_option
@option("--encoding", "utf-8", "How FILE.csv spells letters, such as cp1252.")
@json_option
def predict(
    model: str, file: str | None, at: tuple[str, ...], output: str | None, header: str, encoding: str, as_json: bool
) -> None:
    """Apply a model that `train --save` wrote to the rows of a CSV file, or to the numbers and texts in --at.

    Prints every column of the file, and the predictions beside them. The file - is standard input.

    Example: chainrule predict flowers.safetensors examples/flowers.csv -o predictions.csv
    """
    if (file is None) == (not at):
        raise BadInput("give a CSV file, or numbers with --at, as in --at x0=1,x1=2; one of the two")
    with input_errors():
        predictor = _predictor(model)
    path = None if output == STANDARD_OUTPUT else output
    check_outputs([model, *([file] if file else [])], output=path)
    if file is None:
        _answer_one(predictor, at, path, as_json)
        return
    marks, found = Marks(predictor.problem), list[dict[str, Any]]()
    try:
        with input_errors(), open_table(file, HEADERS[header], encoding) as table, _writer(path, as_json) as write:
            for piece, answers in _answered(predictor, table):
                write(_csv(piece, answers, header=not marks.rows))
                marks.add(piece, answers)
                found += [answer.columns() for answer in answers] if as_json else []
    except BadInput as error:  # which tells how to train, where it is too late
        raise BadInput(str(error).replace(*LATE)) from error
    quality = marks.scores()
    if as_json:
        print_json({"task": predictor.problem.task, "inputs": predictor.problem.names, "predictions": found, **quality})
    elif path:
        wrote = f"wrote {path}, {counted(marks.rows, 'row')}"
        click.echo("  ".join([wrote, spelled(quality)] if quality else [wrote]))
    elif quality:
        click.echo(spelled(quality), err=True)


def _predictor(path: str) -> Predictor:
    """The predictor in a file; of a bare network with one output, one whose columns are x0, x1, …"""
    model = chainrule.load(path)
    if isinstance(model, Predictor):
        return model
    shape = model.config()
    if (count := shape["nouts"][-1]) > 1:
        raise BadInput(f"{path!r} does not say what its {count} outputs mean: save it with chainrule train")
    return Predictor(model, Problem("regression", [Column(f"x{k}") for k in range(shape["nin"])], "target", []))


def _answer_one(predictor: Predictor, at: tuple[str, ...], path: str | None, as_json: bool) -> None:
    """The answer for the row in `--at`."""
    problem = predictor.problem
    row = assignments(at, texts=True)
    missing = [name for name in problem.names if name not in row]
    unused = [name for name in row if name not in problem.names]
    if missing or unused:
        what = f"no number for {listed(missing)}" if missing else f"{listed(unused)}, which is not an input"
        raise BadInput(f"`--at` has {what}: the model takes {listed(problem.names)}")
    table = Table("--at", problem.names, [(1, [row[name] for name in problem.names])])
    with input_errors():
        answers = predictor.answers(np.array(table.encoded(problem.columns)))
        with _writer(path, as_json or path is None) as write:
            write(_csv(table, answers, header=True))
    if as_json:
        found = [answer.columns() for answer in answers]
        print_json({"task": problem.task, "inputs": problem.names, "predictions": found})
    elif path:
        click.echo(f"wrote {path}, 1 row")
    else:
        said = answers[0].columns()
        click.echo("  ".join(f"{name} {shown(_spelled(name, answer), 200)}" for name, answer in said.items()))


def _answered(predictor: Predictor, table: OpenTable) -> Iterator[tuple[Table, list[Answer]]]:
    """Pieces of the table with their answers. A table without a header has the model's columns in their order."""
    columns = predictor.problem.columns
    if not table.header:
        if len(table.names) != len(columns):
            what = f"{table.path!r} has no header and {counted(len(table.names), 'column')}"
            raise BadInput(f"{what}; the model takes {len(columns)}: {listed(predictor.problem.names)}")
        table.names = predictor.problem.names
    for piece in table.pieces(PIECE):
        yield piece, predictor.answers(np.array(piece.encoded(columns)))


class Marks:
    """How good the answers are, if the table has the target too; it is not needed, so it may hold anything."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.rows = problem, 0
        self.tally: Tally | None = Tally(problem.task)

    def add(self, piece: Table, answers: list[Answer]) -> None:
        """Compare some more."""
        self.rows += len(piece)
        targets = self._targets(piece) if self.tally else None
        if targets is None:
            self.tally = None
        elif self.tally:
            self.tally.add([answer.prediction for answer in answers], targets)

    def scores(self) -> dict[str, Any]:
        """Beside those of the best constant answer; empty if there is nothing to compare with."""
        return self.tally.scores(self.tally.best_constant()) if self.tally else {}

    def _targets(self, piece: Table) -> list[Any] | None:
        if not piece.header or self.problem.target not in piece.names:
            return None
        try:
            if self.problem.task != "classes":
                return [y for (y,) in piece.numbers([self.problem.target])]
            found: list[Any] = piece.texts(self.problem.target)
        except ValueError:
            return None
        if not any(isinstance(name, str) for name in self.problem.classes):
            found = as_labels(found)
        return found if set(found) <= set(self.problem.classes) else None


@contextmanager
def _writer(path: str | None, quiet: bool) -> Iterator[Write]:
    """What takes the pieces of a CSV text: a file that appears whole, or standard output."""
    if path:
        with whole_file(path) as file:
            yield lambda text: file.write(text.encode())
    elif quiet:
        yield lambda text: None
    else:
        terminal = sys.stdout.isatty()
        yield lambda text: click.echo(escaped(text, keep="\n") if terminal else text, nl=False, color=True)


def _csv(piece: Table, answers: list[Answer], header: bool) -> str:
    """Every cell of some rows as it was, with the answers behind them."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow([*piece.names, *(_unused(name, piece.names) for name in answers[0].columns())])
    for (_, cells), answer in zip(piece.rows, answers, strict=True):
        writer.writerow([*cells, *(_spelled(*column) for column in answer.columns().items())])
    return text.getvalue()


def _unused(name: str, names: list[str]) -> str:
    """A name for a column that is not among these.

    >>> _unused("prediction", ["x", "prediction"])
    'prediction 2'
    """
    free, number = name, 1
    while free in names:
        number += 1
        free = f"{name} {number}"
    return free


def _spelled(name: str, answer: Any) -> str:
    """A prediction with the digits of the data; how certain it is, with those that matter."""
    return f"{answer:.{12 if name == 'prediction' else 6}g}" if isinstance(answer, float) else str(answer)
