"""Transforms against mpmath, PyTorch and JAX: every op to the third order, structures, nesting, compiled."""

import copy
import itertools
import math
import threading
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

import mpmath
import numpy as np
import pytest
import torch

import chainrule
from chainrule import (
    Value,
    compile,
    data,
    elementwise_grad,
    grad,
    grad_of,
    hessian,
    hvp,
    jacobian,
    jvp,
    losses,
    nn,
    no_grad,
    transforms,
    value_and_grad,
    vjp,
    vmap,
)
from op_samples import MPMATH, TABLE, WITHOUT_GRADIENT, samples

FRACTIONS = [0.3, -0.7, 1.1]


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield jax
    jax.config.update("jax_enable_x64", before)


def repeated(function, places):
    """The derivative by each of these arguments, one after another."""
    for place in places:
        function = grad(function, place)
    return function


def forward(function, places):
    """The same by forward mode alone."""
    for place in places:

        def derivative(*numbers, function=function, place=place):
            tangents = tuple(float(k == place) for k in range(len(numbers)))
            return jvp(function, numbers, tangents)[1]

        function = derivative
    return function


def close(ours, theirs, tolerance=1e-10):
    return abs(ours - theirs) <= tolerance * max(1.0, abs(theirs))


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", MPMATH)
def test_every_op_against_mpmath(name, order):
    row, oracle = TABLE[name], MPMATH[name]
    chosen = range(1 if name == "where" else 0, row.arity)
    for numbers in samples(row, 3, seed=2):
        for places in itertools.combinations_with_replacement(chosen, order):
            with mpmath.workdps(60):
                exact = [mpmath.mpf(number) for number in numbers]
                orders = tuple(places.count(k) for k in range(row.arity))
                expected = mpmath.diff(oracle, exact, orders) if row.arity > 1 else mpmath.diff(oracle, exact[0], order)
            assert close(repeated(row, places)(*numbers), float(expected)), (numbers, places)
            assert close(forward(row, places)(*numbers), float(expected)), (numbers, places)


def test_ops_that_pass_no_gradient_have_no_derivative():
    for name in WITHOUT_GRADIENT:
        for numbers in samples(TABLE[name], 3):
            assert repeated(TABLE[name], [0])(*numbers) == 0.0
            assert forward(TABLE[name], [TABLE[name].arity - 1, 0])(*numbers) == 0.0


def test_powers_at_0_have_all_their_derivatives():
    assert [repeated(lambda x: x**3, [0] * order)(0.0) for order in range(1, 6)] == [0.0, 0.0, 6.0, 0.0, 0.0]
    assert repeated(lambda x: x**3, [0, 0])(-2.0) == -12.0


def test_softmax_and_logsumexp():
    x = torch.tensor(FRACTIONS, dtype=torch.float64)
    jacrev = torch.func.jacrev
    ours = jacobian(hessian(chainrule.logsumexp))(FRACTIONS)
    assert np.allclose(ours, jacrev(jacrev(jacrev(lambda x: torch.logsumexp(x, 0))))(x), rtol=1e-12, atol=1e-15)
    ours = jacobian(jacobian(chainrule.softmax))(FRACTIONS)
    assert np.allclose(ours, jacrev(jacrev(lambda x: torch.softmax(x, 0)))(x), rtol=1e-12, atol=1e-15)
    compiled = chainrule.compile(hessian(chainrule.logsumexp))(FRACTIONS)
    assert np.allclose(compiled, hessian(chainrule.logsumexp)(FRACTIONS), rtol=1e-12, atol=1e-15)


def network(p, x):
    """One of each kind of thing: products, activations, a loss."""
    hidden = [chainrule.tanh(w[0] * x[0] + w[1] * x[1] + b) for w, b in zip(p["w"], p["b"], strict=True)]
    return chainrule.softplus(chainrule.dot(hidden, p["v"])) ** 2 + hidden[0] / (1 + x[0] ** 2)


def torch_network(flat, x):
    hidden = [torch.tanh(flat[2 * k] * x[0] + flat[2 * k + 1] * x[1] + flat[6 + k]) for k in range(3)]
    total = sum(h * flat[9 + k] for k, h in enumerate(hidden))
    return torch.nn.functional.softplus(total) ** 2 + hidden[0] / (1 + x[0] ** 2)


PARAMETERS = {"w": [[0.1, -0.4], [0.5, 0.3], [-0.2, 0.9]], "b": (0.3, -0.1, 0.2), "v": [0.7, -0.6, 0.5]}
X = [0.8, -1.3]


def numbers_of(structure):
    """All numbers, from left to right."""
    if isinstance(structure, dict):
        structure = list(structure.values())
    if isinstance(structure, (list, tuple, np.ndarray)):
        return [number for part in structure for number in numbers_of(part)]
    return [structure]


FLAT = torch.tensor(numbers_of(PARAMETERS), dtype=torch.float64)
TORCH_X = torch.tensor(X, dtype=torch.float64)


