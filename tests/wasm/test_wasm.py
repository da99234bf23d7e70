"""Graphs as WebAssembly modules, run in Node: equal to eager code to the last bit, but for elementary functions."""

import math
import random
import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule
from chainrule import Value, data, losses, nn, ops, optim
from chainrule.wasm import to_wasm
from chainrule.wasm.elementary import FUNCTIONS
from chainrule.wasm.lanes import ONE
from expressions import programs, run
from op_samples import TABLE, samples
from wasm_host import Host

EXACT = {"where", "fmod", *ONE.instructions, *ONE.comparisons}  # primitive ops that are the processor's own, or exact
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-310, 1e308, math.inf, -math.inf, math.nan]


@pytest.fixture(scope="module")
def host():
    host = Host()
    yield host
    host.close()


def bits(numbers):
    """Equal if the numbers are the same to the last bit; every NaN is the same."""
    return [b"nan" if number != number else struct.pack("<d", number) for number in numbers]


def primitives_of(rule, arity):
    """The primitive ops that a rule ends in."""
    met = set()

    class Seen(ops.Carrier):
        def _apply(self, op, operands):
            if op.c:
                met.add(op.name)
                return self
            return op.forward(*operands)

    rule(*[Seen() for _ in range(arity)])
    return met


def is_exact(row):
    rules = [(row, row.arity), *[(partial, 1 + row.arity) for partial in row.partials if partial]]
    return all(primitives_of(*rule) <= EXACT for rule in rules)


def eager(row, numbers):
    leaves = [Value(number) for number in numbers]
    result = row(*leaves)
    result.backward()
    return result.data, [leaf.grad for leaf in leaves]


EXACT_ROWS = [row for row in TABLE.values() if is_exact(row)]


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_every_op_and_its_derivatives(row, host):
    inputs = samples(row, 40, seed="wasm")
    rng = random.Random(row.name)
    if is_exact(row):
        inputs += [[rng.choice(SPECIAL) for _ in range(row.arity)] for _ in range(60)]
    for numbers in inputs:
        program = to_wasm(row(*[Value(number) for number in numbers]))
        ran, (result, gradient) = host.run(program), eager(row, numbers)
        if is_exact(row):
            assert bits(ran.results) == bits([result]), numbers
            assert not ran.gradient or bits(ran.gradient) == bits(gradient), numbers
        else:
            assert ran.results == pytest.approx([result], rel=1e-14, abs=1e-300), numbers
            assert ran.gradient == pytest.approx(gradient, rel=1e-13, abs=1e-15), numbers


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_two_examples_at_once_are_two_examples(row, host):
    """A row left over, as in an odd number of them, runs alone."""
    rng = random.Random(row.name)
    numbers = samples(row, 12, seed="pairs")
    numbers += [[rng.choice(SPECIAL) for _ in range(row.arity)] for _ in range(12)] if is_exact(row) else []
    zeros, inputs = ([Value(0.0) for _ in range(row.arity)] for _ in range(2))
    module = to_wasm(row(*[zero + x for zero, x in zip(zeros, inputs, strict=True)]), inputs=inputs, wrt=zeros)
    alone = [host.run(module, [given]) for given in numbers]
    together = host.run(module, [*numbers, numbers[0]])
    assert bits(together.results) == bits([*[number for ran in alone for number in ran.results], *alone[0].results])
    for k, (one, other) in enumerate(pairwise(alone)):
        pair = host.run(module, numbers[k : k + 2])
        assert bits(pair.mean) == bits([(one.mean[0] + other.mean[0]) / 2])
        assert bits(pair.gradient) == bits([(a + b) / 2 for a, b in zip(one.gradient, other.gradient, strict=True)])


def test_shares_of_two_examples_are_added_use_by_use(host):
    w, x = Value(0.7), Value(0.0)
    module = to_wasm((w * x + w) * w, inputs=[x])
    rows, gradient = [[0.1], [0.2], [0.3]], 0.0
    for pair in (rows[:2], rows[2:]):
        uses = zip(*[(w.data * x + w.data, w.data, w.data * x) for (x,) in pair], strict=True)
        for share in [share for use in uses for share in use]:
            gradient += share
    assert host.run(module, rows).gradient == [gradient / 3]


