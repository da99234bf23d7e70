"""Answers that set out to be graded as passed without giving the right numbers. None of them may be."""

import json
import platform
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from chainrule.cli import main
from chainrule.learn import confinement
from chainrule.learn.confinement import Limits
from chainrule.learn.grading import SKIPPED, grade, numbered, reference_of, task_for, without_answers, without_expected
from chainrule.learn.lesson_files import load_course, read_course
from chainrule.learn.submissions import grade_answers, grade_apart, read_answers

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")

COURSE = load_course()
EXERCISES = COURSE.exercises
WRONG = "\ndef slope(f, x, h=0.0001):\n    return 0.0"
FILTERED = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in confinement.MACHINES, reason="needs a filter of system calls"
)
LANDLOCKED = pytest.mark.skipif(confinement.landlock_version() < 1, reason="needs Landlock")


def when_called(code):
    """An answer that does something when it is first called, when `expect` is there. It is right that once."""
    body = "".join(f"    {line}\n" for line in code.strip().splitlines())
    first = "    if not done:\n        attempt()\n        return (f(x + h) - f(x)) / h\n    return 0.0\n\n\n"
    check = "    check = __import__('sys')._getframe(2).f_globals\n"
    return f"done = []\n\n\ndef slope(f, x, h=0.0001):\n{first}def attempt():\n    done.append(1)\n{check}{body}"


EVERYWHERE = """
import os
def tell(text):
    for k in range(3, 64):
        try: os.write(k, text.encode())
        except OSError: pass
"""
TRANSCRIPT = (
    EVERYWHERE
    + """
import json
from chainrule.learn import running as r
def transcript(numbers):
    made = [r.Comparison(f'{k}', r.thing(n), r.thing(n), 1e9, site=k) for k, n in enumerate(numbers)]
    return json.dumps(r.Transcript(r.Reading(False, (), None), tuple(made)).data()) + '\\n'
"""
)

