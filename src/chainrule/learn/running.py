"""`run(task)`: a learner's code in its template, then the exercise's check. What it did comes back as plain data.

The check is Python that runs in the namespace of the learner's code, with three functions more:

    expect(label, got, expected, node=None, tolerance=5e-8)    something to compare; a row of the report
    show(root, label="")                                       a graph for the page
    fail(message)                                              ends the check

Nothing is judged here: `grading` does that, from the `Transcript`, which says what every `expect` was given. So the two
can be done in two processes, and code that changes whatever it finds in its own changes no verdict. Whatever the
learner's code does, a transcript comes back: a syntax error or an exception is told with the line that they wrote. What
cannot be survived here (`os._exit`, no end, no memory) is up to `submissions` and to the page.
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
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from math import isfinite
from typing import Any

from chainrule.learn.explaining import FILE, MOST_TEXT, Error, explain, explain_syntax
from chainrule.learn.graphs import describe
from chainrule.learn.templates import Source, clean

CHECK = "<check>"
MOST_OUTPUT = 10_000  # characters
MOST_COMPARED = 10_000  # calls of `expect`, and numbers in one of them
MOST_DEPTH = 20  # of lists in lists
MOST_BITS = 1024  # of an integer: it fits a float, about
MOST_LETTERS = 10_000  # of a label, a text that is compared, and a spelling


@dataclass(frozen=True)
class Task:
    """What to run: an answer, the program that it stands in, and a check. The rest is for reading the answer."""

    code: str
    source: Source
    check: str
    starter: str
    patterns: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """For JSON; `from_data` reads it."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Task:
        """The task that `data` described."""
        return cls(**{**data, "source": Source(**data["source"]), "patterns": tuple(data["patterns"])})


@dataclass(frozen=True)
class Reading:
    """What an answer's text says, whatever it does when it runs."""

    unchanged: bool  # it is the starter
    matches: tuple[bool, ...]  # of the task's patterns
    first_line: str | None  # a sentence, if a function or class of the starter is missing or called otherwise


@dataclass(frozen=True)
class Thing:
    """A value that a check compares, as plain data, and its spelling: in a row, and in a fingerprint."""

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
        """For JSON, without graphs; `from_data` reads it."""
        data = asdict(replace(self, graphs=()))
        del data["graphs"]
        return data

    @classmethod
    def from_data(cls, data: Any) -> Transcript:
        """The transcript that `data` described, or a ValueError: it may come from anywhere."""
        fields = _Fields(data)
        reading = _Fields(fields.of(dict, "reading"))
        error = fields.of(dict, "error", optional=True)
        seconds = fields.of(float, "seconds")
        if not (isfinite(seconds) and seconds >= 0.0):
            raise ValueError("`seconds` is no time")
        return cls(
            Reading(
                reading.of(bool, "unchanged"),
                tuple(bool(match) for match in reading.of(list, "matches")),
                reading.of(str, "first_line", optional=True),
            ),
            tuple(_comparison(_Fields(entry)) for entry in fields.of(list, "comparisons")[:MOST_COMPARED]),
            fields.of(str, "message", optional=True),
            _error(_Fields(error)) if error is not None else None,
            fields.of(str, "output"),
            seconds=seconds,
        )


class _Fields:
    """The entries of a dict from JSON that are what they should be."""

    def __init__(self, data: Any) -> None:
        if type(data) is not dict:
            raise ValueError("a JSON object is missing")
        self.data = data

    def of(self, kind: type, name: str, optional: bool = False) -> Any:
        found = self.data.get(name)
        if isinstance(found, str) and kind is str:
            return found.encode(errors="replace").decode()  # half a surrogate is no text
        if type(found) is kind:
            return found
        if found is None and optional:
            return None
        raise ValueError(f"`{name}` is missing")


