"""Copies and pickles: of leaves and what holds them; `deepcopy` copies graphs; an engine reads what the other wrote."""

import copy
import multiprocessing
import multiprocessing.pool
import os
import pickle
import subprocess
import sys

import pytest

import chainrule
from chainrule import Value as ActiveValue
from chainrule import data, losses, nn, optim
from engines import ENGINES

WAYS = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda thing: pickle.loads(pickle.dumps(thing))}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
deep_ways = pytest.mark.parametrize("way", list(WAYS.values())[1:], ids=list(WAYS)[1:])


class Named(ActiveValue):
    """Takes other arguments than a Value."""

    def __init__(self, name):
        super().__init__(1.5)
        self.name = name


class Slotted(ActiveValue):
    __slots__ = ("__private", "name", "never")

    def __init__(self, name):
        super().__init__(2.5)
        self.name = name
        self.__private = [name]
        self.note = "in the dict"

    def private(self):
        return self.__private


class Deciding(ActiveValue):
    """Says itself how it is pickled."""

    def __init__(self, name, steps=0):
        super().__init__(1.5)
        self.name, self.steps = name, steps

    def __reduce__(self):
        return Deciding, (self.name, self.steps + 1)


class Tied(nn.Module):
    def __init__(self):
        self.first = ActiveValue(2.0)
        self.second = [self.first, {"third": self.first}]

    def __call__(self, x):
        return self.first * x + self.second[0]


@chainrule.compile
def square(x):
    return x * x


@every_way
def test_a_leaf_is_copied_with_all_that_it_shows(Value, way):
    leaf = Value(2.0, label="w")
    leaf.grad = -0.0
    leaf.requires_grad = False
    twin = way(leaf)
    assert type(twin) is Value
    assert twin is not leaf
    assert repr(twin) == repr(leaf) == "Value(data=2.0, grad=-0.0, label='w')"
    assert not twin.requires_grad
    twin.data = 3.0
    assert leaf.data == 2.0


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_float_survives_every_protocol(Value, protocol):
    for number in (0.1, -0.0, 5e-324, float("inf"), float("-inf")):
        assert pickle.loads(pickle.dumps(Value(number), protocol)).data.hex() == number.hex()
    assert repr(pickle.loads(pickle.dumps(Value(float("nan")), protocol)).data) == "nan"


@every_way
def test_a_copy_is_younger_than_all_before_it(Value, way):
    """So that what is made of it can be differentiated in order of age."""
    leaf = Value(3.0)
    later = leaf * 1.0
    twin = way(leaf)
    assert twin._serial > later._serial
    (twin * twin + leaf).backward()
    assert (twin.grad, leaf.grad) == (6.0, 1.0)


@every_way
def test_a_subclass_keeps_its_attributes(way):
    twin = way(Named("w"))
    assert (type(twin), twin.name, twin.data) == (Named, "w", 1.5)


@every_way
def test_the_slots_of_a_subclass_are_copied_too(way):
    original = Slotted("w")
    twin = way(original)
    assert (type(twin), twin.data, twin.name, twin.private(), twin.note) == (Slotted, 2.5, "w", ["w"], "in the dict")
    assert not hasattr(twin, "never")
    assert (twin.private() is original.private()) == (way is copy.copy)
    twin.name = "other"
    assert original.name == "w"


@every_way
def test_a_subclass_may_say_how_it_is_copied(way):
    twin = way(Deciding("w"))
    assert (type(twin), twin.name, twin.steps) == (Deciding, "w", 1)


@every_way
def test_attributes_are_copied(Value, way):
    leaf = Value(2.0)
    leaf.m, leaf.history = 0.5, [1.0]
    twin = way(leaf)
    assert vars(twin) == {"m": 0.5, "history": [1.0]}
    twin.m = 1.0
    assert leaf.m == 0.5
    assert (twin.history is leaf.history) == (way is copy.copy)
    assert vars(way(Value(1.0))) == {}


@deep_ways
def test_leaves_that_refer_to_each_other_stay_together(Value, way):
    a, b = Value(1.0), Value(2.0)
    a.other, b.other = b, [a]
    twin = way(a)
    assert twin.other is not b
    assert twin.other.data == 2.0
    assert twin.other.other[0] is twin


@deep_ways
def test_what_is_shared_stays_shared(way):
    model = way(Tied())
    assert model.first is model.second[0] is model.second[1]["third"]
    model(5.0).backward()
    assert model.first.grad == 6.0
    network, optimizer = way(
        (network := nn.MLP(2, [3, 1], activation="tanh", rng=1), optim.Adam(network.parameters(), lr=0.1))
    )
    before = network.state()
    losses.mean_square([network(x) for x, _ in data.xor()], data.xor().targets).backward()
    optimizer.step()
    assert all(before[name] != number for name, number in network.state().items() if name.endswith(".b"))


