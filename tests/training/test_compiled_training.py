"""`fit(compiled=…)`: the same numbers as eager training, without leaving native code."""

import math
import random
import re
from typing import Any, NamedTuple

import numpy as np
import pytest

from chainrule import Value, compile, data, fit, losses, maximum, mean, nn, optim
from chainrule.compiler.run.steps import CompiledSteps, Steps
from chainrule.data import Dataset
from chainrule.training import EarlyStopping
from chainrule.training.ways import Eager

OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.05),
    "SGD with a schedule": lambda p: optim.SGD(p, lr=optim.linear(0.1, 0.01, 20)),
    "Nesterov": lambda p: optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "Adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=1e-3),
    "AdamW with warm-up": lambda p: optim.AdamW(p, lr=optim.warmup(0.01, 5)),
    "RMSprop": lambda p: optim.RMSprop(p, momentum=0.5),
}


def four_points_model():
    return nn.MLP(3, [4, 4, 1], activation="tanh", output="tanh", rng=1)


def trained(compiled, optimizer=OPTIMIZERS["SGD"], loss=losses.sum_of_squares, epochs=30, model=None, **options):
    model = model or four_points_model()
    opt = optimizer(model.parameters())
    examples = options.pop("examples", data.four_points())
    history = fit(model, loss, examples, optimizer=opt, epochs=epochs, compiled=compiled, progress=False, **options)
    return model, opt, history


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_takes_the_same_steps(name):
    eager, compiled = (trained(way, OPTIMIZERS[name]) for way in (False, True))
    assert compiled[2].loss == pytest.approx(eager[2].loss, abs=1e-12)
    assert list(compiled[0].state().values()) == pytest.approx(list(eager[0].state().values()), abs=1e-12)
    ours, theirs = compiled[1].state(), eager[1].state()
    assert ours["steps"] == theirs["steps"] == 30
    for slot in compiled[1].slots:
        assert ours[slot] == pytest.approx(theirs[slot], abs=1e-12)


def test_no_steps():
    w = Value(0.5)
    steps = CompiledSteps(lambda x: (w * x) ** 2, 3.0, optim.SGD([w], lr=0.1))
    assert (steps.run(0), w.data, steps.optimizer.steps) == ([], 0.5, 0)


def test_each_step_equals_the_eager_step_from_the_same_parameters():
    model = four_points_model()
    points = data.four_points()
    optimizer = optim.Adam(model.parameters(), lr=0.05)

    def loss(inputs):
        return losses.sum_of_squares([model(x) for x in inputs], points.targets)

    steps = CompiledSteps(loss, points.inputs, optimizer)
    for _ in range(10):
        twin = four_points_model()
        twin.load_state(model.state())
        twin_optimizer = optim.Adam(twin.parameters(), lr=0.05)
        twin_optimizer.load_state(optimizer.state())
        eager = losses.sum_of_squares([twin(x) for x in points.inputs], points.targets)
        eager.backward()
        twin_optimizer.step()
        assert steps.run(1)[0] == pytest.approx(eager.data, abs=1e-12)
        assert list(model.state().values()) == pytest.approx(list(twin.state().values()), abs=1e-12)


@pytest.mark.slow
def test_the_moons_demo_compiled():
    random.seed(1337)
    model = nn.MLP(2, [16, 16, 1])
    _, _, history = trained(
        True,
        lambda p: optim.SGD(p, lr=optim.linear(1.0, 0.1, 100)),
        losses.hinge,
        epochs=100,
        model=model,
        examples=data.micrograd_moons(),
        penalty=losses.l2(1e-4),
        metrics=[losses.accuracy],
    )
    assert history.loss[0] == pytest.approx(0.8958441028683222, abs=1e-15)
    assert history.loss[99] == pytest.approx(0.010978370135492717, abs=1e-6)
    assert history["accuracy"][99] == 1.0
    assert history.engine == "compiled, as asked: 65,818 scalar nodes in 30 array statements"


