"""Exported C computes what the eager code computes, and compiles without a warning."""

import math
import random
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_compiler import moons_loss
from test_ragged_sums import causal_attention, running_sums
from test_recurrence import euler, hidden_units, loss_at_every_step, recurrent_net, runge_kutta

import chainrule
import torch_ops
import torture
from c_compiler import Compiled
from chainrule import Value, data, nn
from chainrule.compiler import compile
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.lift import lift
from chainrule.compiler.passes.places import lives_in, places
from chainrule.compiler.passes.program import Repeat
from chainrule.compiler.trace.graph import graph_of
from expressions import CONTINUOUS, programs, run, tame_numbers

relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck))
SINGLE = 1e-5  # of the largest number: rounding errors of 2**-24 add up


def assert_equals_eager(loss, wrt, folder, tolerance=1e-12, dtype="float64", flags=()):
    """The value and every derivative from C against eager, relative to the size of what was added up."""
    program = compile(loss, wrt, backend="interpreter")
    compiled = Compiled(program.to_c("loss", dtype=dtype), folder, *flags)
    graph = graph_of(loss, wrt)
    buffers = {"parameters": [v.data for v in wrt]}
    if inputs := [leaf.data for leaf in graph.leaves("input")]:
        buffers["inputs"] = inputs
    (forward,) = compiled("loss", **buffers)["outputs"]
    results = compiled("loss_gradient", **buffers)
    assert results["outputs"] == pytest.approx([forward], nan_ok=True)
    for value in wrt:
        value.grad = 0.0
    loss.backward()
    scale = max(1.0, abs(loss.data), *(abs(value.grad) for value in wrt))
    assert forward == pytest.approx(loss.data, abs=tolerance * scale, nan_ok=True)
    assert results["gradient"] == pytest.approx([v.grad for v in wrt], abs=tolerance * scale, nan_ok=True)
    return compiled


PROGRAMS = {
    "moons": lambda: (lambda loss, model: (loss, model.parameters()))(*moons_loss(points=20)),
    "gelu": lambda: (lambda loss, model: (loss, model.parameters()))(*moons_loss(points=5, activation="gelu")),
    "numbers as inputs": lambda: (lambda a, b: (a, b.parameters()))(*moons_loss(points=5, inputs=float)),
    "recurrent net": lambda: recurrent_net(30),
    "a loss at every step": lambda: loss_at_every_step(30),
    "hidden units": lambda: hidden_units(20),
    "Euler": lambda: euler(50),
    "Runge-Kutta": lambda: runge_kutta(20),
    "running sums": lambda: running_sums(8),
    "attention": lambda: causal_attention(6, 4),
    "two layers of attention": lambda: causal_attention(4, 3, layers=2),
}


