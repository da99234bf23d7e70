"""Lesson files: what they may contain, what the parser makes of it, and what it says when it cannot."""

import json
import re
import subprocess
import sys

import pytest

from chainrule.learn.course import (
    Exercise,
    Order,
    Predict,
    Prose,
    Quiz,
    Stepper,
    Widget,
    exercise_data,
    exercise_from,
    fill,
)
from chainrule.learn.grading import course_json
from chainrule.learn.lesson_files import WIDGETS, LessonError, load_course, read_course
from project import ROOT

FRONT = "---\ntitle: A lesson\nsummary: What it is about.\n---\n"
EXERCISE = """
```exercise name=double title="Twice" group=tabs
prompt: Write `double`.
Two lines of it.
```
```starter
def double(x):
    ...
```
```template
import math

class Box:
    # --- your code ---
```
```solution
def double(x):
    return 2 * x
```
```check
expect("double(3)", Box.double(3), 6)
```
```wrong message="That \\"adds\\" 2." has="_ + 2" lacks="_ * _"
def double(x):
    return x + 2
```
```hint
Use `*`.
```
```hint
It is `2 * x`.
```
"""


def lesson(text, name="01-a.md"):
    return read_course({name: FRONT + text}).lessons[0]


def test_a_lesson_has_blocks_in_order():
    blocks = lesson(
        "Prose with $x^2$.\n\n```python\ncode = 1\n```\n"
        + EXERCISE
        + "\nMore.\n```quiz name=q\nquestion: What?\nReally?\n"
        "- [ ] no | because\n  of that\n- [x] yes `a | b` | so\n```\n"
        "```stepper own\na = Value(1.0)\na * a\n```\n```predict name=p\nValue(1.0)\n```\n"
        '```widget name=nudge function="x * x" at=3\n```\n'
        "```order own\na = Value(1.0)\na + a\n```\n```order\nValue(1.0) + 1\n```\n"
    ).blocks
    assert [type(block) for block in blocks] == [Prose, Exercise, Prose, Quiz, Stepper, Predict, Widget, Order, Order]
    assert blocks[0].markdown == "Prose with $x^2$.\n\n```python\ncode = 1\n```"
    quiz, stepper, widget = blocks[3], blocks[4], blocks[6]
    assert quiz.question == "What?\nReally?"
    assert [(c.text, c.right, c.explanation) for c in quiz.choices] == [
        ("no", False, "because of that"),
        ("yes `a | b`", True, "so"),
    ]
    assert stepper.own
    codes = [("a = Value(1.0)\na + a", True), ("Value(1.0) + 1", False)]
    assert [(order.code, order.own) for order in blocks[7:]] == codes
    assert (widget.name, widget.attributes) == ("nudge", {"function": "x * x", "at": "3"})


def test_an_exercise_has_its_parts():
    exercise = lesson(EXERCISE).exercises[0]
    assert (exercise.name, exercise.title, exercise.group) == ("double", "Twice", "tabs")
    assert exercise.prompt == "Write `double`.\nTwo lines of it."
    assert exercise.starter == "def double(x):\n    ..."
    assert exercise.hints == ("Use `*`.", "It is `2 * x`.")
    wrong = exercise.wrong[0]
    assert (wrong.message, wrong.has, wrong.lacks) == ('That "adds" 2.', "_ + 2", "_ * _")
    assert exercise.puzzle == ["def double(x):", "    return 2 * x"]


def test_long_solutions_make_no_puzzle():
    text = EXERCISE.replace("    return 2 * x", "    x += 1\n" * 20)
    assert lesson(text).exercises[0].puzzle == []


def test_a_longer_fence_may_hold_a_shorter_one():
    text = EXERCISE.replace("```hint\nUse `*`.\n```", "````hint\nSuch as\n```python\n2 * 3\n```\n````")
    assert lesson(text).exercises[0].hints[0] == "Such as\n```python\n2 * 3\n```"


