"""Data sets to learn from: the classic ones in the plane, and functions to shuffle, batch and split any data set.

A set of two classes has the targets -1 and 1, as `losses.hinge` expects; a set of more classes has the indices
0, 1, 2, … that `losses.cross_entropy` expects; xor is arithmetic, with the targets 0 and 1. Sets are drawn at random
from a `seed`, the same set from the same seed, and come in random order. `read_csv` reads a set from a file, and
`Dataset.from_arrays` one from arrays, lists or frames; a pair `(X, y)` of these is taken wherever a data set is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, overload

from chainrule.core.arguments import counted, listed, quoted, setting, shown, whole_number
from chainrule.data.arrays import check_same_rows, is_frame, read_inputs, read_targets
from chainrule.data.columns import Column, as_number, counts_rows, is_id, is_missing
from chainrule.data.labels import find_targets
from chainrule.data.scaling import Scaling
from chainrule.data.tables import Table, read_table

__all__ = [
    "CsvDataset", "Dataset", "Scaling", "batches", "blobs", "circles", "four_points", "micrograd_moons", "moons",
    "read_csv", "shuffle", "spirals", "split", "standardize", "xor",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


class Dataset:
    """Examples: `inputs[i]` goes with `targets[i]`. It is also a sequence of (input, target) pairs.

    `columns` names the inputs and `target` the target, where they have names. If `classes` lists labels, `targets` are
    indices into that list.

    >>> data = Dataset([[0.0, 1.0], [2.0, 3.0]], [1, -1])
    >>> len(data), data[0], [y for x, y in data]
    (2, ([0.0, 1.0], 1), [1, -1])
    """

    __slots__ = ("classes", "columns", "inputs", "target", "targets")

    def __init__(
        self,
        inputs: Iterable[Any],
        targets: Iterable[Any],
        columns: Iterable[str] = (),
        target: str = "",
        classes: Iterable[Any] = (),
    ) -> None:
        if is_frame(inputs):  # as a list it would be the names of its columns
            raise TypeError("`inputs` must be a list of inputs, got a frame: use Dataset.from_arrays(X, y)")
        self.inputs, self.targets = list(inputs), list(targets)
        self.columns, self.target, self.classes = list(columns), target, list(classes)
        given, wanted = len(self.inputs), len(self.targets)
        if given != wanted:
            raise ValueError(
                f"`inputs` has {counted(given, 'entry')} and `targets` {wanted}: give one target for each input"
            )

    @classmethod
    def from_arrays(
        cls,
        X: Any,  # noqa: N803 - as everybody calls them
        y: Any,
        labels: bool | str = "auto",
        classes: Sequence[Any] | None = None,
    ) -> Dataset:
        """The examples in two arrays, lists or frames (of pandas, polars, …): inputs `X` and targets `y`.

        `X` has a row of numbers or bools per example, or one number. Targets that are texts, bools or categories become
        indices into `classes`, the sorted labels. Other targets are numbers, or rows of them; `labels=True` makes
        classes of them too, and of a one-hot matrix. To read another set with the same indices, give its `classes`.
        Rows go together in their order. A number that is missing is an error that says where.

        >>> flowers = Dataset.from_arrays([[5.1, 3.5], [6.3, 3.3]], ["setosa", "virginica"])
        >>> flowers, flowers[1]
        (<Dataset of 2 examples (setosa, virginica)>, ([6.3, 3.3], 1))
        >>> Dataset.from_arrays([1, 2, 3], [2.5, 3.5, 4.5]).inputs
        [[1.0], [2.0], [3.0]]
        """
        return cls._read(X, y, "", labels, classes)

    @classmethod
    def _read(cls, inputs: Any, targets: Any, argument: str, labels: bool | str, classes: Any) -> Dataset:
        of = f" of `{argument}`" if argument else ""
        found, wanted = read_inputs(inputs, f"`X`{of}"), read_targets(targets, f"`y`{of}", labels, classes)
        given, count = len(found.rows), len(wanted.values)
        if given != count:
            raise ValueError(f"`X`{of} has {counted(given, 'row')} and `y` {count}: give one target for each")
        check_same_rows(inputs, targets, f"`X` and `y`{of}")
        return cls(found.rows, wanted.values, found.columns, wanted.name, wanted.classes)

    def __len__(self) -> int:
        return len(self.inputs)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return zip(self.inputs, self.targets, strict=True)

    @overload
    def __getitem__(self, index: int) -> tuple[Any, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> tuple[Any, Any] | Dataset:
        if isinstance(index, slice):
            return self._with(self.inputs[index], self.targets[index])
        return self.inputs[index], self.targets[index]

    def __repr__(self) -> str:
        names = f": {listed(self.columns)} -> {shown(self.target or 'target')}" if self.columns else ""
        classes = f" ({_in_words(self.classes)})" if self.classes else ""
        return f"<{type(self).__name__} of {counted(len(self), 'example')}{names}{classes}>"

    def _with(self, inputs: list[Any], targets: list[Any]) -> Dataset:
        """Other examples of the same columns and classes."""
        return Dataset(inputs, targets, self.columns, self.target, self.classes)

    def _chosen(self, places: Iterable[int]) -> Dataset:
        chosen = list(places)
        return self._with([self.inputs[k] for k in chosen], [self.targets[k] for k in chosen])


class CsvDataset(Dataset):
    """The examples of a CSV file: `columns` names the inputs, `target` the target.

    If the targets name classes, `classes` lists them, and `targets` are indices into that list. `table` says how the
    cells of the file became inputs, and `notes` what somebody should know about them.

    >>> CsvDataset([[5.1], [4.9]], [0, 1], ["length"], "species", ["setosa", "virginica"])
    <CsvDataset of 2 examples: length -> species (setosa, virginica)>
    """

    __slots__ = ("notes", "table")

    def __init__(
        self,
        inputs: Iterable[Any],
        targets: Iterable[Any],
        columns: Iterable[str | Column],
        target: str,
        classes: Iterable[Any] = (),
        notes: Iterable[str] = (),
    ) -> None:
        self.table = [Column(column) if isinstance(column, str) else column for column in columns]
        names = [name for column in self.table for name in column.inputs]
        super().__init__(inputs, targets, names, target, classes)
        self.notes = list(notes)


Examples = Dataset | tuple[Any, Any]  # what is taken for a data set


def read_csv(
    path: str | os.PathLike[str],
    target: str | int = -1,
    header: bool | str = "auto",
    labels: bool | str = "auto",
    *,
    inputs: Sequence[str | int] | None = None,
    drop: Sequence[str | int] = (),
    missing: str = "error",
    encoding: str = "utf-8",
) -> CsvDataset:
    """The examples in a CSV file, one per row: the column `target` (a name or an index), and others as inputs.

    Inputs are all other columns, or those in `inputs`, or all but those in `drop`. Each holds numbers, true and false,
    or up to 20 texts; a text becomes an input of its own, which is 1 where it stands and 0 elsewhere. Targets are
    numbers, or texts that name classes; `labels=True` makes classes of numbers too. A first row without a single number
    is taken for the header, unless `header` is True or False.

    A cell of the wrong kind is an error that says where it is: a file is read whole or not at all. So is a missing
    cell, unless `missing` is "mean" (numbers become the mean, others the most frequent) or "drop" (its row goes).

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "flowers.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("length,width,species\\n5.1,3.5,setosa\\n6.3,3.3,virginica\\n")
    ...     data = read_csv(path)
    >>> data, data[1]
    (<CsvDataset of 2 examples: length, width -> species (setosa, virginica)>, ([6.3, 3.3], 1))
    """
    if labels not in (True, False, "auto"):
        raise ValueError(f"`labels` must be True, False or 'auto', got {labels!r}")
    if missing not in ("error", "mean", "drop"):
        raise ValueError(f"`missing` must be 'error', 'mean' or 'drop', got {missing!r}")
    table = read_table(path, header, encoding)
    chosen = table.place(target)
    places = _input_places(table, chosen, inputs, drop)
    notes, rows = [], len(table)
    if header == "auto" and table.header and any(as_number(name) is not None for name in table.names):
        names = listed(table.names)
        notes.append(f"the first row was taken for the columns' names, {names}; if it is data, say `header=False`")
    if missing != "error":  # a target cannot be made up
        table = table.without_missing([chosen, *(places if missing == "drop" else ())])
    if len(table) < rows:
        notes.append(f"{rows - len(table)} of {counted(rows, 'row')} left out, for missing values")
    columns = [table.find(place, fill=missing == "mean") for place in places]
    encoded = table.encoded(columns)
    targets, classes = find_targets(table, chosen, labels)
    notes += _notes(table, columns, encoded)
    return CsvDataset(encoded, targets, columns, table.names[chosen], classes, notes)


def _input_places(
    table: Table, target: int, inputs: Sequence[str | int] | None, drop: Sequence[str | int]
) -> list[int]:
    """The columns to learn from."""
    if inputs is not None and drop:
        raise ValueError("`inputs` and `drop` were both given: name the columns to learn from, or those to leave out")
    for names, argument in ((inputs, "inputs"), (drop, "drop")):
        if isinstance(names, str):
            raise TypeError(f"`{argument}` must be a list of columns, got {names!r}: write [{names!r}]")
    used = {*(inputs or drop), table.names[target]}
    left_out = {target, *(table.place(column, used) for column in drop)}
    places = list(range(len(table.names))) if inputs is None else [table.place(column, used) for column in inputs]
    if inputs is not None and target in places:
        raise ValueError(f"`inputs` has {table.names[target]!r}, which is the target: leave it out, or choose another")
    found = [place for place in dict.fromkeys(places) if place not in left_out]
    if not found:
        there = f"{table.path!r} has the target {quoted(table.names[target])} and no other column to learn from"
        raise ValueError(f"{there}: columns of inputs were expected beside it")
    return found


def _notes(table: Table, columns: list[Column], rows: list[list[float]]) -> list[str]:
    """What somebody should know about the inputs: texts that were taken apart, cells that were filled, ids."""
    notes, k = [], 0
    if not table.header:
        notes.append("no header was found, so the columns are x0, x1, …; if the first row is one, say `header=True`")
    for column in columns:
        name, numbers = quoted(column.name), [row[k] for row in rows]
        if column.kind == "choice":
            notes.append(f"column {name}: {counted(len(column.choices), 'text')}, an input for each")
        if column.fill is not None and any(map(is_missing, table.cells(column.name))):
            filled = f"{column.fill:.4g}" if isinstance(column.fill, float) else quoted(column.fill)
            notes.append(f"column {name}: missing values became {filled}")
        if len(rows) > 1 and (len(column.choices) == 1 or (not column.choices and min(numbers) == max(numbers))):
            notes.append(f"column {name} is the same in every row: nothing can be learned from it")
        elif column.kind == "number" and (counts_rows(numbers) or is_id(column.name, numbers)):
            notes.append(f"column {name} numbers the rows; if it is an id, leave it out (`drop`)")
        k += len(column.inputs)
    return notes


def xor() -> Dataset:
    """Exclusive or: four inputs of 0 and 1, and the target 1 where they differ, else 0.

    >>> xor().targets
    [0.0, 1.0, 1.0, 0.0]
    """
    return Dataset([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0.0, 1.0, 1.0, 0.0])


def four_points() -> Dataset:
    """The four points of three numbers, targets 1 and -1, with which Karpathy's lecture trains its first network.

    >>> four_points()[0]
    ([2.0, 3.0, -1.0], 1.0)
    """
    return Dataset([[2.0, 3.0, -1.0], [3.0, -1.0, 0.5], [0.5, 1.0, 1.0], [1.0, 1.0, -1.0]], [1.0, -1.0, -1.0, 1.0])


def micrograd_moons() -> Dataset:
    """The same 100 points as in micrograd's demo, so that its published losses can be reproduced.

    >>> micrograd_moons()[0]
    ([1.1221146075409685, 0.08147717341718697], -1)
    """
    from chainrule.data.frozen_moons import POINTS

    return Dataset([[x, y] for x, y, _ in POINTS], [target for _, _, target in POINTS])


def moons(n: int = 100, noise: float = 0.1, seed: int = 0) -> Dataset:
    """Two interlocking half circles: -1 above, 1 below; `noise` is the standard deviation of each coordinate.

    >>> len(moons(n=50))
    50
    """

    def point(label: int, i: int, count: int) -> tuple[float, float]:
        angle = math.pi * i / max(count - 1, 1)
        x, y = math.cos(angle), math.sin(angle)
        return (1.0 - x, 0.5 - y) if label else (x, y)

    return _draw(point, n, noise, seed)


def circles(n: int = 100, noise: float = 0.05, seed: int = 0, factor: float = 0.5) -> Dataset:
    """A circle of radius 1 (-1) around one of radius `factor` (1).

    >>> circles(n=2, noise=0.0, seed=1).inputs
    [[1.0, 0.0], [0.5, 0.0]]
    """
    radii = 1.0, setting(factor, "factor", "0.5", below=1.0)
    return _draw(lambda label, i, count: _polar(radii[label], i / count), n, noise, seed)


def spirals(n: int = 100, noise: float = 0.02, seed: int = 0, classes: int = 2, turns: float = 1.0) -> Dataset:
    """Arms that wind `turns` times around the origin, out to radius 1; one per class.

    >>> sorted(set(spirals(classes=3).targets))
    [0, 1, 2]
    """
    classes, winding = whole_number(classes, "classes", 2), setting(turns, "turns", "1.0")

    def point(label: int, i: int, count: int) -> tuple[float, float]:
        radius = (i + 1) / count
        return _polar(radius, label / classes + winding * radius)

    return _draw(point, n, noise, seed, classes)


def blobs(n: int = 100, noise: float = 0.2, seed: int = 0, classes: int = 3) -> Dataset:
    """Clouds around evenly spaced points on the unit circle, one per class; `noise` is their width.

    >>> sorted(set(blobs().targets))
    [0, 1, 2]
    """
    classes = whole_number(classes, "classes", 2)
    return _draw(lambda label, i, count: _polar(1.0, label / classes), n, noise, seed, classes)


def shuffle(data: Examples, rng: Random) -> Dataset:
    """The same examples in random order.

    >>> len(shuffle(xor(), Random(0)))
    4
    """
    whole = dataset(data)
    order = list(range(len(whole)))
    if not hasattr(rng, "shuffle"):
        raise TypeError(f"`rng` must be a random.Random, got {rng!r}: make one with random.Random(seed)")
    rng.shuffle(order)
    return whole._chosen(order)


def batches(data: Examples, size: int, rng: Random | None = None) -> list[Dataset]:
    """All examples in batches of `size`, the last one smaller if need be; in random order if there is an `rng`.

    >>> [len(batch) for batch in batches(moons(n=10), size=4)]
    [4, 4, 2]
    """
    whole = dataset(data) if rng is None else shuffle(data, rng)
    step = whole_number(size, "size")
    return [whole[i : i + step] for i in range(0, len(whole), step)]


def split(
    data: Examples, fraction: float = 0.8, rng: Random | None = None, stratified: bool = False
) -> tuple[Dataset, Dataset]:
    """Two parts, to train and to test; the first has `fraction` of the examples, chosen at random if there is an `rng`.

    If they are `stratified`, it has that share of each class, as nearly as whole numbers allow.

    >>> train, test = split(moons(n=10), 0.8)
    >>> len(train), len(test)
    (8, 2)
    >>> sorted(split(blobs(n=12), 0.5, Random(1), stratified=True)[1].targets)
    [0, 0, 1, 1, 2, 2]
    """
    whole = dataset(data) if rng is None else shuffle(data, rng)
    share = setting(fraction, "fraction", "0.8", below=1.0)
    first = round(share * len(whole))
    if first in (0, len(whole)):
        given = f"`fraction` {share!r} of {counted(len(whole), 'example')}"
        raise ValueError(f"{given} leaves a part empty: choose one nearer to 0.5")
    return _strata(whole, share, first) if stratified else (whole[:first], whole[first:])


def _strata(data: Dataset, share: float, first: int) -> tuple[Dataset, Dataset]:
    """`first` examples and the others; of each class its share, and those left over go where most of one is missing."""
    places: dict[Any, list[int]] = {}
    if isinstance(data.targets[0], list):
        raise TypeError("a stratified split needs one class per example, got lists as targets: leave `stratified` out")
    for place, target in enumerate(data.targets):
        places.setdefault(target, []).append(place)
    taken = {target: int(share * len(own)) for target, own in places.items()}
    missing = sorted(places, key=lambda target: taken[target] - share * len(places[target]))
    for target in missing[: first - sum(taken.values())]:
        taken[target] += 1
    chosen = {place for target, own in places.items() for place in own[: taken[target]]}
    one, other = (data._chosen(k for k in range(len(data)) if (k in chosen) is wanted) for wanted in (True, False))
    return one, other


@overload
def standardize(training: Examples) -> tuple[Dataset, Scaling]: ...
@overload
def standardize(training: Examples, other: Examples, /) -> tuple[Dataset, Dataset, Scaling]: ...
@overload
def standardize(training: Examples, *others: Examples) -> tuple[Any, ...]: ...
def standardize(training: Examples, *others: Examples) -> tuple[Any, ...]:
    """The data sets with each column of the inputs at mean 0 and deviation 1 in `training`; and the scaling, for rows.

    The others are scaled by the same numbers, so nothing is learned from them. A column that is constant becomes 0.

    >>> train, test, scaling = standardize(Dataset([[1.0, 7.0], [3.0, 7.0]], [0, 1]), Dataset([[5.0, 7.0]], [1]))
    >>> train.inputs, test.inputs
    ([[-1.0, 0.0], [1.0, 0.0]], [[3.0, 0.0]])
    >>> scaling([2.0, 7.0]), scaling.undo([0.5, 0.0])
    ([0.0, 0.0], [2.5, 7.0])
    """
    first = dataset(training, "training")
    sets = [first, *(dataset(other, f"others[{k}]", first) for k, other in enumerate(others))]
    scaling = Scaling.of(first.inputs, first.columns)
    return *(one._with(scaling(one.inputs), one.targets) for one in sets), scaling


Point = Callable[[int, int, int], tuple[float, float]]


def _draw(point: Point, n: int, noise: float, seed: int, classes: int = 2) -> Dataset:
    """`n` examples over all classes; `point` says where the i-th of the `count` examples of a class lies."""
    n, width = whole_number(n, "n", classes), setting(noise, "noise", "0.1")
    rng = Random(whole_number(seed, "seed", 0))
    inputs, targets = [], []
    for label in range(classes):
        count = (label + 1) * n // classes - label * n // classes
        for i in range(count):
            inputs.append([coordinate + rng.gauss(0.0, width) for coordinate in point(label, i, count)])
            targets.append(label if classes > 2 else 2 * label - 1)
    return shuffle(Dataset(inputs, targets), rng)


def _polar(radius: float, revolutions: float) -> tuple[float, float]:
    angle = 2.0 * math.pi * revolutions
    return radius * math.cos(angle), radius * math.sin(angle)


def dataset(data: Any, argument: str = "data", like: Dataset | None = None) -> Dataset:
    """`data` itself, or the examples in a pair `(X, y)`; refused if columns or classes are not those of `like`."""
    if isinstance(data, tuple) and len(data) == 2:
        data = _examples_of_pair(data, argument, like)
    if not isinstance(data, Dataset):
        came = f"a tuple of {len(data)}" if isinstance(data, tuple) else type(data).__name__
        remedy = "give a tuple of inputs and targets, or make one with Dataset(inputs, targets)"
        raise TypeError(f"`{argument}` must be a Dataset or a pair (X, y), got {came}: {remedy}")
    for kind, remedy in (
        ("columns", "choose the same, in the same order"),
        ("classes", "read it with those `classes`"),
    ):
        own, others = getattr(data, kind), getattr(like, kind, [])
        if own and others and own != others:
            names = f"{_in_words(own)}, and the training data has {_in_words(others)}"
            raise ValueError(f"`{argument}` has the {kind} {names}: {remedy}")
    return data


def _examples_of_pair(pair: tuple[Any, Any], argument: str, like: Dataset | None) -> Dataset:
    if not like:
        return Dataset._read(*pair, argument, "auto", None)
    examples = Dataset._read(*pair, argument, "auto", like.classes or None)
    width, row = len(examples.inputs[0]), like.inputs[0]
    if isinstance(row, list) and len(row) != width:
        widths = f"{counted(width, 'column')} and the training data {len(row)}"
        raise ValueError(f"`X` of `{argument}` has {widths}: give the same columns")
    if examples.classes and not like.classes:
        remedy = "read both as labels, or both as numbers"
        raise ValueError(f"`y` of `{argument}` has labels, and the training data has numbers as targets: {remedy}")
    return examples


def _in_words(names: list[Any]) -> str:
    return listed([str(name) for name in names])
