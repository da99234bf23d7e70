"""Ragged examples: lists of different lengths in one batch, or one after another in training; against eager code."""

import random
import warnings

import numpy as np
import pytest

import chainrule
from chainrule import Value, optim, tanh
from chainrule.compiler.backends.llvm import relay
from chainrule.compiler.run import steps, train
from chainrule.compiler.run.rows import by_structure
from chainrule.compiler.run.threads import dealt

COUNT = 40
OPTIMIZERS = {
    "adam": lambda parameters: optim.Adam(parameters, lr=optim.linear(0.05, 0.0, COUNT)),
    "momentum": lambda parameters: optim.SGD(parameters, lr=0.05, momentum=0.9),
    "decay": lambda parameters: optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
}
WAYS = {
    "native": ({}, 1e-12),
    "single": ({"dtype": "float32"}, 1e-4),
    "interpreter": ({"backend": "interpreter"}, 1e-12),
    "strict": ({"strict": True}, 0.0),
}


class Net:
    """A recurrent net with parameters for each position, so that short examples do not use all of them."""

    def __init__(self):
        draw = random.Random(3)
        self.w = [Value(draw.gauss(0, 0.5)) for _ in range(6)]
        self.own = [Value(draw.gauss(0, 0.5)) for _ in range(8)]
        self.scale = Value(1.5)
        self.scale.requires_grad = False
        self.parameters = self.w + self.own

    def loss(self, xs, y):
        w, h = self.w, 0.0
        for x, own in zip(xs, self.own, strict=False):
            h = tanh(w[0] * h + w[1] * x + w[2] + own * x * w[3])
        return (h * w[4] * self.scale + w[5] - y) ** 2

    def branching(self, xs, y):
        return self.loss(xs, y) if xs[0] > 0.0 else self.loss(xs, y) * 2.0

    def numbers(self):
        return np.array([parameter.data for parameter in self.parameters])


def examples(count=COUNT):
    draw = random.Random(1)
    xs = [[draw.gauss(0, 1) for _ in range(draw.randint(1, 8))] for _ in range(count)]
    return xs, [draw.gauss(0, 1) for _ in xs]


def eager_mean(function, xs, ys):
    return chainrule.mean([function(x, y) for x, y in zip(xs, ys, strict=True)])


