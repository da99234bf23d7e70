"""The XLA backend: an array program as a function of JAX arrays, for whatever devices JAX knows.

`statements` runs a program on JAX arrays; `programs` compiles that for `compile(backend="xla")`, or hands it to JAX
users as a function. On a CPU, XLA calls machine code of ours instead: `foreign` for `compile(backend="jax")`, and
`primitive` for JAX users. Only this package and `run.sharding` import jax.
"""

import jax

from chainrule.compiler.backends.xla.foreign import Foreign, why_not
from chainrule.compiler.backends.xla.programs import Xla, batch_function, function

__all__ = ["Foreign", "Xla", "batch_function", "function", "largest_batch", "why_xla_compiles"]

CPU_BATCH, DEVICE_BATCH = 2**22, 2**32  # bytes of a batch's numbers at a time: what a cache holds, what a device does


def largest_batch() -> int:
    """How many bytes of a batch the default device should compute at a time."""
    return CPU_BATCH if jax.default_backend() == "cpu" else DEVICE_BATCH


def why_xla_compiles() -> str:
    """Why programs for JAX's default device are compiled by XLA; nothing if they are machine code that it calls."""
    device = jax.default_backend()
    if device != "cpu":
        return f"JAX runs on a {device}"
    return f"XLA cannot call machine code of ours here ({why})" if (why := why_not()) else ""
