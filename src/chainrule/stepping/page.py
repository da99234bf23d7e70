"""Pages in one file: a component of `web/`, its style and its data, all inlined so that the file works offline.

The scripts in `web/` are ES modules, for bundlers. Browsers refuse modules in a page that is opened as a file, so here
they become one classic script: without `import` and `export`, in a function that keeps their names out of the page's.
"""

from __future__ import annotations

import html
import json
import os
import re
import tempfile
import webbrowser
from importlib.resources import files
from pathlib import Path
from typing import Any

from chainrule.core.arguments import HALF_A_CHARACTER
from chainrule.core.atomic import write_whole

STYLES = ("page.css", "stepper.css")
# Each script after what it imports.
SCRIPTS = ("elements", "graph_layout", "narration", "graph_view", "node_details", "node_table", "stepper", "page")

# The page loads nothing; if it tried, the browser would stop it.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


FRAME = "width: 100%; height: 0; border: 0"


class Page:
    """A page in one file. `static` is what it says, as HTML that needs no script.

    >>> Page("Empty", "<!doctype html><title>Empty</title>")
    <Page 'Empty', 35 characters: .open() shows it, .save(path) keeps it>
    """

    def __init__(self, title: str, html: str, static: str = "") -> None:
        self.title, self.html, self.static = title, html, static

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, completely or not at all."""
        write_whole(os.fspath(path), self.html.encode())

    def open(self) -> Path:
        """Show the page in the browser, from a temporary file; return its path."""
        handle, name = tempfile.mkstemp(prefix="chainrule-", suffix=".html")
        with open(handle, "w", encoding="utf-8") as file:
            file.write(self.html)
        if not webbrowser.open(Path(name).as_uri()):
            raise RuntimeError(f"no browser could be started; the page is in {name!r}: open that file yourself")
        return Path(name)

    def _repr_html_(self) -> str:
        """For notebooks: in a frame, so that styles, keys and names of page and notebook stay apart.

        Viewers that run no scripts, such as GitHub's, leave the frame out or leave it empty. They show what stands
        below it, which the page's own script hides when it makes the frame as tall as the page.
        """
        frame = f'<iframe srcdoc="{html.escape(self.html)}" title="{html.escape(self.title)}" style="{FRAME}"></iframe>'
        return f'<div>{frame}<div class="chainrule-static">{self.static}</div></div>'

    def __repr__(self) -> str:
        return f"<Page {self.title!r}, {len(self.html):,} characters: .open() shows it, .save(path) keeps it>"


def page(title: str, component: str, data: dict[str, Any], static: str = "") -> Page:
    """A page with one component (an element id that `web/page.js` knows), its data, and what stands for it without."""
    title, static = HALF_A_CHARACTER.sub("?", title), HALF_A_CHARACTER.sub("?", static)
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")  # so that no label can end the script element
    text = HALF_A_CHARACTER.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
    return Page(
        title,
        f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{html.escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{"".join(map(_source, STYLES))}</style>
</head>
<body>
<main>
<h1>{html.escape(title)}</h1>
<div id="{component}">{static}</div>
</main>
<script type="application/json" id="{component}-data">{text}</script>
<script>
{classic_script()}</script>
</body>
</html>
""",
        static,
    )


def classic_script() -> str:
    """The modules of `web/` as one classic script."""
    modules = "\n".join(_source(f"{name}.js") for name in SCRIPTS)
    modules = re.sub(r"^import .*\n", "", modules, flags=re.MULTILINE)
    modules = re.sub(r"^export (?=function|class|const)", "", modules, flags=re.MULTILINE)
    return f'(() => {{\n"use strict";\n{modules}}})();\n'


def _source(name: str) -> str:
    return (files("chainrule.stepping") / "web" / name).read_text(encoding="utf-8")
