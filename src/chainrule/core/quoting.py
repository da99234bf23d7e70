"""Other people's texts in our sentences: escaped, so that they do nothing to a terminal, and cut short.

Whatever a message says about the content of a file, a name in it or an option passes through here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import islice
from typing import Any

MOST_CHARACTERS = 40  # of a name or a cell
MOST_OF_A_MESSAGE = 300  # of what another library says
MOST_NAMES = 8
HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")  # Python's texts can have such, and JSON's; no file can


def shown(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""The text on one line; what cannot be printed as Python spells it, what is too long cut off.

    >>> print(shown("a\x1b[2J\n"), shown("x" * 50, 10))
    a\x1b[2J\n xxxxxxxxx…
    """
    return _cut(escaped(text[: most + 1]), most)


def escaped(text: str, keep: str = "") -> str:
    r"""The text with what cannot be printed as Python spells it, apart from the characters to `keep`.

    >>> escaped("a\nb\x9b", keep="\n")
    'a\nb\\x9b'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def quoted(thing: Any, most: int = MOST_CHARACTERS) -> str:
    """What Python writes for the text, or for any other thing, cut short.

    >>> quoted("it's"), quoted([1, 2]), quoted("x" * 50, 10)
    ('"it\\'s"', '[1, 2]', "'xxxxxxxxx…'")
    """
    return repr(_cut(thing, most)) if isinstance(thing, str) else shown(repr(thing), most)


def listed(names: Collection[str], most: int = MOST_NAMES) -> str:
    """Names with commas between them, the first few only.

    >>> listed(["a", "b", "c"], most=2), listed([])
    ('a, b and 1 more', 'nothing')
    """
    first = ", ".join(shown(name) for name in islice(names, most))
    return f"{first} and {len(names) - most:,} more" if len(names) > most else first or "nothing"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
