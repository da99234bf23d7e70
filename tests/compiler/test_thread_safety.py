"""Compiled code may be called from many threads, signal handlers and forked processes: each call has its own memory.

`racing.py` has the cases: every way in, on every backend.
"""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import nullcontext
from importlib.util import find_spec

import numpy as np
import pytest

import racing
from chainrule import Value, compile, detect_anomaly, nn, no_grad, optim
from chainrule.compiler.backends import protocol
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.backends.llvm import Native
from chainrule.compiler.backends.protocol import Pool
from chainrule.compiler.backends.strict import StrictMachine
from chainrule.compiler.run import turns
from chainrule.compiler.run.machine import NEVER, Machine

needs_jax = pytest.mark.skipif(not find_spec("jax"), reason="jax is not installed")
QUICK = {  # cases of ways that take long to compile; of the others, all
    "llvm": "BatchOverThreads SmallBatches Structures AddedGradients RecordedAndAdded Described Trained",
    "float32": "TrainedOneByOne",
    "jax": "ValueAndGrad BatchOverThreads Trained",
    "xla": "ValueAndGrad",
}
ways = pytest.mark.parametrize(
    "way", [pytest.param(w, marks=needs_jax) if w in ("jax", "xla") else w for w in racing.WAYS]
)


def is_quick(case, way):
    return case.__name__ in QUICK.get(way, case.__name__).split()


def name_of(part):
    return getattr(part, "__name__", part)


def in_threads(*functions):
    """What functions give that run at the same time; an error in any of them is raised."""
    results, errors = [None] * len(functions), []

    def work(k):
        try:
            results[k] = functions[k]()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(len(functions))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    if errors:
        raise errors[0]
    return results


def runner_of(way):
    if way in ("jax", "xla"):
        from chainrule.compiler.backends.xla import Foreign, Xla

        return Foreign if way == "jax" else Xla
    return {"interpreter": Interpreted, "strict": StrictMachine}.get(way, Native)


def small_network():
    return nn.MLP(2, [4, 1], activation="tanh", rng=5)


class TestRaces:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch):
        monkeypatch.setattr(racing, "TRAINED", 10)
        monkeypatch.setattr(racing, "LARGE", dict.fromkeys(racing.WAYS, 100) | {"strict": 10, "interpreter": 20})
        monkeypatch.setattr(racing, "network", small_network)

    @pytest.mark.filterwarnings("ignore:.*compiled over and over:RuntimeWarning")
    @pytest.mark.parametrize(
        ("case", "way"),
        [pair for pair in racing.cases() if is_quick(*pair)],
        ids=name_of,
    )
    def test_what_threads_get_is_what_one_gets(self, case, way):
        assert racing.wrong_results(case, way, calls=2) == (0, [])

    @pytest.mark.parametrize(
        ("case", "way"), [(c, w) for c, w in racing.cases() if is_quick(c, w) and c is not racing.Sharded], ids=name_of
    )
    def test_nothing_is_read_from_memory_that_was_given_back(self, case, way, monkeypatch):
        """What one call leaves in a machine neither shows in its result, nor in the next one's.

        But captured data that no number has replaced since is there to stay, where the machine says so.
        """
        kinds = [0, 1, 0]

        def results():
            there = case(way)
            return [there.call(kind) for kind in kinds], there.left()

        expected = racing.bits(results())
        give_back = Pool.give_back

        def spoil(pool, machine):
            if isinstance(machine, StrictMachine):
                constants = machine.data[machine.tape.leaves["constant"]]
                machine.data[:] = machine.grads[:] = machine.output[:] = machine.gradient[:] = np.nan
                machine.load("constant", constants)
            else:
                leaves = machine.program.leaves
                kept = set() if machine.as_of == NEVER else {leaves.get("parameter"), leaves.get("captured")}
                for array, view in machine.views.items():
                    if array not in kept:
                        view[:] = np.nan if array.numbers is None else array.numbers
                machine._room[:] = np.nan
            give_back(pool, machine)

        monkeypatch.setattr(Pool, "give_back", spoil)
        assert racing.bits(results()) == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*compiled over and over:RuntimeWarning")
