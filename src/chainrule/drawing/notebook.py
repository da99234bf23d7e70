"""What notebooks show, without being asked, of a Value, a network, a program, a training run or a gradient check.

It must be quick and must not fail: for what is too large, or needs a Graphviz that is not installed, None makes the
notebook show the plain `repr`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from chainrule.drawing import Drawing
from chainrule.drawing.dot import NEGATIVE, POSITIVE, check_effort
from chainrule.drawing.networks import picture_of_network
from chainrule.drawing.picture import Picture, TooLargeError, formatter
from chainrule.drawing.values import picture_of_values
from chainrule.nn import Module

if TYPE_CHECKING:
    from chainrule.debug.findings import Checkup
    from chainrule.debug.gradient_check import Report
    from chainrule.training import History

SMALL = 40  # nodes or statements that are shown without being asked
ROWS = 50  # of a table
POINTS = 200  # of a curve
WIDTH, HEIGHT = 320, 80  # of a curve, in pixels

_write = formatter(".4g")


def svg_of_value(value: Any) -> str | None:
    """The graph below the Value, if there is one and it is small; runs none of the user's code."""
    return _svg(partial(picture_of_values, value, _write, SMALL, ask=False)) if value._operands else None


def svg_of_network(model: Module) -> str | None:
    """Neurons and weights if they can be told apart, else layers."""
    return _svg(*(partial(picture_of_network, model, _write, SMALL, collapse) for collapse in (None, "layer")))


def svg_of_program(program: Any) -> str | None:
    """The statements if there are few, else the forward half if that is small enough."""
    from chainrule.drawing.programs import found_by, picture_of_program

    if program.stats["array statements"] > 3 * SMALL:
        return None
    if (found := found_by(program, None)) is None:
        return svg_of_value(program.target)
    return _svg(*(partial(picture_of_program, found, SMALL, backward) for backward in (True, False)))


def svg_of_function(function: Any) -> str | None:
    """The program of the latest call, if there was one."""
    return svg_of_program(function) if function._source.latest else None


def _svg(*pictures: Callable[[], Picture]) -> str | None:
    """The first of the pictures that is not too large."""
    for picture in pictures:
        with suppress(TooLargeError, ImportError):
            drawn = picture()
            check_effort(drawn)
            return Drawing(drawn)._repr_svg_()
    return None


def html_of_history(history: History) -> str:
    """The curves of the loss and, if there is one, of the validation loss, above the summary."""
    curves = [history.columns[name] for name in ("loss", "validation_loss") if name in history.columns]
    return f"<div>{_curves(curves)}<div><code>{escape(repr(history))}</code></div></div>"


def _curves(columns: Sequence[Sequence[float]]) -> str:
    """Lines over epochs, the second one dashed; on a logarithmic axis if all numbers are positive."""
    finite = [number for column in columns for number in column if math.isfinite(number)]
    if len(finite) < 2:
        return ""
    logarithmic = min(finite) > 0.0
    scale = math.log if logarithmic else float
    low, high = scale(min(finite)), scale(max(finite))

    def height(number: float) -> float:
        return HEIGHT - 4 - (scale(number) - low) / ((high - low) or 1.0) * (HEIGHT - 8)

    lines = []
    for column, colour, dashes in zip(columns, (POSITIVE, NEGATIVE), ("", ' stroke-dasharray="4 3"'), strict=False):
        places = sorted({round(k * (len(column) - 1) / (POINTS - 1)) for k in range(POINTS)})
        step = (WIDTH - 8) / max(1, len(column) - 1)
        points = [f"{4 + k * step:.1f},{height(column[k]):.1f}" for k in places if math.isfinite(column[k])]
        line = f'fill="none" stroke="{colour}" stroke-width="1.5"{dashes}'
        lines.append(f'<polyline points="{" ".join(points)}" {line}/>')
    frame = f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" fill="none" stroke="#768390"/>'
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    title = f"<title>loss by epoch, {'logarithmic' if logarithmic else 'linear'} axis</title>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{title}{frame}{"".join(lines)}</svg>'


def html_of_report(report: Report) -> str:
    """A table of the derivatives, wrong ones first if it is long, and the diagnosis."""
    rows = sorted(report.rows, key=lambda row: row.ok)[:ROWS] if len(report) > ROWS else report.rows
    left = len(report) - len(rows)
    head = "".join(f"<th>{name}</th>" for name in ("input", "value", "analytic", "numerical", "error", ""))
    body = "".join(map(_row, rows))
    lines = [*([f"{left:,} more rows are not shown."] if left else []), *report._sentences(rows)]
    notes = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}</div>"


def html_of_checkup(checkup: Checkup) -> str:
    """The findings, each with a list of its evidence and its advice."""
    if checkup.ok:
        return f"<div>✓ {escape(str(checkup))}</div>"
    parts = []
    for finding in checkup:
        evidence = "".join(f"<li><code>{escape(line)}</code></li>" for line in finding.evidence)
        head = f'<b style="color:{NEGATIVE}">✗ {escape(finding.name)}</b> {escape(finding.summary)}'
        parts.append(f"<div><p>{head}</p><ul>{evidence}</ul><p>→ {escape(finding.advice)}</p></div>")
    return f"<div><p>{escape(str(checkup).splitlines()[0])}</p>{''.join(parts)}</div>"


def _row(row: Any) -> str:
    numbers = "".join(f"<td>{number:.10g}</td>" for number in (row.value, row.analytic, row.numerical))
    verdict = "✓ ok" if row.ok else f'<b style="color:{NEGATIVE}">✗ WRONG</b>'
    return f"<tr><td>{escape(row.name)}</td>{numbers}<td>{row.error:.0e}</td><td>{verdict}</td></tr>"
