"""Programs compiled by XLA."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import Any

import jax
import numpy as np
from jax import lax

from chainrule.compiler.backends.xla.statements import Memory, computation
from chainrule.compiler.passes.program import Array, ArrayProgram


class Xla:
    """An array program compiled by XLA, an `ArrayBackend`; its memory is NumPy arrays of the leaves and the results."""

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
        """The same code with new memory."""
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
        """As `ArrayBackend` says."""
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


def precision(dtype: np.dtype[Any]) -> AbstractContextManager[Any]:
    """JAX turns doubles into floats unless told otherwise; this tells it, for this thread only."""
    return jax.enable_x64(True) if dtype == np.float64 else nullcontext()
