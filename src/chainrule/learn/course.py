"""Lessons are files. `load_course(folder)` reads them; what it gives is plain data, written for the page by `to_json`.

A lesson is a Markdown file: front matter (`title`, `summary`), prose, and fenced blocks whose first word is one of
`DIRECTIVES`. docs/teaching.md tells how to write one. Whatever a file gets wrong is a `LessonError`, which names the
file, the line, what was found there and what to write.

An exercise's *template* is the code around the learner's. Three kinds of line in it stand for something else:

    # --- your code ---         what the learner writes for this exercise
    # --- code of NAME ---      what they wrote for another one (its solution, as long as they have not)
    # --- template NAME ---     a template that was written once, under this name

Templates are resolved when they are read: `Exercise.template` has no third kind of line left.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

VERSION = 1
DIRECTIVES = (
    "exercise",
    "starter",
    "template",
    "solution",
    "check",
    "wrong",
    "hint",
    "quiz",
    "stepper",
    "predict",
    "widget",
)
PARTS = ("starter", "template", "solution", "check", "wrong", "hint")  # these belong to the exercise above them
WIDGETS = (
    "nudge",
    "ucurve",
    "training",
    "forgotten-zero",
    "xor-compare",
    "vanishing",
    "array-program",
    "playground",
)
MOST_PUZZLED = 16  # lines
YOURS = "# --- your code ---"

_FENCE = re.compile(r"(`{3,})\s*(.*?)\s*$")
_ATTRIBUTE = re.compile(r'\s*([A-Za-z][\w-]*)(?:=(?:"((?:[^"\\]|\\.)*)"|([^\s"]+)))?(?=\s|$)')
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\Z")
_SLOT = re.compile(r"^([ \t]*)# --- (your code|code of ([\w-]+)|template ([\w-]+)) ---[ \t]*$", re.MULTILINE)
_BAR = re.compile(r" \| (?=(?:[^`]*`[^`]*`)*[^`]*\Z)")  # not between backquotes
_CHOICE = re.compile(r"- \[([ xX])\] (.*)", re.DOTALL)


class LessonError(ValueError):
    """A lesson file that cannot be used: where, what was found, what to write."""

    def __init__(self, file: str, line: int, message: str) -> None:
        super().__init__(f"{file}, line {line}: {message}")
        self.file, self.line = file, line


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


def load_course(folder: str | Path | None = None) -> Course:
    """The lessons in `folder`, in the order of their names; without one, chainrule's own course.

    >>> load_course().exercises["add"].title
    'Addition'
    """
    lessons = files("chainrule.learn") / "lessons" if folder is None else Path(folder)
    if not lessons.is_dir():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}: give one that holds lessons, such as 01-sums.md")
    found = sorted((entry for entry in lessons.iterdir() if _is_lesson(entry.name)), key=lambda entry: entry.name)
    if not found:
        raise FileNotFoundError(f"{str(folder)!r} holds no lessons: write one in a file such as 01-sums.md")
    texts = {}
    for entry in found:
        try:
            texts[entry.name] = entry.read_text("utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise LessonError(entry.name, line, "this is not UTF-8 text: save the file in that encoding") from None
    return read_course(texts)


def read_course(texts: Mapping[str, str]) -> Course:
    """The course whose files have these texts, by their names.

    >>> read_course({"01-hello.md": "---\\ntitle: Hello\\nsummary: A lesson.\\n---\\nWelcome."}).lessons[0].title
    'Hello'
    """
    drafts = [_Draft(file, text) for file, text in texts.items()]
    templates: dict[str, _Block] = {}
    for block in (block for draft in drafts for block in draft.templates):
        name = block.attributes["name"]
        if name in templates:
            raise block.error(f"there is a template {name!r} already: give this one another name")
        templates[name] = block
    exercises: dict[str, _ExerciseDraft] = {}
    named: set[str] = set()
    for item in (item for draft in drafts for item in draft.items):
        part = item.block if isinstance(item, _ExerciseDraft) else item
        if not isinstance(part, _Block) or part.directive not in ("exercise", "quiz", "predict"):
            continue
        name = part.attributes["name"]
        if name in named:
            raise part.error(f"the name {name!r} is taken: progress is kept by name, so give this one another")
        named.add(name)
        if isinstance(item, _ExerciseDraft):
            exercises[name] = item
    context = _Context(templates, exercises)
    return Course(
        tuple(draft.lesson(context) for draft in drafts),
        {name: context.resolve(block) for name, block in templates.items()},
    )


def _is_lesson(name: str) -> bool:
    return name.endswith(".md") and not name.startswith(".") and name.lower() != "readme.md"


# Reading one file: lines, then blocks, then what they mean.


@dataclass
class _Block:
    """A fenced block of a lesson file."""

    file: str
    line: int  # of the fence
    directive: str
    attributes: dict[str, str]
    body: str

    def error(self, message: str, line: int = 0) -> LessonError:
        """`line` counts from the first line of the body."""
        return LessonError(self.file, self.line + line, message)

    def code(self) -> str:
        """The body, which must be Python."""
        if not self.body.strip():
            raise self.error(f"this {self.directive} block is empty: write Python code between the fences")
        try:
            ast.parse(_SLOT.sub(r"\1pass", self.body))
        except SyntaxError as error:
            message = f"this {self.directive} block is not Python: {error.msg}; correct the code"
            raise self.error(message, error.lineno or 0) from None
        return self.body

    def check_attributes(self, required: Iterable[str] = (), optional: Iterable[str] = ()) -> None:
        known = (*required, *optional)
        for key in required:
            if not self.attributes.get(key):
                example = f"```{self.directive} " + " ".join(f'{name}="…"' for name in required)
                raise self.error(f"this {self.directive} block has no `{key}`: begin it with {example}")
        for key in self.attributes:
            if key not in known:
                meant = f"it takes {_listed(known)}" if known else "it takes no attributes"
                raise self.error(f"`{key}` is not an attribute of {self.directive}: {meant}")
        if "name" in known and "name" in self.attributes and self.directive != "template":
            name = self.attributes["name"]
            if not _NAME.match(name):
                raise self.error(
                    f"`name` is {name!r}: use lower-case letters, digits and hyphens, such as name=chain-2"
                )


class _ExerciseDraft:
    """An exercise block and the blocks that belong to it."""

    def __init__(self, block: _Block) -> None:
        block.check_attributes(["name"], ["title", "group", "template"])
        self.block = block
        self.parts: dict[str, _Block] = {}
        self.wrong: list[_Block] = []
        self.hints: list[str] = []

    def add(self, block: _Block) -> None:
        if block.directive == "wrong":
            block.check_attributes(["message"], ["pattern"])
            try:
                re.compile(block.attributes.get("pattern", ""))
            except re.error as error:
                raise block.error(f"`pattern` is not a regular expression: {error}; correct it") from None
            block.code()
            self.wrong.append(block)
        elif block.directive == "hint":
            block.check_attributes()
            if not block.body.strip():
                raise block.error("this hint is empty: write a sentence between the fences")
            self.hints.append(block.body.strip())
        else:
            block.check_attributes()
            if block.directive in self.parts:
                name = self.block.attributes["name"]
                raise block.error(f"exercise {name!r} has a {block.directive} already: keep one of the two")
            block.code()
            self.parts[block.directive] = block

    def exercise(self, context: _Context) -> Exercise:
        attributes, block = self.block.attributes, self.block
        name = attributes["name"]
        for part in ("starter", "solution", "check"):
            if part not in self.parts:
                raise block.error(f"exercise {name!r} has no {part}: add a block that begins with ```{part}")
        template = self._template(context)
        return Exercise(
            name=name,
            title=attributes.get("title", name),
            group=attributes.get("group", ""),
            prompt=_after_key(block, "prompt"),
            starter=self.parts["starter"].body,
            template=template,
            solution=self.parts["solution"].body,
            check=self.parts["check"].body,
            hints=tuple(self.hints),
            wrong=tuple(
                Wrong(w.attributes["message"], w.body, w.attributes.get("pattern", ""), line=w.line) for w in self.wrong
            ),
            parts={part: context.exercises[part].parts["solution"].body for part in _names_in(template)},
            file=block.file,
            line=block.line,
        )

    def _template(self, context: _Context) -> str:
        name, wanted = self.block.attributes["name"], self.block.attributes.get("template")
        if wanted is None and "template" not in self.parts:
            return YOURS
        if wanted is None:
            block = self.parts["template"]
        elif "template" in self.parts:
            raise self.block.error(
                f"exercise {name!r} has `template={wanted}` and a template block: keep one of the two"
            )
        elif wanted in context.templates:
            block = context.templates[wanted]
        else:
            raise self.block.error(f"there is no template {wanted!r}: {_there_are(context.templates)}")
        text = context.resolve(block)
        text = re.sub(rf"^([ \t]*)# --- code of {re.escape(name)} ---[ \t]*$", rf"\1{YOURS}", text, flags=re.MULTILINE)
        count = sum(1 for slot in _SLOT.finditer(text) if slot[2] == "your code")
        if count != 1:
            own = "" if wanted is None else f", or `# --- code of {name} ---`"
            raise block.error(
                f"the template of exercise {name!r} has {count} places for the learner's code: "
                f"write the line `{YOURS}`{own} once"
            )
        return text


@dataclass
class _Context:
    """What lessons may refer to: the course's templates and exercises."""

    templates: Mapping[str, _Block]
    exercises: Mapping[str, _ExerciseDraft]

    def resolve(self, block: _Block, inside: tuple[str, ...] = ()) -> str:
        """The block's text, with the templates that it names in their places."""

        def replaced(slot: re.Match[str]) -> str:
            line = block.body[: slot.start()].count("\n") + 1
            exercise, template = slot[3], slot[4]
            if exercise and exercise not in self.exercises:
                message = f"there is no exercise {exercise!r}: {_there_are(self.exercises)}"
                raise block.error(message, line)
            if not template:
                return slot[0]
            if template not in self.templates:
                raise block.error(f"there is no template {template!r}: {_there_are(self.templates)}", line)
            if template in inside:
                raise block.error(f"template {template!r} contains itself: leave this line out", line)
            text = self.resolve(self.templates[template], (*inside, template))
            return textwrap.indent(text, slot[1]).rstrip("\n")

        return _SLOT.sub(replaced, block.body)


