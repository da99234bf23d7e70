"""Commands for a function in a Python file: `check` and `compile`."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import click

import chainrule
from chainrule.cli.console import (
    BadInput,
    Command,
    assignments,
    at_option,
    json_option,
    option,
    output_to_stderr,
    print_json,
    spell,
)

function_argument = click.argument("function", metavar="FILE.py::FUNCTION")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
seed_option = option("--seed", 0, "Seed of the numbers for arguments not in --at.")


@click.command(cls=Command)
@function_argument
@at_option
@seed_option
@option("--tolerance", 1e-7, "How far derivatives may differ, relatively.", click.FloatRange(0.0, 1.0, True, True))
@json_option
def check(function: str, at: tuple[str, ...], seed: int, tolerance: float, as_json: bool) -> int:
    """Compare the gradient of a function of Values with finite differences.

    Arguments not in --at get random numbers between 0.5 and 1.5; write a list as xs=[1,2,3]. The exit code is 1 if a
    derivative is wrong.
    """
    target, name, path = load(function)
    numbers = arguments(target, name, assignments(at, lists=True), seed)
    with errors_of_the_user(name, path, numbers), output_to_stderr():
        report = chainrule.gradcheck(target, *numbers.values(), tolerance=tolerance)
    if as_json:
        rows = [row._asdict() for row in report]
        print_json({"function": function, "ok": report.ok, "rows": rows, "diagnosis": report.diagnosis})
    else:
        click.echo(str(report))
    return 0 if report.ok else 1


@click.command("compile", cls=Command)
@function_argument
@at_option
@seed_option
@click.option("--describe", is_flag=True, help="Print the program, one statement per line.")
@json_option
def compile_(function: str, at: tuple[str, ...], seed: int, describe: bool, as_json: bool) -> None:
    """Compile a function, run it once, and report what the compiler found.

    Arguments not in --at get random numbers between 0.5 and 1.5; write a list as xs=[1,2,3].
    """
    target, name, path = load(function)
    numbers = arguments(target, name, assignments(at, lists=True), seed)
    with errors_of_the_user(name, path, numbers), output_to_stderr():
        program = chainrule.compile(target)
        result = program(*numbers.values())
    stats, text = program.stats, program.describe()
    if as_json:
        answer = {"function": function, "arguments": numbers, "result": result, "stats": stats}
        print_json(answer | ({"program": text.splitlines()} if describe else {}))
        return
    click.echo(f"{name}({_listed(numbers)}) = {_spelled(result)}")
    seconds = sum(stats["seconds"].values())
    found = f"{stats['scalar nodes']:,} scalar nodes in {stats['array statements']:,} array statements"
    click.echo(f"{found}; compiled in {seconds:.2f} s")
    if describe:
        click.echo(text)


def load(place: str) -> tuple[Callable[..., Any], str, str]:
    """Run FILE.py and return the function that `FILE.py::FUNCTION` names, its name, and the file."""
    path, colons, name = place.rpartition("::")
    if not colons or not path or not name:
        raise BadInput(f"{place!r} does not name a function: write FILE.py::FUNCTION, as in model.py::loss")
    if not os.path.isfile(path):
        raise BadInput(f"there is no file {path!r}")
    spec = importlib.util.spec_from_file_location("__chainrule_file__", path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path!r} is not a Python file: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # as `python FILE.py` does
    sys.modules[spec.name] = module
    with errors_of_the_user(f"importing {path}", path), output_to_stderr():
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        functions = {key: thing for key, thing in vars(module).items() if inspect.isfunction(thing)}
        own = [key for key, thing in functions.items() if thing.__module__ == spec.name]
        what = f"{name!r} in {path!r} is not a function" if hasattr(module, name) else f"{path!r} has no {name!r}"
        raise BadInput(f"{what}; it has {', '.join(own) or 'no functions'}")
    return function, name, path


def arguments(function: Callable[..., Any], name: str, given: dict[str, Any], seed: int) -> dict[str, Any]:
    """An argument for each parameter of the function: what `--at` says, or a random number."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise BadInput(f"`{name}` does not say what its arguments are: wrap it in a function that does") from None
    rng = Random(seed)
    numbers: dict[str, Any] = {}
    for place, parameter in enumerate(parameters):
        required = parameter.default is parameter.empty and parameter.kind not in VARIADIC
        if parameter.name in given and parameter.kind in POSITIONAL:
            numbers[parameter.name] = given[parameter.name]
        elif required and parameter.kind is parameter.KEYWORD_ONLY:
            raise BadInput(f"`{name}` needs `{parameter.name}` by keyword: give it a default, or make it positional")
        elif required:
            numbers[parameter.name] = round(rng.uniform(0.5, 1.5), 3)
        elif any(later.name in given for later in parameters[place + 1 :]):
            numbers[parameter.name] = parameter.default  # arguments are passed by position, so without gaps
    _check_arguments(name, numbers, given, [parameter.name for parameter in parameters])
    return numbers


def _check_arguments(name: str, numbers: dict[str, Any], given: dict[str, Any], parameters: list[str]) -> None:
    unused = [key for key in given if key not in numbers]
    if unused:
        has = ", ".join(parameters) or "none"
        raise BadInput(f"`--at` has {', '.join(unused)}, which `{name}` does not take: its arguments are {has}")
    if not numbers:
        raise BadInput(f"`{name}` has no arguments: there is nothing to differentiate with respect to")


@contextmanager
def errors_of_the_user(what: str, path: str, numbers: dict[str, Any] | None = None) -> Iterator[None]:
    """Reports an error in the user's own file with its line, and with the arguments that led to it."""
    try:
        yield
    except (KeyboardInterrupt, BadInput):
        raise
    except BaseException as error:  # SystemExit too: the file may call sys.exit()
        frames, place = traceback.extract_tb(error.__traceback__), os.path.realpath(path)
        lines = [frame.lineno for frame in frames if os.path.realpath(frame.filename) == place]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        where = f", line {line}" if line else ""
        first = str(error).partition("\n")[0]
        with_ = f"\nIt was called with {_listed(numbers)}; `--at` gives it others." if numbers else ""
        raise BadInput(f"{what} failed: {type(error).__name__}: {first} ({path}{where}){with_}") from error


def _listed(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_spelled(number)}" for name, number in numbers.items())


def _spelled(thing: Any) -> str:
    if isinstance(thing, (list, tuple)):
        return f"[{', '.join(map(_spelled, thing))}]"
    return spell(thing) if isinstance(thing, (int, float)) else str(thing)
