"""`run(task)`: a learner's code in its template, then the exercise's check. Returns a transcript of what they did.

The check is Python that sees the names of the learner's code, with `expect`, `show`, `fail`, `original` and `rerun`
(see `Session`); the learner's code does not see those of the check, for what it finds there it would not find in
another program.
Nothing is judged here: `grading` does that. Tasks and transcripts are plain data, so the two can happen in different
processes, and code that tampers with its own process changes no verdict. Whatever the learner's code does, a transcript
comes back; what cannot be survived here (`os._exit`, endless loops, no memory) is up to `submissions` and to the page.
"""

from __future__ import annotations

import ast
import builtins
import io
import linecache
import re
import sys
import time
import warnings
from collections.abc import Callable, Collection
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from math import isfinite
from typing import Any

from chainrule.learn.code_reading import (
    DEFINITIONS,
    UNREADABLE,
    first_line_changed,
    inside_another,
    normalised,
    silent,
)
from chainrule.learn.course import Source
from chainrule.learn.explaining import FILE, MOST_TEXT, Error, explain, explain_syntax
from chainrule.learn.graphs import describe
from chainrule.learn.matching import Signs, parse

MOST_COMPARED = 10_000  # calls of `expect`, and numbers in one of them
MOST_DEPTH = 20  # of nested lists
MOST_BITS = 1024  # of an integer: it fits a float, about
MOST_LETTERS = 10_000  # of a label, a text that is compared, and a spelling
MOST_OUTPUT = 10_000  # characters


# What is run, and what came of it, as plain data that processes can exchange.


@dataclass(frozen=True)
class Task:
    """What to run: an answer, the program around it, and a check. The rest is for reading the answer.

    `original` is the program as the learner found it, with the starter in the place of the answer.
    """

    code: str
    source: Source
    original: str
    check: str
    starter: str
    signs: tuple[Signs, ...]

    @classmethod
    def from_data(cls, data: Any) -> Task:
        """The task whose `asdict` is `data`, or a ValueError."""
        task: Task = _checked("Task", data, "task")
        return task


@dataclass(frozen=True)
class Reading:
    """What the text of an answer shows before it runs."""

    unchanged: bool  # it is the starter
    fits: tuple[bool, ...]  # each of the task's signs
    first_line: str | None  # a sentence, if a function or class of the starter is missing or was renamed
    first_line_of: str | None = None  # which one
    inside: str | None = None  # a sentence, if it is there, inside something else
    silent: tuple[str, ...] = ()  # functions and methods without a `return`, such as `Neuron.parameters`


@dataclass(frozen=True)
class Thing:
    """A value that a check compares, as plain data, and how it is spelled in a row and in a fingerprint."""

    value: Any
    text: str
    print: str


@dataclass(frozen=True)
class Comparison:
    """One call of `expect`. `site` says where in the check it stands; `expected` may have been left out."""

    label: str
    got: Thing
    expected: Thing | None
    tolerance: float
    node: str | None = None
    site: int | None = None
    graph: int | None = None  # the graph that was shown last
    about: str = ""  # its label, also where it could not be drawn


@dataclass(frozen=True)
class Transcript:
    """What a task did."""

    reading: Reading
    comparisons: tuple[Comparison, ...] = ()
    message: str | None = None
    error: Error | None = None
    output: str = ""
    graphs: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0

    def data(self) -> dict[str, Any]:
        """As data for JSON, without graphs; `from_data` reads it back."""
        return {key: part for key, part in asdict(replace(self, graphs=())).items() if key != "graphs"}

    @classmethod
    def from_data(cls, data: Any) -> Transcript:
        """The transcript that `data` describes, or a ValueError: `data` may come from anywhere."""
        transcript: Transcript = _checked("Transcript", data, "transcript")
        if not (isfinite(transcript.seconds) and transcript.seconds >= 0.0):
            raise ValueError("`seconds` is not a duration")
        return transcript