FORGERIES = {
    # what the grader uses
    "abs, at once": "import builtins\nbuiltins.abs = lambda *_: 0.0" + WRONG,
    "abs, when called": when_called("import builtins\nbuiltins.abs = lambda *_: 0.0"),
    "all builtins that compare": when_called(
        "import builtins\nfor name in ('abs', 'all', 'bool', 'isinstance', 'issubclass', 'zip', 'len', 'type'):\n"
        "    setattr(builtins, name, lambda *_, **__: True)"
    ),
    "expect, exchanged": when_called("check['expect'] = lambda *_, **__: True"),
    "expect, told what it expects": when_called(
        "real = check['expect']\n"
        "check['expect'] = lambda label, got, expected=1.0, *_, **more: real(label, expected, expected, **more)"
    ),
    "expect, without its tolerance": when_called(
        "real = check['expect']\ncheck['expect'] = lambda label, got, *_, **more: "
        "real(label, got, got, **{**more, 'tolerance': 1e9})"
    ),
    "what expect is made of": when_called(
        "module = check['expect'].__func__.__globals__\n"
        "module['agree'] = module['_agree'] = lambda *_: True\n"
        "module['Comparison'] = type('C', (), {'__init__': lambda *_, **__: None})"
    ),
    "the session of expect": when_called(
        "session = check['expect'].__self__\nsession.comparisons = type('L', (list,), {'append': print})()"
    ),
    "the grader's modules": "from chainrule.learn import grading, running, submissions\n"
    "for module in (grading, running, submissions):\n"
    "    for name in ('agree', 'judge', '_row', 'reference_of'):\n"
    "        setattr(module, name, lambda *_, **__: True)\n" + WRONG,
    "other modules of these names": "import sys, types\n"
    "for name in list(sys.modules):\n"
    "    if name.startswith('chainrule.learn'): sys.modules[name] = types.ModuleType(name)" + WRONG,
    "the main module": "import __main__\n__main__.judge = __main__.run = lambda *_: {'passed': True}" + WRONG,
    "json": "import json\njson.dumps = lambda *_, **__: '{\"passed\": true}'\n"
    "json.JSONEncoder.default = json.JSONEncoder.encode = lambda *_: '{\"passed\": true}'\n"
    "json.encoder.float = json.encoder.encode_basestring_ascii = lambda *_: '14'" + WRONG,
    "the functions of all modules": "import gc, types\n"
    "for thing in gc.get_objects():\n"
    "    if isinstance(thing, types.FunctionType) and thing.__name__ in ('agree', '_row', 'judge'):\n"
    "        thing.__code__ = (lambda *a, **k: True).__code__" + WRONG,
    "all that says whether it passed": when_called(
        "import gc\nfor thing in gc.get_objects():\n    for name in ('passed', 'right'):\n"
        "        if type(thing) is dict and name in thing: thing[name] = True"
    ),
    "the rows that are kept": when_called(
        "import gc\nfor thing in gc.get_objects():\n    if type(thing).__name__ == 'Session':\n"
        "        thing.comparisons.clear()\n        thing.expect = lambda *_, **__: True"
    ),
    "the frames around it": when_called(
        "import sys\nframe = sys._getframe()\nwhile frame:\n    for name in ('passed', 'right'):\n"
        "        if name in frame.f_locals: frame.f_locals[name] = True\n    frame = frame.f_back"
    ),
    "a jump over the check": when_called(
        "import sys\nframe = sys._getframe(2)\n"
        "def jump(frame, event, _):\n    if event == 'line': frame.f_lineno = 7\n    return jump\n"
        "sys.settrace(jump)\nframe.f_trace = jump"
    ),
    "small numbers, in memory": "import ctypes\n"
    "for k in range(-10, 15):\n    ctypes.c_longlong.from_address(id(k) + 24).value = 0\n" + WRONG,
    # what is given back
    "a float that agrees": "class Any(float):\n    __sub__ = __rsub__ = __abs__ = lambda *_: 0.0\n"
    "    __eq__ = __le__ = __lt__ = __ge__ = lambda *_: True\n    __float__ = lambda _: 14.0\n"
    "    __repr__ = __str__ = lambda _: '14'\n    __hash__ = None\nslope = lambda *_: Any(7.0)",
    "an int that agrees": "class Any(int):\n    __sub__ = __rsub__ = lambda *_: 0\n    __eq__ = lambda *_: True\n"
    "    __int__ = __index__ = lambda _: 14\n    __hash__ = None\nslope = lambda *_: Any(7)",
    "an object that says it is a float": "class Any:\n    __class__ = float\n    __eq__ = lambda *_: True\n"
    "    __float__ = lambda _: 14.0\n    __repr__ = lambda _: '14'\n    __hash__ = None\nslope = lambda *_: Any()",
    "a list for a number": "slope = lambda *_: [14, -10, 0, 6, 0]",
    "not a number": "slope = lambda *_: float('nan')",
    "infinity": "slope = lambda *_: float('inf')",
    "truth": "slope = lambda *_: True",
    # what is sent
    "a verdict": EVERYWHERE + 'tell(\'{"passed": true, "rows": [], "message": null}\\n\')' + WRONG,
    "a verdict and an end": EVERYWHERE + "tell('{\"passed\": true}\\n')\nos._exit(0)",
    "a transcript of nothing": TRANSCRIPT + "tell(transcript([]))\nos._exit(0)",
    "a transcript of other numbers": TRANSCRIPT + "tell(transcript([1.0] * 5))\nos._exit(0)",
    "a transcript with more": TRANSCRIPT + "tell(transcript([14.0, -10.0, 0.0, 6.0, 0.0, 1.0]))\nos._exit(0)",
    "a transcript with less": TRANSCRIPT + "tell(transcript([14.0, -10.0, 0.0, 6.0]))\nos._exit(0)",
    "a transcript from a thread": TRANSCRIPT + "import threading\n"
    "try: threading.Thread(target=lambda: [tell(transcript([1.0] * 5)) for _ in range(99)]).start()\n"
    "except RuntimeError: pass" + WRONG,
    "a transcript at the end": TRANSCRIPT
    + "import atexit, signal\natexit.register(lambda: tell(transcript([1.0] * 5)))\nos._exit = lambda *_: None\n"
    "signal.signal(signal.SIGALRM, lambda *_: tell(transcript([1.0] * 5)))" + WRONG,
    "a deep transcript": EVERYWHERE + "tell('[' * 60_000 + '\\n')\nos._exit(0)",
    "numbers without end": EVERYWHERE + "tell('9' * 60_000 + '\\n')\nos._exit(0)",
    "a transcript of odd parts": EVERYWHERE
    + 'tell(\'{"reading": {"unchanged": false, "matches": [{}], "first_line": null}, "comparisons": [5], '
    '"output": "\\\\ud800", "seconds": NaN}\\n\')\nos._exit(0)',
    # files and settings
    "modules beside it": "for name in ('json', 'os', 'signal', 'math', 'sitecustomize', 'chainrule'):\n"
    "    open(f'{name}.py', 'w').write('raise SystemExit(0)')" + WRONG,
    "settings": "import os\nos.environ.update(PYTHONSTARTUP='x', PYTHONPATH='.', PYTHONINSPECT='1')" + WRONG,
    "another way out": "import os, sys\nsys.stdout = sys.__stdout__ = sys.stderr = open('out', 'w')\n"
    "sys.exit = os._exit = lambda *_: None\nprint('{\"passed\": true}')" + WRONG,
    "an end in the check": when_called("raise SystemExit(0)"),
    "an end of the process in the check": when_called("import os\nos._exit(0)"),
}


