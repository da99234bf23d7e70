import jax.numpy as jnp


def loss(parameters, x, y):
    for w, b in zip(parameters[::2], parameters[1::2], strict=True):
        x = jnp.tanh(x @ w.T + b)
    return ((x[:, 0] - y) ** 2).sum()
