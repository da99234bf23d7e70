"""Calls of compiled functions on a GPU: which arrays they read, in which order, and what they leave behind.

There is no GPU here: `tests/support/fake_cuda.c` stands for the driver, whose kernels note where their first input is,
and give the scalar of a step as its loss. What kernels compute is tested in `test_cuda.py`.
"""

import _thread
import gc
import threading
import time
import weakref

import numpy as np
import pytest

from chainrule import Value, losses, optim
from chainrule.compiler import compile
from chainrule.compiler.backends.cuda.device_arrays import DeviceArray
from chainrule.compiler.backends.cuda.driver import CudaError, device
from chainrule.compiler.run.arguments import Traces
from chainrule.core.value import ENGINE
from fake_cuda import needs_a_compiler, printed

pytestmark = needs_a_compiler
COUNT = 40


class Theirs:
    """An array of another library, as it says of itself; `changes` are to that."""

    def __init__(self, count=COUNT, **changes):
        self.buffer, self.count, self.changes = device().allocate(8 * count), count, changes

    @property
    def __cuda_array_interface__(self):
        said = {"shape": (self.count,), "typestr": "<f8", "data": (self.buffer.address, False), "version": 3}
        return {**said, **self.changes}


class Lender:
    """An array of a library that has DLPack alone."""

    def __init__(self):
        self.numbers, self.streams = np.zeros(COUNT), []

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        return self.numbers.__dlpack__()


@pytest.fixture
def w(fake):
    return Value(0.5)


@pytest.fixture
def f(w):
    return compile(lambda x: (w * x).tanh(), [w], backend="cuda", dtype="float32")


@pytest.fixture
def descriptions(fake):
    """How often an array was described: each time, the driver is asked where it is."""
    return lambda: fake.fake_calls(b"cuPointerGetAttribute")


WAYS = {
    "mean": lambda f, x: f.batch_value_and_grad(x),
    "sum": lambda f, x: f.batch_value_and_grad(x, reduce="sum"),
    "gradients": lambda f, x: f.batch(x),
    "results": lambda f, x: f.batch(x, reduce=None),
    "training": lambda f, x: f.train(optim.SGD(f.wrt, lr=0.1), x, batch_size=16),
}


def interrupt_when_awaited(fake):
    """Ctrl-C, as soon as the main thread waits for the device."""
    while not fake.fake_is_awaited():
        time.sleep(0.01)
    _thread.interrupt_main()


def test_arrays_that_came_with_traces_which_another_thread_has_put_aside(w, monkeypatch):
    x, c, right = Theirs(), Value(2.0), Traces._begin
    f = compile(lambda x: (w * x).tanh() + c * x, backend="cuda")
    c.requires_grad = False

    def interrupted(*given):
        monkeypatch.setattr(Traces, "_begin", right)
        found = right(*given)
        c.requires_grad = True
        f.batch_value_and_grad(x)  # as another thread might at this moment
        return found

    monkeypatch.setattr(Traces, "_begin", interrupted)
    assert len(f.batch_value_and_grad(x)[1]) == 1
    assert len(f.batch_value_and_grad(x)[1]) == 2


