"""The op table on JAX arrays: a primitive by JAX's function, any other op by its rule."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax.scipy import special

from chainrule import ops
from chainrule.compiler.backends.array_ops import Numbers, bare, functions
from chainrule.compiler.passes.powers import power

JAX = functions(jnp, where=lambda c, a, b: jnp.where(c != 0.0, a, b), erf=special.erf, erfc=special.erfc)


def apply(op: ops.Op, operands: list[Any]) -> Any:
    """An op on JAX arrays and plain numbers."""
    arrays = [operand for operand in operands if not isinstance(operand, float)]
    if not arrays:
        return op.forward(*operands)
    wrapped = [operand if isinstance(operand, float) else Numbers(operand, apply) for operand in operands]
    if not op.c:
        return bare(op.forward(*wrapped))
    if op is ops.pow_ and isinstance(operands[1], float):
        result = power(wrapped[0], operands[1])
        if result is not None:
            return bare(result)
    return jnp.asarray(JAX[op.name](*operands), jnp.result_type(*arrays))
