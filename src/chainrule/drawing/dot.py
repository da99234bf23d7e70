"""How it looks: a Picture as DOT text, the language of Graphviz.

Cards are white, and what lies between them is a mid-tone on a transparent background, so that a drawing is legible on
light and on dark pages. Signs are blue and orange, which people with any kind of colour vision can tell apart, and
nothing relies on colour alone: kinds of node differ in shape, signs are written out, negative weights are dashed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from html import escape

from chainrule.drawing.picture import Edge, Node, Picture, TooLargeError

FONT = "Helvetica,Arial,sans-serif"
INK, FAINT, BETWEEN, CARD, FRAME = "#1f2328", "#6e7781", "#768390", "#ffffff", "#6e7781"
POSITIVE, NEGATIVE, RULE = "#0072b2", "#d55e00", "#d0d7de"

MANY = 120  # edges; beyond that, weak ones are faded

# Of `effort`: up to CURVED Graphviz takes about a second, and up to MOST_EFFORT a few seconds with straight edges.
CURVED, MOST_EFFORT = 1_200, 20_000

SHAPES = {  # of each kind of node
    "computed": {"shape": "box", "style": "rounded,filled"},
    "leaf": {"shape": "box", "style": "filled"},
    "parameter": {"shape": "note", "style": "filled"},
    "constant": {"shape": "plain"},
    "module": {"shape": "component", "style": "filled"},
    "neuron": {"shape": "circle", "style": "filled", "fixedsize": "true", "width": "0.3"},
    "more": {"shape": "plain"},
}


class _Html(str):
    """Text in Graphviz's HTML-like language, as opposed to plain text."""

    __slots__ = ()


def dot(picture: Picture) -> str:
    """The picture as DOT text."""
    return "\n".join(["digraph {", *(f"  {line}" for line in _lines(picture)), "}"]) + "\n"


def effort(picture: Picture) -> int:
    """The total number of ranks that edges span, which determines Graphviz's time. Edges with text count twice."""
    rank: dict[str, int] = {}
    sources = defaultdict(list)
    for edge in picture.edges:
        sources[edge.target].append(edge.source)
    for node in picture.nodes:
        rank[node.key] = 1 + max((rank.get(source, -1) for source in sources[node.key]), default=-1)
    return sum(abs(rank[edge.target] - rank[edge.source]) * (2 if edge.lines else 1) for edge in picture.edges)


def check_effort(picture: Picture) -> None:
    """Refuse a picture for which Graphviz would take minutes."""
    if not picture.network and effort(picture) > MOST_EFFORT:
        raise TooLargeError(
            f"this graph of {len(picture.nodes)} nodes is so entangled that Graphviz would take minutes: "
            "draw less of it, with `depth`, or with `model` and `collapse`"
        )


def _lines(picture: Picture) -> Iterator[str]:
    font = {"fontname": FONT, "fontsize": "11"}
    graph = {"rankdir": picture.direction, "bgcolor": "transparent", "pad": "0.1", "nodesep": "0.22", "ranksep": "0.4"}
    if picture.order:
        graph["newrank"] = "true"  # else the order holds in frames only
    if picture.network:
        graph |= {"layout": "neato", "splines": "line"}
    elif len(picture.edges) > MANY:
        graph["ranksep"] = f"{0.4 + len(picture.edges) / 200:.1f}"
    if not picture.network and effort(picture) > CURVED:
        graph |= {"splines": "line", "mclimit": "0.05", "nslimit": "0.2", "nslimit1": "0.5"}
    yield f"graph {_attributes(graph | font | {'fontcolor': BETWEEN})}"
    yield f"node {_attributes(font | {'fontcolor': INK, 'color': FRAME, 'fillcolor': CARD})}"
    yield f"edge {_attributes(font | {'fontsize': '9', 'fontcolor': BETWEEN, 'color': BETWEEN})}"
    for node in picture.nodes:
        yield f"{_quoted(node.key)} {_attributes(_node(node))}"
    for k, group in enumerate(picture.groups):
        frame = {"label": group.title, "style": "rounded", "color": BETWEEN, "margin": "10", "labeljust": "l"}
        yield f"subgraph cluster_{k} {{ graph {_attributes(frame)}"
        yield f"  {'; '.join(map(_quoted, group.keys))} }}"
    for edge in picture.edges:
        style = _weight(edge) if picture.network else _edge(edge, len(picture.edges) > MANY)
        yield f"{_quoted(edge.source)} -> {_quoted(edge.target)} {_attributes(style)}"
    for before, after in picture.order:
        yield f"{_quoted(before)} -> {_quoted(after)} {_attributes({'style': 'invis', 'weight': '8'})}"