@pytest.mark.parametrize("call", WAYS.values(), ids=WAYS)
class TestArraysGivenAgain:
    def test_are_described_once(self, fake, f, descriptions, call):
        x = Theirs()
        call(f, x)
        found = descriptions()
        for other in (call, *WAYS.values(), call):
            other(f, x)
            assert fake.fake_first_input() == x.buffer.address
        assert descriptions() == found

    def test_may_be_others_in_between(self, fake, f, call):
        arrays = [Theirs(), Theirs(), Theirs(8), Theirs()]
        for x in arrays * 3:
            call(f, x)
            assert fake.fake_first_input() == x.buffer.address

    def test_may_be_moved(self, fake, f, descriptions, call):
        x = Theirs()
        call(f, x)
        call(f, x)
        found, x.buffer = descriptions(), device().allocate(8 * COUNT)
        call(f, x)
        assert fake.fake_first_input() == x.buffer.address
        assert descriptions() > found

    @pytest.mark.parametrize("changes", [{"shape": (8,)}, {"typestr": "<f4"}, {"strides": (8,)}])
    def test_may_change_their_form(self, f, descriptions, call, changes):
        x = Theirs()
        call(f, x)
        call(f, x)
        found, x.changes = descriptions(), changes
        call(f, x)
        assert descriptions() > found

    def test_may_become_unusable(self, fake, f, call):
        x = Theirs()
        call(f, x)
        for changes, said in (({"mask": np.ones(3)}, "has a mask"), ({"stream": 0}, "has the `stream` 0")):
            x.changes = changes
            with pytest.raises(TypeError, match=said):
                call(f, x)
        x.changes = {"data": (fake.fake_allocate_on(1, 8 * COUNT), False)}
        with pytest.raises(CudaError, match="is on GPU 1, and this process uses GPU 0"):
            call(f, x)

    def test_are_waited_for_each_time(self, fake, f, call):
        x = Theirs(stream=0xABC0)
        for time_ in range(1, 4):
            call(f, x)
            assert fake.fake_calls(b"cuStreamWaitEvent") == time_
            assert fake.fake_last_order() == 0xABC0 << 32
        x.changes = {"stream": 2}
        call(f, x)
        assert fake.fake_last_order() == 2 << 32

    def test_of_dlpack_are_asked_each_time(self, f, call):
        x = Lender()
        for time_ in range(1, 4):
            call(f, x)
            assert x.streams == [1] * time_

    def test_are_not_kept_alive(self, fake, f, call):
        x = Theirs()
        call(f, x)
        call(f, x)
        gc.collect()
        before = fake.fake_buffers()
        del x
        gc.collect()
        device().synchronize()
        assert fake.fake_buffers() == before - 1

    def test_that_are_copied_are_copied_each_time(self, fake, f, call):
        x = Theirs(typestr="<i8")
        call(f, x)
        copies = fake.fake_calls(b"cuMemcpyDtoH_v2")
        call(f, x)
        first = fake.fake_calls(b"cuMemcpyDtoH_v2") - copies
        call(f, x)
        assert fake.fake_calls(b"cuMemcpyDtoH_v2") == copies + 2 * first
        assert first

    def test_of_ours(self, fake, f, call):
        x = DeviceArray.over(device().allocate(8 * COUNT), (COUNT,), np.float64)
        for _ in range(3):
            call(f, x)
            assert fake.fake_first_input() == x.address

    def test_after_a_value_was_frozen(self, w, descriptions, call):
        x, c, other = Theirs(), Value(2.0), Value(1.0)
        f = compile(lambda x: (w * x).tanh() + c * x, [w, c], backend="cuda")
        call(f, x)
        found = descriptions()
        other.requires_grad = False  # which is not of this function
        call(f, x)
        assert descriptions() == found
        c.requires_grad = False
        call(f, x)
        assert descriptions() > found

    def test_by_several_threads(self, fake, f, call):
        x, failures = Theirs(), []
        call(f, x)

        def work():
            try:
                for _ in range(20):
                    call(f, x)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures

    def test_are_kept_while_the_gpu_works_after_ctrl_c(self, fake, f, call):
        x = Theirs()
        for _ in range(3):
            call(f, x)
        fake.fake_take_long()
        interrupter = threading.Thread(target=interrupt_when_awaited, args=[fake])
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            call(f, x)
        interrupter.join()
        alive = weakref.ref(x)
        del x
        gc.collect()
        assert alive() is not None  # for it may still be read
        fake.fake_release()
        device().synchronize()
        assert alive() is None

    def test_on_a_gpu_that_failed(self, fake, f, call):
        x = Theirs()
        call(f, x)
        fake.fake_fail(b"cuEventQuery", 700, 1)
        with pytest.raises(CudaError, match="a kernel launched earlier read or wrote outside its arrays"):
            call(f, x)


class TestTwoArrays:
    def test_must_still_have_as_many_examples(self, w):
        f, x, y = compile(lambda x, y: w * x * y, [w], backend="cuda"), Theirs(), Theirs()
        f.batch(x, y)
        y.changes = {"shape": (8,)}
        with pytest.raises(ValueError, match=r"must have as many examples each, got \[40, 8\]"):
            f.batch(x, y)

    def test_one_of_the_host_is_read_each_time(self, fake, w):
        f, x, y = compile(lambda y, x: w * x * y, [w], backend="cuda"), Theirs(), np.zeros(COUNT)
        f.batch(y, x)
        copies = fake.fake_calls(b"cuMemcpyHtoDAsync_v2")
        f.batch(y, x)
        assert fake.fake_calls(b"cuMemcpyHtoDAsync_v2") > copies

    def test_in_other_places(self, fake, w):
        f, x, y = compile(lambda x, y: w * x - y, [w], backend="cuda"), Theirs(), Theirs()
        for first, second in ((x, y), (y, x), (x, y), (x, x)):
            f.batch(first, second)
            assert fake.fake_first_input() == first.buffer.address


