"""The CUDA backend on a GPU that is played by the host: what kernels compute, in blocks of every shape."""

import math
import random
import re
import shutil
import subprocess
from threading import Thread

import numpy as np
import pytest
from programs import PROGRAMS

import chainrule
import op_samples
from chainrule import Value, losses, nn, ops, optim
from chainrule.compiler import compile
from chainrule.compiler.backends.cuda import blocks, kernels, threads
from chainrule.compiler.backends.cuda.dealing import Block, Touch
from chainrule.compiler.backends.cuda.ptx import ptx
from chainrule.compiler.backends.cuda.storage import OWN, Place, Storage, pitch
from emulated_gpu import Machinery, playing

EDGES = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e300, 1e-300, 5e-324, -2.5, 700.0, 20.0)
RNG = np.random.default_rng(0)
SHAPES = {
    "one example for each thread": Block(8, 8, 1),
    "two for each": Block(8, 16, 2),
    "four for each": Block(4, 16, 4),
    "threads share an example": Block(16, 1),
    "threads share four": Block(16, 4),
    "threads share three": Block(8, 3),
    "one thread": Block(1, 4),
    "rows that fill the banks": Block(32, 32, 1),
}


@pytest.fixture(params=[1, -1], ids=["ascending", "descending"])
def order(request):
    """The order in which threads run."""
    return request.param


def numbers_of(program, *given, reduce="sum"):
    """The value, the gradient, and the result of each example."""
    value, gradient = program.batch_value_and_grad(*given, reduce=reduce)
    each = program.batch(*given, reduce=None)
    return np.concatenate([[value], gradient, np.ravel(each)])


def assert_close(found, expected, tolerance=1e-11):
    assert np.shape(found) == np.shape(expected)
    scale = np.maximum(1.0, np.abs(expected).max(initial=0.0))
    assert np.abs(np.asarray(found) - expected).max(initial=0.0) <= tolerance * scale


def assert_as_interpreted(function, wrt, *given, tolerance=1e-11, **gpu):
    """A batch on the GPU is what the interpreter computes."""
    with playing(**gpu):
        found = numbers_of(compile(function, wrt, backend="cuda"), *given)
    assert_close(found, numbers_of(compile(function, wrt, backend="interpreter"), *given), tolerance)


def network(*sizes):
    model = nn.MLP(sizes[0], list(sizes[1:]), rng=1)
    return lambda x, y: (model(x) - y) ** 2, model.parameters()


def points(count, width):
    return RNG.normal(size=(count, width)), RNG.normal(size=count)


class TestOps:
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_every_op_of_each_example(self, dtype):
        """In chunks of ops that share a kernel."""
        rows = list(op_samples.TABLE.values())
        for chunk in (rows[k : k + 15] for k in range(0, len(rows), 15)):
            width = sum(row.arity for row in chunk)
            edges = [[random.Random(f"{k} {n}").choice(EDGES) for k in range(width)] for n in range(100)]
            inside = [[x for row in chunk for x in op_samples.samples(row, 1, n)[0]] for n in range(28)]
            with np.errstate(all="ignore"):
                given = np.array(inside + edges).astype(dtype).astype(float)

            def results(xs, chunk=chunk):
                places = np.cumsum([0, *(row.arity for row in chunk)])
                return [row(*xs[k : k + row.arity]) for row, k in zip(chunk, places, strict=False)]

            with playing(), np.errstate(all="ignore"):
                found = np.array(compile(results, backend="cuda", dtype=dtype).batch(given, reduce=None))
                expected = np.array(compile(results, backend="interpreter").batch(given, reduce=None))
                expected = expected.astype(dtype).astype(float)
                close = np.abs(found - expected) <= (1e-12 if dtype == "float64" else 1e-5) * np.abs(expected)
            right = close | (found == expected) | (np.isnan(found) & np.isnan(expected))
            wrong = np.argwhere(~right)
            assert [(chunk[k].name, given[n], found[k, n], expected[k, n]) for k, n in wrong.tolist()] == []

    def test_every_gradient(self):
        """By numbers that are added to the operands."""
        rows = list(op_samples.TABLE.values())
        for chunk in (rows[k : k + 15] for k in range(0, len(rows), 15)):
            shifts = [Value(0.0) for row in chunk for _ in range(row.arity)]

            def total(xs, chunk=chunk, shifts=shifts):
                operands = iter([w + x for w, x in zip(shifts, xs, strict=True)])
                return sum(row(*[next(operands) for _ in range(row.arity)]) for row in chunk)

            given = [[x for row in chunk for x in op_samples.samples(row, 1, n)[0]] for n in range(5)]
            with playing(block=Block(4, 4)):
                found, expected = (
                    compile(total, shifts, backend=b).batch_value_and_grad(given)[1] for b in ("cuda", "interpreter")
                )
            assert found == pytest.approx(expected, rel=1e-11, abs=1e-13)

    def test_infinite_slopes(self):
        """Of examples that fill a block: those that are missing are like the last, times 0, which would be NaN."""
        w = Value(1.0)
        with playing(block=Block(2, 2)):
            f = compile(lambda x: (w + x).sqrt(), [w], backend="cuda")
            assert f.batch_value_and_grad([-1.0, 3.0], reduce="sum") == (2.0, [math.inf])


