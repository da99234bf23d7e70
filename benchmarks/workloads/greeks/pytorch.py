import torch


def loss(market, shocks, _):
    spot, volatility, rate, years = market
    step = years / shocks.shape[1]
    moves = (rate - volatility**2 / 2) * step + volatility * torch.sqrt(step) * shocks
    averages = spot * torch.exp(moves.cumsum(1)).mean(1)
    return torch.exp(-rate * years) * torch.relu(averages - 105.0).mean()
