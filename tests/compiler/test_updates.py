"""Updates along with gradients: the same numbers to the last bit, in fewer passes over memory."""

import numpy as np
import pytest

from chainrule import compile, losses, nn, ops, optim
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.backends.llvm.fusion import groups, without_zeros
from chainrule.compiler.passes import updates
from chainrule.compiler.passes.known_numbers import with_known_numbers
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Statement, Term
from chainrule.compiler.passes.updates import with_updates_along

ADAM, SGD = (lambda p: optim.Adam(p, lr=0.1)), (lambda p: optim.SGD(p, lr=0.1))


def step_on_a_batch(optimizer, inputs=3, layers=(9, 8, 1), examples=12):
    """The program of a training step, as the LLVM backend has it."""
    model = nn.MLP(inputs, list(layers), rng=1)
    program = compile(lambda x, y: losses.hinge([model(x)], [y]), wrt=model.parameters())
    rows = np.random.default_rng(1).normal(size=(examples, inputs))
    program.train(optimizer(model.parameters()), rows, np.sign(rows[:, 0]), batch_size=examples)
    return without_zeros(with_known_numbers(program._last_run[1].laid_out))


def after_two_runs(program):
    """The leaves and the output, to the last bit."""
    machine, draw = Interpreted(program, "float64"), np.random.default_rng(2)
    for array in program.arrays():
        machine.views[array][:] = abs(draw.normal(size=array.size)) if array.numbers is None else array.numbers
    machine.run()
    machine.run()
    return np.concatenate([machine.views[array] for array in (*program.leaves.values(), program.output)]).tobytes()


def sums_with_updates(program):
    """How many passes over memory begin with a sum and change parameters."""
    sums = [group for group in groups(program.steps) if any(term.loops for term in group[0].terms)]
    return sum(any(s.target.array is program.leaves["parameter"] for s in group) for group in sums)


def test_a_rule_that_divides_goes_along_with_the_sums_of_the_gradient():
    before = step_on_a_batch(ADAM)
    after = with_updates_along(before).verify()
    assert sums_with_updates(before) == 0
    assert sums_with_updates(after) >= 3  # the weights of each layer, at least
    assert after_two_runs(after) == after_two_runs(before)


@pytest.mark.parametrize(("inputs", "layers", "pays"), [(3, (9, 8, 1), False), (70, (64, 1), True)])
def test_another_rule_does_so_where_parameters_are_many(inputs, layers, pays):
    before = step_on_a_batch(SGD, inputs, layers, examples=1)
    after = with_updates_along(before).verify()
    assert (after is not before) == pays
    assert after_two_runs(after) == after_two_runs(before)


def program_that(reads=(), overwrites=False):
    """A sum as the gradient, then a statement that reads the parameters, and the rule.

    The statement may also read other arrays, and write what the sum needs.
    """
    parameter, given, scale, other, gradient, output = (
        Array(name, size, kind)
        for name, size, kind in [
            ("parameter", 8, "parameter"),
            ("input", 16, "input"),
            ("scale", 8, "value"),
            ("other", 8, "value"),
            ("dparameter", 8, "adjoint"),
            ("output", 1, "value"),
        ]
    )
    p, s, g = (Access(array, 0, (1,)) for array in (parameter, scale, gradient))
    also = [Term(Access({"gradient": gradient}[name], 0, (1,))) for name in reads]
    terms = ops.mul(Access(given, 0, (2, 1)), s.widened(1))
    steps = [
        Statement(s, (8,), [Term(Access(given, 0, (1,)))]),
        Statement(g, (8,), [Term(terms, (2,))]),
        Statement(s if overwrites else Access(other, 0, (1,)), (8,), [Term(ops.mul(p, 2.0)), *also]),
        Statement(Access(output, 0, ()), (), [Term(Access(scale if overwrites else other, 0, (1,)), (8,))]),
        Statement(p, (8,), [Term(ops.sub(p, ops.div(g, 3.0)))]),
    ]
    program = ArrayProgram(steps, {"parameter": parameter, "input": given}, output)
    program.gradient = gradient
    return program.verify()


def test_parameters_that_are_read_later_are_changed_later():
    before = program_that()
    after = with_updates_along(before)
    assert [str(step) for step in after.steps[1:4]] == [str(before.steps[k]) for k in (2, 1, 4)]
    assert after_two_runs(after) == after_two_runs(before)


@pytest.mark.parametrize("hindrance", [{"overwrites": True}, {"reads": ["gradient"]}])
def test_a_sum_stays_where_it_is_if_its_operands_change_or_something_needs_it(hindrance):
    program = program_that(**hindrance)
    assert with_updates_along(program) is program


def test_careless_moves_are_noticed(monkeypatch):
    before, expected = program_that(), after_two_runs(program_that())
    monkeypatch.setattr(updates, "_after_readers", lambda body, k, changed: k)
    assert after_two_runs(with_updates_along(before)) != expected
    monkeypatch.undo()
    before, expected = program_that(overwrites=True), after_two_runs(program_that(overwrites=True))
    monkeypatch.setattr(updates, "_may_move", lambda *_: True)
    assert after_two_runs(with_updates_along(before)) != expected
