"""Commands that differentiate: `grad`, `draw` and `step` for a formula, `check` and `compile` for a Python function."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from random import Random
from typing import TYPE_CHECKING, Any

import click

import chainrule
from chainrule import Value
from chainrule.cli.completion import files
from chainrule.cli.console import (
    BadInput,
    assignments,
    at_option,
    check_outputs,
    file_option,
    input_errors,
    json_option,
    option,
    print_json,
    print_table,
    spell,
)
from chainrule.cli.formula_parser import parse
from chainrule.core.walk import oldest_first
from chainrule.stepping.steps import MOST_NODES, explain

if TYPE_CHECKING:
    from chainrule.drawing import Drawing

formula_argument = click.argument("formula")
steps_are_named = (
    'Intermediate results can be named, as in "e = a*b; d = e + c; L = d*f". '
    "The names pi and e are constants, unless --at or the formula gives them another meaning."
)
function_argument = click.argument("function", metavar="FILE.py::FUNCTION", shell_complete=files(".py"))
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
seed_option = option("--seed", 0, "Seed of the numbers for arguments not in --at.")


# A formula given as text.


class FormulaCommand(click.Command):
    """A command whose formula may begin with a minus sign without being taken for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = {name: option for option in self.params for name in option.opts if isinstance(option, click.Option)}
        is_value = False
        for place, text in enumerate([] if "--" in args else args):
            option = options.get(text)
            if not is_value and option is None and text[:1] == "-" and text[:2] not in ("-", "--", "-h"):
                return super().parse_args(ctx, [*args[:place], *args[place + 1 :], "--", text])
            is_value = option is not None and not option.is_flag and not is_value
        return super().parse_args(ctx, args)


def build(formula: str, at: tuple[str, ...]) -> tuple[Value, dict[str, Value]]:
    """The result of a formula after `backward()`, and its named Values."""
    numbers = assignments(at)
    with input_errors():
        parsed = parse(formula)
        parsed.check(numbers, "--at")
    result, named = parsed.build(numbers)
    result.backward()
    return result, named


@click.command(cls=FormulaCommand, epilog=steps_are_named)
@formula_argument
@at_option
@click.option("--explain", "explained", is_flag=True, help="Work it out step by step, forward and backward.")
@json_option
def grad(formula: str, at: tuple[str, ...], explained: bool, as_json: bool) -> None:
    """Print the value of FORMULA and its derivative with respect to every name in it.

    Example: chainrule grad "tanh(a*b) + a**2" --at a=2,b=-3
    """
    result, named = build(formula, at)
    text = " ".join(formula.split())
    if explained:
        if (count := len(oldest_first(result))) > MOST_NODES:
            raise BadInput(f"`--explain` works out {MOST_NODES} nodes, and here are {count:,}: explain a part of it")
        forward, backward = explain(result)
    if as_json:
        numbers = {name: value.data for name, value in named.items()}
        gradient = {name: value.grad for name, value in named.items() if value.requires_grad}
        steps = {"forward": forward, "backward": backward} if explained else {}
        print_json({"formula": text, "value": result.data, "at": numbers, "gradient": gradient, **steps})
        return
    if explained:
        for title, lines in (("forward", forward), ("backward", backward)):
            click.echo("\n".join([title, *(f"  {line}" for line in lines), ""]))
    click.echo(f"{text} = {spell(result.data)}")
    if named:
        print_table([("name", "value", "derivative"), *(_row(name, value) for name, value in named.items())])


def _row(name: str, value: Value) -> tuple[str, str, str]:
    return name, spell(value.data), spell(value.grad) if value.requires_grad else "constant"


@click.command(cls=FormulaCommand, epilog=steps_are_named)
@formula_argument
@at_option
@file_option("-o", "--output", required=True, help="Where to put the drawing, such as graph.svg.")
@click.option("--local", is_flag=True, help="Write the local derivative on each edge.")
@click.option("--flow", is_flag=True, help="Write the gradient that came back along each edge.")
@option("--gradient", "both", "What shows the size of gradients.", click.Choice(["both", "colour", "width", "none"]))
@click.option("--depth", type=click.IntRange(1), help="Draw only nodes at most this many steps from the result.")
@option("--number", ".4g", "The format of numbers, such as .2f.", metavar="FORMAT")
@click.option("--limit", type=click.IntRange(1), help="Refuse to draw more nodes than this: 150 if left out.")
def draw(formula: str, at: tuple[str, ...], output: str, **options: Any) -> None:
    """Draw the graph of FORMULA with every value and gradient.

    Example: chainrule draw "a*b + c" --at a=2,b=-3,c=10 --local --flow -o graph.svg
    """
    result, _ = build(formula, at)
    check_outputs(output=output)
    with input_errors():
        _drawing(result, {name: given for name, given in options.items() if given is not None}).save(output)
    click.echo(f"drew {output}")