def _comparison(fields: _Fields) -> Comparison:
    got, expected = fields.of(dict, "got"), fields.of(dict, "expected", optional=True)
    return Comparison(
        fields.of(str, "label"),
        _thing(_Fields(got)),
        _thing(_Fields(expected)) if expected is not None else None,
        fields.of(float, "tolerance"),
        fields.of(str, "node", optional=True),
        fields.of(int, "site", optional=True),
        fields.of(int, "graph", optional=True),
        fields.of(str, "about"),
    )


def _thing(fields: _Fields) -> Thing:
    return Thing(fields.data.get("value"), fields.of(str, "text"), fields.of(str, "print"))


def _error(fields: _Fields) -> Error:
    line, column = (fields.of(int, name, optional=True) for name in ("line", "column"))
    return Error(fields.of(str, "kind"), fields.of(str, "text"), line, column)


# Reading.


def read(task: Task) -> Reading:
    """What can be said of the answer without running it."""
    source = _normalised(task.code)
    return Reading(
        source == _normalised(task.starter),
        tuple(re.search(pattern, source) is not None for pattern in task.patterns),
        _first_line_changed(task.starter, task.code),
    )


def _normalised(code: str) -> str:
    """The code without comments, blank lines and the habits of its author; as it is, if it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.unparse(ast.parse(clean(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code.strip()


def _first_line_changed(starter: str, code: str) -> str | None:
    """The function or class that the starter began is what others call: by its name, with its arguments."""
    try:
        wanted, found = (_definitions(clean(text)) for text in (starter, code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the error tells of it
    for name, line in wanted.items():
        if name not in found:
            return f"`{name}` is missing. Keep the line `{line}`, and write your code below it, indented."
        if found[name] != line:
            return f"The line `{line}` has become `{found[name]}`, and is called as it was. Put it back."
    return None


def _definitions(code: str) -> dict[str, str]:
    """The first line of each function and class, by name, spelt by Python."""
    nodes = [node for node in ast.parse(code).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return {node.name: ast.unparse(node).split("\n")[0] for node in nodes}


# Running.


class _Failed(Exception):  # noqa: N818  # it ends a check
    """`fail(message)` was called."""


@dataclass
class Session:
    """What a check has asked so far, and the functions that it calls."""

    names: dict[str, Any]
    comparisons: list[Comparison] = field(default_factory=list)
    graphs: list[dict[str, Any]] = field(default_factory=list)
    shown: int | None = None  # the graph that was shown last, which the comparisons that follow are about
    about: str = ""

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
        found = thing(got)
        self.comparisons.append(
            Comparison(label[:MOST_LETTERS], found, wanted, float(tolerance), node, site, self.shown, self.about)
        )
        return wanted is not None and agree(found.value, wanted.value, tolerance)

    def show(self, root: Any, label: str = "") -> None:
        self.shown, self.about = None, label
        with suppress(Exception):  # of a graph that cannot be drawn, the rows tell
            self.graphs.append(describe(root, self.names) | {"label": label})
            self.shown = len(self.graphs) - 1

    def fail(self, message: str) -> None:
        raise _Failed(message)

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {"expect": self.expect, "show": self.show, "fail": self.fail}


def run(task: Task) -> Transcript:
    """What comes of the task in this process."""
    start = time.perf_counter()
    reading = read(task)
    output = _Output()
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    session = Session(names)
    source = task.source
    message: str | None = None
    error: Error | None = None
    with warnings.catch_warnings(), redirect_stdout(output), redirect_stderr(output):
        warnings.simplefilter("ignore")
        try:
            ast.parse(task.code, FILE)  # by itself, so that what is wrong with it is told of its own lines
            program = compile(source.text, FILE, "exec")
        except BaseException as caught:
            error = explain_syntax(caught, source, task.code)
        else:
            linecache.cache[FILE] = (len(source.text), None, source.text.splitlines(keepends=True), FILE)
            try:
                with _AsItWas():
                    exec(program, names)
                names.update(session.functions())
                with _AsItWas():
                    exec(_compiled(task.check), names)
            except _Failed as failed:
                message = str(failed)
            except BaseException as caught:  # SystemExit and KeyboardInterrupt too: the learner's code raised them
                error = explain(caught, source)
    return Transcript(
        reading,
        tuple(session.comparisons),
        message,
        error,
        output.text(),
        tuple(session.graphs),
        time.perf_counter() - start,
    )


@lru_cache(maxsize=64)
def _compiled(check: str) -> Any:
    return compile(check, CHECK, "exec")


class _AsItWas:
    """What learners' code may change for everybody is put back afterwards. It calls nothing until builtins are back."""

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
        self.room = MOST_OUTPUT
        self.cut = False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.room > 0:
            self.pieces.append(text[: self.room])
        self.cut = self.cut or len(text) > self.room
        self.room = max(0, self.room - len(text))
        return len(text)

    def text(self) -> str:
        return "".join(self.pieces) + ("\n… (the rest was cut off)" if self.cut else "")


