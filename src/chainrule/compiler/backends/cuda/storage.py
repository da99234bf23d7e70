"""Storage: in which memory arrays lie, and where.

Arrays of a block's examples are in its shared memory as far as there is room, and otherwise in memory of its own on the
device. Arrays whose numbers are not needed at the same time may have the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chainrule.compiler.passes.program import Array, Statement

OWN = "own"  # the space that each thread has for itself
LINE = 4  # numbers that are loaded at once; arrays begin at multiples
Life = tuple[int, int]  # the first and the last step in which an array is needed


@dataclass(frozen=True)
class Place:
    """A pointer of the kernel, and the first element of an array behind it.

    Of an array in a thread's own memory, only the thread's example is there: every `pitch`th number of the array.
    """

    space: str
    offset: int
    pitch: int = 1


@dataclass
class Storage:
    """Places of arrays, and how many numbers each space has."""

    places: dict[Array, Place] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, space: str, arrays: Iterable[Array]) -> None:
        """Give arrays places of their own, one after another."""
        for array in arrays:
            start = self.sizes.get(space, 0)
            self.places[array] = Place(space, start)
            self.sizes[space] = start + rounded(array.size)

    def fit(self, lives: Mapping[Array, Life], room: int) -> None:
        """Give arrays places in shared memory, beyond what is there and below `room`, or else in scratch memory.

        The largest come first; each takes the first gap among those that live at the same time.
        """
        always = (-1, 1 << 60)
        taken = {space: [(0, self.sizes.get(space, 0), always)] for space in ("shared", "scratch")}
        for array in sorted(lives, key=lambda array: -array.size):
            size, life = rounded(array.size), lives[array]
            offset = _gap(taken["shared"], size, life)
            space = "shared" if offset + size <= room else "scratch"
            if space == "scratch":
                offset = _gap(taken["scratch"], size, life)
            taken[space].append((offset, offset + size, life))
            self.places[array] = Place(space, offset)
            self.sizes[space] = max(self.sizes.get(space, 0), offset + size)

    def keep(self, arrays: Iterable[Array]) -> None:
        """Give arrays places in each thread's own memory."""
        for array in arrays:
            start, apart = self.sizes.get(OWN, 0), pitch(array.examples)
            self.places[array] = Place(OWN, start, apart)
            self.sizes[OWN] = start + array.size // apart

    def overlap(self, a: Array, b: Array) -> bool:
        """Whether two arrays have elements in the same place."""
        one, other = self.places[a], self.places[b]
        if one.space == OWN:  # where each has a place of its own
            return a is b
        ends = one.offset + a.size, other.offset + b.size
        return one.space == other.space and one.offset < ends[1] and other.offset < ends[0]


def pitch(extent: int) -> int:
    """How far apart rows of `extent` numbers lie in shared memory: so that their beginnings are in different banks."""
    return extent + LINE if extent % 32 == 0 else extent


def rounded(size: int) -> int:
    """The room for so many numbers."""
    return -(-size // LINE) * LINE


def _gap(taken: Sequence[tuple[int, int, Life]], size: int, life: Life) -> int:
    """The first place with room for `size` numbers beside those that live at the same time."""
    offset = 0
    for start, stop, (born, last) in sorted(taken):
        if born <= life[1] and life[0] <= last:
            if offset + size <= start:
                return offset
            offset = max(offset, stop)
    return offset


def lives(
    steps: Sequence[Sequence[Statement]], chosen: Iterable[Array], first: set[Array], last: set[Array]
) -> dict[Array, Life]:
    """From which step to which each chosen array is needed; `first` ones from the beginning, `last` to the end.

    The statements of a step are computed together, so none may write where another one reads something else.
    """
    found: dict[Array, Life] = {}
    wanted = set(chosen)
    for k, body in enumerate(steps):
        for statement in body:
            for access in (statement.target, *statement.accesses()):
                if access.array in wanted:
                    found[access.array] = found.get(access.array, (k, k))[0], k
    for array in wanted & first:
        found[array] = -1, found.get(array, (-1, -1))[1]
    for array in wanted & last:
        found[array] = found.get(array, (0, 0))[0], len(steps)
    return found
