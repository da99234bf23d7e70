"""The contestants of `accelerator.py`: how each computes a problem's gradients, or trains its model."""

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import chainrule
from accelerator_problems import Moons, scaled
from chainrule import optim

HAND, THROUGH, CUDA, TORCH = "JAX by hand", "chainrule through JAX", "chainrule, cuda", "PyTorch"
OURS = (THROUGH, CUDA)
TF32 = "TF32"

Ways = tuple[Callable[[], Any], Callable[[], tuple[float, np.ndarray]]]


@dataclass
class Contestant:
    """One who takes turns. `make` returns what is timed, and what returns a value and a vector to compare."""

    group: str
    variant: str
    make: Callable[..., Ways]
    arguments: tuple[Any, ...] = ()
    compiled: float = 0.0  # seconds
    best: float = float("inf")  # milliseconds

    def __str__(self):
        return f"{self.group}, {self.variant}" if self.variant else self.group

    @property
    def by_tf32(self):
        return TF32 in self.variant

    def prepare(self):
        """Compile, and run for the first time."""
        started = time.perf_counter()
        self.run, self.trial = self.make(*self.arguments)
        self.run()
        self.compiled = time.perf_counter() - started

    def take_a_turn(self):
        started = time.perf_counter()
        self.run()
        self.best = min(self.best, 1e3 * (time.perf_counter() - started))


class Gradients:
    """A mean loss and its gradient: a turn computes both."""

    steps, compared = 1, "gradient"

    def __init__(self, kind, scale, on_device, more):
        self.problem, self.on_device, self.more = kind(scale), on_device, more

    def __str__(self):
        return str(self.problem)

    def reference(self):
        """Value and gradient in float64, from the first way to write it in JAX."""
        hand = self.problem.hands[0]
        with jax.enable_x64(True):
            numbers = as_jax(self.problem.numbers(), "float64")
            data = as_jax(hand.arranged(*self.problem.data), "float64")
            return self.read(jax.jit(jax.value_and_grad(hand.loss))(numbers, *data))

    def read(self, result):
        return float(result[0]), self.problem.flattened(result[1])

    def contestants(self):
        """Each with data that is on the device already, so that bringing it there is not timed."""
        precisions = ["", TF32] if self.problem.has_products else [""]
        for hand in self.problem.hands:
            data = as_jax(hand.arranged(*self.problem.data))
            for precision in precisions:
                yield Contestant(HAND, joined(hand.name, precision), self.by_hand, (hand.loss, precision, data))
        data, ways = as_jax(self.problem.data), {"": self.own_gradient}
        if self.more:
            ways["jax.grad of vmap"] = self.vmapped
        for name, way in ways.items():
            for precision in precisions:
                yield Contestant(THROUGH, joined(name, precision), self.through_jax, (way, precision, data))
        yield Contestant(CUDA, "", self.by_cuda, ([self.on_device(array) for array in self.problem.data],))
        if self.more and isinstance(self.problem, Moons) and with_pytorch():
            for name in ("eager", "torch.compile"):
                for precision in precisions:
                    yield Contestant(TORCH, joined(name, precision), self.by_pytorch, (name, precision))

    def by_hand(self, loss, precision, data):
        numbers, step = as_jax(self.problem.numbers()), jax.jit(in_precision(precision, jax.value_and_grad(loss)))

        def run():
            return jax.block_until_ready(step(numbers, *data))

        return run, lambda: self.read(run())

    @cached_property
    def function(self):
        """What is traced for JAX, once."""
        return chainrule.compile(self.problem.loss, wrt=self.problem.parameters)

    def through_jax(self, gradient, precision, data):
        step = jax.jit(in_precision(precision, gradient(self.function)))
        parameters = as_jax(data_of(self.problem.parameters))

        def run():
            return jax.block_until_ready(step(parameters, *data))

        return run, lambda: as_numpy(run())

    def own_gradient(self, f):
        return f.to_jax(*self.problem.example, gradient=True, examples=self.problem.examples)

    def vmapped(self, f):
        one, axes = f.to_jax(*self.problem.example), (None, *(0 for _ in self.problem.data))
        return jax.value_and_grad(lambda *arguments: jnp.mean(jax.vmap(one, axes)(*arguments)))

    def by_cuda(self, data):
        f = chainrule.compile(self.problem.loss, wrt=self.problem.parameters, backend="cuda", dtype="float32")

        def run():
            return f.batch_value_and_grad(*data)

        return run, lambda: as_numpy(run())

    def by_pytorch(self, name, precision):
        import torch

        layers = jax.tree.map(
            lambda a: torch.tensor(a, dtype=torch.float32, device="cuda", requires_grad=True), self.problem.numbers()
        )
        flat = [tensor for layer in layers for tensor in layer]
        data = [torch.tensor(array, device="cuda") for array in self.problem.data]
        forward = torch.compile(self.problem.by_hand) if name == "torch.compile" else self.problem.by_hand

        def run():
            torch.set_float32_matmul_precision("high" if precision else "highest")
            value = forward(layers, *data)
            gradients = torch.autograd.grad(value, flat)
            torch.cuda.synchronize()
            return value, gradients

        def trial():
            value, gradients = run()
            arrays = [tensor.cpu().numpy() for tensor in gradients]
            return float(value), self.problem.flattened(zip(arrays[::2], arrays[1::2], strict=True))

        return run, trial


