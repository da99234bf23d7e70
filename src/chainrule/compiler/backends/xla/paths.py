"""How loops walk through a flat array, for XLA to see slices and reshapes in place of positions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from chainrule.compiler.passes.program import Access, Shape


class Path:
    """How loops walk through a segment of an array: by decreasing strides, where none overlaps the one before."""

    def __init__(self, start: int, axes: Sequence[tuple[int, int, int]], backward: Sequence[int]) -> None:
        self.start = start
        self.strides = [stride for stride, _, _ in axes]
        self.extents = [extent for _, extent, _ in axes]
        self.loops = [loop for _, _, loop in axes]
        self.length = 1 + sum(stride * (extent - 1) for stride, extent, _ in axes)
        self.reversed_axes = [k for k, loop in enumerate(self.loops) if loop in backward]

    @classmethod
    def of(cls, access: Access, loops: Shape) -> Path | None:
        """The path of an access without a table, at time 0; None if loops overlap."""
        moves = [(stride, n, d) for d, (stride, n) in enumerate(zip(access.strides, loops, strict=True)) if n > 1]
        start = access.base + sum(stride * (n - 1) for stride, n, _ in moves if stride < 0)
        axes = sorted(((abs(stride), n, d) for stride, n, d in moves if stride), reverse=True)
        pairs = pairwise(axes)
        if any(inner * extent > outer for (outer, _, _), (inner, extent, _) in pairs):
            return None
        return cls(start, axes, [d for stride, _, d in moves if stride < 0])

    @property
    def is_dense(self) -> bool:
        """Whether it visits every element of the segment."""
        return self.length == np.prod(self.extents)

    def spread(self, segment: Any) -> Any:
        """The elements on the path, with one axis per loop."""
        if not self.strides:
            return segment.reshape(())
        value = segment
        for k, (stride, extent) in enumerate(zip(self.strides[:-1], self.extents[:-1], strict=True)):
            value = jnp.pad(value, (0, stride * extent - self.length)) if k == 0 else value[..., : stride * extent]
            value = value.reshape(*self.extents[: k + 1], stride)
        last, extent = self.strides[-1], self.extents[-1]
        return value[..., : last * (extent - 1) + 1 : last]

    def packed(self, value: Any) -> Any:
        """The segment with these elements on the path, and zeros elsewhere."""
        if not self.strides:
            return value.reshape(1)
        value = self._padded(value, len(self.strides) - 1, self.strides[-1] - 1)
        for k in reversed(range(len(self.strides) - 1)):
            value = self._padded(value.reshape(*self.extents[:k], -1), k, 0)
        return value[: self.length]

    def _padded(self, value: Any, k: int, between: int) -> Any:
        """The last axis, that of loop k, padded to the stride of the loop around it."""
        length = value.shape[-1] + between * (value.shape[-1] - 1)
        after = self.strides[k - 1] - length if k else 0
        return lax.pad(value, jnp.zeros((), value.dtype), [(0, 0, 0)] * (value.ndim - 1) + [(0, after, between)])

    def touched(self) -> np.ndarray:
        """Which elements of the segment are on the path."""
        places = np.zeros(self.extents, dtype=np.int64)
        for k, (stride, extent) in enumerate(zip(self.strides, self.extents, strict=True)):
            places += stride * np.arange(extent).reshape([-1 if j == k else 1 for j in range(len(self.extents))])
        mask = np.zeros(self.length, dtype=bool)
        mask[places] = True
        return mask
