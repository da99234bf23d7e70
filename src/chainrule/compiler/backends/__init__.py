"""What runs programs: LLVM, XLA, NumPy, or node by node; and C text for those who run them elsewhere."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from chainrule.compiler.backends.protocol import ArrayBackend
from chainrule.compiler.passes.program import ArrayProgram

BACKENDS = ("llvm", "jax", "cuda", "interpreter")
DTYPES = ("float64", "float32")


def check_dtype(dtype: str) -> None:
    """Refuse a number type that programs cannot compute in."""
    if dtype not in DTYPES:
        raise ValueError(f"`dtype` must be one of {', '.join(DTYPES)}; got {dtype!r}")


def load_xla() -> Any:
    """The module that imports jax, if jax is installed."""
    try:
        return import_module("chainrule.compiler.backends.xla")
    except ImportError as error:
        remedy = "install it with pip install 'chainrule[jax]'"
        raise ImportError(f"programs for JAX need the package jax, which does not load ({error}): {remedy}") from error


def compiled_by(backend: str, program: ArrayProgram, dtype: str) -> ArrayBackend:
    """The program, compiled by the backend of this name."""
    if backend == "llvm":
        from chainrule.compiler.backends.llvm import Native

        return Native(program, dtype)
    if backend == "jax":
        return load_xla().Xla(program, dtype)  # type: ignore[no-any-return]
    if backend == "cuda":
        from chainrule.compiler.backends.cuda.runner import Cuda

        return Cuda(program, dtype)
    from chainrule.compiler.backends.interpret import Interpreted

    return Interpreted(program, dtype)
