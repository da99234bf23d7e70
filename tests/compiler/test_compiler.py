"""Compiled programs equal eager ones, and the programs found are the ones a person would write."""

import functools
import math
import operator
import random
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import chainrule
import torch_ops
from chainrule import Value, data, losses, nn
from chainrule.compiler import compile
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.layout import lay_out
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.passes.loop_nests import loop_nest
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Number, Statement, Term
from chainrule.compiler.trace.graph import Graph, graph_of
from expressions import CONTINUOUS, programs, run, tame_numbers

BACKENDS = ["llvm", "interpreter"]
relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def assert_equals_eager(loss, wrt, backend="llvm", tolerance=1e-12):
    """The compiled result and every gradient against eager, relative to the size of what was added up."""
    program = compile(loss, wrt, backend=backend)
    result, gradient = program.value_and_grad()
    for value in wrt:
        value.grad = 0.0
    loss.backward()
    scale = max(1.0, abs(loss.data), *(abs(value.grad) for value in wrt))
    assert result == pytest.approx(loss.data, abs=tolerance * scale, nan_ok=True)
    for ours, value in zip(gradient, wrt, strict=True):
        assert ours == pytest.approx(value.grad, abs=tolerance * scale, nan_ok=True)
    return program


def sum_of(terms):
    return functools.reduce(operator.add, terms)


def moons_loss(points=100, activation="relu", inputs=Value):
    random.seed(1337)
    model = nn.MLP(2, [16, 16, 1], activation=activation)
    examples = data.micrograd_moons()[:points]
    xs = [[inputs(x) for x in point] for point in examples.inputs]
    return losses.hinge([model(x) for x in xs], examples.targets) + losses.l2(1e-4)(model.parameters()), model


@pytest.mark.once
class TestPrograms:
    def test_the_moons_demo_is_found_whole(self):
        loss, model = moons_loss()
        program = compile(loss, model.parameters(), backend="interpreter")
        assert program.describe() == (
            "i<100,j<16: v0[16i+j] = parameter[2+3j] + Σk<2 parameter[3j+k]·input[2i+k]\n"
            "i<1600: v1[i] = relu(v0[i])\n"
            "i<100,j<16: v2[16i+j] = parameter[64+17j] + Σk<16 parameter[48+17j+k]·v1[16i+k]\n"
            "i<1600: v3[i] = relu(v2[i])\n"
            "i<100: v4[i] = parameter[336] + Σj<16 parameter[320+j]·v3[16i+j]\n"
            "i<100: v5[i] = 1 + c1[i]·v4[i]\n"
            "i<100: v6[i] = relu(v5[i])\n"
            "v7[0] = 0 + Σi<100 v6[i]\n"
            "v8[0] = 0 + Σi<337 parameter[i]·parameter[i]\n"
            "v9[0] = v7[0]·0.01 + 0.0001·v8[0]\n"
            "dv9[0] = 1\n"
            "dv7[0] = dv9[0]·0.01\n"
            "dv8[0] = dv9[0]·0.0001\n"
            "i<337: dparameter[i] = dv8[0]·parameter[i]\n"
            "i<337: dparameter[i] += dv8[0]·parameter[i]\n"
            "i<100: dv6[i] = dv7[0]\n"
            "i<100: dv5[i] = dv6[i]·(1 - (v6[i] <= 0))\n"
            "i<100: dv4[i] = dv5[i]·c1[i]\n"
            "dparameter[336] += Σi<100 dv4[i]\n"
            "i<16: dparameter[320+i] += Σj<100 dv4[j]·v3[i+16j]\n"
            "i<100,j<16: dv3[16i+j] = dv4[i]·parameter[320+j]\n"
            "i<1600: dv2[i] = dv3[i]·(1 - (v3[i] <= 0))\n"
            "i<16: dparameter[64+17i] += Σj<100 dv2[i+16j]\n"
            "i<16,j<16: dparameter[48+17i+j] += Σk<100 dv2[i+16k]·v1[j+16k]\n"
            "i<100,j<16: dv1[16i+j] = Σk<16 dv2[16i+k]·parameter[48+j+17k]\n"
            "i<1600: dv0[i] = dv1[i]·(1 - (v1[i] <= 0))\n"
            "i<16: dparameter[2+3i] += Σj<100 dv0[i+16j]\n"
            "i<16,j<2: dparameter[3i+j] += Σk<100 dv0[i+16k]·input[j+2k]"
        )
        assert program.stats["scalar nodes"] == 65818
        assert program.stats["not affine"] == 0

    def test_plain_numbers_as_inputs_become_one_array(self):
        loss, model = moons_loss(points=10, inputs=float)
        program = compile(loss, model.parameters(), backend="interpreter")
        assert "Σk<2 parameter[3j+k]·c1[2i+k]" in program.describe()

    def test_layout_puts_the_batch_innermost(self):
        loss, model = moons_loss()
        moved, places = lay_out(differentiate(lift(graph_of(loss, model.parameters()))))
        text = str(moved.verify())
        assert "v2[i+104j] = parameter[64+17j] + Σk<16 parameter[48+17j+k]·v1[i+104k]" in text
        assert "dparameter[48+17i+j] += Σk<100 dv2[104i+k]·v1[104j+k]" in text
        assert [array.name for array in places] == ["input"]


