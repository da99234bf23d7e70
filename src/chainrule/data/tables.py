"""CSV files, read strictly: a table of text with a name for each column, and the numbers in it.

Every error names the file, the row (the first is 1, as in a spreadsheet, even if it is the header), the column, what
was found and what was expected. A table is read whole or not at all; a file is read row by row, so that one which is no
table is refused where it stops being one, whatever its size.
"""

from __future__ import annotations

import csv
import difflib
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NoReturn, TextIO

from chainrule.core.arguments import listed, quoted

MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-"}  # spellings of a missing value
DELIMITERS = ",;\t"
MOST_CHARACTERS = 1 << 24  # of a row: a million columns, fifteen characters each
MOST_BLANK = 1 << 20  # blank rows more than others: as many as a spreadsheet has
NOT_UTF8 = re.compile("[\udc80-\udcff]")  # what Python's `surrogateescape` makes of bytes that are not text


class Table:
    """The cells of a file as text: the columns' `names`, and `rows`, each with its number in the file.

    >>> table = Table("people.csv", ["age", "name"], [(2, ["7", "Ann"]), (3, ["8", "Bob"])])
    >>> table.numbers(["age"])
    [[7.0], [8.0]]
    """

    def __init__(self, path: str, names: list[str], rows: list[tuple[int, list[str]]], header: bool = True) -> None:
        self.path, self.names, self.rows = path, names, rows
        self.header = header  # whether the names are those of the file, rather than x0, x1, …
        self._places = {name: place for place, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, column: str | int) -> int:
        """The index of a column, given its name or an index that may count from the end.

        >>> Table("people.csv", ["age", "name"], []).place(-1)
        1
        """
        if isinstance(column, int):
            if not -len(self.names) <= column < len(self.names):
                there = f"{self.path!r} has {len(self.names)} columns"
                raise ValueError(f"{there}, and none of the index {quoted(column)}: count from 0")
            return column % len(self.names)
        if column not in self._places:
            near = difflib.get_close_matches(column, self.names[:1000], 1)
            hint = f"did you mean {quoted(near[0])}?" if near else f"it has {listed(self.names)}"
            raise ValueError(f"{self.path!r} has no column {quoted(column)}: {hint}")
        return self._places[column]

    def texts(self, column: str | int) -> list[str]:
        """The cells of a column, none of them empty."""
        place = self.place(column)
        for row, cells in self.rows:
            if not cells[place].strip():
                self.complain(row, place, "a value")
        return [cells[place].strip() for _, cells in self.rows]

    def numbers(self, columns: Sequence[str | int]) -> list[list[float]]:
        """The numbers of some columns, row by row."""
        places = [self.place(column) for column in columns]
        return [[self._number(row, place, cells[place]) for place in places] for row, cells in self.rows]

    def complain(self, row: int, place: int, expected: str, hint: str = "") -> NoReturn:
        """Raise the error about a cell."""
        found, kind = dict(self.rows)[row][place].strip(), ""
        if found.lower() in MISSING:
            kind, hint = ", a missing value", "fill it in, or remove the row"
        what = f"found {quoted(found) if found else 'nothing'}{kind}, where {expected} was expected"
        remedy = f"; {hint}" if hint else ""
        raise ValueError(f"{self.path!r}, row {row}, column {quoted(self.names[place])}: {what}{remedy}")

    def _number(self, row: int, place: int, text: str) -> float:
        number = as_number(text)
        if number is None:
            comma = as_number(text.replace(",", ".")) is not None
            self.complain(row, place, "a number", "write a decimal point, not a comma" if comma else "")
        if not math.isfinite(number):
            self.complain(row, place, "a finite number")
        return number

    def __repr__(self) -> str:
        return f"<Table {self.path!r}: {len(self)} rows of {listed(self.names)}>"


