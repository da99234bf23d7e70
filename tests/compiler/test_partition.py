"""Parameters that are used in parts become arrays of their own, and the program computes the same."""

import random

import numpy as np
import pytest

from chainrule import Value, losses, nn, ops, optim
from chainrule.compiler import compile
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.passes import partition as module
from chainrule.compiler.passes.partition import Part, partition
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Number, Repeat, Statement, Term
from chainrule.compiler.run.steps import CompiledSteps

RULES = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: optim.Adam(p, lr=0.1),
}


def whole(program):
    """The program on parts, with what takes arrays apart and puts them together."""
    return partition(program).whole(program.leaves).verify()


def numbers(program):
    """All leaves and results after a run on random numbers."""
    rng, runner = np.random.default_rng(0), Interpreted(program, "float64")
    leaves = list(program.leaves.values())
    for array in program.arrays():
        fresh = rng.uniform(0.1, 0.9, array.size) if array in leaves else np.nan
        runner.views[array][:] = fresh if array.numbers is None else array.numbers
    runner.run()
    return [np.array(runner.views[array]) for array in [*leaves, *program.results]]


def assert_same(program):
    for there, here in zip(numbers(program), numbers(whole(program)), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-13, atol=1e-15)


def training(rule, sizes=(3, [4, 2])):
    """The program of a training step on five examples, with a penalty on all parameters."""
    rng = random.Random(1)
    model = nn.MLP(*sizes, rng=1)
    xs = [[rng.random() for _ in range(sizes[0])] for _ in range(5)]

    def loss(inputs):
        outputs = [sum(model(x)) for x in inputs]
        return sum((y - 0.5) ** 2 for y in outputs) + losses.l2(0.1)(model.parameters())

    return CompiledSteps(loss, xs, RULES[rule](model.parameters()), backend="interpreter").code.whole


@pytest.mark.parametrize("rule", RULES)
def test_weights_and_biases_of_a_training_step_are_parts(rule):
    program = training(rule)
    found = partition(program)
    (sizes,) = {tuple(part.size for part in parts) for parts in found.parts.values()}
    assert sizes == (12, 4, 8, 2)
    assert {array.name for array in found.parts} >= {"parameter", "dparameter"}
    assert "Σk<3 parameter0[3j+k]·input[3i+k]" in str(found.program)
    assert not any(access.array in found.parts for s in found.program.statements for access in s.accesses())
    assert_same(program)


def test_a_sum_over_all_parameters_is_one_over_each_part():
    text = str(partition(training("SGD")).program)
    assert "Σi<12 parameter0[i]·parameter0[i] + Σi<4 parameter1[i]·parameter1[i]" in text


def array_program(steps, parameters, out):
    return ArrayProgram(steps, {"parameter": parameters}, out).verify()


def total_of(out, *accesses):
    """`out[0] = Σ …` for accesses with their loops."""
    return Statement(Access(out, 0, ()), (), [Term(access, loops) for access, loops in accesses])


P, OUT = Array("parameter", 12, "parameter"), Array("out", 1, "value")
USES = {
    "rows": ([(Access(P, 0, (3, 1)), (4, 2)), (Access(P, 2, (3,)), (4,))], [8, 4]),
    "a row of rows": ([(Access(P, 0, (3, 1)), (4, 2)), (Access(P, 6, (1,)), (2,)), (Access(P, 2, (3,)), (4,))], [8, 4]),
    "backward": ([(Access(P, 10, (-3, -1)), (4, 2)), (Access(P, 11, (-3,)), (4,))], [8, 4]),
    "overlapping": ([(Access(P, 0, (1,)), (6,)), (Access(P, 4, (1,)), (4,))], [8, 4]),
    "across": ([(Access(P, 0, (3, 1)), (4, 2)), (Access(P, 0, (1,)), (6,))], [11, 1]),
    "in steps of its own": ([(Access(P, 0, (4, 1)), (3, 3)), (Access(P, 2, (2,)), (3,))], [11, 1]),
    "into another": ([(Access(P, 0, (3,)), (2,)), (Access(P, 3, (1,)), (2,)), (Access(P, 2, (3,)), (2,))], [6, 6]),
    "all, and some": ([(Access(P, 0, (1,)), (12,)), (Access(P, 0, (1,)), (5,))], [5, 7]),
    "all, and two": (
        [(Access(P, 0, (1,)), (12,)), (Access(P, 0, (1,)), (5,)), (Access(P, 5, (1,)), (3,))],
        [5, 3, 4],
    ),
    "all": ([(Access(P, 0, (1,)), (12,)), (Access(P, 0, (2, 1)), (6, 2))], []),
    "a table": ([(Access(P, 0, (1,), np.array([1, 3, 2])), (3,)), (Access(P, 4, (2,)), (4,))], [1, 3, 4, 1, 1, 1, 1]),
    "a part of each": ([(Access(P, 0, (4,)), (3,)), (Access(P, 1, (4,)), (3,))], [3, 3, 2, 2, 2]),
}


