"""Pictures show the numbers they claim to show, in the Axes they are given."""

import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from chainrule import Value, data, fit, losses, nn, plot
from chainrule.debug.layers import chain, gradients_by_layer, outputs_by_layer
from chainrule.training import History
from chainrule.training.inference import answers, compiled_answers

double = partial(torch.tensor, dtype=torch.float64)


@pytest.fixture
def ax():
    return plt.figure().add_subplot()


def history(*losses, **columns):
    record = History()
    record.extend({"loss": losses, **columns})
    return record


def deep(activation, layers=3, width=8, **options):
    return nn.MLP(2, [width] * layers + [1], activation=activation, rng=1, **options)


def as_torch(model):
    """The same network in PyTorch."""
    steps = []
    for layer in model.layers:
        linear = torch.nn.Linear(len(layer.neurons[0].w), len(layer.neurons), dtype=torch.float64)
        with torch.no_grad():
            linear.weight[:] = double([[w.data for w in neuron.w] for neuron in layer.neurons])
            linear.bias[:] = double([neuron.b.data for neuron in layer.neurons])
        steps.append(linear)
        activation = layer.neurons[0].activation
        if activation != "linear":
            steps.append({"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "sigmoid": torch.nn.Sigmoid}[activation]())
    return torch.nn.Sequential(*steps)


def curves(ax):
    return {line.get_label(): line.get_ydata() for line in ax.lines}


# The loss.


def test_a_loss_curve_is_the_history(ax):
    assert plot.loss(history(1.0, 0.1, 0.01), ax=ax) is ax
    assert ax.get_yscale() == "log"
    assert ax.lines[0].get_ydata().tolist() == [1.0, 0.1, 0.01]
    assert ax.lines[0].get_xdata().tolist() == [0, 1, 2]
    assert ax.get_legend() is None
    assert plot.loss([1.0, 2.0], log=False).get_yscale() == "linear"


def test_several_runs_lie_over_one_another(ax):
    plot.loss({"tanh": history(1.0, 0.5), "relu": [2.0, 1.0, 0.5]}, ax=ax)
    assert {name: list(numbers) for name, numbers in curves(ax).items()} == {"tanh": [1, 0.5], "relu": [2, 1, 0.5]}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["tanh", "relu"]
    assert len({line.get_color() for line in ax.lines}) == 2
    assert list(curves(plot.loss([1.0], [2.0]))) == ["run 1", "run 2"]
    assert list(curves(plot.loss([1.0], [2.0], labels=["p", "q"]))) == ["p", "q"]


def test_validation_is_drawn_with_a_single_run():
    ax = plot.loss(history(1.0, 0.5, validation_loss=[2.0, 3.0]))
    assert curves(ax)["validation"].tolist() == [2.0, 3.0]
    assert curves(ax)["training"].tolist() == [1.0, 0.5]


def test_the_moving_average_weighs_the_past_exponentially(ax):
    numbers = np.random.default_rng(0).uniform(0.1, 1.0, 50)
    plot.loss(numbers, ema=0.9, ax=ax)
    raw, smooth = (line.get_ydata() for line in ax.lines)
    assert raw.tolist() == numbers.tolist()
    for t in range(50):
        weights = 0.9 ** np.arange(t, -1, -1)
        assert smooth[t] == pytest.approx(np.average(numbers[: t + 1], weights=weights), rel=1e-12)


def test_losses_that_a_logarithmic_axis_has_no_place_for(ax):
    plot.loss([1.0, 0.0, 0.5, float("nan"), float("inf")], ema=0.5, ax=ax)
    ax.figure.canvas.draw()
    assert 0.0 < ax.get_ylim()[0] < 0.5
    assert np.isfinite(ax.get_ylim()).all()
    nothing = plot.loss([0.0, 0.0])
    nothing.figure.canvas.draw()
    assert nothing.get_yscale() == "linear"


def test_what_is_no_loss_curve():
    with pytest.raises(ValueError, match="`runs` is empty: give the history that fit returned"):
        plot.loss()
    with pytest.raises(ValueError, match="`labels` must have a name for each of the 2 runs, got 1"):
        plot.loss([1.0], [2.0], labels=["a"])
    with pytest.raises(ValueError, match="`labels` must differ from one another"):
        plot.loss([1.0], [2.0], labels=["a", "a"])
    with pytest.raises(TypeError, match=r"a run must be a History or a list of losses, got 3\.0"):
        plot.loss(3.0)
    with pytest.raises(TypeError, match="a run must be a History or a list of losses, got History"):
        plot.loss(History())
    with pytest.raises(ValueError, match=r"`ema` must be at least 0 and below 1, got 1\.0"):
        plot.loss([1.0], ema=1.0)
    with pytest.raises(TypeError, match=r"`ax` must be matplotlib Axes, such as plt\.subplots\(\) returns, got int"):
        plot.loss([1.0], ax=3)


# The decision boundary.


def boundaries(ax):
    """The points on the lines that divide the plane."""
    paths = [path for collection in ax.collections for path in collection.get_paths() if len(path.vertices) > 50]
    return [path.vertices for path in paths]


def test_the_boundary_lies_where_the_model_changes_its_mind(ax):
    points = [[-1.0, -1.0], [1.0, 1.0]]
    assert plot.boundary(lambda x: x[0] * x[0] + x[1] * x[1] - 0.64, points, [1, -1], ax=ax) is ax
    (circle,) = boundaries(ax)
    assert np.hypot(*circle.T) == pytest.approx(0.8, abs=1e-3)
    (line,) = boundaries(plot.boundary(lambda x: x[0], points, threshold=0.5))
    assert line[:, 0] == pytest.approx(0.5, abs=1e-9)


def test_classes_are_divided_where_the_largest_score_changes():
    ax = plot.boundary(lambda x: [x[0], x[1], -10.0], [[-1.0, -1.0], [1.0, 1.0]], [0, 1])
    lines = np.concatenate(boundaries(ax))
    assert lines[:, 0] == pytest.approx(lines[:, 1], abs=1e-9)
    picture = ax.images[0].get_array()
    low_right, top_left = picture[10, -10], picture[-10, 10]
    assert low_right[2] > low_right[0]  # blue, for the first class
    assert top_left[0] > top_left[2]  # vermilion, for the second


def test_a_network_goes_through_compiled_code_and_any_function_will_do(monkeypatch):
    model, points = deep("tanh"), data.moons(n=20)
    assert compiled_answers(model, points.inputs) is not None
    fast = np.asarray(plot.boundary(model, points, resolution=40).images[0].get_array())
    monkeypatch.setattr("chainrule.plot.compiled_answers", lambda *_: None)
    monkeypatch.setattr("chainrule.training.inference.compiled_answers", lambda *_: None)
    slow = np.asarray(plot.boundary(model, points, resolution=40).images[0].get_array())
    assert slow == pytest.approx(fast, abs=1e-9)
    monkeypatch.undo()
    branching = plot.boundary(lambda x: 1.0 if x[0] > 0.3 else -1.0, points)
    assert np.concatenate(boundaries(branching))[:, 0] == pytest.approx(0.3, abs=0.05)
    numpys = plot.boundary(lambda x: float(np.dot(x, [1.0, 0.0])) - 0.3, points)
    assert np.concatenate(boundaries(numpys))[:, 0] == pytest.approx(0.3, abs=1e-6)


def test_answers_are_the_models_own():
    model = nn.MLP(2, [5, 3], activation="tanh", rng=3)
    points = data.moons(n=30).inputs
    expected = as_torch(model)(double(points)).detach().numpy()
    assert answers(model, points) == pytest.approx(expected, abs=1e-12)


def test_points_are_told_apart_by_shape_and_name(ax):
    plot.boundary(deep("tanh"), data.spirals(n=30, classes=3), classes=["one", "two", "three"], ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "two", "three"]
    shapes = {
        len(collection.get_paths()[0].vertices) for collection in ax.collections if collection.get_label()[0] != "_"
    }
    assert len(shapes) == 3
    assert sum(len(collection.get_offsets()) for collection in ax.collections) >= 30


def test_a_plane_that_is_not_divided_and_answers_that_are_not_finite():
    points = [[0.1, 0.1], [1.0, 1.0]]
    for model in (lambda x: 3.0, lambda x: 0.0, lambda x: x[0].log() if hasattr(x[0], "log") else float("nan")):
        plot.boundary(model, points).figure.canvas.draw()
    plot.boundary(lambda x: [float("nan"), 1.0], points).figure.canvas.draw()
    plot.boundary(deep("tanh"), [[2.0, 3.0]]).figure.canvas.draw()
    plot.boundary(lambda x: [x[0]], [[0.0, 0.0], [1.0, 1000.0]]).figure.canvas.draw()


def test_what_is_no_plane():
    model = deep("tanh")
    with pytest.raises(ValueError, match=r"`inputs` must be points in the plane, pairs of numbers; got .* \(4, 3\)"):
        plot.boundary(model, data.four_points())
    with pytest.raises(ValueError, match="`targets` must have an entry for each of the 4 points, got 1"):
        plot.boundary(model, data.xor().inputs, [1])
    with pytest.raises(TypeError, match="`model` must be a network or a function of two numbers, got int"):
        plot.boundary(3, data.xor())
    with pytest.raises(ValueError, match="`resolution` must be an int of at least 2, got 1"):
        plot.boundary(model, data.xor(), resolution=1)
    with pytest.raises(ValueError, match="`x` must have 3 numbers"):  # the model's own complaint, not the compiler's
        plot.boundary(nn.MLP(3, [1]), data.xor())
    with pytest.raises(ValueError, match="`classes` names 2 classes, but `targets` has"):
        plot.boundary(model, data.spirals(classes=3), classes=["a", "b"])


# The layers.


def test_the_outputs_of_layers_are_those_of_pytorch():
    model, points = deep("tanh"), data.moons(n=10).inputs
    x, expected = double(points), []
    for step in as_torch(model):
        x = step(x)
        expected.append(x.detach().numpy())
    found = outputs_by_layer(model, points)
    assert list(found) == ["layer 1", "layer 2", "layer 3", "layer 4"]
    assert [kind for kind, _ in found.values()] == ["tanh", "tanh", "tanh", "linear"]
    for (_, numbers), theirs in zip(found.values(), [*expected[1:-1:2], expected[-1]], strict=True):
        assert numbers == pytest.approx(theirs, abs=1e-12)


def test_the_gradients_of_layers_are_those_of_pytorch():
    model, points = deep("tanh"), data.moons(n=10)
    losses.mean_square([model(x) for x in points.inputs], points.targets).backward()
    theirs = as_torch(model)
    outputs = theirs(double(points.inputs))[:, 0]
    torch.mean((outputs - double(points.targets)) ** 2).backward()
    linears = [step for step in theirs if hasattr(step, "weight")]
    for numbers, linear in zip(gradients_by_layer(model).values(), linears, strict=True):
        expected = torch.cat([linear.weight.grad, linear.bias.grad[:, None]], dim=1).flatten()
        assert numbers == pytest.approx(expected.numpy(), abs=1e-12)


def test_histograms_count_every_number(ax):
    model, points = deep("relu"), data.moons(n=50)
    assert plot.activations(model, points, bins=20, ax=ax) is ax
    assert ax.get_yticklabels()[0].get_text() == "layer 1, relu"
    steps = [patch.get_data() for patch in ax.patches if patch.get_fill()]
    for row, (data_, (_, outputs)) in enumerate(zip(steps, outputs_by_layer(model, points).values(), strict=True)):
        counts, _ = np.histogram(outputs, data_.edges)
        assert counts.sum() == outputs.size
        assert row - data_.values == pytest.approx(0.85 * counts / counts.max())
    assert any("are 0" in text.get_text() for text in ax.texts)


def test_gradient_histograms_are_logarithmic_and_count_the_zeros(ax):
    model, points = deep("relu"), data.moons(n=50)
    for neuron in model.layers[0].neurons[:4]:
        neuron.b.data = -100.0
    losses.mean_square([model(x) for x in points.inputs], points.targets).backward()
    assert plot.gradients(model, ax=ax) is ax
    assert ax.get_xscale() == "log"
    assert "50% are 0" in ax.texts[0].get_text()
    with pytest.raises(ValueError, match=r"`model` holds no gradient other than 0: call backward\(\)"):
        plot.gradients(deep("tanh"))


class Own(nn.Module):
    def __init__(self):
        self.scale = Value(2.0)
        self.parts = [nn.Neuron(1), nn.Neuron(1)]

    def __call__(self, x):
        return self.scale * self.parts[0](x) * self.parts[1](x)


def test_models_of_other_kinds():
    own = Own()
    own([0.5]).backward()
    assert {name: len(numbers) for name, numbers in gradients_by_layer(own).items()} == {
        "scale": 1,
        "parts.0": 2,
        "parts.1": 2,
    }
    with pytest.raises(TypeError, match=r"whose layers can be called one by one; got Own: give its layers as nn"):
        plot.activations(own, [[1.0]])
    mixed = nn.Sequential(nn.Layer(2, 4, activation="tanh", rng=1), lambda h: h[:2], nn.MLP(2, [3, 1], rng=1))
    assert len(list(chain(mixed))) == 4
    found = outputs_by_layer(mixed, [[1.0, 2.0]])
    assert {name: numbers.shape[1] for name, (_, numbers) in found.items()} == {
        "layer 1": 4,
        "layer 2": 3,
        "layer 3": 1,
    }
    assert found["layer 3"][1][0, 0] == pytest.approx(mixed([1.0, 2.0]).data, rel=1e-12)
    assert list(outputs_by_layer(nn.Neuron(2), [[1.0, 2.0]])) == ["layer 1"]
    with pytest.raises(TypeError, match=r"`model` must be an nn\.Module, got int"):
        gradients_by_layer(3)
    with pytest.raises(ValueError, match="`inputs` is empty"):
        plot.activations(deep("tanh"), [])
    with pytest.raises(ValueError, match="has no parameters, and so no gradients"):
        gradients_by_layer(nn.Module())


# The report. Each fault is planted.


def test_a_healthy_network():
    model, points = deep("tanh", init="xavier"), data.moons(n=50)
    found = plot.report(model, points, loss=losses.mean_square)
    assert found.ok
    assert str(found).endswith("nothing wrong")
    assert [row.units for row in found.rows] == [8, 8, 8, 1]
    assert max(row.relative for row in found.rows) == 1.0


def test_dead_units_are_counted():
    model, points = deep("relu"), data.moons(n=50)
    for neuron in model.layers[1].neurons[:3]:
        neuron.b.data = -1000.0
        neuron.w[0].data = 0.0
    found = plot.report(model, points, loss=losses.mean_square)
    theirs = as_torch(model)
    for row, depth in zip(found.rows, (2, 4, 6), strict=False):
        outputs = theirs[:depth](double(points.inputs))
        assert row.dead == (outputs == 0.0).all(dim=0).double().mean().item()
    assert 3 / 8 <= found.rows[1].dead < 1.0
    assert re.match(r"dead units: .*\d of 8 in layer 2.*; their relu is 0 for every input", found.findings[0])


def test_saturation_is_seen():
    model, points = deep("tanh"), data.moons(n=50)
    for neuron in model.layers[0].neurons:
        neuron.b.data = 100.0
    assert plot.report(model, points).findings[0].startswith("saturated outputs: 100% in layer 1; try smaller weights")
    sigmoids = deep("sigmoid")
    for neuron in sigmoids.layers[0].neurons:
        neuron.b.data = -100.0
    assert plot.report(sigmoids, points).rows[0].saturated == 1.0


def test_vanishing_gradients_are_seen():
    model, points = deep("sigmoid", layers=8), data.moons(n=50)
    for _, parameter in model.named_parameters():
        parameter.data *= 0.1
    found = plot.report(model, points, loss=losses.mean_square)
    (finding,) = found.findings
    assert finding.startswith("vanishing gradients: layer 1, layer 2, ")
    assert f"{found.rows[0].gradient:.1e} in layer 1" in finding
    assert found.rows[0].relative < 1e-3 < found.rows[-1].relative


def test_gradients_that_are_missing_or_not_finite():
    model, points = deep("tanh"), data.moons(n=5)
    assert plot.report(model, points).findings == (
        "all gradients are 0: call backward() first, or give `targets` and a `loss`",
    )
    model.parameters()[0].grad = float("inf")
    assert "not finite" in plot.report(model, points).findings[0]
    with pytest.raises(ValueError, match="`loss` needs `targets` to compare with"):
        plot.report(model, points.inputs, loss=losses.mean_square)


def test_a_report_leaves_the_gradients_alone():
    model, points = deep("tanh"), data.moons(n=5)
    for k, parameter in enumerate(model.parameters()):
        parameter.grad = float(k)
    plot.report(model, points, loss=losses.mean_square)
    assert [parameter.grad for parameter in model.parameters()] == list(range(len(model.parameters())))


def test_the_picture_of_the_report_shows_its_numbers(ax):
    model, points = deep("relu"), data.moons(n=50)
    for neuron in model.layers[1].neurons[:4]:
        neuron.b.data = -1000.0
    found = plot.report(model, points, loss=losses.mean_square)
    assert plot.health(model, points, loss=losses.mean_square, ax=ax) is ax
    dead = [bar.get_width() for bar in ax.containers[0]]
    assert dead == pytest.approx([row.dead for row in found.rows])
    text = " ".join(text.get_text() for text in ax.texts)
    assert "of 8 in layer 2" in text.replace("\n", " ")
    assert f"gradient {found.rows[0].gradient:.1e}" in text


def test_the_points_of_ten_classes_look_ten_ways(ax):
    points = data.blobs(n=40, classes=10)
    plot.boundary(nn.MLP(2, [4, 10], rng=0), points, resolution=20, ax=ax)
    ways = {
        (tuple(drawn.get_facecolor()[0]), drawn.get_paths()[0].vertices.tobytes())
        for drawn in ax.collections
        if drawn.get_label().isdecimal()
    }
    assert len(ways) == 10


def test_every_function_makes_a_figure_of_its_own_if_none_is_given():
    points = data.moons(n=20)
    model = nn.MLP(2, [4, 1], rng=0)
    run = fit(model, losses.hinge, points, epochs=3, progress=False)
    drawn = [
        plot.loss(run),
        plot.boundary(model, points, resolution=20),
        plot.activations(model, points),
        plot.gradients(model),
        plot.health(model, points),
    ]
    assert all(isinstance(ax, Axes) for ax in drawn)
    assert len({ax.figure for ax in drawn}) == 5


def test_without_matplotlib_the_error_says_what_to_install():
    code = "import sys; sys.modules['matplotlib'] = None; import chainrule; chainrule.plot"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: chainrule.plot needs matplotlib: install it with `pip install 'chainrule[plot]'`" in run.stderr
