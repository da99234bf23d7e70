"""Data sets to learn from: the classic ones in the plane, and functions to shuffle, batch and split any data set.

A set of two classes has the targets -1 and 1, as `losses.hinge` expects; a set of more classes has the indices
0, 1, 2, … that `losses.cross_entropy` expects; xor is arithmetic, with the targets 0 and 1. Sets are drawn at random
from a `seed`, the same set from the same seed, and come in random order. `read_csv` reads a set from a file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, overload

from chainrule.core.arguments import setting, whole_number
from chainrule.data.tables import Table, as_number, read_table

__all__ = [
    "CsvDataset", "Dataset", "batches", "blobs", "circles", "four_points", "micrograd_moons", "moons", "read_csv",
    "shuffle", "spirals", "split", "xor",
]  # fmt: skip


class Dataset:
    """Examples: `inputs[i]` goes with `targets[i]`. It is also a sequence of (input, target) pairs.

    >>> data = Dataset([[0.0, 1.0], [2.0, 3.0]], [1, -1])
    >>> len(data), data[0], [y for x, y in data]
    (2, ([0.0, 1.0], 1), [1, -1])
    """

    __slots__ = ("inputs", "targets")

    def __init__(self, inputs: Iterable[Any], targets: Iterable[Any]) -> None:
        self.inputs, self.targets = list(inputs), list(targets)
        given, wanted = len(self.inputs), len(self.targets)
        if given != wanted:
            raise ValueError(f"`inputs` has {given} entries and `targets` {wanted}: give one target for each input")

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
            return Dataset(self.inputs[index], self.targets[index])
        return self.inputs[index], self.targets[index]

    def __repr__(self) -> str:
        return f"<Dataset of {len(self)} examples>"


class CsvDataset(Dataset):
    """The examples of a CSV file: `columns` names the inputs, `target` the target.

    If the targets are texts, `classes` lists them, and `targets` are indices into that list.

    >>> CsvDataset([[5.1], [4.9]], [0, 1], ["length"], "species", ["setosa", "virginica"])
    <CsvDataset of 2 examples: length -> species (setosa, virginica)>
    """

    __slots__ = ("classes", "columns", "target")

    def __init__(
        self,
        inputs: Iterable[Any],
        targets: Iterable[Any],
        columns: Iterable[str],
        target: str,
        classes: Iterable[str] = (),
    ) -> None:
        super().__init__(inputs, targets)
        self.columns, self.target, self.classes = list(columns), target, list(classes)

    def __repr__(self) -> str:
        classes = f" ({', '.join(self.classes)})" if self.classes else ""
        return f"<CsvDataset of {len(self)} examples: {', '.join(self.columns)} -> {self.target}{classes}>"


def read_csv(
    path: str | os.PathLike[str], target: str | int = -1, header: bool | str = "auto", labels: bool | str = "auto"
) -> CsvDataset:
    """The examples in a CSV file, one per row: the column `target` (a name or an index), and all others as inputs.

    Inputs must be numbers. Targets are numbers, or texts that name classes; `labels=True` makes numbers classes too.
    A first row without a single number is taken for the header, unless `header` is True or False. A cell that is
    missing or of the wrong kind is an error that says where it is: a file is read whole or not at all.

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
    table = read_table(path, header)
    chosen = table.place(target)
    columns = table.names[:chosen] + table.names[chosen + 1 :]
    if not columns:
        found = f"{table.path!r} has one column, {table.names[0][:40]!r}"
        raise ValueError(f"{found}: columns to learn from were expected beside it")
    inputs = table.numbers(columns)
    if labels is True or (labels == "auto" and _names_classes(table, chosen)):
        texts = table.texts(chosen)
        numbers = {text: as_number(text) for text in texts}
        classes = sorted(numbers, key=None if None in numbers.values() else lambda text: (numbers[text], text))
        places = {text: place for place, text in enumerate(classes)}
        return CsvDataset(inputs, [places[text] for text in texts], columns, table.names[chosen], classes)
    return CsvDataset(inputs, [y for (y,) in table.numbers([chosen])], columns, table.names[chosen])


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


def shuffle(data: Dataset, rng: Random) -> Dataset:
    """The same examples in random order.

    >>> len(shuffle(xor(), Random(0)))
    4
    """
    order = list(range(len(_dataset(data))))
    if not hasattr(rng, "shuffle"):
        raise TypeError(f"`rng` must be a random.Random, got {rng!r}: make one with random.Random(seed)")
    rng.shuffle(order)
    return Dataset([data.inputs[i] for i in order], [data.targets[i] for i in order])


def batches(data: Dataset, size: int, rng: Random | None = None) -> list[Dataset]:
    """All examples in batches of `size`, the last one smaller if need be; in random order if there is an `rng`.

    >>> [len(batch) for batch in batches(moons(n=10), size=4)]
    [4, 4, 2]
    """
    whole = _dataset(data) if rng is None else shuffle(data, rng)
    step = whole_number(size, "size")
    return [whole[i : i + step] for i in range(0, len(whole), step)]


def split(
    data: Dataset, fraction: float = 0.8, rng: Random | None = None, stratified: bool = False
) -> tuple[Dataset, Dataset]:
    """Two parts, to train and to test; the first has `fraction` of the examples, chosen at random if there is an `rng`.

    If they are `stratified`, it has that share of each class, as nearly as whole numbers allow.

    >>> train, test = split(moons(n=10), 0.8)
    >>> len(train), len(test)
    (8, 2)
    >>> sorted(split(blobs(n=12), 0.5, Random(1), stratified=True)[1].targets)
    [0, 0, 1, 1, 2, 2]
    """
    whole = _dataset(data) if rng is None else shuffle(data, rng)
    share = setting(fraction, "fraction", "0.8", below=1.0)
    first = round(share * len(whole))
    if first in (0, len(whole)):
        raise ValueError(f"`fraction` {share!r} of {len(whole)} examples leaves a part empty: choose one nearer to 0.5")
    return _strata(whole, share, first) if stratified else (whole[:first], whole[first:])


def _strata(data: Dataset, share: float, first: int) -> tuple[Dataset, Dataset]:
    """`first` examples and the others; of each class its share, and those left over go where most of one is missing."""
    places: dict[Any, list[int]] = {}
    for place, target in enumerate(data.targets):
        places.setdefault(target, []).append(place)
    taken = {target: int(share * len(own)) for target, own in places.items()}
    missing = sorted(places, key=lambda target: taken[target] - share * len(places[target]))
    for target in missing[: first - sum(taken.values())]:
        taken[target] += 1
    chosen = {place for target, own in places.items() for place in own[: taken[target]]}
    parts = ([k for k in range(len(data)) if (k in chosen) is wanted] for wanted in (True, False))
    one, other = (Dataset([data.inputs[k] for k in part], [data.targets[k] for k in part]) for part in parts)
    return one, other


def _names_classes(table: Table, place: int) -> bool:
    """Whether a column holds texts; it is an error if it holds some of both."""
    texts = [(row, cells[place]) for row, cells in table.rows if as_number(cells[place]) is None]
    filled = [row for row, text in texts if text.strip()]
    if filled and len(texts) < len(table):
        share = f"{len(table) - len(texts)} of the {len(table)} entries are numbers"
        table.complain(filled[0], place, "a number", f"{share}; if they name classes, say `labels=True`")
    return bool(filled)


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


def _dataset(data: Any) -> Dataset:
    if not isinstance(data, Dataset):
        raise TypeError(f"`data` must be a Dataset, got {type(data).__name__}: make one with Dataset(inputs, targets)")
    return data
