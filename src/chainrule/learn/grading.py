"""`grade(exercise, code)`: runs a learner's code in its template, then the exercise's check, and says what came out.

The check is Python that runs in the namespace of the learner's code, with three functions more:

    expect(label, got, expected, node=None, tolerance=5e-8)    a row of the report; grads agree to seven decimals
    show(root, label="")                                       a graph for the page
    fail(message)                                              ends the check

Whatever the learner's code does, a `Report` comes back: a syntax error or an exception is told with the line that they
wrote. A wrong answer is known by its *fingerprint*, what the rows say and how it failed, not by its text: code that
behaves as an authored wrong answer does gets its message. Answers that behave alike are told apart by a pattern on the
source. What cannot be survived here (`os._exit`, no end, no memory) is up to `submissions` and to the page.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import io
import json
import linecache
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from chainrule.learn.course import Course, Exercise, Wrong, exercise_from
from chainrule.learn.explaining import FILE, MOST_TEXT, Error, explain, explain_syntax
from chainrule.learn.graphs import describe
from chainrule.learn.templates import clean, fill

CHECK = "<check>"
MOST_OUTPUT = 10_000  # characters
MOST_ROWS = 200
UNCHANGED = "This is still the code you started with: write your answer in it, then check again."


@dataclass(frozen=True)
class Row:
    """One thing that was checked."""

    label: str
    got: str
    expected: str
    right: bool
    node: str | None  # which node of the graph it is about
    graph: int | None = None  # which of the graphs
    about: str = ""  # that graph's label, also where it could not be drawn
    print: str = ""  # `got`, for the fingerprint


@dataclass(frozen=True)
class Report:
    """What came of a learner's code."""

    passed: bool
    rows: tuple[Row, ...] = ()
    message: str | None = None
    error: Error | None = None
    output: str = ""
    graphs: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
    fingerprint: str = ""

    def data(self) -> dict[str, Any]:
        """For JSON."""
        rows = [{key: value for key, value in vars(row).items() if key != "print"} for row in self.rows]
        error = self.error.data() if self.error else None
        data = {key: value for key, value in vars(self).items() if key != "fingerprint"}
        return data | {"rows": rows, "error": error, "graphs": list(self.graphs)}


def grade(exercise: Exercise, code: str, codes: Mapping[str, str] | None = None) -> Report:
    """The report on `code` as an answer to `exercise`. `codes` are the learner's answers to others, by name.

    >>> from chainrule.learn.lesson_files import load_course
    >>> add = load_course().exercises["add"]
    >>> grade(add, add.solution).passed
    True
    """
    report = _run(exercise, code, codes or {})
    if report.passed:
        return report
    if _normalised(code) == _normalised(exercise.starter):
        return replace(report, message=UNCHANGED, error=None)
    message = _authored(exercise, code, report.fingerprint) or report.message or _general(report.rows)
    return replace(report, message=message or _first_line_changed(exercise.starter, code, report.error))


def grade_json(course: str, name: str, code: str, codes: str = "{}") -> str:
    """`grade` for the page, JSON to JSON: `course` is what `Course.to_json` gave, or one exercise of it.

    >>> from chainrule.learn.lesson_files import load_course
    >>> json.loads(grade_json(load_course().to_json(), "add", "oops("))["error"]["kind"]
    'SyntaxError'
    """
    exercises = _exercises(course)
    if name not in exercises:
        raise ValueError(f"there is no exercise {name!r} in this course: it has {', '.join(exercises)}")
    return json.dumps(grade(exercises[name], code, json.loads(codes)).data())


@lru_cache(maxsize=2)
def _exercises(course: str) -> dict[str, Exercise]:
    data = json.loads(course)
    found = [block for lesson in data["lessons"] for block in lesson["blocks"]] if "lessons" in data else [data]
    return {block["name"]: exercise_from(block) for block in found if block["type"] == "exercise"}


# Wrong answers.


