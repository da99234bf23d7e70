"""What learners are told is true: of right answers in any style, of answers that are subtly wrong, and of every slip.

The slips are a sample; `make mutants` grades all of them, and prints them in groups to read.
"""

import re
from functools import cache

import pytest

from chainrule.learn.course import Course, Exercise
from chainrule.learn.grading import grade
from chainrule.learn.lesson_files import load_course
from chainrule.learn.matching import Signs, parse
from lesson_oracles import ORACLES, is_right
from lesson_texts import answers
from mutants import difference, graded, mutants, time_limit

COURSE: Course = load_course()
EXERCISES: dict[str, Exercise] = COURSE.exercises
MOST = 20  # slips of one exercise
INTERNAL = r"chainrule[./](?!Value)|site-packages|<check>|0x[0-9a-f]{6}|CheckNames|__missing__|Traceback|\.py\b"


RIGHT, SUBTLE = list(answers("right_answers.md")), list(answers("subtle_answers.md"))


@cache
def slips(name):
    return graded(EXERCISES[name], MOST)


def test_every_exercise_has_an_oracle_and_answers_in_other_styles():
    assert ORACLES.keys() == EXERCISES.keys()
    written = {name for name in EXERCISES if not name.startswith("bug")}  # those are repaired, not written
    assert {name for name, _ in RIGHT} == {name for name, _ in SUBTLE} == written


@pytest.mark.parametrize(("name", "code"), RIGHT)
def test_right_answers_are_accepted_in_any_style(name, code):
    report = grade(EXERCISES[name], code)
    assert report.passed, report
    assert is_right(EXERCISES[name], code)


@pytest.mark.parametrize(("name", "code"), SUBTLE)
def test_answers_that_break_later_lessons_are_refused(name, code):
    with time_limit(2):
        assert not grade(EXERCISES[name], code).passed
    assert not is_right(EXERCISES[name], code)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_oracles_know_right_from_wrong(name):
    exercise = EXERCISES[name]
    assert is_right(exercise, exercise.solution)
    assert not is_right(exercise, exercise.starter)
    assert [wrong.message for wrong in exercise.wrong if is_right(exercise, wrong.code)] == []


@pytest.mark.parametrize("name", EXERCISES)
def test_a_slip_passes_only_if_it_is_none(name):
    solution = EXERCISES[name].solution
    disputed = [difference(solution, slip.code) for slip in slips(name) if slip.report.passed != slip.right]
    assert disputed == []


@pytest.mark.parametrize("name", EXERCISES)
def test_a_message_comes_only_if_its_mistake_is_in_the_code(name):
    solution = parse(EXERCISES[name].solution)
    for slip in slips(name):
        if slip.authored:
            assert any(wrong.signs.fit(parse(slip.code)) for wrong in slip.authored)
            assert not any(wrong.signs.fit(solution) for wrong in slip.authored)


@pytest.mark.parametrize("name", EXERCISES)
def test_whoever_is_refused_is_told_something_and_nothing_internal(name):
    for slip in slips(name):
        told = [slip.report.message or "", slip.report.error.text if slip.report.error else ""]
        assert slip.report.passed != any(told)
        assert not re.search(INTERNAL, " ".join(told)), told
        if slip.report.error and slip.report.error.line:
            assert 1 <= slip.report.error.line <= len(slip.code.splitlines())


MISJUDGED = [  # code that computes what an authored wrong answer computes, and is something else
    ("numerical", "def numerical(f, values, h=0.0001):\n    return [v.grad for v in values]", "nudged `grad`"),
    (
        "vanishing",
        EXERCISES["vanishing"].solution.replace("start", "node").replace("node = squash(node)", "squash(node)"),
        "last* node",
    ),
    ("add", "def _backward():\n    pass", "changes data"),
    ("mul", "def _backward():\n    return ...", "changes data"),
    ("power", "def _backward():\n    return ...", "changes data"),
    ("power", "def _backward():\n    self.grad += exponent * self.data ** (exponent - 1) * self.grad", "changes data"),
    ("tanh", "def _backward():\n    return ...", "changes data"),
    ("exp", "def _backward():\n    pass", "changes data"),
    ("relu", "def _backward():\n    return ...", "changes data"),
    ("uphill", "for leaf in (a, b, c, f):\n    leaf.data + 0.01 * leaf.grad", "changes `grad`"),
    ("uphill", "for leaf in (a, b, c, f):\n    pass", "changes `grad`"),
    (
        "neuron",
        EXERCISES["neuron"].solution.replace("return self.w + [self.b]", "self.w + [self.b]"),
        "append",
    ),
    (
        "mlp",
        EXERCISES["mlp"].solution.replace(
            "for layer in self.layers:\n            x = layer(x)\n"
            "        return x[0] if isinstance(x, list) and len(x) == 1 else x",
            "out = self.layers[-1](x)\n        return out[0] if len(out) == 1 else out",
        ),
        "Each layer was given",
    ),
]


