"""Graders: solutions pass, nothing else does, mistakes are understood, and no code of a learner's breaks them."""

import json
import math
import random
import sys

import pytest
import torch

import chainrule
from chainrule import closures, data
from chainrule.learn import grading, running
from chainrule.learn.course import Order, Predict, Stepper, fill
from chainrule.learn.explaining import explain
from chainrule.learn.grading import UNCHANGED, grade, grade_json, verify, with_fingerprints
from chainrule.learn.graphs import describe, steps_json
from chainrule.learn.lesson_files import load_course, read_course
from chainrule.stepping import steps as stepping

COURSE = load_course()
EXERCISES = COURSE.exercises
WRONG = [(name, k) for name, exercise in EXERCISES.items() for k in range(len(exercise.wrong))]


@pytest.fixture(scope="module")
def course_json():
    return grading.course_json(COURSE)


def whole(template, codes=None):
    """The names that a named template defines, with solutions in their places."""
    solutions = {name: exercise.solution for name, exercise in EXERCISES.items()}
    names = {"__name__": "learner"}
    exec(fill(COURSE.templates[template], "", solutions | (codes or {})).text, names)
    return names


@pytest.mark.parametrize("name", EXERCISES)
def test_every_solution_passes(name):
    report = grade(EXERCISES[name], EXERCISES[name].solution)
    assert report.passed, report
    assert report.rows
    assert report.message is None
    assert report.error is None


@pytest.mark.parametrize("name", EXERCISES)
def test_every_starter_fails_and_is_known(name):
    report = grade(EXERCISES[name], EXERCISES[name].starter + "\n# a comment changes nothing\n")
    assert not report.passed
    assert (report.message, report.error) == (UNCHANGED, None)


@pytest.mark.parametrize("other", ["tuple({})", "({} for _ in '1')", "map(id, {})", "set({})"])
@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("neuron", "self.w + [self.b]"),
        ("layer", "[neuron(x) for neuron in self.neurons]"),
        ("layer", "[p for neuron in self.neurons for p in neuron.parameters()]"),
    ],
)
def test_whatever_is_not_a_list_is_named(name, answer, other):
    report = grade(EXERCISES[name], EXERCISES[name].solution.replace(answer, other.format(answer)))
    assert not report.passed
    assert report.message.endswith("A list is asked for: write `[…]`, or `list(…)`.")


@pytest.mark.parametrize(("name", "k"), WRONG)
def test_every_wrong_answer_gets_its_own_message(name, k):
    wrong = EXERCISES[name].wrong[k]
    report = grade(EXERCISES[name], wrong.code)
    assert not report.passed
    assert report.message == wrong.message


@pytest.mark.parametrize("name", EXERCISES)
def test_wrong_answers_are_told_apart(name):
    known = [(wrong.fingerprint, wrong.has, wrong.lacks) for wrong in with_fingerprints(EXERCISES[name]).wrong]
    assert len(set(known)) == len(known)


def test_a_mistake_is_known_by_what_it_does():
    for code in (
        "def _backward():\n    self.grad = out.grad\n    other.grad = 1 * out.grad",
        "def push(node):\n    node.grad = out.grad\ndef _backward():\n    push(self); push(other)",
    ):
        assert grade(EXERCISES["add"], code).message.startswith("You wrote `=` where `+=` is meant")


def test_rows_say_what_was_got_and_expected_and_where():
    report = grade(EXERCISES["mul"], EXERCISES["mul"].wrong[0].code)
    row = next(row for row in report.rows if not row.right)
    assert (row.label, row.got, row.expected, row.node) == ("x.grad", "3", "6", "x")
    assert report.graphs[row.graph]["label"] == row.about == "y = x * x"
    assert any(node["name"] == "x" for node in report.graphs[row.graph]["nodes"])


def test_gradients_are_checked_to_seven_decimals():
    code = "def _backward():\n    self.grad += out.grad + {}\n    other.grad += out.grad"
    assert grade(EXERCISES["add"], code.format("1e-8")).passed
    assert not grade(EXERCISES["add"], code.format("1e-7")).passed


def test_the_learners_own_code_is_used():
    add = "def _backward():\n    self.grad += out.grad\n    other.grad += out.grad\n    seen.append(1)"
    code = "seen = []\n" + EXERCISES["diamond"].solution
    report = grade(EXERCISES["diamond"], code + "\nprint(len(seen))", {"add": add})
    assert report.passed
    assert report.output == "1\n"


