"""Programs in single precision are right to single precision; batches in threads are the same as without."""

import math
import os
import random
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import chainrule
import torch_ops
from chainrule import Value, data, losses, nn, ops
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.backends.llvm import Native, kernels, native
from chainrule.compiler.backends.llvm.text import DOUBLE, ELEMENTS
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Statement, Term
from chainrule.compiler.run import traced
from chainrule.compiler.run.threads import threads_for

TYPES = ("float32", "float64")
EPSILON = 2.0**-23  # the distance from 1 to the next float32
LARGEST = float(np.finfo(np.float32).max)
# Of an op's formula, its constants included; one, if it has but one function.
ROUNDINGS = {"sigmoid": 3, "softplus": 3, "silu": 4, "gelu": 6, "elu": 2, "degrees": 2, "radians": 2}

backends = pytest.mark.parametrize("backend", ["llvm", "interpreter"])


def as_float32(number):
    return float(np.float32(number))


def assert_close(ours, theirs, tolerance):
    """Equal relative to the largest number, but for `tolerance`."""
    scale = np.max(np.abs(theirs))
    assert np.max(np.abs(np.asarray(ours) - theirs)) <= tolerance * scale


def both_types(target, wrt=None, backend="llvm"):
    """(result, gradient) in single and in double precision."""
    return [chainrule.compile(target, wrt, dtype=dtype, backend=backend).value_and_grad() for dtype in TYPES]


def evaluate(op, columns, runner, dtype):
    """An op of many numbers, as a program of that type computes it."""
    leaf = Array("x", columns.size, "input")
    out = Array("y", columns.shape[1], "value")
    operands = tuple(Access(leaf, k * columns.shape[1], (1,)) for k in range(len(columns)))
    steps = [Statement(Access(out, 0, (1,)), (out.size,), [Term(Apply(op, operands))])]
    machine = runner(ArrayProgram(steps, {"input": leaf}, out), dtype)
    machine.views[leaf][:] = columns.reshape(-1)
    machine.run()
    assert machine.views[out].dtype == dtype
    return machine.views[out].astype(np.float64)


