"""Code in the manner of micrograd's notebooks and tests runs when only its import lines change."""

import random

import numpy as np
import pytest
import torch

from chainrule import Value as Value  # in place of: from micrograd.engine import Value
from chainrule import data, nn
from chainrule.nn import MLP, Neuron  # in place of: from micrograd.nn import ...


class Digraph:
    """As much of graphviz.Digraph as the drawing notebook uses."""

    def __init__(self, format, graph_attr):  # noqa: A002
        self.nodes, self.edges = {}, []

    def node(self, name, label, shape=None):
        self.nodes[name] = label

    def edge(self, a, b):
        self.edges.append((a, b))


def trace(root):
    nodes, edges = set(), set()

    def build(v):
        if v not in nodes:
            nodes.add(v)
            for child in v._prev:
                edges.add((child, v))
                build(child)

    build(root)
    return nodes, edges


def draw_dot(root, format="svg", rankdir="LR"):  # noqa: A002
    nodes, edges = trace(root)
    dot = Digraph(format=format, graph_attr={"rankdir": rankdir})
    for n in nodes:
        dot.node(name=str(id(n)), label="{ data %.4f | grad %.4f }" % (n.data, n.grad), shape="record")  # noqa: UP031
        if n._op:
            dot.node(name=str(id(n)) + n._op, label=n._op)
            dot.edge(str(id(n)) + n._op, str(id(n)))
    for n1, n2 in edges:
        dot.edge(str(id(n1)), str(id(n2)) + n2._op)
    return dot


def test_the_drawing_notebook_on_a_small_expression():
    x = Value(1.0)
    y = (x * 2 + 1).relu()
    y.backward()
    dot = draw_dot(y)
    assert sorted(dot.nodes.values()) == [
        "*",
        "+",
        "relu",
        "{ data 1.0000 | grad 0.0000 }",
        "{ data 1.0000 | grad 2.0000 }",
        "{ data 2.0000 | grad 0.0000 }",
        "{ data 2.0000 | grad 1.0000 }",
        "{ data 3.0000 | grad 1.0000 }",
        "{ data 3.0000 | grad 1.0000 }",
    ]
    assert len(dot.edges) == 8


def test_the_drawing_notebook_on_a_neuron():
    random.seed(1337)
    n = Neuron(2)
    x = [Value(1.0), Value(-2.0)]
    y = n(x)
    y.backward()
    dot = draw_dot(y)
    assert len([label for label in dot.nodes.values() if label.startswith("{")]) == 10
    assert f"{n.w[0].data:.4f}" in " ".join(dot.nodes.values())


@pytest.mark.slow
def test_the_demo_notebook_with_numpy_data():
    np.random.seed(1337)
    random.seed(1337)
    X = np.array(data.micrograd_moons().inputs)
    y = np.array(data.micrograd_moons().targets)
    model = MLP(2, [16, 16, 1])
    assert str(model)
    assert len(model.parameters()) == 337

    def loss(batch_size=None):
        if batch_size is None:
            Xb, yb = X, y
        else:
            ri = np.random.permutation(X.shape[0])[:batch_size]
            Xb, yb = X[ri], y[ri]
        inputs = [list(map(Value, xrow)) for xrow in Xb]
        scores = list(map(model, inputs))
        losses = [(1 + -yi * scorei).relu() for yi, scorei in zip(yb, scores, strict=True)]
        data_loss = sum(losses) * (1.0 / len(losses))
        alpha = 1e-4
        reg_loss = alpha * sum((p * p for p in model.parameters()))  # noqa: UP034
        total_loss = data_loss + reg_loss
        accuracy = [(yi > 0) == (scorei.data > 0) for yi, scorei in zip(yb, scores, strict=True)]
        return total_loss, sum(accuracy) / len(accuracy)

    for k in range(100):
        total_loss, acc = loss()
        if k == 0:
            assert total_loss.data == 0.8958441028683222
        model.zero_grad()
        total_loss.backward()
        learning_rate = 1.0 - 0.9 * k / 100
        for p in model.parameters():
            p.data -= learning_rate * p.grad
    assert total_loss.data == pytest.approx(0.010978370135492717, abs=1e-6)
    assert acc == 1.0
    assert isinstance(loss(batch_size=10)[0], Value)

    h = 0.5
    xx, yy = np.meshgrid(np.arange(-2, 3, h), np.arange(-2, 2, h))
    Xmesh = np.c_[xx.ravel(), yy.ravel()]
    inputs = [list(map(Value, xrow)) for xrow in Xmesh]
    Z = np.array([s.data > 0 for s in map(model, inputs)]).reshape(xx.shape)
    assert Z.dtype == bool
    assert 0 < Z.sum() < Z.size


