"""CSV files, read strictly: a table of text with a name for each column, and the numbers in it.

Every error names the file, the row (the first is 1, as in a spreadsheet, even if it is the header), the column, what
was found and what was expected. A table is read whole or not at all; a file is read row by row, so that one which is no
table is refused where it stops being one, whatever its size.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import chain, islice
from typing import IO, NoReturn, TextIO

from chainrule.core.arguments import counted, listed, quoted
from chainrule.data.columns import CellError, Column, as_number, find_column, is_missing

STANDARD_INPUT = "-"
DELIMITERS = ",;\t"
LOOKED_AT = 100  # rows, to tell whether the first one is a header
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
        self._columns: list[tuple[str, ...]] = []  # the cells, turned when they are first asked for

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, column: str | int, used: Collection[str | int] = ()) -> int:
        """The index of a column, given its name or an index that may count from the end.

        A name that is not there is a slip for another one, but not for a column that is `used` already.

        >>> Table("people.csv", ["age", "name"], []).place(-1)
        1
        """
        if isinstance(column, int):
            if not -len(self.names) <= column < len(self.names):
                there = f"{self.path!r} has {counted(len(self.names), 'column')}"
                raise ValueError(f"{there}, and none of the index {quoted(column)}: count from 0")
            return column % len(self.names)
        if column not in self._places:
            near = difflib.get_close_matches(column, [name for name in self.names[:1000] if name not in used], 1)
            hint = f"did you mean {quoted(near[0])}?" if near else f"it has {listed(self.names)}"
            raise ValueError(f"{self.path!r} has no column {quoted(column)}: {hint}")
        return self._places[column]

    def cells(self, column: str | int) -> Sequence[str]:
        """The texts of a column."""
        if not self._columns:
            self._columns = list(zip(*(cells for _, cells in self.rows), strict=True)) or [()] * len(self.names)
        return self._columns[self.place(column)]

    def texts(self, column: str | int) -> list[str]:
        """The texts of a column, none of them empty."""
        cells = [cell.strip() for cell in self.cells(column)]
        if "" in cells:
            self.complain(cells.index(""), self.place(column), "a value")
        return cells

    def numbers(self, columns: Sequence[str | int]) -> list[list[float]]:
        """The numbers of some columns, row by row."""
        places = [self.place(column, columns) for column in columns]
        return self.encoded([Column(self.names[place]) for place in places])

    def encoded(self, columns: Sequence[Column]) -> list[list[float]]:
        """The numbers that these columns become, row by row."""
        names = [column.name for column in columns]
        found: list[list[float]] = []
        for column in columns:
            place = self.place(column.name, names)
            try:
                found += column.encoded(self.cells(place))
            except CellError as error:
                self.complain(error.index, place, error.expected, error.hint)
        return [list(row) for row in zip(*found, strict=True)]

    def find(self, column: str | int, fill: bool = False) -> Column:
        """What a column holds."""
        place = self.place(column)
        try:
            return find_column(self.names[place], self.cells(place), fill)
        except CellError as error:
            self.complain(error.index, place, error.expected, error.hint)

    def without_missing(self, columns: Sequence[str | int]) -> Table:
        """The rows in which these columns have no missing cell."""
        places = [self.place(column) for column in columns]
        rows = [(row, cells) for row, cells in self.rows if not any(is_missing(cells[place]) for place in places)]
        if not rows:
            raise ValueError(f"{self.path!r} has a missing value in every row: leave columns out (`drop`)")
        return Table(self.path, self.names, rows, self.header)

    def complain(self, index: int, place: int, expected: str, hint: str = "") -> NoReturn:
        """Raise the error about a cell."""
        row, cells = self.rows[index]
        found, kind = cells[place].strip(), ""
        if is_missing(found):
            kind, hint = ", a missing value", hint or 'fill it in, or say `missing="mean"` or `missing="drop"`'
        what = f"found {quoted(found) if found else 'nothing'}{kind}, where {expected} was expected"
        remedy = f"; {hint}" if hint else ""
        raise ValueError(f"{self.path!r}, row {row}, column {quoted(self.names[place])}: {what}{remedy}")

    def __repr__(self) -> str:
        return f"<Table {self.path!r}: {counted(len(self), 'row')} of {listed(self.names)}>"


@dataclass
class OpenTable:
    """A table that is being read: the names of its columns, whether they are the file's own, and the rows to come."""

    path: str
    names: list[str]
    header: bool
    rows: Iterator[tuple[int, list[str]]]

    def pieces(self, size: int) -> Iterator[Table]:
        """The rows as tables of so many rows at most, of which one is in memory at a time."""
        while rows := list(islice(self.rows, size)):
            yield Table(self.path, self.names, rows, self.header)


def read_table(path: str | os.PathLike[str], header: bool | str = "auto", encoding: str = "utf-8") -> Table:
    """The table in a CSV file; commas, semicolons or tabs between the cells. `-` is standard input.

    A first row without a single number is taken for the header, unless `header` is True or False.

    >>> read_table("missing.csv")
    Traceback (most recent call last):
    ...
    FileNotFoundError: there is no file 'missing.csv'
    """
    with open_table(path, header, encoding) as table:
        return Table(table.path, table.names, list(table.rows), table.header)


