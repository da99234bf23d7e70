"""An array program on JAX arrays, statement by statement.

Arrays stay flat, as the program has them. An access that walks through an array along axes is a slice and a reshape,
which XLA does without copying where it can; only what is irregular becomes a gather or a scatter. A sum of products
becomes one `dot_general`, and a Repeat a `fori_loop`. The rest is elementwise, and fuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from chainrule import ops
from chainrule.compiler.backends.array_ops import Numbers, bare, functions
from chainrule.compiler.passes.differentiate import is_injective
from chainrule.compiler.passes.powers import power
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Expression, Repeat, Shape, Statement

JAX = functions(jnp, where=lambda c, a, b: jnp.where(c != 0.0, a, b), erf=special.erf, erfc=special.erfc)
SMALL = 2**16  # numbers in a factor of a matrix product

Memory = dict[Array, Any]


def apply(op: ops.Op, operands: Sequence[Any]) -> Any:
    """An op on JAX arrays and plain numbers: a primitive by JAX's function, any other by its rule."""
    arrays = [operand for operand in operands if not isinstance(operand, float)]
    if not arrays:
        return op.forward(*operands)
    wrapped = [operand if isinstance(operand, float) else Numbers(operand, apply) for operand in operands]
    if not op.c:
        return bare(op.forward(*wrapped))
    if op is ops.pow_ and isinstance(operands[1], float) and (result := power(wrapped[0], operands[1])) is not None:
        return bare(result)
    return jnp.asarray(JAX[op.name](*operands), jnp.result_type(*arrays))


def computation(program: ArrayProgram) -> Callable[[Memory], Memory]:
    """A pure function from the leaves to all arrays; it computes in the type of the leaves."""

    def run(leaves: Memory) -> Memory:
        dtype = jnp.result_type(*leaves.values(), jnp.float32) if leaves else jnp.result_type(float)
        memory = {array: jnp.asarray(numbers, dtype) for array, numbers in leaves.items()}
        memory |= {a: jnp.asarray(a.numbers, dtype) for a in program.arrays() if a.numbers is not None}
        for array in program.arrays():
            memory.setdefault(array, jnp.zeros(array.size, dtype))
        whole = _Step(memory, dtype)
        for step in program.steps:
            whole.repeat(step) if isinstance(step, Repeat) else whole.statement(step)
        return memory

    return run


class Path:
    """How loops walk through a segment of an array: by decreasing strides, where none overlaps the one before."""

    def __init__(self, start: int, axes: Sequence[tuple[int, int, int]], backward: Sequence[int]) -> None:
        self.start = start
        self.strides = [stride for stride, _, _ in axes]
        self.extents = [extent for _, extent, _ in axes]
        self.loops = [loop for _, _, loop in axes]
        self.length = 1 + sum(stride * (extent - 1) for stride, extent, _ in axes)
        self.is_dense = self.length == np.prod(self.extents)  # it visits every element of the segment
        self.reversed_axes = [k for k, loop in enumerate(self.loops) if loop in backward]

    @classmethod
    def of(cls, access: Access, loops: Shape) -> Path | None:
        """The path of an access without a table, at time 0; None if loops overlap."""
        moves = [(stride, n, d) for d, (stride, n) in enumerate(zip(access.strides, loops, strict=True)) if n > 1]
        start = access.base + sum(stride * (n - 1) for stride, n, _ in moves if stride < 0)
        axes = sorted(((abs(stride), n, d) for stride, n, d in moves if stride), reverse=True)
        if any(inner * extent > outer for (outer, _, _), (inner, extent, _) in pairwise(axes)):
            return None
        return cls(start, axes, [d for stride, _, d in moves if stride < 0])

    def spread(self, segment: Any) -> Any:
        """The elements on the path, with one axis per loop."""
        if not self.strides:
            return segment.reshape(())
        value = segment
        for k, (stride, extent) in enumerate(zip(self.strides[:-1], self.extents[:-1], strict=True)):
            value = jnp.pad(value, (0, stride * extent - self.length)) if k == 0 else value[..., : stride * extent]
            value = value.reshape(*self.extents[: k + 1], stride)
        last, extent = self.strides[-1], self.extents[-1]
        return value[..., : last * (extent - 1) + 1 : last]

    def packed(self, value: Any) -> Any:
        """The segment with these elements on the path, and zeros elsewhere."""
        if not self.strides:
            return value.reshape(1)
        value = self._padded(value, len(self.strides) - 1, self.strides[-1] - 1)
        for k in reversed(range(len(self.strides) - 1)):
            value = self._padded(value.reshape(*self.extents[:k], -1), k, 0)
        return value[: self.length]

    def _padded(self, value: Any, k: int, between: int) -> Any:
        """The last axis, that of loop k, padded to the stride of the loop around it."""
        length = value.shape[-1] + between * (value.shape[-1] - 1)
        after = self.strides[k - 1] - length if k else 0
        return lax.pad(value, jnp.zeros((), value.dtype), [(0, 0, 0)] * (value.ndim - 1) + [(0, after, between)])

    def touched(self) -> np.ndarray:
        """Which elements of the segment are on the path."""
        mask = np.zeros(self.length, dtype=bool)
        mask[np.tensordot(self.strides, np.indices(self.extents), axes=1)] = True
        return mask


