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
from chainrule.cli.console import BadInput, complain
from chainrule.cli.course import grade, learn, lessons
from chainrule.cli.derivatives import check, compile_, draw, grad, step
from chainrule.cli.machine import bench, info
from chainrule.cli.predict_command import predict
from chainrule.cli.train_command import train

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


def _debug(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    context.find_root().ensure_object(dict)["debug"] = wanted


debug = click.Option(
    ["--debug"], is_flag=True, is_eager=True, expose_value=False, callback=_debug, help="Show tracebacks."
)
for command in (train, predict, grad, draw, step, check, compile_, learn, grade, lessons, bench, info):
    command.params.append(debug)
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
    settings = {"debug": False}
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
        message, status = f"{' '.join(error.format_message().split())}\nSee `{command} --help`.", 2
    except click.Abort:
        message, status = "interrupted", 130
    except Exception as error:
        if settings["debug"]:
            traceback.print_exc()
        bug = f"{type(error).__name__}: {error}\nThis is a bug in chainrule; --debug shows where."
        message, status = (str(error), 2) if isinstance(error, BadInput) else (bug, 3)
    complain(message)
    return status
