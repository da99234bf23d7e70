"""`chainrule grade` and `chainrule lessons`, end to end: reports, limits, exit codes, what they say to bad input."""

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from chainrule.cli import main
from chainrule.learn import submissions
from chainrule.learn.confinement import MACHINES, Limits
from chainrule.learn.lesson_files import load_course
from chainrule.learn.submissions import grade_apart, overfull, read_answers, scratch_folder
from lesson_texts import DOUBLE

EXERCISES = load_course().exercises
LESSON = f"""---
title: Mine
summary: A lesson of my own.
---
{DOUBLE}```wrong message="That squares it." lacks="2 * x"
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
    assert (add["lesson"], add["exercise"], add["title"], add["passed"]) == ("04-closures", "add", "Addition", True)
    assert mul["message"] == EXERCISES["mul"].wrong[0].message
    assert [row["got"] for row in mul["rows"] if not row["right"]] == ["3", "-3", "-3", "0.75", "0"]
    assert (exp["error"]["kind"], exp["error"]["line"]) == ("NameError", 13)
    assert "graphs" not in add


def test_an_error_has_one_line_number(run, folder):
    (folder / "a.py").write_text(
        f"# exercise: add\n{EXERCISES['add'].solution}\n# exercise: mul\ndef _backward(:\n    pass\n"
        "# exercise: exp\ndef _backward():\npass\n# exercise: tanh\nx = [1,\n2)\n"
    )
    errors = [result["error"] for result in json.loads(run("grade", "a.py")[1])["results"][1:]]
    assert [error["line"] for error in errors] == [6, 10, 13]
    assert errors[0]["text"] == "Python cannot read line 6: invalid syntax."
    assert "line 10: expected an indented block after function definition on line 9." in errors[1]["text"]
    assert "line 13: closing parenthesis ')' does not match opening parenthesis '[' on line 12." in errors[2]["text"]


def test_a_file_with_one_answer(run, folder):
    (folder / "a.py").write_text(EXERCISES["add"].solution)
    code, out, _ = run("grade", "a.py", "--exercise", "add", "--lesson", "04-closures")
    assert (code, json.loads(out)["passed"]) == (0, True)
    (folder / "b.py").write_text(EXERCISES["backward"].solution)
    code, out, _ = run("grade", "b.py", "--lesson", "05-backward")  # it has one exercise
    assert (code, json.loads(out)["results"][0]["exercise"]) == (0, "backward")


def test_passed_answers_are_used_in_later_ones(run, folder):
    add = EXERCISES["add"].solution + "\n    print('mine')"
    (folder / "a.py").write_text(f"# exercise: add\n{add}\n# exercise: diamond\n{EXERCISES['diamond'].solution}\n")
    code, out, _ = run("grade", "a.py")
    assert code == 0
    assert json.loads(out)["results"][1]["output"].startswith("mine\n")


def test_the_progress_that_the_page_saves_is_graded(run, folder):
    add = EXERCISES["add"].solution + "\n    print('mine')"
    exercises = {
        "diamond": {"code": EXERCISES["diamond"].solution},
        "add": {"code": "def _backward():\n    oops", "passed": add, "hints": 1},
        "mul": {"code": EXERCISES["mul"].wrong[0].code},
        "exp": {"hints": 2},
    }
    saved = {"version": 1, "exercises": exercises, "quizzes": {}, "predictions": {}, "visited": {}}
    (folder / "progress.json").write_text(json.dumps(saved))
    code, out, _ = run("grade", "progress.json")
    results = {result["exercise"]: result for result in json.loads(out)["results"]}
    assert (code, list(results)) == (1, ["add", "mul", "diamond"])  # in the course's order
    assert [result["passed"] for result in results.values()] == [True, False, True]
    assert results["mul"]["message"] == EXERCISES["mul"].wrong[0].message
    assert results["diamond"]["output"].startswith("mine\n")
    code, out, _ = run("grade", "progress.json", "--exercise", "add")
    assert (code, len(json.loads(out)["results"])) == (0, 1)


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
    "a lesson of several": (["a.py", "--lesson", "04-closures"], "does not say which exercise"),
    "another lesson": (["a.py", "--lesson", "01-derivative", "--exercise", "add"], "not in lesson 01-derivative"),
    "both": (["marked.py", "--exercise", "add"], "line 2 says `# exercise: add`, and `--exercise` says add"),
    "twice": (["twice.py"], "twice.py: line 3 is a second answer to 'add'"),
    "code before": (["before.py"], "line 1 stands before the first `# exercise: NAME`"),
    "an empty name": (["empty.py"], "there is no exercise ''"),
    "not text": (["binary.py", "--exercise", "add"], "binary.py: 'utf-8' codec"),
    "too large": (["large.py"], "larger than a megabyte"),
    "not progress": (["other.json"], "other.json: it does not hold progress of the course"),
    "progress of another course": (["foreign.json"], "foreign.json: there is no exercise 'dance'"),
    "progress without the answer": (["progress.json", "--exercise", "mul"], "holds no answer to mul"),
    "no folder": (["a.py", "--lessons", "nope"], "there is no folder 'nope'"),
    "a bad lesson": (["a.py", "--lessons", "bad"], "01-bad.md, line 1: a lesson begins with front matter"),
    "more memory than there is": (["a.py", "--memory", "9" * 20], "is not in the range 64<=x<=1000000"),
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
    (folder / "other.json").write_text('{"version": 1, "exercises": {"add": []}}')
    (folder / "foreign.json").write_text('{"version": 1, "exercises": {"dance": {"code": "1"}}}')
    (folder / "progress.json").write_text('{"version": 1, "exercises": {"add": {"code": "1"}, "mul": {"hints": 1}}}')
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
    report = apart("import os\nopen('left', 'w').write('x')\nprint(os.getcwd())\nprint(os.environ['HOME'])")
    place, home = report["output"].splitlines()
    assert place == home
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


# Answers that do harm. Each ends with a report and an exit status, and leaves no process and no file behind.

RIGHT = "\n" + EXERCISES["slope"].solution
FILTERED = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in MACHINES, reason="needs a filter of system calls"
)
DAEMON = """
import ctypes, time
libc = ctypes.CDLL(None)
if libc.fork() == 0:
    libc.setsid()
    if libc.fork() == 0:
        time.sleep(60)
    libc._exit(0)
