"""What `accelerator.py` measures: the same computations as scalar Python for chainrule, and as array code for JAX.

A problem has `data`, arrays with a row per example; a `loss` of one example, with `parameters`, which are Values; and
`hands`, ways to write the mean loss in JAX, of which the fastest counts. All numbers are those of float32.
"""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from chainrule import Value, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import greeks
import microgpt
import predators


@dataclass
class Hand:
    """One way to write a mean loss by hand: `loss(numbers, *data)`, of data that was arranged to its liking."""

    name: str
    loss: Callable[..., Any]
    arranged: Callable[..., Any] = lambda *data: data


class Problem:
    """A mean loss and its gradient."""

    title = ""
    has_products = False  # of matrices, which a GPU computes in TF32 too
    full = 1  # how many examples there are at scale 1
    data: list[np.ndarray]
    parameters: list[Value]
    loss: Callable[..., Any]
    hands: list[Hand]

    def __init__(self, scale):
        self.examples = scaled(self.full, scale)
        self.rng = np.random.default_rng(0)
        self.build()
        self.data = [numbers.astype(np.float32) for numbers in self.data]
        for parameter in self.parameters:
            parameter.data = float(np.float32(parameter.data))

    def __str__(self):
        return self.title.format(self.examples)

    def build(self):
        """Make the data, the parameters and the ways."""
        raise NotImplementedError

    @property
    def example(self):
        """One example, as plain Python."""
        return [numbers[0].tolist() for numbers in self.data]

    def numbers(self):
        """The parameters as JAX by hand has them."""
        return np.array([p.data for p in self.parameters])

    @staticmethod
    def flattened(gradients):
        """A gradient by those, in the order of the model's parameters."""
        return np.asarray(gradients)


def scaled(full, scale):
    return max(32, round(full * scale))


