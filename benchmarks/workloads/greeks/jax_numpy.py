import jax
import jax.numpy as jnp


def loss(market, shocks, _):
    spot, volatility, rate, years = market
    step = years / shocks.shape[1]
    moves = (rate - volatility**2 / 2) * step + volatility * jnp.sqrt(step) * shocks
    averages = spot * jnp.exp(moves.cumsum(1)).mean(1)
    return jnp.exp(-rate * years) * jax.nn.relu(averages - 105.0).mean()
