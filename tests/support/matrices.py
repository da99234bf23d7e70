"""The same numbers as matrices that lie in memory in all the ways that users' arrays do."""

from __future__ import annotations

import numpy as np

LAYOUTS = {
    "rows": lambda x: np.ascontiguousarray(x),
    "columns": lambda x: np.asfortranarray(x),
    "backward": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "some columns of a wider matrix": lambda x: np.hstack([x + 1.0, x, x - 1.0])[:, x.shape[1] : 2 * x.shape[1]],
    "every second column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "every third row": lambda x: np.repeat(x, 3, axis=0)[::3],
    "not aligned": lambda x: _not_aligned(x),
    "bytes swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "integers": lambda x: x,
}


def _not_aligned(x: np.ndarray) -> np.ndarray:
    room = np.zeros(x.nbytes + 3, dtype=np.uint8)
    found = room[3:].view(np.uint8)[: x.nbytes].view()
    other = np.ndarray(x.shape, x.dtype, buffer=found.data)
    other[:] = x
    assert not other.flags.aligned
    return other