def with_fingerprints(exercise: Exercise) -> Exercise:
    """The exercise with the fingerprint of each of its wrong answers, which are run for it."""
    wrong = tuple(
        wrong if wrong.fingerprint else replace(wrong, fingerprint=_run(exercise, wrong.code, {}).fingerprint)
        for wrong in exercise.wrong
    )
    return replace(exercise, wrong=wrong)


def _authored(exercise: Exercise, code: str, fingerprint: str) -> str | None:
    """The message for code that behaves like an authored wrong answer."""
    alike = [wrong for wrong in _fingerprinted(exercise) if wrong.fingerprint == fingerprint]
    source = _normalised(code)
    for wrong in sorted(alike, key=lambda wrong: not wrong.pattern):  # a pattern is the more special
        if re.search(wrong.pattern, source):
            return wrong.message
    return None


def _general(rows: Sequence[Row]) -> str | None:
    """For what happens in every exercise."""
    for row in rows:
        if row.got == "None" and not row.right and row.node:
            return f"{row.label} is `None`, where a number is expected."
        if row.got == "None" and not row.right:
            return f"{row.label}: there is nothing here, `None`. Does your function lack a `return`?"
        if row.got.startswith("Value(") and not row.right:
            return f"{row.label}: this is a Value, where a plain number is expected. Its number is in `.data`."
    return None


def _first_line_changed(starter: str, code: str, error: Error | None) -> str | None:
    """The function or class that the starter began is what others call: by its name, with its arguments."""
    if error is None or error.kind not in ("NameError", "TypeError"):
        return None
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


_FINGERPRINTED: dict[int, tuple[Exercise, tuple[Wrong, ...]]] = {}


def _fingerprinted(exercise: Exercise) -> tuple[Wrong, ...]:
    if all(wrong.fingerprint for wrong in exercise.wrong):
        return exercise.wrong
    kept = _FINGERPRINTED.get(id(exercise))
    if kept is None or kept[0] is not exercise:
        kept = _FINGERPRINTED[id(exercise)] = exercise, with_fingerprints(exercise).wrong
    return kept[1]


