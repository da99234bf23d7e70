"""Fusion: one pass over memory gives what statement after statement gives, and never joins what must be apart."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from chainrule import Value, compile, losses, nn, ops, optim
from chainrule.compiler.backends.interpret import Interpreted
from chainrule.compiler.backends.llvm import Native, fusion
from chainrule.compiler.backends.llvm.fusion import groups, stored, without_zeros
from chainrule.compiler.passes.program import Access, Apply, Array, ArrayProgram, Number, Repeat, Statement, Term
from chainrule.compiler.run.steps import CompiledSteps

ROWS, COLUMNS = 5, 37  # with a rest beside whole vectors


def arrays(names="abcdef"):
    return {name: Array(name, (ROWS + 1) * (COLUMNS + 1), "captured") for name in names}


def at(array, shift=0):
    return Access(array, shift, (COLUMNS + 1, 1))


def statement(target, expression, accumulate=False):
    return Statement(at(target), (ROWS, COLUMNS), [Term(expression)], accumulate)


def sizes(program):
    return [len(group) for group in groups(program.steps) if not isinstance(group, Repeat)]


def assert_as_interpreted(program, dtype="float64"):
    """Every array that has its place in memory to itself holds the same numbers after two runs."""
    kept = stored(without_zeros(program))
    machines = Native(program, dtype), Interpreted(program, dtype)
    start = np.random.default_rng(0).normal(size=max(480, (ROWS + 1) * (COLUMNS + 1)))
    for machine in machines:
        for array in program.arrays():
            if array in machine.views:
                machine.views[array][:] = array.numbers if array.numbers is not None else start[: array.size]
        machine.run()
        machine.run()
    assert kept == set(machines[0].views)
    views = machines[0].views
    own = [a for a in kept if not any(b is not a and np.shares_memory(views[a], views[b]) for b in kept)]
    assert {*program.leaves.values(), program.output} & kept <= set(own)
    for array in own:
        found, expected = (machine.views[array] for machine in machines)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14, err_msg=array.name)


def program_of(*statements, leaves):
    return ArrayProgram(statements, {array.name: array for array in leaves}, leaves[-1])


def test_the_passes_of_a_network():
    model = nn.MLP(2, [16, 16, 1], rng=1)
    program = compile(lambda x, y: losses.hinge([model(x)], [y]), wrt=model.parameters())
    program.batch([[0.1, 0.2]] * 64, [1.0] * 64)
    arrays = program._last_run[1].laid_out
    found = {" ; ".join(map(str, group)) for group in groups(arrays.steps)}
    layer = "i<64,j<16: v0[i+64j] = parameter[2+3j] + Σk<2 parameter[3j+k]·input[i+64k]"
    assert f"{layer} ; i<64,j<16: v1[i+64j] = relu(v0[i+64j])" in found
    assert len(groups(arrays.steps)) < 0.75 * len(arrays.statements)
    assert {array.name for array in arrays.arrays()} - {array.name for array in stored(arrays)} >= {"dv1", "dv3"}


def test_what_only_the_group_reads_is_not_stored():
    a, b, c, d, *_ = arrays().values()
    program = program_of(statement(b, at(a) * at(a)), statement(c, ops.exp(at(b))), statement(d, at(c)), leaves=[a, d])
    assert sizes(program) == [3]
    assert stored(program) == {a, d}
    assert_as_interpreted(program)


def test_sums_across_lanes_that_nobody_reads():
    weights = [Value(0.1 * k - 0.35) for k in range(8)]

    def loss(xs):
        on = [ops.gt(weight, 0.0) for weight in weights]  # their adjoints lead nowhere
        return sum(ops.tanh(gate * x) * weight for gate, weight in zip(on, weights, strict=True) for x in xs)

    xs = [0.1 * k for k in range(20)]
    loss(xs).backward()
    value, gradient = compile(loss).value_and_grad(xs)
    assert value == pytest.approx(loss(xs).data, rel=1e-12)
    np.testing.assert_allclose(gradient, [weight.grad for weight in weights], rtol=1e-12)


def test_a_long_chain_is_several_groups():
    chain = [Array(f"v{k}", (ROWS + 1) * (COLUMNS + 1), "captured") for k in range(2 * fusion.MOST + 2)]
    steps = [statement(after, at(before) * 0.5) for before, after in pairwise(chain)]
    program = program_of(*steps, leaves=[chain[0], chain[-1]])
    assert sizes(program) == [fusion.MOST, fusion.MOST, 1]
    assert stored(program) == {chain[0], chain[fusion.MOST], chain[2 * fusion.MOST], chain[-1]}
    assert_as_interpreted(program)


def test_an_array_that_is_changed_in_place():
    a, b, c, *_ = arrays().values()
    program = program_of(
        statement(b, at(a) * at(c)), statement(a, at(a) + at(b)), statement(c, at(a)), leaves=[a, b, c]
    )
    assert sizes(program) == [3]
    assert_as_interpreted(program)


@pytest.mark.parametrize("optimizer", [optim.Adam, optim.RMSprop, lambda p: optim.SGD(p, lr=0.1, momentum=0.9)])
def test_the_update_of_an_optimizer_is_one_pass(optimizer):
    model = nn.MLP(2, [16, 1], rng=1)
    steps = CompiledSteps(lambda x: losses.hinge([model(x)], [1.0]), [0.1, 0.2], optimizer(model.parameters()))
    *_, last = groups(steps.code.laid_out.steps)
    assert {s.target.array.name for s in last} == {"parameter", *steps.optimizer.slots}


def apart():
    """Pairs of statements that must not become one pass, and why."""
    a, b, c, d, *_ = arrays().values()
    first = statement(b, at(a) * at(a))
    rows = Statement(Access(c, 0, (1,)), (COLUMNS,), [Term(Access(b, 0, (1,)))])
    total = Statement(at(c), (ROWS, COLUMNS), [Term(Access(b, 0, (0, 0, 1)), (COLUMNS,))])
    table = np.arange(b.size)[::-1].copy()
    return {
        "a neighbour is read": (first, statement(c, at(b, 1))),
        "the neighbour is read that comes before": (statement(b, at(a, 1)), statement(c, at(b) + at(b, 1))),
        "what the first has read is written": (statement(b, at(a, 1)), statement(a, at(b) * at(b))),
        "a neighbour is written": (first, Statement(at(b, 1), (ROWS, COLUMNS), [Term(at(a) * at(c))])),
        "a neighbour is added to": (first, Statement(at(b, 1), (ROWS, COLUMNS), [Term(at(a) * at(c))], True)),
        "other loops": (first, rows),
        "a sum over what was written": (first, total),
        "a table": (first, statement(c, Access(b, 0, (COLUMNS + 1, 1), table))),
        "several turns write one element": (
            Statement(Access(b, 0, (0, 1)), (ROWS, COLUMNS), [Term(at(a))], accumulate=True),
            Statement(at(c), (ROWS, COLUMNS), [Term(Access(b, 0, (0, 1)))]),
        ),
        "nothing in common": (first, statement(c, at(d) * at(d))),
    }


@pytest.mark.parametrize("why", apart())
def test_what_must_be_apart_stays_apart(why):
    statements = apart()[why]
    leaves = list({a: None for s in statements for a in (*(x.array for x in s.accesses()), s.target.array)})
    program = program_of(*statements, leaves=leaves)
    assert sizes(program) == [1, 1]
    assert_as_interpreted(program)


@pytest.mark.parametrize("accumulate", [False, True])
def test_an_element_that_is_written_again_stays_in_its_register(accumulate):
    """Whoever reads it in between has the first number, and whoever reads it later the second."""
    a, b, c, d, *_ = arrays().values()
    program = program_of(
        statement(b, at(a) * at(a)),
        statement(c, at(b) * 2.0),
        statement(b, at(c) - at(a), accumulate),
        statement(d, at(b) + at(c)),
        leaves=[a, b, c, d],
    )
    assert sizes(program) == [4]
    assert_as_interpreted(program)


def sums_from_zero():
    """Programs that set `b` to zero and add to parts of it, and whether the zeros can be left out."""
    a, b, c, *_ = arrays().values()
    half, width = b.size // 2, COLUMNS

    def part(start, size, expression=None, accumulate=True):
        source = expression if expression is not None else Access(a, start, (1,))
        return Statement(Access(b, start, (1,)), (size,), [Term(source)], accumulate)

    def twice(start, size):
        return Statement(Access(b, start, (0, 1)), (2, size), [Term(Access(a, 0, (1, 1)))], accumulate=True)

    zero = part(0, b.size, Number(0.0), accumulate=False)
    last = Statement(Access(c, 0, (1,)), (c.size,), [Term(Access(b, 0, (1,)))])
    sums = {
        "two halves": ([part(0, half), part(half, half)], True),
        "all, and some again": ([part(0, b.size), part(3, half)], True),
        "a part that is never added to": ([part(0, half)], False),
        "parts that overlap": ([part(0, half + 1), part(half, half)], False),
        "several turns add to one element": ([part(0, half), twice(half, half)], False),
        "several turns, later": ([part(0, b.size), twice(0, half)], True),
        "an element is read too early": ([part(0, half), Statement(at(c), (ROWS, width), [Term(at(b))])], False),
        "in a Repeat": ([Repeat(2, [part(0, b.size)])], False),
        "zero a second time": ([zero, part(0, half)], True),
        "zero again in between": ([part(0, half), zero, part(0, b.size)], True),
    }
    return {why: (program_of(zero, *steps, last, leaves=[a, b, c]), fine) for why, (steps, fine) in sums.items()}


@pytest.mark.parametrize("why", sums_from_zero())
def test_sums_begin_with_their_first_summand_where_they_can(why):
    program, fine = sums_from_zero()[why]
    assert len(without_zeros(program).steps) == len(program.steps) - fine
    assert_as_interpreted(program)


def random_program(seed):
    """Statements on few arrays, which read neighbours, write in place and add up, in and out of a Repeat."""
    rng = Random(seed)
    names = arrays()
    every = list(names.values())

    def operand(target):
        array = rng.choice(every)
        shift = 0 if array is target else rng.choice((0, 0, 0, 1, COLUMNS + 1))
        return at(array, shift)

    def any_statement():
        target = rng.choice(every)
        op = rng.choice((ops.add, ops.mul, ops.sub, ops.maximum))
        half = ops.tanh(op(operand(target), operand(target)))
        return statement(target, half, accumulate=rng.random() < 0.2)

    steps = [any_statement() for _ in range(rng.randrange(2, 9))]
    if rng.random() < 0.3:
        steps.insert(1, Repeat(3, [any_statement() for _ in range(4)], backward=rng.random() < 0.5))
    leaves = rng.sample(every, 3)
    whole = [Statement(Access(a, 0, (1,)), (a.size,), [Term(Access(leaves[0], 0, (1,)))]) for a in every]
    first = [step for step in whole if step.target.array not in leaves]  # nothing is read before it is written
    program = ArrayProgram([*first, *steps], {array.name: array for array in leaves}, steps[-1].target.array)
    return program.verify()


def test_random_programs():
    joined = 0
    for seed in range(30):
        program = random_program(seed)
        joined += max(sizes(program)) > 1
        assert_as_interpreted(program)
    assert joined > 10


SPLIT, MERGED = ((16, 6, 5), (1, 80, 16)), ((16, 30), (1, 16))  # loops and strides through the same 480 elements


def elementwise(target, source, loops, strides, factor=2.0):
    return Statement(
        Access(target, 0, strides), loops, [Term(Apply(ops.mul, (Access(source, 0, strides), Number(factor))))]
    )


def summed(target, source, weights):
    """target[i, j, k] = Σl weights[k, l]·source[i, j, l], with i along the lanes."""
    product = Apply(ops.mul, (Access(source, 0, (1, 80, 0, 16)), Access(weights, 0, (0, 0, 5, 1))))
    return Statement(Access(target, 0, SPLIT[1]), SPLIT[0], [Term(product, (5,))])


def arrays_of(*names):
    return [Array(name, 480, "captured") for name in names]


@pytest.mark.parametrize("shapes", [(SPLIT, MERGED), (MERGED, SPLIT), (MERGED, SPLIT, MERGED), (SPLIT, MERGED, SPLIT)])
def test_loops_that_were_merged_are_split_again_to_share_a_pass(shapes):
    arrays = arrays_of(*"abcd"[: len(shapes) + 1])
    steps = [elementwise(arrays[k + 1], arrays[k], *shape) for k, shape in enumerate(shapes)]
    program = program_of(*steps, leaves=arrays)
    assert sizes(program) == [len(shapes)]
    assert_as_interpreted(program)


def test_what_follows_a_sum_is_split_and_the_sum_is_not():
    a, b, c, d = arrays_of(*"abcd")
    program = program_of(summed(b, a, d), elementwise(c, b, *MERGED), leaves=[a, b, c, d])
    assert sizes(program) == [2]
    assert_as_interpreted(program)
    finer = (16, 6, 5, 1), (1, 80, 16, 0)
    program = program_of(summed(b, a, d), elementwise(c, b, *finer), leaves=[a, b, c, d])
    assert sizes(program) == [1, 1]
    assert_as_interpreted(program)


def test_a_loop_of_lanes_is_never_split():
    a, b, c = arrays_of(*"abc")
    long, short = ((480,), (1,)), ((160, 3), (3, 1))
    program = program_of(elementwise(b, a, *long), elementwise(c, b, *short), leaves=[a, b, c])
    assert sizes(program) == [1, 1]
    assert_as_interpreted(program)


def test_loops_that_go_through_memory_in_another_order_stay_apart():
    a, b, c = arrays_of(*"abc")
    other = (16, 5, 6), (1, 96, 16)
    program = program_of(elementwise(b, a, *SPLIT), elementwise(c, b, *other), leaves=[a, b, c])
    assert sizes(program) == [1, 1]
    assert_as_interpreted(program)


def test_careless_fusion_is_noticed(monkeypatch):
    def careless(group, statement, columns):
        fits = not isinstance(group, Repeat) and group[0].loops == statement.loops
        return (*group, statement) if fits else None

    monkeypatch.setattr(fusion, "_joined", careless)
    wrong = 0
    for seed in range(30):
        try:
            assert_as_interpreted(random_program(seed))
        except (AssertionError, KeyError):
            wrong += 1
    assert wrong > 5