CHOSEN = ("heat_on_a_ring", "asian_option", "hidden_markov_model", "cholesky", "sorting_network", "small_network")


class TestPrograms:
    @pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in CHOSEN else pytest.mark.slow) for n in PROGRAMS])
    def test_programs_as_batches_and_alone(self, name):
        found, order = PROGRAMS[name], random.Random(name).choice((1, -1))
        start = found.numbers(found.small)
        parameters, rng = [Value(x) for x in start[::2]], np.random.default_rng(1)
        given = np.array(start[1::2]) * (1.0 + 0.01 * rng.normal(size=(5, len(start[1::2]))))

        def mixed(data):
            pairs = iter(parameters), iter(data)
            return found.loss(chainrule, [next(pairs[k % 2]) for k in range(len(start))], found.small)

        assert_as_interpreted(mixed, parameters, given, order=order, tolerance=1e-10)
        leaves = [Value(x) for x in start]
        root = found.loss(chainrule, leaves, found.small)
        with playing(order):
            value, gradient = compile(root, leaves, backend="cuda", allow_frozen_branches=True).value_and_grad()
        root.backward()
        assert_close([value, *gradient], [root.data, *[leaf.grad for leaf in leaves]], 1e-10)


def relu_asked_early(w):
    """Whether h <= 0 is asked before relu(h) is computed."""

    def f(xs):
        h = [a * x for a, x in zip(w, xs, strict=True)]
        chosen = [ops.where(ops.le(a, 0.0), 2.0 * b, 3.0 * b) for a, b in zip(h, w, strict=True)]
        return sum(c * a.relu() for c, a in zip(chosen, h, strict=True)) + sum(chosen)

    return f


def parameters_of_times(w):
    def f(xs):
        h = 0.0
        for a, x in zip(w, xs, strict=True):
            h = (h * a + x).tanh()
        return h * h

    return f


def recurrence_of_parameters(w):
    """Beside one of examples, in the same loop."""

    def f(xs):
        a, h = w[1], 0.0
        for x in xs:
            a = (a * w[0]).sin()
            h = (h * a + x).tanh()
        return h * h

    return f


def table_of_places(w):
    return lambda xs: sum(w[k * k % len(w)] * xs[k * 7 % 12].tanh() for k in range(12))


def largest(w):
    return lambda xs: chainrule.logsumexp([a * x for a, x in zip(w, xs, strict=True)])


def sums_in_time(w):
    def f(xs):
        h = list(xs)
        for _ in range(10):
            total = sum(a * b for a, b in zip(w, h, strict=True))
            h = [(total + x).tanh() for x in h]
        return sum(h)

    return f


def steps_of_parameters(w):
    """The same for all examples; on the way back, each time computes again what it needs."""

    def f(x):
        a, b = w[0], w[1]
        for _ in range(4):
            a, b = abs(w[0] * a + w[1] * b), abs(w[1] * a + w[0] * b)
        return (a + b) * sum(x)

    return f


def different_steps_of_parameters(w):
    """Likewise, in several loops and statements, of which each computes other elements of one array again."""

    def f(x):
        a, b = w[0], w[1]
        for k in range(6):
            rule = chainrule.cos if k == 3 else chainrule.relu
            a, b = rule(w[0] * a + w[1] * b + 0.4), rule(w[0] * b + w[1] * a + 0.4)
        return (a + b) * sum(x)

    return f


WRITTEN = (
    different_steps_of_parameters,
    steps_of_parameters,
    relu_asked_early,
    parameters_of_times,
    recurrence_of_parameters,
    table_of_places,
    largest,
    sums_in_time,
)


