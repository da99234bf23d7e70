"""The XLA backend: an array program as a function of JAX arrays, for whatever devices JAX knows.

`statements` runs a program on JAX arrays; `programs` compiles that for `compile(backend="jax")`, or hands it to JAX
users as a function. Only this package and `run.sharding` import jax.
"""

import jax

from chainrule.compiler.backends.xla.programs import Xla, batch_function, function

__all__ = ["Xla", "batch_function", "function", "largest_batch"]

CPU_BATCH, DEVICE_BATCH = 2**22, 2**32  # bytes of a batch's numbers at a time: what a cache holds, what a device does


def largest_batch() -> int:
    """How many bytes of a batch the default device should compute at a time."""
    return CPU_BATCH if jax.default_backend() == "cpu" else DEVICE_BATCH
