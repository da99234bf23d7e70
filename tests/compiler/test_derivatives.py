"""Derivatives in traced functions: arrays are differentiated, and the numbers are those of the eager transforms."""

import math
import random
from collections import OrderedDict, namedtuple
from itertools import pairwise

import numpy as np
import pytest

import chainrule
import torture_engines
from c_compiler import Compiled
from chainrule import (
    Value,
    compile,
    detach,
    elementwise_grad,
    grad,
    grad_of,
    hessian,
    hvp,
    jacobian,
    jvp,
    nn,
    optim,
    tanh,
    value_and_grad,
    vjp,
    vmap,
)
from chainrule.compiler.passes import stages
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.layout import lay_out
from chainrule.compiler.run import traced
from chainrule.core.structure import flatten
from torture_families import FAMILIES

Pair = namedtuple("Pair", "a b")


def taken_apart(thing):
    """The structure of a result, and the numbers in it."""
    numbers = []
    structure = flatten(thing, numbers, lambda leaf: leaf.data if isinstance(leaf, Value) else float(leaf))
    return structure, np.array(numbers)


def assert_same(found, expected, tolerance=1e-12):
    """Equal structures of numbers that are close."""
    (structure, ours), (wanted, theirs) = taken_apart(found), taken_apart(expected)
    assert structure == wanted
    assert ours == pytest.approx(theirs, rel=tolerance, abs=tolerance)


def program_of(compiled):
    """The array program that the last call ran, after a look at every stage of it; None if it ran node by node."""
    code = compiled._last_run[1]
    if not hasattr(code, "forward"):
        return None
    code.whole.verify()
    code.laid_out.verify()
    return code.whole


def network(layers, xs, ys):
    """The mean of a loss over examples, by weights and biases in nested lists."""
    total = 0.0
    for x, y in zip(xs, ys, strict=True):
        for k, layer in enumerate(layers):
            sums = [sum(w * v for w, v in zip(row, x, strict=True)) + b for *row, b in layer]
            x = [tanh(v) for v in sums] if k < len(layers) - 1 else sums
        total = total + chainrule.relu(1.0 - y * x[0])
    return total / len(xs)


def layers_of(sizes, rng):
    return [[[rng.gauss(0, 0.6) for _ in range(n + 1)] for _ in range(m)] for n, m in pairwise(sizes)]


RNG = random.Random(1)
POINTS = [[RNG.uniform(-1, 1), RNG.uniform(-1, 1)] for _ in range(12)]
SIGNS = [RNG.choice([-1.0, 1.0]) for _ in POINTS]
LAYERS = layers_of([2, 5, 3, 1], RNG)
STATE = [0.3, -0.2, 0.5]


def recurrence(state, weight):
    total = 0.0
    for _ in range(20):
        state = [tanh(weight[0] * a + weight[1] * b + 0.1) for a, b in zip(state, state[1:] + state[:1], strict=True)]
        total = total + state[0] * state[1]
    return total


FUNCTIONS = {
    "network": (lambda layers: network(layers, POINTS, SIGNS), (LAYERS,)),
    "recurrence": (recurrence, (STATE, [0.7, -0.4])),
    "softmax": (lambda z: -chainrule.log(chainrule.softmax(z)[1]) + chainrule.logsumexp(z), ([0.1, 0.2, -4.0, 1.0],)),
    "where": (lambda z: sum(chainrule.where(v > 0, v * v * v, -v) for v in z), ([0.1, -0.2, 0.3, -4.0],)),
    "maximum": (lambda z: chainrule.maximum(z[0], z[1]) * z[2] + chainrule.relu(z[3]), ([0.1, -0.2, 0.3, 4.0],)),
    "powers": (lambda z: sum(v**k for k, v in enumerate(z)) + z[1] ** z[0], ([1.5, 0.5, 2.0, 0.7],)),
    "growing sums": (lambda z: math.prod([tanh(sum(z[:k])) for k in range(1, 7)]), ([0.3, 0.2, 0.5, 0.1, 0.4, 0.6],)),
    "scalars": (lambda a, b: a * chainrule.sin(a * b), (1.5, 0.4)),
    "dicts": (lambda m, x: m["w"] * x + m["b"] ** 2, ({"w": 2.0, "b": 1.0}, 3.0)),
    "mixed": (lambda m: m[0]["a"][1] * m[1].a * m[1].b + m[0]["a"][0], ([{"a": [1.0, 2.0]}, Pair(3.0, 4.0)],)),
    "ordered dict": (lambda m: m["q"] * m["r"], (OrderedDict(q=1.0, r=2.0),)),
    "array": (lambda m: (m * m).sum() * m[0, 1], (np.arange(6.0).reshape(2, 3) + 1.0,)),
    "an array of one": (lambda m: np.array([m[0] * m[1]]), ([1.5, 2.0],)),
    "whole numbers": (lambda m: m[0] ** 3, ([2, 3],)),
    "empty list": (lambda b, a: b * b, (2.0, [])),
    "unused": (lambda b, a: b * b * b, (2.0, [1.0, 2.0])),
    "the same twice": (lambda a, b: a[0] * b[0] + a[0] * a[0] + b[0] * b[0] * a[0], ([1.5], [1.5])),
    "itself": (lambda a: a, (2.0,)),
    "one of many": (lambda a: a[1], ([1.0, 2.0],)),
    "a constant": (lambda a, b: 3.0, ([1.0, 2.0], 2.0)),
}


