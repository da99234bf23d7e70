"""The drawn networks: every number is PyTorch's, gradients are numerical differences, and no other shape is drawn."""

import json

import pytest
import torch
from test_mutants import RIGHT

from chainrule.learn import demonstrations
from chainrule.learn.demonstrations import adjust, advance, start
from chainrule.learn.lent import MLP, Layer, Neuron
from chainrule.learn.own_program import assemble
from chainrule.learn.wiring import wiring
from learner import COURSE, OWN, PROGRAM

NETWORK = PROGRAM | {"template": COURSE.templates["Network"]}
STYLES = [(name, code) for name, code in RIGHT if name in ("neuron", "layer", "mlp")]


def begin(kind, **settings):
    return json.loads(start(kind, json.dumps(settings)))


def tensors(layers):
    """The weights and biases of a drawn network."""
    weights = [torch.tensor([n["weights"] for n in layer], dtype=torch.float64).requires_grad_() for layer in layers]
    biases = [torch.tensor([n["bias"] for n in layer], dtype=torch.float64).requires_grad_() for layer in layers]
    return weights, biases


def forward(weights, biases, x):
    """The sums and outputs of each layer for the rows of x."""
    sums, outputs = [], []
    for weight, bias in zip(weights, biases, strict=True):
        sums.append(x @ weight.T + bias)
        x = torch.tanh(sums[-1])
        x.retain_grad()
        outputs.append(x)
    return sums, outputs


def same(found, tensor):
    assert found == pytest.approx(tensor.tolist(), rel=1e-9, abs=1e-12)


def check(network, inputs, chosen, result_of):
    """That a drawn network is PyTorch's: its numbers for one row of `inputs`, and the gradient of `result_of`."""
    weights, biases = tensors(network["layers"])
    x = torch.tensor(inputs, dtype=torch.float64, requires_grad=True)
    sums, outputs = forward(weights, biases, x)
    result = result_of(outputs[-1][:, 0])
    result.backward()
    assert network["result"] == pytest.approx(result.item(), rel=1e-9)
    same([data for data, _ in network["inputs"]], x[chosen])
    same([gradient for _, gradient in network["inputs"]], x.grad[chosen])
    for depth, layer in enumerate(network["layers"]):
        same([neuron["sum"] for neuron in layer], sums[depth][chosen])
        same([neuron["output"] for neuron in layer], outputs[depth][chosen])
        same([neuron["gradient"] for neuron in layer], outputs[depth].grad[chosen])
        same([neuron["biasGradient"] for neuron in layer], biases[depth].grad)
        for neuron, gradient in zip(layer, weights[depth].grad, strict=True):
            same(neuron["weightGradients"], gradient)


@pytest.mark.parametrize("program", [None, NETWORK], ids=["chainrule's", "own"])
def test_the_untrained_network_is_pytorchs(program):
    begun = begin("network", inputs=[2, 3, -1], hidden=[4, 3], seed=5, program=program)
    check(begun["network"], [[2.0, 3.0, -1.0]], 0, torch.sum)
    moved = json.loads(adjust(begun["name"], json.dumps({"inputs": [0, -0.5, 1.5]})))["network"]
    check(moved, [[0.0, -0.5, 1.5]], 0, torch.sum)
    assert [n["weights"] for n in moved["layers"][0]] == [n["weights"] for n in begun["network"]["layers"][0]]


@pytest.mark.parametrize("program", [None, PROGRAM], ids=["chainrule's", "own"])
@pytest.mark.parametrize("chosen", [0, 2])
def test_the_network_in_training_is_pytorchs(program, chosen):
    begun = begin("training", hidden=[4, 4], example=chosen, program=program)
    state = json.loads(advance(begun["name"], 3, 600.0))
    targets = torch.tensor(state["targets"], dtype=torch.float64)
    assert state["example"] == chosen
    check(state["network"], state["inputs"], chosen, lambda outputs: ((outputs - targets) ** 2).sum())
    assert state["network"]["layers"][-1][0]["output"] == pytest.approx(state["outputs"][chosen])