def passes(code, exercise="slope"):
    report = grade_apart(EXERCISES[exercise], code, limits=Limits(seconds=5.0))
    json.dumps(report)
    return report["passed"], report


@pytest.mark.parametrize("attempt", FORGERIES)
def test_no_verdict_is_forged(attempt):
    passed, report = passes(FORGERIES[attempt])
    assert not passed, report
    assert report["error"] or report["message"] or not all(row["right"] for row in report["rows"])


def test_the_attempts_are_made():
    """Those that break nothing run to their end, so that it is the comparison that finds them."""
    honest = [row["label"] for row in passes(EXERCISES["slope"].solution)[1]["rows"]]
    for attempt in ("abs, when called", "expect, told what it expects", "the grader's modules", "a float that agrees"):
        report = passes(FORGERIES[attempt])[1]
        assert report["error"] is None
        assert [row["label"] for row in report["rows"]] == honest


def test_a_check_that_was_not_run_to_its_end_is_told():
    for attempt in ("expect, exchanged", "the session of expect"):
        report = passes(FORGERIES[attempt])[1]
        assert all(row["right"] for row in report["rows"])
        assert report["message"] == SKIPPED


@pytest.mark.slow
@pytest.mark.parametrize("name", EXERCISES)
def test_solutions_pass_and_wrong_answers_are_told_as_in_the_page(name):
    """Every solution, and every third wrong answer: each takes a process."""
    exercise = EXERCISES[name]
    for code in (exercise.solution, *(wrong.code for wrong in exercise.wrong[::3])):
        here, apart = grade(exercise, code), grade_apart(exercise, code)
        assert (apart["passed"], apart["message"]) == (here.passed, here.message)
        assert [row["got"] for row in apart["rows"]] == [row.got for row in here.rows]


# What the process that runs an answer knows.


@pytest.mark.parametrize("name", EXERCISES)
def test_the_task_holds_neither_the_solution_nor_the_wrong_answers(name):
    exercise = EXERCISES[name]
    task = without_answers(task_for(exercise, "pass"), reference_of(exercise))
    sent = packed(asdict(task))
    assert packed(exercise.starter) in sent
    assert packed(exercise.solution) not in sent
    assert not any(packed(wrong.message) in sent for wrong in exercise.wrong)


def packed(thing):
    """As JSON, without spaces, lines and quotation marks."""
    text = json.dumps(thing, ensure_ascii=False).replace("\\n", " ").replace('\\"', "").replace('"', "")
    return "".join(text.split())