def test_what_ran_last_is_known_after_arrays_given_again(w):
    f, x = compile(lambda x: w * x, [w], backend="cuda"), Theirs()
    f.batch_value_and_grad(x)
    batch = f.describe()
    for _ in range(3):
        f(1.0)
        assert f.describe() != batch
        f.batch_value_and_grad(x)
        assert f.describe() == batch


LOSSES = {
    "of numbers": lambda w, x: (w * x).tanh(),
    "of classes, which are checked": lambda w, x: losses.cross_entropy([[w, 2.0 * w]], [x]),
}


@pytest.mark.skipif(ENGINE == "python", reason="it does not count changes, and brings them each time")
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_captured_numbers_are_brought_again_if_they_changed(fake, w, loss):
    f, x = compile(lambda x: loss(w, x), [w], backend="cuda", dtype="float32"), Theirs()
    x.buffer.clear()  # so that it has classes
    f.batch_value_and_grad(x)
    f.batch_value_and_grad(x)
    writes = fake.fake_calls(b"cuMemcpyHtoDAsync_v2")
    f.batch_value_and_grad(x)
    assert fake.fake_calls(b"cuMemcpyHtoDAsync_v2") == writes
    w.data = 2.0
    f.batch_value_and_grad(x)
    assert fake.fake_calls(b"cuMemcpyHtoDAsync_v2") == writes + 1


class TestSteps:
    def test_have_their_own_scalars(self, w, f):
        rates = [float(np.float32(0.01 * (k + 1))) for k in range(50)]
        losses = f.train(optim.SGD([w], lr=lambda step: rates[step]), Theirs(100), batch_size=2)
        assert losses == [rate / 2 for rate in rates]

    def test_are_launched_while_the_gpu_works(self, fake, w, f):
        x, optimizer = Theirs(100), optim.SGD([w], lr=0.1)
        f.train(optimizer, x, batch_size=2)
        launched, found = fake.fake_calls(b"cuLaunchKernel"), []
        fake.fake_take_long()

        def release():
            until = time.monotonic() + 10.0
            while fake.fake_calls(b"cuLaunchKernel") < launched + 100 and time.monotonic() < until:
                time.sleep(0.01)
            found.append(fake.fake_calls(b"cuLaunchKernel") - launched)
            fake.fake_release()

        thread = threading.Thread(target=release)
        thread.start()
        f.train(optimizer, x, batch_size=2)
        thread.join()
        assert found == [100]  # two for each step, and no wait in between

    def test_that_cannot_be_computed_are_not_taken(self, w, f):
        def rate(step):
            if step > 20:
                raise ZeroDivisionError
            return 0.1

        optimizer = optim.SGD([w], lr=rate)
        with pytest.raises(ZeroDivisionError):
            f.train(optimizer, Theirs(100), batch_size=2)
        assert (optimizer.steps, w.data) == (0, 0.5)

    def test_use_their_memory_again(self, fake, w, f):
        x, optimizer = Theirs(100), optim.SGD([w], lr=0.1)
        f.train(optimizer, x, batch_size=4)
        allocated = fake.fake_calls(b"cuMemAlloc_v2")
        f.train(optimizer, x, batch_size=4)
        assert fake.fake_calls(b"cuMemAlloc_v2") == allocated


def test_a_forked_process_is_told(built):
    program = """
    import chainrule
    w = chainrule.Value(0.5)
    f = chainrule.compile(lambda x: w * x, wrt=[w], backend="cuda")
    x = DeviceArray.over(device().allocate(80), (10,), np.float64)
    f.batch(x)
    import warnings
    warnings.simplefilter("ignore")
    if not (child := os.fork()):
        w.data = 1.0
        for call in (lambda: f.batch(x), lambda: f.train(chainrule.optim.SGD([w], lr=0.1), x)):
            try:
                call()
            except CudaError as error:
                print(str(error)[:27], flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    f.batch(x)
    print("well")
    """
    assert printed(program, built) == ["the GPU cannot be used here"] * 2 + ["well"]
