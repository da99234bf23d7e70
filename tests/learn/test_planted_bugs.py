"""Lesson 10 asks for a failing test first. It is tried on the engine with the bug; until it fails, nothing is told."""

import json

import pytest

from chainrule.learn.explaining import Error
from chainrule.learn.grading import course_json, grade, judge, run_json, verify
from chainrule.learn.lesson_files import load_course, read_course
from chainrule.learn.planted_bugs import MISSING, NOT_REPAIRED, STOPS, TOO_WEAK, UNFAIR, USED_UP
from chainrule.learn.running import Reading, Transcript
from chainrule.learn.submissions import grade_apart
from lesson_oracles import is_right

EXERCISES = load_course().exercises
BUGS = ("bug-one", "bug-three", "bug-four")
CALL = "\nprint(gradcheck(f, *map(Value, at)))"
ADVICE = {  # what the message about a bug that is still there says of gradcheck's output
    "bug-one": "_backward (your_code.py:34) overwrites the gradient",
    "bug-three": "before it was complete",
    "bug-four": "_backward (your_code.py:24) gives",
}


def program(name, test, engine="solution"):
    """An answer with the engine of the solution or of the starter, and this test."""
    whole = getattr(EXERCISES[name], engine)
    return whole[: whole.index("def f(")] + test + "\n"


CATCHING = [
    ("bug-one", "f = lambda a, b: a.tanh() * b + a\nat = 0.5, -2.0" + CALL),
    ("bug-one", "def f(a):\n    return a * a.tanh()\nat = [1]" + CALL),
    ("bug-one", "def f(x, y, z):\n    return x.tanh() + y.tanh() * z + x * y\nat = (1, -2, 0.25)" + CALL),
    ("bug-one", "def f(a, b):\n    print(a.data)\n    return a.tanh() * b + a\nat = 0.5, -2.0" + CALL),
    ("bug-one", "def f(a, b):\n    return a.tanh() + b * a\nat = Value(0.5), Value(2.0)\nprint(gradcheck(f, *at))"),
    ("bug-one", "def half(x):\n    return Value(0.5) * x\ndef f(a):\n    return half(a.tanh() + a)\nat = (3,)" + CALL),
    ("bug-one", "def f(a, *, by=3.0):\n    return a.tanh() * Value(by) + a\nat = (3,)" + CALL),
    ("bug-one", "def times(c):\n    return lambda a: a.tanh() + Value(c) * a\nf = times(2.0)\nat = (3,)" + CALL),
    ("bug-one", "half = [Value(0.5)]\ndef f(a):\n    return half[0] * a.tanh() + a\nat = (3,)" + CALL),
    ("bug-one", "def times(c):\n    return lambda a: a.tanh() + c * a\nf = times(Value(2.0))\nat = (3,)" + CALL),
    ("bug-one", "import functools as F\nf = F.partial(lambda c, a: a.tanh() * c + a, Value(2))\nat = (3,)" + CALL),
    ("bug-one", "class F:\n    w = Value(2)\n    def g(self, a):\n        return a.tanh() + a * self.w\n"
     "f, at = F().g, (3,)" + CALL),
    ("bug-one", "th = Value.tanh\ndef f(a, b):\n    return th(a) * b + a\nat = 0.5, -2.0" + CALL),
    ("bug-one", "def f(a):\n    return a.tanh() + a\nat = 0.5\nprint(gradcheck(f, Value(at)))"),
    ("bug-one", "def f(a):\n    return a.tanh() + a\nat = Value(0.5)\nprint(gradcheck(f, at))"),
    ("bug-one", "f = lambda a, b: a.tanh() * b + a\nat = iter((0.5, -2.0))" + CALL),
    ("bug-one", "f = lambda a, b: a.tanh() * b + a\nat = map(float, ('0.5', '-2'))" + CALL),
    ("bug-one", "f = lambda a, b: a.tanh() * b + a\nat = (x / 2 for x in (1, -4))" + CALL),
    ("bug-one", "f = lambda a, b: a.tanh() * b + a\nat = map(Value, (0.5, -2))\nprint(gradcheck(f, *at))"),
    ("bug-one", "import chainrule as cr\nf = lambda a: a.tanh() + a\nat = iter([3])"
     "\nprint(cr.gradcheck(f, *map(Value, at)))"),
    ("bug-one", "f, g, at = lambda a, b: a.tanh() * b + a, lambda a: a * a, iter((0.5, -2.0))"
     "\nprint(gradcheck(g, Value(3.0)))" + CALL),
    ("bug-three", "f = lambda a, b, c=None: a + (c := a * b) + c * (c * a)\nat = 1, 2" + CALL),
    ("bug-three", "k = Value(2.0)\ndef f(a, b):\n    c = a * b\n    return k * (c + c * c * a)\nat = 2.0, -3.0" + CALL),
    ("bug-three", "g = lambda x: Value(2.0) * x\ndef f(a):\n    s = a + a\n    return g(s + s * s)\nat = (3,)" + CALL),
    ("bug-three", "def f(a, k=Value(2.0)):\n    s = a + a\n    return k * (s + s * s)\nat = (3,)" + CALL),
    ("bug-three", "def f(a, *, k=Value(2.0)):\n    s = a + a\n    return k * (s + s * s)\nat = (3,)" + CALL),
    ("bug-four", "def f(a, b):\n    return a / b\nat = 7, -3" + CALL),
    ("bug-four", "def f(a, b, c):\n    return (c.sigmoid() / a - b) / c\nat = 0.5, 1.5, 2.5" + CALL),
    ("bug-four", "three = Value(3.0)\nf = lambda b: three / b\nat = (1.7,)" + CALL),
]  # fmt: skip


