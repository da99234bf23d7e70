"""An array program on JAX arrays, statement by statement.

Arrays stay flat, as the program has them. An access that walks through an array along axes is a slice and a reshape,
which XLA does without copying where it can; only what is irregular becomes a gather or a scatter. A sum of products
becomes one `dot_general`. The rest is elementwise, and fuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from chainrule import ops
from chainrule.compiler.backends.array_ops import Numbers, bare, functions
from chainrule.compiler.backends.xla.paths import Path, in_boxes
from chainrule.compiler.backends.xla.pieces import Pieces
from chainrule.compiler.backends.xla.tables import gathered, sources
from chainrule.compiler.passes.program import Access, Apply, Array, Expression, Shape, Statement, is_injective
from chainrule.core.powers import power

JAX = functions(jnp, where=lambda c, a, b: jnp.where(c != 0.0, a, b), erf=special.erf, erfc=special.erfc)
SMALL = 2**16  # numbers in a factor of a matrix product
LONG = 2**12  # numbers in a segment with gaps, from which on it is faster not to fuse it with what it is made of

Memory = dict[Array, Pieces]
Factor = tuple[Any, list[int]]  # an array, and the loop that each of its axes belongs to


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


class Block:
    """Runs statements on `memory`, which it changes, at one `time` of a Repeat of so many `times`."""

    def __init__(
        self,
        memory: Memory,
        dtype: Any,
        time: Any = 0,
        times: int = 1,
        known: Mapping[tuple[Access, Shape], Factor] = MappingProxyType({}),
    ) -> None:
        self.memory = memory
        self.dtype = dtype
        self.time = time
        self.times = times
        self.known = known  # what was read before the Repeat, which does not change it

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
        summed = range(len(outer), len(loops))
        parts = _merged([self.labelled(factor, loops) for factor in _factors(expression)], summed)
        factors = [_apart(*factor) for factor in parts]
        axes = {axis for _, labels in factors for axis in labels}
        kept = [axis for axis in range(len(outer)) if axis in axes]
        value = _contracted(factors, kept)
        repeated = np.prod([loops[d] for d in summed if d not in axes])
        value = value if repeated == 1 else value * float(repeated)
        return value.reshape([n if d in kept else 1 for d, n in enumerate(outer)])

    def labelled(self, expression: Expression, loops: Shape) -> Factor:
        """The value without the axes along which it does not vary, and the loops that the others belong to."""
        if isinstance(expression, Access):
            return self.read(expression, loops)
        value = jnp.asarray(self.evaluate(expression, loops), self.dtype)
        labels = [d for d, n in enumerate(value.shape) if n > 1]
        return value.reshape([value.shape[d] for d in labels]), labels

    def evaluate(self, expression: Expression, loops: Shape) -> Any:
        def element(access: Access) -> Any:
            return _on_all_axes(*self.read(access, loops), loops)

        return expression.evaluate(element, apply)

    # Memory.

    def read(self, access: Access, loops: Shape) -> Factor:
        """The elements that an access reads, and the loop that each axis belongs to."""
        if (access, loops) in self.known:
            return self.known[access, loops]
        path = None if access.table is not None else Path.of(access, loops)
        if path is None:
            return self.read_overlapping(access, loops)
        if path.is_sparse:
            return self.read_turns(access, path.loops[0], loops)
        before = path.before(*self.bounds(access))
        if before is None:
            blocks = jnp.pad(self.segment(access, path.start, path.length), (0, path.room - path.length))
        else:
            blocks = self.segment(access, path.start - before, path.room)
        value = path.spread(blocks, before or 0)
        return lax.rev(value, path.reversed_axes) if path.reversed_axes else value, path.loops

    def read_turns(self, access: Access, loop: int, loops: Shape) -> Factor:
        """The same, one turn of a loop after another."""
        once = tuple(1 if d == loop else n for d, n in enumerate(loops))
        stride, table = access.strides[loop], access.table
        bases = [access.base + k * stride for k in range(loops[loop])]
        parts = [self.read(Access(access.array, base, access.strides, table, access.repeat), once) for base in bases]
        return jnp.stack([value for value, _ in parts]), [loop, *parts[0][1]]

    def read_overlapping(self, access: Access, loops: Shape) -> Factor:
        """The elements of an access with a table, or with loops that overlap, as in a convolution.

        They are put together from few parts that have a path, or gathered.
        """
        extents = tuple(n if stride else 1 for n, stride in zip(loops, access.strides, strict=True))
        labels = [d for d, n in enumerate(extents) if n > 1]
        parts = in_boxes(access, extents)
        if parts is not None:
            value = parts.assembled(self.elements)
        else:
            places = access.positions(extents)
            low, high = int(places.min()), int(places.max()) + 1
            value = self.segment(access, low, high - low).at[places - low].get(mode="promise_in_bounds")
        return value.reshape([extents[d] for d in labels]), labels

    def elements(self, access: Access, loops: Shape) -> Any:
        """The elements that an access reads, with an axis for each loop."""
        return jnp.broadcast_to(_on_all_axes(*self.read(access, loops), loops), loops)

    def bounds(self, access: Access) -> tuple[int, int]:
        """Where a segment at time 0 may begin and end, so that at all times it lies in the array."""
        way = access.repeat * (self.times - 1)
        return max(0, -way), access.array.size - max(0, way)

    def segment(self, access: Access, start: int, length: int) -> Any:
        """Consecutive elements of the array, from `start` on at time 0."""
        pieces = self.memory[access.array]
        if not access.repeat:
            return pieces.read(start, start + length)
        return lax.dynamic_slice(pieces.whole(), (start + access.repeat * self.time,), (length,))

    def write(self, statement: Statement, value: Any) -> None:
        """Store or add an array of the statement's loops."""
        target, loops = statement.target, statement.loops
        injective = is_injective(statement)
        path = None if target.table is not None or not injective else Path.of(target, loops)
        if path is not None:
            self.write_along(path, target, _on_axes(path, value), statement.accumulate)
        elif (injective or statement.accumulate) and (parts := in_boxes(target, loops)) is not None:
            for box in parts.boxes():
                along = cast(Path, Path.of(box.access, box.shape))
                still = tuple(d for d, n in enumerate(box.shape) if n > 1 and d not in along.loops)
                part = jnp.sum(value[box.turns], axis=still, keepdims=True) if still else value[box.turns]
                self.write_along(along, box.access, _on_axes(along, part), statement.accumulate)
        else:
            self.write_scattered(target, value, statement.accumulate, injective)

    def write_scattered(self, target: Access, value: Any, accumulate: bool, injective: bool) -> None:
        """Store or add elements at irregular places."""
        places = target.positions(value.shape)
        low, high = int(places.min()), int(places.max()) + 1
        rounds = sources(places - low, high - low)
        if rounds is None:
            at = self.segment(target, low, high - low).at[places - low]
            change = at.add if accumulate else at.set
            self.put(target, low, change(value, mode="promise_in_bounds", unique_indices=injective))
        elif accumulate:
            added = jnp.sum(gathered(value, rounds), axis=0)
            is_first = not target.repeat and self.memory[target.array].is_zero(low, high)
            self.put(target, low, added if is_first else self.segment(target, low, high - low) + added)
        else:  # of several numbers for one place, the last
            self.put(target, low, gathered(value, rounds[-1]))

    def write_along(self, path: Path, target: Access, value: Any, accumulate: bool) -> None:
        """Store or add elements with one axis per loop of the path."""
        if path.is_sparse:
            for part, row in zip(path.turns(), value, strict=True):
                self.write_along(part, target, row, accumulate)
            return
        if not path.is_dense and path.room > LONG and jax.default_backend() == "cpu":
            value = lax.optimization_barrier(value)  # XLA would compute what it is made of again for each element
        pieces = self.memory[target.array]
        before = path.before(*self.bounds(target), pieces.starts)
        start, length = path.start - (before or 0), path.length if before is None else path.room
        placed = path.packed(value, before or 0)[:length]
        if target.repeat or not pieces.is_zero(start, start + length):
            if accumulate:
                placed = self.segment(target, start, length) + placed
            elif not path.is_dense:
                placed = jnp.where(path.touched(before or 0)[:length], placed, self.segment(target, start, length))
        self.put(target, start, placed)

    def put(self, target: Access, start: int, vector: Any) -> None:
        """Replace consecutive elements of the array, from `start` on at time 0."""
        pieces = self.memory[target.array]
        if target.repeat:
            place = start + target.repeat * self.time
            pieces.write(0, lax.dynamic_update_slice(pieces.whole(), vector, (place,)))
        else:
            pieces.write(start, vector)