def along(function):
    """Its derivative, and that of its gradient, in the direction of the arguments themselves."""
    return lambda *x: (jvp(function, x, x), hvp(function, x, x))


TRANSFORMS = {
    "grad": grad,
    "value_and_grad": value_and_grad,
    "all arguments": lambda f: lambda *x: value_and_grad(f, range(len(x)))(*x),
    "jacobian": jacobian,
    "hessian": hessian,
    "along": along,
    "vjp": lambda f: lambda *x: vjp(f, *x)[1](1.5 if not isinstance(f(*x), np.ndarray) else np.array([1.5])),
    "the gradient's size": lambda f: lambda *x: sum(v * v for v in numbers_in(grad(f)(*x))),
    "the gradient of that": lambda f: grad(lambda *x: sum(v * v for v in numbers_in(grad(f)(*x)))),
}


def numbers_in(thing):
    numbers = []
    flatten(thing, numbers, lambda leaf: leaf)
    return numbers


def assert_equals_eager(transform, name, backend):
    function, arguments = FUNCTIONS[name]
    derivative = TRANSFORMS[transform](function)
    compiled = compile(derivative, backend=backend)
    assert_same(compiled(*arguments), derivative(*arguments))
    assert program_of(compiled) is not None


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_every_transform_of_every_function(transform):
    for name in FUNCTIONS:
        assert_equals_eager(transform, name, "interpreter")


@pytest.mark.parametrize("name", ["network", "recurrence", "growing sums", "array"])
@pytest.mark.parametrize("transform", ["all arguments", "hessian", "along"])
def test_native_code(transform, name):
    assert_equals_eager(transform, name, "llvm")


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_the_way_that_is_always_open(transform, monkeypatch):
    """Derivatives as nodes: where there are no arrays to differentiate."""

    def refused(*_):
        raise stages.NotStagedError("as if")

    monkeypatch.setattr(traced, "lift_in_stages", refused)
    for function, arguments in FUNCTIONS.values():
        derivative = TRANSFORMS[transform](function)
        assert_same(compile(derivative, backend="interpreter")(*arguments), derivative(*arguments))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_strict_programs_are_eager_to_the_last_bit(transform):
    for name in ("network", "recurrence", "softmax", "array"):
        function, arguments = FUNCTIONS[name]
        derivative = TRANSFORMS[transform](function)
        found, expected = compile(derivative, strict=True)(*arguments), derivative(*arguments)
        assert taken_apart(found)[1].tolist() == taken_apart(expected)[1].tolist()


def test_a_gradient_has_the_statements_of_the_loss_and_its_gradient():
    function, (layers,) = FUNCTIONS["network"]
    values = [[[Value(w) for w in row] for row in layer] for layer in layers]
    loss = compile(function(values), [w for layer in values for row in layer for w in row])
    compiled = compile(value_and_grad(function))
    compiled(layers)
    assert compiled.stats["array statements"] <= loss.stats["array statements"] + 3  # the seed, and two for the results
    assert compiled.stats["scalar nodes"] < 2 * loss.stats["scalar nodes"]


def test_the_program_of_a_product_with_a_hessian():
    compiled = compile(lambda x, v: hvp(lambda x: sum(a * a * a for a in x), (x,), (v,)))
    assert compiled([1.0, 2.0, 3.0], [1.0, 0.0, 1.0]) == [6.0, 0.0, 18.0]
    assert "\ni<3: tdv1[i] = " in compiled.describe()
    assert "v[i]" in compiled.describe()


