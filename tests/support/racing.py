"""Every public call of compiled code, from many threads at once: what they give must be what one thread gives.

    python tests/support/racing.py --results 10000

A *case* is a way in (a call of a program, a batch, a training run) on a backend. Its threads start together on code
that nobody has called before, each with numbers of its own, and every result is compared, to the bit, with that of
one thread alone. Where calls change Values, so is what is left in them: there, numbers are whole, and their sums
the same in any order.
"""

import argparse
import random
import sys
import threading
import warnings
from collections import Counter
from importlib.util import find_spec

import numpy as np

import chainrule
from chainrule import Value, compile, losses, nn, optim

WAYS = {
    "llvm": {"backend": "llvm"},
    "float32": {"backend": "llvm", "dtype": "float32"},
    **({"jax": {"backend": "jax"}, "xla": {"backend": "xla"}} if find_spec("jax") else {}),
    "interpreter": {"backend": "interpreter"},
    "strict": {"strict": True},
}
THREADS = 8
KINDS = 8  # of inputs: thread k has numbers of its own
TRAINED = 50  # examples of a training run
LARGE = {
    "llvm": 2000,
    "float32": 2000,
    "jax": 2000,
    "xla": 500,
    "interpreter": 100,
    "strict": 20,
}  # examples in a batch


def network():
    return nn.MLP(2, [16, 16, 1], activation="tanh", rng=random.Random(5))


def points(kind, count):
    rng = np.random.default_rng(kind)
    return rng.normal(size=(count, 2)), rng.choice([-1.0, 1.0], count)


def bits(result):
    """A result as something to compare: its bytes if it has numbers in it."""
    if isinstance(result, (list, tuple)):
        return tuple(map(bits, result))
    return np.asarray(result).tobytes() if isinstance(result, (float, np.ndarray)) else result


def whole_numbers():
    """A loss of whole numbers with gradients that are whole: w·x, and what it captures."""
    w = [Value(float(k)) for k in range(-20, 20)]
    return w, lambda xs, y: sum(wi * xi for wi, xi in zip(w, xs, strict=True)) + y * w[0]


def examples_of_whole_numbers(kind, count):
    rng = np.random.default_rng(kind)
    return rng.integers(-9, 9, (count, 40)).astype(float), rng.integers(-9, 9, count).astype(float)


class Case:
    """Compiled code with all that it needs; `call(kind)` gives the result for inputs of that kind, to compare."""

    changes = False  # whether calls change Values, and what is left in them depends on all calls
    in_order = (
        False  # whether a call's result depends on those before it, so that all together must be as in one thread
    )

    def __init__(self, way):
        self.way = way
        self.options = WAYS[way]
        self.large = LARGE[way]
        self.prepare()

    def left(self):
        """What the calls have left behind."""
        return []


class Network(Case):
    def prepare(self):
        self.model = network()
        self.function = compile(
            lambda x, y: (1.0 - y * self.model(x)).relu() + 0.1 * self.model(x) ** 2,
            wrt=self.model.parameters(),
            **self.options,
        )


class ValueAndGrad(Network):
    def call(self, kind):
        xs, ys = points(kind, 1)
        return self.function.value_and_grad(xs[0].tolist(), ys[0])


class BatchValueAndGrad(Network):
    def call(self, kind):
        return self.function.batch_value_and_grad(*points(kind, self.large), threads=1)


class BatchOverThreads(Network):
    def call(self, kind):
        return self.function.batch_value_and_grad(*points(kind, self.large), threads=3)


class SmallBatches(Network):
    """Of many sizes, so that programs are compiled while others run; more than eight draw a warning."""

    def call(self, kind):
        return self.function.batch_value_and_grad(*points(kind, 3 + 5 * (kind % 4)))


class BatchOfResults(Network):
    def call(self, kind):
        return self.function.batch(*points(kind, self.large), reduce=None, threads=1 + kind % 2)


class Results(Case):
    def prepare(self):
        model = network()
        self.function = compile(lambda x: {"out": model(x), "again": (model(x), x[0])}, **self.options)

    def call(self, kind):
        found = self.function(points(kind, 1)[0][0].tolist())
        return [*found.values()]


class Structures(Case):
    """A function that every thread calls with arguments of other lengths, and describes after its call."""

    def prepare(self):
        w = Value(0.7)
        self.function = compile(lambda xs: sum((w * x).tanh() for x in xs), **self.options)

    def call(self, kind):
        xs = points(kind, 3 + kind % 4)[0][:, 0].tolist()
        value, gradient = self.function.value_and_grad(xs)
        header = self.function.to_c("f", xs)
        return value, gradient, self.function.describe(), self.function.stats["scalar nodes"], header


class AddedGradients(Case):
    changes = True

    def prepare(self):
        self.w, loss = whole_numbers()
        self.function = compile(loss, wrt=self.w, **self.options)

    def call(self, kind):
        xs, ys = examples_of_whole_numbers(kind, 1)
        return self.function(xs[0].tolist(), ys[0])

    def left(self):
        return [value.grad for value in self.w]