def test_cross_entropy_is_stable_however_far_the_logits_go():
    points = data.blobs(n=12)
    options = {"loss": losses.cross_entropy, "examples": points, "epochs": 60}
    results = []
    for way in (False, True):
        model = nn.MLP(2, [3], rng=1)
        results.append(trained(way, lambda p: optim.SGD(p, lr=500.0), model=model, **options)[2].loss)
    assert results[1] == pytest.approx(results[0], rel=1e-9, abs=1e-12)


def test_metrics_validation_callbacks_and_early_stopping_see_every_epoch():
    train, test = data.split(data.blobs(n=30, seed=2), 0.7)
    rows = []
    for way in (False, True):
        epochs = []
        history = trained(
            way,
            lambda p: optim.Adam(p, lr=0.1),
            losses.cross_entropy,
            model=nn.MLP(2, [4, 3], activation="tanh", rng=3),
            examples=train,
            validation=test,
            metrics=[losses.accuracy],
            callbacks=[lambda training, seen=epochs: seen.append(training.epoch), EarlyStopping(patience=3)],
            epochs=25,
        )[2]
        rows.append(history)
        assert epochs == list(range(len(history)))
    for name, column in rows[0].columns.items():
        assert rows[1][name] == pytest.approx(column, abs=1e-12)


@pytest.mark.parametrize(
    ("seconds", "engine"), [(1e9, "eager, because 29 epochs of"), (0.0, "compiled, because 29 epochs of")]
)
def test_auto_weighs_the_epochs_that_are_left_against_compiling(monkeypatch, seconds, engine):
    monkeypatch.setattr("chainrule.training.plan.seconds_to_compile", lambda epoch: seconds)
    eager, auto = trained(False), trained("auto")
    assert auto[2].engine.startswith(engine)
    assert auto[2].loss == pytest.approx(eager[2].loss, abs=1e-12)


def test_auto_says_what_ran_and_why():
    assert trained(False)[2].engine == "eager, as asked"
    assert trained("auto", batch_size=2)[2].engine.startswith("eager, because 29 epochs of")

    class Own(nn.Module):
        def __init__(self):
            self.w = [Value(0.1), Value(0.2), Value(0.3)]

        def __call__(self, x):
            return sum(w * v for w, v in zip(self.w, x, strict=True))

    assert "what this model does may differ" in trained("auto", model=Own())[2].engine
    assert trained(True, model=Own())[2].engine.startswith("compiled, as asked")
    own_loss = lambda p, t: losses.mean_square(p, t)  # noqa: E731
    assert "what this loss does may differ" in trained("auto", loss=own_loss)[2].engine


@pytest.mark.parametrize(
    ("epochs", "engine"),
    [(1, "eager, because no epoch is left to compile for"), (2, "eager, because 1 epoch of .* s would be")],
)
def test_auto_speaks_of_few_epochs(epochs, engine):
    assert re.match(engine, trained("auto", epochs=epochs)[2].engine)


def test_what_cannot_be_compiled_is_an_error_when_asked_for():
    with pytest.raises(ValueError, match="`compiled` must be True, False or 'auto', got 'maybe'"):
        trained("maybe")

    class Branching(nn.Module):
        def __init__(self):
            self.w = Value(0.1)

        def __call__(self, x):
            return self.w * x[0] if x[0] > 0 else self.w

    with pytest.raises(TypeError, match="where"):
        trained(True, model=Branching())


