"""A CUDA driver without a GPU, `fake_cuda.c`: built once, and loaded afresh for every test."""

import ctypes
import gc
import itertools
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from chainrule.compiler.backends.cuda import driver, library

SOURCE = Path(__file__).with_name("fake_cuda.c")
COUNT = itertools.count()
PTX = ".version 8.0\n.target sm_70\n" + "".join(
    f".visible .entry {name}(\n" for name in ["add_one", "scale", "forever", "crash", "tile", "greedy"]
)

needs_a_compiler = [
    pytest.mark.skipif(not shutil.which("gcc"), reason="the driver that stands for NVIDIA's is written in C"),
    pytest.mark.skipif(sys.platform != "linux", reason="and for Linux"),
]


def build(folder, source=SOURCE):
    built = folder / f"{source.stem}.so"
    strictest = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run(["gcc", *strictest, "-o", built, source, "-lpthread"], check=True)
    return built


def load_afresh(built, folder, monkeypatch):
    """A library of its own, which the driver will be; its `fake_…` functions are for the test."""
    own = folder / f"libcuda{next(COUNT)}.so"  # a name is loaded once only
    shutil.copy(built, own)
    monkeypatch.setenv(library.LIBRARY_VARIABLE, str(own))
    monkeypatch.setattr(library, "_driver", None)
    monkeypatch.setattr(driver, "_device", None)
    fake = ctypes.CDLL(str(own))
    fake.fake_calls.argtypes = [ctypes.c_char_p]
    fake.fake_calls.restype = ctypes.c_long
    fake.fake_fail.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    fake.fake_set_memory.argtypes = [ctypes.c_size_t]
    fake.fake_allocate_on.argtypes = [ctypes.c_int, ctypes.c_size_t]
    for function in (fake.fake_allocate_on, fake.fake_last_order, fake.fake_first_input):
        function.restype = ctypes.c_uint64
    return fake


START = """
import atexit, ctypes, gc, os, signal, sys, threading
import numpy as np
from chainrule.compiler.backends.cuda.device_arrays import DeviceArray, device_array
from chainrule.compiler.backends.cuda.driver import CudaError, device, is_available
from fake_cuda import PTX
fake = ctypes.CDLL(os.environ["CHAINRULE_CUDA_LIBRARY"])
"""


def start(program, built):
    """A process of its own that runs the program, and prints."""
    environment = {
        **os.environ,
        library.LIBRARY_VARIABLE: str(built),
        "PYTHONPATH": os.pathsep.join([str(SOURCE.parent), *sys.path]),
    }
    program = START + textwrap.dedent(program)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes)


def printed(program, built):
    """What the program prints, which ends well and complains of nothing."""
    process = start(program, built)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, ""), errors
    return out.split("\n")[:-1]


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The library of a CUDA driver without a GPU."""
    return build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def fake(built, tmp_path, monkeypatch):
    """That driver, afresh for every test."""
    found = load_afresh(built, tmp_path, monkeypatch)
    yield found
    found.fake_release()
    found.fake_heal()
    gc.collect()
