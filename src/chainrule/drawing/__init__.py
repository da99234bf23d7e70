"""Drawing: graphs of Values, networks and array programs, laid out by Graphviz.

    values · collapse · networks · programs ──► Picture ──► dot ──► Drawing: .svg .png .dot .save(path)

The first four say what is drawn, `dot` how it looks; `rendering` turns it into images, and `notebook` holds what
notebooks display by themselves.
"""

from __future__ import annotations

import sys
from typing import Any

from chainrule.core.arguments import whole_number
from chainrule.core.graph import is_value
from chainrule.drawing.collapse import picture_of_parts
from chainrule.drawing.dot import check_effort
from chainrule.drawing.networks import picture_of_network
from chainrule.drawing.parts import LEVELS
from chainrule.drawing.picture import Format, Number, Picture, TooLargeError, formatter
from chainrule.drawing.rendering import Drawing
from chainrule.drawing.values import LIMIT, MOST, picture_of_values
from chainrule.nn import Module

__all__ = ["Drawing", "TooLargeError", "draw"]

GRADIENTS = ("both", "colour", "width", "none")


def draw(
    thing: Any,
    *,
    model: Module | None = None,
    collapse: str | None = None,
    depth: int | None = None,
    local: bool = False,
    flow: bool = False,
    gradient: str = "both",
    backward: bool = True,
    number: Format = ".4g",
    limit: int = LIMIT,
) -> Drawing:
    """A drawing of the graph below a Value, of a network, or of the array program that the compiler found.

    A notebook displays it; elsewhere use `.svg`, `.png`, `.dot` and `.save(path)`. `number` is the format of numbers,
    such as ".3f", or a function that writes one.

    **A Value**, chainrule's or of a similar class: a card for each node with its label, op, data and grad. Leaves have
    sharp corners, results round ones, parameters (of `model`, which also names them) a folded one; constants have no
    frame, and nodes that are used more than once a double one. `local` writes the local derivative on each edge, `flow`
    the gradient that came back along it. `gradient` shows the gradient's size by the "colour" of its row, by the
    "width" of edges, by "both" or by "none". `depth` limits the drawing to nodes at most that many steps from the
    result.

    >>> from chainrule import Value, nn
    >>> a, b = Value(2.0, label="a"), Value(-3.0, label="b")
    >>> draw(a * b + a, local=True)
    <Drawing: 4 nodes, 4 edges; see .svg, .png and .dot, or .save("drawing.svg")>

    With `model` and `collapse`, which is "neuron", "layer" or "module", there is one card for each such part:

    >>> net = nn.MLP(2, [16, 16, 1], rng=1)
    >>> draw(net([Value(1.0), Value(2.0)]), model=net, collapse="layer")
    <Drawing: 5 nodes, 4 edges; see .svg, .png and .dot, or .save("drawing.svg")>

    **A network**: its neurons, with weights as lines whose width shows their size and negative ones dashed. With
    `collapse="layer"`, one card per layer.

    >>> draw(net)
    <Drawing: 41 nodes, 304 edges; see .svg, .png and .dot, or .save("drawing.svg")>

    **A program** from `chainrule.compile`: a card for each array statement, with its formula. `model` names the
    parameters, and `backward=False` leaves the backward pass out.

    Graphs with more than `limit` nodes are refused, with a message that says what can be drawn instead.
    """
    _check(model, collapse, depth, gradient, limit)
    given = {"model": model is not None, "collapse": collapse is not None, "depth": depth is not None}
    given |= {"local": local, "flow": flow, "gradient": gradient != "both", "backward": not backward}
    write = formatter(number)
    if isinstance(thing, Module):
        _refuse(given, ("collapse",), "a network")
        picture = picture_of_network(thing, write, limit, collapse)
    elif _is_program(thing):
        _refuse(given, ("model", "backward"), "a program")
        picture = _program(thing, model, backward, write, limit)
    elif not is_value(thing):
        raise TypeError(
            f"`thing` must be a Value, an nn.Module or a program of chainrule.compile, got {type(thing).__name__}"
        )
    elif collapse is None:
        _refuse(given, ("model", "depth", "local", "flow", "gradient"), "a Value")
        picture = picture_of_values(
            thing, write, limit, model=model, depth=depth, local=local, flow=flow, gradient=gradient
        )
    elif model is None:
        raise TypeError("`collapse` has to know the parts of the network: give `model` too")
    else:
        _refuse(given, ("model", "collapse"), "the parts of a model")
        picture = picture_of_parts(thing, model, collapse, write, limit)
    check_effort(picture)
    return Drawing(picture)


def _check(model: Module | None, collapse: str | None, depth: int | None, gradient: str, limit: int) -> None:
    if model is not None and not isinstance(model, Module):
        raise TypeError(f"`model` must be an nn.Module, got {type(model).__name__}")
    if collapse is not None and collapse not in LEVELS:
        raise ValueError(f"`collapse` must be 'neuron', 'layer' or 'module', got {collapse!r}")
    if gradient not in GRADIENTS:
        raise ValueError(f"`gradient` must be 'both', 'colour', 'width' or 'none', got {gradient!r}")
    if depth is not None:
        whole_number(depth, "depth")
    if whole_number(limit, "limit") > MOST:
        raise ValueError(f"`limit` must be {MOST:,} at most, because nobody can read more; got {limit:,}")


def _refuse(given: dict[str, bool], meant: tuple[str, ...], what: str) -> None:
    """Refuse options that have no meaning here."""
    for name, was_given in given.items():
        if was_given and name not in meant:
            raise TypeError(f"`{name}` has no meaning in a drawing of {what}: leave it out")


def _is_program(thing: Any) -> bool:
    compiler = sys.modules.get("chainrule.compiler")  # no program exists unless this has been loaded
    return compiler is not None and isinstance(thing, (compiler.Program, compiler.CompiledFunction))


def _program(program: Any, model: Module | None, backward: bool, write: Number, limit: int) -> Picture:
    from chainrule.drawing.programs import found_by, picture_of_program

    found = found_by(program, model)
    if found is None:  # nothing repeats, so there are no arrays: draw the nodes
        return picture_of_values(program.target, write, limit, model=model)
    return picture_of_program(found, limit, backward)