def test_the_learners_code_is_put_in_its_place():
    template = "class A:\n    # --- your code ---\n\n    # --- code of other ---\nend"
    source = fill(template, "x = 1\n\ny = 2", {"other": "z = 3"})
    assert source.text == "class A:\n    x = 1\n\n    y = 2\n\n    z = 3\nend"
    assert (source.first, source.count, source.indent) == (2, 3, 4)


def test_templates_are_shared_and_nested():
    shared = (
        "```template name=Inner\nclass A:\n    # --- code of one ---\n    # --- code of two ---\n```\n"
        "```template name=Outer\nif True:\n    # --- template Inner ---\n```\n"
    )
    parts = "```starter\n...\n```\n```solution\n{0} = 1\n```\n```check\nexpect('', 1, 1)\n```\n"
    text = shared + "".join(
        f"```exercise name={name} template={template}\nprompt: Do.\n```\n" + parts.format(name)
        for name, template in (("one", "Inner"), ("two", "Outer"))
    )
    course = read_course({"01-a.md": FRONT + text})
    one, two = course.exercises["one"], course.exercises["two"]
    assert one.template == "class A:\n    # --- your code ---\n    # --- code of two ---"
    assert two.template == "if True:\n    class A:\n        # --- code of one ---\n        # --- your code ---"
    assert (one.parts, two.parts) == ({"two": "two = 1"}, {"one": "one = 1"})
    assert (
        course.templates["Outer"]
        == "if True:\n    class A:\n        # --- code of one ---\n        # --- code of two ---"
    )
    assert course.lesson_of("two").id == "01-a"


