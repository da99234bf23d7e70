import numpy as np


def loss_and_gradient(parameters, x, y):
    w1, b1, w2, b2 = parameters
    hidden = np.maximum(x @ w1.T + b1, 0)
    logits = hidden @ w2.T + b2
    exps = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = exps / exps.sum(axis=1, keepdims=True)
    loss = -np.log((shares * y).sum(axis=1)).mean()
    d2 = (shares - y) / len(x)
    d1 = (d2 @ w2) * (hidden > 0)
    return loss, [d1.T @ x, d1.sum(axis=0), d2.T @ hidden, d2.sum(axis=0)]
