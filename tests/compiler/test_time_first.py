"""Where times are neighbours in an array, it is transposed, and the program computes the same."""

import pytest
from test_distribute import numbers

from chainrule import ops
from chainrule.compiler.passes import time_first as module
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Number, Repeat, Statement, Term
from chainrule.compiler.passes.time_first import time_first

EXAMPLES, TIMES = 7, 4


@pytest.fixture(autouse=True)
def small_arrays_count(monkeypatch):
    monkeypatch.setattr(module, "APART", 0)


def products(last):
    """`h[5i] = x[i]`, `h[1+r+5i] = h[r+5i]·x[i]`, and the sum of the elements `last` + 5i and the one after."""
    width = TIMES + 1
    x, h = Array("x", EXAMPLES, "input"), Array("h", EXAMPLES * width, "value")
    out = Array("out", 1, "value")
    step = Apply(ops.mul, (Access(h, 0, (width,), repeat=1), Access(x, 0, (1,))))
    body = [Statement(Access(h, 1, (width,), repeat=1), (EXAMPLES,), [Term(step)])]
    steps = [
        Statement(Access(h, 0, (1,)), (h.size,), [Term(Number(0.0))]),
        Statement(Access(h, 0, (width,)), (EXAMPLES,), [Term(Access(x, 0, (1,)))]),
        Repeat(TIMES, body),
        Statement(Access(out, 0, ()), (), [Term(Access(h, last, (width, 1)), (EXAMPLES - 1, 2))]),
    ]
    return ArrayProgram(steps, {"input": x}, out).verify()


def test_a_time_is_a_row():
    program = products(last=TIMES - 1)
    found = time_first(program).verify()
    assert "i<7: h[7+7r+i] = h[7r+i]·x[i]" in str(found)
    assert "i<35: h[i] = 0" in str(found)
    assert numbers(found)[0] == pytest.approx(numbers(program)[0], rel=1e-14)


def test_an_array_that_is_read_across_its_rows_stays_as_it_is():
    program = products(last=TIMES)
    assert str(time_first(program)) == str(program)
