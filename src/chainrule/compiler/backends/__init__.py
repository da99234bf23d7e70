"""What runs programs: LLVM, XLA, NumPy, or node by node; and C text for those who run them elsewhere."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from chainrule.compiler.backends.protocol import ArrayBackend, Wiring
from chainrule.compiler.passes.program import ArrayProgram

BACKENDS = ("llvm", "cuda", "jax", "xla", "interpreter", "auto")
DTYPES = ("float64", "float32")
CALLED = "JAX runs on a cpu, where XLA calls machine code that LLVM has compiled"


def check_dtype(dtype: str) -> None:
    """Refuse a number type that programs cannot compute in."""
    if dtype not in DTYPES:
        raise ValueError(f"`dtype` must be one of {', '.join(DTYPES)}; got {dtype!r}")


class Backend(str):
    """The name of a backend, and why it was chosen, if the user left that open."""

    reason = ""

    @classmethod
    def because(cls, name: str, reason: str) -> Backend:
        """The backend of this name, for this reason."""
        chosen = cls(name)
        chosen.reason = reason
        return chosen


def ready(backend: str) -> str:
    """The backend of this name, if it can be used here; for "auto" the best one that can be."""
    if backend == "auto":
        return _best()
    if backend in ("jax", "xla"):
        load_xla()  # so that its absence is reported here
    elif backend == "cuda":
        load_cuda()
    return backend


def settled(backend: str) -> str:
    """The backend that does the work: for "jax", whether XLA calls our machine code or compiles the program itself.

    That depends on JAX's devices. It must not be asked for them before a program is compiled: users may still set them.
    """
    if backend != "jax":
        return backend
    reason = load_xla().why_xla_compiles()
    return Backend.because("xla", reason) if reason else Backend.because("jax", CALLED)


def _best() -> Backend:
    """A GPU, by its driver or by JAX if that has been imported; else this processor."""
    try:
        return Backend.because("cuda", f"there is {load_cuda()}")
    except RuntimeError as error:
        missing = str(error)
    jax = sys.modules.get("jax")
    if jax is not None and (device := jax.default_backend()) != "cpu":
        return Backend.because("xla", f"JAX has a {device}, and for `backend='cuda'`: {missing}")
    return Backend.because("llvm", f"there is no GPU to use: {missing}")


def load_cuda() -> str:
    """What the GPU is called; an error says why there is none."""
    from chainrule.compiler.backends.cuda import runner

    return runner.machinery().name


def load_xla() -> Any:
    """The module that imports jax, if jax is installed."""
    try:
        return import_module("chainrule.compiler.backends.xla")
    except ImportError as error:
        remedy = "install it with pip install 'chainrule[jax]'"
        raise ImportError(f"programs for JAX need the package jax, which does not load ({error}): {remedy}") from error


def with_rows(program: ArrayProgram, wiring: Wiring) -> ArrayProgram:
    """The program with inputs as they lie in the caller's arrays, where that pays, for `compiled_by("llvm", …)`."""
    from chainrule.compiler.backends.llvm.in_place import in_place

    return in_place(program, wiring)


def compiled_by(backend: str, program: ArrayProgram, dtype: str) -> ArrayBackend:
    """The program, compiled by the backend of this name."""
    if backend == "llvm":
        from chainrule.compiler.backends.llvm import Native

        return Native(program, dtype)
    if backend == "jax":
        return load_xla().Foreign(program, dtype)  # type: ignore[no-any-return]
    if backend == "xla":
        return load_xla().Xla(program, dtype)  # type: ignore[no-any-return]
    if backend == "cuda":
        from chainrule.compiler.backends.cuda.runner import Cuda

        return Cuda(program, dtype)
    from chainrule.compiler.backends.interpret import Interpreted

    return Interpreted(program, dtype)
