"""Prices and their sensitivities."""

from __future__ import annotations

import math
import random

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import erf


def american_option(x, n):
    spot, volatility, rate = x
    dt = 1.0 / n
    up, discount = jnp.exp(volatility * dt**0.5), jnp.exp(-rate * dt)
    chance = (jnp.exp(rate * dt) - 1.0 / up) / (up - 1.0 / up)
    j = jnp.arange(n + 1)

    def step(values, step):
        kept = discount * (chance * jnp.roll(values, -1) + (1.0 - chance) * values)
        return jnp.maximum(kept, 1.1 - spot * up ** (2.0 * j - step)), None

    values, _ = lax.scan(step, jnp.maximum(1.1 - spot * up ** (2.0 * j - n), 0.0), jnp.arange(n - 1.0, -1.0, -1.0))
    return values[0]


def asian_option(x, n):
    spot, volatility, rate = x
    rng = random.Random(1)
    noise = np.array([[rng.gauss(0, 1) for _ in range(12)] for _ in range(n)])
    steps = (rate - 0.5 * volatility * volatility) / 12 + volatility * (1 / 12) ** 0.5 * noise
    means = jnp.mean(spot * jnp.exp(jnp.cumsum(steps, 1)), 1)
    return jnp.mean(jnp.maximum(means - 1.0, 0.0))


def volatility_that_clusters(x, n):
    base, news, memory = x
    rng = random.Random(2)
    squares = np.array([rng.gauss(0, 0.4) for _ in range(n)]) ** 2

    def step(variance, square):
        variance = base + news * square + memory * variance
        return variance, variance

    _, variances = lax.scan(step, 0.1, squares)
    return jnp.sum(jnp.log(variances) + squares / variances)


def heston(x, n):
    speed, mean, wobble, correlation, variance = x
    rng, width = random.Random(16), 30.0 / n
    quotes = np.array([rng.uniform(0.0, 0.3) for _ in range(16)])
    u, moneyness = (np.arange(n) + 0.5) * width, -0.3 + 0.04 * np.arange(16)
    beta = speed - 0.5 * correlation * wobble - 1j * correlation * wobble * u
    root = jnp.sqrt(beta * beta + wobble * wobble * (u * u + 0.25))
    g, decay = (beta - root) / (beta + root), jnp.exp(-root)
    log, slope = jnp.log((1.0 - g * decay) / (1.0 - g)), (beta - root) * (1.0 - decay) / (1.0 - g * decay)
    phi = jnp.exp((speed * mean * (beta - root - 2.0 * log) + variance * slope) / wobble**2)
    integrals = jnp.real(np.exp(1j * np.outer(moneyness, u)) / (u * u + 0.25) @ phi)
    prices = 1.0 - np.exp(-0.5 * moneyness) / math.pi * width * integrals
    return jnp.sum((prices - quotes) ** 2)


def yield_curve(x, n):
    rng = random.Random(17)
    coupons, markets = np.array([[rng.uniform(0.01, 0.06), rng.uniform(0.01, 0.06)] for _ in range(n)]).T
    years = np.arange(1, n + 1)
    quoted = coupons * (1.0 - (1.0 + markets) ** -years) / markets + (1.0 + markets) ** -years

    def year(annuity, rate):
        discount = (1.0 - rate * annuity) / (1.0 + rate)
        return annuity + discount, discount

    _, discounts = lax.scan(year, 0.0, x)
    prices = coupons * jnp.cumsum(discounts) + discounts
    return jnp.sum((prices - quoted) ** 2 + 0.1 * (jnp.log(discounts) / years) ** 2)


def implied_volatility(x, n):
    spot, rate, prices = x[0], x[1], x[2:]
    line = np.arange(n) / n
    strikes, volatility = 0.95 + 0.2 * line, jnp.full(n, 0.25)
    for _ in range(6):
        d1 = (jnp.log(spot / strikes) + rate) / volatility + 0.5 * volatility
        high, low = 0.5 * (1.0 + erf(d1 / 2**0.5)), 0.5 * (1.0 + erf((d1 - volatility) / 2**0.5))
        slope = spot * jnp.exp(-0.5 * d1 * d1) / (2 * math.pi) ** 0.5
        volatility = volatility - (spot * high - strikes * jnp.exp(-rate) * low - prices) / slope
    return jnp.sum((volatility - 0.2 - 0.1 * line) ** 2)
