"""What the commands share: options, errors, numbers as text, and checks of output files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from chainrule.cli.completion import any_file
from chainrule.core.arguments import quoted, shown
from chainrule.core.atomic import check_writable

MOST_CHARACTERS, MOST_IN_A_LINE = 4000, 1000  # of an error; click, for one, does not shorten what it quotes
Decorator = Callable[[Any], Any]


class BadInput(Exception):  # noqa: N818  # it is the input that is at fault
    """Input that cannot be used, explained in a line or two; exit code 2."""


def option(name: str, default: Any, text: str, kind: Any = None, **settings: Any) -> Decorator:
    """An option with a default, which `--help` shows; click knows the other settings."""
    return click.option(name, default=default, show_default=True, type=kind, help=text, **settings)


def file_option(*names: str, **settings: Any) -> Decorator:
    """An option for the name of a file to write."""
    return click.option(*names, metavar="FILE", shell_complete=any_file, **settings)


HEADERS: dict[str, bool | str] = {"auto": "auto", "yes": True, "no": False}
header_option: Decorator = option(
    "--header", "auto", "Whether the first row of a file has the names of the columns.", click.Choice(list(HEADERS))
)
json_option: Decorator = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
at_option: Decorator = click.option(
    "--at", "at", multiple=True, metavar="NAME=NUMBER,…", help="The numbers to compute with, as in a=2,b=-3."
)


def complain(message: str) -> None:
    """Print an error to standard error."""
    start = "chainrule: "
    lines = [shown(line, MOST_IN_A_LINE) for line in message[:MOST_CHARACTERS].split("\n")]
    indent = " " * len(start) if len(lines) > 1 and lines[1].lstrip(" ").startswith("^") else ""  # it points up
    click.echo("\n".join([start + lines[0], *(indent + line for line in lines[1:])]), err=True)


@contextmanager
def input_errors(prefix: str = "") -> Iterator[None]:
    """Turns errors raised in here into `BadInput`: they are about what the user gave."""
    try:
        yield
    except (BadInput, BrokenPipeError):  # whoever read our output had enough of it; click ends the command quietly
        raise
    except (ValueError, TypeError, OSError, OverflowError, KeyError, ImportError) as error:
        message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        raise BadInput(prefix + message) from error


def spell(number: float) -> str:
    """A number for people, with up to twelve digits."""
    return f"{number:.12g}"


def print_json(result: dict[str, Any]) -> None:
    """Print one JSON object; numbers that JSON lacks become the strings "Infinity", "-Infinity" and "NaN"."""
    text = json.dumps(_plain(result), indent=2, allow_nan=False, ensure_ascii=False)
    click.echo("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def _plain(thing: Any) -> Any:
    if isinstance(thing, dict):
        return {str(key): _plain(entry) for key, entry in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [_plain(entry) for entry in thing]
    if isinstance(thing, float) and not math.isfinite(thing):
        return "NaN" if math.isnan(thing) else "Infinity" if thing > 0 else "-Infinity"
    return thing


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, below a first row of names; the first column is left-aligned."""
    first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        right = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        click.echo("  ".join([name.ljust(first), *right]).rstrip())


def assignments(given: Sequence[str], lists: bool = False, texts: bool = False) -> dict[str, Any]:
    """The numbers in `--at`, by name; with `lists`, lists of numbers too, as in xs=[1,2]; with `texts`, all as texts.

    >>> assignments(["a=2,b=-3", "xs=[1, 2]"], lists=True)
    {'a': 2.0, 'b': -3.0, 'xs': [1.0, 2.0]}
    """
    found: dict[str, Any] = {}
    for part in (part for text in given for part in _split(text)):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise BadInput(f"`--at` has {quoted(part.strip())}, where NAME=NUMBER was expected, as in --at a=2,b=-3")
        if name in found:
            raise BadInput(f"`--at` has {quoted(name)} twice: give it once")
        found[name] = number if texts else _number_or_list(name, number, lists)
    return found


def _split(text: str) -> Iterator[str]:
    """The parts between commas, not counting commas in brackets."""
    depth, start = 0, 0
    for place, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _number_or_list(name: str, text: str, lists: bool) -> Any:
    if lists and text.startswith("["):
        try:
            return _floats(json.loads(text))
        except (ValueError, RecursionError):
            what = f"{shown(name)}={shown(text)}"
            raise BadInput(f"`--at` has {what}, which is not a list of numbers such as [1,2,3]") from None
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"`--at` has {shown(name)}={quoted(text)}, which is not a number") from None


def _floats(thing: Any) -> Any:
    if isinstance(thing, list):
        return [_floats(entry) for entry in thing]
    if isinstance(thing, bool) or not isinstance(thing, (int, float)):
        raise ValueError
    return float(thing)


def check_outputs(inputs: Sequence[str] = (), /, **paths: str | None) -> None:
    """Check before the work begins that the files named in options can be written, and replace no input or other."""
    seen: dict[str, str] = {}
    read = {os.path.realpath(path) for path in inputs if os.path.isfile(path)}
    for option, path in paths.items():
        if path is None:
            continue
        with input_errors(f"`--{option}` {path}: "):
            check_writable(path)
        place = os.path.realpath(path)
        if place in read:
            raise BadInput(f"`--{option}` {path} would replace what is read: give another name")
        if place in seen:
            raise BadInput(f"`--{seen[place]}` and `--{option}` are the same file, {path!r}: give two names")
        seen[place] = option
