"""What goes on inside a network, layer by layer: activations, gradients, and whether any of it is a bad sign.

A unit is *dead* if its relu is 0 for every input: no gradient reaches its weights, so it stays dead. An output is
*saturated* where tanh or sigmoid is nearly flat. Gradients *vanish* in a layer where they are a thousand times smaller
than in the layer with the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.core.graph import same_gradients
from chainrule.core.value import Value
from chainrule.data import Dataset
from chainrule.nn import MLP, Layer, Module, Neuron, Sequential
from chainrule.training.inference import answers

FLAT = 0.97  # from here on tanh has lost 94 % of its slope, and sigmoid (0.03 or 0.97) 88 %
FAR = 1e3  # factor between two layers' gradients from which on a warning is given


@dataclass(frozen=True)
class LayerRow:
    """One layer of a report: shares are between 0 and 1, gradients are root mean squares over its parameters."""

    name: str
    activation: str
    units: int
    dead: float  # share of units that are 0 for every input
    saturated: float  # share of outputs, over units and inputs, where the activation is nearly flat
    gradient: float
    relative: float  # to the largest gradient of any layer


@dataclass(frozen=True)
class LayerReport:
    """The health of a network: one row per layer, and sentences about what is wrong.

    >>> model = MLP(1, [2, 1], rng=0)
    >>> print(report(model, [[1.0], [2.0]], [1.0, -1.0], lambda p, y: (p[0] - y[0]) ** 2))
    layer    activation  units  dead  saturated  gradient  relative
    layer 1  relu            2    0%          -      0.98      0.47
    layer 2  linear          1     -          -       2.1         1
    nothing wrong
    """

    rows: tuple[LayerRow, ...]
    findings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def __str__(self) -> str:
        table = [("layer", "activation", "units", "dead", "saturated", "gradient", "relative")]
        for row in self.rows:
            dead = f"{row.dead:.0%}" if row.activation == "relu" else "-"
            saturated = f"{row.saturated:.0%}" if row.activation in ("tanh", "sigmoid") else "-"
            numbers = f"{row.units}", dead, saturated, f"{row.gradient:.2g}", f"{row.relative:.2g}"
            table.append((row.name, row.activation, *numbers))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([name.ljust(widths[0]), kind.ljust(widths[1]), *map(str.rjust, rest, widths[2:])])
            for name, kind, *rest in table
        ]
        return "\n".join([*lines, *(self.findings or ["nothing wrong"])])


def report(
    model: Module,
    inputs: Any,
    targets: Sequence[Any] | None = None,
    loss: Callable[[list[Any], list[Any]], Value] | None = None,
) -> LayerReport:
    """Look for dead units, saturated activations and vanishing or exploding gradients.

    Gradients are those that the parameters hold from the last `backward()`. With `targets` and a `loss`, they are those
    of that loss, and the parameters keep theirs. `inputs` may be a Dataset, which has the targets too.

    >>> model = MLP(1, [3, 1], rng=1)
    >>> for neuron in model.layers[0].neurons:
    ...     neuron.b.data = -100.0
    >>> report(model, [[1.0], [2.0]]).findings[0]
    'dead units: 3 of 3 in layer 1; their relu is 0 for every input; try a smaller learning rate, or leaky_relu'
    """
    if isinstance(inputs, Dataset):
        inputs, targets = inputs.inputs, inputs.targets if targets is None else targets
    outputs = outputs_by_layer(model, inputs)
    gradients = gradients_by_layer(model) if loss is None else _gradients_of(loss, model, inputs, targets)
    squares = {name: np.mean(np.square(gradients.get(name, 0.0))) for name in outputs}
    sizes = {name: float(np.sqrt(square)) for name, square in squares.items()}
    largest = max(sizes.values())
    rows = []
    for name, (kind, numbers) in outputs.items():
        dead = float((numbers <= 0.0).all(axis=0).mean()) if kind == "relu" else 0.0
        relative = sizes[name] / largest if largest else 0.0
        share = saturation(kind, numbers)
        rows.append(LayerRow(name, kind, numbers.shape[1], dead, share, sizes[name], relative))
    return LayerReport(tuple(rows), tuple(_findings(rows, largest)))


def outputs_by_layer(model: Module, inputs: Any) -> dict[str, tuple[str, np.ndarray]]:
    """For each layer, the name of its activation and its outputs, with one row per input and one column per unit.

    >>> {name: numbers.shape for name, (_, numbers) in outputs_by_layer(MLP(2, [3, 1], rng=0), [[1.0, 2.0]]).items()}
    {'layer 1': (1, 3), 'layer 2': (1, 1)}
    """
    rows = inputs.inputs if isinstance(inputs, Dataset) else list(inputs)
    if not rows:
        raise ValueError("`inputs` is empty; give at least one")
    steps = list(chain(model))
    ends: list[int] = []  # of each layer, among the outputs of all

    def outputs(x: Any) -> list[Any]:
        ends.clear()
        found: list[Any] = []
        for step in steps:
            x = step(x)
            if isinstance(step, Module):
                found += x if isinstance(x, (list, tuple)) else [x]
                ends.append(len(found))
        return found

    numbers = np.split(answers(outputs, rows), ends, axis=1)
    layers = [step for step in steps if isinstance(step, Module)]
    return {f"layer {k}": (_activation(layer), numbers[k - 1]) for k, layer in enumerate(layers, 1)}


def saturation(activation: str, outputs: np.ndarray) -> float:
    """The share of outputs where the activation is nearly flat, if it is one that saturates.

    >>> saturation("tanh", np.array([0.5, -0.99]))
    0.5
    """
    if activation == "sigmoid":
        return float(((outputs < 1.0 - FLAT) | (outputs > FLAT)).mean())
    return float((np.abs(outputs) > FLAT).mean()) if activation == "tanh" else 0.0


def gradients_by_layer(model: Module) -> dict[str, np.ndarray]:
    """The gradients that the parameters of each layer hold; of each part if the model has no layers.

    >>> {name: len(numbers) for name, numbers in gradients_by_layer(MLP(2, [3, 1])).items()}
    {'layer 1': 9, 'layer 2': 4}
    """
    if not isinstance(model, Module):
        raise TypeError(f"`model` must be an nn.Module, got {type(model).__name__}")
    groups: dict[str, list[float]] = {}
    if _can_be_chained(model):
        layers = [step for step in chain(model) if isinstance(step, Module)]
        groups = {f"layer {k}": [p.grad for p in layer.parameters()] for k, layer in enumerate(layers, 1)}
    else:
        for name, parameter in model.named_parameters():
            path = name.split(".")
            part = ".".join(path[:2]) if len(path) > 2 and path[1].isdigit() else path[0]  # with its place in a list
            groups.setdefault(part, []).append(parameter.grad)
    if not any(groups.values()):
        raise ValueError(f"`model` has no parameters, and so no gradients: {model!r}")
    return {name: np.array(numbers) for name, numbers in groups.items() if numbers}


def chain(model: Any) -> Iterator[Any]:
    """The layers of a model and the functions between them, in the order in which it applies them.

    >>> list(chain(MLP(2, [3, 1])))
    [Layer(2, 3, activation='relu'), Layer(3, 1, activation='linear')]
    """
    if not _can_be_chained(model):
        wanted = "an nn.MLP, Layer, Neuron or Sequential, whose layers can be called one by one"
        given = f"{type(model).__name__}: give its layers as nn.Sequential(*layers)"
        raise TypeError(f"`model` must be {wanted}; got {given}")
    for step in getattr(model, "layers", None) or getattr(model, "steps", None) or [model]:
        yield from chain(step) if step is not model and _can_be_chained(step) else [step]


def _can_be_chained(model: Any) -> bool:
    kinds = (MLP, Layer, Sequential, Neuron)
    return any(isinstance(model, kind) and type(model).__call__ is kind.__call__ for kind in kinds)


def _activation(layer: Any) -> str:
    neuron = getattr(layer, "neurons", [layer])[0]
    name = getattr(neuron, "activation", "")
    return name if isinstance(name, str) and name else getattr(name, "__name__", type(layer).__name__)


def _gradients_of(loss: Any, model: Any, inputs: Any, targets: Any) -> dict[str, np.ndarray]:
    if targets is None:
        raise ValueError("`loss` needs `targets` to compare with: give both, or neither")
    with same_gradients(model.parameters()):
        model.zero_grad()
        loss([model(x) for x in inputs], list(targets)).backward()
        return gradients_by_layer(model)


def _findings(rows: list[LayerRow], largest: float) -> Iterator[str]:
    if dead := ", ".join(f"{round(row.dead * row.units)} of {row.units} in {row.name}" for row in rows if row.dead):
        yield f"dead units: {dead}; their relu is 0 for every input; try a smaller learning rate, or leaky_relu"
    if flat := [f"{row.saturated:.0%} in {row.name}" for row in rows if row.saturated > 0.5]:
        yield f"saturated outputs: {', '.join(flat)}; try smaller weights, or inputs scaled to about 1"
    if not largest:
        yield "all gradients are 0: call backward() first, or give `targets` and a `loss`"
    elif not math.isfinite(largest):
        yield "some gradients are not finite: try a smaller learning rate, or clip them"
    elif faint := [row for row in rows if row.relative < 1.0 / FAR]:
        least = min(faint, key=lambda row: row.gradient)
        size = f"{least.gradient:.1e} in {least.name}, {least.relative:.0e} of the largest"
        names = ", ".join(row.name for row in faint)
        yield f"vanishing gradients: {names}; {size}; try relu, fewer layers, or init='xavier'"
