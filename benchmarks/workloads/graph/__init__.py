"""About 100,000 nodes of products, sums and relus: what a node costs."""

import random

import numpy as np

from workloads.problems import Problem


def problem(size: int) -> Problem:
    """So many leaves, small so that no number in the graph grows."""
    draw = random.Random(1337).uniform
    return Problem(np.array([draw(-0.45, 0.45) for _ in range(size)]), np.zeros((1, 1)), np.zeros(1))


def nodes(size: int) -> int:
    return 5 * size**2 + size
