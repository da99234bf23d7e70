"""A lesson file as text: front matter, prose, and fenced blocks whose first word is one of `DIRECTIVES`.

`read_text` splits it into these; `lesson_files` knows what the blocks mean. Every mistake in a file is a `LessonError`,
which names the file, the line, what was found and what to write.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from chainrule.learn.templates import SLOT

PARTS = ("starter", "template", "solution", "check", "wrong", "hint")  # these belong to the exercise above them
DIRECTIVES = ("exercise", *PARTS, "quiz", "stepper", "predict", "widget")
KEYS = ("title", "summary")  # of the front matter

_FENCE = re.compile(r"(`{3,})\s*(.*?)\s*$")
_ATTRIBUTE = re.compile(r'\s*([A-Za-z][\w-]*)(?:=(?:"((?:[^"\\]|\\.)*)"|([^\s"]+)))?(?=\s|$)')
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\Z")


class LessonError(ValueError):
    """A lesson file that cannot be used: where, what was found, and what to write."""

    def __init__(self, file: str, line: int, message: str) -> None:
        super().__init__(f"{file}, line {line}: {message}")
        self.file, self.line = file, line


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

    def after(self, key: str, text: str | None = None) -> str:
        """What follows `prompt:` or `question:`, with which the body, or a `text` from it, must begin."""
        text = (self.body if text is None else text).strip()
        if not text.startswith(f"{key}:") or not text.removeprefix(f"{key}:").strip():
            raise self.error(f"this {self.directive} must begin with `{key}: ` and what it asks", 1)
        return text.removeprefix(f"{key}:").strip()

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
                meant = f"it takes {listed(known)}" if known else "it takes no attributes"
                raise self.error(f"`{key}` is not an attribute of {what}: {meant}")
        if self.name and self.directive != "template" and not _NAME.match(self.name):
            raise self.error(
                f"`name` is {self.name!r}: use lower-case letters, digits and hyphens, such as name=chain-2"
            )


@dataclass(frozen=True)
class LessonText:
    """The contents of a lesson file; its parts are prose and fenced blocks, in order."""

    file: str
    title: str
    summary: str
    parts: tuple[str | Fence, ...]


def read_text(file: str, text: str) -> LessonText:
    """The contents of the lesson file called `file`.

    >>> read_text("01-hello.md", "---\\ntitle: Hello\\nsummary: A lesson.\\n---\\nWelcome.").parts
    ('Welcome.',)
    """
    lines = text.splitlines()
    front, first = _front_matter(file, lines)
    parts: list[str | Fence] = []
    for is_fence, items in groupby(_lines_and_fences(file, lines, first), lambda item: isinstance(item, Fence)):
        run = list(items)
        if is_fence:
            parts += run
        elif any(line.strip() for line in run if isinstance(line, str)):
            parts.append("\n".join(map(str, run)).strip("\n"))
    return LessonText(file, front["title"], front["summary"], tuple(parts))


def listed(names: Iterable[str]) -> str:
    """Names in backquotes, for a sentence.

    >>> listed(["a", "b"])
    '`a`, `b`'
    """
    return ", ".join(f"`{name}`" for name in names)


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


def _lines_and_fences(file: str, lines: list[str], number: int) -> Iterator[str | Fence]:
    """Lines of prose, and the blocks that have a directive."""
    while number < len(lines):
        line = lines[number]
        number += 1
        fence = _FENCE.match(line)
        if not fence:
            yield line
            continue
        end = _end_of_fence(file, lines, number, fence[1])
        word = fence[2].split(maxsplit=1)[0] if fence[2] else ""
        if word in DIRECTIVES:
            attributes = _attributes(file, number, fence[2].removeprefix(word))
            yield Fence(file, number, word, attributes, "\n".join(lines[number:end]))
        else:
            _check_language(file, number, word, fence[2])
            yield from lines[number - 1 : end + 1]
        number = end + 1


def _end_of_fence(file: str, lines: list[str], number: int, fence: str) -> int:
    for place in range(number, len(lines)):
        closing = lines[place].strip()
        if closing and set(closing) == {"`"} and len(closing) >= len(fence):
            return place
    raise LessonError(file, number, f"the block that begins here does not end: close it with {fence}")


def _check_language(file: str, number: int, word: str, info: str) -> None:
    """A code block in prose names at most a language; anything else is a misspelled directive."""
    close = difflib.get_close_matches(word, DIRECTIVES, 1, 0.75)
    if close or "=" in info:
        meant = f"did you mean {close[0]!r}?" if close else f"write one of {listed(DIRECTIVES)}"
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
