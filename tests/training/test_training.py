"""`fit` is the five-line loop, with batches, metrics, early stopping and a history around it."""

import math
import random

import pytest

from chainrule import Value, compile, data, fit, losses, nn, optim
from chainrule.data import Dataset
from chainrule.training import EarlyStopping, History


def small_model(rng=3):
    return nn.MLP(2, [4, 1], activation="tanh", rng=rng)


def quiet(model, *args, **options):
    return fit(model, *args, progress=False, compiled=False, **options)


def test_fit_is_the_five_line_loop():
    examples = data.xor()
    by_hand, fitted = small_model(), small_model()
    optimizer, curve = optim.SGD(by_hand.parameters(), lr=0.1), []
    for _ in range(20):
        loss = losses.mean_square([by_hand(x) for x in examples.inputs], examples.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.append(loss.data)
    history = quiet(fitted, losses.mean_square, examples, epochs=20, optimizer=optim.SGD(fitted.parameters(), lr=0.1))
    assert history.loss == curve
    assert fitted.state() == by_hand.state()


def test_batches_cover_the_data_and_rng_shuffles():
    examples = data.moons(n=10, seed=1)
    seen = []

    def loss(predictions, targets):
        seen.append(len(predictions))
        return losses.hinge(predictions, targets)

    orders = []
    for rng in (None, random.Random(1), random.Random(1), random.Random(2)):
        model = small_model()
        quiet(model, loss, examples, epochs=2, batch_size=4, rng=rng)
        orders.append(model.state())
    assert seen[:6] == [4, 4, 2, 4, 4, 2]
    assert orders[1] == orders[2] != orders[3]


def test_the_loss_of_an_epoch_is_the_mean_over_its_examples():
    examples = data.moons(n=10, seed=1)
    runs = []
    for batch_size in (None, 3):
        model = small_model()
        frozen = optim.SGD(model.parameters(), lr=0.0)
        runs.append(quiet(model, losses.hinge, examples, epochs=1, batch_size=batch_size, optimizer=frozen))
    whole, parts = runs
    assert parts.loss[0] == pytest.approx(whole.loss[0], rel=1e-14)


def test_metrics_validation_and_penalty_are_recorded():
    train, test = data.split(data.moons(n=20, seed=1), 0.7)
    history = quiet(
        small_model(), losses.hinge, train, validation=test, metrics=[losses.accuracy], penalty=losses.l2(0.1), epochs=3
    )
    assert list(history.columns) == ["loss", "accuracy", "validation_loss", "validation_accuracy"]
    assert all(len(column) == 3 for column in history.columns.values())
    bare = quiet(small_model(), losses.hinge, train, epochs=1)
    weights = small_model().parameters()
    assert history.loss[0] == pytest.approx(bare.loss[0] + 0.1 * sum(w.data**2 for w in weights))


def test_adam_is_the_default_optimizer():
    first, second = small_model(), small_model()
    quiet(first, losses.mean_square, data.xor(), epochs=5)
    adam = optim.Adam(second.parameters(), lr=0.01)
    quiet(second, losses.mean_square, data.xor(), epochs=5, optimizer=adam)
    assert first.state() == second.state()


def test_callbacks_see_the_run_and_can_stop_it():
    epochs = []

    def callback(training):
        epochs.append((training.epoch, len(training.history)))
        if training.epoch == 2:
            training.stop("enough")

    history = quiet(small_model(), losses.mean_square, data.xor(), callbacks=[callback])
    assert epochs == [(0, 1), (1, 2), (2, 3)]
    assert history.stopped == "enough"
    assert "stopped: enough" in repr(history)


def loss_of(model, examples):
    return losses.mean_square([model(x) for x in examples.inputs], examples.targets).data


def test_early_stopping_restores_the_best_state():
    model = small_model()
    wild = optim.SGD(model.parameters(), lr=0.9)
    stop = EarlyStopping(patience=3)
    history = quiet(model, losses.mean_square, data.xor(), optimizer=wild, callbacks=[stop], epochs=200)
    assert history.stopped.startswith("loss has not improved on")
    best = min(range(len(history)), key=history.loss.__getitem__)
    assert len(history) == best + 1 + 3
    assert loss_of(model, data.xor()) == min(history.loss)


def test_the_best_state_is_restored_when_the_epochs_run_out_too():
    model = small_model()
    wild = optim.SGD(model.parameters(), lr=0.9)
    callbacks = [EarlyStopping(patience=1000)]
    history = quiet(model, losses.mean_square, data.xor(), optimizer=wild, callbacks=callbacks, epochs=30)
    assert not history.stopped
    assert loss_of(model, data.xor()) == min(history.loss) < history.loss[-1]


def test_what_is_measured_is_no_look_at_the_parameters():
    """A loss that is made after the run can be compiled: nothing in it depends on what a metric compared."""
    examples, model = data.moons(n=10, seed=1), small_model()
    quiet(model, losses.hinge, examples, epochs=2, validation=examples, metrics=[losses.accuracy])
    loss = losses.hinge([model(x) for x in examples.inputs], examples.targets)
    assert compile(loss, wrt=model.parameters())() == pytest.approx(loss.data, rel=1e-14)


def test_early_stopping_watches_the_validation_loss_or_what_it_is_told():
    train, test = data.split(data.moons(n=20, seed=1), 0.5)
    options = {"validation": test, "metrics": [losses.accuracy], "epochs": 2}
    with pytest.raises(KeyError, match=r"`monitor` must be one of loss, accuracy, validation_loss, .*; got 'f1'"):
        quiet(small_model(), losses.hinge, train, callbacks=[EarlyStopping(monitor="f1")], **options)
    stop = EarlyStopping(patience=1, least_gain=1e9)
    history = quiet(small_model(), losses.hinge, train, callbacks=[stop], **{**options, "epochs": 9})
    assert history.stopped.startswith("validation_loss has not improved")


def test_an_accuracy_is_better_when_it_is_higher():
    train, test = data.split(data.moons(n=60, seed=1), 0.5)
    model = small_model()
    wild = optim.SGD(model.parameters(), lr=2.0)
    callbacks = [EarlyStopping(patience=10, monitor="validation_accuracy")]
    options = {"validation": test, "metrics": [losses.accuracy], "optimizer": wild, "callbacks": callbacks}
    history = quiet(model, losses.hinge, train, epochs=40, **options)
    restored = losses.accuracy([model(x) for x in test.inputs], test.targets)
    assert restored == max(history["validation_accuracy"])


def test_a_loss_that_is_not_finite_stops_the_run_with_a_warning():
    model = nn.MLP(1, [1], rng=0)
    optimizer = optim.SGD(model.parameters(), lr=1e200)
    with pytest.warns(RuntimeWarning, match=r"the loss became .* by epoch .*smaller learning rate"):
        history = quiet(model, losses.mean_square, Dataset([[1.0], [2.0]], [1.0, 5.0]), optimizer=optimizer)
    assert len(history) < 10


def test_history_reads_well():
    history = quiet(small_model(), losses.mean_square, data.xor(), epochs=5)
    assert len(history) == 5
    assert history["loss"] is history.loss
    assert history.last == {"loss": history.loss[-1]}
    assert repr(history).startswith("History(5 epochs, loss ")
    assert history.seconds > 0
    with pytest.raises(KeyError, match="no column 'accuracy'; there are loss"):
        history["accuracy"]
    assert repr(History()) == "History(0 epochs)"


def test_the_progress_bar_shows_the_loss(capsys):
    fit(small_model(), losses.mean_square, data.xor(), epochs=3)
    out = capsys.readouterr().out
    assert "3/3" in out
    assert "loss 0." in out


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3, losses.hinge, data.xor()), TypeError, "`model` must be an nn.Module that can be called, got int"),
        ((nn.Module(), losses.hinge, data.xor()), TypeError, "`model` must be an nn.Module that can be called"),
        ((small_model(), "hinge", data.xor()), TypeError, "`loss` must be a function .* got 'hinge'"),
        ((small_model(), losses.hinge, [[1.0]]), TypeError, r"`data` must be a Dataset or a pair \(X, y\), got list"),
        ((small_model(), losses.hinge, Dataset([], [])), ValueError, "`data` is empty"),
        ((small_model(), lambda p, t: 1.0, data.xor()), TypeError, "`loss` must return a Value, got float"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        quiet(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epochs": 0}, ValueError, "`epochs` must be an int of at least 1, got 0"),
        ({"batch_size": 0}, ValueError, "`batch_size` must be an int of at least 1, got 0"),
        ({"callbacks": print}, TypeError, "`callbacks` must be a list of functions"),
        ({"metrics": losses.accuracy}, TypeError, "`metrics` must be a list of functions"),
        ({"metrics": [lambda p, t: 0, lambda p, t: 1]}, ValueError, "`metrics` need names of their own"),
        (
            {"metrics": "accuracy"},
            TypeError,
            r"`metrics` must be a list of functions, .*: write \['accuracy'\] for one",
        ),
        ({"metrics": ["acuracy"]}, ValueError, "or the name of one: accuracy, binary_cross_entropy, .*; got 'acuracy'"),
        ({"metrics": {"right": 3}}, ValueError, "`metrics` must be functions of predictions and targets, .*; got 3"),
        ({"metrics": {"loss": losses.accuracy}}, ValueError, "`metrics` need names of their own"),
        ({"validation": [[1.0], [1.0]]}, TypeError, r"`validation` must be a Dataset or a pair \(X, y\), got list"),
        ({"validation": ([1.0], [1.0])}, ValueError, "`X` of `validation` has 1 column and the training data 2"),
        ({"validation": Dataset([], [])}, ValueError, "`validation` is empty"),
        ({"penalty": 0.1}, TypeError, "`penalty` must be a function of the parameters, .* got 0.1"),
        ({"penalty": lambda p: None}, TypeError, "`penalty` must return a number to add to the loss, got None"),
        ({"rng": "seed"}, TypeError, "`rng` must be a random.Random or an integer seed, got str 'seed'"),
        ({"optimizer": optim.Adam}, TypeError, "`optimizer` must be an optimizer"),
        ({"optimizer": optim.Adam([Value(1.0)])}, ValueError, "`optimizer` holds no parameter of this model"),
    ],
)
def test_wrong_options(options, error, message):
    with pytest.raises(error, match=message):
        quiet(small_model(), losses.mean_square, data.xor(), **options)