@pytest.mark.parametrize(
    ("check", "given"),
    [
        ("expect('f', f(3), 6)", "expect(label='f', got=f(3), site=0)"),
        ("expect('f', f(3), 6, 'x', 1e-3)", "expect(label='f', got=f(3), node='x', site=0)"),
        ("expect(label='f', got=f(3), expected=6)", "expect(label='f', got=f(3), site=0)"),
        ("y = [6]\ny.append(7)\nexpect('f', f(3), y)", "expect(label='f', got=f(3), site=0)"),
        ("def y(k):\n    return 2 * k\nexpect('f', f(3), y(3))", "expect(label='f', got=f(3), site=0)"),
        ("for k in (1, 2):\n    expect('f', f(k), 2 * k)", "for k in (1, 2):\n    expect(label='f', got=f(k), site=0)"),
        ("x = 3\nexpect('f', f(x), 2 * x)", "x = 3\nexpect(label='f', got=f(x), site=0)"),
        ("expect('f', f(3), g(3))", "expect(label='f', got=f(3), site=0, expected=(g(3), ...)[-1])"),
        ("y = g(3)\nexpect('f', f(3), y)", "y = g(3)\nexpect(label='f', got=f(3), site=0, expected=(y, ...)[-1])"),
        ("import math\nexpect('f', f(3), math.e)", "import math\nexpect(label='f', got=f(3), site=0)"),
        ("r = expect('f', f(3), 6)", "r = expect('f', f(3), 6)"),
    ],
)
def test_what_is_expected_is_left_out_of_a_check(check, given):
    assert without_expected(numbered(check), frozenset({0})) == given


def test_what_only_wrong_answers_reach_is_left_in():
    exercise = EXERCISES["neuron"]
    check = without_answers(task_for(exercise, ""), reference_of(exercise)).check
    assert "expect('the output is a Value', type(out).__name__, 'Value', site=" in check
    assert "0.7071" not in check


def test_a_solution_that_does_not_pass_is_an_error_of_the_lessons():
    text = "---\ntitle: T\nsummary: S\n---\n```exercise name=a\nprompt: P.\n```\n```starter\nx = 0\n```\n"
    text += '```solution\nx = 1\n```\n```check\nexpect("x", x, 2)\n```\n'
    with pytest.raises(ValueError, match="the solution of 'a' does not pass its own check"):
        grade_apart(read_course({"a.md": text}).exercises["a"], "x = 2")


def test_an_answer_that_passed_forges_nothing_for_the_next():
    attack = "import builtins, sys\n    builtins.abs = lambda *_: 0.0\n"
    attack += "    sys._getframe(2).f_globals['expect'] = lambda *_, **__: True\n"
    add = f"def _backward():\n    {attack}    self.grad += out.grad\n    other.grad += out.grad\n"
    text = f"# exercise: add\n{EXERCISES['add'].solution}\n# exercise: diamond\n{add}\na = b = c = d = Value(1.0) + 1\n"
    results = list(grade_answers(COURSE, read_answers(text)))
    assert [result["passed"] for result in results] == [True, False]


def test_many_threads_grade_at_once():
    stdout = sys.stdout
    fresh = load_course().exercises
    names = ("slope", "add", "mul", "exp")
    with ThreadPoolExecutor(4) as pool:
        right = pool.map(lambda name: grade_apart(fresh[name], fresh[name].solution)["passed"], names)
        wrong = pool.map(lambda name: grade_apart(fresh[name], fresh[name].wrong[0].code)["message"], names)
    assert list(right) == [True] * 4
    assert list(wrong) == [fresh[name].wrong[0].message for name in names]
    assert sys.stdout is stdout


# What the kernel keeps from it. The attempts say how far they came.


@pytest.mark.parametrize(
    ("column", "header"),
    [(0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), (1, "/usr/include/asm-generic/unistd.h")],
)
def test_system_calls_have_the_numbers_of_the_kernels_headers(column, header):
    if not Path(header).exists():
        pytest.skip("needs the kernel's headers")
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text()))
    commands = {name: numbers for name, (numbers, _) in confinement.REFUSED_COMMANDS.items()}
    clones = {"clone": confinement.CLONE, "clone3": confinement.CLONE3}
    tables = confinement.REFUSED | confinement.TO_ITSELF_ONLY | confinement.TO_ITSELF_OR_0 | commands | clones
    numbers = {name: str(entry[column]) for name, entry in tables.items() if entry[column] >= 0}
    assert numbers == {name: known.get(name) for name in numbers}


SPY = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
parent = os.getppid()
def attempt(name, action):
    try:
        result = action()
    except OSError as error:
        result = -1
    if not (isinstance(result, int) and result < 0): print(name, result)
