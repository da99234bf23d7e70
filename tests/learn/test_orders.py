"""Nodes that speak in any order: the gradients, what is said about them, and how many orders are right."""

import json
import random
from itertools import permutations

import pytest

from chainrule.learn import orders
from chainrule.learn.course import fill
from chainrule.learn.lesson_files import load_course
from chainrule.learn.orders import count_orders, order_json
from learner import OWN

COURSE = load_course()
LESSON = "a = Value(3.0)\ns = a + a\nu = s + 1\nv = u + 1\nL = s + v\nL"
SOLUTIONS = {name: exercise.solution for name, exercise in COURSE.exercises.items()}
LENT = fill(COURSE.templates["Value"], "", SOLUTIONS).text
STYLED = fill(COURSE.templates["Value"], "", SOLUTIONS | OWN).text
BARE = """
class Value:
    def __init__(self, data, made_from=()):
        self.data, self.grad, self._prev, self._backward = data, 0, {prev}, lambda: None

    def __add__(mine, its):
        its = its if isinstance(its, Value) else Value(its)
        out = Value(mine.data + its.data, (mine, its))

        def _backward():
            mine.grad += out.grad
            its.grad += out.grad

        out._backward = _backward
        return out
"""
CLASSES = {
    "chainrule's": "",
    "the course's": LENT,
    "a learner's": STYLED,
    "no label, a list": BARE.replace("{prev}", "list(made_from)"),
    "no label, a set": BARE.replace("{prev}", "set(made_from)"),
}


def play(names, code=LESSON, own=LENT):
    """The reply for nodes that speak in this order, given by their names."""
    start = json.loads(order_json(code, own))
    assert start["error"] is None
    index = {node["name"]: i for i, node in enumerate(start["graph"]["nodes"])}
    return json.loads(order_json(code, own, json.dumps([index[name] for name in names.split()])))


def grads(reply):
    """The gradients in the end, by name."""
    nodes = [node["name"] for node in reply["graph"]["nodes"]]
    pairs = zip(nodes, reply["turns"][-1]["grads"], strict=True)
    return {name: float(grad["exact"]) for name, grad in pairs if grad}


def names_of(reply, order):
    return " ".join(reply["graph"]["nodes"][i]["name"] for i in order)


# The gradients.