class TestAgainstPyTorch:
    def test_the_gradient_has_the_structure_of_the_argument(self):
        value, gradient = value_and_grad(network)(PARAMETERS, X)
        expected = torch.func.grad(torch_network)(FLAT, TORCH_X)
        assert close(value, torch_network(FLAT, TORCH_X).item(), 1e-14)
        assert np.allclose(numbers_of(gradient), expected.numpy(), rtol=1e-12, atol=0)
        assert list(gradient) == ["w", "b", "v"]
        assert type(gradient["b"]) is tuple
        assert grad(network)(PARAMETERS, X) == gradient

    def test_gradients_by_several_arguments(self):
        by_p, by_x = grad(network, argnums=(0, 1))(PARAMETERS, X)
        assert by_p == grad(network)(PARAMETERS, X)
        assert by_x == grad(network, argnums=-1)(PARAMETERS, X)
        expected = torch.func.grad(torch_network, argnums=1)(FLAT, TORCH_X)
        assert np.allclose(by_x, expected.numpy(), rtol=1e-12, atol=0)

    def test_the_hessian(self):
        ours = np.reshape(numbers_of(hessian(network)(PARAMETERS, X)), (12, 12))
        expected = torch.autograd.functional.hessian(lambda p: torch_network(p, TORCH_X), FLAT).numpy()
        assert np.allclose(ours, expected, rtol=1e-11, atol=1e-13)

    def test_the_third_order(self):
        ours = np.reshape(numbers_of(jacobian(hessian(network, 1), 1)(PARAMETERS, X)), (2, 2, 2))
        jacrev = torch.func.jacrev
        expected = jacrev(jacrev(torch.func.grad(torch_network, 1), 1), 1)(FLAT, TORCH_X).numpy()
        assert np.allclose(ours, expected, rtol=1e-10, atol=1e-12)

    def test_products_with_vectors(self):
        direction = {"w": [[1.0, 2.0], [-1.0, 0.5], [0.0, 3.0]], "b": (0.1, 0.2, 0.3), "v": [-1.0, 1.0, 2.0]}
        v = torch.tensor(numbers_of(direction), dtype=torch.float64)
        value, change = jvp(lambda p: network(p, X), (PARAMETERS,), (direction,))
        expected_value, expected = torch.autograd.functional.jvp(lambda p: torch_network(p, TORCH_X), FLAT, v)
        assert close(value, expected_value.item(), 1e-14)
        assert close(change, expected.item(), 1e-13)
        product = hvp(lambda p: network(p, X), (PARAMETERS,), (direction,))
        _, expected = torch.autograd.functional.hvp(lambda p: torch_network(p, TORCH_X), FLAT, v)
        assert np.allclose(numbers_of(product), expected.numpy(), rtol=1e-11, atol=1e-13)

    def test_hvp_by_several_arguments(self):
        def f(x, y):
            return x * x * y + chainrule.sin(y)

        by_x, by_y = hvp(f, (2.0, 3.0), (0.5, -1.0))
        assert by_x == 2 * 3.0 * 0.5 + 2 * 2.0 * -1.0
        assert close(by_y, 2 * 2.0 * 0.5 + math.sin(3.0), 1e-15)

    def test_pulling_back(self):
        def f(x):
            return {"a": [x[0] * x[1], chainrule.exp(x[0])], "b": x[1] / x[0]}

        y, pull = vjp(f, X)
        _, torch_pull = torch.func.vjp(lambda x: torch.stack([x[0] * x[1], torch.exp(x[0]), x[1] / x[0]]), TORCH_X)
        assert y == f(X)
        (gradient,) = pull({"a": [1.0, -2.0], "b": 0.5})
        (expected,) = torch_pull(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
        assert np.allclose(gradient, expected.numpy(), rtol=1e-14, atol=0)
        assert pull({"a": [0.0, 0.0], "b": 0.0}) == ([0.0, 0.0],)

    @pytest.mark.parametrize("outputs", [1, 2, 3, 5])
    def test_jacobians_wide_and_tall(self, outputs):
        def f(x):
            return [chainrule.sin(k * x[0]) * x[1] + x[2] ** k for k in range(1, outputs + 1)]

        ours = jacobian(f)(FRACTIONS)
        theirs = torch.func.jacrev(
            lambda x: torch.stack([torch.sin(k * x[0]) * x[1] + x[2] ** k for k in range(1, outputs + 1)])
        )(torch.tensor(FRACTIONS, dtype=torch.float64))
        assert np.allclose(ours, theirs.numpy(), rtol=1e-13, atol=1e-15)


@pytest.mark.slow
class TestJax:
    """The same functions in JAX, where it is installed."""

    def test_orders_1_to_3(self, jax):
        def ours(x):
            return chainrule.tanh(x[0] * x[1]) + chainrule.exp(x[0]) * chainrule.sigmoid(x[2]) + x[1] ** 3 / (2 + x[2])

        def theirs(x):
            return jax.numpy.tanh(x[0] * x[1]) + jax.numpy.exp(x[0]) * jax.nn.sigmoid(x[2]) + x[1] ** 3 / (2 + x[2])

        x = jax.numpy.array(FRACTIONS)
        pairs = [
            (grad(ours), jax.grad(theirs)),
            (hessian(ours), jax.hessian(theirs)),
            (jacobian(hessian(ours)), jax.jacfwd(jax.hessian(theirs))),
        ]
        for mine, yours in pairs:
            assert np.allclose(mine(np.array(FRACTIONS)), yours(x), rtol=1e-10, atol=1e-10)
            assert np.allclose(mine(FRACTIONS), yours(x), rtol=1e-10, atol=1e-10)

    def test_every_op_to_the_third_order(self, jax):
        """Compiled as one function: op by op, XLA takes most of a minute."""
        numpy = jax.numpy
        others = {
            "add": numpy.add,
            "sub": numpy.subtract,
            "mul": numpy.multiply,
            "div": numpy.divide,
            "neg": numpy.negative,
            "pow": numpy.power,
            "where": lambda c, a, b: numpy.where(c != 0.0, a, b),
            "asin": numpy.arcsin,
            "acos": numpy.arccos,
            "atan": numpy.arctan,
            "atan2": numpy.arctan2,
            "asinh": numpy.arcsinh,
            "acosh": numpy.arccosh,
            "atanh": numpy.arctanh,
            "erf": jax.scipy.special.erf,
            "erfc": jax.scipy.special.erfc,
            "gelu": lambda x: jax.nn.gelu(x, approximate=False),
        }
        points = {name: samples(TABLE[name], 1, seed=5)[0] for name in MPMATH}
        cases = [
            (name, places)
            for name in MPMATH
            for order in (1, 2, 3)
            for places in itertools.combinations_with_replacement(
                range(1 if name == "where" else 0, TABLE[name].arity), order
            )
        ]

        def derivative(name, places, numbers):
            function = others.get(name) or getattr(numpy, name, None) or getattr(jax.nn, name)
            for place in places:
                function = jax.grad(function, place)
            return function(*numbers)

        expected = jax.jit(lambda points: [derivative(name, places, points[name]) for name, places in cases])(points)
        for (name, places), number in zip(cases, map(float, expected), strict=True):
            row, numbers = TABLE[name], points[name]
            assert close(repeated(row, places)(*numbers), number), (name, numbers, places)
            assert close(forward(row, places)(*numbers), number), (name, numbers, places)

    def test_the_hessian_of_a_moons_loss(self, jax):
        points, model = data.moons(n=10, seed=1), nn.MLP(2, [4, 1], activation="tanh", rng=1)
        ordered, theirs = jax_moons_loss(jax, points, model)

        def second():
            gradient = grad_of(moons_loss(points, model), ordered, create_graph=True)
            return [grad_of(slope, ordered, create_graph=True) for slope in gradient]

        expected = jax.hessian(theirs)(jax.numpy.array([p.data for p in ordered]))
        assert np.allclose(np.array(chainrule.compile(second)()), expected, rtol=1e-10, atol=1e-12)
        assert np.allclose([[entry.data for entry in line] for line in second()], expected, rtol=1e-10, atol=1e-12)

    def test_nested_structures(self, jax):
        p = {"w": [0.3, 0.4], "b": 0.7}
        ours = hessian(lambda p: chainrule.tanh(p["w"][0] * p["b"]) + p["w"][1] ** 2 * p["b"])(p)
        theirs = jax.hessian(lambda p: jax.numpy.tanh(p["w"][0] * p["b"]) + p["w"][1] ** 2 * p["b"])(p)
        for (path, mine), (other, yours) in zip(*map(jax.tree_util.tree_leaves_with_path, (ours, theirs)), strict=True):
            assert path == other
            assert close(mine, float(yours))

    def test_a_derivative_within_a_function_that_is_differentiated(self, jax):
        ours = grad(lambda x: x * grad(lambda y: x * chainrule.sin(y))(x))(0.7)
        theirs = jax.grad(lambda x: x * jax.grad(lambda y: x * jax.numpy.sin(y))(x))(0.7)
        assert close(ours, float(theirs), 1e-14)


class TestStructures:
    Point = namedtuple("Point", "x y")

    def test_any_nesting_in_and_out(self):
        def f(p):
            return {"out": [p["a"][0] * p["b"]["c"][1], (p["t"][0] ** 2,)]}

        p = {"a": [1.0, 2.0], "b": {"c": (3.0, 4.0)}, "t": (5.0,)}
        assert f(p) == {"out": [4.0, (25.0,)]}
        assert jacobian(f)(p) == {
            "out": [
                {"a": [4.0, 0.0], "b": {"c": (0.0, 1.0)}, "t": (0.0,)},
                ({"a": [0.0, 0.0], "b": {"c": (0.0, 0.0)}, "t": (10.0,)},),
            ]
        }

    @pytest.mark.parametrize("run", [lambda f: f, chainrule.compile])
    def test_named_tuples(self, run):
        gradient = run(grad(lambda p: p.x**2 * p.y))(self.Point(3.0, 5.0))
        assert gradient == self.Point(30.0, 9.0)
        assert type(gradient) is self.Point
        value = run(lambda p: self.Point(p.x, p.x * p.y))(self.Point(3.0, 5.0))
        assert value == self.Point(3.0, 15.0)

    @pytest.mark.parametrize("argnums", [1, -1, (1,), [-1], range(1, 2), np.int64(1), (np.int64(-1),)])
    def test_places_of_arguments(self, argnums):
        expected = 4.0 if isinstance(argnums, (int, np.integer)) else (4.0,)
        assert grad(lambda x, y: x * x * y, argnums)(2.0, 3.0) == expected
        assert jacobian(lambda x, y: x * x * y, argnums)(2.0, 3.0) == expected
        assert value_and_grad(lambda x, y: x * x * y, argnums)(2.0, 3.0) == (12.0, expected)

    def test_several_places(self):
        def f(x, y, z):
            return x * x * y + 0.0 * z

        assert grad(f, (-2, 0))(2.0, 3.0, 1.0) == (4.0, 12.0)
        assert hessian(f, (0, 1))(2.0, 3.0, 1.0) == ((6.0, 4.0), (4.0, 0.0))
        assert chainrule.compile(hessian(f, (0, -2)))(2.0, 3.0, 1.0) == ((6.0, 4.0), (4.0, 0.0))

    def test_named_arguments_are_passed_on(self):
        assert grad(lambda x, *, factor: factor * x)(2.0, factor=3.0) == 3.0


class TestNesting:
    def test_the_same_argument_in_two_roles(self):
        assert grad(lambda x: x * grad(lambda y: x + y)(1.0))(3.0) == 1.0
        assert grad(lambda x: x * grad(lambda y: x * y)(x))(3.0) == 6.0
        assert jvp(lambda x: x * jvp(lambda y: x * y, (x,), (1.0,))[1], (3.0,), (1.0,)) == (9.0, 6.0)

    def test_forward_and_reverse_in_any_order(self):
        def f(x):
            return chainrule.exp(x * x)

        second = (2 + 4 * 0.49) * math.exp(0.49)
        assert close(grad(grad(f))(0.7), second, 1e-14)
        assert close(jvp(grad(f), (0.7,), (1.0,))[1], second, 1e-14)
        assert close(grad(lambda x: jvp(f, (x,), (1.0,))[1])(0.7), second, 1e-14)
        assert close(grad(lambda x: vjp(f, x)[1](1.0)[0])(0.7), second, 1e-14)

    def test_the_derivative_by_a_direction(self):
        assert grad(lambda v: jvp(lambda x: x * x, (3.0,), (v,))[1])(1.0) == 6.0
        assert grad(lambda v: vjp(lambda x: x * x, 3.0)[1](v)[0])(1.0) == 6.0

    def test_functions_that_branch_and_loop(self):
        def root(a):
            x = a
            while abs((x * x - a).data) > 1e-14:
                x = 0.5 * (x + a / x)
            return x

        assert close(grad(root)(2.0), 0.5 / math.sqrt(2.0))
        assert close(grad(grad(root))(2.0), -0.25 * 2.0**-1.5, 1e-7)

    def test_a_gradient_equals_backward(self):
        model, points = nn.MLP(2, [5, 5, 1], rng=1), data.moons(n=20, seed=1)
        loss = losses.hinge([model(x) for x in points.inputs], points.targets)
        gradients = grad_of(loss, model.parameters())
        assert all(p.grad == 0.0 for p in model.parameters())
        loss.backward()
        assert gradients == [p.grad for p in model.parameters()]

    def test_the_native_sweep_is_the_python_sweep_to_the_bit(self, monkeypatch):
        model, points = nn.MLP(2, [5, 5, 1], activation="gelu", rng=1), data.moons(n=20, seed=1)
        loss = losses.hinge([model(x) for x in points.inputs], points.targets)
        inner = loss._operands[0]
        quick = [grad_of(loss, [*model.parameters(), inner]), jacobian(network)(PARAMETERS, X)]
        monkeypatch.setattr("chainrule.core.sweeps.ENGINE", "python")
        assert [grad_of(loss, [*model.parameters(), inner]), jacobian(network)(PARAMETERS, X)] == quick
        assert all(p.grad == 0.0 for p in model.parameters())

    def test_threads_share_captured_values(self):
        model = nn.MLP(2, [8, 1], activation="tanh", rng=1)
        xs = [[0.01 * k, -0.02 * k] for k in range(40)]
        with no_grad():
            expected = [[g.data for g in grad(model)(x)] for x in xs]

        def work(x):
            with no_grad():
                return [g.data for g in grad(model)(x)]

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, xs)) == expected


