"""Structure: how the numbers in an argument or a result are arranged, without the numbers.

A number, a list or tuple of structures, or a NumPy array of some shape. Structures are plain hashable data, so that
programs can be kept by the structure they were compiled for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

NUMBER = "number"
Structure = Any  # NUMBER, (list or tuple, the structures of its entries), or (np.ndarray, its shape)


def flatten(thing: Any, leaves: list[Any], accept: Callable[[Any], Any], floats: bool = False) -> Structure:
    """The structure of `thing`; its numbers go to `leaves`, from left to right, each as `accept` gives it.

    `floats` says that floats are wanted as they are, which makes long lists and arrays of them quick.

    >>> numbers = []
    >>> flatten([1, [2.5]], numbers, float) == (list, (NUMBER, (list, (NUMBER,))))
    True
    >>> numbers
    [1.0, 2.5]
    """
    kind = type(thing)
    if kind is list or kind is tuple:
        if floats and set(map(type, thing)) == {float}:
            leaves.extend(thing)
            return kind, (NUMBER,) * len(thing)
        return kind, tuple([flatten(entry, leaves, accept, floats) for entry in thing])
    if isinstance(thing, np.ndarray) and thing.ndim:
        if floats and thing.dtype.kind in "fiub":
            leaves.extend(thing.reshape(-1).tolist())
        else:
            leaves.extend(map(accept, thing.reshape(-1).tolist()))
        return np.ndarray, thing.shape
    leaves.append(accept(thing.item() if isinstance(thing, np.ndarray) else thing))
    return NUMBER


def build(structure: Structure, leaves: Iterator[Any], dtype: Any = object) -> Any:
    """What `flatten` took apart, with the next leaves in it; arrays are of type `dtype`."""
    if structure == NUMBER:
        return next(leaves)
    kind, parts = structure
    if kind is np.ndarray:
        array = np.empty(prod(parts), dtype=dtype)
        for k in range(len(array)):
            array[k] = next(leaves)
        return array.reshape(parts)
    return kind([build(part, leaves, dtype) for part in parts])


def difference(old: Structure, new: Structure, what: str) -> str:
    """What changed from one structure to another, in words.

    >>> difference((list, (NUMBER,)), (list, (NUMBER, NUMBER)), "argument 0")
    'argument 0 was a list of 1 and is a list of 2'
    """
    if old != NUMBER and new != NUMBER and old[0] is new[0] is not np.ndarray and len(old[1]) == len(new[1]):
        for k, (before, after) in enumerate(zip(old[1], new[1], strict=True)):
            if before != after:
                return difference(before, after, f"{what}[{k}]")
    return f"{what} was {_words(old)} and is {_words(new)}"


def _words(structure: Structure) -> str:
    if structure == NUMBER:
        return "a number"
    kind, parts = structure
    return f"an array of shape {parts}" if kind is np.ndarray else f"a {kind.__name__} of {len(parts)}"
