"""The op table on arrays of NumPy or JAX, whose functions have the same names: `np.arcsin`, `jnp.arcsin`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chainrule import ops
from chainrule.compiler.passes.program import ApplyOp

# The primitives that have another name there:
NAMES = {"sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "pow": "power"}
NAMES |= {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}
NAMES |= {f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh")}


def functions(module: Any, **others: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """The function for each primitive: the module's, or one of `others`."""
    primitives = [name for name, op in ops.TABLE.items() if op.c]
    return {name: others.get(name) or getattr(module, NAMES.get(name, name)) for name in primitives}


class Numbers(ops.Carrier):
    """An array that rules of the op table run on; `apply` applies an op to bare arrays."""

    def __init__(self, array: Any, apply: ApplyOp) -> None:
        self.array = array
        self.apply = apply

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        return Numbers(self.apply(op, tuple(map(bare, operands))), self.apply)


def bare(number: Any) -> Any:
    """The array in Numbers; any other number itself."""
    return number.array if isinstance(number, Numbers) else number