def as_number(text: str) -> float | None:
    """The number that a cell spells, or None.

    >>> as_number(" 1e3 "), as_number("one")
    (1000.0, None)
    """
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def read_table(path: str | os.PathLike[str], header: bool | str = "auto") -> Table:
    """The table in a CSV file; commas, semicolons or tabs between the cells, UTF-8.

    A first row without a single number is taken for the header, unless `header` is True or False.

    >>> read_table("missing.csv")
    Traceback (most recent call last):
    ...
    FileNotFoundError: there is no file 'missing.csv'
    """
    if header not in (True, False, "auto"):
        raise ValueError(f"`header` must be True, False or 'auto', got {header!r}")
    name = os.fspath(path)
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):  # a pipe or a device would be read without end
            raise ValueError(f"{name!r} is not a plain file; give the name of a CSV file")
        with open(name, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            records = list(_records(name, file))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {name!r}") from None
    except OSError as error:
        raise OSError(f"{name!r} cannot be read: {error.strerror}") from None
    if not records:
        raise ValueError(f"{name!r} is empty: a row of numbers was expected")
    first_row, first = records[0]
    if header == "auto":
        header = all(as_number(cell) is None for cell in first)
    names = [cell.strip() for cell in first] if header else [f"x{k}" for k in range(len(first))]
    _check_names(name, first_row, names)
    rows = records[1:] if header else records
    if not rows:
        raise ValueError(f"{name!r} has a header and no rows below it")
    return Table(name, names, rows, bool(header))


def _records(path: str, file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with its number; all of them have as many cells as the first."""
    row, left = 0, MOST_CHARACTERS  # rows read, and what is left to the next one, which can have many lines

    def lines() -> Iterator[str]:
        nonlocal left
        line = 0
        while text := file.readline(left + 1):
            line, left = line + 1, left - len(text)
            if not text.isascii() and (found := NOT_UTF8.search(text)):
                byte = f"byte 0x{ord(found[0]) - 0xDC00:02x}, which is not UTF-8"
                raise ValueError(f"{path!r}, line {line}: found {byte}; save the file as UTF-8")
            if left < 0:
                problem = f"more than {MOST_CHARACTERS:,} characters; is there a quotation mark that is not closed?"
                raise ValueError(f"{path!r}, row {row + 1}: it has {problem}")
            yield text

    reader = csv.reader(lines(), delimiter=_delimiter(file), strict=True)
    first: tuple[int, int] | None = None  # row and number of cells
    blank_left = MOST_BLANK
    try:
        for row, cells in enumerate(reader, 1):
            left = MOST_CHARACTERS
            if len(cells) <= 1 and not any(cell.strip() for cell in cells):
                blank_left -= 1
                if blank_left < 0:
                    raise ValueError(f"{path!r}, row {row}: more than {MOST_BLANK:,} rows are blank; remove them")
                continue
            blank_left += 1
            first = first or (row, len(cells))
            if len(cells) != first[1]:
                found = f"found {len(cells)} cell{'' if len(cells) == 1 else 's'}, where row {first[0]} has {first[1]}"
                raise ValueError(f"{path!r}, row {row}: {found}; every row must have as many")
            yield row, cells
    except csv.Error as error:
        problem = str(error).replace("'\t'", "a tab")
        raise ValueError(f"{path!r}, row {row + 1}: it is not CSV: {problem}") from None


def _delimiter(file: TextIO) -> str:
    """What stands between the cells, going by the first line that is not blank."""
    pieces = iter(lambda: file.readline(MOST_CHARACTERS), "")  # the lines; absurdly long ones come in pieces
    first_line = next((line for line in islice(pieces, MOST_BLANK + 1) if line.strip()), "")
    file.seek(0)
    return max(DELIMITERS, key=first_line.count)


def _check_names(path: str, row: int, names: list[str]) -> None:
    places: dict[str, int] = {}
    for place, name in enumerate(names, 1):
        if not name:
            raise ValueError(f"{path!r}, row {row}: column {place} of the header has no name; give it one")
        if name in places:
            both = f"columns {places[name]} and {place} are both called {quoted(name)}"
            raise ValueError(f"{path!r}, row {row}: {both}; rename one")
        places[name] = place