class _Draft:
    """A lesson file, read but not yet put together."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.lines = text.splitlines()
        self.items: list[Prose | _Block | _ExerciseDraft] = []
        self.templates: list[_Block] = []
        first = self._front_matter()
        prose: list[str] = []
        for item in self._blocks(first):
            if isinstance(item, str):
                prose.append(item)
                continue
            self._end_prose(prose)
            self._place(item)
        self._end_prose(prose)

    def lesson(self, context: _Context) -> Lesson:
        blocks = tuple(
            item
            if isinstance(item, Prose)
            else item.exercise(context)
            if isinstance(item, _ExerciseDraft)
            else _plain(item)
            for item in self.items
        )
        return Lesson(self.file.removesuffix(".md"), self.front["title"], self.front["summary"], blocks)

    def _front_matter(self) -> int:
        """Reads title and summary; the number of the first line after them."""
        example = "---\ntitle: …\nsummary: …\n---".replace("\n", "⏎")
        if not self.lines or self.lines[0].strip() != "---":
            found = repr(self.lines[0][:40]) if self.lines else "an empty file"
            raise LessonError(self.file, 1, f"a lesson begins with front matter, found {found}: write {example}")
        self.front: dict[str, str] = {}
        for number, line in enumerate(self.lines[1:], 2):
            if line.strip() == "---":
                for key in ("title", "summary"):
                    if not self.front.get(key):
                        raise LessonError(
                            self.file, number, f"the front matter has no {key}: add `{key}: …` above this"
                        )
                return number
            key, colon, value = (part.strip() for part in line.partition(":"))
            if line.strip() and (not colon or key not in ("title", "summary")):
                raise LessonError(
                    self.file, number, f"found {line[:40]!r} in the front matter: write `title:` or `summary:`"
                )
            if key:
                self.front[key] = value
        raise LessonError(self.file, 1, "the front matter does not end: write --- on a line of its own below it")

    def _blocks(self, start: int) -> Iterator[str | _Block]:
        """Lines of prose, and blocks that have a directive."""
        number = start
        while number < len(self.lines):
            line = self.lines[number]
            number += 1
            fence = _FENCE.match(line)
            if not fence:
                yield line
                continue
            end = self._end_of_fence(number, fence[1])
            word = fence[2].split(maxsplit=1)[0] if fence[2] else ""
            if word in DIRECTIVES:
                body = "\n".join(self.lines[number:end])
                attributes = self._attributes(fence[2].removeprefix(word), number)
                yield _Block(self.file, number, word, attributes, body)
            else:
                self._check_language(word, fence[2], number)
                yield from self.lines[number - 1 : end + 1]
            number = end + 1

    def _end_of_fence(self, number: int, fence: str) -> int:
        for place in range(number, len(self.lines)):
            closing = self.lines[place].strip()
            if closing and set(closing) == {"`"} and len(closing) >= len(fence):
                return place
        raise LessonError(self.file, number, f"the block that begins here does not end: close it with {fence}")

    def _check_language(self, word: str, info: str, number: int) -> None:
        """A code block of the prose names a language at most; anything else is a directive that was misspelt."""
        close = difflib.get_close_matches(word, DIRECTIVES, 1, 0.75)
        if close or "=" in info:
            meant = f"did you mean {close[0]!r}?" if close else f"write one of {_listed(DIRECTIVES)}"
            raise LessonError(self.file, number, f"{word!r} is not a directive: {meant}")

    def _attributes(self, text: str, number: int) -> dict[str, str]:
        found: dict[str, str] = {}
        place = 0
        while text[place:].strip():
            match = _ATTRIBUTE.match(text, place)
            if not match:
                rest = text[place:].strip()[:40]
                raise LessonError(
                    self.file, number, f'found {rest!r} where name=value or name="some words" was expected'
                )
            key, quoted, bare = match[1], match[2], match[3]
            if key in found:
                raise LessonError(self.file, number, f"`{key}` is given twice: keep one of the two")
            found[key] = quoted.replace('\\"', '"') if quoted is not None else bare if bare is not None else "true"
            place = match.end()
        return found

    def _end_prose(self, lines: list[str]) -> None:
        text = "\n".join(lines).strip("\n")
        if text.strip():
            self.items.append(Prose(text))
        lines.clear()

    def _place(self, block: _Block) -> None:
        if block.directive == "template" and "name" in block.attributes:
            block.check_attributes(["name"])
            block.code()
            self.templates.append(block)
        elif block.directive == "exercise":
            self.items.append(_ExerciseDraft(block))
        elif block.directive in PARTS:
            if not self.items or not isinstance(self.items[-1], _ExerciseDraft):
                raise block.error(
                    f"this {block.directive} belongs to no exercise: put it right below one, without prose between"
                )
            self.items[-1].add(block)
        else:
            if block.directive in ("quiz", "predict"):
                block.check_attributes(["name"])
            self.items.append(block)


def _plain(block: _Block) -> Block:
    if block.directive == "quiz":
        return _quiz(block)
    if block.directive == "stepper":
        block.check_attributes([], ["own"])
        return Stepper(_ends_in_expression(block), "own" in block.attributes)
    if block.directive == "predict":
        return Predict(block.attributes["name"], _ends_in_expression(block))
    name = block.attributes.get("name", "")
    if name not in WIDGETS:
        raise block.error(f"there is no widget {name!r}: write name= and one of {_listed(WIDGETS)}")
    return Widget(name, {key: value for key, value in block.attributes.items() if key != "name"})


def _ends_in_expression(block: _Block) -> str:
    code = block.code()
    last = ast.parse(code).body[-1]
    if not isinstance(last, ast.Expr):
        raise block.error(
            f"the last line of a {block.directive} must be the result to differentiate, such as `loss`", last.lineno
        )
    return code


def _quiz(block: _Block) -> Quiz:
    question, *entries = re.split(r"^(?=- )", block.body, flags=re.MULTILINE)
    choices = []
    line = 1 + question.count("\n")
    for entry in entries:
        choice = _CHOICE.match(entry)
        text, explanation = _BAR.split(choice[2], maxsplit=1) if choice and _BAR.search(choice[2]) else ("", "")
        if not choice or not text.strip() or not explanation.strip():
            found = entry.splitlines()[0][:60]
            raise block.error(f"found {found!r} where a choice was expected: write `- [ ] text | why not`", line)
        choices.append(Choice(_joined(text), choice[1] != " ", _joined(explanation)))
        line += entry.count("\n")
    if len(choices) < 2 or not any(choice.right for choice in choices):
        raise block.error("a quiz needs two choices or more, and `[x]` on one that is right")
    asked = _Block(block.file, block.line, "quiz", block.attributes, question)
    return Quiz(block.attributes["name"], _after_key(asked, "question"), tuple(choices))


def _after_key(block: _Block, key: str) -> str:
    """What the block says after `prompt:` or `question:`, with which it begins."""
    text = block.body.strip()
    if not text.startswith(f"{key}:") or not text.removeprefix(f"{key}:").strip():
        raise block.error(f"this {block.directive} must begin with `{key}: ` and what it asks", 1)
    return text.removeprefix(f"{key}:").strip()


def _joined(text: str) -> str:
    return " ".join(text.split())


def _names_in(template: str) -> list[str]:
    return list(dict.fromkeys(slot[3] for slot in _SLOT.finditer(template) if slot[3]))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _there_are(names: Iterable[str]) -> str:
    listed = _listed(names)
    return f"there are {listed}" if listed else "there are none in this course"


# Putting code together.


@dataclass(frozen=True)
class Source:
    """A template with everything in its place, and where in it the learner's own lines are."""

    text: str
    first: int  # line of the learner's first line, from 1
    count: int
    indent: int


def fill(template: str, code: str, codes: Mapping[str, str]) -> Source:
    """`template` with `code` where the learner's goes, and `codes` by the names of their exercises.

    >>> fill("def f():\\n    # --- your code ---", "return 1", {})
    Source(text='def f():\\n    return 1', first=2, count=1, indent=4)
    """
    lines: list[str] = []
    first = count = indent = 0
    for line in template.split("\n"):
        slot = _SLOT.match(line)
        if not slot:
            lines.append(line)
            continue
        inserted = (code if slot[2] == "your code" else codes[slot[3]]).split("\n")
        if slot[2] == "your code":
            first, count, indent = len(lines) + 1, len(inserted), len(slot[1])
        lines += [slot[1] + text if text.strip() else text for text in inserted]
    return Source("\n".join(lines), first, count, indent)