PLAIN = {"bool": bool, "int": int, "float": float, "str": str}
RECORDS = {kind.__name__: kind for kind in (Task, Source, Signs, Reading, Thing, Comparison, Transcript, Error)}


def _checked(annotation: str, found: Any, name: str) -> Any:
    """`found`, which JSON held for a field annotated like this; a ValueError if its type is any other."""
    if annotation == "Any":
        return found
    if annotation.endswith(" | None"):
        return None if found is None else _checked(annotation.removesuffix(" | None"), found, name)
    if annotation.startswith("tuple[") and type(found) is list:
        entry = annotation.removeprefix("tuple[").removesuffix(", ...]")
        return tuple(_checked(entry, part, name) for part in found[:MOST_COMPARED])
    if annotation in RECORDS and type(found) is dict:
        record = RECORDS[annotation]
        kept = [(field.name, str(field.type)) for field in fields(record) if field.name != "graphs"]
        return record(**{key: _checked(kind, found.get(key), key) for key, kind in kept})
    if annotation == "str" and type(found) is str:
        return found.encode(errors="replace").decode()  # a lone surrogate is not text
    if type(found) is not PLAIN.get(annotation):
        raise ValueError(f"`{name}` is missing")
    return found


# Values as plain data.

UNKNOWN = {"unknown": True}  # anything that does not consist of numbers and texts: it agrees with nothing


def thing(found: Any) -> Thing:
    """`found` in a form that can be sent and compared.

    >>> thing((1, 2.5))
    Thing(value=[1, 2.5], text='(1, 2.5)', print='(1, 2.5)')
    """
    try:
        value = _plain(found, [MOST_COMPARED], MOST_DEPTH)
    except Exception:  # it has other parts, or too many
        value = UNKNOWN
    return Thing(value, _text(found)[:MOST_LETTERS], _text(found, digits=7)[:MOST_LETTERS])


def _plain(found: Any, room: list[int], depth: int) -> Any:
    """Numbers and texts unchanged, lists and tuples as lists, other collections as a dict that JSON can hold.

    It goes by the type, not by what a class says about itself. `room` counts down what may still be taken.
    """
    kind = type(found)
    room[0] -= 1 + len(found) // 100 if kind is str else 1
    if room[0] < 0 or depth < 0:
        raise ValueError("there is too much of it")
    if found is None or kind in (bool, str):
        return found
    if issubclass(kind, float):
        return float.__float__(found)
    if issubclass(kind, int) and int.bit_length(found) <= MOST_BITS:
        return int.__int__(found)
    if kind is complex:
        return {"complex": [found.real, found.imag]}
    return _plain_entries(found, kind, lambda entry: _plain(entry, room, depth - 1))


def _plain_entries(found: Any, kind: type, plain: Callable[[Any], Any]) -> Any:
    for base in (list, tuple):
        if issubclass(kind, base):
            return [plain(entry) for entry in base.__iter__(found)]
    if kind in (set, frozenset):
        return {"set": sorted((plain(entry) for entry in found), key=repr)}
    if kind is dict:
        return {"dict": sorted(([plain(part) for part in pair] for pair in found.items()), key=repr)}
    raise TypeError("it does not consist of numbers and texts")


def agree(got: Any, expected: Any, tolerance: float) -> bool:
    """Whether two values, as plain data, are equal; numbers within `tolerance`.

    >>> agree([1.0, 2.00000001], [1, 2], 5e-8), agree(True, 1, 5e-8), agree(UNKNOWN, UNKNOWN, 5e-8)
    (True, False, False)
    """
    if type(expected) is list:
        alike = type(got) is list and len(got) == len(expected)
        return alike and all(agree(g, e, tolerance) for g, e in zip(got, expected, strict=True))
    if type(expected) in (int, float) and type(got) in (int, float):
        with suppress(OverflowError):  # integers that are too large for a float
            return bool(got == expected or abs(got - expected) <= tolerance)
        return False
    return expected != UNKNOWN and type(got) is type(expected) and bool(got == expected)


