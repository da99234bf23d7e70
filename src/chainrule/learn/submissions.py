"""A learner's file, graded in a process of its own with limits.

A submission is a Python file. A line `# exercise: NAME` says whose answer follows; answers that passed take the
place of the solutions in the exercises after them.

Each answer runs in a new Python in a scratch folder, within the limits of `confinement`. That Python is this module,
run with `-m`: a task as JSON on standard input, a transcript on standard output. The answer can do as it likes with
all that is in its process, so nothing there decides anything: it is not told what is expected, and the numbers that
come back are compared here, with what the solution's own run expected.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from chainrule.learn.confinement import Limits, confine, overfull, scratch_folder
from chainrule.learn.course import Course, Exercise
from chainrule.learn.explaining import Error
from chainrule.learn.grading import Report, judge, reference_of, task_for, without_answers
from chainrule.learn.kernel import out_of_reach
from chainrule.learn.running import Task, Transcript, run

MARKER = re.compile(r"#\s*exercise:\s*(\S*)\s*$")
STARTING = 5.0  # seconds that a new Python may take on a busy machine
STOPPED = 124  # exit status of a process that took too long, as of timeout(1)
CUT_OFF = 125  # of one whose report finds no way out
GRACE = 1.0  # seconds in which stopped code may be reported before its process is ended
TICK = 0.1  # seconds between two looks at the scratch folder
MOST_REPLY = 1 << 22  # bytes
FILLED = Error("Files", "Your code filled its folder, so it is not checked: does it write without end?")


@dataclass(frozen=True)
class Answer:
    """The code for one exercise, and the line of the file at which it begins."""

    name: str
    code: str
    line: int


def read_answers(text: str, name: str = "") -> list[Answer]:
    """The answers in a file. `name` says whose answer a file without markers is.

    >>> read_answers("# exercise: add\\npass\\n# exercise: mul\\nx = 1\\n")
    [Answer(name='add', code='pass\\n', line=2), Answer(name='mul', code='x = 1\\n', line=4)]
    """
    lines = text.split("\n")
    marked = [(number, match[1]) for number, line in enumerate(lines) if (match := MARKER.match(line))]
    if name and marked:
        raise ValueError(
            f"line {marked[0][0] + 1} says `{lines[marked[0][0]].strip()}`, and `--exercise` says {name}: "
            "leave out the one or the other"
        )
    if name:
        return [Answer(name, text, 1)]
    if not marked:
        raise ValueError(
            "it does not say which exercise it answers: begin it with `# exercise: NAME`, or give --exercise"
        )
    for number, line in enumerate(lines[: marked[0][0]]):
        if line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"line {number + 1} stands before the first `# exercise: NAME`: move it below")
    ends = [number for number, _ in marked[1:]] + [len(lines)]
    answers = [
        Answer(
            name, "\n".join([*lines[number + 1 : end], ""] if end < len(lines) else lines[number + 1 : end]), number + 2
        )
        for (number, name), end in zip(marked, ends, strict=True)
    ]
    for k, answer in enumerate(answers):
        if any(answer.name == other.name for other in answers[:k]):
            raise ValueError(f"line {answer.line - 1} is a second answer to {answer.name!r}: keep one of the two")
    return answers


def grade_answers(course: Course, answers: list[Answer], limits: Limits | None = None) -> Iterator[dict[str, Any]]:
    """The report on each answer, as data for JSON; lines in it are lines of the file."""
    codes: dict[str, str] = {}
    for answer in answers:
        exercise = course.exercises[answer.name]
        report = grade_apart(exercise, answer.code, codes, limits)
        if report["passed"]:
            codes[answer.name] = answer.code
        if report["error"] and report["error"]["line"]:
            report["error"]["line"] += answer.line - 1
        yield {"lesson": course.lesson_of(answer.name).id, "exercise": answer.name, "title": exercise.title, **report}


def grade_apart(
    exercise: Exercise, code: str, codes: Mapping[str, str] | None = None, limits: Limits | None = None
) -> dict[str, Any]:
    """`grading.grade` of an answer that runs in a process of its own; the report as data, without graphs."""
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
    """What a process of its own says of the task, or why it says nothing that could be judged."""
    with scratch_folder() as scratch, out_of_reach(), tempfile.TemporaryFile() as request:
        request.write(json.dumps({"task": task.data(), "limits": asdict(limits)}).encode())
        request.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "chainrule.learn.submissions"],
            stdin=request,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=scratch,
            env=_environment(scratch),
            start_new_session=True,
        )
        try:
            reply = _reply(process, limits, scratch)
        finally:
            _end_group(process)
        if overfull(scratch, limits):  # an answer can be through before anybody looks
            return FILLED
    if isinstance(reply, Error):
        return reply
    try:
        return Transcript.from_data(json.loads(reply))
    except (ValueError, RecursionError):  # it was cut off, or somebody else wrote it
        return Error("Report", "Your code wrote where only the report of its check is written, so nothing was checked.")


def _reply(process: subprocess.Popen[bytes], limits: Limits, scratch: str) -> bytes | Error:
    """What the process says, up to the first end of a line; or why it says nothing."""
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
            else:  # nobody can write there any more
                with suppress(subprocess.TimeoutExpired):
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


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Whatever the answer started and left running."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout:
        process.stdout.close()
    process.wait()


def _environment(scratch: str) -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "CHAINRULE_ENGINE") if key in os.environ}
    package = str(Path(__file__).resolve().parents[2])
    ours = {"PYTHONPATH": package, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return kept | ours | {"HOME": scratch, "TMPDIR": scratch, "PYTHONHASHSEED": "0"}


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
    leave(0)  # whatever the answer registered to run at the end does not run


def _out_of_time() -> None:
    leave = os._exit
    signal.signal(signal.SIGALRM, lambda *_: leave(STOPPED))  # for code that catches what comes now
    signal.setitimer(signal.ITIMER_REAL, GRACE)
    raise KeyboardInterrupt


if __name__ == "__main__":
    _serve()
