"""Drawing: structure of the pictures, numbers on the edges, parts of models, and refusals instead of hangs."""

import builtins
import math
import os
import random
import runpy
import struct
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pygraphviz
import pytest

import chainrule
import torch_ops
from chainrule import closures, data, draw, gradcheck, losses, nn, ops
from chainrule.drawing import TooLargeError, parts, values
from chainrule.drawing.dot import CURVED, MOST_EFFORT, effort
from chainrule.drawing.parts import INPUTS, LOSS, part_of_nodes
from chainrule.training import History
from project import ROOT


def worked(Value):
    a, b, c, f = Value(2.0, label="a"), Value(-3.0, label="b"), Value(10.0, label="c"), Value(-2.0, label="f")
    e = a * b
    d = e + c
    loss = d * f
    e.label, d.label, loss.label = "e", "d", "L"
    loss.backward()
    return loss


def diamond(Value):
    a = Value(2.0, label="a")
    b, c = a + 1, a * 3
    d = b * c
    b.label, c.label, d.label = "b", "c", "d"
    d.backward()
    return d


def read(drawing):
    """The DOT text as Graphviz understands it."""
    graph = pygraphviz.AGraph(drawing.dot)
    return {str(node): dict(node.attr) for node in graph.nodes()}, [
        (str(edge[0]), str(edge[1]), dict(edge.attr)) for edge in graph.edges()
    ]


def texts(svg):
    """The words in an SVG, which must be well formed."""
    return [element.text for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]


def by_title(drawing):
    return {node.title: node for node in drawing.picture.nodes if node.title}


