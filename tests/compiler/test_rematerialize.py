"""Loops in time that keep little: what the way back computes again, arrays of one time, and loops written out."""

import numpy as np
import pytest
from programs import PROGRAMS

import chainrule
from chainrule import Value, ops
from chainrule.compiler import compile
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.passes import rematerialize as module
from chainrule.compiler.passes.batch import batched
from chainrule.compiler.passes.contract import contracted
from chainrule.compiler.passes.differentiate import differentiate
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Number, Repeat, Statement, Term
from chainrule.compiler.passes.rematerialize import rematerialized
from chainrule.compiler.passes.unroll import unrolled

TIMES = 6


def numbers(program, parameters=()):
    runner = Interpreted(program, "float64")
    for array in program.arrays():
        known = array.numbers is not None
        runner.views[array][:] = array.numbers if known else np.linspace(0.1, 0.9, array.size)
        if array.kind == "parameter" and parameters:
            runner.views[array][:] = parameters[: array.size]
    runner.run()
    return [np.array(runner.views[array]) for array in program.results]


def assert_same(found, program, parameters=()):
    for one, other in zip(numbers(found.verify(), parameters), numbers(program, parameters), strict=True):
        assert np.isfinite(other).all()
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * np.abs(other).max())


def orbit(rates, steps):
    """Predators and prey, by Euler's method: a step's products follow from the two numbers of its state."""
    x, y = 1.0, 0.5
    for _ in range(steps):
        x, y = x + 0.1 * (rates[0] * x - rates[1] * x * y), y + 0.1 * (rates[2] * x * y - rates[3] * y)
    return x * y


def whole(loss, wrt):
    return compile(loss, wrt=wrt, backend="interpreter").code.whole


@pytest.fixture(scope="module")
def of_an_orbit():
    rates = [Value(rate) for rate in (1.1, 0.4, 0.1, 0.4)]
    return whole(orbit(rates, 40), rates)


def written_in_time(program):
    """How many numbers the arrays have that are filled in loops in time."""
    inside = {s.target.array for step in program.steps if isinstance(step, Repeat) for s in step.body}
    return sum(array.size for array in inside)


def test_the_state_alone_is_kept(of_an_orbit):
    found = contracted(rematerialized(of_an_orbit))
    assert_same(found, of_an_orbit)
    assert written_in_time(found) < written_in_time(of_an_orbit) / 2
    kept = [array.name for array in found.arrays() if array.kind == "value" and array.size > 4]
    assert kept == ["x1"]


def test_a_program_is_searched_for_names_only_where_a_loop_computes_something_again(monkeypatch):
    """Where there are hundreds of loops, each pair of them would go through all statements."""
    original, searched = module.counterparts, []
    monkeypatch.setattr(module, "counterparts", lambda *given: searched.append(1) or original(*given))
    state = Array("state", 21, "value")
    loops = []
    for _ in range(20):
        term = Term(Apply(ops.tanh, [Access(state, 0, (), repeat=1)]))
        loops.append(Repeat(TIMES, [Statement(Access(state, 1, (), repeat=1), (), [term])]))
    program = ArrayProgram(loops, {}, state)
    assert rematerialized(program).steps == program.steps
    assert not searched


@pytest.mark.parametrize("found", PROGRAMS.values(), ids=lambda found: found.name)
def test_programs_from_many_fields_compute_the_same(found):
    given = found.numbers(found.small)
    leaves = [Value(x) for x in given]
    loss = found.loss(chainrule, leaves, found.small)
    program = compile(loss, wrt=leaves, allow_frozen_branches=True, backend="interpreter")
    if "node by node" in program.stats:
        return
    before = program.code.whole
    again = rematerialized(before)
    for after in (again, contracted(again), unrolled(contracted(again))):
        assert_same(after, before, given)