class TestRandomPrograms:
    """Of the torture's families, by all their numbers."""

    @pytest.mark.parametrize("family", FAMILIES)
    def test_gradients_and_products_with_hessians(self, family):
        for seed in range(3):
            program = torture_engines.random_program(family, f"derivatives {seed}")
            eager = torture_engines.Eager(program, 0)
            if not eager.is_tame or len(eager.nodes) > 1500:
                continue

            def function(parameters, data, program=program):
                return torture_engines.written_on(program, parameters, data)

            given = [eager.of(kind, eager.numbers) for kind in ("parameter", "datum")]
            tolerance = 100 * eager.tolerance
            for derivative in (value_and_grad(function, (0, 1)), along(function)):
                compiled = compile(derivative, backend="interpreter")
                found, expected = taken_apart(compiled(*given))[1], taken_apart(derivative(*given))[1]
                assert program_of(compiled) is not None
                close = np.abs(found - expected) <= tolerance * max(1.0, np.abs(expected).max())
                assert close.all() or any(map(torture_engines.is_at_a_corner, eager.nodes))


class TestSecondDerivatives:
    """Against oracles that are not ours."""

    def test_pytorch(self):
        torch = pytest.importorskip("torch")
        inputs, targets = torch.tensor(POINTS, dtype=torch.float64), torch.tensor(SIGNS, dtype=torch.float64)

        def theirs(flat):
            start, x = 0, inputs
            for k, layer in enumerate(LAYERS):
                rows, width = len(layer), len(layer[0])
                matrix = flat[start : start + rows * width].reshape(rows, width)
                x, start = x @ matrix[:, :-1].T + matrix[:, -1], start + rows * width
                x = torch.tanh(x) if k < len(LAYERS) - 1 else x
            return torch.relu(1.0 - targets * x[:, 0]).mean()

        flat = taken_apart(LAYERS)[1]
        direction = np.cos(np.arange(len(flat)))
        at = torch.tensor(flat, requires_grad=True)

        def ours(flat):
            supply = iter(flat)
            return network([[[next(supply) for _ in row] for row in layer] for layer in LAYERS], POINTS, SIGNS)

        wanted = torch.autograd.functional.hessian(theirs, at).numpy()
        whole = compile(hessian(ours))
        assert whole(flat) == pytest.approx(wanted, abs=1e-14)
        assert whole.stats["array statements"] < 60
        product = compile(lambda x, v: hvp(ours, (x,), (v,)))
        assert product(flat, direction) == pytest.approx(wanted @ direction, abs=1e-14)

    def test_finite_differences_in_time(self):
        gradient = compile(grad(recurrence, (0, 1)))
        weight, step = [0.7, -0.4], 1e-6
        product = compile(lambda s, w, v: hvp(recurrence, (s, w), ([0.0] * 3, v)))
        moved = [taken_apart(gradient(STATE, [weight[0] + d, weight[1] - 2 * d]))[1] for d in (step, -step)]
        found = taken_apart(product(STATE, weight, [1.0, -2.0]))[1]
        assert found == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-7)
        assert "repeat" in str(program_of(product))