class TestBatches:
    """Programs of one example, run over the batch: for batches that differ, and for large ones."""

    examples = data.moons(n=23, seed=1)

    def trained(self, compiled, **options):
        options = {"optimizer": OPTIMIZERS["SGD"], "loss": losses.hinge, "epochs": 6, "rng": 5, **options}
        model = nn.MLP(2, [5, 1], activation="tanh", rng=2)
        return trained(compiled, model=model, **{"examples": self.examples, "batch_size": 5, **options})

    def assert_equal(self, **options):
        eager, compiled = (self.trained(way, **options) for way in (False, True))
        assert compiled[2].engine.endswith("scalar nodes per example")
        for name, column in eager[2].columns.items():
            assert compiled[2][name] == pytest.approx(column, abs=1e-12)
        assert list(compiled[0].state().values()) == pytest.approx(list(eager[0].state().values()), abs=1e-12)
        ours, theirs = compiled[1].state(), eager[1].state()
        assert ours["steps"] == theirs["steps"]
        for slot in compiled[1].slots:
            assert ours[slot] == pytest.approx(theirs[slot], abs=1e-12)

    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_every_optimizer_takes_the_same_steps(self, name):
        self.assert_equal(optimizer=OPTIMIZERS[name])

    @pytest.mark.parametrize("size", [1, 2, 11, 22, 23, 40])
    def test_of_every_size(self, size, monkeypatch):
        monkeypatch.setattr("chainrule.training.plan.MANY", 10)
        self.assert_equal(batch_size=size)

    @pytest.mark.parametrize("loss", [losses.sum_of_squares, losses.mean_square, losses.binary_cross_entropy])
    @pytest.mark.parametrize("penalty", [None, losses.l2(0.1)])
    def test_sums_means_and_penalties(self, loss, penalty):
        zeros_and_ones = Dataset(self.examples.inputs, [(y + 1) / 2 for y in self.examples.targets])
        self.assert_equal(loss=loss, penalty=penalty, examples=zeros_and_ones)

    def test_metrics_and_validation(self):
        train, test = data.split(self.examples, 0.7)
        self.assert_equal(examples=train, validation=test, metrics=[losses.accuracy])

    def test_a_batch_beyond_the_cache(self, monkeypatch):
        monkeypatch.setattr("chainrule.compiler.run.traced.CACHE", 0)  # 16 examples are the least
        self.assert_equal(batch_size=20)

    def test_classes(self):
        model = nn.MLP(2, [3], rng=1)
        options = {"loss": losses.cross_entropy, "examples": data.blobs(n=20), "batch_size": 6, "rng": 1}
        eager = trained(False, model=model, **options)[2].loss
        assert trained(True, model=nn.MLP(2, [3], rng=1), **options)[2].loss == pytest.approx(eager, abs=1e-12)

    def test_auto_weighs_the_epochs_that_are_left_against_compiling(self, monkeypatch):
        seen = []
        monkeypatch.setattr("chainrule.training.plan.seconds_to_compile", lambda eager: seen.append(eager) or 0.0)
        eager, auto = self.trained(False), self.trained("auto")
        assert auto[2].engine.startswith("compiled, because 5 epochs of")
        assert auto[2].loss == pytest.approx(eager[2].loss, abs=1e-12)
        assert seen[0] <= auto[2].seconds / 23  # the nodes of one example are recorded

    def test_auto_never_records_the_nodes_of_many_examples_at_once(self, monkeypatch):
        monkeypatch.setattr("chainrule.training.plan.MANY", 22)
        auto = self.trained("auto", batch_size=None, rng=None)[2]
        assert auto.engine.startswith("compiled, because 23 examples at once would be many nodes")
        assert auto.loss == pytest.approx(self.trained(False, batch_size=None, rng=None)[2].loss, abs=1e-12)

    def test_a_batch_size_beyond_the_data_is_the_data(self):
        assert self.trained("auto", batch_size=1000)[2].engine.startswith("eager, because 5 epochs of")

    def test_a_loss_that_cannot_be_taken_apart(self, monkeypatch):
        def largest(predictions, targets):
            return sum((p - y) ** 4 for p, y in zip(predictions, targets, strict=True)) ** 0.25

        with pytest.raises(ValueError, match="`loss` must be the mean or the sum of the losses of single examples"):
            self.trained(True, loss=largest)
        monkeypatch.setattr("chainrule.training.plan.MANY", 22)
        whole = self.trained(True, loss=largest, batch_size=None)[2]
        assert whole.engine.endswith("array statements")
        assert whole.loss == pytest.approx(self.trained(False, loss=largest, batch_size=None)[2].loss, abs=1e-12)

    def test_targets_that_a_loss_refuses(self):
        wrong = Dataset(self.examples.inputs, [*self.examples.targets[:-1], 0])
        with pytest.raises(ValueError, match="`targets` of hinge must be -1 or 1, got 0"):
            self.trained(True, examples=wrong)

    def test_a_loss_that_does_not_show_whether_it_is_a_sum(self):
        def far(predictions, targets):
            return sum(maximum(p - 5, 0.0) for p in predictions)

        missing = Dataset(self.examples.inputs, [*self.examples.targets[:-1], math.nan])
        for options, number in (({"loss": far}, "0.0"), ({"loss": losses.mean_square, "examples": missing}, "nan")):
            with pytest.raises(ValueError, match=f"`loss` is {number} for five examples .* look at the targets"):
                self.trained(True, **options)

    def test_examples_of_different_lengths(self):
        ragged = Dataset([*self.examples.inputs[:-1], [1.0]], self.examples.targets)
        with pytest.raises(ValueError, match=r"must have the same structure: data\.inputs was a list of"):
            self.trained(True, examples=ragged)

    def test_a_new_learning_rate_does_not_compile_again(self, monkeypatch):
        made = []
        init = Steps.__init__
        monkeypatch.setattr(Steps, "__init__", lambda *a, **options: made.append(a) or init(*a, **options))

        def slower(training):
            training.optimizer.lr *= 0.5

        self.assert_equal(callbacks=[slower])
        assert len(made) == 2  # for batches of 5, and for the last, of 3

    def test_auto_decides_within_the_first_epoch_of_many_examples(self, monkeypatch):
        monkeypatch.setattr("chainrule.training.plan.MANY", 8)
        monkeypatch.setattr("chainrule.training.plan.seconds_to_compile", lambda eager: 0.0)
        step, sizes = Eager.step, []
        monkeypatch.setattr(Eager, "step", lambda way, parts: sizes.append(len(parts[0])) or step(way, parts))
        auto = self.trained("auto")
        assert sizes == [5, 5]
        assert auto[2].engine.startswith("compiled, because 6 epochs of")
        eager = self.trained(False)
        assert auto[2].loss == pytest.approx(eager[2].loss, abs=1e-12)
        assert list(auto[0].state().values()) == pytest.approx(list(eager[0].state().values()), abs=1e-12)

    def test_single_precision(self):
        eager, single = self.trained(False), self.trained(True, dtype="float32")
        assert single[2].loss == pytest.approx(eager[2].loss, rel=1e-4)
        numbers = list(single[0].state().values())
        assert numbers == np.array(numbers, dtype=np.float32).tolist()
        assert single[2].engine.startswith("compiled, as asked, in float32: ")


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.mark.parametrize("size", [None, 5])
@pytest.mark.parametrize(
    "kind",
    [list, tuple, Pair._make, lambda pair: np.array(pair, dtype=object), lambda pair: {0: pair[0], 1: pair[1]}],
    ids=["list", "tuple", "named tuple", "array", "dict"],
)
def test_predictions_of_every_structure(kind, size):
    class Two(nn.Module):
        def __init__(self):
            self.w = [Value(0.1), Value(0.2)]

        def __call__(self, x):
            return kind([self.w[0] * x[0], self.w[1] * x[1]])

    def error(predictions, targets):
        pairs = zip(predictions, targets, strict=True)
        return sum((p[0] - y) ** 2 + (p[1] + y) ** 2 for p, y in pairs)

    def measure(predictions, targets):
        return error(predictions, targets).data

    points = data.moons(n=12)
    options = {"batch_size": size, "metrics": [measure], "validation": points, "examples": points, "epochs": 3}
    eager, compiled = (trained(way, loss=error, model=Two(), **options)[2] for way in (False, True))
    for name, column in eager.columns.items():
        assert compiled[name] == pytest.approx(column, abs=1e-12)