@deep_ways
def test_a_copied_network_is_the_same_function_and_another_network(way):
    model = nn.Sequential(nn.MLP(2, [4, 3], activation="tanh", rng=1), nn.Layer(3, 1, activation="sigmoid", rng=2))
    twin = way(model)
    assert twin.state() == model.state()
    assert twin([0.5, -1.0]).data == model([0.5, -1.0]).data
    twin([0.5, -1.0]).backward()
    assert all(parameter.grad == 0.0 for parameter in model.parameters())
    assert any(parameter.grad != 0.0 for parameter in twin.parameters())


@pytest.mark.parametrize("way", [WAYS["copy"], WAYS["pickle"]], ids=["copy", "pickle"])
def test_a_computed_value_is_not_copied_without_its_graph_nor_pickled(Value, way):
    node = Value(1.0)
    for _ in range(100_000):
        node = node + 1.0
    with pytest.raises(TypeError, match=r"computed cannot be pickled or copied by itself.*copy\.deepcopy.*its \.data"):
        way(node)
    assert way(Value(node.data)).data == 100_001.0


@pytest.mark.slow
def test_deepcopy_copies_a_graph_of_any_depth(Value):
    x, y = Value(0.5, label="x"), Value(1.5)
    y.requires_grad = False
    node = x
    for k in range(25_000):
        node = (node * y + x).tanh() - 0.25
        node.label = f"step {k}"
    node.backward()
    twin_x, twin = copy.deepcopy((x, node))
    assert (twin.data, twin.label, twin_x.grad, twin_x.label) == (node.data, "step 24999", x.grad, "x")
    pairs = [(node, twin)]
    for _ in range(100_000):
        old, new = pairs[-1]
        assert old is not new
        for name in ("data", "grad", "label", "requires_grad", "_op", "_rule", "_constant"):
            assert getattr(new, name) == getattr(old, name)
        assert [o._constant for o in new._operands] == [o._constant for o in old._operands]
        pairs.append((old._operands[0], new._operands[0]))
    assert pairs[-1] == (x, twin_x)
    before = x.grad
    twin_x.grad = 0.0
    twin.backward()
    assert (twin_x.grad, x.grad) == (before, before)


def test_a_copied_graph_computes_with_the_copied_leaves(Value):
    a, b = Value(2.0), Value(-3.0)
    cube = chainrule.ops.Op("cube", lambda x: x * x * x, (lambda out, x: 3.0 * x * x,))
    out = Value._apply(cube, (a,)) + a.clip(b, 5.0) * b + Value(7.0, (a, b, a), "by hand", "made")
    memo = {}
    leaves, twin = copy.deepcopy(([a, b], out), memo)
    assert copy.deepcopy(out, memo) is twin
    twin.backward()
    assert [leaf.grad for leaf in leaves] == [12.0 - 3.0, 2.0]
    assert [a.grad, b.grad, out.grad] == [0.0, 0.0, 0.0]
    leaves[0].data = 4.0  # partial derivatives are taken where the leaves are
    for leaf in leaves:
        leaf.grad = 0.0
    twin.backward()
    assert leaves[0].grad == 48.0 - 3.0
    assert (twin * 2.0)._operands[0] is twin


def test_attributes_of_a_graph_refer_to_its_copy(Value):
    parameters = [Value(float(k)) for k in range(1000)]
    loss = sum(parameters, Value(0.0))
    for parameter in parameters:
        parameter.loss = loss
    loss.parameters = parameters
    twin = copy.deepcopy(loss)
    assert all(parameter.loss is twin for parameter in twin.parameters)
    assert twin.parameters[7] is not parameters[7]
    twin.backward()
    assert {parameter.grad for parameter in twin.parameters} == {1.0}
    assert {parameter.grad for parameter in parameters} == {0.0}


def test_nodes_of_a_subclass_are_copied_with_their_graph(Value):
    class Square(Value):
        def __init__(self, x):
            super().__init__(x.data**2, (x,), "square")
            self.x = x

        def _backward(self):
            self.x.grad += 2 * self.x.data * self.grad

    class Counted(Value):
        copies = 0

        def __reduce__(self):
            Counted.copies += 1
            return Counted, (self.data,)

    x, w = Value(3.0), Counted(2.0)
    x, w, twin = copy.deepcopy((x, w, Square(x) * w + w))
    assert (type(w), Counted.copies, type(twin._operands[0]._operands[0])) == (Counted, 1, Square)
    twin.backward()
    assert (x.grad, w.grad) == (12.0, 10.0)


