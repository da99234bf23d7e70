"""A flat array while a program is traced: pieces one after another, of which some are known to be zeros.

A statement usually writes a part of an array and another reads that part again. Here the one hands its vector to the
other, without an update of the whole array and a slice of the result, which XLA would compute as such in every loop.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


class Pieces:
    """A vector of `size` numbers. It starts as zeros, or as the vector that is given."""

    def __init__(self, size: int, dtype: Any, vector: Any = None) -> None:
        self.size = size
        self.dtype = dtype
        self.parts: list[tuple[int, int, Any]] = [(0, size, vector)]  # start, stop, vector; None: zeros

    @property
    def starts(self) -> list[int]:
        """Where pieces begin."""
        return [start for start, _, _ in self.parts]

    def is_zero(self, start: int, stop: int) -> bool:
        """Whether nothing was ever written here."""
        return all(vector is None for _, _, vector in self._between(start, stop))

    def read(self, start: int, stop: int) -> Any:
        """The vector from `start` to `stop`. If it lies in several pieces, they are one from now on."""
        if start == stop:
            return jnp.zeros(0, self.dtype)
        touched = [(begin, end, vector) for begin, end, vector in self.parts if begin < stop and start < end]
        if len(touched) > 1:
            first, last = touched[0][0], touched[-1][1]
            zeros = [jnp.zeros(end - begin, self.dtype) if v is None else v for begin, end, v in touched]
            place = self.parts.index(touched[0])
            self.parts[place : place + len(touched)] = [(first, last, jnp.concatenate(zeros))]
        ((_, _, vector),) = self._between(start, stop)
        return jnp.zeros(stop - start, self.dtype) if vector is None else vector

    def write(self, start: int, vector: Any) -> None:
        """Put a vector in the place of what begins at `start`."""
        stop = start + len(vector)
        self.parts = [*self._between(0, start), (start, stop, vector), *self._between(stop, self.size)]

    def whole(self) -> Any:
        """All of it, as one vector."""
        return self.read(0, self.size)

    def join(self) -> None:
        """Make one piece of all."""
        self.parts = [(0, self.size, self.whole())]

    def _between(self, start: int, stop: int) -> list[tuple[int, int, Any]]:
        """The parts of pieces between two places."""
        found = []
        for begin, end, vector in self.parts:
            first, last = max(begin, start), min(end, stop)
            if first < last:
                is_all = vector is None or (first, last) == (begin, end)
                found.append((first, last, vector if is_all else vector[first - begin : last - begin]))
        return found