class TestEquality:
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_programs(self, name, tmp_path):
        assert_equals_eager(*PROGRAMS[name](), tmp_path)

    @pytest.mark.parametrize("name", PROGRAMS)
    def test_programs_in_floats_that_never_become_doubles(self, name, tmp_path):
        assert_equals_eager(*PROGRAMS[name](), tmp_path, SINGLE, "float32", ["-Wdouble-promotion"])

    def test_every_op(self, tmp_path):
        for dtype, tolerance in (("float64", 1e-12), ("float32", SINGLE)):
            rng = random.Random(1)
            leaves, terms = [], []
            for row in map(chainrule.ops.TABLE.get, torch_ops.FUNCTIONS):
                for k in range(3):
                    operands = [Value(rng.uniform(*interval)) for interval in row.domain]
                    leaves += operands
                    terms.append(row(*operands) * (k + 1.0))
            assert_equals_eager(sum(terms), leaves, tmp_path, tolerance, dtype)

    @pytest.mark.parametrize("exponent", [2, 3, -1, -2, 0.5, -0.5, 1.5, 0, 1, 7, 2.3, 40])
    def test_powers(self, exponent, tmp_path):
        xs = [Value(0.3 + 0.1 * k) for k in range(5)]
        assert_equals_eager(sum(x**exponent for x in xs), xs, tmp_path)

    def test_special_numbers(self, tmp_path):
        xs = [Value(x) for x in (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-320, 1e308)]
        for name in ("exp", "log", "sqrt", "tanh", "sigmoid", "relu", "abs"):
            model = compile(lambda x, name=name: getattr(x, name)())
            compiled = Compiled(model.to_c("f", 0.0), tmp_path / name if (tmp_path / name).mkdir() is None else None)
            for x in xs:
                assert compiled("f", inputs=[x.data])["outputs"] == pytest.approx(
                    [getattr(x, name)().data], nan_ok=True
                )

    def test_constants_that_are_not_finite(self, tmp_path):
        for number in (math.inf, -math.inf, math.nan, -0.0, 5e-324, 1e308, -1.5):
            f = compile(lambda x, number=number: chainrule.where(x > 0.0, x + number, -x - number))
            for dtype in ("float64", "float32"):
                compiled = Compiled(f.to_c("f", 0.0, dtype=dtype), tmp_path)
                with np.errstate(over="ignore"):
                    expected = [compiled.dtype(number) + 2, compiled.dtype(-number) + 2]
                for x, y in zip((2.0, -2.0), expected, strict=True):
                    assert compiled("f", inputs=[x])["outputs"] == pytest.approx([y], nan_ok=True)

    @given(program=programs(rows=CONTINUOUS, numbers=tame_numbers, most_nodes=40))
    @settings(relaxed, max_examples=15)
    def test_random_programs(self, program):
        leaves, nodes = run(program, Value, lambda row, operands: Value._apply(row, tuple(operands)))
        nodes[-1].backward()
        assume(all(math.isfinite(v.data) and abs(v.data) < 1e6 and abs(v.grad) < 1e6 for v in nodes))
        reach = sum(abs(v.data * v.grad) for v in nodes)
        with tempfile.TemporaryDirectory() as folder:
            assert_equals_eager(nodes[-1], leaves, Path(folder), 1e-12 * max(1.0, reach))

    @given(seed=st.integers(0, 10**6))
    @settings(relaxed, max_examples=15)
    def test_random_programs_of_arrays(self, seed):
        """Matrix products, stencils, running sums, gathers and loops in time."""
        graph = torture.smooth_graph(seed)
        assume(graph)
        leaves, root, reach = graph
        with tempfile.TemporaryDirectory() as folder:
            assert_equals_eager(root, leaves, Path(folder), 1e-12 * reach)

    def test_an_op_that_a_user_added(self, tmp_path):
        @chainrule.op(lambda out, x: 3.0 * x * x)
        def cube(x):
            return x * x * x

        x = Value(1.5)
        assert_equals_eager(cube(cube(cube(x))), [x], tmp_path)

    def test_code_in_which_nothing_repeats(self, tmp_path, monkeypatch):
        monkeypatch.setattr("chainrule.compiler.pipeline.MOST_STATEMENTS", 3)
        x, y = Value(1.5), Value(-0.5)
        z = x * x + (x * y).tanh() + y * y * y
        assert_equals_eager(z * z.exp() + z / (x - y) + z, [x, y], tmp_path)

    def test_a_leaf_alone(self, tmp_path):
        x = Value(3.0)
        assert_equals_eager(x, [x], tmp_path)


class TestBuffers:
    def test_parameters_are_in_the_order_of_wrt(self, tmp_path):
        a, b, idle, c = Value(2.0), Value(3.0), Value(7.0), Value(5.0)
        program = compile(a * b + c * c, wrt=[c, idle, a])
        compiled = Compiled(program.to_c("f"), tmp_path)
        results = compiled("f_gradient", parameters=[5.0, 7.0, 2.0], inputs=[3.0])
        assert results["outputs"].tolist() == [31.0]
        assert results["gradient"].tolist() == program.value_and_grad()[1].tolist() == [10.0, 0.0, 3.0]

    def test_inputs_are_all_numbers_of_the_arguments(self, tmp_path):
        w, captured = [Value(2.0), Value(3.0)], Value(10.0)
        f = compile(lambda xs, unused, y: (w[0] * xs[0] + w[1] * xs[2] - y) ** 2 + captured, wrt=w)
        header = f.to_c("f", [1.0, 0.0, 2.0], 0.0, 4.0)
        assert "inputs      0 to 2: xs, 3: unused, 4: y" in header
        compiled = Compiled(header, tmp_path)
        results = compiled("f_gradient", parameters=[2.0, 3.0], captured=[10.0], inputs=[1.0, 0.0, 2.0, 0.0, 4.0])
        value, gradient = f.value_and_grad([1.0, 0.0, 2.0], 0.0, 4.0)
        assert results["outputs"].tolist() == [value]
        assert results["gradient"].tolist() == gradient.tolist()

    def test_several_outputs(self, tmp_path):
        w = [Value(0.1 * k) for k in range(6)]

        def layer(x):
            return [sum(w[2 * i + j] * x[j] for j in range(2)).tanh() for i in range(3)], x[1] * 2.0, 7.0

        f = compile(layer)
        header = f.to_c("layer", [1.0, 2.0])
        assert "layer_gradient" not in header
        (outputs,) = Compiled(header, tmp_path)("layer", parameters=[v.data for v in w], inputs=[0.3, -0.4]).values()
        first, *others = f([0.3, -0.4])
        assert outputs == pytest.approx([*first, *others], rel=1e-15)

    def test_no_wrt_no_gradient(self, tmp_path):
        xs = [Value(float(k)) for k in range(9)]
        header = compile(sum(x * x for x in xs), wrt=()).to_c("squares")
        assert "gradient" not in header
        assert Compiled(header, tmp_path)("squares", inputs=range(9))["outputs"].tolist() == [204.0]

    def test_frozen_parameters_are_constants(self, tmp_path):
        model = nn.MLP(2, [16, 16, 1], activation="tanh", rng=1)
        scale = Value(0.3)
        f = compile(lambda x: model(x) * scale, wrt=model.parameters())
        for dtype, tolerance in (("float64", 1e-14), ("float32", 1e-6)):
            header = f.to_c("net", [0.0, 0.0], dtype=dtype, freeze=True)
            compiled = Compiled(header, tmp_path)
            assert compiled.buffers.keys() == {"net"}
            assert [name for _, name, _ in compiled.buffers["net"]] == ["inputs", "outputs", "workspace"]
            for x in data.moons(10).inputs:
                assert compiled("net", inputs=x)["outputs"] == pytest.approx([model(x).data * 0.3], abs=tolerance)

    def test_all_leaves_frozen(self, tmp_path):
        a, b = Value(2.0), Value(3.0)
        header = compile(a * b).to_c("product", freeze=True)
        assert Compiled(header, tmp_path)("product")["outputs"].tolist() == [6.0]

    def test_arguments_that_nothing_depends_on(self, tmp_path):
        w = Value(2.0)
        header = compile(lambda x: w * w).to_c("f", 1.0)
        results = Compiled(header, tmp_path)("f_gradient", parameters=[2.0], inputs=[5.0])
        assert [list(result) for result in results.values()] == [[4.0], [4.0]]

    def test_the_last_call_says_which_program(self):
        f = compile(lambda xs: sum(xs))
        with pytest.raises(RuntimeError, match="has not been traced yet"):
            f.to_c("total")
        f([1.0, 2.0, 3.0])
        assert "#define TOTAL_INPUTS 3" in f.to_c("total")
        assert "#define TOTAL_INPUTS 2" in f.to_c("total", [1.0, 2.0])