@pytest.mark.parametrize(("name", "code", "claim"), MISJUDGED)
def test_nobody_is_blamed_for_what_they_did_not_write(name, code, claim):
    report = grade(EXERCISES[name], code)
    assert not report.passed
    assert claim not in report.message


def test_a_layer_of_one_neuron_may_answer_without_a_list():
    """micrograd's does, and then so may everything that uses it."""
    layer = next(code for name, code in RIGHT if name == "layer" and "outs[0] if len(outs) == 1" in code)
    mlp = EXERCISES["mlp"].solution.replace("x[0] if isinstance(x, list) and len(x) == 1 else x", "x")
    assert mlp != EXERCISES["mlp"].solution
    for code in (mlp, EXERCISES["mlp"].solution):
        assert grade(EXERCISES["mlp"], code, {"layer": layer}).passed
        assert grade(EXERCISES["train"], EXERCISES["train"].solution, {"layer": layer, "mlp": code}).passed


def test_slips_are_of_every_kind():
    found = set(mutants("def f(a, b):\n    for x in a:\n        b += x.data * 2\n        g(x)\n    return (b - 1) / 3"))
    body = "def f(a, b):\n    for x in a:\n        b += x.data * 2\n        g(x)\n    return (b - 1) / 3"
    for old, new in (
        ("        g(x)\n", ""),  # a statement is gone
        ("b - 1", "1 - b"),
        ("(b - 1) / 3", "b - 1 / 3"),
        ("+=", "="),
        ("+=", "-="),
        ("return (b - 1) / 3", "(b - 1) / 3"),
        ("return", "    return"),  # too early
        ("        g(x)", "    g(x)"),  # out of the loop
        ("* 2", "* 3"),
        ("x.data", "x.grad"),
        ("x.data", "a.data"),
        ("g(x)", "g"),
        ("        b += x.data * 2\n        g(x)", "        g(x)\n        b += x.data * 2"),
        ("/ 3", "// 3"),
    ):
        assert old in body
        assert body.replace(old, new) in found, new


@pytest.mark.parametrize(
    ("code", "has", "lacks", "fit"),
    [
        ("self.grad = out.grad", "_.grad = _", "", True),
        ("self.grad += out.grad", "_.grad = _", "", False),
        ("self.grad = self.grad + out.grad", "_.grad = _", "", False),
        ("self.grad = out.grad + self.grad", "self.grad += out.grad", "", True),
        ("self.grad, other.grad = 1, out.grad", "other.grad = out.grad", "", True),
        ("w.grad = b.grad = 0.0", "b.grad = 0", "", True),
        ("x: float = 1.0", "x = 1", "", True),
        ("y = b * a", "a * b", "", True),
        ("y = b - a", "a - b", "", False),
        ("y = 0 < x", "x > 0", "", True),
        ("for x in y:\n    if x:\n        return x", "for _ in _: return", "", True),
        ("for x in y:\n    pass\nreturn x", "for _ in _: return", "", False),
        ("f(x)\ng(x)", "f(_); g(_)", "", True),
        ("g(x)\nf(x)", "f(_); g(_)", "", False),
        ("f(x)\nf(x)", "f(_); f(_)", "", True),
        ("f(x)", "f(_); f(_)", "", False),
        ("def f(a, b):\n    return self.b", "def f(): self.b", "", True),
        ("def g(a, b):\n    return self.b", "def f(): self.b", "", False),
        ("x = f(y)", "f()", "", False),
        ("x = 'out.grad'  # out.grad", "", "out.grad", True),
        ("x = out.grad", "x", "out.grad; out.data", False),
        ("return x", "", "return", False),
        ("", "", "return", True),
    ],
)
def test_signs_are_looked_for_in_the_syntax_tree(code, has, lacks, fit):
    assert Signs(has, lacks).fit(parse(code)) == fit
