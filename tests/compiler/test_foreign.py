"""On a CPU, XLA calls our machine code: with the numbers of `backend="llvm"`, in any thread and inside any JAX code.

What XLA compiles itself is tested in test_xla.py.
"""

import gc
import secrets
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from test_c_header import PROGRAMS
from test_compiler import assert_equals_eager, moons_loss

from chainrule import Value, nn, optim
from chainrule.compiler import compile

jax = pytest.importorskip("jax")
jnp = jax.numpy

from chainrule.compiler.backends import settled  # noqa: E402
from chainrule.compiler.backends.llvm import called, handler  # noqa: E402
from chainrule.compiler.backends.llvm.native import optimized  # noqa: E402
from chainrule.compiler.backends.llvm.target import Target  # noqa: E402
from chainrule.compiler.backends.xla import Foreign, foreign  # noqa: E402

TARGET = "chainrule_float"  # of the custom call, in XLA's text
X, Y = np.random.default_rng(0).normal(size=(13, 2)), np.linspace(-1, 1, 13)


def network(**options):
    model = nn.MLP(2, [5, 4, 1], activation="tanh", rng=1)
    return model, compile(lambda x, y: (model(x) - y) ** 2, wrt=model.parameters(), **options)


def functions(**options):
    """The same function of JAX arrays twice, by our code and by XLA's; and parameters for it."""
    model, f = network()
    both = [f.to_jax([0.0, 0.0], 0.0, native=native, **options) for native in (True, False)]
    return *both, jnp.array([p.data for p in model.parameters()])


def assert_close(ours, theirs, tolerance=1e-5):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def text_of(function, *arguments):
    return jax.jit(function).lower(*arguments).as_text()


