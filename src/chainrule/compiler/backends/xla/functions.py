"""Programs as pure functions of JAX arrays, for `jax.jit`, `vmap` and the like: what `to_jax` returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from chainrule.compiler.backends.xla.statements import computation
from chainrule.compiler.passes.layout import padded
from chainrule.compiler.passes.program import ArrayProgram
from chainrule.core.structure import ARRAY, NUMBER, Keys, Structure, made


def function(
    program: ArrayProgram, size: int, structure: Structure = (), result: Structure = NUMBER
) -> Callable[..., Any]:
    """A pure function of the parameters, `size` of them, and the inputs, for `jax.jit`, `vmap` and the like.

    `structure` is that of the arguments. It returns the results, arranged as `result` says; with the gradient with
    respect to the parameters if the program has one.
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

    It returns the mean of the results, with its gradient if the program has one. Of the `count` numbers of an example,
    the program takes those that are `used`.
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
