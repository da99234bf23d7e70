"""The GPU's driver tried on a real GPU: `python tests/support/try_cuda_driver.py`, with NumPy and nothing else.

Every line that it prints says OK or FAILED; it ends with 1 if any failed. PyTorch, CuPy, JAX and Numba take part where
they are installed. Parts that end badly by intent (a kernel that crashes, Ctrl-C, fork) are processes of their own.
"""

import ctypes
import gc
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from types import SimpleNamespace

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

import numpy as np

from chainrule import Value
from chainrule.compiler import compile
from chainrule.compiler.backends.cuda.device_arrays import DeviceArray, device_array
from chainrule.compiler.backends.cuda.driver import CudaError, device, is_available

INDEX = """
    .reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .pred %p<3>; .reg .f64 %fd<4>; .reg .f32 %f<4>;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.s32 %r3, %r1, %r2, %r0;
    cvt.s64.s32 %rd0, %r3;
"""
PTX = f"""
.version 7.0
.target sm_70
.address_size 64
.visible .const .align 8 .f64 table[3] = {{1.5, 2.5, 3.5}};
.extern .shared .align 16 .b8 tile[];

.visible .entry add_one(.param .u64 x, .param .s64 count) {{ {INDEX}
    ld.param.s64 %rd1, [count]; setp.ge.s64 %p0, %rd0, %rd1; @%p0 ret;
    ld.param.u64 %rd2, [x]; shl.b64 %rd3, %rd0, 3; add.s64 %rd4, %rd2, %rd3;
    ld.global.f64 %fd0, [%rd4]; add.f64 %fd1, %fd0, 1.0; st.global.f64 [%rd4], %fd1; ret;
}}
.visible .entry scale(.param .u64 x, .param .s64 count, .param .f64 factor, .param .f32 shift) {{ {INDEX}
    ld.param.s64 %rd1, [count]; setp.ge.s64 %p0, %rd0, %rd1; @%p0 ret;
    ld.param.u64 %rd2, [x]; shl.b64 %rd3, %rd0, 2; add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f0, [%rd4]; ld.param.f64 %fd0, [factor]; cvt.rn.f32.f64 %f1, %fd0; ld.param.f32 %f2, [shift];
    fma.rn.f32 %f3, %f0, %f1, %f2; st.global.f32 [%rd4], %f3; ret;
}}
.visible .entry turn(.param .u64 x, .param .s64 last) {{ {INDEX}
    ld.param.u64 %rd2, [x]; shl.b64 %rd3, %rd0, 3; add.s64 %rd4, %rd2, %rd3; ld.global.f64 %fd0, [%rd4];
    ld.param.s64 %rd1, [last]; mov.u64 %rd5, tile; add.s64 %rd5, %rd5, %rd1; sub.s64 %rd5, %rd5, %rd3;
    st.shared.f64 [%rd5], %fd0; bar.sync 0;
    mov.u64 %rd1, tile; add.s64 %rd1, %rd1, %rd3; ld.shared.f64 %fd1, [%rd1]; st.global.f64 [%rd4], %fd1; ret;
}}
.visible .entry work(.param .u64 nanoseconds) {{
    .reg .b64 %rd<5>; .reg .pred %p<2>;
    ld.param.u64 %rd0, [nanoseconds]; mov.u64 %rd1, %globaltimer;
again:
    mov.u64 %rd2, %globaltimer; sub.s64 %rd3, %rd2, %rd1; setp.lt.u64 %p0, %rd3, %rd0; @%p0 bra again;
    ret;
}}
.visible .entry crash(.param .u64 at) {{
    .reg .b64 %rd<2>; .reg .f64 %fd<2>;
    ld.param.u64 %rd0, [at]; mov.f64 %fd0, 0d3FF0000000000000; st.global.f64 [%rd0], %fd0; ret;
}}
"""
SECOND = 10**9  # nanoseconds


def said_by(call):
    try:
        call()
    except CudaError as error:
        return str(error)
    raise AssertionError("nothing was refused")


def loaded(name):
    return device().load(PTX).function(name)


def on_device(numbers):
    buffer = device().allocate(numbers.nbytes)
    buffer.write(numbers)
    return buffer


def numbers_in(buffer, like):
    found = np.empty_like(like)
    buffer.read(found)
    return found


def the_device():
    assert is_available()
    d = device()
    facts = "processors memory shared_per_block shared_per_processor threads_per_processor registers_per_processor"
    return f"{d!r}, CUDA {d.driver.version}, " + ", ".join(f"{fact} {getattr(d, fact)}" for fact in facts.split())


