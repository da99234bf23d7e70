"""Grades a learner's file, in which a line `# exercise: NAME` says which exercise the code below it answers.

The file of progress that the page saves can be graded as well: it holds the answers by name.

Each answer runs in a new Python in a scratch folder, within the limits of `confinement`. That Python is this module,
run with `-m`: a task comes in, a transcript goes out. The answer controls everything in its process, so nothing is
decided there: it is not told what is expected, and what comes back is compared here with what the solution's run had.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import selectors
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any

from chainrule.learn.confinement import Limits, confine, out_of_reach
from chainrule.learn.course import Course, Exercise
from chainrule.learn.explaining import Error, moved
from chainrule.learn.grading import Report, judge, reference_of, task_for, without_answers
from chainrule.learn.running import Task, Transcript, run

MARKER = re.compile(r"#\s*exercise:\s*(\S*)\s*$")
STARTING = 5.0  # seconds for Python to start on a busy machine
STOPPED = 124  # exit status of a process that took too long, as from timeout(1)
CUT_OFF = 125  # exit status of a process that could not write its report
GRACE = 1.0  # seconds that stopped code has to be reported before its process is killed
TICK = 0.1  # seconds between checks of the scratch folder
MOST_REPLY = 1 << 22  # bytes
FILLED = Error("Files", "Your code filled its folder, so it is not checked: does it write without end?")


@dataclass(frozen=True)
class Answer:
    """The code for one exercise, and the line of the file where it begins."""

    name: str
    code: str
    line: int


def read_answers(text: str, name: str = "") -> list[Answer]:
    """The answers in a file. `name` is the exercise that a file without markers answers.

    >>> read_answers("# exercise: add\\npass\\n# exercise: mul\\nx = 1\\n")
    [Answer(name='add', code='pass\\n', line=2), Answer(name='mul', code='x = 1\\n', line=4)]
    """
    lines = re.split(r"(?<=\n)", text)
    marked = [(number, match[1]) for number, line in enumerate(lines) if (match := MARKER.match(line))]
    if name and not marked:
        return [Answer(name, text, 1)]
    _check_markers(lines, marked, name)
    ends = [number for number, _ in marked[1:]] + [len(lines)]
    spans = zip(marked, ends, strict=True)
    return [Answer(own, "".join(lines[number + 1 : end]), number + 2) for (number, own), end in spans]


def read_progress(text: str, order: Sequence[str]) -> list[Answer]:
    """The answers in a file of progress that the course's page saved, in the order of the exercises.

    Of each exercise this is the code that passed last, on which later exercises build; else what is in the editor.

    >>> read_progress('{"version": 1, "exercises": {"add": {"code": "pass", "passed": "x = 1"}}}', ["add"])
    [Answer(name='add', code='x = 1', line=1)]
    """
    try:
        found = json.loads(text)
        kept = {name: entry.get("passed", entry.get("code")) for name, entry in found["exercises"].items()}
        if found["version"] != 1 or not all(code is None or isinstance(code, str) for code in kept.values()):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("it does not hold progress of the course: save it on the page `About, progress`") from None
    places = {name: place for place, name in enumerate(order)}
    names = sorted(kept, key=lambda name: places.get(name, len(places)))
    return [Answer(name, code, 1) for name in names if (code := kept[name]) is not None]


def _check_markers(lines: Sequence[str], marked: Sequence[tuple[int, str]], name: str) -> None:
    if not marked:
        unclear = "it does not say which exercise it answers"
        raise ValueError(f"{unclear}: begin it with `# exercise: NAME`, or give --exercise")
    first = marked[0][0]
    if name:
        both = f"line {first + 1} says `{lines[first].strip()}`, and `--exercise` says {name}"
        raise ValueError(f"{both}: leave out the one or the other")
    for number, line in enumerate(lines[:first], 1):
        if line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"line {number} stands before the first `# exercise: NAME`: move it below")
    for k, (number, exercise) in enumerate(marked):
        if any(exercise == other for _, other in marked[:k]):
            raise ValueError(f"line {number + 1} is a second answer to {exercise!r}: keep one of the two")


def grade_answers(course: Course, answers: list[Answer], limits: Limits | None = None) -> Iterator[dict[str, Any]]:
    """One report per answer, as data for JSON; line numbers refer to the file.

    Answers that passed replace the solutions in the exercises after them.
    """
    codes: dict[str, str] = {}
    for answer in answers:
        exercise = course.exercises[answer.name]
        report = grade_apart(exercise, answer.code, codes, limits)
        if report["passed"]:
            codes[answer.name] = answer.code
        if report["error"]:
            report["error"] = asdict(moved(Error(**report["error"]), answer.line - 1))
        yield {"lesson": course.lesson_of(answer.name).id, "exercise": answer.name, "title": exercise.title, **report}


def grade_apart(
    exercise: Exercise, code: str, codes: Mapping[str, str] | None = None, limits: Limits | None = None
) -> dict[str, Any]:
    """Like `grading.grade`, with the answer in its own process; returns the report as data, without graphs."""
    if sys.platform == "win32":
        raise OSError("grading in a process with limits needs Linux or macOS: this system has no resource limits")
    limits = limits or Limits()
    reference = reference_of(exercise)
    found = _run_apart(without_answers(task_for(exercise, code, codes), reference), limits)
    report = judge(exercise, found, reference) if isinstance(found, Transcript) else Report(False, error=found)
    if report.error and report.error.kind == "KeyboardInterrupt":
        report = replace(report, error=replace(stopped(limits.seconds), line=report.error.line))
    data = report.data()
    del data["graphs"]
    return data


def _run_apart(task: Task, limits: Limits) -> Transcript | Error:
    """The transcript from a new process, or why there is none that can be judged."""
    with scratch_folder() as scratch, out_of_reach(), tempfile.TemporaryFile() as request:
        request.write(json.dumps({"task": asdict(task), "limits": asdict(limits)}).encode())
        request.seek(0)
        kept = {key: os.environ[key] for key in ("PATH", "CHAINRULE_ENGINE") if key in os.environ}
        package = str(Path(__file__).resolve().parents[2])
        env = kept | {"PYTHONPATH": package, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        env |= {"HOME": scratch, "TMPDIR": scratch}
        command = [sys.executable, "-P", "-m", "chainrule.learn.submissions"]
        with Popen(
            command, stdin=request, stdout=PIPE, stderr=DEVNULL, cwd=scratch, env=env, start_new_session=True
        ) as process:
            try:
                reply = _reply(process, limits, scratch)
            finally:  # it ends, and whatever it left running
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        if overfull(scratch, limits):  # an answer can finish between two checks
            return FILLED
    try:
        return reply if isinstance(reply, Error) else Transcript.from_data(json.loads(reply))
    except (ValueError, RecursionError):  # it was cut off, or the answer wrote it
        return Error("Report", "Your code wrote where only the report of its check is written, so nothing was checked.")


def _reply(process: Popen[bytes], limits: Limits, scratch: str) -> bytes | Error:
    """What the process writes, up to the first newline; or why it writes nothing."""
    deadline = time.monotonic() + limits.seconds + GRACE + STARTING
    reply, pipe = b"", process.stdout
    assert pipe is not None
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if overfull(scratch, limits):
                return FILLED
            if selector.get_map():
                if not selector.select(TICK):
                    continue
                piece = os.read(pipe.fileno(), 1 << 16)
                reply += piece
                if b"\n" in piece or len(reply) > MOST_REPLY:
                    return reply
                if not piece:
                    selector.unregister(pipe)
            else:  # nothing can write to it any more
                with suppress(TimeoutExpired):
                    status = process.wait(TICK)
                    return reply or _ended(status, limits)
    return stopped(limits.seconds)


def stopped(seconds: float) -> Error:
    """The error of code that took too long."""
    return Error("Timeout", f"Your code was stopped after {seconds:g} seconds: is there a loop that does not end?")


def _ended(status: int, limits: Limits) -> Error:
    if status in (STOPPED, -signal.SIGXCPU):
        return stopped(limits.seconds)
    if status == CUT_OFF:
        return Error("Report", "Your code closed what is not its own, so the report of its check was lost.")
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return Error("Ended", f"Your code ended Python itself ({how}), so nothing could be checked.")


# The scratch folder.


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A new folder. In the end it is removed with everything in it, however deep, whatever has its name by then."""
    path = os.path.realpath(tempfile.mkdtemp(prefix="chainrule-grade-"))
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield path
    finally:
        with suppress(OSError):
            _empty(handle)
        with suppress(OSError):  # it may have been moved
            os.rmdir(os.readlink(f"/proc/self/fd/{handle}") if sys.platform == "linux" else path)
        os.close(handle)
        with suppress(OSError):  # a link that took its place; it is not followed
            os.unlink(path)