class TestValues:
    def test_the_worked_expression(self, Value):
        drawing = draw(worked(Value), local=True, flow=True)
        cards = by_title(drawing)
        assert {title: dict(card.rows) for title, card in cards.items()} == {
            "a": {"data": "2", "grad": "6"},
            "b": {"data": "−3", "grad": "−4"},
            "c": {"data": "10", "grad": "−2"},
            "f": {"data": "−2", "grad": "4"},
            "e": {"data": "−6", "grad": "−2"},
            "d": {"data": "4", "grad": "−2"},
            "L": {"data": "−8", "grad": "1"},
        }
        assert [cards[title].op for title in "edL"] == ["×", "+", "×"]
        on_edges = [list(edge.lines) for edge in drawing.picture.edges]
        assert ["∂e/∂a = −3", "← 6"] in on_edges
        assert ["∂L/∂d = −2", "← −2"] in on_edges
        assert len(on_edges) == 6

    def test_kinds_of_node_differ_in_shape(self, Value):
        nodes, edges = read(draw(diamond(Value)))
        shapes = {(node["shape"], node.get("style"), node.get("peripheries")) for node in nodes.values()}
        assert shapes == {
            ("box", "filled", "2"),  # a: a leaf, used twice
            ("plain", None, None),  # the constants
            ("box", "rounded,filled", None),  # results
        }
        assert sorted(edge.get("style") or "solid" for _, _, edge in edges) == ["dotted"] * 2 + ["solid"] * 4

    def test_a_shared_node_is_drawn_once_with_an_edge_for_each_use(self, Value):
        x = Value(3.0)
        y = x * x
        y.backward()
        drawing = draw(y, local=True)
        assert len(drawing.picture.nodes) == 2
        assert [list(edge.lines) for edge in drawing.picture.edges] == [["∂ = 3"], ["∂ = 3"]]
        assert drawing.picture.nodes[0].shared

    @pytest.mark.parametrize("name", [name for name, row in ops.TABLE.items() if any(row.partials)])
    def test_local_derivatives_are_those_of_torch(self, name, Value):
        row, rng = ops.TABLE[name], random.Random(name)
        numbers = [rng.uniform(*interval) for interval in row.domain]
        result = row(*map(Value, numbers))
        _, expected = torch_ops.value_and_grads(name, numbers)
        found = [link.partial for link in values.links(result)]
        for partial, gradient, rule in zip(found, expected, row.partials, strict=True):
            assert partial == pytest.approx(gradient, rel=1e-12, abs=1e-12) if rule else partial is None

    def test_a_hand_written_backward_is_asked_and_nothing_changes(self, Value):
        x, y = Value(2.0, label="x"), Value(5.0, label="y")
        out = Value(40.0, (x, y), "odd")

        def _backward():
            x.grad += 7.0 * out.grad
            y.grad += 11.0 * out.grad

        out._backward = _backward
        x.grad, y.grad, out.grad = 1.0, 2.0, 3.0
        lines = sorted(line for edge in draw(out, local=True, flow=True).picture.edges for line in edge.lines)
        assert lines == ["← 21", "← 33", "∂ = 11", "∂ = 7"]
        assert (x.grad, y.grad, out.grad) == (1.0, 2.0, 3.0)

    def test_a_learners_own_class_can_be_drawn(self):
        drawing = draw(worked(closures.Value), local=True)
        assert {"∂e/∂a = −3", "∂e/∂b = 2"} <= {line for edge in drawing.picture.edges for line in edge.lines}

    def test_the_format_of_numbers(self, Value):
        v = Value(2.0) / 3.0
        assert ("data", "0.67") in draw(v, number=".2f").picture.nodes[-1].rows
        assert ("data", "<0.6666666666666666>") in draw(v, number=lambda x: f"<{x}>").picture.nodes[-1].rows
        for bad in ("nonsense", 3):
            with pytest.raises(ValueError, match="`number` must be a format such as"):
                draw(v, number=bad)

    def test_the_gradient_shows_as_colour_as_width_or_not(self, Value):
        def looks(gradient):
            drawing = draw(worked(Value), gradient=gradient)
            _, edges = read(drawing)
            return 'style="rounded" bgcolor="#' in drawing.dot, len({edge["penwidth"] for *_, edge in edges}) > 1

        assert looks("both") == (True, True)
        assert looks("colour") == (True, False)
        assert looks("width") == (False, True)
        assert looks("none") == (False, False)

    def test_numbers_that_are_not_finite_are_drawn(self, Value):
        x = Value(0.0, label="x")
        y = x.log() * math.inf
        y.backward()
        assert {"−inf", "inf"} & set(texts(draw(y, local=True, flow=True).svg))

    def test_depth(self, Value):
        v = Value(1.0)
        for _ in range(10):
            v = v.tanh()
        drawing = draw(v, depth=3)
        assert [node.kind for node in drawing.picture.nodes] == ["computed"] * 4 + ["more"]
        assert "1 operands" in drawing.picture.nodes[-1].hint or "operand" in drawing.picture.nodes[-1].hint
        assert draw(v, depth=100).picture == draw(v).picture

    def test_parameters_of_a_model_have_their_names_and_a_shape(self):
        neuron = nn.Neuron(2, rng=1)
        drawing = draw(neuron([chainrule.Value(1.0), chainrule.Value(2.0)]), model=neuron)
        kinds = {title: card.kind for title, card in by_title(drawing).items()}
        assert kinds == {"w[0]": "parameter", "w[1]": "parameter", "b": "parameter"}
        nodes, _ = read(drawing)
        assert sorted(node["shape"] for node in nodes.values()) == ["box"] * 7 + ["note"] * 3


AWKWARD = [
    '<b>&"|{}',
    "\\N \\l \\",
    "a\nb\x00c",
    "日本 ∂ 🙂",
    "</table>",
    "&amp;",
    "-->",
    "%s {0}",
    '"; x -> y; "',
    "\ud800",
]


@pytest.mark.parametrize("label", AWKWARD)
def test_any_label_can_be_drawn(label, Value):
    x = Value(1.0, label=label)
    y = x * 2.0
    y.label = label
    svg = draw(y, local=True).svg
    shown = "".join(c if c.isprintable() else " " for c in label)
    assert [text for text in texts(svg) if text == shown] == [shown] * 2
    assert sum(element.get("class") == "node" for element in ET.fromstring(svg).iter()) == 3


