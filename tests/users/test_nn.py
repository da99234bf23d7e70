"""Networks: micrograd's classes by default, and what is offered beyond."""

import math
import random

import numpy as np
import pytest

import chainrule
from chainrule import Value, nn


class TestMicrogradDefaults:
    def test_weights_are_drawn_from_the_global_generator_neuron_by_neuron(self):
        random.seed(7)
        expected = [random.uniform(-1, 1) for _ in range(2 * 3 + 3 * 1)]
        random.seed(7)
        model = nn.MLP(2, [3, 1])
        weights = [w.data for layer in model.layers for neuron in layer.neurons for w in neuron.w]
        assert weights == expected
        assert all(neuron.b.data == 0.0 for layer in model.layers for neuron in layer.neurons)

    def test_relu_between_layers_and_a_linear_output(self):
        model = nn.MLP(2, [3, 2, 1], rng=0)
        assert [layer.neurons[0].nonlin for layer in model.layers] == [True, True, False]

    def test_neuron_takes_nonlin_as_its_second_argument(self):
        assert nn.Neuron(2, False, rng=0).activation == "linear"
        assert nn.Neuron(2, nonlin=True, rng=0).activation == "relu"
        assert nn.Layer(2, 3, nonlin=False, rng=0).neurons[0].activation == "linear"

    def test_nonlin_and_activation_are_assignable(self):
        for name in ("relu", "tanh"):
            neuron = nn.Neuron(2, activation=name, rng=0)
            neuron.b.data = -3.0
            straight = sum(w.data for w in neuron.w) - 3.0
            bent = neuron([1.0, 1.0]).data
            neuron.nonlin = False
            assert (neuron([1.0, 1.0]).data, neuron.activation) == (pytest.approx(straight), "linear")
            neuron.nonlin = True
            assert (neuron([1.0, 1.0]).data, neuron.activation) == (bent, name)
        neuron.activation = "sigmoid"
        assert neuron([1.0, 1.0]).data == pytest.approx(1.0 / (1.0 + math.exp(-straight)))
        with pytest.raises(ValueError, match="`activation` must be a function, 'linear' or one of"):
            neuron.activation = "bent"
        assert neuron.activation == "sigmoid"
        neuron = nn.Neuron(2, False, activation="tanh")
        neuron.nonlin = True
        assert neuron.activation == "tanh"

    def test_a_network_with_a_neuron_changed_is_not_described_by_its_shape(self, tmp_path):
        model = nn.MLP(2, [3, 1], rng=0)
        model.layers[0].neurons[1].nonlin = False
        assert repr(model) == "MLP(2, [3, 1], activation='relu', output='linear')"
        for describe in (model.config, lambda: chainrule.save(model, tmp_path / "model")):
            with pytest.raises(ValueError, match="neurons in layer 1 whose activation is not 'relu'"):
                describe()
        chainrule.fit(model, chainrule.losses.mean_square, chainrule.data.xor(), epochs=2, progress=False,
                      checkpoint=tmp_path / "run", every=1)  # fmt: skip
        with pytest.raises(ValueError, match="holds a MLP, whose shape only you know"):
            chainrule.load(tmp_path / "run")
        model.layers[0].neurons[1].nonlin = True
        assert model.config()["activation"] == "relu"

    def test_parameters_are_weights_then_bias(self):
        neuron = nn.Neuron(2, rng=0)
        assert neuron.parameters() == [*neuron.w, neuron.b]
        layer = nn.Layer(2, 2, rng=0)
        assert layer.parameters() == [p for neuron in layer.neurons for p in neuron.parameters()]
        assert len(nn.MLP(2, [16, 16, 1]).parameters()) == 337

    def test_one_neuron_gives_a_value_and_several_a_list(self):
        assert isinstance(nn.Layer(2, 1, rng=0)([1.0, 2.0]), Value)
        assert len(nn.Layer(2, 3, rng=0)([1.0, 2.0])) == 3

    def test_inputs_may_be_numbers_or_values_and_values_get_gradients(self):
        model = nn.MLP(2, [4, 1], activation="tanh", rng=0)
        x = [Value(0.5), Value(-1.0)]
        out = model(x)
        assert out.data == model([0.5, -1.0]).data
        out.backward()
        assert all(v.grad != 0.0 for v in x)


