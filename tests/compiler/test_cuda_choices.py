"""Who chooses the GPU, and what is said about it: `fit`, `backend="auto"`, advice, class indices on the device."""

import numpy as np
import pytest

import chainrule
from chainrule import Value, data, losses, nn, optim
from chainrule.compiler import compile
from chainrule.compiler.backends.cuda.library import CudaError
from chainrule.compiler.passes.batch import batched
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.run.arguments import Examples
from emulated_gpu import playing


def trained(**options):
    model = nn.MLP(2, [5, 1], activation="tanh", rng=3)
    optimizer = optim.Adam(model.parameters(), lr=0.02)
    points = data.micrograd_moons()[:40]
    history = chainrule.fit(
        model,
        losses.mean_square,
        points,
        optimizer=optimizer,
        epochs=3,
        batch_size=16,
        rng=1,
        progress=False,
        **options,
    )
    return history, [parameter.data for parameter in model.parameters()]


class TestFit:
    def test_steps_on_a_gpu_are_those_of_a_processor(self):
        there, expected = trained(compiled=True)
        with playing():
            here, found = trained(backend="cuda")
        assert here.loss == pytest.approx(there.loss, rel=1e-10)
        assert found == pytest.approx(expected, rel=1e-9)
        assert here.engine.startswith("compiled, for a GPU, as asked")

    def test_float32_needs_no_more_to_be_said(self):
        with playing():
            history, _ = trained(backend="cuda", dtype="float32")
        assert history.loss == pytest.approx(trained(compiled=True)[0].loss, rel=1e-4)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"backend": "gpu"}, "`backend` must be one of llvm, cuda, got 'gpu'"),
            ({"backend": "cuda", "compiled": False}, "steps on a GPU are compiled.*leave `compiled` and `mesh` out"),
            ({"backend": "cuda", "mesh": "all"}, "on one GPU: leave `compiled` and `mesh` out"),
        ],
    )
    def test_wrong_options(self, options, message):
        with pytest.raises(ValueError, match=message):
            trained(**options)


class TestChoice:
    def test_auto_takes_the_gpu_if_there_is_one(self):
        w = Value(2.0)
        with playing():
            f = compile(lambda x: w * x, backend="auto")
            assert f.batch([1.0, 2.0], reduce="sum") == 6.0
        assert f.stats["backend"] == "cuda, because there is an emulated GPU"

    def test_auto_says_why_there_is_none(self, monkeypatch):
        monkeypatch.setenv("CHAINRULE_CUDA_LIBRARY", "no-such-library.so")
        monkeypatch.setattr("chainrule.compiler.backends.cuda.library._driver", None, raising=False)
        f = compile(lambda x: x * x, backend="auto")
        if f._source.backend == "cuda":
            pytest.skip("this machine has a GPU, which was opened before")
        assert f(3.0) == 9.0
        assert f.stats["backend"].startswith("llvm, because there is no GPU to use: ")
        with pytest.raises(CudaError, match="driver"):
            compile(lambda x: x, backend="cuda")

    def test_a_backend_that_was_asked_for_needs_no_reason(self):
        f = compile(lambda x: x * x)
        f(2.0)
        assert "backend" not in f.stats


class TestAdvice:
    @pytest.mark.parametrize(("sizes", "large"), [((256, 128, 1), True), ((2, 16, 16, 1), False)])
    def test_large_products_are_better_off_elsewhere(self, sizes, large):
        model = nn.MLP(sizes[0], list(sizes[1:]), rng=0)
        with playing():
            f = compile(lambda x: model(x) ** 2, model.parameters(), backend="cuda")
            f.batch(np.zeros((2, sizes[0])))
        assert ("backend='jax'" in f.stats.get("advice", "")) == large


class TestClasses:
    """Class indices in arrays on the device are checked there: copying them would take longer than all else."""

    @pytest.fixture
    def program(self, monkeypatch):
        monkeypatch.setattr(Examples, "are_on_device", True)
        model = nn.MLP(2, [3], rng=1)
        with playing():
            yield compile(lambda x, k: losses.cross_entropy([model(x)], [k]), model.parameters(), backend="cuda")

    @pytest.mark.parametrize("wrong", [3.0, -1.0, 0.5, float("nan")])
    def test_the_kernel_finds_a_wrong_one(self, program, wrong):
        xs, classes = np.ones((50, 2)), np.arange(50) % 3.0
        assert program.batch(xs, classes) > 0.0
        classes[37] = wrong
        with pytest.raises(ValueError, match="must be a class index below 3"):
            program.batch(xs, classes)
        with pytest.raises(ValueError, match="must be a class index below 3"):
            program.batch(xs, classes, reduce=None)

    def test_training_takes_no_step_on_it(self, program):
        before = [parameter.data for parameter in program.wrt]
        with pytest.raises(ValueError, match="must be a class index below 3"):
            program.train(optim.SGD(program.wrt, lr=1.0), np.ones((4, 2)), [0.0, 1.0, 2.0, 3.0], batch_size=2)
        assert [parameter.data for parameter in program.wrt] == before


class TestSlopes:
    def test_what_relu_was_applied_to_is_not_read_again(self):
        model = nn.MLP(2, [3, 1], activation="relu", rng=1)
        f = compile(lambda x: model(x), model.parameters())
        f.batch(np.ones((4, 2)))
        [paths] = f._traces.by_structure.values()
        whole = differentiate(batched(paths.only.lifted, 4, total=True))
        read = {access.array.name for statement in whole.steps[-4:] for access in statement.accesses()}
        assert "v0" not in read
        assert "v1" in read