def _drawing(result: Value, options: dict[str, Any]) -> Drawing:
    from chainrule.drawing import TooLargeError  # slow to load

    try:
        return chainrule.draw(result, **options)
    except TooLargeError as error:
        what, _, _ = str(error).partition(":")  # then it speaks of Python
        raise BadInput(f"{what}: draw those near the result, as with --depth 3, or raise --limit") from error


@click.command(cls=FormulaCommand, epilog=steps_are_named)
@formula_argument
@at_option
@file_option("-o", "--output", help="Write the page to a file rather than open it.")
def step(formula: str, at: tuple[str, ...], output: str | None) -> None:
    """Step through the backward pass of FORMULA in the browser.

    Example: chainrule step "e = a*b; d = e + c; L = d*f" --at a=2,b=-3,c=10,f=-2
    """
    result, _ = build(formula, at)
    check_outputs(output=output)
    with input_errors():
        stepper = chainrule.stepper(result)
        if output is not None:
            stepper.save(output)
            click.echo(f"wrote {output}")
            return
        try:
            stepper.open()
        except RuntimeError as error:  # there is no browser
            raise BadInput(str(error)) from error


# A function in a file.


@click.command()
@function_argument
@at_option
@seed_option
@option("--tolerance", 1e-7, "How far derivatives may differ, relatively.", click.FloatRange(0.0, 1.0, True, True))
@json_option
def check(function: str, at: tuple[str, ...], seed: int, tolerance: float, as_json: bool) -> int:
    """Compare the gradient of a function of Values with finite differences.

    Arguments not in --at get random numbers between 0.5 and 1.5; write a list as xs=[1,2,3]. The exit code is 1 if a
    derivative is wrong.

    Example: chainrule check model.py::loss --at "x=2,ws=[1,-3]"
    """
    target, name, path = load(function)
    numbers = arguments(target, name, assignments(at, lists=True), seed)
    with errors_of_the_user(name, path, numbers), redirect_stdout(sys.stderr):
        report = chainrule.gradcheck(target, *numbers.values(), tolerance=tolerance)
    if as_json:
        rows = [row._asdict() for row in report]
        print_json({"function": function, "ok": report.ok, "rows": rows, "diagnosis": report.diagnosis})
    else:
        click.echo(str(report))
    return 0 if report.ok else 1


@click.command("compile")
@function_argument
@at_option
@seed_option
@click.option("--describe", is_flag=True, help="Print the program, one statement per line.")
@json_option
def compile_(function: str, at: tuple[str, ...], seed: int, describe: bool, as_json: bool) -> None:
    """Compile a function, run it once, and report what the compiler found.

    Arguments not in --at get random numbers between 0.5 and 1.5; write a list as xs=[1,2,3].

    Example: chainrule compile model.py::loss --at "x=2,ws=[1,-3]" --describe
    """
    target, name, path = load(function)
    numbers = arguments(target, name, assignments(at, lists=True), seed)
    from chainrule.compiler.pipeline import in_words  # slow to load

    with errors_of_the_user(name, path, numbers), redirect_stdout(sys.stderr):
        program = chainrule.compile(target)
        result = program(*numbers.values())
    stats, text = program.stats, program.describe()
    if as_json:
        answer = {"function": function, "arguments": numbers, "result": result, "stats": stats}
        print_json(answer | ({"program": text.splitlines()} if describe else {}))
        return
    click.echo(f"{name}({_listed(numbers)}) = {_spelled(result)}")
    seconds = sum(stats["seconds"].values())
    click.echo(f"{in_words(stats)}; compiled in {seconds:.2f} s")
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
    with errors_of_the_user(f"importing {path}", path), redirect_stdout(sys.stderr):
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
