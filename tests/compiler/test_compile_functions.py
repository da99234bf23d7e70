"""Compiled functions equal the functions, for any structure of arguments and any batch; what cannot be traced says so.

The oracle is the function itself, called on Values and followed by backward().
"""

import functools
import itertools
import math
import operator
import random
import re
import threading
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import chainrule
from chainrule import Value, losses, nn, ops
from chainrule.compiler import CompiledFunction, compile
from chainrule.compiler.passes import naming
from chainrule.compiler.passes.batch import batched
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Statement, Term
from chainrule.compiler.run import traced
from chainrule.compiler.trace.graph import graph_of
from chainrule.compiler.trace.symbols import Symbol
from chainrule.core.structure import NUMBER
from expressions import CONTINUOUS, programs, run, tame_numbers

BACKENDS = ["llvm", "interpreter"]
relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=15)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def close(number, tolerance=1e-12):
    return pytest.approx(number, rel=tolerance, abs=tolerance)


def gradients(values):
    found = [value.grad for value in values]
    for value in values:
        value.grad = 0.0
    return found


def assert_equals_eager(written, wrt, *inputs, backend="llvm"):
    """A call, and value_and_grad, against calling the function itself and backward()."""
    program = compile(written, wrt, backend=backend)
    gradients(wrt)
    value, gradient = program.value_and_grad(*inputs)
    assert gradients(wrt) == [0.0] * len(wrt)
    result = program(*inputs)
    accumulated = gradients(wrt)
    expected = written(*inputs)
    expected.backward()
    wanted = gradients(wrt)
    assert value == result == close(expected.data)
    assert gradient.tolist() == accumulated == close(wanted)
    return program


def assert_batch_equals_eager(program, written, wrt, *arrays):
    """All reductions against a loop of eager calls."""
    eager = [written(*example) for example in zip(*arrays, strict=True)]
    numbers = [result.data for result in eager]
    assert program.batch(*arrays, reduce=None) == close(np.array(numbers))
    for reduce, total in (("sum", sum(eager)), ("mean", sum(eager) / len(eager))):
        gradients(wrt)
        total.backward()
        wanted = gradients(wrt)
        value, gradient = program.batch_value_and_grad(*arrays, reduce=reduce)
        assert gradients(wrt) == [0.0] * len(wrt)
        assert program.batch(*arrays, reduce=reduce) == value == close(total.data)
        assert gradients(wrt) == gradient.tolist() == close(wanted, 1e-12)


class TestCalls:
    def test_a_call_is_a_forward_and_backward_pass(self, backend):
        w, b = Value(0.5), Value(-1.0)
        assert_equals_eager(lambda x: (w * x + b).tanh() ** 2, [w, b], 3.0, backend=backend)

    def test_gradients_accumulate(self):
        w = Value(3.0)
        program = compile(lambda x: w * x)
        assert [program(2.0), program(5.0)] == [6.0, 15.0]
        assert w.grad == 7.0

    def test_captured_values_are_read_at_each_call(self, backend):
        w, b = Value(3.0), Value(1.0)
        program = compile(lambda x: w * x + b, wrt=[w], backend=backend)
        assert program(2.0) == 7.0
        w.data, b.data = 10.0, 5.0
        assert program(2.0) == 25.0
        assert b.grad == 0.0

    def test_values_computed_outside_and_inside_are_traced_too(self, backend):
        w = Value(3.0)
        outside = w * w

        def written(x):
            inside = outside.exp() * 0.01 + w
            return inside * x

        assert_equals_eager(written, [w], 0.7, backend=backend)

    def test_wrt_chooses_and_orders_the_gradient(self):
        a, b, unused = Value(2.0), Value(3.0), Value(1.0)
        value, gradient = compile(lambda x: a * b * x, wrt=[b, unused, a]).value_and_grad(10.0)
        assert value == 60.0
        assert gradient.tolist() == [20.0, 0.0, 30.0]

    def test_without_wrt_it_is_all_captured_leaves_in_order_of_creation(self):
        first, second = Value(2.0), Value(3.0)
        program = compile(lambda x: second * x + first)
        assert program.value_and_grad(5.0)[1].tolist() == [1.0, 5.0]
        assert program.wrt == [first, second]

    def test_nothing_to_differentiate_is_forward_only(self):
        w = Value(2.0)
        program = compile(lambda x: w * x, wrt=())
        assert program(3.0) == 6.0
        assert w.grad == 0.0
        assert program.value_and_grad(3.0)[1].shape == (0,)
        assert program.describe() == "v0[0] = captured[0]·x"

    def test_no_values_at_all(self, backend):
        assert compile(lambda x, y: x * x + y, backend=backend)(3, 0.5) == 9.5

    def test_no_arguments_at_all(self, backend):
        w = Value(3.0)
        assert compile(lambda: w * w, backend=backend)() == 9.0
        assert w.grad == 6.0

    def test_results_that_are_leaves(self, backend):
        first, second = Value(2.0), Value(3.0)
        program = compile(lambda x: second, wrt=[first, second], backend=backend)
        value, gradient = program.value_and_grad(1.0)
        assert (value, gradient.tolist()) == (3.0, [0.0, 1.0])
        assert compile(lambda x, y: y, backend=backend)(1.0, 7.0) == 7.0
        assert compile(lambda x: 4, backend=backend)(1.0) == 4.0

    @pytest.mark.parametrize("name", [row.name for row in ops.TABLE.values()])
    def test_every_op_as_a_function_and_as_a_method(self, name):
        row = ops.TABLE[name]
        points = [0.3 * low + 0.7 * high for low, high in row.domain]
        expected = close(row(*points))
        assert compile(lambda *xs: row(*xs))(*points) == expected
        assert compile(lambda x, *xs: getattr(x, name)(*xs))(*points) == expected
        leaves = [Value(point) for point in points]
        for k in range(row.arity):  # captured Values in all places but one
            operands = [Symbol if i == k else leaf for i, leaf in enumerate(leaves)]
            mixed = compile(lambda x, operands=operands: row(*[x if o is Symbol else o for o in operands]))
            assert mixed(points[k]) == expected

    def test_every_operator(self):
        w = Value(0.7)
        binary = [operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.pow]
        for operation in binary:
            for other in (w, 1.5, 2, np.float64(1.5)):
                number = other.data if other is w else other
                assert compile(lambda x, f=operation, o=other: f(x, o))(0.3) == close(operation(0.3, number))
                assert compile(lambda x, f=operation, o=other: f(o, x))(0.3) == close(operation(number, 0.3))
        for operation in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
            for other in (0.3, 0.7):
                assert compile(lambda x, f=operation, o=other: f(x, o) + 0.0)(0.3) == float(operation(0.3, other))
                assert compile(lambda x, f=operation, o=other: f(o, x) + 0.0)(0.3) == float(operation(other, 0.3))
        assert compile(lambda x: -x)(2.0) == -2.0
        assert compile(lambda x: +x)(2.0) == 2.0
        assert compile(lambda x: abs(x))(-2.0) == 2.0

    def test_sums_that_start_with_a_value(self):
        b = Value(1.0)
        assert compile(lambda xs: sum(xs, b))([1.0, 2.0]) == 4.0

    def test_a_choice(self):
        w = Value(3.0)
        program = compile(lambda x: chainrule.where(x > 0, w * x, -x) + (x > 1) * (x < 3) * 100.0)
        assert [program(x) for x in (2.0, -2.0, 4.0)] == [106.0, 2.0, 12.0]
        assert w.grad == 6.0

    def test_an_op_that_a_user_added_later(self):
        @chainrule.op(lambda out, x: 4.0 * x * x * x)
        def fourth_power_of(x):
            return x * x * x * x

        w = Value(2.0)
        assert compile(lambda x: fourth_power_of(w * x))(1.0) == 16.0
        assert w.grad == 32.0
        assert compile(lambda x: x.fourth_power_of())(2.0) == 16.0

    def test_a_compiled_function_inside_another(self):
        w = Value(2.0)
        inner = compile(lambda x: w * x)
        assert compile(lambda x: inner(x) + inner(x + 1.0))(3.0) == 14.0
        assert w.grad == 7.0

    def test_a_compiled_function_inside_another_follows_what_it_captures(self):
        w = Value(2.0)
        inner = compile(lambda x, pair: (w * x).tanh() + pair[0].exp() * pair[1])
        outer = compile(lambda x: inner(0.5, [0, w]) * x)
        for w.data in (2.0, -1.0):
            w.grad = 0.0
            expected = ((w * 0.5).tanh() + w) * 3.0
            expected.backward()
            wanted = gradients([w])
            assert outer(3.0) == close(expected.data)
            assert gradients([w]) == close(wanted)
        assert outer.wrt == [w]
        with pytest.raises(TypeError, match="`argument 1` must be a real number, got str"):
            compile(lambda x: inner(x, ["text"]))(1.0)

    def test_other_threads_are_not_disturbed_by_a_trace(self):
        seen = []

        def written(x):
            other = threading.Thread(target=lambda: seen.append(chainrule.maximum(1.0, Value(2.0)).data))
            other.start()
            other.join()
            return x

        call = ops.Op.__call__
        assert compile(written)(1.0) == 1.0
        assert seen == [2.0]
        assert ops.Op.__call__ is call