class TestOptions:
    def test_a_neuron_is_a_weighted_sum_through_its_activation(self):
        neuron = nn.Neuron(2, activation="tanh", rng=3)
        w0, w1 = (w.data for w in neuron.w)
        neuron.b.data = 0.25
        assert neuron([2.0, -1.0]).data == math.tanh(0.25 + w0 * 2.0 + w1 * -1.0)

    @pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid", "gelu", "silu", "softplus", "leaky_relu", "sin"])
    def test_activation_by_name(self, name):
        model = nn.MLP(1, [2, 1], activation=name, output=name, rng=1)
        hidden = [getattr(chainrule, name)(n.w[0] * 0.5 + n.b) for n in model.layers[0].neurons]
        last = model.layers[1].neurons[0]
        assert model([0.5]).data == getattr(chainrule, name)(sum(map(lambda w, h: w * h, last.w, hidden), last.b)).data

    def test_activation_may_be_a_function(self):
        neuron = nn.Neuron(1, activation=lambda v: v * v, rng=1)
        assert neuron([3.0]).data == (3.0 * neuron.w[0].data) ** 2

    def test_the_same_seed_gives_the_same_model(self):
        states = [nn.MLP(2, [3, 1], rng=rng).state() for rng in (5, 5, random.Random(5), 6)]
        assert states[0] == states[1] == states[2] != states[3]

    def test_initialisers(self):
        he = [w.data for w in nn.Layer(50, 100, init="he", rng=0).neurons[0].w]
        every = [w.data for n in nn.Layer(50, 100, init="he", rng=0).neurons for w in n.w]
        assert len(he) == 50
        assert math.sqrt(sum(w * w for w in every) / len(every)) == pytest.approx(math.sqrt(2 / 50), rel=0.05)
        bound = math.sqrt(6 / (50 + 100))
        xavier = [w.data for n in nn.Layer(50, 100, init="xavier", rng=0).neurons for w in n.w]
        assert 0.95 * bound < max(map(abs, xavier)) <= bound
        assert nn.Neuron(1, init=lambda rng, nin, nout: 0.5).w[0].data == 0.5

    def test_a_narrow_layer_in_the_middle_works(self):
        model = nn.MLP(2, [3, 1, 3, 1], rng=0)
        assert isinstance(model([1.0, 2.0]), Value)

    def test_readable_reprs(self):
        assert repr(nn.MLP(3, [4, 4, 1], activation="tanh", output="tanh")) == (
            "MLP(3, [4, 4, 1], activation='tanh', output='tanh')"
        )
        assert repr(nn.Layer(2, 3)) == "Layer(2, 3, activation='relu')"
        assert repr(nn.Neuron(2, False)) == "Neuron(2, activation='linear')"
        assert repr(nn.Sequential(nn.Layer(2, 3))) == "Sequential(Layer(2, 3, activation='relu'))"


class Scale(nn.Module):
    def __init__(self):
        self.factor = Value(2.0)
        self.name = "not a parameter"

    def __call__(self, xs):
        return [self.factor * x for x in xs]