def test_the_planted_bugs_hide_from_the_test_that_comes_with_them():
    for name in ("bug-one", "bug-three", "bug-four"):
        report = grade(EXERCISES[name], EXERCISES[name].starter)
        assert "2 of 2 derivatives agree" in report.output
        assert [(row.got, row.expected) for row in report.rows] == [("'passes'", "'complains'")]
        assert report.graphs == ()


@pytest.mark.parametrize(
    ("name", "old", "new", "found"),
    [
        ("bug-one", "(a * b).tanh() + b", "a.tanh() * b + a", "_backward (your_code.py:34) overwrites the gradient"),
        ("bug-three", "return (a * b) * (a + b)", "c = a * b; return c * (c * a + b)", "before it was complete"),
        ("bug-four", "at = 3.0, 1.0", "at = 3.0, 1.7", "should be"),
    ],
)
def test_the_tools_find_the_planted_bugs(name, old, new, found):
    starter = EXERCISES[name].starter
    assert old in starter
    report = grade(EXERCISES[name], starter.replace(old, new))
    assert "WRONG" in report.output
    assert found in report.output
    assert report.message.startswith("Your test catches the bug, and the bug is still there")


# Against oracles.


def test_the_learners_class_agrees_with_pytorch():
    Value = whole("Value")["Value"]
    rng = random.Random(0)

    def expression(a, b, c):
        d = (a * b + c).tanh() - a / (c * c + 1.0)
        e = (d * b).exp() + (c * c + 0.5).log() * d**3
        return 2.0 / (e * e + 1.0) + (a - d).relu() * 0.3 + (1.0 - e) ** 2 + (c * c + 1.0) ** (d * d)

    for _ in range(20):
        numbers = [rng.uniform(-1.5, 1.5) for _ in range(3)]
        own = [Value(number) for number in numbers]
        out = expression(*own)
        out.backward()
        oracle = [torch.tensor(number, dtype=torch.float64, requires_grad=True) for number in numbers]
        result = expression(*oracle)
        result.backward()
        assert out.data == pytest.approx(result.item(), rel=1e-12)
        assert [v.grad for v in own] == pytest.approx([t.grad.item() for t in oracle], rel=1e-10, abs=1e-12)


def test_the_learners_class_is_the_shipped_one():
    names = {name for name in vars(closures.Value) if not name.startswith("__") or name in ("__add__", "__rpow__")}
    own = whole("Value")["Value"]
    assert names <= set(vars(own))
    for x in (0.3, 2.0):
        results = []
        for Value in (own, closures.Value):
            a, b = Value(x), Value(-1.5)
            y = ((a * b).tanh() + a**3 - b / a).exp() + (a - b).relu()
            y.backward()
            results.append((y.data, a.grad, b.grad))
        assert results[0] == pytest.approx(results[1], rel=1e-14)  # sets leave the order of sums to chance


def test_the_losses_in_lesson_8_are_pytorchs():
    check = EXERCISES["train"].check
    expected = json.loads(check.split("expected = ")[1].split("\n")[0])
    weights = [torch.tensor(math.sin(k + 1.0), dtype=torch.float64, requires_grad=True) for k in range(11)]
    points = data.four_points()
    optimizer = torch.optim.SGD(weights, lr=0.05)
    for loss in expected:
        W, b = torch.stack(weights[:8]).reshape(2, 4), torch.stack(weights[8:])
        x = torch.tensor(points.inputs, dtype=torch.float64)
        hidden = torch.tanh(x @ W[:, :3].T + W[:, 3])
        outputs = torch.tanh(hidden @ b[:2] + b[2])
        result = ((outputs - torch.tensor(points.targets, dtype=torch.float64)) ** 2).sum()
        assert result.item() == pytest.approx(loss, abs=1e-9)
        optimizer.zero_grad()
        result.backward()
        optimizer.step()
    assert f"{weights[0].item():.10f}" in check


def test_the_learners_network_learns_the_four_points_and_xor():
    names = whole("Training")
    random.seed(1)
    points = data.four_points()
    model = names["MLP"](3, [4, 4, 1])
    assert len(model.parameters()) == 41
    losses = names["train"](model, points.inputs, points.targets, 50, 0.05)
    assert losses[0] > 1
    assert losses[-1] < 0.05
    xor = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    random.seed(3)
    losses = names["train"](names["MLP"](2, [4, 1]), xor, [-1.0, 1.0, 1.0, -1.0], 300, 0.1)
    assert losses[-1] < 0.1


def test_a_forgotten_zero_after_three_steps_is_threefold():
    Value = whole("Value")["Value"]
    w = Value(3.0)
    for _ in range(3):
        (w * 2.0).backward()
    assert w.grad == 6.0


