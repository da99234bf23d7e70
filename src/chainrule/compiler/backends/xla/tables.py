"""Writes to irregular places, as reads: each place looks up the numbers that are meant for it.

A scatter is slow on a CPU, and on a GPU its additions are atomic, in any order. The places are known when a program is
traced, so for each of them the numbers that it gets are known too. If all places get as many, they are gathered in so
many rounds. (To fill the rounds of other tables up makes a convolution slower, and nothing much faster.)
"""

from __future__ import annotations

from typing import Any

import numpy as np


def sources(places: np.ndarray, length: int) -> np.ndarray | None:
    """Which of the numbers each of `length` places gets, in a row for each round; None if some get more than others.

    >>> sources(np.array([2, 0, 1, 0, 1, 2]), 3)
    array([[1, 2, 0],
           [3, 4, 5]], dtype=int32)
    """
    counts = np.bincount(places.ravel(), minlength=length)
    if counts.min() < counts.max():
        return None
    order: np.ndarray = np.argsort(places.ravel(), kind="stable")
    return order.reshape(length, -1).T.astype(np.int32)


def gathered(value: Any, rounds: np.ndarray) -> Any:
    """The numbers of all places, a row for each round."""
    return value.ravel().at[rounds].get(mode="promise_in_bounds")
