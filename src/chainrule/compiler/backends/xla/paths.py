"""How the loops of a statement walk through a flat array without a table, as slices, reshapes and pads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from chainrule.compiler.passes.program import Access, Shape

FEW, SPARSE = 4, 16  # turns of a loop that are read and written one by one, if there is so much between them


class Path:
    """How loops walk through a segment of an array: by decreasing strides, where none overlaps the one before.

    The segment is cut into blocks, one per turn of the outermost of these loops. In each block the path covers `inner`
    elements, and what is left of the stride is free: a block may begin earlier by as much as that.
    """

    def __init__(self, start: int, axes: Sequence[tuple[int, int, int]], backward: Sequence[int]) -> None:
        self.start = start
        self.strides = [stride for stride, _, _ in axes]
        self.extents = [extent for _, extent, _ in axes]
        self.loops = [loop for _, _, loop in axes]
        self.length = 1 + sum(stride * (extent - 1) for stride, extent, _ in axes)
        self.is_dense = self.length == np.prod(self.extents)  # it visits every element of the segment
        self.is_sparse = bool(axes) and self.extents[0] <= FEW and SPARSE * np.prod(self.extents) <= self.length
        self.reversed_axes = [k for k, loop in enumerate(self.loops) if loop in backward]
        self.inner = self.strides[1] * self.extents[1] if len(axes) > 1 else 1
        self.room = self.strides[0] * self.extents[0] if axes else 1

    @classmethod
    def of(cls, access: Access, loops: Shape) -> Path | None:
        """The path of an access without a table, at time 0; None if loops overlap."""
        moves = [(stride, n, d) for d, (stride, n) in enumerate(zip(access.strides, loops, strict=True)) if n > 1]
        start = access.base + sum(stride * (n - 1) for stride, n, _ in moves if stride < 0)
        axes = sorted(((abs(stride), n, d) for stride, n, d in moves if stride), reverse=True)
        if any(inner * extent > outer for (outer, _, _), (inner, extent, _) in pairwise(axes)):
            return None
        return cls(start, axes, [d for stride, _, d in moves if stride < 0])

    def turns(self) -> list[Path]:
        """The paths of the single turns of the outermost loop."""
        inner = list(zip(self.strides[1:], self.extents[1:], self.loops[1:], strict=True))
        return [Path(self.start + k * self.strides[0], inner, []) for k in range(self.extents[0])]

    def before(self, low: int, high: int, starts: Iterable[int] = ()) -> int | None:
        """How far before the path its blocks begin, so that all of them lie between `low` and `high`.

        If one of `starts` will do they begin there. None if they do not fit.
        """
        if not self.strides:
            return 0
        most = min(self.strides[0] - self.inner, self.start - low)
        wanted = [self.start - start for start in starts] + [0, self.start + self.room - high]
        return next((k for k in wanted if 0 <= k <= most and self.start - k + self.room <= high), None)

    def spread(self, blocks: Any, before: int) -> Any:
        """The elements on the path, with one axis per loop; of as many elements as the path has `room`."""
        if not self.strides:
            return blocks.reshape(())
        value = blocks
        for k, (stride, extent) in enumerate(zip(self.strides, self.extents, strict=True)):
            value = value.reshape(*self.extents[:k], extent, stride)
            inner = self.strides[k + 1] * self.extents[k + 1] if k + 1 < len(self.strides) else 1
            first = before if k == 0 else 0
            value = value[..., first : first + inner]
        return value.reshape(self.extents)

    def packed(self, value: Any, before: int) -> Any:
        """Blocks with these elements on the path, and zeros elsewhere."""
        if not self.strides:
            return value.reshape(1)
        for k in reversed(range(len(self.strides))):
            value = value.reshape(*self.extents[: k + 1], -1)
            first = before if k == 0 else 0
            after = self.strides[k] - first - value.shape[-1]
            if first or after:
                sides = [(0, 0, 0)] * (value.ndim - 1) + [(first, after, 0)]
                value = lax.pad(value, jnp.zeros((), value.dtype), sides)
        return value.reshape(self.room)

    def touched(self, before: int) -> np.ndarray:
        """Which elements of the blocks are on the path."""
        mask = np.zeros(self.room, dtype=bool)
        mask[before + np.tensordot(self.strides, np.indices(self.extents), axes=1)] = True
        return mask


MOST_BOXES, MOST_POSITIONS = 4, 2**12  # beyond them a gather is faster, and the program shorter


class Box:
    """A part of a statement's loops in which an access has a path: `shape` turns, from turn `first` of each loop on."""

    def __init__(self, first: Shape, shape: Shape, access: Access) -> None:
        self.turns = tuple(slice(start, start + n) for start, n in zip(first, shape, strict=True))
        self.shape = shape
        self.access = access

    def boxes(self) -> Iterator[Box]:
        yield self

    def assembled(self, read: Callable[[Access, Shape], Any]) -> Any:
        return read(self.access, self.shape)


