"""One gradient over many examples on whatever device JAX has: ours against JAX written by hand, and PyTorch on a GPU.

    python benchmarks/accelerator.py moons --examples 4194304
    python benchmarks/accelerator.py microgpt --examples 32768

All contestants compute a mean loss and its gradient from the same numbers, in float32, data on the device. They are
compared first, and then take turns; each figure is the best of its turns. Matrix products are computed both in float32
proper and with factors rounded to TF32, which is what JAX does on a GPU unless told otherwise.
"""

import argparse
import importlib.util
import random
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import chainrule
from chainrule import nn

TURNS = 20
TOLERANCES = {"highest": 1e-4, "tensorfloat32": 1e-2}  # relative to the largest gradient


class Moons:
    """The network of micrograd's demo: 2 inputs, two layers of 16 relus, one number out; hinge loss."""

    def __init__(self, examples):
        rng = np.random.default_rng(0)
        self.examples = examples
        self.data = [rng.normal(size=(examples, 2)), np.sign(rng.normal(size=examples))]
        self.data = [numbers.astype(np.float32) for numbers in self.data]
        self.model = nn.MLP(2, [16, 16, 1], activation="relu", rng=1)
        self.example = ([0.0, 0.0], 0.0)

    def loss(self, x, y):
        return (1.0 - y * self.model(x)).relu()

    def matrices(self):
        return [
            [
                np.array([[w.data for w in neuron.w] for neuron in layer.neurons], dtype=np.float32),
                np.array([neuron.b.data for neuron in layer.neurons], dtype=np.float32),
            ]
            for layer in self.model.layers
        ]

    @staticmethod
    def by_hand(layers, x, y):
        """Weights as matrices, in JAX and in PyTorch."""
        for w, b in layers[:-1]:
            x = (x @ w.T + b).clip(0.0)
        w, b = layers[-1]
        return (1.0 - y * (x @ w.T + b)[:, 0]).clip(0.0).mean()

    @staticmethod
    def flattened(gradients):
        """In the order of the model's parameters: a neuron's weights, then its bias."""
        neurons = [np.concatenate([np.asarray(w), np.asarray(b)[:, None]], 1) for w, b in gradients]
        return np.concatenate([layer.ravel() for layer in neurons])


class MicroGPT:
    """The GPT of examples/microgpt.py on made-up names, each filled up to 16 positions."""

    def __init__(self, examples):
        sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
        import microgpt

        draw = random.Random(1)
        names = ["".join(draw.choices(microgpt.LETTERS, k=draw.randint(2, 15))) for _ in range(examples)]
        self.examples = examples
        self.data = [numbers.astype(np.float32) for numbers in microgpt.padded(names)]
        self.model = microgpt.GPT(draw)
        self.example = ([0.0] * microgpt.BLOCK,) * 3
        self.loss = self.model.loss
        self.heads = microgpt.HEADS

    def matrices(self):
        names = ("token", "position", "query", "key", "value", "mix", "widen", "narrow", "predict")
        return [np.array([[p.data for p in row] for row in getattr(self.model, n)], dtype=np.float32) for n in names]

    def by_hand(self, matrices, tokens, targets, weights):
        token, position, query, key, value, mix, widen, narrow, predict = matrices
        count, length = tokens.shape
        x = normalised(token[tokens.astype(int)] + position)
        seen = normalised(x)
        q, k, v = ((seen @ m.T).reshape(count, length, self.heads, -1) for m in (query, key, value))
        scores = jnp.einsum("nihd,njhd->nhij", q, k) / q.shape[-1] ** 0.5
        shares = jax.nn.softmax(jnp.where(jnp.tri(length, dtype=bool), scores, -jnp.inf))
        x = x + jnp.einsum("nhij,njhd->nihd", shares, v).reshape(x.shape) @ mix.T
        x = x + jax.nn.relu(normalised(x) @ widen.T) @ narrow.T
        surprises = -jnp.take_along_axis(jax.nn.log_softmax(x @ predict.T), targets.astype(int)[..., None], -1)
        return jnp.sum(weights * surprises[..., 0], -1).mean()

    @staticmethod
    def flattened(gradients):
        return np.concatenate([np.asarray(matrix).ravel() for matrix in gradients])