def test_sanity_check_against_pytorch():
    # the expressions of micrograd's own tests, in both libraries
    def small(x):
        z = 2 * x + 2 + x
        q = z.relu() + z * x
        h = (z * z).relu()
        return h + q + q * x

    ours, theirs = Value(-4.0), torch.tensor([-4.0], dtype=torch.float64, requires_grad=True)
    a, b = small(ours), small(theirs)
    a.backward()
    b.backward()
    assert (a.data, ours.grad) == (b.item(), theirs.grad.item())


def test_the_lecture_trains_with_plain_loops():
    random.seed(3)
    n = nn.MLP(3, [4, 4, 1], activation="tanh", output="tanh")
    xs = [[2.0, 3.0, -1.0], [3.0, -1.0, 0.5], [0.5, 1.0, 1.0], [1.0, 1.0, -1.0]]
    ys = [1.0, -1.0, -1.0, 1.0]
    losses = []
    for _ in range(20):
        ypred = [n(x) for x in xs]
        loss = sum((yout - ygt) ** 2 for ygt, yout in zip(ys, ypred, strict=True))
        for p in n.parameters():
            p.grad = 0.0
        loss.backward()
        for p in n.parameters():
            p.data += -0.1 * p.grad
        losses.append(loss.data)
    assert losses[-1] < 0.1 * losses[0]


def test_adam_by_hand_keeps_its_moments_on_the_parameters():
    random.seed(5)
    model, parameter = MLP(2, [3, 1]), torch.nn.Parameter(torch.zeros(13, dtype=torch.float64))
    parameter.data = torch.tensor([p.data for p in model.parameters()], dtype=torch.float64)
    theirs = torch.optim.Adam([parameter], lr=0.1)
    for p in model.parameters():
        p.m = 0
        p.v = 0
    for t in range(1, 21):
        loss = sum((model(x) - y) ** 2 for x, y in data.xor())
        model.zero_grad()
        loss.backward()
        parameter.grad = torch.tensor([p.grad for p in model.parameters()], dtype=torch.float64)
        for p in model.parameters():
            p.m = 0.9 * p.m + 0.1 * p.grad
            p.v = 0.999 * p.v + 0.001 * p.grad**2
            p.data -= 0.1 * (p.m / (1 - 0.9**t)) / ((p.v / (1 - 0.999**t)) ** 0.5 + 1e-8)
        theirs.step()
        assert [p.data for p in model.parameters()] == pytest.approx(parameter.tolist(), rel=1e-9, abs=1e-12)


def test_a_drawing_marks_the_nodes_it_has_seen():
    def mark(node, depth=0):
        if getattr(node, "_vis_depth", -1) < depth:
            node._vis_depth, node._vis_color = depth, "red" if node._op else "blue"
            for child in node._prev:
                mark(child, depth + 1)

    a, b = Value(2.0), Value(-3.0)
    out = (a * b + a).relu()
    out.backward()
    mark(out)
    assert vars(out) == {"_vis_depth": 0, "_vis_color": "red"}
    assert vars(a) == {"_vis_depth": 3, "_vis_color": "blue"}


def test_a_neuron_is_made_linear_after_the_fact():
    n = Neuron(2)
    n.b.data = -5.0
    n.nonlin = False
    assert n([1.0, 1.0]).data == pytest.approx(sum(w.data for w in n.w) - 5.0)
