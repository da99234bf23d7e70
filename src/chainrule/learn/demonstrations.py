"""What the interactive figures of the lessons compute: training runs that advance step by step, and layer gradients.

The page calls these functions, JSON in and JSON out; it only draws. `start` creates a demonstration and keeps it,
`advance` runs it for a number of steps or seconds and returns its state. If a demonstration takes `own`, the source of
a learner's class, that class replaces chainrule's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from chainrule import data, losses, nn, optim
from chainrule.core.value import Value
from chainrule.learn.explaining import FILE
from chainrule.learn.graphs import describe as describe_own
from chainrule.stepping.steps import describe

Neuron = Callable[[Sequence[Any]], Any]
MOST_KEPT = 12  # demonstrations; older ones belong to pages long gone


class Network:
    """Layers of neurons over any class of Value: their weights and bias, and functions that compute their outputs."""

    def __init__(self, layers: list[list[tuple[list[Any], Any]]], neurons: Sequence[Sequence[Neuron]]) -> None:
        self.layers, self.neurons = layers, neurons

    def parameters(self) -> list[Any]:
        return [p for layer in self.layers for weights, bias in layer for p in (*weights, bias)]

    def by_layer(self, x: Sequence[Any]) -> list[list[Any]]:
        """The output of every neuron."""
        found: list[list[Any]] = []
        for layer in self.neurons:
            x = [neuron(x) for neuron in layer]
            found.append(list(x))
        return found

    def __call__(self, x: Sequence[Any]) -> Any:
        return self.by_layer(x)[-1][0]


def _random_network(
    make: Callable[[float], Any], sizes: Sequence[int], activation: str, output: str, rng: Random
) -> Network:
    """A network of Values that `make` creates."""

    def neuron(nin: int) -> tuple[list[Any], Any]:
        return [make(rng.uniform(-1.0, 1.0)) for _ in range(nin)], make(0.0)

    layers = [[neuron(nin) for _ in range(nout)] for nin, nout in pairwise(sizes)]
    names = zip(layers, [activation] * (len(sizes) - 2) + [output], strict=True)
    return Network(layers, [[_neuron(*parts, _ACTIVATIONS[name]) for parts in layer] for layer, name in names])


def _neuron(weights: list[Any], bias: Any, activate: Callable[[Any], Any]) -> Neuron:
    return lambda x: activate(sum((w * xi for w, xi in zip(weights, x, strict=True)), start=bias))


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda x: x,
    "relu": lambda x: x.relu(),
    "sigmoid": lambda x: ((x * 0.5).tanh() + 1.0) * 0.5,  # made of ops that every class has
    "tanh": lambda x: x.tanh(),
}


def _descend(loss: Any, parameters: Sequence[Any], lr: float, zero: bool = True) -> None:
    """One step of gradient descent. Without `zero`, the new gradients are added to the old ones."""
    if zero:
        for parameter in parameters:
            parameter.grad = 0.0
    loss.backward()
    for parameter in parameters:
        parameter.data -= lr * parameter.grad


class Training:
    """Gradient descent on the lecture's four points, or on xor, with any class of Value that has + * ** and tanh.

    Without `zero`, gradients accumulate over all steps, as they do if you forget to reset them.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        make = _own_class(settings.get("own", ""))
        self.examples = _EXAMPLES[settings.get("data", "four-points")]()
        self.lr = float(settings.get("lr", 0.05))
        self.zero = bool(settings.get("zero", True))
        sizes = [len(self.examples.inputs[0]), *map(int, settings.get("hidden", [4, 4])), 1]
        self.network = _random_network(make, sizes, "tanh", "tanh", Random(int(settings.get("seed", 1))))
        self.losses: list[float] = []
        self.largest: list[float] = []  # gradient of each step
        self.outputs: list[float] = []

    def step(self) -> None:
        outputs = [self.network(x) for x in self.examples.inputs]
        errors = ((y + -target) ** 2 for y, target in zip(outputs, self.examples.targets, strict=True))
        loss: Any = sum(errors, start=0.0)
        parameters = self.network.parameters()
        _descend(loss, parameters, self.lr, self.zero)
        self.largest.append(max(abs(float(parameter.grad)) for parameter in parameters))
        self.losses.append(float(loss.data))
        self.outputs = [float(y.data) for y in outputs]

    def state(self) -> dict[str, Any]:
        return {"losses": self.losses, "outputs": self.outputs, "targets": self.examples.targets}