def buffers():
    for count in (0, 1, 1000, 8192, 8193, 5_000_000):  # up to 64 KiB, and beyond
        numbers = np.random.default_rng(count).normal(size=count)
        buffer = on_device(numbers)
        assert np.array_equal(numbers_in(buffer, numbers), numbers)
        found = np.zeros_like(numbers)
        read = buffer.reader(found)
        for shift in range(3):
            buffer.write(numbers + shift)
            read()
            assert np.array_equal(found, numbers + shift)
        buffer.write(numbers)
        other = device().allocate(numbers.nbytes)
        other.copy_from(buffer.address, numbers.nbytes)
        buffer.clear()
        assert not numbers_in(buffer, numbers).any()
        assert np.array_equal(numbers_in(other, numbers), numbers)


def launches():
    module, numbers = device().load(PTX), np.arange(1000.0)
    add = module.function("add_one")
    buffer = on_device(numbers)
    add.launch(4, 256, 0, buffer, 999)
    assert np.array_equal(numbers_in(buffer, numbers), numbers + (numbers < 999))
    singles = on_device(np.float32(numbers))
    module.function("scale").launch(4, 256, 0, singles, 1000, 0.5, ctypes.c_float(3))
    assert np.array_equal(numbers_in(singles, np.float32(numbers)), np.float32(numbers * 0.5 + 3))
    begin = time.perf_counter()
    for _ in range(10_000):
        add.launch(4, 256, 0, buffer, 999)
    took = (time.perf_counter() - begin) / 10_000
    device().synchronize()
    return f"{add!r}, parameters {add.parameters}, most_threads {add.most_threads}, {took * 1e6:.1f} µs per launch"


def wrong_arguments():
    add, buffer = loaded("add_one"), device().allocate(8)
    if add.parameters is None:
        return "this driver does not know parameters"
    assert add.parameters == (8, 8)
    assert loaded("scale").parameters == (8, 8, 8, 4)
    for arguments in ((), (buffer,), (buffer, 1, 1), (buffer, ctypes.c_int32(1))):
        try:
            add.launch(1, 1, 0, *arguments)
        except TypeError:
            continue
        raise AssertionError(arguments)
    return "refused"


def constants():
    module = device().load(PTX)  # whose memory goes with it
    address, size = module.constant("table")
    buffer = device().allocate(size)
    buffer.copy_from(address, size)
    assert numbers_in(buffer, np.zeros(3)).tolist() == [1.5, 2.5, 3.5]


def shared_memory():
    turn, numbers = loaded("turn"), np.arange(256.0)
    found = []
    for shared in (2048, 48 << 10, (48 << 10) + 16, 96 << 10, device().shared_per_block):
        if shared > device().shared_per_block:
            continue
        buffer = on_device(numbers)
        turn.launch(1, 256, shared, buffer, 255 * 8)
        assert np.array_equal(numbers_in(buffer, numbers), numbers[::-1])
        found.append(turn.blocks_per_processor(256, shared))
    assert all(found), found
    said = said_by(lambda: turn.launch(1, 256, device().shared_per_block + 1, 0, 0))
    return f"blocks per processor {found}; {said}"


def refused_launches():
    add = loaded("add_one")
    return " | ".join(said_by(lambda n=n: add.launch(1, n, 0, 0, 0)) for n in (0, 4096))


def refused_programs():
    texts = [
        PTX.replace("add.f64", "mistake.f64"),
        PTX.replace("7.0", "99.0", 1),
        PTX.replace("sm_70", "sm_999", 1),
        "",
    ]
    said = [said_by(lambda text=text: device().load(text).function("add_one")) for text in texts]
    return " | ".join([*said, said_by(lambda: loaded("none")), said_by(lambda: device().load(PTX).constant("none"))])


