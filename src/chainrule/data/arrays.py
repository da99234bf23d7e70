"""Arrays, lists and frames of anyone's, read as rows of numbers and as targets.

Libraries are recognised by what their objects offer; none is imported but NumPy, where something came that NumPy reads.
Every error names the argument, the row and column (which count from 0), what was found there and what to do. What is
given is read whole or not at all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

from chainrule.core.arguments import MOST_OF_A_MESSAGE, counted, listed, quoted, shown
from chainrule.core.structure import is_array

SIMPLE = {bool, float, int, str}  # Python's own types
NUMERIC = "fiub"  # the kinds of NumPy's types that are real numbers or bools
DATES_AND_TIMES = "Mm"
MISSING = {"NAType", "NaTType", "NoneType"}  # types of pandas and Python that stand for no value
TEMPORAL = {"Timedelta", "Timestamp", "date", "datetime", "datetime64", "time", "timedelta", "timedelta64"}
ENCODE = "encode texts as numbers, such as one column of 0 and 1 for each of them, or leave the column out"


class Inputs(NamedTuple):
    """Rows of floats, and the names of their columns, if these have any."""

    columns: list[str]
    rows: list[list[float]]


class Targets(NamedTuple):
    """What each example should give: a number, a list of numbers, or an index into `classes`."""

    name: str
    values: list[Any]
    classes: list[Any]


def read_inputs(inputs: Any, where: str = "`X`") -> Inputs:
    """The rows of an array, list or frame; of a single sequence of numbers, rows of one.

    >>> read_inputs([[1, True], [2.5, False]])
    Inputs(columns=[], rows=[[1.0, 1.0], [2.5, 0.0]])
    """
    cells = Cells(inputs, where)
    rows = cells.rows()
    return Inputs(cells.names_of(rows), rows)


def read_targets(
    targets: Any, where: str = "`y`", labels: bool | str = "auto", classes: Sequence[Any] | None = None
) -> Targets:
    """The targets in an array, list or frame, with the rule for labels of `Dataset.from_arrays`.

    >>> read_targets(["yes", "no", "yes"])
    Targets(name='', values=[1, 0, 1], classes=['no', 'yes'])
    >>> read_targets([[0, 1], [1, 0]], labels=True)
    Targets(name='', values=[1, 0], classes=[0, 1])
    """
    classes = _checked_classes(classes, labels)
    cells = Cells(targets, where, "numbers or labels", "give the one column that holds the labels")
    name, column, asked = ", ".join(cells.names), cells.only_column(), labels is True or classes is not None
    if column is None:
        rows = cells.rows()
        return Targets(name, *cells.one_hot(rows, classes)) if asked else Targets(name, rows, [])
    kinds = set(map(type, column))
    if labels == "auto" and classes is None and kinds == {str} and all(map(_is_number, column)):
        remedy = "convert them with float(...), or say labels=True if they name classes"
        raise ValueError(f"{where} holds numbers as texts, such as {quoted(column[0])}: {remedy}")
    if asked or (labels == "auto" and (cells.categories or kinds == {str} or kinds == {bool})):
        return Targets(name, *cells.indices(column, classes))
    cells.remedy = "if texts and numbers name classes, make all of them texts"
    if kinds == {str}:
        cells.remedy = "`labels=False` asks for numbers; leave it out if the texts name classes"
    return Targets(name, cells.plain_numbers(column), [])


def is_frame(thing: Any) -> bool:
    """Whether it has columns with names and types, as the frames of pandas and polars do."""
    return all(hasattr(thing, name) for name in ("to_numpy", "dtypes", "columns"))


def check_same_rows(inputs: Any, targets: Any, where: str = "`X` and `y`") -> None:
    """Refuse two frames or series of pandas whose rows have different labels: they would be put together wrongly."""
    one: Any = getattr(inputs, "index", None)
    other: Any = getattr(targets, "index", None)
    if hasattr(one, "equals") and hasattr(other, "equals") and len(one) == len(other) and not one.equals(other):
        row = next((k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), 0)
        labels = f"got {shown(str(one[row]))} and {shown(str(other[row]))} in row {row} (counted from 0)"
        remedy = "rows go together in their order; call .reset_index(drop=True) on both if that is right"
        raise ValueError(f"{where} must have the same index, {labels}: {remedy}")


class Cells:
    """What came for an argument: the `names` of its columns, if they have any, and its entries, an array or a list."""

    def __init__(self, thing: Any, where: str, expected: str = "numbers", remedy: str = ENCODE) -> None:
        self.where, self.expected, self.remedy = where, expected, remedy  # the remedy is that for texts
        self.names: list[str] = []
        self.categories: list[int] = []  # the columns that hold some
        self.content = self._opened(thing)
        if not len(self.content):
            raise ValueError(f"{where} is empty: give at least one row")

    def names_of(self, rows: list[list[float]]) -> list[str]:
        """The names of the rows' columns; none if all have one name, that of a column of lists."""
        return self.names if len(self.names) == len(rows[0]) else []

    def rows(self) -> list[list[float]]:
        """The rows as floats."""
        if self.categories:
            column = self._column(self.categories[0])
            raise TypeError(f"{self.where} must hold {self.expected}, got categories in {column}: {self.remedy}")
        content = self.content
        if not is_array(content) or content.dtype.kind not in NUMERIC:
            return self._numbers(_listed(content))
        import numpy as np

        numbers = content.reshape(len(content), -1).astype(np.float64, copy=False)
        if not numbers.shape[1]:
            raise self._no_columns(len(numbers))
        finite = np.isfinite(numbers)
        if not finite.all():
            row, column = np.argwhere(~finite)[0].tolist()
            raise self.refusal(numbers[row, column].item(), row, column)
        return numbers.tolist()  # type: ignore[no-any-return]

    def only_column(self) -> list[Any] | None:
        """The numbers and texts in the only column, with none missing; None if there are several columns."""
        entries = _listed(self.content)
        if all(isinstance(entry, list) for entry in entries):
            if any(len(entry) != 1 for entry in entries):
                return None
            entries = [entry[0] for entry in entries]
        if not _all_finite(entries):
            for row, entry in enumerate(entries):
                if not isinstance(entry, (str, Real)) or not _is_known(entry):
                    raise self.refusal(entry, row)
        return entries

    def indices(self, labels: list[Any], classes: Sequence[Any] | None) -> tuple[list[int], list[Any]]:
        """The index of each label among the classes, and these: by default the labels that occur, in order."""
        if classes is None:
            classes = [False, True] if set(map(type, labels)) == {bool} else self._sorted(set(labels))
        places = {name: place for place, name in enumerate(classes)}
        try:
            return [places[label] for label in labels], list(classes)
        except KeyError as error:
            known, row = listed([str(name) for name in classes]), labels.index(error.args[0])
            remedy = "leave the row out, or give all `classes` to Dataset.from_arrays"
            found = f"got {quoted(error.args[0])} in row {row} (counted from 0)"
            raise ValueError(f"{self.where} must hold labels of the classes {known}, {found}: {remedy}") from None

    def one_hot(self, rows: list[list[float]], classes: Sequence[Any] | None) -> tuple[list[int], list[Any]]:
        """The place of the 1 in each row, and the names of the columns, or their numbers, as classes."""
        for row, numbers in enumerate(rows):
            if sorted(numbers) != [0.0] * (len(numbers) - 1) + [1.0]:
                found = f"got {quoted(numbers)} in row {row} (counted from 0)"
                remedy = "give one label per example, or leave `labels` out"
                raise ValueError(f"{self.where} must have one 1 and else 0 in each row, {found}: {remedy}")
        names = self.names_of(rows)
        own: list[Any] = names or [*range(len(rows[0]))]
        if classes is not None and own != [*classes] and (names or len(own) != len(classes)):
            columns, known = (listed([str(name) for name in names]) for names in (own, classes))
            raise ValueError(f"{self.where} must have one column for each of the classes {known}, got {columns}")
        return [numbers.index(1.0) for numbers in rows], list(own if classes is None else classes)

    def plain_numbers(self, column: list[Any]) -> list[int | float]:
        """The entries of the only column as finite numbers; an int stays one, which losses take for a class index."""
        if _all_finite(column):
            return column
        numbers = [self._number(entry, row) for row, entry in enumerate(column)]
        return [int(e) if isinstance(e, int) else number for e, number in zip(column, numbers, strict=True)]

    def refusal(self, entry: Any, row: int, column: int | None = None) -> Exception:
        """An error that says what an entry is instead of a finite number, where it stands, and what to do about it."""
        expected, found, remedy = self.expected, f"a {type(entry).__name__}", "give a number in its place"
        if type(entry).__name__ in MISSING or isinstance(entry, Real):
            expected, found = f"finite {self.expected}", quoted(entry)
            remedy = "replace it, or leave the row out" if _is_known(entry) else "fill it in, or leave the row out"
        elif isinstance(entry, str):
            found, remedy = quoted(entry), "convert texts with float(...) first" if _is_number(entry) else self.remedy
        elif isinstance(entry, complex):
            found, remedy = quoted(entry), "only real numbers have a place here; take .real or .imag"
        elif type(entry).__name__ in TEMPORAL:
            found, remedy = f"the time {shown(str(entry))}", "give numbers, such as days since a day that you choose"
        elif isinstance(entry, bytes):
            found, remedy = quoted(entry), "make texts of bytes with .decode()"
        elif hasattr(entry, "__len__"):
            remedy = "give each example as one flat list of numbers"
        place = f"row {row}" if column is None else f"row {row}, {self._column(column)}"
        kind = TypeError if expected == self.expected else ValueError
        return kind(f"{self.where} must hold {expected}, got {found} in {place} (counted from 0): {remedy}")

    def _opened(self, thing: Any) -> Any:
        """The entries; sets the names."""
        kind = type(thing).__name__
        if hasattr(thing, "toarray"):
            raise TypeError(f"{self.where} must not be sparse, got {kind}: give what .toarray() returns")
        if hasattr(thing, "filled") and hasattr(thing, "mask"):
            raise TypeError(f"{self.where} must not be masked, got {kind}: give what .filled(...) returns")
        if is_frame(thing):
            return self._frame(thing)
        if hasattr(thing, "to_numpy") and hasattr(thing, "dtype"):
            self.names = [] if getattr(thing, "name", None) in (None, "") else [str(thing.name)]
            return self._series(thing)
        if is_array(thing) or hasattr(thing, "__array__"):
            return self._array(thing)
        if isinstance(thing, (list, tuple, range)):
            return thing
        remedy = "call .collect() first" if hasattr(thing, "collect") else "give one row or number per example"
        raise TypeError(f"{self.where} must be an array, a list or a frame, got {kind}: {remedy}")

    def _frame(self, frame: Any) -> Any:
        """The columns side by side: an array if all are numeric, else lists."""
        self.names = [str(name) for name in frame.columns]
        if twice := [name for name, count in Counter(self.names).items() if count > 1]:
            raise ValueError(f"{self.where} has more than one column {quoted(twice[0])}: rename or drop the others")
        if not self.names:
            raise self._no_columns(len(frame))
        columns = [self._series(frame[name], place) for place, name in enumerate(frame.columns)]
        if len(columns) == 1:
            return columns[0]
        if all(column.ndim == 1 and column.dtype.kind in NUMERIC for column in columns):
            import numpy as np

            return np.column_stack([column.astype(np.float64, copy=False) for column in columns])
        return list(zip(*map(_listed, columns), strict=True))

    def _series(self, series: Any, place: int | None = None) -> Any:
        if str(series.dtype).startswith(("category", "Categorical", "Enum")):
            self.categories.append(place or 0)
        return self._array(series, place)

    def _array(self, thing: Any, place: int | None = None) -> Any:
        import numpy as np

        try:
            array = np.asarray(thing.to_numpy() if hasattr(thing, "to_numpy") else thing)
        except Exception as error:  # whatever PyTorch and others raise for what NumPy cannot hold
            found = f"got {type(thing).__name__}: {shown(str(error), MOST_OF_A_MESSAGE)}"
            raise TypeError(f"{self.where} must be something that NumPy can read, {found}") from None
        if array.ndim not in (1, 2):
            remedy = "flatten each example, as in x.reshape(len(x), -1)" if array.ndim else "give one row per example"
            raise ValueError(f"{self.where} must have rows and columns, got an array of shape {array.shape}: {remedy}")
        if array.dtype.kind in DATES_AND_TIMES and array.size:  # as Python's objects, some would be bare integers
            raise self.refusal(array.reshape(-1)[0], 0, place)
        return array

    def _numbers(self, rows: list[Any]) -> list[list[float]]:
        """Rows that may hold anything, as floats; single entries become rows of one."""
        if not isinstance(rows[0], list):
            rows = [[entry] for entry in rows]
        width = len(rows[0])
        if not width:
            raise self._no_columns(len(rows))
        for place, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != width:
                length = counted(len(row), "entry") if isinstance(row, list) else quoted(row)
                lengths = f"got {length} in row {place} (counted from 0) and {width} in row 0"
                raise ValueError(f"{self.where} must have rows of equal length, {lengths}")
        return [
            row if _all_finite(row) else [self._number(entry, place, column) for column, entry in enumerate(row)]
            for place, row in enumerate(rows)
        ]

    def _number(self, entry: Any, row: int, column: int | None = None) -> float:
        if isinstance(entry, Real):
            try:
                number = float(entry)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
        raise self.refusal(entry, row, column)

    def _sorted(self, labels: set[Any]) -> list[Any]:
        try:
            return sorted(labels)
        except TypeError:
            kinds = listed(sorted({type(label).__name__ for label in labels}))
            raise TypeError(f"{self.where} must hold labels of one kind, got {kinds}: make all of them texts") from None

    def _column(self, place: int) -> str:
        return f"column {quoted(self.names[place]) if place < len(self.names) else place}"

    def _no_columns(self, rows: int) -> ValueError:
        return ValueError(f"{self.where} has {counted(rows, 'row')} and no columns: give at least one")