def _text(found: Any, digits: int = 10) -> str:
    try:
        if issubclass(type(found), float):
            return f"{float.__float__(found) + 0.0:.{digits}g}"
        if type(found) in (list, tuple):
            left, right = "[]" if type(found) is list else "()"
            return left + ", ".join(_text(entry, digits) for entry in found[:50]) + right
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(found))
        text = re.sub(r"\d+\.\d+(e[-+]\d+)?", lambda number: f"{float(number[0]):.{digits}g}", text)
    except Exception:  # the learner's __repr__
        return f"<{type(found).__name__}, which cannot be shown>"
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


# Running.

_compiled = lru_cache(maxsize=64)(compile)


def read(task: Task) -> Reading:
    """What the answer's text shows before it runs."""
    unchanged = normalised(task.code) == normalised(task.starter)
    changed = first_line_changed(task.starter, task.code)
    return Reading(unchanged, _fits(task), *changed, inside_another(task.starter, task.code), silent(task.code))


def _fits(task: Task) -> tuple[bool, ...]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = parse(task.code)
            return tuple(signs.fit(code) for signs in task.signs)
    except UNREADABLE:
        return (False,) * len(task.signs)


class CheckNames(dict[str, Any]):
    """The global names of a check: its own, and those of the learner's code, which it cannot bind anew.

    Python asks `__missing__` everywhere but directly in the body of a class.
    """

    def __init__(self, own: dict[str, Any], theirs: dict[str, Any]) -> None:
        super().__init__(own)
        self.theirs = theirs

    def __missing__(self, name: str) -> Any:
        return self.theirs[name]

    def all(self) -> dict[str, Any]:
        return self.theirs | self


class _Failed(Exception):  # noqa: N818  # it ends a check
    """`fail(message)` was called."""


@dataclass
class Session:
    """What a check has compared and shown so far, and the functions that it calls."""

    names: CheckNames
    program: str = ""  # the learner's
    beginning: str = ""  # the program as the learner found it
    comparisons: list[Comparison] = field(default_factory=list)
    graphs: list[dict[str, Any]] = field(default_factory=list)
    shown: int | None = None  # the graph that was shown last, which later comparisons are about
    about: str = ""
    found: dict[str, Any] = field(default_factory=dict)  # the names of the beginning, once it has run

    def expect(
        self,
        label: str,
        got: Any,
        expected: Any = ...,
        node: str | None = None,
        tolerance: float = 5e-8,
        *,
        site: int | None = None,
    ) -> bool:
        if len(self.comparisons) >= MOST_COMPARED:
            raise ValueError(f"a check may compare {MOST_COMPARED:,} things at most")
        if node is None and label.endswith((".grad", ".data")):
            node = label[: -len(".grad")]
        wanted = None if expected is ... else thing(expected)
        if wanted and wanted.value == UNKNOWN:
            kind = type(expected).__name__
            raise TypeError(f"`expected` is a {kind}, which cannot be compared: expect numbers, texts or lists of them")
        found, about = thing(got), (node, site, self.shown, self.about)
        self.comparisons.append(Comparison(label[:MOST_LETTERS], found, wanted, float(tolerance), *about))
        return wanted is not None and agree(found.value, wanted.value, tolerance)

    def show(self, root: Any, label: str = "") -> None:
        self.shown, self.about = None, label
        with suppress(Exception):  # the rows still tell of a graph that cannot be drawn
            self.graphs.append(describe(root, self.names.all()) | {"label": label})
            self.shown = len(self.graphs) - 1

    def fail(self, message: str) -> None:
        raise _Failed(message)

    def original(self) -> dict[str, Any]:
        if not self.found:
            names = _fresh_module()
            _run_quietly(_compiled(self.beginning, "<original>", "exec"), names)
            self.found = names
        return self.found

    def rerun(self, **others: Any) -> tuple[dict[str, Any], Exception | None]:
        names = _fresh_module() | others
        try:
            _run_quietly(_compiled(_without(self.program, others.keys()), FILE, "exec"), names)
        except Exception as error:  # the program is the learner's
            return names, error
        return names, None