@settings(max_examples=60)
@given(programs(EXACT_ROWS, most_nodes=40), st.integers(0, 2**32))
def test_random_programs_on_many_examples(host, program, seed):
    leaves, nodes = run(program, Value, lambda row, operands: row(*operands))
    results, rng = [node for node in nodes[len(leaves) :] if isinstance(node, Value)], random.Random(seed)
    if results:
        module = to_wasm(*results, inputs=leaves)
        rows = [[leaf.data * rng.choice([1.0, -1.0, 0.5]) for leaf in leaves] for _ in range(5)]
        alone = [number for row in rows for number in host.run(module, [row]).results]
        assert bits(host.run(module, rows).results) == bits(alone)


def any_float(rng):
    """Of any size, or of the usual one."""
    usual = rng.uniform(-3, 3), rng.uniform(0, 1), rng.uniform(-800, 800)
    (wild,) = struct.unpack("<d", rng.randbytes(8))
    return rng.choice([*usual, wild, wild, rng.choice(SPECIAL)])


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_elementary_functions_are_the_same_in_python(function, host):
    row, rng = TABLE[function.__name__], random.Random(function.__name__)
    inputs = [Value(0.5) for _ in range(row.arity)]
    numbers = [[any_float(rng) for _ in inputs] for _ in range(3000)]
    ran = host.run(to_wasm(row(*inputs), inputs=inputs), numbers)
    assert bits(ran.results) == bits([function(*given) for given in numbers])


@settings(max_examples=150)
@given(programs(EXACT_ROWS, most_nodes=60))
def test_random_programs_equal_eager_code_to_the_last_bit(host, program):
    leaves, nodes = run(program, Value, lambda row, operands: row(*operands))
    results = [node for node in nodes[len(leaves) :] if isinstance(node, Value)]
    if not results:
        return
    results[-1].backward()
    ran = host.run(to_wasm(results[-1], wrt=leaves))
    assert bits(ran.results) == bits([results[-1].data])
    assert bits(ran.gradient) == bits([leaf.grad for leaf in leaves])
    assert bits(host.run(to_wasm(*results, inputs=leaves)).results) == bits([node.data for node in results])


def moons_loss(points):
    model = nn.MLP(2, [16, 16, 1], rng=1337)
    outputs = [model([Value(x) for x in point]) for point in points.inputs]
    return model, losses.hinge(outputs, points.targets) + losses.l2(1e-4)(model.parameters())


def test_a_whole_training_set_as_one_graph(host):
    model, loss = moons_loss(data.micrograd_moons())  # 65,818 nodes, in dozens of functions
    loss.backward()
    program = chainrule.compile(loss, wrt=model.parameters()).to_wasm()
    ran = host.run(program)
    assert ran.mean == ran.results == [loss.data]
    assert bits(ran.gradient) == bits([parameter.grad for parameter in model.parameters()])