@pytest.mark.parametrize(("name", "test"), CATCHING)
def test_a_test_that_catches_the_bug_may_be_written_in_any_style(name, test):
    code = program(name, test)
    report = grade(EXERCISES[name], code)
    assert report.passed, report
    assert "WRONG" not in report.output


@pytest.mark.parametrize(("name", "test"), CATCHING)
def test_whoever_has_a_test_is_told_to_read_it(name, test):
    report = grade(EXERCISES[name], program(name, test, "starter"))
    assert report.message == EXERCISES[name].wrong[0].message
    assert report.message.startswith("Your test catches the bug, and the bug is still there.")
    assert "`a" not in report.message  # no expression that may be theirs already
    assert ADVICE[name] in report.output
    assert len(report.rows) > 1


def test_a_test_may_be_an_assertion():
    """Which ends the program on the engine with the bug."""
    test = "f = lambda a, b: a.tanh() * b + a\nat = 0.5, -2.0\nassert gradcheck(f, *map(Value, at))\nprint('right')"
    assert grade(EXERCISES["bug-one"], program("bug-one", test)).passed
    report = grade(EXERCISES["bug-one"], program("bug-one", "k = Value(2.0) - Value(1.0)\n" + test))
    assert report.error.kind == "TypeError"


def test_an_engine_from_elsewhere_is_no_repair():
    code = "from chainrule import Value, gradcheck\n" + CATCHING[0][1]
    report = grade(EXERCISES["bug-one"], code)
    assert (report.passed, report.message) == (False, NOT_REPAIRED)


def test_a_repair_below_the_class_is_one_of_the_engine():
    repair = """
def tanh(self):
    out = Value(math.tanh(self.data), (self,), "tanh")

    def _backward():
        self.grad += (1 - out.data**2) * out.grad

    out._backward = _backward
    return out


Value.tanh = tanh
"""
    assert grade(EXERCISES["bug-one"], program("bug-one", repair + CATCHING[0][1], "starter")).passed


