"""`detect_anomaly`: the first number that is not finite is an error that says where it was born."""

import gc
import math
import sys
import threading
import warnings

import pytest
import torch

import chainrule
from chainrule import AnomalyError, Value, data, detect_anomaly, losses, nn, ops, optim
from chainrule.core.recording import nodes_are_observed
from chainrule.debug.anomalies import first_bad_node, first_bad_push


def caught(function, model=None):
    with pytest.raises(AnomalyError) as caught_error, detect_anomaly(model):
        function()
    return caught_error.value


def test_the_op_the_operands_the_line_and_the_path_of_labels():
    w, x = Value(0.0, label="w"), Value(3.0, label="x")

    def loss():
        p = w * x
        p.label = "p"
        return -p.log()

    error = caught(loss)
    assert (error.phase, error.op, error.operands) == ("forward", "log", (0.0,))
    assert error.path == ("w", "p", "`log`")
    assert error.place.endswith("(`return -p.log()`)")
    assert "test_anomalies.py" in error.place
    assert "`log` of 0.0 (`p`) gave -inf, at " in str(error)
    assert "The way there: w → p → `log`. Keep what goes in above 0" in str(error)


def test_a_gradient_that_is_not_finite_is_blamed_on_the_node_that_passed_it_on():
    x, y = Value(2.0, label="x"), Value(2.0, label="y")

    def distance():
        root = (x - y).sqrt()
        root.label = "root"
        loss = root * 3.0
        loss.label = "loss"
        loss.backward()

    error = caught(distance)
    assert (error.phase, error.op, error.operands) == ("backward", "sqrt", (0.0,))
    assert error.path == ("loss", "root", "`-`")
    assert error.place.endswith("(`root = (x - y).sqrt()`)")
    assert "passes on a gradient of inf: its own, 3.0, times the slope inf" in str(error)


ZERO_LOG = "Keep what goes in above 0, as in log"


@pytest.mark.parametrize(
    ("function", "op", "says"),
    [
        (lambda x: 1.0 / (x - 1.0), "/", "Keep the divisor away from 0"),
        (lambda x: (x * 1000.0).exp(), "exp", "Exp overflows above 709"),
        (lambda x: (x - 2.0) ** 0.5, "**", "keep the base above 0"),
        (lambda x: (x * 1e200) * (x * 1e200), "*", "a smaller learning rate"),
        (lambda x: x * math.nan, "*", "Operand 2 was not finite before"),
        (lambda x: chainrule.log(x - 1.0), "log", ZERO_LOG),
        (lambda x: chainrule.logsumexp([x * 1e308 * 10.0]), "*", "1e+308 and 10.0 gave inf"),
        (lambda x: Value(math.inf, (x,), "mine"), "mine", "`mine` of 1.0 (`x`) gave inf"),
    ],
)
def test_every_way_of_making_a_node_is_seen(function, op, says):
    error = caught(lambda: function(Value(1.0, label="x")))
    assert error.phase == "forward"
    assert error.op == op
    assert says in str(error)


@pytest.mark.parametrize("row", ops.TABLE.values(), ids=lambda row: row.name)
def test_no_op_of_the_table_hides_what_is_not_finite(row):
    """For each row: an error exactly where the number that it computes is not finite."""
    for number in (0.0, -1.0, 1e200, 800.0, math.inf, math.nan):
        values = [Value(number) for _ in range(row.arity)]
        if math.isfinite(row(*values).data):
            with detect_anomaly():
                row(*values)
        else:
            assert caught(lambda values=values: row(*values)).op == row.symbol


def test_gradients_agree_with_pytorchs_verdict():
    """PyTorch's anomaly mode sees NaN in backward; so do we, and infinities besides."""

    def at_nothing(x):
        return (x * x) ** 0.5 * 0.0

    x = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that its mode is slow, and shows the forward line
        with pytest.raises(RuntimeError, match="returned nan values"), torch.autograd.detect_anomaly(check_nan=True):
            at_nothing(x).backward()
    error = caught(lambda: at_nothing(Value(0.0)).backward())
    assert (error.phase, error.op) == ("backward", "**")


def test_a_hand_written_backward_is_named_with_its_line():
    def program():
        x = Value(1.0, label="x")
        out = Value(2.0, (x,), "mine")

        def backward():
            x.grad += math.nan * out.grad

        out._backward = backward
        (out * 2.0).backward()

    error = caught(program)
    assert (error.phase, error.op) == ("backward", "mine")
    assert "Look at the _backward (" in str(error)


def test_finite_contributions_that_add_up_to_infinity():
    x = Value(1e-300, label="x")

    def program():
        (x * 1e308 + x * 1e308).backward()

    assert "the contributions to the gradient of x add up to inf" in str(caught(program))


def test_a_gradient_left_from_before_and_a_seed():
    x = Value(1.0, label="x")
    x.grad = math.nan
    assert "x holds a gradient of nan from before; set it to 0" in str(caught(lambda: (x * x).backward()))
    x.grad = 0.0
    assert "starts with a gradient of inf" in str(caught(lambda: (x * x).backward(math.inf)))


