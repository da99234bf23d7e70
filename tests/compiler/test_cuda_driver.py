"""The GPU's driver: what it is asked for, what it says when it fails, and that nothing hangs, leaks or crashes.

There is no GPU here: `tests/support/fake_cuda.c` stands for the driver. `tests/support/try_cuda_driver.py` is for a
machine that has one.
"""

import ctypes
import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

from chainrule.compiler.backends.cuda import library
from chainrule.compiler.backends.cuda.driver import CudaError, Device, device, is_available
from fake_cuda import PTX, build, needs_a_compiler

pytestmark = needs_a_compiler


@pytest.fixture
def module(fake):
    return device().load(PTX)


def numbers_on_device(numbers):
    buffer = device().allocate(numbers.nbytes)
    buffer.write(numbers)
    return buffer


def numbers_in(buffer, like):
    found = np.empty_like(like)
    buffer.read(found)
    return found


class TestDevice:
    def test_says_what_it_has(self, fake):
        found = device()
        assert (found.name, found.number, found.capability, found.target) == ("Fake 0", 0, (9, 0), "sm_90")
        assert (found.processors, found.memory, found.shared_per_block) == (132, 1 << 30, 227 << 10)
        assert (found.shared_per_processor, found.threads_per_processor) == (228 << 10, 2048)
        assert found.registers_per_processor == 65536
        assert found.driver.version == (12, 8)
        assert repr(found) == "<Device 0: Fake 0, sm_90, 1.0 GiB>"

    def test_is_chosen_by_a_variable(self, fake, monkeypatch):
        monkeypatch.setenv("FAKE_CUDA_DEVICES", "3")
        monkeypatch.setenv("CHAINRULE_CUDA_DEVICE", "2")
        assert (device().number, device().name) == (2, "Fake 2")

    def test_availability_takes_no_memory_of_it(self, fake):
        assert is_available()
        assert fake.fake_contexts() == 0

    def test_is_opened_once_by_many_threads(self, fake):
        begin, found = threading.Barrier(8), []

        def work():
            begin.wait()
            found.append(device())

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({*map(id, found)}) == 1
        assert isinstance(found[0], Device)
        assert fake.fake_contexts() == 1
        assert fake.fake_calls(b"cuInit") == 1

    def test_a_thread_gets_its_own_context_back(self, module, fake):
        other = ctypes.c_char()
        fake.cuCtxPushCurrent_v2(ctypes.byref(other))
        buffer = numbers_on_device(np.zeros(3))
        module.function("add_one").launch(1, 32, 0, buffer, 3)
        with pytest.raises(CudaError):
            module.function("greedy").launch(1, 32, 0)
        del buffer
        assert fake.fake_depth() == 1
        found = ctypes.c_void_p()
        fake.cuCtxPopCurrent_v2(ctypes.byref(found))
        assert found.value == ctypes.addressof(other)

    def test_times_what_it_does(self, module):
        with device().timed() as timing:
            with pytest.raises(RuntimeError, match="once the block of `timed\\(\\)` is left"):
                _ = timing.milliseconds
            module.function("tile").launch(1, 32, 0)
        assert timing.milliseconds == 1.5

    def test_importing_chainrule_does_not_load_any_of_it(self):
        code = "import sys, chainrule; print(*[name for name in sys.modules if 'cuda' in name])"
        assert subprocess.check_output([sys.executable, "-c", code], text=True) == "\n"