@pytest.mark.parametrize("in_blocks", [False, True])
def test_so_do_programs_of_many_examples(in_blocks):
    rates = [Value(rate) for rate in (1.1, 0.4, 0.1, 0.4)]

    @compile(wrt=rates, backend="interpreter")
    def loss(start, seen):
        x, y, error = *start, 0.0
        for number in seen:
            x, y = x + 0.1 * (rates[0] * x - rates[1] * x * y), y + 0.1 * (rates[2] * x * y - rates[3] * y)
            error = error + (x - number) ** 2
        return error

    loss.value_and_grad([1.0, 0.5], [1.0] * 20)
    lifted = loss._last_run[0].lifted
    program = differentiate(batched(lifted, 5, total=True, side_by_side=True, in_blocks=in_blocks))
    assert_same(contracted(rematerialized(program)), program)
    assert written_in_time(contracted(rematerialized(program))) < written_in_time(program) / 2


def loop(square, read, count=TIMES):
    """`u[r] = square(h[r])`, `h[1+r] = h[r] + u[r]`, and later, backward in time, `s[0] += ` what is `read`."""
    x, u = Array("x", 1, "input"), Array("u", TIMES, "value")
    h, s = Array("h", TIMES + 1, "value"), Array("s", 1, "value")
    body = [
        Statement(Access(u, 0, (), repeat=1), (), [Term(square(Access(h, 0, (), repeat=1)))]),
        Statement(Access(h, 1, (), repeat=1), (), [Term(Access(h, 0, (), repeat=1)), Term(Access(u, 0, (), repeat=1))]),
    ]
    later = [Statement(Access(s, 0, ()), (), [Term(read(u, h))], accumulate=True)]
    start = [Statement(Access(array, 0, ()), (), [Term(Access(x, 0, ()))]) for array in (h, s)]
    steps = [*start, Repeat(TIMES, body), Repeat(count, later, backward=True)]
    return ArrayProgram(steps, {"input": x}, s).verify()


def squared(x):
    return Apply(ops.mul, (x, x))


def at_this_time(u, h):
    return Access(u, 0, (), repeat=1)


def changes(program):
    return str(rematerialized(program)) != str(program)


def test_what_is_cheap_is_computed_again():
    program = loop(squared, at_this_time)
    assert_same(rematerialized(program), program)
    assert "ru[r] = h[r]·h[r]" in str(rematerialized(program))
    assert str(contracted(rematerialized(program))).count("u[0] = h[r]·h[r]") == 2


def test_what_takes_work_is_kept():
    assert not changes(loop(lambda x: Apply(ops.TABLE["exp"], (x,)), at_this_time))


def test_what_another_time_has_computed_is_kept():
    def the_time_before(u, h):
        return Access(u, TIMES - 1, (), repeat=-1)

    assert not changes(loop(squared, the_time_before))


def test_a_loop_of_other_times_reads_what_is_kept():
    assert not changes(loop(squared, at_this_time, count=TIMES - 1))


def test_what_is_overwritten_meanwhile_is_not_computed_from():
    program = loop(squared, at_this_time)
    h = next(array for array in program.arrays() if array.name == "h")
    again = Statement(Access(h, 2, ()), (), [Term(Access(h, 0, ()))])
    program.steps.insert(3, again)
    assert not changes(program)


def test_what_is_added_to_is_not_computed_from():
    program = loop(squared, at_this_time)
    h = next(array for array in program.arrays() if array.name == "h")
    more = Statement(Access(h, 1, (), repeat=1), (), [Term(Access(h, 0, (), repeat=1))], accumulate=True)
    program.steps[2] = program.steps[2].with_body([*program.steps[2].body, more])
    assert not changes(program)


def test_an_element_that_every_time_overwrites_is_kept():
    program = loop(squared, at_this_time)
    u = next(array for array in program.arrays() if array.name == "u")
    first, second = program.steps[2].body
    every = Statement(Access(u, 0, ()), (), first.terms)
    moved = second.with_terms([second.terms[0], Term(Access(u, 0, ()))])
    last = program.steps[3].body[0].with_terms([Term(Access(u, 0, ()))])
    program.steps[2:] = [Repeat(TIMES, [every, moved]), Repeat(TIMES, [last], backward=True)]
    assert_same(rematerialized(program), program)


