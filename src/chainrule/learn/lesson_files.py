"""`load_course(folder)` reads lesson files into a `Course`.

A lesson is a Markdown file: front matter (`title`, `summary`), prose, and fenced blocks; docs/teaching.md explains how
to write one. `lesson_text` splits a file into blocks, and this module turns the blocks of all files into a course. A
block may refer to an exercise or a template in another file.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from chainrule.learn.course import Block, Choice, Course, Exercise, Lesson, Predict, Prose, Quiz, Stepper, Widget, Wrong
from chainrule.learn.lesson_text import PARTS, Fence, LessonError, LessonText, listed, read_text
from chainrule.learn.templates import SLOT, YOURS, exercises_in

WIDGETS = {  # and their attributes
    "nudge": ("function", "at", "from", "to", "nudge"),
    "ucurve": ("function", "at"),
    "training": ("data", "hidden", "steps", "rate", "seed"),
    "forgotten-zero": ("data", "hidden", "steps", "rate"),
    "xor-compare": ("hidden", "steps", "rate", "seeds"),
    "vanishing": ("depth", "activation", "init"),
    "array-program": ("hidden", "points"),
    "playground": ("data", "noise", "hidden", "activation", "rate", "seed"),
}

_BAR = re.compile(r" \| (?=(?:[^`]*`[^`]*`)*[^`]*\Z)")  # not between backquotes
_CHOICE = re.compile(r"- \[([ xX])\] (.*)", re.DOTALL)


def load_course(folder: str | Path | None = None) -> Course:
    """The lessons in `folder`, sorted by file name; without a folder, chainrule's own course.

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
    """The course made of these texts, keyed by file name.

    >>> read_course({"01-hello.md": "---\\ntitle: Hello\\nsummary: A lesson.\\n---\\nWelcome."}).lessons[0].title
    'Hello'
    """
    drafts = [_draft(read_text(file, text)) for file, text in texts.items()]
    context = _Context()
    for draft in drafts:
        for item in (*draft.templates, *draft.items):
            context.add(item)
    templates = {name: context.resolve(template) for name, template in context.templates.items()}
    return Course(tuple(draft.lesson(context) for draft in drafts), templates)


def _is_lesson(name: str) -> bool:
    return name.endswith(".md") and not name.startswith(".") and name.lower() != "readme.md"


@dataclass
class _Draft:
    """A lesson whose references are not resolved yet."""

    text: LessonText
    items: list[str | Fence | _ExerciseDraft] = field(default_factory=list)
    templates: list[Fence] = field(default_factory=list)

    def lesson(self, context: _Context) -> Lesson:
        blocks = tuple(_block(item, context) for item in self.items)
        return Lesson(self.text.file.removesuffix(".md"), self.text.title, self.text.summary, blocks)


def _draft(text: LessonText) -> _Draft:
    draft = _Draft(text)
    for part in text.parts:
        if isinstance(part, str):
            draft.items.append(part)
        elif part.directive == "template" and part.name:
            part.check_attributes(["name"])
            part.code()
            draft.templates.append(part)
        elif part.directive == "exercise":
            draft.items.append(_ExerciseDraft(part))
        elif part.directive in PARTS:
            above = draft.items[-1] if draft.items else None
            if not isinstance(above, _ExerciseDraft):
                kind = part.directive
                raise part.error(f"this {kind} belongs to no exercise: put it right below one, without prose between")
            above.add(part)
        else:
            if part.directive in ("quiz", "predict"):
                part.check_attributes(["name"])
            draft.items.append(part)
    return draft


