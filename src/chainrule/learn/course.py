"""A course as plain data: lessons, and the blocks that they are made of. `lesson_files` reads it from files.

`Course.to_json` writes it for the page, `exercise_data` one exercise of it for a process that grades.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

VERSION = 1
MOST_PUZZLED = 16  # lines


@dataclass(frozen=True)
class Prose:
    """Markdown between the blocks."""

    markdown: str
    type: str = "prose"


@dataclass(frozen=True)
class Wrong:
    """An answer that learners give, and what to tell them. `fingerprint` is how it behaves (see grading)."""

    message: str
    code: str
    pattern: str = ""
    fingerprint: str = ""
    line: int = 0


@dataclass(frozen=True)
class Exercise:
    """Code to write, and all that goes with it. `parts` holds the solutions of the exercises the template names."""

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
        """The lines of the solution, to be put in order; none if they are too many for that."""
        lines = [line for line in self.solution.splitlines() if line.strip()]
        return lines if len(lines) <= MOST_PUZZLED else []


@dataclass(frozen=True)
class Choice:
    """One answer of a quiz, and why it is right or wrong."""

    text: str
    right: bool
    explanation: str


@dataclass(frozen=True)
class Quiz:
    """A question with one right answer or more."""

    name: str
    question: str
    choices: tuple[Choice, ...]
    type: str = "quiz"


@dataclass(frozen=True)
class Stepper:
    """Code that builds a graph to step through; with `own`, of the learner's class."""

    code: str
    own: bool
    type: str = "stepper"


@dataclass(frozen=True)
class Predict:
    """Code whose gradients are to be predicted, node by node, and then revealed."""

    name: str
    code: str
    type: str = "predict"


@dataclass(frozen=True)
class Widget:
    """An interactive piece that the page brings along."""

    name: str
    attributes: Mapping[str, str]
    type: str = "widget"


Block = Prose | Exercise | Quiz | Stepper | Predict | Widget


@dataclass(frozen=True)
class Lesson:
    """One file. Its id is the file's name without `.md`."""

    id: str
    title: str
    summary: str
    blocks: tuple[Block, ...]

    @property
    def exercises(self) -> list[Exercise]:
        """The exercises in order."""
        return [block for block in self.blocks if isinstance(block, Exercise)]


@dataclass(frozen=True)
class Course:
    """The lessons in order, and the named templates."""

    lessons: tuple[Lesson, ...]
    templates: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def exercises(self) -> dict[str, Exercise]:
        """Every exercise by its name."""
        return {exercise.name: exercise for lesson in self.lessons for exercise in lesson.exercises}

    def lesson_of(self, name: str) -> Lesson:
        """The lesson in which the exercise called `name` is."""
        return next(lesson for lesson in self.lessons if any(e.name == name for e in lesson.exercises))

    def to_json(self) -> str:
        """The course for the page, with the fingerprints of the wrong answers, which are run for it."""
        from chainrule.learn.grading import with_fingerprints

        lessons = [
            {
                "id": lesson.id,
                "title": lesson.title,
                "summary": lesson.summary,
                "blocks": [
                    exercise_data(with_fingerprints(block)) if isinstance(block, Exercise) else asdict(block)
                    for block in lesson.blocks
                ],
            }
            for lesson in self.lessons
        ]
        course = {"version": VERSION, "lessons": lessons, "templates": dict(self.templates)}
        return json.dumps(course, ensure_ascii=False, allow_nan=False)


def exercise_data(exercise: Exercise) -> dict[str, Any]:
    """An exercise as data for JSON; `exercise_from` reads it."""
    data = asdict(exercise) | {"puzzle": exercise.puzzle}
    for place in ("file", "line"):
        del data[place]
    for wrong in data["wrong"]:
        del wrong["line"]
    return data


def exercise_from(data: Mapping[str, Any]) -> Exercise:
    """The exercise that `exercise_data` described."""
    fields = {key: data[key] for key in ("name", "title", "group", "prompt", "starter", "template", "solution")}
    wrong = tuple(Wrong(**entry) for entry in data["wrong"])
    return Exercise(**fields, check=data["check"], hints=tuple(data["hints"]), wrong=wrong, parts=data["parts"])
