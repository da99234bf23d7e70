"""The GPU's driver and processes: Ctrl-C, exit and fork. `tests/support/fake_cuda.c` stands for the driver."""

import signal
import subprocess

import pytest

from fake_cuda import needs_a_compiler, printed, start

pytestmark = needs_a_compiler


@pytest.mark.parametrize(
    "wait",
    [
        "device().synchronize()",
        "buffer.read(np.empty(2))",
        "buffer.reader(np.empty(2))()",
        "large.write(np.empty(100_000))",
        "print(timing.milliseconds)",
        "keep = device().allocate(600 << 20); del keep; device().allocate(700 << 20)",
    ],
)
def test_ctrl_c_ends_a_wait(built, wait):
    process = start(
        f"""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        buffer, large = device().allocate(16), device().allocate(800_000)
        with device().timed() as timing:
            device().load(PTX).function("forever").launch(1, 1, 0)
        buffer.write(np.zeros(2))  # is not waited for
        print("waiting", flush=True)
        try:
            {wait}
        except KeyboardInterrupt:
            print("interrupted")
        del buffer, large, timing
        gc.collect()
        print("freed", fake.fake_waits())
        """,
        built,
    )
    assert process.stdout.readline() == "waiting\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=120)
    assert (out.split("\n")[:2], errors, process.returncode) == (["interrupted", "freed 0"], "", 0)


def test_what_is_alive_at_exit_is_no_trouble(built):
    program = """
    buffer, module = device().allocate(100), device().load(PTX)
    cycle = [buffer]; cycle.append(cycle)
    class Late:
        def __init__(self): self.buffer = device().allocate(8)
        def __del__(self): self.buffer = None
    late = Late()
    sys.late = Late()
    function = module.function("forever")
    function.launch(1, 1, 0)
    print("end")
    """
    assert printed(program, built) == ["end"]


def test_a_forked_process_cannot_use_it(built):
    program = """
    buffer, module = device().allocate(100), device().load(PTX)
    if not (child := os.fork()):
        print(is_available(), fake.fake_contexts())
        for call in (device, lambda: buffer.write(np.zeros(1)), lambda: buffer.read(np.zeros(1)),
                     module.device.synchronize, lambda: module.function("tile"), lambda: module.device.allocate(8)):
            try:
                call()
            except CudaError as error:
                print(error)
        del buffer, module
        gc.collect()
        sys.exit(0)
    os.waitpid(child, 0)
    buffer.write(np.zeros(1))
    device().synchronize()
    print("parent")
    """
    said = (
        "the GPU cannot be used here: this process was forked from one that used it, and NVIDIA's driver does not"
        " survive that: start processes by multiprocessing's 'spawn' instead"
    )
    assert printed(program, built) == ["False 1", *[said] * 6, "parent"]


def test_a_process_forked_before_may_use_it(built):
    program = """
    if not (child := os.fork()):
        print(is_available(), device().name)
        sys.exit(0)
    os.waitpid(child, 0)
    print(device().name)
    """
    assert printed(program, built) == ["True Fake 0", "Fake 0"]