# Errors point at the learner's line.


@pytest.mark.parametrize(
    ("code", "kind", "line", "column", "text"),
    [
        ("def _backward():\n    self.grad += (out.grad", "SyntaxError", 2, 18, "never closed"),
        ("def _backward(:\n    pass", "SyntaxError", 1, 15, "Python cannot read line 1"),
        ("def _backward():\npass", "IndentationError", 2, 1, "expected an indented block"),
        ("def _backward():\n    break", "SyntaxError", 2, 5, "'break' outside loop"),
        ("yield 1\ndef _backward():\n    a = 1\n    nonlocal a", "SyntaxError", 4, 5, "nonlocal"),
        ("def _backward():\n    self.grad += outt.grad", "NameError", 2, None, "Did you mean `out`?"),
        ("def _backward():\n    self.grda += out.grad", "AttributeError", 2, None, "Did you mean `grad`?"),
        ("def _backward():\n    self.grad += n", "NameError", 2, None, "'n' is not defined."),
        ("def _backward():\n    self.grad += exp(1)", "NameError", 2, None, "For a number it is `math.exp(…)`"),
        (
            "def _backward():\n    self.grad += math.exp(self)",
            "TypeError",
            2,
            None,
            "methods of its own, as in `x.tanh()`",
        ),
        ("def _backward():\n    other += out.grad", "UnboundLocalError", 2, None, "Is a field meant"),
        (
            "def _backward():\n    total += out.grad",
            "UnboundLocalError",
            2,
            None,
            "Give `total` a value before this line.",
        ),
        ("def _backward():\n    self.grad += thier.grad", "NameError", 2, None, "Did you mean `other`?"),  # not `their`
        ("def _backward():\n    self.grad += exponant", "NameError", 2, None, "'exponant' is not defined."),
        ("def _backward():\n    self.grad += ordr", "NameError", 2, None, "'ordr' is not defined."),
        ("def _backward():\n    self.grad += e(out.grad)", "NameError", 2, None, "The number is `math.e`."),
        ("def _backward():\n    self.grad += math.e(1)", "TypeError", 2, None, "this one is a number."),
        ("def _backward():\n    self.grad += cosh(1)", "NameError", 2, None, "For a number it is `math.cosh(…)`."),
        ("def _backward():\n    out.grad.append(1)", "AttributeError", 2, None, "'append'. It is a plain number."),
        ("def _backward():\n    self.gradient", "AttributeError", 2, None, "no attribute 'gradient'."),
        ("def _backward():\n    math.data", "AttributeError", 2, None, "module 'math' has no attribute 'data'."),
        (
            "def _backward():\n    self.data = self\n    (self * 2).tanh()",
            "RecursionError",
            3,
            None,
            "It happened in the code around yours",
        ),
        ("def _backward():\n    self.grad += out.grad.data", "AttributeError", 2, None, "a plain number already"),
        ("def _backward():\n    out.grad.tanh()", "AttributeError", 2, None, "only a Value has `tanh`"),
        ("def _backward():\n    self.grad ^ 2", "TypeError", 2, None, "A power is written `**`"),
        ("def _backward():\n    self.grad++", "SyntaxError", 2, 16, "Python has no `++`: write `+= 1`."),
        ("def _backward():\n    self.grad += 3out.grad", "SyntaxError", 2, 18, "Is a `*` missing"),
        ("def _backward():\n    self.grad += None", "TypeError", 2, None, "a function without `return`?"),
        ("def _backward():\n    1 / 0", "ZeroDivisionError", 2, None, "division by zero."),
        ("def _backward():\n    {}['x']", "KeyError", 2, None, "KeyError: x."),
        ("def back():\n    pass", "NameError", None, None, "code around yours, at `out._backward = _backward`"),
        ("", "NameError", None, None, "'_backward' is not defined"),
        ("def _backward():\n    print([1 2])", "SyntaxError", 2, 12, "Perhaps you forgot a comma?"),
        ("raise SystemExit", "SystemExit", 1, None, "called exit()"),
        ("exit(3)", "SystemExit", 1, None, "called exit()"),
        ("raise EOFError", "EOFError", 1, None, "asks for input()"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", 1, None, "took too long"),
        ("def f():\n    f()\nf()", "RecursionError", 2, None, "calls itself"),
        ("raise MemoryError", "MemoryError", 1, None, "ran out of memory"),
        ("x = 1\nraise BaseException('odd\\n  text')", "BaseException", 2, None, "odd text."),
        ("raise ExceptionGroup('several', [ValueError(1)])", "ExceptionGroup", 1, None, "several"),
        ("\0", "SyntaxError", None, None, "null bytes"),
        ("\ud800", "SyntaxError", None, None, "Python cannot read this"),
        ("(" * 300 + ")" * 300, "SyntaxError", None, None, "too many nested parentheses"),
        ("-" * 100_000 + "1", "SyntaxError", None, None, "nested too deeply"),
    ],
)
def test_errors_point_at_the_learners_line(code, kind, line, column, text):
    error = grade(EXERCISES["add"], code).error
    assert error.kind == kind
    assert text in error.text
    assert text[-1] not in ".?" or error.text.endswith(text)
    if line is not None:
        assert (error.line, error.column) == (line, column)
    else:
        assert kind == "SyntaxError" or error.line is None


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "self.grad += 1",
            "`_backward` is missing. Keep the line `def _backward():`, and write your code below it, indented.",
        ),
        ("def _backward(self):\n    self.grad += out.grad", "`def _backward():` has become `def _backward(self):`"),
        ("def _backward():\n    self.grad += oops", None),
        (
            "def _backward():\n    self.grad = None\n    other.grad += out.grad",
            "`a.grad`, in `c = a + b`: got `None`, expected `1`.",
        ),
    ],
)
def test_what_holds_for_every_exercise_is_told(code, message):
    found = grade(EXERCISES["add"], code).message
    assert message in found if message else found is None