def test_gradients_are_numerical_differences():
    begun = begin("training", data="xor", hidden=[3], program=PROGRAM)
    run = demonstrations._kept[begun["name"]].run
    h = 1e-5
    for layer, drawn in zip(run.model.layers, begun["network"]["layers"], strict=True):
        for neuron, numbers in zip(layer.neurons, drawn, strict=True):
            gradients = [*numbers["weightGradients"], numbers["biasGradient"]]
            for parameter, gradient in zip((*neuron.w, neuron.b), gradients, strict=True):
                middle, ends = parameter.data, []
                for parameter.data in (middle + h, middle - h):
                    ends.append(run.loss().data)
                parameter.data = middle
                assert gradient == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6, abs=1e-8)


def test_looking_leaves_gradients_alone():
    model = MLP(2, [3, 1])
    for k, parameter in enumerate(model.parameters()):
        parameter.grad = float(k)
    wiring(model, [1.0, 2.0])
    assert [parameter.grad for parameter in model.parameters()] == list(range(13))


@pytest.mark.parametrize(("name", "code"), STYLES, ids=[f"{name} {i}" for i, (name, _) in enumerate(STYLES)])
def test_right_answers_in_any_style_are_drawn(name, code):
    program = assemble(NETWORK | {"own": {name: code}}, ())
    found = wiring(program.network([2, 3, 1]), [0.5, -1.0])
    assert not program.failing
    check(found, [[0.5, -1.0]], 0, torch.sum)


class Relu(Neuron):
    def __call__(self, x):
        return sum((w * each for w, each in zip(self.w, x, strict=True)), self.b).relu()


class Doubled(MLP):
    def __call__(self, x):
        return super().__call__(x) * 2


class Last(Layer):
    def __call__(self, x):
        return [self.neurons[-1](x)]


def built(neuron=Neuron, last=Layer, network=MLP, outputs=1):
    model = network(2, [3, outputs])
    model.layers[-1].__class__ = last
    for each in model.layers:
        for one in each.neurons:
            one.__class__ = neuron
            one.b.data = 0.5
    return model


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda x: x[0], "it is not made of `layers` of `neurons` with weights `w` and a bias `b`"),
        (built(neuron=Relu), "a neuron's output is not the tanh of its weighted inputs and its bias"),
        (built(network=Doubled), "it does more than to hand each layer's answers to the next"),
        (built(last=Last, outputs=2), "a layer does not return one number for each of its neurons"),
    ],
    ids=["no layers", "relu", "doubled", "one answer"],
)
def test_what_would_not_be_true_is_not_drawn(model, why):
    found = wiring(model, [1.0, 2.0])
    assert list(found) == ["unreadable"]
    assert found["unreadable"].startswith(why)


def test_a_network_without_layers_runs_and_is_not_drawn():
    flat = """
class MLP:
    def __init__(self, nin, nouts):
        self.only = Neuron(nin)

    def __call__(self, x):
        return self.only(x)
"""
    begun = begin("network", program=NETWORK | {"own": OWN | {"mlp": flat}})
    assert (begun["failing"], list(begun["network"])) == ([], ["unreadable"])


def test_a_network_that_fails_is_lent():
    begun = begin("network", program=NETWORK | {"own": OWN | {"layer": "class Layer:\n    pass"}})
    assert begun["failing"] == ["layer"]
    check(begun["network"], [[2.0, 3.0, -1.0]], 0, torch.sum)


@pytest.mark.parametrize("program", [None, PROGRAM], ids=["chainrule's", "own"])
def test_the_playground_tells_the_gradient_of_the_last_step(program):
    begun = begin("playground", hidden=[3], n=8, lr=0.03, program=program)
    assert begun["gradients"] == [[[None] * 3] * 3, [[None] * 4]]
    weights = [torch.tensor([n[:-1] for n in layer], dtype=torch.float64) for layer in begun["layers"]]
    biases = [torch.tensor([n[-1] for n in layer], dtype=torch.float64) for layer in begun["layers"]]
    for p in (*weights, *biases):
        p.requires_grad_()
    points = torch.tensor(begun["points"], dtype=torch.float64)
    _, outputs = forward(weights, biases, points[:, :2])
    ((outputs[-1][:, 0] - points[:, 2]) ** 2).sum().backward()
    found = json.loads(advance(begun["name"], 1, 600.0))["gradients"]
    for layer, weight, bias in zip(found, weights, biases, strict=True):
        for neuron, row, b in zip(layer, weight.grad, bias.grad, strict=True):
            assert neuron == pytest.approx([*row.tolist(), b.item()], rel=1e-9, abs=1e-9)