class ForgottenZero:
    """Two training runs from the same start; the second never resets its gradients."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.runs = [Training(settings | {"zero": zero}) for zero in (True, False)]

    def step(self) -> None:
        for run in self.runs:
            run.step()

    def state(self) -> dict[str, Any]:
        return {"losses": [run.losses for run in self.runs], "largest": [run.largest for run in self.runs]}


class Comparison:
    """The same network with two activations on xor, from several starts each."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.examples = data.xor()
        hidden, seeds = int(settings.get("hidden", 4)), int(settings.get("seeds", 8))
        self.lr = float(settings.get("lr", 0.1))
        self.models = {
            activation: [nn.MLP(2, [hidden, 1], activation=activation, rng=seed) for seed in range(seeds)]
            for activation in ("tanh", "relu")
        }
        self.losses: dict[str, list[list[float]]] = {name: [[] for _ in range(seeds)] for name in self.models}

    def step(self) -> None:
        for activation, models in self.models.items():
            for model, history in zip(models, self.losses[activation], strict=True):
                loss = losses.sum_of_squares([model(x) for x in self.examples.inputs], self.examples.targets)
                _descend(loss, model.parameters(), self.lr)
                history.append(loss.data)

    def state(self) -> dict[str, Any]:
        return {"losses": self.losses}


class Playground:
    """A network that separates points of two classes, -1 and 1, by hinge loss on small batches, with Adam."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.points = _points(settings)
        self.rng = Random(int(settings.get("seed", 1)))
        sizes = [2, *(int(n) for n in settings.get("hidden", [6, 6])), 1]
        activation, own = str(settings.get("activation", "tanh")), settings.get("own", "")
        if own:
            self.network = _random_network(_own_class(own), sizes, activation, "linear", self.rng)
        else:
            made = [layer.neurons for layer in nn.MLP(2, sizes[1:], activation=activation, rng=self.rng).layers]
            self.network = Network([[(neuron.w, neuron.b) for neuron in layer] for layer in made], made)
        for depth, layer in enumerate(self.network.layers, 1):
            for i, (weights, bias) in enumerate(layer, 1):
                bias.label = f"b{depth},{i}"
                for k, weight in enumerate(weights, 1):
                    weight.label = f"w{depth},{i},{k}"
        self.twins = [Value(p.data) for p in self.network.parameters()]  # Adam takes chainrule's Values only
        self.optimizer = optim.Adam(self.twins, lr=float(settings.get("lr", 0.03)))
        self.batch = int(settings.get("batch", 20))
        self.steps, self.loss = 0, float("nan")
        self.queue: list[data.Dataset] = []

    def step(self) -> None:
        if not self.queue:
            self.queue = data.batches(self.points, self.batch, self.rng)
        batch = self.queue.pop()
        parameters = self.network.parameters()
        for parameter in parameters:
            parameter.grad = 0.0
        total: Any = sum((_hinge(self.network(x), y) for x, y in batch), start=0.0) * (1.0 / len(batch))
        total.backward()
        for twin, parameter in zip(self.twins, parameters, strict=True):
            twin.grad = float(parameter.grad)
        self.optimizer.step()
        for twin, parameter in zip(self.twins, parameters, strict=True):
            parameter.data = twin.data
        self.steps += 1
        self.loss = total.data if self.steps == 1 else 0.9 * self.loss + 0.1 * total.data

    def state(self) -> dict[str, Any]:
        layers = [[[*(w.data for w in weights), b.data] for weights, b in layer] for layer in self.network.layers]
        points = [[*x, y] for x, y in self.points]
        return {"steps": self.steps, "loss": self.loss if self.steps else None, "layers": layers, "points": points}

    def graph(self, x: Sequence[float], target: float) -> dict[str, Any]:
        """The loss of one point, with every gradient, as the stepper shows it. Training is not affected."""
        make = type(self.network.parameters()[0])
        inputs = [make(number) for number in x]
        for i, value in enumerate(inputs, 1):
            value.label = f"x{i}"
        found = self.network.by_layer(inputs)
        for depth, layer in enumerate(found, 1):
            for i, value in enumerate(layer, 1):
                value.label = "score" if depth == len(found) else f"h{depth},{i}"
        loss = _hinge(found[-1][0], target)
        loss.label = "loss"
        return describe(loss) if isinstance(loss, Value) else describe_own(loss)


def _hinge(score: Any, target: float) -> Any:
    """max(0, 1 - target * score)."""
    return (score * -float(target) + 1.0).relu()


_KINDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "training": Training,
    "forgotten-zero": ForgottenZero,
    "comparison": Comparison,
    "playground": Playground,
}
_EXAMPLES: dict[str, Callable[[], data.Dataset]] = {
    "four-points": data.four_points,
    "xor": lambda: data.Dataset(data.xor().inputs, [2.0 * y - 1.0 for y in data.xor().targets]),
}
_kept: dict[str, Any] = {}


def start(kind: str, settings: str) -> str:
    """Create a demonstration; returns its name and initial state."""
    if kind not in _KINDS:
        raise ValueError(f"`kind` must be one of {', '.join(_KINDS)}, got {kind!r}")
    name = f"{kind}-{time.monotonic_ns()}"
    _kept[name] = demonstration = _KINDS[kind](json.loads(settings))
    while len(_kept) > MOST_KEPT:
        del _kept[next(iter(_kept))]
    return _json({"name": name, **demonstration.state()})


def advance(name: str, steps: int, seconds: float) -> str:
    """Run a demonstration for `steps` steps, or as many as fit into `seconds`; null if it is no longer kept.

    >>> name = json.loads(start("training", '{"data": "xor"}'))["name"]
    >>> len(json.loads(advance(name, 3, 60.0))["losses"])
    3
    >>> advance("long gone", 1, 1.0)
    'null'
    """
    if (demonstration := _kept.get(name)) is None:
        return "null"
    end = time.monotonic() + seconds
    for _ in range(steps):
        demonstration.step()
        if time.monotonic() > end:
            break
    return _json(demonstration.state())


def point_graph(name: str, x: float, y: float, target: float) -> str:
    """The graph of one point's loss in a playground, {"graph": …} or {"error": …}; null if it is no longer kept."""
    if (playground := _kept.get(name)) is None:
        return "null"
    try:
        return json.dumps({"graph": playground.graph([x, y], target)})
    except ValueError as error:  # it has too many nodes to be shown
        return json.dumps({"error": str(error)})


