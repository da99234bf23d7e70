"""The scoreboard as a picture: a row a contestant, a column a workload, and on each crossing a dot on a scale of time.

It is an SVG with colours for light and dark pages, and its own background for pages that are neither.
"""

from __future__ import annotations

import math
from html import escape

from contest import Contest
from contestants import CONTESTANTS, OURS
from pages import Board, duration, in_order, scaled

LABELS, COLUMN, ROW, GAP, HEAD, FOOT, EDGE = 262, 130, 23, 11, 62, 42, 18  # pixels
CAPTION = (
    "Time a step: left is faster, every column has its own logarithmic scale. Rings: timed on few examples, scaled up."
)
INSET = 12  # between a column's edges and the ends of its scale
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 13px }
.small, .value { font-size: 10.5px; fill: #59636e }
.value { paint-order: stroke; stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round }
.ours { font-weight: 600; fill: #0068a3 }
.page { fill: #ffffff; stroke: #d0d7de }
.band { fill: #f6f8fa }
.decade { stroke: #d8dee4 }
.line { stroke: #0072b2; stroke-dasharray: 3 3 }
.dot { fill: #8c959f; stroke: #8c959f; stroke-width: 1.6 }
.own { fill: #56b4e9; stroke: #56b4e9 }
.first { fill: #0072b2; stroke: #0072b2 }
.few { fill: #ffffff }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .small, .value { fill: #9198a1 }
  .value { stroke: #0d1117 }
  .ours { fill: #56b4e9 }
  .page { fill: #0d1117; stroke: #30363d }
  .band { fill: #151b23 }
  .decade { stroke: #262c36 }
  .line { stroke: #56b4e9 }
  .dot { fill: #767e88; stroke: #767e88 }
  .own { fill: #2f81b7; stroke: #2f81b7 }
  .first { fill: #56b4e9; stroke: #56b4e9 }
  .few { fill: #0d1117 }
}
""".strip()


def picture(board: Board) -> str:
    """The whole file."""
    tasks = board.tasks
    rows = _rows(tasks)
    bottom = max(rows.values()) + ROW / 2
    width, height = EDGE + LABELS + COLUMN * len(tasks) + EDGE, bottom + FOOT + EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" width="{width}" height="{height:g}" '
        'role="img">',
        "<title>Time a step by contestant and workload, on logarithmic scales</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1:g}" rx="8"/>',
    ]
    for k, y in enumerate(rows.values()):
        if k % 2 == 0:
            parts.append(_rect("band", EDGE / 2, y - ROW / 2, width - EDGE, ROW))
    for name, y in rows.items():
        parts.append(_text(EDGE + LABELS - 10, y + 4, name, "end", "ours" if name == OURS else ""))
    for k, task in enumerate(tasks):
        parts += _column(task, rows, EDGE + LABELS + COLUMN * k, bottom)
    parts.append(_text(EDGE + LABELS + INSET, height - EDGE + 2, CAPTION, "start", "small"))
    return "\n".join([*parts, "</svg>", ""])


def _rows(tasks: list[Contest]) -> dict[str, float]:
    """The height of each row, with a gap before each group but the first."""
    groups = {contestant.name: contestant.group for contestant in CONTESTANTS}
    rows: dict[str, float] = {}
    y, last = HEAD + EDGE / 2 + ROW / 2, None
    for name in in_order({name for task in tasks for name in task.times}):
        y += GAP if last not in (None, groups[name]) else 0
        rows[name], last = y, groups[name]
        y += ROW
    return rows


def _column(task: Contest, rows: dict[str, float], left: float, bottom: float) -> list[str]:
    best = {name: task.best(name) for name in rows if name in task.times}
    low, high = math.floor(math.log10(min(best.values()))), math.ceil(math.log10(max(best.values())))
    high = max(high, low + 1)

    def across(seconds: float) -> float:
        return left + INSET + (math.log10(seconds) - low) / (high - low) * (COLUMN - 2 * INSET)

    top = min(rows.values()) - ROW / 2
    parts = [_text(left + COLUMN / 2, EDGE + 14, task.workload.name, "middle", "title")]
    for line, text in enumerate(_two_lines(task.workload.title)):
        parts.append(_text(left + COLUMN / 2, EDGE + 29 + 12 * line, text, "middle", "small"))
    for power in range(low, high + 1):
        parts.append(_line("decade", across(10**power), top, bottom + 4))
        if power % 3 == 0:
            anchor = {low: "start", high: "end"}.get(power, "middle")  # within the column, beside its neighbours
            parts.append(_text(across(10**power), bottom + 17, _unit(power), anchor, "small"))
    parts.append(_line("line", across(best[OURS]), top, bottom))
    for name, seconds in best.items():
        x, y = across(seconds), rows[name]
        own = " own" if name.startswith(OURS) else ""
        kind = "dot first" if name == OURS else f"dot{own}{' few' if scaled(task, name) else ''}"
        parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:g}" r="{5 if name == OURS else 4}"/>')
        right = x < left + COLUMN / 2
        style = "value ours" if name == OURS else "value"
        parts.append(_text(x + (8 if right else -8), y + 4, duration(seconds), "start" if right else "end", style))
    return parts


def _two_lines(text: str) -> list[str]:
    """Broken near the middle."""
    words = text.split()
    cut = min(range(1, len(words) + 1), key=lambda k: abs(len(" ".join(words[:k])) - len(" ".join(words[k:]))))
    return [" ".join(words[:cut]), " ".join(words[cut:])]


def _unit(power: int) -> str:
    return {-9: "1 ns", -6: "1 µs", -3: "1 ms", 0: "1 s", 3: "10³ s"}[power]


def _text(x: float, y: float, text: str, anchor: str, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(kind: str, x: float, top: float, bottom: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{top:g}" y2="{bottom:g}"/>'


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'
