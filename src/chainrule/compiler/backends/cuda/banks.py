"""Banks: how long shared memory takes for what a warp loads or stores at once.

Shared memory has 32 banks of four bytes, and gives a warp one number of each bank at a time. Lanes that want the same
number get it together; a warp that wants different numbers of one bank, or more than 128 bytes, waits for several
*wavefronts*. Loads of 8 or 16 bytes are done for a half or a quarter of the warp at a time; for twice as many lanes if
each has the same address as the one beside it, or as the one after the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

WARP = 32  # threads that go together
BANKS = 32
WORD = 4  # bytes of a bank


def wavefronts(places: Sequence[int], words: int) -> int:
    """How many wavefronts a warp takes to load `words` neighbouring words (1, 2 or 4) in each lane, at these places."""
    lanes = WARP // words
    if words > 1 and any(all(a == b for a, b in _pairs(places, apart)) for apart in (1, 2)):
        lanes *= 2
    return sum(_conflicts(places[k : k + lanes], words) for k in range(0, len(places), lanes))


def _pairs(places: Sequence[int], apart: int) -> list[tuple[int, int]]:
    return [(place, places[k ^ apart]) for k, place in enumerate(places) if k ^ apart < len(places)]


def _conflicts(places: Sequence[int], words: int) -> int:
    """The most numbers that are wanted of one bank."""
    return max(Counter(place // words % (BANKS // words) for place in set(places)).values())
