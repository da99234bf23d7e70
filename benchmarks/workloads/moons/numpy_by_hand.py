import numpy as np


def loss_and_gradient(parameters, x, y):
    w1, b1, w2, b2, w3, b3 = parameters
    a = np.maximum(x @ w1.T + b1, 0)
    b = np.maximum(a @ w2.T + b2, 0)
    margins = 1 - y * (b @ w3[0] + b3)
    d3 = np.where(margins > 0, -y / len(y), 0)[:, None]
    d2 = (d3 @ w3) * (b > 0)
    d1 = (d2 @ w2) * (a > 0)
    data = [d1.T @ x, d1.sum(axis=0), d2.T @ a, d2.sum(axis=0), d3.T @ b, d3.sum(axis=0)]
    loss = np.maximum(margins, 0).mean() + 1e-4 * sum((p * p).sum() for p in parameters)
    return loss, [g + 2e-4 * p for g, p in zip(data, parameters, strict=True)]
