"""The code around a learner's: templates, with lines in them that stand for something else.

    # --- your code ---         what the learner writes for this exercise
    # --- code of NAME ---      what they wrote for another one (its solution, as long as they have not)
    # --- template NAME ---     a template that was written once, under this name

Templates are resolved when lessons are read: `Exercise.template` has no third kind of line left. `fill` puts code in
the places of the first two.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

YOURS = "# --- your code ---"
SLOT = re.compile(r"^([ \t]*)# --- (your code|code of ([\w-]+)|template ([\w-]+)) ---[ \t]*$", re.MULTILINE)


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
    """With Unix's ends of lines, and without an indentation that all lines share: code is pasted as it was found.

    >>> clean("    x = 1\\r\\n    y = 2")
    'x = 1\\ny = 2'
    """
    return textwrap.dedent(code.replace("\r\n", "\n").replace("\r", "\n"))


def exercises_in(template: str) -> list[str]:
    """The names of the exercises whose code goes into a template."""
    return list(dict.fromkeys(slot[3] for slot in SLOT.finditer(template) if slot[3]))