class Moons(Problem):
    """The network of micrograd's demo: 2 inputs, two layers of 16 relus, one number out; hinge loss."""

    title = "moons network, {:,} examples"
    has_products = True
    full = 4_194_304

    def build(self):
        points = self.rng.normal(size=(self.examples, 2))
        self.data = [points, np.sign(np.sin(2.0 * points[:, 0]) - points[:, 1])]
        self.model = nn.MLP(2, [16, 16, 1], activation="relu", rng=1)
        self.parameters = self.model.parameters()
        self.hands = [Hand("", self.by_hand)]

    def loss(self, x, y):
        return (1.0 - y * self.model(x)).relu()

    def numbers(self):
        return [
            [
                np.array([[w.data for w in neuron.w] for neuron in layer.neurons]),
                np.array([neuron.b.data for neuron in layer.neurons]),
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
        """A neuron's weights, then its bias."""
        neurons = [np.concatenate([np.asarray(w), np.asarray(b)[:, None]], 1) for w, b in gradients]
        return np.concatenate([layer.ravel() for layer in neurons])


class MicroGPT(Problem):
    """The GPT of examples/microgpt.py on made-up names, each filled up to 16 positions."""

    title = "microgpt, {:,} names"
    has_products = True
    full = 65_536

    def build(self):
        draw = random.Random(1)
        names = ["".join(draw.choices(microgpt.LETTERS, k=draw.randint(2, 15))) for _ in range(self.examples)]
        self.data = microgpt.padded(names)
        self.model = microgpt.GPT(draw)
        self.parameters, self.loss = self.model.parameters(), self.model.loss
        self.hands = [Hand("", self.by_hand)]

    def numbers(self):
        names = ("token", "position", "query", "key", "value", "mix", "widen", "narrow", "predict")
        return [np.array([[p.data for p in row] for row in getattr(self.model, name)]) for name in names]

    @staticmethod
    def by_hand(matrices, tokens, targets, weights):
        token, position, query, key, value, mix, widen, narrow, predict = matrices
        count, length = tokens.shape
        x = normalised(token[tokens.astype(int)] + position)
        seen = normalised(x)
        q, k, v = ((seen @ m.T).reshape(count, length, microgpt.HEADS, -1) for m in (query, key, value))
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


class Greeks(Problem):
    """The Asian call of examples/greeks.py: its price, and the derivatives by spot, volatility, rate and years."""

    title = "price and Greeks, {:,} paths of 12 dates"
    full = 10_000_000

    def build(self):
        self.data = [self.rng.standard_normal((self.examples, greeks.DATES), dtype=np.float32)]
        self.market = greeks.Market()
        self.parameters = self.market.values()
        self.hands = [
            Hand("cumsum", partial(self.by_hand, average_by_cumsum)),
            Hand("loop over dates", partial(self.by_hand, average_by_loop)),
            Hand("loop, dates first", partial(self.by_hand, lambda moves: average_by_loop(moves.T)), transposed),
        ]

    def loss(self, shocks):
        return greeks.asian(self.market, shocks)

    @staticmethod
    def by_hand(average, market, shocks):
        spot, volatility, rate, years = market
        step = years / greeks.DATES
        moves = (rate - volatility**2 / 2) * step + volatility * jnp.sqrt(step) * shocks
        return jnp.exp(-rate * years) * jax.nn.relu(spot * average(moves) - greeks.STRIKE).mean()


def average_by_cumsum(moves):
    """The average price of each path that starts at 1, given the moves of the price's logarithm."""
    return jnp.exp(moves.cumsum(1)).mean(1)


def average_by_loop(moves):
    """The same with a product for each date, all of them elementwise."""
    price, total = 1.0, 0.0
    for move in moves.T:
        price = price * jnp.exp(move)
        total = total + price
    return total / greeks.DATES


def transposed(shocks):
    return [np.ascontiguousarray(shocks.T)]


class Ode(Problem):
    """Predators and prey of examples/predators.py, with the ten steps of 0.1 a moment of docs/uses/ode.md."""

    title = "ODE fit, {:,} trajectories of 200 Runge-Kutta steps"
    full = 100_000
    steps, step = 10, 0.1  # from one moment to the next; at 20 moments both are observed

    def build(self):
        start = np.array(predators.START) * self.rng.uniform(0.8, 1.2, (self.examples, 2))
        state, seen = tuple(start.T), []
        for _ in range(predators.MOMENTS):
            for _ in range(self.steps):
                state = predators.runge_kutta(list(predators.TRUE.values()), state, self.step)
            seen.append(np.stack(state, 1))
        observed = np.stack(seen, 1)
        self.data = [start, observed * np.exp(self.rng.normal(0.0, predators.NOISE, observed.shape))]
        self.parameters = [Value(number) for number in (1.0, 0.38, 0.11, 0.42)]
        ways = {"scan": (1, False), "scan, checkpoints": (1, True), "scan, unroll=5": (5, False)}
        ways["unrolled"] = (self.steps, False)
        self.hands = [Hand(name, partial(self.by_hand, *way), by_moment) for name, way in ways.items()]

    def loss(self, start, observed):
        state, errors = tuple(start), []
        for seen in observed:
            for _ in range(self.steps):
                state = predators.runge_kutta(self.parameters, state, self.step)
            errors += [(model - number) * (model - number) for model, number in zip(state, seen, strict=True)]
        return sum(errors) / len(errors)

    def by_hand(self, unroll, checkpoints, rates, start, observed):
        """All trajectories side by side, in a loop over moments, which has a loop over steps."""
        rates = tuple(rates)

        def ahead(state, _):
            return predators.runge_kutta(rates, state, self.step), None

        def to_the_next(state):
            return lax.scan(ahead, state, None, length=self.steps, unroll=unroll)[0]

        def moment(state, seen):
            state = (jax.checkpoint(to_the_next) if checkpoints else to_the_next)(state)
            return state, sum(jnp.mean((model - number) ** 2) for model, number in zip(state, seen, strict=True)) / 2.0

        return lax.scan(moment, tuple(start), observed)[1].mean()


def by_moment(start, observed):
    """Trajectories along the last axis, where neighbours are read together."""
    return [np.ascontiguousarray(start.T), np.ascontiguousarray(observed.transpose(1, 2, 0))]


PROBLEMS = {"moons": Moons, "microgpt": MicroGPT, "greeks": Greeks, "ode": Ode}
