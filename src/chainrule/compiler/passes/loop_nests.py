"""From positions to loops: the nest in which what the members of a class read is `base + Σ stride·index`.

Positions are integers, a row for each member of a class and a column for each term. Whatever they are made of, the nest
is found from the inside out: how long does the first step repeat; does the block repeat; and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import gcd
from typing import NamedTuple

import numpy as np

from chainrule.compiler.passes.program import Array, Shape


class Factor(NamedTuple):
    """What a slot reads: positions in an array, one row per member and one column per term; or constants themselves.

    In a recurrence the positions are those of the first time, and move by `repeat` from each time to the next. The
    first axis of constants is the time, which outside of a recurrence has length 1.
    """

    array: Array | None
    positions: np.ndarray
    repeat: int = 0

    def of(self, start: int, stop: int) -> Factor:
        """The same in some of the rows."""
        return self._replace(positions=self.positions[..., start:stop, :])


def loop_nest(streams: np.ndarray) -> tuple[Shape, list[Shape]] | None:
    """The nest in which every row of `streams` is affine: its extents and each row's strides. None if there is none.

    >>> loop_nest(np.array([[0, 1, 2, 0, 1, 2], [5, 5, 5, 7, 7, 7]]))
    ((2, 3), [(0, 1), (2, 0)])
    """
    extents: list[int] = []
    strides: list[np.ndarray] = []
    while (length := streams.shape[1]) > 1:
        steps = np.diff(streams, axis=1)
        breaks = np.flatnonzero((steps != steps[:, :1]).any(axis=0))
        run = gcd(int(breaks[0]) + 1, length) if len(breaks) else length
        if run == 1:
            return None
        blocks = streams.reshape(len(streams), length // run, run)
        offsets = blocks - blocks[:, :, :1]
        if (offsets != offsets[:, :1]).any():
            return None
        extents.insert(0, run)
        strides.insert(0, steps[:, 0])
        streams = blocks[:, :, 0]
    return tuple(extents), [tuple(int(s[row]) for s in strides) for row in range(len(streams))]


def joint_nest(streams: Sequence[tuple[bool, np.ndarray | None]]) -> tuple[Shape | None, list[Shape | None]]:
    """A nest for the streams of which it is required, and for as many others as fit in; and the strides of each.

    >>> joint_nest([(False, np.array([3, 1, 2, 5])), (False, np.array([0, 0, 7, 7])), (False, None)])
    ((2, 2), [None, (7, 0), None])
    """
    kept = [k for k, (required, _) in enumerate(streams) if required]
    nest = loop_nest(np.array([streams[k][1] for k in kept])) if kept else None
    if nest or not kept:
        for k, (required, stream) in enumerate(streams):
            more = None if required or stream is None else loop_nest(np.array([streams[j][1] for j in [*kept, k]]))
            if more is not None:
                kept, nest = [*kept, k], more
    if nest is None:
        return None, [None] * len(streams)
    strides = dict(zip(kept, nest[1], strict=True))
    return nest[0], [strides.get(k) for k in range(len(streams))]


def rows_together(slots: list[list[Factor]], signs: list[int]) -> tuple[list[list[Factor]], list[int]]:
    """Terms that are rows of one array, or products of such rows, merged into one slot that goes through all rows.

    So is the sum over the results of a recurrence's steps. Products are merged where no table is needed for that.
    """
    groups: dict[tuple[int, object], list[list[Factor]]] = {}
    for factors, sign in zip(slots, signs, strict=True):
        constant = factors[0].array is None and len(factors) == 1
        key = len(groups) if constant else tuple([(factor.array, factor.repeat) for factor in factors])
        groups.setdefault((sign, key), []).append(factors)
    merged: list[tuple[list[Factor], int]] = []
    for (sign, _), group in groups.items():
        together = [_side_by_side(side) for side in zip(*group, strict=True)]
        is_one = len(group) == 1 or len(together) == 1 or _is_affine(together)
        merged += [(factors, sign) for factors in ([together] if is_one else group)]
    return [factors for factors, _ in merged], [sign for _, sign in merged]


def _side_by_side(terms: Sequence[Factor]) -> Factor:
    """The same factor of several terms as one that goes through all of them."""
    return terms[0]._replace(positions=np.concatenate([factor.positions for factor in terms], axis=-1))


def _is_affine(factors: list[Factor]) -> bool:
    """Whether a run of terms needs no table."""
    variable = _variable(factors)
    return all(map(have_one_pattern, variable)) and loop_nest(variable[:, 0]) is not None


def outer_loops(slots: list[list[Factor]], count: int) -> tuple[Shape, list[list[Shape] | None]]:
    """The loops over the members of a class, and in them the strides of each slot's variable factors.

    None stands for strides where a slot needs a table. If no nest suits all other slots, there is one loop over all
    members, and a table for each slot that is not affine in it.
    """
    variable = [_variable(factors) for factors in slots]
    if count == 1:
        return (), [[()] * len(each) for each in variable]
    firsts = [each[:, :, 0] if all(map(have_one_pattern, each)) else None for each in variable]
    regular = [each for each in firsts if each is not None]
    nest = loop_nest(np.concatenate(regular)) if regular else None
    if nest is None:
        return (count,), [None if each is None else _in_one_loop(each) for each in firsts]
    strides = iter(nest[1])
    return nest[0], [None if each is None else list(islice(strides, len(each))) for each in firsts]


def _in_one_loop(streams: np.ndarray) -> list[Shape] | None:
    """The stride of each row, if all rows are affine in one loop."""
    steps = np.diff(streams, axis=1)
    return [(int(step),) for step in steps[:, 0]] if (steps == steps[:, :1]).all() else None


def inner_loops(factors: list[Factor], outer: list[Shape] | None) -> tuple[Shape, Iterator[Shape] | None]:
    """The loops over a run of terms, and the variable factors' strides in all loops; None if they need a table."""
    run = factors[0].positions.shape[-1]
    nest = None if outer is None else loop_nest(_variable(factors)[:, 0])
    if outer is None or nest is None:
        return (run,) if run > 1 else (), None
    return nest[0], iter([outside + inside for outside, inside in zip(outer, nest[1], strict=True)])


def _variable(factors: list[Factor]) -> np.ndarray:
    """The positions that those factors read that are not constants: by factor, member and term."""
    positions = [factor.positions for factor in factors if factor.array]
    return np.array(positions, dtype=np.int64).reshape(-1, *factors[0].positions.shape[-2:])


def have_one_pattern(positions: np.ndarray) -> bool:
    """Whether all rows of positions are one row, moved."""
    return bool((positions - positions[:, :1] == positions[:1] - positions[:1, :1]).all())