@contextmanager
def open_table(
    path: str | os.PathLike[str], header: bool | str = "auto", encoding: str = "utf-8"
) -> Iterator[OpenTable]:
    """The table in a CSV file, to be read row by row."""
    if header not in (True, False, "auto"):
        raise ValueError(f"`header` must be True, False or 'auto', got {header!r}")
    name = os.fspath(path)
    with ExitStack() as stack:
        with _errors(name, encoding):
            file = _as_text(stack.enter_context(_opened(name)), encoding)
        records = _guarded(_records(name, file), name, encoding)
        first_row, first = next(records, (0, []))
        if not first:
            raise ValueError(f"{name!r} is empty: a row of numbers was expected")
        if header == "auto":
            following = list(islice(records, LOOKED_AT))
            header, records = _is_header(first, [cells for _, cells in following]), chain(following, records)
        names = [cell.strip() for cell in first] if header else [f"x{k}" for k in range(len(first))]
        _check_names(name, first_row, names)
        rows = records if header else chain([(first_row, first)], records)
        second = next(rows, None)
        if second is None:
            raise ValueError(f"{name!r} has a header and no rows below it")
        yield OpenTable(name, names, bool(header), chain([second], rows))


@contextmanager
def _errors(name: str, encoding: str) -> Iterator[None]:
    """Errors in reading a file, in sentences that name it."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {name!r}") from None
    except UnicodeError as error:
        raise ValueError(f"{name!r} is not a text in {encoding}: {getattr(error, 'reason', error)}") from None
    except OSError as error:
        raise OSError(f"{name!r} cannot be read: {error.strerror}") from None


def _guarded(records: Iterator[tuple[int, list[str]]], name: str, encoding: str) -> Iterator[tuple[int, list[str]]]:
    with _errors(name, encoding):
        yield from records


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    """The bytes of a file. Those of standard input are kept in a file of our own, to be read from the beginning."""
    if name == STANDARD_INPUT:
        with tempfile.SpooledTemporaryFile(MOST_CHARACTERS) as kept:
            shutil.copyfileobj(sys.stdin.buffer, kept)
            kept.seek(0)
            yield kept
        return
    if not stat.S_ISREG(os.stat(name).st_mode):  # a pipe or a device would be read without end
        raise ValueError(f"{name!r} is not a plain file; give the name of a CSV file, or - for standard input")
    with open(name, "rb") as file:
        yield file


def _as_text(file: IO[bytes], encoding: str) -> TextIO:
    """The text in a file; a spreadsheet's marks at its beginning say what it is."""
    try:
        codec = codecs.lookup(encoding).name
        "".encode(codec)  # some are not for texts
    except (LookupError, TypeError):
        raise ValueError(f"`encoding` {quoted(encoding)} is not known: use one such as utf-8 or cp1252") from None
    if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        codec = "utf-16"
    file.seek(0)
    if codec == "utf-8":
        return TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    return TextIOWrapper(file, encoding=codec, newline="")


def _is_header(first: list[str], following: list[list[str]]) -> bool:
    """Whether the first row names the columns: it has no number, or a text above numbers, or one that is alone.

    A text that is alone may be a rare class. So beside it a name may look like a number only if it is a whole one.

    >>> _is_header(["0", "1", "kind"], [["2.5", "1", "rose"], ["1.5", "2", "rose"]])
    True
    >>> _is_header(["2.5", "1", "rose"], [["1.5", "2", "rose"]])
    False
    >>> _is_header(["2.5", "1", "rare"], [["1.5", "2", "rose"], ["1.5", "2", "rose"]])
    False
    """
    numbers = [cell.strip() for cell in first if as_number(cell) is not None]
    may_be_names = all(map(str.isdecimal, numbers)) and len(set(numbers)) == len(numbers)
    columns = [[cell.strip() for cell in column] for column in zip(first, *following, strict=False)]
    return not numbers or any(_has_a_name(name, below, may_be_names) for name, *below in columns)


def _has_a_name(first: str, below: list[str], may_be_alone: bool) -> bool:
    """Whether a column begins with its name: a text above numbers, or above few texts of which it is none."""
    below = [cell for cell in below if not is_missing(cell)]
    if as_number(first) is not None or is_missing(first) or not below:
        return False
    if all(as_number(cell) is not None for cell in below):
        return True
    return may_be_alone and first not in below and 2 * len(set(below)) <= len(below)


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
                remedy = 'save the file as UTF-8, or name its encoding, such as `encoding="cp1252"`'
                raise ValueError(f"{path!r}, line {line}: found {byte}; {remedy}")
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
            index = " (pandas writes its index there, unless index=False)" if place == 1 else ""
            raise ValueError(f"{path!r}, row {row}: column {place} of the header has no name; give it one{index}")
        if name in places:
            both = f"columns {places[name]} and {place} are both called {quoted(name)}"
            raise ValueError(f"{path!r}, row {row}: {both}; rename one")
        places[name] = place
