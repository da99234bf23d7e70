"""Places in memory: arrays that are never needed at the same time share one.

An array lives from the first step that touches it to the last. Whatever a program reads it has written before, so what
another array has left in a place does no harm. (The rows of a recurrence are one array, and all of them live as long as
any.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from chainrule.compiler.passes.program import Array, Statement

Lives = dict[Array, tuple[int, int]]  # the first step that touches an array, and the last


def lives_in(steps: Iterable[Iterable[Statement]]) -> Lives:
    """How long each array lives, in order of their first steps."""
    lives: Lives = {}
    for time, body in enumerate(steps):
        for statement in body:
            for access in (statement.target, *statement.accesses()):
                lives[access.array] = lives.get(access.array, (time, time))[0], time
    return lives


def places(
    lives: Lives, size: Callable[[Array], int], replaced: Mapping[Array, Array] | None = None
) -> tuple[dict[Array, int], int]:
    """Where each array begins, and how much memory all take: the first place that is free while it lives.

    `replaced` says of some arrays whose place they take at the very step that needs that other array last. They need
    no more room than it.
    """
    offsets: dict[Array, int] = {}
    living: list[Array] = []
    whole = 0
    for array, (first, _) in lives.items():
        living = sorted((other for other in living if lives[other][1] >= first), key=offsets.__getitem__)
        before = (replaced or {}).get(array)
        taken = [(offsets[other], size(other)) for other in living]
        place = offsets[array] = offsets[before] if before in offsets else _first_gap(size(array), taken)
        living.append(array)
        whole = max(whole, place + size(array))
    return offsets, whole


def _first_gap(size: int, taken: Iterable[tuple[int, int]]) -> int:
    """The first place for so many numbers beside others, given by where each begins, in order, and its size."""
    place = 0
    for start, length in taken:
        if start - place >= size:
            break
        place = max(place, start + length)
    return place