class TestNeverAHang:
    def test_a_million_nodes_are_refused_after_a_look_at_a_few(self, Value, monkeypatch):
        count = 1_000_000 if Value is chainrule.Value and chainrule.ENGINE == "native" else 50_000
        v = Value(1.0)
        for _ in range(count):
            v = v + 1.0
        looks = 0
        original = values.operands_of

        def counted(node):
            nonlocal looks
            looks += 1
            return original(node)

        monkeypatch.setattr(values, "operands_of", counted)
        with pytest.raises(
            TooLargeError, match=r"more than 150 nodes, .*depth=3.*collapse=.*compile.*raise `limit`, to 1,000"
        ):
            draw(v)
        assert looks <= 151
        assert len(draw(v, depth=4).picture.nodes) < 20
        assert Value is not chainrule.Value or v._repr_svg_() is None

    def test_a_graph_too_large_to_sort_into_parts_is_refused(self, monkeypatch):
        monkeypatch.setattr(parts, "MOST_WALKED", 50)
        model = nn.MLP(2, [4, 1], rng=1)
        with pytest.raises(TooLargeError, match=r"more than 50 nodes.* fewer examples.*draw\(model\)"):
            draw(model([1.0, 2.0]), model=model, collapse="layer")

    def test_an_entangled_graph_is_drawn_with_straight_edges_or_refused(self, Value):
        def fan(count):
            nodes = [Value(1.0)]
            for k in range(count):
                nodes.append(nodes[-1] * nodes[0] + nodes[k // 2])
            return nodes[-1]

        assert "splines" not in draw(fan(5)).dot
        drawing = draw(fan(40))
        assert CURVED < effort(drawing.picture) < MOST_EFFORT
        assert 'splines="line"' in drawing.dot
        assert drawing.svg
        with pytest.raises(TooLargeError, match="so entangled that Graphviz would take minutes"):
            draw(fan(200), limit=1000)

    def test_limit(self, Value):
        v = Value(1.0)
        for _ in range(5):
            v = v.tanh()
        with pytest.raises(TooLargeError, match="more than 3 nodes"):
            draw(v, limit=3)
        with pytest.raises(TooLargeError, match="draw depth=2 or less"):
            draw(v, limit=3, depth=3)
        with pytest.raises(ValueError, match="`limit` must be 1,000 at most"):
            draw(v, limit=1001)


class TestFiles:
    @pytest.mark.parametrize(
        ("suffix", "start"),
        [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("dot", b"digraph"), ("GV", b"digraph")],
    )
    def test_formats(self, tmp_path, suffix, start):
        drawing = draw(worked(chainrule.Value))
        drawing.save(tmp_path / f"drawing.{suffix}")
        assert (tmp_path / f"drawing.{suffix}").read_bytes().startswith(start)

    def test_a_png_has_no_more_pixels_than_can_be_written_in_a_moment(self):
        v = chainrule.Value(1.0)
        for _ in range(100):
            v = v.tanh()
        small, large = (
            struct.unpack(">II", draw(value, limit=200).png[16:24]) for value in (worked(chainrule.Value), v)
        )
        assert small[0] > 800  # sharp on a fine screen
        assert large[0] * large[1] < 4_000_000

    def test_what_cannot_be_saved_says_why_and_leaves_nothing(self, tmp_path, monkeypatch):
        drawing = draw(worked(chainrule.Value))
        with pytest.raises(ValueError, match=r"`path` must end in \.svg, \.png, \.pdf, \.dot or \.gv; got 'a\.jpg'"):
            drawing.save("a.jpg")
        with pytest.raises(FileNotFoundError, match="in a folder that does not exist"):
            drawing.save(tmp_path / "missing" / "a.svg")
        (tmp_path / "folder.svg").mkdir()
        with pytest.raises(IsADirectoryError, match="`path` is a folder"):
            drawing.save(tmp_path / "folder.svg")
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(PermissionError))
            with pytest.raises(PermissionError, match="a folder that takes no files"):
                drawing.save(tmp_path / "a.svg")
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
            with pytest.raises(OSError, match="disk full"):
                drawing.save(tmp_path / "a.svg")
        assert os.listdir(tmp_path) == ["folder.svg"]

    def test_the_dot_text_needs_no_other_package(self, monkeypatch, tmp_path):
        original = builtins.__import__

        def refuse(name, *rest, **named):
            if name == "pygraphviz":
                raise ImportError(name)
            return original(name, *rest, **named)

        monkeypatch.delitem(sys.modules, "pygraphviz", raising=False)
        monkeypatch.setattr(builtins, "__import__", refuse)
        loss = worked(chainrule.Value)
        drawing = draw(loss)
        drawing.save(tmp_path / "a.dot")
        assert drawing.dot.startswith("digraph")
        with pytest.raises(ImportError, match="`pip install pygraphviz` brings both"):
            drawing.svg  # noqa: B018
        assert loss._repr_svg_() is None
        assert nn.MLP(2, [2, 1])._repr_svg_() is None


class TestNetworks:
    def test_weights_are_widths_and_signs_are_dashes(self):
        model = nn.MLP(2, [3, 1], rng=1)
        drawing = draw(model)
        nodes, edges = read(drawing)
        weights = {}
        for depth, before in enumerate(("x", "h0_")):
            for k, neuron in enumerate(model.layers[depth].neurons):
                weights |= {(f"{before}{i}", f"h{depth}_{k}"): w.data for i, w in enumerate(neuron.w)}
        widths = {(source, target): float(edge["penwidth"]) for source, target, edge in edges}
        assert widths.keys() == weights.keys()
        by_size = sorted(weights, key=lambda pair: abs(weights[pair]))
        assert [widths[pair] for pair in by_size] == sorted(widths.values())
        dashed = {(source, target) for source, target, edge in edges if edge.get("style") == "dashed"}
        assert dashed == {pair for pair, weight in weights.items() if weight < 0.0}
        assert sum(node["shape"] == "circle" for node in nodes.values()) == 4
        assert ET.fromstring(drawing.svg) is not None

    @pytest.mark.parametrize(
        ("model", "neurons"),
        [(nn.Neuron(3), 1), (nn.Layer(2, 5), 5), (nn.Sequential(nn.Layer(2, 3), nn.MLP(3, [2, 1])), 6)],
    )
    def test_whatever_is_made_of_layers(self, model, neurons):
        assert sum(node.kind == "neuron" for node in draw(model).picture.nodes) == neurons

    def test_a_large_network_is_drawn_layer_by_layer(self):
        model = nn.MLP(64, [32, 10], rng=1)
        with pytest.raises(TooLargeError, match=r'42 neurons and 2,368 weights.*draw\(model, collapse="layer"\)'):
            draw(model)
        drawing = draw(model, collapse="layer")
        assert [node.title for node in drawing.picture.nodes] == ["inputs", "layers[0]", "layers[1]"]
        assert ("parameters", "2,080") in drawing.picture.nodes[1].rows

    def test_any_other_module_is_a_tree(self):
        class Pair(nn.Module):
            def __init__(self):
                self.encoder, self.decoder = nn.Layer(2, 1, rng=1), nn.Neuron(1, rng=1)
                self.scale = chainrule.Value(1.0)

        drawing = draw(Pair())
        titles = {node.key: node.title for node in drawing.picture.nodes}
        assert sorted((titles[edge.source], titles[edge.target]) for edge in drawing.picture.edges) == [
            ("decoder", "model"),
            ("encoder", "model"),
            ("encoder.neurons[0]", "encoder"),
        ]


@pytest.fixture
def calls(monkeypatch):
    """Which neuron ran while which nodes were made: what `collapse` has to find out from the graph alone."""
    noted = []
    original = nn.Neuron.__call__

    def noting(neuron, x):
        start = chainrule.Value(0.0)._serial
        out = original(neuron, x)
        noted.append((neuron, start, chainrule.Value(0.0)._serial))
        return out

    monkeypatch.setattr(nn.Neuron, "__call__", noting)
    return noted


def made_in(node, calls, paths):
    for neuron, start, end in calls:
        if start < node._serial < end:
            return paths[neuron]
    return LOSS


def above(path, level):
    return {"neuron": path, "layer": path.rpartition(".neurons.")[0], "module": ""}[level]


SHAPES = [(2, [1]), (3, [4, 1]), (2, [5, 3, 1]), (1, [2, 2, 2, 2])]
LOSSES = {
    "square": lambda outs: losses.mean_square(outs, [0.5] * len(outs)),
    "hinge": lambda outs: losses.hinge(outs, [1.0, -1.0, 1.0][: len(outs)]),
    "bce": lambda outs: losses.binary_cross_entropy(outs, [1.0, 0.0, 1.0][: len(outs)]),
    "huber": lambda outs: losses.huber(outs, [0.25] * len(outs)),
    "differences": lambda outs: sum(chainrule.softplus(2 * o - o) for o in outs),
}


@pytest.mark.parametrize("level", ["neuron", "layer", "module"])
class TestParts:
    @pytest.mark.parametrize("batch", [1, 3])
    @pytest.mark.parametrize(("nin", "nouts"), SHAPES)
    @pytest.mark.parametrize("output", ["linear", "tanh", "leaky_relu"])
    def test_nodes_are_found_to_belong_to_the_neurons_that_made_them(self, calls, level, batch, nin, nouts, output):
        rng = random.Random(1)
        for name, loss_of in LOSSES.items():
            calls.clear()
            model = nn.MLP(nin, nouts, activation="tanh", output=output, rng=rng)
            xs = [[chainrule.Value(rng.uniform(-1, 1)) for _ in range(nin)] for _ in range(batch)]
            outs = [model(x) for x in xs]
            loss = loss_of([out[0] if isinstance(out, list) else out for out in outs])
            if name == "square":
                loss = loss + losses.l2(1e-3)(model.parameters())
            self.compare(loss, model, level, calls, [x for row in xs for x in row])

    @pytest.mark.parametrize("batch", [1, 3])
    def test_classes(self, calls, level, batch):
        model = nn.MLP(2, [4, 3], activation="relu", rng=1)
        xs = [[chainrule.Value(1.0 + k), chainrule.Value(2.0)] for k in range(batch)]
        loss = losses.cross_entropy([model(x) for x in xs], [k % 3 for k in range(batch)])
        self.compare(loss + losses.l2(0.1)(model.parameters()), model, level, calls, [x for row in xs for x in row])

    def test_plain_numbers_as_inputs(self, calls, level):
        model = nn.MLP(2, [5, 1], rng=1)
        loss = losses.hinge([model([1.0, 2.0]), model([3.0, -1.0])], [1.0, -1.0])
        self.compare(loss, model, level, calls, [])
        titles = [node.title for node in draw(loss, model=model, collapse=level).picture.nodes]
        assert titles[0] == "inputs"

    def compare(self, loss, model, level, calls, inputs):
        paths = {module: path for path, module in model.named_modules()}
        nodes = values.nodes_below(loss, 10_000)
        parts = part_of_nodes(nodes, model, level)
        assert all(parts[id(x)] == INPUTS for x in inputs if id(x) in parts)
        for node in nodes:
            if node._operands:
                truth = made_in(node, calls, paths)
                truth = truth if truth == LOSS else above(truth, level)
                assert parts[id(node)] == truth, (node, node._op)

    def test_a_card_for_each_part_and_an_edge_where_gradients_flow(self, level):
        model = nn.MLP(2, [3, 1], activation="tanh", rng=1)
        x = [chainrule.Value(0.5, label="x0"), chainrule.Value(-1.0, label="x1")]
        loss = (model(x) - 1.0) ** 2
        loss.backward()
        drawing = draw(loss, model=model, collapse=level)
        titles = {node.key: node.title for node in drawing.picture.nodes}
        edges = {(titles[edge.source], titles[edge.target]) for edge in drawing.picture.edges}
        neurons = [f"layers[0].neurons[{k}]" for k in range(3)]
        assert (
            edges
            == {
                "neuron": {(x, n) for x in ("x0", "x1") for n in neurons}
                | {(n, "layers[1].neurons[0]") for n in neurons}
                | {("layers[1].neurons[0]", "loss")},
                "layer": {("x0", "layers[0]"), ("x1", "layers[0]"), ("layers[0]", "layers[1]"), ("layers[1]", "loss")},
                "module": {("x0", "MLP"), ("x1", "MLP"), ("MLP", "loss")},
            }[level]
        )
        assert ET.fromstring(drawing.svg) is not None


class TestPartsOfOtherModels:
    def test_a_recurrent_cell_is_one_card(self):
        cell, h = nn.Neuron(2, activation="tanh", rng=1), chainrule.Value(0.0, label="h")
        for k in range(4):
            h = cell([h, chainrule.Value(float(k))])
        loss = h * h
        loss.backward()
        drawing = draw(loss, model=cell, collapse="neuron")
        assert [node.title for node in drawing.picture.nodes if node.kind != "leaf"] == ["Neuron", "loss"]
        assert drawing.svg

    def test_what_joins_neurons_between_layers_is_a_card_of_its_own(self):
        model = nn.Sequential(nn.Layer(2, 3, activation="tanh", rng=1), chainrule.softmax, nn.Layer(3, 1, rng=2))
        out = model([chainrule.Value(1.0), chainrule.Value(2.0)])
        titles = [node.title for node in draw(out, model=model, collapse="neuron").picture.nodes]
        assert "between" in titles
        assert "loss" not in titles

    def test_a_reparametrised_weight_belongs_to_its_module(self):
        class Positive(nn.Module):
            def __init__(self):
                self.w, self.b = chainrule.Value(0.5), chainrule.Value(0.1)

            def __call__(self, x):
                return self.w.exp() * x + self.b

        model = Positive()
        loss = (model(chainrule.Value(2.0, label="x")) - 1.0) ** 2
        parts = part_of_nodes(values.nodes_below(loss, 100), model, "neuron")
        assert sorted(parts.values()) == ["", "", "", "", "", INPUTS, LOSS, LOSS]

    def test_a_part_that_only_the_penalty_uses_has_no_outputs(self):
        model = nn.MLP(2, [3, 2], rng=1)
        loss = model([chainrule.Value(1.0), chainrule.Value(2.0)])[1] ** 2 + losses.l2(0.1)(model.parameters())
        cards = by_title(draw(loss, model=model, collapse="neuron"))
        assert ("outputs", "0") in cards["layers[1].neurons[0]"].rows

    def test_too_many_parts(self):
        model = nn.MLP(2, [6, 1], rng=1)
        with pytest.raises(TooLargeError, match=r"7 parts of the kind 'neuron'.*collapse=\"layer\""):
            draw(model([1.0, 2.0]), model=model, collapse="neuron", limit=5)


class TestPrograms:
    @pytest.fixture
    def loss_and_model(self):
        random.seed(1337)
        model, points = nn.MLP(2, [16, 16, 1]), data.micrograd_moons()
        inputs = [[chainrule.Value(x) for x in point] for point in points.inputs]
        loss = losses.hinge([model(x) for x in inputs], points.targets) + losses.l2(1e-4)(model.parameters())
        return loss, model

    def test_the_lifted_moons_program(self, loss_and_model):
        loss, model = loss_and_model
        program = chainrule.compile(loss, wrt=model.parameters())
        forward = draw(program, model=model, backward=False)
        cards = by_title(forward)
        assert [cards[title].op for title in ("v0 [100 × 16]", "v1 [1,600]", "v9 = result")] == ["Σ", "relu", "+"]
        assert cards["layers[1].neurons[j].w[k]"].kind == "parameter"
        assert cards["input[2i+k]"].kind == "leaf"
        pairs = {(edge.source, edge.target) for edge in forward.picture.edges}
        chain = [node.key for node in forward.picture.nodes if node.kind == "computed"]
        assert {(chain[k], chain[k + 1]) for k in range(7)} <= pairs
        whole = draw(program, model=model)
        statements = [node for node in whole.picture.nodes if node.kind == "computed"]
        assert len(statements) == len(program.describe().splitlines())
        assert "backward" in texts(whole.svg)

    def test_a_compiled_function_and_a_loop_in_time(self):
        w = chainrule.Value(0.5)

        @chainrule.compile
        def loss(xs):
            h = 0.0 * w
            for x in xs:
                h = chainrule.tanh(w * h + x)
            return h

        with pytest.raises(RuntimeError, match="call it once first"):
            draw(loss)
        assert loss._repr_svg_() is None
        loss([0.1 * k for k in range(50)])
        drawing = draw(loss)
        titles = [group.title for group in drawing.picture.groups]
        assert titles == ["50 times, r = 0, 1, …", "backward", "50 times, r = 49, 48, …", "backward"]
        assert ET.fromstring(drawing.svg) is not None
        assert loss._repr_svg_() is not None

    def test_a_strict_program_is_its_nodes(self):
        a = chainrule.Value(2.0, label="a")
        drawing = draw(chainrule.compile(a * a + a, strict=True))
        assert [node.title for node in drawing.picture.nodes] == ["a", "", ""]

    def test_too_many_statements(self, loss_and_model):
        program = chainrule.compile(loss_and_model[0])
        with pytest.raises(TooLargeError, match=r"array statements, more than `limit` = 20.*backward=False"):
            draw(program, limit=20)


class Words(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.found, self.tags = [], []
        self.feed(html)

    def handle_data(self, text):
        self.found.append(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)


class TestNotebooks:
    def test_a_small_graph_shows_itself_and_a_bare_number_does_not(self):
        assert {"a", "L", "data"} <= set(texts(worked(chainrule.Value)._repr_svg_()))
        assert chainrule.Value(2.0)._repr_svg_() is None

    def test_showing_runs_no_code_of_the_users(self):
        x = chainrule.Value(1.0)
        out = chainrule.Value(2.0, (x,), "mine")
        out._backward = lambda: pytest.fail("the notebook called it")
        assert out._repr_svg_()

    def test_networks_and_programs(self):
        assert "tanh" in texts(nn.MLP(2, [3, 1], activation="tanh")._repr_svg_())
        assert "64 → 100 relu" in texts(nn.MLP(64, [100, 1])._repr_svg_())
        a = chainrule.Value(2.0)
        assert texts(chainrule.compile(sum(a * k for k in range(1, 50)))._repr_svg_())

    def test_a_history_is_a_curve_and_a_line(self):
        history = History()
        for k in range(1000):
            history.record({"loss": 1.0 / (k + 1), "validation_loss": 2.0 / (k + 1)})
        html = history._repr_html_()
        assert repr(history) in Words(html).found
        curve = ET.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])
        first, second = (line for line in curve if line.tag.endswith("polyline"))
        heights = [float(point.split(",")[1]) for point in first.get("points").split()]
        assert heights == sorted(heights)  # downwards, as the loss falls
        assert len(heights) <= 200
        assert second.get("stroke-dasharray")

    @pytest.mark.parametrize("column", [[1.0], [math.nan, math.inf], [0.0, -1.0, math.nan, 2.0], [3.0, 3.0]])
    def test_any_history_can_be_shown(self, column):
        history = History()
        history.columns["loss"] = column
        html = history._repr_html_()
        assert repr(history) in Words(html).found
        assert "nan" not in html.partition("<code>")[0]

    def test_a_report_is_a_table_with_everything_escaped(self):
        x = chainrule.Value(2.0, label="<x> & y")

        def wrong(v):
            out = chainrule.Value(v.data**3, (v,), "<cube>")
            out._backward = lambda: setattr(v, "grad", v.grad + 2 * v.data**2 * out.grad)
            return out

        report = gradcheck(wrong, x)
        words = Words(report._repr_html_())
        assert {"<x> & y", "✗ WRONG", "8", "12", report.diagnosis} <= set(words.found)
        assert set(words.tags) <= {"div", "table", "thead", "tbody", "tr", "th", "td", "p", "b"}
        right = gradcheck(lambda *v: sum(v), *[1.0] * 60)
        assert Words(right._repr_html_()).tags.count("tr") == 51
        assert "10 more rows are not shown." in Words(right._repr_html_()).found


