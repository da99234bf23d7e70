"""Named tuples, dicts and arrays go through everything that takes numbers apart and puts them together again."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import chainrule
from chainrule import Value, compile, gradcheck
from chainrule.core.structure import ARRAY, NUMBER, Keys, build, difference, flatten, places

Point = namedtuple("Point", "x y")
Pair = namedtuple("Pair", "first second")

STRUCTURES = {
    "a list": [2.0, 3.0],
    "a tuple": (2.0, 3.0),
    "a named tuple": Point(2.0, 3.0),
    "a dict": {"y": 2.0, "x": 3.0},
    "an OrderedDict": OrderedDict(y=2.0, x=3.0),
    "an array": np.array([2.0, 3.0]),
    "a nest of them": Pair(Point(2.0, {"b": 3.0, "a": np.array([4.0])}), OrderedDict(b=(5.0,), a=[6.0])),
}
every_structure = pytest.mark.parametrize("name", STRUCTURES)


def numbers(thing):
    leaves = []
    flatten(thing, leaves, lambda leaf: leaf)
    return leaves


def weighed(thing):
    """A number that depends on where each number stands."""
    return sum((k + 1.0) * x * x for k, x in enumerate(numbers(thing)))


def doubled(thing):
    """The same structure, of doubled numbers."""
    leaves = []
    structure = flatten(thing, leaves, lambda leaf: leaf)
    return build(structure, iter([2.0 * x for x in leaves]))


def stacked(structure):
    """The structure of a batch of two: a leading axis for each number or array."""
    if structure == NUMBER:
        return ARRAY, (2,)
    kind, parts = structure
    return (ARRAY, (2, *parts)) if kind == ARRAY else (kind, tuple(map(stacked, parts)))


def assert_doubled(result, thing):
    leaves = []
    structure = flatten(thing, leaves, float)
    found = []
    assert flatten(result, found, float) == structure
    assert found == [2.0 * x for x in leaves]


@every_structure
def test_transforms(name):
    given = STRUCTURES[name]
    gradient = chainrule.grad(weighed)(given)
    expected = [2.0 * (k + 1.0) * x for k, x in enumerate(numbers(given))]
    assert (type(gradient), numbers(gradient)) == (type(given), expected)
    value, change = chainrule.jvp(doubled, (given,), (given,))
    assert_doubled(value, given)
    assert_doubled(change, given)
    value, pull = chainrule.vjp(doubled, given)
    assert_doubled(pull(given)[0], given)


@every_structure
def test_gradcheck(name):
    report = gradcheck(weighed, STRUCTURES[name])
    assert report.ok
    assert len(report) == len(numbers(STRUCTURES[name]))


def test_gradcheck_names_what_it_checks():
    nest = STRUCTURES["a nest of them"]
    names = ["p.first.x", "p.first.y['b']", "p.first.y['a'][0]", "p.second['b'][0]", "p.second['a'][0]"]
    assert [row.name for row in gradcheck(lambda p: weighed(p), nest)] == names
    kinds = []
    gradcheck(lambda p: kinds.append(type(p)) or p.x * p.y, Point(Value(2.0), 3.0))
    assert set(kinds) == {Point}


@every_structure
@pytest.mark.parametrize("backend", ["llvm", "interpreter", "jax", "xla"])
def test_compiled_functions(name, backend):
    if backend in ("jax", "xla"):
        pytest.importorskip("jax")
    given = STRUCTURES[name]
    program = compile(doubled, backend=backend)
    assert_doubled(program(given), given)
    found = []
    result = program.batch([given, given], reduce=None)
    assert flatten(result, found, float) == stacked(flatten(given, [], float))
    assert sorted(found) == sorted(2.0 * x for x in numbers(given) * 2)


@every_structure
def test_functions_for_jax(name):
    jax = pytest.importorskip("jax")
    given = STRUCTURES[name]
    f = compile(doubled).to_jax(given)
    for call in (f, jax.jit(f)):
        result = call([], given)  # whose dicts may be in JAX's order
        assert jax.tree.structure(result) == jax.tree.structure(given)
        jax.tree.map(lambda ours, x: np.testing.assert_array_equal(ours, 2.0 * x), result, given)


def test_dicts_for_jax_go_by_their_keys():
    jax = pytest.importorskip("jax")
    f = compile(lambda d: 10.0 * d["b"] + d["a"])
    one = f.to_jax({"b": 0.0, "a": 0.0})
    many = f.to_jax({"b": 0.0, "a": 0.0}, examples=2)
    for given in ({"b": 2.0, "a": 3.0}, {"a": 3.0, "b": 2.0}):
        assert float(one([], given)) == float(jax.jit(one)([], given)) == f(given) == 23.0
        assert float(many([], {key: np.full(2, number) for key, number in given.items()})) == 23.0


@every_structure
def test_sharded_batches(name):
    pytest.importorskip("jax")
    given = STRUCTURES[name]
    expected = compile(doubled).batch([given, given], reduce=None)
    found = compile(doubled, backend="jax").shard("all").batch([given, given], reduce=None)
    left, right = [], []
    assert flatten(found, left, float) == flatten(expected, right, float)
    assert left == right


def test_predictions_of_a_compiled_fit_are_what_the_model_returns():
    seen = set()

    class Model(chainrule.nn.Module):
        def __init__(self):
            self.w = Value(0.5)

        def __call__(self, x):
            return Point(self.w * x[0], self.w)

    def loss(predictions, targets):
        return sum((p.x - t) ** 2 for p, t in zip(predictions, targets, strict=True)) / len(targets)

    def error(predictions, targets):
        seen.update(map(type, predictions))
        return sum(abs(p.x.data - t) for p, t in zip(predictions, targets, strict=True))

    points = chainrule.data.Dataset([[1.0], [2.0]], [2.0, 4.0])
    optimizer = chainrule.optim.SGD
    for compiled in (False, True):
        model = Model()
        options = {"optimizer": optimizer(model.parameters(), lr=0.1), "epochs": 3, "metrics": {"error": error}}
        chainrule.fit(model, loss, points, **options, compiled=compiled, progress=False)
    assert seen == {Point}


def test_where_numbers_stand():
    structure = (Point, (NUMBER, (Keys(("a",)), ((ARRAY, (1, 2)),))))
    assert places(structure, "p") == ["p.x", "p.y['a'][0][0]", "p.y['a'][0][1]"]
    assert difference((Point, (NUMBER, NUMBER)), (Point, (NUMBER, (list, ()))), "p") == (
        "p.y was a number and is a list of 0"
    )
    ordered = Keys(("a",), OrderedDict)
    assert difference((Keys(("a",)), (NUMBER,)), (ordered, (NUMBER,)), "p") == (
        "p was a dict of 'a' and is an OrderedDict of 'a'"
    )
