"""An Asian call by Monte Carlo: its price, and the derivatives by spot, volatility, rate and years.

Prices at 12 dates follow a geometric Brownian motion; the right to buy at 105 pays by their average.
"""

import numpy as np

from workloads.problems import Problem

DATES = 12


def problem(size: int) -> Problem:
    shocks = np.random.default_rng(7).standard_normal((size, DATES))
    return Problem(np.array([100.0, 0.2, 0.03, 1.0]), shocks, np.zeros(size))