class TestKindOfResult:
    def test_numbers_give_numbers(self):
        assert type(grad(lambda x: x * x)(3)) is float
        assert type(grad(grad(lambda x: 3 * x))(2.0)) is float
        assert grad(lambda x: 5.0)(2.0) == 0.0

    def test_a_captured_value_is_not_forgotten(self):
        w = Value(2.0)
        slope = grad(lambda x: w * x * x)(3.0)
        slope.backward()
        assert (slope.data, w.grad) == (12.0, 6.0)
        value, slope = value_and_grad(lambda x: w * x)(3.0)
        assert (value.data, slope.data) == (6.0, 2.0)

    def test_a_frozen_value_is_a_number(self):
        w = Value(2.0)
        w.requires_grad = False
        assert grad(lambda x: w * x * x)(3.0) == 12.0

    def test_values_give_values(self):
        x = Value(3.0)
        slope = grad(lambda y: y**3)(x)
        slope.backward()
        assert (slope.data, x.grad) == (27.0, 18.0)
        assert isinstance(grad(lambda y: 2 * y)(x), Value)

    def test_a_gradient_penalty(self):
        model = nn.MLP(2, [4, 1], activation="tanh", rng=3)
        penalty = sum(g * g for g in grad(model)([0.3, -0.2]))
        penalty.backward()
        before = [p.grad for p in model.parameters()]
        for parameter, slope in zip(model.parameters(), before, strict=True):
            here, step = parameter.data, 1e-5
            around = []
            for there in (here + step, here - step):
                parameter.data = there
                around.append(sum(g.data**2 for g in grad(model)([0.3, -0.2])))
            parameter.data = here
            assert slope == pytest.approx((around[0] - around[1]) / (2 * step), abs=1e-8)

    def test_inside_no_grad(self):
        w = Value(2.0)
        with no_grad():
            slope = grad(lambda x: w * x * x)(3.0)
            assert grad(lambda x: x * x)(3.0) == 6.0
            change = jvp(lambda x: x * x, (3.0,), (w,))[1]
            (pulled,) = vjp(lambda x: x * x, 3.0)[1](w)
        assert (slope.data, slope._operands, slope.requires_grad) == (12.0, (), False)
        assert (change.data, pulled.data, change._operands, pulled._operands) == (12.0, 12.0, (), ())

    def test_arrays(self):
        x = np.array([[1.0, 2.0], [3.0, 4.0]])
        gradient = grad(lambda x: (x * x).sum())(x)
        assert gradient.dtype == np.float64
        assert gradient.tolist() == [[2.0, 4.0], [6.0, 8.0]]
        assert hessian(lambda x: (x * x * x).sum())(np.array([1.0, 2.0])).tolist() == [[6.0, 0.0], [0.0, 12.0]]
        assert jacobian(lambda x: np.array([x[0], x[0] * x[1]]))([2.0, 3.0]) == [[1.0, 0.0], [3.0, 2.0]]