def freeze(training):
    for parameter in training.model.layers[0].parameters():
        parameter.requires_grad = False


def thaw(training):
    for parameter in training.model.parameters():
        parameter.requires_grad = True


def decay(training):
    training.optimizer.weight_decay = 0.3


class Clipped(optim.SGD):
    def step(self):
        optim.clip_grad_norm(self.parameters, 0.01)
        super().step()


@pytest.mark.parametrize("size", [None, 2])
def test_an_optimizer_with_a_step_of_its_own_takes_it(size):
    eager, compiled = (trained(way, lambda p: Clipped(p, lr=1.0), batch_size=size) for way in (False, True))
    assert compiled[2].engine.startswith("compiled")
    assert list(compiled[0].state().values()) == pytest.approx(list(eager[0].state().values()), abs=1e-12)
    assert "what this optimizer does may differ" in trained("auto", lambda p: Clipped(p, lr=1.0))[2].engine


@pytest.mark.parametrize("size", [None, 5])
@pytest.mark.parametrize("changes", [[freeze], [decay], [freeze, thaw]])
def test_compiled_steps_see_what_a_callback_changes(changes, size):
    def change(training):
        if training.epoch < len(changes):
            changes[training.epoch](training)

    options = {"examples": data.moons(n=12), "loss": losses.hinge, "batch_size": size, "callbacks": [change]}
    eager, compiled = (
        trained(way, OPTIMIZERS["SGD"], model=nn.MLP(2, [3, 1], rng=1), epochs=6, **options) for way in (False, True)
    )
    assert compiled[2].loss == pytest.approx(eager[2].loss, abs=1e-12)
    assert list(compiled[0].state().values()) == pytest.approx(list(eager[0].state().values()), abs=1e-12)


