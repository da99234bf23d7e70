"""The rows of the op table as shipped, numbers to try them on, and which of them mpmath can differentiate."""

import random

import mpmath_ops
from chainrule import ops

TABLE = dict(ops.TABLE)  # other tests may add some
WITHOUT_GRADIENT = {"lt", "le", "gt", "ge", "eq", "ne", "larger", "finite"}
MPMATH = {name: oracle for name, oracle in mpmath_ops.FUNCTIONS.items() if name not in WITHOUT_GRADIENT}


def samples(row, count, seed=0):
    rng = random.Random(f"{row.name} {seed}")
    return [[rng.uniform(*interval) for interval in row.domain] for _ in range(count)]