@pytest.mark.parametrize(
    ("name", "wanted", "renamed"),
    [("init", "__init__", "_init_"), ("backward", "backward", "backwards"), ("trace", "trace", "tracing")],
)
def test_a_misspelt_name_is_told(name, wanted, renamed):
    report = grade(EXERCISES[name], EXERCISES[name].solution.replace(f"def {wanted}(", f"def {renamed}("))
    assert report.message.startswith(f"`{wanted}` is missing. Keep the line `def {wanted}(")


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ("sum((wi * xi for wi, xi in zip(w, x)), self.b).tanh()", "w"),
        ("sum((wi * xi for wi, xi in zip(self.w, x)), b).tanh()", "b"),
        ("sum(wi * xi + b for wi, xi in zip(self.w, x)).tanh()", "b"),
        ("sum(p * xi for p, xi in zip(parameters(), x)).tanh()", "parameters"),
        ("sum(c * xi for c, xi in zip(self.w, x)) + bias", None),
    ],
)
def test_a_forgotten_self_is_told(wrong, name):
    code = EXERCISES["neuron"].wrong[0].code.replace("sum((wi * xi for wi, xi in zip(self.w, x)), self.b)", wrong)
    error = grade(EXERCISES["neuron"], code).error
    assert error.kind == "NameError"
    assert error.text.endswith(f"`self` has something of that name: `self.{name}`.") == (name is not None)


def test_a_forgotten_self_is_told_where_a_field_is_changed():
    error = grade(EXERCISES["add"], "def _backward():\n    grad += out.grad").error
    assert error.text.endswith("Is a field meant, as in `self.grad`?")


def test_an_object_that_cannot_be_looked_at_is_no_trouble():
    code = EXERCISES["neuron"].solution.replace("self.b\n        for", "oops\n        for", 1)
    code += "\n    def __dir__(self):\n        raise ValueError\n"
    assert grade(EXERCISES["neuron"], code).error.text == "NameError: name 'oops' is not defined."


def test_a_first_line_is_not_blamed_for_a_missing_field():
    code = (
        EXERCISES["layer"]
        .solution.replace("class Layer:", "class Layer(object):")
        .replace("self.neurons =", "neurons =")
    )
    report = grade(EXERCISES["layer"], code)
    assert "no attribute 'neurons'" in report.error.text
    assert report.message is None


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("add", EXERCISES["by-hand"].solution, "`_backward` is missing."),
        ("mul", EXERCISES["by-hand"].solution, "`_backward` is missing."),
        ("uphill", EXERCISES["add"].solution, "`a.data`, in `L, computed again`: got `2`, expected `2.06`."),
    ],
)
def test_the_answer_to_another_exercise_is_not_taken_for_a_slip_in_this_one(name, code, message):
    assert grade(EXERCISES[name], code).message.startswith(message)