class TestGradOf:
    def test_any_order(self):
        x = Value(2.0)
        first = grad_of(x**4, x, create_graph=True)
        second = grad_of(first, x, create_graph=True)
        assert [first.data, second.data, grad_of(second, x)] == [32.0, 48.0, 48.0]
        assert x.grad == 0.0

    def test_inputs_in_a_structure_and_between(self):
        a, b = Value(2.0), Value(3.0)
        c = a * b
        assert grad_of(c * c, {"leaves": [a, b], "inner": c}) == {"leaves": [36.0, 24.0], "inner": 12.0}

    def test_what_the_output_does_not_depend_on(self):
        a, b = Value(2.0), Value(3.0)
        assert grad_of(a * a, [a, b]) == [4.0, 0.0]
        derivative = grad_of(a * 3.0, b, create_graph=True)
        assert (derivative.data, isinstance(derivative, Value)) == (0.0, True)

    def test_frozen_leaves_can_be_asked_for(self):
        a = Value(2.0)
        a.requires_grad = False
        assert grad_of(a * a, a) == 4.0

    def test_a_long_chain(self):
        x = Value(1.0)
        y = x
        for _ in range(20_000):
            y = y * 1.00001
        assert grad_of(y, x) == pytest.approx(1.00001**20_000)
        assert grad_of(grad_of(y * y, x, create_graph=True), x) == pytest.approx(2 * 1.00001**40_000)


def cube(x):
    out = Value(x.data**3, (x,), "cube")

    def _backward():
        x.grad += 3 * x.data**2 * out.grad

    out._backward = _backward
    return out


class TestWrittenByHand:
    def test_once(self):
        assert grad(cube)(2.0) == 12.0
        assert jvp(cube, (2.0,), (0.5,)) == (8.0, 6.0)
        x = Value(2.0)
        x.grad = 7.0
        y = cube(x)
        assert grad_of(y * y, x) == 2 * 8 * 12
        assert (x.grad, y.grad) == (7.0, 0.0)

    def test_twice_is_refused(self):
        with pytest.raises(TypeError, match=r"`_op` 'cube'.*written by hand.*register the op with chainrule.op"):
            grad(grad(cube))(2.0)
        with pytest.raises(TypeError, match="written by hand"):
            hessian(cube)(2.0)

    def test_with_captured_values_numbers_alone_can_be_had(self):
        w = Value(5.0)
        with pytest.raises(TypeError, match=r"inside chainrule.no_grad\(\)"):
            grad(lambda x: cube(x) * w)(2.0)
        with no_grad():
            assert grad(lambda x: cube(x) * w)(2.0).data == 60.0


