"""A learner's network as the page draws it: weights, sums and outputs, and the gradient of one result.

The numbers are read from the learner's own objects: weights from their neurons, outputs from their layers, gradients
from their `backward()`. A network of another shape than the course's is not drawn; a sentence says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isclose, isfinite, tanh
from typing import Any

Result = Callable[["Watched", list[Any]], Any]


class UnreadableError(ValueError):
    """A network in which weights, sums and outputs cannot be told apart; the message says what is different."""


class Watched:
    """A network that remembers what every neuron answered. Whatever else it is asked for is the model's."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.calls: list[tuple[list[Any], list[list[Any]]]] = []  # inputs, and the outputs of each layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, x: Sequence[Any]) -> Any:
        outputs, values = [], list(x)
        for layer in self.model.layers:
            values = answers(layer(values))
            outputs.append(values)
        self.calls.append((list(x), outputs))
        return values[0] if len(values) == 1 else values

    def outputs_for(self, x: list[Any]) -> list[list[Any]]:
        """The outputs of each layer, when these very objects were its inputs."""
        for inputs, outputs in self.calls:
            if [*map(id, inputs)] == [*map(id, x)]:
                return outputs
        raise UnreadableError("its loss does not ask the network about this example")


def answers(of_layer: Any) -> list[Any]:
    """What a layer returned, as a list: a layer with one neuron may return its answer by itself."""
    return list(of_layer) if isinstance(of_layer, (list, tuple)) else [of_layer]


def wiring(model: Any, x: Sequence[float], result: Result = lambda network, x: network(x)) -> dict[str, Any]:
    """Every number of a network for the inputs `x`, with the gradient of `result(network, inputs)`.

    By default, the result is the network's output. Gradients that the parameters hold are left as they were.
    Returns {"unreadable": why} if the network is not made of layers of tanh neurons with weights `w` and a bias `b`.

    >>> from chainrule.learn.lent import MLP
    >>> found = wiring(MLP(2, [3, 1]), [0.5, -1.0])
    >>> [len(layer) for layer in found["layers"]], found["layers"][1][0]["gradient"]
    ([3, 1], 1.0)
    """
    try:
        return _read(model, x, result)
    except UnreadableError as error:
        return {"unreadable": str(error)}


def _read(model: Any, x: Sequence[float], result: Result) -> dict[str, Any]:
    layers = _neurons(model)
    parameters = [p for layer in layers for weights, bias in layer for p in (*weights, bias)]
    before = [p.grad for p in parameters]
    inputs = [type(parameters[0])(float(number)) for number in x]
    network = Watched(model)
    root = result(network, inputs)
    outputs = network.outputs_for(inputs)
    _check_path(model, x, outputs)
    try:
        for p in parameters:
            p.grad = 0.0
        root.backward()
        found = [_layer(*each) for each in zip(layers, [inputs, *outputs], outputs, strict=False)]
    finally:
        for p, grad in zip(parameters, before, strict=True):
            p.grad = grad
    return {"inputs": [[i.data, i.grad] for i in inputs], "layers": found, "result": root.data}


def _neurons(model: Any) -> list[list[tuple[list[Any], Any]]]:
    """The weights and the bias of every neuron, layer by layer."""
    try:
        return [[(list(neuron.w), neuron.b) for neuron in layer.neurons] for layer in model.layers]
    except (AttributeError, TypeError) as error:
        raise UnreadableError(
            f"it is not made of `layers` of `neurons` with weights `w` and a bias `b`: {error}"
        ) from None


def _check_path(model: Any, x: Sequence[float], outputs: list[list[Any]]) -> None:
    """That the network itself says what its layers say, one after the other."""
    for own, traced in zip(answers(model(list(x))), outputs[-1], strict=True):
        if not _agree(own.data, traced.data):
            raise UnreadableError("it does more than to hand each layer's answers to the next")


def _layer(neurons: list[tuple[list[Any], Any]], inputs: list[Any], outputs: list[Any]) -> list[dict[str, Any]]:
    if len(neurons) != len(outputs):
        raise UnreadableError("a layer does not return one number for each of its neurons")
    return [_neuron(*neuron, inputs, output) for neuron, output in zip(neurons, outputs, strict=True)]


def _neuron(weights: list[Any], bias: Any, inputs: list[Any], output: Any) -> dict[str, Any]:
    if len(weights) != len(inputs):
        raise UnreadableError("a neuron does not have one weight for each of its inputs")
    total = bias.data + sum(w.data * i.data for w, i in zip(weights, inputs, strict=True))
    if not _agree(tanh(total), output.data):
        raise UnreadableError("a neuron's output is not the tanh of its weighted inputs and its bias")
    return {
        "weights": [w.data for w in weights],
        "weightGradients": [w.grad for w in weights],
        "bias": bias.data,
        "biasGradient": bias.grad,
        "sum": total,
        "output": output.data,
        "gradient": output.grad,
    }


def _agree(one: float, other: float) -> bool:
    """Whether two ways to compute a number agree. Beyond all bounds, the order of a sum decides what comes out."""
    return isclose(one, other, rel_tol=1e-6, abs_tol=1e-9) or not (isfinite(one) and isfinite(other))
