"""Compiled training against its peers: `python benchmarks/compiler.py` prints a table and writes it to compiler.md.

Every contestant trains the same network on the same points from the same parameters: micrograd-style scalars,
PyTorch, C by hand (plain loops, gcc -O3 -march=native), chainrule eager and chainrule compiled. With `--quick`, a
short run that only prints.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from chainrule import data, fit, losses, nn, optim
from timing import Report, Turn, interleave, machine, versions

RESULTS = Path(__file__).with_name("compiler.md")
SOURCE = Path(__file__).parent / "peers" / "networks.c"

CAPTION = (
    "µs a training step: loss, gradient and update, from the same parameters. Contestants take turns in one process on "
    "one thread; '× ours' compares best times: above 1, ours is faster; less than 1.5 × either way is a tie. "
    "chainrule compiled is `fit(..., compiled=True)` on the unmodified scalar code, without the time to compile, "
    "which is given below the table. Before timing, all agreed on the losses of the first steps to 1e-9."
)


class Workload:
    """A network, its points and its loss, for every contestant."""

    def __init__(self, name: str, model: Callable[[], nn.MLP], points: data.Dataset, loss: Any, penalty: Any) -> None:
        self.name = name
        self.model = model
        self.points = points
        self.loss = loss
        self.penalty = penalty
        self.x, self.y = np.array(points.inputs), np.array(points.targets, dtype=float)

    def fit(self, steps: int, compiled: bool) -> tuple[float, float]:
        """The last loss, and seconds a step."""
        model = self.model()
        optimizer = optim.SGD(model.parameters(), lr=0.01)
        options = {"penalty": self.penalty, "progress": False, "compiled": compiled}
        history = fit(model, self.loss, self.points, optimizer=optimizer, epochs=steps, **options)
        return history.loss[-1], history.seconds / steps


def compiled_steps(work: Workload) -> tuple[Any, float]:
    """Compiled steps, and the seconds that compiling took."""
    from chainrule.compiler.steps import CompiledSteps

    model = work.model()

    def loss(inputs: Any) -> Any:
        total = work.loss([model(x) for x in inputs], work.points.targets)
        return total + work.penalty(model.parameters()) if work.penalty else total

    started = perf_counter()
    steps = CompiledSteps(loss, work.points.inputs, optim.SGD(model.parameters(), lr=0.01))
    return steps, perf_counter() - started


def c_training(work: Workload, library: ctypes.CDLL) -> Callable[[int], float]:
    p = np.array([value.data for value in work.model().parameters()])
    dp = np.zeros_like(p)
    library.train.restype = ctypes.c_double
    function = ctypes.cast(getattr(library, work.name), ctypes.c_void_p)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (p, dp, work.x, work.y)]

    def train(steps: int, keep: Any = (p, dp)) -> float:
        size, count = ctypes.c_long(len(p)), ctypes.c_long(len(work.x))
        rate = ctypes.c_double(0.01)
        parameters, gradient, x, y = pointers
        return library.train(function, parameters, gradient, size, x, y, count, rate, ctypes.c_long(steps))

    return train


def torch_training(work: Workload) -> Callable[[int], float]:
    import torch

    torch.set_num_threads(1)
    model = work.model()
    tanh = model.activation == "tanh"
    layers = []
    for layer in model.layers:
        w = [[value.data for value in neuron.w] for neuron in layer.neurons]
        b = [neuron.b.data for neuron in layer.neurons]
        layers.append([torch.tensor(part, dtype=torch.float64, requires_grad=True) for part in (w, b)])
    parameters = [part for layer in layers for part in layer]
    x, y = torch.tensor(work.x), torch.tensor(work.y)

    def train(steps: int) -> float:
        for _ in range(steps):
            h = x
            for k, (w, b) in enumerate(layers):
                h = h @ w.T + b
                h = torch.tanh(h) if tanh else torch.relu(h) if k < len(layers) - 1 else h
            if tanh:
                loss = ((h[:, 0] - y) ** 2).sum()
            else:
                loss = torch.relu(1 - y * h[:, 0]).mean() + 1e-4 * sum((p * p).sum() for p in parameters)
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter -= 0.01 * gradient
        return float(loss.detach())

    return train


def moons_model() -> nn.MLP:
    random.seed(1337)
    return nn.MLP(2, [16, 16, 1])


WORKLOADS = [
    Workload(
        "four_points",
        lambda: nn.MLP(3, [4, 4, 1], activation="tanh", output="tanh", rng=1),
        data.four_points(),
        losses.sum_of_squares,
        None,
    ),
    Workload("moons", moons_model, data.micrograd_moons(), losses.hinge, losses.l2(1e-4)),
]


def c_library(folder: str) -> ctypes.CDLL:
    path = Path(folder) / "networks.so"
    flags = ["-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", str(path), str(SOURCE), "-lm"], check=True)
    return ctypes.CDLL(str(path))


def turn(train: Callable[[int], Any], steps: int) -> Turn:
    return Turn(lambda _: train(steps))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer turns, and no compiler.md")
    quick = options.parse_args().quick
    rounds, patience = (7, 1.0) if quick else (31, 8.0)
    notes = [f"Machine: {machine()}. Peers: {versions('torch', 'llvmlite')}, gcc."]
    report = Report("Compiler benchmark" + (" (quick)" if quick else ""), CAPTION, notes)
    with tempfile.TemporaryDirectory() as folder:
        library = c_library(folder)
        for work in WORKLOADS:
            steps, seconds = compiled_steps(work)
            nodes, statements = steps.stats["scalar nodes"], steps.stats["array statements"]
            notes.append(
                f"{work.name}: {nodes:,} scalar nodes in {statements} array statements, compiled in {seconds:.2f} s."
            )
            contestants = {
                "chainrule compiled": (lambda n, steps=steps: steps.run(n), 2000),
                "C by hand": (c_training(work, library), 2000),
                "PyTorch": (torch_training(work), 20),
                "chainrule eager, in fit": (lambda n, work=work: work.fit(n, compiled=False), 2),
            }
            first = [
                steps.run(3)[-1],
                contestants["C by hand"][0](3),
                contestants["PyTorch"][0](3),
                work.fit(3, False)[0],
            ]
            assert max(first) - min(first) < 1e-9, first
            times = {
                name: [seconds / count for seconds in row]
                for (name, (_, count)), row in zip(
                    contestants.items(),
                    interleave({n: turn(t, c) for n, (t, c) in contestants.items()}, rounds, patience, 1e6).values(),
                    strict=True,
                )
            }
            report.add(f"{work.name}: µs a step", times, "chainrule compiled")
    report.show()
    if not quick:
        RESULTS.write_text(report.markdown())


if __name__ == "__main__":
    main()
