"""JAX as contestants use it: they import it from here, before anything is computed."""

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_enable_async_dispatch", False)  # handing a call to a thread costs up to 10 µs