class TestWithoutOne:
    """Every reason that there is none to use is a sentence, and no exception for those who only ask."""

    def refusal(self):
        assert not is_available()
        with pytest.raises(CudaError) as caught:
            device()
        return str(caught.value)

    def test_without_a_driver(self, monkeypatch):
        monkeypatch.delenv(library.LIBRARY_VARIABLE, raising=False)
        monkeypatch.setattr(library, "ON_LINUX", ("libcuda.so.none",))
        monkeypatch.setattr(library, "_driver", None)
        said = "no NVIDIA driver was found (libcuda.so.none: cannot open shared object file: No such file or directory)"
        assert self.refusal() == f"{said}: install it for your GPU, or choose another `backend`"

    def test_on_macos(self, monkeypatch):
        monkeypatch.delenv(library.LIBRARY_VARIABLE, raising=False)
        monkeypatch.setattr(library, "_driver", None)
        monkeypatch.setattr(library.sys, "platform", "darwin")
        assert self.refusal() == "macOS has no NVIDIA driver, so there is no GPU to use: choose another `backend`"

    def test_with_a_library_that_does_not_load(self, fake, monkeypatch):
        monkeypatch.setenv(library.LIBRARY_VARIABLE, "/none.so")
        said = (
            "`CHAINRULE_CUDA_LIBRARY` names '/none.so', which does not load (/none.so: cannot open shared object file"
        )
        assert self.refusal().startswith(said)
        assert self.refusal().endswith(": name NVIDIA's driver, or unset it")

    def test_with_a_driver_that_lacks_a_function(self, fake, monkeypatch, tmp_path):
        (tmp_path / "empty.c").write_text("int nothing;\n")
        old = build(tmp_path, tmp_path / "empty.c")
        monkeypatch.setenv(library.LIBRARY_VARIABLE, str(old))
        assert self.refusal() == f"the NVIDIA driver '{old}' has no cuInit: update it to CUDA 11 or later"

    @pytest.mark.parametrize(
        ("variable", "value", "sentence"),
        [
            ("FAKE_CUDA_FAIL", "cuInit=100", "the GPU could not start: the driver says CUDA_ERROR_NO_DEVICE (as the"),
            ("FAKE_CUDA_FAIL", "cuInit=100", "): see what nvidia-smi lists, and whether CUDA_VISIBLE_DEVICES hides"),
            ("FAKE_CUDA_DEVICES", "0", "the GPU could not be found: the driver says CUDA_ERROR_NO_DEVICE"),
            ("FAKE_CUDA_FAIL", "cuInit=803", "updated while its old part was running: restart the machine"),
            ("FAKE_CUDA_FAIL", "cuInit=34", "this is the toolkit's stub, not the driver"),
            ("FAKE_CUDA_FAIL", "cuInit=3", "in a process forked from one that used it: start processes by spawn"),
            ("FAKE_CUDA_FAIL", "cuInit=12345", "the driver says error 12345: see what nvidia-smi says of the GPU, and"),
            (
                "CHAINRULE_CUDA_DEVICE",
                "1",
                "`CHAINRULE_CUDA_DEVICE` is 1, and there is no such GPU: the driver has 1 of",
            ),
            ("CHAINRULE_CUDA_DEVICE", "-1", "must be the number of a GPU, counted from 0, got '-1'"),
            (
                "CHAINRULE_CUDA_DEVICE",
                "cuda:0",
                "`CHAINRULE_CUDA_DEVICE` must be the number of a GPU, counted from 0, g",
            ),
            ("FAKE_CUDA_CAPABILITY", "61", "Fake 0 has compute capability 6.1, and 7.0 is needed (Volta, 2017): use a"),
        ],
    )
    def test_with_none_that_works(self, fake, monkeypatch, variable, value, sentence):
        monkeypatch.setenv(variable, value)
        assert sentence in self.refusal()

    def test_one_that_another_process_has_to_itself(self, fake, monkeypatch):
        monkeypatch.setenv("FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain=46")
        with pytest.raises(CudaError, match=r"could not be opened: .* another process has the GPU to itself"):
            device()

    def test_a_failure_can_be_put_right(self, fake, monkeypatch):
        monkeypatch.setenv("CHAINRULE_CUDA_DEVICE", "7")
        assert "no such GPU" in self.refusal()
        monkeypatch.delenv("CHAINRULE_CUDA_DEVICE")
        assert device().number == 0

    @pytest.mark.parametrize("code", [*library.STICKY, *library.ADVICE])
    def test_every_error_has_its_sentence(self, fake, code):
        said = str(library.driver().error(code, "do this"))
        assert said.startswith("the GPU could not do this: the driver says ")
        if code in library.STICKY:
            assert said.endswith(
                f": {library.STICKY[code]}; the GPU cannot be used any more in this process: restart it"
            )
        else:
            assert said.endswith(f": {library.ADVICE[code]}")