class _ExerciseDraft:
    """An exercise block, and the blocks below that belong to it."""

    def __init__(self, block: Fence) -> None:
        block.check_attributes(["name"], ["title", "group", "template"])
        self.block = block
        self.parts: dict[str, Fence] = {}
        self.wrong: list[Fence] = []
        self.hints: list[str] = []

    def add(self, block: Fence) -> None:
        if block.directive == "wrong":
            block.check_attributes(["message"], ["pattern"])
            try:
                re.compile(block.attributes.get("pattern", ""))
            except re.error as error:
                raise block.error(f"`pattern` is not a regular expression: {error}; correct it") from None
            block.code()
            self.wrong.append(block)
            return
        block.check_attributes()
        if block.directive == "hint":
            if not block.body.strip():
                raise block.error("this hint is empty: write a sentence between the fences")
            self.hints.append(block.body.strip())
            return
        if block.directive in self.parts:
            raise block.error(f"exercise {self.block.name!r} has a {block.directive} already: keep one of the two")
        block.code()
        self.parts[block.directive] = block

    def check_parts(self) -> None:
        for part in ("starter", "solution", "check"):
            if part not in self.parts:
                name = self.block.name
                raise self.block.error(f"exercise {name!r} has no {part}: add a block that begins with ```{part}")

    def exercise(self, context: _Context) -> Exercise:
        block, template = self.block, self._template(context)
        texts = {part: self.parts[part].body for part in ("starter", "solution", "check")}
        return Exercise(
            name=block.name,
            title=block.attributes.get("title", block.name),
            group=block.attributes.get("group", ""),
            prompt=block.after("prompt"),
            template=template,
            hints=tuple(self.hints),
            wrong=tuple(Wrong(**wrong.attributes, code=wrong.body, line=wrong.line) for wrong in self.wrong),
            parts={part: context.exercises[part].parts["solution"].body for part in exercises_in(template)},
            file=block.file,
            line=block.line,
            **texts,
        )

    def _template(self, context: _Context) -> str:
        name, wanted, block = self.block.name, self.block.attributes.get("template"), self.parts.get("template")
        if wanted is None and block is None:
            return YOURS
        if wanted is not None and block is not None:
            both = f"`template={wanted}` and a template block"
            raise self.block.error(f"exercise {name!r} has {both}: keep one of the two")
        if block is None:
            if wanted not in context.templates:
                raise self.block.error(f"there is no template {wanted!r}: {_there_are(context.templates)}")
            block = context.templates[wanted]
        text = context.resolve(block)
        text = re.sub(rf"^([ \t]*)# --- code of {re.escape(name)} ---[ \t]*$", rf"\1{YOURS}", text, flags=re.MULTILINE)
        count = sum(1 for slot in SLOT.finditer(text) if slot[2] == "your code")
        if count != 1:
            own = "" if wanted is None else f", or `# --- code of {name} ---`"
            places = f"the template of exercise {name!r} has {count} places for the learner's code"
            raise block.error(f"{places}: write the line `{YOURS}`{own} once")
        return text


@dataclass
class _Context:
    """The templates and exercises that lessons may refer to. Names under which progress is kept must be unique."""

    templates: dict[str, Fence] = field(default_factory=dict)
    exercises: dict[str, _ExerciseDraft] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def add(self, item: str | Fence | _ExerciseDraft) -> None:
        if isinstance(item, str):
            return
        block = item.block if isinstance(item, _ExerciseDraft) else item
        if block.directive == "template":
            if block.name in self.templates:
                raise block.error(f"there is a template {block.name!r} already: give this one another name")
            self.templates[block.name] = block
        elif block.directive in ("exercise", "quiz", "predict"):
            if block.name in self.taken:
                taken = f"the name {block.name!r} is taken"
                raise block.error(f"{taken}: progress is kept by name, so give this one another")
            self.taken.add(block.name)
        if isinstance(item, _ExerciseDraft):
            item.check_parts()
            self.exercises[block.name] = item

    def resolve(self, block: Fence, inside: tuple[str, ...] = ()) -> str:
        """The block's text, with every template that it names inserted."""

        def replaced(slot: re.Match[str]) -> str:
            line = block.body[: slot.start()].count("\n") + 1
            exercise, template = slot[3], slot[4]
            if exercise and exercise not in self.exercises:
                raise block.error(f"there is no exercise {exercise!r}: {_there_are(self.exercises)}", line)
            if not template:
                return slot[0]
            if template not in self.templates:
                raise block.error(f"there is no template {template!r}: {_there_are(self.templates)}", line)
            if template in inside:
                raise block.error(f"template {template!r} contains itself: leave this line out", line)
            text = self.resolve(self.templates[template], (*inside, template))
            return textwrap.indent(text, slot[1]).rstrip("\n")

        return SLOT.sub(replaced, block.body)


def _block(item: str | Fence | _ExerciseDraft, context: _Context) -> Block:
    if isinstance(item, str):
        return Prose(item)
    if isinstance(item, _ExerciseDraft):
        return item.exercise(context)
    if item.directive == "quiz":
        return _quiz(item)
    if item.directive == "stepper":
        item.check_attributes([], ["own"])
        return Stepper(_ends_in_expression(item), "own" in item.attributes)
    if item.directive == "predict":
        return Predict(item.name, _ends_in_expression(item))
    return _widget(item)


def _quiz(block: Fence) -> Quiz:
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
    return Quiz(block.name, block.after("question", question), tuple(choices))


def _ends_in_expression(block: Fence) -> str:
    code = block.code()
    last = ast.parse(code).body[-1]
    if not isinstance(last, ast.Expr):
        message = f"the last line of a {block.directive} must be the result to differentiate, such as `loss`"
        raise block.error(message, last.lineno)
    return code


def _widget(block: Fence) -> Widget:
    name = block.name
    if name not in WIDGETS:
        raise block.error(f"there is no widget {name!r}: write name= and one of {listed(WIDGETS)}")
    block.check_attributes(["name"], WIDGETS[name], f"the widget {name}")
    return Widget(name, {key: value for key, value in block.attributes.items() if key != "name"})


def _joined(text: str) -> str:
    return " ".join(text.split())


def _there_are(names: Iterable[str]) -> str:
    found = listed(names)
    return f"there are {found}" if found else "there are none in this course"
