"""What an option is worth and how its price moves: Monte Carlo over 100,000 paths, and gradients through all of them.

A path is a loop over numbers, and the payoff a line at its end. Its derivatives, on average over the paths, are the
Greeks. For a European call there are closed forms to compare with (Black and Scholes 1973); for an Asian call, which
pays by the average price, there are none, and only one line is different.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import chainrule
from chainrule import Value, erf, exp, log, relu, sqrt

PATHS, DATES, PARTS = 100_000, 12, 50  # dates on each path; parts of the paths, whose spread gives standard errors
STRIKE = 105.0
GREEKS = {"delta": "spot", "vega": "volatility", "rho": "rate", "theta": "years"}


class Market:
    """What the price depends on, and what the Greeks are derivatives by; theta is minus that by the years left."""

    def __init__(self, spot: float = 100.0, volatility: float = 0.2, rate: float = 0.03, years: float = 1.0) -> None:
        self.spot = Value(spot)
        self.volatility = Value(volatility)
        self.rate = Value(rate)
        self.years = Value(years)

    def values(self) -> list[Value]:
        return [getattr(self, name) for name in GREEKS.values()]


def path(market: Market, shocks: list[Any]) -> list[Any]:
    """Prices at equally spaced dates: a geometric Brownian motion, driven by standard normal numbers."""
    step = market.years / len(shocks)
    drift = (market.rate - market.volatility * market.volatility / 2.0) * step
    spread = market.volatility * sqrt(step)
    price, prices = market.spot, []
    for shock in shocks:
        price = price * exp(drift + spread * shock)
        prices.append(price)
    return prices


def european(market: Market, shocks: list[Any]) -> Any:
    """Today's worth of the right to buy at the strike in the end."""
    return exp(-market.rate * market.years) * relu(path(market, shocks)[-1] - STRIKE)


def asian(market: Market, shocks: list[Any]) -> Any:
    """The same for the average price."""
    return exp(-market.rate * market.years) * relu(chainrule.mean(path(market, shocks)) - STRIKE)


def black_scholes(market: Market) -> Any:
    """The European call's price in closed form; its derivatives are the Greeks in closed form."""
    width = market.volatility * sqrt(market.years)
    forward = log(market.spot / STRIKE) + market.rate * market.years
    above, below = forward / width + width / 2.0, forward / width - width / 2.0
    return market.spot * normal(above) - STRIKE * exp(-market.rate * market.years) * normal(below)


def normal(x: Any) -> Any:
    """The probability that a standard normal number is below x."""
    return (1.0 + erf(x / 2.0**0.5)) / 2.0


Estimates = dict[str, tuple[float, float]]  # by name: a number and its standard error


def simulated(payoff: Callable[[Market, list[Any]], Any], market: Market, shocks: np.ndarray) -> Estimates:
    """Price and Greeks of one payoff."""
    worth = chainrule.compile(lambda shocks: payoff(market, shocks), wrt=market.values())
    rows = []
    for part in np.split(shocks, PARTS):
        price, gradient = worth.batch_value_and_grad(part)
        rows.append([price, *gradient])
    means, errors = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / PARTS**0.5
    return _by_name(means, errors)


def exact(market: Market) -> Estimates:
    """Price and Greeks of the European call, from the closed form."""
    price = black_scholes(market)
    for value in market.values():
        value.grad = 0.0
    price.backward()
    return _by_name([price.data, *(value.grad for value in market.values())], [0.0] * 5)


def _by_name(means: Any, errors: Any) -> Estimates:
    found = {name: (float(m), float(e)) for name, m, e in zip(["price", *GREEKS], means, errors, strict=True)}
    found["theta"] = (-found["theta"][0], found["theta"][1])
    return found


def main() -> None:
    market = Market()
    shocks = np.random.default_rng(7).standard_normal((PATHS, DATES))
    started = perf_counter()
    european_call, asian_call, formula = (
        simulated(european, market, shocks),
        simulated(asian, market, shocks),
        exact(market),
    )
    print(f"{PATHS:,} paths of {DATES} dates, twice: {perf_counter() - started:.2f} s, compiling included")
    print(f"{'':8}{'European':>20}{'closed form':>14}{'Asian':>20}")
    for name, (number, error) in european_call.items():
        other, other_error = asian_call[name]
        print(f"{name:8}{number:12.4f} ±{error:6.4f}{formula[name][0]:14.4f}{other:12.4f} ±{other_error:6.4f}")


if __name__ == "__main__":
    main()