FAULTS = {
    "_is_cheap": test_what_takes_work_is_kept,
    "is_same_row": test_what_another_time_has_computed_is_kept,
    "_has_rows": test_an_element_that_every_time_overwrites_is_kept,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(name, monkeypatch):
    monkeypatch.setattr(module, name, lambda *_: True)
    with pytest.raises(AssertionError):
        FAULTS[name]()


class TestContraction:
    def test_what_another_time_reads_keeps_its_rows(self):
        program = loop(squared, at_this_time)
        assert str(contracted(program)) == str(program)  # the later loop reads u

    def test_zeros_from_before_a_loop_come_at_each_time(self):
        x, a, s = Array("x", 2 * TIMES, "input"), Array("a", 2 * TIMES, "value"), Array("s", 1, "value")
        zeros = Statement(Access(a, 0, (1,)), (2 * TIMES,), [Term(Number(0.0))])
        body = [
            Statement(Access(a, 1, (), repeat=2), (), [Term(Access(x, 0, (), repeat=2))], accumulate=True),
            Statement(Access(s, 0, ()), (), [Term(Access(a, 0, (1,), repeat=2), (2,))], accumulate=True),
        ]
        start = Statement(Access(s, 0, ()), (), [Term(Access(x, 0, ()))])
        program = ArrayProgram([start, zeros, Repeat(TIMES, body)], {"input": x}, s).verify()
        found = contracted(program)
        assert_same(found, program)
        assert [str(array) for array in found.arrays()] == ["x[12]", "s[1]", "a[2]"]


def test_a_short_loop_is_written_out():
    program = loop(squared, at_this_time)
    found = unrolled(program)
    assert_same(found, program)
    assert not found.has_time
    assert len(found.statements) == 2 + 3 * TIMES


def test_what_is_computed_anew_at_each_time_has_an_array_for_each():
    """So that a statement may be moved away from others of its time."""
    x, s, row = Array("x", TIMES, "input"), Array("s", 1, "value"), Array("row", 1, "value")
    square = Statement(Access(row, 0, ()), (), [Term(Apply(ops.mul, (Access(x, 0, (), repeat=1),) * 2))])
    body = [square, Statement(Access(s, 0, ()), (), [Term(Access(row, 0, ()))], accumulate=True)]
    start = Statement(Access(s, 0, ()), (), [Term(Access(x, 0, ()))])
    program = ArrayProgram([start, Repeat(TIMES, body)], {"input": x}, s).verify()
    found = unrolled(program)
    assert_same(found, program)
    assert (
        len({statement.target.array for statement in found.statements if statement.target.array.name == "row"}) == TIMES
    )
    carried = [body[1], square]  # which reads what the time before has left
    program = ArrayProgram([start, square, Repeat(TIMES, carried)], {"input": x}, s)
    assert_same(unrolled(program), program)


def test_of_a_long_loop_several_times_are_one_turn(of_an_orbit):
    found = unrolled(of_an_orbit)
    assert_same(found, of_an_orbit)
    before, after = ([step for step in p.steps if isinstance(step, Repeat)] for p in (of_an_orbit, found))
    assert [step.backward for step in after] == [False, True]
    for long, short in zip(before, after, strict=True):
        assert short.count * len(short.body) == long.count * len(long.body)
        assert 1 < len(short.body) / len(long.body) <= 10


def test_tables_move_with_time():
    x, s = Array("x", 2 * TIMES, "input"), Array("s", 1, "value")
    read = Access(x, 0, (1,), np.array([1, 0]), repeat=2)
    body = [Statement(Access(s, 0, ()), (), [Term(read, (2,))], accumulate=True)]
    start = Statement(Access(s, 0, ()), (), [Term(Access(x, 0, ()))])
    program = ArrayProgram([start, Repeat(TIMES, body)], {"input": x}, s).verify()
    assert_same(unrolled(program), program)
