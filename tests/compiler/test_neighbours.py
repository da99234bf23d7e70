"""Neighbours: short sums over elements that lie apart are written out where each term lies at a fixed distance."""

import numpy as np
import pytest

from chainrule import Value, compile, ops
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.passes import neighbours
from chainrule.compiler.passes.neighbours import apart
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Statement, Term

CELLS, AROUND = (4, 5), [1, 15, 7, 9]  # cells of a grid of 6 by 7, and their neighbours from the one above on the left


def program_of(table, loops=(4,), sign=1, join=ops.add):
    """out[i, j] = ± Σk weight[k]·grid[table[i, j, k]] + grid[i, j]"""
    grid, weight, out = Array("grid", 64, "captured"), Array("weight", 4, "captured"), Array("out", 20, "value")
    element = Access(grid, 0, (20, 4, 1), np.array(table).ravel())
    terms = [Term(Apply(ops.mul, (Access(weight, 0, (0, 0, 1)), element)), loops, sign), Term(Access(grid, 8, (7, 1)))]
    statement = Statement(Access(out, 0, (5, 1)), CELLS, terms, join=join)
    return ArrayProgram([statement], {"captured": grid, "weight": weight}, out)


def regular():
    return [[[7 * i + j + distance for distance in AROUND] for j in range(5)] for i in range(4)]


def results(program):
    machine = Interpreted(program, "float64")
    for k, array in enumerate(program.leaves.values()):
        machine.views[array][:] = np.random.default_rng(k).normal(size=array.size)
    machine.run()
    return machine.views[program.output].copy()


@pytest.mark.parametrize("sign", [1, -1])
def test_neighbours_are_terms_of_their_own(sign):
    program = program_of(regular(), sign=sign)
    found = apart(program).verify()
    assert found.statements[0].affine
    assert len(found.statements[0].terms) == 5
    np.testing.assert_allclose(results(found), results(program), rtol=1e-14)


def test_the_largest_neighbour():
    program = program_of(regular(), join=ops.TABLE["larger"])
    found = apart(program).verify()
    assert found.statements[0].affine
    np.testing.assert_array_equal(results(found), results(program))


def test_one_cell_that_looks_elsewhere_keeps_the_table():
    table = regular()
    table[2][3][1] += 1
    program = program_of(table)
    assert str(apart(program)) == str(program)


def test_a_careless_look_at_the_table_is_noticed(monkeypatch):
    table = regular()
    table[2][3][1] += 1
    program = program_of(table)
    monkeypatch.setattr(neighbours.np, "array_equal", lambda a, b: True)
    assert not np.allclose(results(apart(program)), results(program))


def plate(n, steps):
    rate, *numbers = leaves = [Value(0.3 + 0.01 * (k * k % 17)) for k in range(n * n + 1)]
    u = [numbers[n * i : n * i + n] for i in range(n)]
    for _ in range(steps):
        new = [row[:] for row in u]
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                around = u[i - 1][j] + u[i + 1][j] + u[i][j - 1] + u[i][j + 1]
                new[i][j] = u[i][j] + 0.2 * rate * (around - 4.0 * u[i][j])
        u = new
    return sum(x * x for row in u for x in row), leaves


@pytest.mark.parametrize("backend", ["llvm", "interpreter"])
@pytest.mark.parametrize("n", [12, 16])
def test_a_plate_needs_no_tables_in_its_loop(n, backend):
    loss, leaves = plate(n, 20)
    program = compile(loss, wrt=leaves, backend=backend)
    text = str(program.code.whole)
    assert all("table" not in line for line in text.splitlines() if line.startswith("  "))
    value, gradient = program.value_and_grad()
    loss.backward()
    assert value == pytest.approx(loss.data, rel=1e-12)
    assert gradient == pytest.approx([leaf.grad for leaf in leaves], rel=1e-10)