@pytest.mark.parametrize("size", [None, 2])
def test_auto_is_eager_where_compiling_is_refused(monkeypatch, size):
    monkeypatch.setattr("chainrule.training.plan.seconds_to_compile", lambda eager: 0.0)
    points = data.four_points()
    nodes = Dataset([[Value(number) for number in x] for x in points.inputs], points.targets)
    auto = trained("auto", examples=nodes, batch_size=size)[2]
    assert re.match("eager, because this cannot be compiled: .*`.*` must be a real number, got", auto.engine)
    assert auto.loss == trained(False, batch_size=size)[2].loss


@pytest.mark.parametrize("size", [None, 2])
def test_nothing_moves_where_everything_is_frozen(monkeypatch, size):
    monkeypatch.setattr("chainrule.training.plan.seconds_to_compile", lambda eager: 0.0)
    model = four_points_model()
    before = model.state()
    for parameter in model.parameters():
        parameter.requires_grad = False
    trained("auto", model=model, batch_size=size)
    assert model.state() == before


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_single_precision_takes_the_same_steps_to_seven_digits(name):
    eager = trained(False, OPTIMIZERS[name])
    single = trained(True, OPTIMIZERS[name], dtype="float32", metrics=[lambda p, t: p[0].data])
    assert single[2].loss == pytest.approx(eager[2].loss, rel=1e-4)
    assert single[2].loss != eager[2].loss
    numbers = list(single[0].state().values())
    assert numbers == pytest.approx(list(eager[0].state().values()), abs=1e-4)
    assert numbers == np.array(numbers, dtype=np.float32).tolist()
    assert single[2].engine.startswith("compiled, as asked, in float32: ")


def test_single_precision_is_for_compiled_steps():
    for way in (False, "auto"):
        with pytest.raises(ValueError, match="`dtype` 'float32' is for compiled steps, and eager ones are float64"):
            trained(way, dtype="float32")
    with pytest.raises(ValueError, match="`dtype` must be 'float64' or 'float32', got 'float16'"):
        trained(True, dtype="float16")


def test_a_parameter_without_gradient_takes_its_steps_too():
    """By its decay alone, as in eager code."""
    unused = [Value(1.0), Value(1.0)]
    found = [
        trained(compiled, lambda p, own=own: optim.AdamW([*p, own], lr=0.1), model=four_points_model())[2].loss
        for compiled, own in zip((True, False), unused, strict=True)
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-12)
    assert unused[0].data == pytest.approx(unused[1].data, rel=1e-14)
    assert unused[0].data < 1.0