class TestDecorator:
    def test_plain(self):
        w = Value(2.0)

        @chainrule.compile
        def scaled(x):
            """Times w."""
            return w * x

        assert isinstance(scaled, CompiledFunction)
        assert scaled.__name__ == "scaled"
        assert scaled.__doc__ == "Times w."
        assert scaled(3.0) == 6.0

    def test_with_arguments(self):
        a, b = Value(2.0), Value(3.0)

        @chainrule.compile(wrt=[b], backend="interpreter")
        def product(x):
            return a * b * x

        assert product.value_and_grad(1.0)[1].tolist() == [2.0]

    def test_a_model_is_a_function(self):
        model = nn.MLP(2, [3, 1], rng=1)
        program = compile(model)
        assert program([0.1, 0.2]) == close(model([0.1, 0.2]).data)
        assert "MLP" in repr(program)

    def test_a_method(self):
        class Scale(nn.Module):
            def __init__(self, factor):
                self.factor = Value(factor)

            @chainrule.compile
            def scaled(self, x):
                return self.factor * x

        two, three = Scale(2.0), Scale(3.0)
        assert [two.scaled(1.0), three.scaled(1.0), two.scaled(5.0)] == [2.0, 3.0, 10.0]
        assert two.factor.grad == 6.0
        assert two.scaled is two.scaled
        assert isinstance(Scale.scaled, CompiledFunction)
        assert len(two.parameters()) == 1

    def test_wrong_arguments(self):
        with pytest.raises(TypeError, match=r"`target` must be a Value, got float.*or the function"):
            compile(3.0)
        with pytest.raises(TypeError, match="`target` must be a Value, got NoneType"):
            compile(None)
        with pytest.raises(
            ValueError, match="`backend` must be one of llvm, cuda, jax, xla, interpreter, auto; got 'gcc'"
        ):
            compile(lambda x: x, backend="gcc")
        with pytest.raises(TypeError, match="`wrt` must be Values, got float"):
            compile(lambda x: x, wrt=[1.0])
        with pytest.raises(TypeError, match=r"`wrt` must be Values, got one MLP: give .* model.parameters\(\)"):
            compile(lambda x: x, wrt=nn.MLP(2, [1]))
        with pytest.raises(ValueError, match=r"`wrt` must be leaves, and Value\(data=2.0, .* was computed"):
            compile(lambda x: x, wrt=[Value(1.0) * 2.0])