def test_answers_of_another_shape_are_described_and_do_not_stop_the_check():
    swapped = grade(
        EXERCISES["trace"], EXERCISES["trace"].solution.replace("return nodes, edges", "return edges, nodes")
    )
    assert (swapped.error, swapped.message.startswith("`its nodes`: got `['(Value(")) == (None, True)
    shares = grade(EXERCISES["attention"], EXERCISES["attention"].solution.replace("shares, heard", "heard"))
    assert (shares.error, shares.message) == (None, "`attention` must return two lists: `shares, heard`.")
    number = grade(EXERCISES["embed"], "def embed(table, token):\n    return sum(token)")
    assert number.message == "`embed` must return a list, with one number for each column of the table."


@pytest.mark.parametrize(
    ("beside", "name"),
    [
        ("from collections import deque", "deque"),
        ("import heapq as heap", "heap"),
        ("seen = set()", "seen"),
        ("def visit(node):\n    pass", "visit"),
    ],
)
def test_what_stands_beside_a_method_is_not_seen_by_it(beside, name):
    error = grade(EXERCISES["backward"], f"{beside}\n\ndef backward(self):\n    {name}").error
    assert error.line == beside.count("\n") + 4
    assert error.text.endswith(
        f"`{name}` stands in the body of the class, where its methods do not see it: move it into the method."
    )
    error = grade(EXERCISES["backward"], "def backward(self):\n    relu(self)").error  # which is a method
    assert error.text == "NameError: name 'relu' is not defined. `self` has something of that name: `self.relu`."


def test_pasted_code_may_be_indented_and_have_other_line_ends():
    code = EXERCISES["add"].solution
    indented = "".join(f"        {line}\r\n" for line in code.splitlines())
    assert grade(EXERCISES["add"], indented).passed
    assert grade(EXERCISES["mul"], EXERCISES["mul"].solution, {"add": indented}).passed


EVIL = {
    "a repr that raises": "class Value:\n    def __repr__(self): raise ValueError\ndef double(x): return Value()",
    "an eq that exits": "class V:\n    def __eq__(self, other): raise SystemExit\ndef double(x): return V()",
    "a str that exits": "class E(Exception):\n    def __str__(self): raise SystemExit\ndef double(x): raise E",
    "a dir that raises": "class V:\n    def __dir__(self): raise ValueError\ndef double(x): return V().grda",
    "a number too long to print": "def double(x): return 10**10_000",
    "a float that is none": "class F(float):\n    __sub__ = None\ndef double(x): return F(3)",
    "other names for ours": "expect = show = fail = None\ndef double(x): return 3",
    "no builtins": "import builtins\nbuiltins.len = builtins.isinstance = builtins.abs = None\ndef double(x): return 3",
    "no builtins at all": "vars(__builtins__).clear()",
    "another stdout": "import sys\nsys.stdout = None\ndef double(x): return 3",
    "a low limit": "import sys\nsys.setrecursionlimit(60)\ndef double(x): return double(x)",
    "a trace": "import sys\nsys.settrace(lambda *a: 1 / 0)\ndef double(x): return 3",
    "swallowed recursion": "def double(x):\n try:\n  return double(x)\n except RecursionError:\n  return 3",
    "a generator": "def double(x): yield 1",
    "warnings": "x = 1 is 1\nimport warnings\nwarnings.warn('no')\ndef double(x): return '\\d'",
}

DOUBLE = read_course(
    {
        "01-a.md": "---\ntitle: T\nsummary: S\n---\n```exercise name=double\nprompt: Double.\n```\n"
        "```starter\n...\n```\n"
        "```solution\ndef double(x):\n    return 2 * x\n```\n```check\nexpect('double(3)', double(3), 6)\n```\n"
        '```wrong message="Add it to itself." has="return x"\ndef double(x):\n    return x\n```\n'
    }
).exercises["double"]


@pytest.mark.parametrize("case", EVIL)
def test_no_code_breaks_the_grader(case):
    stdout, limit = sys.stdout, sys.getrecursionlimit()
    report = grade(DOUBLE, EVIL[case])
    assert not report.passed
    json.dumps(report.data())
    assert (sys.stdout, sys.getrecursionlimit()) == (stdout, limit)
    assert grade(DOUBLE, DOUBLE.solution).passed


def test_output_is_kept_up_to_a_limit():
    report = grade(DOUBLE, DOUBLE.solution + "\nprint('x' * 5)\nimport sys\nprint('e', file=sys.stderr)")
    assert report.output == "xxxxx\ne\n"
    report = grade(DOUBLE, DOUBLE.solution + "\nfor _ in range(10**5): print('x' * 50)")
    assert report.passed
    assert len(report.output) < running.MOST_OUTPUT + 50
    assert report.output.endswith("… (the rest was cut off)")


