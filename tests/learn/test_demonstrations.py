"""The lessons' live parts: trainings agree with PyTorch, graphs with backward(), own programs with chainrule's."""

import json
from itertools import pairwise
from random import Random

import pytest
import torch

from chainrule import data
from chainrule.learn import demonstrations
from chainrule.learn.demonstrations import adjust, advance, layer_gradients, point_graph, start
from learner import PROGRAM


def begin(kind, **settings):
    return json.loads(start(kind, json.dumps(settings)))


def after(name, steps):
    return json.loads(advance(name, steps, 600.0))


def torch_losses(inputs, targets, sizes, seed, lr, steps, zero):
    """The same training in PyTorch: tanh everywhere, sum of squares, plain descent."""
    rng = Random(seed)
    layers = []
    for nin, nout in pairwise(sizes):
        weights = [[rng.uniform(-1.0, 1.0) for _ in range(nin)] for _ in range(nout)]
        layers.append((torch.tensor(weights, dtype=torch.float64), torch.zeros(nout, dtype=torch.float64)))
    parameters = [p.requires_grad_() for layer in layers for p in layer]
    x, y = torch.tensor(inputs, dtype=torch.float64), torch.tensor(targets, dtype=torch.float64)
    losses = []
    for _ in range(steps):
        h = x
        for weights, bias in layers:
            h = torch.tanh(h @ weights.T + bias)
        loss = ((h[:, 0] - y) ** 2).sum()
        if zero:
            for p in parameters:
                p.grad = None
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= lr * p.grad
        losses.append(loss.item())
    return losses


PROGRAMS = pytest.mark.parametrize(
    "program", [None, PROGRAM, PROGRAM | {"engine": "chainrule"}], ids=["chainrule", "own", "own over chainrule"]
)


@PROGRAMS
@pytest.mark.parametrize("zero", [True, False])
def test_a_training_is_pytorchs(program, zero):
    settings = {"hidden": [4, 4], "seed": 3, "lr": 0.02, "zero": zero, "program": program}
    found = after(begin("training", **settings)["name"], 8)
    points = data.four_points()
    expected = torch_losses(points.inputs, points.targets, [3, 4, 4, 1], 3, 0.02, 8, zero)
    assert found["losses"] == pytest.approx(expected, rel=1e-9)


def test_a_forgotten_zero_is_trained_beside_the_right_way():
    found = after(begin("forgotten-zero", seed=3, lr=0.02)["name"], 8)
    for zero, losses in zip((True, False), found["losses"], strict=True):
        assert losses == after(begin("training", seed=3, lr=0.02, zero=zero)["name"], 8)["losses"]
    right, forgotten = found["largest"]
    assert right[0] == forgotten[0]
    assert forgotten[7] > right[7]


def test_numbers_beyond_all_bounds_are_null_for_the_page():
    text = advance(begin("comparison", lr=1e308, seeds=1)["name"], 20, 600.0)
    losses = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["losses"]
    assert losses["relu"][0][-1] is None or losses["tanh"][0][-1] is None


@pytest.mark.parametrize(
    ("kind", "program"),
    [("moons", None), ("circles", None), ("blobs", None), pytest.param("moons", PROGRAM, marks=pytest.mark.slow)],
    ids=["moons", "circles", "blobs", "moons, own program"],
)
def test_the_playground_separates_its_points(kind, program):
    begun = begin("playground", data=kind, n=12, program=program, lr=0.01)
    assert all(abs(x) < 2 and abs(y) < 2 for x, y, _ in begun["points"])  # the plane that the page draws
    state = after(begun["name"], 150)
    network = demonstrations._kept[begun["name"]].run.model
    assert state["steps"] == 150
    assert all((network([x, y]).data > 0) == (label > 0) for x, y, label in state["points"])


MICROGRADS_LAYER = """
class Layer:
    def __init__(self, nin, nout):
        self.neurons = [Neuron(nin) for _ in range(nout)]

    def __call__(self, x):
        out = [n(x) for n in self.neurons]
        return out[0] if len(out) == 1 else out

    def parameters(self):
        return [p for neuron in self.neurons for p in neuron.parameters()]
"""


@pytest.mark.parametrize(("hidden", "failing"), [([3], []), ([1], ["layer"]), ([3, 1], ["layer"])])
def test_a_layer_that_cannot_follow_a_single_neuron_is_lent_where_it_would(hidden, failing):
    own = PROGRAM["own"] | {"layer": MICROGRADS_LAYER, "mlp": PROGRAM["lent"]["mlp"]}
    program = PROGRAM | {"own": own}
    begun = begin("playground", data="circles", n=6, hidden=hidden, program=program)
    assert list(begun["failing"]) == failing
    assert after(begun["name"], 3)["steps"] == 3


