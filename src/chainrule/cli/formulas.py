"""Commands for a formula given as text: `grad`, `draw` and `step`."""

from __future__ import annotations

import click

import chainrule
from chainrule import Value
from chainrule.cli.console import (
    BadInput,
    Command,
    assignments,
    at_option,
    check_outputs,
    input_errors,
    json_option,
    print_json,
    print_table,
    spell,
)
from chainrule.cli.formula_parser import parse
from chainrule.core.walk import oldest_first
from chainrule.stepping.steps import MOST_NODES, explain


class FormulaCommand(Command):
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


formula_argument = click.argument("formula")
steps_are_named = 'Intermediate results can be named, as in "e = a*b; d = e + c; L = d*f".'


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
        gradient = {name: value.grad for name, value in named.items()}
        steps = {"forward": forward, "backward": backward} if explained else {}
        print_json({"formula": text, "value": result.data, "at": numbers, "gradient": gradient, **steps})
        return
    if explained:
        for title, lines in (("forward", forward), ("backward", backward)):
            click.echo("\n".join([title, *(f"  {line}" for line in lines), ""]))
    click.echo(f"{text} = {spell(result.data)}")
    rows = [(name, spell(value.data), spell(value.grad)) for name, value in named.items()]
    if rows:
        print_table([("name", "value", "derivative"), *rows])


@click.command(cls=FormulaCommand, epilog=steps_are_named)
@formula_argument
@at_option
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to put the drawing, such as graph.svg.")
def draw(formula: str, at: tuple[str, ...], output: str) -> None:
    """Draw the graph of FORMULA with every value and gradient.

    Example: chainrule draw "a*b + c" --at a=2,b=-3,c=10 -o graph.svg
    """
    result, _ = build(formula, at)
    check_outputs(output=output)
    with input_errors():
        chainrule.draw(result).save(output)
    click.echo(f"drew {output}")


@click.command(cls=FormulaCommand, epilog=steps_are_named)
@formula_argument
@at_option
@click.option("-o", "--output", metavar="FILE", help="Write the page to a file rather than open it.")
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
