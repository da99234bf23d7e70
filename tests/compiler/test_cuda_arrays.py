"""Arrays that lie on the GPU, in and out, without a copy: `__cuda_array_interface__` and DLPack.

There is no GPU here: `tests/support/fake_cuda.c` stands for the driver, and NumPy's and PyTorch's own capsules, said to
be of a GPU, for those of libraries that have one.
"""

import gc
import sys

import numpy as np
import pytest
import torch

from chainrule.compiler.backends.cuda.device_arrays import DeviceArray, device_array
from chainrule.compiler.backends.cuda.driver import CudaError, device
from fake_cuda import PTX, needs_a_compiler, printed

pytestmark = needs_a_compiler


def on_device(numbers):
    buffer = device().allocate(numbers.nbytes)
    buffer.write(numbers)
    return DeviceArray.over(buffer, numbers.shape, numbers.dtype)


class Interface:
    """An array as Numba has them; `changes` are to what it says of itself."""

    def __init__(self, buffer, shape=(2, 3), **changes):
        self.buffer = buffer
        given = {"shape": shape, "typestr": "<f8", "data": (buffer.address, False), "version": 3}
        self.__cuda_array_interface__ = {**given, **changes}


class Lender:
    """An array of a library that has DLPack; its memory, in truth on the host, is said to be on a device."""

    def __init__(self, array, where=(2, 0), **options):
        self.array, self.where, self.options, self.streams = array, where, options, []

    def __dlpack_device__(self):
        return self.where

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        return self.array.__dlpack__(**self.options)


