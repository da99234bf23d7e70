"""What the interactive figures of the lessons compute: training runs that advance step by step, and layer gradients.

The page calls these functions, JSON in and JSON out; it only draws. `start` creates a demonstration and keeps it,
`advance` runs it for a number of steps or seconds and returns its state, `adjust` changes its settings while it runs.
Networks, losses and loops are the learner's own, as `own_program` puts them together from the setting `program`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import sqrt
from random import Random
from typing import Any

from chainrule import data
from chainrule.core.value import Value
from chainrule.learn.fast_steps import FastSteps
from chainrule.learn.graphs import describe as describe_own
from chainrule.learn.made_up_names import MadeUpNames
from chainrule.learn.own_program import Program, assemble
from chainrule.learn.pace import repeat
from chainrule.learn.wiring import Watched, answers, wiring
from chainrule.stepping.steps import describe
from chainrule.wasm.browser import is_here

MOST_KEPT = 12  # demonstrations; older ones belong to pages long gone


class Run:
    """A network, and the examples that it learns one step at a time."""

    def __init__(
        self, program: Program, examples: data.Dataset, hidden: Sequence[int], activation: str = "tanh", seed: int = 1
    ) -> None:
        self.program = program
        self.model = program.network([len(examples.inputs[0]), *hidden, 1], activation, seed)
        self.losses: list[float] = []
        self.gradient: list[float] = []  # of the last step, for each parameter
        self.largest: list[float] = []  # of them, for each step
        self.nodes = 0  # made in all steps
        self.fast: FastSteps | None = None
        self.learn(examples)

    def learn(self, examples: data.Dataset) -> None:
        """Go on with these examples."""
        self.xs, self.ys = examples.inputs, [float(y) for y in examples.targets]
        if self.fast:
            self.fast.load(self.xs, self.ys)
        self.nodes_per_step = _count(self.loss()) - len(self.model.parameters())

    def loss(self) -> Any:
        """The loss of all examples, a node."""
        return self.program.loss_of(self.model, self.xs, self.ys)

    def step(self, rate: float, zero: bool = True) -> None:
        """One step of the learner's loop; without `zero`, of a loop that never resets the gradients."""
        before = [p.data for p in self.model.parameters()]
        self.losses.append(self.program.train_once(self.model, self.xs, self.ys, rate) if zero else self._forget(rate))
        moved = zip(self.model.parameters(), before, strict=True)
        self.gradient = [(old - p.data) / rate for p, old in moved]  # loops may leave zeros in `grad`
        self.largest.append(max(map(abs, self.gradient)))
        self.nodes += self.nodes_per_step

    def speed_up(self) -> None:
        """Have `many` run as WebAssembly, if Python runs in a browser and the learner's class can be compiled."""
        if is_here():
            with suppress(Exception):  # a class that raises anything; its own steps will show it
                self.fast = FastSteps(self.program.loss_of, self.model, self.xs, self.ys)

    def many(self, steps: int, rate: float, end: float) -> None:
        """Steps until the moment `end` at the latest: the learner's loop, or its graph as WebAssembly."""
        taken, at_once = 0, 1
        while taken < steps:
            if self.fast:
                times = min(at_once, steps - taken)
                self.losses += [self.fast.take(times, rate)] * times
            else:
                times = 1
                self.step(rate)
            taken += times
            at_once *= 2
            if time.monotonic() > end:
                break
        if self.fast and taken:
            self.gradient = self.fast.gradient()

    def _forget(self, rate: float) -> float:
        loss = self.loss()
        loss.backward()
        for parameter in self.model.parameters():
            parameter.data -= rate * parameter.grad
        return float(loss.data)

    def outputs(self) -> list[float]:
        """What the network says to each example."""
        return [float(self.model(x).data) for x in self.xs]


def _count(root: Any) -> int:
    """The number of nodes below `root`, with itself."""
    seen, pending = {id(root)}, [root]
    while pending:
        fresh = [node for node in pending.pop()._prev if id(node) not in seen]
        seen.update(map(id, fresh))
        pending += fresh
    return len(seen)


