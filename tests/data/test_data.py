"""Data sets have the shapes they are known for, and each example is dealt out exactly once."""

import math
from collections import Counter
from random import Random

import numpy as np
import pytest
from sklearn.datasets import make_circles, make_moons

from chainrule import data

DRAWN = [data.moons, data.circles, data.spirals, data.blobs]


def rows(examples):
    """The examples in an order that does not depend on how they were shuffled."""
    return sorted([y, *x] for x, y in examples)


def sklearn_rows(points, classes):
    return sorted([2 * int(c) - 1, *map(float, p)] for p, c in zip(points, classes, strict=True))


def flat(table):
    return [number for row in table for number in row]


@pytest.mark.parametrize("n", [2, 3, 5, 100, 101])
def test_moons_without_noise_are_those_of_scikit_learn(n):
    theirs = sklearn_rows(*make_moons(n, noise=None))
    assert flat(rows(data.moons(n, noise=0.0))) == pytest.approx(flat(theirs), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 5, 100, 101])
@pytest.mark.parametrize("factor", [0.0, 0.5, 0.8])
def test_circles_without_noise_are_those_of_scikit_learn(n, factor):
    def in_order(table):  # many points share a coordinate up to the last bit, which must not decide the order
        return sorted(table, key=lambda row: [round(number, 9) + 0.0 for number in row])

    theirs = sklearn_rows(*make_circles(n, noise=None, factor=factor))
    ours = rows(data.circles(n, noise=0.0, factor=factor))
    assert flat(in_order(ours)) == pytest.approx(flat(in_order(theirs)), rel=1e-12, abs=1e-12)


def test_the_frozen_moons_are_the_points_of_micrograds_demo_to_the_bit():
    np.random.seed(1337)
    points, classes = make_moons(n_samples=100, noise=0.1)
    frozen = data.micrograd_moons()
    assert frozen.inputs == points.tolist()
    assert frozen.targets == (classes * 2 - 1).tolist()


def test_xor_is_one_where_its_inputs_differ():
    assert list(data.xor()) == [([a, b], float(a != b)) for a in (0.0, 1.0) for b in (0.0, 1.0)]


def test_the_four_points_are_those_of_the_lecture():
    four = data.four_points()
    assert four.inputs == [[2, 3, -1], [3, -1, 0.5], [0.5, 1, 1], [1, 1, -1]]
    assert four.targets == [1, -1, -1, 1]


@pytest.mark.parametrize("draw", DRAWN)
def test_a_seed_gives_one_set_and_another_seed_another(draw):
    assert list(draw(seed=3)) == list(draw(seed=3))
    assert list(draw(seed=3)) != list(draw(seed=4))


@pytest.mark.parametrize("draw", DRAWN)
def test_drawing_a_set_leaves_the_global_random_numbers_alone(draw):
    import random

    random.seed(1)
    expected = random.random()
    random.seed(1)
    draw()
    assert random.random() == expected


@pytest.mark.parametrize("draw", DRAWN)
@pytest.mark.parametrize("n", [3, 10, 100, np.int64(30)])
def test_a_set_has_as_many_examples_as_asked_for_in_the_plane(draw, n):
    examples = draw(n)
    assert len(examples) == len(examples.inputs) == len(examples.targets) == n
    assert all(type(number) is float for x in examples.inputs for number in x)
    assert {len(x) for x in examples.inputs} == {2}


@pytest.mark.parametrize(
    ("examples", "targets"),
    [
        (data.moons(10), {-1: 5, 1: 5}),
        (data.moons(11), {-1: 5, 1: 6}),
        (data.circles(10), {-1: 5, 1: 5}),
        (data.spirals(10), {-1: 5, 1: 5}),
        (data.blobs(10, classes=2), {-1: 5, 1: 5}),
        (data.blobs(10), {0: 3, 1: 3, 2: 4}),
        (data.spirals(10, classes=4), {0: 2, 1: 3, 2: 2, 3: 3}),
    ],
)
def test_two_classes_are_signs_more_are_indices_and_all_are_equally_large(examples, targets):
    assert Counter(examples.targets) == targets


@pytest.mark.parametrize("draw", DRAWN)
def test_a_set_comes_in_random_order(draw):
    assert draw().targets != sorted(draw().targets)


@pytest.mark.parametrize("draw", DRAWN)
def test_noise_has_the_standard_deviation_asked_for(draw):
    clean, noisy = (np.array(draw(4000, noise=noise, seed=5).inputs) for noise in (0.0, 0.25))
    assert np.std(noisy - clean) == pytest.approx(0.25, rel=0.03)
    assert np.mean(noisy - clean) == pytest.approx(0.0, abs=0.02)


def test_blobs_lie_around_points_on_the_unit_circle():
    assert sorted({(y, *np.round(x, 9)) for x, y in data.blobs(12, noise=0.0, classes=4)}) == [
        (0, 1.0, 0.0),
        (1, 0.0, 1.0),
        (2, -1.0, 0.0),
        (3, 0.0, -1.0),
    ]


def test_the_arms_of_a_spiral_are_turned_copies_of_one():
    first, second, third = (
        sorted((complex(*x) for x, y in data.spirals(30, noise=0.0, classes=3) if y == arm), key=abs)
        for arm in range(3)
    )
    third_of_a_turn = np.exp(2j * np.pi / 3)
    assert second == pytest.approx([z * third_of_a_turn for z in first])
    assert third == pytest.approx([z * third_of_a_turn for z in second])
    assert np.abs(first) == pytest.approx(np.arange(1, 11) / 10)