@pytest.mark.parametrize(
    ("got", "expected", "right"),
    [
        (6.0, 6, True),
        (6.00000004, 6, True),
        (6.0000001, 6, False),
        (True, 1, False),
        ("6", 6, False),
        (None, 6, False),
        (float("nan"), 6, False),
        (float("inf"), float("inf"), True),
        ([1.0, [2.0]], [1, [2]], True),
        ([1.0], [1, 2], False),
        ((1, 2), [1, 2], True),
        (1, True, False),
        (True, True, True),
        ("a", "a", True),
        ({1}, {1}, True),
        (6 + 0j, 6, False),
    ],
)
def test_what_agrees(got, expected, right):
    session = running.Session(running.CheckNames({}, {}))
    assert session.expect("x.grad", got, expected) == right
    assert session.comparisons[0].node == "x"


def test_a_wrong_row_beyond_the_most_that_are_kept_counts(monkeypatch):
    monkeypatch.setattr(grading, "MOST_ROWS", 0)
    report = grade(DOUBLE, "def double(x): return 5")
    assert (report.passed, report.rows) == (False, ())


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def double(x): 2 * x",
            "`double(3)`: got `None`, expected `6`. A function without `return` gives `None`.",
        ),
        ("def double(x): return None", "`double(3)`: got `None`, expected `6`."),
        ("def double(x):\n    if x > 5:\n        return 2 * x", "`double(3)`: got `None`, expected `6`."),
        ("double = lambda x: print(x)", "`double(3)`: got `None`, expected `6`."),
        (
            "def double(x):\n    def result():\n        return 2 * x\n    result()",
            "`double(3)`: got `None`, expected `6`. A function without `return` gives `None`.",
        ),
        (
            "from chainrule import Value\ndef double(x): return Value(6.0)",
            "`double(3)`: got `Value(data=6, grad=0)`, expected `6`. The number of a Value is in `.data`.",
        ),
        ("def double(x): return '`six`'", "`double(3)`: got `''six''`, expected `6`."),
    ],
)
def test_code_that_nobody_foresaw_is_told_the_facts(code, message):
    assert grade(DOUBLE, code).message == message


def test_a_missing_return_is_one_that_the_solution_has():
    init = EXERCISES["init"]  # whose `__init__` returns nothing, as it should
    report = grade(init, init.solution.replace("self._op = _op", "self._op = None"))
    assert report.message == "`Value(2.0)._op`: got `None`, expected `''`."
    neuron = EXERCISES["neuron"]
    report = grade(neuron, neuron.solution.replace("return self.w", "self.w"))
    assert report.message.endswith("A function without `return` gives `None`.")


WHOLE_METHOD = """def __add__(self, other):
    out = Value(self.data + other.data, (self, other), "+")

    def _backward():
        self.grad += out.grad
        other.grad += out.grad

    out._backward = _backward
    return out
"""


def indented(code):
    return "".join(f"    {line}\n" for line in code.splitlines())


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("add", WHOLE_METHOD, "Only `_backward` is asked for. Here it is inside `__add__`, "),
        (
            "add",
            "class Value:\n" + indented(WHOLE_METHOD),
            "Only `_backward` is asked for. Here it is inside `Value`, ",
        ),
        (
            "backward",
            "class Value:\n" + indented(EXERCISES["backward"].solution),
            "Only `backward` is asked for. Here it is inside `Value`, ",
        ),
    ],
)
def test_whoever_pastes_more_than_is_asked_for_is_told_so(name, code, message):
    assert grade(EXERCISES[name], code).message.startswith(message)


def test_what_is_assigned_to_a_name_is_not_missing():
    made = "def made():\n    def _backward():\n        self.grad += oops\n    return _backward\n_backward = made()"
    report = grade(EXERCISES["add"], made)
    assert (report.message, report.error.line) == (None, 3)


def test_fail_ends_a_check():
    text = "---\ntitle: T\nsummary: S\n---\n```exercise name=a\nprompt: P.\n```\n```starter\nx = 0\n```\n"
    text += "```solution\nx = 1\n```\n```check\nif x != 1:\n    fail('No.')\nexpect('x', x, 1)\n```\n"
    exercise = read_course({"a.md": text}).exercises["a"]
    report = grade(exercise, "x = 2")
    assert (report.passed, report.message, report.rows) == (False, "No.", ())