class TestBuffers:
    def test_hold_numbers(self, fake):
        numbers = np.arange(100_000.0)
        assert np.array_equal(numbers_in(numbers_on_device(numbers), numbers), numbers)

    def test_in_parts(self, fake):
        buffer = numbers_on_device(np.arange(6.0))
        buffer.write(np.array([10.0, 20.0]), offset=16)
        part = np.empty(3)
        buffer.read(part, offset=8)
        assert part.tolist() == [1.0, 10.0, 20.0]

    def test_from_an_array_with_gaps(self, fake):
        numbers = np.arange(12.0).reshape(3, 4)[:, ::2]
        buffer = numbers_on_device(numbers)
        assert np.array_equal(numbers_in(buffer, np.empty((3, 2))), numbers)

    def test_cleared_and_copied_on_the_device(self, fake):
        first, second = numbers_on_device(np.arange(4.0)), numbers_on_device(np.full(4, 7.0))
        second.copy_from(first.address + 8, 16, offset=16)
        assert numbers_in(second, np.empty(4)).tolist() == [7.0, 7.0, 1.0, 2.0]
        second.clear()
        assert numbers_in(second, np.empty(4)).tolist() == [0.0] * 4

    def test_of_no_bytes(self, fake):
        buffer = numbers_on_device(np.empty(0))
        buffer.clear()
        buffer.copy_from(buffer.address, 0)
        assert numbers_in(buffer, np.empty(0)).size == buffer.bytes == 0

    @pytest.mark.parametrize(("offset", "count"), [(8, 4), (-8, 1), (40, 0), (0, 5), (1 << 70, 1)])
    def test_keep_their_bounds(self, fake, offset, count):
        buffer, array = device().allocate(32), np.zeros(count)
        said = f"`offset` {offset:,} and {array.nbytes} bytes from there do not fit in 32 bytes"
        for call in (
            lambda: buffer.write(array, offset),
            lambda: buffer.read(array, offset),
            lambda: buffer.copy_from(buffer.address, array.nbytes, offset),
        ):
            with pytest.raises(ValueError, match=said):
                call()

    @pytest.mark.parametrize("size", [-1, 1.5, "8", None])
    def test_of_a_size_that_is_none(self, fake, size):
        with pytest.raises((ValueError, TypeError)):
            device().allocate(size)

    def test_are_not_read_into_an_array_with_gaps(self, fake):
        buffer, fixed = device().allocate(64), np.zeros(2)
        fixed.flags.writeable = False
        for array in (np.zeros(8)[::2], fixed):
            with pytest.raises(ValueError, match="`array` must be contiguous and writeable: give a new one"):
                buffer.read(array)

    def test_are_freed(self, fake):
        buffers = [device().allocate(100) for _ in range(10)]
        assert fake.fake_buffers() == 10
        del buffers[3:]
        gc.collect()
        assert fake.fake_buffers() == 3

    def test_are_freed_when_the_device_is_idle(self, module, fake):
        buffer = device().allocate(100)
        module.function("forever").launch(1, 1, 0)
        del buffer
        gc.collect()
        assert (fake.fake_buffers(), fake.fake_waits()) == (1, 0)  # and nobody waited
        device().allocate(100)
        assert fake.fake_buffers() == 2
        fake.fake_release()
        device().synchronize()
        assert fake.fake_buffers() == 0

    def test_are_freed_by_a_thread_that_never_used_the_device(self, fake):
        held = [device().allocate(100)]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        assert fake.fake_buffers() == 0

    def test_modules_and_events_are_freed_too(self, module, fake):
        before = fake.fake_modules(), fake.fake_events()
        other = device().load(PTX)
        function = other.function("tile")
        with device().timed() as timing:
            function.launch(1, 32, 0)
        assert timing.milliseconds
        del other, timing
        gc.collect()
        assert fake.fake_modules() == before[0] + 1  # its function lives
        del function
        gc.collect()
        assert (fake.fake_modules(), fake.fake_events()) == before

    def test_events_to_wait_by_are_used_again(self, fake):
        for _ in range(20):
            device().synchronize()
        assert fake.fake_events() == 1

    def test_without_memory(self, fake):
        kept = device().allocate(600 << 20)
        with pytest.raises(CudaError) as caught:
            device().allocate(700 << 20)
        said = "the GPU could not allocate 700.0 MiB: the driver says CUDA_ERROR_OUT_OF_MEMORY (out of memory): "
        told = "424.0 MiB of 1.0 GiB is free: use smaller batches, or give the arrays in parts"
        assert str(caught.value) == said + told
        assert caught.value.code == library.OUT_OF_MEMORY
        del kept
        device().allocate(700 << 20)

    def test_without_memory_until_the_device_is_idle(self, module, fake):
        first = device().allocate(600 << 20)
        module.function("forever").launch(1, 1, 0)
        del first
        timer = threading.Timer(0.05, fake.fake_release)
        timer.start()
        assert device().allocate(700 << 20).bytes == 700 << 20
        timer.join()

    def test_that_cannot_be_freed_are_let_go(self, fake, capfd):
        buffer = device().allocate(100)
        fake.fake_fail(b"cuMemFree_v2", 4, -1)
        del buffer
        buffer = device().allocate(100)
        fake.fake_fail(b"cuCtxPushCurrent_v2", 4, -1)  # the driver is gone
        del buffer
        gc.collect()
        fake.fake_fail(b"cuCtxPushCurrent_v2", 0, 0)
        assert capfd.readouterr() == ("", "")