REPAIRED = [  # in other ways than the solution's
    ("bug-one", "self.grad += (1 - out.data**2) * out.grad", "self.grad = self.grad + out.grad * (1 - out.data**2)"),
    ("bug-four", "self.data / other.data**2 * out.grad", "out.data / other.data * out.grad"),
    (
        "bug-three",
        EXERCISES["bug-three"].solution.split("def backward(self):\n")[1].split("\n\n\ndef f")[0],
        """\
        users, pending = {}, [self]
        while pending:
            node = pending.pop()
            for child in node._prev:
                users[child] = users.get(child, 0) + 1
                if users[child] == 1:
                    pending.append(child)
        self.grad, ready = 1.0, [self]
        while ready:
            node = ready.pop()
            node._backward()
            for child in node._prev:
                users[child] -= 1
                if not users[child]:
                    ready.append(child)""",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new"), REPAIRED)
def test_the_engine_may_be_repaired_in_other_ways(name, old, new):
    code = EXERCISES[name].solution.replace(old, new)
    assert code != EXERCISES[name].solution
    assert grade(EXERCISES[name], code).passed
    assert is_right(EXERCISES[name], code)


BACKWARD = EXERCISES["bug-three"].solution.split("def backward(self):\n")[1].split("\n\n\ndef f")[0]
IMPATIENT = {  # orders of the nodes that are right for most graphs
    "move to the end": """\
        order = [self]
        for node in order:
            for child in node._prev:
                if child in order:
                    order.remove(child)
                order.append(child)""",
    "by data": """\
        order = [self]
        for node in order:
            order += [child for child in node._prev if child not in order]
        order.sort(key=lambda node: node.data, reverse=True)""",
    "by depth, of which the children do not hear": """\
        depth, order = {self: 0}, [self]
        for node in order:
            for child in node._prev:
                if child not in depth:
                    order.append(child)
                depth[child] = max(depth.get(child, 0), depth[node] + 1)
        order.sort(key=depth.get)""",
}


@pytest.mark.parametrize("case", IMPATIENT)
def test_an_order_that_is_right_for_most_graphs_is_no_repair(case):
    walk = "\n        self.grad = 1.0\n        for node in order:\n            node._backward()"
    code = EXERCISES["bug-three"].solution.replace(BACKWARD, IMPATIENT[case] + walk)
    report = grade(EXERCISES["bug-three"], code)
    assert not report.passed
    assert len(report.rows) > 10
    assert ".grad`, in `" in report.message
    assert not is_right(EXERCISES["bug-three"], code)


def test_a_forgotten_seed_is_not_called_a_wrong_order():
    report = grade(EXERCISES["bug-three"], EXERCISES["bug-three"].solution.replace("        self.grad = 1.0\n", ""))
    assert "starts with a gradient of 0 at the result, where it should be 1" in report.output
    assert "order" not in report.output


def test_numbers_that_cannot_be_asked_for_again_are_named():
    """Whoever uses them up elsewhere than in a call of `gradcheck`."""
    test = "f = lambda a: a.tanh() + a\nat = iter([3.0])\nprint(list(at))"
    report = grade(EXERCISES["bug-one"], program("bug-one", test))
    assert (report.rows[0].got, report.message) == ("'its numbers are used up'", USED_UP)


def starters_test(name):
    starter = EXERCISES[name].starter
    return starter[starter.index("def f(") :]


@pytest.mark.parametrize("name", BUGS)
@pytest.mark.parametrize("engine", ["solution", "starter"])
def test_nothing_is_given_away_before_a_test_fails(name, engine):
    code = program(name, starters_test(name).replace("2.0", "2.5").replace("3.0", "3.5"), engine)
    report = grade(EXERCISES[name], code)
    assert report.message == TOO_WEAK
    assert [row.label for row in report.rows] == ["your test, on the engine as it was"]
    assert report.graphs == ()
    assert not is_right(EXERCISES[name], code)


MINUS = "\n    def __sub__(self, other):\n        return self + other * Value(-1.0)\n"
REFUSED = {
    "none": ("pass", "there is none", MISSING),
    "renamed": ("def g(a, b):\n    return a.tanh() * b + a\nat = 0.5, -2.0", "there is none", MISSING),
    "without numbers": ("def f(a, b):\n    return a.tanh() * b + a", "there is none", MISSING),
    "that fails everywhere": ("def f(a, b):\n    return Value(a.data) * b\nat = 0.5, 2.0", "right engine", UNFAIR),
    "that jumps": ("def f(a):\n    return a if a.data > 0 else a + Value(1.0)\nat = (0.0,)", "right engine", UNFAIR),
    "of a number": ("def f(a):\n    return 3.0\nat = (1,)", "stops with TypeError", "must return one Value, got float"),
    "that raises": ("def f(a):\n    return a.tanhh()\nat = (1,)", "stops with AttributeError", "Did you mean `tanh`?"),
    "with other numbers": ("def f(a):\n    return a\nat = 1, 2", "stops with TypeError", "takes 1 positional argument"),
    "at a text": ("def f(a):\n    return a.tanh()\nat = ['1']", "stops with TypeError", "must be a real number"),
    "at no number": ("def f(a):\n    return a.tanh()\nat = (float('nan'),)", "stops with ValueError", "finite number"),
    "without bound": ("def f(a):\n    return a * a\nat = (1e200,)", "stops with ValueError", "result is finite"),
    "of nothing": ("f, at = 3, (1,)", "stops with TypeError", "not callable"),
    "with what the engine had not": ("f, at = lambda a, b: a.tanh() - a * b, (1, 2)", "stops with TypeError", "for -:"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_test_that_shows_nothing_is_refused_with_the_reason(case):
    test, got, message = REFUSED[case]
    code = program("bug-one", test).replace("\n    def tanh", MINUS + "\n    def tanh")
    report = grade(EXERCISES["bug-one"], code)
    assert not report.passed
    assert report.error is None
    assert [row.label for row in report.rows] == ["your test, on the engine as it was"]
    assert got in report.rows[0].got
    assert message in report.message
    assert report.message in (MISSING, UNFAIR) or report.message.startswith(STOPS)


def test_an_argument_less_is_not_blamed_for_errors_elsewhere():
    """`f` may change its first line, so a check that stops elsewhere must not ask for the old one."""
    code = program("bug-one", "def f(a):\n    return a + a.tanh()\nat = (1,)").replace("__mul__", "times")
    report = grade(EXERCISES["bug-one"], code)
    assert report.error.kind == "TypeError"
    assert report.message is None


def test_a_name_that_a_forged_transcript_gives_is_no_pattern():
    reading = Reading(False, (), "a sentence", "(x+)+(")
    forged = Transcript(reading, error=Error("TypeError", "x" * 50))
    assert judge(EXERCISES["bug-one"], forged).message is None


@pytest.mark.parametrize(
    ("test", "passed"), [(CATCHING[0][1], True), (starters_test("bug-one"), False), (REFUSED["none"][0], False)]
)
def test_the_command_judges_tests_as_the_page_does(test, passed):
    exercise, code = EXERCISES["bug-one"], program("bug-one", test)
    apart, here = grade_apart(exercise, code), grade(exercise, code).data()
    for report in (apart, here):
        assert report["passed"] is passed
    assert {key: apart[key] for key in ("rows", "message")} == {key: here[key] for key in ("rows", "message")}


# The program as it began.

LESSON = """---
title: Sums
summary: x
---
```template name=Sums
# --- code of one ---
# --- code of twice ---
```
```exercise name=one template=Sums
prompt: x
```
```starter
one = 0
```
```solution
one = 1
```
```check
expect("one", one, 1)
```
```exercise name=twice template=Sums
prompt: x
```
```starter
print("began")
x = one
```
```solution
print("done")
x = 2 * one
```
```check
assert original() is original()
expect("before, after", [original()["x"], x], [1, 2])
names, error = rerun(one=7)
expect("with another one, and whether it ended", [names.get("x"), error is None], [14, True])
```
"""


def test_a_check_can_look_at_the_program_as_it_began():
    course = read_course({"01-sums.md": LESSON})
    assert verify(course) == []
    twice = course.exercises["twice"]
    report = grade(twice, twice.solution)
    assert (report.passed, report.output) == (True, "done\n")
    report = grade(twice, "x = 6", {"one": "one = 3"})  # with the learner's other answers
    assert [row.got for row in report.rows] == ["[3, 6]", "[6, True]"]
    assert grade_apart(twice, twice.solution)["passed"]
    report = grade(
        twice, "original = rerun = dict\nx = 2 * one\nimport builtins\nbuiltins.exec = builtins.compile = None"
    )
    assert report.passed


# Running without a check.


@pytest.fixture(scope="module")
def course():
    return course_json(load_course())


@pytest.mark.parametrize(
    ("code", "output", "line"),
    [
        ("print('hi')", "hi\n", None),
        ("x = 1", "", None),
        ("print(1)\nprint(1 / 0)", "1\n", 2),
        ("x = = 1", "", 1),
    ],
)
def test_a_program_runs_without_its_check(course, code, output, line):
    ran = json.loads(run_json(course, "slope", code))  # whose check would call a function that is not there
    assert ran.keys() == {"output", "error"}
    assert ran["output"] == output
    assert ran["error"] is None if line is None else ran["error"]["line"] == line


def test_a_run_shows_what_a_check_shows(course):
    for name in BUGS:
        exercise = EXERCISES[name]
        ran = json.loads(run_json(course, name, exercise.solution))
        assert ran == {"output": grade(exercise, exercise.solution).output, "error": None}
    uphill = EXERCISES["uphill"]  # with the learner's other answers
    ran = json.loads(run_json(course, "uphill", uphill.solution, json.dumps({"mul": "print('mul')\npass"})))
    assert ran["output"].startswith("mul\n")
    with pytest.raises(ValueError, match="there is no exercise 'nope'"):
        run_json(course, "nope", "")


def test_programs_that_print_can_be_run():
    assert {name for name, exercise in EXERCISES.items() if exercise.prints} == {"uphill", "draw", "bug-two", *BUGS}
    quiet = LESSON.replace('print("began")', "def f():\n    print(1)\ng = lambda: print(2)")
    assert not read_course({"01-sums.md": quiet}).exercises["twice"].prints