class Demonstration:
    """What all of them have: the settings, the program, and the networks that it trains."""

    runs: list[Run]

    def __init__(
        self,
        settings: dict[str, Any],
        activations: Sequence[str] = ("tanh",),
        attempt: Callable[[Program], object] = lambda program: None,
    ) -> None:
        self.settings = settings
        self.program = assemble(settings.get("program"), activations, attempt)

    @property
    def rate(self) -> float:
        return float(self.settings.get("lr", 0.05))

    def adjust(self, settings: dict[str, Any]) -> None:
        """New settings, from the next step on."""
        self.settings = self.settings | settings

    def step(self) -> None:
        for run in self.runs:
            run.step(self.rate)

    def advance(self, steps: int, seconds: float) -> None:
        """Take so many steps, or as many as fit."""
        repeat(self.step, steps, seconds)

    def work(self) -> dict[str, Any]:
        """What ran: how many nodes it has made in how many steps, and what of the program is lent."""
        nodes, taken = sum(run.nodes for run in self.runs), sum(len(run.losses) for run in self.runs)
        return {"nodes": nodes, "taken": taken, "lent": self.program.lent, "failing": self.program.failing}


class Training(Demonstration):
    """Gradient descent on the lecture's four points, or on xor.

    Without `zero`, gradients accumulate over all steps, as they do if you forget to reset them.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        examples = _EXAMPLES[settings.get("data", "four-points")]()
        hidden = [int(n) for n in settings.get("hidden", [4, 4])]
        self.run = Run(self.program, examples, hidden, seed=int(settings.get("seed", 1)))
        self.runs = [self.run]

    def step(self) -> None:
        self.run.step(self.rate, bool(self.settings.get("zero", True)))

    def state(self) -> dict[str, Any]:
        run, chosen = self.run, int(self.settings.get("example", 0))

        def loss(network: Watched, x: list[Any]) -> Any:
            return self.program.loss_of(network, [*run.xs[:chosen], x, *run.xs[chosen + 1 :]], run.ys)

        return {
            "losses": run.losses,
            "inputs": run.xs,
            "outputs": run.outputs(),
            "targets": run.ys,
            "example": chosen,
            "network": wiring(run.model, run.xs[chosen], loss),
        }


class Untrained(Demonstration):
    """The learner's network before any training, for inputs that they choose, with the gradient of its output."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.runs = settings, []
        sizes = [len(self.inputs), *(int(n) for n in settings.get("hidden", [4, 4])), 1]
        self.program = assemble(settings.get("program"), (), lambda program: program.network(sizes)(self.inputs))
        self.model = self.program.network(sizes, seed=int(settings.get("seed", 1)))

    @property
    def inputs(self) -> list[float]:
        return [float(x) for x in self.settings.get("inputs", [2.0, 3.0, -1.0])]

    def state(self) -> dict[str, Any]:
        return {"network": wiring(self.model, self.inputs)}