class TestWhereDerivativesGoOn:
    """Functions that compute with derivatives."""

    def test_at_many_points_they_are_one_sweep(self):
        model = nn.MLP(1, [6, 1], activation="tanh", rng=1)
        points = [k / 20 for k in range(20)]

        def residual(x):
            return grad(lambda y: model([y]))(x) + model([x]) - x

        def loss(xs):
            return sum(residual(x) ** 2 for x in xs) / len(xs)

        compiled = compile(loss, model.parameters())
        value, gradient = compiled.value_and_grad(points)
        expected = loss([Value(x) for x in points])
        expected.backward()
        assert value == pytest.approx(expected.data, rel=1e-12)
        assert gradient == pytest.approx([p.grad for p in model.parameters()], rel=1e-10, abs=1e-12)
        few = len(program_of(compiled).statements)
        compiled.value_and_grad(points[:5])
        assert len(program_of(compiled).statements) == few
        before = compiled(points)
        compiled.train(optim.SGD(model.parameters(), lr=0.05), [points] * 20)
        assert compiled(points) < before

    def test_in_each_step_of_a_loop(self):
        """What is differentiated there needs no derivatives, so the loop is found, and its inputs are in it."""

        def function(x, w):
            total = 0.0
            for _ in range(30):
                x = tanh(w * x + 0.1)
                total = total + grad(lambda y: chainrule.sin(y) * w)(x)
            return total

        compiled = compile(value_and_grad(function, (0, 1)))
        assert_same(compiled(0.3, 0.9), value_and_grad(function, (0, 1))(0.3, 0.9))
        assert "repeat" in str(program_of(compiled))
        assert len(program_of(compiled).statements) < 50

    def test_elementwise_derivatives(self):
        function = elementwise_grad(lambda x: chainrule.sin(x) * x)
        compiled, xs = compile(function), np.linspace(-2.0, 2.0, 50)
        assert compiled(xs) == pytest.approx(np.sin(xs) + xs * np.cos(xs), abs=1e-14)
        assert compiled.stats["array statements"] < 10

    def test_a_few_steps_of_newton(self):
        def root(a, steps=3):
            x = a
            for _ in range(steps):
                x = x - (x * x - a) / grad(lambda y: y * y - a)(x)
            return x

        assert_same(compile(root)(2.0), root(2.0))
        many = compile(lambda a: root(a, 40))  # more derivatives of derivatives than are worth a stage each
        assert many(2.0) == pytest.approx(math.sqrt(2.0))
        assert_same(compile(grad(root))(2.0), grad(root)(2.0))

    def test_sweeps_that_meet(self):
        def function(x):
            y, pull = vjp(lambda z: [z[0] * z[1], tanh(z[0]), z[1] ** 3], x)
            return y, [pull([1.0, v, 0.5]) for v in x], grad(lambda z: z[0] * z[1] ** 2)(x)

        compiled = compile(function)
        assert_same(compiled([0.3, 0.7]), function([0.3, 0.7]))
        assert program_of(compiled) is not None

    def test_a_direction_that_is_a_derivative(self):
        def function(x):
            return jvp(lambda z: [z[0] * z[1], z[1] ** 3], (x,), (grad(lambda z: z[0] ** 2 * z[1])(x),))

        assert_same(compile(function)([0.3, 0.7]), function([0.3, 0.7]))

    def test_derivatives_of_numbers_and_by_captured_values(self):
        w, unused = Value(2.0), Value(5.0)

        def function(x):
            slopes = grad_of(w * w * x, [w, unused], create_graph=True)
            return slopes[0] * grad(lambda y: y**3)(2.0) + slopes[1] + detach(slopes[0]) * x

        compiled = compile(function)
        assert compiled(3.0) == pytest.approx(function(Value(3.0)).data)
        expected = function(Value(3.0))
        w.grad = 0.0
        expected.backward()
        assert compiled.value_and_grad(3.0)[1][compiled.wrt.index(w)] == pytest.approx(w.grad)

    def test_by_a_number_in_the_middle(self):
        def function(x):
            middle = [a * 2.0 for a in x]
            return grad_of(sum(m * m * a for m, a in zip(middle, x, strict=True)), [middle, x])

        compiled = compile(function)
        (by_middle, by_x) = compiled([1.0, 2.0])
        assert (by_middle, by_x) == ([4.0, 16.0], [12.0, 48.0])

    def test_has_aux(self):
        function = grad(lambda x: (x[0] * x[1], {"inside": 3.0 * x[0], "text": 2.0}), has_aux=True)
        assert_same(compile(function)([2.0, 5.0]), function([2.0, 5.0]))