class TestMemory:
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_arrays_that_live_at_the_same_time_lie_apart(self, name):
        program = differentiate(lift(graph_of(*PROGRAMS[name]())))
        offsets, size = places(lives_in(step.body for step in program.steps), lambda array: array.size)
        lives = {}
        for time, step in enumerate(program.steps):
            for statement in step.body if isinstance(step, Repeat) else (step,):
                for access in (statement.target, *statement.accesses()):
                    lives.setdefault(access.array, set()).add(time)
        arrays = list(offsets)
        for k, a in enumerate(arrays):
            assert offsets[a] + a.size <= size
            for b in arrays[:k]:
                meet = min(lives[a]) <= max(lives[b]) and min(lives[b]) <= max(lives[a])
                apart = offsets[a] + a.size <= offsets[b] or offsets[b] + b.size <= offsets[a]
                assert apart or not meet

    def test_inference_needs_room_for_neighbouring_arrays_only(self):
        model = nn.MLP(2, [16, 8, 15, 9, 14, 1], rng=1)
        header = compile(lambda x: model(x), wrt=model.parameters()).to_c("deep", [0.0, 0.0])
        (size,) = re.findall(r"#define DEEP_WORKSPACE (\d+)\n", header)
        assert 16 + 16 <= int(size) <= 40  # where all arrays together take 124

    def test_nothing_is_called_but_mathematics(self, tmp_path):
        loss, model = moons_loss(points=5, activation="tanh")
        compiled = Compiled(compile(loss, model.parameters()).to_c("loss"), tmp_path, "-ffreestanding", optimize="-Os")
        listed = subprocess.run(["nm", "-uD", compiled.library], capture_output=True, text=True, check=True).stdout
        called = {line.split()[-1].split("@")[0] for line in listed.splitlines()}
        assert {name for name in called if not name.startswith(("_", "__"))} == {"tanh"}
        includes = re.findall(r"#include (\S+)", compiled.header)
        assert includes == ["<math.h>"]


class TestErrors:
    @pytest.mark.parametrize("name", ["2net", "my net", "", "é", "a-b", "_x"])
    def test_a_name_must_be_an_identifier(self, name):
        with pytest.raises(ValueError, match=r"`name` must be a C identifier, got .*: begin with a letter"):
            compile(Value(1.0) * 2.0).to_c(name)

    @pytest.mark.parametrize("name", ["double", "exp", "tanhf", "main"])
    def test_a_name_must_not_be_taken(self, name):
        with pytest.raises(ValueError, match=f"`name` must not be '{name}', which is a word or a function of C"):
            compile(Value(1.0) * 2.0).to_c(name)

    def test_the_type_must_be_known(self):
        x = Value(1.0)
        with pytest.raises(ValueError, match="`dtype` must be one of float64, float32; got 'half'"):
            compile(x * 2.0).to_c("f", dtype="half")
        with pytest.raises(ValueError, match="`dtype` must be one of"):
            compile(lambda x: x * 2.0).to_c("f", 1.0, dtype="half")
