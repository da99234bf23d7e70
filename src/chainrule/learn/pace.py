"""Work in slices, so that a page which waits for it can be drawn in between."""

from __future__ import annotations

import time
from collections.abc import Callable


def repeat(act: Callable[[], object], times: int, seconds: float) -> None:
    """Call `act` so many times, or as often as fits into the seconds, but once at least.

    >>> done = []
    >>> repeat(lambda: done.append(1), 3, 60.0)
    >>> done
    [1, 1, 1]
    """
    end = time.monotonic() + seconds
    for _ in range(times):
        act()
        if time.monotonic() > end:
            break