def test_a_loss_that_explodes_stops_the_run():
    model = nn.MLP(1, [1], rng=0)
    with pytest.warns(RuntimeWarning, match="smaller learning rate"):
        history = trained(
            True, lambda p: optim.SGD(p, lr=1e200), losses.mean_square, model=model, examples=Dataset([[1.0]], [5.0])
        )[2]
    assert history.stopped


class TestAStreamOfExamples:
    """`program.train`: a step an example, or a batch of them."""

    xs = np.random.default_rng(0).normal(size=(40, 3))
    ys = np.sign(xs.sum(axis=1))

    def eager(self, make, size):
        model = four_points_model()
        optimizer, curve = make(model.parameters()), []
        for start in range(0, len(self.xs), size):
            rows = zip(self.xs[start : start + size].tolist(), self.ys[start : start + size].tolist(), strict=True)
            loss = mean([(model(x) - y) ** 2 for x, y in rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(loss.data)
        return model, optimizer, curve

    @pytest.mark.parametrize("name", OPTIMIZERS)
    @pytest.mark.parametrize("size", [1, 3, 16])
    def test_it_takes_the_steps_of_eager_code(self, name, size):
        model, optimizer, curve = self.eager(OPTIMIZERS[name], size)
        ours = four_points_model()
        loss = compile(lambda x, y: (ours(x) - y) ** 2, wrt=ours.parameters())
        ours_optimizer = OPTIMIZERS[name](ours.parameters())
        for parameter in ours.parameters():
            parameter.grad = 7.0
        some = 16 // size * size
        first = loss.train(ours_optimizer, self.xs[:some], self.ys[:some], batch_size=size)
        rest = loss.train(ours_optimizer, self.xs[some:], self.ys[some:], batch_size=size)
        assert [*first, *rest] == pytest.approx(curve, abs=1e-12)
        assert list(ours.state().values()) == pytest.approx(list(model.state().values()), abs=1e-12)
        assert ours_optimizer.steps == optimizer.steps
        assert {parameter.grad for parameter in ours.parameters()} == {7.0}

    @pytest.mark.parametrize(("backend", "room"), [("interpreter", 5 * 4 * 8), ("llvm", 0)])
    def test_some_batches_are_copied_at_a_time_or_none(self, monkeypatch, backend, room):
        monkeypatch.setattr("chainrule.compiler.run.steps.AT_ONCE", 5)
        model, _, curve = self.eager(OPTIMIZERS["Adam"], 3)
        ours = four_points_model()
        loss = compile(lambda x, y: (ours(x) - y) ** 2, wrt=ours.parameters(), backend=backend)
        optimizer = OPTIMIZERS["Adam"](ours.parameters())
        assert loss.train(optimizer, self.xs, self.ys, batch_size=3) == pytest.approx(curve, abs=1e-12)
        assert list(ours.state().values()) == pytest.approx(list(model.state().values()), abs=1e-12)
        [paths] = loss._traces.by_structure.values()
        copied = {steps.summands: steps.code.take()._room.size for steps in paths.only.steps.values()}
        assert copied == {3: room, 1: 0}

    @pytest.mark.parametrize(
        "options", [{"backend": "jax"}, {"backend": "xla"}, {"backend": "interpreter"}, {"strict": True}]
    )
    def test_through_every_backend(self, options):
        if options.get("backend") in ("jax", "xla"):
            pytest.importorskip("jax")
        model, _, curve = self.eager(OPTIMIZERS["Adam"], 1)
        ours = four_points_model()
        loss = compile(lambda x, y: (ours(x) - y) ** 2, wrt=ours.parameters(), **options)
        assert loss.train(OPTIMIZERS["Adam"](ours.parameters()), self.xs, self.ys) == pytest.approx(curve, abs=1e-12)
        assert list(ours.state().values()) == pytest.approx(list(model.state().values()), abs=1e-12)

    def test_other_captured_values_and_settings_are_read_anew(self):
        w, shift = Value(0.0), Value(0.0)
        loss = compile(lambda x: (w - shift) * x, wrt=[w])
        optimizer = optim.SGD([w], lr=1.0)
        assert loss.train(optimizer, [1.0, 1.0]) == [0.0, -1.0]
        w.data, shift.data, optimizer.weight_decay = 3.0, 1.0, 1.0
        assert loss.train(optimizer, [1.0, 1.0]) == [2.0, -2.0]

    def test_a_loss_that_uses_no_argument(self):
        w = Value(3.0)
        assert compile(lambda x: w * w, wrt=[w]).train(optim.SGD([w], lr=0.25), [0.0, 0.0]) == [9.0, 2.25]

    def test_wrong_arguments(self):
        v, w = Value(1.0), Value(2.0)
        loss = compile(lambda x: v * w * x, wrt=[v])
        with pytest.raises(ValueError, match="`batch_size` must be an int of at least 1, got 0"):
            loss.train(optim.SGD([v], lr=0.1), [1.0], batch_size=0)
        for size in (1, 2):
            with pytest.raises(ValueError, match="`optimizer` has parameters that are not in the `wrt`"):
                loss.train(optim.SGD([v, w], lr=0.1), [1.0, 2.0], batch_size=size)
        with pytest.raises(TypeError, match="returns 2 numbers in a structure"):
            compile(lambda x: [v * x, x]).train(optim.SGD([v], lr=0.1), [1.0])

    @pytest.mark.parametrize("size", [1, 2])
    def test_a_parameter_frozen_after_compiling_stays(self, size):
        v, w = Value(1.0), Value(2.0)
        loss = compile(lambda x: v * w * x, wrt=[v, w])
        optimizer = optim.SGD([v, w], lr=0.5)
        loss.train(optimizer, [1.0], batch_size=size)
        assert (v.data, w.data) == (0.0, 1.5)
        w.requires_grad = False
        loss.train(optimizer, [1.0, 1.0], batch_size=size)
        assert (v.data, w.data) == (-0.75 * (2 / size), 1.5)

    @pytest.mark.parametrize("size", [1, 2])
    def test_a_parameter_that_the_loss_does_not_use_decays_all_the_same(self, size):
        v, w = Value(1.0), Value(2.0)
        loss = compile(lambda x: v * x, wrt=[v, w])
        loss.train(optim.SGD([v, w], lr=0.5, weight_decay=1.0), [0.0, 0.0], batch_size=size)
        assert (v.data, w.data) == ((0.25, 0.5) if size == 1 else (0.5, 1.0))


class Decaying(optim.Optimizer):
    """A rule that depends on the step."""

    def update(self, data, grad, *, lr):
        return (data - lr / (1 + self.steps) * grad,)


class OwnRate(optim.Optimizer):
    """A rule that reads its setting by itself."""

    def update(self, data, grad, *, lr):
        return (data - self.lr * grad,)


class Noisy(optim.Optimizer):
    """A rule that draws random numbers."""

    def update(self, data, grad, *, lr):
        return (data - lr * grad + random.gauss(0.0, 1.0),)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("rule", [Decaying, OwnRate, Noisy])
def test_a_rule_that_a_user_wrote_is_run_at_every_step_for_every_parameter(rule, size):
    found = []
    for compiled in (True, False):
        w, b = Value(0.5), Value(0.25)
        optimizer, loss = rule([w, b], lr=0.1), lambda x, y: (w * x + b - y) ** 2  # noqa: B023
        program, xs, ys = compile(loss, wrt=[w, b]), [1.0, 2.0, -1.0, 0.5], [0.0, 1.0, 2.0, -1.0]
        random.seed(3)
        for optimizer.lr in (0.1, 0.05):
            if compiled:
                program.train(optimizer, xs, ys, batch_size=size)
                continue
            for k in range(0, 4, size):
                optimizer.zero_grad()
                pairs = zip(xs[k : k + size], ys[k : k + size], strict=True)
                mean([loss(x, y) for x, y in pairs]).backward()
                optimizer.step()
        found.append([w.data, b.data])
    assert found[0] == pytest.approx(found[1], rel=1e-12)