@pytest.mark.parametrize("uses", USES)
def test_parts_follow_the_ways_in_which_parameters_are_read(uses):
    accesses, sizes = USES[uses]
    program = array_program([total_of(OUT, *accesses)], P, OUT)
    assert sorted(part.size for part in partition(program).parts.get(P, [])) == sorted(sizes)
    assert_same(program)


def test_what_moves_with_time_lies_in_one_part():
    h = Array("h", 7, "value")
    step = Apply(ops.mul, (Access(h, 0, (), repeat=1), Access(P, 0, (), repeat=1)))
    steps = [
        Statement(Access(h, 0, ()), (), [Term(Number(1.0))]),
        Repeat(6, [Statement(Access(h, 1, (), repeat=1), (), [Term(step)])]),
        total_of(OUT, (Access(h, 6, ()), ()), (Access(P, 6, (2,)), (3,)), (Access(P, 7, (2,)), (3,))),
    ]
    program = array_program(steps, P, OUT)
    assert [part.size for part in partition(program).parts[P]] == [6, 3, 3]
    assert_same(program)


def test_what_is_read_beside_all_parameters_is_read_in_parts():
    x = Array("x", 12, "input")
    both = Apply(ops.mul, (Access(P, 0, (1,)), Access(x, 0, (1,))))
    terms = total_of(OUT, (both, (12,)), (Access(P, 0, (3, 1)), (4, 2)), (Access(P, 2, (3,)), (4,)))
    program = ArrayProgram([terms], {"parameter": P, "input": x}, OUT).verify()
    assert "parameter0[2i+j]·x[3i+j]" in str(partition(program).program)
    assert_same(program)


def test_too_many_parts_are_none(monkeypatch):
    monkeypatch.setattr(module, "MOST_PARTS", 3)
    program = training("SGD")
    assert not partition(program).parts
    assert str(partition(program).program) == str(program)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("_footprint", lambda access, loops, count: Part.between(0, 2)),
        ("_gaps", lambda wanted, size: set()),
        ("_first_conflict", lambda wanted, size: None),
        ("_first_irregular", lambda wanted, uses, size: None),
        ("row_major", lambda shape: tuple(range(1, len(shape) + 1))),
    ],
)
def test_a_fault_is_noticed(name, fault, monkeypatch):
    programs = [array_program([total_of(OUT, *accesses)], P, OUT) for accesses, _ in USES.values()]
    monkeypatch.setattr(module, name, fault)
    with pytest.raises((AssertionError, IndexError)):
        _ = [assert_same(program) for program in [*programs, training("momentum")]]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("backend", ["jax", "xla"])
def test_steps_through_jax_are_those_of_eager_code(rule, steps, backend):
    pytest.importorskip("jax")
    rng = random.Random(3)
    xs, ys = [[rng.random() for _ in range(3)] for _ in range(steps)], [rng.random() for _ in range(steps)]
    found = []
    for compiled in (True, False):
        model = nn.MLP(3, [4, 1], rng=2)
        optimizer = RULES[rule](model.parameters())

        def loss(x, y, model=model):
            return (model(x) - y) ** 2 + losses.l2(0.1)(model.parameters())

        if compiled:
            compile(loss, wrt=model.parameters(), backend=backend).train(optimizer, xs, ys)
        else:
            for x, y in zip(xs, ys, strict=True):
                optimizer.zero_grad()
                loss([Value(v) for v in x], y).backward()
                optimizer.step()
        slots = [list(optimizer.buffers[slot]) for slot in optimizer.slots]
        found.append(np.array([[p.data for p in model.parameters()], *slots]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-11, atol=1e-14)
