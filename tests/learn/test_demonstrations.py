"""The lessons' live parts: trainings agree with PyTorch, graphs with backward(), own classes with chainrule's."""

import json
from inspect import getsource
from itertools import pairwise
from random import Random

import pytest
import torch

from chainrule import closures, data
from chainrule.learn import demonstrations
from chainrule.learn.demonstrations import advance, layer_gradients, point_graph, start

OWN = getsource(closures)


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


@pytest.mark.parametrize("own", ["", OWN], ids=["chainrule", "own"])
@pytest.mark.parametrize("zero", [True, False])
def test_a_training_is_pytorchs(own, zero):
    settings = {"hidden": [4, 4], "seed": 3, "lr": 0.02, "zero": zero, "own": own}
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
    text = advance(begin("comparison", lr=1e9, seeds=1)["name"], 20, 600.0)
    losses = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["losses"]
    assert losses["relu"][0][-1] is None or losses["tanh"][0][-1] is None


@pytest.mark.parametrize(
    ("kind", "own"),
    [("moons", ""), ("circles", ""), ("blobs", ""), pytest.param("moons", OWN, marks=pytest.mark.slow)],
    ids=["moons", "circles", "blobs", "moons, own class"],
)
def test_the_playground_separates_its_points(kind, own):
    begun = begin("playground", data=kind, n=30, own=own)
    assert all(abs(x) < 2 and abs(y) < 2 for x, y, _ in begun["points"])  # the plane that the page draws
    state = after(begun["name"], 150)
    network = demonstrations._kept[begun["name"]].network
    assert state["steps"] == 150
    assert all((network([x, y]).data > 0) == (label > 0) for x, y, label in state["points"])


@pytest.mark.parametrize("own", ["", OWN], ids=["chainrule", "own"])
def test_the_graph_of_a_point_has_pytorchs_gradients(own):
    begun = begin("playground", hidden=[3], own=own)
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
    torch.relu(1 + (weights[1] @ hidden + biases[1])[0]).backward()
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
