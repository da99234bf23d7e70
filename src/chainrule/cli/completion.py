"""What the shell completes: data sets, files, columns, activations, lessons and exercises.

click calls these with what was typed so far. What they return is offered as it stands, so names that a shell would take
apart, such as those with blanks, are left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from chainrule import ops
from chainrule.data.tables import read_table

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
TAKEN_APART = re.compile(r"[^\w./+,@%-]")  # by a shell, or wherever click separates what it tells the shell
MOST_BYTES = 10_000_000  # of a table whose columns are looked up while someone waits


def files(*suffixes: str, names: Iterable[str] = ()) -> Completer:
    """Completes these names, and the files whose names end so in the folder typed so far.

    If nothing fits, perhaps because the beginning of a folder was typed, the shell completes files.
    """
    known = tuple(names)

    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        folder, _ = os.path.split(typed)
        found: list[str] = []
        with suppress(OSError):
            found = sorted(name for name in os.listdir(folder or ".") if name.lower().endswith(suffixes))
        offered = _offered([*known, *(os.path.join(folder, name) for name in found)], typed)
        return offered or any_file(context, parameter, typed)

    return complete


def any_file(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Leaves it to the shell, which completes files and folders."""
    return [CompletionItem(typed, type="file")]


def folders(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Leaves it to the shell, which completes folders."""
    return [CompletionItem(typed, type="dir")]


def activations(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Completes the ops that can be called with one operand."""
    return _offered(["linear", *(op.name for op in ops.TABLE.values() if op.arity - len(op.defaults) == 1)], typed)


def columns(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Completes the columns of the CSV file that was typed before."""
    source = next(iter(context.args), "")  # click assigns arguments to names only when every option has its value
    with suppress(OSError, ValueError):
        if os.path.getsize(source) <= MOST_BYTES and (table := read_table(source)).header:
            return _offered(table.names, typed)
    return []


def lesson_ids(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Completes the lessons of the course."""
    return _offered([lesson for lesson, _ in _lessons(context)], typed)


def exercises(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Completes the exercises of the lesson that was typed before, or of all."""
    wanted = context.params.get("lesson")
    return _offered([name for id_, names in _lessons(context) if wanted in ("", None, id_) for name in names], typed)


def _lessons(context: click.Context) -> list[tuple[str, list[str]]]:
    from chainrule.learn.lesson_files import load_course  # other commands start faster without it

    with suppress(OSError, ValueError):
        course = load_course(context.params.get("folder"))
        return [(lesson.id, [exercise.name for exercise in lesson.exercises]) for lesson in course.lessons]
    return []


def _offered(names: Iterable[str], typed: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(typed) and not TAKEN_APART.search(name)]
