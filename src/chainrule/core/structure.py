"""Structure: how the numbers in an argument or a result are arranged, without the numbers.

A number, a list, tuple, named tuple, dict or OrderedDict of structures, or a NumPy array of some shape. Structures are
plain data that can be hashed, so that programs can be kept by the structure they were compiled for. NumPy is used only
where somebody gave an array.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from operator import itemgetter, methodcaller
from typing import Any

NUMBER = "number"
ARRAY = "array"
Structure = Any  # NUMBER, (list, a kind of tuple or Keys, the structures of its entries), or (ARRAY, its shape)


@dataclass(frozen=True)
class Keys:
    """What makes a dict of its entries, as `list` makes a list of them.

    >>> Keys(("a", "b"))([1.0, 2.0])
    {'a': 1.0, 'b': 2.0}
    """

    keys: tuple[Hashable, ...]
    kind: type[dict[Any, Any]] = dict

    def __call__(self, entries: Sequence[Any]) -> dict[Hashable, Any]:
        return self.kind(zip(self.keys, entries, strict=True))


@dataclass(frozen=True)
class Static:
    """What makes something that has no numbers in it, such as a string or None: the thing itself.

    >>> Static("tanh")([])
    'tanh'
    """

    value: Hashable

    def __call__(self, entries: Sequence[Any]) -> Any:
        return self.value


class Named(dict[str, Any]):
    """Arguments that were given by name, as one more argument."""


def made(kind: Any, entries: Sequence[Any]) -> Any:
    """What a structure of this kind is with these entries: a list, a tuple, a named tuple or a dict of them.

    >>> made(tuple, [1.0, 2.0])
    (1.0, 2.0)
    """
    return getattr(kind, "_make", kind)(entries)  # `_make` is what a named tuple is made by


def flatten(thing: Any, leaves: list[Any], accept: Callable[[Any], Any], floats: bool = False) -> Structure:
    """Returns the structure of `thing`; appends `accept(number)` to `leaves` for each number, from left to right.

    With `floats`, floats are appended as they are, which is fast for long lists and arrays.

    >>> numbers = []
    >>> flatten([1, {"w": 2.5}], numbers, float) == (list, (NUMBER, (Keys(("w",)), (NUMBER,))))
    True
    >>> numbers
    [1.0, 2.5]
    """
    apart = _taken_apart(thing)
    if apart is not None:
        kind, entries = apart
        if floats and set(map(type, entries)) == {float}:
            leaves.extend(entries)
            return kind, (NUMBER,) * len(entries)
        return kind, tuple([flatten(entry, leaves, accept, floats) for entry in entries])
    if is_array(thing):
        check_plain(thing)
        numbers = thing.reshape(-1).tolist()
        leaves.extend(numbers if floats and thing.dtype.kind in "fiub" and thing.ndim else map(accept, numbers))
        return (ARRAY, thing.shape) if thing.ndim else NUMBER
    leaves.append(accept(thing))
    return NUMBER


def _taken_apart(thing: Any) -> tuple[Any, Collection[Any]] | None:
    """What makes a list, a tuple or a dict of its entries, and these; None if it is none of them."""
    kind = type(thing)
    if kind in (list, tuple) or (isinstance(thing, tuple) and hasattr(thing, "_make")):
        return kind, thing
    return (Keys(tuple(thing), kind), thing.values()) if kind in (dict, OrderedDict, Named) else None


def is_array(thing: Any) -> bool:
    """Whether it is a NumPy array; NumPy is not imported to find out."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(thing, numpy.ndarray)


def check_plain(array: Any) -> None:
    """Refuse an array that is more than its numbers: some of them may be hidden, or `*` may be another product.

    >>> import numpy as np
    >>> check_plain(np.ma.masked_invalid([1.0, np.nan]))
    Traceback (most recent call last):
    ...
    TypeError: an array must not be a numpy MaskedArray: give np.asarray(...), or what `.filled(...)` returns
    """
    kind = type(array).__name__
    if kind in ("MaskedArray", "matrix"):
        filled = ", or what `.filled(...)` returns" if kind == "MaskedArray" else ""
        raise TypeError(f"an array must not be a numpy {kind}: give np.asarray(...){filled}")


def build(structure: Structure, leaves: Iterator[Any], dtype: Any = object) -> Any:
    """What `flatten` took apart, with the next leaves in it; arrays are of type `dtype`."""
    if structure == NUMBER:
        return next(leaves)
    kind, parts = structure
    if kind is not ARRAY:
        numbers = parts == (NUMBER,) * len(parts)  # mostly: taken at once
        entries = list(islice(leaves, len(parts))) if numbers else [build(part, leaves, dtype) for part in parts]
        return entries if kind is list else made(kind, entries)
    import numpy as np

    size = prod(parts)
    return np.fromiter(islice(leaves, size), dtype, size).reshape(parts)


