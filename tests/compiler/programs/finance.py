"""Prices and their sensitivities."""

import math
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


@program(size=32, small=3, numbers=lambda n: [1.5, 0.06, 0.5, -0.6, 0.05])
def heston(m, numbers, n):
    """Calls at sixteen strikes under stochastic volatility, by an integral over the characteristic function."""
    speed, mean, wobble, correlation, variance = numbers

    def times(a, b):
        return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]

    def over(a, b):
        size = b[0] * b[0] + b[1] * b[1]
        return (a[0] * b[0] + a[1] * b[1]) / size, (a[1] * b[0] - a[0] * b[1]) / size

    def characteristic(u):
        beta = speed - 0.5 * correlation * wobble, -correlation * wobble * u
        square = times(beta, beta)
        square = square[0] + wobble * wobble * (u * u + 0.25), square[1]
        radius, angle = (square[0] ** 2 + square[1] ** 2) ** 0.25, 0.5 * m.atan2(square[1], square[0])
        root = radius * m.cos(angle), radius * m.sin(angle)
        low, high = (beta[0] - root[0], beta[1] - root[1]), (beta[0] + root[0], beta[1] + root[1])
        g = over(low, high)
        decay = m.exp(-root[0]) * m.cos(root[1]), -m.exp(-root[0]) * m.sin(root[1])
        faded = times(g, decay)
        one = 1.0 - faded[0], -faded[1]
        ratio = over(one, (1.0 - g[0], -g[1]))
        log = 0.5 * m.log(ratio[0] ** 2 + ratio[1] ** 2), m.atan2(ratio[1], ratio[0])
        slope = over(times(low, (1.0 - decay[0], -decay[1])), one)
        square = wobble * wobble
        exponent = [speed * mean / square * (low[k] - 2.0 * log[k]) + variance / square * slope[k] for k in range(2)]
        return m.exp(exponent[0]) * m.cos(exponent[1]), m.exp(exponent[0]) * m.sin(exponent[1])

    rng, width, total = random.Random(16), 30.0 / n, 0.0
    for strike in range(16):
        moneyness, integral = -0.3 + 0.04 * strike, 0.0
        for k in range(n):
            u = (k + 0.5) * width
            re, im = characteristic(u)
            integral = integral + (re * math.cos(u * moneyness) - im * math.sin(u * moneyness)) / (u * u + 0.25)
        price = 1.0 - math.exp(-0.5 * moneyness) / math.pi * width * integral
        total = total + (price - rng.uniform(0.0, 0.3)) ** 2
    return total


@program(size=24, small=5, numbers=lambda n: [0.02 + 0.0005 * k for k in range(n)])
def yield_curve(m, numbers, n):
    """Discounts from swap rates, one year after another; then bonds are priced with them, and by their yields."""
    discounts = []
    for rate in numbers:
        discounts.append((1.0 - rate * sum(discounts)) / (1.0 + rate))
    rng, total = random.Random(17), 0.0
    for years in range(1, n + 1):
        coupon, market = rng.uniform(0.01, 0.06), rng.uniform(0.01, 0.06)
        price = sum(coupon * discounts[t] for t in range(years)) + discounts[years - 1]
        quoted = sum(coupon / (1.0 + market) ** (t + 1) for t in range(years)) + (1.0 + market) ** -years
        spread = -m.log(discounts[years - 1]) / years
        total = total + (price - quoted) ** 2 + 0.1 * spread * spread
    return total


@program(size=40, small=4, numbers=lambda n: [1.0, 0.02] + [0.13 - 0.06 * k / n for k in range(n)])
def implied_volatility(m, numbers, n):
    """Newton's method, six steps for each of n quoted prices; the volatilities should lie on a line."""
    spot, rate, *prices = numbers

    def normal(x):
        return 0.5 * (1.0 + m.erf(x / 2**0.5))

    total = 0.0
    for k, price in enumerate(prices):
        strike, volatility = 0.95 + 0.2 * k / n, 0.25
        for _ in range(6):
            d1 = (m.log(spot / strike) + rate) / volatility + 0.5 * volatility
            value = spot * normal(d1) - strike * m.exp(-rate) * normal(d1 - volatility)
            slope = spot * m.exp(-0.5 * d1 * d1) / (2 * math.pi) ** 0.5
            volatility = volatility - (value - price) / slope
        total = total + (volatility - 0.2 - 0.1 * k / n) ** 2
    return total
