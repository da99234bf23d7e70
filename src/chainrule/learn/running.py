"""`run(task)`: a learner's code in its template, then the exercise's check. Returns a transcript of what they did.

The check is Python that runs in the namespace of the learner's code, with three more functions:

    expect(label, got, expected, node=None, tolerance=5e-8)    compares two values; one row of the report
    show(root, label="")                                       draws a graph on the page
    fail(message)                                              ends the check

Nothing is judged here: `grading` does that from the `Transcript`, which says what every `expect` was given. So the two
can happen in different processes, and code that tampers with its own process changes no verdict. Whatever the learner's
code does, a transcript comes back: syntax errors and exceptions are reported with the line that the learner wrote. What
cannot be survived here (`os._exit`, endless loops, no memory) is up to `submissions` and to the page.
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
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from chainrule.learn.explaining import FILE, Error, explain, explain_syntax
from chainrule.learn.graphs import describe
from chainrule.learn.templates import clean
from chainrule.learn.transcripts import (
    MOST_COMPARED,
    MOST_LETTERS,
    UNKNOWN,
    Comparison,
    Reading,
    Task,
    Transcript,
    agree,
    thing,
)

CHECK = "<check>"
MOST_OUTPUT = 10_000  # characters
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # what ast.parse may raise


def read(task: Task) -> Reading:
    """What the answer's text shows before it runs."""
    source = _normalised(task.code)
    matches = tuple(re.search(pattern, source) is not None for pattern in task.patterns)
    return Reading(source == _normalised(task.starter), matches, _first_line_changed(task.starter, task.code))


def _normalised(code: str) -> str:
    """The code without comments, blank lines and personal style; unchanged if it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.unparse(ast.parse(clean(code)))
    except UNREADABLE:
        return code.strip()


def _first_line_changed(starter: str, code: str) -> str | None:
    """Checks call the starter's function or class by its name and arguments, so its first line must stay."""
    try:
        wanted, found = (_definitions(clean(text)) for text in (starter, code))
    except UNREADABLE:
        return None  # the error says so
    for name, line in wanted.items():
        if name not in found:
            return f"`{name}` is missing. Keep the line `{line}`, and write your code below it, indented."
        if found[name] != line:
            return f"The line `{line}` has become `{found[name]}`, and is called as it was. Put it back."
    return None


def _definitions(code: str) -> dict[str, str]:
    """The first line of each function and class, by name, as Python formats it."""
    nodes = [node for node in ast.parse(code).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return {node.name: ast.unparse(node).split("\n")[0] for node in nodes}


class _Failed(Exception):  # noqa: N818  # it ends a check
    """`fail(message)` was called."""


@dataclass
class Session:
    """What a check has compared and shown so far, and the functions that it calls."""

    names: dict[str, Any]
    comparisons: list[Comparison] = field(default_factory=list)
    graphs: list[dict[str, Any]] = field(default_factory=list)
    shown: int | None = None  # the graph that was shown last, which later comparisons are about
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
        found, label = thing(got), label[:MOST_LETTERS]
        made = Comparison(label, found, wanted, float(tolerance), node, site, self.shown, self.about)
        self.comparisons.append(made)
        return wanted is not None and agree(found.value, wanted.value, tolerance)

    def show(self, root: Any, label: str = "") -> None:
        self.shown, self.about = None, label
        with suppress(Exception):  # the rows still tell of a graph that cannot be drawn
            self.graphs.append(describe(root, self.names) | {"label": label})
            self.shown = len(self.graphs) - 1

    def fail(self, message: str) -> None:
        raise _Failed(message)


def run(task: Task) -> Transcript:
    """Run the task in this process."""
    start = time.perf_counter()
    reading, output = read(task), _Output()
    session = Session({"__name__": "__main__", "__builtins__": builtins})
    with warnings.catch_warnings(), redirect_stdout(output), redirect_stderr(output):
        warnings.simplefilter("ignore")
        message, error = _ending(task, session)
    seconds = time.perf_counter() - start
    graphs = tuple(session.graphs)
    return Transcript(reading, tuple(session.comparisons), message, error, output.text(), graphs, seconds)


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
            exec(program, names)
        names.update(expect=session.expect, show=session.show, fail=session.fail)
        with _AsItWas():
            exec(_compiled(task.check), names)
    except _Failed as failed:
        return str(failed), None
    except BaseException as caught:  # SystemExit and KeyboardInterrupt too: the learner's code raised them
        return None, explain(caught, source)
    return None, None


@lru_cache(maxsize=64)
def _compiled(check: str) -> Any:
    return compile(check, CHECK, "exec")


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