"""
REFUSED = {
    "ptrace": "attempt('attach', lambda: libc.ptrace(16, parent, 0, 0))\n"
    "attempt('seize', lambda: libc.ptrace(0x4206, parent, 0, 0))",
    "memory": "buffer = ctypes.create_string_buffer(8)\n"
    "vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)\n"
    "attempt('read', lambda: libc.process_vm_readv(parent, vector, 1, vector, 1, 0))\n"
    "attempt('write', lambda: libc.process_vm_writev(parent, vector, 1, vector, 1, 0))",
    "descriptors": "attempt('open', lambda: libc.syscall(434, parent, 0))\n"
    "attempt('get', lambda: libc.syscall(438, 0, 1, 0))",
    "mounts": "attempt('mount', lambda: libc.mount(b'none', b'.', b'tmpfs', 0, None))\n"
    "attempt('unshare', lambda: libc.unshare(0x10000000))\nattempt('chroot', lambda: libc.chroot(b'.'))",
    "signals by files": "import fcntl\nread, write = os.pipe()\n"
    "attempt('own', lambda: fcntl.fcntl(read, fcntl.F_SETOWN, parent))\n"
    "attempt('which', lambda: fcntl.fcntl(read, 10, 19))\n"
    "attempt('ioctl', lambda: fcntl.ioctl(read, 0x8901, parent.to_bytes(4, 'little')))",
    "limits": "import resource\n"
    "attempt('limits', lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE, (0, 0)))\n"
    "attempt('look', lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE))",
    "its turn": "attempt('nice', lambda: libc.setpriority(0, parent, 19))\n"
    "attempt('cores', lambda: os.sched_setaffinity(parent, {0}))\n"
    "attempt('idle', lambda: os.sched_setscheduler(parent, 5, os.sched_param(0)))",
    "network": "import socket\nattempt('tcp', socket.socket)\nattempt('unix', lambda: socket.socket(socket.AF_UNIX))",
    "other calls": "for call in (298, 321, 323, 425, 250): attempt(call, lambda: libc.syscall(call, 0, 0, 0, 0, 0))"
    if platform.machine() == "x86_64"
    else "pass",
}
INSIDE = """
for name in ('mem', 'environ', 'maps', 'fd/0', 'fd/1', 'fd/2', 'cwd/x', 'root/tmp/x'):
    for mode in ('rb', 'wb'):
        attempt((name, mode), lambda: open(f'/proc/{parent}/{name}', mode, buffering=0))
"""
AROUND = """
attempt('descriptors', lambda: os.listdir(f'/proc/{parent}/fd'))
attempt('what runs', lambda: os.listdir('/proc/1'))
attempt('priority', lambda: open(f'/proc/{parent}/oom_score_adj', 'w'))
"""


@FILTERED
@pytest.mark.parametrize("attempt", REFUSED)
def test_the_kernel_keeps_answers_from_other_processes(attempt):
    _, report = passes(SPY + REFUSED[attempt] + WRONG)
    assert (report["error"], report["output"]) == (None, "")


@FILTERED
def test_the_grader_is_out_of_reach_even_without_landlock():
    """Its memory and its output, to a process that has given up its capabilities."""

    def spied(code):
        command = [sys.executable, "-c", SPY + code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    look = "attempt('environ', lambda: open(f'/proc/{parent}/environ', 'rb'))"
    alone = "from chainrule.learn import confinement\nconfinement.drop_capabilities()\nconfinement.filter_calls()\n"
    assert "environ" in spied(look)  # the attempt is no mistake: without anything, it succeeds
    with confinement.out_of_reach(), confinement.out_of_reach():
        assert spied(alone + look + INSIDE) == ""
    assert "environ" in spied(look)


@LANDLOCKED
def test_an_answer_sees_nothing_of_other_processes():
    _, report = passes(SPY + INSIDE + AROUND + WRONG)
    assert (report["error"], report["output"]) == (None, "")


READS = {
    "by the course": "from chainrule.learn.lesson_files import load_course\n"
    "exec(load_course().exercises['slope'].solution)",
    "by its name": "import chainrule, pathlib\nplace = pathlib.Path(chainrule.__file__).parent / 'learn' / 'lessons'\n"
    "text = (place / '01-derivative.md').read_text()\nexec(text.split('```solution')[1].split('```')[0])",
    "by resources": "from importlib.resources import files\n"
    "text = (files('chainrule.learn') / 'lessons' / '01-derivative.md').read_text()\n"
    "exec(text.split('```solution')[1].split('```')[0])",
    "around Python": "import chainrule, ctypes, os, pathlib\n"
    "place = pathlib.Path(chainrule.__file__).parent / 'learn' / 'lessons' / '01-derivative.md'\n"
    "libc = ctypes.CDLL(None)\nbuffer = ctypes.create_string_buffer(100_000)\n"
    "libc.read(libc.open(os.fsencode('/proc/self/root' + str(place)), 0), buffer, 100_000)\n"
    "exec(buffer.value.decode().split('```solution')[1].split('```')[0])",
    "by a link": "import chainrule, os, pathlib\n"
    "os.symlink(pathlib.Path(chainrule.__file__).parent / 'learn' / 'lessons', 'link')\n"
    "exec(open('link/01-derivative.md').read().split('```solution')[1].split('```')[0])",
}


@LANDLOCKED
@pytest.mark.parametrize("way", READS)
def test_the_packaged_solution_cannot_be_read(way):
    passed, report = passes(READS[way])
    assert not passed
    assert report["error"]["kind"] in ("PermissionError", "FileNotFoundError", "IndexError")


@LANDLOCKED
def test_only_the_folder_of_an_answer_can_be_written(tmp_path):
    report_file = tmp_path / "report.json"
    report_file.write_text("untouched")
    code = f"""
