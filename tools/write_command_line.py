"""Writes the commands' part of docs/reference/command-line.md, from their own help. Run by `make commands`."""

from __future__ import annotations

import html
import inspect
from pathlib import Path

import click

from chainrule.cli import app

PATH = Path(__file__).parent.parent / "docs/reference/command-line.md"
START, END = "<!-- tools/write_command_line.py writes from here -->\n", "<!-- to here -->\n"
EVERYWHERE = ("debug", "help")  # options that the page tells of once


def page(text: str) -> str:
    """The page with its commands written anew."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return before + START + "".join(f"\n{section(name)}" for name in app.commands) + "\n" + END + after


def section(name: str) -> str:
    """What a command does, how it is called, an example, and its options."""
    command = app.commands[name]
    context = click.Context(command, click.Context(app, info_name="chainrule"), info_name=name)
    *paragraphs, last = inspect.cleandoc(command.help or "").split("\n\n")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"### {name}", *paragraphs, f"```\n{usage}\n```", f"For example:\n\n```\n{example_in(last)}\n```"]
    options = [option for option in command.params if isinstance(option, click.Option)]
    own = [option for option in options if option.name not in EVERYWHERE]
    records = [record for option in own if (record := option.get_help_record(context))]
    rows = [f"| <code>{_cell(names)}</code> | {_cell(text)} |" for names, text in records]
    if rows:
        parts.append("\n".join(["| option | what it does |", "|---|---|", *rows]))
    if command.epilog:
        parts.append(command.epilog)
    return "\n\n".join(parts) + "\n"


def example_in(paragraph: str) -> str:
    """The command in the last paragraph of a command's help."""
    title, _, example = " ".join(paragraph.split()).partition(": ")
    if title != "Example" or not example.startswith("chainrule "):
        raise ValueError(f"a command's help must end with an example, as in Example: chainrule info; got {title!r}")
    return example


def _cell(text: str) -> str:
    """As HTML, since Markdown's readers disagree on a bar in a table."""
    return html.escape(" ".join(text.split()), quote=False).replace("|", "&#124;")


if __name__ == "__main__":
    PATH.write_text(page(PATH.read_text(encoding="utf-8")), encoding="utf-8")