def test_a_graph_is_copied_inside_no_grad_and_unseen_by_detect_anomaly():
    x = ActiveValue(0.0)
    out = x.log() * 2.0
    with chainrule.no_grad(), chainrule.detect_anomaly():
        twin = copy.deepcopy(out)
    assert [node._op for node in (twin, *twin._operands)] == ["*", "log", ""]


@every_way
def test_a_hand_written_op_is_refused(Value, way):
    x = Value(1.0)
    for node in (Value(1.0), Value(2.0, (x,), "by hand")):
        node._backward = lambda: None
        with pytest.raises(TypeError, match=r"a Value (that was computed|with a `_backward` of its own) cannot be"):
            way(node)
    with pytest.raises(TypeError, match="a Value with a `_backward` of its own cannot be copied, because that"):
        copy.deepcopy(node * 2.0)


@pytest.mark.slow
@deep_ways
def test_many_leaves_are_no_depth(Value, way):
    leaves = way([Value(float(k)) for k in range(100_000)])
    assert [leaf.data for leaf in leaves[:: 10**4]] == [1e4 * k for k in range(10)]


def test_a_model_that_keeps_a_result_is_copied_with_its_graph_and_not_pickled():
    model = nn.Neuron(2, activation="tanh", rng=1)
    model.out = model([1.0, 2.0])
    twin = copy.deepcopy(model)
    assert twin.out.data == model.out.data
    twin.out.backward()
    assert all(parameter.grad == 0.0 for parameter in model.parameters())
    model.out.backward()
    assert [p.grad for p in twin.parameters()] == [p.grad for p in model.parameters()]
    assert twin.b.grad == pytest.approx(1.0 - twin.out.data**2)
    with pytest.raises(TypeError, match="a Value that was computed cannot be pickled"):
        pickle.dumps(model)


def test_a_pickle_does_not_name_the_engine():
    assert b"_native" not in pickle.dumps(nn.MLP(2, [2, 1]))
    assert b"chainrule.engine" not in pickle.dumps(nn.MLP(2, [2, 1]))


@pytest.mark.skipif(len(ENGINES) < 2, reason="needs both engines")
@pytest.mark.parametrize(("writer", "reader"), [("native", "python"), ("python", "native")])
def test_an_engine_reads_what_the_other_wrote(tmp_path, writer, reader):
    write = (
        "import pickle, chainrule\n"
        "from chainrule import Value, nn\n"
        "frozen = Value(-0.1, label='f'); frozen.requires_grad = False; frozen.grad = 0.25\n"
        "model = nn.MLP(2, [3, 1], activation='tanh', rng=1)\n"
        "pickle.dump((model, [frozen, frozen], model([0.5, -1.0]).data), open('file', 'wb'))\n"
    )
    read = (
        "import pickle, chainrule\n"
        "model, (frozen, again), answer = pickle.load(open('file', 'rb'))\n"
        "assert type(frozen) is chainrule.Value and frozen is again\n"
        "assert repr(frozen) == \"Value(data=-0.1, grad=0.25, label='f')\" and not frozen.requires_grad\n"
        "result = model([0.5, -1.0]); result.backward()\n"
        "assert result.data == answer and type(result) is chainrule.Value\n"
        "print(chainrule.ENGINE)\n"
    )
    for engine, code in ((writer, write), (reader, read)):
        environment = {**os.environ, "CHAINRULE_ENGINE": engine}
        command = [sys.executable, "-W", "ignore::ResourceWarning", "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.stderr == ""
    assert done.stdout == f"{reader}\n"


def test_damaged_states_are_refused(Value):
    for state in (None, (), (1.0,), ("1", 0.0, "", None, True), (1.0, 0.0, 7, None, True), (1.0, None, "", None, True)):
        with pytest.raises((TypeError, ValueError)):
            Value(0.0).__setstate__(state)


@deep_ways
def test_programs_are_refused(way):
    x = ActiveValue(2.0)
    program = chainrule.compile(x * x)
    with pytest.raises(TypeError, match=r"a compiled graph belongs to the Values.*compile its loss again"):
        way(program)


@every_way
def test_compiled_functions_are_copied_as_functions_are(way):
    assert way(square) is square
    assert way(square)(3.0) == 9.0


def answer(model, x):
    return model(x).data, square(x[0])


@pytest.mark.slow
def test_a_model_goes_to_another_process():
    model = nn.MLP(2, [3, 1], activation="tanh", rng=1)
    inputs = [[0.5, -1.0], [2.0, 0.0]]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        answers = pool.starmap(answer, [(model, x) for x in inputs])
        with pytest.raises(multiprocessing.pool.MaybeEncodingError, match="that was computed cannot be pickled"):
            pool.map(model, inputs)
        pool.close()
        pool.join()
    assert answers == [(model(x).data, x[0] ** 2) for x in inputs]
