"""Statements leave a Repeat where no time needs them of another, and the program computes the same."""

import numpy as np
import pytest
from test_c_header import PROGRAMS

from chainrule import ops
from chainrule.compiler import compile
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.passes import distribute as module
from chainrule.compiler.passes.distribute import distribute
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Number, Repeat, Statement, Term
from chainrule.compiler.passes.rematerialize import is_long

TIMES = 5


def numbers(program):
    runner = Interpreted(program, "float64")
    for array in program.arrays():
        known = array.numbers is not None
        runner.views[array][:] = array.numbers if known else np.linspace(0.1, 0.9, array.size)
    runner.run()
    return [np.array(runner.views[array]) for array in program.results]


def moving(array, base=0):
    return Access(array, base, (), repeat=1)


def recurrence(after):
    """`a[r] = x[r] + x[r]`, `h[1+r] = tanh(h[r] + a[r])`, and what `after` makes of h and s."""
    x, a = Array("x", TIMES, "input"), Array("a", TIMES, "value")
    h, s = Array("h", TIMES + 1, "value"), Array("s", 1, "value")
    state = Apply(ops.tanh, (Apply(ops.add, (moving(h), moving(a))),))
    body = [
        Statement(moving(a), (), [Term(Apply(ops.add, (moving(x), moving(x))))]),
        Statement(moving(h, 1), (), [Term(state)]),
        after(h, s),
    ]
    start = [Statement(Access(array, 0, ()), (), [Term(Access(x, 0, ()))]) for array in (h, s)]
    return ArrayProgram([*start, Repeat(TIMES, body)], {"input": x}, s).verify()


def total(of):
    """`s[0] += h[of + r]`."""
    return lambda h, s: Statement(Access(s, 0, ()), (), [Term(Access(h, of, (), repeat=1))], accumulate=True)


@pytest.mark.parametrize("of", [0, 1])
def test_what_only_reads_the_state_goes_after_the_loop_and_what_only_feeds_it_before(of, monkeypatch):
    monkeypatch.setattr(module, "STORE", 0)
    program = recurrence(total(of))
    found = distribute(program).verify()
    kinds = [type(step).__name__ for step in found.steps]
    assert kinds == ["Statement", "Statement", "Statement", "Repeat", "Statement"]
    assert [len(step.body) for step in found.steps if isinstance(step, Repeat)] == [1]
    assert numbers(found)[0] == pytest.approx(numbers(program)[0], rel=1e-14)


def test_what_reads_a_number_that_changes_later_stays(monkeypatch):
    """`b[0] += x[r]`, and `s[0] += b[0]`: after the Repeat b is the sum of all, and not of those so far."""
    monkeypatch.setattr(module, "STORE", 0)
    x, b, s = Array("x", TIMES, "input"), Array("b", 1, "value"), Array("s", 1, "value")
    still = {array: Access(array, 0, ()) for array in (b, s)}
    body = [
        Statement(still[b], (), [Term(moving(x))], accumulate=True),
        Statement(still[s], (), [Term(still[b])], accumulate=True),
    ]
    program = ArrayProgram([Repeat(TIMES, body)], {"input": x}, s)
    found = distribute(program)
    assert [len(step.body) for step in found.steps] == [2]
    assert numbers(found)[0] == numbers(program)[0]


def test_what_reads_an_element_before_it_is_written_stays(monkeypatch):
    """`s[0] += h[1+r]` comes before `h[1+r]` is computed; and each time has the row that the one before it made."""
    monkeypatch.setattr(module, "STORE", 0)
    program = recurrence(total(1))
    loop = next(step for step in program.steps if isinstance(step, Repeat))
    early = loop.with_body([loop.body[0], loop.body[2], loop.body[1]])
    found = distribute(ArrayProgram([*program.steps[:-1], early], program.leaves, program.output))
    (left,) = [step for step in found.steps if isinstance(step, Repeat)]
    assert len(left.body) == 2


def test_a_number_that_would_have_to_be_stored_for_one_sum_is_added_in_the_loop():
    found = distribute(recurrence(total(1)))
    (loop,) = [step for step in found.steps if isinstance(step, Repeat)]
    assert len(loop.body) == 2


def test_the_gradient_of_a_recurrent_layer_is_one_product_for_all_times():
    whole = compile(*PROGRAMS["hidden units"](), backend="interpreter").code.whole
    found = distribute(whole).verify()
    inside = [sum(len(step.body) for step in p.steps if isinstance(step, Repeat)) for p in (found, whole)]
    assert inside == [4, 7]  # the layer and its tanh, and their derivatives
    assert "i<4,j<4: dparameter[4i+j] += Σk<19 dv3[i+4k]·v2[j+4k]" in str(found)
    for ours, theirs in zip(numbers(found), numbers(whole), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-10, abs=1e-12)


def test_a_chain_leaves_as_a_whole_if_storing_what_starts_it_is_cheaper_than_its_work(monkeypatch):
    """Each of its statements by itself does less than it costs to store what that one reads."""
    monkeypatch.setattr(module, "STORE", 2)
    x, h = Array("x", TIMES, "input"), Array("h", TIMES + 1, "value")
    chain, out = [Array(f"c{k}", TIMES, "value") for k in range(3)], Array("out", 1, "value")
    state = Apply(ops.tanh, (Apply(ops.add, (moving(h), moving(x))),))
    body = [Statement(moving(h, 1), (), [Term(state)])]
    for source, target in zip([h, *chain], chain, strict=False):
        body.append(Statement(moving(target), (), [Term(Apply(ops.exp, (moving(source),)))]))
    steps = [
        Statement(Access(h, 0, ()), (), [Term(Access(x, 0, ()))]),
        Repeat(TIMES, body),
        Statement(Access(out, 0, ()), (), [Term(Access(chain[-1], 0, (1,)), (TIMES,))]),
    ]
    program = ArrayProgram(steps, {"input": x}, out).verify()
    found = distribute(program).verify()
    assert [len(step.body) for step in found.steps if isinstance(step, Repeat)] == [1]
    assert numbers(found)[0] == pytest.approx(numbers(program)[0], rel=1e-14)
    monkeypatch.setattr(module, "STORE", 4)  # more than the three of them do
    assert [len(step.body) for step in distribute(program).steps if isinstance(step, Repeat)] == [4]


def test_only_what_is_wanted_outside_leaves():
    states, squares, logarithms = Array("x", 10, "value"), Array("s", 9, "value"), Array("l", 9, "value")
    now = Access(states, 0, (), None, 1)
    body = [
        Statement(Access(states, 1, (), None, 1), (), [Term(Apply(ops.mul, (now, Number(0.5))))]),
        Statement(Access(squares, 0, (), None, 1), (), [Term(Apply(ops.mul, (now, now)))]),
        Statement(Access(logarithms, 0, (), None, 1), (), [Term(Apply(ops.TABLE["log"], (now,)))]),
    ]
    read = [
        Statement(Access(total, 0, ()), (), [Term(Access(array, 0, (1,)), (9,))])
        for array, total in ((array, Array(f"t{array.name}", 1, "value")) for array in (states, squares, logarithms))
    ]
    program = ArrayProgram([Repeat(9, body), *read], {}, read[-1].target.array)
    found = distribute(program, is_long)
    (loop,) = [step for step in found.steps if isinstance(step, Repeat)]
    assert [statement.target.array for statement in loop.body] == [states, squares]
    (loop,) = [step for step in distribute(program).steps if isinstance(step, Repeat)]
    assert [statement.target.array for statement in loop.body] == [states]