class TestCustomDerivatives:
    def test_an_op_of_ones_own_to_any_order(self):
        @chainrule.op(lambda out, x: 3.0 * x * x)
        def my_third_power(x):
            return x * x * x

        assert [repeated(my_third_power, [0] * n)(2.0) for n in (1, 2, 3, 4)] == [12.0, 12.0, 6.0, 0.0]

    def test_the_stated_derivative_counts_not_that_of_the_code(self):
        @chainrule.op(lambda out, x: 1.0)
        def straight_through(x):
            return float(round(x))

        assert grad(lambda x: straight_through(x) ** 2)(2.6) == 6.0

    def test_a_solver_by_the_implicit_function_theorem(self):
        def equation(x, a):
            return x * chainrule.exp(x) - a

        @chainrule.op(lambda out, a: -grad(equation, 1)(out, a) / grad(equation, 0)(out, a))
        def lambert_w(a):
            x = 1.0
            for _ in range(50):
                x -= (x * math.exp(x) - a) / (math.exp(x) * (1 + x))
            return x

        for order in (1, 2, 3):
            with mpmath.workdps(40):
                expected = float(mpmath.diff(mpmath.lambertw, 1.5, order).real)
            assert close(repeated(lambert_w, [0] * order)(1.5), expected)

    def test_a_rule_written_with_math_is_refused_at_the_second_order(self):
        @chainrule.op(lambda out, x: math.cos(x))
        def my_sine(x):
            return math.sin(x)

        assert grad(my_sine)(0.5) == math.cos(0.5)
        with pytest.raises(TypeError, match="use chainrule's functions"):
            grad(grad(my_sine))(0.5)


def moons_loss(points, model):
    predictions = [model(x) for x in points.inputs]
    return losses.hinge(predictions, points.targets) + 1e-4 * sum((p * p for p in model.parameters()), 0.0)


def jax_moons_loss(jax, points, model):
    """The parameters in the order of JAX's vector of them, and the loss in terms of that, as one writes it in JAX."""
    inputs, targets = jax.numpy.array(points.inputs), jax.numpy.array(points.targets)
    shapes = [(len(layer.neurons), len(layer.neurons[0].w) + 1) for layer in model.layers]

    def loss(p):
        x, start = inputs, 0
        for k, (units, width) in enumerate(shapes):
            layer = p[start : start + units * width].reshape(units, width)
            x, start = x @ layer[:, :-1].T + layer[:, -1], start + units * width
            x = jax.numpy.tanh(x) if k < len(shapes) - 1 else x[:, 0]
        return jax.numpy.maximum(1.0 - targets * x, 0.0).mean() + 1e-4 * (p * p).sum()

    ordered = [p for layer in model.layers for neuron in layer.neurons for p in (*neuron.w, neuron.b)]
    return ordered, loss


class TestCompiled:
    @pytest.mark.parametrize("strict", [False, True])
    @pytest.mark.parametrize(
        "transform",
        [
            grad,
            hessian,
            value_and_grad,
            lambda f: jacobian(grad(f)),
            lambda f: lambda p: jvp(f, (p,), (p,)),
            lambda f: lambda p: hvp(f, (p,), (p,)),
            lambda f: lambda p: vjp(f, p)[1](2.0),
        ],
    )
    def test_every_transform(self, transform, strict):
        function = transform(lambda p: network(p, X))
        compiled = chainrule.compile(function, strict=strict)(PARAMETERS)
        eager = function(PARAMETERS)
        assert np.allclose(numbers_of(compiled), numbers_of(eager), rtol=0 if strict else 1e-12, atol=1e-15)
        assert type(compiled) is type(eager)

    def test_a_batch(self):
        program = chainrule.compile(lambda x: grad(grad(lambda y: chainrule.sin(y) * y))(x))
        xs = np.linspace(-1.0, 1.0, 7)
        assert np.allclose(program.batch(xs, reduce=None), 2 * np.cos(xs) - xs * np.sin(xs), rtol=1e-13, atol=1e-15)

    def test_numbers_in_a_trace_are_no_parameters(self):
        program = chainrule.compile(lambda x: x * grad(grad(lambda y: y**3))(2.0))
        assert program(2.0) == 24.0
        assert program.wrt == []

    def test_the_gradient_of_a_gradient_by_captured_values(self):
        w = Value(2.0)
        program = chainrule.compile(lambda x: grad(lambda y: w * w * y * y)(x))
        assert program(3.0) == 24.0
        assert w.grad == 24.0

    def test_grad_of_without_a_graph_passes_no_gradient(self):
        w = Value(2.0)
        program = chainrule.compile(lambda: grad_of(w * w * w, w) * w)
        assert program() == 24.0
        assert w.grad == 12.0

    def test_the_hessian_of_the_moons_loss(self):
        points, model = data.moons(n=10, seed=1), nn.MLP(2, [4, 1], activation="tanh", rng=1)
        parameters = model.parameters()

        def second():
            gradient = grad_of(moons_loss(points, model), parameters, create_graph=True)
            return [grad_of(slope, parameters, create_graph=True) for slope in gradient]

        program = chainrule.compile(second)
        compiled, eager = np.array(program()), [[entry.data for entry in row] for row in second()]
        assert np.allclose(compiled, eager, rtol=1e-12, atol=1e-14)
        assert np.allclose(compiled, compiled.T, rtol=1e-12, atol=1e-14)
        assert program.stats["array statements"] < 400
        parameters[0].data += 0.5
        assert np.allclose(program(), [[entry.data for entry in row] for row in second()], rtol=1e-12, atol=1e-14)

    @pytest.mark.slow
    def test_products_with_the_hessian_of_the_whole_moons_loss(self, jax):
        points, model = data.moons(n=100, seed=1), nn.MLP(2, [16, 16, 1], activation="tanh", rng=1)
        ordered, theirs = jax_moons_loss(jax, points, model)
        f = chainrule.objective(lambda: moons_loss(points, model), ordered, compiled=True)
        x, v = f.x0, np.cos(np.arange(len(f.x0)))
        product, expected = f.hessp(x, v), (f(x + 1e-5 * v)[1] - f(x - 1e-5 * v)[1]) / 2e-5
        assert np.allclose(product, expected, rtol=1e-6, atol=1e-8)
        assert np.allclose(product, chainrule.objective(f.loss, ordered).hessp(x, v), rtol=1e-12, atol=1e-14)
        assert (f._product.stats["scalar nodes"], f._product.stats["array statements"]) == (70_508, 43)
        some = np.eye(len(x))[::16]
        hessian = np.array(jax.hessian(theirs)(jax.numpy.array(x)))
        assert np.allclose([f.hessp(x, column) for column in some], some @ hessian, rtol=1e-10, atol=1e-12)