class TestStructures:
    def test_nested_lists_and_tuples(self, backend):
        w = Value(2.0)

        def written(pair, rows):
            a, (b,) = pair
            return w * a + b * sum(sum(row) for row in rows)

        assert_equals_eager(written, [w], (1.0, (2.0,)), [[1, 2.5], [], [True]], backend=backend)

    def test_numpy_arrays(self, backend):
        w = [Value(0.5), Value(-1.0), Value(2.0)]
        matrix = np.arange(6.0).reshape(2, 3)

        def written(x, scale):
            assert x.shape == (2, 3)
            return (x @ np.array(w) * scale).sum() + np.exp(x[0, 1]) * w[0]

        program = compile(written, w, backend=backend)
        value, gradient = program.value_and_grad(matrix, np.float64(2.0))
        expected = written(matrix, 2.0)
        expected.backward()
        assert value == close(expected.data)
        assert gradient.tolist() == close(gradients(w))
        assert program(matrix.astype(np.float32), np.array(2)) == value  # of any real type, and of no dimension

    def test_an_argument_that_is_not_used(self):
        assert compile(lambda x, unused, y: x - y)(1.0, [5.0, 6.0], 3.0) == -2.0

    def test_the_same_structure_is_traced_once(self):
        calls = []

        @compile
        def total(xs):
            calls.append(len(xs))
            return sum(xs)

        assert [total([1, 2]), total([3.5, 4]), total([1, 2, 3]), total([5, 6])] == [3.0, 7.5, 6.0, 11.0]
        assert calls == [2, 3]
        total((1, 2))
        total(np.array([1, 2]))
        assert calls == [2, 3, 2, 2]

    def test_each_structure_has_its_own_captured_values(self):
        ws = [Value(float(k)) for k in range(4)]
        program = compile(lambda xs: sum(w * x for w, x in zip(ws, xs, strict=False)))
        assert program.value_and_grad([1.0, 2.0])[1].tolist() == [1.0, 2.0]
        assert program.value_and_grad([1.0, 2.0, 3.0])[1].tolist() == [1.0, 2.0, 3.0]
        assert program.wrt == ws[:3]

    def test_a_recompiling_storm_warns_once(self):
        @compile
        def total(name, xs):
            return sum(xs)

        for n in range(1, traced.STORM + 1):
            total(0.0, [1.0] * n)
        message = r"`.*total` is being compiled over and over \(9 programs so far\): argument 1 was a list of 8 and"
        with pytest.warns(RuntimeWarning, match=message + " is a list of 9") as caught:
            total(0.0, [1.0] * 9)
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            total(0.0, [1.0] * 10)

    def test_a_storm_of_batch_sizes_names_two_that_differ(self):
        square = compile(lambda x: x * x, backend="interpreter")
        for n in range(1, traced.STORM):
            square.batch([1.0] * n)
        square.batch([1.0] * 9, reduce=None)
        with pytest.warns(RuntimeWarning, match="the batch was of 7 examples and is of 9 examples"):
            square.batch([1.0] * 9)

    def test_a_storm_of_argument_counts(self):
        total = compile(lambda *xs: sum(xs), backend="interpreter")
        for n in range(1, traced.STORM + 1):
            total(*[1.0] * n)
        with pytest.warns(RuntimeWarning, match="`<lambda>` is being .*: it had 8 arguments and has 9"):
            total(*[1.0] * 9)

    def test_a_storm_of_batch_sizes(self):
        program = compile(lambda x: x * x, backend="interpreter")
        for n in range(1, traced.STORM + 1):
            program.batch(np.ones(n))
        with pytest.warns(RuntimeWarning, match="the batch was of 8 examples and is of 9 examples"):
            program.batch(np.ones(9))

    def test_dicts(self, backend):
        program = compile(lambda model, x: {"y": model["w"] * x + model["b"], "parts": [model["w"]]}, backend=backend)
        assert program({"w": 2.0, "b": 1.0}, 3.0) == {"y": 7.0, "parts": [2.0]}
        assert "model.w" in program.describe()

    def test_a_storm_of_dicts(self):
        program = compile(lambda model: model[next(iter(model))], backend="interpreter")
        for n in range(traced.STORM):
            program({f"w{n}": 1.0})
        with pytest.warns(RuntimeWarning, match="argument 0 was a dict of 'w7' and is a dict of 'w8'"):
            program({"w8": 1.0})

    @pytest.mark.parametrize("given", ["text", None, {1}, 1j, Value(1.0), np.array(["a"])])
    def test_arguments_that_are_not_numbers(self, given):
        with pytest.raises(TypeError, match="`argument 1` must be a real number, got"):
            compile(lambda x, y: x)(1.0, [given])


class TestSeveralResults:
    def test_the_result_has_the_functions_structure(self, backend):
        w = Value(2.0)

        def written(x, y):
            return [x * w, (y, 3), [], [x + y + w, w * w, 0.5 * x], np.array([x, x * y])]

        program = compile(written, backend=backend)
        first, second, empty, third, array = program(3.0, 4.0)
        assert (first, second, empty, third) == (6.0, (4.0, 3.0), [], [9.0, 4.0, 1.5])
        assert isinstance(array, np.ndarray)
        assert array.dtype == np.float64
        assert array.tolist() == [3.0, 12.0]
        assert w.grad == 0.0

    def test_neighbours_are_stored_in_loops(self):
        program = compile(lambda xs: [x * x for x in xs])
        assert program([1.0, 2.0, 3.0]) == [1.0, 4.0, 9.0]
        assert program.describe() == "i<3: v0[i] = xs[i]·xs[i]\ni<3: output[i] = v0[i]"
        backwards = compile(lambda xs: [x * x for x in xs][::-1])
        assert backwards([1.0, 2.0, 3.0]) == [9.0, 4.0, 1.0]

    def test_results_that_are_also_parts_of_others(self, backend):
        def written(xs):
            products = [x * y for x, y in itertools.pairwise(xs)]
            partial = products[0] + products[1]
            return partial, partial + products[2], products

        assert compile(written, backend=backend)([1.0, 2.0, 3.0, 4.0]) == (8.0, 20.0, [2.0, 6.0, 12.0])

    def test_no_gradient(self):
        w = Value(2.0)
        program = compile(lambda x: [x * w])
        message = r"returns 1 number in a structure, and a gradient is that of one number: return one, or call"
        with pytest.raises(TypeError, match=message):
            program.value_and_grad(1.0)
        with pytest.raises(TypeError, match=message):
            program.batch([1.0])

    def test_a_batch_of_them(self, backend):
        w = Value(2.0)
        program = compile(lambda x, y: [x * w, (w, [y])], backend=backend)
        first, (second, (third,)) = program.batch([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], reduce=None)
        assert first.tolist() == [2.0, 4.0, 6.0]
        assert second.tolist() == [2.0, 2.0, 2.0]
        assert third.tolist() == [4.0, 5.0, 6.0]
        array = compile(lambda x: x[:, None] * x, backend=backend).batch(np.arange(4.0).reshape(2, 2), reduce=None)
        assert array.tolist() == [[[0, 0], [0, 1]], [[4, 6], [6, 9]]]

    @pytest.mark.parametrize(("result", "what"), [(None, "NoneType None"), ("a", "str 'a'"), ({1}, "set")])
    def test_results_that_are_not_numbers(self, result, what):
        with pytest.raises(TypeError, match=f"returned {what}.*: return a number, or lists, tuples, dicts or arrays"):
            compile(lambda x: result)(1.0)
        with pytest.raises(TypeError, match="returned no numbers"):
            compile(lambda x: [[], []])(1.0)