class AddedBatchGradients(AddedGradients):
    def call(self, kind):
        return self.function.batch(*examples_of_whole_numbers(kind, self.large // 10), reduce="sum")


class Recorded(Case):
    """A recorded graph: threads have no numbers of their own, and all get the same."""

    def prepare(self):
        self.model = network()
        xs, ys = points(0, 30)
        loss = losses.hinge([self.model(list(map(Value, x))) for x in xs.tolist()], ys.tolist())
        self.program = compile(loss, self.model.parameters(), **self.options)

    def call(self, kind):
        return self.program.value_and_grad()


class RecordedAndAdded(Case):
    changes = True

    def prepare(self):
        self.w, loss = whole_numbers()
        xs, ys = examples_of_whole_numbers(0, 20)
        total = sum(loss([Value(n) for n in x], y) for x, y in zip(xs.tolist(), ys.tolist(), strict=True))
        self.program = compile(total, self.w, **self.options)

    def call(self, kind):
        return self.program(), self.program.target.data

    def left(self):
        return [value.grad for value in self.w]


class Described(Network):
    """Names are of the model that was given, or of none."""

    def prepare(self):
        super().prepare()
        self.other = nn.Sequential(self.model)
        self.function.batch(*points(0, 3))

    def call(self, kind):
        return self.function.describe([None, self.model, self.other][kind % 3])


class Trained(Network):
    """Steps of one optimizer, on the same examples for all threads: as one thread would have taken them all."""

    changes = in_order = True
    size = 7

    def prepare(self):
        super().prepare()
        self.optimizer = optim.Adam(self.model.parameters(), lr=0.01)

    def call(self, kind):
        return self.function.train(self.optimizer, *points(0, TRAINED), batch_size=self.size)

    def left(self):
        return [[p.data, p.grad] for p in self.model.parameters()], self.optimizer.state()


class TrainedOneByOne(Trained):
    size = 1


class OwnStep(optim.SGD):
    def step(self):
        super().step()


class TrainedByItsOwnStep(Trained):
    """The optimizer looks for gradients in the Values."""

    def prepare(self):
        super().prepare()
        self.optimizer = OwnStep(self.model.parameters(), lr=0.01, momentum=0.9)


class TrainedWhileGradientsAreAdded(Case):
    """Every second thread trains, the others add to the gradients of what is trained."""

    changes = in_order = True

    def prepare(self):
        self.w, loss = whole_numbers()
        self.function = compile(loss, wrt=self.w, **self.options)
        self.optimizer = OwnStep(self.w, lr=1.0)

    def call(self, kind):
        xs, ys = examples_of_whole_numbers(0, 4)
        if kind % 2:
            return len(self.function.train(self.optimizer, xs, ys))
        self.function(xs[0].tolist(), ys[0])
        return 0

    def left(self):
        return [[value.data, value.grad] for value in self.w]


class Sharded(Network):
    def prepare(self):
        super().prepare()
        self.sharded = self.function.shard("all")

    def call(self, kind):
        arrays = points(kind, 40 + 10 * (kind % 2))
        return self.sharded.batch_value_and_grad(*arrays), self.sharded.batch(*arrays, reduce=None)


CASES = [
    ValueAndGrad,
    BatchValueAndGrad,
    BatchOverThreads,
    SmallBatches,
    BatchOfResults,
    Results,
    Structures,
    AddedGradients,
    AddedBatchGradients,
    Recorded,
    RecordedAndAdded,
    Described,
    Trained,
    TrainedOneByOne,
    TrainedByItsOwnStep,
    TrainedWhileGradientsAreAdded,
    Sharded,
]


def cases(ways=WAYS):
    """Every pair of a case and a way that there is."""
    return [(case, way) for case in CASES for way in ways if case is not Sharded or way in ("jax", "xla")]


def wrong_results(make, way, calls, threads=THREADS):
    """How many of the results of `calls` calls in each thread are not those of one thread; and what went wrong."""
    racing = make(way)
    start = threading.Barrier(threads)
    found = [[] for _ in range(threads)]
    errors = []

    def work(k):
        start.wait()
        try:
            for turn in range(calls):
                kind = (k + turn) % KINDS
                found[k].append((kind, bits(racing.call(kind))))
        except BaseException as error:
            errors.append(f"{type(error).__name__}: {error}")

    workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    alone = make(way)
    kinds = [(k + turn) % KINDS for k in range(threads) for turn in range(calls)]
    answers = [(kind, bits(alone.call(kind))) for kind in (kinds if make.changes else sorted(set(kinds)))]
    results = [result for part in found for result in part]
    if make.in_order:
        expected, given = (Counter(result for _, result in pairs) for pairs in (answers, results))
        wrong = (expected - given).total()
    else:
        wrong = sum(result not in answers for result in results) + len(kinds) - len(results)
    if bits(racing.left()) != bits(alone.left()):
        errors.append("what is left in the Values differs")
    return wrong, sorted(set(errors))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=int, default=10_000, help="how many in all")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--cases", nargs="+", default=[case.__name__ for case in CASES])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # of programs compiled over and over, which is meant
    chosen = [pair for pair in cases(arguments.ways) if pair[0].__name__ in arguments.cases]
    calls = -(-arguments.results // (len(chosen) * THREADS))
    print(f"chainrule {chainrule.__version__}: {THREADS} threads, {calls} calls each, {len(chosen)} cases")
    total, failed = 0, 0
    for make, way in chosen:
        wrong, errors = wrong_results(make, way, calls)
        total, failed = total + wrong, failed + bool(wrong or errors)
        print(f"{make.__name__:32}{way:12}{wrong:5} wrong of {THREADS * calls}  {'; '.join(errors)[:160]}", flush=True)
    print(f"{total} wrong of {len(chosen) * THREADS * calls}, {failed} of {len(chosen)} cases failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
