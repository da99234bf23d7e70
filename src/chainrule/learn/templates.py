"""Templates: the code around a learner's, with placeholder lines.

    # --- your code ---         what the learner writes for this exercise
    # --- code of NAME ---      what they wrote for another exercise (its solution until they have)
    # --- template NAME ---     a template defined elsewhere under this name

Reading the lessons replaces the third kind, so `Exercise.template` has only the first two. `fill` replaces those.
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


def exercises_in(template: str) -> list[str]:
    """The names of the exercises whose code a template contains."""
    return list(dict.fromkeys(slot[3] for slot in SLOT.finditer(template) if slot[3]))
