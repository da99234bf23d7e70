import numpy as np


def loss_and_gradient(market, shocks, _):
    spot, volatility, rate, years = market
    dates = shocks.shape[1]
    step = years / dates
    drift, spread = (rate - volatility**2 / 2) * step, volatility * np.sqrt(step)
    sums = shocks.cumsum(axis=1)
    counts = np.arange(1, dates + 1)
    prices = spot * np.exp(counts * drift + spread * sums)
    prices *= (prices.mean(axis=1) > 105.0)[:, None] * (np.exp(-rate * years) / prices.size)
    total = prices.sum()
    worth = total - 105.0 * np.exp(-rate * years) * np.count_nonzero(prices[:, 0]) / len(prices)
    by_drift, by_spread = prices.sum(axis=0) @ counts, (prices * sums).sum()
    return worth, [
        total / spot,
        -by_drift * volatility * step + by_spread * np.sqrt(step),
        by_drift * step - years * worth,
        by_drift * drift / years + by_spread * spread / (2 * years) - rate * worth,
    ]