def _contracted(factors: Sequence[Factor], kept: list[int]) -> Any:
    """The product of the factors, summed over all axes but those that are `kept`, in this order."""
    if len(factors) == 1:
        ((value, labels),) = factors
        left = [axis for axis in labels if axis in kept]
        value = jnp.sum(value, axis=tuple(k for k, axis in enumerate(labels) if axis not in kept))
        return jnp.transpose(value, [left.index(axis) for axis in kept])
    arguments = [part for factor in factors for part in factor]
    chosen = jax.config.jax_default_matmul_precision  # by the user; otherwise JAX might round to TF32
    return jnp.einsum(*arguments, kept, precision=None if chosen else lax.Precision.HIGHEST)


def _on_all_axes(value: Any, labels: list[int], loops: Shape) -> Any:
    """A factor with an axis for each loop, of length 1 where it does not vary."""
    value = jnp.transpose(value, [labels.index(d) for d in sorted(labels)])
    return value.reshape([n if d in labels else 1 for d, n in enumerate(loops)])


def _on_axes(path: Path, value: Any) -> Any:
    """An array of a statement's loops with the axes of the path, each in the direction in which it goes."""
    value = jnp.transpose(value, [*path.loops, *(d for d in range(value.ndim) if d not in path.loops)])
    value = value.reshape(path.extents)
    return lax.rev(value, path.reversed_axes) if path.reversed_axes else value


def _merged(factors: list[Factor], summed: Iterable[int]) -> list[Factor]:
    """Fewer factors of the same product: those with the same axes, and those without an axis to sum over, as one.

    The latter are multiplied into the smallest factor that has all their axes. Two factors without other axes than
    those to sum over are a product of vectors, and stay.
    """
    if len(factors) == 2 and all(labels and set(labels) <= set(summed) for _, labels in factors):
        return factors
    found: list[Factor] = []
    for value, labels in sorted(factors, key=lambda factor: -len(factor[1])):
        scales = set(labels).isdisjoint(summed)
        hosts = [k for k, (_, o) in enumerate(found) if set(labels) == set(o) or (scales and set(labels) < set(o))]
        if not hosts:
            found.append((value, labels))
            continue
        k = min(hosts, key=lambda k: found[k][0].size)
        host, others = found[k]
        shared = sorted(labels, key=others.index)
        value = jnp.transpose(value, [labels.index(d) for d in shared])
        value = value.reshape([n if d in shared else 1 for d, n in zip(others, host.shape, strict=True)])
        found[k] = host * value, others
    return found


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
