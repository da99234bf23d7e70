"""The op table on JAX arrays: a primitive by JAX's function, any other op by its rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.scipy import special

from chainrule import ops
from chainrule.compiler.passes.powers import power

JAX: dict[str, Callable[..., Any]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "neg": jnp.negative,
    "pow": jnp.power,
    "abs": jnp.abs,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "where": lambda condition, a, b: jnp.where(condition != 0.0, a, b),
    "asin": jnp.arcsin,
    "acos": jnp.arccos,
    "atan": jnp.arctan,
    "atan2": jnp.arctan2,
    "asinh": jnp.arcsinh,
    "acosh": jnp.arccosh,
    "atanh": jnp.arctanh,
    "erf": special.erf,
    "erfc": special.erfc,
}


class Numbers(ops.Carrier):
    """JAX arrays that the rules of the op table run on."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        return Numbers(apply(op, [o.array if isinstance(o, Numbers) else o for o in operands]))


def apply(op: ops.Op, operands: list[Any]) -> Any:
    """An op on JAX arrays and plain numbers: a primitive by JAX's function, anything else by its rule."""
    arrays = [operand for operand in operands if not isinstance(operand, float)]
    if not arrays:
        return op.forward(*operands)
    wrapped = [operand if isinstance(operand, float) else Numbers(operand) for operand in operands]
    result = None
    if not op.c:
        result = op.forward(*wrapped)
    elif op is ops.pow_ and isinstance(operands[1], float):
        result = power(wrapped[0], operands[1])
    if result is not None:
        return result.array if isinstance(result, Numbers) else result
    primitive = JAX.get(op.name) or getattr(jnp, op.name)
    return jnp.asarray(primitive(*operands), jnp.result_type(*arrays))