# What is compared, as plain data.

UNKNOWN = {"unknown": True}  # whatever is neither a number, a text, nor made of them: it agrees with nothing


def thing(found: Any) -> Thing:
    """`found` as it can be sent and compared.

    >>> thing((1, 2.5))
    Thing(value=[1, 2.5], text='(1, 2.5)', print='(1, 2.5)')
    """
    try:
        value = _plain(found, [MOST_COMPARED], MOST_DEPTH)
    except Exception:  # it has other parts, or too many
        value = UNKNOWN
    return Thing(value, _text(found)[:MOST_LETTERS], _text(found, digits=7)[:MOST_LETTERS])


def _plain(found: Any, room: list[int], depth: int) -> Any:
    """Numbers and texts as they are, lists and tuples as lists; other collections as a dict that JSON can hold.

    It goes by the type, not by what a class says of itself.
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
    if issubclass(kind, (list, tuple)):
        entries = (list if issubclass(kind, list) else tuple).__iter__(found)
        return [_plain(entry, room, depth - 1) for entry in entries]
    if kind in (set, frozenset):
        return {"set": sorted((_plain(entry, room, depth - 1) for entry in found), key=repr)}
    if kind is dict:
        pairs = [[_plain(part, room, depth - 1) for part in pair] for pair in found.items()]
        return {"dict": sorted(pairs, key=repr)}
    if kind is complex:
        return {"complex": [found.real, found.imag]}
    raise TypeError("it is neither a number, a text, nor made of them")


def agree(got: Any, expected: Any, tolerance: float) -> bool:
    """Whether two values, as plain data, are the same; numbers up to `tolerance`.

    >>> agree([1.0, 2.00000001], [1, 2], 5e-8), agree(True, 1, 5e-8), agree(UNKNOWN, UNKNOWN, 5e-8)
    (True, False, False)
    """
    if type(expected) is list:
        alike = type(got) is list and len(got) == len(expected)
        return alike and all(agree(g, e, tolerance) for g, e in zip(got, expected, strict=True))
    if type(expected) in (int, float):
        return type(got) in (int, float) and (got == expected or _is_near(got, expected, tolerance))
    return expected != UNKNOWN and type(got) is type(expected) and bool(got == expected)


def _is_near(got: float, expected: float, tolerance: float) -> bool:
    try:
        return abs(got - expected) <= tolerance
    except OverflowError:  # of integers that are too large for a float
        return False


def _text(found: Any, digits: int = 10) -> str:
    try:
        if issubclass(type(found), float):
            return f"{float.__float__(found) + 0.0:.{digits}g}"
        if type(found) in (list, tuple):
            left, right = "[]" if type(found) is list else "()"
            return left + ", ".join(_text(entry, digits) for entry in found[:50]) + right
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(found))
        text = re.sub(r"\d+\.\d+(e[-+]\d+)?", lambda number: f"{float(number[0]):.{digits}g}", text)
    except Exception:  # a __repr__ of the learner's
        return f"<{type(found).__name__}, which cannot be shown>"
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
