"""A network as a Picture: neurons in columns with weights as lines between them, or a card for each layer or module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chainrule.core.graph import number_of
from chainrule.drawing.picture import Edge, Node, Number, Picture, TooLargeError, largest, strength
from chainrule.drawing.values import as_code
from chainrule.nn import MLP, Layer, Module, Neuron, Sequential

MOST_WEIGHTS = 1000  # lines that can be told apart, and laid out in a second
NEURON = 0.42  # inches from one neuron to the next

Layers = list[tuple[str, list[Neuron]]]


def picture_of_network(model: Module, number: Number, limit: int, collapse: str | None = None) -> Picture:
    """Neurons and weights, or with `collapse` a card for each layer; a tree of modules if it is not made of layers."""
    layers = _layers(model)
    if layers is None:
        return _module_tree(model, number, limit)
    if collapse is not None:
        return _layer_cards(layers, number)
    neurons = sum(len(neurons) for _, neurons in layers)
    weights = sum(len(neuron.w) for _, neurons in layers for neuron in neurons)
    if neurons > limit or weights > MOST_WEIGHTS:
        raise TooLargeError(
            f"the network has {neurons:,} neurons and {weights:,} weights, too many to tell apart (at most "
            f'{limit} and {MOST_WEIGHTS:,}): draw(model, collapse="layer") draws a card for each layer'
        )
    return _neurons_and_weights(layers, number)


def _layers(model: Any, path: str = "") -> Layers | None:
    """The layers that numbers pass one after another, with their paths; None if the model is not a chain of layers."""
    if isinstance(model, Neuron):
        return [(path, [model])]
    if isinstance(model, Layer):
        return [(path, model.neurons)]
    if not isinstance(model, (MLP, Sequential)):
        return None
    name, parts = ("layers", model.layers) if isinstance(model, MLP) else ("steps", model.steps)
    found: Layers = []
    for k, part in enumerate(parts):
        inner = _layers(part, f"{path}.{name}.{k}".removeprefix("."))
        if inner is None or (found and len(inner[0][1][0].w) != len(found[-1][1])):
            return None
        found += inner
    return found or None


def _neurons_and_weights(layers: Layers, number: Number) -> Picture:
    largest_weight = largest([number_of(w) for _, neurons in layers for neuron in neurons for w in neuron.w])
    largest_bias = largest([number_of(neuron.b) for _, neurons in layers for neuron in neurons])
    tallest = max(len(layers[0][1][0].w), *(len(neurons) for _, neurons in layers))
    across = 0.6 + max(1.0, 0.12 * tallest)  # between columns, in inches
    before = [f"x{k}" for k in range(len(layers[0][1][0].w))]
    nodes = [
        Node(key, "leaf", f"x[{k}]", hint=f"input {k}", place=_place(0.0, k, len(before)))
        for k, key in enumerate(before)
    ]
    edges: list[Edge] = []
    for depth, (path, neurons) in enumerate(layers):
        keys = [f"h{depth}_{k}" for k in range(len(neurons))]
        x = across * (depth + 1)
        for k, (key, neuron) in enumerate(zip(keys, neurons, strict=True)):
            bias, name = number_of(neuron.b), f"{as_code(path)}.neurons[{k}]" if len(neurons) > 1 else as_code(path)
            tint, hint = strength(bias, largest_bias) * _sign(bias), f"{name} b = {number(bias)}".strip(". ")
            nodes.append(Node(key, "neuron", tint=tint, hint=hint, place=_place(x, k, len(neurons))))
            for i, w in enumerate(neuron.w):
                weight = number_of(w)
                hint = f"{name}.w[{i}] = {number(weight)}".strip(".")
                edges.append(Edge(before[i], key, (), strength(weight, largest_weight), _sign(weight), hint=hint))
        for line, text in enumerate([as_code(path), _activation(neurons[0])]):
            below = -0.5 * NEURON * tallest - 0.05 - 0.16 * line
            nodes.append(Node(f"{line}_{depth}", "more", text, hint=text, place=(x, below)))
        before = keys
    return Picture(nodes, edges, network=True)


def _place(x: float, k: int, count: int) -> tuple[float, float]:
    """The place of node k in a centred column of `count` nodes."""
    return x, NEURON * (0.5 * (count - 1) - k)


def _sign(number: float) -> int:
    return (number > 0.0) - (number < 0.0)


def _layer_cards(layers: Layers, number: Number) -> Picture:
    nodes = [Node("x", "leaf", "inputs", rows=[("", str(len(layers[0][1][0].w)))])]
    edges = []
    for depth, (path, neurons) in enumerate(layers):
        weights = [w for neuron in neurons for w in neuron.w]
        parameters = [*weights, *(neuron.b for neuron in neurons)]
        rows = [("", f"{len(neurons[0].w)} → {len(neurons)} {_activation(neurons[0])}")]
        rows.append(("parameters", f"{len(parameters):,}"))
        rows.append(("mean |w|", number(sum(abs(number_of(w)) for w in weights) / len(weights))))
        rows.append(("‖grad‖", number(gradient_norm(parameters))))
        nodes.append(Node(f"l{depth}", "module", as_code(path) or "layer", rows=rows))
        edges.append(Edge(f"l{depth - 1}" if depth else "x", f"l{depth}"))
    return Picture(nodes, edges)


def _module_tree(model: Module, number: Number, limit: int) -> Picture:
    """A card for each module, with an edge to the module that holds it."""
    modules = model.named_modules()
    if len(modules) > limit:
        raise TooLargeError(
            f"the model has {len(modules):,} modules, more than `limit` = {limit}: draw one of its parts, or raise it"
        )
    keys = {path: f"m{k}" for k, (path, _) in enumerate(modules)}
    nodes, edges = [], []
    for path, module in modules:
        parameters = module.parameters()
        norm = number(gradient_norm(parameters))
        rows = [("", type(module).__name__), ("parameters", f"{len(parameters):,}"), ("‖grad‖", norm)]
        nodes.append(Node(keys[path], "module", as_code(path) or "model", rows=rows))
        if path:
            around = max((other for other in keys if is_under(path, other)), key=len)
            edges.append(Edge(keys[path], keys[around]))
    return Picture(nodes, edges)


def gradient_norm(parameters: Iterable[Any]) -> float:
    """√Σgrad²."""
    return float(sum(parameter.grad**2 for parameter in parameters) ** 0.5)


def own_parameters(model: Module) -> list[tuple[str, Any]]:
    """Every parameter once, with the path of the innermost module that holds it."""
    modules = {path for path, _ in model.named_modules()}
    found = []
    for name, parameter in model.named_parameters():
        path = name
        while path not in modules:
            path = path.rpartition(".")[0]
        found.append((path, parameter))
    return found


def is_under(path: str, above: str) -> bool:
    """Whether the path `above` leads to `path`."""
    return path != above and (not above or path.startswith(f"{above}."))


def _activation(neuron: Neuron) -> str:
    activation = neuron.activation
    return activation if isinstance(activation, str) else getattr(activation, "__name__", "function")