def test_a_check_sees_the_learners_names_and_keeps_its_own():
    text = "---\ntitle: T\nsummary: S\n---\n```exercise name=a\nprompt: P.\n```\n```starter\n...\n```\n"
    text += "```solution\ncalls = 0\ndef f(x):\n    global calls\n    calls += 1\n    return 2 * x\n```\n"
    text += "```check\nsecret = 3\nexpect('f(3)', f(secret), 6)\nexpect('calls', (lambda: calls)(), 1)\n```\n"
    exercise = read_course({"a.md": text}).exercises["a"]
    assert grade(exercise, exercise.solution).passed
    report = grade(exercise, exercise.solution.replace("2 * x", "2 * secret"))
    assert report.error.text == "NameError: name 'secret' is not defined."


# A checker is itself checked.


def edited(old, new):
    text = "---\ntitle: T\nsummary: S\n---\n```exercise name=a\nprompt: P.\n```\n```starter\nx = 0\n```\n"
    text += '```solution\nx = 1\n```\n```check\nexpect("x", x, 1)\n```\n'
    text += '```wrong message="Two." has="x = 2"\nx = 2\n```\n'
    text += '```wrong message="Three." has="x = 3"\nx = 3\n```\n'
    assert old in text
    return read_course({"a.md": text.replace(old, new)})


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("title: T", "title: Title", None),
        ("solution\nx = 1", "solution\nx = 5", "a.md, line 5: the solution of 'a' does not pass: x is 5, expected 1"),
        ("solution\nx = 1", "solution\nx = 1 / 0", "does not pass: ZeroDivisionError"),
        ("starter\nx = 0", "starter\nx = 1.0", "a.md, line 5: the starter of 'a' passes already"),
        ("x = 2", "x = 1 + 0", "a.md, line 17: this wrong answer to 'a' passes"),
        ("x = 3", "x = 2", "a.md, line 20: this wrong answer to 'a' gets another message: 'Two.'"),
        (
            '"Two." has="x = 2"',
            '"Two." has="x = _"',
            "line 17: what this wrong answer to 'a' `has` or `lacks` is true of",
        ),
    ],
)
def test_verify_finds_what_authors_get_wrong(old, new, problem):
    problems = verify(edited(old, new))
    assert [problem in found for found in problems] == [True] if problem else problems == []


def test_the_course_is_verified():
    assert verify(COURSE) == []


# For the page.


def test_json_in_and_out(course_json):
    course = course_json
    wrong = EXERCISES["mul"].wrong[1]
    report = json.loads(grade_json(course, "mul", wrong.code))
    assert report.keys() == {"passed", "rows", "message", "error", "output", "graphs", "seconds"}
    assert report["rows"][0].keys() == {"label", "got", "expected", "right", "node", "graph", "about"}
    assert report["message"] == wrong.message
    one = next(b for lesson in json.loads(course)["lessons"] for b in lesson["blocks"] if b.get("name") == "mul")
    assert json.loads(grade_json(json.dumps(one), "mul", wrong.code))["message"] == wrong.message
    with pytest.raises(ValueError, match="no exercise 'nope'"):
        grade_json(course, "nope", "")


def own_class(**codes):
    """The source of a learner's class, with the course's solutions where they have not written their own."""
    solutions = {name: exercise.solution for name, exercise in EXERCISES.items()}
    return fill(COURSE.templates["Value"], "", solutions | codes).text


def test_the_learners_whole_class_as_source():
    names = {}
    exec(own_class(exp="def _backward():\n    self.grad += 0.5 * out.grad"), names)
    x = names["Value"](0.0)
    x.exp().backward()
    assert x.grad == 0.5


def test_steps_of_a_learners_class():
    own = own_class()
    code = "a = Value(2.0)\nb = a + 1\nc = a * 3\nd = b * c\nd"
    graph = json.loads(steps_json(code, own))["graph"]
    names = [node["name"] for node in graph["nodes"]]
    assert graph["nodes"][graph["root"]]["name"] == "d"
    assert {"a", "b", "c", "d"} <= set(names)
    results = {n["name"]: n["expression"]["names"] for n in graph["nodes"] if n["expression"]}
    assert results == {"b": "a + 1", "c": "a · 3", "d": "b · c"}
    last = {names[s["to"]]: s["after"]["text"] for s in graph["steps"] if s["kind"] == "backward"}
    assert last == {"b": "6", "c": "3", "a": "15"}
    ours = json.loads(steps_json(code))["graph"]
    assert {s["kind"] for s in ours["steps"]} == {"start", "forward", "seed", "backward", "end"}


