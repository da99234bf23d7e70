"""`load_course(folder)` reads lesson files into a `Course`.

A lesson is a Markdown file: front matter (`title`, `summary`), prose, and fenced blocks whose first word is one of
`DIRECTIVES`; docs/teaching.md explains how to write one. A block may refer to an exercise or a template in another
file. Every mistake is a `LessonError`, which names the file, the line, what was found and what to write.
"""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from chainrule.learn import course
from chainrule.learn.course import SLOT, YOURS, Course, Exercise, Lesson
from chainrule.learn.matching import snippets

NEEDED = ("starter", "solution", "check")
PARTS = (*NEEDED, "template", "wrong", "hint")  # these belong to the exercise above them
NAMED = {"exercise": ("title", "group", "template"), "quiz": (), "predict": ()}  # and their optional attributes
SIGNS = ("has", "lacks")  # what in the code of a wrong answer its message is about
DIRECTIVES = ("exercise", *PARTS, "quiz", "stepper", "order", "predict", "widget")
KEYS = ("title", "summary")  # of the front matter
WIDGETS = {  # and their attributes
    "nudge": ("function", "at", "from", "to", "nudge"),
    "ucurve": ("function", "at"),
    "network": ("inputs", "hidden", "seed"),
    "training": ("data", "hidden", "steps", "rate", "seed"),
    "forgotten-zero": ("data", "hidden", "steps", "rate"),
    "xor-compare": ("hidden", "steps", "rate", "seeds"),
    "vanishing": ("depth", "activation", "init"),
    "array-program": ("hidden", "points"),
    "race": ("hidden", "points", "rate"),
    "gpt": (),
    "playground": ("data", "noise", "hidden", "activation", "rate", "seed"),
}

_FENCE = re.compile(r"(`{3,})\s*(.*?)\s*$")
_ATTRIBUTE = re.compile(r'\s*([A-Za-z][\w-]*)(?:=(?:"((?:[^"\\]|\\.)*)"|([^\s"]+)))?(?=\s|$)')
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\Z")
_BAR = re.compile(r" \| (?=(?:[^`]*`[^`]*`)*[^`]*\Z)")  # not between backquotes
_CHOICE = re.compile(r"- \[([ xX])\] (.*)", re.DOTALL)


class LessonError(ValueError):
    """A lesson file that cannot be used: where, what was found, and what to write."""

    def __init__(self, file: str, line: int, message: str) -> None:
        super().__init__(f"{file}, line {line}: {message}")
        self.file, self.line = file, line


def load_course(folder: str | Path | None = None) -> Course:
    """The lessons in `folder`, sorted by file name; without a folder, chainrule's own course.

    >>> load_course().exercises["add"].title
    'Addition'
    """
    lessons = files("chainrule.learn") / "lessons" if folder is None else Path(folder)
    if not lessons.is_dir():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}: give one that holds lessons, such as 01-sums.md")
    entries = sorted(lessons.iterdir(), key=lambda entry: entry.name)
    found = [e for e in entries if e.name.endswith(".md") and e.name[0] != "." and e.name.lower() != "readme.md"]
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
    """The course made of these texts, keyed by file name."""
    context, drafts = _Context(), []
    for file, text in texts.items():
        lines = text.splitlines()
        front, first = _front_matter(file, lines)
        drafts.append((file.removesuffix(".md"), front, context.items(_parts(file, lines, first))))
    templates = {name: context.resolve(template) for name, template in context.templates.items()}
    lessons = [Lesson(id_, **front, blocks=tuple(_block(i, context) for i in items)) for id_, front, items in drafts]
    return Course(tuple(lessons), templates)


# A file as text: front matter, prose, and fenced blocks.


@dataclass(frozen=True)
class Fence:
    """A fenced block of a lesson file."""

    file: str
    line: int  # of the fence
    directive: str
    attributes: dict[str, str]
    body: str

    @property
    def name(self) -> str:
        return self.attributes.get("name", "")

    def error(self, message: str, line: int = 0) -> LessonError:
        """`line` counts from the first line of the body."""
        return LessonError(self.file, self.line + line, message)

    def code(self) -> str:
        """The body, which must be Python."""
        if not self.body.strip():
            raise self.error(f"this {self.directive} block is empty: write Python code between the fences")
        try:
            ast.parse(SLOT.sub(r"\1pass", self.body))
        except SyntaxError as error:
            message = f"this {self.directive} block is not Python: {error.msg}; correct the code"
            raise self.error(message, error.lineno or 0) from None
        return self.body

    def after(self, key: str, text: str) -> str:
        """What follows `prompt:` or `question:`, with which the text must begin."""
        start, colon, rest = text.strip().partition(":")
        if start != key or not colon or not rest.strip():
            raise self.error(f"this {self.directive} must begin with `{key}: ` and what it asks", 1)
        return rest.strip()

    def check_attributes(self, required: Iterable[str] = (), optional: Iterable[str] = (), what: str = "") -> None:
        """That all `required` attributes are there, and no others; `what` is how errors call the block."""
        what = what or self.directive
        known = (*required, *optional)
        for key in required:
            if not self.attributes.get(key):
                example = f"```{self.directive} " + " ".join(f'{name}="…"' for name in required)
                raise self.error(f"this {what} block has no `{key}`: begin it with {example}")
        for key in self.attributes:
            if key not in known:
                meant = f"it takes {_listed(known)}" if known else "it takes no attributes"
                raise self.error(f"`{key}` is not an attribute of {what}: {meant}")
        if self.name and self.directive != "template" and not _NAME.match(self.name):
            wanted = "use lower-case letters, digits and hyphens, such as name=chain-2"
            raise self.error(f"`name` is {self.name!r}: {wanted}")