class Holder:
    """Of a capsule, which it gives whenever it is asked."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, *, stream=None):
        return self.capsule


class TestOfOurOwn:
    def test_lies_in_a_buffer(self, fake):
        numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
        buffer = device().allocate(100)
        buffer.write(numbers, offset=8)
        found = DeviceArray.over(buffer, (2, 3), np.float32, offset=8)
        assert (found.address, found.shape, found.strides, found.size) == (buffer.address + 8, (2, 3), (3, 1), 6)
        assert (found.bytes, found.dtype, found.contiguous) == (24, np.float32, True)
        assert np.array_equal(found.numpy(), numbers)
        with pytest.raises(ValueError, match="`offset` 80 and 24 bytes from there do not fit in 100 bytes"):
            DeviceArray.over(buffer, (2, 3), np.float32, offset=80)

    def test_keeps_its_buffer(self, fake):
        found = on_device(np.arange(3.0))
        gc.collect()
        assert found.numpy().tolist() == [0.0, 1.0, 2.0]
        del found
        assert fake.fake_buffers() == 0

    def test_is_an_argument_of_functions(self, fake):
        found = on_device(np.zeros(4))
        device().load(PTX).function("add_one").launch(1, 32, 0, found, 4)
        assert found.numpy().tolist() == [1.0] * 4

    def test_is_itself(self, fake):
        found = on_device(np.zeros(4))
        assert device_array(found) is found

    def test_with_gaps_does_not_come_to_the_host(self, fake):
        found = device_array(Interface(device().allocate(100), strides=(8, 16)))
        with pytest.raises(ValueError, match=r"an array of strides \(1, 2\) is not copied to the host: make it contig"):
            found.numpy()


class TestOfTheHost:
    @pytest.mark.parametrize("thing", [np.zeros(3), torch.zeros(3), [1.0], 1.0, None, "text", np.float64(1.0)])
    def test_is_none(self, thing):  # and needs no driver
        assert device_array(thing) is None

    def test_pinned_is_none(self):
        assert device_array(Lender(np.zeros(3), where=(3, 0))) is None


class TestInterface:
    def test_is_taken_as_it_is(self, fake):
        buffer = device().allocate(100)
        found = device_array(Interface(buffer))
        assert (found.address, found.shape, found.strides) == (buffer.address, (2, 3), (3, 1))
        assert (found.dtype, found.read_only, found.contiguous) == (np.float64, False, True)
        assert fake.fake_calls(b"cuStreamWaitEvent") == 0

    @pytest.mark.parametrize(("typestr", "dtype"), [("<f4", "float32"), ("<i8", "int64"), ("<c16", "complex128")])
    def test_has_any_numbers(self, fake, typestr, dtype):
        assert device_array(Interface(device().allocate(100), typestr=typestr)).dtype == dtype

    @pytest.mark.parametrize(
        ("shape", "steps", "strides", "contiguous"),
        [
            ((2, 3), None, (3, 1), True),
            ((2, 3), (24, 8), (3, 1), True),
            ((2, 3), (8, 16), (1, 2), False),
            ((2, 3), (48, 16), (6, 2), False),
            ((1, 3), (800, 8), (100, 1), True),
            ((2, 3), (0, 8), (0, 1), False),
            ((2, 3), (-24, 8), (-3, 1), False),
            ((), None, (), True),
        ],
    )
    def test_has_any_strides(self, fake, shape, steps, strides, contiguous):
        found = device_array(Interface(device().allocate(100), shape=shape, strides=steps))
        assert (found.strides, found.contiguous) == (strides, contiguous)

    def test_may_be_read_only_or_empty(self, fake):
        buffer = device().allocate(8)
        assert device_array(Interface(buffer, data=(buffer.address, True))).read_only
        assert device_array(Interface(buffer, shape=(0, 4), data=(0, False))).size == 0

    def test_is_kept_while_it_is_used(self, fake):
        thing = Interface(device().allocate(100))
        found = device_array(thing)
        del thing
        gc.collect()
        assert fake.fake_buffers() == 1
        fake.fake_be_busy()
        del found
        gc.collect()
        device().allocate(1)
        assert fake.fake_buffers() == 2  # the GPU may still be at work with it
        fake.fake_release()
        device().synchronize()
        device().synchronize()
        assert fake.fake_buffers() == 0

    @pytest.mark.parametrize(("stream", "waits"), [(None, 0), (1, 0), (2, 1), (0xABC0, 1)])
    def test_is_waited_for(self, fake, stream, waits):
        device_array(Interface(device().allocate(100), stream=stream))
        assert fake.fake_calls(b"cuStreamWaitEvent") == waits
        assert fake.fake_last_order() == (stream << 32 if waits else 0)  # ours, 0, waits for it

    @pytest.mark.parametrize(
        ("changes", "error", "sentence"),
        [
            (
                {"stream": 0},
                TypeError,
                r"has the `stream` 0, which its protocol forbids: it must be 1, 2 or a stream's",
            ),
            (
                {"strides": (12, 4)},
                TypeError,
                r"has strides \(12, 4\) of bytes, between its numbers: make it contiguous",
            ),
            ({"mask": object()}, TypeError, "has a mask: fill in what is missing"),
            ({"data": (4096, False)}, CudaError, "is at an address that the driver does not know"),
        ],
    )
    def test_is_refused(self, fake, changes, error, sentence):
        with pytest.raises(error, match=r"^`x` \(Interface\) " + sentence):
            device_array(Interface(device().allocate(100), **changes), "x")

    def test_elsewhere_is_refused(self, fake):
        device()
        address = fake.fake_allocate_on(1, 100)
        said = (
            r"`array` \(Interface\) is on GPU 1, and this process uses GPU 0: move it there, or set CHAINRULE_CUDA_DEV"
        )
        with pytest.raises(CudaError, match=said):
            device_array(Interface(device().allocate(100), data=(address, False)))

    def test_of_ours_is_for_others(self, fake):
        array = on_device(np.arange(6.0).reshape(2, 3))
        assert array.__cuda_array_interface__ == {
            "shape": (2, 3),
            "typestr": "<f8",
            "data": (array.address, False),
            "strides": None,
            "stream": 1,
            "version": 3,
        }
        turned = DeviceArray(array.address, (3, 2), (1, 3), array.dtype, array, array.device)
        assert turned.__cuda_array_interface__["strides"] == (8, 24)
        empty = on_device(np.empty((0, 3)))
        assert empty.__cuda_array_interface__["data"] == (0, False)


class TestDLPack:
    @pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}])
    @pytest.mark.parametrize("numbers", [np.arange(6.0).reshape(2, 3), np.float32(3), np.zeros((0, 2), "i4")])
    def test_of_numpy(self, fake, numbers, options):
        numbers = np.array(numbers)
        found = device_array(Lender(numbers, **options))
        assert (found.address, found.shape, found.dtype) == (numbers.ctypes.data, numbers.shape, numbers.dtype)
        assert found.contiguous
        assert not found.read_only

    @pytest.mark.parametrize("where", [(2, 0), (13, 0)])
    def test_of_torch(self, fake, where):
        tensor = torch.arange(12.0).reshape(3, 4)
        found = device_array(Lender(tensor.T[1:], where))
        assert (found.address, found.shape, found.strides) == (tensor.data_ptr() + 4, (3, 3), (1, 4))
        assert (found.dtype, found.contiguous) == (np.float32, False)

    @pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int64", "uint8", "complex64", "bool"])
    def test_has_any_numbers(self, fake, dtype):
        assert device_array(Lender(torch.zeros(3, dtype=getattr(torch, dtype)))).dtype == np.dtype(dtype)

    def test_is_in_order_with_our_stream(self, fake):
        lender = Lender(np.zeros(3))
        device_array(lender)
        assert lender.streams == [1]

    def test_says_that_it_is_read_only(self, fake):
        numbers = np.zeros(3)
        numbers.flags.writeable = False
        found = device_array(Lender(numbers, max_version=(1, 0)))
        assert found.read_only
        with pytest.raises(BufferError, match="cannot say that an array is read-only"):
            found.__dlpack__()

    @pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}])
    def test_is_given_back_once(self, fake, options):
        numbers = np.zeros(3)
        before = sys.getrefcount(numbers)
        for _ in range(5):
            found = device_array(Lender(numbers, **options))
            assert sys.getrefcount(numbers) == before + 1
            del found
            assert sys.getrefcount(numbers) == before

    def test_is_given_back_when_the_gpu_is_idle(self, fake):
        numbers = np.zeros(3)
        before = sys.getrefcount(numbers)
        found = device_array(Lender(numbers))
        fake.fake_be_busy()
        del found
        assert sys.getrefcount(numbers) == before + 1
        fake.fake_release()
        device().synchronize()
        assert sys.getrefcount(numbers) == before

    @pytest.mark.parametrize(
        ("lender", "error", "sentence"),
        [
            (Lender(np.zeros(3), (2, 1)), CudaError, "is on GPU 1, and this process uses GPU 0: move it there, or set"),
            (
                Lender(np.zeros(3), (10, 0)),
                CudaError,
                "is on a device of kind 10 of DLPack, which is no NVIDIA GPU: giv",
            ),
            (
                Lender(torch.zeros(3).bfloat16()),
                TypeError,
                "cannot be taken as it is: its numbers are such as NumPy does",
            ),
            (
                Lender(torch.zeros(3, requires_grad=True)),
                TypeError,
                "cannot be taken as it is: Can't export tensors tha",
            ),
            (Lender(Lender(None)), TypeError, "cannot be taken as it is: 'NoneType' object has no attribute"),
        ],
    )
    def test_is_refused(self, fake, lender, error, sentence):
        with pytest.raises(error, match=r"^`x` \(Lender\) " + sentence):
            device_array(lender, "x")

    def test_is_taken_once(self, fake):
        capsule = on_device(np.zeros(3)).__dlpack__()
        assert device_array(Holder(capsule)).shape == (3,)
        with pytest.raises(TypeError, match="must give a capsule that nobody has used"):
            device_array(Holder(capsule))

    def test_of_ours_is_for_others(self, fake):
        array = on_device(np.arange(6.0).reshape(2, 3))
        assert array.__dlpack_device__() == (2, 0)
        capsule = array.__dlpack__(stream=1, max_version=(1, 1), dl_device=(2, 0), copy=False)
        assert repr(capsule).startswith('<capsule object "dltensor" at')
        found = device_array(Holder(capsule))
        assert repr(capsule).startswith('<capsule object "used_dltensor" at')
        assert (found.address, found.shape, found.strides) == (array.address, (2, 3), (3, 1))
        del array, capsule
        gc.collect()
        assert found.numpy().tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        del found
        gc.collect()
        device().synchronize()
        assert fake.fake_buffers() == 0

    def test_of_ours_that_nobody_takes_is_freed(self, fake):
        capsule = on_device(np.zeros(3)).__dlpack__()
        gc.collect()
        assert fake.fake_buffers() == 1
        del capsule
        assert fake.fake_buffers() == 0

    @pytest.mark.parametrize(("stream", "waits"), [(None, 0), (1, 0), (-1, 0), (2, 1), (0xABC0, 1)])
    def test_of_ours_is_waited_for(self, fake, stream, waits):
        on_device(np.zeros(3)).__dlpack__(stream=stream)
        assert fake.fake_calls(b"cuStreamWaitEvent") == waits
        assert fake.fake_last_order() == (stream if waits else 0)  # which waits for ours, 0

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"copy": True}, "gives the array where it is, without a copy: copy what you get"),
            ({"dl_device": (1, 0)}, "gives the array where it is, without a copy: copy what you get"),
            ({"stream": 0}, "`stream` must be 1, 2, -1 or a stream's address, got 0"),
            ({"stream": -2}, "`stream` must be 1, 2, -1 or a stream's address, got -2"),
        ],
    )
    def test_of_ours_is_refused(self, fake, options, sentence):
        with pytest.raises(BufferError, match=sentence):
            on_device(np.zeros(3)).__dlpack__(**options)

    def test_of_ours_has_numbers_that_dlpack_knows(self, fake):
        with pytest.raises(BufferError, match="DLPack has no numbers of type >f8"):
            on_device(np.zeros(3, ">f8")).__dlpack__()

    def test_is_no_trouble_at_exit(self, built):
        """Consumers written in C++ may let go of what they have when Python is gone: no deleter is left to call."""
        program = """
        @atexit.register  # before the driver's own, so that it runs after
        def last():
            managed = dlpack._Managed.from_address(address)
            print(managed.deleter, managed.tensor.shape[0])

        from chainrule.compiler.backends.cuda import dlpack
        atexit.unregister(dlpack._let_all_go)
        atexit.register(dlpack._let_all_go)

        array = DeviceArray.over(device().allocate(24), (3,), np.float64)
        capsule = array.__dlpack__()
        address = dlpack._pointer(capsule, b"dltensor")
        print(dlpack._Managed.from_address(address).deleter is None)
        unused = sys.kept = array.__dlpack__()

        class Lender:
            def __dlpack_device__(self): return (2, 0)
            def __dlpack__(self, **_): return np.zeros(3).__dlpack__()

        lent = sys.lent = device_array(Lender())
        """
        assert printed(program, built) == ["False", "None 3"]