@pytest.mark.parametrize(("case", "way"), racing.cases(), ids=name_of)
def test_a_thousand_results(case, way, monkeypatch):
    """`make races` compares ten thousand, of a larger network."""
    monkeypatch.setattr(racing, "network", small_network)
    calls = -(-1000 // len(racing.cases()) // racing.THREADS)
    assert racing.wrong_results(case, way, calls) == (0, [])


class TestTwoCallsAtOnce:
    """Both have their numbers in memory before either runs: no luck is needed to find memory in common."""

    @pytest.fixture
    def meet(self, monkeypatch):
        def meet(way):
            start, runner = threading.Barrier(2), runner_of(way)
            for name in ("run", "run_many", "total") if way == "strict" else ("run", "run_many"):
                run = getattr(runner, name)

                def together(self, *arguments, run=run, **named):
                    if threading.current_thread() is not threading.main_thread():
                        start.wait(60)
                    return run(self, *arguments, **named)

                monkeypatch.setattr(runner, name, together)

        return meet

    @ways
    def test_of_a_function(self, way, meet):
        w = Value(3.0)
        function = compile(lambda x: w * x * x, wrt=[w], **racing.WAYS[way])
        function(1.0)
        meet(way)
        function = compile(lambda x: w * x * x, wrt=[w], **racing.WAYS[way])
        function.value_and_grad(1.0)
        w.grad = 0.0
        assert in_threads(lambda: function(2.0), lambda: function(10.0)) == [12.0, 300.0]
        assert w.grad == 104.0

    @ways
    @pytest.mark.parametrize("count", [3, 200])
    def test_of_a_batch(self, way, count, meet, monkeypatch):
        monkeypatch.setattr("chainrule.compiler.run.traced.CACHE", 0)  # 16 examples a run, or 64
        monkeypatch.setattr("chainrule.compiler.run.threads.AT_ONCE", 1000)
        if way == "xla":
            monkeypatch.setattr("chainrule.compiler.backends.xla.CPU_BATCH", 0)
        meet(way)
        w = Value(3.0)
        function = compile(lambda x: w * x, wrt=[w], **racing.WAYS[way])
        calls = [lambda n=n: function.batch_value_and_grad([n] * count, reduce="sum", threads=1) for n in (2.0, 7.0)]
        for call in calls:
            call()
        found = in_threads(*calls)
        assert [(value, gradient.tolist()) for value, gradient in found] == [
            (6.0 * count, [2.0 * count]),
            (21.0 * count, [7.0 * count]),
        ]

    def test_a_function_is_traced_and_compiled_once(self, monkeypatch):
        calls, together = [], threading.Barrier(4)
        w = Value(1.0)

        def slow(x):
            calls.append(x)
            time.sleep(0.05)
            return w * x

        function = compile(slow)

        def call():
            together.wait(60)
            return function(2.0)

        assert in_threads(*[call] * 4) == [2.0] * 4
        assert len(calls) == 1
        assert len(function._source.programs) == 1

    def test_a_method_is_compiled_once_for_an_object(self):
        class Model:
            def __init__(self):
                self.w = Value(2.0)

            @compile
            def double(self, x):
                return self.w * x

        model, together = Model(), threading.Barrier(4)

        def method():
            together.wait(60)
            return model.double

        assert len(set(in_threads(*[method] * 4))) == 1

    def test_a_trace_does_not_disturb_eager_code_beside_it(self):
        """Nor `no_grad()` and `detect_anomaly()` of one thread another's trace."""
        inside, done = threading.Event(), threading.Event()
        w = Value(2.0)

        def traced(x):
            inside.set()
            assert done.wait(60)
            return w * x

        def eager():
            assert inside.wait(60)
            try:
                values = []
                for context in (nullcontext, no_grad, detect_anomaly):
                    with context():
                        values.append((w * w + 1.0 if w > 1.0 else w).data)
                return values, compile(lambda x: w + x)(1.0)
            finally:
                done.set()

        with no_grad():
            assert in_threads(lambda: compile(traced)(3.0), eager) == [6.0, ([5.0] * 3, 3.0)]


class TestMemory:
    def test_as_many_machines_as_calls_at_once_and_few_are_kept(self, monkeypatch):
        monkeypatch.setattr(protocol, "KEPT", 3)
        w = Value(2.0)
        function = compile(lambda x: w * x)
        function(1.0)
        code = function._last_run[1]
        taken = [code.take() for _ in range(5)]
        assert len({id(machine) for machine in taken}) == 5
        for machine in taken:
            code.give_back(machine)
        assert len(code._free) == 3
        for _ in range(100):
            function(1.0)
        assert len(code._free) == 3

    def test_results_are_copies(self):
        w = [Value(1.0), Value(2.0)]
        function = compile(lambda x: w[0] * x + w[1] * x * x, wrt=w)
        program = compile(w[0] * w[1], w)
        for call in (
            lambda x: function.value_and_grad(x)[1],
            lambda x: function.batch_value_and_grad([x])[1],
            lambda x: function.batch([x], reduce=None),
            lambda x: program.value_and_grad()[1],
        ):
            first = call(3.0)
            copy = first.copy()
            call(5.0)
            assert first.tolist() == copy.tolist()

    @ways
    def test_an_interrupted_call_leaves_all_usable(self, way, monkeypatch):
        runner, run = runner_of(way), runner_of(way).run

        def interrupted(self):
            run(self)
            if planted:
                raise planted.pop()

        monkeypatch.setattr(runner, "run", interrupted)
        w, planted = Value(3.0), []
        function = compile(lambda x: w * x, wrt=[w], **racing.WAYS[way])
        program = compile(w * w, **racing.WAYS[way])
        for call, result in ((lambda: function(2.0), 6.0), (program, 9.0)):
            for error in (KeyboardInterrupt, MemoryError, KeyboardInterrupt):
                before = w.grad
                planted.append(error("planted"))
                with pytest.raises(error, match="planted"):
                    call()
                assert w.grad == before
                assert call() == result

    def test_interrupted_training_counts_no_steps_and_gives_gradients_back(self, monkeypatch):
        w = Value(0.0)
        w.grad = 7.0
        loss = compile(lambda x, y: (w * x - y) ** 2)
        own, adam = racing.OwnStep([w], lr=0.5), optim.Adam([w])
        loss.train(own, [1.0], [0.0])
        with monkeypatch.context() as patch:
            patch.setattr(own, "update", lambda *numbers, **named: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                loss.train(own, [1.0], [3.0])
            patch.setattr(Machine, "run_many", lambda *arguments: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                loss.train(adam, [1.0, 1.0], [3.0, 4.0])
        assert (w.data, w.grad, adam.steps) == (0.0, 7.0, 0)
        assert loss.train(own, [1.0, 1.0], [3.0, 4.0]) == [9.0, 1.0]
        assert w.grad == 7.0


class TestReentrance:
    @ways
    def test_a_call_in_the_middle_of_a_call(self, way, monkeypatch):
        """As by a finalizer, or a signal handler."""
        runner, run, inner = runner_of(way), runner_of(way).run, []

        def interrupted(self):
            if not inner:
                inner.append(None)
                inner.append(function.value_and_grad(10.0)[0])
            run(self)

        monkeypatch.setattr(runner, "run", interrupted)
        w = Value(3.0)
        function = compile(lambda x: w * x, wrt=[w], **racing.WAYS[way])
        assert function(2.0) == 6.0
        assert inner == [None, 30.0]
        assert w.grad == 2.0

    @pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
    def test_a_signal_handler(self):
        w = Value(3.0)
        function = compile(lambda x: w * x, wrt=[w])
        recorded = compile(w * w)
        seen = []

        def handler(*_):
            seen.append((function.batch([10.0, 20.0]), function.value_and_grad(5.0)[0], recorded()))
            signal.setitimer(signal.ITIMER_REAL, 0.0005)

        function(2.0)  # in a trace, a handler's call would count as the traced function's, and be refused
        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005)  # it may come while a batch is compiled, and later often
            end = time.monotonic() + 0.5
            wrong = 0
            while time.monotonic() < end:
                wrong += (function(2.0), function.batch([1.0, 2.0]), recorded()) != (6.0, 4.5, 9.0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
        assert wrong == 0
        assert set(seen) == {(45.0, 15.0, 9.0)}

    def test_training_in_the_middle_of_training_is_refused(self):
        w = Value(0.0)
        loss = compile(lambda x: (w - x) ** 2)
        optimizer = optim.SGD([w], lr=0.5)
        optimizer.lr = lambda step: loss.train(optimizer, [1.0]) and 0.5
        with pytest.raises(RuntimeError, match="a call of `train` was interrupted by another one, of this thread"):
            loss.train(optimizer, [1.0])
        optimizer.lr = 0.5
        assert loss.train(optimizer, [1.0]) == [1.0]


class TestTurns:
    def test_calls_that_train_the_same_parameters_wait_for_each_other(self):
        w, other = Value(0.0), Value(0.0)
        order, inside, go_on = [], threading.Event(), threading.Event()

        def rate(step):
            if not inside.is_set() and len(order) == 0:
                inside.set()
                assert go_on.wait(60)
            order.append(threading.current_thread().name)
            return 0.5

        first = optim.SGD([w], lr=0.5)
        first.lr = rate
        loss, independent = compile(lambda x: (w - x) ** 2), compile(lambda x: (other - x) ** 2)

        def second():
            assert inside.wait(60)
            assert independent.train(optim.SGD([other], lr=0.5), [1.0]) == [1.0]  # nobody waits for this
            waiting = threading.Timer(0.1, go_on.set)
            waiting.start()
            return loss.train(optim.SGD([w], lr=0.5), [3.0])

        assert in_threads(lambda: loss.train(first, [1.0, 1.0]), second) == [[1.0, 0.0], [4.0]]
        assert w.data == 3.0

    def test_gradients_are_not_added_to_what_an_optimizer_reads(self):
        w = Value(0.0)
        inside = threading.Event()

        class Slow(optim.SGD):
            def step(self):
                inside.set()
                time.sleep(0.1)
                super().step()

        loss = compile(lambda x: w * x)

        def add():
            assert inside.wait(60)
            return loss(100.0)

        optimizer = Slow([w], lr=1.0)
        assert in_threads(lambda: loss.train(optimizer, [1.0, 1.0]), add)[0] == [0.0, -1.0]
        assert (w.data, w.grad) == (-2.0, 100.0)

    @pytest.mark.parametrize("threads", [1, 3])
    def test_a_batch_has_the_parameters_of_one_moment(self, threads, monkeypatch):
        """Also if it is run in parts, and they change while it runs."""
        monkeypatch.setattr("chainrule.compiler.run.traced.CACHE", 0)  # 16 examples a run
        w, offset, run_many = Value(1.0), Value(0.0), Native.run_many

        def change(self, *arguments):
            w.data = offset.data = 100.0
            return run_many(self, *arguments)

        function = compile(lambda x: w * x + offset, wrt=[w])
        function.batch([1.0] * 420, threads=threads)
        monkeypatch.setattr(Native, "run_many", change)
        assert function.batch([1.0] * 420, threads=threads) == 1.0

    def test_a_turn_that_was_lost_is_over(self, monkeypatch):
        """As when Ctrl-C comes before its end is noted."""
        monkeypatch.setattr(turns, "PATIENCE", 0.01)
        w = [Value(1.0)]
        in_threads(lambda: turns.training(w).__enter__())

        def train():
            with turns.training(w):
                return True

        assert in_threads(train) == [True]
        assert not turns._under_way

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
    def test_a_forked_process_waits_for_nobody(self):
        code = """
            import os, threading, time, warnings, chainrule
            from chainrule import Value, optim
            from chainrule.compiler.run.turns import borrowing_gradients, compiling, training
            warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
            w = Value(1.0)
            loss = chainrule.compile(lambda x: (w - x) ** 2)
            loss(1.0)
            ready = threading.Event()
            def hold():
                with compiling(loss), training([w]), borrowing_gradients([w]):
                    ready.set()
                    time.sleep(60)
            threading.Thread(target=hold, daemon=True).start()
            ready.wait()
            child = os.fork()
            if not child:
                w.grad = 0.0
                fine = loss(3.0) == 4.0 and w.grad == -4.0 and loss.train(optim.SGD([w], lr=0.5), [3.0]) == [4.0]
                os._exit(fine and w.data == 3.0 and loss.batch([1.0, 5.0], threads=1) == 4.0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
            os._exit(0)
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)


@needs_jax
@pytest.mark.slow
def test_batches_over_several_devices_take_turns():
    """Two programs at once would have their devices wait for each other."""
    code = """
        import threading
        import numpy as np
        from chainrule import Value, compile
        w = Value(3.0)
        program = compile(lambda x: w * x, backend="jax").shard("all")
        assert program.devices.count == 4
        found = []
        def work(k):
            for _ in range(20):
                found.append(program.batch_value_and_grad(np.full(40, float(k)))[0] == 3.0 * k)
        workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
        assert found == [True] * 160
    """
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=300, env=environment)