class TestEveryWayToRun:
    W = [Value(0.3), Value(-0.2)]  # noqa: RUF012

    @classmethod
    def loss(cls, x, y):
        for _ in range(12):
            x = [tanh(cls.W[0] * a + cls.W[1] * b + y) for a, b in zip(x, x[1:] + x[:1], strict=True)]
        return sum(v * v for v in x)

    DERIVATIVES = {  # noqa: RUF012
        "gradient": lambda x, y: grad(TestEveryWayToRun.loss, (0, 1))(x, y),
        "product": lambda x, y: hvp(lambda z: TestEveryWayToRun.loss(z, y), (x,), ([1.0, 0.5, -1.0],)),
        "Hessian": lambda x, y: hessian(TestEveryWayToRun.loss)(x, y),
        "one number": lambda x, y: grad(TestEveryWayToRun.loss, 1)(x, y),
    }
    X, Y = [0.1, 0.2, 0.3], 0.4

    @pytest.fixture(params=DERIVATIVES)
    def function(self, request):
        return self.DERIVATIVES[request.param]

    def test_float32(self, function):
        assert_same(compile(function, dtype="float32")(self.X, self.Y), function(self.X, self.Y), 2e-5)

    def test_a_batch_on_any_number_of_threads(self, function):
        rows, ys = [[a + 0.01 * k for a in self.X] for k in range(300)], [0.4 - 0.001 * k for k in range(300)]
        compiled = compile(function)
        found = compiled.batch(rows, ys, reduce=None)
        few = vmap(lambda x, y: vmap_numbers(function(x, y)))(rows[:4], ys[:4])
        assert np.array(numbers_in(found)).reshape(-1, 300)[:, :4] == pytest.approx(np.array(few), abs=1e-12)
        again = compiled.batch(rows, ys, reduce=None, threads=1)
        assert numbers_in(found) == numbers_in(again)

    def test_c(self, function, tmp_path):
        compiled = compile(function)
        exported = Compiled(compiled.to_c("derivative", self.X, self.Y), tmp_path)
        given = {"parameters": [w.data for w in self.W], "inputs": [*self.X, self.Y]}
        expected = taken_apart(function(self.X, self.Y))[1]
        assert exported("derivative", **given)["outputs"] == pytest.approx(expected, abs=1e-13)
        if "derivative_gradient" in exported.buffers:
            gradient = compiled.value_and_grad(self.X, self.Y)[1]
            assert exported("derivative_gradient", **given)["gradient"] == pytest.approx(gradient, abs=1e-12)

    def test_c_with_derivatives_that_are_read_in_part(self, tmp_path):
        def function(x):
            slopes = grad(lambda z: sum(v * v * v for v in z))(x)
            again = grad(lambda z: sum(slopes[k] * v * v for k, v in zip((3, 0, 4), z, strict=False)))(x)
            return [slopes[0] * slopes[1], again[0] * slopes[3] + again[2], slopes[4] * x[1]]

        x = [0.1, 0.2, 0.3, 0.4, 0.5]
        exported = Compiled(compile(function).to_c("derivative", x), tmp_path)
        assert exported("derivative", inputs=x)["outputs"] == pytest.approx(function(x), abs=1e-13)

    def test_jax(self, function):
        exported = compile(function).to_jax(self.X, self.Y)
        with pytest.importorskip("jax").enable_x64(True):
            found = exported(np.array([w.data for w in self.W]), np.array(self.X), self.Y)
        assert np.array(numbers_in(found)) == pytest.approx(taken_apart(function(self.X, self.Y))[1], abs=1e-13)
        for backend in ("jax", "xla"):
            assert_same(compile(function, backend=backend)(self.X, self.Y), function(self.X, self.Y))

    def test_the_gradient_of_a_derivative_by_captured_values(self):
        compiled = compile(self.DERIVATIVES["one number"])
        expected = self.DERIVATIVES["one number"](self.X, self.Y)
        for w in self.W:
            w.grad = 0.0
        expected.backward()
        wanted = [w.grad for w in self.W]
        assert compiled.value_and_grad(self.X, self.Y)[1] == pytest.approx(wanted, rel=1e-12)
        many = compiled.batch_value_and_grad([self.X] * 40, [self.Y] * 40)
        assert many[1] == pytest.approx(wanted, rel=1e-12)


def vmap_numbers(result):
    return [leaf.data if isinstance(leaf, Value) else leaf for leaf in numbers_in(result)]


