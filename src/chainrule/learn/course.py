"""A course as plain data: lessons, the blocks they consist of, and the templates of exercises.

A template is the code around a learner's, with placeholder lines:

    # --- your code ---         what the learner writes for this exercise
    # --- code of NAME ---      what they wrote for another exercise (its solution until they have)
    # --- template NAME ---     a template defined elsewhere under this name

`lesson_files` replaces the third kind, so `Exercise.template` has only the first two. `fill` replaces those.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from chainrule.learn.matching import Signs

MOST_PUZZLED = 16  # lines
YOURS = "# --- your code ---"
SLOT = re.compile(r"^([ \t]*)# --- (your code|code of ([\w-]+)|template ([\w-]+)) ---[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Prose:
    """Markdown between other blocks."""

    markdown: str
    type: str = "prose"


@dataclass(frozen=True)
class Wrong:
    """A wrong answer that learners give, and the message for it.

    The message is for code that behaves alike, which `fingerprint` tells (see `grading`), and that has the same fault,
    which `has` and `lacks` tell (see `matching`).
    """

    message: str
    code: str
    has: str = ""
    lacks: str = ""
    fingerprint: str = ""
    line: int = 0

    @property
    def signs(self) -> Signs:
        """How the mistake is seen in the code."""
        return Signs(self.has, self.lacks)


@dataclass(frozen=True)
class Exercise:
    """Code to write. `parts` holds the solutions of the other exercises that the template names."""

    name: str
    title: str
    group: str
    prompt: str
    starter: str
    template: str
    solution: str
    check: str
    hints: tuple[str, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    line: int = 0
    type: str = "exercise"

    @property
    def puzzle(self) -> list[str]:
        """The lines of the solution, for learners to put in order; empty if there are too many."""
        lines = [line for line in self.solution.splitlines() if line.strip()]
        return lines if len(lines) <= MOST_PUZZLED else []

    @property
    def prints(self) -> bool:
        """Whether the program prints something by itself, so that it is worth running without the check."""
        program = ast.parse(fill(self.template, self.starter, self.parts).text)
        return any(isinstance(node, ast.Name) and node.id == "print" for node in _run_at_once(program))


@dataclass(frozen=True)
class Choice:
    """One choice in a quiz, and why it is right or wrong."""

    text: str
    right: bool
    explanation: str


@dataclass(frozen=True)
class Quiz:
    """A question with at least one right choice."""

    name: str
    question: str
    choices: tuple[Choice, ...]
    type: str = "quiz"


@dataclass(frozen=True)
class Stepper:
    """Code that builds a graph to step through; `own` makes it use the learner's class."""

    code: str
    own: bool
    type: str = "stepper"


@dataclass(frozen=True)
class Order:
    """Code that builds a graph whose nodes the learner lets speak in any order; `own` as for `Stepper`."""

    code: str
    own: bool
    type: str = "order"


@dataclass(frozen=True)
class Predict:
    """Code whose gradients the learner predicts, node by node, before they are revealed."""

    name: str
    code: str
    type: str = "predict"


@dataclass(frozen=True)
class Widget:
    """An interactive figure that the page implements."""

    name: str
    attributes: Mapping[str, str]
    type: str = "widget"


Block = Prose | Exercise | Quiz | Stepper | Order | Predict | Widget


@dataclass(frozen=True)
class Lesson:
    """One file; `id` is its name without `.md`."""

    id: str
    title: str
    summary: str
    blocks: tuple[Block, ...]

    @property
    def exercises(self) -> list[Exercise]:
        """The exercises, in order."""
        return [block for block in self.blocks if isinstance(block, Exercise)]


@dataclass(frozen=True)
class Course:
    """The lessons, in order, and the named templates."""

    lessons: tuple[Lesson, ...]
    templates: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def exercises(self) -> dict[str, Exercise]:
        """Every exercise, by name."""
        return {exercise.name: exercise for lesson in self.lessons for exercise in lesson.exercises}

    def lesson_of(self, name: str) -> Lesson:
        """The lesson that contains the exercise called `name`."""
        return next(lesson for lesson in self.lessons if any(e.name == name for e in lesson.exercises))


def exercise_data(exercise: Exercise) -> dict[str, Any]:
    """An exercise as data for JSON, without its place in a file; `exercise_from` reads it back."""
    data = asdict(exercise) | {"puzzle": exercise.puzzle, "prints": exercise.prints}
    del data["file"], data["line"]
    for wrong in data["wrong"]:
        del wrong["line"]
    return data


def exercise_from(data: Mapping[str, Any]) -> Exercise:
    """The exercise that `exercise_data` described."""
    known = {field.name: data[field.name] for field in fields(Exercise) if field.name in data}
    wrong = tuple(Wrong(**entry) for entry in data["wrong"])
    return Exercise(**known | {"hints": tuple(data["hints"]), "wrong": wrong})


def _run_at_once(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that a program runs by itself: not those in functions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _run_at_once(child)


# Templates.


@dataclass(frozen=True)
class Source:
    """A filled template, and where the learner's own lines are in it."""

    text: str
    first: int  # line of the learner's first line, from 1
    count: int
    indent: int


def fill(template: str, code: str, codes: Mapping[str, str]) -> Source:
    """`template` with the learner's `code` in its place, and `codes` of other exercises, by name, in theirs.

    >>> fill("def f():\\n    # --- your code ---", "return 1", {})
    Source(text='def f():\\n    return 1', first=2, count=1, indent=4)
    """
    lines: list[str] = []
    first = count = indent = 0
    for line in template.split("\n"):
        slot = SLOT.match(line)
        if not slot:
            lines.append(line)
            continue
        inserted = clean(code if slot[2] == "your code" else codes[slot[3]]).split("\n")
        if slot[2] == "your code":
            first, count, indent = len(lines) + 1, len(inserted), len(slot[1])
        lines += [slot[1] + text if text.strip() else text for text in inserted]
    return Source("\n".join(lines), first, count, indent)


def clean(code: str) -> str:
    """The code with Unix line endings and without common indentation, since learners paste code as they find it.

    >>> clean("    x = 1\\r\\n    y = 2")
    'x = 1\\ny = 2'
    """
    return textwrap.dedent(code.replace("\r\n", "\n").replace("\r", "\n"))