def layer_gradients(depth: int, activation: str, init: str, seed: int) -> str:
    """The mean absolute gradient of each layer's weights, in an untrained network with `depth` hidden layers."""
    model = nn.MLP(2, [4] * depth + [1], activation=activation, init=init, rng=seed)
    points = data.moons(n=12, seed=0)
    losses.mean_square([model(x) for x in points.inputs], points.targets).backward()
    sizes = [[abs(w.grad) for neuron in layer.neurons for w in neuron.w] for layer in model.layers]
    return _json({"layers": [sum(layer) / len(layer) for layer in sizes]})


def _json(state: dict[str, Any]) -> str:
    """As JSON, which has no infinities and NaNs: they become null."""
    try:
        return json.dumps(state, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(state), parse_constant=lambda _: None))


def _own_class(source: str) -> Callable[[float], Any]:
    """The class `Value` from a learner's source; without a source, chainrule's."""
    if not source:
        return Value
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, FILE, "exec"), names)
    made: Callable[[float], Any] = names["Value"]
    return made


def _points(settings: dict[str, Any]) -> data.Dataset:
    if drawn := settings.get("points"):
        return data.Dataset([[float(x), float(y)] for x, y, _ in drawn], [int(label) for _, _, label in drawn])
    kind, n, seed = str(settings.get("data", "moons")), int(settings.get("n", 80)), int(settings.get("seed", 1))
    if kind not in _POINTS:
        raise ValueError(f"`data` must be moons, circles, spirals, blobs or xor, got {kind!r}")
    return _POINTS[kind](n, float(settings.get("noise", 0.1)), seed)


def _moved(points: data.Dataset, right: float, up: float, wider: float, taller: float) -> data.Dataset:
    return data.Dataset([[wider * (x + right), taller * (y + up)] for x, y in points.inputs], points.targets)


def _squares(n: int, seed: int) -> data.Dataset:
    """Points in a square, labelled like xor by the signs of their coordinates."""
    rng = Random(seed)
    inputs = [[rng.uniform(-1.4, 1.4), rng.uniform(-1.4, 1.4)] for _ in range(n)]
    return data.Dataset(inputs, [1 if x * y < 0 else -1 for x, y in inputs])


_POINTS: dict[str, Callable[[int, float, int], data.Dataset]] = {  # by their number, noise and seed
    "moons": lambda n, noise, seed: _moved(data.moons(n, noise, seed), -0.5, -0.25, 1.0, 1.4),
    "circles": lambda n, noise, seed: _moved(data.circles(n, noise, seed), 0.0, 0.0, 1.2, 1.2),
    "spirals": lambda n, noise, seed: _moved(data.spirals(n, noise / 4, seed), 0.0, 0.0, 1.4, 1.4),
    "blobs": lambda n, noise, seed: data.blobs(n=n, noise=3 * noise, seed=seed, classes=2),
    "xor": lambda n, noise, seed: _squares(n, seed),
}