class TestBatch:
    @pytest.mark.parametrize("examples", [1, 2, 7, 8, 33])
    def test_a_network(self, backend, examples):
        rng = random.Random(examples)
        model = nn.MLP(3, [5, 4, 1], activation="tanh", rng=rng)
        xs = [[rng.uniform(-1, 1) for _ in range(3)] for _ in range(examples)]
        ys = [rng.uniform(-1, 1) for _ in range(examples)]

        def loss(x, y):
            return (model(x) - y) ** 2 + losses.l2(0.1)(model.parameters())

        program = compile(loss, model.parameters(), backend=backend)
        assert_batch_equals_eager(program, loss, model.parameters(), xs, ys)
        value, gradient = program.batch_value_and_grad(xs, ys)
        again, same = program.batch_value_and_grad(np.array(xs), np.array(ys))
        assert again == close(value)
        assert same.tolist() == close(gradient.tolist())

    def test_a_frozen_weight_among_others(self, backend):
        """The rest of its layer goes by a table, and every example adds to the places in it."""
        model = nn.MLP(2, [5, 1], activation="tanh", rng=1)
        model.layers[0].neurons[0].w[0].requires_grad = False
        rng = random.Random(1)
        xs, ys = [[rng.gauss(0, 1) for _ in range(2)] for _ in range(16)], [rng.gauss(0, 1) for _ in range(16)]

        def loss(x, y):
            return (model(x) - y) ** 2

        program = compile(loss, model.parameters(), backend=backend)
        assert_batch_equals_eager(program, loss, model.parameters(), xs, ys)

    def test_the_program_found(self):
        model = nn.MLP(2, [4, 1], rng=1)
        program = compile(lambda x, y: (1 - y * model(x)).relu())
        program.batch(np.ones((100, 2)), np.ones(100))
        text = program.describe()
        assert "i<100,j<4: v0[4i+j] = parameter[2+3j] + Σk<2 parameter[3j+k]·x[i][k]" in text
        assert "total[0] = Σi<100 v4[i]" in text
        assert "i<4,j<2: dparameter[3i+j] += Σk<100 dv0[i+4k]·x[k][j]" in text
        assert program.stats["not affine"] == 0

    def test_what_depends_on_parameters_alone_is_computed_once(self):
        w = [Value(0.1 * k) for k in range(5)]
        program = compile(lambda x: x * sum(p.exp() for p in w))
        program.batch(np.arange(3.0))
        assert "i<5: v0[i] = exp(parameter[i])\n" in program.describe()

    def test_results_that_do_not_depend_on_the_inputs(self, backend):
        w = Value(3.0)
        program = compile(lambda x: w * w, backend=backend)
        assert_batch_equals_eager(program, lambda x: w * w, [w], [1.0, 2.0, 3.0])

    def test_large_batches_run_in_pieces(self, backend, monkeypatch):
        monkeypatch.setattr(traced, "CACHE", 0)  # 64 examples at a time
        w = Value(0.5)

        def written(x):
            return (w * x).sin()

        program = compile(written, backend=backend)
        assert_batch_equals_eager(program, written, [w], np.linspace(-1, 1, 64 * 3 + 5))
        constant = compile(lambda x: w, backend=backend)
        assert constant.batch(np.zeros(130), reduce=None).tolist() == [0.5] * 130

    def test_irregular_code_keeps_tables(self, backend):
        w = [Value(0.3 * k) for k in range(5)]
        order = [0, 3, 1, 4, 1, 0]

        def written(xs):
            return sum((w[k] * xs[j]).tanh() for j, k in enumerate(order)) + sum(xs[k] for k in (0, 1, 3)) * w[0]

        program = compile(written, w, backend=backend)
        rng = random.Random(1)
        assert_batch_equals_eager(program, written, w, [[rng.uniform(-1, 1) for _ in order] for _ in range(5)])
        assert program.stats["not affine"] > 0

    def test_a_recurrence(self, backend):
        a, b = Value(0.5), Value(0.1)

        def written(xs):
            h = 0.0
            for x in xs:
                h = chainrule.tanh(a * h + b * x)
            return h * h

        program = compile(written, backend=backend)
        rng = random.Random(1)
        assert_batch_equals_eager(program, written, [a, b], [[rng.uniform(-1, 1) for _ in range(20)] for _ in range(9)])

    @given(
        sizes=st.lists(st.integers(1, 6), min_size=2, max_size=4), examples=st.integers(1, 20), seed=st.integers(0, 9)
    )
    @relaxed
    def test_random_networks(self, sizes, examples, seed):
        rng = random.Random(seed)
        model = nn.MLP(sizes[0], sizes[1:], activation="sin", rng=rng)

        def written(x):
            out = model(x)
            return sum(v * v for v in out) if isinstance(out, list) else out * out

        program = compile(written, model.parameters(), backend="interpreter")
        xs = [[rng.uniform(-1, 1) for _ in range(sizes[0])] for _ in range(examples)]
        assert_batch_equals_eager(program, written, model.parameters(), xs)

    @given(program=programs(rows=CONTINUOUS, numbers=tame_numbers, most_nodes=12))
    @relaxed
    def test_random_programs_of_arguments_and_captured_values(self, program):
        numbers, steps = program
        parameters = [Value(number) for number in numbers[::2]]
        examples = [[number + 0.1 * k for number in numbers[1::2]] for k in range(3)]

        def results(xs):
            given = [xs[k // 2] if k % 2 else parameters[k // 2] for k in range(len(numbers))]
            return run((given, steps), lambda leaf: leaf, lambda row, operands: row(*operands))[1][len(numbers) :]

        eager = [results([Value(x) for x in xs]) for xs in examples]
        total = sum((row[-1] for row in eager), Value(0.0))
        total.backward()
        nodes = [value for row in eager for value in row if isinstance(value, Value)]
        numbers_of = [[getattr(value, "data", value) for value in row] for row in eager]  # some use constants only
        assume(all(math.isfinite(number) for row in numbers_of for number in row))
        assume(all(math.isfinite(v.data) and abs(v.data) < 1e6 and abs(v.grad) < 1e6 for v in nodes))
        close = functools.partial(pytest.approx, abs=1e-12 * max(1.0, sum(abs(v.data * v.grad) for v in nodes)))
        compiled = compile(results, backend="interpreter")
        for xs, expected in zip(examples, numbers_of, strict=True):
            assert compiled(xs) == pytest.approx(expected, rel=1e-6, abs=1e-6)  # as far as sin(1e6) is determined
        last = compile(lambda xs: results(xs)[-1], parameters, backend="interpreter")
        value, gradient = last.batch_value_and_grad(examples, reduce="sum")
        assert value == close(total.data)
        assert gradient.tolist() == close([parameter.grad for parameter in parameters])

    def test_batched_programs_are_well_formed(self):
        model = nn.MLP(2, [4, 1], rng=1)
        x = [Symbol.argument(0), Symbol.argument(1)]
        lifted = lift(graph_of(model(x)))
        for total in (True, False):
            batched(lifted, 10, total).verify()

    def test_an_array_that_depends_on_inputs_in_part_has_a_row_for_each_example(self):
        x, w, out = Array("x", 1, "input"), Array("w", 1, "parameter"), Array("out", 2, "value")
        steps = [Statement(Access(out, k, ()), (), [Term(Access(leaf, 0, ()))]) for k, leaf in enumerate((w, x))]
        program = batched(ArrayProgram(steps, {"input": x, "parameter": w}, out), 3, total=False)
        assert str(program.verify()) == "i<3: out[2i] = w[0]\ni<3: out[1+2i] = x[i]"

    def test_wrong_arguments(self):
        program = compile(lambda x, y: x * y, backend="interpreter")
        with pytest.raises(ValueError, match="`reduce` must be 'mean', 'sum' or None, got 'max'"):
            program.batch([1.0], [1.0], reduce="max")
        with pytest.raises(ValueError, match=r"must have as many examples each, got \[2, 1\]"):
            program.batch([1.0, 2.0], [1.0])
        with pytest.raises(ValueError, match="the batch is empty"):
            program.batch([], [])
        with pytest.raises(ValueError, match="`arrays` is empty"):
            program.batch()
        with pytest.raises(TypeError, match="argument 1 of a batch must be a list or an array"):
            program.batch([1.0], 1.0)
        with pytest.raises(TypeError, match="argument 0 must be an array of real numbers, got one of <U1"):
            program.batch(np.array(["a"]), [1.0])


class TestLosses:
    """chainrule's own functions, whose eager forms read numbers."""

    @pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 10])
    def test_softmax_and_logsumexp(self, backend, size):
        w = [Value(0.1 * k) for k in range(size)]

        def written(xs):
            mixed = [a * x for a, x in zip(w, xs, strict=True)]
            return (
                chainrule.logsumexp(mixed) + chainrule.softmax(mixed)[-1] * 3.0 + chainrule.logsumexp([*mixed, w[0], 2])
            )

        assert_equals_eager(written, w, [random.Random(size).uniform(-2, 2) for _ in range(size)], backend=backend)

    def test_at_any_scale(self, backend):
        program = compile(lambda xs: [chainrule.logsumexp(xs), *chainrule.softmax(xs)], backend=backend)
        for xs in ([1000.0, 1000.0], [-1000.0, -1001.0], [1e300, 0.0], [-math.inf, 0.0]):
            assert program(xs) == close([chainrule.logsumexp(xs), *chainrule.softmax(xs)])
        assert program([math.inf, 0.0])[0] == math.inf
        assert program([-math.inf, -math.inf])[0] == -math.inf

    def test_the_shift_takes_no_part_in_the_gradient(self):
        program = compile(lambda xs: chainrule.logsumexp([x * w for x in xs]), wrt=[w := Value(1.0)])
        program([1.0, 2.0, 3.0])
        shift = re.search(r"(v\d+)\[0\] = finite", program.describe())[1]
        assert f"d{shift}[" not in program.describe()

    def test_those_of_captured_values_follow_them(self, backend):
        w = [Value(0.1), Value(2.0), Value(-1.0)]

        def written(x):
            return x * chainrule.logsumexp(w) + chainrule.softmax(w)[0] + losses.cross_entropy([w], [2])

        program = compile(written, w, backend=backend)
        for numbers in ([0.1, 2.0, -1.0], [5.0, -3.0, 0.0], [1000.0, 900.0, 1000.0], [-800.0, -900.0, -850.0]):
            for value, value.data in zip(w, numbers, strict=True):
                value.grad = 0.0
            result, gradient = program.value_and_grad(2.0)
            eager = written(2.0)
            eager.backward()
            assert result == close(eager.data)
            assert gradient.tolist() == close(gradients(w))

    @pytest.mark.parametrize(
        "loss", [losses.mean_square, losses.sum_of_squares, losses.huber, losses.hinge, losses.binary_cross_entropy]
    )
    def test_losses_of_numbers(self, loss):
        model = nn.MLP(2, [4, 1], rng=1)

        def written(xs, ys):
            return loss([model(x) for x in xs], ys)

        assert_equals_eager(written, model.parameters(), [[0.1, 0.2], [-1.0, 3.0], [2.0, 0.5]], [1.0, 1.0, 1.0])

    def test_cross_entropy_with_classes_as_arguments(self, backend):
        model = nn.MLP(3, [4, 5], rng=1)
        rng = random.Random(1)
        xs = [[rng.uniform(-2, 2) for _ in range(3)] for _ in range(12)]
        classes = [rng.randrange(5) for _ in xs]

        def written(x, target):
            return losses.cross_entropy([model(x)], [target])

        program = assert_equals_eager(written, model.parameters(), xs[0], classes[0], backend=backend)
        assert_batch_equals_eager(program, written, model.parameters(), xs, classes)

    def test_cross_entropy_with_classes_fixed(self):
        model = nn.MLP(3, [5], rng=1)
        assert_equals_eager(lambda x: losses.cross_entropy([model(x)], [2]), model.parameters(), [0.1, 0.2, 0.3])

    def test_accuracy_of_two_classes(self):
        program = compile(lambda p, y: losses.accuracy([p], [y]))
        assert program.batch([0.5, -1.0, 2.0, 3.0], [1.0, 1.0, 1.0, -1.0]) == 0.5