class TestShapes:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_examples_that_do_not_fill_a_block(self, shape, order):
        block, room = SHAPES[shape], 256 if order < 0 else None
        f, wrt = network(6, 7, 1)
        with playing(order, block, room, blocks=2):
            program = compile(f, wrt, backend="cuda")
            for count in {1, block.examples - 1, block.examples, block.examples + 1, 3 * block.examples + 2} - {0}:
                given = points(count, 6)
                expected = numbers_of(compile(f, wrt, backend="interpreter"), *given)
                assert_close(numbers_of(program, *given), expected)

    @pytest.mark.parametrize("write", WRITTEN)
    @pytest.mark.parametrize("shape", ["one example for each thread", "four for each", "threads share three"])
    def test_functions(self, write, shape):
        order = random.Random(f"{write.__name__} {shape}").choice((1, -1))
        w = [Value(x) for x in np.random.default_rng(3).normal(size=12)]
        room = None if order > 0 else 512
        assert_as_interpreted(write(w), w, RNG.normal(size=(21, 12)), order=order, block=SHAPES[shape], room=room)

    @pytest.mark.parametrize("sizes", [(1, 1), (31, 13, 1), (9, 18, 1)], ids=str)
    def test_networks_in_the_blocks_that_are_chosen(self, sizes):
        f, wrt = network(*sizes)
        assert_as_interpreted(f, wrt, *points(150, sizes[0]))

    def test_three_thousand_parameters(self):
        w = [Value(x) for x in RNG.normal(size=3000)]
        assert_as_interpreted(
            lambda xs: sum(a.tanh() * xs[k % 5] for k, a in enumerate(w)), w, RNG.normal(size=(9, 5)), order=-1
        )

    def test_long_times(self):
        w = [Value(0.9), Value(0.1)]

        def f(x):
            for _ in range(1000):
                x = (x * w[0] + w[1]).tanh()
            return x

        assert_as_interpreted(f, w, RNG.normal(size=5), block=Block(4, 4))

    @pytest.mark.parametrize(
        "f",
        [
            lambda w, x: x,
            lambda w, x: 3.0,
            lambda w, x: w * w,
            lambda w, x: ops.floor(w * x),
            lambda w, x: w * x + w**2,
        ],
        ids=["the input", "a constant", "no input", "a gradient of zeros", "a part for all examples"],
    )
    def test_results_that_hardly_depend_on_anything(self, f):
        w = Value(1.5)
        assert_as_interpreted(lambda x: f(w, x), [w], RNG.normal(size=50))
        assert_as_interpreted(lambda x: f(0.5, x), [], RNG.normal(size=50))


class TestCalls:
    def test_captured_numbers_may_change(self):
        w, c = Value(0.5), Value(2.0)
        with playing():
            f, g = (compile(lambda x: (w * x + c).tanh() * c, [w], backend=b) for b in ("cuda", "interpreter"))
            for number in (2.0, -1.0, 0.3):
                w.data = c.data = number
                given = RNG.normal(size=10)
                assert_close(numbers_of(f, given), numbers_of(g, given))
                assert f(0.3) == pytest.approx(g(0.3))

    def test_gradients_by_arguments(self):
        with playing():
            f, g = (compile(lambda x, y: (x[0] * y + x[1]).tanh() * y, backend=b) for b in ("cuda", "interpreter"))
            (value, (dx, dy)), (right, (ex, ey)) = (h.value_and_grad([0.3, 0.2], 0.7, argnums=(0, 1)) for h in (f, g))
        assert_close([value, *dx, dy], [right, *ex, ey])

    def test_branches(self):
        w = Value(0.5)

        def f(x):
            h = w * x
            return h.tanh() if h > 0.2 else h * h

        assert_as_interpreted(f, [w], RNG.normal(size=200))

    def test_node_by_node(self):
        rng = random.Random(1)
        w = [Value(rng.uniform(0.5, 1.0)) for _ in range(5)]
        plan = [(rng.choice(["sin", "tanh", "exp"]), rng.random(), rng.random()) for _ in range(1200)]

        def f(x):
            found = [*w, x]
            for name, a, b in plan:
                total = 0.4 * found[int(a * len(found))] + 0.3 * found[int(b * len(found))]
                found.append(0.5 * ops.TABLE[name](total))
            return sum(found[-10:])

        assert_as_interpreted(f, w, RNG.normal(size=3), tolerance=1e-9)

    def test_two_runs_are_equal_to_the_bit_and_hardly_depend_on_blocks(self):
        (f, wrt), given, found = network(3, 8, 1), points(100, 3), []
        for number in (1, 3, 3, 8):
            with playing(block=Block(8, 8), blocks=number):
                program = compile(f, wrt, backend="cuda")
                found.append(numbers_of(program, *given))
                assert (numbers_of(program, *given) == found[-1]).all()
        assert (found[1] == found[2]).all()
        assert_close(found[0], found[3], 1e-14)

    def test_calls_from_several_threads(self):
        f, wrt = network(3, 7, 1)
        batches, found = [points(count, 3) for count in (1, 50, 129, 13)], {}
        with playing():
            program, interpreted = (compile(f, wrt, backend=b) for b in ("cuda", "interpreter"))

            def call(k):
                found[k] = [numbers_of(program, *batches[k]) for _ in range(3)][-1]

            callers = [Thread(target=call, args=(k,)) for k in range(4)]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
        for k, batch in enumerate(batches):
            assert_close(found[k], numbers_of(interpreted, *batch))


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "momentum, decay": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam, schedule": lambda p: optim.Adam(p, lr=optim.cosine(0.05, 0.0, 30)),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01),
}


