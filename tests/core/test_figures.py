"""Every figure that the sources publish, on every engine and on the learners' class.

The figures are those of five public write-ups of micrograd. A test names its source where the numbers themselves tell
it (micrograd's README and demo notebook, Karpathy's lecture, the XOR and the four-point runs); the other figures were
handed down to us as one list, and which write-up each is from is not recorded.
"""

import random

import pytest

from chainrule import Value as EngineValue
from chainrule import data, fit, losses, nn, optim


def grads(*values):
    return [value.grad for value in values]


def test_sum_passes_the_gradient_through(AnyValue):
    a, b = AnyValue(2.0), AnyValue(3.0)
    (a + b).backward()
    assert grads(a, b) == [1, 1]


def test_square(AnyValue):
    x = AnyValue(3.0)
    (x * x).backward()
    assert x.grad == 6


def test_diamond(AnyValue):
    a = AnyValue(2.0)
    b = a + 1
    c = a * 3
    d = b * c
    d.backward()
    assert (d.data, a.grad) == (18, 15)


def test_worked_expression(AnyValue):
    a, b, c, f = AnyValue(2.0), AnyValue(-3.0), AnyValue(10.0), AnyValue(-2.0)
    e = a * b
    d = e + c
    L = d * f
    L.backward()
    assert (e.data, d.data, L.data) == (-6, 4, -8)
    assert grads(d, f, e, c, a, b) == [-2, 4, -2, -2, 6, -4]


def test_shared_operands(AnyValue):
    a, b = AnyValue(1.0), AnyValue(2.0)
    c = a + b
    d = a * b + c
    d.backward()
    assert d.data == 5
    assert grads(a, b, c) == [3, 2, 1]


def quotient(a, b):
    c = a + b
    d = a * b + c
    return c, d, d / c


def test_quotient(AnyValue):
    a, b = AnyValue(-1.5), AnyValue(2.0)
    c, d, f = quotient(a, b)
    f.backward()
    assert grads(a, b, c, d) == [16, 9, 12, 2]


def test_forward_difference_of_the_quotient(AnyValue):
    h = 1e-4
    left, right = (quotient(AnyValue(-1.5), AnyValue(b))[2].data for b in (2.0, 2.0 + h))
    assert (right - left) / h == pytest.approx(8.998200359942, abs=1e-9)


def test_micrograd_readme_expression(AnyValue):
    # Source: micrograd's README.
    a, b = AnyValue(-4.0), AnyValue(2.0)
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g += 10.0 / f
    g.backward()
    assert [f"{x:.4f}" for x in (g.data, a.grad, b.grad)] == ["24.7041", "138.8338", "645.5773"]


def test_a_root_grad_of_one_set_beforehand_does_not_double(AnyValue):
    a, b = AnyValue(2.0), AnyValue(-3.0)
    out = a * b
    out.grad = 1.0
    out.backward()
    assert grads(a, b) == [-3, 2]


def test_a_discarded_relu_contributes_nothing(AnyValue):
    a = AnyValue(2.0)
    f = a * 3
    f.relu()
    f.backward()
    assert a.grad == 3


@pytest.mark.parametrize("steps", [3, 10])
def test_forgetting_to_zero_k_times_gives_k_fold_gradients(AnyValue, steps):
    w = AnyValue(3.0)
    for _ in range(steps):
        (w * w).backward()
    assert w.grad == steps * 6


def test_tanh_is_right_where_exp_of_2x_would_overflow(Value):
    for x, expected in [(1000.0, 1.0), (-1000.0, -1.0), (1e308, 1.0), (1e-320, 1e-320)]:
        v = Value(x)
        v.tanh().backward()
        assert v.tanh().data == expected
        assert v.grad == (1.0 if abs(x) < 1 else 0.0)