def told(code, own=""):
    """The backward steps of a graph, without indices; a learner's class may take them in another order."""
    graph = json.loads(steps_json(code, own))["graph"]
    names = [node["name"] for node in graph["nodes"]]
    steps = [s for s in graph["steps"] if "to" in s]
    kept = ("kind", "operand", "formula", "partial", "product", "multiplication")
    return sorted(json.dumps([names[s["node"]], names[s["to"]], {key: s.get(key) for key in kept}]) for s in steps)


@pytest.mark.parametrize(
    "result", ["a * a + b", "(a * b).tanh()", "a**3", "(b + 5).relu() * a", "a.exp() * 2", "a - b"]
)
def test_the_chain_rule_of_a_learners_class_is_told_as_chainrules(result):
    code = f"a, b = Value(0.5), Value(-2.0)\nr = {result}\nr"
    own = told(code, own_class())
    assert all('"backward"' in step for step in own)
    if "-" not in result:  # which a learner's class makes of plus and times
        assert own == told(code)


@pytest.mark.parametrize(
    ("code", "own", "text"),
    [
        ("a = ", "", "SyntaxError"),
        ("a = 1", "", "last line"),
        ("1", "", "must be a node"),
        ("Value(1.0)", "class Value:\n    def __init__(self, data): 1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_graph_that_cannot_be_made_is_an_error(code, own, text):
    reply = json.loads(steps_json(code, own))
    assert reply["graph"] is None
    assert text in reply["error"]["text"]


# The learner's graph as data.


def test_describing_leaves_everything_as_it_was():
    x = closures.Value(3.0, label="x")
    y = x * x + x
    y.backward()
    backward = y._backward
    before = [(node.data, node.grad) for node in (x, y)]
    description = describe(y)
    assert [(node.data, node.grad) for node in (x, y)] == before
    assert y._backward is backward
    product = description["nodes"][1]
    assert (product["op"], product["operands"]) == ("*", [0, 0])  # a set of operands has x once


def test_chainrules_own_values_are_described_by_the_stepper():
    x = chainrule.Value(3.0, label="x")
    assert describe(x * x + 1.0) == stepping.describe(x * x + 1.0)


def test_a_learner_sees_their_own_mistake():
    own = whole("Value", {"mul": EXERCISES["mul"].wrong[0].code})["Value"]
    x = own(3.0, label="x")
    steps = describe(x * x)["steps"]
    step = next(step for step in steps if step["kind"] == "handwritten")
    assert step["after"]["text"] == "3"
    assert not any(step["kind"] == "backward" for step in steps)


def test_names_of_nodes():
    a, b = closures.Value(1.0, label="n"), closures.Value(2.0, label="n")
    c = a * b
    d = (c + 5.0) ** 2
    names = [node["name"] for node in describe(d, {"c": c, "_hidden": d})["nodes"]]
    assert names == ["n", "n_2", "c", "5", "v1", "v2"]
    assert describe(d)["nodes"][-1]["expression"] == {"names": "v2²", "numbers": "7²"}


def test_graphs_that_cannot_be_shown():
    with pytest.raises(TypeError, match="must be a node"):
        describe(3.0)
    a = closures.Value(1.0)
    b = a + 1.0
    a._prev = {b}
    with pytest.raises(ValueError, match="circle"):
        describe(b)
    with pytest.raises(ValueError, match="more than 300 nodes"):
        describe(sum((closures.Value(1.0) for _ in range(400)), closures.Value(0.0)))


def test_a_backward_that_fails_is_shown_as_far_as_it_came():
    x = closures.Value(2.0, label="x")
    y = x.tanh()
    y.label = "y"
    z = y * 3.0
    y._backward = lambda: 1 / 0
    steps = [(s["kind"], s.get("to")) for s in describe(z)["steps"]]
    assert ("backward", 1) in steps
    assert steps[-1] == ("end", None)


def test_exceptions_without_a_source():
    assert explain(ValueError("")).text == "ValueError: no more is known."


@pytest.mark.parametrize("lesson", COURSE.lessons, ids=lambda lesson: lesson.id)
def test_every_graph_of_a_lesson_can_be_stepped_through(lesson):
    own = own_class()
    for block in lesson.blocks:
        if isinstance(block, (Stepper, Order, Predict)):
            for source in ("", own):
                reply = json.loads(steps_json(block.code, source))
                assert reply["error"] is None
                root = reply["graph"]["nodes"][reply["graph"]["root"]]
                assert root["name"] == block.code.splitlines()[-1]
                assert {step["kind"] for step in reply["graph"]["steps"] if "to" in step} == {"backward"}