class TestTraining:
    def trained(self, backend, make, optimizer, given, size, **gpu):
        loss, parameters = make()
        with playing(**gpu):
            program, chosen = compile(loss, parameters, backend=backend), optimizer(parameters)
            taken = [program.train(chosen, *given, batch_size=size) for _ in range(2)]
        return [*taken[0], *taken[1], *[p.data for p in parameters]]

    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_optimizers_on_batches_that_do_not_divide_the_data(self, name):
        make, given = (lambda: network(3, 7, 1)), points(50, 3)
        runs = [
            self.trained(backend, make, OPTIMIZERS[name], given, 16, block=Block(4, 8, 2))
            for backend in ("cuda", "interpreter")
        ]
        assert_close(*runs, 1e-9)

    def test_classes_and_frozen_parameters(self):
        def make():
            model = nn.MLP(4, [9, 3], rng=1)
            for parameter in model.parameters()[:5]:
                parameter.requires_grad = False
            return lambda x, y: losses.cross_entropy([model(x)], [y]), model.parameters()

        given = RNG.normal(size=(30, 4)), RNG.integers(0, 3, size=30).astype(float)
        runs = [self.trained(b, make, OPTIMIZERS["SGD"], given, 30) for b in ("cuda", "interpreter")]
        assert_close(*runs, 1e-9)

    def test_gradients_of_zeros(self):
        def make():
            w = [Value(0.7), Value(0.2)]
            return lambda x: ops.floor(w[0] * x) + ops.floor(w[1] * x), w

        given = (RNG.normal(size=20),)
        runs = [self.trained(b, make, OPTIMIZERS["momentum, decay"], given, 7) for b in ("cuda", "interpreter")]
        assert_close(*runs)


def made(call, monkeypatch):
    """The kernels that a call asks for."""

    class AskedError(Exception):
        """Kernels, which are not to run."""

    def launches(machinery, found):
        raise AskedError(found)

    monkeypatch.setattr(Machinery, "launches", launches)
    with playing(), pytest.raises(AskedError) as asked:
        call()
    return asked.value.args[0]


def calls(dtype):
    """Programs of all kinds for a GPU, as calls that compile them."""
    w = [Value(x) for x in np.linspace(-1, 1, 12)]
    on_gpu = {"backend": "cuda", "dtype": dtype}
    for sizes in ((2, 16, 16, 1), (13, 13, 1), (40, 64, 1)):
        f, wrt = network(*sizes)
        yield lambda f=f, wrt=wrt, n=sizes[0]: compile(f, wrt, **on_gpu).batch_value_and_grad(*points(9, n))
    f, wrt = network(2, 16, 16, 1)
    yield lambda: compile(f, wrt, **on_gpu).train(optim.Adam(wrt, lr=0.1), *points(9, 2), batch_size=9)
    yield lambda: compile(f, wrt, **on_gpu).batch(*points(9, 2), reduce=None)
    yield lambda: compile(f, wrt, **on_gpu).value_and_grad([0.1, 0.2], 0.3)
    for write in WRITTEN:
        yield lambda write=write: compile(write(w), w, **on_gpu).batch_value_and_grad(RNG.normal(size=(9, 12)))


USED = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores.*?Used (\d+) registers", re.S)