class TestEquality:
    @pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu", "silu", "softplus"])
    def test_moons(self, backend, activation):
        loss, model = moons_loss(points=37, activation=activation)
        assert_equals_eager(loss, model.parameters(), backend)

    @pytest.mark.parametrize("width", [5, 9, 15])
    @pytest.mark.parametrize("count", [7, 8, 13, 14, 15, 16])
    def test_sums_that_share_products(self, backend, width, count):
        """Two vectors of different lengths add up the same products: LLVM once took one of them twice (5 and 15)."""
        weights = [Value(0.1 * (k + 1)) for k in range(width)]
        sums = [sum_of([weight * 0.83 for weight in weights]).tanh() for _ in range(count)]
        assert_equals_eager(sum_of(sums), weights, backend)

    def test_four_points(self, backend):
        model = nn.MLP(3, [4, 4, 1], activation="tanh", output="tanh", rng=1)
        points = data.four_points()
        loss = losses.sum_of_squares([model(x) for x in points.inputs], points.targets)
        assert_equals_eager(loss, model.parameters(), backend)

    def test_cross_entropy(self, backend):
        model = nn.MLP(2, [5, 3], activation="tanh", rng=1)
        points = data.blobs(n=30)
        loss = losses.cross_entropy([model(x) for x in points.inputs], points.targets)
        assert_equals_eager(loss, model.parameters(), backend)

    def test_recurrence(self, backend):
        w, u, b, h = Value(0.5), Value(0.3), Value(0.1), Value(0.0)
        for t in range(12):
            h = (w * h + u * math.sin(t) + b).tanh()
        assert_equals_eager(h * h, [w, u, b], backend)

    def test_stencil_with_overlapping_reads(self, backend):
        cells = [Value(math.sin(k)) for k in range(40)]
        row = cells
        for _ in range(3):
            row = [0.25 * a + 0.5 * b + 0.25 * c for a, b, c in zip(row, row[1:], row[2:], strict=False)]
        assert_equals_eager(sum(v * v for v in row), cells, backend)

    def test_shared_and_repeated_operands(self, backend):
        x, y = Value(1.5), Value(-0.5)
        z = x * x + x * y + y * y * y
        assert_equals_eager(z * z + z / (x - y) + z, [x, y], backend)

    def test_convolution(self, backend):
        signal = [Value(math.cos(k)) for k in range(20)]
        kernel = [Value(0.1 * k) for k in range(5)]
        out = [sum(kernel[j] * signal[i + j] for j in range(5)) for i in range(16)]
        assert_equals_eager(sum(v.tanh() for v in out), [*signal, *kernel], backend)

    def test_matrix_products(self, backend):
        rng = random.Random(1)
        A, B = ([[Value(rng.uniform(-1, 1)) for _ in range(6)] for _ in range(6)] for _ in range(2))
        C = [[sum(A[i][k] * B[k][j] for k in range(6)) for j in range(6)] for i in range(6)]
        D = [[sum(C[i][k] * A[j][k] for k in range(6)) for j in range(6)] for i in range(6)]
        loss = sum(D[i][j] * D[j][i] for i in range(6) for j in range(6))
        assert_equals_eager(loss, [v for row in A + B for v in row], backend)

    @pytest.mark.parametrize("name", torch_ops.FUNCTIONS)
    def test_every_op(self, name):
        row = chainrule.ops.TABLE[name]
        rng = random.Random(name)
        leaves = [[Value(rng.uniform(*interval)) for interval in row.domain] for _ in range(19)]
        loss = sum(row(*operands) * float(k + 1) for k, operands in enumerate(leaves))
        for backend in BACKENDS:
            assert_equals_eager(loss, [v for operands in leaves for v in operands], backend)

    @pytest.mark.parametrize("exponent", [2, 3, -1, -2, 0.5, -0.5, 1.5, 0, 1, 7, 2.3, 40])
    def test_powers(self, exponent):
        xs = [Value(0.3 + 0.1 * k) for k in range(11)]
        assert_equals_eager(sum(x**exponent for x in xs), xs)

    def test_special_numbers(self, backend):
        numbers = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-320, 1e308)
        for name in ("exp", "log", "sqrt", "tanh", "sigmoid", "relu", "abs"):
            for x in [Value(x) for x in numbers]:
                assert_equals_eager(getattr(x, name)(), [x], backend)

    @given(program=programs(rows=CONTINUOUS, numbers=tame_numbers, most_nodes=40))
    @settings(relaxed, max_examples=25)
    def test_random_programs(self, program):
        leaves, nodes = run(program, Value, lambda row, operands: Value._apply(row, tuple(operands)))
        nodes[-1].backward()
        assume(all(math.isfinite(v.data) and abs(v.data) < 1e6 and abs(v.grad) < 1e6 for v in nodes))
        reach = sum(abs(v.data * v.grad) for v in nodes)
        for backend in BACKENDS:
            assert_equals_eager(nodes[-1], leaves, backend, tolerance=1e-12 * max(1.0, reach))

    @pytest.mark.slow
    @given(
        sizes=st.lists(st.integers(1, 9), min_size=2, max_size=4),
        examples=st.integers(1, 40),
        activation=st.sampled_from(["tanh", "relu", "sin"]),
        seed=st.integers(0, 9),
    )
    @settings(relaxed, max_examples=25)
    def test_random_networks(self, sizes, examples, activation, seed):
        rng = random.Random(seed)
        model = nn.MLP(sizes[0], sizes[1:], activation=activation, rng=rng)
        xs = [[rng.uniform(-1, 1) for _ in range(sizes[0])] for _ in range(examples)]
        outs = [model(x) for x in xs]
        flat = [v for out in outs for v in (out if isinstance(out, list) else [out])]
        loss = sum((v - 0.5) ** 2 for v in flat) / len(flat)
        assert_equals_eager(loss, model.parameters())


