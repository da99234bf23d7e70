"""Programs through XLA compute what the eager code computes, with matrix products as such, and leave JAX as it was."""

import math
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_c_header import PROGRAMS
from test_compiler import assert_equals_eager, moons_loss

import chainrule
import torch_ops
import torture
from chainrule import Value, losses, nn, optim
from chainrule.compiler import compile
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Statement, Term
from chainrule.compiler.run.steps import CompiledSteps

jax = pytest.importorskip("jax")
jnp = jax.numpy

from chainrule.compiler.backends.xla import Xla  # noqa: E402
from chainrule.compiler.backends.xla.paths import Path, in_boxes  # noqa: E402
from chainrule.compiler.backends.xla.pieces import Pieces  # noqa: E402
from chainrule.compiler.backends.xla.tables import gathered, sources  # noqa: E402

relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck))
SINGLE = 1e-5  # of the largest number: rounding errors of 2**-24 add up


def network(seed=1):
    model = nn.MLP(2, [5, 4, 1], activation="tanh", rng=seed)
    f = compile(lambda x, y: (model(x) - y) ** 2, wrt=model.parameters())
    return model, f, jnp.array([p.data for p in model.parameters()])


class TestEquality:
    @pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "Runge-Kutta"])
    def test_programs(self, name):
        assert_equals_eager(*PROGRAMS[name](), "xla")

    @pytest.mark.slow
    def test_a_long_body_of_scalars(self):
        assert_equals_eager(*PROGRAMS["Runge-Kutta"](), "xla")

    @pytest.mark.parametrize("name", ["moons", "hidden units", "attention"])
    def test_single_precision(self, name):
        loss, wrt = PROGRAMS[name]()
        value, gradient = compile(loss, wrt, backend="xla", dtype="float32").value_and_grad()
        exact, derivatives = compile(loss, wrt, backend="interpreter").value_and_grad()
        scale = max(1.0, abs(exact), *np.abs(derivatives))
        assert 0.0 < abs(value - exact) <= SINGLE * scale
        assert np.abs(gradient - derivatives).max() <= SINGLE * scale

    def test_every_op(self):
        rng = random.Random(1)
        leaves, terms = [], []
        for row in map(chainrule.ops.TABLE.get, torch_ops.FUNCTIONS):
            for k in range(3):
                operands = [Value(rng.uniform(*interval)) for interval in row.domain]
                leaves += operands
                terms.append(row(*operands) * (k + 1.0))
        assert_equals_eager(sum(terms), leaves, "xla")

    def test_special_numbers(self):
        xs = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e308]
        for name in ("exp", "log", "sqrt", "tanh", "sigmoid", "relu", "abs"):
            values = [Value(x) for x in xs]
            f = compile(lambda *xs, name=name: [getattr(x, name)() for x in xs], backend="xla")
            assert f(*xs) == pytest.approx([getattr(v, name)().data for v in values], nan_ok=True)

    def test_powers(self):
        xs = [Value(0.3 + 0.1 * k) for k in range(5)]
        assert_equals_eager(sum(x**e for x in xs for e in (2, 3, -1, 0.5, -1.5, 0, 1, 7, 2.3, 40)), xs, "xla")

    def test_overlapping_reads_and_elements_from_last_to_first(self):
        cells = [Value(math.sin(k)) for k in range(20)]
        row = [0.25 * a + 0.5 * b + 0.25 * c for a, b, c in zip(cells, cells[1:], cells[2:], strict=False)]
        turned = [a * b for a, b in zip(row, reversed(row), strict=True)]
        assert_equals_eager(sum(v * v for v in turned), cells, "xla")

    @given(seed=st.integers(0, 10**6))
    @settings(relaxed, max_examples=5)
    def test_random_programs_of_arrays(self, seed):
        graph = torture.smooth_graph(seed, most_blocks=4)
        assume(graph)
        leaves, root, reach = graph
        assert_equals_eager(root, leaves, "xla", 1e-12 * reach)

    def test_batches(self):
        model, native, _ = network()
        f = compile(native.function, wrt=model.parameters(), backend="xla")
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(100, 2)), rng.normal(size=100)
        value, gradient = f.batch_value_and_grad(x, y)
        expected, derivatives = native.batch_value_and_grad(x, y)
        assert value == pytest.approx(expected, rel=1e-12)
        assert gradient == pytest.approx(derivatives, abs=1e-12)
        assert f.batch(x, y, reduce=None) == pytest.approx(native.batch(x, y, reduce=None), abs=1e-12)

    def test_a_batch_in_several_runs(self, monkeypatch):
        monkeypatch.setattr("chainrule.compiler.backends.xla.CPU_BATCH", 1)
        w = Value(3.0)
        f = compile(lambda x: (w * x).tanh(), backend="xla")
        x = np.linspace(-1, 1, 150)
        value, (gradient,) = f.batch_value_and_grad(x, reduce="sum", threads=2)
        assert value == pytest.approx(np.tanh(3 * x).sum(), abs=1e-12)
        assert gradient == pytest.approx((x * (1 - np.tanh(3 * x) ** 2)).sum(), abs=1e-12)

    def test_training_steps(self):
        runs = []
        for backend in ("xla", "llvm"):
            model = nn.MLP(2, [4, 1], rng=1)
            inputs = [[0.1 * k, 0.3 - 0.1 * k] for k in range(6)]
            steps = CompiledSteps(
                lambda xs, model=model: losses.sum_of_squares([model(x) for x in xs], [1.0] * 6),
                inputs,
                optim.Adam(model.parameters(), lr=0.01),
                backend,
            )
            runs.append([*steps.run(3), *steps.run(3), *[p.data for p in model.parameters()]])
        assert runs[0] == pytest.approx(runs[1], abs=1e-12)