def arrangement(structure: Structure) -> Callable[[Any], Any]:
    """A function that does as `build` with an array of numbers; arrays are views of its parts.

    >>> import numpy as np
    >>> arrangement((tuple, (NUMBER, (ARRAY, (2,)), (list, (NUMBER, NUMBER)))))(np.arange(5.0))
    (0.0, array([1., 2.]), [3.0, 4.0])
    """
    has_arrays, start = _has_arrays(structure), 0

    def maker(structure: Structure) -> Callable[[Any], Any]:
        """Makes the next part, of the array, or of a list of its numbers if no part is an array."""
        nonlocal start
        first = start
        if structure == NUMBER:
            start += 1
            return methodcaller("item", first) if has_arrays else itemgetter(first)
        kind, parts = structure
        if kind is ARRAY:
            stop = start = first + prod(parts)
            return lambda numbers: numbers[first:stop].reshape(parts)
        if parts == (NUMBER,) * len(parts):
            start += len(parts)
            own = itemgetter(slice(first, start))
            taken: Callable[[Any], Any] = (lambda numbers: own(numbers).tolist()) if has_arrays else own
            return taken if kind is list else lambda numbers: made(kind, taken(numbers))
        makers = [maker(part) for part in parts]
        if kind is list:
            return lambda numbers: [make(numbers) for make in makers]
        return lambda numbers: made(kind, [make(numbers) for make in makers])

    whole = maker(structure)
    return whole if has_arrays else lambda numbers: whole(numbers.tolist())


def _has_arrays(structure: Structure) -> bool:
    kind, parts = (None, ()) if structure == NUMBER else structure
    return kind is ARRAY or any(map(_has_arrays, parts))


def batch_of(structure: Structure, rows: Any) -> Any:
    """The structure with an array of all examples in place of each number; `rows` has one row per example.

    An array gets a leading axis.

    >>> import numpy as np
    >>> batch_of((tuple, (NUMBER, (ARRAY, (2,)))), np.arange(6.0).reshape(2, 3))
    (array([0., 3.]), array([[1., 2.],
           [4., 5.]]))
    """
    start = 0

    def arrange(structure: Structure) -> Any:
        nonlocal start
        first = start
        if structure == NUMBER:
            start += 1
            return rows[:, first].copy()
        kind, parts = structure
        if kind is not ARRAY:
            return made(kind, [arrange(part) for part in parts])
        start += prod(parts)
        return rows[:, first:start].copy().reshape(len(rows), *parts)

    return arrange(structure)


def is_one_number(structure: Structure) -> bool:
    """Whether it is a number, or an array that holds one.

    >>> is_one_number((ARRAY, (1,))), is_one_number((list, (NUMBER,)))
    (True, False)
    """
    return structure == NUMBER or (structure[0] is ARRAY and prod(structure[1]) == 1)


def nest(outer: Structure, inner: Structure) -> Structure:
    """`outer` with `inner` in place of each number, as a Jacobian has it; two arrays make one.

    >>> nest((list, (NUMBER, NUMBER)), (ARRAY, (3,)))
    (<class 'list'>, (('array', (3,)), ('array', (3,))))
    >>> nest((ARRAY, (2,)), (ARRAY, (3,)))
    ('array', (2, 3))
    """
    if outer == NUMBER:
        return inner
    kind, parts = outer
    if kind is not ARRAY:
        return kind, tuple([nest(part, inner) for part in parts])
    if inner == NUMBER:
        return outer
    if inner[0] is ARRAY:
        return ARRAY, (*parts, *inner[1])
    for size in reversed(parts):
        inner = list, (inner,) * size
    return inner


def difference(old: Structure, new: Structure, what: str) -> str:
    """What changed from one structure to another, in words.

    >>> difference((list, (NUMBER,)), (list, (NUMBER, NUMBER)), "argument 0")
    'argument 0 was a list of 1 and is a list of 2'
    """
    if old != NUMBER and new != NUMBER and old[0] == new[0] != ARRAY and len(old[1]) == len(new[1]):
        for k, (before, after) in enumerate(zip(old[1], new[1], strict=True)):
            if before != after:
                return difference(before, after, what + place(old[0], k))
    return f"{what} was {words(old)} and is {words(new)}"


def place(kind: Any, k: int) -> str:
    """How Python writes entry `k` of a list, a tuple, a named tuple or a dict.

    >>> place(list, 0), place(Keys(("a", "b")), 1)
    ('[0]', "['b']")
    """
    if isinstance(kind, Keys):
        return f"[{kind.keys[k]!r}]"
    return f".{kind._fields[k]}" if hasattr(kind, "_fields") else f"[{k}]"


def places(structure: Structure, name: str) -> list[str]:
    """Where each number of a structure called `name` stands, from left to right.

    >>> places((list, (NUMBER, (ARRAY, (2,)))), "x")
    ['x[0]', 'x[1][0]', 'x[1][1]']
    """
    if structure == NUMBER:
        return [name]
    kind, parts = structure
    if kind is ARRAY:
        return [name + "".join(f"[{k}]" for k in index) for index in product(*map(range, parts))]
    return [found for k, part in enumerate(parts) for found in places(part, name + place(kind, k))]


def words(structure: Structure) -> str:
    """The outermost of a structure.

    >>> words((list, (NUMBER, NUMBER)))
    'a list of 2'
    """
    if structure == NUMBER:
        return "a number"
    kind, parts = structure
    if isinstance(kind, Keys):
        kind_of_dict = {"dict": "a dict", "Named": "names"}.get(kind.kind.__name__, "an OrderedDict")
        return f"{kind_of_dict} of {', '.join(map(repr, kind.keys)) or 'nothing'}"
    if isinstance(kind, Static):
        return repr(kind.value)
    return f"an array of shape {parts}" if kind is ARRAY else f"a {kind.__name__} of {len(parts)}"