class TestCalls:
    def test_a_call_is_a_forward_and_backward_pass(self, backend):
        a, b = Value(2.0), Value(3.0)
        c = a * b + a.tanh()
        program = compile(c, backend=backend)
        a.data, b.data = 1.0, -2.0
        assert program() == c.data == 1.0 * -2.0 + math.tanh(1.0)
        assert (a.grad, b.grad) == (pytest.approx(-2.0 + 1 - math.tanh(1.0) ** 2), 1.0)
        program()
        assert b.grad == 2.0

    def test_wrt_chooses_and_orders_the_gradient(self, backend):
        a, b, unused = Value(2.0), Value(3.0), Value(1.0)
        program = compile(a * b, wrt=[b, unused, a], backend=backend)
        result, gradient = program.value_and_grad()
        assert result == 6.0
        assert gradient.tolist() == [2.0, 0.0, 3.0]
        assert (a.grad, b.grad) == (0.0, 0.0)

    def test_nothing_to_differentiate_is_forward_only(self, backend):
        a = Value(2.0)
        program = compile(a.exp(), wrt=(), backend=backend)
        assert program() == math.exp(2.0)
        assert a.grad == 0.0
        assert "d" not in program.describe().replace("input", "")

    def test_a_leaf_alone(self, backend):
        a = Value(2.0)
        assert compile(a, backend=backend)() == 2.0
        assert a.grad == 1.0

    def test_stats_and_repr(self):
        loss, model = moons_loss(points=4)
        program = compile(loss, model.parameters())
        assert repr(program).startswith("<Program: ")
        assert program.stats["bytes"] > 0
        assert set(program.stats["seconds"]) == {"trace", "lift", "differentiate", "lay out", "llvm"}

    def test_wrong_arguments(self):
        with pytest.raises(TypeError, match="`target` must be a Value, got float"):
            compile(3.0)
        with pytest.raises(
            ValueError, match="`backend` must be one of llvm, cuda, jax, xla, interpreter, auto; got 'gcc'"
        ):
            compile(Value(1.0), backend="gcc")

    def test_what_only_python_knows_is_refused(self):
        x = Value(1.0)
        out = Value(2.0, (x,), "mine")
        with pytest.raises(TypeError, match=r"`_op` 'mine'.*made by hand.*chainrule\.op"):
            compile(out * 2.0)
        y = x * 2.0
        y._backward = lambda: None
        with pytest.raises(TypeError, match="`_backward` written by hand"):
            compile(y * 2.0)

    def test_a_users_op_is_compiled_from_its_rule(self, backend):
        @chainrule.op(lambda out, x: 3.0 * x * x)
        def third_power(x):
            return x * x * x

        xs = [Value(0.1 * k) for k in range(9)]
        assert_equals_eager(sum(third_power(x) for x in xs), xs, backend)