@PROGRAMS
def test_the_graph_of_a_point_has_pytorchs_gradients(program):
    begun = begin("playground", hidden=[3], program=program)
    graph = json.loads(point_graph(begun["name"], 0.3, -0.7, -1))["graph"]
    grads = {node["name"]: float(node["grad"]["exact"]) for node in graph["nodes"] if node["grad"]}
    for step in graph["steps"]:
        if "to" in step:
            grads[graph["nodes"][step["to"]]["name"]] = float(step["after"]["exact"])
    weights = [torch.tensor([n[:-1] for n in layer], dtype=torch.float64) for layer in begun["layers"]]
    biases = [torch.tensor([n[-1] for n in layer], dtype=torch.float64) for layer in begun["layers"]]
    for p in (*weights, *biases):
        p.requires_grad_()
    hidden = torch.tanh(weights[0] @ torch.tensor([0.3, -0.7], dtype=torch.float64) + biases[0])
    ((torch.tanh(weights[1] @ hidden + biases[1])[0] + 1) ** 2).backward()
    for depth, (w, b) in enumerate(zip(weights, biases, strict=True), 1):
        for i, row in enumerate(w.grad.tolist(), 1):
            assert grads[f"b{depth},{i}"] == pytest.approx(b.grad[i - 1].item(), abs=1e-12)
            for k, grad in enumerate(row, 1):
                assert grads[f"w{depth},{i},{k}"] == pytest.approx(grad, abs=1e-12)


def test_a_graph_too_large_to_read_is_an_error():
    begun = begin("playground", hidden=[8, 8, 8])
    assert "explains nothing" in json.loads(point_graph(begun["name"], 0.0, 0.0, 1))["error"]


def test_points_that_were_drawn_are_learnt():
    begun = begin("playground", points=[[-1.0, 0.0, 1], [1.0, 0.0, -1]])
    assert begun["points"] == [[-1.0, 0.0, 1], [1.0, 0.0, -1]]


def test_sigmoids_let_gradients_vanish_and_he_weights_keep_relus_alive():
    sigmoid = json.loads(layer_gradients(8, "sigmoid", "uniform", 1))["layers"]
    relu = json.loads(layer_gradients(8, "relu", "he", 1))["layers"]
    assert sigmoid[0] < 1e-3 * sigmoid[-1]
    assert relu[0] > 1e-3 * relu[-1]


def test_the_networks_of_lesson_11_are_the_learners_with_relu_for_tanh():
    given = begin("comparison", seeds=2, lr=0.1, program=PROGRAM)
    found = after(given["name"], 5)["losses"]
    models = demonstrations._kept[given["name"]].by_activation["relu"]
    points = data.xor()
    targets = [2.0 * y - 1.0 for y in points.targets]
    assert found["tanh"][1] == pytest.approx(torch_losses(points.inputs, targets, [2, 4, 1], 1, 0.1, 5, True))
    hidden, last = models[0].model.layers[0].neurons[0], models[0].model.layers[1].neurons[0]
    hidden.w[0].data, hidden.w[1].data, hidden.b.data = 2.0, -1.0, 0.5
    assert [hidden([1.0, y]).data for y in (1.0, 5.0)] == [1.5, 0.0]
    assert abs(last([100.0] * 4).data) <= 1.0


def test_the_rate_and_the_points_change_without_a_restart():
    begun = begin("playground", n=6, lr=0.0001, hidden=[2])
    before = after(begun["name"], 3)
    points = [[-1.0, 0.0, 1], [1.0, 0.0, -1]]
    changed = json.loads(adjust(begun["name"], json.dumps({"lr": 0.2, "points": points})))
    assert changed["steps"] == 3
    assert changed["layers"] == before["layers"]
    assert changed["points"] == points
    assert after(begun["name"], 100)["loss"] < 0.05
    assert adjust("long gone", "{}") == "null"


def test_nodes_and_steps_are_counted():
    begun = begin("training", data="xor", program=PROGRAM)
    assert (begun["nodes"], begun["taken"]) == (0, 0)
    demonstration = demonstrations._kept[begun["name"]]
    own_class = demonstration.program.names["Value"]
    made, init = [], own_class.__init__
    own_class.__init__ = lambda self, *arguments: made.append(init(self, *arguments))
    for _ in range(3):
        demonstration.step()
    assert len(made) > 100
    assert (demonstration.work()["nodes"], demonstration.work()["taken"]) == (len(made), 3)


def test_only_so_many_are_kept():
    first = begin("training")["name"]
    for _ in range(demonstrations.MOST_KEPT):
        begin("training")
    assert advance(first, 1, 1.0) == "null"
    assert point_graph(first, 0.0, 0.0, 1) == "null"


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match=r"`kind` must be one of training, forgotten-zero, .*, got 'dance'"):
        start("dance", "{}")
    with pytest.raises(ValueError, match="`data` must be moons, circles, spirals, blobs or xor, got 'stars'"):
        begin("playground", data="stars")