class TestErrors:
    def test_a_gradient_of_several_numbers(self):
        def pair(x):
            return [x, x]

        with pytest.raises(TypeError, match=r"`pair` returned a list of 2, .* use chainrule.jacobian"):
            grad(pair)(1.0)

    @pytest.mark.parametrize("argnums", [2, "x", None, 0.0, (0, 2), -2])
    def test_argnums_that_are_no_places(self, argnums):
        with pytest.raises(ValueError, match=r"`argnums` must be places .* was given 1 by their places"):
            grad(lambda x: x, argnums=argnums)(1.0)

    def test_argnums_twice(self):
        with pytest.raises(ValueError, match=r"`argnums` must name each argument once, got \(0, -2\)"):
            grad(lambda x, y: x * y, argnums=(0, -2))(1.0, 2.0)

    def test_a_compiled_function_on_values(self):
        with pytest.raises(TypeError, match=r"`argument 0` must be a real number, got a Value.* compile\(grad\(f\)\)"):
            grad(chainrule.compile(lambda x: x * x))(3.0)

    def test_arguments_and_results_that_are_not_numbers(self):
        with pytest.raises(TypeError, match="`argument 0` must be a real number, got str 'a'"):
            grad(lambda x: x)("a")
        with pytest.raises(TypeError, match="`<lambda>` returned NoneType None: return a number, or lists"):
            grad(lambda x: None)(1.0)

    def test_tangents_of_another_structure(self):
        with pytest.raises(
            ValueError, match=r"structure of `primals`: `primals`\[0\] is a list of 2, here a list of 1"
        ):
            jvp(lambda x: x[0], ([1.0, 2.0],), ([1.0],))
        with pytest.raises(TypeError, match="`primals` must be a tuple with an entry for each argument, got float"):
            jvp(lambda x: x, 1.0, 1.0)
        with pytest.raises(ValueError, match="structure of the result: the result is a number, here a list of 1"):
            vjp(lambda x: x, 1.0)[1]([1.0])

    def test_grad_of_things_that_are_no_values(self):
        with pytest.raises(TypeError, match="`output` must be a Value, got float"):
            grad_of(3.0, Value(1.0))
        with pytest.raises(TypeError, match="`inputs` must be Values, got int"):
            grad_of(Value(3.0), [1])


def test_the_names_are_public():
    assert all(getattr(chainrule, name) is getattr(transforms, name) for name in transforms.__all__)


class TestAux:
    """With `has_aux` a function returns a second thing, which the transforms hand on: as in JAX."""

    @staticmethod
    def f(x):
        return x[0] ** 2 * x[1], {"sum": x[0] + x[1], "name": "f", "rows": [x[0], 7]}

    def test_gradients(self):
        aux = {"sum": 8.0, "name": "f", "rows": [3.0, 7]}
        assert grad(self.f, has_aux=True)([3.0, 5.0]) == ([30.0, 9.0], aux)
        assert value_and_grad(self.f, has_aux=True)([3.0, 5.0]) == ((45.0, aux), [30.0, 9.0])
        assert hessian(self.f, has_aux=True)([3.0, 5.0]) == ([[10.0, 6.0], [6.0, 0.0]], aux)
        assert jacobian(lambda x: ([x, x * x], x), has_aux=True)(3.0) == ([1.0, 6.0], 3.0)

    def test_directions(self):
        aux = {"sum": 8.0, "name": "f", "rows": [3.0, 7]}
        assert jvp(self.f, ([3.0, 5.0],), ([1.0, 0.0],), has_aux=True) == (45.0, 30.0, aux)
        value, pull, found = vjp(self.f, [3.0, 5.0], has_aux=True)
        assert (value, pull(1.0), found) == (45.0, ([30.0, 9.0],), aux)

    def test_the_same_as_jax(self, jax):
        def f(x):
            return x[0] ** 2 * x[1], x[0] + x[1]

        x = jax.numpy.array([3.0, 5.0])
        ours, aux = grad(f, has_aux=True)([3.0, 5.0])
        theirs, their_aux = jax.grad(f, has_aux=True)(x)
        assert (ours, aux) == (theirs.tolist(), float(their_aux))
        (value, aux), gradient = value_and_grad(f, has_aux=True)([3.0, 5.0])
        (their_value, their_aux), theirs = jax.value_and_grad(f, has_aux=True)(x)
        assert (value, aux, gradient) == (float(their_value), float(their_aux), theirs.tolist())

    def test_arrays_and_other_things(self):
        def f(x):
            return (x * x).sum(), (2.0 * x, np.array([1, 2]), None)

        gradient, (doubled, counts, nothing) = grad(f, has_aux=True)(np.array([1.0, 2.0]))
        assert (gradient.dtype, gradient.tolist(), nothing) == (np.float64, [2.0, 4.0], None)
        assert doubled.tolist() == [2.0, 4.0]
        assert counts.tolist() == [1, 2]

    def test_values_keep_their_history(self):
        w = Value(2.0)
        gradient, aux = grad(lambda x: (w * x * x, w * x), has_aux=True)(3.0)
        aux.backward()
        assert (gradient.data, aux.data, w.grad) == (12.0, 6.0, 3.0)
        _, aux = grad(lambda x: (x * x, w * x), has_aux=True)(3.0)  # which a number would lose
        w.grad = 0.0
        aux.backward()
        assert w.grad == 3.0

    def test_compiled(self):
        assert compile(grad(lambda x: (x**3, 2.0 * x), has_aux=True))(2.0) == (12.0, 4.0)

    def test_a_function_that_returns_no_pair(self):
        with pytest.raises(TypeError, match="`<lambda>` returned Value, and with `has_aux` it must return a pair"):
            grad(lambda x: x * x, has_aux=True)(2.0)


