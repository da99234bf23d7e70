"""The text for LLVM: statements that differ only in where their arrays lie are one function."""

from itertools import pairwise

import numpy as np
import pytest

from chainrule import ops
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.backends.llvm import Native
from chainrule.compiler.backends.llvm.module import PART, Module
from chainrule.compiler.backends.llvm.native import host, optimized
from chainrule.compiler.backends.llvm.text import DOUBLE
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Repeat, Statement, Term

COUNT = 21  # with a rest beside whole vectors
TABLES = [np.random.default_rng(k).permutation(COUNT) for k in range(2)]


def arrays(names="abcd"):
    return [Array(name, 4 * COUNT, "captured") for name in names]


def copy_of(target, expression, accumulate=False, repeat=0):
    return Statement(Access(target, 0, (1,), repeat=repeat), (COUNT,), [Term(expression)], accumulate)


def program_of(*steps, leaves):
    return ArrayProgram(steps, {array.name: array for array in leaves}, leaves[-1])


def count_functions(program):
    return len(Module(program, DOUBLE, host()).functions)


def assert_as_interpreted(program):
    start = np.random.default_rng(0).normal(size=(8, 4 * COUNT))
    machines = Native(program), Interpreted(program)
    for machine in machines:
        for array, numbers in zip(program.arrays(), start, strict=False):
            machine.views[array][:] = numbers
        machine.run()
    for array in program.arrays():
        np.testing.assert_allclose(*[machine.views[array] for machine in machines], rtol=1e-14)


def at(array, base=0, table=None, repeat=0):
    return Access(array, base, (1,), table, repeat)


def elsewhere(a, b, c, d):
    """Other arrays, and other places in them."""
    return copy_of(b, at(a, 3) * at(a, 5)), copy_of(d, at(c, 7) * at(c, 9))


def other_tables(a, b, c, d):
    return copy_of(b, at(a, 0, TABLES[0])), copy_of(d, at(c, 0, TABLES[1]))


def other_distances(a, b, c, d):
    """Two places of one array, at another distance from each other."""
    return copy_of(b, at(a, 3) * at(a, 5)), copy_of(d, at(c, 3) * at(c, 6))


def the_array_itself(a, b, c, d):
    """What is written to is what is read, or another array."""
    return copy_of(b, at(b) * at(a), accumulate=True), copy_of(d, at(c) * at(a), accumulate=True)


def other_ops(a, b, c, d):
    return copy_of(b, ops.sqrt(at(a))), copy_of(d, abs(at(c)))


@pytest.mark.parametrize(
    ("make", "functions"),
    [(elsewhere, 1), (other_tables, 1), (other_distances, 2), (the_array_itself, 2), (other_ops, 2)],
)
def test_functions_of_two_statements(make, functions):
    leaves = arrays()
    first, second = make(*leaves)
    apart = Statement(Access(leaves[0], 4 * COUNT - 1, ()), (), [Term(at(leaves[1]).with_strides(()))])  # not fused
    program = program_of(first, apart, second, leaves=leaves)
    assert count_functions(program) == functions + 1
    assert_as_interpreted(program)


def test_functions_in_a_loop_in_time_know_their_places():
    a, b, c, d = arrays()
    body = [copy_of(b, at(a, COUNT, repeat=1), repeat=COUNT), copy_of(d, at(c, 2, repeat=1), repeat=COUNT)]
    program = program_of(Repeat(3, [body[0], copy_of(c, at(d)), body[1]]), leaves=[a, b, c, d])
    assert count_functions(program) == 3
    assert_as_interpreted(program)


@pytest.mark.parametrize("size", [100, 256, 504, 512, 1024, 1025])
def test_large_arrays_of_one_length_begin_in_different_places_of_the_cache(size):
    """Each an odd number of lines after the last, so that 64 of them begin in 64 of the cache's 64 places."""
    every = [Array(f"a{k}", size, "captured") for k in range(65)]
    steps = [Statement(Access(b, 0, (1,)), (size,), [Term(Access(a, 0, (1,)))]) for a, b in pairwise(every)]
    offsets = Module(program_of(*steps, leaves=every), DOUBLE, host()).offsets
    begins = {offsets[array] * 8 // 64 % 64 for array in every[1:]}
    assert len(begins) == 64


def test_many_calls_are_made_in_parts():
    """LLVM's time for a function is more than linear in its calls."""
    a, b, c, d = arrays()
    steps = [copy_of(a, at(b, 1)) if k % 2 else copy_of(b, at(a, 1)) for k in range(PART)]  # neighbours: none is fused
    program = program_of(*steps, Repeat(3, [copy_of(d, at(c, 2, repeat=1), repeat=COUNT)]), *steps, leaves=[a, b, c, d])
    text = str(Module(program, DOUBLE, host()))
    assert text.count("define internal void @part") == text.count("call void @part") == 3
    assert_as_interpreted(program)


def test_conditions_need_no_numbers():
    """The larger of two, where NaN wins, is chosen by two comparisons; as numbers, these would be added."""
    a, b, c = Array("a", 8, "captured"), Array("b", 8, "captured"), Array("c", 8, "captured")
    larger = Statement(at(c), (8,), [Term(Apply(ops.larger, (at(a), at(b))))])
    both = Statement(at(c), (8,), [Term(Apply(ops.where, (ops.gt(at(a), 0.0) * ops.gt(at(b), 0.0), at(a), at(b))))])
    for statement, numpy in (larger, np.maximum), (both, lambda x, y: np.where((x > 0) & (y > 0), x, y)):
        program = program_of(statement, leaves=[a, b, c])
        text = str(optimized(str(Module(program, DOUBLE, host())), host())[0])
        assert "fmul" not in text
        assert text.count("fadd") == 1  # of `drive`, which adds results up
        native, numbers = Native(program), np.array([-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan, 1.0])
        for first in range(8):
            native.views[a][:], native.views[b][:] = numbers, np.roll(numbers, first)
            native.run()
            np.testing.assert_array_equal(native.views[c], numpy(numbers, np.roll(numbers, first)))