class TestBackend:
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_programs(self, name):
        program = assert_equals_eager(*PROGRAMS[name](), "jax")
        assert "node by node" not in program.stats

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_numbers_are_those_of_llvm_to_the_last_bit(self, dtype):
        _, expected = network(dtype=dtype)
        _, found = network(dtype=dtype, backend="jax")
        for run in (
            lambda f: f.value_and_grad([0.1, -0.2], 0.3),
            lambda f: f.batch_value_and_grad(X, Y),
            lambda f: f.batch_value_and_grad(np.tile(X, (400, 1)), np.tile(Y, 400), threads=2),
            lambda f: (f.batch(X, Y, reduce=None), f([0.1, -0.2], 0.3)),
        ):
            for a, b in zip(run(found), run(expected), strict=True):
                assert np.array_equal(a, b)
        assert not jax.config.jax_enable_x64

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    @pytest.mark.parametrize("size", [1, 4])
    @pytest.mark.parametrize("steps", [1, 3, 1100])
    def test_training_steps_too(self, dtype, size, steps):
        rng, found = np.random.default_rng(1), []
        xs, ys = rng.normal(size=(steps * size, 2)), rng.normal(size=steps * size)
        for backend in ("llvm", "jax"):
            model, f = network(dtype=dtype, backend=backend)
            optimizer = optim.Adam(model.parameters())
            losses = f.train(optimizer, xs, ys, batch_size=size)
            losses += f.train(optimizer, xs[:size], ys[:size], batch_size=size)  # it goes on where it was
            found.append([losses, list(model.state().values()), [list(b) for b in optimizer.buffers.values()]])
        assert found[0] == found[1]

    def test_it_is_a_call_of_one_function(self):
        _, f = network(backend="jax")
        f.value_and_grad([0.1, 0.2], 0.3)
        runner = f._last_run[1].take().runner
        assert type(runner) is Foreign
        assert f.stats["backend"].startswith("jax, because JAX runs on a cpu, where XLA calls machine code")
        assert "llvm" in f.stats["seconds"]
        text = runner.once.lower(runner.given_bits).as_text()
        assert text.count("custom_call") == text.count(TARGET) == 1
        assert "dot_general" not in text

    def test_subnormal_numbers_are_numbers_though_not_for_xla(self):
        small = 2.0**-1060
        tiny = lambda x, y: [x * 0.5, x + y]  # noqa: E731
        assert compile(tiny, backend="jax")(small, small) == [small / 2, 2 * small]
        assert compile(tiny, backend="xla")(small, small) == [0.0, 0.0]  # in the same thread, before and after
        assert compile(tiny, backend="jax")(small, small) == [small / 2, 2 * small]

    def test_many_small_statements_are_no_reason_for_nodes(self, monkeypatch):
        monkeypatch.setattr("chainrule.compiler.passes.lift.SOME_STATEMENTS", 3)
        w = Value(0.5)
        f = compile(lambda x: (w * x).tanh() + (w - x).exp() * w.sin(), wrt=[w], backend="jax")
        f.value_and_grad(0.3)
        assert "node by node" not in f.stats

    def test_constants_leaves_and_results_of_any_kind(self):
        w, other = Value(2.0), Value(10.0)
        f = compile(lambda x: ([w * x[0], other], np.array([x, x]), 7.0), wrt=[w], backend="jax")
        (first, second), matrix, last = f(np.array([1.0, 2.0, 3.0]))
        assert (first, second, last) == (2.0, 10.0, 7.0)
        assert matrix.tolist() == [[1.0, 2.0, 3.0]] * 2
        other.data = 11.0
        assert f(np.zeros(3))[0][1] == 11.0
        assert compile(lambda: 3.0, backend="jax")() == 3.0

    def test_of_many_threads_each_has_its_own_memory(self, monkeypatch):
        assert not foreign.why_not()  # XLA knows the usual handlers before they get another name
        monkeypatch.setattr(handler, "KEPT", 2)  # fewer than threads: other blocks are made and freed
        name = f"chainrule_few_slots_{secrets.token_hex(8)}"  # what XLA knows it does not forget
        foreign._register(name, handler.Handler("float64"))
        monkeypatch.setattr(foreign, "target", lambda dtype: name)
        _, f = network(backend="jax")
        expected = [f.value_and_grad(x.tolist(), y)[1] for x, y in zip(X, Y, strict=True)]
        wrong, start = [], threading.Barrier(8)

        def work(k):
            start.wait()
            found = [f.value_and_grad(X[k].tolist(), Y[k])[1] for _ in range(300)]
            wrong.extend([k for gradient in found if not np.array_equal(gradient, expected[k])])

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


