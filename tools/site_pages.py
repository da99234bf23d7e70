"""For mkdocs: the pages of the site that are made, not written.

- reference/ops.md: every op with its derivative, written by the op table's own rules
- notebooks/*.md, *.ipynb: the notebooks, run here and now, with what their cells show
- contributing.md and changelog.md: the files of that name in the repository's root
- pictures/stepper.html: a stepper to play with
"""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from traitlets.config import Config

import chainrule
from chainrule import Value, ops
from chainrule.stepping.formula_text import FormulaText, formula

ROOT = Path(__file__).parent.parent
OUTPUT_LINES = 60  # of a cell's text; a page is not a log
QUIET = ["--IPKernelApp.log_level=40"]  # errors only
FRAMED = re.compile(r'<iframe srcdoc="(.*?)" title="(.*?)"', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs when it has found the pages that are written."""
    made: dict[str, str | bytes] = {"reference/ops.md": op_table(), "pictures/stepper.html": worked_expression()}
    for name in ("CONTRIBUTING", "CHANGELOG"):
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        made[f"{name.lower()}.md"] = text.replace("](docs/", "](")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        made |= notebook(path)
    for uri, content in made.items():
        files.append(File.generated(config, uri, content=content))
    return files


OPS = """\
---
hide:
  - toc
---

# The ops

These {count} functions are `chainrule`'s (`chainrule.tanh(x)`) and methods of `Value` (`x.tanh()`). They take Values
and plain numbers.

This page is written by the [table that defines them](../design.md#an-operation-is-defined-once): each derivative is the
rule that `backward()` runs, applied to names. `out` is the op's own result; `[a < b]` is 1 where that holds, else 0.

| op | what it is | derivative | example |
|---|---|---|---|
{rows}
"""


def op_table() -> str:
    """The page of all ops."""
    return OPS.format(count=len(ops.TABLE), rows="\n".join(map(_op_row, ops.TABLE.values())))


def _op_row(row: ops.Op) -> str:
    summary, example, result, *_ = re.split(r"\n\n>>> |\n", (row.__doc__ or "").split(": ", 1)[1])
    names = [_Written((low + high) / 2.0, name) for name, (low, high) in zip(row.parameters, row.domain, strict=True)]
    out = _Written(row.forward(*[name.value for name in names]), "out")
    derivatives = []
    for name, partial in zip(row.parameters, row.partials, strict=True):
        by = f"by {name}: " if row.arity > 1 else ""
        derivatives.append(f"{by}`{formula(partial(out, *names)).text()}`" if partial else f"{by}none")
    if not any(row.partials):
        derivatives = ["none"]
    infix = f" {row.symbol} ".join(row.parameters)
    symbol = f"<br>`{infix}`" if any(row.partials) and row.symbol != row.name else ""  # `a == b` is not the op
    cells = (
        f"`{row.signature}`{symbol}",
        summary.removesuffix("."),
        "<br>".join(derivatives),
        f"`{example}` = `{result}`",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


class _Written(FormulaText):
    """A formula that keeps both sides of a `where`, for no numbers are given that would choose."""

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> FormulaText:
        if op is ops.where:
            formulas = tuple(map(formula, operands))
            made = FormulaText.of(op, op.forward(*[operand.value for operand in formulas]), formulas)
        else:
            made = super()._apply(op, operands)
        return _Written(made.value, made.name, made.op, made.operands)


def worked_expression() -> str:
    """The stepper on the expression that the pages work out."""
    a, b, c, f = Value(2.0), Value(-3.0), Value(10.0), Value(-2.0)
    e = a * b
    d = e + c
    L = d * f  # noqa: N806  # as the lecture has it
    return chainrule.stepper(L, names=locals()).html


def notebook(path: Path) -> dict[str, str | bytes]:
    """A notebook, run, as a page and the pictures on it."""
    book = nbformat.read(path, as_version=4)
    execute(book, path.parent)
    pieces: list[str] = []
    made: dict[str, str | bytes] = {f"notebooks/{path.name}": nbformat.writes(book)}
    for k, cell in enumerate(book.cells):
        if cell.cell_type == "markdown":
            pieces.append(cell.source.replace("](../docs/", "](../"))
            continue
        pieces.append(f"```python\n{cell.source}\n```")
        for j, output in enumerate(cell.outputs):
            if output.get("name") == "stderr":  # a library's murmur, not the lesson
                continue
            text, files = _shown(output, f"{path.stem}_{k}_{j}")
            pieces.append(text)
            made |= {f"notebooks/{name}": content for name, content in files.items()}
    pieces.append(f"*[Download this notebook]({path.name}), with what it shows.*")
    return {f"notebooks/{path.stem}.md": "\n\n".join(pieces) + "\n", **made}


def execute(book: nbformat.NotebookNode, folder: Path) -> None:
    """Run a notebook through sockets that are files, because a free port may be taken before it is used."""
    with TemporaryDirectory() as sockets:  # the path of a socket has to be short
        ways = {"transport": "ipc", "connection_file": f"{sockets}/kernel.json"}
        options = {"kernel_name": "python3", "timeout": 600, "coalesce_streams": True, "extra_arguments": QUIET}
        NotebookClient(book, config=Config(KernelManager=ways), **options).execute(cwd=folder)


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
