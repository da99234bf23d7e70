"""Checks of arguments, whose errors name the argument and say what to do; and other people's texts in our sentences.

Whatever a message says about the content of a file, a name in it or an option is escaped here, so that it does nothing
to a terminal, and cut short.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Collection
from itertools import islice
from random import Random
from typing import Any

from chainrule.ops import as_float

MOST = 1 << 53  # a float counts no further
MOST_CHARACTERS = 40  # of a name or a cell
MOST_OF_A_MESSAGE = 300  # of what another library says
MOST_NAMES = 8
HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")  # Python's texts can have such, and JSON's; no file can


def whole_number(number: Any, argument: str, least: int = 1) -> int:
    """`number` as an int of at least `least`, and not beyond what a float can count."""
    if not hasattr(number, "__index__") or number < least:
        raise ValueError(f"`{argument}` must be an int of at least {least}, got {quoted(number)}")
    if number > MOST:
        raise ValueError(f"`{argument}` must be at most {MOST:,}, got {quoted(number)}")
    return operator.index(number)


def setting(number: Any, argument: str, typical: str, below: float = math.inf) -> float:
    """`number` as a float in [0, below)."""
    value = as_float(number, argument)
    if not 0.0 <= value < below:
        expected = "finite" if below == math.inf else f"below {below:g}"
        raise ValueError(f"`{argument}` must be at least 0 and {expected}, got {value!r}: choose one such as {typical}")
    return value


def generator(rng: Any) -> Random | None:
    """`rng` as a generator: itself, or one made from an integer seed; None stays None."""
    if rng is None or isinstance(rng, Random):
        return rng
    if not hasattr(rng, "__index__"):
        raise TypeError(f"`rng` must be a random.Random or an integer seed, got {type(rng).__name__} {rng!r:.60}")
    return Random(operator.index(rng))


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


def counted(count: int, thing: str) -> str:
    """How many things there are, with the noun in the number that goes with it.

    >>> counted(1, "epoch"), counted(1200, "pass"), counted(0, "entry")
    ('1 epoch', '1,200 passes', '0 entries')
    """
    if count != 1:
        thing = thing[:-1] + "ies" if thing.endswith("ry") else thing + ("es" if thing.endswith("s") else "s")
    return f"{count:,} {thing}"


def listed(names: Collection[str], most: int = MOST_NAMES) -> str:
    """Names with commas between them, the first few only.

    >>> listed(["a", "b", "c"], most=2), listed([])
    ('a, b and 1 more', 'nothing')
    """
    first = ", ".join(shown(name) for name in islice(names, most))
    return f"{first} and {len(names) - most:,} more" if len(names) > most else first or "nothing"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