@pytest.fixture
def carried(monkeypatch):
    """The sizes of the arrays that each `scan` hands over from time to time."""
    sizes = []

    def scan(turn, first, *others, scan=jax.lax.scan, **options):
        sizes.append([array.size for array in jax.tree.leaves(first)])
        return scan(turn, first, *others, **options)

    monkeypatch.setattr(jax.lax, "scan", scan)
    return sizes


def test_nothing_can_be_read_between_two_numbers():
    pieces = Pieces(5, jnp.float32)
    pieces.write(1, jnp.ones(3))
    assert [pieces.read(k, k).size for k in range(6)] == [0] * 6
    assert pieces.whole().tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]


class TestPrograms:
    def test_layers_are_matrix_products_without_gathers(self):
        loss, model = moons_loss(points=20)
        program = compile(loss, model.parameters(), backend="xla").to_jax(gradient=True, native=False)
        text = jax.jit(program).lower(jnp.zeros(337), jnp.zeros(40)).as_text()
        assert text.count("dot_general") >= 8  # three layers forward, their weights and two layers' inputs backward
        assert "gather" not in text
        assert "scatter" not in text

    def test_products_are_as_precise_as_the_user_says_and_else_in_full(self):
        _, compiled, parameters = network()
        f, arguments = compiled.to_jax([0.0, 0.0], 0.0, native=False), (parameters, jnp.zeros(2), 0.0)
        assert "Precision.HIGHEST" in str(jax.make_jaxpr(f)(*arguments))
        with jax.default_matmul_precision("tensorfloat32"):
            program = str(jax.make_jaxpr(f)(*arguments))
        assert "Precision.HIGH," in program
        assert "Precision.HIGHEST" not in program

    def test_a_recurrence_is_a_loop(self):
        loss, wrt = PROGRAMS["hidden units"]()
        program = compile(loss, wrt, backend="interpreter").to_jax(gradient=True, native=False)
        leaves = len(chainrule.compiler.graph_of(loss, wrt).leaves("input"))
        text = jax.jit(program).lower(jnp.zeros(len(wrt)), jnp.zeros(leaves)).as_text()
        assert text.count("stablehlo.while") == 2  # in time, and back

    def test_the_weights_of_a_recurrent_net_get_one_product_for_all_times(self, carried):
        """In the loops there are no products for the gradient of the weights, and no sum is carried through them."""
        loss, wrt = PROGRAMS["hidden units"]()
        program = compile(loss, wrt, backend="interpreter")
        inputs = len(chainrule.compiler.graph_of(loss, wrt).leaves("input"))
        jaxpr = jax.make_jaxpr(program.to_jax(gradient=True, native=False))(jnp.zeros(len(wrt)), jnp.zeros(inputs))
        loops = [equation for equation in jaxpr.eqns if equation.primitive.name == "scan"]
        inside = sum(str(loop.params["jaxpr"]).count("dot_general") for loop in loops)
        assert inside == 2  # the state through the weights, and its gradient back through them
        assert str(jaxpr).count("dot_general") > inside
        assert len(carried) == len(loops) == 2
        assert max(max(sizes) for sizes in carried) < 16  # the weights are 4 × 4

    def test_a_loop_carries_rows_and_not_the_arrays_of_all_times(self, carried):
        state, rate = [Value(0.1 * k) for k in range(6)], Value(0.3)
        leaves = [*state, rate]
        for _ in range(50):
            state = [x + rate * (y - x).tanh() for x, y in zip(state, [*state[1:], state[0]], strict=True)]
        program = compile(sum(x * x for x in state), leaves)
        program.to_jax(gradient=True, native=False)(jnp.zeros(7))
        assert len(carried) == 2
        assert max(max(sizes) for sizes in carried) <= 2 * 6

    def test_a_table_of_few_runs_is_slices(self):
        ring = [Value(math.sin(k)) for k in range(20)]
        turned = [a * b for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)]
        program = compile(sum(v.tanh() for v in turned), ring)
        text = str(jax.make_jaxpr(program.to_jax(gradient=True, native=False))(jnp.zeros(20)))
        assert "table" in program.describe()
        assert "gather" not in text
        assert "scatter" not in text

    @given(positions=st.lists(st.integers(0, 9), min_size=1, max_size=12), data=st.data())
    @settings(relaxed, max_examples=30)
    def test_any_table_in_boxes(self, positions, data):
        """Where a table is cut into boxes, they read and add to what the table names, each element once."""
        table = np.array(positions)
        width = data.draw(st.sampled_from([n for n in range(1, len(table) + 1) if len(table) % n == 0]))
        loops = (len(table) // width, width)
        access = Access(Array("x", 10, "input"), 0, (width, 1), table)
        found = in_boxes(access, loops)
        if found is not None:
            read = found.assembled(lambda part, shape: jnp.array(part.positions(shape)))
            assert read.tolist() == table.reshape(loops).tolist()
            turns = np.zeros(loops)
            for box in found.boxes():
                turns[box.turns] += 1
            assert (turns == 1).all()

    @given(
        extents=st.lists(st.integers(1, 4), min_size=0, max_size=3),
        gaps=st.lists(st.integers(0, 3), min_size=3, max_size=3),
        base=st.integers(0, 3),
        order=st.permutations(range(3)),
        signs=st.lists(st.sampled_from([1, -1]), min_size=3, max_size=3),
        accumulate=st.booleans(),
    )
    @settings(relaxed, max_examples=15)
    def test_any_path_through_an_array(self, extents, gaps, base, order, signs, accumulate):
        """Read elements along one path and write them along it: what NumPy does by positions."""
        strides, step = [], 1
        for extent, gap in zip(extents, gaps, strict=False):
            strides.append(step + gap)
            step = (step + gap) * extent
        places = [k for k in order if k < len(extents)]
        loops = tuple(extents[k] for k in places)
        moves = tuple(signs[k] * strides[k] for k in places)
        start = base + sum((n - 1) * -s for n, s in zip(loops, moves, strict=True) if s < 0)
        source, target = Array("x", base + step + 2, "input"), Array("y", base + step + 2, "captured")
        read, write = Access(source, start, moves), Access(target, start, moves)
        assert Path.of(read, loops) is not None
        statement = Statement(write, loops, [Term(Apply(chainrule.ops.add, (read, read)))], accumulate)
        runner = Xla(ArrayProgram([statement], {"input": source, "captured": target}, target))
        runner.views[source][:] = np.arange(source.size)
        runner.views[target][:] = expected = np.full(target.size, 0.5)
        runner.run()
        where = read.positions(loops)
        expected[where] = 2.0 * where + (0.5 if accumulate else 0.0)
        assert runner.views[target].tolist() == expected.tolist()


class TestFunctions:
    def test_of_a_value(self):
        a, b, idle, c = Value(2.0), Value(3.0), Value(7.0), Value(5.0)
        program = compile(a * b + c * c, wrt=[c, idle, a])
        value, gradient = jax.jit(program.to_jax(gradient=True, native=False))(
            jnp.array([5.0, 7.0, 2.0]), jnp.array([3.0])
        )
        assert (float(value), gradient.tolist()) == (31.0, [10.0, 0.0, 3.0])
        assert float(compile(a * b).to_jax(native=False)([2.0, 4.0])) == 8.0

    def test_of_a_function_for_jit_vmap_and_grad(self):
        _, f, parameters = network()
        program = jax.jit(f.to_jax([0.0, 0.0], 0.0, native=False))
        x, y = np.random.default_rng(0).normal(size=(7, 2)), np.linspace(-1, 1, 7)
        batch = jax.jit(jax.vmap(program, (None, 0, 0)))
        assert batch(parameters, x, y) == pytest.approx(f.batch(x, y, reduce=None), abs=1e-5)
        value, gradient = f.value_and_grad(x[0].tolist(), 0.5)
        theirs = jax.jit(jax.grad(program))(parameters, x[0], 0.5)
        ours = jax.jit(f.to_jax(gradient=True, native=False))(parameters, x[0], 0.5)
        assert theirs == pytest.approx(gradient, abs=1e-5)
        assert ours[0] == pytest.approx(value, abs=1e-5)
        assert ours[1] == pytest.approx(gradient, abs=1e-5)

    def test_many_examples(self):
        _, f, parameters = network()
        x, y = np.random.default_rng(0).normal(size=(13, 2)), np.linspace(-1, 1, 13)
        value, gradient = f.batch_value_and_grad(x, y)
        program = f.to_jax([0.0, 0.0], 0.0, gradient=True, examples=13, native=False)
        ours = jax.jit(program)(parameters, x, y)
        assert ours[0] == pytest.approx(value, abs=1e-5)
        assert ours[1] == pytest.approx(gradient, abs=1e-5)
        text = jax.jit(program).lower(parameters, x, y).as_text()
        assert "gather" not in text
        assert "scatter" not in text

    def test_small_factors_are_kept_out_of_products_on_a_gpu(self, monkeypatch):
        _, f, parameters = network()
        x, y = np.random.default_rng(0).normal(size=(13, 2)), np.linspace(-1, 1, 13)

        def lowered():
            program = f.to_jax([0.0, 0.0], 0.0, gradient=True, examples=13, native=False)
            return jax.jit(program).lower(parameters, x, y).as_text(), program(parameters, x, y)

        monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
        fused, (value, gradient) = lowered()
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        apart, (same, derivatives) = lowered()
        assert "optimization_barrier" not in fused
        assert "optimization_barrier" in apart
        assert float(same) == pytest.approx(float(value), rel=1e-6)
        assert derivatives.tolist() == pytest.approx(gradient.tolist(), abs=1e-6)
        monkeypatch.setattr("chainrule.compiler.backends.xla.statements.SMALL", 0)
        assert "optimization_barrier" not in lowered()[0]

    def test_many_examples_with_arguments_that_are_not_used(self):
        w, scale = Value(2.0), Value(10.0)
        f = compile(lambda a, xs, b: w * xs[1] * scale + b, wrt=[w])
        program = f.to_jax(0.0, [0.0, 0.0, 0.0], 0.0, gradient=True, examples=2, native=False)
        xs = np.array([[1.0, 2.0, 3.0], [4.0, 6.0, 7.0]])
        value, gradient = program([2.0], np.zeros(2), xs, np.array([1.0, 3.0]))
        assert (float(value), gradient.tolist()) == (82.0, [40.0])

    def test_a_recurrence_can_be_differentiated_by_jax(self):
        loss, wrt = PROGRAMS["recurrent net"]()
        program = compile(loss, wrt)
        leaves = chainrule.compiler.graph_of(loss, wrt)
        inputs = jnp.array([leaf.data for leaf in leaves.leaves("input")])
        theirs = jax.jit(jax.grad(program.to_jax(native=False)))(jnp.array([v.data for v in wrt]), inputs)
        assert theirs == pytest.approx(program.value_and_grad()[1], abs=1e-6)

    def test_numbers_keep_their_type(self):
        _, f, parameters = network()
        program = jax.jit(f.to_jax([0.0, 0.0], 0.0, gradient=True, native=False))
        assert program(parameters, [0.1, 0.2], 1)[1].dtype == jnp.float32
        with jax.enable_x64(True):
            wide = jnp.array(np.array(parameters, dtype=np.float64))
            value, gradient = program(wide, np.array([0.1, 0.2]), 1.0)
            assert gradient.dtype == jnp.float64
            assert program(parameters, np.array([0.1, 0.2]), 1.0)[1].dtype == jnp.float64
            expected = f.value_and_grad([0.1, 0.2], 1.0)[0]
        assert float(value) == pytest.approx(expected, rel=1e-6)

    def test_results_keep_their_structure(self):
        w, scale = Value(2.0), Value(10.0)
        f = compile(lambda x: ([w * x[0], scale], np.array([x, x]), 7.0), wrt=[w])
        (first, second), matrix, last = f.to_jax(np.zeros(3), native=False)(
            jnp.array([2.0]), jnp.array([1.0, 2.0, 3.0])
        )
        assert (float(first), float(second), float(last)) == (2.0, 10.0, 7.0)
        assert matrix.tolist() == [[1.0, 2.0, 3.0]] * 2

    def test_doubles_are_for_our_programs_only(self):
        x = Value(1.0)
        value, _ = compile((x / 3.0).exp(), backend="xla").value_and_grad()
        assert value == pytest.approx(math.exp(1 / 3), rel=1e-15)
        assert not jax.config.jax_enable_x64
        assert jnp.zeros(1).dtype == jnp.float32


class TestErrors:
    def test_too_few_numbers(self):
        _, f, parameters = network()
        program = f.to_jax([0.0, 0.0], 0.0)
        with pytest.raises(ValueError, match="`parameters` must have 44 numbers in all, got 1"):
            program(jnp.zeros(1), [0.0, 0.0], 0.0)
        with pytest.raises(ValueError, match="the arguments must have 3 numbers in all, got 2"):
            program(parameters, [0.0, 0.0])

    def test_examples_that_do_not_fit(self):
        _, f, parameters = network()
        for examples in (0, 1.5, True):
            with pytest.raises(ValueError, match="`examples` must be a whole number of at least 1"):
                f.to_jax([0.0, 0.0], 0.0, examples=examples)
        program = f.to_jax([0.0, 0.0], 0.0, examples=3)
        with pytest.raises(ValueError, match=r"a leading axis of 3 examples, got shapes \(3, 2\), \(2,\)"):
            program(parameters, np.zeros((3, 2)), np.zeros(2))
        with pytest.raises(ValueError, match="must have 3 numbers for each example, got 2"):
            program(parameters, np.zeros((3, 2)))

    def test_a_gradient_is_that_of_one_number(self):
        with pytest.raises(TypeError, match="a gradient is that of one number"):
            compile(lambda x: [x, x]).to_jax(1.0, gradient=True)

    def test_without_jax(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "jax", None)
        monkeypatch.delitem(sys.modules, "chainrule.compiler.backends.xla")
        with pytest.raises(ImportError, match=r"need the package jax, .*pip install 'chainrule\[jax\]'"):
            compile(Value(1.0) * 2.0, backend="jax")

    def test_only_this_backend_imports_jax(self):
        code = "import sys, chainrule; chainrule.compile(chainrule.Value(2.0) ** 2)(); assert 'jax' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)


class TestPlacesThatGetNumbers:
    """Writes to irregular places as reads (`backends.xla.tables`)."""

    def test_each_place_finds_its_numbers(self):
        places, value = np.array([[3, 0, 2], [1, 3, 2], [0, 1, 0], [1, 2, 3]]), jnp.arange(12.0).reshape(4, 3)
        rounds = sources(places, 4)
        assert rounds.shape == (3, 4)
        expected = np.zeros(4)
        np.add.at(expected, places, value)
        assert np.array_equal(gathered(value, rounds).sum(axis=0), expected)

    @pytest.mark.parametrize("places", [[0, 0, 1], [0, 2, 2, 0]])
    def test_places_that_get_more_than_others_are_left_to_a_scatter(self, places):
        assert sources(np.array(places), max(places) + 1) is None

    @pytest.mark.parametrize("accumulate", [True, False])
    @pytest.mark.parametrize("before", [0, 3])
    def test_they_are_written_as_by_the_interpreter(self, accumulate, before):
        """To places from `before` on, in an array with numbers or zeros in it."""
        x, v = Array("x", 12, "input"), Array("v", 9, "value")
        table = before + np.array([4, 0, 2, 1, 3, 5] if not accumulate else [4, 0, 2, 1, 3, 5, 0, 5, 1, 2, 4, 3])
        target = Access(v, 0, (1,), table)
        steps = [
            Statement(Access(v, 0, (1,)), (9,), [Term(Access(x, 0, (1,)))]),
            Statement(target, (len(table),), [Term(Access(x, 0, (1,)))], accumulate),
        ]
        program = ArrayProgram(steps, {"input": x}, v).verify()
        found = []
        for runner in (Xla(program), Interpreted(program)):
            runner.views[x][:] = np.linspace(0.5, 3.0, 12)
            runner.run()
            found.append(np.array(runner.views[v]))
        np.testing.assert_allclose(*found, rtol=1e-14)


class TestManySmallStatements:
    """A kernel for each would take longer than the nodes do."""

    def scattered(self, leaves):
        """Hardly any two lines alike."""
        rng, terms = random.Random(1), list(leaves)
        for _ in range(600):
            a, b = rng.choice(terms), rng.choice(terms[-9:])
            terms.append(rng.choice([a * b, a - b, a.tanh(), (b * 0.1).exp(), b.sin()]))
        return sum(terms[-20:])

    @pytest.fixture(autouse=True)
    def others_compile_them(self, monkeypatch):
        monkeypatch.setattr("chainrule.compiler.passes.lift.LEAST_NODES", 0)

    def test_they_run_node_by_node_and_say_so(self):
        leaves = [Value(0.1 + 0.05 * k) for k in range(6)]
        program = compile(self.scattered(leaves), leaves, backend="xla")
        assert "to start a kernel for each would take longer than the nodes do" in program.stats["node by node"]
        assert_equals_eager(self.scattered(leaves), leaves, "xla")

    def test_so_does_a_function_but_not_its_batches(self, monkeypatch):
        monkeypatch.setattr("chainrule.compiler.passes.lift.SOME_STATEMENTS", 3)
        w = Value(0.5)
        f = compile(lambda x: (w * x).tanh() + (w - x).exp() * w.sin(), wrt=[w], backend="xla")
        one = f.value_and_grad(0.3)
        assert "node by node" in f.stats
        many = f.batch_value_and_grad(np.array([0.3, 0.3]))
        assert "node by node" not in f.stats
        assert many[0] == pytest.approx(one[0], rel=1e-12)
        assert many[1] == pytest.approx(one[1], rel=1e-12)
