import jax
import jax.numpy as jnp


def loss(parameters, x, y):
    *hidden, (w, b) = zip(parameters[::2], parameters[1::2], strict=True)
    for v, a in hidden:
        x = jax.nn.relu(x @ v.T + a)
    margins = 1 - y * (x @ w.T + b)[:, 0]
    return jnp.maximum(margins, 0).mean() + 1e-4 * sum((p * p).sum() for p in parameters)
