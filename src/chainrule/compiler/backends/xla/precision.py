"""Double precision for chainrule's programs, whatever the user has told JAX."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np


def precision(dtype: np.dtype[Any]) -> AbstractContextManager[Any]:
    """JAX turns doubles into floats unless told otherwise; this tells it, for this thread only."""
    return jax.enable_x64(True) if dtype == np.float64 and not jax.config.jax_enable_x64 else nullcontext()