class TestPtx:
    @pytest.mark.parametrize(("dtype", "processor"), [("float32", "sm_90"), ("float64", "sm_80")])
    def test_kernels_are_assembled_within_the_limits(self, dtype, processor, monkeypatch, tmp_path):
        if not shutil.which("ptxas"):
            pytest.skip("needs ptxas")
        for k, call in enumerate(calls(dtype)):
            found, path = made(call, monkeypatch), tmp_path / f"{k}.ptx"
            path.write_text(ptx(found, processor))
            command = ["ptxas", "-v", f"-arch={processor}", "-o", str(tmp_path / "out"), str(path)]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
            used = [tuple(map(int, groups)) for groups in USED.findall(said)]
            assert len(used) == 2, said
            assert len(found.accumulators) > 32 or all(spilled <= 64 for _, spilled, _ in used), said
            threads = max(found.block.threads, found.last_threads)
            assert all(registers * threads <= 65536 for *_, registers in used), said
            assert found.storage.sizes.get("shared", 0) * found.element.bytes <= 163 << 10

    @pytest.mark.parametrize("processor", ["sm_70", "sm_80", "sm_90"])
    def test_a_network_has_no_slow_loads(self, processor, monkeypatch):
        """Its accumulators are in registers, and what it loads is in memory of a known kind."""
        text = ptx(made(next(calls("float32")), monkeypatch), processor)
        assert f".target {processor}" in text
        assert not re.findall(r"\b(?:ld|st)\.(?:local|f32|f64|v\d)", text)
        assert text.count("ld.shared.v4") > 20

    def test_inputs_are_on_their_way_together(self, monkeypatch):
        """A thread loads three inputs of four examples before it stores the first."""
        texts = made(next(calls("float32")), monkeypatch).functions.texts
        load = next(text for text in texts if "load double" in text)
        assert load.count(" phi ") == 12
        assert load.rindex(" phi ") < load.index(" store ")


class TestPlantedFaults:
    """Faults of the backend that its tests must notice."""

    def fails(self, **gpu):
        f, wrt = network(6, 13, 5, 1)
        for order in (1, -1):
            with pytest.raises(AssertionError):
                assert_as_interpreted(f, wrt, *points(21, 6), order=order, **gpu)

    def test_barriers_that_are_missing(self, monkeypatch):
        monkeypatch.setattr(blocks._Hazards, "take", lambda self, call: None)
        self.fails(block=Block(8, 3))

    def test_threads_that_are_mistaken_for_one(self, monkeypatch):
        monkeypatch.setattr(Touch, "is_by_same_thread", lambda self, other: True)
        self.fails(block=Block(8, 3))

    def test_examples_that_are_missing(self, monkeypatch):
        monkeypatch.setattr(kernels, "_is_there", lambda registers, n: registers.emit("fadd double 1.0, 0.0", 1))
        self.fails(block=Block(8, 8))

    def test_a_sum_that_is_dealt_wrongly(self, monkeypatch):
        monkeypatch.setattr(blocks, "exchange", halved(blocks.exchange))
        self.fails(block=Block(8, 8))

    def test_sums_that_move_with_time(self, monkeypatch):
        w = [Value(x) for x in np.linspace(-1, 1, 12)]
        monkeypatch.setattr(blocks, "is_kept", blocks.is_sum)
        with pytest.raises(AssertionError):
            assert_as_interpreted(parameters_of_times(w), w, RNG.normal(size=(9, 12)), block=Block(8, 4))

    def test_numbers_of_a_thread_in_the_same_place(self, monkeypatch):
        def keep(storage, arrays):
            for array in arrays:
                storage.places[array] = Place(OWN, 0, pitch(array.examples))
                storage.sizes[OWN] = max(storage.sizes.get(OWN, 0), array.size // pitch(array.examples))

        monkeypatch.setattr(Storage, "keep", keep)
        self.fails(block=Block(8, 8))

    def test_memory_that_arrays_share_while_both_are_needed(self, monkeypatch):
        right = kernels.lives
        monkeypatch.setattr(kernels, "lives", lambda *given: {a: (b, b) for a, (b, _) in right(*given).items()})
        self.fails(block=Block(8, 8))

    def test_loads_at_addresses_that_are_no_multiples(self, monkeypatch):
        monkeypatch.setattr(threads, "UNROLLED", (3,))
        right = threads.pieces
        monkeypatch.setattr(threads, "pieces", lambda turns, length: right(turns, 2))
        self.fails(block=Block(8, 3))


def halved(right):
    """`exchange`, of whose groups only every other one is added."""

    def wrong(statement, given):
        room, through = right(statement, given)
        if given.groups > 1:
            term = through.terms[0]
            term.loops = (given.groups // 2,)
        return room, through

    return wrong