def _node(node: Node) -> dict[str, str]:
    style = dict(SHAPES[node.kind])
    if node.kind == "neuron":
        style |= {"fillcolor": _blend(node.tint), "label": node.title, "fontsize": "9"}
    else:
        style |= {"label": _card(node), "margin": "0.06,0.03", "width": "0.3", "height": "0.2"}
    if node.place is not None:
        style["pos"] = "{:.3f},{:.3f}!".format(*node.place)
    if node.shared:
        style["peripheries"] = "2"
    style["tooltip"] = node.hint or " ".join([node.title, *(f"{name} {text}" for name, text in node.rows)]).strip()
    return style


def _card(node: Node) -> str:
    """An HTML-like label: the op in a badge, the title above the rows."""
    plain = node.kind in ("constant", "more")  # text without a card
    ink, faint = (BETWEEN, BETWEEN) if plain else (INK, FAINT)
    lines = []
    if node.title:
        lines.append(f'<td colspan="2" align="left">{_text(node.title, ink, bold=not plain)}</td>')
    for name, text in node.rows:
        tint = f' style="rounded" bgcolor="{_blend(node.tint)}"' if name == "grad" and node.tint else ""
        key = f'<td align="left">{_text(name, faint, size=9)}</td>' if name else ""
        span = "" if name else ' colspan="2"'
        lines.append(f'{key}<td{span} align="{"right" if name else "left"}"{tint}>{_text(text, ink)}</td>')
    if node.op:
        size = 14 if len(node.op) < 3 else 11
        rule = f'border="1" sides="r" color="{RULE}"'
        badge = f'<td rowspan="{max(1, len(lines))}" {rule}>{_text(node.op, INK, size, bold=True)}</td>'
        lines = [badge + (lines[0] if lines else ""), *lines[1:]]
    rows = "".join(f"<tr>{line}</tr>" for line in lines or ["<td></td>"])
    return _Html(f'<table border="0" cellborder="0" cellspacing="0" cellpadding="2">{rows}</table>')


def _edge(edge: Edge, fading: bool) -> dict[str, str]:
    style = {"penwidth": f"{0.8 + 2.4 * edge.strength:.2f}", "arrowsize": "0.6"}
    if fading:
        style["color"] = f"{BETWEEN}{round(70 + 185 * edge.strength):02x}"
    if edge.pull > 1:
        style["weight"] = str(edge.pull)
    if not edge.passes:
        style |= {"style": "dotted", "arrowhead": "empty"}
    if edge.lines:
        text = "<br/>".join(_text(line, BETWEEN) for line in edge.lines)  # with a margin that keeps it off the line
        style["label"] = _Html(f'<table border="0" cellpadding="4"><tr><td>{text}</td></tr></table>')
    style["tooltip"] = edge.hint or " ".join(edge.lines)
    return style


def _weight(edge: Edge) -> dict[str, str]:
    """A line whose width shows a weight's size, and whose colour shows its sign."""
    colour = POSITIVE if edge.sign > 0 else NEGATIVE if edge.sign < 0 else BETWEEN
    opacity = f"{round(40 + 190 * edge.strength**2):02x}"  # small weights fade
    style = {"penwidth": f"{0.4 + 2.6 * edge.strength**2:.2f}", "color": colour + opacity, "arrowhead": "none"}
    return style | ({"style": "dashed"} if edge.sign < 0 else {}) | {"tooltip": edge.hint}


def _text(text: str, colour: str, size: int = 0, bold: bool = False) -> str:
    """Text for an HTML-like label; empty text stays empty, because Graphviz refuses an empty element."""
    if not text.strip():
        return ""
    escaped = escape(_printable(text)).replace("\\", "\\\\")  # Graphviz reads \\N as the node's name
    content = f"<b>{escaped}</b>" if bold else escaped
    points = f' point-size="{size}"' if size else ""
    return f'<font color="{colour}"{points}>{content}</font>'


def _blend(tint: float) -> str:
    """White mixed with the colour of the sign, pale enough at full strength for text on it."""
    end = POSITIVE if tint > 0.0 else NEGATIVE
    share = 0.55 * min(1.0, abs(tint))
    channels = [round(255 + share * (int(end[k : k + 2], 16) - 255)) for k in (1, 3, 5)]
    return "#{:02x}{:02x}{:02x}".format(*channels)


def _attributes(pairs: dict[str, str]) -> str:
    written = [f"{name}={f'<{text}>' if isinstance(text, _Html) else _quoted(text)}" for name, text in pairs.items()]
    return f"[{' '.join(written)}]"


def _quoted(text: str) -> str:
    """A DOT string. An unescaped backslash would start one of Graphviz's escapes, such as \\N for the node's name."""
    return '"' + _printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _printable(text: str) -> str:
    """Text without control characters, which XML cannot hold."""
    return "".join(c if c.isprintable() else " " for c in text)