OPTIMIZERS = {
    "sgd": lambda parameters: optim.SGD(parameters, lr=0.05, momentum=0.9),
    "sgd, falling rate": lambda parameters: optim.SGD(parameters, lr=optim.linear(0.1, 0.0, 20)),
    "adam": lambda parameters: optim.Adam(parameters, lr=0.01),
    "adamw": lambda parameters: optim.AdamW(parameters, lr=0.01),
    "rmsprop": lambda parameters: optim.RMSprop(parameters, lr=0.01),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_steps_on_examples(make, host):
    model, points = nn.MLP(2, [8, 1], rng=1), data.micrograd_moons()[:30]
    optimizer = make(model.parameters())

    def loss(x, y):
        return (1.0 - y * model(x)).relu()

    program = chainrule.compile(loss, wrt=model.parameters())
    module = program.to_wasm(points.inputs[0], points.targets[0], optimizer=optimizer, steps=20)
    ran = host.run(module, [[*x, y] for x, y in zip(points.inputs, points.targets, strict=True)], steps=20)
    mean, gradient = program.batch_value_and_grad(points.inputs, points.targets)
    assert ran.mean == pytest.approx([mean], rel=1e-14)
    assert ran.gradient == pytest.approx(list(gradient), rel=1e-12, abs=1e-16)
    found = []
    for _ in range(20):
        optimizer.zero_grad()
        total = chainrule.mean([loss(x, y) for x, y in zip(points.inputs, points.targets, strict=True)])
        total.backward()
        optimizer.step()
        found.append(total.data)
    assert ran.losses == pytest.approx(found, rel=1e-12)
    assert ran.parameters == pytest.approx([parameter.data for parameter in model.parameters()], rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("size", [1, 4, 10])
def test_many_steps_at_once(size, host):
    w, x, y = Value(0.5), Value(0.0), Value(0.0)
    optimizer = optim.SGD([w], lr=optim.linear(0.1, 0.0, 8))
    module = to_wasm((w * x - y) * (w * x - y), inputs=[x, y], optimizer=optimizer, steps=6)
    rows = [[0.1 * k, 1.0 - 0.2 * k] for k in range(10)]
    step = f"(p) => [...Array(9).keys()].map((t) => p.step(Math.min(t, 5), t % {10 // size} * {size}, {size})).join()"
    one_by_one = [float(loss) for loss in host.call(module, step, rows).split(",")]
    after = "p.buffer('parameters')[0]"
    mean, parameter = map(float, host.call(module, f"(p) => [p.train(9, 0, {size}), {after}].join()", rows).split(","))
    apart, together = f"(p) => (p.train(4, 0, {size}), p.train(5, 4, {size}), {after})", f"{parameter!r}"
    assert mean == pytest.approx(sum(one_by_one) / 9, rel=1e-14)
    assert float(host.call(module, apart, rows)) == float(together)


def test_steps_go_on_from_where_the_optimizer_is(host):
    w = Value(3.0)
    optimizer = optim.Adam([w], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (w * w).backward()
        optimizer.step()
    module = to_wasm(w * w, optimizer=optimizer, steps=5)
    ran = host.run(module, steps=5)
    assert optimizer.steps == 3
    for _ in range(5):
        optimizer.zero_grad()
        (w * w).backward()
        optimizer.step()
    assert ran.parameters == pytest.approx([w.data], rel=1e-14)


class TestShapes:
    def test_a_result_that_is_a_leaf(self, host):
        w = Value(3.0)
        ran = host.run(to_wasm(w))
        assert (ran.mean, ran.gradient) == ([3.0], [1.0])
        ran = host.run(to_wasm(w, inputs=[w]), [[5.0], [7.0]])
        assert ran.results == [5.0, 7.0]

    def test_what_is_used_twice_and_what_is_not_used(self, host):
        a, b, unused = Value(3.0), Value(-2.0), Value(9.0)
        c = a + a
        loss = c * c + (a + b) - b
        loss.backward()
        ran = host.run(to_wasm(loss, wrt=[unused, b, a]))
        assert bits(ran.gradient) == bits([0.0, b.grad, a.grad])

    def test_what_is_frozen_is_captured(self, host):
        a, b = Value(3.0), Value(-2.0)
        b.requires_grad = False
        module = to_wasm(a * b)
        assert (module.buffers["parameters"][1], module.buffers["captured"][1]) == (1, 1)
        assert host.run(module).gradient == [-2.0]

    def test_numbers_are_there_whether_they_are_used_or_not(self, host):
        w, unused, x = Value(3.0), Value(5.0), Value(2.0)
        module = to_wasm(w * x, inputs=[x], optimizer=optim.SGD([w, unused], lr=0.1, weight_decay=0.5))
        assert host.run(module).results == [6.0]
        assert host.run(module, steps=1).parameters == pytest.approx([3.0 - 0.1 * (2.0 + 1.5), 5.0 - 0.1 * 2.5])
        assert host.run(chainrule.compile(lambda x, y: w * y).to_wasm(7.0, 0.5)).results == [1.5]

    def test_what_is_frozen_keeps_its_place(self, host):
        a, b = Value(2.0), Value(3.0)
        b.requires_grad = False
        function = chainrule.compile(lambda x: a * b * x, wrt=[b, a])
        for module in (
            to_wasm(a * b, wrt=[b, a]),
            chainrule.compile(a * b, wrt=[b, a]).to_wasm(),
            function.to_wasm(1.0),
        ):
            ran = host.run(module)
            assert (ran.mean, ran.gradient, ran.parameters) == ([6.0], [0.0, 3.0], [3.0, 2.0])

    def test_what_was_frozen_since_the_last_call(self, host):
        a, b = Value(2.0), Value(3.0)
        function = chainrule.compile(lambda x: a * b * x if x > 0 else a * x, wrt=[a, b])
        plain = chainrule.compile(lambda x: a * b * x, wrt=[a, b])
        function(1.0), function(-1.0), plain(1.0)
        b.requires_grad = False
        for late in (function.describe, lambda: function.stats, plain.to_wasm, lambda: plain.stats):
            with pytest.raises(RuntimeError, match="call it once first"):
                late()
        plain(1.0)
        assert host.run(plain.to_wasm(), [[1.0]]).gradient == [3.0, 0.0]

    @pytest.mark.parametrize("exponent", [-16.0, -3.0, -2.0, -0.5, 1.5, 3.0, 16.0])
    def test_powers_are_rounded_once(self, exponent, host):
        x, rng = Value(1.0), random.Random(exponent)
        rows = [[rng.uniform(0.5, 2.0)] for _ in range(500)] + [[3e19], [1e-19], [1e160]]
        found = host.run(to_wasm(x**exponent, inputs=[x]), rows).results
        for (base,), got in zip(rows, found, strict=True):
            expected = ops.pow_(base, exponent)
            assert got == expected or abs(got - expected) <= math.ulp(expected), base

    @pytest.mark.parametrize("right", [False, True])
    def test_a_long_sum(self, right, host):
        leaves = [Value(0.1 * k) for k in range(5000)]
        total = leaves[0]
        for leaf in leaves[1:]:
            total = leaf * 1.5 + total if right else total + leaf * 1.5
        total.backward()
        ran = host.run(to_wasm(total, wrt=leaves))
        assert ran.mean == [total.data]
        assert bits(ran.gradient) == bits([leaf.grad for leaf in leaves])

    def test_several_results(self, host):
        program = chainrule.compile(lambda x, y: {"sum": x + y, "both": [x, x * y]})
        module = program.to_wasm(1.0, 2.0)
        assert host.run(module, [[2.0, 3.0], [4.0, 5.0]]).results == [5.0, 2.0, 6.0, 9.0, 4.0, 20.0]
        assert repr(module).endswith("; forward>")

    def test_arguments_that_are_not_used(self, host):
        w = Value(2.0)
        module = chainrule.compile(lambda xs, y: w * xs[2]).to_wasm([1.0, 2.0, 3.0], 4.0)
        assert host.run(module, [[5.0, 6.0, 7.0, 8.0]]).results == [14.0]

    def test_derivatives_in_a_function(self, host):
        def slope(x):
            return chainrule.grad(lambda t: t * t * t)(x)

        assert host.run(chainrule.compile(slope).to_wasm(2.0), [[2.0], [3.0]]).results == [12.0, 27.0]


def test_an_op_that_a_user_composed(host):
    @chainrule.op(lambda out, x: 3.0 * x * x)
    def cube(x):
        return x * x * x

    w = Value(2.0)
    assert host.run(to_wasm(cube(w))).gradient == [12.0]


class TestRefusals:
    def test_an_op_that_only_python_can_compute(self):
        @chainrule.op(lambda out, x: 1.0)
        def gamma(x):
            return math.gamma(x)

        with pytest.raises(TypeError, match="the rule of `gamma` cannot become WebAssembly"):
            to_wasm(gamma(Value(2.0)))

    def test_a_node_made_by_hand(self):
        node = Value(1.0, (Value(2.0),), "mine")
        with pytest.raises(TypeError, match="was made by hand, and only Python can compute it"):
            to_wasm(node)

    def test_a_function_that_branches(self):
        program = chainrule.compile(lambda x: x if x > 0 else -x)
        with pytest.raises(chainrule.compiler.TracingError, match="a WebAssembly module needs one program"):
            program.to_wasm(1.0)

    def test_an_optimizer_of_other_parameters(self):
        a, b = Value(1.0), Value(2.0)
        program = chainrule.compile(a * b)
        with pytest.raises(ValueError, match="`optimizer` must have the parameters"):
            program.to_wasm(optimizer=optim.SGD([b], lr=0.1))
        with pytest.raises(ValueError, match="`wrt` must be the optimizer's parameters"):
            to_wasm(a * b, wrt=[a], optimizer=optim.SGD([b], lr=0.1))

    def test_a_value_named_twice(self):
        a = Value(1.0)
        with pytest.raises(ValueError, match="the same Value stands twice"):
            to_wasm(a * a, wrt=[a, a])

    def test_a_rule_that_a_user_wrote(self):
        class Counting(optim.Optimizer):
            def update(self, data, grad, *, lr):
                return (data - lr * self.steps * grad,)

        a = Value(1.0)
        with pytest.raises(ValueError, match="`optimizer` is a Counting, whose own rule may differ from step to step"):
            to_wasm(a * a, optimizer=Counting([a], lr=0.1))

    def test_steps_on_what_is_frozen_or_on_several_results(self):
        a, b = Value(1.0), Value(2.0)
        with pytest.raises(ValueError, match="a step needs one result, and there are 2"):
            to_wasm(a * a, a, optimizer=optim.SGD([a], lr=0.1))
        b.requires_grad = False
        with pytest.raises(ValueError, match="`optimizer` has parameters that are frozen"):
            to_wasm(a * b, optimizer=optim.SGD([a, b], lr=0.1))

    def test_what_is_no_leaf(self):
        w, x = Value(3.0), Value(2.0)
        inner = w * x
        for named in ({"inputs": [inner]}, {"wrt": [inner]}):
            with pytest.raises(ValueError, match="`inputs` and `wrt` must be leaves"):
                to_wasm(inner + 1.0, **named)

    def test_a_graph_that_followed_from_a_number(self):
        x = Value(2.0)
        result = x * x if x > 1 else x
        with pytest.raises(ValueError, match=r"was read .* would be frozen"):
            to_wasm(result, inputs=[x])
        assert to_wasm(result, inputs=[x], allow_frozen_branches=True).inputs == 1

    def test_what_is_no_value(self):
        with pytest.raises(TypeError, match="`results` is empty"):
            to_wasm()
        with pytest.raises(TypeError, match="`results` must be Values, got float"):
            to_wasm(3.0)

    def test_a_rule_that_compares(self):
        @chainrule.op(lambda out, x: 2.0 * x)
        def bump(x):
            return 1.0 if x == 0.0 else x * x

        with pytest.raises(TypeError, match=r"the rule of `bump` cannot become WebAssembly .*must not compare"):
            to_wasm(bump(Value(0.0)))

    def test_steps_that_are_no_number(self):
        a = Value(1.0)
        with pytest.raises(ValueError, match="`steps`"):
            to_wasm(a * a, optimizer=optim.SGD([a], lr=0.1), steps=0)


LOADER = {
    "(p) => p.buffer('weights')": 'there is no buffer "weights": choose from parameters, gradient, captured, rows',
    "(p) => { p.examples = [[1, 2], [3]] }": "example 1 has 1 numbers: give 2 inputs each",
    "(p) => p.gradient(1, 1)": "rows 1 to 2 were asked for, and there are 1",
    "(p) => p.forward(0.5, 1)": "rows must be given by whole numbers, got 0.5 and 1",
    "(p) => p.train(0)": "`times` must be a whole number of at least 1 and `turn` of at least 0, got 0 and 0",
}


@pytest.mark.parametrize("script", LOADER)
def test_the_loader_says_what_is_wrong(script, host):
    w, x, y = Value(1.0), Value(2.0), Value(3.0)
    assert host.call(to_wasm(w * x * y, inputs=[x, y]), script) == LOADER[script]


def test_memory_grows_with_the_examples(host):
    w, x = Value(2.0), Value(0.0)
    rows = [[float(k)] for k in range(20_000)]
    assert host.run(to_wasm(w * x, inputs=[x]), rows).results == [2.0 * k for (k,) in rows]


def test_a_file_appears_whole(tmp_path):
    w = Value(1.0)
    module = to_wasm(w * w)
    module.save(tmp_path / "square.wasm")
    assert (tmp_path / "square.wasm").read_bytes() == module.binary
    assert [path.name for path in tmp_path.iterdir()] == ["square.wasm"]
