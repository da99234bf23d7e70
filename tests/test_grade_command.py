"""`chainrule grade` and `chainrule lessons`, end to end: reports, limits, exit codes, what they say to bad input."""

import json
import os
import sys

import pytest

from chainrule.cli import main
from chainrule.learn.lesson_files import load_course
from chainrule.learn.submissions import Limits, grade_apart, read_answers

EXERCISES = load_course().exercises
LESSON = """---
title: Mine
summary: A lesson of my own.
---
```exercise name=double
prompt: Double it.
```
```starter
def double(x):
    ...
```
```solution
def double(x):
    return 2 * x
```
```check
expect("double(3)", double(3), 6)
```
```wrong message="That squares it."
def double(x):
    return x * x
```
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_answers_are_graded(run, folder):
    (folder / "a.py").write_text(
        f"# My answers.\n\n# exercise: add\n{EXERCISES['add'].solution}\n"
        f"#exercise: mul\n{EXERCISES['mul'].wrong[0].code}\n# exercise: exp\ndef _backward():\n    oops\n"
    )
    code, out, err = run("grade", "a.py")
    report = json.loads(out)
    assert (code, err) == (1, "")
    assert (report["file"], report["passed"]) == ("a.py", False)
    add, mul, exp = report["results"]
    assert (add["lesson"], add["exercise"], add["title"], add["passed"]) == ("03-closures", "add", "Addition", True)
    assert mul["message"] == EXERCISES["mul"].wrong[0].message
    assert [row["got"] for row in mul["rows"] if not row["right"]] == ["3", "-3", "-3"]
    assert (exp["error"]["kind"], exp["error"]["line"]) == ("NameError", 13)
    assert "graphs" not in add


def test_a_file_with_one_answer(run, folder):
    (folder / "a.py").write_text(EXERCISES["add"].solution)
    code, out, _ = run("grade", "a.py", "--exercise", "add", "--lesson", "03-closures")
    assert (code, json.loads(out)["passed"]) == (0, True)
    (folder / "b.py").write_text(EXERCISES["backward"].solution)
    code, out, _ = run("grade", "b.py", "--lesson", "04-backward")  # it has one exercise
    assert (code, json.loads(out)["results"][0]["exercise"]) == (0, "backward")


def test_passed_answers_are_used_in_later_ones(run, folder):
    add = EXERCISES["add"].solution + "\n    print('mine')"
    (folder / "a.py").write_text(f"# exercise: add\n{add}\n# exercise: diamond\n{EXERCISES['diamond'].solution}\n")
    code, out, _ = run("grade", "a.py")
    assert code == 0
    assert json.loads(out)["results"][1]["output"].startswith("mine\n")


def test_ones_own_lessons(run, folder):
    (folder / "lessons").mkdir()
    (folder / "lessons" / "01-mine.md").write_text(LESSON)
    (folder / "a.py").write_text("def double(x):\n    return x**2\n")
    code, out, _ = run("grade", "a.py", "--lessons", "lessons", "--exercise", "double")
    assert (code, json.loads(out)["results"][0]["message"]) == (1, "That squares it.")


BAD = {
    "no file": (["nope.py"], "there is no file 'nope.py'"),
    "no exercise": (["a.py"], "a.py: it does not say which exercise it answers"),
    "an unknown exercise": (["a.py", "--exercise", "nope"], "there is no exercise 'nope'; the course has slope,"),
    "an unknown lesson": (["a.py", "--lesson", "nope"], "`--lesson` is 'nope', which is not in the course"),
    "a lesson of several": (["a.py", "--lesson", "03-closures"], "does not say which exercise"),
    "another lesson": (["a.py", "--lesson", "01-derivative", "--exercise", "add"], "not in lesson 01-derivative"),
    "both": (["marked.py", "--exercise", "add"], "line 2 says `# exercise: add`, and `--exercise` says add"),
    "twice": (["twice.py"], "twice.py: line 3 is a second answer to 'add'"),
    "code before": (["before.py"], "line 1 stands before the first `# exercise: NAME`"),
    "an empty name": (["empty.py"], "there is no exercise ''"),
    "not text": (["binary.py", "--exercise", "add"], "binary.py: 'utf-8' codec"),
    "too large": (["large.py"], "larger than a megabyte"),
    "no folder": (["a.py", "--lessons", "nope"], "there is no folder 'nope'"),
    "a bad lesson": (["a.py", "--lessons", "bad"], "01-bad.md, line 1: a lesson begins with front matter"),
    "no time": (["a.py", "--seconds", "0"], "0.0 is not in the range"),
    "no memory": (["a.py", "--memory", "1"], "1 is not in the range"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_in_a_line_or_two(run, folder, case):
    (folder / "a.py").write_text("pass\n")
    (folder / "marked.py").write_text("\n# exercise: add\npass\n")
    (folder / "twice.py").write_text("# exercise: add\npass\n# exercise: add\npass\n")
    (folder / "before.py").write_text("import math\n# exercise: add\npass\n")
    (folder / "empty.py").write_text("# exercise:\npass\n")
    (folder / "binary.py").write_bytes(b"\xff\xfe")
    (folder / "large.py").write_text("#" * 1_000_001)
    (folder / "bad").mkdir()
    (folder / "bad" / "01-bad.md").write_text("Hello")
    arguments, message = BAD[case]
    code, out, err = run("grade", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) <= 2


def apart(code, **limits):
    return grade_apart(EXERCISES["slope"], code, limits=Limits(**{"seconds": 5.0} | limits))


def test_a_loop_without_end_is_stopped_and_pointed_at():
    report = apart("x = 0\nwhile True:\n    x += 1", seconds=0.5)
    assert (report["error"]["kind"], report["error"]["line"] in (2, 3)) == ("Timeout", True)


def test_a_loop_that_resists_is_ended():
    code = "while True:\n    try:\n        sum(range(10**4))\n    except: pass"
    assert apart(code, seconds=0.5)["error"]["kind"] == "Timeout"


@pytest.mark.slow
def test_a_loop_that_hears_nothing_is_ended_from_outside():
    code = "import signal, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\ntime.sleep(60)"
    assert apart(code, seconds=0.5)["error"]["kind"] == "Timeout"


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        ("import os\nos._exit(7)", "Ended", "exit status 7"),
        ("import os\nos.kill(os.getpid(), 9)", "Ended", "SIGKILL"),
        ("raise SystemExit(0)", "SystemExit", "called exit()"),
        ("x = bytearray(10**9)", "MemoryError", "ran out of memory"),
        ("import subprocess\nsubprocess.run(['true'])", "PermissionError", "starting a process is not allowed"),
        ("import os\nos.fork()", "PermissionError", "starting a process is not allowed"),
        ("open('big', 'wb').write(b'x' * 2_000_000)", "OSError", "File too large"),
        ("files = [open('f', 'w') for _ in range(100)]", "OSError", "Too many open files"),
        ("def f(): f()\nf()", "RecursionError", "calls itself"),
    ],
)
def test_what_uses_up_too_much_is_reported(code, kind, text):
    error = apart(code)["error"]
    assert error["kind"] == kind
    assert text in error["text"]


def test_answers_run_in_a_scratch_folder(folder):
    report = apart("import os\nopen('left', 'w').write('x')\nprint(os.getcwd(), os.environ.get('HOME'))")
    place = report["output"].split()[0]
    assert place == report["output"].split()[1]
    assert not os.path.exists(place)
    assert os.listdir(folder) == []


def test_output_cannot_be_mistaken_for_the_report():
    code = "import os\nos.write(1, b'{\"passed\": true}')\nos.write(2, b'x')\nprint('hello')"
    report = apart(code)
    assert (report["passed"], report["output"]) == (False, "hello\n")


def test_many_answers_do_not_wait_for_what_they_left_running():
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(10**6,)).start()"
    report = apart(code + "\n" + EXERCISES["slope"].solution)
    assert report["passed"] or report["error"]["kind"] == "RuntimeError"  # no threads unless one is the administrator


def test_reading_answers():
    text = "# exercise: add\na = 1\n\n#  exercise:  mul \nb = 2"
    assert [(a.name, a.code, a.line) for a in read_answers(text)] == [("add", "a = 1\n\n", 2), ("mul", "b = 2", 5)]


# chainrule lessons


def test_the_course_is_listed(run):
    code, out, _ = run("lessons", "--json")
    listed = json.loads(out)
    assert (code, listed["problems"]) == (0, [])
    assert listed["lessons"][2]["exercises"] == ["add", "mul", "power", "tanh", "exp"]


def test_ones_own_lessons_are_verified(run, folder):
    (folder / "01-mine.md").write_text(LESSON)
    code, out, _ = run("lessons", ".")
    assert (code, out) == (0, "01-mine: Mine\n    double: double, 1 wrong answer\n")
    (folder / "01-mine.md").write_text(LESSON.replace("return 2 * x", "return 3 * x"))
    code, out, _ = run("lessons", ".")
    assert code == 1
    assert "01-mine.md, line 5: the solution of 'double' does not pass: double(3) is 9, expected 6" in out
    code, _, err = run("lessons", "nope")
    assert (code, err) == (2, "chainrule: there is no folder 'nope': give one that holds lessons, such as 01-sums.md\n")