class TestElementwise:
    def test_every_number_of_an_array(self, jax):
        x = np.linspace(-2.0, 2.0, 12).reshape(3, 4)
        found = elementwise_grad(lambda x: chainrule.tanh(x) * x)(x)
        theirs = jax.vmap(jax.vmap(jax.grad(lambda x: jax.numpy.tanh(x) * x)))(x)
        assert found.shape == (3, 4)
        assert found.dtype == np.float64
        assert np.allclose(found, theirs, rtol=1e-14)

    def test_lists_numbers_and_other_arguments(self):
        f = elementwise_grad(lambda x, y: x * x * y)
        assert f([1.0, 2.0], [10.0, 20.0]) == [20.0, 80.0]
        assert f([1.0, 2.0], 10.0) == [20.0, 40.0]
        assert f(1.0, [10.0, 20.0]) == [20.0, 40.0]
        assert f(3.0, 10.0) == 60.0
        assert elementwise_grad(lambda x, y: x * x * y, argnums=1)([1.0, 2.0], 0.0) == [1.0, 4.0]
        assert elementwise_grad(lambda x: x * x)([]) == []

    def test_again(self):
        assert elementwise_grad(grad(lambda x: x**4))([1.0, 2.0]) == [12.0, 48.0]
        assert elementwise_grad(elementwise_grad(lambda x: x**4))([1.0, 2.0]) == [12.0, 48.0]
        assert compile(elementwise_grad(lambda x: x**3))([1.0, 2.0]) == [3.0, 12.0]

    def test_values(self):
        w = Value(2.0)
        sum(elementwise_grad(lambda x: w * x * x)(np.array([1.0, 3.0]))).backward()
        assert w.grad == 8.0

    def test_arguments_that_are_arranged_in_two_ways(self):
        with pytest.raises(ValueError, match="arranged in one way: an argument was a list of 2 and is a list of 1"):
            elementwise_grad(lambda x, y: x * y)([1.0, 2.0], [1.0])


class TestMapping:
    def test_the_same_as_jax(self, jax):
        rng = np.random.default_rng(0)
        w, x = rng.normal(size=3), rng.normal(size=(5, 3))

        def loss(w, x):
            return ((w * x).sum() - 1.0) ** 2

        ours = vmap(grad(loss), in_axes=(None, 0))(w, x)
        theirs = jax.vmap(jax.grad(loss), in_axes=(None, 0))(w, x)
        assert ours.shape == (5, 3)
        assert np.allclose(ours, theirs, rtol=1e-12)

    def test_the_same_as_a_batch_of_a_compiled_function(self):
        def f(x, y):
            return {"product": x[0] * y, "both": [x[1], y]}

        x, y = [[1.0, 2.0], [3.0, 4.0]], np.array([5.0, 6.0])
        ours, theirs = vmap(f)(x, y), compile(f).batch(x, y, reduce=None)
        assert ours["product"].tolist() == theirs["product"].tolist() == [5.0, 18.0]
        assert [a.tolist() for a in ours["both"]] == [a.tolist() for a in theirs["both"]]

    def test_arrays_in_results_get_a_leading_axis_the_empty_ones_too(self):
        def f(x):
            return (x[0], np.stack([x, 2.0 * x]), {"none": np.zeros((0, 3))}, x[1:])

        x = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        for first, pairs, rest, last in (vmap(f)(x), compile(f).batch(x, reduce=None)):
            assert first.tolist() == [1.0, 4.0]
            assert pairs.tolist() == np.stack([x, 2.0 * x], axis=1).tolist()
            assert rest["none"].shape == (2, 0, 3)
            assert last.tolist() == x[:, 1:].tolist()

    def test_values_and_nested_maps(self):
        w = Value(2.0)
        vmap(lambda x: w * x)([1.0, 3.0]).sum().backward()
        assert w.grad == 4.0
        assert vmap(vmap(lambda x: x * x))([[1.0, 2.0], [3.0, 4.0]]).tolist() == [[1.0, 4.0], [9.0, 16.0]]
        assert grad(lambda x: vmap(lambda e: e * e)(x).sum())([1.0, 2.0]) == [2.0, 4.0]
        assert compile(vmap(lambda x: x * x))([1.0, 2.0]).tolist() == [1.0, 4.0]

    def test_mistakes(self):
        with pytest.raises(ValueError, match="the same number of examples, at least one; they have 2, 1"):
            vmap(lambda x, y: x * y)([1.0, 2.0], [1.0])
        with pytest.raises(ValueError, match="at least one; they have 0"):
            vmap(lambda x: x)([])
        with pytest.raises(TypeError, match="an example in each entry, got float: say None in `in_axes`"):
            vmap(lambda x, y: x * y)([1.0, 2.0], 3.0)
        with pytest.raises(ValueError, match="`in_axes` must be 0 or None, or have one of these for each of 1 argum"):
            vmap(lambda x: x, in_axes=1)([1.0])
        with pytest.raises(ValueError, match="for example 1 the result was a list of 1 and is a list of 2"):
            vmap(lambda x: [x] * int(x))([1.0, 2.0])


class TestOneNumberInAnArray:
    """HIPS/autograd and PyTorch take a gradient of an array that holds one number; so do we."""

    @pytest.mark.parametrize("shape", [(1,), (1, 1)])
    def test_gradients(self, shape):
        def f(x):
            return np.reshape(x * x, shape)

        value, gradient = value_and_grad(f)(np.array([3.0]))
        assert (value.shape, value.tolist(), gradient.tolist()) == (shape, np.full(shape, 9.0).tolist(), [6.0])
        assert grad(f)(3.0) == 6.0
        assert hessian(f)(3.0) == 2.0

    def test_matrix_products(self):
        x = np.array([[1.0], [2.0]])
        assert grad(lambda x: x.T @ x)(x).tolist() == [[2.0], [4.0]]

    def test_compiled_functions_and_gradcheck(self):
        w = Value(3.0)
        program = compile(lambda x: np.array([w * x]))
        assert program(2.0).tolist() == [6.0]
        assert w.grad == 2.0
        assert program.value_and_grad(2.0)[1].tolist() == [2.0]
        assert program.batch([1.0, 3.0]) == 6.0
        assert chainrule.gradcheck(lambda x: np.array([x * x]), 3.0)

    def test_two_numbers_are_refused(self):
        with pytest.raises(
            TypeError, match="returned an array of shape \\(2,\\), and a gradient is that of one number"
        ):
            grad(lambda x: x * 1.0)(np.array([1.0, 2.0]))