def out_of_memory():
    said = said_by(lambda: device().allocate(1 << 50))
    assert "is free" in said
    free = device().free_memory()
    buffer = device().allocate(free // 2)
    assert device().free_memory() < free
    loaded("work").launch(1, 1, 0, SECOND // 5)
    del buffer  # while the device is at work: freed for the next that needs it
    device().allocate(free * 3 // 4)
    return said


def freed_when_idle():
    work, buffer = loaded("work"), device().allocate(1 << 28)
    device().synchronize()
    before = device().free_memory()
    work.launch(1, 1, 0, SECOND)
    begin = time.perf_counter()
    del buffer
    gc.collect()
    small = device().allocate(8)
    allocated = time.perf_counter() - begin
    small.write(np.zeros(1))
    took = time.perf_counter() - begin
    assert took - allocated < 0.1, f"a small write took {took - allocated:.3f} s"
    still = device().free_memory()
    device().synchronize()
    assert device().free_memory() > before
    return f"{allocated * 1e3:.1f} ms with an allocation, {took * 1e3:.1f} with a small write; kept: {still <= before}"


def a_timer():
    work = loaded("work")
    with device().timed() as timing:
        work.launch(1, 1, 0, SECOND // 20)
    assert 45 < timing.milliseconds < 100, timing.milliseconds
    latencies = []
    for length in (0, 100_000, 5_000_000):
        device().synchronize()
        begin = time.perf_counter()
        work.launch(1, 1, 0, length)
        device().synchronize()
        latencies.append(f"{(time.perf_counter() - begin) * 1e6:.0f} µs for {length / 1000:.0f}")
    return f"{timing.milliseconds:.2f} ms; launch and wait: {', '.join(latencies)}"


def many_threads():
    add, count, failures = loaded("add_one"), 1000, []
    shared = on_device(np.zeros(count))

    def work():
        try:
            own = on_device(np.zeros(count))
            for _ in range(200):
                add.launch(4, 256, 0, shared, count)
                add.launch(4, 256, 0, own, count)
            assert (numbers_in(own, np.zeros(count)) == 200).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert (numbers_in(shared, np.zeros(count)) == 1600).all()


def our_own_array_through_dlpack():
    array = DeviceArray.over(on_device(np.arange(6.0)), (2, 3), np.float64)

    class Holder:
        __dlpack_device__ = array.__dlpack_device__

        def __dlpack__(self, *, stream):
            return array.__dlpack__(stream=stream)

    found = device_array(Holder())
    assert found.address == array.address
    assert np.array_equal(found.numpy(), np.arange(6.0).reshape(2, 3))

    interface = SimpleNamespace(__cuda_array_interface__={**array.__cuda_array_interface__, "stream": 2})
    found = device_array(interface)
    assert found.address == array.address
    interface.__cuda_array_interface__["data"] = (np.zeros(8).ctypes.data, False)
    return said_by(lambda: device_array(interface, "x"))


def round_trip(theirs, to_theirs, to_numpy, write=None):
    """Their array in, ours out, and memory shared both ways."""
    found = device_array(theirs)
    assert np.array_equal(found.numpy(), np.arange(1000.0)), "in"
    ours = DeviceArray.over(on_device(np.arange(1000.0)), (1000,), np.float64)
    out = to_theirs(ours)
    address = ours.address
    if write:
        loaded("add_one").launch(4, 256, 0, found, 1000)
        write(theirs)  # on their stream: adds one more
        assert np.array_equal(found.numpy(), np.arange(1000.0) + 2), "in order with theirs"
        loaded("add_one").launch(4, 256, 0, ours, 1000)
    del ours
    gc.collect()
    assert np.array_equal(to_numpy(out), np.arange(1000.0) + bool(write)), "out"
    del out
    gc.collect()
    device().synchronize()
    assert device().number_at(address) is None, "given back"


def with_torch():
    import torch

    if not torch.cuda.is_available():
        return "is installed, without CUDA"

    def make():
        return torch.arange(1000, dtype=torch.float64, device="cuda")

    def add(tensor):
        tensor += 1

    for to_theirs in (torch.from_dlpack, lambda ours: torch.as_tensor(ours, device="cuda")):
        round_trip(make(), to_theirs, lambda t: t.cpu().numpy(), add)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        round_trip(make(), torch.from_dlpack, lambda t: t.cpu().numpy())
    try:
        device_array(make().requires_grad_())
    except TypeError as error:
        return f"torch {torch.__version__}; {error}"
    raise AssertionError


def with_cupy():
    import cupy

    def add(array):
        array += 1

    for to_theirs in (cupy.from_dlpack, cupy.asarray):
        round_trip(cupy.arange(1000, dtype="f8"), to_theirs, cupy.asnumpy, add)
    return f"cupy {cupy.__version__}; {calls_with_cupy(cupy)}"


def calls_with_cupy(cupy):
    """The same array again and again, with other numbers, which may be on their way; 3,000 sums, in many blocks."""
    weights = np.random.default_rng(1).normal(size=3000)
    parameters, slopes = [Value(x) for x in weights], 1.0 - np.tanh(weights) ** 2
    f = compile(lambda xs: sum(w.tanh() * xs[k % 5] for k, w in enumerate(parameters)), parameters, backend="cuda")
    array = cupy.asarray(np.random.default_rng(2).normal(size=(200_000, 5)))

    def check():
        value, gradient = f.batch_value_and_grad(array)
        again, same = f.batch_value_and_grad(array)
        assert value == again, "two runs differ"
        assert np.array_equal(gradient, same), "two runs differ"
        means = np.tile(cupy.asnumpy(array).mean(axis=0), 600)
        assert np.allclose(gradient, slopes * means, rtol=1e-11, atol=1e-11), "wrong"
        assert np.isclose(value, np.tanh(weights) @ means, rtol=1e-11, atol=1e-10), "wrong"

    for _ in range(50):
        array += 1.0
        check()
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(20):
            for _ in range(200):  # which take longer than to launch a kernel on another stream
                array += 0.01
            check()
    return "calls see what was written last"


def with_jax():
    import jax

    if jax.default_backend() != "gpu":
        return "is installed, without CUDA"
    jax.config.update("jax_enable_x64", True)
    round_trip(jax.numpy.arange(1000.0), jax.dlpack.from_dlpack, np.asarray)
    return f"jax {jax.__version__}"


def with_numba():
    from numba import __version__, cuda

    if not cuda.is_available():
        return "is installed, without CUDA"
    round_trip(cuda.to_device(np.arange(1000.0)), cuda.as_cuda_array, lambda a: a.copy_to_host())
    return f"numba {__version__}"


# Parts that are processes of their own: each prints what it found.


def crash_at_0():
    buffer, module = device().allocate(8), device().load(PTX)
    module.function("crash").launch(1, 1, 0, 0)
    print(said_by(device().synchronize))
    for call in (lambda: buffer.read(np.zeros(1)), lambda: device().allocate(8), buffer.clear):
        assert "restart it" in said_by(call)
    buffer = module = call = None
    gc.collect()


def crash_misaligned():
    buffer = device().allocate(16)
    loaded("crash").launch(1, 1, 0, buffer.address + 1)
    print(said_by(lambda: buffer.read(np.zeros(1))))


def interrupted():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    work, buffer = loaded("work"), device().allocate(8)
    waits = device().synchronize, lambda: buffer.read(np.zeros(1)), buffer.reader(np.zeros(1))
    for wait in (*waits, lambda: on_device(np.zeros(1_000_000))):
        device().synchronize()
        work.launch(1, 1, 0, 3 * SECOND)
        begin = time.perf_counter()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            wait()
        except KeyboardInterrupt:
            print(f"after {time.perf_counter() - begin:.2f} s", end=" ")
            assert time.perf_counter() - begin < 1.5
        else:
            raise AssertionError("not interrupted")
    work.launch(1, 1, 0, 30 * SECOND)
    print(time.time())  # when it ended, which is not to wait for the kernel


def forked():
    buffer = device().allocate(8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the driver has threads of its own
        child = os.fork()
    if not child:
        print(is_available(), said_by(device), said_by(buffer.clear), flush=True)
        del buffer
        gc.collect()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    buffer.clear()
    device().synchronize()


def number_too_high():
    os.environ["CHAINRULE_CUDA_DEVICE"] = "99"
    assert not is_available()
    print(said_by(device))


def hidden():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    assert not is_available()
    print(said_by(device))


def tell(name, call):
    try:
        print(f"OK      {name}: {call() or ''}", flush=True)
        return True
    except Exception:
        print(f"FAILED  {name}:\n{traceback.format_exc()}", flush=True)
        return False


def in_a_process(part):
    def call():
        command = [sys.executable, __file__, part.__name__]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not done.stderr, done.stderr
        out = done.stdout.strip()
        if part is interrupted:
            *before, last = out.split()
            out = (
                f"{' '.join(before)}, gone {time.time() - float(last):.2f} s after the end, with a kernel of 30 s left"
            )
        return out

    return call


HERE = [
    *(the_device, buffers, launches, wrong_arguments, constants, shared_memory, refused_launches, refused_programs),
    *(out_of_memory, freed_when_idle, a_timer, many_threads, our_own_array_through_dlpack),
]
PARTS = [crash_at_0, crash_misaligned, interrupted, forked, number_too_high, hidden]
LIBRARIES = {"torch": with_torch, "cupy": with_cupy, "jax": with_jax, "numba": with_numba}


def main():
    results = [tell(part.__name__, part) for part in HERE]
    results += [tell(part.__name__, in_a_process(part)) for part in PARTS]
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    for name, part in LIBRARIES.items():
        if importlib.util.find_spec(name):
            results.append(tell(part.__name__, part))
        else:
            print(f"        {name} is not installed")
    sys.exit(not all(results))


if __name__ == "__main__":
    parts = {part.__name__: part for part in PARTS}
    parts[sys.argv[1]]() if sys.argv[1:] else main()