def _front_matter(file: str, lines: list[str]) -> tuple[dict[str, str], int]:
    """Title and summary, and how many lines they occupy."""
    example = "---⏎title: …⏎summary: …⏎---"
    if not lines or lines[0].strip() != "---":
        found = repr(lines[0][:40]) if lines else "an empty file"
        raise LessonError(file, 1, f"a lesson begins with front matter, found {found}: write {example}")
    front: dict[str, str] = {}
    for number, line in enumerate(lines[1:], 2):
        if line.strip() == "---":
            for key in KEYS:
                if not front.get(key):
                    raise LessonError(file, number, f"the front matter has no {key}: add `{key}: …` above this")
            return front, number
        key, colon, value = (part.strip() for part in line.partition(":"))
        if line.strip() and (not colon or key not in KEYS):
            raise LessonError(file, number, f"found {line[:40]!r} in the front matter: write `title:` or `summary:`")
        if key:
            front[key] = value
    raise LessonError(file, 1, "the front matter does not end: write --- on a line of its own below it")


def _parts(file: str, lines: list[str], number: int) -> Iterator[str | Fence]:
    """Prose, and the blocks that have a directive, in order."""
    prose: list[str] = []
    while number < len(lines):
        prose.append(lines[number])
        number += 1
        if not (fence := _FENCE.match(prose[-1])):
            continue
        closing = re.compile(rf"\s*{fence[1]}`*\s*")
        end = next((place for place in range(number, len(lines)) if closing.fullmatch(lines[place])), None)
        if end is None:
            raise LessonError(file, number, f"the block that begins here does not end: close it with {fence[1]}")
        word = fence[2].split(maxsplit=1)[0] if fence[2] else ""
        if word in DIRECTIVES:
            attributes = _attributes(file, number, fence[2].removeprefix(word))
            yield from _text(prose[:-1])
            yield Fence(file, number, word, attributes, "\n".join(lines[number:end]))
            prose = []
        else:
            _check_language(file, number, word, fence[2])
            prose += lines[number : end + 1]
        number = end + 1
    yield from _text(prose)


def _text(lines: list[str]) -> list[str]:
    return ["\n".join(lines).strip("\n")] if "".join(lines).strip() else []


def _check_language(file: str, number: int, word: str, info: str) -> None:
    """A code block in prose names at most a language; anything else is a misspelled directive."""
    close = difflib.get_close_matches(word, DIRECTIVES, 1, 0.75)
    if close or "=" in info:
        meant = f"did you mean {close[0]!r}?" if close else f"write one of {_listed(DIRECTIVES)}"
        raise LessonError(file, number, f"{word!r} is not a directive: {meant}")


