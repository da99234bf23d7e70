"""What is frozen or unfrozen after a program was compiled: its gradients are those of eager code all the same."""

import numpy as np
import pytest

import chainrule
from chainrule import Value, optim
from chainrule.compiler import compile

WAYS = {
    "llvm": {},
    "interpreter": {"backend": "interpreter"},
    "strict": {"strict": True},
    "float32": {"dtype": "float32"},
}
pytestmark = pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
FLAGS = [(False, True), (True, True), (True, False), (False, False), (True, True)]


def eager(loss, parameters):
    """The gradient of what `loss` returns."""
    for parameter in parameters:
        parameter.grad = 0.0
    result = loss()
    result.backward()
    return result.data, [parameter.grad for parameter in parameters]


def test_a_recorded_graph(options):
    a, b = Value(2.0), Value(3.0)
    loss = a * b + b
    program = compile(loss, wrt=[a, b], **options)
    for a.requires_grad, b.requires_grad in FLAGS:
        result, gradient = program.value_and_grad()
        assert (result, gradient.tolist()) == eager(lambda: a * b + b, [a, b])
        a.grad = b.grad = 0.0
        program()
        assert [a.grad, b.grad] == gradient.tolist()


def test_a_function(options):
    a, b = Value(2.0), Value(3.0)
    program = compile(lambda x: a * b * x + b, wrt=[a, b], **options)
    for a.requires_grad, b.requires_grad in FLAGS:
        expected = eager(lambda: a * b * 2.0 + b, [a, b])
        result, gradient = program.value_and_grad(2.0)
        assert (result, gradient.tolist()) == expected
        result, gradient = program.batch_value_and_grad([2.0, 2.0])
        assert (result, gradient.tolist()) == expected


def test_the_paths_of_a_function_that_branches(options):
    a, b = Value(2.0), Value(3.0)
    program = compile(lambda x: a * b * x if x > 0 else a * b * x * 2.0, wrt=[a, b], **options)
    b.requires_grad = False
    program(1.0)  # one path is traced while b is frozen, the other when it is not
    b.requires_grad = True
    result, gradient = program.batch_value_and_grad([1.0, -1.0], reduce="sum")
    assert (result, gradient.tolist()) == (-6.0, [-3.0, -2.0])


def test_training(options):
    a, b = Value(2.0), Value(3.0)
    program = compile(lambda x: (a * b * x - 1.0) ** 2, wrt=[a, b], **options)
    b.requires_grad = False
    program(1.0)
    b.requires_grad = True
    program.train(optim.SGD([a, b], lr=0.01), [1.0])
    assert [a.data, b.data] == pytest.approx([1.7, 2.8], rel=1e-6)


def test_without_wrt_it_is_what_is_not_frozen(options):
    a, b = Value(2.0), Value(3.0)
    function, graph = compile(lambda x: a * b * x, **options), compile(a * b, **options)
    function(1.0)
    a.requires_grad = False
    assert function.value_and_grad(1.0)[1].tolist() == graph.value_and_grad()[1].tolist() == [2.0]
    assert function.wrt == graph.wrt == [b]
    Value(1.0).requires_grad = False  # another one: nothing is out of date
    assert function.wrt == [b]
    a.requires_grad = True
    assert function.value_and_grad(1.0)[1].tolist() == graph.value_and_grad()[1].tolist() == [3.0, 2.0]


def test_a_state_may_freeze(options):
    a, b = Value(2.0), Value(3.0)
    b.requires_grad = False
    state, twin = b.__reduce__()[2], Value(3.0)
    program = compile(lambda x: a * twin * x, wrt=[a, twin], **options)
    assert program.value_and_grad(1.0)[1].tolist() == [3.0, 2.0]
    twin.__setstate__(state)
    assert program.value_and_grad(1.0)[1].tolist() == [3.0, 0.0]
    twin.__setstate__(Value(3.0).__reduce__()[2])
    assert program.value_and_grad(1.0)[1].tolist() == [3.0, 2.0]


def test_what_is_frozen_in_turn_is_compiled_once(options):
    """As where two networks are trained against each other."""
    a, b = Value(2.0), Value(3.0)
    function, graph = compile(lambda x: a * b * x, wrt=[a, b], **options), compile(a * b, wrt=[a, b], **options)
    codes = set()
    for k in range(12):
        a.requires_grad, b.requires_grad = k % 2 == 0, k % 2 == 1
        expected = [0.0, 2.0] if k % 2 else [3.0, 0.0]
        assert function.value_and_grad(1.0)[1].tolist() == graph.value_and_grad()[1].tolist() == expected
        codes.add(graph.code)
    assert len(codes) == 2
    assert len(function._source.programs) == 2


def test_other_values_are_no_reason_to_compile_again(options):
    a, other = Value(2.0), Value(3.0)
    program = compile(lambda x: a * x, **options)
    program(1.0)
    kept = program._traces.by_structure.copy()
    other.requires_grad = False
    program(1.0)
    assert program._traces.by_structure == kept
    assert len(program._source.programs) == 1


def test_what_is_shown_is_what_runs(options):
    a, b = Value(2.0), Value(3.0)
    program = compile(a * b, wrt=[a, b], **options)
    before = program.describe()
    b.requires_grad = False
    assert program.describe() != before or options.get("strict")
    b.requires_grad = True
    assert program.describe() == before
    assert np.isfinite(program.stats["bytes"])
    assert "digraph" in chainrule.draw(program).dot