class TestGradientsByArguments:
    def test_every_function(self):
        for function, arguments in FUNCTIONS.values():
            compiled = compile(function, backend="interpreter")
            for argnums in [0, -1, tuple(range(len(arguments)))]:
                found = compiled.value_and_grad(*arguments, argnums=argnums)
                assert_same(found, value_and_grad(function, argnums)(*arguments))

    def test_changes_no_value_and_is_traced_once(self):
        w, calls = Value(3.0), []

        @compile
        def function(x):
            calls.append(x)
            return w * w * x * x

        assert [function.value_and_grad(x, argnums=0) for x in (2.0, 5.0)] == [(36.0, 36.0), (225.0, 90.0)]
        assert function.value_and_grad(2.0, argnums=[0]) == (36.0, (36.0,))
        assert function.value_and_grad(2.0) == (36.0, [24.0])
        assert w.grad == 0.0
        assert len(calls) == 3  # for 0, for [0], and for the function itself

    def test_in_a_traced_function(self):
        inner = compile(lambda x: x**3)
        outer = compile(lambda x: inner.value_and_grad(x, argnums=0)[1] * 2.0)
        assert outer(2.0) == 24.0

    def test_what_ran_is_told_if_only_gradients_were_asked_for(self):
        compiled = compile(lambda x: x * x if x > 0.0 else x)
        assert compiled.value_and_grad(3.0, argnums=0) == (9.0, 6.0)
        assert repr(compiled) == "<CompiledFunction <lambda>: 1 structure traced, 1 path>"
        assert compiled.stats["conditions"] == 1
        assert "output[1] = " in compiled.describe()
        assert compiled(3.0) == 9.0
        assert "output[1] = " not in compiled.describe()

    def test_it_says_why_it_runs_node_by_node(self):
        compiled = compile(lambda x: x * x, strict=True)
        compiled.value_and_grad(3.0, argnums=0)
        said = "<CompiledFunction <lambda>: 1 structure traced; the last call ran node by node, as asked>"
        assert repr(compiled) == said
        assert compiled.describe().startswith("# node by node, as asked\n")

    @pytest.mark.skipif(chainrule.ENGINE != "native", reason="the engine in Python has no native code")
    def test_conditions_of_a_gradient_are_followed_in_native_code(self):
        def path(x):
            for _ in range(5):
                x = 0.9 * x if x > 0.5 else x + 0.3
            return x

        for derivative in (chainrule.grad(path), lambda x: chainrule.hvp(path, (x,), (1.0,))):
            compiled = compile(derivative)
            assert compiled(0.4) == derivative(0.4)
            (paths,) = compiled._traces.by_structure.values()
            assert not any(traced.guards._tape.in_python for traced in paths.known.paths)

    def test_mistakes(self):
        compiled = compile(lambda x: [x, x])
        with pytest.raises(TypeError, match="returned a list of 2, and a gradient is that of one number"):
            compiled.value_and_grad(1.0, argnums=0)
        with pytest.raises(ValueError, match=r"`argnums` must be places among the arguments, and 1 is none"):
            compiled.value_and_grad(1.0, argnums=1)
        squared = compile(lambda x: x * x)
        assert squared.value_and_grad(3.0, argnums=0) == (9.0, 6.0)
        with pytest.raises(ValueError, match=r"`argnums` must be places among the arguments, and 0\.0 is none"):
            squared.value_and_grad(3.0, argnums=0.0)


class TestPasses:
    def test_copies_and_what_nobody_reads_are_left_out(self):
        compiled = compile(grad(lambda x: sum(a * b for a, b in pairwise(x))))
        assert compiled([1.0, 2.0, 4.0]) == [2.0, 5.0, 2.0]
        text = compiled.describe()
        assert "given" not in text
        assert "\nv1[0] =" not in text  # the value itself

    def test_each_array_has_a_name_of_its_own(self):
        compiled = compile(
            lambda x: [grad(grad(recurrence))(x, [0.1, 0.2])[0], hvp(lambda z: tanh(z), (x[0],), (x[1],))]
        )
        with pytest.raises(TypeError, match="one number"):
            compiled(STATE)
        compiled = compile(lambda x: sum(grad(lambda z: sum(v * v for v in grad(recurrence)(z, [0.1, 0.2])))(x)))
        compiled(STATE)
        whole = differentiate(program_of(compiled))
        names = [array.name for array in whole.arrays()]
        assert len(set(names)) == len(names)
        lay_out(whole)[0].verify()


def equal_parts(x, copies=12):
    """Many nodes that are equal, to be told apart only by what becomes of them."""
    return [((x * 2.0).sin().exp().tanh() * x).cos() for _ in range(copies)]


def by_equal_nodes(x):
    parts = equal_parts(x)
    return chainrule.grad_of(sum(k * v * v for k, v in enumerate(parts, 1)), parts, create_graph=True)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "written",
    [
        by_equal_nodes,
        lambda x: [chainrule.grad(lambda v, k=k: sum(equal_parts(v)) * k)(x) for k in (1.0, 2.0, 3.0)],
        lambda x: chainrule.grad(lambda vs: sum(k * p for k, v in enumerate(vs) for p in equal_parts(v)))([x] * 4),
        lambda x: chainrule.jacobian(lambda v: [sum(equal_parts(v)), 2.0 * sum(equal_parts(v))])(x),
    ],
    ids=["by equal nodes", "of equal functions", "by equal arguments", "of equal results"],
)
def test_derivatives_by_one_of_several_equals(written, strict):
    found = compile(written, strict=strict)(0.3)
    assert_same(found, [v.data for v in written(Value(0.3))], 1e-11)
