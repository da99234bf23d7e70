"""The command line: `chainrule train moons`, `chainrule grad "tanh(a*b) + a**2" --at a=2,b=-3`.

Results go to standard output, everything else to standard error. Exit codes: 0 for done, 1 for a finding that is not
good (a wrong gradient, a training that diverged), 2 for input that cannot be used, 3 for a mistake of chainrule's own,
130 for Ctrl-C. Errors are a line or two; `--debug` shows the traceback.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Sequence

import click

import chainrule
from chainrule.cli.console import BadInput, Command, Settings, complain
from chainrule.cli.course import grade, lessons
from chainrule.cli.formulas import draw, grad, step
from chainrule.cli.functions import check, compile_
from chainrule.cli.learning import learn
from chainrule.cli.machine import bench, info
from chainrule.cli.models import predict, train

__all__ = ["main"]


class InOrder(click.Group):
    """Commands in the order in which they were added, rather than in that of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=InOrder, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(chainrule.__version__, prog_name="chainrule")
@click.pass_context
def app(context: click.Context) -> None:
    """Chainrule: a scalar-valued autograd engine. Train, differentiate, draw, check and compile."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


COMMANDS: tuple[Command, ...] = (
    train,
    predict,
    grad,
    draw,
    step,
    check,
    compile_,
    learn,
    grade,
    lessons,
    bench,
    info,
)
for command in COMMANDS:
    app.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code.

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
                stream.reconfigure(errors="replace")  # a terminal that has no Σ shows a question mark
    try:
        code = app.main(list(arguments), prog_name="chainrule", standalone_mode=False, obj=settings)
        return code if isinstance(code, int) else 0
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "chainrule"
        complain(f"{_sentence(error)}\n`{command} --help` says what there is.")
        return 2
    except click.Abort:
        complain("interrupted")
        return 130
    except BadInput as error:
        if settings.debug:
            traceback.print_exc()
        complain(str(error))
        return 2
    except Exception as error:
        if settings.debug:
            traceback.print_exc()
        complain(f"{type(error).__name__}: {error}\nThis is a mistake of chainrule's own; --debug shows where.")
        return 3


def _sentence(error: click.UsageError) -> str:
    return " ".join(error.format_message().split())
