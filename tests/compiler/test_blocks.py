"""Blocks: statements on few numbers, anywhere in a program, are written out in registers."""

import numpy as np
import pytest

from chainrule import ops
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.backends.llvm import Native
from chainrule.compiler.backends.llvm.blocks import LONGEST, in_blocks, operations, primitives
from chainrule.compiler.backends.llvm.carried import Small
from chainrule.compiler.backends.llvm.module import Module
from chainrule.compiler.backends.llvm.native import host
from chainrule.compiler.backends.llvm.text import DOUBLE
from chainrule.compiler.passes.differentiate import zero
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Number, Repeat, Statement, Term


def doubled(target, source, loops=(), op=None):
    """`target[i] = 2·source[i]`, or another op of it."""
    strides = (1,) * len(loops)
    value = Access(source, 0, strides)
    expression = Apply(ops.TABLE[op], (value,)) if op else Apply(ops.mul, (value, Number(2.0)))
    return Statement(Access(target, 0, strides), loops, [Term(expression)])


def arrays(count, size=64):
    return [Array(f"a{k}", size, "captured" if k == 0 else "value") for k in range(count)]


def shape(steps):
    """How many statements each block has; 0 for a statement that is in none."""
    return [len(step.body) if isinstance(step, Repeat) else 0 for step in steps]


def test_neighbours_on_few_elements_are_a_block():
    a, b, c, d, e = arrays(5)
    few, more = [doubled(b, a), doubled(c, b, (2,))], [doubled(d, c), doubled(e, d, (3,)), doubled(a, e)]
    assert shape(in_blocks([*few, doubled(e, a, (40,)), *more])) == [2, 0, 3]
    assert shape(in_blocks([doubled(b, a)])) == [0]  # alone, it is as good as it is
    assert shape(in_blocks([doubled(b, a, (16,)), doubled(c, b, (16,))])) == [0, 0]  # work for vectors


def test_zeros_between_them_come_first():
    a, b, c, d = arrays(4)
    assert shape(in_blocks([doubled(b, a), zero(c), doubled(d, b)])) == [0, 2]
    assert shape(in_blocks([doubled(c, a), zero(c), doubled(d, c)])) == [0, 0, 0]  # not before what they replace


@pytest.mark.parametrize("op", ["sqrt", "exp", "sigmoid"])
def test_slow_functions_of_several_elements_are_work_for_vectors(op):
    a, b, c = arrays(3)
    assert shape(in_blocks([doubled(b, a, (4,), op), doubled(c, b)])) == [2]
    assert shape(in_blocks([doubled(b, a, (8,), op), doubled(c, b)])) == [0, 0]
    assert {"sqrt": "sqrt", "exp": "exp", "sigmoid": "div"}[op] in primitives(doubled(b, a, (), op))


def test_many_operations_on_several_elements_are_work_for_vectors():
    a, b, c = arrays(3)
    assert operations(doubled(b, a, (8,))) == 16  # a product and a term of each
    assert shape(in_blocks([doubled(b, a, (8,)), doubled(c, b)])) == [2]
    value = Access(a, 0, (1,))
    many = Statement(Access(b, 0, (1,)), (8,), [Term(value * value * value * value * value * value)])
    assert operations(many) == 48
    assert shape(in_blocks([many, doubled(c, b)])) == [0, 0]


def test_blocks_are_as_long_as_llvm_is_quick():
    a, b = arrays(2)
    value = Access(a, 0, ())
    each = Statement(Access(b, 0, ()), (), [Term(value * value * value * value * value * value)])
    found = in_blocks([each] * 500)
    assert sum(shape(found)) == 500
    assert all(sum(map(operations, step.body)) <= LONGEST for step in found)


def test_an_array_moved_by_two_distances_is_in_no_block():
    a, b, c = arrays(3)
    moved = Statement(Access(b, 0, (), None, 2), (), [Term(Access(a, 0, ()))])
    assert shape(in_blocks([moved, doubled(c, b)])) == [0, 0]


@pytest.mark.parametrize("join", [ops.add, ops.larger])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("loops", [(), (2,)])
def test_what_a_sum_starts_with(loops, sign, join):
    """Numbers before a sum, or sums of numbers; and what is in the target already."""
    (a,), (_, b, c) = arrays(1), arrays(3, 1)
    terms = [Term(Number(5.5), loops, sign if join is ops.add else 1), Term(Access(a, 2, (3,)), (4,))]
    first = Statement(Access(b, 0, ()), (), terms, join=join)
    more = Statement(Access(b, 0, ()), (), [Term(Access(a, 1, (2,)), (3,), sign), *terms[:1]], accumulate=True)
    steps = [first, doubled(c, b), more] if join is ops.add else [first, doubled(c, b)]
    program = ArrayProgram(steps, {"captured": a, "b": b}, c)
    assert shape(in_blocks(steps)) == [len(steps)]
    assert_as_interpreted(program, a, [b])


def assert_as_interpreted(program, given, results):
    machines = Native(program), Interpreted(program)
    for machine in machines:
        machine.views[given][:] = np.linspace(0.5, 1.5, given.size)
        machine.run()
    for array in (program.output, *results):
        found, expected = (machine.views[array] for machine in machines)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def scattering(count):
    """Additions of `count` numbers to three elements, by a table."""
    given, sums = Array("given", 256, "captured"), Array("sums", 3, "value")
    table = np.random.default_rng(0).integers(0, 3, count)
    added = Statement(Access(sums, 0, (1,), table), (count,), [Term(Access(given, 0, (1,)))], accumulate=True)
    first = Statement(Access(sums, 0, (1,)), (3,), [Term(Access(given, 0, (1,)))])
    return ArrayProgram([first, added], {"captured": given}, sums), table


@pytest.mark.parametrize("count", [20, 200, 256])
def test_a_scatter_adds_in_registers(count):
    program, table = scattering(count)
    assert shape(in_blocks(program.steps)) == [2]
    text = str(Module(program, DOUBLE, host()))
    assert text.count("store double") == 3
    native, numbers = Native(program), np.random.default_rng(1).normal(size=256)
    native.views[program.leaves["captured"]][:] = numbers
    native.run()
    expected = numbers[:3].copy()
    np.add.at(expected, table, numbers[:count])
    np.testing.assert_allclose(native.views[program.output], expected, rtol=1e-12)


def test_a_large_loop_has_blocks_inside():
    """Of a loop over vectors, what is on few numbers stays in registers, and only what others read is stored."""
    x, s, t, u = Array("x", 40 * 11, "value"), Array("s", 1, "value"), Array("t", 1, "value"), Array("u", 10, "value")
    given = Array("given", 40, "captured")
    start = Statement(Access(x, 0, (1,)), (40,), [Term(Access(given, 0, (1,)))])
    body = [
        Statement(Access(s, 0, ()), (), [Term(Access(x, 0, (), None, 40) + Access(x, 7, (), None, 40))]),
        Statement(Access(t, 0, ()), (), [Term(Access(s, 0, ()) * Access(s, 0, ()))]),
        Statement(Access(u, 0, (), None, 1), (), [Term(Access(t, 0, ()) * Number(0.1))]),
        Statement(
            Access(x, 40, (1,), None, 40), (40,), [Term(Access(x, 0, (1,), None, 40) * Access(u, 0, (0,), None, 1))]
        ),
    ]
    program = ArrayProgram([start, Repeat(10, body)], {"captured": given}, x)
    small = Small(program)
    assert [shape(parts) for parts in small.parts.values()] == [[3, 0]]
    assert small.alone == {s, t}
    assert_as_interpreted(program, given, [u])