@pytest.mark.parametrize("compiled", [False, True])
def test_metrics_can_be_given_by_their_names(compiled):
    def history(*metrics):
        points = data.moons(n=8)
        options = {"metrics": metrics, "validation": points, "epochs": 3, "compiled": compiled, "progress": False}
        return fit(small_model(), losses.hinge, points, **options).columns

    assert history("accuracy", "mean_square") == history(losses.accuracy, losses.mean_square)
    assert {"accuracy", "mean_square", "validation_accuracy"} <= history("accuracy", "mean_square").keys()


def test_metrics_can_be_named_and_a_threshold_chosen():
    model = small_model()
    metrics = {"right": lambda p, t: losses.accuracy(p, t, threshold=0.5)}
    history = quiet(model, losses.mean_square, data.xor(), metrics=metrics, epochs=400, rng=1)
    assert history["right"][-1] == 1.0


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (
            [[0.0, 1.0], [math.nan, 2.0]],
            [1.0, 2.0],
            "input 0 of example 1 is nan: fill it in, or leave",
        ),
        ([[0.0], [1.0]], [1.0, math.inf], "target of example 1 is inf: fill it in"),
    ],
)
def test_a_number_in_the_data_that_is_none_is_named(inputs, targets, message):
    model = nn.MLP(len(inputs[0]), [2, 1], rng=0)
    with pytest.warns(RuntimeWarning, match=message):
        history = fit(model, losses.mean_square, Dataset(inputs, targets), epochs=3, progress=False)
    assert message in history.stopped
    assert "learning rate" not in history.stopped
