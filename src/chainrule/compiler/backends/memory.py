"""Memory that begins at a cache line: vectors do not straddle two lines, and XLA takes such arrays without a copy.

It goes on for some lines: where there are no masks, a vector may reach beyond what it is loaded for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LINE = 64  # bytes
BEYOND = 4 * LINE  # as much as the widest vector has


def zeros(size: int, dtype: Any) -> np.ndarray:
    """An array of zeros that begins at a cache line.

    >>> zeros(3, "float32").ctypes.data % LINE
    0
    """
    itemsize = np.dtype(dtype).itemsize
    raw = np.zeros(size + (LINE + BEYOND) // itemsize, dtype)
    start = -raw.ctypes.data % LINE // itemsize
    return raw[start : start + size]