def test_mistakes_are_named():
    v, model = worked(chainrule.Value), nn.MLP(2, [2, 1])
    with pytest.raises(TypeError, match=r"`thing` must be a Value, an nn\.Module or a program .*got int"):
        draw(3)
    with pytest.raises(TypeError, match=r"`model` must be an nn\.Module, got int"):
        draw(v, model=3)
    with pytest.raises(TypeError, match="`collapse` has to know the parts of the network: give `model` too"):
        draw(v, collapse="layer")
    with pytest.raises(ValueError, match="`collapse` must be 'neuron', 'layer' or 'module', got 'column'"):
        draw(v, model=model, collapse="column")
    with pytest.raises(ValueError, match="`gradient` must be 'both', 'colour', 'width' or 'none', got 'heat'"):
        draw(v, gradient="heat")
    with pytest.raises(ValueError, match="`depth` must be an int of at least 1, got 0"):
        draw(v, depth=0)
    with pytest.raises(TypeError, match="`local` has no meaning in a drawing of a network: leave it out"):
        draw(model, local=True)
    with pytest.raises(TypeError, match="`backward` has no meaning in a drawing of a Value: leave it out"):
        draw(v, backward=False)
    with pytest.raises(TypeError, match="`depth` has no meaning in a drawing of the parts of a model: leave it out"):
        draw(v, model=model, collapse="layer", depth=3)


def test_the_pictures_of_the_pages_are_those_that_are_drawn():
    names = runpy.run_path(str(ROOT / "tools" / "make_pictures.py"))
    pictures, _ = names["moons"]()
    for name in ("worked_expression", "diamond"):
        pictures[name.removeprefix("worked_")] = draw(names[name](), local=True, flow=True)
    pictures["neuron"] = names["neuron"]()
    pages = "".join((ROOT / page).read_text() for page in ("README.md", "docs/gallery.md"))
    for name, drawing in pictures.items():
        assert f"pictures/{name}.svg" in pages
        shown = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text()
        assert sorted(texts(shown)) == sorted(texts(drawing.svg)), "run `make pictures`"
