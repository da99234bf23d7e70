"""The targets of a table: numbers, or labels of classes. Numbers that name classes stay numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from chainrule.core.arguments import counted
from chainrule.data.columns import as_number, hint, is_missing, looks_like_a_date, spells_number
from chainrule.data.tables import Table

CODE = re.compile(r"[-+]?0\d")  # the beginning of a code such as 007, which is another one than 7
WHOLE = re.compile(r"[-+]?\d+")


def find_targets(table: Table, place: int, labels: bool | str) -> tuple[list[Any], list[Any]]:
    """The targets in a column, and the classes if they are indices into these; `labels` is that of `read_csv`."""
    if labels is not True and not (labels == "auto" and _names_classes(table, place)):
        return [y for (y,) in table.numbers([place])], []
    texts = [text.strip() for text in table.cells(place)]
    if gaps := [k for k, text in enumerate(texts) if is_missing(text)]:
        table.complain(gaps[0], place, "a class", 'say `missing="drop"`, or if it names a class, call it otherwise')
    found = as_labels(texts)
    classes = sorted(set(found))
    places = {label: place for place, label in enumerate(classes)}
    return [places[label] for label in found], classes


def as_labels(texts: Sequence[str]) -> list[Any]:
    """Labels that a column spells: numbers if all of them are, and none is a code with zeros before it.

    >>> as_labels(["10", "9", "9.0"]), as_labels(["007", "7"]), as_labels(["7", "old"])
    ([10, 9, 9], ['007', '7'], ['7', 'old'])
    """
    numbers = {text: as_number(text) for text in set(texts)}
    if not all(number is not None and math.isfinite(number) for number in numbers.values()):
        return list(texts)
    if any(map(CODE.match, numbers)):
        return list(texts)
    labels = {text: _label(text, number) for text, number in numbers.items()}
    return [labels[text] for text in texts]


def _label(text: str, number: Any) -> int | float:
    if WHOLE.fullmatch(text):
        return int(text)  # all its digits: a float has sixteen
    return int(number) if number.is_integer() else float(number)


def _names_classes(table: Table, place: int) -> bool:
    """Whether a column holds texts; it is an error if it holds some of both."""
    cells = table.cells(place)
    texts = [k for k, text in enumerate(cells) if as_number(text) is None and not is_missing(text)]
    if not texts:
        return False
    first, remedy = cells[texts[0]], "if they name classes, say `labels=True`"
    measured = sum(spells_number(cells[k]) or looks_like_a_date(cells[k]) for k in texts)
    if 2 * measured > len(texts):
        table.complain(texts[0], place, "a number", f"{hint(first)}; {remedy}")
    numbers = sum(as_number(text) is not None and not is_missing(text) for text in cells)
    if numbers:
        share = f"{numbers} of the {counted(len(table), 'entry')} are numbers"
        table.complain(texts[0], place, "a number", f"{share}; {remedy}")
    return True
