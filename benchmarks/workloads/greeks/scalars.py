def loss(market, paths, _):
    spot, volatility, rate, years = market
    step = years / len(paths[0])
    drift, spread = (rate - volatility * volatility * 0.5) * step, volatility * step**0.5
    payoffs = []
    for shocks in paths:
        price, prices = spot, []
        for shock in shocks:
            price = price * (drift + spread * shock).exp()
            prices.append(price)
        payoffs.append((sum(prices) / len(prices) - 105.0).relu())
    return (-rate * years).exp() * sum(payoffs) / len(payoffs)