class TestIrregularGraphs:
    def graph(self, count):
        """A graph of random ops on random operands, in which nothing repeats."""
        rng = random.Random(1)
        leaves = [Value(rng.uniform(0.5, 1.0)) for _ in range(5)]
        nodes = list(leaves)
        unary = [chainrule.tanh, chainrule.sin, chainrule.sigmoid, chainrule.atan]
        binary = [chainrule.mul, chainrule.sub, chainrule.add]
        for _ in range(count):
            nodes.append(rng.choice(binary)(rng.choice(nodes[-50:]), rng.choice(nodes[-50:])))
            nodes.append(rng.choice(unary)(nodes[-1]))
        return sum(nodes[-20:]), leaves

    def test_they_work(self, backend):
        loss, leaves = self.graph(150)
        assert_equals_eager(loss, leaves, backend, tolerance=1e-12)

    def test_large_ones_run_node_by_node(self, monkeypatch):
        monkeypatch.setattr("chainrule.compiler.pipeline.MOST_STATEMENTS", 300)
        loss, leaves = self.graph(1000)
        program = assert_equals_eager(loss, leaves, tolerance=1e-12)
        assert program.stats["array statements"] == 0
        why = (
            r"because the code repeats so little that [\d,]+ array statements are left of it, and LLVM .* over them "
            r"\(where an `if` makes steps differ, let them be alike, .*\)"
        )
        assert re.fullmatch(why, program.stats["node by node"])
        assert re.fullmatch(rf"<Program: [\d,]+ scalar nodes one by one, {why}>", repr(program))
        assert re.match(rf"# node by node, {why}\n0 +parameter", program.describe())
        assert repr(compile(loss, leaves, strict=True)).endswith(" scalar nodes one by one, as asked>")
        assert repr(compile(Value(2.0) * Value(3.0))) == "<Program: 3 scalar nodes in 5 array statements>"
        assert repr(compile(loss, leaves, dtype="float32")).endswith("in double precision, as all such code does>")


class TestStrict:
    def assert_to_the_bit(self, loss, wrt):
        program = compile(loss, wrt, strict=True)
        result, gradient = program.value_and_grad()
        for value in wrt:
            value.grad = 0.0
        loss.backward()
        assert str(result) == str(loss.data)
        assert list(map(str, gradient.tolist())) == [str(value.grad) for value in wrt]
        return program

    def test_networks(self):
        for activation in ("relu", "tanh", "gelu"):
            loss, model = moons_loss(points=9, activation=activation)
            self.assert_to_the_bit(loss, model.parameters())

    def test_it_follows_the_leaves(self):
        x, y = Value(2.0), Value(0.3)
        loss = (x * y).tanh() / (x - y) + x**3
        program = compile(loss, strict=True)
        x.data, y.data = -1.7, 0.9
        eager_x, eager_y = Value(-1.7), Value(0.9)
        eager = (eager_x * eager_y).tanh() / (eager_x - eager_y) + eager_x**3
        eager.backward()
        assert program() == eager.data == loss.data
        assert (x.grad, y.grad) == (eager_x.grad, eager_y.grad)
        assert "tanh" in program.describe()

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("exponents", [range(-10, 11), [0.25 * k for k in range(20)]], ids=["whole", "broken"])
    def test_powers_of_many_exponents_are_one_array(self, exponents, backend):
        bases = [Value(1.5), Value(0.7), *([Value(-0.9)] if isinstance(exponents, range) else [])]
        loss = sum((1.0 + abs(e)) * x**e for e in exponents for x in bases)
        program = assert_equals_eager(loss, bases, backend)
        assert program.stats["array statements"] < 12

    @given(program=programs())
    @settings(relaxed, max_examples=60)
    def test_random_programs(self, program):
        leaves, nodes = run(program, Value, lambda row, operands: Value._apply(row, tuple(operands)))
        self.assert_to_the_bit(nodes[-1], leaves)

    def test_rules_of_the_users_among_others(self):
        """Only Python can run them; one has more operands than a byte has bits."""

        @chainrule.op(*[lambda out, *xs, k=k: float(k) * xs[k] for k in range(9)], None)
        def weighted(a, b, c, d, e, f, g, h, i, j):
            return sum(0.5 * k * x * x for k, x in enumerate((a, b, c, d, e, f, g, h, i)))

        @chainrule.op(lambda out, x: math.cos(x))
        def sine(x):
            return math.sin(x)

        leaves = [Value(0.1 * k + 0.3) for k in range(10)]
        for loss in (
            weighted(*leaves),
            sine(sine(leaves[0]) * leaves[1]),
            sine(weighted(*[sine(x) * leaves[3] for x in leaves])) + leaves[9] * sine(leaves[9] - 1.0),
        ):
            self.assert_to_the_bit(loss, leaves)

    def test_what_no_gradient_reaches_passes_none(self):
        x, y = Value(0.0), Value(3.0)
        program = self.assert_to_the_bit(chainrule.where(chainrule.gt(1.0 / x, 5.0), 2.0 * x, x) * y, [x, y])
        assert program.value_and_grad()[1].tolist() == [6.0, 0.0]

    def test_memory_is_that_of_two_numbers_per_node_and_of_two_more(self):
        program = compile(Value(2.0) * Value(3.0) + 1.0, strict=True)
        assert program.stats["bytes"] == 2 * 8 * (5 + 1)