class TestReaders:
    def test_fill_an_array_again_and_again(self, fake):
        buffer, found = device().allocate(24), np.zeros((3, 1))
        read = buffer.reader(found)
        for number in (1.0, 2.0):
            buffer.write(np.full(3, number))
            read()
            assert found.tolist() == [[number]] * 3

    def test_read_when_the_device_has_done_its_work(self, module, fake):
        buffer, found = numbers_on_device(np.arange(3.0)), np.zeros(3)
        read = buffer.reader(found)
        module.function("forever").launch(1, 1, 0)

        def finish_the_work():
            buffer.write(np.full(3, 7.0))  # as a kernel would
            fake.fake_release()

        timer = threading.Timer(0.05, finish_the_work)
        timer.start()
        read()
        timer.join()
        assert found.tolist() == [7.0] * 3
        assert fake.fake_waits() == 0  # deaf to Ctrl-C

    def test_free_what_they_lock(self, module, fake):
        before = fake.fake_events()
        buffer = device().allocate(24)
        read = buffer.reader(np.zeros(3))
        assert fake.fake_locked() == 1
        module.function("forever").launch(1, 1, 0)
        del read
        gc.collect()
        assert fake.fake_locked() == 1  # the device may still write to it
        fake.fake_release()
        device().synchronize()
        assert (fake.fake_locked(), fake.fake_events()) == (0, before + 1)  # one for all to wait by

    def test_lock_nothing_for_large_arrays_and_empty_ones(self, fake):
        for numbers in (np.arange(200_000.0), np.zeros(0)):
            buffer, found = numbers_on_device(numbers), np.empty_like(numbers)
            buffer.reader(found)()
            assert np.array_equal(found, numbers)
        assert fake.fake_locked() == 0

    def test_keep_their_bounds(self, fake):
        with pytest.raises(ValueError, match="`offset` 0 and 24 bytes from there do not fit in 16 bytes"):
            device().allocate(16).reader(np.zeros(3))

    @pytest.mark.parametrize(
        ("call", "sentence"),
        [("cuMemHostAlloc", "lock 24 bytes of the host's memory"), ("cuMemcpyDtoHAsync_v2", "copy 24 bytes to the")],
    )
    def test_that_fail(self, fake, call, sentence):
        buffer = device().allocate(24)
        fake.fake_fail(call.encode(), 2, 1)
        with pytest.raises(CudaError, match=f"the GPU could not {sentence}"):
            buffer.reader(np.zeros(3))()
        assert fake.fake_depth() == 0


