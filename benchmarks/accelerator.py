"""The moons network on whatever device JAX has: one gradient over many examples, ours against JAX written by hand.

    python benchmarks/accelerator.py --examples 4194304

All contestants compute the mean hinge loss and its gradient from the same numbers, in float32, data on the device, and
take turns; each figure is the best of its turns. PyTorch takes part where it has a GPU.
"""

import argparse
import importlib.util
import time

import jax
import jax.numpy as jnp
import numpy as np

import chainrule
from chainrule import nn

TURNS = 20


def ours(model, examples):
    """(by chainrule's gradient, by JAX's gradient of chainrule's function)."""
    f = chainrule.compile(lambda x, y: (1.0 - y * model(x)).relu(), wrt=model.parameters())
    batch = jax.jit(f.to_jax([0.0, 0.0], 0.0, gradient=True, examples=examples))
    one = f.to_jax([0.0, 0.0], 0.0)
    mean = jax.value_and_grad(lambda p, x, y: jnp.mean(jax.vmap(one, (None, 0, 0))(p, x, y)))
    return batch, jax.jit(mean)


def by_hand(layers):
    """JAX as one writes it: weights as matrices."""

    def loss(layers, x, y):
        for w, b in layers[:-1]:
            x = jax.nn.relu(x @ w.T + b)
        w, b = layers[-1]
        return jnp.mean(jax.nn.relu(1.0 - y * (x @ w.T + b)[:, 0]))

    step = jax.jit(jax.value_and_grad(loss))
    return lambda x, y: step(layers, x, y)


def pytorch(layers, x, y, compiled):
    import torch

    tensors = [[torch.tensor(a, device="cuda", requires_grad=True) for a in layer] for layer in layers]
    flat = [tensor for layer in tensors for tensor in layer]
    x, y = torch.tensor(x, device="cuda"), torch.tensor(y, device="cuda")

    def loss(x, y):
        for w, b in tensors[:-1]:
            x = torch.relu(x @ w.T + b)
        w, b = tensors[-1]
        return torch.relu(1.0 - y * (x @ w.T + b)[:, 0]).mean()

    forward = torch.compile(loss) if compiled else loss

    def run():
        value = forward(x, y)
        gradients = torch.autograd.grad(value, flat)
        torch.cuda.synchronize()
        return value, gradients

    return run


def flattened(gradients):
    """Gradients of layers in the order of the model's parameters: a neuron's weights, then its bias."""
    return np.concatenate([np.concatenate([np.asarray(w), np.asarray(b)[:, None]], 1).ravel() for w, b in gradients])


def best(contestants):
    """Milliseconds of each, taking turns."""
    found = dict.fromkeys(contestants, float("inf"))
    for _ in range(TURNS):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            found[name] = min(found[name], 1e3 * (time.perf_counter() - started))
    return found


def main():
    """Check that all agree, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=100_000)
    examples = parser.parse_args().examples
    rng = np.random.default_rng(0)
    x = rng.normal(size=(examples, 2)).astype(np.float32)
    y = np.sign(rng.normal(size=examples)).astype(np.float32)
    model = nn.MLP(2, [16, 16, 1], activation="relu", rng=1)
    parameters = jnp.array([p.data for p in model.parameters()], dtype=jnp.float32)
    layers = [
        [
            np.array([[w.data for w in neuron.w] for neuron in layer.neurons], dtype=np.float32),
            np.array([neuron.b.data for neuron in layer.neurons], dtype=np.float32),
        ]
        for layer in model.layers
    ]
    xs, ys = jnp.array(x), jnp.array(y)
    batch, vmapped = ours(model, examples)
    hand = by_hand([[jnp.array(a) for a in layer] for layer in layers])
    value, gradients = hand(xs, ys)
    expected = flattened(gradients)
    for theirs in (batch(parameters, xs, ys), vmapped(parameters, xs, ys)):
        assert abs(theirs[0] - value) < 1e-4
        assert np.abs(np.asarray(theirs[1]) - expected).max() < 1e-4
    contestants = {
        "JAX by hand": lambda: jax.block_until_ready(hand(xs, ys)),
        "chainrule, its own gradient": lambda: jax.block_until_ready(batch(parameters, xs, ys)),
        "chainrule, jax.grad of vmap": lambda: jax.block_until_ready(vmapped(parameters, xs, ys)),
    }
    if jax.default_backend() == "gpu" and importlib.util.find_spec("torch"):
        contestants["PyTorch eager"] = pytorch(layers, x, y, compiled=False)
        contestants["torch.compile"] = pytorch(layers, x, y, compiled=True)
        for run in list(contestants.values())[-2:]:
            run()
    print(f"{examples:,} examples, float32, on {jax.devices()[0].device_kind}: ms a gradient")
    for name, milliseconds in best(contestants).items():
        print(f"{name:30} {milliseconds:8.3f}")


if __name__ == "__main__":
    main()
