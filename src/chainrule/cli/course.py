"""Commands for the course: `learn` serves it, `grade` grades a learner's file, `lessons` lists and verifies lessons.

They import `chainrule.learn` when they run, so that other commands start faster.
"""

from __future__ import annotations

import os
import webbrowser
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.completion import exercises, files, folders, lesson_ids
from chainrule.cli.console import BadInput, Decorator, input_errors, json_option, option, print_json

if TYPE_CHECKING:
    from chainrule.learn.course import Course
    from chainrule.learn.submissions import Answer

MOST_BYTES = 1_000_000


def folder_option(*names: str, **settings: Any) -> Decorator:
    """An option for a folder of lessons."""
    return click.option(*names, metavar="DIR", shell_complete=folders, **settings)


@click.command()
@folder_option("--lessons", help="A folder with lessons of your own, in place of chainrule's.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="The port to serve on; a free one if left out.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def learn(lessons: str | None, port: int, no_browser: bool) -> None:
    """Take the course in your browser: build an autograd engine yourself. Works without a network.

    Serves this computer only, until Ctrl-C.

    Example: chainrule learn --no-browser
    """
    from chainrule.learn.server import ADDRESS, make_server

    with input_errors():
        server = make_server(lessons, port)
    address = f"http://{ADDRESS}:{server.server_port}/"
    with server:
        opened = not no_browser and webbrowser.open(address)
        click.echo(address)
        click.echo("" if opened or no_browser else "Open this address in a browser. ", nl=False, err=True)
        click.echo("Ctrl-C ends it.", err=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("", err=True)


@click.command()
@click.argument("submission", metavar="SUBMISSION", shell_complete=files(".py", ".json"))
@click.option(
    "--exercise",
    default="",
    metavar="NAME",
    shell_complete=exercises,
    help="What the file answers, if it has no `# exercise: NAME`.",
)
@click.option(
    "--lesson",
    default="",
    metavar="ID",
    shell_complete=lesson_ids,
    help="The lesson the exercise must be in, such as 04-closures.",
)
@folder_option("--lessons", "folder", help="Your own lessons, in place of chainrule's course.")
@option("--seconds", 10.0, "Time for each answer.", click.FloatRange(0.0, 3600.0, min_open=True))
@option("--memory", 512, "Memory for each answer.", click.IntRange(64, 1_000_000), metavar="MB")
def grade(submission: str, exercise: str, lesson: str, folder: str | None, seconds: float, memory: int) -> int:
    """Grade a learner's file; prints one JSON object with a report for each answer.

    The file is Python, or the progress that the course's page saves as JSON.

    Each answer runs in its own process, with limits against accidents: run strangers' code in a container. The exit
    code is 1 if an answer did not pass.

    Example: chainrule grade slope.py --exercise slope
    """
    from chainrule.learn.confinement import Limits
    from chainrule.learn.submissions import grade_answers

    course = _course(folder)
    answers = _answers(course, submission, exercise, lesson)
    with input_errors():
        results = list(grade_answers(course, answers, Limits(seconds=seconds, megabytes=memory)))
    passed = all(result["passed"] for result in results)
    print_json({"file": submission, "passed": passed, "results": results})
    return 0 if passed else 1


@click.command()
@click.argument("folder", metavar="[DIR]", required=False, shell_complete=folders)
@json_option
def lessons(folder: str | None, as_json: bool) -> int:
    """List the lessons in a folder, or chainrule's own, and verify them.

    Every solution must pass, every starter must fail, and every wrong answer must fail with its own message. The exit
    code is 1 otherwise.

    Example: chainrule lessons --json
    """
    from chainrule.learn.grading import verify

    course = _course(folder)
    problems = verify(course)
    if as_json:
        entries = [(lesson, [exercise.name for exercise in lesson.exercises]) for lesson in course.lessons]
        listed = [{"id": lesson.id, "title": lesson.title, "exercises": names} for lesson, names in entries]
        print_json({"lessons": listed, "problems": problems})
        return 1 if problems else 0
    for lesson in course.lessons:
        click.echo(f"{lesson.id}: {lesson.title}")
        for exercise in lesson.exercises:
            count = f"{len(exercise.wrong)} wrong answers" if len(exercise.wrong) != 1 else "1 wrong answer"
            click.echo(f"    {exercise.name}: {exercise.title}, {count}")
    for problem in problems:
        click.echo(problem)
    return 1 if problems else 0


def _course(folder: str | None) -> Course:
    from chainrule.learn.lesson_files import load_course

    with input_errors():
        return load_course(folder)


def _answers(course: Course, path: str, exercise: str, lesson: str) -> list[Answer]:
    from chainrule.learn.submissions import read_answers

    known = {entry.id: [e.name for e in entry.exercises] for entry in course.lessons}
    if lesson and lesson not in known:
        raise BadInput(f"`--lesson` is {lesson!r}, which is not in the course: it has {', '.join(known)}")
    if lesson and not exercise and len(known[lesson]) == 1:
        exercise = known[lesson][0]
    if path.endswith(".json"):
        return _saved_answers(course, path, [exercise] if exercise else known.get(lesson, []))
    with input_errors(f"{path}: "):
        answers = read_answers(_text(path), exercise)
    _check_known(course, path, answers)
    for answer in answers:
        if lesson and answer.name not in known[lesson]:
            raise BadInput(f"exercise {answer.name!r} is not in lesson {lesson}: that has {', '.join(known[lesson])}")
    return answers


def _saved_answers(course: Course, path: str, wanted: list[str]) -> list[Answer]:
    """The answers in a file of progress: those to the exercises that are wanted, or all."""
    from chainrule.learn.submissions import read_progress

    with input_errors(f"{path}: "):
        answers = read_progress(_text(path), list(course.exercises))
    _check_known(course, path, answers)
    found = [answer for answer in answers if not wanted or answer.name in wanted]
    if not found:
        raise BadInput(f"{path} holds no answer to {', '.join(wanted) or 'any exercise'}")
    return found


def _text(path: str) -> str:
    if not os.path.isfile(path):
        raise BadInput(f"there is no file {path!r}")
    if os.path.getsize(path) > MOST_BYTES:
        raise BadInput(f"{path!r} is larger than a megabyte: a submission is a short Python file, or saved progress")
    with open(path, encoding="utf-8-sig") as file:
        return file.read()


def _check_known(course: Course, path: str, answers: list[Answer]) -> None:
    for answer in answers:
        if answer.name not in course.exercises:
            exercises = ", ".join(course.exercises)
            raise BadInput(f"{path}: there is no exercise {answer.name!r}; the course has {exercises}")