class TestFunctions:
    def test_say_what_they_need(self, module):
        found = module.function("tile")
        assert (found.registers, found.local_bytes, found.shared_bytes) == (32, 16, 1024)
        assert found.most_threads == 1024

    def test_run_on_what_is_in_buffers(self, module):
        numbers = np.arange(50.0)
        buffer = numbers_on_device(numbers)
        module.function("add_one").launch(2, 32, 0, buffer, 50)
        assert np.array_equal(numbers_in(buffer, numbers), numbers + 1)

    @pytest.mark.parametrize("count", [3, np.int32(3), np.int64(3), ctypes.c_uint64(3)])
    @pytest.mark.parametrize("factor", [0.1, np.float64(0.1), ctypes.c_double(0.1)])
    def test_take_ints_floats_and_scalars_of_c(self, module, count, factor):
        buffer = numbers_on_device(np.float32([1, 2, 3, 4]))
        module.function("scale").launch(1, 32, 0, buffer, count, factor, ctypes.c_float(0.5))
        expected = np.float32([1 * 0.1 + 0.5, 2 * 0.1 + 0.5, 3 * 0.1 + 0.5, 4])
        assert np.array_equal(numbers_in(buffer, expected), expected)

    def test_take_addresses(self, module):
        buffer = numbers_on_device(np.zeros(4))
        module.function("add_one").launch(1, 32, 0, buffer.address + 16, 1)
        assert numbers_in(buffer, np.zeros(4)).tolist() == [0.0, 0.0, 1.0, 0.0]

    def test_refuse_other_arguments(self, module):
        buffer = device().allocate(8)
        launch = module.function("add_one").launch
        with pytest.raises(TypeError, match=r"'add_one' takes arguments of \(8, 8\) bytes, got \(8,\)"):
            launch(1, 32, 0, buffer)
        with pytest.raises(TypeError, match=r"takes arguments of \(8, 8\) bytes, got \(8, 4\)"):
            launch(1, 32, 0, buffer, ctypes.c_int32(1))
        with pytest.raises(TypeError, match=r"must be buffers and arrays of the device, ints, .* scalars, got ndarray"):
            launch(1, 32, 0, np.zeros(1), 1)

    def test_of_a_driver_that_does_not_know_their_parameters(self, fake):
        del library.driver().functions["cuFuncGetParamInfo"]
        function = device().load(PTX).function("add_one")
        buffer = numbers_on_device(np.zeros(2))
        function.launch(1, 32, 0, buffer, 2)
        assert function.parameters is None
        assert numbers_in(buffer, np.zeros(2)).tolist() == [1.0, 1.0]

    @pytest.mark.parametrize("shared", [0, 47 << 10, 48 << 10, 200 << 10, 226 << 10])
    def test_have_as_much_shared_memory_as_there_is(self, module, shared):
        module.function("tile").launch(1, 32, shared)
        assert module.function("tile").blocks_per_processor(1024, shared) >= 1

    def test_ask_for_shared_memory_once(self, module, fake):
        function = module.function("tile")
        for shared in (0, 60 << 10, 200 << 10, 100 << 10):
            function.launch(1, 32, shared)
        assert fake.fake_calls(b"cuFuncSetAttribute") == 1

    def test_cannot_have_more(self, module):
        said = "'tile' cannot have 226.0 KiB of shared memory per block: this GPU has 226.0 KiB: use smaller tiles"
        with pytest.raises(CudaError, match=said):
            module.function("tile").launch(1, 32, (226 << 10) + 1)
        with pytest.raises(CudaError, match=said):
            module.function("tile").blocks_per_processor(32, (226 << 10) + 1)

    def test_need_what_there_is(self, module):
        said = (
            r"could not launch 'greedy' in 3 blocks of 64 threads with 10\.0 KiB of shared memory each: the driver says"
        )
        with pytest.raises(
            CudaError, match=said + r" CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES .*: use fewer threads per blo"
        ):
            module.function("greedy").launch(3, 64, 10 << 10)

    @pytest.mark.parametrize(("blocks", "threads"), [(0, 32), (1, 0), (1, 1025)])
    def test_have_blocks_and_threads(self, module, blocks, threads):
        said = (
            f"could not launch 'tile' in {blocks} blocks of {threads} threads: the driver says CUDA_ERROR_INVALID_VALUE"
        )
        with pytest.raises(
            CudaError, match=said + r" .*: a launch has at least 1 block, and blocks of 1 to 1024 threads"
        ):
            module.function("tile").launch(blocks, threads, 0)

    def test_of_other_names_are_not_found(self, module):
        with pytest.raises(CudaError, match=r"could not find the function 'other' in the program: .*NOT_FOUND"):
            module.function("other")
        with pytest.raises(CudaError, match=r"could not find 'other' in the program: .*NOT_FOUND"):
            module.constant("other")

    def test_share_constants(self, module):
        address, size = module.constant("table")
        buffer = device().allocate(size)
        buffer.copy_from(address, size)
        assert numbers_in(buffer, np.zeros(4)).tolist() == [1.0, 2.0, 3.0, 4.0]

    def test_of_a_program_that_does_not_compile(self, fake):
        with pytest.raises(CudaError) as caught:
            device().load(PTX + "a mistake here" + " and there" * 1000)
        said = str(caught.value)
        assert said.startswith("the GPU could not compile the program: the driver says CUDA_ERROR_INVALID_PTX (")
        assert "): ptxas application ptx input, line 9; error : Parsing error near 'mistake here and there" in said
        assert said.endswith("…: please report this")
        assert len(said) < 500

    def test_of_a_program_that_is_too_new(self, fake):
        with pytest.raises(CudaError, match=r"the driver is of CUDA 12\.8, too old for PTX 9\.9: update the NVIDIA"):
            device().load(".version 9.9\n.target sm_70")
        with pytest.raises(
            CudaError, match=r"program is for sm_120, the GPU is sm_90, the driver is of CUDA 12\.8: upd"
        ):
            device().load("// a comment\n.version 8.7\n.target sm_120, debug")

    @pytest.mark.parametrize("code", [700, 702, 716, 719])
    def test_that_fail_leave_the_gpu_unusable(self, module, fake, code, capfd):
        buffer = device().allocate(8)
        module.function("crash").launch(1, 32, 0, ctypes.c_int(code))  # which nobody knows yet
        for call in (
            device().synchronize,
            lambda: buffer.read(np.zeros(1)),
            lambda: device().allocate(8),
            buffer.clear,
        ):
            with pytest.raises(
                CudaError, match="the GPU cannot be used any more in this process: restart it"
            ) as caught:
                call()
            assert library.STICKY[code] in str(caught.value)
            assert caught.value.code == code
        buffer = call = None
        gc.collect()
        assert capfd.readouterr() == ("", "")

    def test_are_launched_by_many_threads(self, module, fake):
        function, count = module.function("add_one"), 1000
        buffer, begin, failures = numbers_on_device(np.zeros(count)), threading.Barrier(8), []

        def work():
            begin.wait()
            try:
                own = numbers_on_device(np.zeros(count))
                for _ in range(50):
                    function.launch(1, 32, 0, buffer, count)
                    function.launch(1, 32, 0, own, count)
                if numbers_in(own, np.zeros(count)).tolist() != [50.0] * count or fake.fake_depth():
                    failures.append("wrong")
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert numbers_in(buffer, np.zeros(count)).tolist() == [400.0] * count
