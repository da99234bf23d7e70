"""Copies and pickles: leaves and what holds them can be copied, graphs cannot; an engine reads what the other wrote."""

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


@every_way
def test_a_computed_value_is_refused_whatever_its_size(Value, way):
    node = Value(1.0)
    for _ in range(100_000):
        node = node + 1.0
    with pytest.raises(TypeError, match=r"a Value that was computed cannot be copied or pickled.*take its \.data"):
        way(node)
    assert way(Value(node.data)).data == 100_001.0


@every_way
def test_a_hand_written_op_is_refused_too(Value, way):
    node = Value(1.0)
    node._backward = lambda: None
    with pytest.raises(TypeError, match="a Value that was computed cannot be copied or pickled"):
        way(node)


@deep_ways
def test_many_leaves_are_no_depth(Value, way):
    leaves = way([Value(float(k)) for k in range(100_000)])
    assert [leaf.data for leaf in leaves[:: 10**4]] == [1e4 * k for k in range(10)]


@deep_ways
def test_a_model_that_keeps_a_result_says_so(way):
    model = nn.Neuron(1)
    model.latest = model([1.0])
    with pytest.raises(TypeError, match="a Value that was computed cannot be copied or pickled"):
        way(model)


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
        with pytest.raises(multiprocessing.pool.MaybeEncodingError, match="a Value that was computed cannot be"):
            pool.map(model, inputs)
        pool.close()
        pool.join()
    assert answers == [(model(x).data, x[0] ** 2) for x in inputs]
