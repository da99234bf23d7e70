"""The XLA backend: an array program as a function of JAX arrays, for whatever devices JAX knows.

Only this module and `sharding` import jax. Arrays stay flat, as the program has them. An access that goes through an
array along axes is a slice and a reshape, which XLA does without copying where it can; only what is not regular becomes
a gather or a scatter. A sum of products becomes one `dot_general`, and a Repeat a `fori_loop`. The rest is elementwise,
and fuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from chainrule import ops
from chainrule.compiler.passes.differentiate import is_injective
from chainrule.compiler.passes.layout import padded
from chainrule.compiler.passes.powers import power
from chainrule.compiler.passes.program import (
    Access,
    Apply,
    Array,
    ArrayProgram,
    Expression,
    Number,
    Repeat,
    Shape,
    Statement,
    Term,
)
from chainrule.core.structure import ARRAY, NUMBER, Keys, Structure, made

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
SMALL = 2**16  # numbers in a factor of a matrix product
CPU_BATCH, DEVICE_BATCH = 2**22, 2**32  # bytes of a batch's numbers at a time: what a cache holds, what a device does

Memory = dict[Array, Any]


def largest_batch() -> int:
    """How many bytes of a batch's numbers the default device should keep at a time."""
    return CPU_BATCH if jax.default_backend() == "cpu" else DEVICE_BATCH


def computation(program: ArrayProgram) -> Callable[[Memory], Memory]:
    """A pure function from the leaves to all arrays; it computes in the type of the leaves."""

    def run(leaves: Memory) -> Memory:
        dtype = jnp.result_type(*leaves.values(), jnp.float32) if leaves else jnp.result_type(float)
        memory = {array: jnp.asarray(numbers, dtype) for array, numbers in leaves.items()}
        memory |= {a: jnp.asarray(a.numbers, dtype) for a in program.arrays() if a.numbers is not None}
        for array in program.arrays():
            memory.setdefault(array, jnp.zeros(array.size, dtype))
        for step in program.steps:
            _Step(memory, dtype).run(step)
        return memory

    return run


def function(
    program: ArrayProgram, size: int, structure: Structure = (), result: Structure = NUMBER
) -> Callable[..., Any]:
    """A pure function of the parameters, `size` of them, and the inputs, for `jax.jit`, `vmap` and the like.

    `structure` is that of the arguments. It gives the results, arranged as `result` says; with the gradient by the
    parameters if the program has one.
    """
    run = _of_leaves(program, size)
    inputs = program.leaves["input"].size if "input" in program.leaves else 0

    def call(parameters: Any, *arguments: Any) -> Any:
        flat = _joined([jnp.ravel(leaf) for leaf in _leaves(arguments, (tuple, structure))], 0)
        if flat.size != inputs:
            raise ValueError(f"the arguments must have {inputs} numbers in all, got {flat.size}")
        outputs, *gradient = run(parameters, flat)
        arranged, _ = _arranged(result, outputs, 0)
        return (arranged, *gradient) if gradient else arranged

    return call


def batch_function(
    program: ArrayProgram, size: int, structure: Structure, examples: int, used: Any, count: int
) -> Callable[..., Any]:
    """A pure function of the parameters and of arguments with a leading axis of `examples`, for a batched program.

    It gives the mean of the results, with its gradient if the program has one. Of the `count` numbers of an example the
    program takes those that are `used`.
    """
    run = _of_leaves(program, size)
    width = padded(examples)

    def call(parameters: Any, *arguments: Any) -> Any:
        leaves = _leaves(arguments, (tuple, structure))
        if any(leaf.ndim == 0 or len(leaf) != examples for leaf in leaves):
            shapes = ", ".join(str(leaf.shape) for leaf in leaves)
            raise ValueError(f"the arguments must have a leading axis of {examples} examples, got shapes {shapes}")
        matrix = _joined([leaf.reshape(examples, -1) for leaf in leaves], 1)
        if matrix.shape[-1] != count:
            raise ValueError(f"the arguments must have {count} numbers for each example, got {matrix.shape[-1]}")
        columns = matrix.T if len(used) == count else matrix.T[used]
        outputs, *gradient = run(parameters, jnp.ravel(jnp.pad(columns, ((0, 0), (0, width - examples)))))
        mean = outputs[0] / examples
        return (mean, gradient[0] / examples) if gradient else mean

    return call