class TestSinglePrecision:
    @backends
    @pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu"])
    def test_networks(self, backend, activation):
        model = nn.MLP(2, [16, 16, 1], activation=activation, rng=random.Random(3))
        points = data.micrograd_moons()[:37]
        loss = losses.hinge([model(x) for x in points.inputs], points.targets) + losses.l2(1e-4)(model.parameters())
        (value, gradient), (true_value, true_gradient) = both_types(loss, model.parameters(), backend)
        assert value == pytest.approx(true_value, rel=1e-5)
        assert_close(gradient, true_gradient, 1e-5)

    @backends
    def test_a_recurrence(self, backend):
        w, u, h = Value(0.5), Value(0.3), Value(0.0)
        for t in range(50):
            h = (w * h + u * math.sin(t)).tanh()
        (value, gradient), (true_value, true_gradient) = both_types(h * h, [w, u], backend)
        assert value == pytest.approx(true_value, rel=1e-5)
        assert_close(gradient, true_gradient, 1e-5)

    def test_positions_in_tables(self):
        model = nn.MLP(2, [5, 3], activation="tanh", rng=1)
        points = data.blobs(n=30)
        loss = losses.cross_entropy([model(x) for x in points.inputs], points.targets)
        (value, gradient), (true_value, true_gradient) = both_types(loss, model.parameters())
        assert value == pytest.approx(true_value, rel=1e-5)
        assert_close(gradient, true_gradient, 1e-5)

    @pytest.mark.parametrize("name", torch_ops.FUNCTIONS)
    def test_every_op(self, name):
        row = ops.TABLE[name]
        rng = np.random.default_rng(row.code)
        columns = np.float32([rng.uniform(*interval, 333) for interval in row.domain]).astype(np.float64)
        true = evaluate(row, columns, Native, "float64")
        for runner, tolerance in (
            (
                Native,
                1.1 if name in kernels.KERNELS else 1.7 if name in kernels.SINGLE else 0.51 * ROUNDINGS.get(name, 1),
            ),
            (Interpreted, 4.0),
        ):  # NumPy's functions
            error = np.abs(evaluate(row, columns, runner, "float32") - true) / np.maximum(np.abs(true), 0.1)
            assert error.max() <= tolerance * EPSILON

    @pytest.mark.parametrize("name", torch_ops.FUNCTIONS)
    def test_every_gradient(self, name):
        row = ops.TABLE[name]
        rng = random.Random(name)
        leaves = [[Value(as_float32(rng.uniform(*interval))) for interval in row.domain] for _ in range(19)]
        loss = sum(row(*operands) * float(k + 1) for k, operands in enumerate(leaves))
        (_, gradient), (_, true) = both_types(loss, [v for operands in leaves for v in operands])
        if np.any(true):
            assert_close(gradient, true, 2.0 * EPSILON)
        else:
            assert not np.any(gradient)

    @pytest.mark.parametrize("name", kernels.KERNELS)
    @pytest.mark.parametrize("count", [1, 2, 33, 64, 129])
    def test_elementary_functions_in_any_number_of_lanes(self, name, count):
        xs = np.float32(np.random.default_rng(count).uniform(0.01, 5.0, (1, count))).astype(np.float64)
        true = np.array([ops.TABLE[name].forward(x) for x in xs[0].tolist()])
        ours = evaluate(ops.TABLE[name], xs, Native, "float32")
        assert (np.abs(ours - true) <= 1.1 * np.spacing(np.float32(np.abs(true)))).all()

    @backends
    @pytest.mark.parametrize("exponent", [2, 3, -1, 0.5, -0.5, 7, 2.3])
    def test_powers(self, backend, exponent):
        xs = [Value(as_float32(0.3 + 0.1 * k)) for k in range(11)]
        (value, gradient), (true_value, true_gradient) = both_types(sum(x**exponent for x in xs), xs, backend)
        assert value == pytest.approx(true_value, rel=1e-6)
        assert_close(gradient, true_gradient, 1e-6)

    @backends
    @pytest.mark.parametrize("name", ["exp", "log", "sqrt", "tanh", "sigmoid", "relu", "abs", "sin", "log1p", "expm1"])
    def test_special_numbers(self, backend, name):
        specials = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0**-149, LARGEST, -LARGEST]
        runner = Native if backend == "llvm" else Interpreted
        ours = evaluate(ops.TABLE[name], np.array([specials]), runner, "float32")
        for x, y in zip(specials, ours.tolist(), strict=True):
            with np.errstate(over="ignore"):
                true = as_float32(ops.TABLE[name](x))
            assert y == pytest.approx(true, rel=1e-6, abs=0.0, nan_ok=True)
            assert math.copysign(1.0, y) == math.copysign(1.0, true) or math.isnan(y)

    @backends
    def test_what_is_too_large_becomes_infinite(self, backend):
        x = Value(1e300)
        program = chainrule.compile(x * 1e-300, dtype="float32", backend=backend)
        assert math.isnan(program())  # inf * 0
        x.data = 1e30
        assert chainrule.compile(x * x, dtype="float32", backend=backend)() == math.inf
        assert chainrule.compile(x.minimum(1e300), dtype="float32", backend=backend)() == as_float32(1e30)
        double = chainrule.compile(lambda y: 2.0 * y, dtype="float32", backend=backend)
        assert double.batch([1e39, -1e39], reduce=None).tolist() == [math.inf, -math.inf]

    @backends
    def test_arithmetic_is_single_throughout(self, backend):
        x = Value(1.0)
        program = chainrule.compile((x + 2.0**-24) - 1.0, dtype="float32", backend=backend)
        x.data = 1.0 + 2.0**-22
        assert program() == 2.0**-22
        third = Value(1.0)
        assert chainrule.compile(third / 3.0, dtype="float32", backend=backend)() == as_float32(1 / 3)

    def test_results_are_floats_and_doubles(self):
        w = Value(0.1)
        program = chainrule.compile(lambda x: [w * x, (x,)], dtype="float32")
        (first, (second,)) = program(0.3)
        assert (type(first), second) == (float, as_float32(0.3))
        assert program.batch([0.3, 0.4], reduce=None)[0].dtype == np.float64
        loss = chainrule.compile(lambda x: w * x, dtype="float32")
        value, gradient = loss.value_and_grad(0.3)
        assert (type(value), gradient.dtype, gradient.tolist()) == (float, np.float64, [as_float32(0.3)])
        value, gradient = loss.batch_value_and_grad([0.3, 0.3])
        assert (type(value), gradient.dtype, gradient.tolist()) == (float, np.float64, [as_float32(0.3)])
        assert type(chainrule.compile(w * 2.0, dtype="float32")()) is float

    def test_half_the_memory_and_twice_the_lanes(self):
        xs = [Value(0.01 * k) for k in range(640)]
        sizes = [chainrule.compile(sum(x * x for x in xs), dtype=dtype).stats["bytes"] for dtype in TYPES]
        assert 2 * sizes[0] == pytest.approx(sizes[1], rel=0.05)
        assert native.host().lanes(4) == 2 * native.host().lanes(8)

    def test_constants_are_exact_in_their_type(self):
        literal = ELEMENTS["float32"].literal
        assert literal(0.1) == DOUBLE.literal(as_float32(0.1)) != DOUBLE.literal(0.1)
        assert literal(1e300) == DOUBLE.literal(math.inf)

    @backends
    def test_gradients_of_runs_are_added_up_in_doubles(self, backend, monkeypatch):
        monkeypatch.setattr(traced, "CACHE", 0)  # 16 examples a run
        w = Value(1.0)
        program = chainrule.compile(lambda x: w * x, dtype="float32", backend=backend)
        _, gradient = program.batch_value_and_grad([2.0**20] * 16 + [0.125] * 8, reduce="sum")
        assert gradient.tolist() == [2.0**24 + 1.0]

    def test_a_decorator_and_a_method(self):
        class Model:
            def __init__(self, w):
                self.w = Value(w)

            @chainrule.compile(dtype="float32")
            def double(self, x):
                return self.w * x

        assert Model(0.1).double(1.0) == as_float32(0.1)