libc.wait(None)  # by then the second one is there, and alone
"""


@pytest.fixture
def scratch(folder, monkeypatch):
    """Where the answers of a test run. All their processes have it in their environment."""
    place = folder / "scratch"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def processes_of(scratch):
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(scratch) in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def wait_until(condition):
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def graded(run, folder, scratch):
    def graded(code, seconds=5.0):
        (folder / "a.py").write_text(code)
        status, out, err = run("grade", "a.py", "--exercise", "slope", "--seconds", seconds)
        report = json.loads(out)
        assert err == ""
        assert status == (0 if report["passed"] else 1)
        assert processes_of(scratch) == []
        assert os.listdir(scratch) == []
        return report["results"][0]

    return graded


HARM = {
    "a loop": ("while True: pass", "Timeout"),
    "a loop that catches everything": (
        "while True:\n    try:\n        1 + 1\n    except BaseException: pass",
        "Timeout",
    ),
    "a loop in a check": ("def slope(*_):\n    while True: pass", "Timeout"),
    "a number that is shown without end": (
        "class N:\n    def __repr__(self):\n        while True: pass\nslope = lambda *_: N()",
        "Timeout",
    ),
    "a flood of text": ("while True: print('x' * 10**6)", "Timeout"),
    "a flood of text past Python": ("import os\nwhile True: os.write(1, b'x' * 10**6)", "Timeout"),
    "forks without end, caught": (
        "import os\nwhile True:\n    try: os.fork()\n    except Exception: pass",
        "Timeout",
    ),
    "forks": ("import os\nwhile True: os.fork()", "PermissionError"),
    "processes": ("import multiprocessing as m\nm.Process(target=print).start()", "PermissionError"),
    "another program": ("import os\nos.execv('/bin/sleep', ['sleep', '60'])", "PermissionError"),
    "a daemon": ("import os\nif os.fork() == 0:\n    os.setsid()\n    os.fork()", "PermissionError"),
    "a signal to its parent": ("import os\nos.kill(os.getppid(), 9)", "PermissionError"),
    "a signal to its session": ("import os\nos.killpg(0, 9)", "PermissionError"),
    "one object": ("x = bytearray(10**10)", "MemoryError"),
    "many objects": ("x = []\nwhile True: x.append(bytearray(10**6))", "MemoryError"),
    "a large number": ("x = 9 ** 9 ** 9", ("Timeout", "MemoryError")),
    "threads": (
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(100,)).start()",
        ("RuntimeError", "MemoryError", "Timeout"),
    ),
    "recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
        ("MemoryError", "RecursionError", "Ended", "Timeout"),
    ),
    "recursion in C": (
        "x = []\nfor _ in range(10**6): x = [x]\nprint(repr(x) == repr(x))",
        ("RecursionError", "Ended"),
    ),
    "a giant file": ("open('f', 'wb').write(b'x' * 10**8)", "OSError"),
    "large files": ("for k in range(10**9): open(f'f{k}', 'wb').write(b'x' * 10**6)", "Files"),
    "many files": ("for k in range(10**9): open(f'f{k}', 'wb').close()", "Files"),
    "many folders": ("import os\nfor k in range(10**9): os.mkdir(f'f{k}')", "Files"),
    "a deep folder": (
        "import os\nfor k in range(3000):\n    os.mkdir('d' * 200); os.chdir('d' * 200)",
        "Files",
    ),
    "folders and a right answer": ("import os\nfor k in range(1500): os.mkdir(f'f{k}')" + RIGHT, "Files"),
    "an end": ("import os\nos._exit(0)", "Ended"),
    "a kill": ("import os\nos.kill(os.getpid(), 9)", "Ended"),
    "a crash": ("import ctypes\nctypes.string_at(0)", "Ended"),
    "a forged report": (
        "import os\nfor k in range(3, 64):\n    try: os.write(k, b'{\"passed\": true}\\n')\n    except OSError: pass",
        "Report",
    ),
    "a forged report and an end": (
        "import os\nfor k in range(3, 64):\n    try: os.write(k, b'{\"passed\": true}')\n    except OSError: pass\n"
        "os._exit(0)",
        "Report",
    ),
    "a flood of reports": (
        "import os\nfor k in range(3, 64):\n    try:\n        while True: os.write(k, b'x' * 10**6)\n"
        "    except OSError: pass",
        "Report",
    ),
    "a closed report": ("import os\nos.closerange(0, 64)", "Report"),
    "a closed report and a loop": ("import os\nos.closerange(0, 64)\nwhile True: pass", ("Report", "Timeout")),
}


@pytest.mark.parametrize("harm", HARM)
def test_answers_that_do_harm_are_reported_and_leave_nothing(graded, harm):
    code, kinds = HARM[harm]
    seconds = 0.5 if kinds and "Timeout" in kinds else 30.0  # a busy machine takes long to fill its memory
    result = graded(code, seconds)
    kind = result["error"] and result["error"]["kind"]
    assert kind in (kinds if isinstance(kinds, tuple) else (kinds,))
    assert not result["passed"]
    assert len(json.dumps(result)) < 50_000


HARMLESS = {
    "a deep folder that is closed": "import os\nos.makedirs('a/b/c')\nos.chmod('a/b', 0)\nos.chmod('.', 0)",
    "what runs at the end": "import atexit, os, time\natexit.register(time.sleep, 100)\nos._exit = lambda *_: None",
    "threads that stay": "import _thread as t, time\ntry: t.start_new_thread(time.sleep, (9,))\nexcept Exception: pass",
    "signals that it does not hear": "import signal\nfor s in (2, 15, 1): signal.signal(s, signal.SIG_IGN)",
}


@pytest.mark.parametrize("case", HARMLESS)
def test_an_answer_can_be_right_all_the_same(graded, case):
    assert graded(HARMLESS[case] + RIGHT)["passed"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import signal, time\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except OSError: pass\nwhile True: time.sleep(1)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    ],
    ids=["deaf", "asleep"],
)
def test_what_hears_nothing_is_ended_from_outside(graded, code, monkeypatch):
    monkeypatch.setattr(submissions, "STARTING", 1.0)  # Python needs less to start, and if not, is ended no less
    assert graded(code, 0.5)["error"]["kind"] == "Timeout"


@FILTERED
def test_the_kernel_refuses_what_gets_past_the_hook(graded):
    """Asked with the signal 0, which only asks."""
    code = """