def _of_leaves(program: ArrayProgram, size: int) -> Callable[[Any, Any], list[Any]]:
    """The output, and the gradient if there is one, from vectors of parameters and inputs."""
    run = computation(program)

    def call(parameters: Any, inputs: Any) -> list[Any]:
        flat = _joined([jnp.ravel(leaf) for leaf in _leaves(parameters)], 0)
        if flat.size != size:
            raise ValueError(f"`parameters` must have {size} numbers in all, got {flat.size}")
        given = {"parameter": flat, "input": inputs}
        memory = run({array: given[kind] for kind, array in program.leaves.items()})
        return [memory[array] for array in (program.output, program.gradient) if array is not None]

    return call


def _leaves(given: Any, structure: Structure = NUMBER) -> list[Any]:
    """The arrays in a nest of lists and dicts, of floating-point numbers all.

    Where it is nested as `structure` is, in the order of that: a dict comes out of `jax.jit` with its keys sorted.
    """
    if structure != NUMBER and isinstance(given, (list, tuple, dict)) and len(given) == len(structure[1]):
        kind, parts = structure
        if isinstance(kind, Keys) and isinstance(given, dict) and given.keys() == set(kind.keys):
            given = [given[key] for key in kind.keys]
        if kind is not ARRAY and not isinstance(given, dict):
            return [leaf for part, inner in zip(given, parts, strict=True) for leaf in _leaves(part, inner)]
    arrays = [jnp.asarray(leaf) for leaf in jax.tree.leaves(given)]
    return [a if jnp.issubdtype(a.dtype, jnp.floating) else a.astype(jnp.result_type(float)) for a in arrays]


def _joined(parts: list[Any], axis: int) -> Any:
    return jnp.concatenate(parts, axis) if parts else jnp.zeros(0)


def _arranged(structure: Structure, flat: Any, start: int) -> tuple[Any, int]:
    """The next numbers as a structure, and where the ones after them begin."""
    if structure == NUMBER:
        return flat[start], start + 1
    kind, parts = structure
    if kind == ARRAY:
        count = int(np.prod(parts))
        return flat[start : start + count].reshape(parts), start + count
    entries = []
    for part in parts:
        entry, start = _arranged(part, flat, start)
        entries.append(entry)
    return made(kind, entries), start


