"""Equal elements: what is computed from the same numbers everywhere is computed once."""

import numpy as np
import pytest

from chainrule import Value, compile
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.passes.equal_elements import with_equal_elements_once
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Number, Repeat, Statement, Term


def rod(written=False, moving=False):
    """Steps of a rod of eight cells, whose rate is computed for each cell at each step; perhaps from what changes."""
    rate, x, u = Array("rate", 12, "captured"), Array("x", 88, "value"), Array("u", 80, "value")
    source = Access(rate, 0, (0,), None, int(moving))
    body = [
        Statement(Access(u, 0, (1,), None, 8), (8,), [Term(source * Number(0.2))]),
        Statement(Access(x, 8, (1,), None, 8), (8,), [Term(Access(x, 0, (1,), None, 8) * Access(u, 0, (1,), None, 8))]),
    ]
    if written:
        body.append(Statement(Access(rate, 0, ()), (), [Term(Access(rate, 0, ()) * Number(1.1))]))
    start = Statement(Access(x, 0, (1,)), (8,), [Term(Number(1.0))])
    return ArrayProgram([start, Repeat(10, body)], {"captured": rate}, x).verify()


def test_one_element_before_the_loop():
    assert str(with_equal_elements_once(rod()).verify()).splitlines() == [
        "i<8: x[i] = 1",
        "u[0] = rate[0]·0.2",
        "repeat r<10:",
        "  i<8: x[8+8r+i] = x[8r+i]·u[0]",
    ]


@pytest.mark.parametrize("change", ["written", "moving"])
def test_not_what_changes_from_turn_to_turn(change):
    program = rod(**{change: True})
    assert str(with_equal_elements_once(program)) == str(program)


@pytest.mark.parametrize("given", [{}, {"written": True}, {"moving": True}])
def test_the_same_numbers(given):
    programs = rod(**given), with_equal_elements_once(rod(**given))
    found = []
    for program in programs:
        machine = Interpreted(program)
        machine.views[program.leaves["captured"]][:] = np.linspace(0.5, 2.0, 12)
        machine.run()
        found.append(machine.views[program.output])
    np.testing.assert_array_equal(*found)


def test_sums_and_what_follows_are_computed_once():
    """The total of all weights, which every element is divided by."""
    w = [Value(0.1 * k + 0.3) for k in range(20)]
    total = sum(x * x for x in [each / sum(w) for each in w])
    program = compile(total, wrt=w)
    total.backward()
    np.testing.assert_allclose(program.value_and_grad()[1], [each.grad for each in w], rtol=1e-12)
    whole = with_equal_elements_once(program.code.laid_out)
    assert "i<20: v0[" not in str(whole)
    assert any(str(step).startswith("v0[0] = 0 + Σi<20 parameter[i]") for step in whole.steps)