import chainrule, os, site, sys
places = [{str(report_file)!r}, {str(tmp_path / "new")!r}, chainrule.__file__, os.__file__, '/tmp/chainrule-was-here',
          os.path.join(sys.prefix, 'x.pth'), '/dev/tty', '/dev/pts/0', '/dev/pts/ptmx', '/dev/shm/x']
for place in places:
    try: print(open(place, 'a'))
    except OSError: pass
for action in (os.truncate, os.unlink):
    try: print(action({str(report_file)!r}, *([0] if action is os.truncate else [])))
    except OSError: pass
open('mine', 'w').write('x')
print(open('mine').read())
"""
    _, report = passes(code + WRONG)
    assert (report["error"], report["output"]) == (None, "x\n")
    assert report_file.read_text() == "untouched"
    assert not (tmp_path / "new").exists()


def test_what_python_is_made_of_can_be_read():
    code = "import asyncio, decimal, numpy, sqlite3, zoneinfo\nfrom chainrule import Value, compile, gradcheck\n"
    code += "x = Value(2.0)\nassert compile(x * x, [x])() == 4.0\nassert gradcheck(lambda v: v * v, Value(3.0))\n"
    code += "asyncio.run(asyncio.sleep(0))\nassert numpy.ones(3).sum() == 3\n"
    assert grade_apart(EXERCISES["slope"], code + EXERCISES["slope"].solution, limits=Limits(megabytes=4000))["passed"]


def test_a_second_thread_that_grades_keeps_the_first_out_of_reach():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with confinement.out_of_reach():
            inside.set()
            leave.wait(60.0)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(60.0)
    with confinement.out_of_reach():
        pass
    if sys.platform == "linux":
        assert confinement.ctypes.CDLL(None).prctl(confinement.PR_GET_DUMPABLE, 0, 0, 0, 0) == 0
    leave.set()
    thread.join()


# What SECURITY.md says can be had all the same.


def test_right_numbers_pass_wherever_they_come_from():
    numbers = "numbers = iter([14.0, -10.0, 0.0, 6.0, 0.0, 3.4, -2.0, 1.0])\nslope = lambda *_: next(numbers)"
    assert passes(numbers)[0]
    assert passes(TRANSCRIPT + "tell(transcript([14.0, -10.0, 0.0, 6.0, 0.0, 3.4, -2.0, 1.0]))\nos._exit(0)")[0]


def test_the_command_reports_a_forgery_as_a_failure(tmp_path, capsys):
    (tmp_path / "a.py").write_text(FORGERIES["expect, exchanged"])
    assert main(["grade", str(tmp_path / "a.py"), "--exercise", "slope"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False