class Training:
    """Steps of Adam on the moons network, each on the next batch; a turn takes many, and a figure is for one.

    Compared are the mean loss and the parameters after the first steps, before rounding errors have grown.
    """

    compared, first = "parameters", 10
    rate, betas, eps = 1e-3, (0.9, 0.999), 1e-8

    def __init__(self, scale, on_device):
        self.batch, self.steps, self.on_device = scaled(65_536, scale), max(16, round(256 * scale)), on_device
        self.problem = Moons(self.batch * self.steps / Moons.full)
        self.start = data_of(self.problem.parameters)

    def __str__(self):
        return f"training the moons network, {self.batch:,} examples a step"

    def contestants(self):
        data = as_jax(self.by_batch())
        hand = self.problem.numbers(), jax.value_and_grad(self.problem.by_hand), self.problem.flattened
        yield Contestant(HAND, "a call a step", self.by_calls, (*hand, self.batches()))
        yield Contestant(HAND, "scan over steps", self.by_scan, (*hand, data))
        yield Contestant(THROUGH, "scan over steps", self.by_scan, (self.start, None, np.asarray, data))
        yield Contestant(CUDA, "", self.by_cuda, ([self.on_device(array) for array in self.problem.data],))

    def reference(self):
        with jax.enable_x64(True):
            step, batches = jax.jit(self.adam(jax.value_and_grad(self.problem.by_hand))), self.batches("float64")
            return self.walked(step, self.fresh(self.problem.numbers(), "float64"), batches, self.problem.flattened)

    def adam(self, gradient):
        """A step in JAX, from a state and a batch to the next state and the loss."""
        (beta1, beta2), gradient = self.betas, in_precision("", gradient)

        def step(state, batch):
            numbers, m, v, count = state
            loss, slopes = gradient(numbers, *batch)
            count = count + 1
            m = jax.tree.map(lambda m, g: beta1 * m + (1.0 - beta1) * g, m, slopes)
            v = jax.tree.map(lambda v, g: beta2 * v + (1.0 - beta2) * g * g, v, slopes)
            rate, scale = self.rate / (1.0 - beta1**count), (1.0 - beta2**count) ** -0.5
            numbers = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) * scale + self.eps), numbers, m, v)
            return (numbers, m, v, count), loss

        return step

    def fresh(self, numbers, dtype="float32"):
        """The state before the first step; of its own memory, since steps take it over."""
        numbers, m, v = as_jax(numbers, dtype), *(jax.tree.map(np.zeros_like, numbers) for _ in range(2))
        return numbers, as_jax(m, dtype), as_jax(v, dtype), jnp.array(0.0, dtype)

    def batches(self, dtype="float32"):
        """The first few batches for a comparison in float64, else all of them."""
        count = self.steps if dtype == "float32" else self.first
        return [as_jax([array[k] for array in self.by_batch()], dtype) for k in range(count)]

    def by_batch(self):
        return [array.reshape(self.steps, self.batch, *array.shape[1:]) for array in self.problem.data]

    def walked(self, step, state, batches, flattened):
        """The mean loss and the parameters after a step on each of the first batches."""
        losses = []
        for batch in batches[: self.first]:
            state, loss = step(state, batch)
            losses.append(float(loss))
        return np.mean(losses), flattened(state[0])

    def by_calls(self, numbers, gradient, flattened, batches):
        """A jitted step, called from Python."""
        step, state = jax.jit(self.adam(gradient), donate_argnums=0), self.fresh(numbers)

        def run():
            nonlocal state
            for batch in batches:
                state, loss = step(state, batch)
            return jax.block_until_ready((state, loss))

        return run, lambda: self.walked(step, self.fresh(numbers), batches, flattened)

    def by_scan(self, numbers, gradient, flattened, data):
        """All steps in one call; of chainrule's own gradient, if no other is given."""
        step = self.adam(gradient or self.own_gradient())
        walk = jax.jit(lambda state, data: lax.scan(step, state, data), donate_argnums=0)
        state = self.fresh(numbers)

        def run():
            nonlocal state
            state, losses = jax.block_until_ready(walk(state, data))
            return losses

        def trial():
            (numbers_then, *_), losses = walk(self.fresh(numbers), [array[: self.first] for array in data])
            return np.mean(np.asarray(losses)), flattened(numbers_then)

        return run, trial

    def own_gradient(self):
        f = chainrule.compile(self.problem.loss, wrt=self.problem.parameters)
        return f.to_jax(*self.problem.example, gradient=True, examples=self.batch)

    def by_cuda(self, data):
        parameters = self.problem.parameters
        f = chainrule.compile(self.problem.loss, wrt=parameters, backend="cuda", dtype="float32")
        optimizer = optim.Adam(parameters, lr=self.rate, betas=self.betas, eps=self.eps)
        untouched = optimizer.state()

        def run():
            return f.train(optimizer, *data, batch_size=self.batch)

        def trial():
            for parameter, number in zip(parameters, self.start, strict=True):
                parameter.data = float(number)
            optimizer.load_state(untouched)
            losses = f.train(optimizer, *(array[: self.first * self.batch] for array in data), batch_size=self.batch)
            return np.mean(losses), data_of(parameters)

        return run, trial


def joined(*names):
    return ", ".join(filter(None, names))


def data_of(parameters):
    return np.array([parameter.data for parameter in parameters])


def as_jax(arrays, dtype="float32"):
    """A list of arrays, which may be nested, on JAX's device."""
    return jax.tree.map(lambda array: jnp.array(array, dtype=dtype), arrays)


def as_numpy(result):
    return float(result[0]), np.asarray(result[1], dtype=np.float64)


def in_precision(precision, function):
    """The function, with matrix products in float32 proper, or by TF32."""

    def precise(*arguments):
        with jax.default_matmul_precision("tensorfloat32" if precision == TF32 else "highest"):
            return function(*arguments)

    return precise


def with_pytorch():
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()