class ForgottenZero(Demonstration):
    """Two training runs from the same start; the second never resets its gradients."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.trainings = [Training(settings | {"zero": zero}) for zero in (True, False)]
        self.runs = [training.run for training in self.trainings]

    def step(self) -> None:
        for training in self.trainings:
            training.step()

    def state(self) -> dict[str, Any]:
        return {"losses": [run.losses for run in self.runs], "largest": [run.largest for run in self.runs]}


class Comparison(Demonstration):
    """The same network with two activations on xor, from several starts each."""

    ACTIVATIONS = ("tanh", "relu")

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings, self.ACTIVATIONS)
        hidden, seeds = int(settings.get("hidden", 4)), range(int(settings.get("seeds", 8)))
        self.by_activation = {
            name: [Run(self.program, _EXAMPLES["xor"](), [hidden], name, seed) for seed in seeds]
            for name in self.ACTIVATIONS
        }
        self.runs = [run for runs in self.by_activation.values() for run in runs]

    def state(self) -> dict[str, Any]:
        return {"losses": {name: [run.losses for run in runs] for name, runs in self.by_activation.items()}}


class Race(Demonstration):
    """The same steps from the same start, by the learner's loop and by its graph as WebAssembly, for some time each."""

    SECONDS = 2.0

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        points, _ = _points(settings)
        hidden = [int(n) for n in settings.get("hidden", [8, 8])]
        self.loop, self.module = (Run(self.program, points, hidden) for _ in range(2))
        started = time.monotonic()
        self.module.speed_up()
        self.building = time.monotonic() - started
        self.seconds = [0.0, 0.0]
        self.runs = [self.loop]  # whose nodes are made, one by one

    def advance(self, steps: int, seconds: float) -> None:
        turn = int(self.seconds[0] >= self.SECONDS)
        if self.seconds[turn] < self.SECONDS:
            run, started = (self.loop, self.module)[turn], time.monotonic()
            run.many(steps, self.rate, started + seconds)
            self.seconds[turn] += time.monotonic() - started

    def state(self) -> dict[str, Any]:
        sides = zip((self.loop, self.module), self.seconds, strict=True)
        fast = self.module.fast
        return {
            "sides": [
                {"steps": len(run.losses), "seconds": seconds, "loss": run.losses[-1] if run.losses else None}
                for run, seconds in sides
            ],
            "left": int(self.seconds[1] < self.SECONDS) if fast else 0,
            "nodes_per_step": self.loop.nodes_per_step,
            "bytes": len(fast.program.binary) if fast else None,
            "building": self.building,
        }


class Playground(Demonstration):
    """A network that separates points of two classes, -1 and 1. Half of the points are held back as a test."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.activation = str(settings.get("activation", "tanh"))
        hidden = [int(n) for n in settings.get("hidden", [6, 6])]

        def attempt(program: Program) -> None:
            """A network of this shape: micrograd's layers, for one, cannot follow a layer of a single neuron."""
            program.network([2, *hidden, 1], self.activation)([0.5, -0.5])

        super().__init__(settings, [self.activation], attempt)
        points, self.test = _points(settings)
        self.run = Run(self.program, points, hidden, self.activation, int(settings.get("seed", 1)))
        for depth, layer in enumerate(self.run.model.layers, 1):
            for i, neuron in enumerate(layer.neurons, 1):
                neuron.b.label = f"b{depth},{i}"
                for k, weight in enumerate(neuron.w, 1):
                    weight.label = f"w{depth},{i},{k}"

        self.run.speed_up()
        self.seconds = 0.0
        self.runs = [self.run]

    def advance(self, steps: int, seconds: float) -> None:
        started = time.monotonic()
        self.run.many(steps, self.rate, started + seconds)
        self.seconds += time.monotonic() - started

    def adjust(self, settings: dict[str, Any]) -> None:
        super().adjust(settings)
        points, self.test = _points(self.settings)
        self.run.learn(points)

    def state(self) -> dict[str, Any]:
        gradient = dict(zip(map(id, self.run.model.parameters()), self.run.gradient, strict=False))  # none at first
        layers = [[[*neuron.w, neuron.b] for neuron in layer.neurons] for layer in self.run.model.layers]
        points = [[*x, y] for x, y in zip(self.run.xs, self.run.ys, strict=True)]
        losses = self.run.losses
        loss = losses[-1] / len(points) if losses else None
        fast = self.run.fast is not None and self.seconds > 0
        return {
            "steps": len(losses),
            "loss": loss,
            "layers": [[[p.data for p in neuron] for neuron in layer] for layer in layers],
            "gradients": [[[gradient.get(id(p)) for p in neuron] for neuron in layer] for layer in layers],
            "points": points,
            "test": self.test,
            "fast": self.run.fast is not None,
            "speed": len(losses) / self.seconds if fast else None,
        }

    def graph(self, x: Sequence[float], target: float) -> dict[str, Any]:
        """The loss of one point, with every gradient, as the stepper shows it. Training is not affected."""
        model, make = self.run.model, type(self.run.model.parameters()[0])
        values = [make(number) for number in x]
        for i, value in enumerate(values, 1):
            value.label = f"x{i}"
        for depth, layer in enumerate(model.layers, 1):
            values = answers(layer(values))
            for i, value in enumerate(values, 1):
                value.label = "score" if layer is model.layers[-1] else f"h{depth},{i}"
        loss = self.program.loss_of(lambda _: values[0], [x], [target])
        loss.label = "loss"
        return describe(loss) if isinstance(loss, Value) else describe_own(loss)


_KINDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "training": Training,
    "forgotten-zero": ForgottenZero,
    "comparison": Comparison,
    "playground": Playground,
    "network": Untrained,
    "race": Race,
    "gpt": MadeUpNames,
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
    return _json({"name": name, **demonstration.work(), **demonstration.state()})


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
    demonstration.advance(steps, seconds)
    return _json(demonstration.work() | demonstration.state())


def adjust(name: str, settings: str) -> str:
    """Change settings of a demonstration, such as its rate, without starting over; null if it is no longer kept.

    >>> name = json.loads(start("training", '{"data": "xor"}'))["name"]
    >>> json.loads(adjust(name, '{"lr": 0.2}'))["losses"]
    []
    """
    if (demonstration := _kept.get(name)) is None:
        return "null"
    demonstration.adjust(json.loads(settings))
    return _json(demonstration.work() | demonstration.state())


def point_graph(name: str, x: float, y: float, target: float) -> str:
    """The graph of one point's loss in a playground, {"graph": …} or {"error": …}; null if it is no longer kept."""
    if (playground := _kept.get(name)) is None:
        return "null"
    try:
        return json.dumps({"graph": playground.graph([x, y], target)})
    except ValueError as error:  # it has too many nodes to be shown
        return json.dumps({"error": str(error)})


def layer_gradients(depth: int, activation: str, init: str, seed: int, program: str = "null") -> str:
    """The mean absolute gradient of each layer's weights, in an untrained network with `depth` hidden layers."""
    own = assemble(json.loads(program), [activation])
    points = data.moons(n=12, seed=0)
    run = Run(own, points, [4] * depth, activation, seed)
    for layer in run.model.layers:
        for neuron in layer.neurons:
            for weight in neuron.w:
                weight.data *= _SPREAD[init](len(neuron.w), len(layer.neurons))
    run.loss().backward()
    sizes = [[abs(w.grad) for neuron in layer.neurons for w in neuron.w] for layer in run.model.layers]
    layers = [sum(layer) / len(layer) / len(points) for layer in sizes]
    return _json({"layers": layers, "lent": own.lent, "failing": own.failing})


_SPREAD: dict[str, Callable[[int, int], float]] = {  # by inputs and outputs, for weights drawn from -1 to 1
    "uniform": lambda nin, nout: 1.0,
    "xavier": lambda nin, nout: sqrt(6.0 / (nin + nout)),
    "he": lambda nin, nout: sqrt(6.0 / nin),
}


def _json(state: dict[str, Any]) -> str:
    """As JSON, which has no infinities and NaNs: they become null."""
    try:
        return json.dumps(state, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(state), parse_constant=lambda _: None))


Point = list[float]  # x, y and the class, -1 or 1


def _points(settings: dict[str, Any]) -> tuple[data.Dataset, list[Point]]:
    """The points to learn, and as many to test; of points that were drawn by hand, none are kept back."""
    if drawn := settings.get("points"):
        return data.Dataset([[float(x), float(y)] for x, y, _ in drawn], [int(label) for _, _, label in drawn]), []
    kind, n, seed = str(settings.get("data", "moons")), int(settings.get("n", 40)), int(settings.get("seed", 1))
    if kind not in _POINTS:
        raise ValueError(f"`data` must be moons, circles, spirals, blobs or xor, got {kind!r}")
    both = _POINTS[kind](2 * n, float(settings.get("noise", 0.1)), seed)
    order = Random(seed).sample(range(len(both)), len(both))
    learn, test = ([both[i] for i in half] for half in (order[:n], order[n:]))
    return data.Dataset([x for x, _ in learn], [y for _, y in learn]), [[*x, y] for x, y in test]


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