class TestThreads:
    def program(self, dtype="float64", backend="llvm"):
        model = nn.MLP(2, [8, 1], activation="tanh", rng=random.Random(1))
        return chainrule.compile(
            lambda x, y: (1.0 - y * model(x)).relu(), wrt=model.parameters(), dtype=dtype, backend=backend
        )

    def examples(self, count):
        rng = np.random.default_rng(count)
        return rng.normal(size=(count, 2)), rng.choice([-1.0, 1.0], count)

    @pytest.fixture(autouse=True)
    def small_runs(self, monkeypatch):
        monkeypatch.setattr(traced, "CACHE", 0)  # 64 examples a run

    @pytest.mark.parametrize("dtype", TYPES)
    @pytest.mark.parametrize("count", [1, 63, 64, 1000, 64 * 33, 5000])
    def test_results_do_not_depend_on_threads(self, dtype, count):
        program, examples = self.program(dtype), self.examples(count)
        value, gradient = program.batch_value_and_grad(*examples, threads=1)
        each = program.batch(*examples, reduce=None, threads=1)
        assert value == pytest.approx(each.mean(), rel=1e-12 if dtype == "float64" else 1e-5)
        for threads in (2, 3, 5, 100, None):
            for _ in range(3):
                again, slopes = program.batch_value_and_grad(*examples, threads=threads)
                assert (again, slopes.tolist()) == (value, gradient.tolist())
            assert np.array_equal(program.batch(*examples, reduce=None, threads=threads), each)

    def test_as_one_by_one(self):
        program, (xs, ys) = self.program(), self.examples(600)
        pairs = [program.value_and_grad(x.tolist(), y) for x, y in zip(xs, ys.tolist(), strict=True)]
        value, gradient = program.batch_value_and_grad(xs, ys, reduce="sum", threads=3)
        assert value == pytest.approx(math.fsum(pair[0] for pair in pairs), rel=1e-12)
        assert_close(gradient, np.sum([pair[1] for pair in pairs], axis=0), 1e-12)

    def test_the_interpreter_too(self):
        program, examples = self.program(backend="interpreter"), self.examples(64 * 17)
        value, gradient = program.batch_value_and_grad(*examples, threads=1)
        again, slopes = program.batch_value_and_grad(*examples, threads=4)
        assert (again, slopes.tolist()) == (value, gradient.tolist())

    def test_every_thread_sees_the_present_parameters(self):
        w = Value(1.0)
        program = chainrule.compile(lambda x: w * x)
        xs = np.ones(64 * 40)
        for number in (1.0, 2.0, -3.0):
            w.data = number
            assert program.batch(xs, threads=4) == number

    def test_code_is_compiled_once(self, monkeypatch):
        compiled = []
        compile_text = native.compiled
        monkeypatch.setattr(native, "compiled", lambda *given: compiled.append(given) or compile_text(*given))
        program = self.program()
        for threads in (1, 4, 2):
            program.batch(*self.examples(64 * 40), threads=threads)
        assert len(compiled) == 1

    def test_threads_are_used(self, monkeypatch):
        seen = set()
        run_many = Native.run_many

        def spy(self, *arguments):
            seen.add((threading.get_ident(), self.address))
            return run_many(self, *arguments)

        monkeypatch.setattr(Native, "run_many", spy)
        program = self.program()
        program.batch(*self.examples(64 * 7))
        assert len(seen) == 1  # a small batch is not worth a second
        program.batch(*self.examples(64 * 64), threads=4)
        assert len({address for _, address in seen}) == 4

    def test_how_many_follow_from_the_work_that_there_is(self, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(4), raising=False)
        runs = range(0, 64 * 32, 64)
        assert [threads_for(runs, None, seconds) for seconds in (1e-6, None, 3e-5, 1e-2)] == [1, 1, 2, 4]
        assert threads_for(runs, 3, 1e-6) == 3

    def test_an_error_in_a_thread_is_raised(self, monkeypatch):
        def fail(self, *arguments):
            if threading.current_thread() is not threading.main_thread():
                raise MemoryError("planted")
            return run_many(self, *arguments)

        run_many = Native.run_many
        monkeypatch.setattr(Native, "run_many", fail)
        with pytest.raises(MemoryError, match="planted"):
            self.program().batch(*self.examples(64 * 64), threads=2)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
    def test_a_forked_process_starts_threads_of_its_own(self):
        code = """
            import os, warnings, chainrule
            warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
            program, xs = chainrule.compile(lambda x: x * 2.0), [1.0] * 100_000
            assert program.batch(xs, threads=2) == 2.0
            child = os.fork()
            if not child:
                os._exit(int(program.batch(xs, threads=2)))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)

    def test_arguments_that_are_not_used(self):
        w = Value(2.0)
        xs = np.arange(64.0 * 20 * 3).reshape(-1, 3)
        middle = chainrule.compile(lambda x, y, z: w * x[1] + z[0] * z[2])
        expected = (2.0 * xs[:, 1] + xs[:, 0] * xs[:, 2]).tolist()
        assert middle.batch(xs, xs[:, 0], xs, reduce=None, threads=2).tolist() == expected
        constant = chainrule.compile(lambda x: w * w)
        assert constant.batch(xs[:, 0], reduce=None, threads=2).tolist() == [4.0] * len(xs)
        assert constant.batch_value_and_grad(xs[:, 0], reduce="sum", threads=2)[0] == 4.0 * len(xs)


class TestMistakes:
    @pytest.mark.parametrize("target", [Value(1.0), lambda x: x])
    def test_an_unknown_type(self, target):
        with pytest.raises(ValueError, match="`dtype` must be one of float64, float32; got 'float16'"):
            chainrule.compile(target, dtype="float16")
        with pytest.raises(ValueError, match="`dtype` must be one of float64, float32"):
            chainrule.compile(dtype=np.float32)

    def test_strict_is_double(self):
        with pytest.raises(ValueError, match="a `strict` program repeats eager code, which is float64"):
            chainrule.compile(Value(1.0) * 2.0, strict=True, dtype="float32")

    @pytest.mark.parametrize("threads", [0, -1, 1.5, "all"])
    def test_a_wrong_number_of_threads(self, threads):
        program = chainrule.compile(lambda x: x * 2.0)
        message = "`threads` must be a whole number of at least 1, or None for as many as pay; got"
        for call in (program.batch, program.batch_value_and_grad):
            with pytest.raises(ValueError, match=message):
                call([1.0, 2.0], threads=threads)


@pytest.mark.parametrize("made", ["a graph", "a function"])
def test_what_has_no_loops_runs_in_double_precision(monkeypatch, made):
    monkeypatch.setattr("chainrule.compiler.pipeline.MOST_STATEMENTS", 2)

    def f(x):
        return chainrule.exp(x * 3.0) / (1.0 + chainrule.sin(x))

    x = Value(0.1)
    program = chainrule.compile(f(x), dtype="float32") if made == "a graph" else chainrule.compile(f, dtype="float32")
    found = program() if made == "a graph" else program(0.1)
    assert found == math.exp(0.1 * 3.0) / (1.0 + math.sin(0.1))
    assert "double precision" in program.stats["node by node"]
