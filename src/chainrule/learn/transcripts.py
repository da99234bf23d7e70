"""What is run for an answer, and what came of it, as plain data that processes can exchange.

A `Task` goes to the process that runs the answer, a `Transcript` comes back. Values are compared as plain data too: a
learner's class has no say in whether it equals something.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from typing import Any

from chainrule.learn.explaining import MOST_TEXT, Error
from chainrule.learn.templates import Source

MOST_COMPARED = 10_000  # calls of `expect`, and numbers in one of them
MOST_DEPTH = 20  # of nested lists
MOST_BITS = 1024  # of an integer: it fits a float, about
MOST_LETTERS = 10_000  # of a label, a text that is compared, and a spelling


@dataclass(frozen=True)
class Task:
    """What to run: an answer, the program around it, and a check. The rest is for reading the answer."""

    code: str
    source: Source
    check: str
    starter: str
    patterns: tuple[str, ...]

    @classmethod
    def from_data(cls, data: Any) -> Task:
        """The task whose `asdict` is `data`, or a ValueError."""
        task: Task = _checked("Task", data, "task")
        return task


@dataclass(frozen=True)
class Reading:
    """What the text of an answer shows before it runs."""

    unchanged: bool  # it is the starter
    matches: tuple[bool, ...]  # for each of the task's patterns
    first_line: str | None  # a sentence, if a function or class of the starter is missing or was renamed


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
        data = asdict(replace(self, graphs=()))
        del data["graphs"]
        return data

    @classmethod
    def from_data(cls, data: Any) -> Transcript:
        """The transcript that `data` describes, or a ValueError: `data` may come from anywhere."""
        transcript: Transcript = _checked("Transcript", data, "transcript")
        if not (isfinite(transcript.seconds) and transcript.seconds >= 0.0):
            raise ValueError("`seconds` is not a duration")
        return transcript


PLAIN = {"bool": bool, "int": int, "float": float, "str": str}
RECORDS = {kind.__name__: kind for kind in (Task, Source, Reading, Thing, Comparison, Transcript, Error)}


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
    if type(expected) in (int, float):
        return type(got) in (int, float) and (got == expected or _is_near(got, expected, tolerance))
    return expected != UNKNOWN and type(got) is type(expected) and bool(got == expected)


def _is_near(got: float, expected: float, tolerance: float) -> bool:
    try:
        return abs(got - expected) <= tolerance
    except OverflowError:  # integers that are too large for a float
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
    except Exception:  # the learner's __repr__
        return f"<{type(found).__name__}, which cannot be shown>"
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