def test_neuron_of_the_lecture_with_tanh_and_its_exp_form(AnyValue):
    # Source: Karpathy's lecture. o = tanh(x1*w1 + x2*w2 + b) at 0.7071; grads -1.5, 1, 0.5, 0 (4 decimals).
    def neuron(tanh):
        x1, x2, w1, w2 = AnyValue(2.0), AnyValue(0.0), AnyValue(-3.0), AnyValue(1.0)
        o = tanh(x1 * w1 + x2 * w2 + 6.8813735870195432)
        o.backward()
        return [f"{x:.4f}" for x in (o.data, x1.grad, w1.grad, x2.grad, w2.grad)]

    def by_exp(n):
        e = (2 * n).exp()
        return (e - 1) / (e + 1)

    expected = ["0.7071", "-1.5000", "1.0000", "0.5000", "0.0000"]
    assert neuron(lambda n: n.tanh()) == neuron(by_exp) == expected


def micrograd_moons_run():
    """micrograd's demo: 100 full-batch steps at a falling rate, from its own seed and its own points."""
    random.seed(1337)
    model = nn.MLP(2, [16, 16, 1])
    history = fit(
        model,
        losses.hinge,
        data.micrograd_moons(),
        optimizer=optim.SGD(model.parameters(), lr=lambda k: 1.0 - 0.9 * k / 100),
        penalty=losses.l2(1e-4),
        metrics=[losses.accuracy],
        epochs=100,
        progress=False,
    )
    return model, history


@pytest.mark.slow
def test_micrograd_moons_demo():
    # Source: micrograd's demo notebook.
    model, history = micrograd_moons_run()
    assert len(model.parameters()) == 337
    assert history.loss[0] == 0.8958441028683222
    assert history.loss[99] == pytest.approx(0.010978370135492717, abs=1e-6)
    assert history["accuracy"][99] == 1.0


def test_moons_demo_first_step_to_the_bit():
    # Source: micrograd's demo notebook.
    random.seed(1337)
    model = nn.MLP(2, [16, 16, 1])
    examples = data.micrograd_moons()
    loss = losses.hinge([model(x) for x in examples.inputs], examples.targets) + losses.l2(1e-4)(model.parameters())
    assert loss.data == 0.8958441028683222


# The sources' runs of XOR and of the four points start from weights that they do not publish, so these seeds are ours,
# and chosen: 52 of the seeds 0 to 99 learn XOR to 0.1 with tanh (38 with relu), and 63 take the four points from above
# 3 to below 0.02. A test from one seed says that it can be learned, not that it always is.
XOR_SEED = 1
FOUR_POINTS_SEED = 1


def train_xor(activation, seed=XOR_SEED, epochs=100):
    model = nn.MLP(2, [4, 1], activation=activation, rng=seed)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    return model, fit(model, losses.sum_of_squares, data.xor(), optimizer=optimizer, epochs=epochs, progress=False)


def test_xor_is_learned_from_the_documented_seed():
    # Source: the XOR run, loss 1.8480 at epoch 0, 0.0420 at 90.
    model, history = train_xor("tanh")
    assert len(model.parameters()) == 17
    assert all(-1 <= w.data <= 1 for w in nn.MLP(2, [4, 1], rng=XOR_SEED).parameters())
    for x, target in data.xor():
        assert abs(model(x).data - target) < 0.1
    assert history.loss[-1] < 0.0420


def test_xor_with_tanh_and_with_relu_can_be_compared():
    # Source: the XOR run.
    curves = {activation: train_xor(activation)[1].loss for activation in ("tanh", "relu")}
    assert all(len(curve) == 100 for curve in curves.values())
    assert curves["tanh"][-1] < curves["tanh"][0]
    assert curves["relu"][-1] < curves["relu"][0]


def test_four_points_from_the_documented_seed():
    # Source: the four-point run, 3.764166 at step 0, 0.014828 at 49.
    model = nn.MLP(3, [4, 4, 1], activation="tanh", output="tanh", rng=FOUR_POINTS_SEED)
    assert len(model.parameters()) == 41
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    history = fit(model, losses.sum_of_squares, data.four_points(), optimizer=optimizer, epochs=50, progress=False)
    assert history.loss[0] > 3
    assert history.loss[-1] < 0.02


def test_lesson_tolerance_seven_decimals(AnyValue):
    a = AnyValue(0.5)
    (a.tanh() * a.exp() + a**3 + a.log()).backward()
    b = EngineValue(0.5)
    (b.tanh() * b.exp() + b**3 + b.log()).backward()
    assert f"{a.grad:.7f}" == f"{b.grad:.7f}" == "4.8085355"