class Xla:
    """An array program compiled by XLA, with NumPy arrays for what goes in and comes out."""

    def __init__(self, program: ArrayProgram, dtype: str = "float64") -> None:
        self.program = program
        self.dtype = np.dtype(dtype)
        self.size = sum(array.size for array in program.arrays())
        compute, changed = computation(program), {s.target.array for s in program.statements}
        leaves = list(program.leaves.values())
        self.kept = [array for array in leaves if array in changed]  # such as parameters that a training step updates
        self.results = [program.output, *([program.gradient] if program.gradient is not None else [])]

        def once(leaves: Memory) -> tuple[list[Any], list[Any]]:
            memory = compute(leaves)
            return [memory[array] for array in self.kept], [memory[array] for array in self.results]

        def many(leaves: Memory, count: int, places: tuple[int, ...], rows: Any) -> tuple[list[Any], list[Any]]:
            def step(state: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
                given = {**leaves, **dict(zip(self.kept, state, strict=True))}
                for place, numbers in zip(places, row, strict=True):
                    array = self.leaves[place]
                    given[array] = lax.dynamic_update_slice(given[array], numbers, (0,))
                return once(given)

            state, results = lax.scan(step, [leaves[array] for array in self.kept], rows, length=count)
            return state, results

        self.leaves = leaves
        self.once = jax.jit(lambda numbers: once(dict(zip(leaves, numbers, strict=True))))
        self.many = jax.jit(
            lambda numbers, *rest: many(dict(zip(leaves, numbers, strict=True)), *rest), static_argnums=(1, 2)
        )
        self._allocate()

    def _allocate(self) -> None:
        self.views = {array: np.zeros(array.size, self.dtype) for array in [*self.leaves, *self.results]}

    def twin(self) -> Xla:
        """The same code with memory of its own."""
        other = copy(self)
        other._allocate()
        return other

    def run(self) -> None:
        """Fill the results from the leaves."""
        with precision(self.dtype):
            kept, results = self.once([self.views[array] for array in self.leaves])
        self._keep(kept)
        for array, result in zip(self.results, results, strict=True):
            self.views[array][:] = result

    def run_many(
        self, count: int, rows: Mapping[Array, np.ndarray], output: Array, summed: Array | None, section: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run so many times, with leaves set to the next of their rows before; a row a run of the output.

        And for each `section` of runs a row of the sums of `summed`, if that is wanted.
        """
        places = tuple([self.leaves.index(leaf) for leaf in rows])
        with precision(self.dtype):
            kept, results = self.many([self.views[a] for a in self.leaves], count, places, list(rows.values()))
        self._keep(kept)
        found = dict(zip(self.results, results, strict=True))
        parts = np.array(found[summed]) if summed else np.zeros((count, 0))
        return np.array(found[output]), np.add.reduceat(parts, range(0, count, section), axis=0, dtype=np.float64)

    def _keep(self, kept: list[Any]) -> None:
        for array, numbers in zip(self.kept, kept, strict=True):
            self.views[array][:] = numbers


def _precision_of_products() -> lax.Precision | None:
    """The one that the user chose by `jax.default_matmul_precision`; else the full one, where JAX may round to TF32."""
    return None if jax.config.jax_default_matmul_precision else lax.Precision.HIGHEST


def precision(dtype: np.dtype[Any]) -> AbstractContextManager[Any]:
    """JAX turns doubles into floats unless told otherwise, here and for this thread only."""
    return jax.enable_x64(True) if dtype == np.float64 else nullcontext()


class _Step:
    """Runs steps on `memory`, which it changes; `time` is that of a Repeat."""

    def __init__(self, memory: Memory, dtype: Any, time: Any = 0) -> None:
        self.memory = memory
        self.dtype = dtype
        self.time = time

    def run(self, step: Statement | Repeat) -> None:
        if isinstance(step, Repeat):
            self.repeat(step)
        else:
            self.statement(step)

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
        total: Any = None
        for term in statement.terms:
            value = self.term(term, statement.loops, statement.join)
            if total is None:
                total = value if term.sign > 0 else -value
            elif statement.join is ops.larger:
                total = jnp.maximum(total, value)
            else:
                total = total + value if term.sign > 0 else total - value
        self.write(statement, jnp.broadcast_to(jnp.asarray(total, self.dtype), statement.loops))

    # Values. An array of a statement's loops has an axis for each of them, of length 1 where it does not vary.

    def term(self, term: Term, outer: Shape, join: ops.Op) -> Any:
        """The value of a term for all turns of the statement's loops."""
        loops = outer + term.loops
        if not term.loops:
            return self.evaluate(term.expression, loops)
        if join is ops.larger:
            value = jnp.asarray(self.evaluate(term.expression, loops), self.dtype)
            value = value.reshape((1,) * (len(loops) - value.ndim) + value.shape)
            return jnp.max(value, axis=tuple(range(len(outer), len(loops))))
        factors = [_apart(*self.labelled(factor, loops)) for factor in _factors(term.expression)]
        axes = {axis for _, labels in factors for axis in labels}
        kept = [axis for axis in range(len(outer)) if axis in axes]
        arguments = [part for factor in factors for part in factor]
        value = jnp.einsum(*arguments, kept, precision=_precision_of_products())
        repeated = np.prod([n for d, n in enumerate(loops) if d >= len(outer) and d not in axes and n > 1])
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
        if isinstance(expression, Number):
            return expression.value
        if isinstance(expression, Access):
            value, labels = self.read(expression, loops)
            value = jnp.transpose(value, [labels.index(d) for d in sorted(labels)])
            return value.reshape([n if d in labels else 1 for d, n in enumerate(loops)])
        assert isinstance(expression, Apply)
        return apply(expression.op, [self.evaluate(operand, loops) for operand in expression.operands])

    # Memory.

    def read(self, access: Access, loops: Shape) -> tuple[Any, list[int]]:
        """The elements that an access goes through, and the loop that each axis belongs to."""
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


class Path:
    """How loops go through a segment of an array: by ever smaller strides, none lapping the one before it."""

    def __init__(self, start: int, axes: Sequence[tuple[int, int, int]], backward: Sequence[int]) -> None:
        self.start = start
        self.strides = [stride for stride, _, _ in axes]
        self.extents = [extent for _, extent, _ in axes]
        self.loops = [loop for _, _, loop in axes]
        self.length = 1 + sum(stride * (extent - 1) for stride, extent, _ in axes)
        self.reversed_axes = [k for k, loop in enumerate(self.loops) if loop in backward]

    @classmethod
    def of(cls, access: Access, loops: Shape) -> Path | None:
        """The path of an access without a table, at time 0; None if loops lap one another."""
        moves = [(stride, n, d) for d, (stride, n) in enumerate(zip(access.strides, loops, strict=True)) if n > 1]
        start = access.base + sum(stride * (n - 1) for stride, n, _ in moves if stride < 0)
        axes = sorted(((abs(stride), n, d) for stride, n, d in moves if stride), reverse=True)
        pairs = pairwise(axes)
        if any(inner * extent > outer for (outer, _, _), (inner, extent, _) in pairs):
            return None
        return cls(start, axes, [d for stride, _, d in moves if stride < 0])

    @property
    def is_dense(self) -> bool:
        """Whether it comes by every element of the segment."""
        return self.length == np.prod(self.extents)

    def spread(self, segment: Any) -> Any:
        """The elements on the path, an axis for each loop."""
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
        """The last axis, which is that of loop k, padded to a stride of the loop around it."""
        length = value.shape[-1] + between * (value.shape[-1] - 1)
        after = self.strides[k - 1] - length if k else 0
        return lax.pad(value, jnp.zeros((), value.dtype), [(0, 0, 0)] * (value.ndim - 1) + [(0, after, between)])

    def touched(self) -> np.ndarray:
        """Which elements of the segment are on the path."""
        places = np.zeros(self.extents, dtype=np.int64)
        for k, (stride, extent) in enumerate(zip(self.strides, self.extents, strict=True)):
            places += stride * np.arange(extent).reshape([-1 if j == k else 1 for j in range(len(self.extents))])
        mask = np.zeros(self.length, dtype=bool)
        mask[places] = True
        return mask


def _apart(value: Any, labels: list[int]) -> tuple[Any, list[int]]:
    """A factor of a product, which is not to be computed inside of it if it is small and on a GPU.

    There XLA's compiler aborts the process over some small products that it makes one with their factors (a failed
    check in its propagation of Triton's tiles). Large ones are better off in one, and were never seen to fail.
    """
    if value.size <= SMALL and jax.default_backend() != "cpu":
        value = lax.optimization_barrier(value)
    return value, labels


def _factors(expression: Expression) -> list[Expression]:
    """The factors of a product, or the expression alone."""
    if isinstance(expression, Apply) and expression.op is ops.mul:
        return [factor for operand in expression.operands for factor in _factors(operand)]
    return [expression]


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
