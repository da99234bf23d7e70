"""Columns of a table, and how their cells become numbers: numbers, yes or no, or a choice of texts.

A `Column` is found in the cells that a model learns from, and then encodes those of new rows in the same way: texts of
a file, or what arrays, frames and dicts hold. A choice is "one-hot": an input for each text, 1 for the one that is
there and 0 for the others.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from chainrule.core.arguments import listed

MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-", "<na>", "nat"}  # spellings of a missing value
FLAGS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
MOST_CHOICES = 20  # texts of a column that become inputs
MOST_LETTERS = 100  # of such a text
FEW_TEXTS = 4  # that may all be different
FEWEST_ROWS = 10  # of which a column that counts them is noticed
SIGNS = re.compile(r"^([-+]?)\s*[$€£¥]\s*|\s*[%$€£¥]$|\s+[A-Za-zµ°/²³]{1,5}$")  # of a currency, a share or a unit
GROUPS = re.compile(r"(?<=\d)[ ,'_\u00a0\u202f](?=\d)")  # of digits
THOUSANDS = re.compile(r"\s*[-+]?\d{1,3}(,\d{3})+(\.\d*)?\s*")
MONTH = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
DATE = re.compile(
    r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}:\d{2}(:\d{2})?"
    rf"|\d{{1,2}}\.?[ -]{MONTH}|{MONTH}\.? \d{{1,2}})\b",
    re.IGNORECASE,
)
ID = re.compile(r"(^|[^A-Za-z])(id|ID|Id)$|[a-z]I[dD]$")
LEAVE_OUT = "leave the column out (`drop`)"
AS_NUMBERS = f"write it as numbers, such as days since a first one, or {LEAVE_OUT}"


class CellError(ValueError):
    """A cell that is not what its column holds: its index, what was expected, and what to do."""

    def __init__(self, index: int, expected: str, hint: str = "") -> None:
        super().__init__(expected)
        self.index, self.expected, self.hint = index, expected, hint


@dataclass(frozen=True)
class Column:
    """A column by name, its kind (`number`, `flag` or `choice`), and what stands in for a missing cell, if anything.

    >>> Column("colour", "choice", ("green", "red")).encoded(["red", "green"])
    [[0.0, 1.0], [1.0, 0.0]]
    """

    name: str
    kind: str = "number"
    choices: tuple[str, ...] = ()
    fill: float | str | None = None

    @property
    def inputs(self) -> list[str]:
        """The names of the numbers that a cell becomes.

        >>> Column("colour", "choice", ("green", "red")).inputs
        ['colour = green', 'colour = red']
        """
        return [f"{self.name} = {choice}" for choice in self.choices] if self.kind == "choice" else [self.name]

    def encoded(self, cells: Sequence[Any]) -> list[list[float]]:
        """For each input a list with its numbers, one for each cell; a CellError names the first that does not fit."""
        if self.kind == "number":
            return [self._numbers(cells)]
        if self.kind == "flag":
            return [[self._flag(index, cell) for index, cell in enumerate(cells)]]
        found = [self._choice(index, cell) for index, cell in enumerate(cells)]
        return [[float(text == choice) for text in found] for choice in self.choices]

    def is_sound(self) -> bool:
        """Whether this can be a column that was found; a file may hold anything."""
        types = isinstance(self.name, str) and all(isinstance(choice, str) for choice in self.choices)
        many = len(self.choices) == len(set(self.choices)) > 0 if self.kind == "choice" else not self.choices
        kind = str if self.kind == "choice" else float
        fill = self.fill is None or (self.fill in self.choices if kind is str else _is_finite(self.fill))
        return types and many and fill and self.kind in ("number", "flag", "choice")

    def _numbers(self, cells: Sequence[Any]) -> list[float]:
        numbers = all_numbers(cells)
        return [self._number(index, cell) for index, cell in enumerate(cells)] if numbers is None else numbers

    def _number(self, index: int, cell: Any) -> float:
        if is_missing(cell):
            return float(self._filled(index, "a number"))
        number = as_number(cell)
        if number is None:
            raise CellError(index, "a number", hint(str(cell)))
        if not math.isfinite(number):
            raise CellError(index, "a finite number")
        return number

    def _flag(self, index: int, cell: Any) -> float:
        if is_missing(cell):
            return float(self._filled(index, "true or false"))
        found = FLAGS.get(_text(cell).lower(), as_number(cell))
        if found not in (0.0, 1.0):
            raise CellError(index, "true or false")
        return found

    def _choice(self, index: int, cell: Any) -> str:
        text = _text(cell)
        if is_missing(cell):
            return str(self._filled(index, f"one of {listed(self.choices)}"))
        if text not in self.choices:
            raise CellError(index, f"one of {listed(self.choices)}", "the model has not learned what this one means")
        return text

    def _filled(self, index: int, expected: str) -> Any:
        if self.fill is None:
            raise CellError(index, expected)
        return self.fill


def find_column(name: str, cells: Sequence[str], fill: bool = False) -> Column:
    """The column that has these cells of text, some of which may be missing if they are to be filled.

    Missing numbers become the mean, other missing cells the most frequent one. A CellError names a cell that does not
    fit the others, or that makes the column one which nothing can be learned from.

    >>> find_column("size", ["1", "2.5", "4"]), find_column("open", ["yes", "no"]).kind
    (Column(name='size', kind='number', choices=(), fill=None), 'flag')
    >>> find_column("colour", ["red", "", "green", "red"], fill=True)
    Column(name='colour', kind='choice', choices=('green', 'red'), fill='red')
    """
    numbers = all_numbers(cells)
    if numbers is not None:  # as most columns are
        return Column(name, fill=mean(numbers) if fill else None)
    filled = [cell.strip() for cell in cells if not is_missing(cell)]
    if not filled:
        raise CellError(0, "a value", f"the column has none: {LEAVE_OUT}")
    column = Column(name, *_kind(name, cells, filled))
    if not fill:
        return column
    if column.kind == "number":
        return replace(column, fill=mean(column.encoded(filled)[0]))
    if column.kind == "flag":
        return replace(column, fill=float(fmean(column.encoded(filled)[0]) > 0.5))
    return replace(column, fill=Counter(filled).most_common(1)[0][0])


def mean(numbers: Sequence[float]) -> float:
    """The mean, however large they are.

    >>> mean([1.5e308, 1.7e308])
    1.6e+308
    """
    try:
        return fmean(numbers)
    except OverflowError:
        return math.fsum(number / len(numbers) for number in numbers)


def _kind(name: str, cells: Sequence[str], filled: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    if 2 * sum(map(spells_number, filled)) >= len(filled):
        return "number", ()  # whose other cells are mistakes
    kinds = {cell.lower() for cell in filled}
    if kinds <= {"true", "false"} or kinds <= {"yes", "no"}:
        return "flag", ()
    first = next(index for index, cell in enumerate(cells) if not is_missing(cell) and as_number(cell) is None)
    if looks_like_a_date(cells[first]):
        raise CellError(first, "a number or a text", f"it looks like a date or a time: {AS_NUMBERS}")
    choices = sorted(set(filled))
    if max(map(len, choices)) > MOST_LETTERS:
        raise CellError(first, "a number or a short text", LEAVE_OUT)
    if len(choices) == len(filled) > FEW_TEXTS:
        raise CellError(first, "a number", f"every row has another text here: {LEAVE_OUT}")
    if len(choices) > MOST_CHOICES:
        found = f"the column has {len(choices)} different texts, of which {MOST_CHOICES} at most become inputs"
        raise CellError(first, "a number", f"{found}: group them, or {LEAVE_OUT}")
    return "choice", tuple(choices)


def counts_rows(numbers: Sequence[float]) -> bool:
    """Whether a column numbers the rows, as an index or an id does.

    >>> counts_rows([float(k) for k in range(1, 20)]), counts_rows([1.5] * 20)
    (True, False)
    """
    return len(numbers) >= FEWEST_ROWS and all(y - x == 1.0 for x, y in pairwise(sorted(numbers)))


def is_id(name: str, numbers: Sequence[float]) -> bool:
    """Whether a column names the rows by its own name and by numbers, whole and all different.

    >>> is_id("customer_id", [4711.0, 12.0]), is_id("width", [4711.0, 12.0]), is_id("Id", [7.0, 7.0])
    (True, False, False)
    """
    named = ID.search(name) is not None
    return named and len(set(numbers)) == len(numbers) and all(number.is_integer() for number in numbers)


def all_numbers(cells: Sequence[Any]) -> list[float] | None:
    """The numbers that cells are or spell, if all of them do and are finite.

    >>> all_numbers(["1", 2, 2.5]), all_numbers(["1", "-"])
    ([1.0, 2.0, 2.5], None)
    """
    try:
        numbers = list(map(float, cells))
    except (TypeError, ValueError, OverflowError):
        return None
    texts = cells if set(map(type, cells)) == {str} else map(str, cells)
    grouped = "_" in "".join(texts)  # as Python groups digits, and no file does
    return numbers if all(map(math.isfinite, numbers)) and not grouped else None


def spells_number(text: str) -> bool:
    """Whether a text is a number as people write it: with groups of digits, a currency, a unit.

    >>> [spells_number(text) for text in ("1,234.5", "$3.50", "5 %", "3 EUR", "A1", "1st")]
    [True, True, True, True, False, False]
    """
    return as_number(GROUPS.sub("", SIGNS.sub(r"\1", text.strip()))) is not None


def looks_like_a_date(text: str) -> bool:
    """Whether a text begins like a date or a time.

    >>> looks_like_a_date("2024-05-06"), looks_like_a_date("3 Jan 2020"), looks_like_a_date("3 apples")
    (True, True, False)
    """
    return DATE.match(text) is not None


def as_number(cell: Any) -> float | None:
    """The number that a cell is or spells, or None.

    >>> as_number(" 1e3 "), as_number(2), as_number("one")
    (1000.0, 2.0, None)
    """
    try:
        return None if isinstance(cell, str) and "_" in cell else float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def is_missing(cell: Any) -> bool:
    """Whether a cell is empty, None, NaN, or says in words that there is nothing.

    >>> is_missing("n/a"), is_missing(None), is_missing(float("nan")), is_missing(0)
    (True, True, True, False)
    """
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return cell is None or str(cell) in ("nan", "<NA>", "NaT")


def _text(cell: Any) -> str:
    return str(cell).strip()


def _is_finite(number: Any) -> bool:
    return type(number) in (int, float) and math.isfinite(number)


def hint(text: str) -> str:
    """What to do about a cell that is no number."""
    whole, decimal = text.strip().replace(",", ""), text.strip().replace(",", ".")
    if THOUSANDS.fullmatch(text):
        or_decimal = f", or if it is decimal {decimal}" if as_number(decimal) is not None else ""
        return f"write {whole} without the comma for thousands{or_decimal}"
    if as_number(decimal) is not None:
        return "write a decimal point, not a comma"
    if looks_like_a_date(text):
        return f"it looks like a date or a time: {AS_NUMBERS}"
    return "write the bare number, without signs, blanks and units" if spells_number(text) else ""
