"""The reference interpreter: runs an array program statement by statement with NumPy. The oracle for every backend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.backends.array_ops import Numbers, bare, functions
from chainrule.compiler.backends.protocol import Results, Rows
from chainrule.compiler.passes.program import NOTHING, Access, Array, ArrayProgram, Shape, Statement, is_injective


def _power(base: Any, exponent: Any) -> Any:
    """NumPy may take a root where the exponent is ½, and roots of -0.0 and -inf are not their powers."""
    as_root = (exponent == 0.5) & ((base == 0.0) | (base == -math.inf))
    return np.power(np.where(as_root, np.absolute(base), base), exponent)


NUMPY = functions(
    np,
    pow=_power,
    where=lambda condition, a, b: np.where(condition != 0.0, a, b),
    erf=np.vectorize(math.erf, otypes=[float]),
    erfc=np.vectorize(math.erfc, otypes=[float]),
)

Memory = dict[Array, np.ndarray]


class Interpreted:
    """An array program with memory to run in: an `ArrayBackend`."""

    reads_columns = False

    def __init__(self, program: ArrayProgram, dtype: str = "float64") -> None:
        self.program = program
        self.dtype = dtype
        self.views: Memory = {array: np.full(array.size, np.nan, dtype) for array in program.arrays()}
        self.size = sum(array.size for array in self.views)

    def twin(self) -> Interpreted:
        return Interpreted(self.program, self.dtype)

    def run_many(self, count: int, rows: Rows, output: Array, summed: Array | None, section: int) -> Results:
        results = np.empty((count, output.size), self.dtype)
        sums = np.zeros((-(-count // section), summed.size if summed else 0))
        for time in range(count):
            for leaf, matrix in rows.items():
                self.views[leaf][: matrix.shape[1]] = matrix[time]
            self.run()
            results[time] = self.views[output]
            if summed:
                sums[time // section] += self.views[summed]
        return results, sums

    def run(self) -> None:
        with np.errstate(all="ignore"):
            for step in self.program.steps:
                for time in step.times:
                    for statement in step.body:
                        _execute(statement, self.views, time)


def _execute(statement: Statement, memory: Memory, time: int) -> None:
    target = memory[statement.target.array]
    values = []
    for term in statement.terms:
        loops = statement.loops + term.loops

        def read(access: Access, loops: Shape = loops) -> Any:
            return memory[access.array][access.positions(loops, time)]

        value = np.broadcast_to(term.expression.evaluate(read, apply, target.dtype.type), loops)
        values.append(_reduced(value, len(statement.loops), statement.join) if term.loops else value)
    total = statement.joined(iter(values), apply)
    where = statement.target.positions(statement.loops, time)
    if not statement.accumulate:
        target[where] = total
    elif is_injective(statement):
        target[where] += total
    else:
        np.add.at(target, where, total)


def _reduced(value: np.ndarray, outer: int, join: ops.Op) -> Any:
    """The sum over all loops but the `outer` ones, or the largest number in them: of equal ones, the first."""
    if join is ops.add:
        return value.sum(axis=tuple(range(outer, value.ndim)), initial=NOTHING)
    rows = value.reshape(*value.shape[:outer], -1)
    return reduce(lambda a, b: apply(join, (a, b)), [rows[..., k] for k in range(rows.shape[-1])])


def apply(op: ops.Op, operands: Sequence[Any]) -> Any:
    """An op on NumPy arrays: a primitive by NumPy's function, any other by its rule. The type is the operands'."""
    if op.c:
        return np.asarray(NUMPY[op.name](*operands), dtype=np.result_type(*operands))
    return bare(op.forward(*[Numbers(operand, apply) for operand in operands]))
