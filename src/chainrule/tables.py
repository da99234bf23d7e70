"""CSV files, read strictly: a table of text with a name for each column, and the numbers in it.

Every complaint names the file, the row, the column, what was found and what was expected. Rows are counted as a
spreadsheet counts them: the first is row 1, also when it is the header. A table is read whole or not at all.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import os
from collections.abc import Sequence
from typing import NoReturn

MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-"}  # how files spell that there is nothing
DELIMITERS = ",;\t"


class Table:
    """The cells of a file as text: `names` of the columns, and `rows`, each with its number in the file.

    >>> table = Table("people.csv", ["age", "name"], [(2, ["7", "Ann"]), (3, ["8", "Bob"])])
    >>> table.numbers(["age"])
    [[7.0], [8.0]]
    """

    def __init__(self, path: str, names: list[str], rows: list[tuple[int, list[str]]], header: bool = True) -> None:
        self.path = path
        self.names = names
        self.rows = rows
        self.header = header  # whether the names are those of the file, rather than x0, x1, …

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, column: str | int) -> int:
        """Where a column is, given by its name, or by its index, which may count from the end.

        >>> Table("people.csv", ["age", "name"], []).place(-1)
        1
        """
        if isinstance(column, int):
            if not -len(self.names) <= column < len(self.names):
                raise ValueError(
                    f"{self.path!r} has {len(self.names)} columns, and none of the index {column}: count from 0"
                )
            return column % len(self.names)
        if column not in self.names:
            near = difflib.get_close_matches(column, self.names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {_listed(self.names)}"
            raise ValueError(f"{self.path!r} has no column {column!r}: {hint}")
        return self.names.index(column)

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
        found = dict(self.rows)[row][place].strip()
        what = f"found {_quoted(found)}, where {expected} was expected"
        if found.lower() in MISSING:
            what = f"found {_quoted(found)}, a missing value, where {expected} was expected"
            hint = "fill it in, or remove the row"
        remedy = f"; {hint}" if hint else ""
        raise ValueError(f"{self.path!r}, row {row}, column {self.names[place]!r}: {what}{remedy}")

    def _number(self, row: int, place: int, text: str) -> float:
        number = as_number(text)
        if number is None:
            comma = as_number(text.replace(",", ".")) is not None
            self.complain(row, place, "a number", "write a decimal point, not a comma" if comma else "")
        if not math.isfinite(number):
            self.complain(row, place, "a finite number")
        return number

    def __repr__(self) -> str:
        return f"<Table {self.path!r}: {len(self)} rows of {_listed(self.names)}>"


def as_number(text: str) -> float | None:
    """The number that a cell spells, if it does.

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
    records = _records(name, _text(name))
    first_row, first = records[0]
    if header == "auto":
        header = all(as_number(cell) is None for cell in first)
    names = [cell.strip() for cell in first] if header else [f"x{k}" for k in range(len(first))]
    _check_names(name, first_row, names)
    rows = records[1:] if header else records
    if not rows:
        raise ValueError(f"{name!r} has a header and no rows below it")
    for row, cells in rows:
        if len(cells) != len(names):
            raise ValueError(
                f"{name!r}, row {row}: found {_count(len(cells), 'cell')}, where row {first_row} has {len(names)}; "
                "every row must have as many"
            )
    return Table(name, names, rows, bool(header))


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path!r}") from None
    except OSError as error:
        raise OSError(f"{path!r} cannot be read: {error.strerror}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{content[error.start]:02x}"
        raise ValueError(f"{path!r}, line {line}: found {found}, which is not UTF-8; save the file as UTF-8") from None


def _records(path: str, text: str) -> list[tuple[int, list[str]]]:
    """The rows that are not blank, each with its number."""
    first_line = text.lstrip().partition("\n")[0]
    delimiter = max(DELIMITERS, key=first_line.count)
    records: list[tuple[int, list[str]]] = []
    row = 0
    try:
        for row, cells in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), 1):
            if len(cells) > 1 or any(cell.strip() for cell in cells):
                records.append((row, cells))
    except csv.Error as error:
        raise ValueError(f"{path!r}, row {row + 1}: it is not CSV: {error}") from None
    if not records:
        raise ValueError(f"{path!r} is empty: a row of numbers was expected")
    return records


def _check_names(path: str, row: int, names: list[str]) -> None:
    for place, name in enumerate(names):
        if not name:
            raise ValueError(f"{path!r}, row {row}: column {place + 1} of the header has no name; give it one")
        if name in names[:place]:
            first = names.index(name) + 1
            raise ValueError(
                f"{path!r}, row {row}: columns {first} and {place + 1} are both called {name!r}; rename one"
            )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "…") if text else "nothing"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
