"""For mkdocs: the pages of the site that are made, not written, and links as they are on the site.

- notebooks/*.md, *.ipynb: the notebooks, with what their cells showed when they were run
- contributing.md and changelog.md: the files of that name in the repository's root
- pictures/stepper.html: a stepper to play with, in place of its picture

Pages link to files of the repository, so that they can be read there; here these links lead to the pages of the site.
"""

from __future__ import annotations

import base64
import html
import posixpath
import re
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import chainrule
from chainrule import Value

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OUTPUT_LINES = 60  # of a cell's text; a page is not a log
FRAMED = re.compile(r'<iframe srcdoc="(.*?)" title="(.*?)"', re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
PICTURE_OF_STEPPER = re.compile(r"^!\[(.*?)\]\((\S*)pictures/stepper\.png\)$", re.MULTILINE)

# Pages that are made from files outside docs/.
ON_SITE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
ON_SITE |= {f"notebooks/{path.name}": f"notebooks/{path.stem}.md" for path in NOTEBOOKS}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs when it has found the pages that are written."""
    made: dict[str, str | bytes] = {"pictures/stepper.html": worked_expression()}
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        made[ON_SITE[name]] = as_on_site((ROOT / name).read_text(encoding="utf-8"), name)
    for path in NOTEBOOKS:
        made |= notebook(path)
    for uri, content in made.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Called by mkdocs with the text of each page."""
    if page.file.src_uri == "reference/ops.md":
        page.meta["hide"] = ["toc"]  # for a wide table
    if page.file.generated_by:
        return markdown
    live = r'<iframe class="stepper" src="\2pictures/stepper.html" title="\1"></iframe>'
    return PICTURE_OF_STEPPER.sub(live, as_on_site(markdown, f"docs/{page.file.src_uri}"))


def as_on_site(text: str, source: str) -> str:
    """The text of a file of the repository, with links that lead where they do in the repository."""
    folder = posixpath.dirname(_on_site(source) or source)

    def moved(link: re.Match[str]) -> str:
        uri = _on_site(posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1])))
        return f"]({posixpath.relpath(uri, folder or '.')}" if uri else link[0]

    return LINK.sub(moved, text)


def _on_site(path: str) -> str | None:
    """The page of the site that a file of the repository is."""
    return path.removeprefix("docs/") if path.startswith("docs/") else ON_SITE.get(path)


def worked_expression() -> str:
    """The stepper on the expression that the pages work out."""
    a, b, c, f = Value(2.0), Value(-3.0), Value(10.0), Value(-2.0)
    e = a * b
    d = e + c
    L = d * f  # noqa: N806  # as the lecture has it
    return chainrule.stepper(L, names=locals()).html


def notebook(path: Path) -> dict[str, str | bytes]:
    """A notebook as a page, and the pictures on it."""
    book = nbformat.read(path, as_version=4)
    pieces: list[str] = []
    made: dict[str, str | bytes] = {f"notebooks/{path.name}": nbformat.writes(book)}
    for k, cell in enumerate(book.cells):
        if cell.cell_type == "markdown":
            pieces.append(as_on_site(cell.source, f"notebooks/{path.name}"))
            continue
        pieces.append(f"```python\n{cell.source}\n```")
        for j, output in enumerate(cell.outputs):
            text, files = _shown(output, f"{path.stem}_{k}_{j}")
            pieces.append(text)
            made |= {f"notebooks/{name}": content for name, content in files.items()}
    pieces.append(f"*[Download this notebook]({path.name}), with what it shows.*")
    return {f"notebooks/{path.stem}.md": "\n\n".join(pieces) + "\n", **made}


def _shown(output: Any, name: str) -> tuple[str, dict[str, str | bytes]]:
    """What a cell shows, as Markdown, and the files that go with it: of several forms the best."""
    forms = {"text/plain": output.text} if output.output_type == "stream" else output.get("data", {})
    if "image/svg+xml" in forms:
        return _picture(f"{name}.svg"), {f"{name}.svg": forms["image/svg+xml"]}
    if "image/png" in forms:
        return _picture(f"{name}.png"), {f"{name}.png": base64.b64decode(forms["image/png"])}
    if framed := FRAMED.search(forms.get("text/html", "")):
        page, title = framed.groups()
        return f'<iframe class="stepper" src="{name}.html" title="{title}"></iframe>', {
            f"{name}.html": html.unescape(page)
        }
    if "text/html" in forms:
        return f'<div class="output">{forms["text/html"]}</div>', {}
    lines = forms.get("text/plain", "").rstrip().splitlines()
    if len(lines) > OUTPUT_LINES:
        lines = [*lines[:OUTPUT_LINES], f"… {len(lines) - OUTPUT_LINES} more lines"]
    text = "\n".join(lines)
    return f"```{{ .text .output }}\n{text}\n```", {}


def _picture(name: str) -> str:
    return f"![What the code above shows]({name}){{ .output }}"