def test_a_spiral_winds_as_often_as_asked():
    def winding(turns):
        arm = sorted((complex(*x) for x, y in data.spirals(1000, noise=0.0, turns=turns) if y == -1), key=abs)
        return np.unwrap(np.angle(arm))[-1] / (2 * np.pi)

    assert winding(1.0) == pytest.approx(1.0)
    assert winding(2.5) == pytest.approx(2.5)


# Data sets as sequences.

TEN = data.Dataset([[float(i)] for i in range(10)], list(range(10)))


def test_a_dataset_is_a_sequence_of_pairs():
    assert TEN[3] == ([3.0], 3)
    assert TEN[-1] == ([9.0], 9)
    assert [y for _, y in TEN] == list(range(10))
    assert TEN[2:4].inputs == [[2.0], [3.0]]
    assert repr(TEN) == "<Dataset of 10 examples>"


def test_a_dataset_can_be_made_of_arrays():
    made = data.Dataset(np.eye(2), np.array([0, 1]))
    assert len(made) == 2
    assert made[1][1] == 1


def test_shuffling_moves_inputs_and_targets_together_and_loses_none():
    shuffled = data.shuffle(TEN, Random(0))
    assert all(x == [float(y)] for x, y in shuffled)
    assert sorted(shuffled.targets) == TEN.targets
    assert shuffled.targets != TEN.targets
    assert TEN.targets == list(range(10))


def test_shuffling_is_decided_by_the_generator():
    assert data.shuffle(TEN, Random(1)).targets == data.shuffle(TEN, Random(1)).targets
    assert data.shuffle(TEN, Random(1)).targets != data.shuffle(TEN, Random(2)).targets


@pytest.mark.parametrize("rng", [None, Random(0)])
@pytest.mark.parametrize(("size", "sizes"), [(1, [1] * 10), (3, [3, 3, 3, 1]), (5, [5, 5]), (10, [10]), (99, [10])])
def test_batches_deal_out_each_example_once(size, sizes, rng):
    dealt = data.batches(TEN, size, rng)
    assert [len(batch) for batch in dealt] == sizes
    assert sorted(y for batch in dealt for _, y in batch) == TEN.targets
    assert all(x == [float(y)] for batch in dealt for x, y in batch)


def test_batches_keep_the_order_unless_there_is_a_generator():
    def order(rng):
        return [y for batch in data.batches(TEN, 4, rng) for y in batch.targets]

    rng = Random(0)
    assert order(None) == TEN.targets
    assert order(rng) != TEN.targets
    assert order(rng) != order(rng)
    assert order(Random(0)) == order(Random(0))


def test_a_dataset_without_examples_has_no_batches():
    assert data.batches(data.Dataset([], []), 4) == []


@pytest.mark.parametrize("rng", [None, Random(0)])
@pytest.mark.parametrize(("fraction", "sizes"), [(0.8, (8, 2)), (0.5, (5, 5)), (0.25, (2, 8)), (0.94, (9, 1))])
def test_a_split_has_the_sizes_asked_for_and_loses_none(fraction, sizes, rng):
    train, test = data.split(TEN, fraction, rng)
    assert (len(train), len(test)) == sizes
    assert sorted(train.targets + test.targets) == TEN.targets
    assert (train.targets == TEN.targets[: sizes[0]]) is (rng is None)


MISTAKES = [
    (lambda: data.Dataset([[1.0]], [1, 2]), ValueError,
     "`inputs` has 1 entry and `targets` 2: give one target for each input"),
    (lambda: data.moons(1), ValueError, "`n` must be an int of at least 2, got 1"),
    (lambda: data.blobs(2), ValueError, "`n` must be an int of at least 3, got 2"),
    (lambda: data.circles(10.0), ValueError, "`n` must be an int of at least 2, got 10.0"),
    (lambda: data.moons(seed=None), ValueError, "`seed` must be an int of at least 0, got None"),
    (lambda: data.moons(noise=-1), ValueError,
     "`noise` must be at least 0 and finite, got -1.0: choose one such as 0.1"),
    (lambda: data.circles(factor=1), ValueError,
     "`factor` must be at least 0 and below 1, got 1.0: choose one such as 0.5"),
    (lambda: data.spirals(turns=math.inf), ValueError,
     "`turns` must be at least 0 and finite, got inf: choose one such as 1.0"),
    (lambda: data.spirals(classes=1), ValueError, "`classes` must be an int of at least 2, got 1"),
    (lambda: data.blobs(classes="two"), ValueError, "`classes` must be an int of at least 2, got 'two'"),
    (lambda: data.batches(TEN, 0), ValueError, "`size` must be an int of at least 1, got 0"),
    (lambda: data.batches([([1.0], 1)], 1), TypeError,
     "`data` must be a Dataset or a pair (X, y), got list: give a tuple of inputs and targets, or make one with "
     "Dataset(inputs, targets)"),
    (lambda: data.batches(TEN, 2, rng=3), TypeError,
     "`rng` must be a random.Random, got 3: make one with random.Random(seed)"),
    (lambda: data.shuffle(TEN, 3), TypeError,
     "`rng` must be a random.Random, got 3: make one with random.Random(seed)"),
    (lambda: data.split(TEN, 80), ValueError,
     "`fraction` must be at least 0 and below 1, got 80.0: choose one such as 0.8"),
    (lambda: data.split(TEN, 0.01), ValueError,
     "`fraction` 0.01 of 10 examples leaves a part empty: choose one nearer to 0.5"),
    (lambda: data.split([1, 2], 0.5), TypeError,
     "`data` must be a Dataset or a pair (X, y), got list: give a tuple of inputs and targets, or make one with "
     "Dataset(inputs, targets)"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "kind", "message"), MISTAKES)
def test_a_mistake_is_named_in_a_sentence(mistake, kind, message):
    with pytest.raises(kind) as caught:
        mistake()
    assert str(caught.value) == message