class _Step:
    """Runs steps on `memory`, which it changes, at one `time` of a Repeat."""

    def __init__(self, memory: Memory, dtype: Any, time: Any = 0) -> None:
        self.memory = memory
        self.dtype = dtype
        self.time = time

    def repeat(self, step: Repeat) -> None:
        """The loop carries what its statements write."""
        written = list(dict.fromkeys(statement.target.array for statement in step.body))

        def body(turn: Any, state: list[Any]) -> list[Any]:
            memory = {**self.memory, **dict(zip(written, state, strict=True))}
            inner = _Step(memory, self.dtype, step.count - 1 - turn if step.backward else turn)
            for statement in step.body:
                inner.statement(statement)
            return [memory[array] for array in written]

        results = lax.fori_loop(0, step.count, body, [self.memory[array] for array in written])
        self.memory.update(zip(written, results, strict=True))

    def statement(self, statement: Statement) -> None:
        outer, is_sum = statement.loops, statement.join is ops.add
        reduce = self.sum_of_products if is_sum else self.largest
        values = (
            reduce(term.expression, outer, outer + term.loops) if term.loops else self.evaluate(term.expression, outer)
            for term in statement.terms
        )
        total = statement.joined(values, apply if is_sum else lambda _, pair: jnp.maximum(*pair))
        self.write(statement, jnp.broadcast_to(jnp.asarray(total, self.dtype), outer))

    # Values. An array of a statement's loops has an axis for each of them, of length 1 where it does not vary.

    def largest(self, expression: Expression, outer: Shape, loops: Shape) -> Any:
        """The largest of the values in all loops but the `outer` ones."""
        value = jnp.asarray(self.evaluate(expression, loops), self.dtype)
        value = value.reshape((1,) * (len(loops) - value.ndim) + value.shape)
        return jnp.max(value, axis=tuple(range(len(outer), len(loops))))

    def sum_of_products(self, expression: Expression, outer: Shape, loops: Shape) -> Any:
        """The sum over all loops but the `outer` ones, as one `dot_general` of the factors."""
        factors = [_apart(*self.labelled(factor, loops)) for factor in _factors(expression)]
        axes = {axis for _, labels in factors for axis in labels}
        kept = [axis for axis in range(len(outer)) if axis in axes]
        arguments = [part for factor in factors for part in factor]
        chosen = jax.config.jax_default_matmul_precision  # by the user; otherwise JAX might round to TF32
        value = jnp.einsum(*arguments, kept, precision=None if chosen else lax.Precision.HIGHEST)
        repeated = np.prod([loops[d] for d in range(len(outer), len(loops)) if d not in axes])
        value = value if repeated == 1 else value * float(repeated)
        return value.reshape([n if d in kept else 1 for d, n in enumerate(outer)])

    def labelled(self, expression: Expression, loops: Shape) -> tuple[Any, list[int]]:
        """The value without the axes along which it does not vary, and the loops that the others belong to."""
        if isinstance(expression, Access):
            return self.read(expression, loops)
        value = jnp.asarray(self.evaluate(expression, loops), self.dtype)
        labels = [d for d, n in enumerate(value.shape) if n > 1]
        return value.reshape([value.shape[d] for d in labels]), labels

    def evaluate(self, expression: Expression, loops: Shape) -> Any:
        def element(access: Access) -> Any:
            value, labels = self.read(access, loops)
            value = jnp.transpose(value, [labels.index(d) for d in sorted(labels)])
            return value.reshape([n if d in labels else 1 for d, n in enumerate(loops)])

        return expression.evaluate(element, apply)

    # Memory.

    def read(self, access: Access, loops: Shape) -> tuple[Any, list[int]]:
        """The elements that an access reads, and the loop that each axis belongs to."""
        flat = self.memory[access.array]
        path = None if access.table is not None else Path.of(access, loops)
        if path is None:
            extents = tuple(n if stride else 1 for n, stride in zip(loops, access.strides, strict=True))
            places = access.positions(extents) + access.repeat * self.time
            labels = [d for d, n in enumerate(extents) if n > 1]
            value = flat.at[places].get(mode="promise_in_bounds")
            return value.reshape([extents[d] for d in labels]), labels
        value = path.spread(self.segment(flat, path, access.repeat))
        return lax.rev(value, path.reversed_axes) if path.reversed_axes else value, path.loops

    def segment(self, flat: Any, path: Path, repeat: int) -> Any:
        if not repeat:
            return flat[path.start : path.start + path.length]
        return lax.dynamic_slice(flat, (path.start + repeat * self.time,), (path.length,))

    def write(self, statement: Statement, value: Any) -> None:
        """Store or add an array of the statement's loops."""
        target, loops = statement.target, statement.loops
        flat = self.memory[target.array]
        injective = is_injective(statement)
        path = None if target.table is not None or not injective else Path.of(target, loops)
        if path is None:
            places = target.positions(loops) + target.repeat * self.time
            at = flat.at[places]
            change = at.add if statement.accumulate else at.set
            self.memory[target.array] = change(value, mode="promise_in_bounds", unique_indices=injective)
            return
        moving = [d for d, n in enumerate(loops) if n > 1]
        value = value.reshape([loops[d] for d in moving])
        value = jnp.transpose(value, [moving.index(d) for d in path.loops])
        value = lax.rev(value, path.reversed_axes) if path.reversed_axes else value
        placed = path.packed(value)
        if not (statement.accumulate or path.is_dense):
            placed = jnp.where(path.touched(), placed, self.segment(flat, path, target.repeat))
        elif statement.accumulate:
            placed = self.segment(flat, path, target.repeat) + placed
        if path.length < target.array.size:
            placed = lax.dynamic_update_slice(flat, placed, (path.start + target.repeat * self.time,))
        self.memory[target.array] = placed


def _apart(value: Any, labels: list[int]) -> tuple[Any, list[int]]:
    """A factor of a product; not to be fused into it if it is small and on a GPU.

    There XLA's compiler aborts the process when it fuses some small products with their factors (a failed check in its
    propagation of Triton's tiles). Large products are faster fused, and were never seen to fail.
    """
    if value.size <= SMALL and jax.default_backend() != "cpu":
        value = lax.optimization_barrier(value)
    return value, labels


def _factors(expression: Expression) -> list[Expression]:
    """The factors of a product, or the expression alone."""
    if isinstance(expression, Apply) and expression.op is ops.mul:
        return [factor for operand in expression.operands for factor in _factors(operand)]
    return [expression]
