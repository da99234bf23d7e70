"""Losses and their gradients are PyTorch's, at any size of their arguments."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812  # as the world calls it

from chainrule import Value, losses

SCORES = [0.3, -1.2, 0.0, 2.5, -0.9, 40.0, -40.0]
SIGNS = [1, 1, -1, -1, 1, 1, 1]
HUGE = [1000.0, -1000.0, 1000.0, -1000.0, 0.0]
ROWS = [[0.2, -1.0, 3.0], [1.0, 1.0, 1.0], [-5.0, 2.0, 0.1], [40.0, 0.0, 0.0]]
CLASSES = [2, 0, 0, 0]


def values(numbers):
    return [values(n) for n in numbers] if isinstance(numbers, list) else Value(numbers)


def gradients(nested):
    return [gradients(v) for v in nested] if isinstance(nested, list) else nested.grad


def agree(ours, theirs, predictions):
    """Whether our loss and its gradient at `predictions` are those of PyTorch."""
    leaves = values(predictions)
    tensor = torch.tensor(predictions, dtype=torch.float64, requires_grad=True)
    loss, expected = ours(leaves), theirs(tensor)
    loss.backward()
    expected.backward()
    assert isinstance(loss, Value)
    assert loss.data == pytest.approx(expected.item(), rel=1e-12, abs=1e-12)
    assert np.array(gradients(leaves)) == pytest.approx(tensor.grad.numpy(), rel=1e-12, abs=1e-12)


def float64(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize("delta", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("errors", [SCORES, HUGE, [0.3, -0.3, 1.0, -1.0, 2.5, -2.5], [[1.0, 2.0], [-3.0, 0.2]]])
def test_huber_is_that_of_pytorch_inside_outside_and_at_the_kink(errors, delta):
    targets = np.zeros_like(errors).tolist()
    agree(
        lambda p: losses.huber(p, targets, delta),
        lambda p: F.huber_loss(p, float64(targets), delta=delta),
        errors,
    )


@pytest.mark.parametrize("predictions", [SCORES, HUGE, ROWS, [[0.5], [1.5]], [7.0]])
def test_squares_are_those_of_pytorch(predictions):
    targets = (0.5 + np.arange(np.size(predictions)).reshape(np.shape(predictions))).tolist()
    agree(
        lambda p: losses.mean_square(p, targets),
        lambda p: F.mse_loss(p, float64(targets)),
        predictions,
    )
    agree(
        lambda p: losses.sum_of_squares(p, targets),
        lambda p: F.mse_loss(p, float64(targets), reduction="sum"),
        predictions,
    )


def test_hinge_is_that_of_pytorch():
    agree(
        lambda p: losses.hinge(p, SIGNS),
        lambda p: torch.relu(1 - float64(SIGNS) * p).mean(),
        SCORES,
    )


def test_hinge_is_computed_as_micrograds_demo_does_to_the_bit():
    scores, hand = values(SCORES[:3]), values(SCORES[:3])
    each = [(1 + -yi * scorei).relu() for yi, scorei in zip(SIGNS, hand, strict=False)]
    expected = sum(each) * (1.0 / len(each))
    expected.backward()
    loss = losses.hinge(scores, SIGNS[:3])
    loss.backward()
    assert loss.data == expected.data
    assert gradients(scores) == gradients(hand)


@pytest.mark.parametrize("targets", [[1, 0, 1, 0, 1, 1, 0], [0.0, 1.0, 0.3, 0.9, 0.5, 0.0, 1.0], [True] * 7])
def test_binary_cross_entropy_is_that_of_pytorch(targets):
    agree(
        lambda p: losses.binary_cross_entropy(p, targets),
        lambda p: F.binary_cross_entropy_with_logits(p, float64([float(y) for y in targets])),
        SCORES,
    )


def test_binary_cross_entropy_takes_several_outputs():
    targets = [[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0]]
    agree(
        lambda p: losses.binary_cross_entropy(p, targets),
        lambda p: F.binary_cross_entropy_with_logits(p, float64(targets)),
        ROWS,
    )


def test_cross_entropy_is_that_of_pytorch():
    agree(
        lambda p: losses.cross_entropy(p, CLASSES),
        lambda p: F.cross_entropy(p, torch.tensor(CLASSES)),
        ROWS,
    )


@pytest.mark.parametrize("targets", [[1, 1, 0, 0, 1], [1, 0, 0, 1, 0]])
def test_binary_cross_entropy_is_exact_for_logits_of_a_thousand(targets):
    agree(
        lambda p: losses.binary_cross_entropy(p, targets),
        lambda p: F.binary_cross_entropy_with_logits(p, float64(targets)),
        HUGE,
    )


@pytest.mark.parametrize("target", [0, 1, 2])
@pytest.mark.parametrize("row", [[1000.0, -1000.0, 0.0], [1000.0, 1000.0, 999.0], [-1000.0, -1000.0, -1000.0]])
def test_cross_entropy_is_exact_for_logits_of_a_thousand(row, target):
    agree(
        lambda p: losses.cross_entropy(p, [target]),
        lambda p: F.cross_entropy(p, torch.tensor([target])),
        [row],
    )


@pytest.mark.parametrize(("logit", "target"), [(40.0, 1), (-40.0, 0)])
def test_binary_cross_entropy_tells_sure_from_certain(logit, target):
    leaf = Value(logit)
    loss = losses.binary_cross_entropy([leaf], [target])
    loss.backward()
    assert loss.data == pytest.approx(math.exp(-40.0), rel=1e-15)
    assert abs(leaf.grad) == pytest.approx(math.exp(-40.0), rel=1e-15)


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.integers(0, 1)), min_size=1, max_size=6))
def test_two_classes_cost_the_same_by_either_cross_entropy(examples):
    binary = losses.binary_cross_entropy([a - b for a, b, _ in examples], [1 - y for *_, y in examples])
    multi = losses.cross_entropy([[a, b] for a, b, _ in examples], [y for *_, y in examples])
    assert binary == pytest.approx(multi, rel=1e-12, abs=1e-12)


def test_targets_may_be_values_and_then_have_a_gradient():
    prediction, target = Value(3.0), Value(1.0)
    losses.sum_of_squares([prediction], [target]).backward()
    assert (prediction.grad, target.grad) == (4.0, -4.0)
    assert losses.hinge([prediction], [target]).data == 0.0
    assert losses.binary_cross_entropy([prediction], [target]).data == pytest.approx(math.log1p(math.exp(-3.0)))


def test_predictions_and_targets_may_be_arrays():
    scores = np.array(values(SCORES), dtype=object)
    assert losses.hinge(scores, np.array(SIGNS)).data == losses.hinge(values(SCORES), SIGNS).data
    logits = np.array(values(ROWS), dtype=object)
    assert losses.cross_entropy(logits, np.array(CLASSES)).data == losses.cross_entropy(values(ROWS), CLASSES).data
    assert losses.accuracy(scores, np.array(SIGNS)) == losses.accuracy(SCORES, SIGNS)


def test_plain_numbers_give_a_plain_number():
    assert losses.mean_square([1.0, 3.0], [0.0, 0.0]) == 5.0
    assert losses.hinge([0.5], [1]) == 0.5


def test_l2_is_alpha_times_the_sum_of_squares():
    parameters = values([1.0, -2.0, 3.0])
    penalty = losses.l2(0.5)(parameters)
    penalty.backward()
    assert penalty.data == 7.0
    assert gradients(parameters) == [1.0, -2.0, 3.0]
    assert losses.l2(0.5)(iter(parameters)).data == 7.0


def test_accuracy_by_sign_counts_as_micrograds_demo_does():
    scores = values([0.3, -1.2, 0.0, 2.5])
    assert losses.accuracy(scores, [1, 1, -1, -1]) == 0.5
    assert losses.accuracy(scores, [1, 0, 0, 1]) == 1.0


def test_accuracy_by_class_counts_the_largest_outputs():
    assert losses.accuracy(values(ROWS), [2, 1, 1, 0]) == 0.75
    assert losses.accuracy(ROWS, [2, 0, 1, 0]) == 1.0


def test_argmax_is_the_first_of_the_largest():
    assert losses.argmax([0.0, 2.0, Value(2.0), -1.0]) == 1


V = Value(1.0)
PAIRED = [losses.sum_of_squares, losses.mean_square, losses.huber]
MISTAKES = [
    *[(lambda f=f: f([V, V], [1.0]), ValueError,
       "`predictions` has 2 entries and its targets 1: give one target for each") for f in [*PAIRED, losses.accuracy]],
    *[(lambda f=f: f([], []), ValueError,
       "`predictions` is empty; give at least one") for f in [*PAIRED, losses.accuracy]],
    *[(lambda f=f: f(V, 1.0), TypeError,
       "`predictions` must be a list, got Value: write [x] for one number x, list(m) for a map m")
      for f in [*PAIRED, losses.accuracy]],
    (lambda: losses.hinge(map(abs, [V]), [1]), TypeError,
     "`scores` must be a list, got map: write [x] for one number x, list(m) for a map m"),
    (lambda: losses.mean_square([V], iter([1.0])), TypeError,
     "`targets` must be a list, got list_iterator: write [x] for one number x, list(m) for a map m"),
    (lambda: losses.mean_square([V, [V]], [1.0, 1.0]), ValueError,
     "`predictions[1]` is a list of 1 and its target one number: give two numbers, or two lists of equal length"),
    (lambda: losses.mean_square([V], [[1.0, 2.0]]), ValueError,
     "`predictions[0]` is one number and its target a list of 2: give two numbers, or two lists of equal length"),
    (lambda: losses.mean_square([[V, V]], [[1.0]]), ValueError,
     "`predictions[0]` has 2 entries and its targets 1: give one target for each"),
    (lambda: losses.huber([V], [1.0], delta=0.0), ValueError,
     "`delta` must be above 0 and finite, got 0.0: choose one such as 1.0"),
    (lambda: losses.hinge([V], [0]), ValueError,
     "`targets` of hinge must be -1 or 1, got 0: convert 0 and 1 with 2 * y - 1"),
    (lambda: losses.hinge([V], [1, 1]), ValueError,
     "`scores` has 1 entries and its targets 2: give one target for each"),
    (lambda: losses.binary_cross_entropy([V], [-1]), ValueError,
     "`targets` of binary_cross_entropy must lie between 0 and 1, got -1: "
     "convert -1 and 1 with (y + 1) / 2, or use hinge"),
    (lambda: losses.binary_cross_entropy([V], [None]), TypeError,
     "`targets` must be a real number, got NoneType: "
     "give a real number (int, float, bool, Fraction or a NumPy scalar)"),
    (lambda: losses.binary_cross_entropy([], []), ValueError,
     "`logits` is empty; give at least one"),
    (lambda: losses.cross_entropy([V], [0]), TypeError,
     "`logits[0]` must be a list with a number for each class, got one number"),
    (lambda: losses.cross_entropy([[V, V]], [2]), ValueError,
     "`targets[0]` must be a class index below 2, got 2: "
     "count classes from 0, and give the model one output for each"),
    (lambda: losses.cross_entropy([[V, V]], [-1]), ValueError,
     "`targets[0]` must be a class index below 2, got -1: "
     "count classes from 0, and give the model one output for each"),
    (lambda: losses.cross_entropy([[V, V]], [1.0]), TypeError,
     "`targets[0]` must be a class index, got 1.0: give an int, as data.Dataset.from_arrays(X, y, labels=True) does"),
    (lambda: losses.cross_entropy([[V, V]], [0, 1]), ValueError,
     "`logits` has 1 entries and its targets 2: give one target for each"),
    (lambda: losses.l2(-1.0), ValueError,
     "`alpha` must be at least 0 and finite, got -1.0: choose one such as 1e-4"),
    (lambda: losses.argmax([]), ValueError,
     "`values` is empty; give at least one"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "kind", "message"), MISTAKES)
def test_a_mistake_is_named_in_a_sentence(mistake, kind, message):
    with pytest.raises(kind) as caught:
        mistake()
    assert str(caught.value) == message
