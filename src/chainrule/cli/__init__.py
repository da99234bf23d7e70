"""The command line: `chainrule train moons`, `chainrule grad "tanh(a*b) + a**2" --at a=2,b=-3`.

Results go to standard output, everything else to standard error. Exit codes: 0 for success, 1 for a bad finding (a
wrong gradient, a diverged training), 2 for unusable input, 3 for a bug in chainrule, 130 for Ctrl-C. Error messages
have one or two lines; `--debug` adds the traceback.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Sequence

import click

import chainrule
from chainrule.cli.console import BadInput, Settings, complain
from chainrule.cli.course import grade, learn, lessons
from chainrule.cli.formulas import draw, grad, step
from chainrule.cli.functions import check, compile_
from chainrule.cli.machine import bench, info
from chainrule.cli.models import predict, train

__all__ = ["main"]


class InOrder(click.Group):
    """Lists commands in the order in which they were added, not alphabetically."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=InOrder, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(chainrule.__version__, prog_name="chainrule")
@click.pass_context
def app(context: click.Context) -> None:
    """Chainrule: a scalar-valued autograd engine. Train, differentiate, draw, check and compile."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (train, predict, grad, draw, step, check, compile_, learn, grade, lessons, bench, info):
    app.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    >>> main(["grad", "a*b", "--at", "a=2,b=-3"])
    a*b = -6
    name  value  derivative
    a         2          -3
    b        -3           2
    0
    """
    settings = Settings()
    if arguments is None:
        arguments = sys.argv[1:]
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal without Σ shows a question mark
    try:
        code = app.main(list(arguments), prog_name="chainrule", standalone_mode=False, obj=settings)
        return code if isinstance(code, int) else 0
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "chainrule"
        message, status = f"{_sentence(error)}\nSee `{command} --help`.", 2
    except click.Abort:
        message, status = "interrupted", 130
    except Exception as error:
        if settings.debug:
            traceback.print_exc()
        message, status = str(error), 2
        if not isinstance(error, BadInput):
            message = f"{type(error).__name__}: {error}\nThis is a bug in chainrule; --debug shows where."
            status = 3
    complain(message)
    return status


def _sentence(error: click.UsageError) -> str:
    return " ".join(error.format_message().split())