class TestModule:
    def test_named_parameters_follow_attributes_lists_and_dicts(self):
        class Tangle(nn.Module):
            def __init__(self):
                self.a = Value(1.0)
                self.scales = {"first": Scale(), "rest": (Scale(), [Value(3.0)])}
                self.again = self.a

        names = [name for name, _ in Tangle().named_parameters()]
        assert names == ["a", "scales.first.factor", "scales.rest.0.factor", "scales.rest.1.0"]

    def test_only_leaves_are_parameters_and_modules_may_refer_back(self):
        class Child(nn.Module):
            def __init__(self, parent):
                self.parent = parent
                self.w = np.array([Value(1.0), Value(2.0)], dtype=object)
                self.cached = self.w[0] * 2.0

        class Parent(nn.Module):
            def __init__(self):
                self.child = Child(self)

        assert [name for name, _ in Parent().named_parameters()] == ["child.w.0", "child.w.1"]

    def test_sequential_composes_modules_and_functions(self):
        model = nn.Sequential(nn.Layer(2, 3, rng=0), Scale(), sum, chainrule.tanh)
        assert len(model.parameters()) == 10
        model([1.0, 2.0]).backward()
        assert any(p.grad for p in model.parameters())

    def test_zero_grad(self):
        model = nn.MLP(2, [2, 1], rng=0)
        model([1.0, 1.0]).backward()
        model.zero_grad()
        assert [p.grad for p in model.parameters()] == [0.0] * 9

    def test_a_module_in_the_manner_of_micrograd_may_define_parameters_itself(self):
        class Own(nn.Module):
            def __init__(self):
                self._hidden = Value(1.0)

            def parameters(self):
                return [self._hidden]

        own = Own()
        own._hidden.grad = 2.0
        own.zero_grad()
        assert own._hidden.grad == 0.0

    def test_state_round_trip(self):
        first, second = nn.MLP(2, [3, 1], rng=0), nn.MLP(2, [3, 1], rng=1)
        second.load_state(first.state())
        assert second.state() == first.state()
        assert list(first.state())[:3] == ["layers.0.neurons.0.w.0", "layers.0.neurons.0.w.1", "layers.0.neurons.0.b"]

    def test_a_state_that_does_not_fit_changes_nothing(self):
        model = nn.MLP(2, [3, 1], rng=0)
        before = model.state()
        bad = {**before, "extra": 1.0}
        del bad["layers.0.neurons.0.b"]
        with pytest.raises(ValueError, match=r"lacks layers\.0\.neurons\.0\.b and has extra besides"):
            model.load_state(bad)
        with pytest.raises(TypeError, match=r"`layers\.1\.neurons\.0\.b` must be a real number"):
            model.load_state({**before, "layers.0.neurons.0.b": 5.0, "layers.1.neurons.0.b": "x"})
        assert model.state() == before


class TestErrors:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: nn.Neuron(0), "`nin` must be an int of at least 1, got 0"),
            (lambda: nn.Layer(2, -1), "`nout` must be an int of at least 1, got -1"),
            (lambda: nn.MLP(2, []), r"`nouts` must be the sizes of one or more layers, .*got \[\]"),
            (lambda: nn.MLP(2, 1), "`nouts` must be the sizes of one or more layers, .*got 1"),
            (lambda: nn.MLP(2, [1], activation="Tanh"), "`activation` must be a function, .*got 'Tanh'"),
            (lambda: nn.MLP(2, [2.5]), "`nout` must be an int of at least 1, got 2.5"),
            (lambda: nn.MLP(2, [1], output="softmax"), "`activation` must be a function, 'linear' or one of .*tanh"),
            (lambda: nn.Neuron(2, init="zeros"), "`init` must be a function or one of uniform, xavier, he"),
            (lambda: nn.MLP(2, [1])([1.0, 2.0, 3.0]), "`x` must have 2 numbers, one for each weight; got 3"),
        ],
    )
    def test_messages(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()

    def test_wrong_types(self):
        with pytest.raises(TypeError, match=r"`rng` must be a random\.Random or an integer seed, got str"):
            nn.MLP(2, [1], rng="seed")
        with pytest.raises(TypeError, match="`steps` must be modules or functions, got int"):
            nn.Sequential(3)


@pytest.mark.parametrize("model", [nn.MLP(2, [3, 1]), nn.Layer(2, 2), nn.Neuron(2), nn.Sequential(nn.Layer(2, 1))])
def test_many_rows_at_once_are_refused_with_what_to_do(model):
    rows = [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(ValueError, match=r"`x` must be one example, .* got a list of 2 rows: call the model for each"):
        model(rows)
    expected = np.array([[out.data for out in np.ravel(model(x))] for x in rows])
    by_the_remedy = chainrule.compile(model).batch(rows, reduce=None)
    assert np.allclose(np.reshape(np.transpose(by_the_remedy), expected.shape), expected)
