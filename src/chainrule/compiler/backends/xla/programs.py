"""Programs compiled by XLA, and programs as pure functions of JAX arrays: what `to_jax` returns."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from chainrule.compiler.backends.protocol import Results, Rows
from chainrule.compiler.backends.xla.loops import computation
from chainrule.compiler.backends.xla.precision import precision
from chainrule.compiler.backends.xla.primitive import Computation
from chainrule.compiler.backends.xla.runs import runs, with_room
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.few_tables import with_few_tables
from chainrule.compiler.passes.layout import padded
from chainrule.compiler.passes.program import Array, ArrayProgram
from chainrule.core.structure import ARRAY, NUMBER, Keys, Structure, made

JOINED = 2**10  # numbers: so few are returned as one array, because each array costs as much as some thousand numbers


class Xla:
    """An array program compiled by XLA, an `ArrayBackend`; its memory is NumPy arrays of the leaves and the results."""

    reads_columns = False

    def __init__(self, program: ArrayProgram, dtype: str = "float64") -> None:
        self.program = program
        self.dtype = np.dtype(dtype)
        self.size = sum(array.size for array in program.arrays())
        self.leaves = list(program.leaves.values())
        changed = {statement.target.array for statement in program.statements}
        self.kept = [leaf for leaf in self.leaves if leaf in changed]  # such as parameters that a training step updates
        self.results = program.results
        self.returned = list(dict.fromkeys(self.kept + self.results))
        self.is_joined = sum(array.size for array in self.returned) <= JOINED
        compute = computation(program, self.returned)

        def once(numbers: list[Any]) -> Any:
            found = compute(dict(zip(self.leaves, numbers, strict=True)))
            return jnp.concatenate(found) if self.is_joined else found

        def many(
            numbers: list[Any], room: int, places: tuple[int, ...], wanted: tuple[Array, ...], count: Any, rows: Any
        ) -> tuple[list[Any], list[Any]]:
            leaves = dict(zip(self.leaves, numbers, strict=True))
            given = {self.leaves[place]: matrix for place, matrix in zip(places, rows, strict=True)}
            return runs(program, leaves, self.kept, given, wanted, count, room, self.dtype)

        self.once = jax.jit(once)
        self.many = jax.jit(many, static_argnums=(1, 2, 3))
        self._allocate()

    def _allocate(self) -> None:
        """Memory for the leaves and the results; what a run returns lies in one array."""
        ends = np.cumsum([array.size for array in self.returned])
        self.memory = np.zeros(ends[-1], self.dtype)
        self.views = {array: np.zeros(array.size, self.dtype) for array in self.leaves}
        self.views |= dict(zip(self.returned, np.split(self.memory, ends[:-1]), strict=True))

    def twin(self) -> Xla:
        other = copy(self)
        other._allocate()
        return other

    def run(self) -> None:
        with precision(self.dtype):
            found = self.once([self.views[array] for array in self.leaves])
        if self.is_joined:
            self.memory[:] = found
        else:
            for array, numbers in zip(self.returned, found, strict=True):
                self.views[array][:] = numbers

    def run_many(self, count: int, rows: Rows, output: Array, summed: Array | None, section: int) -> Results:
        places = tuple([self.leaves.index(leaf) for leaf in rows])
        wanted = (output, summed) if summed else (output,)
        room, given = with_room(count, [*rows.values()], sum(array.size for array in wanted))
        with precision(self.dtype):
            kept, results = self.many([self.views[a] for a in self.leaves], room, places, wanted, count, given)
        for array, numbers in zip(self.kept, kept, strict=True):
            self.views[array][:] = numbers
        first, *others = [np.array(matrix)[:count] for matrix in results]
        parts = others[0] if others else np.zeros((count, 0))
        return first, np.add.reduceat(parts, range(0, count, section), axis=0, dtype=np.float64)


def function(
    program: ArrayProgram,
    size: int,
    structure: Structure = (),
    result: Structure = NUMBER,
    *,
    gradient: bool = False,
    native: bool = True,
) -> Callable[..., Any]:
    """A pure function of the parameters, `size` of them, and the inputs, for `jax.jit`, `vmap` and the like.

    `structure` is that of the arguments. It returns the results, arranged as `result` says; with the `gradient` with
    respect to the parameters if that is wanted. On a CPU XLA calls `native` code of ours, or compiles its own.
    """
    run = _of_leaves(program, size, gradient, native)
    inputs = program.leaves["input"].size if "input" in program.leaves else 0

    def call(parameters: Any, *arguments: Any) -> Any:
        flat = _joined([jnp.ravel(leaf) for leaf in _leaves(arguments, (tuple, structure))], 0)
        if flat.size != inputs:
            raise ValueError(f"the arguments must have {inputs} numbers in all, got {flat.size}")
        outputs, *slopes = run(parameters, flat)
        arranged, _ = _arranged(result, outputs, 0)
        return (arranged, *slopes) if slopes else arranged

    return call


def batch_function(
    program: ArrayProgram,
    size: int,
    structure: Structure,
    examples: int,
    used: Any,
    count: int,
    *,
    gradient: bool = False,
    native: bool = True,
) -> Callable[..., Any]:
    """A pure function of the parameters and of arguments with a leading axis of `examples`, for a batched program.

    It returns the mean of the results, with its `gradient` if that is wanted. Of the `count` numbers of an example, the
    program takes those that are `used`.
    """
    run = _of_leaves(program, size, gradient, native)
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
        outputs, *slopes = run(parameters, jnp.ravel(jnp.pad(columns, ((0, 0), (0, width - examples)))))
        mean = outputs[0] / examples
        return (mean, slopes[0] / examples) if slopes else mean

    return call


def _of_leaves(program: ArrayProgram, size: int, gradient: bool, native: bool) -> Callable[[Any, Any], list[Any]]:
    """The output, and the gradient if it is wanted, from vectors of parameters and inputs."""
    whole = differentiate(program) if gradient else program
    run = Computation(whole, lambda: _for_llvm(program, gradient)) if native else computation(whole, whole.results)

    def call(parameters: Any, inputs: Any) -> list[Any]:
        flat = _joined([jnp.ravel(leaf) for leaf in _leaves(parameters)], 0)
        if flat.size != size:
            raise ValueError(f"`parameters` must have {size} numbers in all, got {flat.size}")
        given = {"parameter": flat, "input": inputs}
        return run({array: given[kind] for kind, array in whole.leaves.items()})

    return call


def _for_llvm(program: ArrayProgram, gradient: bool) -> ArrayProgram:
    program = with_few_tables(program)
    return differentiate(program) if gradient else program


def _leaves(given: Any, structure: Structure = NUMBER) -> list[Any]:
    """The arrays in nested lists and dicts, as floating-point numbers.

    Where the nesting is that of `structure`, they are in its order: `jax.jit` sorts the keys of a dict.
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
    """The next numbers as a structure, and where the following ones begin."""
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
