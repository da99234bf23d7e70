"""Models that can be used: a network together with what its inputs and outputs mean.

`chainrule train --save` writes one, and `load` reads it. It takes rows as the table had them, texts and missing cells
included, and answers in the units and classes of the target. The scaling of the columns is part of the network's first
layer, so there is no way to forget it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, TypeVar, overload

import numpy as np

from chainrule import files, losses
from chainrule.core.arguments import HALF_A_CHARACTER, MOST_OF_A_MESSAGE, counted, listed, quoted, shown
from chainrule.core.recording import no_grad
from chainrule.data.columns import CellError, Column
from chainrule.nn import MLP, Module
from chainrule.training.inference import Answers

__all__ = ["Answer", "Predictor", "Problem", "load", "save"]

NOTE = "problem"  # of a model file: what the model's inputs and outputs mean
AnyModule = TypeVar("AnyModule", bound=Module)
DATES_AND_TIMES = ("M", "m")  # kinds of NumPy's types
FEW = 20  # rows that are answered sooner than a program for many is compiled
LABELS = (str, int, float)  # what classes may be called
TASKS = ("regression", "margin", "binary", "classes")


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class Answer:
    """A prediction for one row: the target, or its class.

    `probabilities` has that of each class, by name; it is empty if the model learned no probabilities. `score` is the
    number whose sign decides between the classes -1 and 1.

    >>> Answer("yes", {"no": 0.25, "yes": 0.75}).probability
    0.75
    """

    prediction: Any
    probabilities: dict[Any, float] = field(default_factory=dict)
    score: float | None = None

    @property
    def probability(self) -> float | None:
        """How probable the prediction is, if the model knows."""
        return self.probabilities.get(self.prediction)

    def columns(self) -> dict[str, Any]:
        """What is written beside a row: the prediction, and how certain it is.

        >>> Answer("yes", {"no": 0.25, "yes": 0.75}).columns()
        {'prediction': 'yes', 'probability': 0.75}
        """
        certainty = {"probability": self.probability, "score": self.score}
        return {"prediction": self.prediction} | {name: is_ for name, is_ in certainty.items() if is_ is not None}


@dataclass(frozen=True)
class Problem:
    """A task, and the columns and classes behind a network's inputs and outputs.

    There are four tasks. `regression`: the output is the target. `margin`: the target is -1 or 1, the output's sign.
    `binary`: the target is 0 or 1, and the output is its logit. `classes`: there is one output per class, its logit.

    >>> Problem("classes", [Column("x")], "y", ["no", "yes"]).answer([0.0, 2.0]).columns()
    {'prediction': 'yes', 'probability': 0.8807970779778823}
    """

    task: str
    columns: list[Column]
    target: str
    classes: list[Any]

    def __post_init__(self) -> None:
        columns = [Column(column) if isinstance(column, str) else column for column in self.columns]
        object.__setattr__(self, "columns", columns)
        if fault := self._fault():
            raise ValueError(fault)

    @property
    def names(self) -> list[str]:
        """Of the columns of the table."""
        return [column.name for column in self.columns]

    @property
    def inputs(self) -> list[str]:
        """The names of the network's inputs: a column of texts becomes several."""
        return [name for column in self.columns for name in column.inputs]

    @property
    def outputs(self) -> int:
        """The number of the network's outputs."""
        return len(self.classes) if self.task == "classes" else 1

    def answer(self, outputs: Sequence[float]) -> Answer:
        """What the outputs mean in terms of the data."""
        score = outputs[0]
        if self.task == "regression":
            return Answer(score)
        if self.task == "margin":
            return Answer(1 if score > 0.0 else -1, score=score)
        if self.task == "binary":
            certainty = 1.0 / (1.0 + math.exp(-abs(score)))
            best = int(score > 0.0)
            return Answer(best, {k: certainty if k == best else 1.0 - certainty for k in (0, 1)})
        best = losses.argmax(outputs)
        weights = [math.exp(z - outputs[best]) for z in outputs]
        total = sum(weights)
        shares = {name: weight / total for name, weight in zip(self.classes, weights, strict=True)}
        return Answer(self.classes[best], shares)

    def named(self, targets: Sequence[Any]) -> Sequence[Any]:
        """Targets as `answer` spells its predictions: classes by their names."""
        return [self.classes[y] for y in targets] if self.task == "classes" else targets

    def to_json(self) -> str:
        """As text for the notes of a model file."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Problem:
        """The problem that `to_json` wrote; a file may hold any text there."""
        try:
            found = json.loads(text)
            if not isinstance(found["columns"], list):
                raise TypeError("`columns` must be a list")
            return cls(**{**found, "columns": [_column(column) for column in found["columns"]]})
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            reason = shown(str(error), MOST_OF_A_MESSAGE)
            raise ValueError(f"the file's description of its data cannot be used: {reason}") from None

    def _fault(self) -> str:
        """What is wrong with it, if anything is; a file may hold anything."""
        if not isinstance(self.task, str) or self.task not in TASKS:
            return f"`task` must be one of {', '.join(TASKS)}, got {quoted(self.task)}"
        if not all(isinstance(column, Column) and column.is_sound() for column in self.columns):
            return "`columns` must be names, or columns as data.CsvDataset.table has them"
        if not isinstance(self.target, str):
            return f"`target` must be the name of a column, got {quoted(self.target)}"
        if len(set(self.names)) < len(self.names):
            return "`columns` has a name twice"
        texts = chain(self.names, [self.target], *(column.choices for column in self.columns))
        if HALF_A_CHARACTER.search("".join(texts)):
            return "a name is no text that can be encoded"
        return self._fault_of_classes()

    def _fault_of_classes(self) -> str:
        classes, found = self.classes, f"got {quoted(self.classes)}"
        if not isinstance(classes, list) or not all(isinstance(name, LABELS) for name in classes):
            return f"`classes` must be a list of texts or numbers, {found}"
        if (len(classes) < 2) if self.task == "classes" else classes:
            return f"`classes` must be two or more for the task 'classes' and none for others, {found}"
        if len(set(classes)) < len(classes) or HALF_A_CHARACTER.search("".join(map(str, classes))):
            return f"`classes` must be different, and texts that can be encoded, {found}"
        return ""


def in_words(classes: Sequence[Any]) -> str:
    """The first few classes, which may be numbers."""
    return listed([str(name) for name in classes])


def _column(described: Any) -> Column:
    """A column as a file describes it; a name alone is one of numbers."""
    if isinstance(described, str):
        return Column(described)
    return Column(**{**described, "choices": tuple(described["choices"])})


class Predictor:
    """A network that takes rows of a table as they are, and answers in terms of the table.

    >>> from chainrule.nn import MLP
    >>> problem = Problem("binary", [Column("height"), Column("colour", "choice", ("green", "red"))], "ripe", [])
    >>> ripe = Predictor(MLP(3, [1], rng=0), problem)
    >>> ripe({"height": 2.0, "colour": "red"}).prediction
    1
    >>> [answer.prediction for answer in ripe([[2.0, "red"], [-30.0, "green"]])]
    [1, 0]
    """

    def __init__(self, network: MLP, problem: Problem) -> None:
        shape = network.config()
        if (len(problem.inputs), problem.outputs) != (shape["nin"], shape["nouts"][-1]):
            described = f"{counted(len(problem.inputs), 'input')} and {counted(problem.outputs, 'output')}"
            found = f"it has {shape['nin']} and {shape['nouts'][-1]}"
            raise ValueError(f"`problem` describes other data than the network takes: {described}, where {found}")
        if problem.task != "regression" and shape["output"] != "linear":
            found = (
                f"the network's output is {quoted(shape['output'])}, and the task {problem.task!r} takes plain numbers"
            )
            raise ValueError(f"{found}: train one with output='linear'")
        self.network, self.problem = network, problem
        self._many = Answers(network)

    @overload
    def __call__(self, rows: Mapping[str, Any]) -> Answer: ...
    @overload
    def __call__(self, rows: Any) -> Any: ...
    def __call__(self, rows: Any) -> Any:
        """The answer for a row, or a list of answers for several.

        A row is a dict by column, or the cells in the order of the columns. Several are a list of rows, an array, or a
        pandas or polars frame, of which the columns that are no inputs are ignored.
        """
        cells, alone = self._cells(rows)
        found = self.answers(self._encoded(cells))
        return found[0] if alone else found

    def answers(self, inputs: np.ndarray) -> list[Answer]:
        """The answers for numbers that the columns have become, row by row."""
        return [self.problem.answer(row) for row in self._outputs(inputs).tolist()]

    def _outputs(self, inputs: np.ndarray) -> np.ndarray:
        if len(inputs) > FEW:
            return self._many(inputs).reshape(len(inputs), self.problem.outputs)
        with no_grad():
            found = [_numbers(self.network(row)) for row in inputs.tolist()]
        return np.array(found).reshape(len(inputs), self.problem.outputs)

    def _encoded(self, cells: Sequence[Sequence[Any]]) -> np.ndarray:
        """The numbers that cells become, which are given column by column."""
        numbers: list[list[float]] = []
        for column, found in zip(self.problem.columns, cells, strict=True):
            try:
                numbers += column.encoded(found)
            except CellError as error:
                place = f"row {error.index}, column {quoted(column.name)}"
                hint = f"; {error.hint}" if error.hint else ""
                cell = quoted(found[error.index])
                raise ValueError(f"`rows` has {cell} in {place}, where {error.expected} was expected{hint}") from None
        return np.array(numbers, dtype=np.float64).T

    def save(self, path: str | os.PathLike[str], notes: Mapping[str, str] | None = None) -> None:
        """Write it to one file, which `chainrule.load` reads."""
        files.write_network(self.network, path, {**(notes or {}), NOTE: self.problem.to_json()})

    def _cells(self, rows: Any) -> tuple[list[list[Any]], bool]:
        """The columns of what was given, and whether it was one row alone."""
        names, named = self.problem.names, _by_names(rows)
        if named is not None:
            return [[cell] for cell in self._by_name(named)], True
        _check_there_are_rows(rows)
        if hasattr(rows, "columns") or getattr(getattr(rows, "dtype", None), "names", None):  # a frame, or records
            return self._of_frame(rows), False
        if not _is_row(rows) or getattr(getattr(rows, "dtype", None), "kind", "") in DATES_AND_TIMES:
            raise TypeError(f"`rows` must be a row, rows, an array or a frame of numbers and texts, got {quoted(rows)}")
        table = rows.tolist() if hasattr(rows, "tolist") else list(rows)
        alone = bool(table) and not any(map(_is_row, table))
        found = [self._in_order(place, row) for place, row in enumerate([table] if alone else table)]
        return [list(column) for column in zip(*found, strict=True)] or [[] for _ in names], alone

    def _in_order(self, place: int, row: Any) -> Sequence[Any]:
        """The cells of a row of several, in the order of the columns."""
        named = _by_names(row)
        if named is not None:
            return self._by_name(named)
        names, count = self.problem.names, len(row) if _is_row(row) else 1
        if not _is_row(row) or count != len(names):
            wanted = f"the model takes {len(names)}: {listed(names)}"
            raise ValueError(f"`rows` has {count} numbers or texts in row {place}; {wanted}")
        return row  # type: ignore[no-any-return]

    def _of_frame(self, frame: Any) -> list[list[Any]]:
        """The columns of a frame, whatever else it has."""
        there = list(frame.columns if hasattr(frame, "columns") else frame.dtype.names)
        spelled = {str(name): name for name in there}
        _check_names(self.problem.names, spelled, "the frame")
        if twice := [name for name in self.problem.names if [str(one) for one in there].count(name) > 1]:
            raise ValueError(f"the frame has two columns called {quoted(twice[0])}: rename one")
        return [list(frame[spelled[name]]) for name in self.problem.names]

    def _by_name(self, row: Mapping[str, Any]) -> list[Any]:
        _check_names(self.problem.names, row, "`rows`")
        return [row[name] for name in self.problem.names]

    def __repr__(self) -> str:
        problem = self.problem
        classes = f" ({in_words(problem.classes)})" if problem.classes else ""
        return f"<Predictor of {shown(problem.target)}{classes} from {listed(problem.names)}: {self.network!r}>"


def _check_there_are_rows(rows: Any) -> None:
    """Refuse a lazy frame and a sparse matrix, which have none to look at."""
    for method, remedy in (("collect", "call .collect() first"), ("toarray", "give what .toarray() returns")):
        if hasattr(rows, method):
            raise TypeError(f"`rows` must be rows of numbers and texts, got {type(rows).__name__}: {remedy}")


def _check_names(wanted: Sequence[str], found: Iterable[str], what: str) -> None:
    there = list(found)
    if missing := [name for name in wanted if name not in there]:
        raise ValueError(f"{what} has no {listed(missing)}: the model takes {listed(wanted)}")


def _by_names(row: Any) -> Mapping[str, Any] | None:
    """The cells of a row by name, if it has names: a dict, a row of a pandas frame, a named tuple, a record."""
    if isinstance(row, Mapping):
        return row
    if hasattr(row, "to_dict") and hasattr(row, "index"):  # pandas
        return {str(name): cell for name, cell in row.to_dict().items()} if not hasattr(row, "columns") else None
    if hasattr(row, "_asdict"):
        return row._asdict()  # type: ignore[no-any-return]
    names = getattr(getattr(row, "dtype", None), "names", None)
    return {name: row[name] for name in names} if names and not getattr(row, "shape", ()) else None


def _is_row(thing: Any) -> bool:
    """Whether it has entries in an order, as a set has not."""
    return hasattr(thing, "__len__") and not isinstance(thing, (str, bytes, Set))


def _numbers(result: Any) -> list[float]:
    return [value.data for value in (result if isinstance(result, list) else [result])]


def save(model: Module | Predictor, path: str | os.PathLike[str], notes: Mapping[str, str] | None = None) -> None:
    """Write a model to a safetensors file: its parameters, for an MLP its shape, for a Predictor all that it knows.

    The file appears complete or not at all: an interrupted save leaves what was there before. `notes` are texts by name
    that are saved too; `chainrule.files.notes(path)` reads them.

    >>> import os, tempfile
    >>> from chainrule.nn import MLP
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(MLP(2, [3, 1]), os.path.join(folder, "model.safetensors"))
    ...     load(os.path.join(folder, "model.safetensors"))
    MLP(2, [3, 1], activation='relu', output='linear')
    """
    model.save(path, notes) if isinstance(model, Predictor) else files.write_network(model, path, notes)


@overload
def load(path: str | os.PathLike[str]) -> Any: ...
@overload
def load(path: str | os.PathLike[str], model: AnyModule) -> AnyModule: ...
def load(path: str | os.PathLike[str], model: Module | None = None) -> Any:
    """Read a model from a file or a checkpoint: into `model`, or into a new one if the file holds an MLP.

    What `chainrule train` saved is a `Predictor`. It takes rows as the table had them, and answers in the table's
    terms; its network, which takes numbers, is `predictor.network`.

    >>> load("missing.safetensors")
    Traceback (most recent call last):
    ...
    FileNotFoundError: there is no file 'missing.safetensors'; save a model there with chainrule.save(model, path)
    """
    name = os.fspath(path)
    described = files.notes(name).get(NOTE)
    if described is None:
        return files.read_network(name, model)
    network = files.read_network(name)
    if model is not None:
        raise ValueError(f"{name!r} holds a predictor, whose network is nothing without it: load it with load(path)")
    try:
        return Predictor(network, Problem.from_json(described))
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from None
