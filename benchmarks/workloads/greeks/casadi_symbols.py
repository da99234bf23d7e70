import casadi

kind = casadi.SX


def example(market, shocks, _):
    spot, volatility, rate, years = casadi.vertsplit(market)
    dates = shocks.shape[0]
    step = years / dates
    price, total = spot, 0
    for shock in casadi.vertsplit(shocks):
        price *= casadi.exp((rate - volatility**2 / 2) * step + volatility * casadi.sqrt(step) * shock)
        total += price
    gain = total / dates - 105
    return casadi.exp(-rate * years) * (gain > 0) * gain