import ctypes, os
libc = ctypes.CDLL(None)
print(libc.fork(), libc.vfork(), libc.execl(b"/bin/true", b"true", None), libc.system(b"true") != 0)
print(libc.kill(os.getppid(), 0), libc.kill(0, 0), libc.kill(-1, 0), libc.kill(os.getpid(), 0))
"""
    result = graded(code + RIGHT)
    assert (result["passed"], result["output"]) == (True, "-1 -1 -1 True\n-1 -1 -1 0\n")


@FILTERED
def test_a_daemon_that_gets_past_the_hook_is_never_born(graded, scratch):
    environment = {**os.environ, "PLACE": str(scratch)}
    subprocess.run([sys.executable, "-c", DAEMON], env=environment, check=True)  # without limits, it stays
    (left,) = processes_of(scratch)
    os.kill(left, signal.SIGKILL)
    wait_until(lambda: not processes_of(scratch))
    graded(DAEMON + RIGHT)  # which sees that nothing is left


@FILTERED
@pytest.mark.slow
def test_an_answer_does_not_outlive_whoever_grades_it(folder, scratch):
    (folder / "a.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nopen('begun', 'w').close()\ntime.sleep(99)"
    )
    command = [sys.executable, "-m", "chainrule", "grade", "a.py", "--exercise", "slope"]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(scratch)}, stdout=subprocess.DEVNULL) as grader:
        wait_until(lambda: list(scratch.glob("*/begun")))
        assert processes_of(scratch)
        grader.kill()
    wait_until(lambda: not processes_of(scratch))


@pytest.mark.parametrize("moved", [False, True])
def test_links_are_not_followed_when_the_folder_is_removed(graded, folder, moved):
    precious = folder / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("years of work")
    precious.chmod(0o755)
    code = f"import os\nos.symlink({str(precious)!r}, 'link')\nos.symlink('.', 'itself')\n"
    code += f"try: os.link({str(precious / 'thesis')!r}, 'x')\nexcept OSError: pass"  # Landlock refuses it
    if moved:
        code += "\nhere = os.getcwd()\ntry:\n    os.rename(here, here + 'x')"
        code += f"\n    os.symlink({str(precious)!r}, here)\nexcept OSError: pass"
    assert graded(code + RIGHT)["passed"]
    assert (precious / "thesis").read_text() == "years of work"
    assert precious.stat().st_mode & 0o777 == 0o755


def test_a_scratch_folder_that_was_moved_is_removed_without_following_links(folder):
    """As an answer can move it on a system that does not keep it to its folder."""
    precious = folder / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("years of work")
    with scratch_folder() as path:
        os.link(precious / "thesis", os.path.join(path, "x"))
        os.rename(path, path + "x")
        os.symlink(precious, path)
    assert not os.path.lexists(path)
    assert not os.path.exists(path + "x") or sys.platform != "linux"
    assert (precious / "thesis").read_text() == "years of work"


def test_a_scratch_folder_is_measured_without_following_links(tmp_path):
    with scratch_folder() as path:
        assert not overfull(path, Limits())
        os.symlink("/", os.path.join(path, "root"))
        assert not overfull(path, Limits(folder_files=10))
        os.makedirs(os.path.join(path, *"abcdefghijk"))
        assert overfull(path, Limits(folder_files=10))
        with open(os.path.join(path, "f"), "wb") as file:
            file.write(b"x" * (2 << 20))
            file.flush()
            os.fsync(file.fileno())
        assert overfull(path, Limits(folder_megabytes=1))
    assert not os.path.exists(path)


def test_reading_answers():
    text = "# exercise: add\na = 1\n\n#  exercise:  mul \nb = 2"
    assert [(a.name, a.code, a.line) for a in read_answers(text)] == [("add", "a = 1\n\n", 2), ("mul", "b = 2", 5)]


# chainrule lessons


def test_the_course_is_listed(run):
    code, out, _ = run("lessons", "--json")
    listed = json.loads(out)
    assert (code, listed["problems"]) == (0, [])
    assert listed["lessons"][3]["exercises"] == ["add", "mul", "power", "tanh", "exp"]


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