def _normalised(code: str) -> str:
    """The code without comments, blank lines and the habits of its author; as it is, if it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.unparse(ast.parse(clean(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code.strip()


def verify(course: Course) -> list[str]:
    """What is wrong with the course's exercises, a sentence each: solutions must pass, all else must not.

    >>> from chainrule.learn.lesson_files import read_course
    >>> verify(read_course({"01-hello.md": "---\\ntitle: Hello\\nsummary: A lesson.\\n---\\nWelcome."}))
    []
    """
    return [problem for exercise in course.exercises.values() for problem in _problems(exercise)]


def _problems(exercise: Exercise) -> Iterator[str]:
    where, name = f"{exercise.file}, line {exercise.line}", exercise.name
    report = grade(exercise, exercise.solution)
    if not report.passed:
        yield f"{where}: the solution of {name!r} does not pass: {_first_fault(report)}"
    if grade(exercise, exercise.starter).passed:
        yield f"{where}: the starter of {name!r} passes already: leave something to do, or check more"
    for wrong in exercise.wrong:
        place = f"{exercise.file}, line {wrong.line}"
        report = grade(exercise, wrong.code)
        if report.passed:
            yield f"{place}: this wrong answer to {name!r} passes: check more, or leave it out"
        elif report.message != wrong.message:
            other = f"gets another message: {report.message!r}"
            yield f"{place}: this wrong answer to {name!r} {other}; give both a `pattern`, or leave one out"


def _first_fault(report: Report) -> str:
    if report.error:
        return report.error.text
    for row in report.rows:
        if not row.right:
            return f"{row.label} is {row.got}, expected {row.expected}"
    return report.message or "it failed"


# Running code.


class _Failed(Exception):  # noqa: N818  # it ends a check
    """`fail(message)` was called."""


@dataclass
class _Session:
    """What a check has found so far, and the functions that it calls."""

    names: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    graphs: list[dict[str, Any]] = field(default_factory=list)
    right: bool = True  # all rows, also those beyond the most that are kept
    shown: int | None = None  # the graph that was shown last, which the rows that follow are about
    about: str = ""

    def expect(self, label: str, got: Any, expected: Any, node: str | None = None, tolerance: float = 5e-8) -> bool:
        if node is None and label.endswith((".grad", ".data")):
            node = label[: -len(".grad")]
        right = _agree(got, expected, tolerance)
        self.right = self.right and right
        if len(self.rows) < MOST_ROWS:
            self.rows.append(
                Row(label, _text(got), _text(expected), right, node, self.shown, self.about, _text(got, digits=7))
            )
        return right

    def show(self, root: Any, label: str = "") -> None:
        self.shown, self.about = None, label
        with suppress(Exception):  # of a graph that cannot be drawn, the rows tell
            self.graphs.append(describe(root, self.names) | {"label": label})
            self.shown = len(self.graphs) - 1

    def fail(self, message: str) -> None:
        raise _Failed(message)

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {"expect": self.expect, "show": self.show, "fail": self.fail}


def _run(exercise: Exercise, code: str, codes: Mapping[str, str]) -> Report:
    start = time.perf_counter()
    code = clean(code)
    output = _Output()
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    session = _Session(names)
    source = fill(exercise.template, code, {**exercise.parts, **codes})
    message: str | None = None
    error: Error | None = None
    with warnings.catch_warnings(), redirect_stdout(output), redirect_stderr(output):
        warnings.simplefilter("ignore")
        try:
            ast.parse(code, FILE)  # by itself, so that what is wrong with it is told of its own lines
            program = compile(source.text, FILE, "exec")
        except BaseException as caught:
            error = explain_syntax(caught, source, code)
        else:
            linecache.cache[FILE] = (len(source.text), None, source.text.splitlines(keepends=True), FILE)
            try:
                with _AsItWas():
                    exec(program, names)
                names.update(session.functions())
                with _AsItWas():
                    exec(_compiled_check(exercise.check), names)
            except _Failed as failed:
                message = str(failed)
            except BaseException as caught:  # SystemExit and KeyboardInterrupt too: the learner's code raised them
                error = explain(caught, source)
    passed = error is None and message is None and session.right
    fingerprint = _fingerprint(session.rows, error, message)
    seconds = time.perf_counter() - start
    return Report(
        passed, tuple(session.rows), message, error, output.text(), tuple(session.graphs), seconds, fingerprint
    )


@lru_cache(maxsize=64)
def _compiled_check(check: str) -> Any:
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


# Comparing and spelling.


def _agree(got: Any, expected: Any, tolerance: float) -> bool:
    try:
        if isinstance(expected, (bool, str)) or expected is None:
            return type(got) is type(expected) and bool(got == expected)
        if isinstance(expected, (int, float)):
            if isinstance(got, bool) or not isinstance(got, (int, float)):
                return False
            number = float.__float__(got) if isinstance(got, float) else int.__int__(got)  # not by rules of its own
            return abs(number - expected) <= tolerance or number == expected
        if isinstance(expected, (list, tuple)):
            alike = isinstance(got, (list, tuple)) and len(got) == len(expected)
            return alike and all(_agree(g, e, tolerance) for g, e in zip(got, expected, strict=True))
        return bool(got == expected)
    except Exception:  # comparing may run the learner's code
        return False


def _text(thing: Any, digits: int = 10) -> str:
    try:
        if isinstance(thing, float):
            return f"{thing + 0.0:.{digits}g}"
        if type(thing) in (list, tuple):
            left, right = "[]" if type(thing) is list else "()"
            return left + ", ".join(_text(entry, digits) for entry in thing[:50]) + right
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(thing))
        text = re.sub(r"\d+\.\d+(e[-+]\d+)?", lambda number: f"{float(number[0]):.{digits}g}", text)
    except Exception:  # a __repr__ of the learner's
        return f"<{type(thing).__name__}, which cannot be shown>"
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


def _fingerprint(rows: list[Row], error: Error | None, message: str | None) -> str:
    behaviour = [[row.label, row.print] for row in rows], error.kind if error else None, message
    return hashlib.sha256(json.dumps(behaviour).encode()).hexdigest()[:16]
