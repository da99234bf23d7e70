"""Prices and their sensitivities."""

import random

from .registry import program


@program(size=40, small=6, numbers=lambda n: [1.0, 0.2, 0.03])
def american_option(m, numbers, n):
    """A put on a tree, which may be exercised at any date."""
    spot, volatility, rate = numbers
    dt = 1.0 / n
    up = m.exp(volatility * dt**0.5)
    discount = m.exp(-rate * dt)
    chance = (m.exp(rate * dt) - 1.0 / up) / (up - 1.0 / up)
    values = [m.maximum(1.1 - spot * up ** (2 * j - n), 0.0) for j in range(n + 1)]
    for step in reversed(range(n)):
        kept = [discount * (chance * values[j + 1] + (1.0 - chance) * values[j]) for j in range(step + 1)]
        values = [m.maximum(kept[j], 1.1 - spot * up ** (2 * j - step)) for j in range(step + 1)]
    return values[0]


@program(size=50, small=5, numbers=lambda n: [1.0, 0.3, 0.02])
def asian_option(m, numbers, n):
    """The mean of a price over twelve dates, simulated along n paths."""
    spot, volatility, rate = numbers
    rng, total = random.Random(1), 0.0
    for _ in range(n):
        price, mean = spot, 0.0
        for _ in range(12):
            drift = (rate - 0.5 * volatility * volatility) / 12
            price = price * m.exp(drift + volatility * (1 / 12) ** 0.5 * rng.gauss(0, 1))
            mean = mean + price / 12
        total = total + m.maximum(mean - 1.0, 0.0)
    return total / n


@program(size=120, small=8, numbers=lambda n: [0.05, 0.1, 0.85])
def volatility_that_clusters(m, numbers, n):
    """The likelihood of a GARCH model."""
    base, news, memory = numbers
    rng, variance, total = random.Random(2), 0.1, 0.0
    for _ in range(n):
        surprise = rng.gauss(0, 0.4)
        variance = base + news * surprise * surprise + memory * variance
        total = total + m.log(variance) + surprise * surprise / variance
    return total