def trained_eagerly(optimizer_of, size):
    net = Net()
    optimizer, losses, (xs, ys) = optimizer_of(net.parameters), [], examples()
    for start in range(0, len(xs), size):
        loss = eager_mean(net.loss, xs[start : start + size], ys[start : start + size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.data)
    return losses, net.numbers(), optimizer.state()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("optimizer_of", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("size", [1, 7])
def test_training_takes_the_steps_of_eager_code(way, optimizer_of, size):
    losses, numbers, state = trained_eagerly(optimizer_of, size)
    options, tolerance = WAYS[way]
    net = Net()
    optimizer = optimizer_of(net.parameters)
    program = chainrule.compile(net.loss, wrt=net.parameters, **options)
    found = program.train(optimizer, *examples(), batch_size=size)
    np.testing.assert_allclose(found, losses, rtol=0, atol=tolerance)
    np.testing.assert_allclose(net.numbers(), numbers, rtol=0, atol=tolerance)
    for slot in optimizer.slots:
        np.testing.assert_allclose(optimizer.state()[slot], state[slot], rtol=0, atol=tolerance)
    assert optimizer.steps == state["steps"]


def test_steps_on_single_examples_are_one_native_loop(monkeypatch):
    counts = []
    original = relay.relay
    monkeypatch.setattr(relay, "relay", lambda runners, rows: counts.append(len(rows)) or original(runners, rows))
    net = Net()
    program = chainrule.compile(net.loss, wrt=net.parameters)
    program.train(optim.Adam(net.parameters), *examples())
    program.train(optim.Adam(net.parameters), *examples())
    assert counts == [COUNT, COUNT]


@pytest.mark.parametrize("size", [2, 7, COUNT])
def test_steps_on_few_examples_are_one_native_loop_too(monkeypatch, size):
    """With a turn for each example and one for each step; the rest is a loop of its own."""
    counts = []
    original = relay.relay
    monkeypatch.setattr(relay, "relay", lambda runners, rows: counts.append(len(rows)) or original(runners, rows))
    net = Net()
    program = chainrule.compile(net.loss, wrt=net.parameters)
    program.train(optim.Adam(net.parameters), *examples(), batch_size=size)
    steps, rest = divmod(COUNT, size)
    assert counts == [steps * (size + 1), *([rest + (rest > 1)] if rest else [])]


def test_steps_on_many_examples_of_a_structure_run_side_by_side(monkeypatch):
    monkeypatch.setattr(train, "FEW", 0)
    monkeypatch.setattr(relay, "relay", None)
    test_training_takes_the_steps_of_eager_code("native", OPTIMIZERS["adam"], 7)


def test_a_sum_that_is_not_zero_after_a_step_would_be_noticed(monkeypatch):
    """Planted: an update that leaves the gradients of the last step in their sum."""
    original = steps._assignments

    def without_zero(after):
        return original({a: steps._element(a) if a.name == steps.SUM else to for a, to in after.items()})

    monkeypatch.setattr(steps, "_assignments", without_zero)
    with pytest.raises(AssertionError):
        test_training_takes_the_steps_of_eager_code("native", OPTIMIZERS["momentum"], 7)


@pytest.mark.parametrize("strict", [False, True])
def test_training_parameters_that_some_batches_do_not_use(strict):
    """Without a `wrt`, a parameter that a batch does not use has a gradient of zero."""
    w = [Value(1.0), Value(2.0)]
    program = chainrule.compile(lambda xs: sum(p * x for p, x in zip(w, xs, strict=False)), strict=strict)
    losses = program.train(optim.SGD(w, lr=0.1), [[1.0, 2.0], [1.0], [1.0, 2.0], [1.0], [3.0]], batch_size=2)
    other = [1.0, 2.0]
    for batch, loss in zip([[(1, 2), (1, 0)], [(1, 2), (1, 0)], [(3, 0)]], losses, strict=True):
        assert loss == pytest.approx(sum(a * other[0] + b * other[1] for a, b in batch) / len(batch))
        other = [p - 0.1 * sum(row[k] for row in batch) / len(batch) for k, p in enumerate(other)]
    assert [p.data for p in w] == pytest.approx(other)


def test_training_beyond_the_cache_with_a_parameter_that_is_not_used():
    w = [Value(1.0), Value(2.0)]
    program = chainrule.compile(lambda x: w[0] * x)
    assert program.train(optim.SGD(w, lr=0.1), [1.0] * 20_000, batch_size=20_000) == pytest.approx([1.0])
    assert [p.data for p in w] == pytest.approx([0.9, 2.0])


@pytest.mark.parametrize("rows", [[[1.0, 2.0]] * 3, [[1.0, 2.0], [1.0], [2.0]]], ids=["even", "ragged"])
def test_programs_of_optimizers_that_are_gone_are_not_kept_for_ever(rows, monkeypatch):
    monkeypatch.setattr(train, "MOST_STEPS", 3)
    w, eager = Value(1.0), 1.0
    program = chainrule.compile(lambda xs: w * sum(xs))
    for size in (1, 2, 1, 2, 1):
        program.train(optim.SGD([w], lr=0.01), rows, batch_size=size)
        for first in range(0, 3, size):
            some = rows[first : first + size]
            eager -= 0.01 * sum(map(sum, some)) / len(some)
        assert w.data == pytest.approx(eager)
    assert all(len(paths.only.steps) <= 3 for paths in program._traces.by_structure.values())


def test_a_loop_on_the_wrong_state_would_be_noticed(monkeypatch):
    """Planted: each program has its own parameters."""
    original, twins = relay.Runner.words, []  # kept, for their memory would go to the next twin

    def words_of_a_twin(self, spare):
        twins.append(self.native.twin())
        return original(self._replace(native=twins[-1]), spare)

    monkeypatch.setattr(relay.Runner, "words", words_of_a_twin)
    net = Net()
    chainrule.compile(net.loss, wrt=net.parameters).train(optim.SGD(net.parameters, lr=0.05), *examples())
    expected = trained_eagerly(lambda parameters: optim.SGD(parameters, lr=0.05), 1)[1]
    assert np.abs(net.numbers() - expected).max() > 1e-6


def test_one_length_that_leaves_parameters_unused_is_one_program_too():
    """An optimizer changes all its parameters at every step, those without a gradient by their momentum."""
    xs, ys = examples()
    short = [x[:2] if len(x) > 1 else [*x, 0.5] for x in xs]
    net, other = Net(), Net()
    optimizer = optim.Adam(other.parameters, lr=0.1)
    program = chainrule.compile(net.loss, wrt=net.parameters)
    mixed = optim.Adam(net.parameters, lr=0.1)
    losses = program.train(mixed, xs, ys) + program.train(mixed, short, ys)
    assert "adam" not in program.describe()
    assert "m[i]" in program.describe()  # the rule is part of the program
    for rows in (xs, short):
        for x, y in zip(rows, ys, strict=True):
            loss = other.loss(x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert loss.data == pytest.approx(losses.pop(0), abs=1e-11)
    np.testing.assert_allclose(net.numbers(), other.numbers(), rtol=0, atol=1e-11)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["loss", "branching"])
@pytest.mark.parametrize("count", [2, COUNT, 700])
def test_a_batch_is_the_mean_of_its_examples(way, name, count):
    options, tolerance = WAYS[way]
    net, (xs, ys) = Net(), examples(count)
    function = getattr(net, name)
    expected = eager_mean(function, xs, ys)
    expected.backward()
    gradient = [parameter.grad for parameter in net.parameters]
    program = chainrule.compile(function, wrt=net.parameters, **options)
    value, found = program.batch_value_and_grad(xs, ys)
    assert value == pytest.approx(expected.data, rel=0, abs=tolerance)
    np.testing.assert_allclose(found, gradient, rtol=0, atol=tolerance)
    each = program.batch(xs, ys, reduce=None)
    np.testing.assert_allclose(each, [function(x, y).data for x, y in zip(xs, ys, strict=True)], rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_threads_change_no_bit(dtype):
    net, data = Net(), examples(3000)
    program = chainrule.compile(net.loss, wrt=net.parameters, dtype=dtype)
    (value, gradient), *others = (program.batch_value_and_grad(*data, threads=threads) for threads in (1, 2, 3, None))
    for other, other_gradient in others:
        assert other == value
        assert other_gradient.tobytes() == gradient.tobytes()


def test_what_fills_a_run_up_adds_nothing():
    """The last example of a group stands in for those that a run has no examples for; it may be infinite."""
    w = Value(2.0)
    program = chainrule.compile(lambda xs: sum(w / x for x in xs), wrt=[w])
    value, gradient = program.batch_value_and_grad([[1.0], [1.0, 0.0], [4.0]], reduce="sum")
    assert value == np.inf
    assert gradient.tolist() == [np.inf]
    value, gradient = program.batch_value_and_grad([[1.0], [1.0, 2.0], [4.0]], reduce="sum")
    assert (value, gradient.tolist()) == (5.5, [2.75])


@pytest.mark.parametrize("strict", [False, True])
def test_without_wrt_gradients_are_by_the_values_of_all_structures(strict):
    net, (xs, ys) = Net(), examples()
    program = chainrule.compile(net.loss, strict=strict)
    _, gradient = program.batch_value_and_grad(xs, ys)
    assert program.wrt == net.parameters
    eager_mean(net.loss, xs, ys).backward()
    np.testing.assert_allclose(gradient, [parameter.grad for parameter in net.parameters], rtol=0, atol=1e-12)
    program.batch(xs[:1], ys[:1])
    assert len(program.wrt) == 6 + len(xs[0])


def test_examples_may_differ_in_any_part_of_their_structure():
    w = Value(3.0)

    def total(tree):
        return sum(map(total, tree)) if isinstance(tree, list) else w * tree

    trees = [[1, [2.0, [3.0]]], [4.0], [[5.0, 6.0], 7.0], [8.0]]
    program = chainrule.compile(total, wrt=[w])
    assert program.batch(trees, reduce=None).tolist() == [18.0, 12.0, 54.0, 24.0]
    assert program.batch(trees, reduce="sum") == 108.0
    assert w.grad == 36.0


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_lists_tuples_and_arrays(kind):
    rows = [kind([1.0]), kind([2.0, 3.0]), kind([4.0])]
    parts = by_structure([rows, [1.0, 2.0, 3.0]])
    assert [part.numbers.tolist() for part in parts] == [[0, 2], [1]]
    assert [part.matrices[0].tolist() for part in parts] == [[[1.0], [4.0]], [[2.0, 3.0]]]
    assert [part.matrices[1].tolist() for part in parts] == [[[1.0], [3.0]], [[2.0]]]


KINDS = {
    "floats": [[1.0], [2.0, 3.5], [], [4.0]],
    "ints": ([1], [2, 2**60], [], [4]),
    "mixed": [[True], [np.float32(0.1), 7], [], [np.int8(-3)]],
}


@pytest.mark.parametrize("given", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("quick", [True, False], ids=["native", "Python"])
def test_lists_are_read_as_number_by_number(given, quick, monkeypatch):
    """With the native engine's help, or without; each number is what `float` makes of it."""
    if not quick:
        monkeypatch.setattr("chainrule.compiler.run.rows.fill", lambda *_: False)
    parts = by_structure([given])
    assert [part.structure for part in parts] == [((list, ("number",) * n),) for n in (1, 2, 0)]
    assert [part.numbers.tolist() for part in parts] == [[0, 3], [1], [2]]
    read = {k: row for part in parts for k, row in zip(part.numbers.tolist(), part.matrices[0].tolist(), strict=True)}
    assert [read[k] for k in range(4)] == [list(map(float, row)) for row in given]


@pytest.mark.parametrize(("wrong", "error"), [(10**400, OverflowError), ("1", TypeError), (Value(1.0), TypeError)])
def test_what_is_no_number_in_a_list_is_refused_with_its_place(wrong, error):
    with pytest.raises(error, match="example 1, counted from 0"):
        by_structure([[[1.0], [2.0, wrong]]])


def test_structures_of_several_arguments_are_told_apart():
    parts = by_structure([[[1], [1, 2], [3], [4, 5]], [[1, 2], [1], [3], [4]]])
    assert [part.numbers.tolist() for part in parts] == [[0], [1, 3], [2]]


def test_arguments_of_a_batch_may_be_given_by_name():
    w = Value(2.0)
    program = chainrule.compile(lambda xs, *, scale=1.0: w * sum(xs) * scale, wrt=[w])
    assert program.batch([[1.0], [2.0, 3.0]], scale=[10.0, 100.0], reduce=None).tolist() == [20.0, 1000.0]
    assert program.batch(xs=[[1.0], [2.0]], scale=np.array([10, 100]), reduce="sum") == 420.0
    assert program.batch_value_and_grad([[1.0], [2.0]], scale=[10.0, 100.0]) == (210.0, [105.0])
    assert "v1[i]·scale[i]" in program.describe()
    assert program([1.0], scale=10.0) == 20.0
    losses = program.train(optim.SGD([w], lr=0.1), [[1.0], [1.0, 1.0], [1.0]], scale=[1.0, 2.0, 3.0])
    assert losses == pytest.approx([2.0, 4 * 1.9, 3 * 1.5])
    with pytest.raises(TypeError, match="argument scale of a batch must be a list or an array"):
        program.batch([[1.0], [2.0]], scale=3.0)
    with pytest.raises(TypeError, match="`size` is no option of a batch, and `<lambda>` has no argument of that name"):
        program.batch([[1.0], [2.0]], size=[1.0, 2.0])


@pytest.mark.parametrize("options", [{}, {"strict": True}, {"backend": "interpreter"}])
def test_strings_and_none_are_part_of_an_examples_structure_as_of_a_calls(options):
    w = Value(2.0)

    def price(strike, kind):
        return w - strike if kind == "call" else strike - w if kind == "put" else w * strike

    program = chainrule.compile(price, wrt=[w], **options)
    strikes, kinds = [1.0, 5.0, 1.5, 4.0], ["call", "put", "call", None]
    assert program.batch(strikes, kinds, reduce=None).tolist() == [1.0, 3.0, 0.5, 8.0]
    assert program.batch_value_and_grad(strikes, kinds, reduce="sum") == (12.5, [1.0 - 1.0 + 1.0 + 4.0])
    assert program.batch(strikes[:2], ["put", "put"], reduce=None).tolist() == [-1.0, 3.0]
    assert program.train(optim.SGD([w], lr=0.5), strikes, kinds) == [1.0, 3.5, 0.5, 6.0]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ([1.0, None], "example 2, counted from 0: `argument 0` must be a real number, got None inside it: give a"),
        ([1.0, "x"], "example 2, counted from 0: `argument 0` must be a real number, got str 'x' inside it: give a"),
        ([Value(1.0)], "example 2, .*got a Value, to which a compiled function passes no gradient"),
        ({1.0}, r"example 2, .*got a set: numbers may be .*, so convert it, as with list\(...\)"),
    ],
)
def test_an_example_that_has_no_numbers_is_named(wrong, sentence):
    with pytest.raises(TypeError, match=sentence):
        chainrule.compile(lambda xs: sum(xs)).batch([[1.0], [1.0, 2.0], wrong])


def test_results_of_different_structures_are_refused():
    program = chainrule.compile(lambda xs: [2.0 * x for x in xs])
    with pytest.raises(TypeError, match="results of one structure, for every structure of arguments: the result was a"):
        program.batch([[1.0], [2.0, 3.0]], reduce=None)


def test_an_error_in_the_trace_of_any_structure_leaves_everything_as_it_was():
    net, (xs, ys) = Net(), examples()

    def picky(x, y):
        if len(x) == 3:
            raise ValueError("no threes")
        return net.loss(x, y)

    optimizer, before = optim.Adam(net.parameters), net.numbers()
    with pytest.raises(ValueError, match="no threes"):
        chainrule.compile(picky, wrt=net.parameters).train(optimizer, xs, ys)
    assert (optimizer.steps, net.numbers().tolist()) == (0, before.tolist())


def test_very_many_structures_draw_a_warning():
    w = Value(1.0)
    program = chainrule.compile(lambda xs: w * sum(xs), wrt=[w])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.batch([[1.0] * n for n in range(1, 17)])
    with pytest.warns(RuntimeWarning, match="examples of 17 structures .argument 0 was a list of 1 and is a list of 2"):
        program.batch([[1.0] * n for n in range(1, 18)])


def test_what_needs_one_program_refuses():
    jax = pytest.importorskip("jax")
    w = Value(1.0)
    program = chainrule.compile(lambda xs: w * sum(xs), wrt=[w], backend="jax")
    assert program.batch([[1.0], [2.0, 3.0]]) == 3.0
    with pytest.raises(ValueError, match="the examples of a batch must have the same structure: argument 0 was a list"):
        program.shard("all").batch([[1.0], [2.0, 3.0]])
    assert jax


def test_works_are_dealt_by_their_length():
    assert dealt([], 4) == [[]]
    assert dealt([1.0, 1.0, 1.0], 2) == [[0, 2], [1]]


@pytest.mark.parametrize("count", [4, 5, 7, 8])
@pytest.mark.parametrize("size", [2, 3])
def test_the_rest_of_a_ragged_stream_is_one_step_on_the_rest(count, size):
    """Also if it is one example, for which there are programs that go through a stream one by one."""
    series = [[0.1 * k] * (1 + k % 2) for k in range(count)]
    found, expected = [Value(0.4), Value(-0.3)], [Value(0.4), Value(-0.3)]

    def written(w):
        return lambda xs: (sum(w[0] * x for x in xs) + w[1]) ** 2

    losses = chainrule.compile(written(found), wrt=found).train(optim.Adam(found, lr=0.1), series, batch_size=size)
    wanted, optimizer = [], optim.Adam(expected, lr=0.1)
    for first in range(0, count, size):
        optimizer.zero_grad()
        loss = chainrule.mean([written(expected)(xs) for xs in series[first : first + size]])
        loss.backward()
        wanted.append(loss.data)
        optimizer.step()
    assert losses == pytest.approx(wanted, rel=1e-12)
    assert [w.data for w in found] == pytest.approx([w.data for w in expected], rel=1e-12)


def random_tree(rng, nested=True):
    """A list of numbers, or of such lists."""
    if nested and rng.random() < 0.4:
        return [random_tree(rng, nested=False) for _ in range(rng.randint(1, 3))]
    return [rng.uniform(-1, 1) for _ in range(rng.randint(1, 6))]


def walked(w, tree, state):
    """A recurrence through all numbers of a tree."""
    for entry in tree:
        state = walked(w, entry, state) if isinstance(entry, list) else tanh(state * w[0] + entry * w[1]) + w[2]
    return state


@pytest.mark.parametrize("seed", range(24))
def test_random_trees_are_trained_on_as_eager_code_does(seed):
    rng = random.Random(f"ragged {seed}")
    kinds = [random_tree(rng) for _ in range(rng.randint(1, 3))]

    def like(tree):
        return [like(entry) if isinstance(entry, list) else rng.uniform(-1, 1) for entry in tree]

    series = [like(rng.choice(kinds)) for _ in range(rng.choice((1, 2, 7, 23)))]
    start, size = [rng.uniform(-0.8, 0.8) for _ in range(3)], rng.choice((1, 1, 2, 3))
    options = rng.choice(({}, {}, {"backend": "interpreter"}, {"strict": True}))
    ours, theirs = ([Value(number) for number in start] for _ in range(2))
    make = rng.choice((lambda w: optim.SGD(w, lr=0.05, momentum=0.9), lambda w: optim.AdamW(w, lr=0.01)))
    losses = chainrule.compile(lambda t: walked(ours, t, 0.3) ** 2, wrt=ours, **options).train(
        make(ours), series, batch_size=size
    )
    wanted, optimizer = [], make(theirs)
    for first in range(0, len(series), size):
        optimizer.zero_grad()
        loss = chainrule.mean([walked(theirs, tree, 0.3) ** 2 for tree in series[first : first + size]])
        loss.backward()
        wanted.append(loss.data)
        optimizer.step()
    assert losses == pytest.approx(wanted, rel=1e-10)
    assert [w.data for w in ours] == pytest.approx([w.data for w in theirs], rel=1e-10)


@pytest.mark.parametrize("call", ["batch", "batch_value_and_grad", "train"])
def test_a_misspelled_option_is_no_argument(call):
    w = Value(1.0)
    program = chainrule.compile(lambda x: w * x, wrt=[w])
    given = [optim.SGD([w], lr=0.1)] if call == "train" else []
    with pytest.raises(TypeError, match="`batch_sise` is no option of a batch, and `<lambda>` has no argument"):
        getattr(program, call)(*given, [1.0, 2.0], batch_sise=2)
    assert w.data == 1.0
