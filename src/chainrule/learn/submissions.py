"""A learner's file, graded in a process of its own with limits.

A submission is a Python file. A line `# exercise: NAME` says whose answer follows; answers that passed take the
place of the solutions in the exercises after them. Each answer runs in a new Python in a scratch folder, with limits
on time, memory, processes, open files and the size of files. These are limits for accidents, not a security boundary:
code from strangers belongs in a container.

The process that grades is this module, run with `-m`: a request as JSON on standard input, a report on standard output.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chainrule.learn.course import Course, Exercise, exercise_data, exercise_from
from chainrule.learn.explaining import Error
from chainrule.learn.grading import Report, grade

MARKER = re.compile(r"#\s*exercise:\s*(\S*)\s*$")
STARTING = 5.0  # seconds that a new Python may take on a busy machine
STOPPED = 124  # exit status of a process that took too long, as of timeout(1)
GRACE = 1.0  # seconds in which stopped code may be reported before its process is ended
PROCESSES = (
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "os.exec",
    "subprocess.Popen",
    "pty.spawn",
)


@dataclass(frozen=True)
class Limits:
    """What an answer may use up. On macOS, memory is not limited by the system."""

    seconds: float = 10.0
    megabytes: int = 512
    file_megabytes: int = 1
    open_files: int = 64


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
    """`grading.grade` in a process of its own; the report as data, without graphs."""
    if sys.platform == "win32":
        raise OSError("grading in a process with limits needs Linux or macOS: this system has no resource limits")
    limits = limits or Limits()
    request = json.dumps(
        {"exercise": exercise_data(exercise), "code": code, "codes": dict(codes or {}), "limits": asdict(limits)}
    )
    with tempfile.TemporaryDirectory(prefix="chainrule-grade-") as scratch:
        process = subprocess.Popen(
            [sys.executable, "-m", "chainrule.learn.submissions"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=scratch,
            env=_environment(scratch),
            start_new_session=True,
        )
        try:
            reply, _ = process.communicate(request.encode(), limits.seconds + GRACE + STARTING)
        except subprocess.TimeoutExpired:
            reply = b""
            ended = stopped(limits.seconds)
        else:
            ended = _ended(process.returncode, limits)
        finally:
            _end_group(process)
    try:
        return dict(json.loads(reply))
    except ValueError:  # the code ended its process, or was ended
        return _data(Report(False, error=ended))


def stopped(seconds: float) -> Error:
    """The error of code that took too long."""
    return Error("Timeout", f"Your code was stopped after {seconds:g} seconds: is there a loop that does not end?")


def _ended(status: int, limits: Limits) -> Error:
    if status in (STOPPED, -signal.SIGXCPU):
        return stopped(limits.seconds)
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return Error("Ended", f"Your code ended Python itself ({how}), so nothing could be checked.")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Whatever the answer started and left running."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        with suppress(BrokenPipeError):
            if pipe:
                pipe.close()
    process.wait()


def _environment(scratch: str) -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "CHAINRULE_ENGINE") if key in os.environ}
    package = str(Path(__file__).resolve().parents[2])
    ours = {"PYTHONPATH": package, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return kept | ours | {"HOME": scratch, "TMPDIR": scratch, "PYTHONHASHSEED": "0"}


def _data(report: Report) -> dict[str, Any]:
    data = report.data()
    del data["graphs"]
    return data


# The process that grades.


def _serve() -> None:
    request = json.loads(sys.stdin.buffer.read())
    exercise, limits = exercise_from(request["exercise"]), Limits(**request["limits"])
    reply = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    _limit(limits)
    try:
        data = _data(grade(exercise, request["code"], request["codes"]))
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    except KeyboardInterrupt:
        data = _data(Report(False, error=stopped(limits.seconds)))
    if data["error"] and data["error"]["kind"] == "KeyboardInterrupt":
        data["error"] = stopped(limits.seconds).data() | {"line": data["error"]["line"]}
    reply.write(json.dumps(data))
    reply.flush()
    os._exit(0)  # whatever the answer registered to run at the end does not run


def _limit(limits: Limits) -> None:
    import resource

    wanted = {
        resource.RLIMIT_CPU: int(limits.seconds) + 2,
        resource.RLIMIT_AS: limits.megabytes << 20,
        resource.RLIMIT_FSIZE: limits.file_megabytes << 20,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_NPROC: 0,  # the system exempts its administrator, hence the hook below
        resource.RLIMIT_CORE: 0,
    }
    for limit, number in wanted.items():
        try:
            resource.setrlimit(limit, (number, number + (limit == resource.RLIMIT_CPU)))  # a second to be told in
        except (ValueError, OSError):  # the system's own limit is lower, or it knows no such limit
            continue
    sys.addaudithook(_refuse_processes)
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)


def _refuse_processes(event: str, arguments: Any) -> None:
    if event in PROCESSES:
        raise PermissionError("starting a process is not allowed here")


def _interrupt(number: int, frame: Any) -> None:
    signal.signal(signal.SIGALRM, lambda *_: os._exit(STOPPED))  # for code that catches what comes now
    signal.setitimer(signal.ITIMER_REAL, GRACE)
    raise KeyboardInterrupt


if __name__ == "__main__":
    _serve()