BAD = {
    "no front matter": ("Hello", 1, "front matter, found 'Hello'"),
    "an empty file": ("", 1, "found an empty file"),
    "no end of front matter": ("---\ntitle: x\n", 1, "does not end"),
    "no summary": ("---\ntitle: x\n---\n", 3, "no summary: add `summary: …`"),
    "an unknown key": ("---\ntitel: x\n---\n", 2, "found 'titel: x'"),
    "an open fence": (FRONT + "a\n```exercise name=x\n", 6, "close it with ```"),
    "a misspelt directive": (FRONT + "```exercize name=x\n```", 5, "did you mean 'exercise'?"),
    "an unknown directive": (FRONT + "```frobnicate name=x\n```", 5, "write one of `exercise`"),
    "a bad attribute": (FRONT + "```exercise name=x ti tle=\n```", 5, "name=value"),
    "an attribute twice": (FRONT + "```exercise name=x name=y\n```", 5, "`name` is given twice"),
    "an unknown attribute": (
        FRONT + "```exercise name=x nme=y\n```",
        5,
        "it takes `name`, `title`, `group`, `template`",
    ),
    "no name": (FRONT + "```exercise\nprompt: x\n```", 5, 'begin it with ```exercise name="…"'),
    "a name with capitals": (FRONT + "```exercise name=Double\nprompt: x\n```", 5, "lower-case letters"),
    "no prompt": (FRONT + EXERCISE.replace("prompt: ", ""), 7, "begin with `prompt: `"),
    "no check": (FRONT + re.sub(r"```check.*?```\n", "", EXERCISE, flags=re.DOTALL), 6, "has no check: add a block"),
    "a part twice": (FRONT + EXERCISE + "```starter\n...\n```", 37, "has a starter already"),
    "a part alone": (FRONT + "```starter\n...\n```", 5, "belongs to no exercise"),
    "a part after prose": (FRONT + EXERCISE + "Text.\n```hint\nx\n```", 38, "without prose between"),
    "an empty part": (FRONT + EXERCISE + "```wrong message=x has=y\n```", 37, "this wrong block is empty"),
    "an empty hint": (FRONT + EXERCISE + "```hint\n```", 37, "this hint is empty"),
    "a starter that is not Python": (FRONT + EXERCISE.replace("    ...", "    ))"), 12, "starter block is not Python"),
    "a sign that is not Python": (FRONT + EXERCISE.replace('"_ + 2"', '"_ +"'), 27, "`has` is not Python: invalid"),
    "a wrong answer without signs": (
        FRONT + EXERCISE.replace(' has="_ + 2" lacks="_ * _"', ""),
        27,
        "does not say how its mistake is seen in the code",
    ),
    "no slot": (FRONT + EXERCISE.replace("    # --- your code ---", "    pass"), 14, "has 0 places"),
    "two slots": (FRONT + EXERCISE.replace("import math", "# --- your code ---"), 14, "has 2 places"),
    "an unknown template": (FRONT + EXERCISE.replace("group=tabs", "template=Nope"), 6, "keep one of the two"),
    "an unknown part": (FRONT + EXERCISE.replace("import math", "# --- code of nope ---"), 15, "there are `double`"),
    "an unknown inner template": (
        FRONT + EXERCISE.replace("import math", "# --- template Nope ---"),
        15,
        "there are none in this course",
    ),
    "a template in itself": (
        FRONT + "```template name=A\n# --- template A ---\n```\n",
        6,
        "contains itself",
    ),
    "a name twice": (FRONT + EXERCISE + "```quiz name=double\nquestion: x\n```", 37, "the name 'double' is taken"),
    "a choice without reason": (
        FRONT + "```quiz name=q\nquestion: x\n- [x] a | b\n- [ ] c\n```",
        8,
        "- [ ] text | why not",
    ),
    "a quiz without right answer": (
        FRONT + "```quiz name=q\nquestion: x\n- [ ] a | b\n- [ ] c | d\n```",
        5,
        "one that is right",
    ),
    "a quiz without question": (FRONT + "```quiz name=q\n- [x] a | b\n- [ ] c | d\n```", 6, "begin with `question: `"),
    "a stepper without result": (FRONT + "```stepper\na = 1\n```", 6, "must be the result"),
    "an order without result": (FRONT + "```order own\na = 1\n```", 6, "last line of this order must be the result"),
    "an order that is not Python": (FRONT + "```order\na = = 1\n```", 6, "this order block is not Python"),
    "an order without code": (FRONT + "```order own\n```", 5, "this order block is empty"),
    "an order with a name": (FRONT + "```order name=o\na\n```", 5, "`name` is not an attribute of order"),
    "a misspelled order": (FRONT + "```ordre own\na\n```", 5, "did you mean 'order'"),
    "an unknown widget": (FRONT + "```widget name=nudgee\n```", 5, "there is no widget 'nudgee'"),
    "an unknown setting of a widget": (
        FRONT + "```widget name=ucurve step=1\n```",
        5,
        "`step` is not an attribute of the widget ucurve: it takes `name`, `function`, `at`",
    ),
    "a part of an exercise without solution": (
        FRONT
        + EXERCISE.replace("import math", "# --- code of later ---")
        + "```exercise name=later\nprompt: x\n```\n```starter\n...\n```",
        37,
        "exercise 'later' has no solution",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_told_with_their_line(case):
    text, line, message = BAD[case]
    with pytest.raises(LessonError) as error:
        read_course({"01-a.md": text})
    assert str(error.value).startswith(f"01-a.md, line {line}: ")
    assert message in str(error.value)


def test_a_folder_without_lessons(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        load_course(tmp_path / "nope")
    (tmp_path / "README.md").write_text("not a lesson")
    with pytest.raises(FileNotFoundError, match="holds no lessons"):
        load_course(tmp_path)


def test_a_file_in_another_encoding(tmp_path):
    (tmp_path / "01-a.md").write_bytes(b"---\ntitle: caf\xe9\n")
    with pytest.raises(LessonError, match="line 2: this is not UTF-8"):
        load_course(tmp_path)


def test_a_folder_of_ones_own(tmp_path):
    windows = (FRONT + "Second.").replace("\n", "\r\n").encode("utf-8-sig")
    (tmp_path / "02-b.md").write_bytes(windows)
    (tmp_path / "01-a.md").write_text(FRONT + EXERCISE)
    assert [lesson.id for lesson in load_course(tmp_path).lessons] == ["01-a", "02-b"]


# The course itself.


@pytest.fixture(scope="module")
def course():
    return load_course()


def test_there_are_fourteen_lessons(course):
    assert len(course.lessons) == 14
    assert [lesson.id[:2] for lesson in course.lessons] == [f"{k:02}" for k in range(1, 15)]


def test_the_closures_are_tabs_of_one_class(course):
    closures = [e for e in course.exercises.values() if e.group == "closures"]
    assert [e.name for e in closures] == ["add", "mul", "power", "tanh", "exp"]
    assert all("class Value" in e.template for e in closures)


@pytest.mark.parametrize("lesson", load_course().lessons, ids=lambda lesson: lesson.id)
def test_every_lesson_is_whole(lesson):
    quizzes = [block for block in lesson.blocks if isinstance(block, Quiz)]
    assert lesson.exercises or any(isinstance(block, Widget) for block in lesson.blocks)
    assert quizzes or any(isinstance(block, Predict) for block in lesson.blocks)
    for quiz in quizzes:
        assert sum(choice.right for choice in quiz.choices) == 1
    for exercise in lesson.exercises:
        assert len(exercise.hints) >= 2
        assert exercise.wrong
        for wrong in exercise.wrong:  # a message is Markdown: stars of Python's would become emphasis
            assert "**" not in re.sub(r"`[^`]*`", "", wrong.message)


def test_the_json_is_what_the_page_was_promised(course):
    data = json.loads(course_json(course))
    assert data["version"] == 1
    assert "class Value" in data["templates"]["Value"]
    keys = {
        "exercise": "name title group prompt starter template solution check hints wrong puzzle prints parts",
        "prose": "markdown",
        "quiz": "name question choices",
        "stepper": "code own",
        "order": "code own",
        "predict": "name code",
        "widget": "name attributes",
    }
    for lesson in data["lessons"]:
        assert lesson.keys() == {"id", "title", "summary", "blocks"}
        for block in lesson["blocks"]:
            assert block.keys() == {"type", *keys[block["type"]].split()}
            for wrong in block.get("wrong", ()):
                assert wrong.keys() == {"message", "fingerprint", "has", "lacks", "code"}
                assert re.fullmatch("[0-9a-f]{16}", wrong["fingerprint"])


def test_exercises_survive_json(course):
    for exercise in course.exercises.values():
        assert exercise_data(exercise_from(json.loads(json.dumps(exercise_data(exercise))))) == exercise_data(exercise)


def test_the_course_needs_no_other_package():
    code = (
        "import sys; before = set(sys.modules); from chainrule.learn import grading, graphs, lesson_files;"
        "e = lesson_files.load_course().exercises['bug-one']; assert grading.grade(e, e.solution).passed;"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(loaded - sys.stdlib_module_names - {'chainrule'}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_lesson_in_the_teachers_guide_works():
    from chainrule.learn.grading import grade, verify

    text = (ROOT / "docs" / "teaching.md").read_text()
    lesson = re.search(r"^````markdown\n(.*?)^````", text, re.DOTALL | re.MULTILINE)[1]
    course = read_course({"01-halves.md": lesson})
    assert verify(course) == []
    assert [type(block) for block in course.lessons[0].blocks] == [Prose, Exercise, Quiz]
    assert grade(course.exercises["half"], course.exercises["half"].solution).graphs


def test_the_submission_in_the_teachers_guide_passes():
    from chainrule.learn.grading import grade
    from chainrule.learn.submissions import read_answers

    text = (ROOT / "docs" / "teaching.md").read_text()
    code = re.search(r"^```python\n(# exercise.*?)^```", text, re.DOTALL | re.MULTILINE)[1]
    answers = read_answers(code)
    assert [answer.name for answer in answers] == ["add", "mul"]
    assert all(grade(load_course().exercises[answer.name], answer.code).passed for answer in answers)


def test_teachers_are_told_what_can_be_set_of_every_widget():
    rows = dict(
        re.findall(r"^\| `([a-z-]+)` \| [^|]* \| (.*) \|$", (ROOT / "docs" / "teaching.md").read_text(), re.MULTILINE)
    )
    for widget, settings in WIDGETS.items():
        assert set(settings) <= set(re.findall(r"[a-z]+", rows[widget]))