def normalised(x):
    """RMSNorm."""
    return x * (jnp.mean(x * x, -1, keepdims=True) + 1e-5) ** -0.5


def ours(problem):
    """Steps by chainrule's own gradient, and by JAX's gradient of chainrule's function."""
    f = chainrule.compile(problem.loss, wrt=problem.model.parameters())
    parameters = jnp.array([p.data for p in problem.model.parameters()], dtype=jnp.float32)
    batch = jax.jit(f.to_jax(*problem.example, gradient=True, examples=problem.examples))
    one = f.to_jax(*problem.example)
    axes = (None, *(0 for _ in problem.data))
    mean = jax.jit(jax.value_and_grad(lambda *arguments: jnp.mean(jax.vmap(one, axes)(*arguments))))
    return [lambda *data, step=step: step(parameters, *data) for step in (batch, mean)]


def in_jax(problem):
    matrices = jax.tree.map(jnp.array, problem.matrices())
    step = jax.jit(jax.value_and_grad(problem.by_hand))
    return lambda *data: step(matrices, *data)


def in_pytorch(problem, compiled):
    import torch

    layers = [[torch.tensor(a, device="cuda", requires_grad=True) for a in layer] for layer in problem.matrices()]
    flat = [tensor for layer in layers for tensor in layer]
    data = [torch.tensor(numbers, device="cuda") for numbers in problem.data]
    forward = torch.compile(problem.by_hand) if compiled else problem.by_hand

    def run():
        value = forward(layers, *data)
        gradients = torch.autograd.grad(value, flat)
        torch.cuda.synchronize()
        return value, gradients

    return run


def best(contestants):
    """Milliseconds of each, taking turns."""
    found = dict.fromkeys(contestants, float("inf"))
    for _ in range(TURNS):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            found[name] = min(found[name], 1e3 * (time.perf_counter() - started))
    return found


def contest(problem, precision):
    """Milliseconds of each contestant, once all have given the same."""
    data = [jnp.array(numbers) for numbers in problem.data]
    hand, (own, vmapped) = in_jax(problem), ours(problem)
    value, gradients = hand(*data)
    expected = problem.flattened(gradients)
    steps = {"JAX by hand": hand, "chainrule, its own gradient": own, "chainrule, jax.grad of vmap": vmapped}
    for name, step in list(steps.items())[1:]:
        theirs = step(*data)
        errors = abs(theirs[0] - value), np.abs(np.asarray(theirs[1]) - expected).max() / np.abs(expected).max()
        assert max(errors) < TOLERANCES[precision], f"{name} differs: {errors}"
    contestants = {name: lambda step=step: jax.block_until_ready(step(*data)) for name, step in steps.items()}
    if isinstance(problem, Moons) and jax.default_backend() == "gpu" and importlib.util.find_spec("torch"):
        import torch

        torch.set_float32_matmul_precision("highest" if precision == "highest" else "high")
        contestants["PyTorch eager"] = in_pytorch(problem, compiled=False)
        contestants["torch.compile"] = in_pytorch(problem, compiled=True)
        for run in list(contestants.values())[-2:]:
            run()
    return best(contestants)


def main():
    """Print the times, and how they compare with JAX by hand."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", choices=["moons", "microgpt"], nargs="?", default="moons")
    parser.add_argument("--examples", type=int, default=10_000)
    options = parser.parse_args()
    problem = {"moons": Moons, "microgpt": MicroGPT}[options.problem](options.examples)
    print(
        f"{options.problem}, {options.examples:,} examples, float32, on {jax.devices()[0].device_kind}: ms a gradient"
    )
    for precision in TOLERANCES:
        print(f"matrix products: {precision}")
        with jax.default_matmul_precision(precision):
            times = contest(problem, precision)
        for name, milliseconds in times.items():
            print(
                f"{name:30} {milliseconds:8.3f}  {times['JAX by hand'] / milliseconds:5.2f} × the speed of JAX by hand"
            )


if __name__ == "__main__":
    main()