def _listed(content: Any) -> list[Any]:
    """Entries of an array or a list as Python's own: numbers, texts and lists of them."""
    if is_array(content) and content.dtype.kind != "O":
        return content.tolist()  # type: ignore[no-any-return]
    return list(content) if set(map(type, content)) <= SIMPLE else [_own(entry) for entry in content]


def _own(entry: Any) -> Any:
    """A number or a row of any library as Python's own."""
    if type(entry) in SIMPLE or type(entry).__name__ in TEMPORAL:
        return entry
    if isinstance(entry, (list, tuple, range)) or is_array(entry):
        return _listed(entry) if not is_array(entry) or entry.ndim else entry.tolist()
    convert = getattr(entry, "tolist", None) or getattr(entry, "to_list", None)
    return convert() if convert else entry


def _checked_classes(classes: Any, labels: Any) -> list[Any] | None:
    if not isinstance(labels, (bool, str)) or labels not in (True, False, "auto"):
        raise ValueError(f"`labels` must be True, False or 'auto', got {quoted(labels)}")
    if classes is None:
        return None
    if labels is False:
        raise ValueError("`classes` are for labels, and `labels` is False: leave one of them out")
    names = _listed(classes) if isinstance(classes, (list, tuple)) or is_array(classes) else []
    if not names or not all(isinstance(name, (Real, str)) for name in names) or len(set(names)) < len(names):
        remedy = "give those of another data set, as in classes=train.classes"
        raise ValueError(f"`classes` must be a list of different labels, got {quoted(classes)}: {remedy}")
    return names


def _all_finite(entries: list[Any]) -> bool:
    """Whether they are floats, as most data is, and finite: there is nothing to convert or to refuse."""
    return set(map(type, entries)) == {float} and all(map(math.isfinite, entries))


def _is_known(entry: Any) -> bool:
    """Whether it is a value, and not NaN or another sign of a missing one."""
    return type(entry).__name__ not in MISSING and bool(entry == entry)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