@pytest.mark.once
class TestLoopNests:
    @pytest.mark.parametrize(
        ("streams", "expected"),
        [
            ([[5]], ((), [()])),
            ([[0, 1, 2, 3]], ((4,), [(1,)])),
            ([[7, 7, 7]], ((3,), [(0,)])),
            ([[0, 2, 4, 1, 3, 5]], ((2, 3), [(1, 2)])),
            ([[0, 1, 0, 1, 0, 1], [0, 0, 5, 5, 10, 10]], ((3, 2), [(0, 1), (5, 0)])),
            ([[0, 1, 3]], None),
            ([[0, 1, 2, 3, 5, 4]], None),
        ],
    )
    def test_known_streams(self, streams, expected):
        assert loop_nest(np.array(streams)) == expected

    @given(
        extents=st.lists(st.integers(2, 5), min_size=1, max_size=4),
        strides=st.lists(st.lists(st.integers(-7, 7), min_size=4, max_size=4), min_size=1, max_size=3),
    )
    @relaxed
    def test_whatever_nest_made_them_the_streams_come_back(self, extents, strides):
        grid = np.indices(extents).reshape(len(extents), -1)
        streams = np.array([np.array(row[: len(extents)]) @ grid for row in strides])
        found = loop_nest(streams)
        assert found is not None
        loops, rows = found
        again = np.indices(loops).reshape(len(loops), -1)
        for stream, row in zip(streams, rows, strict=True):
            assert (stream[0] + np.array(row, dtype=int) @ again == stream).all()


@pytest.mark.once
class TestVerify:
    def test_a_graph_with_a_missing_operand(self):
        a = Value(1.0)
        graph = graph_of(a * 2.0)
        with pytest.raises(AssertionError, match="must have 2 operands, has 1"):
            Graph(graph.rules, [*graph.operands[:-1], (0,)], graph.nodes).verify()
        with pytest.raises(AssertionError, match="which must be older nodes"):
            Graph(graph.rules, [*graph.operands[:-1], (0, 2)], graph.nodes).verify()

    def program(self, target, loops, expression, accumulate=False):
        statement = Statement(target, loops, [Term(expression)], accumulate)
        return ArrayProgram([statement], {"input": self.x}, target.array)

    x, y = Array("x", 10, "input"), Array("y", 10, "value")

    def test_planted_faults(self):
        fine = self.program(Access(self.y, 0, (1,)), (10,), Access(self.x, 9, (-1,)))
        assert fine.verify() is fine
        faults = {
            "reaches 1 to 10 of x": self.program(Access(self.y, 0, (1,)), (10,), Access(self.x, 1, (1,))),
            "reaches -1 to 8": self.program(Access(self.y, 0, (1,)), (10,), Access(self.x, 8, (-1,))),
            "has 2 strides in 1 loops": self.program(Access(self.y, 0, (1,)), (10,), Access(self.x, 0, (1, 1))),
            "is read before it is written": self.program(Access(self.y, 0, (1,)), (10,), Access(self.y, 0, (1,))),
            "is added to before it is written": self.program(Access(self.y, 0, (1,)), (10,), Number(1.0), True),
            "leaves its table": self.program(
                Access(self.y, 0, (1,)), (10,), Access(self.x, 0, (1,), np.arange(9, dtype=np.int64))
            ),
        }
        for message, program in faults.items():
            with pytest.raises(AssertionError, match=message):
                program.verify()