# `==` under transforms: what a function returns for plain numbers is what is differentiated.

captured = chainrule.Value(2.0)


@pytest.mark.parametrize(
    ("function", "gradients"),
    [
        (lambda x: 0.0 * x if x == 2.0 else x * x, {(2.0,): (0.0,), (3.0,): (6.0,)}),
        (lambda x: x * x if x != 2 else 5.0 * x, {(2.0,): (5.0,), (3.0,): (6.0,)}),
        (lambda x, y: 0.0 * x if x == y else x * y, {(2.0, 2.0): (0.0, 0.0), (2.0, 3.0): (3.0, 2.0)}),
        (lambda x, y: x * y if x * 1.0 != y + 0.0 else x, {(2.0, 2.0): (1.0, 0.0), (2.0, 3.0): (3.0, 2.0)}),
        (lambda x: x if x != x else x * x, {(2.0,): (4.0,)}),
        (
            lambda x, y: x * [4.0, 2.0, y].index(x),
            {(2.0, 5.0): (1.0, 0.0), (5.0, 5.0): (2.0, 0.0), (4.0, 5.0): (0.0, 0.0)},
        ),
        (
            lambda x, y: x * y if x in [1.0, y] else x,
            {(2.0, 2.0): (2.0, 2.0), (1.0, 2.0): (2.0, 1.0), (3.0, 2.0): (1.0, 0.0)},
        ),
        (lambda x: 3.0 * x if x == captured else x * x, {(2.0,): (3.0,), (3.0,): (6.0,)}),
        # Two Values in the plain call too, where they are compared by identity.
        (lambda x: 3.0 * x if x * captured == captured else x * x, {(1.0,): (2.0,), (3.0,): (6.0,)}),
        (lambda x: 3.0 * x if captured == captured * 1.0 else x * x, {(1.0,): (2.0,)}),
    ],
)
def test_equality_under_transforms_is_that_of_plain_numbers(function, gradients):
    for point, expected in gradients.items():
        plain = function(*point)
        value, gradient = chainrule.value_and_grad(function, tuple(range(len(point))))(*point)
        assert [value, chainrule.jvp(function, point, point)[0]] == [plain] * 2
        assert gradient == expected


def test_equality_in_nested_transforms_sees_numbers_at_every_level():
    def inner(x):
        return chainrule.grad(lambda y: x * y * y if x == y else y)(x)

    assert inner(3.0) == 18.0
    assert chainrule.value_and_grad(inner)(3.0) == (18.0, 12.0)


def test_equality_is_identity_again_after_a_transform_even_a_failed_one():
    def failing(x):
        raise KeyError

    with pytest.raises(KeyError):
        chainrule.grad(failing)(1.0)
    a, b = chainrule.Value(1.0), chainrule.Value(1.0)
    assert a != b
    assert [a, b].index(b) == 1


def test_equality_in_another_thread_stays_identity():
    answers = []

    def meanwhile(x):
        thread = threading.Thread(target=lambda: answers.append(chainrule.Value(1.0) == chainrule.Value(1.0)))
        thread.start()
        thread.join()
        return x * x

    assert chainrule.grad(meanwhile)(3.0) == 6.0
    assert answers == [False]


def test_values_that_are_given_are_compared_as_a_plain_call_compares_them():
    a, b = chainrule.Value(2.0), chainrule.Value(2.0)

    def function(x, y):
        return x * y if x == y else x

    assert chainrule.value_and_grad(function)(a, b)[0].data == function(a, b).data == 2.0


class TestDeepCopies:
    """A number is not copied, as no float is, so the gradient goes on through copies of lists and arrays."""

    @staticmethod
    def eliminated(rows):
        rows = copy.deepcopy(rows)  # to work in place
        for k in range(len(rows)):
            for i in range(k + 1, len(rows)):
                rows[i] = [a - rows[i][k] / rows[k][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
            rows = copy.deepcopy(rows)
        return math.prod(rows[k][k] for k in range(len(rows)))

    ROWS = ([2.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.25, -1.0, 4.0])

    def check(self, found):
        value, gradient = found
        given = torch.tensor(self.ROWS, dtype=torch.float64, requires_grad=True)
        determinant = torch.linalg.det(given)
        determinant.backward()
        assert value == pytest.approx(determinant.item(), rel=1e-12)
        np.testing.assert_allclose(gradient, given.grad, rtol=1e-12)

    def test_pass_gradients(self):
        self.check(value_and_grad(self.eliminated)([*map(list, self.ROWS)]))

    def test_pass_gradients_in_compiled_functions(self):
        self.check(compile(self.eliminated).value_and_grad([*map(list, self.ROWS)], argnums=0))
        self.check(compile(value_and_grad(self.eliminated))([*map(list, self.ROWS)]))

    def test_pass_gradients_of_any_order(self):
        def cube(x):
            x = copy.deepcopy([x])[0]
            return copy.deepcopy((x * x,))[0] * x

        assert grad(cube)(2.0) == 12.0
        assert grad(grad(cube))(2.0) == 12.0
        assert hessian(cube)(2.0) == 12.0

    def test_copy_the_graph_of_what_depends_on_a_value_alone(self):
        w = Value(3.0)

        def product(x):
            (copied,) = copy.deepcopy([w * x])
            copied.backward()
            return copied

        (gradient,) = grad(product, argnums=(0,))(2.0)
        assert (float(gradient.data), w.grad) == (3.0, 0.0)

    def test_are_other_graphs_outside_of_transforms(self):
        x = Value(2.0)
        grad(lambda y: copy.deepcopy(y) * 2.0)(1.0)
        twin, result = copy.deepcopy((x, x * x))
        result.backward()
        assert (twin.grad, x.grad) == (4.0, 0.0)