def _empty(folder: int) -> None:
    """Moves the contents of inner folders up instead of recursing: they can be deeper than the longest path."""
    prefix, moved = secrets.token_hex(8), 0
    os.fchmod(folder, stat.S_IRWXU)
    while names := os.listdir(folder):
        for name in names:
            try:
                os.unlink(name, dir_fd=folder)
                continue
            except (IsADirectoryError, PermissionError):  # for folders, on Linux and on macOS
                os.chmod(name, stat.S_IRWXU, dir_fd=folder)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            for part in os.listdir(inner):
                if stat.S_ISDIR(os.lstat(part, dir_fd=inner).st_mode):  # without permissions it cannot be moved
                    os.chmod(part, stat.S_IRWXU, dir_fd=inner)
                os.rename(part, f"{prefix}{moved}", src_dir_fd=inner, dst_dir_fd=folder)
                moved += 1
            os.close(inner)
            os.rmdir(name, dir_fd=folder)


def overfull(path: str, limits: Limits) -> bool:
    """Whether a folder holds more than an answer may write."""
    files = blocks = 0
    pending = [path]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    files += 1
                    blocks += entry.stat(follow_symlinks=False).st_blocks
                    if files > limits.folder_files or blocks * 512 > limits.folder_megabytes << 20:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except OSError as error:  # what has vanished or is inaccessible does not count
            if error.errno == errno.ENAMETOOLONG:
                return True
    return False


# The process that runs an answer.


def _serve() -> None:
    request = json.loads(sys.stdin.buffer.read())
    task, limits = Task.from_data(request["task"]), Limits(**request["limits"])
    reply = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    dumps, write, leave, set_timer = json.dumps, os.write, os._exit, signal.setitimer  # before they can be patched
    confine(limits, _out_of_time)
    try:
        transcript = run(task)
        set_timer(signal.ITIMER_REAL, 0.0)
        left = (dumps(transcript.data()) + "\n").encode()
    except KeyboardInterrupt:
        leave(STOPPED)
    try:
        while left:
            left = left[write(reply, left) :]
    except OSError:
        leave(CUT_OFF)
    leave(0)  # atexit functions of the answer do not run


def _out_of_time() -> None:
    leave = os._exit
    signal.signal(signal.SIGALRM, lambda *_: leave(STOPPED))  # for code that catches the exception below
    signal.setitimer(signal.ITIMER_REAL, GRACE)
    raise KeyboardInterrupt


if __name__ == "__main__":
    _serve()