@pytest.mark.parametrize("own", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize(("order", "a", "s"), [("L s v u", 2, 2), ("L s v u s", 6, 2), ("L v u s", 4, 2), ("s", 0, 0)])
def test_the_order_decides_what_comes_out(own, order, a, s):
    reply = play(order, own=own)
    assert reply["error"] is None
    assert (grads(reply)["a"], grads(reply)["s"]) == (a, s)


EDGES = {"L": "sv", "v": "u", "u": "s", "s": "aa"}  # of sums: everybody passes on what they have


def simulated(order):
    held = dict.fromkeys("asuvL", 0) | {"L": 1}
    for name in order:
        for operand in EDGES[name]:
            held[operand] += held[name]
    return held


def test_all_orders_of_the_lessons_graph():
    right = []
    for order in permutations("Lsuv"):
        reply = play(" ".join(order))
        assert grads(reply) == simulated(order)
        wrong = [reply["graph"]["nodes"][i]["name"] for i in reply["verdict"]["wrong"]]
        assert set(wrong) == {name for name, grad in simulated(order).items() if grad != simulated("Lvus")[name]}
        assert (not wrong) == (not any(turn["mark"] for turn in reply["turns"]))
        right += [] if wrong else [order]
    assert right == [tuple("Lvus")]


def test_the_impatient_and_the_right_order():
    reply = play("")
    assert names_of(reply, reply["impatient"]) == "L s v u"
    assert names_of(reply, reply["patient"]) == "L v u s"
    assert reply["turns"] == []
    assert reply["verdict"] is None


def test_indices_mean_the_same_in_every_call():
    """Operands are in a set, which is in another order at other addresses."""
    code = "xs = [Value(float(i)) for i in range(6)]\nr = ((xs[0] + xs[1]) + (xs[2] + xs[3])) + (xs[4] + xs[5])\nr"
    own, kept = CLASSES["no label, a set"], []
    drawn = set()
    for _ in range(20):
        kept.append([bytearray(random.randrange(1, 2000)) for _ in range(50)])  # moves what is built next
        drawn.add(json.dumps(json.loads(order_json(code, own))["graph"]))
    assert len(drawn) == 1


def test_products_and_the_steps_that_are_drawn():
    reply = play("L p", "a, b = Value(-2.0, label='a'), Value(3.0, label='b')\np = a * b\nL = p * p\nL")
    assert grads(reply) == {"a": -36, "b": 24, "p": -12, "L": 1}
    assert [step["kind"] for turn in reply["turns"] for step in turn["steps"]] == ["backward"] * 4
    assert reply["turns"][1]["words"] == "p spoke with -12: a got -36 and b got 24."


# In words.


def said(order, *arguments):
    return [turn["words"] for turn in play(order, *arguments)["turns"]]


def test_an_impatient_order_in_words():
    assert said("L s v u s") == [
        "L passed its 1 on to s and to v.",
        "s passed its 1 on to a, twice. s has heard from L only: u has not spoken.",
        "v passed its 1 on to u.",
        "u passed its 1 on to s. s has spoken already: this goes no further, unless it speaks again.",
        "s passed its 2 on to a, twice. "
        "This was its second time: it passed on all that it holds, also what it had passed on before.",
    ]
    assert [turn["mark"] for turn in play("L s v u s")["turns"]] == ["", "too early", "", "", "too early, twice"]
    verdicts = [play(order)["verdict"]["words"] for order in ("L s v u", "L s v u s")]
    assert [words.partition(": ")[2] for words in verdicts] == ["a has 2, not 4.", "a has 6, not 4."]


def test_a_right_order_in_words():
    reply = play("L v u s")
    assert [turn["mark"] for turn in reply["turns"]] == [""] * 4
    assert "every gradient is right. Of the 24 orders in which 4 nodes can speak" in reply["verdict"]["words"]
    assert "only one lets" in reply["verdict"]["words"]


def test_who_has_heard_nothing_passes_on_nothing():
    first, *_, last = play("s L v u s")["turns"]
    assert first["words"] == "s passed on 0. s has heard nothing yet: L and u have not spoken."
    assert last["words"] == "s passed its 2 on to a, twice. This was its second time: it had 0 before."
    assert (first["mark"], last["mark"]) == ("heard nothing", "heard nothing, twice")


def test_being_out_of_turn_may_make_no_difference():
    words = play("s L v u s")["verdict"]["words"]
    assert words.endswith("every gradient is right, although s spoke out of turn: here it made no difference.")


def test_a_node_that_passes_nothing_on():
    code = "x = Value(-2.0, label='x')\nr = x.relu()\ny = r * 3\ny"
    assert said("y r", code)[1] == "r spoke with 3, and nothing changed."


def test_several_orders_are_counted():
    code = "a = Value(1.0, label='a')\nx = a * 2\ny = a * 3\nz = a * 4\nt = x + y\nL = t + z\nL"
    assert (
        "Of the 120 orders in which 5 nodes can speak once each, 8 let" in play("L z t x y", code)["verdict"]["words"]
    )


def test_orders_are_not_counted_without_end(monkeypatch):
    monkeypatch.setattr(orders, "MOST_STATES", 3)
    words = play("L v u s")["verdict"]["words"]
    assert words == "Everybody has spoken, and every gradient is right."


# Counting.


def brute_force(users):
    return sum(
        all(order.index(user) < order.index(node) for node in users for user in users[node])
        for order in permutations(users)
    )


def random_users(seed):
    draw = random.Random(seed)
    size = draw.randrange(1, 7)
    names = draw.sample(range(100), size)
    return {name: [other for other in names[:k] if draw.random() < 0.4] for k, name in enumerate(names)}


SHAPES = {
    "one node": {0: []},
    "a chain": {0: [], 1: [0], 2: [1], 3: [2], 4: [3]},
    "a diamond": {0: [], 1: [0], 2: [0], 3: [1, 2]},
    "two diamonds": {0: [], 1: [0], 2: [0], 3: [1, 2], 4: [3], 5: [3], 6: [4, 5]},
    "the lesson's": {"L": [], "v": ["L"], "u": ["v"], "s": ["L", "u"]},
    "a fan": {0: [], **{k: [0] for k in range(1, 6)}},
    "used twice by one": {0: [], 1: [0, 0]},
    **{f"random {seed}": random_users(seed) for seed in range(12)},
}


@pytest.mark.parametrize("users", SHAPES.values(), ids=SHAPES)
def test_orders_are_counted_as_by_trying_all(users):
    assert count_orders(users) == brute_force(users)


def test_counting_gives_up_in_time():
    assert count_orders({0: [], **{k: [0] for k in range(1, 200)}}) is None
    assert count_orders({k: [k - 1] if k else [] for k in range(300)}) == 1


# What cannot be played.


def test_an_error_in_a_learners_backward_ends_the_turns_there():
    own = LENT.replace("self.grad += out.grad\n            other.grad += out.grad", "raise ValueError('not today')")
    assert own != LENT
    reply = play("L v", "a = Value(1.0)\nv = a * 2\nL = v * 3\nL", own)
    assert reply["error"] is None
    reply = play("L v u", own=own)
    assert reply["turns"] == []
    assert reply["error"]["text"] == "ValueError: not today."
    assert reply["graph"] is not None


@pytest.mark.parametrize(
    ("code", "own", "order", "text"),
    [
        ("a = ", "", "[]", "SyntaxError"),
        ("a = 1", "", "[]", "last line"),
        ("Value(1.0)", "", "[]", "must be the result of an operation"),
        ("a = Value(1.0)\na + a", "", "[0]", "was not made by an operation"),
        ("a = Value(1.0)\na + a", "", "[7]", "was not made by an operation"),
        ("a = Value(1.0)\na + a", "class Value:\n    pass", "[]", "TypeError"),
    ],
)
def test_what_cannot_be_played_is_an_error(code, own, order, text):
    reply = json.loads(order_json(code, own, order))
    assert text in reply["error"]["text"]
    assert reply["turns"] == []


def test_two_errors_that_cancel_are_not_called_harmless():
    """Too early gives 2, twice gives 6; too early and twice at once gives 4."""
    words = play("L s s v u")["verdict"]["words"]
    assert "two errors have cancelled" in words
    assert "no difference" not in words


@pytest.mark.parametrize("sign", ["=", "-="])
def test_a_class_whose_closures_are_wrong_is_not_the_measure(sign):
    add = f"def _backward():\n    self.grad {sign} out.grad\n    other.grad {sign} out.grad"
    reply = play("L v u s", own=fill(COURSE.templates["Value"], "", SOLUTIONS | {"add": add}).text)
    assert "the gradients are wrong" in reply["verdict"]["words"]
    assert "a `_backward` of this class does not do what the derivatives say" in reply["verdict"]["words"]