class Cut:
    """Loops that are cut along an axis into parts."""

    def __init__(self, axis: int, parts: Sequence[Box | Cut]) -> None:
        self.axis = axis
        self.parts = parts

    def boxes(self) -> Iterator[Box]:
        """The boxes that are left in the end."""
        for part in self.parts:
            yield from part.boxes()

    def assembled(self, read: Callable[[Access, Shape], Any]) -> Any:
        """What an access reads, put together from what is read in the boxes."""
        return jnp.concatenate([part.assembled(read) for part in self.parts], self.axis)


def in_boxes(access: Access, loops: Shape) -> Box | Cut | None:
    """The loops of an access with a table, or with loops that overlap, cut into boxes; None if it takes too many."""
    if np.prod(loops) > MOST_POSITIONS:
        return None
    found = _boxes(access, access.positions(loops), (0,) * len(loops))
    return None if found is None or len(list(found.boxes())) > MOST_BOXES else found


def _boxes(access: Access, positions: np.ndarray, first: Shape) -> Box | Cut | None:
    regular = _affine(access, positions)
    if regular is not None and Path.of(regular, positions.shape) is not None:
        return Box(first, positions.shape, regular)
    axis, cuts = _cuts(positions) if regular is None else _every_turn(positions.shape)
    parts: list[Box | Cut] = []
    for start, end in pairwise([*cuts, positions.shape[axis]]):
        begin = tuple(n + start if d == axis else n for d, n in enumerate(first))
        part = _boxes(access, positions.take(range(start, end), axis), begin) if len(cuts) <= MOST_BOXES else None
        if part is None:
            return None
        parts.append(part)
    return Cut(axis, parts)


def _affine(access: Access, positions: np.ndarray) -> Access | None:
    """The access to these positions, if they are `base + Σ stride·index`."""
    base = positions.flat[0]
    strides = [(positions.take(1, d).flat[0] - base) if n > 1 else 0 for d, n in enumerate(positions.shape)]
    found = Access(access.array, base, strides, repeat=access.repeat)
    return found if (found.positions(positions.shape) == positions).all() else None


def _cuts(positions: np.ndarray) -> tuple[int, list[int]]:
    """An axis, and where to cut it into the fewest parts along which positions move by a constant."""
    found = []
    for axis, n in enumerate(positions.shape):
        steps = np.diff(np.moveaxis(positions, axis, 0).reshape(n, -1), axis=0)
        if n > 1:
            cuts, k = [0], 0
            while k < n - 1:
                end = k
                while end < n - 1 and (steps[end] == steps[k, 0]).all():
                    end += 1
                k = max(end, k) + 1
                cuts += [k] if k < n else []
            found.append((len(cuts), axis, cuts))
    _, axis, cuts = min(entry for entry in found if entry[0] > 1)
    return axis, cuts


def _every_turn(loops: Shape) -> tuple[int, list[int]]:
    """The shortest loop, cut into its turns."""
    n, axis = min((n, axis) for axis, n in enumerate(loops) if n > 1)
    return axis, list(range(n))