class TestFunctions:
    @pytest.mark.parametrize("gradient", [True, False])
    def test_for_jit_and_without(self, gradient):
        ours, theirs, parameters = functions(gradient=gradient)
        for f in (ours, jax.jit(ours)):
            assert_close(f(parameters, X[0], 0.5), theirs(parameters, X[0], 0.5))
        assert TARGET in text_of(ours, parameters, X[0], 0.5)
        assert TARGET not in text_of(theirs, parameters, X[0], 0.5)

    def test_for_many_examples(self):
        ours, theirs, parameters = functions(gradient=True, examples=13)
        assert_close(jax.jit(ours)(parameters, X, Y), theirs(parameters, X, Y))
        assert TARGET in text_of(ours, parameters, X, Y)

    @pytest.mark.parametrize(
        "transform",
        [
            jax.grad,
            jax.value_and_grad,
            jax.jacobian,
            jax.hessian,
            lambda f: jax.jacfwd(jax.grad(f)),
            lambda f: jax.grad(jax.checkpoint(f)),
            lambda f: jax.grad(f, argnums=(0, 1, 2)),
            lambda f: lambda p, x, y: jax.linearize(f, p, x, y)[1](p, x, y),
            lambda f: lambda p, x, y: jax.vmap(f, (None, 0, 0))(p, jnp.stack([x, x + 1.0]), jnp.stack([y, y])),
            lambda f: lambda p, x, y: jax.vmap(jax.grad(f), (0, None, None))(jnp.stack([p, 2.0 * p]), x, y),
            lambda f: (
                lambda p, x, y: jax.grad(lambda p: jax.vmap(f, (None, 1, None))(p, jnp.stack([x, x], 1), y).sum())(p)
            ),
        ],
    )
    def test_jax_transforms_what_xla_compiles(self, transform):
        ours, theirs, parameters = functions()
        for f, g in ((transform(ours), transform(theirs)), (jax.jit(transform(ours)), transform(theirs))):
            assert_close(f(parameters, X[0].astype(np.float32), 0.5), g(parameters, X[0].astype(np.float32), 0.5))

    def test_in_loops(self):
        ours, theirs, parameters = functions(gradient=True)

        def trained(f):
            def step(p, x):
                value, slope = f(p, x, 0.5)
                return p - 0.1 * slope, value

            return lambda p: jax.lax.scan(step, p, jnp.array(X))

        def counted(f):
            return lambda p: jax.lax.fori_loop(0, 9, lambda k, p: p - 0.1 * f(p, jnp.array(X)[k], 0.5)[1], p)

        for loop in (trained, counted):
            assert_close(jax.jit(loop(ours))(parameters), loop(theirs)(parameters))
        assert_close(jax.jit(counted(ours), donate_argnums=0)(parameters + 0.0), counted(theirs)(parameters))

    def test_in_both_precisions(self):
        _, f = network()
        ours = jax.jit(f.to_jax([0.0, 0.0], 0.0, gradient=True))
        value, gradient = f.value_and_grad([0.1, 0.2], 1.0)
        parameters = np.array([p.data for p in f.wrt])
        assert ours(parameters, [0.1, 0.2], 1)[1].dtype == jnp.float32
        with jax.enable_x64(True):
            found = ours(parameters, np.array([0.1, 0.2]), 1.0)
            assert TARGET + "64" in text_of(ours, parameters, np.array([0.1, 0.2]), 1.0)
            assert ours(parameters.astype(np.float32), np.array([0.1, 0.2]), 1.0)[1].dtype == jnp.float64
        assert float(found[0]) == value
        assert found[1].tolist() == gradient.tolist()

    def test_leaves_that_the_layout_has_moved(self):
        loss, model = moons_loss(points=20)
        program = compile(loss, model.parameters())
        leaves = [leaf.data for _, nodes in program.leaves if nodes[0] not in program.wrt for leaf in nodes]
        function = program.to_jax(gradient=True)
        with jax.enable_x64(True):
            value, gradient = jax.jit(function)(np.array([p.data for p in program.wrt]), np.array(leaves))
        expected = program.value_and_grad()
        assert float(value) == expected[0]
        assert gradient.tolist() == expected[1].tolist()
        assert any(
            machine_leaf in program.code.take()._places for machine_leaf in program.code.laid_out.leaves.values()
        )

    def test_results_keep_their_structure(self):
        w, scale = Value(2.0), Value(10.0)
        f = compile(lambda x: ([w * x[0], scale], np.array([x, x]), 7.0), wrt=[w]).to_jax(np.zeros(3))
        (first, second), matrix, last = f(jnp.array([2.0]), jnp.array([1.0, 2.0, 3.0]))
        assert (float(first), float(second), float(last)) == (2.0, 10.0, 7.0)
        assert matrix.tolist() == [[1.0, 2.0, 3.0]] * 2

    def test_code_lives_as_long_as_what_xla_has_compiled(self):
        def compiled():
            ours, _, parameters = functions(gradient=True)
            return jax.jit(ours).lower(parameters, X[0], 0.5).compile(), parameters

        def living():
            gc.collect()
            return [thing for thing in gc.get_objects() if type(thing) is called.Called]

        jax.clear_caches()
        before = weakref.WeakSet(living())
        executable, parameters = compiled()
        jax.clear_caches()
        [alive] = [weakref.ref(thing) for thing in living() if thing not in before]
        first = executable(parameters, X[0].astype(np.float32), np.float32(0.5))
        assert_close(executable(parameters, X[0].astype(np.float32), np.float32(0.5)), first, 0.0)
        del executable
        functions()[0](parameters, X[0], 0.5)  # at whose end those are freed that XLA has no executables of any more
        jax.clear_caches()
        gc.collect()
        assert alive() is None

    def test_code_that_nobody_has_any_more_runs_to_its_end(self):
        """XLA runs large programs in a thread of its own, and returns before they are done."""
        code = """
import gc, numpy as np, jax, jax.numpy as jnp
from chainrule import compile, nn
x, y = np.random.default_rng(0).normal(size=(40_000, 2)), np.ones(40_000)
def begun():
    model = nn.MLP(2, [32, 32, 1], activation="tanh", rng=1)
    f = compile(lambda x, y: (model(x) - y) ** 2, wrt=model.parameters())
    step = jax.jit(f.to_jax([0.0, 0.0], 0.0, gradient=True, examples=len(x)))
    given = [jnp.array(each) for each in ([p.data for p in model.parameters()], x, y)]
    expected = f.batch_value_and_grad(x, y)
    jax.block_until_ready(step(*given))
    return step(*given), expected
for _ in range(3):
    found, expected = begun()
    gc.collect()
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
"""
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_shorter_numbers_are_computed_in_single_precision(self):
        ours, theirs, parameters = functions()
        half = parameters.astype(jnp.bfloat16), X[0].astype(jnp.bfloat16), jnp.bfloat16(0.5)
        assert TARGET + "32" in text_of(ours, *half)
        assert_close(ours(*half), theirs(*half))


