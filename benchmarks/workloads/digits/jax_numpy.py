import jax


def loss(parameters, x, y):
    w1, b1, w2, b2 = parameters
    hidden = jax.nn.relu(x @ w1.T + b1)
    return -(y * jax.nn.log_softmax(hidden @ w2.T + b2)).sum(axis=1).mean()