def test_a_frozen_leaf_takes_no_gradient_and_no_blame():
    """Neither for what it would be passed, nor for what it holds from before it was frozen."""
    base, frozen, x = Value(0.0), Value(0.5, label="frozen"), Value(2.0, label="x")
    base.requires_grad = frozen.requires_grad = False
    frozen.grad = math.nan
    with detect_anomaly():
        (base**x + frozen * x).backward()  # the slope by the base is infinite, and so is log(0)
    assert (frozen.requires_grad, x.grad) == (False, 0.5)
    x.grad = 0.0

    def program():
        (base.sqrt() * x + frozen * x + (x - 2.0).sqrt()).backward()

    error = caught(program)
    assert (error.op, error.path[-1]) == ("sqrt", "`-`")
    tiny = Value(1e-300, label="tiny")
    frozen.grad = math.inf

    def adds_up():
        (frozen * tiny * 1e308 + frozen + tiny * 1e308 + tiny * 1e308).backward()

    assert "the contributions to the gradient of tiny add up to inf" in str(caught(adds_up))


def test_parameters_have_their_names_if_the_model_is_known():
    model = nn.MLP(2, [3, 1], rng=1)
    error = caught(lambda: model([1.0, math.nan]), model)
    assert "(`layers.0.neurons.0.w.1`) and nan gave nan" in str(error)
    with pytest.raises(TypeError, match=r"`model` must be an nn\.Module, got int"), detect_anomaly(3):
        pass


def test_a_long_path_is_shown_by_its_ends():
    def program():
        x = Value(1.0, label="x")
        for _ in range(2000):
            x = x * 2.0

    error = caught(program)
    assert len(error.path) == 1025
    assert "more) …" in str(error)
    assert len(str(error)) < 600


def test_healthy_programs_compute_the_same_numbers_inside():
    points = data.moons(n=20, seed=1)
    runs = []
    for inside in (False, True):
        model = nn.MLP(2, [8, 1], activation="tanh", rng=1)
        optimizer = optim.Adam(model.parameters(), lr=0.01)
        with detect_anomaly(model) if inside else threading.Lock():
            history = chainrule.fit(
                model, losses.hinge, points, optimizer=optimizer, epochs=5, progress=False, compiled=False
            )
        runs.append((history.loss, model.state()))
    assert runs[0] == runs[1]


def test_outside_the_block_infinities_are_numbers_as_ever():
    with detect_anomaly():
        assert nodes_are_observed()
        Value(2.0) * 3.0
    assert not nodes_are_observed()
    assert Value(0.0).log().data == -math.inf
    x = Value(0.0)
    x.sqrt().backward()
    assert x.grad == math.inf


def test_blocks_nest_and_end_after_an_error():
    with detect_anomaly():
        caught(lambda: Value(0.0).log())
        with pytest.raises(AnomalyError):
            Value(0.0).log()
    assert Value(0.0).log().data == -math.inf


def test_other_threads_are_left_alone():
    results = []

    def work():
        x = Value(0.0)
        x.sqrt().backward()
        results.append((Value(0.0).log().data, x.grad))

    with detect_anomaly():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        with pytest.raises(AnomalyError):
            Value(0.0).log()
    assert results == [(-math.inf, math.inf)]


def test_a_node_that_is_refused_is_freed():
    x = Value(0.0)

    def attempts():
        for _ in range(100):
            with pytest.raises(AnomalyError):
                x.log()

    with detect_anomaly():
        before = sys.getrefcount(x)
        attempts()
        gc.collect()
        assert sys.getrefcount(x) == before


def test_a_function_is_compiled_inside_the_block_as_outside():
    w = Value(2.0)

    @chainrule.compile
    def f(x):
        return (w * 2.0) * x

    with detect_anomaly():
        assert f(3.0) == 12.0


def test_fit_takes_eager_steps_inside_the_block():
    points = data.xor()
    with detect_anomaly():
        history = chainrule.fit(nn.MLP(2, [1]), losses.mean_square, points, epochs=3, progress=False)
        assert history.engine == "eager, because compiled steps are not watched by detect_anomaly()"
        with pytest.raises(ValueError, match="`compiled` steps are not watched by detect_anomaly"):
            chainrule.fit(nn.MLP(2, [1]), losses.mean_square, points, progress=False, compiled=True)


def test_the_search_in_a_finished_graph():
    x = Value(0.0, label="x")
    out = (x.log() * 2.0 + 1.0).exp()
    assert first_bad_node(out)._op == "log"
    assert first_bad_node(x + 1.0) is None
    healthy = x * 2.0
    healthy.backward()
    assert first_bad_push(healthy) is None


def test_what_no_gradient_reaches_is_no_anomaly():
    with detect_anomaly():
        x = Value(0.0)
        (x.sqrt().rint() + 3.0 * x).backward()
    assert x.grad == 3.0