def _attributes(file: str, number: int, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    place = 0
    while text[place:].strip():
        match = _ATTRIBUTE.match(text, place)
        if not match:
            rest = text[place:].strip()[:40]
            raise LessonError(file, number, f'found {rest!r} where name=value or name="some words" was expected')
        key, quoted, bare = match[1], match[2], match[3]
        if key in found:
            raise LessonError(file, number, f"`{key}` is given twice: keep one of the two")
        found[key] = quoted.replace('\\"', '"') if quoted is not None else bare if bare is not None else "true"
        place = match.end()
    return found


# What the blocks mean.


@dataclass
class _ExerciseDraft:
    """An exercise block, and the blocks below that belong to it."""

    block: Fence
    parts: dict[str, Fence] = field(default_factory=dict)
    wrong: list[course.Wrong] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    def add(self, block: Fence) -> None:
        block.check_attributes(*((["message"], SIGNS) if block.directive == "wrong" else ()))
        if block.directive == "hint":
            if not block.body.strip():
                raise block.error("this hint is empty: write a sentence between the fences")
            self.hints.append(block.body.strip())
        elif block.directive == "wrong":
            _check_signs(block)
            self.wrong.append(course.Wrong(**block.attributes, code=block.code(), line=block.line))
        elif block.directive in self.parts:
            raise block.error(f"exercise {self.block.name!r} has a {block.directive} already: keep one of the two")
        else:
            block.code()
            self.parts[block.directive] = block

    def checked(self) -> _ExerciseDraft:
        for part in NEEDED:
            if part not in self.parts:
                name = self.block.name
                raise self.block.error(f"exercise {name!r} has no {part}: add a block that begins with ```{part}")
        return self

    def exercise(self, context: _Context) -> Exercise:
        block, template = self.block, self._template(context)
        names = dict.fromkeys(slot[3] for slot in SLOT.finditer(template) if slot[3])
        return Exercise(
            name=block.name,
            title=block.attributes.get("title", block.name),
            group=block.attributes.get("group", ""),
            prompt=block.after("prompt", block.body),
            template=template,
            hints=tuple(self.hints),
            wrong=tuple(self.wrong),
            parts={name: context.exercises[name].parts["solution"].body for name in names},
            file=block.file,
            line=block.line,
            **{part: self.parts[part].body for part in NEEDED},
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

    def items(self, parts: Iterable[str | Fence]) -> list[str | Fence | _ExerciseDraft]:
        """What the blocks of a lesson are made from; takes note of what others may refer to."""
        items: list[str | Fence | _ExerciseDraft] = []
        for part in parts:
            if isinstance(part, str):
                items.append(part)
            elif part.directive == "template" and part.name:
                part.check_attributes(["name"])
                part.code()
                if part.name in self.templates:
                    raise part.error(f"there is a template {part.name!r} already: give this one another name")
                self.templates[part.name] = part
            elif part.directive in PARTS:
                if not items or not isinstance(above := items[-1], _ExerciseDraft):
                    lost = f"this {part.directive} belongs to no exercise"
                    raise part.error(f"{lost}: put it right below one, without prose between")
                above.add(part)
            else:
                self._take_name(part)
                items.append(_ExerciseDraft(part) if part.directive == "exercise" else part)
        drafts = [item.checked() for item in items if isinstance(item, _ExerciseDraft)]
        self.exercises |= {draft.block.name: draft for draft in drafts}
        return items

    def _take_name(self, block: Fence) -> None:
        if block.directive in NAMED:
            block.check_attributes(["name"], NAMED[block.directive])
            if block.name in self.taken:
                taken = f"the name {block.name!r} is taken"
                raise block.error(f"{taken}: progress is kept by name, so give this one another")
            self.taken.add(block.name)

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


def _block(item: str | Fence | _ExerciseDraft, context: _Context) -> course.Block:
    if isinstance(item, str):
        return course.Prose(item)
    if isinstance(item, _ExerciseDraft):
        return item.exercise(context)
    if item.directive == "quiz":
        return _quiz(item)
    if item.directive in ("stepper", "order"):
        item.check_attributes([], ["own"])
        block = course.Stepper if item.directive == "stepper" else course.Order
        return block(_ends_in_expression(item), "own" in item.attributes)
    if item.directive == "predict":
        return course.Predict(item.name, _ends_in_expression(item))
    return _widget(item)


def _quiz(block: Fence) -> course.Quiz:
    question, *entries = re.split(r"^(?=- )", block.body, flags=re.MULTILINE)
    choices = []
    line = 1 + question.count("\n")
    for entry in entries:
        choice = _CHOICE.match(entry)
        text, explanation = _BAR.split(choice[2], maxsplit=1) if choice and _BAR.search(choice[2]) else ("", "")
        if not choice or not text.strip() or not explanation.strip():
            found = entry.splitlines()[0][:60]
            raise block.error(f"found {found!r} where a choice was expected: write `- [ ] text | why not`", line)
        choices.append(course.Choice(_joined(text), choice[1] != " ", _joined(explanation)))
        line += entry.count("\n")
    if len(choices) < 2 or not any(choice.right for choice in choices):
        raise block.error("a quiz needs two choices or more, and `[x]` on one that is right")
    return course.Quiz(block.name, block.after("question", question), tuple(choices))


def _ends_in_expression(block: Fence) -> str:
    code = block.code()
    last = ast.parse(code).body[-1]
    if not isinstance(last, ast.Expr):
        message = f"the last line of this {block.directive} must be the result to differentiate, such as `loss`"
        raise block.error(message, last.lineno)
    return code


def _widget(block: Fence) -> course.Widget:
    name = block.name
    if name not in WIDGETS:
        raise block.error(f"there is no widget {name!r}: write name= and one of {_listed(WIDGETS)}")
    block.check_attributes(["name"], WIDGETS[name], f"the widget {name}")
    return course.Widget(name, {key: value for key, value in block.attributes.items() if key != "name"})


def _check_signs(block: Fence) -> None:
    if not any(block.attributes.get(sign) for sign in SIGNS):
        example = 'such as has="self.data += _", where `_` is anything, or lacks="return"'
        raise block.error(f"this wrong answer does not say how its mistake is seen in the code: add it, {example}")
    for sign in SIGNS:
        try:
            snippets(block.attributes.get(sign, ""))
        except SyntaxError as error:
            raise block.error(f"`{sign}` is not Python: {error.msg}; write a piece of code") from None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _joined(text: str) -> str:
    return " ".join(text.split())


def _there_are(names: Iterable[str]) -> str:
    found = _listed(names)
    return f"there are {found}" if found else "there are none in this course"
