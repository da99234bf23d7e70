"""Objectives with scipy's minimizers, against problems whose solutions are known."""

import itertools

import numpy as np
import pytest
from scipy import optimize

import chainrule
from chainrule import Value, data, losses, nn, objective


def rosenbrock(n, start=-1.0):
    xs = [Value(start) for _ in range(n)]
    return xs, lambda: sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in itertools.pairwise(xs))


@pytest.mark.parametrize("compiled", [False, True])
def test_value_gradient_and_products_are_scipys(compiled):
    xs, loss = rosenbrock(5)
    f = objective(loss, xs, compiled=compiled)
    x, v = np.linspace(-1.0, 1.0, 5), np.arange(5.0)
    value, gradient = f(x)
    assert value == pytest.approx(optimize.rosen(x), rel=1e-13)
    assert np.allclose(gradient, optimize.rosen_der(x), rtol=1e-13, atol=1e-13)
    assert np.allclose(f.hessp(x, v), optimize.rosen_hess_prod(x, v), rtol=1e-13, atol=1e-13)
    assert [p.data for p in xs] == x.tolist()
    assert all(p.grad == 0.0 for p in xs)


@pytest.mark.parametrize("method", ["L-BFGS-B", "BFGS", "CG"])
def test_first_order_minimizers(method):
    f = objective(*reversed(rosenbrock(3)))
    result = optimize.minimize(f, f.x0, jac=True, method=method)
    assert np.allclose(result.x, 1.0, atol=1e-3)


@pytest.mark.parametrize("method", ["Newton-CG", "trust-ncg"])
def test_second_order_minimizers(method):
    xs, loss = rosenbrock(3)
    f = objective(loss, xs)
    result = optimize.minimize(f, f.x0, jac=True, hessp=f.hessp, method=method)
    f.assign(result.x)
    assert loss().data < 1e-8
    assert np.allclose([x.data for x in xs], 1.0, atol=1e-3)


def test_plain_functions_need_no_helper():
    def f(x):
        return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2

    result = optimize.minimize(
        chainrule.value_and_grad(f), np.zeros(2), jac=True, hess=chainrule.hessian(f), method="trust-exact"
    )
    assert np.allclose(result.x, 1.0, atol=1e-6)


def test_a_network_of_which_a_part_is_frozen():
    points, model = data.moons(n=20, seed=1), nn.MLP(2, [4, 1], activation="tanh", rng=1)
    for parameter in model.layers[0].parameters():
        parameter.requires_grad = False
    before = model.state()
    f = objective(lambda: losses.mean_square([model(x) for x in points.inputs], points.targets), model)
    assert len(f.x0) == 5
    result = optimize.minimize(f, f.x0, jac=True)
    f.assign(result.x)
    matrix = np.array([[neuron(x).data for neuron in model.layers[0].neurons] + [1.0] for x in points.inputs])
    best = np.linalg.lstsq(matrix, np.array(points.targets, dtype=float), rcond=None)[0]
    assert np.allclose(result.x, best, atol=1e-4)
    assert all(model.state()[name] == before[name] for name in before if name.startswith("layers.0"))


def test_mistakes_are_named():
    a = Value(1.0)
    with pytest.raises(ValueError, match=r"`x` must be a flat array of 1 number,.*got one of shape \(2,\)"):
        objective(lambda: a * a, [a])([1.0, 2.0])
    with pytest.raises(TypeError, match="`parameters` must be a model or Values, got float among them"):
        objective(lambda: a * a, [1.0])
    with pytest.raises(TypeError, match="`loss` must return a Value computed from the parameters, got float"):
        objective(lambda: 1.0, [a])([1.0])
    a.requires_grad = False
    with pytest.raises(ValueError, match="`parameters` has none that can change"):
        objective(lambda: a * a, [a])