def _run_quietly(program: Any, names: dict[str, Any]) -> None:
    """Run a program with these global names. What it prints is not shown."""
    with redirect_stdout(_Output()), redirect_stderr(_Output()):
        exec(program, names)


def _without(program: str, names: Collection[str]) -> ast.Module:
    """The program without what defines, imports or alters these names; all else stays in its line."""
    tree = ast.parse(program)
    body: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            node.names = [alias for alias in node.names if (alias.asname or alias.name) not in names]
            body += [node] if node.names else []
        elif not _defines(node, names):
            body.append(node)
    tree.body = body
    return tree


def _defines(node: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement is `class name`, `def name`, `name = …` or `name.attribute = …`."""
    if isinstance(node, DEFINITIONS):
        return node.name in names
    target: Any = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    while isinstance(target, ast.Attribute):
        target = target.value
    return isinstance(target, ast.Name) and target.id in names


def run(task: Task) -> Transcript:
    """Run the task in this process."""
    start = time.perf_counter()
    reading, output = read(task), _Output()
    session = Session(CheckNames(_fresh_module(), _fresh_module()), task.source.text, task.original)
    with warnings.catch_warnings(), redirect_stdout(output), redirect_stderr(output):
        warnings.simplefilter("ignore")
        message, error = _ending(task, session)
    comparisons, graphs = tuple(session.comparisons), tuple(session.graphs)
    return Transcript(reading, comparisons, message, error, output.text(), graphs, time.perf_counter() - start)


def _fresh_module() -> dict[str, Any]:
    return {"__name__": "__main__", "__builtins__": builtins}


def _ending(task: Task, session: Session) -> tuple[str | None, Error | None]:
    """Runs the task; the message that the check failed with, and the error that stopped it."""
    source, names = task.source, session.names
    try:
        ast.parse(task.code, FILE)  # on its own first, so that an error refers to its own lines
        program = compile(source.text, FILE, "exec")
    except BaseException as caught:
        return None, explain_syntax(caught, source, task.code)
    linecache.cache[FILE] = (len(source.text), None, source.text.splitlines(keepends=True), FILE)
    try:
        with _AsItWas():
            exec(program, names.theirs)
        own = ("expect", "show", "fail", "original", "rerun")
        names.update({name: getattr(session, name) for name in own})
        with _AsItWas():
            exec(_compiled(task.check, "<check>", "exec"), names)
    except _Failed as failed:
        return str(failed), None
    except BaseException as caught:  # SystemExit and KeyboardInterrupt too: the learner's code raised them
        return None, explain(caught, source)
    return None, None


class _AsItWas:
    """Restores the global state that learners' code may change. Calls no builtin until they are restored."""

    def __enter__(self) -> None:
        self.builtins = vars(builtins)
        self.known = self.builtins.copy()
        self.limit, self.trace = sys.getrecursionlimit(), sys.gettrace()

    def __exit__(self, *_: object) -> None:
        self.builtins.update(self.known)
        for name in self.builtins.keys() - self.known.keys():
            del self.builtins[name]
        sys.setrecursionlimit(self.limit)
        sys.settrace(self.trace)


class _Output(io.TextIOBase):
    """What was printed, up to a limit."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.room = MOST_OUTPUT  # negative once something was cut off

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.room > 0:
            self.pieces.append(text[: self.room])
        self.room -= len(text)
        return len(text)

    def text(self) -> str:
        return "".join(self.pieces) + ("\n… (the rest was cut off)" if self.room < 0 else "")