def exactly(numbers):
    """Comparable to the last bit, the sign of a zero included; all NaNs are one."""
    return [repr(float(number)) for number in numbers]


def assert_strict(written, wrt, *inputs):
    """A strict program to the last bit against eager calls, on plain numbers and on Values."""
    program = compile(written, wrt, strict=True)
    for kind in (float, Value):
        gradients(wrt)
        expected = written(*of_kind(inputs, kind))
        expected.backward()
        wanted = [expected.data, *gradients(wrt)]
        value, gradient = program.value_and_grad(*inputs)
        assert exactly([value, *gradient]) == exactly(wanted)
        assert gradients(wrt) == [0.0] * len(wrt)
        assert exactly([program(*inputs), *gradients(wrt)]) == exactly(wanted)
    return program


def assert_strict_batch(program, written, wrt, *arrays):
    """As `assert_strict`, against the sum and the mean of the examples' results."""
    for reduce, reduced in (("sum", sum), ("mean", chainrule.mean)):
        gradients(wrt)
        eager = [written(*of_kind(example, Value)) for example in zip(*arrays, strict=True)]
        total = reduced(eager)
        total.backward()
        wanted = [total.data, *gradients(wrt)]
        value, gradient = program.batch_value_and_grad(*arrays, reduce=reduce)
        assert exactly([value, *gradient]) == exactly(wanted)
        assert exactly([program.batch(*arrays, reduce=reduce, threads=2), *gradients(wrt)]) == exactly(wanted)
    each = program.batch(*arrays, reduce=None)
    assert exactly(each) == exactly(result.data for result in eager)