class TestElsewhere:
    def test_what_is_exported_is_compiled_by_xla(self):
        ours, theirs, parameters = functions(gradient=True)
        given = parameters, X[0].astype(np.float32), 0.5
        exported = jax.export.export(jax.jit(ours))(*given)
        assert TARGET not in exported.mlir_module()
        assert_close(exported.call(*given), theirs(*given))
        jax.export.export(jax.jit(ours), platforms=("cpu", "cuda", "tpu"))(*given)

    def test_for_other_platforms_nothing_changes(self):
        ours, theirs, parameters = functions(gradient=True)
        texts = [
            jax.jit(f).trace(parameters, X[0], 0.5).lower(lowering_platforms=("cuda",)).as_text()
            for f in (ours, theirs)
        ]
        assert TARGET not in texts[0]
        assert texts[0].count("dot_general") == texts[1].count("dot_general") > 0

    def test_an_executable_cannot_be_pickled(self):
        from jax.experimental.serialize_executable import serialize

        ours, _, parameters = functions(gradient=True)
        executable = jax.jit(ours).lower(parameters, X[0], 0.5).compile()
        with pytest.raises(TypeError, match=r"belongs to the process .* say to_jax\(\.\.\., native=False\)"):
            serialize(executable)

    def test_code_of_another_process_is_refused(self, monkeypatch):
        monkeypatch.setattr(called, "KEY", called.KEY ^ 1)  # as if it had been compiled there
        ours, _, parameters = functions(gradient=True)
        with pytest.raises(jax.errors.JaxRuntimeError, match="was compiled in another process: say to_jax"):
            jax.block_until_ready(ours(parameters, X[0], 0.5))

    def test_memory_that_is_not_there_is_an_error(self, monkeypatch):
        ours, _, parameters = functions(gradient=True)
        right = called.Called.__init__

        def huge(self, *given):
            right(self, *given)
            self.common["size"] = 2**62

        monkeypatch.setattr(called.Called, "__init__", huge)
        with pytest.raises(jax.errors.JaxRuntimeError, match="there is no memory for a program of chainrule"):
            jax.block_until_ready(ours(parameters, X[0], 0.5))

    def test_xla_compiles_if_it_has_another_interface(self):
        code = """
import chainrule, numpy as np
from chainrule.compiler.backends.llvm import handler
handler.VERSION = 9, 0
w = chainrule.Value(3.0)
f = chainrule.compile(lambda x: w * x * x, wrt=[w], backend="jax")
assert f.value_and_grad(2.0)[0] == 12.0
assert f.batch_value_and_grad(np.array([1.0, 2.0]), reduce="sum")[0] == 15.0
assert f.stats["backend"].startswith("xla, because XLA cannot call machine code of ours here ("), f.stats
assert "incompatible" in f.stats["backend"], f.stats
assert float(f.to_jax(2.0)(np.ones(1), 2.0)) == 4.0
"""
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_on_a_gpu_xla_compiles(self, monkeypatch):
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        assert settled("jax") == "xla"
        assert settled("jax").reason == "JAX runs on a gpu"

    def test_jax_is_not_asked_for_its_devices_before_a_program_is_compiled(self):
        code = """
import chainrule, jax
w = chainrule.Value(3.0)
chainrule.compile(lambda x: w * x, wrt=[w], backend="jax")
jax.config.update("jax_num_cpu_devices", 2)  # an error once JAX has looked for them
assert len(jax.devices()) == 2
"""
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_on_two_devices(self):
        code = """
import numpy as np, jax, jax.numpy as jnp
jax.config.update("jax_num_cpu_devices", 2)
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from chainrule import compile, nn
model = nn.MLP(2, [5, 1], activation="tanh", rng=1)
f = compile(lambda x, y: (model(x) - y) ** 2, wrt=model.parameters())
whole, half = [f.to_jax([0.0, 0.0], 0.0, gradient=True, examples=n) for n in (8, 4)]
p, x, y = jnp.array([p.data for p in model.parameters()]), jnp.sin(jnp.arange(16.0)).reshape(8, 2), jnp.ones(8)
expected = f.to_jax([0.0, 0.0], 0.0, gradient=True, examples=8, native=False)(p, x, y)
def check(found):
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
check(whole(*[jax.device_put(a, jax.devices()[1]) for a in (p, x, y)]))
mesh = Mesh(np.array(jax.devices()), ("a",))
check(jax.jit(whole)(p, *[jax.device_put(a, NamedSharding(mesh, P("a"))) for a in (x, y)]))
for checks in (False, True):
    mean = jax.shard_map(lambda *given: jax.lax.pmean(half(*given), "a"), mesh=mesh, in_specs=(P(), P("a"), P("a")),
                         out_specs=P(), check_vma=checks)
    check(jax.jit(mean)(p, x, y))
    assert ("chainrule_float32" in jax.jit(mean).lower(p, x, y).as_text()) == (not checks)
sharded = compile(lambda x, y: (model(x) - y) ** 2, wrt=model.parameters(), backend="jax").shard("all")
check(sharded.batch_value_and_grad(np.array(x), np.array(y)))
[program] = sharded._programs.values()
assert "chainrule_float64" in program.compiled.as_text()
"""
        subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("triple", "mode"),
    [("x86_64-unknown-linux-gnu", "ldmxcsr"), ("aarch64-unknown-linux-gnu", "FPCR"), ("arm64-apple-macosx", "FPCR")],
)
def test_the_function_on_other_processors(triple, mode):
    target = Target.of(triple)
    module, machine = optimized(handler.text("float32", target), target)
    assert machine.emit_assembly(module).count(mode) >= 2  # plain arithmetic, and back to XLA's


def test_keys_are_drawn_at_random():
    code = "from chainrule.compiler.backends.llvm import handler; print(handler.KEY)"
    keys = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout for _ in range(2)]
    assert len({*keys, str(handler.KEY).encode()}) == 3