def of_kind(inputs, kind):
    return [of_kind(item, kind) if isinstance(item, (list, tuple)) else kind(item) for item in inputs]


class TestStrict:
    def test_a_network_and_its_batches(self):
        rng = random.Random(1)
        model = nn.MLP(3, [5, 4, 1], activation="tanh", rng=rng)

        def loss(x, y):
            return (model(x) - y) ** 2 + losses.l2(0.1)(model.parameters())

        xs = [[rng.uniform(-1, 1) for _ in range(3)] for _ in range(70)]
        ys = [rng.uniform(-1, 1) for _ in xs]
        program = assert_strict(loss, model.parameters(), xs[0], ys[0])
        assert_strict_batch(program, loss, model.parameters(), xs, ys)
        assert_strict_batch(program, loss, model.parameters(), xs[:1], ys[:1])
        assert program.stats["array statements"] == 0
        assert "tanh" in program.describe()

    def test_it_follows_what_it_captures(self):
        w, b = Value(0.3), Value(-1.7)

        def written(x):
            return chainrule.where(w > b, (w * x).sin() / b, x**w)

        program = compile(written, [w], strict=True)
        for w.data, b.data in ((0.3, -1.7), (1e-3, 0.7), (-2.0, -1.1)):
            eager = (w * 0.9).sin() / b if w.data > b.data else 0.9**w
            eager.backward()
            wanted = [eager.data, *gradients([w])]
            assert exactly([program(0.9), *gradients([w])]) == exactly(wanted)

    def test_what_was_computed_outside_is_computed_once_for_a_batch(self):
        w, v = Value(0.7), Value(-0.3)
        outside = (w * 3.1).exp() * v
        further = outside.sin() + w

        def written(x):
            return (outside * x + further.tanh()).sin() * w + v * outside

        program = assert_strict(written, [v, w], 0.3)
        assert_strict_batch(program, written, [v, w], [0.1 * k for k in range(40)])
        plain = compile(lambda x: further, [w], strict=True)
        assert_strict_batch(plain, lambda x: further, [w], [1.0, 2.0, 3.0])

    def test_results_that_are_leaves(self):
        w, unused = Value(3.0), Value(1.0)
        assert_strict(lambda x: w, [unused, w], 1.0)
        program = compile(lambda x: w, [unused, w], strict=True)
        assert_strict_batch(program, lambda x: w, [unused, w], [1.0, 2.0, 3.0])
        assert compile(lambda x: w, wrt=(), strict=True)(1.0) == 3.0
        assert compile(lambda x, y: y, strict=True)(1.0, 7.0) == 7.0
        four = compile(lambda x: 4, wrt=[w], strict=True)
        assert [four(1.0), four.batch([1.0, 2.0]), w.grad] == [4.0, 4.0, 0.0]
        assert compile(lambda: w * w, strict=True)() == 9.0

    def test_several_results(self):
        w = Value(0.1)

        def written(x, y):
            return [(x * w).exp(), (y, 3), np.array([w, x * y]), [x + y]]

        program = compile(written, strict=True)
        first, second, array, third = program(0.3, 0.7)
        expected = written(Value(0.3), Value(0.7))
        assert exactly([first, *second, *array, *third]) == exactly(
            [expected[0].data, 0.7, 3, 0.1, expected[2][1].data, expected[3][0].data]
        )
        batch = program.batch([0.3, 0.4], [0.7, 0.8], reduce=None)
        assert exactly(batch[0]) == exactly([first, program(0.4, 0.8)[0]])
        assert batch[2].tolist() == [array.tolist(), program(0.4, 0.8)[2].tolist()]
        assert w.grad == 0.0

    def test_rules_that_only_python_knows(self):
        @chainrule.op(lambda out, x: 1.0 / x)
        def logarithm_by_math(x):
            return math.log(x)

        w = Value(2.0)
        program = assert_strict(lambda x: logarithm_by_math(w * x), [w], 3.0)
        assert_strict_batch(program, lambda x: logarithm_by_math(w * x), [w], [1.0, 2.0])

    def test_numbers_that_are_detached(self):
        w = Value(3.0)

        def written(x):
            return w * chainrule.detach(w * x).tanh() + chainrule.detach(x) * w

        assert_strict_batch(assert_strict(written, [w], 0.3), written, [w], [0.1, -0.7, 2.0])

    @pytest.mark.parametrize("numbers", [[0.1, 2.0, -1.0], [1000.0, 1000.0, 0.0], [math.inf, 1.0, 2.0], [0.0, -0.0, 1]])
    def test_softmax_and_logsumexp(self, numbers):
        w = [Value(0.5), Value(2.0), Value(-0.1)]

        def written(xs):
            mixed = [a * x for a, x in zip(w, xs, strict=True)]
            return chainrule.logsumexp(mixed) + chainrule.softmax(mixed)[1] * chainrule.logsumexp(w)

        assert_strict(written, w, numbers)

    def test_decorated_and_as_a_method(self):
        class Scale:
            def __init__(self):
                self.factor = Value(0.1)

            @chainrule.compile(strict=True)
            def thrice(self, x):
                return self.factor * x + self.factor * x + self.factor * x

        assert Scale().thrice(0.7) == 0.1 * 0.7 + 0.1 * 0.7 + 0.1 * 0.7

    def test_single_precision_is_refused(self):
        with pytest.raises(ValueError, match="a `strict` program repeats eager code, which is float64"):
            compile(lambda x: x, strict=True, dtype="float32")

    @given(program=programs(most_nodes=60))
    @settings(relaxed, max_examples=60)
    def test_random_programs(self, program):
        numbers, steps = program
        parameters = [Value(number) for number in numbers[::2]]
        xs = numbers[1::2]

        def written(xs):
            given = [xs[k // 2] if k % 2 else parameters[k // 2] for k in range(len(numbers))]
            results = run((given, steps), lambda leaf: leaf, lambda row, operands: row(*operands))[1]
            return results[-1] + parameters[0]

        compiled = assert_strict(written, parameters, xs)
        if xs:
            assert_strict_batch(compiled, written, parameters, [xs, xs[::-1], [-x for x in xs]])


@st.composite
def loops(draw):
    """A function of a list, and its parameters: a recurrence, or a loop whose turns are added up; its body is drawn."""
    recurrent, first = draw(st.booleans()), draw(st.integers(0, 3))
    parameters = [Value(number) for number in draw(st.lists(tame_numbers, min_size=1, max_size=3))]
    leaves, steps = draw(programs(rows=CONTINUOUS, numbers=tame_numbers, most_nodes=8))
    width = 2 + len(parameters)

    def place(operand):
        if isinstance(operand, tuple):
            return operand
        return operand % width if operand < len(leaves) else operand - len(leaves) + width

    moved = [(row, list(map(place, operands))) for row, operands in steps]

    def body(x, state):
        given = [state, x, *parameters]
        return chainrule.tanh(run((given, moved), lambda leaf: leaf, lambda row, operands: row(*operands))[1][-1])

    def written(xs):
        if recurrent:
            return functools.reduce(lambda state, x: body(x, state), xs, parameters[0]) * parameters[-1]
        return functools.reduce(operator.add, [body(x, xs[first % len(xs)]) for x in xs]) * parameters[0]

    return written, parameters


class TestRandomLoops:
    """Loops of the user's, which the compiler finds again or not: the numbers are eager code's either way."""

    @given(
        loop=loops(),
        size=st.integers(1, 9),
        examples=st.integers(1, 4),
        seed=st.integers(0, 99),
        backend=st.sampled_from(BACKENDS),
    )
    @settings(relaxed, max_examples=25)
    def test_they_equal_eager_code(self, loop, size, examples, seed, backend):
        written, parameters = loop
        rng = random.Random(seed)
        xs = [[rng.uniform(0.1, 2.0) for _ in range(size)] for _ in range(examples)]
        strict = assert_strict(written, parameters, xs[0])
        assert_strict_batch(strict, written, parameters, xs)
        total = sum(written([Value(x) for x in row]) for row in xs)
        total.backward()
        wanted, nodes = gradients(parameters), below(total)
        assume(all(math.isfinite(v.data) and abs(v.data) < 1e6 and abs(v.grad) < 1e6 for v in nodes))
        bound = 1e-12 * max(1.0, sum(abs(v.data * v.grad) for v in nodes))
        value, gradient = compile(written, parameters, backend=backend).batch_value_and_grad(xs, reduce="sum")
        assert value == pytest.approx(total.data, abs=bound)
        assert gradient.tolist() == pytest.approx(wanted, abs=bound)


def below(root):
    """All nodes that `root` was computed from."""
    found, pending = {root}, [root]
    while pending:
        fresh = [node for node in pending.pop()._operands if node not in found]
        found.update(fresh)
        pending += fresh
    return found


class TestIrregularFunctions:
    @pytest.fixture
    def tangled(self):
        """A function in which nothing repeats, and what it captures."""
        rng = random.Random(1)
        w = [Value(rng.uniform(0.5, 1.0)) for _ in range(5)]
        unary = [chainrule.tanh, chainrule.sin, chainrule.sigmoid, chainrule.atan]
        binary = [chainrule.mul, chainrule.sub, chainrule.add]

        def written(xs):
            rng = random.Random(2)
            nodes = [*w, *xs]
            for _ in range(1000):
                nodes.append(rng.choice(unary)(rng.choice(binary)(*rng.choices(nodes[-50:], k=2))))
            return sum(nodes[-20:])

        return written, w

    def test_they_run_node_by_node(self, tangled, monkeypatch):
        monkeypatch.setattr("chainrule.compiler.pipeline.MOST_STATEMENTS", 300)
        written, w = tangled
        program = assert_equals_eager(written, w, [0.3, 0.7])
        assert program.stats["array statements"] == 0
        xs = [[0.3, 0.7], [0.1, -0.2], [0.9, 1.9]]
        assert_strict_batch(compile(written, w), written, w, xs)
        assert_strict_batch(program, written, w, xs)
        several = compile(lambda xs: [written(xs), xs[0]], w)
        assert several(xs[1]) == [written([Value(x) for x in xs[1]]).data, 0.1]
        assert several.batch(xs, reduce=None)[1].tolist() == [0.3, 0.1, 0.9]

    def test_single_precision_falls_back_too(self, tangled, monkeypatch):
        monkeypatch.setattr("chainrule.compiler.pipeline.MOST_STATEMENTS", 300)
        written, w = tangled
        program = compile(written, w, dtype="float32")
        assert program([0.3, 0.7]) == compile(written, w, strict=True)([0.3, 0.7])
        assert "array statements are left of it" in program.stats["node by node"]


class TestWhatItShows:
    def test_before_the_first_call_there_is_no_program(self):
        def square(x):
            return x * x

        program = compile(square)
        for show in (program.describe, lambda: program.stats, lambda: program.wrt):
            with pytest.raises(RuntimeError, match=r"`square` has not been traced yet.*: call it once first"):
                show()
        assert repr(program) == "<CompiledFunction square: 0 structures traced>"

    def test_training_is_a_call_too(self):
        w = Value(3.0)
        program = compile(lambda x: w * x)
        program.train(chainrule.optim.SGD([w], lr=0.5), [1.0, 2.0])
        assert "\ni<1: parameter[i] = parameter[i] - (scalars[0]·dparameter[i])\n" in program.describe()
        assert program.stats["scalar nodes"] == 3
        assert program.wrt == [w]

    def test_describe_and_stats(self):
        program = compile(lambda xs: sum(x * x for x in xs))
        program([1.0, 2.0])
        assert program.describe() == "v0[0] = 0 + Σi<2 xs[i]·xs[i]"
        program([1.0, 2.0, 3.0])
        assert program.describe() == "v0[0] = 0 + Σi<3 xs[i]·xs[i]"
        assert program.stats["scalar nodes"] == 10  # 3 arguments, a zero, 3 products, 3 sums
        assert program.stats["array statements"] == 1
        assert program.stats["bytes"] > 0
        assert {"call", "trace", "lift", "lay out", "llvm"} <= set(program.stats["seconds"])

    def test_arguments_have_their_names(self):
        w = Value(2.0)

        def written(scale, rows, *more):
            return scale * sum(sum(row).tanh() for row in rows) * more[0] * more[1][2] * w

        program = compile(written, wrt=())
        program(2.0, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], 7.0, (1.0, 2.0, 3.0))
        text = program.describe()
        assert "i<2: v0[i] = 0 + Σj<3 rows[i][j]" in text
        assert "scale·v2[0]" in text
        assert "·more[0]" in text
        assert "·more[1][2]" in text
        assert "input" not in text

    def test_arrays_and_models_have_names_too(self):
        model = nn.MLP(3, [4, 1], rng=1)
        program = compile(lambda points, y: (model(points[1]) - y) ** 2, model.parameters())
        program(np.ones((2, 3)), 1.0)
        first = "i<4: v0[i] = layers[0].neurons[i].b + Σj<3 layers[0].neurons[i].w[j]·points[1][j]"
        assert program.describe(model).splitlines()[0] == first
        assert "∂layers[0].neurons[i].w[j] += dv0[i]·points[1][j]" in program.describe(model)
        assert "Σj<3 parameter[4i+j]·points[1][j]" in program.describe()
        program.batch(np.ones((5, 2, 3)), np.ones(5))
        text = program.describe(model)
        assert "i<5,j<4: v0[4i+j] = layers[0].neurons[j].b + Σk<3 layers[0].neurons[j].w[k]·points[i][1][k]" in text
        assert "v2[i] - y[i]" in text

    def test_a_function_that_keeps_its_arguments_names_to_itself(self):
        assert list(naming.ArgumentNames(max, (NUMBER, (list, (NUMBER,))), [0, 1])) == [
            "input.0",
            "input.1.0",
        ]

    def test_a_traced_graph_prints(self):
        w = Value(2.0)
        assert str(graph_of(Symbol.argument(0) * w + 1.0, wrt=())) == (
            "0  captured           2.0\n"
            "1  input              \n"
            "2  *         1 0      \n"
            "3  constant           1.0\n"
            "4  +         2 3      "
        )


@pytest.mark.parametrize("label", [3, 7, -1, 1.5, math.nan, math.inf])
def test_a_class_that_does_not_exist_is_refused_at_every_call(label):
    logits = [1.0, 2.0, 3.0]
    program = compile(lambda logits, label: losses.cross_entropy([logits], [label]))
    assert program(logits, 2) == pytest.approx(losses.cross_entropy([logits], [2]))
    message = r"`arguments\[1\]` must be a class index below 3"
    for call in (
        lambda: program(logits, label),
        lambda: program.value_and_grad(logits, label),
        lambda: program.batch([logits, logits], [0, label]),
        lambda: program.batch_value_and_grad([logits] * 3, [0, label, 1]),
        lambda: program.batch(np.ones((2, 3)), np.array([2.0, label]), reduce=None),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("label", [3, -1, 1.5])
def test_a_class_that_is_computed_and_does_not_exist_has_no_cross_entropy(label):
    program = compile(lambda logits, label: losses.cross_entropy([logits], [label - 1.0]))
    assert program([1.0, 2.0, 3.0], 3) == pytest.approx(losses.cross_entropy([[1.0, 2.0, 3.0]], [2]))
    assert math.isnan(program([1.0, 2.0, 3.0], label + 1))


def test_a_leaf_that_is_frozen_later_collects_no_gradient():
    w, v = Value(2.0), Value(3.0)
    recorded, function = compile(w * v), compile(lambda x: w * v * x)
    w.requires_grad = False
    assert (recorded(), function(2.0), function.batch([1.0, 2.0], reduce="sum")) == (6.0, 12.0, 18.0)
    assert (w.grad, v.grad) == (0.0, 2.0 + 4.0 + 6.0)


@pytest.mark.parametrize("strict", [False, True])
def test_a_gradient_with_respect_to_nothing_is_refused(strict):
    """It would be empty, and who asks for it means the arguments. An empty `wrt` is another matter."""
    square = compile(lambda x: x * x, strict=strict)
    square(3.0)
    for gradient in (square.value_and_grad, lambda x: square.batch_value_and_grad([x])):
        for _ in range(2):
            with pytest.raises(ValueError, match=r"reads no Value from outside .*, argnums=0"):
                gradient(3.0)
    assert square.value_and_grad(3.0, argnums=0) == (9.0, 6.0)
    assert square(3.0) == square.batch([3.0]) == 9.0
    assert compile(square.function, [], strict=strict).value_and_grad(3.0)[1].tolist() == []


def test_a_value_that_is_named_twice_is_refused():
    x = Value(1.0)
    for target in (x * 3.0, lambda y: x * y):
        with pytest.raises(ValueError, match=r"`wrt` has Value\(data=1.0.* twice"):
            compile(target, [x, Value(2.0), x])


@pytest.mark.parametrize("count", [4, 6])
def test_a_mean_of_one_run_begins_with_its_share(count):
    w = Value(3.0)
    f = chainrule.compile(lambda x: w * w * x, wrt=[w])
    xs = np.arange(1.0, count + 1.0)
    mean, gradient = f.batch_value_and_grad(xs)
    assert f"dtotal[0] = {1 / count:g}\n" in str(f._last_run[1].whole)
    total, by_sum = f.batch_value_and_grad(xs, reduce="sum")
    assert "dtotal[0] = 1\n" in str(f._last_run[1].whole)
    assert (mean * count, total) == (pytest.approx(9.0 * xs.sum()), 9.0 * xs.sum())
    assert (gradient[0] * count, by_sum[0]) == (pytest.approx(6.0 * xs.sum()), 6.0 * xs.sum())
